// The front as charts of uPlot, and two sliders that name the model to take.
(function () {
  "use strict";
  const front = JSON.parse(document.getElementById("data").textContent).front;
  if (!front) return;
  const points = front.points;
  const source = points[0];
  const colours = ["#4053d3", "#ddb310", "#b51d14", "#00beff", "#fb49b0", "#00b25d", "#888888"];
  // The trained model last, so that it lies on top.
  const series = [...new Set(points.slice(1).map((p) => p.series)), source.series];
  const colour = (i) => (i === series.length - 1 ? "#111" : colours[i % colours.length]);
  const byId = (id) => document.getElementById(id);
  const count = (n) => Math.round(n).toLocaleString("en-US");
  const percent = (v) => (100 * v).toFixed(2) + " %";
  const loss = (p) => 100 * (source.accuracy - p.accuracy);
  let taken = null;
  const charts = [];

  function told(p) {
    const time = p.milliseconds == null ? "" : ", " + p.milliseconds.toFixed(2) + " ms";
    return p.name + ": " + count(p.parameters) + " parameters, " + percent(p.accuracy) + time;
  }

  // One column per point, so that points of equal size do not hide each other.
  function chart(id, key, label, log) {
    const shown = points.filter((p) => p[key] != null).sort((a, b) => a[key] - b[key]);
    if (!shown.length) return;
    // Sizes that stand far enough apart to be read.
    const ticks = [];
    for (const p of shown) if (!ticks.length || p[key] > 1.5 * ticks.at(-1)) ticks.push(p[key]);
    const data = [shown.map((p) => p[key])];
    for (const s of series) data.push(shown.map((p) => (p.series === s ? 100 * p.accuracy : null)));
    const place = byId(id);
    const tip = document.createElement("div");
    tip.className = "tip";
    let near = null;
    const at = (u, p) => [u.valToPos(p[key], "x"), u.valToPos(100 * p.accuracy, "y")];
    const options = {
      width: place.clientWidth || 460,
      height: 320,
      scales: {
        x: {
          time: false,
          distr: log ? 3 : 1,
          range: (u, a, b) => (log ? [a / 1.3, b * 1.3] : [Math.max(a - 0.1 * (b - a), 0), b + 0.1 * (b - a) + 1e-3]),
        },
        y: { range: (u, a, b) => [a - 0.06 * (b - a) - 0.5, b + 0.06 * (b - a) + 0.5] },
      },
      axes: [log ? { label: label, splits: () => ticks, values: () => ticks.map(count) } : { label: label }, { label: front.measure }],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      series: [{ label: label }].concat(
        series.map((s, i) => ({
          label: s,
          stroke: colour(i),
          fill: colour(i),
          paths: () => null,
          points: { show: true, size: i === series.length - 1 ? 12 : 9, fill: colour(i) },
        }))
      ),
      legend: { live: false },
      hooks: {
        setCursor: [
          (u) => {
            near = null;
            let best = 24 * 24;
            for (const p of shown) {
              const [x, y] = at(u, p);
              const d = (x - u.cursor.left) ** 2 + (y - u.cursor.top) ** 2;
              if (d < best) [best, near] = [d, p];
            }
            tip.style.display = near ? "block" : "none";
            if (!near) return;
            const [x, y] = at(u, near);
            tip.innerHTML = "";
            for (const [tag, text] of [["b", told(near)], ["code", near.command]]) {
              const line = document.createElement(tag);
              line.textContent = text;
              tip.appendChild(line);
            }
            tip.style.left = Math.min(x, u.over.clientWidth - 300) + "px";
            tip.style.top = y + 14 + "px";
          },
        ],
        draw: [
          (u) => {
            if (!taken || taken[key] == null) return;
            const c = u.ctx;
            c.save();
            c.beginPath();
            c.strokeStyle = "#111";
            c.lineWidth = 3;
            const x = u.valToPos(taken[key], "x", true);
            c.arc(x, u.valToPos(100 * taken.accuracy, "y", true), 13, 0, 2 * Math.PI);
            c.stroke();
            c.restore();
          },
        ],
      },
    };
    const u = new uPlot(options, data, place);
    u.over.appendChild(tip);
    u.over.addEventListener("click", () => near && navigator.clipboard?.writeText(near.command));
    window.addEventListener("resize", () => u.setSize({ width: place.clientWidth, height: 320 }));
    charts.push(u);
  }

  // The smallest model within the budget that loses no more than is allowed.
  function take() {
    const sizes = [...new Set(points.map((p) => p.parameters))].sort((a, b) => a - b);
    const budget = sizes[+byId("budget").value];
    const allowed = +byId("loss").value;
    byId("budget-value").textContent = count(budget) + " parameters";
    byId("loss-value").textContent = allowed.toFixed(2) + " points";
    const fit = points.filter((p) => p.parameters <= budget && loss(p) <= allowed + 1e-9);
    fit.sort((a, b) => a.parameters - b.parameters || loss(a) - loss(b) ||
      (a.milliseconds ?? 1e9) - (b.milliseconds ?? 1e9));
    taken = fit[0] || null;
    if (taken) {
      byId("take").textContent = told(taken);
      byId("take-command").textContent = taken.command;
    } else {
      const small = points.filter((p) => p.parameters <= budget).sort((a, b) => loss(a) - loss(b))[0];
      byId("take").textContent = "No model within this budget loses so little; the best there loses " +
        loss(small).toFixed(2) + " points.";
      byId("take-command").textContent = "";
    }
    for (const u of charts) u.redraw(false);
  }

  const steps = new Set(points.map((p) => p.parameters)).size - 1;
  Object.assign(byId("budget"), { min: 0, max: steps, step: 1, value: steps });
  const worst = Math.max(...points.map(loss), 1);
  const most = Math.min(Math.ceil(worst), 10);
  Object.assign(byId("loss"), { min: 0, max: most, step: most / 100, value: Math.min(1, most) });
  for (const id of ["budget", "loss"]) byId(id).addEventListener("input", take);
  chart("chart-parameters", "parameters", "parameters", true);
  chart("chart-milliseconds", "milliseconds", front.latency, false);
  take();
  document.body.dataset.ready = "yes";
})();

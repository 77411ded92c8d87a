"""Figures of a compression study: accuracy and time over parameters."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import continua as ct
from continua import plot
from plot.trials import HALF, QUARTER, RUNS, SOURCE, TRIALS, legend, places, png, title, trial

# -- trials and their front -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accuracy": 98.9}, r"share from 0 to 1, not 98\.9"),
        ({"accuracy": -0.1}, r"share from 0 to 1, not -0\.1"),
        ({"accuracy": math.nan}, "share from 0 to 1, not nan"),
        ({"parameters": 0}, "parameters is at least 1, not 0"),
        ({"size": 0, "parameters": 1}, "size is at least 1, not 0"),
        ({"steps": 0}, "steps is at least 1, not 0"),
        ({"milliseconds": 0.0}, r"positive, or None if not measured; not 0\.0"),
        ({"milliseconds": math.inf}, "not inf"),
    ],
)
def test_a_trial_that_cannot_be_is_refused(changes, said):
    with pytest.raises(ct.ArgumentError, match=said):
        trial(**changes)


def test_the_front_of_the_example():
    assert plot.front([SOURCE, *TRIALS]) == [QUARTER, HALF, SOURCE]
    assert plot.front([HALF]) == [HALF]
    assert plot.front([]) == []


def test_of_equal_trials_the_first_is_on_the_front():
    twin = trial(4, HALF.accuracy, basis="BSpline")
    assert plot.front([twin, HALF]) == [twin]
    assert plot.front([HALF, twin]) == [HALF]


# Few values, so that ties are common.
some_trials = st.lists(
    st.builds(
        trial,
        size=st.integers(1, 4),
        parameters=st.integers(1, 6),
        accuracy=st.integers(0, 6).map(lambda n: n / 6),
        method=st.sampled_from(["project", "interpolate"]),
    ),
    max_size=12,
)


@given(some_trials)
def test_the_front_is_what_no_other_beats(trials):
    found = plot.front(trials)
    sizes = [t.parameters for t in found]
    shares = [t.accuracy for t in found]
    assert sizes == sorted(set(sizes))
    assert shares == sorted(set(shares))
    for t in trials:
        beaten_or_there = [
            f for f in found if f.parameters <= t.parameters and f.accuracy >= t.accuracy
        ]
        assert beaten_or_there  # every trial is matched by one on the front
    for f in found:
        better = [
            t
            for t in trials
            if t.parameters <= f.parameters
            and t.accuracy >= f.accuracy
            and (t.parameters, t.accuracy) != (f.parameters, f.accuracy)
        ]
        assert not better
    assert plot.front(found) == found


# -- accuracy over parameters -----------------------------------------------------------------


def test_pareto_shows_every_series_the_front_and_its_members():
    figure = plot.pareto(SOURCE, TRIALS, samples=1000, what="held-out accuracy")
    (ax,) = figure.axes
    assert ax.get_xlabel() == "parameters, thousands"
    assert ax.get_ylabel() == "held-out accuracy, %"
    assert legend(figure) == [
        "source",
        "Pareto front",
        "PiecewiseConstant, project",
        "PiecewiseConstant, interpolate",
        "PiecewiseLinear, project",
    ]
    assert places(ax, "source") == [(8.0, pytest.approx(99.1))]
    assert sorted(places(ax, "PiecewiseConstant, project")) == [(2.0, 95.0), (4.0, 98.9)]
    assert places(ax, "on the front") == [(2.0, 95.0), (4.0, 98.9), (8.0, pytest.approx(99.1))]
    (line,) = [line for line in ax.lines if line.get_label() == "Pareto front"]
    assert line.get_drawstyle() == "steps-post"
    assert [float(x) for x in line.get_xdata()[:3]] == [2.0, 4.0, 8.0]
    assert [text.get_text() for text in ax.texts] == ["K=2", "K=4", "K=8"]
    assert "1,000 samples (one is 0.1 points)" in title(ax)
    assert png(figure).startswith(b"\x89PNG")


def on_paper(line):
    return float(line.get_transform().transform(line.get_xydata())[0, 0])


def test_equal_sizes_stand_side_by_side_and_the_front_in_its_place():
    figure = plot.pareto(SOURCE, TRIALS, samples=1000)
    png(figure)  # which lays it out
    (ax,) = figure.axes
    drawn = {
        c.get_label(): on_paper(c.lines[0])
        for c in ax.containers
        if float(c.lines[0].get_xdata()[0]) == 4.0
    }
    true = float(ax.transData.transform((4.0, 98.9))[0])
    assert drawn["PiecewiseConstant, project"] == pytest.approx(true)
    others = sorted(drawn.values())
    assert len(others) == 3
    assert min(b - a for a, b in itertools.pairwise(others)) > 5


@pytest.mark.parametrize(("smallest", "scale"), [(1000, "linear"), (999, "log")])
def test_sizes_far_apart_stand_on_a_logarithmic_axis(smallest, scale):
    figure = plot.pareto(SOURCE, [trial(1, 0.9, parameters=smallest)], samples=1000)
    assert figure.axes[0].get_xscale() == scale
    png(figure)


@pytest.mark.parametrize(
    ("parameters", "label"),
    [(900, "parameters"), (9_000, "parameters, thousands"), (9_000_000, "parameters, millions")],
)
def test_parameters_are_counted_in_a_fitting_unit(parameters, label):
    source = trial(8, parameters=parameters)
    small = trial(4, parameters=parameters // 2)
    assert plot.pareto(source, [small], samples=10).axes[0].get_xlabel() == label


@pytest.mark.parametrize("method", ["project", "interpolate"])
def test_a_hollow_marker_is_interpolated(method):
    figure = plot.pareto(SOURCE, [trial(method=method)], samples=1000)
    (line,) = [c.lines[0] for c in figure.axes[0].containers if c.get_label() != "source"]
    assert (line.get_markerfacecolor() == "white") == (method == "interpolate")


def test_eleven_families_all_look_different():
    many = [
        trial(size, 0.9 + size / 100, basis=f"Family{i}", method=method)
        for i in range(11)
        for method in ("project", "interpolate")
        for size in (2, 4)
    ]
    figure = plot.pareto(SOURCE, many, samples=1000)
    looks = {
        (c.lines[0].get_color(), c.lines[0].get_marker(), c.lines[0].get_markerfacecolor())
        for c in figure.axes[0].containers
    }
    assert len(looks) == 22 + 1  # the source too
    assert len(legend(figure)) == 22 + 2
    png(figure)


def inside(figure, artist):
    """Whether an artist lies within its figure, once laid out."""
    png(figure)
    box, page = artist.get_window_extent(), figure.bbox
    return box.x0 >= page.x0 and box.x1 <= page.x1 and box.y0 >= page.y0 and box.y1 <= page.y1


@pytest.mark.parametrize("letters", [10, 40, 200])
def test_long_names_stay_in_the_figure(letters):
    figure = plot.pareto(SOURCE, [trial(basis="B" * letters)], samples=1000)
    assert inside(figure, figure.legends[0])


def test_the_source_may_be_among_the_trials_and_all_may_coincide():
    figure = plot.pareto(SOURCE, [SOURCE, trial(8, SOURCE.accuracy)], samples=1000)
    assert len(places(figure.axes[0], "on the front")) == 1
    png(figure)


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
def test_the_ends_of_the_scale_are_drawn_and_not_passed(accuracy):
    figure = plot.pareto(trial(8, accuracy), [trial(4, accuracy)], samples=50)
    png(figure)
    written = [t.get_text() for t in figure.axes[0].get_yticklabels() if t.get_text()]
    assert all(0 <= float(text) <= 100 for text in written)


@pytest.mark.parametrize(
    ("trials", "sentence"),
    [
        (
            [trial(4, 0.989, parameters=4160), QUARTER],
            "At 0.52 of the parameters (PiecewiseConstant(4), project) accuracy is 98.9 %, "
            "0.2 points below the source's 99.1 %.",
        ),
        (
            [trial(4, 0.981)],  # one point less is within one point
            "At 0.50 of the parameters (PiecewiseConstant(4), project) accuracy is 98.1 %, "
            "1.0 points below the source's 99.1 %.",
        ),
        (
            [QUARTER, trial(1, 0.5, basis="Constant")],  # none within a point: the best
            "At 0.25 of the parameters (PiecewiseConstant(2), project, Euler in 2 steps) accuracy "
            "is 95.0 %, 4.1 points below the source's 99.1 %.",
        ),
        (
            [trial(5, 0.995, basis="Fourier", steps=1)],  # the order is what Fourier takes
            "At 0.62 of the parameters (Fourier(2), project, Euler in 1 step) accuracy is 99.5 %, "
            "0.4 points above the source's 99.1 %.",
        ),
        (
            [trial(8, 0.991, method="interpolate")],  # none is smaller
            "At 1.00 of the parameters (PiecewiseConstant(8), interpolate) accuracy is 99.1 %, "
            "equal to the source's 99.1 %.",
        ),
        (
            [trial(1, 0.99, basis="Constant", parameters=80)],
            "At 0.01 of the parameters (Constant(), project) accuracy is 99.0 %, "
            "0.1 points below the source's 99.1 %.",
        ),
    ],
)
def test_the_sentence_of_pareto(trials, sentence):
    assert plot.describe_pareto(SOURCE, trials) == sentence


# -- time over parameters ---------------------------------------------------------------------


def test_latency_has_a_marker_per_scheme_and_the_steps_beside():
    untimed = trial(1, 0.9, scheme="Midpoint")
    figure = plot.latency(SOURCE, [*TRIALS, untimed], batch=1280)
    (ax,) = figure.axes
    assert ax.get_xlabel() == "parameters, thousands"
    assert ax.get_ylabel() == "milliseconds per batch of 1,280"
    assert legend(figure) == ["source (Euler)", "Euler", "RK4"]
    assert places(ax, "Euler") == [(4.0, 8.0), (4.0, 8.1), (2.0, 3.0)]
    assert places(ax, "RK4") == [(4.0, 12.0)]
    # Two with 8 steps all but coincide and are written once.
    assert sorted(text.get_text() for text in ax.texts) == ["2", "4", "8", "8"]
    assert png(figure).startswith(b"\x89PNG")


def test_a_source_without_a_time_is_left_out():
    source = trial(8, 0.99, method="source")
    figure = plot.latency(source, [HALF], batch=1)
    assert legend(figure) == ["Euler"]
    assert "takes 8 ms, at an accuracy of 98.9 %" in plot.describe_latency(source, [HALF])


@pytest.mark.parametrize(("slowest", "scale"), [(24.0, "linear"), (25.0, "log")])
def test_times_far_apart_stand_on_a_logarithmic_axis(slowest, scale):
    figure = plot.latency(SOURCE, [QUARTER, trial(4, milliseconds=slowest)], batch=1)
    assert figure.axes[0].get_yscale() == scale
    png(figure)


def test_the_numbers_of_steps_do_not_cover_each_other():
    trials = [
        trial(size, scheme=scheme, steps=steps, milliseconds=cost * steps)
        for size in (2, 4)
        for scheme, cost in (("Euler", 1.0), ("Midpoint", 2.0), ("RK4", 4.0))
        for steps in (2, 4, 8)
    ]
    figure = plot.latency(SOURCE, trials, batch=1)
    png(figure)
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 19
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.parametrize(
    ("trials", "sentence"),
    [
        (
            [HALF],
            "The fastest variant (PiecewiseConstant(4), project) takes 8 ms, 0.89 of the source's "
            "9 ms, at an accuracy of 98.9 %, 0.2 points below the source's 99.1 %.",
        ),
        (
            TRIALS,
            "The fastest variant (PiecewiseConstant(2), project, Euler in 2 steps) takes 3 ms, "
            "0.33 of the source's 9 ms, at an accuracy of 95.0 %, 4.1 points below the source's "
            "99.1 %; the fastest within one point of that (PiecewiseConstant(4), project) takes "
            "8 ms, 0.89 of the source's 9 ms, at 98.9 %.",
        ),
        (
            [trial(2, 0.5, milliseconds=12345.6)],
            "The fastest variant (PiecewiseConstant(2), project) takes 12346 ms, 1371.73 of the "
            "source's 9 ms, at an accuracy of 50.0 %, 49.1 points below the source's 99.1 %; "
            "no variant is within one point of that.",
        ),
    ],
)
def test_the_sentence_of_latency(trials, sentence):
    assert plot.describe_latency(SOURCE, trials) == sentence


@pytest.mark.parametrize(
    "use", [lambda t: plot.latency(SOURCE, t, batch=1), lambda t: plot.describe_latency(SOURCE, t)]
)
def test_trials_without_a_time_are_not_enough(use):
    with pytest.raises(ct.ArgumentError, match="none of the 2 trials has a time"):
        use([trial(), trial(2)])


@pytest.mark.parametrize(
    "use",
    [
        lambda: plot.pareto(SOURCE, [], samples=9),
        lambda: plot.describe_pareto(SOURCE, []),
        lambda: plot.latency(SOURCE, [], batch=1),
        lambda: plot.describe_latency(SOURCE, []),
    ],
)
def test_no_trials_are_refused(use):
    with pytest.raises(ct.ArgumentError, match="no trials; give at least one"):
        use()


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda: plot.pareto(SOURCE, TRIALS, samples=0), "samples is at least 1, not 0"),
        (lambda: plot.convergence(RUNS, samples=-1), "samples is at least 1, not -1"),
        (lambda: plot.latency(SOURCE, TRIALS, batch=0), "batch is at least 1, not 0"),
    ],
)
def test_counts_are_checked(use, said):
    with pytest.raises(ct.ArgumentError, match=said):
        use()

"""The comparison: problems, workers, rows and what a reader sees of them."""

import json
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch

import continua as ct
from peers import BenchOptions, Row, as_text, run_bench, write_report
from peers.__main__ import run
from peers._environments import Peer, interpreter
from peers._measure import OURS, _rounds, compare, quartiles
from peers._problems import problems
from peers._reference import errors, reference
from peers._sides.protocol import Outcome, Problem
from peers._sides.with_continua import side as our_side
from peers._sides.with_loop import side as loop_side
from peers._suite import Bench
from peers._workers import SOURCE, Worker, WorkerError

SMALL = ["fixed-small", "adaptive-tiny", "galerkin/fixed-backprop", "per-sample"]


def quiet(line):
    pass


def test_a_problem_comes_back_from_its_file(tmp_path):
    problem = problems()["cnf/exact"]()
    problem.write(tmp_path / "problem.npz")
    again = Problem.read(tmp_path / "problem.npz")
    assert (again.row, again.kind, again.settings) == (problem.row, problem.kind, problem.settings)
    for mine, theirs in ((problem.weights, again.weights), (problem.inputs, again.inputs)):
        assert list(mine) == list(theirs)
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)


def test_problems_are_the_same_each_time_and_others_with_another_seed():
    first, again, other = (problems(seed)["fixed-small"]().inputs["x"] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("row", SMALL)
def test_ours_solves_the_problem(row):
    problem = problems()[row]()
    found = errors(our_side().prepare(problem).outcome(), reference(problem))
    assert found.state < 1e-5
    assert found.gradient < 1e-5


@pytest.mark.parametrize("row", ["fixed-small", "galerkin/fixed-backprop"])
def test_the_loop_by_hand_solves_it_too(row):
    problem = problems()[row]()
    found = errors(loop_side().prepare(problem).outcome(), reference(problem))
    assert max(found.state, found.gradient) < 1e-5


def test_errors_are_relative_over_all_gradients():
    true = Outcome(np.array([3.0, 4.0]), {"a": np.array([3.0]), "b": np.array([4.0])})
    found = Outcome(np.array([3.0, 4.5]), {"b": np.array([4.0]), "a": np.array([2.0])})
    assert errors(found, true).state == pytest.approx(0.1)
    assert errors(found, true).gradient == pytest.approx(0.2)


def test_quartiles():
    assert quartiles([1.0]) == (1.0, 1.0, 1.0)
    assert quartiles([4.0, 1.0, 3.0, 2.0, 5.0]) == (2.0, 3.0, 4.0)


def test_workers_answer_and_say_what_they_cannot_do(tmp_path):
    with Worker("loop") as worker:
        problems()["adaptive-tiny"]().write(tmp_path / "a.npz")
        with pytest.raises(WorkerError, match="loop has nothing for it"):
            worker.prepare(tmp_path / "a.npz")
        problems()["fixed-small"]().write(tmp_path / "b.npz")
        assert worker.prepare(tmp_path / "b.npz")["library"] == "loop"
        assert worker.check(tmp_path / "out.npz").evaluations == 128
        assert len(worker.time(2)) == 2
        with pytest.raises(WorkerError, match="FileNotFoundError"):
            worker.prepare(tmp_path / "none.npz")


def test_a_worker_that_ends_leaves_its_last_words():
    with Worker("nobody") as worker, pytest.raises(WorkerError, match="No module named"):
        worker.time(1)


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """A side that times, sleeps or dies by what its script says."""
    (tmp_path / "_sides").mkdir()
    monkeypatch.setattr("peers._workers.SIDES", tmp_path)

    def write(name, body):
        (tmp_path / "_sides" / f"with_{name}.py").write_text(
            f"import sys, time\nfor line in sys.stdin:\n    {body}\n"
        )

    return write


def test_a_worker_that_says_nothing_is_given_up(made_up):
    made_up("asleep", "time.sleep(60)")
    with Worker("asleep", patience=0.5) as worker, pytest.raises(WorkerError, match=r"0\.5 s"):
        worker.time(1)


def test_a_worker_that_died_is_there_again_for_the_next_problem(made_up, tmp_path):
    made_up("mortal", 'print(\'{"version": "1"}\', flush=True); sys.exit(3)')
    with Worker("mortal") as worker:
        for _ in range(2):
            assert worker.prepare(tmp_path / "any.npz") == {"version": "1"}
            with pytest.raises(WorkerError, match="ended with 3"):
                worker.time(1)


def test_a_peer_that_dies_while_it_is_measured_loses_its_row_alone(made_up):
    made_up("steady", "print('{\"seconds\": [1.0]}', flush=True)")
    made_up("mortal", "print('{\"seconds\": [1.0]}', flush=True); sys.exit(3)")
    with Worker("steady") as ours, Worker("steady") as peer, Worker("mortal") as mortal:
        found = _rounds(ours, {"peer": peer, "mortal": mortal}, 3)
    assert found["peer"] == [(1.0, 1.0)] * 3
    assert "ended with 3" in str(found["mortal"])
    with Worker("mortal") as ours, Worker("steady") as peer:
        assert str(_rounds(ours, {"peer": peer}, 3)["peer"]).startswith("our own side fails")


def test_a_peer_that_is_missing_stands_in_the_table(tmp_path):
    problem = problems()["adaptive-tiny"]()
    with Worker("continua") as ours, Worker("loop") as loop:
        peers = {"absent": WorkerError("it cannot be installed: no network"), "loop": loop}
        rows = compare(problem, ours, peers, 1, tmp_path, quiet)
    assert [(row.peer, row.missing) for row in rows] == [
        ("absent", "it cannot be installed: no network"),
        ("loop", "loop has nothing for it"),
    ]


def test_another_problem_is_no_row(tmp_path, monkeypatch):
    monkeypatch.setattr("peers._measure.ON_A_GRID", 0.0)
    problem = problems()["fixed-small"]()
    with Worker("continua") as ours, Worker("loop") as loop:
        (row,) = compare(problem, ours, {"loop": loop}, 1, tmp_path, quiet)
    assert row.ratio is None
    assert row.missing.startswith("our own side fails: it solves another problem")


def test_an_installation_that_fails_is_told(tmp_path):
    peer = Peer("nobody", "env", (str(tmp_path / "there-is-no-such-package"),))
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python").symlink_to(sys.executable)
    told = []
    with pytest.raises(WorkerError, match="cannot be installed"):
        interpreter(peer, tmp_path, told.append)
    assert told == [f"installing nobody into {tmp_path / 'env'}"]


def test_what_a_reader_sees(tmp_path):
    rows = [
        Row("fixed-small", "loop", 1.02, 1.0, 1.1, (2e-3, 1.9e-3), 1e-7, 2e-7, 1e-7, 3e-7, (8, 8)),
        Row("fixed-small", "torchode", missing="it has no RK4"),
        Row("compress", "memory copy", 30.0, 28.0, 31.0, (0.03, 0.001)),
        Row("growth/steps", "", note="from 8 to 128", exponents={"time": 0.98, "memory": 1.0}),
    ]
    asked = {"suite": "quick", "rounds": 5, "threads": 1, "seed": 0}
    bench = Bench("2 cores", {"continua": "1"}, "2026-01-01", asked, rows)
    text = as_text(bench)
    assert "not run: it has no RK4" in text
    assert "time ~ n^0.98" in text
    written = write_report(bench, tmp_path)
    names = ["bench.json", "peers.md", "peers.png", "report.html"]
    assert [path.name for path in written] == names
    page = (tmp_path / "peers.md").read_text()
    assert "| fixed-small | loop | **1.02** | 1.00–1.10 | 2 / 1.9 | 8 / 8 |" in page
    assert "| steps | from 8 to 128 | 0.98 | 1.00 |" in page
    first = json.loads((tmp_path / "bench.json").read_text())["rows"][0]
    wanted = {"row", "peer", "ratio", "low", "high", "state_error", "gradient_error"}
    assert wanted <= first.keys()


@pytest.mark.parametrize(("missing", "code"), [("it has no RK4", 0), (f"{OURS}: shape", 1)])
def test_the_exit_code_tells_of_our_own_failures(missing, code, tmp_path, monkeypatch, capsys):
    asked = {"suite": "quick", "rounds": 5, "threads": 1, "seed": 0}
    rows = [Row("fixed-small", "loop", missing=missing)]
    bench = Bench("2 cores", {"continua": "1"}, "2026-01-01", asked, rows)
    monkeypatch.setattr("peers.__main__.run_bench", lambda *_: bench)
    assert run(["--run-dir", str(tmp_path), "--json"]) == code
    assert json.loads(capsys.readouterr().out)["rows"][0]["missing"] == missing


def test_the_whole_of_it_beside_a_loop():
    before = torch.get_num_threads()
    options = BenchOptions(rows=("fixed-small", "compress"), peers=("loop",), rounds=1)
    bench = run_bench(options, quiet)
    assert [(row.row, row.peer) for row in bench.rows] == [
        ("fixed-small", "loop"),
        ("compress", "memory copy"),
    ]
    assert all(row.ratio > 0 for row in bench.rows)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (BenchOptions(rows=("fixed-smal",)), "did you mean 'fixed-small'"),
        (BenchOptions(peers=("torchdif",)), "did you mean 'torchdiffeq'"),
        (BenchOptions(rounds=0), "rounds is at least 1"),
        (BenchOptions(threads=0), "threads is at least 1"),
    ],
)
def test_refusals(options, match):
    with pytest.raises(ct.ArgumentError, match=match):
        run_bench(options, quiet)


def test_each_side_is_compared_with_its_own_method_of_the_grid():
    problem = problems()["fixed-small"]()
    classical, other = reference(problem), reference(problem, "rk38")
    difference = errors(other, classical).state
    assert 0 < difference < 1e-6  # two methods of order four


def test_a_worker_may_complain_at_length(tmp_path, monkeypatch):
    """More than a pipe holds, before it answers and after."""
    script = tmp_path / "_sides" / "with_loud.py"
    script.parent.mkdir()
    script.write_text(
        "import sys\n"
        "for line in sys.stdin:\n"
        "    print('x' * 1_000_000, file=sys.stderr)\n"
        "    print('{\"seconds\": [1.0]}', flush=True)\n"
    )
    monkeypatch.setattr("peers._workers.SIDES", tmp_path)
    with Worker("loud") as worker:
        assert worker.time(1) == [1.0]
        assert worker.time(1) == [1.0]


def test_a_folder_that_cannot_be_written_to_is_told_before_measuring(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("peers.__main__.run_bench", lambda *_: pytest.fail("it measured"))
    (tmp_path / "file").touch()
    assert run(["--run-dir", str(tmp_path / "file")]) == 2
    assert "cannot write to the folder" in capsys.readouterr().err


def test_a_worker_imports_continua_from_the_sources_it_is_given(made_up, tmp_path):
    made_up("told", "import continua; print(continua.ANSWER, flush=True)")
    (tmp_path / "old/continua").mkdir(parents=True)
    (tmp_path / "old/continua/__init__.py").write_text('ANSWER = \'{"version": "old"}\'')
    with Worker("told", source=tmp_path / "old") as worker:
        assert worker.prepare(tmp_path / "any.npz") == {"version": "old"}


@pytest.fixture
def current(monkeypatch):
    """The current sources in place of a commit's; a checkout is not always there."""
    monkeypatch.setattr("peers._before.sources", lambda revision: nullcontext(SOURCE))


@pytest.mark.usefixtures("current")
def test_before_and_after(capsys):
    assert run(["--before", "HEAD", "--rows", "fixed-small", "--rounds", "2"]) == 0
    head, row, median = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["row", "after/before"]
    assert row.split()[0] == "fixed-small"
    assert row.split()[1] == median.split()[-1]
    assert float(row.split()[1]) > 0


@pytest.mark.usefixtures("current")
def test_before_without_a_row_that_ran(made_up, capsys):
    made_up("continua", "sys.exit(3)")
    arguments = ["--before", "HEAD", "--rows", "fixed-small", "--rounds", "1", "--json"]
    assert run(arguments) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["median"] is None
    assert "ended with 3" in found["rows"][0]["missing"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--before", "there-is-no-such-commit"], "there-is-no-such-commit"),
        (["--before", "HEAD", "--peers", "zuko"], "leave --peers out"),
        (["--before", "HEAD", "--rows", "compress"], "there is no row 'compress'"),
    ],
)
def test_refusals_of_before(arguments, said, capsys):
    assert run(arguments) == 2
    assert said in capsys.readouterr().err

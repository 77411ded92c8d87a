"""Data that can be indexed, trackers, and the time left."""

import io
import json
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import continua as ct
from continua.train import Progress, Samples, Training, evaluate, fit, silent, task_of
from continua.train._progress import TextBar, TimeLeft

X = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
Y = (X.sum(1) > 0).long()
COURSE = Training(epochs=2, batch_size=16, optimizer="adam", learning_rate=0.01)


class Columns:
    """As a Hugging Face dataset in the format torch."""

    def __len__(self):
        return 60

    def __getitem__(self, i):
        return {"a": X[i], "b": 2 * X[i], "label": Y[i]}


class Both(nn.Linear):
    def __init__(self):
        super().__init__(3, 2)

    def forward(self, a, b):
        return super().forward(a + b)


def test_loaders_train_and_give_what_tensors_give(tmp_path):
    loaders = {"train": DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True)}
    make = lambda: ct.build(nn.Linear, in_features=3, out_features=2)  # noqa: E731
    outcome = fit(make, loaders, COURSE, tmp_path, device="cpu", watch=silent)
    task = task_of(loaders)
    assert [task.size(part) for part in ("train", "validation", "test")] == [80, 10, 10]
    rows = {tuple(row.tolist()) for row in X}
    parts = [task.batch(p, torch.arange(task.size(p)), None)[0] for p in task.parts]
    assert {tuple(row.tolist()) for part in parts for row in part} == rows
    found = evaluate(outcome.model, task, "test")
    inputs, targets = task.batch("test", torch.arange(10), None)
    right = (outcome.model(inputs).argmax(1) == targets).double().mean()
    assert found["accuracy"] == pytest.approx(float(right))


def test_dictionaries_are_keyword_arguments():
    task = Samples(Columns(), Columns(), Columns())
    batch = task.batch("train", torch.arange(4), None)
    assert list(task.inputs(batch)) == ["a", "b"]
    loss, tally = task.loss(Both(), batch)
    assert loss.requires_grad
    assert tally.counts["accuracy"] == 4


def test_values_are_fitted_in_the_mean_square():
    task = Samples(TensorDataset(X, X[:, :1]))
    assert (task.measure, task.higher) == ("error", False)
    loss, _ = task.loss(nn.Identity(), [X[:5, :1], X[:5, :1] + 2])
    assert float(loss) == pytest.approx(4.0)
    with pytest.raises(ct.ShapeError, match=r"\[5, 3\]"):
        task.loss(nn.Identity(), [X[:5], X[:5, :1]])


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"train": DataLoader(Stream())}, "from its beginning"),
        ({"train": [{"a": 1.0}]}, "none is a target"),
        ({"train": [X[0]]}, "pair"),
        ({"train": [("text", 1)]}, "made of tensors"),
        ({"train": [(object(), 1)]}, "with_format"),
        ({"train": []}, "empty"),
        ({"train": [(X[0], Y[0])]}, "too few to take the validation and test part"),
        ({"trian": [1]}, "not trian"),
        ([1], "not list"),
    ],
)
def test_data_that_cannot_work(data, said):
    with pytest.raises(ct.ArgumentError, match=said):
        task_of(data)


def test_hugging_face_datasets():
    datasets = pytest.importorskip("datasets")
    table = {"x": X.tolist(), "label": Y.tolist()}
    parts = datasets.DatasetDict({"train": datasets.Dataset.from_dict(table)}).with_format("torch")
    task = task_of(parts)
    inputs, targets = task.batch("train", torch.arange(4), None)
    assert (inputs.shape, targets.shape) == ((4, 3), (4,))


# -- trackers and the time left -------------------------------------------------------------------


def make():
    return ct.build(nn.Linear, in_features=3, out_features=2)


def test_a_tracker_gets_every_epoch(tmp_path):
    tracking = pytest.importorskip("accelerate.tracking")
    told = []

    class Tracker(tracking.GeneralTracker):
        name, requires_logging_directory = "mine", False

        @property
        def tracker(self):
            return told

        def store_init_configuration(self, values):
            told.append(values)

        def log(self, values, step, **more):
            told.append((step, values))

    data = {"train": TensorDataset(X, Y)}
    fit(make, data, COURSE, tmp_path, device="cpu", watch=silent, log=Tracker())
    about, *lines = told
    assert about["learning_rate"] == 0.01
    assert [step for step, _ in lines] == [5, 10]
    assert {"train/loss", "validation/accuracy", "rate"} <= lines[0][1].keys()


def test_tensorboard_gets_every_epoch(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    data = {"train": TensorDataset(X, Y)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the package itself
        fit(make, data, COURSE, tmp_path, device="cpu", watch=silent, log="tensorboard")
        written = events.EventAccumulator(str(tmp_path / "continua")).Reload()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    for part, name in (("train", "loss"), ("validation", "accuracy")):
        told = [(event.step, event.value) for event in written.Scalars(f"{part}/{name}")]
        assert told == [(line["step"], pytest.approx(line[part][name])) for line in lines]


def test_a_tracker_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr("continua.train._tracker.find_spec", lambda name: None)
    data = {"train": TensorDataset(X, Y)}
    with pytest.raises(ImportError, match="pip install wandb"):
        fit(make, data, COURSE, tmp_path, device="cpu", log="wandb")
    with pytest.raises(ct.ArgumentError, match="one of wandb, mlflow, tensorboard"):
        fit(make, data, COURSE, tmp_path, device="cpu", log="comet")


def test_the_time_left_counts_refinements(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("continua.train._progress.time.monotonic", lambda: clock[0])
    left = TimeLeft(Training(epochs=4, refine_epochs=(2,)), start=0.0)
    assert left(0.0) is None
    clock[0] = 10.0
    assert left(1.0) == pytest.approx(50.0)  # 1 + 2 + 2 epochs of 10 s
    assert left(4.0) == pytest.approx(0.0)


def test_a_terminal_sees_a_line(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", Terminal())
    bar = TextBar(every=0.0)
    for done in (0, 1, 2):
        bar(Progress("training", done, 2, "loss 0.5", left=90.0))
    shown = sys.stderr.getvalue()
    assert shown.count("\n") == 1
    assert "1/2, loss 0.5, 90 s left" in shown

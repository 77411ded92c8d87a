"""How a training ends: by choice, by Ctrl-C, and how it goes on."""

import os
import signal
import threading

import pytest
import torch

import continua as ct
from continua.train import (
    Checkpoints,
    Classification,
    Interrupted,
    fit,
    functions,
)
from train.subjects import (
    Picture,
    Small,
    assert_same,
    course,
    parameters,
    points,
    run,
    small,
    task,
)

# -- choosing and stopping ---------------------------------------------------------------------


class Scripted(Classification):
    """Its accuracy on the validation part is what the test says."""

    def __init__(self, values):
        super().__init__(points())
        self.values = iter(values)

    def loss(self, model, batch):
        loss, tally = super().loss(model, batch)
        if not model.training:
            tally.sums["accuracy"] = next(self.values) * tally.counts["accuracy"]
        return loss, tally


def test_best_and_last(tmp_path):
    subject = Scripted([0.5, 0.9, 0.7, 0.8])
    outcome = fit(small, subject, course(epochs=4), tmp_path, device="cpu")
    assert Checkpoints(tmp_path).best().name == "step-00000008"
    assert Checkpoints(tmp_path).last().name == "step-00000016"
    assert outcome.position.best == 0.9
    assert outcome.position.stale == 2
    best = ct.load(Checkpoints(tmp_path).best(), factory=Small)
    assert torch.equal(parameters(best), parameters(outcome.model))


def test_best_begins_anew_with_another_size(tmp_path):
    subject = Scripted([0.9, 0.3, 0.2])
    training = course(epochs=3, refine_epochs=(1,))
    outcome = fit(small, subject, training, tmp_path, device="cpu")
    assert Checkpoints(tmp_path).best().name == "step-00000008"
    assert functions(outcome.model) == 2


def test_early_stop(tmp_path):
    subject = Scripted([0.5, 0.9, 0.8, 0.9])
    training = course(epochs=9, patience=2)
    outcome = fit(small, subject, training, tmp_path, device="cpu")
    assert outcome.position.epoch == 4
    assert outcome.position.finished
    again = fit(small, subject, training, tmp_path, device="cpu")
    assert again.history == outcome.history


def test_early_stop_waits_for_a_change_of_size(tmp_path):
    subject = Scripted([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    training = course(epochs=9, patience=1, refine_epochs=(3,))
    outcome = fit(small, subject, training, tmp_path, device="cpu")
    assert outcome.position.epoch == 5  # the first of the new size is its best


def test_evaluation_every_so_many_epochs_and_at_the_end(tmp_path):
    outcome = run(tmp_path, course(epochs=5, evaluate_every=2))
    assert ["validation" in line for line in outcome.history] == [False, True, False, True, True]


def test_without_a_validation_part_the_last_counts(tmp_path):
    data = points(sizes=(36, 0, 12))
    outcome = fit(small, Classification(data), course(), tmp_path, device="cpu")
    last = ct.load(Checkpoints(tmp_path).last(), factory=Small)
    assert torch.equal(parameters(last), parameters(outcome.model))


# -- going on ----------------------------------------------------------------------------------


def test_finished_run_returns_at_once(tmp_path):
    first = run(tmp_path)

    def never(*arguments):
        raise AssertionError("a finished run trains")

    subject = task()
    subject.loss = never
    again = fit(small, subject, course(), tmp_path, device="cpu")
    assert again.position == first.position
    assert again.history == first.history
    assert torch.equal(parameters(again.model), parameters(first.model))


def test_more_epochs_go_on(tmp_path):
    run(tmp_path / "one", course(epochs=2))
    run(tmp_path / "one", course(epochs=4))
    run(tmp_path / "two", course(epochs=4))
    assert_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"learning_rate": 0.1}, r"a training with learning_rate=0.05, not 0.1; choose another"),
        ({"refine_epochs": (1,)}, r"refine_epochs=\[\], not \[1\]"),
        ({"seed": 3}, "seed=0, not 3"),
    ],
)
def test_folder_of_another_course(tmp_path, options, said):
    run(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(ct.ArgumentError, match=said):
        run(tmp_path, course(**options))
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_folder_of_another_model_or_data(tmp_path):
    run(tmp_path)
    with pytest.raises(ct.ArgumentError, match=r"a model with width=6, not 8"):
        fit(lambda: small(width=8), task(), course(), tmp_path, device="cpu")
    with pytest.raises(ct.ArgumentError, match=r"of train.subjects:Small, not of .*Picture"):
        fit(lambda: ct.build(Picture), task(), course(), tmp_path, device="cpu")
    other = Classification(points(sizes=(33, 20, 12)))
    with pytest.raises(ct.ArgumentError, match="36 samples, not 33"):
        fit(small, other, course(), tmp_path, device="cpu")


# -- Ctrl-C ------------------------------------------------------------------------------------


def pressing(*calls: int):
    """A watcher that sends SIGINT to this process at these calls, from 1."""
    count = [0]

    def watch(now):
        count[0] += 1
        if count[0] in calls:
            os.kill(os.getpid(), signal.SIGINT)

    return watch


@pytest.mark.parametrize("call", [1, 4, 5, 6])
def test_interrupted_run_goes_on(tmp_path, call):
    before = signal.getsignal(signal.SIGINT)
    training = course(refine_epochs=(1,))
    with pytest.raises(Interrupted) as caught:
        run(tmp_path / "one", training, watch=pressing(call))
    message = str(caught.value)
    assert "run the same command again to go on" in message
    assert str(tmp_path / "one") in message
    assert signal.getsignal(signal.SIGINT) is before
    assert Checkpoints(tmp_path / "one").last() is not None
    run(tmp_path / "one", training)
    run(tmp_path / "two", training)
    assert_same(tmp_path / "one", tmp_path / "two")


def test_interrupted_between_epochs_of_one_batch(tmp_path):
    training = course(epochs=5, epoch_steps=1)
    with pytest.raises(Interrupted, match="epoch 2 of 5, after 1 steps"):
        run(tmp_path, training, watch=pressing(1))


def test_second_interrupt_is_obeyed_at_once(tmp_path):
    before = signal.getsignal(signal.SIGINT)

    def watch(now):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "one", watch=watch)
    assert signal.getsignal(signal.SIGINT) is before
    run(tmp_path / "one")
    run(tmp_path / "two")
    assert_same(tmp_path / "one", tmp_path / "two")


def test_request_to_terminate(tmp_path):
    def watch(now):
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        run(tmp_path, watch=watch)


def test_training_in_a_thread(tmp_path):
    found = []
    thread = threading.Thread(target=lambda: found.append(run(tmp_path)))
    thread.start()
    thread.join()
    assert found[0].position.finished

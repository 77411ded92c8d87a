"""The loop: what trains, what is told, and what is refused."""

import dataclasses
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import continua as ct
from continua.data import Part
from continua.train import (
    Checkpoints,
    Classification,
    Tally,
    Task,
    evaluate,
    fit,
    functions,
    read_history,
    silent,
)
from continua.train._size import halved
from train.subjects import (
    Picture,
    Small,
    assert_same,
    course,
    digits,
    metrics,
    parameters,
    points,
    run,
    small,
    task,
)

# -- training ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd"},
        {"optimizer": "sgd", "momentum": 0.0},
        {"optimizer": "sgd", "nesterov": False},
        {"optimizer": "adam"},
        {"optimizer": "adamw", "schedule": "one-cycle", "warmup": 1.0},
        {"optimizer": "adamw", "schedule": "inverse-root", "warmup": 1.0},
        {"optimizer": "sgd", "precision": "bf16"},
        {"optimizer": "adam", "precision": "fp16"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_each_optimizer_learns(tmp_path, options):
    outcome = run(tmp_path, course(epochs=6, **options))
    assert outcome.history[-1]["train"]["loss"] < 0.7 * outcome.history[0]["train"]["loss"]
    assert outcome.history[-1]["validation"]["accuracy"] > 0.8
    assert all(p.dtype == torch.float32 for p in outcome.model.parameters())
    assert not outcome.model.training
    assert bool(torch.isfinite(parameters(outcome.model)).all())


def test_evaluations_are_counted(tmp_path):
    outcome = run(tmp_path, course(epochs=2, refine_epochs=(1,)))
    lines = [line["train"] for line in outcome.history]
    assert [line["evaluations"] for line in lines] == [1, 2]  # Euler, one step and then two
    assert [line["backward_evaluations"] for line in lines] == [0, 0]


def test_the_evaluations_of_a_backward_pass_are_counted_too(tmp_path):
    def make():
        model = ct.build(Small)
        model.block.gradient = ct.Checkpoint()
        return model

    outcome = fit(make, task(), course(epochs=1), tmp_path, device="cpu")
    assert outcome.history[0]["train"]["backward_evaluations"] == 1
    assert outcome.model.block.gradient == ct.Checkpoint()


def test_images_of_the_embedded_digits(tmp_path):
    subject = Classification(digits(200))
    training = course(epochs=2, refine_epochs=(1,), batch_size=20)
    make = lambda: ct.build(Picture)  # noqa: E731
    outcome = fit(make, subject, training, tmp_path, device="cpu", channels_last=True)
    assert [line["functions"] for line in outcome.history] == [1, 2]
    assert functions(outcome.model) == 2


def test_clip_bounds_the_step(tmp_path):
    options = {"epochs": 1, "epoch_steps": 1, "momentum": 0.0, "weight_decay": 0.0}
    moved = {}
    for clip in (None, 1e-3):
        seen = small_after(tmp_path / str(clip), course(clip=clip, **options))
        moved[clip] = seen
    assert moved[1e-3] == pytest.approx(0.05 * 1e-3, rel=1e-3)
    assert moved[None] > 10 * moved[1e-3]


def small_after(folder: Path, training) -> float:
    """How far the parameters moved."""
    start = []

    def make():
        model = small()
        start.append(parameters(model))
        return model

    outcome = fit(make, task(), training, folder, device="cpu")
    return float((parameters(outcome.model) - start[0]).norm())


def test_smoothed_training_and_plain_evaluation(tmp_path):
    subject = task(label_smoothing=0.3)
    outcome = fit(small, subject, course(epochs=4), tmp_path, device="cpu")
    plain = evaluate(outcome.model, task())
    best = max(outcome.history, key=lambda line: line["validation"]["accuracy"])
    assert plain == pytest.approx(best["validation"])


def test_course_of_the_rate_and_the_size(tmp_path):
    training = course(
        epochs=5, epoch_steps=2, schedule="step", milestones=(3,), refine_epochs=(1, 2),
        project_epochs=(4,),
    )  # fmt: skip
    outcome = run(tmp_path, training)
    lines = outcome.history
    assert [line["functions"] for line in lines] == [1, 2, 4, 4, 2]
    assert [line["rate"] for line in lines] == pytest.approx([0.05, 0.05, 0.05, 0.005, 0.005])
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 10]
    assert outcome.model.block.solver == ct.Euler(steps=2)
    assert lines == read_history(tmp_path)


def test_halving_undoes_refining():
    model = Small(size=2)
    again = halved(ct.refine(model))
    assert again.block.solver == model.block.solver
    for name, value in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value)


def test_several_passes_and_a_short_batch(tmp_path):
    """Every pass is a permutation: after nine batches of four, all 36 samples were seen once."""
    seen = []

    class Watched(Classification):
        def batch(self, part, index, generator):
            if generator is not None:
                seen.append(index)
            return super().batch(part, index, generator)

    fit(small, Watched(points()), course(batch_size=4, epochs=2), tmp_path, device="cpu")
    order = torch.cat(seen)
    assert sorted(order[:36].tolist()) == sorted(order[36:].tolist()) == list(range(36))
    assert not torch.equal(order[:36], order[36:])


# -- random generators -------------------------------------------------------------------------


def test_the_callers_generators_are_left_alone(tmp_path):
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    expected = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    run(tmp_path)
    run(tmp_path)
    assert torch.equal(torch.get_rng_state(), expected[0])
    assert random.getstate() == expected[1]
    assert np.random.get_state()[1].tolist() == expected[2]


def test_the_seed_decides_and_the_callers_generators_do_not(tmp_path):
    torch.manual_seed(7)
    run(tmp_path / "one")
    torch.manual_seed(8)
    run(tmp_path / "two")
    run(tmp_path / "three", course(seed=1))
    assert_same(tmp_path / "one", tmp_path / "two")
    assert metrics(tmp_path / "one") != metrics(tmp_path / "three")


# -- refusals ----------------------------------------------------------------------------------


def linear() -> nn.Module:
    return ct.build(nn.Linear, in_features=2, out_features=3)


def test_loss_that_is_not_finite(tmp_path):
    data = points()
    inputs = data.train.inputs.clone()
    inputs[:] = float("nan")
    broken = Classification(dataclasses.replace(data, train=Part(inputs, data.train.targets)))
    with pytest.raises(ct.SolveError, match=r"training loss is nan at step 0, epoch 1: try"):
        fit(linear, broken, course(), tmp_path / "one", device="cpu")
    assert Checkpoints(tmp_path / "one").last().name == "step-00000000"
    with pytest.raises(ct.ArgumentError, match="the input has"):
        fit(small, broken, course(), tmp_path / "two", device="cpu")


def test_weights_that_diverge(tmp_path):
    with pytest.raises(ct.SolveError, match="try a lower learning_rate"):
        run(tmp_path, course(learning_rate=1e38, epochs=5))


def test_nothing_to_train(tmp_path):
    empty = Classification(points(sizes=(0, 5, 5)))
    with pytest.raises(ct.ArgumentError, match="training part is empty"):
        fit(small, empty, course(), tmp_path, device="cpu")

    def frozen():
        return small().requires_grad_(False)

    with pytest.raises(ct.ArgumentError, match="no parameter that requires a gradient"):
        fit(frozen, task(), course(), tmp_path, device="cpu")


def test_device_that_is_not_there(tmp_path):
    with pytest.raises(ct.ArgumentError, match="cannot train on device 'nonsense'"):
        fit(small, task(), course(), tmp_path, device="nonsense")
    assert "ACCELERATE_TORCH_DEVICE" not in os.environ
    run(tmp_path)


def test_refining_a_model_without_blocks(tmp_path):
    with pytest.raises(ct.ArgumentError, match="contains no ODEBlock"):
        fit(linear, task(), course(refine_epochs=(1,)), tmp_path, device="cpu")


def test_fewer_epochs_than_there_are(tmp_path):
    run(tmp_path, course(epochs=3))
    with pytest.raises(ct.ArgumentError, match=r"has 3 epochs already, more than epochs=2"):
        run(tmp_path, course(epochs=2))
    assert len(run(tmp_path, course(epochs=4)).history) == 4


@pytest.mark.parametrize("content", ['{"epoch": 1, "st', "[1]\n", ""])
def test_damaged_metrics_do_not_stop_a_run(tmp_path, caplog, content):
    run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text(content)
    assert run(tmp_path).position.finished
    assert "goes on without the measures of 2 of 2 epochs" in caplog.text


def test_a_task_of_ones_own(tmp_path):

    class Fit(Task):
        def size(self, part):
            return 16 if part == "train" else 4

        def batch(self, part, index, generator):
            x = index.float()[:, None] / 16
            return torch.cat([x, x], 1), 2 * x

        def loss(self, model, batch):
            value = (model(batch[0]) - batch[1]).square().mean()
            tally = Tally()
            tally.add("loss", float(value.detach()) * len(batch[1]), len(batch[1]))
            return value, tally

    make = lambda: ct.build(nn.Linear, in_features=2, out_features=1)  # noqa: E731
    outcome = fit(make, Fit(), course(epochs=3), tmp_path, device="cpu", watch=silent)
    assert outcome.position.best == min(line["validation"]["loss"] for line in outcome.history)


def test_a_task_of_a_users_own_is_told_what_it_lacks(tmp_path):
    class Bare(Task):
        def size(self, part):
            return 4

        def batch(self, part, index, generator):
            return (index.float()[:, None],)

        def loss(self, model, batch):
            return model(batch[0]).square().mean()

    class Unmeasured(Bare):
        def loss(self, model, batch):
            tally = Tally()
            tally.add("error", 0.0, 1)
            return super().loss(model, batch), tally

    def make():
        return ct.build(nn.Linear, in_features=1, out_features=1)

    for one, message in (
        (Bare(), "Bare.loss returns the loss and a Tally, not a Tensor"),
        (Unmeasured(), "Unmeasured.measure is 'loss', but its loss counts error"),
    ):
        with pytest.raises(ct.ArgumentError, match=message):
            fit(make, one, course(epochs=1), tmp_path / message[:4], device="cpu", watch=silent)


def test_tensorboard(tmp_path):
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(ct.ArgumentError, match="needs the package tensorboard"):
            run(tmp_path, course(tensorboard=True))
    else:
        run(tmp_path, course(tensorboard=True))
        assert list((tmp_path / "tensorboard").iterdir())

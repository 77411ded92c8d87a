"""Smaller models trained by larger ones, without labels."""

import copy
import logging

import pytest
import torch
from torch import nn

import continua as ct
from nets import mlp, scrambled


def pair() -> tuple[nn.Module, nn.Module, list[torch.Tensor]]:
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(mlp(norm=True), ct.PiecewiseConstant(4), ct.Euler(steps=4)))
    inputs = list(torch.randn(192, 6).split(32))
    model = ct.recalibrate(nn.Sequential(block, nn.Dropout(0.5), nn.Linear(6, 3)), inputs)
    return ct.compress(model, ct.PiecewiseConstant(2), steps=2), model, inputs


def gap(small: nn.Module, model: nn.Module, x: torch.Tensor) -> float:
    with torch.no_grad():
        return float((small.eval()(x) - model.eval()(x)).norm())


def running(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: b for name, b in model.named_buffers() if "running" in name}


def spoilt(model: nn.Module) -> nn.Module:
    """With statistics that any others are better than."""
    model = copy.deepcopy(model)
    for buffer in running(model).values():
        buffer.fill_(9.0)
    return model


def test_the_outputs_come_nearer_on_new_inputs():
    small, model, inputs = pair()
    before = [copy.deepcopy(m.state_dict()) for m in (small, model)]
    seen: list[ct.HealProgress] = []
    healed = ct.heal(small, model, inputs, steps=60, check_every=20, callback=seen.append)
    for m, state in zip((small, model), before, strict=True):
        torch.testing.assert_close(m.state_dict(), state, rtol=0, atol=0)
    assert [one.step for one in seen] == [20, 40, 60]
    assert all(module.training for module in healed.modules())
    assert seen[-1].best == min(one.loss for one in seen)
    new = torch.randn(64, 6)
    assert gap(healed, model, new) < 0.7 * gap(small, model, new)
    assert healed[0].solver == ct.Euler(steps=2)


@pytest.mark.parametrize("lr", [0.0, 10.0])
def test_it_is_never_worse_than_it_began(lr):
    """On what was held back, which is the second batch."""
    small, model, inputs = pair()
    healed = ct.heal(small, model, inputs[:3], steps=6, lr=lr, check_every=2, trajectory=0.0)
    assert gap(healed, model, inputs[1]) <= gap(small, model, inputs[1])


def test_a_model_that_is_its_own_teacher_stays():
    _, model, inputs = pair()
    healed = ct.heal(model, model, inputs, steps=4, check_every=1)
    torch.testing.assert_close(healed.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_patience_ends_it():
    """Two measurements that are no better than the first; what was given is not counted."""
    _, model, inputs = pair()
    seen: list[ct.HealProgress] = []
    given = {"steps": 9, "lr": 0.0, "check_every": 1, "patience": 2}
    ct.heal(model, model, inputs, callback=seen.append, **given)
    assert [one.step for one in seen] == [1, 2, 3]


def test_a_loss_that_rises_at_first_and_falls_again_goes_on():
    small, model, inputs = pair()
    healed = ct.heal(small, model, inputs, steps=200)
    seen: list[ct.HealProgress] = []
    again = {"steps": 100, "lr": 0.03, "check_every": 10, "patience": 2}
    ct.heal(healed, model, inputs, callback=seen.append, **again)
    assert seen[0].best < seen[0].loss
    assert len(seen) > 2


def test_the_trajectory_alone_can_teach():
    """Outputs that say nothing: the states of the block still come nearer."""
    small, model, inputs = pair()
    with torch.no_grad():
        for m in (small, model):
            m[2].weight.zero_()
    healed = ct.heal(small, model, inputs, steps=60)
    new = torch.randn(64, 6)
    assert gap(healed[0], model[0], new) < 0.8 * gap(small[0], model[0], new)


def test_progress_is_logged_and_nothing_is_printed(caplog, capsys):
    small, model, inputs = pair()
    with caplog.at_level(logging.INFO, logger="continua"):
        ct.heal(small, model, inputs, steps=2, check_every=1)
    assert "step 2: held-back loss" in caplog.text
    assert capsys.readouterr().out == ""


def test_swapped_models_are_warned_of():
    small, model, inputs = pair()
    with pytest.warns(UserWarning, match="the smaller model comes first"):
        ct.heal(model, small, inputs, steps=1)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"steps": 0}, "steps is a whole number"),
        ({"lr": float("nan")}, "lr is a finite number"),
        ({"batches": []}, "no batches"),
        ({"batches": [torch.randn(4, 6)]}, "1 batch of inputs"),
        ({"batches": [torch.randn(4, 5)] * 2}, "the model refuses"),
        ({"teacher": nn.Sequential(nn.Linear(6, 3))}, "contains no ODEBlock"),
        ({"teacher": ct.ODEBlock(nn.Linear(6, 6))}, "different blocks"),
    ],
)
def test_bad_arguments(given, match):
    small, model, inputs = pair()
    arguments = {"teacher": model, "batches": inputs, "steps": 2, **given}
    with pytest.raises(ct.ArgumentError, match=match):
        ct.heal(small, **arguments)


@pytest.mark.parametrize("listed", [True, False])
def test_the_teacher_runs_once_for_each_batch_of_a_list(listed):
    """A loader may give other inputs every time."""
    small, model, inputs = pair()
    calls = []
    model[0].field.register_forward_pre_hook(lambda *_: calls.append(1))
    batches = inputs if listed else torch.utils.data.DataLoader(torch.cat(inputs), batch_size=32)
    ct.heal(small, model, batches, steps=1)
    few = len(calls)
    calls.clear()
    ct.heal(small, model, batches, steps=40)
    # four of six batches are not held back; a forward of the teacher has four evaluations
    assert len(calls) - few == 4 * (3 if listed else 39)


def test_mixed_precision():
    small, model, inputs = pair()
    with torch.autocast("cpu", torch.bfloat16):
        healed = ct.heal(small, model, inputs, steps=60)
    assert all(p.dtype == torch.float32 for p in healed.parameters())
    new = torch.randn(64, 6)
    assert gap(healed, model, new) < 0.8 * gap(small, model, new)


def test_a_model_that_is_frozen_is_refused():
    small, model, inputs = pair()
    with pytest.raises(ct.ArgumentError, match="every parameter of the model to heal is frozen"):
        ct.heal(small.requires_grad_(False), model, inputs)


def test_statistics_are_corrected_as_those_of_compress():
    """From the batches that are not held back; the teacher has them from other inputs."""
    _, model, inputs = pair()
    few = [1.5 * x[:8] + 0.5 for x in inputs[:4]]
    small, expected = (
        ct.compress(model, ct.PiecewiseConstant(2), steps=2, calibrate=calibrate)
        for calibrate in (None, [few[0], *few[2:]])
    )
    healed = ct.heal(spoilt(small), model, few, steps=1, lr=0.0)
    torch.testing.assert_close(running(healed), running(expected))


def test_layers_that_a_fit_kept_keep_their_own_correction():
    """Read again without training, the statistics are those that the fit left."""
    torch.manual_seed(0)
    model = ct.convert([mlp(norm=True) for _ in range(6)], skip="outside")
    many, few = torch.randn(192, 6).split(32), (1.5 * torch.randn(24, 6) + 0.5).split(8)
    model = ct.recalibrate(model, many)
    fitted = ct.compress(model, ct.PiecewiseConstant(3), steps=3, method="fit", calibrate=few)
    healed = ct.heal(spoilt(fitted), model, [few[0], few[1], few[1], few[2]], steps=1, lr=0.0)
    torch.testing.assert_close(running(healed), running(fitted))


def test_training_does_not_learn_the_statistics_of_its_inputs():
    """A model that is its own teacher has nothing to learn from inputs of another kind."""
    _, model, inputs = pair()
    other = [1.5 * torch.cat(inputs) + 0.5] * 2
    seen: list[ct.HealProgress] = []
    ct.heal(model, model, other, steps=40, lr=1e-3, check_every=40, callback=seen.append)
    assert seen[0].loss < 1e-5

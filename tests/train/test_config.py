"""The schedules, and what a course refuses."""

import json
import math

import pytest

import continua as ct
from continua.train import Training


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [(1, 0.2), (9, 0.2), (10, 0.02), (19, 0.02), (20, 2e-3), (29, 2e-3), (30, 2e-4), (99, 2e-4)],
)
def test_step_of_the_reference(epoch, rate):
    training = Training(
        schedule="step", learning_rate=0.2, decay=0.1, milestones=(30, 10, 20), epochs=100
    )
    assert training.rate(epoch) == pytest.approx(rate, rel=1e-12)
    assert training.rate(epoch + 0.99) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize("step", [0, 1, 4000, 7999, 8000, 8001, 20_000, 50_000])
def test_inverse_root_of_the_reference(step):
    base, per_epoch = 0.1, 500
    training = Training(
        schedule="inverse-root",
        learning_rate=base / math.sqrt(8000),
        warmup=8000 / per_epoch,
        epochs=100,
    )
    expected = base * min(1, step / 8000) / math.sqrt(max(step, 8000))
    assert training.rate(step / per_epoch) == pytest.approx(expected, rel=1e-12)


def test_cosine():
    training = Training(schedule="cosine", learning_rate=0.3, epochs=10)
    assert training.rate(0) == 0.3
    assert training.rate(5) == pytest.approx(0.15)
    assert training.rate(10) == pytest.approx(0, abs=1e-12)
    warm = Training(schedule="cosine", learning_rate=0.3, epochs=10, warmup=2)
    assert [warm.rate(e) for e in (0, 1, 2)] == pytest.approx([0, 0.15, 0.3])
    assert warm.rate(6) == pytest.approx(0.15)
    assert warm.rate(10) == pytest.approx(0, abs=1e-12)


def test_one_cycle():
    training = Training(schedule="one-cycle", learning_rate=0.4, epochs=10, warmup=2)
    rates = [training.rate(e) for e in (0, 1, 2, 6, 10)]
    assert rates == pytest.approx([0, 0.2, 0.4, 0.2, 0], abs=1e-12)


def test_config_is_json_and_back():
    training = Training(epochs=9, refine_epochs=(2, 4), betas=(0.9, 0.98), clip=None)
    assert Training.from_config(json.loads(json.dumps(training.config()))) == training
    with pytest.raises(ct.ArgumentError, match="no option 'epoch'"):
        Training.from_config({"epoch": 3})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": 0}, "epochs is a whole number of at least 1, not 0"),
        ({"batch_size": True}, "batch_size"),
        ({"learning_rate": float("nan")}, "learning_rate is a positive number, not nan"),
        ({"clip": 0.0}, "clip"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"optimizer": "lion"}, "optimizer is one of sgd, adam, adamw, not 'lion'"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"milestones": (-1,)}, "milestones"),
        ({"schedule": "inverse-root"}, "needs warmup"),
        ({"schedule": "one-cycle", "warmup": 10}, "needs warmup between 0 and 10"),
        ({"refine_epochs": 2}, "refine_epochs is a tuple of epochs"),
        ({"refine_epochs": (10,)}, "an epoch of refine_epochs.* at most 9, not 10"),
        ({"refine_epochs": (3,), "project_epochs": (3,)}, "epoch 3 cannot both"),
        ({"seed": -1}, "seed"),
    ],
)
def test_refused(options, said):
    with pytest.raises(ct.ArgumentError, match=said):
        Training(**options)


def test_adam_has_no_functional_gradient():
    with pytest.raises(ct.ArgumentError, match="functional_gradient=True needs optimizer='sgd'"):
        Training(functional_gradient=True, optimizer="adam")

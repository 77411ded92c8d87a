"""Training in several sizes at once."""

import dataclasses

import pytest
import torch
from torch.nn.functional import cross_entropy

import continua as ct
from continua.train import Checkpoints, Classification, evaluate, fit
from train.subjects import Small, course, points, run, small, task


def test_every_size_comes_out_of_one_run(tmp_path):
    training = course(epochs=5, elastic=(4, 2, 1), refine_epochs=(1, 2))
    outcome = run(tmp_path, training)
    assert isinstance(outcome.model, ct.Elastic)
    assert outcome.model.sizes == (4, 2, 1)
    best = Checkpoints(tmp_path).best()
    for size in (4, 2, 1):
        plain = ct.load(best, size=size, factory=Small)
        assert plain.block.solver.steps == size
        found = evaluate(plain, task())
        assert found["accuracy"] > 0.8
    assert evaluate(outcome.model, task()) == outcome.history[-1]["validation"] or (
        outcome.position.best == evaluate(outcome.model, task())["accuracy"]
    )
    assert outcome.history[-1]["functions"] == 4
    assert outcome.history[0]["train"]["evaluations"] == 1
    assert outcome.history[-1]["train"]["evaluations"] == pytest.approx(4 + 1 + 2 / 4)


def test_a_step_is_the_users_own_loop(tmp_path):
    """One step of plain gradient descent, worked out by hand."""
    training = course(
        epochs=1, epoch_steps=1, batch_size=36, elastic=(2, 1), smoothness=0.3, momentum=0.0,
        weight_decay=0.0, learning_rate=0.1,
    )  # fmt: skip
    data = points()

    def make():
        return small(size=2, drop=0.0)

    outcome = fit(make, Classification(data), training, tmp_path, device="cpu")
    torch.manual_seed(training.seed)
    elastic = ct.Elastic(make(), [2, 1])
    x, y = data.prepared(data.train.inputs), data.train.targets
    loss = elastic.loss(x, lambda out: cross_entropy(out, y), 0) + 0.3 * ct.smoothness(elastic)
    loss.backward()
    for name, p in elastic.named_parameters():
        expected = p.detach() - 0.1 * p.grad
        torch.testing.assert_close(outcome.model.get_parameter(name).detach(), expected)


@pytest.mark.parametrize("sizes", [(), (4, 2)])
def test_a_step_along_the_functional_gradient(tmp_path, sizes):
    """Four buckets have a quarter of the depth each: four times the plain step."""
    training = course(
        epochs=1, epoch_steps=1, batch_size=36, momentum=0.0, weight_decay=0.0, learning_rate=0.1
    )
    data = points()

    def make():
        return small(size=4, drop=0.0)

    def change(training, folder):
        torch.manual_seed(training.seed)
        start = make()
        outcome = fit(make, Classification(data), training, folder, device="cpu")
        model = outcome.model.model if sizes else outcome.model
        end = dict(model.named_parameters())
        return {name: end[name].detach() - p.detach() for name, p in start.named_parameters()}

    training = dataclasses.replace(training, elastic=sizes)
    plain = change(training, tmp_path / "plain")
    functional = change(
        dataclasses.replace(training, functional_gradient=True), tmp_path / "functional"
    )
    for name, step in plain.items():
        factor = 4 if name.startswith("block.field") and name != "block.field.1.bias" else 1
        torch.testing.assert_close(functional[name], factor * step, rtol=1e-4, atol=1e-6)


def test_smoothness_makes_weights_alike_over_depth(tmp_path):
    def make():
        return small(size=4)

    plain = fit(make, task(), course(epochs=3), tmp_path / "plain", device="cpu")
    smooth = fit(make, task(), course(epochs=3, smoothness=1.0), tmp_path / "smooth", device="cpu")
    assert not isinstance(smooth.model, ct.Elastic)
    assert ct.smoothness(smooth.model) < 0.5 * ct.smoothness(plain.model)


def test_a_run_of_an_earlier_version_goes_on(tmp_path):
    import hashlib
    import json

    run(tmp_path, course(epochs=1))
    last = Checkpoints(tmp_path).last()
    (last / "SHA256SUMS").unlink()
    state = last / "training.json"
    told = json.loads(state.read_text())
    for name in ("elastic", "smoothness"):
        del told["about"]["training"][name]
    told["sha256"] = hashlib.sha256((last / "training.safetensors").read_bytes()).hexdigest()
    state.write_text(json.dumps(told))
    assert run(tmp_path, course(epochs=2)).position.epoch == 2
    with pytest.raises(ct.ArgumentError, match="with elastic="):
        run(tmp_path, course(epochs=3, elastic=(1,)))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"elastic": 4}, r"a tuple of sizes, as in \(4, 2, 1\), not 4"),
        ({"elastic": (1, 2)}, "from large to small"),
        ({"elastic": (2, 2)}, "from large to small"),
        ({"elastic": (2, 0)}, "at least 1, not 0"),
        ({"elastic": (2, 1), "epochs": 3, "project_epochs": (1,)}, "do not go together"),
        ({"smoothness": -1.0}, "smoothness is a number of at least 0"),
    ],
)
def test_bad_courses(options, match):
    with pytest.raises(ct.ArgumentError, match=match):
        course(**options)


@pytest.mark.parametrize(
    ("training", "match"),
    [
        (course(elastic=(4, 2)), r"lacks 1, which the model has"),
        (course(elastic=(2, 1)), "has 2, but the model ends with 1"),
        (course(elastic=(4, 1), epochs=3, refine_epochs=(1, 2)), "lacks 2"),
        (course(elastic=(4, 3, 2, 1), epochs=3, refine_epochs=(1, 2)), "3 after 4 does not"),
    ],
)
def test_sizes_that_the_model_has_not(tmp_path, training, match):
    with pytest.raises(ct.ArgumentError, match=match):
        run(tmp_path / "run", training)
    assert Checkpoints(tmp_path / "run").last() is None


def test_courses_are_json_and_back():
    training = course(elastic=(4, 2, 1), smoothness=0.1)
    again = type(training).from_config({**training.config(), "elastic": [4, 2, 1]})
    assert again == training
    assert dataclasses.replace(again, elastic=()) != training

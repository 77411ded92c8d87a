"""Losses and measures, and their evaluation."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import continua as ct
from continua.data import Dataset, Part
from continua.models import linear_tagger
from continua.train import Classification, evaluate
from train.subjects import Small, Tags, jittered, points


def sentences(batches: int = 12) -> Dataset:
    generator = torch.Generator().manual_seed(3)
    words = torch.randint(0, 7, (batches, 6), generator=generator)
    tags = torch.randint(1, 4, (batches, 6), generator=generator)
    tags[:, 4:] = 0
    tags[0] = 0  # nothing to predict in a whole sentence
    part = Part(words, tags)
    return Dataset("sentences", part, part, part, classes=4)


def whole(task: Classification) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(task.batch("train", torch.arange(task.size("train")), None))


def test_label_smoothing_only_in_training():
    task, model = Classification(points(), label_smoothing=0.2), Small(drop=0.0)
    x, y = whole(task)
    model.eval()
    plain = cross_entropy(model(x), y)
    assert task.loss(model, (x, y))[1].means()["loss"] == pytest.approx(plain.item(), rel=1e-6)
    model.train()
    loss, tally = task.loss(model, (x, y))
    expected = cross_entropy(model(x), y, label_smoothing=0.2)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert tally.means()["loss"] == pytest.approx(loss.item(), rel=1e-6)


def test_augmentation_only_with_a_generator():
    task = Classification(points(), augment=jittered)
    index = torch.arange(4)
    plain = task.batch("train", index, None)[0]
    assert torch.equal(plain, task.dataset.train.inputs[:4])
    one, other = (task.batch("train", index, torch.Generator().manual_seed(0))[0] for _ in "ab")
    assert torch.equal(one, other)
    assert not torch.equal(one, plain)


@pytest.mark.parametrize("batch_size", [1, 7, 20, 500])
@pytest.mark.parametrize("kind", ["points", "sentences"])
def test_evaluation_does_not_depend_on_the_batch_size(kind, batch_size):
    if kind == "points":
        task, model = Classification(points()), Small()
    else:
        task, model = Classification(sentences(), ignore=0), Tags()
    expected = evaluate(model, task)
    assert evaluate(model, task, batch_size=batch_size) == pytest.approx(expected, rel=1e-5)
    assert model.training


def test_evaluation_puts_every_mode_back():
    model = Small()
    model.block.eval()
    modes = [m.training for m in model.modules()]
    evaluate(model, Classification(points()))
    assert [m.training for m in model.modules()] == modes


def test_evaluation_of_nothing():
    data = points()
    task = Classification(
        dataclasses.replace(data, validation=Part(*(t[:0] for t in whole_of(data))))
    )
    with pytest.raises(ct.ArgumentError, match="validation part is empty"):
        evaluate(Small(), task)
    with pytest.raises(ct.ArgumentError, match="batch_size"):
        evaluate(Small(), task, "train", batch_size=0)


def whole_of(data: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    return data.train.inputs, data.train.targets


def test_ignored_targets_do_not_count():
    task, model = Classification(sentences(), ignore=0), Tags().eval()
    x, y = whole(task)
    loss, tally = task.loss(model, (x, y))
    counted = y != 0
    expected = cross_entropy(model(x)[counted], y[counted])
    right = (model(x).argmax(-1) == y)[counted].float().mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert tally.means()["accuracy"] == pytest.approx(float(right))
    assert tally.counts["accuracy"] == int(counted.sum())
    loss, tally = task.loss(model, (x[:1], y[:1]))
    assert loss.item() == 0
    assert tally.counts["loss"] == 0


def test_one_output_is_a_logit():
    task = Classification(points(classes=2))
    x, y = whole(task)
    two, one = (
        Small(classes=2, drop=0.0).eval(),
        nn.Sequential(Small(classes=2, drop=0.0), nn.Linear(2, 1)),
    )
    one[0].load_state_dict(two.state_dict())
    with torch.no_grad():  # the difference of the two scores
        one[1].weight.copy_(torch.tensor([[-1.0, 1.0]]))
        one[1].bias.zero_()
    one.eval()
    (loss, tally), (expected, other) = task.loss(one, (x, y)), task.loss(two, (x, y))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert tally.means() == pytest.approx(other.means(), rel=1e-5)
    with pytest.raises(ct.ShapeError, match="3 classes"):
        Classification(points()).loss(one, (x, y))


@pytest.mark.parametrize("bad", [-1, 3])
def test_label_out_of_range(bad):
    data = points()
    targets = data.validation.targets.clone()
    targets[2] = bad
    damaged = dataclasses.replace(data, validation=Part(data.validation.inputs, targets))
    with pytest.raises(
        ct.ArgumentError, match=f"validation part has the label {bad}, .* 3 classes"
    ):
        Classification(damaged)
    Classification(damaged, ignore=bad)


def test_targets_that_are_no_classes():
    data = points()
    part = Part(data.train.inputs, data.train.targets.float())
    with pytest.raises(ct.ArgumentError, match=r"torch.float32, not whole numbers"):
        Classification(dataclasses.replace(data, train=part))


def test_model_with_too_few_scores():
    task = Classification(points())
    with pytest.raises(ct.ShapeError, match=r"\[36, 2\].* 3 classes"):
        task.loss(Small(classes=2), whole(task))
    with pytest.raises(ct.ShapeError, match="one score per class and target"):
        task.loss(nn.Flatten(0), whole(task))


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan])
def test_label_smoothing_out_of_range(share):
    with pytest.raises(ct.ArgumentError, match="label_smoothing lies in"):
        Classification(points(), label_smoothing=share)


def test_trimming_changes_nothing_but_the_work():
    """A tagger masks its padding, so a batch cut to its longest sentence gives the same."""
    torch.manual_seed(0)
    tokens = torch.tensor([[2, 5, 6, 0, 0, 0], [2, 7, 0, 0, 0, 0], [2, 5, 8, 9, 0, 0]])
    targets = torch.where(tokens > 2, tokens - 4, 0)
    part = Part(tokens, targets)
    dataset = Dataset("words", part, part, part, classes=6)
    model = linear_tagger(vocabulary=10, tags=6, width=8, max_length=6)
    found = {}
    for trim in (False, True):
        task = Classification(dataset, ignore=0, trim=trim)
        batch = task.batch("train", torch.arange(3), None)
        assert batch[0].shape == (3, 4 if trim else 6)
        found[trim] = task.loss(model, batch)
    torch.testing.assert_close(found[True][0], found[False][0])
    assert found[True][1].counts["accuracy"] == 6  # every word, none of the padding
    assert found[True][1].sums["accuracy"] == found[False][1].sums["accuracy"]

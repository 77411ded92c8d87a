"""Converted models of `transformers` as files."""

import pytest
import torch

import continua as ct
from transform.hosts import image, made, of, outputs
from transform.test_hosts import halved


@pytest.mark.parametrize("name", ["BERT", "T5", "ResNet"])
def test_a_converted_model_is_saved_with_its_config_and_loaded_by_its_class(name, tmp_path):
    model, given = made(name)
    converted = ct.convert(model)
    small = ct.compress(converted, ct.PiecewiseConstant(2), steps=2)
    for one in (converted, small):
        ct.save(one, tmp_path)
        again = ct.load(tmp_path, factory=type(model))
        for a, b in zip(outputs(again, given), outputs(one, given), strict=True):
            assert torch.equal(a, b)
        assert again.config.to_dict() == one.config.to_dict()
        ct.save(again, tmp_path)  # as often as one likes
    with pytest.raises(ct.FileError, match=r"config\.json"):
        ct.load(tmp_path, factory=type(made("GPT-2")[0]))


def assert_loaded(model, given, folder):
    """A model comes back from its files as it was."""
    ct.save(model, folder)
    again = ct.load(folder, trust=["transformers"])
    for a, b in zip(outputs(again, given), outputs(model, given), strict=True):
        assert torch.equal(a, b)
    ct.save(again, folder)


def test_runs_that_a_fresh_model_would_not_have_are_loaded(tmp_path):
    model, given = made("BERT")
    model.encoder.layer[:2].requires_grad_(False)  # as it was fine-tuned
    converted = ct.convert(model)
    assert [name for name, _ in converted.encoder.layer.named_children()] == ["block0", "block2"]
    assert_loaded(converted, given, tmp_path)
    assert_loaded(halved(converted), given, tmp_path)


def test_layers_that_a_forward_has_changed_are_loaded(tmp_path):
    sizes = {"embed_dim": 8, "num_heads": [2, 2], "window_size": 4, "patch_size": 4}
    model = of("SwinModel", **sizes, depths=[4, 2], image_size=32).eval()
    given = image(32)
    names = {run.name for run in ct.stacks(model) if not run.reason}
    outputs(model, given)  # where one window is enough, none is shifted from now on
    more = {run.name for run in ct.stacks(model) if not run.reason}
    assert more - names == {"encoder.layers.1.blocks"}
    converted = ct.convert(model)
    assert_loaded(converted, given, tmp_path)
    assert_loaded(halved(converted), given, tmp_path)

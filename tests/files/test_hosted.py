"""Converted models of `transformers` as files."""

import pytest
import torch

import continua as ct
from transform.hosts import made, outputs


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

"""A small file that asks for much."""

import inspect
import json
import resource
import sys

import pytest
import torch
from torch import nn

import continua as ct
from attacks.crafted import craft
from continua.files._factory import decode
from continua.models import MODELS
from nets import Net
from train.subjects import Small

HUGE = 10**9
SCALE = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
VALUES = {
    "basis": {"$basis": {"type": "PiecewiseConstant", "size": 2}},
    "solver": {"$solver": {"type": "Euler", "steps": 2}},
}
NEEDED = {"units": 1, "vocabulary": 5, "tags": 3, "layers": 1}


def peak() -> int:
    return SCALE * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def refused(folder, **how) -> str:
    """The error, if little memory was taken before it."""
    before = peak()
    with pytest.raises(ct.FileError) as caught:
        ct.load(folder, **how)
    assert peak() - before < 200e6
    return str(caught.value)


def needed(factory) -> dict:
    """The arguments without a default, as a file has them."""
    names = [n for n, p in inspect.signature(factory).parameters.items() if p.default is p.empty]
    return {n: (VALUES | NEEDED)[n] for n in names if n in VALUES | NEEDED}


def test_a_wide_layer(tmp_path):
    """A config of 246 bytes took 4.9 GB."""
    arguments = {"in_features": 35_000, "out_features": 35_000}
    folder = craft(tmp_path, {"name": "torch.nn:Linear", "arguments": arguments})
    assert (folder / "config.json").stat().st_size < 300
    refused(folder)


def test_a_little_wider_than_the_weights(tmp_path):
    arguments = {"in_features": 3, "out_features": 2}
    tensors = {"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}
    folder = craft(tmp_path, {"name": "torch.nn:Linear", "arguments": arguments}, tensors)
    assert "has shape [2, 2], the model needs [2, 3]" in refused(folder)


def test_a_model_of_ones_own_is_bounded_too(tmp_path):
    folder = ct.save(ct.build(Net, width=4), tmp_path)
    text = (folder / "config.json").read_text().replace('"width": 4', '"width": 20000000')
    (folder / "config.json").write_text(text)
    assert "far more than model.safetensors holds" in refused(folder, factory=Net)


def test_a_model_of_ones_own_with_many_functions(tmp_path):
    folder = ct.save(ct.build(Small, size=4), tmp_path)
    text = (folder / "config.json").read_text().replace('"size": 4', '"size": 4000000000', 1)
    (folder / "config.json").write_text(text)
    assert "at most 1,048,576, not 4,000,000,000" in refused(folder, factory=Small)


@pytest.mark.parametrize("name", MODELS)
def test_huge_numbers_in_every_argument_of_every_model(name, tmp_path):
    factory = MODELS[name]
    parameters = inspect.signature(factory).parameters
    arguments = needed(factory)
    whole = [n for n, p in parameters.items() if "int" in str(p.annotation)]
    for argument in whole:
        value = [HUGE] if "Sequence" in str(parameters[argument].annotation) else HUGE
        told = {"name": f"continua.models:{name}", "arguments": arguments | {argument: value}}
        refused(craft(tmp_path / argument, told))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("LSTM", {"input_size": 2, "hidden_size": 2, "num_layers": HUGE}),
        ("Conv2d", {"in_channels": HUGE, "out_channels": 8, "kernel_size": 1}),
        ("Embedding", {"num_embeddings": HUGE, "embedding_dim": 64}),
        ("MultiheadAttention", {"embed_dim": HUGE, "num_heads": 1}),
        ("Linear", {"in_features": -1, "out_features": 1}),
        ("Linear", {"in_features": 10**18, "out_features": 10**18}),
        ("Linear", {"in_features": 1, "out_features": 1, "device": "meta"}),
    ],
)
def test_huge_layers(name, arguments, tmp_path):
    assert issubclass(getattr(nn, name), nn.Module)
    refused(craft(tmp_path, {"name": f"torch.nn:{name}", "arguments": arguments}))


@pytest.mark.parametrize(
    "value",
    [
        {"basis": {"$basis": {"type": "PiecewiseConstant", "size": 600}}},
        {"basis": {"$basis": {"type": "GaussianRBF", "size": HUGE}}},
        {"basis": {"$basis": {"type": "Fourier", "order": HUGE, "period": 1.0}}},
        {"solver": {"$solver": {"type": "RK4", "steps": HUGE}}},
        {"solver": {"$solver": {"type": "Dopri5", "rtol": 1e-3, "atol": 1e-3, "steps": HUGE}}},
    ],
    ids=str,
)
def test_numbers_of_functions_and_steps(value, tmp_path):
    told = {"name": "continua.models:continuous_classifier", "arguments": VALUES | value}
    refused(craft(tmp_path, told))
    with pytest.raises(ct.ContinuaError):
        ct.build(
            MODELS["continuous_classifier"],
            basis=ct.PiecewiseConstant(600),
            solver=ct.Euler(steps=1),
        )


SLOW = {
    "a fine grid": {
        "basis": {"$basis": {"type": "Fourier", "order": 255, "period": 1.0}},
        "solver": {"$solver": {"type": "Dopri8", "rtol": 1e-3, "atol": 1e-3, "steps": 4096}},
    },
    "three solvers": {
        "basis": {"$basis": {"type": "Fourier", "order": 2, "period": 1.0}},
        "solver": [{"$solver": {"type": "Euler", "steps": n}} for n in (4094, 4095, 4096)],
    },
}


@pytest.mark.parametrize("name", SLOW)
def test_a_grid_that_takes_minutes_to_make(name, tmp_path):
    refused(craft(tmp_path, {"name": "continua.models:continuous_net", "arguments": SLOW[name]}))


def test_a_grid_in_a_block_that_takes_minutes_to_make(tmp_path):
    net = ct.build(MODELS["continuous_net"], **{n: decode(v) for n, v in VALUES.items()})
    folder = ct.save(net, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    for block in config["blocks"].values():
        block["solver"] = {"type": "Euler", "steps": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    assert "12,288 steps in all blocks, and a file has at most 8,192" in refused(folder)
    for block in net.modules():
        if isinstance(block, ct.ODEBlock):
            block.solver = ct.Euler(steps=4096)
    with pytest.raises(ct.ContinuaError, match="steps in all blocks"):
        ct.save(net, tmp_path)


@pytest.mark.parametrize("argument", ["steps", "order"])
def test_numbers_that_become_functions(argument, tmp_path):
    told = {"name": "continua.models:video_predictor", "arguments": {argument: 4000}}
    assert "at most 512" in refused(craft(tmp_path, told))


def test_few_functions_in_the_weights_and_many_in_the_arguments(tmp_path):
    small = ct.compress(
        ct.build(
            MODELS["continuous_net"],
            basis=ct.PiecewiseConstant(4),
            solver=ct.Euler(steps=4),
            width=32,
        ),
        ct.PiecewiseConstant(1),
    )
    folder = ct.save(small, tmp_path)
    text = (folder / "config.json").read_text()
    assert ct.load(folder)  # as it is
    assert '"size": 4' in text
    (folder / "config.json").write_text(text.replace('"size": 4', '"size": 512'))
    assert "describes a model of" in refused(folder)

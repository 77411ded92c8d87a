"""Weights of another kind than the model's."""

import pytest
import torch
from safetensors.torch import load_file

import continua as ct
from attacks.crafted import with_tensors
from nets import Net

load = {"factory": Net}


def nan(value):
    value = value.clone()
    value.view(-1)[-1] = float("nan")
    return value


CHANGES = {
    "complex": lambda value: value.to(torch.complex64),
    "half": lambda value: value.half(),
    "bfloat16": lambda value: value.bfloat16(),
    "double": lambda value: value.double(),
    "integer": lambda value: value.to(torch.int32),
    "bool": lambda value: value.bool(),
    "NaN": nan,
    "transposed": lambda value: value.movedim(0, -1).contiguous(),
}


@pytest.mark.parametrize("all_of_them", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_other_weights_are_refused(change, all_of_them, tmp_path):
    folder = ct.save(ct.build(Net, width=5), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    names = [n for n, t in tensors.items() if t.is_floating_point() and t.dim() > 1]
    for name in names if all_of_them else names[-1:]:
        tensors[name] = CHANGES[change](tensors[name])
    with_tensors(folder, tensors)
    with pytest.raises(ct.FileError, match=r"holds NaN|has dtype|has shape"):
        ct.load(folder, **load)


def test_a_counter_stays_an_integer(tmp_path):
    folder = ct.save(ct.build(Net, width=5), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    name = next(n for n, t in tensors.items() if not t.is_floating_point())
    with_tensors(folder, tensors | {name: tensors[name].float()})
    with pytest.raises(ct.FileError, match=r"has dtype torch.float32"):
        ct.load(folder, **load)


def test_nan_is_loaded_on_demand(tmp_path):
    model = ct.build(Net, width=5)
    with torch.no_grad():
        model.head.bias.fill_(float("nan"))
    ct.save(model, tmp_path)
    with pytest.raises(ct.FileError, match=r"'head.bias' holds NaN; .*allow_nan=True"):
        ct.load(tmp_path, **load)
    assert ct.load(tmp_path, allow_nan=True, **load).head.bias.isnan().all()


def test_a_model_of_several_dtypes_comes_back(tmp_path):
    model = ct.build(Net, width=5).bfloat16()
    model.head.float()
    ct.save(model, tmp_path)
    again = ct.load(tmp_path, **load)
    assert {n: t.dtype for n, t in model.state_dict().items()} == {
        n: t.dtype for n, t in again.state_dict().items()
    }


@pytest.mark.parametrize("dtype", ["complex64", "int8", "float8_e4m3fn", 3, ["float32"], {}])
def test_a_declared_dtype_is_a_float(dtype, tmp_path):
    import json

    folder = ct.save(ct.build(Net, width=5), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["weights"]["dtype"] = dtype
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ct.FileError, match="dtype"):
        ct.load(folder, **load)

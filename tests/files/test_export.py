"""`export`: a model as an ONNX file that computes the same."""

import logging
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from continua.files import _onnx
from continua.models import continuous_net
from continua.solve import SOLVERS
from nets import conv_unit, mlp, scrambled

onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")


def ran(file, *inputs):
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    fed = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
    return torch.as_tensor(session.run(None, fed)[0])


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_basis(family, tmp_path):
    torch.manual_seed(0)
    basis = FAMILIES[family].of_size(3)
    block = scrambled(ct.ODEBlock(mlp(norm=True), basis, ct.Heun(steps=2), span=(1, 0)))
    made = ct.export(block, tmp_path / "model.onnx", torch.randn(3, 6))
    assert block.training
    assert made.error < 1e-5
    x = torch.randn(7, 6)
    with torch.no_grad():
        torch.testing.assert_close(ran(made.file, x), block.eval()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS.values())
def test_every_method(solver, tmp_path):
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(nn.Linear(3, 3), ct.PiecewiseConstant(2), solver(steps=2)))
    assert ct.export(block, tmp_path / "model.onnx", torch.randn(3, 3)).error < 1e-5


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()])
def test_every_gradient(gradient, tmp_path):
    block = ct.ODEBlock(nn.Linear(3, 3), ct.PiecewiseConstant(2), ct.RK4(steps=2), gradient)
    assert ct.export(block, tmp_path / "model.onnx", torch.randn(3, 3)).error < 1e-5
    assert block.gradient == gradient


def test_coefficients_are_stored_once_and_nothing_of_the_machine(tmp_path):
    torch.manual_seed(0)
    model = continuous_net(
        in_channels=1, width=8, basis=ct.PiecewiseConstant(2), solver=ct.Euler(steps=8)
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    made = ct.export(model, tmp_path / "new" / "model.onnx", torch.randn(1, 1, 16, 16))
    assert made.bytes == made.file.stat().st_size
    assert made.bytes < 1.5 * 4 * sum(p.numel() for p in model.parameters())
    assert [path.name for path in made.file.parent.iterdir()] == ["model.onnx"]
    content = made.file.read_bytes()
    assert b".py" not in content
    assert str(tmp_path).encode() not in content
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    onnx.checker.check_model(onnx.load(made.file))
    assert f"{made.bytes:,} bytes, ONNX opset {made.opset}, relative error" in str(made)


def test_named_dimensions(tmp_path):
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)]
    block = ct.convert(layers)
    free = {0: "batch", 1: "length"}
    made = ct.export(block, tmp_path / "model.onnx", torch.randn(1, 1, 8), dynamic=free)
    x = torch.randn(3, 11, 8)
    with torch.no_grad():
        expected = block.eval()(x)
    torch.testing.assert_close(ran(made.file, x), expected, rtol=1e-4, atol=1e-5)
    (given,) = onnx.load(made.file).graph.input
    assert [d.dim_param for d in given.type.tensor_type.shape.dim][:2] == ["batch", "length"]


def test_several_inputs(tmp_path):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = ct.ODEBlock(nn.Linear(3, 3), solver=ct.RK4(steps=2))

        def forward(self, x, factor):
            return self.block(x) * factor

    x, factor = torch.randn(3, 3), torch.randn(1, 3)
    made = ct.export(Scaled(), tmp_path / "m.onnx", x, factor, dynamic=[{0: "batch"}, {}])
    assert made.error < 1e-5
    with pytest.raises(ct.ArgumentError, match="dynamic has 1 mappings for 2 inputs"):
        ct.export(Scaled(), tmp_path / "m.onnx", x, factor, dynamic=[{}])


def test_without_a_check(tmp_path):
    block = ct.ODEBlock(nn.Linear(3, 3), solver=ct.Euler(steps=2))
    made = ct.export(block, tmp_path / "m.onnx", torch.randn(2, 3), check=False)
    assert made.error is None
    assert "not checked" in str(made)


def test_what_differs_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("continua.files._onnx.TOLERANCE", -1.0)
    block = ct.ODEBlock(nn.Linear(3, 3), solver=ct.Euler(steps=2))
    with pytest.raises(ct.ModuleError, match="differs from the model by"):
        ct.export(block, tmp_path / "m.onnx", torch.randn(2, 3))
    assert not list(tmp_path.iterdir())


def block(solver: ct.Solver = ct.Euler(steps=2)) -> ct.ODEBlock:  # noqa: B008
    return ct.ODEBlock(nn.Linear(3, 3), solver=solver)


class Listed(nn.Module):
    def forward(self, x):
        return [x, 3]


X = torch.randn(2, 3)
MISTAKES = {
    "no example": (block(), (), {}, "needs an example"),
    "no tensor": (block(), ([1.0],), {}, "the inputs are tensors, not list"),
    "no model": (3, (X,), {}, "an nn.Module, not int"),
    "an adaptive solver": (block(ct.Dopri5()), (X,), {}, "chooses its steps as it goes"),
    "another shape": (block(), (torch.randn(2, 4),), {}, r"fails on a state of shape \[2, 4\]"),
    "another shape of a plain module": (
        nn.Linear(3, 3),
        (torch.randn(2, 4),),
        {},
        r"Linear fails on inputs of shape \[2, 4\]",
    ),
    "a dimension too many": (block(), (X,), {"dynamic": {2: "depth"}}, "has no dimension 2"),
    "no name": (block(), (X,), {"dynamic": {0: 1}}, r"not \{0: 1\}"),
    "one batch size": (
        nn.Sequential(nn.Flatten(0), nn.Linear(6, 2)),
        (X,),
        {},
        "works for one size of 'batch' only, 2",
    ),
    "no tensor out": (Listed(), (X,), {}, "returns something of type int"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_be_written(name, tmp_path):
    model, inputs, options, sentence = MISTAKES[name]
    with pytest.raises(ct.ContinuaError, match=sentence):
        ct.export(model, tmp_path / "model.onnx", *inputs, **options)
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written_to(tmp_path):
    with pytest.raises(ct.FileError, match="is a folder; name a file in it"):
        ct.export(block(), tmp_path, X)
    (tmp_path / "file").touch()
    with pytest.raises(ct.FileError, match="cannot write"):
        ct.export(block(), tmp_path / "file" / "model.onnx", X, check=False)


def masked() -> ct.ODEBlock:
    torch.manual_seed(0)
    return ct.convert([nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)])


def test_further_inputs_by_place_and_by_name(tmp_path):
    x, mask = torch.randn(2, 5, 8), torch.ones(5, 5).triu(1).bool()
    model, file = masked(), tmp_path / "m.onnx"
    ct.export(model, file, x, mask, dynamic=[{0: "batch"}, {}])
    expected = model.eval()(x, mask).detach()
    torch.testing.assert_close(ran(file, x, mask), expected, rtol=1e-4, atol=1e-5)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[:, 3:] = True
    ct.export(model, file, x, src_key_padding_mask=padding)
    names = [one.name for one in onnx.load(file).graph.input]
    assert names[1] == "src_key_padding_mask"
    expected = model(x, src_key_padding_mask=padding).detach()
    torch.testing.assert_close(ran(file, x, padding), expected, rtol=1e-4, atol=1e-5)


class Positions(nn.Module):
    """At most six words."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(6, 3))

    def forward(self, x):
        return x + self.table[: x.shape[1]]


def test_a_longest_input_does_not_stop_the_check(tmp_path):
    made = ct.export(Positions(), tmp_path / "m.onnx", torch.randn(2, 5, 3))
    assert made.error == 0


class Changing(nn.Module):
    def forward(self, x):
        return x.mul_(2) + 1


def test_the_inputs_are_not_changed(tmp_path):
    x = torch.ones(2, 3)
    assert ct.export(Changing(), tmp_path / "m.onnx", x).error < 1e-6
    assert torch.equal(x, torch.ones(2, 3))


class Several(nn.Module):
    def forward(self, x):
        return {
            "positive": x > 0,
            "which": x.argmax(1),
            "none": x[:, 3:],
            "masked": x.masked_fill(x > 0, -torch.inf),
            "scores": (x, x.double()),
        }


def test_outputs_of_every_kind(tmp_path):
    assert ct.export(Several(), tmp_path / "m.onnx", torch.randn(4, 3)).error < 1e-6


def test_half_precision(tmp_path):
    torch.manual_seed(0)
    made = ct.export(masked().half(), tmp_path / "m.onnx", torch.randn(2, 5, 8).half())
    assert made.error < 5e-2


NAN, INF = torch.nan, torch.inf
APART = {
    "half as large": ([1.0, 2.0], [2.0, 4.0], 0.5),
    "one that is not a number": ([NAN, 2.0], [1.0, 2.0], INF),
    "all that are no numbers": ([NAN, NAN], [1.0, 2.0], INF),
    "the same no numbers": ([NAN, INF, 1.0], [NAN, INF, 1.0], 0.0),
    "other infinities": ([-INF, 1.0], [INF, 1.0], INF),
    "besides an infinity": ([-INF, 1.0], [-INF, 2.0], 0.5),
    "whole numbers": ([5000], [5001], INF),
    "equal whole numbers": ([5000], [5000], 0.0),
    "nothing": ([], [], 0.0),
    "zero": ([0.5], [0.0], 0.5),
}


@pytest.mark.parametrize("name", APART)
def test_how_far_two_outputs_are_apart(name):
    found, expected, distance = APART[name]
    assert _onnx.distance(torch.tensor(found), torch.tensor(expected)) == distance


def test_threads_take_turns_and_nothing_stays_changed(tmp_path):
    ct.export(block(), tmp_path / "first.onnx", X, check=False)  # imports may add filters
    logger = logging.getLogger("torch.onnx")
    level, filters = logger.level, list(warnings.filters)

    def one(i):
        return ct.export(block(), tmp_path / f"{i}.onnx", X, check=False).bytes

    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(one, range(3)))) == 1
    assert (logger.level, list(warnings.filters)) == (level, filters)


@pytest.mark.parametrize("package", ["onnxruntime", "onnxscript"])
def test_a_package_that_is_not_there(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r'pip install "continua-torch\[export\]"'):
        ct.export(block(), tmp_path / "m.onnx", X)
    if package == "onnxruntime":
        assert ct.export(block(), tmp_path / "m.onnx", X, check=False).error is None


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_a_failure_is_one_sentence(tmp_path, capfd):
    with pytest.raises(ct.ModuleError, match="Branching cannot be written as ONNX") as error:
        ct.export(Branching(), tmp_path / "m.onnx", X)
    assert "\n" not in str(error.value)
    assert "dynamic" not in str(error.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "dynamic", [None, "b", ["batch"], {False: "c"}, {0: "batch size"}, {0: ""}, {-1: "b"}, 3]
)
def test_nonsense_for_dimensions(dynamic, tmp_path):
    with pytest.raises(ct.ArgumentError, match="dynamic"):
        ct.export(block(), tmp_path / "m.onnx", X, dynamic=dynamic)


class Product(nn.Module):
    def forward(self, x, y):
        return x * y


def test_dimensions_of_several_inputs(tmp_path):
    with pytest.raises(ct.ArgumentError, match="'batch' is 2 in one input and 1 in another"):
        ct.export(Product(), tmp_path / "m.onnx", X, torch.randn(1, 3))
    made = ct.export(Product(), tmp_path / "m.onnx", X, torch.tensor(2.0))  # which has no batch
    assert made.error == 0
    assert ct.export(Product(), tmp_path / "m.onnx", X, X).error == 0


@pytest.mark.parametrize("file", [3, "a\0b"])
def test_nonsense_for_a_file(file):
    with pytest.raises(ct.ArgumentError, match="file is a path"):
        ct.export(block(), file, X)


def test_convolutions_with_state(tmp_path):
    torch.manual_seed(0)
    made = scrambled(ct.ODEBlock(conv_unit(), ct.PiecewiseLinear(3), ct.RK4(steps=2)))
    assert ct.export(made, tmp_path / "m.onnx", torch.randn(2, 4, 5, 5)).error < 1e-4


def test_an_empty_example(tmp_path):
    block = ct.ODEBlock(nn.Tanh(), solver=ct.Euler(steps=2))
    with pytest.raises(ct.ArgumentError, match="an input is empty, of shape"):
        ct.export(block, tmp_path / "model.onnx", torch.zeros(0, 2))

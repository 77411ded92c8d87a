"""`torch.compile`: one graph, forward and backward."""

import copy
import warnings
from functools import partial

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from continua.solve import SOLVERS
from nets import scrambled
from torch_features.device import ADJOINT, DEVICE, EXACT, inputs, made

FLOAT = torch.float32
#: of one evaluation a step
SHORT = ("Euler", "ReversibleHeun", "AsynchronousLeapfrog")


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()  # each case counts as a recompilation of the same code


def compare(other, block=None, dtype=FLOAT, **options):
    """The compiled block against the block: result, gradients, statistics."""
    block, x = block or copy.deepcopy(other), inputs(dtype=dtype)
    y, expected = torch.compile(other, fullgraph=True, **options)(x), block(x)
    close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)
    close(y, expected)
    y.square().sum().backward()
    expected.square().sum().backward()
    for mine, theirs in zip(other.parameters(), block.parameters(), strict=True):
        close(mine.grad, theirs.grad)
    for mine, theirs in zip(other.buffers(), block.buffers(), strict=True):
        close(mine, theirs)


def case(solver, family):
    kind = (ct.Backprop(), SOLVERS[solver](steps=2))
    return made(kind, FAMILIES[family].of_size(3), dtype=FLOAT, norm=True)


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """A cache of inductor that no killed process has left half written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        patch.setenv("TORCHINDUCTOR_DEBUG_COMPILE", "1")  # -O0: compiling takes the time here
        yield


class Wave(nn.Module):
    """Little to compile."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, z):
        return torch.sin(self.weight * z)


class EveryFamily(nn.Module):
    """A block for every family of bases, all on the same input."""

    def __init__(self, solver):
        super().__init__()
        bases = [family.of_size(3) for family in FAMILIES.values()]
        self.blocks = nn.ModuleList(scrambled(ct.ODEBlock(Wave(), b, solver)) for b in bases)

    def forward(self, x):
        return sum(block(x) for block in self.blocks)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("solver", SOLVERS)
def test_inductor_with_every_solver_and_family(solver):
    torch.manual_seed(0)
    model = EveryFamily(SOLVERS[solver](steps=2 if solver in SHORT else 1))
    # The large coefficients of Dopri8 leave few digits of a gradient in single precision.
    compare(model.double().to(DEVICE), dtype=torch.float64, options={"compile_threads": 1})


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("solver", "family"), [("Euler", "PiecewiseConstant"), ("Heun", "Fourier")]
)
def test_inductor_with_batch_norm(solver, family):
    compare(case(solver, family))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.every
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_inductor_with_batch_norm_in_every_solver_and_family(solver, family):
    compare(case(solver, family))


@pytest.mark.parametrize("kind", EXACT[1:], ids=repr)
def test_every_exact_gradient(kind):
    compare(made(kind, dtype=FLOAT, norm=True), backend="aot_eager")


@pytest.mark.parametrize("kind", ADJOINT, ids=repr)
def test_an_adjoint(kind):
    """The steps are differentiated."""
    compare(
        made(kind, dtype=FLOAT), made((ct.Backprop(), kind[1]), dtype=FLOAT), backend="aot_eager"
    )


def test_an_adjoint_with_adaptive_steps_is_not_compiled():
    """There may be many steps, and an adjoint is chosen so as not to keep them."""
    block, x = made((ct.Adjoint(), ct.Dopri5(1e-5, 1e-5)), dtype=FLOAT), inputs(dtype=FLOAT)
    with pytest.raises(Exception, match=r"use block\.compile\(\)"):
        torch.compile(block, fullgraph=True, backend="eager")(x)
    torch.compiler.reset()
    other = copy.deepcopy(block)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what torch does not follow
        torch.compile(other, backend="eager")(x).sum().backward()
    block(x).sum().backward()
    assert other.stats.backward is not None
    for mine, theirs in zip(other.parameters(), block.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)

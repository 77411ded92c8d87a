"""Another default device than the processor: what is given decides where the work is done.

`meta` stands for all others: a tensor that lands there by mistake has no values, and is noticed.
"""

import pytest
import torch

import continua as ct
from continua.basis import FAMILIES
from nets import mlp, scrambled

X = torch.linspace(-1, 1, 3 * 6).reshape(3, 6)
PAIRS = [
    (ct.Euler(steps=3), ct.Backprop()),
    (ct.RK4(steps=3), ct.Checkpoint("sqrt")),
    (ct.RK4(steps=3), ct.Adjoint()),
    (ct.Dopri5(), ct.Backprop()),
    (ct.Tsit5(norm="sample"), ct.Checkpoint()),
    (ct.Dopri8(), ct.Adjoint()),
    (ct.Bosh3(), ct.Adjoint("backsolve")),
    (ct.ReversibleHeun(steps=3), ct.Reversible()),
    (ct.AsynchronousLeapfrog(steps=3), ct.Reversible()),
]


def made(basis: ct.Basis, *how, norm: bool = False) -> ct.ODEBlock:
    return ct.ODEBlock(mlp(norm=norm), basis, *how)


def solved(block: ct.ODEBlock) -> list[torch.Tensor]:
    """A solution, its gradients, and one that nobody differentiates."""
    block.zero_grad()
    x = X.clone().requires_grad_()
    out = block(x)
    out.square().sum().backward()
    with torch.no_grad():
        return [out.detach(), block(X), x.grad, *(p.grad for p in block.parameters())]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_without_memory_is_filled_later(family):
    basis = FAMILIES[family].of_size(3)
    with torch.device("meta"):
        block = made(basis, ct.RK4(steps=3), norm=True).eval()
        assert block(torch.empty(3, 6)).shape == X.shape
    source = scrambled(made(basis, ct.RK4(steps=3), norm=True)).eval()
    block.to_empty(device="cpu").load_state_dict(source.state_dict())
    assert torch.equal(block(X), source(X))


@pytest.mark.parametrize(("solver", "gradient"), PAIRS, ids=repr)
@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(3), ct.Fourier(1)], ids=repr)
def test_a_solve_on_the_processor_stays_there(basis, solver, gradient):
    block = scrambled(made(basis, solver, gradient))
    with torch.device("meta"):
        found = solved(block)
    expected = solved(block)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("family", FAMILIES)
def test_verbs_on_the_processor_stay_there(family):
    basis = FAMILIES[family].of_size(3)
    block = scrambled(made(ct.PiecewiseConstant(2), ct.Euler(steps=2), norm=True))

    def verbs() -> list[torch.Tensor]:
        other = ct.compress(ct.refine(block), basis, steps=3)
        return [*other.state_dict().values(), *other.at(0.3).state_dict().values()]

    with torch.device("meta"):  # first, since much is worked out only once
        found = verbs()
    expected = verbs()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)

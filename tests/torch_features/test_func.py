"""`torch.func`, and derivatives of derivatives."""

import copy

import pytest
import torch
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, stack_module_state, vmap

import continua as ct
from torch_features.device import KINDS, inputs, made

pairs = pytest.mark.parametrize("norm", ["batch", "sample"])


def rows(block, x):
    """The Jacobian of a block at one sample, row by row."""
    x = x.clone().requires_grad_()
    y = block(x[None])[0]
    return torch.stack([torch.autograd.grad(one, x, retain_graph=True)[0] for one in y])


def sample_gradients(block, x):
    found = []
    for one in x:
        block.zero_grad()
        block(one[None]).sum().backward()
        found.append({name: p.grad.clone() for name, p in block.named_parameters()})
    block.zero_grad()
    return {name: torch.stack([part[name] for part in found]) for name in found[0]}


def per_sample(block, x):
    weights = {name: p.detach() for name, p in block.named_parameters()}
    loss = grad(lambda weights, x: functional_call(block, weights, (x[None],)).sum())
    return vmap(loss, (None, 0))(weights, x)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_transforms(kind):
    """Whatever the gradient, they differentiate the steps."""
    block, steps, x = made(kind), made((ct.Backprop(), kind[1])), inputs()
    torch.testing.assert_close(vmap(block)(x), block(x))
    jacobian = rows(steps, x[0])
    torch.testing.assert_close(jacrev(block)(x[0]), jacobian)
    torch.testing.assert_close(jacfwd(block)(x[0]), jacobian)
    torch.testing.assert_close(jvp(block, (x[0],), (x[1],))[1], jacobian @ x[1])
    torch.testing.assert_close(per_sample(block, x), sample_gradients(steps, x))


@pytest.mark.parametrize("gradient", [kind[0] for kind in KINDS], ids=repr)
def test_transforms_give_the_gradient_that_was_chosen(gradient):
    reversible = isinstance(gradient, ct.Reversible)
    solver = ct.ReversibleHeun(steps=2) if reversible else ct.RK4(steps=16)
    block, x = made((gradient, solver), ct.Polynomial(2)), inputs()
    close = {"rtol": 1e-5, "atol": 1e-7}  # an adjoint has an error of its own
    torch.testing.assert_close(jacrev(block)(x[0]), rows(block, x[0]), **close)
    torch.testing.assert_close(per_sample(block, x), sample_gradients(block, x), **close)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_functional_call(kind):
    block, x = made(kind), inputs()
    other = copy.deepcopy(block)
    weights = {name: 2 * p.detach() for name, p in block.named_parameters()}
    other.load_state_dict(weights, strict=False)
    torch.testing.assert_close(functional_call(block, weights, (x,)), other(x))


def test_odeint_under_a_transform():
    z, rate = inputs(), torch.tensor(0.5, dtype=torch.float64)

    def end(rate, gradient):
        return ct.odeint(lambda s, z: rate * z, z, solver=ct.RK4(steps=8), gradient=gradient).final

    expected = jacrev(end)(rate, ct.Backprop())
    torch.testing.assert_close(jacrev(end)(rate, ct.Checkpoint()), expected)
    torch.testing.assert_close(jacrev(end)(rate, ct.Adjoint()), expected)


# -- adaptive steps: all samples of a vmap take those of the worst one -----------------------------


@pairs
@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=repr)
def test_adaptive_solves(gradient, norm):
    block, x = made((gradient, ct.Dopri5(1e-9, 1e-9, norm=norm))), inputs()
    close = {"rtol": 1e-6, "atol": 1e-6}  # samples by themselves take other steps
    torch.testing.assert_close(vmap(block)(x), block(x), **close)
    torch.testing.assert_close(jacrev(block)(x[0]), rows(block, x[0]), **close)
    torch.testing.assert_close(per_sample(block, x), sample_gradients(block, x), **close)


def test_adaptive_solves_of_an_ensemble():
    members = [made((ct.Backprop(), ct.Tsit5(1e-7, 1e-7))) for _ in range(3)]
    for i, member in enumerate(members):
        for p in member.parameters():
            p.data *= 1 + 0.1 * i
    weights, state = stack_module_state(members)
    x = inputs()
    found = vmap(lambda w, s: functional_call(members[0], (w, s), (x,)))(weights, state)
    expected = torch.stack([member(x) for member in members])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_an_adaptive_solve_that_fails_under_vmap_says_so():
    block = made((ct.Backprop(), ct.Dopri5(1e-6, 1e-6, max_steps=2)))
    with pytest.raises(ct.SolveError, match="max_steps"):
        vmap(block)(100 * inputs())


# -- second derivatives ----------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [ct.RK4(steps=2), ct.ReversibleHeun(steps=2)], ids=repr)
def test_second_derivatives(solver):
    block, x = made((ct.Backprop(), solver)), inputs(1).requires_grad_()
    assert torch.autograd.gradgradcheck(block, (x,))


@pytest.mark.parametrize("kind", KINDS[1:], ids=repr)
def test_second_derivatives_are_refused(kind):
    block, x = made(kind), inputs().requires_grad_()
    weight = next(block.parameters())
    refused = pytest.raises(ct.SolveError, match=r"no second derivatives; use Backprop")
    for loss in (torch.sum, lambda y: y.square().sum()):
        (found,) = torch.autograd.grad(loss(block(x)), x, create_graph=True)
        with refused:
            found.square().sum().backward()
        (found,) = torch.autograd.grad(loss(block(x)), x, create_graph=True)
        with refused:
            torch.autograd.grad(found.square().sum(), weight)
    (found,) = torch.autograd.grad(block(x).sum(), weight, create_graph=True)
    assert torch.equal(found.detach(), torch.autograd.grad(block(x).sum(), weight)[0])

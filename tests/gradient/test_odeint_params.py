"""What `odeint` differentiates by: tensors that it finds, is told of, or refuses."""

import contextlib
import functools
import math
import weakref

import pytest
import torch
from torch import Tensor, nn

import continua as ct
from gradient.rates import Rate, close, doubles, number

FINE = ct.Dopri8(1e-8, 1e-8)
WAYS = [
    (FINE, ct.Backprop()),
    (FINE, ct.Checkpoint()),
    (FINE, ct.Adjoint()),
    (FINE, ct.Adjoint("backsolve")),
    (ct.RK4(steps=20), ct.Adjoint()),
    (ct.ReversibleHeun(steps=200), ct.Reversible()),
    (ct.AsynchronousLeapfrog(steps=200), ct.Reversible()),
]
every_way = pytest.mark.parametrize(("solver", "gradient"), WAYS, ids=repr)
#: those that evaluate the field again in the backward pass
again = pytest.mark.parametrize(("solver", "gradient"), WAYS[1:], ids=repr)


class Plain:
    """No module, but it has a tensor."""

    def __init__(self, w: Tensor):
        self.w = w

    def __call__(self, s, z):
        return self.w * torch.cos(s) * z

    def method(self, s, z):
        return self(s, z)


def rate(w: Tensor, s: Tensor, z: Tensor) -> Tensor:
    return w * torch.cos(s) * z


def keyword(s, z, *, w):
    return rate(w, s, z)


def nested(w: Tensor):
    def outer(s, z):
        def inner(u):
            return w * u

        return inner(torch.cos(s) * z)

    return outer


def default(w: Tensor):
    def f(s, z, w=w):
        return rate(w, s, z)

    return f


def later(w: Tensor):
    """A tensor of a graph, not a leaf."""
    v = w * 2
    return lambda s, z: rate(v / 2, s, z)


#: from w, or from a module that has it, to f(s, z) = w cos(s) z
FOUND = {
    "closure": lambda w: lambda s, z: rate(w, s, z),
    "nested": nested,
    "default": default,
    "partial": lambda w: functools.partial(rate, w),
    "keyword": lambda w: functools.partial(keyword, w=w),
    "list": lambda w: (lambda ws: lambda s, z: rate(ws[0], s, z))([w]),
    "dict": lambda w: (lambda ws: lambda s, z: rate(ws["a"][0], s, z))({"a": (w,)}),
    "graph": later,
    "function of a function": lambda w: (lambda g: lambda s, z: g(s, z) * 1)(nested(w)),
}
OF_MODULE = {
    "module": lambda m: m,
    "bound method": lambda m: m.twice,
    "partial of a method": lambda m: functools.partial(m.twice, factor=2.0),
    "module in a closure": lambda m: lambda s, z: m(s, z) * 1,
    "module in a list": lambda m: (lambda ms: lambda s, z: ms[0](s, z) * 1)([m]),
    "sequence of modules": lambda m: (lambda ms: lambda s, z: ms[0](s, z) * 1)(nn.ModuleList([m])),
}


STORE: dict[str, Tensor] = {}


def stored(w: Tensor):
    STORE["w"] = w
    return lambda s, z: rate(STORE["w"], s, z)


def of_a_class(w: Tensor):
    holder = type("Holder", (), {"w": w})
    return lambda s, z: rate(holder.w, s, z)


#: where a tensor may be found, or be refused
DOUBTFUL = {
    "object": Plain,
    "method of an object": lambda w: Plain(w).method,
    "global": stored,
    "class": of_a_class,
}


def asked_for(w: Tensor):
    """A generator, into which nobody can look."""

    def values():
        while True:
            yield w

    return (lambda ws: lambda s, z: rate(next(ws), s, z))(values())


def weakly(w: Tensor):
    ref = weakref.ref(w)
    return lambda s, z: rate(ref(), s, z)


HIDDEN = {"generator": asked_for, "weak reference": weakly}


def check(f, w: Tensor, solver, gradient, **options) -> None:
    """Value and gradients of z(1) = x exp(w sin 1)."""
    x = doubles(0.5, -1.2).requires_grad_()
    final = ct.odeint(f, x, solver=solver, gradient=gradient, **options).final
    expected = x * torch.exp(w * math.sin(1))
    close(final, expected)
    found = torch.autograd.grad(final.square().sum(), [x, w], allow_unused=True)
    for a, b in zip(found, torch.autograd.grad(expected.square().sum(), [x, w]), strict=True):
        assert a is not None
        close(a, b)


@every_way
@pytest.mark.parametrize("where", FOUND)
def test_tensors_are_found(where, solver, gradient):
    w = number(0.7)
    check(FOUND[where](w), w, solver, gradient)


@every_way
@pytest.mark.parametrize("where", OF_MODULE)
def test_parameters_of_modules_are_found(where, solver, gradient):
    module = Rate()
    check(OF_MODULE[where](module), module.w, solver, gradient)


@every_way
@pytest.mark.parametrize("where", HIDDEN | DOUBTFUL)
def test_tensors_that_are_named(where, solver, gradient):
    w = number(0.7)
    check((HIDDEN | DOUBTFUL)[where](w), w, solver, gradient, params=[w])


@again
@pytest.mark.parametrize("where", HIDDEN)
def test_hidden_tensors_are_refused(where, solver, gradient):
    w, x = number(0.7), doubles(1.0).requires_grad_()
    with pytest.raises(ct.ContinuaError, match="params") as caught:
        ct.odeint(HIDDEN[where](w), x, solver=solver, gradient=gradient).final.sum().backward()
    assert "\n" not in str(caught.value)
    assert x.grad is None


@again
@pytest.mark.parametrize("where", DOUBTFUL)
def test_other_tensors_are_found_or_refused(where, solver, gradient):
    w = number(0.7)
    with contextlib.suppress(ct.ContinuaError):
        check(DOUBTFUL[where](w), w, solver, gradient)


@again
def test_a_hidden_tensor_without_gradient_is_no_matter(solver, gradient):
    w, x = number(0.7).detach(), doubles(1.0).requires_grad_()
    out = ct.odeint(weakly(w), x, solver=solver, gradient=gradient).final
    (found,) = torch.autograd.grad(out.sum(), x)
    close(found, doubles(math.exp(0.7 * math.sin(1))))


@pytest.mark.parametrize("gradient", [ct.Checkpoint(), ct.Adjoint()], ids=str)
def test_batch_norm_in_a_closure_is_refused_in_training(gradient):
    m, other = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), nn.BatchNorm1d(2)
    z = torch.randn(8, 2)

    def solved(f):
        return ct.odeint(f, z, solver=ct.RK4(steps=2), gradient=gradient).final

    with pytest.raises(ct.ArgumentError, match="updates its state in training mode"):
        solved(lambda s, z: m(z))
    both = nn.ModuleDict({"field": m.eval(), "other": other})  # in training, but not called
    solved(lambda s, z: both["field"](z)).sum().backward()
    assert other.num_batches_tracked == 0

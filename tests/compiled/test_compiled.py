"""Compiled steps against eager ones: the same results, gradients and state.

Most cases trace without compiling, which is what could go wrong; those marked `compiled` run
inductor too: make test ARGS="-m compiled".
"""

import copy
import logging
import threading

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal

import continua as ct

BASES = [
    ct.Constant(), ct.PiecewiseConstant(4), ct.PiecewiseLinear(3), ct.BSpline(4, degree=2),
    ct.Fourier(2), ct.Chebyshev(3),
]  # fmt: skip
SOLVERS = [ct.Euler(steps=4), ct.RK4(steps=4), ct.Dopri5(steps=3), ct.Dopri5(1e-4, 1e-4)]
GRADIENTS = [ct.Backprop(), ct.Checkpoint(), ct.Checkpoint("sqrt"), ct.Adjoint()]


def mlp(inner=3, outer=3):
    return nn.Sequential(nn.Linear(inner, 8), nn.Tanh(), nn.Linear(8, outer))


def first_order():
    return mlp(), lambda block, x: block(x)


def second_order():
    return ct.HigherOrder(mlp(4, 2)), lambda block, x: block(torch.cat([x, x[:, :1]], 1))


def data_control():
    return ct.DataControl(mlp(6)), lambda block, x: block(x)


def cost():
    def running(s, z, x):
        return (1 + s) * (z - x).square().sum(1)

    return mlp(), lambda block, x: block.solve(x, running_cost=running).cost


def batch_norm():
    return nn.Sequential(nn.BatchNorm1d(3), *mlp()), lambda block, x: block(x)


def saved():
    return mlp(), lambda block, x: block.solve(x, save_at=[0.0, 0.3, 0.75, 1.0]).z


KINDS = [first_order, second_order, data_control, cost, batch_norm, saved]


def agree(block, call, x, backend, tolerance):
    """Compare results, gradients and state of a compiled solve with those of an eager one."""
    found = []
    for compiled in (False, backend):
        copied = copy.deepcopy(block).compile(compiled)
        given = x.clone().requires_grad_()
        y = call(copied, given)
        gradients = torch.autograd.grad(y.square().sum(), [given, *copied.parameters()])
        found.append([y.detach(), *gradients, *copied.buffers()])
    for eager, fast in zip(*found, strict=True):
        if eager.is_floating_point():
            assert (eager - fast).norm() <= tolerance * eager.norm().clamp(min=1e-3)
        else:
            assert torch.equal(eager, fast)


@pytest.fixture(autouse=True)
def nothing_left_out(caplog):
    """No solve may have been evaluated eagerly, unless the test says so."""
    with caplog.at_level(logging.WARNING, logger="continua"):
        yield
    expected = caplog.get_records("call") and getattr(caplog, "expected", False)
    assert expected or not [r for r in caplog.get_records("call") if r.name == "continua"]


def check(kind, basis, solver, gradient, backend, dtype=torch.float64):
    torch.manual_seed(0)
    field, call = kind()
    block = ct.ODEBlock(field, basis, solver, gradient).to(dtype)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-6
    agree(block, call, torch.randn(5, 3, dtype=dtype), backend, tolerance)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_field_on_a_grid(kind):
    check(kind, ct.Fourier(1), ct.Heun(steps=3), ct.Backprop(), "aot_eager")


class WithClock(nn.Module):
    """A field whose state has a part with a constant slope."""

    def __init__(self):
        super().__init__()
        self.inner = mlp()

    def forward(self, state):
        z, clock = state
        return self.inner(z) * clock[:, None], torch.ones_like(clock)


def with_clock():
    return WithClock(), lambda block, x: block((x, x.new_zeros(len(x))))[0]


@pytest.mark.parametrize("solver", [ct.Dopri5(1e-4, 1e-4), ct.Dopri8(1e-4, 1e-4)], ids=str)
@pytest.mark.parametrize("kind", [first_order, cost, with_clock], ids=lambda kind: kind.__name__)
def test_adaptive_steps_keep_what_their_vjp_needs(kind, solver):
    check(kind, ct.PiecewiseLinear(3), solver, ct.Backprop(), "aot_eager")


@pytest.mark.parametrize("kind", [batch_norm, saved], ids=lambda kind: kind.__name__)
def test_adaptive_steps(kind):
    check(kind, ct.PiecewiseConstant(2), ct.Bosh3(1e-3, 1e-3), ct.Backprop(), "aot_eager")


def test_few_states_kept():
    check(first_order, ct.Constant(), ct.Euler(steps=7), ct.Checkpoint("sqrt"), "aot_eager")


@pytest.mark.parametrize("state", ["interpolate", "backsolve"])
@pytest.mark.parametrize("solver", [ct.RK4(steps=3), ct.Dopri5(1e-4, 1e-4)], ids=str)
@pytest.mark.parametrize("basis", [ct.Constant(), ct.Fourier(1)], ids=str)
def test_adjoint(basis, solver, state):
    check(saved, basis, solver, ct.Adjoint(state), "aot_eager")


@pytest.mark.parametrize("kind", [second_order, data_control, cost], ids=lambda k: k.__name__)
def test_adjoint_of_every_kind(kind):
    check(kind, ct.PiecewiseConstant(2), ct.Heun(steps=4), ct.Adjoint(), "aot_eager")


def test_the_adjoint_of_a_pair_on_a_grid():
    """Its weights are one more than the stages that a grid takes."""
    check(first_order, ct.Constant(), ct.Dopri5(steps=3), ct.Adjoint(), "aot_eager")


def test_adjoint_of_batch_norm():
    gradient = ct.Adjoint(solver=ct.RK4(steps=6))
    check(batch_norm, ct.Fourier(1), ct.Midpoint(steps=3), gradient, "aot_eager")


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("gradient", GRADIENTS, ids=str)
@pytest.mark.parametrize("solver", SOLVERS, ids=str)
@pytest.mark.parametrize("basis", BASES, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_with_inductor(kind, basis, solver, gradient, dtype):
    check(kind, basis, solver, gradient, "inductor", dtype)


@pytest.mark.slow
def test_inductor_on_one(tmp_path, monkeypatch):
    monkeypatch.setenv("CONTINUA_CACHE", str(tmp_path))
    check(first_order, ct.Constant(), ct.Euler(steps=3), ct.Backprop(), "inductor", torch.float32)
    assert list(tmp_path.rglob("*.so"))


@pytest.mark.parametrize("solver", [ct.RK4(steps=2), ct.Bosh3(1e-2, 1e-2)], ids=str)
@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=str)
def test_two_backward_passes_of_one_solve(gradient, solver):
    block = ct.ODEBlock(mlp(), ct.Fourier(1), solver, gradient, compile="aot_eager")
    y = block(torch.randn(4, 3)).square().sum()
    first = torch.autograd.grad(y, list(block.parameters()), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(y, list(block.parameters())), first)


def flow(trace, **options):
    prior = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
    return ct.ContinuousFlow(mlp(2, 2), prior, trace=trace, solver=ct.RK4(steps=3), **options)


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Adjoint()], ids=str)
@pytest.mark.parametrize("trace", ["exact", "hutchinson"])
def test_flows(trace, gradient):
    torch.manual_seed(0)
    plain = flow(trace, gradient=gradient).double()
    compiled = copy.deepcopy(plain).compile("aot_eager")
    x = torch.randn(5, 2, dtype=torch.float64)
    noise = {"noise": torch.randn_like(x).sign()} if trace == "hutchinson" else {}
    found = []
    for model in (plain, compiled):
        y = model.log_prob(x, **noise)
        found.append([y, *torch.autograd.grad(y.sum(), list(model.parameters()))])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


def test_a_flow_is_traced_once():
    torch.manual_seed(0)
    model = flow("exact", compile="aot_eager")
    for _ in range(10):  # more than there are versions of a program; none may be left out
        model.log_prob(torch.randn(5, 2)).sum().backward()


def test_a_flow_compiled_from_the_start():
    assert flow("exact", compile="aot_eager").block.programs is not None
    assert flow("exact").block.programs is None


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Adjoint()], ids=str)
@pytest.mark.parametrize("basis", [ct.Constant(), ct.Fourier(1)], ids=str)
def test_a_depth_for_each_sample(basis, gradient, caplog):
    caplog.expected = basis != ct.Constant()  # weights of their own are evaluated eagerly
    torch.manual_seed(0)
    block = ct.ODEBlock(mlp(), basis, ct.RK4(steps=3), gradient)
    plain = ct.AdaptiveDepth(block, nn.Linear(3, 1)).double()
    compiled = copy.deepcopy(plain).compile("aot_eager")
    x = torch.randn(5, 3, dtype=torch.float64)
    found = []
    for model in (plain, compiled):
        for _ in range(2):  # programs are made once, for a field that is made anew
            y = model(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


def test_odeint_finds_what_a_function_closes_over():
    rate = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    offset = torch.tensor(0.5, dtype=torch.float64)  # no gradient, read at every call

    def f(s, z):
        return rate * z * s + offset

    def solved(compiled):
        z = torch.ones(2, dtype=torch.float64)
        end = ct.odeint(f, z, solver=ct.RK4(steps=3), compile=compiled).final
        return end.detach(), *torch.autograd.grad(end.sum(), [rate])

    for value in (0.5, 0.25):
        offset.fill_(value)
        torch.testing.assert_close(solved("aot_eager"), solved(False), rtol=1e-12, atol=0)


def test_other_sizes_modes_and_attributes():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.scale = nn.BatchNorm1d(3), 2.0

        def forward(self, z):
            return self.scale * torch.tanh(self.norm(z))

    torch.manual_seed(0)
    block = ct.ODEBlock(Scaled(), solver=ct.Euler(steps=2)).double()
    compiled = copy.deepcopy(block).compile("aot_eager")

    def same(batch):
        x = torch.randn(batch, 3, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), block(x), rtol=1e-12, atol=1e-12)

    for batch in (4, 6, 7):
        same(batch)
    for b in (block, compiled):
        b.field.scale = 3.0
    same(4)
    for b in (block, compiled):
        b.eval()
    same(4)


def hooked():
    field = nn.Sequential(nn.Tanh())
    field[0].register_forward_hook(lambda module, args, out: None)
    return ct.ODEBlock(field, solver=ct.Euler(steps=2))


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, z):
        self.calls += 1
        return torch.tanh(z)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: ct.ODEBlock(nn.Dropout(0.5), solver=ct.Euler(steps=2)), "random numbers"),
        (lambda: ct.ODEBlock(nn.Tanh(), solver=ct.ReversibleHeun(steps=2)), "ReversibleHeun"),
        (hooked, "hooks"),
        (lambda: ct.ODEBlock(Counts(), solver=ct.Euler(steps=2)), "its own attributes"),
    ],
)
def test_what_cannot_be_compiled_is_evaluated_eagerly(make, reason, caplog):
    caplog.expected = True
    torch.manual_seed(0)
    block = make()
    x = torch.randn(4, 3, requires_grad=True)
    compiled = copy.deepcopy(block).compile("aot_eager")
    for _ in range(2):
        torch.manual_seed(1)
        expected = block(x)
        torch.manual_seed(1)
        assert torch.equal(compiled(x), expected)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "continua"]
    assert reason in line


def test_mistakes_are_explained_as_without_compiling(caplog):
    caplog.expected = True
    block = ct.ODEBlock(nn.Linear(3, 2), compile="aot_eager")
    with pytest.raises(ct.ShapeError, match="dz/ds must have the shape of z"):
        block(torch.randn(4, 3))
    with pytest.raises(ct.ArgumentError, match="compile is"):
        ct.ODEBlock(nn.Tanh(), compile="fast")


def test_threads_share_programs():
    torch.manual_seed(0)
    block = ct.ODEBlock(mlp(), solver=ct.Euler(steps=3)).double()
    compiled = copy.deepcopy(block).compile("aot_eager")
    inputs = [torch.randn(4, 3, dtype=torch.float64) for _ in range(4)]
    found = {}

    def solve(i):
        found[i] = compiled(inputs[i]).detach()

    threads = [threading.Thread(target=solve, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, x in enumerate(inputs):
        torch.testing.assert_close(found[i], block(x).detach(), rtol=1e-12, atol=1e-12)


def test_without_a_graph():
    block = ct.ODEBlock(mlp(), ct.Fourier(1), ct.RK4(steps=2), ct.Adjoint()).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    with torch.no_grad():
        expected = block(x)
        torch.testing.assert_close(block.compile("aot_eager")(x), expected, rtol=1e-12, atol=0)

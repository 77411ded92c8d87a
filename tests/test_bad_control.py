"""Order, control, depth and flows given what cannot work: what the user reads.

Every message is one sentence that names the offending value and a remedy.
"""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal

import continua as ct
from nets import mlp

Z = torch.ones(3, 2, dtype=torch.float64)


def reads(error, *parts):
    """A context in which an error of continua says each of these, on one line."""
    pattern = r"^(?!.*\n)" + "".join(f"(?=.*{part})" for part in parts)
    return pytest.raises(error, match=pattern)


def solved(field, shape, control=None, basis=None, **options):
    block = ct.ODEBlock(field, basis, ct.RK4(steps=2))
    return block.solve(torch.ones(shape), control=control, **options)


# -- order -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "channels", "more"), [(2, 5, 1), (3, 4, 2), (4, 6, 2), (5, 3, 2)]
)
def test_an_order_that_does_not_divide_the_state(order, channels, more):
    field = ct.HigherOrder(nn.Linear(channels, 1), order)
    said = f"{channels} channels", f"{order} parts", f"augment it by {more}$"
    with reads(ct.ShapeError, *said):
        solved(field, (2, channels))


@pytest.mark.parametrize("order", [0, -1, 1.5, True, "2"])
def test_an_order_that_is_none(order):
    with reads(ct.ArgumentError, "order is a whole number of at least 1", f"not {order!r}"):
        ct.HigherOrder(nn.Linear(2, 1), order)


@pytest.mark.parametrize(
    ("dims", "channels", "wanted"), [([3], 4, 5), ([0, 5], 6, 8), ([0, 1], 3, 4), ([9], 2, 11)]
)
def test_dims_out_of_range(dims, channels, wanted):
    field = ct.SelectiveSecondOrder(nn.Linear(channels, 1), dims)
    said = f"{channels} channels", rf"dims \[{str(dims)[1:-1]}\] are not all among these"
    with reads(ct.ShapeError, *said, f"augment the state to {wanted} channels$"):
        solved(field, (2, channels))
    # The remedy is one.
    enough = ct.SelectiveSecondOrder(nn.Linear(wanted, wanted - len(dims)), dims)
    assert solved(enough, (2, wanted)).final.shape == (2, wanted)


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ([], "one coordinate or more"),
        ([1, 1], r"each once, not \[1, 1\]"),
        ([-1], r"from 0, not \[-1\]"),
        ([0.5], r"whole numbers from 0, not \[0.5\]"),
        (2, r"a list of coordinates such as \[0, 2\], not 2"),
        ("01", r"from 0, not \['0', '1'\]"),
    ],
)
def test_dims_that_are_none(dims, said):
    with reads(ct.ArgumentError, said):
        ct.SelectiveSecondOrder(nn.Linear(2, 1), dims)


@pytest.mark.parametrize(
    "make",
    [
        lambda dim: ct.HigherOrder(nn.Linear(4, 2), dim=dim),
        lambda dim: ct.SelectiveSecondOrder(nn.Linear(4, 3), [0], dim=dim),
        lambda dim: ct.DepthConcat(nn.Linear(5, 4), dim=dim),
        lambda dim: ct.DataControl(nn.Linear(8, 4), dim=dim),
    ],
    ids=["order", "selective", "depth", "control"],
)
def test_channels_that_are_not_there(make):
    with reads(ct.ShapeError, r"shape \[2, 4\] has no dimension 3", "dim= from -2 to 1$"):
        solved(make(3), (2, 4))
    block = ct.ODEBlock(make(1), solver=ct.RK4(steps=1))
    with reads(ct.ShapeError, "takes one tensor, not tuple", "torch.cat$"):
        block((torch.ones(2, 4), torch.ones(2)), control=torch.ones(2, 4))


# -- depth -------------------------------------------------------------------------------------


class Given(nn.Module):
    """A depth_net that gives what it was told."""

    def __init__(self, out):
        super().__init__()
        self.out = out

    def forward(self, x):
        return self.out


def deep(out, positive=None):
    block = ct.ODEBlock(mlp(2).double(), solver=ct.RK4(steps=2))
    return ct.AdaptiveDepth(block, Given(out), positive)


@pytest.mark.parametrize(
    ("depths", "positive", "said"),
    [
        ([1.0, 0.0, 1.0], None, ("sample 1 the depth 0,", "positive='softplus'")),
        ([1.0, 1.0, -0.25], None, ("sample 2 the depth -0.25,", "positive='softplus'")),
        ([math.nan, 1.0, 1.0], None, ("sample 0 the depth nan,", "its input and its weights")),
        ([math.nan, 1.0, 1.0], "softplus", ("sample 0 the depth nan,", "its input")),
        ([1.0, 1.0, math.inf], None, ("sample 2 the depth inf,", "large or non-finite values")),
        ([1.0, 1000.0, 1.0], "exp", ("sample 1 the depth inf,", "large or non-finite values")),
        ([1.0, -900.0, 1.0], "softplus", ("sample 1 the depth 0,", "its number is -900")),
        ([1.0, -1.0, 1.0], "absolute", ("sample 1 the depth 0,", "its number is -1:")),
    ],
)
def test_depths_that_are_none(depths, positive, said):
    with reads(ct.SolveError, *said, "finite and positive"):
        deep(torch.tensor(depths, dtype=torch.float64), positive)(Z)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (torch.ones(2), r"not \[2\]"),
        (torch.ones(3, 2), r"not \[3, 2\]"),
        (torch.ones(1, 3), r"not \[1, 3\]"),
        (torch.tensor(1.0), r"not \[\]"),
        (1.0, "not float"),
    ],
)
def test_depths_of_the_wrong_shape(out, said):
    with reads(ct.ShapeError, r"one number per sample, \[3\] or \[3, 1\]", said, "one output$"):
        deep(out)(Z)


def test_a_signal_cannot_control_samples_at_different_depths():
    path = ct.Signal([0.0, 2.0], torch.ones(2, 3, 2).double())
    with reads(ct.ArgumentError, "a Signal cannot control", "a tensor as its control$"):
        deep(torch.ones(3).double())(Z, control=path)


def test_statistics_that_vary_with_a_learned_depth():
    def model(**options):
        block = ct.ODEBlock(mlp(2, norm=True).double(), ct.Fourier(1), ct.RK4(steps=1), **options)
        return ct.AdaptiveDepth(block.eval(), nn.Linear(2, 1).double())

    with reads(ct.ModuleError, "'0.running_mean' varies with depth", r"state_basis=.*Constant\(\)"):
        model()(Z)
    model(state_basis=ct.Constant())(Z).sum().backward()
    with torch.no_grad():
        assert model()(Z).shape == (3, 2)


# -- flows -------------------------------------------------------------------------------------


def normal(*batch):
    zeros = torch.zeros(*batch, 2, dtype=torch.float64)
    return Independent(Normal(zeros, zeros + 1), 1)


def flow(width=5, prior=None, **options):
    net = nn.Sequential(nn.Linear(width, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    options = {"solver": ct.RK4(steps=2), "context": "given"} | options
    return ct.ContinuousFlow(ct.DataControl(net), prior or normal(), **options)


def contexts(*shape):
    return torch.ones(shape, dtype=torch.float64)


@pytest.mark.parametrize(
    ("context", "log_prob", "sample"),
    [
        (None, r"conditional: give a context \[3, ...\]", r"give sample a context \[B, ...\]"),
        (contexts(2, 3), "3 samples need 3 contexts, not 2: repeat the context", None),
        (
            contexts(3, 1),
            r"DataControl .* \[3, 2\] with a context of \[3, 1\]: .* first layer",
            "=",
        ),
        (contexts(3, 1, 3), r"control of shape \[3, 1, 3\] cannot stand beside .* embed=$", "="),
        (torch.tensor(1.0), r"a tensor \[B, ...\], one row for each sample, not a single", "="),
        (0.5, r"a tensor \[B, ...\], one row for each sample, not float", "="),
    ],
)
def test_contexts_that_do_not_fit(context, log_prob, sample):
    with reads(ct.ContinuaError, log_prob):
        flow().log_prob(Z, context)
    with reads(ct.ContinuaError, log_prob):
        flow().costs(Z, context=context)
    if sample is not None:
        with reads(ct.ContinuaError, log_prob if sample == "=" else sample):
            flow().sample((), context)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: flow(prior=normal(4)).sample((), contexts(3, 3)), r"3 contexts need .* not \[4\]"),
        (lambda: flow().sample(3, contexts(3, 3)), r"a tuple such as \(3,\), not 3"),
        (lambda: flow().log_prob(contexts(3, 4), contexts(3, 3)), r"\[B, 2\], not \[3, 4\]"),
        (
            lambda: ct.ContinuousFlow(nn.Linear(2, 2), normal()).sample((), contexts(3, 3)),
            "takes no context; make it with context='given'",
        ),
        (
            lambda: ct.ContinuousFlow(nn.Linear(3, 2).double(), normal()).log_prob(Z),
            r"the field Linear of the flow fails on samples of shape \[3, 2\]: .*",
        ),
        (
            lambda: flow(width=3, context="sample").sample((3,)),
            r"fails on samples of shape \[3, 2\] with a context of \[3, 2\]: ",
        ),
    ],
)
def test_flows_that_do_not_fit(act, said):
    with reads(ct.ContinuaError, said):
        act()


class Explodes(nn.Module):
    """From a finite state to infinity before the end of the span."""

    def forward(self, z):
        return -50 * (1 + z.abs()) ** 3


@pytest.mark.parametrize(
    ("field", "solver", "said"),
    [
        (Explodes(), ct.Dopri5(1e-5, 1e-5), ("stopped at depth 0.9", "loosen rtol and atol")),
        (Explodes(), ct.RK4(steps=8), ("stopped at depth 0", "not finite", "take more steps")),
        (
            nn.Linear(2, 2).double(),
            ct.Dopri5(1e-9, 1e-9, max_steps=2),
            ("stopped at depth 0.", "raise max_steps"),
        ),
    ],
    ids=["blows up", "overflows", "limit"],
)
def test_sampling_from_a_flow_whose_solve_fails(field, solver, said):
    torch.manual_seed(0)
    made = ct.ContinuousFlow(field, normal(), solver=solver)
    with reads(ct.SolveError, *said, type(solver).__name__):
        made.sample((5,))


# -- costs and signals -------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=repr)
def test_a_running_cost_on_a_solve_that_fails(gradient):
    block = ct.ODEBlock(nn.Linear(2, 2), None, ct.Dopri5(1e-9, 1e-9, max_steps=2), gradient)
    x = torch.ones(3, 2)

    def cost(s, z):
        return z.square().sum(1)

    with reads(ct.SolveError, r"Dopri5\(", "stopped at depth 0.", "raise max_steps"):
        block.solve(x, running_cost=cost)
    solution = block.solve(x, running_cost=cost, raise_on_failure=False)
    assert solution.status is ct.Status.MAX_STEPS
    assert 0 < solution.failure.depth < 1
    assert solution.cost.shape == (3,)


@pytest.mark.parametrize(
    ("depths", "span"),
    [([0.0, 0.5], (0.0, 1.0)), ([0.25, 1.0], (0.0, 1.0)), ([0.0, 1.0], (1.0, -0.5))],
)
@pytest.mark.parametrize("kind", ["linear", "cubic", "previous"])
def test_a_signal_shorter_than_the_span(depths, span, kind):
    path = ct.Signal(depths, torch.ones(2, 3, 2), kind)
    said = (
        f"given from depth {depths[0]:g} to {depths[1]:g}",
        f"the solve goes from {span[0]:g} to {span[1]:g}: give values for all of it$",
    )
    with reads(ct.ArgumentError, *said):
        solved(ct.DataControl(nn.Linear(4, 2)), (3, 2), path, span=span)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ct.Signal([0.0], torch.ones(1)), r"two or more depths in a row, not .* \[1\]"),
        (lambda: ct.Signal([0.0, 0.7, 0.4], torch.ones(3)), "0.4 follows 0.7: sort"),
        (lambda: ct.Signal([0.0, 0.0], torch.ones(2)), "0 follows 0: .* name no depth twice"),
        (lambda: ct.Signal([0.0, math.nan], torch.ones(2)), "nan follows 0"),
        (lambda: ct.Signal(["a", "b"], torch.ones(2)), r"numbers, not \['a', 'b'\]"),
        (lambda: ct.Signal([0.0, 1.0], torch.ones(3)), r"values \[2, ...\], not \[3\]"),
        (lambda: ct.Signal([0.0, 1.0], [1.0, 2.0]), r"values \[2, ...\], not list"),
        (lambda: ct.Signal([0, 1], torch.tensor([1, 2])), "not torch.int64; use values.float"),
        (lambda: ct.Signal([0, 1], torch.ones(2), "spline"), "cubic, previous, not 'spline'"),
    ],
)
def test_signals_that_are_none(make, said):
    with reads(ct.ArgumentError, said):
        make()


@pytest.mark.parametrize(
    ("control", "said"),
    [
        (torch.ones(3, 4), r"\[3, 4\] cannot be spread over .* \[2, 3, 5, 5\]: .* of the 2"),
        (torch.ones(2, 4, 3, 3), r"\[2, 4, 3, 3\] cannot stand beside .*; give embed="),
        ([1.0, 2.0], "a tensor or a Signal, not list; use torch.as_tensor"),
    ],
)
def test_controls_that_do_not_fit(control, said):
    with reads(ct.ShapeError, said):
        solved(ct.DataControl(nn.Conv2d(7, 3, 3, padding=1)), (2, 3, 5, 5), control)


def test_a_running_cost_that_is_not_finite_on_a_fixed_grid():
    block = ct.ODEBlock(nn.Linear(2, 2), solver=ct.Euler(steps=2))

    def cost(s, z):
        return torch.log(-z.square().sum(1))

    with pytest.raises(ct.SolveError, match="running cost"):
        block.solve(torch.ones(3, 2), running_cost=cost)
    solution = block.solve(torch.ones(3, 2), running_cost=cost, raise_on_failure=False)
    assert solution.status is ct.Status.NON_FINITE

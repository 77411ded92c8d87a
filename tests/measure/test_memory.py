"""Memory: counts that can be made by hand, growth with the steps, and a process that agrees."""

import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import continua as ct
from continua.measure import readable_bytes
from continua.measure._saved import LiveTensors, SavedTensors
from nets import Net, conv_unit, make_pair, mlp

B, N, H = 5, 3, 7  # batch, width, hidden width
FLOAT = 4


def tanh_mlp(n=N, h=H):
    return nn.Sequential(nn.Linear(n, h), nn.Tanh(), nn.Linear(h, n))


def saved(report):
    return {row.gradient: row.saved for row in report.rows if row.refusal is None}


def refusals(report):
    return {row.gradient: row.refusal for row in report.rows if row.refusal is not None}


def mean_square(out):
    return out.square().mean()


# -- counted by hand ---------------------------------------------------------------------------


def test_a_plain_module_has_one_row_that_can_be_counted():
    report = ct.memory(tanh_mlp(), torch.randn(B, N))
    (row,) = report.rows
    weights = N * H + H + H * N + N
    # Of the input, the weights and the output of tanh, which both neighbours need, the last is new.
    assert row.saved == B * H * FLOAT
    assert row.held == row.saved + FLOAT  # the loss
    assert (row.gradient, row.refusal, row.process) == (None, None, None)
    assert row.name == "as it is"
    assert report.parameters == report.gradients == weights * FLOAT
    assert report.optimizer == (2 * weights + 4) * FLOAT  # Adam: two moments, four step counts
    assert report.buffers == 0
    # Its own output, and on the way back the gradients of all weights and of one hidden layer.
    assert row.saved + B * N * FLOAT < row.peak <= row.saved + (weights + 3 * B * (H + N)) * FLOAT


def test_a_loss_keeps_its_part():
    x = torch.randn(B, N)
    bare, squared = (ct.memory(tanh_mlp(), x, loss=f) for f in (None, mean_square))
    assert squared.rows[0].saved == bare.rows[0].saved + B * N * FLOAT


def test_adjacent_views_of_one_storage_count_once_and_whole():
    class Halves(nn.Module):
        def forward(self, x):
            both = torch.cat([x, x])
            first, second = both.chunk(2)
            return first * second

    x = torch.randn(B, N, requires_grad=True)
    assert ct.memory(Halves(), x).rows[0].saved == 2 * B * N * FLOAT


@pytest.mark.parametrize("steps", [1, 4, 9])
def test_every_gradient_of_a_block_can_be_counted(steps):
    state, hidden = B * N * FLOAT, B * H * FLOAT
    found = saved(
        ct.memory(
            ct.ODEBlock(tanh_mlp(), solver=ct.Euler(steps=steps)),
            torch.randn(B, N, requires_grad=True),
        )
    )
    triangular = sum(n * (n + 1) // 2 < steps for n in range(steps))
    assert found == {
        ct.Backprop(): steps * (state + hidden) - state,  # the first state is the input
        ct.Checkpoint(): (steps - 1) * state,
        ct.Checkpoint("sqrt"): (triangular - 1) * state,
        ct.Adjoint(): (2 * steps - 1) * state,  # a line per step
        ct.Adjoint("backsolve"): state,
    }
    reversible = ct.ODEBlock(tanh_mlp(), solver=ct.ReversibleHeun(steps=steps))
    assert saved(ct.memory(reversible, torch.randn(B, N)))[ct.Reversible()] == 3 * state


def test_stages_count_like_steps():
    state, hidden = B * N * FLOAT, B * H * FLOAT
    block = ct.ODEBlock(tanh_mlp(), solver=ct.RK4(steps=3))
    found = ct.memory(block, torch.randn(B, N), methods=[ct.Backprop()])
    assert saved(found) == {ct.Backprop(): 12 * (state + hidden) - state}


def test_double_precision_takes_twice_as_much():
    x = torch.randn(B, N)
    single = ct.memory(tanh_mlp(), x)
    double = ct.memory(tanh_mlp().double(), x.double())
    assert double.rows[0].saved == 2 * single.rows[0].saved
    assert double.rows[0].peak == 2 * single.rows[0].peak
    assert double.parameters == 2 * single.parameters


def test_what_is_dropped_does_not_count():
    x = torch.randn(B, N, requires_grad=True)
    with SavedTensors([x]) as kept:
        out = x.exp()
        assert kept.bytes == B * N * FLOAT
        again = out.exp().sum()
        assert kept.bytes == 2 * B * N * FLOAT
        del again
        assert kept.bytes == B * N * FLOAT
    out.sum().backward()
    assert kept.bytes == 0


def test_live_tensors_end():
    x = torch.randn(B, N)
    with LiveTensors([x]) as live:
        a = x + 1
        b = a.reshape(-1) * 2
        assert live.bytes == 2 * B * N * FLOAT
        del b
        x.add_(1)
        assert (live.bytes, live.peak) == (B * N * FLOAT, 2 * B * N * FLOAT)
    del a
    assert live.bytes == 0


def test_the_checkpoints_of_torch_are_seen():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.unit = tanh_mlp()

        def forward(self, x):
            return checkpoint(self.unit, x, use_reentrant=False)

    assert ct.memory(Checkpointed(), torch.randn(B, N, requires_grad=True)).rows[0].saved == 0


# -- growth ------------------------------------------------------------------------------------


def test_growth_with_the_steps():
    x = torch.randn(8, N, requires_grad=True)

    def measured(steps, solver=ct.Midpoint):
        report = ct.memory(ct.ODEBlock(tanh_mlp(), ct.Fourier(2), solver(steps=steps)), x)
        return {row.gradient: row for row in report.rows}

    few, many = measured(5), measured(20)
    reversible = [measured(n, ct.ReversibleHeun)[ct.Reversible()] for n in (5, 20)]
    ratio = {g: many[g].saved / few[g].saved for g in few if few[g].refusal is None}
    assert ratio[ct.Backprop()] == pytest.approx(4, rel=0.05)
    assert ratio[ct.Checkpoint()] == 19 / 4  # but for the first state
    assert ratio[ct.Adjoint()] == pytest.approx(4, rel=0.1)
    assert ratio[ct.Checkpoint("sqrt")] == 5 / 2
    assert ratio[ct.Adjoint("backsolve")] == 1
    assert reversible[0].saved == reversible[1].saved
    assert all(row.peak >= row.held >= row.saved for row in many.values())


def test_sizes_are_finite():
    report = ct.memory(ct.ODEBlock(mlp(4), solver=ct.Dopri5(1e-6, 1e-6)), torch.randn(3, 4))
    assert all(math.isfinite(row.peak) and row.saved > 0 for row in report.rows if not row.refusal)
    assert refusals(report).keys() == {ct.Reversible()}


@pytest.mark.parametrize(
    ("solver", "gradient"),
    [
        (ct.ReversibleHeun, ct.Reversible()),
        (ct.Euler, ct.Adjoint("backsolve")),
    ],
    ids=["Reversible", "backsolve"],
)
def test_the_peak_does_not_grow_with_steps_either(solver, gradient):
    """Weights that vary with depth are read a few evaluations at a time."""
    peaks = []
    for steps in (40, 400):
        block = ct.ODEBlock(nn.Linear(64, 64), ct.Fourier(2), solver(steps=steps), gradient)
        (row,) = ct.memory(block, torch.randn(2, 64), methods=[gradient]).rows
        peaks.append(row.peak)
    assert peaks[1] <= 1.1 * peaks[0]


# -- what must not change, and what is refused -------------------------------------------------


def test_nothing_of_the_model_changes():
    model = Net(width=4).train()
    x = torch.randn(6, 3)
    model(x).sum().backward()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    grads = [p.grad.clone() for p in model.parameters()]
    noise, given = torch.get_rng_state(), x.clone()
    ct.memory(model, x)
    assert torch.equal(torch.get_rng_state(), noise)
    assert torch.equal(x, given)
    assert model.block.gradient == ct.Backprop()
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    for p, grad in zip(model.parameters(), grads, strict=True):
        assert torch.equal(p.grad, grad)


def test_a_method_that_cannot_run_says_why():
    block = ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.Euler(steps=2)).train()
    report = ct.memory(block, torch.randn(2, 4, 6, 6))
    found = refusals(report)
    assert found.keys() == {ct.Adjoint("backsolve"), ct.Reversible()}
    assert "batch norm in training mode" in found[ct.Adjoint("backsolve")]
    assert "not Euler(steps=2)" in found[ct.Reversible()]
    assert len(report.rows) == 6
    assert ct.Adjoint("backsolve") in saved(ct.memory(block.eval(), torch.randn(2, 4, 6, 6)))
    only = ct.memory(block, torch.randn(2, 4, 6, 6), methods=[ct.Reversible()])
    assert only.optimizer is only.gradients is None
    assert "not Euler" in str(only)


def test_no_memory_is_a_reason():
    class Greedy(nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch.empty(2**60, dtype=torch.uint8)[0]

    (row,) = ct.memory(Greedy(2, 2), torch.ones(1, 2)).rows
    assert row.refusal == "there is not enough memory for it here"


def test_an_own_gradient_and_mixed_ones_get_a_row():
    x = torch.randn(2, 4)
    own = ct.Adjoint(solver=ct.RK4(steps=9))
    block = ct.ODEBlock(mlp(4), solver=ct.RK4(steps=2), gradient=own)
    assert [row.gradient for row in ct.memory(block, x).rows][-1] == own
    pair = make_pair(4)
    pair[0].gradient = ct.Checkpoint()
    report = ct.memory(pair, x)
    rows = {row.gradient: row.saved for row in report.rows}
    assert len(report.rows) == 7
    assert rows[ct.Checkpoint()] < rows[None] < rows[ct.Backprop()]


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (torch.optim.SGD, 0),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 6),
        (torch.optim.AdamW, 14),  # two moments of six numbers, a step count for two tensors
    ],
)
def test_other_optimizers(make, state):
    report = ct.memory(nn.Linear(2, 2), torch.ones(1, 2), optimizer=make)
    assert report.optimizer == state * FLOAT
    assert report.optimizer_name in ("SGD", "AdamW")


def test_frozen_parameters_have_no_gradient_and_no_state():
    model = tanh_mlp()
    model[0].requires_grad_(False)
    report = ct.memory(model, torch.ones(1, N))
    assert report.gradients == (H * N + N) * FLOAT
    assert report.optimizer == (2 * (H * N + N) + 2) * FLOAT
    bare = ct.memory(nn.Tanh(), torch.ones(1, N, requires_grad=True))
    assert (bare.parameters, bare.optimizer) == (0, 0)
    assert bare.rows[0].saved == N * FLOAT


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        ((nn.Tanh, 1), {}, r"nn\.Module, not type"),
        ((nn.Tanh(),), {}, "no input"),
        ((nn.Tanh(), torch.ones(1)), {}, "nothing to differentiate"),
        ((nn.LSTM(2, 2), torch.ones(1, 2)), {}, "returns a tuple"),
        ((nn.Linear(2, 2), torch.ones(1, 2)), {"loss": lambda y: y}, "one number as a tensor"),
        ((nn.Linear(2, 2), torch.ones(1, 2)), {"methods": ["adjoint"]}, "not 'adjoint'"),
        ((nn.Linear(2, 2), torch.ones(1, 2)), {"optimizer": torch.optim.LBFGS}, "LBFGS cannot"),
        ((nn.Linear(2, 2), torch.ones(1, 2)), {"confirm": True}, r"with continua\.build"),
    ],
)
def test_mistakes(arguments, options, match):
    with pytest.raises(ct.ArgumentError, match=match):
        ct.memory(*arguments, **options)


def test_a_wrong_shape_is_a_mistake_and_not_a_refusal():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ct.memory(Net(), torch.ones(2, 7))
    with pytest.raises(ct.ShapeError):
        ct.memory(ct.ODEBlock(mlp(4)), torch.ones(2, 4, dtype=torch.float64))


# -- shown -------------------------------------------------------------------------------------


def test_the_table():
    torch.manual_seed(0)
    block = ct.ODEBlock(tanh_mlp(), solver=ct.Euler(steps=4))
    lines = str(ct.memory(block, torch.randn(1000, N, requires_grad=True))).splitlines()
    assert lines[0].startswith("parameters 208 B, ")
    assert lines[0].endswith("gradients 208 B, Adam state 432 B")
    assert lines[1].split() == ["gradient", "saved", "held", "peak"]
    assert lines[2].split()[:3] == ["Backprop()", "148", "kB"]
    assert lines[7].split() == ["Reversible()", "-", "-", "-"]
    assert lines[8].startswith("Reversible(): Reversible() needs ReversibleHeun")
    assert len({len(line) for line in lines[1:7]}) == 1


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9_994, "9.99 kB"),
        (9_999, "10.0 kB"),
        (99_960, "100 kB"),
        (999_400, "999 kB"),
        (999_600, "1.00 MB"),
        (280_000, "280 kB"),
        (3_000_000_000, "3.00 GB"),
        (63_000_000_000_000, "63,000 GB"),
    ],
)
def test_bytes_in_words(count, text):
    assert readable_bytes(count) == text

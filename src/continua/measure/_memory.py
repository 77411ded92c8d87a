"""What a training step takes, in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError, ShapeError, SolveError
from continua._tables import html_table, text_table
from continua.field import copied
from continua.gradient import Adjoint, Backprop, Checkpoint, Gradient, Reversible
from continua.transform import blocks_if_any

from ._process import Loss, process_peak, scalar
from ._saved import LiveTensors, SavedTensors, storages, total_bytes

#: the gradients that are measured unless others are named
METHODS: tuple[Gradient, ...] = (
    Backprop(), Checkpoint(), Checkpoint("sqrt"), Adjoint(), Adjoint("backsolve"), Reversible(),
)  # fmt: skip
Optimizers = Callable[[Iterable[nn.Parameter]], Optimizer]


@dataclass(frozen=True)
class MemoryUse:
    """The bytes of one forward and backward with one gradient method.

    Parameters, buffers and inputs are not among them.
    """

    gradient: Gradient | None  # the method of every block; None for the model as it is
    saved: int = 0  # what autograd saves for the backward pass, each storage once
    held: int = 0  # all tensors that are alive between the two passes
    peak: int = 0  # the most that tensors took at once, gradients included
    process: int | None = None  # the rise of the peak of a process of its own, if it was measured
    refusal: str | None = None  # why the method cannot run on this model, if it cannot

    @property
    def name(self) -> str:
        """The method as one writes it."""
        return "as it is" if self.gradient is None else repr(self.gradient)


@dataclass(frozen=True)
class MemoryReport:
    """What `memory` found, in bytes; `print` shows it as a table."""

    parameters: int
    buffers: int  # such as batch-norm statistics
    gradients: int | None  # of the parameters that get one
    optimizer: int | None  # the optimizer's state after a step; None if no method could run
    optimizer_name: str
    rows: tuple[MemoryUse, ...]  # one per gradient method; of a model without blocks there is one

    def __str__(self) -> str:
        first, cells, notes = self._table()
        return "\n".join([first, text_table(cells), *notes])

    def _repr_html_(self) -> str:
        first, cells, notes = self._table()
        return html_table(cells, first, notes)

    def _table(self) -> tuple[str, list[tuple[str, ...]], list[str]]:
        fixed = {
            "parameters": self.parameters,
            "buffers": self.buffers,
            "gradients": self.gradients,
            f"{self.optimizer_name} state": self.optimizer,
        }
        first = ", ".join(f"{k} {readable_bytes(v)}" for k, v in fixed.items() if v is not None)
        columns = {"saved": "saved", "held": "held", "peak": "peak"}  # attributes and their titles
        if any(row.process is not None for row in self.rows):
            columns["process"] = "process peak"
        cells = [("gradient", *columns.values())]
        for row in self.rows:
            counts = [None if row.refusal else getattr(row, column) for column in columns]
            cells.append((row.name, *("-" if n is None else readable_bytes(n) for n in counts)))
        notes = [f"{row.name}: {row.refusal}" for row in self.rows if row.refusal is not None]
        return first, cells, notes


def memory(
    model: nn.Module,
    *inputs: Any,
    loss: Loss | None = None,
    methods: Sequence[Gradient] | None = None,
    optimizer: Optimizers = Adam,
    confirm: bool = False,
) -> MemoryReport:
    """Measure the memory of a training step, for every gradient method.

    Each method runs one forward and backward on a copy of the model, so the model does not change,
    batch-norm statistics included. What is saved for the backward pass is counted by autograd's
    hooks, and the peak by following every tensor. Both are exact and the same on every machine, but
    for the scratch space inside a kernel.

    Args:
        model: any module, in the mode and on the device that it will train in. A model without an
            `ODEBlock` has a single row.
        inputs: what it is called with. An input that requires a gradient gets one.
        loss: from the output to a number; the sum by default, which saves nothing itself.
        methods: the gradients to put into every block; by default all that continua has, and that
            of the model's blocks if it is another.
        optimizer: a kind of optimizer, or a function that makes one from parameters.
        confirm: whether to measure each row in a process of its own too, which takes seconds
            each. The model goes there as files, so it must come from `build` or `load`, inputs
            must be tensors, and a loss must be a function that can be imported.

    The accounting of Time Dependence in Non-Autonomous Neural ODEs (Davis et al. 2020), measured.

    Example:
        >>> import continua as ct
        >>> field = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
        >>> block = ct.ODEBlock(field, solver=ct.Euler(steps=10))
        >>> report = ct.memory(block, torch.ones(5, 2))
        >>> report.parameters, report.optimizer  # two moments and a step count per tensor
        (168, 352)
        >>> {row.name: row.saved for row in report.rows}["Backprop()"]  # 10 states, but for x
        1960
    """
    own = [block.gradient for block in blocks_if_any(model).values()]
    if not inputs:
        raise ArgumentError("no input: give what the model is called with, as in memory(model, x)")
    source = copied(model)
    source.zero_grad(set_to_none=True)
    rows: list[MemoryUse] = []
    gradients = state = None
    name = getattr(optimizer, "__name__", "optimizer")
    for method in _methods(own, methods):
        trial = _with_gradient(source, method)
        args = pytree.tree_map_only(
            Tensor, lambda x: x.detach().clone().requires_grad_(x.requires_grad), inputs
        )
        try:
            # Every method draws the same random numbers, and the caller's generator is restored.
            with torch.random.fork_rng({p.device for p in trial.parameters() if p.is_cuda}):
                counts = _count_bytes(trial, args, loss)
        except _RefusedError as error:
            rows.append(MemoryUse(method, refusal=str(error)))
            continue
        if state is None:
            gradients = total_bytes(p.grad for p in trial.parameters() if p.grad is not None)
            name, state = _optimizer_state(trial, optimizer, name)
        process = process_peak(_with_gradient(source, method), args, loss) if confirm else None
        rows.append(MemoryUse(method, *counts, process))
    parameters, buffers = total_bytes(source.parameters()), total_bytes(source.buffers())
    return MemoryReport(parameters, buffers, gradients, state, name, tuple(rows))


def readable_bytes(count: int) -> str:
    """A number of bytes in the unit that suits it; a kB is a thousand.

    Example:
        >>> readable_bytes(999), readable_bytes(1_234_567)
        ('999 B', '1.23 MB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        # What would be rounded to 1000 of a unit belongs to the next.
        if count >= 0.9995 * size:
            digits = max(0, 3 - len(str(int(1.0005 * count / size))))
            return f"{count / size:,.{digits}f} {unit}"
    return f"{count} B"


def _methods(
    own: Sequence[Gradient], methods: Sequence[Gradient] | None
) -> Iterable[Gradient | None]:
    """The rows: None stands for the model as it is."""
    for method in methods or ():
        if not isinstance(method, Gradient):
            raise ArgumentError(
                f"a method is a gradient such as continua.Backprop(), not {method!r}"
            )
    if not own:
        return [None]
    if methods is not None:
        return dict.fromkeys(methods)
    return dict.fromkeys([*METHODS, *own]) if len(set(own)) == 1 else [*METHODS, None]


def _with_gradient(model: nn.Module, method: Gradient | None) -> nn.Module:
    """A copy whose blocks have this gradient; None leaves them their own."""
    trial = copied(model)
    for block in blocks_if_any(trial).values():
        block.gradient = method or block.gradient
    return trial


class _RefusedError(Exception):
    """A method that cannot run on a model, and why."""


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise a `_RefusedError` for what a method refuses, or has no memory for.

    Other errors are mistakes in the arguments.
    """
    try:
        yield
    except (ArgumentError, SolveError) as error:
        if isinstance(error, ShapeError):
            raise
        raise _RefusedError(str(error)) from error
    except (MemoryError, RuntimeError) as error:
        # The allocator of the CPU raises a RuntimeError.
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        raise _RefusedError("there is not enough memory for it here") from error


def _count_bytes(
    model: nn.Module, inputs: tuple[Any, ...], loss: Loss | None
) -> tuple[int, int, int]:
    """The bytes that autograd saves, that are held between the passes, and at the peak."""
    tensors = [x for x in pytree.tree_leaves(inputs) if isinstance(x, Tensor)]
    existing = [*model.parameters(), *model.buffers(), *tensors]
    with LiveTensors(existing) as live:
        with SavedTensors(existing) as kept:
            with _refusals():
                out = model(*inputs)
            value = scalar(out, loss)
            del out  # as in a training step, which keeps the loss only
        saved, held = kept.bytes, live.bytes
        with _refusals():
            torch.autograd.backward(value)
    return saved, held, live.peak


def _optimizer_state(model: nn.Module, optimizer: Optimizers, name: str) -> tuple[str, int]:
    """The kind of an optimizer and the bytes of its state after one step."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        return name, 0
    try:
        instance = optimizer(parameters)
        instance.step()
    except TypeError as error:
        raise ArgumentError(
            f"{name} cannot take a step ({error}); give a function that makes an optimizer from "
            "parameters, such as lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)"
        ) from error
    existing = storages([*parameters, *(p.grad for p in parameters if p.grad is not None)])
    state = [t for t in pytree.tree_leaves(list(instance.state.values())) if isinstance(t, Tensor)]
    sizes = {key: size for key, size in storages(state).items() if key not in existing}
    return type(instance).__name__, sum(sizes.values())

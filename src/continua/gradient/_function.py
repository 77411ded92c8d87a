"""Dynamics given by any callable."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError
from continua.solve import Dynamics, Evaluate, Reading, Rerun, Stage

from ._dependencies import dependencies, leaves_of
from ._problem import Problem


class CallableDynamics(Dynamics):
    """A callable f(s, z, *args), whose parameters are found or given.

    Args:
        f: a function or a module.
        problem: what the solve starts from.
        args: further arguments of f.
        params: tensors that f depends on besides those that can be found.
        x: the state at the start, in its structure, for a running cost that reads it.
    """

    varies = driven = True

    def __init__(
        self,
        f: Callable[..., Any],
        problem: Problem,
        args: tuple[Any, ...],
        params: list[Tensor],
        x: Any,
    ):
        self.f, self.problem = f, problem
        self._args, self._params, self._x = args, params, x
        self._name = getattr(f, "__name__", type(f).__name__)
        self._checked = False

    @property
    def tensors(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The tensors among the arguments, and the parameters."""
        return (*self.given, *self.params)

    @property
    def given(self) -> list[Tensor]:
        """The tensors among the arguments and the input that want a gradient."""
        return wanting((self._args, self._x if self.problem.cost is not None else ()))

    @cached_property
    def params(self) -> list[Tensor]:
        """The leaf tensors that the field and the running cost depend on."""
        found = [*dependencies(self.f), *dependencies(self.problem.given_cost)]
        return list({id(t): t for t in (*found, *leaves_of(self._params))}.values())

    @property
    def noisy(self) -> bool:  # type: ignore[override]
        """Whether random numbers may be drawn: nobody knows of a plain function."""
        return not isinstance(self.f, nn.Module) or any(m.training for m in self.f.modules())

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        depths = self.problem.depths(stages)
        calls: list[Callable[[Any], Any]] = [self._call(s, self._args) for s in depths]
        if self._checked:
            return self.problem.evaluations(calls, depths, self._x)
        self._checked = True
        known = self.tensors if self.problem.repeated else ()
        return self.problem.first_evaluations(self._name, calls, depths, self._x, known)

    def _call(self, s: Tensor, args: tuple[Any, ...]) -> Callable[[Any], Any]:
        return partial(self.f, s) if not args else lambda z: self.f(s, z, *args)

    @contextlib.contextmanager
    def again(self) -> Iterator[Rerun]:
        """Evaluate once more, with arguments that are cut from the graph they come from."""
        args, x = cut((self._args, self._x))
        given = wanting((args, x if self.problem.cost is not None else ()))
        yield _Again(self, args, x, [*given, *self.params])

    def read(self, stages: Sequence[Stage], args: tuple[Any, ...], x: Any) -> list[Evaluate]:
        """The field at some stages for other arguments."""
        depths = self.problem.depths(stages)
        return self.problem.evaluations([self._call(s, args) for s in depths], depths, x)


class _Again(Rerun):
    def __init__(
        self, dynamics: CallableDynamics, args: tuple[Any, ...], x: Any, leaves: list[Tensor]
    ):
        self._dynamics, self._args, self._x, self._leaves = dynamics, args, x, leaves
        self._gathered: list[Tensor | None] = [None] * len(leaves)

    def read(self, stages: Sequence[Stage], leaves: bool = True) -> Reading:
        evaluate = self._dynamics.read(stages, self._args, self._x)
        wanted = self._leaves if leaves else []
        return Reading(evaluate, wanted, self._pull, [range(len(wanted))] * len(stages))

    def _pull(self, gradients: Sequence[Tensor | None]) -> None:
        for i, gradient in enumerate(gradients):
            if gradient is not None:
                known = self._gathered[i]
                self._gathered[i] = gradient if known is None else known + gradient

    def gradients(self) -> Sequence[Tensor | None]:
        return self._gathered


def cut(given: Any) -> Any:
    """The same with every tensor cut from the graph it comes from, to differentiate by."""

    def detached(t: Any) -> Any:
        return t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t

    return pytree.tree_map(detached, given)


def wanting(given: Any) -> list[Tensor]:
    """The tensors in a structure that require a gradient."""
    return [t for t in pytree.tree_leaves(given) if isinstance(t, Tensor) and t.requires_grad]


def checked_params(params: Iterable[Tensor] | None) -> list[Tensor]:
    """The parameters that were named, if they are tensors."""
    if isinstance(params, Tensor):
        return [params]
    try:
        found = list(params or ())
    except TypeError:
        raise ArgumentError(f"params is a list of tensors, not {params!r}") from None
    for tensor in found:
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"params is a list of tensors, but has {tensor!r}")
    return found


def refuse_state(f: Callable[..., Any]) -> None:
    """Refuse a module that updates its state, which a second evaluation would update again."""
    if not isinstance(f, nn.Module):
        return
    for name, module in f.named_modules():
        if module.training and any(b.is_floating_point() for b in module.buffers(recurse=False)):
            raise ArgumentError(
                f"{name or type(f).__name__!r} updates its state in training mode, and this "
                "gradient evaluates it again: use Backprop(), evaluation mode, or an ODEBlock, "
                "whose state is updated once"
            )

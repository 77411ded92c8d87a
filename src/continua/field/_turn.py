"""One solve at a time in each field, whichever thread asks for it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from threading import Lock, RLock
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn

from continua._errors import ModuleError

Method = TypeVar("Method", bound=Callable[..., Any])


class Turn:
    """Whose turn it is in a module that shows the weights of one depth after another.

    Threads that share the module hold `lock` one after another. A solve inside a solve is refused:
    it would take the weights of one depth for coefficients.

    Args:
        lock: of which one thread at a time has hold.
    """

    __slots__ = ("__weakref__", "lock", "solving")

    def __init__(self, lock: AbstractContextManager[Any]):
        self.lock = lock
        self.solving = False

    def begin(self) -> None:
        """Say that the module shows the weights of one depth from now on."""
        if self.solving:
            raise ModuleError(
                "the block is in a solve already: its field or running cost uses the block itself; "
                "give it a copy (copy.deepcopy)"
            )
        self.solving = True

    def end(self) -> None:
        """Say that it has its coefficients again."""
        self.solving = False


_turns: WeakKeyDictionary[nn.Module, Turn] = WeakKeyDictionary()
_first_turn = Lock()


def turn(field: nn.Module) -> Turn:
    """Whose turn it is in this field. What is compiled shows nothing, and need not wait."""
    if torch.compiler.is_compiling():
        return Turn(nullcontext())
    found = _turns.get(field)
    if found is None:
        with _first_turn:
            found = _turns.setdefault(field, Turn(RLock()))
    return found


def in_turn(method: Method) -> Method:
    """The method of a block, called when no other thread is in a solve of its field."""

    @functools.wraps(method)
    def alone(block: Any, /, *args: Any, **kwargs: Any) -> Any:
        with turn(block._modules["field"]).lock:
            return method(block, *args, **kwargs)

    return cast(Method, alone)


_before_fork = ExitStack()


def _wait_for_all() -> None:
    """Let every solve end: what is forked inside one has its weights half exchanged."""
    for each in list(_turns.values()):
        _before_fork.enter_context(each.lock)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_wait_for_all,
        after_in_parent=_before_fork.close,
        after_in_child=_before_fork.close,
    )

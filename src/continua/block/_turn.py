"""One solve at a time in each field, whichever thread asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock, RLock
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn

Method = TypeVar("Method", bound=Callable[..., Any])

_turns: WeakKeyDictionary[nn.Module, AbstractContextManager[Any]] = WeakKeyDictionary()
_first_turn = Lock()


def turn(field: nn.Module) -> AbstractContextManager[Any]:
    """What a solve holds while the field shows the weights of one depth after another.

    Threads that share a block take turns; a solve inside a solve of its own thread goes on.
    A compiled solve shows nothing.
    """
    if torch.compiler.is_compiling():
        return nullcontext()
    found = _turns.get(field)
    if found is None:
        with _first_turn:
            found = _turns.setdefault(field, RLock())
    return found


def in_turn(method: Method) -> Method:
    """The method of a block, called when no other thread is in a solve of its field."""

    @functools.wraps(method)
    def alone(block: Any, /, *args: Any, **kwargs: Any) -> Any:
        with turn(block._modules["field"]):
            return method(block, *args, **kwargs)

    return cast(Method, alone)

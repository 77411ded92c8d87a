"""Choices by name pattern."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

from continua._errors import ArgumentError

T = TypeVar("T")


def choose(
    choice: T | Mapping[str, T],
    names: Iterable[str],
    what: str,
    *,
    known: Iterable[str] = (),
    hint: str = "",
) -> dict[str, T]:
    """One value per name: the same for all, or that of the first pattern which matches.

    A pattern that matches no name, nor one of those known besides, is refused, as it is most
    likely misspelt; `"*"` is not. The message calls the names `what`, and ends with the hint.
    """
    names = list(names)
    if not isinstance(choice, Mapping):
        return dict.fromkeys(names, choice)
    every = list(dict.fromkeys([*names, *known]))
    for pattern in choice:
        if not matches(pattern, every):
            raise ArgumentError(
                f"pattern {pattern!r} matches no {what}; the {what}s are: {listed(every)}"
                + (hint and f"; {hint}")
            )
    chosen = {}
    for name in names:
        matching = [value for pattern, value in choice.items() if fnmatchcase(name, pattern)]
        if not matching:
            raise ArgumentError(
                f"no pattern matches {what} {name!r}; add one, or '*' for all the rest "
                f"(given: {listed(choice)})"
            )
        chosen[name] = matching[0]
    return chosen


def matches(pattern: str, names: Iterable[str]) -> bool:
    """Whether a pattern matches one of the names; `"*"` also matches none."""
    return pattern == "*" or any(fnmatchcase(name, pattern) for name in names)


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names for a message, the first few of them; an empty one is that of the whole."""
    names = [repr(name) if name else "'' (the model itself)" for name in names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more

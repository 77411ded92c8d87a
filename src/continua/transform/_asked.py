"""What `compress` is asked for, checked before the work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from continua._errors import ArgumentError

from ._budget import checked_budget
from ._sensitivity import Weight

Method = Literal["project", "interpolate", "fit"]


def check_method(method: Any, weight: Any, calibrate: Any, final: Any) -> None:
    """Refuse a method that lacks what it needs."""
    if method not in get_args(Method):
        raise ArgumentError(f"method is 'project', 'interpolate' or 'fit', not {method!r}")
    if method == "fit" and calibrate is None:
        raise ArgumentError("method='fit' needs inputs to fit to: calibrate=[x, ...]")
    if final is not None and method != "fit":
        raise ArgumentError(f"final={final!r} names the map that method='fit' changes")
    if weight is None:
        return
    if weight not in get_args(Weight):
        raise ArgumentError(f"weight is 'fisher', 'activation' or None, not {weight!r}")
    if method == "interpolate":
        raise ArgumentError("weight= is for projections, and method is 'interpolate'")
    if calibrate is None:
        raise ArgumentError(f"weight={weight!r} needs inputs to look at: calibrate=[x, ...]")


def check_search(budget: Any, within: Any, evaluate: Any, given: Mapping[str, Any]) -> str | None:
    """Which argument asks for a search, if any."""
    if budget is None and within is None:
        if evaluate is not None:
            raise ArgumentError("evaluate= goes with within=, the largest loss to accept")
        return None
    if budget is not None and within is not None:
        raise ArgumentError("give a budget or within, not both")
    name = "within" if budget is None else "budget"
    for key, value in given.items():
        if value is not None:
            raise ArgumentError(f"{name}= chooses {key}; give one of the two")
    if budget is not None:
        checked_budget(budget)
    return name

"""Bases, solvers and gradients, written as one writes them in Python."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from typing import Any

import continua as ct
from continua._values import known
from continua.gradient import GRADIENTS
from continua.solve import SOLVERS


def parse_basis(text: str) -> ct.Basis:
    """The basis that a text such as `PiecewiseConstant(8)` or `Fourier(3, period=2.0)` names."""
    return _made(text, known(ct.Basis), "basis")  # type: ignore[no-any-return]


def parse_solver(text: str) -> ct.Solver:
    """The solver that a text such as `RK4(steps=8)` or `Dopri5(rtol=1e-4)` names."""
    return _made(text, SOLVERS, "solver")  # type: ignore[no-any-return]


def parse_gradient(text: str) -> ct.Gradient:
    """The gradient that a text such as `Adjoint()` or `Checkpoint("sqrt")` names."""
    return _made(text, GRADIENTS, "gradient")  # type: ignore[no-any-return]


def nearest(name: str, known: Mapping[str, Any] | list[str], what: str) -> ct.ArgumentError:
    """An error for a name that is not known, with the one that was perhaps meant."""
    near = [one for one in known if one.rpartition("/")[2] == name]  # digits: stateful/digits
    near += difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
    return ct.ArgumentError(f"there is no {what} {name!r}; {hint}")


def _made(text: str, kinds: Mapping[str, Any], what: str) -> Any:
    try:
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Name):
            call = ast.Call(func=call, args=[], keywords=[])
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError
        arguments = [ast.literal_eval(argument) for argument in call.args]
        named = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError):
        raise ct.ArgumentError(
            f"a {what} is written like {next(iter(kinds))}(...), not {text!r}"
        ) from None
    if call.func.id not in kinds:
        raise nearest(call.func.id, kinds, what)
    try:
        return kinds[call.func.id](*arguments, **named)
    except TypeError as error:
        said = str(error).partition("__init__() ")
        raise ct.ArgumentError(f"{text} cannot be made: {said[2] or said[0]}") from None

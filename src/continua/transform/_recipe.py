"""How to make a model again: its factory and arguments, stored on the model itself."""

from __future__ import annotations

from typing import Any

from torch import nn

_ATTRIBUTE = "_continua_recipe"


def recipe_of(model: nn.Module) -> dict[str, Any] | None:
    """The name and arguments of the factory that made the model, or None if not known."""
    return getattr(model, _ATTRIBUTE, None)


def set_recipe(model: nn.Module, recipe: dict[str, Any] | None) -> None:
    """Store how the model was made; copies of the model keep it. None removes it."""
    if recipe is None:
        vars(model).pop(_ATTRIBUTE, None)
    else:
        setattr(model, _ATTRIBUTE, recipe)

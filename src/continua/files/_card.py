"""The model card of a repository on a hub."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import nn

from continua._tables import markdown_table
from continua.transform import Elastic

from ._factory import FACTORIES, qualified


class Table(Protocol):
    """What is a table, a `Front` for instance."""

    def rows(self) -> Sequence[Sequence[str]]:
        """A head, then a row per size."""


SAFE = """\
The repository holds no code. `config.json` names the function that makes the model; continua calls
it only if it is on continua's own list or if you hand it over, and ignores any other file."""


def card(
    model: nn.Module,
    repo: str,
    config: Mapping[str, Any],
    metadata: str,
    *,
    facts: Mapping[str, str | None],
    front: Table | None,
    measure: str,
    figure: str | None,
) -> str:
    """A page in Markdown: what a model is, how to load it and what its sizes are worth.

    Args:
        model: what is saved.
        repo: its name on the hub.
        config: of the saved model.
        metadata: for the hub, in YAML.
        facts: what to say of the model; None is not stated.
        front: a table of its sizes.
        measure: what the values in the table are.
        figure: the name of an image.
    """
    name, factory = repo.rpartition("/")[2], config["factory"]["name"]
    extras = "hub,transformers" if factory.startswith("transformers.") else "hub"
    sizes = list(model.sizes) if isinstance(model, Elastic) else []
    known = [f"- {what}: {said or 'not stated'}" for what, said in facts.items()]
    if sizes:
        known.append(f"- Sizes: {', '.join(map(repr, sizes))}, all in one file")
    parts = [
        f"---\n{metadata.strip()}\n---",
        f"# {name}",
        "The weights of this network are functions of depth, which continua evaluates.",
        "\n".join(known),
        f'## Load\n\n```\npip install "continua-torch[{extras}]"\n```',
        f"```python\n{_loading(repo, factory, sizes)}\n```",
        SAFE,
    ]
    if front is not None:
        head, *rows = front.rows()
        named = [measure if cell == "value" else cell for cell in head]
        parts.append(f"## Sizes\n\n{markdown_table([named, *rows])}")
        parts.append("A star marks a size than which no other is better, smaller and faster.")
    if figure is not None:
        parts.append(f"![{measure} of the sizes]({figure})")
    return "\n\n".join(parts) + "\n"


def _loading(repo: str, factory: str, sizes: Sequence[Any]) -> str:
    """The lines that load a model."""
    lines, arguments = ["import continua as ct"], [repr(repo).replace("'", '"')]
    numbers = [size for size in sizes if isinstance(size, int)]
    if numbers:
        arguments.append(f"size={numbers[-1]}")
    if factory not in FACTORIES:
        module, _, name = factory.partition(":")
        top = module.partition(".")[0]
        # As people import it: transformers offers BertModel itself, for instance.
        offered = getattr(sys.modules.get(top), name, None)
        if offered is not None and qualified(offered) == factory:
            module = top
        where = "your_module" if module == "__main__" else module
        lines.append(f"from {where} import {name}")
        arguments.append(f"factory={name}")
    return "\n".join([*lines, "", f"model = ct.from_pretrained({', '.join(arguments)})"])

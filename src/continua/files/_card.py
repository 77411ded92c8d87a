"""The model card of a repository on a hub."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import nn

from continua._tables import markdown_table
from continua.transform import Elastic

from ._factory import FACTORIES, qualified

CARD = """\
---
{metadata}
---

# {name}

The weights of this network are functions of depth, which continua evaluates.

{facts}

## Load

```
pip install "continua-torch[{extras}]"
```

```python
{code}
```

The repository holds no code. `config.json` names the function that makes the model; continua calls
it only if it is on continua's own list or if you hand it over, and ignores any other file.
"""


class Table(Protocol):
    """What is a table, a `Front` for instance."""

    def rows(self) -> Sequence[Sequence[str]]:
        """A head, then a row per size."""


def card(
    model: nn.Module, repo: str, factory: str, metadata: str, facts: Mapping[str, str | None]
) -> str:
    """A page in Markdown: metadata for the hub, facts about a model, and how to load it."""
    return CARD.format(
        metadata=metadata.strip(),
        name=repo.rpartition("/")[2],
        facts="\n".join(f"- {name}: {fact or 'not stated'}" for name, fact in facts.items()),
        extras="hub,transformers" if factory.startswith("transformers.") else "hub",
        code=_code(model, repo, factory),
    )


def sizes_section(front: Table, measure: str) -> str:
    """The section with the table of the sizes; `measure` says what its values are."""
    head, *rows = front.rows()
    table = markdown_table([[measure if cell == "value" else cell for cell in head], *rows])
    note = "A star marks a size than which no other is better, smaller and faster."
    return f"\n## Sizes\n\n{table}\n\n{note}\n"


def _code(model: nn.Module, repo: str, factory: str) -> str:
    """The lines that load a model, of an elastic one the smallest size."""
    imports, arguments = "import continua as ct\n", f'"{repo}"'
    sizes = model.sizes if isinstance(model, Elastic) else ()
    numbers = [size for size in sizes if isinstance(size, int)]
    if numbers:
        arguments += f", size={numbers[-1]}"
    if factory not in FACTORIES:
        module, _, name = factory.partition(":")
        # As people import it: transformers offers BertModel itself, for instance.
        top = module.partition(".")[0]
        offered = getattr(sys.modules.get(top), name, None)
        if offered is not None and qualified(offered) == factory:
            module = top
        imports += f"from {'your_module' if module == '__main__' else module} import {name}\n"
        arguments += f", factory={name}"
    return f"{imports}\nmodel = ct.from_pretrained({arguments})"

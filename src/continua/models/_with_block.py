"""What models of one block have in common."""

from __future__ import annotations

from typing import Any, Self

from torch import nn

from continua.block import ODEBlock
from continua.gradient import Backend


class WithBlock(nn.Module):
    """A model whose solves are those of its block."""

    block: ODEBlock

    def compile(  # type: ignore[override]
        self, compile: bool | Backend = True, **options: Any
    ) -> Self:
        """Take compiled steps from now on, in place: see `ODEBlock.compile`.

        Args:
            compile: False for plain evaluation again; `"aot_eager"` traces without compiling.
            options: those of `torch.compile`, which then compiles the whole forward instead.
        """
        if options:
            super().compile(**options)
        else:
            self.block.compile(compile)
        return self

"""One set of weights, trained in several sizes at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.field import slot, tensor

from ._blocks import blocks, change_basis
from ._compress import compress
from ._projection import MAPPINGS
from ._sizes import Choice, check_nested, check_sizes, own_size, size_arguments


class Elastic(nn.Module):
    r"""A model that is trained in several sizes at once.

    `compress` is a fixed linear map P of a block's coefficients, so the loss of a smaller size is
    a differentiable function of the full model's coefficients θ:

    .. math:: \frac{\partial \ell}{\partial \theta} =
              P^\top \frac{\partial \ell}{\partial (P\theta)}

    Weights outside of blocks are the same in all sizes. Batch-norm statistics are not a linear
    function of the coefficients: each size has buffers of its own, which its own forward passes
    update.

    Called like the model itself it runs the full size, and with `size=` another one. `loss` is
    the mean of those of the full size and of one or two smaller ones. `at` gives a plain model.

    Args:
        model: any module that contains ODE blocks. It is trained in place: its parameters are
            the only ones.
        sizes: the full size first, then smaller ones, each contained in the one before. A whole
            number is a number of basis functions, with the steps in proportion. A dictionary has
            arguments of `compress`: basis, steps, solver, state_basis, method, per_block; `{}` is
            the model itself.

    Attributes:
        model: the full size.
        sizes: as given.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
        >>> elastic = ct.Elastic(block, sizes=[4, 2, 1])
        >>> x, y = torch.ones(3, 2), torch.tensor([0, 1, 1])
        >>> elastic.loss(x, lambda out: nn.functional.cross_entropy(out, y)).backward()
        >>> elastic.at(2).field.weight.shape
        torch.Size([2, 2, 2])
    """

    def __init__(self, model: nn.Module, sizes: Sequence[Choice]):
        super().__init__()
        if isinstance(model, Elastic):
            raise ArgumentError("the model is elastic already; give its plain model, elastic.model")
        self.model, self.sizes = model, tuple(check_sizes(sizes))
        full = compress(model, **size_arguments(model, sizes[0]))
        self._make_smaller()
        modules = [small.module for small in self._small]
        check_nested([model, full, *modules], sizes)
        self.statistics = nn.ModuleList(map(_Buffers, modules))
        self._next = 0  # the number of the next step

    def _make_smaller(self) -> None:
        sizes = self.sizes[1:]
        self._small = [_Small(self.model, size_arguments(self.model, size)) for size in sizes]
        self._settings = _settings(self.model)

    def forward(self, *args: Any, size: Choice | None = None, **kwargs: Any) -> Any:
        """The outputs of one size.

        Args:
            args: of the model.
            size: one of `sizes`; None for the full one.
            kwargs: of the model.
        """
        index = 0 if size is None else self.index(size)
        if index == 0:
            return self.model(*args, **kwargs)
        if self._settings != _settings(self.model):
            self._make_smaller()
        return self._small[index - 1].call(self.model, self.statistics[index - 1], args, kwargs)

    def loss(self, x: Any, criterion: Callable[[Any], Tensor], step: int | None = None) -> Tensor:
        """The mean loss of the full size and of `trained(step)`.

        Args:
            x: the input of the model.
            criterion: the loss of a size, given its outputs.
            step: its number in the course of the training; None counts the calls.
        """
        step = self._next if step is None else step
        self._next = step + 1
        sizes = (None, *self.trained(step))
        return torch.stack([criterion(self(x, size=size)) for size in sizes]).mean()

    def trained(self, step: int) -> tuple[Choice, ...]:
        """The smaller sizes that a step trains beside the full one.

        They are the smallest, and in every third step one of those between, in turn.

        Args:
            step: its number.
        """
        between, smallest = self.sizes[1:-1], self.sizes[1:][-1:]
        if not between or step % 3:
            return smallest
        return (*smallest, between[step // 3 % len(between)])

    def at(self, size: Choice) -> nn.Module:
        """A plain model of one size: a copy, as `compress` makes it, with its own statistics.

        Args:
            size: one of `sizes`.
        """
        index = self.index(size)
        plain = compress(self.model, **size_arguments(self.model, self.sizes[index]))
        if index:
            for name, value in self.statistics[index - 1].named_buffers():
                registry, key = slot(plain, name)
                registry[key] = value.detach().clone()
        return plain

    def index(self, size: Choice) -> int:
        """The place of a size among `sizes`."""
        if isinstance(size, bool) or size not in self.sizes:
            known = ", ".join(map(repr, self.sizes))
            raise ArgumentError(f"there is no size {size!r}; there are {known}")
        return self.sizes.index(size)

    def grown(self, model: nn.Module) -> Elastic:
        """The same sizes and statistics, and before them the refined model as the full size.

        Args:
            model: what `refine` made of the full size.
        """
        full = own_size(model)
        if not isinstance(self.sizes[0], int) or full is None:
            raise ArgumentError(
                f"an elastic model grows if its sizes are whole numbers, not {self.sizes[0]!r}"
            )
        if full == self.sizes[0]:
            return Elastic(model, self.sizes)._with(list(self.statistics))
        made = Elastic(model, (full, *self.sizes)).train(self.training)
        return made._with([_Buffers(self.model), *self.statistics])

    def _with(self, statistics: Sequence[nn.Module]) -> Self:
        for own, other in zip(self.statistics, statistics, strict=True):
            found = dict(other.named_buffers())
            for name, value in own.named_buffers():
                if found[name].shape != value.shape:
                    raise ArgumentError(
                        f"the statistics {name!r} have shape {list(found[name].shape)}, and in "
                        f"the refined model {list(value.shape)}; make a new Elastic of it"
                    )
                value.copy_(found[name])
        return self

    def extra_repr(self) -> str:
        """What stands in the first lines of the repr."""
        return f"sizes={list(self.sizes)}"


def _settings(model: nn.Module) -> list[tuple[Any, ...]]:
    """The settings of the blocks of a model that a user may change."""
    return [(block.solver, block.gradient, block.programs) for block in blocks(model).values()]


class _Buffers(nn.Module):
    """The buffers of a model under their names, and nothing else."""

    def __init__(self, model: nn.Module):
        super().__init__()
        for name, child in model.named_children():
            if next(child.buffers(), None) is not None:
                self.add_module(name, _Buffers(child))
        for name, value in model.named_buffers(recurse=False):
            persistent = name not in model._non_persistent_buffers_set
            self.register_buffer(name, value.detach().clone(), persistent)


class _Small:
    """A smaller size of a model, whose weights are worked out from the full size at every call.

    Args:
        model: the full size.
        arguments: of `compress`, which make the smaller one.
    """

    def __init__(self, model: nn.Module, arguments: Mapping[str, Any]):
        self.module = compress(model, **arguments)
        mapping = MAPPINGS[arguments.get("method", "project")]
        full, small = blocks(model), blocks(self.module)
        self._matrices: dict[tuple[str, ...], Tensor] = {}
        for name, block in full.items():
            prefix = f"{name}." if name else ""
            for key, source in block.expansion.weights.items():
                target = small[name].expansion.weights[key]
                if source != target:
                    names = tuple(f"{prefix}field.{n}" for n in block.expansion.names(key))
                    self._matrices[names] = mapping(source, target)
            small[name].recorders = block.recorders  # what this size costs counts, too
        for name, parameter in self.module.named_parameters():
            self._put(name, parameter.new_empty(0))  # no memory of its own

    def call(
        self, model: nn.Module, statistics: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The outputs of this size.

        The tensors stay in their places afterwards: a backward pass that evaluates a field again
        reads them there.
        """
        for own, other in zip(self.module.modules(), model.modules(), strict=True):
            own.training = other.training
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self._put(name, parameter)
        for names, matrix in self._matrices.items():
            value = change_basis(matrix, tensor(model, names[0]))
            for name in names:
                self._put(name, value)
        buffers = dict(statistics.named_buffers())
        for name, buffer in buffers.items():
            self._put(name, buffer)
        out = self.module(*args, **kwargs)
        for name, buffer in buffers.items():
            left = tensor(self.module, name)
            if left is not buffer:  # replaced, not written in place
                registry, key = slot(statistics, name)
                registry[key] = left.detach()
        return out

    def _put(self, name: str, value: Tensor) -> None:
        registry, key = slot(self.module, name)
        registry[key] = value

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = copy.copy(self)
        # Tensors inside a graph cannot be copied, and the next call puts others in their place.
        found = [*self.module.parameters(), *self.module.buffers()]
        hollow = {id(value): value.new_empty(0) for value in found if value.requires_grad}
        made.module = copy.deepcopy(self.module, {**memo, **hollow})
        return made

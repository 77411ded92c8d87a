"""A module whose tensors are functions of depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from continua._errors import ArgumentError, ModuleError
from continua.basis import Basis, Constant, least_squares, projection, sample

from ._function import as_module, refuse_functions
from ._patterns import choose
from ._tensors import copied, owner, put, tensor, tensor_names

BasisChoice = Basis | Mapping[str, Basis]
Init = Literal["copy", "independent"]

#: directions in which a fit to independent draws would amplify them by more than its inverse
#: are left out: high powers of s would otherwise start with coefficients in the thousands
AMPLIFICATION = 0.02

#: makes values of a piece of state valid
Constraint = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Expansion:
    """Which tensors of a module are functions of depth, and in which basis.

    The module keeps its tree and its names; an expanded tensor of shape `[...]` stands there as
    a stack of K coefficients, `[K, ...]`.

    Attributes:
        weights: the basis of each trainable parameter. Frozen ones stay as they are.
        state: the basis of each floating-point buffer that the module may write to.
        carried: the integer buffers, which count on once per training forward.
        aliases: for a tensor with several names, its further ones.
        constraints: for state that must stay valid wherever it is read, how to make it so.
    """

    weights: dict[str, Basis]
    state: dict[str, Basis]
    carried: tuple[str, ...] = ()
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    constraints: dict[str, Constraint] = field(default_factory=dict)

    @property
    def bases(self) -> dict[str, Basis]:
        """The basis of every expanded tensor, by name."""
        return self.weights | self.state

    @property
    def all_names(self) -> tuple[str, ...]:
        """Every tensor that varies from evaluation to evaluation."""
        return (*self.weights, *self.state, *self.carried)

    def trains(self, field: nn.Module) -> bool:
        """Whether a module with state is training, and so updates it."""
        owners = {name.rpartition(".")[0] for name in (*self.state, *self.carried)}
        return any(field.get_submodule(name).training for name in owners)

    def names(self, name: str) -> tuple[str, ...]:
        return (name, *self.aliases.get(name, ()))


def expand(
    module: nn.Module | Callable[..., Any],
    basis: BasisChoice,
    state_basis: BasisChoice | None = None,
    init: Init = "copy",
) -> tuple[nn.Module, Expansion]:
    """A copy of the module with its tensors as coefficient stacks, and the record of them.

    The arguments are those of `ODEBlock`.
    """
    module = as_module(module)
    refuse_unsupported(module)
    refuse_functions(module)
    module = copied(module)
    tensors, aliases = tensor_names(module)
    weights = [n for n, t in tensors.items() if isinstance(t, nn.Parameter) and t.requires_grad]
    buffers = {n: t for n, t in tensors.items() if not isinstance(t, nn.Parameter)}
    state = [n for n, t in buffers.items() if _is_state(module, n, t)]

    chosen = choose_bases(basis, state_basis, weights, state, aliases)
    expansion = Expansion(
        weights={n: chosen[n] for n in weights},
        state={n: chosen[n] for n in state},
        carried=tuple(
            n for n, t in buffers.items() if not (t.is_floating_point() or t.is_complex())
        ),
        aliases=aliases,
        constraints={n: rule for n in state if (rule := _constraint(module, n)) is not None},
    )
    stacks = initial_stacks(module, expansion.weights, expansion.state, init)
    for name, stack in stacks.items():
        put(module, expansion.names(name), stack)
    return module, expansion


def choose_bases(
    basis: BasisChoice | None,
    state_basis: BasisChoice | None,
    weights: Iterable[str],
    state: Iterable[str],
    aliases: Mapping[str, tuple[str, ...]],
    *,
    known_weights: Iterable[str] = (),
    known_state: Iterable[str] = (),
    hint: str = "",
) -> dict[str, Basis]:
    """The basis of each tensor by name; `basis=None` chooses none for the weights.

    Patterns may also match the known names, and `hint` says what else one that matches nothing
    may have been meant for.
    """

    def every(names: Iterable[str]) -> list[str]:
        return [name for first in names for name in (first, *aliases.get(first, ()))]

    chosen: dict[str, Basis] = {}
    both = state_basis is None
    if basis is not None:
        names = every([*weights, *state] if both else weights)
        known = [*known_weights, *known_state] if both else known_weights
        what = "tensor" if both else "parameter"
        chosen |= choose(basis, names, what, known=known, hint=hint)
    if state_basis is not None:
        chosen |= choose(state_basis, every(state), "buffer", known=known_state, hint=hint)
    for name in chosen:
        if not isinstance(chosen[name], Basis):
            raise ArgumentError(
                f"{name!r} was given {chosen[name]!r}, which is not a basis such as "
                "continua.PiecewiseConstant(4)"
            )
        for other in aliases.get(name, ()):
            if chosen[other] != chosen[name]:
                raise ArgumentError(
                    f"{name!r} and {other!r} are the same tensor but were given "
                    f"{chosen[name]} and {chosen[other]}; give both the same basis"
                )
    return chosen


def refuse_unsupported(module: nn.Module) -> None:
    """One sentence for each kind of module that cannot be a function of depth."""
    for name, child in module.named_modules():
        where = f"submodule {name!r}" if name else "the field"
        if isinstance(child, LazyModuleMixin) and child.has_uninitialized_params():  # type: ignore[misc]
            raise ModuleError(
                f"{where} ({type(child).__name__}) is not initialised yet; "
                "call the module once on a sample before wrapping it"
            )
        if isinstance(child, nn.RNNBase):
            raise ModuleError(
                f"{where} ({type(child).__name__}) keeps a second list of its weights, which "
                f"cannot vary with depth; use {type(child).__name__}Cell"
            )
        if isinstance(child, torch.jit.ScriptModule):
            raise ModuleError(
                f"{where} is a TorchScript module, whose weights cannot vary with depth; "
                "wrap the Python module"
            )


def _is_state(module: nn.Module, name: str, value: Tensor) -> bool:
    """Whether a buffer is state: floating, saved with the module, and finite.

    A table that the module rebuilds itself, or a mask of infinities, has no useful average.
    """
    return (
        value.is_floating_point()
        and name.rpartition(".")[2] not in owner(module, name)._non_persistent_buffers_set
        and (value.is_meta or bool(value.isfinite().all()))
    )


def _constraint(module: nn.Module, name: str) -> Constraint | None:
    if name.rpartition(".")[2] == "running_var":
        return non_negative
    if isinstance(owner(module, name), nn.utils.parametrizations._SpectralNorm):
        return unit_length
    return None


def non_negative(values: Tensor) -> Tensor:
    """Clamp a variance, wherever it is read."""
    return values.clamp(min=0)


def unit_length(values: Tensor) -> Tensor:
    """Normalize the vectors of a power iteration, `[..., n]`, wherever they are read."""
    return nn.functional.normalize(values, dim=-1)


def initial_stacks(
    module: nn.Module, weights: dict[str, Basis], state: dict[str, Basis], init: Init
) -> dict[str, Tensor]:
    """The coefficients `[K, ...]` of every tensor to expand."""
    if init not in get_args(Init):
        raise ArgumentError(f"init is 'copy' or 'independent', not {init!r}")
    names = [*weights, *state] if init == "copy" else [*state]
    stacks = {name: constant(tensor(module, name), (weights | state)[name]) for name in names}
    if init == "independent":
        stacks |= independent(module, weights)
    return stacks


def constant(value: Tensor, basis: Basis) -> Tensor:
    """The coefficients of the function that has this value at every depth."""
    ones = projection(Constant(), basis)[:, 0]
    ones = torch.where((ones - ones.round()).abs() < 1e-12, ones.round(), ones)
    return ones.to(value).reshape(-1, *[1] * value.dim()) * value.detach()


def independent(module: nn.Module, bases: dict[str, Basis]) -> dict[str, Tensor]:
    """A fresh draw of `reset_parameters` at each node, as far as the basis can follow them."""
    draws: dict[str, list[Tensor]] = {name: [] for name in bases}
    trial = copied(module)
    resets = [_reset(trial, path) for path in dict.fromkeys(n.rpartition(".")[0] for n in bases)]
    for _ in range(max((basis.size for basis in bases.values()), default=0)):
        for reset in resets:
            reset()
        for name in bases:
            draws[name].append(tensor(trial, name).detach().clone())
    stacks = {}
    for name, basis in bases.items():
        values = torch.stack(draws[name][: basis.size])  # [K, ...]
        inverse = least_squares(sample(basis, basis.nodes), rcond=AMPLIFICATION)
        stacks[name] = torch.tensordot(inverse.to(values), values, dims=1)
    return stacks


def _reset(module: nn.Module, path: str) -> Any:
    owner = module.get_submodule(path)
    reset: Any = getattr(owner, "reset_parameters", None) or getattr(
        owner, "_reset_parameters", None
    )
    where = f"submodule {path!r}" if path else "the field"
    if reset is None or parametrize.is_parametrized(owner) or "parametrizations" in path:
        raise ModuleError(
            f"init='independent' calls reset_parameters, which {where} "
            f"({type(owner).__name__}) does not offer; give it one, or use init='copy'"
        )
    return reset

"""The field of a block for compiled steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from continua.basis import Basis, Constant, Point, sample
from continua.field import FieldRun, Sampling, tensor
from continua.gradient import Program, exchanged, known_shared, reachable
from continua.solve import Evaluate, Source, Stage, Traced

if TYPE_CHECKING:
    from ._dynamics import BlockDynamics

#: how many numbers the gradients that are contracted at once may be: few stay in the cache
TOGETHER = 1 << 17


class _Pack:
    """The weights that share a basis, side by side: `[K, P]` coefficients."""

    def __init__(self, basis: Basis, names: list[str], run: FieldRun):
        self.basis, self.names = basis, names
        self.shapes = [run.coefficients[name].shape[1:] for name in names]
        stacks = [run.coefficients[name].detach() for name in names]
        self.coefficients = torch.cat([s.reshape(len(s), -1) for s in stacks], 1)
        self.sizes = [shape.numel() for shape in self.shapes]
        self.gradient: Tensor | None = None

    @property
    def smooth(self) -> bool:
        """Whether each function is one formula from end to end, which a program can work out."""
        return len(self.basis.breakpoints) == 2 and self.coefficients.device.type == "cpu"

    def rows(self, at: Tensor) -> Tensor:
        """The weights at E stages, `[E, P]`, from the coefficients `[E]` or functions `[E, K]`."""
        if at.dim() == 1:
            return self.coefficients.index_select(0, at.to(self.coefficients.device))
        return at.to(self.coefficients) @ self.coefficients

    def pull(self, at: Tensor, gradients: Sequence[Tensor]) -> None:
        """Add the gradients of `rows`, of some stages after others, to that of the coefficients."""
        if self.gradient is None:
            self.gradient = torch.zeros_like(self.coefficients)
        at = at.to(self.gradient.device if at.dim() == 1 else self.gradient)
        first, together = 0, TOGETHER // max(1, gradients[0].numel()) or 1
        for i in range(0, len(gradients), together):
            gradient = torch.cat([*gradients[i : i + together]])
            own = at[first : first + len(gradient)]
            first += len(gradient)
            if at.dim() == 1:
                self.gradient.index_add_(0, own, gradient)
            else:
                self.gradient.addmm_(own.T, gradient)

    def parts(self, row: Tensor) -> list[Tensor]:
        found = torch.split(row, self.sizes)
        return [part.view(shape) for part, shape in zip(found, self.shapes, strict=True)]

    def gradients(self) -> dict[str, Tensor]:
        """Those of the coefficients, by name; another backward pass starts from nothing."""
        gradient, self.gradient = self.gradient, None
        if gradient is None:
            return {}
        parts = torch.split(gradient, self.sizes, 1)
        shapes = [(len(gradient), *shape) for shape in self.shapes]
        found = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        return dict(zip(self.names, found, strict=True))


def _functions(basis: Basis, points: Sequence[Point]) -> Tensor:
    if len(basis.breakpoints) == 2:  # a basis without cells is never one that picks coefficients
        return sample(basis, points)
    found = Sampling.of(basis, points)
    return found.picks if found.rows is None else found.rows.index_select(0, found.picks)


def _rows(basis: Basis, s: Tensor, coefficients: Tensor) -> Sequence[Tensor]:
    functions = basis(s)
    return functions, functions.to(coefficients) @ coefficients


class BlockSource(Source):
    """Weights packed by basis, then state, then depths."""

    def __init__(
        self,
        dynamics: BlockDynamics,
        run: FieldRun,
        given: tuple[Any, tuple[Any, ...], dict[str, Any]],
        others: Sequence[Tensor],
    ):
        self._dynamics, self._run, self._given = dynamics, run, given
        self.code = (run.twin and run.twin.module, dynamics.call.problem.cost)
        self._others = others  # what gets a gradient besides weights
        expansion, problem = dynamics.expansion, dynamics.call.problem
        groups: dict[tuple[Any, ...], list[str]] = {}
        for name, basis in expansion.weights.items():
            if not isinstance(basis, Constant):
                like = run.coefficients[name]
                groups.setdefault((basis, like.dtype, like.requires_grad), []).append(name)
        # Those that get gradients come first.
        trained = sorted(groups.items(), key=lambda group: not group[0][2])
        self._packs = [_Pack(basis, names, run) for (basis, _, _), names in trained]
        self.weights = len(self._packs)
        self.numbers = sum(pack.coefficients.shape[1] for pack in self._packs)
        self._counters = [
            name
            for name in expansion.carried
            if run.field.get_submodule(name.rpartition(".")[0]).training
        ]
        varying = [name for pack in self._packs for name in pack.names]
        apart = {
            id(tensor(run.field, name)) for name in (*varying, *expansion.state, *self._counters)
        }
        self._states = [*expansion.state, *self._counters]
        self.state = len(self._states) if run.updates else 0
        x, args, kwargs = given
        reads_input = dynamics.is_field or problem.cost is not None
        everything = (run.field, problem.cost, x if reads_input else (), args, kwargs)
        tensors, plain = reachable(everything)
        self.signature = [*plain, expansion, problem.structure, self.state > 0]
        self.shared = known_shared(
            [t for t in tensors if id(t) not in apart], [*run.coefficients.values(), *others]
        )
        self._place = {id(t): i for i, t in enumerate(self.shared)}
        self._known: tuple[Sequence[Stage], Mapping[Basis, Tensor]] = ((), {})
        self._readers: dict[tuple[_Pack, int], Program] = {}

    def _at(self, stages: Sequence[Stage]) -> Mapping[Basis, Tensor]:
        """For each basis the coefficients `[E]` or the functions `[E, K]` at the stages."""
        if self._known[0] is not stages:
            points = self._dynamics.points_of(stages) if self._packs else ()
            bases = dict.fromkeys(pack.basis for pack in self._packs)
            self._known = stages, {basis: _functions(basis, points) for basis in bases}
        return self._known[1]

    def rows(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        rows = self._weights(stages) if self._packs else []
        if self._states:
            weights = self._dynamics.state_at(self._run, stages)
            values = {name: after for name, (_, after) in weights.state.items()} | weights.counts
            rows += [values[name] for name in self._states]
        depths = self._dynamics.depths(stages)
        return [*rows, torch.stack(list(depths))] if depths else rows

    def _weights(self, stages: Sequence[Stage]) -> list[Tensor]:
        if self.programs is None or not all(pack.smooth for pack in self._packs):
            at = self._at(stages)
            return [pack.rows(at[pack.basis]) for pack in self._packs]
        depths = [point.depth for point in self._dynamics.points_of(stages)]
        s = torch.tensor(depths, dtype=torch.float64, device="cpu")
        known: dict[Basis, Tensor] = {}
        self._known = stages, known
        return [self._read(pack, s, known) for pack in self._packs]

    def _read(self, pack: _Pack, depths: Tensor, known: dict[Basis, Tensor]) -> Tensor:
        """The weights of a pack at some depths, by a program: a few operations take longer."""
        given, basis = [depths, pack.coefficients], pack.basis
        reader = self._readers.get(key := (pack, len(depths)))
        if reader is None:
            kind = "rows", basis, len(depths), pack.coefficients.shape
            reader = self.programs.get(kind, self, given, lambda: partial(_rows, basis))
            self._readers[key] = reader
        known[basis], rows = reader.run(given)
        return rows

    def traced(self, stages: Sequence[Stage]) -> Traced:
        dynamics, run = self._dynamics, self._run
        weights, depths = dynamics.weights_at(run, stages, None), dynamics.depths(stages)
        for pack in self._packs:
            for name in pack.names:
                weights.fixed.pop(name, None)
                # Objects of their own, to tell the stages apart.
                like = run.coefficients[name].detach()[0]
                weights.varying[name] = [like.detach() for _ in stages]
        evaluate = dynamics.evaluations(run, weights, depths, self._given)

        def on(shared: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[list[Evaluate], Any]:
            weights.replaced.clear()
            table = {id(t): other for t, other in zip(self.shared, shared, strict=True)}
            for name, basis in dynamics.expansion.weights.items():
                if isinstance(basis, Constant):
                    place = self._place[id(run.coefficients[name])]
                    table[id(weights.fixed[name])] = shared[place].squeeze(0)
            remaining = iter(rows)
            for pack in self._packs:
                for i, row in enumerate(next(remaining).unbind(0)):
                    for name, part in zip(pack.names, pack.parts(row), strict=True):
                        table[id(weights.varying[name][i])] = part
            state: dict[str, list[Tensor]] = {}
            for name in self._states:  # evaluations may write to it
                state[name] = [row.clone() for row in next(remaining).unbind(0)]
                found = zip(weights.varying[name], state[name], strict=True)
                table.update((id(real), row) for real, row in found)
            if depths:
                rest = next(remaining).unbind(0)
                table.update((id(s), other) for s, other in zip(depths, rest, strict=True))

            def left(h: Tensor) -> list[Tensor]:
                found = []
                for name, own in list(state.items())[: self.state]:
                    new = weights.replaced.get(name, {})
                    found.append(torch.stack([new.get(i, row) for i, row in enumerate(own)]))
                return found

            return [exchanged(f, table) for f in evaluate], left

        return on

    def pull(self, stages: Sequence[Stage], gradients: Mapping[int, Sequence[Tensor]]) -> None:
        at = self._at(stages)
        for place, own in gradients.items():
            pack = self._packs[place]
            pack.pull(at[pack.basis], own)

    def gradients(self, shared: Mapping[int, Tensor]) -> Sequence[Tensor | None]:
        packed = {name: g for pack in self._packs for name, g in pack.gradients().items()}
        coefficients, remaining = self._run.coefficients, dict(shared)

        def of(t: Tensor) -> Tensor | None:
            return remaining.pop(self._place.get(id(t), -1), None)  # one may be there twice

        weights = self._dynamics.expansion.weights
        known = [packed[name] if name in packed else of(coefficients[name]) for name in weights]
        return [*known, *map(of, self._others)]

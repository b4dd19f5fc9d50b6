"""The step of `Walkers` on the CPU: torch evaluates the model, and kernels do the rest."""

import copy
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb._kernels.first_order import step
from sklsb._kernels.first_order.learning import Looked
from sklsb._kernels.numeric import Table
from sklsb._system.arrays import Array, Ints
from sklsb.ensembles._torch.walkers import State, Walkers
from sklsb.targets._torch.model import Carried, Model
from sklsb.targets.base import Target


class _Side:
    """Memory for the states that a step leads to. Two sides take turns."""

    def __init__(self, state: State, model: Model):
        self.x = torch.empty_like(state.x)
        self.y = self.x.numpy()
        self.model = model.room(len(self.y))
        self.weighed = _room(state.ratios.numpy())
        self._weights = [torch.from_numpy(part) for part in self.weighed[1:]]
        self._found: object = None

    def take(self, found: tuple[Carried, Tensor, Tensor]) -> None:
        """Keep what the model says of the states; the same tuple is the same memory."""
        if found is not self._found:
            self._found = found
            carried, log_ratio, ratios = found
            self.state = State(self.x, carried, ratios, *self._weights)
            self.log_ratio: Array = log_ratio.numpy()
            self.weighed = self.weighed._replace(ratios=ratios.numpy())


def _room(ratios: NDArray[np.floating]) -> step.Weighed:
    """Return log-ratios with memory for their weights."""
    n, n_moves = ratios.shape
    cumulative = np.empty((n, -(-n_moves // step.BLOCK)))
    return step.Weighed(ratios, np.empty_like(ratios), cumulative, np.zeros((n, 2)))


class CompiledWalkers(Walkers):
    """Walkers whose state and scratch are in memory that torch and NumPy share."""

    def __init__(self, target: Target, value_index: Ints, model: Model):
        super().__init__(target, value_index, model)
        excluded = self.moves.excluded
        self._excluded = np.zeros(0, dtype=np.bool_) if excluded is None else excluded.numpy()
        self._scratch()
        n_values = np.asarray(target.cardinalities, dtype=np.int64)
        self._numbering = self.moves.n_per_site, n_values
        self._free = self.moves.free.numpy()

    def put(self, value_index: Ints) -> None:
        super().put(value_index)
        carried = tuple(part.contiguous() for part in self.state.carried)
        self.state = self.state._replace(carried=carried)
        self._forget()

    def _forget(self) -> None:
        # A state, its moves, and its values.
        self._last: tuple[State, step.Weighed, NDArray[np.integer]] | None = None

    def part(self, span: slice) -> "CompiledWalkers":
        """Return some of the chains, which another thread may move until `join`."""
        made = copy.copy(self)
        x, carried, *rest = self.state
        mine = tuple(one[span] for one in carried)
        made.state = State(x[span], mine, *(one[span] for one in rest))
        made._forget()
        made.moved, made.acceptance = self.moved[span], self.acceptance[span]
        weighing = self.weighing
        logs = weighing.scratch.logs
        made.weighing = weighing._replace(scratch=step.Scratch.of(logs.size, logs.dtype))
        made._scratch()
        return made

    def join(self, parts: "list[CompiledWalkers]") -> None:
        """Take the states of all parts."""
        columns = zip(*(part.state for part in parts), strict=True)
        x, carried, *rest = (list(column) for column in columns)
        own = tuple(torch.cat(ones) for ones in zip(*carried, strict=True))
        self.state = State(torch.cat(x), own, *(torch.cat(ones) for ones in rest))
        self._forget()

    def _scratch(self) -> None:
        """Allocate what a step writes to."""
        none = np.empty((0, 0), dtype=np.int64)
        self._drawn = step.Drawn(none, none, none, np.empty((0, 0)), none.ravel())
        accepts = np.empty(len(self), dtype=np.bool_)
        self._sums = self.acceptance.numpy(), self.moved.numpy(), accepts
        self._sides: list[_Side] = []

    def _side(self) -> _Side:
        """Return a side where the present state is not."""
        free = [side for side in self._sides if side.x is not self.state.x]
        if not free:
            free.append(_Side(self.state, self.model))
            self._sides.append(free[0])
        return free[0]

    def weigh(self, table: Table) -> None:
        ratios = self.state.ratios.numpy()
        self.weighing = step.Weighing.of(table, self._excluded, ratios.shape[1], ratios.dtype)
        super().weigh(table)

    def _weights(self, ratios: Tensor) -> tuple[Tensor, ...]:
        found = _room(ratios.numpy())
        if ratios.shape[1]:
            step.weigh(self.weighing, found)
        return tuple(torch.from_numpy(part) for part in found[1:])

    def _present(self) -> tuple[State, step.Weighed, NDArray[np.integer]]:
        if self._last is None or self._last[0] is not self.state:
            here = self.state
            parts = here.ratios, here.weights, here.cumulative, here.log_total
            weighed = step.Weighed(*(part.numpy() for part in parts))
            self._last = here, weighed, here.x.numpy()
        return self._last

    def here(self) -> step.Weighed:
        """Return the moves of the present states."""
        return self._present()[1]

    def proposed(self, uniforms: Array) -> Ints:
        """Draw a move of each chain, as a step does that is not lazy."""
        move = np.empty((len(uniforms), 1), dtype=np.int64)
        step.select(self.here(), np.array(uniforms[:, None], order="C"), move)
        return move[:, 0]

    def uniform(self, uniforms: Array) -> Ints:
        """Draw a free move of each chain; all are equally probable."""
        n = len(self._free)
        found: Ints = self._free[np.minimum((uniforms * n).astype(np.int64), n - 1)]
        return found

    def look(self, moves: list[Ints]) -> Looked:
        """Return the states that moves of each chain lead to, in the order of the moves."""
        move, here = np.concatenate(moves), self.state
        x, *carried = (torch.cat([part] * len(moves)) for part in (here.x, *here.carried))
        y, (site, back) = np.empty_like(x.numpy()), np.empty((2, len(move), 1), dtype=np.int64)
        step.make(x.numpy(), move[:, None], *self._numbering, y, site, back)
        with torch.no_grad():
            _, log_ratio, ratios = self.model.reach((x.numpy(), y, site), tuple(carried))
        found = _room(ratios.numpy())
        if self.model.unsigned:
            step.along_flips(found.ratios, y, np.inf)
        step.weigh(self.weighing, found)
        return Looked(move, back[:, 0], log_ratio.numpy(), found)

    def numbers(self, given: Array, n_flips: int) -> Iterator[Array]:
        if n_flips > 1 and given.shape[2] == 2:
            pairs, given = np.ascontiguousarray(given), np.empty((*given.shape[:2], n_flips + 2))
            step.expand(pairs, given)
        yield from np.ascontiguousarray(given.transpose(1, 0, 2))

    def step(self, numbers: Array) -> None:
        if not self.moves.existing.size:
            return
        (state, here, x), side = self._present(), self._side()
        carried, y = state.carried, side.y
        n, n_flips = len(numbers), max(1, numbers.shape[1] - 2)
        if self._drawn.move.shape != (n, n_flips):
            move, site, back = np.empty((3, n, n_flips), dtype=np.int64)
            weight, active = np.empty((n, n_flips)), np.empty(n, dtype=np.int64)
            self._drawn = step.Drawn(move, site, back, weight, active)
        drawn, sums = self._drawn, self._sums
        step.propose(here, x, numbers, self.lazy, *self._numbering, y, drawn)
        side.take(self.model.reach((x, y, drawn.site), carried, side.model))
        moved = self.weighing, drawn, side.log_ratio, here, side.weighed
        unsigned = y if self.model.unsigned else y[:0]
        if not step.decide(*moved, unsigned, numbers, self.lazy, sums):
            step.restore(sums[-1], x, y)
            for before, after in zip(carried, side.state.carried, strict=True):
                step.restore(sums[-1], _rows(before), _rows(after))
        self.state = side.state
        self._last = side.state, side.weighed, y


def _rows(values: Tensor) -> NDArray[np.generic]:
    found: NDArray[np.generic] = values.numpy()
    return found if found.ndim == 2 else found.reshape(len(found), -1)

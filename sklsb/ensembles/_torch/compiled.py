"""The step of `Walkers` on the CPU: torch evaluates the model, and kernels do the rest."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb._kernels.first_order import learning, step
from sklsb._kernels.numeric import Table
from sklsb.ensembles._torch.walkers import State, Walkers
from sklsb.targets.base import Target


class CompiledWalkers(Walkers):
    """Walkers whose state and scratch are in memory that torch and NumPy share."""

    def __init__(
        self, target: Target, value_index: NDArray[np.int64], device: str | None, dtype: torch.dtype
    ):
        super().__init__(target, value_index, device, dtype)
        excluded = self.moves.excluded
        self._excluded = np.zeros(0, dtype=np.bool_) if excluded is None else excluded.numpy()
        self._scratch(len(value_index))
        two = self.moves.n_per_site == 1
        self._n_values = np.asarray(target.cardinalities[: 0 if two else None], dtype=np.int64)

    def put(self, value_index: NDArray[np.int64]) -> None:
        super().put(value_index)
        carried = tuple(part.contiguous() for part in self.state.carried)
        self.state = self.state._replace(carried=carried)
        self._last: Any = (None, None)  # the arrays of the last state

    def part(self, span: slice) -> "CompiledWalkers":
        """Return some of the chains, which another thread may move until `join`."""
        made = copy.copy(self)
        x, carried, *rest = self.state
        mine = tuple(one[span] for one in carried)
        made.state = State(x[span], mine, *(one[span] for one in rest))
        made.moved, made.acceptance = self.moved[span], self.acceptance[span]
        weighing = self._weighing
        logs = weighing.scratch.logs
        made._weighing = weighing._replace(scratch=step.Scratch.of(logs.size, logs.dtype))
        made._scratch(len(made))
        return made

    def join(self, parts: "list[CompiledWalkers]") -> None:
        """Take the states of all parts."""
        columns = zip(*(part.state for part in parts), strict=True)
        x, carried, *rest = (list(column) for column in columns)
        own = tuple(torch.cat(ones) for ones in zip(*carried, strict=True))
        self.state = State(torch.cat(x), own, *(torch.cat(ones) for ones in rest))

    def _scratch(self, n: int) -> None:
        """Allocate what a step of n chains writes to."""
        none = np.empty((0, 0), dtype=np.int64)
        self._drawn = step.Drawn(none, none, none, np.empty((0, 0)), none.ravel())
        self._accepts = np.empty(n, dtype=np.bool_)
        self._sums = self.acceptance.numpy(), self.moved.numpy()

    def weigh(self, table: Table) -> None:
        ratios = self.state.ratios.numpy()
        self._weighing = step.Weighing.of(table, self._excluded, ratios.shape[1], ratios.dtype)
        super().weigh(table)

    def _weights(self, ratios: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return nothing, the sums of the weights by blocks, and their logs; see `Weighed`."""
        found = self._room(ratios)
        if ratios.shape[1]:
            step.weigh(self._weighing, found)
        return ratios[:, :0], torch.from_numpy(found.cumulative), torch.from_numpy(found.logs)

    @staticmethod
    def _room(ratios: Tensor) -> step.Weighed:
        n, n_moves = ratios.shape
        cumulative = np.empty((n, -(-n_moves // step.BLOCK)))
        return step.Weighed(ratios.numpy(), cumulative, np.zeros((n, 2)))

    def _here(self) -> step.Weighed:
        state, found = self._last
        if state is not self.state:
            here = self.state
            arrays = (part.numpy() for part in (here.ratios, here.cumulative, here.log_total))
            found = step.Weighed(*arrays)
        return found

    def select(self, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """Draw single moves by uniforms, (n_chains, k)."""
        out = np.empty(tuple(u.shape), dtype=np.int64)
        step.select(self._weighing, self._here(), np.ascontiguousarray(u), out)
        return torch.from_numpy(out), None

    def sampled(
        self,
        moves: Tensor,
        back: Tensor,
        ratios: Tensor,
        log_ratio: Tensor,
        eta: float,
        log_omega: NDArray[np.float64],
    ) -> tuple[tuple[float, float], NDArray[np.float64]]:
        """Return the sum of a sampled objective over chains, by eta, and by the knots."""
        there = self._room(ratios.contiguous())
        step.weigh(self._weighing, there)
        gradient = np.zeros(self._weighing.table.value.size)
        where = moves.contiguous().numpy(), back.reshape(-1).numpy(), log_ratio.numpy()
        given = self._weighing, eta, log_omega, self._here(), there
        return learning.sampled(*given, *where, gradient), gradient

    def numbers(self, given: NDArray[np.float64], n_flips: int) -> Iterator[NDArray[np.float64]]:
        if n_flips > 1 and given.shape[2] == 2:
            pairs, given = np.ascontiguousarray(given), np.empty((*given.shape[:2], n_flips + 2))
            step.expand(pairs, given)
        yield from np.ascontiguousarray(given.transpose(1, 0, 2))

    def step(self, numbers: NDArray[np.float64]) -> None:
        if not self.moves.existing.size:
            return
        state, model, weighing, here = self.state, self.model, self._weighing, self._here()
        n, n_flips = len(numbers), max(1, numbers.shape[1] - 2)
        x = state.x.numpy()
        y = np.empty_like(x)
        if self._drawn.move.shape != (n, n_flips):
            move, site, back = np.empty((3, n, n_flips), dtype=np.int64)
            weight, active = np.empty((n, n_flips)), np.empty(n, dtype=np.int64)
            self._drawn = step.Drawn(move, site, back, weight, active)
            self._sites = torch.from_numpy(site)
        drawn, accepts = self._drawn, self._accepts
        step.propose(weighing, here, x, numbers, self.lazy, self._n_values, y, drawn)
        there = torch.from_numpy(y)
        carried, log_ratio = model.move(state.x, state.carried, there, self._sites)
        ratios = model.first_order(there, carried).contiguous()
        new = self._room(ratios)
        sums = *self._sums, accepts
        given = weighing, drawn, log_ratio.numpy(), here, new, numbers, self.lazy, sums
        if not step.decide(*given):
            step.restore(accepts, x, y)
            carried = tuple(part.contiguous() for part in carried)
            for before, after in zip(state.carried, carried, strict=True):
                step.restore(accepts, _rows(before), _rows(after))
        sums_there = torch.from_numpy(new.cumulative), torch.from_numpy(new.logs)
        self.state = State(there, carried, ratios, state.log_weight, *sums_there)
        self._last = self.state, new


def _rows(values: Tensor) -> NDArray[np.generic]:
    found: NDArray[np.generic] = values.numpy()
    return found if found.ndim == 2 else found.reshape(len(found), -1)

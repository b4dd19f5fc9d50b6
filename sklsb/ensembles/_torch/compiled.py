"""The step of `Walkers` on the CPU: torch evaluates the model, and kernels do the rest."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb._kernels.first_order import step
from sklsb._kernels.numeric import Table
from sklsb.ensembles._torch.walkers import State, Walkers
from sklsb.targets.base import Target


class CompiledWalkers(Walkers):
    """Walkers whose state and scratch are in memory that torch and NumPy share."""

    def __init__(
        self, target: Target, value_index: NDArray[np.int64], device: str | None, dtype: torch.dtype
    ):
        super().__init__(target, value_index, device, dtype)
        carried = tuple(part.contiguous() for part in self.state.carried)
        self.state = self.state._replace(carried=carried, ratios=self.state.ratios.contiguous())
        excluded = self.moves.excluded
        self._excluded = np.zeros(0, dtype=np.bool_) if excluded is None else excluded.numpy()
        two = self.moves.n_per_site == 1
        self._n_values = np.asarray(target.cardinalities[: 0 if two else None], dtype=np.int64)

    def weigh(self, table: Table) -> None:
        flat = not table.value.any() and not table.slope.any()
        scratch = np.empty(self.state.ratios.shape[1])
        self._weighing = step.Weighing(table, self._excluded, flat, scratch)
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
        state = self.state
        return step.Weighed(state.ratios.numpy(), state.cumulative.numpy(), state.log_total.numpy())

    def select(self, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """Draw single moves by uniforms, (n_chains, k)."""
        out = np.empty(tuple(u.shape), dtype=np.int64)
        step.select(self._weighing, self._here(), np.ascontiguousarray(u), out)
        return torch.from_numpy(out), None

    def numbers(self, pairs: Tensor, n_flips: int) -> Tensor:
        if n_flips == 1:
            return pairs
        out = np.empty((*pairs.shape[:2], n_flips + 2))
        step.expand(np.ascontiguousarray(pairs), out)
        return torch.from_numpy(out)

    def step(self, numbers: Tensor) -> None:
        if not self.moves.existing.size:
            return
        state, model, u = self.state, self.model, np.ascontiguousarray(numbers)
        n, n_flips, weighing, here = len(u), max(1, u.shape[1] - 2), self._weighing, self._here()
        x = state.x.numpy()
        y = np.empty_like(x)
        move, site, back = np.empty((3, n, n_flips), dtype=np.int64)
        drawn = step.Drawn(move, site, back, np.empty(n, dtype=np.int64))
        step.propose(weighing, here, x, u, self.lazy, self._n_values, y, drawn)
        there = torch.from_numpy(y)
        carried, log_ratio = model.move(state.x, state.carried, there, torch.from_numpy(site))
        carried = tuple(part.contiguous() for part in carried)
        ratios = model.first_order(there, carried).contiguous()
        new, accepts = self._room(ratios), np.empty(n, dtype=np.bool_)
        sums = self.acceptance.numpy(), self.moved.numpy(), accepts
        step.decide(weighing, drawn, log_ratio.numpy(), here, new, u, self.lazy, sums)
        if not accepts.all():
            for before, after in zip((state.x, *state.carried), (there, *carried), strict=True):
                step.restore(accepts, _bytes(before), _bytes(after))
        sums_there = torch.from_numpy(new.cumulative), torch.from_numpy(new.logs)
        self.state = State(there, carried, ratios, state.log_weight, *sums_there)


def _bytes(values: Tensor) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = values.view(torch.uint8).view(len(values), -1).numpy()
    return found

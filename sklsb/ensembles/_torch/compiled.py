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
        excluded = self.moves.excluded
        self._excluded = np.zeros(0, dtype=np.bool_) if excluded is None else excluded.numpy()
        two = self.moves.n_per_site == 1
        self._n_values = np.asarray(target.cardinalities[: 0 if two else None], dtype=np.int64)

    def weigh(self, table: Table) -> None:
        flat = not table.value.any() and not table.slope.any()
        self._weighing = step.Weighing(table, self._excluded, flat)
        super().weigh(table)

    def _weights(self, ratios: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = self._weighed(ratios)
        if ratios.shape[1]:
            step.weigh(self._weighing, found)
        log_total, cumulative = (torch.from_numpy(part) for part in (found[2], found[1]))
        return ratios[:, :0], cumulative, log_total

    @staticmethod
    def _weighed(ratios: Tensor) -> step.Weighed:
        """Return room for the weights of moves with these log-ratios."""
        shape = tuple(ratios.shape)
        return step.Weighed(ratios.numpy(), np.empty(shape), np.empty((shape[0], 1)))

    def select(self, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """Draw single moves by uniforms, (n_chains, k)."""
        out = np.empty(tuple(u.shape), dtype=np.int64)
        step.select(self.state.cumulative.numpy(), np.ascontiguousarray(u), out)
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
        n, n_flips = len(u), max(1, u.shape[1] - 2)
        x, cumulative = state.x.numpy(), state.cumulative.numpy()
        y = np.empty_like(x)
        move, site, back = np.empty((3, n, n_flips), dtype=np.int64)
        drawn = step.Drawn(move, site, back, np.empty(n, dtype=np.int64))
        step.propose(x, cumulative, u, self.lazy, self._n_values, y, drawn)
        there = torch.from_numpy(y)
        carried, log_ratio = model.move(state.x, state.carried, there, torch.from_numpy(site))
        ratios = model.first_order(there, carried).contiguous()
        new = self._weighed(ratios)
        here = step.Weighed(state.ratios.numpy(), cumulative, state.log_total.numpy())
        accepts = np.empty(n, dtype=np.bool_)
        sums = self.acceptance.numpy(), self.moved.numpy(), accepts
        step.decide(self._weighing, drawn, log_ratio.numpy(), here, new, u, self.lazy, sums)
        if not accepts.all():
            step.restore(accepts, x, y)
            for before, after in zip(state.carried, carried, strict=True):
                rows = (part.view(n, -1).numpy() for part in (before, after))
                step.restore(accepts, *rows)
        weights = torch.from_numpy(new.cumulative), torch.from_numpy(new.log_total)
        self.state = State(there, carried, ratios, state.log_weight, *weights)

"""Bennett's acceptance ratio: log Z as a sum over neighbouring levels, from running sums."""

import numpy as np

from sklsb._system.arrays import Array
from sklsb.diagnostics.batches import Batches, jackknife_error

_N_BATCHES = 32


class Bennett(Batches):
    """Sums of Bennett's ratio over the scans of some ladders, (n_ladders, n_batches, n_pairs, 2).

    For a pair of levels with log weights f(x) of states at the lower one, -f(y) of states at the
    upper one, and any shift,

        log Z' - log Z = shift + log(mean sigmoid(f(x) - shift) / mean sigmoid(shift - f(y))).

    The mean squared error is smallest if the shift, of shape (n_pairs,), is log Z' - log Z itself;
    it is guessed from other scans.
    """

    def __init__(self, n_ladders: int, shift: Array):
        super().__init__((n_ladders, _N_BATCHES, shift.size, 2), size=2)
        self.shift = shift

    @property
    def room(self) -> int:
        """Scans until the batch is full."""
        return self.size - self.n_draws % self.size

    def add(self, n_scans: int, sums: Array) -> None:
        """Count scans already added to ``sums``, which are taken and reset when the batch ends."""
        if n_scans == self.room:
            self.sums[:, self.n_draws // self.size] = sums
            sums[:] = 0.0
        self.count(n_scans)

    def total(self, sums: Array) -> Array:
        """Return the sums of all batches and of the present one, shape (n_ladders, n_pairs, 2)."""
        return np.asarray(self.sums.sum(axis=1) + sums)

    def differences(self, sums: Array) -> Array:
        """Log Z' - log Z of each pair, from sums of shape (..., n_pairs, 2)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Array = self.shift + np.log(sums[..., 0]) - np.log(sums[..., 1])
        return found

    def log_ratio(self, sums: Array) -> tuple[float, float]:
        """Return log Z of the last level minus that of the first, and its standard error.

        The error is the largest of three jackknifes, over ladders, batches, and groups of four
        batches: ladders are independent but may be few, batches are many but not independent, and
        longer ones less dependent.
        """
        whole = self.total(sums)
        value = float(self.differences(whole.sum(axis=0)).sum())
        blocks = [whole]
        for longer in (1, 4):
            n = self.full.shape[1] // longer
            if n:
                batches = np.moveaxis(self.full[:, : n * longer], 1, 0)
                joined = batches.reshape(n, longer, *whole.shape).sum(axis=1)
                blocks.append(joined.reshape(-1, *whole.shape[1:]))
        without = [self.differences(b.sum(axis=0) - b).sum(axis=1) for b in blocks if len(b) > 1]
        errors = [jackknife_error(w) if np.isfinite(w).all() else np.inf for w in without]
        return value, max(errors, default=np.nan)

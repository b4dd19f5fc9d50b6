"""Bennett's acceptance ratio: log Z as a sum over neighbouring levels, from running sums."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# At this number batches are joined in pairs.
_MOST_BATCHES = 32


class Batches:
    """Sums of Bennett's ratio over batches of scans, which are joined as they become many.

    For a pair of levels with log weights f(x) of states at the lower one, -f(y) of states at the
    upper one, and any shift,

        log Z' - log Z = shift + log(mean sigmoid(f(x) - shift) / mean sigmoid(shift - f(y))).

    The mean squared error is smallest if the shift, of shape (n_pairs,), is log Z' - log Z itself;
    it is guessed from other scans.
    """

    def __init__(self, shift: Array):
        self.shift = shift
        self.size, self.done = 2, 0  # scans of a batch, and of the present one so far
        self.finished: list[Array] = []  # (n_ladders, n_pairs, 2)

    @property
    def room(self) -> int:
        """Scans until the batch is full."""
        return self.size - self.done

    @property
    def n_scans(self) -> int:
        """Scans counted."""
        return len(self.finished) * self.size + self.done

    def add(self, n_scans: int, sums: Array) -> None:
        """Count scans already added to ``sums``, which are taken and reset when the batch ends."""
        self.done += n_scans
        if self.done < self.size:
            return
        self.finished.append(sums.copy())
        sums[:] = 0.0
        self.done = 0
        if len(self.finished) == _MOST_BATCHES:
            pairs = zip(self.finished[::2], self.finished[1::2], strict=True)
            self.finished = [first + second for first, second in pairs]
            self.size *= 2

    def total(self, sums: Array) -> Array:
        """Return the sums of all batches and of the present one, shape (n_ladders, n_pairs, 2)."""
        return np.sum([*self.finished, sums], axis=0)

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
            n = len(self.finished) // longer
            if n:
                batches = np.array(self.finished[: n * longer])
                joined = batches.reshape(n, longer, *whole.shape).sum(axis=1)
                blocks.append(joined.reshape(-1, *whole.shape[1:]))
        found = [self._jackknife(one) for one in blocks if len(one) > 1]
        return value, max(found, default=np.nan)

    def _jackknife(self, blocks: Array) -> float:
        n = len(blocks)
        without = self.differences(blocks.sum(axis=0) - blocks).sum(axis=1)
        if not np.isfinite(without).all():
            return float("inf")
        return float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))

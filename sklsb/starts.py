"""Where chains start: at both ends of the temperature.

A uniform draw is a state at infinite temperature; one that walks uphill from many draws lead to is
at zero. Chains that all start at one end may agree and be wrong together: from uniform draws nearly
all ways lead into the widest mode.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb.streams import Streams
from sklsb.targets.base import States, Target

__all__ = ["INITS", "Starts", "draw_starts"]

INITS = ("both", "uniform", "quenched")
# States of which all neighbours may be valued for one quenched state: at least as many as there are
# sweeps in the shortest burn-in, and at most.
FEWEST_LOOKS, MOST_LOOKS = 5, 128
# What one walk takes, about.
_LOOKS = 6
# Log-ratios held at once.
_MOST_HELD = 1 << 21
_EPS = float(np.finfo(np.float64).eps)

Array = NDArray[np.float64]


class Starts(NamedTuple):
    """States to start from, and the evaluations that finding them took, by chain."""

    x: States
    evaluations: NDArray[np.int64]


def draw_starts(
    target: Target, init: str, streams: Streams, looks: int = 0, first_order: bool = False
) -> Starts:
    """Draw the states that chains start from, each from its stream named "start".

    Parameters
    ----------
    target : Target
        What is sampled.
    init : {"both", "uniform", "quenched"}
        "both": of the chains 0, 1, 2, ... every second one is quenched, beginning with chain 1. The
        first that is quenched starts at the most probable state that many walks uphill lead to,
        the second where the first of them ends, and so on in turn.
    streams : Streams
        Of the chains.
    looks : int, default=0
        States of which all neighbours may be valued for one quenched state, from 5 to 128.
    first_order : bool, default=False
        Whether walks go by first-order log-ratios, of which a look takes one evaluation.

    Returns
    -------
    Starts
        States of shape (n_chains, n_sites), and evaluations of shape (n_chains,).
    """
    looks = min(max(looks, FEWEST_LOOKS), MOST_LOOKS)
    x, evaluations = [], np.zeros(len(streams), dtype=np.int64)
    n_quenched = 0
    for c, rng in enumerate(streams.of("start")):
        if init == "quenched" or (init == "both" and c % 2):
            search = _Search(target, looks, first_order)
            x.append(search.run(rng, first=n_quenched % 2 == 1))
            n_quenched += 1
            evaluations[c] = search.evaluations
        else:
            x.append(target.random_state(rng))
    return Starts(np.array(x).reshape(len(streams), target.n_sites), evaluations)


class _Search:
    """Walks uphill from many states."""

    def __init__(self, target: Target, looks: int, first_order: bool):
        self.target = target
        self.looks = looks  # that are left
        self.cost = 1 if first_order else int((target.cardinalities - 1).sum())
        # A gradient of a machine of two layers takes as long as a single log-ratio.
        self.first_order = first_order or getattr(target, "layers", None) is not None
        self.values = np.asarray(target.values, dtype=target.dtype)
        k = target.cardinalities
        self.n_moves = int((k - 1).sum())
        self.sites = np.flatnonzero(k > 1)
        self.first = (np.cumsum(k - 1) - (k - 1))[self.sites]  # move of each of them
        self.evaluations = 0

    def run(self, rng: np.random.Generator, first: bool) -> States:
        """Return the most probable state found, or where the first walk ends."""
        target = self.target
        n = 0 if first else min(self.looks // (3 * _LOOKS), _MOST_HELD // max(1, 2 * self.n_moves))
        drawn = [target.random_state(rng) for _ in range(max(1, n))]
        drawn += [target.scattered_state(rng) for _ in range(n)]
        x, log_prob = self._climb(np.stack(drawn))
        if n and self.looks >= _LOOKS:  # from the other side of the places that were found
            others, further = self._climb(self._opposite(np.unique(x, axis=0)))
            x, log_prob = np.concatenate([x, others]), np.append(log_prob, further)
        best: States = x[int(log_prob.argmax())]
        return best

    def _climb(self, x: States) -> tuple[States, Array]:
        """Go uphill from some states, as far as looks are left; return where to, and log p there.

        All variables that lead up by themselves are changed together, and only the best half of
        them, a quarter, ... where that does not lead up.
        """
        log_prob = self._log_prob(x)
        x, log_prob = x[np.isfinite(log_prob)], log_prob[np.isfinite(log_prob)]
        most = np.full(len(x), self.sites.size)
        walking = np.arange(len(x))
        while walking.size and walking.size <= self.looks and self.sites.size:
            self.looks -= walking.size
            gain, value = self._best_moves(x[walking])
            order = np.argsort(-gain, axis=1, kind="stable")
            n_up = (gain > _noise(log_prob[walking])[:, None]).sum(axis=1)
            n = np.minimum(n_up, most[walking])
            higher = np.zeros(walking.size, dtype=np.bool_)
            while (tried := np.flatnonzero(~higher & (n > 0))).size:
                trial = x[walking[tried]]
                changed = np.arange(self.sites.size) < n[tried, None]
                row, rank = np.nonzero(changed)
                at = order[tried][row, rank]
                trial[row, self.sites[at]] = value[tried[row], at]
                reached, before = self._log_prob(trial), log_prob[walking[tried]]
                up = reached > before + _noise(before)
                x[walking[tried[up]]] = trial[up]
                log_prob[walking[tried[up]]] = reached[up]
                most[walking[tried[up]]] = 2 * n[tried[up]]
                higher[tried[up]] = True
                n[tried[~up]] //= 2
            walking = walking[higher]
        return x, log_prob

    def _log_prob(self, x: States) -> Array:
        self.evaluations += len(x)
        return self.target.log_prob(x)

    def _best_moves(self, x: States) -> tuple[Array, States]:
        """Largest log-ratio of a change of each variable, and the value that it leads to."""
        self.evaluations += len(x) * self.cost
        by_gradient = self.first_order
        ratios = (self.target.first_order_ratios if by_gradient else self.target.log_ratios)(x)
        gain = np.maximum.reduceat(ratios, self.first, axis=1)
        size = np.diff(self.first, append=self.n_moves)
        is_best = ratios == np.repeat(gain, size, axis=1)
        moves = np.where(is_best, np.arange(self.n_moves), self.n_moves)
        new = np.minimum.reduceat(moves, self.first, axis=1) - self.first
        new += new >= np.searchsorted(self.values, x[:, self.sites])
        return gain, self.values[new]

    def _opposite(self, x: States) -> States:
        """Return states in which all variables that may have others have other values."""
        k = self.target.cardinalities
        index = (np.searchsorted(self.values, x) + np.maximum(1, k // 2)) % k
        return np.where(self.target.n_possible > 1, self.values[index], x)


def _noise(log_prob: Array) -> Array:
    """Differences of log p that may be rounding."""
    return 64 * _EPS * (1.0 + np.abs(log_prob))

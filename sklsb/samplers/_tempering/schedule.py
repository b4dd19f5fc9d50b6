"""The temperatures: adapted in rounds that double, so that all swaps are refused equally often."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from sklsb._system.arrays import Array
from sklsb._system.progress import tick
from sklsb.samplers._tempering.bennett import Bennett
from sklsb.samplers._tempering.ladders import Ladders

FIRST_REPLICAS, FEWEST_REPLICAS, MOST_REPLICAS = 8, 3, 64
FIRST_ROUND = 16
# The schedule is good if the barrier changes by less than this share, and no pair of levels is
# refused more often than this.
_STEADY, _OFTEN = 0.05, 0.65
# Least number of rounds, and of round trips per ladder in the last one.
_FEWEST_ROUNDS, _FEWEST_TRIPS = 4, 4
# Least rejection rate to count for a pair of levels: one that is never refused takes room too.
_FEWEST_REJECTED = 1e-3
ENDS = np.array([0.0, 1.0])

Tell = Callable[[dict[str, Any]], None]
Between = Callable[[int], None]


def equal_steps(beta: Array, rejected: Array, n: int, kept: Array = ENDS) -> Array:
    """Return n betas, from exactly 0 to exactly 1, with equal rejection rates between neighbours.

    ``rejected`` are the rates measured between neighbours of ``beta``. Those ``kept`` are among
    these and among the new ones; then the rates are equal between two of them.
    """
    barrier = np.concatenate([[0.0], np.cumsum(np.clip(rejected, _FEWEST_REJECTED, 1.0))])
    ends = barrier[np.searchsorted(beta, kept)]
    parts, steps = np.diff(ends), np.ones(kept.size - 1, np.int64)
    for _ in range(n - kept.size):
        steps[(parts / steps).argmax()] += 1
    spans = zip(ends[:-1], ends[1:], steps, strict=True)
    at = [np.linspace(a, b, k, endpoint=False) for a, b, k in spans]
    found: Array = PchipInterpolator(barrier, beta)(np.concatenate([*at, ends[-1:]]))
    found[np.concatenate([[0], np.cumsum(steps)])] = kept
    smallest = np.finfo(np.float64).eps
    for k in range(1, n - 1):  # rounding may leave no step if the barrier is flat
        found[k] = max(found[k], found[k - 1] * (1 + 4 * smallest) + 1e-300)
    for k in range(n - 2, 0, -1):
        found[k] = min(found[k], found[k + 1] * (1 - 4 * smallest))
    return found


def run_scans(
    ladders: Ladders, n_scans: int, between: Between = lambda made: None, made: int = 0
) -> None:
    """Make scans without draws, up to ``n_scans``; between pieces of them call between(made)."""
    for segment in ladders.segments(n_scans - made):
        made += segment.n_transitions
        tick()
        between(made)


class Tuning:
    """Ladders whose temperatures are adapted until they are good, or most scans are used up.

    Then they are frozen. `run` goes on from wherever it was between two scans.

    ``n_replicas`` None finds the number of levels; ``n_burn_in`` is the largest number of scans of
    all rounds and of the last part. Betas ``kept``, with both ends, are levels throughout. Where
    levels are ``separated``, hardly anything leads from the first to the last.
    """

    def __init__(
        self,
        ladders: Ladders,
        n_replicas: int | None,
        n_burn_in: int,
        kept: Array = ENDS,
        separated: bool = False,
    ) -> None:
        n = n_replicas or max(ladders.beta.size, kept.size)
        if ladders.beta.size != n or not np.isin(kept, ladders.beta).all():
            ladders = ladders.at(equal_steps(kept, np.diff(kept), n, kept))
        self.ladders, self.n_replicas = ladders, n_replicas
        self.n_burn_in, self.kept, self.separated = n_burn_in, kept, separated
        self.rounds: list[dict[str, Any]] = []  # their results
        self.spent, self.size, self.last = 0, FIRST_ROUND, math.inf
        self.capped = False  # whether more replicas are needed than allowed
        self.good = self.frozen = False
        # Parts of the last stretch that are done, and scans of the present one, or of a round.
        self.part = self.made = 0

    def run(self, tell: Tell, between: Callable[[], None]) -> None:
        """Make all scans; ``tell`` is called with the results of each round."""
        # The last part has as many scans as the last round.
        while not self.good and self.spent + 2 * self.size <= self.n_burn_in:
            self._scan(self.size, between)
            self._adapt(tell)
        if not self.frozen:
            self.settle(self.size // 2 if self.rounds else self.n_burn_in, between)
            self.rounds.append(_shown(self.ladders, int(self.ladders.n_scans)))
            tell(self.rounds[-1])
            self.frozen = True

    def settle(self, n_scans: int, between: Callable[[], None]) -> None:
        """Let replicas spread, guess log Z from some of the scans, and then count round trips."""
        first, second = n_scans // 8, n_scans // 4
        for n in (first, second, n_scans - first - second)[self.part :]:
            self._scan(n, between)
            self.part += 1
            if self.part < 3:
                self.ladders.batches = Bennett(len(self.ladders), self.ladders.guess())

    def _scan(self, n_scans: int, between: Callable[[], None]) -> None:
        """Make the scans that are left of a round or part, all of which count."""

        def at(made: int) -> None:
            self.made = made
            between()

        if not self.made:
            self.ladders.forget_swaps()
        run_scans(self.ladders, n_scans, at, self.made)
        self.made = 0

    def _adapt(self, tell: Tell) -> None:
        """Choose temperatures after a round."""
        ladders, kept, size = self.ladders, self.kept, self.size
        refused = ladders.rejections
        barrier = float(refused.sum())
        self.rounds.append(_shown(ladders, size))
        tell(self.rounds[-1])
        parts = np.add.reduceat(refused, np.searchsorted(ladders.beta, kept[:-1]))
        wanted = max(FEWEST_REPLICAS, int(np.ceil(2.0 * parts).sum()) + 1)
        most = max(MOST_REPLICAS, kept.size)
        self.capped = self.n_replicas is None and wanted > most
        n = self.n_replicas or min(wanted, most, 2 * ladders.beta.size)
        steady = abs(barrier - self.last) < _STEADY * barrier or barrier < _STEADY
        # Until replicas have made round trips, states depend on where they started.
        around = ladders.trips.sum() >= _FEWEST_TRIPS * len(ladders)
        good = steady and refused.max(initial=0.0) < _OFTEN
        self.good = len(self.rounds) >= _FEWEST_ROUNDS and bool(good and around)
        self.ladders = ladders.at(equal_steps(ladders.beta, refused, n, kept))
        self.spent, self.last, self.size = self.spent + size, barrier, 2 * size


def _shown(ladders: Ladders, n_scans: int) -> dict[str, Any]:
    refused = ladders.rejections
    sums = ladders.batches.total(ladders.ladder.bennett)
    log_z = float(ladders.batches.differences(sums.sum(axis=0)).sum())
    return {
        "scans": n_scans,
        "n_replicas": ladders.beta.size,
        "round_trips": int(ladders.trips.sum()),
        "barrier": float(refused.sum()),
        "log_z": log_z + ladders.log_z_before,
        "least_accepted": float(1.0 - refused.max(initial=0.0)),
        "mean_accepted": float(1.0 - refused.mean()) if refused.size else 1.0,
    }

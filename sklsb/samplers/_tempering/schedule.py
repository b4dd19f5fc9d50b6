"""The temperatures: adapted in rounds that double, so that all swaps are refused equally often."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from sklsb.samplers._tempering.bennett import Batches
from sklsb.samplers._tempering.ladders import Ladders

Array = NDArray[np.float64]
FIRST_REPLICAS, FEWEST_REPLICAS, MOST_REPLICAS = 8, 3, 64
FIRST_ROUND = 16
# The schedule is good enough if the barrier changes by less, and no swap is refused more often.
_STEADY, _OFTEN = 0.05, 0.65
# Rounds at least, and round trips of each ladder in the last one.
_FEWEST_ROUNDS, _FEWEST_TRIPS = 4, 4
# Rejection of a pair of levels, at least: a pair that is never refused takes some room too.
_FEWEST_REJECTED = 1e-3

Tell = Callable[[dict[str, Any]], None]


class Tuned(NamedTuple):
    """Ladders whose temperatures stay, and what the rounds before showed."""

    ladders: Ladders
    barrier: float
    rounds: list[dict[str, Any]]
    capped: bool  # whether more replicas were wanted than may be
    work: int  # evaluations of the last part, in which the round trips were counted


def rejections(ladders: Ladders) -> Array:
    """Share of the swaps of each pair of levels that were refused, over all ladders."""
    return rejection_rates(ladders.ladder.rejected, ladders.ladder.tried)


def rejection_rates(rejected: Array, tried: NDArray[np.int64]) -> Array:
    """Share of the swaps that were refused, from counts of shape (n_ladders, n_pairs)."""
    found: Array = rejected.sum(axis=0) / np.maximum(1, tried.sum(axis=0))
    return found


def equal_steps(beta: Array, rejected: Array, n: int) -> Array:
    """Return n betas between which swaps should be refused equally often.

    Parameters
    ----------
    beta : ndarray of shape (n_levels,)
        From 0 to 1.
    rejected : ndarray of shape (n_levels - 1,)
        How often swaps between neighbours were refused there.
    n : int
        Levels that are wanted.

    Returns
    -------
    ndarray of shape (n,)
        Increasing, from exactly 0 to exactly 1.
    """
    steps = np.clip(rejected, _FEWEST_REJECTED, 1.0)
    barrier = np.concatenate([[0.0], np.cumsum(steps)])
    found: Array = PchipInterpolator(barrier, beta)(np.linspace(0.0, barrier[-1], n))
    found[0], found[-1] = 0.0, 1.0
    smallest = np.finfo(np.float64).eps
    for k in range(1, n - 1):  # where the barrier is flat, rounding may leave no step
        found[k] = max(found[k], found[k - 1] * (1 + 4 * smallest) + 1e-300)
    for k in range(n - 2, 0, -1):
        found[k] = min(found[k], found[k + 1] * (1 - 4 * smallest))
    return found


def run_scans(ladders: Ladders, n_scans: int) -> None:
    """Make scans of which nothing is kept."""
    n, target = len(ladders), ladders.target
    nothing = np.empty((n, 0, target.n_sites), target.dtype), np.empty((n, 0, 2))
    ladders.run(n_scans, (0, 0, 0), *nothing)


def tune(ladders: Ladders, n_replicas: int | None, n_burn_in: int, tell: Tell) -> Tuned:
    """Adapt the temperatures until they are good, or all scans are spent, and freeze them.

    Parameters
    ----------
    ladders : Ladders
        At temperatures to begin with.
    n_replicas : int, optional
        Levels of a ladder; found out if not given.
    n_burn_in : int
        Scans at most, of all rounds and of the last part.
    tell : callable
        Given what each round showed.
    """
    if n_replicas is not None and ladders.beta.size != n_replicas:
        ladders = ladders.at(np.linspace(0.0, 1.0, n_replicas))
    rounds: list[dict[str, Any]] = []
    spent, size, last, capped, settled = 0, FIRST_ROUND, math.inf, False, False
    # The last part takes as many scans as the last round.
    while not settled and spent + 2 * size <= n_burn_in:
        ladders.forget_swaps()
        run_scans(ladders, size)
        spent += size
        refused = rejections(ladders)
        barrier = float(refused.sum())
        rounds.append(_shown(ladders, size, barrier, refused))
        tell(rounds[-1])
        wanted = max(FEWEST_REPLICAS, math.ceil(2.0 * barrier) + 1)
        capped = n_replicas is None and wanted > MOST_REPLICAS
        n = n_replicas or min(wanted, MOST_REPLICAS, 2 * ladders.beta.size)
        steady = abs(barrier - last) < _STEADY * barrier or barrier < _STEADY
        # As long as no replica has gone around, the states depend on where they started.
        around = ladders.trips.sum() >= _FEWEST_TRIPS * len(ladders)
        good = steady and refused.max(initial=0.0) < _OFTEN
        settled = len(rounds) >= _FEWEST_ROUNDS and good and bool(around)
        ladders = ladders.at(equal_steps(ladders.beta, refused, n))
        last, size = barrier, 2 * size
    work = settle(ladders, size // 2 if rounds else n_burn_in)
    refused = rejections(ladders)
    barrier = float(refused.sum())
    rounds.append(_shown(ladders, int(ladders.n_scans), barrier, refused))
    tell(rounds[-1])
    return Tuned(ladders, barrier, rounds, capped, work)


def settle(ladders: Ladders, n_scans: int) -> int:
    """Let replicas spread over the levels, guess log Z by some of the scans, and begin to count.

    Returns the evaluations that were made since then.
    """
    for part in (n_scans // 8, n_scans // 4):
        ladders.forget_swaps()
        run_scans(ladders, part)
        ladders.batches = Batches(ladders.guess())
    ladders.forget_swaps()
    before = int(ladders.chains.evaluations.sum())
    run_scans(ladders, n_scans - n_scans // 8 - n_scans // 4)
    return int(ladders.chains.evaluations.sum()) - before


def _shown(ladders: Ladders, n_scans: int, barrier: float, refused: Array) -> dict[str, Any]:
    sums = ladders.batches.total(ladders.ladder.bennett)
    log_z = float(ladders.batches.differences(sums.sum(axis=0)).sum())
    return {
        "scans": n_scans,
        "n_replicas": ladders.beta.size,
        "round_trips": int(ladders.trips.sum()),
        "barrier": barrier,
        "log_z": log_z + ladders.log_z_before,
        "least_accepted": float(1.0 - refused.max(initial=0.0)),
        "mean_accepted": float(1.0 - refused.mean()) if refused.size else 1.0,
    }

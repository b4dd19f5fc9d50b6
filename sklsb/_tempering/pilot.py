"""What crosses most often for its work: which explorer, and whether two copies exchange parts."""

from typing import Any, NamedTuple

import numpy as np

from sklsb._kernels.facts import Rule
from sklsb._tempering.ladders import Ladders
from sklsb._tempering.schedule import run_scans, settle
from sklsb.streams import Streams

# Scans in which the evaluations of one are found out, and of a trial at least.
_LOOK, _FEWEST_SCANS = 4, 64
# Of a trial so much is left out, in which replicas spread.
_SPREAD = 4

# Round trips of a trial that are enough; and the part of all scans that it may take for them.
_ENOUGH, _PART = 128, 4


class Margin(NamedTuple):
    """How much more often another one must cross: by a factor, and by so many standard errors."""

    factor: float
    errors: float


OF_EXPLORERS = Margin(1.1, 2.0)
# The work of exchanges is in no count of evaluations. They may gain much, and cost little.
OF_PAIRS = Margin(1.25, 1.0)


class Trial(NamedTuple):
    """What a candidate did."""

    round_trips: int
    evaluations: int
    n_scans: int

    @property
    def rate(self) -> float:
        """Round trips for an evaluation."""
        return self.round_trips / max(1, self.evaluations)

    @property
    def error(self) -> float:
        """Standard error of the rate."""
        return float(np.sqrt(max(1, self.round_trips))) / max(1, self.evaluations)


class Candidate(NamedTuple):
    """What may move replicas."""

    explorer: Rule
    n_copies: int


def with_candidate(ladders: Ladders, candidate: Candidate, streams: Streams) -> Ladders:
    """Return ladders at the same levels and states that move otherwise."""
    states = ladders.states
    if candidate.n_copies > ladders.n_copies:
        states = np.repeat(states, candidate.n_copies, axis=1)
    rest = ladders.n_jobs, ladders.product, ladders.core
    return Ladders(ladders.target, states, streams, candidate.explorer, ladders.beta, *rest)


def lengthened(ladders: Ladders, first: Trial, n_burn_in: int) -> Trial:
    """Make more scans until round trips are enough to compare, or the share of scans is spent."""
    n, before = first.n_scans, int(ladders.chains.evaluations.sum())
    while ladders.ladder.trips.sum() < _ENOUGH and 2 * n <= n_burn_in // _PART:
        run_scans(ladders, n)
        n *= 2
    spent = int(ladders.chains.evaluations.sum()) - before
    return Trial(int(ladders.ladder.trips.sum()), first.evaluations + spent, n)


def compare(
    ladders: Ladders,
    first: Trial,
    others: dict[str, Candidate],
    place: int = 0,
    margin: Margin = OF_EXPLORERS,
) -> tuple[Ladders, str | None, dict[str, Trial]]:
    """Try others with as many evaluations of each copy; return the ladders that go on.

    Parameters
    ----------
    ladders : Ladders
        At temperatures that stay.
    first : Trial
        What these did.
    others : dict of str to Candidate
        By name.
    place : int, default=0
        Trials made before, so that none has the numbers of another.
    margin : Margin
        How much more often another one must cross.

    Returns
    -------
    Ladders, str or None, dict of str to Trial
        These ladders, or better ones; their name; what all others did.
    """
    trials: dict[str, Trial] = {}
    best: tuple[Trial, str | None] = first, None
    for number, (name, candidate) in enumerate(others.items(), place):
        streams = Streams(ladders.streams.of("pilot", number))
        tried = with_candidate(ladders, candidate, streams)
        tried._pool = ladders._pool
        # Two copies take as many scans each: round trips need time to begin.
        work = first.evaluations * tried.n_copies / ladders.n_copies
        trials[name] = found = _try(tried, work)
        ladders.add_evaluations(tried.chains.evaluations[:, 0])
        error = float(np.hypot(found.error, best[0].error))
        if found.rate > max(margin.factor * best[0].rate, best[0].rate + margin.errors * error):
            best = found, name
    if best[1] is None:
        return ladders, None, trials
    made = with_candidate(ladders, others[best[1]], ladders.streams)
    made.begin_like(ladders)
    settle(made, best[0].n_scans)
    return made, best[1], trials


def _try(ladders: Ladders, work: float) -> Trial:
    def spent() -> int:
        return int(ladders.chains.evaluations.sum())

    run_scans(ladders, _LOOK)
    n = int(work * _LOOK / max(1, spent()))
    if n < _FEWEST_SCANS:
        return Trial(0, spent(), _LOOK)
    run_scans(ladders, n // _SPREAD)
    ladders.forget_swaps()
    before = spent()
    run_scans(ladders, n - n // _SPREAD)
    return Trial(int(ladders.ladder.trips.sum()), spent() - before, n)


def shown(trials: dict[str, Trial]) -> dict[str, Any]:
    """Variables of a dataset of trials, over the dim explorer."""
    rows = list(trials.values())
    return {
        "round_trips": ("explorer", [row.round_trips for row in rows]),
        "evaluations": ("explorer", [row.evaluations for row in rows]),
    }

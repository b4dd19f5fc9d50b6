"""Which explorer crosses most often for its work."""

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
# Another explorer must cross more often by this factor, and by more than chance: two errors.
_BETTER, _ERRORS = 1.1, 2.0


class Trial(NamedTuple):
    """What an explorer did."""

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


def with_explorer(ladders: Ladders, explorer: Rule, streams: Streams) -> Ladders:
    """Return ladders at the same levels and states that another rule moves."""
    states, rest = ladders.states, (ladders.n_jobs, ladders.product, ladders.core)
    return Ladders(ladders.target, states, streams, explorer, ladders.beta, *rest)


def compare(
    ladders: Ladders, first: Trial, others: dict[str, Rule]
) -> tuple[Ladders, str | None, dict[str, Trial]]:
    """Try other explorers with as many evaluations; return the ladders that go on.

    Parameters
    ----------
    ladders : Ladders
        At temperatures that stay.
    first : Trial
        What their explorer did.
    others : dict of str to rule
        By name.

    Returns
    -------
    Ladders, str or None, dict of str to Trial
        These ladders, or others with a better explorer; its name; what all others did.
    """
    trials: dict[str, Trial] = {}
    best: tuple[Trial, str | None] = first, None
    for place, (name, rule) in enumerate(others.items()):
        streams = Streams(ladders.streams.of("pilot", place))
        tried = with_explorer(ladders, rule, streams)
        tried._pool = ladders._pool
        trials[name] = found = _try(tried, first)
        ladders.add_evaluations(tried.chains.evaluations[:, 0])
        error = float(np.hypot(found.error, best[0].error))
        if found.rate > max(_BETTER * best[0].rate, best[0].rate + _ERRORS * error):
            best = found, name
    if best[1] is None:
        return ladders, None, trials
    made = with_explorer(ladders, others[best[1]], ladders.streams)
    made.begin_like(ladders)
    settle(made, best[0].n_scans)
    return made, best[1], trials


def _try(ladders: Ladders, first: Trial) -> Trial:
    def spent() -> int:
        return int(ladders.chains.evaluations.sum())

    run_scans(ladders, _LOOK)
    n = int(first.evaluations * _LOOK / max(1, spent()))
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

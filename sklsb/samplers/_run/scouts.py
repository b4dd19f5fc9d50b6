"""Scouts: copies of the chains that go on after the burn-in, to see whether single changes do."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from sklsb._kernels.elimination.buckets import LINEAR
from sklsb.diagnostics.measures import disagreement
from sklsb.diagnostics.tally import Tally, chance_of_difference, normal_scores, spread
from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.ensembles.protocol import MOST_NUMBERS
from sklsb.ensembles.streams import Streams
from sklsb.exact.elimination.blocks import Whole
from sklsb.exact.elimination.engine import MAX_MEMORY, Elimination, fits, n_entries, ordered
from sklsb.exact.elimination.order import is_affordable
from sklsb.exact.elimination.reduce import prune, strike
from sklsb.targets.base import Target

# Sweeps of the first and of the second try of the scouts, and of the first one where it is cut
# short; more are not worth it, and fewer tell nothing.
_SWEEPS, _FEWEST_SWEEPS = (16, 64), 8
# Transitions of a scout in the first try: at least, and at most where that is not more than a share
# of the evaluations so far. The second try is at least so many times longer.
_FEWEST_STEPS, _STEPS, _SHARE, _LONGER = 1 << 12, 1 << 13, 0.25, 4
# How many times the differences of most values may be those of chance, if chains are only slow, and
# those of an outlier that is seen rarely.
_MOST_SLOW, _MOST_RARE = 5.0, 32.0
# Looks at each scout, with which as many exact draws are compared, or at least some.
_LOOKS, _FEWEST_DRAWS = 128, 16
# Evaluations that looking at a model, and eliminating it, may take in any case; its variables.
_TO_LOOK, _TO_ELIMINATE, _MOST_CHECKED = 1 << 18, 1 << 19, 2000
# Log-ratios that take as long as an entry of a table, and as a variable or a factor in Python.
OF_ENTRY, _OF_FACTOR = 1.0 / 8.0, 512.0
# Differences that are as large by chance have at most this probability.
_CHANCE = 1e-3

Looks = tuple[NDArray[Any], NDArray[np.float64]]


def scout(ensemble: BalancedEnsemble) -> tuple[bool, str]:
    """Let copies of the chains go on; return whether they disagree, and what was found.

    What is only slow has longer the second time. Where exact draws are cheap the scouts are
    compared with some of these, since all chains may be in one mode. What it takes is counted.

    Parameters
    ----------
    ensemble : BalancedEnsemble
        Chains after the burn-in, with the frozen rule; they stay where they are.
    """
    target = ensemble.target
    budget = _SHARE * float(ensemble.chains.evaluations.sum())
    scouts = BalancedEnsemble(
        target, ensemble.chains.x, Streams(ensemble.streams.of("scout", 1)), ensemble.n_jobs
    )
    d = target.n_sites
    most = max(_STEPS, int(budget / max(1.0, ensemble.step_cost * len(ensemble))))
    first = max(_FEWEST_STEPS, min(most, _SWEEPS[0] * d))
    if not d:
        return False, "there are no variables"
    if first < _FEWEST_SWEEPS * d:
        return False, "there are too many variables to send scouts after so short a burn-in"
    exact: _Exact | None = None
    with scouts.threads():
        scouts.start(ensemble.rule)
        for steps in (first, max(_LONGER * first, _SWEEPS[1] * d)):
            seen = _look(scouts, steps)
            found = _disagree(target, seen, steps / d)
            if not found:
                exact = exact or _Exact(target, ensemble, budget)
                found = exact.differ(seen)
            if not found:
                break
    ensemble.chains.evaluations[:] += scouts.chains.evaluations
    ensemble.chains.evaluations[0] += exact.work if exact else 0
    if found:
        return True, f"copies of the chains disagree after the burn-in, {found}"
    return False, "copies of the chains agree after the burn-in"


def _look(scouts: BalancedEnsemble, steps: int) -> Looks:
    """Let the scouts go on; return states and log p at some places on the way."""
    n_chains, n_sites = scouts.chains.x.shape
    draws = np.empty((n_chains, _LOOKS, n_sites), dtype=scouts.target.dtype)
    stats = np.empty((n_chains, _LOOKS, 2))
    thin = -(-steps // _LOOKS) | 1  # odd: a flat chain is periodic
    most = max(1, MOST_NUMBERS // 2 // thin)
    for begin in range(0, _LOOKS, most):
        size = min(most, _LOOKS - begin)
        scouts.run(size * thin, (thin, 0, begin), draws, stats)
    return draws, stats[:, :, 0]


def _disagree(target: Target, seen: Looks, sweeps: float) -> str:
    """Tell how scouts disagree; empty if they do not."""
    if sweeps < _SWEEPS[1] and not _stand_out(target, seen):
        return ""
    tally = Tally(target, len(seen[0]))
    tally.add(*seen, 1)
    found = disagreement(tally, target)
    return "" if found.agree else f"most of all in {found.worst}"


def _stand_out(target: Target, seen: Looks) -> bool:
    """Whether some values differ between halves of scouts by more than most values do.

    In a few sweeps all values differ, if they change slowly: by a factor that the median shows.
    Only if that is large are all of them suspect.
    """
    x, lp = seen
    of_lp, freedom = spread(normal_scores(lp))
    ratio = np.append([spread(x == value)[0] for value in target.values], of_lp)
    ratio = ratio[~np.isnan(ratio)]
    if not ratio.size:
        return False
    slow = max(1.0, float(np.median(ratio) / f_distribution.median(*freedom)))
    most = max(_MOST_RARE, float(f_distribution.isf(_CHANCE / ratio.size, *freedom)))
    return slow > _MOST_SLOW or bool(ratio.max() > slow * most)


class _Exact:
    """As many exact draws as there are looks, if they are cheap.

    Parameters
    ----------
    target : Target
        What is sampled.
    ensemble : BalancedEnsemble
        The chains, whose streams drive the draws.
    budget : float
        Log-ratios that they may take.
    """

    def __init__(self, target: Target, ensemble: BalancedEnsemble, budget: float):
        self.target, self.work = target, 0
        self._draws = self._make(ensemble, budget)

    def differ(self, seen: Looks) -> str:
        """Tell how scouts differ from the draws; empty if they do not, or there are none."""
        if self._draws is None:
            return ""
        target, (x, lp), (y, lp_y) = self.target, seen, self._draws
        scores = np.split(normal_scores(np.append(lp, lp_y)), [lp.size])
        by_value = [chance_of_difference(x == value, y == value) for value in target.values]
        of_lp = chance_of_difference(scores[0].reshape(lp.shape), scores[1])
        p = np.nan_to_num(np.append(np.fmin.reduce(by_value), of_lp), nan=1.0)
        worst = int(p.argmin())
        if p[worst] * (1 + int(target.cardinalities.sum())) >= _CHANCE:
            return ""
        where = "lp" if worst == target.n_sites else target.label(worst)
        return f"with exact draws, most of all in {where}"

    def _make(self, ensemble: BalancedEnsemble, budget: float) -> Looks | None:
        """Eliminate the model and draw, each step only if what is left of the budget allows it."""
        target = self.target
        graph = target.graph
        pairs = target.n_sites**2 if graph is None else graph.nnz
        to_look = _OF_FACTOR * (2 * target.n_sites + pairs / 2)
        if to_look > max(budget, _TO_LOOK) or target.n_sites > _MOST_CHECKED:
            return None
        entries = max(budget - to_look, _TO_ELIMINATE) / OF_ENTRY
        struck = strike(target)
        model = prune(struck)
        if not struck.free or not is_affordable(model.free, model.factors, model.sizes, entries):
            return None
        found = ordered(struck, limits=(entries, float(MAX_MEMORY)))
        if not fits(found.cost, (entries, float(MAX_MEMORY))) or found.cost.n_configurations > 1:
            return None
        elimination = Elimination(found, LINEAR)
        n_chains = len(ensemble)
        most = (entries - n_entries(found.cost)) / max(1, n_chains * elimination.entries_per_draw)
        n = min(_LOOKS, int(most))
        if n < _FEWEST_DRAWS:
            return None
        rngs = ensemble.streams.of("scout", 2)
        source = Whole(elimination, n_chains)
        source.want([n] * n_chains, n, rngs)
        draws = np.concatenate([source.take(c, n)[0] for c in range(n_chains)])
        # As the kernels sum it, so that the same states have the same log p.
        lp = BalancedEnsemble(target, draws, [rngs[0]] * len(draws)).log_prob()
        self.work = n_entries(found.cost) + len(draws) * elimination.entries_per_draw
        return draws, lp

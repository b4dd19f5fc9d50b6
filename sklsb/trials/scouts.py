"""Scouts: copies of the chains that go on, to see whether single changes suffice."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from sklsb._kernels.elimination.buckets import LINEAR
from sklsb._system.arrays import Array
from sklsb.diagnostics.agreement import disagreement
from sklsb.diagnostics.tally import Tally, chance_of_difference, normal_scores, spread
from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.ensembles.streams import Streams
from sklsb.exact.elimination.blocks import Whole
from sklsb.exact.elimination.cost import n_entries
from sklsb.exact.elimination.engine import Elimination, affordable
from sklsb.exact.elimination.reduce import strike
from sklsb.targets.base import States, Target
from sklsb.trials.draws import draw
from sklsb.trials.prices import MAX_MEMORY, OF_ENTRY, OF_FACTOR

# Sweeps of the scouts' first and second try, and the fewest of the first one if it is cut short.
_SWEEPS, _FEWEST_SWEEPS = (16, 64), 8
# Transitions of a scout in the first try: at least, and at most unless a share of the evaluations
# so far allows more. The second try is longer by at least a factor.
_FEWEST_STEPS, _STEPS, _SHARE, _LONGER = 1 << 12, 1 << 13, 0.25, 4
# Largest ratio of differences to chance if chains are only slow: of most values, and of an outlier
# that is seen rarely.
_MOST_SLOW, _MOST_RARE = 5.0, 32.0
# Looks at each scout, which are compared with up to as many exact draws, or not with fewer than.
_LOOKS, _FEWEST_DRAWS = 128, 16
# Evaluations always allowed for looking at a model and for eliminating it; its most variables.
_TO_LOOK, _TO_ELIMINATE, _MOST_CHECKED = 1 << 18, 1 << 19, 2000
# Probability below which differences are not taken for chance.
_CHANCE = 1e-3

Looks = tuple[NDArray[Any], Array]


def scout(ensemble: BalancedEnsemble) -> tuple[bool, str]:
    """Let copies of the chains go on; return whether they disagree, and what was found.

    Slow chains get a second, longer try. If exact draws are cheap, scouts are compared with some,
    since all chains may be in one mode. The evaluations are counted; the chains stay in place.
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
    exact: tuple[Looks | None, int] | None = None  # draws and their cost
    with scouts.threads():
        scouts.start(ensemble.rule)
        for steps in (first, max(_LONGER * first, _SWEEPS[1] * d)):
            # Odd distances: a flat chain is periodic.
            seen = draw(scouts, _LOOKS, -(-steps // _LOOKS) | 1)
            seen = seen[0], seen[1][:, :, 0]
            found = _disagree(target, seen, steps / d)
            if not found:
                exact = exact or _exact_draws(ensemble, budget)
                found = _differ(target, seen, exact[0]) if exact[0] else ""
            if not found:
                break
    ensemble.chains.evaluations[:] += scouts.chains.evaluations
    ensemble.chains.evaluations[0] += exact[1] if exact else 0
    if found:
        return True, f"scouts disagree after the burn-in, {found}"
    return False, "scouts agree after the burn-in"


def _disagree(target: Target, seen: Looks, sweeps: float) -> str:
    """Say how scouts disagree, or return ""."""
    if sweeps < _SWEEPS[1] and not _stand_out(target, seen):
        return ""
    tally = Tally(target, len(seen[0]))
    tally.add(*seen, 1)
    found = disagreement(tally, target)
    return "" if found.agree else f"most of all in {found.worst}"


def _stand_out(target: Target, seen: Looks) -> bool:
    """Whether some values differ between halves of scouts by more than most values do.

    In a few sweeps all values that change slowly differ, by a factor that the median shows. All are
    suspect only if that factor is large.
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


def _differ(target: Target, seen: Looks, draws: Looks) -> str:
    """Say how scouts differ from exact draws, or return ""."""
    (x, lp), (y, lp_y) = seen, draws
    scores = np.split(normal_scores(np.append(lp, lp_y)), [lp.size])
    by_value = [chance_of_difference(x == value, y == value) for value in target.values]
    of_lp = chance_of_difference(scores[0].reshape(lp.shape), scores[1])
    p = np.nan_to_num(np.append(np.fmin.reduce(by_value), of_lp), nan=1.0)
    worst = int(p.argmin())
    if p[worst] * (1 + int(target.cardinalities.sum())) >= _CHANCE:
        return ""
    where = "lp" if worst == target.n_sites else target.label(worst)
    return f"with exact draws, most of all in {where}"


def _exact_draws(ensemble: BalancedEnsemble, budget: float) -> tuple[Looks | None, int]:
    """Return exact draws, as many as there are looks or fewer, and the table entries they took.

    The model is eliminated only if the budget, in log-ratios, allows each step.
    """
    target, graph = ensemble.target, ensemble.target.graph
    pairs = target.n_sites**2 if graph is None else graph.nnz
    to_look = OF_FACTOR * (2 * target.n_sites + pairs / 2)
    if to_look > max(budget, _TO_LOOK) or target.n_sites > _MOST_CHECKED:
        return None, 0
    entries = max(budget - to_look, _TO_ELIMINATE) / OF_ENTRY
    struck = strike(target)
    found = affordable(struck, (entries, MAX_MEMORY)) if struck.free else None
    if found is None or found.cost.n_configurations > 1:
        return None, 0
    elimination = Elimination(found, LINEAR)
    n_chains = len(ensemble)
    most = (entries - n_entries(found.cost)) / max(1, n_chains * elimination.entries_per_draw)
    n = min(_LOOKS, int(most))
    if n < _FEWEST_DRAWS:
        return None, 0
    rngs = ensemble.streams.of("scout", 2)
    draws = draws_of(Whole(elimination, n_chains), n, n_chains, rngs)
    # As the kernels sum it, so that the same states have the same log p.
    lp = BalancedEnsemble(target, draws, [rngs[0]] * len(draws)).log_prob()
    return (draws, lp), n_entries(found.cost) + len(draws) * elimination.entries_per_draw


def draws_of(source: Whole, n: int, n_chains: int, rngs: Any) -> States:
    """Return n exact draws of each chain, chain after chain."""
    source.want([n] * n_chains, n, rngs)
    return np.concatenate([source.take(c, n)[0] for c in range(n_chains)])

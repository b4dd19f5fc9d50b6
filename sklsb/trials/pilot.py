"""The pilot of `LSBSampler`: candidates race from the states where the burn-in ended.

The page "The pilot" of the documentation has its rules. Its vote is on effective sample sizes per
work, shrunk towards what flows at visited states let expect, with the benefit of the doubt for
robust candidates. Log p has no vote: it is one series, and estimates are made of the sites.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.special import logsumexp

from sklsb._kernels.facts import Rule
from sklsb._system.arrays import Array
from sklsb.balancing.functions import BalancingFunction, Barker
from sklsb.balancing.learning import MIXING, site_variances
from sklsb.balancing.weights import balanced, log_weights
from sklsb.ensembles.base import LearnableEnsemble
from sklsb.targets.base import States
from sklsb.trials.candidates import ROBUST, Candidate, Visited
from sklsb.trials.draws import some_of
from sklsb.trials.race import Doubt, Outcome, Race, Racer, places

# Nats below the best beyond which candidates count as equally bad.
_LEAST_EXPECTED = 4.0
# Nats by which a function may fall below any monotone one, and by which the proposals of variables
# may fall below Barker's.
STARVED, NEGLECTED = 6.0, 1.5


def compare(
    candidates: Mapping[str, Rule],
    new_ensemble: Callable[[int], LearnableEnsemble],
    budget: float,
    on_run: Callable[[float], None] = lambda evaluations: None,
    *,
    robust: Sequence[str] = ROBUST,
    learned: Sequence[str] = MIXING,
    visited: States | None = None,
    expected: Array | None = None,
    brief: bool = False,
) -> tuple[Outcome, int]:
    """Run all candidates from the same states and compare what their draws are worth.

    ``new_ensemble`` returns chains at the end of the burn-in, with the k-th set of streams; all
    runs together may evaluate ``budget`` log-ratios. ``robust`` names candidates that are chosen in
    doubt before ``learned`` ones, the first one if nothing is known. ``visited``, (n, n_sites), are
    states of the burn-in, and ``expected`` the logarithms of what moves of each may be worth there.
    ``brief``, the race ends early on easy targets.
    Returns the outcome, NaN if the budget is too small, and the log-ratios evaluated.
    """
    names = list(candidates)
    ensembles = [new_ensemble(k) for k in range(len(names))]
    sites = some_of(np.arange(ensembles[0].target.n_sites))
    given = zip(candidates.items(), ensembles, strict=True)
    runs = {name: Racer(ensemble, rule, sites) for (name, rule), ensemble in given}
    doubt = Doubt(places(names, robust), places(names, learned))
    race = Race(runs, budget, doubt, visited, expected, brief)
    race.run(on_run)
    return race.outcome(), int(race.spent)


def starved(function: BalancingFunction, log_ratios: Array) -> tuple[float, tuple[float, float]]:
    """Return how far the even part falls below its neighbours, at values of abs(u) that occur.

    The deficit is the largest h(v) - abs(u - v)/2 - h(u), in nats, 0 for an increasing g. Moves
    with such a u have at most exp(-deficit) of the weight that every increasing g would give them
    beside moves with abs(v). Then follow the least and greatest abs(u) at which it exceeds 6 nats,
    or at least is the largest.
    """
    a = np.unique(np.round(np.abs(log_ratios[np.isfinite(log_ratios)]) * 16) / 16)
    if not a.size:
        return 0.0, (0.0, 0.0)
    if a.size > 512:
        a = a[np.linspace(0, a.size - 1, 512).astype(int)]
    h = function.tabulated().even_part(a)
    deficit = (h[:, None] - 0.5 * np.abs(a[:, None] - a)).max(axis=0) - h
    largest = float(deficit.max())
    where = a[deficit >= min(largest, STARVED)]
    return largest, (float(where[0]), float(where[-1]))


def neglectful(functions: Mapping[str, BalancingFunction], seen: Visited) -> set[str]:
    """Return the names of functions that neglect the variables in which p is uncertain.

    A function neglects them if, averaged over the variables with their variances as weights, it
    proposes to change them exp(1.5) times more rarely than Barker's function, at visited states.
    """
    target, n_moves = seen.target, seen.target.cardinalities - 1
    by_site = site_variances(target, seen.states, seen.ratios) / np.maximum(1, n_moves)
    variance = np.repeat(by_site, n_moves)

    def log_share(function: BalancingFunction) -> Array:
        weight = log_weights(balanced(target, function), seen.ratios)
        total = logsumexp(weight, axis=1, keepdims=True)
        share = np.exp(weight - np.where(np.isfinite(total), total, 0.0)).mean(axis=0)
        return np.log(np.maximum(share, 1e-300))

    of_barker = log_share(Barker())
    return {
        name
        for name, function in functions.items()
        if variance @ (of_barker - log_share(function)) > NEGLECTED * variance.sum()
    }


def expected_sizes(candidates: Mapping[str, Candidate], seen: Visited) -> Array:
    r"""Return logarithms of what moves of the candidates may be worth, up to a common constant.

    If variable i alone changed, its autocorrelation time would be its variance over its flow,

    .. math::
        \tau_i = v_i / \phi_i, \qquad \phi_i = \frac{E \, w_i(x)}{E \, Z(x)} \;\text{(jumps)},
        \qquad \phi_i = E \, \frac{w_i(x)}{Z(x)} \;\text{(steps, if all are accepted)},

    with w_i the weight of its moves and v_i = 1 - sum_s P(x_i = s)^2. A candidate may be worth
    1 / tau, with tau the mean of tau_i weighted by v_i: no promise, as variables that must change
    together are slower. Functions and factors fitted to these very states get no more than the best
    other.
    """
    target = seen.target
    variance = site_variances(target, seen.states, seen.ratios)
    if not (variance > 0.0).any():
        return np.zeros(len(candidates))
    found = np.array([_log_size(c, seen, variance) for c in candidates.values()])
    fitted = np.array([c.learned and not c.of_runs for c in candidates.values()])
    if not fitted.all():
        found[fitted] = np.minimum(found[fitted], found[~fitted].max())
    return np.maximum(found - found.max(), -_LEAST_EXPECTED)


def _log_size(candidate: Candidate, seen: Visited, variance: Array) -> float:
    target = seen.target
    log_w = log_weights(candidate.rule(target), seen.ratios)
    log_z = logsumexp(log_w, axis=1, keepdims=True)
    log_z = np.where(np.isfinite(log_z), log_z, 0.0)
    log_w = log_w - (log_z.max() if candidate.jumps else log_z)
    w = np.exp(log_w)
    by_move = w.mean(axis=0) / max(w.sum() / len(w), 1e-300)
    flow = np.bincount(target.offers.site_of_moves, by_move, target.n_sites)
    moves = variance > 0.0
    time = variance[moves] ** 2 / np.maximum(flow[moves], 1e-300)
    return float(np.log(variance.sum()) - np.log(time.sum()))

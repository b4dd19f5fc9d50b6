r"""Choosing a rule by trying it.

Candidates are judged on the target itself: all run from the states where the burn-in ended, and are
compared by effective sample sizes per unit of work: 1 / tau over the log-ratios evaluated, and a
constant for each step, in units of a Metropolis step. tau is the autocorrelation time of the sites,
each weighted by its variance (`sklsb.trials.times`), so this is the variance-weighted harmonic
mean of the sites' effective sample sizes. The variances come from the draws of all candidates
together and from states of the burn-in: a candidate that leaves some sites unmoved is found out by
those that move them.

The race has rounds. All candidates run in the first, with equal work. After each, those that are
clearly worse than the best, by three standard errors, are dropped, and then all but the best half,
quarter, ... and two robust ones. From the third round on, work doubles. The race ends when one
candidate is left, when the best two are known to be worth the same, or when the budget is spent.

A run that is short for its autocorrelation time says little, and what it says is shrunk towards
what the candidate may be worth by flows at visited states (`sklsb.trials.pilot`), times the
share of moves that were accepted. Differences of the two have a standard deviation of 1/2 in the
logarithm, which is compared with the error of the measurement.

If the best is then better than every other by two standard errors and 5 %, it is chosen. If not,
it is the candidate with the largest lower bound, or the first robust one whose bound is about as
large. But what was learned, functions and factors, has no benefit of the doubt: it gives way to the
robust one with the largest bound, if that may be the best, too, and is behind by less than a factor
of exp(1/2). Errors of short runs are not all that can be wrong with a learned number per variable.

Log p has no vote. It is one series, which tells whether the chains agree on how likely their
states are, but estimates are made of the sites and of functions of them. Its effective sample size
is reported.

The plain harmonic mean would let sites that hardly vary decide: on independent sites it is
largest for the square root, which estimates the sum of all sites worse than Barker's function.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sklsb._kernels.facts import Rule
from sklsb.balancing.functions import BalancingFunction, Barker
from sklsb.balancing.learning import MIXING, site_variances
from sklsb.balancing.weights import balanced, log_weights, site_of_moves
from sklsb.ensembles.protocol import LearnableEnsemble
from sklsb.targets.base import States, Target
from sklsb.trials.candidates import Candidate, Visited
from sklsb.trials.race import MOST_SITES, ROBUST, Outcome, Race, Runs, places

Array = NDArray[np.float64]
# Nats below the best at which a candidate is no longer told from worse ones.
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
) -> tuple[Outcome, int]:
    """Run all candidates from the same states and compare what their draws are worth.

    ``new_ensemble`` returns chains at the end of the burn-in, with the k-th set of streams; all
    runs together may evaluate ``budget`` log-ratios; ``on_run`` is called after each run with those
    that it evaluated. ``robust`` names candidates that are chosen in doubt before ``learned`` ones,
    the first one if nothing is known. ``visited``, (n, n_sites), are states of the burn-in, and
    ``expected`` are the logarithms of what moves of each may be worth there. Returns
    the outcome, NaN if the budget allows fewer than 48 transitions of each, and the log-ratios
    evaluated.
    """
    names = list(candidates)
    ensembles = [new_ensemble(k) for k in range(len(names))]
    # Drawn at random: a function may treat even and odd sites, or rows, differently.
    n_sites = ensembles[0].target.n_sites
    sites = np.sort(np.random.default_rng(0).permutation(n_sites)[:MOST_SITES])
    rules = candidates.values()
    runs = [Runs(new, rule, sites) for new, rule in zip(ensembles, rules, strict=True)]
    race = Race(runs, budget, places(names, robust), visited, expected)
    race.run(on_run)
    outcome = race.outcome(names)._replace(robust=robust, learned=learned)
    return outcome, int(race.spent)


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


def neglectful(
    functions: Mapping[str, BalancingFunction], target: Target, states: States, log_ratios: Array
) -> set[str]:
    """Return the names of functions that neglect the variables in which p is uncertain.

    A function neglects them if, averaged over the variables with their variances as weights, it
    proposes to change them exp(1.5) times more rarely than Barker's function, at the states
    (n, n_sites), whose moves have the log-ratios (n, n_moves).
    """
    n_moves = target.cardinalities - 1
    by_site = site_variances(target, states, log_ratios) / np.maximum(1, n_moves)
    variance = np.repeat(by_site, n_moves)

    def log_share(function: BalancingFunction) -> Array:
        weight = log_weights(balanced(target, function), log_ratios)
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
    """Return logarithms of what moves of the candidates may be worth, up to a common constant.

    Functions and factors that were fitted to these very states get no more than the best other.
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
    flow = np.bincount(site_of_moves(target), by_move, target.n_sites)
    moves = variance > 0.0
    time = variance[moves] ** 2 / np.maximum(flow[moves], 1e-300)
    return float(np.log(variance.sum()) - np.log(time.sum()))

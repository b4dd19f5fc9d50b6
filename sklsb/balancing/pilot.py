r"""Choosing a balancing function by trying it.

What a learned function is worth is decided on the target itself: all candidates run from the
states where the burn-in ended, and the one whose draws are worth most is kept. Differences of less
than a tenth or two standard errors are noise: then a learned function is preferred to a fixed
one, and the first to the second. The measure is the effective sample size per transition, 1 / tau,
with

.. math::
    \tau = 1 + 2 \sum_{t \ge 1} \rho(t), \qquad
    \rho(t) = 1 - \frac{E \, \#\{i : x_i(s + t) \ne x_i(s)\}}{\sum_i v_i}, \qquad
    v_i = 1 - \sum_a P(x_i = a)^2

rho is the autocorrelation of the sites, each weighted by its variance v_i, so 1 / tau is the
variance-weighted harmonic mean over the sites of their effective sample sizes per transition. v is
taken over the draws of all candidates together: a candidate that leaves a part of the sites
unmoved is found out by those that move them.

The sum of each candidate ends where its rho is lost in its own noise: at the first lag at which
it is below two standard errors of it, and in any case not above 0.05; at the latest at half of a
round. What is then left continues as an exponential. So a few slow sites among many fast ones
count: their part of rho is small, but lasts. Standard errors are those of the jackknife over
chains and rounds, wider by Student's factor where these are few; what continues beyond the sum is
as uncertain as it is large.

Log p has no vote. It is one series, which tells whether the chains agree on how likely their
states are, while estimates are of the sites and of functions of them. Its effective sample size
is reported.

The plain harmonic mean would let sites that hardly vary decide: on independent sites it is
largest for the square root, which estimates the sum of all sites worse than Barker's function.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from sklsb._kernels.rules.balanced import Balanced
from sklsb.balancing.functions import FIXED, BalancingFunction
from sklsb.ensembles.protocol import MOST_NUMBERS, Adaptive, LearnableEnsemble
from sklsb.targets.base import States

__all__ = ["Outcome", "compare", "integrated_times", "starved"]

Array = NDArray[np.float64]
# Values of sites in one series of a candidate, over all chains; sites that are looked at.
_MOST_VALUES, MOST_SITES = 1 << 21, 1024
# Factor by which draws are farther apart in each series than in the one before.
_COARSER = 8
# Candidates that go on to the second and the later rounds.
_FINALISTS = (3, 3, 2, 2)
# Autocorrelations are summed while they exceed so many standard errors, or the second.
_NOISE, _LARGE = 2.0, 0.05
_EPS = float(np.finfo(np.float64).eps)
# Smaller differences are noise of the pilot.
_MARGIN = 0.1
FEWEST_DRAWS = 48
# Transitions of each chain that tell what one costs, and find a number of flips before that.
_TRIAL, _ADAPTING = 16, 32
# Nats by which a function may fall below what the slope of a monotone one allows.
STARVED = 6.0


class Outcome(NamedTuple):
    """What the pilot found out; arrays over the candidates."""

    names: list[str]
    ess_per_step: Array
    ess_error: Array  # standard error of it
    lp_ess_per_step: Array
    acceptance_rate: Array
    transitions: NDArray[np.int64]  # of each chain, that this rests on
    n_flips: NDArray[np.int64]

    @property
    def best(self) -> str:
        """Name of the candidate to keep.

        The first, unless another learned one is better by a tenth and two standard errors; and
        that one, unless a fixed one is.
        """
        fixed = np.array([name in FIXED for name in self.names])
        with np.errstate(all="ignore"):
            ess = np.nan_to_num(self.ess_per_step)
            error = np.nan_to_num(self.ess_error, nan=np.inf)
            best = int(np.argmax(ess)) if fixed.all() else 0
            for group in (~fixed, fixed):
                rival = int(np.argmax(np.where(group, ess, -np.inf)))
                noise = 2.0 * float(np.hypot(error[rival], error[best]))
                better = ess[rival] - ess[best] > max(noise, _MARGIN * ess[best])
                best = rival if better else best
        return self.names[best]


def window(rho: Array, error: Array) -> int:
    """Return how many lags are summed: to the first at which rho is lost in its noise.

    Parameters
    ----------
    rho : ndarray of float64, shape (n_lags,)
        Autocorrelations.
    error : ndarray of float64, shape (n_lags,)
        Their standard errors. Where these are large or unknown (NaN) the sum ends below 0.05.
    """
    lost = np.flatnonzero(rho <= np.fmin(_NOISE * error, _LARGE))
    return int(lost[0]) + 1 if lost.size else rho.size


def integrated_times(lags: NDArray[np.int64], rho: Array, end: int | None = None) -> Array:
    """1 + 2 sum of rho over all lags, given at some of them.

    Parameters
    ----------
    lags : ndarray of int, shape (n_lags,)
        Increasing, positive.
    rho : ndarray of float64, shape (n, n_lags)
        Autocorrelations of n chains at these lags.
    end : int, optional
        How many of the lags are summed, all if not given.

    Returns
    -------
    ndarray of shape (n,)
        At least 1. Exponential between the lags where rho falls, linear where it does not; what
        is left at the last of them continues as an exponential.
    """
    end = lags.size if end is None else end
    gaps = np.diff(lags[:end], prepend=0)
    r = np.column_stack([np.ones(len(rho)), rho[:, :end]])
    whole = _between(r[:, :-1], r[:, 1:], gaps).sum(axis=1) + _remainder(lags[end - 1], r[:, -1])
    result: Array = np.maximum(1.0, 1.0 + 2.0 * whole)
    return result


def _between(first: Array, last: Array, gaps: NDArray[np.int64]) -> Array:
    """Sum over the lags after the first, up to the last, of what goes from one to the other.

    Below a twentieth of the first, where noise is all that is left, it is linear in the last.
    """
    linear = (gaps * (first + last) - (first - last)) / 2
    floored = np.maximum(last, first / 20)
    falls = floored < first
    fall = np.where(falls, first - floored, 1.0)
    # Not the logarithm of a quotient, which loses its digits where rho hardly falls.
    rate = np.log1p(fall / np.where(falls, floored, 1.0)) / gaps
    curved = fall / np.expm1(rate) + (last - floored) * (gaps + 1) / 2
    result: Array = np.where(falls, curved, linear)
    return result


def _remainder(lag: int, rho: Array) -> Array:
    """Sum over all later lags of the exponential through 1 at lag 0 and rho at this lag."""
    last = np.clip(rho, 0.0, 1.0 - 1e-6)
    decay = last ** (1.0 / lag)
    result: Array = last * decay / (1.0 - decay)
    return result


def _thinnings(n: int, n_draws: int) -> list[int]:
    """Plan the series of one round of n transitions, each series of n_draws draws.

    Returns the transitions per draw of each series: 1, 8, 64, ... and, for the last series, all
    that is left, at least three times the number before.
    """
    thins: list[int] = []
    while n >= n_draws * (sum(thins) + 4 * _COARSER ** len(thins)):
        thins.append(_COARSER ** len(thins))
    return [*thins, max(1, n // n_draws - sum(thins))]


def _lags(thins: list[int], n_draws: int) -> list[list[int]]:
    """Lags to look at in each series, in its draws: short ones where the draws are close."""
    result: list[list[int]] = []
    reached = 0
    for k, thin in enumerate(thins):
        longest = n_draws // 2
        if k < len(thins) - 1:  # twice as far as the next one begins, which is longer
            longest = 2 * _COARSER
        lags = np.unique(np.geomspace(1, longest, 24).astype(int))
        result.append(lags[lags * thin > reached].tolist())
        reached = max(reached, longest * thin)
    return result


def _draw(
    ensemble: LearnableEnsemble, n: int, thin: int, sites: NDArray[np.int64]
) -> tuple[States, Array]:
    """Make n draws: x of shape (n_chains, n, n_sites), (log p, acceptance) of (n_chains, n, 2)."""
    n_chains, n_sites = ensemble.chains.x.shape
    x = np.empty((n_chains, n, sites.size), dtype=ensemble.chains.x.dtype)
    stats = np.empty((n_chains, n, 2))
    most = thin * max(1, (1 << 24) // max(1, n_chains * n_sites))
    made = done = 0
    while made < n * thin:
        size = min(MOST_NUMBERS // 2, most, n * thin - made)
        room = (made + size) // thin - done
        part = np.empty((n_chains, room, n_sites), dtype=x.dtype)
        part_stats = np.empty((n_chains, room, 2))
        ensemble.run(size, (thin, made % thin, 0), part, part_stats)
        x[:, done : done + room] = part[:, :, sites]
        stats[:, done : done + room] = part_stats
        made, done = made + size, done + room
    return x, stats


def _distances(x: States, lp: Array, lags: list[int]) -> list[Array]:
    """Mean number of sites that differ at each lag, and half of the mean square of log p.

    One array of shape (n_chains, 2) for each lag.
    """
    return [
        np.column_stack(
            [
                np.count_nonzero(x[:, lag:] != x[:, :-lag], axis=(1, 2)) / (x.shape[1] - lag),
                0.5 * np.square(lp[:, lag:] - lp[:, :-lag]).mean(axis=1),
            ]
        )
        for lag in lags
    ]


class _Runs:
    """What is known of one candidate: sums over its rounds."""

    def __init__(self, ensemble: LearnableEnsemble, rule: Balanced):
        self.ensemble = ensemble
        self.rule = rule
        self.n_rounds = self.n_transitions = 0
        self.reference = 0.0
        self.distances: list[Array] = []  # (n_chains, n_lags, 2): of the sites, of log p
        self.shares: Array | float = 0.0  # (n_values, n_sites)
        self.lp: Array = np.zeros(2)  # mean and mean square
        self.acceptance = 0.0

    @property
    def evaluations(self) -> int:
        """Log-ratios evaluated so far."""
        return int(self.ensemble.chains.evaluations.sum())

    @property
    def step_cost(self) -> float:
        """Log-ratios per transition so far."""
        return self.evaluations / max(1, self.n_transitions * len(self.ensemble))

    def begin(self, n: int) -> None:
        """Make n transitions, to see what they cost."""
        with self.ensemble.threads():
            if isinstance(self.ensemble, Adaptive) and self.ensemble.adapting:
                self.ensemble.adapt(self.rule, _ADAPTING)
                self.n_transitions += _ADAPTING
            self.ensemble.start(self.rule)
            # Log p is taken relative to it, so that a large part that never changes does not
            # matter; the same for all candidates.
            self.reference = float(self.ensemble.log_prob()[0])
            uniforms = np.stack([rng.random((n, 2)) for rng in self.ensemble.streams.chain])
            self.ensemble.advance(uniforms)
        self.ensemble.forget_acceptance()
        self.n_transitions += n

    def go_on(self, thins: list[int], n_draws: int, sites: NDArray[np.int64]) -> None:
        """Run one more round."""
        found = []
        with self.ensemble.threads():
            self.ensemble.start(self.rule)
            for thin, lags in zip(thins, _lags(thins, n_draws), strict=True):
                x, stats = _draw(self.ensemble, n_draws, thin, sites)
                lp = stats[:, :, 0] - self.reference
                found += _distances(x, lp, lags)
        # What follows is of the last series, which is by far the longest.
        values = self.ensemble.target.values
        self.n_rounds += 1
        self.n_transitions += n_draws * sum(thins)
        self.distances.append(np.stack(found, axis=1))
        self.shares = self.shares + np.array([(x == v).mean(axis=(0, 1)) for v in values])
        self.lp += (lp.mean(), np.square(lp).mean())
        self.acceptance += float(stats[:, :, 1].mean())


def _variances(runs: list[_Runs]) -> Array:
    """Variances over the draws of all candidates together, shape (2,).

    The first is sum_i v_i, with v_i = 1 - sum_a P(x_i = a)^2 the variance of site i. The second is
    that of log p, and 0 on a flat target, where log p is the same everywhere but for rounding.
    """
    n = sum(run.n_rounds for run in runs)  # of equal length
    shares = sum((run.shares for run in runs), np.zeros(1)) / n
    mean, square = sum((run.lp for run in runs), np.zeros(2)) / n
    of_sites = (1.0 - np.square(shares).sum(axis=0)).sum()
    of_lp = square - mean**2
    rounding = (8 * _EPS * (1.0 + abs(runs[0].reference))) ** 2
    return np.array([of_sites, of_lp if of_lp > rounding else 0.0])


def _jackknife_error(replicates: Array, estimate: Callable[[Array], Array]) -> float:
    """Return the standard error of an estimate from a mean; infinite for a single replicate.

    It is sqrt((n - 1) / n sum_j (e_j - mean e)^2) with e_j the estimate without replicate j.
    ``estimate`` takes the means without each replicate, of the shape of ``replicates``, and
    returns all e_j.
    """
    n = len(replicates)
    if n < 2:
        return np.inf
    means = (replicates.sum(axis=0) - replicates) / (n - 1)
    return float(np.sqrt((n - 1) * estimate(means).var()))


def _estimate(runs: list[_Runs], lags: NDArray[np.int64]) -> tuple[Array, Array]:
    """Estimate the autocorrelation times of all candidates from all their rounds so far.

    Variances are the same for all candidates.

    Parameters
    ----------
    runs : list of _Runs
        All candidates, each after one round or more.
    lags : ndarray of int, shape (n_lags,)
        Lags of their distances, in transitions.

    Returns
    -------
    times : ndarray of float64, shape (n_runs, 2)
        Of the sites and of log p; NaN if these never differ.
    errors : ndarray of float64, shape (n_runs,)
        Relative standard errors of the times of the sites.
    """
    times, errors = np.full((2, len(runs), 2), np.nan)
    for k, variance in enumerate(_variances(runs)):
        if variance > 0.0:
            for j, run in enumerate(runs):
                # One replicate is one chain in one round.
                rho = 1.0 - np.concatenate(run.distances)[:, :, k] / variance
                times[j, k], errors[j, k] = _time_and_error(rho, lags)
    return times, errors[:, 0]


def _time_and_error(replicates: Array, lags: NDArray[np.int64]) -> tuple[float, float]:
    """Autocorrelation time of the mean of replicates (n, n_lags), and its relative error."""
    n, rho = len(replicates), replicates.mean(axis=0)
    noise = replicates.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(rho.size, np.nan)
    end = window(rho, noise)
    time = float(integrated_times(lags, rho[None], end)[0])
    error = _jackknife_error(replicates, lambda means: np.log(integrated_times(lags, means, end)))
    if n > 1:  # few replicates tell little about their own spread
        error *= float(stdtrit(n - 1, 0.975) / ndtri(0.975))
    guessed = 2.0 * float(_remainder(int(lags[end - 1]), rho[end - 1 : end])[0]) / time
    return time, float(np.hypot(error, guessed))


def _affordable(runs: list[_Runs], rounds: list[int], budget: float) -> int:
    """Return how many transitions per chain the budget allows in each round.

    ``rounds`` holds the number of candidates in each; it may be the dearest that go on. What a
    transition costs is found out by a few of them; 0 if there is no budget for these.
    """
    n_chains = len(runs[0].ensemble)
    ensemble = runs[0].ensemble
    adapting = isinstance(ensemble, Adaptive) and ensemble.adapting
    fewest = 4 * _TRIAL + (_ADAPTING if adapting else 0)
    if budget < fewest * len(runs) * n_chains * max(1.0, ensemble.step_cost):
        return 0
    for run in runs:
        run.begin(_TRIAL)
    costs = sorted((run.step_cost for run in runs), reverse=True)
    left = 0.9 * (budget - sum(run.evaluations for run in runs))
    return int(max(0.0, left) / (n_chains * sum(sum(costs[:size]) for size in rounds) + 1e-9))


def _rounds(n_candidates: int) -> list[int]:
    """Candidates in each round."""
    return [min(size, n_candidates) for size in (n_candidates, *_FINALISTS)]


def n_runs(n_candidates: int) -> int:
    """Return how often a candidate is run in all rounds together."""
    return sum(_rounds(n_candidates))


def compare(
    candidates: dict[str, BalancingFunction],
    new_ensemble: Callable[[int], LearnableEnsemble],
    budget: float,
    lazy: float = 0.0,
    on_run: Callable[[], None] = lambda: None,
) -> tuple[Outcome, int]:
    """Run all candidates from the same states and compare what their draws are worth.

    There are five rounds of equal length. All candidates run in the first; the best three go on to
    the second and third, the best two to the others.

    Parameters
    ----------
    candidates : dict of name to BalancingFunction
        What to choose from, the learned ones first.
    new_ensemble : callable
        Returns chains at the states where the burn-in ended, with the k-th set of streams.
    budget : float
        Log-ratios that all runs together may evaluate.
    lazy : float, default=0
        Probability that a transition does nothing.
    on_run : callable, optional
        Called when a candidate is through a round.

    Returns
    -------
    outcome : Outcome
        Effective sample sizes per transition; NaN where the budget allows less than 48 draws.
    evaluations : int
        Log-ratios that were evaluated.
    """
    names = list(candidates)
    runs = [
        _Runs(new_ensemble(k), Balanced(candidates[name].table(), lazy))
        for k, name in enumerate(names)
    ]
    ensemble = runs[0].ensemble
    n_chains = len(ensemble)
    rounds = _rounds(len(names))
    n = _affordable(runs, rounds, budget)
    # Drawn at random: a function may treat even and odd sites, or rows, differently.
    sites = np.sort(np.random.default_rng(0).permutation(ensemble.target.n_sites)[:MOST_SITES])
    n_draws = min(n, max(FEWEST_DRAWS, _MOST_VALUES // (n_chains * sites.size)))
    times, errors = np.full((len(names), 2), np.nan), np.full(len(names), np.nan)
    thins = _thinnings(n, n_draws) if n_draws >= FEWEST_DRAWS else []
    if thins:
        by_series = zip(thins, _lags(thins, n_draws), strict=True)
        lags = np.array([thin * lag for thin, some in by_series for lag in some])
        for size in rounds:
            # Nothing is known before the first round.
            best = np.argsort(times[:, 0], kind="stable")[:size].tolist()
            # A chain on its way may have got to where transitions cost more.
            expected = sum(runs[k].step_cost for k in best) * n_draws * sum(thins) * n_chains
            if sum(run.evaluations for run in runs) + expected > budget:
                break
            for k in best:
                runs[k].go_on(thins, n_draws, sites)
                on_run()
            times, errors = _estimate(runs, lags)
    outcome = Outcome(
        names,
        1.0 / times[:, 0],
        errors / times[:, 0],
        1.0 / times[:, 1],
        np.array([run.acceptance / run.n_rounds if run.n_rounds else np.nan for run in runs]),
        np.array([run.n_rounds * sum(thins) * n_draws for run in runs]),
        np.array([_n_flips(run.ensemble) for run in runs]),
    )
    return outcome, sum(run.evaluations for run in runs)


def _n_flips(ensemble: LearnableEnsemble) -> int:
    return ensemble.n_flips if isinstance(ensemble, Adaptive) else 1


def starved(function: BalancingFunction, log_ratios: Array) -> tuple[float, tuple[float, float]]:
    """How far the even part falls below its neighbours, among the values of abs(u) that occur.

    Parameters
    ----------
    function : BalancingFunction
        Any; for a function g that increases the answer is 0.
    log_ratios : ndarray
        The u = log t that occur; infinite ones do not matter.

    Returns
    -------
    deficit : float
        Largest h(v) - abs(u - v)/2 - h(u), in nats. Moves with such a u have at most exp(-deficit)
        of the weight that every increasing g would give them beside moves with abs(v).
    where : tuple of float
        Least and greatest abs(u) at which it is more than 6 nats, or at least is the largest.
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

r"""Choosing a balancing function by trying it.

Learned functions are judged on the target itself: all candidates run from the states where the
burn-in ended, and the one with the largest effective sample size per transition, 1 / tau, is kept.
Differences below a tenth or two standard errors are noise: then a learned function is preferred to
a fixed one, and the first to the second. Here

.. math::
    \tau = 1 + 2 \sum_{t \ge 1} \rho(t), \qquad
    \rho(t) = 1 - \frac{E \, \#\{i : x_i(s + t) \ne x_i(s)\}}{\sum_i v_i}, \qquad
    v_i = 1 - \sum_a P(x_i = a)^2

rho is the autocorrelation of the sites, each weighted by its variance v_i, so 1 / tau is the
variance-weighted harmonic mean of the sites' effective sample sizes per transition. v is estimated
from the draws of all candidates together: a candidate that leaves some sites unmoved is found out
by those that move them.

Each sum ends where rho is lost in noise: at the first lag at which rho is below two of its standard
errors, but not above 0.05, and at half a round at the latest. The rest continues as an exponential,
so a few slow sites among many fast ones count: their part of rho is small, but lasts. Standard
errors are by the jackknife over chains and rounds, wider by Student's factor if these are few; the
exponential rest is taken to be as uncertain as it is large.

Log p has no vote. It is one series, which tells whether the chains agree on how likely their
states are, but estimates are made of the sites and of functions of them. Its effective sample size
is reported.

The plain harmonic mean would let sites that hardly vary decide: on independent sites it is
largest for the square root, which estimates the sum of all sites worse than Barker's function.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from sklsb._kernels.rules.balanced import Balanced
from sklsb.balancing.functions import FIXED, BalancingFunction
from sklsb.ensembles.protocol import MOST_NUMBERS, Adaptive, LearnableEnsemble
from sklsb.targets.base import States

Array = NDArray[np.float64]
# Values of sites in one series of a candidate, over all chains; most sites that are looked at.
_MOST_VALUES, MOST_SITES = 1 << 21, 1024
# Factor between the distances of draws in consecutive series.
_COARSER = 8
# Candidates that go on to the second and the later rounds.
_FINALISTS = (3, 3, 2, 2)
# Autocorrelations are summed while they exceed this many standard errors, or the second number.
_NOISE, _LARGE = 2.0, 0.05
_EPS = float(np.finfo(np.float64).eps)
# Smaller relative differences are noise.
_MARGIN = 0.1
FEWEST_DRAWS = 48
# Transitions of each chain that measure the cost of one, and that tune a number of flips.
_TRIAL, _ADAPTING = 16, 32
# Nats by which a function may fall below any monotone one.
STARVED = 6.0


class Outcome(NamedTuple):
    """Result of the pilot; arrays over the candidates."""

    names: list[str]
    ess_per_step: Array
    ess_error: Array  # its standard error
    lp_ess_per_step: Array
    acceptance_rate: Array
    transitions: NDArray[np.int64]  # per chain
    n_flips: NDArray[np.int64]

    @property
    def best(self) -> str:
        """Name of the candidate to keep.

        The first, unless another learned one is better by a tenth and two standard errors; then
        unless a fixed one is better than that by as much.
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
    """Return how many lags are summed: up to the first at which rho is lost in its noise.

    If standard errors are large or unknown (NaN) the sum ends below 0.05.
    """
    lost = np.flatnonzero(rho <= np.fmin(_NOISE * error, _LARGE))
    return int(lost[0]) + 1 if lost.size else rho.size


def integrated_times(lags: NDArray[np.int64], rho: Array, end: int | None = None) -> Array:
    """Return 1 + 2 sum of rho (n, n_lags) over all lags, or the first ``end``; at least 1.

    rho is exponential between the given lags where it falls, linear where it rises, and goes on
    exponentially after the last.
    """
    end = lags.size if end is None else end
    gaps = np.diff(lags[:end], prepend=0)
    r = np.column_stack([np.ones(len(rho)), rho[:, :end]])
    whole = _between(r[:, :-1], r[:, 1:], gaps).sum(axis=1) + _remainder(lags[end - 1], r[:, -1])
    return np.asarray(np.maximum(1.0, 1.0 + 2.0 * whole))


def _between(first: Array, last: Array, gaps: NDArray[np.int64]) -> Array:
    """Sum an exponential from first to last over the lags after the first, up to the last.

    Below a twentieth of the first, which is noise, the sum is linear in the last.
    """
    linear = (gaps * (first + last) - (first - last)) / 2
    floored = np.maximum(last, first / 20)
    falls = floored < first
    fall = np.where(falls, first - floored, 1.0)
    # Not the logarithm of a quotient, which loses its digits where rho hardly falls.
    rate = np.log1p(fall / np.where(falls, floored, 1.0)) / gaps
    curved = fall / np.expm1(rate) + (last - floored) * (gaps + 1) / 2
    return np.where(falls, curved, linear)


def _remainder(lag: int, rho: Array) -> Array:
    """Sum the exponential through 1 at lag 0 and rho at this lag over all later lags."""
    last = np.clip(rho, 0.0, 1.0 - 1e-6)
    decay = last ** (1.0 / lag)
    return np.asarray(last * decay / (1.0 - decay))


def _thinnings(n: int, n_draws: int) -> list[int]:
    """Plan one round of n transitions: the transitions per draw of each series of n_draws draws.

    They are 1, 8, 64, ... and last all that is left, at least three times the number before.
    """
    thins: list[int] = []
    while n >= n_draws * (sum(thins) + 4 * _COARSER ** len(thins)):
        thins.append(_COARSER ** len(thins))
    return [*thins, max(1, n // n_draws - sum(thins))]


def _lags(thins: list[int], n_draws: int) -> list[list[int]]:
    """Return the lags to look at in each series, in draws: short ones where draws are close."""
    result: list[list[int]] = []
    reached = 0
    for k, thin in enumerate(thins):
        longest = n_draws // 2
        if k < len(thins) - 1:  # twice as far as where the next series begins
            longest = 2 * _COARSER
        lags = np.unique(np.geomspace(1, longest, 24).astype(int))
        result.append(lags[lags * thin > reached].tolist())
        reached = max(reached, longest * thin)
    return result


def _draw(
    ensemble: LearnableEnsemble, n: int, thin: int, sites: NDArray[np.int64]
) -> tuple[States, Array]:
    """Make n draws: x (n_chains, n, n_sites) and (log p, acceptance) (n_chains, n, 2)."""
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
    """Return the mean number of differing sites and half of the mean square change of log p.

    One array of shape (n_chains, 2) per lag.
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
    """The runs of one candidate: sums over its rounds."""

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
            # Log p is taken relative to this, the same for all candidates, so that a large part
            # that never changes does not matter.
            self.reference = float(self.ensemble.log_prob()[0])
            size = (n, self.rule.facts.n_uniforms)
            uniforms = np.stack([rng.random(size) for rng in self.ensemble.streams.chain])
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
        # The rest looks at the last series, which is by far the longest.
        values = self.ensemble.target.values
        self.n_rounds += 1
        self.n_transitions += n_draws * sum(thins)
        self.distances.append(np.stack(found, axis=1))
        self.shares = self.shares + np.array([(x == v).mean(axis=(0, 1)) for v in values])
        self.lp += (lp.mean(), np.square(lp).mean())
        self.acceptance += float(stats[:, :, 1].mean())


def _variances(runs: list[_Runs]) -> Array:
    """Return the variances of the sites and of log p over the draws of all candidates together.

    The first is sum_i v_i, with v_i = 1 - sum_a P(x_i = a)^2. The second is 0 on a flat target,
    where log p changes by rounding only.
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
    ``estimate`` maps the means without each replicate, an array like ``replicates``, to all e_j.
    """
    n = len(replicates)
    if n < 2:
        return np.inf
    means = (replicates.sum(axis=0) - replicates) / (n - 1)
    return float(np.sqrt((n - 1) * estimate(means).var()))


def _estimate(runs: list[_Runs], lags: NDArray[np.int64]) -> tuple[Array, Array]:
    """Estimate the candidates' autocorrelation times from all rounds so far, with common variances.

    ``lags`` are those of their distances, in transitions. Returns the times of the sites and of
    log p, (n_runs, 2), NaN if these never differ, and relative standard errors of the first.
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
    """Return the autocorrelation time by replicates (n, n_lags) of rho, and its relative error."""
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
    """Return how many transitions per chain the budget allows in each round, 0 if none.

    ``rounds`` holds the numbers of candidates, of which the dearest may go on. A few transitions
    measure what one costs.
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
    """Return the number of candidates in each round."""
    return [min(size, n_candidates) for size in (n_candidates, *_FINALISTS)]


def n_runs(n_candidates: int) -> int:
    """Return the number of runs in all rounds together."""
    return sum(_rounds(n_candidates))


def compare(
    candidates: dict[str, Any],
    new_ensemble: Callable[[int], LearnableEnsemble],
    budget: float,
    on_run: Callable[[], None] = lambda: None,
) -> tuple[Outcome, int]:
    """Run all candidates from the same states and compare what their draws are worth.

    There are five rounds of equal length. All candidates run in the first; the best three go on to
    the second and third, the best two to the others. Learned candidates come first.
    ``new_ensemble`` returns chains at the end of the burn-in, with the k-th set of streams; all
    runs together may evaluate ``budget`` log-ratios; ``on_run`` is called after each run. Returns
    the outcome, NaN if the budget allows fewer than 48 draws, and the log-ratios evaluated.
    """
    names = list(candidates)
    runs = [_Runs(new_ensemble(k), candidates[name]) for k, name in enumerate(names)]
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
            best = np.argsort(times[:, 0], kind="stable")[:size].tolist()
            # Transitions may cost more where the chains are now.
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
        np.array([getattr(run.ensemble, "n_flips", 1) for run in runs]),
    )
    return outcome, sum(run.evaluations for run in runs)


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

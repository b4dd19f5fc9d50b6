r"""Factors by site, which multiply the weights of the moves of each variable.

In the jump process variable i changes at the rate W_i(x), the sum of the weights of its moves. With
p_i the probability of its present value given the others, and means over visited states, its flow
is phi_i = mean 2 p_i W_i. Factors s_i multiply both, and

.. math:: \log \sum_i a_i / \phi_i + \log \sum_i E \, W_i, \qquad a_i = 1 - \sum_s P(x_i = s)^2,

is smallest, by the inequality of Cauchy and Schwarz, at s_i = sqrt(a_i / (phi_i mean W_i)). Flows
do not see that a variable may go back and forth. So factors are improved by what chains show,
s_i <- s_i (median ESS / ESS_i)^(1/2). With times t_i of the variables in place of 1 / phi_i the
inequality bounds what factors may gain: `promised_gain`, below which they are not tried, is
(sum a_i t_i) (sum E W_i) / (sum sqrt(a_i t_i E W_i))^2.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sklsb._kernels.numeric import Table
from sklsb._kernels.rules.balanced import Balanced
from sklsb._system.arrays import Array
from sklsb.balancing.functions import FIXED
from sklsb.balancing.learning import site_variances
from sklsb.balancing.weights import MOST_FACTOR, log_weights
from sklsb.ensembles.base import LearnableEnsemble
from sklsb.targets.base import States
from sklsb.trials.candidates import ROBUST, Allowed, Candidate, Visited, jumps_of_transition
from sklsb.trials.draws import draw

# Rounds in which factors are learned, each with this share of the transitions.
_ROUNDS = (0.1, 0.15, 0.25, 0.5)
# Draws and batches of each chain in a round; values of variables held at most.
_DRAWS, _BATCHES, _MOST_VALUES = 2048, 32, 1 << 24
# Pieces of a run; before each it is seen what the others cost.
_PIECES = 32
# Effective draws that count as much as having no factors.
_PRIOR = 10.0
# Gain below which factors are not learned: where they won it was 2 or more.
LEAST_GAIN = 1.2


def flux_factors(seen: Visited, table: Table) -> Array:
    """Return the factors by site that are best by flows, with geometric mean 1."""
    target, site = seen.target, seen.target.offers.site_of_moves

    def by_site(values: Array) -> Array:
        return np.array([np.bincount(site, row, target.n_sites) for row in values])

    log_w = log_weights(Balanced(table), seen.ratios)
    shift = log_w.max(initial=-np.inf)
    of_site = by_site(np.exp(log_w - (shift if np.isfinite(shift) else 0.0)))
    present = 1.0 / (1.0 + by_site(np.exp(np.minimum(seen.ratios, 700.0))))
    flow, rate = 2.0 * (present * of_site).mean(axis=0), of_site.mean(axis=0)
    variance = site_variances(target, seen.states, seen.ratios)
    moving = (flow > 0.0) & (rate > 0.0) & (variance > 0.0)
    if not moving.any():
        return np.ones(flow.size)
    log_s = 0.5 * np.log(variance[moving] / (flow[moving] * rate[moving]))
    found = np.zeros(flow.size)
    found[moving] = log_s - log_s.mean()
    return clipped(found)


def clipped(log_factors: Array) -> Array:
    """Return factors from their logarithms, within 100 of 1 either way."""
    most = np.log(MOST_FACTOR)
    return np.exp(np.clip(log_factors, -most, most))


def site_times(x: States, values: tuple[int, ...], n_batches: int) -> tuple[Array, Array]:
    """Return autocorrelation times in draws, at least 1, and variances of the sites, by batches.

    ``x`` has shape (n_chains, n_draws, n_sites). The time of a site is the variance of the means of
    batches over that of single draws; NaN for a site that never changes.
    """
    n_chains, n, d = x.shape
    size = n // n_batches
    means = np.zeros((2, d))
    for value in values:
        hit = (x[:, : size * n_batches] == value).reshape(n_chains * n_batches, size, d)
        of_batch = hit.mean(axis=1)
        p = of_batch.mean(axis=0)
        means += of_batch.var(axis=0, ddof=1), p * (1.0 - p)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.maximum(1.0, size * means[0] / means[1]), means[1]


def promised_gain(chains: LearnableEnsemble, visited: Visited, budget: float) -> float:
    """Return what factors may gain, by the times of the sites in a run of steps by Barker.

    It is infinite where the budget, in evaluations, is too small to tell.
    """
    target, rule = visited.target, Candidate(FIXED["barker"]()).rule(visited.target)
    chains.start(rule)
    found = _times(chains, int(budget / (len(chains) * max(1.0, chains.step_cost))), budget)
    if found is None:
        return np.inf
    log_w = log_weights(rule, visited.ratios)
    rate = np.exp(log_w - log_w.max(initial=-np.inf)).mean(axis=0)
    rate = np.bincount(target.offers.site_of_moves, rate, target.n_sites)
    of_site = np.where(found[1] > 0.0, found[0] * found[1], 0.0)
    whole = np.sqrt(of_site * rate).sum() ** 2
    return float(of_site.sum() * rate.sum() / whole) if whole else np.inf


def _times(chains: LearnableEnsemble, length: int, budget: float) -> tuple[Array, Array] | None:
    """Run chains; return the times of the sites, in draws, and their variances.

    None if there are too few draws, or if they cost twice the budget, in a mode of faster moves.
    """
    n_chains, d = chains.chains.x.shape
    n_draws = min(_DRAWS, length, _MOST_VALUES // max(1, n_chains * d))
    if n_draws < 2 * _BATCHES:
        return None
    pieces: list[States] = []
    size = -(-n_draws // _PIECES)
    with chains.threads():
        for begin in range(0, n_draws, size):
            if chains.chains.evaluations.sum() > 2.0 * budget:
                return None
            pieces.append(draw(chains, min(size, n_draws - begin), length // n_draws)[0])
    x = np.concatenate(pieces, axis=1)
    return site_times(x, chains.target.values, _BATCHES)


def learned_factors(
    candidate: Candidate, chains: LearnableEnsemble, visited: Visited, budget: float
) -> Candidate:
    """Return a candidate with factors learned by the effective sizes of the sites in runs.

    ``budget`` is in evaluations; without enough for a few draws of each variable all factors are 1.
    """
    target, (n_chains, d) = visited.target, chains.chains.x.shape

    def with_factors(log_factors: Array) -> Candidate:
        found = replace(candidate, factors=clipped(log_factors), of_runs=True)
        return found.timed(visited)

    log_s = np.zeros(d)
    n = int(budget / (n_chains * max(1.0, chains.step_cost)))  # changes of each chain
    for share in _ROUNDS:
        length = int(share * n) // (jumps_of_transition(target) if candidate.jumps else 1)
        chains.start(with_factors(log_s).rule(target))
        found = _times(chains, length, budget)
        if found is None:
            break
        time, variance = found
        known = variance > 0.0
        if known.any():
            log_time = np.log(time, where=known, out=np.zeros(d))
            centre = float(np.median(log_time[known]))
            n_draws = min(_DRAWS, length, _MOST_VALUES // max(1, n_chains * d))
            effective = n_chains * n_draws / np.exp(centre)
            trust = 0.5 * effective / (effective + _PRIOR)
            log_s = log_s + np.where(known, trust * (log_time - centre), 0.0)
    return with_factors(log_s - log_s.mean())


def factor_candidates(
    allowed: Allowed,
    visited: Visited,
    new_ensemble: Callable[[int], LearnableEnsemble],
    budget: float,
) -> tuple[dict[str, Candidate], int]:
    """Learn factors by site, from flows and from effective sizes; return also the evaluations.

    ``new_ensemble`` returns chains at the end of the burn-in, with the k-th set of streams.
    """
    prefix = "jump_" if allowed.jumps else ""
    plain = {f"{prefix}{name}": Candidate(FIXED[name](), allowed.jumps) for name in ROBUST}
    first = plain[f"{prefix}barker"]
    by_flux = replace(first, factors=flux_factors(visited, first.function.table()), of_seen=True)
    found, evaluations = {f"{prefix}barker_by_flux": by_flux.timed(visited)}, 0
    for k, (name, candidate) in enumerate(plain.items()):
        chains = new_ensemble(k)
        found[f"{name}_by_ess"] = learned_factors(candidate, chains, visited, budget / len(plain))
        evaluations += int(chains.chains.evaluations.sum())
    return found, evaluations

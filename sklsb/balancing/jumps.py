r"""Learning for the jump process: functions, and factors by site.

There is no acceptance in it: variable i changes at the rate W_i(x), the sum of the weights of its
moves. With p_i the probability of its present value given the others, and means over stored states,
its flow is phi_i = mean 2 p_i W_i, and the objectives, per jump, are

===============  ===================================================================================
"flux"           mean log sum_i p_i (1 - p_i)^2 / W_i + log mean Z
"global_flux"    log sum_i a_i / phi_i + log mean Z, with a_i = 1 - sum_s P(x_i = s)^2
===============  ===================================================================================

Factors multiply phi_i and W_i by s_i: "global_flux" is smallest, by the inequality of Cauchy and
Schwarz, at s_i = sqrt(a_i / (phi_i mean W_i)). Flows do not see that a variable may go back and
forth. So factors are improved by what chains show, s_i <- s_i (median ESS / ESS_i)^(1/2).
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.numeric import Table
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.jump import Jump
from sklsb._system.memory import at_once
from sklsb.balancing.functions import BalancingFunction, LearnableFunction
from sklsb.balancing.learning import Flux
from sklsb.balancing.weights import (
    MOST_FACTOR,
    balanced,
    log_typical_rate,
    log_weights,
    site_of_moves,
)
from sklsb.ensembles.protocol import MOST_NUMBERS, LearnableEnsemble
from sklsb.targets.base import States, Target

Array = NDArray[np.float64]
# Jumps of a transition, on average, if they are cheap: then the transition itself counts. If each
# changes more log-ratios than the second number, draws one jump apart lose nothing.
_JUMPS, _CHEAP = 4, 64
# Rounds in which factors are learned, each with this share of the transitions.
_ROUNDS = (0.1, 0.15, 0.25, 0.5)
# Draws and batches of each chain in a round; values of variables held at most.
_DRAWS, _BATCHES, _MOST_VALUES = 2048, 32, 1 << 24
# Pieces of a run; before each it is seen what the others cost.
_PIECES = 32
# Effective draws that count as much as having no factors.
_PRIOR = 10.0


def jump(target: Target, function: BalancingFunction, factors: Array | None, ratios: Array) -> Jump:
    """Return the rule whose transition takes the time of a few jumps in a typical state.

    ``ratios`` are the log-ratios of all moves in some states.
    """
    rule, n = balanced(target, function, factors=factors), jumps_of_transition(target)
    log_time = math.log(n) - log_typical_rate(rule, ratios)
    return Jump(rule.table, log_time, rule.log_factor, -(-target.n_sites // n))


def jumps_of_transition(target: Target) -> int:
    """Return how many jumps a transition makes in a typical state."""
    view: Any = target.view()
    n_moves = max(1, view.touched_start.size - 1)
    return _JUMPS if target.ratio_cost * view.touched.size <= _CHEAP * n_moves else 1


class JumpFlux(Flux):
    """A flux objective of the jump process as a function of the parameters."""

    def __init__(self, ensemble: LearnableEnsemble, function: LearnableFunction, kind: str):
        super().__init__(ensemble, function, kind)
        target = ensemble.target
        self.ratios = ensemble.proposal_log_ratios()
        self.site = site_of_moves(target)
        odds = self._by_site(np.exp(np.minimum(self.ratios, 700.0)))
        self.present = 1.0 / (1.0 + odds)
        self.knots = _Knots(function, self.ratios)
        self.sites = np.arange(target.n_sites)
        self.variance = self._variances()

    def _by_site(self, values: Array) -> Array:
        """Sum over the moves of each variable."""
        n, d = len(values), self.ensemble.target.n_sites
        place = self.site + d * np.arange(n)[:, None]
        found: Array = np.bincount(place.ravel(), values.ravel(), n * d).astype(np.float64)
        return found.reshape(n, d)

    def _weights(self, table: Table) -> tuple[Array, Array, float]:
        """Return weights of moves and of variables, and the mean of Z, up to a common factor."""
        log_w = log_weights(Balanced(table), self.ratios)
        shift = log_w.max(initial=-np.inf)
        w = np.exp(log_w - (shift if np.isfinite(shift) else 0.0))
        return w, self._by_site(w), float(w.sum() / len(w))

    def _local(self, table: Table) -> tuple[float, Array]:
        w, of_site, rate = self._weights(table)
        terms = np.divide(
            self.present * (1.0 - self.present) ** 2,
            of_site,
            out=np.zeros_like(of_site),
            where=of_site > 0.0,
        )
        total = terms.sum(axis=1, keepdims=True)
        moving = total[:, 0] > 0.0
        if not moving.any():
            return 0.0, np.zeros_like(table.value)
        share = np.divide(terms, total * of_site, out=np.zeros_like(terms), where=of_site > 0.0)
        n = moving.sum()
        value = np.log(total[moving]).sum() / n + np.log(rate)
        by_weight = w * (
            1.0 / (rate * len(w)) - np.where(moving[:, None], share, 0.0)[:, self.site] / n
        )
        return float(value), self.knots.gather(by_weight)

    def _global(self, table: Table) -> tuple[float, Array]:
        w, of_site, rate = self._weights(table)
        flow = 2.0 * (self.present * of_site).mean(axis=0)
        moving = (flow > 0.0) & (self.variance > 0.0)
        terms = np.divide(self.variance, flow, out=np.zeros_like(flow), where=moving)
        total = float(terms.sum())
        if total == 0.0:
            return 0.0, np.zeros_like(table.value)
        share = np.divide(terms, total * flow, out=np.zeros_like(flow), where=moving)
        by_weight = w / len(w) * (1.0 / rate - 2.0 * (self.present * share)[:, self.site])
        return float(np.log(total) + np.log(rate)), self.knots.gather(by_weight)

    def factors(self, table: Table) -> Array:
        """Return the factors by site at which "global_flux" is smallest; geometric mean 1."""
        _, of_site, _ = self._weights(table)
        flow, rate = 2.0 * (self.present * of_site).mean(axis=0), of_site.mean(axis=0)
        moving = (flow > 0.0) & (rate > 0.0) & (self.variance > 0.0)
        if not moving.any():
            return np.ones(flow.size)
        log_s = 0.5 * np.log(self.variance[moving] / (flow[moving] * rate[moving]))
        found = np.zeros(flow.size)
        found[moving] = log_s - log_s.mean()
        return clipped(found)


class _Knots:
    """Adds derivatives by the weights of moves up to derivatives by the values at the knots."""

    def __init__(self, function: BalancingFunction, ratios: Array):
        table = function.table()
        self.size = table.value.size
        a = np.abs(np.where(np.isfinite(ratios), ratios, 0.0)) * table.inverse_step
        a = np.minimum(a, self.size - 1.0)
        knot = np.minimum(a, self.size - 2.0).astype(np.int64)
        self.upper, self.knot = (a - knot).ravel(), knot.ravel()

    def gather(self, by_weight: Array) -> Array:
        """Return the derivative by each value of the table."""
        flat = by_weight.ravel()
        found: Array = np.bincount(self.knot, flat * (1.0 - self.upper), self.size).astype(
            np.float64
        )
        found += np.bincount(self.knot + 1, flat * self.upper, self.size)
        return found


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


def learn_factors(
    rule_of: Callable[[Array], Any], factors: Array, chains: LearnableEnsemble, budget: float
) -> Array:
    """Improve factors by site by the effective sizes of the sites in runs of their own.

    ``rule_of`` returns the rule with given factors. ``budget`` is in evaluations; without enough
    for a few draws of each variable the factors stay as they are.
    """
    n_chains, d = chains.chains.x.shape
    log_s = np.log(factors)
    n = int(budget / (n_chains * max(1.0, chains.step_cost)))  # changes of each chain
    for share in _ROUNDS:
        rule = rule_of(clipped(log_s))
        moves = jumps_of_transition(chains.target) if isinstance(rule, Jump) else 1
        length = int(share * n) // moves
        n_draws = min(_DRAWS, length, _MOST_VALUES // max(1, n_chains * d))
        if n_draws < 2 * _BATCHES:
            return clipped(log_s)
        chains.start(rule)
        x = np.empty((n_chains, n_draws, d), dtype=chains.chains.x.dtype)
        if not draws(chains, x, length // n_draws, 2.0 * budget):
            break  # in a mode of far faster moves
        time, variance = site_times(x, chains.target.values, _BATCHES)
        known = variance > 0.0
        if known.any():
            log_time = np.where(known, np.log(time, where=known, out=np.zeros(d)), 0.0)
            centre = float(np.median(log_time[known]))
            effective = n_chains * n_draws / np.exp(centre)
            trust = 0.5 * effective / (effective + _PRIOR)
            log_s = log_s + np.where(known, trust * (log_time - centre), 0.0)
    return clipped(log_s - log_s.mean())


def draws(chains: LearnableEnsemble, x: States, thin: int, budget: float = np.inf) -> bool:
    """Fill x, (n_chains, n, n_sites), with draws that are ``thin`` transitions apart.

    Returns False, before all are made, if the chains' evaluations exceed the budget.
    """
    n = x.shape[1]
    most = min(-(-n // _PIECES), at_once(MOST_NUMBERS, chains.rule.facts.n_uniforms * thin))
    stats = np.empty((*x.shape[:2], 2))
    with chains.threads():
        for begin in range(0, n, most):
            if chains.chains.evaluations.sum() > budget:
                return False
            chains.run(min(most, n - begin) * thin, (thin, 0, begin), x, stats)
    return True

"""The first version of the paper: its objective and its network, which later versions gave up."""

from functools import cached_property

import numpy as np
from scipy.special import expit, logsumexp

from sklsb import LSBSampler
from sklsb.balancing import LearnableFunction
from sklsb.balancing.functions import Tabulated
from sklsb.balancing.learning import Adam, Learner


class FirstVersion(LSBSampler):
    """LSBSampler(objective="kl") whose burn-in learns by `FirstVersionLearner` instead."""

    def _learner(self):
        rate = 0.01 if self.learning_rate is None else self.learning_rate
        return FirstVersionLearner(self._function, "kl", Adam(rate))


class FirstVersionLearner(Learner):
    """Minimises `surprise`, added up over a chain's state and a state of the initial distribution.

    p' is relative to the present state, and all chains have the same weight. The mean over the
    chains is taken, and the penalty of a monotonic network is added.
    """

    rngs = None

    def gradient(self, ensemble, rule, log_prob, extra, first):
        if self.rngs is None:
            seeds = [rng.integers(2**63) for rng in ensemble.streams.of("scout")]
            self.rngs = [np.random.default_rng(seed) for seed in seeds]
        ensemble.start(rule)  # it moves the chains from now on
        target, drawn = ensemble.target, [ensemble.target.draw_state(rng) for rng in self.rngs]
        own = surprise(target, rule.table, ensemble.chains.x, first[:, 0])
        new = surprise(target, rule.table, np.stack(drawn), extra[:, 0])
        return own[0] + new[0], own[1] + new[1], 0.0

    def update(self, value, by_knots, by_eta):
        gradient = self.function.vjp(by_knots)
        if isinstance(self.function, MonotonicNetwork):
            penalty, by_theta = self.function.penalty()
            value, gradient = value + penalty, gradient + by_theta
        norm = float(np.linalg.norm(gradient))
        self.n_skipped += not (np.isfinite(norm) and self._step(gradient))
        return value, norm


def surprise(target, table, x, u):
    """Return the mean over states of (Q'/Q) A log(T'/p') at a proposed x', and its gradient.

    ``u`` chooses the proposals; the gradient is by the values of the table.
    """
    function, rows = Tabulated(table), np.arange(len(x))
    ratios = target.log_ratios(x)
    log_w = function.log_g(ratios)
    log_z = logsumexp(log_w, axis=1)
    mass = np.cumsum(np.exp(log_w - log_z[:, None]), axis=1)
    move = (mass < (u * mass[:, -1])[:, None]).sum(axis=1)
    site = target.offers.site_of_moves
    k = move - np.searchsorted(site, site[move])  # its moves are to the other values, in order
    there, values = x.copy(), np.asarray(target.values)
    present = np.searchsorted(values, x[rows, site[move]])
    there[rows, site[move]] = values[k + (k >= present)]
    ratios_there = target.log_ratios(there)
    log_w_there = function.log_g(ratios_there)
    log_z_there = logsumexp(log_w_there, axis=1)
    # log T = log w - log max(Z, Z'), and A = min(1, Z / Z').
    acceptance = np.exp(np.minimum(log_z - log_z_there, 0.0))
    ratio = ratios[rows, move]
    score = log_w[rows, move] - np.maximum(log_z, log_z_there) - ratio
    amount = acceptance * (score + 1.0) / len(x)  # derivative by log T
    gradient = add_knots(table, ratio, amount)
    up = log_z_there > log_z
    for chosen, at, log_weight, log_total in (
        (~up, ratios, log_w, log_z),
        (up, ratios_there, log_w_there, log_z_there),
    ):
        share = np.exp(log_weight[chosen] - log_total[chosen, None])
        gradient -= add_knots(table, at[chosen], amount[chosen, None] * share)
    return float(np.mean(acceptance * score)), gradient


def add_knots(table, u, amounts):
    """Return the gradient by the values of the table of the sum of amounts times h(abs(u))."""
    last = table.value.size - 1
    a = np.minimum(np.abs(u) * table.inverse_step, last).ravel()
    knot = np.minimum(a.astype(int), last - 1)
    upper, amounts = (a - knot) * amounts.ravel(), amounts.ravel()
    found = np.bincount(knot, amounts - upper, last + 1)
    return found + np.bincount(knot + 1, upper, last + 1)


class MonotonicNetwork(LearnableFunction):
    """LSB 2 of the first version: g(t) = min(f(t), t f(1/t)), with a monotonic network f.

    f(t) is P(min over 20 groups of max over 20 lines of softplus(a) t + b), with theta = (a, b)
    (J. Sill, "Monotonic networks", NeurIPS 1997). P(m) = m for m >= d and d exp(m/d - 1) below:
    positive, increasing and smooth. ``form="sum"`` is the mean in place of the minimum.
    """

    n_groups, group_size, floor = 20, 20, 0.1
    tail_slope = 0.5  # f(0) > 0, so t f(1/t) grows like t

    def __init__(self, form="min", theta=None):
        self.form = form
        n = self.n_groups * self.group_size
        self.theta = self._check_theta(self._initial(n) if theta is None else theta, 2 * n)

    @staticmethod
    def _initial(n):
        # max(1, t): in every group, half of the lines are t and half are 1; distinct by a thousandth.
        rng = np.random.default_rng(0)
        steep = np.arange(n) % 2 == 0
        a = np.where(steep, np.log(np.expm1(1.0)), -20.0) + 1e-3 * rng.standard_normal(n)
        b = np.where(steep, 0.0, 1.0) + 1e-3 * rng.standard_normal(n)
        return np.concatenate([a, b])

    def _lines(self, t):
        """Return the network's value before P at each t, and the index of the active line."""
        a, b = np.split(self.theta, 2)
        lines = np.logaddexp(0.0, a) * t[:, None] + b
        lines = lines.reshape(t.size, self.n_groups, self.group_size)
        best = lines.argmax(axis=2)
        tops = np.take_along_axis(lines, best[:, :, None], 2)[:, :, 0]
        group = tops.argmin(axis=1)
        at = np.arange(t.size)
        return tops[at, group], group * self.group_size + best[at, group]

    def _combine(self, u):
        """Even part at u >= 0, the share of f(t) in it, and for both t, the active lines and 1 / (log P)'."""
        t = np.exp(np.concatenate([u, -u]))
        m, active = self._lines(t)
        above = np.maximum(m, self.floor)
        log_f = np.where(m >= self.floor, np.log(above), np.log(self.floor) + m / self.floor - 1.0)
        one, other = log_f[: u.size], log_f[u.size :] + u
        if self.form == "min":
            h, share = np.minimum(one, other), (one <= other).astype(float)
        else:
            h, share = np.logaddexp(one, other) - np.log(2), expit(one - other)
        return h - 0.5 * u, share, (t, active, above)

    @cached_property
    def _at_knots(self):
        return self._combine(self.knots)

    def even_part(self, u):
        a = np.abs(np.asarray(u, dtype=float))
        inside = np.minimum(a, 32.0)
        return self._combine(inside.ravel())[0].reshape(a.shape) + 0.5 * (a - inside)

    def table(self):
        return self._as_table(self._at_knots[0], self.tail_slope)

    def _by_theta(self, active, by_slope, by_bias):
        n = self.theta.size // 2
        slopes = np.bincount(active, by_slope, n) * expit(self.theta[:n])
        return np.concatenate([slopes, np.bincount(active, by_bias, n)])

    def vjp(self, grad_knots):
        _, share, (t, active, above) = self._at_knots
        by_m = np.concatenate([grad_knots * share, grad_knots * (1.0 - share)]) / above
        return self._by_theta(active, by_m * t, by_m)

    def penalty(self):
        """Return the mean of max(0, -d/dt [t f(1/t)]) over t in (0, 2), and its gradient."""
        # d/dt [t f(1/t)] = f(s) - s f'(s) at s = 1/t; on a line this is its bias b, and below
        # the floor P'(m) (d - a s). Midpoints of 64 intervals.
        s = 1.0 / ((np.arange(64) + 0.5) / 32)
        m, active = self._lines(s)
        a, b = np.split(self.theta, 2)
        low = m < self.floor
        p = np.where(low, np.exp(np.minimum(m, self.floor) / self.floor - 1.0), 1.0)
        slope = np.where(low, p * (self.floor - np.logaddexp(0.0, a[active]) * s), b[active])
        weight = (slope < 0) / s.size
        by_slope = np.where(low, slope * s / self.floor - p * s, 0.0)
        by_bias = np.where(low, slope / self.floor, 1.0)
        gradient = self._by_theta(active, -weight * by_slope, -weight * by_bias)
        return float(-(weight * slope).sum()), gradient

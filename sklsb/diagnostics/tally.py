"""Running counts of visited values, by which chains are compared.

Their memory does not grow with the draws, and they are the same whether states are stored, thinned,
or given to statistics.
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import f as f_distribution
from scipy.stats import rankdata
from scipy.stats import t as t_distribution

from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import at_once
from sklsb.diagnostics.batches import CHANCE, Batches
from sklsb.targets.base import States, Target

# Batches of each chain, and counts held for all chains.
_MOST_BATCHES, _FEWEST_BATCHES, _MOST_COUNTS = 32, 8, 1 << 24
# Values of lp that are kept.
_MOST_LP = 256
# Fewer draws of a chain tell nothing.
FEWEST_DRAWS = 64
# An R-hat that is not due to chance or rounding if batches are at least this many sweeps long;
# shorter batches are dependent in any chain, and R-hat is large by chance.
_LARGE_R_HAT, _LONG = 1.1, 8
# Fewest visits to a value that chains keep.
_FEWEST_VISITS = 4
# Looks at a chain per sweep.
_LOOKS_PER_SWEEP = 4
# Squares of a log p above 1e154 are infinite, and errors and sizes from them unknown.
_beyond_floats = np.errstate(over="ignore", invalid="ignore")


class RareValue(NamedTuple):
    """A rare value that chains keep once they have it.

    ``sweeps`` is a lower bound on the length of a visit: the sweeps that chains had the value,
    divided by one more than the number of chains that lost it.
    """

    site: int
    value_index: int
    sweeps: float


class Agreement(NamedTuple):
    """How far several series agree; arrays of one shape."""

    r_hat: Array
    ess: Array
    p_value: Array


def agreement(
    sums: Array, squares: Array, size: int, long: bool = True, centre: Array | None = None
) -> Agreement:
    r"""Compare halves of chains by their batches.

    .. math:: \hat R^2 = 1 - \frac{1}{n} + \frac{B}{W}, \qquad
              F = \frac{B}{S / b} \sim F_{m - 1, m (b - 1)}

    with m halves of b batches, n draws each, W the mean variance in a half, B the variance of the
    means of halves and S the variance of batches in a half. If all draws have one distribution, B
    is S / b but for chance. Batches of a slow chain are dependent, so F is also taken with batches
    four times longer, and the larger p-value counts; unless batches are ``long``, so that only
    separated modes make them dependent, and R-hat is above 1.1: draws in which a chain changes its
    mode a few times give no reliable error.

    ``sums`` and ``squares``, (n_chains, n_batches, ...) with an even number of batches, are sums of
    the draws of each batch, and of their squares; ``size`` is the draws of a batch. If the mean is
    known (``centre``), B is the mean square of the distances of halves from it, with one more
    degree of freedom.
    """
    n_chains, n_batches = sums.shape[:2]
    b, m = n_batches // 2, 2 * n_chains
    n = b * size
    means = (sums / size).reshape(m, b, *sums.shape[2:])
    half = means.mean(axis=1)
    square = squares.reshape(m, b, *sums.shape[2:]).sum(axis=1) / n
    within = np.maximum(0.0, square - half**2).mean(axis=0) * (n / (n - 1))
    if centre is None:
        between, free = half.var(axis=0, ddof=1), m - 1
    else:
        between, free = np.square(half - centre).mean(axis=0), m
    chance = []
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = np.sqrt(1.0 - 1.0 / n + between / within)
        for longer in (max(1, min(4, b // 2)), 1):
            k = b // longer
            joined = means[:, b - k * longer :].reshape(m, k, longer, *between.shape).mean(axis=2)
            error = joined.var(axis=1, ddof=1).mean(axis=0) / k
            chance.append(np.asarray(f_distribution.sf(between / error, free, m * (k - 1))))
        p_value = np.where(long & (r_hat > _LARGE_R_HAT), chance[1], np.maximum(*chance))
        apart = p_value * max(1, p_value.size) < CHANCE
        ess = m * within / np.where(apart, np.maximum(error, between), error)
    return Agreement(r_hat, ess, p_value)


def spread(draws: NDArray[Any]) -> tuple[Array, tuple[int, int]]:
    """Compare means of halves of chains with means of quarters of halves.

    Returns the variance of the halves over what their quarters let expect, NaN where nothing
    varies, and the degrees of freedom of F, its distribution if quarters are independent.
    ``draws`` has shape (n_chains, 8 n, ...).
    """
    m = 2 * len(draws)
    quarters = draws.reshape(m, 4, -1, *draws.shape[2:]).mean(axis=2)
    between = quarters.mean(axis=1).var(axis=0, ddof=1)
    error = quarters.var(axis=1, ddof=1).mean(axis=0) / 4
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(between / error), (m - 1, 3 * m)


def chance_of_difference(chains: NDArray[Any], exact: NDArray[Any]) -> Array:
    r"""Return p-values of differences between chains (n_chains, 2 n, ...) and independent draws.

    .. math:: t = \frac{\bar x - \bar y}{\sqrt{V_x + V_y}}, \qquad
              V_x = \max\left(\frac{\mathrm{var}(\text{means of halves})}{m},
                               \frac{s^2}{m n}\right), \quad V_y = \frac{s^2}{n_y}

    with m halves of n draws, n_y independent draws, s^2 the variance of all of them together, and
    the degrees of freedom of Welch and Satterthwaite. The chains may be slow, so each half counts
    as one number, and the variance of independent draws says nothing about theirs. NaN where
    nothing varies.
    """
    x = chains.reshape(2 * len(chains), -1, *chains.shape[2:])
    (m, n), n_y = x.shape[:2], len(exact)
    variance = np.concatenate([x.reshape(m * n, *x.shape[2:]), exact]).var(axis=0)
    halves = x.mean(axis=1)
    of_halves = halves.var(axis=0, ddof=1) / m
    v_x, v_y = np.maximum(of_halves, variance / (m * n)), variance / n_y
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(halves.mean(axis=0) - exact.mean(axis=0)) / np.sqrt(v_x + v_y)
        known = (v_x - of_halves + v_y) ** 2 / (m * n + n_y - 2)
        freedom = (v_x + v_y) ** 2 / (of_halves**2 / (m - 1) + known)
    return 2.0 * np.asarray(t_distribution.sf(t, freedom))


def normal_scores(x: Array) -> Array:
    """Return normal quantiles of the ranks, averaged over ties; zeros if all are equal."""
    if x.size and (x == x.flat[0]).all():
        return np.zeros(x.shape)
    rank = rankdata(x).reshape(x.shape)
    return np.asarray(ndtri((rank - 0.375) / (x.size + 0.25)))


class Tally:
    """How often each value of each variable was seen, batch by batch.

    States that are at least ``every`` transitions apart are counted. ``kept`` are rare values at
    which chains started. If the chains are some of ``n_all``, batches are chosen as for all of
    them, to be `joined`.
    """

    def __init__(
        self,
        target: Target,
        n_chains: int,
        every: int = 1,
        kept: Sequence[RareValue] = (),
        sweep: int = 1,
        n_all: int | None = None,
    ):
        self.every, self.sweep = max(1, every), sweep
        self.kept, self.symmetry = tuple(kept), target.symmetry
        self.values = np.asarray(target.values, dtype=target.dtype)
        free = np.flatnonzero(target.n_possible > 1)
        n_all = max(n_chains, n_all or 0)
        room = at_once(_MOST_COUNTS, n_all * _FEWEST_BATCHES)
        # One of two values is counted; if there are too many variables, only some are looked at.
        size = np.where(target.cardinalities == 2, 1, target.cardinalities).astype(np.int64)
        share = max(1, -(-int(size[free].sum()) // room))
        self.sites = np.union1d(free[::share], [value.site for value in kept]).astype(np.int64)
        size = size[self.sites]
        self.first = np.cumsum(size) - size
        self.two_valued = bool(size.size and (size == 1).all())
        n_counts = int(size.sum())
        n_batches = _MOST_COUNTS // max(1, n_all * n_counts)
        n_batches = min(_MOST_BATCHES, max(_FEWEST_BATCHES, n_batches // 2 * 2))
        self.counts = Batches((n_chains, n_batches, n_counts), np.int8)
        self.lp, self.lp_every = np.zeros((n_chains, _MOST_LP)), 1  # draws between two of them
        # Sums of lp and of its square, relative to the first lp.
        self.lp_sums, self.lp_origin = Batches((n_chains, n_batches, 2)), np.zeros(n_chains)
        self.n_transitions = 0
        self.since = 0  # transitions since the last state that was looked at

    @property
    def n_draws(self) -> int:
        """Draws of each chain that were looked at."""
        return self.counts.n_draws

    @classmethod
    def by_sweep(
        cls,
        target: Target,
        n_chains: int,
        sweep: int,
        kept: Sequence[RareValue] = (),
        n_all: int | None = None,
    ) -> "Tally":
        """Return a tally that looks four times per sweep, which takes ``sweep`` transitions."""
        return cls(target, n_chains, sweep // _LOOKS_PER_SWEEP, kept, sweep, n_all)

    @classmethod
    def joined(cls, parts: "Sequence[Tally]") -> "Tally":
        """Concatenate the tallies of disjoint groups of chains, which have looked equally often."""
        made = copy.deepcopy(parts[0])
        made.lp = np.concatenate([part.lp for part in parts])
        made.lp_origin = np.concatenate([part.lp_origin for part in parts])
        made.counts.sums = np.concatenate([part.counts.sums for part in parts])
        made.lp_sums.sums = np.concatenate([part.lp_sums.sums for part in parts])
        return made

    @_beyond_floats
    def add(self, states: States, lp: Array, thin: int) -> None:
        """Count the next draws, (n_chains, n_draws, n_sites), ``thin`` transitions apart."""
        n = states.shape[1]
        self.n_transitions += n * thin
        begin = max(0, -(-(self.every - self.since) // thin) - 1)
        chosen = range(begin, n, max(1, -(-self.every // thin)))
        self.since = thin * (n - 1 - chosen[-1]) if chosen else self.since + thin * n
        for at, part in self.counts.parts(len(chosen)):
            these = chosen[part]
            now = slice(these.start, these.stop, these.step)
            x = states[:, now]
            if self.sites.size < x.shape[2]:
                x = x[:, :, self.sites]
            self.counts.sums[:, at] += self._counted(x)
            self._keep_lp(lp[:, now])
            self._add_lp(lp[:, now], at)
            self.lp_sums.count(len(these))

    def _counted(self, x: States) -> Ints:
        if self.two_valued:
            low, high = self.values[:2].tolist()
            # Sums of so many values fit in their own type, where they add up fastest.
            n = max(1, np.iinfo(x.dtype).max // max(abs(low), abs(high)))
            k = x.shape[1] // n
            parts = x[:, : k * n].reshape(len(x), k, n, x.shape[2])
            total = parts.sum(axis=2, dtype=x.dtype).sum(axis=1, dtype=np.int64)
            total += x[:, k * n :].sum(axis=1, dtype=x.dtype)
            return (total - x.shape[1] * low) // (high - low)
        n_counts = self.counts.sums.shape[2]
        size = np.diff(self.first, append=n_counts)
        index = np.searchsorted(self.values, x)
        # The first of two values is not counted.
        place = np.where(size > 1, self.first + index, np.where(index == 1, self.first, n_counts))
        return np.array([np.bincount(row.ravel(), minlength=n_counts + 1)[:-1] for row in place])

    def _keep_lp(self, lp: Array) -> None:
        k = 0
        while (k := k + -(self.n_draws + k) % self.lp_every) < lp.shape[1]:
            at = (self.n_draws + k) // self.lp_every
            if at == _MOST_LP:  # every second one is dropped
                self.lp[:, : _MOST_LP // 2] = self.lp[:, ::2]
                self.lp_every *= 2
                continue
            new = lp[:, k :: self.lp_every][:, : _MOST_LP - at]
            self.lp[:, at : at + new.shape[1]] = new
            k += new.shape[1] * self.lp_every

    def _add_lp(self, lp: Array, at: int) -> None:
        if not self.n_draws:
            self.lp_origin = lp[:, 0].copy()
        z = lp - self.lp_origin[:, np.newaxis]
        parts = np.stack([z, np.square(z)], axis=2)
        self.lp_sums.add_in_turn(at, parts)

    @property
    def _sweeps_per_look(self) -> float:
        return self.n_transitions / (self.sweep * max(1, self.n_draws))

    def _is_long(self, n_draws: int) -> bool:
        """Whether this is far more draws than any chain needs within a mode."""
        return n_draws * self._sweeps_per_look >= _LONG

    def of_values(self) -> Agreement:
        """Compare how often the values were seen, shape (n_counts,)."""
        size, sums = self.counts.size, _even(self.counts).astype(np.float64)
        return agreement(sums, sums, size, self._is_long(size), self._centre(sums))

    def _centre(self, sums: Array) -> Array | None:
        """Return means over chains and their images, which are as probable; None without symmetry.

        Under a symmetry that cycles its values, a variable has all values equally often.
        """
        if self.symmetry is None or not sums.size:
            return None
        n_counts = sums.shape[2]
        size = np.diff(self.first, append=n_counts)
        k = np.repeat(np.maximum(size, 2), size)
        if self.symmetry == "cycle":
            return 1.0 / k
        first = np.repeat(self.first, size)
        p = sums.mean(axis=(0, 1)) / self.counts.size
        image = p[2 * first + np.repeat(size, size) - 1 - np.arange(n_counts)]
        return np.where(k > 2, (p + image) / 2, 0.5)

    @_beyond_floats
    def of_lp(self) -> Agreement:
        """Compare log p, by normal scores of its ranks; the effective size is its mean's."""
        n = -(-self.n_draws // self.lp_every)
        n_batches = min(_MOST_BATCHES, n // 2 * 2)
        size = n // n_batches
        x = self.lp[:, : n_batches * size]
        z = normal_scores(x).reshape(len(x), n_batches, size)
        long = self._is_long(size * self.lp_every)
        found = agreement(z.sum(axis=2), np.square(z).sum(axis=2), size, long)
        # The kept values are too few to tell the effective size of a long run.
        z, square = np.moveaxis(_even(self.lp_sums), 2, 0)
        # Relative to one origin for all chains.
        shift = (self.lp_origin - self.lp_origin[0])[:, np.newaxis]
        size = self.lp_sums.size
        square = square + shift * (2.0 * z + size * shift)
        return found._replace(ess=agreement(z + size * shift, square, size).ess)

    def lost(self) -> list[int]:
        """Return sites of values that chains keep for long, but that the draws rarely visit."""
        counts = self.counts.sums
        size = np.diff(self.first, append=counts.shape[2])
        n_looks = self.n_draws * len(counts)
        result = []
        for site, index, sweeps in self.kept:
            place = int(np.searchsorted(self.sites, site))
            two = size[place] == 1  # the second value is counted
            if self.symmetry == "cycle" or (two and self.symmetry):
                continue  # as probable as the other values
            seen = int(counts[:, :, self.first[place] + (0 if two else index)].sum())
            seen = n_looks - seen if two and index == 0 else seen
            if seen * self._sweeps_per_look < _FEWEST_VISITS * sweeps:
                result.append(site)
        return result

    def by_value(self) -> tuple[Ints, Ints]:
        """Return the variable and the index of the value that each count is of."""
        n_counts = self.counts.sums.shape[2]
        size = np.diff(self.first, append=n_counts)
        of = np.repeat(np.arange(size.size), size)
        value = np.where(size[of] == 1, 1, np.arange(n_counts) - self.first[of])
        return self.sites[of], value

    def by_site(self, values: Array, best: np.ufunc) -> Array:
        """Reduce numbers for each value to numbers for each variable that is looked at."""
        return best.reduceat(values, self.first) if self.first.size else values


def _even(batches: Batches) -> NDArray[Any]:
    """Return the sums of an even number of full batches."""
    return batches.full[:, : batches.full.shape[1] // 2 * 2]

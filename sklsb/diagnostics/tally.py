"""Running counts of what chains visit, from which their disagreement is seen.

They take as much memory after a billion draws as after a thousand, and are the same whether states
are stored, thinned, or given to statistics.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import f as f_distribution
from scipy.stats import rankdata
from scipy.stats import t as t_distribution

from sklsb.targets.base import States, Target

# Batches of each chain, and counts held for all chains.
_MOST_BATCHES, _FEWEST_BATCHES, _MOST_COUNTS = 32, 8, 1 << 24
# Draws at which lp is kept.
_MOST_LP = 256
# Fewer draws of a chain tell nothing.
FEWEST_DRAWS = 64
# Disagreement that is none of rounding or chance, whatever the errors, where batches are of so many
# sweeps or more: shorter ones depend on each other in any chain, and R-hat is large by chance.
_LARGE_R_HAT, _LONG = 1.1, 8
# Chains that agree are said to differ with about this probability, whatever is looked at.
CHANCE = 0.01
# Visits to a value that chains keep, at least.
_FEWEST_VISITS = 4
# In so many parts of a sweep a chain is looked at.
_LOOKS_PER_SWEEP = 4

Array = NDArray[np.float64]


class RareValue(NamedTuple):
    """A value that is rare elsewhere, and that chains keep which have it.

    Parameters
    ----------
    site, value_index : int
        The variable, and the index of the value.
    sweeps : float
        How long a visit is, at least: the sweeps that chains had it by the number that lost it,
        and one.
    """

    site: int
    value_index: int
    sweeps: float


class Agreement(NamedTuple):
    """How far several series agree, by series: arrays of one shape."""

    r_hat: Array
    ess: Array
    p_value: Array


def agreement(
    sums: Array, squares: Array, size: int, long: bool = True, centre: Array | None = None
) -> Agreement:
    r"""Compare halves of chains with each other, by what their batches have.

    .. math:: \hat R^2 = 1 - \frac{1}{n} + \frac{B}{W}, \qquad
              F = \frac{B}{S / b} \sim F_{m - 1, m (b - 1)}

    with m halves of b batches, n draws each, W the mean variance in a half, B the variance of the
    means of halves and S that of batches in a half. If all draws are of one distribution, B is
    S / b but for chance. Batches of a slow chain are not independent, so F is taken with four
    times longer ones, too, and the larger p-value counts; unless batches are long and R-hat is
    above 1.1, since draws in which a chain changes its mode a few times give no error that could
    be trusted.

    Parameters
    ----------
    sums, squares : ndarray of float64, shape (n_chains, n_batches, ...)
        Of each batch: the sum of the draws, and of their squares. The number of batches is even.
    size : int
        Draws of a batch.
    long : bool, default=True
        Whether a batch is so long that only separated modes make batches depend on each other.
    centre : ndarray of float64, optional
        Of the trailing shape: the mean, if it is known. Then B is the mean square of the distances
        of halves from there, which has one degree of freedom more.

    Returns
    -------
    Agreement
        Of the trailing shape. ``ess`` is that of all draws together, m W / (S / b), or m W / B
        where halves differ by more than chance; NaN where nothing varies. ``p_value`` is that of F.
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
    """Compare means of halves of chains with those of quarters of halves.

    Parameters
    ----------
    draws : ndarray, shape (n_chains, 8 n, ...)
        Of chains.

    Returns
    -------
    ratio : ndarray of float64
        The variance of the halves over what that of their quarters lets expect, of the trailing
        shape; NaN where nothing varies. F-distributed if quarters are independent.
    freedom : tuple of int
        Degrees of freedom of F.
    """
    m = 2 * len(draws)
    quarters = draws.reshape(m, 4, -1, *draws.shape[2:]).mean(axis=2)
    between = quarters.mean(axis=1).var(axis=0, ddof=1)
    error = quarters.var(axis=1, ddof=1).mean(axis=0) / 4
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(between / error), (m - 1, 3 * m)


def chance_of_difference(chains: NDArray[Any], exact: NDArray[Any]) -> Array:
    r"""Probability of so large a difference of chains from independent draws, by series.

    .. math:: t = \frac{\bar x - \bar y}{\sqrt{V_x + V_y}}, \qquad
              V_x = \max\left(\frac{\mathrm{var}(\text{means of halves})}{m},
                               \frac{s^2}{m n}\right), \quad V_y = \frac{s^2}{n_y}

    with m halves of n draws, n_y independent draws, s^2 the variance of all of them together, and
    the degrees of freedom of Welch and Satterthwaite. The chains may be slow, so that each half
    counts as one number, and the variance of independent draws says nothing of theirs.

    Parameters
    ----------
    chains : ndarray, shape (n_chains, 2 n, ...)
        Draws of chains.
    exact : ndarray, shape (n_draws, ...)
        Independent draws.

    Returns
    -------
    ndarray of float64
        Of the trailing shape; NaN where nothing varies.
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
    """Return normal quantiles of the ranks, of ties of their mean; zeros if all are equal."""
    if x.size and (x == x.flat[0]).all():
        return np.zeros(x.shape)
    rank = rankdata(x).reshape(x.shape)
    return np.asarray(ndtri((rank - 0.375) / (x.size + 0.25)))


class Tally:
    """How often each value of each variable was seen, batch by batch.

    Parameters
    ----------
    target : Target
        What is sampled.
    n_chains : int
        Number of chains.
    every : int, default=1
        Transitions between two states that are looked at, at least.
    kept : sequence of RareValue, default=()
        Rare values at which chains started.
    sweep : int, default=1
        Transitions of a sweep.
    n_all : int, optional
        Chains that there are elsewhere, too, with which they are compared: see `joined`.
    """

    symmetry: str | None = None  # in files of older versions, too

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
        room = max(1, _MOST_COUNTS // (n_all * _FEWEST_BATCHES))
        # Of two values one is counted; some variables stand for all if there are too many.
        size = np.where(target.cardinalities == 2, 1, target.cardinalities).astype(np.int64)
        share = max(1, -(-int(size[free].sum()) // room))
        self.sites = np.union1d(free[::share], [value.site for value in kept]).astype(np.int64)
        size = size[self.sites]
        self.first = np.cumsum(size) - size
        self.two_valued = bool(size.size and (size == 1).all())
        n_counts = int(size.sum())
        n_batches = _MOST_COUNTS // max(1, n_all * n_counts)
        n_batches = min(_MOST_BATCHES, max(_FEWEST_BATCHES, n_batches // 2 * 2))
        self.counts = np.zeros((n_chains, n_batches, n_counts), dtype=np.int64)
        self.lp = np.zeros((n_chains, _MOST_LP))
        # Of each batch the sums of lp and of its square, from the first value on.
        self.lp_sums, self.lp_origin = np.zeros((n_chains, n_batches, 2)), np.zeros(n_chains)
        self.batch, self.lp_every = 1, 1  # draws of a batch; between two values of lp
        self.n_draws = self.n_transitions = 0
        self.since = 0  # transitions since a state was looked at

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        mine, theirs = self.__dict__, other.__dict__
        return all(np.array_equal(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        # Batches that have begun, in as few bytes as they take: a checkpoint is written often.
        begun = -(-self.n_draws // self.batch)
        counts = self.counts[:, :begun].astype(np.min_scalar_type(self.batch))
        return self.__dict__ | {"counts": counts, "n_batches": self.counts.shape[1]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        found, n_batches = self.counts, self.__dict__.pop("n_batches")
        self.counts = np.zeros((len(found), n_batches, found.shape[2]), dtype=np.int64)
        self.counts[:, : found.shape[1]] = found

    @classmethod
    def by_sweep(
        cls,
        target: Target,
        n_chains: int,
        sweep: int,
        kept: Sequence[RareValue] = (),
        n_all: int | None = None,
    ) -> "Tally":
        """Return one that looks often enough for chains that make a sweep in some transitions."""
        return cls(target, n_chains, sweep // _LOOKS_PER_SWEEP, kept, sweep, n_all)

    @classmethod
    def joined(cls, parts: "Sequence[Tally]") -> "Tally":
        """Return that of all chains, of which the parts have looked at some each, as often."""
        made = cls.__new__(cls)
        made.__dict__.update(parts[0].__dict__)
        for name in ("counts", "lp", "lp_sums", "lp_origin"):
            setattr(made, name, np.concatenate([getattr(part, name) for part in parts]))
        return made

    def add(self, states: States, lp: Array, thin: int) -> None:
        """Count some draws.

        Parameters
        ----------
        states : ndarray, shape (n_chains, n_draws, n_sites)
            Draws that follow those given before.
        lp : ndarray of float64, shape (n_chains, n_draws)
            Their log p.
        thin : int
            Transitions from one to the next.
        """
        n = states.shape[1]
        self.n_transitions += n * thin
        begin = max(0, -(-(self.every - self.since) // thin) - 1)
        chosen = np.arange(begin, n, max(1, -(-self.every // thin)))
        self.since = thin * (n - 1 - int(chosen[-1])) if chosen.size else self.since + thin * n
        done = 0
        while done < chosen.size:
            at, filled = divmod(self.n_draws, self.batch)
            now = chosen[done : done + self.batch - filled]
            self.counts[:, at] += self._counted(states[:, now][:, :, self.sites])
            self._keep_lp(lp[:, now])
            self._add_lp(lp[:, now], at)
            self.n_draws += now.size
            done += now.size
            if self.n_draws == self.counts.shape[1] * self.batch:  # two batches become one
                k = self.counts.shape[1] // 2
                self.counts[:, :k] = self.counts[:, ::2] + self.counts[:, 1::2]
                self.counts[:, k:] = 0
                self.lp_sums[:, :k] = self.lp_sums[:, ::2] + self.lp_sums[:, 1::2]
                self.lp_sums[:, k:] = 0.0
                self.batch *= 2

    def _counted(self, x: States) -> NDArray[np.int64]:
        if self.two_valued:
            found: NDArray[np.int64] = (x == self.values[1]).sum(axis=1)
            return found
        n_counts = self.counts.shape[2]
        size = np.diff(self.first, append=n_counts)
        index = np.searchsorted(self.values, x)
        # The first of two values is not counted.
        place = np.where(size > 1, self.first + index, np.where(index == 1, self.first, n_counts))
        rows = [np.bincount(row.ravel(), minlength=n_counts + 1)[:-1] for row in place]
        return np.array(rows)

    def _keep_lp(self, lp: Array) -> None:
        for k in range(lp.shape[1]):
            at, rest = divmod(self.n_draws + k, self.lp_every)
            if rest:
                continue
            if at == _MOST_LP:  # every second one is dropped
                self.lp[:, : _MOST_LP // 2] = self.lp[:, ::2]
                self.lp_every *= 2
                at //= 2
            self.lp[:, at] = lp[:, k]

    def _add_lp(self, lp: Array, at: int) -> None:
        if not self.n_draws:
            self.lp_origin = lp[:, 0].copy()
        z = lp - self.lp_origin[:, np.newaxis]
        parts = np.stack([z, np.square(z)], axis=2)
        # One after another, so that the sums do not depend on how draws are divided into calls.
        self.lp_sums[:, at] = np.cumsum(
            np.concatenate([self.lp_sums[:, at, np.newaxis], parts], axis=1), axis=1
        )[:, -1]

    @property
    def _sweeps_per_look(self) -> float:
        return self.n_transitions / (self.sweep * max(1, self.n_draws))

    def _is_long(self, n_draws: int) -> bool:
        """Whether so many draws are far more than any chain needs within a mode."""
        return n_draws * self._sweeps_per_look >= _LONG

    def of_values(self) -> Agreement:
        """Compare how often the values were seen, shape (n_counts,)."""
        n = self.n_draws // self.batch // 2 * 2
        sums = self.counts[:, :n].astype(np.float64)
        return agreement(sums, sums, self.batch, self._is_long(self.batch), self._centre(sums))

    def _centre(self, sums: Array) -> Array | None:
        """Return means of chains and of their images, which are as good; None if there are none.

        Of what a cycle of its values leaves as it is, a variable has all values equally often.
        """
        if self.symmetry is None or not sums.size:
            return None
        n_counts = sums.shape[2]
        size = np.diff(self.first, append=n_counts)
        k = np.repeat(np.maximum(size, 2), size)
        if self.symmetry == "cycle":
            return 1.0 / k
        first = np.repeat(self.first, size)
        p = sums.mean(axis=(0, 1)) / self.batch
        image = p[2 * first + np.repeat(size, size) - 1 - np.arange(n_counts)]
        return np.where(k > 2, (p + image) / 2, 0.5)

    def of_lp(self) -> Agreement:
        """Compare log p, by normal scores of its ranks; the effective size is that of its mean."""
        n = -(-self.n_draws // self.lp_every)
        n_batches = min(_MOST_BATCHES, n // 2 * 2)
        size = n // n_batches
        x = self.lp[:, : n_batches * size]
        z = normal_scores(x).reshape(len(x), n_batches, size)
        long = self._is_long(size * self.lp_every)
        found = agreement(z.sum(axis=2), np.square(z).sum(axis=2), size, long)
        # Those that are kept are too few to tell the effective size of a long run.
        whole = self.n_draws // self.batch // 2 * 2
        z, square = np.moveaxis(self.lp_sums[:, :whole], 2, 0)
        # From one origin for all chains.
        shift = (self.lp_origin - self.lp_origin[0])[:, np.newaxis]
        square = square + shift * (2.0 * z + self.batch * shift)
        sums = z + self.batch * shift
        return found._replace(ess=agreement(sums, square, self.batch).ess)

    def lost(self) -> list[int]:
        """Sites of values that chains keep for long, and that the draws have for a few visits."""
        size = np.diff(self.first, append=self.counts.shape[2])
        n_looks = self.n_draws * len(self.counts)
        result = []
        for site, index, sweeps in self.kept:
            place = int(np.searchsorted(self.sites, site))
            two = size[place] == 1  # of which the second value is counted
            seen = int(self.counts[:, :, self.first[place] + (0 if two else index)].sum())
            seen = n_looks - seen if two and index == 0 else seen
            if seen * self._sweeps_per_look < _FEWEST_VISITS * sweeps:
                result.append(site)
        return result

    def by_site(self, values: Array, best: np.ufunc) -> Array:
        """Reduce what is known of the values of each variable that is looked at."""
        result: Array = best.reduceat(values, self.first) if self.first.size else values
        return result


@dataclass
class Counters:
    """How far the chains have come.

    Parameters
    ----------
    pending : tuple of int
        (thin, transitions made) of a draw that is not finished.
    n_transitions : int
        Transitions of each chain since `fit`.
    n_draws : int
        Draws of each chain since `fit`: where a stored run goes on counting.
    tally : Tally, optional
        How often each value was seen, by which chains are compared.
    """

    pending: tuple[int, int] = (0, 0)
    n_transitions: int = 0
    n_draws: int = 0
    tally: Tally | None = None

    def copy(self) -> "Counters":
        """Return the same counts, to go on by themselves."""
        return copy.deepcopy(self)

"""A target of one's own, compiled part included: integer heights around a closed contour."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from sklsb import GibbsSampler, Target
from sklsb.extending import (
    first_move,
    flip,
    implements,
    init_cache,
    inlined,
    log_prob,
    log_ratio,
)
from sklsb.testing import check_target


class HeightsView(NamedTuple):
    """What the kernels see; the cache holds the sum of both neighbours of each height."""

    field: np.ndarray  # (n_sites, n_levels)
    stiffness: float
    touched_start: np.ndarray
    touched: np.ndarray

    @property
    def cache_size(self):
        return self.field.shape[0]


@inlined
def change_of(view, chain, move):
    """Site of a move, its height before and after."""
    others = view.field.shape[1] - 1
    site, after = np.int64(move) // others, np.int64(move) % others
    before = np.int64(chain.x[site])
    return site, before, after + np.int64(after >= before)


@implements(init_cache, HeightsView)
def _init_cache(view, chain):
    n = chain.x.size
    for i in range(n):
        chain.cache[i] = np.int64(chain.x[(i - 1) % n]) + chain.x[(i + 1) % n]


@implements(log_ratio, HeightsView)
def _log_ratio(view, chain, move):
    site, before, after = change_of(view, chain, move)
    steeper = (after - before) * (after + before - chain.cache[site])
    gained = view.field[site, after] - view.field[site, before]
    return gained - 2.0 * view.stiffness * steeper


@implements(flip, HeightsView)
def _flip(view, chain, move):
    site, before, after = change_of(view, chain, move)
    n = chain.x.size
    chain.x[site] = after
    chain.cache[(site - 1) % n] += after - before
    chain.cache[(site + 1) % n] += after - before
    return np.uint64(site * (view.field.shape[1] - 1) + before - np.int64(before > after))


@implements(first_move, HeightsView)
def _first_move(view, site):
    return np.uint64(site) * np.uint64(view.field.shape[1] - 1)


@implements(log_prob, HeightsView)
def _log_prob(view, chain):
    n = chain.x.size
    total = 0.0
    for i in range(n):
        step = np.int64(chain.x[(i + 1) % n]) - chain.x[i]
        total += view.field[i, chain.x[i]] - view.stiffness * (step * step)
    return total


class HeightRing(Target):
    r"""Heights 0, 1, ... around a ring of at least three sites, measured with noise.

    .. math::

        \log p(x) = -\lambda \sum_i (x_{i+1} - x_i)^2 - \sum_i (x_i - y_i)^2 / (2 \sigma^2)
    """

    dims = ("site",)

    def __init__(self, measured, n_levels, stiffness=0.5, noise_sd=1.0):
        self.measured = np.asarray(measured, dtype=float)
        self.shape = self.measured.shape
        self.values = tuple(range(n_levels))
        self.stiffness, self.noise_sd = float(stiffness), float(noise_sd)

    @property
    def field(self):
        distance = np.array(self.values) - self.measured[:, None]
        return -0.5 * np.square(distance / self.noise_sd)

    @property
    def graph(self):
        """Which sites are neighbours: it lets GibbsSampler("chromatic") find its classes."""
        n = self.n_sites
        i = np.arange(n)
        one_way = sp.coo_array((np.ones(n, dtype=bool), (i, (i + 1) % n)), shape=(n, n))
        return sp.csr_array(one_way + one_way.T)

    def log_prob(self, x):
        x = self.check_states(x)
        steps = np.diff(x.astype(float), axis=-1, append=x[..., :1])
        field = self.field[np.arange(self.n_sites), x].sum(axis=-1)
        return field - self.stiffness * np.square(steps).sum(axis=-1)

    def log_ratios(self, x):
        x = self.check_states(x).astype(np.int64)
        near = (np.roll(x, 1, axis=-1) + np.roll(x, -1, axis=-1))[..., None]
        before, after = x[..., None], np.arange(len(self.values) - 1)
        after = after + (after >= before)
        site = np.arange(self.n_sites)[:, None]
        gained = self.field[site, after] - self.field[site, before]
        ratios = gained - 2.0 * self.stiffness * (after - before) * (after + before - near)
        return ratios.reshape(*x.shape[:-1], -1)

    @cached_property
    def _view(self):
        # A move changes the log-ratios of all moves of its site and of both neighbours.
        others = len(self.values) - 1
        near = self.graph + sp.eye_array(self.n_sites, dtype=bool, format="csr")
        touched = sp.kron(near, np.ones((others, others), dtype=bool), format="csr")
        touched.sort_indices()
        return HeightsView(
            self.field,
            self.stiffness,
            touched.indptr.astype(np.uint64),
            touched.indices.astype(np.uint32),
        )

    def view(self):
        return self._view


def example():
    return HeightRing([0.3, 2.1, 1.2, 1.9], n_levels=3, stiffness=0.4)


if __name__ == "__main__":
    check_target(example())
    sampler = GibbsSampler("chromatic", n_chains=2, random_state=0).fit(example())
    print(dict(sampler.sample(100)["x"].sizes))

"""Draws of copies of the chains, as every trial makes them."""

from typing import Any

import numpy as np

from sklsb._kernels.run import Drawing
from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import at_once
from sklsb.targets.base import States

# Most values of variables held beside those that are wanted; most variables that are looked at.
_MOST_HELD, _MOST_SITES = 1 << 24, 1024


def some_of(sites: Ints) -> Ints:
    """Return variables to look at, at random: even and odd ones, or rows, may be treated apart."""
    return np.sort(np.random.default_rng(0).permutation(sites)[:_MOST_SITES])


def draw(chains: Any, n: int, thin: int, sites: Ints | None = None) -> tuple[States, Array]:
    """Make n draws ``thin`` transitions apart: x (n_chains, n, n_sites), log p and acceptance.

    The acceptance is 0 or NaN where nothing is refused. Of the variables only ``sites`` are kept.
    """
    n_chains, n_sites = chains.chains.x.shape
    if sites is not None and sites.size == n_sites:
        sites = None  # of all a copy would take as long as some draws
    x = np.empty((n_chains, n, n_sites if sites is None else sites.size), chains.chains.x.dtype)
    stats = np.zeros((n_chains, n, 2))
    most = thin * at_once(_MOST_HELD, n_chains * n_sites)
    for segment in chains.segments(n * thin, Drawing(thin), most=lambda: most):
        x[:, segment.places] = segment.x if sites is None else segment.x[:, :, sites]
        stats[:, segment.places] = segment.stats
    return x, stats

"""Samplers that may suit a target, ready to go on from given states."""

from collections.abc import Container, Iterator
from typing import Any

import numpy as np

from sklsb._kernels.enumeration import MOST_COUNTED
from sklsb.exact.elimination.reduce import tied_by_zeros
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers.clusters import ClusterSampler
from sklsb.samplers.elimination import EliminationSampler
from sklsb.samplers.gibbs import GibbsSampler, is_sparse
from sklsb.samplers.lsb import LSBSampler
from sklsb.targets._graphs import is_attractive
from sklsb.targets.base import States, Target
from sklsb.trials.prices import TABLE_ENTRY, is_on_torch
from sklsb.trials.reference import elimination_fits

# Variables of the random blocks, and most joint states of these.
_BLOCK, _MOST_STATES = 4, 256
# Table entries that may always be computed: about a second, which any fit that learns takes.
_LEAST_ENTRIES = 2.0**28


def challengers(target: Target) -> Iterator[tuple[str, BaseSampler]]:
    """Return samplers of single changes and clusters that a target allows, not fitted.

    On a sparse target sweeps in order are those by colour at a higher price, and a block of random
    variables hardly ever holds two that depend on each other: both are left out.
    """
    if is_on_torch(target):
        yield "exact ratios", LSBSampler("barker")
        return
    if tied_by_zeros(target):  # no sequence of single changes may lead everywhere
        return
    if target.offers.layers is not None:
        yield "layers", GibbsSampler("layers")
    asked = target.ratio_cost > 1  # a function of the user, by every change
    sparse = is_sparse(target) and not asked
    scan = "chromatic" if sparse else "systematic"
    yield scan, GibbsSampler(scan)
    if asked:
        return
    free = np.sort(target.n_possible[target.n_possible > 1])[-_BLOCK:]
    in_blocks = free.size == _BLOCK and not sparse
    if in_blocks and np.prod(free, dtype=float) <= min(_MOST_STATES, MOST_COUNTED):
        yield "blocks", GibbsSampler(block_size=_BLOCK)
    if is_attractive(target):
        yield "clusters", ClusterSampler()


def fitted_challengers(
    target: Target,
    states: States,
    seeds: list[int],
    settings: dict[str, Any],
    fitted: Container[str] = (),
) -> dict[str, BaseSampler]:
    """Return samplers whose chains are at these states, but for those that are fitted already."""
    found = {}
    for (name, sampler), seed in zip(challengers(target), seeds, strict=False):
        if name in fitted:
            continue
        sampler.set_params(**settings, n_burn_in=0, random_state=seed)
        sampler._fit(target, states)
        sampler._forget_burn_in()  # of chains that start elsewhere
        found[name] = sampler
    return found


def eliminated(
    target: Target, work: float, seed: int, settings: dict[str, Any]
) -> EliminationSampler | None:
    """Return a fitted sampler of independent draws, if that takes about this many nanoseconds."""
    most = max(_LEAST_ENTRIES, work / TABLE_ENTRY)
    if not elimination_fits(target, most):
        return None
    made = EliminationSampler(max_work=most, random_state=seed, **settings)
    made._fit(target, None)
    return made

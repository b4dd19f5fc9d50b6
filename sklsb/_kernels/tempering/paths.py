"""Paths of distributions from a reference to a target, in the kernels.

A *path* is a named tuple that has the view of the target at each of some levels. At level 0 is the
reference, uniform on a product of sets of values, which is drawn from directly; at the last level
is the target itself, bit for bit.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import contract, implements, inlined
from sklsb._kernels.contract import log_prob
from sklsb._kernels.targets.conditioned import ConditionedView
from sklsb._kernels.targets.markov_network import MarkovNetworkView
from sklsb._kernels.targets.tempered import TemperedView


class Reference(NamedTuple):
    """Independent variables, each uniform on some of its values."""

    site: NDArray[np.int64]  # those that are drawn
    start: NDArray[np.int64]  # of the values of each of them, and their number
    value: NDArray[np.int64]


class Scaled(NamedTuple):
    """The path of log p times beta."""

    inner: Any
    beta: NDArray[np.float64]  # of each level
    reference: Reference
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]


class Softened(NamedTuple):
    """The path of tables that are given at each level, zeros being softened on the way."""

    inner: Any
    beta: NDArray[np.float64]
    reference: Reference
    log_table: NDArray[np.float64]  # (n_levels, n_entries)


@contract(0)
def at_level(path, k):
    """View of the target at a level."""


@contract(0)
def log_probs(path, chain, k):
    """Log p of a state at the levels k and k + 1, and at the last one."""


@contract(0)
def with_log_table(view, log_table):
    """Return the same view with other tables."""


@implements(with_log_table, MarkovNetworkView)
def _network_with(view, log_table):
    return MarkovNetworkView(
        log_table,
        view.table_start,
        view.factor_start,
        view.factor,
        view.stride,
        view.first,
        view.site,
        view.touched_start,
        view.touched,
    )


@implements(with_log_table, ConditionedView)
def _conditioned_with(view, log_table):
    inner = with_log_table(view.inner, log_table)
    return ConditionedView(inner, view.observed, view.touched_start, view.touched)


@implements(at_level, Scaled)
def _scaled_at(path, k):
    return TemperedView(path.inner, path.beta[k], path.touched_start, path.touched)


@implements(at_level, Softened)
def _softened_at(path, k):
    return with_log_table(path.inner, path.log_table[k])


@implements(log_probs, Scaled)
def _scaled_log_probs(path, chain, k):
    found = log_prob(path.inner, chain)
    # The reference is uniform also where the target is zero: 0 * (-inf) = 0.
    low = 0.0 if path.beta[k] == 0.0 else path.beta[k] * found
    return low, path.beta[k + 1] * found, found


@implements(log_probs, Softened)
def _softened_log_probs(path, chain, k):
    low = log_prob(at_level(path, k), chain)
    high = log_prob(at_level(path, k + 1), chain)
    last = path.beta.size - 1
    top = high if k + 1 == last else log_prob(at_level(path, last), chain)
    return low, high, top


@inlined
def draw_reference(reference, chain, u):
    """Draw from the reference by one uniform number for each variable."""
    for j in range(reference.site.size):
        first = reference.start[j]
        n = reference.start[j + 1] - first
        k = min(np.int64(u[j] * n), n - 1)
        chain.x[reference.site[j]] = reference.value[first + k]

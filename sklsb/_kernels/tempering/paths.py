"""Paths of distributions from a reference to a target.

A *path* is a named tuple that gives a view at each level. Level 0 is the reference, a product of
distributions of single variables, which is drawn from directly; the last level is the target, bit
for bit.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import contract, implements, inlined
from sklsb._kernels.contract import (
    first_move,
    hidden_activation,
    log_prob,
    log_ratio,
    visible_field,
)
from sklsb._kernels.numeric import softplus
from sklsb._kernels.targets.conditioned import ConditionedView
from sklsb._kernels.targets.inner import passing_on
from sklsb._kernels.targets.markov_network import MarkovNetworkView
from sklsb._kernels.targets.tempered import TemperedView


class Reference(NamedTuple):
    """Independent variables."""

    site: NDArray[np.int64]  # variables drawn
    start: NDArray[np.int64]  # of the values of each, and their number
    value: NDArray[np.int64]
    upto: NDArray[np.float64]  # cumulative probability


class Scaled(NamedTuple):
    """The path of log p times beta."""

    inner: Any
    beta: NDArray[np.float64]  # of each level
    reference: Reference
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]


class Softened(NamedTuple):
    """The path with tables of its own at each level, in which zeros are softened."""

    inner: Any
    beta: NDArray[np.float64]
    reference: Reference
    log_table: NDArray[np.float64]  # (n_levels, n_entries)


class Guide(NamedTuple):
    """Log q of a nonuniform reference."""

    log_q: NDArray[np.float64]  # of all values of each variable; 0 if impossible
    start: NDArray[np.int64]  # of each variable
    site: NDArray[np.uint32]  # of each move
    place: NDArray[np.int64]  # see `places_of`


class Guided(NamedTuple):
    """Another path, with (1 - beta) log q added."""

    inner: Any
    beta: NDArray[np.float64]
    reference: Reference
    path: Any
    guide: Guide


class Joint(NamedTuple):
    """The path of two layers: log p of both times beta, plus (1 - beta) log q of the visible one.

    Levels are distributions of the visible units alone: hidden units are summed out at each.
    """

    inner: Any
    beta: NDArray[np.float64]
    reference: Reference
    visible_bias: NDArray[np.float64]
    log_odds: NDArray[np.float64]  # of visible units in q
    n_hidden: int


@passing_on
class JointView(NamedTuple):
    """The view of a machine at a level."""

    inner: Any
    beta: float
    path: Joint


@passing_on
class GuidedView(NamedTuple):
    """The view of a target, with a multiple of log q added to log p."""

    inner: Any
    weight: float
    guide: Guide
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]


@contract(0)
def at_level(path, k):
    """View of the target at a level."""


@contract(0)
def log_probs(path, chain, k):
    """Log p of a state at levels k and k + 1 and at the last one."""


@contract(0)
def with_log_table(view, log_table):
    """Return the same view with other tables."""


@implements(with_log_table, MarkovNetworkView)
def _network_with(view, log_table):
    return MarkovNetworkView(log_table, *view[1:])


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


@implements(at_level, Joint)
def _joint_at(path, k):
    return JointView(path.inner, path.beta[k], path)


@implements(log_probs, Joint)
def _joint_log_probs(path, chain, k):
    low, high = log_prob(at_level(path, k), chain), log_prob(at_level(path, k + 1), chain)
    return low, high, log_prob(path.inner, chain)


@implements(hidden_activation, JointView)
def _hidden_activation(view, chain, j):
    return view.beta * hidden_activation(view.inner, chain, j)


@implements(visible_field, JointView)
def _visible_field(view, i, field):
    return view.beta * field + (1.0 - view.beta) * view.path.log_odds[i]


@implements(log_prob, JointView)
def _joint_log_prob(view, chain):
    result = 0.0
    for i in range(chain.x.size):
        if chain.x[i]:
            result += visible_field(view, i, view.path.visible_bias[i])
    for j in range(view.path.n_hidden):
        result += softplus(hidden_activation(view, chain, j))
    return result


@inlined
def _log_q(guide, chain):
    total = 0.0
    for i in range(chain.x.size):
        total += guide.log_q[guide.start[i] + guide.place[np.int64(chain.x[i])]]
    return total


@implements(at_level, Guided)
def _guided_at(path, k):
    view = at_level(path.path, k)
    return GuidedView(view, 1.0 - path.beta[k], path.guide, view.touched_start, view.touched)


@implements(log_probs, Guided)
def _guided_log_probs(path, chain, k):
    low, high, top = log_probs(path.path, chain, k)
    log_q = _log_q(path.guide, chain)
    return low + (1.0 - path.beta[k]) * log_q, high + (1.0 - path.beta[k + 1]) * log_q, top


@implements(log_ratio, GuidedView)
def _log_ratio(view, chain, move):
    guide = view.guide
    site = guide.site[move]
    begin = guide.start[site]
    now = guide.place[np.int64(chain.x[site])]
    new = np.int64(move) - np.int64(first_move(view.inner, np.uint64(site)))
    new += np.int64(new >= now)
    change = guide.log_q[begin + new] - guide.log_q[begin + now]
    return log_ratio(view.inner, chain, move) + view.weight * change


@implements(log_prob, GuidedView)
def _log_prob(view, chain):
    return log_prob(view.inner, chain) + view.weight * _log_q(view.guide, chain)


@inlined
def draw_reference(reference, chain, u):
    """Draw from the reference by one uniform number per variable."""
    for j in range(reference.site.size):
        k, last = reference.start[j], reference.start[j + 1] - 1
        while k < last and u[j] >= reference.upto[k]:
            k += 1
        chain.x[reference.site[j]] = reference.value[k]

"""The sampled objectives and their gradients at the knots, for first-order proposals.

A second form of ``_surprise`` and ``_bound`` in ``sklsb/ensembles/_torch/objectives.py``.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import called, inlined, kernel
from sklsb._kernels.first_order.step import Weighed, usable


class Looked(NamedTuple):
    """The states that a move of each state leads to."""

    move: NDArray[np.int64]  # (n_chains, 1)
    back: NDArray[np.int64]  # (n_chains, 1)
    log_ratio: NDArray[np.float64]  # log p there less log p here
    weighed: Weighed


@inlined
def _add(table, u, amount, gradient):
    """Add ``amount`` times the derivative of q(u) by the values at the knots."""
    last = table.value.size - 1
    a = min(abs(u) * table.inverse_step, np.float64(last))
    knot = min(np.int64(a), last - 1)
    upper = amount * (a - knot)
    gradient[knot] += amount - upper
    gradient[knot + 1] += upper


@called
def _add_log_q(table, weighed, c, move, amount, gradient):
    """Add ``amount`` times the derivative of log Q(move) = log w(move) - log sum w at state c."""
    ratios, weights = weighed.ratios[c], weighed.weights[c]
    each = -amount / weighed.cumulative[c, -1]
    for m in range(weights.size):
        if weights[m] > 0.0:
            _add(table, usable(ratios[m]), each * np.float64(weights[m]), gradient)
    _add(table, usable(ratios[move]), amount, gradient)


@inlined
def _log_q(weighed, c, move):
    """Return the log of the probability of a move at state c."""
    return np.log(np.float64(weighed.weights[c, move])) - weighed.logs[c, 0]


@called
def _log_t(here, there, c):
    """Return the logs of the proposal, of its acceptance, unbounded, and of the transition."""
    forth = _log_q(here, c, there.move[c, 0])
    log_a = there.log_ratio[c] + _log_q(there.weighed, c, there.back[c, 0]) - forth
    happens = forth > -np.inf and there.log_ratio[c] > -np.inf
    log_t = forth + min(log_a, 0.0) if happens else -np.inf
    return forth, log_a, log_t


@called
def _add_log_t(table, here, there, c, log_a, amount, gradient):
    """Add ``amount`` times the derivative of the log of the transition."""
    if log_a < 0.0:
        _add_log_q(table, there.weighed, c, there.back[c, 0], amount, gradient)
    else:
        _add_log_q(table, here, c, there.move[c, 0], amount, gradient)


@kernel
def surprise(table, log_omega, here, there, gradient):
    """Sum the terms of a proposed neighbour of each chain.

    Their derivative by the knots is added to ``gradient``.
    """
    value = 0.0
    for c in range(log_omega.size):
        forth, log_a, log_t = _log_t(here, there, c)
        if log_t > -np.inf and log_omega[c] > -np.inf:
            log_share = log_omega[c] + log_t - forth
            term = log_t - there.log_ratio[c] - log_omega[c]
            share = math.exp(log_share)
            value += share * term
            _add_log_t(table, here, there, c, log_a, share * (1.0 + term), gradient)
    return value


@kernel
def refusal(table, eta, log_omega, here, there, gradient):
    """Sum the bounds at a uniform neighbour of each chain; also return the derivative by eta.

    That by the knots is added to ``gradient``.
    """
    value, by_eta = 0.0, 0.0
    for c in range(log_omega.size):
        _, log_a, log_t = _log_t(here, there, c)
        t, omega = math.exp(log_t), math.exp(log_omega[c])
        stay, slope = 1.0 - t, omega * (math.log(eta) + 1.0)
        value += stay * (eta * stay - slope)
        by_eta += stay * (stay - omega / eta)
        if t > 0.0:
            amount = (slope - 2.0 * eta * stay) * t
            _add_log_t(table, here, there, c, log_a, amount, gradient)
    return value, by_eta

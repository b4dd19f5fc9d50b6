"""The sampled objectives and their gradients at the knots, for first-order proposals.

A second form of ``_surprise`` and ``_bound`` in ``sklsb/ensembles/_torch/objectives.py``.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import called, inlined, kernel
from sklsb._kernels.first_order.step import Weighed, locate


class Looked(NamedTuple):
    """States that moves lead to, one row each."""

    move: NDArray[np.int64]
    back: NDArray[np.int64]
    log_ratio: NDArray[np.float64]  # log p there less log p here
    weighed: Weighed


@called
def _add_log_q(weighing, weighed, row, move, amount, gradient):
    """Add ``amount`` times the derivative of log Q(move) = log w(move) - log sum w at a state.

    In each interval q is linear in the values at two knots, beyond the last knot in the value
    there. ``gradient`` has a number more, for the knot after the last.
    """
    scratch, weights = weighing.scratch, weighed.weights[row]
    knot, beyond = scratch.knot, scratch.beyond
    locate(weighing, weighed.ratios[row])
    last = weighing.knots.size - 1
    for m in range(knot.size):
        beyond[m] = beyond[m] if knot[m] < last else beyond.dtype.type(0.0)
    each = -amount / weighed.cumulative[row, -1]
    for m in range(knot.size):
        share = each * np.float64(weights[m])
        upper = share * np.float64(beyond[m])
        k = np.uint64(knot[m])
        gradient[k] += share - upper
        gradient[k + np.uint64(1)] += upper
    upper = amount * np.float64(beyond[move])
    gradient[knot[move]] += amount - upper
    gradient[knot[move] + 1] += upper


@inlined
def _log_q(weighed, row, move):
    """Return the log of the probability of a move."""
    return np.log(np.float64(weighed.weights[row, move])) - weighed.logs[row, 0]


@called
def _log_t(here, there, c, row):
    """Return the logs of the proposal, of its acceptance, unbounded, and of the transition."""
    forth, log_ratio = _log_q(here, c, there.move[row]), there.log_ratio[row]
    log_a = log_ratio + _log_q(there.weighed, row, there.back[row]) - forth
    happens = forth > -np.inf and log_ratio > -np.inf
    log_t = forth + min(log_a, 0.0) if happens else -np.inf
    return forth, log_a, log_t


@called
def _add_log_t(weighing, here, there, c, row, log_a, amount, gradient):
    """Add ``amount`` times the derivative of the log of the transition."""
    if log_a < 0.0:
        _add_log_q(weighing, there.weighed, row, there.back[row], amount, gradient)
    else:
        _add_log_q(weighing, here, c, there.move[row], amount, gradient)


@kernel
def surprise(weighing, log_omega, here, there, gradient):
    """Sum the terms of a proposed neighbour of each chain; these are the first rows of ``there``.

    Their derivative by the knots is added to ``gradient``; see `_add_log_q`.
    """
    value = 0.0
    for c in range(log_omega.size):
        forth, log_a, log_t = _log_t(here, there, c, c)
        if log_t > -np.inf and log_omega[c] > -np.inf:
            term = log_t - there.log_ratio[c] - log_omega[c]
            share = math.exp(log_omega[c] + log_t - forth)
            value += share * term
            _add_log_t(weighing, here, there, c, c, log_a, share * (1.0 + term), gradient)
    return value


@kernel
def refusal(weighing, eta, log_omega, here, there, gradient):
    """Sum the bounds at a uniform neighbour of each chain; these are the last rows of ``there``.

    Also return the derivative by eta. That by the knots is added to ``gradient``.
    """
    value, by_eta, n = 0.0, 0.0, log_omega.size
    for c in range(n):
        row = there.move.size - n + c
        _, log_a, log_t = _log_t(here, there, c, row)
        t, omega = math.exp(log_t), math.exp(log_omega[c])
        stay, slope = 1.0 - t, omega * (math.log(eta) + 1.0)
        value += stay * (eta * stay - slope)
        by_eta += stay * (stay - omega / eta)
        if t > 0.0:
            amount = (slope - 2.0 * eta * stay) * t
            _add_log_t(weighing, here, there, c, row, log_a, amount, gradient)
    return value, by_eta

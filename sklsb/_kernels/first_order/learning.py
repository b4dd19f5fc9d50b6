"""The sampled objectives and their gradients at the knots, for first-order proposals.

A second form of ``_surprise`` and ``_bound`` in ``sklsb/ensembles/_torch/objectives.py``.
"""

import math

import numpy as np

from sklsb._kernels._jit import called, inlined, kernel
from sklsb._kernels.first_order.step import log_q, log_weights, usable
from sklsb._kernels.numeric import exp


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
def _add_log_q(weighing, ratios, logs, move, amount, gradient):
    """Add ``amount`` times the derivative of log Q(move) = log w(move) - log sum w."""
    log_weights(weighing, ratios, 0, ratios.size)
    log_weight, share = weighing.scratch.logs, weighing.scratch.weights
    for m in range(share.size):
        share[m] = exp((log_weight[m] - logs[1]) - logs[0])
    for m in range(share.size):
        if share[m] > 0.0:
            _add(weighing.table, usable(ratios[m]), -amount * share[m], gradient)
    _add(weighing.table, usable(ratios[move]), amount, gradient)


@kernel
def sampled(weighing, eta, log_omega, here, there, moves, back, log_ratio, gradient):
    """Sum the terms of a drawn neighbour of each chain, and of a uniform one if there are two.

    ``there`` are the ratios at the neighbours, one row for each of ``moves`` (n_chains, 1 or 2).
    Returns the value and its derivative by eta; that by the knots is added to ``gradient``.
    """
    value, by_eta = 0.0, 0.0
    for c in range(moves.shape[0]):
        omega = math.exp(log_omega[c])
        for r in range(moves.shape[1]):
            row, move, score = c * moves.shape[1] + r, moves[c, r], 0.0
            forth = log_q(weighing, here.ratios[c], here.logs[c], move)
            log_a = log_ratio[row] + log_q(weighing, there.ratios[row], there.logs[row], back[row])
            log_a -= forth
            happens = forth > -np.inf and log_ratio[row] > -np.inf
            log_t = forth + min(log_a, 0.0) if happens else -np.inf
            happens = log_t > -np.inf
            if r > 0:
                stay = 1.0 - math.exp(log_t)
                slope = omega * (math.log(eta) + 1.0)
                value += stay * (eta * stay - slope)
                by_eta += stay * (stay - omega / eta)
                score = (slope - 2.0 * eta * stay) * math.exp(log_t)
            elif happens and omega > 0.0:
                surprise = log_t - log_ratio[row] - log_omega[c]
                share = math.exp(log_omega[c] + log_t - forth)
                value += share * surprise
                score = share * (1.0 + surprise)
            if not happens or score == 0.0:
                continue
            if log_a < 0.0:
                _add_log_q(weighing, there.ratios[row], there.logs[row], back[row], score, gradient)
            else:
                _add_log_q(weighing, here.ratios[c], here.logs[c], move, score, gradient)
    return value, by_eta

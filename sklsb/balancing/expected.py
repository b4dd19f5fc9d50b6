r"""What candidates for sampling may be worth, from flows at visited states, before any is run.

If variable i alone changed, its autocorrelation time would be its variance over its flow,

.. math::
    \tau_i = v_i / \phi_i, \qquad \phi_i = \frac{E \, w_i(x)}{E \, Z(x)} \;\text{(jumps)}, \qquad
    \phi_i = E \, \frac{w_i(x)}{Z(x)} \;\text{(steps, if all are accepted)},

with w_i the weight of its moves and v_i = 1 - sum_s P(x_i = s)^2. A candidate may be worth
1 / tau, with tau the mean of tau_i weighted by v_i. That is no promise: variables that must change
together are slower. But it says well which function wastes its moves on what hardly ever changes,
and costs nothing.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sklsb.balancing.candidates import Candidate, Visited
from sklsb.balancing.learning import site_variances
from sklsb.balancing.weights import log_weights, site_of_moves

Array = NDArray[np.float64]
# Nats below the best at which a candidate is no longer told from worse ones.
_LEAST = 4.0


def expected_sizes(candidates: Mapping[str, Candidate], seen: Visited) -> Array:
    """Return logarithms of what moves of the candidates may be worth, up to a common constant.

    Functions and factors that were fitted to these very states get no more than the best other.
    """
    target = seen.target
    variance = site_variances(target, seen.states, seen.ratios)
    if not (variance > 0.0).any():
        return np.zeros(len(candidates))
    found = np.array([_log_size(c, seen, variance) for c in candidates.values()])
    fitted = np.array([c.learned and not c.of_runs for c in candidates.values()])
    if not fitted.all():
        found[fitted] = np.minimum(found[fitted], found[~fitted].max())
    return np.maximum(found - found.max(), -_LEAST)


def _log_size(candidate: Candidate, seen: Visited, variance: Array) -> float:
    target = seen.target
    log_w = log_weights(candidate.rule(target), seen.ratios)
    log_z = logsumexp(log_w, axis=1, keepdims=True)
    log_z = np.where(np.isfinite(log_z), log_z, 0.0)
    log_w = log_w - (log_z.max() if candidate.jumps else log_z)
    w = np.exp(log_w)
    by_move = w.mean(axis=0) / max(w.sum() / len(w), 1e-300)
    flow = np.bincount(site_of_moves(target), by_move, target.n_sites)
    moves = variance > 0.0
    time = variance[moves] ** 2 / np.maximum(flow[moves], 1e-300)
    return float(np.log(variance.sum()) - np.log(time.sum()))

"""Means at any temperature from draws at several: the multiple-histogram method."""

import numpy as np
from scipy.special import logsumexp, softmax

from sklsb._system.arrays import Array

# Bins of log p for the weights of the levels: so many of equal width, and with equal draws.
_BINS = 4096
_MOST_STEPS, _TOLERANCE = 100, 1e-10
# Errors need this share of the batches to carry the weight, and the levels' equations this precise.
_LEAST, _OFF = 1 / 4, 0.01


def log_weights(lp: Array, beta: Array) -> Array:
    r"""Return f_k = -log Z of each level, up to a constant, from log p of as many draws of each.

    They maximise the likelihood, so that a draw is of level k with the probabilities

    .. math:: \frac{e^{f_k + \beta_k \log p}}{\sum_l e^{f_l + \beta_l \log p}}

    whose sum over all draws is the number of those at level k. ``lp`` has shape (..., n_levels).
    """
    flat, step = lp.reshape(-1, beta.size), np.diff(beta)
    wide = np.linspace(lp.min(), max(lp.max(), np.nextafter(lp.min(), np.inf)), _BINS + 1)
    edges = np.union1d(wide, np.quantile(lp, np.linspace(0.0, 1.0, _BINS + 1)))
    n, sums = (np.histogram(lp, edges, weights=w)[0] for w in (None, lp))
    center, share = sums[n > 0] / n[n > 0], n[n > 0] * (beta.size / lp.size)
    # Means of log p would do for a start, but for states of far smaller probability than others.
    both = logsumexp(step * flat[:, :-1], axis=0) - logsumexp(-step * flat[:, 1:], axis=0)
    f = -np.concatenate([[0.0], np.cumsum(0.5 * both)])
    for _ in range(_MOST_STEPS):
        p = softmax(f + np.outer(center, beta), axis=1)
        excess = share @ p - 1.0
        if np.abs(excess).max() < _TOLERANCE:
            break
        step = np.linalg.lstsq(_hessian(p, share), excess[1:])[0]
        f[1:] -= step / max(1.0, np.abs(step).max())
    return f


def _hessian(p: Array, weight: Array) -> Array:
    """Return the derivatives of the sums of p by f, without the first level."""
    p = p[:, 1:]
    return np.asarray(np.diag(weight @ p) - (p * weight[:, np.newaxis]).T @ p)


def reweighted(
    lp: Array, beta: Array, wanted: Array, values: Array, n_batches: int
) -> tuple[Array, Array]:
    r"""Return means at the betas wanted, and those without each batch of draws at all levels.

    .. math:: \langle a \rangle_\beta = \frac{\sum_i w_i a_i}{\sum_i w_i}, \qquad
              w_i = \frac{e^{\beta \log p_i}}{\sum_k e^{f_k + \beta_k \log p_i}}

    ``lp`` has shape (n_chains, n_draws, n_levels), ``values`` also a last axis, n_draws a multiple
    of n_batches. The results have shapes (n_wanted, n) and (n_chains, n_batches, n_wanted, n).
    Without a batch everything changes to first order, f_k too. These are NaN at betas where a few
    batches carry the weight, as far from all levels.
    """
    n_chains, n_draws, n_levels = lp.shape
    n, size, width = n_chains * n_batches, n_draws // n_batches, values.shape[-1]
    lp = lp - lp.max()  # a large constant would take digits
    f = log_weights(lp, beta)
    about = np.interp(wanted, beta, f)  # keeps weights in range
    sums, of_level = np.empty((n, wanted.size, width + 1)), np.empty((n, n_levels))
    by_level = np.zeros((wanted.size, n_levels, width + 1))
    hessian = np.zeros((n_levels - 1, n_levels - 1))
    rows = zip(lp.reshape(n, -1), values.reshape(n, -1, width), strict=True)
    for b, (x, own) in enumerate(rows):
        logs = f + np.outer(x, beta)
        log_all = logsumexp(logs, axis=1, keepdims=True)
        p, w = np.exp(logs - log_all), np.exp(np.outer(x, wanted) + about - log_all)
        a = np.column_stack([np.ones_like(x), own])
        sums[b], of_level[b] = w.T @ a, p.sum(axis=0)
        by_level += np.stack([(p * one[:, np.newaxis]).T @ a for one in w.T])
        hessian += _hessian(p, np.ones_like(x))
    total = sums.sum(axis=0)[:, :1]
    mean = sums.sum(axis=0)[:, 1:] / total
    change = (mean * sums[..., :1] - sums[..., 1:]) / total
    of_f = (mean[:, np.newaxis] * by_level[..., :1] - by_level[..., 1:]) / total[:, np.newaxis]
    change_of_f = np.linalg.lstsq(hessian, (of_level - size)[:, 1:].T)[0]
    change += np.einsum("kb,tkq->btq", change_of_f, of_f[:, 1:])
    without = mean + change * (n / max(1, n - 1))
    off = np.abs(of_level.sum(axis=0) / (n * size) - 1.0).max() > _OFF
    without[:, off | (total[:, 0] ** 2 < _LEAST * n * (sums[..., 0] ** 2).sum(axis=0))] = np.nan
    return mean, without.reshape(n_chains, n_batches, *mean.shape)

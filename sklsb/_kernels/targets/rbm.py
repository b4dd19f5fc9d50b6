"""The restricted Boltzmann machine in the kernels."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import called, contract, implements, inlined
from sklsb._kernels.contract import flip, hidden_activation, init_cache, log_prob, log_ratio
from sklsb._kernels.numeric import as_float, exp, softplus


class RBMView(NamedTuple):
    """A restricted Boltzmann machine without its hidden units, padded to a multiple of 4 of them.

    The cache holds sum_i x_i W_ij of each hidden unit, as an integer multiple of ``unit``; then, as
    the bits of floats, two functions of its activation, the log-ratios and their products. With
    ``span`` = 0 the weights are extreme: ``weight`` holds W_ij instead of exp W_ij, and the sums
    are floats, recomputed in every move.
    """

    visible_bias: NDArray[np.float64]
    hidden_bias: NDArray[np.float64]
    reach: NDArray[np.float64]  # visible_bias_i + sum_j W_ij
    weight: NDArray[np.float64]  # (n_hidden, n_visible)
    unit: NDArray[np.float64]  # of each hidden unit
    coupling: NDArray[np.int64]  # (n_visible, n_hidden): the weights in these units
    span: int  # number of factors whose product cannot overflow
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]

    @property
    def cache_size(self) -> int:
        return 3 * self.hidden_bias.size + 3 * self.visible_bias.size


@inlined
def _floats(view, chain):
    """Return the cache in parts: sums, two functions of activations, ratios, products, states."""
    m, n = view.hidden_bias.size, view.visible_bias.size
    floats = chain.cache.view(np.float64)
    first = 3 * m
    return (
        floats[:m],
        floats[m : 2 * m],
        floats[2 * m : first],
        floats[first : first + n],
        floats[first + n : first + 2 * n],
        floats[first + 2 * n :],
    )


class RBMSiteView(NamedTuple):
    """The same for rules that need few log-ratios: they are computed on demand.

    The cache holds the sum and two functions of the activation of each hidden unit.
    """

    visible_bias: NDArray[np.float64]
    hidden_bias: NDArray[np.float64]
    reach: NDArray[np.float64]
    weight: NDArray[np.float64]  # (n_visible, n_hidden)
    unit: NDArray[np.float64]
    coupling: NDArray[np.int64]
    span: int

    @property
    def cache_size(self) -> int:
        return 3 * self.hidden_bias.size


@implements(hidden_activation, RBMView, RBMSiteView)
def _activation(view, chain, j):
    """c_j + sum_i x_i W_ij."""
    if view.span == 0:
        return view.hidden_bias[j] + as_float(chain.cache[j])
    return view.hidden_bias[j] + view.unit[j] * chain.cache[j]


@inlined
def _probabilities(view, chain, off, on):
    """Compute the probabilities of each hidden unit's values given the visible units."""
    for j in range(off.size):
        a = hidden_activation(view, chain, j)
        small = exp(-abs(a))
        likely, unlikely = 1.0 / (1.0 + small), small / (1.0 + small)
        on[j] = likely if a > 0.0 else unlikely
        off[j] = unlikely if a > 0.0 else likely


@inlined
def _products(view, chain):
    """Compute log-ratios as logarithms of products over hidden units.

    With s_j the probability of unit j given x and t_j = 1 - s_j, the factor of a unit whose
    activation grows by W is t_j + s_j exp W; if it shrinks by W, (s_j + t_j exp W) / exp W. Both
    terms are positive, so nothing cancels.
    """
    _, off, on, ratio, product, state = _floats(view, chain)
    m, n = off.size, state.size
    _probabilities(view, chain, off, on)
    for i in range(n):
        state[i] = chain.x[i]
        ratio[i] = -view.reach[i] if chain.x[i] else view.visible_bias[i]
        product[i] = 1.0
    for j in range(0, m, 4):
        t0, t1, t2, t3 = off[j], off[j + 1], off[j + 2], off[j + 3]
        s0, s1, s2, s3 = on[j], on[j + 1], on[j + 2], on[j + 3]
        for i in range(n):
            falls = state[i] > 0.0
            f0 = (s0 if falls else t0) + (t0 if falls else s0) * view.weight[j, i]
            f1 = (s1 if falls else t1) + (t1 if falls else s1) * view.weight[j + 1, i]
            f2 = (s2 if falls else t2) + (t2 if falls else s2) * view.weight[j + 2, i]
            f3 = (s3 if falls else t3) + (t3 if falls else s3) * view.weight[j + 3, i]
            product[i] *= (f0 * f1) * (f2 * f3)
        if (j + 4) % view.span == 0 or j + 4 == m:
            for i in range(n):
                ratio[i] += math.log(product[i])
                product[i] = 1.0


@inlined
def _sums(view, chain):
    """Compute log-ratios for extreme weights, as sums of logarithms."""
    total, off, on, ratio, _, state = _floats(view, chain)
    for j in range(off.size):
        total[j] = 0.0
        for i in range(state.size):
            if chain.x[i]:
                total[j] += view.weight[j, i]
        a = hidden_activation(view, chain, j)
        on[j], off[j] = -softplus(-a), -softplus(a)
    for i in range(state.size):
        sign = -1.0 if chain.x[i] else 1.0
        ratio[i] = sign * view.visible_bias[i]
        for j in range(off.size):
            risen = on[j] + sign * view.weight[j, i]
            ratio[i] += max(off[j], risen) + math.log1p(math.exp(-abs(off[j] - risen)))


@called
def _refresh_ratios(view, chain):
    """Recompute all log-ratios: every move changes all of them."""
    if view.span == 0:
        _sums(view, chain)
    else:
        _products(view, chain)


@contract(0)
def refresh(view, chain):
    """Recompute what follows from the state and the sums over its visible units."""


@implements(refresh, RBMView)
def _refresh(view, chain):
    _refresh_ratios(view, chain)


@implements(init_cache, RBMView, RBMSiteView)
def _init_cache(view, chain):
    chain.cache[:] = 0
    for i in range(view.coupling.shape[0]):
        if chain.x[i]:
            for j in range(view.coupling.shape[1]):
                chain.cache[j] += view.coupling[i, j]
    refresh(view, chain)


@implements(log_ratio, RBMView)
def _log_ratio(view, chain, move):
    first = np.uint64(3 * view.hidden_bias.size)
    return as_float(chain.cache[first + np.uint64(move)])


@implements(flip, RBMView, RBMSiteView)
def _flip(view, chain, move):
    change = 1 - 2 * np.int64(chain.x[move])
    chain.x[move] += change
    for j in range(view.coupling.shape[1]):
        chain.cache[j] += view.coupling[move, j] * change
    refresh(view, chain)
    return move


@implements(log_prob, RBMView, RBMSiteView)
def _log_prob(view, chain):
    result = 0.0
    for i in range(chain.x.size):
        if chain.x[i]:
            result += view.visible_bias[i]
    for j in range(view.hidden_bias.size):
        result += softplus(hidden_activation(view, chain, j))
    return result


@inlined
def _functions(view, chain):
    """Return the two functions of the activations: probabilities, or their logarithms."""
    m = view.hidden_bias.size
    floats = chain.cache.view(np.float64)
    return floats[m : 2 * m], floats[2 * m :]


@called
def _refresh_functions(view, chain):
    off, on = _functions(view, chain)
    if view.span > 0:
        _probabilities(view, chain, off, on)
        return
    sums = chain.cache.view(np.float64)
    for j in range(off.size):
        sums[j] = 0.0
        for i in range(chain.x.size):
            if chain.x[i]:
                sums[j] += view.weight[i, j]
        a = hidden_activation(view, chain, j)
        on[j], off[j] = -softplus(-a), -softplus(a)


@implements(refresh, RBMSiteView)
def _refresh_site(view, chain):
    _refresh_functions(view, chain)


@implements(log_ratio, RBMSiteView)
def _site_log_ratio(view, chain, move):
    """As `_products` and `_sums`, for one unit."""
    off, on = _functions(view, chain)
    m, falls = off.size, chain.x[move] > 0
    if view.span == 0:
        sign = -1.0 if falls else 1.0
        result = sign * view.visible_bias[move]
        for j in range(m):
            risen = on[j] + sign * view.weight[move, j]
            result += max(off[j], risen) + math.log1p(math.exp(-abs(off[j] - risen)))
        return result
    result = -view.reach[move] if falls else view.visible_bias[move]
    first, second = (on, off) if falls else (off, on)
    product = 1.0
    for j in range(0, m, 4):
        w = view.weight[move, j : j + 4]
        f0 = first[j] + second[j] * w[0]
        f1 = first[j + 1] + second[j + 1] * w[1]
        f2 = first[j + 2] + second[j + 2] * w[2]
        f3 = first[j + 3] + second[j + 3] * w[3]
        product *= (f0 * f1) * (f2 * f3)
        if (j + 4) % view.span == 0 or j + 4 == m:
            result += math.log(product)
            product = 1.0
    return result

"""The Ising model in the kernels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import called, implements, inlined
from sklsb._kernels.contract import flip, init_cache, log_prob, log_ratio, memo_place


class IsingView(NamedTuple):
    """Couplings as integers: J_ij = coupling * unit_j, so that local fields are exact sums."""

    field: NDArray[np.float64]
    unit: NDArray[np.float64]
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]
    coupling: NDArray[np.int64]  # of the flipped site with touched[k], in units of touched[k]
    place: NDArray[np.int64]  # `memo_place` of each site at field 0, spin -1; last, their number

    @property
    def memo_size(self) -> int:
        return int(self.place[-1])

    @property
    def cache_size(self) -> int:
        return self.field.size


@called
def _sum_up(view, x, cache):
    cache[:] = 0
    for i in range(x.size):
        for k in range(view.touched_start[i], view.touched_start[i + 1]):
            cache[view.touched[k]] += view.coupling[k] * x[i]


@implements(init_cache, IsingView)
def _init_cache(view, chain):
    _sum_up(view, chain.x, chain.cache)


@implements(log_ratio, IsingView)
def _log_ratio(view, chain, move):
    return (-2.0 * chain.x[move]) * (view.field[move] + view.unit[move] * chain.cache[move])


@implements(memo_place, IsingView)
def _memo_place(view, chain, move):
    # The fields of a site are all odd or all even, so spin +1 takes the place in between.
    return np.uint64(view.place[move] + chain.cache[move] + np.int64(chain.x[move] > 0))


@implements(flip, IsingView)
def _flip(view, chain, move):
    change = -2 * np.int64(chain.x[move])
    chain.x[move] = -chain.x[move]
    for k in range(view.touched_start[move], view.touched_start[move + np.uint64(1)]):
        chain.cache[view.touched[k]] += view.coupling[k] * change
    return move


@called
def _energy(view, x, cache):
    """Log p, by a function of few types: it is compiled once for all rules."""
    n = x.size
    a = b = c = d = 0.0
    # Four running sums: a fixed order that lets the processor overlap additions.
    for i in range(0, n - n % 4, 4):
        a += x[i] * (view.field[i] + (0.5 * view.unit[i]) * cache[i])
        b += x[i + 1] * (view.field[i + 1] + (0.5 * view.unit[i + 1]) * cache[i + 1])
        c += x[i + 2] * (view.field[i + 2] + (0.5 * view.unit[i + 2]) * cache[i + 2])
        d += x[i + 3] * (view.field[i + 3] + (0.5 * view.unit[i + 3]) * cache[i + 3])
    for i in range(n - n % 4, n):
        a += x[i] * (view.field[i] + (0.5 * view.unit[i]) * cache[i])
    return (a + b) + (c + d)


@implements(log_prob, IsingView)
def _log_prob(view, chain):
    return _energy(view, chain.x, chain.cache)


class UniformIsingView(NamedTuple):
    """One coupling and few neighbours everywhere, for sweeps by classes.

    Local fields are sums of neighbours as they stand: a flip changes one byte, and a large lattice
    takes little memory. Single steps would wait longer for such sums than for those that are kept.
    Site i has the neighbours ``near[i * w : (i + 1) * w]``, of which the last ``missing[i]`` are i
    itself, and w, a constant of the compiled code, is the length of ``slots``.
    """

    field: NDArray[np.float64]
    coupling: float
    near: NDArray[np.uint32]
    missing: NDArray[np.int8]
    slots: tuple[int, ...]
    whole: NDArray[np.int64]  # field / unit, rounded: sums are exact, so vectorised in any order
    unit: float

    @property
    def cache_size(self) -> int:
        return 0


@inlined
def _sum_of_neighbours(view, x, i):
    found = -np.int64(view.missing[i]) * x[i]
    for k in range(len(view.slots)):
        found += np.int64(x[view.near[i * np.uint64(len(view.slots)) + np.uint64(k)]])
    return found


@implements(init_cache, UniformIsingView)
def _init_no_cache(view, chain):
    pass


@implements(log_ratio, UniformIsingView)
def _log_ratio_of_sum(view, chain, move):
    field = view.field[move] + view.coupling * _sum_of_neighbours(view, chain.x, move)
    return -2.0 * (chain.x[move] * field)


@implements(flip, UniformIsingView)
def _flip_one(view, chain, move):
    chain.x[move] = -chain.x[move]
    return move


@called
def _sum_pairs(view, x):
    pairs = np.int64(0)
    for i in range(x.size):
        pairs += x[i] * _sum_of_neighbours(view, x, np.uint64(i))
    return pairs


@implements(log_prob, UniformIsingView)
def _log_prob_of_sums(view, chain):
    return log_prob_of_pairs(view, chain.x, _sum_pairs(view, chain.x))


@called
def log_prob_of_pairs(view, x, pairs):
    """Log p, given twice the sum over pairs of neighbours, which is exact."""
    fields = np.int64(0)
    for i in range(x.size):
        fields += view.whole[i] if x[i] > 0 else -view.whole[i]
    return view.unit * fields + 0.5 * view.coupling * pairs

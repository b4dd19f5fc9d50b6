"""The Ising model in the kernels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.contract import flip, init_cache, log_prob, log_ratio


class IsingView(NamedTuple):
    """Couplings as integers: J_ij = coupling * unit_j, so that local fields are exact sums."""

    field: NDArray[np.float64]
    unit: NDArray[np.float64]
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]
    coupling: NDArray[np.int64]  # of the flipped site with touched[k], in units of touched[k]

    @property
    def cache_size(self) -> int:
        return self.field.size


@implements(init_cache, IsingView)
def _init_cache(view, chain):
    chain.cache[:] = 0
    for i in range(chain.x.size):
        for k in range(view.touched_start[i], view.touched_start[i + 1]):
            chain.cache[view.touched[k]] += view.coupling[k] * chain.x[i]


@implements(log_ratio, IsingView)
def _log_ratio(view, chain, move):
    return (-2.0 * chain.x[move]) * (view.field[move] + view.unit[move] * chain.cache[move])


@implements(flip, IsingView)
def _flip(view, chain, move):
    change = -2 * np.int64(chain.x[move])
    chain.x[move] = -chain.x[move]
    for k in range(view.touched_start[move], view.touched_start[move + np.uint64(1)]):
        chain.cache[view.touched[k]] += view.coupling[k] * change
    return move


@implements(log_prob, IsingView)
def _log_prob(view, chain):
    n = chain.x.size
    a = b = c = d = 0.0
    # Four running sums: a fixed order that lets the processor overlap additions.
    for i in range(0, n - n % 4, 4):
        a += chain.x[i] * (view.field[i] + (0.5 * view.unit[i]) * chain.cache[i])
        b += chain.x[i + 1] * (view.field[i + 1] + (0.5 * view.unit[i + 1]) * chain.cache[i + 1])
        c += chain.x[i + 2] * (view.field[i + 2] + (0.5 * view.unit[i + 2]) * chain.cache[i + 2])
        d += chain.x[i + 3] * (view.field[i + 3] + (0.5 * view.unit[i + 3]) * chain.cache[i + 3])
    for i in range(n - n % 4, n):
        a += chain.x[i] * (view.field[i] + (0.5 * view.unit[i]) * chain.cache[i])
    return (a + b) + (c + d)


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
def _sum_of_neighbours(view, chain, i):
    found = -np.int64(view.missing[i]) * chain.x[i]
    for k in range(len(view.slots)):
        found += np.int64(chain.x[view.near[i * np.uint64(len(view.slots)) + np.uint64(k)]])
    return found


@implements(init_cache, UniformIsingView)
def _init_no_cache(view, chain):
    pass


@implements(log_ratio, UniformIsingView)
def _log_ratio_of_sum(view, chain, move):
    field = view.field[move] + view.coupling * _sum_of_neighbours(view, chain, move)
    return -2.0 * (chain.x[move] * field)


@implements(flip, UniformIsingView)
def _flip_one(view, chain, move):
    chain.x[move] = -chain.x[move]
    return move


@implements(log_prob, UniformIsingView)
def _log_prob_of_sums(view, chain):
    pairs = 0  # twice the sum over pairs, which is exact
    for i in range(chain.x.size):
        pairs += chain.x[i] * _sum_of_neighbours(view, chain, np.uint64(i))
    return log_prob_of_pairs(view, chain, pairs)


@inlined
def log_prob_of_pairs(view, chain, pairs):
    """Log p, given twice the sum over pairs of neighbours."""
    fields = np.int64(0)
    for i in range(chain.x.size):
        fields += view.whole[i] if chain.x[i] > 0 else -view.whole[i]
    return view.unit * fields + 0.5 * view.coupling * pairs

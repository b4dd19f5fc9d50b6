"""Every compiled function of sklsb.

They live in one file on purpose: numba's disk cache does not notice when a compiled
callee in *another* file changes, and would go on sampling from the old distribution.

A chain on a discrete space needs three things from a target, given here as functions
dispatched on the class of the target's *view* (a NamedTuple of arrays):

``init_cache(view, chain)``      compute the cache of local quantities from ``chain.x``
``log_ratio(view, chain, m)``    log p(x with move m) - log p(x)
``flip(view, chain, m)``         make move m in ``chain.x`` and the cache; return the inverse move

plus ``log_prob(view, chain)`` and ``first_move(view, i)``: the moves of site i are those from
``first_move(view, i)`` to before ``first_move(view, i + 1)``. ``view.cache_size`` is the length of
the cache; ``view.scratch_size``, if there is one, that of memory which no rebuild restores. A view
also has ``touched_start`` and ``touched``: the sorted list of the moves (m among them) whose
log-ratio changes when move m is made.

Nothing that is cached is ever a running sum of rounded numbers. Local fields are integers
(exact), weights are recomputed from them, and block sums are summed again from their children
in a fixed order, so the caches equal a rebuild bit for bit after any number of steps.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, from_dtype, njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

# ``_nrt=False``: without it numba counts references to every array on every access, with
# atomic instructions; that costs a quarter of the speed. The price is that no array is
# allocated here.
_OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy", "nogil": True}
kernel = njit(cache=True, **_OPTIONS)
inlined = njit(forceinline=True, **_OPTIONS)
called = njit(**_OPTIONS)  # for what is rare: compiled once
# Options with which a target implements its functions (``@overload(log_ratio, **implements)``).
implements: dict[str, Any] = {"jit_options": {"forceinline": True, **_OPTIONS}}

FAN_OUT = 8
# A total weight outside this range makes the chain choose a new offset.
_SMALLEST_TOTAL, _LARGEST_TOTAL = 1e-100, 1e100
# Rounding level of a probability; its logarithm stands in for log 0 in the objective only.
SMALLEST_STAY = 2.0**-53


class Table(NamedTuple):
    """The even part h of log g: ``value[k] + slope[k] * (a - k)`` with a = abs(u) / step."""

    value: NDArray[np.float64]
    slope: NDArray[np.float64]
    inverse_step: float


class Chains(NamedTuple):
    """What several chains carry, one row each. ``tree`` holds the weights and their block sums."""

    x: NDArray[Any]
    cache: NDArray[np.int64]
    tree: NDArray[np.float64]
    offset: NDArray[np.float64]  # (n, 1) weights are exp(log g - offset)
    moved: NDArray[np.bool_]
    evaluations: NDArray[np.int64]  # (n, 1)
    acceptance: NDArray[np.float64]  # (n, 1) sum of acceptance probabilities
    old_weight: NDArray[np.float64]  # scratch
    group: NDArray[np.uint64]  # scratch
    scratch: NDArray[np.int64]  # of the target: whatever it keeps is no part of the state
    level: NDArray[np.uint64]  # shared: where each level of the tree starts
    lazy: float  # shared: probability that a transition does nothing


class Chain(NamedTuple):
    """One row of `Chains`."""

    x: NDArray[Any]
    cache: NDArray[np.int64]
    tree: NDArray[np.float64]
    offset: NDArray[np.float64]
    moved: NDArray[np.bool_]
    evaluations: NDArray[np.int64]
    acceptance: NDArray[np.float64]
    old_weight: NDArray[np.float64]
    group: NDArray[np.uint64]
    scratch: NDArray[np.int64]
    level: NDArray[np.uint64]
    lazy: float


@inlined
def chain_at(chains, c):
    return Chain(
        chains.x[c],
        chains.cache[c],
        chains.tree[c],
        chains.offset[c],
        chains.moved[c],
        chains.evaluations[c],
        chains.acceptance[c],
        chains.old_weight[c],
        chains.group[c],
        chains.scratch[c],
        chains.level,
        chains.lazy,
    )


# ----------------------------------------------------------------- exponential, log weight


def _split_log2():
    """log(2)/256 as a sum of two floats, the first short enough for exact products."""
    with localcontext() as context:
        context.prec = 50
        exact = Fraction(Decimal(2).ln()) / 256
    high = float(np.int64(np.float64(float(exact)).view(np.int64) & ~0x3FFFFFF).view(np.float64))
    return high, float(exact - Fraction(high))


_STEP_HIGH, _STEP_LOW = _split_log2()
_STEPS_PER_UNIT = 256 / math.log(2)
_POWERS = np.exp2(np.arange(256) / 256)
_ROUND = 1.5 * 2.0**52
_ROUND_BITS = int(np.float64(_ROUND).view(np.int64))


@inlined
def exp(x):
    """exp(x) within 2 ulp; 0 below -708 and inf above 709. Inlined, it vectorises (6 x libm)."""
    shifted = x * _STEPS_PER_UNIT + _ROUND
    n = shifted - _ROUND
    r = (x - n * _STEP_HIGH) - n * _STEP_LOW
    bits = np.float64(shifted).view(np.int64) - _ROUND_BITS
    r2 = r * r
    p = (r + r2 * (0.5 + r * (1.0 / 6.0))) + (r2 * r2) * (1.0 / 24.0)
    power = _POWERS[np.uint64(bits) & np.uint64(255)]
    scale = np.int64(((bits >> 8) + 1023) << 52).view(np.float64)
    result = (power + power * p) * scale
    result = 0.0 if x < -708.0 else result
    return np.inf if x > 709.0 else result


@inlined
def log_weight(table, u):
    """Log g(exp u) = u/2 + h(abs(u)); -inf at u = -inf whatever g is."""
    last = np.float64(table.value.size - 1)
    a = abs(u) * table.inverse_step
    knot = np.uint64(min(a, last))
    h = table.value[knot] + table.slope[knot] * (a - np.float64(knot))
    return -np.inf if u == -np.inf else 0.5 * u + h


# ----------------------------------------------------------------- prefetch


@intrinsic
def _prefetch(typing_context, array, index):
    """Ask for the cache line of array[index]; nothing waits for it."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        hint = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, word, word, word]),
            "llvm.prefetch.p0",
        )
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(hint, [address, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate


# ----------------------------------------------------------------- a tree of block sums
#
# Level 0 holds the weights of the moves, padded with zeros to groups of 8; each further level
# holds the sums of the groups below; the last entry is the total.


@inlined
def _sum8(t, b):
    return ((t[b] + t[b + 1]) + (t[b + 2] + t[b + 3])) + (
        (t[b + 4] + t[b + 5]) + (t[b + 6] + t[b + 7])
    )


@inlined
def total(chain):
    return chain.tree[chain.level[chain.level.size - 1]]


@inlined
def sum_all(chain):
    """Recompute every block sum from the weights."""
    for lev in range(chain.level.size - 1):
        source, target = chain.level[lev], chain.level[lev + 1]
        for g in range((target - source) // np.uint64(FAN_OUT)):
            chain.tree[target + g] = _sum8(chain.tree, source + g * np.uint64(FAN_OUT))


@inlined
def _sum_touched(chain, touched, begin, end):
    """Recompute the block sums above the (sorted) touched weights; return the total."""
    three = np.uint64(3)
    n = np.uint64(0)
    last = np.uint64(1 << 62)
    tree = chain.tree
    base = chain.level[1]
    for k in range(begin, end):
        g = np.uint64(touched[k]) >> three
        if g != last:
            tree[base + g] = _sum8(tree, g << three)
            chain.group[n] = g
            n += np.uint64(1)
            last = g
    for lev in range(1, chain.level.size - 1):
        source, base = base, chain.level[lev + 1]
        m = np.uint64(0)
        last = np.uint64(1 << 62)
        for k in range(n):
            g = chain.group[k] >> three
            if g != last:
                tree[base + g] = _sum8(tree, source + (g << three))
                chain.group[m] = g
                m += np.uint64(1)
                last = g
        n = m
    return tree[base]


@inlined
def select(view, chain, r):
    """Return the move whose interval of weight holds r, for 0 <= r <= total, total > 0.

    Down the tree, eight prefix sums at a time. They are summed pairwise so that they never
    decrease and stay put at a zero: a move of weight zero has an empty interval. On the way
    the lists of touched moves that may be wanted are fetched: with a million sites the time
    goes in waiting for memory.
    """
    tree = chain.tree
    node = np.uint64(0)
    for lev in range(chain.level.size - 2, -1, -1):
        b = chain.level[lev] + node * np.uint64(FAN_OUT)
        t2, t4, t6 = tree[b + 2], tree[b + 4], tree[b + 6]
        s45 = t4 + tree[b + 5]
        p1 = tree[b]
        p2 = p1 + tree[b + 1]
        p3 = p2 + t2
        p4 = p2 + (t2 + tree[b + 3])
        p5 = p4 + t4
        p6 = p4 + s45
        p7 = p4 + (s45 + t6)
        p8 = p4 + (s45 + (t6 + tree[b + 7]))
        # Rounding in the level above may leave r at the end of this block.
        r = r if r < p8 else p8 * (1.0 - 2.0**-53)
        below = (
            (np.uint64(p1 <= r) + np.uint64(p2 <= r)) + (np.uint64(p3 <= r) + np.uint64(p4 <= r))
        ) + ((np.uint64(p5 <= r) + np.uint64(p6 <= r)) + np.uint64(p7 <= r))
        left = max(
            max(p1 if p1 <= r else 0.0, p2 if p2 <= r else 0.0),
            max(p3 if p3 <= r else 0.0, p4 if p4 <= r else 0.0),
        )
        right = max(p5 if p5 <= r else 0.0, p6 if p6 <= r else 0.0)
        r -= max(max(left, right), p7 if p7 <= r else 0.0)
        node = node * np.uint64(FAN_OUT) + below
        if lev == 2:
            for k in range(8):
                _prefetch(view.touched_start, np.uint64(64) * node + np.uint64(8 * k))
        elif lev == 1:
            begin = view.touched_start[np.uint64(8) * node]
            for k in range(3):
                _prefetch(view.touched, begin + np.uint64(16 * k))
    return node


# ----------------------------------------------------------------- targets


def init_cache(view, chain):
    """Compute the cache of one chain from its state."""
    raise TypeError("compiled only")


def log_ratio(view, chain, move):
    """Log p(x with the move made) - log p(x)."""
    raise TypeError("compiled only")


def flip(view, chain, move):
    """Make a move; return the move that undoes it."""
    raise TypeError("compiled only")


def first_move(view, site):
    """Index of the first move of a site (uint64); of n_sites, the number of moves."""
    raise TypeError("compiled only")


def log_prob(view, chain):
    """Log p(x) up to a constant, summed in a fixed order."""
    raise TypeError("compiled only")


def is_view(view, cls):
    """Whether a numba type is the NamedTuple class of a view (for ``@overload``)."""
    return isinstance(view, types.NamedTuple) and view.instance_class is cls


class IsingView(NamedTuple):
    """Couplings as integers: J_ij = coupling * unit_j, so that local fields are exact sums."""

    field: NDArray[np.float64]
    unit: NDArray[np.float64]
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]
    coupling: NDArray[np.int64]  # of the flipped site with touched[k], in units of touched[k]

    @property
    def cache_size(self) -> int:
        """Number of integers in the cache of a chain."""
        return self.field.size


@overload(init_cache, **implements)
def _ising_init(view, chain):
    if not is_view(view, IsingView):
        return None

    def init(view, chain):
        chain.cache[:] = 0
        for i in range(chain.x.size):
            for k in range(view.touched_start[i], view.touched_start[i + 1]):
                chain.cache[view.touched[k]] += view.coupling[k] * chain.x[i]

    return init


@overload(log_ratio, **implements)
def _ising_log_ratio(view, chain, move):
    if not is_view(view, IsingView):
        return None

    def ratio(view, chain, move):
        return (-2.0 * chain.x[move]) * (view.field[move] + view.unit[move] * chain.cache[move])

    return ratio


@overload(flip, **implements)
def _ising_flip(view, chain, move):
    if not is_view(view, IsingView):
        return None

    def flip_spin(view, chain, move):
        change = -2 * np.int64(chain.x[move])
        chain.x[move] = -chain.x[move]
        for k in range(view.touched_start[move], view.touched_start[move + np.uint64(1)]):
            chain.cache[view.touched[k]] += view.coupling[k] * change
        return move

    return flip_spin


@overload(first_move, **implements)
def _ising_first_move(view, site):
    if not is_view(view, IsingView):
        return None

    def first(view, site):
        return np.uint64(site)

    return first


@overload(log_prob, **implements)
def _ising_log_prob(view, chain):
    if not is_view(view, IsingView):
        return None

    def energy(view, chain):
        n = chain.x.size
        a = b = c = d = 0.0
        # Four running sums: a fixed order that still lets the processor overlap additions.
        for i in range(0, n - n % 4, 4):
            a += chain.x[i] * (view.field[i] + (0.5 * view.unit[i]) * chain.cache[i])
            b += chain.x[i + 1] * (
                view.field[i + 1] + (0.5 * view.unit[i + 1]) * chain.cache[i + 1]
            )
            c += chain.x[i + 2] * (
                view.field[i + 2] + (0.5 * view.unit[i + 2]) * chain.cache[i + 2]
            )
            d += chain.x[i + 3] * (
                view.field[i + 3] + (0.5 * view.unit[i + 3]) * chain.cache[i + 3]
            )
        for i in range(n - n % 4, n):
            a += chain.x[i] * (view.field[i] + (0.5 * view.unit[i]) * chain.cache[i])
        return (a + b) + (c + d)

    return energy


class PottsView(NamedTuple):
    """As of `IsingView`; the cache holds the couplings to neighbours of each (site, value)."""

    field: NDArray[np.float64]  # (n_sites, k)
    unit: NDArray[np.float64]
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]
    site: NDArray[np.uint32]  # of each move
    neighbour_start: NDArray[np.uint64]
    neighbour: NDArray[np.uint32]
    coupling: NDArray[np.int64]  # of a site with neighbour[k], in units of neighbour[k]

    @property
    def cache_size(self) -> int:
        """Number of integers in the cache of a chain."""
        return self.field.size


@inlined
def _potts_change(view, chain, move):
    """Site of a move, its value before and after."""
    site = np.uint64(view.site[move])
    before = np.uint64(chain.x[site])
    after = np.uint64(move) - site * np.uint64(view.field.shape[1] - 1)
    return site, before, after + np.uint64(after >= before)


@overload(init_cache, **implements)
def _potts_init(view, chain):
    if not is_view(view, PottsView):
        return None

    def init(view, chain):
        values = np.uint64(view.field.shape[1])
        chain.cache[:] = 0
        for i in range(chain.x.size):
            for n in range(view.neighbour_start[i], view.neighbour_start[i + 1]):
                j = np.uint64(view.neighbour[n])
                chain.cache[j * values + np.uint64(chain.x[i])] += view.coupling[n]

    return init


@overload(log_ratio, **implements)
def _potts_log_ratio(view, chain, move):
    if not is_view(view, PottsView):
        return None

    def ratio(view, chain, move):
        site, before, after = _potts_change(view, chain, move)
        first = site * np.uint64(view.field.shape[1])
        gained = chain.cache[first + after] - chain.cache[first + before]
        return (view.field[site, after] - view.field[site, before]) + view.unit[site] * gained

    return ratio


@overload(flip, **implements)
def _potts_flip(view, chain, move):
    if not is_view(view, PottsView):
        return None

    def change_value(view, chain, move):
        site, before, after = _potts_change(view, chain, move)
        values = np.uint64(view.field.shape[1])
        chain.x[site] = np.int64(after)
        for n in range(view.neighbour_start[site], view.neighbour_start[site + np.uint64(1)]):
            first = np.uint64(view.neighbour[n]) * values
            chain.cache[first + before] -= view.coupling[n]
            chain.cache[first + after] += view.coupling[n]
        return site * (values - np.uint64(1)) + (before - np.uint64(before > after))

    return change_value


@overload(first_move, **implements)
def _potts_first_move(view, site):
    if not is_view(view, PottsView):
        return None

    def first(view, site):
        return np.uint64(site) * np.uint64(view.field.shape[1] - 1)

    return first


@overload(log_prob, **implements)
def _potts_log_prob(view, chain):
    if not is_view(view, PottsView):
        return None

    def energy(view, chain):
        values = np.uint64(view.field.shape[1])
        result = 0.0
        for i in range(chain.x.size):
            v = np.uint64(chain.x[i])
            local = chain.cache[np.uint64(i) * values + v]
            result += view.field[i, v] + (0.5 * view.unit[i]) * local
        return result

    return energy


class MarkovNetworkView(NamedTuple):
    """Tables one after another; the cache holds the position of each factor's present entry."""

    log_table: NDArray[np.float64]
    table_start: NDArray[np.uint64]  # of each factor
    factor_start: NDArray[np.uint64]  # of the list of factors of each site
    factor: NDArray[np.uint32]
    stride: NDArray[np.uint32]  # what one more of the site adds to the position
    first: NDArray[np.uint64]  # first move of each site, and the number of moves
    site: NDArray[np.uint32]  # of each move
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]

    @property
    def cache_size(self) -> int:
        """Number of integers in the cache of a chain."""
        return self.table_start.size


@inlined
def _network_change(view, chain, move):
    """Site of a move, its value before and after."""
    site = np.uint64(view.site[move])
    before = np.int64(chain.x[site])
    after = np.int64(np.uint64(move) - view.first[site])
    return site, before, after + np.int64(after >= before)


@overload(init_cache, **implements)
def _network_init(view, chain):
    if not is_view(view, MarkovNetworkView):
        return None

    def init(view, chain):
        for f in range(view.table_start.size):
            chain.cache[f] = np.int64(view.table_start[f])
        for i in range(chain.x.size):
            for k in range(view.factor_start[i], view.factor_start[i + 1]):
                chain.cache[view.factor[k]] += np.int64(view.stride[k]) * np.int64(chain.x[i])

    return init


@overload(log_ratio, **implements)
def _network_log_ratio(view, chain, move):
    if not is_view(view, MarkovNetworkView):
        return None

    def ratio(view, chain, move):
        site, before, after = _network_change(view, chain, move)
        result = 0.0
        for k in range(view.factor_start[site], view.factor_start[site + np.uint64(1)]):
            here = chain.cache[view.factor[k]]
            there = here + (after - before) * np.int64(view.stride[k])
            result += view.log_table[np.uint64(there)] - view.log_table[np.uint64(here)]
        return result

    return ratio


@overload(flip, **implements)
def _network_flip(view, chain, move):
    if not is_view(view, MarkovNetworkView):
        return None

    def change_value(view, chain, move):
        site, before, after = _network_change(view, chain, move)
        chain.x[site] = after
        for k in range(view.factor_start[site], view.factor_start[site + np.uint64(1)]):
            chain.cache[view.factor[k]] += (after - before) * np.int64(view.stride[k])
        return view.first[site] + np.uint64(before - np.int64(before > after))

    return change_value


@overload(first_move, **implements)
def _network_first_move(view, site):
    if is_view(view, MarkovNetworkView):
        return lambda view, site: view.first[site]
    return None


@overload(log_prob, **implements)
def _network_log_prob(view, chain):
    if not is_view(view, MarkovNetworkView):
        return None

    def energy(view, chain):
        result = 0.0
        for f in range(chain.cache.size):
            result += view.log_table[np.uint64(chain.cache[f])]
        return result

    return energy


class RBMView(NamedTuple):
    """The marginal of a restricted Boltzmann machine; hidden units padded to a multiple of 4.

    The cache holds, as integers and as the bits of floats, sum_i x_i W_ij of each hidden unit in
    multiples of ``unit``, two functions of its activation, the log-ratios and their products.
    With ``span`` = 0 the weights are extreme: ``weight`` holds W_ij itself instead of exp W_ij, and
    the sums are floats, computed anew in every move.
    """

    visible_bias: NDArray[np.float64]
    hidden_bias: NDArray[np.float64]
    reach: NDArray[np.float64]  # visible_bias_i + sum_j W_ij
    weight: NDArray[np.float64]  # (n_hidden, n_visible)
    unit: NDArray[np.float64]  # of each hidden unit
    coupling: NDArray[np.int64]  # (n_visible, n_hidden): the weights in these units
    span: int  # so many factors can be multiplied without overflow
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]

    @property
    def cache_size(self) -> int:
        """Number of integers in the cache of a chain."""
        return 3 * self.hidden_bias.size + 3 * self.visible_bias.size


@inlined
def _rbm_floats(view, chain):
    """Parts of the cache: sums, two numbers per hidden unit, ratios, products, states."""
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


@inlined
def _rbm_activation(view, chain, j):
    """c_j + sum_i x_i W_ij."""
    if view.span == 0:
        return view.hidden_bias[j] + np.int64(chain.cache[j]).view(np.float64)
    return view.hidden_bias[j] + view.unit[j] * chain.cache[j]


@inlined
def _softplus(a):
    return max(a, 0.0) + math.log1p(math.exp(-abs(a)))


@inlined
def _rbm_products(view, chain):
    """Log-ratios by products: the logarithm of a ratio is that of a product over hidden units.

    With s_j the probability of unit j given x, and t_j = 1 - s_j, the factor of a unit whose
    activation grows by W is t_j + s_j exp W; where it shrinks, it is (s_j + t_j exp W) / exp W.
    Both terms are positive, so that nothing cancels.
    """
    _, off, on, ratio, product, state = _rbm_floats(view, chain)
    m, n = off.size, state.size
    for j in range(m):
        a = _rbm_activation(view, chain, j)
        small = exp(-abs(a))
        likely, unlikely = 1.0 / (1.0 + small), small / (1.0 + small)
        on[j] = likely if a > 0.0 else unlikely
        off[j] = unlikely if a > 0.0 else likely
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
def _rbm_sums(view, chain):
    """Log-ratios of a machine of extreme weights, as sums of logarithms."""
    total, off, on, ratio, _, state = _rbm_floats(view, chain)
    for j in range(off.size):
        total[j] = 0.0
        for i in range(state.size):
            if chain.x[i]:
                total[j] += view.weight[j, i]
        a = _rbm_activation(view, chain, j)
        on[j], off[j] = -_softplus(-a), -_softplus(a)
    for i in range(state.size):
        sign = -1.0 if chain.x[i] else 1.0
        ratio[i] = sign * view.visible_bias[i]
        for j in range(off.size):
            risen = on[j] + sign * view.weight[j, i]
            ratio[i] += max(off[j], risen) + math.log1p(math.exp(-abs(off[j] - risen)))


@called
def _rbm_refresh(view, chain):
    """Compute all log-ratios: every move changes them all."""
    if view.span == 0:
        _rbm_sums(view, chain)
    else:
        _rbm_products(view, chain)


@overload(init_cache, **implements)
def _rbm_init(view, chain):
    if not is_view(view, RBMView):
        return None

    def init(view, chain):
        chain.cache[:] = 0
        for i in range(view.coupling.shape[0]):
            if chain.x[i]:
                for j in range(view.coupling.shape[1]):
                    chain.cache[j] += view.coupling[i, j]
        _rbm_refresh(view, chain)

    return init


@overload(log_ratio, **implements)
def _rbm_log_ratio(view, chain, move):
    if not is_view(view, RBMView):
        return None

    def ratio(view, chain, move):
        first = np.uint64(3 * view.hidden_bias.size)
        return np.int64(chain.cache[first + np.uint64(move)]).view(np.float64)

    return ratio


@overload(flip, **implements)
def _rbm_flip(view, chain, move):
    if not is_view(view, RBMView):
        return None

    def flip_unit(view, chain, move):
        change = 1 - 2 * np.int64(chain.x[move])
        chain.x[move] += change
        for j in range(view.coupling.shape[1]):
            chain.cache[j] += view.coupling[move, j] * change
        _rbm_refresh(view, chain)
        return move

    return flip_unit


@overload(log_prob, **implements)
def _rbm_log_prob(view, chain):
    if not is_view(view, RBMView):
        return None

    def energy(view, chain):
        result = 0.0
        for i in range(chain.x.size):
            if chain.x[i]:
                result += view.visible_bias[i]
        for j in range(view.hidden_bias.size):
            result += _softplus(_rbm_activation(view, chain, j))
        return result

    return energy


class VariableSelectionView(NamedTuple):
    """Gram matrix M of the columns, with their products with y as its last column.

    With F = L^-1 [M y] for M = L L' of the included columns, in the order of ``rank``,

        log p = size_term[k] - det_weight * log det M - exponent * log E,   E = 1 - sum F_y^2.

    The cache holds, as floats: F, one row of p + 1 for each included column; two rows of sums over
    F (`_selection_sums`); the largest diagonal entry of M^-1. Then, as integers: the number of
    included columns, and these. F and the sums are recomputed in a fixed order from the first row
    that a flip changes. What is not used is zero, and was never written: so memory that a model
    of k columns does not need is never claimed.
    """

    gram: NDArray[np.float64]  # (p, p + 1)
    size_term: NDArray[np.float64]  # by k, -inf: no such model
    rank: NDArray[np.uint32]
    exponent: float
    det_weight: float
    least: float  # 1 / (largest diagonal entry of M^-1) below which a model is impossible
    n_rows: int  # columns that a possible model has at most, and one more
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]

    @property
    def cache_size(self) -> int:
        """Number of integers in the cache of a chain."""
        return (self.n_rows + 2) * self.gram.shape[1] + 2 + self.gram.shape[0]


@inlined
def _selection_places(view):
    """Where in the cache the sums, the largest diagonal entry, and the list of columns begin."""
    sums = np.uint64(view.n_rows) * np.uint64(view.gram.shape[1])
    largest = sums + np.uint64(2 * view.gram.shape[1])
    return sums, largest, largest + np.uint64(1)


@inlined
def _selection_row(view, f, columns, r):
    """Compute row r of F from the rows above it.

    In column i of the included ones, nothing is left of M below row i; there, row by row, L^-1
    is written. The row of a column that the ones above it explain is zero.
    """
    width = np.uint64(view.gram.shape[1])
    column = columns[r]
    row = r * width
    for j in range(width):
        f[row + j] = view.gram[column, j]
    for q in range(r):
        above = q * width
        factor = f[above + column]
        f[row + columns[q]] = 0.0
        for j in range(width):
            f[row + j] -= factor * f[above + j]
    pivot = f[row + column]
    scale = 1.0 / math.sqrt(pivot) if pivot > view.least else 0.0
    f[row + column] = 1.0
    for j in range(width):
        f[row + j] *= scale


@inlined
def _selection_sums(view, f, columns, k):
    """Sum F_j^2 and F_j F_y over the rows, for each column j; of an included one, below row j.

    So these are the diagonal of M^-1 and M^-1 M_y for included columns, and what the included
    ones explain of M_jj and M_jy for the others. Return the largest diagonal entry of M^-1.
    """
    width = np.uint64(view.gram.shape[1])
    square = np.uint64(view.n_rows) * width
    product = square + width
    for j in range(square, product + width):
        f[j] = 0.0
    for r in range(k):
        row = r * width
        by_y = f[row + width - np.uint64(1)]
        f[square + columns[r]] = 0.0
        f[product + columns[r]] = 0.0
        for j in range(width):
            f[square + j] += f[row + j] * f[row + j]
            f[product + j] += f[row + j] * by_y
    largest = 0.0
    for r in range(k):
        singular = f[r * width + columns[r]] == 0.0
        largest = np.inf if singular else max(largest, f[square + columns[r]])
    return largest


@called
def _selection_refresh(view, chain, first):
    """Recompute all that depends on the included columns from the given one on."""
    f = chain.cache.view(np.float64)
    _, largest, size = _selection_places(view)
    columns = chain.cache[size + np.uint64(1) :].view(np.uint64)
    k = min(np.uint64(chain.cache[size]), np.uint64(view.n_rows))
    for r in range(first, k):
        _selection_row(view, f, columns, np.uint64(r))
    f[largest] = _selection_sums(view, f, columns, k)


@inlined
def _selection_possible(view, chain):
    """Whether the state has positive probability; E and the number of included columns."""
    _, largest, size = _selection_places(view)
    f = chain.cache.view(np.float64)
    k = np.uint64(chain.cache[size])
    error = 1.0 - f[largest - np.uint64(view.gram.shape[1] + 1)]
    possible = view.least * f[largest] < 1.0 and view.size_term[k] > -np.inf
    return possible, error, k


@called
def _selection_collinear(view, chain, move, left):
    """Whether another column, with ``left`` not explained, makes the model impossible."""
    sums, _, size = _selection_places(view)
    f = chain.cache.view(np.float64)
    columns = chain.cache[size + np.uint64(1) :].view(np.uint64)
    width, k = np.uint64(view.gram.shape[1]), np.uint64(chain.cache[size])
    for i in range(k):
        coefficient = 0.0
        for r in range(i, k):
            coefficient += f[r * width + columns[i]] * f[r * width + move]
        diagonal = f[sums + columns[i]] + coefficient * coefficient / left
        if view.least * diagonal >= 1.0:
            return True
    return False


@overload(init_cache, **implements)
def _selection_init(view, chain):
    if not is_view(view, VariableSelectionView):
        return None

    def init(view, chain):
        _, _, size = _selection_places(view)
        width = np.uint64(view.gram.shape[1])
        before = min(np.uint64(chain.cache[size]), np.uint64(view.n_rows))
        for j in range(before * width):
            chain.cache[j] = 0
        for j in range(size, np.uint64(chain.cache.size)):
            chain.cache[j] = 0
        for j in range(chain.x.size):
            if chain.x[j] != 0:
                _selection_insert(view, chain, np.uint64(j))
        _selection_refresh(view, chain, np.uint64(0))

    return init


@inlined
def _selection_insert(view, chain, column):
    """Add a column to the list, in the order of rank; return its place."""
    size = _selection_places(view)[2]
    columns = chain.cache[size + np.uint64(1) :].view(np.uint64)
    place = np.uint64(chain.cache[size])
    while place > 0 and view.rank[columns[place - np.uint64(1)]] > view.rank[column]:
        columns[place] = columns[place - np.uint64(1)]
        place -= np.uint64(1)
    columns[place] = column
    chain.cache[size] += 1
    return place


@inlined
def _selection_remove(view, chain, column):
    """Take a column out of the list, and clear the last row; return its place."""
    size = _selection_places(view)[2]
    columns = chain.cache[size + np.uint64(1) :].view(np.uint64)
    chain.cache[size] -= 1
    last = np.uint64(chain.cache[size])
    place = np.uint64(0)
    while columns[place] != column:
        place += np.uint64(1)
    for i in range(place, last):
        columns[i] = columns[i + np.uint64(1)]
    columns[last] = 0
    if last < np.uint64(view.n_rows):
        width = np.uint64(view.gram.shape[1])
        for j in range(last * width, (last + np.uint64(1)) * width):
            chain.cache[j] = 0
    return place


@overload(flip, **implements)
def _selection_flip(view, chain, move):
    if not is_view(view, VariableSelectionView):
        return None

    def include_or_leave_out(view, chain, move):
        move = np.uint64(move)
        if chain.x[move] == 0:
            place = _selection_insert(view, chain, move)
        else:
            place = _selection_remove(view, chain, move)
        chain.x[move] = 1 - chain.x[move]
        _selection_refresh(view, chain, place)
        return move

    return include_or_leave_out


@overload(log_ratio, **implements)
def _selection_log_ratio(view, chain, move):
    if not is_view(view, VariableSelectionView):
        return None

    def ratio(view, chain, move):
        possible, error, k = _selection_possible(view, chain)
        if not possible:
            return 0.0
        one, last = np.uint64(1), np.uint64(view.gram.shape[1] - 1)
        sums, largest, _ = _selection_places(view)
        f = chain.cache.view(np.float64)
        square, product = f[sums + np.uint64(move)], f[sums + last + one + np.uint64(move)]
        if chain.x[move] != 0:
            change, left, after = product * product / square, square, k - one
        else:
            left, after = view.gram[move, move] - square, k + one
            if left <= view.least or view.size_term[after] == -np.inf:
                return -np.inf
            if view.least * f[largest] >= left and _selection_collinear(
                view, chain, np.uint64(move), left
            ):
                return -np.inf
            product = view.gram[move, last] - product
            change = -product * product / left
        result = (view.size_term[after] - view.size_term[k]) - view.exponent * math.log1p(
            change / error
        )
        if view.det_weight > 0.0:
            result -= view.det_weight * math.log(left)
        return result

    return ratio


@overload(first_move, **implements)
def _two_valued_first_move(view, site):
    if is_view(view, RBMView) or is_view(view, VariableSelectionView):
        return lambda view, site: np.uint64(site)
    return None


@overload(log_prob, **implements)
def _selection_log_prob(view, chain):
    if not is_view(view, VariableSelectionView):
        return None

    def marginal(view, chain):
        possible, error, k = _selection_possible(view, chain)
        if not possible:
            return -np.inf
        size = _selection_places(view)[2]
        width = np.uint64(view.gram.shape[1])
        f = chain.cache.view(np.float64)
        columns = chain.cache[size + np.uint64(1) :].view(np.uint64)
        result = view.size_term[k] - view.exponent * math.log(error)
        if view.det_weight > 0.0:
            for r in range(k):
                result += (2.0 * view.det_weight) * math.log(f[r * width + columns[r]])
        return result

    return marginal


# Integers of scratch memory that a chain on a `FunctionView` takes, about, at most.
_MOST_SCRATCH = 1 << 16


class FunctionView(NamedTuple):
    """A C function void(x, values): log p of x and of every state that a move leads to.

    The cache holds these values, as the bits of floats. The scratch memory of a chain: whether
    the function failed, the state where it did, and a table of states with their values, so that
    a move that is taken back calls nothing, nor do objectives that come back to stored states.
    """

    address: int
    first_move: NDArray[np.uint64]  # of each site, and the number of moves
    site: NDArray[np.uint32]  # of each move
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]

    @property
    def cache_size(self) -> int:
        """Number of integers in the cache of a chain."""
        return self.site.size + 1

    @property
    def scratch_size(self) -> int:
        """Number of integers of scratch memory of a chain."""
        n_sites = self.first_move.size - 1
        slot = self.cache_size + n_sites
        # Odd, and for two-valued variables a place for each neighbour of a state.
        slots = min(2 * self.site.size + 1, max(17, _MOST_SCRATCH // slot | 1))
        return 1 + n_sites + slots * slot


# Differences of two such numbers, divided by the distance of knots, stay finite.
LARGEST_LOG_PROB = 1e303
_BITS_OF_NAN, _BITS_OF_ZERO, _BITS_OF_NEVER = (
    int(np.float64(value).view(np.int64)) for value in (np.nan, 0.0, -np.inf)
)


def neighbourhood_function(log_prob, cardinalities, held, dtype):
    """Compile the C function of a `FunctionView` from a jitted log p of one state of int64.

    Where a site is held, its moves are impossible.
    """
    n_sites = cardinalities.size
    n_values = 1 + int((cardinalities - 1).sum())
    pointers = types.CPointer(from_dtype(dtype)), types.CPointer(types.float64)

    @cfunc(types.void(*pointers))
    def evaluate(given, out):
        x = carray(given, n_sites).astype(np.int64)
        values = carray(out, n_values)
        # What a cfunc raises is printed and forgotten; a NaN is found out, and raised in Python.
        try:
            values[0] = log_prob(x)
            k = 1
            for i in range(n_sites):
                present = x[i]
                for value in range(cardinalities[i]):
                    if value != present:
                        x[i] = value
                        values[k] = -np.inf if held[i] else log_prob(x)
                        k += 1
                x[i] = present
        except Exception:  # noqa: BLE001
            values[0] = np.nan

    return evaluate


@intrinsic
def _call(typing_context, address, x, values):
    """Call the C function void(x, values) at an address."""

    def generate(context, builder, signature, arguments):
        byte = ir.IntType(8).as_pointer()
        data = [
            builder.bitcast(context.make_array(kind)(context, builder, array).data, byte)
            for kind, array in zip(signature.args[1:], arguments[1:], strict=True)
        ]
        function = ir.FunctionType(ir.VoidType(), [byte, byte]).as_pointer()
        builder.call(builder.inttoptr(arguments[0], function), data)
        return context.get_dummy_value()

    return types.void(address, x, values), generate


@inlined
def _float(bits):
    return np.int64(bits).view(np.float64)


@inlined
def _slot(chain):
    """Where the table has the values of the present state, followed by the state plus 1, if any.

    Two-valued states that differ at one site are at different places, if there are so many.
    """
    n_sites, n_values = chain.x.size, chain.cache.size
    n_slots = (chain.scratch.size - 1 - n_sites) // (n_values + n_sites)
    key = 0
    for i in range(n_sites):
        key += (i + 1) * np.int64(chain.x[i])
    return 1 + n_sites + key % n_slots * (n_values + n_sites)


@called
def _evaluate(view, chain):
    """Fill the cache; where a value is no log p, let the chain stand still, and keep its state."""
    scratch, cache = chain.scratch, chain.cache
    slot = _slot(chain)
    state = slot + cache.size
    known = True
    for i in range(chain.x.size):
        known &= scratch[state + i] == chain.x[i] + 1
    if known:
        for k in range(cache.size):
            cache[k] = scratch[slot + k]
        return
    if scratch[0] == 0:
        cache[0] = _BITS_OF_NAN  # to be seen if the function does not come to its end
        _call(view.address, chain.x, cache)
        good = True
        for k in range(cache.size):
            value = _float(cache[k])
            good &= abs(value) <= LARGEST_LOG_PROB or value == -np.inf
            scratch[slot + k] = cache[k]
        for i in range(chain.x.size):
            scratch[state + i] = chain.x[i] + 1
        if good:
            return
        scratch[0] = 1
        for i in range(chain.x.size):
            scratch[1 + i] = chain.x[i]
            scratch[state + i] = 0
    cache[:] = _BITS_OF_NEVER
    cache[0] = _BITS_OF_ZERO


@overload(init_cache, **implements)
def _function_init(view, chain):
    if is_view(view, FunctionView):
        return lambda view, chain: _evaluate(view, chain)
    return None


@overload(log_ratio, **implements)
def _function_log_ratio(view, chain, move):
    if not is_view(view, FunctionView):
        return None

    def ratio(view, chain, move):
        return _float(chain.cache[move + np.uint64(1)]) - _float(chain.cache[0])

    return ratio


@overload(flip, **implements)
def _function_flip(view, chain, move):
    if not is_view(view, FunctionView):
        return None

    def change_value(view, chain, move):
        site = np.uint64(view.site[move])
        first = view.first_move[site]
        before = np.uint64(chain.x[site])
        after = np.uint64(move) - first
        after += np.uint64(after >= before)
        chain.x[site] = np.int64(after)
        _evaluate(view, chain)
        return first + before - np.uint64(before > after)

    return change_value


@overload(first_move, **implements)
def _function_first_move(view, site):
    if is_view(view, FunctionView):
        return lambda view, site: view.first_move[site]
    return None


@overload(log_prob, **implements)
def _function_log_prob(view, chain):
    if is_view(view, FunctionView):
        return lambda view, chain: _float(chain.cache[0])
    return None


class ConditionedView(NamedTuple):
    """The view of another target, some of whose moves are impossible."""

    inner: Any
    pinned: NDArray[np.bool_]  # of each move
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]

    @property
    def cache_size(self) -> int:
        """Number of integers in the cache of a chain."""
        size: int = self.inner.cache_size
        return size

    @property
    def scratch_size(self) -> int:
        """Number of integers of scratch memory of a chain."""
        return getattr(self.inner, "scratch_size", 0)


@overload(init_cache, **implements)
def _conditioned_init(view, chain):
    if is_view(view, ConditionedView):
        return lambda view, chain: init_cache(view.inner, chain)
    return None


@overload(log_ratio, **implements)
def _conditioned_log_ratio(view, chain, move):
    if not is_view(view, ConditionedView):
        return None

    def ratio(view, chain, move):
        return -np.inf if view.pinned[move] else log_ratio(view.inner, chain, move)

    return ratio


@overload(flip, **implements)
def _conditioned_flip(view, chain, move):
    if is_view(view, ConditionedView):
        return lambda view, chain, move: flip(view.inner, chain, move)
    return None


@overload(first_move, **implements)
def _conditioned_first_move(view, site):
    if is_view(view, ConditionedView):
        return lambda view, site: first_move(view.inner, site)
    return None


@overload(log_prob, **implements)
def _conditioned_log_prob(view, chain):
    if is_view(view, ConditionedView):
        return lambda view, chain: log_prob(view.inner, chain)
    return None


# ----------------------------------------------------------------- one transition


@inlined
def _weigh_all(view, table, chain):
    """Weights of all moves under the present offset, and their sums."""
    n = view.touched_start.size - 1
    for m in range(n):
        chain.tree[m] = log_weight(table, log_ratio(view, chain, np.uint64(m))) - chain.offset[0]
    for m in range(n):
        chain.tree[m] = exp(chain.tree[m])
    sum_all(chain)


@called
def rebase(view, table, chain):
    """Take the largest log weight as the offset and weigh all moves again."""
    largest = -np.inf
    for m in range(view.touched_start.size - 1):
        largest = max(largest, log_weight(table, log_ratio(view, chain, np.uint64(m))))
    chain.offset[0] = largest if np.isfinite(largest) else 0.0
    _weigh_all(view, table, chain)


@inlined
def propose(view, table, chain, move):
    """Make a move and bring weights and sums up to date; return the inverse move."""
    inverse = flip(view, chain, move)
    begin, end = view.touched_start[move], view.touched_start[move + np.uint64(1)]
    for k in range(begin, end):
        t = np.uint64(view.touched[k])
        chain.old_weight[k - begin] = chain.tree[t]
        chain.tree[t] = exp(log_weight(table, log_ratio(view, chain, t)) - chain.offset[0])
    chain.evaluations[0] += np.int64(end - begin)
    _sum_touched(chain, view.touched, begin, end)
    return inverse


@inlined
def undo(view, chain, move, inverse):
    """Take back the move just proposed."""
    flip(view, chain, inverse)
    begin, end = view.touched_start[move], view.touched_start[move + np.uint64(1)]
    for k in range(begin, end):
        chain.tree[view.touched[k]] = chain.old_weight[k - begin]
    _sum_touched(chain, view.touched, begin, end)


@inlined
def step(view, table, chain, u_select, u_accept):
    """One Metropolis-Hastings transition, pure in its two uniforms; the acceptance probability.

    Q(m|x) = w_m / Z(x) with w = g(exp l); g is balancing, so the move is accepted with
    probability min(1, Z(x) / Z(x')). A lazy chain first stays with probability ``lazy``.
    """
    before = total(chain)
    if before == 0.0 or u_select < chain.lazy:  # zero: no neighbour has positive probability
        return 0.0
    move = select(view, chain, (u_select - chain.lazy) / (1.0 - chain.lazy) * before)
    inverse = propose(view, table, chain, move)
    after = total(chain)
    ratio = before / after
    if u_accept < ratio:
        chain.moved[np.int64(move)] = True
        if not _SMALLEST_TOTAL < after < _LARGEST_TOTAL:
            rebase(view, table, chain)
    else:
        undo(view, chain, move, inverse)
    return min(1.0, ratio)


@kernel
def start(view, table, chains, first, last):
    """Compute all caches of the chains first..last-1 from their states."""
    for c in range(first, last):
        chain = chain_at(chains, c)
        init_cache(view, chain)
        rebase(view, table, chain)


@kernel
def log_probs(view, chains, out):
    for c in range(out.size):
        out[c] = log_prob(view, chain_at(chains, c))


@kernel
def run(view, table, chains, span, uniforms, schedule, draws, stats):
    """Transitions of the chains first..last-1; a draw whenever ``thin`` of them have been made.

    ``span`` = (first, last), ``uniforms`` has shape (last - first, n_transitions, 2),
    ``schedule`` = (thin, transitions made since the last draw, index of the next draw); with
    thin = 0 nothing is drawn. ``stats`` gets log p and the mean acceptance probability since
    the last draw.
    """
    first, last = span
    thin, made_before, draw_before = schedule
    for c in range(first, last):
        chain = chain_at(chains, c)
        made, draw = made_before, draw_before
        for i in range(uniforms.shape[1]):
            u_select, u_accept = uniforms[c - first, i, 0], uniforms[c - first, i, 1]
            chain.acceptance[0] += step(view, table, chain, u_select, u_accept)
            made += 1
            if made == thin:
                for j in range(chain.x.size):
                    draws[c, draw, j] = chain.x[j]
                stats[c, draw, 0] = log_prob(view, chain)
                stats[c, draw, 1] = chain.acceptance[0] / thin
                chain.acceptance[0] = 0.0
                made = 0
                draw += 1


# ----------------------------------------------------------------- gradients at the knots
#
# With T_m = w_m / max(Z(x), Z(x^m)) the probability of making move m,
#     d log T_m = d h(l_m) - d log max(Z(x), Z(x^m)),     d Z = sum_j w_j d h(l_j),
# and Z(x^m) differs from Z(x) by the touched weights only. The part with d Z is gathered over
# all moves in one number, the "mass", and spread over the knots once at the end.

BOUND, ENUMERATED, SAMPLED_KL = 1, 2, 3


def scaled(amount, factor):
    """Return a tuple of numbers times a number."""
    raise TypeError("compiled only")


@overload(scaled, **implements)
def _scaled(amount, factor):
    if amount.count == 1:
        return lambda amount, factor: (amount[0] * factor,)
    if amount.count == 2:
        return lambda amount, factor: (amount[0] * factor, amount[1] * factor)
    return lambda amount, factor: (amount[0] * factor, amount[1] * factor, amount[2] * factor)


@inlined
def _add_knots(table, u, amount, gradient):
    """gradient[k] += amount[k] * d h(abs(u)) / d table.value, for each row k."""
    last = np.float64(table.value.size - 1)
    a = min(abs(u) * table.inverse_step, last)
    knot = np.uint64(min(a, last - 1.0))
    upper = a - np.float64(knot)
    for k in range(len(amount)):
        part = amount[k] * upper
        gradient[k, knot] += amount[k] - part
        gradient[k, knot + np.uint64(1)] += part


@inlined
def _peek(view, table, chain, move):
    """Make a move but leave the tree alone; return (move, its inverse, Z(x')).

    Z(x') is Z(x) plus the changes of the touched weights. Only max(Z(x), Z(x')) is used, and
    that has no cancellation.
    """
    inverse = flip(view, chain, move)
    begin, end = view.touched_start[move], view.touched_start[move + np.uint64(1)]
    change = 0.0
    for k in range(begin, end):
        t = np.uint64(view.touched[k])
        weight = exp(log_weight(table, log_ratio(view, chain, t)) - chain.offset[0])
        chain.old_weight[k - begin] = weight
        change += weight - chain.tree[t]
    chain.evaluations[0] += np.int64(end - begin)
    return move, inverse, total(chain) + change


@inlined
def _retract(view, table, chain, peeked, amount, gradient):
    """Undo a peeked move, adding amount * d log T to the gradient; return the mass."""
    move, inverse, after = peeked
    before = total(chain)
    mass = scaled(amount, 1.0 / max(before, after))
    begin, end = view.touched_start[move], view.touched_start[move + np.uint64(1)]
    if before < after:
        for k in range(begin, end):
            w = chain.old_weight[k - begin]
            ratio = log_ratio(view, chain, np.uint64(view.touched[k]))
            _add_knots(table, ratio, scaled(mass, -w), gradient)
    flip(view, chain, inverse)
    if before < after:
        for k in range(begin, end):
            t = np.uint64(view.touched[k])
            ratio = log_ratio(view, chain, t)
            _add_knots(table, ratio, scaled(mass, chain.tree[t]), gradient)
    _add_knots(table, log_ratio(view, chain, move), amount, gradient)
    return mass


@inlined
def _spread(view, table, chain, mass, gradient):
    """Subtract mass * d Z from the gradient."""
    for m in range(view.touched_start.size - 1):
        part = mass * chain.tree[m]
        if part != 0.0:
            _add_knots(table, log_ratio(view, chain, np.uint64(m)), (-part,), gradient)


@inlined
def _weigh_again(view, table, chain):
    """Weigh all moves by a table, under another offset where the present one does not do."""
    _weigh_all(view, table, chain)
    if not _SMALLEST_TOTAL < total(chain) < _LARGEST_TOTAL:
        rebase(view, table, chain)


@inlined
def _terms(kind, event, transition, omega, eta):
    """Value of one term of a sampled objective, its derivatives by log T and by eta.

    ``transition`` = (log T, log-ratio, acceptance probability), ``omega`` = (omega, log omega).
    """
    log_t, ratio, acceptance = transition
    weight, log_weight_ = omega
    if event == 0:  # omega A log(T / p) at a neighbour drawn from the proposal
        surprise = log_t - ratio - log_weight_
        scale = weight * acceptance
        return scale * surprise, scale * (surprise + 1.0), 0.0
    # M [eta M - omega (log eta + 1)] with M = 1 - T at a uniform neighbour
    t = math.exp(log_t)
    stay, rest = 1.0 - t, weight * (math.log(eta) + 1.0)
    by_t = 2.0 * eta * stay - rest
    return stay * (eta * stay - rest), -t * by_t, stay * (stay - weight / eta)


@inlined
def _sampled(view, table, chain, settings, uniforms, log_omega, gradient):
    """One or two terms of a sampled objective at one chain: (value, d / d eta)."""
    kind, eta = settings
    before = total(chain)
    n_moves = view.touched_start.size - 1
    omega = (math.exp(log_omega), log_omega)
    mass = value = d_eta = 0.0
    for event in range(2 if kind == BOUND else 1):
        move = np.uint64(min(np.int64(uniforms[1] * n_moves), n_moves - 1))
        if event == 0:
            move = select(view, chain, uniforms[0] * before)
        ratio = log_ratio(view, chain, move)
        peeked = _peek(view, table, chain, move)
        acceptance = before / max(before, peeked[2])
        if chain.tree[move] > 0.0 and acceptance > 0.0:
            log_t = log_weight(table, ratio) - chain.offset[0] - math.log(max(before, peeked[2]))
            term = _terms(kind, event, (log_t, ratio, acceptance), omega, eta)
            mass += _retract(view, table, chain, peeked, (term[1],), gradient)[0]
            value += term[0]
            d_eta += term[2]
        else:  # T = 0: no gradient
            flip(view, chain, peeked[1])
            if event == 1:
                value += eta - omega[0] * (math.log(eta) + 1.0)
                d_eta += 1.0 - omega[0] / eta
    _spread(view, table, chain, mass, gradient)
    return value, d_eta


@inlined
def _enumerated(view, table, chain, every, u, log_omega, gradient):
    """Evaluate omega [sum_m T_m (log T_m - l_m) + M log M - log omega] at one chain.

    The gradient is omega sum_m T_m s_m d log T_m with s_m = log T_m - l_m - log M. log M is known
    only at the end, so the second row gathers what it multiplies. With only each ``every``-th
    move visited, b sum_m Q_m d log Q_m with b the mean of s is subtracted: the whole sum is zero,
    and most of the noise of a part of it is the same as that of the gradient (third row).
    """
    before = total(chain)
    n_moves = view.touched_start.size - 1
    first = min(np.int64(u * every), every - 1)
    n_visited = -((first - n_moves) // every)
    mass = (0.0, 0.0, 0.0)
    value = stay = moved = 0.0
    for k in range(n_visited):
        move = np.uint64(first + k * every)
        ratio = log_ratio(view, chain, move)
        q = chain.tree[move] / before
        if q == 0.0:
            continue
        peeked = _peek(view, table, chain, move)
        largest = max(before, peeked[2])
        acceptance = before / largest
        stay += q * (1.0 - acceptance)
        if acceptance > 0.0:
            log_t = log_weight(table, ratio) - chain.offset[0] - math.log(largest)
            t = math.exp(log_t)
            score = t * (log_t - ratio)
            value += score
            moved += t
            more = _retract(view, table, chain, peeked, (score, t, 0.0), gradient)
            _add_knots(table, ratio, (0.0, 0.0, q), gradient)
            mass = (mass[0] + more[0], mass[1] + more[1], mass[2] + q / before)
        else:  # T = 0: no gradient
            flip(view, chain, peeked[1])
    # A part of the moves cannot tell a smaller M than one over their number.
    smallest = SMALLEST_STAY if every == 1 else 1.0 / n_visited
    log_stay = math.log(max(every * stay, smallest))
    baseline = value / moved - log_stay if every > 1 and moved > 0.0 else 0.0
    omega = math.exp(log_omega)
    scale = every * omega
    for k in range(gradient.shape[1]):
        gradient[0, k] = scale * (
            gradient[0, k] - log_stay * gradient[1, k] - baseline * gradient[2, k]
        )
    _spread(
        view, table, chain, scale * (mass[0] - log_stay * mass[1] - baseline * mass[2]), gradient
    )
    return omega * (every * (value + stay * log_stay) - log_omega)


@kernel
def sampled(view, table, chains, span, settings, uniforms, log_omega, out):
    """Weigh all moves by the table, then evaluate a sampled objective and its gradient per chain.

    ``span`` = (first, last) chain, ``settings`` = (kind, eta), ``uniforms[c]`` = (u of the proposed
    neighbour, u of the uniform one), ``log_omega[c]`` = log importance weight, ``out`` = (gradient
    (n, 1, knots), value (n,), derivative by eta (n,)).
    """
    gradients, values, d_eta = out
    for c in range(span[0], span[1]):
        chain = chain_at(chains, c)
        gradients[c] = 0.0
        values[c] = d_eta[c] = 0.0
        _weigh_again(view, table, chain)
        if total(chain) > 0.0:
            u = (uniforms[c, 0], uniforms[c, 1])
            values[c], d_eta[c] = _sampled(
                view, table, chain, settings, u, log_omega[c], gradients[c]
            )


@kernel
def enumerated(view, table, chains, span, every, uniforms, log_omega, out):
    """Do the same for the objective over all neighbours, or each ``every``-th.

    ``uniforms[c]`` tells which of them, log_omega[c] = -inf leaves the chain out, ``out`` =
    (gradient (n, 3, knots), value (n,)); the gradient is in its first row, the others are scratch.
    """
    gradients, values = out
    for c in range(span[0], span[1]):
        chain = chain_at(chains, c)
        gradients[c] = 0.0
        values[c] = 0.0
        _weigh_again(view, table, chain)
        if total(chain) > 0.0 and log_omega[c] > -np.inf:
            values[c] = _enumerated(
                view, table, chain, every, uniforms[c], log_omega[c], gradients[c]
            )


@inlined
def _flow(view, table, chain, site, local, weight, gradient):
    """Flow, value and mass of one site, see `flux`; adds value * d log T to the gradient."""
    begin, end = first_move(view, site), first_move(view, site + np.uint64(1))
    before = total(chain)
    odds = 0.0
    for move in range(begin, end):
        odds += exp(min(log_ratio(view, chain, move), 700.0))
    p = 1.0 / (1.0 + odds)
    t = last_t = mass = 0.0
    made = False
    peeked = (begin, begin, before)
    for move in range(begin, end):
        if chain.tree[move] > 0.0:
            if made:
                flip(view, chain, peeked[1])
            peeked = _peek(view, table, chain, move)
            made = True
            last_t = chain.tree[move] / max(before, peeked[2])
            t += last_t
    flow = 2.0 * p * t
    value = weight * flow
    if local:
        value = p * (odds * p) ** 2 / t if t > 0.0 else 0.0
    if value == 0.0 or last_t == 0.0:
        if made:
            flip(view, chain, peeked[1])
    else:  # the last move is still made
        mass += _retract(view, table, chain, peeked, (value * (last_t / t),), gradient)[0]
    # The others, if any, are made once more.
    for move in range(begin, peeked[0] if value > 0.0 else begin):
        if chain.tree[move] > 0.0:
            again = _peek(view, table, chain, move)
            share = chain.tree[move] / max(before, again[2]) / t
            if share > 0.0:
                mass += _retract(view, table, chain, again, (value * share,), gradient)[0]
            else:  # Z(x') may be infinite
                flip(view, chain, again[1])
    return flow, value, mass


@kernel
def flux(view, table, chains, span, sites, weight, out):
    """How fast the chains change each of some sites, and the gradient of what is made of it.

    At a state x, p_i is the probability of the present value of site i given the others and T_i
    that of a transition which changes it. ``out`` = (gradient (n, 1, knots), value (n,), flow
    (n, sites)) with flow_i = 2 p_i T_i. With weights, one for each of ``sites``, the value is
    sum_i weight_i flow_i; without, it is the local bound log sum_i p_i (1 - p_i)^2 / T_i.
    """
    gradients, values, flows = out
    for c in range(span[0], span[1]):
        chain = chain_at(chains, c)
        gradient = gradients[c]
        gradient[:, :] = 0.0
        flows[c] = 0.0
        _weigh_again(view, table, chain)
        mass = whole = 0.0
        local = weight.size == 0
        for k in range(sites.size):
            w = 0.0 if local else weight[k]
            site = np.uint64(sites[k])
            flow, value, more = _flow(view, table, chain, site, local, w, gradient)
            flows[c, k] = flow
            whole += value
            mass += more
        scale = 1.0
        if local:
            scale = -1.0 / max(whole, _SMALLEST_TOTAL)
            whole = math.log(max(whole, _SMALLEST_TOTAL))
        values[c] = whole
        for k in range(gradient.shape[1]):
            gradient[0, k] *= scale
        _spread(view, table, chain, scale * mass, gradient)

"""Any function in the kernels, by the address of a C function."""

import ctypes
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, from_dtype, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from sklsb._kernels._jit import called, implements, inlined, interpreted
from sklsb._kernels.contract import (
    change_of,
    first_move,
    flip,
    forget_way,
    init_cache,
    log_prob,
    log_prob_is_cheap,
    log_ratio,
)
from sklsb._kernels.numeric import as_float

# Most integers of scratch memory per chain on a `FunctionView`, approximately.
_MOST_SCRATCH = 1 << 16


class FunctionView(NamedTuple):
    """A C function void(x, values): log p of x and of every state that a move leads to.

    The cache holds these values, as the bits of floats. The scratch memory holds whether the
    function failed, the state where it did, and a table of states with their values, so that no
    call is needed to undo a move or to return to a stored state.
    """

    address: int
    first_move: NDArray[np.uint64]  # of each site, and the number of moves
    site: NDArray[np.uint32]  # of each move
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]

    @property
    def cache_size(self) -> int:
        return self.site.size + 1

    @property
    def scratch_size(self) -> int:
        n_sites = self.first_move.size - 1
        slot = self.cache_size + n_sites
        # Odd; for two-valued variables, one slot per neighbour of a state.
        slots = min(2 * self.site.size + 1, max(17, _MOST_SCRATCH // slot | 1))
        return 1 + n_sites + slots * slot


# Differences of two such numbers, divided by the spacing of knots, stay finite.
LARGEST_LOG_PROB = 1e303
_BITS_OF_NAN, _BITS_OF_ZERO, _BITS_OF_NEVER = (
    int(np.float64(value).view(np.int64)) for value in (np.nan, 0.0, -np.inf)
)


def neighbourhood_function(log_prob, cardinalities, observed, dtype):
    """Compile the C function of a `FunctionView` from a jitted log p of one int64 state.

    The moves of observed sites are impossible.
    """
    n_sites = cardinalities.size
    n_values = 1 + int((cardinalities - 1).sum())
    pointers = types.CPointer(from_dtype(dtype)), types.CPointer(types.float64)

    @cfunc(types.void(*pointers))
    def evaluate(given, out):
        x = carray(given, n_sites).astype(np.int64)
        values = carray(out, n_values)
        # An exception in a cfunc is only printed; a NaN is detected, and an error raised in Python.
        try:
            values[0] = log_prob(x)
            k = 1
            for i in range(n_sites):
                present = x[i]
                for value in range(cardinalities[i]):
                    if value != present:
                        x[i] = value
                        values[k] = -np.inf if observed[i] else log_prob(x)
                        k += 1
                x[i] = present
        except Exception:  # noqa: BLE001
            values[0] = np.nan

    return evaluate


def state_function(log_prob, n_sites, dtype):
    """Compile the C function of a `FunctionSiteView` from a jitted log p of one int64 state."""
    pointers = types.CPointer(from_dtype(dtype)), types.CPointer(types.float64)

    @cfunc(types.void(*pointers))
    def evaluate(given, out):
        value = carray(out, 1)
        try:
            value[0] = log_prob(carray(given, n_sites).astype(np.int64))
        except Exception:  # noqa: BLE001
            value[0] = np.nan

    return evaluate


def only_result(compiled):
    """Compile a function of a state to the number that PyTensor's one returns in a tuple."""

    @njit
    def log_prob(x):
        return compiled(x)[0].item()

    return log_prob


@intrinsic
def _call_compiled(typing_context, address, x, values):
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


def _call_by_ctypes(address, x, values):
    """Do the same in plain Python."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(int(address))
    function(x.ctypes.data, values.ctypes.data)


_call: Any = _call_by_ctypes if interpreted() else _call_compiled


@inlined
def _slot(chain):
    """Return the place in the table for the present state: its values, then the state plus 1.

    Two-valued states that differ at one site have different places, if there are enough.
    """
    n_sites, n_values = chain.x.size, chain.cache.size
    n_slots = (chain.scratch.size - 1 - n_sites) // (n_values + n_sites)
    key = 0
    for i in range(n_sites):
        key += (i + 1) * np.int64(chain.x[i])
    return 1 + n_sites + key % n_slots * (n_values + n_sites)


@called
def _evaluate(view, chain):
    """Fill the cache; if a value is invalid, save the state and let the chain stand still."""
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
        cache[0] = _BITS_OF_NAN  # stays if the function does not finish
        _call(view.address, chain.x, cache)
        good = True
        for k in range(cache.size):
            value = as_float(cache[k])
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


@implements(init_cache, FunctionView)
def _init_cache(view, chain):
    return _evaluate(view, chain)


@implements(log_ratio, FunctionView)
def _log_ratio(view, chain, move):
    return as_float(chain.cache[move + np.uint64(1)]) - as_float(chain.cache[0])


@implements(flip, FunctionView)
def _flip(view, chain, move):
    site, _, after, inverse = change_of(view, chain, move)
    chain.x[site] = np.int64(after)
    _evaluate(view, chain)
    return inverse


@implements(log_prob, FunctionView)
def _log_prob(view, chain):
    return as_float(chain.cache[0])


# ----------------------------------------------------------------- a few states at a time

# Number of changes whose inverses are cached.
_DEPTH = 64


class FunctionSiteView(NamedTuple):
    """A C function void(x, value): log p of x alone, for rules that need few states.

    There is no cache. The scratch memory holds whether the function failed and the state where it
    did; whether log p of the present state is known, and its value; the site whose moves were
    evaluated last, plus 1; a place for the function's result; the number of cached changes, and for
    each the inverse move and log p there; log p for each value of that site. Unknown values are
    NaN. So a path through states and back calls the function once per state, and so do the
    log-ratios of all values of a variable.
    """

    address: int
    first_move: NDArray[np.uint64]  # of each site, and the number of moves
    site: NDArray[np.uint32]  # of each move

    @property
    def cache_size(self) -> int:
        return 0

    @property
    def scratch_size(self) -> int:
        most = int(np.diff(self.first_move).max(initial=0)) + 1
        return self.first_move.size + 5 + 2 * _DEPTH + most


@inlined
def _bits(value):
    return np.float64(value).view(np.int64)


@inlined
def _places(chain):
    """Return where log p of the state, the cached changes, and those of the site begin."""
    known = 1 + chain.x.size
    changes = known + 5
    return known, changes, changes + 2 * _DEPTH


@called
def _evaluate_state(view, chain):
    """Return log p of the present state; if the function fails, save the state and return -inf."""
    scratch = chain.scratch
    known = _places(chain)[0]
    if scratch[0] != 0:
        return -np.inf
    out = scratch[known + 3 : known + 4]
    out[0] = _BITS_OF_NAN  # stays if the function does not finish
    _call(view.address, chain.x, out)
    value = as_float(out[0])
    if abs(value) <= LARGEST_LOG_PROB or value == -np.inf:
        return value
    scratch[0] = 1
    for i in range(chain.x.size):
        scratch[1 + i] = chain.x[i]
    return -np.inf


@implements(init_cache, FunctionSiteView)
def _init_nothing(view, chain):
    known, changes, _ = _places(chain)
    for k in range(known, changes):
        chain.scratch[k] = 0


@implements(log_prob_is_cheap, FunctionSiteView)
def _one_call(view):
    return True


@implements(log_prob, FunctionSiteView)
def _site_log_prob(view, chain):
    known = _places(chain)[0]
    if chain.scratch[known] == 0:
        chain.scratch[known + 1] = _bits(_evaluate_state(view, chain))
        chain.scratch[known] = 1
    return as_float(chain.scratch[known + 1])


@implements(log_ratio, FunctionSiteView)
def _site_log_ratio(view, chain, move):
    here = log_prob(view, chain)
    scratch = chain.scratch
    known, _, values = _places(chain)
    site, _, value, _ = change_of(view, chain, move)
    after = np.int64(value)
    if scratch[known + 2] != np.int64(site) + 1:
        scratch[known + 2] = np.int64(site) + 1
        n_moves = view.first_move[site + np.uint64(1)] - view.first_move[site]
        for value in range(np.int64(n_moves) + 1):
            scratch[values + value] = _BITS_OF_NAN
    there = as_float(scratch[values + after])
    if there != there:
        before = np.int64(chain.x[site])
        chain.x[site] = after
        there = _evaluate_state(view, chain)
        chain.x[site] = before
        scratch[values + after] = _bits(there)
    # After a failure the chain stands still.
    return -np.inf if scratch[0] != 0 else there - here


@implements(flip, FunctionSiteView)
def _flip_site(view, chain, move):
    scratch = chain.scratch
    known, changes, values = _places(chain)
    site, _, value, inverse = change_of(view, chain, move)
    after = np.int64(value)
    depth = scratch[known + 4]
    last = changes + 2 * (depth - 1)
    here = scratch[known + 1] if scratch[known] != 0 else _BITS_OF_NAN
    there = _BITS_OF_NAN
    if scratch[known + 2] == np.int64(site) + 1:
        if scratch[known] != 0:
            scratch[values + np.int64(chain.x[site])] = here
        there = scratch[values + after]
    else:
        scratch[known + 2] = 0
    if depth > 0 and scratch[last] == np.int64(move):  # undoes the last change
        if there == _BITS_OF_NAN:
            there = scratch[last + 1]
        depth -= 1
    else:
        if depth == _DEPTH:  # forget the older half
            for k in range(changes, changes + _DEPTH):
                scratch[k] = scratch[k + _DEPTH]
            depth = _DEPTH // 2
        depth += 1
        last = changes + 2 * (depth - 1)
        scratch[last], scratch[last + 1] = np.int64(inverse), here
    chain.x[site] = after
    value = as_float(there)
    scratch[known] = np.int64(value == value)
    scratch[known + 1] = there
    scratch[known + 4] = depth
    return inverse


@implements(forget_way, FunctionSiteView)
def _forget_changes(view, chain):
    chain.scratch[_places(chain)[0] + 4] = 0


@implements(first_move, FunctionView, FunctionSiteView)
def _first_move(view, site):
    return view.first_move[site]

"""Numbers: the exponential, the weight of a move, the logarithm of 1 + exp."""

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from sklsb._kernels._jit import fused, inlined, interpreted


class Table(NamedTuple):
    """The part q of a log weight u/2 + q: value[k] + slope[k] (a - k).

    Here a = abs(u) / step and k = floor a, at most the last knot.
    """

    value: NDArray[np.float64]
    slope: NDArray[np.float64]
    inverse_step: float


# log(2) / 256 as a sum of two floats, the first short enough for exact products.
_STEP_HIGH, _STEP_LOW = map(float.fromhex, ("0x1.62e42fcp-9", "0x1.7d1cf79abc9e4p-36"))
_STEPS_PER_UNIT = 256 / math.log(2)
_POWERS = np.exp2(np.arange(256) / 256)
_ROUND = 1.5 * 2.0**52
_ROUND_BITS = int(np.float64(_ROUND).view(np.int64))


def _exp(x):
    """exp(x) within 2 ulp; 0 below -708, inf above 709. It vectorises, 6 times as fast as libm."""
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


exp, fused_exp = inlined(_exp), fused(_exp)


_PER_NAT_32 = np.float32(1 / math.log(2))
_ROUND_32 = np.float32(1.5 * 2.0**23)
_ROUND_BITS_32 = np.int32(_ROUND_32.view(np.int32))
_ZERO_32, _ONE_32 = np.float32(0.0), np.float32(1.0)
_LEAST_32, _MOST_32, _NEVER_32 = (np.float32(x) for x in (-80.0, 80.0, -np.inf))
# Coefficients of 2^x on [-1/2, 1/2], Chebyshev.
_TWO_1, _TWO_2, _TWO_3, _TWO_4, _TWO_5 = (
    np.float32(c) for c in (0.69314720, 0.24022651, 0.05550411, 0.00961813, 0.00133336)
)


def _power(x):
    """exp(x) for x from -80 to 80 within 1e-5, as float32; it vectorises, without a table."""
    scaled = np.float32(x) * _PER_NAT_32
    shifted = np.float32(scaled + _ROUND_32)
    r = scaled - (shifted - _ROUND_32)
    power = _ONE_32 + r * (_TWO_1 + r * (_TWO_2 + r * (_TWO_3 + r * (_TWO_4 + r * _TWO_5))))
    exponent = np.int32(shifted.view(np.int32) - _ROUND_BITS_32)
    return power * np.int32((exponent + np.int32(127)) << np.int32(23)).view(np.float32)


_fused_exp = fused(_power)


@inlined
def rough_exp(x):
    """exp(x) for x from -80 to 80, to which others are cut, within 1e-5, as float32."""
    x = _LEAST_32 if x < _LEAST_32 else x
    return _fused_exp(_MOST_32 if x > _MOST_32 else x)


@inlined
def rough_weight(x):
    """exp(x) for x at most 0 within 1e-5, as float32; 0 at -inf, else at least exp(-80)."""
    weight = _fused_exp(max(x, _LEAST_32))
    return _ZERO_32 if x == _NEVER_32 else weight


@inlined
def log_weight(table, u):
    """Return log g(exp u) = u/2 + h(abs(u)); -inf at u = -inf whatever h is."""
    last = np.float64(table.value.size) - 1.0
    a = abs(u) * table.inverse_step
    below = np.floor(min(a, last))
    knot = np.uint64(below)
    h = table.value[knot] + table.slope[knot] * (a - below)
    return -np.inf if u == -np.inf else 0.5 * u + h


@inlined
def add_up(terms):
    """Add up numbers in a fixed order, four sums at a time, which the processor overlaps."""
    a = b = c = d = 0.0
    whole = terms.size - terms.size % 4
    for k in range(0, whole, 4):
        a += terms[k]
        b += terms[k + 1]
        c += terms[k + 2]
        d += terms[k + 3]
    for k in range(whole, terms.size):
        a += terms[k]
    return (a + b) + (c + d)


@inlined
def softplus(a):
    """log(1 + exp a)."""
    return max(a, 0.0) + math.log1p(math.exp(-abs(a)))


@inlined
def split_mix_bits(state):
    """Return the next state (uint64) of the generator SplitMix64, and 64 random bits.

    G. L. Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    state = np.uint64(state + np.uint64(0x9E3779B97F4A7C15))
    z = state
    z = np.uint64((z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    z = np.uint64((z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    return state, z ^ (z >> np.uint64(31))


@inlined
def split_mix(state):
    """Return the next state, and a uniform number in [0, 1)."""
    state, bits = split_mix_bits(state)
    return state, np.float64(bits >> np.uint64(11)) * 2.0**-53


@inlined
def as_float(bits):
    """Reinterpret the bits of an integer as a float."""
    return np.int64(bits).view(np.float64)


@intrinsic
def _prefetch(typing_context, array, index):
    """Prefetch the cache line of array[index]."""

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


prefetch: Any = (lambda array, index: None) if interpreted() else _prefetch

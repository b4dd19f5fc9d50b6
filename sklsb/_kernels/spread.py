"""Many uniform numbers from one word."""

import numpy as np

from sklsb._kernels._jit import inlined, kernel
from sklsb._kernels.numeric import split_mix, split_mix_bits

_GAP = np.uint64(0x9E3779B97F4A7C15)  # between states of the generator


@inlined
def fill(state, out):
    """Fill a row with uniform numbers in [0, 1), a function of the word ``state`` (uint64)."""
    for k in range(out.size):
        state, out[k] = split_mix(state)


@inlined
def number_of(word, k):
    """Return the k-th number that `fill` makes from a word, the bits of a float."""
    return split_mix(np.uint64(np.float64(word).view(np.int64)) + np.uint64(k) * _GAP)[1]


@inlined
def fill_roughly(word, first, out):
    """Fill a row with the numbers of a word, the bits of a float, from ``first`` on.

    In single precision, up to 2^-24 less.
    """
    state = np.uint64(np.float64(word).view(np.int64)) + np.uint64(first) * _GAP
    for k in range(out.size):
        state, bits = split_mix_bits(state)
        out[k] = np.float32(np.int32(bits >> np.uint64(40))) * np.float32(2.0**-24)


@inlined
def fill_behind(words, t, n):
    """Fill what is behind n words, which are the bits of floats, from word t."""
    fill(np.uint64(np.float64(words[t]).view(np.int64)), words[n:])


@kernel
def spread(words, out):
    """Fill each row of ``out`` with uniform numbers in [0, 1), a function of its word alone.

    They are those of SplitMix64 with the word (uint64) as its state; the loop is vectorised.
    """
    for t in range(words.size):
        fill(words[t], out[t])

"""Many uniform numbers from one word."""

import numpy as np

from sklsb._kernels._jit import inlined, kernel
from sklsb._kernels.numeric import split_mix


@inlined
def fill(state, out):
    """Fill a row with uniform numbers in [0, 1), a function of the word ``state`` (uint64)."""
    for k in range(out.size):
        state, out[k] = split_mix(state)


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

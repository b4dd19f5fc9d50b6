"""Many uniform numbers from one word."""

from sklsb._kernels._jit import kernel
from sklsb._kernels.numeric import split_mix


@kernel
def spread(words, out):
    """Fill each row of ``out`` with uniform numbers in [0, 1), a function of its word alone.

    They are those of SplitMix64 with the word (uint64) as its state; the loop is vectorised.
    """
    for t in range(words.size):
        state = words[t]
        for k in range(out.shape[1]):
            state, out[t, k] = split_mix(state)

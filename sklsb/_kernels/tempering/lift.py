"""Values of variables that were summed out, drawn given those of the core, in the kernels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import kernel


class Conditionals(NamedTuple):
    """Distributions of variables, each given some of the core and of those before it."""

    core: NDArray[np.int64]  # variables that are not drawn
    variable: NDArray[np.int64]  # in the order in which they are drawn
    k: NDArray[np.int64]  # number of values
    start: NDArray[np.int64]  # of the table of each, which has a row for each joint value
    axis_start: NDArray[np.int64]  # of the variables that it is given, with the end
    axis: NDArray[np.int64]
    stride: NDArray[np.int64]  # in rows
    upto: NDArray[np.float64]  # probability of this value or one before; the last possible one 1
    likeliest: NDArray[np.int16]  # value of each row, at the index of its first entry
    first_name: NDArray[np.int64]  # of each variable of the model
    name: NDArray[np.int64]  # value of the target, of each index


@kernel
def lift(conditionals, core, u, index, x):
    """Make states of the model from states of the core.

    ``core`` of shape (n, variables of the core) has indices of values; ``u`` of shape (n, variables
    that are drawn) uniform numbers, or (n, 0) for the likeliest value of each in turn. ``index`` is
    room for one state; ``x`` of shape (n, variables of the model) gets values of the target, and
    keeps those that are of no variable here.
    """
    c = conditionals
    for t in range(core.shape[0]):
        for j in range(c.core.size):
            index[c.core[j]] = core[t, j]
        for j in range(c.variable.size):
            row = 0
            for a in range(c.axis_start[j], c.axis_start[j + 1]):
                row += c.stride[a] * index[c.axis[a]]
            at, k = c.start[j] + row * c.k[j], 0
            if u.shape[1] == 0:
                k = np.int64(c.likeliest[at])
            else:
                while k < c.k[j] - 1 and u[t, j] >= c.upto[at + k]:
                    k += 1
            index[c.variable[j]] = k
        for i in range(index.size):
            x[t, i] = c.name[c.first_name[i] + index[i]]

"""Drawing variables that were summed out, given those of the core."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import kernel


class Conditionals(NamedTuple):
    """Distributions of variables, each given variables of the core and earlier ones."""

    core: NDArray[np.int64]  # variables that are not drawn
    variable: NDArray[np.int64]  # in the order in which they are drawn
    k: NDArray[np.int64]  # number of values
    start: NDArray[np.int64]  # of each table, which has a row per joint value of what is given
    axis_start: NDArray[np.int64]  # of the variables given, with the end
    axis: NDArray[np.int64]
    stride: NDArray[np.int64]  # in rows
    upto: NDArray[np.float64]  # cumulative probability; 1 at the last possible value
    likeliest: NDArray[np.int16]  # of each row, at the index of its first entry
    first_name: NDArray[np.int64]  # of each variable of the model
    name: NDArray[np.int64]  # target value of each index


@kernel
def lift(conditionals, core, u, index, x):
    """Extend states of the core to states of the model.

    ``core`` of shape (n, variables of the core) has indices of values. ``u`` has shape (n,
    variables drawn), or (n, 0) to take the likeliest value of each in turn. ``index`` is scratch
    for one state; ``x`` of shape (n, variables of the model) gets target values.
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

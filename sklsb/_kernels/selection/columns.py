"""The columns of a regression and their inner products."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import _inner, contract, implements

# Sums whose order the compiler may choose: four times as fast, since vector instructions add. The
# order depends on the processor's instructions, never on the data or on other chains.
_reassociated = _inner(forceinline=True, fastmath={"reassoc"})


class DenseColumns(NamedTuple):
    """Columns as the rows of a matrix."""

    x: NDArray[Any]  # (p, n), float32 or float64
    weight: NDArray[np.float64]  # of the n rows of the data; empty: all 1


class SparseColumns(NamedTuple):
    """Columns in compressed form, of which a projection is taken off without making them dense.

    The inner product of two columns is that of the given ones, less that of their rows of ``low``:
    the coordinates of their projection in an orthonormal basis. ``low`` has no columns if there are
    weights.
    """

    value: NDArray[np.float64]
    row: NDArray[np.int64]
    start: NDArray[np.int64]  # (p + 1,)
    low: NDArray[np.float64]  # (p, q)
    weight: NDArray[np.float64]


@contract(0)
def spread(columns, m, dense):
    """Write column m, times the weights of the rows, into ``dense`` (n,)."""


@contract(0)
def product(columns, j, m, dense):
    """Return the inner product of columns j and m, with `spread` having written m."""


@implements(spread, DenseColumns)
def _spread_dense(columns, m, dense):
    if columns.weight.size > 0:
        for i in range(columns.x.shape[1]):
            dense[i] = columns.weight[i] * columns.x[m, i]
    else:
        for i in range(columns.x.shape[1]):
            dense[i] = columns.x[m, i]


@_reassociated
def _dot(x, dense):
    total = 0.0
    for i in range(x.size):
        total += x[i] * dense[i]
    return total


@implements(product, DenseColumns)
def _product_dense(columns, j, m, dense):
    return _dot(columns.x[j], dense)


@implements(spread, SparseColumns)
def _spread_sparse(columns, m, dense):
    dense[:] = 0.0
    for e in range(columns.start[m], columns.start[m + 1]):
        i = columns.row[e]
        weight = columns.weight[i] if columns.weight.size > 0 else 1.0
        dense[i] = weight * columns.value[e]


@implements(product, SparseColumns)
def _product_sparse(columns, j, m, dense):
    total = 0.0
    for e in range(columns.start[j], columns.start[j + 1]):
        total += columns.value[e] * dense[columns.row[e]]
    for q in range(columns.low.shape[1]):
        total -= columns.low[j, q] * columns.low[m, q]
    return total

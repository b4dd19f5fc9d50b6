"""Chains in the kernels."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.contract import row_of


class Chains(NamedTuple):
    """The arrays of several chains, one row each."""

    x: NDArray[Any]
    cache: NDArray[np.int64]  # of the target, computed from x
    scratch: NDArray[np.int64]  # of the target, no part of the state
    moved: NDArray[np.bool_]  # by move, or by the first move of each site
    evaluations: NDArray[np.int64]  # (n, 1)
    acceptance: NDArray[np.float64]  # (n, 1) sum of acceptance probabilities
    refusable: NDArray[np.int64]  # (n, 1) number of these
    part: Any  # of the rule


class Chain(NamedTuple):
    """One row of `Chains`."""

    x: NDArray[Any]
    cache: NDArray[np.int64]
    scratch: NDArray[np.int64]
    moved: NDArray[np.bool_]
    evaluations: NDArray[np.int64]
    acceptance: NDArray[np.float64]
    refusable: NDArray[np.int64]
    part: Any


class NoPart(NamedTuple):
    """The part of a rule that keeps nothing beside the cache."""

    nothing: NDArray[np.float64] = np.empty(0)


@implements(row_of, NoPart)
def _row_of_nothing(part, c):
    return part


@inlined
def with_part(chain, part):
    """Return the same chain with the part of another rule."""
    return Chain(*chain[:-1], part)


@inlined
def chain_at(chains, c):
    """Return the chain in row c."""
    return Chain(
        chains.x[c],
        chains.cache[c],
        chains.scratch[c],
        chains.moved[c],
        chains.evaluations[c],
        chains.acceptance[c],
        chains.refusable[c],
        row_of(chains.part, c),
    )


def arrays_of(part: Any, prefix: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays in nested named tuples, with their dotted names."""
    for name, value in part._asdict().items():
        if isinstance(value, tuple):
            yield from arrays_of(value, f"{prefix}{name}.")
        elif isinstance(value, np.ndarray):
            yield prefix + name, value

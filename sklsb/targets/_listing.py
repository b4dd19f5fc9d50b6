"""The states of a small target, in order."""

import math
from functools import cached_property

import numpy as np

from sklsb._system.arrays import Ints
from sklsb.targets.base import Conditioned, States, Target

MAX_STATES = 2**14


def count(target: Target) -> int:
    """Return the number of states, if they are few enough to be listed."""
    n = math.prod(target.cardinalities.tolist())
    if n > MAX_STATES:
        raise ValueError(
            f"{target!r:.200} has {n} states; enumeration takes at most {MAX_STATES}. "
            "Take a smaller target of the same kind, or log_prob of states that you list."
        )
    return n


def _digits(index: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Index of each variable's value in states by number, the last changing fastest; strides."""
    stride = np.cumprod(np.append(sizes, 1)[:0:-1])[::-1].astype(np.int64)
    return index[:, np.newaxis] // stride % sizes, stride


def digits_of(target: Target) -> tuple[Ints, Ints]:
    """Index of each variable's value in each state, and the row stride of each variable."""
    return _digits(np.arange(count(target)), target.cardinalities)


def states(target: Target) -> States:
    """All states, in lexicographic order: the last variable changes fastest.

    Parameters
    ----------
    target : Target
        A target with at most 2**14 states.

    Raises
    ------
    ValueError
        If there are more states.
    """
    return np.asarray(target.values, dtype=target.dtype)[digits_of(target)[0]]


class Listing:
    """States of a target by number, in which variables with one possible value have it.

    ``free`` are the others, each with all its ``sizes`` values; ``n`` is the number of states, inf
    if it is very large.
    """

    def __init__(self, target: Target):
        self.target, self.free = target, np.flatnonzero(target.n_possible > 1)
        self.sizes = target.cardinalities[self.free]
        with np.errstate(over="ignore"):
            self.n = float(np.prod(self.sizes, dtype=float))

    @cached_property
    def one(self) -> States:
        """A state with the only possible values of variables that are not free."""
        target, x = self.target, np.full(self.target.n_sites, self.target.values[0])
        if isinstance(target, Conditioned):
            x[target.sites] = target.observed
        told = np.isin(np.arange(x.size), target.observed_sites) | (target.cardinalities == 1)
        if (target.n_possible[~told] < 2).any():  # by zeros
            x = target.draw_state(np.random.default_rng(0))
        return x.astype(target.dtype)

    def __getitem__(self, index: Ints) -> States:
        values, x = np.asarray(self.target.values), np.tile(self.one, (index.size, 1))
        x[:, self.free] = values[_digits(index, self.sizes)[0]]
        return x

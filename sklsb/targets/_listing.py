"""The states of a small target, in order."""

import math

import numpy as np

from sklsb._system.arrays import Ints
from sklsb.targets.base import States, Target

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


def digits_of(target: Target) -> tuple[Ints, Ints]:
    """Index of each variable's value in each state, and the row stride of each variable."""
    index = np.arange(count(target))[:, None]
    k = target.cardinalities
    stride = np.cumprod(np.append(k, 1)[:0:-1])[::-1].astype(np.int64)
    return index // stride % k, stride


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

"""All states of a small target."""

import math

import numpy as np

from sklsb._system.arrays import Array, Ints
from sklsb.exact.precision import told_log_prob
from sklsb.targets.base import States, Target

MAX_STATES = 2**14


def count(target: Target) -> int:
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


def neighbours(target: Target) -> Ints:
    """Row of `states` that each move leads to from each state, of shape (n_states, n_moves).

    Moves stand in the order of ``target.log_ratios``: variable by variable, each with its other
    values in increasing order.
    """
    digits, stride = digits_of(target)
    site = target.offers.site_of_moves
    change = target.offers.after_moves(digits) - digits[:, site]
    return np.arange(len(digits))[:, np.newaxis] + change * stride[site]


def probabilities(target: Target) -> Array:
    r"""Probability of each state, :math:`p(x) = \tilde p(x) / \sum_y \tilde p(y)`.

    Parameters
    ----------
    target : Target
        A target with at most 2**14 states.

    Returns
    -------
    ndarray of shape (n_states,)
        In the order of `states`; sums to 1.

    Raises
    ------
    ValueError
        If there are more states.

    Warns
    -----
    PrecisionWarning
        If log p is so large that its differences are lost.
    """
    log_p = told_log_prob(target, states(target), likely=True)
    p = np.exp(log_p - log_p.max(initial=-np.inf))
    return p / p.sum()

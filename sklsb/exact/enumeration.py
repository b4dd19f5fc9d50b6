"""Neighbours and probabilities of all states of a small target."""

import numpy as np

from sklsb._system.arrays import Array, Ints
from sklsb.targets._listing import digits_of, states
from sklsb.targets._precision import told_log_prob
from sklsb.targets.base import Target


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

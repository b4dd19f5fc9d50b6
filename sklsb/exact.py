r"""Exact answers: by elimination on models made of factors, by enumeration on small targets.

**Elimination** sums variables out one after another. `log_partition`, `marginals`, `most_likely`
and `sample` do that, on any `Ising`, `Potts` or `MarkovNetwork` whose structure allows it;
`elimination_cost` tells in advance. See the page "Exact answers".

**Enumeration** gives every state, its probability, the whole transition matrix of a sampler. That
is computed in numpy from ``target.log_ratios`` and from the tabulated balancing
function, on its own path, so that it can stand as the reference for the compiled kernels. It is
meant for documentation and tests, on targets of up to about 12 two-valued variables. Out of a
state of probability zero, where no chain ever is, it stays where it is.

With w_m(x) = g(exp l_m(x)) and Z(x) the sum of w over the moves, the chain makes move m with
probability

.. math:: T_m(x) = \frac{w_m(x)}{Z(x)} \min \left( 1, \frac{Z(x)}{Z(x^m)} \right)

and stays with what the proposals that are refused leave over.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sklsb._elimination.answers import (
    elimination_cost,
    log_partition,
    marginals,
    most_likely,
    sample,
)
from sklsb._elimination.engine import EliminationCost
from sklsb._matrices import log_matrix, matrix
from sklsb._precision import told_log_prob
from sklsb._states import neighbours, states
from sklsb.balancing import BalancingFunction
from sklsb.rules import Balanced, Rule
from sklsb.targets.base import Target

__all__ = [
    "EliminationCost",
    "eigenvalues",
    "elimination_cost",
    "log_matrix",
    "log_partition",
    "log_transition_matrix",
    "marginals",
    "most_likely",
    "mutual_information",
    "neighbours",
    "probabilities",
    "sample",
    "spectral_gap",
    "states",
    "transition_matrix",
]

Array = NDArray[np.float64]


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
        If there are more states than that.

    Warns
    -----
    PrecisionWarning
        If log p is so large that its differences are lost.
    """
    log_p = told_log_prob(target, states(target), likely=True)
    p = np.exp(log_p - log_p.max(initial=-np.inf))
    return p / p.sum()


def rule_of(sampler: Any, target: Target) -> Rule:
    """Return the rule of a sampler on a target, or that of a function; or the rule given."""
    if isinstance(sampler, BalancingFunction):
        return Balanced(sampler.table())
    found: Rule = sampler._rule(target) if hasattr(sampler, "_rule") else sampler
    return found


def log_transition_matrix(sampler: Any, target: Target) -> Array:
    """Logarithm of `transition_matrix`, -inf where it is zero.

    Probabilities that underflow there are finite here.

    Parameters
    ----------
    sampler : sampler, BalancingFunction or rule
        As for `transition_matrix`.
    target : Target
        A target with at most 2**14 states.

    Returns
    -------
    ndarray of shape (n_states, n_states)

    Raises
    ------
    ValueError
        If there are more states than that.
    """
    return log_matrix(rule_of(sampler, target), target)


def transition_matrix(sampler: Any, target: Target) -> Array:
    r"""Probability of going from each state to each other in one transition.

    .. math:: P(x, x^m) = (1 - \lambda) Q_m(x) A_m(x), \quad
              P(x, x) = \lambda + (1 - \lambda) \sum_m Q_m(x) (1 - A_m(x))

    with Q the proposal, A = min(1, Z(x) / Z(x^m)) the acceptance and lambda the sampler's ``lazy``.
    For ``fast=True`` Q is that of first-order log-ratios and A the full Metropolis-Hastings ratio;
    several flips are summed over all sequences that may be drawn.

    Parameters
    ----------
    sampler : sampler, BalancingFunction or rule
        A fitted sampler stands for its frozen function, one that is not fitted for the function
        it would start with, a function for the locally balanced steps that use it.
    target : Target
        A target with at most 2**14 states.

    Returns
    -------
    ndarray of shape (n_states, n_states)
        Rows are where the transition starts, in the order of `states`. The diagonal is computed
        on its own, not as 1 minus the rest of the row.

    Raises
    ------
    ValueError
        If there are more states than that.

    Examples
    --------
    >>> from sklsb import Ising, Sqrt, exact
    >>> one_spin = Ising([[0.0]], field=[0.5])
    >>> exact.transition_matrix(Sqrt(), one_spin).round(3)
    array([[0.   , 1.   ],
           [0.368, 0.632]])
    """
    return matrix(rule_of(sampler, target), target)


def mutual_information(sampler: Any, target: Target) -> float:
    r"""Mutual information of two consecutive states in stationarity, in nats.

    .. math:: I = \sum_{x, x'} p(x) P(x, x') \log \frac{P(x, x')}{p(x')}

    Parameters
    ----------
    sampler : sampler, BalancingFunction or rule
        As for `transition_matrix`.
    target : Target
        A target with at most 2**14 states.

    Returns
    -------
    float
        From 0, independent draws, to the entropy of p, a chain that never moves.

    Raises
    ------
    ValueError
        If there are more states than that.
    """
    log_p = told_log_prob(target, states(target), likely=True)
    log_p = log_p - logsumexp(log_p)
    log_matrix = log_transition_matrix(sampler, target)
    joint = np.exp(log_p[:, None] + log_matrix)
    with np.errstate(invalid="ignore"):
        terms = joint * (log_matrix - log_p)
    return float(np.where(joint > 0, terms, 0.0).sum())


def eigenvalues(sampler: Any, target: Target) -> Array:
    r"""Eigenvalues of the transition matrix.

    Those of the symmetric matrix :math:`\sqrt{P(x, x') P(x', x)}`, which a reversible chain has.

    Parameters
    ----------
    sampler : sampler, BalancingFunction or rule
        As for `transition_matrix`.
    target : Target
        A target with at most 2**14 states.

    Returns
    -------
    ndarray of shape (number of states of positive probability,)
        In increasing order. The last is 1; a first one of -1 means a chain that visits two
        halves of the space in turn.

    Raises
    ------
    ValueError
        If there are more states than that.
    """
    possible = target.log_prob(states(target)) > -np.inf
    log_matrix = log_transition_matrix(sampler, target)[np.ix_(possible, possible)]
    return np.linalg.eigvalsh(np.exp(0.5 * (log_matrix + log_matrix.T)))


def spectral_gap(sampler: Any, target: Target) -> float:
    """One minus the second largest absolute eigenvalue of the transition matrix.

    Parameters
    ----------
    sampler : sampler, BalancingFunction or rule
        As for `transition_matrix`.
    target : Target
        A target with at most 2**14 states.

    Returns
    -------
    float
        The larger, the faster the chain forgets where it started; 0 if it never does.

    Raises
    ------
    ValueError
        If there are more states than that.
    """
    others = np.abs(eigenvalues(sampler, target)[:-1])
    return float(1.0 - others.max(initial=0.0))

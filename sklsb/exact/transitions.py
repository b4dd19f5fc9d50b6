"""What a sampler does on a small target: its transition matrix, and what follows from it."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sklsb.balancing.functions import BalancingFunction
from sklsb.ensembles.rules import Balanced, Rule
from sklsb.exact.enumeration import states
from sklsb.exact.matrices import log_matrix, matrix
from sklsb.exact.precision import told_log_prob
from sklsb.targets.base import Target

Array = NDArray[np.float64]


class HasRule(Protocol):
    """A sampler that knows its rule on a target."""

    def _rule(self, target: Target) -> Rule: ...


def rule_of(sampler: HasRule | BalancingFunction | Rule, target: Target) -> Rule:
    """Return the rule of a sampler or a balancing function on a target; a rule as it is."""
    if isinstance(sampler, BalancingFunction):
        return Balanced(sampler.table())
    return sampler._rule(target) if hasattr(sampler, "_rule") else sampler


def log_transition_matrix(sampler: HasRule | BalancingFunction | Rule, target: Target) -> Array:
    """Logarithm of `transition_matrix`, also where probabilities underflow; -inf where it is 0."""
    return log_matrix(rule_of(sampler, target), target)


def transition_matrix(sampler: HasRule | BalancingFunction | Rule, target: Target) -> Array:
    r"""Probability of going from each state to each other state in one transition.

    .. math:: P(x, x^m) = (1 - \lambda) Q_m(x) A_m(x), \quad
              P(x, x) = \lambda + (1 - \lambda) \sum_m Q_m(x) (1 - A_m(x))

    with Q the proposal, A = min(1, Z(x) / Z(x^m)) the acceptance and lambda the sampler's ``lazy``.
    With ``fast=True``, Q uses first-order log-ratios and A is the full Metropolis-Hastings ratio;
    several flips are summed over all sequences that may be drawn.

    Parameters
    ----------
    sampler : LSBSampler, BalancingFunction or rule
        A fitted sampler stands for its frozen function, an unfitted one for the function it
        would start with, and a function for the locally balanced steps that use it. Other rules
        need a formula of yours, see `log_matrix`.
    target : Target
        A target with at most 2**14 states.

    Returns
    -------
    ndarray of shape (n_states, n_states)
        Row: where the transition starts, in the order of `states`. The diagonal is computed
        directly, not as 1 minus the rest of the row.

    Raises
    ------
    ValueError
        If there are more states.
    TypeError
        If there is no formula for the rule.

    Examples
    --------
    >>> from sklsb import Ising, Sqrt, exact
    >>> one_spin = Ising([[0.0]], field=[0.5])
    >>> exact.transition_matrix(Sqrt(), one_spin).round(3)
    array([[0.   , 1.   ],
           [0.368, 0.632]])
    """
    return matrix(rule_of(sampler, target), target)


def mutual_information(sampler: HasRule | BalancingFunction | Rule, target: Target) -> float:
    r"""Mutual information of two consecutive states in stationarity, in nats.

    .. math:: I = \sum_{x, x'} p(x) P(x, x') \log \frac{P(x, x')}{p(x')}

    Parameters
    ----------
    sampler, target
        As for `transition_matrix`, as are the errors.

    Returns
    -------
    float
        Between 0 (independent draws) and the entropy of p (a chain that never moves).
    """
    log_p = told_log_prob(target, states(target), likely=True)
    log_p = log_p - logsumexp(log_p)
    log_matrix = log_transition_matrix(sampler, target)
    joint = np.exp(log_p[:, None] + log_matrix)
    with np.errstate(invalid="ignore"):
        terms = joint * (log_matrix - log_p)
    return float(np.where(joint > 0, terms, 0.0).sum())

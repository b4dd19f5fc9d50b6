r"""Small targets by enumeration: every state, its probability, the whole transition matrix.

Everything here is computed in numpy from ``target.log_ratios`` and from the tabulated balancing
function, on its own path, so that it can stand as the reference for the compiled kernels. It is
meant for documentation and tests, on targets of up to about 12 two-valued variables. Out of a
state of probability zero, where no chain ever is, it stays where it is.

With w_m(x) = g(exp l_m(x)) and Z(x) the sum of w over the moves, the chain makes move m with
probability

.. math:: T_m(x) = \frac{w_m(x)}{Z(x)} \min \left( 1, \frac{Z(x)}{Z(x^m)} \right)

and stays with what the proposals that are refused leave over.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sklsb.balancing import BalancingFunction, get_balancing
from sklsb.targets.base import States, Target

__all__ = [
    "eigenvalues",
    "log_transition_matrix",
    "mutual_information",
    "neighbours",
    "probabilities",
    "spectral_gap",
    "states",
    "transition_matrix",
]

Array = NDArray[np.float64]
MAX_STATES = 2**14


def _count(target: Target) -> int:
    n = 1
    for k in target.cardinalities.tolist():
        n *= k
    if n > MAX_STATES:
        raise ValueError(
            f"{target!r:.200} has {n} states; enumeration takes at most {MAX_STATES}. "
            "Take a smaller target of the same kind."
        )
    return n


def _digits(target: Target) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of its values each variable has in each state, and what one more of it adds."""
    index = np.arange(_count(target))[:, None]
    k = target.cardinalities
    stride = np.cumprod(np.append(k, 1)[:0:-1])[::-1].astype(np.int64)
    return index // stride % k, stride


def states(target: Target) -> States:
    """All states, in lexicographic order: the last variable changes fastest.

    Parameters
    ----------
    target : Target
        A target with at most 2**14 states.

    Returns
    -------
    ndarray of int8 (int16 for values above 127), shape (n_states, n_sites)

    Raises
    ------
    ValueError
        If there are more states than that.
    """
    return np.asarray(target.values, dtype=target.dtype)[_digits(target)[0]]


def neighbours(target: Target) -> NDArray[np.int64]:
    """Where each move leads from each state, as row numbers of `states`.

    Parameters
    ----------
    target : Target
        A target with at most 2**14 states.

    Returns
    -------
    ndarray of int64, shape (n_states, n_moves)
        The moves stand in the order of ``target.log_ratios``: variable by variable, and of each
        the other values in increasing order.

    Raises
    ------
    ValueError
        If there are more states than that.
    """
    digits, stride = _digits(target)
    columns = [
        np.arange(len(digits)) + (new + (new >= digits[:, i]) - digits[:, i]) * stride[i]
        for i, k in enumerate(target.cardinalities)
        for new in range(k - 1)
    ]
    return np.stack(columns, axis=1) if columns else np.empty((len(digits), 0), dtype=np.int64)


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
    """
    log_p = target.log_prob(states(target))
    p = np.exp(log_p - log_p.max(initial=-np.inf))
    return p / p.sum()


class _Transitions(NamedTuple):
    to: NDArray[np.int64]  # (n_states, n_moves)
    log_move: Array  # (n_states, n_moves) log T_m(x)
    stay: Array  # (n_states,)


def _resolve(sampler: Any) -> tuple[BalancingFunction, float, bool]:
    if isinstance(sampler, BalancingFunction):
        return sampler, 0.0, False
    fitted = getattr(sampler, "balancing_", None)
    function = get_balancing(sampler.balancing) if fitted is None else fitted
    ensemble = getattr(sampler, "_ensemble", None)  # what was fitted, whatever was set since
    lazy = sampler.lazy if ensemble is None else ensemble.lazy
    return function, float(lazy), bool(sampler.fast)


def _transitions(sampler: Any, target: Target) -> _Transitions:
    function, lazy, fast = _resolve(sampler)
    x, to = states(target), neighbours(target)
    # log p of an Ising model, the one target with a gradient, is linear in each spin: there
    # first-order log-ratios are the exact ones.
    ratios = np.where(target.log_prob(x)[:, None] > -np.inf, target.log_ratios(x), -np.inf)
    log_weight = function.tabulated().log_g(ratios)
    # log Z = shift + log_sum, kept apart: the difference of two large logarithms stays exact.
    shift = log_weight.max(axis=1, initial=-np.inf, keepdims=True)
    shift = np.where(np.isfinite(shift), shift, 0.0)
    weight = np.exp(log_weight - shift)
    total = weight.sum(axis=1, keepdims=True)
    possible = total > 0
    with np.errstate(divide="ignore"):
        log_sum = np.log(total)
    log_q = np.where(possible, (log_weight - shift) - np.where(possible, log_sum, 0.0), -np.inf)
    if fast:
        here = np.arange(len(x))[:, None]
        back = (to[to] == here[:, :, None]).argmax(axis=2)
        with np.errstate(invalid="ignore"):
            log_a = ratios + log_q[to, back] - log_q
    else:
        with np.errstate(invalid="ignore"):
            log_a = (shift - shift[to, 0]) + (log_sum - log_sum[to, 0])
    log_a = np.where(log_q > -np.inf, np.minimum(log_a, 0.0), 0.0)
    refused = np.where(possible, weight / np.where(possible, total, 1.0), 0.0) * -np.expm1(log_a)
    stay = np.where(possible[:, 0], refused.sum(axis=1), 1.0)
    return _Transitions(to, log_q + log_a + np.log1p(-lazy), lazy + (1.0 - lazy) * stay)


def log_transition_matrix(sampler: Any, target: Target) -> Array:
    """Logarithm of `transition_matrix`, -inf where it is zero.

    Probabilities that underflow there are finite here.

    Parameters
    ----------
    sampler : LSBSampler or BalancingFunction
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
    to, log_move, stay = _transitions(sampler, target)
    matrix = np.full((stay.size, stay.size), -np.inf)
    np.put_along_axis(matrix, to, log_move, axis=1)
    with np.errstate(divide="ignore"):
        np.fill_diagonal(matrix, np.log(stay))
    return matrix


def transition_matrix(sampler: Any, target: Target) -> Array:
    r"""Probability of going from each state to each other in one transition.

    .. math:: P(x, x^m) = (1 - \lambda) Q_m(x) A_m(x), \quad
              P(x, x) = \lambda + (1 - \lambda) \sum_m Q_m(x) (1 - A_m(x))

    with Q the proposal, A = min(1, Z(x) / Z(x^m)) the acceptance (for ``fast=True`` the full
    Metropolis-Hastings ratio) and lambda the sampler's ``lazy``.

    Parameters
    ----------
    sampler : LSBSampler or BalancingFunction
        A fitted sampler stands for its frozen function, one that is not fitted for the function
        it would start with, a function for the sampler that uses it.
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
    to, log_move, stay = _transitions(sampler, target)
    matrix = np.zeros((stay.size, stay.size))
    np.put_along_axis(matrix, to, np.exp(log_move), axis=1)
    np.fill_diagonal(matrix, stay)
    return matrix


def mutual_information(sampler: Any, target: Target) -> float:
    r"""Mutual information of two consecutive states in stationarity, in nats.

    .. math:: I = \sum_{x, x'} p(x) P(x, x') \log \frac{P(x, x')}{p(x')}

    Parameters
    ----------
    sampler : LSBSampler or BalancingFunction
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
    log_p = target.log_prob(states(target))
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
    sampler : LSBSampler or BalancingFunction
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
    sampler : LSBSampler or BalancingFunction
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

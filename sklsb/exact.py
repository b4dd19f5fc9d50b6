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
_MOST_SEQUENCES = 2**24


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


class _Settings(NamedTuple):
    function: BalancingFunction
    lazy: float
    fast: bool
    n_flips: int


def _resolve(sampler: Any) -> _Settings:
    if isinstance(sampler, BalancingFunction):
        return _Settings(sampler, 0.0, False, 1)
    fitted = getattr(sampler, "balancing_", None)
    function = get_balancing(sampler.balancing) if fitted is None else fitted
    # What was fitted, whatever was set since.
    now = getattr(sampler, "_ensemble", sampler)
    if now.n_flips == "auto":
        raise ValueError('n_flips is "auto", which fit makes a number; fit the sampler first.')
    return _Settings(function, float(now.lazy), bool(sampler.fast), int(now.n_flips))


class _Proposal(NamedTuple):
    """Q of the moves of each state: log weight = log_q + log_total; log_total = shift + log_sum."""

    log_q: Array  # (n_states, n_moves)
    shift: Array  # (n_states, 1)
    log_sum: Array  # (n_states, 1)
    q: Array  # computed on its own


def _propose(function: BalancingFunction, ratios: Array) -> _Proposal:
    log_weight = function.tabulated().log_g(ratios)
    # log Z = shift + log_sum, kept apart: the difference of two large logarithms stays exact.
    shift = log_weight.max(axis=1, initial=-np.inf, keepdims=True)
    shift = np.where(np.isfinite(shift), shift, 0.0)
    weight = np.exp(log_weight - shift)
    total = weight.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_sum = np.log(total)
    possible = total > 0
    log_q = np.where(possible, (log_weight - shift) - np.where(possible, log_sum, 0.0), -np.inf)
    return _Proposal(log_q, shift, log_sum, weight / np.where(possible, total, 1.0))


def _accept(to: NDArray[np.int64], log_q: Array, q: Array, log_a: Array) -> _Transitions:
    log_a = np.where(log_q > -np.inf, np.minimum(log_a, 0.0), 0.0)
    # 1 where no move is possible.
    stay = (q * -np.expm1(log_a)).sum(axis=1) + ~(q > 0.0).any(axis=1)
    return _Transitions(to, log_q + log_a, stay)


def _ratios(target: Target, first_order: bool) -> Array:
    """Log-ratios of all moves; -inf from impossible states."""
    x = states(target)
    found = target.first_order_ratios(x) if first_order else target.log_ratios(x)
    return np.where(target.log_prob(x)[:, None] > -np.inf, found, -np.inf)


def _locally_balanced(function: BalancingFunction, target: Target) -> _Transitions:
    to = neighbours(target)
    log_q, shift, log_sum, q = _propose(function, _ratios(target, False))
    with np.errstate(invalid="ignore"):
        log_a = (shift - shift[to, 0]) + (log_sum - log_sum[to, 0])
    return _accept(to, log_q, q, log_a)


def _shifts(target: Target) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Enumerate what adds 1 to k - 1 to the value of a site, modulo its number k of values.

    Returns where each leads, which of the moves of `neighbours` it is, and the opposite shift.
    """
    digits, stride = _digits(target)
    to, move, opposite = [], [], []
    first = 0
    for i, k in enumerate(target.cardinalities.tolist()):
        for shift in range(1, k):
            new = (digits[:, i] + shift) % k
            to.append(np.arange(len(digits)) + (new - digits[:, i]) * stride[i])
            move.append(first + new - (new > digits[:, i]))
            opposite.append(first + k - 1 - shift)
        first += k - 1
    return np.stack(to, axis=1), np.stack(move, axis=1), np.array(opposite)


def _first_order(function: BalancingFunction, target: Target, n_flips: int) -> _Transitions:
    """Transitions by sequences of shifts that are drawn together."""
    n_sequences = _count(target) * int((target.cardinalities - 1).sum()) ** n_flips
    if n_sequences > _MOST_SEQUENCES:
        raise ValueError(
            f"{n_flips} flips of {target!r:.200} are {n_sequences} sequences of moves; enumeration "
            f"takes at most {_MOST_SEQUENCES}. Take a smaller target or fewer flips."
        )
    log_p = target.log_prob(states(target))
    step, move, opposite = _shifts(target)
    proposal = _propose(function, _ratios(target, True))
    log_one = np.take_along_axis(proposal.log_q, move, axis=1)
    one = np.take_along_axis(proposal.q, move, axis=1)
    here = np.arange(len(log_p))[:, None]
    to, start = here, (len(log_p), 1)
    log_q: Array = np.zeros(start)
    q: Array = np.ones(start)
    taken = np.zeros((1, 0), dtype=np.int64)
    for _ in range(n_flips):
        n_sequences, n_moves = to.shape[1], step.shape[1]
        to = step[to].reshape(len(here), -1)
        log_q = (log_q[:, :, None] + log_one[:, None]).reshape(len(here), -1)
        q = (q[:, :, None] * one[:, None]).reshape(len(here), -1)
        more = np.tile(np.arange(n_moves), n_sequences)[:, None]
        taken = np.hstack([np.repeat(taken, n_moves, axis=0), more])
    back = sum(log_one[to, opposite[taken[:, r]]] for r in range(n_flips))
    with np.errstate(invalid="ignore"):
        log_a = log_p[to] - log_p[here] + back - log_q
    return _accept(to, log_q, q, np.where(np.isnan(log_a), -np.inf, log_a))


def _transitions(sampler: Any, target: Target) -> _Transitions:
    function, lazy, fast, n_flips = _resolve(sampler)
    if not fast or not target.n_sites:
        parts = [_locally_balanced(function, target)]
    elif n_flips == 1:
        parts = [_first_order(function, target, 1)]
    else:  # the last flip is left out in every second transition
        parts = [_first_order(function, target, n) for n in (n_flips - 1, n_flips)]
    share = (1.0 - lazy) / len(parts)
    return _Transitions(
        np.hstack([part.to for part in parts]),
        np.hstack([part.log_move for part in parts]) + np.log(share),
        lazy + share * np.sum([part.stay for part in parts], axis=0),
    )


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
    with np.errstate(divide="ignore"):
        np.fill_diagonal(matrix, np.log(stay))
    np.logaddexp.at(matrix, (np.arange(stay.size)[:, None], to), log_move)
    return matrix


def transition_matrix(sampler: Any, target: Target) -> Array:
    r"""Probability of going from each state to each other in one transition.

    .. math:: P(x, x^m) = (1 - \lambda) Q_m(x) A_m(x), \quad
              P(x, x) = \lambda + (1 - \lambda) \sum_m Q_m(x) (1 - A_m(x))

    with Q the proposal, A = min(1, Z(x) / Z(x^m)) the acceptance and lambda the sampler's ``lazy``.
    For ``fast=True`` Q is that of first-order log-ratios and A the full Metropolis-Hastings ratio;
    several flips are summed over all sequences that may be drawn.

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
    matrix = np.diag(stay)
    np.add.at(matrix, (np.arange(stay.size)[:, None], to), np.exp(log_move))
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

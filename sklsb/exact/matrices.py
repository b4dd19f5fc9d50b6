"""What locally balanced steps do on a small target: their transition matrix, by formula.

Computed in NumPy from log-ratios alone, independently of the compiled kernels, for which they are
the reference. In impossible states, which no chain reaches, a chain stays.
"""

from functools import singledispatch
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from scipy.special import logsumexp

from sklsb._kernels.facts import Rule
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.jump import Jump
from sklsb._system.arrays import Array, Ints
from sklsb.balancing.functions import BalancingFunction, Tabulated
from sklsb.balancing.weights import log_weights
from sklsb.ensembles.rules import FirstOrder
from sklsb.exact.enumeration import neighbours
from sklsb.targets._listing import count, digits_of, states
from sklsb.targets._precision import told_log_prob
from sklsb.targets.base import Target

_MOST_SEQUENCES = 2**24


@singledispatch
def log_matrix(rule: Any, target: Target) -> Array:
    """Logarithm of the transition matrix of a rule, by the formula registered for its class.

    To give a rule of your own a formula, decorate a function of (rule, target) with
    ``@exact.log_matrix.register`` and annotate its first argument with the class of the rule.
    `sklsb.testing.check_rule` then compares the compiled step with it.

    Parameters
    ----------
    rule : rule
        What moves the chain.
    target : Target
        A target with at most 2**14 states.

    Returns
    -------
    ndarray of shape (n_states, n_states)
        Row: where the transition starts, in the order of `sklsb.exact.states`.

    Raises
    ------
    TypeError
        If there is no formula for the rule.
    """
    raise TypeError(
        f"There is no formula for the transitions of {type(rule).__name__}; register one with "
        "sklsb.exact.log_matrix.register, or, if a transition takes few random numbers, measure "
        "them with sklsb.testing.measured_matrix."
    )


def matrix_by_formula(rule: Any) -> bool:
    """Whether there is a formula for a rule and for the rules inside it."""
    known = log_matrix.dispatch(type(rule)) is not log_matrix.dispatch(object)
    return known and all(matrix_by_formula(part) for part in rule.facts.parts)


@runtime_checkable
class HasRule(Protocol):
    """A sampler that knows its rule on a target."""

    def _rule(self, target: Target) -> Rule: ...


def rule_of(sampler: HasRule | BalancingFunction | Rule, target: Target) -> Rule:
    """Return the rule of a sampler or a balancing function on a target; a rule as it is."""
    if isinstance(sampler, Target) or not isinstance(target, Target):
        raise TypeError(
            f"sampler is {sampler!r:.100} and target is {target!r:.100}; give a sampler and the "
            "target that it draws from. Of variables, exact.marginals(target, [a, b]) gives the "
            "joint probabilities."
        )
    if isinstance(sampler, BalancingFunction):
        return Balanced(sampler.table())
    return sampler._rule(target) if isinstance(sampler, HasRule) else sampler


def log_transition_matrix(sampler: HasRule | BalancingFunction | Rule, target: Target) -> Array:
    """Return the logarithm of `transition_matrix`, also where probabilities underflow."""
    return log_matrix(rule_of(sampler, target), target)


def transition_matrix(sampler: HasRule | BalancingFunction | Rule, target: Target) -> Array:
    r"""Probability of going from each state to each other state in one transition.

    .. math:: P(x, x^m) = (1 - \lambda) Q_m(x) A_m(x), \quad
              P(x, x) = \lambda + (1 - \lambda) \sum_m Q_m(x) (1 - A_m(x))

    with Q the proposal, A = min(1, Z(x) / Z(x^m)) the acceptance and lambda the sampler's ``lazy``.
    With ``fast=True``, Q uses first-order log-ratios and A is the full Metropolis-Hastings ratio;
    several flips are summed over all sequences that may be drawn. Steps of other samplers, and
    redraws of blocks, need a formula of yours, see `log_matrix`, or
    `sklsb.testing.measured_matrix`.

    Parameters
    ----------
    sampler : LSBSampler, BalancingFunction or rule
        A fitted sampler stands for its frozen function, an unfitted one for the function it
        would start with, and a function for the locally balanced steps that use it.
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
    found: Array = np.exp(log_transition_matrix(sampler, target))
    return found


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
    log_t = log_transition_matrix(sampler, target)
    log_p = told_log_prob(target, states(target), likely=True)
    log_p = log_p - logsumexp(log_p)
    joint = np.exp(log_p[:, None] + log_t)
    with np.errstate(invalid="ignore"):
        terms = joint * (log_t - log_p)
    return float(np.where(joint > 0, terms, 0.0).sum())


# ----------------------------------------------------------------- single changes by weight


class Transitions(NamedTuple):
    to: Ints  # (n_states, n_moves)
    log_move: Array  # (n_states, n_moves) log T_m(x)
    stay: Array  # (n_states,)


class _Proposal(NamedTuple):
    """Q of the moves of each state; log weight = log_q + shift + log_sum."""

    log_q: Array  # (n_states, n_moves)
    shift: Array  # (n_states, 1)
    log_sum: Array  # (n_states, 1)
    q: Array  # not by way of log_q


def _propose(log_weight: Array) -> _Proposal:
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


def _accept(to: Ints, log_q: Array, q: Array, log_a: Array) -> Transitions:
    log_a = np.where(log_q > -np.inf, np.minimum(log_a, 0.0), 0.0)
    # 1 where no move is possible.
    stay = (q * -np.expm1(log_a)).sum(axis=1) + ~(q > 0.0).any(axis=1)
    return Transitions(to, log_q + log_a, stay)


def log_ratios(target: Target) -> Array:
    """Log-ratios of all moves; -inf from impossible states."""
    x = states(target)
    return np.where(target.log_prob(x)[:, None] > -np.inf, target.log_ratios(x), -np.inf)


def by_weight(to: Ints, log_weight: Array) -> Transitions:
    """Locally balanced transitions, given where each move leads and its log weight."""
    log_q, shift, log_sum, q = _propose(log_weight)
    with np.errstate(invalid="ignore"):
        log_a = (shift - shift[to, 0]) + (log_sum - log_sum[to, 0])
    return _accept(to, log_q, q, log_a)


def transitions(rule: Balanced, target: Target) -> Transitions:
    found = by_weight(neighbours(target), log_weights(rule, log_ratios(target)))
    log_move = found.log_move + np.log1p(-rule.lazy)
    return Transitions(found.to, log_move, rule.lazy + (1.0 - rule.lazy) * found.stay)


def log_matrix_of(found: Transitions) -> Array:
    to, log_move, stay = found
    matrix = np.full((stay.size, stay.size), -np.inf)
    with np.errstate(divide="ignore"):
        np.fill_diagonal(matrix, np.log(stay))
    np.logaddexp.at(matrix, (np.arange(stay.size)[:, None], to), log_move)
    return matrix


@log_matrix.register
def _(rule: Balanced, target: Target) -> Array:
    return log_matrix_of(transitions(rule, target))


# ----------------------------------------------------------------- first order, jumps


def _shifts(target: Target) -> tuple[Ints, Ints, Ints]:
    """Enumerate the shifts of a site's value by 1 to k - 1, modulo its number k of values.

    Returns where each leads, which move of `neighbours` it is, and the opposite shift.
    """
    digits, stride = digits_of(target)
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


def _first_order(function: BalancingFunction, target: Target, n_flips: int) -> Transitions:
    """Transitions that propose sequences of ``n_flips`` shifts."""
    n_sequences = count(target) * target.offers.n_moves**n_flips
    if n_sequences > _MOST_SEQUENCES:
        raise ValueError(
            f"{n_flips} flips of {target!r:.200} are {n_sequences} sequences of moves; enumeration "
            f"takes at most {_MOST_SEQUENCES}. Take a smaller target or fewer flips."
        )
    log_p = told_log_prob(target, states(target))
    ratios = np.where(log_p[:, None] > -np.inf, target.first_order_ratios(states(target)), -np.inf)
    step, move, opposite = _shifts(target)
    n_moves = step.shape[1]
    proposal = _propose(function.log_g(ratios))
    log_one = np.take_along_axis(proposal.log_q, move, axis=1)
    one = np.take_along_axis(proposal.q, move, axis=1)
    here = np.arange(len(log_p))[:, None]
    to = here
    log_q: Array = np.zeros(here.shape)
    q: Array = np.ones(here.shape)
    taken = np.zeros((1, 0), dtype=np.int64)
    for _ in range(n_flips):
        more = np.tile(np.arange(n_moves), to.shape[1])[:, None]
        to = step[to].reshape(len(here), -1)
        log_q = (log_q[:, :, None] + log_one[:, None]).reshape(len(here), -1)
        q = (q[:, :, None] * one[:, None]).reshape(len(here), -1)
        taken = np.hstack([np.repeat(taken, n_moves, axis=0), more])
    back = sum(log_one[to, opposite[taken[:, r]]] for r in range(n_flips))
    with np.errstate(invalid="ignore"):
        log_a = log_p[to] - log_p[here] + back - log_q
    return _accept(to, log_q, q, np.where(np.isnan(log_a), -np.inf, log_a))


def mixed(parts: list[Transitions], lazy: float) -> Transitions:
    """Each of several kinds of transitions equally often, after a lazy coin."""
    share = (1.0 - lazy) / len(parts)
    return Transitions(
        np.hstack([part.to for part in parts]),
        np.hstack([part.log_move for part in parts]) + np.log(share),
        lazy + share * np.sum([part.stay for part in parts], axis=0),
    )


@log_matrix.register
def _(rule: FirstOrder, target: Target) -> Array:
    if not target.n_sites:
        return log_matrix(Balanced(rule.table, rule.lazy), target)
    # The last flip is left out in every second transition.
    numbers = sorted({rule.n_flips, max(1, rule.n_flips - 1)})
    parts = [_first_order(Tabulated(rule.table), target, n) for n in numbers]
    return log_matrix_of(mixed(parts, rule.lazy))


@log_matrix.register
def _(rule: Jump, target: Target) -> Array:
    """Exponential of the rates times the time: a sum over numbers of jumps, then squared."""
    to, n = neighbours(target), count(target)
    rates = np.zeros((n, n))
    log_rates = log_weights(rule, log_ratios(target)) + rule.log_time
    np.add.at(rates, (np.arange(n)[:, None], to), np.exp(log_rates))
    leaving = rates.sum(axis=1)
    most = max(leaving.max(initial=0.0), 1e-300)
    halvings = max(0, int(np.ceil(np.log2(most))))
    step = most * 0.5**halvings
    # All terms are positive: nothing cancels.
    jump = rates / most + np.diag(1.0 - leaving / most)
    found, term = np.zeros((n, n)), np.exp(-step) * np.eye(n)
    for k in range(1, 40):
        found += term
        term = term @ jump * (step / k)
    for _ in range(halvings):
        found = found @ found
        found /= found.sum(axis=1, keepdims=True)  # or rounding would double each time
    with np.errstate(divide="ignore"):
        return np.log(found)

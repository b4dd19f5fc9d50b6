"""A check of objectives of learning and their gradients."""

from collections.abc import Callable

import numpy as np

from sklsb import exact
from sklsb._kernels import objectives
from sklsb._kernels.numeric import Table
from sklsb._kernels.objectives import SMALLEST_STAY, Objective
from sklsb._kernels.rules.balanced import Balanced
from sklsb._system.arrays import Array
from sklsb.balancing.functions import BalancingFunction
from sklsb.balancing.weights import balanced
from sklsb.exact.matrices import log_ratios, transitions
from sklsb.targets.base import Target
from sklsb.testing._expect import expect_equal, expect_near
from sklsb.testing._probe import Probe


def _numeric_gradient(f: Callable[[Table], Array], table: Table) -> Array:
    """Return central differences by the values at the knots, with the slopes of tails fixed."""
    value, step = table.value, 1e-5

    def at(value: Array) -> Array:
        slope = np.append(np.diff(value), table.slope[-1])
        return f(Table(value, slope, table.inverse_step))

    ends = [at(value + change) - at(value - change) for change in step * np.eye(value.size)]
    return np.stack(ends, axis=-1) / (2 * step)


def check_objective(
    objective: str | Objective, function: BalancingFunction, target: Target
) -> None:
    """Check a custom objective and its gradient against a sum over all next states.

    At every possible state the value must be the sum of the objective's terms over the enumerated
    transition probabilities, to 1e-10, and the gradient at the knots must agree with central
    differences of this sum, to 1e-6 of the largest.

    Parameters
    ----------
    objective : str or Objective
        Objective declared by `sklsb.extending.objective`.
    function : BalancingFunction
        Any generic function; few knots are faster.
    target : Target
        A target of a few states and random probabilities.

    Raises
    ------
    AssertionError
        If a value or a gradient is wrong; the message says which, and what was found.
    ValueError
        If there is no objective of this name.
    TypeError
        If it is not a sum over all next states.
    """
    given, rule = Objective.of(objective), balanced(target, function)
    if not given.enumerated:
        raise TypeError(
            f"{given!r} is not a sum over all next states; such objectives have no check."
        )
    x = exact.states(target)
    x = x[target.log_prob(x) > -np.inf]
    name = f'objective "{given.name}"'
    chains = Probe(target, rule, x).ensemble
    n, n_knots = len(x), rule.table.value.size
    gradients, value = np.empty((n, 3, n_knots)), np.empty(n)
    settings, u, log_omega = (given.compiled, 1, given.weighted), np.full(n, 0.5), np.zeros(n)
    objectives.enumerated(
        chains.view, rule, chains.chains, (0, n), settings, u, log_omega, (gradients, value)
    )
    gradient = gradients[:, 0]

    def by_definition(table: Table) -> Array:
        return _sum_of_terms(given, rule._replace(table=table), target)

    expected = by_definition(rule.table)
    by_knots = _numeric_gradient(by_definition, rule.table)
    expect_near(value, expected, 1e-10 * (1 + np.abs(expected)), f"{name} against enumeration")
    gate = 1e-6 * np.abs(by_knots).max(initial=1e-3)
    expect_near(gradient, by_knots, gate, f"gradient of {name} at (state, knot)")
    expect_equal(chains.chains.x, x, "the states, which an objective must leave")


def _sum_of_terms(objective: Objective, rule: Balanced, target: Target) -> Array:
    """Return the sum of the terms over all next states, at each possible state."""
    ratios = log_ratios(target)
    possible = target.log_prob(exact.states(target)) > -np.inf
    found = transitions(rule, target)
    stay = found.stay[possible][:, np.newaxis]
    log_t = found.log_move[possible]
    log_stay = np.log(np.maximum(stay, SMALLEST_STAY))
    t = np.hstack([np.exp(log_t), stay])
    log_t = np.hstack([log_t, log_stay])
    ratios = np.hstack([ratios[possible], np.zeros_like(stay)])
    stays = np.broadcast_to(np.arange(t.shape[1]) == t.shape[1] - 1, t.shape)
    happens = stays | (log_t > -np.inf)
    terms, out = np.zeros(t.shape), np.empty(happens.sum())
    objectives.worth(
        objective.compiled, t[happens], log_t[happens], ratios[happens], stays[happens], out
    )
    terms[happens] = out
    return terms.sum(axis=1)

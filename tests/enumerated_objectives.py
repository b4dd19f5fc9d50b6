"""Checks of the objectives of learning and their gradients."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sklsb import exact
from sklsb._kernels import objectives
from sklsb._kernels.numeric import Table
from sklsb._kernels.objectives import Objective
from sklsb._kernels.rules.balanced import Balanced
from sklsb.balancing import BalancingFunction
from sklsb.balancing.weights import balanced, log_weights
from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.exact.enumeration import neighbours
from sklsb.exact.matrices import by_weight, log_ratios
from sklsb.targets.base import States, Target
from sklsb.testing._expect import Array, expect_equal, expect_near
from sklsb.testing._objectives import _numeric_gradient
from sklsb.testing._probe import Probe


def _possible_states(target: Target) -> States:
    x = exact.states(target)
    return x[target.log_prob(x) > -np.inf]


Found = tuple[Array, Array, Array]  # values, gradients at the knots, derivatives by eta


def _found_enumerated(
    objective: Objective,
    rule: Balanced,
    log_omega: Array,
    chains: BalancedEnsemble,
    every: int = 1,
    u: Any = 0.5,
) -> Found:
    n = len(chains)
    out = (np.empty((n, 3, rule.table.value.size)), np.empty(n))
    uniforms = np.broadcast_to(np.asarray(u, dtype=float), (n,)).copy()
    settings = (objective.compiled, every, objective.weighted)
    objectives.enumerated(
        chains.view, rule, chains.chains, (0, n), settings, uniforms, log_omega, out
    )
    return out[1], out[0][:, 0], np.zeros(n)


def _conditionals(target: Target, x: States) -> Array:
    """P(x_i = v | the other variables) at each state, shape (n_states, n_sites, n_values)."""
    log_p = np.full((*x.shape, len(target.values)), -np.inf)
    for i, k in enumerate(target.cardinalities):
        for v, value in enumerate(target.values[:k]):
            other = x.copy()
            other[:, i] = value
            log_p[:, i, v] = target.log_prob(other)
    return np.exp(log_p - logsumexp(log_p, axis=2, keepdims=True))


class _Enumerated(NamedTuple):
    """What objectives need of a target, whatever the function; by states."""

    target: Target
    to: NDArray[np.int64]  # of all states, where each move leads
    ratios: Array  # of all states, its log-ratio
    possible: NDArray[np.bool_]
    site: NDArray[np.bool_]  # of each move and site: whether it changes it
    p: Array  # of possible states: of the value of each site given the others
    others: Array  # the sum of those of its other values
    variance: Array  # of each site, given the others and over possible states

    @classmethod
    def of(cls, target: Target) -> "_Enumerated":
        x = exact.states(target)
        possible = target.log_prob(x) > -np.inf
        conditional = _conditionals(target, x[possible])
        present = np.searchsorted(target.values, x[possible])[:, :, None]
        p = np.take_along_axis(conditional, present, axis=2)[:, :, 0]
        elsewhere = np.arange(len(target.values)) != present
        sites = np.arange(target.n_sites)
        return cls(
            target=target,
            to=neighbours(target),
            ratios=log_ratios(target),
            possible=possible,
            site=np.repeat(sites, target.cardinalities - 1)[:, None] == sites,
            p=p,
            others=np.where(elsewhere, conditional, 0.0).sum(axis=2),
            variance=1 - np.square(conditional.mean(axis=0)).sum(axis=1),
        )


def _objectives(
    rule: Balanced, target: _Enumerated, log_omega: Array, eta: float, weight: Array
) -> dict[str, Array]:
    """Every objective by definition, in expectation over its random neighbours.

    All have one entry for each state of positive probability but "global_flux", which is over
    them all; "flow" is what the flux kernel gives with a ``weight`` for each site.
    """
    found = by_weight(target.to, log_weights(rule, target.ratios))
    log_t, stay = found.log_move[target.possible], found.stay[target.possible]
    ratios, omega, t = target.ratios[target.possible], np.exp(log_omega), np.exp(log_t)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_m = np.where(stay > 0, np.log(stay), 0.0)
        moving = np.where(t > 0, t * (log_t - ratios), 0.0).sum(axis=1)
    proposed = omega * (moving - t.sum(axis=1) * log_omega)
    bound = (1 - t) * (eta * (1 - t) - omega[:, None] * (np.log(eta) + 1))
    change = t @ target.site
    flow = 2 * target.p * change
    with np.errstate(divide="ignore", invalid="ignore"):
        local = np.where(change > 0, target.p * target.others**2 / change, 0.0).sum(axis=1)
        whole = np.where(flow.any(axis=0), target.variance / flow.mean(axis=0), 0.0).sum()
        return {
            "bound": proposed + bound.mean(axis=1),
            "exact": proposed + omega * stay * (log_m - log_omega),
            "kl": moving + stay * log_m,
            "flux": np.log(local),
            "flow": flow @ weight,
            "global_flux": np.log([whole]),
        }


# Those that `_objectives` defines; flux objectives are no entries of the registry.
_OF_PACKAGE = ("bound", "exact", "kl")


def _found_sampled(
    eta: float, rule: Balanced, target: Target, log_omega: Array, probe: Any
) -> Found:
    """Average the bound of the kernel over its random neighbours.

    The proposed neighbour comes with the probability of its proposal, the uniform one evenly.
    """
    x = _possible_states(target)
    n, d = target.log_ratios(x).shape
    chains = probe(np.repeat(x, d * d, axis=0))
    log_w = log_weights(rule, target.log_ratios(x))
    q = np.exp(log_w - logsumexp(log_w, axis=1, keepdims=True))
    middle = np.cumsum(q, axis=1) - 0.5 * q
    uniforms: Any = np.empty((n, d, d, 2))
    uniforms[..., 0], uniforms[..., 1] = middle[:, :, None], (np.arange(d) + 0.5) / d
    rows = n * d * d
    out = (np.empty((rows, 1, rule.table.value.size)), np.empty(rows), np.empty(rows))
    uniforms, weights = uniforms.reshape(rows, 2), np.repeat(log_omega, d * d)
    objectives.sampled(chains.view, rule, chains.chains, (0, rows), eta, uniforms, weights, out)
    weight = np.repeat(q / d, d, axis=1)
    gradient = np.einsum("xm,xmk->xk", weight, out[0][:, 0].reshape(n, d * d, -1))
    value, by_eta = ((weight * v.reshape(n, d * d)).sum(axis=1) for v in out[1:])
    return value, gradient, by_eta


def _found_flux(rule: Balanced, weight: Array, chains: BalancedEnsemble) -> Found:
    n, d = chains.chains.x.shape
    out = (np.empty((n, 1, rule.table.value.size)), np.empty(n), np.empty((n, d)))
    objectives.flux(chains.view, rule, chains.chains, (0, n), np.arange(d), weight, out)
    return out[1], out[0][:, 0], np.zeros(n)


def _found_objectives(
    function: BalancingFunction, target: Target, log_omega: Array, eta: float, weight: Array
) -> dict[str, Found]:
    """Return what the kernels say of every objective."""
    from sklsb._kernels.objectives import OBJECTIVES
    from sklsb.balancing.learning import Flux

    x = _possible_states(target)
    # Chains first weighed by another table: the objective must weigh by the one it is given.
    rule = balanced(target, function)
    before = rule._replace(table=rule.table._replace(value=rule.table.value + 1.0))

    def probe(states: States) -> BalancedEnsemble:
        return Probe(target, before, states).ensemble

    none: Any = np.empty(0)
    found = {}
    for name in _OF_PACKAGE:
        objective = OBJECTIVES[name]
        omega = log_omega if objective.weighted else np.zeros(len(x))
        if objective.enumerated:
            found[name] = _found_enumerated(objective, rule, omega, probe(x))
        else:
            found[name] = _found_sampled(eta, rule, target, omega, probe)
    chains = probe(x)
    found["flux"] = _found_flux(rule, none, chains)
    found["flow"] = _found_flux(rule, weight, chains)
    value, gradient = Flux(chains, function, "global_flux")._value(rule.table)
    found["global_flux"] = np.array([value]), gradient[None], np.zeros(1)
    expect_equal(chains.chains.x, x, "the states, which a flux objective must leave")
    return found


def check_objectives(function: BalancingFunction, target: Target, eta: float = 0.7) -> None:
    """Check the objectives of learning and their gradients against enumeration.

    Values must agree to 1e-10 and gradients at the knots to 1e-6 of the largest, at every state
    of positive probability; of "global_flux", over these states. "flow" is a sum over the sites of
    their probabilities to change, of which "global_flux" is made.
    The function should be generic: where Z(x) = Z(x') the acceptance has a corner, and no
    gradient is right.

    Parameters
    ----------
    function : BalancingFunction
        A function; one with few knots is faster.
    target : Target
        A target of a few states and random probabilities, at least one of whose variables is free.
    eta : float, default=0.7
        Parameter of the objective "bound".

    Raises
    ------
    AssertionError
        If a value or a gradient is wrong; the message says which, and what was found.
    """
    from sklsb.balancing.learning import relative_weights

    rule, step = balanced(target, function), 1e-5
    table = rule.table
    log_omega = relative_weights(target.log_prob(_possible_states(target)))
    weight = np.random.default_rng(0).random(target.n_sites) + 0.1
    enumerated = _Enumerated.of(target)

    def by_definition(table: Table, eta: float = eta) -> Array:
        found = _objectives(rule._replace(table=table), enumerated, log_omega, eta, weight)
        return np.concatenate([*found.values()])

    found = _found_objectives(function, target, log_omega, eta, weight)
    expected = _objectives(rule, enumerated, log_omega, eta, weight)
    ends = np.cumsum([values.size for values in expected.values()])[:-1]
    numeric = np.split(_numeric_gradient(by_definition, table), ends)
    slope = (by_definition(table, eta + step) - by_definition(table, eta - step)) / (2 * step)
    for (name, values), by_knots, slopes in zip(
        expected.items(), numeric, np.split(slope, ends), strict=True
    ):
        value, gradient, by_eta = found[name]
        gate = 1e-10 * (1 + np.abs(values))
        expect_near(value, values, gate, f'objective "{name}" against enumeration')
        gate = 1e-6 * np.abs(by_knots).max(initial=1e-3)
        expect_near(gradient, by_knots, gate, f'gradient of "{name}" at (state, knot)')
        gate = 1e-6 * np.abs(slopes).max(initial=1e-3)
        expect_near(by_eta, slopes, gate, f'derivative of "{name}" by eta')

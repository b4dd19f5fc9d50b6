"""Conformance checks for those who extend sklsb with a target, a balancing function, a sampler.

Each check returns nothing, or raises an AssertionError that says what was expected and found.
The tests of sklsb itself are calls of these functions.

The checks of a sampler are exact: on a small target they compare probabilities, not samples.
Every uniform number at which the outcome of the *production* transition changes is found by
bisection, and the lengths between these numbers are compared with the enumerated formula.
"""

import copy
import itertools
import math
import pickle
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import clone

from sklsb import _compiled, exact
from sklsb._compiled import Table
from sklsb._ensemble import Ensemble
from sklsb.balancing import BalancingFunction, Barker, LearnableFunction, Tabulated
from sklsb.exceptions import SamplerWarning
from sklsb.targets.base import States, Target

__all__ = ["check_balancing", "check_objectives", "check_sampler", "check_target"]

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)
# Not cached on disk: numba does not notice when a callee in another file changes.
_options: Any = _compiled._OPTIONS
_uncached = njit(**_options)


def _expect(condition: Any, message: str) -> None:
    if not np.all(condition):
        raise AssertionError(message)


def _expect_near(found: Any, expected: Any, gate: Any, what: str) -> None:
    """Raise if abs(found - expected) > gate anywhere; NaN is never near."""
    found, expected, gate = np.broadcast_arrays(*map(np.asarray, (found, expected, gate)))
    with np.errstate(invalid="ignore"):
        difference = np.subtract(found, expected, dtype=np.float64)
        bad = ~((np.abs(difference) <= gate) | (found == expected))
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise AssertionError(
            f"{what}: expected {expected[at]!r} within {gate[at]:.2g} and found {found[at]!r} at "
            f"{at} ({int(bad.sum())} of {bad.size} entries differ)."
        )


def _expect_equal(found: Any, expected: Any, what: str) -> None:
    shape, wanted = np.shape(found), np.shape(expected)
    _expect(shape == wanted, f"{what}: expected shape {wanted} and found {shape}.")
    _expect_near(found, expected, 0.0, what)


# ----------------------------------------------------------------- what the kernels hold


@_uncached
def _rebuild(view, table, chains):
    """Compute caches, weights and sums from the states, under the present offsets."""
    for c in range(chains.x.shape[0]):
        chain = _compiled.chain_at(chains, c)
        _compiled.init_cache(view, chain)
        _compiled._weigh_all(view, table, chain)


@_uncached
def _walk(view, chains, moves, every, inverses, ratios):
    """Make moves in every chain, note what undoes each, then read all log-ratios.

    Unless ``every``, moves into impossible states are left out.
    """
    for c in range(chains.x.shape[0]):
        chain = _compiled.chain_at(chains, c)
        for k in range(moves.shape[1]):
            move = np.uint64(moves[c, k])
            if every or _compiled.log_ratio(view, chain, move) > -np.inf:
                inverses[c, k] = _compiled.flip(view, chain, move)
        for m in range(ratios.shape[1]):
            ratios[c, m] = _compiled.log_ratio(view, chain, np.uint64(m))


_CARRIED = ("x", "cache", "tree", "offset")


class _Probe:
    """The production transition out of given states, asked at chosen uniform numbers."""

    accept = -1.0  # a u_accept at which every proposal is accepted

    def __init__(
        self,
        target: Target,
        table: Table,
        states: States,
        lazy: float = 0.0,
        shift: float = 0.0,
    ):
        self.table = table
        self.ensemble = Ensemble(target, states, [np.random.default_rng(0)] * len(states), 1, lazy)
        self.chains = self.ensemble.chains
        view: Any = self.ensemble.view
        self.n_moves = view.touched_start.size - 1
        self.ensemble.start(table)
        self.chains.offset[:] += shift
        self.rebuild()
        self.before = self.carried()

    def carried(self) -> dict[str, NDArray[Any]]:
        """Copy all that a chain carries from one transition to the next."""
        return {name: getattr(self.chains, name).copy() for name in _CARRIED}

    def restore(self) -> None:
        for name, values in self.before.items():
            getattr(self.chains, name)[:] = values
        self.chains.acceptance[:] = 0.0

    def rebuild(self) -> None:
        _rebuild(self.ensemble.view, self.table, self.chains)

    def walk(self, moves: NDArray[Any], every: bool = True) -> tuple[NDArray[np.int64], Array]:
        """Make moves, shape (n_chains, n); return their inverses and the log-ratios after."""
        inverses = np.zeros(moves.shape, dtype=np.int64)
        ratios = np.empty((len(moves), self.n_moves))
        _walk(self.ensemble.view, self.chains, moves, every, inverses, ratios)
        return inverses, ratios

    def step(self, u_select: Any, u_accept: Any) -> States:
        """One transition from the states given; where it leads."""
        self.restore()
        uniforms = np.empty((len(self.chains.x), 1, 2))
        uniforms[:, 0, 0], uniforms[:, 0, 1] = u_select, u_accept
        self.ensemble.advance(self.table, uniforms)
        return self.chains.x

    def expect_as_rebuilt(self, when: str) -> None:
        found = self.carried()
        self.rebuild()
        for name in _CARRIED:
            what = f"caches must equal a rebuild bit for bit {when}, but `{name}` does not"
            _expect_equal(found[name], getattr(self.chains, name), what)


class _FastProbe:
    """The same for the first-order path."""

    accept = 0.0

    def __init__(self, sampler: Any, target: Target, states: States, n_flips: int = 1):
        rngs = [np.random.default_rng(0)] * len(states)
        sampler = clone(sampler).set_params(n_flips=n_flips)
        self.ensemble = sampler._new_ensemble(target, states, rngs)
        self.table = exact._resolve(sampler).function.table()
        self.ensemble.start(self.table)
        self.before = self.ensemble.state

    @property
    def precision(self) -> float:
        """Rounding of the ratios that are proposed by."""
        return EPS if self.ensemble.log_ratios_dtype == np.float64 else 2.0**-23

    def step(self, u_select: Any, u_accept: Any) -> States:
        """One transition; ``u_select`` holds one number, or all numbers of several flips."""
        self.ensemble.state = self.before.copy()
        self.ensemble.chains.acceptance[:] = 0.0
        n = len(self.ensemble)
        select = u_select if np.ndim(u_select) == 2 else np.broadcast_to(u_select, n)
        uniforms = np.column_stack([select, np.broadcast_to(u_accept, n)])
        self.ensemble.advance(self.table, uniforms[:, None])
        return self.ensemble.chains.x


# ----------------------------------------------------------------- targets


def _some_neighbours(target: Target, x: States, moves: NDArray[np.int64]) -> States:
    """States that the moves lead to, shape (n_states, len(moves), n_sites)."""
    k = target.cardinalities
    site = np.repeat(np.arange(target.n_sites), k - 1)
    rank = np.arange(site.size) - np.repeat(np.cumsum(k - 1) - (k - 1), k - 1)
    values = np.asarray(target.values, dtype=target.dtype)
    result = np.repeat(x[:, None, :], moves.size, axis=1)
    for column, m in enumerate(moves):
        present = np.searchsorted(values, x[:, site[m]])
        result[:, column, site[m]] = values[rank[m] + (rank[m] >= present)]
    return result


def _size(log_values: Array) -> Array:
    """Absolute values, of which rounding errors are a part; minus infinity has none."""
    return np.where(np.isneginf(log_values), 0.0, np.abs(log_values))


def _cancelled(target: Target) -> float:
    """Return the rounding error that the target admits to, of all log-ratios together."""
    return float(np.sum(target.rounding))


def _rounding(target: Target, log_p: Array, ratios: Array) -> float:
    """Gate for log p, of the size of the terms that it may be a sum of."""
    size = float((_size(log_p) + _size(ratios).sum(axis=-1)).max(initial=0.0))
    return 64 * EPS * size + _cancelled(target)


def check_target(target: Target, n_states: int = 20, random_state: int = 0) -> None:
    """Check a target against its contract, its compiled functions included.

    Its log-ratios must be differences of its log-probabilities. In the kernels, at random states
    and after random moves: log-ratios and log p must equal those of the Python methods to
    rounding, caches must equal a rebuild bit for bit, a move must be undone by its inverse, and
    the list of touched moves must name every move whose log-ratio changed.

    Parameters
    ----------
    target : Target
        What is checked; of any size (at most 64 of the moves out of a state are tried).
    n_states : int, default=20
        Number of random states.
    random_state : int, default=0
        Seed of states and moves.

    Raises
    ------
    AssertionError
        If a property does not hold; the message says which, and what was found.
    """
    rng = np.random.default_rng(random_state)
    x = np.stack([target.random_state(rng) for _ in range(n_states)])
    _expect_equal(target.check_states(x), x, "random_state must return states of the target")
    n_moves = int((target.cardinalities - 1).sum())
    some = np.sort(rng.permutation(n_moves)[:64])
    log_p, ratios = target.log_prob(x), target.log_ratios(x)
    _expect(np.isfinite(log_p), "random_state must return states of positive probability.")
    _expect(log_p.shape == (n_states,), f"log_prob returned shape {log_p.shape} for {x.shape}.")
    _expect(
        ratios.shape == (n_states, n_moves),
        f"log_ratios returned shape {ratios.shape}; it must be {(n_states, n_moves)}.",
    )
    there = target.log_prob(_some_neighbours(target, x, some))
    what = "log_ratios must be differences of log_prob"
    _expect_near(ratios[:, some], there - log_p[:, None], _rounding(target, log_p, ratios), what)
    _check_copy(target, x)
    _check_compiled_target(target, x, some, rng)


def _check_copy(target: Target, x: States) -> None:
    copy = pickle.loads(pickle.dumps(target))
    _expect_equal(copy.log_prob(x), target.log_prob(x), "log_prob of an unpickled copy")
    other = _leaves(copy.view())
    for name, mine in _leaves(target.view()).items():
        _expect_equal(other[name], mine, f"`{name}` of the view of an unpickled copy")


def _leaves(view: Any, name: str = "") -> dict[str, Any]:
    """Arrays of a view and of the views inside it, by name; not where a function is found."""
    if not hasattr(view, "_asdict"):
        return {} if name == "address" else {name: view}
    return {k: v for key, part in view._asdict().items() for k, v in _leaves(part, key).items()}


def _check_compiled_target(
    target: Target, x: States, some: NDArray[np.int64], rng: np.random.Generator
) -> None:
    n, n_moves = len(x), int((target.cardinalities - 1).sum())
    probe = _Probe(target, Barker().table(), x)
    view: Any = probe.ensemble.view
    _expect(probe.n_moves == n_moves, f"the view has {probe.n_moves} moves, not {n_moves}.")
    here = probe.walk(np.empty((n, 0), dtype=np.int64))[1]
    # Less than 1e-300 is nothing: there numbers lose their digits.
    scale = 64 * EPS * _size(target.log_ratios(x)).max(axis=0, initial=0.0)
    scale += target.rounding + 1e-300
    _expect_near(here, target.log_ratios(x), scale, "log-ratios of the kernel against log_ratios")
    for m in some:
        probe.restore()
        listed = view.touched[view.touched_start[m] : view.touched_start[m + 1]].astype(int)
        _expect(np.all(np.diff(listed) > 0), f"touched moves of move {m} are not sorted: {listed}")
        _expect(m in listed, f"move {m} is missing from its own list of touched moves {listed}.")
        back, after = probe.walk(np.full((n, 1), m))
        wanted = _some_neighbours(target, x, np.array([m]))[:, 0]
        _expect_equal(probe.chains.x, wanted, f"states after move {m}")
        changed = np.flatnonzero((after != here).any(axis=0))
        missing = np.setdiff1d(changed, listed).tolist()
        _expect(not missing, f"move {m} changes the log-ratios of moves {missing} unlisted.")
        probe.walk(back)
        for name in ("x", "cache"):
            what = f"`{name}` after move {m} and its inverse"
            _expect_equal(getattr(probe.chains, name), probe.before[name], what)
    if n_moves:
        probe.restore()
        ratios = probe.walk(rng.integers(n_moves, size=(n, 100)), every=False)[1]
        now, cache = probe.chains.x.copy(), probe.chains.cache.copy()
        probe.rebuild()
        _expect_equal(cache, probe.chains.cache, "the cache after 100 moves against a rebuild")
        found = "log-ratios of the kernel against log_ratios, after 100 moves"
        _expect_near(ratios, target.log_ratios(now), scale + 64 * EPS * _size(ratios), found)
        probe.ensemble.start(probe.table)
        probe.ensemble.advance(probe.table, rng.random((n, 200, 2)))
        probe.expect_as_rebuilt("after 200 transitions")
    log_p = target.log_prob(probe.chains.x)
    gate = _rounding(target, log_p, target.log_ratios(probe.chains.x))
    found_p = probe.ensemble.log_prob() + target.constant
    _expect_near(found_p, log_p, gate, "log p of the kernel against log_prob")


# ----------------------------------------------------------------- balancing functions


def check_balancing(function: BalancingFunction) -> None:
    """Check that a function is balancing, and so is its table; and its gradient if it learns.

    Parameters
    ----------
    function : BalancingFunction
        What is checked.

    Raises
    ------
    AssertionError
        If a property does not hold; the message says which, and what was found.
    """
    u = np.concatenate([np.linspace(-40, 40, 1281), [1e-300, 1e-9, 63.7, 99.0, 700.0, 1e4]])
    h = function.even_part(u)
    _expect(
        np.shape(h) == u.shape and np.shape(function.even_part(1.5)) == (),
        f"even_part returned shape {np.shape(h)} for an input of shape {u.shape}, and "
        f"{np.shape(function.even_part(1.5))} for a number; it must keep the shape.",
    )
    _expect(np.isfinite(h), f"even_part must be finite; it is not at u = {u[~np.isfinite(h)]}.")
    for which, f in (("function", function), ("tabulated function", function.tabulated())):
        h = f.even_part(u)
        gate = 8 * EPS * (1 + np.abs(u) + np.abs(h))
        what = f"the {which} must have h(-u) = h(u)"
        _expect_near(f.even_part(-u), h, gate if f is function else 0.0, what)
        what = f"the {which} must have log g(u) = u + log g(-u)"
        _expect_near(f.log_g(u), u + f.log_g(-u), 2 * gate, what)
        what = f"the {which} must have g(0) = 0, log g(-inf)"
        _expect_equal(f.log_g(-np.inf), -np.inf, what)
    value = function.table().value
    gate = 8 * EPS * (1 + function.knots + np.abs(value))
    _expect_near(value, function.even_part(function.knots), gate, "the table at the knots")
    _expect_equal(function.tabulated().even_part(function.knots), value, "tabulated at the knots")
    cls = type(function)
    # A class made inside a function or a console cell cannot be pickled, and need not be.
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls:
        copy = pickle.loads(pickle.dumps(function))
        _expect_equal(copy.table().value, value, "the table of an unpickled copy")
    if isinstance(function, LearnableFunction):
        _check_gradient(function)


def _check_gradient(function: LearnableFunction) -> None:
    """Compare vjp (and the penalty's gradient) with central differences over theta."""
    rng = np.random.default_rng(0)
    # A little off: where a function starts, corners of it may sit on the knots.
    function = function.with_theta(function.theta + 1e-3 * rng.standard_normal(function.theta.size))
    theta, value = function.theta.copy(), function.table().value.copy()
    _expect_equal(function.with_theta(theta).table().value, value, "with_theta(theta)")
    function.with_theta(theta + 0.1)
    _expect_equal(function.theta, theta, "theta after with_theta made another function")
    _expect_equal(function.table().value, value, "the table after with_theta")
    weights = rng.standard_normal(value.size)

    def loss(at: Array) -> Array:
        other = function.with_theta(at)
        return np.array([weights @ other.table().value, other.penalty()[0]])

    analytic = np.stack([function.vjp(weights), function.penalty()[1]], axis=1)
    _expect(analytic.shape == (theta.size, 2), f"vjp or penalty has {analytic.shape[0]} entries.")
    step = 1e-7
    numeric = np.stack(
        [(loss(theta + e) - loss(theta - e)) / (2 * step) for e in step * np.eye(theta.size)]
    )
    gate = 1e-5 * (1e-3 + np.abs(numeric).max(axis=0))
    _expect_near(analytic, numeric, gate, "vjp (0) and penalty (1) against finite differences")


# ----------------------------------------------------------------- objectives


def _possible_states(target: Target) -> States:
    x = exact.states(target)
    return x[target.log_prob(x) > -np.inf]


def _conditionals(target: Target, x: States) -> Array:
    """P(x_i = v | the other variables) at each state, shape (n_states, n_sites, n_values)."""
    log_p = np.full((*x.shape, len(target.values)), -np.inf)
    for i, k in enumerate(target.cardinalities):
        for v, value in enumerate(target.values[:k]):
            other = x.copy()
            other[:, i] = value
            log_p[:, i, v] = target.log_prob(other)
    return np.exp(log_p - logsumexp(log_p, axis=2, keepdims=True))


def _objectives(
    table: Table, target: Target, log_omega: Array, eta: float, weight: Array
) -> dict[str, Array]:
    """Every objective by definition, in expectation over its random neighbours.

    All have one entry for each state of positive probability but "global_flux", which is over
    them all; "flow" is what the flux kernel gives with a ``weight`` for each site.
    """
    x = exact.states(target)
    possible = target.log_prob(x) > -np.inf
    x = x[possible]
    _, log_t, stay = (part[possible] for part in exact._transitions(Tabulated(table), target))
    ratios, omega, t = target.log_ratios(x), np.exp(log_omega), np.exp(log_t)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_m = np.where(stay > 0, np.log(stay), 0.0)
        moving = np.where(t > 0, t * (log_t - ratios), 0.0).sum(axis=1)
    proposed = omega * (moving - t.sum(axis=1) * log_omega)
    bound = (1 - t) * (eta * (1 - t) - omega[:, None] * (np.log(eta) + 1))
    site = np.repeat(np.arange(target.n_sites), target.cardinalities - 1)
    change = t @ (site[:, None] == np.arange(target.n_sites))
    conditional = _conditionals(target, x)
    present = np.searchsorted(target.values, x)[:, :, None]
    p = np.take_along_axis(conditional, present, axis=2)[:, :, 0]
    others = np.where(np.arange(len(target.values)) == present, 0.0, conditional).sum(axis=2)
    flow = 2 * p * change
    variance = 1 - np.square(conditional.mean(axis=0)).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        local = np.where(change > 0, p * others**2 / change, 0.0).sum(axis=1)
        whole = np.where(flow.any(axis=0), variance / flow.mean(axis=0), 0.0).sum()
        return {
            "bound": proposed + bound.mean(axis=1),
            "exact": proposed + omega * stay * (log_m - log_omega),
            "kl": moving + stay * log_m,
            "sampled_kl": moving,
            "flux": np.log(local),
            "flow": flow @ weight,
            "global_flux": np.log([whole]),
        }


Found = tuple[Array, Array, Array]  # values, gradients at the knots, derivatives by eta


def _found_sampled(
    code: int, eta: float, table: Table, target: Target, log_omega: Array, probe: Any
) -> Found:
    """Average a sampled objective of the kernel over its random neighbours.

    The proposed neighbour comes with the probability of its proposal, the uniform one evenly.
    """
    x = _possible_states(target)
    n, d = target.log_ratios(x).shape
    chains = probe(np.repeat(x, d * d, axis=0))
    log_w = Tabulated(table).log_g(target.log_ratios(x))
    q = np.exp(log_w - logsumexp(log_w, axis=1, keepdims=True))
    middle = np.cumsum(q, axis=1) - 0.5 * q
    uniforms: Any = np.empty((n, d, d, 2))
    uniforms[..., 0], uniforms[..., 1] = middle[:, :, None], (np.arange(d) + 0.5) / d
    rows = n * d * d
    out = (np.empty((rows, 1, table.value.size)), np.empty(rows), np.empty(rows))
    uniforms, weights = uniforms.reshape(rows, 2), np.repeat(log_omega, d * d)
    _compiled.sampled(
        chains.view, table, chains.chains, (0, rows), (code, eta), uniforms, weights, out
    )
    weight = np.repeat(q / d, d, axis=1)
    gradient = np.einsum("xm,xmk->xk", weight, out[0][:, 0].reshape(n, d * d, -1))
    value, by_eta = ((weight * v.reshape(n, d * d)).sum(axis=1) for v in out[1:])
    return value, gradient, by_eta


def _found_enumerated(
    table: Table, log_omega: Array, chains: Ensemble, every: int = 1, u: Any = 0.5
) -> Found:
    n = len(chains)
    out = (np.empty((n, 3, table.value.size)), np.empty(n))
    uniforms = np.broadcast_to(np.asarray(u, dtype=float), (n,)).copy()
    _compiled.enumerated(chains.view, table, chains.chains, (0, n), every, uniforms, log_omega, out)
    return out[1], out[0][:, 0], np.zeros(n)


def _found_flux(table: Table, weight: Array, chains: Ensemble) -> Found:
    n, d = chains.chains.x.shape
    out = (np.empty((n, 1, table.value.size)), np.empty(n), np.empty((n, d)))
    _compiled.flux(chains.view, table, chains.chains, (0, n), np.arange(d), weight, out)
    return out[1], out[0][:, 0], np.zeros(n)


def _found_objectives(
    table: Table, target: Target, log_omega: Array, eta: float, weight: Array
) -> dict[str, Found]:
    """Return what the kernels say of every objective."""
    from sklsb.learning import OBJECTIVES, _Flux

    x = _possible_states(target)
    # Chains first weighed by another table: the objective must weigh by the one it is given.
    before = table._replace(value=table.value + 1.0)

    def probe(states: States) -> Ensemble:
        return _Probe(target, before, states).ensemble

    none: Any = np.empty(0)
    found = {}
    for name, objective in OBJECTIVES.items():
        omega = log_omega if name in ("bound", "exact") else np.zeros(len(x))
        if objective.code == _compiled.ENUMERATED:
            found[name] = _found_enumerated(table, omega, probe(x))
        else:
            found[name] = _found_sampled(objective.code, eta, table, target, omega, probe)
    chains = probe(x)
    found["flux"] = _found_flux(table, none, chains)
    found["flow"] = _found_flux(table, weight, chains)
    value, gradient = _Flux(chains, none, "global_flux")._global(table)
    found["global_flux"] = np.array([value]), gradient[None], np.zeros(1)
    _expect_equal(chains.chains.x, x, "the states, which a flux objective must leave")
    return found


def _numeric_gradient(f: Callable[[Table], Array], table: Table, step: float = 1e-5) -> Array:
    """Central differences by the values at the knots; the slope of the tail stays."""
    columns = []
    for k in range(table.value.size):
        ends = []
        for sign in (1.0, -1.0):
            value = table.value.copy()
            value[k] += sign * step
            slope = np.append(np.diff(value), table.slope[-1])
            ends.append(f(Table(value, slope, table.inverse_step)))
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.stack(columns, axis=-1)


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
    from sklsb.learning import relative_weights

    table, step = function.table(), 1e-5
    log_omega = relative_weights(target.log_prob(_possible_states(target)))
    weight = np.random.default_rng(0).random(target.n_sites) + 0.1

    def by_definition(table: Table, eta: float = eta) -> Array:
        return np.concatenate([*_objectives(table, target, log_omega, eta, weight).values()])

    found = _found_objectives(table, target, log_omega, eta, weight)
    expected = _objectives(table, target, log_omega, eta, weight)
    ends = np.cumsum([values.size for values in expected.values()])[:-1]
    numeric = np.split(_numeric_gradient(by_definition, table, step), ends)
    slope = (by_definition(table, eta + step) - by_definition(table, eta - step)) / (2 * step)
    for (name, values), by_knots, slopes in zip(
        expected.items(), numeric, np.split(slope, ends), strict=True
    ):
        value, gradient, by_eta = found[name]
        gate = 1e-10 * (1 + np.abs(values))
        _expect_near(value, values, gate, f'objective "{name}" against enumeration')
        gate = 1e-6 * np.abs(by_knots).max(initial=1e-3)
        _expect_near(gradient, by_knots, gate, f'gradient of "{name}" at (state, knot)')
        gate = 1e-6 * np.abs(slopes).max(initial=1e-3)
        _expect_near(by_eta, slopes, gate, f'derivative of "{name}" by eta')


# ----------------------------------------------------------------- samplers


def _log_probabilities(target: Target) -> Array:
    log_p = target.log_prob(exact.states(target))
    return log_p - logsumexp(log_p)


def _sum_gate(n: int) -> float:
    """Return by how much n probabilities exp(log T), whose sum is one, may miss it by rounding.

    log T rounds by eps abs(log T), hence T by eps T abs(log T), which adds up to eps log n at most:
    that is the largest entropy. log Z, which all have in common, and sums made in pairs round by
    half of it each; exp, expm1, a product and a quotient by 4 eps, whatever n.
    """
    return EPS * (4 + 2 * math.log(max(n, 1)))


def _n_terms(sampler: Any, target: Target) -> int:
    """Count the moves, or sequences of moves, and the stay that a row is the sum of."""
    n_moves, n_flips = int((target.cardinalities - 1).sum()), exact._resolve(sampler).n_flips
    return n_moves**n_flips + n_moves ** (n_flips - 1)


def _check_matrix(sampler: Any, target: Target) -> None:
    """Rows sum to 1, detailed balance in logarithms and absolutely, stationarity."""
    matrix, log_p = exact.transition_matrix(sampler, target), _log_probabilities(target)
    size, more = 1 + _size(log_p).max(), _cancelled(target)
    rows = _sum_gate(_n_terms(sampler, target))
    _expect_near(matrix.sum(axis=1), 1.0, rows, "rows of the transition matrix must sum to 1")
    with np.errstate(invalid="ignore"):
        flow = log_p[:, None] + exact.log_transition_matrix(sampler, target)
    what, balance = "detailed balance, log p(x) P(x, x') at (x, x')", 16 * EPS * size + more
    _expect_near(flow, flow.T, balance, what)
    p = np.exp(log_p)
    flow = p[:, None] * matrix
    gate = 1e-15 * size + more
    _expect_near(flow, flow.T, gate, "detailed balance, p(x) P(x, x') at (x, x')")
    # By balance and the sums of rows: every flow into x' is off by a share of itself.
    gate = np.minimum(gate, p * balance) + p * rows + 1e-300
    _expect_near(p @ matrix, p, gate, "stationarity, sum of p(x) P(x, x') at x'")


def _bisect(below: Callable[[Array], NDArray[np.bool_]], n: int) -> Array:
    """For each of n questions the smallest u in [0, 1] that is not below any more.

    The bit patterns of floats from 0 to 1 are in order, so it is they that are halved.
    """
    low, high = np.full(n, -1), np.full(n, np.float64(1.0).view(np.int64))
    while np.any(high - low > 1):
        middle = np.maximum((low + high) // 2, 0)
        inside = below(middle.view(np.float64))
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high.view(np.float64)


def _production_matrix(sampler: Any, target: Target, shift: float = 0.0) -> Array:
    """Transition matrix of the production step, measured by bisection of its uniform numbers.

    ``shift`` is added to the offsets of the compiled weights. On its way this also checks what
    the bisection sees.
    """
    x, to = exact.states(target), exact.neighbours(target)
    matrix = np.eye(len(x))
    possible = np.flatnonzero(target.log_prob(x) > -np.inf)
    n, n_moves = possible.size, to.shape[1]
    if not n_moves:
        return matrix
    function, lazy, fast, n_flips = exact._resolve(sampler)
    start, move = np.repeat(possible, n_moves), np.tile(np.arange(n_moves), n)
    probe: Any = (
        _FastProbe(sampler, target, x[start])
        if fast
        else _Probe(target, function.table(), x[start], lazy, shift)
    )
    index = {state.tobytes(): i for i, state in enumerate(x)}

    def proposed(u: Any) -> NDArray[np.int64]:
        """Which move is proposed at u, seen by accepting it; -1 for none."""
        there = np.array([index[state.tobytes()] for state in probe.step(u, probe.accept)])
        return np.where(there == start, -1, (to[start] == there[:, None]).argmax(axis=1))

    edge = _bisect(lambda u: proposed(u) < move, start.size)
    edges = np.column_stack([edge.reshape(n, n_moves), np.ones(n)])
    length = np.diff(edges, axis=1)
    inside = edges[:, :-1].ravel()
    for u in (np.nextafter(edges[:, 1:], 0).ravel(), inside):
        _expect(
            (proposed(u) == move) | (length.ravel() == 0.0),
            "moves must be proposed in intervals of u_select, in order.",
        )
    if not fast:
        probe.expect_as_rebuilt("after an accepted move")
        _check_selection(probe, proposed, edge)
        _check_rejection(probe, inside)
    if n_flips > 1:
        return _several_flips(sampler, target, possible, edges)
    accepted = _bisect(lambda u: np.any(probe.step(inside, u) != x[start], axis=1), start.size)
    reported = probe.ensemble.chains.acceptance[:, 0]
    what = "acceptance probability that `step` returns, against where it accepts"
    _expect_near(reported, np.where(length.ravel() > 0, accepted, reported), 4 * EPS, what)
    accepted = accepted.reshape(n, n_moves)
    matrix[possible[:, None], to[possible]] = length * accepted
    matrix[possible, possible] = edges[:, 0] + (length * (1.0 - accepted)).sum(axis=1)
    return matrix


def _several_flips(sampler: Any, target: Target, possible: Any, edges: Array) -> Array:
    """Transition matrix of several flips, each drawn where the edges of one are.

    What is accepted is told by the probabilities that the step reports.
    """
    x = exact.states(target)
    n_flips = exact._resolve(sampler).n_flips
    index = {state.tobytes(): i for i, state in enumerate(x)}
    n, n_moves = edges.shape[0], edges.shape[1] - 1
    length, middle = np.diff(edges, axis=1), 0.5 * (edges[:, 1:] + edges[:, :-1])
    lazy = edges[:, :1]  # the first number tells that too
    busy = np.maximum(1.0 - lazy, EPS)
    drawn = np.array(list(itertools.product(range(n_moves), repeat=n_flips)))
    row, start = np.repeat(np.arange(n), len(drawn)), np.repeat(possible, len(drawn))
    drawn = np.tile(drawn, (n, 1))
    matrix = np.eye(len(x))
    matrix[possible, possible] = edges[:, 0]
    probe = _FastProbe(sampler, target, x[start], n_flips)
    u = ((middle - lazy) / busy)[row[:, None], drawn]
    u[:, 0] = middle[row, drawn[:, 0]]
    # However the last is drawn, where it is left out.
    share = 0.5 * busy[row, 0] * (length / busy)[row[:, None], drawn].prod(axis=1)
    for last in (0.0, 0.5):
        moves = probe.step(np.column_stack([u, np.full(row.size, last)]), probe.accept)
        there = np.array([index[state.tobytes()] for state in moves])
        accepted = probe.ensemble.chains.acceptance[:, 0]
        np.add.at(matrix, (start, there), share * accepted)
        np.add.at(matrix, (start, start), share * (1.0 - accepted))
    return matrix


def _check_selection(
    probe: _Probe, proposed: Callable[[Any], NDArray[np.int64]], edge: Array
) -> None:
    """At the ends of [0, 1) and on both sides of the edges no move of weight zero is proposed."""
    weight = probe.before["tree"][:, : probe.n_moves]
    chain = np.arange(len(weight))
    last = 1 - 2.0**-53
    for u in (0.0, 2.0**-53, last, np.minimum(edge, last), np.nextafter(edge, 0)):
        m = proposed(u)
        idle = (u < probe.chains.lazy) | (weight.sum(axis=1) == 0.0)
        _expect((m == -1) == idle, f"a move is proposed unless the chain is lazy, at u = {u}.")
        wrong = (m >= 0) & (weight[chain, m] == 0.0)
        _expect(~wrong, f"a move of weight zero is proposed at u = {u}.")


def _check_rejection(probe: _Probe, u_select: Array) -> None:
    probe.step(u_select, np.inf)
    for name in _CARRIED:
        what = f"a rejected move leaves `{name}` as it was, bit for bit"
        _expect_equal(getattr(probe.chains, name), probe.before[name], what)


def _check_step(sampler: Any, target: Target) -> None:
    """Compare the bisected production step with the enumerated one, whatever the offset."""
    expected = exact.transition_matrix(sampler, target)
    for shift in (0.0,) if sampler.fast else (0.0, 150.0, -150.0):
        found = _production_matrix(sampler, target, shift)
        # Weights are exp(log g - offset): with a large offset their logarithms round at its size.
        gate = 8 * EPS * max(1, target.n_sites) * (8 if sampler.fast else 1 + abs(shift))
        gate += _cancelled(target)
        if sampler.fast:  # proposals are as exact as first-order ratios, the chain is in any case
            gate *= _FastProbe(sampler, target, exact.states(target)[:1]).precision / EPS
            p = np.exp(_log_probabilities(target))
            what = "detailed balance of the production step at (x, x')"
            _expect_near(p[:, None] * found, (p[:, None] * found).T, 1e-12, what)
        what = f"the production step against the formula (offset {shift:+g}) at (x, x')"
        _expect_near(found, expected, gate, what)


def _fitted(sampler: Any, target: Target, **params: Any) -> Any:
    return clone(sampler).set_params(**params).fit(target)


def _draws(sampler: Any, n: int, thin: int = 1) -> States:
    x = sampler.sample(n, thin=thin)["x"].to_numpy()
    return x.reshape(*x.shape[:2], sampler.n_sites_)


def _check_parameters(sampler: Any, target: Target) -> None:
    before = sampler.get_params(deep=False)
    value = exact._resolve(sampler).function.table().value.copy()
    _expect(sampler.fit(target) is sampler, "fit must return the sampler itself.")
    after = sampler.get_params(deep=False)
    same = before.keys() == after.keys() and all(before[k] is after[k] for k in before)
    _expect(same, f"fit changed parameters: {before} to {after}.")
    unfitted = exact._resolve(clone(sampler)).function
    _expect_equal(unfitted.table().value, value, "fit changed the function given as `balancing`")
    copy = clone(sampler)
    _expect(not hasattr(copy, "target_"), "a clone must not be fitted.")
    for name, value in after.items():
        copy.set_params(**{name: value})
        _expect(copy.get_params(deep=False)[name] is value, f"set_params must store {name}.")


def _check_streams(sampler: Any, target: Target, n: int) -> None:
    """Expect the same chains of a seed, for any threads and division into calls."""
    one, other = _fitted(sampler, target), _fitted(sampler, target, n_jobs=2)
    fork = pickle.loads(pickle.dumps(one))
    thinned = pickle.loads(pickle.dumps(one))
    following = [rng.random() for rng in pickle.loads(pickle.dumps(one._ensemble.rngs))]
    _expect(
        len(set(following)) == len(following),
        f"every chain has its own stream; the next uniform numbers are {following}.",
    )
    x = _draws(one, 3 * n)
    _expect_equal(_draws(other, 3 * n), x, "draws of the same seed with n_jobs=2")
    parts = [_draws(fork, n), _draws(fork, 0), _draws(fork, 2 * n)]
    _expect_equal(np.concatenate(parts, axis=1), x, "sample(a), sample(b) against sample(a + b)")
    _expect_equal(_draws(thinned, n, 3), x[:, 2::3], "draws 3 apart against every third of all")


def _check_draws(sampler: Any, target: Target, n: int) -> None:
    """Draws are what single steps give on each chain's stream, from where fit ended."""
    fitted = _fitted(sampler, target, keep_burn_in=True)
    warm = fitted.burn_in_["x"].to_numpy()
    warm = warm.reshape(*warm.shape[:2], target.n_sites)
    # A pilot moves the chains on, and so does the search for a number of flips.
    if warm.shape[1] and not hasattr(fitted, "candidates_") and sampler.n_flips != "auto":
        _expect_equal(fitted.state_, warm[:, -1], "the state after fit against the burn-in's last")
    _check_caches(fitted, "after fit")
    table = fitted.balancing_.table()
    replay = pickle.loads(pickle.dumps(fitted))._ensemble
    x, expected = _draws(fitted, n, 2), []
    lp = fitted.sample_stats_["lp"].to_numpy()
    gate = _rounding(target, lp, target.log_ratios(x))
    _expect_near(lp, target.log_prob(x), gate, "lp of the sample stats against log_prob")
    for _ in range(n):
        for _ in range(2):
            replay.advance(table, np.stack([rng.random((1, 2)) for rng in replay.rngs]))
        expected.append(replay.chains.x.copy())
    what = "draws against single steps from the state after fit, on each chain's stream"
    _expect_equal(x, np.stack(expected, axis=1), what)
    for when, now in (("used by", fitted._table()), ("after", fitted.balancing_.table())):
        _expect_equal(now.value, table.value, f"the frozen function's table, {when} sample")
    _check_caches(fitted, "after sample")


def _check_caches(sampler: Any, when: str) -> None:
    """Compare the caches with a rebuild by the frozen function's table, bit for bit."""
    ensemble = sampler._ensemble
    if sampler.fast:
        rebuilt = copy.copy(ensemble)
        rebuilt.start(ensemble._table)
        pairs = zip(ensemble.state.tensors(), rebuilt.state.tensors(), strict=True)
        for k, (one, other) in enumerate(pairs):
            what = f"what a chain carries must equal a rebuild bit for bit {when}: tensor {k}"
            _expect_equal(one.cpu().numpy(), other.cpu().numpy(), what)
        return
    found = {name: getattr(ensemble.chains, name).copy() for name in _CARRIED}
    _rebuild(ensemble.view, sampler.balancing_.table(), ensemble.chains)
    for name in _CARRIED:
        what = f"caches must equal a rebuild bit for bit {when}, but `{name}` does not"
        _expect_equal(found[name], getattr(ensemble.chains, name), what)


def _global_states() -> tuple[Any, bytes]:
    return random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002


def check_sampler(sampler: Any, target: Target, n_draws: int = 100) -> None:
    """Check a sampler on a small target, exactly.

    The transition matrix must have rows that sum to 1, detailed balance and the target as its
    stationary distribution; the compiled step must have the same matrix, and leave caches that
    equal a rebuild bit for bit. Draws must be those of single steps on each chain's own stream,
    the same for any number of threads and any division into calls. Parameters must follow
    scikit-learn's conventions, and global random states must stay as they are.

    Parameters
    ----------
    sampler : LSBSampler
        What is checked; clones of it are fitted, with ``random_state=0``.
    target : Target
        A target of at most 2**14 states; better of fewer than 100.
    n_draws : int, default=100
        Length of the chains that are compared.

    Raises
    ------
    AssertionError
        If a property does not hold; the message says which, and what was found.
    """
    before = _global_states()
    sampler = clone(sampler).set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        _check_parameters(sampler, target)
        _check_matrix(sampler, target)
        _check_streams(sampler, target, n_draws)
        _check_step(sampler, target)
        _check_draws(sampler, target, n_draws)
    _expect(_global_states() == before, "global random states must not be used.")

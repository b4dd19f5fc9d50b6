"""Checks of targets."""

import pickle
from typing import Any

import numpy as np

from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.gibbs import Systematic
from sklsb._system.arrays import Array, Ints
from sklsb.balancing.functions import Barker
from sklsb.ensembles.compiled import Ensemble
from sklsb.storage.fingerprint import magnitudes, terms_at
from sklsb.targets.base import SYMMETRIES, States, Target
from sklsb.testing._expect import EPS, expect, expect_equal, expect_near, rounding
from sklsb.testing._probe import Probe, check_caches, kept


def _some_neighbours(target: Target, x: States, moves: Ints) -> States:
    """Return the states that moves lead to, shape (n_states, len(moves), n_sites)."""
    values = np.asarray(target.values, dtype=target.dtype)
    after = target.offers.after_moves(np.searchsorted(values, x))[:, moves]
    result = np.repeat(x[:, None, :], moves.size, axis=1)
    result[:, np.arange(moves.size), target.offers.site_of_moves[moves]] = values[after]
    return result


def check_target(target: Target, n_states: int = 20, random_state: int = 0) -> None:
    """Check a target against its contract, including its compiled functions.

    Log-ratios must be differences of log-probabilities, and the sum of any factors must equal
    log p. A symmetry must leave log p invariant. A graph must be symmetric, and join variables on
    which log p depends together. In the kernels, at random states and after random moves:
    log-ratios and log p must equal those of the Python methods to rounding, caches must equal a
    rebuild bit for bit, a move must be undone by its inverse, and the list of touched moves must
    contain every move whose log-ratio changed.

    Parameters
    ----------
    target : Target
        Target to check, of any size (at most 64 moves from a state are tried).
    n_states : int, default=20
        Number of random states.
    random_state : int, default=0
        Seed of the states and moves.

    Raises
    ------
    AssertionError
        If a property does not hold; the message says which, and what was found.
    """
    rng = np.random.default_rng(random_state)
    x = np.stack([target.draw_state(rng) for _ in range(n_states)])
    expect_equal(target.check_states(x), x, "random_state must return states of the target")
    n_moves = target.offers.n_moves
    some = np.sort(rng.permutation(n_moves)[:64])
    log_p, ratios = target.log_prob(x), target.log_ratios(x)
    expect(np.isfinite(log_p), "random_state must return states of positive probability.")
    expect(log_p.shape == (n_states,), f"log_prob returned shape {log_p.shape} for {x.shape}.")
    expect(
        ratios.shape == (n_states, n_moves),
        f"log_ratios returned shape {ratios.shape}; it must be {(n_states, n_moves)}.",
    )
    neighbours = _some_neighbours(target, x, some)
    there = target.log_prob(neighbours)
    what = "log_ratios must be differences of log_prob"
    expect_near(ratios[:, some], there - log_p[:, None], rounding(target, log_p, ratios), what)
    all_states = np.concatenate([x, neighbours.reshape(there.size, target.n_sites)])
    _check_factors(target, all_states, np.append(log_p, there))
    _check_symmetry(target, x, log_p, rounding(target, log_p, ratios))
    _check_copy(target, x)
    _check_compiled_target(target, x, some, rng)
    _check_graph(target, x, log_p, rounding(target, log_p, ratios), rng)


def _check_factors(target: Target, x: States, log_p: Array) -> None:
    factors = target.log_factors
    if factors is None:
        return
    terms = np.array([np.broadcast_to(term, len(x)) for term in terms_at(target, x)])
    terms = terms.reshape(-1, len(x))  # also if there are none
    gate = EPS * (len(factors) + 16) * magnitudes(terms).sum(axis=0)
    expect_near(terms.sum(axis=0), log_p, gate, "the sum of log_factors against log_prob")


def _check_symmetry(target: Target, x: States, log_p: Array, gate: float) -> None:
    if target.symmetry is None:
        return
    expect(
        target.symmetry in SYMMETRIES,
        f"symmetry is {target.symmetry!r}; it must be 'cycle', 'reverse' or None.",
    )
    index, k = np.searchsorted(target.values, x), target.cardinalities
    index = (index + 1) % k if target.symmetry == "cycle" else k - 1 - index
    image = np.asarray(target.values, dtype=target.dtype)[index]
    what = f"log_prob after what the symmetry {target.symmetry!r} makes of a state"
    expect_near(target.log_prob(image), log_p, gate, what)


def _check_graph(
    target: Target, x: States, log_p: Array, gate: float, rng: np.random.Generator
) -> None:
    """Check that the effect of a variable does not depend on one that is not joined to it."""
    graph, n = target.graph, target.n_sites
    if graph is None:
        return
    expect(graph.shape == (n, n), f"graph has shape {graph.shape}; it must be {(n, n)}.")
    expect((graph != graph.T).nnz == 0, "graph must be symmetric.")
    expect(graph.diagonal() == 0, "graph must join no variable to itself.")
    values, k = np.asarray(target.values, target.dtype), target.cardinalities
    free = np.flatnonzero(k > 1)
    for _ in range(16 if free.size > 1 else 0):
        i, j = rng.choice(free, 2, replace=False)
        if graph[i, j]:
            continue
        first, second = x.copy(), x.copy()
        first[:, i] = values[rng.integers(k[i], size=len(x))]
        second[:, j] = values[rng.integers(k[j], size=len(x))]
        both = first.copy()
        both[:, j] = second[:, j]
        one, other, found = (target.log_prob(states) for states in (first, second, both))
        known = np.isfinite(one) & np.isfinite(other)
        what = (
            f"graph does not join variables {target.label(int(i))!r} and "
            f"{target.label(int(j))!r}, on which log p depends together"
        )
        expect_near((found + log_p)[known], (one + other)[known], gate, what)


def _check_copy(target: Target, x: States) -> None:
    copy = pickle.loads(pickle.dumps(target))
    expect_equal(copy.log_prob(x), target.log_prob(x), "log_prob of an unpickled copy")
    other = _leaves(copy.view())
    for name, mine in _leaves(target.view()).items():
        expect_equal(other[name], mine, f"`{name}` of the view of an unpickled copy")


def _leaves(view: Any, name: str = "") -> dict[str, Any]:
    """Return arrays of a view and of the views inside it, by name, but no addresses."""
    if not isinstance(view, tuple):
        return {} if name == "address" else {name: view}
    fields: Any = view
    return {k: v for key, part in fields._asdict().items() for k, v in _leaves(part, key).items()}


def _check_compiled_target(target: Target, x: States, some: Ints, rng: np.random.Generator) -> None:
    n, n_moves = len(x), target.offers.n_moves
    probe = Probe(target, Balanced(Barker().table()), x)
    view: Any = probe.ensemble.view
    expect(probe.n_moves == n_moves, f"the view has {probe.n_moves} moves, not {n_moves}.")
    here = probe.walk(np.empty((n, 0), dtype=np.int64))[1]
    # Numbers below 1e-300 lose their digits.
    scale = 64 * EPS * magnitudes(target.log_ratios(x)).max(axis=0, initial=0.0)
    scale += target.rounding + 1e-300
    expect_near(here, target.log_ratios(x), scale, "log-ratios of the kernel against log_ratios")
    neighbours = np.moveaxis(_some_neighbours(target, x, some), 1, 0)
    for m, wanted in zip(some, neighbours, strict=True):
        probe.restore()
        listed = view.touched[view.touched_start[m] : view.touched_start[m + 1]].astype(int)
        expect(np.all(np.diff(listed) > 0), f"touched moves of move {m} are not sorted: {listed}")
        expect(m in listed, f"move {m} is missing from its own list of touched moves {listed}.")
        back, after = probe.walk(np.full((n, 1), m))
        expect_equal(probe.chains.x, wanted, f"states after move {m}")
        changed = np.flatnonzero((after != here).any(axis=0))
        missing = np.setdiff1d(changed, listed).tolist()
        expect(not missing, f"move {m} changes the log-ratios of moves {missing} unlisted.")
        probe.walk(back)
        for name in ("x", "cache"):
            what = f"`{name}` after move {m} and its inverse"
            expect_equal(kept(probe.chains)[name], probe.before[name], what)
    if n_moves:
        probe.restore()
        ratios = probe.walk(rng.integers(n_moves, size=(n, 100)), every=False)[1]
        now, cache = probe.chains.x.copy(), probe.chains.cache.copy()
        probe.rebuild()
        expect_equal(cache, probe.chains.cache, "the cache after 100 moves against a rebuild")
        found = "log-ratios of the kernel against log_ratios, after 100 moves"
        expect_near(ratios, target.log_ratios(now), scale + 64 * EPS * magnitudes(ratios), found)
        probe.ensemble.start(probe.rule)
        probe.ensemble.advance(rng.random((n, 200, 2)))
        check_caches(probe.ensemble, "after 200 transitions")
    log_p = target.log_prob(probe.chains.x)
    gate = rounding(target, log_p, target.log_ratios(probe.chains.x))
    found_p = probe.ensemble.log_prob() + target.constant
    expect_near(found_p, log_p, gate, "log p of the kernel against log_prob")
    plain = target.offers.plain
    if type(plain.site_view()) is not type(plain.view()):
        rule = Systematic(np.arange(target.n_sites, dtype=np.uint32), 1)
        rngs = [rng] * n
        found_p = Ensemble(target, probe.chains.x, rngs, rule=rule).log_prob() + target.constant
        expect_near(found_p, log_p, gate, "log p of the kernel of site_view against log_prob")

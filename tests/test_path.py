"""Paths of several moves accepted as one: exactness, caches, and the way back."""

import itertools

import networkx as nx
import numpy as np
import pytest
from models import FUNCTIONS, chain_network, dense, potts

from sklsb import Ising, MarkovNetwork, exact, testing
from sklsb.balancing import Barker, Directional, Max, Sqrt
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.rules import Balanced, Mixture, Path, RandomBlocks, Sides
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.transitions import eigenvalues
from sklsb.testing._expect import EPS
from sklsb.testing._probe import RuleProbe, check_caches, kept

INF = np.inf
_rng = np.random.default_rng(0)
MIXED = MarkovNetwork(
    [3, 2, 2],
    [((0, 1), _rng.random((3, 2))), ((1, 2), [[1, 0], [2, 0.1]]), ((2,), [1, 2])],
)
TARGETS = {
    "ising": dense(3),
    "one site": dense(1),
    "nothing": Ising(np.zeros((0, 0))),
    "flat": Ising(np.zeros((2, 2))),
    "extreme fields": Ising([[0.0, 5.0], [5.0, 0.0]], [700.0, -350.0]),
    "potts zeros": potts(nx.path_graph(2), "zeros", seed=3),
    "mixed": MIXED,
    "evidence": dense(3).condition({1: 1}),
    "all observed": MIXED.condition({0: 0, 1: 0, 2: 0}),
    # No neighbour of a possible state is possible.
    "isolated": MarkovNetwork([2, 2], [((0, 1), np.diag([1.0, 3.0]))]),
}


def path(function, target, length=2):
    return Path(function.table(), length, target.n_sites)


def by_hand(target, function, longest):
    """The transition matrix, by a list of all paths."""
    states = list(itertools.product(*(target.values[:k] for k in target.cardinalities.tolist())))
    log_p = target.log_prob(np.array(states).reshape(len(states), target.n_sites))
    weight = np.zeros((len(states), len(states)))
    for a, b in itertools.permutations(range(len(states)), 2):
        apart = sum(one != other for one, other in zip(states[a], states[b], strict=True))
        if apart == 1 and log_p[a] > -INF:
            weight[a, b] = np.exp(function.log_g(log_p[b] - log_p[a]))
    z = weight.sum(axis=1)
    matrix = np.zeros_like(weight)
    for x in range(len(states)):
        if z[x] == 0:
            matrix[x, x] = 1.0
            continue
        ends = {(x,): 1.0 / longest}
        for _ in range(longest):
            longer = {}
            for way, p in ends.items():
                for y in np.flatnonzero(weight[way[-1]]).tolist():
                    longer[(*way, y)] = p * weight[way[-1], y] / z[way[-1]]
            for way, p in longer.items():
                accepted = min(1.0, z[x] / z[way[-1]])
                matrix[x, way[-1]] += p * accepted
                matrix[x, x] += p * (1 - accepted)
            ends = longer
    return matrix


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("name", [name for name in TARGETS if name != "extreme fields"])
def test_the_formula(name, length):
    target = TARGETS[name]
    for function in (Barker().tabulated(), Max().tabulated()):
        found = exact.transition_matrix(path(function, target, length), target)
        wanted = by_hand(target, function, 2 * length - 1)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("name", TARGETS)
def test_the_compiled_step_is_the_formula(name, length):
    target = TARGETS[name]
    if length == 3 and name != "ising":
        target = dense(2)
    for function in (Barker(), Max()):
        testing.check_rule(path(function, target, length), target, n_continuations=12)


@pytest.mark.parametrize("name", TARGETS)
def test_balance_of_the_formula(name):
    target = TARGETS[name]
    p = exact.probabilities(target)
    for function in (*FUNCTIONS.values(), Sqrt()):
        matrix = exact.transition_matrix(path(function, target, 3), target)
        assert np.abs(matrix.sum(axis=1) - 1).max() <= 4 * EPS * max(1, target.n_sites) * 3
        flow = p[:, None] * matrix
        assert np.abs(flow - flow.T).max() <= 2e-15
        assert np.abs(p @ matrix - p).max() <= 2e-15


def test_one_move_is_the_locally_balanced_step():
    target = dense(4)
    for function in FUNCTIONS.values():
        found = exact.transition_matrix(path(function, target, 1), target)
        wanted = exact.transition_matrix(Balanced(function.table()), target)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)


def test_factors_and_sides():
    """Weights that depend on the direction of a move, times factors by variable."""
    target = dense(3)
    sides = Sides(np.array([0.0, 1.5, -0.7]), np.arange(3), -1)
    rule = Path(Directional().table(), 2, 3, sides)
    testing.check_rule(rule, target, n_continuations=12)
    plain = exact.transition_matrix(Path(Barker().table(), 2, 3), target)
    assert np.abs(exact.transition_matrix(rule, target) - plain).max() > 0.01


def test_in_a_mixture():
    target = dense(2)
    pairs = RandomBlocks(np.arange(2, dtype=np.uint32), 2)
    rule = Mixture.of(path(Barker(), target), pairs, 0.3)
    testing.check_rule(rule, target, n_continuations=12)


def test_parity_is_not_kept():
    """On a flat target all paths are accepted."""
    target = Ising(np.zeros((3, 3)))
    assert np.isclose(eigenvalues(path(Sqrt(), target, 1), target)[0], -1)
    assert eigenvalues(path(Sqrt(), target, 2), target)[0] > -0.5
    assert path(Sqrt(), target, 1).facts.may_be_periodic
    assert not path(Sqrt(), target, 2).facts.may_be_periodic


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_a_refused_path_leaves_everything_as_it_was(scale):
    """With large fields the weights of a path are taken relative to a new offset."""
    target = Ising(scale * dense(4).couplings.toarray() / 4, scale * np.linspace(-1, 1, 4))
    rule = path(Max(), target, 3)
    x = exact.states(target)
    probe = RuleProbe(target, rule, len(x))
    chains = Ensemble(target, x, Streams(spawn(0, len(x))), rule=rule)
    chains.start(rule)
    before = {name: values.copy() for name, values in kept(chains.chains).items()}
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(50):
        for name, values in kept(chains.chains).items():
            values[:] = before[name]
        chains.chains.moved[:] = False
        u = rng.random((len(x), rule.facts.n_uniforms))
        u[:, -1] = 1 - 2.0**-53
        chains.advance(u[:, None])
        there = probe.step(x, u)
        np.testing.assert_array_equal(chains.chains.x, there)
        same = ~chains.chains.moved.any(axis=1)
        assert (there[same] == x[same]).all()
        refused += same.sum()
        for name, values in kept(chains.chains).items():
            if name != "level":
                assert values[same].tobytes() == before[name][same].tobytes(), name
    assert refused > 100


@pytest.mark.parametrize(
    "target",
    [
        dense(12, scale=0.5),
        chain_network(),
        potts(nx.path_graph(6), "field 45"),
        dense(5, scale=90),
    ],
    ids=["ising", "network", "potts", "large couplings"],
)
def test_caches_of_long_runs(target):
    rule = path(Sqrt(), target, 4)
    rngs = spawn(0, 3)
    chains = Ensemble(
        target, np.stack([target.draw_state(rng) for rng in rngs]), Streams(rngs), rule=rule
    )
    chains.start(rule)
    nothing = np.empty((3, 0, target.n_sites), target.dtype), np.empty((3, 0, 2))
    for n in (1, 10, 500):
        chains.run(n, (0, 0, 0), *nothing)
        check_caches(chains, f"after {n} transitions")
    assert chains.chains.moved.any()


def test_marginals_of_a_long_run():
    target = dense(6, scale=0.6)
    rule = path(Max(), target, 3)
    rngs = spawn(1, 8)
    chains = Ensemble(
        target, np.stack([target.draw_state(rng) for rng in rngs]), Streams(rngs), rule=rule
    )
    chains.start(rule)
    x, stats = np.empty((8, 4000, 6), np.int8), np.empty((8, 4000, 2))
    chains.run(500, (0, 0, 0), x, stats)
    chains.run(20_000, (5, 0, 0), x, stats)
    wanted = exact.probabilities(target) @ exact.states(target)
    # 32,000 draws, of which at least a tenth count as independent.
    assert np.abs(x.mean(axis=(0, 1)) - wanted).max() < 6.5 / np.sqrt(3200)


def test_sweeps():
    rule = path(Sqrt(), dense(7), 3)
    assert (rule.longest, rule.facts.n_uniforms, rule.facts.transitions_per_sweep) == (5, 7, 3)

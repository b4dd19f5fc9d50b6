"""Rules: the compiled step, and its formula, against transitions written out by hand."""

import itertools
import math

import networkx as nx
import numba
import numpy as np
import pytest
from exact_matrices import spectral_gap
from models import dense, ising, potts

from sklsb import (
    RBM,
    FunctionTarget,
    GibbsSampler,
    Ising,
    MarkovNetwork,
    SwapSampler,
    VariableSelection,
    exact,
    testing,
)
from sklsb import HammingBallSampler as HammingBalls
from sklsb._kernels.chains import NoPart
from sklsb._kernels.facts import Facts
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.chromatic import Chromatic
from sklsb._kernels.rules.gibbs import RandomBlocks, Systematic
from sklsb._kernels.rules.hamming_ball import HammingBall
from sklsb._kernels.rules.mixture import Mixture
from sklsb.balancing import Barker
from sklsb.exact.matrices import log_transition_matrix, rule_of
from sklsb.extending import implements
from sklsb.testing import _cells as cells_of
from sklsb.testing import _rules as measuring

INF = np.inf
EPS = np.finfo(float).eps
LAST = 1 - 2.0**-53

# ----------------------------------------------------------------- targets

_rng = np.random.default_rng(0)
PATH = nx.path_graph(3)
# The first two variables are equal, so that no single change of them is possible; the third, of
# one value, never changes; the fourth excludes some of what the first may be.
_table = _rng.random((2, 3))
_table[0, 2] = 0.0
TIED = MarkovNetwork(
    [2, 2, 1, 3], [((0, 1), np.diag([1.0, 3.0])), ((0, 3), _table), ((1, 2), [[0.5], [0.25]])]
)
# Mixed numbers of values, and zeros in half of the entries of one table.
MIXED = MarkovNetwork(
    [3, 2, 4],
    [((0, 1), _rng.random((3, 2))), ((1, 2), [[1, 0, 2, 0], [0, 3, 0, 0.1]]), ((2,), [1, 2, 3, 4])],
)
POTTS = potts(PATH, "zeros", seed=3)
MACHINE = RBM(_rng.normal(size=(3, 2)), _rng.normal(size=3), _rng.normal(size=2))
EXTREME = RBM([[700.0, -700.0], [-700.0, 700.0], [1.0, 0.5]], [0.5, -0.5, 0.1], [0.1, -0.2])
# Two columns and their sum: with any two of them the third is impossible.
_columns = _rng.normal(size=(12, 2))
SELECTION = VariableSelection(
    np.column_stack([_columns, _columns.sum(axis=1)]), _columns[:, 0] + 3 * _rng.normal(size=12)
)


@numba.njit
def neighbours_differ(x):
    """Log p of a row of which neighbours that are equal are impossible, but for the value 0."""
    value = 0.0
    for i in range(x.size):
        value += 0.3 * x[i] * (i + 1) - 0.4 * x[i] * x[i]
        if i > 0:
            value += 0.2 * x[i] * x[i - 1]
            if x[i] == x[i - 1] and x[i] > 0:
                return -np.inf
    return value


FUNCTION = FunctionTarget(neighbours_differ, 4, [3, 2, 1, 3])

TARGETS = {
    "ising": dense(3),
    "no edges": ising(nx.empty_graph(3)),
    "one site": dense(1),
    "two sites": dense(2),
    "strong fields": ising(PATH, "field 45"),
    "extreme fields": ising(PATH, "field 700"),
    "flat": ising(PATH, "flat"),
    "nothing": Ising(np.zeros((0, 0))),
    "potts": potts(PATH, "random"),
    "potts zeros": POTTS,
    "potts evidence": potts(PATH, "evidence"),
    "potts extreme": potts(PATH, "field 700"),
    "tied": TIED,
    "mixed": MIXED,
    "tiny factors": MarkovNetwork([2, 3], [((0, 1), [[1e-300, 1e300, 1], [0, 1e-300, 1e300]])]),
    "no variables": MarkovNetwork([], []),
    "all of one value": MarkovNetwork([1, 1], [((0, 1), [[0.3]])]),
    "machine": MACHINE,
    "extreme machine": EXTREME,
    "selection": SELECTION,
    "function": FUNCTION,
    "evidence": MIXED.condition({2: 0}),
    "evidence on tied": TIED.condition({3: 1}),
    "all observed": TIED.condition({0: 0, 1: 0, 3: 1}),
    "machine, evidence": MACHINE.condition({1: 1}),
    "function, evidence": FUNCTION.condition({1: 1}),
}
GRAPHS = [name for name, target in TARGETS.items() if target.graph is not None]
LAYERS = ["machine", "extreme machine", "machine, evidence"]


# ----------------------------------------------------------------- by hand


def states_of(target):
    """All states, by nested loops over the values."""
    return list(itertools.product(*(target.values[:k] for k in target.cardinalities.tolist())))


def by_hand(target, transition):
    """Matrix of transition(x, log_p) -> {y: probability}; impossible states stay."""
    states = states_of(target)
    values = target.log_prob(np.array(states).reshape(len(states), target.n_sites).astype(int))
    log_p = dict(zip(states, values.tolist(), strict=True))
    found = np.zeros((len(states), len(states)))
    for i, x in enumerate(states):
        if log_p[x] == -INF:
            found[i, i] = 1.0
            continue
        for y, probability in transition(x, log_p).items():
            found[i, states.index(y)] += probability
    return found


def shares(log_p, some):
    """Probabilities of some states given that it is one of them."""
    largest = max(log_p[y] for y in some)
    weight = {y: math.exp(log_p[y] - largest) for y in some}
    total = sum(weight.values())
    return {y: w / total for y, w in weight.items()}


def conditional(block):
    """Transition that draws some variables given the others."""

    def transition(x, log_p):
        outside = [i for i in range(len(x)) if i not in block]
        return shares(log_p, [y for y in log_p if all(y[i] == x[i] for i in outside)])

    return transition


def mean_of(transitions):
    def transition(x, log_p):
        found = {}
        for one in transitions:
            for y, probability in one(x, log_p).items():
                found[y] = found.get(y, 0.0) + probability / len(transitions)
        return found

    return transition


def possible_sites(target):
    """Variables that have several values among the possible states."""
    x = exact.states(target)
    x = x[target.log_prob(x) > -INF]
    return [i for i in range(target.n_sites) if len(np.unique(x[:, i])) > 1]


def ball(block, radius):
    def transition(x, log_p):
        def near(y, z):
            apart = [i for i in range(len(x)) if y[i] != z[i]]
            return len(apart) <= radius and all(i in block for i in apart)

        centres = [u for u in log_p if near(x, u)]
        found = {}
        for u in centres:  # around each of them x at least is possible
            for y, share in shares(log_p, [y for y in log_p if near(u, y)]).items():
                found[y] = found.get(y, 0.0) + share / len(centres)
        return found

    return transition


def through_the_hidden_units(machine, free):
    w, b, c = machine.weights, machine.visible_bias, machine.hidden_bias

    def sigmoid(a):
        return 1.0 / (1.0 + math.exp(-a)) if a > -700 else 0.0

    def bernoulli(p, value):
        return p if value else 1.0 - p

    def transition(x, log_p):
        found = dict.fromkeys(log_p, 0.0)
        for h in itertools.product((0, 1), repeat=len(c)):
            up = 1.0
            for j, on in enumerate(h):
                up *= bernoulli(sigmoid(c[j] + sum(w[i, j] * x[i] for i in range(len(x)))), on)
            for y in log_p:
                down = 1.0
                for i, on in enumerate(y):
                    if i in free:
                        a = b[i] + sum(w[i, j] * h[j] for j in range(len(h)))
                        down *= bernoulli(sigmoid(a), on)
                    else:
                        down *= float(on == x[i])
                found[y] += up * down
        return found

    return transition


def balanced_by_hand(function):
    """A single change by its weight, accepted by the ratio of the sums of weights."""

    def weighed(x, log_p):
        near = [y for y in log_p if sum(a != b for a, b in zip(x, y, strict=True)) == 1]
        return near, [float(np.exp(function.log_g(log_p[y] - log_p[x]))) for y in near]

    def transition(x, log_p):
        near, g = weighed(x, log_p)
        z = sum(g)
        found = {x: 1.0}
        for y, w in zip(near, g, strict=True):
            if w > 0:
                probability = w / z * min(1.0, z / sum(weighed(y, log_p)[1]))
                found[y] = probability
                found[x] -= probability
        return found

    return transition


def product(matrices, size):
    found = np.eye(size)
    for matrix in matrices:
        found = found @ matrix
    return found


def check_formula(rule, target, wanted):
    found = exact.transition_matrix(rule, target)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)
    with np.errstate(divide="ignore"):
        log_found = log_transition_matrix(rule, target)
    np.testing.assert_allclose(np.exp(log_found), wanted, rtol=0, atol=1e-13)


def test_the_extreme_machine_takes_sums_of_logarithms():
    assert EXTREME.site_view().span == 0 < MACHINE.site_view().span


@pytest.mark.parametrize("name", TARGETS)
def test_variables_that_are_left_out_have_one_possible_value(name):
    target = TARGETS[name]
    sites = rule_of(GibbsSampler("random"), target).sites.tolist()
    assert set(possible_sites(target)) <= set(sites) <= set(range(target.n_sites))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", TARGETS)
def test_formulas_of_blocks(name, size):
    target = TARGETS[name]
    random = rule_of(GibbsSampler("random", block_size=size), target)
    sites = random.sites.tolist()
    blocks = list(itertools.combinations(sites, min(size, len(sites))))
    wanted = by_hand(target, mean_of([conditional(block) for block in blocks]))
    check_formula(random, target, wanted)
    systematic = rule_of(GibbsSampler("systematic", block_size=size), target)
    blocks = [sites[k : k + size] for k in range(0, len(sites), size)]
    wanted = product([by_hand(target, conditional(block)) for block in blocks], len(wanted))
    check_formula(systematic, target, wanted)


@pytest.mark.parametrize("name", GRAPHS)
def test_formulas_of_colours(name):
    target = TARGETS[name]
    rule = rule_of(GibbsSampler("chromatic"), target)
    classes = [rule.sites[a:b].tolist() for a, b in itertools.pairwise(rule.start.tolist())]
    # The variables of a class, all given the state before, are drawn as if one after another.
    wanted = [by_hand(target, conditional(one)) for one in classes]
    check_formula(rule, target, product(wanted, len(states_of(target))))


@pytest.mark.parametrize(("size", "radius"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (9, 2)])
@pytest.mark.parametrize("name", TARGETS)
def test_formulas_of_balls(name, size, radius):
    target = TARGETS[name]
    rule = rule_of(HammingBalls(size, radius), target)
    sites = rule.sites.tolist()
    blocks = itertools.combinations(sites, min(size, len(sites)))
    transitions = [ball(block, radius) for block in blocks]
    check_formula(rule, target, by_hand(target, mean_of(transitions)))


@pytest.mark.parametrize("name", LAYERS)
def test_formulas_of_layers(name):
    target = TARGETS[name]
    rule = rule_of(GibbsSampler("layers"), target)
    free = np.flatnonzero(target.n_possible > 1).tolist()
    wanted = by_hand(target, through_the_hidden_units(target.layers, free))
    check_formula(rule, target, wanted)


@pytest.mark.parametrize("name", ["ising", "potts zeros", "mixed", "one site"])
def test_formulas_of_mixtures(name):
    target = TARGETS[name]
    blocks = rule_of(GibbsSampler(block_size=2), target)
    balls = rule_of(HammingBalls(2), target)
    single = Balanced(Barker().table())
    parts = [exact.transition_matrix(rule, target) for rule in (blocks, balls, single)]
    inner = Mixture.of(balls, single, 0.25)
    check_formula(inner, target, 0.75 * parts[1] + 0.25 * parts[2])
    outer = Mixture.of(blocks, inner, 0.4)
    check_formula(outer, target, 0.6 * parts[0] + 0.3 * parts[1] + 0.1 * parts[2])
    wanted = by_hand(target, balanced_by_hand(Barker().tabulated()))
    check_formula(single, target, wanted)


# ----------------------------------------------------------------- the compiled step

CASES = [
    *(
        (name, f"Gibbs-{k}", GibbsSampler("random", block_size=k))
        for name in TARGETS
        for k in (1, 2, 5)
    ),
    *((name, "ball", HammingBalls(2, 1)) for name in TARGETS),
    *((name, "wide ball", HammingBalls(3, 2)) for name in TARGETS if "potts" not in name),
    *((name, "chromatic", GibbsSampler("chromatic")) for name in GRAPHS if "potts" not in name),
    ("potts zeros", "chromatic", GibbsSampler("chromatic")),
    *((name, "layers", GibbsSampler("layers")) for name in LAYERS),
    *(
        (name, f"systematic-{k}", GibbsSampler("systematic", block_size=k))
        for name in ("ising", "nothing", "one site", "strong fields", "tied", "mixed")
        for k in (1, 2)
    ),
]
# Each kind of target by each rule; the others of a kind take kernels of their own, or none.
COMMIT = {
    "ising",
    "strong fields",
    "nothing",
    "potts zeros",
    "tied",
    "mixed",
    "machine",
    "function",
}


def commit_or_slow(name, what):
    dear = what in ("wide ball", "Gibbs-5", "systematic-2") and name != "tied"
    # Balls are measured on three other views.
    dear |= what == "ball" and name in ("machine", "potts zeros")
    return [] if name in COMMIT and not dear else [pytest.mark.slow]


each_case = pytest.mark.parametrize(
    ("target", "sampler"),
    [
        pytest.param(TARGETS[name], sampler, marks=commit_or_slow(name, what))
        for name, what, sampler in CASES
    ],
    ids=[f"{name}-{what}" for name, what, _ in CASES],
)


@each_case
def test_the_compiled_step_is_the_formula(target, sampler):
    testing.check_rule(rule_of(sampler, target), target)


def check_edges(rule, target, n_corners=200):
    """At the ends of each number and on both sides of its breakpoints no state is impossible."""
    x = exact.states(target)
    possible = target.log_prob(x) > -INF
    outcomes = measuring.outcomes_of(rule, target, 48)
    cells = cells_of.Cells(np.flatnonzero(possible), rule.facts.n_uniforms)
    ends = np.array([0.0, 2.0**-53, LAST])
    rng = np.random.default_rng(0)
    corners = rng.choice(np.append(ends, 0.5), size=(n_corners, rule.facts.n_uniforms))
    start = np.repeat(cells.start, n_corners)
    assert possible[outcomes.ends(start, np.tile(corners, (cells.start.size, 1)))].all()
    for at in range(rule.facts.n_uniforms):
        edges = cells_of.edges_of(cells, at, outcomes)
        for later in (0.0, LAST, None):
            numbers = np.repeat(cells.numbers, [2 * edge.size + 3 for edge in edges], axis=0)
            start = np.repeat(cells.start, [2 * edge.size + 3 for edge in edges])
            numbers[:, at] = np.concatenate(
                [np.concatenate([ends, np.minimum(e, LAST), np.nextafter(e, 0)]) for e in edges]
            )
            if later is not None:
                numbers[:, at + 1 :] = later
            assert possible[outcomes.ends(start, numbers)].all()
        cells.split(at, edges)


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        *(
            (n, GibbsSampler("random", block_size=k))
            for n in ("tied", "mixed", "function")
            for k in (1, 2)
        ),
        *((n, GibbsSampler(block_size=2)) for n in ("potts zeros", "selection", "tiny factors")),
        *((n, HammingBalls(2, 1)) for n in ("tied", "mixed")),
        *(
            pytest.param(n, HammingBalls(2, 1), marks=pytest.mark.slow)
            for n in ("potts zeros", "selection")
        ),
        *((n, HammingBalls(3, 2)) for n in ("tied", "function")),
        *((n, GibbsSampler("systematic", block_size=2)) for n in ("tied", "mixed")),
        *((n, GibbsSampler("chromatic")) for n in ("potts zeros", "mixed", "evidence on tied")),
        *((n, SwapSampler(n_partners=k)) for n in ("mixed", "potts zeros") for k in (1, None)),
    ],
    ids=str,
)
def test_no_number_leads_to_an_impossible_state(name, sampler):
    target = TARGETS[name]
    possible = target.log_prob(exact.states(target)) > -INF
    assert 0 < possible.sum() < possible.size
    check_edges(rule_of(sampler, target), target)


# ----------------------------------------------------------------- what single changes cannot reach


def test_a_block_of_two_links_what_no_single_change_does():
    gaps = {k: spectral_gap(GibbsSampler("random", block_size=k), TIED) for k in (1, 2)}
    assert gaps[1] < 1e-12 < 0.01 < gaps[2]
    # A ball of radius 1 goes by way of an impossible centre.
    assert spectral_gap(HammingBalls(1), TIED) < 1e-12
    assert spectral_gap(HammingBalls(2, 1), TIED) > 0.01
    for sampler in (GibbsSampler(block_size=2), HammingBalls(2, 1)):
        found = testing.measured_matrix(sampler, TIED)
        x = exact.states(TIED)
        here = (x == [0, 0, 0, 1]).all(axis=1).argmax()
        there = (x == [1, 1, 0, 1]).all(axis=1).argmax()
        assert found[here, there] > 0.01


def test_more_than_all_variables_in_a_block_are_independent_draws():
    for name in ("ising", "tied", "mixed", "potts zeros", "function", "machine"):
        target = TARGETS[name]
        p = exact.probabilities(target)
        for sampler in (
            GibbsSampler(block_size=10),
            GibbsSampler("systematic", block_size=10),
            HammingBalls(10, 10),
        ):
            rule = rule_of(sampler, target)
            assert rule.block_size == rule.sites.size <= target.n_sites
            found = exact.transition_matrix(rule, target)[p > 0]
            np.testing.assert_allclose(found, np.tile(p, (len(found), 1)), rtol=0, atol=1e-14)
            assert rule.facts.transitions_per_sweep == 1


# ----------------------------------------------------------------- what is promised, and only that


def imbalance(rule, target):
    p, found = exact.probabilities(target), testing.measured_matrix(rule, target)
    flow = p[:, None] * found
    return np.abs(flow - flow.T).max(), np.abs(p @ found - p).max()


@pytest.mark.parametrize("scan", ["systematic", "chromatic"])
def test_sweeps_are_invariant_and_not_reversible(scan):
    target = TARGETS["ising"]
    rule = rule_of(GibbsSampler(scan), target)
    assert not rule.facts.reversible
    reversible, invariant = imbalance(rule, target)
    assert reversible > 1e-3
    assert invariant < 1e-14


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("mixed", GibbsSampler("random")),
        ("mixed", GibbsSampler(block_size=2)),
        ("mixed", HammingBalls(3)),
        ("machine", GibbsSampler("layers")),
        ("ising", GibbsSampler("systematic", block_size=3)),
        ("no edges", GibbsSampler("chromatic")),
        ("one site", GibbsSampler("systematic")),
    ],
    ids=str,
)
def test_what_is_called_reversible_is(name, sampler):
    rule = rule_of(sampler, TARGETS[name])
    assert rule.facts.reversible
    assert max(imbalance(rule, TARGETS[name])) < 1e-14


def test_a_mixture_is_as_reversible_as_its_parts():
    target = TARGETS["ising"]
    blocks, sweep = (rule_of(GibbsSampler(scan), target) for scan in ("random", "systematic"))
    assert Mixture.of(blocks, blocks, 0.5).facts.reversible
    mixed = Mixture.of(blocks, sweep, 0.5)
    assert not mixed.facts.reversible
    p = exact.probabilities(target)
    flow = p[:, None] * exact.transition_matrix(mixed, target)
    assert np.abs(flow - flow.T).max() > 1e-3
    np.testing.assert_allclose(flow.sum(axis=0), p, rtol=0, atol=1e-15)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_mixtures_on_compiled_steps(share):
    target = TARGETS["ising"]
    blocks = rule_of(GibbsSampler(block_size=2), target)
    single = Balanced(Barker().table(), 0.25)
    testing.check_rule(Mixture.of(single, blocks, share), target)


def test_ends_that_are_no_states_are_told():
    x = exact.states(dense(2))
    outcomes = cells_of.Outcomes(lambda states, _: 2 * states, x, 1, 0)
    with pytest.raises(KeyError, match=r"\[-2, -2\]"):
        outcomes.ends(np.zeros(3, dtype=int), np.zeros((3, 1)))


def test_nested_mixtures_on_compiled_steps():
    target = dense(2)
    blocks = rule_of(GibbsSampler("random"), target)
    inner = Mixture.of(Balanced(Barker().table()), blocks, 0.5)
    rule = Mixture.of(blocks, inner, 0.75)
    testing.check_rule(rule, target)
    facts = rule.facts
    assert facts.n_uniforms == 4
    assert set(facts.carried) == {"last", "second.last", "second.first.offset"}
    assert facts.stat_names == ("lp", "acceptance_rate")
    assert facts.sees_all_moves
    assert not facts.may_be_periodic
    assert facts.transitions_per_sweep is None


def test_what_python_knows_of_the_rules():
    target = dense(7)
    for sampler, per_sweep, n in (
        (GibbsSampler("random"), 7, 2),
        (GibbsSampler(block_size=3), 3, 4),
        (GibbsSampler(block_size=7), 1, 8),
        (GibbsSampler("systematic"), 1, 7),
        (GibbsSampler("systematic", block_size=3), 1, 3),
        (GibbsSampler("chromatic"), 1, 7),
        (HammingBalls(3, 2), 3, 5),
        (HammingBalls(), 1, 9),
    ):
        facts = rule_of(sampler, target).facts
        assert (facts.transitions_per_sweep, facts.n_uniforms) == (per_sweep, n)
        assert facts.stat_names == ("lp",)
        assert facts.carried == ()
        assert facts.parts == ()
    facts = rule_of(GibbsSampler("layers"), MACHINE).facts
    assert (facts.transitions_per_sweep, facts.n_uniforms) == (1, 5)
    assert facts.evaluation == "unit that was drawn"


# ----------------------------------------------------------------- what goes wrong


class Odd(tuple):
    facts = Facts(n_uniforms=1)


def test_a_rule_without_a_formula():
    message = r"There is no formula for the transitions of Odd; register one with sklsb\.exact\."
    for function in (exact.transition_matrix, log_transition_matrix):
        with pytest.raises(TypeError, match=message):
            function(Odd(), dense(2))


def test_what_is_no_function_of_the_contract():
    with pytest.raises(TypeError, match=r"<built-in function len> is no function of the contract"):
        implements(len, Systematic)


def test_a_target_that_is_too_large():
    for rule in (
        rule_of(GibbsSampler("random"), dense(15)),
        rule_of(HammingBalls(2), dense(15)),
        rule_of(GibbsSampler("chromatic"), dense(15)),
    ):
        with pytest.raises(ValueError, match=r"has 32768 states; enumeration takes at most 16384"):
            exact.transition_matrix(rule, dense(15))


def test_rules_say_what_they_are():
    assert {rule.__name__ for rule in (RandomBlocks, Systematic, Chromatic, HammingBall)}
    assert isinstance(NoPart(), tuple)

"""The Potts model: against loops written from its formula, the Ising model, and enumeration."""

import copy
import itertools
import pickle
import warnings

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from exact_matrices import eigenvalues, spectral_gap
from local_step import check_sampler, production_matrix
from models import FUNCTIONS, GRAPHS, POTTS_KINDS, pairs, potts, uncached

from sklsb import Ising, LSBSampler, Potts, exact, testing
from sklsb._kernels.contract import first_move
from sklsb._kernels.rules.balanced import Balanced
from sklsb.exceptions import SamplerWarning
from sklsb.testing._probe import Probe, check_caches

EPS = np.finfo(float).eps
INF = np.inf
TRIANGLE = nx.complete_graph(3)


def literal_log_prob(couplings, field, x):
    """sum_{i<j} J_ij [x_i = x_j] + sum_i field[i, x_i] + sum_i J_ii, term by term."""
    value = 0.0
    for i in range(len(field)):
        value += float(field[i][x[i]])
        value += float(couplings[i][i])
        for j in range(i + 1, len(field)):
            if x[i] == x[j]:
                value += float(couplings[i][j])
    return value


def literal_log_ratios(log_prob, x, k):
    """Difference of log p for each other value of each site, by trying it."""
    out = []
    for i in range(len(x)):
        for value in range(k):
            if value != x[i]:
                other = np.array(x)
                other[i] = value
                out.append(log_prob(other) - log_prob(x))
    return np.array(out)


def random_couplings(n, seed):
    """With loops, and about every third pair left out."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.7))
    return upper + np.triu(upper, 1).T


def with_zeros(field, seed=0):
    """The field with a few impossible values, but not the last one of a site."""
    field = np.array(field, dtype=float)
    hidden = np.random.default_rng(seed).random(field.shape) < 0.4
    hidden[..., -1] = False
    field[hidden] = -INF
    return field


# ----------------------------------------------------------------- conformance


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("kind", POTTS_KINDS)
def test_target_on_every_graph_of_up_to_four_vertices(kind, k):
    for graph in GRAPHS:
        testing.check_target(potts(graph, kind, k))


RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    "target",
    [
        *(Potts.lattice(RANDOM.normal(size=(n, n, 3)), 0.7) for n in (1, 2, 3, 20)),
        Potts.lattice(with_zeros(RANDOM.normal(size=(7, 5, 4))), -1.3, periodic=False),
        Potts.lattice(np.broadcast_to([0.0, -INF], (4, 3, 2))),
        Potts(np.triu(np.ones((30, 30)), 1) + np.tril(np.ones((30, 30)), -1), np.zeros((30, 4))),
        Potts(random_couplings(6, 1), RANDOM.normal(size=(6, 127))),
        # Networks compile kernels of int16 in the commit tier.
        pytest.param(
            Potts(random_couplings(3, 1), RANDOM.normal(size=(3, 200))), marks=pytest.mark.slow
        ),
        Potts(1e-280 * np.ones((3, 3)), 1e-280 * np.ones((3, 3))),
        Potts(2e302 * (np.ones((3, 3)) - np.eye(3)), [[1e300, 0], [0, -6e302], [-INF, 0]]),
    ],
    ids=repr,
)
def test_target(target):
    testing.check_target(target)


class Careless(Potts):
    """Its random states need not be possible."""

    def draw_state(self, rng):
        return rng.integers(3, size=self.n_sites).astype(np.int8)


class Floored(Potts):
    """In Python, but not in the kernel, an impossible value is only improbable."""

    def log_ratios(self, x):
        return np.maximum(super().log_ratios(x), -1e6)

    def log_prob(self, x):
        return np.maximum(super().log_prob(x), -1e6)

    @property
    def log_factors(self):
        return [(scope, np.maximum(table, -1e6)) for scope, table in super().log_factors]


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Careless, "random_state must return states of positive probability"),
        (Floored, "log-ratios of the kernel against log_ratios"),
    ],
)
def test_a_wrong_zero_is_found(cls, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_target(cls(np.zeros((3, 3)), [[0, 0, -INF]] * 3))


# ----------------------------------------------------------------- the formula


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("n", "k"), [(1, 2), (2, 5), (3, 4), (4, 3), (6, 2)])
def test_log_prob_and_log_ratios_are_the_formula(n, k, zeros):
    couplings, field = random_couplings(n, n), np.random.default_rng(k).normal(size=(n, k))
    field = with_zeros(field) if zeros else field
    model = Potts(sp.csc_array(couplings), field)
    states = np.array(list(itertools.product(range(k), repeat=n)))
    wanted = [literal_log_prob(couplings, field, x) for x in states]
    np.testing.assert_allclose(model.log_prob(states), wanted, rtol=0, atol=1e-13)
    for x in states[np.isfinite(wanted)]:
        ratios = literal_log_ratios(lambda y: literal_log_prob(couplings, field, y), x, k)
        np.testing.assert_allclose(model.log_ratios(x), ratios, rtol=0, atol=1e-13)
    assert (model.n_sites, model.values) == (n, tuple(range(k)))
    assert model.constant == pytest.approx(np.trace(couplings), abs=1e-15)
    np.testing.assert_array_equal(model.cardinalities, np.full(n, k))
    np.testing.assert_array_equal(exact.states(model), states)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 2), (2, 3), (3, 3)], ids=str)
def test_lattice_is_its_neighbour_pairs(shape, periodic):
    rows, cols = shape
    rng = np.random.default_rng(sum(shape))
    field = rng.normal(size=(*shape, 3))
    model = Potts.lattice(field, 0.7, periodic)
    for x in rng.integers(3, size=(20, *shape)):
        wanted = 0.0
        for r, c in itertools.product(range(rows), range(cols)):
            wanted += field[r, c, x[r, c]]
            if periodic or c + 1 < cols:
                wanted += 0.7 * (x[r, c] == x[r, (c + 1) % cols])
            if periodic or r + 1 < rows:
                wanted += 0.7 * (x[r, c] == x[(r + 1) % rows, c])
        assert model.log_prob(x) == pytest.approx(wanted, abs=1e-13)
    assert (model.shape, model.dims, model.field.shape) == (shape, ("row", "col"), (rows * cols, 3))


def test_leading_axes():
    model = Potts.lattice(with_zeros(np.zeros((2, 3, 4))), 0.5)
    x = np.random.default_rng(0).integers(4, size=(5, 2, 2, 3))
    assert model.log_prob(x).shape == (5, 2)
    assert model.log_ratios(x).shape == (5, 2, 18)
    for a, b in itertools.product(range(5), range(2)):
        assert model.log_prob(x[a, b].ravel()) == model.log_prob(x)[a, b]
        np.testing.assert_array_equal(model.log_ratios(x[a, b]), model.log_ratios(x)[a, b])
    assert model.log_ratios(np.empty((0, 6), dtype=int)).shape == (0, 18)
    assert Potts(np.zeros((0, 0)), np.zeros((0, 3))).log_prob(
        np.empty((4, 0), dtype=int)
    ).shape == (4,)


@pytest.mark.parametrize("graph", GRAPHS[-11:], ids=lambda g: f"{g.size()} edges {g.name}")
def test_two_values_are_an_ising_model_of_half_the_couplings(graph):
    model = potts(graph, k=2)
    field = 0.5 * (model.field[:, 1] - model.field[:, 0])
    ising = Ising(0.5 * model.couplings.toarray(), field)
    # States stand in the same order, the moves too.
    np.testing.assert_array_equal(2 * exact.states(model) - 1, exact.states(ising))
    log_p, other = (t.log_prob(exact.states(t)) for t in (model, ising))
    assert np.ptp(log_p - other) <= 16 * EPS * (1 + np.abs(log_p).max())
    for function in FUNCTIONS.values():
        matrix, wanted = (exact.transition_matrix(function, t) for t in (model, ising))
        np.testing.assert_allclose(matrix, wanted, rtol=0, atol=1e-13)


def test_couplings_may_be_a_graph():
    graph = nx.Graph()
    graph.add_nodes_from("dacb")
    graph.add_edge("a", "b", weight=0.5)
    graph.add_edge("c", "d")
    graph.add_edge("c", "c", weight=2.0)
    model = Potts(graph, np.zeros((4, 3)))
    assert model.coords["site"].tolist() == ["d", "a", "c", "b"]
    assert model.log_prob([[1, 0, 1, 0], [0, 1, 2, 0]]).tolist() == [3.5, 2.0]


# ----------------------------------------------------------------- moves of a site


@uncached
def _first_moves(view, out):
    for site in range(out.size):
        out[site] = first_move(view, site)


@pytest.mark.parametrize(
    "target",
    [Potts(np.zeros((4, 4)), np.zeros((4, k))) for k in (2, 5)] + [Ising(np.zeros((4, 4)))],
)
def test_first_move_says_which_moves_a_site_has(target):
    out = np.empty(target.n_sites + 1, dtype=np.uint64)
    _first_moves(target.view(), out)
    np.testing.assert_array_equal(out, np.cumsum([0, *(target.cardinalities - 1)]))


def test_touched_moves_are_those_of_the_site_and_its_neighbours():
    model = Potts(nx.path_graph(4), np.zeros((4, 3)))
    view = model.view()
    for move in range(8):
        sites = [i for i in range(4) if abs(i - move // 2) <= 1]
        listed = view.touched[view.touched_start[move] : view.touched_start[move + 1]]
        assert listed.tolist() == [m for m in range(8) if m // 2 in sites]


# ----------------------------------------------------------------- random states


def test_random_states_are_uniform_among_the_possible_values():
    field = np.array([[0, -INF, 9], [-INF, -INF, -3], [1, 2, 3]], dtype=float)
    model = Potts(np.zeros((3, 3)), field)
    rng = np.random.default_rng(0)
    states = np.array([model.draw_state(rng) for _ in range(6000)])
    assert states.dtype == np.int8
    counts = np.bincount(states @ [9, 3, 1], minlength=27)
    wanted = 1000.0 * np.isfinite(model.log_prob(exact.states(model)))
    assert not counts[wanted == 0].any()
    # The 1 - 1e-9 quantile of chi-squared with 5 degrees is 50.
    assert ((counts[wanted > 0] - 1000) ** 2 / 1000).sum() < 50


# ----------------------------------------------------------------- samplers


SMALL = {
    "three values": potts(TRIANGLE, "random", 3),
    "zeros": potts(TRIANGLE, "zeros", 4, seed=1),
    "evidence": potts(nx.path_graph(3), "evidence", 3),
    "lattice": Potts.lattice(with_zeros(np.zeros((1, 3, 3))), 0.8),
    "no move": Potts([[0, 1], [1, 0]], [[0, -INF], [-INF, 0]]),
    "far": potts(nx.path_graph(2), "field 700", 3),
}
SAMPLERS = {
    **{name: LSBSampler(name, n_burn_in=60) for name in ("barker", "sqrt", "min", "max")},
    "mixture": LSBSampler("mixture", n_burn_in=60),
    "lazy": LSBSampler("max", n_burn_in=60, lazy=0.3),
}


@pytest.mark.parametrize(("sampler", "target"), pairs(SAMPLERS, SMALL))
def test_sampler(sampler, target):
    check_sampler(sampler, target)


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("kind", POTTS_KINDS)
def test_production_step_on_graphs(kind, k):
    for graph in (nx.empty_graph(1), nx.path_graph(2), *([TRIANGLE] if k < 5 else [])):
        target = potts(graph, kind, k)
        for name in ("barker", "max"):
            found = production_matrix(LSBSampler(name), target)
            error = np.abs(found - exact.transition_matrix(LSBSampler(name), target)).max()
            assert error <= 8 * EPS * target.n_sites, f"off by {error / EPS} eps"


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("name", ["zeros", "evidence", "lattice", "no move"])
def test_moves_into_impossible_values_have_probability_zero(name, function):
    target = SMALL[name]
    possible = np.isfinite(target.log_prob(exact.states(target)))
    assert not possible.all()
    for matrix in (
        exact.transition_matrix(function, target),
        production_matrix(LSBSampler(function), target),
    ):
        assert np.all(matrix[np.ix_(possible, ~possible)] == 0.0)
    probe = Probe(target, Balanced(function.table()), exact.states(target)[possible])
    weight = probe.chains.part.tree[:, : probe.n_moves]
    ratios = target.log_ratios(probe.chains.x)
    np.testing.assert_array_equal(weight == 0.0, ratios == -INF)


def test_enumeration_leaves_impossible_states_where_they_are():
    target = SMALL["zeros"]
    possible = np.isfinite(target.log_prob(exact.states(target)))
    matrix = exact.transition_matrix(FUNCTIONS["sqrt"], target)
    np.testing.assert_array_equal(matrix[~possible], np.eye(possible.size)[~possible])
    values = eigenvalues(FUNCTIONS["sqrt"], target)
    assert values.size == possible.sum()
    assert 0 < spectral_gap(FUNCTIONS["sqrt"], target) < 1
    p = exact.probabilities(target)[possible]
    information = exact.mutual_information(FUNCTIONS["sqrt"], target)
    assert 0 < information < -(p * np.log(p)).sum()


LONG = {
    "lattice": Potts.lattice(np.random.default_rng(0).normal(size=(12, 12, 3)), 0.8),
    "zeros": Potts.lattice(with_zeros(np.random.default_rng(1).normal(size=(12, 12, 5))), 1.2),
    "evidence": potts(nx.random_regular_graph(3, 60, seed=0), "evidence", 4),
    "extreme fields": potts(nx.random_regular_graph(3, 40, seed=0), "field 700", 3),
}


@pytest.mark.parametrize("name", ["barker", "max"])
@pytest.mark.parametrize("target", LONG.values(), ids=LONG)
def test_caches_equal_a_rebuild_bit_for_bit(target, name):
    rng = np.random.default_rng(0)
    start = np.stack([target.draw_state(rng)])
    probe = Probe(target, Balanced(FUNCTIONS[name].table()), start)
    for _ in range(6):
        probe.ensemble.advance(rng.random((1, 50_000, 2)))
        check_caches(probe.ensemble, "in a long run")
        assert np.isfinite(target.log_prob(probe.chains.x)).all()
    assert np.any(probe.chains.x != start)


@pytest.mark.parametrize("balancing", ["barker", "max", "mixture"])
def test_marginals_of_a_long_chain(balancing):
    target, n = potts(nx.path_graph(5), "zeros", 3, seed=2), 200_000
    sampler = LSBSampler(balancing, n_chains=4, random_state=1).fit(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        draws = sampler.sample(n)["x"].to_numpy().reshape(-1, 5)
    states, p = exact.states(target), exact.probabilities(target)
    possible = p > 0
    matrix = exact.transition_matrix(sampler, target)[np.ix_(possible, possible)]
    p, states = p[possible], states[possible]
    ones = (states[:, :, None] == np.arange(3)).reshape(len(p), -1).astype(float)
    found = (draws[:, :, None] == np.arange(3)).mean(axis=0).ravel()
    # The variance of the mean is known too: sum of all autocovariances, by one linear system.
    x = ones - p @ ones
    solved = np.linalg.solve(np.eye(p.size) - matrix + p, x)
    error = np.sqrt(np.maximum(p @ (2 * x * solved - x**2), 0.0) / (4 * n))
    assert np.all(np.abs(found - p @ ones) <= 6.5 * error + 1e-12)


def test_draws():
    field = np.zeros((4, 3, 5))
    field[2, 1, :4] = -INF
    sampler = LSBSampler("sqrt", n_chains=2, n_burn_in=100, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        draws = sampler.fit(Potts.lattice(field, 0.5)).sample(300)["x"]
    assert draws.dims == ("chain", "draw", "row", "col")
    assert draws.dtype == np.int8
    assert draws["row"].values.tolist() == [0, 1, 2, 3]
    assert draws["col"].values.tolist() == [0, 1, 2]
    assert set(np.unique(draws)) == {0, 1, 2, 3, 4}
    assert np.all(draws.sel(row=2, col=1) == 4)
    lp = sampler.sample_stats_["lp"].to_numpy()
    np.testing.assert_allclose(lp, sampler.target_.log_prob(draws.to_numpy()), atol=1e-12)


def test_repr_pickle_copy_and_read_only_arrays():
    field = np.arange(18.0).reshape(2, 3, 3)
    model = Potts.lattice(field, 0.5, periodic=False)
    assert repr(model) == "Potts(2 x 3 sites, 7 couplings, 3 values)"
    LSBSampler("sqrt", n_burn_in=5, random_state=0).fit(model)
    x = np.random.default_rng(0).integers(3, size=(9, 6))
    before = model.log_prob(x)
    field[:] = 0.0
    for other in (model, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert repr(other) == repr(model)
        np.testing.assert_array_equal(other.log_prob(x), before)
        with pytest.raises(ValueError, match="read-only"):
            other.field[0, 0] = 3.0


# ----------------------------------------------------------------- errors


FLAT = np.zeros((2, 3))
PAIR = [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Potts(PAIR), TypeError, "field"),
        (lambda: Potts(np.zeros((2, 3)), FLAT), ValueError, r"\(2, 3\); it must be square"),
        (lambda: Potts([[0, 1], [2, 0]], FLAT), ValueError, "couplings must be symmetric"),
        (lambda: Potts([[0, INF], [INF, 0]], FLAT), ValueError, r"couplings\[0, 1\] is inf"),
        (lambda: Potts(nx.DiGraph([(0, 1)]), FLAT), TypeError, "directed graph.*to_undirected"),
        (lambda: Potts(PAIR, None), TypeError, "field has dtype object; give real numbers"),
        (lambda: Potts(PAIR, FLAT * 1j), TypeError, "field has dtype complex128; give real"),
        (lambda: Potts(PAIR, [[1], [2, 3]]), ValueError, "field is not an array of numbers"),
        (
            lambda: Potts(PAIR, np.zeros(2)),
            ValueError,
            r"field has shape \(2,\); it must have shape \(2, k\): for each site, one number per",
        ),
        (lambda: Potts(PAIR, 0.5), ValueError, r"field has shape \(\); it must have shape"),
        (lambda: Potts(PAIR, FLAT.T), ValueError, r"field has shape \(3, 2\); it must have"),
        (
            lambda: Potts(PAIR, np.zeros((2, 1))),
            ValueError,
            r"field has shape \(2, 1\), which means 1 values; a Potts model takes 2 to 32768",
        ),
        (lambda: Potts(PAIR, np.zeros((2, 32769))), ValueError, "which means 32769 values"),
        (
            lambda: Potts(PAIR, [[0, 1], [np.nan, 0]]),
            ValueError,
            r"field\[1, 0\] is nan; it must be finite, or -inf where a value is impossible",
        ),
        (lambda: Potts(PAIR, [[0, INF], [0, 0]]), ValueError, r"field\[0, 1\] is inf; it must"),
        (
            lambda: Potts(PAIR, [[0, -INF], [-INF, -INF]]),
            ValueError,
            "every value of site 1 is impossible: its field is -inf throughout. Leave at least",
        ),
        (
            lambda: Potts(PAIR, [[0, -INF], [0, -2e303]]),
            ValueError,
            r"\|field\| \+ sum \|couplings\| of site 1 is 2e\+303; it must be at most 1e\+303",
        ),
        (
            lambda: Potts.lattice(np.zeros((2, 2))),
            ValueError,
            r"field has shape \(2, 2\); a lattice needs one of shape \(rows, cols, k\)",
        ),
        (lambda: Potts.lattice(np.zeros((2, 2, 1))), ValueError, r"\(2, 2, 1\), which means 1 v"),
        (lambda: Potts.lattice(np.full((2, 2, 2), np.nan)), ValueError, r"field\[0, 0, 0\] is nan"),
        (
            lambda: Potts.lattice(np.zeros((2, 2, 2)), np.nan),
            ValueError,
            r"coupling\[0, 0, 0\] is nan; it must be finite",
        ),
        (lambda: Potts.lattice(np.zeros((2, 2, 2)), periodic=1), TypeError, "periodic is 1; give"),
    ],
)
def test_errors_name_what_was_given(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([0, 3], ValueError, r"x\[1\] is 3; every variable .* the values \(0, 1, 2\)"),
        ([-1, 0], ValueError, r"x\[0\] is -1; every variable"),
        ([0, 1, 2], ValueError, r"x has shape \(3,\); the target needs \(\.\.\., 2\)"),
        ([0.5, 1], ValueError, r"x\[0\] is 0\.5; every variable"),
    ],
)
def test_wrong_states_are_refused(x, error, message):
    model = Potts(PAIR, FLAT)
    for method in (model.log_prob, model.log_ratios):
        with pytest.raises(error, match=message):
            method(x)


def test_a_chain_cannot_start_at_an_impossible_state():
    sampler = LSBSampler("sqrt", n_chains=2, n_burn_in=5)
    with pytest.raises(ValueError, match=r"initial_states\[1\] has log-probability -inf"):
        sampler.fit(Potts(PAIR, [[0, -INF], [0, 0]]), initial_states=[[0, 0], [1, 0]])


def test_log_ratios_out_of_an_impossible_state_do_not_crash():
    model = Potts(PAIR, [[0, -INF, -INF], [0, 0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.log_ratios([[1, 0], [2, 2]]).shape == (2, 4)

"""The Gibbs sampler: scans, blocks, colours, layers; what it costs, and what it refuses."""

import itertools
import pickle
import time
import warnings

import exact_matrices  # noqa: F401 - formulas of the rules
import networkx as nx
import numba
import numpy as np
import pytest
import scipy.sparse as sp
from models import content, dense

from sklsb import (
    RBM,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    Potts,
    VariableSelection,
    exact,
    testing,
)
from sklsb._kernels.rules import chromatic
from sklsb._kernels.rules.gibbs import Systematic
from sklsb._kernels.targets.ising import IsingView, UniformIsingView
from sklsb.exact.matrices import rule_of
from sklsb.exceptions import (
    FrozenSitesWarning,
    SamplerWarning,
    SeparatedModesWarning,
    ShortRunWarning,
)
from sklsb.samplers.gibbs import colors
from sklsb.testing._samplers import _check_draws

INF = np.inf
_rng = np.random.default_rng(0)
# The first two variables are equal, the third has one value.
TIED = MarkovNetwork([2, 2, 1, 3], [((0, 1), np.diag([1.0, 3.0])), ((0, 3), _rng.random((2, 3)))])
MACHINE = RBM([[2.0, -1.5], [-1.0, 2.0], [1.5, 1.0]], [0.3, -0.2, 0.1], [-0.5, 0.4])
LATTICE = Ising.lattice(_rng.normal(scale=0.5, size=(4, 6)), coupling=0.2)


def fitted(target, *args, **params):
    params = {"n_chains": 2, "n_burn_in": 20, "random_state": 0} | params
    return GibbsSampler(*args, **params).fit(target)


def quietly(sampler, *args, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return sampler.sample(*args, **settings)


# ----------------------------------------------------------------- conformance


@pytest.mark.parametrize(
    ("sampler", "target"),
    [
        (GibbsSampler("random"), dense(3)),
        (GibbsSampler(block_size=2), dense(3)),
        (GibbsSampler("systematic", block_size=2), dense(3)),
        (GibbsSampler("chromatic"), Ising.lattice(_rng.normal(size=(1, 4)), 0.5)),
        (GibbsSampler(block_size=2), TIED),
        (GibbsSampler("chromatic"), TIED),
        (GibbsSampler("chromatic"), TIED.condition({3: 1})),
        (GibbsSampler("layers"), MACHINE),
        (GibbsSampler("layers"), MACHINE.condition({2: 1})),
        (GibbsSampler("random", keep_burn_in=True, n_chains=1, n_burn_in=0), dense(3)),
        (GibbsSampler("systematic"), Ising(np.zeros((0, 0)))),
        (GibbsSampler("chromatic"), Ising(np.zeros((0, 0)))),
        (GibbsSampler("random"), Ising(np.zeros((0, 0)))),
    ],
    ids=str,
)
def test_sampler(sampler, target):
    testing.check_sampler(sampler, target, n_draws=30)


@pytest.mark.parametrize(
    "sampler",
    [
        GibbsSampler("random"),
        GibbsSampler(block_size=3),
        GibbsSampler("systematic"),
        GibbsSampler("chromatic"),
    ],
    ids=str,
)
def test_marginals_of_a_long_run(sampler):
    target = dense(6, scale=0.4)
    draws = sampler.set_params(n_chains=4, random_state=0).fit(target).sample(4000, thin="sweep")
    wanted = exact.probabilities(target) @ exact.states(target)
    found = draws["x"].values.mean(axis=(0, 1))
    # Sweeps of 16,000 draws: at least a tenth of them count as independent.
    assert np.abs(found - wanted).max() < 6.5 / np.sqrt(1600)


# ----------------------------------------------------------------- colours


def graph_of(graph):
    if not len(graph):
        return sp.csr_array((0, 0))
    return sp.csr_array(nx.to_scipy_sparse_array(graph, dtype=bool))


def check_colors(graph, most):
    found = colors(graph_of(graph))
    assert found.shape == (len(graph),)
    if len(graph):
        assert set(found.tolist()) == set(range(found.max() + 1))  # no colour without a node
        assert found.max() < most
    index = {node: i for i, node in enumerate(graph)}
    assert all(found[index[a]] != found[index[b]] for a, b in graph.edges if a != b)
    return found


@pytest.mark.parametrize("seed", range(10))
def test_neighbours_have_different_colours(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(1, 60)), rng.random() ** 2
    graph = nx.gnp_random_graph(n, p, seed=seed)
    check_colors(graph, max(dict(graph.degree).values()) + 1)
    check_colors(nx.random_regular_graph(3, 20, seed=seed), 4)


@pytest.mark.parametrize(
    "graph",
    [
        nx.empty_graph(0),
        nx.empty_graph(5),
        nx.path_graph(9),
        nx.cycle_graph(8),
        nx.star_graph(7),
        nx.hypercube_graph(5),
        nx.complete_bipartite_graph(3, 5),
        nx.random_labeled_tree(60, seed=1),
        nx.grid_graph((6, 4), periodic=True),
        nx.grid_graph((4, 6, 2), periodic=True),
        nx.grid_graph((5, 7)),
        nx.disjoint_union_all([nx.cycle_graph(6), nx.empty_graph(3), nx.path_graph(4)]),
        *(nx.bipartite.random_graph(15, 20, 0.15, seed=seed) for seed in range(5)),
    ],
    ids=str,
)
def test_bipartite_graphs_have_two_colours(graph):
    rng = np.random.default_rng(0)
    for _ in range(3):  # in any order of the nodes
        order = [list(graph)[i] for i in rng.permutation(len(graph))]
        shuffled = nx.Graph()
        shuffled.add_nodes_from(order)
        shuffled.add_edges_from(graph.edges)
        found = check_colors(shuffled, 2)
        alone = [i for i, node in enumerate(shuffled) if shuffled.degree[node] == 0]
        assert not found[alone].any()


def test_odd_cycles_and_complete_graphs():
    assert colors(graph_of(nx.cycle_graph(7))).max() == 2
    assert colors(graph_of(nx.complete_graph(6))).max() == 5


@pytest.mark.parametrize("shape", [(4, 6), (2, 2), (6, 2), (2, 3), (1, 4), (1, 1), (3, 3)])
def test_colours_of_lattices(shape):
    # Sides of length 1 have self-loops, which are constants; of length 2, edges that count twice.
    target = Ising.lattice(np.zeros(shape), 0.5)
    rule = rule_of(GibbsSampler("chromatic"), target)
    even = all(side % 2 == 0 or side == 1 for side in shape)
    n_sites = shape[0] * shape[1]
    n_colors = rule.start.size - 1
    assert n_colors == min(2, n_sites) if even else n_colors > 2
    assert rule.facts.reversible == (n_sites == 1)
    check_classes(rule, target)


def check_classes(rule, target):
    graph = target.graph.toarray()
    assert not graph.diagonal().any()
    assert sorted(rule.sites.tolist()) == np.flatnonzero(target.n_possible > 1).tolist()
    assert rule.start[0] == 0
    assert rule.start[-1] == rule.sites.size
    for begin, end in itertools.pairwise(rule.start):
        one = rule.sites[begin:end]
        assert one.size
        assert not graph[np.ix_(one, one)].any()


def test_colours_of_networks_and_of_what_evidence_leaves():
    factors = [((0, 1, 2), np.ones((2, 2, 2))), ((2, 3), np.ones((2, 2))), ((3,), np.ones(2))]
    target = MarkovNetwork([2] * 5, factors)
    rule = rule_of(GibbsSampler("chromatic"), target)
    check_classes(rule, target)
    assert rule.start.size - 1 == 3
    given = target.condition({1: 0, 2: 1})  # no two of the others depend on each other
    rule = rule_of(GibbsSampler("chromatic"), given)
    check_classes(rule, given)
    assert rule.start.tolist() == [0, 3]
    assert rule.facts.reversible
    everything = target.condition(dict.fromkeys(range(5), 0))
    rule = rule_of(GibbsSampler("chromatic"), everything)
    assert (rule.sites.size, rule.start.tolist()) == (0, [0])


def test_self_loops_are_constants():
    couplings = np.array([[3.0, 0.5], [0.5, -2.0]])
    for target in (Ising(couplings), Potts(couplings, np.zeros((2, 3)))):
        check_classes(rule_of(GibbsSampler("chromatic"), target), target)


# ----------------------------------------------------------------- one coupling


class Kept(Ising):
    """A model whose local fields are kept, as those of a model with several couplings."""

    def _class_view(self):
        return None


def uniform(graph, coupling=0.6, cls=Ising, seed=0):
    field = np.random.default_rng(seed).normal(size=len(graph))
    return cls(coupling * nx.to_scipy_sparse_array(graph, dtype=float, format="csr"), field)


STAR = nx.star_graph(4)  # of degrees 4 and 1
TRIANGLE = nx.disjoint_union(nx.complete_graph(3), nx.empty_graph(1))  # of degrees 2 and 0
UNIFORM = {
    "star": uniform(STAR),
    "star, negative": uniform(STAR, -0.8),
    "star, evidence": uniform(STAR).condition({1: 1}),
    "star, the middle": uniform(STAR).condition({0: -1, 4: 1}),
    "triangle": uniform(TRIANGLE),
    "strong": uniform(nx.path_graph(3), 300.0),
    "edges count twice": Ising.lattice(_rng.normal(size=(2, 2)), 0.3),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_one_coupling_exactly(name):
    target = UNIFORM[name]
    rule = rule_of(GibbsSampler("chromatic"), target)
    assert rule.in_order
    testing.check_rule(rule, target)
    # Class after class of single draws, from log p alone.
    x = exact.states(target)
    log_p, index = target.log_prob(x), {tuple(row): i for i, row in enumerate(x.tolist())}
    wanted = np.eye(len(x))
    for site in rule.sites:
        step = np.zeros_like(wanted)
        for i, row in enumerate(x.tolist()):
            row[site] = -row[site]
            other = index[tuple(row)]
            if log_p[i] == -INF:
                step[i, i] = 1.0
            else:
                step[i, other] = 1.0 / (1.0 + np.exp(np.minimum(log_p[i] - log_p[other], 700.0)))
                step[i, i] = 1.0 - step[i, other]
        wanted = wanted @ step
    np.testing.assert_allclose(testing.measured_matrix(rule, target), wanted, rtol=0, atol=2e-15)


GRIDS = {
    "torus": nx.grid_graph((12, 10), periodic=True),
    "open": nx.grid_graph((9, 11)),
    "three colours": nx.grid_graph((9, 7), periodic=True),
    "long": nx.grid_graph((3, 1000)),  # a class takes several parts
    "ladder": nx.grid_graph((2, 30)),
    "cubic": nx.grid_graph((4, 4, 4), periodic=True),
    "king's moves": nx.strong_product(nx.path_graph(6), nx.path_graph(5)),
    "tree": nx.random_labeled_tree(70, seed=0),
}


OBSERVED = {0: 1, 7: -1, 8: 1}
# Degrees 3, 6 and 8 compile kernels of their own.
SLOW = ("ladder", "cubic", "king's moves")


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        pytest.param(
            n,
            evidence,
            id=f"{n}-evidence" if k else n,
            marks=pytest.mark.slow if n in SLOW else (),
        )
        for n in GRIDS
        for k, evidence in enumerate((None, OBSERVED))
    ],
)
def test_draws_are_those_of_kept_local_fields(name, evidence):
    """Two kernels with nothing in common but the decision, on the same numbers."""
    found = []
    for cls in (Ising, Kept):
        target = uniform(nx.convert_node_labels_to_integers(GRIDS[name]), 0.35, cls)
        target = target if evidence is None else target.condition(evidence)
        sampler = fitted(target, "chromatic")
        draws = quietly(sampler, 40)
        found.append((draws, sampler))
    (one, sampler), (other, kept) = found
    np.testing.assert_array_equal(one["x"], other["x"])
    np.testing.assert_allclose(one["lp"], other["lp"], rtol=1e-12)
    np.testing.assert_array_equal(
        sampler.run_.ensemble.chains.moved, kept.run_.ensemble.chains.moved
    )
    assert sampler.n_evaluations_ == kept.n_evaluations_
    views = [getattr(s.run_.ensemble.view, "inner", s.run_.ensemble.view) for s in (sampler, kept)]
    assert [type(view) for view in views] == [UniformIsingView, IsingView]


@pytest.mark.parametrize("name", ["torus", "tree"])
@pytest.mark.parametrize("cls", [Ising, Kept])
def test_numbers_are_those_of_their_word(name, cls):
    target = uniform(nx.convert_node_labels_to_integers(GRIDS[name]), 0.2, cls)
    rule = rule_of(GibbsSampler("chromatic"), target)
    assert rule.in_order == (cls is Ising)
    if rule.in_order:  # with shifts and pairs, and without
        classes = rule.new_part(target, 1).classes
        assert (len(classes.shift) > 0) == (len(classes.swap) > 0) == (name == "torus")
    _check_draws(GibbsSampler("chromatic", n_burn_in=50, random_state=0), target, 100)


def test_shifts_do_not_depend_on_how_many_blocks_are_looked_at_together(monkeypatch):
    target = uniform(nx.convert_node_labels_to_integers(GRIDS["long"]), 0.2)
    rule = rule_of(GibbsSampler("chromatic"), target)
    whole = rule.new_part(target, 1).classes
    assert whole.block.size == 5
    monkeypatch.setattr(chromatic, "_BLOCKS", 1)
    pieces = rule.new_part(target, 1).classes
    for name in ("first", "shift", "mask"):
        np.testing.assert_array_equal(getattr(pieces, name), getattr(whole, name))


def test_what_has_no_view_of_one_coupling():
    signs = sp.csr_array(sp.diags_array([[1.0, -1.0, 1.0], [1.0, -1.0, 1.0]], offsets=[1, -1]))
    for target in (Ising(signs), uniform(nx.star_graph(9)), Ising(np.zeros((3, 3))), Kept(signs)):
        assert target._class_view() is None
        assert not rule_of(GibbsSampler("chromatic"), target).in_order


# ----------------------------------------------------------------- how it behaves


def test_defaults():
    assert GibbsSampler().get_params() == {
        "scan": "auto",
        "block_size": 1,
        "n_chains": 4,
        "n_burn_in": None,
        "init": "auto",
        "n_jobs": None,
        "random_state": None,
        "verbose": 0,
        "warm_start": False,
        "keep_burn_in": False,
    }


@pytest.mark.parametrize(
    ("target", "block_size", "scan"),
    [
        (LATTICE, 1, "chromatic"),
        (LATTICE.condition({(0, 0): 1}), 1, "chromatic"),
        (LATTICE, 3, "random"),
        (dense(40), 1, "systematic"),
        (FunctionTarget(lambda x: 0.1 * x.sum(axis=-1), 5), 1, "systematic"),
        (MACHINE, 1, "layers"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
def test_a_sweep_per_draw_by_default(target, block_size, scan):
    settings = {"block_size": block_size, "n_chains": 2, "n_burn_in": 5, "random_state": 0}
    found = GibbsSampler(**settings).fit(target)
    assert found.scan_ == scan
    given = GibbsSampler(scan, **settings).fit(target)
    np.testing.assert_array_equal(found.sample(20)["x"], given.sample(20)["x"])
    if block_size == 1:
        assert found.run_.sweep == 1


@pytest.mark.parametrize(
    ("args", "per_sweep"),
    [
        (("random", 1), 24),
        (("random", 5), 5),
        (("random", 8), 3),
        (("systematic", 1), 1),
        (("systematic", 5), 1),
        (("chromatic", 1), 1),
    ],
)
def test_sweeps(args, per_sweep):
    scan, size = args
    sampler = GibbsSampler(scan, block_size=size, n_chains=1, random_state=0).fit(LATTICE)
    # The burn-in is of as many sweeps as that of LSBSampler: 2000 / 24 single changes each.
    assert sampler.history_["iteration"][-1] == 84 * per_sweep
    every = -(-84 * per_sweep // 200)
    assert sampler.history_.sizes == {"iteration": -(-84 * per_sweep // every), "chain": 1}
    before = sampler.n_evaluations_
    draws = quietly(sampler, 10, thin="sweep")
    assert draws.attrs["thin"] == per_sweep
    assert draws.attrs["sampled_transitions"] == 10 * per_sweep
    blocks = -(-24 // size)
    in_blocks = blocks if scan == "random" else 24 // size
    rest = 2 ** (24 % size) - 1 if scan == "systematic" else 0
    assert sampler.n_evaluations_ - before == 10 * (in_blocks * (2**size - 1) + rest)


def test_the_default_burn_in_is_of_at_least_five_sweeps():
    target = Ising(sp.csr_array((500, 500)))
    for scan, per_sweep in (("random", 500), ("chromatic", 1), ("systematic", 1)):
        sampler = GibbsSampler(scan, n_chains=1).fit(target)
        assert sampler.history_["iteration"][-1] == 5 * per_sweep


def test_numbers_of_values_are_read_once():
    """Once for each block, it would take time that grows with the square of their number."""

    class Counted:
        reads = 0

        @property
        def cardinalities(self):
            self.reads += 1
            return np.array([4, 2, 5, 3, 2])

    target = Counted()
    rule = Systematic(np.arange(1, 5, dtype=np.uint32), 2)
    assert (rule.n_states(target), target.reads) == (10, 1)


def test_evaluations():
    """Other values of single variables; all units but the observed ones, of layers."""

    def spent(target, *args, n=10, **params):
        sampler = fitted(target, *args, n_chains=1, **params)
        before = sampler.n_evaluations_
        quietly(sampler, n)
        return (sampler.n_evaluations_ - before) / n

    assert spent(TIED, "chromatic") == 1 + 1 + 2
    assert spent(TIED.condition({0: 1}), "chromatic") == 2  # the second equals the first
    assert spent(dense(4), block_size=3) == 7
    assert spent(dense(4), block_size=9) == 15
    assert spent(MACHINE, "layers") == 5
    assert spent(MACHINE.condition({2: 1}), "layers") == 4
    assert spent(TIED.condition({0: 1, 3: 2})) == 0


def test_history_and_kept_burn_in():
    sampler = fitted(LATTICE, "chromatic", n_burn_in=30, keep_burn_in=True)
    assert set(sampler.history_) == {"lp"}
    assert sampler.history_["iteration"].values.tolist() == list(range(1, 31))
    warm = sampler.burn_in_["x"].values
    assert warm.shape == (2, 30, 4, 6)
    np.testing.assert_array_equal(sampler.state_.reshape(2, 4, 6), warm[:, -1])
    wanted = LATTICE.log_prob(warm.reshape(2, 30, 24)).T
    np.testing.assert_allclose(sampler.history_["lp"], wanted, rtol=1e-12)
    thinned = fitted(LATTICE, n_burn_in=1001)
    iteration = thinned.history_["iteration"].values
    assert iteration.size == 167  # every 6th, and the last
    assert iteration[-1] == 1001
    assert not hasattr(thinned, "burn_in_")
    none = fitted(LATTICE, n_burn_in=0, keep_burn_in=True)
    assert none.history_.sizes == {"iteration": 0, "chain": 2}
    assert none.burn_in_.sizes["draw"] == 0


def test_history_has_the_constant():
    target = Ising([[5.0, 1.0], [1.0, 0.0]])
    sampler = fitted(target, n_burn_in=1)
    np.testing.assert_allclose(sampler.history_["lp"][0], target.log_prob(sampler.state_))


def test_sample_stats_have_lp_only():
    sampler = fitted(LATTICE, "chromatic")
    draws = quietly(sampler, 5)
    assert list(sampler.sample_stats_) == ["lp"]
    assert draws["x"].shape == (2, 5, 4, 6)
    np.testing.assert_allclose(draws["lp"], LATTICE.log_prob(draws["x"].values))
    assert draws.attrs["sampler"] == "GibbsSampler"
    assert draws.attrs["scan"] == "'chromatic'"


@pytest.mark.parametrize("sampler", [GibbsSampler("random"), LSBSampler("sqrt")], ids=str)
def test_recorded_states_have_the_shape_of_the_target(sampler):
    seen = []

    def row_sums(x):
        seen.append(x.shape)
        return x.sum(axis=1, dtype=np.int64)

    sampler.set_params(n_chains=2, n_burn_in=10, random_state=0).fit(LATTICE)
    other = pickle.loads(pickle.dumps(sampler))
    found = quietly(sampler, 70, record={"rows": row_sums})
    assert found["rows"].shape == (2, 70, 6)
    assert all(shape[1:] == (4, 6) for shape in seen)
    assert sum(shape[0] for shape in seen) == 140
    np.testing.assert_array_equal(found["rows"], quietly(other, 70)["x"].values.sum(axis=2))


@pytest.mark.parametrize("scan", ["random", "chromatic"])
def test_threads_change_nothing(scan):
    one, two = (fitted(LATTICE, scan, n_chains=3, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(quietly(one, 40)["x"], quietly(two, 40)["x"])
    assert one.n_evaluations_ == two.n_evaluations_


def test_progress_bar(capsys):
    sampler = fitted(LATTICE, verbose=1)
    quietly(sampler, 30)
    err = capsys.readouterr().err
    assert "burn-in: 100%" in err
    assert "sample: 100%" in err


# ----------------------------------------------------------------- warnings


def test_short_runs():
    sampler = fitted(LATTICE, "random")
    with pytest.warns(ShortRunWarning, match=r"Each chain has made 3 transitions since fit"):
        quietly_frozen(sampler, 3)
    for scan in ("systematic", "chromatic"):  # a transition is a sweep
        with warnings.catch_warnings():
            warnings.simplefilter("error", ShortRunWarning)
            quietly_frozen(fitted(LATTICE, scan), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShortRunWarning)
        quietly_frozen(fitted(LATTICE, block_size=5), 5)


def quietly_frozen(sampler, n):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrozenSitesWarning)
        return sampler.sample(n)


@pytest.mark.parametrize(("scan", "size"), [("random", 1), ("systematic", 2), ("chromatic", 1)])
def test_frozen_variables(scan, size):
    field = np.zeros(6)
    field[[2, 4]] = 400.0
    target = Ising(np.zeros((6, 6)), field)
    sampler = fitted(target, scan, block_size=size)
    message = r"2 of 6 variables never changed in this call \(the first is site 2\)"
    with pytest.warns(FrozenSitesWarning, match=message):
        sampler.sample(400)


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SeparatedModesWarning")
def test_variables_that_move_are_noted():
    for sampler in (
        fitted(dense(4, scale=0.1)),
        fitted(dense(4, scale=0.1), block_size=3),
        fitted(dense(4, scale=0.1), "systematic", block_size=3),
        fitted(MACHINE, "layers"),
        fitted(TIED, block_size=2),
        fitted(dense(4, scale=0.1).condition({3: 1}), block_size=2),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", SeparatedModesWarning)
            x = sampler.sample(400)["x"].values
        changes = (x[:, 1:] != x[:, :-1]).any(axis=(0, 1))
        k = sampler.target_.cardinalities
        first = np.concatenate([[0], np.cumsum(k - 1)])
        moved = sampler.run_.ensemble.chains.moved.any(axis=0)
        noted = [moved[a:b].any() for a, b in itertools.pairwise(first)]
        np.testing.assert_array_equal(noted, changes)


# ----------------------------------------------------------------- functions: what a block costs


class Counting:
    """A function of the agreements in a row that counts the states that it is given."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return 0.3 * float((x[1:] == x[:-1]).sum()) + 0.1 * float(x[0])


@pytest.mark.parametrize(
    ("scan", "size", "k", "least", "most"),
    [
        # A block of n states: n - 1 others, and the present one if the last block led to a state
        # of which nothing is kept.
        ("random", 1, 2, 0, 1),
        ("random", 2, 2, 3, 4),
        ("random", 4, 2, 15, 16),
        ("random", 10, 2, 1023, 1024),
        ("random", 1, 5, 0, 4),
        ("random", 2, 3, 8, 9),
        ("systematic", 1, 3, 28, 28),
        ("systematic", 4, 2, 48, 52),
    ],
)
def test_a_block_of_n_states_takes_at_most_n_values(scan, size, k, least, most):
    f = Counting()
    target = FunctionTarget(f, 14, k, vectorized=False)
    sampler = fitted(target, scan, block_size=size, n_chains=1)
    n = 5 if size == 10 else 40
    f.calls, before = 0, sampler.n_evaluations_
    quietly(sampler, 1, thin=n)
    # Log p of the draw may be one more. Four neighbours tell, twice, whether f is what it was.
    assert least * n <= f.calls - 8 <= most * n + 1
    assert f.calls - 8 > (most - 1) * n * 0.9
    states = {"random": k**size - 1, "systematic": 28 if size == 1 else 48}[scan]
    assert sampler.n_evaluations_ - before == n * states


def test_values_are_asked_for_where_the_block_varies():
    """No state twice in a block, and none that differs from the present one elsewhere."""
    seen = []

    def f(x):
        seen.append(tuple(x.tolist()))
        return 0.1 * float(x.sum())

    target = FunctionTarget(f, 8, 3, vectorized=False)
    sampler = fitted(target, block_size=3, n_chains=1)
    for _ in range(10):
        before = tuple(sampler.state_[0].tolist())
        seen.clear()
        quietly(sampler, 1)
        asked = seen[:1] + seen[5:-4]  # neighbours tell, before and after, whether f is the same
        inside, last = asked[:-1], asked[-1]  # at last log p of the draw
        if len(set(asked)) == len(asked):  # it was known: the chain stays
            inside = asked
        else:
            assert last == tuple(sampler.state_[0].tolist())
        assert len(set(inside)) == len(inside) <= 27
        changed = {i for x in inside for i in range(8) if x[i] != before[i]}
        assert len(changed) == 3


@pytest.mark.parametrize(
    ("shape", "periodic", "observed"),
    [((4, 6), True, {}), ((5, 7), True, {}), ((5, 3), False, {}), ((4, 6), True, {(1, 2): 1})],
    ids=["two classes", "more classes", "missing neighbours", "evidence"],
)
def test_lp_of_sweeps_by_colour_is_that_of_their_states(shape, periodic, observed):
    # Bit for bit, though a sweep has summed the pairs already.
    field = np.random.default_rng(0).normal(size=shape)
    target = Ising.lattice(field, coupling=0.4, periodic=periodic)
    target = target.condition(observed) if observed else target
    sampler = GibbsSampler("chromatic", n_burn_in=20, random_state=0).fit(target)
    x, ensemble = quietly(sampler, 30)["x"].values, sampler.run_.ensemble
    for k in range(30):
        there = ensemble.like(x[:, k].reshape(len(x), -1), ensemble.streams)
        expected = there.log_prob() + target.constant
        assert np.array_equal(sampler.sample_stats_["lp"][:, k], expected)


@numba.njit
def agreements(x):
    value = 0.0
    for i in range(1, x.size):
        if x[i] == x[i - 1]:
            value += 0.5
        if x[i] == 2 and x[i - 1] == 2:
            return -np.inf
    return value


def agreements_of_all(x):
    x = np.asarray(x)
    equal = x[..., 1:] == x[..., :-1]
    twos = (x[..., 1:] == 2) & equal
    return np.where(twos.any(axis=-1), -np.inf, 0.5 * equal.sum(axis=-1))


def test_kinds_of_functions_and_of_views_give_the_same_chains():
    table = np.exp(0.5 * np.eye(3))
    table[2, 2] = 0.0
    targets = [
        FunctionTarget(agreements, 5, 3),
        FunctionTarget(agreements_of_all, 5, 3),
        FunctionTarget(agreements_of_all, 5, 3, vectorized=False),
        MarkovNetwork([3] * 5, [((i, i + 1), table) for i in range(4)]),
    ]
    for size in (1, 2, 4):
        draws = [
            quietly(
                GibbsSampler(
                    "random", block_size=size, n_burn_in=0, n_chains=2, random_state=0
                ).fit(target, initial_states=[0] * 5),
                60,
            )["x"].values
            for target in targets
        ]
        for other in draws[1:]:
            np.testing.assert_array_equal(other, draws[0])


class OddError(Exception):
    pass


class Failing:
    """Raises, or returns what is no log p, at its n-th call once it is armed."""

    left = INF

    def __init__(self, outcome):
        self.outcome = outcome

    def __call__(self, x):
        self.left -= 1
        if self.left == 0:
            if isinstance(self.outcome, BaseException):
                raise self.outcome
            return self.outcome
        return -0.2 * float(x.sum())


@pytest.mark.parametrize(("nth", "n_jobs"), [(1, 1), (2, 2), (7, 1), (30, 2)])
@pytest.mark.parametrize(
    ("outcome", "error", "message"),
    [
        (OddError("odd"), OddError, "odd"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (np.nan, ValueError, r"log_prob returned nan at the state \[[01](, [01]){5}\]"),
    ],
    ids=["error", "interrupt", "nan"],
)
def test_an_error_in_the_middle_of_a_block(outcome, error, message, nth, n_jobs):
    f = Failing(outcome)
    target = FunctionTarget(f, 6, vectorized=False)
    sampler = fitted(target, block_size=4, n_jobs=n_jobs)
    quietly(sampler, 3)
    before, copy = sampler.state_, pickle.loads(pickle.dumps(sampler.run_.ensemble.state()))
    f.left = nth
    with pytest.raises(error, match=message):
        quietly(sampler, 20)
    np.testing.assert_array_equal(sampler.state_, before)
    state = sampler.run_.ensemble.state()
    assert content(state.counters) == content(copy.counters)
    for name in ("acceptance", "refusable"):
        np.testing.assert_array_equal(state.arrays[name], copy.arrays[name])
    f.left = INF
    x = quietly(sampler, 300)["x"].values
    assert len(np.unique(x[0], axis=0)) > 20
    testing._samplers.check_kept(sampler, "after an error")
    # What was remembered of the failure is gone.
    np.testing.assert_allclose(sampler.sample_stats_["lp"], target.log_prob(x))


@numba.njit
def fails_where_all_are_one(x):
    if x.sum() == x.size:
        raise ValueError("all are one")
    return 1.5 * x.sum()


def test_a_compiled_function_that_fails_in_the_middle_of_a_block(one_segment):
    target = FunctionTarget(agreements, 6)
    target.function = fails_where_all_are_one  # random states may fail, in the trial
    sampler = GibbsSampler(block_size=3, n_burn_in=0, n_chains=1, random_state=0)
    sampler.fit(target, initial_states=[0] * 6)
    with pytest.raises(ValueError, match="all are one"):
        quietly(sampler, 200)
    np.testing.assert_array_equal(sampler.state_, [[0] * 6])


# ----------------------------------------------------------------- warm starts


def test_warm_start_goes_on():
    for scan in ("random", "chromatic"):
        whole = fitted(LATTICE, scan, n_burn_in=50)
        parts = fitted(LATTICE, scan, n_burn_in=30, warm_start=True)
        parts.set_params(n_burn_in=20).fit(LATTICE)
        np.testing.assert_array_equal(parts.state_, whole.state_)
        np.testing.assert_array_equal(quietly(parts, 9)["x"], quietly(whole, 9)["x"])


def test_warm_start_where_the_present_states_are_impossible():
    """They would stay there: what is observed never moves."""
    sampler = GibbsSampler("chromatic", warm_start=True, n_chains=2, n_burn_in=5, random_state=0)
    sampler.fit(TIED, initial_states=[[0, 0, 0, 1], [1, 1, 0, 1]])  # single changes keep 0 and 1
    before = sampler.state_
    for value, chain in ((0, 1), (1, 0)):
        message = rf"state_\[{chain}\] has log-probability -inf; chain {chain} must start at a st"
        with pytest.raises(ValueError, match=message):
            sampler.fit(TIED.condition({0: value}))
        np.testing.assert_array_equal(sampler.state_, before)
    with pytest.raises(ValueError, match=r"state_\[1, 1\] is 1; this variable takes one of"):
        sampler.fit(MarkovNetwork([2, 1, 2, 3], []))
    sampler.fit(TIED.condition({0: 1}), initial_states=[1, 1, 0, 0])
    assert (quietly(sampler, 20)["x"].values[..., :2] == 1).all()


# ----------------------------------------------------------------- errors


BINARY = Ising(sp.csr_array((20, 20)))
SELECTION = VariableSelection(_rng.normal(size=(9, 3)), _rng.normal(size=9))
ERRORS = [
    ({"scan": "sweep"}, BINARY, ValueError, r"scan is 'sweep'; it must be one of \['auto', 's"),
    ({"scan": None}, BINARY, ValueError, "scan is None; it must be one of"),
    ({"scan": ["random"]}, BINARY, ValueError, r"scan is \['random'\]; it must be one of"),
    ({"block_size": 0}, BINARY, ValueError, "block_size is 0; it must be at least 1"),
    ({"block_size": -3}, BINARY, ValueError, "block_size is -3; it must be at least 1"),
    ({"block_size": 1.5}, BINARY, TypeError, r"block_size is 1\.5; give an integer of at least 1"),
    ({"block_size": True}, BINARY, TypeError, "block_size is True; give an integer"),
    ({"block_size": "2"}, BINARY, TypeError, "block_size is '2'; give an integer"),
    (
        {"scan": "chromatic", "block_size": 2},
        BINARY,
        ValueError,
        "block_size is 2, but scan='chromatic' draws variables that do not depend on each other; "
        'use block_size=1, or scan="random"',
    ),
    ({"scan": "layers", "block_size": 3}, MACHINE, ValueError, "is 3, but scan='layers' draws"),
    (
        {"block_size": 13},
        BINARY,
        ValueError,
        r"GibbsSampler\(block_size=13\) would enumerate 8192 states in a transition; at most 4096 "
        r"are\. Take a smaller block_size, or HammingBallSampler",
    ),
    (
        {"block_size": 8},
        Potts(np.zeros((9, 9)), np.zeros((9, 3))),
        ValueError,
        "would enumerate 6561 states",
    ),
    (
        {"scan": "systematic", "block_size": 3},
        MarkovNetwork([2, 2, 2, 20, 20, 20], []),
        ValueError,
        r"GibbsSampler\(block_size=3\) would enumerate 8000 states",
    ),
    (
        {"scan": "chromatic"},
        FunctionTarget(Counting(), 3),
        TypeError,
        r"GibbsSampler\(scan='chromatic'\) needs a sparse graph; this FunctionTarget has none\. "
        'Use scan="random" or "systematic"',
    ),
    ({"scan": "chromatic"}, MACHINE, TypeError, "this RBM has none"),
    ({"scan": "chromatic"}, SELECTION, TypeError, "this VariableSelection has none"),
    ({"scan": "chromatic"}, MACHINE.condition({0: 1}), TypeError, "this (RBM|Ising) has none"),
    (
        {"scan": "layers"},
        BINARY,
        TypeError,
        r"GibbsSampler\(scan='layers'\) needs two layers of units; this Ising has none\. Use "
        "another scan, or an RBM",
    ),
    ({"scan": "layers"}, BINARY.condition({0: 1}), TypeError, "this (RBM|Ising) has none"),
    ({"n_burn_in": -1}, BINARY, ValueError, "n_burn_in is -1; it must be at least 0"),
    ({"n_burn_in": 2.5}, BINARY, TypeError, r"n_burn_in is 2\.5; give an integer"),
    ({"n_chains": 0}, BINARY, ValueError, "n_chains is 0; it must be at least 1"),
    ({"n_jobs": 0}, BINARY, ValueError, "n_jobs is 0; give a number of threads"),
    ({"warm_start": "yes"}, BINARY, TypeError, "warm_start is 'yes'; give True or False"),
    ({"keep_burn_in": 1}, BINARY, TypeError, "keep_burn_in is 1; give True or False"),
    ({"random_state": -5}, BINARY, ValueError, "random_state is -5; a seed must not be negative"),
    ({}, "ising", TypeError, "target is 'ising', not a sklsb Target"),
]


@pytest.mark.parametrize(
    ("params", "target", "error", "message"), ERRORS, ids=[f"{p}-{m[:20]}" for p, _, _, m in ERRORS]
)
def test_wrong_parameters(params, target, error, message):
    """They are refused before a chain moves: a fitted sampler goes on as if nothing had been."""
    with pytest.raises(error, match=message):
        GibbsSampler(**params).fit(target)
    sampler = fitted(LATTICE)
    untouched = pickle.loads(pickle.dumps(sampler))
    with pytest.raises(error, match=message):
        sampler.set_params(**params).fit(target)
    assert sampler.target_ is LATTICE
    sampler.set_params(n_jobs=None)  # which counts from the next call
    np.testing.assert_array_equal(quietly(sampler, 5)["x"], quietly(untouched, 5)["x"])


def test_enormous_blocks_are_refused_at_once():
    target = Ising(sp.csr_array((30_000, 30_000)))
    began = time.perf_counter()
    message = r"would enumerate more than 1000000 states in a transition; at most 4096"
    for scan in ("random", "systematic"):
        with pytest.raises(ValueError, match=message):
            GibbsSampler(scan, block_size=20_000).fit(target)
    assert time.perf_counter() - began < 5.0


def test_a_block_of_the_largest_size():
    sampler = fitted(BINARY, block_size=12, n_chains=1, n_burn_in=2, init="uniform")
    assert sampler.n_evaluations_ == 2 * 4095
    # In blocks of two variables that follow each other; one at a time there is room for its values.
    target = MarkovNetwork([2048, 2, 2, 2048], [])
    assert rule_of(GibbsSampler("systematic", block_size=2), target).n_states(target) == 4096
    assert rule_of(GibbsSampler("systematic"), target).n_states(target) == 2048

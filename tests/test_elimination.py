"""Exact answers by elimination: against enumeration, along every completion, sliced, on files."""

import dataclasses
import itertools
import math
import os
import pathlib
import re
import signal
import tracemalloc

import networkx as nx
import numpy as np
import pytest
from scipy.special import logsumexp

from sklsb import (
    RBM,
    EliminationSampler,
    FunctionTarget,
    Ising,
    MarkovNetwork,
    Potts,
    Target,
    diagnostics,
    exact,
    io,
)
from sklsb._kernels.elimination.buckets import LINEAR, LOG
from sklsb._kernels.elimination.trees import ONE, Tree, rotate, weigh
from sklsb.exact.elimination import answers, order
from sklsb.exact.elimination.cost import MAX_MEMORY, MAX_WORK
from sklsb.exact.elimination.engine import Elimination, ordered
from sklsb.exact.elimination.passes import Passes
from sklsb.exact.elimination.plan import build
from sklsb.exact.elimination.reduce import absorb, prune, strike
from sklsb.exact.elimination.schedule import BucketTree, Route
from sklsb.exact.elimination.slicing import HOPELESS
from sklsb.exact.elimination.trees import ContractionTree
from sklsb.exceptions import ModelWarning
from sklsb.samplers._run.warnings import exact_hint
from sklsb.testing import check_target

DATA = pathlib.Path(
    os.environ.get("SKLSB_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data")
)
SEEDS = range(60)
EQUAL = np.eye(2)


def random_network(seed, n=6, extreme=False):
    """Tables with zeros over variables of 1 to 4 values, often in several parts, with evidence."""
    rng = np.random.default_rng(seed)
    k = rng.integers(1, 5, n)
    possible, factors = rng.integers(k), []
    for _ in range(rng.integers(9)):
        scope = rng.permutation(n)[: rng.integers(4)]
        shape = k[scope]
        table = 10.0 ** rng.uniform(-300, 300, shape) if extreme else np.exp(rng.normal(size=shape))
        zero = np.asarray(rng.random(table.shape) < 0.3)
        zero[tuple(possible[scope])] = False
        factors.append((tuple(scope.tolist()), np.where(zero, 0.0, table)))
    network = MarkovNetwork(k, factors)
    return network.condition({1: int(possible[1])}) if seed % 3 == 0 else network


def bayesian(seed, n=8, off=0.0):
    """A Bayesian network, of which rows of conditional tables sum to 1 within ``off``."""
    rng = np.random.default_rng(seed)
    k = rng.integers(2, 4, n)
    factors = []
    for i in range(n):
        parents = rng.permutation(i)[: rng.integers(3)].tolist()
        table = rng.random([*k[parents], k[i]])
        table /= table.sum(axis=-1, keepdims=True)
        table *= 1.0 + off * rng.uniform(-1.0, 1.0, (*table.shape[:-1], 1))
        factors.append(((*parents, i), table))
    return MarkovNetwork(k, factors)


def two_layers(off=0.0, n_off=40):
    """Causes, and forty effects of three of them each: only together they are dear.

    The rows of the first ``n_off`` sum to 1 within ``off`` only.
    """
    rng = np.random.default_rng(0)
    factors = [((i,), [0.4, 0.6]) for i in range(14)]
    for i in range(14, 54):
        table = rng.random((2, 2, 2, 1))
        rows = 1.0 + (i < 14 + n_off) * off * rng.uniform(-1.0, 1.0, table.shape)
        causes = rng.permutation(14)[:3].tolist()
        factors.append(((*causes, i), np.concatenate([table, 1.0 - table], axis=3) * rows))
    return MarkovNetwork([2] * 54, factors)


def enumerated(target):
    """States, log p, log Z and probabilities."""
    x = exact.states(target)
    log_p = target.log_prob(x)
    log_z = logsumexp(log_p)
    return x, log_p, log_z, np.exp(log_p - log_z)


def marginals_of(target, x, p):
    return np.stack(
        [((x[:, i, None] == target.values) * p[:, None]).sum(0) for i in range(x.shape[1])]
    )


def indices_left(elimination, x):
    """Indices of the values that are left; and which states have such values only."""
    values = np.asarray(elimination.target.values)
    left = np.zeros(x.shape, dtype=np.int64)
    possible = np.ones(len(x), dtype=bool)
    for i, kept in enumerate(elimination.model.values):
        names = values[kept]
        left[:, i] = np.minimum(np.searchsorted(names, x[:, i]), names.size - 1)
        possible &= names[left[:, i]] == x[:, i]
    return left, possible


def followed(elimination, x):
    """Probability of each state by the way back, over all configurations."""
    left, possible = indices_left(elimination, x)
    p, log_p = np.zeros(len(x)), np.full(len(x), -np.inf)
    log_sum = elimination.log_sum
    given = elimination.found.given
    for c in range(elimination.log_sums.size):
        log_z = elimination.forward(c)
        mine = possible & (left[:, given] == elimination.configuration(c)[given]).all(axis=1)
        if log_z == -np.inf or not mine.any():
            continue
        states = np.ascontiguousarray(left[mine].T.astype(np.uint32))
        share = math.exp(log_z + elimination.constant - log_sum)
        p[mine] = elimination.passes.probabilities(states) * share
        log_p[mine] = elimination.passes.log_densities(states) + elimination.model.constant
    return p, log_p


# ----------------------------------------------------------------- against enumeration


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_equal_enumeration(seed):
    check_answers(seed)


def check_answers(seed, digits=1e-14):
    network = random_network(seed, extreme=seed % 5 == 4)
    x, log_p, log_z, p = enumerated(network)
    size = 1.0 + abs(log_p[p > 0]).max()
    assert abs(exact.log_partition(network) - log_z) < 4e-15 * size
    found = exact.marginals(network)
    assert np.abs(found["p"].values - marginals_of(network, x, p)).max() < digits * size
    best = exact.most_likely(network)
    assert float(best["lp"]) >= log_p.max() - 4e-15 * size
    assert float(best["lp"]) == network.log_prob(best["x"].values)
    pair = np.random.default_rng(seed).permutation(network.n_sites)[:2].tolist()
    joint = exact.marginals(network, pair)["p"].values
    expected = np.zeros(joint.shape)
    np.add.at(expected, tuple(x[:, pair].T), p)
    assert np.abs(joint - expected).max() < digits * size


def tables_at_random(rng, n=6):
    """Numbers of values, evidence, and tables in which the largest sum hides the largest entry."""
    k = rng.integers(2, 4, n)
    tables = {}
    for _ in range(rng.integers(n, 2 * n)):
        scope = tuple(rng.permutation(n)[: rng.integers(1, 4)].tolist())
        # A few entries stand out, and may stand beside zeros.
        table = rng.random(k[list(scope)]) ** 0.25
        tables[scope] = np.where(rng.random(table.shape) < 0.1, 0.0, table)
    evidence = {int(rng.integers(n)): 0} if rng.random() < 0.5 else {}
    return k, evidence, tables


def most_likely_by_brute_force(k, evidence, tables):
    """The product of all tables as one array, without the package: its largest entry."""
    product = np.ones(k)
    for scope, table in tables.items():
        order = np.argsort(scope)
        shape = np.ones(len(k), dtype=int)
        shape[list(scope)] = table.shape
        product = product * table.transpose(order).reshape(shape)
    for site, value in evidence.items():
        product = np.where(np.indices(product.shape)[site] == value, product, 0.0)
    return product


def check_most_likely(seed, n_models):
    rng, tried = np.random.default_rng(seed), 0
    while tried < n_models:
        k, evidence, tables = tables_at_random(rng)
        product = most_likely_by_brute_force(k, evidence, tables)
        if not product.any():
            continue
        tried += 1
        network = MarkovNetwork(k, tables.items()).condition(evidence)
        found = exact.most_likely(network)
        best = product[tuple(found["x"].values)]
        assert best == pytest.approx(product.max(), rel=1e-12), "another state is more probable"
        assert float(found["lp"]) == pytest.approx(math.log(product.max()), abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_the_most_likely_state_of_random_tables(seed):
    check_most_likely(seed, 50)


@pytest.fixture
def annealed(monkeypatch):
    """Anneal the orders of small models too; return how many rounds there were."""
    rounds = []
    real = ContractionTree.annealed

    def counted(tree, *args, **kwargs):
        rounds.append(args)
        return real(tree, *args, **kwargs)

    monkeypatch.setattr(order, "ENOUGH", 0.0)
    monkeypatch.setattr(order, "_patience", lambda *_: 2.0**19)
    monkeypatch.setattr(ContractionTree, "annealed", counted)
    order._annealed.cache_clear()
    yield rounds
    order._annealed.cache_clear()


@pytest.mark.parametrize("part", range(4))
def test_answers_by_annealed_orders(part, annealed):
    """Draws are followed along all states, which gives their distribution exactly."""
    for seed in range(25 * part, 25 * part + 25):
        test_answers_equal_enumeration(seed)
        test_way_back_along_every_completion(seed, seed % 2)
    assert len(annealed) > 20


@pytest.mark.slow
def test_answers_of_a_thousand_networks_by_annealed_orders(annealed):
    for seed in range(100, 1000):
        check_answers(seed, 4e-14)  # enumeration rounds too
        test_way_back_along_every_completion(seed, seed % 2)
    assert len(annealed) > 500


def test_draws_by_annealed_orders(annealed):
    for memory in (MAX_MEMORY, 2500):
        test_draws_have_the_right_frequencies(memory)
    assert annealed


def short_of_memory(network):
    """Return limits with room for tables and two entries of messages: the rest is sliced."""
    model = ordered(strike(network)).model
    tables = [*model.factors, *(b.factor for b in model.barren)]
    return MAX_WORK, 32 * sum(factor.table.size for factor in tables) + 16


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_way_back_along_every_completion(seed, short):
    network = random_network(seed)
    x, log_p, log_z, p = enumerated(network)
    limits = short_of_memory(network) if short else (MAX_WORK, MAX_MEMORY)
    found = ordered(strike(network), limits=limits)
    elimination = Elimination(found)
    assert abs(elimination.log_sum - log_z) < 1e-13 * (1.0 + abs(log_z))
    along, densities = followed(elimination, x)
    assert np.abs(along - p).max() < 1e-14
    assert np.array_equal(along > 0, p > 0)
    possible = densities > -np.inf
    assert np.allclose(densities[possible], log_p[possible], rtol=0, atol=1e-13)
    assert np.all(log_p[~possible] == -np.inf)


def test_some_of_them_were_sliced():
    networks = [random_network(seed) for seed in SEEDS]
    costs = [ordered(strike(one), limits=short_of_memory(one)).cost for one in networks]
    assert sum(cost.n_configurations > 1 for cost in costs) > 10


def graph_models():
    rng = np.random.default_rng(0)
    grid = Ising.lattice(rng.normal(size=(3, 3)), 0.4)
    field = rng.normal(size=(5, 3))
    field[[0, 1, 3], [2, 0, 1]] = -np.inf
    couplings = rng.normal(size=(5, 5))
    potts = Potts(couplings + couplings.T, field)
    loops = Ising(np.diag([1.5, -0.5]), [0.2, 0.1])
    cut = Ising.from_maxcut(nx.cycle_graph(5), beta=2.0)
    return {
        "grid": grid,
        "grid with evidence": grid.condition({(0, 1): 1, (2, 2): -1}),
        "potts": potts,
        "potts with evidence": potts.condition({0: 1}),
        "only constants": loops,
        "cut": cut,
    }


@pytest.mark.parametrize("name", graph_models())
def test_graphs(name):
    target = graph_models()[name]
    x, log_p, log_z, p = enumerated(target)
    assert abs(exact.log_partition(target) - log_z) < 1e-13
    found = exact.marginals(target)
    expected = marginals_of(target, x, p).reshape(found["p"].shape)
    assert np.abs(found["p"].values - expected).max() < 1e-14
    assert float(exact.most_likely(target)["lp"]) == pytest.approx(log_p.max(), abs=1e-13)
    along, _ = followed(Elimination(ordered(strike(target))), x)
    assert np.abs(along - p).max() < 1e-14


def test_a_torus_against_its_transfer_matrix():
    n, coupling = 8, 0.3
    rows = exact.states(Ising(np.zeros((n, n)))).astype(float)
    within = coupling * (rows * np.roll(rows, 1, axis=1)).sum(axis=1)
    matrix = np.exp(within[:, None] + coupling * rows @ rows.T)
    expected = np.log(np.trace(np.linalg.matrix_power(matrix, n)))
    torus = Ising.lattice(np.zeros((n, n)), coupling)
    assert exact.log_partition(torus) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("target", "log_z"),
    [
        (Ising(np.zeros((0, 0))), 0.0),
        (Ising(np.zeros((3, 3))), 3 * math.log(2)),
        (MarkovNetwork([2, 3], []), math.log(6)),
        (MarkovNetwork([1, 1], [((0, 1), [[0.5]])]), math.log(0.5)),
        (MarkovNetwork([2], [((), 7.0)]), math.log(14.0)),
    ],
)
def test_small_models(target, log_z):
    assert exact.log_partition(target) == pytest.approx(log_z, abs=1e-15)
    p = exact.marginals(target)["p"].values
    assert np.allclose(p.sum(axis=-1), 1.0, rtol=0, atol=1e-15)
    assert exact.most_likely(target)["x"].shape == target.shape
    assert exact.sample(target, 3, random_state=0)["x"].shape == (1, 3, *target.shape)


def test_marginals_have_the_shape_of_those_of_draws():
    grid = graph_models()["grid with evidence"]
    draws = exact.sample(grid, 400, random_state=0)
    found, estimated = exact.marginals(grid), diagnostics.marginals(draws, grid)
    assert found.sizes == estimated.sizes
    assert set(found.coords) == set(estimated.coords)
    assert set(found.data_vars) == set(estimated.data_vars)
    assert not found["mcse"].values.any()
    free = estimated["mcse"].values > 0
    error = np.abs(found["p"] - estimated["p"]).values[free] / estimated["mcse"].values[free]
    assert error.max() < 6.0


def test_joint_marginals_have_named_dimensions():
    network = MarkovNetwork([2, 3], [((0, 1), [[1, 1, 0], [0, 1, 3]])], names=["rain", "p"])
    joint = exact.marginals(network, ["p", "rain"])
    assert dict(joint["p"].sizes) == {"site_p": 3, "rain": 2}
    assert np.allclose(joint["p"].values.T * 6, [[1, 1, 0], [0, 1, 3]])
    grid = graph_models()["grid"]
    dims = exact.marginals(grid, [(0, 1), (2, 2)])["p"].dims
    assert dims == ("row_0_col_1", "row_2_col_2")
    nothing = exact.marginals(grid, [])["p"]
    assert nothing.dims == ()
    assert float(nothing) == 1.0


# ----------------------------------------------------------------- reduction


@pytest.mark.parametrize("seed", range(10))
def test_unobserved_bayesian_networks_need_no_tables(seed):
    network = bayesian(seed)
    model = prune(strike(network))
    assert not model.free
    assert exact.log_partition(network) == pytest.approx(0.0, abs=1e-14)
    x, _, _, p = enumerated(network)
    along, _ = followed(Elimination(ordered(strike(network))), x)
    assert np.abs(along - p).max() < 1e-14
    assert np.abs(exact.marginals(network)["p"].values - marginals_of(network, x, p)).max() < 1e-14
    log_p = network.log_prob(x)
    assert float(exact.most_likely(network)["lp"]) == pytest.approx(log_p.max(), abs=1e-13)


def test_marginals_of_barren_variables_one_by_one(monkeypatch):
    monkeypatch.setattr("sklsb.exact.elimination.marginals._CHEAP", 1.0)
    network = two_layers()
    for target in (network, network.condition({20: 1})):
        struck = strike(target)
        parts, _ = answers.whole_or_parts(struck, (MAX_WORK, MAX_MEMORY))
        assert len(parts) > 2
        assert sorted(i for _, of in parts for i in of) == list(range(network.n_sites))
        whole = Elimination(ordered(struck, pruned=False, need="marginals")).marginals()
        assert np.abs(exact.marginals(target)["p"].values - whole).max() < 1e-14


@pytest.mark.parametrize("off", [1e-12, 1e-5])
def test_rows_that_sum_to_one_only_nearly_are_taken_as_they_are(off):
    network = bayesian(3, off=off)
    x, _, log_z, p = enumerated(network)
    found = ordered(strike(network))
    assert found.model.free
    assert found.model.log_defect == 0.0
    assert abs(exact.log_partition(network) - log_z) < 1e-14
    assert np.abs(exact.marginals(network)["p"].values - marginals_of(network, x, p)).max() < 1e-14
    along, _ = followed(Elimination(found), x)
    assert np.abs(along - p).max() < 1e-14


def test_where_they_do_not_fit_draws_are_corrected_and_answers_bounded():
    network = bayesian(3, off=2e-4)
    x, _, log_z, p = enumerated(network)
    limits = {"max_work": 8}  # nothing of it fits, but what needs no tables
    with pytest.warns(ModelWarning, match="only approximately.*log Z may be off by") as told:
        found = exact.log_partition(network, **limits)
    bound = float(str(told[0].message).split("off by ")[1].rstrip("."))
    assert 1e-5 < bound < 2e-3
    assert abs(found - log_z) <= bound * 1.01
    model = ordered(strike(network), limits=(8.0, MAX_MEMORY))
    assert model.model.log_defect > 0.0
    # The probability of a draw times that of accepting it.
    elimination = Elimination(model)
    left, _ = indices_left(elimination, x)
    states = np.ascontiguousarray(left.T.astype(np.uint32))
    elimination.forward(0)
    drawn = elimination.passes.probabilities(states)
    rows = np.ones(len(x))
    for b in model.model.barren:
        sums = np.exp(b.factor.table).sum(axis=b.factor.scope.index(b.variable))
        parents = [v for v in b.factor.scope if v != b.variable]
        rows *= (sums / sums.max())[tuple(left[:, v] for v in parents)]
    assert np.abs(drawn * rows / (drawn * rows).sum() - p).max() < 1e-14
    n = 2000
    u = np.random.default_rng(0).random((n, model.n_uniforms))
    out, log_p = np.empty((n, network.n_sites), np.int8), np.empty(n)
    accepted = elimination.draw(u, out, log_p)
    places = np.ravel_multi_index(out.T, network.cardinalities)
    assert np.array_equal(accepted, u[:, -1] < rows[places])
    assert 0 < (~accepted).sum() < 20
    assert np.allclose(log_p, network.log_prob(out), rtol=0, atol=1e-13)
    with pytest.warns(ModelWarning, match="log Z may be off"):
        draws = exact.sample(network, 100, random_state=0, max_work=8)
    assert draws["x"].shape == (1, 100, network.n_sites)


def test_marginals_of_such_networks_are_bounded(monkeypatch):
    network = two_layers(2e-4)
    monkeypatch.setattr("sklsb.exact.elimination.marginals._CHEAP", 1.0)
    expected = exact.marginals(network)["p"]
    with pytest.warns(ModelWarning, match="marginals may be off by 0.01"):
        found = exact.marginals(network, max_work=2000)["p"]
    assert 1e-9 < float(np.abs(found - expected).max()) < 1e-3
    with pytest.raises(ValueError, match="max_work allows"):
        exact.marginals(two_layers(2e-3), max_work=2000)


def test_exact_marginals_go_before_cheap_ones(monkeypatch):
    monkeypatch.setattr("sklsb.exact.elimination.marginals._CHEAP", 1.0)
    struck = strike(two_layers(2e-4, n_off=30))
    whole = ordered(struck, pruned=False, need="marginals").cost
    # Eliminations for ten variables are less work if the others are put aside.
    parts, cost = answers.whole_or_parts(struck, (1.01 * 2.0**whole.log2_work, MAX_MEMORY))
    assert [found.model.log_defect for found, _ in parts] == [0.0]
    assert cost == whole
    parts, _ = answers.whole_or_parts(struck, (0.99 * 2.0**whole.log2_work, MAX_MEMORY))
    assert len(parts) > 2
    assert max(found.model.log_defect for found, _ in parts) > 0.0


def beliefs(n, window, parents=2, seed=0):
    """A Bayesian network of binary variables, each below some of those before it."""
    rng, factors = np.random.default_rng(seed), []
    for i in range(n):
        near = np.arange(max(0, i - window), i)
        scope = rng.permutation(near)[:parents].tolist()
        factors.append(((*scope, i), rng.dirichlet([1.0, 1.0], size=[2] * len(scope))))
    return MarkovNetwork([2] * n, factors)


def test_barren_variables_share_eliminations(monkeypatch):
    """One for each would take time in the square of their number."""
    monkeypatch.setattr("sklsb.exact.elimination.marginals._CHEAP", 64.0)
    for evidence in ({}, {20: 1, 33: 0}):
        target = beliefs(60, 60).condition(evidence)
        struck = strike(target)
        parts, cost = answers.whole_or_parts(struck, (MAX_WORK, MAX_MEMORY))
        whole = ordered(struck, pruned=False, need="marginals")
        assert cost.log2_work < whole.cost.log2_work - 1.0
        assert 2 < len(parts) < 10
        expected = Elimination(whole).marginals()
        assert np.abs(exact.marginals(target)["p"].values - expected).max() < 1e-14


def test_what_many_variables_take_is_promised():
    """Of few table entries, and of time for each variable and table."""
    costs = [exact.elimination_cost(beliefs(n, 5), "marginals") for n in (40, 400)]
    assert all(cost.n_tables >= n for cost, n in zip(costs, (40, 400), strict=True))
    assert costs[1].n_tables < 15 * costs[0].n_tables
    assert costs[1].time > 20 * 2.0 ** costs[1].log2_work


def test_reading_what_is_observed_is_promised():
    """Tables of which evidence leaves nothing must still be read; large ones take longer."""
    sizes, table = [2] * 400, np.full((2, 2), 0.5)
    pairs = [((i, i + 1), table) for i in range(399)]
    chain = MarkovNetwork(sizes, pairs).condition(dict.fromkeys(range(398), 0))
    large = MarkovNetwork([2] * 14, [(range(14), np.ones((2,) * 14))]).condition({0: 0})
    assert exact.elimination_cost(chain, "marginals").n_tables >= 399
    assert exact.elimination_cost(large, "marginals").n_tables >= 2**14 // 1024


def test_values_that_zeros_exclude_are_struck_out():
    chain = MarkovNetwork([2, 2, 2], [((0, 1), EQUAL), ((1, 2), EQUAL)]).condition({2: 1})
    model = strike(chain)
    assert model.sizes.tolist() == [1, 1, 1]
    assert exact.log_partition(chain) == 0.0
    assert exact.sample(chain, 2, random_state=0)["x"].values.tolist() == [[[1, 1, 1]] * 2]


def test_absorbing_keeps_the_sum_of_all_tables():
    network = random_network(7)
    factors = strike(network).factors
    joined = absorb(factors)
    assert len(joined) < len(factors)
    states = np.indices(strike(network).sizes).reshape(network.n_sites, -1)

    def total(tables):
        return sum(table[tuple(states[list(scope)])] for scope, table in tables)

    assert np.allclose(total(factors), total(joined), rtol=0, atol=1e-13)


# ----------------------------------------------------------------- numbers too small for floats


def frustrated(scale, n=12):
    """A cycle of variables each of which pays exp(-scale) for what the next one wants."""
    rng = np.random.default_rng(0)
    k = [3] * n
    factors = [((i, (i + 1) % n), -scale * rng.random((3, 3))) for i in range(n)]
    factors += [((i, (i + 3) % n), -scale * rng.random((3, 3))) for i in range(0, n, 2)]
    return Logs(k, factors)


class Logs(Target):
    """A target of one's own that offers its factors."""

    dims = ("site",)

    def __init__(self, k, factors):
        self.shape, self.values = (len(k),), tuple(range(max(k)))
        self.factors = factors

    @property
    def log_factors(self):
        return self.factors

    def log_prob(self, x):
        x = self.check_states(x).astype(int)
        return sum(
            table[tuple(np.moveaxis(x[..., list(scope)], -1, 0))] for scope, table in self.factors
        )

    def log_ratios(self, x):
        raise NotImplementedError

    def view(self):
        raise NotImplementedError


def test_a_target_of_ones_own():
    target = frustrated(1.0, 8)
    x, _, log_z, p = enumerated(target)
    assert abs(exact.log_partition(target) - log_z) < 1e-13
    assert np.abs(exact.marginals(target)["p"].values - marginals_of(target, x, p)).max() < 1e-14
    target.condition({0: 1})
    assert len(target.factors) == 12  # evidence adds to a list of its own


@pytest.mark.parametrize(
    "table", [[[0, 1], [2, 3]], np.array([[0, 1], [2, 3]]), np.array([[0, 1], [2, 3]], "float32")]
)
def test_tables_of_ones_own_may_be_of_other_types(table):
    target = Logs([2, 2], [((0, 1), table), ((0,), np.array([0.0, 0.1]))])
    expected = logsumexp([0.0, 1.0, 2.1, 3.1])
    assert exact.log_partition(target) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("scale", [1.0, 300.0, 3000.0])
def test_underflow_is_noticed_and_all_is_done_in_logarithms(scale):
    target = frustrated(scale, 8)
    x, log_p, log_z, p = enumerated(target)
    elimination = Elimination(ordered(strike(target)))
    assert abs(elimination.log_sum - log_z) < 1e-14 * (1.0 + abs(log_z))
    along, _ = followed(elimination, x)
    assert np.abs(along - p).max() < 1e-14 * (1.0 + abs(log_z))
    found = exact.marginals(target)["p"].values
    assert np.abs(found - marginals_of(target, x, p)).max() < 1e-14 * (1.0 + abs(log_z))
    assert float(exact.most_likely(target)["lp"]) == log_p.max()


# A chain whose second message underflows.
TINY = [
    ((0, 1), np.array([[0.0, -800.0], [-800.0, -800.0]])),
    ((1, 2), np.array([[-800.0, -800.0], [-800.0, 0.0]])),
    ((2, 3), np.array([[0.0, -800.0], [-800.0, -800.0]])),
]


def test_messages_of_nothing_but_small_numbers():
    chain = Logs([2] * 4, TINY)
    _, _, log_z, _ = enumerated(chain)
    elimination = Elimination(ordered(strike(chain)))
    assert abs(elimination.log_sum - log_z) < 1e-12
    assert elimination.passes.mode == LOG
    # A message that is truly zero needs no logarithms.
    impossible = MarkovNetwork(
        [2] * 3, [((0, 1), 1 - EQUAL), ((1, 2), 1 - EQUAL), ((0, 2), 1 - EQUAL)]
    )
    with pytest.raises(ValueError, match="no state of positive probability"):
        exact.log_partition(impossible)
    elimination = Elimination(ordered(strike(impossible)))
    assert elimination.forward(0) == -np.inf
    assert elimination.passes.mode == LINEAR


def test_what_was_lost_before_a_message_of_zeros_is_not_forgotten():
    low, equal, other = 2.0**-1000, EQUAL.tolist(), (1 - EQUAL).tolist()
    tables = [
        ((0, 1), [[1.0, 2.0**-80], [low, low]]),
        ((0, 2), [[low, low], [2.0**-80, 1.0]]),
        # These allow 1 of variable 1 and 0 of variable 2 only: what is left is lost.
        ((1, 3, 4), [other, [[1.0, 1.0]] * 2]),
        ((3, 4), equal),
        ((2, 5, 6), [[[1.0, 1.0]] * 2, other]),
        ((5, 6), equal),
    ]
    network = MarkovNetwork([2] * 7, tables)
    _, _, log_z, _ = enumerated(network)
    found = dataclasses.replace(ordered(strike(network)), order=list(range(7)), schedule=None)
    assert abs(Elimination(found).log_sum - log_z) < 1e-12


def test_a_small_probability_whose_products_underflow():
    """At 1 of variable 3, two of three messages are tiny; their product is lost before the root."""
    t = 2.0**-600
    to_three = [[[0.5, t / 2]] * 2, [[0.5, t / 2]] * 2, [[t / 2, 0.5]] * 2]
    tables = [((i, 3), table) for i, table in enumerate(to_three)] + [((3, 4), [[1, 1], [1, 2]])]
    found = ordered(strike(MarkovNetwork([2] * 5, tables)), pruned=False)
    tree = BucketTree.of(range(5), found.model.factors, found.model.sizes)
    route = Route(tree, "marginals", math.inf)
    order = route.tree.order
    elimination = Elimination(dataclasses.replace(found, order=order, schedule=route.schedule()))
    assert order == list(range(5))
    assert elimination.marginals()[3, 1] == pytest.approx(1.5 * t, rel=1e-10, abs=0.0)
    assert elimination.passes.mode == LOG


def test_a_message_of_subnormal_numbers_is_scaled_by_a_finite_number():
    first, second = [[0.5, 3e-310], [0.5, 3e-310]], [[5e-310, 4e-310], [1.0, 0.5]]
    tables = [((0, 1), first), ((1, 2), second), ((2, 3), [[1.0, 1.0], [1.0, 1.0]])]
    network = MarkovNetwork([2, 2, 2, 2], tables)
    elimination = Elimination(ordered(strike(network)))
    buckets = elimination.passes.plan.buckets
    elimination.passes._send(0, buckets.variable.size)
    for at, size in zip(buckets.message, buckets.message_size, strict=True):
        assert np.isfinite(elimination.passes.memory[at : at + size]).all()
    assert abs(elimination.log_sum - math.log(3.6e-309)) < 1e-9
    assert elimination.passes.mode == LOG  # digits were lost


def test_draws_are_accepted_as_often_where_messages_are_logarithms():
    rows = np.empty((2,) * 6)
    rows[..., 0, :] = 0.5 * (1.0 - 9e-4)
    rows[..., 1, :] = [0.99, 0.01]
    target = Logs([2] * 6, [*TINY, (tuple(range(6)), np.log(rows))])
    elimination = Elimination(ordered(strike(target), limits=(32.0, MAX_MEMORY)))
    elimination.run()
    assert elimination.passes.mode == LOG
    assert elimination.model.log_defect > 0.0
    u = np.random.default_rng(0).random((200, elimination.found.n_uniforms))
    x = elimination.passes.states(len(u), elimination.configuration(0))
    accepted = elimination.passes.draw(x, u)
    expected = np.where(x[4] == 0, 1.0 - 9e-4, 1.0)
    assert np.ptp(expected) > 0
    assert np.abs(accepted - expected).max() < 1e-13


# ----------------------------------------------------------------- blocks given the rest


@pytest.mark.parametrize("seed", range(6))
def test_a_block_given_the_rest(seed):
    network = random_network(seed)
    x, log_p, _, p = enumerated(network)
    model = strike(network)
    free, sizes = model.free, model.sizes
    block = free[: max(1, len(free) // 2)] if free else []
    given = [v for v in free if v not in block]
    plan = build(block, absorb(model.factors), sizes)
    passes = Passes(plan)
    elimination = Elimination(ordered(model, pruned=False))
    left, possible = indices_left(elimination, x)
    for row in np.flatnonzero(p > 0)[:10]:
        same = possible & (left[:, given] == left[row, given]).all(axis=1)
        log_z = passes.forward(left[row])
        assert abs(log_z + model.constant - logsumexp(log_p[same])) < 1e-12
        states = np.ascontiguousarray(left[same].T.astype(np.uint32))
        found = passes.probabilities(states)
        assert np.abs(found - p[same] / p[same].sum()).max() < 1e-14


# ----------------------------------------------------------------- draws


def drawn(target, u, memory=MAX_MEMORY):
    elimination = Elimination(ordered(strike(target), limits=(MAX_WORK, memory)))
    out, log_p = np.empty((len(u), target.n_sites), target.dtype), np.empty(len(u))
    elimination.draw(u, out, log_p)
    return out, log_p


@pytest.mark.parametrize("edge", [0.0, 2.0**-53, 1.0 - 2.0**-53])
def test_extreme_uniform_numbers_never_draw_what_is_impossible(edge):
    for seed in range(20):
        network = random_network(seed)
        n = ordered(strike(network)).n_uniforms
        x, log_p = drawn(network, np.full((1, n), edge))
        assert log_p[0] > -np.inf
        assert network.log_prob(x[0]) > -np.inf


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr("sklsb.exact.elimination.passes._SHARED", 1 << 8)
    target = Ising.lattice(np.random.default_rng(0).normal(size=(9, 9)), 0.4, periodic=False)
    jobs = []
    real = Passes.__init__

    def init(self, *args):
        jobs.append(args[2])
        real(self, *args)

    monkeypatch.setattr(Passes, "__init__", init)
    one, two = ({"n_jobs": n} for n in (1, 2))
    assert exact.log_partition(target, **one) == exact.log_partition(target, **two)
    assert exact.marginals(target, **one).equals(exact.marginals(target, **two))
    assert exact.marginals(target, [(0, 0), (8, 8)], **one).equals(
        exact.marginals(target, [(0, 0), (8, 8)], **two)
    )
    assert exact.most_likely(target, **one).equals(exact.most_likely(target, **two))
    draws = [exact.sample(target, 50, random_state=0, **n) for n in (one, two)]
    assert draws[0].equals(draws[1])
    assert jobs == [1, 2] * 5
    jobs.clear()
    samplers = [EliminationSampler(random_state=0, **n).fit(target) for n in (one, two)]
    assert samplers[0].sample(20).equals(samplers[1].sample(20))
    assert samplers[0].marginals_.equals(samplers[1].marginals_)
    assert jobs == [1, 2, 1, 2]
    with pytest.raises(ValueError, match="n_jobs is 0; give a number of threads"):
        exact.log_partition(target, n_jobs=0)


@pytest.mark.parametrize("memory", [MAX_MEMORY, 240])
def test_uniform_numbers_of_a_fine_grid_draw_each_state_as_often_as_is_right(memory):
    network = MarkovNetwork([2, 2], [((0, 1), [[0.1, 0.2], [0.0, 0.7]])])
    n = 1000
    grid = (np.indices((n, n)).reshape(2, -1).T + 0.5) / n
    x, _ = drawn(network, grid, memory)
    count = np.bincount(2 * x[:, 0] + x[:, 1], minlength=4) / n**2
    assert np.abs(count - [0.1, 0.2, 0.0, 0.7]).max() <= 1.0 / n


@pytest.mark.parametrize("memory", [MAX_MEMORY, 2500])
def test_draws_have_the_right_frequencies(memory):
    grid = graph_models()["grid"]
    x, _, _, p = enumerated(grid)
    cost = ordered(strike(grid), limits=(MAX_WORK, memory)).cost
    assert (cost.n_configurations > 1) == (memory < MAX_MEMORY)
    n = 200_000
    draws = exact.sample(grid, n, random_state=0, max_memory=memory)
    index = ((draws["x"].values.reshape(n, -1) > 0) @ (1 << np.arange(9)[::-1])).astype(int)
    count = np.bincount(index, minlength=512)
    assert np.array_equal(x[index[0]], draws["x"].values[0, 0].ravel())
    # Chi-square of 511 degrees of freedom: above 750 with probability below 1e-9.
    assert ((count - n * p) ** 2 / (n * p)).sum() < 750


def test_the_same_seed_gives_the_same_draws_however_they_are_made():
    grid = graph_models()["grid"]
    one = exact.sample(grid, 300, random_state=3)
    assert one.equals(exact.sample(grid, 300, random_state=3))
    assert not one.equals(exact.sample(grid, 300, random_state=4))
    assert np.array_equal(one["x"][:, :100], exact.sample(grid, 100, random_state=3)["x"])
    assert np.allclose(one["lp"], grid.log_prob(one["x"]), rtol=0, atol=1e-13)
    assert one["x"].dtype == np.int8


# ----------------------------------------------------------------- orders


def lattice(n):
    return Ising.lattice(np.random.default_rng(0).normal(size=(n, n)), 0.4)


def order_of(model, late=(), **limits):
    return order.best_order(model.free, absorb(model.factors), model.sizes, late, **limits)


def test_orders_are_reproducible_and_their_work_is_what_they_say():
    model = strike(lattice(16))
    first = order_of(model)
    order._annealed.cache_clear()
    assert first.variables == order_of(model).variables
    assert sorted(first.variables) == model.free
    work = BucketTree.of(first.variables, absorb(model.factors), model.sizes).log2_work
    # Variables that leave a node of the tree together are summed out one by one.
    assert first.log2_work - 0.1 < work < first.log2_work + 1.0
    late = model.free[5:8]
    assert sorted(order_of(model, late).variables[-3:]) == late


def tree_width(order, graph):
    """Width of the decomposition that an order makes, by NetworkX alone."""
    graph, width = graph.copy(), 0
    for v in order:
        near = list(graph[v])
        width = max(width, len(near))
        graph.add_edges_from(itertools.combinations(near, 2))
        graph.remove_node(v)
    return width


def test_annealing_improves_an_order(monkeypatch):
    model = strike(Ising.lattice(np.zeros((20, 20)), 0.4, periodic=False))
    graph = nx.grid_2d_graph(20, 20)
    graph = nx.relabel_nodes(graph, {(i, j): 20 * i + j for i, j in graph})
    best = order_of(model).variables
    monkeypatch.setattr(order, "_FEWEST_MOVES", 10**9)  # no round is short enough
    order._annealed.cache_clear()
    first = order_of(model).variables
    order._annealed.cache_clear()
    assert tree_width(best, graph) + 2 <= tree_width(first, graph)


def test_orders_that_take_much_are_annealed_in_long_rounds(monkeypatch):
    """From a higher temperature, after the short ones end in a valley."""
    rounds, real = [], ContractionTree.annealed

    def counted(tree, moves, hottest, seed):
        found = real(tree, moves, hottest, seed)
        rounds.append((moves, hottest, found.log2_work()))
        return found

    monkeypatch.setattr(ContractionTree, "annealed", counted)
    monkeypatch.setattr(order, "_MOST_STALE", 1)
    monkeypatch.setattr(order, "_LONG_MOVES", 8000)
    works = {}
    for n in (16, 28):
        order._annealed.cache_clear()
        rounds.clear()
        model = strike(Ising.lattice(np.zeros((n, n)), 0.4, periodic=False))
        found = order_of(model, max_work=2.0**36)
        works[n] = [work for moves, hottest, work in rounds if (moves, hottest) == (8000, 0.2)]
        assert found.log2_work <= min(work for *_, work in rounds)
    order._annealed.cache_clear()
    assert not works[16]
    assert 1 <= len(works[28]) <= 4


def tangled(seed, n=60, m=75):
    """Return a network of small tables over random variables of 2 to 4 values."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, n)
    scopes = [tuple(rng.choice(n, 3, replace=False).tolist()) for _ in range(m)]
    return MarkovNetwork(sizes, [(s, 0.1 + rng.random(tuple(sizes[list(s)]))) for s in scopes])


def check_tree(order, model, late, n_moves):
    """Open variables, the work and the order agree with a recount from the leaves."""
    scopes = [frozenset(factor.scope) for factor in absorb(model.factors)]
    log_k = np.log2(model.sizes.astype(float))
    tree, given = ContractionTree.from_order(order, scopes, late, log_k), model.free[7]
    for first, gone in ((tree, set()), (tree.without(given), {given})):
        found = first.annealed(n_moves, 1.0)
        assert found.left != first.left
        inside, work = found.open[: len(scopes)], 0.0
        assert sorted(map(sorted, inside)) == sorted(map(sorted, first.open[: len(scopes)]))
        for q in range(len(scopes), len(found.left)):
            below = _below(found, q)
            outside = set().union(late, *(s for i, s in enumerate(inside) if i not in below))
            within = set().union(*(inside[i] for i in below))
            assert found.open[q] == within & outside
            joined = found.open[found.left[q]] | found.open[found.right[q]]
            work += np.exp2(log_k[list(joined)].sum())
        assert np.isclose(found.log2_work(), np.log2(work))
        variables = found.order()
        assert sorted(variables) == sorted(set(model.free) - gone)
        assert set(variables[-2:]) == late


@pytest.mark.parametrize("seed", range(8))
def test_trees_are_what_they_say_after_annealing(seed):
    model = strike(tangled(seed))
    late = frozenset(model.free[3:5])
    check_tree(order_of(model, late).variables, model, late, 200)


def check_moves(seed):
    """Costs of nodes and open variables, after moves of the kernel alone, are counted anew."""
    rng, n = np.random.default_rng(seed), 12
    values = np.array([ONE, round(ONE * math.log2(3))])  # 40 variables of 2 values, 40 of 3
    leaves = [set(np.flatnonzero(rng.random(80) < 0.1).tolist()) for _ in range(n)]
    tree = Tree(
        left=np.array([-1] * n + [0, *range(n, 2 * n - 2)]),
        right=np.array([-1] * n + list(range(1, n))),
        open=np.zeros((2 * n - 1, 2), np.uint64),
        cost=np.zeros(2 * n - 1, np.int64),
        log_k=values,
        random=np.array([seed], np.uint64),
    )

    def counted():
        opened = []
        for q in range(2 * n - 1):
            below = _below(tree, q)
            inside = set().union(*(leaves[i] for i in below))
            outside = set().union(*(leaves[i] for i in range(n) if i not in below))
            opened.append(inside & outside)
        cost = [0] * n
        for a, b in zip(tree.left[n:], tree.right[n:], strict=True):
            size = sum(int(values[v // 40]) for v in opened[a] | opened[b])
            cost.append(size)
        return opened, cost

    for q, found in enumerate(counted()[0]):
        for v in found:
            tree.open[q, v // 40] |= np.uint64(1) << np.uint64(v % 40)
    first = tree.left.copy()
    with np.errstate(over="ignore"):  # random numbers, where nothing is compiled
        weigh(tree)
        assert tree.cost.tolist() == counted()[1]
        rotate(tree, 1.0, 300)
    assert (tree.left != first).any()
    opened, cost = counted()
    for q, found in enumerate(opened):
        assert {v for v in range(80) if int(tree.open[q, v // 40]) >> v % 40 & 1} == found
    assert tree.cost.tolist() == cost, "the cost of a node"


@pytest.mark.parametrize("seed", range(8))
def test_moves_keep_what_a_tree_says(seed):
    check_moves(seed)


def _below(tree, q):
    """Leaves below a node."""
    if tree.left[q] < 0:
        return {q}
    return _below(tree, tree.left[q]) | _below(tree, tree.right[q])


@pytest.mark.parametrize("graph", [nx.path_graph(40), nx.balanced_tree(2, 4), nx.cycle_graph(30)])
def test_orders_of_simple_graphs_are_the_best(graph):
    target = Ising(nx.to_scipy_sparse_array(graph, dtype=float) * 0.3)
    widest = 3 if len(graph) == 30 else 2
    assert exact.elimination_cost(target).log2_work <= np.log2(len(graph) * 2.0**widest)


def test_nothing_to_eliminate_is_affordable():
    """Where all variables are barren, or observed."""
    assert order.greedy_work([], [], np.array([2]), 4.0) == 0.0
    barren = MarkovNetwork([2, 2], [((0,), [0.3, 0.7]), ((0, 1), [[0.1, 0.9], [0.8, 0.2]])])
    assert "exact" in exact_hint(barren)


def test_a_graph_beyond_all_limits_is_told_quickly():
    rng = np.random.default_rng(0)
    half = np.triu(rng.normal(size=(150, 150)), 1)
    cost = exact.elimination_cost(Ising(half + half.T))
    assert f"EliminationCost(log2_work={cost.log2_work:.4g}, log2_memory=" in repr(cost)
    assert cost.log2_work == pytest.approx(151, abs=0.5)
    with pytest.raises(
        ValueError, match=r"2\*\*151.0 table entries \(.* years .*, and max_work allows"
    ):
        exact.log_partition(Ising(half + half.T))


def test_tables_of_more_entries_than_a_float_holds():
    found, axes = [0, 1], [tuple(range(1100, 0, -1)), ()]
    sizes = np.full(1101, 2)
    tree = BucketTree(found, axes, sizes)
    assert np.isfinite(tree.work).all()
    assert tree.log2_work == 1101.0
    assert BucketTree(found, [(1,), ()], sizes).log2_work == np.log2(6.0)


@pytest.mark.slow
def test_a_clique_of_more_states_than_a_float_holds():
    dense = Potts(np.ones((345, 345)) - np.eye(345), np.zeros((345, 8)))
    for task in ("log_partition", "marginals"):
        assert exact.elimination_cost(dense, task).log2_work == pytest.approx(3 * 345, abs=0.5)
    assert exact_hint(dense) == ""


def test_a_hint_is_found_at_once(monkeypatch):
    """A warning must not take seconds: no order is looked for at length where none can fit."""
    assert "without a chain" in exact_hint(Ising.lattice(np.zeros((4, 4)), 0.3))
    monkeypatch.setattr("sklsb.exact.elimination.engine.ordered", None)
    assert exact_hint(Ising.lattice(np.zeros((28, 28)), 0.3)) == ""


def test_sliced_answers_equal_unsliced_ones():
    target = lattice(6)
    whole = exact.elimination_cost(target)
    small = exact.elimination_cost(target, max_memory=1 << 14)
    assert small.log2_memory <= 14.0 < whole.log2_memory
    assert small.n_configurations > 1 == whole.n_configurations
    memory = {"max_memory": 1 << 14}
    assert exact.log_partition(target, **memory) == pytest.approx(
        exact.log_partition(target), abs=1e-12
    )
    gap = np.abs(exact.marginals(target, **memory)["p"] - exact.marginals(target)["p"]).max()
    assert float(gap) < 1e-13
    best = exact.most_likely(target, **memory)
    assert best.equals(exact.most_likely(target))


@pytest.mark.parametrize("answer", [exact.log_partition, exact.marginals])
def test_memory_is_what_is_said(answer):
    """Of one large table, and of large messages."""
    rng, n = np.random.default_rng(0), 15
    table = MarkovNetwork([2] * n, [(tuple(range(n)), rng.random((2,) * n))])
    for target in (table, Ising.lattice(np.zeros((12, 12)), 0.3, periodic=False)):
        answer(target)  # nothing is compiled or kept later
        tracemalloc.start()
        answer(target)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        said = 2.0 ** exact.elimination_cost(target, answer.__name__).log2_memory
        assert 0.7 * said < peak < 1.3 * said


# ----------------------------------------------------------------- errors, progress, Ctrl-C


def test_limits_that_an_error_names_are_enough():
    """Also where the work is far beyond the limit; then it is what a short search has found."""
    target = Ising.lattice(np.zeros((18, 18)), 0.3, periodic=False)
    for limits in ({"max_work": 2**12}, {"max_work": 2**12, "max_memory": 2**18}):
        with pytest.raises(ValueError, match=r"Give max_work.*longer search") as error:
            exact.log_partition(target, **limits)
        found = re.findall(r"(max_\w+)=2\*\*(\d+)", str(error.value))
        named = {name: 2.0 ** int(power) for name, power in found}
        assert exact.log_partition(target, **(limits | named)) > 324 * math.log(2.0)


def test_what_no_limit_allows_is_not_advised():
    with pytest.raises(ValueError, match=r"on this machine.*\. Observe more variables, or use a"):
        exact.log_partition(Ising.lattice(np.zeros((60, 60)), 0.3))


def test_memory_of_what_is_far_beyond_the_limit_is_what_must_be_held():
    target = Ising.lattice(np.zeros((18, 18)), 0.3, periodic=False)
    found = ordered(strike(target), pruned=False, need="sum", limits=(2.0**4, 2.0**28))
    messages = BucketTree.of(found.order, found.model.factors, found.model.sizes).size.sum()
    assert found.cost.log2_work > 4 + HOPELESS
    assert 2.0**found.cost.log2_memory < 0.7 * 8 * messages


def test_variables_may_be_an_array():
    target = Ising([[0.0, 0.7], [0.7, 0.0]])
    assert exact.marginals(target, np.array([0, 1])).equals(exact.marginals(target, [0, 1]))


@pytest.mark.parametrize("variables", [None, [(0, 0)]])
def test_marginals_show_the_search_for_an_order(capsys, variables):
    exact.marginals(lattice(4), variables, verbose=1)
    assert "order of elimination" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda t: exact.log_partition(t, max_work=64),
            ValueError,
            r"max_work allows 2\*\*6\.0\. Give max_work=2\*\*\d+, or observe",
        ),
        (
            lambda t: exact.log_partition(t, max_memory=100),
            ValueError,
            r"bytes of memory, and max_memory allows 2\*\*6.6",
        ),
        (
            lambda t: exact.log_partition(t, max_work=0),
            ValueError,
            "max_work is 0; give a finite number",
        ),
        (lambda t: exact.log_partition(t, max_memory=np.inf), ValueError, "max_memory is inf"),
        (
            lambda t: exact.log_partition(t, max_work="big"),
            TypeError,
            "max_work is 'big'; give a number",
        ),
        (
            lambda t: exact.elimination_cost(t, "argmax"),
            ValueError,
            r"task is 'argmax'; it must be one of",
        ),
        (
            lambda t: exact.marginals(t, "ab"),
            TypeError,
            "variables is 'ab'; give a list of variables",
        ),
        (lambda t: exact.marginals(t, 3), TypeError, "variables is 3"),
        (
            lambda t: exact.marginals(t, [99]),
            ValueError,
            "variables names 99; the target has 16 variables",
        ),
        (lambda t: exact.marginals(t, [1, 1]), ValueError, "variables names 1 twice"),
        (
            lambda t: exact.marginals(t, range(16), max_memory=2**17),
            ValueError,
            r"16 variables with 2\*\*16.0 joint values; max_memory holds 2\*\*14.0",
        ),
        (lambda t: exact.most_likely("x"), TypeError, "target is 'x', not a sklsb Target"),
        (
            lambda t: exact.log_partition(RBM(np.ones((15, 1)), np.zeros(15), [0.0])),
            TypeError,
            r"RBM.* is not made of factors.* more than the 16384 states.*log_factors",
        ),
        (lambda t: exact.sample(t, 1, max_work=64), ValueError, "Exact answers on Ising"),
    ],
)
def test_errors_say_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call(lattice(4))


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (((0, 1), np.zeros((2, 3))), r"scope \(0, 1\) and a table of shape \(2, 3\).*\(2, 2\)"),
        (((1, 1), np.zeros((2, 2))), "name each site once"),
        (((0,), np.array([0.0, np.nan])), r"log_factors\[0\] has an entry that is NaN or inf"),
        (((0,), np.array([0.0, np.inf])), r"log_factors\[0\] has an entry that is NaN or inf"),
    ],
)
def test_factors_of_a_target_of_ones_own_are_checked(factor, message):
    with pytest.raises(ValueError, match=message):
        exact.log_partition(Logs([2, 2], [factor]))


def test_impossible_models():
    contradiction = MarkovNetwork([2, 2], [((0, 1), EQUAL), ((0, 1), 1 - EQUAL)])
    with pytest.raises(ValueError, match="no state of positive probability"):
        exact.log_partition(contradiction)
    nothing = MarkovNetwork([2], [((0,), [1.0, 0.0]), ((0,), [0.0, 1.0])])
    with pytest.raises(ValueError, match=r"a factor over \(0,\) cannot be satisfied"):
        exact.marginals(nothing)


@pytest.mark.parametrize(
    ("answer", "target"),
    [
        (exact.log_partition, Ising(nx.to_scipy_sparse_array(nx.path_graph(200)) * 0.3)),
        (exact.marginals, lattice(8)),
        (exact.most_likely, lattice(8)),
        (exact.log_partition, frustrated(3000.0, 8)),  # again in logarithms
    ],
)
@pytest.mark.parametrize("memory", [MAX_MEMORY, 1 << 16])
def test_progress_goes_to_its_end(capfd, answer, target, memory):
    answer(target, max_memory=memory, verbose=1)
    line = capfd.readouterr().err.splitlines()[-1]
    assert line.startswith("eliminate: 100%")
    done, total = re.search(r"([\d.]+[kMG]?)/([\d.]+[kMG]?) ", line).groups()
    assert done == total


def test_progress_does_not_go_on_after_its_end(capfd):
    sampler = EliminationSampler(max_memory=1 << 14, verbose=1).fit(lattice(6))
    assert sampler.cost_.n_configurations > 1
    assert "eliminate: 100%" in capfd.readouterr().err
    sampler.sample(2000)
    assert "eliminate" not in capfd.readouterr().err


@pytest.mark.parametrize("after", [0, 3])
def test_ctrl_c_between_chunks(ctrl_c, monkeypatch, after):
    monkeypatch.setattr("sklsb.exact.elimination.passes._BUDGET", dict.fromkeys(range(3), 1 << 10))
    seen = []

    def interrupt(done):
        seen.append(done)
        if len(seen) == after + 1:
            signal.raise_signal(signal.SIGINT)

    elimination = Elimination(ordered(strike(lattice(8))), LINEAR)
    elimination.passes.progress = interrupt
    with pytest.raises(KeyboardInterrupt):
        elimination.run()
    assert elimination.log_sum == exact.log_partition(lattice(8))


# ----------------------------------------------------------------- published files


def files(pattern):
    found = sorted((DATA / "uai").glob(pattern))
    reason = f"no uai/{pattern} in {DATA}; set SKLSB_DATA"
    return [pytest.param(path, id=path.name) for path in found] or [
        pytest.param(None, marks=pytest.mark.skip(reason=reason))
    ]


@pytest.mark.parametrize("path", files("*.PR"))
def test_partition_functions_of_published_files(path):
    network = of_result(path)
    cost = exact.elimination_cost(network)
    if cost.log2_work > 24:
        pytest.skip(f"takes 2**{cost.log2_work:.0f} entries; benchmarks/elimination.py does it")
    published = io.read_result(path)
    found = exact.log_partition(network) / math.log(10)
    digits = path.read_text().split()[-1].partition("e")[0].lstrip("-").replace(".", "")
    last = 10.0 ** (math.floor(math.log10(max(abs(published), 1e-3))) + 1 - len(digits))
    assert abs(found - published) <= max(0.6 * last, 1e-12)


@pytest.mark.parametrize("path", files("*.MAR"))
def test_marginals_of_published_files(path):
    network = of_result(path)
    cost = exact.elimination_cost(network, "marginals")
    if cost.log2_work > 22:
        pytest.skip(f"takes 2**{cost.log2_work:.0f} entries; benchmarks/elimination.py does it")
    found = exact.marginals(network)["p"].values
    for p, published in zip(found, io.read_result(path), strict=True):
        assert np.abs(p[: published.size] - published).max() < 6e-7
        assert not p[published.size :].any()


def of_result(path):
    """The network that a result file belongs to, with its evidence."""
    stem = path.name.split(".")[0]
    kind = path.name.removeprefix(stem).rpartition(".")[0]
    if kind in (".noevidence", ".exact"):
        evidence = None
    else:
        evidence = next(
            file
            for file in (path.with_suffix(".evid"), path.with_name(f"{stem}.uai.evid"))
            if file.exists()
        )
    return MarkovNetwork.from_uai(path.with_name(f"{stem}.uai"), evidence)


# ----------------------------------------------------------------- the check of factors


def test_factors_that_do_not_sum_to_log_p_are_found(monkeypatch):
    grid = graph_models()["grid"]
    check_target(grid)
    wrong = grid.log_factors[1:]
    monkeypatch.setattr(Ising, "log_factors", property(lambda self: wrong[1:]))
    with pytest.raises(AssertionError, match="the sum of log_factors against log_prob"):
        check_target(grid)


class Claimed(FunctionTarget):
    """Says of the second of two variables what is not so."""

    said = 0.0

    @property
    def log_factors(self):
        return [((0,), np.array([0.0, 0.7])), ((1,), np.array([0.0, self.said]))]


def likely(x):
    return 0.7 * x[..., 0] + 0.3 * x[..., 1]


def forbidden(x):
    return np.where(x[..., 1] == 1, -np.inf, 0.7 * x[..., 0])


@pytest.mark.parametrize(
    ("function", "right", "wrong"), [(likely, 0.3, -np.inf), (forbidden, -np.inf, 0.3)]
)
def test_factors_that_are_wrong_about_zeros_are_found(function, right, wrong, monkeypatch):
    monkeypatch.setattr(Claimed, "said", right)
    check_target(Claimed(function, 2))
    monkeypatch.setattr(Claimed, "said", wrong)
    with pytest.raises(AssertionError, match="the sum of log_factors against log_prob"):
        check_target(Claimed(function, 2))

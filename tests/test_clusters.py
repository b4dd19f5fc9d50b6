"""Cluster updates: against all sets of bonds, exact answers, and with zeros and evidence."""

import itertools
import math

import exact_matrices  # noqa: F401 - formulas of the rules
import networkx as nx
import numpy as np
import pytest
from models import GRAPHS, KINDS, POTTS_KINDS, dense, ising, potts
from test_rules import by_hand, check_edges, check_formula

from sklsb import (
    RBM,
    ClusterSampler,
    FunctionTarget,
    Ising,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    exact,
    testing,
)
from sklsb.exact.matrices import rule_of

INF = np.inf
PATH, TRIANGLE = nx.path_graph(3), nx.complete_graph(3)


def signed(graph, couplings, field=0.0):
    """An Ising model with these couplings of the edges, in order."""
    matrix = np.zeros((len(graph), len(graph)))
    for (i, j), coupling in zip(graph.edges, couplings, strict=True):
        matrix[i, j] = matrix[j, i] = coupling
    return Ising(matrix, field)


FIELD = [[0.0, 0.7, 1.1], [-0.7, 0.2, -INF], [0.0, 0.1, 1.4]]
# Alike and different neighbours, and an impossible value.
MIXED = Potts([[0.0, 0.8, 0.0], [0.8, 0.0, -0.6], [0.0, -0.6, 0.0]], FIELD)
TARGETS = {
    "ising": dense(3),
    "two sites": dense(2),
    "one site": dense(1),
    "no edges": ising(nx.empty_graph(3)),
    "flat": ising(PATH, "flat"),
    "ties": ising(PATH, "ties"),
    "no field": signed(PATH, [0.7, 0.3]),
    "frustrated": signed(TRIANGLE, [0.8, 0.5, -0.6], [0.3, 0.0, -0.2]),
    "opposite": signed(PATH, [-0.9, -0.4], [0.3, 0.1, -0.2]),
    "strong": signed(PATH, [40.0, -800.0], [0.5, 0.0, -0.25]),
    "strong fields": ising(PATH, "field 45"),
    "extreme fields": ising(PATH, "field 700"),
    "nothing": Ising(np.zeros((0, 0))),
    "evidence": dense(3).condition({1: 1}),
    "evidence among four": dense(4).condition({1: 1}),
    "all observed": dense(2).condition({0: 1, 1: -1}),
    "potts": potts(PATH),
    "potts without fields": potts(TRIANGLE, "flat"),
    "potts zeros": potts(PATH, "zeros", seed=3),
    "potts of one value": potts(PATH, "evidence"),
    "potts of both signs": MIXED,
    "potts evidence": MIXED.condition({0: 2}),
    "potts extreme": potts(PATH, "field 700"),
    "two values": Potts(0.5 * nx.to_numpy_array(TRIANGLE), [[0.1, 0.4], [0.0, -0.3], [0.2, 0.2]]),
}


# ----------------------------------------------------------------- all sets of bonds


def by_bonds(target):
    """Matrix from the joint probability of a state and each set of bonds, by Bayes' rule."""
    model = getattr(target, "target", target)
    values, couplings = model.values, model.couplings.toarray()
    free = np.flatnonzero(target.n_possible > 1).tolist()
    drop = np.abs(couplings) * (2.0 if isinstance(model, Ising) else 1.0)
    pairs = [(i, j) for i, j in itertools.combinations(free, 2) if couplings[i, j]]

    def of_bonds(x, bonds):
        """Log probability of the bonds given a state."""
        total = 0.0
        for (i, j), bond in zip(pairs, bonds, strict=True):
            if (x[i] == x[j]) == (couplings[i, j] > 0):
                total += math.log(-math.expm1(-drop[i, j])) if bond else -drop[i, j]
            elif bond:
                return -INF
        return total

    def shifted(x, cluster, d):
        y = list(x)
        for i in cluster:
            y[i] = values[(values.index(x[i]) + d) % len(values)]
        return tuple(y)

    def given(some, log_p, bonds):
        """Distribution of some states given the bonds."""
        joint = {y: log_p[y] + of_bonds(y, bonds) for y in some}
        largest = max(joint.values())
        weight = {y: math.exp(v - largest) for y, v in joint.items()}
        total = sum(weight.values())
        return {y: w / total for y, w in weight.items()}

    def transition(x, log_p):
        found = {}
        for bonds in itertools.product((False, True), repeat=len(pairs)):
            share = math.exp(of_bonds(x, bonds))
            if share == 0.0:
                continue
            graph = nx.Graph(list(itertools.compress(pairs, bonds)))
            graph.add_nodes_from(free)
            clusters = list(nx.connected_components(graph))
            moves = swendsen_wang(x, clusters, log_p, bonds)
            for y, q in moves.items():
                found[y] = found.get(y, 0.0) + share * q
        return found

    def gibbs(x, cluster, log_p, bonds):
        return given({shifted(x, cluster, d) for d in range(len(values))}, log_p, bonds)

    def metropolised(x, cluster, log_p, bonds):
        p = gibbs(x, cluster, log_p, bonds)
        found = {x: 1.0}
        for y, q in p.items():
            if y != x and q > 0.0:
                # Proposed among the others, accepted by Metropolis' rule.
                others = [sum(p[z] for z in p if z != one) for one in (x, y)]
                accepted = min(1.0, others[0] / others[1]) if others[1] > 0.0 else 1.0
                found[y] = q * accepted / others[0]
                found[x] -= found[y]
        return found

    def mixed(*parts):
        found = {}
        for share, part in parts:
            for y, q in part.items():
                found[y] = found.get(y, 0.0) + share * q
        return found

    def swendsen_wang(x, clusters, log_p, bonds):
        if not clusters:
            return {x: 1.0}
        sizes = [len(c) for c in clusters]
        largest = min((c for c in clusters if len(c) == max(sizes)), key=min)
        coin = min(2 * max(sizes) / len(free), 7 / 8)
        found = gibbs(x, largest, log_p, bonds)
        for cluster in clusters:
            if cluster is not largest:
                parts = []
                for y, q in found.items():
                    if q == 0.0:  # impossible
                        continue
                    moved = any(y[i] != x[i] for i in largest)
                    other = {y: 1.0} if moved else metropolised(y, cluster, log_p, bonds)
                    parts.append((q * coin, other))
                    parts.append((q * (1 - coin), gibbs(y, cluster, log_p, bonds)))
                found = mixed(*parts)
        return found

    return by_hand(target, transition)


@pytest.mark.parametrize("name", TARGETS)
def test_the_formula_is_a_sum_over_all_sets_of_bonds(name):
    target = TARGETS[name]
    check_formula(rule_of(ClusterSampler(), target), target, by_bonds(target))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "field 1e300"])
def test_all_graphs_of_up_to_four_spins(kind):
    for graph in GRAPHS:
        check_balance(ising(graph, kind))
        if kind in ("random", "field 0") and len(graph) < 4:
            target = ising(graph, kind)
            check_formula(rule_of(ClusterSampler(), target), target, by_bonds(target))


@pytest.mark.parametrize("kind", POTTS_KINDS)
def test_all_graphs_of_up_to_three_variables_of_three_values(kind):
    for graph in GRAPHS:
        if len(graph) < 4:
            check_balance(potts(graph, kind))


def check_balance(target):
    """Detailed balance, stationarity and rows of the formula, to rounding."""
    p, found = exact.probabilities(target), exact.transition_matrix(ClusterSampler(), target)
    flow = p[:, None] * found
    assert np.abs(flow - flow.T).max(initial=0.0) < 1e-15
    np.testing.assert_allclose(p @ found, p, rtol=0, atol=1e-15)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=0, atol=4e-15)


@pytest.mark.parametrize("name", TARGETS)
def test_detailed_balance(name):
    check_balance(TARGETS[name])


def test_too_many_partitions():
    message = r"has 512 states, and its variables form \d+ partitions or more, .* Take a smaller"
    with pytest.raises(ValueError, match=message):
        exact.transition_matrix(ClusterSampler(), dense(9))


# ----------------------------------------------------------------- the compiled step

# Where a number has ranges of outcomes below 1/50, measuring overlooks some.
MEASURED = [name for name in TARGETS if name != "evidence among four"]
COMMIT = {"ising", "evidence", "frustrated", "potts zeros", "nothing", "ties"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in COMMIT else [pytest.mark.slow]) for n in MEASURED],
)
def test_the_compiled_step_is_the_formula(name):
    testing.check_rule(rule_of(ClusterSampler(), TARGETS[name]), TARGETS[name])


def test_what_measuring_overlooks_is_said(monkeypatch):
    monkeypatch.setattr(testing._rules, "_MOST_ROUNDS", 1)
    target = dense(3)
    rule = rule_of(ClusterSampler(), target)
    with pytest.raises(ValueError, match=r"SwendsenWang still lead .* more n_con"):
        testing.measured_matrix(rule, target, n_continuations=1)


@pytest.mark.parametrize(
    "name", ["potts zeros", "evidence", pytest.param("potts evidence", marks=pytest.mark.slow)]
)
def test_no_number_leads_to_an_impossible_state(name):
    target = TARGETS[name]
    assert (target.log_prob(exact.states(target)) == -INF).any()
    check_edges(rule_of(ClusterSampler(), target), target)


@pytest.mark.parametrize("name", ["ising", "potts zeros", "evidence", "nothing"])
def test_sampler(name):
    testing.check_sampler(ClusterSampler(), TARGETS[name], n_draws=30)


def test_evidence_is_a_field():
    """As the model of the other variables, conditioned by hand."""
    whole = dense(4)
    given = whole.condition({1: -1, 3: 1})
    field = whole.field + whole.couplings.toarray() @ [0, -1, 0, 1]
    alone = Ising(whole.couplings.toarray()[::2, ::2], field[::2])
    x = exact.states(given)
    agrees = np.flatnonzero((x[:, 1] == -1) & (x[:, 3] == 1))
    found = exact.transition_matrix(ClusterSampler(), given)[np.ix_(agrees, agrees)]
    wanted = exact.transition_matrix(ClusterSampler(), alone)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-15)
    one, other = (rule_of(ClusterSampler(), target).bonds for target in (given, alone))
    np.testing.assert_array_equal(one.strength, other.strength)
    np.testing.assert_allclose(one.field[::2], other.field, rtol=1e-15)


def test_an_ising_model_and_the_same_one_by_two_values_move_alike():
    spins = ising(nx.complete_graph(4))
    values = Potts(2.0 * spins.couplings.toarray(), np.stack([-spins.field, spins.field], axis=1))
    found = [exact.transition_matrix(ClusterSampler(), one) for one in (spins, values)]
    np.testing.assert_allclose(*found, rtol=0, atol=1e-15)
    states = np.random.default_rng(0).integers(2, size=(3, 4))
    sampler = ClusterSampler(n_chains=3, n_burn_in=20, random_state=0)
    x = sampler.fit(values, initial_states=states).sample(50)["x"].values
    sampler.fit(spins, initial_states=2 * states - 1)
    np.testing.assert_array_equal(sampler.sample(50)["x"], 2 * x - 1)


# ----------------------------------------------------------------- long runs


def energy(target, scale):
    """Mean of log p, from the derivative of log Z by a factor before log p."""
    step = 1e-4
    sides = (scale(1.0 + step), scale(1.0 - step))
    one, other = (exact.log_partition(side) for side in sides)
    return (one - other) / (2 * step)


_rng = np.random.default_rng(5)
LONG = {
    "critical": Ising.lattice(np.zeros((6, 6)), 0.4406868),
    "fields": Ising.lattice(_rng.normal(scale=0.3, size=(5, 5)), 0.4),
    "glass": ising(nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4))),
    "evidence": Ising.lattice(np.zeros((6, 6)), 0.5).condition({(0, 0): 1, (3, 3): -1}),
    "potts": Potts.lattice(_rng.normal(scale=0.2, size=(4, 4, 3)), 0.9),
    "potts, other signs": Potts.lattice(_rng.normal(scale=0.2, size=(3, 4, 3)), -0.5),
}


@pytest.mark.parametrize("name", LONG)
def test_marginals_and_energy_of_a_long_run(name):
    target = LONG[name]
    sampler = ClusterSampler(n_burn_in=200, random_state=0).fit(target)
    draws = sampler.sample(3000)
    wanted = exact.marginals(target)["p"].values
    found = (draws["x"].values[..., None] == np.array(target.values)).mean(axis=(0, 1))
    # Of 12,000 draws at least a fifteenth count as independent.
    assert np.abs(found - wanted).max() < 6.5 * 0.5 / np.sqrt(800)
    if isinstance(target, Ising):
        lp = sampler.sample_stats_["lp"].values
        expected = energy(target, lambda c: Ising(c * target.couplings.toarray(), c * target.field))
        assert abs(lp.mean() - expected) < 6.5 * lp.std() / np.sqrt(800)


# ----------------------------------------------------------------- size


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning")
@pytest.mark.filterwarnings("ignore::sklsb.exceptions.ShortRunWarning")
def test_a_transition_may_take_more_numbers_than_a_segment():
    lattice = Ising.lattice(np.zeros((400, 400)), 0.4406868)
    sampler = ClusterSampler(n_chains=1, n_burn_in=2, init="uniform", random_state=0)
    draws = sampler.fit(lattice).sample(3, record={"m": lambda x: x.mean(axis=(1, 2))})
    assert draws["m"].shape == (1, 3)
    lp = lattice.log_prob(sampler.state_)
    np.testing.assert_allclose(sampler.sample_stats_["lp"].values[:, -1], lp, rtol=1e-12)
    assert rule_of(sampler, lattice).facts.n_uniforms == 320_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning")
def test_a_million_spins():
    lattice = Ising.lattice(np.zeros((1000, 1000)), 0.4406868)
    sampler = ClusterSampler(n_chains=1, n_burn_in=30, init="uniform", random_state=0)
    sampler.fit(lattice).sample(3, record={"m": lambda x: x.mean(axis=(1, 2))})
    # The energy per bond of the infinite lattice is half the square root of 2.
    found = sampler.sample_stats_["lp"].values.mean() / 0.4406868 / 2e6
    assert abs(found - np.sqrt(0.5)) < 0.01


def test_numbers_do_not_depend_on_the_couplings():
    facts = rule_of(ClusterSampler(), dense(50)).facts
    assert (facts.n_uniforms, facts.transitions_per_sweep, facts.stat_names) == (100, 1, ("lp",))
    assert facts.reversible
    assert not facts.may_be_periodic
    assert facts.evaluation == "coupling that was looked at"


def test_evaluations_are_the_couplings_of_the_clusters():
    tied = signed(nx.Graph([(0, 1), (1, 2), (3, 4)]), [50.0, 50.0, 50.0], 0.1)
    sampler = ClusterSampler(n_chains=1, n_burn_in=0, random_state=0)
    sampler.fit(tied, initial_states=np.ones(5)).sample(400)
    before = sampler.n_evaluations_  # with those of the exact answers
    sampler.sample(400)
    # Each is seen from both sides.
    mean = (sampler.n_evaluations_ - before) / 400
    assert mean == 6


# ----------------------------------------------------------------- what is refused


class Bent(Ising):
    """A subclass with another log p, of which bonds know nothing."""

    def log_prob(self, x):
        return super().log_prob(x) + np.asarray(x).prod(axis=-1)


@pytest.mark.parametrize(
    "target",
    [
        RBM([[0.5]], [0.1], [0.2]),
        MarkovNetwork([2, 2], [((0, 1), [[2.0, 1.0], [1.0, 2.0]])]),
        RBM([[0.5], [0.3]], [0.1, 0.2], [0.2]).condition({0: 1}),
        FunctionTarget(lambda x: x.sum(axis=-1) * 0.1, 3),
        Bent(np.zeros((3, 3))),
    ],
    ids=["RBM", "MarkovNetwork", "evidence", "FunctionTarget", "Bent"],
)
def test_a_target_without_couplings_of_pairs(target):
    name = type(getattr(target, "target", target)).__name__
    name = "FunctionTarget" if isinstance(target, FunctionTarget) else name
    message = (
        r"ClusterSampler needs couplings of pairs of variables, as Ising and Potts models have; "
        rf"this {name} has none\. Use GibbsSampler or LSBSampler\."
    )
    for call in (ClusterSampler().fit, ClusterSampler()._rule):
        with pytest.raises(TypeError, match=message):
            call(target)


def test_tempering_cannot_scale_bonds():
    message = r"explorer is ClusterSampler\(\), which moves by more than exact log-ratios"
    with pytest.raises(ValueError, match=message):
        ParallelTempering(ClusterSampler()).fit(dense(4))

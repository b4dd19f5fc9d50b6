"""The enumerated transition matrices are what the theory says, to rounding."""

import itertools
import re
import warnings

import numpy as np
import pytest
from exact_matrices import eigenvalues, spectral_gap
from local_step import n_terms, sum_gate
from models import FUNCTIONS, GRAPHS, KINDS, dense, ising
from scipy.stats import chisquare

from sklsb import (
    RBM,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    Potts,
    Sqrt,
    Target,
    exact,
)
from sklsb.balancing import Barker, Max, Min
from sklsb.diagnostics import expectation
from sklsb.exact.enumeration import neighbours
from sklsb.exact.matrices import log_transition_matrix
from sklsb.exceptions import PeriodicChainWarning, PrecisionWarning
from sklsb.trials.reference import find_reference

EPS = np.finfo(float).eps


def log_probabilities(target):
    log_p = target.log_prob(exact.states(target))
    return log_p - log_p.max() - np.log(np.exp(log_p - log_p.max()).sum())


class Chooser(Target):
    """Three-valued variables with random probabilities: what exact.py needs of a target."""

    values = (0, 1, 2)
    shape, dims = (3,), ("site",)

    def __init__(self, seed=0):
        self.weights = np.random.default_rng(seed).normal(size=(3, 3, 3))

    def log_prob(self, x):
        return self.weights[tuple(np.moveaxis(self.check_states(x), -1, 0))]

    def log_ratios(self, x):
        x = self.check_states(x)
        others = [
            np.where(
                np.arange(3) == i, (x[..., i] + r + (r >= x[..., i]) - x[..., i])[..., None], x
            )
            for i in range(3)
            for r in range(2)
        ]
        return np.stack([self.log_prob(y) for y in others], axis=-1) - self.log_prob(x)[..., None]

    def view(self):
        raise NotImplementedError


# ----------------------------------------------------------------- enumeration


@pytest.mark.parametrize("d", [0, 1, 4, 10])
def test_states_are_all_states_in_lexicographic_order(d):
    x = exact.states(Ising(np.zeros((d, d))))
    assert x.shape == (2**d, d)
    assert x.dtype == np.int8
    assert [tuple(row) for row in x] == sorted({tuple(row) for row in x})


@pytest.mark.parametrize("target", [dense(5), Chooser()], ids=["two values", "three values"])
def test_neighbours_differ_in_one_variable_and_stand_in_the_order_of_log_ratios(target):
    x, to, log_p = exact.states(target), neighbours(target), log_probabilities(target)
    assert np.all((x[to] != x[:, None]).sum(axis=2) == 1)
    assert all(len(set(row)) == to.shape[1] for row in to)
    assert np.allclose(log_p[to] - log_p[:, None], target.log_ratios(x), rtol=0, atol=1e-13)


def test_probabilities_are_the_normalised_target():
    p = exact.probabilities(Ising([[0, 1], [1, 0]], [0.5, 0]))
    unnormalised = np.exp([0.5, -1.5, -0.5, 1.5])
    assert np.allclose(p, unnormalised / unnormalised.sum(), rtol=4 * EPS)


def function_of_uneven_sites():
    """A function of variables with one to three values, with states of probability zero."""

    def log_prob(x):
        return np.where(x[:, 0] * x[:, 3] == 2, -np.inf, 0.3 * (x @ np.arange(5.0)) - x[:, 0])

    return FunctionTarget(log_prob, n_sites=5, n_states=[3, 2, 1, 3, 2])


SMALL = {
    "function": function_of_uneven_sites,
    "observed": lambda: function_of_uneven_sites().condition({0: 2, 4: 1}),
    "machine": lambda: RBM(*(0.5 * RNG.normal(size=n) for n in ((6, 3), 6, 3))),
    "own": Chooser,
}
RNG = np.random.default_rng(4)


@pytest.mark.parametrize("name", SMALL)
def test_small_targets_without_factors_are_enumerated(name):
    target = SMALL[name]()
    assert target.log_factors is None
    p, x, log_p = exact.probabilities(target), exact.states(target), target.log_prob
    with np.errstate(invalid="ignore"):
        entropy = np.nansum(p * log_p(x))
    assert exact.log_partition(target) == pytest.approx(np.logaddexp.reduce(log_p(x)), abs=1e-12)
    assert expectation(target).value == pytest.approx(entropy, abs=1e-12)
    assert log_p(exact.most_likely(target)["x"].values) == log_p(x).max()
    found, plan = exact.marginals(target)["p"].values, exact.prepare(target).marginals()
    joint = exact.marginals(target, [0, 1])["p"].values
    for k, value in enumerate(target.values):
        share = p @ (x == value)
        np.testing.assert_allclose(found[:, k], share, atol=1e-12)
        if k < target.cardinalities[0]:
            assert plan[0, value] == pytest.approx(share[0], abs=1e-12)
            assert joint[k, 0] == pytest.approx(p @ (x[:, :2] == (value, target.values[0])).all(1))
    draws = EliminationSampler(n_chains=2, random_state=0).fit(target).sample(2000)["x"].values
    index = (draws.reshape(4000, 1, -1) == x).all(axis=2).argmax(axis=1)
    seen = np.bincount(index, minlength=p.size)
    assert not seen[p == 0.0].any()
    assert chisquare(seen[p > 0.0], 4000 * p[p > 0.0] / p.sum()).pvalue > 1e-4


def test_observed_variables_do_not_count_among_the_states_that_are_enumerated():
    """A function of 70 variables, of which 5 are free."""
    weights = np.linspace(-1.0, 1.0, 70)
    large = FunctionTarget(lambda x: (x * weights).sum(-1) + 0.5 * x[..., 0] * x[..., 69], 70)
    with pytest.raises(TypeError, match="has more than the 16384 states that are enumerated"):
        exact.log_partition(large)
    target = large.condition({i: i % 2 for i in range(1, 66)})
    free = [0, *range(66, 70)]
    x = np.tile(np.arange(70) % 2, (32, 1))
    x[:, free] = list(itertools.product([0, 1], repeat=5))
    log_p = large.log_prob(x)
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    assert exact.log_partition(target) == pytest.approx(np.logaddexp.reduce(log_p), abs=1e-12)
    np.testing.assert_allclose(exact.marginals(target)["p"][:, 1], p @ x, atol=1e-12)
    # The exact answers beside chains take so many variables, too.
    reference = find_reference(target, 1 << 20)
    np.testing.assert_allclose(reference.p[:, 1], p @ x, atol=1e-12)
    draws = GibbsSampler(random_state=0).fit(target).sample(100)["x"].values
    assert (draws[:, :, 1:66] == np.arange(1, 66) % 2).all()


@pytest.mark.parametrize(
    "answer", [exact.marginals, exact.log_partition, exact.prepare, lambda t: exact.sample(t, 2)]
)
def test_differences_lost_in_a_table_of_all_states_are_told(answer):
    with pytest.warns(PrecisionWarning, match="the answer may be wrong"):
        answer(FunctionTarget(lambda x: 1e15 + x.sum(-1), 3))


def test_differences_between_unlikely_states_need_no_digits():
    """Beside a state that is certain, the others may lie as far below as they like."""
    target = FunctionTarget(lambda x: -1e15 * (x[..., 0] != 0) + 0.3 * x[..., 1], 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert exact.log_partition(target) == pytest.approx(np.log(1.0 + np.exp(0.3)), abs=1e-12)


def test_functions_with_one_possible_state_or_none():
    """Chains would hardly find it."""
    only = np.arange(14) % 2
    rare = FunctionTarget(lambda x: np.where((x == only).all(-1), 0.7, -np.inf), 14)
    assert exact.log_partition(rare) == pytest.approx(0.7, abs=1e-15)
    assert (exact.most_likely(rare)["x"].values == only).all()
    assert exact.log_partition(rare.condition({1: 1})) == pytest.approx(0.7, abs=1e-15)
    for answer in (exact.log_partition, exact.marginals):
        with pytest.raises(ValueError, match=r"evidence has probability zero: \{0: 1\}"):
            answer(rare.condition({0: 1}))


@pytest.mark.parametrize(
    "function", [exact.states, neighbours, exact.probabilities], ids=lambda f: f.__name__
)
def test_too_many_states_are_refused_by_number(function):
    with pytest.raises(ValueError, match="has 32768 states; enumeration takes at most 16384"):
        function(Ising(np.zeros((15, 15))))


# ----------------------------------------------------------------- transition matrices


def check_matrix(sampler, target):
    """Rows, detailed balance in logarithms, absolute balance, stationarity, at their gates."""
    matrix, log_matrix = (
        f(sampler, target) for f in (exact.transition_matrix, log_transition_matrix)
    )
    log_p, p = log_probabilities(target), exact.probabilities(target)
    assert np.all(matrix >= 0)
    rows = sum_gate(n_terms(sampler, target))
    assert np.abs(matrix.sum(axis=1) - 1).max() <= rows
    possible = np.isfinite(log_matrix)
    assert np.array_equal(possible, possible.T)
    flow = np.where(possible, log_p[:, None] + np.where(possible, log_matrix, 0.0), 0.0)
    balance = 16 * EPS * (1 + np.abs(log_p).max())
    assert np.abs(flow - flow.T).max() <= balance
    flow = p[:, None] * matrix
    assert np.abs(flow - flow.T).max() <= 1e-15
    # Into x' as many flows as moves out of it, each off by a share of itself.
    assert np.all(np.abs(p @ matrix - p) <= np.minimum(1e-15, p * balance) + p * rows + 1e-300)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_chain_is_reversible_on_every_graph_of_up_to_four_vertices(kind, function):
    for graph in GRAPHS:
        check_matrix(function, ising(graph, kind))


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("target", [dense(10), Chooser()], ids=["10 sites", "three values"])
def test_chain_is_reversible(target, function):
    check_matrix(function, target)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 2), (3, 3)], ids=str)
def test_chain_is_reversible_on_lattices(shape):
    field = np.random.default_rng(0).normal(size=shape)
    for function in FUNCTIONS.values():
        check_matrix(function, Ising.lattice(field, 0.7))


def test_lazy_chain_stays_with_its_probability():
    target, matrix = dense(3), exact.transition_matrix(Barker(), dense(3))
    lazy = exact.transition_matrix(LSBSampler("barker", lazy=0.3), target)
    assert np.allclose(lazy, 0.3 * np.eye(8) + 0.7 * matrix, rtol=0, atol=2 * EPS)
    check_matrix(LSBSampler("barker", lazy=0.3), target)


def test_full_metropolis_hastings_ratio_is_z_over_z_where_first_order_is_exact():
    target = dense(5)
    for name in ("barker", "sqrt", "min", "max"):
        ratio = exact.transition_matrix(LSBSampler(name), target)
        full = exact.transition_matrix(LSBSampler(name, fast=True), target)
        assert np.allclose(full, ratio, rtol=0, atol=64 * EPS)
        check_matrix(LSBSampler(name, fast=True), target)


def test_a_fitted_sampler_stands_for_its_frozen_function():
    target = dense(4)
    sampler = LSBSampler(n_burn_in=50, rejection_free=False, factors=None, random_state=0)
    before = exact.transition_matrix(sampler, target)
    after = exact.transition_matrix(sampler.fit(target), target)
    assert np.array_equal(after, exact.transition_matrix(sampler.balancing_, target))
    assert not np.array_equal(after, before)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_permuted_sites_permute_the_matrix(function):
    target, order = dense(4), np.array([2, 0, 3, 1])
    permuted = Ising(target.couplings.toarray()[np.ix_(order, order)], target.field[order])
    x = exact.states(target)
    where = np.array([np.flatnonzero((x == row).all(axis=1))[0] for row in x[:, order]])
    expected = exact.transition_matrix(function, target)
    found = exact.transition_matrix(function, permuted)[np.ix_(where, where)]
    assert np.allclose(found, expected, rtol=0, atol=32 * EPS)


def test_a_constant_changes_nothing():
    target, loops = dense(4), np.diag([1e6, -3.0, 0.5, 7.0])
    shifted = Ising(target.couplings.toarray() + loops, target.field)
    x = exact.states(target)
    assert np.allclose(shifted.log_prob(x), target.log_prob(x) + np.trace(loops), rtol=4 * EPS)
    assert np.array_equal(
        exact.transition_matrix(Max(), shifted), exact.transition_matrix(Max(), target)
    )


# ----------------------------------------------------------------- what is derived from them


def test_gap_and_information_of_one_spin():
    # With one site the only move is always proposed and accepted with min(1, 1/t).
    r = np.exp(-2 * 0.7)
    target, p = Ising([[0.0]], [0.7]), np.array([r, 1.0]) / (1 + r)
    assert np.allclose(eigenvalues(Min(), target), [-r, 1], atol=4 * EPS)
    assert np.isclose(spectral_gap(Min(), target), 1 - r)
    rows = np.array([[0, 1], [r, 1 - r]])
    expected = sum(
        p[i] * rows[i, j] * np.log(rows[i, j] / p[j])
        for i in range(2)
        for j in range(2)
        if rows[i, j]
    )
    assert np.isclose(exact.mutual_information(Min(), target), expected, rtol=1e-14)


def test_information_of_something_else():
    target = Ising([[0.0]], [0.7])
    for sampler, other in [(target, 0), (Min(), "x"), (target, target)]:
        with pytest.raises(TypeError, match=r"give a sampler and .* exact\.marginals\(target, \["):
            exact.mutual_information(sampler, other)


def test_information_is_between_zero_and_the_entropy():
    for kind in ("random", "field 5"):
        for graph in GRAPHS:
            target = ising(graph, kind)
            p = exact.probabilities(target)
            entropy = -(p * np.log(p)).sum()
            assert -1e-14 <= exact.mutual_information(Barker(), target) <= entropy + 1e-14


def test_gap_of_independent_draws_is_one_and_of_a_periodic_chain_zero():
    assert spectral_gap(Sqrt(), Ising(np.zeros((0, 0)))) == 1.0
    flat = Ising(np.zeros((3, 3)))
    assert np.isclose(eigenvalues(Sqrt(), flat)[0], -1)
    assert np.isclose(spectral_gap(Sqrt(), flat), 0, atol=1e-14)
    assert np.isclose(spectral_gap(LSBSampler("sqrt", lazy=0.5), flat), 1 / 3)


@pytest.mark.parametrize("function", [Sqrt(), Barker(), Max()], ids=["sqrt", "barker", "max"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_periodic_chain_is_announced(kind, function):
    for graph in GRAPHS:
        target = ising(graph, kind)
        if len(graph) and eigenvalues(function, target)[0] <= -1 + 1e-9:
            sampler = LSBSampler(function, n_chains=2, blocks=None, random_state=0)
            with pytest.warns(PeriodicChainWarning, match=re.escape("Set lazy=0.5")):
                sampler.fit(target)


# ----------------------------------------------------------------- Ising models


def lattice_log_prob(x, field, coupling, periodic):
    """Literal sum over every directed edge to the right and down."""
    rows, cols = field.shape
    total = 0.0
    for i in range(rows):
        for j in range(cols):
            total += field[i, j] * x[i, j]
            if periodic or j + 1 < cols:
                total += coupling * x[i, j] * x[i, (j + 1) % cols]
            if periodic or i + 1 < rows:
                total += coupling * x[i, j] * x[(i + 1) % rows, j]
    return total


def check_lattice(model, shape, periodic):
    field = np.random.default_rng(0).normal(size=shape)
    target = model.lattice(field, 0.7, periodic)
    x = np.random.default_rng(1).choice([-1, 1], size=(40, *shape))
    expected = [lattice_log_prob(one, field, 0.7, periodic) for one in x]
    assert np.allclose(target.log_prob(x.reshape(40, -1)), expected, rtol=0, atol=1e-13), (
        "log p of a lattice is the sum over its edges"
    )


@pytest.mark.parametrize("periodic", [True, False], ids=["torus", "free"])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (3, 2, 4), (2, 3, 3, 2)], ids=str)
def test_lattice_of_any_dimension_with_a_coupling_for_each_edge(shape, periodic):
    rng = np.random.default_rng(0)
    field, coupling = rng.normal(size=shape), rng.normal(size=(len(shape), *shape))
    spins = rng.choice([-1, 1], size=shape)
    labels = (spins + 1) // 2
    log_p, agreement = (field * spins).sum(), (field * labels).sum()
    for site in np.ndindex(shape):
        for axis, size in enumerate(shape):
            if periodic or site[axis] + 1 < size:
                other = (*site[:axis], (site[axis] + 1) % size, *site[axis + 1 :])
                log_p += coupling[axis][site] * spins[site] * spins[other]
                agreement += coupling[axis][site] * (labels[site] == labels[other])
    target = Ising.lattice(field, coupling, periodic)
    assert target.log_prob(spins) == pytest.approx(log_p, rel=1e-12)
    assert target.shape == shape
    assert len(target.dims) == len(shape)
    if len(shape) > 1:
        of_values = np.stack([np.zeros(shape), field], -1)
        potts = Potts.lattice(of_values, coupling, periodic)
        assert potts.log_prob(labels) == pytest.approx(agreement, rel=1e-12)


@pytest.mark.parametrize("periodic", [True, False], ids=["torus", "free"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 3)], ids=str)
def test_lattice_is_the_sum_over_its_edges(shape, periodic):
    # On a side of 2 every edge is double, on a side of 1 it is a loop.
    check_lattice(Ising, shape, periodic)

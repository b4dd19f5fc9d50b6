"""Evidence: the conditional distribution, exactly, and variables that never move."""

import itertools
import pickle
import warnings

import networkx as nx
import numpy as np
import pytest
from enumerated_objectives import check_objectives
from local_step import check_sampler
from models import FUNCTIONS, dense, potts

from sklsb import (
    RBM,
    FunctionTarget,
    Ising,
    LSBSampler,
    MarkovNetwork,
    Potts,
    VariableSelection,
    exact,
    testing,
)
from sklsb.exceptions import FrozenSitesWarning

INF = np.inf
_rng = np.random.default_rng(0)
_X = _rng.normal(size=(30, 5))
_y = 0.3 * _X[:, 0] - 0.2 * _X[:, 3] + _rng.normal(size=30)
_score = _rng.normal(size=(4, 3))
_table = np.exp(_rng.normal(size=(3, 4)))
_table[0, 2] = _table[1, 0] = 0.0


def score(x):
    return _score[np.arange(4), x].sum(axis=-1) - 0.7 * (x[..., 1:] == x[..., :-1]).sum(axis=-1)


# Each with evidence as a user names it, and the same as sites and values.
CASES = {
    "ising": (dense(4), {2: 1, 0: -1}, {0: -1, 2: 1}),
    "lattice": (
        Ising.lattice(_rng.normal(size=(2, 3)), 0.4),
        {(0, 1): -1, (1, 2): 1},
        {1: -1, 5: 1},
    ),
    "potts": (potts(nx.path_graph(4), "zeros"), {3: 1}, {3: 1}),
    "rbm": (RBM(_rng.normal(size=(4, 3)), _rng.normal(size=4)), {1: 0, 3: 1}, {1: 0, 3: 1}),
    "rbm of pixels": (
        RBM(_rng.normal(size=(4, 3)), shape=(2, 2)),
        {(1, 0): 1, 0: 0},
        {0: 0, 2: 1},
    ),
    "selection": (VariableSelection(_X, _y), {4: 0, 0: 1}, {0: 1, 4: 0}),
    "function": (FunctionTarget(score, 4, [3, 2, 1, 3]), {0: 2}, {0: 2}),
    "network": (
        MarkovNetwork(
            [3, 4, 2, 2],
            [((0, 1), _table), ((2, 0), np.ones((2, 3))), ((3, 2), [[1, 2], [3, 0]])],
            names=["a", "b", "c", "d"],
        ),
        {"b": 3, 2: 0},
        {1: 3, 2: 0},
    ),
}
each = pytest.mark.parametrize("name", CASES)
# The kernels of evidence ask those of the target, whatever it is; each target compiles them anew.
SLOW = ("lattice", "potts", "rbm", "rbm of pixels", "selection")
each_compiled = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in CASES]
)


def conditioned(name):
    """Target, conditioned target, sites of the evidence and their values."""
    target, evidence, plain = CASES[name]
    return target, target.condition(evidence), np.array(list(plain)), np.array([*plain.values()])


@each
def test_log_prob_and_log_ratios(name):
    target, given, sites, observed = conditioned(name)
    x = exact.states(target)
    agrees = (x[:, sites] == observed).all(axis=1)
    log_p = given.log_prob(x)
    assert 0 < agrees.sum() < agrees.size
    assert np.array_equal(log_p[agrees], target.log_prob(x)[agrees])
    assert np.isneginf(log_p[~agrees]).all()
    x = x[np.isfinite(log_p)]
    observed = np.isin(np.repeat(np.arange(target.n_sites), target.cardinalities - 1), sites)
    ratios, wanted = given.log_ratios(x), target.log_ratios(x)
    assert np.array_equal(ratios[:, ~observed], wanted[:, ~observed])
    assert np.isneginf(ratios[:, observed]).all()
    assert np.array_equal(target.log_ratios(x), wanted)  # the target stays as it was


@each
def test_the_conditional_distribution(name):
    target, given, sites, observed = conditioned(name)
    x, p = exact.states(target), exact.probabilities(target)
    p = np.where((x[:, sites] == observed).all(axis=1), p, 0.0)
    np.testing.assert_allclose(exact.probabilities(given), p / p.sum(), rtol=1e-13, atol=0)


@each_compiled
def test_target(name):
    testing.check_target(conditioned(name)[1], n_states=5)


@each
def test_attributes(name):
    target, given, sites, _ = conditioned(name)
    for part in ("shape", "dims", "values", "constant", "dtype", "n_sites"):
        assert getattr(given, part) == getattr(target, part)
    for dim, labels in target.coords.items():
        assert np.array_equal(given.coords[dim], labels)
    assert np.array_equal(given.cardinalities, target.cardinalities)
    n_possible = target.n_possible.copy()
    n_possible[sites] = 1
    assert np.array_equal(given.n_possible, n_possible)
    assert repr(given) == f"{target!r} with {sites.size} variable{'s' * (sites.size != 1)} observed"


@each_compiled
def test_evidence_never_moves(name):
    target, given, sites, observed = conditioned(name)
    sampler = LSBSampler("max", lazy=0.1, n_burn_in=200, n_chains=2, random_state=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        x = sampler.fit(given).sample(500)["x"].to_numpy().reshape(1000, target.n_sites)
    assert not [w for w in said if issubclass(w.category, FrozenSitesWarning)]
    assert np.all(x[:, sites] == observed)
    free = np.setdiff1d(np.flatnonzero(target.n_possible > 1), sites)
    assert np.all(x[:, free].min(axis=0) < x[:, free].max(axis=0))
    assert np.isfinite(given.log_prob(x)).all()


# What learns compiles some kernels more; in the commit tier that is a network with evidence.
@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("ising", LSBSampler("max", lazy=0.3)),
        ("potts", LSBSampler("max", lazy=0.3)),
        pytest.param("ising", LSBSampler("mixture", n_burn_in=60), marks=pytest.mark.slow),
        pytest.param("potts", LSBSampler("mixture", n_burn_in=60), marks=pytest.mark.slow),
    ],
)
def test_sampler(name, sampler):
    check_sampler(sampler, CASES[name][0].condition(CASES[name][1]), n_draws=30)


@pytest.mark.slow  # evidence of a network is among the objectives of test_markov_network.py
def test_objectives():
    check_objectives(FUNCTIONS["mixture"], CASES["potts"][0].condition({3: 1}))


def test_by_hand():
    # Observed neighbours act as a field on the others.
    ising = dense(5)
    given = ising.condition({1: 1, 4: -1})
    free = [0, 2, 3]
    couplings = ising.couplings.toarray()
    by_hand = Ising(
        couplings[np.ix_(free, free)], ising.field[free] + couplings[free][:, [1, 4]] @ [1.0, -1.0]
    )
    rest = exact.states(by_hand)
    x = np.empty((len(rest), 5), dtype=np.int8)
    x[:, free], x[:, [1, 4]] = rest, (1, -1)
    ratios = given.log_ratios(x)
    np.testing.assert_allclose(ratios[:, free], by_hand.log_ratios(rest), rtol=0, atol=1e-14)
    p = exact.probabilities(given)
    order = {state.tobytes(): i for i, state in enumerate(exact.states(given))}
    at = [order[state.tobytes()] for state in x]
    np.testing.assert_allclose(p[at], exact.probabilities(by_hand), rtol=1e-13)
    for function in ("sqrt", "max"):
        matrix = exact.transition_matrix(LSBSampler(function), given)[np.ix_(at, at)]
        wanted = exact.transition_matrix(LSBSampler(function), by_hand)
        np.testing.assert_allclose(matrix, wanted, rtol=0, atol=1e-14)


@each
def test_twice(name):
    target, given, *_ = conditioned(name)
    evidence = CASES[name][1]
    parts = [{variable: value} for variable, value in evidence.items()]
    stepwise = target
    for part in [{}, *parts, {}, parts[0]]:
        stepwise = stepwise.condition(part)
    x = exact.states(target)
    assert np.array_equal(stepwise.log_prob(x), given.log_prob(x))
    assert np.array_equal(stepwise.sites, given.sites)
    assert np.array_equal(stepwise.observed, given.observed)
    assert stepwise.target is target
    possible = x[np.isfinite(given.log_prob(x))]
    assert np.array_equal(stepwise.log_ratios(possible), given.log_ratios(possible))
    nothing = target.condition({}).condition({})
    assert np.array_equal(nothing.log_prob(x), target.log_prob(x))
    assert np.array_equal(
        nothing.draw_state(np.random.default_rng(0)),
        target.draw_state(np.random.default_rng(0)),
    )


@each
def test_all_observed(name):
    target = CASES[name][0]
    x = target.draw_state(np.random.default_rng(0))
    given = target.condition(dict(enumerate(x.tolist())))
    assert np.array_equal(given.draw_state(np.random.default_rng(1)), x)
    assert exact.probabilities(given).max() == 1.0
    assert np.isneginf(given.log_ratios(x)).all()


@each
def test_pickle_and_seed(name):
    given = conditioned(name)[1]
    assert given.view() is given.view()
    copy = pickle.loads(pickle.dumps(given))
    assert not {"_view", "_strides", "_support"} & set(given.__getstate__())
    x = exact.states(given)
    assert np.array_equal(copy.log_prob(x), given.log_prob(x))
    states = [given.draw_state(np.random.default_rng(seed)) for seed in (0, 0, *range(1, 20))]
    assert np.array_equal(states[0], states[1])
    assert len({state.tobytes() for state in states}) > 1


@pytest.mark.parametrize(
    ("name", "evidence", "error", "message"),
    [
        ("ising", [2], TypeError, r"evidence is \[2\]; give a dict of variable: value"),
        ("ising", None, TypeError, "evidence is None; give a dict"),
        ("ising", {4: 1}, ValueError, "variable 4; the target has 4 variables, with names like .0"),
        ("ising", {-1: 1}, ValueError, "evidence names the variable -1; "),
        ("ising", {True: 1}, ValueError, "evidence names the variable True; "),
        ("ising", {(0, 1): 1}, ValueError, r"evidence names the variable \(0, 1\); "),
        ("ising", {2: 0}, ValueError, r"evidence\[2\] is 0; this variable takes .*\(-1, 1\)"),
        ("ising", {2: "up"}, ValueError, r"evidence\[2\] is 'up'; this variable takes"),
        ("lattice", {(2, 0): 1}, ValueError, r"the variable \(2, 0\); the target has 6 variables"),
        ("lattice", {"a": 1}, ValueError, r"with names like \[\(0, 0\), \(0, 1\), \(0, 2\)\]"),
        (
            "lattice",
            {(0, 1): 1, 1: 1},
            ValueError,
            r"gives variable \(0, 1\) twice, as \(0, 1\) and 1; keep one",
        ),
        ("network", {"e": 1}, ValueError, "evidence names the variable 'e'; .* 4 variables"),
        ("network", {"c": 2}, ValueError, r"evidence\['c'\] is 2; this variable .*\(0, 1\)\."),
        ("network", {"c": 0.5}, ValueError, r"evidence\['c'\] is 0.5; this variable takes"),
        ("network", {"c": 1, 2: 1}, ValueError, "evidence gives variable 'c' twice, as 'c' and 2"),
        ("function", {1: 2}, ValueError, r"evidence\[1\] is 2; this variable .*\(0, 1\)"),
        ("selection", {0: 2}, ValueError, r"evidence\[0\] is 2; this variable .*\(0, 1\)"),
    ],
)
def test_wrong_evidence(name, evidence, error, message):
    target, given, *_ = conditioned(name)
    for which in (target, given):
        with pytest.raises(error, match=message):
            which.condition(evidence)


def test_values_of_many_are_not_listed():
    target = MarkovNetwork([200], [])
    with pytest.raises(ValueError, match="this variable takes one of the values 0 to 199"):
        target.condition({0: 200})
    assert target.condition({0: 199}).draw_state(np.random.default_rng(0)).tolist() == [199]


def test_contradiction():
    given = dense(4).condition({2: 1})
    with pytest.raises(ValueError, match="sets variable 2 to -1; it was observed as 1"):
        given.condition({0: 1, 2: -1})


def test_columns_by_name():
    pd = pytest.importorskip("pandas", reason="columns have names in a DataFrame")
    frame = pd.DataFrame(_X, columns=list("abcde"))
    mine, other = (
        VariableSelection(X, _y).condition(evidence)
        for X, evidence in ((frame, {"e": 0, "a": 1}), (_X, {4: 0, 0: 1}))
    )
    x = exact.states(mine)
    assert np.array_equal(mine.log_prob(x), other.log_prob(x))


def test_impossible_evidence():
    target = Potts(np.zeros((2, 2)), [[0.0, -INF], [0.0, 0.0]])
    with pytest.raises(ValueError, match="sets variable 0 to 1, which is impossible"):
        target.condition({0: 1})


def test_evidence_of_probability_zero():
    # Where nothing is known of the zeros beforehand, the search for a start finds out.
    target = FunctionTarget(lambda x: -INF if x[0] else 0.0, 3)
    given = target.condition({0: 1})
    assert np.isneginf(given.log_prob(exact.states(target))).all()
    with pytest.raises(ValueError, match="log_prob is -inf at all of 1000 states"):
        given.draw_state(np.random.default_rng(0))


def test_initial_states_must_agree():
    given = dense(3).condition({1: 1})
    start = np.array([list(s) for s in itertools.product([-1, 1], [-1], [1])])
    with pytest.raises(ValueError, match="initial_states"):
        LSBSampler("sqrt", n_chains=2, n_burn_in=5).fit(given, initial_states=start)

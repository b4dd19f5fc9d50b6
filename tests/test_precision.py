"""Log p of large numbers: answers are right, or it is told that they may not be."""

import itertools
import warnings
from fractions import Fraction

import exact_matrices  # noqa: F401 - formulas of the rules
import numpy as np
import pytest
from sklearn.base import clone

from sklsb import (
    RBM,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    Sqrt,
    anneal,
    exact,
)
from sklsb.exceptions import PrecisionWarning, SamplerWarning

ALLOW_FROZEN = "ignore::sklsb.exceptions.FrozenSitesWarning"
ALLOW_ROUNDING = "ignore::sklsb.exceptions.PrecisionWarning"


def ising(n_sites, edges, field):
    couplings = np.zeros((n_sites, n_sites))
    for i, j in edges:
        couplings[i, j] = couplings[j, i] = 0.3
    return Ising(couplings, field)


def pair(size):
    return ising(2, [(0, 1)], [size, 0.0])


def chain(size):
    field = np.array([0.2, -0.1, -size, 0.4, 0.0, size])
    return ising(6, [(i, i + 1) for i in range(5)], field)


def lattice(size):
    field = np.linspace(-0.5, 0.5, 9)
    field[[0, 4]] = size, -size
    grid = [(3 * i + j, 3 * i + j + 1) for i in range(3) for j in range(2)]
    return ising(9, grid + [(j, i) for i, j in [(k + 3, k) for k in range(6)]], field)


def potts(size):
    field = np.array([[0.1, -size, -size, 0.0], [0.0, 0.5, 0.2, 0.3], [size, 0.0, -0.2, size]])
    return Potts([[0, 0.7, 0], [0.7, 0, -0.4], [0, -0.4, 0]], field)


MODELS = {"pair": pair, "chain": chain, "lattice": lattice, "potts": potts}
SIZES = [1e9, 1e16, 1e300]


def small(name):
    """Return the same model where a size of 1,000 decides what the large one decides."""
    return MODELS[name](1e3)


def expected(name):
    """Probabilities of all states, by enumeration in floats, where no number is large."""
    target = small(name)
    states = exact.states(target)
    log_p = target.log_prob(states)
    p = np.exp(log_p - log_p.max())
    return states, p / p.sum()


def marginals_of(states, p, values):
    return np.stack([[p[column == v].sum() for v in values] for column in states.T])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_a_large_field_leaves_the_others_right(name, size):
    target, (states, p) = MODELS[name](size), expected(name)
    values = target.values
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = exact.marginals(target)["p"].values
        joint = exact.marginals(target, [0, 1])["p"].values
        best = exact.most_likely(target)["x"].values
        of_states = exact.probabilities(target)
        log_z = exact.log_partition(target)
    np.testing.assert_allclose(found, marginals_of(states, p, values), rtol=1e-6, atol=1e-300)
    by_pair = [[p[(states[:, 0] == a) & (states[:, 1] == b)].sum() for b in values] for a in values]
    np.testing.assert_allclose(joint, by_pair, rtol=1e-6, atol=1e-300)
    np.testing.assert_allclose(of_states, p, rtol=1e-6, atol=1e-300)
    np.testing.assert_array_equal(best, states[p.argmax()])
    assert log_z == pytest.approx(float(target.log_prob(best)), rel=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_mutual_information_of_exact_draws(name):
    target, (_, p) = MODELS[name](1e16), expected(name)
    found = exact.mutual_information(Sqrt(), target)
    assert found == pytest.approx(exact.mutual_information(Sqrt(), small(name)), rel=1e-9)
    rule = EliminationSampler()._rule(target)
    np.testing.assert_allclose(
        exact.transition_matrix(rule, target)[p.argmax()], p, rtol=1e-9, atol=1e-300
    )


def test_constants_that_cancel_leave_log_z():
    target = Ising(np.zeros((4, 4)), [1e16, 0.7, -1e16, 0.2]).condition({0: 1, 1: 1, 2: 1})
    expected = 0.7 + np.log(2.0 * np.cosh(0.2))
    assert exact.log_partition(target) == pytest.approx(expected, rel=1e-12)


def frequency(draws):
    """Of spin +1 at the second variable."""
    return float((draws["x"].values[..., 1] == 1).mean())


@pytest.mark.filterwarnings(ALLOW_FROZEN, ALLOW_ROUNDING)
@pytest.mark.parametrize(
    "sampler",
    [
        EliminationSampler(random_state=0),
        LSBSampler("sqrt", blocks=8, n_burn_in=200, random_state=0),
        GibbsSampler("random", n_burn_in=200, random_state=0),
        ParallelTempering(n_burn_in=256, random_state=0),
        ParallelTempering(n_burn_in=256, eliminate=1, random_state=0),
        ParallelTempering(n_burn_in=256, crossover=True, random_state=0),
    ],
    ids=["elimination", "redraws", "gibbs", "tempering", "core", "crossover"],
)
def test_draws_beside_a_large_field(sampler):
    target = pair(1e16)
    draws = sampler.fit(target).sample(4000, thin="sweep")
    # 16,000 draws of a probability of 1 / (1 + exp(-0.6)); a third of them count, at least.
    p = 1.0 / (1.0 + np.exp(-0.6))
    assert frequency(draws) == pytest.approx(p, abs=4.0 * np.sqrt(3.0 * p * (1.0 - p) / 16000))
    assert (draws["x"].values[..., 0] == 1).all()


@pytest.mark.filterwarnings(ALLOW_FROZEN)
@pytest.mark.parametrize("n_replicas", [2, 5])
@pytest.mark.parametrize("field", [800.0, 1e5])
def test_log_z_of_a_field(field, n_replicas):
    target = pair(field)
    sampler = ParallelTempering(n_replicas=n_replicas, n_burn_in=500, random_state=0).fit(target)
    # The second spin has cosh; the first one is up.
    expected = field + np.log(2.0 * np.cosh(0.3))
    assert 0.0 < sampler.log_z_error_ < 0.2
    assert sampler.log_z_ == pytest.approx(expected, abs=5.0 * sampler.log_z_error_)


@pytest.mark.filterwarnings(ALLOW_ROUNDING, "ignore::sklsb.exceptions.TemperingWarning")
def test_best_states_beside_a_large_field():
    target, (states, p) = chain(1e16), expected("chain")
    best = states[p.argmax()]
    found = anneal(target, n_sweeps=100, random_state=0)
    np.testing.assert_array_equal(found["x"].values, np.tile(best, (4, 1)))
    sampler = ParallelTempering(n_burn_in=300, random_state=0).fit(target)
    np.testing.assert_array_equal(sampler.best_state_["x"].values, np.tile(best, (4, 1)))


def test_annealing_compares_what_a_float_of_log_p_does_not_hold():
    rng = np.random.default_rng(0)
    n = 60
    couplings = np.triu(rng.normal(size=(n, n)), 1)
    field = np.zeros(n)
    field[0] = 1e17
    found = anneal(Ising(couplings + couplings.T, field), n_sweeps=1000, random_state=0)
    field[0] = 100.0
    rest = Ising(couplings + couplings.T, field)
    best = anneal(rest, n_sweeps=1000, random_state=0)["lp"].max()
    # What one descent and no comparison give is 10 and more below that.
    assert rest.log_prob(found["x"].values).min() > best - 8.0


# ----------------------------------------------------------------- what is lost is told

FRUSTRATED = Ising(-1e16 * (np.ones((3, 3)) - np.eye(3)), [0.5, 0.0, 0.0])
# Both fields are large, and they cancel.
CANCELLING = Potts([[0.0, 1e16], [1e16, 0.0]], [[0.0, 1e16], [1e16, 0.3]])
QUESTIONS = {
    "marginals": exact.marginals,
    "joint": lambda target: exact.marginals(target, [0, 1]),
    "log_partition": exact.log_partition,
    "most_likely": exact.most_likely,
    "probabilities": exact.probabilities,
    "mutual_information": lambda target: exact.mutual_information(Sqrt(), target),
}


@pytest.mark.parametrize("target", [FRUSTRATED, CANCELLING], ids=["frustrated", "cancelling"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_that_may_be_wrong_are_told(target, question):
    with pytest.warns(PrecisionWarning, match="cancel.*may be wrong.*Give smaller") as seen:
        QUESTIONS[question](target)
    assert [w.filename for w in seen][:1] == [__file__]


@pytest.mark.parametrize("target", [FRUSTRATED, CANCELLING], ids=["frustrated", "cancelling"])
@pytest.mark.parametrize("sampler", [GibbsSampler, EliminationSampler, LSBSampler])
def test_draws_that_may_be_wrong_are_told_once(target, sampler):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        sampler(random_state=0).fit(target).sample(10)
    told = [str(w.message) for w in seen if w.category is PrecisionWarning]
    assert len(told) == 1
    assert "may be wrong" in told[0]
    assert "cancel" in told[0]


@pytest.mark.filterwarnings("ignore")
def test_what_is_right_is_told_too():
    with pytest.warns(PrecisionWarning, match="lp of draws.*draws themselves are right"):
        GibbsSampler("random", random_state=0).fit(pair(1e16))
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionWarning)
        GibbsSampler("random", random_state=0).fit(pair(1e9))
        exact.marginals(Ising(FRUSTRATED.couplings * 1e-7, FRUSTRATED.field))


@pytest.mark.filterwarnings("ignore")
def test_targets_without_factors_are_told():
    function = FunctionTarget(lambda x: 1e16 + 0.3 * x[..., 0], 3, vectorized=True)
    machine = RBM(1e16 * np.ones((3, 2)), np.zeros(3), np.zeros(2))
    for target in (function, machine):
        with pytest.warns(PrecisionWarning, match="draws may be wrong"):
            GibbsSampler("random", random_state=0).fit(target)
    with pytest.warns(PrecisionWarning, match="may be wrong"):
        exact.probabilities(function)


# ----------------------------------------------------------------- small probabilities


def by_fractions(cardinalities, factors):
    """Marginals of all variables in rational numbers."""
    sums = [[Fraction(0)] * k for k in cardinalities]
    for x in itertools.product(*map(range, cardinalities)):
        p = Fraction(1)
        for scope, table in factors:
            p *= Fraction(float(table[tuple(x[i] for i in scope)]))
        for i, v in enumerate(x):
            sums[i][v] += p
    return [[value / sum(row) for value in row] for row in sums]


@pytest.mark.parametrize("seed", range(12))
def test_probabilities_down_to_1e_minus_300(seed):
    rng = np.random.default_rng(seed)
    worst = 0.0
    for _ in range(8):
        n, decades = int(rng.integers(3, 7)), int(rng.choice([120, 200, 299]))
        scopes = [(i,) for i in range(n)] + [(i, i + 1) for i in range(n - 1)] + [(0, n - 1)]
        tables = [10.0 ** rng.uniform(-decades, decades, [2] * len(s)) for s in scopes]
        factors = list(zip(scopes, tables, strict=True))
        network, rows = MarkovNetwork([2] * n, factors), by_fractions([2] * n, factors)
        found = exact.marginals(network)["p"].values
        joint = exact.marginals(network, [0])["p"].values
        for p, row in ((found.ravel(), list(itertools.chain(*rows))), (joint, rows[0])):
            for mine, true in zip(p, row, strict=True):
                if true > Fraction(1, 10**300):
                    worst = max(worst, abs(float(Fraction(float(mine)) / true - 1)))
    assert worst < 1e-9


@pytest.mark.parametrize("size", [1e155, 1e301])
@pytest.mark.parametrize(
    "sampler", [GibbsSampler("random"), LSBSampler("barker", blocks=None), ParallelTempering()]
)
def test_no_warning_of_numpy_comes_with_large_couplings(sampler, size):
    """From uniform starts log p falls by a size whose square is no float."""
    couplings = np.random.default_rng(0).normal(size=(4, 4)) / 9
    target = Ising(size * np.triu(couplings, 1) + size * np.triu(couplings, 1).T, np.ones(4))
    sampler = clone(sampler).set_params(n_burn_in=0, init="uniform", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SamplerWarning)
        warnings.simplefilter("ignore", PrecisionWarning)
        sampler.fit(target).sample(300, stop=lambda run: run.ess > 1e9)
        moments = sampler.sample(300, record="moments")
    assert np.isfinite(moments["p"].values).all()

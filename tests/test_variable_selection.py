"""Variable selection: against quadrature, the formulas written out, and enumeration."""

import copy
import operator
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from enumerated_objectives import check_objectives
from local_step import check_sampler, production_matrix
from models import FUNCTIONS, pairs, uncached
from scipy.special import beta, logsumexp
from sklearn.datasets import load_diabetes

from sklsb import LSBSampler, VariableSelection, exact, testing
from sklsb._kernels.chains import chain_at
from sklsb._kernels.contract import flip
from sklsb._kernels.rules.balanced import Balanced
from sklsb.ensembles.compiled import Ensemble
from sklsb.exact.enumeration import neighbours
from sklsb.exceptions import ModelWarning, SamplerWarning
from sklsb.testing._probe import Probe, check_caches

EPS = np.finfo(float).eps
INF = np.inf
PRIORS = {
    "g": {},
    "g = 3": {"g": 3.0, "size_prior": (0.5, 2.0)},
    "independent": {"prior": "independent"},
    "wide slab": {"prior": "independent", "slab_sd": 20.0, "size_prior": (2, 3)},
}
every_prior = pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)


def data(n, p, seed=0, noise=1.0, correlation=0.5):
    """Correlated columns, of which every other one matters."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + correlation * rng.normal(size=(n, 1))
    return X, X[:, ::2].sum(axis=1) + noise * rng.normal(size=n) + 3.0


def model(n, p, seed=0, **prior):
    return VariableSelection(*data(n, p, seed), **prior)


def collinear(n=9, **prior):
    """The last column is the difference of the first two, and the one before twice the third."""
    X, y = data(n, 5)
    X[:, 4], X[:, 3] = X[:, 0] - X[:, 1], 2 * X[:, 2]
    return VariableSelection(X, y, **prior)


# ----------------------------------------------------------------- the marginal likelihood


def trapezoid(log_f, *axes):
    """Log of the integral of exp(log_f) over a grid; exact for what vanishes at its ends."""
    volume = np.prod([axis[1] - axis[0] for axis in axes])
    return logsumexp(log_f(*np.meshgrid(*axes, indexing="ij", sparse=True))) + np.log(volume)


def log_normal(x, variance):
    return -0.5 * x**2 / variance - 0.5 * np.log(2 * np.pi * variance)


@every_prior
def test_one_variable_by_quadrature(prior):
    """The Bayes factor, from integrals over intercept, coefficient and log sigma."""
    rng = np.random.default_rng(1)
    column = np.array([0.3, -1.2, 0.8, 2.1, -0.4, 0.9, -0.6])
    y = 0.7 + 0.5 * column + 0.6 * rng.normal(size=7)
    target = VariableSelection(column[:, None], y, **prior)
    centre = column - column.mean()
    if target.prior == "g":
        slab = target.g / (centre @ centre)
    else:
        slab = target.slab_sd**2

    def log_joint(log_sigma, intercept, *coefficient):
        """Intercept (less the mean of y) and coefficient in units of sigma; d sigma^2 / sigma^2."""
        sigma = np.exp(log_sigma)
        value = log_sigma  # of the flat intercept
        for c in coefficient:  # at most one
            value = value + log_normal(c, slab)
        for x_i, y_i in zip(centre, y - y.mean(), strict=True):
            mean = intercept + sum(c * x_i for c in coefficient)
            value = value + log_normal(y_i / sigma - mean, 1.0) - log_sigma
        return value

    log_sigma, intercept = np.linspace(-2.5, 6.0, 86), np.linspace(-4, 4, 25)
    empty = trapezoid(log_joint, log_sigma, intercept)
    one = trapezoid(log_joint, log_sigma, intercept, np.linspace(-25, 25, 251))
    a, b = target.size_prior
    odds = np.log(beta(1 + a, b) / beta(a, 1 + b))
    assert target.log_ratios([0])[0] == pytest.approx(one - empty + odds, abs=1e-9)


def literal_log_prob(X, y, x, *, prior="g", g=None, slab_sd=1.0, size_prior=(1.0, 1.0)):
    """The formulas of the class, from least squares and determinants."""
    n, p = X.shape
    k, (a, b) = int(np.sum(x)), size_prior
    columns = (X - X.mean(axis=0))[:, np.flatnonzero(x)]
    y = y - y.mean()
    result = np.log(beta(k + a, p - k + b) / beta(a, b))
    if prior == "g":
        g = n if g is None else g
        fitted = columns @ np.linalg.lstsq(columns, y)[0]
        unexplained = np.sum((y - fitted) ** 2) / np.sum(y**2)
        result += (n - 1 - k) / 2 * np.log1p(g) - (n - 1) / 2 * np.log1p(g * unexplained)
        return result
    m = np.eye(k) + slab_sd**2 * columns.T @ columns
    by_y = columns.T @ y
    explained = slab_sd**2 * by_y @ np.linalg.solve(m, by_y) / (y @ y)
    return result - 0.5 * np.linalg.slogdet(m)[1] - (n - 1) / 2 * np.log(1 - explained)


@every_prior
@pytest.mark.parametrize(("n", "p"), [(3, 1), (9, 1), (9, 4), (40, 6)])
def test_log_prob_and_log_ratios_are_the_formula(n, p, prior):
    X, y = data(n, p, seed=n)
    target = VariableSelection(X, y, **prior)
    states = exact.states(target)
    wanted = np.array([literal_log_prob(X, y, x, **prior) for x in states])
    np.testing.assert_allclose(target.log_prob(states), wanted, rtol=0, atol=1e-12 * n)
    ratios = wanted[neighbours(target)] - wanted[:, None]
    np.testing.assert_allclose(target.log_ratios(states), ratios, rtol=0, atol=1e-12 * n)


def test_the_prior_of_the_size():
    """Columns that say nothing have the prior: y is orthogonal to all."""
    X = np.linalg.qr(np.column_stack([np.ones(9), np.random.default_rng(0).normal(size=(9, 4))]))[0]
    y = np.linalg.svd(X)[0][:, -1]
    target = VariableSelection(X[:, 1:], y, prior="independent", slab_sd=1e-6)
    p = np.exp(target.log_prob(exact.states(target)))
    size = exact.states(target).sum(axis=1)
    np.testing.assert_allclose(np.bincount(size, p), np.full(5, 0.2), rtol=1e-9)


def test_leading_axes():
    target = model(20, 5)
    x = np.random.default_rng(0).integers(2, size=(4, 3, 5))
    assert target.log_prob(x).shape == (4, 3)
    assert target.log_ratios(x).shape == (4, 3, 5)
    np.testing.assert_allclose(target.log_prob(x[2, 1]), target.log_prob(x)[2, 1], rtol=1e-13)
    np.testing.assert_array_equal(target.log_ratios(x[2, 1]), target.log_ratios(x)[2, 1])
    assert target.log_ratios(np.empty((0, 5), dtype=int)).shape == (0, 5)


def test_many_models_in_batches(monkeypatch):
    target = model(20, 6)
    states = exact.states(target)
    wanted = target.log_prob(states)
    monkeypatch.setattr("sklsb.targets.variable_selection._BATCH", 100)
    np.testing.assert_allclose(target.log_prob(states), wanted, rtol=1e-13)


# ----------------------------------------------------------------- units


@every_prior
def test_units_that_do_not_matter(prior):
    X, y = data(30, 5)
    states = exact.states(target := VariableSelection(X, y, **prior))
    wanted = target.log_prob(states)
    others = [
        (X, y + 1e6),
        (X, -1e-150 * y),
        (X, 1e150 * y),
        (X + np.array([0, 1e3, 0, -1e3, 0]), y),
    ]
    if target.prior == "g":
        others += [(X * [1e-8, 1, -1e8, 1e-160, 1e160], y), (1e-310 * X, y)]
    for columns, response in others:
        found = VariableSelection(columns, response, **prior).log_prob(states)
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-9)


@every_prior
def test_extreme_columns(prior):
    X, y = data(30, 5)
    scale = [1e-8, 1, 1e8, 1e-160, 1] if "prior" not in prior else [1e-8, 1, 10, 1e-160, 1]
    testing.check_target(VariableSelection(X * scale, y, **prior))


# ----------------------------------------------------------------- conformance


@every_prior
@pytest.mark.parametrize(
    ("n", "p"), [(3, 1), (3, 4), (30, 2), (30, 10), (12, 60), (200, 70)], ids=str
)
def test_target(n, p, prior):
    testing.check_target(model(n, p, **prior))


@every_prior
def test_target_with_collinear_columns(prior):
    for n in (5, 9, 50):
        testing.check_target(collinear(n, **prior))


@every_prior
def test_target_without_noise(prior):
    X, _ = data(30, 6)
    target = VariableSelection(X, X[:, 0] - X[:, 2], **prior)
    testing.check_target(target)
    assert exact.states(target)[target.log_prob(exact.states(target)).argmax()].tolist() == [
        1, 0, 1, 0, 0, 0,
    ]  # fmt: skip


def exact_log_prob(X, y, x, g=None, slab_sd=None):
    """The formulas in rational numbers, but for the logarithms."""
    n, p = X.shape
    included = np.flatnonzero(x)
    rows = [[Fraction(v) for v in row] for row in np.column_stack([X[:, included], y]).tolist()]
    means = [sum(column) / n for column in zip(*rows, strict=True)]
    centred = [[v - m for v, m in zip(row, means, strict=True)] for row in rows]
    *columns, y = zip(*centred, strict=True)
    k, yy = len(columns), sum(v * v for v in y)
    scale = Fraction(g if slab_sd is None else slab_sd) ** (1 if slab_sd is None else 2)
    matrix = [[sum(map(operator.mul, a, b)) for b in (*columns, y)] for a in columns]
    if slab_sd is not None:
        matrix = [[scale * v + (i == j) for j, v in enumerate(row)] for i, row in enumerate(matrix)]
    det, explained = Fraction(1), Fraction(0)
    for i in range(k):
        pivot = matrix[i][i]
        det *= pivot
        explained += matrix[i][k] ** 2 / (pivot * yy)
        for row in matrix[i + 1 :]:
            factor = row[i] / pivot
            row[:] = [v - factor * w for v, w in zip(row, matrix[i], strict=True)]
    size = np.log(beta(k + 1, p - k + 1))
    if slab_sd is None:
        left = 1 + scale * (1 - explained)
        return size + (n - 1 - k) / 2 * np.log1p(g) - (n - 1) / 2 * np.log(float(left))
    # Both the matrix and the products with y were multiplied by the scale.
    left = 1 - explained / scale
    return size - 0.5 * np.log(float(det)) - (n - 1) / 2 * np.log(float(left))


ENDS = [{"g": 1e4}, {"g": 1e8}, *({"prior": "independent", "slab_sd": s} for s in (10.0, 500.0))]


@pytest.mark.parametrize("prior", ENDS, ids=str)
@pytest.mark.parametrize("noise", [1e-4, 1e-7])
@pytest.mark.parametrize("near", [1.0, 1e-2, 1e-5])
def test_rounding_is_as_declared(prior, noise, near):
    X, _ = data(40, 3)
    X[:, 1] = X[:, 0] + near * X[:, 1]
    y = X[:, 0] - X[:, 2] + noise * np.random.default_rng(1).normal(size=40)
    target = VariableSelection(X, y, **prior)
    states = exact.states(target)
    formula = {name: value for name, value in prior.items() if name != "prior"}
    wanted = np.array([exact_log_prob(X, y, x, **formula) for x in states])
    wanted = np.where(target.log_prob(states) > -np.inf, wanted, -np.inf)
    possible = np.isfinite(wanted)
    ratios = wanted[neighbours(target)][possible] - wanted[possible, None]
    np.testing.assert_allclose(target.log_prob(states), wanted, rtol=1e-11, atol=1e-9)
    for found in (target.log_ratios(states[possible]), kernel_ratios(target, states[possible])):
        np.testing.assert_allclose(found, ratios, rtol=0, atol=target.rounding)


@pytest.mark.parametrize("prior", [ENDS[1], ENDS[3]], ids=str)
def test_target_at_the_ends_of_the_parameters(prior):
    X, y = data(30, 6, noise=1e-4)
    testing.check_target(VariableSelection(X, y, **prior))
    smallest = {name: value if name == "prior" else 1e-12 for name, value in prior.items()}
    testing.check_target(VariableSelection(X, y, **smallest))


def test_diabetes():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    for prior in PRIORS.values():
        target = VariableSelection(X, y, **prior)
        testing.check_target(target)
    assert target.dims == ("feature",)
    assert target.coords["feature"].tolist() == list(X.columns)


# ----------------------------------------------------------------- impossible models


def kernel_ratios(target, states):
    return Probe(target, Balanced(FUNCTIONS["barker"].table()), states).walk(
        np.empty((len(states), 0), dtype=np.int64)
    )[1]


def test_collinear_and_large_models_have_probability_zero():
    target = collinear(n=50)
    states = exact.states(target)
    bad = states[:, [0, 1, 4]].all(axis=1) | states[:, [2, 3]].all(axis=1)
    np.testing.assert_array_equal(target.log_prob(states) == -INF, bad)
    target = model(5, 6)
    states = exact.states(target)
    np.testing.assert_array_equal(target.log_prob(states) == -INF, states.sum(axis=1) > 3)
    assert np.isnan(target.log_ratios(np.ones(6))).all()
    target = collinear(n=50, prior="independent")
    assert np.isfinite(target.log_prob(exact.states(target))).all()


@pytest.mark.parametrize("part", [0.03, 0.1, 0.5, 0.9, 1.5, 10.0])
def test_which_models_are_possible_does_not_depend_on_where_one_comes_from(part):
    """Of three columns nearly in a plane one has 100 times more of its own than the others."""
    X = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 5)))[0]
    X = np.linalg.qr(X - X.mean(axis=0))[0]
    distance = part * np.sqrt(1e-7)
    X[:, 2] = X[:, 0] + 0.1 * X[:, 1] + distance * X[:, 2]
    X[:, 3] = X[:, 0] + 3 * distance * X[:, 3]
    target = VariableSelection(X, data(40, 5)[1])
    states, to = exact.states(target), neighbours(target)
    possible = target.log_prob(states) > -INF
    assert (~possible).any() == (part < 1)
    for ratios in (kernel_ratios(target, states), target.log_ratios(states)):
        np.testing.assert_array_equal((ratios > -INF)[possible], possible[to][possible])
    # What is left out of a possible model leaves a possible one.
    for i in np.flatnonzero(possible):
        within = (states <= states[i]).all(axis=1)
        assert possible[within].all()


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("target", [collinear(), model(4, 4)], ids=["collinear", "large"])
def test_moves_into_impossible_models_have_probability_zero(target, function):
    possible = np.isfinite(target.log_prob(exact.states(target)))
    assert not possible.all()
    for matrix in (
        exact.transition_matrix(function, target),
        production_matrix(LSBSampler(function), target),
    ):
        assert np.all(matrix[np.ix_(possible, ~possible)] == 0.0)


def test_random_states_are_possible_and_small():
    rng = np.random.default_rng(0)
    for target, most in ((model(4, 30), 2), (collinear(), 3), (model(100, 40), 10)):
        states = np.array([target.draw_state(rng) for _ in range(300)])
        assert states.dtype == np.int8
        assert np.isfinite(target.log_prob(states)).all()
        assert set(states.sum(axis=1)) == set(range(most + 1))
        assert states.any(axis=0).all()


@every_prior
def test_evidence(prior):
    target = collinear(n=50, **prior).condition({1: 1, 2: 0})
    states = exact.states(target)
    log_p = target.log_prob(states)
    agree = (states[:, 1] == 1) & (states[:, 2] == 0)
    assert np.all(log_p[~agree] == -INF)
    assert np.array_equal(log_p[agree], target.target.log_prob(states[agree]))
    if target.target.prior == "g":
        message = "evidence includes 3 columns that are collinear or, with 50 rows, too many"
        with pytest.raises(ValueError, match=message):
            target.condition({0: 1, 4: 1}).draw_state(np.random.default_rng(0))


# ----------------------------------------------------------------- the kernel


@every_prior
def test_log_ratios_of_the_kernel_at_every_state(prior):
    for target in (model(30, 7, **prior), model(7, 7, **prior), collinear(**prior)):
        states = exact.states(target)
        states = states[target.log_prob(states) > -INF]
        found, wanted = kernel_ratios(target, states), target.log_ratios(states)
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-11)


@uncached
def _make(view, chains, moves):
    for c in range(moves.shape[0]):
        chain = chain_at(chains, c)
        for k in range(moves.shape[1]):
            flip(view, chain, np.uint64(moves[c, k]))


@every_prior
def test_any_way_to_a_state_gives_the_same_cache(prior):
    """Also through impossible models, and starting again where another state was."""
    target, rng = collinear(n=6, **prior), np.random.default_rng(0)
    states = exact.states(target)
    rule = Balanced(FUNCTIONS["barker"].table())

    def ensemble(states):
        made = Ensemble(target, states, [rng] * len(states))
        made.start(rule)
        return made

    one, other = ensemble(states), ensemble(rng.permutation(states))
    _make(one.view, one.chains, rng.integers(5, size=(len(states), 60)))
    other.chains.x[:] = one.chains.x
    other.start(rule)
    fresh = ensemble(one.chains.x)
    np.testing.assert_array_equal(one.chains.cache, fresh.chains.cache)
    np.testing.assert_array_equal(other.chains.cache, fresh.chains.cache)


LONG = {
    "many columns": model(60, 100),
    "more columns than rows": model(12, 60, prior="independent"),
    "few rows": model(8, 40, g=2.0),
}


@pytest.mark.parametrize("name", ["barker", "max"])
@pytest.mark.parametrize("target", LONG.values(), ids=LONG)
def test_caches_equal_a_rebuild_bit_for_bit(target, name):
    rng = np.random.default_rng(0)
    start = np.stack([target.draw_state(rng)])
    probe = Probe(target, Balanced(FUNCTIONS[name].table()), start)
    for _ in range(3):
        probe.ensemble.advance(rng.random((1, 5_000, 2)))
        check_caches(probe.ensemble, "in a long run")
        assert np.isfinite(target.log_prob(probe.chains.x)).all()
    assert np.any(probe.chains.x != start)


# ----------------------------------------------------------------- samplers


SMALL = {
    "g": model(12, 4),
    "independent": model(12, 5, prior="independent"),
    "collinear": collinear(),
    "few rows": model(4, 4),
}
SAMPLERS = {
    **{name: LSBSampler(name, n_burn_in=60) for name in ("barker", "sqrt", "min", "max")},
    "lazy": LSBSampler("max", n_burn_in=60, lazy=0.3),
}


@pytest.mark.parametrize(("sampler", "target"), pairs(SAMPLERS, SMALL))
def test_sampler(sampler, target):
    check_sampler(sampler, target)


# What learns compiles some kernels more.
@pytest.mark.slow
@pytest.mark.parametrize("target", SMALL.values(), ids=SMALL)
def test_sampler_that_learns(target):
    check_sampler(LSBSampler("mixture", n_burn_in=60), target)


# On five other views in the commit tier.
@pytest.mark.slow
@pytest.mark.parametrize("prior", [{}, {"prior": "independent"}], ids=str)
def test_objectives(prior):
    check_objectives(FUNCTIONS["bounded-network"], model(4, 3, **prior))


def drawn(sampler, n):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return sampler.sample(n)["x"].to_numpy().astype(float)


@every_prior
def test_inclusion_probabilities_of_diabetes(prior):
    """Against all 1,024 models, within the Monte Carlo error, which is enumerated too."""
    target, n = VariableSelection(*load_diabetes(return_X_y=True), **prior), 200_000
    sampler = LSBSampler("barker", random_state=0).fit(target)
    found = drawn(sampler, n).mean(axis=(0, 1))
    p = exact.probabilities(target)
    x = exact.states(target) - (wanted := p @ exact.states(target))
    matrix = exact.transition_matrix(sampler, target)
    solved = np.linalg.solve(np.eye(p.size) - matrix + p, x)
    error = np.sqrt(np.maximum(p @ (2 * x * solved - x**2), 0.0) / (sampler.n_chains * n))
    assert np.all(np.abs(found - wanted) <= 6.5 * error + 1e-12)
    assert np.abs(found - wanted).max() < 0.005


def test_true_columns_are_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 200))
    true = rng.permutation(200)[:12]
    target = VariableSelection(X, X[:, true].sum(axis=1) + rng.normal(size=300))
    sampler = LSBSampler("barker", n_chains=2, random_state=0).fit(target)
    probability = drawn(sampler, 3000).mean(axis=(0, 1))
    assert set(np.flatnonzero(probability > 0.9)) == set(true)


# ----------------------------------------------------------------- as an object


def test_names_of_the_columns():
    X, y = data(9, 3)
    frame = pd.DataFrame(X, columns=["age", "height", "size"])
    target = VariableSelection(frame, pd.Series(y))
    draws = LSBSampler("sqrt", n_burn_in=50, random_state=0).fit(target).sample(10)
    assert draws["x"].dims == ("chain", "draw", "feature")
    assert draws["feature"].values.tolist() == ["age", "height", "size"]
    np.testing.assert_array_equal(target.view().gram, VariableSelection(X, y).view().gram)
    frame.columns = ["age", 1, "size"]
    assert VariableSelection(frame, y).coords["feature"].tolist() == ["age", "1", "size"]
    frame.columns = ["age", "size", "size"]
    with pytest.raises(ValueError, match=r"X has 2 columns called 'size'; give each .*X.to_numpy"):
        VariableSelection(frame, y)
    assert VariableSelection(frame.to_numpy(), y).coords["feature"].tolist() == [0, 1, 2]


def test_repr_pickle_copy_and_read_only_arrays():
    X, y = data(9, 3)
    target = VariableSelection(X, y, prior="independent", slab_sd=2)
    assert repr(target) == "VariableSelection(3 columns, 9 rows, slab_sd=2)"
    assert repr(VariableSelection(X, y)) == "VariableSelection(3 columns, 9 rows, g=9)"
    LSBSampler("sqrt", n_burn_in=5, random_state=0).fit(target)
    states = exact.states(target)
    before = target.log_prob(states)
    X[:] = 0.0
    for other in (target, pickle.loads(pickle.dumps(target)), copy.deepcopy(target)):
        np.testing.assert_array_equal(other.log_prob(states), before)
        with pytest.raises(ValueError, match="read-only"):
            other._data[0, 0] = 3.0
    assert (target.g, target.slab_sd, target.size_prior) == (None, 2.0, (1.0, 1.0))
    assert (target.n_samples, target.n_sites, target.values) == (9, 3, (0, 1))


# ----------------------------------------------------------------- errors


X, Y = data(6, 2)
CONSTANT = np.column_stack([X, np.full(6, 0.1)])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: VariableSelection(Y, Y), ValueError, r"X has shape \(6,\); it must have shape"),
        (lambda: VariableSelection(X[:2], Y[:2]), ValueError, r"\(2, 2\).* at least 3 rows"),
        (lambda: VariableSelection(X[:, :0], Y), ValueError, r"\(6, 0\); .* and 1 column"),
        (
            lambda: VariableSelection(X, Y[:5]),
            ValueError,
            r"y has shape \(5,\); it must have one number for each of the 6 rows of X",
        ),
        (lambda: VariableSelection(X, Y[:, None]), ValueError, r"y has shape \(6, 1\)"),
        (lambda: VariableSelection([[1], [2, 3]], Y), ValueError, "X is not an array of numbers"),
        (lambda: VariableSelection(X.astype(str), Y), TypeError, "X has dtype <U.*give real num"),
        (lambda: VariableSelection(X, Y * 1j), TypeError, "y has dtype complex128; give real num"),
        (
            lambda: VariableSelection(
                X + np.where(np.arange(12).reshape(6, 2) == 7, np.nan, 0.0), Y
            ),
            ValueError,
            r"X\[3, 1\] is nan; it must be finite",
        ),
        (
            lambda: VariableSelection(X, Y + np.where(np.arange(6) == 2, INF, 0.0)),
            ValueError,
            r"y\[2\] is inf; it must be finite",
        ),
        (
            lambda: VariableSelection(CONSTANT, Y),
            ValueError,
            "column 2 of X is constant; leave it out: the model has an intercept",
        ),
        (
            lambda: VariableSelection(X, np.full(6, 0.1)),
            ValueError,
            r"y is constant \(0\.1\): there is nothing to explain",
        ),
        (
            lambda: VariableSelection(X, Y, prior="zellner"),
            ValueError,
            'prior is \'zellner\'; give "g" or "independent"',
        ),
        (
            lambda: VariableSelection(X, Y, slab_sd=1.0),
            ValueError,
            r"slab_sd is 1\.0, but the prior 'g' has none; leave it out",
        ),
        (
            lambda: VariableSelection(X, Y, prior="independent", g=6),
            ValueError,
            "g is 6, but the prior 'independent' has none",
        ),
        (lambda: VariableSelection(X, Y, g=0), ValueError, "g is 0; it must be a positive number"),
        (lambda: VariableSelection(X, Y, g="n"), ValueError, "g is 'n'; it must be a positive"),
        (lambda: VariableSelection(X, Y, g=1e11), ValueError, r"1e11|1000.*; .* at most 1e\+08"),
        (
            lambda: VariableSelection(X, Y, prior="independent", slab_sd=-1),
            ValueError,
            "slab_sd is -1; it must be a positive number",
        ),
        (
            lambda: VariableSelection(X * [1, 1e6], Y, prior="independent"),
            ValueError,
            r"squares of column 1 of X, centred, is .*e\+12; it must be at most 1e\+08. Stand",
        ),
        (
            lambda: VariableSelection(X * [1e200, 1], Y, prior="independent"),
            ValueError,
            "squares of column 0 of X, centred, is inf",
        ),
        (lambda: VariableSelection(X, Y, size_prior=1.0), ValueError, r"size_prior is 1\.0; give"),
        (
            lambda: VariableSelection(X, Y, size_prior=(1, 0)),
            ValueError,
            r"size_prior\[1\] is 0; it must be a positive number",
        ),
    ],
)
def test_errors_name_what_was_given(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("y", "values"),
    [
        (np.median(Y) < Y, "0 and 1"),
        ((np.median(Y) < Y).astype(int), "0 and 1"),
        (np.where(Y > 3.0, 1.0, -1.0), "-1 and 1"),
    ],
    ids=["bool", "0 and 1", "-1 and 1"],
)
def test_classes_are_told_from_measurements(y, values):
    with pytest.warns(ModelWarning, match=f"y has two values only, {values}.*Gaussian") as seen:
        target = VariableSelection(X, y)
    assert seen[0].filename == __file__
    # It is taken for measurements all the same, whatever their unit.
    x = [[0, 0], [1, 0], [1, 1]]
    with pytest.warns(ModelWarning, match="two values only"):
        same = VariableSelection(X, 3.0 * y + 1.0)
    np.testing.assert_allclose(target.log_prob(x), same.log_prob(x), rtol=1e-12)


@pytest.mark.parametrize("x", [[0, 2], [-1, 0], [0.5, 1]], ids=str)
def test_wrong_states_are_refused(x):
    target = VariableSelection(X, Y)
    for method in (target.log_prob, target.log_ratios):
        with pytest.raises(ValueError, match=r"every variable of this target takes .* \(0, 1\)"):
            method(x)

"""Spike and slab: probabilities against enumeration, the estimator's interface, its warnings."""

import itertools
import math
import pickle
import re
import signal
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import betaln, softmax
from sklearn.base import clone
from sklearn.feature_selection import SelectFromModel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from sklsb import SpikeSlabClassifier, SpikeSlabRegressor, VariableSelection
from sklsb._kernels.selection.process import run_window
from sklsb._kernels.selection.state import FRESH, K_COLUMNS, Rates
from sklsb.exceptions import (
    InterruptedWarning,
    ModelWarning,
    SeparatedModesWarning,
    ShortRunWarning,
)
from sklsb.selection import chains as chains_module
from sklsb.selection import search as search_module
from sklsb.selection import starts
from sklsb.selection.chains import Chain, Pace, Plan, new_batches, new_models, new_sums, set_window
from sklsb.selection.problem import Inclusion, Prior, linear_problem


@pytest.fixture(autouse=True)
def chains(monkeypatch):
    """Let chains run where models are so few that they would be enumerated."""
    monkeypatch.setattr(search_module, "MOST_UNITS", 0)


def data(n=40, p=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[:, 1] = X[:, 0] + 0.4 * rng.normal(size=n)
    return X, 0.7 * X[:, 0] + 0.5 * X[:, 3] - 0.4 * X[:, 5] + rng.normal(size=n) + 3.0


def enumerated(X, y, prior, weight=None, always=(), groups=None, g=None, chance=None):
    """Probabilities, coefficients and noise from all models, by least squares on given rows."""
    if weight is not None:
        X, y = np.repeat(X, weight, axis=0), np.repeat(y, weight)
    n, p = X.shape
    labels = np.arange(p) if groups is None else np.asarray(groups)
    free = [j for j in range(p) if j not in always]
    units = [[j for j in free if labels[j] == label] for label in dict.fromkeys(labels[free])]
    F = np.column_stack([np.ones(n), X[:, list(always)]])
    Q = np.linalg.qr(F)[0]
    Z, r = X - Q @ (Q.T @ X), y - Q @ (Q.T @ y)
    df = n - F.shape[1]
    # Standardised: the slab is that of columns divided by their standard deviations.
    sd = X.std(axis=0)
    g = g or n
    logs, pips, coefs, noise = [], [], [], []
    for x in itertools.product((0, 1), repeat=len(units)):
        columns = [j for unit, inside in zip(units, x, strict=True) if inside for j in unit]
        A, k = Z[:, columns], len(columns)
        M = A.T @ A
        if prior == "g":
            b = g / (1 + g) * np.linalg.solve(M, A.T @ r)
            log_p = -0.5 * k * math.log1p(g)
        else:
            M = M + np.diag(sd[columns] ** 2)
            b = np.linalg.solve(M, A.T @ r)
            log_p = -0.5 * (np.linalg.slogdet(M)[1] - 2 * np.log(sd[columns]).sum())
        error = r @ r - b @ (A.T @ r)
        log_p -= 0.5 * df * math.log(error)
        if chance is None:
            log_p += betaln(sum(x) + 1, len(units) - sum(x) + 1)
        else:
            log_p += np.log(np.where(x, chance, 1 - np.asarray(chance))).sum()
        coef, pip = np.zeros(p), np.zeros(p)
        coef[columns], pip[columns] = b, 1.0
        logs.append(log_p), pips.append(pip), coefs.append(coef), noise.append(error / (df - 2))
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    pip, coef = weights @ np.array(pips), weights @ np.array(coefs)
    pip[list(always)] = 1.0
    flat = np.linalg.lstsq(F, y - X @ coef, rcond=None)[0]
    coef[list(always)] = flat[1:]
    return pip, coef, flat[0], weights


CASES = {
    "g": {"prior": "g"},
    "independent": {"prior": "independent"},
    "weights": {"prior": "g", "weight": np.arange(40) % 3},
    "always": {"prior": "independent", "always": (2, 3)},
    "groups": {"prior": "g", "groups": [0, 1, 0, 2, 3, 4, 2, 2, 5, 6, 7, 8]},
    "groups of the other prior": {
        "prior": "independent",
        "groups": [0, 1, 0, 2, 3, 4, 2, 2, 5, 6, 7, 8],
        "always": (9,),
    },
    "chances": {"prior": "g", "g": 9.0, "chance": np.linspace(0.1, 0.7, 12)},
}


@cache
def solved(case):
    """Data of a case, and what all models say; made once."""
    X, y = data()
    if "always" in CASES[case]:  # of columns less is left, but the slab is that of the whole ones
        X[:, CASES[case]["always"][0]] += X[:, 4] + X[:, 6]
    return X, y, enumerated(X, y, **CASES[case])


# Runs in windows are longer.
@pytest.mark.parametrize(
    ("case", "windows"),
    [
        *((case, False) for case in CASES),
        *((case, True) for case in ("g", "independent", "always", "groups")),
        *(
            pytest.param(case, True, marks=pytest.mark.slow)
            for case in ("weights", "groups of the other prior", "chances")
        ),
    ],
)
def test_probabilities_are_those_of_all_models(case, windows):
    settings = dict(CASES[case])
    X, y, (pip, coef, intercept, _) = solved(case)
    weight, chance = settings.pop("weight", None), settings.pop("chance", None)
    model = SpikeSlabRegressor(
        inclusion_prior=chance,
        subset_size=5 if windows else "auto",
        tol=0.006,
        random_state=1,
        **settings,
    ).fit(X, y, sample_weight=weight)
    assert model.converged_
    assert model._plan.n_rest == (4 if windows else 0)
    errors = np.abs(model.inclusion_probabilities_ - pip)
    assert (errors <= 4 * model.inclusion_mcse_ + 1e-9).all(), errors / model.inclusion_mcse_
    assert np.abs(model.coef_ - coef).max() < 0.02
    assert model.intercept_ == pytest.approx(intercept, abs=0.01)


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("pair", [(1.0, 0.3), (1.0, 0.0), (0.05, 1.0)])
def test_every_rate_and_power_keeps_the_posterior(pair, power, monkeypatch):
    X, y = data(p=8)
    pip = enumerated(X, y, "g")[0]
    monkeypatch.setattr(search_module, "RATES", pair)
    model = SpikeSlabRegressor(tempering=power, random_state=2, tol=0.003).fit(X, y)
    assert (model._plan.rates.barker, model._plan.rates.leave) == pair
    assert model._plan.rates.power == power
    errors = np.abs(model.inclusion_probabilities_ - pip)
    assert (errors <= 4 * model.inclusion_mcse_ + 1e-9).all(), errors / model.inclusion_mcse_


def check_huge_odds(seed, tempering=1.0, tol=0.004):
    """Log-odds above 700, between which a chain chooses each time it leaves an essential column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(5000, 5))
    X[:, 0] = X[:, 1] + X[:, 2] + 0.06 * X[:, 0]
    y = 0.5 * (X[:, 0] + X[:, 1] + X[:, 2]) + rng.normal(size=5000)
    pip, _, _, weights = enumerated(X, y, "g")
    sizes = np.bincount([sum(x) for x in itertools.product((0, 1), repeat=5)], weights)
    model = SpikeSlabRegressor(n_chains=2, tol=tol, tempering=tempering, random_state=seed).fit(
        X, y
    )
    errors = np.abs(model.inclusion_probabilities_ - pip)
    assert (errors <= 4 * model.inclusion_mcse_ + 1e-6).all(), errors / model.inclusion_mcse_
    assert np.abs(model.model_sizes_ - sizes).max() < 0.04


@pytest.mark.parametrize("tempering", [1.0, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_huge_odds(seed, tempering):
    check_huge_odds(seed, tempering)


def check_better_models_found_late(monkeypatch):
    """Weights that would overflow, since no model as good was seen, are scaled anew."""
    rates = search_module.Search._rates
    n_calls = []

    def short(self, power):
        found = rates(self, power)
        n_calls.append(power)
        return found._replace(shift=found.shift - 2000.0) if len(n_calls) == 1 else found

    monkeypatch.setattr(search_module.Search, "_rates", short)
    check_huge_odds(3, 0.5, tol=0.02)
    assert len(n_calls) > 3


def test_better_models_found_late(monkeypatch):
    check_better_models_found_late(monkeypatch)


def test_intervals_cover():
    X, y = data(p=6)
    pip = enumerated(X, y, "g")[0]
    inside = []
    for seed in range(25):
        model = SpikeSlabRegressor(n_chains=2, random_state=seed, tol=0.1).fit(X, y)
        errors = np.abs(model.inclusion_probabilities_ - pip)
        inside.append(errors <= 1.96 * model.inclusion_mcse_)
    assert 0.86 <= np.mean(inside) <= 0.99


def test_errors_of_ratios():
    """Of batches that depend on their neighbours; and chains that differ are told."""
    rng = np.random.default_rng(0)

    def batches(mean):
        noise = rng.normal(size=(33, 50))
        made = new_batches(50)
        time = rng.uniform(0.8, 1.2, size=(32, 50))
        # Neighbours have a correlation of almost one half.
        depart = 0.02 * (noise[1:] + 0.9 * noise[:-1])
        for both in zip(time * mean + depart, time, strict=True):
            made.add_draw(np.array(both))
        return made

    found = [search_module.estimate([batches(0.3), batches(0.3)]) for _ in range(20)]
    spread = np.std([one.share for one in found])
    ratio = np.mean([one.mcse for one in found]) / spread
    assert 0.88 < ratio < 1.15, "errors are too small or too large"
    assert np.mean([one.disagree.any() for one in found]) <= 0.1
    apart = search_module.estimate([batches(0.3), batches(0.4)])
    assert apart.disagree.all(), "untold"
    assert (apart.mcse > 0.03).all()


def test_models_sizes_and_noise():
    X, y = data(p=6)
    pip, _, _, weights = enumerated(X, y, "g")
    model = SpikeSlabRegressor(random_state=0, tol=0.004).fit(X, y)
    masks = list(itertools.product((0, 1), repeat=6))
    exact = {tuple(np.flatnonzero(x).tolist()): w for x, w in zip(masks, weights, strict=True)}
    assert sum(p for _, p in model.models_) == pytest.approx(1.0, abs=1e-6)
    for members, probability in model.models_:
        assert probability == pytest.approx(exact[members], abs=0.02)
    sizes = np.bincount([sum(x) for x in masks], weights)
    assert model.model_sizes_ == pytest.approx(sizes, abs=0.02)
    assert model.model_sizes_ @ np.arange(7) == pytest.approx(pip.sum(), abs=0.05)
    draws = model.sample_posterior(400, random_state=1).posterior
    assert float(draws["sigma"].mean()) == pytest.approx(model.sigma_, rel=0.02)
    sd = model.coef_sd_
    assert np.abs(draws["coef"].mean(("chain", "draw")).values - model.coef_).max() < 0.2 * sd.max()
    assert draws["coef"].std(("chain", "draw")).values == pytest.approx(sd, rel=0.2)
    positive = (draws["coef"] > 0).sum(("chain", "draw")) / draws["included"].sum(("chain", "draw"))
    assert np.abs(positive.values - model.positive_probability_).max() < 0.15
    assert draws["intercept"].dims == ("chain", "draw")


def test_sparse_columns_are_as_dense_ones():
    X, y = data()
    X[np.abs(X) < 0.8] = 0.0
    weight = np.arange(40) % 3
    dense = SpikeSlabRegressor(always=(4,), random_state=0).fit(X, y, weight)
    for kind in (sparse.csr_array, sparse.csc_matrix):
        found = SpikeSlabRegressor(always=(4,), random_state=0).fit(kind(X), y, weight)
        assert found.inclusion_probabilities_ == pytest.approx(dense.inclusion_probabilities_)
        assert found.coef_ == pytest.approx(dense.coef_)
        mean, sd = found.predict(kind(X), return_std=True)
        assert [mean, sd] == pytest.approx(np.array(dense.predict(X, return_std=True)))


def test_entries_in_several_parts_are_added():
    X, y = data()
    X[np.abs(X) < 0.8] = 0.0
    whole = sparse.csc_array(X)
    ends = 2 * whole.indptr
    parts = np.stack([5 * whole.data, -4 * whole.data], axis=1).ravel()
    twice = sparse.csc_array((parts, np.repeat(whole.indices, 2), ends), X.shape)
    found, wanted = (SpikeSlabRegressor(random_state=0).fit(x, y) for x in (twice, whole))
    assert twice.nnz == 2 * whole.nnz  # it is the caller's
    for name in ("scale_", "inclusion_probabilities_", "coef_"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-9)


def test_predictions():
    X, y = data()
    model = SpikeSlabRegressor(always=(4,), random_state=0).fit(X, y)
    mean, sd = model.predict(X, return_std=True)
    assert mean == pytest.approx(X @ model.coef_ + model.intercept_)
    draws = model.sample_posterior(500).posterior
    lines = draws["coef"].values @ X.T + draws["intercept"].values[..., None]
    noise = (draws["sigma"].values ** 2).mean()
    assert sd == pytest.approx(np.sqrt(lines.var(axis=(0, 1)) + noise), rel=0.1)
    median = model.predict(X, estimator="mpm")
    chosen = np.flatnonzero(model.get_support())
    others = [j for j in chosen if j != 4]
    F = np.column_stack([np.ones(40), X[:, 4]])
    project = np.eye(40) - F @ np.linalg.pinv(F)
    b = 40 / 41 * np.linalg.lstsq(project @ X[:, others], project @ y, rcond=None)[0]
    rest = y - X[:, others] @ b
    assert median == pytest.approx(X[:, others] @ b + F @ np.linalg.lstsq(F, rest, rcond=None)[0])
    assert model.predict(X, estimator="hpm", return_std=True)[1].shape == (40,)
    with pytest.raises(ValueError, match="estimator is 'best'; it must be one of"):
        model.predict(X, estimator="best")


@pytest.mark.filterwarnings("ignore:No features were selected")
@pytest.mark.filterwarnings("ignore:y has two values only")
def test_check_estimator(monkeypatch):
    monkeypatch.setattr(Chain, "pace", Pace(2_000, 10, 10, 2, 1))  # it makes a hundred fits
    check_estimator(SpikeSlabRegressor(random_state=0, n_chains=2, tol=0.5), on_skip=None)


def test_selectors_names_and_pickles():
    pd = pytest.importorskip("pandas", reason="columns have names in a data frame")
    X, y = data()
    frame = pd.DataFrame(X, columns=[f"gene{j}" for j in range(12)])
    model = SpikeSlabRegressor(always=["gene4"], random_state=0).set_output(transform="pandas")
    model.fit(frame, y)
    assert model.inclusion_probabilities_[4] == 1.0
    chosen = [f"gene{j}" for j in np.flatnonzero(model.get_support())]
    assert model.transform(frame).columns.tolist() == chosen
    assert model.get_support(indices=True, threshold=0.0).tolist() == list(range(12))
    table = model.summary()
    assert table.index[0] == "gene4"
    assert table.loc["gene3", "mcse"] == model.inclusion_mcse_[3]
    assert "odds_ratio" not in table
    in_units = model.summary(standardized=True)["mean"] / table["mean"]
    np.testing.assert_allclose(in_units["gene3"], X[:, 3].std())
    with pytest.raises(ValueError, match="there are odds of classes only"):
        model.plot.coefficients(odds_ratios=True)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(frame, return_std=True), model.predict(frame, True))
    line = make_pipeline(
        StandardScaler(), SelectFromModel(clone(model).set_params(always=()), threshold=0.1)
    )
    assert line.fit(X[:, :5], y).transform(X[:, :5]).shape[0] == 40
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"gene0": "other"}))


def test_seeds_and_threads():
    X, y = data()
    one, two, other = (
        SpikeSlabRegressor(random_state=seed, n_jobs=jobs, subset_size=6).fit(X, y)
        for seed, jobs in ((0, None), (0, -1), (1, None))
    )
    assert np.array_equal(one.inclusion_probabilities_, two.inclusion_probabilities_)
    assert np.array_equal(one.coef_sd_, two.coef_sd_)
    assert not np.array_equal(one.inclusion_probabilities_, other.inclusion_probabilities_)


def test_warm_start_begins_at_the_last_models(monkeypatch):
    X, y = data()
    model = SpikeSlabRegressor(random_state=0, warm_start=True).fit(X, y)
    last, seen = model._last_models, []
    start = search_module.Search.start
    monkeypatch.setattr(
        search_module.Search,
        "start",
        lambda self, units: (seen.append(units), start(self, units))[1],
    )
    model.fit(X, y)
    assert [units.tolist() for units in seen[0]] == [units.tolist() for units in last]


def test_what_is_kept_equals_a_rebuild():
    X, y = data(n=60, p=30)
    kept = []
    original = search_module.Search.run

    def run(self, *arguments, **options):
        kept.append(self)
        return original(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module.Search, "run", run)
        SpikeSlabRegressor(random_state=0).fit(X, y)
    for chain in kept[0].chains:
        window, problem = chain.window, kept[0].problem
        u, v, inverse = window.u.copy(), window.v.copy(), window.inverse.copy()
        k = window.size[K_COLUMNS]
        window.size[FRESH] = 1
        sums, table, rates = new_sums(problem), new_models(problem), kept[0].plan.rates
        columns, posterior = problem.columns, problem.posterior
        run_window(columns, posterior, rates, window, sums, table, np.zeros(2))  # for no time
        out = np.setdiff1d(np.arange(30), window.included[:k])
        assert np.abs(u - window.u)[out].max() < 1e-11
        assert np.abs(v - window.v)[out].max() < 1e-11
        assert np.abs(inverse - window.inverse)[:k, :k].max(initial=0) < 1e-9
        set_window(problem, window, np.arange(30), chain.units)


def check_full_table(monkeypatch):
    """A table of models that is full keeps those where the chain was longest."""
    monkeypatch.setattr(chains_module, "_N_MODELS", 16)
    X, y = data(p=7)
    nothing, units = np.empty(0, dtype=np.int64), [np.array([j]) for j in range(7)]
    prior = Prior("g", 40.0, 1.0, Inclusion((1.0, 1.0)))
    problem = linear_problem(X, y, np.ones(40), units, nothing, prior, True, range(7))
    chain = Chain(problem, np.random.default_rng(0), nothing)
    for _ in range(60):
        chain.sweep(Plan(nothing, 0, 3.0, 1, Rates(1.0, 0.3, 1.0, 0.0)))
        assert 4 * chain.models.n_kept[0] < 3 * 16
    weights = enumerated(X, y, "g")[3]
    best = list(itertools.product((0, 1), repeat=7))[int(weights.argmax())]
    found, share = chain.most_visited()
    assert found.tolist() == np.flatnonzero(best).tolist(), "the best model is lost"
    assert share == pytest.approx(weights.max(), abs=0.3 * weights.max())


def test_a_full_table_keeps_the_best_models(monkeypatch):
    check_full_table(monkeypatch)


# ----------------------------------------------------------------- all models, and hidden ones


@pytest.mark.parametrize("case", CASES)
def test_few_models_are_enumerated(case, monkeypatch):
    settings = dict(CASES[case])
    X, y, (pip, coef, intercept, weights) = solved(case)
    chance, weight = settings.pop("chance", None), settings.pop("weight", None)
    make = {"inclusion_prior": chance, "random_state": 1} | settings
    long = SpikeSlabRegressor(tol=0.004, **make).fit(X, y, weight)
    monkeypatch.setattr(search_module, "MOST_UNITS", 13)
    for kind in (np.asarray, sparse.csc_array):
        model = SpikeSlabRegressor(**make).fit(kind(X), y, weight)
        np.testing.assert_allclose(model.inclusion_probabilities_, pip, atol=1e-9)
        np.testing.assert_allclose(model.coef_, coef, atol=1e-9)
        assert model.intercept_ == pytest.approx(intercept, abs=1e-9)
        assert model.models_[0][1] == pytest.approx(weights.max(), abs=1e-9)
        assert model.converged_
        assert not model.inclusion_mcse_.any()
        assert model.n_iter_ == 0
    # The rest is that of long chains.
    assert model.sigma_ == pytest.approx(long.sigma_, rel=0.01)
    for name in ("coef_sd_", "positive_probability_", "coef_conditional_"):
        np.testing.assert_allclose(getattr(model, name), getattr(long, name), atol=0.05)
    np.testing.assert_allclose(model.model_sizes_, long.model_sizes_, atol=0.03)
    kept = model.sample_posterior(250)["posterior"]["included"].mean(("chain", "draw"))
    np.testing.assert_allclose(kept, pip, atol=0.06)


@pytest.mark.parametrize("seed", [0, 2])
def test_counted_rows_that_a_model_explains_are_enumerated(seed, monkeypatch):
    """All columns together explain all rows; no fewer do, and no chain finds the way there."""
    monkeypatch.setattr(search_module, "MOST_UNITS", 13)
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(11, 10)), rng.normal(size=11)
    weight = np.repeat([2, 1], [5, 6])
    pip = enumerated(X, y, "g", weight, g=1e4)[0]
    model = SpikeSlabRegressor(g=1e4, random_state=0).fit(X, y, weight)
    np.testing.assert_allclose(model.inclusion_probabilities_, pip, atol=1e-6)
    assert pip.min() > 0.99


def test_weights_that_are_no_whole_number_of_rows_allow_the_largest_model(monkeypatch):
    """Of 5.4 rows a g prior has models of up to four columns beside the intercept, not three."""
    monkeypatch.setattr(search_module, "MOST_UNITS", 13)
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(6, 4)), rng.normal(size=6)
    Z, r = X - X.mean(axis=0), y - y.mean()
    logs = np.full(5, -np.inf)
    for x in itertools.product((False, True), repeat=4):
        k, A = sum(x), Z[:, np.array(x)]
        error = 0.9 * (r @ r - 50 / 51 * (A @ np.linalg.lstsq(A, r, rcond=None)[0]) @ r)
        log_p = betaln(k + 1, 5 - k) - 0.5 * k * math.log(51) - 0.5 * 4.4 * math.log(error)
        logs[k] = np.logaddexp(logs[k], log_p)
    model = SpikeSlabRegressor(g=50.0, random_state=0).fit(X, y, np.full(6, 0.9))
    np.testing.assert_allclose(model.model_sizes_, softmax(logs), atol=1e-9)
    assert model.model_sizes_[4] > 0.01


def common(k, p, n, seed):
    """Columns of which none says anything alone: their common part, of which y is, is taken out."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, k))
    u = Z.mean(axis=1, keepdims=True)
    X = np.column_stack([Z - 0.9 * u, rng.normal(size=(n, p - k))])
    return X, k**0.5 * u[:, 0] + 0.2 * rng.normal(size=n)


def twins(p, n, seed, of=((0, 1),)):
    """Pairs of columns that are nearly the same; y is of their differences."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, p)), 0.5 * rng.normal(size=n)
    for i, j in of:
        y += X[:, j]
        X[:, j] = X[:, i] + 0.05 * X[:, j]
    return X, y


def check_hidden(seed):
    """Supports that no single column shows."""
    for hidden, (X, y), options in (
        (range(6), common(6, 30, 100, seed), {}),
        (range(6), common(6, 40, 60, seed), {"prior": "independent", "slab_sd": 5.0}),
        ((0, 1), twins(600, 100, seed), {}),
        ((0, 1, 2, 3), twins(400, 150, seed, ((0, 1), (2, 3))), {}),
    ):
        model = SpikeSlabRegressor(random_state=seed, **options).fit(X, y)
        found = model.inclusion_probabilities_[list(hidden)]
        assert found.min() > 0.9, f"missed: {found}"
        assert model.converged_


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_supports_that_no_single_column_shows(seed):
    check_hidden(seed)


def test_groups_that_no_single_one_shows():
    X, y = common(6, 30, 100, 0)
    labels = np.arange(30)
    labels[[0, 1]], labels[[10, 11, 12]] = 0, 10
    for kind in (np.asarray, sparse.csc_array):
        model = SpikeSlabRegressor(groups=labels, random_state=0).fit(kind(X), y)
        assert model.inclusion_probabilities_[:6].min() > 0.9


def test_pairs_among_many_columns(monkeypatch):
    """A sketch of the rows finds what a comparison of all of them does."""
    X, y = twins(1500, 100, 0, ((3, 1400),))
    units, nothing = [np.array([j]) for j in range(1500)], np.empty(0, dtype=np.int64)
    prior = Prior("g", 100.0, 1.0, Inclusion((1.0, 1.0)))
    for made in (X, sparse.csc_array(X)):
        problem = linear_problem(made, y, np.ones(100), units, nothing, prior, True, range(1500))
        for work in (4e9, 0.0):
            monkeypatch.setattr(starts, "_PAIR_WORK", work)
            assert starts.models_with_pairs(problem, nothing)[0].tolist() == [3, 1400]


@pytest.mark.parametrize("options", [{}, {"prior": "independent", "always": (2,)}])
@pytest.mark.parametrize("groups", [None, CASES["groups"]["groups"]])
def test_log_p_of_models_is_that_of_the_kernels(options, groups, monkeypatch):
    kept, keep = [], SpikeSlabRegressor._keep
    monkeypatch.setattr(
        SpikeSlabRegressor, "_keep", lambda self, s, unit: (kept.append(s), keep(self, s, unit))[1]
    )
    SpikeSlabRegressor(random_state=0, tol=0.5, groups=groups, **options).fit(*data())
    problem, table = kept[0].problem, kept[0].chains[0].models
    rows = np.flatnonzero(table.key)[:30]
    found = [problem.log_p(np.sort(table.units[i, : table.size[i]]).astype(int)) for i in rows]
    np.testing.assert_allclose(np.diff(found), np.diff(table.log_p[rows]), atol=1e-8)


# ----------------------------------------------------------------- what is told


def test_what_a_ridge_regression_says_more_is_told(monkeypatch):
    X, y = common(6, 30, 100, 0)
    monkeypatch.setattr(search_module, "better_model", lambda problem, model, _: (-np.inf, model))
    monkeypatch.setattr(search_module, "largest_of_path", lambda _: np.empty(0, dtype=np.int64))
    with pytest.warns(SeparatedModesWarning, match=r"explains 0\.\d+ of the response in rows that"):
        model = SpikeSlabRegressor(random_state=0, n_chains=2).fit(X, y)
    assert not model.converged_


def test_a_default_fit_ends(monkeypatch):
    """Without ``max_time``, after so many times the work of the first look; progress is shown."""
    monkeypatch.setattr("sklsb.selection.search.LONGEST", 3.0)
    monkeypatch.setattr("sklsb.selection.base.LONGEST", 3.0)
    X, y = data(p=20)
    with pytest.warns(
        ShortRunWarning, match=r"after 3 times the work .* Give max_time \(seconds\)"
    ):
        model = SpikeSlabRegressor(random_state=0, tol=1e-6).fit(X, y)
    assert not model.converged_


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_duplicates_share_their_probability(noise):
    X, y = data(p=6)
    near = 2 * X[:, 3] + 1 + noise * np.random.default_rng(0).normal(size=len(X))
    X = np.column_stack([X[:, :5], near])
    with pytest.warns(ModelWarning, match=r"columns .*[35], [35] of X are nearly equal") as told:
        model = SpikeSlabRegressor(random_state=0).fit(X, y)
    any_in = sum(p for members, p in model.models_ if {3, 5} & {*members})
    said = re.search(r"it is (\S+) that at least one", str(told[0].message))[1]
    assert float(said) == pytest.approx(any_in, abs=0.03)
    assert any_in > 0.9
    pip = model.inclusion_probabilities_
    assert noise or pip[3] == pytest.approx(pip[5], abs=5 * model.inclusion_mcse_[[3, 5]].sum())
    assert max(pip[3], pip[5]) < 0.9
    SpikeSlabRegressor(prior="independent", groups=[0, 1, 2, 3, 4, 3], random_state=0).fit(X, y)


def test_many_near_copies_are_told_as_one():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100, 1))
    X = np.hstack([rng.normal(size=(100, 5)), z + 1e-3 * rng.normal(size=(100, 70))])
    with pytest.warns(ModelWarning, match=r"and 65 more of X .* it is 1\.00 that at least one"):
        SpikeSlabRegressor(random_state=0).fit(X, 2 * z[:, 0] + rng.normal(size=100))


def test_two_supports_are_told_or_right():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(100, 40))
    signal = X[:, :4].sum(axis=1)
    X[:, 4:8] = X[:, :4] @ np.linalg.qr(rng.normal(size=(4, 4)))[0] + 0.02 * rng.normal(
        size=(100, 4)
    )
    y = signal + 0.1 * rng.normal(size=100)
    with pytest.warns((SeparatedModesWarning, ShortRunWarning)) as told:
        model = SpikeSlabRegressor(random_state=0, max_time=0.5, tol=1e-4).fit(X, y)
    assert not model.converged_
    assert told


def test_chains_that_disagree_are_told(monkeypatch):
    found = search_module.estimate

    def apart(batches):
        result = found(batches)
        result.disagree[0] = True
        result.by_chain[:, 0] = [0.0, 1.0]
        return result

    monkeypatch.setattr("sklsb.selection.base.estimate", apart)
    X, y = data()
    with pytest.warns(SeparatedModesWarning, match="most for column 0: from 0 to 1"):
        model = SpikeSlabRegressor(n_chains=2, random_state=0).fit(X, y)
    assert not model.converged_
    assert model.disagreement_ == 1.0


def test_a_short_run_is_told():
    X, y = data()
    with pytest.warns(ShortRunWarning, match="above tol=1e-07. Give more max_time"):
        model = SpikeSlabRegressor(random_state=0, tol=1e-7, max_time=0.05).fit(X, y)
    assert not model.converged_


def test_ctrl_c_keeps_what_was_found(monkeypatch):
    sweep, calls, limit = search_module.Search._sweep, [], [0]

    def interrupted(self, plan, most_jumps=0):
        calls.append(1)
        if len(calls) > limit[0]:
            raise KeyboardInterrupt
        return sweep(self, plan, most_jumps)

    monkeypatch.setattr(search_module.Search, "_sweep", interrupted)
    X, y = data()
    for n in (12, 90):  # in the first look, after it
        calls.clear()
        limit[0] = n
        with pytest.warns(InterruptedWarning, match="Ctrl-C ended the fit early"):
            model = SpikeSlabRegressor(random_state=0, tol=1e-5).fit(X, y)
        assert model.inclusion_probabilities_[3] > 0.3
        assert not model.converged_
    calls.clear()
    limit[0] = 2
    with pytest.raises(KeyboardInterrupt):
        SpikeSlabRegressor(random_state=0).fit(X, y)


def test_ctrl_c_waits_for_the_end_of_a_sweep(monkeypatch, ctrl_c):
    sweep, seen, calls = Chain.sweep, set(), []

    def interrupted(self, plan, most_jumps=0):
        seen.add(self)
        calls.append(1)
        if len(calls) == 58:  # of the second chain, before the first look
            signal.raise_signal(signal.SIGINT)
        return sweep(self, plan, most_jumps)

    monkeypatch.setattr(Chain, "sweep", interrupted)
    with pytest.warns(InterruptedWarning, match="Ctrl-C ended the fit early"):
        SpikeSlabRegressor(random_state=0, tol=1e-5).fit(*data())
    assert len(calls) == 60
    assert len({chain.batches.n_draws for chain in seen}) == 1


# ----------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prior": "lasso"}, 'prior is \'lasso\'; give "g" or "independent"'),
        ({"g": -1.0}, "g is -1.0; it must be a positive number"),
        ({"slab_sd": 0}, "slab_sd is 0; it must be a positive number"),
        ({"prior": "independent", "slab_sd": 1e5}, r"slab_sd\*\*2 times the sum of squares of col"),
        ({"size_prior": (1, 0)}, r"size_prior\[1\] is 0; it must be a positive number"),
        ({"expected_size": 12}, "expected_size is 12; it must be between 0 and 12"),
        ({"expected_size": 2, "size_prior": (1, 1)}, "size_prior and expected_size are given"),
        ({"inclusion_prior": [0.5] * 11 + [1.0]}, "inclusion_prior has the entry 1.0"),
        ({"inclusion_prior": [0.5] * 3}, r"inclusion_prior has shape \(3,\); give one"),
        ({"always": ["age"]}, "always has 'age'; give names or numbers"),
        ({"always": "age"}, r"always is a string; give a list, such as \['age'\]"),
        ({"prior": "independent", "g": 10.0}, "g is 10.0; the prior 'independent' has none: leave"),
        ({"always": range(12)}, "always has all 12 columns; leave at least one"),
        ({"groups": [1, 2]}, r"groups has shape \(2,\); give a label per column, \(12,\)"),
        ({"n_chains": 0}, "n_chains is 0; it must be at least 1"),
        ({"n_chains": 1}, "n_chains is 1; it must be at least 2, since one chain"),
        ({"tol": 0}, "tol is 0; it must be a positive number"),
        ({"max_time": -1}, "max_time is -1; it must be a positive number"),
        ({"subset_size": 1}, "subset_size is 1; it must be at least 2"),
        ({"tempering": 2.0}, "tempering is 2.0; it must be at most 1"),
        ({"n_jobs": 0}, "n_jobs is 0; give a number of threads"),
    ],
)
def test_parameters_that_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        SpikeSlabRegressor(**parameters).fit(*data())


def test_data_that_are_refused():
    X, y = data()
    fit = SpikeSlabRegressor(random_state=0).fit
    for classes in (y > 3, np.where(y > 3, "a", "b")):
        with pytest.raises(ValueError, match=r"y has dtype .*: classes, .* SpikeSlabClassifier"):
            fit(X, classes)
    with pytest.warns(ModelWarning, match="y has two values only, 0 and 1.*SpikeSlabClassifier"):
        fit(X, (y > 3).astype(int))
    with pytest.raises(
        ValueError, match=r"column \d of X lacks a value \(NaN\) in row \d+; leave the row"
    ):
        fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match=r"y is constant \(1\)"):
        fit(X, np.ones(40))
    with pytest.raises(ValueError, match="minimum of 3 is required"):
        fit(X[:2], y[:2])
    with pytest.raises(ValueError, match="2 rows have a positive sample_weight"):
        fit(X, y, (np.arange(40) < 2).astype(float))
    with pytest.raises(
        ValueError, match=r"weights of the 40 rows sum to 1: they count rows, .* 3 a"
    ):
        fit(X, y, np.full(40, 1 / 40))
    with pytest.raises(ValueError, match=r"the largest entry of y is .*e\+200: its square is lost"):
        fit(X, 1e200 * y)
    with pytest.raises(ValueError, match="groups puts 10 columns together: with 11 rows they expl"):
        SpikeSlabRegressor(groups=[0] * 10 + [1, 2]).fit(X[:11], y[:11])
    X[:, 2] = 7.0
    for kind in (np.asarray, sparse.csc_array):
        with pytest.raises(ValueError, match=r"^column 2 of X is constant; leave it out: the"):
            fit(kind(X), y)
    with pytest.raises(ValueError, match="column 2, in always, is constant"):
        SpikeSlabRegressor(always=(2,)).fit(X, y)
    frame = pd.DataFrame(X).add_prefix("x").assign(x0=1.0)
    with pytest.raises(ValueError, match="columns 'x0', 'x2' of X are constant; leave them out"):
        fit(frame, y)
    with pytest.raises(ValueError, match="column 'x2', in always, is constant"):
        SpikeSlabRegressor(always=("x2",)).fit(frame, y)
    X[:, 2] = X[:, 4]
    with pytest.raises(ValueError, match="always has 2 columns that are collinear or, with 40 ro"):
        SpikeSlabRegressor(always=(2, 4)).fit(X, y)
    with pytest.raises(ValueError, match="the columns in always explain y: there is nothing left"):
        SpikeSlabRegressor(always=(4,)).fit(X, X[:, 4])
    wide = sparse.csc_array((3, 10**6 + 1))
    with pytest.raises(ValueError, match=r"X has 1000001 columns; .* would take 12000012 bytes"):
        fit(wide, [1.0, 2.0, 4.0])


def masked(values):
    return np.ma.masked_array(values, np.arange(np.size(values)).reshape(np.shape(values)) == 0)


def test_labels_of_rows_in_another_order_are_refused():
    X, y = data()
    frame, series = pd.DataFrame(X[:, :3]), pd.Series(y)
    turned = series[::-1]
    for model, values in (
        (SpikeSlabRegressor(), turned),
        (SpikeSlabRegressor(), turned.to_frame()),
        (SpikeSlabClassifier(), turned > 0),
    ):
        with pytest.raises(
            ValueError, match=r"row 0 is 0 in X and 39 in y\. .*give y\.loc\[X\.ind"
        ):
            model.fit(frame, values)
    model = SpikeSlabRegressor(random_state=0)
    wanted = model.fit(X[:, :3], y[::-1]).coef_
    for values in (turned.to_numpy(), turned.set_axis([f"day {k}" for k in range(40)])):
        np.testing.assert_array_equal(model.fit(frame, values).coef_, wanted)
    np.testing.assert_array_equal(
        model.fit(frame[::-1], turned).coef_, model.fit(X[::-1, :3], y[::-1]).coef_
    )


def test_series_of_columns_and_weights_are_read_by_their_labels():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(20, 3)), columns=list("xyz"))
    y, series = 0.3 * X["x"] + rng.normal(size=20), pd.Series

    def fitted(weight=None, **parameters):
        model = SpikeSlabRegressor(random_state=0, **parameters)
        return model.fit(X, y, sample_weight=weight).inclusion_probabilities_.tolist()

    prior, others, pair = [0.01, 0.5, 0.9], series({"z": 0.9, "y": 0.5}), list("hgh")
    by_group = series({"g": 0.1, "h": 0.9})
    for given, changed in (
        ({"inclusion_prior": prior}, {"inclusion_prior": series(prior, list("xyz"))[::-1]}),
        ({"inclusion_prior": prior}, {"inclusion_prior": series(prior)}),
        (
            {"inclusion_prior": [0.5, 0.9], "always": ["x"]},
            {"inclusion_prior": others, "always": ["x"]},
        ),
        ({"groups": list("ghh")}, {"groups": series(list("hhg"), list("zyx"))}),
        (
            {"groups": pair, "inclusion_prior": [0.9, 0.1]},
            {"groups": series(pair, list("zyx")), "inclusion_prior": by_group},
        ),
    ):
        assert fitted(**given) == fitted(**changed)
    with pytest.raises(
        ValueError, match=r"inclusion_prior lacks \['x', 'y'\], has .* Give each label"
    ):
        fitted(inclusion_prior=series({"q": 0.1, "r": 0.2, "z": 0.3}))
    with pytest.raises(TypeError, match="groups is a mapping"):
        fitted(groups={"x": 1})
    with pytest.raises(ValueError, match="X and sample_weight have the same labels of rows in"):
        fitted(series(np.ones(20))[::-1])
    with pytest.raises(ValueError, match="X and y have the same labels of rows in another"):
        VariableSelection(X, y[::-1])


def test_masks_and_text_are_refused():
    X, y = data()
    X = X[:, :3]
    model = SpikeSlabRegressor(random_state=0).fit(X, y)
    for call, name in (
        (lambda: model.fit(masked(X), y), "X"),
        (lambda: model.fit(X, masked(y)), "y"),
        (lambda: model.fit(X, y, masked(np.ones(40))), "sample_weight"),
        (lambda: model.predict(masked(X)), "X"),
        (
            lambda: SpikeSlabRegressor(inclusion_prior=masked([0.5] * 3)).fit(X, y),
            "inclusion_prior",
        ),
    ):
        with pytest.raises(
            TypeError, match=rf"^{name} is a masked array with 1 of \d+ entries mask"
        ):
            call()
    with pytest.raises(TypeError, match=r"^X is .* with 0 of 120 entries masked; give X\.data\."):
        model.fit(np.ma.masked_array(X), y)
    frame = pd.DataFrame(X, columns=["age", "sex", "bmi"])
    for values, shown in ((["m", "f"] * 20, "'m'"), (pd.Categorical(["m", "f"] * 20), "'m'")):
        with pytest.raises(ValueError, match=f"column 'sex' of X holds {shown}, which is not a n"):
            model.fit(frame.assign(sex=values), y)
    with pytest.raises(ValueError, match="column 'bmi' of X holds '1,5', which is not a number"):
        SpikeSlabRegressor().fit(frame.assign(bmi=["1.5", "1,5"] * 20), y)
    with pytest.raises(ValueError, match="column 1 of X holds 'a', which is not a number"):
        SpikeSlabRegressor().fit(np.array([[1, "a", 2]] * 40, dtype=object), y)
    lacking = [
        pd.Series([0.5, None] * 20, dtype=kind) for kind in (object, "Float64", float, "category")
    ]
    for column in (*lacking, [0.5, pd.NA] * 20):
        with pytest.raises(ValueError, match=r"column 'sex' of X lacks a value \(NaN\) in row r1;"):
            model.fit(frame.assign(sex=column).add_prefix("r", axis=0), y)
    with pytest.raises(
        ValueError, match=r"column 2 of X lacks a value \(NaN\) in row 0; .* impute"
    ):
        SpikeSlabRegressor().fit(np.array([[1, 2.5, None]] * 40, dtype=object), y)
    # Numbers in columns of objects are numbers.
    model.fit(frame.assign(sex=[0, 1] * 20).astype(object), y)


def test_scales_and_offsets_do_not_matter():
    X, y = data(p=6)
    wanted = SpikeSlabRegressor(random_state=0).fit(X, y).inclusion_probabilities_
    for Z in (X + 1e7, 1e-200 * X, 1e150 * X, X * np.logspace(-8, 8, 6)):
        found = SpikeSlabRegressor(random_state=0).fit(Z, y).inclusion_probabilities_
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    for scale in (1e-200, 1e200):
        found = SpikeSlabRegressor(random_state=0).fit(sparse.csc_array(scale * X), y)
        np.testing.assert_allclose(found.inclusion_probabilities_, wanted, atol=1e-6)


def test_dummy_columns_of_all_levels_are_refused():
    X, y = data(p=6)
    X = X[:, :3]
    dummies = np.eye(4)[np.arange(40) % 4]
    groups = [0, 1, 2, "level", "level", "level", "level"]
    model = SpikeSlabRegressor(groups=groups, random_state=0)
    with pytest.raises(ValueError, match="columns 3, 4, 5, 6 together, which are collinear"):
        model.fit(np.column_stack([X, dummies]), y)
    model.set_params(prior="independent").fit(np.column_stack([X, dummies]), y)
    one_less = SpikeSlabRegressor(groups=groups[:-1], random_state=0)
    assert one_less.fit(np.column_stack([X, dummies[:, 1:]]), y).converged_


def test_the_target_names_the_estimator():
    X = np.random.default_rng(0).normal(size=(6, 5001))
    with pytest.warns(ModelWarning, match="X has 5001 columns.*SpikeSlabRegressor"):
        VariableSelection(X, X[:, 0] + X[:, 1])


def test_intervals_are_those_of_draws():
    """Given inclusion; columns that are always in, too."""
    X, y = data()
    model = SpikeSlabRegressor(always=[4], random_state=0).fit(X, y)
    table = model.summary().sort_index()
    draws = model.sample_posterior(2000).posterior["coef"].values.reshape(-1, 12)
    likely = np.flatnonzero(table["probability"] > 0.5)
    assert {3, 4} < {*likely}
    for j in likely:
        own = draws[draws[:, j] != 0, j]
        ends = np.quantile(own, [0.025, 0.975])
        assert np.abs(table.loc[j, ["low", "high"]] - ends).max() < 0.3 * own.std()
    assert (table["low"] < table["if_included"]).all()
    assert (table["if_included"] < table["high"]).all()


@pytest.mark.parametrize("name", ["inclusion", "coefficients", "sizes", "models"])
def test_pictures(name):
    from matplotlib import pyplot

    X, y = data()
    model = SpikeSlabRegressor(random_state=0).fit(X, y)
    axis = getattr(model.plot, name)()
    assert getattr(model.plot, name)(axis) is axis
    assert axis.get_xlabel() or axis.get_ylabel()
    pyplot.close("all")

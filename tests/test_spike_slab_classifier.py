"""SpikeSlabClassifier: against quadrature over all models, plain Gibbs sampling, scikit-learn."""

import pickle

import numpy as np
import pandas as pd
import pytest
from logistic import Quadrature, by_size, log_likelihood, plain_gibbs
from matplotlib import pyplot
from scipy import sparse
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from sklsb import SpikeSlabClassifier
from sklsb.exceptions import (
    InterruptedWarning,
    ModelWarning,
    SeparatedModesWarning,
    ShortRunWarning,
)
from sklsb.selection.chains import Pace
from sklsb.selection.logistic import LogisticChain
from sklsb.selection.search import Search


def data(n=50, p=5, seed=0, m=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
    return X, rng.binomial(m, expit(0.3 + X[:, 0] - 0.7 * X[:, 2]))


def standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def fitted(X, y, *args, **parameters):
    return SpikeSlabClassifier(random_state=1, **{"tol": 0.03, **parameters}).fit(X, y, *args)


# ----------------------------------------------------------------- the posterior


def same(mask):
    return mask[0] == mask[2] and mask[3] == mask[4]


CASES = {
    "defaults": ({}, 1, by_size(5)),
    "binomial": ({"size_prior": (1.0, 3.0), "slab_sd": 0.6}, 4, by_size(5, 1.0, 3.0)),
    "size": ({"expected_size": 2.0}, 1, lambda mask: mask.sum() * logit(0.4)),
    "by column": (
        {"inclusion_prior": [0.1, 0.2, 0.3, 0.4, 0.5]},
        1,
        lambda mask: (mask * logit([0.1, 0.2, 0.3, 0.4, 0.5])).sum(),
    ),
    "always": ({"always": [1, 4]}, 1, lambda mask: by_size(3)(mask[[0, 2, 3]])),
    "windows": ({"subset_size": 3}, 1, by_size(5)),
    "groups": (
        {"groups": [0, 1, 0, 2, 2], "size_prior": (1.0, 2.0)},
        1,
        lambda mask: by_size(3, 1.0, 2.0)(mask[[0, 1, 3]]) if same(mask) else -np.inf,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_against_quadrature(case):
    parameters, m, log_prior = CASES[case]
    X, y = data(m=m)
    truth = Quadrature(
        standardised(X),
        y.astype(float),
        log_prior,
        m=m,
        slab_sd=parameters.get("slab_sd", 1.0),
        always=parameters.get("always", ()),
        n_nodes=6,
    )
    X = 3.0 * X + 2.0  # the scale of columns does not matter
    found = fitted(X, y, None, m if m > 1 else None, tol=0.006, **parameters)
    assert found.converged_
    assert found.inclusion_mcse_.max() <= 0.006
    error = np.abs(found.inclusion_probabilities_ - truth.inclusion)
    assert (error <= 4 * found.inclusion_mcse_ + 1e-4).all()
    sd = X.std(axis=0)
    np.testing.assert_allclose(found.coef_[0] * sd, truth.coef, atol=0.02)
    np.testing.assert_allclose(found.coef_sd_ * sd, truth.coef_sd, atol=0.02)
    intercept = truth.intercept - truth.coef @ (X.mean(axis=0) / sd)
    assert found.intercept_[0] == pytest.approx(intercept, abs=0.03)
    conditional = truth.coef / truth.inclusion
    np.testing.assert_allclose(found.coef_conditional_ * sd, conditional, atol=0.04)
    free = [j for j in range(5) if j not in parameters.get("always", ())]
    free = [0, 1, 3] if case == "groups" else free
    sizes = np.bincount(truth.masks[:, free].sum(axis=1), truth.probabilities)
    np.testing.assert_allclose(found.model_sizes_, sizes, atol=0.02)
    for columns, probability in found.models_[:5]:
        mask = np.isin(np.arange(5), [*columns, *parameters.get("always", ())])
        wanted = truth.probabilities[(truth.masks == mask).all(axis=1)]
        assert probability == pytest.approx(wanted[0], abs=0.02)


def test_signs_of_coefficients():
    """The probability of a positive coefficient, given inclusion."""
    X, y = data(n=40, p=3)
    X = X[:, :2]
    Z = standardised(X)
    found = fitted(X, y, tol=0.005)
    grid = np.linspace(-8, 8, 161)
    b0, b = np.meshgrid(grid, grid + 0.05, indexing="ij")
    wanted = []
    for j in range(2):
        with_j = []
        for mask in ([j], [0, 1]):  # alone, or with the other column by a third axis
            if len(mask) == 1:
                psi = b0[..., None] + b[..., None] * Z[:, j]
                log_p = log_likelihood(psi, y, 1) - 0.5 * b**2
                part = np.exp(log_p) * 0.1 / np.sqrt(2 * np.pi)
                with_j.append((part.sum(), part[b > 0].sum(), 1 / 6))  # size 1: 1/3, two of them
            else:
                other = grid[::4]
                total = above = 0.0
                for c in other:
                    psi = b0[..., None] + b[..., None] * Z[:, j] + c * Z[:, 1 - j]
                    log_p = log_likelihood(psi, y, 1) - 0.5 * b**2
                    part = np.exp(log_p - 0.5 * c**2) * 0.4 * 0.1 / (2 * np.pi)
                    total, above = total + part.sum(), above + part[b > 0].sum()
                with_j.append((total, above, 1 / 3))
        total = sum(t * prior for t, _, prior in with_j)
        wanted.append(sum(a * prior for _, a, prior in with_j) / total)
    np.testing.assert_allclose(found.positive_probability_, wanted, atol=0.02)


def test_predictions_are_averages_over_the_posterior():
    X, y = data()
    truth = Quadrature(standardised(X), y.astype(float), by_size(5), n_nodes=6)
    found = fitted(X, y, tol=0.005)
    draws = found.sample_posterior(400).posterior
    coef, intercept = draws["coef"].values.reshape(-1, 5), draws["intercept"].values.ravel()
    # The draws have the moments of the posterior.
    np.testing.assert_allclose((coef != 0).mean(axis=0), truth.inclusion, atol=0.05)
    np.testing.assert_allclose(coef.mean(axis=0) * X.std(axis=0), truth.coef, atol=0.05)
    np.testing.assert_allclose(coef.std(axis=0) * X.std(axis=0), truth.coef_sd, atol=0.05)
    assert draws["included"].values.tolist() == (draws["coef"].values != 0).tolist()
    all_draws = found.sample_posterior(None).posterior
    assert all_draws.sizes["draw"] == found._draws[0].size // 4
    psi = all_draws["coef"].values @ X.T + all_draws["intercept"].values[..., None]
    np.testing.assert_allclose(
        found.predict_proba(X)[:, 1], expit(psi).mean(axis=(0, 1)), rtol=1e-9
    )
    assert intercept.mean() == pytest.approx(found.intercept_[0], abs=0.05)


SHORT = Pace(500, 8, 8, 4, 4)


@pytest.fixture
def short(monkeypatch):
    """Sweeps a sixth as long, where it is not the posterior that is looked at."""
    monkeypatch.setattr(LogisticChain, "pace", SHORT)


def check_offset(monkeypatch):
    """Draws and means are of columns as given, whose means are not zero."""
    monkeypatch.setattr(LogisticChain, "pace", SHORT)
    X, y = data(n=30, p=3)
    X += 5.0
    found = fitted(X, y, n_chains=2, tol=0.9)
    draws = found.sample_posterior(50).posterior
    psi = draws["coef"].values @ X.T + draws["intercept"].values[..., None]
    wanted = X @ found.coef_[0] + found.intercept_
    assert np.abs(psi.mean(axis=(0, 1)) - wanted).max() < 1.0, "draws are moved"
    assert abs(found.decision_function(X).mean() - wanted.mean()) < 1.0, "predictions are moved"


def test_offsets_of_columns(monkeypatch):
    check_offset(monkeypatch)


def test_single_models_have_their_mode():
    X, y = data(n=200)
    found = fitted(X, y)
    best = list(found.models_[0][0])
    Z = standardised(X)[:, best]
    # scikit-learn's penalty is that of the slab; its intercept is not penalised either.
    ridge = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(Z, y)
    np.testing.assert_allclose(
        found.decision_function(X, "hpm"), ridge.decision_function(Z), atol=1e-4
    )
    median = np.flatnonzero(found.inclusion_probabilities_ > 0.5)
    ridge = LogisticRegression(tol=1e-10, max_iter=1000).fit(standardised(X)[:, median], y)
    wanted = ridge.decision_function(standardised(X)[:, median])
    np.testing.assert_allclose(found.decision_function(X, estimator="mpm"), wanted, atol=1e-4)
    assert (found.predict(X, "mpm") == found.classes_[(wanted > 0).astype(int)]).all()
    assert found.predict_proba(X, "hpm").shape == (200, 2)


def coverage(n_repetitions):
    X, y = data(n=30, p=3)
    truth = Quadrature(standardised(X), y.astype(float), by_size(3), n_nodes=8).inclusion
    inside = []
    for seed in range(n_repetitions):
        found = SpikeSlabClassifier(tol=0.03, n_chains=2, random_state=seed).fit(X, y)
        error = np.abs(found.inclusion_probabilities_ - truth)
        inside.append(error <= 1.96 * found.inclusion_mcse_)
    return np.mean(inside)


def test_errors_cover():
    assert 0.85 <= coverage(20) <= 1.0


@pytest.mark.slow
def test_errors_cover_as_they_should():
    assert 0.92 <= coverage(200) <= 0.98


@pytest.mark.slow
def test_beside_plain_gibbs_sampling():
    """n = 1,000, p = 50: a second method, which shares no code."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(1000, 50))
    for j in range(1, 50):
        X[:, j] += 0.75 * X[:, j - 1]
    X = standardised(X)
    beta = np.zeros(50)
    beta[:10] = 0.15 * np.array([2, -3, 2, 2, -3, 3, -2, 3, -2, 3])
    y = rng.binomial(1, expit(X @ beta))
    found = fitted(X, y, tol=0.005)
    log_prior = by_size(50)
    sizes = [log_prior(np.arange(50) < k) for k in range(51)]
    runs = np.concatenate(
        [
            plain_gibbs(X, y, np.diff(sizes), np.random.default_rng(seed), n_sweeps=10_000)
            for seed in range(2)
        ],
        axis=1,
    )
    batches = runs.reshape(2, 40, -1, 50).mean(axis=2)
    mean, error = batches.mean(axis=1), batches.std(axis=1, ddof=1) / np.sqrt(40)
    z = found.inclusion_probabilities_ - mean[0]
    z /= np.hypot(error[0], np.maximum(found.inclusion_mcse_, 1e-4))
    assert np.abs(z).max() < 4.5
    assert np.sqrt(np.mean(z**2)) < 1.5
    assert np.abs(found.coef_[0] - mean[1]).max() < 0.02


# ----------------------------------------------------------------- data of any kind


@pytest.mark.usefixtures("short")
def test_weights_are_repetitions():
    """Bit for bit, in any order, dense or sparse."""
    X, y = data()
    X[np.abs(X) < 0.3] = 0.0
    weights = np.random.default_rng(0).integers(4, size=50)
    rows = np.repeat(np.arange(50), weights)[::-1]
    for kind in (np.asarray, sparse.csr_array):
        one, other = fitted(kind(X), y, weights), fitted(kind(X[rows]), y[rows])
        for name in ("inclusion_probabilities_", "coef_", "inclusion_mcse_"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    # Successes and failures of equal rows are a binomial row.
    X, y = data(m=3)
    as_counts = fitted(X, y, None, np.full(50, 3))
    outcomes = (np.arange(3)[:, None] < y).ravel()
    as_rows = fitted(np.tile(X, (3, 1)), outcomes)
    np.testing.assert_array_equal(as_counts.coef_, as_rows.coef_)
    assert as_counts.classes_.tolist() == [0, 1]


def test_sparse_columns_are_the_same_model():
    X, y = data()
    X[np.abs(X) < 0.5] = 0.0
    dense, thin = fitted(X, y, tol=0.006), fitted(sparse.csc_matrix(X), y, tol=0.006)
    error = np.hypot(dense.inclusion_mcse_, thin.inclusion_mcse_)
    difference = dense.inclusion_probabilities_ - thin.inclusion_probabilities_
    assert (np.abs(difference) < 4 * error).all()
    assert dense.intercept_[0] == pytest.approx(thin.intercept_[0], abs=0.02)
    probability = thin.predict_proba(sparse.csr_array(X))
    np.testing.assert_allclose(probability, thin.predict_proba(X), rtol=1e-10)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1.0, 3.0]], ids=str)
def test_labels_of_any_kind(labels):
    X, y = data()
    plain, found = fitted(X, y), fitted(X, np.array(labels)[y])
    assert found.classes_.tolist() == labels
    np.testing.assert_array_equal(found.coef_, plain.coef_)
    assert (found.predict(X) == np.array(labels)[plain.predict(X)]).all()
    assert found.score(X, np.array(labels)[y]) == plain.score(X, y) > 0.5


@pytest.mark.usefixtures("short")
def test_threads_do_not_matter():
    X, y = data()
    one, two = fitted(X, y), fitted(X, y, n_jobs=2)
    np.testing.assert_array_equal(one.inclusion_probabilities_, two.inclusion_probabilities_)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    assert (fitted(X, y).set_params(random_state=2).fit(X, y).coef_ != one.coef_).all()


def test_units_do_not_matter_if_they_are_not_asked_to():
    X, y = data()
    Z = standardised(X)
    plain = fitted(X, y, tol=0.1).inclusion_probabilities_
    for scale in (1e-200, 1e150):
        found = fitted(scale * X, y, tol=0.1).inclusion_probabilities_
        np.testing.assert_allclose(found, plain, atol=0.1)
    one, other = fitted(5.0 * Z - 3.0, y), fitted(Z, y, standardize=False)
    np.testing.assert_allclose(5.0 * one.coef_, other.coef_, atol=0.03)


# ----------------------------------------------------------------- scikit-learn


@pytest.mark.filterwarnings("ignore:No features were selected")
@pytest.mark.filterwarnings("ignore:.*could not be checked|.*array_api")
@pytest.mark.filterwarnings("ignore:classes are separated|every column")  # true of these data
def test_check_estimator(monkeypatch):
    monkeypatch.setattr(LogisticChain, "pace", Pace(500, 4, 4, 1, 1))  # it makes a hundred fits
    results = check_estimator(
        SpikeSlabClassifier(tol=0.5, n_chains=2, random_state=0), on_fail=None, on_skip=None
    )
    failed = [r["check_name"] for r in results if r["status"] == "failed"]
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert not failed
    assert skipped <= {"check_array_api_input"}
    assert len(results) > 50


@pytest.mark.usefixtures("short")
def test_in_pipelines():
    X, y = data(n=150)
    model = SpikeSlabClassifier(tol=0.1, random_state=0)
    assert cross_val_score(model, X, y, cv=3).mean() > 0.6
    search = GridSearchCV(model, {"slab_sd": [0.1, 1.0]}, cv=3).fit(X, y)
    assert search.best_params_["slab_sd"] in (0.1, 1.0)
    steps = make_pipeline(StandardScaler(), SelectFromModel(model, threshold=0.2))
    assert 1 <= steps.fit(X, y).transform(X).shape[1] < 5
    chosen = make_pipeline(clone(model), LogisticRegression()).fit(X, y)
    assert chosen.score(X, y) > 0.6


@pytest.mark.usefixtures("short")
def test_weights_of_classes_multiply_odds():
    X, y = data(n=200)
    labels = np.where(y, "ill", "well")  # "ill" is the first class
    plain = fitted(X, labels, class_weight=None)
    balanced = fitted(X, labels, class_weight="balanced")
    given = fitted(X, labels, class_weight={"ill": 4.0})
    np.testing.assert_array_equal(plain.coef_, balanced.coef_)
    np.testing.assert_array_equal(plain.inclusion_probabilities_, given.inclusion_probabilities_)
    ratio = (labels == "ill").sum() / (labels == "well").sum()
    for other, shift in ((balanced, np.log(ratio)), (given, -np.log(4.0))):
        np.testing.assert_allclose(other.intercept_ - plain.intercept_, shift)
        for estimator in ("mpm", "hpm"):
            off = other.decision_function(X, estimator) - plain.decision_function(X, estimator)
            np.testing.assert_allclose(off, shift)
        draws = [model.sample_posterior(40).posterior["intercept"] for model in (other, plain)]
        np.testing.assert_allclose(draws[0] - draws[1], shift)
    # As if classes had been seen so often: the intercept is that of weighted likelihood, nearly.
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(2000, 2))
    rare = rng.random(2000) < expit(-3.0 + Z[:, 0])
    found = fitted(Z, rare, class_weight="balanced", tol=0.05)
    sure = LogisticRegression(C=1e6, class_weight="balanced").fit(Z, rare)
    assert abs(found.intercept_[0] - sure.intercept_[0]) < 0.15
    counts = fitted(X, 3 * y, None, 3, class_weight={0: 2.0, 1: 2.0})
    np.testing.assert_array_equal(counts.intercept_, fitted(X, 3 * y, None, 3).intercept_)
    for wrong in ("even", {"ill": 1.0, "dead": 2.0}, 3.0, {"ill": 0.0}):
        with pytest.raises(ValueError, match="class_weight"):
            fitted(X, labels, class_weight=wrong)


@pytest.mark.usefixtures("short")
def test_coefficients_that_can_be_compared():
    X, y = data(n=300)
    unit = np.array([1.0, 10.0, 0.01, 3.0, 1.0])
    found = fitted(X * unit, y, always=[0])
    table, own = found.summary(), found.summary(standardized=True)
    np.testing.assert_allclose(found.scale_, (X * unit).std(axis=0))
    scale = pd.Series(found.scale_)[own.index]
    for name in ("mean", "sd", "if_included", "low", "high"):
        np.testing.assert_allclose(own[name], table[name] * scale)
    np.testing.assert_allclose(table["odds_ratio"], np.exp(table["if_included"]))
    for name, log in (("", "if_included"), ("_low", "low"), ("_high", "high")):
        np.testing.assert_array_equal(own[f"odds_ratio{name}"], np.exp(own[log]))
    plain = fitted(X, y, always=[0]).summary(standardized=True)
    np.testing.assert_allclose(plain["mean"][own.index].to_numpy(), own["mean"], atol=0.03)
    weighted = fitted(sparse.csr_array(X), y, np.arange(300) % 3)
    np.testing.assert_allclose(
        weighted.scale_, np.repeat(X, np.arange(300) % 3, axis=0).std(axis=0)
    )
    axis = found.plot.coefficients(standardized=True)
    assert axis.get_xlabel().startswith(
        "coefficient for class 1 per standard deviation\nif included"
    )
    label = found.plot.coefficients(odds_ratios=True, n=2).get_xlabel()
    hint = "\nunits differ: compare with standardized=True"
    assert label == f"odds ratio for class 1 per unit{hint}\nif included, with 95% interval"
    legend = found.plot.models().get_legend().get_texts()
    assert [text.get_text() for text in legend] == ["in the model", "left out"]
    pyplot.close("all")


def check_pictures(n):
    X, y = data(n)
    found = fitted(X, np.where(y, "ill", "control"), expected_size=1)
    table = found.summary(standardized=True)
    assert table.attrs["class"] == "ill" == found.classes_[1]
    draws = found._draws[1].toarray() * found.scale_
    for j in range(5):
        own = draws[draws[:, j] != 0, j]
        wanted = np.quantile(own, [0.025, 0.975]) if own.size >= 40 else [np.nan] * 2
        np.testing.assert_allclose(table.loc[j, ["low", "high"]], wanted)
    axis = found.plot.coefficients(standardized=True, odds_ratios=True)
    label = "odds ratio for class 'ill' per standard deviation\nif included, with 95% interval"
    assert axis.get_xlabel() == f"{label}; hollow: probability < 1/2"
    ends = np.array([bar[:, 0] for bar in axis.collections[0].get_segments()])[::-1]
    drawn = table.dropna()
    np.testing.assert_allclose(axis.lines[0].get_xdata()[::-1], table["odds_ratio"])
    np.testing.assert_allclose(ends, drawn[["odds_ratio_low", "odds_ratio_high"]])
    hollow = table["odds_ratio"][table["probability"] < 0.5]
    np.testing.assert_allclose(axis.lines[1].get_xdata()[::-1], hollow)
    axis.figure.canvas.draw()
    assert (axis.get_xscale(), axis.get_yticklabels()[-1].get_text()) == ("log", "0")
    ticks = {text.get_text() for text in axis.get_xticklabels()}
    assert {"0.5", "1", "2"} <= ticks
    sizes = found.plot.sizes().get_xticks()
    np.testing.assert_array_equal(sizes, np.round(sizes))
    pyplot.close("all")


def test_pictures_show_the_odds_ratios_of_the_table():
    check_pictures(300)


def test_columns_of_few_draws_have_no_interval():
    X, y = data(n=400, p=8)
    found = fitted(X, y, inclusion_prior=[0.5] * 7 + [1e-6])
    table = found.summary(standardized=True)
    assert table.loc[7, ["low", "odds_ratio_high"]].isna().all()
    assert table.loc[range(7), ["low", "odds_ratio_high"]].notna().all(axis=None)
    assert found.plot.coefficients(odds_ratios=True).get_xscale() == "log"
    pyplot.close("all")


@pytest.mark.usefixtures("short")
def test_a_narrow_slab_is_told():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8))
    y = rng.random(300) < expit(X[:, 0])
    with pytest.warns(ModelWarning, match=r"at least 0\.\d+.* slab_sd=0\.1 .* larger slab_sd"):
        fitted(X, y, slab_sd=0.1, tol=0.05)
    with pytest.warns(ModelWarning, match="slab_sd=10 .* such as 100, or expected_size"):
        fitted(X / 100.0, y, slab_sd=10.0, standardize=False, tol=0.05)
    fitted(X, y, tol=0.05)
    fitted(X[:, :4], y, slab_sd=0.1, tol=0.05)
    sure = rng.random(60) < expit(1.5 * X[:60, :6].sum(axis=1))
    found = fitted(X[:60, :6], sure)  # all matter, most clearly
    assert found.inclusion_probabilities_.min() < 0.9 < np.median(found.inclusion_probabilities_)


@pytest.mark.usefixtures("short")
def test_few_data_are_told():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(12, 8)), np.arange(12) % 2
    message = r"at least 0\.\d+, .*: 12 observations are few for 8 columns .* expected_size"
    with pytest.warns(ModelWarning, match=message):
        assert fitted(X, y, tol=0.05).get_support().any()
    assert not fitted(X, y, tol=0.05, expected_size=1).get_support().any()
    X = rng.normal(size=(100, 20))
    y = rng.random(100) < expit(1.5 * X[:, :2].sum(axis=1))
    assert fitted(X, y, tol=0.05).get_support(indices=True).tolist() == [0, 1]


@pytest.mark.usefixtures("short")
def test_columns_that_separate_the_classes_are_told():
    X, y = data(n=200)
    rare, leak = np.zeros(200), y + np.linspace(-0.4, 0.4, 200)
    rare[np.flatnonzero(y)[:2]] = 1.0
    frame = pd.DataFrame(X, columns=list("abcde"))
    match = "separated by column 'leak': .* slab_sd=10. Leave"
    with pytest.warns(ModelWarning, match=match):
        fitted(frame.assign(leak=-leak), y, slab_sd=10, tol=0.05)
    for kind in (np.asarray, sparse.csr_array):
        with pytest.warns(ModelWarning, match="separated by column 5: .* rare categories"):
            found = fitted(kind(np.column_stack([X, rare])), y, tol=0.05)
        assert found.summary().loc[5, "odds_ratio"] > 1000
    rare[np.flatnonzero(y == 0)[0]] = 1.0  # one row of the other class
    fitted(np.column_stack([X, rare]), y, tol=0.05)


@pytest.mark.usefixtures("short")
def test_data_frames():
    X, y = data(n=300)
    frame = pd.DataFrame(X, columns=list("abcde"))
    found = fitted(frame, pd.Series(np.where(y, "ill", "well"), name="state"))
    assert found.get_feature_names_out().tolist() == ["a", "c"]
    assert found.set_output(transform="pandas").transform(frame).columns.tolist() == ["a", "c"]
    summary = found.summary()
    assert set(summary.index[:2]) == {"a", "c"}
    assert summary.loc["a", "probability"] == found.inclusion_probabilities_[0]
    assert found.sample_posterior(40).posterior["feature"].values.tolist() == list("abcde")
    assert found.get_support(threshold=0.999).sum() <= found.get_support().sum() == 2
    assert found.get_support(indices=True).tolist() == [0, 2]
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame[["b", "a", "c", "d", "e"]])
    models = found.top_models(2)
    assert list(models["columns"]) == [tuple("abcde"[j] for j in m) for m, _ in found.models_[:2]]
    assert models["probability"].tolist() == [p for _, p in found.models_[:2]]
    with pytest.raises(TypeError, match="did you mean 'n'"):
        found.plot.inclusion(top=5)
    pictures = [getattr(found.plot, name)() for name in ("inclusion", "coefficients", "sizes")]
    assert pictures[0].get_yticklabels()[-1].get_text() == summary.index[0]
    assert found.plot.models(n=3).get_yticklabels()[0].get_text() == f"{found.models_[0][1]:.2g}"
    pyplot.close("all")
    with_names = fitted(frame, y, always=["b", "c"])
    np.testing.assert_array_equal(with_names.coef_, fitted(X, y, always=[1, 2]).coef_)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict_proba(frame), found.predict_proba(frame))


def test_breast_cancer():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    found = SpikeSlabClassifier(expected_size=4, random_state=0, tol=0.03).fit(X, y)
    assert found.converged_
    assert found.score(X, y) > 0.96
    assert 4 <= found.model_sizes_ @ np.arange(31) <= 15
    assert {"worst texture", "radius error"} <= set(found.get_feature_names_out())


# ----------------------------------------------------------------- told or refused

X, Y = data(n=20, p=3)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"slab_sd": -1}, "slab_sd is -1; it must be a positive number"),
        ({"tol": "x"}, "tol is 'x'; it must be a positive number"),
        ({"max_time": 0}, "max_time is 0; it must be a positive number"),
        ({"expected_size": -2}, "expected_size is -2; it must be between 0 and 3"),
        ({"expected_size": 3}, "expected_size is 3; it must be between 0 and 3"),
        ({"size_prior": (1, 0)}, r"size_prior\[1\] is 0; it must be a positive number"),
        ({"inclusion_prior": [0.5, 0.5]}, r"inclusion_prior has shape \(2,\); give one"),
        (
            {"inclusion_prior": [0.5, 1, 0.5]},
            "inclusion_prior has the entry 1.0; .* between 0 and 1",
        ),
        (
            {"inclusion_prior": [0.5] * 3, "expected_size": 1},
            "expected_size and inclusion_prior are given; give one",
        ),
        ({"always": ["age"]}, "always has 'age'; give names or numbers"),
        ({"n_chains": 1}, "n_chains is 1; it must be at least 2, since one chain"),
        ({"subset_size": 1}, "subset_size is 1; it must be at least 2"),
        ({"groups": [1, 2]}, r"groups has shape \(2,\); give a label per column, \(3,\)"),
        ({"always": [7]}, "always has 7; give names or numbers"),
        ({"always": [0, 1, 2]}, "always has all 3 columns; leave at least one"),
    ],
    ids=str,
)
def test_wrong_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        SpikeSlabClassifier(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, np.zeros(20)), "y has one class only, 0.0; the classifier needs two classes"),
        (
            (X, np.array(["ill", "well", "dead"])[np.arange(20) % 3]),
            "Only binary .* multiclass: y has 3 labels, 'dead', 'ill', 'well'. .* y == 'dead'",
        ),
        ((X, np.arange(20) % 10), "10 labels, 0, 1, 2, 3, 4 and 5 more. Compare one"),
        ((X, ["ill"] * 10 + ["well"] * 9 + [None]), r"y lacks a value \(None or NaN\) in row 19;"),
        ((X, pd.Series([1.0, np.nan] * 10)), r"y lacks a value \(None or NaN\) in row 1;"),
        ((Y, X), r"X has one dimension and y has shape \(20, 3\): .*; call fit\(X, y\)"),
        ((X, Y[:5]), r"y has shape \(5,\); it must have one entry for each of the 20 rows"),
        ((X, Y, Y), "y has one class only, among rows of positive weight"),
        ((X, Y, np.zeros(20)), "Every sample_weight is zero"),
        ((X, Y, np.full(20, 0.5)), r"sample_weight\[0\] is 0.5; .* whole numbers"),
        ((X, Y, [1, 2]), r"sample_weight has shape \(2,\); .* each of the 20"),
        ((X, Y, None, 0), r"n_trials\[0\] is 0; give whole numbers of at least 1"),
        ((X, Y + 2, None, 2), r"y\[\d+\] is 3, of 2 trials"),
        ((X * [1, 0, 1], Y), "column 1 of X is constant; leave it out"),
        ((np.where(X > 1, np.inf, X), Y), "contains (NaN|infinity)"),
    ],
    ids=range(15),
)
def test_wrong_data_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SpikeSlabClassifier().fit(*arguments)


def test_masks_and_text_are_refused():
    mask = np.arange(20) == 0
    for arguments, name in (
        ((np.ma.masked_array(X, X > 1), Y), "X"),
        ((X, np.ma.masked_array(Y, mask)), "y"),
        ((X, Y, np.ma.masked_array(np.ones(20), mask)), "sample_weight"),
        ((X, Y, None, np.ma.masked_array(np.ones(20), mask)), "n_trials"),
    ):
        with pytest.raises(TypeError, match=rf"^{name} is a masked array with \d+ of \d+ entries"):
            SpikeSlabClassifier().fit(*arguments)
    frame = pd.DataFrame(X, columns=["age", "sex", "bmi"]).assign(sex=["m", "f"] * 10)
    with pytest.raises(ValueError, match="column 'sex' of X holds 'm', which is not a number"):
        SpikeSlabClassifier().fit(frame, Y)
    with pytest.raises(
        ValueError, match=r"column 'sex' of X lacks a value \(NaN\) in row 1; leave"
    ):
        SpikeSlabClassifier().fit(frame.assign(sex=[1.0, None] * 10), Y)


def hidden(name, seed=0):
    """Columns of which none says anything alone."""
    rng = np.random.default_rng(seed)
    if name == "pair":
        Z = rng.normal(size=(200, 300))
        signal = Z[:, 1].copy()
        Z[:, 1] = Z[:, 0] + 0.05 * Z[:, 1]
    else:
        Z = rng.normal(size=(300, 25))
        signal = 6**0.5 * Z[:, :6].mean(axis=1)
        Z[:, :6] -= 0.9 * Z[:, :6].mean(axis=1, keepdims=True)
    return Z, rng.random(len(Z)) < 1 / (1 + np.exp(-4 * signal)), 2 if name == "pair" else 6


@pytest.mark.parametrize("name", ["pair", "common"])
def test_supports_that_no_single_column_shows(name):
    Z, y, k = hidden(name)
    model = SpikeSlabClassifier(slab_sd=5.0, random_state=0, tol=0.05).fit(Z, y)
    assert model.inclusion_probabilities_[:k].min() > 0.8


def test_wrong_questions_are_refused():
    found = fitted(X, Y, tol=0.1)
    with pytest.raises(ValueError, match="estimator is 'best'; it must be one of"):
        found.predict(X, estimator="best")
    with pytest.raises(ValueError, match="threshold is 2; it must be a number from 0 to 1"):
        found.get_support(threshold=2)
    with pytest.raises(ValueError, match=r"n is 10000000; each chain kept \d+ draws"):
        found.sample_posterior(10_000_000)


def test_short_runs_are_told():
    with pytest.warns(ShortRunWarning, match="error .* above tol=1e-05. Give more max_time"):
        found = fitted(X, Y, tol=1e-5, max_time=1e-3)
    assert not found.converged_


def test_interrupted_fits_are_told(monkeypatch):
    sweep, calls = Search._sweep, []

    def interrupted(self, *args, **options):
        calls.append(1)
        if len(calls) > 12:  # after 8 sweeps of the burn-in
            raise KeyboardInterrupt
        return sweep(self, *args, **options)

    monkeypatch.setattr(Search, "_sweep", interrupted)
    with pytest.warns(InterruptedWarning, match="Ctrl-C ended the fit early"):
        found = fitted(X, Y, tol=1e-5)
    assert found.coef_.shape == (1, 3)
    assert not found.converged_


def test_chains_that_disagree_are_told(monkeypatch):
    """Chains that cannot leave where they start: the time of a window is nothing."""
    monkeypatch.setattr(Search, "_time", lambda self, plan, totals, wanted: 1e-9)
    X, y = data(n=400, p=3)
    X[:, 2] = X[:, 0] + 0.02 * X[:, 2]
    with pytest.warns(SeparatedModesWarning, match="differ between chains beyond chance"):
        found = fitted(X, y, max_time=0.5, tol=0.5)
    assert found.disagreement_ > 0.1
    assert not found.converged_


def test_equal_columns_are_told():
    X, y = data(p=3)
    for kind in (np.asarray, sparse.csr_array):
        with pytest.warns(ModelWarning, match="columns 0, 3 of X are nearly equal"):
            found = fitted(kind(np.column_stack([X, -2.0 * X[:, 0]])), y)
        pair = found.inclusion_probabilities_[[0, 3]]
        assert np.ptp(pair) < 5 * found.inclusion_mcse_[[0, 3]].sum()


def test_warm_start_begins_at_the_last_models(monkeypatch):
    X, y = data()
    model = SpikeSlabClassifier(random_state=0, warm_start=True, tol=0.05).fit(X, y)
    last, seen, start = model._last_models, [], Search.start
    monkeypatch.setattr(
        Search, "start", lambda self, units: (seen.append(units), start(self, units))
    )
    model.fit(X, y)
    assert [units.tolist() for units in seen[0]] == [units.tolist() for units in last]

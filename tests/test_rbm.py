"""The restricted Boltzmann machine: against sums over hidden units, decimals, and block Gibbs."""

import copy
import decimal
import itertools
import pickle
import warnings

import numpy as np
import pytest
from enumerated_objectives import check_objectives
from local_step import check_sampler, production_matrix
from models import FUNCTIONS
from scipy.special import logsumexp
from sklearn.datasets import load_digits
from sklearn.neural_network import BernoulliRBM

from sklsb import RBM, LSBSampler, exact, testing
from sklsb._kernels.rules.balanced import Balanced
from sklsb.exceptions import SamplerWarning
from sklsb.targets.rbm import _span
from sklsb.testing._probe import Probe, check_caches

EPS = np.finfo(float).eps


def machine(n, m, scale=1.0, bias=1.0, seed=0, **params):
    rng = np.random.default_rng(seed)
    weights = scale * rng.normal(size=(n, m))
    return RBM(weights, bias * rng.normal(size=n), bias * rng.normal(size=m), **params)


def states_of(n):
    return np.array(list(itertools.product((0, 1), repeat=n)))


def kernel_log_ratios(model, x):
    probe = Probe(model, Balanced(FUNCTIONS["sqrt"].table()), np.asarray(x, dtype=np.int8))
    return probe.walk(np.empty((len(x), 0), dtype=np.int64))[1]


# ----------------------------------------------------------------- conformance


@pytest.mark.parametrize(
    "model",
    [
        *(machine(n, m) for n, m in ((1, 1), (5, 5), (9, 4), (3, 9), (20, 3))),
        RBM(np.zeros((4, 3))),
        RBM(np.zeros((3, 0)), [1.0, 0.0, -2.0]),
        RBM(np.zeros((0, 2))),
        machine(12, 7, shape=(3, 4)),
        machine(6, 5, scale=1e-12, bias=0.0),
        machine(7, 5, scale=100.0),
        machine(7, 5, bias=1e5),
        machine(7, 5, bias=1e300),
        machine(7, 9, scale=1e4),
        machine(5, 4, scale=1e300, bias=1e300),
        machine(300, 70, scale=0.1),
    ],
    ids=repr,
)
def test_target(model):
    testing.check_target(model)


SMALL = {
    "random": machine(3, 2),
    "many hidden": machine(3, 30, scale=0.3),
    "far": machine(3, 2, scale=150.0),
    "extreme": machine(2, 2, scale=1e4),
    "flat": RBM(np.zeros((2, 3))),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_sampler(function):
    sampler = LSBSampler(function, n_chains=2, n_burn_in=20)
    check_sampler(sampler, SMALL["random"], n_draws=30)
    for model in SMALL.values():
        found = production_matrix(sampler, model)
        gate = 8 * EPS * model.n_sites + model.rounding.sum()
        assert np.abs(found - exact.transition_matrix(function, model)).max() <= gate


@pytest.mark.parametrize("name", ["far", "extreme", "many hidden", "flat"])
def test_sampler_on_other_machines(name):
    check_sampler(LSBSampler("barker", n_burn_in=20), SMALL[name], n_draws=30)


class Wrong(RBM):
    """A little."""

    def log_ratios(self, x):
        return super().log_ratios(x) + 1e-11


def test_a_wrong_log_ratio_is_found_in_spite_of_the_rounding_allowed():
    model = machine(50, 20, scale=0.1)
    assert model.rounding.max() < 1e-12
    with pytest.raises(AssertionError, match="log_ratios must be differences of log_prob"):
        testing.check_target(Wrong(model.weights, model.visible_bias, model.hidden_bias))


@pytest.mark.parametrize("extreme", [False, True])
def test_caches_equal_a_rebuild_bit_for_bit(extreme):
    weights = np.random.default_rng(0).normal(size=(60, 17))
    weights[0, :4] += 1000.0 * extreme
    model, rng = RBM(0.5 * weights), np.random.default_rng(1)
    assert model.view().span == (0 if extreme else 20)
    probe = Probe(model, Balanced(FUNCTIONS["max"].table()), model.draw_state(rng)[None])
    start = probe.chains.x.copy()
    for _ in range(3):
        probe.ensemble.advance(rng.random((1, 10_000, 2)))
        check_caches(probe.ensemble, "in a long run")
    assert np.any(probe.chains.x != start)


def test_evidence():
    model = machine(6, 4)
    given = model.condition({1: 1, 4: 0})
    np.testing.assert_array_equal(given.rounding, model.rounding)
    x = exact.states(model)
    agrees = (x[:, 1] == 1) & (x[:, 4] == 0)
    np.testing.assert_array_equal(given.log_prob(x)[agrees], model.log_prob(x)[agrees])
    assert np.all(given.log_prob(x)[~agrees] == -np.inf)


# ----------------------------------------------------------------- the formula


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_log_prob_is_the_sum_over_hidden_units(scale):
    model = machine(5, 5, scale)
    x, h = states_of(5), states_of(5)
    joint = (x @ model.weights) @ h.T + (x @ model.visible_bias)[:, None] + h @ model.hidden_bias
    wanted = logsumexp(joint, axis=1)
    np.testing.assert_allclose(model.log_prob(x), wanted, rtol=1e-14, atol=1e-13)
    for i in range(5):
        other = x.copy()
        other[:, i] = 1 - other[:, i]
        change = model.log_prob(other) - wanted
        np.testing.assert_allclose(model.log_ratios(x)[:, i], change, rtol=0, atol=1e-13)
    on = np.exp(joint - wanted[:, None]) @ h
    np.testing.assert_allclose(model.hidden_probabilities(x), on, rtol=0, atol=1e-13)


def decimal_log_ratios(model, x):
    """Differences of log p in 40 digits more than the largest number has before its point."""

    def softplus(a):
        return (
            max(a, decimal.Decimal(0)) + ((-abs(a)).exp() + 1).ln() if abs(a) < 1e6 else max(a, 0)
        )

    with decimal.localcontext() as context:
        context.prec = 360
        b, c = (
            list(map(decimal.Decimal, bias)) for bias in (model.visible_bias, model.hidden_bias)
        )
        w = [list(map(decimal.Decimal, row)) for row in model.weights]

        def log_p(x):
            on = [i for i, value in enumerate(x) if value]
            activations = [c[j] + sum(w[i][j] for i in on) for j in range(len(c))]
            context.prec = 360 if max(map(abs, activations), default=0) > 1e6 else 60
            return sum(b[i] for i in on) + sum(map(softplus, activations))

        here, result = log_p(x), []
        for i in range(len(x)):
            other = list(x)
            other[i] = 1 - other[i]
            result.append(float(log_p(other) - here))
    return np.array(result)


@pytest.mark.parametrize("bias", [0.0, 30.0, 1e5, 1e300])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 200.0, 1e5, 1e300])
def test_log_ratios_in_many_digits(scale, bias):
    model = machine(5, 4, scale, bias, seed=3)
    x = np.random.default_rng(0).integers(2, size=(4, 5))
    wanted = np.array([decimal_log_ratios(model, state) for state in x])
    for found in (model.log_ratios(x), kernel_log_ratios(model, x)):
        assert np.all(np.abs(found - wanted) <= 8 * EPS * np.abs(wanted) + model.rounding)


@pytest.mark.parametrize("activation", [-1e5, -800.0, -650.0, -30.0, 0.0, 30.0, 650.0, 800.0, 1e5])
def test_saturated_hidden_units(activation):
    """Where the probability of a hidden unit is nothing, but the weight makes up for it."""
    weights = np.array([[-590.0], [-100.0], [-1e-5], [1e-5], [100.0], [590.0]])
    for state in (np.zeros(6), np.ones(6)):
        model = RBM(weights, hidden_bias=[activation - state @ weights[:, 0]])
        assert model.view().span > 0
        wanted = decimal_log_ratios(model, state)
        found = kernel_log_ratios(model, state[None])[0]
        # Parts of 1e-300 are nothing.
        gate = 1e-13 * np.maximum(np.abs(weights[:, 0]), 1.0) + EPS * abs(activation)
        assert np.all(np.abs(found - wanted) <= gate)


@pytest.mark.parametrize("scale", [0.05, 0.5])
def test_kernel_at_full_size(scale):
    model = machine(784, 250, scale)
    x = np.random.default_rng(1).integers(2, size=(2, 784))
    softplus = np.logaddexp(0.0, model.hidden_bias + x @ model.weights).sum(axis=1)
    sign = 1 - 2 * x
    found = kernel_log_ratios(model, x)
    for i in range(0, 784, 50):
        other = x.copy()
        other[:, i] += sign[:, i]
        after = np.logaddexp(0.0, model.hidden_bias + other @ model.weights).sum(axis=1)
        wanted = sign[:, i] * model.visible_bias[i] + after - softplus
        np.testing.assert_allclose(found[:, i], wanted, rtol=0, atol=2e-15 * softplus.max())
    size = np.abs(model.weights).sum(axis=1)
    assert np.all(np.abs(found - model.log_ratios(x)) <= 1e-13 * (1 + size))


def test_span_is_the_longest_product_that_cannot_overflow():
    size = np.ones((3, 16))
    assert _span(size) == 16
    size[1] = 60.0
    assert _span(size) == 8
    size[1, 0] = 301.0
    assert _span(size) == 4
    size[1, 0] = 500.0
    assert _span(size) == 0
    assert _span(np.ones((0, 8))) == 8


def test_leading_axes_and_images():
    model = machine(12, 5, shape=(3, 4))
    assert (model.shape, model.dims, model.n_sites) == ((3, 4), ("row", "col"), 12)
    x = np.random.default_rng(0).integers(2, size=(5, 2, 3, 4))
    assert model.log_prob(x).shape == (5, 2)
    assert model.log_ratios(x).shape == (5, 2, 12)
    assert model.hidden_probabilities(x).shape == (5, 2, 5)
    flat = x.reshape(5, 2, 12)
    for method in (model.log_prob, model.log_ratios, model.hidden_probabilities):
        np.testing.assert_array_equal(method(flat), method(x))
        np.testing.assert_allclose(method(x[1, 0]), method(x)[1, 0], rtol=0, atol=1e-13)
    assert model.log_ratios(np.empty((0, 12), dtype=int)).shape == (0, 12)
    draws = LSBSampler("barker", n_chains=2, n_burn_in=10).fit(model).sample(500)["x"]
    assert draws.dims == ("chain", "draw", "row", "col")
    assert set(np.unique(draws)) <= {0, 1}
    assert machine(12, 5).dims == ("site",)
    image = machine(12, 5, shape=(2, 2, 3), dims=("row", "col", "channel"))
    assert image.names[4] == (0, 1, 1)


def test_repr_pickle_copy_and_read_only_arrays():
    model = machine(6, 4, shape=(2, 3))
    assert repr(model) == "RBM(2 x 3 visible units, 4 hidden)"
    model.view()
    x = states_of(6)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert repr(other) == repr(model)
        np.testing.assert_array_equal(other.log_prob(x), model.log_prob(x))
        for name in ("weights", "visible_bias", "hidden_bias"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(other, name)[...] = 0.0
    given = np.ones((2, 2))
    other = RBM(given)
    given[:] = 0.0
    assert other.weights.sum() == 4.0


# ----------------------------------------------------------------- draws


def test_exact_marginals():
    model, n = machine(8, 5), 100_000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        sampler = LSBSampler("barker", n_chains=4, random_state=1).fit(model)
        draws = sampler.sample(n)["x"].to_numpy().reshape(-1, 8)
    x, p = exact.states(model), exact.probabilities(model)
    matrix = exact.transition_matrix(sampler, model)
    # The variance of the mean is known too: sum of all autocovariances, by one linear system.
    away = x - p @ x
    solved = np.linalg.solve(np.eye(p.size) - matrix + p, away)
    error = np.sqrt(p @ (2 * away * solved - away**2) / (4 * n))
    assert np.all(np.abs(draws.mean(axis=0) - p @ x) <= 5 * error)


def sigmoid(a):
    return 1.0 / (1.0 + np.exp(-a))


def block_gibbs(model, n_chains, n_draws, seed=0):
    """Hidden units given visible ones and back; means of P(x_i = 1 | h) of each chain."""
    rng = np.random.default_rng(seed)
    w, b, c = model.weights, model.visible_bias, model.hidden_bias
    x = rng.integers(2, size=(n_chains, model.n_sites)).astype(float)
    mean = np.zeros(x.shape)
    for k in range(2 * n_draws):
        h = rng.random((n_chains, c.size)) < sigmoid(c + x @ w)
        p = sigmoid(b + h @ w.T)
        x = (rng.random(p.shape) < p).astype(float)
        mean += p * (k >= n_draws)
    return mean / n_draws


@pytest.fixture(scope="module")
def trained():
    images = (load_digits().data[:600] > 7).astype(float)
    return images, BernoulliRBM(12, learning_rate=0.05, n_iter=15, random_state=0).fit(images)


def test_from_sklearn(trained):
    images, fitted = trained
    model = RBM.from_sklearn(fitted, shape=(8, 8))
    np.testing.assert_array_equal(model.weights, fitted.components_.T)
    assert (model.shape, model.hidden_bias.size) == ((8, 8), 12)
    x = images[:50].astype(int)
    free_energy = -(x @ fitted.intercept_visible_) - np.logaddexp(
        0, x @ fitted.components_.T + fitted.intercept_hidden_
    ).sum(axis=1)
    np.testing.assert_allclose(model.log_prob(x), -free_energy, rtol=1e-13)
    np.testing.assert_allclose(model.hidden_probabilities(x), fitted.transform(x), rtol=1e-12)
    single = BernoulliRBM(12, n_iter=1).fit(images.astype(np.float32))
    assert RBM.from_sklearn(single).weights.dtype == np.float64


def test_marginals_of_a_trained_machine_against_block_gibbs(trained):
    model = RBM.from_sklearn(trained[1])
    testing.check_target(model)
    n_chains = 24
    sampler = LSBSampler("barker", n_chains=n_chains, n_burn_in=20_000, random_state=0)
    ours = sampler.fit(model).sample(800, thin="sweep")["x"].to_numpy().mean(axis=1)
    theirs = block_gibbs(model, n_chains, 1600)
    # Chains are independent, so their means tell the error.
    error = np.sqrt((ours.var(axis=0, ddof=1) + theirs.var(axis=0, ddof=1)) / n_chains)
    z = (ours.mean(axis=0) - theirs.mean(axis=0)) / np.maximum(error, 1e-4)
    assert np.abs(z).max() <= 4.0
    assert np.mean(np.abs(z) <= 3.0) >= 0.95


def test_learning(trained):
    model = RBM.from_sklearn(trained[1], shape=(8, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        sampler = LSBSampler(n_chains=2, n_burn_in=200, random_state=0).fit(model)
    assert sampler.candidates_.attrs["chosen"] in sampler.candidates_["candidate"]
    assert np.isfinite(sampler.history_["objective"]).all()


@pytest.mark.slow  # on five other views in the commit tier
def test_objectives():
    check_objectives(FUNCTIONS["monotone"], machine(3, 4, seed=2))


# ----------------------------------------------------------------- errors


W = np.ones((3, 2))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: RBM(np.ones(3)),
            ValueError,
            r"weights has shape \(3,\); it must have shape \(n_v",
        ),
        (lambda: RBM(W * 1j), TypeError, "weights has dtype complex128; give real numbers"),
        (lambda: RBM([[1], [1, 2]]), ValueError, "weights is not an array of numbers"),
        (lambda: RBM([[1, np.nan]]), ValueError, r"weights\[0, 1\] is nan; it must be finite"),
        (
            lambda: RBM(W, np.zeros(2)),
            ValueError,
            r"visible_bias has shape \(2,\); it must be a number or of shape \(3,\)",
        ),
        (lambda: RBM(W, None, np.zeros(3)), ValueError, r"hidden_bias has shape \(3,\); .*\(2,\)"),
        (lambda: RBM(W, None, [0, np.inf]), ValueError, r"hidden_bias\[1\] is inf; it must be"),
        (lambda: RBM(W, ["a", "b", "c"]), TypeError, "visible_bias has dtype <U1; give real"),
        (
            lambda: RBM(W, shape=(2, 2)),
            ValueError,
            r"shape is \(2, 2\); its product must be n_sites, 3",
        ),
        (lambda: RBM(W, shape=4), ValueError, "shape is 4; its product must be"),
        (lambda: RBM(W, shape=(3, 1, 1)), ValueError, r"shape is \(3, 1, 1\); give dims"),
        (lambda: RBM(W, shape=(-3, -1)), ValueError, r"shape is \(-3, -1\); its product"),
        (lambda: RBM(W, shape=(1.5, 2)), TypeError, r"shape is \(1.5, 2\); give integers"),
        (
            lambda: RBM([[1e303, 1e303], [0, 0]]),
            ValueError,
            r"\|bias\| \+ sum \|weights\| of visible unit 0 is 2e\+303; it must be at most 1e\+303",
        ),
        (
            lambda: RBM([[0.0], [9e302]], None, [-9e302]),
            ValueError,
            r"of hidden unit 0 is 1\.8e\+303; .* Rescale the model",
        ),
        (
            lambda: RBM.from_sklearn(BernoulliRBM()),
            TypeError,
            r"machine is BernoulliRBM\(\) without components_; give a fitted sklearn",
        ),
        (lambda: RBM.from_sklearn(W), TypeError, "without components_; give"),
    ],
)
def test_errors_name_what_was_given(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([0, 1, 2], r"x\[2\] is 2; every variable .* the values \(0, 1\)"),
        ([0, 1], r"x has shape \(2,\); the target needs \(\.\.\., 3\)"),
    ],
)
def test_wrong_states_are_refused(x, message):
    model = RBM(W)
    for method in (model.log_prob, model.log_ratios, model.hidden_probabilities):
        with pytest.raises(ValueError, match=message):
            method(x)

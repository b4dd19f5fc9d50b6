"""Contrastive divergence: against the exact gradient, and the fit of largest likelihood."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit, logsumexp

from sklsb import RBM, exact
from sklsb.samplers.training import _gradients, contrastive_divergence


def machine(n, m, scale, seed=0):
    rng = np.random.default_rng(seed)
    return RBM(scale * rng.normal(size=(n, m)), rng.normal(size=n), rng.normal(size=m))


def draws(model, n, seed=0):
    rng = np.random.default_rng(seed)
    p = exact.probabilities(model)
    return exact.states(model)[rng.choice(p.size, n, p=p)]


def mean_log_likelihood(model, x):
    return (model.log_prob(x) - logsumexp(model.log_prob(exact.states(model)))).mean()


def test_long_chains_give_the_gradient_of_the_likelihood():
    model, x = machine(4, 3, 0.7), draws(machine(4, 3, 2.0, seed=1), 200_000)
    single = [p.astype(np.float32) for p in (model.weights, model.visible_bias, model.hidden_bias)]
    rng = np.random.default_rng(2)
    found = _gradients(x.astype(np.float32), single, 30, rng)

    def likelihood(parameters):
        weights, visible, hidden = np.split(parameters, [12, 16])
        return mean_log_likelihood(RBM(weights.reshape(4, 3), visible, hidden), x)

    at = np.concatenate([p.ravel() for p in (model.weights, model.visible_bias, model.hidden_bias)])
    steps = 1e-5 * np.eye(at.size)
    wanted = [(likelihood(at + s) - likelihood(at - s)) / 2e-5 for s in steps]
    # Means over 200,000 chains of numbers between 0 and 1.
    np.testing.assert_allclose(
        -np.concatenate([g.ravel() for g in found]), wanted, atol=5 * 0.5 / np.sqrt(2e5)
    )
    assert np.abs(wanted).max() > 0.05
    assert [g.dtype for g in found] == [np.float32] * 3


@pytest.mark.quick
def test_one_step_is_that_of_the_formula():
    # The chance of each state of the chain after one step, by enumeration.
    model = machine(3, 2, 1.0)
    weights, visible, hidden = model.weights, model.visible_bias, model.hidden_bias
    start = np.array([1, 0, 1])
    states = np.array(list(itertools.product((0, 1), repeat=3)))
    p = np.zeros(8)
    on = expit(start @ weights + hidden)
    for h in itertools.product((0, 1), repeat=2):
        q = expit(weights @ h + visible)
        chance = np.prod(np.where(h, on, 1 - on))
        p += chance * np.prod(np.where(states, q, 1 - q), axis=1)
    after = expit(states @ weights + hidden)
    wanted = np.einsum("s,si,sj->ij", p, states, after) - np.outer(start, on)
    single = [a.astype(np.float32) for a in (weights, visible, hidden)]
    x = np.tile(start, (100_000, 1)).astype(np.float32)
    found = _gradients(x, single, 1, np.random.default_rng(0))
    tolerance = 5 * 0.5 / np.sqrt(1e5)
    np.testing.assert_allclose(found[0], wanted, atol=tolerance)
    np.testing.assert_allclose(found[1], p @ states - start, atol=tolerance)
    np.testing.assert_allclose(found[2], p @ after - on, atol=tolerance)


def test_training_approaches_the_largest_likelihood():
    # Two patterns with noise, a distribution that a machine of one hidden unit has.
    noise = np.random.default_rng(0).random((10_000, 4)) < 0.1
    x = np.repeat([[1, 1, 1, 0], [0, 0, 1, 1]], 5_000, axis=0) ^ noise
    p = np.unique(x @ (1, 2, 4, 8), return_counts=True)[1] / len(x)
    entropy = -p @ np.log(p)
    mean = x.mean(axis=0)
    independent = (mean * np.log(mean) + (1 - mean) * np.log1p(-mean)).sum()
    options = {"n_gibbs": 10, "learning_rate": 0.01, "random_state": 0}
    found = [
        mean_log_likelihood(contrastive_divergence(x, 3, n_epochs=n, **options), x)
        for n in (0, 2, 5, 20)
    ]
    # Weights of 0.01 are nearly none.
    assert found[0] == pytest.approx(independent, abs=1e-3)
    assert found == sorted(found)
    assert 0 < -entropy - found[-1] < 0.02 * (-entropy - found[0])


def test_where_it_starts():
    x = (np.random.default_rng(0).random((500, 5)) < [0.0, 0.2, 0.5, 0.9, 1.0]).astype(np.int8)
    start = contrastive_divergence(x, 200, n_epochs=0, random_state=0)
    wanted = logit(np.clip(x.mean(axis=0), 0.01, 0.99))
    np.testing.assert_allclose(start.visible_bias, wanted, rtol=1e-6)
    np.testing.assert_array_equal(start.hidden_bias, np.zeros(200))
    assert start.weights.std() == pytest.approx(0.01, rel=0.1)


def test_seeds_kinds_of_input_and_shape():
    x = draws(machine(6, 3, 2.0), 130)  # the last batch is smaller
    before = x.copy()

    def train(data=x, random_state=7):
        options = {"n_epochs": 2, "batch_size": 50, "shape": (2, 3)}
        found = contrastive_divergence(data, 4, random_state=random_state, **options)
        return np.concatenate([found.weights.ravel(), found.visible_bias, found.hidden_bias])

    np.testing.assert_array_equal(train(), train())
    np.testing.assert_array_equal(train(), train(random_state=np.random.default_rng(7)))
    for other in (x.astype(bool), x.astype(float), x.tolist()):
        np.testing.assert_array_equal(train(other), train())
    assert np.any(train(random_state=8) != train())
    np.testing.assert_array_equal(x, before)
    model = contrastive_divergence(x, 4, n_epochs=1, shape=(2, 3), random_state=0)
    assert isinstance(model, RBM)
    assert model.shape == (2, 3)


@pytest.mark.parametrize(
    ("data", "params", "error", "message"),
    [
        (np.zeros(4), {}, ValueError, r"data has shape \(4,\); it must have shape \(n_samples"),
        (np.zeros((0, 4)), {}, ValueError, r"data has shape \(0, 4\)"),
        (np.full((3, 4), 0.5), {}, ValueError, "entries other than 0 and 1; binarize"),
        (np.full((3, 4), -1), {}, ValueError, "entries other than 0 and 1"),
        (np.full((3, 4), np.nan), {}, ValueError, "entries other than 0 and 1"),
        ([["0", "1"]], {}, ValueError, "entries other than 0 and 1"),
        (np.eye(4), {"n_hidden": 0}, ValueError, "n_hidden is 0; it must be at least 1"),
        (np.eye(4), {"n_hidden": 2.5}, TypeError, r"n_hidden is 2\.5; give an integer"),
        (np.eye(4), {"n_gibbs": 0}, ValueError, "n_gibbs is 0"),
        (np.eye(4), {"batch_size": 0}, ValueError, "batch_size is 0"),
        (np.eye(4), {"n_epochs": -1}, ValueError, "n_epochs is -1; it must be at least 0"),
        (np.eye(4), {"learning_rate": -1.0}, ValueError, r"learning_rate is -1\.0; .*\[0, inf\)"),
        (np.eye(4), {"learning_rate": np.nan}, ValueError, "learning_rate is nan"),
        (np.eye(4), {"learning_rate": 1e39}, ValueError, "do not stay finite .* make it smaller"),
        (np.eye(4), {"shape": (3, 3)}, ValueError, r"shape is \(3, 3\)"),
    ],
)
def test_errors(data, params, error, message):
    with pytest.raises(error, match=message), np.errstate(all="ignore"):
        contrastive_divergence(data, **({"n_hidden": 2, "n_epochs": 3} | params))


def test_sparse_data_are_the_same_and_masks_are_not_dropped():
    data = np.random.default_rng(0).random((20, 4)) < 0.5
    given = {"n_hidden": 2, "n_epochs": 2, "random_state": 0}
    wanted = contrastive_divergence(data, **given)
    for make in (sp.csr_array, sp.coo_matrix, sp.dok_array):
        for dtype in (np.bool_, np.float64):
            found = contrastive_divergence(make(data.astype(dtype)), **given)
            np.testing.assert_array_equal(found.weights, wanted.weights)
    with pytest.raises(ValueError, match="data has entries other than 0 and 1"):
        contrastive_divergence(sp.csr_array(0.5 * data), **given)
    masked = np.ma.array(np.where(data, 1, 0), mask=~data)
    with pytest.raises(TypeError, match=r"data is a masked array with \d+ of 80 entries masked"):
        contrastive_divergence(masked, **given)

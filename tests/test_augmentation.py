"""Polya-Gamma weights of rows: the formulas and both updates, against quadrature."""

import numpy as np
import pytest
from logistic import Quadrature, by_size, log_likelihood
from models import pairs
from scipy.special import expit, logsumexp

from sklsb.selection import augmentation
from sklsb.selection.augmentation import Augmentation

SLAB_SD = 1.5


def data(n=24, p=3, seed=0, m=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
    m = np.full(n, m)
    return X, rng.binomial(m, expit(0.4 + X[:, 0] - X[:, 2])).astype(float), m


def test_the_conditional_distribution_by_integration():
    """Marginal likelihood given the weights, and moments, with the prior of the slab."""
    X, y, m = data(m=3)
    rng = np.random.default_rng(1)
    found = Augmentation(y, m)
    found.omega = rng.gamma(2.0, 0.5, size=y.size)
    x = np.linspace(-8, 8, 81)
    for included in ([0], [1, 2]):
        design = np.vstack([np.ones(y.size), X.T[included]])
        ridge = np.array([0.0, *[SLAB_SD**-2.0] * len(included)])
        conditional = found.conditional(design, ridge)
        k = ridge.size
        grid = np.stack(np.meshgrid(*[x] * k, indexing="ij"), axis=-1).reshape(-1, k)
        # The trapezoidal rule, in a box that holds all probability.
        precision = (design * found.omega) @ design.T + np.diag(ridge)
        step = np.linalg.eigvalsh(precision)[0] ** -0.5
        b = conditional.mean + step * grid
        psi = b @ design
        values = k * np.log(step * (x[1] - x[0])) + psi @ found.kappa - 0.5 * psi**2 @ found.omega
        values -= 0.5 * (ridge * b**2).sum(axis=1)
        log_z = logsumexp(values) - 0.5 * k * np.log(2 * np.pi)
        assert conditional.log_p == pytest.approx(log_z, abs=1e-6)
        share = np.exp(values - logsumexp(values))
        np.testing.assert_allclose(share @ b, conditional.mean, atol=1e-6)
        draws = np.array([conditional.draw(rng) for _ in range(20_000)])
        covariance = np.cov(b.T, aweights=share, ddof=0)
        np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.05 * covariance.max())
        np.testing.assert_allclose(conditional.predictor, conditional.mean @ design)


def sampled(X, y, m, weights, n_sweeps, seed):
    """Inclusion probabilities and coefficients, by sweep: models are drawn given the weights."""
    n, p = X.shape
    rng = np.random.default_rng(seed)
    masks = np.array([[(code >> j) & 1 for j in range(p)] for code in range(2**p)], dtype=bool)
    log_prior = np.array([by_size(p)(mask) - mask.sum() * np.log(SLAB_SD) for mask in masks])
    columns = np.vstack([np.ones(n), X.T])
    ridge = np.full(p + 1, SLAB_SD**-2.0)
    ridge[0] = 0.0
    keep = np.column_stack([np.ones(len(masks), bool), masks])
    found = np.empty((2, n_sweeps, p))
    for sweep in range(n_sweeps):
        given = [weights.conditional(columns[k], ridge[k]) for k in keep]
        log_p = log_prior + [conditional.log_p for conditional in given]
        share = np.exp(log_p - logsumexp(log_p))
        found[0, sweep] = share @ masks
        found[1, sweep] = sum(
            s * np.bincount(np.flatnonzero(k), c.mean, p + 1)[1:]
            for s, k, c in zip(share, keep, given, strict=True)
        )
        chosen = rng.choice(len(masks), p=share)
        coefficients = weights.update(given[chosen], ridge[keep[chosen]], rng)
        assert coefficients.shape == (keep[chosen].sum(),)
    return found


@pytest.mark.parametrize(("integrated", "trials"), pairs([0.0, 0.5, 1.0], [1, 4], each=1))
def test_both_updates_leave_the_posterior_invariant(integrated, trials, monkeypatch):
    X, y, m = data(m=trials)
    truth = Quadrature(X, y, by_size(3), m=m, slab_sd=SLAB_SD, n_nodes=9)
    weights = Augmentation(y, m)
    monkeypatch.setattr(augmentation, "INTEGRATED", 0.0)  # the others may not leave the start
    sampled(X, y, m, weights, 200, seed=0)
    monkeypatch.setattr(augmentation, "INTEGRATED", integrated)
    found = sampled(X, y, m, weights, 1_600, seed=trials)
    assert (weights.n_proposed > 0) == (integrated > 0)
    assert 0.5 * weights.n_proposed <= weights.n_accepted <= weights.n_proposed
    batches = found.reshape(2, 20, -1, 3).mean(axis=2)
    error = batches.std(axis=1, ddof=1) / np.sqrt(20)
    for k, wanted in enumerate((truth.inclusion, truth.coef)):
        assert (np.abs(batches[k].mean(axis=0) - wanted) < 4 * error[k]).all()
    assert error[0].max() < 0.008


def test_quadrature_has_converged():
    X, y, _ = data()
    few, many = (Quadrature(X, y, by_size(3), slab_sd=SLAB_SD, n_nodes=n) for n in (9, 17))
    for name in ("inclusion", "coef", "intercept", "coef_sd", "log_z"):
        np.testing.assert_allclose(getattr(few, name), getattr(many, name), atol=2e-5)
    np.testing.assert_allclose(few.positive, many.positive, atol=0.02)  # of a step function


def test_likelihood():
    """Up to binomial coefficients."""
    psi, y, m = np.array([0.3, -2.0]), np.array([1.0, 2.0]), np.array([1, 5])
    p = expit(psi)
    wanted = (y * np.log(p) + (m - y) * np.log(1 - p)).sum()
    assert log_likelihood(psi, y, m) == pytest.approx(wanted, rel=1e-14)

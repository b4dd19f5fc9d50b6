"""The training of the example "Dreamt digits", against the largest likelihood, by enumeration."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp

from sklsb import exact


def test_training_approaches_the_largest_likelihood(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    pytest.importorskip("matplotlib").use("Agg")
    train = importlib.import_module("benchmarks.rbm_mnist").contrastive_divergence
    # Two patterns with noise, a distribution that a machine of one hidden unit has.
    noise = np.random.default_rng(0).random((10_000, 4)) < 0.1
    x = np.repeat([[1, 1, 1, 0], [0, 0, 1, 1]], 5_000, axis=0) ^ noise
    p = np.unique(x @ (1, 2, 4, 8), return_counts=True)[1] / len(x)
    entropy = -p @ np.log(p)
    mean = x.mean(axis=0)
    independent = (mean * np.log(mean) + (1 - mean) * np.log1p(-mean)).sum()

    def likelihood(n_epochs):
        model = train(x, 3, (2, 2), n_epochs=n_epochs, rate=0.01)
        return (model.log_prob(x) - logsumexp(model.log_prob(exact.states(model)))).mean()

    found = [likelihood(n) for n in (0, 2, 5, 20)]
    assert found[0] == pytest.approx(independent, abs=1e-3)  # weights of 0.01 are nearly none
    assert found == sorted(found)
    assert 0 < -entropy - found[-1] < 0.02 * (-entropy - found[0])

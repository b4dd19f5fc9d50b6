"""Trainings against the largest likelihood, by enumeration: contrastive divergence, and tokens."""

import importlib
import re
import textwrap
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


PAGES = Path(__file__).parents[1] / "doc"


def run_page(name):
    """Run the code of a page; return its names and the text."""
    pytest.importorskip("torch")
    page = (PAGES / name).read_text("utf-8")
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?: {3}.*\n|\n)+)", page, re.MULTILINE)
    space = {}
    for block in blocks:
        exec(textwrap.dedent(block), space)
    return space, page


@pytest.mark.slow
@pytest.mark.skipif(not PAGES.exists(), reason="this distribution has no pages")
def test_the_model_of_tokens_of_the_page_learns_its_data(capsys):
    space, page = run_page("target_tokens.rst")
    out = capsys.readouterr().out
    log_likelihood = float(out.partition("\n")[0])
    # The page shows what it prints, in digits that do not depend on the processor.
    said = np.array(re.findall(r"^ {3}(-\d\.\d+)", page, re.MULTILINE), float)
    assert said == pytest.approx(
        np.array(re.findall(r"^-\d\.\d+", out, re.MULTILINE), float), abs=0.1
    )
    assert said.shape == (2,)
    chance = np.array([0.8, 0.1, 0.1])
    entropy = np.log(5) - 5 * chance @ np.log(chance)
    # Of test data, relative to the gain over independent tokens: the network overfits a little.
    assert 0 < -entropy - log_likelihood < 0.05 * (6 * np.log(5) - entropy)
    # Annealing and enumeration find the same log Z.
    assert space["z"].value == pytest.approx(space["log_z"], abs=4 * space["z"].mcse)
    # Indicators and ids are the same model, at the same states.
    x = space["own"]
    assert x.shape == (128, 6)
    assert x.dtype == space["torch"].int64
    one_hot = space["sampler"].one_hot_tensor_
    assert space["torch"].equal(one_hot.argmax(-1), x)
    grads = []
    for f, given in ((space["module"], one_hot.float()), (space["of_ids"], x)):
        space["module"].zero_grad()
        f(given).mean().backward()
        grads.append([p.grad.clone() for p in space["module"].parameters()])
    for one, other in zip(*grads, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not PAGES.exists(), reason="this distribution has no pages")
@pytest.mark.filterwarnings("ignore::sklsb.exceptions.PeriodicChainWarning")  # as the page says
def test_the_model_of_pixels_of_the_page_gains_what_the_page_says(capsys):
    space, page = run_page("target_torch.rst")
    out = capsys.readouterr().out
    said = float(re.search(r"gain (\d\S*) ±", page)[1])
    assert space["gain"].mean() == pytest.approx(said, abs=0.5)  # torch rounds by processor
    # By first-order steps, from other chains.
    first_order = re.findall(r"^ {3}(\d+\.\d+)$", page, re.MULTILINE)[-1]
    assert float(first_order) == pytest.approx(
        float(re.search(r"log Z (\d\S*) ±", page)[1]), abs=0.1
    )
    assert float(out.split()[-1]) == pytest.approx(space["log_z"].value, abs=0.1)

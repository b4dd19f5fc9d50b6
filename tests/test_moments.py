"""Moments without draws, and requests that do not fit in memory."""

import warnings

import numpy as np
import pytest
import xarray as xr
from models import dense
from test_elimination_sampler import nearly_normalised

from sklsb import EliminationSampler, GibbsSampler, Ising, MarkovNetwork, diagnostics
from sklsb._system import memory as _memory
from sklsb.diagnostics.moments import Moments
from sklsb.exceptions import SamplerWarning

TARGET = dense(6, scale=0.4)
MIXED = MarkovNetwork([2, 3, 1, 2], [((0, 1), np.arange(1.0, 7.0).reshape(2, 3))])


def chains(target, sampler=GibbsSampler, **params):
    params = {"n_chains": 2, "random_state": 0} | params
    return sampler(**params).fit(target)


@pytest.mark.parametrize("target", [TARGET, MIXED, Ising.lattice(np.zeros((2, 3)), 0.1)])
def test_they_are_those_of_the_draws(target, monkeypatch):
    draws = chains(target, EliminationSampler).sample(1000)
    monkeypatch.setattr("sklsb.ensembles.base.FIRST_SEGMENT", 7)
    sampler = chains(target, EliminationSampler)
    found = sampler.sample(1000, record="moments")
    x = draws["x"].values.reshape(-1, target.n_sites).astype(float)
    shape, dims = target.shape, target.dims
    marginals = diagnostics.marginals(draws, target)
    np.testing.assert_allclose(found["p"], marginals["p"], rtol=1e-13, atol=1e-15)
    assert found["p"].dims == (*dims, "state")
    np.testing.assert_allclose(found["mean"], x.mean(0).reshape(shape), atol=1e-13)
    np.testing.assert_allclose(found["second_moment"], (x**2).mean(0).reshape(shape), atol=1e-13)
    pairs = (x.T @ x / len(x)).reshape(*shape, *shape)
    np.testing.assert_allclose(found["pair_moment"], pairs, atol=1e-13)
    assert found["pair_moment"].dims == (*dims, *(f"{dim}_2" for dim in dims))
    np.testing.assert_allclose(found["lp"], draws["lp"].values.mean(), rtol=1e-12)
    assert found.attrs["n_draws"] == 1000
    assert sampler.sample_stats_.sizes["draw"] == 0
    # Independent draws: errors are those of as many.
    moved = marginals["mcse"].values > 0
    ratio = found["mcse"].values[moved] / marginals["mcse"].values[moved]
    assert 0.6 < ratio.min() <= ratio.max() < 1.8
    assert np.array_equal(found["mcse"].values[~moved], marginals["mcse"].values[~moved])
    error = x.std(0) / np.sqrt(len(x))
    ratio = found["mean_mcse"].values.ravel()[error > 0] / error[error > 0]
    assert 0.6 < ratio.min() <= ratio.max() < 1.8


def test_errors_of_chains_that_stay_apart():
    """As wide as those of the draws, not as if batches of one chain were independent."""
    rng, n = np.random.default_rng(0), 6400
    x = np.where(rng.random((8, n, 6)) < 0.02, -1, 1).astype(np.int8)
    x[:, :, 1:] = rng.choice([-1, 1], size=(8, n, 5))
    x[0, :, 0] *= -1
    moments = Moments(TARGET, 8)
    moments.add(x, rng.normal(size=(8, n)))
    found = moments.dataset({})
    draws = xr.Dataset({"x": (("chain", "draw", "site"), x)})
    wanted = diagnostics.marginals(draws, TARGET)["mcse"].values
    ratio = found["mcse"].values / wanted
    assert wanted[0, 1] > 0.1
    assert 0.5 < ratio[0, 1] < 1.5
    assert 0.6 < ratio[1:].min() <= ratio[1:].max() < 1.8


def test_no_error_is_nothing_where_something_was_seen():
    """Draws that fill no batch count in the errors too."""
    target = MarkovNetwork([2] * 40, [((i,), [0.9995, 0.0005]) for i in range(40)])
    seen = 0
    for seed in range(20):
        x = (np.random.default_rng(seed).random((16, 287, 40)) < 0.0005).astype(np.int8)
        moments = Moments(target, 16)
        moments.add(x, np.zeros((16, 287)))
        found = moments.dataset({})
        p, mcse = found["p"].values[:, 1], found["mcse"].values[:, 1]
        rare = p > 0
        seen += (x[:, 256:].sum((0, 1)) == x.sum((0, 1)))[rare].sum()
        independent = np.sqrt(p * (1 - p) / x[:, :, 0].size)[rare]
        assert (mcse[rare] >= independent).all()
        np.testing.assert_allclose(found["mean_mcse"].values[rare], mcse[rare])
    assert seen


def test_however_draws_come(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.choice([-1, 1], size=(3, 700, 6)).astype(np.int8)
    lp = rng.normal(size=(3, 700))
    whole, parts = Moments(TARGET, 3), Moments(TARGET, 3)
    whole.add(x, lp)
    at = 0
    while at < 700:
        n = int(rng.integers(0, 40))
        parts.add(x[:, at : at + n], lp[:, at : at + n])
        at += n
    assert whole.dataset({}).identical(parts.dataset({}))
    assert whole.sums.shape[1] == 64
    assert whole.size == 16


def test_slow_chains_have_larger_errors():
    """Each state comes 20 times; batches of four lengths see it."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.choice([-1, 1], size=(4, 500, 6)), 20, axis=1).astype(np.int8)
    moments = Moments(TARGET, 4)
    moments.add(x, np.zeros((4, 10_000)))
    found = moments.dataset({})
    ratio = found["mean_mcse"].values / (1 / np.sqrt(2000))
    assert 0.75 < ratio.min() <= ratio.max() < 1.5


def test_visits_of_several_batches_are_seen():
    """Each of 16 states of a chain lasts two batches, which are not independent then."""
    target, rng = Ising(np.zeros((40, 40))), np.random.default_rng(0)
    x = np.repeat(rng.choice([-1, 1], size=(4, 16, 40)), 64, axis=1).astype(np.int8)
    moments = Moments(target, 4)
    moments.add(x, np.zeros((4, 1024)))
    assert moments.size == 32
    ratio = moments.dataset({})["mean_mcse"].values / (1 / np.sqrt(64))
    assert np.quantile(ratio, 0.2) > 0.8  # 0.7 by batches of one length
    assert ratio.mean() < 1.3


def test_what_never_changed_has_no_error():
    moments = Moments(Ising(np.zeros((3, 3))).condition({2: 1}), 2)
    x = np.ones((2, 64, 3), dtype=np.int8)
    x[:, ::3, 0] = -1
    moments.add(x, np.zeros((2, 64)))
    found = moments.dataset({})
    assert np.isnan(found["mean_mcse"].values).tolist() == [False, True, False]
    assert found["mean_mcse"].values[2] == 0.0
    assert np.isnan(found["mcse"].values).tolist() == [[False] * 2, [True] * 2, [False] * 2]
    assert np.isnan(found["pair_moment_mcse"].values[0, 1])


def test_large_models_have_no_pairs(monkeypatch):
    monkeypatch.setattr("sklsb.diagnostics.moments.MOST_PAIRED", 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        found = chains(TARGET, n_burn_in=5).sample(3, record="moments")
    assert "pair_moment" not in found
    assert np.isnan(found["mcse"].values).all()  # of three draws


def test_what_is_refused(tmp_path):
    sampler = chains(TARGET, n_burn_in=5)
    with pytest.raises(ValueError, match='record is \'means\'; give one of "moments", "marginals"'):
        sampler.sample(3, record="means")
    with pytest.raises(ValueError, match=r"keeps no single draws to store; give one of the two\."):
        sampler.sample(3, record="moments", store=tmp_path / "run.zarr")
    assert sampler.run_.ensemble.counters.n_draws == 0


# ----------------------------------------------------------------- memory


def test_a_request_that_does_not_fit(monkeypatch):
    sampler = chains(TARGET, n_burn_in=5)
    monkeypatch.setattr(_memory, "available", lambda: 10_000_000)
    with pytest.raises(MemoryError) as refused:
        sampler.sample(10**6)
    text = str(refused.value)
    assert "sample(1000000) of 2 chains of 6 variables takes 28000000 bytes (28 MB)" in text
    assert "10 MB of memory are free" in text
    for way in ('store="run.zarr"', 'record="moments"', "thin"):
        assert way in text
    assert sampler.run_.ensemble.counters.n_transitions == 0
    with pytest.raises(MemoryError, match="takes 16000000 bytes"):
        sampler.sample(10**6, record={"m": lambda x: x.mean(axis=1)})
    large = chains(Ising.lattice(np.zeros((70, 70)), 0.1), n_burn_in=0)
    for record in ("moments", "marginals"):  # sums of 9,801 numbers in 64 batches, four times
        with pytest.raises(
            MemoryError, match=r"sums over draws of 2 .* 4900 variables takes 40144"
        ):
            large.sample(3, record=record)
    sampler.set_params(keep_burn_in=True, n_burn_in=10**6)
    with pytest.raises(MemoryError, match=r"keep_burn_in=True with 1000000 .* 12000000 bytes"):
        sampler.fit(TARGET)
    assert sampler.sample(400).sizes["draw"] == 400
    monkeypatch.setattr(_memory, "available", lambda: None)  # not known
    assert sampler.sample(400).sizes["draw"] == 400


def test_what_is_free(tmp_path, monkeypatch):
    found = _memory.available()
    assert found is None or found > 10**7
    meminfo, limit, used = (tmp_path / name for name in ("meminfo", "max", "current"))
    monkeypatch.setattr(_memory, "_MEMINFO", meminfo)
    monkeypatch.setattr(_memory, "_GROUPS", ((str(limit), str(used)),))
    assert _memory.available() is None
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:   2000 kB\n")
    assert _memory.available() == 2_048_000
    limit.write_text("max\n")
    used.write_text("1000000\n")
    assert _memory.available() == 2_048_000
    limit.write_text("1500000\n")
    assert _memory.available() == 500_000
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 200000\n")
    assert _memory.available() == 700_000


def test_draws_that_are_rejected_are_not_counted():
    sampler = EliminationSampler(n_chains=2, random_state=0).fit(nearly_normalised())
    found = sampler.sample(300, record="moments")
    np.testing.assert_allclose(found["p"].sum("state"), 1.0)


def test_what_was_never_seen_has_no_probability_at_all():
    """Nor a negative one, as a difference of shares would have."""
    weights = [0.0, *np.random.default_rng(0).random(8)]
    target = MarkovNetwork([9] * 8, [((i,), weights) for i in range(8)])
    for seed in range(20):
        moments = Moments(target, 2)
        x = np.random.default_rng(seed).integers(1, 9, size=(2, 77, 8)).astype(target.dtype)
        moments.add(x, np.zeros((2, 77)))
        p = moments.dataset({})["p"].values
        assert (p[:, 0] == 0).all()
        assert (p >= 0).all()

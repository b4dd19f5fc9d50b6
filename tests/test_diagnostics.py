"""Diagnostics against their formulas, written as loops."""

import warnings
from itertools import groupby

import numpy as np
import pytest
import xarray as xr

from sklsb import (
    FunctionTarget,
    Ising,
    LSBSampler,
    MarkovNetwork,
    Potts,
    anneal,
    diagnostics,
    exact,
)
from sklsb.diagnostics import autocorrelation, best_state, ess, marginals, mmd, paper_ess
from sklsb.diagnostics.measures import ess_of_means
from sklsb.exceptions import FrozenSitesWarning, ShortRunWarning


def ar1(n, rho, seed, chains=None):
    rng = np.random.default_rng(seed)
    shape = (n,) if chains is None else (chains, n)
    noise = rng.standard_normal(shape)
    series = noise.copy()
    for t in range(1, n):
        series[..., t] = rho * series[..., t - 1] + np.sqrt(1 - rho**2) * noise[..., t]
    return series


def literal_autocorrelation(series, lags):
    n = len(series)
    mean = sum(series) / n
    below = sum((s - mean) ** 2 for s in series)
    out = []
    for j in range(lags + 1):
        above = 0.0
        for t in range(n - j):
            above += (series[t] - mean) * (series[t + j] - mean)
        out.append(above / below)
    return out


def literal_paper_ess(series, lags):
    r = literal_autocorrelation(series, lags)
    below = 1.0
    for j in range(1, lags + 1):
        if r[j] > 0.05:
            below += 2 * r[j] * (1 - j / (lags + 1))
    return (lags + 1) / below


@pytest.mark.parametrize(("n", "lags"), [(1, 0), (2, 1), (7, 6), (200, 50), (257, 256)])
@pytest.mark.parametrize("rho", [0.0, 0.9, -0.5])
def test_autocorrelation_is_the_double_loop(n, lags, rho):
    series = ar1(n, rho, seed=n) + 3.0
    got = autocorrelation(series, lags)
    assert got.shape == (lags + 1,)
    if n == 1:
        assert np.isnan(got).all()
        return
    np.testing.assert_allclose(got, literal_autocorrelation(series, lags), atol=1e-12)
    assert got[0] == 1.0


@pytest.mark.parametrize("rho", [0.0, 0.8, 0.97, -0.6])
@pytest.mark.parametrize("lags", [1, 20, 100])
def test_paper_ess_is_the_double_loop(rho, lags):
    series = ar1(400, rho, seed=3)
    assert paper_ess(series, lags) == pytest.approx(literal_paper_ess(series, lags), rel=1e-10)


def test_paper_ess_of_an_ar1_series_is_the_formula():
    # Exact autocorrelations rho^j in place of the estimated ones.
    rho, lags = 0.9, 60
    j = np.arange(1, lags + 1)
    r = rho**j
    wanted = (lags + 1) / (1 + 2 * np.sum((r * (1 - j / (lags + 1)))[r > 0.05]))
    got = paper_ess(ar1(40_000, rho, seed=5, chains=20), lags)
    assert got.shape == (20,)
    assert got.mean() == pytest.approx(wanted, rel=0.03)


def test_paper_ess_bounds():
    # Nothing correlated: the whole window; everything correlated: about one draw of it.
    alternating = np.tile([1.0, -1.0], 500)
    assert paper_ess(ar1(100_000, 0.0, 1), 50) == 51.0
    assert paper_ess(alternating, 1) == 2.0
    assert paper_ess(np.arange(100_000.0), 50) == pytest.approx(1.0, rel=0.01)


def test_large_means_do_not_matter():
    series = ar1(1000, 0.8, 2)
    np.testing.assert_allclose(
        autocorrelation(series + 1e6, 50), autocorrelation(series, 50), atol=1e-8
    )


def test_leading_axes_and_kinds_of_input():
    series = ar1(300, 0.7, 4, chains=6).reshape(2, 3, 300)
    r = autocorrelation(series, 20)
    assert r.shape == (2, 3, 21)
    assert paper_ess(series, 20).shape == (2, 3)
    np.testing.assert_allclose(r[1, 2], autocorrelation(series[1, 2], 20), atol=1e-14)
    spins = np.sign(series).astype(np.int8)
    np.testing.assert_array_equal(
        autocorrelation(spins, 9), autocorrelation(spins.astype(float), 9)
    )
    np.testing.assert_array_equal(
        autocorrelation(spins[0, 0].tolist(), 9), autocorrelation(spins[0, 0], 9)
    )
    frozen = series.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(autocorrelation(frozen, 20), r)
    dataset = xr.DataArray(series[0], dims=("chain", "draw"))
    np.testing.assert_array_equal(paper_ess(dataset, 20), paper_ess(series[0], 20))


@pytest.mark.parametrize("lags", [0, 1, 10])
def test_a_constant_series_is_nan_not_perfect(lags):
    series = np.stack([np.full(50, 0.1), ar1(50, 0.5, 1)])
    assert np.isnan(autocorrelation(series, lags)[0]).all()
    assert np.isfinite(autocorrelation(series, lags)[1]).all()
    assert np.isnan(paper_ess(series, lags)[0])
    assert np.isfinite(paper_ess(series, lags)[1])


def test_nan_is_not_swallowed():
    series = ar1(50, 0.5, 1)
    series[7] = np.nan
    assert np.isnan(paper_ess(series, 5))


@pytest.mark.parametrize("function", [autocorrelation, paper_ess])
@pytest.mark.parametrize(
    ("trace", "lags", "message"),
    [
        (np.zeros(10), 10, "lags is 10; it must be .*from 0 to 9 for 10 draws"),
        (np.zeros((3, 10)), -1, "lags is -1; it must be .*from 0 to 9 for 10 draws"),
        (np.zeros((2, 0)), 0, "lags is 0; .*for 0 draws"),
        (1.0, 0, "lags is 0; .*for 0 draws"),
        (np.zeros(10), 2.5, r"lags is 2\.5; "),
    ],
)
def test_wrong_lags(function, trace, lags, message):
    with pytest.raises((ValueError, TypeError), match=message):
        function(trace, lags)


# ----------------------------------------------------------------- ess


@pytest.fixture(scope="module")
def arviz():
    return pytest.importorskip("arviz", reason="needs ArviZ")


def frozen_draws(which):
    rng = np.random.default_rng(0)
    x = rng.choice([-1, 1], size=(2, 200, 2, 3)).astype(np.int8)
    for site in which:
        x[(..., *site)] = 1
    return xr.Dataset(
        {"x": (("chain", "draw", "row", "col"), x)},
        coords={"chain": [0, 1], "draw": np.arange(200), "row": [0, 1], "col": [0, 1, 2]},
    )


def test_ess_of_moving_sites_is_arvizs(arviz):
    draws = frozen_draws([])
    xr.testing.assert_allclose(ess(draws)["x"], arviz.ess(draws)["x"])


def test_frozen_sites_are_nan_and_said(arviz):
    draws = frozen_draws([(0, 1), (1, 2)])
    with pytest.warns(FrozenSitesWarning, match="2 variables never changed.*NaN") as seen:
        result = ess(draws)
    assert seen[0].filename == __file__
    frozen = np.zeros((2, 3), dtype=bool)
    frozen[0, 1] = frozen[1, 2] = True
    np.testing.assert_array_equal(np.isnan(result["x"]), frozen)
    # What it is there for: ArviZ calls the frozen sites perfect.
    assert arviz.ess(draws)["x"].values[0, 1] >= 400
    np.testing.assert_allclose(
        result["x"].values[~frozen], arviz.ess(draws)["x"].values[~frozen], rtol=1e-9
    )


def test_chains_frozen_at_different_values_are_not_constant(arviz):
    draws = frozen_draws([(0, 0)])
    draws["x"][0, :, 0, 0] = -1
    result = ess(draws)
    assert result["x"][0, 0] < 10


def test_ess_of_two_values_and_of_more_is_arvizs(arviz, monkeypatch):
    """Whatever the values are called, however many blocks there are, and with axes in any order."""
    monkeypatch.setattr("sklsb.diagnostics.measures.BLOCK", 900)
    draws = frozen_draws([])
    walk = draws["x"].cumsum("draw")
    slow = walk > walk.mean(("chain", "draw"))
    draws["slow"] = xr.where(slow, 2.5, -7.0)
    draws["offset"] = xr.where(slow, 2**60 + 1, 2**60)
    draws["none"] = draws["x"].isel(row=[]).rename(row="no_row")
    draws["more"] = draws["x"] + draws["x"].roll(col=1) + draws["x"].roll(draw=1, row=1)
    draws = draws.transpose("row", "no_row", "draw", "col", "chain")
    wanted, found = arviz.ess(draws[["x", "slow", "more"]].astype(float)), ess(draws)
    assert wanted["slow"].min() < 30 < wanted["x"].min()
    for name in ("x", "slow", "more"):
        xr.testing.assert_allclose(found[name], wanted[name], rtol=1e-9)
    np.testing.assert_allclose(found["offset"], wanted["slow"], rtol=1e-9)
    assert found["none"].size == 0
    assert list(found.data_vars) == ["x", "slow", "offset", "none", "more"]


def test_ess_passes_arguments_on(arviz):
    draws = frozen_draws([(0, 1)])
    with pytest.warns(FrozenSitesWarning):
        tail = ess(draws, method="tail")
    np.testing.assert_allclose(tail["x"][1], arviz.ess(draws, method="tail")["x"][1])
    draws["y"] = draws["x"].isel(row=1, col=0)
    chosen = ess(draws, var_names=["y"])
    assert list(chosen.data_vars) == ["y"]


def test_ess_of_few_draws(arviz):
    draws = frozen_draws([])
    for n, few in ((63, True), (64, False)):
        part = draws.isel(draw=slice(n))
        if few:
            with pytest.warns(ShortRunWarning, match=f"{n} draws of each chain: too few"):
                result = ess(part)
        else:
            result = ess(part)
        xr.testing.assert_allclose(result["x"], arviz.ess(part)["x"])


def test_ess_of_real_draws_and_of_statistics(arviz):
    field = np.array([0.2, 80.0, -0.1])
    sampler = LSBSampler("sqrt", n_chains=2, n_burn_in=100, random_state=0)
    sampler.fit(Ising(np.zeros((3, 3)), field))
    with pytest.warns(FrozenSitesWarning, match="1 of 3 variables"):
        draws = sampler.sample(300)
    with pytest.warns(FrozenSitesWarning, match="1 variables? never changed"):
        result = ess(draws)
    assert np.isnan(result["x"]).values.tolist() == [False, True, False]
    recorded = sampler.sample(300, record={"total": lambda x: x.sum(axis=1)})  # was told
    assert np.isfinite(ess(recorded)["total"])


def test_public_names():
    assert set(diagnostics.__all__) >= {
        "autocorrelation",
        "best_state",
        "ess",
        "marginals",
        "mmd",
        "paper_ess",
    }


# ----------------------------------------------------------------- marginals and the best draw


def mixed_network():
    """Variables of 1 to 4 values, one of them with a single possible one."""
    rng = np.random.default_rng(0)
    table = np.exp(rng.normal(size=(2, 4)))
    table[0, 3] = 0.0
    factors = [((0, 1), table), ((1, 2), np.exp(rng.normal(size=(4, 3)))), ((4,), [0.0, 2.0])]
    return MarkovNetwork([2, 4, 3, 1, 2], factors, names=list("abcde"))


def exact_marginals(target):
    """Probability of each value of each variable, by enumeration; 0 where it has no such value."""
    x, p = exact.states(target), exact.probabilities(target)
    hit = x[:, :, None] == np.asarray(target.values)
    return np.einsum("n,niv->iv", p, hit)


def draw(target, n=4000, **settings):
    settings = {"n_burn_in": 500, "n_chains": 4, "random_state": 0, "lazy": 0.1} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrozenSitesWarning)
        return LSBSampler("sqrt", **settings).fit(target).sample(n)


@pytest.mark.parametrize("evidence", [{}, {"b": 1, 0: 1}])
def test_marginals_against_enumeration(evidence, arviz):
    target = mixed_network().condition(evidence)
    result = marginals(draw(target, blocks=None), target)
    assert result["p"].dims == result["mcse"].dims == ("site", "state")
    assert result["site"].values.tolist() == list("abcde")
    assert result["state"].values.tolist() == [0, 1, 2, 3]
    p, mcse = result["p"].to_numpy(), result["mcse"].to_numpy()
    wanted = exact_marginals(target)
    assert np.all(np.abs(p - wanted) <= 4 * mcse + 1e-15)
    assert np.all(mcse[(wanted > 0) & (wanted < 1)] > 0)
    assert np.all(mcse < 0.03)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    lacking = np.arange(4) >= target.cardinalities[:, None]
    assert np.all(p[lacking] == 0.0)
    assert np.all(mcse[lacking] == 0.0)
    # What is observed, or has one possible value, is known.
    for name in ("d", "e", *(("a", "b") if evidence else ())):
        assert np.all(result["mcse"].sel(site=name) == 0.0)
        assert set(result["p"].sel(site=name).to_numpy()) == {0.0, 1.0}


def literal_mcse(hit, arviz):
    """Of one series of shape (n_chains, n_draws), with the runs counted one by one."""
    runs = [key for chain in hit.tolist() for key, _ in groupby(chain)]
    visits = min(sum(runs), len(runs) - sum(runs))
    n, p = hit.size, hit.mean()
    tau = max(n / float(arviz.ess(hit.astype(float))), 2 * n * p * (1 - p) / visits - 1)
    return min(0.5, np.sqrt((p * (1 - p) + 3 * tau / n) * tau / n))


def test_mcse_of_marginals_is_the_formula(arviz):
    target = mixed_network()
    for n in (20, 200, 1000):
        draws = draw(target, n)
        result = marginals(draws, target)
        seen = result["p"].values * (1 - result["p"].values) > 0
        assert seen.sum() >= 8
        for site, state in np.argwhere(seen):
            hit = draws["x"].values[:, :, site] == state
            assert result["p"].values[site, state] == hit.mean()
            wanted = pytest.approx(literal_mcse(hit, arviz), rel=1e-10)
            assert result["mcse"].values[site, state] == wanted


def test_marginals_of_two_values_are_shares_of_the_draws():
    x = np.array([1, 1, 1, -1, 1, 1, 1, 1, 1, 1], dtype=np.int8).reshape(1, 10, 1)
    draws = xr.Dataset({"x": (("chain", "draw", "site"), x)})
    assert marginals(draws, Ising(np.zeros((1, 1))))["p"].values.tolist() == [[0.1, 0.9]]
    draws["x"] = -draws["x"]
    assert marginals(draws, Ising(np.zeros((1, 1))))["p"].values.tolist() == [[0.9, 0.1]]


def test_ess_of_means_is_arvizs(arviz):
    rng = np.random.default_rng(0)
    keep = np.array([0.0, 0.5, 0.9, 0.99, 0.999, -0.9])  # the last one mostly turns round
    for n in (4, 5, 6, 7, 8, 9, 31, 100, 1001):
        for n_chains in (1, 3):
            hit = rng.random((n_chains, n, keep.size)) < 0.5
            for t in range(1, n):
                moves = rng.random((n_chains, keep.size)) > np.abs(keep)
                hit[:, t] = np.where(moves, hit[:, t], hit[:, t - 1] ^ (keep < 0.0))
            hit[0, 0] = ~hit[0, 1]  # not the same in all draws
            wanted = [float(arviz.ess(one.astype(float))) for one in np.moveaxis(hit, 2, 0)]
            assert ess_of_means(hit) == pytest.approx(wanted, rel=1e-9)
    assert np.isnan(ess_of_means(hit[:, :3])).all()


def replicas(n_sites, n, n_replicas=10, seed=0):
    """Four chains of draws from replicas that take turns and forget where they are once in 100."""
    rng = np.random.default_rng(seed)
    x, visit = np.empty((4, n, n_sites), np.int8), np.empty((4, n))
    for c in range(4):
        mode = rng.choice([-1, 1], size=(n_replicas, n_sites))
        number = -1.0 - np.arange(n_replicas)
        for t in range(n):
            r = rng.integers(n_replicas)
            if rng.random() < 0.1:
                mode[r], number[r] = rng.choice([-1, 1], size=n_sites), t
            x[c, t], visit[c, t] = mode[r], number[r]
    coords = {"visit": (("chain", "draw"), visit)}
    return xr.Dataset({"x": (("chain", "draw", "site"), x)}, coords)


def test_mcse_knows_visits_that_come_and_go(arviz):
    draws = replicas(300, 500)
    target = Ising(np.zeros((300, 300)))
    plain, known = (
        marginals(d, target)["mcse"].values[:, 1] for d in (draws.drop_vars("visit"), draws)
    )
    off = np.abs((draws["x"] == 1).mean(("chain", "draw")) - 0.5).values
    assert (off <= 2 * plain).mean() < 0.92
    assert (off <= 2 * known).mean() >= 0.94
    assert (known >= plain).all()


def test_mcse_of_visits_is_the_formula(arviz):
    draws, larger = replicas(3, 500), 0
    keys = [(c, v) for c, row in enumerate(draws["visit"].values) for v in row]
    mcse = marginals(draws, Ising(np.zeros((3, 3))))["mcse"].values
    for site in range(3):
        hit = draws["x"].values[:, :, site] == 1
        p, sums = hit.mean(), dict.fromkeys(keys, 0.0)
        for key, value in zip(keys, hit.ravel(), strict=True):
            sums[key] += value - p
        tau = sum(s * s for s in sums.values()) * len(sums) / (len(sums) - 1)
        tau /= hit.size * p * (1 - p)
        wanted = np.sqrt((p * (1 - p) + 3 * tau / hit.size) * tau / hit.size)
        assert mcse[site, 1] == pytest.approx(max(wanted, literal_mcse(hit, arviz)), rel=1e-10)
        larger += wanted > literal_mcse(hit, arviz)
    assert larger >= 2  # here it is what matters


def test_draws_of_a_single_visit_tell_nothing(arviz):
    draws = replicas(2, 50)
    draws = draws.isel(chain=[0]).assign_coords(visit=(("chain", "draw"), np.zeros((1, 50))))
    np.testing.assert_array_equal(marginals(draws, Ising(np.zeros((2, 2))))["mcse"], 0.5)


def test_mcse_of_common_values_is_nearly_arvizs(arviz):
    target = Ising([[0.0, 0.6], [0.6, 0.0]], [0.3, -0.1])
    draws = draw(target, 20_000)
    result = marginals(draws, target)
    for value in (-1, 1):
        error = arviz.mcse((draws["x"] == value).astype(float).to_dataset(name="x"))["x"]
        ratio = result["mcse"].sel(state=value) / error
        assert np.all((ratio > 1.0) & (ratio < 1.01))
    # The two values of a variable are the same news.
    np.testing.assert_allclose(result["mcse"][:, 0], result["mcse"][:, 1], rtol=1e-6)


def independent_chains(p, hold, shape, seed):
    """Copies of a chain that keeps its value with a probability, else draws it anew from p."""
    rng = np.random.default_rng(seed)
    fresh = rng.choice(len(p), p=p, size=shape).astype(np.int8)
    kept = rng.random(shape) < hold
    for t in range(1, shape[1]):
        fresh[:, t] = np.where(kept[:, t], fresh[:, t - 1], fresh[:, t])
    return xr.Dataset({"x": (("chain", "draw", "site"), fresh)})


@pytest.mark.parametrize("hold", [0.0, 0.5, 0.9, 0.97])
def test_mcse_covers_the_truth_after_a_few_visits(hold, arviz):
    n_sites, n = 300, 4 * 500
    expected = np.array([1.5, 3, 5, 10, 19])
    p = expected / (n * (1 - hold))
    p = np.append(1 - p.sum(), p)
    target = FunctionTarget(lambda x: 0.0, n_sites, n_states=len(p))
    draws = independent_chains(p, hold, (4, 500, n_sites), seed=1)
    result = marginals(draws, target)
    inside = np.abs(result["p"].values - p) <= 2 * result["mcse"].values
    seen = (result["p"].values > 0)[:, 1:]
    assert np.isnan(result["mcse"].values[:, 1:][~seen]).all()
    coverage = inside[:, 1:].sum(axis=0) / seen.sum(axis=0)
    # Three standard errors of 300 copies; where few visits are expected, seen ones are typical.
    assert np.all(coverage > 0.85)
    pooled = inside[:, 1:].sum() / seen.sum()
    assert 0.90 < pooled < 0.99
    plain = arviz.mcse((draws == 1).isel(site=seen[:, 0]).astype(float))["x"].values
    assert np.all(result["mcse"].values[seen[:, 0], 1] > plain)


def test_mcse_of_a_value_seen_once_is_wide(arviz):
    x = np.zeros((4, 1000, 1), dtype=np.int8)
    x[2, 500:502] = 1
    target = FunctionTarget(lambda x: 0.0, 1, n_states=3)
    result = marginals(xr.Dataset({"x": (("chain", "draw", "site"), x)}), target)
    assert result["p"].values.ravel().tolist() == [0.9995, 0.0005, 0.0]
    mcse = result["mcse"].values.ravel()
    assert 0.0014 < mcse[1] < 0.0016
    assert mcse[0] == pytest.approx(mcse[1])
    assert np.isnan(mcse[2])


@pytest.mark.parametrize("n_long", [1, 2])
def test_mcse_of_marginals_is_at_most_a_half(n_long, arviz):
    x = np.zeros((4, 100, 1), dtype=np.int8)
    x[:n_long] = 1
    target = FunctionTarget(lambda x: 0.0, 1)
    result = marginals(xr.Dataset({"x": (("chain", "draw", "site"), x)}), target)
    assert np.all((result["mcse"] > 0.4) & (result["mcse"] <= 0.5))


def test_marginals_of_a_variable_that_did_not_move_are_uncertain(arviz):
    target = Ising(np.zeros((3, 3)), [0.2, 80.0, -0.1])
    result = marginals(draw(target, 300), target)
    np.testing.assert_array_equal(result["p"].sel(site=1), [0.0, 1.0])
    assert np.isnan(result["mcse"].sel(site=1)).all()
    assert (result["mcse"].sel(site=[0, 2]) > 0).all()
    given = target.condition({1: 1})
    result = marginals(draw(given, 300), given)
    np.testing.assert_array_equal(result["mcse"].sel(site=1), [0.0, 0.0])
    assert (result["mcse"].sel(site=[0, 2]) > 0).all()


def test_a_value_that_was_not_seen_is_uncertain(arviz):
    target = Potts(np.zeros((1, 1)), [[0.0, 0.1, -60.0]])
    result = marginals(draw(target, 300), target)
    assert (result["mcse"].to_numpy()[0] > 0).tolist() == [True, True, False]
    assert np.isnan(result["mcse"].to_numpy()[0, 2])


def test_chains_that_disagree_are_uncertain(arviz):
    target = Ising(np.zeros((1, 1)))
    x = np.ones((2, 100, 1), dtype=np.int8)
    x[0] = -1
    result = marginals(xr.Dataset({"x": (("chain", "draw", "site"), x)}), target)
    np.testing.assert_array_equal(result["p"], [[0.5, 0.5]])
    assert np.all(result["mcse"] > 0.2)


def test_marginals_of_a_grid(arviz):
    target = Ising.lattice(np.array([[0.2, -0.5, 0.1], [0.0, 0.4, 0.3]]), 0.2).condition(
        {(0, 1): -1}
    )
    result = marginals(draw(target), target)
    assert result["p"].dims == ("row", "col", "state")
    p, mcse = (result[name].to_numpy().reshape(6, 2) for name in ("p", "mcse"))
    assert np.all(np.abs(p - exact_marginals(target)) <= 4 * mcse + 1e-15)
    assert (mcse == 0.0).all(axis=1).tolist() == [False, True, False, False, False, False]


def test_marginals_of_other_draws():
    target = Ising.lattice(np.zeros((2, 3)), 0.2)
    x = xr.Dataset({"x": (("chain", "draw", "row", "col"), np.ones((1, 5, 2, 3)))})
    for draws, found in (
        (x.rename(x="y"), "no variable x"),
        (x.isel(chain=0), r"x of \{'draw': 5, 'row': 2, 'col': 3\}"),
        (x.rename(row="site"), "x of .*'site': 2"),
        (x.isel(col=[0, 1]), "x of .*'col': 2"),
        (x.transpose("draw", "chain", "row", "col"), "x of .*'draw': 5, 'chain': 1"),
    ):
        message = f"draws has {found}.*; give what sample returned .*'row': 2, 'col': 3"
        with pytest.raises(ValueError, match=message):
            marginals(draws, target)


def test_best_state():
    for target in (mixed_network(), Ising.lattice(np.full((2, 2), 0.3), 0.2)):
        draws = draw(target, 500)
        best = best_state(draws)
        lp = draws["lp"].to_numpy()
        c, t = np.unravel_index(lp.argmax(), lp.shape)
        assert best["x"].dims == target.dims
        np.testing.assert_array_equal(best["x"], draws["x"].to_numpy()[c, t])
        assert (best["chain"], best["draw"], best["lp"]) == (c, t, lp.max())
        x = exact.states(target)
        mode = x[target.log_prob(x).argmax()]
        np.testing.assert_array_equal(best["x"].to_numpy().ravel(), mode)


def test_best_state_of_annealing():
    target = Ising.lattice(np.full((2, 2), 0.3), 0.2)
    found = anneal(target, n_sweeps=20, n_chains=3, random_state=0)
    best = best_state(found)
    assert best["x"].dims == target.dims
    assert best["lp"] == found["lp"].max() == target.log_prob(best["x"].values.ravel())


def test_best_state_of_other_draws():
    draws = draw(Ising([[0.0]], [0.1]), 5)
    for wrong in (draws.drop_vars("lp"), draws.isel(draw=[])):
        with pytest.raises(ValueError, match=r"draws has the coordinates .*; give the draws that"):
            best_state(wrong)


# ----------------------------------------------------------------- maximum mean discrepancy


def literal_mmd(x, y):
    def kernel(a, b):
        return np.exp(-sum(int(p) != int(q) for p, q in zip(a, b, strict=True)) / len(a))

    def within(s):
        pairs = [kernel(s[i], s[j]) for i in range(len(s)) for j in range(len(s)) if i != j]
        return sum(pairs) / len(pairs)

    return within(x) + within(y) - 2 * np.mean([kernel(a, b) for a in x for b in y])


@pytest.mark.parametrize("n_states", [1, 2, 3, 7, 200])
@pytest.mark.parametrize("sizes", [(2, 2, 1), (5, 9, 4), (23, 17, 30)])
def test_mmd_is_the_double_loop(n_states, sizes):
    m, n, d = sizes
    rng = np.random.default_rng(0)
    x = rng.integers(n_states, size=(m, d)).astype(np.int16)
    y = rng.integers(n_states, size=(n, d)).astype(np.int16) // 2
    wanted = pytest.approx(literal_mmd(x, y), abs=1e-13)
    assert mmd(x, y) == wanted
    assert mmd(y, x) == wanted
    assert mmd(x.tolist(), y.astype(np.int64)) == wanted
    # Only whether states are equal matters.
    assert mmd(3 * x - 100, 3 * y - 100) == wanted
    assert mmd(x[::-1], y) == wanted


def test_mmd_in_blocks_is_that_of_all_pairs_at_once(monkeypatch):
    rng = np.random.default_rng(1)
    x, y = rng.random((50, 8)) < 0.3, rng.random((31, 8)) < 0.5
    whole = mmd(x, y)
    assert whole == pytest.approx(literal_mmd(x, y), abs=1e-13)
    for size in (1, 7, 31):
        monkeypatch.setattr("sklsb.diagnostics.measures._PAIRED", size)
        assert mmd(x, y) == pytest.approx(whole, abs=1e-13)


def test_mmd_is_unbiased():
    # Mean over samples against the sum over the distributions, which are products.
    rng, d, p, q = np.random.default_rng(2), 6, 0.3, 0.6

    def mean(a, b):
        same = a * b + (1 - a) * (1 - b)
        return (same + (1 - same) * np.exp(-1 / d)) ** d

    for other in (p, q):
        found = [mmd(rng.random((9, d)) < p, rng.random((5, d)) < other) for _ in range(4000)]
        wanted = mean(p, p) + mean(other, other) - 2 * mean(p, other)
        assert abs(np.mean(found) - wanted) < 5 * np.std(found) / np.sqrt(len(found))
    assert wanted > 0.01


def test_mmd_tells_distributions_of_equal_marginals_apart():
    # Pairs of spins that agree, against independent ones.
    rng = np.random.default_rng(3)
    free = rng.choice([-1, 1], size=(2, 2000, 8)).astype(np.int8)
    tied = np.repeat(rng.choice([-1, 1], size=(2000, 4)), 2, axis=1)
    equal, different = mmd(free[0], free[1]), mmd(free[0], tied)
    assert abs(equal) < 1e-3
    assert different > 10 * abs(equal)


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (np.zeros((3, 2)), np.zeros((3, 2), int), TypeError, "x has dtype float64; give states"),
        (np.zeros((3, 2), int), np.zeros((3, 2), object), TypeError, "y has dtype object"),
        (
            np.zeros((1, 2), int),
            np.zeros((3, 2), int),
            ValueError,
            r"x has shape \(1, 2\).*2 draws",
        ),
        (np.zeros((3, 2), int), np.zeros((2, 3, 2), int), ValueError, r"y has shape \(2, 3, 2\)"),
        (np.zeros((3, 0), int), np.zeros((3, 0), int), ValueError, r"x has shape \(3, 0\)"),
        (np.zeros((3, 2), int), np.zeros((3, 4), int), ValueError, "x has 2 variables and y 4"),
    ],
)
def test_wrong_samples(x, y, error, message):
    with pytest.raises(error, match=message):
        mmd(x, y)

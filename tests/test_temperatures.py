"""Draws at all temperatures of tempering: against enumeration, elimination, Kaufman's formula."""

import copy
import itertools
import math
import pickle
import warnings

import numpy as np
import pytest
import xarray as xr
from models import chain_network, dense
from scipy.special import logsumexp, softmax
from scipy.stats import chi2
from test_tempering import QUIET, machine, make, network

from sklsb import FunctionTarget, GibbsSampler, Ising, ParallelTempering, Potts, exact
from sklsb.diagnostics import binder, expectation, overlaps, specific_heat, susceptibility
from sklsb.diagnostics.reweighting import log_weights, reweighted
from sklsb.exceptions import ModelWarning
from sklsb.samplers._tempering.schedule import equal_steps

BETAS = [0.25, 0.6]
SMALL = {
    "dense": dense(5, 3, 0.8),
    "potts": Potts(0.9 * (np.ones((3, 3)) - np.eye(3)), np.arange(9.0).reshape(3, 3) / 9),
    "observed": dense(6, 4, 0.8).condition({2: 1}),
    "machine": machine(),
}


def levels(target, n=400, seed=0, **params):
    """A sampler whose ladders have few temperatures, two of them given, and draws at all."""
    settings = {"betas": BETAS, "explorer": GibbsSampler("systematic"), "n_replicas": 5}
    sampler = make(random_state=seed, **settings | params).fit(target)
    return sampler, sampler.sample(n, temperatures="all")


# ----------------------------------------------------------------- the ladder


def test_the_ladder_has_the_betas_given_and_equal_steps_between():
    beta, kept = np.array([0.0, 0.3, 1.0]), np.array([0.0, 0.3, 1.0])
    found = equal_steps(beta, np.array([0.2, 0.8]), 6, kept)
    np.testing.assert_allclose(found[[0, 1, 5]], kept, rtol=0, atol=0)
    whole = equal_steps(beta, np.array([0.5, 0.5]), 5, kept)
    np.testing.assert_array_equal(whole[[0, 2, 4]], kept)
    for n in (2, 7):
        np.testing.assert_allclose(
            equal_steps(beta[[0, 2]], np.array([0.4]), n), np.linspace(0, 1, n)
        )


@QUIET
def test_betas_of_the_ladder():
    target = dense(12, 0, 0.7)
    given = [0.7, 1.0, 0.31, 0.7]
    found = make(betas=given, n_burn_in=1024).fit(target)
    assert np.isin([0.0, 0.31, 0.7, 1.0], found.betas_).all()
    assert found.betas_.size > 4
    alone = make(betas=given, n_replicas=4).fit(target)
    np.testing.assert_array_equal(alone.betas_, [0.0, 0.31, 0.7, 1.0])
    never = make(betas=given, n_burn_in=0).fit(target)
    assert np.isin(given, never.betas_).all()
    again = never.set_params(warm_start=True, betas=[0.5]).fit(target)
    assert 0.5 in again.betas_
    without = make().fit(target)
    np.testing.assert_array_equal(make(betas=[]).fit(target).betas_, without.betas_)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"betas": [0.5, 1.5]}, ValueError, "betas is .*1.5.*coldest of your temperatures"),
        ({"betas": [-0.1]}, ValueError, "numbers from 0 to 1"),
        ({"betas": [[0.5]]}, ValueError, "numbers from 0 to 1"),
        ({"betas": [np.nan]}, ValueError, "numbers from 0 to 1"),
        ({"betas": ["cold"]}, TypeError, "betas has dtype"),
        ({"betas": [1 - 2**-53]}, ValueError, "less than 1e-12 above, .1.0.; give each once"),
        ({"betas": [0.3, 0.1 + 0.2]}, ValueError, r"\[0.3\] and.*0.30000000000000004"),
        ({"betas": [1e-17]}, ValueError, "less than 1e-12 above"),
        ({"betas": [0.2, 0.5], "n_replicas": 3}, ValueError, "n_replicas is 3, and betas.* are 4"),
    ],
)
def test_betas_that_are_none(params, error, match):
    with pytest.raises(error, match=match):
        ParallelTempering(**params).fit(SMALL["dense"])


# ----------------------------------------------------------------- the draws


# Each compiles ladders anew; those of layers are in test_tempering.py.
@QUIET
@pytest.mark.parametrize(
    ("name", "crossover"),
    [
        ("dense", False),
        ("potts", False),
        ("observed", False),
        ("dense", True),
        pytest.param("machine", False, marks=pytest.mark.slow),
        pytest.param("potts", True, marks=pytest.mark.slow),
    ],
)
def test_states_at_every_beta_have_its_distribution(name, crossover):
    """By counts of independent ladders, a draw long after the other."""
    # Sweeps whose kernels other tests compile, too.
    explorer = GibbsSampler("chromatic" if name == "potts" or crossover else "systematic")
    check_distributions(SMALL[name], crossover=crossover, explorer=explorer)


def check_distributions(target, n=60, **params):
    _, found = levels(target, n, **{"n_chains": 40} | params)
    x, lp = exact.states(target), target.log_prob(exact.states(target))
    x, lp = x[lp > -np.inf], lp[lp > -np.inf]
    names = {tuple(row): i for i, row in enumerate(x.tolist())}
    assert np.isin(BETAS, found["beta"]).all()
    for k, beta in enumerate(found["beta"].values):
        level = found.isel(beta=k, draw=slice(None, None, 4))
        rows = level["x"].values.reshape(-1, target.n_sites)
        np.testing.assert_allclose(level["lp"].values.ravel(), target.log_prob(rows), atol=1e-9)
        index = np.array([names[tuple(row)] for row in rows.tolist()])
        wanted = softmax(beta * lp) * index.size
        seen = np.bincount(index, minlength=wanted.size)
        few = wanted < 8  # counted together
        seen, wanted = (np.append(a[~few], a[few].sum()) for a in (seen, wanted))
        statistic = ((seen - wanted) ** 2 / np.maximum(wanted, 1e-9)).sum()
        assert chi2.sf(statistic, max(1, (~few).sum() - (not few.any()))) > 1e-4, "each has its law"


@QUIET
@pytest.mark.parametrize("crossover", [False, True])
def test_draws_of_all_temperatures_go_on_bit_for_bit(crossover, tmp_path):
    target = SMALL["dense"]

    def fitted(**params):
        return make(betas=BETAS, n_replicas=5, crossover=crossover, **params).fit(target)

    one = fitted()
    forks = [copy.copy(one), pickle.loads(pickle.dumps(one)), fitted(n_jobs=2)]
    one.save(tmp_path / "ladders")
    forks.append(ParallelTempering.load(tmp_path / "ladders", target))
    plain, record = copy.copy(one), {"m": lambda x: x.sum(axis=1), "rows": lambda x: x[:, :2]}
    recording = copy.copy(one)
    whole = one.sample(300, temperatures="all", thin=3)
    assert whole["x"].dims == ("chain", "draw", "beta", "site")
    assert list(whole["x"].coords) == ["chain", "draw", "beta", "lp", "visit", "site"]
    for fork in forks:
        parts = [fork.sample(n, temperatures="all", thin=3) for n in (101, 0, 199)]
        joined = xr.concat(parts, dim="draw", combine_attrs="drop").drop_attrs()
        xr.testing.assert_identical(joined, whole.drop_attrs())
    alone = plain.sample(300, thin=3)
    xr.testing.assert_identical(whole.sel(beta=1.0, drop=True).drop_attrs(), alone.drop_attrs())
    np.testing.assert_array_equal(one.sample_stats_["visit"], whole["visit"].sel(beta=1.0))
    np.testing.assert_array_equal(one.state_, plain.state_)
    kept = recording.sample(300, temperatures="all", thin=3, record=record)
    np.testing.assert_array_equal(kept["m"], whole["x"].sum("site"))
    assert kept["rows"].dims == ("chain", "draw", "beta", "rows_dim_0")
    np.testing.assert_array_equal(kept["rows"], whole["x"][..., :2])
    assert recording.n_evaluations_ == plain.n_evaluations_
    assert kept.attrs["n_sites"] == 5


@QUIET
def test_what_has_no_draws_at_all_temperatures(tmp_path):
    target = SMALL["dense"]
    sampler = make().fit(target)
    for wrong in ("every", [0.5], 0.5, np.array([0.5, 0.6])):
        with pytest.raises(ValueError, match='give "all", or betas'):
            sampler.sample(10, temperatures=wrong)
    taken = {"record": {"beta": lambda x: x.sum(axis=1)}}
    for settings in ({"store": tmp_path / "run"}, {"record": "moments"}, taken):
        with pytest.raises(ValueError, match="there is no store, and record is None or a dict"):
            sampler.sample(10, temperatures="all", **settings)
    half = np.full((8, 2), [0.3, 0.7])
    for params, other in (
        ({"reference": half, "eliminate": None}, chain_network()),
        ({}, machine()),
        ({}, network()),
        ({}, chain_network()),
    ):
        with pytest.raises(ValueError, match=r"are not powers of p\. Give reference=None"):
            make(**params).fit(other).sample(10, temperatures="all")
    with pytest.raises(TypeError, match=r"betas=\.\.\."):
        GibbsSampler().fit(target).sample(10, temperatures="all")
    whole = make(betas=BETAS).fit(chain_network())  # no core by default
    assert whole.sample(5, temperatures="all")["x"].shape[-1] == 8
    assert whole.sample(0, temperatures="all")["x"].shape[1] == 0


# ----------------------------------------------------------------- what they say


def torus(n, coupling):
    """Log Z of n x n spins, periodic, by Kaufman's formula."""
    k = np.arange(2 * n)
    angle = np.cosh(2 * coupling) / np.tanh(2 * coupling) - np.cos(np.pi * k / n)
    gamma = np.arccosh(np.maximum(angle, 1.0))
    gamma[0] = 2 * coupling + np.log(np.tanh(coupling))
    odd, even = n * gamma[1::2] / 2, n * gamma[::2] / 2
    terms = [np.logaddexp(odd, -odd).sum(), (odd + np.log1p(-np.exp(-2 * odd))).sum()]
    terms.append(np.logaddexp(even, -even).sum())
    size = np.abs(even)
    terms.append((size + np.log1p(-np.exp(-2 * size))).sum())
    signs = np.array([1, 1, 1, np.sign(even).prod()])
    top = max(terms)
    return (
        n * n / 2 * np.log(2 * np.sinh(2 * coupling))
        - np.log(2)
        + top
        + np.log(signs @ np.exp(np.array(terms) - top))
    )


def of_torus(n, coupling, h=1e-3):
    """Mean of the sum over edges of the products, and the specific heat of a site."""
    low, mid, high = (torus(n, coupling + d) for d in (-h, 0.0, h))
    return (high - low) / (2 * h), coupling**2 * (high - 2 * mid + low) / h**2 / n**2


def test_kaufmans_formula_is_elimination():
    for n, coupling in ((4, 0.3), (4, 0.44), (5, 0.7)):
        target = Ising.lattice(np.zeros((n, n)), coupling=coupling)
        assert torus(n, coupling) == pytest.approx(exact.log_partition(target), rel=1e-12)


def enumerated(target, beta):
    """Exact answers at a temperature: the three statistics of the sum, and the specific heat."""
    x, lp = exact.states(target), target.log_prob(exact.states(target))
    p, total = softmax(beta * lp), x.sum(axis=1).astype(float)
    mean, square, fourth = (p @ total**k for k in (1, 2, 4))
    heat = beta**2 * (p @ lp**2 - (p @ lp) ** 2) / target.n_sites
    spread = p @ total**2 - (p @ np.abs(total)) ** 2
    return {
        "energy": p @ lp,
        "mean": mean,
        "binder": 1 - fourth / (3 * square**2),
        "specific_heat": heat,
        "susceptibility": beta * (square - mean**2) / target.n_sites,
        "absolute": beta * spread / target.n_sites,
    }


def answers(found, betas=None):
    own = {"betas": betas}
    return {
        "energy": expectation(found, **own),
        "mean": expectation(found, "sum", **own),
        "binder": [binder(found, **own)[name].values for name in ("binder", "mcse")],
        "specific_heat": [specific_heat(found, **own)[n].values for n in ("specific_heat", "mcse")],
        "susceptibility": [
            susceptibility(found, **own)[n].values for n in ("susceptibility", "mcse")
        ],
        "absolute": [
            susceptibility(found, absolute=True, **own)[n].values
            for n in ("susceptibility", "mcse")
        ],
    }


def standard_errors_off(n_runs, betas, **params):
    """Distances from enumeration in stated errors, (n_runs, 6 statistics, n_betas)."""
    target, found = dense(5, 3, 0.4), []
    fitted = make(betas=BETAS, n_replicas=5, **{"n_chains": 4} | params).fit(target)
    wanted = [enumerated(target, b) for b in (fitted.betas_[1:] if betas is None else betas)]
    for _ in range(n_runs):
        level = fitted.sample(640, temperatures="all").isel(beta=slice(1, None))
        found.append(
            [
                (value - [one[name] for one in wanted]) / error
                for name, (value, error) in answers(level, betas).items()
            ]
        )
    return np.array(found)


@QUIET
@pytest.mark.parametrize("betas", [None, [0.4, 0.5, 0.9]])
def test_statistics_by_temperature_are_those_of_enumeration(betas):
    off = standard_errors_off(4, betas)
    assert np.abs(off).max() < 4.5
    assert 0.5 < np.sqrt((off**2).mean()) < 1.4


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize("betas", [None, [0.4, 0.5, 0.9]])
def test_errors_by_temperature_are_calibrated(betas):
    off = standard_errors_off(100, betas)
    within = (np.abs(off) < 2).mean(axis=(0, 2))
    assert (within > 0.92).all()
    assert (within < 0.995).all()


def test_leaving_a_batch_out_is_as_without_it():
    """To first order, and the weights of the levels are log Z."""
    rng = np.random.default_rng(0)
    lp, other = rng.integers(-8, 9, size=300).astype(float), rng.normal(size=300)
    beta, wanted = np.array([0.0, 0.2, 0.5, 1.0]), np.array([0.1, 0.5, 0.8])
    at = [rng.choice(300, size=(2, 640), p=softmax(b * lp)) for b in beta]
    index = np.stack(at, axis=-1)
    values = np.stack([lp[index], other[index]], axis=-1)
    mean, without = reweighted(lp[index], beta, wanted, values, 64)
    expected = np.array([softmax(b * lp) @ np.stack([lp, other], axis=1) for b in wanted])
    error = without.reshape(128, 3, 2).std(axis=0) * np.sqrt(127)
    assert (np.abs(mean - expected) < 4 * error).all()
    log_z = np.log(np.exp(np.outer(beta, lp)).mean(axis=1))
    np.testing.assert_allclose(-log_weights(lp[index], beta), log_z, atol=0.1)
    for c, b in ((0, 0), (1, 20), (1, 63)):
        kept = np.ones((2, 640), dtype=bool)
        kept[c, 10 * b : 10 * b + 10] = False
        one = reweighted(lp[index][kept][None], beta, wanted, values[kept][None], 1)[0]
        assert np.abs(one - mean).max() > 1e-4
        np.testing.assert_allclose(without[c, b], one, rtol=0, atol=3e-5)


@QUIET
def test_levels_far_apart_and_energies_without_end():
    """The weights are found where neighbours hardly overlap, and of real numbers."""
    rng = np.random.default_rng(1)
    lp = np.stack([rng.normal(900 * b, 30.0, size=(2, 500)) for b in (0.0, 0.25, 0.5, 1.0)], -1)
    f = log_weights(lp, np.array([0.0, 0.25, 0.5, 1.0]))
    # Of normal log p with variance 900 the means rise by 900 beta.
    np.testing.assert_allclose(-f, 450 * np.array([0.0, 0.25, 0.5, 1.0]) ** 2, atol=25)


@QUIET
def test_functions_by_temperature():
    target = SMALL["dense"]
    _, found = levels(target, 500)
    by_hand = [expectation(found.isel(beta=k), "sum", of="binder") for k in range(5)]
    both = binder(found)
    np.testing.assert_array_equal(both["binder"], [one.value for one in by_hand])
    np.testing.assert_array_equal(both["mcse"], [one.mcse for one in by_hand])
    np.testing.assert_array_equal(both["beta"], found["beta"])
    pairs = expectation(found, lambda x: x[:, :, None] * x[:, None, :], betas=[0.5, 0.6, 0.7])
    assert pairs.value.shape == pairs.mcse.shape == (3, 5, 5)
    np.testing.assert_allclose(pairs.value[:, 0, 0], 1.0)
    assert np.isnan(pairs.mcse[:, 0, 0]).all()
    ratio = expectation(found, lambda x: x[:, :2], of=lambda m: m[0] / m[1], betas=[0.6])
    assert ratio.value.shape == (1,)
    one = specific_heat(found.sel(beta=0.6))
    assert one["beta"].values.tolist() == [0.6]
    np.testing.assert_array_equal(one["mcse"], specific_heat(found)["mcse"][found["beta"] == 0.6])
    plain = make().fit(target).sample(200)
    assert specific_heat(plain)["beta"].values.tolist() == [1.0]
    for betas in ([1.5], [[0.5]], [np.nan], []):
        with pytest.raises(
            ValueError, match=r"betas is .* from 0 to 1, and draws at all.*T\.min\(\)"
        ):
            expectation(found, betas=betas)
    with pytest.raises(ValueError, match="from 1 to 1, and draws at all"):
        expectation(plain, betas=[0.5])
    with pytest.raises(ValueError, match="no attribute n_sites"):
        specific_heat(found[["lp"]].drop_attrs())
    for several in (binder, susceptibility):
        with pytest.raises(ValueError, match="gave 25 numbers of the draws at 5 temperatures"):
            several(found, lambda x: x)
    for of_draws in (overlaps, specific_heat, binder, susceptibility):
        with pytest.raises(TypeError, match="draws is of type Ising; give what sample returned"):
            of_draws(target)
    for of_draws in (expectation, specific_heat, binder, susceptibility):
        with pytest.raises(TypeError, match="'T'; did you mean 'betas'"):
            of_draws(found, T=1.0)
    with pytest.raises(TypeError, match="'bin'; did you mean 'bins'"):
        overlaps(found, bin=5)


@QUIET
def test_susceptibility_of_a_mean_gets_a_warning():
    record = {"m": lambda x: x.sum(axis=1), "mean": lambda x: x.mean(axis=1)}
    sampler, _ = levels(dense(24, 0, 0.1), 1)
    draws = sampler.sample(200, temperatures="all", record=record)
    with pytest.warns(ModelWarning, match=r"'mean' is between -1 and 1 .* multiply by 24\*\*2"):
        mean = susceptibility(draws, "mean")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)
        whole = susceptibility(draws, "m")
        susceptibility(draws.assign(m=draws["m"] > 0), "m")
    np.testing.assert_allclose(24**2 * mean["susceptibility"], whole["susceptibility"])
    # As physicists define it: the variance over the temperature of each level.
    cold, spread = 2.5, draws["m"].astype(float).var(("chain", "draw"))
    found = susceptibility(draws, "m", temperature=cold)
    np.testing.assert_allclose(found["susceptibility"], spread / (24 * cold / spread["beta"]))
    np.testing.assert_allclose(
        found["mcse"] / found["susceptibility"], whole["mcse"] / whole["susceptibility"]
    )
    with pytest.raises(ValueError, match="temperature is 0; it must be a positive number"):
        susceptibility(draws, "m", temperature=0)


@QUIET
def test_order_of_dimensions_and_temperatures_is_the_same_to_all():
    _, found = levels(SMALL["dense"], 300)
    turned, falling = found.transpose("site", "beta", "draw", "chain"), found.isel(beta=[4, 0, 2])
    xr.testing.assert_identical(overlaps(turned), overlaps(found))
    for of_draws in (specific_heat, binder):
        xr.testing.assert_identical(of_draws(turned), of_draws(found))
        got, wanted = (of_draws(one, betas=[0.7, 0.1]) for one in (falling, falling.sortby("beta")))
        xr.testing.assert_identical(got, wanted)


@QUIET
def test_one_chain_and_what_never_changes():
    _, found = levels(SMALL["dense"], 300)
    for draws, betas in ((found, None), (found, [0.5]), (found.sel(beta=1.0), None)):
        for function in (None, "sum"):
            one, kept = (expectation(draws.isel(chain=c), function, betas=betas) for c in (0, [0]))
            np.testing.assert_array_equal(one, kept)
        for of in ("mean", "binder"):
            never = expectation(draws, lambda x: np.full(len(x), 0.1), of=of, betas=betas)
            assert np.isnan(never.mcse).all()


@QUIET
def test_impossible_states_are_of_beta_zero_only():
    target = FunctionTarget(lambda x: np.where(x.sum(axis=1) == 2, -np.inf, 0.5 * x[:, 0]), 3)
    found = make(betas=[0.5], n_replicas=3).fit(target).sample(200, temperatures="all")
    with pytest.raises(ValueError, match=r"draws.sel\(beta=draws.beta > 0\) has none"):
        specific_heat(found)
    kept = found.sel(beta=found.beta > 0)
    x = np.array([s for s in np.ndindex(2, 2, 2) if sum(s) != 2])
    p = softmax([0.75 * 0.5 * x[:, 0], 0.5 * 0.5 * x[:, 0]], axis=1)
    for value, error in (expectation(kept, lambda x: x[:, 0], betas=[0.75, 0.5]),):
        assert (np.abs(value - p @ x[:, 0]) < 4.5 * error).all()


def of_independent(lp, beta, n=640, seed=0):
    """Independent draws by number at each temperature, of two chains."""
    rng = np.random.default_rng(seed)
    at = [rng.choice(lp.size, size=(2, n), p=softmax(b * lp)) for b in beta]
    index = np.stack(at, axis=-1)
    dims = ("chain", "draw", "beta")
    return xr.Dataset({"f": (dims, index % 7)}, {"beta": beta, "lp": (dims, lp[index])})


@pytest.mark.parametrize("kind", ["plain", "penalties", "constant"])
def test_reweighting_where_log_p_is_far_lower_or_has_a_large_constant(kind):
    """By draws of a distribution whose states are few."""
    lp, beta = np.random.default_rng(1).normal(size=64) * 3, np.array([0.0, 0.01, 0.3, 0.6, 1.0])
    if kind == "penalties":
        lp = np.concatenate([2 * lp, lp - 1e5, lp - 3e7])
    elif kind == "constant":
        lp = lp - 1e12
    betas, f = [0.2, 0.4, 0.8], np.arange(lp.size) % 7
    truth, off = [softmax(b * lp) @ f for b in betas], []
    for seed in range(12):
        value, error = expectation(of_independent(lp, beta, seed=seed), "f", betas=betas)
        off.append((value - truth) / error)
    assert np.abs(np.mean(off, axis=0)).max() * np.sqrt(12) < 3.5
    assert 0.6 < np.sqrt(np.square(off).mean()) < 1.4
    f = log_weights(of_independent(lp - lp.max(), beta, n=5000)["lp"].values, beta)
    log_z = [logsumexp(b * (lp - lp.max())) for b in beta]
    np.testing.assert_allclose(f[0] - f, np.array(log_z) - log_z[0], atol=0.15)


@pytest.mark.parametrize("variance", [100.0, 900.0])
def test_betas_far_from_all_temperatures_have_no_error(variance):
    """Normal log p, whose mean rises by its variance: nothing is near 1/2, all is at 1."""
    rng, beta = np.random.default_rng(0), np.array([0.0, 1.0])
    lp = np.stack([rng.normal(variance * b, np.sqrt(variance), (4, 640)) for b in beta], axis=-1)
    found = xr.Dataset(coords={"beta": beta, "lp": (("chain", "draw", "beta"), lp)})
    value, error = expectation(found, betas=[0.5, 1.0])
    assert np.isnan(error[0])
    assert abs(value[1] - variance) < 4 * error[1]


def test_overlaps_of_two_chains():
    target = SMALL["dense"]
    x = np.array([[[1, 1, -1, 1, 1], [1, 1, 1, 1, 1]], [[1, -1, 1, 1, 1], [-1, -1, -1, -1, -1]]])
    pair = xr.Dataset({"x": (("chain", "draw", "site"), x)})
    found = overlaps(pair, bins=5)
    np.testing.assert_allclose(found["q"], [[0.2, -1.0]])
    np.testing.assert_allclose(found["p"], [0.625, 0.625, 0])  # two of the six values in each
    np.testing.assert_allclose(found["bin"], [-0.8, 0.0, 0.8], atol=1e-12)
    share = overlaps(xr.Dataset({"x": (("chain", "draw", "site"), (x + 1) // 2)}), bins=1)
    np.testing.assert_allclose(share["q"], [[0.6, 0.0]])
    with pytest.raises(ValueError, match="states x of at least two chains"):
        overlaps(pair.isel(chain=[0]))
    sampler = make(betas=BETAS, n_replicas=5, n_chains=5).fit(target)
    found = overlaps(sampler.sample(2000, temperatures="all"))
    assert found["q"].sizes == {"chain": 2, "draw": 2000, "beta": 5}
    np.testing.assert_allclose(found["bin"], [-1, -0.6, -0.2, 0.2, 0.6, 1], atol=1e-12)
    np.testing.assert_allclose(found["p"].sum("bin") * 0.4, 1.0)
    states = exact.states(target)
    product = states @ states.T / 5
    for beta in (0.25, 0.6):
        p = softmax(beta * target.log_prob(states))
        q2 = expectation(found.sel(beta=beta), "q", of=lambda m: m)
        assert abs(q2.value - p @ product @ p) < 4.5 * q2.mcse
        at = found.sel(beta=beta).isel(bin=-1)
        top = p @ (product > 0.9) @ p
        assert abs(at["p"] * 0.4 - top) < 4.5 * at["mcse"] * 0.4
    ratio = binder(found, "q").sel(beta=0.6)
    p = softmax(0.6 * target.log_prob(states))
    wanted = 1 - (p @ product**4 @ p) / (3 * (p @ product**2 @ p) ** 2)
    assert abs(ratio["binder"] - wanted) < 4.5 * ratio["mcse"]
    p = softmax(0.5 * target.log_prob(states))  # between two levels
    wanted = 1 - (p @ product**4 @ p) / (3 * (p @ product**2 @ p) ** 2)
    between = binder(found, "q", betas=[0.5])
    assert abs(between["binder"][0] - wanted) < 4.5 * between["mcse"][0]
    with pytest.raises(ValueError, match=r"n_sites \* <q\^2> is the susceptibility of a glass"):
        susceptibility(found, "q")


@pytest.mark.parametrize("n_bins", [1, 2, 3, 5, 6, 7, 20])
@pytest.mark.parametrize("n", [3, 6, 8])
def test_bins_of_overlaps_hold_equally_many_values(n, n_bins):
    """Of all states and one: q is binomial, and its distribution symmetric."""
    x = np.array(list(itertools.product([-1, 1], repeat=n)))
    pair = np.stack([x, np.ones_like(x)])
    found = overlaps(xr.Dataset({"x": (("chain", "draw", "site"), pair)}), bins=n_bins)
    p, middle = found["p"].values, found["bin"].values
    np.testing.assert_allclose(p, p[::-1], atol=1e-12)
    np.testing.assert_allclose(middle, -middle[::-1], atol=1e-12)
    width = 2.0 * (n + 1) / n if len(p) == 1 else middle[1] - middle[0]
    levels = 2.0 * np.arange(n + 1) / n - 1.0
    for at, density in zip(middle, p, strict=True):
        inside = abs(levels - at) < width / 2
        wanted = sum(math.comb(n, k) for k in np.flatnonzero(inside)) / 2**n
        assert density * width == pytest.approx(wanted)
        assert inside.sum() == round(width * n / 2) or at in (middle[0], middle[-1])
    assert len(p) <= n_bins + 1


@pytest.mark.slow
@QUIET
def test_lattice_at_ten_temperatures():
    """A torus by Kaufman's formula, and with a field and free edges by elimination."""
    t = np.linspace(1.8, 3.2, 10)
    beta, settings = t.min() / t, {"n_chains": 4, "random_state": 0}
    sampler = ParallelTempering(betas=beta, **settings)
    ring = Ising.lattice(np.zeros((16, 16)), coupling=1 / t.min())
    found = sampler.fit(ring).sample(
        3000, temperatures="all", record={"m": lambda x: x.mean((1, 2))}
    )
    energy, heat = np.array([of_torus(16, 1 / one) for one in t]).T
    off = []
    for level, betas in ((found.sel(beta=beta), None), (found, beta)):
        of_energy, of_heat = expectation(level, betas=betas), specific_heat(level, betas=betas)
        off.append((of_energy.value - energy / t.min()) / of_energy.mcse)
        off.append((of_heat["specific_heat"] - heat) / of_heat["mcse"])
    open_ = Ising.lattice(np.full((16, 16), 0.02), coupling=1 / t.min(), periodic=False)
    found = sampler.fit(open_).sample(
        3000, temperatures="all", record={"m": lambda x: x.sum((1, 2))}
    )
    truth = [expectation(_times(open_, b), "sum").value for b in beta]
    for level, betas in ((found.sel(beta=beta), None), (found, beta)):
        mean = expectation(level, "m", betas=betas)
        off.append((mean.value - truth) / mean.mcse)
    assert (np.abs(off) < 2).mean() >= 0.85
    assert np.abs(off).max() < 4


def _times(target, beta):
    return Ising(beta * target.couplings, beta * target.field)

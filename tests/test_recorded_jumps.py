"""Every jump with its weight: against enumeration, by hand, and what may be done with the draws."""

import copy
import pickle
import signal
import warnings

import arviz
import networkx as nx
import numpy as np
import pytest
import xarray as xr
from models import dense, ising, potts
from scipy.stats import chi2
from test_jumps import FUNCTIONS, SIDED, TARGETS, TWO_VALUED, factors_of, plain

import sklsb
from sklsb import GibbsSampler, Ising, LSBSampler, diagnostics, exact, testing
from sklsb.balancing import Barker, Max, Sqrt
from sklsb.balancing.sides import balanced, log_weights
from sklsb.diagnostics.weights import resample, weighted_mean, weights_of
from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.ensembles.rules import EachJump
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.enumeration import neighbours
from sklsb.exceptions import (
    FrozenSitesWarning,
    InterruptedWarning,
    SamplerWarning,
    SeparatedModesWarning,
    ShortRunWarning,
    StoreError,
)
from sklsb.extending import FixedRuleSampler
from sklsb.testing._probe import RuleProbe, check_caches
from sklsb.testing._rules import measured_matrix

SELECTION = sklsb.VariableSelection(
    np.random.default_rng(0).normal(size=(40, 4)), np.random.default_rng(1).normal(size=40)
)


def each(target, function, factors=None):
    rule = balanced(target, function, factors=factors)
    return EachJump(rule.table, rule.sides)


def log_z(target, function, x, factors=None):
    """Log of the sum of the weights, from log p alone: g, factors, and log-odds of upper values."""
    log_p = target.log_prob(x)
    terms = []
    for i, k in enumerate(target.cardinalities):
        for value in target.values[:k]:
            other = x.copy()
            other[:, i] = value
            differs = (other != x).any(axis=1)
            with np.errstate(invalid="ignore"):
                u = np.where(differs, target.log_prob(other) - log_p, -np.inf)
            u = np.where(np.isnan(u), -np.inf, u)
            finite = np.where(np.isfinite(u), u, 0.0)
            up = x[:, i] == target.values[0]
            side = np.where(up, finite, -finite) if function.sided else finite
            log_w = 0.5 * finite + function.tabulated().side_part(side)
            log_s = 0.0 if factors is None else np.log(factors[i])
            terms.append(np.where(np.isfinite(u), log_w + log_s, -np.inf))
    return np.logaddexp.reduce(terms)


def jumper(target, function="barker", **settings):
    settings = {"n_burn_in": 200, "n_chains": 4, "random_state": 0, "init": "both"} | settings
    return LSBSampler(function, rejection_free=True, blocks=None, **settings).fit(target)


# ----------------------------------------------------------------- the rule


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_single_jumps_leave_p_z_invariant(name, function):
    """Bisected steps; the law is what measured weights make p, reversibly."""
    target = TARGETS[name]
    testing.check_rule(each(target, function, factors_of(target)), target)


@pytest.mark.parametrize("name", TWO_VALUED)
@pytest.mark.parametrize("function", SIDED.values(), ids=SIDED)
def test_single_jumps_with_sides(name, function):
    testing.check_rule(each(TARGETS[name], function), TARGETS[name])


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("function", [Barker(), Max()])
def test_the_matrix_and_its_law_by_hand(name, function):
    """Q = w / Z from the log-ratios, and p Z Q = p Z, to the last bits."""
    target = TARGETS[name]
    x, log_p = exact.states(target), plain(target)
    n = len(x)
    factors = factors_of(target)
    found = measured_matrix(each(target, function, factors), target)
    possible = log_p > -np.inf
    w = np.zeros((n, target.cardinalities.sum() - target.n_sites))
    site = np.repeat(np.arange(target.n_sites), target.cardinalities - 1)
    u = target.log_ratios(x[possible])
    w[possible] = factors[site] * np.exp(function.tabulated().log_g(u))
    expected = np.zeros((n, n))
    np.add.at(expected, (np.arange(n)[:, None], neighbours(target)), w)
    z = w.sum(axis=1)
    stays = z == 0.0
    expected[~stays] /= z[~stays, None]
    expected[stays, stays] = 1.0
    assert np.allclose(found, expected, rtol=0, atol=1e-15 * (1 + n))
    law = np.exp(log_p - log_p.max()) * z
    law /= law.sum()
    assert np.abs(law @ found - law).max() < 1e-15
    assert np.array_equal(measured_matrix(each(target, function, factors), target), found)


@pytest.mark.parametrize(
    ("target", "function", "with_factors"),
    [
        (dense(5), Barker(), False),
        (dense(5).condition({1: 1}), Sqrt(), True),
        (TARGETS["potts zeros"], Max(), True),
        (TARGETS["mixed"], Barker(), True),
        (dense(4), SIDED["both terms"], True),
        (dense(4), SIDED["learnable"], False),
        (ising(nx.path_graph(3), "field 700"), Sqrt(), False),
        (SELECTION, SIDED["wtgs"], False),
    ],
    ids=str,
)
def test_the_weight_is_one_over_z(target, function, with_factors):
    """Recomputed from the states that were drawn; not worse after many jumps."""
    factors = factors_of(target) if with_factors else None
    x = np.stack([target.draw_state(np.random.default_rng(c)) for c in range(2)])
    chains = BalancedEnsemble(target, x, Streams(spawn(0, 2)))
    chains.start(each(target, function, factors))
    n = 3000
    draws, stats = np.empty((2, n, target.n_sites), target.dtype), np.empty((2, n, 3))
    chains.run(n, (1, 0, 0), draws, stats)
    check_caches(chains, "after jumps")
    assert (stats[..., 1] == 1.0).all()
    moved = np.concatenate([x[:, None], draws], axis=1)
    assert ((np.diff(moved, axis=1) != 0).sum(axis=2) == 1).all()  # every draw is a jump
    late = draws[:, -200:].reshape(-1, target.n_sites)
    expected = -log_z(target, function, late, factors)
    size = 1.0 + np.abs(target.log_prob(late)).max()
    assert np.allclose(stats[:, -200:, 2].ravel(), expected, rtol=0, atol=1e-13 * size)


@pytest.mark.parametrize("name", ["ising", "evidence", "potts zeros", "mixed"])
def test_chi_square_of_weighted_jumps(name):
    """Independent chains from p Z, after 7 jumps: weighted shares against p, gate 1e-9."""
    target, function = TARGETS[name], Max()
    factors = factors_of(target)
    rule = each(target, function, factors)
    x, log_p = exact.states(target), plain(target)
    kept = np.flatnonzero(log_p > -np.inf)
    p = np.exp(log_p[kept] - np.logaddexp.reduce(log_p[kept]))
    law = p * np.exp(log_z(target, function, x[kept], factors))
    rng = np.random.default_rng(4)
    n = 1 << 16
    here = x[rng.choice(kept, size=n, p=law / law.sum())]
    probe = RuleProbe(target, rule)
    for _ in range(7):
        here, stats = probe.draws(here, rng.random((n, 1)))
    w = np.exp(stats[:, 2])
    w /= w.mean()
    index = {state.tobytes(): k for k, state in enumerate(x[kept])}
    at = np.array([index[state.tobytes()] for state in here])
    seen = np.bincount(at, w, kept.size) / n
    residual = -w[:, None] * p
    residual[np.arange(n), at] += w
    covariance = (residual.T @ residual / n)[:-1, :-1]  # the last one follows from the others
    off = (seen - p)[:-1]
    statistic = n * off @ np.linalg.solve(covariance, off)
    assert chi2.sf(statistic, kept.size - 1) > 1e-9
    unweighted = np.bincount(at, minlength=kept.size) / n
    assert np.abs(unweighted - p).max() > 3 * np.abs(seen - p).max()  # the weights matter


def test_an_isolated_state_weighs_infinitely():
    target = TARGETS["isolated states"].condition({2: 0})
    rule = each(target, Barker())
    there, stats = RuleProbe(target, rule).draws(np.array([[0, 0, 0]]), np.array([[0.5]]))
    assert (there == 0).all()
    assert stats[0, 2] == np.inf


# ----------------------------------------------------------------- the sampler


@pytest.mark.parametrize(
    ("target", "settings"),
    [
        (dense(4, seed=1), {"function": "barker"}),
        (dense(4, seed=1), {"function": "wtgs", "factors": [1.0, 2.0, 0.5, 3.0]}),
        (potts(nx.path_graph(3)), {"function": "max", "factors": "site"}),
        (dense(5).condition({1: 1}), {"function": "sqrt"}),
        (SELECTION, {"function": "max"}),
        (dense(4, seed=2), {"function": "learned"}),
    ],
)
def test_weighted_draws_are_from_the_target(target, settings):
    sampler = jumper(target, **settings)
    draws = sampler.sample(8000, record="jumps")
    assert dict(draws.sizes) == {"chain": 4, "draw": 8000, **dict.fromkeys(target.dims, 0)} | {
        dim: size for dim, size in zip(target.dims, target.shape, strict=True)
    }
    assert draws.x.dtype == target.dtype
    assert draws.log_weight.dims == ("chain", "draw")
    assert np.array_equal(draws.log_weight, sampler.sample_stats_["log_weight"])
    assert np.allclose(draws.lp, target.log_prob(draws.x.values), atol=1e-10)
    x, law = exact.states(target), exact.probabilities(target)
    p = np.stack([law @ (x == value) for value in target.values], axis=-1)
    assert "log_weight" in draws[["x"]], "weights go with the states"
    found = diagnostics.marginals(draws[["x"]], target)
    known = np.isfinite(found.mcse.values) & (found.mcse.values > 0)
    assert known.any()
    assert (np.abs(found.p.values - p)[known] < 5 * found.mcse.values[known]).all()
    assert np.allclose(found.p.values[~known], p[~known], atol=1e-3)


def test_other_draws_know_nothing_of_recorded_jumps():
    """States, draws and distances are those of a sampler that recorded none."""
    target = dense(5)
    plain_one, sampler = jumper(target), jumper(target)
    first = plain_one.sample(20).x, sampler.sample(20).x
    assert np.array_equal(*first)
    before, evaluations = sampler.state_, sampler.n_evaluations_
    jumps = sampler.sample(300, record="jumps")
    assert np.array_equal(sampler.state_, before)
    made = sampler.n_evaluations_ - sampler._reference_cost  # of exact answers, to compare with
    assert made == evaluations + 4 * 300 * 5
    assert jumps.draw.values.tolist() == list(range(300))
    assert sampler.thin_ == plain_one.thin_
    more = sampler.sample(20)
    assert np.array_equal(plain_one.sample(20).x, more.x)
    assert more.draw.values[0] == 20
    assert "log_weight" not in more


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
def test_jumps_begin_where_the_chains_are():
    sampler = jumper(dense(6))
    sampler.sample(10)
    jumps = sampler.sample(5, record="jumps")
    assert ((jumps.x[:, 0].values != sampler.state_).sum(axis=1) == 1).all()


def test_recorded_jumps_go_on_bit_for_bit(tmp_path):
    target = dense(5)
    whole = jumper(target, factors="site").sample(300, record="jumps")
    sampler = jumper(target, factors="site", n_jobs=2)
    parts = [sampler.sample(100, record="jumps")]
    sampler.sample(30)  # in between, of the other chains
    copies = copy.copy(sampler), pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler)
    sampler.save(tmp_path / "sampler")
    parts.append(sampler.sample(200, record="jumps"))
    again = [other.sample(200, record="jumps") for other in copies]
    again.append(LSBSampler.load(tmp_path / "sampler", target).sample(200, record="jumps"))
    for name in ("x", "log_weight", "lp"):
        assert np.array_equal(np.concatenate([part[name] for part in parts], axis=1), whole[name])
        for other in again:
            assert np.array_equal(other[name], parts[1][name])


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
def test_recorded_jumps_in_a_store(tmp_path):
    pytest.importorskip("zarr")
    target, path, other = dense(5), tmp_path / "jumps", tmp_path / "draws"
    memory, sampler = jumper(target), jumper(target)
    memory.sample(10)
    whole = memory.sample(300, record="jumps")
    sampler.sample(10, store=other)
    found = sampler.sample(100, record="jumps", store=path)
    assert set(found.data_vars) == {"x"}
    sampler.sample(10, store=other)  # its chains have not moved since
    resumed = LSBSampler.resume(path, target)
    assert np.array_equal(resumed.state_, sklsb.open_draws(other).x[:, 9])
    resumed.sample(200, record="jumps", store=path)
    opened = sklsb.open_draws(path)
    for name in ("x", "log_weight", "lp"):
        assert np.array_equal(opened[name], whole[name])
    assert np.array_equal(resumed.sample(10).x, sklsb.open_draws(other).x[:, 10:])
    expected = diagnostics.marginals(whole, target)
    assert expected.equals(diagnostics.marginals(opened, target))
    with pytest.raises(StoreError, match=r"would store x, lp, acceptance_rate, but .* log_weight"):
        resumed.sample(10, store=path)
    with pytest.raises(StoreError, match="would store x, lp, acceptance_rate, log_weight, but"):
        sampler.sample(10, record="jumps", store=other)


def test_interrupted_jumps_go_on(monkeypatch, ctrl_c):
    target = dense(5, scale=0.3)  # 64 jumps, all there are at the signal, already agree
    whole = jumper(target).sample(4000, record="jumps")
    sampler, run = jumper(target), BalancedEnsemble.run

    def interrupts(*args):
        run(*args)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(BalancedEnsemble, "run", interrupts)
        with pytest.warns(InterruptedWarning, match="returning"):
            first = sampler.sample(4000, record="jumps")
    n = first.sizes["draw"]
    assert 0 < n < 4000
    assert "log_weight" not in sampler.sample(5)
    rest = sampler.sample(4000 - n, record="jumps")
    assert np.array_equal(np.concatenate([first.x, rest.x], axis=1), whole.x)


def test_an_error_gives_the_turn_back(monkeypatch):
    sampler = jumper(dense(4))
    before = sampler._ensemble

    def fails(*args):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(BalancedEnsemble, "run", fails)
        with pytest.raises(ZeroDivisionError):
            sampler.sample(10, record="jumps")
    assert sampler._ensemble is before
    assert "log_weight" not in sampler.sample(10)


def test_jumps_begin_anew_after_a_fit_and_a_change():
    weight = np.array([0.5, -0.3, 0.2])
    target = sklsb.FunctionTarget(lambda x: float(x @ weight), 3)
    sampler = jumper(target, warm_start=True)
    first = sampler.sample(50, record="jumps")
    weight[:] = 2.0, 1.0, -1.0
    second = sampler.sample(3000, record="jumps")
    assert second.draw.values[0] == 0
    p = diagnostics.marginals(second, target)
    expected = 1 / (1 + np.exp(-weight))
    assert (np.abs(p.p[:, 1] - expected) < 5 * p.mcse[:, 1]).all()
    third = sampler.fit(target).sample(50, record="jumps")
    assert third.draw.values[0] == 0
    assert not np.array_equal(first.x, third.x)


def test_seconds_end_recorded_jumps():
    found = jumper(dense(4)).sample(10**6, record="jumps", stop=diagnostics.Seconds(0.3))
    assert found.attrs["stopped_by"] == "Seconds(seconds=0.3)"
    assert 0 < found.sizes["draw"] < 10**6


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({"rejection_free": False}, {}, "this sampler makes Metropolis-Hastings steps: rejection_"),
        (
            {"blocks": 2},
            {},
            "also redraws blocks: blocks_ is 'pool'. Fit LSBSampler\\(rejection_fr",
        ),
        (
            {"proposal": "path", "rejection_free": "auto"},
            {},
            "Hastings steps: rejection_free_ is F",
        ),
        ({}, {"thin": 3}, 'thin is 3, but record="jumps" keeps every jump; leave thin at 1'),
        ({}, {"thin": "sweep"}, "thin is 'sweep', but record=\"jumps\" keeps every jump"),
        (
            {},
            {"stop": diagnostics.RHat(1.01)},
            r"stop has RHat\(below=1.01\), but these draws have",
        ),
        (
            {},
            {"stop": [diagnostics.Seconds(9), len]},
            "stop has <built-in function len>, but these",
        ),
        ({}, {"record": "jump"}, 'record is \'jump\'; give one of "moments", "marginals", "jumps"'),
    ],
    ids=str,
)
def test_errors_of_recorded_jumps(settings, given, message):
    settings = {"rejection_free": True, "blocks": None, "random_state": 0} | settings
    sampler = LSBSampler("barker", **settings).fit(dense(4))
    before = sampler._ensemble
    with pytest.raises(ValueError, match=message):
        sampler.sample(10, **{"record": "jumps"} | given)
    assert sampler._ensemble is before


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
def test_jumps_that_cannot_be_recorded():
    with pytest.raises(ValueError, match='record is "jumps", but GibbsSampler makes no jumps'):
        GibbsSampler(random_state=0).fit(dense(3)).sample(10, record="jumps")
    target = TARGETS["isolated states"].condition({2: 0})
    sampler = jumper(target, n_chains=1)
    sampler.fit(target, initial_states=[0, 0, 0])
    with pytest.raises(ValueError, match="chain 0 is in a state where no change of a variable is"):
        sampler.sample(10, record="jumps")
    with pytest.raises(ValueError, match="chain 0 is in a state where no change"):
        jumper(Ising(np.zeros((0, 0)))).sample(10, record="jumps")
    with pytest.raises(ValueError, match="record is 'jumps', which one sampler keeps"):
        sklsb.sample_chains(jumper(dense(3)), 10, n_chains=2, record="jumps")


# ----------------------------------------------------------------- what is told


def test_chains_of_jumps_in_separated_modes_are_told():
    target = Ising.lattice(np.full((4, 4), 0.0), coupling=1.5)
    sampler = jumper(target, n_chains=2)
    sampler.fit(target, initial_states=np.stack([np.full(16, -1), np.full(16, 1)]))
    with pytest.warns(SeparatedModesWarning, match="The chains disagree"):
        sampler.sample(2000, record="jumps")
    assert not sampler.disagreement_.agree
    with pytest.warns(SeparatedModesWarning):
        sampler.sample(200)  # compared by itself, though fewer


@pytest.mark.parametrize("size", [2, 3, 8])
def test_every_second_jump_is_no_disagreement(size):
    """Jumps change the parity of a state; looks at every second one would divide the chains."""
    target = dense(size, seed=3, scale=0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FrozenSitesWarning)
        for seed in range(12):
            sampler = jumper(target, n_chains=8, random_state=seed, init="uniform")
            for n in (64 * max(1, size // 4), 3000):
                sampler.sample(n, record="jumps")
                assert sampler.disagreement_.agree


def test_few_jumps_are_told():
    target = Ising.lattice(np.zeros((12, 12)), coupling=0.1)
    sampler = jumper(target, n_burn_in=1000)
    with (
        pytest.warns(ShortRunWarning, match="made 100 jumps in this call, fewer than the 144"),
        pytest.warns(FrozenSitesWarning),
    ):
        sampler.sample(100, record="jumps")
    sampler = jumper(target, n_burn_in=1000)
    sampler.sample(10_000, record="jumps")
    with pytest.warns(ShortRunWarning, match="made 600 jumps in this call, 4.17 sweeps"):
        sampler.sample(600, record="jumps")


# ----------------------------------------------------------------- draws with weights


def weighted(x, log_weight):
    dims = ("chain", "draw", *(f"d{k}" for k in range(x.ndim - 2)))
    return xr.Dataset({"x": (dims, x)}, {"log_weight": (("chain", "draw"), log_weight)})


def test_weighted_means_by_hand():
    rng = np.random.default_rng(0)
    x, lw = rng.normal(size=(3, 500, 2)), rng.normal(size=(3, 500)) + 1000.0
    w = np.exp(lw - 1000.0)
    mean, error = weighted_mean(x, weights_of(weighted(x, lw)))
    expected = (w[..., None] * x).sum((0, 1)) / w.sum()
    assert np.allclose(mean, expected, rtol=1e-12)
    # Independent draws: the delta method needs no autocorrelation.
    plain_error = np.sqrt(np.square(w[..., None] * (x - expected)).sum((0, 1))) / w.sum()
    assert np.allclose(error, plain_error, rtol=0.15)
    # Weights that do not depend on the values: Kish's effective size.
    kish = w.sum() ** 2 / np.square(w).sum()
    assert np.allclose(diagnostics.ess(weighted(x, lw)).x, kish, rtol=0.3)


def test_equal_weights_change_nothing():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 400, 3))
    x[..., 1] = np.cumsum(x[..., 1], axis=1)
    draws = weighted(x, np.full((2, 400), -7.0))
    found = diagnostics.ess(draws)
    assert set(found) == {"x"}
    assert np.allclose(found.x, arviz.ess(draws[["x"]], method="mean").x, rtol=1e-9)
    assert np.allclose(diagnostics.ess(draws, method="mean").x, found.x)
    draws["x"][..., 2] = 1.0
    with pytest.warns(FrozenSitesWarning, match="1 variables never changed"):
        assert np.isnan(diagnostics.ess(draws).x[2])


@pytest.mark.parametrize("name", ["mean", "errors"])
def test_errors_of_weighted_marginals_by_repeated_runs(name):
    """A chain of two states that stays 9 times as long in one: against the truth, many times."""
    target = Ising(np.zeros((1, 1)), [0.0])
    rng = np.random.default_rng(5)
    n_runs, n = 300, 400
    scores = []
    for _ in range(n_runs):
        # A slow coin of weight 1 or 9; p(1) = 9 q / (9 q + 1 - q) with q = 1/2.
        switch = rng.random((2, n)) < 0.1
        x = ((np.cumsum(switch, axis=1) + rng.integers(2, size=(2, 1))) % 2).astype(np.int8)
        draws = xr.Dataset(
            {
                "x": (("chain", "draw", *target.dims), (2 * x - 1)[..., None]),
                "log_weight": (("chain", "draw"), np.where(x == 1, np.log(9.0), 0.0)),
            }
        )
        found = diagnostics.marginals(draws, target)
        scores.append(float((found.p[0, 1] - 0.9) / found.mcse[0, 1]))
    scores = np.array(scores)
    if name == "mean":
        assert abs(scores.mean()) < 0.35
    else:
        assert 0.7 < scores.std() < 1.25
        assert (np.abs(scores) < 2).mean() > 0.9


def test_few_visits_widen_weighted_errors():
    """Two long visits in each of two chains: m is at most v / (2 p (1 - p)), whatever ESS says."""
    target = Ising(np.zeros((1, 1)), [0.0])
    x = np.ones((2, 1000, 1), np.int8)
    x[:, 200:300], x[:, 600:700] = -1, -1
    lw = np.where(x[..., 0] == 1, 0.0, np.log(2.0))
    found = diagnostics.marginals(weighted(x, lw).rename(d0="site"), target)
    p = 400 / 1200
    assert np.isclose(found.p[0, 0], p)
    m = 4 / (2 * p * (1 - p))
    assert found.mcse[0, 0] >= np.sqrt((p * (1 - p) + 3 / m) / m) - 1e-12


def test_values_that_were_not_seen_have_no_error():
    target = Ising(np.zeros((2, 2)), [0.0, 0.0])
    x = np.ones((2, 100, 2), np.int8)
    x[:, ::3, 0] = -1
    lw = np.zeros((2, 100))
    found = diagnostics.marginals(weighted(x, lw).rename(d0="site"), target)
    assert np.isnan(found.mcse[1]).all()
    assert (found.mcse[0] > 0).all()
    lw[:, ::3] = -2000.0  # a weight that is lost in rounding
    found = diagnostics.marginals(weighted(x, lw).rename(d0="site"), target)
    assert np.isnan(found.mcse[0]).all()


def test_resampled_draws():
    rng = np.random.default_rng(2)
    lw = rng.normal(size=(3, 40))
    x = np.tile(np.arange(40), (3, 1))
    draws = weighted(x, lw).assign_coords(draw=np.arange(100, 140), lp=(("chain", "draw"), lw))
    found = resample(draws, 1000, 0)
    assert found.x.dims == ("chain", "draw")
    assert found.draw.values.tolist() == list(range(1000))
    assert "log_weight" not in found.variables
    assert "lp" in found.coords
    share = np.exp(lw) / np.exp(lw).sum(axis=1, keepdims=True)
    for c in range(3):
        taken = found.x[c].values
        assert (np.diff(taken) >= 0).all()  # in the order of time
        assert np.array_equal(found.lp[c], lw[c, taken])
        copies = np.bincount(taken, minlength=40)
        assert (np.abs(copies - 1000 * share[c]) < 2).all()
    assert resample(draws, 1000, 0).identical(found)


def test_resampling_is_unbiased():
    lw = np.log([[0.1, 0.2, 0.3, 0.4]])
    draws = weighted(np.arange(4)[None], lw).assign_coords(draw=np.arange(4))
    taken = np.array([resample(draws, 3, seed).x for seed in range(2000)])
    shares = np.bincount(taken.ravel(), minlength=4) / taken.size
    assert np.allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=0.012)


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (lambda d: diagnostics.ess(d, method="tail"), ValueError, "ess was given .*'tail'"),
        (
            lambda d: diagnostics.disagreement(d.rename(d0="site"), dense(2)),
            ValueError,
            r"draws has log_weight, and disagreement counts every draw once. sample\(n\) without",
        ),
        (
            lambda d: diagnostics.ess(d.assign(log_weight=d.log_weight.where(d.log_weight > 0))),
            ValueError,
            r"log_weight of draws\[0, 0\] is nan; log weights must be finite",
        ),
        (
            lambda d: diagnostics.ess(d.assign(log_weight=("draw", np.zeros(70)))),
            ValueError,
            r"log_weight of draws has the dims \('draw',\); give one weight for each draw",
        ),
    ],
)
def test_errors_of_weights(work, error, message):
    x = np.random.default_rng(0).choice(np.array([-1, 1], np.int8), size=(2, 70, 2))
    with pytest.raises(error, match=message):
        work(weighted(x, np.zeros((2, 70))))


def test_containers_tell_that_weights_are_ignored():
    sampler = jumper(dense(3))
    draws = sampler.sample(200, record="jumps")
    for convert in (sampler.to_datatree, sampler.to_inference_data):
        with pytest.warns(SamplerWarning, match="ArviZ counts every draw once"):
            convert(draws)
        convert(draws.drop_vars("log_weight"))  # nothing to tell
    assert diagnostics.best_state(draws).lp == draws.lp.max()


def test_dimod_gets_the_weights():
    pytest.importorskip("dimod")
    sampler = jumper(dense(3))
    draws = sampler.sample(20, record="jumps")
    found = sampler.to_dimod(draws)
    assert np.array_equal(found.record.log_weight, draws.log_weight.values.ravel())


# ----------------------------------------------------------------- a rule of one's own


class Jumps(FixedRuleSampler):
    """Jumps as a sampler of its own: all of its draws have weights."""

    def make_rule(self, target):
        return each(target, Barker())


def test_a_sampler_of_weighted_draws():
    target = dense(3)
    testing.check_sampler(Jumps(n_chains=2), target)
    sampler = Jumps(n_chains=2, random_state=0).fit(target)
    draws = sampler.sample(2000, record={"total": lambda x: x.sum(axis=1)})
    assert set(draws.data_vars) == {"total"}
    x, law = exact.states(target), exact.probabilities(target)
    mean = weights_of(draws) * draws["total"].values
    size = float(diagnostics.ess(draws)["total"])
    gate = 5 * np.sqrt(law @ np.square(x.sum(axis=1)) / size)
    assert abs(mean.mean() - law @ x.sum(axis=1)) < gate
    for name in ("moments", "marginals"):
        with pytest.raises(ValueError, match=f'record="{name}" counts every draw once, and draws'):
            sampler.sample(10, record=name)
    with pytest.raises(ValueError, match="stop has EffectiveSampleSize"):
        sampler.sample(10, stop=diagnostics.EffectiveSampleSize(10))


def test_log_weights_of_the_formula():
    """The second implementation, in NumPy, has the same Z."""
    target = TARGETS["mixed"]
    x = exact.states(target)[plain(target) > -np.inf]
    rule = each(target, Barker(), factors_of(target))
    found = np.logaddexp.reduce(log_weights(rule, target, x, target.log_ratios(x)), axis=1)
    assert np.allclose(found, log_z(target, Barker(), x, factors_of(target)), atol=1e-12)

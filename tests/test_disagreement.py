"""Whether chains agree: R-hat, effective sample sizes, and what is said of them."""

import copy
import pickle
import re
import warnings

import numpy as np
import pytest
import xarray as xr
from models import content, dense, mixture_of_products, pairs

from sklsb import (
    AutoSampler,
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    SwapSampler,
    diagnostics,
    exact,
    sample_chains,
)
from sklsb.diagnostics.marginals import marginal_arrays
from sklsb.diagnostics.tally import FEWEST_DRAWS, Tally, agreement
from sklsb.exceptions import SamplerWarning, SeparatedModesWarning
from sklsb.trials.reference import contradiction, of_tally

# Log p of many draws here is made up.
pytestmark = pytest.mark.filterwarnings("ignore:The draws are not of this target")
LATTICE = Ising.lattice(np.random.default_rng(0).normal(size=(4, 4)), coupling=0.2)
MIXED = MarkovNetwork([2, 3, 1, 4], [((0, 1), [[1.0, 2.0, 0.5], [0.5, 1.0, 3.0]])])
# Not all of one coupling: of those with one neighbour at most no other test compiles kernels.
TIED = Ising([[0.0, 6.0, 0.0], [6.0, 0.0, 0.01], [0.0, 0.01, 0.0]], [0.0, 0.0, 0.3])


def dataset(x, target, lp=None):
    lp = target.log_prob(x) if lp is None else lp
    dims = ("chain", "draw", *target.dims)
    x = x.reshape(*x.shape[:2], *target.shape)
    return xr.Dataset({"x": (dims, x)}, coords={"lp": (("chain", "draw"), lp)})


def independent(target, n_chains, n, seed=0):
    rng = np.random.default_rng(seed)
    values = np.asarray(target.values, dtype=target.dtype)
    return values[rng.integers(target.cardinalities, size=(n_chains, n, target.n_sites))]


# ----------------------------------------------------------------- the numbers


@pytest.mark.parametrize("n_chains", [1, 2, 5])
@pytest.mark.parametrize("target", [LATTICE, MIXED], ids=["two values", "mixed"])
def test_r_hat_is_that_of_arviz(target, n_chains):
    arviz = pytest.importorskip("arviz")
    x = independent(target, n_chains, 512)
    halves = 2 * n_chains, 256
    x[0, :200, 0] = target.values[0]  # some disagreement
    found = diagnostics.disagreement(dataset(x, target), target)
    for site in range(target.n_sites):
        if target.cardinalities[site] == 1:
            assert np.isnan(found["r_hat"].values.flat[site])
            continue
        of_values = [
            float(arviz.rhat((x[:, :, site] == v).reshape(halves) * 1.0, method="identity"))
            for v in target.values[: target.cardinalities[site]]
        ]
        assert found["r_hat"].values.flat[site] == pytest.approx(max(of_values), rel=1e-9)


def test_r_hat_of_lp_is_rank_normalised():
    arviz = pytest.importorskip("arviz")
    x, rng = independent(LATTICE, 4, 256), np.random.default_rng(1)
    lp = rng.standard_cauchy((4, 256)) + np.arange(4)[:, None]
    found = diagnostics.disagreement(dataset(x, LATTICE, lp), LATTICE)
    assert float(found["r_hat_lp"]) == pytest.approx(float(arviz.rhat(lp, method="z_scale")), 1e-9)
    assert found.attrs["worst"] == "lp"
    assert not found.attrs["agree"]


def test_effective_sample_sizes():
    """Of two-state chains, whose sizes are known: n (1 - rho) / (1 + rho)."""
    rng, rho, n = np.random.default_rng(0), 0.8, 20_000
    stay = rng.random((4, n, 16)) < rho
    x = np.where(rng.integers(2, size=(4, n, 16)) > 0, 1, -1).astype(np.int8)
    for t in range(1, n):
        x[:, t] = np.where(stay[:, t], x[:, t - 1], x[:, t])
    found = diagnostics.disagreement(dataset(x, LATTICE), LATTICE)
    assert found.attrs["agree"]
    wanted = 4 * n * (1 - rho) / (1 + rho)
    assert np.median(found["ess"]) == pytest.approx(wanted, rel=0.15)


@pytest.mark.parametrize(
    ("n_chains", "n"), [(1, 500), (2, 100), pytest.param(4, 1000, marks=pytest.mark.slow)]
)
def test_chains_that_agree_are_rarely_accused(n_chains, n):
    """With p-values that hold: of 200 runs at most as many as 3 in a hundred allow."""
    accused = sum(
        not diagnostics.disagreement(
            dataset(independent(LATTICE, n_chains, n, seed), LATTICE), LATTICE
        ).agree
        for seed in range(200)
    )
    assert accused <= 6


def symmetric_network(k):
    """A ring of variables whose values are as probable as their opposites, and of k = 3 more."""
    table = np.exp(-np.abs(np.subtract.outer(np.arange(k), np.arange(k))))
    own = np.exp(-0.3 * np.abs(np.arange(k) - (k - 1) / 2))
    pairs = [((i, (i + 1) % 5), table) for i in range(5)]
    return MarkovNetwork([k] * 5, [((), 2.0), *pairs, *(((i,), own) for i in range(5))])


SYMMETRIC = {
    "spins": (Ising(np.zeros((5, 5))), "cycle", (0.6, 0.4), (0.5, 0.5)),
    "tables of two values": (symmetric_network(2), "cycle", (0.6, 0.4), (0.5, 0.5)),
    "three values": (symmetric_network(3), "reverse", (0.4, 0.5, 0.1), (0.1, 0.8, 0.1)),
    "Potts": (Potts(np.zeros((5, 5)), np.ones((5, 3))), "cycle", (0.2, 0.6, 0.2), (1 / 3,) * 3),
}
each_symmetric = pytest.mark.parametrize(
    ("target", "symmetry", "off", "right"), SYMMETRIC.values(), ids=SYMMETRIC
)


def drawn_by(p, target, n_chains, n, seed):
    x = np.random.default_rng(seed).choice(target.values, (n_chains, n, 5), p=p)
    return dataset(x.astype(target.dtype), target, np.random.default_rng(seed).random(x.shape[:2]))


@pytest.mark.parametrize("n_chains", [1, 4])
@each_symmetric
def test_chains_are_compared_with_their_images(target, symmetry, off, right, n_chains):
    """They agree with each other, and favour values that are no more probable than others."""
    assert target.symmetry == symmetry
    draws = drawn_by(off, target, n_chains, 4000, 0)
    found = diagnostics.disagreement(draws, target)
    assert not found.agree
    assert (found["p_value"] < 1e-3).any()
    assert diagnostics.disagreement(drawn_by(right, target, n_chains, 4000, 0), target).agree
    assert diagnostics.disagreement(draws, target.condition({})).agree  # nothing is known there


@pytest.mark.parametrize(
    ("name", "runs"), pairs([*SYMMETRIC], {"1-500": (1, 500), "4-100": (4, 100)}, each=1)
)
def test_chains_that_agree_with_their_images_are_rarely_accused(name, runs):
    (target, _, _, right), (n_chains, n) = SYMMETRIC[name], runs
    accused = sum(
        not diagnostics.disagreement(drawn_by(right, target, n_chains, n, seed), target).agree
        for seed in range(100)
    )
    assert accused <= 3


@pytest.mark.parametrize("seed", [0, 2, 6, 11])
def test_a_cold_lattice_whose_chains_are_in_one_phase(seed):
    """Of these seeds all four chains once fell from striped starts into one phase, untold."""
    lattice = Ising.lattice(np.zeros((24, 24)), coupling=1 / 1.93)
    sampler = GibbsSampler("chromatic", random_state=seed).fit(lattice)
    with pytest.warns(SeparatedModesWarning, match="disagree"):
        sampler.sample(1000)


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning")  # by chance
@pytest.mark.parametrize("coupling", [0.6, -0.6])
def test_one_chain_in_one_phase_is_told(coupling):
    lattice = Ising.lattice(np.zeros((8, 8)), coupling=coupling)
    sampler = GibbsSampler("chromatic", n_chains=1, random_state=0).fit(lattice)
    with pytest.warns(
        SeparatedModesWarning, match="(?s)^Parts of the chain.*no value is more probable"
    ):
        draws = sampler.sample(400)
    assert np.abs(draws["x"].mean(("chain", "draw"))).min() > 0.5  # and the truth is 0


def test_short_runs_of_chains_that_agree_are_rarely_accused():
    """Some twenty sweeps, of which R-hat is above 1.1 by chance."""
    accused = 0
    for seed in range(50):
        sampler = GibbsSampler("random", init="uniform", random_state=seed).fit(
            Ising(np.zeros((6, 6)))
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sampler.sample(120)
        accused += any(issubclass(w.category, SeparatedModesWarning) for w in caught)
    assert accused <= 10


def test_draws_of_a_sweep_are_not_taken_for_sweeps():
    """What is compared are states a quarter of a sweep apart, as in the sampler."""
    target = Ising(np.zeros((20, 20)))
    sampler = GibbsSampler("random", init="uniform", random_state=0).fit(target)
    draws = sampler.sample(1000)
    found = diagnostics.disagreement(draws, target)
    assert found.n_draws == 200
    assert found.identical(sampler.disagreement_)
    with pytest.raises(ValueError, match="are 40 draws of each chain that are 5 transitions"):
        diagnostics.disagreement(draws.isel(draw=slice(200)), target)


def test_a_run_that_is_looked_at_again_and_again():
    check_looks(200)


def check_looks(n):
    """The level falls with the run, since each look is another chance to accuse."""
    rng, between = np.random.default_rng(0), 0
    for _ in range(n):
        x = rng.choice([-1, 1], size=(4, 1024, 16)).astype(np.int8)
        found = diagnostics.disagreement(dataset(x, LATTICE, rng.normal(size=(4, 1024))), LATTICE)
        p = 17 * min(np.nanmin(found["p_value"]), float(found["p_value_lp"]))
        assert found.agree == (p >= 0.01 / 5)
        between += 0.01 / 5 <= p < 0.01
    assert between


@pytest.mark.parametrize("n_chains", [1, 4])
def test_chains_that_disagree_are_told(n_chains):
    x = independent(LATTICE, n_chains, 400)
    x[0, 200:, 5] = 1  # half of one chain keeps a value
    found = diagnostics.disagreement(dataset(x, LATTICE), LATTICE)
    assert not found.agree
    assert found.worst == "(1, 1)"
    assert int(found["p_value"].values.argmin()) == 5


def test_values_that_nothing_changes():
    x = independent(LATTICE, 2, 100)
    x[:, :, 3] = -1
    x[0, :, 7], x[1, :, 7] = 1, -1
    found = diagnostics.disagreement(dataset(x, LATTICE), LATTICE)
    assert np.isnan(found["r_hat"].values.flat[3])
    assert found["r_hat"].values.flat[7] == np.inf
    assert found["p_value"].values.flat[7] == 0.0
    assert (found.worst, found.agree) == ("(1, 3)", 0)


def test_agreement_of_constants_says_nothing():
    one = agreement(np.full((2, 8, 3), 5.0), np.full((2, 8, 3), 5.0), 5)
    assert np.isnan(one.r_hat).all()
    assert np.isnan(one.p_value).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.isel(draw=slice(0, 63)), r"63 draws of each chain; .* at least 64"),
        (lambda d: d.drop_vars("lp"), "draws has no lp"),
        (lambda d: d.isel(row=0), "draws has x of"),
        (lambda d: d.drop_vars("x"), "no variable x"),
    ],
)
def test_wrong_draws(change, message):
    draws = change(dataset(independent(LATTICE, 2, 100), LATTICE))
    with pytest.raises(ValueError, match=message):
        diagnostics.disagreement(draws, LATTICE)


# ----------------------------------------------------------------- running counts


@pytest.mark.parametrize("target", [LATTICE, MIXED], ids=["two values", "mixed"])
@pytest.mark.parametrize(("every", "thin"), [(1, 1), (5, 1), (5, 2), (4, 4), (3, 7)])
def test_a_tally_counts_every_kth_draw_however_they_come(target, every, thin):
    x = independent(target, 3, 1000)
    lp = np.random.default_rng(2).normal(size=(3, 1000))
    whole, parts = Tally(target, 3, every), Tally(target, 3, every)
    whole.add(x, lp, thin)
    for begin, end in zip([0, 1, 2, 40, 41, 600], [1, 2, 40, 41, 600, 1000], strict=True):
        parts.add(x[:, begin:end], lp[:, begin:end], thin)
    assert content(whole) == content(parts)
    stride = -(-every // thin)
    seen = x[:, stride - 1 :: stride] if thin == 1 else x[:, -(-every // thin) - 1 :: stride]
    assert whole.n_draws == seen.shape[1]
    begin, wanted = 0, seen
    for i, site in enumerate(whole.sites):
        k = target.cardinalities[site]
        values = target.values[1:2] if k == 2 else target.values[:k]
        for v in values:
            total = whole.counts.sums[:, :, whole.first[i] + begin].sum(axis=1)
            np.testing.assert_array_equal(total, (wanted[:, :, site] == v).sum(axis=1))
            begin += 1
        begin = 0
    assert content(pickle.loads(pickle.dumps(whole))) == content(whole)


def test_a_tally_takes_the_same_room_however_long():
    tally = Tally(LATTICE, 2)
    held = vars(tally) | {"counts": tally.counts.sums, "sums": tally.lp_sums.sums}
    room = {name: a.nbytes for name, a in held.items() if isinstance(a, np.ndarray)}
    assert tally.counts.sums.itemsize == 1
    for seed in range(20):
        tally.add(independent(LATTICE, 2, 1000, seed), np.zeros((2, 1000)), 1)
    assert tally.n_draws == 20_000
    # A batch holds a thousand draws now, whose number takes two bytes.
    assert tally.counts.sums.nbytes == 2 * room["counts"]
    assert tally.lp_sums.sums.nbytes == room["sums"]
    assert tally.lp.nbytes == room["lp"]
    assert len(pickle.dumps(tally)) < sum(room.values()) + room["counts"] + 1000
    filled, n = tally.counts.begun.shape[1], tally.counts.sums.shape[1]
    assert n // 2 <= filled <= n


def test_counts_of_one_value_exceed_its_type():
    tally = Tally(LATTICE, 2)
    tally.add(np.ones((2, 20_000, 16), LATTICE.dtype), np.zeros((2, 20_000)), 1)
    np.testing.assert_array_equal(tally.counts.sums.sum(axis=1), 20_000)


def test_some_of_very_many_variables_stand_for_all():
    target = Ising.lattice(np.zeros((300, 300)), coupling=0.1)
    tally = Tally(target, 100)
    assert tally.counts.sums.size <= 1 << 24
    assert 1000 < tally.sites.size < target.n_sites


# ----------------------------------------------------------------- what samplers say


@pytest.mark.parametrize("settings", [{}, {"record": {"total": lambda x: x.sum(axis=1)}}])
@pytest.mark.parametrize(
    "sampler",
    [LSBSampler("barker", blocks=None), GibbsSampler("random"), GibbsSampler("chromatic")],
    ids=str,
)
def test_separated_modes_are_told(sampler, settings):
    sampler.set_params(n_chains=4, random_state=1)
    start = np.repeat([[1, 1, 1], [-1, -1, -1]], 2, axis=0)
    sampler.fit(TIED, initial_states=start)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        draws = sampler.sample(400, thin="sweep", **settings)
    [message] = [str(w.message) for w in told if w.category is SeparatedModesWarning]
    assert re.search(r"Most of all in variable [01]: R-hat .*\(disagreement_ and skl", message)
    found = sampler.disagreement_
    assert not found.agree
    assert found["r_hat"].values[2] < 1.1 < found["r_hat"].values[0]
    # The same from the draws, where they are kept.
    if not settings:
        assert diagnostics.disagreement(draws, TIED).identical(found)


def test_one_chain_is_compared_with_itself():
    target, *_ = mixture_of_products(20, 3)
    sampler = LSBSampler("barker", n_chains=1, random_state=0).fit(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        sampler.sample(500, thin="sweep")
    assert sampler.disagreement_.sizes == {"site": 20}


def test_a_mixture_is_told_by_default():
    """Under uniform starts all chains agree, and all are wrong."""
    target, _, broad = mixture_of_products(50, 2)
    with pytest.warns(SeparatedModesWarning):
        LSBSampler("barker", random_state=0).fit(target).sample(500, thin="sweep")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler = LSBSampler("barker", random_state=0, init="uniform").fit(target)
        x = sampler.sample(500, thin="sweep")["x"]
    np.testing.assert_allclose(x.mean(("chain", "draw")), broad, atol=0.15)


@pytest.mark.parametrize(
    "target",
    [LATTICE, dense(8, scale=0.2), Potts.lattice(np.zeros((4, 4, 3)), coupling=0.3)],
    ids=["lattice", "dense", "potts"],
)
def test_chains_that_mix_are_not_accused(target):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(5):
            sampler = LSBSampler("barker", random_state=seed).fit(target)
            sampler.sample(500, thin="sweep")
            assert sampler.disagreement_.agree


def test_nothing_is_said_of_few_draws_and_a_fit_forgets():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        sampler = LSBSampler("barker", random_state=0).fit(TIED)
        for _ in range(3):
            sampler.sample(FEWEST_DRAWS // 4, thin="sweep")
        assert not hasattr(sampler, "disagreement_")
        sampler.sample(FEWEST_DRAWS // 4, thin="sweep")  # together they are enough
    assert sampler.disagreement_.n_draws == FEWEST_DRAWS
    sampler.fit(LATTICE)
    assert not hasattr(sampler, "disagreement_")


# ----------------------------------------------------------------- against exact answers


def in_two_parts(x):
    """No single change leads from states of few ones to those of many."""
    n = x.sum(axis=-1)
    return np.where((n > 3) & (n < 7), -np.inf, 0.3 * n - 0.4 * x[..., 0])


PARTS = FunctionTarget(in_two_parts, 10)
FEW = np.zeros((4, 10), dtype=np.int8)
WRONG = "by them, variable [0-9] is [01] with probability .* exactly, it is 0"
SINGLE = {
    "gibbs": GibbsSampler("systematic", random_state=0),
    "ball": HammingBallSampler(3, random_state=0),
    "barker": LSBSampler("barker", random_state=0),
    "jumps": LSBSampler("barker", random_state=0, rejection_free=True, pilot=False),
}


def told_of(call):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        found = call()
    return found, [str(w.message) for w in given if issubclass(w.category, SeparatedModesWarning)]


def test_contradictions_by_hand():
    exact_p = np.array([[0.5, 0.5], [0.98, 0.02]])
    p, errors = exact_p.copy(), np.full((2, 2), 0.01)
    assert contradiction(exact_p, p, errors, 1000) is None
    p[0] = 0.549, 0.451  # 4.9 errors
    assert contradiction(exact_p, p, errors, 1000) is None
    p[0] = 0.552, 0.448
    assert contradiction(exact_p, p, errors, 1000)[:3] == (0, 0, 0.552)
    p[0], errors[:] = (0.509, 0.491), 1e-4  # below .01, whatever the errors
    assert contradiction(exact_p, p, errors, 1000) is None
    p[1], errors[1] = (1.0, 0.0), np.nan  # never seen: sqrt(3) / n is the error
    for n, wrong in ((400, False), (450, True)):  # 5 sqrt(3) / 433 is .02
        found = contradiction(exact_p, p, errors, n)
        assert (found is not None) == wrong, n
    assert found.site == 1
    assert np.isnan(found.error)
    assert contradiction(exact_p, p * np.nan, errors, 1000) is None  # not counted


def check_errors_of_what_may_be_wrong():
    """Only they are computed, and nothing wrong is missed."""
    rng, n_wrong = np.random.default_rng(0), 0
    target = Ising(np.zeros((6, 6)), np.zeros(6))
    for stay in (0.0, 0.5, 0.9, 0.99, 0.999):
        kept = rng.random((4, 300, 6)) < stay
        x = np.where(rng.random((4, 300, 6)) < 0.3, 1, -1).astype(np.int8)
        for t in range(1, 300):
            x[:, t] = np.where(kept[:, t], x[:, t - 1], x[:, t])
        p, errors = marginal_arrays(dataset(x, target), target)
        for exact_p in (np.tile([0.7, 0.3], (6, 1)), np.tile([0.8, 0.2], (6, 1)), 1.0 - p):
            quick = marginal_arrays(dataset(x, target), target, exact_p)
            np.testing.assert_array_equal(quick[0], p)
            off = np.abs(p - exact_p)
            wrong = (off > 0.01) & (off > 5.0 * errors)
            np.testing.assert_array_equal(quick[1][wrong], errors[wrong])
            np.testing.assert_array_equal((off > 0.01) & (off > 5.0 * quick[1]), wrong)
            n_wrong += wrong.sum()
    assert n_wrong > 20, "some answers here are wrong"


def test_errors_of_what_may_be_wrong():
    check_errors_of_what_may_be_wrong()


def test_marginals_of_a_tally():
    x = independent(MIXED, 3, 600)
    x[:, :, 1] = np.where(x[:, :, 1] == 2, 0, x[:, :, 1])  # a value is never seen
    tally = Tally(MIXED, 3)
    for part in np.split(x, [5, 64, 300], axis=1):
        tally.add(part, MIXED.log_prob(part), 1)
    p, errors = of_tally(tally, (4, 4))
    counted = [(0, 1), (1, 0), (1, 1), (1, 2), (3, 0), (3, 1), (3, 2), (3, 3)]
    for site, value in np.ndindex(4, 4):
        if (site, value) in counted:
            assert p[site, value] == pytest.approx((x[:, :, site] == value).mean(), abs=1e-12)
        else:
            assert np.isnan(p[site, value])
    assert np.isnan(errors[1, 2])
    of_draws = np.sqrt(p * (1 - p) / 1800)
    seen = ~np.isnan(errors)
    assert seen.sum() == 7
    assert (errors / of_draws)[seen] == pytest.approx(1.0, abs=0.5)


def check_one_part_is_told():
    """Four chains in the same part agree with each other."""
    for name, sampler in SINGLE.items():
        sampler.fit(PARTS, initial_states=FEW)
        draws, told = told_of(lambda s=sampler: s.sample(300, thin="sweep"))
        assert draws["x"].values.sum(axis=2).max() <= 3
        assert sampler.disagreement_.agree, name
        assert len(told) == 1, f"{name} says nothing of one part"
        assert re.search(WRONG, told[0]), f"{name}: {told[0]}"
        assert "sklsb.exact.probabilities" in told[0]


def test_chains_that_agree_in_one_part_are_told():
    check_one_part_is_told()


# Marginals are sums in kernels, which are compiled for this only.
@pytest.mark.parametrize(
    "record",
    [
        "moments",
        pytest.param("marginals", marks=pytest.mark.slow),
        {"n": lambda x: x.sum(axis=-1)},
    ],
)
def test_whatever_is_recorded_is_told(record):
    sampler = SINGLE["gibbs"].fit(PARTS, initial_states=FEW)
    _, told = told_of(lambda: sampler.sample(700, record=record))
    assert re.search(WRONG, told[-1])


def test_a_store_and_new_chains_are_told(tmp_path):
    pytest.importorskip("zarr")
    sampler = SINGLE["gibbs"].fit(PARTS, initial_states=FEW)
    _, told = told_of(lambda: sampler.sample(300, store=tmp_path / "draws"))
    assert re.search(WRONG, told[-1])
    # All three start in the part of few ones, which has .75 of the probability.
    rare = FunctionTarget(lambda x: in_two_parts(x) + np.where(x.sum(-1) > 3, -2.3, 0.0), 10)
    many = exact.states(rare).sum(axis=1) > 3
    assert exact.probabilities(rare)[many].sum() == pytest.approx(0.25, abs=0.02)
    sampler = GibbsSampler("systematic", random_state=2).fit(rare, initial_states=FEW)
    draws, told = told_of(lambda: sample_chains(sampler, 300, n_chains=3))
    assert draws["x"].values.sum(axis=2).max() <= 3
    assert re.search(WRONG, told[-1])


def test_many_calls_are_judged_together():
    """Each is too short to be wrong by itself."""
    sampler = SINGLE["gibbs"].fit(PARTS, initial_states=FEW)
    all_told = [bool(told_of(lambda: sampler.sample(20))[1]) for _ in range(6)]
    assert not any(all_told[:3])
    assert all(all_told[3:])


def test_exchanges_are_compared_at_their_counts():
    target = dense(6)
    start = np.array([1, 1, -1, -1, -1, -1])
    sampler = SwapSampler(random_state=0).fit(target, initial_states=start)
    assert not told_of(lambda: sampler.sample(2000, thin="sweep"))[1]
    apart = FunctionTarget(  # no exchange leads from two ones at the left to two at the right
        lambda x: np.where(x[..., :3].sum(-1) % 2 == 0, 0.4 * x[..., 0] + 0.2 * x[..., 3], -np.inf),
        6,
    )
    sampler = SwapSampler(random_state=0).fit(apart, initial_states=np.array([1, 1, 0, 0, 0, 0]))
    _, told = told_of(lambda: sampler.sample(300, thin="sweep"))
    assert "The draws may be wrong" in told[-1]
    assert "over all states with these counts, it is" in told[-1]
    assert "If exchanges lead to all of these, the chains have not converged" in told[-1]
    assert "exact.probabilities" not in told[-1]  # these are not at fixed counts


@pytest.mark.parametrize(
    "sampler",
    [
        *SINGLE.values(),
        ParallelTempering(n_burn_in=256, random_state=0),
        AutoSampler(n_burn_in=300),
    ],
    ids=repr,
)
def test_right_answers_are_not_told(sampler):
    for target in (dense(8, scale=0.2), MIXED):
        _, told = told_of(lambda t=target: sampler.fit(t).sample(500, thin="sweep"))
        assert not told


def test_the_listing_counts_and_is_forgotten_with_the_law():
    bias = [0.1]
    target = FunctionTarget(lambda x: bias[0] * x.sum(-1), 8)
    sampler = GibbsSampler("random", random_state=0, init="uniform").fit(target)
    plain = copy.deepcopy(sampler)
    before = sampler.n_evaluations_
    sampler.sample(2000)
    assert sampler.n_evaluations_ == before + 4 * 2000 + 2**8
    again = copy.copy(sampler)
    assert again.n_evaluations_ == sampler.n_evaluations_
    (a, told), (b, _) = told_of(lambda: again.sample(2000)), told_of(lambda: sampler.sample(2000))
    assert not told
    np.testing.assert_array_equal(a["x"], b["x"])
    assert again.n_evaluations_ == sampler.n_evaluations_
    whole = plain.sample(4000)
    np.testing.assert_array_equal(whole["x"][:, 2000:], b["x"])
    assert plain.n_evaluations_ == sampler.n_evaluations_
    bias[0] = -1.0
    assert not told_of(lambda: sampler.sample(2000, thin="sweep"))[1]

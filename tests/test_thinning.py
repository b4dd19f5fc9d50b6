"""How far apart draws are with ``thin="auto"``."""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
from models import dense

from sklsb import (
    AutoSampler,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    ParallelTempering,
    diagnostics,
    open_draws,
    sample_chains,
)
from sklsb.exceptions import PeriodicChainWarning, ShortRunWarning
from sklsb.trials import thinning as _thinning

pytestmark = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
SPINS = Ising(np.zeros((40, 40)), np.random.default_rng(0).normal(size=40))


def fitted(sampler=None, target=SPINS, **params):
    sampler = GibbsSampler("random") if sampler is None else copy.deepcopy(sampler)
    return sampler.set_params(random_state=0, **params).fit(target)


@pytest.mark.parametrize("time", [1.0, 8.0, 60.0])
@pytest.mark.parametrize("n_chains", [1, 4])
def test_the_distance_of_two_states(time, n_chains):
    """Chains that are redrawn at rate 1 / T: the autocorrelation is exp(-t / T)."""
    rng = np.random.default_rng(1)
    n, sites = 8192, 12
    x = np.empty((n_chains, n, sites), dtype=np.int8)
    x[:, 0] = rng.integers(0, 3, size=(n_chains, sites))
    for t in range(1, n):
        new = rng.random((n_chains, sites)) > math.exp(-1.0 / time)
        x[:, t] = np.where(new, rng.integers(0, 3, size=new.shape), x[:, t - 1])
    wanted = time * math.log(3.0)
    assert _thinning._needed(x, 1) == pytest.approx(wanted, rel=0.12)
    assert _thinning._needed(x[:, ::4], 4) == pytest.approx(wanted, rel=0.2, abs=2.5)


@pytest.mark.parametrize("n_chains", [1, 4])
def test_independent_spins_drawn_in_random_order(n_chains):
    """Each transition redraws one of d spins: T = -1 / log(1 - 1 / d)."""
    sampler = fitted(n_chains=n_chains)
    wanted = -math.log(3.0) / math.log(1.0 - 1.0 / 40)
    assert sampler.thin_ == pytest.approx(wanted, rel=0.2 if n_chains > 1 else 0.4)


@pytest.mark.parametrize("seed", range(4))
def test_draws_of_chains_of_two_kinds_in_turn_are_of_both(seed):
    flat = Ising(np.zeros((6, 6)))
    sampler = LSBSampler("barker", blocks=None, pilot=False, rejection_free=False)
    sampler.set_params(n_chains=2, random_state=seed)
    with pytest.warns(PeriodicChainWarning):
        sampler.fit(flat)
    odd = (sampler.sample(200, thin="auto")["x"].values > 0).sum(axis=2) % 2
    assert sampler.thin_ % 2 == 1
    assert 0.3 < odd.mean() < 0.7


def test_draws_are_worth_a_half():
    for sampler, target in (
        (LSBSampler("barker", blocks=None), dense(30, scale=0.15)),
        (GibbsSampler("chromatic"), Ising.lattice(np.zeros((10, 10)), coupling=0.35)),
    ):
        made = fitted(sampler, target, n_chains=4)
        draws = made.sample(2000, thin="auto")
        ess = diagnostics.ess(draws)["x"].values.ravel() / 8000
        variance = draws["x"].values.reshape(8000, -1).var(axis=0)
        share = variance.sum() / (variance / ess).sum()
        assert 0.3 < share < 0.8


def test_a_sweep_is_too_far_where_few_spins_move():
    """Strong fields and couplings hold all spins but for short excursions."""
    target = Ising.lattice(np.full((12, 12), 1.0), coupling=0.5)
    assert fitted(LSBSampler("barker", blocks=None), target).thin_ <= 144 / 16


CASES = {
    "balanced": (LSBSampler("sqrt", blocks=None), SPINS),
    "redraws": (LSBSampler("sqrt", blocks=3), dense(8, scale=0.3)),
    "balls": (HammingBallSampler(block_size=2), dense(8, scale=0.3)),
    "ladders": (ParallelTempering(n_replicas=3), dense(6, scale=0.4)),
    "raced": (AutoSampler(), dense(8, scale=0.3)),
    "exact": (EliminationSampler(), dense(6, scale=0.4)),
}


@pytest.mark.parametrize("case", CASES)
def test_no_chain_notices(case):
    sampler, target = CASES[case]
    one = fitted(sampler, target, n_chains=2)
    two = fitted(sampler, target, n_chains=2, n_jobs=2)
    before = one.run_.packed_chains()
    thin, evaluations = one.thin_, one.n_evaluations_
    assert one.run_.packed_chains() == before
    assert two.sample(5, thin="auto").attrs["thin"] == thin
    assert two.thin_ == thin
    other = fitted(sampler, target, n_chains=2)
    if case == "exact":
        assert thin == 1
        assert evaluations == other.n_evaluations_
    else:
        assert evaluations > other.n_evaluations_
    draws = other.sample(5, thin=thin)
    assert np.array_equal(one.sample(5, thin="auto")["x"], draws["x"])
    for kept in (pickle.loads(pickle.dumps(one)), copy.copy(one)):
        assert kept.run_._thin == thin
    one.fit(target)
    assert one.run_._thin is None


def test_first_order_steps():
    pytest.importorskip("torch")
    sampler = fitted(LSBSampler("sqrt", fast=True), SPINS)
    assert 5 < sampler.thin_ < 60


def test_a_file_keeps_it(tmp_path):
    sampler = fitted()
    sampler.thin_  # noqa: B018
    sampler.save(tmp_path / "fitted")
    assert GibbsSampler.load(tmp_path / "fitted", SPINS).run_._thin == sampler.thin_


def test_a_store_goes_on_with_it(tmp_path):
    whole = fitted().sample(30, thin="auto")
    path = tmp_path / "run.zarr"
    sampler = fitted()
    sampler.sample(10, thin="auto", store=path)
    GibbsSampler.resume(path, SPINS).sample(20, thin="auto", store=path)
    found = open_draws(path)
    assert np.array_equal(found["x"], whole["x"])
    assert found.attrs["thin"] == whole.attrs["thin"] == sampler.thin_
    # Looking at it leaves the chains where the store ends.
    path = tmp_path / "other.zarr"
    sampler = fitted()
    sampler.sample(10, thin=3, store=path)
    sampler.thin_  # noqa: B018
    sampler.sample(10, thin=3, store=path)


def test_many_chains():
    sampler = fitted()
    draws = sample_chains(sampler, 5, n_chains=3, thin="auto")
    again = sample_chains(sampler, 5, n_chains=3, thin=sampler.thin_)
    assert draws.attrs["thin"] == sampler.thin_
    assert np.array_equal(draws["x"], again["x"])


def test_it_follows_the_target():
    size = [0.1]
    target = FunctionTarget(lambda x: size[0] * x.sum(axis=-1), 6, vectorized=True)
    sampler = fitted(target=target)
    before = sampler.thin_
    size[0] = 0.3
    sampler.sample(1)
    assert sampler.run_._thin is None
    assert sampler.thin_ == pytest.approx(before, rel=0.5)


def test_slow_chains_are_told():
    target = Ising.lattice(np.zeros((24, 24)), coupling=0.6)
    sampler = fitted(target=target, n_chains=2, n_burn_in=300)
    text = r'thin="auto" is \d+ transitions: in \d+ transitions of copies .* a draw seems to need'
    with pytest.warns(ShortRunWarning, match=text):
        thin = sampler.thin_
    assert 1 < thin / 576 <= 16
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShortRunWarning)
        assert sampler.thin_ == thin  # told once


def test_chains_that_never_move_are_told():
    sampler = fitted(target=Ising([[0.0, 20.0], [20.0, 0.0]], [3.0, 3.0]), init="uniform")
    with pytest.warns(ShortRunWarning, match="of copies of the chains no variable changed"):
        assert sampler.thin_ > 1


def test_nothing_to_look_at():
    target = dense(3).condition({0: 1, 1: 1, 2: -1})
    assert fitted(target=target).thin_ == 1


def test_what_is_refused():
    with pytest.raises(ValueError, match="thin is 'often'; give a number of transitions, \"sweep"):
        fitted().sample(3, thin="often")
    with pytest.raises(ValueError, match="thin is 'often'; give a number"):
        sample_chains(fitted(), 3, n_chains=2, thin="often")

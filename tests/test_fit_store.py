"""Fits that are cut short go on from a file, bit for bit."""

from pathlib import Path

import numpy as np
import pytest
from models import chain_network, dense, untimed
from processes import run_python

from sklsb import (
    EliminationSampler,
    GibbsSampler,
    Ising,
    LSBSampler,
    Network,
    ParallelTempering,
)
from sklsb.samplers._run import burn_in as _burn_in
from sklsb.samplers._run import keeper as _keeper
from sklsb.storage.stores import StoreError

pytestmark = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")

TARGET = dense(6, scale=0.4)
NETWORK = chain_network()
SAMPLERS = {
    "fixed": (GibbsSampler(block_size=2, n_burn_in=900), TARGET),
    "balanced": (LSBSampler("barker", n_burn_in=900), TARGET),
    "learned": (LSBSampler(n_burn_in=100), TARGET),
    "exact": (LSBSampler("mixture", objective="exact", optimizer="sgd", n_burn_in=60), TARGET),
    "first version": (LSBSampler(objective="sampled_kl", n_burn_in=60), TARGET),
    "blocks": (LSBSampler(blocks=2, n_burn_in=80), NETWORK),
    "flips": (LSBSampler("sqrt", fast=True, n_flips="auto", n_burn_in=64), TARGET),
}


class Killed(BaseException):
    pass


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(_keeper, "COMMIT_SECONDS", 0.0)
    monkeypatch.setattr(_keeper, "COMMIT_SHARE", 1e9)
    monkeypatch.setattr(_burn_in, "next_segment", lambda segment, size, seconds: 101)


def killed_after(n, monkeypatch):
    """From the n-th write of a burn-in on nothing happens any more."""
    write, left = _keeper.write_file, [n]

    def counted(path, data):
        write(path, data)
        left[0] -= 1
        if not left[0]:
            raise Killed

    monkeypatch.setattr(_keeper, "write_file", counted)


@pytest.mark.parametrize("name", SAMPLERS)
def test_it_goes_on_bit_for_bit(name, tmp_path, monkeypatch, often):
    sampler, target = SAMPLERS[name]
    if sampler.get_params().get("fast"):
        pytest.importorskip("torch")
    sampler.set_params(n_chains=2, random_state=3)
    params = sampler.get_params()

    def new():
        return type(sampler)(**params)

    whole = new().fit(target)
    path = tmp_path / "fit"
    for n in (2, 3):
        with monkeypatch.context() as patch:
            killed_after(n, patch)
            with pytest.raises(Killed):
                new().fit(target, store=path)
    with pytest.raises(StoreError, match=r"holds a fit that is not finished; fit with store="):
        type(sampler).load(path, target)
    again = new().fit(target, store=path)
    assert again._packed_chains() == whole._packed_chains()
    assert untimed(again.history_).identical(untimed(whole.history_))
    assert again.n_evaluations_ == whole.n_evaluations_
    # Once more: it is read only.
    assert new().set_params(n_jobs=2).fit(target, store=path).n_jobs == 2
    read = new().fit(target, store=path)
    assert read._packed_chains() == whole._packed_chains()
    loaded = type(sampler).load(path, target)
    wanted = whole.sample(20)
    assert wanted.equals(read.sample(20))
    assert wanted.equals(loaded.sample(20))


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    script = str(Path(__file__).with_name("killed_fits.py"))
    n_killed, n_fits = map(int, run_python(script, str(tmp_path), "50").split())
    assert n_killed >= 50
    assert n_fits > 10


@pytest.mark.parametrize("sampler", [EliminationSampler(), ParallelTempering(n_replicas=3)])
def test_what_has_no_such_burn_in_is_kept_when_it_is_done(sampler, tmp_path):
    sampler.set_params(n_chains=2, random_state=0).fit(NETWORK, store=tmp_path / "fit")
    again = type(sampler)(**sampler.get_params()).fit(NETWORK, store=tmp_path / "fit")
    assert again._packed_chains() == sampler._packed_chains()
    assert again.sample(5).equals(sampler.sample(5))


def test_what_is_refused(tmp_path):
    path = tmp_path / "fit"
    GibbsSampler(random_state=0, n_burn_in=10).fit(TARGET, store=path)
    for other, changed in (
        (GibbsSampler(random_state=1, n_burn_in=10), "random_state"),
        (GibbsSampler(random_state=0, n_burn_in=11), "n_burn_in"),
    ):
        with pytest.raises(StoreError, match=f"is of another fit: {changed} differ"):
            other.fit(TARGET, store=path)
    sampler = GibbsSampler(random_state=0, n_burn_in=10)
    with pytest.raises(StoreError, match="is of another fit: target differ"):
        sampler.fit(Ising(np.zeros((6, 6))), store=path)
    with pytest.raises(StoreError, match="is of another fit: initial_states differ"):
        sampler.fit(TARGET, store=path, initial_states=np.ones(6, np.int8))
    with pytest.raises(ValueError, match="store keeps neither the chains that warm_start"):
        GibbsSampler(warm_start=True).fit(TARGET, store=path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(StoreError, match="fit is damaged"):
        sampler.fit(TARGET, store=path)
    assert not hasattr(sampler, "target_")
    with pytest.raises(TypeError, match="not a sklsb Target"):
        sampler.fit(None, store=path)
    one, same = (np.random.default_rng(0) for _ in range(2))
    for generator in (one, same):
        GibbsSampler(random_state=generator, n_burn_in=10).fit(TARGET, store=tmp_path / "other")
    with pytest.raises(StoreError, match="random_state differ"):  # it has gone on
        GibbsSampler(random_state=one, n_burn_in=10).fit(TARGET, store=tmp_path / "other")


def test_parameters_are_told_apart_by_what_they_hold(tmp_path):
    """A repr shows neither the parameters of a network nor all of a long array."""
    target = Ising(np.zeros((3, 3)), [0.3, -0.2, 0.1])
    networks = [Network().with_theta(Network().theta + shift) for shift in (0.0, 0.1)]
    assert repr(networks[0]) == repr(networks[1])
    settings = {"n_burn_in": 20, "n_chains": 2, "pilot": False, "random_state": 0}
    LSBSampler(networks[0], **settings).fit(target, store=tmp_path / "fit")
    with pytest.raises(StoreError, match="of another fit: balancing differ"):
        LSBSampler(networks[1], **settings).fit(target, store=tmp_path / "fit")
    for seed in (1, 2):
        settings["random_state"] = np.random.default_rng(seed)
        sampler = LSBSampler(networks[0], **settings)
        if seed == 1:
            sampler.fit(target, store=tmp_path / "of" / "a generator")  # the folder is made
        else:
            with pytest.raises(StoreError, match="of another fit: random_state differ"):
                sampler.fit(target, store=tmp_path / "of" / "a generator")


def test_a_fit_that_is_read_takes_as_many_threads_as_are_wanted(tmp_path):
    target = Ising(np.zeros((3, 3)), [0.3, -0.2, 0.1])
    for n_jobs in (1, 2):
        sampler = GibbsSampler(n_chains=2, n_burn_in=20, n_jobs=n_jobs, random_state=0)
        sampler.fit(target, store=tmp_path / "fit")
        assert sampler.sample(5).attrs["n_jobs"] == str(n_jobs)
        assert sampler._ensemble.n_jobs == n_jobs

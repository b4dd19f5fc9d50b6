"""Observers: what is kept of the chains, by the package's own and by one of a user."""

import copy
import re
import signal

import numpy as np
import pytest
import xarray as xr
from outside.observer_changes import Changes, example

from sklsb import GibbsSampler, Ising, LSBSampler, ParallelTempering, sample_chains
from sklsb.exceptions import InterruptedWarning, ShortRunWarning
from sklsb.extending import Observer
from sklsb.samplers._run import observers as _observers

pytestmark = pytest.mark.filterwarnings("ignore::sklsb.exceptions.ShortRunWarning")
SAMPLERS = {
    "gibbs": GibbsSampler("random", n_chains=2, n_burn_in=20, random_state=0),
    "lsb": LSBSampler("barker", n_chains=2, n_burn_in=20, random_state=0),
    "tempering": ParallelTempering(n_chains=2, n_burn_in=200, random_state=0),
}


def gibbs():
    return GibbsSampler("random", n_chains=2, n_burn_in=20, random_state=0).fit(example())


def changes_of(draws):
    x = draws["x"].values
    return (x[:, 1:] != x[:, :-1]).sum(axis=1)


class Spy(Observer):
    """Notes what it is told, and keeps all that it is shown."""

    def __init__(self):
        self.told = []

    def init(self, call):
        self.told.append("init")
        self.call = call
        return []

    def see(self, carry, chunk):
        self.told.append("see")
        return [*carry, chunk]

    def result(self, carry):
        self.told.append("result")
        x = np.concatenate([chunk.x for chunk in carry], axis=1)
        return xr.Dataset({"y": (("chain", "draw", *self.call.target.dims), x)})

    def after(self, carry):
        self.told.append("after")

    def end(self, carry, stopped_by):
        self.told.append(f"end {stopped_by}")

    def close(self, carry):
        self.told.append("close")


@pytest.mark.parametrize("thin", [1, 3])
@pytest.mark.parametrize("name", SAMPLERS)
def test_an_observer_of_ones_own_sees_the_draws(name, thin, monkeypatch):
    monkeypatch.setattr("sklsb.ensembles.base.FIRST_SEGMENT", 13)
    sampler = copy.copy(SAMPLERS[name]).fit(example())
    memory = copy.copy(sampler)
    draws = memory.sample(400, thin=thin)
    found = sampler.sample(400, thin=thin, record=Changes())
    assert np.array_equal(found["changes"], changes_of(draws))
    assert found.attrs == draws.attrs
    assert np.array_equal(sampler.state_, memory.state_)
    assert sampler.n_evaluations_ == memory.n_evaluations_
    # Nothing of a single draw is kept.
    assert {v.dims: v.size for v in sampler.sample_stats_.values()} == {("chain", "draw"): 0}


def test_it_is_shown_lp_and_shapes_of_the_target():
    target = Ising.lattice(np.full((2, 3), 0.3), coupling=0.2)
    sampler = GibbsSampler("random", n_chains=3, n_burn_in=5, random_state=0).fit(target)
    draws = copy.copy(sampler).sample(60)
    spy = Spy()
    found = sampler.sample(60, record=spy)
    assert np.array_equal(found["y"], draws["x"])
    assert spy.call[1:] == (3, 60, 0, ("lp",))
    assert spy.call.target is target
    assert spy.told == ["init", "see", "after", "end None", "close", "result"]


@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 99), (60, 40), (0, 50)])
def test_two_calls_are_one(a, b):
    whole, parts = gibbs(), gibbs()
    memory = copy.copy(whole).sample(a + b)
    expected = whole.sample(a + b, record=Changes())["changes"]
    assert np.array_equal(expected, changes_of(memory))
    observer = Changes()  # has no memory of its own
    first, second = (parts.sample(n, record=observer)["changes"] for n in (a, b))
    between = changes_of(memory.isel(draw=slice(a - 1, a + 1))) if a else 0
    assert np.array_equal(first + between + second, expected)
    assert np.array_equal(parts.state_, whole.state_)


@pytest.mark.usefixtures("ctrl_c")
def test_after_a_ctrl_c_the_result_is_of_the_draws_so_far():
    class Interrupted(Changes):
        def see(self, carry, chunk):
            signal.raise_signal(signal.SIGINT)
            return super().see(carry, chunk)

    sampler = gibbs()
    memory = copy.copy(sampler)
    with pytest.warns(InterruptedWarning, match="Interrupted: returning [0-9]+ of"):
        found = sampler.sample(10**6, thin=3, record=Interrupted())
    n = found.attrs["sampled_transitions"] // 3
    assert 0 < n < 10**6
    draws = memory.sample(n + 50, thin=3)
    assert np.array_equal(found["changes"], changes_of(draws.isel(draw=slice(n))))
    rest = sampler.sample(50, thin=3, record=Changes())
    assert np.array_equal(rest["changes"], changes_of(draws.isel(draw=slice(n, None))))


def test_an_error_closes_and_the_chains_go_on():
    class Broken(Spy):
        def see(self, carry, chunk):
            raise ZeroDivisionError("by an observer")

    sampler = gibbs()
    memory = copy.copy(sampler)
    broken = Broken()
    with pytest.raises(ZeroDivisionError, match="by an observer"):
        sampler.sample(10, record=broken)
    assert broken.told == ["init", "close"]
    assert np.array_equal(sampler.sample(10)["x"], memory.sample(20)["x"][:, 10:])


def test_rules_end_an_observed_run():
    def enough(run):
        return run.n_draws >= 100

    spy = Spy()
    found = gibbs().sample(10**7, record=spy, stop=enough)
    assert 100 <= found.sizes["draw"] < 10**7
    assert found.attrs["stopped_by"] == "enough"
    assert spy.told[-3:] == ["end enough", "close", "result"]


def test_after_is_told_between_draws():
    spy = Spy()
    gibbs().sample(2, thin=3000, record=spy)
    assert spy.told.count("see") == 2
    assert spy.told.count("after") > 2


def test_an_observer_says_how_much_it_takes_and_where():
    room = np.zeros((2, 50, 3), np.int8), np.zeros((2, 50, 1))

    class Roomy(Spy):
        def most(self, carry):
            return 7

        def room(self, carry, n):
            return *room, sum(chunk.x.shape[1] for chunk in carry)

    spy = Roomy()
    found = gibbs().sample(50, record=spy)
    assert spy.told.count("see") == 8
    draws = gibbs().sample(50)
    assert np.array_equal(room[0], draws["x"])
    assert np.array_equal(room[1][:, :, 0], draws["lp"])
    assert np.array_equal(found["y"], draws["x"])


def test_draws_in_memory_are_written_once():
    rooms = []

    class Kept(_observers.KeptDraws):
        def room(self, carry, n):
            rooms.append(super().room(carry, n))
            return rooms[-1]

    sampler = gibbs()
    sampler.sample(40)
    found = sampler.sample(50, record=Kept())
    assert np.shares_memory(found["x"].values, rooms[0][0])
    assert np.shares_memory(found["lp"].values, sampler.sample_stats_["lp"].values)
    assert found["draw"].values.tolist() == [*range(40, 90)]
    assert found.attrs == sampler.sample_stats_.attrs


def test_statistics_that_are_kept_are_those_of_the_sampler():
    class Rows(Spy):
        def stats(self, carry):
            lp = np.concatenate([chunk.lp for chunk in carry], axis=1)
            return xr.Dataset({"lp": (("chain", "draw"), lp)})

    sampler = gibbs()
    found = sampler.sample(20, record=Rows())
    assert np.array_equal(sampler.sample_stats_["lp"], gibbs().sample(20)["lp"])
    assert sampler.sample_stats_.attrs == found.attrs
    assert sampler.to_datatree(found)["posterior"]["y"].shape == (2, 20, 3)


def test_what_is_refused(tmp_path):
    sampler = gibbs()
    with pytest.raises(TypeError, match=r"record is <class .*Changes'>; .* an instance of a class"):
        sampler.sample(3, record=Changes)
    with pytest.raises(ValueError, match=r"record=<.*Changes .*> keeps no single draws to store"):
        sampler.sample(3, record=Changes(), store=tmp_path / "run.zarr")
    with pytest.raises(ValueError, match=r"record is <.*Changes .*>, which one sampler keeps"):
        sample_chains(sampler, 3, n_chains=2, record=Changes())
    assert sampler.run_.ensemble.counters.n_draws == 0

    class Wrong(Changes):
        def result(self, carry):
            return carry[1]

    with pytest.raises(TypeError, match=re.escape("it must be an xarray.Dataset")):
        sampler.sample(3, record=Wrong())


def test_draws_that_are_only_observed_are_told_of():
    sampler = gibbs()
    with pytest.warns(ShortRunWarning, match="fewer than the 3 of a sweep"):
        sampler.sample(1, record=Changes())

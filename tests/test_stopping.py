"""Stop rules: the same number of draws wherever they are made, and the same draws."""

import copy
import pickle
import threading
import time

import numpy as np
import pytest
from models import content, dense
from sklearn.exceptions import NotFittedError

from sklsb import (
    EliminationSampler,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
)
from sklsb.diagnostics.stopping import AllOf, EffectiveSampleSize, RHat, RunSoFar, Seconds

pytestmark = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")

TARGET = dense(6, scale=0.4)
EQUAL = [[0.9, 0.1], [0.1, 0.9]]
NETWORK = MarkovNetwork([2] * 8, [((i, i + 1), EQUAL) for i in range(7)] + [((0,), [0.3, 0.7])])
RULE = EffectiveSampleSize(150)


def chains(target=TARGET, sampler=GibbsSampler, **params):
    given = {"scan": "random"} if sampler is GibbsSampler else {}
    return sampler(**{"n_chains": 2, "random_state": 0} | given | params).fit(target)


def so_far(sampler):
    """The state of a run between two calls."""
    counters = sampler.run_.ensemble.counters
    total = counters.n_draws, counters.n_transitions
    return RunSoFar(TARGET, counters.tally, 0, 0.0, *total)


def by_number(n):
    """A rule of one's own, and the numbers of draws that it was asked at."""
    asked = []

    def rule(run):
        asked.append(run.total_draws)
        return run.total_draws >= n

    return rule, asked


def test_the_same_draws_however_they_are_made(monkeypatch, tmp_path):
    whole = chains().sample(4000, thin=3)
    first = chains().sample(4000, thin=3, stop=RULE)
    n = first.sizes["draw"]
    assert 200 < n < 2000
    assert first.attrs["stopped_by"] == repr(RULE)
    assert first.equals(whole.isel(draw=slice(0, n)))
    assert "stopped_by" not in whole.attrs
    monkeypatch.setattr("sklsb.ensembles.base.next_segment", lambda *_: 7)
    sampler = chains(n_jobs=2)
    assert sampler.sample(4000, thin=3, stop=[Seconds(900), RULE]).equals(first)
    # What there is is enough for the next call; without the rule it goes on.
    none = sampler.sample(4000, thin=3, stop=RULE)
    assert none.sizes["draw"] == 0
    assert none.attrs["stopped_by"] == repr(RULE)
    assert sampler.sample(50, thin=3).equals(whole.isel(draw=slice(n, n + 50)))
    means = chains().sample(4000, thin=3, stop=RULE, record={"m": lambda x: x.mean(axis=1)})
    assert means.sizes["draw"] == n
    moments = chains().sample(4000, thin=3, stop=RULE, record="moments")
    assert moments.attrs["n_draws"] == n
    np.testing.assert_allclose(moments["mean"], first["x"].mean(("chain", "draw")), atol=1e-12)


def test_a_stored_run_that_is_resumed_stops_there_too(tmp_path):
    pytest.importorskip("zarr")
    from sklsb import open_draws

    path = tmp_path / "run.zarr"
    first = chains().sample(4000, thin=3, stop=RULE)
    chains().sample(101, thin=3, store=path)
    sampler = GibbsSampler.resume(path, TARGET)
    sampler.sample(3899, thin=3, store=path, stop=RULE)
    found = open_draws(path)
    assert found.attrs["stopped_by"] == repr(RULE)
    assert found.load().equals(first)
    # The same script once more: nothing is added.
    again = GibbsSampler.resume(path, TARGET)
    assert again.sample(4000, thin=3, store=path, stop=RULE).sizes["draw"] == 0
    assert open_draws(path).attrs["stopped_by"] == repr(RULE)
    sampler.sample(1, thin=3, store=path)
    assert "stopped_by" not in open_draws(path).attrs


def test_a_rule_of_ones_own_is_asked_now_and_then():
    rule, asked = by_number(10**9)
    draws = chains().sample(20_000, stop=rule)
    assert draws.sizes["draw"] == 20_000
    assert draws.attrs["stopped_by"] == ""
    assert asked[:3] == [64, 128, 192]
    assert asked[-1] <= 20_000
    assert len(asked) < 60
    growth = np.diff(asked) / asked[:-1]
    assert growth[20:].max() < 0.11
    # However calls are divided.
    again, places = by_number(10**9)
    sampler = chains()
    for n in (1, 63, 5000, 14_936):
        sampler.sample(n, stop=again)
    assert [*dict.fromkeys(places)] == asked  # twice where a call ended at such a number
    rule, asked = by_number(100)
    assert chains().sample(500, stop=rule).attrs["stopped_by"] == "rule"
    assert asked == [64, 128]


def test_where_few_states_are_looked_at():
    """Draws of less than a quarter of a sweep: rules are asked when there are 64 more looks."""
    target = Ising(np.zeros((40, 40)))
    rule, asked = by_number(10**9)
    chains(target, n_burn_in=5).sample(2000, thin=4, stop=rule)
    assert asked[:2] == [192, 384]


def test_what_a_rule_sees():
    sampler = chains()
    sampler.sample(100)

    def rule(run):
        table = run.disagreement
        assert (run.n_draws, run.total_draws, run.n_transitions) == (28, 128, 128)
        assert run.seconds > 0
        assert run.ess == min(float(table["ess"].min()), float(table["ess_lp"]))
        assert run.r_hat == max(float(table["r_hat"].max()), float(table["r_hat_lp"]))
        assert table.attrs["n_draws"] == 128
        assert run.n_frozen == np.isnan(table["ess"]).sum()
        return True

    assert sampler.sample(500, stop=rule).sizes["draw"] == 28
    few = so_far(chains())
    assert few.disagreement is None
    assert np.isnan([few.ess, few.r_hat]).all()
    assert not EffectiveSampleSize(1)(few)
    assert not RHat(2)(few)


def test_a_large_effective_size_of_log_p_can_be_reached():
    rng = np.random.default_rng(0)
    tally = chains().run_.ensemble.counters.tally
    x = rng.choice([-1, 1], size=(2, 40_000, 6)).astype(np.int8)
    lp = rng.normal(-1e6, 10.0, (2, 40_000))
    other = copy.deepcopy(tally)
    tally.add(x, lp, 3)
    assert 0.6 < tally.of_lp().ess / 80_000 < 1.7
    at = 0
    while at < 40_000:
        n = int(rng.integers(0, 900))
        other.add(x[:, at : at + n], lp[:, at : at + n], 3)
        at += n
    assert content(other) == content(tally)


def test_the_effective_size_falls_where_chains_disagree():
    """Draws of two modes are worth as much as there are chains, however fast each of them is."""
    tied = Ising([[0.0, 9.0, 0.0], [9.0, 0.0, 0.0], [0.0, 0.0, 0.0]], [0.0, 0.0, 0.3])
    sampler = GibbsSampler("random", n_chains=4, n_burn_in=10, random_state=0)
    sampler.fit(tied, initial_states=np.repeat([[1, 1, 1], [-1, -1, -1]], 2, axis=0))
    draws = sampler.sample(2000, thin=9, stop=EffectiveSampleSize(500, ignore_frozen=True))
    assert draws.attrs["stopped_by"] == ""


def test_variables_that_never_change():
    stuck = Ising(np.zeros((3, 3)), [0.0, 0.0, 700.0])
    rule = EffectiveSampleSize(100)
    sampler = chains(stuck, n_burn_in=100)
    assert sampler.sample(500, stop=rule).attrs["stopped_by"] == ""
    rule = EffectiveSampleSize(100, ignore_frozen=True)
    assert sampler.sample(500, stop=rule).attrs["stopped_by"] == repr(rule)
    nothing = chains(TARGET.condition({k: 1 for k in range(6)}))
    assert nothing.sample(100, stop=rule).sizes["draw"] == 100


def test_seconds():
    whole = chains().sample(2000)
    draws = chains().sample(10**8, stop=Seconds(0.2), record={"m": lambda x: x[:, 0]})
    assert draws.attrs["stopped_by"] == "Seconds(seconds=0.2)"
    n = min(2000, draws.sizes["draw"])
    assert n > 0
    assert np.array_equal(draws["m"][:, :n], whole["x"][:, :n, 0])


def test_several_rules():
    never, _ = by_number(10**9)
    late, _ = by_number(300)
    early, _ = by_number(100)
    draws = chains().sample(1000, stop=AllOf(early, late, RHat(9.0)))
    assert draws.sizes["draw"] == 320
    assert draws.attrs["stopped_by"] == "AllOf(rule, rule, RHat(below=9.0))"
    assert chains().sample(1000, stop=(never, early)).sizes["draw"] == 128


@pytest.mark.parametrize("sampler", [EliminationSampler(max_memory=2**11), LSBSampler(blocks=10)])
def test_redraws_that_are_made_ahead(sampler):
    sampler = sampler.set_params(n_chains=2, random_state=0).fit(NETWORK)
    other = sampler.__copy__()
    first = sampler.sample(2000, stop=RULE)
    assert first.sizes["draw"] < 2000
    assert first.equals(other.sample(first.sizes["draw"]))


def test_what_is_refused():
    sampler = chains(n_burn_in=5)
    for stop in (400, EffectiveSampleSize, [Seconds(1), "ess"]):
        with pytest.raises(TypeError, match=r"give a rule of sklsb\.diagnostics, such as Eff"):
            sampler.sample(10, stop=stop)
    with pytest.raises(TypeError, match="The stop rule <lambda> returned None; it must return"):
        sampler.sample(100, stop=lambda run: None)
    with pytest.raises(ValueError, match="AllOf has no rules"):
        AllOf()
    with pytest.raises(ValueError, match="at_least is 0; it must be above 0"):
        EffectiveSampleSize(0)
    with pytest.raises(ValueError, match=r"below is 0\.9; it must be above 1\."):
        RHat(0.9)
    with pytest.raises(TypeError, match="seconds is '60'; give a number above 0"):
        Seconds("60")


@pytest.mark.parametrize("sampler", [GibbsSampler, ParallelTempering])
def test_a_run_is_looked_at_from_another_thread(sampler, monkeypatch):
    monkeypatch.setattr("sklsb.ensembles.base.next_segment", lambda *_: 5)
    settings = {"n_burn_in": 64, "n_chains": 2}
    made, alone = chains(sampler=sampler, **settings), chains(sampler=sampler, **settings)
    with pytest.raises(RuntimeError, match="No draws are being made; call inspect while sample"):
        made.inspect()
    with pytest.raises(NotFittedError):
        GibbsSampler().inspect()
    made.sample(10)
    seen, enough, found = threading.Event(), threading.Event(), []

    def rule(run):
        if run.n_draws > 200:
            seen.set()
        return enough.is_set()

    rule.any_time = True
    thread = threading.Thread(target=lambda: found.append(made.sample(10**6, stop=rule)))
    thread.start()
    assert seen.wait(60)
    looks = [made.inspect()]
    while len(looks) < 30 or looks[-1].n_draws < looks[0].n_draws + 100:
        time.sleep(0.002)
        looks.append(made.inspect())
    pickle.dumps(made)
    enough.set()
    thread.join()
    n = found[0].sizes["draw"]
    for run in looks:
        assert 200 < run.n_draws <= n
        assert run.requested_draws == 10**6
        assert run.total_draws == run.n_transitions == run.n_draws + 10
        assert run._tally.n_draws == run.total_draws  # nothing half done
        assert run.draws_per_second == run.n_draws / run.seconds > 0
    assert np.diff([run.n_draws for run in looks]).min() >= 0
    text = repr(looks[0])
    assert text.startswith(f"<RunSoFar: {looks[0].n_draws:,} of 1,000,000 draws per chain in ")
    assert text.endswith(f"R-hat {looks[0].r_hat:.3f}, ESS {looks[0].ess:.0f}>")
    with pytest.raises(RuntimeError, match="No draws"):
        made.inspect()
    # What was seen is what a run of that length has, and looking changed no draw.
    alone.sample(10)
    assert alone.sample(n).equals(found[0])
    last = looks[-1]
    again = chains(sampler=sampler, **settings)
    again.sample(last.total_draws)
    then = so_far(again)
    assert (then.r_hat, then.ess) == (last.r_hat, last.ess)


def test_there_is_nothing_to_see_of_a_call_that_failed():
    def fail(x):
        raise ZeroDivisionError

    sampler = chains()
    with pytest.raises(ZeroDivisionError):
        sampler.sample(10, record={"f": fail})
    with pytest.raises(RuntimeError, match="No draws"):
        sampler.inspect()
    few = so_far(sampler)
    assert repr(few) == "<RunSoFar: 0 of 0 draws per chain in 0 s, nan per second>"

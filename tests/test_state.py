"""One state of a chain: copies and interrupted runs go on bit for bit, whatever the rule."""

import copy
import pickle
import warnings
from contextlib import contextmanager

import exact_matrices  # noqa: F401 - formulas of the rules
import numpy as np
import pytest
from models import content, dense

import sklsb
from sklsb import ClusterSampler, GibbsSampler, HammingBallSampler, Ising, LSBSampler, testing
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.mixture import Mixture
from sklsb._kernels.run import Drawing
from sklsb.balancing import Barker, Max
from sklsb.ensembles.base import Counters
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.state import ChainState
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.matrices import rule_of
from sklsb.exceptions import InterruptedWarning, SamplerWarning
from sklsb.extending import Algorithm, FixedRuleSampler
from sklsb.samplers._run import run as _run

TARGET = dense(6, scale=0.4)
# Log weights fall from a random state, by less than would move the offset.
STEEP = Ising(np.zeros((8, 8)), 60.0 * np.random.default_rng(0).choice([-1.0, -0.5, 0.5, 1.0], 8))


def block(target):
    return rule_of(GibbsSampler(block_size=2), target)


class Moves(FixedRuleSampler):
    """Moves chains by a rule that is called by its name."""

    def __init__(
        self,
        name="mixture",
        *,
        n_chains=3,
        n_burn_in=20,
        n_jobs=None,
        random_state=0,
        verbose=0,
        warm_start=False,
        keep_burn_in=False,
    ):
        self.name = name
        self.n_chains = n_chains
        self.n_burn_in = n_burn_in
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.keep_burn_in = keep_burn_in

    def make_rule(self, target):
        single = Balanced(Barker().table(), 0.1)
        inner = Mixture.of(single, block(target), 0.5)
        nested = Mixture.of(block(target), inner, 0.7)
        return {"single": single, "mixture": inner, "nested": nested}[self.name]


SAMPLERS = {
    "random": GibbsSampler(block_size=2),
    "chromatic": GibbsSampler("chromatic"),
    "ball": HammingBallSampler(3),
    "clusters": ClusterSampler(),
    "balanced": LSBSampler("barker"),
    "single": Moves("single"),
    "mixture": Moves("mixture"),
    "nested": Moves("nested"),
}
each_sampler = pytest.mark.parametrize("name", SAMPLERS)
FORKS = {
    "pickle": lambda sampler: pickle.loads(pickle.dumps(sampler)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
each_fork = pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)


def fitted(name, target=TARGET, **params):
    params = {"n_chains": 3, "n_burn_in": 20, "random_state": 0} | params
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return copy.deepcopy(SAMPLERS[name]).set_params(**params).fit(target)


def quietly(sampler, *args, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return sampler.sample(*args, **settings)


def draws(sampler, *args, **settings):
    """What a call of sample gives, as bytes."""
    x = quietly(sampler, *args, **settings)["x"].values
    stats = sampler.sample_stats_.to_array().values
    return x.tobytes(), stats.tobytes(), sampler.n_evaluations_


def everything(state):
    parts = {name: values.tobytes() for name, values in state.arrays.items()}
    rngs = [rng.bit_generator.state for rng in state.streams.chain]
    return state.x.tobytes(), parts, content(state.counters), str(rngs), pickle.dumps(state.rule)


@pytest.mark.parametrize("name", ["mixture", "nested"])
def test_samplers_of_mixtures(name):
    testing.check_sampler(Moves(name), dense(2), n_draws=30)


# ----------------------------------------------------------------- copies


@each_fork
@each_sampler
def test_a_copy_goes_on_bit_for_bit(name, fork):
    sampler = fitted(name)
    quietly(sampler, 7, thin=3)
    other = fork(sampler)
    assert everything(other.run_.ensemble.state()) == everything(sampler.run_.ensemble.state())
    wanted = draws(sampler, 30, thin=2), draws(sampler, 11)
    again = fork(other)
    assert (draws(other, 30, thin=2), draws(other, 11)) == wanted
    # The first copy did not move the second.
    assert (draws(again, 30, thin=2), draws(again, 11)) == wanted


@each_fork
@each_sampler
def test_a_copy_that_starts_warm(name, fork):
    sampler = fitted(name, warm_start=True)
    quietly(sampler, 5)
    other = fork(sampler)
    for one in (sampler, other):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplerWarning)
            one.set_params(n_burn_in=30).fit(TARGET)
    np.testing.assert_array_equal(sampler.state_, other.state_)
    assert draws(other, 20) == draws(sampler, 20)


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "balanced"])
def test_a_warm_start_is_a_longer_burn_in(name):
    parts = fitted(name, warm_start=True, n_burn_in=13)
    parts.set_params(n_burn_in=29).fit(TARGET)
    whole = fitted(name, n_burn_in=42)
    np.testing.assert_array_equal(parts.state_, whole.state_)
    np.testing.assert_array_equal(quietly(parts, 20)["x"], quietly(whole, 20)["x"])


def test_a_failed_warm_start_leaves_all_as_it_was():
    for name in ("random", "mixture"):
        sampler = fitted(name, warm_start=True)
        before = everything(sampler.run_.ensemble.state())
        with pytest.raises(ValueError, match="initial_states has shape"):
            sampler.fit(TARGET, initial_states=np.ones((2, 6)))
        with pytest.raises(ValueError, match=r"continues chains of shape \(3, 6\)"):
            sampler.set_params(n_chains=4).fit(TARGET)
        assert everything(sampler.run_.ensemble.state()) == before


def ensemble(rule, target=TARGET, n=3, seed=0):
    rngs = spawn(seed, n)
    x = np.stack([target.draw_state(rng) for rng in rngs])
    made = Ensemble(target, x, rngs, rule=rule)
    made.start(rule)
    return made


def moved_on(chains, n):
    d = chains.chains.x.shape[1]
    x = np.empty((len(chains), n, d), dtype=chains.target.dtype)
    stats = np.empty((len(chains), n, len(chains.rule.facts.stat_names)))
    chains.run(n, Drawing(1), (x, stats))
    return x.tobytes(), stats.tobytes()


def test_offsets_and_who_moved_last_are_carried():
    """What a fresh start would choose is another offset: only a copy of it goes on."""
    single = Balanced(Max().table())
    rule = Mixture.of(block(STEEP), Mixture.of(single, block(STEEP), 0.1), 0.9)
    names = {"last", "second.last", "second.first.offset"}
    assert set(rule.facts.carried) == names
    differ = 0
    for seed in range(20):
        chains = ensemble(rule, STEEP, seed=seed)
        moved_on(chains, 1 + seed)
        state = chains.state()
        assert names < set(state.arrays)
        assert all(state.arrays[name].shape == (3, 1) for name in names)
        assert np.isin(state.arrays["last"], (0, 1)).all()
        other = pickle.loads(pickle.dumps(chains))
        assert everything(other.state()) == everything(state)
        kept = everything(state)
        wanted = moved_on(chains, 50)
        assert everything(state) == kept  # it does not follow the chains
        assert moved_on(other, 50) == wanted
        made = object.__new__(Ensemble)
        made.__setstate__({"target": STEEP, "n_jobs": 1, "state": state})
        assert moved_on(made, 50) == wanted
        assert everything(state) == kept
        fresh = Ensemble(STEEP, state.x, spawn(0, 3), rule=single)
        fresh.start(single)
        by_single = (state.arrays["last"] == 1) & (state.arrays["second.last"] == 0)
        offset = state.arrays["second.first.offset"]
        differ += int((by_single & (offset != fresh.chains.part.offset)).sum())
    assert differ > 5


def test_what_is_kept_equals_a_rebuild():
    for rule in (
        Moves("mixture").make_rule(TARGET),
        Moves("nested").make_rule(TARGET),
        block(TARGET),
    ):
        chains = ensemble(rule)
        for n in (1, 2, 3, 50):
            moved_on(chains, n)
            testing._probe.check_caches(chains, f"after {n}")
            testing._probe.check_caches(chains.copy(), "in a copy")


def test_what_a_state_holds():
    sampler = fitted("nested")
    quietly(sampler, 4, thin=3)
    state = sampler.run_.ensemble.state()
    assert isinstance(state, ChainState)
    tally = state.counters.tally
    wanted = Counters(Drawing(3, at=4), n_transitions=12, tally=tally)
    assert content(state.counters) == content(wanted)
    assert tally.n_draws == 4
    common = {"moved", "evaluations", "acceptance", "refusable"}
    assert set(state.arrays) == common | {"last", "second.last", "second.first.offset"}
    assert set(fitted("chromatic").run_.ensemble.state().arrays) == common
    assert len(pickle.dumps(state)) < 20_000 + 2 * len(pickle.dumps(state.rule))
    other = copy.deepcopy(state)
    other.x[:] = 0
    other.arrays["last"][:] = 7
    other.counters.begin()
    other.streams.chain[0].random(3)
    assert everything(state) == everything(sampler.run_.ensemble.state())


def test_n_jobs_and_evaluations_survive():
    sampler = fitted("mixture", n_jobs=2)
    other = pickle.loads(pickle.dumps(sampler))
    assert other.run_.ensemble.n_jobs == 2
    assert other.n_evaluations_ == sampler.n_evaluations_ > 0
    one = fitted("mixture")
    assert draws(one, 40) == draws(other, 40) == draws(sampler, 40)


@each_sampler
def test_any_division_into_calls_and_segments(name, monkeypatch):
    whole = fitted(name)
    parts = fitted(name)
    x = quietly(whole, 60, thin=2)["x"].values
    monkeypatch.setattr("sklsb.ensembles.base.FIRST_SEGMENT", 1)
    found = [quietly(parts, n, thin=2)["x"].values for n in (1, 0, 30, 29)]
    np.testing.assert_array_equal(np.concatenate(found, axis=1), x)
    assert everything(parts.run_.ensemble.state())[3] == everything(whole.run_.ensemble.state())[3]


def test_segments_are_bounded_by_numbers(monkeypatch):
    """A sweep takes as many numbers as there are variables."""
    wanted = draws(fitted("chromatic"), 100)
    sizes = []
    real = Streams.numbers

    def watched(self, rule, c, n, **given):
        sizes.append(n * rule.facts.n_uniforms)
        return real(self, rule, c, n, **given)

    monkeypatch.setattr("sklsb.ensembles.base.MOST_NUMBERS", 30)
    monkeypatch.setattr(Streams, "numbers", watched)
    assert draws(fitted("chromatic"), 100) == wanted
    assert max(sizes) == 30


# ----------------------------------------------------------------- in the middle of a draw


@contextmanager
def interrupted_after(monkeypatch, n_segments, size):
    """A Ctrl-C that comes in a segment; all chains finish it."""
    looks = []

    @contextmanager
    def deferred():
        yield lambda: looks.append(1) or len(looks) >= n_segments

    with monkeypatch.context() as patch:
        patch.setattr(_run, "deferred_interrupt", deferred)
        patch.setattr("sklsb.ensembles.base.FIRST_SEGMENT", size)
        patch.setattr("sklsb.ensembles.base.next_segment", lambda *_: size)
        yield


@each_sampler
def test_the_rest_of_a_draw_is_made_by_whoever_goes_on(name, monkeypatch):
    whole = fitted(name)
    sampler = fitted(name)
    wanted = quietly(whole, 12, thin=5)
    acceptance = whole.sample_stats_.to_array().values
    with interrupted_after(monkeypatch, 2, 9), pytest.warns(SamplerWarning) as told:
        first = sampler.sample(12, thin=5)
    assert told[0].category is InterruptedWarning
    assert "returning 3 of 12 draws per chain" in str(told[0].message)
    np.testing.assert_array_equal(first["x"], wanted["x"][:, :3])
    counters = sampler.run_.ensemble.counters
    assert counters.drawing == (5, 3, 3)  # of 5 transitions 3 are made, after 3 draws
    copies = [fork(sampler) for fork in FORKS.values()]
    other = copy.copy(sampler)
    for one in (sampler, *copies):
        rest = quietly(one, 9, thin=5)
        np.testing.assert_array_equal(rest["x"], wanted["x"][:, 3:])
        stats = one.sample_stats_.to_array().values
        np.testing.assert_array_equal(stats, acceptance[:, :, 3:])
        assert content(one.run_.ensemble.counters) == content(whole.run_.ensemble.counters)
    # Another distance begins a draw anew.
    x = quietly(other, 3, thin=4)["x"].values
    reference = fitted(name)
    steps = quietly(reference, 30)["x"].values
    np.testing.assert_array_equal(x, steps[:, [21, 25, 29]])


def test_a_second_interrupt_before_the_draw_is_finished(monkeypatch):
    whole, sampler = fitted("nested"), fitted("nested")
    wanted = quietly(whole, 4, thin=50)["x"].values
    found = []
    for _ in range(4):
        with interrupted_after(monkeypatch, 1, 20), warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplerWarning)
            found.append(sampler.sample(4, thin=50)["x"].values)
        sampler = copy.copy(sampler)
    found.append(quietly(sampler, 3, thin=50)["x"].values)
    assert [part.shape[1] for part in found] == [0, 0, 1, 0, 3]
    np.testing.assert_array_equal(np.concatenate(found, axis=1), wanted)


def test_record_in_the_middle_of_a_draw(monkeypatch):
    whole, sampler = fitted("mixture"), fitted("mixture")
    wanted = quietly(whole, 12, thin=5)["x"].values.sum(axis=2)
    record = {"total": lambda x: x.sum(axis=1)}
    with interrupted_after(monkeypatch, 2, 9), warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        first = sampler.sample(12, thin=5, record=record)["total"].values
    rest = quietly(sampler, 9, thin=5, record=record)["total"].values
    np.testing.assert_array_equal(np.concatenate([first, rest], axis=1), wanted)


# ----------------------------------------------------------------- runs


@pytest.mark.parametrize("name", ["chromatic", "balanced", "nested"])
def test_the_state_of_a_run_is_kept_by_itself(name):
    sampler = fitted(name)
    state = pickle.loads(pickle.dumps(sampler.run_.ensemble.state()))
    np.testing.assert_array_equal(state.x, sampler.state_)
    before = sampler.run_.ensemble.streams.copy().chain[0].random(3)
    np.testing.assert_array_equal(state.streams.copy().chain[0].random(3), before)
    quietly(sampler, 20)
    assert not np.array_equal(sampler.run_.ensemble.state().streams.chain[0].random(3), before)
    np.testing.assert_array_equal(state.streams.chain[0].random(3), before)


CLASSES = [getattr(sklsb, name) for name in sklsb.__all__ if name.endswith("Sampler")]


@pytest.mark.parametrize("cls", [*CLASSES, sklsb.ParallelTempering], ids=lambda cls: cls.__name__)
def test_what_authors_of_samplers_write_does_not_show_on_samplers(cls):
    names = [name for name in dir(cls) if not name.startswith("__")]
    hooks = {name for name in vars(Algorithm) if not name.startswith("_")} - {"fit"}
    assert not hooks & {*names}
    public = {name for name in names if not name.startswith("_")}
    assert len(public - {*cls._get_param_names()}) <= 28
    assert len(names) - len(public) <= 30


def test_a_copy_of_a_winner_that_was_fitted_again():
    auto = sklsb.AutoSampler(n_burn_in=20, n_chains=2, random_state=0).fit(TARGET)
    other = dense(3)
    auto.sampler_.fit(other)
    made = copy.copy(auto)
    assert made.sampler_.target_ is other
    assert made.sampler_.state_.shape == (2, 3)
    assert made.state_.shape == (2, 6)


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
def test_the_winners_burn_in_is_not_that_of_the_race():
    auto = sklsb.AutoSampler(n_burn_in=20, n_chains=2, random_state=0).fit(TARGET)
    wanted = sklsb.sample_chains(copy.copy(auto), 12, n_chains=2)
    auto.sampler_.set_params(n_burn_in=3)
    quietly(auto.sampler_, 1)
    found = sklsb.sample_chains(auto, 12, n_chains=2)
    assert found.attrs["n_burn_in"] == wanted.attrs["n_burn_in"]
    np.testing.assert_array_equal(found["x"], wanted["x"])


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
@pytest.mark.parametrize(
    "seed", [lambda: np.random.default_rng(0), lambda: np.random.SeedSequence(5)]
)
def test_chains_in_a_store_go_on_whatever_became_of_the_seed(seed, tmp_path):
    pytest.importorskip("zarr")
    given = seed()
    sampler = GibbsSampler("random", n_burn_in=5, random_state=given).fit(TARGET)
    first = sklsb.sample_chains(sampler, 12, n_chains=2, store=tmp_path / "run").load()
    if isinstance(given, np.random.Generator):
        given.random()
    else:
        given.spawn(1)
    sampler.set_params(n_burn_in=9)
    again = sklsb.sample_chains(sampler, 24, n_chains=2, n_burn_in=5, store=tmp_path / "run")
    np.testing.assert_array_equal(again["x"][:, :12], first["x"])


def test_the_rule_of_a_fit_stays():
    sampler = HammingBallSampler(3, n_burn_in=5, random_state=0).fit(TARGET)
    wanted = rule_of(sampler, TARGET)
    sampler.set_params(block_size=2)
    assert rule_of(sampler, TARGET) is wanted
    assert rule_of(sampler, dense(4)).block_size == 2


def test_independent_draws_go_on_given_other_evidence():
    sampler = sklsb.EliminationSampler(n_chains=2, random_state=0, warm_start=True)
    sampler.fit(TARGET.condition({0: 1}))
    sampler.fit(TARGET.condition({0: -1}))
    assert (sampler.sample(20)["x"][:, :, 0] == -1).all()


def test_settings_are_those_of_the_call():
    sampler = fitted("chromatic")
    sampler.set_params(n_jobs=2)
    assert quietly(sampler, 5).attrs["n_jobs"] == "2"


def test_a_warning_that_is_an_error_leaves_no_fit():
    flat = Ising(np.zeros((4, 4)))
    sampler = LSBSampler("max", n_burn_in=200, blocks=None, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", sklsb.exceptions.PeriodicChainWarning)
        with pytest.raises(sklsb.exceptions.PeriodicChainWarning):
            sampler.fit(flat)
    assert not hasattr(sampler, "target_")

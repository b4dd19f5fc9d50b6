"""AutoSampler: draws are exact whoever wins, the choice is the seed's, doubts are told."""

import copy
import importlib
import pickle
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from models import chain_network, dense, mixture_of_products
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import sklsb.samplers.auto as auto
from sklsb import (
    RBM,
    AutoSampler,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    Potts,
    VariableSelection,
    exact,
    open_draws,
    sample_chains,
)
from sklsb._kernels.rules.gibbs import Systematic
from sklsb.diagnostics import marginals
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exceptions import (
    SamplerWarning,
    SeparatedModesWarning,
    ShortRunWarning,
    StoreError,
)
from sklsb.samplers.challengers import challengers
from sklsb.trials import prices
from sklsb.trials.contest import Contest
from sklsb.trials.prices import work_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.ShortRunWarning"),
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning"),
]


def selection(n_columns, seed=5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, n_columns))
    return VariableSelection(x, x[:, :2].sum(axis=1) + rng.normal(size=40))


def total(x):
    return 0.2 * x.sum(axis=-1) + 0.3 * x[..., 0] * x[..., 1]


def machine(n_visible, n_hidden, scale):
    weights = scale * np.random.default_rng(1).normal(size=(n_visible, n_hidden))
    return RBM(weights, np.linspace(-1.0, 1.0, n_visible))


def held():
    """A lattice in which fields hold all but five spins."""
    rng = np.random.default_rng(3)
    field = rng.choice([-9.0, 9.0], (26, 26))
    field[::6, 3] = 0.0
    return Ising.lattice(field, coupling=0.1)


def dimers():
    couplings = np.zeros((40, 40))
    even = np.arange(0, 40, 2)
    # Not all equal: of one coupling and one neighbour everywhere no other test compiles kernels.
    couplings[even, even + 1] = couplings[even + 1, even] = np.linspace(1.9, 2.1, 20)
    return Ising(couplings)


DIMERS = dimers()
EXACT = {
    "ising": Ising.lattice(np.random.default_rng(0).normal(scale=0.5, size=(3, 4)), coupling=0.3),
    "network": chain_network(),
    "zeros": MarkovNetwork([2, 2, 2], [((0, 1), np.eye(2)), ((1, 2), np.eye(2)), ((0,), [1, 2])]),
    "machine": machine(9, 4, 1.0),
    "selection": selection(8),
    "function": FunctionTarget(total, 6),
    "evidence": Ising.lattice(np.linspace(-1.0, 1.0, 12).reshape(3, 4), 0.4).condition(
        {1: 1, 6: -1}
    ),
}
_FITTED = {}


def fitted(target, **params):
    key = id(target), *sorted(params.items())
    if key not in _FITTED:
        _FITTED[key] = AutoSampler(**{"random_state": 0} | params).fit(target)
    return copy.copy(_FITTED[key])


@cache
def plainly_fitted(name):
    return LSBSampler(random_state=0).fit({"lattice": LATTICE, "held": HELD}[name])


# A race compiles the transitions of all that compete. Models with evidence, and selections, are in
# the commit tier with one sampler after another.
SLOW = ("selection", "evidence")


@pytest.mark.parametrize(
    "name", [pytest.param(k, marks=pytest.mark.slow if k in SLOW else ()) for k in EXACT]
)
def test_draws_are_exact(name):
    target = EXACT[name]
    # Learning on a function of the user takes seconds, and so do draws.
    short, n = ({"n_burn_in": 100}, 1000) if name == "function" else ({}, 4000)
    draws = fitted(target, **short).sample(n, thin="auto")
    x = exact.states(target)
    p = exact.probabilities(target)
    truth = np.stack([(p[:, None] * (x == v)).sum(axis=0) for v in target.values], axis=-1)
    found = marginals(draws, target)
    off = np.abs(found["p"].values.reshape(truth.shape) - truth)
    error = np.nan_to_num(found["mcse"].values.reshape(truth.shape))
    assert (off <= 5.0 * error + 1e-3).all()


# ----------------------------------------------------------------- who wins


def test_elimination_wins_where_it_is_cheap():
    sampler = fitted(DIMERS)
    assert isinstance(sampler.sampler_, EliminationSampler)
    assert sampler.candidates_.attrs["chosen"] == "elimination"
    assert sampler.thin_ == 1
    assert sampler.why_.startswith("EliminationSampler (elimination) makes ")
    # Independent draws, whatever candidates that have not converged say of the variances.
    assert sampler.candidates_["ess_per_step"].sel(candidate="elimination") == 1.0


def test_independent_draws_are_priced_by_variables_and_tables():
    """Where tables are few, what is done for each variable takes most."""
    pairs = np.kron(np.eye(50), [[0.0, 0.5], [0.5, 0.0]])
    rates = []
    for target in (Ising(pairs), Ising(pairs[:50, :50])):
        chains = EliminationSampler(n_chains=1, random_state=0).fit(target).run_.ensemble
        elimination, n = chains.elimination, target.n_sites
        assert elimination.entries_per_draw == 2 * n  # a table and a message in each pair
        assert elimination.work_per_draw == 8 * n
        contest = Contest({"elimination": chains}, 1e6)
        rates.append(contest.entrants["elimination"]._of_redraw)
    assert rates[0] == pytest.approx(2 * rates[1])
    assert 500 < rates[0] < 3000  # nanoseconds


def test_layers_win_on_a_machine():
    sampler = fitted(machine(100, 20, 0.3))
    assert sampler.sampler_.get_params()["scan"] == "layers"


LATTICE = Ising.lattice(np.random.default_rng(2).normal(size=(26, 26)), coupling=0.15)


def test_sweeps_by_colour_win_on_a_lattice():
    sampler = fitted(LATTICE)
    assert sampler.sampler_.get_params()["scan"] == "chromatic"
    table = sampler.candidates_
    assert "elimination" not in table["candidate"]
    ess = table["ess_per_work"]
    assert ess.sel(candidate="chromatic") > 2 * ess.sel(candidate="lsb")
    assert table["in_last_round"].sel(candidate="chromatic")


def test_locally_balanced_steps_win_where_few_variables_move():
    sampler = fitted(HELD)
    assert type(sampler.sampler_) is LSBSampler
    plain = copy.copy(plainly_fitted("held"))
    np.testing.assert_array_equal(sampler.state_, plain.state_)
    np.testing.assert_array_equal(sampler.sample(50)["x"], plain.sample(50)["x"])


HELD = held()


def test_nothing_is_learned_where_the_winner_is_clear():
    clear, close = fitted(LATTICE), fitted(HELD)
    plain = [plainly_fitted(name) for name in ("lattice", "held")]
    assert clear.n_evaluations_ < 0.3 * plain[0].n_evaluations_
    assert close.n_evaluations_ > plain[1].n_evaluations_
    assert close.sampler_.balancing == "learned"
    # With a burn-in of that length, learning is asked for.
    asked = AutoSampler(n_burn_in=300, random_state=0).fit(LATTICE)
    assert asked.n_evaluations_ > 300 * 4 * LATTICE.n_sites


def test_no_winner_is_clear_where_chains_disagree():
    x = np.where(np.arange(4)[:, None] % 2, 1, -1) * np.ones((4, 40), int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        sampler = AutoSampler(random_state=0).fit(magnet(), initial_states=x)
        plain = LSBSampler(random_state=0).fit(magnet(), initial_states=x)
    assert sampler.n_evaluations_ > plain.n_evaluations_


def test_who_competes():
    def names(target):
        return [name for name, _ in challengers(target)]

    assert names(EXACT["machine"]) == ["layers", "systematic", "blocks"]
    assert names(LATTICE) == ["chromatic", "clusters"]
    assert names(dense(60)) == ["systematic", "blocks"]
    assert names(Potts.lattice(np.zeros((3, 3, 5)), -0.5)) == ["chromatic"]
    assert names(EXACT["zeros"]) == []
    assert names(EXACT["function"]) == ["systematic"]


@pytest.mark.parametrize("evidence", [{}, pytest.param({0: 1}, marks=pytest.mark.slow)])
def test_exact_ratios_compete_with_first_order_steps_on_torch(evidence):
    torch = pytest.importorskip("torch")
    from sklsb import TorchTarget

    calls = []

    def total(x):
        calls.append(len(x))
        return 0.3 * x.to(torch.float64).sum(dim=-1)

    target = TorchTarget(total, 12).condition(evidence)
    assert [name for name, _ in challengers(target)] == ["exact ratios"]
    sampler = AutoSampler(n_burn_in=200, random_state=0).fit(target)
    assert len(calls) < 10_000  # 40,000 where exact ratios were learned from
    assert np.isfinite(sampler.candidates_["ess_per_work"]).all()
    assert list(sampler.candidates_["candidate"].values) == ["lsb", "exact ratios"]
    assert sampler.candidates_.attrs["chosen"] == "lsb"
    assert sampler.sampler_.fast
    found = marginals(sampler.sample(2000, thin=3), target)["p"].sel(state=1)[len(evidence) :]
    assert np.abs(found - 1.0 / (1.0 + np.exp(-0.3))).max() < 0.05


def test_a_first_order_step_of_all_chains_is_one_call():
    pytest.importorskip("torch")
    from sklsb import TorchTarget

    target = TorchTarget(lambda x: x.sum(dim=-1), 5)
    work = {}
    for fast in (False, True):
        for n in (1, 8):
            sampler = LSBSampler("barker", fast=fast, n_chains=n, n_burn_in=0, random_state=0)
            chains = sampler.fit(target).run_.ensemble
            work[fast, n] = work_of(100, 100 * n * (1 if fast else 5), chains)
    assert work[False, 8] == 8 * work[False, 1]
    assert work[True, 1] < work[True, 8] < 1.2 * work[True, 1]


@pytest.mark.parametrize("target", [DIMERS, dense(60, scale=0.05)], ids=["factors", "dense"])
def test_no_race_after_no_burn_in(target):
    sampler = AutoSampler(n_burn_in=0, random_state=0).fit(target)
    chosen = sampler.candidates_.attrs["chosen"]
    assert chosen == ("lsb" if target.n_sites == 60 else "elimination")
    assert ("too short for a race" if chosen == "lsb" else "no race") in sampler.why_
    assert sampler.candidates_["ess_per_work"].isnull().all()


def test_nothing_to_sample():
    sampler = AutoSampler(random_state=0).fit(Ising(np.zeros((0, 0))))
    assert sampler.sample(3).sizes["site"] == 0


# ----------------------------------------------------------------- the seed's choice


SMALL = machine(30, 10, 0.4)


def test_same_seed_same_bits_for_any_n_jobs():
    settings = {"random_state": 7, "n_chains": 3}
    one, two = fitted(SMALL, **settings), AutoSampler(n_jobs=2, **settings).fit(SMALL)
    assert one.candidates_.identical(two.candidates_)
    assert one.why_ == two.why_
    assert one.n_evaluations_ == two.n_evaluations_
    whole = one.sample(60, thin=2)
    np.testing.assert_array_equal(
        whole["x"], np.concatenate([two.sample(25, thin=2)["x"], two.sample(35, thin=2)["x"]], 1)
    )


def test_the_clock_is_not_asked(monkeypatch):
    settings = {"random_state": 7, "n_chains": 3}
    one = fitted(SMALL, **settings)
    monkeypatch.setattr("time.perf_counter", iter(np.arange(1e7) * 17.0).__next__)
    two = AutoSampler(**settings).fit(SMALL)
    assert one.candidates_.identical(two.candidates_)


def test_prices():
    assert len(prices.PRICES) > 20
    for price in prices.PRICES.values():
        assert min(price) >= 0.0
        assert price.work(1.0, 1.0, 1.0) > 0.0
    assert prices.Price(100.0, 2.0, 3.0).work(10, 20, 4.0) == 1000 + 20 * (2 + 12)
    assert prices.neighbours(dense(8)) == 7.0
    assert prices.neighbours(machine(9, 4, 1.0)) == 4.0
    assert prices.neighbours(EXACT["function"]) == 0.0
    rule = Systematic(np.arange(2, dtype=np.uint32), 1)
    assert prices.price_of(rule, dense(4)) == prices.PRICES["Systematic", "Ising"]
    assert prices.price_of("Unknown", dense(4)) == prices.OTHERS


def test_independent_variables_cost_something():
    """The race would not end if a candidate took no time."""
    target = Ising(np.zeros((40, 40)), np.linspace(-1, 1, 40))
    for rule in ("Balanced", "Chromatic", "Systematic", "RandomBlocks", "Redraw", "Jump", "Scan"):
        assert prices.price_of(rule, target).work(1, 40, 0.0) >= 40.0
    sampler = AutoSampler(random_state=0).fit(target)
    run = sampler.candidates_["transitions"]
    assert run.max() < 1e6


@pytest.mark.slow
def test_prices_are_those_of_this_machine():
    # Of ratios only: machines differ in speed.
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location(
        "prices_measured", Path(__file__).parents[1] / "benchmarks" / "prices.py"
    )
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    ratios = []
    for target in (LATTICE, dense(100, scale=0.02), machine(100, 40, 0.2)):
        for sampler in (
            LSBSampler("barker", blocks=None),
            GibbsSampler("systematic"),
            GibbsSampler(block_size=4),
        ):
            took, evaluations, rule = benchmark.measured(sampler, target)
            price = prices.price_of(rule, target)
            ratios.append(price.work(1, evaluations, prices.neighbours(target)) / took)
    assert np.abs(np.log(ratios / np.median(ratios))).max() < np.log(2.0)


# ----------------------------------------------------------------- doubts


def magnet():
    """A magnet in which single changes never cross from up to down."""
    couplings = np.full((40, 40), 0.1)
    np.fill_diagonal(couplings, 0.0)
    return Ising(couplings)


def chains_at(target, value, seed):
    x = np.full((4, target.n_sites), value, target.dtype)
    rule = Systematic(np.arange(target.n_sites, dtype=np.uint32), 1)
    made = Ensemble(target, x, Streams(spawn(seed, 4)), 1, rule)
    made.start(rule)
    return made


def test_candidates_in_different_modes_disagree():
    target = magnet()
    ends = {"up": (1, 0), "also up": (1, 1), "down": (-1, 2)}
    contest = Contest({k: chains_at(target, *end) for k, end in ends.items()}, 3e8)
    contest.run(lambda work: None)
    found = contest.difference("down")
    assert found.others in ("up", "also up")
    assert found.sites.size == 40
    assert found.size > 10.0
    alike = {k: chains_at(target, 1, seed) for seed, k in enumerate(("one", "other"))}
    contest = Contest(alike, 3e8)
    contest.run(lambda work: None)
    assert contest.difference("one").sites.size == 0
    assert 0.0 < contest.difference("one").size < 6.0


def test_candidates_that_disagree_are_told(monkeypatch):
    target = magnet()

    def others(target, states, seeds, settings, *_):
        down = GibbsSampler("systematic", n_burn_in=0, random_state=seeds[0], **settings)
        down._fit(target, -np.ones_like(states))
        return {"down": down}

    monkeypatch.setattr(auto, "fitted_challengers", others)
    monkeypatch.setattr(auto._Choice, "temper", lambda self: None)
    monkeypatch.setattr(
        auto._Race,
        "_first",
        lambda self, *_: LSBSampler("barker", blocks=None, random_state=0, n_burn_in=20_000),
    )
    with pytest.warns(SeparatedModesWarning, match="'(lsb|down)', which is taken, and") as told:
        AutoSampler().fit(target, initial_states=np.ones(40))
    assert any("and 37 more" in str(w.message) for w in told)


def test_tempering_is_tried_and_taken_where_it_agrees(monkeypatch):
    target = magnet()
    monkeypatch.setattr(auto, "fitted_challengers", lambda *given: {})
    monkeypatch.setattr(
        auto._Race,
        "_first",
        lambda self, *_: LSBSampler("barker", blocks=None, random_state=0, n_burn_in=150_000),
    )
    x = np.where(np.arange(4)[:, None] % 2, 1, -1) * np.ones((4, 40), int)
    sampler = AutoSampler(random_state=0).fit(target, initial_states=x)
    assert sampler.candidates_.attrs["chosen"] == "tempering"
    draws = sampler.sample(500, thin="auto")
    assert sampler.run_ is sampler.sampler_.run_
    assert abs(float((draws["x"].mean("site") > 0).mean()) - 0.5) < 0.2


@cache
def fitted_to_a_mixture(seed):
    """A target of two modes, a sampler of it, and what its fit told."""
    target, *_ = mixture_of_products(30, seed)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", SamplerWarning)
        return target, AutoSampler(random_state=seed).fit(target), told


@pytest.mark.parametrize("seed", [2, *(pytest.param(k, marks=pytest.mark.slow) for k in (0, 1, 3))])
def test_mixtures_are_right_or_told(seed):
    _, sharp, broad = mixture_of_products(30, seed)
    target, sampler, told_in_fit = fitted_to_a_mixture(seed)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", SamplerWarning)
        draws = copy.copy(sampler).sample(1000, thin="auto")
    found = marginals(draws, target)
    off = np.abs(found["p"].values[:, 1] - (sharp + broad) / 2)
    wrong = (off > 5 * np.nan_to_num(found["mcse"].values[:, 1])) & (off > 0.01)
    assert told_in_fit or told or not wrong.any()


def test_a_rare_value_that_the_start_found_is_not_forgotten():
    target, sampler, _ = fitted_to_a_mixture(2)
    plain = LSBSampler(random_state=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        plain.fit(target)
    assert sampler.run_.ensemble.counters.tally.kept == plain.run_.ensemble.counters.tally.kept


# ----------------------------------------------------------------- an estimator like the others


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_chains": -3}, "n_chains is -3"),
        ({"n_burn_in": -1}, "n_burn_in is -1"),
        ({"n_jobs": "many"}, "n_jobs is 'many'"),
        ({"random_state": -5}, "random_state is -5"),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        AutoSampler(**params).fit(EXACT["ising"])


def test_bad_input():
    with pytest.raises(TypeError, match="target is 3, not a sklsb Target"):
        AutoSampler().fit(3)
    with pytest.raises(ValueError, match=r"initial_states has shape \(2, 3\)"):
        AutoSampler().fit(Ising(np.zeros((3, 3))), initial_states=np.ones((2, 3)))
    with pytest.raises(TypeError, match="positional"):
        AutoSampler(4)
    with pytest.raises(NotFittedError):
        AutoSampler().sample(3)


def test_a_failed_fit_leaves_the_last_one():
    sampler = fitted(EXACT["ising"])
    before = sampler.state_, sampler.why_
    with pytest.raises(ValueError, match="n_chains is 0"):
        sampler.set_params(n_chains=0).fit(EXACT["machine"])
    np.testing.assert_array_equal(sampler.state_, before[0])
    assert sampler.why_ == before[1]


KINDS = {"elimination": DIMERS, "sweeps": EXACT["machine"], "lsb": HELD}
each_kind = pytest.mark.parametrize("target", KINDS.values(), ids=KINDS)


@each_kind
def test_copies_go_on_bit_for_bit(target, tmp_path):
    sampler = fitted(target)
    sampler.sample(5)
    sampler.save(tmp_path / "kept")
    others = [
        copy.copy(sampler),
        copy.deepcopy(sampler),
        pickle.loads(pickle.dumps(sampler)),
        AutoSampler.load(tmp_path / "kept", target),
    ]
    draws = sampler.sample(30, thin=2)
    for other in others:
        assert other.candidates_.identical(sampler.candidates_)
        assert other.why_ == sampler.why_
        np.testing.assert_array_equal(other.sample(30, thin=2)["x"], draws["x"])
    with pytest.raises(StoreError, match="holds a AutoSampler; it is not of LSBSampler"):
        LSBSampler.load(tmp_path / "kept", target)


def test_clone():
    sampler = fitted(EXACT["ising"], n_chains=2)
    other = clone(sampler)
    assert repr(other) == repr(sampler) == "AutoSampler(n_chains=2, random_state=0)"
    assert not hasattr(other, "sampler_")
    assert other.fit(EXACT["ising"]).candidates_.identical(sampler.candidates_)
    assert copy.copy(AutoSampler()).get_params() == AutoSampler().get_params()


@each_kind
def test_stores_are_resumed(target, tmp_path):
    pytest.importorskip("zarr")
    whole, sampler = fitted(target), fitted(target)
    draws = whole.sample(40, thin=3)
    sampler.sample(25, thin=3, store=tmp_path / "run")
    again = AutoSampler.resume(tmp_path / "run", target)
    assert again.why_ == sampler.why_
    again.sample(15, thin=3, store=tmp_path / "run")
    found = open_draws(tmp_path / "run")
    np.testing.assert_array_equal(found["x"], draws["x"])
    assert found.attrs["sampler"] == "AutoSampler"
    assert found.attrs["chosen"] == sampler.candidates_.attrs["chosen"]


@each_kind
def test_the_winner_alone(target):
    sampler, other = fitted(target), fitted(target)
    np.testing.assert_array_equal(sampler.sampler_.sample(9)["x"], other.sample(9)["x"])
    np.testing.assert_array_equal(sampler.state_, sampler.sampler_.state_)
    assert type(clone(sampler.sampler_)) is type(sampler.sampler_)
    assert sampler.n_sites_ == target.n_sites
    assert sampler.n_evaluations_ > sampler.candidates_.sizes["candidate"]


def test_many_chains():
    sampler = fitted(EXACT["machine"])
    draws, again = (sample_chains(sampler, 20, n_chains=6, n_jobs=n) for n in (1, 1))
    assert draws.sizes["chain"] == 6
    np.testing.assert_array_equal(draws["x"], again["x"])
    assert sampler.run_.algorithm.burn_in_length() > 0


def test_exports():
    sampler = fitted(EXACT["ising"])
    draws = sampler.sample(20)
    tree = sampler.to_datatree(draws)
    assert tree.attrs["sampler"] == "AutoSampler"
    assert tree["sample_stats"]["lp"].shape == (4, 20)
    pytest.importorskip("arviz")
    with pytest.warns(ShortRunWarning, match="20 draws of each chain"):
        data = sampler.to_inference_data(draws)
    assert data["posterior"]["x"].shape == (4, 20, 3, 4)
    pytest.importorskip("dimod")
    assert len(sampler.to_dimod(draws)) == 80


def test_disagreement_and_stop_rules():
    from sklsb.diagnostics import Seconds

    sampler = fitted(EXACT["machine"])
    draws = sampler.sample(400, thin="auto", stop=Seconds(60.0))
    assert draws.attrs["stopped_by"] == ""
    assert sampler.disagreement_.agree == 1


def regression(n, n_in_last):
    """A regression on n rows and columns, and states in the last of which all is explained."""
    rng = np.random.default_rng([25, 100])
    x = rng.normal(size=(n, n))
    y = x[:, :5].sum(axis=1) + rng.normal(size=n)
    states = np.zeros((4, n))
    states[:, :5] = states[3, :n_in_last] = 1
    return VariableSelection(x, y), states


def test_chains_on_their_way_do_not_decide():
    target, states = regression(80, 75)  # some hundred sweeps away from where the others are
    first = LSBSampler("barker", n_burn_in=0, random_state=0)
    choice = auto._Choice(first.fit(target, initial_states=states), 3e8)
    choice.race()
    assert choice.again == 1
    assert choice.states.sum(axis=1).max() < 25
    assert choice.chosen == "systematic"
    assert choice.contest.arrived() is None
    assert choice.table().ess_per_step.sel(candidate="systematic") > 0.5
    # All begin there: the winner, the others, and the first one.
    for sampler in choice.samplers.values():
        assert sampler.state_.sum(axis=1).max() < 25
    assert choice.evaluations > choice.spent > 0
    # Where the chain was might have been a mode.
    assert choice.needs_tempering
    assert not choice.is_clear
    assert "none came back" in choice.doubt


@pytest.mark.parametrize("seed", [2, 3])
def test_candidates_count_by_what_their_draws_know(seed):
    """Many dependent transitions do not know the variances; fewer sweeps do."""
    target, states = regression(200, 5)
    made = {
        "sweeps": GibbsSampler("systematic", n_burn_in=0, random_state=seed),
        "blocks": GibbsSampler(block_size=4, n_burn_in=0, random_state=seed + 20),
    }
    chains = {k: s.fit(target, initial_states=states).run_.ensemble for k, s in made.items()}
    contest = Contest(chains, 6e8)
    contest.run(lambda work: None)
    assert contest.entrants["blocks"].n_transitions > contest.entrants["sweeps"].n_transitions
    of_sweeps, of_blocks = (of_sites.time for of_sites, _ in contest.times)
    assert of_sweeps < 1.2
    assert of_blocks > 50.0


def test_draws_that_the_race_knows_to_be_worth_little_are_told():
    target = Ising.lattice(np.zeros((12, 12)), 0.2)
    sampler = AutoSampler(random_state=0).fit(target)
    won = sampler.candidates_.sel(candidate=sampler.candidates_.attrs["chosen"])
    assert won.ess_per_step < sampler.run_.most_effective < 2.0
    sampler.run_.most_effective = 0.001
    with pytest.warns(ShortRunWarning, match="worth 0.4 independent draws at most, as fit saw"):
        sampler.sample(400, thin=1)


def large(n_rows, n_cols, field, coupling):
    rng = np.random.default_rng(0)
    return Ising.lattice(rng.normal(0.0, field, (n_rows, n_cols)), coupling=coupling)


@pytest.mark.slow
def test_sweeps_win_on_large_lattices_with_fields():
    """The numbers of a sweep of clusters exceed a buffer, which must not end in chunks of none."""
    target = large(128, 1030, 0.3, 0.4)
    sampler = AutoSampler(random_state=0).fit(target)
    assert sampler.candidates_.attrs["chosen"] == "chromatic"
    assert (sampler.candidates_["transitions"] > 0).all()
    assert sampler.n_evaluations_ < 500 * target.n_sites * sampler.n_chains


def test_clusters_win_on_a_large_critical_lattice():
    sampler = AutoSampler(random_state=0).fit(large(200, 200, 0.0, 0.4407))
    assert sampler.candidates_.attrs["chosen"] == "clusters"


@pytest.mark.parametrize("n_chains", [1, 2, 3])
def test_few_chains_on_a_large_lattice(n_chains):
    sampler = AutoSampler(n_chains=n_chains, random_state=0).fit(large(182, 182, 0.3, 0.3))
    assert np.isfinite(sampler.candidates_["ess_per_work"]).all()


def test_chains_in_two_phases_of_a_large_lattice_are_told():
    said = r"disagreed in the race: R-hat .*Fit \w+ alone with a larger n_burn_in, or Parallel"
    with pytest.warns(SeparatedModesWarning, match=said):
        AutoSampler(random_state=0).fit(large(200, 200, 0.0, 0.6))

"""Where chains start: both ends of the temperature, and what the search costs."""

import numpy as np
import pytest
from models import dense, mixture_of_products
from sklearn.base import clone

from sklsb import (
    RBM,
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    VariableSelection,
    exact,
)
from sklsb.diagnostics.tally import RareValue, Tally
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exceptions import SeparatedModesWarning
from sklsb.trials import starts as _starts
from sklsb.trials.reference import find_reference
from sklsb.trials.starts import MOST_LOOKS, Effort, draw_starts
from sklsb.trials.uphill import Account, Uphill, Walks

pytestmark = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")

LATTICE = Ising.lattice(np.random.default_rng(0).normal(size=(6, 6)), coupling=0.3)
NETWORK = MarkovNetwork(
    [2, 3, 1, 4],
    [((0, 1), [[1.0, 2.0, 0.0], [0.5, 1.0, 3.0]]), ((1, 2, 3), np.arange(1.0, 13.0))],
)
SAMPLERS = {
    "balanced": LSBSampler("barker"),
    "learned": LSBSampler(pilot=False),
    "gibbs": GibbsSampler("random"),
    "ball": HammingBallSampler(3),
    "tempering": ParallelTempering(),
}
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


def never(*args):
    raise AssertionError("no chain should run")


def found(target, init="quenched", n=4, looks=60, seed=0, **settings):
    return draw_starts(target, init, Streams(spawn(seed, n)), Effort(looks, 0, never, **settings))


TARGETS = {
    "lattice": LATTICE,
    "dense": dense(12),
    "potts": Potts.lattice(np.random.default_rng(1).normal(size=(4, 4, 3)), coupling=0.5),
    "network": NETWORK,
    "evidence": NETWORK.condition({1: 2}),
    "function": FunctionTarget(lambda x: np.abs(x - 1.2).sum(-1), 7, 3),
    "nothing": MarkovNetwork([1, 1], []),
}


@pytest.mark.parametrize("looks", [5, 60])
def test_quenched_chains_of_a_magnet_start_in_opposite_modes(looks):
    d = 40
    magnet = Ising((np.ones((d, d)) - np.eye(d)) * 1.5 / d)
    for seed in range(10):
        x = found(magnet, "both", looks=looks, seed=seed).x
        assert x[1].sum() < 0 < x[3].sum()


def test_no_chain_starts_at_models_that_fit_too_many_columns():
    """With as many rows as columns, nearly all columns are a peak, e^68 below the best model."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(100, 100))
    target = VariableSelection(columns, columns[:, :5].sum(axis=1) + rng.normal(size=100))
    assert found(target).x.sum(axis=1).max() < 10
    # Of modes that uniform draws may miss, a low one is a start.
    peak = (1.0 - np.eye(40)) / 40
    low = found(Ising(1.5 * peak, np.full(40, 0.1))).x.sum(axis=1)
    assert low.min() < 0 < low.max()


def test_walks_that_end_between_domains_of_a_lattice():
    """Of a function, no symmetry of which is known: its chains, too, start in opposite phases."""

    def log_prob(x):
        x = 2.0 * x.reshape(-1, 16, 16) - 1.0
        return 0.5 * (x * (np.roll(x, 1, 1) + np.roll(x, 1, 2))).sum(axis=(1, 2))

    target = FunctionTarget(log_prob, 256)
    for seed in range(4):
        x = found(target, "both", looks=5, seed=seed).x
        assert (x[1] == 0).all()
        assert (x[3] == 1).all()


def test_evidence_stays_where_all_variables_have_one_value():
    lattice = Ising.lattice(np.zeros((12, 12)), coupling=0.5).condition({(3, 3): 1, (8, 8): -1})
    x = found(lattice, "both").x
    assert (x[:, [39, 104]] == (1, -1)).all()
    assert (lattice.log_ratios(x[1::2]) <= 0).all()


def test_short_searches_find_the_narrow_mode_of_machines():
    """The burn-in of a Gibbs sampler would pay for one look in some machines."""
    for seed in range(10):
        target, sharp, _ = mixture_of_products(30, seed)
        x = found(target, "both", looks=5, seed=seed).x[1::2]
        assert (x == np.where(sharp > 0.5, 1, 0)).all(axis=1).any()


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_nothing_leads_up_from_a_quenched_state(target):
    x = found(target).x
    assert x.dtype == target.dtype
    assert np.isfinite(target.log_prob(x)).all()
    ratios = target.log_ratios(x)
    assert (ratios <= 1e-9).all()
    # Of a small target the best of many walks is the most probable state of all.
    if target.n_sites <= 7:
        states = exact.states(target)
        highest = target.log_prob(states).max()
        assert target.log_prob(x[0]) == pytest.approx(highest, abs=1e-12)


def test_every_second_chain_is_quenched():
    uniform, both, quenched = (found(LATTICE, init).x for init in ("uniform", "both", "quenched"))
    streams = Streams(spawn(0, 4))
    wanted = [LATTICE.draw_state(rng) for rng in streams.of("start")]
    np.testing.assert_array_equal(uniform, wanted)
    np.testing.assert_array_equal(both[::2], uniform[::2])
    assert (LATTICE.log_ratios(both[1::2]) <= 1e-12).all()
    assert (LATTICE.log_ratios(quenched) <= 1e-12).all()
    assert (LATTICE.log_ratios(uniform) > 0).any(axis=1).all()


def test_a_start_does_not_depend_on_the_other_chains():
    for init in ("both", "quenched"):
        np.testing.assert_array_equal(found(LATTICE, init, 3).x, found(LATTICE, init, 6).x[:3])


@pytest.mark.parametrize("at_once", [1, 2, 100])
@pytest.mark.parametrize("name", TARGETS)
def test_searches_find_together_what_each_finds_alone(name, at_once, monkeypatch):
    target, seeds = TARGETS[name], spawn(3, 6)
    n_moves = int((target.cardinalities - 1).sum())
    monkeypatch.setattr(_starts, "_MOST_HELD", at_once * MOST_LOOKS * max(1, n_moves))
    n_calls = []
    together = draw_starts(
        target, "both", Streams(seeds), Effort(60, 0, never), lambda: n_calls.append(1)
    )
    assert len(n_calls) == 6
    for c, rng in enumerate(seeds):
        alone = draw_starts(target, "both", Streams([rng], c), Effort(60, 0, never))
        assert np.array_equal(together.x[c], alone.x[0])
        assert together.evaluations[c] == alone.evaluations[0]


def check_walks_that_keep_a_variable():
    """They end where no other change leads up."""
    rng = np.random.default_rng(0)
    couplings = np.triu(rng.normal(size=(20, 20)), 1)
    target = Ising(couplings + couplings.T, rng.normal(size=20))

    def search(n, fixed):
        x = np.stack([target.draw_state(rng) for _ in range(n)])
        ends = yield Walks(Account(1000), x, fixed)
        return x, fixed, ends

    keeping = [rng.integers(20, size=n) for n in (7, 12)]
    searches = [search(len(fixed), fixed) for fixed in keeping]
    searches.insert(1, search(9, None))
    for x, fixed, ends in Uphill(target, False).follow(searches):
        gain = target.log_ratios(ends.x)
        if fixed is not None:
            row = np.arange(len(x))
            assert np.array_equal(ends.x[row, fixed], x[row, fixed])
            assert (gain[row, fixed] > 0.0).any()
            gain[row, fixed] = 0.0
        assert gain.max() <= 1e-12
        np.testing.assert_allclose(ends.log_prob, target.log_prob(ends.x))


def test_walks_that_keep_a_variable():
    check_walks_that_keep_a_variable()


def check_rare_values_together():
    """Rare values stay while the other variables go uphill, whoever else searches."""
    table = np.ones((2, 8))
    table[0, 7] = table[1, :7] = 1e-3
    pairs = [((0, 1), table), ((0, 2), table), ((0,), [1.0, 2.0])]
    target, seeds = MarkovNetwork([2, 8, 8, 2], pairs), spawn(5, 6)

    def walk(states, streams, n_draws, sweeps):
        """Draws that keep most of the values."""
        values = [
            np.stack([target.draw_state(rng) for _ in range(n_draws)]) for rng in streams.chain
        ]
        kept = np.stack([rng.random((n_draws, 4)) < 0.95 for rng in streams.chain])
        return np.where(kept, states[:, None], values), n_draws * len(states)

    effort = Effort(60, 96, walk)
    together = draw_starts(target, "quenched", Streams(seeds), effort)
    assert together.kept
    for c, rng in enumerate(seeds):
        alone = draw_starts(target, "quenched", Streams([rng], c), effort)
        assert np.array_equal(together.x[c], alone.x[0])
        assert together.evaluations[c] == alone.evaluations[0]


def test_rare_values_are_found_together_as_alone():
    check_rare_values_together()


@pytest.mark.parametrize("looks", [0, 5, 40, 10**9])
def test_the_search_is_bounded_in_evaluations(looks):
    calls = []

    def f(x):
        calls.append(len(x))
        return (x * np.linspace(-1, 1, 40)).sum(axis=-1) + np.abs(np.diff(x)).sum(axis=-1)

    target = FunctionTarget(f, 40)
    calls.clear()
    starts = found(target, looks=looks, n=1)
    most = min(max(looks, 5), MOST_LOOKS) * 40
    # Beside those of neighbours there are a few of the states that are tried.
    assert most * 0.2 <= sum(calls) <= starts.evaluations[0] + 200 <= 2 * most + 400


@pytest.mark.parametrize("name", ["balanced", "tempering"])
def test_starts_count_as_evaluations(name):
    uniform, both, given = (
        clone(SAMPLERS[name]).set_params(n_burn_in=0, random_state=0, init=init)
        for init in ("uniform", "both", "both")
    )
    uniform.fit(LATTICE)
    given.fit(LATTICE, initial_states=uniform.state_)
    np.testing.assert_array_equal(given.state_, uniform.state_)
    assert given.n_evaluations_ == uniform.n_evaluations_
    both.fit(LATTICE)
    assert both.n_evaluations_ - uniform.n_evaluations_ >= 2 * 36
    assert both.history_.sizes.get("iteration", 0) == 0


@each_sampler
def test_init_is_a_parameter_of_every_sampler(sampler):
    sampler = sampler.__class__(**sampler.get_params()).set_params(
        n_chains=2, n_burn_in=0, random_state=3
    )
    x = {init: sampler.set_params(init=init).fit(LATTICE).state_ for init in ("uniform", "both")}
    np.testing.assert_array_equal(x["uniform"][0], x["both"][0])
    assert LATTICE.log_prob(x["both"][1]) > LATTICE.log_prob(x["uniform"][1])
    assert sampler.sample(3).attrs["init"] == "'both'"
    for wrong in ("cold", None, 3, ["both"]):
        with pytest.raises(ValueError, match=r"init is .*; it must be one of \['auto', 'both'"):
            sampler.set_params(init=wrong).fit(LATTICE)


def test_initial_states_and_warm_starts_come_first():
    x = -np.ones(36, dtype=int)
    sampler = LSBSampler("sqrt", n_burn_in=0, random_state=0, warm_start=True)
    sampler.fit(LATTICE, initial_states=x)
    np.testing.assert_array_equal(sampler.state_, np.tile(x, (4, 1)))
    sampler.sample(50)
    before = sampler.state_
    np.testing.assert_array_equal(sampler.fit(LATTICE).state_, before)


def test_modes_that_uniform_draws_do_not_lead_to():
    """A broad and a sharp component of equal mass: uniform draws all see the broad one."""
    for seed in range(6):
        target, sharp, broad = mixture_of_products(30, seed)
        x = found(target, "both").x

        of_sharp, of_broad = (np.log(np.where(x, p, 1 - p)).sum(axis=1) for p in (sharp, broad))
        assert (of_sharp[::2] < of_broad[::2]).all()
        assert of_sharp[1] > of_broad[1]  # the best of many walks


def test_scattered_states_of_evidence():
    machine = RBM(np.full((6, 2), 2.0), np.full(6, -2.0), np.zeros(2)).condition({0: 1, 3: 0})
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert machine.scattered_state(rng)[[0, 3]].tolist() == [1, 0]


def test_a_rare_value_that_chains_keep():
    """Two variables of eight values that go with a third: few draws lead to its rare value."""
    table = np.ones((2, 8))
    table[0, 7] = table[1, :7] = 1e-14
    target = MarkovNetwork([2, 8, 8, 2], [((0, 1), table), ((0, 2), table), ((0,), [1.0, 2.0])])
    assert exact.marginals(target)["p"].values[0, 1] == pytest.approx(2 / 51, abs=1e-9)
    uniform = 0
    for seed in range(3):
        sampler = LSBSampler(random_state=seed, pilot=False, blocks=None, init="both")
        x = sampler.fit(target).state_
        assert (x[1::2, :3] == (1, 7, 7)).all(axis=1).any()
        uniform += sampler.set_params(init="uniform").fit(target).state_[:, 0].sum()
    assert uniform <= 3  # of 12


def check_value_of_known_rarity():
    """In the broad mode each value 1 has probability 0.09, in the sharp one 0.999.

    From uniform draws chains go to the broad mode, and see each value 1 in one draw of eleven.
    Those that are given one, and all others uphill, keep it.
    """
    d, low, high = 12, 0.09, 0.999
    bias, wide = np.log(low / (1 - low)), np.log(high / (1 - high))
    hidden = d * (np.log1p(np.exp(bias)) - np.log1p(np.exp(wide)))
    target = RBM(np.full((d, 1), wide - bias), np.full(d, bias), [hidden])
    x = exact.states(target)
    p, broad = exact.probabilities(target), x.sum(axis=1) < d / 2
    assert (x * p[:, None])[broad].sum(axis=0) / p[broad].sum() == pytest.approx(
        [low] * d, abs=1e-3
    )

    def sweeps(states, streams, n_draws, apart):
        """Four sweeps from draw to draw: within a mode they are independent."""
        draws, now = np.empty((len(states), n_draws, d), states.dtype), states.copy()
        rng = streams.chain[0]
        for t in range(n_draws):
            for site in np.tile(np.arange(d), 4):
                up = target.log_ratios(now)[:, site] * (1 - 2 * now[:, site])
                now[:, site] = rng.random(len(now)) < 1 / (1 + np.exp(-up))
            draws[:, t] = now
        return draws, 0

    for seed in range(3):
        effort = Effort(60, 96, sweeps)
        starts = draw_starts(target, "quenched", Streams(spawn(seed, 1)), effort)
        assert starts.kept, "a value of one in eleven is tried, and found to be kept"
        assert starts.kept[0].value_index == 1, "a value of one in eleven is tried: the value 1"


def test_a_value_of_known_rarity_is_found():
    check_value_of_known_rarity()


def test_a_rare_value_that_chains_keep_and_draws_hardly_hold_is_told():
    table = np.ones((2, 8))
    table[0, 7] = table[1, :7] = 1e-14
    target = MarkovNetwork([2, 8, 8, 2], [((0, 1), table), ((0, 2), table), ((0,), [1.0, 2.0])])
    sampler = LSBSampler(random_state=0, pilot=False, blocks=None, init="both").fit(target)
    with pytest.warns(SeparatedModesWarning, match="that chains keep for long"):
        sampler.sample(100, thin="sweep")
    (lost,) = set(sampler.disagreement_.attrs["lost"])
    assert lost in ("0", "1", "2")
    assert sampler.disagreement_.attrs["agree"] == 0
    # Half of the chains never leave it, so longer draws hold it for long: they disagree.
    with pytest.warns(SeparatedModesWarning, match="The chains disagree"):
        sampler.sample(1000, thin="sweep")
    assert sampler.disagreement_.attrs["lost"] == []


@pytest.mark.parametrize("value_index", [0, 1])
def test_visits_are_counted_in_sweeps(value_index):
    """40 of 400 draws, three sweeps apart, of two chains hold it: 120 sweeps in all."""
    field, none = [1.0, 0.0], [0.0, 0.0]
    x = np.full((2, 200, 2), (-1, 1)[1 - value_index], dtype=np.int8)
    x[0, 60:100, 1] *= -1
    cases = [(29.9, 1, field, []), (30.1, 1, field, [1]), (1.0, 0, field, [0])]
    # Without a field both values are as probable.
    for sweeps, site, h, lost in [*cases, (30.1, 1, none, []), (1.0, 0, none, [])]:
        target = Ising(np.zeros((2, 2)), h)
        tally = Tally(target, 2, kept=[RareValue(site, value_index, sweeps)], sweep=2)
        for part in np.split(x, 4, axis=1):
            tally.add(part, np.zeros(part.shape[:2]), 6)
        assert tally.lost() == lost


@pytest.mark.parametrize("init", ["both", "quenched"])
def test_first_order_searches(init):
    pytest.importorskip("torch")
    starts = found(LATTICE, init, first_order=True)
    assert (LATTICE.log_ratios(starts.x[1::2]) <= 1e-9).all()
    assert starts.evaluations.max() < 36 * 10  # gradients: far fewer than log-ratios
    sampler = LSBSampler("sqrt", fast=True, n_burn_in=0, init=init, random_state=0).fit(LATTICE)
    assert 8 <= sampler.n_evaluations_ < 36 * 40


# ----------------------------------------------------------------- exact draws

SMALL = {
    "dense": dense(8),
    "potts": Potts.lattice(np.random.default_rng(1).normal(size=(2, 3, 3)), coupling=0.5),
    "network": NETWORK,
    "evidence": NETWORK.condition({1: 2}),
    "function": FunctionTarget(lambda x: np.abs(x - 1.2).sum(-1) - x[..., 0] * x[..., 1], 4, 3),
    "observed": FunctionTarget(lambda x: np.abs(x - 1.2).sum(-1), 4, 3).condition({2: 1}),
    "machine": RBM(*(np.random.default_rng(2).normal(size=s) for s in ((6, 3), 6, 3))),
    "columns": VariableSelection(*(np.random.default_rng(3).normal(size=s) for s in ((9, 4), 9))),
    "parts": FunctionTarget(lambda x: np.where(x.sum(-1) % 3 == 1, -np.inf, 0.2 * x[..., 0]), 5),
}


def enumerated(target):
    x, p = exact.states(target), exact.probabilities(target)
    values = np.arange(len(target.values))[:, None, None]
    hit = x == np.asarray(target.values)[values]
    return np.moveaxis((hit * p[:, None]).sum(axis=1), 0, 1)


def check_exact_answers(target):
    """By listing all states, or by elimination, and by draws of both."""
    listed = find_reference(target, 1 << 17)
    np.testing.assert_allclose(listed.p, enumerated(target), atol=1e-12, err_msg="marginals")
    n = 4000
    x = listed.starts(Streams(spawn(0, n)))
    assert x.dtype == target.dtype
    assert np.isfinite(target.log_prob(x)).all(), "exact draws are possible"
    seen = np.stack([(x == v).mean(axis=0) for v in target.values], axis=1)
    error = np.sqrt(listed.p * (1 - listed.p) / n)
    assert (np.abs(seen - listed.p) <= 4.5 * error + 1e-12).all(), "exact draws have their law"


@pytest.mark.parametrize("target", SMALL.values(), ids=SMALL)
def test_exact_answers(target):
    check_exact_answers(target)


@pytest.mark.parametrize("name", ["dense", "network", "evidence"])
def test_exact_answers_by_elimination(name, monkeypatch):
    monkeypatch.setattr("sklsb.trials.reference._MOST_STATES", 0)
    check_exact_answers(SMALL[name])


def test_exact_answers_are_taken_by_counted_work():
    ternary = FunctionTarget(lambda x: 0.1 * x.sum(-1), 9, 3)
    assert find_reference(ternary, 3**9 - 1) is None
    assert find_reference(ternary, 3**9).cost == 3**9
    assert find_reference(ternary, 3**9, going_on=lambda: False) is None
    chain = MarkovNetwork([2] * 40, [((i, i + 1), [[2.0, 1.0], [1.0, 2.0]]) for i in range(39)])
    assert find_reference(chain, 79 * 2048) is None  # for a sum, only tables are missing
    assert find_reference(chain, 80 * 2048).p.shape == (40, 2)
    lattice = Ising.lattice(np.zeros((30, 30)), coupling=0.3)
    assert find_reference(lattice, 1e7) is None
    assert find_reference(TARGETS["nothing"], 1e9) is None  # no variable is free


def test_no_exact_answer_where_rounding_hides_it_or_the_function_fails_elsewhere():
    assert find_reference(Ising([[0.0, 1.0], [1.0, 0.0]], [1e16, 0.3]), 1e6) is None

    def log_prob(x):
        if (x == (1, 0, 1, 1, 0, 1)).all(axis=-1).any():
            raise ZeroDivisionError
        return 0.1 * x.sum(-1)

    target = FunctionTarget(log_prob, 6)
    assert find_reference(target, 1e6) is None
    start = np.tile([0, 0, 0, 0, 0, 1], (2, 1))
    sampler = LSBSampler("barker", blocks=None, n_chains=2, n_burn_in=0, random_state=0)
    sampler.fit(target.condition({0: 0}), initial_states=start).sample(100)


def test_an_error_of_ones_own_is_not_taken_for_one_of_the_function(monkeypatch):
    monkeypatch.setattr("sklsb.trials.reference.rounding_of", None)
    with pytest.raises(TypeError, match="not callable"):
        find_reference(dense(6), 1e6)


def test_at_fixed_counts_only_states_with_these_count():
    target = dense(6)
    x, p = exact.states(target), exact.probabilities(target)
    like = np.array([-1, 1, 1, -1, -1, -1])
    p = np.where(x.sum(axis=1) == like.sum(), p, 0.0) / p[x.sum(axis=1) == like.sum()].sum()
    up = (p[:, None] * (x == 1)).sum(axis=0)
    np.testing.assert_allclose(find_reference(target, 1e6, like=like).p[:, 1], up, atol=1e-12)


@each_sampler
def test_small_models_start_at_exact_draws(sampler):
    target, settings = dense(8), {"n_burn_in": 0, "random_state": 3, "init": "auto"}
    one = clone(sampler).set_params(n_chains=2, **settings).fit(target)
    more = clone(sampler).set_params(n_chains=5, **settings).fit(target)
    np.testing.assert_array_equal(more.state_[:2], one.state_)
    reference = find_reference(target, 0)
    wanted = reference.starts(Streams(spawn(3, 5)))
    np.testing.assert_array_equal(more.state_, wanted)
    given = clone(sampler).set_params(n_chains=5, **settings).fit(target, initial_states=wanted)
    assert more.n_evaluations_ - given.n_evaluations_ == reference.cost


@each_sampler
def test_where_exact_draws_cost_too_much_nothing_changes(sampler):
    target, settings = dense(24), {"n_chains": 2, "n_burn_in": 50, "random_state": 0}
    default, both = (
        clone(sampler).set_params(**settings, **given).fit(target)
        for given in ({}, {"init": "both"})
    )
    np.testing.assert_array_equal(default.state_, both.state_)
    assert default.n_evaluations_ == both.n_evaluations_

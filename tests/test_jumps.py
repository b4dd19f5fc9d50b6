"""Jumps and factors by site: against enumeration, autograd, by hand."""

import copy
import pickle
import warnings

import arviz
import exact_matrices  # noqa: F401 - formulas of the rules
import networkx as nx
import numpy as np
import pytest
import scipy.linalg
from models import dense, ising, pairs, potts

import sklsb
from sklsb import Ising, LSBSampler, MarkovNetwork, exact, testing
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.jump import Jump
from sklsb._kernels.rules.mixture import Mixture
from sklsb._kernels.run import Drawing
from sklsb.balancing import Barker, Lipschitz, Max, Min, Sqrt
from sklsb.balancing.learning import site_variances
from sklsb.balancing.weights import balanced, log_typical_rate, log_weights
from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.elimination.independent import Redraw
from sklsb.exact.enumeration import neighbours
from sklsb.exceptions import SamplerWarning, SeparatedModesWarning
from sklsb.testing._probe import RuleProbe, check_caches
from sklsb.testing._rules import measured_matrix
from sklsb.trials.candidates import Allowed, Candidate, Visited, plain_candidates
from sklsb.trials.factors import clipped, flux_factors, learned_factors, site_times

PATH = nx.path_graph(3)
XOR = sklsb.MarkovNetwork(
    [2, 2, 2], [((0, 1), [[1.0, 0.0], [0.0, 2.0]]), ((1, 2), [[1, 2], [3, 1]])]
)
MIXED = sklsb.MarkovNetwork(
    [2, 3, 2], [((0, 1), [[1.0, 2.0, 0.5], [0.3, 1.0, 0.0]]), ((1, 2), [[1, 2], [3, 1], [2, 2]])]
)
TARGETS = {
    "ising": dense(3),
    "strong fields": ising(PATH, "field 45"),
    "evidence": dense(4).condition({1: 1}),
    "isolated states": XOR,
    "potts": potts(PATH, "random"),
    "potts zeros": potts(PATH, "zeros"),
    "mixed": MIXED,
    "one site": dense(1),
}
FUNCTIONS = {"barker": Barker(), "sqrt": Sqrt(), "min": Min(), "max": Max()}


def factors_of(target):
    return np.exp(np.random.default_rng(1).normal(size=target.n_sites))


def plain(target):
    """What follows for a target of few states: log p of the states, -inf where impossible."""
    return target.log_prob(exact.states(target))


def timed(target, function, factors=None, time=1.0):
    """The rule of jumps, with a time of so many jumps on average under p."""
    x = exact.states(target)
    log_p = plain(target)
    rule = balanced(target, function, factors=factors)
    possible = log_p > -np.inf
    ratios = target.log_ratios(x[possible])
    log_z = np.logaddexp.reduce(log_weights(rule, ratios), axis=1)
    mean = np.logaddexp.reduce(log_p[possible] + log_z) - np.logaddexp.reduce(log_p)
    return Jump(rule.table, np.log(time) - (mean if np.isfinite(mean) else 0.0), rule.log_factor)


# ----------------------------------------------------------------- steps with factors


@pytest.mark.parametrize(("function", "target"), pairs(FUNCTIONS, TARGETS))
def test_steps_with_factors_are_exact(function, target):
    testing.check_rule(balanced(target, function, 0.1, factors_of(target)), target)


def test_weights_by_hand():
    """S exp(u) / (1 + exp(u)) by Barker's function."""
    target = dense(4)
    factors = factors_of(target)
    x = exact.states(target)
    ratios = target.log_ratios(x)
    expected = factors * np.exp(ratios) / (1 + np.exp(ratios))
    rule = balanced(target, Barker(), factors=factors)
    # The table is linear between knots that are 1/64 apart.
    assert np.allclose(log_weights(rule, ratios), np.log(expected), atol=1e-4)
    measured = measured_matrix(rule, target)
    total = expected.sum(axis=1)
    to = neighbours(target)
    formula = expected / np.maximum(total[:, None], total[to])
    rows = np.arange(len(x))[:, None]
    assert np.allclose(measured[rows, to], formula, atol=1e-4)


# ----------------------------------------------------------------- the jump process


@pytest.mark.parametrize(("function", "target"), pairs(FUNCTIONS, TARGETS))
def test_jumps_are_exact(function, target):
    testing.check_rule(timed(target, function, factors_of(target), 1.7), target)


@pytest.mark.parametrize("time", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("name", ["ising", "potts zeros", "isolated states"])
def test_the_formula_is_the_exponential_of_the_rates(name, time):
    target = TARGETS[name]
    rule = timed(target, Barker(), time=time)
    x, n = exact.states(target), len(exact.states(target))
    log_p = plain(target)
    rates = np.zeros((n, n))
    ratios = np.where(log_p[:, None] > -np.inf, target.log_ratios(x), -np.inf)
    w = np.exp(Barker().tabulated().log_g(ratios) + rule.log_time)
    np.add.at(rates, (np.arange(n)[:, None], neighbours(target)), w)
    rates -= np.diag(rates.sum(axis=1))
    assert np.allclose(
        exact.transition_matrix(rule, target), scipy.linalg.expm(rates), rtol=0, atol=1e-13
    )


def bisect(above, low, high):
    """The first float at which ``above`` holds."""
    low, high = (np.float64(end).view(np.int64) for end in (low, high))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if above(np.int64(middle).view(np.float64)) else (middle, high)
    return float(np.int64(high).view(np.float64))


def test_the_first_jump_is_at_the_right_time_and_of_the_right_move():
    """Bisected: stays while 1 - u <= exp(-Z t), then goes where the sums of weights say."""
    target = dense(4)
    factors = factors_of(target)
    rule = timed(target, Barker(), factors, 1.0)
    probe = RuleProbe(target, rule, room=1)
    x = exact.states(target)[5:6]
    w = np.exp(log_weights(rule, target.log_ratios(x))[0] + rule.log_time)

    def end(wait, select):
        return probe.step(x, np.array([[wait, select, 0.5]]))[0]

    expected = -np.expm1(-w.sum())
    edge = bisect(lambda u: np.array_equal(end(u, 0.3), x[0]), expected - 1e-6, expected + 1e-6)
    assert np.isclose(edge, expected, rtol=0, atol=1e-15)
    # Just before the edge hardly any time is left for a second jump.
    before = np.nextafter(edge, 0.0)
    for k, after in enumerate(np.cumsum(w)[:-1] / w.sum()):
        found = bisect(
            lambda u, k=k: not np.array_equal(end(before, u), flipped(x[0], k)),
            after - 1e-6,
            after + 1e-6,
        )
        assert np.isclose(found, after, rtol=0, atol=1e-15)


def flipped(x, k):
    x = x.copy()
    x[k] = -x[k]
    return x


def test_numbers_of_further_jumps_do_not_repeat_the_first():
    """With the first two numbers fixed, the seed alone decides; its numbers are uniform."""
    target = Ising(np.zeros((2, 2)), [0.0, 0.0])
    rule = timed(target, Sqrt(), time=8.0)
    rng = np.random.default_rng(0)
    n = 1 << 14
    numbers = np.column_stack([np.full(n, 0.5), np.full(n, 0.5), rng.random(n)])
    probe = RuleProbe(target, rule)
    ends = probe.step(np.tile(np.array([1, 1], np.int8), (n, 1)), numbers)
    counts = np.unique(ends, axis=0, return_counts=True)[1]
    assert counts.size == 4
    assert np.square(counts - n / 4).sum() / (n / 4) < 40.0


@pytest.mark.parametrize("function", [Barker(), Max()])
def test_jumps_keep_caches_and_copies(function):
    target = Ising.lattice(np.random.default_rng(0).normal(size=(6, 6)), coupling=0.5)
    rng = np.random.default_rng(1)
    x = np.stack([target.draw_state(rng) for _ in range(3)])
    candidate = Candidate(function, True, factors_of(target))
    rule = candidate.timed(Visited(target, x, target.log_ratios(x))).rule(target)
    chains = BalancedEnsemble(target, x, Streams(spawn(0, 3)))
    chains.start(rule)
    out = np.empty((3, 500, 36), np.int8), np.empty((3, 500, 2))
    chains.run(500, Drawing(1), out)
    check_caches(chains, "after jumps")
    again = pickle.loads(pickle.dumps(chains))
    parts = [tuple(np.empty_like(part) for part in out) for _ in range(2)]
    chains.run(500, Drawing(1), parts[0])
    for begin in (0, 100, 350):
        end = {0: 100, 100: 350, 350: 500}[begin]
        again.run(end - begin, Drawing(1, 0, begin), parts[1])
    assert np.array_equal(parts[0][0], parts[1][0])
    assert np.array_equal(parts[0][1], parts[1][1])
    assert (out[1][..., 1] == 1.0).all()


def test_an_isolated_state_is_kept():
    target = sklsb.MarkovNetwork([2, 2, 2], [((0, 1), np.eye(2)), ((1, 2), np.eye(2))])
    x = np.array([[0, 0, 0]])
    rule = Jump(Barker().table(), 0.0)
    chains = BalancedEnsemble(target, x, Streams(spawn(0, 1)))
    chains.start(rule)
    out = np.empty((1, 50, 3), target.dtype), np.empty((1, 50, 2))
    chains.run(50, Drawing(1), out)
    assert (out[0] == 0).all()


def test_jumps_mixed_with_redraws():
    target = dense(3)
    rule = Mixture.of(timed(target, Barker()), Redraw(3), 0.4)
    p = exact.transition_matrix(rule, target)
    law = exact.probabilities(target)
    assert np.allclose(law @ p, law, atol=1e-15)
    assert rule.facts.seeded
    assert rule.facts.n_uniforms == 4


# ----------------------------------------------------------------- learning


def stored(target, function, n=None):
    x = exact.states(target)
    x = x[plain(target) > -np.inf]
    x = x if n is None else x[np.random.default_rng(0).integers(len(x), size=n)]
    return BalancedEnsemble(target, x, Streams(spawn(0, 1) * len(x)))


def sums_of(target, table):
    """States, their log-ratios, and the sums of the weights of each variable's moves there."""
    seen = Visited.of(stored(target, Barker()))
    site = np.repeat(np.arange(target.n_sites), target.cardinalities - 1)
    one_hot = (site[:, None] == np.arange(target.n_sites)).astype(float)
    weights = np.exp(log_weights(Balanced(table), seen.ratios))
    return seen, weights @ one_hot, 1.0 / (1.0 + np.exp(seen.ratios) @ one_hot)


def test_factors_by_flux_are_a_stationary_point():
    """The derivative of log sum a/(s phi) + log mean Z(s) by log s is zero, by autograd."""
    torch = pytest.importorskip("torch")
    target, table = dense(5, seed=3), Barker().table()
    seen, of_site, present = sums_of(target, table)
    factors = flux_factors(seen, table)
    variance = site_variances(target, seen.states, seen.ratios)
    log_s = torch.tensor(np.log(factors), requires_grad=True)
    flow = torch.tensor(2 * (present * of_site).mean(axis=0))
    value = torch.log((torch.tensor(variance) / (torch.exp(log_s) * flow)).sum())
    value = value + torch.log((torch.exp(log_s) * torch.tensor(of_site.mean(axis=0))).sum())
    value.backward()
    assert np.allclose(log_s.grad.numpy(), 0.0, atol=1e-12)
    assert np.isclose(np.log(factors).mean(), 0.0, atol=1e-12)


def test_factors_do_not_depend_on_constants_or_frozen_variables():
    target = dense(4).condition({1: 1})
    seen, table = Visited.of(stored(target, Barker())), Barker().table()
    factors = flux_factors(seen, table)
    shifted = flux_factors(seen, table._replace(value=table.value + 3.0))
    assert factors[1] == 1.0
    assert np.allclose(factors, shifted, rtol=1e-12)
    assert np.allclose(clipped(np.array([-99.0, 0.0, 99.0])), [0.01, 1.0, 100.0])


def test_times_of_sites_by_batches():
    """Chains of two states with known autocorrelation: time (1 + r) / (1 - r)."""
    rng = np.random.default_rng(0)
    r = np.array([0.0, 0.5, 0.9])
    x = np.empty((4, 20_000, 4), np.int8)
    x[:, 0, :3] = rng.random((4, 3)) < 0.5
    for t in range(1, x.shape[1]):
        fresh = rng.random((4, 3)) < 1 - r
        x[:, t, :3] = np.where(fresh, rng.random((4, 3)) < 0.5, x[:, t - 1, :3])
    x[..., 3] = 1
    times, variance = site_times(x, (0, 1), 40)
    assert np.allclose(times[:3], (1 + r) / (1 - r), rtol=0.3)
    assert variance[3] == 0.0


def pairs(seed, n_pairs=10, n_free=15, coupling=3.4):
    rng = np.random.default_rng(seed)
    d = 2 * n_pairs + n_free
    c = np.zeros((d, d))
    for k in range(n_pairs):
        c[2 * k, 2 * k + 1] = c[2 * k + 1, 2 * k] = coupling
    return Ising(c, rng.normal(size=d)), np.arange(d) < 2 * n_pairs


def test_learned_factors_find_the_tied_variables():
    target, tied = pairs(1)
    rng = np.random.default_rng(2)
    x = np.stack([target.draw_state(rng) for _ in range(4)])
    chains = BalancedEnsemble(target, x, Streams(spawn(3, 4)))
    seen, plain = Visited(target, x, target.log_ratios(x)), Candidate(Sqrt(), True)
    found = learned_factors(plain, chains, seen, 4e6)
    assert found.of_runs
    assert found.factors[tied].min() > found.factors[~tied].max()
    few = learned_factors(plain, chains, seen, 100.0)
    assert np.array_equal(few.factors, np.ones(target.n_sites))


def test_factors_are_tried_where_they_may_gain():
    tied, alike = pairs(3)[0], Ising.lattice(np.full((6, 6), 0.2), coupling=0.2)
    for target, n in ((tied, 3), (alike, 0)):
        table = LSBSampler(random_state=0, blocks=None).fit(target).candidates_
        assert sum("_by_" in name for name in table["candidate"].values.tolist()) == n
    asked = LSBSampler(factors="site", random_state=0, n_burn_in=500, blocks=None).fit(alike)
    assert (asked.factors_ != 1.0).any()


def test_names_of_candidates():
    target = dense(3)
    visited = Visited.of(stored(target, Barker()))
    learned = {"flux": Lipschitz()}
    both = plain_candidates(Allowed(True, "auto"), learned, visited)
    assert [name for name, c in both.items() if not c.jumps] == [
        "flux", "barker", "sqrt", "min", "max"]  # fmt: skip
    assert [name for name, c in both.items() if c.jumps] == ["jump_barker"]
    rate = log_typical_rate(balanced(target, Barker()), visited.ratios)
    assert both["jump_barker"].log_time == np.log(4) - rate
    assert both["jump_barker"].sweep == 1
    given = plain_candidates(Allowed(True, np.full(3, 2.0), steps=False), learned, visited)
    assert list(given) == [f"jump_{name}" for name in ("flux", "barker", "sqrt", "min", "max")]
    assert all(c.jumps and (c.factors == 2.0).all() for c in given.values())
    assert not any(
        c.jumps for c in plain_candidates(Allowed(False, None), learned, visited).values()
    )


# ----------------------------------------------------------------- the sampler


def test_the_sampler_wins_on_tied_pairs():
    """By a factor that no noise brings: effective draws per evaluation, chosen and best fixed."""
    target, _ = pairs(5)

    def worth(sampler):
        sampler.fit(target)
        before = sampler.n_evaluations_
        x = sampler.sample(4000, thin=20).x.values.astype(float)
        ess = [float(arviz.ess(x[..., i])) for i in range(target.n_sites)]
        return 1 / np.mean(1 / np.array(ess)) / (sampler.n_evaluations_ - before)

    learned = LSBSampler(random_state=0, blocks=None)
    chosen = worth(learned)
    assert learned.rejection_free_
    best = max(worth(LSBSampler(g, random_state=0, blocks=None)) for g in ("sqrt", "max"))
    assert chosen > 2.5 * best


@pytest.mark.parametrize(
    "settings",
    [
        {"balancing": "barker", "rejection_free": True},
        {"balancing": "sqrt", "rejection_free": True, "factors": "site"},
        {"balancing": "min", "factors": "site"},
        {"balancing": "max", "rejection_free": True},
        {"balancing": "barker", "factors": np.array([1.0, 2.0, 0.5, 3.0])},
        {"balancing": Lipschitz(1.5), "rejection_free": True},
        {"balancing": "mixture", "objective": "kl", "factors": None},
        {"balancing": sklsb.Network()},
        {"rejection_free": True, "factors": None},
        {"rejection_free": False, "factors": "site"},
        {"rejection_free": True, "pilot": False},
        {"objective": "kl", "rejection_free": True},
        {"balancing": "barker", "rejection_free": True, "n_burn_in": 0},
    ],
    ids=str,
)
def test_every_setting_leaves_the_target_invariant(settings):
    target = dense(4, seed=1)
    sampler = LSBSampler(**{"n_burn_in": 200} | settings, n_chains=2, random_state=0, blocks=None)
    sampler.fit(target)
    if settings.get("rejection_free") is not None:
        assert sampler.rejection_free_ == settings["rejection_free"]
    given = settings.get("factors")
    if given is None:
        assert "factors" not in settings or (sampler.factors_ == 1.0).all()
    elif not isinstance(given, str):
        assert np.array_equal(sampler.factors_, given)
    p = exact.transition_matrix(sampler, target)
    law = exact.probabilities(target)
    flow = law[:, None] * p
    assert np.allclose(flow, flow.T, atol=1e-15)
    assert np.allclose(p.sum(axis=1), 1.0, atol=1e-14)
    draws = sampler.sample(20_000).x.values.reshape(-1, 4)
    code = (draws > 0) @ (1 << np.arange(4)[::-1])
    assert np.allclose(np.bincount(code, minlength=16) / code.size, law, atol=0.02)
    assert set(sampler.sample_stats_) >= {"lp", "acceptance_rate"}


def test_jumps_go_on_bit_for_bit(tmp_path):
    target = dense(5)
    settings = {"rejection_free": True, "factors": "site", "random_state": 3, "n_burn_in": 100}

    def fitted(**more):
        return LSBSampler("barker", **settings, **more).fit(target)

    whole = fitted().sample(300).x
    parts = fitted(n_jobs=2)
    first, copied = parts.sample(100).x, copy.copy(parts)
    second = pickle.loads(pickle.dumps(parts)).sample(200).x
    assert np.array_equal(np.concatenate([first, second], axis=1), whole)
    assert np.array_equal(copied.sample(200).x, second)
    pytest.importorskip("zarr")
    kept = fitted()
    kept.sample(100, store=tmp_path / "run")
    resumed = LSBSampler.resume(tmp_path / "run", target)
    resumed.sample(200, store=tmp_path / "run")
    assert np.array_equal(sklsb.open_draws(tmp_path / "run").x, whole)
    assert resumed.rejection_free_
    assert np.array_equal(resumed.factors_, kept.factors_)


def test_jumps_with_evidence_and_blocks():
    target = sklsb.MarkovNetwork(
        [2, 2, 2], [((0, 1), [[1, 0], [0, 1]]), ((1, 2), [[1, 2], [3, 1]])]
    )
    sampler = LSBSampler("barker", rejection_free=True, random_state=0).fit(target)
    assert sampler.blocks_.kind == "whole"
    found = sklsb.diagnostics.marginals(sampler.sample(5000), target).p.values
    assert np.allclose(found, exact.marginals(target).p.values, atol=0.03)
    visited = LSBSampler("barker", rejection_free=True, random_state=0, blocks=None)
    visited.fit(dense(3).condition({1: -1}))
    assert (visited.sample(500).x.values[..., 1] == -1).all()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"rejection_free": "yes"}, ValueError, "rejection_free is 'yes'; it must be True, False"),
        (
            {"rejection_free": True, "lazy": 0.1},
            ValueError,
            "rejection_free is True and lazy is 0.1",
        ),
        ({"rejection_free": True, "fast": True}, ValueError, "rejection_free is True but fast"),
        ({"factors": "site", "fast": True}, ValueError, "factors is 'site' but fast is True"),
        ({"factors": "sites"}, ValueError, "factors is 'sites'; it must be \"auto\""),
        ({"factors": [1.0, 2.0]}, ValueError, r"factors has dtype float64 and shape \(2,\)"),
        ({"factors": [1.0, 0.0, 2.0]}, ValueError, r"factors\[1\] is 0.0; factors must be pos"),
        ({"factors": [1.0, 1e300, 1.0]}, ValueError, "factors range from 1 to 1e\\+300; the small"),
        ({"factors": ["a", "b", "c"]}, ValueError, r"factors has dtype <U1"),
    ],
)
def test_errors_of_the_sampler(settings, error, message):
    with pytest.raises(error, match=message):
        LSBSampler(**settings).fit(dense(3))


@pytest.mark.parametrize("settings", [{"rejection_free": True}, {"factors": "site"}])
def test_rules_that_need_a_fit(settings):
    name = next(iter(settings))
    with pytest.raises(ValueError, match=f"{name} is .*fit the sampler first"):
        exact.transition_matrix(LSBSampler("barker", **settings), dense(3))


def test_candidate_rules():
    target = dense(3)
    rule = Candidate(Barker(), False, factors_of(target)).rule(target, 0.2)
    assert isinstance(rule, Balanced)
    assert rule.lazy == 0.2
    assert np.allclose(rule.log_factor, np.log(factors_of(target)))
    assert isinstance(Candidate(Barker(), True).rule(target), Jump)
    assert not Candidate(Barker()).rule(target).log_factor.size


def test_jumps_that_never_move_end_the_pilot():
    """Strong fields: in the first transitions of a race nothing may jump at all."""
    target = Ising.lattice(np.random.default_rng(1).normal(size=(20, 20)) * 30, coupling=0.3)
    sampler = LSBSampler(n_chains=4, n_burn_in=200, random_state=0).fit(target)
    assert sampler.candidates_["transitions"].max() < 10**7


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning")
def test_the_time_of_a_transition_is_that_of_typical_states():
    target = Ising(np.zeros((50, 50)), np.random.default_rng(0).normal(size=50) * 12)
    sampler = LSBSampler("sqrt", rejection_free=True, n_burn_in=0, init="uniform", random_state=0)
    sampler.fit(target)
    before = sampler.n_evaluations_
    sampler.sample(2000)
    jumps = (sampler.n_evaluations_ - before) / (2000 * 4)
    assert 0.5 < jumps < 40


def test_transitions_of_too_many_jumps_are_told():
    target = dense(3)
    sampler = LSBSampler("barker", rejection_free=True, random_state=0, blocks=None).fit(target)
    rule = sampler.run_.ensemble.rule
    sampler.run_.ensemble.start(rule._replace(log_time=rule.log_time + 15.0))
    with pytest.warns(SeparatedModesWarning, match="more than 8192 jumps and were cut short"):
        sampler.sample(2)


@pytest.mark.parametrize("blocks", [None, 2])
def test_transitions_cut_short_are_told_beside_redraws_of_blocks(blocks):
    """Draws made by a redraw alone have no rate; those of the others count."""
    n = 12
    pairs = [((0, i), [[1, 1e-9], [1, 1]]) for i in range(1, n)]
    target = MarkovNetwork([2] * n, [((0,), [1, 1e-8]), *pairs])
    sampler = LSBSampler("barker", rejection_free=True, blocks=blocks, n_burn_in=0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        sampler.fit(target, initial_states=np.zeros(n, int))
    sampler.state_tensor_ = np.ones((4, n), int)
    with pytest.warns(SamplerWarning) as told:
        sampler.sample(20)
    assert any("were cut short" in str(w.message) for w in told)
    rates = sampler.sample_stats_["acceptance_rate"]
    assert bool(np.isnan(rates).any()) == (blocks is not None)


def test_numpy_booleans():
    target = dense(3)
    settings = {"random_state": 0, "n_burn_in": 100, "blocks": None}
    assert LSBSampler("sqrt", rejection_free=np.True_, **settings).fit(target).rejection_free_
    steps = LSBSampler(rejection_free=np.False_, **settings).fit(target)
    assert not steps.rejection_free_
    assert not [n for n in steps.candidates_["candidate"].values if n.startswith("jump_")]


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
def test_explorers_are_made_for_their_target():
    small, large = Ising(np.zeros((2, 2))), Ising.lattice(np.zeros((8, 8)), coupling=0.3)
    explorer = LSBSampler("sqrt").fit(small)
    settings = {"n_replicas": 3, "n_chains": 2, "crossover": False, "random_state": 0}
    tempering = sklsb.ParallelTempering(explorer, **settings)
    assert tempering.fit(large).sample(20).x.shape == (2, 20, 8, 8)
    for settings in ({"rejection_free": True}, {"factors": np.ones(64)}):
        wrong = sklsb.ParallelTempering(LSBSampler("sqrt", **settings))
        with pytest.raises(ValueError, match="Replicas make single steps without factors"):
            wrong.fit(large)

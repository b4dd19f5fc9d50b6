"""Objectives are the mutual information, or what is said of them; learning is safe."""

import importlib
import warnings

import enumerated_objectives as enumerated
import numpy as np
import pytest
from models import FUNCTIONS, GRAPHS, LEARNABLE, dense, ising, pairs, potts
from scipy.special import logsumexp

import sklsb
from sklsb import Ising, LSBSampler, Mixture, Network, Potts, Sqrt, exact
from sklsb._kernels import objectives
from sklsb._kernels.rules.balanced import Balanced
from sklsb.balancing import Barker
from sklsb.balancing.functions import get_balancing
from sklsb.balancing.learning import MIXING, OBJECTIVES, Adam, Learner, relative_weights
from sklsb.ensembles.streams import Streams
from sklsb.exact.matrices import transitions
from sklsb.exceptions import PrecisionWarning, SamplerWarning
from sklsb.samplers._lsb.fitting import Learning
from sklsb.testing._probe import Probe

EVERY_OBJECTIVE = ("auto", *OBJECTIVES, *MIXING)


def objective(name, target, table, log_omega, *, states=None, u=0.5, eta=1.0, every=1):
    """Values and gradients at every state, or at those given."""
    x = exact.states(target) if states is None else states
    chains = Probe(target, Balanced(table), x).ensemble
    uniforms = np.broadcast_to(np.asarray(u, dtype=float), (len(x), 2)).copy()
    given = OBJECTIVES[name]
    if given.enumerated:
        found = enumerated._found_enumerated(
            given, Balanced(table), log_omega, chains, every, uniforms[:, 1]
        )
        return found[:2]
    out = (np.empty((len(x), 1, table.value.size)), np.empty(len(x)), np.empty(len(x)))
    span = (0, len(x))
    objectives.sampled(
        chains.view, Balanced(table), chains.chains, span, eta, uniforms, log_omega, out
    )
    return out[1], out[0][:, 0]


def by_definition(table, target, log_omega, eta=1.0):
    known = enumerated._Enumerated.of(target)
    return enumerated._objectives(Balanced(table), known, log_omega, eta, np.ones(target.n_sites))


def log_target(target):
    return target.log_prob(exact.states(target))


# ----------------------------------------------------------------- values and gradients


@pytest.mark.parametrize("function", LEARNABLE.values(), ids=LEARNABLE)
@pytest.mark.parametrize("d", [1, 2, 4])
def test_objectives_and_gradients_are_those_of_the_enumerated_ones(d, function):
    enumerated.check_objectives(function, dense(d, seed=d))


def test_objectives_and_gradients_on_eight_sites():
    enumerated.check_objectives(FUNCTIONS["mlp"], dense(8, scale=0.3))


@pytest.mark.parametrize("graph", GRAPHS[-11:], ids=lambda g: f"{g.size()} edges {g.name}")
def test_objectives_and_gradients_on_every_graph_of_four_vertices(graph):
    enumerated.check_objectives(FUNCTIONS["mixture"], ising(graph, "random", seed=3), eta=1.7)


@pytest.mark.parametrize("kind", ["random", "zeros", "evidence"])
@pytest.mark.parametrize("name", ["mixture", "monotone", "bounded-network"])
def test_objectives_and_gradients_of_three_values(name, kind):
    for seed, graph in enumerate((GRAPHS[-1], GRAPHS[-3])):
        enumerated.check_objectives(FUNCTIONS[name], potts(graph, kind, seed=seed))
    enumerated.check_objectives(FUNCTIONS[name], potts(GRAPHS[-2], kind, k=2), eta=1.7)


@pytest.mark.parametrize("scale", [30.0, 300.0])
def test_exact_objective_where_weights_span_hundreds_of_nats(scale):
    # Z(x') must not come out as the small difference of two large sums.
    for seed in range(40):
        target, table = dense(5, seed, scale), Barker().table()
        value, gradient = objective("exact", target, table, np.zeros(32))
        expected = by_definition(table, target, np.zeros(32))["exact"]
        assert np.allclose(value, expected, rtol=1e-10, atol=1e-10)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("scale", [30.0, 300.0])
def test_gradients_stay_finite_where_weights_span_hundreds_of_nats(scale, name):
    for seed in range(10):
        target = dense(5, seed, scale)
        for u in (0.0, 0.5, 1 - 2.0**-53):
            value, gradient = objective(name, target, Mixture().table(), np.zeros(32), u=u)
            assert np.isfinite(value).all()
            assert np.isfinite(gradient).all()


def balanced(package, table):
    return importlib.import_module(f"{package.__name__}._kernels.rules.balanced").Balanced(table)


def of_each_move(package, table, target):
    """T (log T - l), T, Q and Q (1 - A) of each move, shape (4, n_states, n_moves)."""
    ratios = target.log_ratios(package.exact.states(target))
    function = package.balancing.functions.Tabulated(table)
    matrices = importlib.import_module("sklsb.exact.matrices")
    log_t = matrices.transitions(balanced(package, table), target).log_move
    log_w = function.log_g(ratios)
    log_q = log_w - logsumexp(log_w, axis=1, keepdims=True)
    log_a = np.where(log_t - log_q > -1e-13, 0.0, log_t - log_q)
    t, q = np.exp(log_t), np.exp(log_q)
    return np.stack([t * (log_t - ratios), t, q, q * -np.expm1(log_a)])


def check_stride(package, target, every, log_omega):
    """Every k-th neighbour stands for k, with a baseline that changes no mean."""
    checks, x = importlib.import_module("enumerated_objectives"), package.exact.states(target)
    smallest_stay = importlib.import_module("sklsb._kernels.objectives").SMALLEST_STAY
    table = package.Mixture([0.3, -0.2, 0.5, 0.0]).table()
    omega = np.exp(log_omega)
    parts = of_each_move(package, table, target)
    slopes = checks._numeric_gradient(lambda table: of_each_move(package, table, target)[:3], table)

    def evaluate(every, u):
        chains = package.testing._probe.Probe(target, balanced(package, table), x).ensemble
        exact = importlib.import_module(f"{package.__name__}.balancing.learning").OBJECTIVES[
            "exact"
        ]
        found = checks._found_enumerated(
            exact, balanced(package, table), log_omega, chains, every, u
        )
        return found[:2]

    move = np.arange(parts.shape[2])
    # What the baseline multiplies: over all moves it is zero, whatever the baseline is.
    assert np.abs(slopes[2].sum(axis=1)).max() <= 1e-9 * np.abs(slopes[2]).max()
    unbiased = 0.0
    for phase in range(every):
        visited = move % every == phase
        surprise, t, _, refused = every * parts[:, :, visited].sum(axis=2)
        by_surprise, by_t, by_q = every * slopes[:, :, visited].sum(axis=2)
        log_m = np.log(np.maximum(refused, 1.0 / visited.sum()))
        baseline = surprise / t - log_m
        value, gradient = evaluate(every, (phase + 0.5) / every)
        expected = omega * (surprise + refused * log_m - log_omega)
        assert np.allclose(value, expected, rtol=1e-9, atol=1e-9)
        # The gradient is that of sum T (log T - l - log M - 1) - b Q, with M and b held fixed.
        left_out = (omega * log_m)[:, None] * by_t + (omega * baseline)[:, None] * by_q
        wanted = omega[:, None] * (by_surprise - by_t) - left_out
        error = np.abs(gradient - wanted).max()
        assert error <= 1e-6 * np.abs(wanted).max(), "gradient over a part of the neighbours"
        unbiased += (gradient + left_out) / every
    whole = evaluate(1, 0.5)[1]
    log_m = np.log(np.maximum(parts[3].sum(axis=1), smallest_stay))
    whole = whole + (omega * log_m)[:, None] * slopes[1].sum(axis=1)
    assert np.abs(unbiased - whole).max() <= 1e-6 * np.abs(whole).max()


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("name", ["exact", "kl"])
@pytest.mark.parametrize("target", [dense(4), potts(GRAPHS[-1])], ids=["ising", "potts"])
def test_every_kth_neighbour_stands_for_k(target, name, every):
    check_stride(sklsb, target, every, relative_weights(log_target(target)) * (name == "exact"))


def test_every_chain_and_every_move_gets_its_turn(monkeypatch):
    target, n_chains = dense(6), 7
    states = np.stack([target.draw_state(np.random.default_rng(k)) for k in range(n_chains)])
    ensemble = Probe(target, Balanced(Mixture().table()), states).ensemble
    learner = Learner(Mixture(), "kl", Adam(0.1))
    for budget, every, n_visited in ((1 << 14, 1, 7), (3 * 36, 1, 3), (36, 1, 1), (12, 3, 1)):
        monkeypatch.setattr("sklsb.balancing.learning.UPDATE_COST", budget)
        learner.n_calls, total = 0, np.zeros(n_chains)
        for _ in range(n_chains):
            stride, log_share = learner.visits(n_chains, ensemble.cost)
            assert stride == every
            assert np.isfinite(log_share).sum() == n_visited
            total += np.exp(log_share)
        assert np.allclose(total, n_chains)  # each chain weighs 1 on average


# ----------------------------------------------------------------- the flux objectives


@pytest.mark.parametrize("kind", MIXING)
@pytest.mark.parametrize("target", [dense(5), potts(GRAPHS[-1])], ids=["ising", "potts"])
def test_flux_of_some_sites(target, kind):
    x, d = exact.states(target), target.n_sites
    rule = Balanced(FUNCTIONS["monotone"].table())
    ensemble = Probe(target, rule, x).ensemble
    weight = np.linspace(0.5, 2.0, d) if kind == "global_flux" else np.empty(0)
    _, _, flow = ensemble.flux(rule, np.arange(d), weight)
    for sites in ([0], [d - 1], [1, 3], [0, 2, 3]):
        some = np.array(sites)
        value, _, found = ensemble.flux(rule, some, weight[some] if weight.size else weight)
        assert np.allclose(found, flow[some], rtol=1e-14)
        if weight.size:
            assert np.isclose(value, weight[some] @ flow[some], rtol=1e-13)
        assert np.array_equal(ensemble.chains.x, x)

    def loss(table):
        return np.array(
            [ensemble.flux(Balanced(table), some, weight[some] if weight.size else weight)[0]]
        )

    found = ensemble.flux(rule, some, weight[some] if weight.size else weight)[1]
    numeric = enumerated._numeric_gradient(loss, rule.table)[0]
    assert np.abs(found - numeric).max() <= 1e-6 * np.abs(numeric).max()


@pytest.mark.parametrize("name", ["sqrt", "max", "barker"])
def test_a_flux_objective_leaves_the_states_where_probabilities_underflow(name):
    rule = Balanced(FUNCTIONS[name].table())
    zeros = np.zeros((3, 3))
    for target, x in (
        (Ising(zeros, [700.0, 0.5, 1e5]), np.ones((2, 3), dtype=np.int8)),
        (Potts(zeros, [[0, -700, -0.5], [0, 0.2, -1e4], [-np.inf, 0, 0]]), np.int8([[0, 0, 1]])),
        (Potts(zeros, [[0, -0.5, -700], [0, -1e4, 0.2], [0, 0, -np.inf]]), np.int8([[0, 0, 1]])),
    ):
        ensemble = Probe(target, rule, x).ensemble
        for weight in (np.empty(0), np.ones(3), np.array([1.0, 0.0, 2.0])):
            value, gradient, flow = ensemble.flux(rule, np.arange(3), weight)
            assert np.array_equal(ensemble.chains.x, x)
            assert np.isfinite([value, *gradient, *flow]).all()
            assert (flow > 0).sum() >= 1


# ----------------------------------------------------------------- what they measure


@pytest.mark.parametrize("name", FUNCTIONS)
def test_exact_objective_is_the_mutual_information(name):
    # I = L / Gamma + log Gamma, with Gamma the sum of p~; not log Gamma / Gamma, as printed.
    for seed in range(3):
        target, function = dense(5, seed), FUNCTIONS[name]
        log_p = log_target(target)
        gamma, log_gamma = np.exp(logsumexp(log_p)), logsumexp(log_p)
        assert abs(log_gamma) > 1
        total = objective("exact", target, function.table(), log_p)[0].sum()
        information = exact.mutual_information(function, target)
        assert np.isclose(total / gamma + log_gamma, information, rtol=0, atol=1e-10)
        assert abs(total / gamma + log_gamma / gamma - information) > 0.5


def test_exact_objective_of_the_learner_is_the_information_less_a_constant():
    # At all states, with weights relative to their mean: I - log(number of states).
    target, function = dense(6), FUNCTIONS["mlp"]
    log_omega = relative_weights(log_target(target))
    value = objective("exact", target, function.table(), log_omega)[0].mean()
    expected = exact.mutual_information(function, target) - np.log(64)
    assert np.isclose(value, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kl_weighted_by_p_is_the_information_less_the_entropy(name):
    for target in (dense(5), potts(GRAPHS[-1])):
        log_p = log_target(target)
        log_p = log_p - logsumexp(log_p)
        value = objective("kl", target, FUNCTIONS[name].table(), np.zeros(log_p.size))[0]
        information = exact.mutual_information(FUNCTIONS[name], target)
        expected = information + np.exp(log_p) @ log_p
        assert np.isclose(np.exp(log_p) @ value, expected, rtol=0, atol=1e-10)


def staying_parts(function, target, eta):
    """M log(M / omega); its bound with M itself; with 1 - T at a uniform neighbour; per state."""
    log_omega = relative_weights(log_target(target))
    omega = np.exp(log_omega)
    table = function.table()
    expected = by_definition(table, target, log_omega, eta)
    stay = transitions(Balanced(table), target).stay
    log_stay = np.log(np.where(stay > 0, stay, 1.0))
    exactly = omega * stay * (log_stay - log_omega)
    bound = stay * (eta * stay - omega * (np.log(eta) + 1))
    sampled = expected["bound"] - expected["exact"] + exactly
    return exactly, bound, sampled


@pytest.mark.parametrize("eta", [1e-3, 0.1, np.exp(-1), 1.0, 3.0, 50.0])
def test_the_bound_with_the_true_probability_of_staying_is_a_bound(eta):
    for name in ("mlp", "barker", "max"):
        for seed in range(5):
            exactly, bound, _ = staying_parts(FUNCTIONS[name], dense(5, seed), eta)
            assert np.all(bound >= exactly - 1e-12 * (1 + np.abs(bound)))


@pytest.mark.parametrize("eta", [1e-3, 0.1, np.exp(-1)])
def test_case_b_is_a_bound_for_small_eta(eta):
    # M [eta M - omega (log eta + 1)] increases with M as long as log eta <= -1.
    for name in ("mlp", "barker", "max"):
        for seed in range(5):
            exactly, bound, sampled = staying_parts(FUNCTIONS[name], dense(5, seed), eta)
            assert np.all(sampled >= bound - 1e-12 * (1 + np.abs(bound)))
            assert np.all(sampled >= exactly - 1e-12 * (1 + np.abs(bound)))


def test_case_b_is_not_a_bound_in_general():
    # On a flat target every move is accepted: M = 0, but 1 - T = 1 - 1/d at one neighbour.
    exactly, _, sampled = staying_parts(Sqrt(), Ising(np.zeros((4, 4))), eta=1.0)
    assert np.allclose(exactly, 0.0, atol=1e-14)
    assert np.allclose(sampled, 0.75 * (0.75 - 1.0), atol=1e-14)


# ----------------------------------------------------------------- invariance


def loops(couplings):
    """The same with self-loops, which are constants: 1e6 altogether, and more."""
    return couplings + np.diag([1e6, 0, -3, 0, 0.1, 2.0**20][: len(couplings)])


@pytest.mark.parametrize("name", EVERY_OBJECTIVE)
@pytest.mark.parametrize("model", ["ising", "potts"])
def test_a_constant_in_log_p_leaves_theta_bit_equal(model, name):
    target = dense(6) if model == "ising" else potts(GRAPHS[-1])
    cls = type(target)
    shifted = cls(loops(target.couplings.toarray()), target.field)
    assert shifted.constant > 1e5
    for function in (Mixture(),) if model == "potts" else ("learned",):
        one, other = (
            LSBSampler(function, objective=name, n_burn_in=100, random_state=0).fit(model)
            for model in (target, shifted)
        )
        moving = one.burn_in_balancing_.theta
        assert not np.array_equal(moving, get_balancing(function).theta)
        assert np.array_equal(moving, other.burn_in_balancing_.theta)
        assert repr(one.balancing_) == repr(other.balancing_)
        for a, b in zip(one.balancing_.table(), other.balancing_.table(), strict=True):
            assert np.array_equal(a, b)
        assert one.candidates_.identical(other.candidates_)
        for key in one.history_:
            if key != "lp":
                assert one.history_[key].identical(other.history_[key])
        assert np.array_equal(one.sample(1000)["x"], other.sample(1000)["x"])


def test_weights_are_relative():
    log_p = np.array([-3.0, 5.0, 0.5, -700.0])
    weights = relative_weights(log_p)
    assert np.isclose(np.exp(weights).mean(), 1.0)
    assert np.allclose(relative_weights(log_p + 1e6), weights, rtol=0, atol=1e-9)
    assert np.allclose(relative_weights(log_p - 1e300), 0.0)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_permuted_chains_change_the_gradient_by_rounding(name):
    target, rng = dense(7), np.random.default_rng(0)
    states = np.stack([target.draw_state(rng) for _ in range(20)])
    u, order = rng.random((20, 2)), rng.permutation(20)
    table = Mixture().table()
    log_p = relative_weights(target.log_prob(states))
    again = relative_weights(target.log_prob(states[order]))
    one = objective(name, target, table, log_p, states=states, u=u)[1]
    other = objective(name, target, table, again, states=states[order], u=u[order])[1]
    assert np.allclose(other, one[order], rtol=0, atol=1e-13 * np.abs(one).max())
    assert np.allclose(other.mean(0), one.mean(0), rtol=0, atol=1e-13 * np.abs(one).max())


# ----------------------------------------------------------------- learning


def check_bad_batch(package, bad, objective="bound"):
    """A gradient that is not finite is left out and counted, and learning goes on."""
    learning = importlib.import_module(f"{package.__name__}.balancing.learning")
    learner = learning.Learner(package.Mixture(), objective, learning.Adam(0.01))
    knots = np.linspace(1, 2, learner.function.knots.size)
    learner.update(0.0, knots, 0.1)
    theta, eta = learner.function.theta, learner.eta
    for gradient, by_eta in ((np.full(knots.size, bad), 0.0), (bad * knots, bad)):
        learner.update(bad, gradient, by_eta)
        assert np.array_equal(learner.function.theta, theta), "a bad batch leaves theta"
        assert learner.eta == eta
    assert learner.n_skipped == 2
    learner.update(0.0, knots, 0.1)
    assert np.isfinite(learner.function.theta).all(), "theta stays finite"
    assert not np.array_equal(learner.function.theta, theta), "learning goes on"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200], ids=str)
def test_a_bad_batch_leaves_theta(bad):
    check_bad_batch(sklsb, bad)


@pytest.mark.parametrize(
    ("kind", "name"), pairs(["flat", "field 45", "field 700", "field 1e300"], EVERY_OBJECTIVE)
)
def test_theta_stays_finite_on_extreme_targets(kind, name):
    for function in (Network(), FUNCTIONS["bounded-network"]):
        sampler = LSBSampler(function, objective=name, pilot=False, n_burn_in=200, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplerWarning)
            warnings.simplefilter("ignore", PrecisionWarning)  # of the field of 1e300
            sampler.fit(ising(GRAPHS[-1], kind))
        for learned in (sampler.balancing_, sampler.burn_in_balancing_):
            assert np.isfinite(learned.theta).all()
            assert np.isfinite(learned.table().value).all()


@pytest.mark.parametrize("name", EVERY_OBJECTIVE)
def test_the_frozen_function_is_bit_equal_after_a_million_steps(name):
    sampler = LSBSampler(objective=name, pilot=False, n_burn_in=200, n_chains=2, random_state=0)
    sampler.fit(dense(6))
    theta, value = sampler.balancing_.theta.copy(), sampler.balancing_.table().value.copy()
    sampler.sample(1000, thin=500)
    assert np.array_equal(sampler.balancing_.theta, theta)
    assert np.array_equal(sampler.balancing_.table().value, value)


def test_learning_lowers_the_mutual_information():
    target = dense(8, scale=0.3)
    sampler = LSBSampler("mixture", objective="exact", pilot=False, n_chains=30, random_state=0)
    before = exact.mutual_information(sampler, target)
    assert exact.mutual_information(sampler.fit(target), target) < before


def test_a_good_batch_moves_theta_down_the_gradient():
    learner = Learner(Mixture(), "exact", Adam(0.1))
    change = Adam(0.1).step(Mixture().vjp(np.ones_like(Mixture().knots)))
    learner.update(1.0, np.ones_like(Mixture().knots), 0.0)
    assert np.allclose(learner.function.theta, change)
    assert learner.n_skipped == 0


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_of_the_fast_path_are_those_of_the_kernel(name):
    # On an Ising model first-order log-ratios are exact, and both look at the same neighbours.
    pytest.importorskip("torch", reason="fast=True runs on torch")
    target, rng = dense(7), np.random.default_rng(0)
    states = np.stack([target.draw_state(rng) for _ in range(20)])
    rngs, uniforms = [rng] * 20, rng.random((20, 2))
    log_omega = relative_weights(target.log_prob(states))
    settings = (OBJECTIVES[name], 0.7, 1)
    rule = Balanced(FUNCTIONS["mixture"].table())
    results = []
    for fast in (True, False):
        ensemble = Learning(LSBSampler(fast=fast), target).make_ensemble(states, Streams(rngs))
        ensemble.start(rule)
        results.append(ensemble.objective(rule, settings, uniforms, log_omega))
    found, expected = results
    assert np.isclose(found[0], expected[0], rtol=1e-12)
    assert np.allclose(found[1], expected[1], rtol=0, atol=1e-12 * np.abs(expected[1]).max())
    assert np.isclose(found[2], expected[2], rtol=1e-11)

"""The burn-in: optimisers by hand, what learning changes and what it may never do."""

import itertools
import math

import numpy as np
import pytest

from sklsb import Ising, LSBSampler, Mixture, Network
from sklsb._ensemble import Ensemble
from sklsb.balancing import LearnableFunction
from sklsb.learning import OBJECTIVES, OPTIMIZERS, Adam, Learner, Momentum, relative_weights

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning"),
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.ShortRunWarning"),
]

FUNCTIONS = {
    "mixture": Mixture(),
    "sum mlp": Network("sum", "mlp"),
    "min mlp": Network("min", "mlp"),
    "sum monotonic": Network("sum", "monotonic"),
    "min monotonic": Network("min", "monotonic"),
}
each_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
each_objective = pytest.mark.parametrize("objective", OBJECTIVES)


@pytest.fixture(scope="module")
def target():
    field = np.random.default_rng(0).normal(size=(4, 4))
    return Ising.lattice(field, coupling=0.3)


def fitted(target, balancing="learned", **params):
    initial_states = params.pop("initial_states", None)
    params = {"n_chains": 3, "n_burn_in": 150, "random_state": 0} | params
    return LSBSampler(balancing, **params).fit(target, initial_states=initial_states)


# ----------------------------------------------------------------- optimisers, by hand


def test_adam_by_hand():
    rate, theta = 0.1, np.array([1.0, -2.0])
    gradients = [np.array([0.5, -1.0]), np.array([-0.25, 3.0]), np.array([0.0, 1e-3])]
    m, v = np.zeros(2), np.zeros(2)
    adam = Adam(rate)
    for t, gradient in enumerate(gradients, start=1):
        for k in range(2):
            m[k] = 0.9 * m[k] + 0.1 * gradient[k]
            v[k] = 0.999 * v[k] + 0.001 * gradient[k] * gradient[k]
        by_hand = [
            -rate * (m[k] / (1 - 0.9**t)) / (math.sqrt(v[k] / (1 - 0.999**t)) + 1e-8)
            for k in range(2)
        ]
        change = adam.step(gradient)
        np.testing.assert_allclose(change, by_hand, rtol=1e-12)
        theta = theta + change
    # The first step has the length of the learning rate in every coordinate.
    np.testing.assert_allclose(Adam(rate).step(gradients[0]), [-0.1, 0.1], rtol=1e-6)


def test_momentum_by_hand():
    sgd = Momentum(0.2)
    np.testing.assert_allclose(sgd.step(np.array([1.0, 0.0])), [-0.2, 0.0])
    np.testing.assert_allclose(sgd.step(np.array([1.0, -2.0])), [-0.38, 0.4])
    np.testing.assert_allclose(sgd.step(np.array([0.0, 0.0])), [-0.342, 0.36])


def test_optimisers_find_a_minimum():
    for name, rate in (("adam", 0.05), ("sgd", 0.02)):
        optimizer, theta = OPTIMIZERS[name](rate), np.array([3.0, -2.0])
        for _ in range(800):
            theta = theta + optimizer.step(2 * (theta - [1.0, 0.5]) * [1.0, 5.0])
        np.testing.assert_allclose(theta, [1.0, 0.5], atol=1e-3)


# ----------------------------------------------------------------- every objective and function


@each_objective
@each_function
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_theta_moves_and_stays_finite(target, function, objective, optimizer):
    sampler = fitted(target, function, objective=objective, optimizer=optimizer, learning_rate=0.01)
    history = sampler.history_
    assert history.attrs["skipped_updates"] == 0
    for name in ("objective", "theta", "gradient_norm", "lp", "acceptance_rate"):
        assert np.isfinite(history[name]).all()
    assert history["theta"].shape == (150, function.theta.size)
    assert (history["gradient_norm"] >= 0).all()
    assert (history["theta"].values[0] != function.theta).any()
    assert (history["theta"].values[-1] != history["theta"].values[0]).any()
    np.testing.assert_array_equal(sampler.balancing_.theta, history["theta"].values[-1])
    assert type(sampler.balancing_) is type(function)
    assert np.isfinite(sampler.sample(50)["x"]).all()


@each_objective
@each_function
def test_learning_rate_zero_leaves_theta_bit_equal(target, function, objective):
    for optimizer in OPTIMIZERS:
        sampler = fitted(
            target, function, objective=objective, optimizer=optimizer, learning_rate=0.0
        )
        assert sampler.balancing_.theta.tobytes() == function.theta.tobytes()
        assert np.isfinite(sampler.history_["objective"]).all()


def test_learning_rate_by_objective(target):
    for objective, rate in (("exact", 0.05), ("bound", 0.01), ("kl", 0.01)):
        default = fitted(target, "mixture", objective=objective)
        given = fitted(target, "mixture", objective=objective, learning_rate=rate)
        np.testing.assert_array_equal(default.balancing_.theta, given.balancing_.theta)
        # Adam's first step: the learning rate, in every coordinate with a gradient.
        first = np.abs(default.history_["theta"].values[0])
        assert first.max() == pytest.approx(rate, rel=1e-3)


def test_fixed_functions_learn_nothing(target):
    sampler = fitted(target, "min")
    assert sampler.history_["theta"].shape == (150, 0)
    assert np.isnan(sampler.history_["objective"]).all()
    assert sampler.history_.attrs["skipped_updates"] == 0


class FreeKnots(LearnableFunction):
    """A user's learnable function: the values at nine places, linear in between."""

    def __init__(self, theta=None):
        self.theta = self._check_theta(np.zeros(9) if theta is None else theta, 9)

    def even_part(self, u):
        return np.interp(np.abs(u), np.linspace(0, 8, 9), self.theta)

    def vjp(self, grad_knots):
        basis = [np.interp(self.knots, np.linspace(0, 8, 9), row) for row in np.eye(9)]
        return np.array(basis) @ grad_knots


@each_objective
def test_a_users_learnable_function_is_learned(target, objective):
    sampler = fitted(target, FreeKnots(), objective=objective)
    assert isinstance(sampler.balancing_, FreeKnots)
    assert (sampler.balancing_.theta != 0).any()
    assert np.isfinite(sampler.balancing_.theta).all()


# ----------------------------------------------------------------- how much work


@pytest.mark.parametrize(
    ("objective", "n_burn_in", "updates"),
    [
        ("bound", 150, 150),
        ("bound", 2000, 2000),
        ("bound", 5000, 2000),
        ("kl", 3000, 2000),
        ("exact", 150, 150),
        ("exact", 5000, 200),
    ],
)
def test_at_most_two_thousand_updates(target, monkeypatch, objective, n_burn_in, updates):
    counts = {"updates": 0, "transitions": 0}
    update, advance = Learner.update, Ensemble.advance

    def counted_update(self, *args):
        counts["updates"] += 1
        return update(self, *args)

    def counted_advance(self, table, uniforms):
        counts["transitions"] += uniforms.shape[1]
        return advance(self, table, uniforms)

    monkeypatch.setattr(Learner, "update", counted_update)
    monkeypatch.setattr(Ensemble, "advance", counted_advance)
    sampler = fitted(target, "mixture", objective=objective, n_burn_in=n_burn_in)
    assert counts == {"updates": updates, "transitions": n_burn_in}
    iteration = sampler.history_["iteration"].values
    assert iteration.size == updates
    assert iteration[-1] == n_burn_in
    lengths = np.diff(iteration, prepend=0)
    assert lengths.max() - lengths.min() <= 1


@each_objective
def test_one_transition_per_iteration(target, objective):
    start = np.random.default_rng(0).choice([-1, 1], size=(3, 16))
    sampler = fitted(
        target, "learned", objective=objective, keep_burn_in=True, initial_states=start
    )
    states = sampler.burn_in_["x"].values.reshape(3, 150, 16)
    flips = (np.diff(np.concatenate([start[:, None], states], axis=1), axis=1) != 0).sum(axis=2)
    assert flips.max() == 1
    # A chain that made two transitions per iteration would show pairs of flips; one that made
    # fewer would rest: this target accepts nearly always.
    assert flips.mean() > 0.7


@each_objective
@pytest.mark.filterwarnings("ignore::sklsb.exceptions.PeriodicChainWarning")
def test_the_transition_uses_the_parameters_from_before_the_update(target, objective):
    # The first transition is that of the initial function, learning or not.
    start = np.random.default_rng(1).choice([-1, 1], size=(3, 16))
    states = [
        fitted(
            target,
            "mixture",
            objective=objective,
            n_burn_in=1,
            learning_rate=rate,
            initial_states=start,
        ).state_
        for rate in (0.0, 5.0)
    ]
    np.testing.assert_array_equal(*states)


# ----------------------------------------------------------------- learning does what it says


def brute_force_information(function, target):
    """Mutual information of consecutive states, summed over all pairs of states."""
    states = np.array(list(itertools.product((-1, 1), repeat=target.n_sites)))
    index = {tuple(x): k for k, x in enumerate(states)}
    log_p = target.log_prob(states)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    weights = np.exp(function.tabulated().log_g(target.log_ratios(states)))
    total = weights.sum(axis=1)
    information = 0.0
    for k, x in enumerate(states):
        stay = 1.0
        for i in range(target.n_sites):
            y = x.copy()
            y[i] = -y[i]
            other = index[tuple(y)]
            t = weights[k, i] / total[k] * min(1.0, total[k] / total[other])
            stay -= t
            information += p[k] * t * math.log(t / p[other])
        if stay > 1e-14:
            information += p[k] * stay * math.log(stay / p[k])
    return information


@pytest.mark.parametrize("start", [[0, 0, 0, 6.0], [0, 0, 6.0, 0]], ids=["max", "min"])
def test_exact_lowers_the_mutual_information(start):
    rng = np.random.default_rng(0)
    upper = np.triu(rng.normal(scale=0.4, size=(5, 5)), 1)
    tiny = Ising(upper + upper.T, rng.normal(scale=0.5, size=5))
    before = brute_force_information(Mixture(start), tiny)
    # Every state stands for one chain; none of them moves far in a step.
    sampler = fitted(tiny, Mixture(start), objective="exact", n_chains=64, n_burn_in=400, lazy=0.5)
    after = brute_force_information(sampler.balancing_, tiny)
    grid = [brute_force_information(Mixture(10.0 * np.array(corner)), tiny) for corner in np.eye(4)]
    assert after < before - 0.3 * (before - min(grid))


def test_more_learning_is_no_worse():
    field = np.random.default_rng(3).normal(scale=0.7, size=5)
    tiny = Ising(np.zeros((5, 5)), field)
    values = [brute_force_information(Mixture([0, 0, 0, 4.0]), tiny)]
    for n in (100, 400, 1600):
        sampler = fitted(
            tiny, Mixture([0, 0, 0, 4.0]), objective="exact", n_chains=64, n_burn_in=n, lazy=0.5
        )
        values.append(brute_force_information(sampler.balancing_, tiny))
    assert values[-1] < values[0]
    assert values[-1] <= min(values) + 0.02


# ----------------------------------------------------------------- bad batches


class Spoiled:
    """Ensemble.objective that returns something not finite at some calls."""

    def __init__(self, which, spoil):
        self.which, self.spoil, self.n = which, spoil, 0
        self.original = Ensemble.objective

    def __call__(self, ensemble, *args):
        result = self.original(ensemble, *args)
        self.n += 1
        return self.spoil(result) if self.n - 1 in self.which else result


def nan_gradient(result):
    gradient = result[1].copy()
    gradient[3] = np.nan
    return result[0], gradient, result[2]


def infinite_gradient(result):
    return np.inf, np.full_like(result[1], np.inf), result[2]


def nan_everything(result):
    return np.nan, np.full_like(result[1], np.nan), np.nan


@pytest.mark.parametrize("spoil", [nan_gradient, infinite_gradient, nan_everything])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("balancing", ["mixture", "learned", Network("min", "monotonic")])
def test_bad_batches_are_left_out_and_counted(target, monkeypatch, balancing, optimizer, spoil):
    which = {0, 7, 8, 9, 40, 119}
    spoiled = Spoiled(which, spoil)
    monkeypatch.setattr(Ensemble, "objective", lambda self, *args: spoiled(self, *args))
    sampler = fitted(
        target,
        balancing,
        objective="bound",
        optimizer=optimizer,
        learning_rate=0.01,
        n_burn_in=120,
    )
    theta = sampler.history_["theta"].values
    assert sampler.history_.attrs["skipped_updates"] == len(which)
    assert np.isfinite(theta).all()
    changed = (np.diff(theta, axis=0) != 0).any(axis=1)
    for k in which - {0}:
        assert not changed[k - 1]
    assert changed[[0, 1, 20, 60]].all()
    assert np.isfinite(sampler.sample(20)["x"]).all()


def test_when_every_batch_is_bad_theta_stays(target, monkeypatch):
    monkeypatch.setattr(
        Ensemble,
        "objective",
        lambda self, table, *args: (0.0, np.full(table.value.size, np.nan), 0),
    )
    sampler = fitted(target, "learned")
    assert sampler.history_.attrs["skipped_updates"] == 150
    assert sampler.balancing_.theta.tobytes() == Network().theta.tobytes()


def test_a_step_into_parameters_without_a_finite_function_is_left_out(target, monkeypatch):
    monkeypatch.setattr(
        Ensemble, "objective", lambda self, table, *args: (0.0, np.full(table.value.size, 1e300), 0)
    )
    for balancing in ("mixture", "learned", Network("sum", "monotonic")):
        sampler = fitted(target, balancing, optimizer="sgd", learning_rate=1.0)
        assert np.isfinite(sampler.balancing_.theta).all()
        assert np.isfinite(sampler.balancing_.table().value).all()
        assert np.isfinite(sampler.sample(20)["x"]).all()


@each_objective
@each_function
def test_all_rejected_and_extreme_targets_leave_theta_finite(function, objective):
    n = 6
    mode = np.where(np.arange(n) % 2, 1, -1)
    for strength in (45.0, 700.0, 1e5):
        sampler = fitted(
            Ising(np.zeros((n, n)), strength * mode),
            function,
            objective=objective,
            n_burn_in=40,
            initial_states=mode,
        )
        assert np.isfinite(sampler.history_["theta"]).all()
        assert np.isfinite(sampler.history_["objective"]).all()
        np.testing.assert_array_equal(sampler.state_, np.tile(mode, (3, 1)))


@each_objective
@pytest.mark.parametrize("n_sites", [0, 1, 2])
def test_learning_on_the_smallest_targets(n_sites, objective):
    sampler = fitted(
        Ising(np.zeros((n_sites, n_sites)), 0.4), "learned", objective=objective, n_burn_in=30
    )
    assert np.isfinite(sampler.balancing_.theta).all()
    if n_sites == 0:
        assert sampler.balancing_.theta.tobytes() == Network().theta.tobytes()


# ----------------------------------------------------------------- parts


def test_relative_weights():
    log_p = np.array([-1000.0, -1001.0, -999.5, -1400.0])
    weights = np.exp(relative_weights(log_p))
    assert weights.mean() == pytest.approx(1.0)
    np.testing.assert_allclose(weights[1] / weights[0], np.exp(-1.0))
    np.testing.assert_allclose(
        relative_weights(log_p + 2.0**20), relative_weights(log_p), atol=1e-9
    )
    np.testing.assert_array_equal(relative_weights(np.array([7.0])), [0.0])


def test_eta_starts_at_one_and_moves_only_for_the_bound():
    for objective in OBJECTIVES:
        learner = Learner(Mixture(), objective, Adam(0.1))
        assert learner.eta == pytest.approx(1.0)
        learner.update(0.0, np.ones(Mixture().knots.size), 1.0)
        if objective == "bound":
            # d loss / d rho = d loss / d eta * sigmoid(rho) > 0: rho goes down by the rate.
            assert learner.rho == pytest.approx(math.log(math.expm1(1.0)) - 0.1, rel=1e-6)
        else:
            assert learner.eta == pytest.approx(1.0)


def test_the_penalty_belongs_to_kl_only():
    function = Network("min", "monotonic")
    theta = function.theta.copy()
    theta[400:] -= 0.7
    function = function.with_theta(theta)
    penalty, gradient = function.penalty()
    assert penalty > 0
    knots = np.zeros(function.knots.size)
    value, norm = Learner(function, "kl", Momentum(0.0)).update(0.0, knots, 0.0)
    assert value == pytest.approx(penalty)
    assert norm == pytest.approx(np.linalg.norm(gradient))
    value, norm = Learner(function, "exact", Momentum(0.0)).update(0.0, knots, 0.0)
    assert (value, norm) == (0.0, 0.0)


def test_update_is_the_optimisers_step():
    rng = np.random.default_rng(0)
    function = Mixture(rng.normal(size=4))
    by_knots = rng.normal(size=function.knots.size)
    learner = Learner(function, "exact", Momentum(0.25))
    value, norm = learner.update(1.5, by_knots, 0.0)
    gradient = function.vjp(by_knots)
    assert value == 1.5
    assert norm == pytest.approx(math.sqrt(sum(g * g for g in gradient)))
    np.testing.assert_allclose(learner.function.theta, function.theta - 0.25 * gradient)
    assert learner.n_skipped == 0

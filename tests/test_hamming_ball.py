"""The Hamming ball sampler: what it costs, how it behaves, and what it refuses."""

import math
import pickle
import time
import warnings

import exact_matrices  # noqa: F401 - formulas of the rules
import numpy as np
import pytest
import scipy.sparse as sp
from models import dense

from sklsb import (
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    MarkovNetwork,
    Potts,
    exact,
    testing,
)
from sklsb._kernels.enumeration import ball_size
from sklsb.exact.matrices import rule_of
from sklsb.exceptions import SamplerWarning, ShortRunWarning

INF = np.inf
_rng = np.random.default_rng(0)
# The first two variables are equal, the third has one value.
TIED = MarkovNetwork([2, 2, 1, 3], [((0, 1), np.diag([1.0, 3.0])), ((0, 3), _rng.random((2, 3)))])
BINARY = Ising(sp.csr_array((20, 20)))


def fitted(target, *args, **params):
    params = {"n_chains": 2, "n_burn_in": 20, "random_state": 0} | params
    return HammingBallSampler(*args, **params).fit(target)


def quietly(sampler, *args, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return sampler.sample(*args, **settings)


@pytest.mark.parametrize(
    ("sampler", "target"),
    [
        (HammingBallSampler(2), dense(3)),
        (HammingBallSampler(3, 2), dense(3)),
        (HammingBallSampler(), TIED),
        pytest.param(
            HammingBallSampler(2, 2, n_chains=1), TIED.condition({3: 1}), marks=pytest.mark.slow
        ),
        (HammingBallSampler(1, n_burn_in=0), dense(1)),
        (HammingBallSampler(keep_burn_in=True), Ising(np.zeros((0, 0)))),
    ],
    ids=str,
)
def test_sampler(sampler, target):
    testing.check_sampler(sampler, target, n_draws=30)


def test_a_ball_as_large_as_its_block_is_a_gibbs_step():
    target = dense(4)
    for size in (1, 2, 3, 4):
        found = exact.transition_matrix(HammingBallSampler(size, size), target)
        wanted = exact.transition_matrix(GibbsSampler("random", block_size=size), target)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)


def test_marginals_of_a_long_run():
    target = dense(6, scale=0.4)
    sampler = HammingBallSampler(4, 2, n_chains=4, random_state=0).fit(target)
    found = sampler.sample(4000, thin="sweep")["x"].values.mean(axis=(0, 1))
    wanted = exact.probabilities(target) @ exact.states(target)
    # 16,000 draws, of which at least a tenth count as independent.
    assert np.abs(found - wanted).max() < 6.5 / np.sqrt(1600)


# ----------------------------------------------------------------- sizes


@pytest.mark.parametrize("seed", range(5))
def test_the_size_of_a_ball(seed):
    rng = np.random.default_rng(seed)
    k = rng.integers(1, 5, size=6)
    states = np.array(list(np.ndindex(*k)))
    apart = (states != 0).sum(axis=1)
    for radius in range(7):
        assert ball_size(k, radius) == (apart <= radius).sum()


@pytest.mark.parametrize("radius", [1, 2, 3])
def test_the_size_of_a_ball_of_two_valued_variables(radius):
    rule = rule_of(HammingBallSampler(10, radius), BINARY)
    assert rule.n_states(BINARY) == sum(math.comb(10, r) for r in range(radius + 1))
    assert (rule.block_size, rule.radius, rule.facts.n_uniforms) == (10, radius, 12)
    assert rule.facts.transitions_per_sweep == 2


def test_the_largest_ball_of_mixed_variables():
    target = MarkovNetwork([2, 5, 3, 2, 4], [])
    rule = rule_of(HammingBallSampler(3, 2), target)
    assert rule.n_states(target) == 1 + (4 + 3 + 2) + (4 * 3 + 4 * 2 + 3 * 2)
    given = target.condition({1: 0, 4: 0})
    few = rule_of(HammingBallSampler(10, 7), given)
    assert (few.block_size, few.radius, few.n_states(given)) == (3, 3, 12)
    none = rule_of(HammingBallSampler(), target.condition(dict.fromkeys(range(5), 0)))
    assert (none.block_size, none.radius, none.n_states(target)) == (0, 0, 1)


def test_how_far_a_transition_goes():
    """At most twice the radius, within the block."""
    target = Ising(np.zeros((12, 12)))
    for size, radius, most in ((10, 1, 2), (10, 2, 4), (3, 3, 3), (4, 3, 4)):
        x = quietly(fitted(target, size, radius), 400)["x"].values
        changes = (x[:, 1:] != x[:, :-1]).sum(axis=2)
        assert changes.max() == most


# ----------------------------------------------------------------- what a ball costs


class Counting:
    """A function of the agreements in a row that counts the states that it is given."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return 0.3 * float((x[1:] == x[:-1]).sum()) + 0.1 * float(x[0])


@pytest.mark.parametrize(
    ("size", "radius", "k", "n_states"),
    [(10, 1, 2, 11), (10, 2, 2, 56), (10, 3, 2, 176), (4, 2, 3, 33), (3, 3, 2, 8), (1, 1, 4, 4)],
)
def test_a_ball_of_n_states_takes_at_most_n_values(size, radius, k, n_states):
    f = Counting()
    sampler = fitted(FunctionTarget(f, 14, k, vectorized=False), size, radius, n_chains=1)
    f.calls, before = 0, sampler.n_evaluations_
    quietly(sampler, 1, thin=40)
    # The centre and the others; one less where it is the present state and its value is known.
    # Log p of the draw may be one more, and before it whether log p is still the same; this is
    # asked at four neighbours, too, before and after.
    assert (n_states - 1) * 40 <= f.calls - 8 <= n_states * 40 + 2
    assert sampler.n_evaluations_ - before == 40 * (n_states - 1)


@pytest.mark.parametrize(("radius", "mean"), [(1, 10 / 11), (2, 100 / 56)])
def test_the_way_to_the_centre_counts(radius, mean):
    """A target that knows its log-ratios goes there by these."""
    sampler = fitted(BINARY, 10, radius, n_chains=1)
    before, n = sampler.n_evaluations_, 3000
    quietly(sampler, 1, thin=n)
    ball = sum(math.comb(10, r) for r in range(1, radius + 1))
    way = (sampler.n_evaluations_ - before) / n - ball
    assert 0 < way <= radius
    assert abs(way - mean) < 6.5 * radius / np.sqrt(n)


class OddError(Exception):
    pass


class Failing:
    left = INF

    def __call__(self, x):
        self.left -= 1
        if self.left == 0:
            raise OddError("odd")
        return -INF if x[0] != x[1] else -0.2 * float(x.sum())


@pytest.mark.parametrize("nth", [1, 2, 3, 8, 23])
def test_an_error_in_the_middle_of_a_ball(nth):
    f = Failing()
    target = FunctionTarget(f, 6, vectorized=False, initial_state=[0] * 6)
    sampler = fitted(target, 5, 2)
    before = sampler.state_
    f.left = nth
    with pytest.raises(OddError, match="odd"):
        quietly(sampler, 20)
    np.testing.assert_array_equal(sampler.state_, before)
    f.left = INF
    x = quietly(sampler, 300)["x"].values
    assert (x[..., 0] == x[..., 1]).all()
    assert len(np.unique(x[0], axis=0)) > 10
    np.testing.assert_allclose(sampler.sample_stats_["lp"], target.log_prob(x))


def test_functions_give_the_chains_of_a_network():
    """By log p as a whole to the centre, and by log-ratios: through impossible states too."""
    table = np.array([[1.0, 0.0, 2.0], [0.0, 1.5, 0.5], [1.0, 1.0, 0.0]])
    network = MarkovNetwork([3] * 4, [((i, i + 1), table) for i in range(3)])
    with np.errstate(divide="ignore"):
        log_table = np.log(table)

    def f(x):
        return log_table[x[..., :-1], x[..., 1:]].sum(axis=-1)

    for size, radius in ((3, 1), (4, 2)):
        draws = [
            quietly(
                HammingBallSampler(size, radius, n_burn_in=0, n_chains=2, random_state=0).fit(
                    target, initial_states=[0] * 4
                ),
                200,
            )["x"].values
            for target in (network, FunctionTarget(f, 4, 3, initial_state=[0] * 4))
        ]
        np.testing.assert_array_equal(*draws)
        assert len(np.unique(draws[0].reshape(-1, 4), axis=0)) > 10


# ----------------------------------------------------------------- how it behaves


def test_defaults():
    assert HammingBallSampler().get_params() == {
        "block_size": 10,
        "radius": 1,
        "n_chains": 4,
        "n_burn_in": None,
        "init": "auto",
        "n_jobs": None,
        "random_state": None,
        "verbose": 0,
        "warm_start": False,
        "keep_burn_in": False,
    }


def test_sweeps_and_burn_in():
    for size, per_sweep in ((10, 2), (7, 3), (1, 20), (30, 1)):
        sampler = HammingBallSampler(size, n_chains=1, random_state=0).fit(BINARY)
        assert sampler.history_["iteration"][-1] == 100 * per_sweep
        draws = quietly(sampler, 3, thin="sweep")
        assert draws.attrs["thin"] == per_sweep
    assert list(sampler.sample_stats_) == ["lp"]
    assert set(sampler.history_) == {"lp"}


def test_short_runs():
    sampler = fitted(BINARY, 6, 6)
    with pytest.warns(SamplerWarning) as told:
        sampler.sample(2)
    said = [str(w.message) for w in told if w.category is ShortRunWarning]
    assert len(said) == 1
    assert "Each chain has made 2 transitions since fit" in said[0]
    sampler = fitted(BINARY, 10, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShortRunWarning)
        quietly(sampler, 2)


def test_variables_that_move_are_noted():
    for target in (Ising(np.zeros((4, 4))), TIED, TIED.condition({3: 0})):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            x = fitted(target, 3).sample(500)["x"].values
        k = target.cardinalities
        changed = (x[:, 1:] != x[:, :-1]).any(axis=(0, 1))
        np.testing.assert_array_equal(changed, target.n_possible > 1)
        assert k.size == changed.size


def test_threads_change_nothing():
    one, two = (fitted(BINARY, 5, 2, n_chains=3, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(quietly(one, 40)["x"], quietly(two, 40)["x"])
    assert one.n_evaluations_ == two.n_evaluations_


# ----------------------------------------------------------------- errors

ERRORS = [
    ({"block_size": 0}, BINARY, ValueError, "block_size is 0; it must be at least 1"),
    ({"block_size": 1.5}, BINARY, TypeError, r"block_size is 1\.5; give an integer"),
    ({"block_size": True}, BINARY, TypeError, "block_size is True; give an integer"),
    ({"radius": 0}, BINARY, ValueError, "radius is 0; it must be at least 1"),
    ({"radius": 2.0}, BINARY, TypeError, r"radius is 2\.0; give an integer of at least 1"),
    ({"radius": False}, BINARY, TypeError, "radius is False; give an integer"),
    (
        {"block_size": 3, "radius": 4},
        BINARY,
        ValueError,
        "radius is 4; it must be at most block_size, which is 3",
    ),
    (
        {"block_size": 20, "radius": 5},
        BINARY,
        ValueError,
        r"HammingBallSampler\(20, radius=5\) would enumerate 21700 states in a transition; at most "
        r"4096 are\. Take a smaller radius or block_size",
    ),
    (
        {"block_size": 9, "radius": 8},
        Potts(np.zeros((9, 9)), np.zeros((9, 3))),
        ValueError,
        "would enumerate 19171 states",
    ),
    ({"block_size": 1}, MarkovNetwork([5000, 2], []), ValueError, "would enumerate 5000 states"),
    ({"n_burn_in": -1}, BINARY, ValueError, "n_burn_in is -1; it must be at least 0"),
    ({"warm_start": None}, BINARY, TypeError, "warm_start is None; give True or False"),
    ({"keep_burn_in": "no"}, BINARY, TypeError, "keep_burn_in is 'no'; give True or False"),
    ({}, BINARY.field, TypeError, "not a sklsb Target"),
]


@pytest.mark.parametrize(
    ("params", "target", "error", "message"), ERRORS, ids=[f"{p}-{m[:20]}" for p, _, _, m in ERRORS]
)
def test_wrong_parameters(params, target, error, message):
    """They are refused before a chain moves: a fitted sampler goes on as if nothing had been."""
    with pytest.raises(error, match=message):
        HammingBallSampler(**params).fit(target)
    sampler = fitted(BINARY)
    untouched = pickle.loads(pickle.dumps(sampler))
    with pytest.raises(error, match=message):
        sampler.set_params(**params).fit(target)
    assert sampler.target_ is BINARY
    np.testing.assert_array_equal(quietly(sampler, 5)["x"], quietly(untouched, 5)["x"])


@pytest.mark.parametrize("radius", [2, 3, 1000, 20_000])
def test_enormous_balls_are_refused_at_once(radius):
    target = Ising(sp.csr_array((30_000, 30_000)))
    began = time.perf_counter()
    with pytest.raises(ValueError, match="would enumerate more than 1000000 states"):
        HammingBallSampler(20_000, radius).fit(target)
    assert time.perf_counter() - began < 5.0

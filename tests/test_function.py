"""A function as a target: against the compiled Ising model, enumeration, and what goes wrong."""

import copy
import inspect
import math
import os
import pickle
import re
import signal
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from enumerated_objectives import check_objectives
from local_step import check_sampler, production_matrix
from models import FUNCTIONS

from sklsb import (
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    ParallelTempering,
    exact,
    testing,
)
from sklsb.exceptions import (
    FrozenSitesWarning,
    InterruptedWarning,
    ModelWarning,
    SamplerWarning,
    TemperingWarning,
)
from sklsb.targets import function
from sklsb.testing._samplers import check_kept

INF = np.inf
D = 6
_rng = np.random.default_rng(0)
_upper = np.triu(_rng.choice([-2, -1, 1, 2], (D, D)), 1)
J, H = _upper + _upper.T, _rng.integers(-2, 3, D)
COUPLING, FIELD = J.tolist(), H.tolist()
ISING = Ising(J / 8, H / 8)


def batched(x):
    s = 2 * x - 1
    return (0.5 * ((s @ J) * s).sum(axis=-1) + s @ H) / 8


def single(x):
    s = [2 * v - 1 for v in x.tolist()]
    pairs = sum(COUPLING[i][j] * s[i] * s[j] for i in range(D) for j in range(i))
    return (pairs + sum(FIELD[i] * s[i] for i in range(D))) / 8


@numba.njit
def compiled(x):
    total = 0
    for i in range(D):
        total += H[i] * (2 * x[i] - 1)
        for j in range(i):
            total += J[i, j] * (2 * x[i] - 1) * (2 * x[j] - 1)
    return total / 8


KINDS = {"batched": batched, "single": single, "compiled": compiled}
TARGETS = {name: FunctionTarget(f, D) for name, f in KINDS.items()}

CARDINALITIES = [3, 2, 1, 4, 2]
TABLE = np.random.default_rng(1).normal(size=(5, 4))
PAIRS = np.random.default_rng(2).normal(size=(4, 4))


def mixed(x):
    """Neighbours in a row score; equal ones are impossible, but for the value 0."""
    x = np.asarray(x)
    value = TABLE[np.arange(5), x].sum(axis=-1) + PAIRS[x[..., 1:], x[..., :-1]].sum(axis=-1)
    equal = (x[..., 1:] == x[..., :-1]) & (x[..., 1:] > 0)
    return np.where(equal.any(axis=-1), -np.inf, value)


@numba.njit
def mixed_compiled(x):
    value = TABLE[0, x[0]]
    for i in range(1, 5):
        value += TABLE[i, x[i]] + PAIRS[x[i], x[i - 1]]
        if x[i] == x[i - 1] and x[i] > 0:
            return -np.inf
    return value


MIXED = {
    "batched": FunctionTarget(mixed, 5, CARDINALITIES),
    "single": FunctionTarget(mixed, 5, CARDINALITIES, vectorized=False),
    "compiled": FunctionTarget(mixed_compiled, 5, CARDINALITIES),
}


def fit(target, balancing="sqrt", **settings):
    settings = {"n_burn_in": 50, "n_chains": 2, "random_state": 0, "pilot": False} | settings
    sampler = LSBSampler(balancing, **settings)
    start = (0 if target is not ISING else -1) * np.ones(target.n_sites, dtype=int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return sampler.fit(target, initial_states=start)


# ----------------------------------------------------------------- conformance


@pytest.mark.parametrize("target", [*TARGETS.values(), *MIXED.values()], ids=repr)
def test_target(target):
    testing.check_target(target)
    if target is not TARGETS["compiled"]:  # compiled for each evidence: the mixed one is enough
        testing.check_target(target.condition({1: 1}))


# Calls of Python take long; that chains of both kinds are the same is seen below.
@pytest.mark.parametrize("kind", ["compiled", pytest.param("batched", marks=pytest.mark.slow)])
# Steps by "max" are measured below.
@pytest.mark.parametrize("balancing", ["mixture", pytest.param("max", marks=pytest.mark.slow)])
def test_sampler(balancing, kind):
    check_sampler(LSBSampler(balancing, n_burn_in=60), MIXED[kind])


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_production_step(function):
    for target in (MIXED["batched"], MIXED["compiled"]):
        found = production_matrix(LSBSampler(function), target)
        wanted = exact.transition_matrix(LSBSampler(function), target)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)
        possible = target.log_prob(exact.states(target)) > -INF
        assert 0 < possible.sum() < possible.size
        assert np.all(found[np.ix_(possible, ~possible)] == 0.0)


def test_objectives():
    for target in (MIXED["batched"], MIXED["compiled"]):
        check_objectives(FUNCTIONS["mixture"], target)


def far(x):
    return -0.1 * np.abs(x - 100).sum(axis=-1)


@numba.njit
def far_compiled(x):
    return -0.1 * np.abs(x - 100).sum()


# int16 has kernels of its own, which networks compile in the commit tier; two values are those of
# `test_target`.
@pytest.mark.parametrize("k", [pytest.param(k, marks=pytest.mark.slow) for k in (2, 200)] + [128])
def test_many_values(k):
    target = FunctionTarget(far, 2, [k, 3])
    assert target.dtype == (np.int16 if k > 128 else np.int8)
    testing.check_target(target, n_states=5)
    jitted = FunctionTarget(far_compiled, 2, [k, 3])
    testing.check_target(jitted, n_states=5)


# ----------------------------------------------------------------- the same chains as a target


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("balancing", "settings"),
    [
        ("sqrt", {}),
        ("max", {"lazy": 0.3, "n_jobs": 2}),
        # Without jumps, whose work beside that of a step is another for a costly function.
        ("learned", {"n_burn_in": 200, "rejection_free": False, "factors": None}),
        ("mixture", {"objective": "bound"}),
    ],
)
def test_chains_are_those_of_the_compiled_target(name, balancing, settings):
    x = exact.states(ISING)
    np.testing.assert_array_equal(TARGETS[name].log_prob((x + 1) // 2), ISING.log_prob(x))
    # What a start may cost, and whether blocks are tried, depends on the kind of target.
    settings = settings | {"init": "uniform", "blocks": None}
    mine, other = (fit(target, balancing, **settings) for target in (TARGETS[name], ISING))
    for thin in (1, 3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplerWarning)
            x, s = (sampler.sample(200, thin=thin)["x"].values for sampler in (mine, other))
        np.testing.assert_array_equal(2 * x - 1, s)
        for statistic, values in mine.sample_stats_.items():
            np.testing.assert_array_equal(values, other.sample_stats_[statistic])
    # Of the chains: exact answers, with which draws are compared, are counted by kind.
    assert (
        mine.run_.ensemble.chains.evaluations.sum() == other.run_.ensemble.chains.evaluations.sum()
    )


@pytest.mark.parametrize("name", ["batched", "compiled"])
def test_frequencies(name):
    target, n = MIXED[name], 20_000
    draws = fit(target, "barker", n_chains=4).sample(n)["x"].values.reshape(-1, 5)
    states, p = exact.states(target), exact.probabilities(target)
    stride = np.cumprod([1, *CARDINALITIES[:0:-1]])[::-1]
    counts = np.bincount(draws @ stride, minlength=len(p))
    assert not counts[p == 0].any()
    np.testing.assert_array_equal(states @ stride, np.arange(len(p)))
    # The variance of these means is known: sum of all autocovariances, by one linear system.
    possible = p > 0
    matrix = exact.transition_matrix(LSBSampler("barker"), target)[np.ix_(possible, possible)]
    p, found = p[possible], counts[possible] / (4 * n)
    x = np.eye(p.size) - p
    solved = np.linalg.solve(np.eye(p.size) - matrix + p, x)
    error = np.sqrt(np.maximum(p @ (2 * x * solved - x**2), 0.0) / (4 * n))
    assert np.all(np.abs(found - p) <= 6.5 * error + 1e-4)


# ----------------------------------------------------------------- calls


def counted(function):
    def counting(x):
        counting.shapes.append(x.shape)
        return function(x)

    counting.shapes = []
    return counting


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SeparatedModesWarning")
def test_one_call_for_each_new_state():
    def wide(x):
        return np.sin(x @ np.arange(1.0, 41.0) ** 2)

    f = counted(wide)
    sampler = fit(FunctionTarget(f, 40))
    f.shapes.clear()
    sampler.sample(500, thin=2)
    rejected = 1 - float(sampler.sample_stats_["acceptance_rate"].mean())
    assert rejected > 0.05  # and taken back without a call
    first, near, *others, last = f.shapes
    assert first == (2, 40)  # whether it is what it was
    assert near == last == (4, 40)  # at other states, too, and for the next call
    assert set(others) == {(41, 40)}
    assert 0.8 * 2000 < len(others) <= 2000


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning")
def test_a_function_of_one_state_is_called_for_each():
    f = counted(single)
    sampler = fit(FunctionTarget(f, D))
    f.shapes.clear()
    sampler.sample(20)
    assert set(f.shapes) == {(D,)}
    looks = 2 + 4 + 4  # at the present states and others, to see whether it is what it was
    assert len(f.shapes) > looks
    assert (len(f.shapes) - looks) % (D + 1) == 0


def test_a_function_is_not_called_where_evidence_does_not_hold():
    seen = []

    def watched(x):
        seen.append(np.array(x))
        return batched(x)

    target = FunctionTarget(watched, D, vectorized=True)
    given = target.condition({0: 1, 3: 0})
    seen.clear()
    learning = {"objective": "kl", "pilot": False}
    LSBSampler(n_burn_in=100, n_chains=2, random_state=0, **learning).fit(given).sample(50)
    assert not np.isneginf(given.log_prob(exact.states(target))).all()
    given.log_ratios([1, 0, 0, 0, 0, 0])
    assert {len(x) for x in seen} >= {1 + D - 2}
    seen = np.concatenate([np.atleast_2d(x) for x in seen])
    assert (seen[:, [0, 3]] == [1, 0]).all()


def test_a_function_that_changes_is_not_called_where_evidence_does_not_hold():
    """How much its rounding may be is found out where the evidence holds, too."""
    weight, seen = [1.0], []

    def watched(x):
        seen.append(np.array(x))
        return weight[0] * batched(x)

    given = FunctionTarget(watched, D, vectorized=True).condition({0: 1, 3: 0})
    sampler = LSBSampler("sqrt", n_burn_in=50, n_chains=2, random_state=0).fit(given)
    seen.clear()
    weight[0] = 2.0
    sampler.sample(50)
    assert sampler.sample_stats_["lp"].values[0, -1] == given.log_prob(sampler.state_[0])
    seen = np.concatenate([np.atleast_2d(x) for x in seen])
    assert len(seen) > 32
    assert (seen[:, [0, 3]] == [1, 0]).all()


@numba.njit
def where_the_first_is_one(x):
    if x[0] != 1:
        raise ValueError("evidence does not hold")
    return -0.5 * x[1:].sum()


def test_a_compiled_function_is_not_called_where_evidence_does_not_hold():
    target = FunctionTarget(lambda x: 0.0, D)
    target.function = where_the_first_is_one
    given = target.condition({0: 1})
    sampler = LSBSampler("sqrt", n_burn_in=50, pilot=False, random_state=0).fit(given)
    x = sampler.sample(200)["x"].values
    assert (x[..., 0] == 1).all()
    assert x[..., 1:].any()


def test_stored_states_are_evaluated_once():
    f = counted(batched)
    target = FunctionTarget(f, D)
    sampler = fit(target, "learned", objective="flux", n_burn_in=0)
    f.shapes.clear()
    sampler.set_params(n_burn_in=20).fit(target)
    evaluated = sum(n for n, _ in f.shapes)
    assert sampler.n_evaluations_ > 3 * evaluated


def test_learning_costs_no_more_than_moving():
    def chain(x):
        return 0.5 * (x[:, 1:] == x[:, :-1]).sum(axis=1)

    f = counted(chain)
    fit(FunctionTarget(f, 64), "learned", objective="kl", n_burn_in=100, n_chains=4)
    # 400 transitions; 100 updates look at 16384 / 64**2 = 4 neighbours.
    assert 800 <= len(f.shapes) <= 1200 + 64


def test_states_are_int64():
    def overflowing(x):
        assert x.dtype == np.int64
        return -0.001 * ((100 * x) * (100 * x)).sum(axis=-1)

    assert FunctionTarget(overflowing, 3).log_prob([1, 1, 0]) == -20.0


# ----------------------------------------------------------------- one state or several


@pytest.mark.parametrize(
    ("function", "n_sites", "expected"),
    [
        (batched, D, True),
        (single, D, False),
        (compiled, D, False),
        (lambda x: 1.5, 4, False),
        (lambda x: -math.log(1 + x.sum()), 4, False),
        (lambda x: x[0] + 2.0 * x[-1], 5, False),
        (lambda x: x.sum(), 1, False),
        (lambda x: x.sum(axis=1), 4, True),
        (lambda x: x.mean(axis=-1, dtype=np.float32), 5, True),
        (lambda x: [float(v) for v in x @ np.arange(3)], 3, True),
        (lambda x: x.sum(axis=-1) - np.ndim(x), 3, False),
    ],
)
def test_whether_a_function_takes_several_states_is_found_out(function, n_sites, expected):
    target = FunctionTarget(function, n_sites)
    assert target.vectorized is expected
    x = np.random.default_rng(0).integers(2, size=(4, n_sites))
    one_by_one = [target.log_prob(state) for state in x]
    np.testing.assert_allclose(target.log_prob(x), one_by_one, rtol=1e-6)


@numba.njit
def several_compiled(x):
    return 0.5 * x[:, 0]


def test_vectorized_may_be_given():
    assert FunctionTarget(batched, D, vectorized=False).vectorized is False
    jitted = FunctionTarget(several_compiled, 3, vectorized=True)
    assert jitted.vectorized is True
    testing.check_target(jitted)


def test_leading_axes():
    for target in MIXED.values():
        x = np.zeros((3, 2, 5), dtype=int)
        assert target.log_prob(x).shape == (3, 2)
        assert target.log_ratios(x).shape == (3, 2, 7)
        assert target.log_prob(np.empty((0, 5), dtype=int)).shape == (0,)
        assert target.log_ratios(np.empty((0, 5), dtype=int)).shape == (0, 7)


# ----------------------------------------------------------------- starting states


def latin(x):
    """Log p of a Latin square of order 3: flat where no value stands twice in a row or column."""
    square = x.reshape(*x.shape[:-1], 3, 3)
    twice = (np.sort(square, axis=-1) != np.arange(3)).any(axis=(-2, -1))
    twice |= (np.sort(square, axis=-2) != np.arange(3)[:, None]).any(axis=(-2, -1))
    return np.where(twice, -np.inf, 0.0)


SQUARE = [0, 1, 2, 1, 2, 0, 2, 0, 1]


def test_random_states_are_possible():
    target = MIXED["batched"]
    rng = np.random.default_rng(0)
    states = np.array([target.draw_state(rng) for _ in range(200)])
    assert np.isfinite(target.log_prob(states)).all()
    assert len(np.unique(states, axis=0)) > 30


def ranking(x):
    return 0.5 * x[0] if len(set(x.tolist())) == len(x) else -INF


@pytest.mark.parametrize("make", [LSBSampler, GibbsSampler])
def test_a_ranking_is_told_so(make):
    words = "No change of a single variable leads from .*, as in a ranking or an assignment, where"
    target = FunctionTarget(ranking, 3, 3)
    with pytest.warns(FrozenSitesWarning, match=words) as seen:
        sampler = make(n_chains=2, n_burn_in=40, random_state=0).fit(target)
    assert seen[0].filename == __file__
    with pytest.warns(FrozenSitesWarning, match=words):
        sampler.sample(20)
    pairs = GibbsSampler(block_size=2, n_chains=2, n_burn_in=40, random_state=0).fit(target)
    assert not np.array_equal(pairs.state_, sampler.state_)


def test_an_initial_state_may_be_given():
    target = FunctionTarget(latin, 9, 3, initial_state=SQUARE)
    fitted = LSBSampler("sqrt", n_burn_in=5, init="uniform").fit(target)
    np.testing.assert_array_equal(fitted.state_, [SQUARE] * 4)  # no single change is possible
    fitted = LSBSampler("sqrt", n_burn_in=5).fit(target)  # another square is far from it
    assert np.isfinite(target.log_prob(fitted.state_)).all()

    def rolled(rng):
        return np.roll(np.reshape(SQUARE, (3, 3)), rng.integers(3), axis=0).ravel()

    target = FunctionTarget(latin, 9, 3, initial_state=rolled)
    states = LSBSampler("sqrt", n_burn_in=5, n_chains=8, random_state=0).fit(target).state_
    assert np.isfinite(target.log_prob(states)).all()
    assert len(np.unique(states, axis=0)) > 1


def test_a_start_that_cannot_be_found():
    # One of 2**40 states is possible. Of the 3**9 squares 12 are Latin: a start may be found.
    target = FunctionTarget(lambda x: np.where(x.any(axis=-1), -INF, 0.0), 40)
    message = r"log_prob is -inf at all of 1000 states where chains could start; give initial_st"
    with pytest.raises(ValueError, match=message):
        LSBSampler("sqrt", n_burn_in=5).fit(target)


def test_an_initial_state_that_contradicts_the_evidence():
    f = counted(latin)
    target = FunctionTarget(f, 9, 3, initial_state=SQUARE)
    given = target.condition({0: 1})
    f.shapes.clear()
    message = (
        r"initial_state with the evidence put in is \[1, 1, 2, .*\], where log_prob is -inf; give "
        "a state of positive probability that agrees with the evidence"
    )
    with pytest.raises(ValueError, match=message):
        given.draw_state(np.random.default_rng(0))
    assert len(f.shapes) == 1


@pytest.mark.parametrize(
    ("initial_state", "message"),
    [
        ([0] * 9, r"initial_state is \[0, 0, .*\], where log_prob is -inf; give a state of pos"),
        (lambda rng: [3] * 9, r"initial_state\[0\] is 3; every variable"),
        ([SQUARE], r"initial_state has shape \(1, 9\); it must be \(9,\)"),
        ([0] * 8, r"initial_state has shape \(8,\); the target needs"),
    ],
)
def test_wrong_initial_states(initial_state, message):
    with pytest.raises(ValueError, match=message):
        FunctionTarget(latin, 9, 3, initial_state=initial_state)


# ----------------------------------------------------------------- what goes wrong


class Failing:
    """As `batched`, but once it is armed its n-th call does something else."""

    left = math.inf

    def __init__(self, action):
        self.action = action

    def __call__(self, x):
        self.left -= 1
        return batched(x) if self.left else self.action(x)


class OddError(Exception):
    pass


def fail(error):
    def action(x):
        raise error

    return action


FAILURES = {
    "error": (fail(OddError("odd")), OddError, "odd"),
    "interrupt": (fail(KeyboardInterrupt()), KeyboardInterrupt, None),
    "exit": (fail(SystemExit(3)), SystemExit, "3"),
    "nan": (
        lambda x: np.where(np.arange(len(x)) == 2, np.nan, 0.0),
        ValueError,
        r"log_prob returned nan at the state \[[01](, [01]){5}\]; it must return a number of at "
        r"most 1e\+303 in size, or -inf if it is impossible",
    ),
    "inf": (lambda x: np.full(len(x), INF), ValueError, "log_prob returned inf at the state"),
    "shape": (
        lambda x: np.zeros(3),
        ValueError,
        r"log_prob returned shape \(3,\) for states of shape \(7, 6\); return 7 numbers",
    ),
    "none": (lambda x: None, TypeError, r"log_prob returned None for states of shape \(7, 6\)"),
}


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_in_fit_is_raised(name, n_jobs):
    action, error, message = FAILURES[name]
    f = Failing(action)
    target = FunctionTarget(f, D)
    for balancing, n_calls in (("sqrt", 1), ("sqrt", 20), ("learned", 7), ("learned", 300)):
        sampler = LSBSampler(
            balancing, n_burn_in=500, init="uniform", n_jobs=n_jobs, random_state=0
        )
        f.left = n_calls + (4 if name in ("shape", "none", "nan") else 0)  # states to start from
        with pytest.raises(error, match=message):
            sampler.fit(target)
        assert not hasattr(sampler, "target_")
        assert not target._runs
        f.left = math.inf
        sampler.set_params(n_burn_in=20, pilot=False).fit(target)
        check_kept(sampler, "after the second fit")


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_in_sample_is_raised_and_taken_back(name, n_jobs, one_segment):
    action, error, message = FAILURES[name]
    f = Failing(action)
    sampler = fit(FunctionTarget(f, D), n_jobs=n_jobs)
    sampler.run_.ensemble.chains.scratch[:] = 0  # so that f is called
    before = sampler.state_
    f.left = 9
    with pytest.raises(error, match=message):
        sampler.sample(60)
    np.testing.assert_array_equal(sampler.state_, before)
    check_kept(sampler, "after a failure")
    x = sampler.sample(50)["x"].values
    np.testing.assert_array_equal(sampler.sample_stats_["lp"].values, batched(x.astype(int)))
    check_kept(sampler, "at the end")


@pytest.mark.parametrize("evidence", [{}, {0: 0}])
def test_a_failure_in_one_thread_does_not_disturb_another(evidence):
    together = threading.Barrier(2, timeout=60)
    failing = threading.local()

    def f(x):
        if getattr(failing, "soon", False):
            raise OddError("odd")
        return batched(x)

    def sample(sampler, fails):
        failing.soon = False
        sampler.run_.ensemble.chains.scratch[:] = 0  # so that f is called
        together.wait()
        failing.soon = fails
        return sampler.sample(2000)["x"].values

    target = FunctionTarget(f, D).condition(evidence)
    wanted = fit(target).sample(2000)["x"].values
    samplers = fit(target), fit(target)
    with ThreadPoolExecutor(2) as pool:
        sound, failed = (
            pool.submit(sample, sampler, fails)
            for sampler, fails in zip(samplers, (False, True), strict=True)
        )
        np.testing.assert_array_equal(sound.result(), wanted)
        with pytest.raises(OddError, match="odd"):
            failed.result()
    check_kept(samplers[1], "after a failure")


def test_a_failure_under_evidence_is_raised():
    f = Failing(fail(OddError("odd")))
    target = FunctionTarget(f, D).condition({0: 1})
    f.left = 9
    with pytest.raises(OddError, match="odd"):
        LSBSampler("sqrt", n_burn_in=50).fit(target)


@numba.njit
def nan_somewhere(x):
    return np.nan if x[0] == 1 and x[1] == 1 and x[2] == 1 and x[3] == 1 and x[4] == 1 else 0.0


@numba.njit
def error_somewhere(x):
    if x[0] == 1 and x[1] == 1 and x[2] == 1 and x[3] == 1 and x[4] == 1:
        raise ValueError("five of them")
    return 0.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (nan_somewhere, r"log_prob returned nan at the state \[1, 1, 1, 1, 1(, [01]){15}\]"),
        (error_somewhere, "five of them"),
    ],
)
def test_a_failure_of_a_compiled_function_is_raised(function, message):
    # The random states that it is tried at all are possible.
    target = FunctionTarget(function, 20)
    for n_jobs in (1, 2):
        sampler = LSBSampler("sqrt", n_burn_in=2000, random_state=0, n_jobs=n_jobs)
        with pytest.raises(ValueError, match=message):
            sampler.fit(target, initial_states=np.zeros(20, dtype=int))


def test_a_compiled_function_that_depends_on_more_than_the_state():
    @numba.njit
    def once(x):
        with numba.objmode(value="float64"):
            value = np.nan if len(values) == 50 else 0.0
            values.append(value)
        return value

    values = []

    target = FunctionTarget(lambda x: 0.0, 6)
    target.function = once
    failed = r"log_prob failed in compiled code, at or next to the state \[.*\], but not when it"
    with pytest.raises(RuntimeError, match=failed):
        LSBSampler("sqrt", n_burn_in=500).fit(target, initial_states=[0] * 6)


def test_a_callback_that_never_began_is_an_interrupt():
    """A Ctrl-C may come when the function called has not reached its first line."""

    class Interrupted(FunctionTarget):
        def _call(self, x, values):
            super()._call(x, values) if self.left > 0 else None
            self.left -= 1

        left = 10

    with pytest.raises(KeyboardInterrupt):
        LSBSampler("sqrt", n_burn_in=50).fit(Interrupted(batched, D))


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c(n_jobs):
    f = Failing(lambda x: os.kill(os.getpid(), signal.SIGINT) or batched(x))
    target = FunctionTarget(f, D)
    f.left = 30
    with pytest.raises(KeyboardInterrupt):
        LSBSampler("learned", n_burn_in=10**5, n_jobs=n_jobs, random_state=0).fit(target)
    sampler = fit(target, n_jobs=n_jobs)
    sampler.run_.ensemble.chains.scratch[:] = 0
    f.left = 5
    with pytest.warns(InterruptedWarning, match="Interrupted: returning"):
        draws = sampler.sample(10**5)
    assert draws.sizes["draw"] <= 5, "one transition, as it may take long, and then four"


# ----------------------------------------------------------------- copies


@pytest.mark.parametrize("target", [TARGETS["batched"], MIXED["single"], TARGETS["compiled"]])
def test_pickle_and_copy(target):
    sampler = fit(target)
    x = exact.states(target)[:40]
    forks = [
        (f(target), f(sampler)) for f in (copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o)))
    ]
    draws = sampler.sample(50)["x"].values
    for other, again in forks:
        assert repr(other) == repr(target)
        np.testing.assert_array_equal(other.log_prob(x), target.log_prob(x))
        assert again.run_.ensemble.view.address != sampler.run_.ensemble.view.address
        np.testing.assert_array_equal(again.sample(50)["x"].values, draws)


def edited(x):
    return 0.5 * x.sum(-1)


def pickled_before_an_edit(what, new, monkeypatch):
    data = pickle.dumps(what)
    new.__name__ = new.__qualname__ = "edited"
    monkeypatch.setattr(f"{__name__}.edited", new)
    return pickle.loads(data)


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.ShortRunWarning")
@pytest.mark.parametrize("how", ["sample", "step"])
def test_a_pickled_sampler_tells_that_its_function_is_another_now(how, monkeypatch):
    target = FunctionTarget(edited, 20)
    sampler = LSBSampler("barker", n_burn_in=20, n_chains=2, random_state=0).fit(
        target, initial_states=np.ones((2, 20), int)
    )
    sampler.run_.continue_from(np.ones((2, 20), np.int8))

    def new(x):
        return 0.5 * x.sum(-1) + 3.0 * x.all(-1)  # as before at most states

    again = pickled_before_an_edit(sampler, new, monkeypatch)
    first = pickle.loads(pickle.dumps(again))
    with pytest.warns(ModelWarning, match="has changed since the sampler was pickled") as told:
        getattr(again, how)(100)
    assert sum("pickled" in str(one.message) for one in told) == 1
    getattr(again, how)(100)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)
        with pytest.raises(ModelWarning):
            getattr(first, how)(100)
        getattr(first, how)(100)  # whole all the same


def test_score_samples_of_a_function_that_has_changed():
    number = np.array(0.5)
    target = FunctionTarget(lambda x: number * x.sum(-1), 6)
    sampler = ParallelTempering(n_burn_in=100, random_state=0).fit(target)
    likely = sampler.score_samples([[1] * 6])
    assert likely == pytest.approx(3.0 - 6 * np.log1p(np.exp(0.5)), abs=0.2)
    number[...] = 2.0
    with pytest.raises(ValueError, match=r"has changed since the last call.* fit again"):
        sampler.score_samples([[1] * 6])


def test_repr():
    assert repr(TARGETS["batched"]) == "FunctionTarget(batched, 6 sites, 2 values)"
    assert repr(MIXED["single"]) == "FunctionTarget(mixed, 5 sites, 1 to 4 values)"
    assert repr(FunctionTarget(Failing(None), D)).startswith("FunctionTarget(Failing, 6 sites")


# ----------------------------------------------------------------- errors


def changing(x):
    x[0] = 0
    return 1.0


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: FunctionTarget(3, 4), TypeError, "log_prob is 3; give a function of a state"),
        (lambda: FunctionTarget(batched, "6"), TypeError, "n_sites is '6'; give an integer"),
        (lambda: FunctionTarget(batched, -1), ValueError, "n_sites is -1; it must be from 0"),
        (lambda: FunctionTarget(batched, 6, 2.0), TypeError, "n_states is 2.0; give an integer"),
        (lambda: FunctionTarget(batched, 6, 40000), ValueError, "n_states is 40000; .*to 32768"),
        (lambda: FunctionTarget(batched, 6, [2, 3]), ValueError, "2 entries for 6 variables"),
        (lambda: FunctionTarget(batched, 6, [[2] * 6] * 6), TypeError, r"n_states\[0\] is \[2, "),
        (
            lambda: FunctionTarget(batched, 6, vectorized="yes"),
            TypeError,
            "vectorized is 'yes'; give True, False or None",
        ),
        (
            lambda: FunctionTarget(single, D, vectorized=True),
            TypeError,
            "unsupported operand type",
        ),
        (
            lambda: FunctionTarget(lambda x: x.sum(), 3, vectorized=True),
            ValueError,
            r"log_prob returned shape \(\) for states of shape \(5, 3\); return 5 numbers",
        ),
        (
            lambda: FunctionTarget(lambda x: [1.0, 2.0], 3),
            ValueError,
            r"log_prob returned shape \(2,\) for a state of shape \(3,\); return one number",
        ),
        (
            lambda: FunctionTarget(lambda x: None, 3),
            TypeError,
            r"log_prob returned None for a state of shape \(3,\); return one number, real",
        ),
        (lambda: FunctionTarget(lambda x: "a", 3), TypeError, "log_prob returned 'a' for"),
        (
            lambda: FunctionTarget(lambda x: x[0] > 0, 3),
            TypeError,
            r"returned True or False for a state of .* np.where\(allowed, 0.0, -np.inf\)",
        ),
        (lambda: FunctionTarget(lambda x: 1j, 3), TypeError, "log_prob returned 1j for a state"),
        (
            lambda: FunctionTarget(lambda x: [1.0, [2.0]], 3, vectorized=True),
            ValueError,
            "the result of log_prob is not an array of numbers",
        ),
        (
            lambda: FunctionTarget(lambda x: np.nan, 3),
            ValueError,
            r"log_prob returned nan at the state \[[01], [01], [01]\]; it must return a number",
        ),
        (lambda: FunctionTarget(lambda x: INF, 3), ValueError, "log_prob returned inf at the"),
        (lambda: FunctionTarget(lambda x: -2e303, 3), ValueError, r"returned -2e\+303 at the st"),
        (lambda: FunctionTarget(changing, 3), ValueError, "log_prob changes the state that it is"),
        (lambda: FunctionTarget(numba.njit(changing), 3), ValueError, "let it change a copy"),
        (lambda: FunctionTarget(fail(OddError("odd")), 3), OddError, "odd"),
        (
            lambda: FunctionTarget(fail(OddError("odd")), 3, vectorized=True),
            OddError,
            "odd",
        ),
        (
            lambda: FunctionTarget(lambda x: x.sum(), 3, vectorized=True),
            ValueError,
            r"returned shape \(\) for states of shape \(5, 3\); return 5 numbers",
        ),
        (
            lambda: FunctionTarget(lambda x: x[:, 0] - x.mean(), 3, vectorized=True),
            ValueError,
            r"for the state \[[01], [01], [01]\] among 5, and .* for it alone, .* shape \(1, 3\); "
            "it must depend on the state only. A function of one state needs vectorized=False",
        ),
    ],
)
def test_errors_name_what_was_given(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([3, 0, 0, 0, 0], r"x\[0\] is 3; this variable takes one of the values \(0, 1, 2\)"),
        ([0, 0, 1, 0, 0], r"x\[2\] is 1; this variable takes one of the values \(0,\)"),
        ([0, 0], r"x has shape \(2,\); the target needs \(\.\.\., 5\)"),
    ],
)
def test_wrong_states_are_refused(x, message):
    for method in (MIXED["batched"].log_prob, MIXED["batched"].log_ratios):
        with pytest.raises(ValueError, match=message):
            method(x)


@pytest.mark.parametrize(
    ("sampler", "told"),
    [
        (LSBSampler(n_burn_in=2000), r"LSBSampler takes about 2\.1e\+07 values .* 2601 for each"),
        (LSBSampler(), r"about 4\.2e\+06 .* makes 403 transitions of each chain instead of 2000"),
        (LSBSampler(), r"n_burn_in makes it longer\. No function for sampling is learned after it"),
        (LSBSampler(), r"Faster are a function of several states at once, one compiled by numba"),
        (LSBSampler(), r"GibbsSampler\(\), which .* takes 4\.1e\+05"),
        (ParallelTempering(n_burn_in=512), r"ParallelTempering takes about 4\.3e\+07 values"),
        (ParallelTempering(), r"it makes 50 scans of each ladder at most, instead of 8192"),
        (GibbsSampler("random", n_burn_in=10**6), r"GibbsSampler takes about 2e\+08 values"),
    ],
)
def test_the_cost_of_a_function_is_told_before_the_work(sampler, told):
    """52 counts up to 50: every function value after the warning is refused."""
    work = []

    def log_prob(x):
        if work:
            raise InterruptedError
        return -np.asarray(x).sum(axis=-1) / 9.0

    target = FunctionTarget(log_prob, 52, 51)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        work.append(True)
        with pytest.raises(InterruptedError):
            sampler.fit(target)
    assert [w.category for w in seen] == [SamplerWarning]
    assert re.search(told, str(seen[0].message))


def test_a_slow_function_is_told_before_the_work():
    def log_prob(x):
        time.sleep(0.003)
        return 0.1 * x.sum()

    target = FunctionTarget(log_prob, 30, vectorized=False)
    with pytest.warns(
        SamplerWarning, match=r"about 2\.5e\+05 values, [0-9.]+ minutes, of Fun.*Gibbs"
    ):
        cost_of(LSBSampler(), target)
    cost_of(GibbsSampler("random"), target)


def cost_of(sampler, target):
    sampler._algorithm(sampler, target)._warn_of_cost()


def test_a_burn_in_by_default_takes_so_many_values_or_the_fewest_transitions():
    def length(sampler, n_sites, n_states, function=lambda x: -0.1 * x.sum(axis=-1)):
        fit = sampler._algorithm(sampler, FunctionTarget(function, n_sites, n_states))
        return fit._length() if isinstance(sampler, ParallelTempering) else fit.burn_in_length()

    assert length(LSBSampler(), 500, 2) == 2**22 // (4 * 501)
    assert length(LSBSampler(n_chains=1), 500, 2) == 2500
    assert length(LSBSampler(), 52, 400) == 100
    assert length(LSBSampler(n_burn_in=3000), 52, 400) == 3000
    assert length(LSBSampler(), 52, 51, numba.njit(lambda x: 0.1 * x.sum())) == 2000
    assert length(ParallelTempering(), 52, 400) == 32
    assert length(ParallelTempering(), 16, 2) == 8192


def test_neighbours_are_given_in_parts_where_they_are_many(monkeypatch):
    sizes = []

    def log_prob(x):
        sizes.append(len(x))
        return -(x * np.arange(1.0, 8.0)).sum(axis=-1)

    target = FunctionTarget(log_prob, 7, [2, 3, 1, 4, 2, 3, 5]).condition({5: 1})
    x = target.draw_state(np.random.default_rng(0))
    whole = target.log_ratios(x)
    for most, wanted in ((28, [5, 5, 2]), (77, [12]), (70, [11, 1]), (7, [2] * 6)):
        monkeypatch.setattr(function, "_MOST_HELD", most)
        sizes.clear()
        np.testing.assert_array_equal(target.log_ratios(x), whole)
        assert sizes == wanted


def test_usual_functions_are_not_costly():
    for n_sites, n_states in ((20, 2), (200, 2), (64, 3)):
        target = FunctionTarget(lambda x: -0.1 * x.sum(axis=-1), n_sites, n_states)
        for sampler in (LSBSampler(), GibbsSampler("random"), ParallelTempering()):
            fit = sampler._algorithm(sampler, target)
            fit.check_parameters()
            fit._warn_of_cost()
    compiled = FunctionTarget(numba.njit(lambda x: 0.1 * x.sum()), 52, 51)
    cost_of(LSBSampler(), compiled)


@pytest.mark.parametrize(("n_ones", "n_scans"), [((3,), 32), ((3, 4), 368)])
def test_tempering_ends_soon_where_the_reference_is_impossible(n_ones, n_scans):
    """3 of 40 are 1: no draw from the reference is possible, and no single change."""

    def log_prob(x):
        total = np.asarray(x).sum(axis=-1)
        return np.where((total == n_ones[0]) | (total == n_ones[-1]), 0.0, -np.inf)

    start = np.arange(40) < 3
    target = FunctionTarget(log_prob, 40, initial_state=start.astype(int))
    sampler = ParallelTempering(random_state=0, n_chains=2)
    stuck = "No change of a single variable" if n_ones == (3,) else "log_z_ is not found"
    told = f"All of 4096 states drawn .* makes only {64 if n_ones == (3,) else 512} scans.*{stuck}"
    with pytest.warns(TemperingWarning, match=told) as seen:
        sampler.fit(target)
    assert len(seen) == 1
    assert sampler.history_["scans"].sum() == n_scans


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.TemperingWarning")
def test_tempering_from_a_reference_that_reaches_the_support_is_not_cut():
    def log_prob(x):
        return np.where(np.asarray(x).sum(axis=-1) == 3, 0.0, -np.inf)

    target = FunctionTarget(log_prob, 40, initial_state=np.arange(40) < 3)
    own = np.tile([37 / 40, 3 / 40], (40, 1))
    for reference, reaches, share in ((own, True, 3 / 40), (None, False, 1 / 2)):
        sampler = ParallelTempering(reference=reference, n_chains=1, n_burn_in=0, random_state=0)
        ladders = sampler.fit(target).run_.ensemble
        assert ladders.reaches(4096) == reaches
        drawn = ladders._maker.drawn(np.zeros((2000, 40), np.int8), np.random.default_rng(0))
        assert abs(drawn.mean() - share) < 5 * np.sqrt(share * (1 - share) / drawn.size)


def test_help_shows_the_parameters():
    assert [*inspect.signature(FunctionTarget).parameters][:3] == [
        "log_prob",
        "n_sites",
        "n_states",
    ]

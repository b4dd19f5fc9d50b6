"""check_step: steps of any package, right ones and wrong ones."""

import copy
import math
import re

import numpy as np
import pytest

from sklsb import GibbsSampler, MarkovNetwork
from sklsb.exceptions import ModelWarning
from sklsb.testing import check_step, measured_matrix

P = np.array([0.8, 0.15, 0.05])
LOG_P = np.log(P)


def one(x):
    return LOG_P[x[:, 0]]


SIZES = [2, 2]
TABLES = MarkovNetwork([3, 2], [((0, 1), [[0.3, 1.0], [0.7, 0.2], [0.1, 0.5]])])


def glass(x):
    """Two spins, a coupling and fields."""
    s = 2.0 * np.asarray(x) - 1.0
    return s @ [0.4, -0.7] + 0.6 * s[:, 0] * s[:, 1]


LOG_GLASS = glass(np.array([*np.ndindex(2, 2)])).reshape(2, 2).tolist()


def log_p(state):
    return LOG_GLASS[state[0]][state[1]]


def flipped(state, i):
    there = state.copy()
    there[i] = 1 - there[i]
    return there


# ----------------------------------------------------------------- right ones


def metropolis(state, rng):
    there = flipped(state, rng.integers(2))
    return there if math.log(rng.random()) < log_p(there) - log_p(state) else state


def in_place(state, rng):
    i = int(rng.integers(0, 2))
    there = flipped(state, i)
    if rng.exponential() > log_p(state) - log_p(there):
        state[i] = there[i]
    return state


def heat_bath(state, rng):
    i = rng.choice(2)
    r = math.exp(log_p(flipped(state, i)) - log_p(state))
    return flipped(state, i) if rng.uniform() < r / (1.0 + r) else state


def sweep(state, rng):
    for i in range(2):
        r = math.exp(log_p(flipped(state, i)) - log_p(state))
        state = flipped(state, i) if rng.random() < r / (1.0 + r) else state
    return state


def shuffled_sweep(state, rng):
    for i in rng.permutation(2):
        r = math.exp(log_p(flipped(state, i)) - log_p(state))
        state = flipped(state, i) if rng.random() < r / (1.0 + r) else state
    return state


def barker_pairs(state, rng):
    sites = rng.choice(2, size=2, replace=False)
    there = state.copy()
    there[sites] = 1 - there[sites]
    if rng.random() < 0.5:
        there = flipped(state, sites[0])
    r = math.exp(log_p(there) - log_p(state))
    return there if rng.random() < r / (1.0 + r) else state


def balanced(state, rng, g=np.sqrt):
    """The locally balanced step."""

    def weights(x):
        return g([math.exp(log_p(flipped(x, i)) - log_p(x)) for i in range(2)])

    w = weights(state)
    i = rng.choice(2, p=w / w.sum())
    there = flipped(state, i)
    return there if rng.random() < w.sum() / weights(there).sum() else state


def gumbel(state, rng):
    """Heat bath by the largest of perturbed log-probabilities; curved boundaries."""
    i = rng.integers(2)
    both = [flipped(state, i), state]
    return both[int(np.argmax([log_p(x) + rng.gumbel() for x in both]))]


def by_numbers_of_its_own(state, rng):
    own = by_numbers_of_its_own.rng
    return metropolis(state, own)


by_numbers_of_its_own.rng = np.random.default_rng(7)


def slices(state, rng):
    level = log_p(state) + math.log(rng.random())
    above = [x for x in np.ndindex(2, 2) if log_p(x) >= level]
    return above[rng.integers(len(above))]


def rejection(state, rng):
    i, most = rng.integers(2), 1.0  # above all log p
    while True:
        there = state.copy()
        there[i] = rng.integers(2)
        if math.log(rng.random()) < log_p(there) - most:
            return there


RIGHT = {
    step: "enumerated"
    for step in (
        metropolis,
        in_place,
        heat_bath,
        sweep,
        shuffled_sweep,
        barker_pairs,
        balanced,
        slices,
    )
} | dict.fromkeys((gumbel, by_numbers_of_its_own, rejection), "counted")


@pytest.mark.parametrize("step", RIGHT, ids=lambda step: step.__name__)
def test_right_steps_are_not_accused(step):
    reversible = step is not sweep
    report = check_step(step, glass, SIZES, reversible=reversible, n_calls=20_000)
    assert report.enumerated == (RIGHT[step] == "enumerated")
    gate = 1e-12 if report.enumerated else 0.01
    assert report.defect < gate
    assert report.asymmetry < gate if reversible else report.asymmetry > 1e-3


def test_the_matrix_is_that_of_the_formula():
    p = np.exp(glass(np.array([*np.ndindex(2, 2)])))
    expected = np.zeros((4, 4))
    for a in range(4):
        for i in range(2):
            b = a ^ (2 >> i)
            expected[a, b] = min(1.0, p[b] / p[a]) / 2.0
        expected[a, a] = 1.0 - expected[a].sum()
    found = check_step(metropolis, glass, SIZES).matrix
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-13)


# ----------------------------------------------------------------- wrong ones


def proportional(state, rng):
    """Proposes other values in proportion to p; divides by what has been rescaled before."""
    others = P.copy()
    own, others[state[0]] = others[state[0]], 0.0
    others /= 1.0 - own
    there = rng.choice(3, p=others)
    return np.array([there]) if rng.random() < (1.0 - own) / (1.0 - others[there]) else state


def without_correction(state, rng):
    w = np.sqrt([math.exp(log_p(flipped(state, i)) - log_p(state)) for i in range(2)])
    return flipped(state, rng.choice(2, p=w / w.sum()))


def squared(state, rng):
    there = flipped(state, rng.integers(2))
    return there if math.log(rng.random()) < 2.0 * (log_p(there) - log_p(state)) else state


def both_signs(state, rng):
    there = flipped(state, rng.integers(2))
    return there if math.log(rng.random()) < abs(log_p(there) - log_p(state)) else state


def stale(state, rng):
    """A sweep whose probabilities are all of the state it began at."""
    r = [math.exp(log_p(flipped(state, i)) - log_p(state)) for i in range(2)]
    flips = [rng.random() < a / (1.0 + a) for a in r]
    return np.where(flips, 1 - state, state)


def until_accepted(state, rng):
    while True:
        there = flipped(state, rng.integers(2))
        if math.log(rng.random()) < log_p(there) - log_p(state):
            return there


def uneven(state, rng):
    """Proposes site 0 more often where it is 1."""
    i = rng.choice(2, p=[0.7, 0.3] if state[0] else [0.3, 0.7])
    there = flipped(state, i)
    return there if math.log(rng.random()) < log_p(there) - log_p(state) else state


def rounded(state, rng):
    there = flipped(state, rng.integers(2))
    return there if math.log(rng.random()) < round(log_p(there) - log_p(state)) else state


def greedy(state, rng):
    there = flipped(state, rng.integers(2))
    return there if log_p(there) > log_p(state) or rng.random() < 0.1 else state


def gumbel_of_half(state, rng):
    i = rng.integers(2)
    both = [flipped(state, i), state]
    return both[int(np.argmax([log_p(x) + 0.5 * rng.gumbel() for x in both]))]


WRONG = (
    without_correction,
    squared,
    both_signs,
    stale,
    until_accepted,
    uneven,
    rounded,
    greedy,
    gumbel_of_half,
)


@pytest.mark.parametrize("step", WRONG, ids=lambda step: step.__name__)
def test_wrong_steps_are_found(step):
    with pytest.raises(AssertionError, match="the step does not leave p invariant"):
        check_step(step, glass, SIZES, n_calls=12_000)


def rare(p):
    return np.array([0.6, 0.4 - p, p])


RARE = rare(0.001)


def at_rare(state, rng, p=RARE, delay=0.5):
    """Metropolis that stays too long in the last state."""
    there = rng.integers(3, size=1)
    if math.log(rng.random()) >= math.log(p[there[0]] / p[state[0]]):
        return state
    return state if state[0] == 2 != there[0] and rng.random() < delay else there


@pytest.mark.parametrize(
    ("chance", "n_calls", "after"),
    [
        (0.004, 80_000, "0.00533333"),
        pytest.param(0.001, 400_000, "0.00133333", marks=pytest.mark.slow),
    ],
)
def test_a_fault_in_a_rare_state_is_found(chance, n_calls, after):
    p = rare(chance)

    def step(state, rng):
        return at_rare(state, rng, p)

    with pytest.raises(AssertionError, match=rf"p P is {after} at \[2\], and p is {chance}"):
        check_step(step, lambda x: np.log(p[x[:, 0]]), 3, n_calls=n_calls)


def test_faults_too_small_to_confirm_are_reported():
    def slightly(state, rng):
        return at_rare(state, rng, delay=0.01)

    report = check_step(slightly, lambda x: np.log(RARE[x[:, 0]]), 3, n_calls=30_000)
    assert report.enumerated
    np.testing.assert_allclose(report.defect, 0.01 * 0.001 * 2 / 3, rtol=1e-6)


@pytest.mark.parametrize("width", [0.006, 0.004])
def test_a_fault_in_a_narrow_window_is_measured(width):
    """What surrounds the window looks the same on both sides; its edges are on no grid."""
    p = np.array([0.5, 0.3, 0.2])

    def step(state, rng):
        there, u = int(rng.random() * 3), rng.random()
        if there == 1 and 0.123 < u < 0.123 + width:
            return np.array([2])
        return np.array([there]) if u < p[there] / p[state[0]] else state

    def check():
        return check_step(step, lambda x: np.log(p[x[:, 0]]), 3, n_calls=60_000)

    if width / 3 > 16 / (60_000 // 6):
        with pytest.raises(AssertionError, match=r"p P is 0.(298 at \[1\]|202 at \[2\])"):
            check()
    else:
        report = check()
        assert report.enumerated
        np.testing.assert_allclose(report.defect, width / 3, rtol=1e-9)


def single(state, rng):
    there = flipped(state, rng.integers(2))
    return there if rng.random(dtype=np.float32) < math.exp(log_p(there) - log_p(state)) else state


def by_list(state, rng):
    order = [0, 1]
    rng.shuffle(order)
    i = order[rng.integers(0, [2])[0]]
    there = flipped(state, i)
    return there if math.log(rng.random()) < log_p(there) - log_p(state) else state


def by_copy(state, rng):
    own = copy.deepcopy(rng)
    rng.random(8)
    return metropolis(state, own)


@pytest.mark.parametrize(
    ("step", "enumerated", "gate"),
    [(single, True, 1e-7), (by_list, True, 1e-12), (by_copy, False, 0.02)],
    ids=lambda step: getattr(step, "__name__", ""),
)
def test_other_ways_to_take_numbers(step, enumerated, gate):
    report = check_step(step, glass, SIZES, n_calls=20_000)
    assert report.enumerated == enumerated
    assert report.defect < gate


def test_an_order_that_is_not_random_is_not_taken_for_one():
    def first_of_sample(state, rng):
        i = rng.choice(3, 3, replace=False, shuffle=False)[0]
        return np.array([i]) if rng.random() < P[i] / P[state[0]] else state

    with pytest.raises(AssertionError):
        check_step(first_of_sample, one, 3, n_calls=20_000)


@pytest.mark.parametrize("rare", [1e-7, 1e-20])
def test_states_too_rare_to_be_counted_are_not_missed(rare):
    p = np.array([0.6, 0.4, rare])

    def draw(state, rng):
        return np.array([np.argmax(np.log(p) + rng.gumbel(size=3))])

    def uniform(state, rng):
        return at_rare(state, rng, p, 0.0)

    for step in (draw, uniform):
        report = check_step(step, lambda x: np.log(p[x[:, 0]]), 3, n_calls=20_000)
        assert report.enumerated == (step is uniform)


def test_a_published_fault_is_found():
    matrix = np.zeros((3, 3))
    for x in range(3):
        for y in {0, 1, 2} - {x}:
            proposed = P[y] / (1.0 - P[x])
            matrix[x, y] = proposed * min(1.0, (1.0 - P[x]) / (1.0 - proposed))
        matrix[x, x] = 1.0 - matrix[x].sum()
    long_run = np.linalg.matrix_power(matrix, 1000)[0].round(4).tolist()
    assert np.allclose(long_run, (0.582, 0.360, 0.058), atol=1e-3)
    with pytest.raises(AssertionError, match=re.escape(f"it draws {long_run} in place of [0.8, ")):
        check_step(proportional, one, 3)


def test_a_sweep_is_not_reversible():
    with pytest.raises(AssertionError, match=r"not reversible: p\(x\) P\(x, x'\) is"):
        check_step(sweep, glass, SIZES, reversible=True)

    def counted(state, rng):
        return sweep(state, by_numbers_of_its_own.rng)

    with pytest.raises(AssertionError, match=r"not reversible: of 20000 transitions"):
        check_step(counted, glass, SIZES, reversible=True, n_calls=20_000)


def test_parts_that_are_never_left_are_told():
    def first(state, rng):
        r = math.exp(log_p(flipped(state, 0)) - log_p(state))
        return flipped(state, 0) if rng.random() < r / (1.0 + r) else state

    with pytest.raises(AssertionError, match=r"not between \[0, 0\] and \[0, 1\] and back"):
        check_step(first, glass, SIZES)
    assert check_step(first, glass, SIZES, irreducible=False).defect < 1e-12


def test_wrong_returns_are_told():
    even = MarkovNetwork([2, 2], [((0, 1), [[1.0, 0.0], [0.0, 1.0]])])
    for returned, text in (
        (np.array([0, 1]), r"from \[0, 0\] the step goes to \[0, 1\]"),
        (np.array([0, 2]), r"goes to \[0, 2\]"),
        (np.array([0.5, 0.0]), r"goes to \[0.5, 0.0\]"),
        (0, "goes to 0"),
        (None, "goes to None"),
    ):
        with pytest.raises(AssertionError, match=text):
            check_step(lambda state, rng, there=returned: there, even)


def test_probabilities_in_place_of_logarithms_are_told():
    p = np.array([0.2, 0.3, 0.5])

    def draw(state, rng):
        return rng.choice(3, size=1, p=p)

    with (
        pytest.warns(
            ModelWarning, match=r"sum up to 1. If these are probabilities, return their lo"
        ),
        pytest.raises(AssertionError, match="does not leave p invariant"),
    ):
        check_step(draw, lambda x: p[x[:, 0]], 3)


def test_targets_are_taken():
    table = np.exp(TABLES.log_prob(np.array([*np.ndindex(3, 2)]))).reshape(3, 2)

    def step(state, rng):
        i = rng.integers(2)
        p = table[state[0]] if i else table[:, state[1]]
        there = state.copy()
        there[i] = rng.choice(p.size, p=p / p.sum())
        return there

    found = check_step(step, TABLES, reversible=True).matrix
    rule = GibbsSampler("random", n_burn_in=1, n_chains=1).fit(TABLES).run_.ensemble.rule
    np.testing.assert_allclose(found, measured_matrix(rule, TABLES), rtol=0.0, atol=1e-12)

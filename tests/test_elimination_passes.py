"""Passes of elimination over all kinds of layouts, against sums over joint tables."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp

from sklsb._kernels.elimination.buckets import CONSTANT, LINEAR, LOG, MAX, RUN
from sklsb._kernels.elimination.buckets import LARGE as LARGE_MESSAGE
from sklsb.exact.elimination import layout, passes
from sklsb.exact.elimination.passes import Passes
from sklsb.exact.elimination.plan import build
from sklsb.exact.elimination.reduce import Factor
from sklsb.exact.elimination.schedule import BucketTree, Route

# Entries of a clique laid out with care, of a block, and of a joined table.
LAYOUTS = [(1 << 12, 1 << 10, 1 << 14), (4, 1 << 10, 16), (4, 64, 1 << 14), (4, 8, 64), (4, 1, 1)]


def random_factors(seed, sizes, scale=1.0):
    """Tables over random sets of one to four variables, some entries of which are zero."""
    rng = np.random.default_rng(seed)
    factors = []
    for _ in range(2 * len(sizes)):
        scope = rng.choice(len(sizes), size=rng.integers(1, 5), replace=False).tolist()
        table = scale * rng.normal(size=[sizes[v] for v in scope])
        table[rng.random(table.shape) < 0.05] = -np.inf
        factors.append(Factor(tuple(scope), table))
    return factors


def joint(factors, sizes):
    """Logarithms of the products of all tables."""
    total = np.zeros(sizes)
    for scope, table in factors:
        order = np.argsort(scope)
        shape = [k if v in scope else 1 for v, k in enumerate(sizes)]
        total += table.transpose(order).reshape(shape)
    return total


def plan_of(order, factors, sizes):
    """Lay out all messages and their beliefs beside each other."""
    schedule = Route(BucketTree.of(order, factors, sizes), "marginals", np.inf).schedule()
    return build(order, factors, sizes, schedule=schedule)


def marginals(total, k):
    p = np.exp(total - logsumexp(total))
    result = np.zeros((total.ndim, k))
    for v in range(total.ndim):
        result[v, : total.shape[v]] = p.sum(axis=tuple(u for u in range(total.ndim) if u != v))
    return result


def arrange(monkeypatch, large, block, joined):
    monkeypatch.setattr(layout, "LARGE", large)
    monkeypatch.setattr(layout, "_BLOCK", block)
    monkeypatch.setattr(layout, "_SMALL_BLOCK", min(block, 128))
    monkeypatch.setattr(layout, "_JOINED", joined)
    monkeypatch.setattr(layout, "_SHARE", 1)


def sizes_of(seed):
    """Numbers of values from 2 to 11, of at most 2**16 joint states."""
    rng, sizes = np.random.default_rng([seed, 1]), []
    while math.prod(sizes) < 1 << 13:
        sizes.append(2 + int(rng.integers(10) * rng.random() ** (seed % 3)))
    return sizes


def small_order(seed, n):
    return np.random.default_rng([seed, 2]).permutation(n).tolist()


@pytest.mark.parametrize("arrangement", LAYOUTS)
@pytest.mark.parametrize("seed", range(16))
def test_all_modes_against_the_joint_table(monkeypatch, seed, arrangement):
    arrange(monkeypatch, *arrangement)
    monkeypatch.setattr(passes, "_SHARED", 1 << 9)
    sizes = sizes_of(seed)
    factors, n, k = random_factors(seed, sizes), len(sizes), max(sizes)
    total, x = joint(factors, sizes), np.zeros(n, np.int64)
    plan = plan_of(small_order(seed, n), factors, np.array(sizes))
    for mode in (LINEAR, LOG):
        found = Passes(plan, mode)
        assert abs(found.forward(x) - logsumexp(total)) < 1e-11 * max(1.0, abs(total.max()))
        np.testing.assert_allclose(found.marginals((n, k)), marginals(total, k), atol=1e-12)
        states = np.argwhere(np.isfinite(total))[::97].T.astype(np.uint32)
        at = tuple(states.astype(np.intp))
        p = np.exp(total[at] - logsumexp(total))
        np.testing.assert_allclose(found.probabilities(states), p, rtol=1e-10)
        np.testing.assert_allclose(found.log_densities(states), total[at], atol=1e-11)
    found = Passes(plan, MAX)
    assert abs(found.forward(x) - total.max()) < 1e-11 * max(1.0, abs(total.max()))
    best = found.states(1, x)
    found.largest(best)
    assert total[tuple(best[:, 0].astype(np.intp))] == pytest.approx(total.max(), abs=1e-11)


@pytest.mark.parametrize("arrangement", LAYOUTS)
@pytest.mark.parametrize("seed", range(6))
def test_variables_conditioned_on_shift_joined_tables(monkeypatch, seed, arrangement):
    arrange(monkeypatch, *arrangement)
    sizes = sizes_of(seed)
    factors, n = random_factors(seed, sizes), len(sizes)
    total = joint(factors, sizes)
    order = small_order(seed, n)
    given = sorted(order[-2:])
    found = Passes(plan_of(order[:-2], factors, np.array(sizes)))
    for values in itertools.product(*(range(sizes[v]) for v in given)):
        x, index = np.zeros(n, np.int64), [slice(None)] * n
        for v, value in zip(given, values, strict=True):
            x[v] = index[v] = value
        part = total[tuple(index)]
        expected = logsumexp(part)
        assert found.forward(x) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("mode", [LINEAR, LOG, MAX])
@pytest.mark.parametrize("seed", range(6))
def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch, seed, mode):
    arrange(monkeypatch, 4, 32, 64)
    monkeypatch.setattr(passes, "_SHARED", 1 << 9)
    monkeypatch.setattr(passes, "_BUDGET", dict.fromkeys((LINEAR, LOG, MAX), 1 << 11))
    sizes = sizes_of(seed)
    n, x = len(sizes), np.zeros(len(sizes), np.int64)
    plan = plan_of(small_order(seed, n), random_factors(seed, sizes), np.array(sizes))
    results = []
    for n_jobs in (1, 2, 3):
        made: list[int] = []
        found = Passes(plan, mode, n_jobs)
        found.progress = made.append
        value = found.forward(x)
        assert made
        assert sum(made) == int(plan.buckets.message_size @ plan.buckets.k)
        memory = found.memory[: plan.buckets.belief.min()].tobytes()  # beliefs come later
        back = found.marginals((n, max(sizes))).tobytes() if mode != MAX else b""
        results.append((value, memory, found.scales.tobytes(), back))
    assert results[0] == results[1] == results[2]


def test_every_kind_of_layout_occurs(monkeypatch):
    """The tests above go through all branches of the kernels."""
    kinds, periods, pieces, values, joined = set(), set(), set(), set(), 0
    for arrangement, seed in itertools.product(LAYOUTS, range(16)):
        arrange(monkeypatch, *arrangement)
        sizes = sizes_of(seed)
        factors = random_factors(seed, sizes)
        plan = plan_of(small_order(seed, len(sizes)), factors, np.array(sizes))
        starts, buckets = plan.buckets.offset_start, plan.buckets
        sent = buckets.sender >= 0
        kinds |= {(min(int(s), 0), bool(m)) for s, m in zip(starts, sent, strict=True)}
        scattered = buckets.scattered_start < buckets.factor_start[1:]
        periods |= set(buckets.period[scattered].tolist())
        shared = buckets.message_size * buckets.k >= 1 << 9
        pieces |= set(plan.n_pieces[shared].tolist())
        joined += int((~sent).sum()) < len(factors)
        values |= set(sizes)
    assert kinds == {(kind, m) for kind in (CONSTANT, RUN, 0) for m in (False, True)}
    assert 1 in periods
    assert max(periods) > 1
    assert 1 in pieces
    assert max(pieces) > 1
    assert joined > 10
    assert values == set(range(2, 12))


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("seed", range(4))
def test_large_messages_are_scaled_where_they_must_be(seed, scale):
    """A large message is only halved, unless its entries are small."""
    sizes = [2] * 16
    rng = np.random.default_rng([seed, 3])
    pairs = itertools.combinations(range(16), 2)
    factors = [Factor(pair, scale * rng.normal(size=(2, 2))) for pair in pairs]
    plan = plan_of(list(range(16)), factors, np.array(sizes))
    assert int(plan.buckets.message_size.max()) >= LARGE_MESSAGE
    total, found = joint(factors, sizes), Passes(plan)
    value = found.forward(np.zeros(16, np.int64))
    if scale == 1.0:
        assert found.mode == LINEAR
    large = np.flatnonzero(plan.buckets.message_size >= LARGE_MESSAGE)
    for i in large if found.mode == LINEAR else []:
        first = plan.buckets.message[i]
        top = found.memory[first : first + plan.buckets.message_size[i]].max()
        assert 2.0**-17 <= top <= 1.0
    assert value == pytest.approx(logsumexp(total), rel=1e-13)
    np.testing.assert_allclose(found.marginals((16, 2)), marginals(total, 2), atol=1e-10)

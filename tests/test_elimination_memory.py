"""Which messages elimination holds: freed, made again, sliced; against enumeration and by steps."""

import dataclasses
import functools
import math
import tracemalloc

import numpy as np
import pytest
from models import pairs
from test_elimination import Logs, enumerated, lattice, marginals_of

from sklsb import EliminationSampler, Ising, MarkovNetwork, draw, exact
from sklsb._kernels.elimination.buckets import LINEAR, LOG, MAX
from sklsb.exact.elimination import cost
from sklsb.exact.elimination.cost import MAX_WORK
from sklsb.exact.elimination.engine import Elimination, ordered
from sklsb.exact.elimination.passes import Passes
from sklsb.exact.elimination.reduce import strike
from sklsb.exact.elimination.schedule import BucketTree, Route, cliques
from sklsb.exceptions import SamplerWarning

NEEDS = ("sum", "state", "marginals")
SEEDS = range(12)


def linkage(seed):
    """A network of loops as in pedigrees: tables of near variables, a third of them with zeros."""
    rng = np.random.default_rng(seed)
    k = rng.permutation([2] * 5 + [3] * 2 + [4, 5]) if seed % 2 else np.full(13, 2)
    n, possible, factors = k.size, rng.integers(k), []
    for i in range(n):
        near = [j for j in range(n) if 0 < abs(i - j) < 5]
        scope = [i, *rng.permutation(near)[: rng.integers(1, 3)].tolist()]
        table = np.exp(rng.normal(size=k[scope]))
        zero = rng.random(table.shape) < (0.4 if seed % 3 == 0 else 0.0)
        zero[tuple(possible[scope])] = False
        factors.append((tuple(scope), np.where(zero, 0.0, table)))
    return MarkovNetwork(k, factors)


def laid_out(target, need, room):
    """An order of elimination whose messages keep ``room``, if they can, without slices."""
    found = ordered(strike(target), pruned=False)
    tree = BucketTree.of(found.order, found.model.factors, found.model.sizes)
    order, plan = scheduled(tree, need, room)
    return dataclasses.replace(found, order=order, schedule=plan)


def scheduled(*args):
    route = Route(*args)
    return route.tree.order, route.schedule()


def peak_of(*args):
    route = Route(*args)
    return route.peak, route.n_again


def rooms(target, need):
    """Entries from enough for all messages to too few."""
    found = ordered(strike(target), pruned=False, need=need)
    return [int(found.schedule.n_entries * 2.0 ** (-j / 3)) for j in range(10)]


# ----------------------------------------------------------------- answers


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_are_right_whatever_is_held(seed):
    target = linkage(seed)
    x, log_p, log_z, p = enumerated(target)
    expected = marginals_of(target, x, p)
    for need in NEEDS:
        for room in rooms(target, need):
            found = laid_out(target, need, room)
            elimination = Elimination(found, MAX if need == "state" else LINEAR)
            n_tables = elimination.passes.plan.log_tables.size
            assert elimination.passes.memory.size == n_tables + found.schedule.n_entries
            if need == "state":
                best = elimination.most_likely()
                assert target.log_prob(best) == pytest.approx(log_p.max(), abs=1e-12)
                assert np.array_equal(elimination.most_likely(), best)
                continue
            assert abs(elimination.log_sum - log_z) < 1e-12
            if need == "marginals":
                one = elimination.marginals()
                assert np.abs(one - expected).max() < 1e-13
                assert np.array_equal(elimination.marginals(), one)


def test_all_that_was_tried():
    """Messages were freed, made again once and twice; and nothing more than was asked."""
    freed, again, levels = 0, 0, set()
    for seed in SEEDS:
        target = linkage(seed)
        for need in NEEDS:
            everything, *smaller = rooms(target, need)
            for room in smaller:
                found = laid_out(target, need, room)
                freed += found.schedule.n_entries < everything
                again += found.schedule.n_again > 0
                n_sent = np.zeros(len(found.order), dtype=int)
                for step in found.schedule.back:
                    n_sent[step.first : step.end] += step.sends
                levels.add(int(n_sent.max(initial=0)))
    assert freed > 100
    assert again > 100
    assert levels == {0, 1, 2}


@pytest.mark.parametrize("memory", 2.0 ** np.arange(11.0, 16.0, 0.5))
def test_answers_within_limits(memory):
    """Freed, made again and sliced, as `max_memory` allows."""
    rng = np.random.default_rng(0)
    target = Ising.lattice(rng.normal(size=(3, 4)), 0.4)
    x, log_p, log_z, p = enumerated(target)
    expected = marginals_of(target, x, p).reshape(3, 4, 2)
    pair = np.zeros((2, 2))
    np.add.at(pair, tuple((x[:, [0, 7]].T > 0).astype(int)), p)
    limit = {"max_memory": memory}
    if exact.elimination_cost(target, "marginals", **limit).log2_memory > np.log2(memory):
        with pytest.raises(ValueError, match="bytes of memory"):
            exact.marginals(target, **limit)
        return
    assert abs(exact.log_partition(target, **limit) - log_z) < 1e-12
    assert np.abs(exact.marginals(target, **limit)["p"].values - expected).max() < 1e-13
    joint = exact.marginals(target, [(0, 0), (1, 3)], **limit)["p"].values
    assert np.abs(joint - pair).max() < 1e-13
    assert float(exact.most_likely(target, **limit)["lp"]) == pytest.approx(log_p.max(), abs=1e-12)


@pytest.mark.parametrize("need", ["log_partition", "marginals"])
def test_more_memory_than_is_supported_is_no_more_work(need, monkeypatch):
    for module in ("engine", "cost"):
        monkeypatch.setattr(f"sklsb.exact.elimination.{module}.MOST_ENTRIES", 1 << 16)
    target = lattice(9)
    costs = [exact.elimination_cost(target, need, max_memory=2.0**k) for k in range(15, 34, 3)]
    times = np.array([one.log2_work for one in costs])
    assert (np.diff(times) < 0.5).all()
    assert costs[-1].fits
    assert 1 < costs[-1].n_configurations <= 64


@pytest.mark.parametrize("scale", [300.0, 3000.0])
def test_messages_made_again_as_logarithms(scale):
    rng, n = np.random.default_rng(0), 13
    scopes = [scope for i in range(n - 3) for scope in ((i, i + 1), (i, i + 3))]
    target = Logs([2] * n, [(scope, -scale * rng.random((2, 2))) for scope in scopes])
    x, _, log_z, p = enumerated(target)
    size, again, modes = 1.0 + abs(log_z), 0, set()
    for room in rooms(target, "marginals"):
        found = laid_out(target, "marginals", room)
        elimination = Elimination(found)
        assert abs(elimination.log_sum - log_z) < 1e-14 * size
        found_p = elimination.marginals()
        assert np.abs(found_p - marginals_of(target, x, p)).max() < 1e-14 * size
        again += found.schedule.n_again > 0
        modes.add(elimination.passes.mode)
    assert again
    assert modes == {LOG}


# ----------------------------------------------------------------- the schedule, step by step


def walked(order, axes, sizes, need, plan):
    """Go through a schedule cell by cell; return the entries made again and those ever used.

    Whatever is read must be what was last written there.
    """
    place = {v: i for i, v in enumerate(order)}
    size = [math.prod(int(sizes[u]) for u in mine) for mine in axes]
    children = [[] for _ in order]
    for i, mine in enumerate(axes):
        if mine:
            children[place[mine[-1]]].append(i)
    cells = np.full(plan.n_entries, -1)

    def write(at, i, kind):
        assert 0 <= at <= plan.n_entries - size[i]
        cells[at : at + size[i]] = 2 * i + kind

    def read(at, i, kind):
        assert (cells[at : at + size[i]] == 2 * i + kind).all()

    def send(i):
        for c in children[i]:
            read(plan.message[c], c, 0)
        write(plan.message[i], i, 0)
        for c in children[i]:
            read(plan.message[c], c, 0)  # not overwritten while it is read

    for i in range(len(order)):
        send(i)
    for i, mine in enumerate(axes):
        if not mine:
            read(plan.message[i], i, 0)
            if need == "marginals":
                write(plan.belief[i], i, 1)
    again, passed = 0.0, []
    for step in plan.back if need != "sum" else []:
        span = range(step.first, step.end)
        for i in span if step.sends else reversed(span):
            if step.sends:
                send(i)
                again += size[i] * float(sizes[order[i]])
                continue
            if need == "marginals":
                for c in children[i]:
                    write(plan.belief[c], c, 1)
                    read(plan.message[c], c, 0)
                read(plan.belief[i], i, 1)
            for c in children[i]:
                read(plan.message[c], c, 0)
            passed.append(i)
    if need != "sum":
        assert passed == list(range(len(order)))[::-1]
    return again


def models():
    rng = np.random.default_rng(0)
    yield Ising.lattice(rng.normal(size=(9, 9)), 0.3, periodic=False)
    yield Ising.lattice(rng.normal(size=(6, 6)), 0.3)
    yield Ising(np.diag(np.full(39, 0.5), 1) + np.diag(np.full(39, 0.5), -1), np.zeros(40))
    for seed in range(4):
        yield linkage(seed)


@pytest.mark.parametrize("need", NEEDS)
def test_whatever_is_read_is_there(need):
    again = 0
    for target in models():
        found = ordered(strike(target), pruned=False)
        factors, sizes = found.model.factors, found.model.sizes
        for turn in range(3):  # of the order found, and of bad ones
            order = found.order
            if turn and len(order) < 20:
                order = np.random.default_rng(turn).permutation(order).tolist()
            tree = BucketTree.of(order, factors, sizes)
            late = order[-turn:] if turn else []
            for room in 2.0 * tree.size.sum() * 2.0 ** (-np.arange(12) / 2):
                turned, plan = scheduled(tree, need, room, late)
                assert turned[len(turned) - len(late) :] == late
                assert plan.axes == cliques(turned, factors)
                assert sorted(map(sorted, plan.axes)) == sorted(map(sorted, tree.axes))
                assert walked(turned, plan.axes, sizes, need, plan) == plan.n_again
                assert plan.n_again <= 2.0 * tree.work.sum()
                peak, said = peak_of(tree, need, room, late)
                assert said == plan.n_again
                assert peak <= plan.n_entries <= 1.1 * peak + 8
                again += plan.n_again > 0
    assert (again > 20) == (need != "sum")


def test_messages_of_late_variables_stay():
    target = lattice(5)
    found = ordered(strike(target), pruned=False)
    late = found.order[-4:]
    tree = BucketTree.of(found.order, found.model.factors, found.model.sizes)
    order, plan = scheduled(tree, "sum", 1.0, late)
    axes = plan.axes
    begins = [
        (int(plan.message[i]), 2 ** len(axes[i]))
        for i in range(len(order))
        if not set(axes[i]) - set(late)
    ]
    taken = np.concatenate([np.arange(at, at + n) for at, n in begins])
    assert np.unique(taken).size == taken.size


def test_a_path_needs_few_messages():
    """Of 1,000 variables in a row: sums hold two messages, the way back about 3 * 1000**(1/3)."""
    tree = BucketTree(range(1000), [(i + 1,) for i in range(999)] + [()], np.full(1000, 2))
    for need, most in (("sum", 4 * 2), ("state", 40 * 2), ("marginals", 45 * 2)):
        peak, again = peak_of(tree, need, 16.0)
        assert peak <= most + 1
        assert again <= 2 * 4000
        assert peak_of(tree, need, 1e6) == (
            1999.0 * (1 + (need == "marginals")),
            0.0,
        )
    assert peak_of(tree, "draws", 16.0) == (1999.0, 0.0)


def test_subtrees_that_hold_much_come_first():
    """Two lead to the last variable: one by 1,024 entries to 2, the other to 256 at once."""
    sizes, order = np.array([2, 2, 2, 2, 128, 512]), [0, 1, 2, 3]
    axes = [(4, 3), (5, 2), (3,), ()]  # the last one is summed out next
    tree = BucketTree(order, axes, sizes)
    turned = tree.depth_first()
    assert turned.order == [1, 2, 0, 3]
    assert turned.axes == [axes[v] for v in turned.order]
    assert peak_of(tree, "sum", 1.0)[0] == 1024 + 2 + 1
    assert tree.depth_first([2, 3]).order == [1, 0, 2, 3]


def test_hopeless_orders_are_rated_too():
    n = 600
    order, axes = list(range(n)), [tuple(range(n - 1, i, -1)) for i in range(n)]
    for need in NEEDS:
        peak, again = peak_of(BucketTree(order, axes, np.full(n, 2)), need, 2.0**25)
        assert 2.0**599 <= peak < 2.0**602
        assert again < 2.0**603
        peak, again = peak_of(BucketTree(order, axes, np.full(n, 8)), need, 2.0**25)
        assert 2.0**900 <= peak < math.inf
        assert math.isfinite(again)


# ----------------------------------------------------------------- what is said


@pytest.mark.parametrize(
    ("bits", "task"), pairs([20, 21, 22, 23, 30], ["log_partition", "marginals", "most_likely"])
)
def test_memory_said_is_memory_used(task, bits):
    target = Ising.lattice(np.random.default_rng(0).normal(size=(14, 14)), 0.3, periodic=False)
    answer, limit = getattr(exact, task), {"max_memory": 2.0**bits}
    answer(target, **limit)  # nothing is compiled or kept later
    tracemalloc.start()
    answer(target, **limit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    said = 2.0 ** exact.elimination_cost(target, task, **limit).log2_memory
    assert said <= 2.0**bits
    assert 0.7 * said < peak < 1.3 * said + 2.0**19  # besides, the search for an order


@pytest.mark.parametrize("task", ["log_partition", "marginals", "most_likely"])
def test_work_said_is_work_done(monkeypatch, task):
    """Progress counts what is made again, up to the work that the cost says."""
    target = Ising.lattice(np.random.default_rng(0).normal(size=(8, 8)), 0.3, periodic=False)
    need = {"log_partition": "sum", "marginals": "marginals", "most_likely": "state"}[task]
    again, sliced = 0, 0
    for bits in np.arange(14.0, 18.0, 0.5):
        limits = MAX_WORK, 2.0**bits
        found = ordered(strike(target), pruned=False, need=need, limits=limits)
        n, made = found.cost.n_configurations, []
        elimination = Elimination(found, MAX if need == "state" else LINEAR)
        elimination.passes.progress = made.append
        work = BucketTree.of(found.order, found.model.factors, found.model.sizes).work.sum()
        if need == "sum":
            assert elimination.log_sum < math.inf
        elif need == "marginals":
            elimination.marginals()
        else:
            elimination.run()
            elimination.forward(int(elimination.log_sums.argmax()))
            del made[:]
            elimination.most_likely()
        ways = {"sum": n, "marginals": 2 * n, "state": 0}[need]
        times = {"sum": 0, "marginals": n, "state": 1}[need]
        assert sum(made) == ways * work + times * found.schedule.n_again
        ways = {"sum": n, "marginals": n, "state": n}[need]
        expected = ways * work + times * found.schedule.n_again
        assert 2.0**found.cost.log2_work == pytest.approx(expected)
        again += found.schedule.n_again > 0
        sliced += n > 1
    assert sliced
    assert (again > 0) == (need != "sum")


def test_draws_keep_all_messages():
    """Chains come back any number of times, so that nothing may be freed."""
    target = lattice(6)
    found = ordered(strike(target))
    messages = BucketTree.of(found.order, found.model.factors, found.model.sizes).size.sum()
    assert found.schedule.n_entries == messages
    elimination = Elimination(found)
    plan = elimination.passes.plan
    assert plan.n_entries == plan.log_tables.size + messages
    once = exact.elimination_cost(target, "sample")
    assert once.log2_memory >= np.log2(8 * messages)


def test_ctrl_c_on_the_way_back(monkeypatch):
    """Messages that are used up are made anew."""
    target = linkage(1)
    found = laid_out(target, "marginals", rooms(target, "marginals")[-1])
    assert found.schedule.n_again > 0
    elimination = Elimination(found)
    expected = elimination.marginals()
    go_back = Passes._go_back

    def interrupted(self, through):
        calls = []

        def once(first, end):
            calls.append(first)
            if len(calls) == 2:
                raise KeyboardInterrupt
            through(first, end)

        go_back(self, once)

    with monkeypatch.context() as patch:
        patch.setattr(Passes, "_go_back", interrupted)
        with pytest.raises(KeyboardInterrupt):
            elimination.marginals()
    assert np.array_equal(elimination.marginals(), expected)


# ----------------------------------------------------------------- tables larger than the limit


def chain_of_many_values(n=30, k=40):
    """A chain whose tables are nearly all of it, log Z and the last marginal by hand."""
    tables = np.random.default_rng(0).random((n - 1, k, k))
    forward, log_z = np.ones(k), 0.0
    for table in tables:
        forward = forward @ table
        log_z += math.log(forward.sum())
        forward /= forward.sum()
    return MarkovNetwork([k] * n, [((i, i + 1), t) for i, t in enumerate(tables)]), log_z, forward


@pytest.mark.parametrize("task", ["log_partition", "marginals", "sample", "most_likely"])
def test_large_tables_are_no_reason_to_slice(task):
    target, _, _ = chain_of_many_values()
    found = exact.elimination_cost(target, task, max_memory=2.0**20)
    assert (found.n_configurations, found.log2_memory > 20.0) == (1, True)
    answer = functools.partial(getattr(exact, task), target, *[2] * (task == "sample"))
    told = r"2\*\*2\d\.\d bytes of memory, and max_memory allows 2\*\*20\.0\. Give max_memory=2\*\*"
    with pytest.raises(ValueError, match=told) as error:
        answer(max_memory=2.0**20)
    assert "max_work" not in str(error.value)
    answer(max_memory=2.0 ** int(str(error.value).split("Give max_memory=2**")[1].split(",")[0]))


def test_by_default_more_memory_is_used_where_it_is_free(monkeypatch):
    target, log_z, last = chain_of_many_values()
    wanted = exact.sample(target, 5, random_state=0)
    monkeypatch.setattr(cost, "MAX_MEMORY", 2.0**18)
    plans = []
    for free in (2**23, 2**40):
        monkeypatch.setattr(cost, "available", lambda free=free: free)
        assert exact.log_partition(target) == pytest.approx(log_z, abs=1e-9)
        np.testing.assert_allclose(exact.marginals(target)["p"][-1], last, atol=1e-12)
        np.testing.assert_array_equal(exact.sample(target, 5, random_state=0).x, wanted.x)
        sampler = EliminationSampler(random_state=0).fit(target)
        assert sampler.log_z_ == pytest.approx(log_z, abs=1e-9)
        assert draw(target, 2).attrs["independent"]
        grid = ordered(strike(lattice(10)), need="sum", limits=cost.check_limits(None, None, "sum"))
        plans.append((exact.elimination_cost(target, "sample"), grid.cost, grid.order, grid.given))
        assert plans[-1][0].fits
    assert plans[0] == plans[1]  # not on how much is free
    assert plans[0][1].log2_memory > 10.0
    for free in (None, 2**20):
        monkeypatch.setattr(cost, "available", lambda free=free: free)
        assert not exact.elimination_cost(target).fits
        with pytest.raises(ValueError, match=r"max_memory allows 2\*\*1[89]\.0\. Give max_memory="):
            exact.log_partition(target)


def test_messages_beyond_the_memory_ask_for_more_where_slices_are_too_much_work():
    target = lattice(7)
    whole = exact.elimination_cost(target)
    limits = {"max_work": 1.2 * 2.0**whole.log2_work, "max_memory": 2.0**13}
    with pytest.raises(ValueError, match=r"allows 2\*\*13\.0\. Give max_memory=2\*\*\d\d"):
        exact.log_partition(target, **limits)


def test_draw_within_a_limit():
    target, _, _ = chain_of_many_values(12, 8)
    assert draw(target, 3, max_memory=2**20).attrs["independent"]
    with pytest.warns(SamplerWarning, match=r"would take 2\*\*\d+ table entries and max_memory=2"):
        assert not draw(target, 3, random_state=0, max_memory=2**12).attrs["independent"]


@pytest.mark.parametrize("need", [*NEEDS, "draws"])
def test_what_is_too_large_for_a_limit_is_planned_all_the_same(need):
    """Parts may exceed their share of a limit that the whole keeps."""
    target, log_z, last = chain_of_many_values(12, 8)
    for limits in ((MAX_WORK, 2.0**8), (2.0**4, 2.0**8), (2.0**4, 2.0**30)):
        found = ordered(strike(target), pruned=False, need=need, limits=limits)
        assert found.cost.n_configurations == 1
        elimination = Elimination(found, MAX if need == "state" else LINEAR)
        if need != "state":
            assert elimination.log_sum == pytest.approx(log_z, abs=1e-9)
        if need == "marginals":
            np.testing.assert_allclose(elimination.marginals()[-1], last, atol=1e-12)

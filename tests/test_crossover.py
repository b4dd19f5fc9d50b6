"""Two replicas at one temperature that exchange parts in which they differ."""

import copy
import itertools
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from sklsb import (
    FunctionTarget,
    GibbsSampler,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    exact,
)
from sklsb._kernels._jit import kernel
from sklsb._kernels.chains import chain_at
from sklsb._kernels.rules.gibbs import Systematic
from sklsb._kernels.run import Drawing
from sklsb._kernels.tempering.crossing import _differing, cross
from sklsb.diagnostics import marginals
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exceptions import SamplerWarning, TemperingWarning
from sklsb.samplers._tempering.ladders import Ladders


def network():
    """Two branches of three-valued variables with zeros at a variable in the middle."""
    rng = np.random.default_rng(0)
    one, other = rng.gamma(1.0, size=(3, 2)), rng.gamma(1.0, size=(2, 2))
    one[1, 0] = 0.0
    last = [[3.0, 0.0], [1.0, 2.0]]
    return MarkovNetwork([3, 2, 2, 2], [((0, 1), one), ((1, 2), other), ((2, 3), last)])


def grid(shape, couplings):
    """Two-valued variables with pairs on a grid, and two that are always equal.

    These have zeros, so that all targets here take the same compiled path.
    """
    sites = np.arange(np.prod(shape)).reshape(shape)
    pairs = [(sites[1:], sites[:-1]), (sites[:, 1:], sites[:, :-1])]
    pairs = [pair for a, b in pairs for pair in zip(a.ravel(), b.ravel(), strict=True)]
    tables = [np.exp([[j, -j], [-j, j]]) for _, j in zip(pairs, couplings, strict=False)]
    equal = ((sites.size, sites.size + 1), np.eye(2))
    factors = [*zip(pairs, tables, strict=True), equal]
    return MarkovNetwork([2] * (sites.size + 2), factors)


def glass(seed, shape, beta):
    """Couplings +-beta on a grid with open ends."""
    return grid(shape, np.random.default_rng(seed).choice([-beta, beta], 2 * np.prod(shape)))


def make(**params):
    rest = {"n_chains": 2, "n_burn_in": 256, "random_state": 0, "crossover": True}
    rest |= {"eliminate": None, "explorer": GibbsSampler("systematic")}
    return ParallelTempering(**rest | params)


def draws(sampler, n, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return sampler.sample(n, **settings)["x"].values


def states_of(target):
    return np.array(list(itertools.product(*(target.values[:k] for k in target.cardinalities))))


@kernel
def exchange(path, rule, crossing, chains, c, k, u):
    pair = chain_at(chains, 2 * c), chain_at(chains, 2 * c + 1)
    return cross(crossing, path, rule, pair, c, k, u)


def parts_of(target, x, y):
    """Parts of all that differs, by scipy."""
    where = np.flatnonzero(x != y)
    label = connected_components(target.graph[where][:, where])[1] if where.size else []
    return [where[label == one] for one in np.unique(label)]


def exchanged(x, y, part):
    """Both states after an exchange of a part, or of all others that differ if these are fewer."""
    where = np.flatnonzero(x != y)
    if 2 * part.size > where.size:
        part = np.setdiff1d(where, part)
    x, y = x.copy(), y.copy()
    x[part], y[part] = y[part], x[part].copy()
    return x, y


def exchange_matrix(target, x):
    """The exchange of two states as a matrix over all pairs, by the formula."""
    n, index = len(x), {tuple(state): i for i, state in enumerate(x.tolist())}
    matrix = np.zeros((n * n, n * n))
    for i, j in itertools.product(range(n), repeat=2):
        parts = parts_of(target, x[i], x[j])
        if not parts:
            matrix[i * n + j, i * n + j] = 1.0
        for part in parts:
            a, b = (index[tuple(one.tolist())] for one in exchanged(x[i], x[j], part))
            matrix[i * n + j, a * n + b] += part.size / (x[i] != x[j]).sum()
    return matrix


@pytest.mark.parametrize("level", [1, 2])
def test_exchanges_are_those_of_the_formula(level):
    """All pairs of states, all numbers that choose differently; caches as of a rebuild."""
    target = network()
    x = states_of(target).astype(np.int8)
    x = x[np.isfinite(target.log_prob(x))] if level == 2 else x
    n = len(x)
    matrix = exchange_matrix(target, x)
    log_p = target.log_prob(x) if level == 2 else np.zeros(n)
    p = np.exp(log_p) / np.exp(log_p).sum()
    pairs = np.kron(p, p)
    np.testing.assert_allclose(pairs[:, None] * matrix, (pairs[:, None] * matrix).T, atol=1e-16)

    first, second = np.divmod(np.arange(n * n), n)
    start = np.stack([x[first], x[second]], axis=1)[:, :, np.newaxis].repeat(3, axis=2)
    n_differ = (x[first] != x[second]).sum(axis=1)
    rule, beta = Systematic(np.arange(4, dtype=np.uint32), 1), np.array([0.0, 0.5, 1.0])
    found = np.zeros_like(matrix)
    index = {tuple(state): i for i, state in enumerate(x.tolist())}
    for j in range(4):
        ladders = Ladders(target, start, Streams(spawn(0, n * n)), rule, beta)
        ladders._refresh()
        chains = ladders.replicas.chains
        rows = np.arange(n * n)[:, None] * 6 + [level, 3 + level]
        two = type(chains)(*(v if v is chains.part else v[rows.ravel()] for v in chains))
        for pair in np.flatnonzero(n_differ > j):
            u = (j + 0.5) / n_differ[pair]
            exchange(ladders._path, rule, ladders._crossing, two, pair, level, u)
            a, b = (index[tuple(two.x[2 * pair + i].tolist())] for i in range(2))
            found[pair, a * n + b] += 1.0 / n_differ[pair]
        fresh = Ladders(
            target,
            two.x.reshape(-1, 2, 1, 4).repeat(3, axis=2),
            Streams(spawn(0, n * n)),
            rule,
            beta,
        )
        fresh._refresh()
        np.testing.assert_array_equal(two.cache, fresh.replicas.chains.cache[rows.ravel()])
    found[np.flatnonzero(n_differ == 0), np.flatnonzero(n_differ == 0)] = 1.0
    np.testing.assert_allclose(found, matrix, rtol=0, atol=1e-15)
    assert (np.diag(matrix) < 1).mean() > 0.2


def test_many_differences_are_counted_in_plain_python_too():
    first, second = (SimpleNamespace(x=np.full(300, k, np.int8)) for k in (0, 1))
    crossing = SimpleNamespace(mark=np.zeros((1, 300), np.int8))
    count = getattr(_differing, "py_func", _differing)
    assert count(crossing, first, second, 0, 0.999) == (300, 299)
    assert count(crossing, first, first, 0, 0.999) == (0, -1)


def test_scans_are_those_of_the_matrix():
    """One scan from one state of each replica: exploring, exchanges at the last level, swaps."""
    from test_tempering import gibbs_matrix, level_logs, swap_matrix

    equal = [[1.0, 0.0], [0.0, 1.0]]
    target = MarkovNetwork([2] * 3, [((0, 1), equal), ((1, 2), [[0.5, 0.3], [0.2, 2.0]])])
    beta, n = np.array([0.0, 0.6, 1.0]), 4000
    x, log_p = level_logs(target, beta)
    p0 = np.exp(log_p[0] - log_p[0].max())
    sweeps = [np.tile(p0 / p0.sum(), (8, 1)), *(gibbs_matrix(x, one) for one in log_p[1:])]
    begin = np.array([[1, 3, 7], [2, 4, 0]])
    law = [[sweeps[k][begin[i, k]] for k in range(3)] for i in range(2)]
    top = (np.kron(law[0][2], law[1][2]) @ exchange_matrix(target, x)).reshape(8, 8)
    joint = np.einsum("a,b,cf,d,e->abcdef", law[0][0], law[0][1], top, law[1][0], law[1][1])
    for parity in (0, 1):
        swaps = swap_matrix(log_p, parity)
        wanted = swaps.T @ joint.reshape(512, 512) @ swaps
        states = np.tile(x[begin].astype(np.int8), (n, 1, 1, 1))
        rule = Systematic(np.arange(3, dtype=np.uint32), 1)
        ladders = Ladders(target, states, Streams(spawn(parity, n)), rule, beta)
        ladders.n_scans = parity
        ladders.run(1, Drawing(), (np.empty((n, 0, 3), np.int8), np.empty((n, 0, 2))))
        index = ladders.states @ np.array([4, 2, 1])
        wanted = wanted.reshape((8,) * 6)
        for one, other in itertools.combinations(range(6), 2):
            rest = tuple(axis for axis in range(6) if axis not in (one, other))
            expected = n * wanted.sum(axis=rest).ravel()
            flat = index.reshape(n, 6)
            counts = np.bincount(flat[:, one] * 8 + flat[:, other], minlength=64)
            assert not counts[expected < 1e-9].any()
            z = (counts - expected) / np.sqrt(expected + 1e-12)
            assert np.abs(z[expected > 5]).max() < 5


@pytest.mark.parametrize("eliminate", [None, 3])  # 3 leaves a core
def test_marginals_and_log_z(eliminate):
    rng = np.random.default_rng(1)
    pairs = [(a, b) for a, b in itertools.combinations(range(6), 2) if (a + b) % 3]
    tables = [rng.gamma(0.5, size=(2, 2)) * (rng.random((2, 2)) > 0.1) for _ in pairs]
    target = MarkovNetwork([2] * 6, zip(pairs, tables, strict=True))
    sampler = make(n_chains=4, eliminate=eliminate).fit(target)
    assert sampler.crossover_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        found = marginals(sampler.sample(3000), target)
    truth = exact.marginals(target)["p"].values
    error = np.where(np.isfinite(found["mcse"]), found["mcse"], 0.0)
    assert (np.abs(found["p"].values - truth) < 5 * error + 1e-12).all()
    assert sampler.log_z_error_ < 0.1
    assert abs(sampler.log_z_ - exact.log_partition(target)) < 5 * sampler.log_z_error_


@pytest.mark.parametrize(
    "explorer",
    [
        GibbsSampler("systematic"),
        pytest.param(LSBSampler("sqrt"), marks=pytest.mark.slow),  # it keeps more than a cache
    ],
    ids=repr,
)
def test_draws_are_the_same_however_they_are_made(explorer):
    target = glass(0, (4, 4), 1.0)
    one, other = (make(n_jobs=n, explorer=explorer).fit(target) for n in (1, 2))
    forks = pickle.loads(pickle.dumps(one)), copy.deepcopy(one)
    x = draws(one, 300)
    np.testing.assert_array_equal(draws(other, 300), x)
    for fork in forks:
        parts = [draws(fork, 101), draws(fork, 0), draws(fork, 199)]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), x)
        assert fork.log_z_ == one.log_z_
        assert fork.index_process_.identical(one.index_process_)
        assert fork.best_state_.identical(one.best_state_)
    again = make(explorer=explorer).fit(target)
    np.testing.assert_array_equal(draws(again, 100, thin=3), x[:, 2::3])


def test_both_copies_make_draws_and_visits():
    """Against the index process: which replica is seen at beta = 1, and since when it is there."""
    sampler = make().fit(glass(1, (4, 4), 1.0))
    ladder, n_levels = sampler.run_.ensemble.ladder, sampler.betas_.size
    before, heading = ladder.trips.copy(), ladder.heading.copy()
    first = sampler.run_.ensemble.n_scans
    draws(sampler, 1000)
    visit = sampler.sample_stats_["visit"].values
    process = sampler.index_process_.sel(scan=slice(first, None)).values
    assert process.shape == (2, 1000, 2 * n_levels)
    levels = np.sort(process.reshape(2, 1000, 2, n_levels), axis=3)
    np.testing.assert_array_equal(levels, np.broadcast_to(np.arange(n_levels), levels.shape))
    for c in range(2):
        trips, stays = 0, []
        for replica in range(2 * n_levels):
            state, stay = heading[c, replica, 0], 0
            for level in process[c, :, replica]:
                trips += level == 0 and state == 2
                top = level == n_levels - 1
                state = 1 if level == 0 else 2 if top and state == 1 else state
                stay += top
                if level == 0:
                    stays.append(stay)
                    stay = 0
            stays.append(stay)
        assert ladder.trips[c, 0] == before[c, 0] + trips
        ended, left = ladder.visits[c], ladder.stay[c].astype(float)
        np.testing.assert_array_equal(ended[0] + left.sum(axis=0), sum(stays))  # of values too
        ended, left = ended[:, 0], left[:, 0]
        assert ended[0] + left.sum() == sum(stays) == 2000
        assert ended[1] + (left**2).sum() == sum(s * s for s in stays)
        seen = np.zeros(2, int)
        for t in range(1000):
            turn = (first + t).bit_count() % 2
            replica = turn * n_levels + process[c, t, turn * n_levels :][:n_levels].argmax()
            low = np.flatnonzero(process[c, : t + 1, replica] == 0)
            if low.size:
                assert visit[c, t] == 2 * (first + low[-1]) + turn
            else:
                assert visit[c, t] < 2 * first
            seen[turn] += 1
        assert seen.min() > 400


def test_replicas_that_hand_a_part_on_do_not_vouch_for_it():
    """One state of eight variables weighs more than all others, and single changes never find it.

    Replicas that are in it would never see beta = 0. But those that come from there take it over,
    and they return with what others had: they travel, and the state does not.
    """
    n, q, n_free = 8, 4, 12
    table = np.ones((q,) * n)
    table[(0,) * n] = np.exp(n * np.log(q) / 0.75)
    free = [((n + i, n + i + 1), [[1.0, 0.0], [0.0, 1.2]]) for i in range(0, n_free, 2)]
    target = MarkovNetwork([q] * n + [2] * n_free, [(tuple(range(n)), table), *free])
    sampler = make(n_replicas=10, n_chains=4, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        sampler.fit(target, initial_states=np.zeros((4, n + n_free), int))
    with pytest.warns(TemperingWarning, match="are worth about|round trips between"):
        sampler.sample(500)
    ladder = sampler.run_.ensemble.ladder
    assert sampler.exchanged_ > 0.5
    assert ladder.trips[:, 0].sum() > 4 * sampler.n_round_trips_.sum()
    squares = ladder.visits[:, 1, 0] + (ladder.stay[:, :, 0].astype(float) ** 2).sum(axis=1)
    assert (1000**2 / squares).sum() > 2 * sampler.n_visits_.sum()


def test_it_is_chosen_where_parts_are_exchanged():
    cold = make(n_burn_in=4096, crossover="auto").fit(glass(1, (10, 10), 1.5))
    assert cold.crossover_
    assert 0.25 < cold.exchanged_ < 1.0
    rng, n = np.random.default_rng(0), 10
    pairs = list(itertools.combinations(range(n), 2))  # all joined: one part
    tables = [np.exp([[j, -j], [-j, j]]) for j in rng.normal(scale=0.3, size=len(pairs))]
    joined = MarkovNetwork([2] * n, [*zip(pairs, tables, strict=True), ((0, 1), [[1, 0], [1, 1]])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        sampler = make(n_burn_in=1024, crossover="auto").fit(joined)
        assert make().fit(joined).exchanged_ == 0.0
    assert not sampler.crossover_
    assert np.isnan(sampler.exchanged_)


def test_warm_start_goes_on_with_both():
    target = glass(0, (4, 4), 1.0)
    sampler = make(warm_start=True).fit(target)
    before = sampler.run_.ensemble.states
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        sampler.set_params(crossover="auto", n_burn_in=0).fit(target)
    assert sampler.crossover_
    np.testing.assert_array_equal(sampler.run_.ensemble.states, before)


def test_warm_start_after_a_pickle_keeps_all_replicas():
    sampler = pickle.loads(pickle.dumps(make(warm_start=True).fit(glass(0, (4, 4), 1.0))))
    before, top = sampler.run_.ensemble.states, sampler.state_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        sampler.set_params(n_burn_in=0).fit(glass(0, (4, 4), 1.0))
        np.testing.assert_array_equal(sampler.run_.ensemble.states, before)
        assert (before != top[:, None, None]).any()
        sampler.fit(glass(0, (4, 4), 1.1))  # another target: all begin at the draws
    states = sampler.run_.ensemble.states
    np.testing.assert_array_equal(states, np.broadcast_to(top[:, None, None], states.shape))


def test_errors():
    with pytest.raises(ValueError, match="crossover is 'yes'; give"):
        make(crossover="yes").fit(network())
    with pytest.raises(ValueError, match=r"crossover is True, and FunctionTarget does not say"):
        make().fit(FunctionTarget(lambda x: float(x[0]), 3))

"""Parallel tempering: its path, its scan as a matrix, log Z, and the interface of the samplers."""

import copy
import itertools
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_estimator import NOT_FOR_ARRAYS, OfArrays

from sklsb import (
    RBM,
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    exact,
)
from sklsb._tempering.ladders import Ladders
from sklsb._tempering.paths import PathMaker, tables_of
from sklsb._tempering.schedule import equal_steps
from sklsb.diagnostics import marginals
from sklsb.exceptions import ShortRunWarning, TemperingWarning
from sklsb.rules import Systematic
from sklsb.streams import Streams, spawn

EPS = np.finfo(float).eps
QUIET = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")


def network():
    """Eight states, of which some are impossible, in parts that no single change connects."""
    equal = [[1.0, 0.0], [0.0, 1.0]]
    return MarkovNetwork([2] * 3, [((0, 1), equal), ((1, 2), [[0.5, 0.3], [0.2, 2.0]])])


@pytest.fixture(scope="module")
def ising():
    return Ising.lattice(np.random.default_rng(0).normal(scale=0.3, size=(3, 4)), coupling=0.8)


def make(**params):
    return ParallelTempering(**{"n_chains": 2, "n_burn_in": 256, "random_state": 0} | params)


def draws(sampler, n, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        warnings.simplefilter("ignore", ShortRunWarning)
        return sampler.sample(n, **settings)["x"].values


# ----------------------------------------------------------------- the path


def test_the_last_level_is_the_target_bit_for_bit():
    table = [[0.0, 0.2, 0.3], [0.1, 0.0, 2.0], [0.7, 0.4, 0.0]]
    ring = MarkovNetwork([3] * 4, [((i, (i + 1) % 4), table) for i in range(4)])
    for target in (network(), ring, ring.condition({0: 1})):
        path = PathMaker(target, False).at(np.array([0.0, 0.7, 1.0]))
        plain = target.target if hasattr(target, "target") else target
        np.testing.assert_array_equal(path.log_table[-1], plain.view().log_table)


def test_zeros_are_soft_on_the_way():
    target = network()
    zero = np.isneginf(target.view().log_table)
    path = PathMaker(target, False).at(np.array([0.0, 0.5, 1.0]))
    assert np.isfinite(path.log_table[:-1]).all()
    np.testing.assert_array_equal(path.log_table[0], 0.0)
    np.testing.assert_allclose(path.log_table[1][zero], 4 * np.log(0.5))
    finite = target.view().log_table[~zero]
    np.testing.assert_array_equal(path.log_table[1][~zero], 0.5 * finite)


def test_excluded_values_are_excluded_at_every_level():
    target = network().condition({1: 0})  # then variable 0 is 0
    maker = PathMaker(target, False)
    assert maker.domains.free.tolist() == [2]
    assert maker.domains.log_size == np.log(2)
    assert tables_of(target, maker.domains) is None  # no other zero is left


def test_equal_steps():
    beta = np.array([0.0, 0.5, 1.0])
    np.testing.assert_allclose(equal_steps(beta, np.array([0.3, 0.3]), 5), [0, 0.25, 0.5, 0.75, 1])
    for refused in ([0.0, 0.0], [1.0, 0.0], [1e-12, 1.0]):
        found = equal_steps(beta, np.array(refused), 9)
        assert found[0] == 0.0
        assert found[-1] == 1.0
        assert (np.diff(found) > 0).all()


# ----------------------------------------------------------------- the scan as a matrix


def level_logs(target, beta):
    """Log p of all states at all levels, by formula."""
    x = np.array(list(itertools.product(*(range(k) for k in target.cardinalities))))
    domains = PathMaker(target, False).domains
    tables = tables_of(target, domains)
    result = []
    for b in beta:
        if tables is None:
            with np.errstate(invalid="ignore"):
                found = np.zeros(len(x)) if b == 0 else b * target.log_prob(x)
        else:
            soft = tables.at(np.array([b]))[0]
            found, start = np.zeros(len(x)), 0
            for scope, table in target.log_factors:
                part = soft[start : start + table.size].reshape(table.shape)
                found += part[tuple(x[:, list(scope)].T)]
                start += table.size
        result.append(found)
    return x, np.array(result)


def swap_matrix(log_p, k):
    """Swaps of the states at the levels k and k + 1 of three, by the formula."""
    n = log_p.shape[1]
    matrix = np.zeros((n**3, n**3))
    for at in itertools.product(range(n), repeat=3):
        row = np.ravel_multi_index(at, (n, n, n))
        other = list(at)
        other[k], other[k + 1] = at[k + 1], at[k]
        if np.isneginf([log_p[level, s] for level, s in enumerate(at)]).any():
            matrix[row, row] = 1.0
            continue
        ratio = (
            log_p[k, at[k + 1]] + log_p[k + 1, at[k]] - log_p[k, at[k]] - log_p[k + 1, at[k + 1]]
        )
        accept = min(1.0, np.exp(min(0.0, ratio)))
        matrix[row, np.ravel_multi_index(other, (n, n, n))] += accept
        matrix[row, row] += 1.0 - accept
    return matrix


def gibbs_matrix(x, log_p):
    """A systematic sweep, by the formula."""
    n = len(x)
    sweep = np.eye(n)
    for site in range(x.shape[1]):
        step = np.zeros((n, n))
        for a in range(n):
            same = [b for b in range(n) if (np.delete(x[b], site) == np.delete(x[a], site)).all()]
            weight = np.exp(log_p[same] - log_p[same].max()) if np.isfinite(log_p[a]) else 0.0
            if np.isfinite(log_p[a]):
                step[a, same] = weight / weight.sum()
            else:
                step[a, a] = 1.0
        sweep = sweep @ step
    return sweep


def test_joint_matrix():
    """Three levels of eight states with zeros: swaps reversible, the scan invariant only."""
    target, beta = network(), np.array([0.0, 0.6, 1.0])
    x, log_p = level_logs(target, beta)
    p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    joint = np.kron(np.kron(p[0], p[1]), p[2])
    explore = np.kron(
        np.kron(np.tile(p[0], (8, 1)), gibbs_matrix(x, log_p[1])), gibbs_matrix(x, log_p[2])
    )
    low, high = swap_matrix(log_p, 0), swap_matrix(log_p, 1)
    for matrix in (explore, low, high):
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=512 * EPS)
        np.testing.assert_allclose(joint @ matrix, joint, rtol=0, atol=1e-15)
    for matrix in (low, high):
        flow = joint[:, None] * matrix
        np.testing.assert_allclose(flow, flow.T, rtol=0, atol=1e-15)
    scan = explore @ low @ explore @ high
    np.testing.assert_allclose(joint @ scan, joint, rtol=0, atol=1e-15)
    flow = joint[:, None] * scan
    assert abs(flow - flow.T).max() > 1e-4  # it is not reversible, and none says so


def test_scans_are_those_of_the_matrix():
    """One scan of the code from every joint state, against the matrix: even and odd ones."""
    target, beta, n = network(), np.array([0.0, 0.6, 1.0]), 4000
    x, log_p = level_logs(target, beta)
    p0 = np.exp(log_p[0] - log_p[0].max())
    sweeps = [np.tile(p0 / p0.sum(), (8, 1)), *(gibbs_matrix(x, one) for one in log_p[1:])]
    possible = np.isfinite(log_p[2])
    rng = np.random.default_rng(1)
    begin = np.stack(
        [rng.integers(8, size=n), rng.integers(8, size=n), rng.choice(np.flatnonzero(possible), n)],
        axis=1,
    )
    begin[:] = begin[0]
    for parity in (0, 1):
        law = np.array([1.0])
        for k in range(3):
            law = np.kron(law, sweeps[k][begin[0, k]])
        law = law @ swap_matrix(log_p, parity)
        states = x[begin].astype(np.int8)
        ladders = Ladders(
            target,
            states,
            Streams(spawn(parity, n)),
            Systematic(np.arange(3, dtype=np.uint32), 1),
            beta,
        )
        ladders.n_scans = parity
        ladders.run(1, (0, 0, 0), np.empty((n, 0, 3), np.int8), np.empty((n, 0, 1)))
        index = ladders.states @ np.array([4, 2, 1])
        found = np.bincount(index @ np.array([64, 8, 1]), minlength=512)
        assert not found[law == 0].any()
        expected = n * law
        z = (found - expected)[law > 0] / np.sqrt(expected * (1 - law) + 1e-12)[law > 0]
        assert np.abs(z[expected[law > 0] > 5]).max() < 5


# ----------------------------------------------------------------- draws and log Z


TARGETS = {
    "ising": lambda: Ising.lattice(np.full((3, 3), 0.1), coupling=0.9),
    "network": network,
    "evidence": lambda: network().condition({2: 1}),
    "function": lambda: FunctionTarget(lambda x: 2.0 * abs(int(x.sum()) - 2), 4, 2),
}


@pytest.mark.parametrize("name", TARGETS)
def test_marginals_and_log_z(name):
    target = TARGETS[name]()
    sampler = make(n_chains=4, n_burn_in=500).fit(target)
    found = marginals(sampler.sample(2000), target)
    p = exact.probabilities(target)
    x = np.array(list(itertools.product(*(target.values[:k] for k in target.cardinalities))))
    for site in range(target.n_sites):
        for k, value in enumerate(target.values):
            truth = p[x[:, site] == value].sum()
            got = float(found["p"].values.reshape(target.n_sites, -1)[site, k])
            error = float(found["mcse"].values.reshape(target.n_sites, -1)[site, k])
            assert abs(got - truth) < 5 * (error if error == error else 0.0) + 1e-12
    log_p = target.log_prob(x)
    log_z = np.logaddexp.reduce(log_p)
    assert sampler.log_z_error_ < 0.1
    assert abs(sampler.log_z_ - log_z) < 5 * sampler.log_z_error_
    best = sampler.best_state_
    np.testing.assert_allclose(best["lp"], target.log_prob(best["x"]), rtol=0, atol=1e-13)
    np.testing.assert_allclose(best["lp"].max(), log_p.max(), rtol=0, atol=1e-13)


def test_needless_tempering_is_told():
    easy = Ising.lattice(np.full((4, 4), 0.1), coupling=0.1)
    with pytest.warns(TemperingWarning, match="not worth it here"):
        make(n_burn_in=512).fit(easy)
    hard = Ising.lattice(np.zeros((4, 4)), coupling=1.0)
    make(n_burn_in=512).fit(hard)


def test_impossible_states_of_functions_are_told():
    target = FunctionTarget(lambda x: -np.inf if x.sum() == 2 else 0.0, 4)
    with pytest.warns(TemperingWarning, match="-inf at some states"):
        sampler = make(n_chains=4).fit(target)
    x = sampler.sample(1000)["x"].values
    assert not (x.sum(axis=2) == 2).any()
    assert abs(sampler.log_z_ - np.log(10)) < 5 * sampler.log_z_error_


def test_few_round_trips_are_told():
    target = Ising.lattice(np.zeros((6, 6)), coupling=2.0)
    sampler = make(n_burn_in=0, n_replicas=2).fit(target)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler.sample(20)
    told = [str(w.message) for w in caught if w.category is TemperingWarning]
    assert len(told) == 1
    assert "0 round trips" in told[0]
    assert "do not trust" in told[0]


# ----------------------------------------------------------------- the interface


class ArrayTempering(OfArrays, ParallelTempering):
    pass


@parametrize_with_checks(
    [ParallelTempering(n_burn_in=64), ArrayTempering(n_burn_in=64)],
    expected_failed_checks=lambda e: {} if isinstance(e, OfArrays) else NOT_FOR_ARRAYS,
)
@QUIET
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("explorer", ["auto", LSBSampler("sqrt")], ids=["gibbs", "balanced"])
def test_draws_are_the_same_however_they_are_made(ising, explorer):
    one, other = (make(explorer=explorer, n_jobs=n).fit(ising) for n in (1, 2))
    copies = pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)
    x = draws(one, 300)
    np.testing.assert_array_equal(draws(other, 300), x)
    np.testing.assert_array_equal(one.state_.reshape(2, 3, 4), x[:, -1])
    for fork in copies:
        parts = [draws(fork, 101), draws(fork, 0), draws(fork, 199)]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), x)
        assert fork.log_z_ == one.log_z_
        assert fork.log_z_error_ == one.log_z_error_
        np.testing.assert_array_equal(fork.n_round_trips_, one.n_round_trips_)
        np.testing.assert_array_equal(fork.swap_acceptance_, one.swap_acceptance_)
        assert fork.index_process_.identical(one.index_process_)
        assert fork.best_state_.identical(one.best_state_)
    again = pickle.loads(pickle.dumps(copies[0]))  # in the middle
    np.testing.assert_array_equal(draws(again, 50), draws(copies[0], 50))
    thinned = make(explorer=explorer).fit(ising)
    np.testing.assert_array_equal(draws(thinned, 100, thin=3), x[:, 2::3])


def test_fitted_attributes(ising):
    sampler = make().fit(ising)
    found = sampler.sample(200)
    n = sampler.betas_.size
    assert sampler.betas_[0] == 0.0
    assert sampler.betas_[-1] == 1.0
    assert sampler.swap_acceptance_.shape == (n - 1,)
    assert sampler.barrier_ == pytest.approx((1 - sampler.swap_acceptance_).sum())
    assert sampler.index_process_.dims == ("chain", "scan", "replica")
    levels = np.sort(sampler.index_process_.values, axis=2)
    np.testing.assert_array_equal(levels, np.broadcast_to(np.arange(n), levels.shape))
    np.testing.assert_allclose(found["lp"], ising.log_prob(found["x"]), rtol=0, atol=1e-13)
    assert found.attrs["sampler"] == "ParallelTempering"
    before = sampler.n_evaluations_
    draws(sampler, 4)
    assert sampler.n_evaluations_ == before + 4 * 2 * (n - 1) * 12
    assert sampler.history_["round_trips"].dims == ("round",)
    ax = sampler.plot_index_process(chain=1, n_scans=50)
    assert len(ax.lines) == n
    assert len(ax.lines[0].get_xdata()) == 50


def test_round_trips_are_those_of_the_index_process(ising):
    sampler = make().fit(ising)
    before = sampler.n_round_trips_
    first = sampler._ensemble.n_scans
    heading = sampler._ensemble.ladder.heading.copy()
    sampler.sample(500)
    process = sampler.index_process_.sel(scan=slice(first, None)).values
    top = sampler.betas_.size - 1
    for c in range(2):
        trips = 0
        for replica in range(top + 1):
            state = heading[c, replica]
            for level in process[c, :, replica]:
                trips += level == 0 and state == 2
                state = 1 if level == 0 else 2 if level == top and state == 1 else state
        assert sampler.n_round_trips_[c] == before[c] + trips


def test_fit_again(ising):
    once, twice = make().fit(ising), make().fit(ising)
    draws(twice, 7)
    assert twice.fit(ising) is twice
    np.testing.assert_array_equal(draws(once, 20), draws(twice, 20))
    warm = make(warm_start=True).fit(ising)
    before = warm.betas_
    warm.fit(ising)
    assert not np.array_equal(warm.betas_, before)
    with pytest.raises(ValueError, match="warm_start continues"):
        warm.set_params(n_chains=3).fit(ising)


def test_initial_states(ising):
    x = np.ones(12, int)
    first = make(n_burn_in=0).fit(ising, initial_states=x)
    assert first.state_.shape == (2, 12)
    with pytest.raises(ValueError, match="initial_states"):
        make().fit(ising, initial_states=np.ones(5, int))


def test_record_and_failing_functions(ising):
    found = make().fit(ising).sample(300, record={"sum": lambda x: x.sum(axis=(1, 2))})
    x = draws(make().fit(ising), 300)
    np.testing.assert_array_equal(found["sum"], x.astype(int).sum(axis=(2, 3)))
    calls = []

    def log_prob(x):
        calls.append(0)
        if limit and len(calls) > limit[0]:
            raise KeyError("too often")
        return float(x[0] * x[1])

    limit = []
    target = FunctionTarget(log_prob, 3)
    one = make(n_burn_in=64).fit(target)
    other = copy.deepcopy(one)
    limit.append(len(calls) + 5)  # in the first segment
    with pytest.raises(KeyError, match="too often"):
        draws(one, 500)
    limit.clear()
    np.testing.assert_array_equal(one._ensemble.ladder.at, other._ensemble.ladder.at)
    np.testing.assert_array_equal(one.state_, other.state_)
    draws(one, 10)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"n_replicas": 1}, ValueError, "n_replicas is 1"),
        ({"n_replicas": "many"}, ValueError, "n_replicas is 'many'"),
        ({"n_replicas": 2.5}, TypeError, "n_replicas is 2.5"),
        ({"n_burn_in": -1}, ValueError, "n_burn_in is -1"),
        ({"warm_start": "yes"}, TypeError, "warm_start"),
        ({"explorer": "gibbs"}, TypeError, "explorer is 'gibbs'; give"),
        ({"explorer": LSBSampler("learned")}, ValueError, "is to be learned; give a fixed one"),
        ({"explorer": GibbsSampler(n_chains=7)}, ValueError, "n_chains=7, which is not used"),
        ({"explorer": GibbsSampler("layers")}, TypeError, "layers"),
        ({"explorer": LSBSampler("sqrt", fast=True)}, ValueError, "fast=True, which is not used"),
    ],
)
def test_errors(ising, params, error, match):
    with pytest.raises(error, match=match):
        make(**params).fit(ising)


def test_layers_are_refused():
    machine = RBM(np.zeros((3, 2)), np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match="tempering cannot scale that"):
        make(explorer=GibbsSampler("layers")).fit(machine)


def test_before_fit():
    sampler = clone(make())
    for name in ("n_round_trips_", "log_z_", "betas_", "best_state_"):
        with pytest.raises((NotFittedError, AttributeError)):
            getattr(sampler, name)


@pytest.mark.slow
@pytest.mark.parametrize("explorer", [GibbsSampler("random", block_size=2), HammingBallSampler(3)])
def test_other_explorers(explorer):
    target = TARGETS["ising"]()
    sampler = make(explorer=explorer, n_chains=4).fit(target)
    sampler.sample(2000)
    assert abs(sampler.log_z_ - exact.log_partition(target)) < 5 * sampler.log_z_error_


@pytest.mark.slow
@QUIET  # one of a hundred runs may be told that its chains disagree
def test_stated_error_of_log_z_covers():
    """Intervals of 95 % by t with the ladders less one, 100 repetitions on three small models."""
    from scipy.stats import t

    rng = np.random.default_rng(0)
    models = [TARGETS["ising"](), network(), Ising.lattice(rng.normal(size=(4, 4)), coupling=0.7)]
    for target in models:
        truth, hits = exact.log_partition(target), 0
        for seed in range(100):
            sampler = make(n_chains=4, random_state=seed, n_burn_in=500).fit(target)
            draws(sampler, 1000)
            hits += abs(sampler.log_z_ - truth) < t.ppf(0.975, 3) * sampler.log_z_error_
        assert 88 <= hits <= 100

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
from test_estimator import ScoresOfArrays, check_as_scikit_learn

from sklsb import (
    RBM,
    ClusterSampler,
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    TorchTarget,
    VariableSelection,
    exact,
)
from sklsb._kernels.rules.gibbs import Systematic
from sklsb._kernels.run import Drawing
from sklsb.diagnostics import marginals
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exceptions import SeparatedModesWarning, ShortRunWarning, TemperingWarning
from sklsb.samplers._tempering import schedule
from sklsb.samplers._tempering.bennett import Bennett
from sklsb.samplers._tempering.core import Core, core_of
from sklsb.samplers._tempering.ladders import Ladders
from sklsb.samplers._tempering.paths import PathMaker, product_of, tables_of
from sklsb.samplers._tempering.schedule import equal_steps
from sklsb.targets.base import Conditioned

EPS = np.finfo(float).eps
QUIET = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")


def network():
    """Eight states, of which some are impossible, in parts that no single change connects."""
    equal = [[1.0, 0.0], [0.0, 1.0]]
    return MarkovNetwork([2] * 3, [((0, 1), equal), ((1, 2), [[0.5, 0.3], [0.2, 2.0]])])


def machine():
    """Three visible units and two hidden ones."""
    return RBM([[3.0, -2.0], [1.6, 4.0], [-2.4, 1.2]], [0.6, -2.0, 0.8], [-1.4, 0.4])


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


def potts_of_half():
    """Potts model of which two in four values of each site are impossible."""
    rng = np.random.default_rng(0)
    field = rng.normal(size=(5, 5, 4))
    for row in field.reshape(25, 4):
        row[rng.permutation(4)[:2]] = -np.inf
    field[0, 0] = [-np.inf, 0.4, -np.inf, -np.inf]
    return Potts.lattice(field, coupling=0.5, periodic=False)


def test_impossible_values_of_a_potts_model_are_excluded_at_every_level():
    target = potts_of_half()
    observed = int(np.flatnonzero(target.field[11] > -np.inf)[0])
    for given, fixed in ((target, []), (target.condition({(2, 1): observed}), [11])):
        domains = PathMaker(given, False).domains
        wanted = target.field > -np.inf
        wanted[fixed] &= np.arange(4) == observed
        np.testing.assert_array_equal(domains.possible, wanted)
        assert domains.free.tolist() == [i for i in range(1, 25) if i not in fixed]
        assert domains.log_size == pytest.approx(np.log(2) * domains.free.size)


@pytest.mark.parametrize("guided", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_tempering_of_a_potts_model_with_impossible_values(guided):
    target = potts_of_half()
    # What no variable may have is of probability 0 in the reference, too.
    p = np.where(target.field > -np.inf, 1.0, 0.0)
    reference = p / p.sum(axis=1, keepdims=True) if guided else None
    sampler = make(explorer=GibbsSampler("chromatic"), reference=reference, n_burn_in=512)
    sampler.fit(target)
    assert not sampler.run_.ensemble.ladder.impossible.any()
    x = sampler.sample(2000, thin=1)["x"].values.reshape(-1, 25)
    assert abs(sampler.log_z_ - exact.log_partition(target)) < 5 * sampler.log_z_error_ < 0.2
    found = np.stack([(x == value).mean(axis=0) for value in range(4)], axis=1)
    expected = exact.marginals(target)["p"].values.reshape(25, 4)
    assert np.abs(found - expected).max() < 0.05


def test_equal_steps():
    beta = np.array([0.0, 0.5, 1.0])
    np.testing.assert_allclose(equal_steps(beta, np.array([0.3, 0.3]), 5), [0, 0.25, 0.5, 0.75, 1])
    # Three steps of 0.2 of the barrier below the level in the middle, one above it.
    assert equal_steps(beta, np.array([0.6, 0.2]), 5)[3] == pytest.approx(0.5)
    for refused in ([0.0, 0.0], [1.0, 0.0], [1e-12, 1.0]):
        found = equal_steps(beta, np.array(refused), 9)
        assert found[0] == 0.0
        assert found[-1] == 1.0
        assert (np.diff(found) > 0).all()


# ----------------------------------------------------------------- the scan as a matrix


def level_logs(target, beta, product=None):
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
        if product is not None:
            found = found + (1 - b) * sum(np.log(q[x[:, i]]) for i, q in enumerate(product))
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


def with_zeros(x):
    """A function that is impossible where one variable is 1; at beta = 0 nothing is."""
    return -np.inf if x.sum() == 1 else 0.9 * x[0] - 0.4 * x[2]


def machine_levels(target, beta, product=None):
    """Log p of the visible states at all levels, and the sweeps, from joint states with hidden."""
    machine = target.layers
    x, h = (np.array(list(itertools.product((0, 1), repeat=k))) for k in machine.weights.shape)
    joint = (
        (x @ machine.visible_bias)[:, None] + h @ machine.hidden_bias + x @ machine.weights @ h.T
    )
    log_q = np.zeros(len(x))
    if product is not None:
        log_q = sum(np.log(q[x[:, i]]) for i, q in enumerate(product))
    possible = np.ones(len(x), dtype=bool)
    if isinstance(target, Conditioned):
        possible = (x[:, target.sites] == target.observed).all(axis=1)
    p = [np.exp(b * joint + (1 - b) * log_q[:, None]) * possible[:, None] for b in beta]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log([one.sum(axis=1) for one in p])
        sweeps = [
            np.nan_to_num(one / one.sum(axis=1, keepdims=True)) @ (one / one.sum(axis=0)).T
            for one in p
        ]
    return x, log_p, sweeps


def levels_and_sweeps(target, beta, product):
    x, log_p = level_logs(target, beta, product)
    return x, log_p, [None, *(gibbs_matrix(x, one) for one in log_p[1:])]


def check_scans(target, product, n=2000):
    """One scan of the code from every joint state, against the matrix: even and odd ones."""
    beta = np.array([0.0, 0.6, 1.0])
    rule, levels = Systematic(np.arange(3, dtype=np.uint32), 1), levels_and_sweeps
    if getattr(target, "layers", None) is not None:
        rule, levels = GibbsSampler("layers")._rule(target), machine_levels
    x, log_p, sweeps = levels(target, beta, product)
    p0 = np.exp(log_p[0] - log_p[0].max())
    sweeps[0] = np.tile(p0 / p0.sum(), (8, 1))
    rng = np.random.default_rng(1)
    begin = np.stack([rng.choice(np.flatnonzero(np.isfinite(p)), n) for p in log_p], axis=1)
    begin[:] = begin[0]
    for parity in (0, 1):
        law = np.array([1.0])
        for k in range(3):
            law = np.kron(law, sweeps[k][begin[0, k]])
        law = law @ swap_matrix(log_p, parity)
        states = x[begin][:, np.newaxis].astype(np.int8)
        ladders = Ladders(
            target,
            states,
            Streams(spawn(parity, n)),
            rule,
            beta,
            product=product,
        )
        ladders.n_scans = parity
        ladders.run(1, Drawing(), (np.empty((n, 0, 3), np.int8), np.empty((n, 0, 2))))
        rejected = ladders.ladder.rejected[:, parity]
        assert ((rejected >= 0) & (rejected <= 1)).all(), "a scan refuses with a probability"
        index = ladders.states[:, 0] @ np.array([4, 2, 1])
        found = np.bincount(index @ np.array([64, 8, 1]), minlength=512)
        assert not found[law == 0].any(), "a scan leads where it may"
        expected = n * law
        z = (found - expected)[law > 0] / np.sqrt(expected * (1 - law) + 1e-12)[law > 0]
        assert np.abs(z[expected[law > 0] > 5]).max() < 5, "a scan is that of the matrix"


@pytest.mark.parametrize(
    ("target", "product"),
    [
        (network(), None),
        # Layers by a product are below, zeros by a product in test_annealed.py.
        pytest.param(
            network(), [np.array([q, 1 - q]) for q in (0.7, 0.5, 0.1)], marks=pytest.mark.slow
        ),
        (FunctionTarget(with_zeros, 3), None),
        (machine(), None),
        (machine(), [np.array([q, 1 - q]) for q in (0.7, 0.5, 0.1)]),
        pytest.param(
            machine().condition({1: 1}),
            [np.array([q, 1 - q]) for q in (0.7, 0.5, 0.1)],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["uniform", "product", "function", "layers", "layers product", "layers evidence"],
)
def test_scans_are_those_of_the_matrix(target, product):
    check_scans(target, product)


# ----------------------------------------------------------------- the core


def loopy(seed=2):
    """Seven variables of two or three values in loops, with zeros."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 4, size=7)
    factors = []
    for _ in range(9):
        scope = rng.choice(7, size=rng.integers(1, 4), replace=False)
        table = rng.gamma(0.5, size=sizes[scope])
        table[rng.random(table.shape) < 0.15] = 0.0
        factors.append((scope.tolist(), table))
    return MarkovNetwork(sizes, factors)


@pytest.mark.parametrize("log2_size", [3, 4])
@pytest.mark.parametrize("evidence", [{}, {1: 0}])
def test_states_of_the_core_lead_to_those_of_the_network(log2_size, evidence):
    check_core(log2_size, evidence)


def check_core(log2_size, evidence, n=20000):
    """The law of the core times that of the rest given it, as enumerated, is that of the target."""
    target = loopy().condition(evidence) if evidence else loopy()
    core = Core(target, log2_size)
    assert 0 < core.n_drawn < 7
    assert exact.log_partition(core.network) + core.constant == pytest.approx(
        exact.log_partition(target), rel=0, abs=1e-13
    )
    sizes = core.network.cardinalities
    of_core = np.array(list(itertools.product(*(range(k) for k in sizes))))
    p, rng = exact.probabilities(core.network), np.random.default_rng(0)
    chosen = of_core[rng.choice(len(p), size=n, p=p)].astype(core.network.dtype)
    x = core.lift(chosen, rng.random((n, core.n_drawn)))
    np.testing.assert_array_equal(core.of(x), chosen)
    truth = exact.probabilities(target)
    found = np.bincount(np.ravel_multi_index(x.T, target.cardinalities), minlength=truth.size)
    assert not found[truth == 0].any()
    z = (found - n * truth) / np.sqrt(n * truth * (1 - truth) + 1e-12)
    assert np.abs(z[n * truth > 5]).max() < 5
    likely = core.lift(of_core[p > 0].astype(core.network.dtype), np.empty(((p > 0).sum(), 0)))
    assert np.isfinite(target.log_prob(likely)).all()


@QUIET  # a value of small probability was not seen
def test_draws_by_the_core_are_the_same_however_they_are_made():
    target = loopy()
    one, other = (make(eliminate=4, n_jobs=n, n_chains=3).fit(target) for n in (1, 2))
    assert one.run_.ensemble.inner.n_sites < target.n_sites
    copies = pickle.loads(pickle.dumps(one)), copy.copy(one)
    x = draws(one, 2000)
    visit = one.sample_stats_["visit"].values
    np.testing.assert_array_equal(draws(other, 2000), x)
    np.testing.assert_array_equal(one.state_, x[:, -1])
    for fork in copies:
        parts = [draws(fork, n) for n in (101, 0, 1899)]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), x)
        assert fork.log_z_ == one.log_z_
        assert fork.best_state_.identical(one.best_state_)
    thinned = make(eliminate=4, n_chains=3).fit(target)
    np.testing.assert_array_equal(draws(thinned, 100, thin=3), x[:, 2:300:3])
    np.testing.assert_array_equal(thinned.sample_stats_["visit"], visit[:, 2:300:3])
    found = one.sample(2000)
    lp = target.log_prob(found["x"])
    np.testing.assert_allclose(found["lp"], lp, rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        one.best_state_["lp"], target.log_prob(one.best_state_["x"]), rtol=0, atol=1e-13
    )
    p = marginals(found, target)
    truth = exact.marginals(target)["p"].values
    wrong = np.abs(p["p"].values - truth)
    assert (wrong < 5 * np.nan_to_num(p["mcse"].values) + 1e-12).all()
    assert abs(one.log_z_ - exact.log_partition(target)) < 5 * one.log_z_error_


def test_cores_of_networks_that_are_easy():
    """All variables barren; all summed out but one; nothing to choose."""
    given = [[0.9, 0.1], [0.3, 0.7]]
    barren = MarkovNetwork([2] * 3, [((0,), [0.6, 0.4]), ((0, 1), given), ((1, 2), given)])
    core = core_of(barren, "auto")
    assert core.sites.size == 1
    assert exact.log_partition(core.network) + core.constant == pytest.approx(0.0, abs=1e-14)
    assert core_of(MarkovNetwork([2, 2], [((0,), [1, 0]), ((1,), [0, 1])]), "auto") is None
    assert core_of(MarkovNetwork([3], [((0,), [1, 0, 2])]), "auto") is None


@QUIET
def test_warm_start_with_a_core():
    sampler = make(eliminate=4, warm_start=True).fit(loopy())
    x = sampler.state_
    sampler.set_params(n_burn_in=0).fit(loopy())
    assert sampler.state_.shape == x.shape
    sampler.set_params(eliminate=None).fit(loopy())
    assert np.isfinite(loopy().log_prob(draws(sampler, 5))).all()
    given = make(eliminate=4, n_burn_in=0).fit(loopy(), initial_states=x)
    np.testing.assert_array_equal(given.state_, x)


def test_what_is_eliminated(ising):
    assert make(eliminate=None).fit(loopy()).run_.ensemble.core is None
    assert make().fit(ising).run_.ensemble.core is None  # it is no network of tables
    sampler = make(eliminate=6).fit(ising)
    assert sampler.run_.ensemble.inner.n_sites < 12
    assert draws(sampler, 5).shape == (2, 5, 3, 4)
    for given, match in (
        ("some", "eliminate is 'some'; give"),
        (21, "eliminate is 21: .* at most 20"),
    ):
        with pytest.raises(ValueError, match=match):
            make(eliminate=given).fit(ising)
    with pytest.raises(TypeError, match="is not made of factors"):
        make(eliminate=3).fit(TARGETS["function"]())


def test_ladders_look_for_modes_that_no_temperature_leads_to():
    """All replicas would find the broad mode only, and cross within it hundreds of times."""
    wide, narrow, n = np.log(0.7 / 0.3), np.log(0.02 / 0.98), 30
    weights, bias = np.full((n, 1), narrow - wide), np.full(n, wide)
    target = RBM(weights, bias, [n * np.log(0.98 / 0.3)])
    log_z = np.log(2.0) + n * np.logaddexp(0.0, wide)
    sampler = ParallelTempering(n_burn_in=256, random_state=0).fit(target)
    with pytest.warns(SeparatedModesWarning):
        sampler.sample(500)
    assert abs(sampler.log_z_ - log_z) < 4 * sampler.log_z_error_


# ----------------------------------------------------------------- machines of two layers


def log_z_of(machine):
    """Log Z by enumeration of the hidden units, for machines with few of them."""
    hidden = np.array(list(itertools.product((0.0, 1.0), repeat=machine.hidden_bias.size)))
    visible = np.logaddexp(0.0, machine.visible_bias + hidden @ machine.weights.T).sum(axis=1)
    return np.logaddexp.reduce(hidden @ machine.hidden_bias + visible)


def large_machine():
    """Weights, visible and hidden biases."""
    rng = np.random.default_rng(3)
    return rng.normal(size=(24, 12)), rng.normal(size=24), rng.normal(size=12)


REFERENCES = [None, np.tile([0.8, 0.2], (24, 1))]


@QUIET
@pytest.mark.parametrize("reference", REFERENCES, ids=["uniform", "given"])
def test_log_z_of_a_machine(reference):
    """The errors of eight runs are as large as they say, with any reference."""
    target = RBM(*large_machine())
    off = []
    for seed in range(8):
        sampler = make(n_burn_in=512, n_chains=4, reference=reference, random_state=seed).fit(
            target
        )
        sampler.sample(500)
        assert sampler.explorer_ == repr(GibbsSampler("layers"))
        assert sampler.log_z_error_ < 0.2
        off.append((sampler.log_z_ - log_z_of(target)) / sampler.log_z_error_)
    assert np.max(np.abs(off)) < 3.5
    assert abs(np.mean(off)) < 1.2


@QUIET
@pytest.mark.slow  # layers with evidence, and evidence at temperatures, are in the commit tier
@pytest.mark.parametrize("reference", REFERENCES, ids=["uniform", "given"])
def test_log_z_of_a_machine_with_evidence(reference):
    weights, visible, hidden = large_machine()
    target = RBM(weights, visible, hidden)
    on = np.array([0, 5])  # what is left is a machine of the others
    given = RBM(np.delete(weights, on, 0), np.delete(visible, on), hidden + weights[on].sum(axis=0))
    sampler = make(n_burn_in=512, reference=reference).fit(target.condition({0: 1, 5: 1}))
    sampler.sample(500)
    found = sampler.log_z_ - visible[on].sum() - log_z_of(given)
    assert abs(found) < 4 * sampler.log_z_error_ < 0.8


def test_layers_at_every_temperature_cross_between_modes():
    """Layers alone stay where they are: all visible units on with the hidden ones, or none."""
    weights = np.full((10, 3), 2.0)
    target = RBM(weights, -weights.sum(axis=1) / 2, -weights.sum(axis=0) / 2 + 0.3)

    def share(sampler):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = sampler.fit(target).sample(2000)["x"].mean("site").values
        return (found > 0.5).mean(axis=1)

    p = exact.probabilities(target)
    truth = p[exact.states(target).mean(axis=1) > 0.5].sum()
    alone = share(GibbsSampler("layers", init="uniform", n_chains=8, random_state=0))
    assert np.ptp(alone) > 0.9
    tempered = share(make(explorer=GibbsSampler("layers"), n_chains=4, n_burn_in=512))
    assert abs(tempered.mean() - truth) < 0.05


# ----------------------------------------------------------------- the reference


def test_a_reference_shortens_the_way():
    """A product of the marginals of a field that is nearly all of the target."""
    field = np.linspace(-2.0, 2.0, 12).reshape(3, 4)
    lattice = Ising.lattice(field, coupling=0.1)
    factors = [(scope, np.exp(table)) for scope, table in lattice.log_factors]
    target = MarkovNetwork([2] * 12, factors)
    p = exact.marginals(target)["p"]
    plain, guided = (make(reference=given, n_replicas=4).fit(target) for given in (None, p))
    x = draws(guided, 2000)
    assert guided.barrier_ < 0.5 * plain.barrier_
    up = (x == 1).mean(axis=(0, 1))
    assert np.abs(up - p.values[:, 1]).max() < 0.05
    assert abs(guided.log_z_ - exact.log_partition(target)) < 5 * guided.log_z_error_


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda p: p[:, :1], r"shape \(3, 1\); give the probability"),
        (lambda p: p * 0.5, "variable 0 whose sum is 0.5; it must be 1"),
        (lambda p: np.array([[1.0, 0.0]] * 3), "value 1 of variable 0 the probability 0, and"),
        (lambda p: p - [[0.0, 2.0]], "value 1 of variable 0 the probability -1.5"),
    ],
)
def test_errors_of_references(change, match):
    with pytest.raises(ValueError, match=match):
        make(reference=change(np.full((3, 2), 0.5))).fit(network())


@pytest.mark.parametrize("named", [True, False])
def test_labels_of_a_reference(named):
    """Frames and arrays of xarray go by their labels, also where these are in another order."""
    pd = pytest.importorskip("pandas")
    names = {"names": ["a", "b"], "state_names": [["no", "yes", "maybe"]] * 2} if named else {}
    target = MarkovNetwork([3, 3], [((0, 1), np.arange(1.0, 10.0).reshape(3, 3))], **names)
    p = exact.marginals(target)["p"]
    rows, values = p["site"].values.tolist(), p["state"].values.tolist()
    frame = pd.DataFrame(p.values, index=rows, columns=values)
    order = [2, 0, 1]
    for given in (p, frame, frame.iloc[::-1, order], p.isel(site=[1, 0], state=order), p.T):
        np.testing.assert_allclose(product_of(given, target), p.values)
    plain = pd.DataFrame(p.values)
    np.testing.assert_allclose(product_of(plain, target), p.values)
    for wrong, what in ((frame.rename(columns={values[0]: "x"}), "columns"), (frame.T, "rows")):
        with pytest.raises(ValueError, match=f"reference has the {what}"):
            product_of(wrong, target)


def test_a_reference_may_exclude_what_the_target_excludes():
    target = network().condition({1: 0})  # then variable 0 is 0
    rows = product_of(exact.marginals(target)["p"], target)
    np.testing.assert_array_equal(rows[0], [1.0, 0.0])
    np.testing.assert_array_equal(rows[1], [1.0, 0.0])
    assert rows[2] == pytest.approx(exact.marginals(target)["p"].values[2])


def test_a_reference_with_mass_on_what_only_the_core_excludes():
    """Value 2 of the last variable needs two variables to differ that are equal."""
    table = np.ones((2, 2, 3))
    table[[0, 1], [0, 1], 2] = 0.0
    target = MarkovNetwork([2, 2, 3], [((0, 1), np.eye(2)), ((0, 1, 2), table)])
    q = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.1, 0.1, 0.8]]
    sampler = make(reference=q, n_replicas=2, n_burn_in=64).fit(target)
    assert sampler.run_.ensemble.core.sites.tolist() == [2]
    x = draws(sampler, 2000)[:, :, 2]
    assert abs((x == 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(x.size)  # the draws are independent
    assert sampler.log_z_ == pytest.approx(np.log(4.0), abs=1e-12)


# ----------------------------------------------------------------- draws and log Z


TARGETS = {
    "ising": lambda: Ising.lattice(np.full((3, 3), 0.1), coupling=0.9),
    "network": network,
    "softened": network,
    "evidence": lambda: network().condition({2: 1}),
    "function": lambda: FunctionTarget(lambda x: 2.0 * abs(int(x.sum()) - 2), 4, 2),
}


@pytest.mark.parametrize("name", TARGETS)
def test_marginals_and_log_z(name):
    target = TARGETS[name]()
    eliminate = None if name == "softened" else "auto"
    sampler = make(n_chains=4, n_burn_in=500, eliminate=eliminate).fit(target)
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


def test_the_error_of_log_z_knows_long_visits():
    """Of one ladder, whose batches come four times each: they are worth a quarter as many."""
    rng = np.random.default_rng(0)
    x = rng.uniform(1.0, 2.0, size=(6, 1, 2, 2))

    def log_ratio(sums):
        batches = Bennett(1, np.zeros(2))
        for of_batch in sums:
            batches.add(2, of_batch.copy())
        return batches.log_ratio(np.zeros((1, 2, 2)))

    value, error = log_ratio(x.repeat(4, axis=0))
    same, wanted = log_ratio(x)
    assert value == pytest.approx(same)
    assert error == pytest.approx(wanted)


def check_error_of_log_z():
    """Of states of N(0, 1) and N(1, 1) weighted by each other: the ratio is known, log Z' = log Z.

    In 300 repetitions of four ladders the error covers the truth as often as it says.
    """
    rng, n_scans, n, shift = np.random.default_rng(0), 64, 300, np.array([0.3])
    off = np.empty(n)
    for k in range(n):
        x, y = rng.normal(size=(n_scans, 4)), 1.0 + rng.normal(size=(n_scans, 4))
        up, down = x - 0.5 - shift, 0.5 - y + shift
        terms = np.stack([1 / (1 + np.exp(-up)), 1 / (1 + np.exp(-down))], axis=-1)[:, :, None]
        batches, sums = Bennett(4, shift), np.zeros((4, 1, 2))
        for term in terms:
            sums += term
            batches.add(1, sums)
        np.testing.assert_allclose(
            batches.total(sums), terms.sum(axis=0), err_msg="scans that were counted"
        )
        assert batches.n_draws == n_scans, "scans that were counted"
        value, error = batches.log_ratio(sums)
        off[k] = value / error
        assert abs(value) < 0.5, "log Z is what it is known to be"
    # Three standard errors of 300 repetitions, and three ladders more or less: Student's t.
    assert 0.93 < (np.abs(off) < 2.0).mean() < 1.0, "the stated error of log Z covers"
    assert 0.7 < off.std() < 1.2, "the stated error of log Z is not larger, nor smaller"


def test_the_stated_error_of_log_z_covers():
    check_error_of_log_z()


def test_impossible_states_of_functions_are_told():
    target = FunctionTarget(lambda x: -np.inf if x.sum() == 2 else 0.0, 4)
    with pytest.warns(TemperingWarning, match="-inf at some states"):
        sampler = make(n_chains=4).fit(target)
    x = sampler.sample(1000)["x"].values
    assert not (x.sum(axis=2) == 2).any()
    assert abs(sampler.log_z_ - np.log(10)) < 5 * sampler.log_z_error_


def test_more_replicas_than_may_be_are_told(monkeypatch):
    monkeypatch.setattr(schedule, "MOST_REPLICAS", 4)
    target = Ising.lattice(np.zeros((4, 4)), coupling=1.5)
    with pytest.warns(TemperingWarning, match="take more than 64 replicas"):
        make().fit(target)


def test_visits_that_are_not_renewed_are_told(ising):
    sampler = make().fit(ising)
    ladder = sampler.run_.ensemble.ladder
    ladder.visits[:] = 0.0
    ladder.stay[:] = 0
    ladder.stay[:, 0] = 10000  # one replica of each ladder was there nearly all the time
    with pytest.warns(TemperingWarning, match=r"worth about 2\.\d independent visits"):
        sampler.sample(100)


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


def test_few_round_trips_of_fit_are_told():
    """Log Z may be read without any draw."""
    target = Ising.lattice(np.zeros((6, 6)), coupling=0.8)
    with pytest.warns(TemperingWarning, match="0 round trips .* at the end of fit: do not trust"):
        sampler = make(n_burn_in=512, n_replicas=2).fit(target)
    assert not sampler.n_round_trips_.any()


@pytest.mark.parametrize(
    "again", [lambda s: s, lambda s: pickle.loads(pickle.dumps(s))], ids=["same", "pickled"]
)
def test_the_burn_in_does_not_vouch_for_draws(again):
    """It goes around a hundred times; a few draws after it do not."""
    target = Ising.lattice(np.zeros((6, 6)), coupling=0.8)
    sampler = again(make(n_burn_in=4096, n_replicas=8).fit(target))
    before = sampler.n_round_trips_
    assert before.sum() > 10
    assert not sampler.n_visits_.any()
    with pytest.warns(TemperingWarning, match=r"round trips .* in 8 scans, .*(trust|:) the draws"):
        sampler.sample(8)
    assert (sampler.n_round_trips_ >= before).all()
    assert (sampler.n_visits_ <= 8).all()


# ----------------------------------------------------------------- the interface


class ArrayTempering(ScoresOfArrays, ParallelTempering):
    pass


@parametrize_with_checks([ParallelTempering(n_burn_in=64), ArrayTempering(n_burn_in=64)])
@QUIET
def test_scikit_learn_checks(estimator, check):
    check_as_scikit_learn(estimator, check)


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
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


def test_round_trips_are_those_of_the_index_process(ising):
    check_round_trips(ising, 1000)


def check_round_trips(target, n, **params):
    sampler = make(**params).fit(target)
    before = sampler.n_round_trips_
    first = sampler.run_.ensemble.n_scans
    heading = sampler.run_.ensemble.ladder.heading.copy()
    draws(sampler, n)
    visit = sampler.sample_stats_["visit"].values
    process = sampler.index_process_.sel(scan=slice(first, None)).values
    top = sampler.betas_.size - 1
    at_top, was_low = process.argmax(axis=2), process == 0
    for c, t in itertools.product(range(2), range(0, n, 7)):
        low = np.flatnonzero(was_low[c, : t + 1, at_top[c, t]])
        assert visit[c, t] == first + low[-1] if low.size else visit[c, t] < first
    assert 20 < len(np.unique(visit[0])) < n / 2
    for c in range(2):
        trips, stays = 0, []
        for replica in range(top + 1):
            state, stay = heading[c, replica, 0], 0
            for level in process[c, :, replica]:
                trips += level == 0 and state == 2
                state = 1 if level == 0 else 2 if level == top and state == 1 else state
                stay += level == top
                if level == 0:
                    stays.append(stay)
                    stay = 0
            stays.append(stay)
        assert sampler.n_round_trips_[c] == before[c] + trips
        worth = sum(stays) ** 2 / sum(s * s for s in stays)
        assert sampler.n_visits_[c] == pytest.approx(worth)


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
    np.testing.assert_array_equal(first.state_, [x, x])
    np.testing.assert_array_equal(
        first.run_.ensemble.states, np.ones((2, 1, 8, 12))
    )  # of all replicas
    with pytest.raises(ValueError, match="initial_states"):
        make().fit(ising, initial_states=np.ones(5, int))


@QUIET
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
    np.testing.assert_array_equal(one.run_.ensemble.ladder.at, other.run_.ensemble.ladder.at)
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
        (
            {"explorer": GibbsSampler("random", n_chains=7)},
            ValueError,
            "n_chains=7, which is not used",
        ),
        ({"explorer": GibbsSampler("layers")}, TypeError, "layers"),
        ({"explorer": LSBSampler("sqrt", fast=True)}, ValueError, "fast=True, which is not used"),
    ],
)
def test_errors(ising, params, error, match):
    with pytest.raises(error, match=match):
        make(**params).fit(ising)


def test_clusters_are_refused(ising):
    with pytest.raises(ValueError, match="tempering cannot scale that"):
        make(explorer=ClusterSampler()).fit(ising)


def test_the_table_of_the_burn_in(ising, capsys):
    make(verbose=1, n_burn_in=128).fit(ising)
    lines = capsys.readouterr().err.strip().splitlines()
    header = next(line for line in lines if "scans" in line)
    for word in ("n replicas", "round trips", "barrier", "log z", "least accepted"):
        assert word in header
    rows = [line for line in lines if line.split()[0].isdigit()]
    assert len(rows) == make(n_burn_in=128).fit(ising).history_.sizes["round"]


@QUIET
@pytest.mark.parametrize(
    "name", ["rbm", "torch", pytest.param("selection", marks=pytest.mark.slow)]
)
def test_all_kinds_of_targets(name):
    rng = np.random.default_rng(0)
    if name == "rbm":
        target = RBM(rng.normal(size=(5, 3)), np.zeros(5), np.zeros(3))
    elif name == "selection":
        X = rng.normal(size=(30, 5))
        target = VariableSelection(X, X[:, 0] + rng.normal(size=30))
    else:
        torch = pytest.importorskip("torch")
        w = torch.linspace(-1.0, 1.0, 5)
        target = TorchTarget(lambda x: x @ w + (x.sum(-1) - 2) ** 2, 5)
    sampler = make(n_burn_in=64, n_replicas=4).fit(target)
    x = draws(sampler, 400 if name == "torch" else 2000)
    every = np.array(list(itertools.product(target.values, repeat=5)), target.dtype)
    log_p = target.log_prob(every)
    truth = np.logaddexp.reduce(log_p)
    assert abs(sampler.log_z_ - truth) < 5 * sampler.log_z_error_ + 1e-6
    p = np.exp(log_p - truth)
    wrong = (x == 1).mean(axis=(0, 1)) - p @ (every == 1)
    assert np.abs(wrong).max() < (0.1 if name == "torch" else 0.05)


def test_before_fit():
    sampler = clone(make())
    for name in ("n_round_trips_", "log_z_", "betas_", "best_state_"):
        with pytest.raises((NotFittedError, AttributeError)):
            getattr(sampler, name)


@pytest.mark.slow
@pytest.mark.parametrize("explorer", [GibbsSampler(block_size=2), HammingBallSampler(3)])
def test_other_explorers(explorer):
    target = TARGETS["ising"]()
    sampler = make(explorer=explorer, n_chains=4).fit(target)
    sampler.sample(2000)
    assert abs(sampler.log_z_ - exact.log_partition(target)) < 5 * sampler.log_z_error_


@pytest.mark.slow
@QUIET  # one of a hundred runs may be told that its chains disagree
@pytest.mark.parametrize("n_chains", [1, 4])
def test_stated_error_of_log_z_covers(n_chains):
    """Intervals of 95 %, 100 repetitions on three small models; by t with the ladders less one."""
    from scipy.stats import t

    rng = np.random.default_rng(0)
    models = [TARGETS["ising"](), network(), Ising.lattice(rng.normal(size=(4, 4)), coupling=0.7)]
    for target in models:
        truth, hits = exact.log_partition(target), 0
        for seed in range(100):
            rest = {"random_state": seed, "n_burn_in": 500, "eliminate": None}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TemperingWarning)
                sampler = make(n_chains=n_chains, **rest).fit(target)
            draws(sampler, 1000)
            quantile = t.ppf(0.975, 3) if n_chains == 4 else 2.0
            hits += abs(sampler.log_z_ - truth) < quantile * sampler.log_z_error_
        assert 88 <= hits <= 100


@pytest.mark.filterwarnings("ignore:The draws are worth")
def test_no_variables():
    sampler = ParallelTempering(random_state=0).fit(Ising(np.zeros((0, 0))))
    again = pickle.loads(pickle.dumps(sampler))
    for one in (sampler, again):
        assert one.sample(5)["x"].shape == (4, 5, 0)
        assert one.log_z_ == 0.0

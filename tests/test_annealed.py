"""Log Z by annealed importance sampling, against enumeration."""

import itertools

import numpy as np
import pytest
from models import dense
from scipy.special import logsumexp
from test_tempering import loopy, machine, network, with_zeros

from sklsb import (
    RBM,
    EliminationSampler,
    FunctionTarget,
    Ising,
    ParallelTempering,
    Potts,
    TorchTarget,
    annealed_log_partition,
    exact,
)
from sklsb.exceptions import TemperingWarning

PRODUCT = np.array([[0.7, 0.3], [0.5, 0.5], [0.1, 0.9]])


def half_log(x):
    """A function of three values, impossible where the first two are 2."""
    lp = 0.3 * (x[..., 0] - 1.0) * x[..., 1] - 0.4 * x[..., 2]
    return np.where((x[..., 0] == 2) & (x[..., 1] == 2), -np.inf, lp)


def of_mixed(x):
    """A function of variables with two, four and three values."""
    return 0.8 * np.cos(x[..., 0] + 2.0 * x[..., 1]) + 0.5 * x[..., 1] * (x[..., 2] - 1.0)


MIXED = FunctionTarget(of_mixed, 3, n_states=[2, 4, 3], vectorized=True)
MIXED_PRODUCT = [[0.3, 0.7, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4], [0.5, 0.2, 0.3, 0.0]]
TARGETS = {
    "dense": (dense(7, 0, 0.5), None),
    "evidence": (dense(7, 0, 0.5).condition({2: 1}), None),
    "loop": (Ising([[0.7, 0.4], [0.4, -0.2]], [0.3, 0.1]), None),
    "potts": (Potts(0.8 * (np.ones((4, 4)) - np.eye(4)), np.arange(12.0).reshape(4, 3) / 9), None),
    "machine": (machine(), None),
    "machine by product": (machine(), PRODUCT),
    "machine with evidence": (machine().condition({1: 1}), None),
    "zeros": (network(), None),
    "zeros by product": (network(), PRODUCT),
    "loopy": (loopy(), None),
    "function": (FunctionTarget(half_log, 3, n_states=3, vectorized=True), None),
    "function by product": (FunctionTarget(with_zeros, 3), PRODUCT),
    "function of mixed numbers": (MIXED, None),
    "function of mixed numbers by product": (MIXED, MIXED_PRODUCT),
    "function of mixed numbers with evidence": (MIXED.condition({1: 2}), None),
}


def log_z(target):
    x = exact.states(target)
    return logsumexp(target.log_prob(x))


# Evidence in layers compiles kernels that no other test here has.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n == "machine with evidence" else ())
        for n in TARGETS
    ],
)
def test_log_z_is_that_of_enumeration(name):
    check_log_z(*TARGETS[name])


def check_log_z(target, reference=None, n_chains=200, n_temperatures=60):
    rng = np.random.default_rng(0)
    x, p = exact.states(target), exact.probabilities(target)
    states = x[rng.choice(len(x), size=(1, n_chains), p=p)]
    draws = exact_draws(states, target)
    settings = {"n_chains": n_chains, "n_temperatures": n_temperatures, "reference": reference}
    found = annealed_log_partition(target, draws=draws, random_state=1, **settings)
    assert abs(found.value - log_z(target)) < 4 * found.mcse < 0.6
    assert abs(found.reverse - log_z(target)) < 4 * found.reverse_mcse < 0.6


def exact_draws(states, target):
    from sklsb.diagnostics.draws import draws_dataset

    return draws_dataset(states.astype(target.dtype), target)


def test_a_module_of_torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    target = TorchTarget(lambda x: 3.0 * net(x)[:, 0], n_sites=6)
    check_log_z(target)
    check_log_z(target, np.full((6, 2), [0.3, 0.7]))


def enumerated(machine):
    hidden = np.array(list(itertools.product((0.0, 1.0), repeat=machine.hidden_bias.size)))
    of_visible = np.logaddexp(0.0, machine.visible_bias + hidden @ machine.weights.T).sum(axis=1)
    return logsumexp(hidden @ machine.hidden_bias + of_visible)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_forty_machines(scale):
    off = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        given = RBM(*(scale * rng.normal(size=shape) for shape in ((30, 15), 30, 15)))
        found = annealed_log_partition(given, random_state=seed)
        off.append((found.value - enumerated(given)) / found.mcse)
    assert 0.9 <= (np.abs(off) < 2).mean() <= 1.0
    assert 0.6 < np.std(off) < 1.4


def test_too_few_temperatures_bracket_and_warn():
    glass = Ising.lattice(np.zeros((6, 6)), coupling=0.6)
    draws = exact.sample(glass, 200, random_state=0)
    with pytest.warns(TemperingWarning, match="runs of annealing are worth .* equal ones"):
        found = annealed_log_partition(glass, n_temperatures=3, draws=draws, random_state=0)
    truth = exact.log_partition(glass)
    assert found.value < truth < found.reverse


@pytest.mark.parametrize("n_chains", [4, 9, 10, 30])
def test_few_runs_of_which_one_has_all_the_weight_warn(n_chains):
    field = np.random.default_rng(0).normal(0, 2, (8, 8))
    target = Ising.lattice(field, coupling=1.5)
    with pytest.warns(TemperingWarning, match=f"weights of {n_chains} runs"):
        annealed_log_partition(target, n_chains=n_chains, n_temperatures=2, random_state=0)


def test_seeds_threads_and_numbers_of_runs():
    target = dense(7, 0, 0.5)
    one = annealed_log_partition(target, n_chains=20, n_temperatures=50, random_state=3)
    again = annealed_log_partition(target, n_chains=20, n_temperatures=50, n_jobs=2, random_state=3)
    assert one[:2] == again[:2]
    assert np.isnan(one[2:]).all()
    other = annealed_log_partition(target, n_chains=20, n_temperatures=50, random_state=4)
    assert one.value != other.value
    few = exact.sample(target, 7, random_state=0)
    found = annealed_log_partition(target, n_chains=20, n_temperatures=9, draws=few, random_state=3)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"n_chains": 1}, ValueError, "n_chains"),
        ({"n_temperatures": 0}, ValueError, "n_temperatures"),
        ({"reference": np.full((7, 2), 0.4)}, ValueError, "sum is"),
        ({"n_jobs": 0}, ValueError, "n_jobs"),
        ({"seed": 0}, TypeError, "random_state"),
        ({"random_state": "x"}, TypeError, "random_state"),
    ],
)
def test_wrong_arguments(given, error, match):
    with pytest.raises(error, match=match):
        annealed_log_partition(dense(7, 0, 0.5), **given)


def test_wrong_targets_and_draws():
    with pytest.raises(TypeError, match="Target"):
        annealed_log_partition([1.0])
    with pytest.raises(ValueError, match="give what sample returned"):
        annealed_log_partition(dense(7), draws=exact.sample(dense(6), 5))


def test_scores_of_samples():
    """The log-likelihood of each state, whose sum of exponentials is 1."""
    target = dense(6, 1, 0.4)
    x = exact.states(target)
    by_elimination = EliminationSampler().fit(target)
    np.testing.assert_allclose(by_elimination.score_samples(x), np.log(exact.probabilities(target)))
    tempering = ParallelTempering(n_chains=2, n_burn_in=512, random_state=0).fit(target)
    off = tempering.score_samples(x) - by_elimination.score_samples(x)
    np.testing.assert_allclose(off, off[0])
    assert abs(off[0]) < 4 * tempering.log_z_error_

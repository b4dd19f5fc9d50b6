"""The first-order path: exact for every target with a gradient, and for several flips at once."""

import ast
import copy
import functools
import math
import pathlib
import pickle
import re
import warnings
from contextlib import ExitStack, contextmanager
from unittest import mock

import networkx as nx
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="fast=True needs torch, which is not installed")

from exact_matrices import spectral_gap  # noqa: E402
from local_step import check_matrix, check_step  # noqa: E402
from models import POTTS_KINDS, pairs, potts  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from sklsb import (  # noqa: E402
    RBM,
    AutoSampler,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    TorchTarget,
    exact,
    testing,
)
from sklsb._kernels.first_order import step  # noqa: E402
from sklsb._kernels.rules.balanced import Balanced  # noqa: E402
from sklsb._kernels.run import Drawing  # noqa: E402
from sklsb.balancing import (  # noqa: E402
    Barker,
    Lipschitz,
    Max,
    Mixture,
    Network,
    Sqrt,
)
from sklsb.balancing.functions import get_balancing  # noqa: E402
from sklsb.balancing.learning import MIXING, OBJECTIVES  # noqa: E402
from sklsb.ensembles._torch import FastEnsemble, objectives  # noqa: E402
from sklsb.ensembles._torch import ensemble as ensembles  # noqa: E402
from sklsb.ensembles._torch.flips import AdaptiveFlips  # noqa: E402
from sklsb.ensembles._torch.philox import expand, philox  # noqa: E402
from sklsb.ensembles._torch.walkers import Walkers  # noqa: E402
from sklsb.ensembles.compiled import BalancedEnsemble  # noqa: E402
from sklsb.exact.enumeration import neighbours  # noqa: E402
from sklsb.exact.matrices import _first_order  # noqa: E402
from sklsb.exceptions import ModelWarning, PrecisionWarning  # noqa: E402
from sklsb.targets import MarkovNetwork, Target, VariableSelection  # noqa: E402
from sklsb.targets._torch import Model, placing  # noqa: E402
from sklsb.targets._torch import graphs as torch_graphs  # noqa: E402
from sklsb.testing._samplers import _check_draws, _check_streams  # noqa: E402

FUNCTIONS = [
    Barker(),
    Max(),
    Mixture([0.3, -0.2, 0.1, 0.5]),
    Network(),
    Lipschitz(1.5, "knots", 0.1 * np.arange(41) - 1),
]
quiet = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """More threads would wait for each other at every operation on tensors as small as here."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_ising(n_sites, seed=0):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.normal(size=(n_sites, n_sites)), 1) * (rng.random((n_sites, n_sites)) < 0.4)
    return Ising(upper + upper.T, rng.normal(size=n_sites))


def random_rbm(n_visible=4, n_hidden=3, sd=1.5, seed=0):
    rng = np.random.default_rng(seed)
    biases = rng.normal(size=n_visible), rng.normal(size=n_hidden)
    return RBM(sd * rng.normal(size=(n_visible, n_hidden)), *biases)


def cubic(x):
    """Of two values each; elementwise and sums, whose rounding does not depend on the batch."""
    along = x + 2.0 * torch.roll(x, 1, -1)
    return (1.3 * along * x - 0.2 * along**3 + 0.4 * x).sum(-1)


def wave(x):
    """Of indicators."""
    weight = torch.arange(1.0, 1.0 + x[0].numel(), dtype=x.dtype, device=x.device)
    weight = weight.view(x[0].shape)
    return 2.0 * torch.sin((x * weight).sum((1, 2)))


class Counts(Target):
    """As a user would write one: log p = -(number of ones - 1.5)^2 / 2, and its gradient."""

    shape, dims, values = (4,), ("site",), (0, 1)

    def log_prob(self, x):
        return -0.5 * (self.check_states(x).sum(axis=-1) - 1.5) ** 2

    def log_ratios(self, x):
        x = self.check_states(x)
        n, change = x.sum(axis=-1, keepdims=True), 1 - 2 * x
        return 0.5 * (n - 1.5) ** 2 - 0.5 * (n + change - 1.5) ** 2

    def first_order_ratios(self, x):
        x = self.check_states(x)
        return (1 - 2 * x) * (1.5 - x.sum(axis=-1, keepdims=True))

    def view(self):
        raise TypeError("never asked for")

    def _torch_model(self, device, dtype):
        return CountsModel(device)


class CountsModel(Model):
    def __init__(self, device):
        self.device = device

    def start(self, x):
        return (x.double().sum(1, keepdim=True),)

    def log_prob(self, x, carried):
        return -0.5 * (carried[0][:, 0] - 1.5) ** 2

    def first_order(self, x, carried):
        return (1 - 2 * x) * (1.5 - carried[0])

    def move(self, x, carried, y, sites):
        there = self.start(y)
        return there, self.log_prob(y, there) - self.log_prob(x, carried)


TARGETS = {
    "ising": random_ising(4),
    "potts": potts(nx.path_graph(3), "zeros"),
    "five sites": potts(nx.cycle_graph(5)),
    "rbm": random_rbm(),
    "rbm with evidence": random_rbm().condition({1: 1}),
    "torch": TorchTarget(cubic, 4, dtype="float64"),
    "torch float32": TorchTarget(cubic, 4),
    "torch of several values": TorchTarget(wave, 3, [3, 2, 3], dtype=torch.float64),
    "torch with evidence": TorchTarget(wave, 3, 3, dtype="float64").condition({0: 2}),
    "of a user": Counts(),
}


def both_ensembles(target, n_chains):
    rng = np.random.default_rng(1)
    states = np.stack([target.draw_state(rng) for _ in range(n_chains)])
    streams = [[np.random.default_rng(c) for c in range(n_chains)] for _ in range(2)]
    return BalancedEnsemble(target, states, streams[0]), FastEnsemble(target, states, streams[1])


# ----------------------------------------------------------------- exactness


STEPS = {
    f"{name}-{n_flips}": (balancing, lazy, n_flips)
    for name, balancing, lazy in (
        ("barker", "barker", 0.0),
        ("max", "max", 0.2),
        ("mlp", Network(), 0.0),
    )
    for n_flips in (1, 2, 3)
}


@quiet
@pytest.mark.parametrize(("step", "target"), pairs(STEPS, TARGETS))
def test_sampler_is_exact(step, target):
    balancing, lazy, n_flips = step
    sampler = LSBSampler(balancing, fast=True, n_flips=n_flips, n_burn_in=20, lazy=lazy)
    check_matrix(sampler, target)
    check_step(sampler.set_params(random_state=0), target)


@quiet
@pytest.mark.parametrize(
    ("name", "n_flips"), pairs(["ising", "potts", "rbm", "torch of several values"], [1, 2, "auto"])
)
def test_sampler_keeps_its_promises(name, n_flips):
    sampler = LSBSampler("barker", fast=True, n_flips=n_flips, n_burn_in=80, random_state=0)
    target = TARGETS[name]
    _check_streams(sampler.fit(target), target, 20)
    _check_draws(sampler, target, 20)


def test_z_over_z_alone_is_wrong():
    target = random_rbm()
    x, to = exact.states(target), neighbours(target)
    log_p = target.log_prob(x)
    weight = np.exp(Barker().log_g(target.first_order_ratios(x)))
    total = weight.sum(axis=1)
    flow = np.exp(log_p)[:, None] * weight / total[:, None]
    back = (to[to] == np.arange(len(x))[:, None, None]).argmax(axis=2)

    def imbalance(accept):
        kept = flow * np.minimum(1.0, accept)
        return np.abs(kept - kept[to, back]).max() / flow.max()

    assert imbalance(total[:, None] / total[to]) > 0.01
    assert imbalance(flow[to, back] / flow) < 1e-15


def test_an_even_number_of_flips_alone_would_not_reach_all_states():
    target = random_rbm()
    two = _first_order(Barker(), target, 2)
    odd = exact.states(target).sum(axis=1) % 2
    assert (odd[two.to] == odd[:, None]).all()
    for n_flips in (2, 3, 4):
        sampler = LSBSampler("barker", fast=True, n_flips=n_flips)
        assert spectral_gap(sampler, target) > 0.01


def reference_chain(target, function, state, uniforms):
    """The chain in NumPy, from `first_order_ratios` and `log_prob`.

    ``uniforms`` has n_flips selections, the last flip's and the one to accept with in each row.
    """
    d, x = target.n_sites, state.copy()
    path = np.empty((len(uniforms), d), dtype=np.int8)

    def seen(x):
        log_w = function.tabulated().log_g(target.first_order_ratios(x))
        cumulative = np.cumsum(np.exp(log_w - log_w.max()))
        return log_w - log_w.max() - np.log(cumulative[-1]), cumulative, target.log_prob(x)

    log_q, cumulative, lp = seen(x)
    for t, row in enumerate(uniforms):
        select, accept = (row[:1], row[1]) if row.size == 2 else (row[:-2], row[-1])
        sites = np.searchsorted(cumulative, select * cumulative[-1], side="right")
        if row.size > 2 and row[-2] >= 0.5:
            sites = sites[:-1]
        y = x.copy()
        for i in sites:
            y[i] = 1 - y[i]
        there = seen(y)
        ratio = math.exp(min(0.0, there[2] - lp + (there[0][sites] - log_q[sites]).sum()))
        if accept < ratio:
            x, (log_q, cumulative, lp) = y, there
        path[t] = x
    return path


def compare_with_reference(target, function, n_flips, n_steps, seed=0):
    rng = np.random.default_rng(seed)
    state = target.draw_state(rng)
    fast = FastEnsemble(target, state[None], [rng], n_flips=n_flips, dtype=torch.float64)
    fast.start(Balanced(function.table()))
    uniforms = rng.random((n_steps, 2 if n_flips == 1 else n_flips + 2))
    path = reference_chain(target, function, state, uniforms)
    for first in range(0, n_steps, 1000):
        fast.advance(uniforms[None, first : first + 1000])
        last = min(first + 1000, n_steps) - 1
        assert np.array_equal(fast.chains.x[0], path[last])


@pytest.mark.parametrize(
    ("function", "n_flips"),
    pairs({repr(f): f for f in (Sqrt(), Barker(), Max(), Network())}, [1, 2, 5]),
)
def test_takes_the_decisions_of_the_reference(function, n_flips):
    compare_with_reference(random_rbm(30, 10, 0.5), function, n_flips, 2000)


def test_a_few_flips_of_many_moves():
    # So few that the weights of all moves are not filled.
    compare_with_reference(random_rbm(120, 10, 0.3), Barker(), 2, 500)


@pytest.mark.slow
@pytest.mark.parametrize("n_flips", [1, 4])
def test_takes_a_million_decisions_of_the_reference(n_flips):
    compare_with_reference(random_rbm(30, 10, 0.5), Network(), n_flips, 1_000_000)


@pytest.mark.parametrize("function", FUNCTIONS, ids=repr)
def test_takes_the_decisions_of_the_compiled_kernel(function):
    # Log p is linear in each spin, so first-order log-ratios of an Ising model are exact.
    compiled, fast = both_ensembles(random_ising(12), 5)
    uniforms = np.random.default_rng(2).random((5, 2000, 2))
    for ensemble in (compiled, fast):
        ensemble.start(Balanced(function.table()))
        ensemble.advance(uniforms)
    assert np.array_equal(compiled.chains.x, fast.chains.x)
    assert np.array_equal(compiled.chains.moved, fast.chains.moved)
    np.testing.assert_allclose(compiled.chains.acceptance, fast.chains.acceptance, rtol=1e-10)


@pytest.mark.parametrize("kind", POTTS_KINDS)
def test_takes_the_decisions_of_the_compiled_kernel_on_potts_models(kind):
    target = potts(nx.cycle_graph(8), kind, k=4)
    compiled, fast = both_ensembles(target, 3)
    uniforms = np.random.default_rng(2).random((3, 1000, 2))
    for table in (Barker().table(), Lipschitz().table()):
        for ensemble in (compiled, fast):
            ensemble.start(Balanced(table))
            ensemble.advance(uniforms)
        assert np.array_equal(compiled.chains.x, fast.chains.x)
        assert np.array_equal(compiled.chains.moved, fast.chains.moved)


@pytest.mark.parametrize("name", TARGETS)
def test_first_order_ratios_are_the_gradient_along_each_change(name):
    target = TARGETS[name]
    fast = FastEnsemble(
        target, exact.states(target), [None] * len(exact.states(target)), dtype=torch.float64
    )
    possible = np.isfinite(target.log_prob(exact.states(target)))
    found = fast.proposal_log_ratios()[possible]
    expected = target.first_order_ratios(exact.states(target))
    assert np.allclose(found, expected[possible], rtol=0, atol=1e-5 if "32" in name else 1e-13)


def test_first_order_ratios_of_an_rbm_by_differences():
    target, step = random_rbm(), 1e-6
    for x in exact.states(target):
        for i in range(target.n_sites):
            ends = []
            for sign in (-1.0, 1.0):
                y = x.astype(float)
                y[i] += sign * step
                hidden = np.logaddexp(0.0, target.hidden_bias + y @ target.weights).sum()
                ends.append(y @ target.visible_bias + hidden)
            slope = (ends[1] - ends[0]) / (2 * step)
            assert np.isclose(target.first_order_ratios(x)[i], (1 - 2 * x[i]) * slope, atol=1e-8)


# ----------------------------------------------------------------- streams and chains


def test_philox_gives_the_published_words():
    def words(*values):
        return [torch.tensor([value]) for value in values]

    most = 0xFFFFFFFF
    for counter, key, expected in (
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((most,) * 4, (most,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ):
        found = philox(words(*counter), words(*key))
        assert " ".join(f"{int(word):08x}" for word in found) == expected


def test_expanded_numbers_are_uniform_and_independent():
    u = torch.as_tensor(np.random.default_rng(0).random(20_000))
    more = expand(u, 7).numpy()
    assert more.shape == (20_000, 7)
    assert np.array_equal(more[:, 0], u.numpy())
    assert np.array_equal(expand(u, 4).numpy()[:, :2], more[:, :2])
    assert (more >= 0).all()
    assert (more < 1).all()
    # 49 correlations and 7 means, at five standard errors.
    assert np.abs(np.corrcoef(more.T) - np.eye(7)).max() < 5 / math.sqrt(20_000)
    assert np.abs(more.mean(axis=0) - 0.5).max() < 5 / math.sqrt(12 * 20_000)
    bins = np.histogram(more[:, 1:], bins=64, range=(0, 1))[0]
    assert ((bins - 1875) ** 2 / 1875).sum() < 130


def test_kernels_expand_numbers_as_torch_does():
    pairs = np.random.default_rng(0).random((3, 5, 2))
    for n in (2, 3, 8):
        out = np.empty((3, 5, n + 2))
        step.expand(pairs, out)
        assert np.array_equal(out[:, :, :-1], expand(torch.as_tensor(pairs[:, :, 0]), n + 1))
        assert np.array_equal(out[:, :, -1], pairs[:, :, 1])


@quiet
@pytest.mark.parametrize("n_flips", [1, 3])
def test_a_chain_does_not_depend_on_the_others(n_flips, monkeypatch):
    monkeypatch.setattr(ensembles, "_LEAST_WORK", 1)
    target = random_rbm(90, 37, 0.3)
    draws = []
    for n_chains, n_jobs in ((1, 1), (3, 2), (16, 1), (37, 2)):
        sampler = LSBSampler(
            "barker", fast=True, n_flips=n_flips, n_chains=n_chains, n_jobs=n_jobs, random_state=0
        )
        draws.append(sampler.set_params(n_burn_in=300).fit(target).sample(200)["x"].values)
    assert draws[0].std(axis=1).any()
    for more in draws[1:]:
        assert np.array_equal(more[:1], draws[0])
    assert np.array_equal(draws[1], draws[3][:3])


@quiet
@pytest.mark.parametrize("lazy", [0.0, 0.2])
def test_what_is_learned_does_not_depend_on_threads(lazy, monkeypatch):
    monkeypatch.setattr(ensembles, "_LEAST_WORK", 1)
    target, found = random_rbm(40, 20, 0.4), []
    for n_jobs in (1, 2):
        sampler = LSBSampler(fast=True, n_chains=5, n_jobs=n_jobs, lazy=lazy, n_burn_in=400)
        sampler.set_params(random_state=0).fit(target)
        found.append((sampler.sample(50)["x"].values, sampler.n_evaluations_))
    assert np.array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


@quiet
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_threads_of_torch_are_as_before(n_jobs):
    before, settings = torch.get_num_threads(), {"n_jobs": n_jobs, "random_state": 0}
    target = TorchTarget(lambda x: x.sum(-1), 3)
    try:
        torch.set_num_threads(3)
        samplers = [LSBSampler("sqrt", fast=True, n_burn_in=2, **settings) for _ in range(2)]
        first, second = (s.fit(target).run_.ensemble.threads() for s in samplers)
        assert torch.get_num_threads() == 3
        with ExitStack() as later:
            with first:
                assert torch.get_num_threads() == n_jobs
                later.enter_context(second)
            assert samplers[1].sample(2).sizes["draw"] == 2
        assert torch.get_num_threads() == 3
        with ensembles._THREADS.be(4):
            with ensembles._THREADS.be(2), ensembles._THREADS.be(4):
                pass
            assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_sampler_gives_the_same_chains_fast_and_not():
    """With one flip, and steps in loops; also by gradients, with what else goes on in `fit`."""
    target = random_ising(8)
    settings = {"n_burn_in": 50, "rejection_free": False, "random_state": 0}
    compiled, fast = (LSBSampler("sqrt", fast=f, **settings).fit(target) for f in (False, True))
    draws = compiled.sample(40, thin=3)
    assert draws.identical(copy.copy(fast).sample(40, thin=3).assign_attrs(draws.attrs))
    np.testing.assert_array_equal(fast.step(3).state_tensor_, draws["x"][:, 0])
    fast.state_tensor_ = draws["x"][:, 7].values
    np.testing.assert_array_equal(fast.step(0).state_tensor_, draws["x"][:, 7])
    assert (fast.step(100).state_ != draws["x"][:, 7].values).any()
    by_gradients = FastEnsemble(target, compiled.state_, compiled.run_.ensemble.streams.copy())
    by_gradients.start(compiled.run_.ensemble.rule)
    x, stats = np.empty((4, 40, 8), np.int8), np.empty((4, 40, 1))
    by_gradients.run(120, Drawing(3), (x, stats))
    further = compiled.sample(40, thin=3)
    np.testing.assert_array_equal(x, further["x"])
    np.testing.assert_allclose(stats[:, :, 0], further["lp"], rtol=1e-12)


@quiet
@pytest.mark.parametrize("name", TARGETS)
def test_draws_have_the_target_as_their_distribution(name):
    target = TARGETS[name]
    sampler = LSBSampler("barker", fast=True, n_flips=2, n_chains=200, random_state=0, n_burn_in=60)
    x = sampler.fit(target).sample(20, thin=15)["x"].values.reshape(-1, target.n_sites)
    index = {state.tobytes(): i for i, state in enumerate(exact.states(target))}
    counts = np.bincount([index[state.tobytes()] for state in x], minlength=len(index))
    p = exact.probabilities(target)
    assert not counts[p == 0].any()
    common = p > 1e-3
    z = (counts[common] / len(x) - p[common]) / np.sqrt(p[common] * (1 - p[common]) / len(x))
    assert np.abs(z).max() < 6  # draws 15 transitions apart are not quite independent


@quiet
def test_auto_finds_an_acceptance_near_the_one_asked_for():
    target = random_rbm(150, 30, 0.3)
    sampler = LSBSampler("barker", fast=True, n_flips="auto", n_chains=16, random_state=0)
    sampler.set_params(n_burn_in=1000).fit(target)
    assert 4 <= sampler.n_flips_ <= 64
    flips = sampler.n_flips_
    sampler.sample(300)
    assert sampler.n_flips_ == flips
    assert 0.5 < float(sampler.sample_stats_["acceptance_rate"].mean()) < 0.7
    assert isinstance(flips, int)
    again = copy.deepcopy(sampler).fit(target)
    assert again.n_flips_ == flips
    unfitted = LSBSampler("barker", fast=True, n_flips="auto", n_burn_in=0, random_state=0)
    assert unfitted.fit(target).n_flips_ == 1


def test_flips_adapt_within_their_limits_and_then_stay():
    flips = AdaptiveFlips("auto", 5)
    assert flips.adapting
    assert flips.n_flips == 1
    for _ in range(100):
        flips.follow(1.0, 8)
    assert flips.n_flips == 5  # no more than sites
    other = AdaptiveFlips("auto", 5)
    other.begin_like(flips)
    assert other.n_flips == 5
    other.adapt(lambda n: 0.0, 1000)
    assert not other.adapting
    assert other.n_flips == 1
    for fixed in (other, AdaptiveFlips(3, 5)):
        before = fixed.n_flips
        fixed.follow(1.0, 1000)
        assert fixed.n_flips == before


def test_flips_follow_the_acceptance_of_transitions_that_are_not_idle():
    target = random_rbm(5)
    states = np.ones((2, 5), dtype=np.int8)
    for lazy, most in ((0.0, 1), (0.5, 5)):
        fast = FastEnsemble(target, states, [None] * 2, n_flips="auto")
        fast.start(Balanced(Barker().table(), lazy))
        for _ in range(100):
            fast.follow(0.5, 8)  # with lazy = 0.5 all that is proposed is accepted
        assert fast.n_flips == most


def test_torch_knows_targets_by_what_they_offer():
    folder = pathlib.Path(exact.__file__).parent / "_torch"
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("sklsb.targets"):
                assert node.module == "sklsb.targets.base", path


@quiet
def test_a_target_of_a_user_with_evidence():
    target = Counts().condition({1: 1})
    assert target.observed_sites.tolist() == [1]
    assert Counts().observed_sites.size == 0
    sampler = LSBSampler(fast=True, n_flips=2, n_burn_in=60, random_state=0).fit(target)
    x = sampler.sample(300)["x"].values
    assert (x[:, :, 1] == 1).all()
    assert x[:, :, [0, 2, 3]].std(axis=(0, 1)).all()


def test_evaluations_are_gradients():
    target = random_rbm()
    sampler = LSBSampler(
        "sqrt", fast=True, n_chains=3, n_burn_in=50, init="uniform", random_state=0
    )
    sampler.fit(target)
    assert sampler.n_evaluations_ == 3 * 51
    sampler.sample(10, thin=4)
    assert sampler.n_evaluations_ == 3 * 91


def test_all_bits_of_a_number_count():
    u = torch.tensor([k * 2.0**-53 for k in (0, 1, 2**31, 2**32, 2**52, 2**53 - 1)])
    assert torch.unique(expand(u.double(), 3)[:, 1]).numel() == 6


@quiet
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("balancing", ["sqrt", "barker", "max"])
def test_an_infinite_gradient_does_not_stop_a_chain(balancing, dtype):
    for log_prob in (
        lambda x: 0.7 * torch.sqrt(x.sum(-1)),  # infinite at 0
        lambda x: x.sum(-1) + 3e38 * (x * (1.0 - x)).sum(-1),  # beyond float32
    ):
        target = TorchTarget(log_prob, 4, dtype=dtype, initial_state=[0] * 4)
        sampler = LSBSampler(balancing, fast=True, n_chains=200, n_burn_in=60, random_state=0)
        x = sampler.fit(target).sample(20, thin=7)["x"].values
        p = exact.probabilities(target)[0]
        assert abs((x.sum(axis=2) == 0).mean() - p) < 5 * math.sqrt(p / 4000) + 0.01
        assert np.isfinite(sampler.sample_stats_["acceptance_rate"]).all()


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e9, 1e12, 1e15])
def test_weights_of_very_different_sizes(scale):
    target = RBM([[scale], [0.7], [-0.3]], [-2 * scale, 0.1, 0.2])
    fast = FastEnsemble(target, exact.states(target), [None] * 8, dtype=torch.float64)
    x, y = exact.states(target), exact.states(target)
    y[:, 1] = 1 - y[:, 1]
    sites = torch.ones(8, 1, dtype=torch.int64)
    state = fast.walkers.state
    _, ratio = fast.walkers.model.move(state.x, state.carried, torch.as_tensor(y), sites)
    assert np.allclose(ratio, target.log_ratios(x)[:, 1], rtol=1e-12, atol=1e-12)


@quiet
def test_candidates_are_tried_with_their_own_numbers_of_flips():
    sampler = LSBSampler(fast=True, n_flips="auto", n_burn_in=6000, n_chains=8, random_state=0)
    found = sampler.fit(random_rbm(150, 30, 0.3)).candidates_
    assert np.isfinite(found["ess_per_step"]).all()
    flips = {name: int(found["n_flips"].sel(candidate=name)) for name in ("max", "barker")}
    assert flips["max"] < flips["barker"]
    rates = found["acceptance_rate"].sel(candidate=["barker", "sqrt", "flux"])
    assert (abs(rates - 0.6) < 0.15).all()


@quiet
@pytest.mark.parametrize("balancing", ["barker", "learned"])
def test_nothing_can_move(balancing):
    for target in (RBM(np.ones((0, 2))), random_rbm().condition(dict.fromkeys(range(4), 1))):
        for n_flips in (1, "auto"):
            sampler = LSBSampler(balancing, fast=True, n_flips=n_flips, n_burn_in=40)
            x = sampler.set_params(random_state=0).fit(target).sample(3)["x"].values
            assert x.shape == (4, 3, target.n_sites)
            assert (x == 1).all()


def check_carried_activations():
    """What chains carry is what their states give, whatever ways led there."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(-30.0, 1.0, size=(40, 7)))  # so that rests are carried, too
    for weights in (rng.normal(size=(40, 7)), sizes * rng.normal(size=(40, 7))):
        target = RBM(0.1 * weights, 0.5 * rng.normal(size=40), rng.normal(size=7))
        x = np.stack([target.draw_state(rng) for _ in range(5)])
        chains = FastEnsemble(target, x, [None] * 5, None, 19)
        chains.start(Balanced(Barker().table()))
        for _ in range(20):
            before = chains.chains.x.copy()
            chains.advance(rng.random((5, 5, 2)))
            assert np.count_nonzero(before != chains.chains.x, axis=1).max() >= 8
            for one, other in chains.kept_and_rebuilt().values():
                assert np.array_equal(one, other)
            np.testing.assert_allclose(chains.log_prob(), target.log_prob(chains.chains.x), 1e-12)


def test_carried_activations_do_not_depend_on_the_way():
    check_carried_activations()


def test_parts_for_threads_share_no_memory_that_a_step_writes():
    target = random_rbm(20, 3)
    chains = FastEnsemble(target, np.zeros((4, 20), target.dtype), [None] * 4)
    chains.start(Balanced(Barker().table()))
    parts = [chains.walkers.part(slice(k, k + 2)) for k in (0, 2)]
    for part in parts:
        part.step(np.full((2, 2), 0.5))
    given = []
    for part in parts:
        (side,) = part._sides
        arrays = *part.weighing.scratch, *part._drawn, *part._sums, side.y, *side.weighed
        filled = *side.model.filled, *side.model.padded, *side.model.scratch
        given.append((*arrays, *(np.asarray(one) for one in filled)))
    for one, other in zip(*given, strict=True):
        assert one.size
        assert not np.shares_memory(one, other)


def drawn_with(walkers, n_moves):
    """Probabilities of all moves at each state, from the numbers that draw them."""
    low = torch.zeros(len(walkers), n_moves - 1, dtype=torch.float64)
    high, move = torch.ones_like(low), torch.arange(n_moves - 1)
    for _ in range(60):
        middle = (low + high) / 2
        drawn = [torch.from_numpy(walkers.proposed(u.numpy())) for u in middle.T]
        beyond = torch.stack(drawn, 1) > move
        low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
    ends = torch.cat([torch.zeros(len(low), 1), high, torch.ones(len(low), 1)], 1)
    return ends.diff(dim=1).numpy(), ((ends[:, 1:] + ends[:, :-1]) / 2).numpy()


@pytest.mark.parametrize("function", [Barker(), Sqrt(), Network()], ids=str)
def test_single_precision_leaves_detailed_balance_to_double(function):
    target = random_rbm(4, 3, 2.0)
    x = exact.states(target)
    fast = FastEnsemble(target, x, [None] * 16)
    assert fast.walkers.state.ratios.dtype == torch.float32
    fast.start(Balanced(function.table()))
    q, middle = drawn_with(fast.walkers, 4)
    flow = np.empty((16, 4))
    for move in range(4):
        fast.forget_acceptance()
        never = np.stack([middle[:, move], np.ones(16)], axis=1)[:, None]
        fast.advance(never)
        flow[:, move] = exact.probabilities(target) * q[:, move] * fast.chains.acceptance[:, 0]
    assert np.array_equal(fast.chains.x, x)
    there = np.arange(16)[:, None] ^ (8 >> np.arange(4))
    back = flow[there, np.arange(4)]
    np.testing.assert_allclose(flow, back, rtol=1e-10)
    assert flow.max() / flow.min() > 10.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_improbable_states_are_left(dtype):
    bias = 1000.0 * np.array([1.0, -1.0, 0.5, -0.7, 0.2, 0.9])
    target = RBM(np.zeros((6, 1)), bias)
    worst = (bias[None] < 0.0).astype(target.dtype)
    fast = FastEnsemble(target, worst, [None], dtype=dtype)
    fast.start(Balanced(Sqrt().table()))
    fast.advance(np.random.default_rng(0).random((1, 200, 2)))
    assert np.array_equal(fast.chains.x[0], bias > 0.0)


@pytest.mark.parametrize("coupling", [16.0, 2.0**40])
def test_large_log_ratios_do_not_swallow_the_sums_of_weights(coupling):
    pairs = coupling * np.kron(np.eye(2), [[0.0, 1.0], [1.0, 0.0]])
    target = Ising(pairs, [0.5, 0.5, 0.25, 0.0])  # so that log-ratios are exact
    fast = FastEnsemble(target, np.ones((1, 4), target.dtype), [None], None, 3)
    fast.start(Balanced(Barker().table()))
    # Both spins of the first pair, as the third draw is left out.
    fast.advance(np.array([[[0.1, 0.2, 0.5, 0.9, 1.0]]]))
    # Barker's weights of such moves are their ratios, all times exp(-2 * coupling).
    forth, back = np.exp([-1.0, -1.0, -0.5, 0.0]), np.exp([1.0, 1.0, -0.5, 0.0])
    wanted = np.exp(-2.0) * (back[0] / back.sum() / (forth[0] / forth.sum())) ** 2
    assert wanted < 0.9
    assert fast.chains.acceptance[0, 0] == pytest.approx(wanted, rel=1e-9)


@contextmanager
def torch_alone():
    """Move chains by operations of torch alone, as on CUDA."""
    with mock.patch.object(ensembles, "CompiledWalkers", Walkers):
        yield


@pytest.mark.parametrize(("name", "n_flips"), pairs([*TARGETS], [1, 3], each=1))
def test_kernels_take_the_decisions_of_torch_alone(name, n_flips):
    target = TARGETS[name]
    rng = np.random.default_rng(0)
    states = np.stack([target.draw_state(rng) for _ in range(5)])
    made = [[None] * 5, None, n_flips, 1, torch.float64]
    compiled = FastEnsemble(target, states, *made)
    with torch_alone():
        alone = FastEnsemble(target, states, *made)
    if isinstance(target, RBM):
        alone.walkers.model._on_cpu = False
    for function, lazy in ((Barker(), 0.2), (Network(), 0.0), (Sqrt(), 0.1)):
        uniforms = rng.random((5, 100, 2))
        for ensemble in (compiled, alone):
            ensemble.start(Balanced(function.table(), lazy))
            ensemble.advance(uniforms)
        assert np.array_equal(compiled.chains.x, alone.chains.x)
        assert np.array_equal(compiled.chains.moved, alone.chains.moved)
        acceptance = compiled.chains.acceptance, alone.chains.acceptance
        assert np.allclose(*acceptance, rtol=1e-4 if "32" in name else 1e-9)


@pytest.mark.parametrize("name", TARGETS)
def test_kernels_give_the_bound_of_torch_alone(name):
    target, rng = TARGETS[name], np.random.default_rng(0)
    states = np.stack([target.draw_state(rng) for _ in range(5)])
    made = [[None] * 5, None, 1, 1, torch.float64]
    compiled = FastEnsemble(target, states, *made)
    with torch_alone():
        alone = FastEnsemble(target, states, *made)
    for function in (Barker(), Network(), Mixture([0.3, -0.2, 0.1, 0.5])):
        rule, u, omega = Balanced(function.table()), rng.random((5, 2)), rng.normal(size=5)
        given = rule, (OBJECTIVES["bound"], 0.7, 1), u, omega
        for one, other in zip(compiled.objective(*given), alone.objective(*given), strict=True):
            near = 1e-5 if "32" in name else 1e-11
            np.testing.assert_allclose(one, other, rtol=near, atol=near)


@quiet
def test_keeping_the_burn_in_changes_no_chain():
    target = random_rbm(30, 8, 0.4)
    states = []
    for keep in (False, True):
        sampler = LSBSampler(fast=True, n_flips="auto", n_burn_in=300, keep_burn_in=keep)
        sampler.set_params(random_state=0, pilot=False).fit(target)
        states.append((sampler.state_, sampler.n_flips_))
    assert np.array_equal(states[0][0], states[1][0])
    assert states[0][1] == states[1][1] > 1


@quiet
def test_parts_of_fit_add_up_to_its_evaluations():
    sampler = LSBSampler(fast=True, n_flips="auto", n_burn_in=300, random_state=0)
    counts = sampler.fit(random_rbm(30, 8, 0.4)).history_.attrs
    parts = [counts[f"{name}_evaluations"] for name in ("burn_in", "mixing", "pilot")]
    assert sum(parts) == sampler.n_evaluations_


@quiet
def test_lp_of_many_sites_does_not_depend_on_threads():
    rng = np.random.default_rng(0)
    target = Ising.lattice(rng.normal(size=(250, 250)), 0.3)
    lp = []
    for n_jobs in (1, 2):
        sampler = LSBSampler("sqrt", fast=True, n_flips=2, n_burn_in=2, n_jobs=n_jobs)
        sampler.set_params(random_state=0).fit(target).sample(3)
        lp.append(sampler.sample_stats_["lp"].values)
    assert np.array_equal(*lp)


@pytest.mark.parametrize(("n_chains", "n_parts"), [(4, 1), (64, 1), (84, 2), (256, 3)])
def test_small_steps_are_not_divided(n_chains, n_parts):
    target, rngs = random_rbm(784, 3), [np.random.default_rng(c) for c in range(n_chains)]
    states = np.zeros((n_chains, 784), dtype=target.dtype)
    chains = FastEnsemble(target, states, rngs, None, 1, 3)
    with chains.threads():
        assert torch.get_num_threads() == 1
        assert chains._n_parts == n_parts
        assert (chains._pool is None) == (n_parts == 1)


ROWS = {
    **{f"rbm {v}-{h}": (random_rbm, v, h, 0.2) for v, h in ((17, 3), (100, 50), (333, 129))},
    "rbm of large weights": (random_rbm, 40, 9, 1e6),
    "ising": (random_ising, 70),
    "lattice": (lambda: Ising.lattice(np.random.default_rng(0).normal(size=(9, 9)), 0.3),),
    "potts": (potts, nx.grid_2d_graph(6, 6)),
}


@pytest.mark.parametrize(("name", "n_flips"), pairs([*ROWS], [1, 5], each=1))
def test_draws_do_not_depend_on_how_chains_are_divided(name, n_flips, monkeypatch):
    monkeypatch.setattr(ensembles, "_LEAST_WORK", 1)
    make, *given = ROWS[name]
    target, rng = make(*given), np.random.default_rng(0)
    assert placing.model_on(target, None, torch.float32).of_rows
    states = np.stack([target.draw_state(rng) for _ in range(7)])
    found = []
    for n_threads in (1, 2, 3, 7):
        streams = [np.random.default_rng(c) for c in range(7)]
        chains = FastEnsemble(target, states, streams, None, n_flips, n_threads)
        chains.start(Balanced(Barker().table()))
        draws, stats = np.empty((7, 60, target.n_sites), target.dtype), np.empty((7, 60, 2))
        with chains.threads():
            assert (chains._pool is None) == (n_threads == 1)
            chains.run(180, Drawing(3), (draws, stats))
        found.append((draws, stats, chains.log_prob()))
    for others in found[1:]:
        assert all(map(np.array_equal, others, found[0]))


class Placed(torch.nn.Module):
    """A function whose log-density is on a device."""

    def __init__(self, function, device):
        super().__init__()
        self.function = function
        self.place = torch.nn.Parameter(torch.zeros((), device=device))

    def forward(self, x):
        return self.function(x)


def placed(target, device):
    """Return a target whose tensors are on a device."""
    made = copy.deepcopy(target)
    inner = getattr(made, "target", made)
    if isinstance(inner, TorchTarget):
        inner.density.function = Placed(inner.density.function, device)
    return made


class OneDevice(TorchDispatchMode):
    """Refuse operations on tensors of two devices, and those that ask for a value."""

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        found = function(*arguments, **(keywords or {}))
        tensors = tree_leaves((arguments, keywords, found))
        where = {t.device.type for t in tensors if isinstance(t, torch.Tensor) and t.dim()}
        assert len(where) < 2, f"{function} of tensors on {where}"
        return found


@contextmanager
def dry_device():
    """Let "meta" be a device to run on: operations on it only work out shapes.

    There is no sparse product on it; a dense one takes its place.
    """

    def dense(couplings, device):
        return torch.as_tensor(couplings.toarray()).to(device)

    with (
        mock.patch.object(placing, "_parsed", torch.device),
        mock.patch.object(torch_graphs, "sparse", dense),
        mock.patch.object(torch.sparse, "mm", torch.mm),
    ):
        yield


def dry_walkers(target, lazy=0.0):
    states = np.zeros((6, target.n_sites), dtype=np.int64)
    on_meta = placed(target, "meta")
    walkers = Walkers(on_meta, states, placing.model_on(on_meta, "meta", torch.float32))
    walkers.lazy = lazy
    walkers.weigh(Network().table())
    return walkers


def dry_step(walkers, n_flips=1):
    (numbers,) = walkers.numbers(np.zeros((6, 1, 2)), n_flips)
    with walkers.model.prepared(), torch.no_grad(), OneDevice():
        walkers.step(numbers)


@pytest.mark.parametrize(
    ("name", "settings"),
    pairs([*TARGETS], {f"{lazy}-{n}": (lazy, n) for lazy in (0.0, 0.2) for n in (1, 3)}),
)
def test_a_step_stays_on_the_device(name, settings):
    lazy, n_flips = settings
    with dry_device():
        walkers = dry_walkers(TARGETS[name], lazy)
        dry_step(walkers, n_flips)
        walkers.weigh(Barker().table())
        dry_step(walkers, n_flips)
    assert all(part.device.type == "meta" for part in walkers.state.tensors())


@pytest.mark.parametrize("name", TARGETS)
def test_objectives_stay_on_the_device(name):
    with dry_device():
        walkers = dry_walkers(TARGETS[name])
        with walkers.model.prepared(), OneDevice():
            u = torch.zeros((6, 2), dtype=torch.float64, device="meta")
            values, eta = torch.zeros(257, device="meta").double(), u[0, 0]
            values.requires_grad_()
            for loss, _ in (
                objectives._bound(walkers, values, eta, u, u[:, 0]),
                objectives._enumerated(walkers, values, 3, u[:, 1], (u[:, 0], u[:, 0])),
            ):
                (gradient,) = torch.autograd.grad(loss.sum(), values)
                assert loss.device.type == gradient.device.type == "meta"
                assert loss.shape == (6,)
                assert gradient.shape == (257,)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("name", TARGETS)
def test_flows_stay_on_the_device(name, weights):
    with dry_device():
        walkers = dry_walkers(TARGETS[name])
        sites = np.flatnonzero(TARGETS[name].n_possible > 1)
        weight = np.ones(len(sites) if weights else 0)
        with walkers.model.prepared():
            found = objectives._flux(walkers, Network().table(), sites, weight)
    assert [tuple(one.shape) for one in found] == [(), (257,), (len(sites),)]
    assert all(one.device.type == "meta" for one in found)


@pytest.mark.parametrize("fault", ["asks", "another device"])
def test_the_dry_run_finds_faults(fault):
    class Faulty(CountsModel):
        def move(self, x, carried, y, sites):
            if fault == "asks":
                return super().move(x, carried, y, sites) if y.sum() > 0 else None
            return super().move(x, (carried[0] + torch.zeros(6, 1),), y, sites)

    with dry_device():
        walkers = dry_walkers(Counts())
        walkers.model = Faulty(walkers.device)
        with pytest.raises((RuntimeError, AssertionError), match="meta"):
            dry_step(walkers)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("n_flips", [1, 4])
@pytest.mark.parametrize("lazy", [0.0, 0.2])
@pytest.mark.parametrize("name", TARGETS)
def test_cuda_takes_the_decisions_of_the_cpu(name, n_flips, lazy):
    target = TARGETS[name]
    rng = np.random.default_rng(1)
    states = np.stack([target.draw_state(rng) for _ in range(8)])
    chains = [
        FastEnsemble(placed(target, device), states, [rng] * 8, device, n_flips, 1, torch.float64)
        for device in ("cpu", "cuda")
    ]
    # Twice with the same table.
    for function in (Barker(), Network(), Barker()):
        rule, uniforms = Balanced(function.table(), lazy), rng.random((8, 300, 2))
        for ensemble in chains:
            ensemble.start(rule)
            ensemble.advance(uniforms)
        assert np.array_equal(chains[0].chains.x, chains[1].chains.x)


@quiet
def test_no_sites_and_one():
    draws = LSBSampler("sqrt", fast=True, n_burn_in=5, random_state=0).fit(RBM(np.ones((0, 2))))
    assert draws.sample(3)["x"].shape == (4, 3, 0)
    one = RBM([[0.5]], [1.0])
    sampler = LSBSampler("barker", fast=True, n_chains=2, n_burn_in=5, random_state=0, n_flips=3)
    x = sampler.fit(one).sample(4000)["x"].values
    assert abs(x.mean() - exact.probabilities(one)[1]) < 0.03


# ----------------------------------------------------------------- learning


@pytest.mark.parametrize(("n_flips", "lazy"), [(1, 0.0), (1, 0.4), (3, 0.0)])
def test_what_the_objective_evaluates_is_counted_and_moves_nothing(n_flips, lazy):
    rows = []

    def log_prob(x):
        rows.append(len(x))
        return (x * torch.linspace(-1.0, 2.0, 15).view(5, 3)).sum((1, 2)) ** 3 / 20

    target = TorchTarget(log_prob, 5, 3)
    rng = np.random.default_rng(0)
    states = np.stack([target.draw_state(rng) for _ in range(6)])
    one, other = (FastEnsemble(target, states, [None] * 6, None, n_flips) for _ in range(2))
    rule = Balanced(Barker().table(), lazy)
    for n_steps in (1, 4):
        u = rng.random((6, n_steps, 2))
        for chains in (one, other):
            chains.start(rule)
        rows.clear()
        before = one.chains.evaluations.sum()
        given = OBJECTIVES["bound"], 1.0, 1
        one.objective(rule, given, np.column_stack([u[:, 0, 0], rng.random(6)]), np.zeros(6))
        one.advance(u)
        assert sum(rows) == 6 * (2 + n_steps)
        assert one.chains.evaluations.sum() - before == sum(rows)
        other.advance(u)
        assert np.array_equal(one.chains.x, other.chains.x)
        assert np.array_equal(one.chains.acceptance, other.chains.acceptance)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=repr)
def test_compiled_gradients_equal_automatic_ones(function, objective, every):
    for target in (random_ising(9), potts(nx.cycle_graph(5)), potts(nx.cycle_graph(5), "zeros")):
        compiled, fast = both_ensembles(target, 4)
        rule = Balanced(function.table())
        compiled.start(rule)
        rng = np.random.default_rng(3)
        uniforms, log_omega = rng.random((4, 2)), rng.normal(size=4)
        settings = (OBJECTIVES[objective], 0.7, every)
        expected = fast.objective(rule, settings, uniforms, log_omega)
        found = compiled.objective(rule, settings, uniforms, log_omega)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(
                one, other, rtol=1e-9, atol=1e-11 + 1e-11 * np.max(np.abs(other))
            )


def flux_by_formula(target, states, function, sites, weight):
    """Mean value and flows with everything that is proposed accepted, site by site."""
    k = target.cardinalities - 1
    first = np.append(0, np.cumsum(k))
    values, flows = [], []
    for ratios in target.first_order_ratios(states):
        w = np.exp(function.tabulated().log_g(ratios))
        t = np.array([w[first[i] : first[i + 1]].sum() for i in sites]) / w.sum()
        odds = np.array([np.exp(ratios[first[i] : first[i + 1]]).sum() for i in sites])
        p = 1 / (1 + odds)
        flow = 2 * p * t
        a = p * (1 - p)
        with np.errstate(all="ignore"):
            terms = np.where(a > 0, a**2 / (p * t), 0.0)
        values.append(weight @ flow if weight.size else np.log(terms.sum()))
        flows.append(flow)
    return np.mean(values), np.mean(flows, axis=0)


@pytest.mark.parametrize("function", FUNCTIONS, ids=repr)
@pytest.mark.parametrize("name", TARGETS)
def test_fluxes_are_those_of_the_formula(name, function):
    target = TARGETS[name]
    rng = np.random.default_rng(0)
    states = np.stack([target.draw_state(rng) for _ in range(5)])
    fast = FastEnsemble(target, states, [rng] * 5, dtype=torch.float64)
    rule = Balanced(function.table())
    exactly = 1e-5 if "32" in name else 1e-10
    for sites in (np.arange(target.n_sites), np.array([1])):
        for weight in (np.empty(0), np.linspace(0.2, 1.0, sites.size)):
            value, gradient, flows = fast.flux(rule, sites, weight)
            if "evidence" in name and sites.size == 1 and not weight.size:
                continue  # of an observed site alone there is no flux
            expected = flux_by_formula(target, states, function, sites, weight)
            assert np.isclose(value, expected[0], rtol=exactly)
            assert np.allclose(flows, expected[1], rtol=exactly)
            k, step = int(rng.integers(40)), 1e-5
            ends = [fast.flux(changed(rule, k, sign * step), sites, weight)[0] for sign in (-1, 1)]
            found = (ends[1] - ends[0]) / (2 * step)
            assert np.isclose(found, gradient[k], rtol=1e-5, atol=1e-8)


def changed(rule, k, step):
    """A rule whose table has another value at one knot."""
    table, value = rule.table, rule.table.value.copy()
    value[k] += step
    slope = np.append(np.diff(value), table.slope[-1])
    return rule._replace(table=table._replace(value=value, slope=slope))


@quiet
@pytest.mark.parametrize(
    ("name", "objective"),
    pairs(["ising", "five sites", "rbm with evidence", "torch"], ["auto", *OBJECTIVES, *MIXING]),
)
def test_learns_and_continues(name, objective):
    def fitted():
        sampler = LSBSampler(fast=True, objective=objective, n_burn_in=60, random_state=0)
        return sampler.set_params(n_flips=2).fit(TARGETS[name])

    sampler = fitted()
    assert (sampler.burn_in_balancing_.theta != get_balancing("learned").theta).any()
    assert np.isfinite(sampler.burn_in_balancing_.theta).all()
    assert np.isfinite(sampler.balancing_.table().value).all()
    assert "sqrt" in sampler.candidates_["candidate"]
    first, second = sampler.sample(7, thin=2), sampler.sample(5, thin=2)
    whole = fitted().sample(12, thin=2)["x"].values
    assert np.array_equal(np.concatenate([first["x"], second["x"]], axis=1), whole)
    np.testing.assert_allclose(
        sampler.sample_stats_["lp"].values, sampler.target_.log_prob(second["x"].values), atol=1e-12
    )


@quiet
def test_a_constant_in_log_p_changes_nothing():
    thetas, draws = [], []
    for constant in (0.0, 2.0**20):
        target = TorchTarget(lambda x, c=constant: cubic(x) + c, 6, dtype="float64")
        sampler = LSBSampler(fast=True, n_burn_in=100, random_state=0).fit(target)
        thetas.append(sampler.balancing_.tabulated().even_part(np.arange(9.0)))
        draws.append(sampler.sample(50)["x"].values)
    np.testing.assert_allclose(thetas[1], thetas[0], atol=1e-7)  # log p itself rounds
    assert np.array_equal(*draws)


# ----------------------------------------------------------------- any function of torch


class Energy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.Dropout(0.5), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        )

    def forward(self, x):
        return 3.0 * self.body(x)[:, 0]


@quiet
@pytest.mark.parametrize(("fast", "training"), [(True, True), (False, False)])
def test_a_module_is_left_as_it_was(fast, training):
    module = Energy()
    module.train(training)
    module.body[0].train(not training)
    modes = [part.training for part in module.modules()]
    before = {name: value.clone() for name, value in module.state_dict().items()}
    module.body[0].weight.grad = torch.ones_like(module.body[0].weight)
    target = TorchTarget(module, 6)
    sampler = LSBSampler(fast=fast, n_burn_in=20, random_state=0).fit(target)
    first = sampler.sample(20)
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(module.body[0].weight.grad, torch.ones_like(module.body[0].weight))
    assert all(p.grad is None for name, p in module.named_parameters() if name != "body.0.weight")
    assert all(p.requires_grad for p in module.parameters())
    # Dropout is off: log p is a function of the state.
    assert np.array_equal(target.log_prob(first["x"]), target.log_prob(first["x"]))
    again = pickle.loads(pickle.dumps(sampler)).sample(20)
    assert again["x"].equals(sampler.sample(20)["x"])


@quiet
def test_a_function_of_torch_without_its_gradient():
    target = TorchTarget(wave, 3, [3, 2, 3], dtype="float64")
    plain = FunctionTarget(lambda x: float(target.log_prob(x)), 3, [3, 2, 3])
    x = exact.states(target)
    assert np.array_equal(target.log_prob(x), plain.log_prob(x))
    assert np.allclose(target.log_ratios(x), plain.log_ratios(x), atol=1e-14)
    draws = [
        LSBSampler("barker", n_burn_in=30, random_state=0).fit(t).sample(50)["x"]
        for t in (target, plain)
    ]
    assert draws[0].equals(draws[1])
    testing.check_target(target)


def test_states_are_given_as_zeros_and_ones_or_indicators():
    seen = []

    def remember(x):
        seen.append(x.detach().clone())
        return x.flatten(1).sum(1)

    target = TorchTarget(remember, 2, dtype="float64")
    target.log_prob([[0, 1]])
    assert seen[-1].tolist() == [[0.0, 1.0]]
    assert seen[-1].dtype == torch.float64
    TorchTarget(remember, 2, [2, 4]).log_prob([[1, 3]])
    assert seen[-1].tolist() == [[[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]]
    assert seen[-1].dtype == torch.float32


def test_inference_mode_is_refused():
    sampler = LSBSampler("barker", fast=True, n_burn_in=1, random_state=0)
    with torch.inference_mode(), pytest.raises(ValueError, match=r"inference_mode\(\) is on"):
        sampler.fit(TorchTarget(lambda x: x.sum(1), 3))


@quiet
def test_impossible_states_of_a_function_are_never_visited():
    def log_prob(x):
        return torch.where(x.sum(1) > 2.5, -math.inf, x.sum(1))

    target = TorchTarget(log_prob, 5, initial_state=[0] * 5)
    sampler = LSBSampler("barker", fast=True, n_flips=2, n_burn_in=50, random_state=0).fit(target)
    x = sampler.sample(2000)["x"]
    assert int(x.sum("site").max()) == 2
    p = exact.probabilities(target)
    assert np.isfinite(sampler.sample_stats_["acceptance_rate"]).all()
    share = float((x.sum("site") == 2).mean())
    assert abs(share - p[exact.states(target).sum(axis=1) == 2].sum()) < 0.03


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3, 4), TypeError, "log_prob is 3; give a torch.nn.Module or a function of a tensor"),
        ((cubic, -1), ValueError, "n_sites is -1; it must be from 0"),
        ((cubic, 4, 2.5), TypeError, "n_states is 2.5"),
        ((lambda x: 0.0, 4), TypeError, "returned float; it must return a real tensor"),
        (
            (lambda x: 1j * x.sum(1), 4),
            TypeError,
            "returned torch.complex64; it",
        ),
        ((cubic, 4, "ab"), TypeError, "n_states is 'ab'"),
        ((cubic, 4, None), TypeError, "n_states is None"),
        ((lambda x: x, 4), ValueError, r"returned shape \(5, 4\) for a tensor of shape \(5, 4\)"),
        ((lambda x: x.sum(1) * math.nan, 4), ValueError, "NaN|nan"),
    ],
)
def test_wrong_functions_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        TorchTarget(*arguments)


@pytest.mark.parametrize("dtype", ["int32", "float99", 3, torch.int32, torch.bfloat16])
def test_wrong_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match='give "float32" or "float64"'):
        TorchTarget(cubic, 4, dtype=dtype)


def test_errors_of_a_function_tell_what_it_was_called_with():
    with pytest.raises(RuntimeError) as caught:
        TorchTarget(torch.nn.Linear(6, 1), 7)
    note = "called with a tensor of shape (5, 7) and type torch.float32."
    assert any(note in line for line in caught.value.__notes__)
    assert any("because n_states is 2. If variables" in line for line in caught.value.__notes__)
    for n_states in (2, 3):
        with pytest.raises(RuntimeError, match="indices") as caught:
            TorchTarget(torch.nn.Embedding(3, 4), 7, n_states)
        assert any("x @ embedding.weight; with" in line for line in caught.value.__notes__)
    with pytest.raises(ValueError, match="no more than its rows"):
        TorchTarget(lambda x: (x - x.mean(0)).sum(1), 4)


def test_what_made_the_draws_is_recorded():
    target = random_rbm(30, 8, 0.4)
    sampler = LSBSampler(fast=True, n_flips="auto", n_burn_in=3000, random_state=0).fit(target)
    attrs = sampler.sample(2, thin="sweep").attrs
    assert attrs["n_flips_"] == sampler.n_flips_
    assert attrs["balancing_"] == repr(sampler.balancing_)
    assert attrs["chosen"] == sampler.candidates_.attrs["chosen"]
    assert repr(TorchTarget(Energy(), 6)) == "TorchTarget(Energy, 6 sites, 2 values)"


def test_a_function_that_torch_cannot_differentiate_is_named():
    target = TorchTarget(lambda x: torch.as_tensor(x.detach().numpy().sum(1)), 4)
    with pytest.raises(ValueError, match="operations that torch can differentiate"):
        LSBSampler("sqrt", fast=True, n_burn_in=5).fit(target)


def test_nan_on_the_way_is_an_error():
    def log_prob(x):
        return torch.where(x.sum(1) > 17.5, math.nan, 2.0 * x.sum(1))

    target = TorchTarget(log_prob, 20, initial_state=[0] * 20)
    with pytest.raises(ValueError, match=r"was NaN or \+inf at a state that was proposed"):
        LSBSampler("sqrt", fast=True, n_burn_in=200, init="uniform", random_state=0).fit(target)
    with pytest.raises(ValueError, match="log_prob returned nan at the state"):  # on the way uphill
        LSBSampler("sqrt", fast=True, n_burn_in=200, random_state=0).fit(target)


def test_dropout_of_a_plain_function_is_named():
    drop, net = torch.nn.Dropout(0.5), torch.nn.Linear(4, 1)
    message = r"(?s)when called again.*Dropout in training mode.*training mode are: Dropout\. Call"
    with pytest.raises(ValueError, match=message):
        TorchTarget(lambda x: net(drop(x)).flatten(), 4)
    # The module itself is evaluated without it.
    TorchTarget(torch.nn.Sequential(drop, net, torch.nn.Flatten(0)), 4)
    drop.eval()
    target = TorchTarget(lambda x: net(drop(x)).flatten(), 4)
    drop.train()
    for given in (target, target.condition({0: 1})):
        with pytest.raises(ValueError, match=message):
            LSBSampler("sqrt", fast=True, n_burn_in=5).fit(given)


class Holder:
    def __init__(self, module):
        self.module = module

    def __call__(self, x):
        return self.module(x)

    def method(self, x):
        return self.module(x)


def through_a_function(module):
    def energy(x):
        return -module(x)

    return lambda x: -energy(x)


WAYS = {
    "closure": lambda module: lambda x: module(x),
    "object": Holder,
    "method": lambda module: Holder(module).method,
    "partial": lambda module: functools.partial(lambda module, x: module(x), module),
    "function in a function": through_a_function,
}


@quiet
@pytest.mark.parametrize("way", WAYS)
def test_training_mode_after_fit_is_an_error(way):
    parts = torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1), torch.nn.Flatten(0)
    module = torch.nn.Sequential(*parts).eval()
    target = TorchTarget(WAYS[way](module), 4)
    for given in (target, target.condition({0: 1})):
        sampler = LSBSampler("sqrt", fast=True, n_burn_in=5, random_state=0).fit(given)
        before = sampler.step(1).state_
        module.train()
        for call in (sampler.step, sampler.sample, lambda n: target.log_prob(np.ones((n, 4)))):
            with pytest.raises(ValueError, match=r"(?s)training mode are: BatchNorm1d\. Call"):
                call(2)
        assert np.array_equal(sampler.state_, before)
        module.eval()
        sampler.step(2).sample(2)


@quiet
def test_training_mode_that_changes_nothing_is_no_error():
    drop, net = torch.nn.Dropout(0.5), torch.nn.Linear(4, 1)
    target = TorchTarget(lambda x: (drop.p * net(x)).flatten(), 4)
    sampler = LSBSampler("sqrt", fast=True, n_burn_in=5, random_state=0).fit(target)
    assert sampler.step(2).sample(2)["x"].shape == (4, 2, 4)


def test_batch_statistics_of_a_plain_function_are_named():
    norm = torch.nn.BatchNorm1d(4)
    with pytest.raises(ValueError, match=r"(?s)in a batch of 3.*In training mode are: BatchNorm1d"):
        TorchTarget(lambda x: norm(x).sum(1), 4)
    TorchTarget(torch.nn.Sequential(norm, torch.nn.Linear(4, 1), torch.nn.Flatten(0)), 4)


@quiet
def test_a_module_that_trains_by_batch_is_told():
    parts = torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1), torch.nn.Flatten(0)
    module = torch.nn.Sequential(*parts)
    sampler = LSBSampler("sqrt", fast=True, n_burn_in=5, random_state=0)
    for again in (lambda: sampler.fit(TorchTarget(module, 4)), lambda: sampler.step(2)):
        with pytest.warns(ModelWarning, match=r"call eval\(\) before you take the loss"):
            again()
    module.eval()
    sampler.step(2)


def test_embeddings_of_more_tokens_than_n_states_are_told():
    module = torch.nn.Sequential(
        torch.nn.Embedding(5, 1), torch.nn.Flatten(), torch.nn.Linear(3, 1), torch.nn.Flatten(0)
    )
    with pytest.warns(ModelWarning, match=r"take \[5\] tokens, and n_states says 3"):
        TorchTarget(module, 3, 3, dtype="int64")
    TorchTarget(module, 3, 5, dtype="int64")


@quiet
def test_half_precision_is_told():
    half = TorchTarget(lambda x: cubic(x).to(torch.bfloat16), 4)
    with pytest.warns(PrecisionWarning, match="is bfloat16, which has 2 or 3 digits"):
        LSBSampler("sqrt", fast=True, n_burn_in=5, random_state=0).fit(half)


def test_a_module_of_half_precision_is_told_what_to_do():
    module = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Flatten(0)).to(torch.bfloat16)
    with pytest.raises(RuntimeError) as told:
        TorchTarget(module, 4)
    assert "are torch.bfloat16: call its float()" in "".join(told.value.__notes__)


def test_a_module_on_another_device_is_named():
    module = Energy()
    target = TorchTarget(module, 6)
    module.to("meta")
    with pytest.raises(ValueError, match=r"the log-density is on meta\. Make it a torch"):
        LSBSampler("sqrt", fast=True, device="cpu", n_burn_in=5).fit(target)


# ----------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("n_flips", "error", "message"),
    [
        (0, ValueError, "n_flips is 0; it must be at least 1"),
        (65, ValueError, 'n_flips is 65; it must be from 1 to 64, or "auto"'),
        ("all", ValueError, "n_flips is 'all'; it must be from 1 to 64"),
        (2.0, TypeError, r"n_flips is 2.0; give an integer"),
        (True, TypeError, "n_flips is True; give an integer"),
    ],
)
def test_wrong_numbers_of_flips_are_refused(n_flips, error, message):
    with pytest.raises(error, match=message):
        LSBSampler("sqrt", fast=True, n_flips=n_flips, n_burn_in=5).fit(random_rbm())


@pytest.mark.parametrize("n_flips", [2, "auto"])
def test_several_flips_need_the_fast_path(n_flips):
    with pytest.raises(ValueError, match=f"n_flips is {n_flips!r} but fast is False"):
        LSBSampler("sqrt", n_flips=n_flips, n_burn_in=5).fit(random_rbm())


def test_enumeration_of_flips_has_limits():
    with pytest.raises(ValueError, match='n_flips is "auto", which fit makes a number'):
        exact.transition_matrix(LSBSampler("sqrt", fast=True, n_flips="auto"), random_rbm())
    with pytest.raises(ValueError, match="sequences of moves; enumeration takes at most"):
        exact.transition_matrix(LSBSampler("sqrt", fast=True, n_flips=9), random_rbm(8))


class NoGradient(Target):
    shape, dims, values = (2,), ("site",), (0, 1)

    def log_prob(self, x):
        return np.zeros(np.shape(x)[:-1])

    def log_ratios(self, x):
        return np.zeros(np.shape(x))

    def view(self):
        raise TypeError("never asked for")


@pytest.mark.parametrize(
    "target",
    [
        NoGradient(),
        FunctionTarget(lambda x: 0.0, 3),
        MarkovNetwork([2, 2], []),
        MarkovNetwork([2, 2], []).condition({0: 1}),
        VariableSelection(np.eye(5), np.arange(5.0)),
    ],
    ids=lambda target: repr(target)[:20].split(" ")[0],
)
def test_target_without_gradient_is_named(target):
    name = type(getattr(target, "target", target)).__name__
    message = f"needs a target with a gradient, and {name} has none"
    with pytest.raises(TypeError, match=message):
        LSBSampler(fast=True).fit(target)
    with pytest.raises(TypeError, match=message):
        target.first_order_ratios(np.zeros(target.n_sites, dtype=np.int8))


@pytest.mark.parametrize("device", ["gpu", "mps:7", 3.5])
def test_unknown_device_is_named(device):
    with pytest.raises(ValueError, match=f"device is {device!r}"):
        LSBSampler(fast=True, device=device).fit(random_ising(3))


def test_absent_cuda_device_is_named():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(ValueError, match="torch sees 0 CUDA devices"):
        LSBSampler(fast=True, device="cuda").fit(random_ising(3))


def test_pickled_fast_sampler_goes_on():
    sampler = LSBSampler("barker", fast=True, n_burn_in=10, random_state=0).fit(random_ising(5))
    copy = pickle.loads(pickle.dumps(sampler))
    assert copy.sample(9, thin=3).equals(sampler.sample(9, thin=3))


@pytest.mark.parametrize("field", [1e15, 1e17])
def test_a_huge_field_does_not_drown_the_others(field):
    rng = np.random.default_rng(5)
    model = Ising([[0, 0.7, 0], [0.7, 0, 0.2], [0, 0.2, 0]], [field, 0.3, -0.2])
    states = np.ones((3, 3), dtype=np.int8)
    compiled = BalancedEnsemble(model, states, [rng] * 3)
    fast = FastEnsemble(model, states, [rng] * 3)
    uniforms = rng.random((3, 500, 2))
    for ensemble in (compiled, fast):
        ensemble.start(Balanced(Barker().table()))
        ensemble.advance(uniforms)
    assert np.array_equal(compiled.chains.x, fast.chains.x)
    assert compiled.chains.moved[:, 1:].all()


# ----------------------------------------------------------------- inside a training loop


class Slopes(torch.nn.Module):
    """Log p = x.slope + 0.3 x_0 x_1."""

    def __init__(self, n_sites=5):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.linspace(-1.0, 1.0, n_sites, dtype=torch.float64))

    def forward(self, x):
        return x @ self.slope + 0.3 * x[:, 0] * x[:, 1]


def stepping(target, **settings):
    common = {"fast": True, "n_burn_in": 20, "random_state": 0, "init": "uniform"}
    return LSBSampler("barker", **(common | settings)).fit(target)


@quiet
@pytest.mark.parametrize(("name", "n_flips"), pairs([*TARGETS], [1, 3], each=1))
def test_steps_lead_where_draws_do(name, n_flips):
    one, other = (stepping(TARGETS[name], n_flips=n_flips) for _ in range(2))
    for n in (1, 7, 0, 300):
        one.step(n)
        other.sample(1, thin=n) if n else None
        assert np.array_equal(one.state_, other.state_)
        assert np.array_equal(one.state_tensor_.numpy(), one.state_)
    ends = one.sample(3, thin=5), other.sample(3, thin=5)
    for variable in ends[0]:
        assert np.array_equal(*(draws[variable] for draws in ends))


@quiet
def test_a_step_evaluates_a_changed_function_no_more_often():
    shift, rows = torch.zeros(6), []

    def log_prob(x):
        rows.append(len(x))
        return (x * shift).sum(-1)

    target = TorchTarget(log_prob, 6)
    sampler = LSBSampler("barker", fast=True, n_chains=8, n_burn_in=10, random_state=0).fit(target)
    for change in (0.0, 1e-6, 1.0):
        shift += change
        rows.clear()
        sampler.step(5)
        assert sum(rows) == 8 * 6  # one at the beginning


@quiet
def test_that_a_function_has_changed_is_found_out_at_one_state():
    slope, rows = torch.zeros(40), []

    def log_prob(x):
        rows.append(len(x))
        return (x * slope).sum(-1)

    sampler = LSBSampler("barker", fast=True, n_chains=8, n_burn_in=10, random_state=0)
    sampler.fit(TorchTarget(log_prob, 40))
    sampler.sample(1)
    slope += 1.0
    rows.clear()
    sampler.sample(1, thin=5)
    of_check = sum(rows) - 8 * 6
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for change in (0.1, -0.1):
            slope += change
            sampler.sample(1, thin=5)
    text = "made 5 transitions since its log-density changed, fewer than the 40 of a sweep"
    assert [text in str(one.message) for one in told] == [True, True], "and of nothing else"
    assert 41 <= of_check < 2 * 41, "neighbours of one of eight states, and some of these"


def test_steps_follow_a_module_that_is_trained():
    module = Slopes()
    sampler = stepping(TorchTarget(module, 5), n_chains=400)
    sampler.step(10)
    with torch.no_grad():
        module.slope += 1.5
    before = sampler.n_evaluations_
    sampler.step(60)
    assert sampler.n_evaluations_ - before == 400 * 61  # one at the start
    states = exact.states(TorchTarget(module, 5))
    p = exact.probabilities(TorchTarget(module, 5))
    counts = (sampler.state_[:, None] == states).all(axis=2).sum(axis=0)
    assert ((counts - 400 * p) ** 2 / (400 * p)).sum() < 70  # of 31 degrees of freedom
    with torch.no_grad():
        module.slope -= 0.7
    # The same chain as one that has never seen another law.
    fresh = FastEnsemble(
        TorchTarget(module, 5), sampler.state_, sampler.run_.ensemble.streams.copy()
    )
    fresh.start(sampler.run_.ensemble.rule)
    fresh.advance(fresh.streams.pairs(40))
    assert np.array_equal(sampler.step(40).state_, fresh.chains.x)
    assert np.allclose(
        sampler.sample(1)["lp"][:, 0], TorchTarget(module, 5).log_prob(sampler.state_)
    )


@quiet
def test_states_are_assigned_as_tensors():
    sampler = stepping(TARGETS["potts"])
    wanted = sampler.state_tensor_
    assert wanted.numpy().dtype == sampler.state_.dtype
    wanted.fill_(0)  # a copy
    wanted = sampler.state_tensor_
    assert np.array_equal(wanted, sampler.state_)
    there = stepping(TARGETS["potts"], random_state=1)
    there.state_tensor_ = wanted
    assert np.array_equal(there.state_, sampler.state_)
    assert np.array_equal(there.run_.ensemble.log_prob(), sampler.run_.ensemble.log_prob())
    spins = stepping(random_ising(4))
    assert set(spins.state_tensor_.unique().tolist()) <= {-1, 1}
    spins.state_tensor_ = torch.ones(4, 4)
    assert (spins.state_ == 1).all()
    with pytest.raises(ValueError, match=r"state_tensor_ has shape \(3, 4\)"):
        spins.state_tensor_ = torch.ones(3, 4)
    with pytest.raises(ValueError, match="state_tensor_"):
        spins.state_tensor_ = torch.zeros(4, 4)
    assert (spins.state_ == 1).all()


@quiet
@pytest.mark.parametrize("n_flips", [1, 3])
def test_assigned_states_keep_the_evidence(n_flips):
    target = Ising.lattice(np.linspace(-1.0, 1.0, 9).reshape(3, 3), 0.3).condition({(0, 1): 1})
    sampler = stepping(target, n_flips=n_flips)
    before = sampler.state_
    wrong = before.copy()
    wrong[2, 1] = -1
    with pytest.raises(
        ValueError, match=r"state_tensor_\[2\] sets variable \(0, 1\) to -1; it is observed as 1\."
    ):
        sampler.state_tensor_ = wrong
    assert np.array_equal(sampler.state_, before)
    sampler.state_tensor_ = np.where(np.arange(9) == 1, 1, -before)
    assert (sampler.step(100).state_[:, 1] == 1).all()


@quiet
def test_states_that_became_impossible_are_named():
    allowed = torch.ones(())
    target = TorchTarget(
        lambda x: torch.where((x[:, 0] == 1) & (allowed == 0), -math.inf, x.sum(1)), 3
    )
    sampler = stepping(target)
    sampler.state_tensor_ = torch.ones(4, 3)
    allowed.zero_()
    with pytest.raises(ValueError, match=r"chain 0 is impossible: log p is -inf. Assign"):
        sampler.step(5)
    with pytest.raises(ValueError, match="chain 2 is impossible"):
        sampler.state_tensor_ = torch.tensor([[0, 1, 1], [0, 0, 1], [1, 0, 0], [0, 0, 0]])
    sampler.state_tensor_ = torch.zeros(4, 3)
    assert (sampler.step(50).state_[:, 0] == 0).all()


@quiet
def test_steps_without_gradients():
    """They reach the states of `sample`, and tensors set them."""
    ising = random_ising(4)
    sampler, other = (LSBSampler("barker", n_burn_in=10, random_state=0).fit(ising) for _ in "ab")
    assert np.array_equal(sampler.step(7).state_, other.sample(1, thin=7)["x"].values[:, 0])
    swept = other.sample(1, thin="sweep")["x"].values[:, 0]
    assert np.array_equal(sampler.step("sweep").state_, swept)
    sampler.state_tensor_ = torch.ones(4, 4)
    assert (sampler.state_ == 1).all()
    assert sampler.one_hot_tensor_.tolist() == [[[0.0, 1.0]] * 4] * 4
    with pytest.raises(ValueError, match="n is -1"):
        sampler.step(-1)
    with pytest.raises(TypeError, match="n is 'auto'"):
        sampler.step("auto")
    blocks = LSBSampler("barker", n_burn_in=10, blocks=2, random_state=0).fit(ising)
    assert (np.abs(blocks.step(300).state_) == 1).all()


class Tokens(torch.nn.Module):
    """The same model of indicators and of integers."""

    def __init__(self, sizes):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = torch.nn.Embedding(max(sizes), 3)
        self.head = torch.nn.Linear(3 * len(sizes), 1)

    def forward(self, x):
        rows = x @ self.embedding.weight if x.is_floating_point() else self.embedding(x)
        return 2.0 * self.head(torch.tanh(rows).flatten(1))[:, 0]


@quiet
def test_functions_of_integers_are_those_of_indicators():
    module = Tokens([3, 2, 3])
    of_rows = TorchTarget(module, 3, [3, 2, 3])
    of_ids = TorchTarget(module, 3, [3, 2, 3], dtype="int64")
    states = exact.states(of_rows)
    np.testing.assert_allclose(of_ids.log_prob(states), of_rows.log_prob(states), atol=1e-5)
    fast = LSBSampler("barker", fast=True, n_chains=200, n_burn_in=30, random_state=0).fit(of_rows)
    slow = LSBSampler("barker", n_chains=200, n_burn_in=30, random_state=0).fit(of_ids)
    for sampler in (fast, slow):
        sampler.step(2)
        with torch.no_grad():
            module.head.weight *= -1.0  # as training does
        x = sampler.step(40).state_tensor_
        assert x.dtype == torch.int64
        assert np.array_equal(x, sampler.state_)
        assert torch.equal(sampler.one_hot_tensor_.argmax(-1), x)
        assert sampler.one_hot_tensor_.shape == (len(x), 3, 3)
        p = exact.probabilities(of_rows)
        counts = (sampler.state_[:, None] == states).all(axis=2).sum(axis=0)
        assert ((counts - len(x) * p) ** 2 / (len(x) * p)).sum() < 45  # of 17 degrees of freedom
    bits = TorchTarget(lambda x: x.sum(1), 3, dtype="float64")
    given = LSBSampler("barker", fast=True, n_burn_in=5, random_state=0).fit(bits)
    assert given.state_tensor_.dtype == given.one_hot_tensor_.dtype == torch.float64
    assert given.one_hot_tensor_.shape == (4, 3, 2)


def test_integers_have_no_gradient():
    target = TorchTarget(Tokens([4, 4]), 2, 4, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"takes integers.*fast=False, or leave dtype out.*@ emb"):
        LSBSampler("barker", fast=True).fit(target)
    with pytest.raises(TypeError, match="takes integers"):
        target.first_order_ratios([1, 2])
    of_ids = TorchTarget(lambda x: Tokens([4, 4])(x.argmax(-1)), 2, 4)
    with pytest.raises(ValueError, match=r"Integers as of x.argmax\(-1\).*x @ embedding.weight"):
        LSBSampler("barker", fast=True).fit(of_ids)


def test_exact_ratios_of_a_costly_module_are_told_of_the_fast_path():
    """Before the work; and not where fast=True is impossible, chosen, or hardly cheaper."""

    def told(sampler, target):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            sampler._algorithm(sampler, target)._warn_of_cost()
        return "".join(str(w.message) for w in seen)

    def network(side, n_channels):
        layers = torch.nn.Unflatten(1, (1, side, side)), torch.nn.Conv2d(1, n_channels, 3)
        size = n_channels * (side - 2) ** 2
        rest = torch.nn.Flatten(), torch.nn.Linear(size, 1), torch.nn.Flatten(0)
        return TorchTarget(torch.nn.Sequential(*layers, *rest), side**2)

    costly = network(8, 64)
    # 64 filters of 9 weights at 36 places, and a sum of 2,304 numbers; a product is 2 operations.
    assert costly.value_cost == (2 * (64 * 9 * 36 + 2304)) >> 10
    assert re.search(r"5\.2e\+05 values .* fast=True takes one", told(LSBSampler(), costly))
    assert "fast=True" in told(LSBSampler(), costly.condition({0: 1}))
    assert "GibbsSampler()" in told(LSBSampler(rejection_free=True), costly)
    assert not told(LSBSampler(fast=True), costly)
    assert not told(LSBSampler(n_burn_in=100), costly)
    assert not told(LSBSampler(), network(8, 1))
    assert not told(GibbsSampler("random"), costly)
    assert not told(AutoSampler._algorithm(AutoSampler(), costly)._first(), costly)
    assert not told(LSBSampler(), TorchTarget(lambda x: x.sum(-1), 64))


def test_a_step_forgets_the_thinning_of_an_old_log_density():
    shift = torch.zeros(8)
    target = TorchTarget(lambda x: (x * (1.0 + shift)).sum(-1), 8)
    sampler = LSBSampler("barker", fast=True, n_burn_in=50, random_state=0).fit(target)
    sampler.thin_  # noqa: B018
    shift += 1.0
    sampler.step(20)
    assert sampler.run_._thin is None
    assert sampler.run_.disagreement is None

"""The compiled transition is the enumerated one: bisected, rebuilt, and counted."""

import ast
import hashlib
import importlib
import itertools
import json
import math
import os
import pickle
import shutil
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from local_step import StepProbe, check_sampler, production_matrix
from models import FUNCTIONS, GRAPHS, KINDS, dense, ising, pairs, uncached
from numba import typeof
from numba.core import caching, codegen
from planted import inside
from processes import copy_package, run_python
from scipy.special import expit
from scipy.stats import chi2

import sklsb
from sklsb import GibbsSampler, Ising, LSBSampler, Potts, exact, testing
from sklsb._kernels import _jit, contract, numeric
from sklsb._kernels import run as kernels
from sklsb._kernels.rules import chromatic
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.gibbs import Systematic
from sklsb._kernels.targets.ising import IsingView
from sklsb.balancing import Barker, Max, Min, Sqrt
from sklsb.exact.matrices import rule_of
from sklsb.exceptions import SamplerWarning
from sklsb.testing._probe import Probe, check_caches

EPS = np.finfo(float).eps
# Of a false alarm, in each statistical test. The seeds are fixed.
THRESHOLD = 1e-9


def sparse(d, degree, seed=0, field=1.0):
    """A random graph with real couplings."""
    rng = np.random.default_rng(seed)
    half = np.triu((rng.random((d, d)) < degree / d) * rng.standard_normal((d, d)), 1)
    return Ising(half + half.T, field * rng.standard_normal(d))


# ----------------------------------------------------------------- the exponential


@uncached
def _exp(x, out):
    for k in range(x.size):
        out[k] = numeric.exp(x[k])


def exp(x):
    out = np.empty(x.size)
    with np.errstate(all="ignore"):  # as compiled
        _exp(x, out)
    return out


def test_exp_is_within_two_ulp():
    x = np.concatenate(
        [np.linspace(-708, 709, 200_001), np.random.default_rng(0).normal(size=100_000), [0.0]]
    )
    # Not against np.exp, whose last bit differs between processors. The polynomial is good to
    # 0.35 ulp, the last sum to half of one, and the table of powers to what np.exp2 is: 0.5 to 1.
    found, expected = exp(x), np.exp(x.astype(np.longdouble))
    assert np.max(np.abs(found - expected) / np.spacing(np.exp(x))) <= 2.0


def test_exp_has_exact_ends():
    below = np.array([-np.inf, -1e308, -1e5, -709.0, np.nextafter(-708.0, -np.inf)])
    above = np.array([np.nextafter(709.0, np.inf), 710.0, 1e5, 1e308, np.inf])
    assert exp(below).tolist() == [0.0] * 5
    assert exp(above).tolist() == [math.inf] * 5
    assert exp(np.zeros(1)) == 1.0


@uncached
def _rough_exp(x, out):
    for k in range(x.size):
        out[k] = numeric.rough_exp(x[k])


def test_rough_exponentials_are_within_their_bound():
    ends = [0.0, 80.0, -80.0, 709.0, -709.0, 3e38, -3e38, math.inf, -math.inf]
    normal = np.random.default_rng(0).normal(size=100_000)
    x = np.concatenate([np.linspace(-100, 100, 400_001), normal, ends]).astype(np.float32)
    found = np.empty(x.size, dtype=np.float32)
    with np.errstate(all="ignore"):  # as compiled
        _rough_exp(x, found)
    odds = np.exp(np.clip(x.astype(np.float64), -80.0, 80.0))
    assert np.abs(found / odds - 1.0).max() < 1e-5
    assert (
        np.abs(found / (1.0 + found.astype(np.float64)) - expit(x.astype(np.float64))).max() < 1e-5
    )


@pytest.mark.parametrize("size", [0.0, 1.0, 100.0, 1e4, 1e6, 1e9])
def test_what_rough_numbers_decide_is_decided_as_by_exact_ones(size):
    """Those that are close to the probability, but not close enough to be looked at again."""
    rng = np.random.default_rng(int(size))
    log_odds = rng.normal(size=2000) + (size * rng.normal(size=2000)).astype(np.float32)
    log_odds[:1000] = rng.normal(scale=3.0, size=1000)
    rough = log_odds.astype(np.float32) * np.float32(1.0 + 2.0**-23)  # a rounding more
    close = chromatic._CLOSE + 1e-6 * np.abs(log_odds).max()
    p = expit(log_odds)
    u = np.clip(p + close * rng.uniform(-3.0, 3.0, size=p.size), 0.0, 1.0 - 2.0**-53)
    odds = np.empty(p.size, dtype=np.float32)
    with np.errstate(all="ignore"):
        _rough_exp(rough, odds)
    number = (np.floor(u * 2.0**24) * 2.0**-24).astype(np.float32)
    whole = np.float32(1.0) + odds
    gap = number * whole - odds
    sure = np.abs(gap) >= np.float32(close) * whole
    np.testing.assert_array_equal(gap[sure] < 0.0, (u < p)[sure])
    assert sure[:1000].mean() > 0.2 or close > 0.1


# ----------------------------------------------------------------- conformance


@pytest.mark.parametrize("kind", KINDS)
def test_target_on_every_graph_of_up_to_four_vertices(kind):
    for graph in GRAPHS:
        testing.check_target(ising(graph, kind))


@pytest.mark.parametrize(
    "target",
    [
        *(Ising.lattice(np.random.default_rng(n).normal(size=(n, n)), 0.7) for n in (1, 2, 3, 30)),
        Ising.lattice(np.zeros((7, 5)), -1.3, periodic=False),
        dense(65),
        sparse(300, 4.0, field=1e300),
        Ising(1e-280 * np.ones((3, 3)), 1e-280),
        Ising(2e302 * (np.ones((3, 3)) - np.eye(3)), [1e300, 0, -6e302]),
    ],
    ids=repr,
)
def test_target(target):
    testing.check_target(target)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_balancing_function(function):
    testing.check_balancing(function)


# Redraws of blocks beside the steps are the same whatever the function.
SAMPLERS = {
    "barker": LSBSampler("barker", n_burn_in=60),
    **{name: LSBSampler(name, n_burn_in=60, blocks=None) for name in ("sqrt", "min", "max")},
    "mixture": LSBSampler("mixture", n_burn_in=60),
    "learned": LSBSampler(n_burn_in=60),
    "user": LSBSampler(FUNCTIONS["user"], n_burn_in=60, blocks=None),
    "lazy": LSBSampler("max", n_burn_in=60, lazy=0.3),
    "bound": LSBSampler(n_burn_in=60, objective="bound"),
    "kl": LSBSampler(FUNCTIONS["mlp"], n_burn_in=60, objective="kl", n_chains=1),
    "no burn-in": LSBSampler("barker", n_burn_in=0),
}


SMALL = {
    "dense": dense(4),
    "lattice": Ising.lattice(np.zeros((2, 2))),
}


@pytest.mark.parametrize(("sampler", "target"), pairs(SAMPLERS, SMALL))
def test_sampler(sampler, target):
    check_sampler(sampler, target)


@pytest.mark.parametrize("sampler", ["barker", "learned"])
def test_sampler_without_variables(sampler):
    check_sampler(SAMPLERS[sampler], Ising(np.zeros((0, 0))))


def test_fast_sampler():
    pytest.importorskip("torch", reason="fast=True runs on torch")
    for balancing in ("barker", "max"):
        sampler = LSBSampler(balancing, fast=True, n_burn_in=20, lazy=0.2)
        check_sampler(sampler, dense(3), n_draws=20)


# ----------------------------------------------------------------- the bisected production step


def check_step(function, target, lazy=0.0):
    """The production step has the enumerated matrix, to 8 eps d."""
    sampler = LSBSampler(function, lazy=lazy)
    found = production_matrix(sampler, target)
    error = np.abs(found - exact.transition_matrix(sampler, target)).max()
    assert error <= 8 * EPS * target.n_sites, f"off by {error / EPS} eps"


@pytest.mark.parametrize(("kind", "function"), pairs({kind: kind for kind in KINDS}, FUNCTIONS))
def test_production_step_on_every_graph_of_up_to_four_vertices(kind, function):
    for graph in GRAPHS:
        check_step(function, ising(graph, kind))


# By the function only the table differs; they are all measured above.
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in ("max", "mlp") else pytest.mark.slow) for n in FUNCTIONS],
)
def test_production_step_on_ten_sites(name):
    check_step(FUNCTIONS[name], dense(10))


@pytest.mark.parametrize("lazy", [0.5, 0.3, 2.0**-40, 1 - 2.0**-20])
def test_lazy_production_step(lazy):
    check_step(Barker(), dense(3), lazy)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 2), (3, 3)], ids=str)
def test_production_step_on_lattices(shape):
    check_step(Barker(), Ising.lattice(np.random.default_rng(0).normal(size=shape), 0.7))


def test_no_edge_is_overlooked_where_few_numbers_tell_its_sides_apart():
    # Which two of three variables are drawn: for most of the other numbers it does not matter.
    couplings = np.array([[0.0, 0.9, -0.6], [0.9, 0.0, 0.0], [-0.6, 0.0, 0.0]])
    target = Ising(couplings, [0.4, -0.28, 0.12])
    rule = rule_of(GibbsSampler(block_size=2), target)
    found = testing.measured_matrix(rule, target, n_continuations=4)
    assert np.abs(found - exact.transition_matrix(rule, target)).max() <= 64 * EPS


def check_selection(package, d, field, n=500):
    """A move is selected where a cumulative sum of all weights says, at random numbers."""
    rng = np.random.default_rng(d)
    half = sp.random_array((d, d), density=3 / d, rng=rng, data_sampler=rng.standard_normal)
    half = sp.triu(half, 1)
    target = package.Ising(half + half.T, field * rng.standard_normal(d))
    function, x = package.Barker(), target.draw_state(rng)
    log_weight = function.tabulated().log_g(target.log_ratios(x))
    cumulative = np.cumsum(np.exp(log_weight - log_weight.max()))
    u = rng.random(n)
    expected = np.searchsorted(cumulative / cumulative[-1], u, side="right")
    rules = importlib.import_module(f"{package.__name__}._kernels.rules.balanced")
    rule = rules.Balanced(function.table())
    probe = importlib.import_module("local_step").StepProbe(target, rule, np.tile(x, (n, 1)))
    found = (probe.step(u, probe.accept) != x).argmax(axis=1)
    assert np.array_equal(found, expected), "moves are selected in proportion to their weights"


@pytest.mark.parametrize("field", [1.0, 700.0])
@pytest.mark.parametrize("d", [8, 9, 64, 65, 600, 5000])
def test_selection_is_that_of_a_cumulative_sum(d, field):
    check_selection(sklsb, d, field, n=500 if d < 5000 else 100)


def test_wrong_sums_select_a_move_that_exists():
    target, n = Ising.lattice(np.zeros((9, 10)), 0.3), 500
    x = np.ones((n, 90), dtype=np.int8)
    probe = StepProbe(target, Balanced(Barker().table()), x)
    probe.before["tree"][:, probe.chains.part.level[1] :] *= 4.0
    found = probe.step(np.arange(n) / n, probe.accept)
    assert np.all((found != x).sum(axis=1) == 1)


def _graph_of_few_couplings(package):
    rng = np.random.default_rng(2)
    half = np.triu(rng.choice([0.0, 0.0, 0.3, -0.6, 1.2], (9, 9)), 1)
    return package.Ising(half + half.T, rng.normal(size=9))


def _lattice(rows, cols, coupling, scale=1.0):
    field = scale * np.random.default_rng(1).normal(size=(rows, cols))
    return lambda package: package.Ising.lattice(field, coupling, periodic=False)


LOOKED_UP = {
    "lattice": _lattice(3, 4, 0.4),
    "three couplings": _graph_of_few_couplings,
    "evidence": lambda package: _lattice(3, 3, -1.0)(package).condition({4: 1}),
    "new offsets": _lattice(3, 5, 20.0, 3e3),
}


def check_looked_up(package, name, n=100):
    """Weights that are looked up are those that are computed, bit for bit."""
    ising, compiled = inside(package, "targets.ising"), inside(package, "ensembles.compiled")
    rules = inside(package, "_kernels.rules.balanced")
    first, second = (rules.Balanced(g.table()) for g in (package.Barker(), package.Sqrt()))
    found, offsets = [], []
    for limit in (ising._MOST_WEIGHTS, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ising, "_MOST_WEIGHTS", limit)
            target, rng = LOOKED_UP[name](package), np.random.default_rng(3)
            states = np.stack([target.draw_state(rng) for _ in range(2)])
            ensemble = compiled.BalancedEnsemble(target, states, [rng] * 2, rule=first)
        for rule in (first, second, second):
            ensemble.start(rule)
            ensemble.put(states)
            part = ensemble.chains.part
            offsets.append(part.offset.copy())
            for _ in range(4):
                ensemble.advance(rng.random((2, n, 2)))
                found.append([ensemble.chains.x.copy(), part.tree.copy(), part.offset.copy()])
            looks_up = (part.memo[:, 0] == -1.0).all()
            assert looks_up == (limit > 0), "whether weights are looked up"
    for one, other in zip(found[:12], found[12:], strict=True):
        same = all(map(np.array_equal, one, other))
        assert same, "weights that are looked up are those that are computed"
    return (found[0][2] != offsets[0]).any()


@pytest.mark.parametrize("name", LOOKED_UP)
def test_weights_looked_up_are_those_computed(name):
    assert check_looked_up(sklsb, name, 2_000) == (name == "new offsets")


def test_a_class_without_places_looks_nothing_up():
    class Mine(IsingView):
        """Inherits the size; implementations are of one class."""

    view = Ising.lattice(np.zeros((3, 3))).view()
    assert contract.memo_size(view) == view.memo_size == 90
    assert contract.memo_size(Mine(*view)) == 0


def test_couplings_without_a_common_unit_are_not_looked_up():
    assert dense(6).view().memo_size == 0
    assert Ising.lattice(np.zeros((90, 90))).view().memo_size == 0
    assert Ising.lattice(np.zeros((80, 80)), 0.1).view().memo_size == 64_000


def test_a_constant_leaves_the_chain_as_it_is():
    target = dense(6)
    shifted = Ising(target.couplings.toarray() + 1e6 * np.eye(6), target.field)
    one, other = (
        LSBSampler("barker", n_burn_in=100, random_state=0).fit(model).sample(1000)["x"].to_numpy()
        for model in (target, shifted)
    )
    assert np.array_equal(one, other)


# ----------------------------------------------------------------- long runs

LONG = {
    "sparse graph": sparse(200, 3.0),
    "dense graph": dense(60, scale=0.1),
    "lattice": Ising.lattice(np.random.default_rng(0).normal(size=(30, 30)), 0.6),
    "extreme fields": sparse(40, 2.0, field=300.0),
    "extreme couplings": dense(12, scale=80.0),
    "nine sites": dense(9),
}


def check_caches_after(n, target, function, seed=0):
    """Caches equal a rebuild bit for bit after n transitions; did the offset move?"""
    rng = np.random.default_rng(seed)
    rule = Balanced(function.table())
    probe = Probe(target, rule, np.stack([target.draw_state(rng)]))
    offset = probe.chains.part.offset.copy()
    for _ in range(n // 50_000):
        probe.ensemble.advance(rng.random((1, 50_000, 2)))
        check_caches(probe.ensemble, "in a long run")
    return not np.array_equal(offset, probe.chains.part.offset)


@pytest.mark.parametrize(
    ("target", "function"), pairs(LONG, {"barker": Barker(), "max": Max()}, each=1)
)
def test_caches_equal_a_rebuild_bit_for_bit(target, function):
    check_caches_after(1_000_000, target, function)


@pytest.mark.slow
@pytest.mark.parametrize("target", LONG.values(), ids=LONG)
def test_caches_equal_a_rebuild_after_a_long_run(target):
    check_caches_after(10_000_000, target, FUNCTIONS["mixture"])


def test_offsets_move_and_caches_still_equal_a_rebuild():
    # From a random state the log weights fall by hundreds, and the offset follows.
    moved = [check_caches_after(100_000, LONG["extreme fields"], Max(), seed) for seed in range(5)]
    assert any(moved)


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.PrecisionWarning")
@pytest.mark.parametrize("kind", ["field 700", "field 1e300"])
@pytest.mark.parametrize("function", [Barker(), Sqrt(), Min(), Max()], ids=repr)
def test_a_chain_falls_into_the_mode_of_extreme_fields(function, kind):
    # Every site's field dwarfs its couplings, so the mode is the sign of the field.
    target = ising(GRAPHS[-1], kind)
    sampler = LSBSampler(function, n_burn_in=200, n_chains=16, random_state=0).fit(target)
    assert np.array_equal(sampler.state_, np.tile(np.sign(target.field), (16, 1)))


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.PrecisionWarning")
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_largest_field_allowed_is_sampled(function):
    field = np.array([1e303, -1e303])
    # A pilot, which runs the same kernels whatever it compares, may draw by another function.
    sampler = LSBSampler(function, n_burn_in=50, pilot=function is FUNCTIONS["mixture"])
    check_sampler(sampler, Ising(np.zeros((2, 2)), field))
    with pytest.raises(ValueError, match=r"is 1.1e\+303; it must be at most 1e\+303"):
        Ising(np.zeros((2, 2)), 1.1 * field)


@pytest.mark.parametrize("segment", [1, 7, 100])
def test_segments_leave_the_chain_as_it_is(segment, monkeypatch):
    fitted = LSBSampler("barker", n_burn_in=10, random_state=0).fit(dense(5, scale=0.3))
    other = pickle.loads(pickle.dumps(fitted))
    expected = fitted.sample(100, thin=3)
    # A transition takes two numbers.
    monkeypatch.setattr("sklsb.ensembles.base.MOST_NUMBERS", 2 * segment)
    found = other.sample(100, thin=3)
    assert np.array_equal(found["x"], expected["x"])
    for name in ("lp", "acceptance_rate"):
        assert np.array_equal(other.sample_stats_[name], fitted.sample_stats_[name])


def test_lp_of_the_draws_is_log_prob():
    for target in LONG.values():
        sampler = LSBSampler("sqrt", blocks=None, n_chains=2, n_burn_in=1000, random_state=0)
        sampler.fit(target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplerWarning)
            x = sampler.sample(200, thin=10)["x"].to_numpy().reshape(2, 200, -1)
        lp, expected = sampler.sample_stats_["lp"].to_numpy(), target.log_prob(x)
        size = np.abs(target.field).sum() + abs(target.couplings).sum()
        assert np.abs(lp - expected).max() <= 8 * EPS * size


# ----------------------------------------------------------------- frequencies


def g_test(counts, probabilities):
    """P-value of the likelihood-ratio test of each row's frequencies, all rows together.

    Cells expected fewer than 10 times are put together.
    """
    statistic = freedom = 0
    for row, p in zip(counts, probabilities, strict=True):
        assert not row[p == 0].any(), "an impossible transition was made"
        expected = p * row.sum()
        small = expected < 10
        row = np.append(row[~small], row[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
        seen = row > 0
        statistic += 2 * (row[seen] * np.log(row[seen] / expected[seen])).sum()
        freedom += (expected > 0).sum() - 1
    return chi2.sf(statistic, freedom)


@pytest.mark.parametrize("lazy", [0.0, 0.4])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_frequencies_of_one_transition_from_every_state(name, lazy):
    target, n = dense(4 if lazy else 3), 4000
    x = exact.states(target)
    rng = np.random.default_rng(list(FUNCTIONS).index(name))
    rule = Balanced(FUNCTIONS[name].table(), lazy)
    probe = StepProbe(target, rule, np.repeat(x, n, axis=0))
    counts = np.zeros((len(x), len(x)))
    for _ in range(10):
        there = probe.step(rng.random(n * len(x)), rng.random(n * len(x)))
        index = ((there + 1) // 2) @ (1 << np.arange(target.n_sites)[::-1])
        np.add.at(counts, (np.repeat(np.arange(len(x)), n), index), 1)
    matrix = exact.transition_matrix(LSBSampler(FUNCTIONS[name], lazy=lazy), target)
    assert g_test(counts, matrix) > THRESHOLD


@pytest.mark.parametrize("balancing", ["barker", "max", "learned"])
def test_marginals_of_a_long_chain(balancing):
    target, n, n_chains = dense(10, scale=0.5), 200_000, 4
    sampler = LSBSampler(balancing, n_chains=n_chains, random_state=1).fit(target)
    mean = sampler.sample(n)["x"].to_numpy().mean(axis=(0, 1))
    # The variance of the mean is known too: sum of all autocovariances, by one linear system.
    p, matrix = exact.probabilities(target), exact.transition_matrix(sampler, target)
    x = exact.states(target) - p @ exact.states(target)
    solved = np.linalg.solve(np.eye(p.size) - matrix + p, x)
    variance = p @ (2 * x * solved - x**2)
    z = (mean - p @ exact.states(target)) / np.sqrt(variance / (n * n_chains))
    assert np.all(10 * math.erfc(np.abs(z).max() / math.sqrt(2)) > THRESHOLD)


# ----------------------------------------------------------------- the disk cache

# What small kernels compute, for the targets named in the arguments; then the same in plain Python,
# by the package imported again. A barrier, if there is one, is a folder in which all processes that
# start together leave a file. Of the Potts model it is log p alone, which compiles soonest.
RUN = """
import json, os, pathlib, sys, time, warnings
warnings.simplefilter("error")
import numba
import numpy as np
names, barrier, J = sys.argv[1].split(), sys.argv[2], [[0.0, 1.0], [1.0, 0.0]]

def computed():
    import sklsb
    from sklsb import Ising, Potts
    from sklsb._kernels.chains import NoPart
    from sklsb._kernels.run import log_probs
    from sklsb.ensembles.compiled import Ensemble
    from sklsb._kernels.rules.balanced import Balanced
    from sklsb._kernels.rules.gibbs import Systematic
    balanced, systematic = Balanced(sklsb.Barker().table()), Systematic(np.arange(2), 1)
    targets = {
        "ising": lambda: (Ising(J, [0.3, -0.8]), balanced),
        "potts": lambda: (Potts(J, [[0.3, 0.0, -0.8], [0.1, 0.2, 0.0]]), systematic),
        "swept": lambda: targets["potts"](),
    }
    found = {}
    for name in names:
        target, rule = targets[name]()
        ensemble = Ensemble(target, np.ones((1, 2)), [None], rule=rule)
        without_rule = np.empty(1)
        log_probs(ensemble.view, ensemble.chains._replace(part=NoPart()), (0, 1), without_rule)
        kept = [without_rule]
        if name != "potts":
            ensemble.start(rule)
            kept += [ensemble.chains.cache, ensemble.log_prob()]
        if rule is balanced:
            kept += [ensemble.chains.part.tree, ensemble.chains.part.offset]
        found[name] = [values.tolist() for values in kept]
    return os.path.dirname(sklsb.__file__), found

import sklsb
if barrier:
    pathlib.Path(barrier, names[0]).touch()
    end = time.monotonic() + 60
    while len(os.listdir(barrier)) < 2 and time.monotonic() < end:
        pass
where, compiled = computed()
for name in [name for name in sys.modules if name.split(".")[0] == "sklsb"]:
    del sys.modules[name]
numba.config.DISABLE_JIT = True
print(json.dumps([where, {"compiled": compiled, "plain": computed()[1]}]))
"""


class Copy:
    """A copy of the package whose kernels are kept beside it."""

    def __init__(self, folder, package=None):
        self.folder = folder
        if package is None:
            self.package = copy_package(folder)
        else:  # with what is kept, and when it was written
            self.package = shutil.copytree(package, folder / "sklsb")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}

    def run(self, names="ising", barrier="", code=RUN, **env):
        """What kernels of a new process compute; plain Python must, too."""
        done = run_python("-c", code, names, barrier, folder=self.folder, env={**self.env, **env})
        where, found = json.loads(done)
        assert os.path.realpath(where) == os.path.realpath(self.package)
        if code != RUN:
            return found
        assert found["compiled"] == found["plain"]
        return found["compiled"]

    def kept(self):
        """The files of the cache, with when they were written."""
        return {path: path.stat().st_mtime_ns for path in self.package.rglob("*.nbc")}

    def edit(self, file, old, new):
        path = self.package / "_kernels" / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} holds {text.count(old)} times: {old}"
        path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """A copy that two processes have used at once, both without compiled kernels, and what they
    computed for an Ising and a Potts model."""
    package = Copy(tmp_path_factory.mktemp("cached"))
    barrier = package.folder / "barrier"
    barrier.mkdir()
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(package.run, name, str(barrier)) for name in ("ising", "potts")]
        return package, {name: value for run in runs for name, value in run.result().items()}


@pytest.fixture
def copied(cached, tmp_path):
    """The same, to be changed."""
    return Copy(tmp_path, cached[0].package), cached[1]


def test_two_processes_that_start_cold_misfile_nothing(cached):
    package, found = cached
    before = package.kept()
    assert len(before) == 3  # log_probs of each, and run of one
    assert not list(package.package.rglob("*.tmp"))
    for path in package.package.rglob("*.py"):  # touched, but as they were
        os.utime(path)
    assert package.run("ising potts") == found
    assert package.kept() == before


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        slow("numeric.py", "else 0.5 * u + h", "else 0.7 * u + h"),
        slow("tree.py", "return ((t[b] + t[b + _1])", "return ((t[b] + 2 * t[b + _1])"),
        slow("targets/ising.py", "(-2.0 * chain.x[move])", "(-1.9 * chain.x[move])"),
        ("rules/balanced.py", "largest if np.isfinite", "0.5 * largest if np.isfinite"),
    ],
    ids=lambda part: part if part.endswith(".py") else "",
)
def test_an_edited_callee_is_compiled_again(copied, file, old, new):
    package, before = copied
    old_files = package.kept()
    package.edit(file, old, new)
    # Plain Python runs what was edited, and no old entry is left.
    assert package.run("ising potts") != before
    assert len(package.kept()) == len(old_files)
    left = sorted(path.name.split("-")[0] for path in package.kept().keys() & old_files.keys())
    # What the other model compiled has not this target; `log_probs` has no rule.
    others = {"targets": ["log_probs"], "rules": ["log_probs", "log_probs"]}
    assert left == others.get(file.partition("/")[0], [])


def test_an_edit_of_another_target_compiles_nothing_again(copied):
    package, found = copied
    before = package.kept()
    package.edit("targets/potts.py", "class PottsView", "# An edit.\nclass PottsView")
    assert package.run("ising potts") == found
    after = package.kept()
    assert len(after) == len(before)
    left = sorted(path.name.split("-")[0] for path, _ in after.items() & before.items())
    assert left == ["log_probs", "run"]  # of the Ising model


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("numeric", ("Ising", "Potts")),
        ("targets.ising", ("Ising",)),
        ("targets.potts", ("Potts",)),
        ("rules.balanced", ("Balanced",)),
        ("rules.gibbs", ("Systematic",)),
    ],
)
def test_an_edit_renames_the_entries_of_what_it_is_part_of(file, parts, monkeypatch):
    """Two rules on two targets, by the names of entries alone."""
    views = [model.view() for model in (dense(2), Potts(np.zeros((2, 2)), np.eye(2, 3)))]
    rules = [Balanced(Barker().table()), Systematic(np.arange(2), 1)]
    signatures = [tuple(map(typeof, pair)) for pair in itertools.product(views, rules)]
    codegen, sources = kernels.run.targetctx.codegen(), _jit._sources()

    def names():
        _jit._stamp.cache_clear()
        return [kernels.run._cache._place(signature, codegen)[0] for signature in signatures]

    before, name = names(), f"sklsb._kernels.{file}"
    with monkeypatch.context() as patch:
        patch.setattr(_jit, "_sources", lambda: sources | {name: sources[name] + b"# An edit."})
        after = names()
    assert names() == before
    assert len(set(before)) == 4
    for signature, one, other in zip(signatures, before, after, strict=True):
        assert (one != other) == any(part in repr(signature) for part in parts)


def changed(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


DAMAGES = (
    lambda content: content[: len(content) // 2],
    lambda content: changed(content, len(content) // 2),
    lambda content: b"",
    lambda content: changed(content, 0),
)


def is_whole(path):
    content = path.read_bytes()
    return content[:32] == hashlib.sha256(content[32:]).digest()


@pytest.mark.slow
def test_damaged_entries_are_compiled_again_and_written_whole(copied):
    package, found = copied
    found = found | package.run("swept")
    for path, damaged in zip(package.kept(), DAMAGES, strict=True):
        path.write_bytes(damaged(path.read_bytes()))
    before = package.kept()
    assert package.run("ising potts swept") == found
    after = package.kept()
    assert after.keys() == before.keys()
    assert not after.items() & before.items()
    assert all(map(is_whole, after))


@pytest.mark.parametrize("damaged", [None, *DAMAGES], ids=["whole", "half", "in", "no", "digest"])
def test_a_damaged_entry_of_one_line_is_compiled_again(damaged, tmp_path, monkeypatch):
    """The same for a kernel that is compiled in no time."""
    (tmp_path / "halves.py").write_text("def half(x):\n    return x / 2.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    half = importlib.import_module("halves").half
    monkeypatch.delitem(sys.modules, "halves")
    first = _jit.kernel(half)
    assert first(3.0) == 1.5
    (path,) = Path(first._cache._cache_path).glob("half-*.nbc")
    content = path.read_bytes()
    if damaged is not None:
        path.write_bytes(damaged(content))
    again = _jit.kernel(half)
    assert again(3.0) == 1.5
    assert sum(again.stats.cache_hits.values()) == (damaged is None)
    assert is_whole(path)


UNCACHED = """
import warnings
with warnings.catch_warnings(record=True) as noted:
    warnings.simplefilter("always")
    {before}
    from sklsb import Ising
    assert not noted, noted[0].message
    {run}
import json, os
import sklsb
noted = [[warning.category.__name__, str(warning.message)] for warning in noted]
print(json.dumps([os.path.dirname(sklsb.__file__), noted]))
"""
SAMPLE = """
    from sklsb import LSBSampler
    sampler = LSBSampler("sqrt", init="uniform", blocks=None, n_burn_in=10, random_state=0)
    for _ in range(2):
        sampler.fit(Ising([[0.0, 1.0], [1.0, 0.0]], [0.3, -0.8])).sample(60)
"""
ENTRY = """
    import numpy as np
    from sklsb._kernels._jit import warn_if_uncached
    from sklsb._kernels.chains import NoPart
    from sklsb._kernels.run import log_probs
    from sklsb.ensembles.compiled import Ensemble
    for _ in range(2):
        ensemble = Ensemble(Ising([[0.0]], [0.3]), np.ones((1, 1)), [None])
        warn_if_uncached()
        found, chains = np.empty(1), ensemble.chains._replace(part=NoPart())
        log_probs(ensemble.view, chains, (0, 1), found)
    assert found == 0.3
"""


def check_uncached(package, run, before="pass", **env):
    """Kernels run without the cache, and one warning says so; return what it says."""
    noted = package.run(code=UNCACHED.format(before=before, run=run.strip()), **env)
    ((category, message),) = noted
    assert category == "UncachedKernelsWarning"
    assert not package.kept()
    return message


@pytest.mark.parametrize(
    "run",
    [pytest.param(ENTRY, id="entry"), pytest.param(SAMPLE, id="sample", marks=pytest.mark.slow)],
)
def test_where_no_folder_can_be_written_kernels_are_not_kept(run, tmp_path):
    package = Copy(tmp_path)
    # No folder can be made below a file, not even by root.
    below = str(package.package / "py.typed" / "below")
    for folder in ("_kernels", "_kernels/elimination"):
        (package.package / folder / "__pycache__").write_bytes(b"")
    folders = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "USERPROFILE"), below)
    message = check_uncached(package, run, NUMBA_CACHE_DIR=below, **folders)
    assert "Set the environment variable NUMBA_CACHE_DIR" in message


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param("del caching.FunctionCache", id="class", marks=pytest.mark.slow),
        pytest.param("del caching.Cache._save_overload", id="method", marks=pytest.mark.slow),
    ],
)
def test_without_the_private_names_of_numba_kernels_are_not_kept(tmp_path, missing):
    # As in a numba that has other ones. It imports the first elsewhere, too.
    before = f"import numba.core.ccallback, numba.core.caching as caching; {missing}"
    message = check_uncached(Copy(tmp_path), ENTRY, before)
    assert "has another cache than is known" in message


def test_private_names_of_numba_are_looked_for(monkeypatch):
    assert _jit._cache_class() is not None
    for name in ("_load_overload", "_save_overload"):
        with monkeypatch.context() as patch:
            patch.delattr(caching.Cache, name)
            assert _jit._cache_class() is None
    monkeypatch.delattr(caching, "FunctionCache")
    assert _jit._cache_class() is None
    told = []
    monkeypatch.setattr(_jit, "_uncached", told)
    assert _jit.kernel(lambda x: x + 1.0)(1.0) == 2.0
    assert "has another cache than is known" in told[0]


def test_functions_are_only_linked_where_numba_can_do_that(monkeypatch):
    # Each would be made machine code by itself, too, and nobody calls that.
    names = [options["pipeline_class"].__name__ for options in _jit._compilers()]
    assert names == ["EntryCompiler", "PartCompiler"]
    monkeypatch.delattr(codegen.CPUCodeLibrary, "_optimize_final_module")
    assert _jit._compilers() == ({}, {})
    monkeypatch.delattr(codegen, "JITCodeLibrary")
    assert _jit._compilers() == ({}, {})


PRINTING = """
import gc
from sklsb._kernels._jit import inlined, kernel

@inlined
def shown(a):
    print("a =", a)
    if a > 3:
        raise ValueError("above 3")
    return a

@kernel
def entry(a):
    return shown(a) + 1

@kernel
def other_entry(a):
    return shown(a) + 2

print(entry(1), other_entry(2), gc.isenabled())
try:
    entry(4)
except ValueError as error:
    print(error)
"""


def test_functions_that_are_only_linked_print_and_raise(tmp_path):
    script = tmp_path / "printing.py"
    script.write_text(PRINTING)
    printed = run_python(str(script), env={**os.environ, "NUMBA_DISABLE_JIT": "0"})
    assert printed.split("\n") == ["a = 1", "a = 2", "2 4 True", "a = 4", "above 3", ""]


def test_what_an_entry_is_made_of_is_seen():
    """An entry is named by the files that its classes are defined in, and those they import."""
    modules = _jit._sources()
    for function in vars(contract).values():
        for cls, implementation in getattr(function, "implementations", {}).items():
            if implementation.__module__.startswith("sklsb."):
                imported = _jit._IMPORT.findall(modules[cls.__module__])
                known = {cls.__module__, *(name.decode() for name in imported)}
                assert implementation.__module__ in known
    for name, source in modules.items():
        seen = {found.decode() for found in _jit._IMPORT.findall(source)}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                wanted = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
            elif isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            else:
                continue
            assert set(wanted) & set(modules) <= seen, f"{name} imports {wanted}"

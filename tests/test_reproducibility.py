"""Same seed, same chains, bit for bit; and nothing outside the sampler changes."""

import copy
import importlib.util
import os
import pickle
import random
import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from processes import run_python
from sklearn.base import clone

from sklsb import (
    RBM,
    ClusterSampler,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    Mixture,
    Network,
)
from sklsb.balancing import learning

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning"),
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.ShortRunWarning"),
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.SeparatedModesWarning"),
]

LATTICE = Ising.lattice(np.random.default_rng(0).normal(scale=0.5, size=(4, 5)), coupling=0.2)
MACHINE = RBM(np.random.default_rng(1).normal(size=(9, 4)), np.linspace(-1, 1, 9))

# Samplers whose rule is known before they run; one number per chain and transition, or many.
FIXED = {
    "sqrt": LSBSampler("sqrt"),
    "fast": LSBSampler("barker", fast=True, n_flips=2),
    "random": GibbsSampler("random"),
    "blocks": GibbsSampler(block_size=3),
    "systematic": GibbsSampler("systematic", block_size=2),
    "chromatic": GibbsSampler("chromatic"),
    "layers": GibbsSampler("layers"),
    "ball": HammingBallSampler(6, radius=2),
    "clusters": ClusterSampler(),
}
# Only one goes through a pilot, which runs the same kernels whatever it compares.
LEARNED = {
    "mixture": LSBSampler("mixture", pilot=False),
    "learned": LSBSampler("learned"),
    "network": LSBSampler(Network(), pilot=False),
}
SAMPLERS = FIXED | LEARNED
OBJECTIVES = ["auto", "bound", "exact", "kl", "flux", "global_flux"]


def names(samplers):
    without_torch = importlib.util.find_spec("torch") is None
    skip = pytest.mark.skipif(without_torch, reason="fast=True needs torch")
    return [pytest.param(name, marks=skip) if name == "fast" else name for name in samplers]


each_sampler = pytest.mark.parametrize("name", names(SAMPLERS))
each_fixed = pytest.mark.parametrize("name", names(FIXED))


@pytest.fixture(scope="module")
def target():
    return LATTICE


def fitted(target, balancing="sqrt", **params):
    params = {"n_chains": 5, "n_burn_in": 90, "random_state": 3} | params
    return LSBSampler(balancing, **params).fit(target)


def fitted_as(name, **params):
    """A new fit of one of the samplers above."""
    params = {"n_chains": 5, "n_burn_in": 90, "random_state": 3} | params
    return clone(SAMPLERS[name]).set_params(**params).fit(MACHINE if name == "layers" else LATTICE)


def everything(sampler, *calls):
    """All that a fit and calls of sample(n, thin) give, as bytes."""
    parts = [sampler.state_.tobytes()]
    draws, stats = [], []
    for n, thin in calls:
        draws.append(sampler.sample(n, thin=thin)["x"].values)
        stats.append(sampler.sample_stats_.to_array().values)
    parts.append(np.concatenate(draws, axis=1).tobytes())
    parts.append(np.concatenate(stats, axis=2).tobytes())
    parts.append(sampler.state_.tobytes())
    parts.append(sampler.n_evaluations_.to_bytes(8, "little"))
    if isinstance(sampler, LSBSampler):
        assert {"lp", "acceptance_rate", "objective", "theta"} <= set(sampler.history_)
        parts += [part.tobytes() for part in sampler.balancing_.table()[:2]]
    for data in (getattr(sampler, "candidates_", {}), sampler.history_):
        parts += [data[name].values.tobytes() for name in data]
    return parts


@cache
def wanted(name, *calls):
    """Everything that a new fit with one thread gives; made once."""
    return everything(fitted_as(name), *calls)


@cache
def _stored(name, n_jobs):
    return pickle.dumps(fitted_as(name, n_jobs=n_jobs))


def stored(name, n_jobs=None):
    """A sampler that was fitted once; every caller gets its own."""
    return pickle.loads(_stored(name, n_jobs))


@each_sampler
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_same_seed_and_any_number_of_threads(name, n_jobs):
    assert everything(fitted_as(name, n_jobs=n_jobs), (60, 2)) == wanted(name, (60, 2))


@pytest.mark.parametrize("name", ["learned", "random", "ball"])
@pytest.mark.parametrize("n_jobs", [3, -1, 16])
def test_more_threads_than_cores_or_chains(name, n_jobs):
    assert everything(fitted_as(name, n_jobs=n_jobs), (60, 2)) == wanted(name, (60, 2))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_threads_with_any_objective(target, objective):
    one, two = (
        fitted(target, "learned", objective=objective, pilot=False, n_jobs=n) for n in (1, 2)
    )
    assert everything(two, (20, 1)) == everything(one, (20, 1))


@each_sampler
def test_another_seed_gives_other_chains(name):
    assert everything(fitted_as(name, random_state=4), (60, 2)) != wanted(name, (60, 2))


@each_sampler
def test_any_segment(monkeypatch, name):
    """However many transitions are made between two returns to Python."""
    calls = (40, 3), (50, 1)
    n_numbers = stored(name).run_.ensemble.n_numbers
    for segment in (7, 119) if name == "fast" else (1, 7, 100, 119, 120, 121):
        monkeypatch.setattr("sklsb.ensembles.base.MOST_NUMBERS", segment * n_numbers)
        for n_jobs in (None, 2) if segment in (7, 119) else (None,):
            assert everything(stored(name, n_jobs), *calls) == wanted(name, *calls)
        if name in FIXED and segment in (1, 7, 119):
            assert everything(fitted_as(name), *calls) == wanted(name, *calls)


@pytest.mark.parametrize("objective", ["auto", "bound"])
def test_any_buffer_of_the_burn_in(target, monkeypatch, objective):
    def found():
        return everything(fitted(target, "learned", objective=objective, pilot=False), (30, 1))

    usual = found()
    for buffer in (1, 100, 1 << 14):
        monkeypatch.setattr(learning, "_BUFFER", buffer)
        assert found() == usual


@each_sampler
@pytest.mark.parametrize("thin", [1, 3, "sweep"])
def test_sample_in_pieces_is_sample_at_once(name, thin):
    once = wanted(name, (60, thin))
    for pieces in ((20, 40), (1, 58, 1), (0, 60), (7, 0, 53)):
        assert everything(stored(name), *((n, thin) for n in pieces)) == once


def in_pieces(sampler, duplicate, thin=3):
    """Draws, log p and the present states of a sampler that is replaced by a copy on its way."""
    parts = []
    for n in (20, 15, 25):
        before, sampler = sampler, duplicate(sampler)
        if sampler is not before:
            before.sample(3)  # which moves the copy no more
        parts.append(sampler.sample(n, thin=thin)["x"].values)
        parts.append(sampler.sample_stats_["lp"].values)
    return [part.tobytes() for part in (*parts, sampler.state_)]


@each_sampler
@pytest.mark.parametrize(
    "duplicate",
    [lambda s: pickle.loads(pickle.dumps(s)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
def test_copies_go_on(name, duplicate):
    usual = in_pieces(stored(name), lambda sampler: sampler)
    assert in_pieces(stored(name), duplicate) == usual
    assert duplicate(stored(name)).n_evaluations_ == stored(name).n_evaluations_


@each_fixed
def test_warm_start_goes_on(name):
    """Burn-ins of 40 and 50, with copies in between, are one of 90; one of 0 changes nothing."""
    going = fitted_as(name, warm_start=True, n_burn_in=40)
    going = pickle.loads(pickle.dumps(copy.copy(going))).set_params(n_burn_in=50)
    going.fit(going.target_)
    once = stored(name)
    np.testing.assert_array_equal(going.state_, once.state_)
    np.testing.assert_array_equal(going.sample(30)["x"], once.sample(30)["x"])
    going.set_params(n_burn_in=0).fit(going.target_)
    np.testing.assert_array_equal(going.state_, once.state_)
    np.testing.assert_array_equal(going.sample(30)["x"], once.sample(30)["x"])
    np.testing.assert_array_equal(going.sample_stats_["lp"], once.sample_stats_["lp"])


@each_fixed
@pytest.mark.parametrize("keep", [False, True])
def test_a_chain_does_not_depend_on_how_many_there_are(name, keep):
    few = fitted_as(name, n_chains=2, keep_burn_in=keep)
    many = fitted_as(name, n_chains=6, keep_burn_in=keep)
    np.testing.assert_array_equal(few.state_, many.state_[:2])
    np.testing.assert_array_equal(few.sample(50)["x"], many.sample(50)["x"][:2])
    if keep:
        np.testing.assert_array_equal(few.burn_in_["x"], many.burn_in_["x"][:2])


@pytest.mark.parametrize("objective", ["auto", "bound", "exact"])
def test_a_constant_in_log_p_changes_nothing(objective):
    """Self-loops are constants; 2^20 is added without rounding to anything that is stored."""
    couplings = np.zeros((6, 6))
    couplings[0, 1] = couplings[1, 0] = 0.5
    couplings[2, 3] = couplings[3, 2] = -0.25
    loops = couplings.copy()
    loops[4, 4] = 2.0**20
    field = np.random.default_rng(0).normal(size=6)
    given = {"objective": objective, "pilot": objective == "auto"}
    plain = fitted(Ising(couplings, field), "learned", **given)
    shifted = fitted(Ising(loops, field), "learned", **given)
    np.testing.assert_array_equal(plain.burn_in_balancing_.theta, shifted.burn_in_balancing_.theta)
    np.testing.assert_array_equal(plain.balancing_.table().value, shifted.balancing_.table().value)
    np.testing.assert_array_equal(plain.sample(50)["x"], shifted.sample(50)["x"])
    np.testing.assert_allclose(
        shifted.sample_stats_["lp"], plain.sample_stats_["lp"] + 2.0**20, rtol=1e-15
    )


def test_layout_of_the_input_changes_nothing():
    rng = np.random.default_rng(2)
    upper = np.triu(rng.normal(size=(6, 6)), 1)
    couplings, field = upper + upper.T, rng.normal(size=6)

    def found(couplings, field):
        sampler = fitted(Ising(couplings, field), "learned", pilot=False, n_burn_in=30)
        return everything(sampler, (40, 1))

    usual = found(couplings, field)
    read_only = couplings.copy()
    read_only.flags.writeable = False
    for given in (
        np.asfortranarray(couplings),
        read_only,
        sp.csc_array(couplings),
        sp.coo_matrix(couplings),
        couplings.tolist(),
    ):
        assert found(given, field.tolist()) == usual
    lattice = rng.normal(size=(3, 4))
    usual = everything(fitted(Ising.lattice(lattice)), (40, 1))
    for given in (np.asfortranarray(lattice), lattice[::-1][::-1], lattice.tolist()):
        assert everything(fitted(Ising.lattice(given)), (40, 1)) == usual


# ----------------------------------------------------------------- nothing outside changes


def test_global_random_numbers_are_untouched(target):
    np.random.seed(5)
    random.seed(5)
    for random_state in (None, 3):
        before = np.random.get_state(), random.getstate()
        for sampler in (
            fitted(target, "learned", objective="bound", random_state=random_state, n_jobs=2),
            fitted_as("random", random_state=random_state, n_jobs=2),
            fitted_as("ball", random_state=random_state),
        ):
            sampler.sample(30, record={"m": lambda x: x.sum(axis=1)})
            pickle.dumps(sampler)
        after = np.random.get_state(), random.getstate()
        assert before[1] == after[1]
        for a, b in zip(before[0], after[0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_global_random_numbers_have_no_influence():
    for name in ("learned", "random"):
        usual = wanted(name, (60, 2))
        np.random.seed(2)
        random.seed(2)
        assert everything(fitted_as(name), (60, 2)) == usual


def test_error_state_and_warnings_filters_are_untouched(target):
    before = np.geterr(), list(warnings.filters)
    fitted(target, "learned", n_jobs=2, n_burn_in=30).sample(30)
    fitted_as("random", n_jobs=2).sample(30)
    assert (np.geterr(), list(warnings.filters)) == before


def arrays_of(target):
    parts = {"field": target.field, "constant": np.array(target.constant)}
    for name in ("data", "indices", "indptr"):
        parts[name] = getattr(target.couplings, name)
    return {name: part.copy() for name, part in parts.items()} | {
        f"view.{name}": part.copy() for name, part in target.view()._asdict().items()
    }


def test_the_target_is_untouched(target):
    before = arrays_of(target)
    attributes = set(vars(target))
    sampler = fitted(target, "learned", objective="bound")
    draws = sampler.sample(50)
    sampler.to_datatree(draws)
    for name, part in arrays_of(target).items():
        np.testing.assert_array_equal(part, before[name])
    assert set(vars(target)) == attributes


def test_inputs_are_untouched(target):
    function = Mixture([0.1, 0.2, 0.3, 0.4])
    states = np.random.default_rng(0).choice([-1, 1], size=(5, 20)).astype(np.int8)
    given = states.copy()
    sequence = np.random.SeedSequence(5)
    sampler = LSBSampler(function, n_chains=5, n_burn_in=50, random_state=sequence)
    sampler.fit(target, initial_states=given)
    sampler.sample(50)
    np.testing.assert_array_equal(given, states)
    np.testing.assert_array_equal(function.theta, [0.1, 0.2, 0.3, 0.4])
    assert repr(sequence) == repr(np.random.SeedSequence(5))
    assert (sampler.burn_in_balancing_.theta != function.theta).any()


def test_two_samplers_on_one_target_do_not_meet(target):
    one, other = fitted(target, "learned"), fitted(target, "min", random_state=9)
    usual = stored("learned").sample(60)["x"].values
    parts = []
    for n in (20, 40):
        parts.append(one.sample(n)["x"].values)
        other.sample(n)
        other.fit(target)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), usual)


def test_frozen_function_is_the_same_after_many_steps():
    sampler = stored("learned")
    before = copy.deepcopy(sampler.balancing_.table())
    history = sampler.history_.copy(deep=True)
    sampler.sample(100, thin=1000)
    after = sampler.balancing_.table()
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)
    assert history.identical(sampler.history_)


# ----------------------------------------------------------------- other processes

SCRIPT = """
import hashlib, warnings
import numpy as np
import networkx as nx
from sklsb import GibbsSampler, HammingBallSampler, Ising, LSBSampler
warnings.simplefilter("ignore")
common = {"n_chains": 3, "n_burn_in": 60, "random_state": 1}
digest = hashlib.sha256()
graph = nx.Graph([("b", "a"), ("c", "a"), ("d", "b")])
named, lattice = Ising(graph, 0.3), Ising.lattice(np.linspace(-1, 1, 20).reshape(4, 5), 0.2)
for sampler, target in (
    (LSBSampler("sqrt", **common), named),
    (LSBSampler("learned", **common), lattice),
    (GibbsSampler("chromatic", **common), named),
    (HammingBallSampler(3, **common), lattice),
):
    sampler.fit(target)
    digest.update(sampler.sample(50)["x"].values.tobytes())
    digest.update(sampler.sample_stats_["lp"].values.tobytes())
print(digest.hexdigest())
"""


# The code of the package as `-O` makes it. That of all others has to be compiled for it, too, which
# takes three times as long as all else.
OPTIMISED = """
import sys
from importlib.machinery import PathFinder, SourceFileLoader
class Optimised(SourceFileLoader):
    def get_code(self, name):
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True, optimize=1)
class Finder:
    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path) if name.split(".")[0] == "sklsb" else None
        if spec is not None:
            spec.loader = Optimised(name, spec.loader.path)
        return spec
sys.meta_path.insert(0, Finder())
import sklsb
assert type(sklsb.__loader__) is Optimised
"""


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["-c", OPTIMISED + SCRIPT], id="package"),
        pytest.param(["-O", "-c", SCRIPT], id="all", marks=pytest.mark.slow),
    ],
)
def test_hash_seeds_optimised_mode_and_environment(options, capsys):
    """In this process, and in one where all of these differ."""
    pytest.importorskip("networkx", reason="needs networkx")
    exec(SCRIPT, {})
    here = capsys.readouterr().out
    assert len(here.strip()) == 64
    other = {"PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    other |= {"NUMBA_NUM_THREADS": "1"}
    assert run_python(*options, env={**os.environ, **other}) == here

"""Same seed, same chains, bit for bit; and nothing outside the sampler changes."""

import copy
import os
import pickle
import random
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from processes import run_python

from sklsb import Ising, LSBSampler, Mixture, Network, learning
from sklsb.samplers import _base

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning"),
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.ShortRunWarning"),
]

BALANCING = {
    "sqrt": "sqrt",
    "mixture": "mixture",
    "learned": "learned",
    "monotonic": Network("min", "monotonic"),
}
OBJECTIVES = ["auto", "bound", "exact", "kl", "sampled_kl", "flux", "global_flux"]
each_balancing = pytest.mark.parametrize("balancing", BALANCING.values(), ids=BALANCING)


@pytest.fixture(scope="module")
def target():
    field = np.random.default_rng(0).normal(scale=0.5, size=(4, 5))
    return Ising.lattice(field, coupling=0.2)


def fitted(target, balancing="sqrt", **params):
    params = {"n_chains": 5, "n_burn_in": 90, "random_state": 3} | params
    return LSBSampler(balancing, **params).fit(target)


def everything(sampler, *calls):
    """All that a fit and calls of sample(n, thin) give, as bytes."""
    parts = [sampler.state_.tobytes()]
    for name in ("lp", "acceptance_rate", "objective", "theta", "gradient_norm"):
        parts.append(sampler.history_[name].values.tobytes())
    draws, stats = [], []
    for n, thin in calls:
        draws.append(sampler.sample(n, thin=thin)["x"].values)
        stats.append(sampler.sample_stats_.to_array().values)
    parts.append(np.concatenate(draws, axis=1).tobytes())
    parts.append(np.concatenate(stats, axis=2).tobytes())
    parts.append(sampler.state_.tobytes())
    parts.append(sampler.n_evaluations_.to_bytes(8, "little"))
    parts += [part.tobytes() for part in sampler.balancing_.table()[:2]]
    for data in (getattr(sampler, "candidates_", {}), sampler.history_):
        parts += [data[name].values.tobytes() for name in data]
    return parts


@each_balancing
@pytest.mark.parametrize("n_jobs", [1, 2, 3, -1, 16])
def test_any_number_of_threads(target, balancing, n_jobs):
    for objective in OBJECTIVES if balancing == "learned" and n_jobs == 2 else OBJECTIVES[:1]:
        wanted = fitted(target, balancing, objective=objective)
        got = fitted(target, balancing, objective=objective, n_jobs=n_jobs)
        assert everything(got, (60, 2)) == everything(wanted, (60, 2))


@each_balancing
@pytest.mark.parametrize("segment", [1, 7, 100, 119, 120, 121])
def test_any_segment(target, monkeypatch, balancing, segment):
    wanted = everything(fitted(target, balancing), (40, 3), (50, 1))
    monkeypatch.setattr(_base, "SEGMENT", segment)
    assert everything(fitted(target, balancing), (40, 3), (50, 1)) == wanted
    assert everything(fitted(target, balancing, n_jobs=2), (40, 3), (50, 1)) == wanted


@pytest.mark.parametrize("objective", ["auto", "sampled_kl"])
@pytest.mark.parametrize("buffer", [1, 100, 1 << 14])
def test_any_buffer_of_the_burn_in(target, monkeypatch, objective, buffer):
    wanted = everything(fitted(target, "learned", objective=objective), (30, 1))
    monkeypatch.setattr(learning, "_BUFFER", buffer)
    assert everything(fitted(target, "learned", objective=objective), (30, 1)) == wanted


@each_balancing
@pytest.mark.parametrize("thin", [1, 3, "sweep"])
def test_sample_in_pieces_is_sample_at_once(target, balancing, thin):
    once = everything(fitted(target, balancing), (60, thin))
    for pieces in ((20, 40), (1, 58, 1), (0, 60), (7, 0, 53)):
        assert everything(fitted(target, balancing), *((n, thin) for n in pieces)) == once


def test_pieces_pickled_in_between(target):
    once = fitted(target, "learned").sample(60)["x"].values.tobytes()
    sampler = fitted(target, "learned")
    parts = []
    for n in (20, 15, 25):
        parts.append(sampler.sample(n)["x"].values)
        sampler = pickle.loads(pickle.dumps(sampler))
    assert np.concatenate(parts, axis=1).tobytes() == once


@pytest.mark.parametrize("kind", ["fixed", "kept burn-in"])
def test_a_chain_does_not_depend_on_how_many_there_are(target, kind):
    keep = kind != "fixed"
    few = fitted(target, n_chains=2, keep_burn_in=keep)
    many = fitted(target, n_chains=6, keep_burn_in=keep)
    np.testing.assert_array_equal(few.state_, many.state_[:2])
    np.testing.assert_array_equal(few.sample(50)["x"], many.sample(50)["x"][:2])


@pytest.mark.parametrize("objective", ["auto", "bound", "exact"])
def test_a_constant_in_log_p_changes_nothing(objective):
    """Self-loops are constants; 2^20 is added without rounding to anything that is stored."""
    couplings = np.zeros((6, 6))
    couplings[0, 1] = couplings[1, 0] = 0.5
    couplings[2, 3] = couplings[3, 2] = -0.25
    loops = couplings.copy()
    loops[4, 4] = 2.0**20
    field = np.random.default_rng(0).normal(size=6)
    plain = fitted(Ising(couplings, field), "learned", objective=objective)
    shifted = fitted(Ising(loops, field), "learned", objective=objective)
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
    wanted = everything(fitted(Ising(couplings, field), "learned"), (40, 1))
    read_only = couplings.copy()
    read_only.flags.writeable = False
    for given in (
        np.asfortranarray(couplings),
        read_only,
        sp.csc_array(couplings),
        sp.coo_matrix(couplings),
        couplings.tolist(),
    ):
        assert everything(fitted(Ising(given, field.tolist()), "learned"), (40, 1)) == wanted
    lattice = rng.normal(size=(3, 4))
    wanted = everything(fitted(Ising.lattice(lattice)), (40, 1))
    for given in (np.asfortranarray(lattice), lattice[::-1][::-1], lattice.tolist()):
        assert everything(fitted(Ising.lattice(given)), (40, 1)) == wanted


# ----------------------------------------------------------------- nothing outside changes


def test_global_random_numbers_are_untouched(target):
    np.random.seed(5)
    random.seed(5)
    for random_state in (None, 3):
        before = np.random.get_state(), random.getstate()
        sampler = fitted(
            target, "learned", objective="sampled_kl", random_state=random_state, n_jobs=2
        )
        sampler.sample(30, record={"m": lambda x: x.sum(axis=1)})
        pickle.dumps(sampler)
        after = np.random.get_state(), random.getstate()
        assert before[1] == after[1]
        for a, b in zip(before[0], after[0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_global_random_numbers_have_no_influence(target):
    np.random.seed(1)
    wanted = everything(fitted(target, "learned"), (30, 1))
    np.random.seed(2)
    assert everything(fitted(target, "learned"), (30, 1)) == wanted


def test_error_state_and_warnings_filters_are_untouched(target):
    before = np.geterr(), list(warnings.filters)
    fitted(target, "learned", n_jobs=2).sample(30)
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
    sampler = fitted(target, "learned", objective="sampled_kl")
    sampler.sample(50)
    sampler.to_datatree()
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
    alone = fitted(target, "learned")
    wanted = alone.sample(60)["x"].values
    parts = []
    for n in (20, 40):
        parts.append(one.sample(n)["x"].values)
        other.sample(n)
        other.fit(target)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), wanted)


def test_frozen_function_is_the_same_after_many_steps(target):
    sampler = fitted(target, "learned")
    before = copy.deepcopy(sampler.balancing_.table())
    history = sampler.history_.copy(deep=True)
    sampler.sample(100, thin=10_000)
    after = sampler.balancing_.table()
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)
    assert history.identical(sampler.history_)


# ----------------------------------------------------------------- other processes

SCRIPT = """
import hashlib, warnings
import numpy as np
import networkx as nx
from sklsb import Ising, LSBSampler
warnings.simplefilter("ignore")
digest = hashlib.sha256()
graph = nx.Graph([("b", "a"), ("c", "a"), ("d", "b")])
for target in (Ising(graph, 0.3), Ising.lattice(np.linspace(-1, 1, 20).reshape(4, 5), 0.2)):
    for balancing in ("sqrt", "learned"):
        sampler = LSBSampler(balancing, n_chains=3, n_burn_in=60, random_state=1).fit(target)
        digest.update(sampler.sample(50)["x"].values.tobytes())
        digest.update(sampler.sample_stats_["lp"].values.tobytes())
print(digest.hexdigest())
"""


def digest(*options, **environment):
    return run_python(*options, "-c", SCRIPT, env={**os.environ, **environment}).strip()


def test_hash_seeds_optimised_mode_and_environment():
    pytest.importorskip("networkx", reason="needs networkx")
    digests = {
        digest(PYTHONHASHSEED="0"),
        digest("-O", PYTHONHASHSEED="12345"),
        digest(PYTHONHASHSEED="random", OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1"),
    }
    assert len(digests) == 1
    assert len(digests.pop()) == 64

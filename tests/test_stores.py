"""Stores: whatever happens to a run, it goes on bit for bit, or says why it cannot."""

import contextlib
import hashlib
import pickle
import shutil
import sys
import warnings

import interrupted
import killed
import numpy as np
import pytest
import xarray as xr
from models import dense
from processes import run_forked
from sklearn.exceptions import NotFittedError
from test_state import Moves

from sklsb import (
    AutoSampler,
    ClusterSampler,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    SwapSampler,
    __version__,
    open_draws,
)
from sklsb.exceptions import SamplerWarning, StoreError, StoreWarning
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.saving import packed_sampler
from sklsb.storage import stores
from sklsb.storage.codec import find_class, packed, unpacked
from sklsb.storage.stores import Store

pytest.importorskip("zarr")
pytestmark = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")

TARGET = dense(6, scale=0.4)
EQUAL = [[0.9, 0.1], [0.1, 0.9]]
NETWORK = MarkovNetwork([2] * 8, [((i, i + 1), EQUAL) for i in range(7)] + [((0,), [0.3, 0.7])])
GRID = Ising.lattice(np.random.default_rng(0).normal(scale=0.5, size=(3, 4)), coupling=0.4)
RANKING = MarkovNetwork([4] * 4, [((i, j), 1.0 - np.eye(4)) for i in range(4) for j in range(i)])
NAMED = MarkovNetwork([2, 2, 3], [((0, 1), EQUAL)], names=["rain", "wet", "wind"])


def total(x):
    return x.sum(axis=-1) * 0.1


SAMPLERS = {
    "random": (GibbsSampler(block_size=2), TARGET),
    "chromatic": (GibbsSampler("chromatic"), TARGET),
    "ball": (HammingBallSampler(3), TARGET),
    "clusters": (ClusterSampler(), TARGET),
    "swap": (SwapSampler(n_partners=2), RANKING),
    "balanced": (LSBSampler("barker"), TARGET),
    "learned": (LSBSampler(), TARGET),
    "nested": (Moves("nested"), TARGET),
    "whole": (LSBSampler("sqrt", blocks=10), NETWORK),
    "pool": (LSBSampler("sqrt", blocks=2), NETWORK),
    "elimination": (EliminationSampler(), NETWORK),
    "sliced": (EliminationSampler(max_memory=3500), GRID),
    "tempering": (ParallelTempering(n_replicas=3), TARGET),
    "auto": (AutoSampler(), TARGET),
    "function": (LSBSampler("sqrt"), FunctionTarget(total, 5)),
    "first order": (LSBSampler("sqrt", fast=True), TARGET),
    "flips": (LSBSampler("sqrt", fast=True, n_flips="auto"), TARGET),
}
each_sampler = pytest.mark.parametrize("name", SAMPLERS)
_FITTED = {}


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        yield


def fitted(name):
    """A copy of a fitted sampler, and its target."""
    sampler, target = SAMPLERS[name]
    if sampler.get_params().get("fast"):
        pytest.importorskip("torch")
    if name not in _FITTED:
        params = {"n_chains": 2, "n_burn_in": 30, "random_state": 1}
        params = {k: v for k, v in params.items() if k in sampler.get_params()}
        with quiet():
            _FITTED[name] = pickle.dumps(sampler.set_params(**params).fit(target))
    made = pickle.loads(_FITTED[name])
    return made, made.target_


def draw(sampler, n, **settings):
    with quiet():
        return sampler.sample(n, **settings)


def same(one, other):
    """Two datasets, bit for bit."""
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        a, b = one[name], other[name]
        assert a.dims == b.dims
        assert a.dtype == b.dtype
        assert a.values.tobytes() == b.values.tobytes(), name


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 7 draws of the target."""
    monkeypatch.setattr(stores, "CHUNK_DRAWS", 7)


# ----------------------------------------------------------------- all samplers


@each_sampler
def test_stored_draws_and_those_after_a_resume(name, tmp_path, small_chunks):
    sampler, target = fitted(name)
    path = tmp_path / "run.zarr"
    wanted = draw(fitted(name)[0], 40, thin=2)
    first = draw(sampler, 10, thin=2, store=path)
    same(first, wanted.isel(draw=slice(0, 10)))
    same(draw(sampler, 11, thin=2, store=path), wanted.isel(draw=slice(10, 21)))
    state = sampler.run_.packed_chains()
    again = type(sampler).resume(path, target)
    assert again.run_.packed_chains() == state
    assert again.n_evaluations_ == sampler.n_evaluations_
    again.set_params(n_jobs=2)  # as many threads as are wanted now
    same(draw(again, 19, thin=2, store=path), wanted.isel(draw=slice(21, 40)))
    found = open_draws(path)
    same(found, wanted)
    assert found.attrs["requested_draws"] == 40
    assert found.attrs["sampled_transitions"] == 80
    # What was not restored has moved on nowhere: it cannot write there any more.
    with pytest.raises(StoreError, match="does not end where the chains of this sampler are"):
        sampler.sample(5, thin=2, store=path)


@each_sampler
def test_save_and_load(name, tmp_path):
    sampler, target = fitted(name)
    draw(sampler, 7, thin=3)
    sampler.save(tmp_path / "fitted")
    other = type(sampler).load(tmp_path / "fitted", target)
    assert packed_sampler(other) == packed_sampler(sampler)
    assert str(other.get_params()) == str(sampler.get_params())
    same(draw(other, 25), draw(sampler, 25))
    same(other.sample_stats_, sampler.sample_stats_)
    if "warm_start" in sampler.get_params():
        with quiet():
            for one in (sampler, other):
                one.set_params(warm_start=True).fit(target)
        same(draw(other, 5), draw(sampler, 5))


# ----------------------------------------------------------------- a crash


def kill_and_resume(folder, n, seed):
    lines = run_forked(killed.main, folder, n, seed).splitlines()
    assert len(lines) == n
    return np.array([line.split() for line in lines], dtype=int)


def test_killed_at_random_moments(tmp_path):
    found = kill_and_resume(tmp_path, 4, 0)
    assert (found[:, 0] > 0).any()


@pytest.mark.slow
def test_killed_at_200_random_moments(tmp_path):
    kill_and_resume(tmp_path, 200, 1)


def interrupt(folder, n, seed):
    """Seconds until control was back: of the processor, and by the clock."""
    lines = run_forked(interrupted.main, folder, n, seed).splitlines()
    assert len(lines) == n
    assert {line.split()[0] for line in lines} == {"fit", "sample"}
    return np.array([line.split()[1:] for line in lines], dtype=float)


def test_interrupted_at_random_moments(tmp_path):
    assert interrupt(tmp_path, 2, 0)[:, 0].max() < 1.0


@pytest.mark.slow
def test_interrupted_at_100_random_moments(tmp_path):
    assert interrupt(tmp_path, 100, 1)[:, 0].max() < 1.0


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of several commits, and the chains at each of them."""
    path = tmp_path_factory.mktemp("damage") / "run.zarr"
    sampler, _ = fitted("random")
    whole = draw(fitted("random")[0], 60)
    states = {0: sampler.run_.packed_chains()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "CHUNK_DRAWS", 16)
        for n in (20, 23):  # the first checkpoint is in the chunk that the last one has filled
            draw(sampler, n, store=path)
            states[open_draws(path).sizes["draw"]] = sampler.run_.packed_chains()
    states |= {k * 16: None for k in (1, 2)}  # committed when a chunk was full
    return path, states, whole


def last_files(path):
    """What a crash, or a disk, could have damaged: by name, with their bytes."""
    names = [f"sklsb/{name}" for name in ("checkpoint.0", "checkpoint.1", "sampler", "coords")]
    names += ["x/c.0.2.0", "x/c.0.1.0", "lp/c.0.2", "zarr.json", "site/c.0", "chain/c.0"]
    return {name: (path / name).read_bytes() for name in names}


def survives(path, states, whole):
    """Whether a store is refused, or is what it was at some commit; never anything else."""
    outcome = "refused"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        with contextlib.suppress(StoreError):
            sampler = GibbsSampler.resume(path, TARGET)
            n = sampler.run_.ensemble.counters.n_draws
            assert n in states
            assert states[n] in (None, sampler.run_.packed_chains())
            outcome = f"resumed at {n}"
    with contextlib.suppress(StoreError, RuntimeError, ValueError, OSError, KeyError):
        found = open_draws(path)
        x, lp = found["x"].values, found["lp"].values
        n = found.sizes["draw"]
        assert n in states
        assert x.tobytes() == whole["x"].values[:, :n].tobytes()
        assert lp.tobytes() == whole["lp"].values[:, :n].tobytes()
    return outcome


def damage(store, changes, folder):
    """The outcomes of some changes, each to one file of a copy."""
    path, states, whole = store
    copied = folder / "copy.zarr"
    shutil.copytree(path, copied)
    outcomes = set()
    for name, data in changes:
        before = (copied / name).read_bytes()
        (copied / name).write_bytes(data)
        outcomes.add(survives(copied, states, whole))
        (copied / name).write_bytes(before)
    assert survives(copied, states, whole) == "resumed at 43"
    return outcomes


def truncated(store, every):
    for name, data in last_files(store[0]).items():
        for size in range(0, len(data), every):
            yield name, data[:size]


def flipped(store, n):
    rng = np.random.default_rng(0)
    files = list(last_files(store[0]).items())
    for _ in range(n):
        name, data = files[rng.integers(len(files))]
        changed = bytearray(data)
        changed[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        yield name, bytes(changed)


def test_truncated_files_are_refused_or_not_needed(store, tmp_path):
    outcomes = damage(store, truncated(store, 397), tmp_path)
    assert "refused" in outcomes
    assert len(outcomes) > 2  # the checkpoint before the last is used


def test_flipped_bits_are_refused_or_not_needed(store, tmp_path):
    assert "refused" in damage(store, flipped(store, 60), tmp_path)


@pytest.mark.slow
def test_truncated_at_every_byte_and_a_thousand_flips(store, tmp_path):
    damage(store, truncated(store, 1), tmp_path / "cut")
    damage(store, flipped(store, 1000), tmp_path / "flipped")


def test_missing_files(store, tmp_path):
    path, _, _ = store
    for name, text in (
        ("x/c.0.1.0", r"x/c.0.1.0 is damaged: it is missing"),
        ("lp/c.0.2", "lp/c.0.2 is damaged: it is missing"),
        ("sklsb/sampler", "sampler is damaged: .*No such file"),
        ("sklsb/coords", "coords is damaged"),
    ):
        copied = tmp_path / "copy.zarr"
        shutil.copytree(path, copied)
        (copied / name).unlink()
        with pytest.raises(StoreError, match=text):
            GibbsSampler.resume(copied, TARGET)
        if name[0] in "xl":
            with pytest.raises(StoreError, match="is missing"):
                open_draws(copied)
        shutil.rmtree(copied)


def test_the_checkpoint_before_is_used_with_a_warning(store, tmp_path):
    path, _, whole = store
    copied = tmp_path / "copy.zarr"
    shutil.copytree(path, copied)
    last = max(("checkpoint.0", "checkpoint.1"), key=lambda name: sequence(copied, name))
    data = (copied / "sklsb" / last).read_bytes()
    (copied / "sklsb" / last).write_bytes(data[:-3])
    with pytest.warns(StoreWarning, match=rf"{last} is damaged: its contents .* at \d+ draws"):
        sampler = GibbsSampler.resume(copied, TARGET)
    n = sampler.run_.ensemble.counters.n_draws
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        sampler.sample(60 - n, store=copied)
    same(open_draws(copied), whole)
    for name in ("checkpoint.0", "checkpoint.1"):
        (copied / "sklsb" / name).write_bytes(b"sklsb 7\n" + data[8:])
    with pytest.raises(StoreError, match="is of version '7' of the format; this is 2"):
        GibbsSampler.resume(copied, TARGET)
    for name in ("checkpoint.0", "checkpoint.1"):
        (copied / "sklsb" / name).unlink()
    with pytest.raises(StoreError, match="has no checkpoint to go on from"):
        GibbsSampler.resume(copied, TARGET)


def sequence(path, name):
    return int(unpacked((path / "sklsb" / name).read_bytes())["sequence"])


# ----------------------------------------------------------------- what is refused


def test_another_target_is_refused(store):
    path = store[0]
    for other, text in (
        (dense(6, seed=1, scale=0.4), "with other parameters"),
        (dense(5), r"this is Ising\(5 sites.*it was Ising\(6 sites"),
        (Potts(np.zeros((6, 6)), np.zeros((6, 2))), r"this is Potts"),
        (TARGET.condition({0: 1}), "this is .* 1 variable observed"),
    ):
        with pytest.raises(StoreError, match=f"is of another target: .*{text}"):
            GibbsSampler.resume(path, other)
    with pytest.raises(TypeError, match="target is 'ising', not a sklsb Target"):
        GibbsSampler.resume(path, "ising")
    same_parameters = Ising(TARGET.couplings.toarray(), TARGET.field)
    GibbsSampler.resume(path, same_parameters)


def test_another_function_is_refused(tmp_path):
    sampler, _ = fitted("function")
    sampler.save(tmp_path / "fitted")
    LSBSampler.load(tmp_path / "fitted", FunctionTarget(lambda x: total(x), 5))
    changed = FunctionTarget(lambda x: total(x) + 1e-6 * x[..., 0], 5)
    with pytest.raises(StoreError, match=r"but log p of a state is .* where it was"):
        LSBSampler.load(tmp_path / "fitted", changed)


def test_another_sampler_is_refused(store, tmp_path):
    path = store[0]
    with pytest.raises(StoreError, match="holds a GibbsSampler; it is not of LSBSampler"):
        LSBSampler.resume(path, TARGET)
    with pytest.raises(StoreError, match="is no store of sklsb"):
        GibbsSampler.resume(tmp_path, TARGET)
    with pytest.raises(StoreError, match="is no store of sklsb"):
        open_draws(tmp_path)
    (tmp_path / "note").write_text("mine")
    sampler, _ = fitted("random")
    with pytest.raises(StoreError, match="is no store of sklsb"):
        sampler.sample(3, store=tmp_path)
    with pytest.raises(StoreError, match="note is damaged: it does not begin as files of sklsb"):
        GibbsSampler.load(tmp_path / "note", TARGET)
    with pytest.raises(NotFittedError):
        GibbsSampler("random").save(tmp_path / "unfitted")


def test_a_store_is_of_one_kind_of_draws(tmp_path, small_chunks):
    path = tmp_path / "run.zarr"
    sampler, _ = fitted("random")
    sampler.sample(10, thin=2, store=path)
    with pytest.raises(StoreError, match=r"thin is 3, but .* has draws of thin 2"):
        sampler.sample(10, thin=3, store=path)
    with pytest.raises(StoreError, match=r"would store m, lp, but .* has x, lp"):
        sampler.sample(10, thin=2, store=path, record={"m": total})
    held, _ = Store.open(path, verify=False)
    with pytest.raises(StoreError, match="Another sampler is writing to"):
        sampler.sample(10, thin=2, store=path)
    held.close()
    draw(sampler, 0, thin=2, store=path)
    assert open_draws(path).sizes["draw"] == 10
    sampler.sample(0)
    sampler.sample(2, thin=2, store=path)  # nothing has moved
    sampler.sample(1)
    with pytest.raises(StoreError, match="or they have moved since"):
        sampler.sample(10, thin=2, store=path)


def test_recorded_statistics_are_stored(tmp_path, small_chunks):
    record = {"m": total, "pair": lambda x: x[:, :2]}
    sampler, target = fitted("random")
    wanted = draw(fitted("random")[0], 30, record=record)
    path = tmp_path / "run.zarr"
    draw(sampler, 10, record=record, store=path)
    again = GibbsSampler.resume(path, target)
    draw(again, 20, record=record, store=path)
    found = open_draws(path).drop_vars("lp")
    same(found, wanted)
    with pytest.raises(StoreError, match=r"record\['m'\] returned int64 of shape"):
        again.sample(5, record=record | {"m": LaterAnother()}, store=path)


class LaterAnother:
    """A statistic that returns floats once, and integers from then on."""

    calls = 0

    def __call__(self, x):
        self.calls += 1
        return total(x) if self.calls == 1 else x.sum(axis=-1, dtype=np.int64)


def test_names_of_variables_and_plain_zarr(tmp_path):
    sampler = GibbsSampler("random", n_chains=2, n_burn_in=5, random_state=0).fit(NAMED)
    path = tmp_path / "run.zarr"
    with quiet():
        sampler.sample(12, store=path)
    found = open_draws(path)
    assert found["site"].values.tolist() == ["rain", "wet", "wind"]
    assert list(found.dims) == ["chain", "draw", "site"]
    plain = xr.open_zarr(path, chunks=None)
    np.testing.assert_array_equal(plain["x"], found["x"])
    assert plain["x"].dims == ("chain", "draw", "site")
    import zarr

    array = zarr.open_array(path / "x", mode="r")
    np.testing.assert_array_equal(array[:], found["x"])
    assert found.attrs["sampler"] == "GibbsSampler"


def test_a_reader_sees_whole_draws_while_they_come(tmp_path, monkeypatch, small_chunks):
    monkeypatch.setattr(stores, "COMMIT_SECONDS", 0.0)
    monkeypatch.setattr(stores, "COMMIT_SHARE", 1e9)
    path = tmp_path / "run.zarr"
    sampler, _ = fitted("random")
    wanted = draw(fitted("random")[0], 200)
    seen = []
    commit = Store.commit

    def watched(self, chains):
        commit(self, chains)
        if path.exists() and len(seen) < 12:
            found = open_draws(path).load()
            seen.append(found.sizes["draw"])
            plain = xr.open_zarr(path, chunks=None)  # as others open it
            assert plain["x"].values.tobytes() == found["x"].values.tobytes()
            assert plain["lp"].values.tobytes() == found["lp"].values.tobytes()
            same(found, wanted.isel(draw=slice(0, seen[-1])))

    monkeypatch.setattr(Store, "commit", watched)
    draw(sampler, 200, store=path)
    assert seen == sorted(seen)
    assert len(set(seen)) > 5


def naming(data, old, new):
    """The bytes of a file that names something else."""
    assert len(old) == len(new)
    assert data.count(old)
    body = data[40:].replace(old, new)
    return data[:8] + hashlib.blake2b(body, digest_size=32).digest() + body


MOVED = {
    "a module": (b"sklsb.ensembles.streams", b"sklsb.ensembles.strings", "strings.Streams"),
    "a folder": (b"sklsb.ensembles.streams", b"sklsb.ensemblez.streams", "streams.Streams"),
    "a class": (b'"Streams"', b'"Strings"', "streams.Strings"),
    "an array": (b'"moved"', b'"movex"', "mov"),
}


@pytest.mark.parametrize(("old", "new", "word"), MOVED.values(), ids=MOVED)
def test_files_that_name_what_is_gone(store, tmp_path, old, new, word):
    told = rf"was written by sklsb {__version__} and cannot be read by .*{word}.*or fit again"
    sampler, target = fitted("random")
    found = unpacked(packed_sampler(sampler))
    inner = naming(found["sampler"].tobytes(), old, new)
    (tmp_path / "fitted").write_bytes(
        packed(found | {"sampler": np.frombuffer(inner, dtype=np.uint8)})
    )
    with pytest.raises(StoreError, match=told):
        GibbsSampler.load(tmp_path / "fitted", target)
    shutil.copytree(store[0], tmp_path / "run.zarr")
    for name in ("checkpoint.0", "checkpoint.1"):
        path = tmp_path / "run.zarr" / "sklsb" / name
        found = unpacked(path.read_bytes())
        chains = naming(found["chains"].tobytes(), old, new)
        path.write_bytes(packed(found | {"chains": np.frombuffer(chains, dtype=np.uint8)}))
    with pytest.raises(StoreError, match=told):
        GibbsSampler.resume(tmp_path / "run.zarr", TARGET)


@pytest.mark.parametrize("module", ["sklsb.samplers.gone", "sklsb.gone.gibbs", "sklsb.exact"])
def test_files_of_samplers_that_are_gone(tmp_path, module):
    sampler, target = fitted("random")
    found = unpacked(packed_sampler(sampler))
    (tmp_path / "fitted").write_bytes(packed(found | {"class": (module, "GibbsSampler")}))
    told = rf"by sklsb {__version__} and cannot be read by .*{module}.GibbsSampler is no class"
    with pytest.raises(StoreError, match=told):
        BaseSampler.load(tmp_path / "fitted", target)


def test_what_files_hold(tmp_path):
    """Neither pickles nor names of functions."""
    sampler, _ = fitted("balanced")
    sampler.save(tmp_path / "fitted")
    assert (tmp_path / "fitted").read_bytes().startswith(b"sklsb 2\n")
    for module, name in (("os", "system"), ("builtins", "eval"), ("subprocess", "Popen")):
        with pytest.raises(TypeError, match=f"{module}.{name} is no class of a sampler"):
            find_class(module, name)
    with pytest.raises(TypeError, match="is no class of a sampler"):
        find_class("sklsb.targets.ising", "Ising")
    value = {
        "a": [1, 2.5, float("inf"), None, True, "x"],
        (1, "b"): (np.arange(3, dtype=np.int8), np.array("s"), np.float32(0.1)),
        "rng": [np.random.default_rng(3)] * 2,
        "words": np.array(["one", "three"]),
    }
    value["rng"][0].random(5)
    found = unpacked(packed(value))
    assert packed(found) == packed(value)
    assert found["rng"][0] is found["rng"][1]
    assert found["rng"][0].random() == value["rng"][0].random()
    with pytest.raises(TypeError, match=r"Moment is no class of a sampler"):
        packed(Moment())


class Moment:
    """What no file can hold."""


def test_without_zarr(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    sampler, _ = fitted("random")
    with pytest.raises(ImportError, match=r"Stores need zarr: pip install 'zarr>=3.1'"):
        sampler.sample(3, store=tmp_path / "run.zarr")
    assert not (tmp_path / "run.zarr").exists()

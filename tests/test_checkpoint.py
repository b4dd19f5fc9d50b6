"""`fit(target, checkpoint=path)`: a fit that was cut off goes on, bit for bit."""

import signal
import warnings

import killed_fit
import numpy as np
import pandas as pd
import pytest
from killed_fit import found
from processes import run_forked

from sklsb import (
    RBM,
    AutoSampler,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
)
from sklsb.exceptions import SamplerWarning, StoreError
from sklsb.samplers._tempering import schedule
from sklsb.storage import checkpoint

RNG = np.random.default_rng(0)
GLASS = Ising.lattice(np.zeros((6, 6)), coupling=RNG.normal(size=(2, 6, 6)))
BIG = Ising.lattice(np.zeros((12, 12)), coupling=RNG.normal(size=(2, 12, 12)))
NETWORK = MarkovNetwork(
    [3] * 12, [((i, (i + k) % 12), RNG.random((3, 3))) for i in range(12) for k in (1, 5)]
)
MACHINE = RBM(RNG.normal(size=(5, 3)), np.zeros(5), np.zeros(3))
FUNCTION = FunctionTarget(lambda x: np.where(x[..., :-1] == x[..., 1:], 0.5, 0.0).sum(-1), 6)
IMPOSSIBLE = FunctionTarget(
    lambda x: np.where(x.sum(-1) == 1, 0.0, -np.inf), 26, initial_state=np.eye(26, dtype=int)[0]
)
pytestmark = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")

FITS = {
    "tempering": (ParallelTempering(n_burn_in=300), GLASS),
    "two copies, found out": (ParallelTempering(n_burn_in=1100), GLASS),
    "two copies": (ParallelTempering(n_burn_in=150, crossover=True), GLASS),
    "betas": (ParallelTempering(n_burn_in=150, betas=[0.1, 0.4], init="uniform"), GLASS),
    "a core": (ParallelTempering(n_burn_in=150, eliminate=3), NETWORK),
    "layers": (ParallelTempering(GibbsSampler("layers"), n_burn_in=150), MACHINE),
    "a function": (ParallelTempering(n_burn_in=100, n_replicas=4), FUNCTION),
    "separated": (ParallelTempering(), IMPOSSIBLE),
    "learned": (LSBSampler(n_burn_in=200), GLASS),
    "kept": (LSBSampler(n_burn_in=100, keep_burn_in=True, pilot=False), GLASS),
    "fixed": (LSBSampler("barker", n_burn_in=500), GLASS),
    "blocks": (LSBSampler("sqrt", n_burn_in=200, blocks=2), NETWORK),
    "first order": (LSBSampler(n_burn_in=200, fast=True, n_flips="auto", pilot=False), GLASS),
    "flips": (LSBSampler("sqrt", n_burn_in=200, fast=True, n_flips="auto"), GLASS),
    "sweeps": (GibbsSampler("chromatic", n_burn_in=500), BIG),
    "sweeps, kept": (GibbsSampler("random", n_burn_in=200, keep_burn_in=True), GLASS),
}


class Cut(Exception):
    """A crash."""


def cut_off(monkeypatch, at):
    """Let the ``at``-th writing of a file be followed by a crash."""
    left = [at]

    def write(path, data):
        checkpoint_write(path, data)
        left[0] -= 1
        if not left[0]:
            raise Cut

    checkpoint_write = checkpoint.write_file
    monkeypatch.setattr(checkpoint, "write_file", write)


def often(monkeypatch):
    """Write whenever that is possible, and often."""
    monkeypatch.setattr("sklsb.ensembles.base.FIRST_SEGMENT", 16)
    monkeypatch.setattr("sklsb.ensembles.base.next_segment", lambda *_: 16)
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)


@pytest.fixture
def always(monkeypatch):
    """Write always."""
    often(monkeypatch)


def crashes(sampler, target, path):
    """How often a fit crashed, with one or two threads, until it found what it should."""
    sampler.set_params(n_chains=2, random_state=3)
    whole, n = found(sampler.fit(target)), 0
    while True:
        with pytest.MonkeyPatch.context() as patched:
            cut_off(patched, 1 + 3 * n)
            try:
                sampler.set_params(n_jobs=1 + n % 2).fit(target, checkpoint=path)
                break
            except Cut:
                n += 1
    assert found(sampler) == whole, "goes on bit for bit"
    return n


@pytest.mark.parametrize("name", FITS)
def test_a_fit_that_crashes_goes_on(name, tmp_path, always):
    sampler, target = FITS[name]
    if sampler.get_params().get("fast"):
        pytest.importorskip("torch")
    assert crashes(sampler, target, tmp_path / "fit") >= 2
    again = sampler.fit(target, checkpoint=tmp_path / "fit")  # only read
    draws = again.sample(20)
    assert draws.equals(sampler.fit(target).sample(20))


def test_killed_at_random_moments(tmp_path):
    lines = run_forked(killed_fit.main, tmp_path, 3, 0)
    assert [line.split()[1] for line in lines.splitlines()] == ["True", "True"]
    assert sum(int(line.split()[0]) for line in lines.splitlines())


@pytest.mark.slow
def test_killed_at_many_random_moments(tmp_path):
    lines = run_forked(killed_fit.main, tmp_path, 60, 1)
    assert [line.split()[1] for line in lines.splitlines()] == ["True", "True"]


def test_an_interrupt_writes_and_the_fit_goes_on(tmp_path, monkeypatch):
    sampler = ParallelTempering(n_chains=2, n_burn_in=300, random_state=3)
    whole, path, calls = found(sampler.fit(GLASS)), tmp_path / "fit", [0]

    def tick():
        calls[0] += 1
        if calls[0] == 4:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(schedule, "tick", tick)
    sampler = ParallelTempering(n_chains=2, n_burn_in=300, random_state=3)
    with pytest.raises(KeyboardInterrupt):
        sampler.fit(GLASS, checkpoint=path)
    assert calls == [4]
    assert not sampler.__sklearn_is_fitted__()
    with pytest.raises(StoreError, match=r"is of a fit that goes on: fit\(target, checkpoint="):
        ParallelTempering.load(path, GLASS)
    assert found(sampler.fit(GLASS, checkpoint=path)) == whole
    # A file of a finished fit is one that `load` reads, too.
    assert found(ParallelTempering.load(path, GLASS)) == whole


def test_a_finished_fit_says_again_what_it_found(tmp_path):
    sampler = ParallelTempering(n_chains=2, n_burn_in=600, n_replicas=3, random_state=3)
    hard = Ising.lattice(np.zeros((6, 6)), coupling=3.0)
    told = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SamplerWarning)
            sampler.fit(hard, checkpoint=tmp_path / "fit")
        told.append([str(warning.message) for warning in caught])
    assert told[0] == told[1]
    assert any("round trips" in message for message in told[0])


def test_what_has_no_burn_in_is_kept_when_it_is_finished(tmp_path):
    sampler = EliminationSampler(random_state=0).fit(NETWORK, checkpoint=tmp_path / "fit")
    again = EliminationSampler(random_state=0).fit(NETWORK, checkpoint=tmp_path / "fit")
    assert again.log_z_ == sampler.log_z_
    with pytest.raises(ValueError, match="A race cannot go on from a checkpoint; fit AutoSampler"):
        AutoSampler(random_state=0).fit(GLASS, checkpoint=tmp_path / "race")


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """Files of a fit that was cut off, and of the finished one."""
    folder = tmp_path_factory.mktemp("fits")
    sampler = ParallelTempering(n_chains=2, n_burn_in=64, random_state=3)
    sampler.fit(GLASS, initial_states=np.ones(36), checkpoint=folder / "finished")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpoint, "SECONDS", 0.0)
        patched.setattr(checkpoint, "SHARE", 1e9)
        cut_off(patched, 1)
        with pytest.raises(Cut):
            sampler.fit(GLASS, initial_states=np.ones(36), checkpoint=folder / "cut")
    return sampler, folder


@pytest.mark.parametrize("name", ["finished", "cut"])
def test_a_checkpoint_of_another_fit_is_refused(name, halves):
    sampler, folder = halves
    path, states = folder / name, np.ones(36)
    before = path.read_bytes()
    for params, match in [
        ({"n_burn_in": 65}, "n_burn_in was 64 and is 65. Give what it was, or another path"),
        ({"random_state": 4}, "random_state was 3 and is 4"),
        ({"reference": np.full((36, 2), 0.5)}, "reference was None and is array"),
        ({"explorer": GibbsSampler("random")}, "explorer was 'auto' and is GibbsSampler"),
    ]:
        other = ParallelTempering(**sampler.get_params() | params)
        with pytest.raises(StoreError, match=match):
            other.fit(GLASS, initial_states=states, checkpoint=path)
    fresh = ParallelTempering(**sampler.get_params())
    with pytest.raises(StoreError, match="class was 'ParallelTempering' and is 'GibbsSampler'"):
        GibbsSampler(n_chains=2).fit(GLASS, initial_states=states, checkpoint=path)
    with pytest.raises(StoreError, match="initial_states was array"):
        fresh.fit(GLASS, checkpoint=path)
    warmer = Ising.lattice(np.zeros((6, 6)), coupling=0.1)
    with pytest.raises(StoreError, match="is of another target: this is Ising"):
        fresh.fit(warmer, initial_states=states, checkpoint=path)
    assert path.read_bytes() == before
    fresh.set_params(verbose=0, n_jobs=2).fit(GLASS, initial_states=states, checkpoint=path)


LONG = Ising.lattice(np.zeros((40, 40)), coupling=0.1)


@pytest.mark.slow  # ladders from a reference are compiled for this only
def test_long_arrays_of_parameters_are_compared_as_a_whole(tmp_path):
    reference = np.full((1600, 2), 0.5)
    sampler = ParallelTempering(n_chains=1, n_burn_in=2, init="uniform", reference=reference)
    sampler.fit(LONG, checkpoint=tmp_path / "fit")
    reference[800] = 0.4, 0.6
    with pytest.raises(StoreError, match="reference has other values"):
        sampler.fit(LONG, checkpoint=tmp_path / "fit")


def test_long_arrays_are_compared_as_a_whole(tmp_path):
    frame = pd.DataFrame(np.ones((1, 1600), int), columns=LONG.names)
    sampler = GibbsSampler(n_chains=1, n_burn_in=2)
    sampler.fit(LONG, initial_states=frame, checkpoint=tmp_path / "sweeps")
    frame.iloc[0, 800] = -1
    with pytest.raises(StoreError, match="initial_states has other values"):
        sampler.fit(LONG, initial_states=frame, checkpoint=tmp_path / "sweeps")


def test_what_is_no_checkpoint_is_refused(tmp_path, halves):
    sampler = GibbsSampler(n_burn_in=5, n_chains=2, random_state=0).fit(GLASS)
    with pytest.raises(FileNotFoundError, match=r"make the folder .*nowhere first"):
        sampler.fit(GLASS, checkpoint=tmp_path / "nowhere" / "fit")
    sampler.save(tmp_path / "saved")
    with pytest.raises(StoreError, match="was written by save; read it with load"):
        sampler.fit(GLASS, checkpoint=tmp_path / "saved")
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(StoreError, match="notes is damaged: it does not begin as files of sklsb"):
        sampler.fit(GLASS, checkpoint=tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "mine"
    damaged = bytearray((halves[1] / "cut").read_bytes())
    damaged[-30] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    with pytest.raises(StoreError, match="damaged is damaged: its contents do not have"):
        sampler.fit(GLASS, checkpoint=tmp_path / "damaged")
    with pytest.raises(ValueError, match="warm_start goes on from chains that a checkpoint does"):
        sampler.set_params(warm_start=True).fit(GLASS, checkpoint=tmp_path / "fit")


def test_it_is_written_every_minute_and_rarely_if_that_takes_long(tmp_path, monkeypatch):
    now, written = [0.0], []
    monkeypatch.setattr(checkpoint, "time", type("Clock", (), {"perf_counter": lambda: now[0]}))

    def write(path, data):
        written.append(now[0])
        now[0] += 3.0

    monkeypatch.setattr(checkpoint, "write_file", write)
    file = checkpoint.Checkpoint()
    file.path = tmp_path / "fit"
    with file.loop(dict) as between:
        for _ in range(400):
            now[0] += 1.0
            between()
    # The third of a time: 3 s of writing, and 150 s between.
    assert written == [60.0, 213.0, 366.0, now[0] - 3.0]

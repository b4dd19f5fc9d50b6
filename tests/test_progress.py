"""Lines about phases: in a terminal, in a notebook, and in a file."""

import contextlib
import io
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from numba.core import event

from sklsb import GibbsSampler, Ising, LSBSampler
from sklsb._kernels.run import Drawing
from sklsb._system import progress as _progress
from sklsb._system.progress import Clock, Progress, Told, tick
from sklsb.ensembles.base import Segment
from sklsb.samplers._run.watch import Watch

pytestmark = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
MODEL = Ising.lattice(np.linspace(-1, 1, 12).reshape(3, 4), 0.2)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""
    now = SimpleNamespace(seconds=0.0)
    fake = SimpleNamespace(perf_counter=lambda: now.seconds)
    monkeypatch.setattr(_progress, "time", fake)
    return now


def written(stream, work):
    with contextlib.redirect_stderr(stream):
        work()
    return stream.getvalue()


def test_a_fit_says_what_it_does():
    target = Ising.lattice(np.linspace(-1, 1, 12).reshape(3, 4), 0.2)
    sampler = LSBSampler(n_chains=2, n_burn_in=400, random_state=0, verbose=1)
    shown = written(io.StringIO(), lambda: sampler.fit(target).sample(3, thin=20))
    assert "\r" not in shown
    lines = [line for line in shown.splitlines() if "compiling kernels ..." not in line]
    last = {line.split(":")[0]: line for line in lines}  # some phases may last, compiling
    assert list(last) == [
        "starts",
        "burn-in",
        "learning to mix",
        "pilot",
        "scouts",
        "sample",
    ]
    assert re.match(r"starts: 100%\|#+\| 2/2 \[.*chains", last["starts"])
    assert re.match(r"burn-in: 100%\|#+\| 800/800 \[.* steps", last["burn-in"])
    assert re.match(r"learning to mix: \d+ evaluations \[", last["learning to mix"])
    assert re.match(
        r"pilot: 100%.* evaluations/s, ([\d.]+ s compiling, )?\w+ chosen\]", last["pilot"]
    )
    attrs = sampler.history_.attrs
    seconds = {name: attrs[name] for name in attrs if name.endswith("_seconds")}
    names = [re.sub("[ -]", "_", name) + "_seconds" for name in [*last][:-1]]
    assert list(seconds) == [*names, "compiling_seconds"]
    assert min(seconds.values()) >= 0


def test_seconds_of_phases(clock):
    """Each second is counted once: in the innermost phase, or as compiling."""
    with Clock() as seconds:
        clock.seconds += 1.0  # of no phase
        with Progress(0, "burn-in"):
            clock.seconds += 2.0
            with Progress(0, "order of elimination"):
                clock.seconds += 4.0
                event.start_event("numba:compile")
                clock.seconds += 8.0
                event.end_event("numba:compile")
            clock.seconds += 16.0
        with Progress(0, "burn-in"):
            clock.seconds += 32.0
    with Progress(0, "burn-in"):
        clock.seconds += 64.0  # of another fit
    assert seconds.attrs() == {
        "order_of_elimination_seconds": 4.0,
        "burn_in_seconds": 50.0,
        "compiling_seconds": 8.0,
    }


def shown_by(stream, verbose, **settings):
    """Lines about drawing, with the draws."""
    sampler = GibbsSampler("random", n_chains=2, n_burn_in=10, random_state=0, verbose=verbose).fit(
        MODEL
    )
    with contextlib.redirect_stderr(stream):
        draws = sampler.sample(400, thin=2, **settings)
    whole = stream.getvalue().replace("\r", "\n").split("\n")
    lines = [line.rstrip() for line in whole if line and "compiling" not in line]
    return lines, draws


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_drawing_says_what_the_draws_show(stream):
    lines, draws = shown_by(stream(), 1)
    assert re.fullmatch(
        r"sample: 100%\|.+\| 1600/1600 \[[0-9:<]+, [^,]+, lp [-0-9.]+, R-hat 1\.[0-9]+\]",
        lines[-1],
    )
    assert all(line.startswith("sample: ") for line in lines)
    assert not shown_by(stream(), 0)[0]
    lines, draws = shown_by(stream(), 2)
    rows = [line for line in lines if line.startswith("  chain")]
    assert [line.partition(":")[0] for line in rows[-2:]] == ["  chain 0", "  chain 1"]
    if stream is io.StringIO:  # of all draws, as nothing was shown before
        means = draws["lp"].mean("draw").values
        assert rows == [f"  chain {c}: lp {mean:.6g}" for c, mean in enumerate(means)]


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_stopped_run_ends_its_line_and_says_why(stream):
    def enough(run):
        return run.total_draws > 60

    lines, draws = shown_by(stream(), 1, stop=enough)
    made = 2 * 2 * draws.sizes["draw"]
    assert made < 1600
    assert lines[-1].startswith("sample: 100%|")
    assert f" {made}/{made} [" in lines[-1]
    assert lines[-1].endswith(", stopped by enough]")
    lines, draws = shown_by(stream(), 1, stop=lambda run: False)
    assert "stopped by" not in lines[-1]
    assert draws.attrs["stopped_by"] == ""
    sampler = GibbsSampler("random", n_chains=2, n_burn_in=10, random_state=0).fit(MODEL)
    sampler.sample(400, thin=2, stop=enough)
    sampler.set_params(verbose=1)
    again = written(stream(), lambda: sampler.sample(400, thin=2, stop=enough))
    last = again.strip().replace("\r", "\n").split("\n")[-1]
    assert "stopped by enough" in last
    assert "%" not in last  # nothing was left to do


def test_columns():
    sampler = LSBSampler("barker", n_chains=20, n_burn_in=10, random_state=0).fit(MODEL)
    draws = sampler.sample(40)
    stats = sampler.sample_stats_
    seen = Watch((), sampler.run_.ensemble, 40, 1, verbose=1)
    values = np.stack([stats["lp"].values - MODEL.constant, stats["acceptance_rate"].values], 2)
    values[0, 3, 1] = np.nan  # no locally balanced step since the draw before
    x = draws["x"].values.reshape(20, 40, -1)
    seen.add(Segment(40, x, values, Drawing(1, at=80)))
    shown = seen.columns
    lp, rate = float(draws["lp"].mean()), np.nanmean(values[:, :, 1], axis=1)
    assert shown.columns() == [f"acceptance {rate.mean():.2f}", f"lp {lp:.6g}"]
    rows = shown.rows()
    assert rows[0] == f"  chain 0: acceptance {rate[0]:.2f}, lp {float(draws['lp'][0].mean()):.6g}"
    assert rows[-1] == "  and 4 more chains"
    assert len(rows) == 17
    # Nothing new:
    assert shown.columns() == [f"acceptance {rate.mean():.2f}", f"lp {lp:.6g}"]
    sampler.sample(300)
    r_hat = float(sampler.disagreement_["r_hat"].max())
    assert shown.columns(last=True)[-1].startswith(("R-hat 1.", "R-hat 0."))
    worst = max(r_hat, float(sampler.disagreement_["r_hat_lp"]))
    assert shown.columns(last=True)[-1] == f"R-hat {worst:.3f}"


def phase(clock):
    with Progress(1, "burn-in", 100, "steps") as progress:
        for _ in range(10):
            clock.seconds += 1.0
            progress(10)


def test_a_file_gets_few_lines(clock):
    lines = written(io.StringIO(), lambda: phase(clock)).splitlines()
    assert [line.split("|")[0] for line in lines] == [
        "burn-in:  20%",
        "burn-in:  40%",
        "burn-in:  80%",
        "burn-in: 100%",
    ]
    assert " 100/100 [" in lines[-1]


def test_a_terminal_gets_one_line_written_over(clock):
    shown = written(Terminal(), lambda: phase(clock))
    assert shown.count("\n") == 1
    assert shown.endswith("\n")
    versions = shown.rstrip("\n").split("\r")[1:]
    assert versions[0].startswith("burn-in:   0%|")
    assert versions[-1].startswith("burn-in: 100%|")
    assert len(versions) > 10


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_compilation_is_told_apart(clock, stream):
    def work():
        with Progress(1, "starts") as progress:
            for _ in range(2):
                with event.trigger_event("numba:compile"), event.trigger_event("numba:compile"):
                    clock.seconds += 0.75
            progress()

    lines = written(stream(), work).replace("\r", "\n").split("\n")
    shown = [line.rstrip() for line in lines if line]
    assert sum("compiling kernels ..." in line for line in shown) == (
        1 if stream is io.StringIO else 2
    )
    assert re.fullmatch(r"starts: \[00:0\d, 1\.5 s compiling\]", shown[-1])


def test_rows_stay_above_the_line(clock):
    def work():
        with Told(1) as told:
            for k in (1, 2):
                clock.seconds += 0.5
                told({"scans": k, "log_z": 0.5})

    for stream in (io.StringIO(), Terminal()):
        clock.seconds = 0.0
        whole = written(stream, work).rstrip("\n").split("\n")
        lines = [line.rpartition("\r")[2].rstrip() for line in whole]  # what is left to be seen
        assert lines[-1].startswith("burn-in: 2 rounds [")
        rows = [line.split() for line in lines[:-1]]
        assert rows == [["scans", "log", "z", "seconds"], ["1", "0.5", "0.5"], ["2", "0.5", "1"]]


def test_a_phase_that_is_not_counted(clock):
    def work():
        with Progress(1, "anneal", 2.5) as progress:
            clock.seconds += 3.0
            progress(1.25)

    last = written(io.StringIO(), work).splitlines()[-1]
    assert re.fullmatch(r"anneal:  50%\|#+ +\| \[00:00<00:00\]", last)


def test_nothing_to_show_or_nowhere(clock, monkeypatch):
    def work(verbose, total=100):
        with Progress(verbose, "burn-in", total) as progress:
            clock.seconds += 9.0
            progress(1)

    assert not written(Terminal(), lambda: work(0))
    assert not written(Terminal(), lambda: Told(0)({"scans": 1}))
    assert not written(Terminal(), lambda: work(1, 0))
    monkeypatch.setattr(sys, "stderr", None)
    work(1)


def test_a_notebook_gets_a_bar_that_moves(clock, monkeypatch):
    """Though its stderr is no terminal."""
    monkeypatch.setitem(
        sys.modules,
        "IPython",
        SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=None)),
    )
    shown = written(io.StringIO(), lambda: phase(clock))
    assert shown.count("\r") > 10
    # The widget of a bar is not saved with the notebook, but this line is.
    assert re.fullmatch(r"burn-in: 100%\|.+\| 100/100 \[.+\]", shown.splitlines()[-1])
    assert shown.endswith("]\n")


def test_a_long_phase_of_a_slow_function_is_never_silent(clock):
    """`tick` shows the line without counting steps: every 10 seconds, later less often."""

    def work(seconds):
        with Progress(1, "starts", 4, "chains"):
            for _ in range(seconds):
                clock.seconds += 1.0
                tick(3)
        tick(5)  # of no phase

    lines = written(io.StringIO(), lambda: work(60)).splitlines()
    counts = [int(re.search(r"(\d+) values of the function", line)[1]) for line in lines]
    assert counts == [3 * n for n in (2, 4, 8, 16, 26, 36, 46, 56, 60)]
    assert len(written(io.StringIO(), lambda: work(36_000)).splitlines()) < 250
    assert not written(io.StringIO(), lambda: tick(1))

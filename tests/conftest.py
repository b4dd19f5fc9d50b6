"""Settings of the whole test suite."""

import gc
import os
import re
import signal
from pathlib import Path

# One process per core runs tests; read when NumPy and torch are imported.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import _pytest.doctest  # noqa: E402
import matplotlib  # noqa: E402
import pytest  # noqa: E402

matplotlib.use("Agg")


class Checker(_pytest.doctest._init_checker_class()):
    """Compares numbers by the decimals shown; without any, as in "1.", to which pytest gives 1."""

    def _remove_unwanted_precision(self, want, got):
        return super()._remove_unwanted_precision(want, got) if BARE.search(want) is None else got


BARE = re.compile(r"\d\.(?!\d|\.)")
_pytest.doctest.CHECKER_CLASS = Checker
QUICK = Path(__file__).parent / "quick"
# Compilation makes millions of objects that stay: looking at them again and again takes a tenth.
gc.set_threshold(50_000, 20, 100)


def pytest_configure(config):
    """Run kernels as plain Python in the quick tier; numba must not be imported before."""
    if config.option.markexpr == "quick":
        os.environ["NUMBA_DISABLE_JIT"] = "1"


def pytest_ignore_collect(collection_path, config):
    """Read no other file in the quick tier: to import them all takes longer than its tests."""
    other = collection_path.is_file() and not collection_path.is_relative_to(QUICK)
    return True if config.option.markexpr == "quick" and other else None


@pytest.fixture
def ctrl_c():
    """Python's own handler of SIGINT, which it does not install where SIGINT is ignored (nohup)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


@pytest.fixture
def one_segment(monkeypatch):
    """Make the first transitions of a call in one segment, whatever their cost may be."""
    monkeypatch.setattr("sklsb.targets.offers.Offers.may_be_slow", False)

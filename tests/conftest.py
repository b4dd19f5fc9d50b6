"""Settings of the whole test suite."""

import gc
import os
import signal

# One process per core runs tests; read when NumPy and torch are imported.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import matplotlib  # noqa: E402
import pytest  # noqa: E402

matplotlib.use("Agg")
# Compilation makes millions of objects that stay: looking at them again and again takes a tenth.
gc.set_threshold(50_000, 20, 100)


def pytest_configure(config):
    """Run kernels as plain Python in the quick tier; numba must not be imported before."""
    if config.option.markexpr == "quick":
        os.environ["NUMBA_DISABLE_JIT"] = "1"


@pytest.fixture
def ctrl_c():
    """Python's own handler of SIGINT, which it does not install where SIGINT is ignored (nohup)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)

"""Settings of the whole test suite."""

import signal

import matplotlib
import pytest

matplotlib.use("Agg")


@pytest.fixture
def ctrl_c():
    """Python's own handler of SIGINT, which it does not install where SIGINT is ignored (nohup)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)

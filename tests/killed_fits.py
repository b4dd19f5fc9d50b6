"""Fits that are killed at random moments: each goes on, and is compared with one that was not.

``python killed_fits.py folder n`` kills n times, and prints how many fits came of it.
"""

import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from models import untimed

from sklsb import Ising, LSBSampler
from sklsb.exceptions import SamplerWarning
from sklsb.samplers._run import keeper as _keeper


def new():
    return LSBSampler(n_chains=2, n_burn_in=5000, random_state=5)


def is_done(child, seconds):
    """Whether a process ends by itself in some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.002)
    return False


def main(folder, n):
    warnings.simplefilter("ignore", SamplerWarning)
    _keeper.COMMIT_SECONDS, _keeper.COMMIT_SHARE = 0.0, 0.5
    rng = random.Random(n)
    target = Ising.lattice(np.random.default_rng(0).normal(size=(12, 12)), 0.3)
    whole = new().fit(target)
    began = time.monotonic()
    new().fit(target)
    seconds = time.monotonic() - began
    n_killed = n_fits = 0
    while n_killed < n:
        path = folder / str(n_fits)
        for _ in range(4):
            child = os.fork()
            if not child:
                new().fit(target, store=path)
                os._exit(0)
            if is_done(child, rng.random() * 0.7 * seconds):
                break
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            n_killed += 1
        again = new().fit(target, store=path)
        assert again._packed_chains() == whole._packed_chains()
        assert untimed(again.history_).identical(untimed(whole.history_))
        n_fits += 1
    print(n_killed, n_fits)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

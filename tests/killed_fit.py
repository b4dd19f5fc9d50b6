"""Fits that are killed while they run: each goes on from its checkpoint until it is finished.

`main` forks fits of a sampler, kills each at a random moment, n times, and prints how often it went
on, and whether it found what an undisturbed fit finds.
"""

import os
import random
import signal
import time
import warnings

import numpy as np

from sklsb import Ising, LSBSampler, ParallelTempering
from sklsb.exceptions import SamplerWarning
from sklsb.samplers._run.saving import packed_sampler
from sklsb.storage import checkpoint


def found(sampler):
    """All that a fit found, but for the seconds and threads it took."""
    history = sampler.history_.attrs
    sampler.set_params(n_jobs=1).run_.follow(1, 0)
    sampler.run_.ensemble.use_threads(1)
    for name in [name for name in history if name.endswith("_seconds")]:
        del history[name]
    return packed_sampler(sampler)


def main(folder, n, seed):
    warnings.simplefilter("ignore", SamplerWarning)
    checkpoint.SECONDS, checkpoint.SHARE = 0.0, 1e9
    rng = random.Random(seed)
    couplings = np.random.default_rng(0).normal(size=(2, 6, 6))
    glass = Ising.lattice(np.zeros((6, 6)), coupling=couplings)
    samplers = [
        ParallelTempering(n_chains=2, n_burn_in=600, random_state=1),
        LSBSampler(n_chains=2, n_burn_in=500, random_state=1, init="uniform"),
    ]
    for k, sampler in enumerate(samplers):
        path, resumed = folder / str(k), 0
        began = time.monotonic()
        whole = found(sampler.fit(glass))
        length = time.monotonic() - began
        for _ in range(n):
            resumed += path.exists()
            child = os.fork()
            if not child:
                sampler.fit(glass, checkpoint=path)
                os._exit(0)
            time.sleep(rng.random() * length / 2)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        print(resumed, found(sampler.fit(glass, checkpoint=path)) == whole, flush=True)

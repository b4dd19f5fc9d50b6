"""Runs that are killed while they write: each is resumed, and compared with one that was not.

`main` forks n runs of a sampler, kills each at a random moment, and prints how many draws each had
made and stored.
"""

import os
import random
import shutil
import signal
import time
import warnings

import numpy as np

from sklsb import GibbsSampler, Ising, open_draws
from sklsb.exceptions import SamplerWarning
from sklsb.samplers._run.stored import StoredDraws
from sklsb.storage import stores

CHUNK, MOST, AFTER = 20, 5000, 30


def run(sampler, path, report):
    after = StoredDraws.after

    def told(self, carry):
        after(self, carry)
        os.write(report, int(carry.store.n_draws).to_bytes(8, "little"))

    StoredDraws.after = told
    sampler.sample(10**7, thin=3, store=path)


def main(folder, n, seed):
    warnings.simplefilter("ignore", SamplerWarning)
    stores.CHUNK_DRAWS, stores.COMMIT_SECONDS, stores.COMMIT_SHARE = CHUNK, 0.0, 1e9
    rng = random.Random(seed)
    target = Ising(np.zeros((6, 6)), np.linspace(-1, 1, 6))
    sampler = GibbsSampler("random", n_chains=2, n_burn_in=10, random_state=seed).fit(target)
    sampler.save(folder / "fitted")
    whole = GibbsSampler.load(folder / "fitted", target).sample(MOST, thin=3)
    for k in range(n):
        path = folder / f"{k}.zarr"
        reading, report = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            run(sampler, path, report)
        os.close(report)
        while not path.exists():  # it appears when it is whole
            time.sleep(0.001)
        time.sleep(rng.random() * 0.3)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        told = b""
        while part := os.read(reading, 1 << 16):
            told += part
        os.close(reading)
        made = int.from_bytes(told[-8:], "little")
        stored = open_draws(path).sizes["draw"]
        again = GibbsSampler.resume(path, target)
        again.sample(AFTER, thin=3, store=path)
        found = open_draws(path)
        # What was written after the checkpoint is redone, and what readers saw stays.
        assert 0 <= stored <= found.sizes["draw"] - AFTER <= made + CHUNK
        assert made - (found.sizes["draw"] - AFTER) <= CHUNK
        size = min(MOST, found.sizes["draw"])
        for name in ("x", "lp"):
            expected = whole[name].values[:, :size]
            assert found[name].values[:, :size].tobytes() == expected.tobytes()
        print(made, stored, flush=True)
        shutil.rmtree(path)

"""Ctrl-C at random moments of `fit` and of a stored run: control comes back, nothing is lost.

`main` forks n runs, sends each a SIGINT, and prints for each where it was, and the seconds that
passed, of the processor and by the clock, until control was back.
"""

import contextlib
import copy
import os
import random
import shutil
import signal
import time
import warnings
from pathlib import Path

import numpy as np
from processes import last_of_a_fork

from sklsb import Ising, LSBSampler, open_draws
from sklsb.exceptions import InterruptedWarning, SamplerWarning
from sklsb.storage import stores
from sklsb.storage.stores import Store

TICK = os.sysconf("SC_CLK_TCK")
MOST = 3000


def new(seed):
    return LSBSampler("learned", n_chains=2, random_state=seed)


def fit(target, seed, begun):
    """Fit until it is interrupted; then the sampler must be as new."""
    sampler = new(seed)
    begun()
    try:
        while True:
            sampler.fit(target)
            sampler = new(seed)
    except KeyboardInterrupt as error:
        back = time.process_time(), time.monotonic()
        told = error.__notes__
    assert "fit was interrupted" in told[0]
    sampler.set_params(n_burn_in=20, pilot=False).fit(target).sample(200)
    return back


def sample(sampler, path, begun):
    """Sample to a store until it is interrupted; then go on."""
    begun()
    with contextlib.suppress(KeyboardInterrupt):  # before the first draw
        sampler.sample(10**7, thin=3, store=path)
    back = time.process_time(), time.monotonic()
    sampler.sample(20, thin=3, store=path)
    return back


def child(work, report):
    with last_of_a_fork():
        back = work(lambda: os.write(report, b"begun   "))
        os.write(report, np.array(back).tobytes())


def interrupt(work, seconds):
    """Run some work in a fork, and interrupt it; return the seconds until control was back."""
    reading, report = os.pipe()
    pid = os.fork()
    if not pid:
        child(work, report)
    os.close(report)
    os.read(reading, 8)
    time.sleep(seconds)
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    used, sent = sum(map(int, fields[11:13])) / TICK, time.monotonic()
    os.kill(pid, signal.SIGINT)
    back = os.read(reading, 16)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(reading)
    cpu, clock = np.frombuffer(back)
    return cpu - used, clock - sent


def main(folder, n, seed):
    warnings.simplefilter("ignore", SamplerWarning)
    warnings.simplefilter("ignore", InterruptedWarning)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored (nohup)
    stores.CHUNK_DRAWS, stores.COMMIT_SECONDS, stores.COMMIT_SHARE = 500, 0.0, 1e9
    rng = random.Random(seed)
    target = Ising.lattice(np.linspace(-0.5, 0.5, 36).reshape(6, 6), 0.2)
    began = time.monotonic()
    sampler = new(seed).fit(target)
    length = time.monotonic() - began
    whole = copy.copy(sampler).sample(MOST, thin=3)
    for k in range(n):
        path = folder / f"{k}.zarr"
        if k % 2:
            found = interrupt(lambda begun: fit(target, seed, begun), rng.random() * length)
            print("fit", *found, flush=True)
            continue
        found = interrupt(lambda begun, p=path: sample(sampler, p, begun), rng.random() * 0.4)
        draws = open_draws(path)
        size = min(MOST, draws.sizes["draw"])
        for name in ("x", "lp"):
            expected = whole[name].values[:, :size]
            assert draws[name].values[:, :size].tobytes() == expected.tobytes()
        assert not Store.open(path, verify=True)[0].close()
        print("sample", *found, flush=True)
        shutil.rmtree(path)

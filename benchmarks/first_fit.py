"""What a first fit costs, and what it costs to keep every sweep.

The model of the README: 600 spins. CPU seconds of `fit` in new processes, with no kernel on disk
and with all of them there, imports not counted; then again in the same process. After that, sweeps
by colour of square lattices: millions of updates a second if every sweep is a draw, and if none is.

    python benchmarks/first_fit.py [--runs 3] [--sides 20 64]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

from sklsb import GibbsSampler, Ising

SAMPLERS = ("LSBSampler()", "AutoSampler()", 'GibbsSampler("chromatic")')
FIT = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import numba, scipy.sparse, scipy.stats, sklearn.base, xarray
from sklsb import AutoSampler, GibbsSampler, Ising, LSBSampler
xarray.Dataset({"x": ("y", np.zeros(1))})  # imports what it may hold
target = Ising.lattice(np.random.default_rng(0).normal(size=(20, 30)), coupling=0.4)
sampler = eval(sys.argv[1]).set_params(random_state=0)
for _ in range(2):
    began = time.process_time()
    sampler.fit(target)
    print(time.process_time() - began)
"""


def seconds(sampler, cache):
    """Seconds of two fits in a new process."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FIT, sampler],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(line) for line in done.stdout.split()]


def rates(side, runs, n=20_000):
    """Millions of updates a second with every sweep as a draw, and with none."""
    target = Ising.lattice(np.random.default_rng(0).normal(size=(side, side)), coupling=0.4)
    sampler = GibbsSampler("chromatic", n_burn_in=100, random_state=0).fit(target)
    best = np.full(2, np.inf)
    for _ in range(1 + runs):
        for k, (draws, thin) in enumerate(((n, 1), (1, n))):
            began = time.process_time()
            sampler.sample(draws, thin=thin)
            best[k] = min(best[k], time.process_time() - began)
    return sampler.n_chains * n * side**2 / best / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sides", type=int, nargs="+", default=[20, 64])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"CPU seconds of fit, least of {args.runs}   no kernels  on disk  same process")
    for sampler in SAMPLERS:
        found = []
        for _ in range(args.runs):
            with tempfile.TemporaryDirectory() as cache:
                cold, _ = seconds(sampler, cache)
                found.append((cold, *seconds(sampler, cache)))
        row = np.min(found, axis=0)
        print(f"{sampler:34s} {row[0]:10.1f} {row[1]:8.2f} {row[2]:13.2f}")
    print("\nM updates/s of sweeps      every one a draw   none")
    for side in args.sides:
        kept, bare = rates(side, args.runs)
        print(f"{side:4d} x {side:<4d} {kept:25.0f} {bare:8.0f}   ratio {kept / bare:.2f}")


if __name__ == "__main__":
    main()

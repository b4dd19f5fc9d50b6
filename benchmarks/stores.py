"""What it costs to write draws to a store: speed beside draws in memory, and memory.

    python benchmarks/stores.py            # speed, a minute
    python benchmarks/stores.py --memory   # memory: 100,000 draws of 4 chains of 10,000 sites

Stored and unstored runs take turns, so that other work on the machine slows both. The ratio by the
clock contains the time in which the disk is waited for; that by the processor does not.
"""

import argparse
import resource
import shutil
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from sklsb import GibbsSampler, Ising, LSBSampler
from sklsb.exceptions import SamplerWarning


def resident():
    """Bytes in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def timed(call):
    clock, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - clock, time.process_time() - processor


def speed(sampler, n, rounds, folder):
    """Ratios of the seconds of unstored and stored runs, by the clock and by the processor."""
    seconds = np.zeros((2, rounds, 2))
    sampler.sample(1, thin="sweep", store=folder / "first.zarr")  # imports zarr
    shutil.rmtree(folder / "first.zarr")
    for k in range(rounds):
        path = folder / f"{k}.zarr"
        seconds[0, k] = timed(lambda: sampler.sample(n, thin="sweep"))
        seconds[1, k] = timed(lambda p=path: sampler.sample(n, thin="sweep", store=p))
        shutil.rmtree(path)
    total = seconds.sum(axis=1)
    each = seconds[0] / seconds[1]
    print(
        f"{type(sampler).__name__:14s} {n} draws: unstored / stored "
        f"{total[0, 0] / total[1, 0]:.3f} by the clock (rounds {each[:, 0].min():.2f} to "
        f"{each[:, 0].max():.2f}), {total[0, 1] / total[1, 1]:.3f} by the processor; "
        f"{1e3 * total[0, 1] / (rounds * n):.2f} ms a draw"
    )


def memory(sampler, n, thin, folder):
    """Memory over that before, while draws are stored."""
    path = folder / "large.zarr"
    before, most = resident(), []
    parts = 20
    for _ in range(parts):
        sampler.sample(n // parts, thin=thin, store=path)
        most.append((resident() - before) / 1e6)
    size = sum(file.stat().st_size for file in path.rglob("*")) / 1e9
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3 - before / 1e6
    print(
        f"{n} draws, thin={thin}: memory over that after fit {most[0]:.0f} MB after a twentieth, "
        f"{most[-1]:.0f} MB in the end, {peak:.0f} MB at most; {size:.2f} GB on the disk"
    )
    shutil.rmtree(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--draws", type=int, default=100_000, help="for --memory")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--folder", help="where the stores are written")
    args = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    rng = np.random.default_rng(0)
    target = Ising.lattice(rng.normal(scale=0.5, size=(100, 100)), coupling=0.3)
    try:
        lsb = LSBSampler("barker", n_burn_in=10_000, random_state=0).fit(target)
        gibbs = GibbsSampler("chromatic", n_burn_in=10, random_state=0).fit(target)
        if args.memory:
            memory(gibbs, args.draws, 1, folder)
            memory(gibbs, args.draws // 10, 5, folder)
        else:
            speed(lsb, 400, args.rounds, folder)
            speed(gibbs, 4000, args.rounds, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

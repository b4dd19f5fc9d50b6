"""Threads, processes and a cluster of two workers: the same draws, and what each costs.

    python benchmarks/parallel.py             # 4 chains, Ising 100x100: threads beside processes
    python benchmarks/parallel.py --cluster   # and two worker processes of Dask

All runs make the same draws, which is checked bit for bit. They take turns, so that other work on
the machine slows all of them; the first of each starts workers and reads kernels, and is not
counted. CPU seconds are of all processes. Ratios of single rounds show how busy the machine was: two
processes, or two threads, take up to a quarter longer for the same work beside that of others. So
runs of as many draws that are one transition apart tell what workers cost besides the transitions:
sending the target, and the draws back.
"""

import argparse
import contextlib
import os
import time
import warnings

import joblib
import numpy as np
import psutil

from sklsb import Ising, LSBSampler, sample_chains
from sklsb.exceptions import SamplerWarning


def processor():
    """CPU seconds of this process and those it has started and that live."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def fitted():
    rng = np.random.default_rng(0)
    target = Ising.lattice(rng.normal(scale=0.5, size=(100, 100)), coupling=0.3)
    return LSBSampler("barker", n_burn_in=10_000, init="uniform", random_state=0).fit(target)


def compare(backends, sampler, n, rounds, thin="sweep"):
    """Seconds by the clock and by the processor, (backends, rounds, 2); the draws are compared."""
    seconds = np.zeros((len(backends), rounds + 1, 2))
    expected = None
    for k in range(rounds + 1):
        for i, (_, context) in enumerate(backends):
            with context():
                clock, cpu = time.perf_counter(), processor()
                draws = sample_chains(sampler, n if k else 2, n_chains=4, thin=thin)
                seconds[i, k] = time.perf_counter() - clock, processor() - cpu
            if not i:
                expected = draws
            bits = sum(
                int(np.unpackbits((a ^ b).view(np.uint8)).sum())
                for a, b in (
                    (draws["x"].values.view(np.uint8), expected["x"].values.view(np.uint8)),
                    (draws["lp"].values.view(np.uint64), expected["lp"].values.view(np.uint64)),
                )
            )
            assert not bits, bits
    return seconds[:, 1:]


def printed(backends, seconds):
    first = seconds[0].sum(axis=0)
    for (name, _), mine in zip(backends, seconds, strict=True):
        ratio = seconds[0][:, 0] / mine[:, 0]
        total = mine.sum(axis=0)
        print(
            f"{name:10s} {mine[:, 0].mean():6.2f} s by the clock, {mine[:, 1].mean():6.2f} s of processors; "
            f"speed beside {backends[0][0]} {first[0] / total[0]:.3f} (rounds {ratio.min():.2f} to "
            f"{ratio.max():.2f}), by the processor {first[1] / total[1]:.3f}; 0 bits differ",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--draws", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    sampler = fitted()
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    backends = [
        ("threads", lambda: joblib.parallel_config("threading", n_jobs=2)),
        ("processes", lambda: joblib.parallel_config("loky", n_jobs=2)),
    ]
    with contextlib.ExitStack() as stack:
        if args.cluster:
            from distributed import Client, LocalCluster

            began = time.perf_counter()
            cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
            stack.enter_context(cluster)
            stack.enter_context(Client(cluster))
            print(f"start of the cluster {time.perf_counter() - began:.1f} s")
            backends.append(("cluster", lambda: joblib.parallel_config("dask")))
        runs = compare(backends, sampler, args.draws, args.rounds)
        printed(backends, runs)
        rest = compare(backends, sampler, args.draws, 2 * args.rounds, thin=1)
    for (name, _), mine in zip(backends, rest, strict=True):
        extra = (mine - rest[0]).mean(axis=0)
        share = extra / runs[0].mean(axis=0)
        print(
            f"{name:10s} {args.draws} draws one transition apart: {mine[:, 0].mean():.2f} s by the clock; over "
            f"threads {extra[0]:+.2f} s, {100 * share[0]:+.1f}% of the run above; by the processor "
            f"{extra[1]:+.2f} s, {100 * share[1]:+.1f}%"
        )


if __name__ == "__main__":
    main()

"""Cluster updates beside sweeps by colour: effective samples per CPU second.

1. Periodic lattices at the critical coupling log(1 + sqrt 2) / 2 without a field: abs(m), with m
   the mean spin.
2. Where it pays and where not: the same 30x30 lattice colder, hotter, in fields and with couplings
   of random sign: the mean spin, or its absolute value where both signs are as probable.

One core; compilation and fit apart. Chains start from states of 500 cluster updates (1), or after a
burn-in (2). Each sampler draws at the best of several distances.

    python benchmarks/clusters.py [--part 1 2] [--seconds 20] [--seeds 3]
"""

import argparse
import time
import warnings

import arviz
import numpy as np
import xarray as xr

from sklsb import ClusterSampler, GibbsSampler, Ising
from sklsb.exceptions import SamplerWarning

CRITICAL = 0.5 * np.log(1.0 + np.sqrt(2.0))
N_CHAINS = 4


def mean_spin(x):
    return x.reshape(len(x), -1).mean(axis=1)


def measured(sampler, thin, seconds, of):
    """ESS of a statistic of m per CPU second, and the ESS, of about so many seconds of draws."""
    record = {"m": mean_spin}
    began = time.process_time()
    sampler.sample(20, thin=thin, record=record)
    each = (time.process_time() - began) / 20
    n = max(100, int(seconds / each))
    began = time.process_time()
    draws = sampler.sample(n, thin=thin, record=record)
    took = time.process_time() - began
    ess = float(arviz.ess(xr.Dataset({"m": of(draws["m"])}), method="mean")["m"])
    return ess / took, ess


def best(sampler, target, thins, seconds, of, **fit):
    """Best distance of draws by short runs; then ESS per second of a long run there."""
    sampler.fit(target, **fit)
    if len(thins) > 1:
        rates = {thin: measured(sampler, thin, seconds / 5, of)[0] for thin in thins}
        thins = [max(rates, key=rates.get)]
    return *measured(sampler, thins[0], seconds, of), thins[0]


def samplers(seed):
    """Samplers, and distances of draws to try."""
    common = {"n_chains": N_CHAINS, "random_state": seed}
    return {
        "clusters": (ClusterSampler(**common), [1, 2]),
        "chromatic": (GibbsSampler("chromatic", **common), [1, 5, 25, 125]),
    }


def critical(options):
    print("critical lattices: ESS of abs(m) per CPU second")
    for size in (30, 100):
        target = Ising.lattice(np.zeros((size, size)), CRITICAL)
        rows = {}
        for seed in range(options.seeds):
            start = ClusterSampler(n_chains=N_CHAINS, n_burn_in=500, random_state=100 + seed)
            states = start.fit(target).state_
            for name, (sampler, thins) in samplers(seed).items():
                sampler.set_params(n_burn_in=0)
                slow = name == "chromatic" and size > 50
                seconds = options.seconds * (5 if slow else 1)
                thins = [125] if slow else thins
                rate, ess, thin = best(sampler, target, thins, seconds, abs, initial_states=states)
                rows.setdefault(name, []).append(rate)
                print(f"  {size}: {name} {rate:,.2f} (ESS {ess:,.0f}, thin {thin})", flush=True)
        for name, found in rows.items():
            ratio = np.array(found) / np.array(rows["chromatic"])
            print(f"{size}x{size} {name:10s} {np.round(found, 2)}, beside colours {ratio.round(1)}")


def cases():
    """Targets by name, and the statistic of m."""
    rng = np.random.default_rng(0)
    flat, noise = np.zeros((30, 30)), rng.normal(size=(30, 30))
    signs = Ising.lattice(flat, CRITICAL).couplings.copy()
    upper = np.triu(rng.choice([-1.0, 1.0], signs.shape), 1)
    signs = signs.multiply(upper + upper.T)
    plain = lambda m: m  # noqa: E731
    yield "critical", Ising.lattice(flat, CRITICAL), abs
    yield "hot, 0.2", Ising.lattice(flat, 0.2), abs
    yield "cold, 0.6", Ising.lattice(flat, 0.6), plain
    yield "critical, field 0.01", Ising.lattice(flat + 0.01, CRITICAL), plain
    yield "critical, field 0.1", Ising.lattice(flat + 0.1, CRITICAL), plain
    yield "critical, fields of sd 0.1", Ising.lattice(0.1 * noise, CRITICAL), plain
    yield "critical, fields of sd 0.5", Ising.lattice(0.5 * noise, CRITICAL), plain
    yield "0.8, fields of sd 1", Ising.lattice(noise, 0.8), plain
    yield "random signs", Ising(signs.tocsr()), plain


def where(options):
    print("30x30: ESS of m, or abs(m) where it is symmetric and hot, per CPU second")
    for name, target, of in cases():
        row = []
        for which, (sampler, thins) in samplers(0).items():
            sampler.set_params(n_burn_in=2000)
            rate, ess, thin = best(sampler, target, thins, options.seconds / 4, of)
            row.append(f"{which} {rate:,.1f} (ESS {ess:,.0f}, thin {thin})")
        print(f"{name:28s} " + "  ".join(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU time of each run")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    for k in options.part:
        {1: critical, 2: where}[k](options)


if __name__ == "__main__":
    main()

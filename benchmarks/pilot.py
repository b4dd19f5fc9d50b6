"""Whether the pilot chooses the right function, and whether what it reports is true.

The targets have a few slow variables among many fast ones: spins that are tied in pairs (J = 2.5,
no field) among independent ones with fields N(0, 1). The slow ones carry about 5% of the variance,
and, with most functions, most of the autocorrelation time. Such variables are independent but for the pairs, so chains
can start from exact draws, and no burn-in blurs what they are worth.

For each target: a fit with default settings, then a long run of every candidate. The truth is the
autocorrelation time of the number of sites that differ, by Geyer's initial monotone sequence, with
the exact means and variances of the sites.

chosen / best    true effective sample size per transition of the chosen candidate, divided by
                 that of the best one
reported / true  what the pilot reported for the chosen candidate, divided by the truth; largest
                 factor by which it is off for any candidate in brackets
pull             (log reported - log true) / relative error, of the chosen one; the error is the
                 pilot's and that of the truth together

    python benchmarks/pilot.py [--seeds 20] [--first 100] [--shorter 1] [--json FILE]
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
from scipy import fft

import sklsb.samplers._lsb.choosing
from sklsb import Ising, LSBSampler
from sklsb.balancing.functions import Tabulated
from sklsb.exceptions import SamplerWarning
from sklsb.trials.pilot import compare

COUPLING = 2.5
N_CHAINS = 8


class Family(NamedTuple):
    n: int
    n_pairs: int
    n_steps: int  # of each chain of the long runs
    thin: int


FAMILIES = (Family(200, 3, 1_000_000, 20), Family(60, 1, 500_000, 5))


def pairs_among_free(family, seed):
    rng = np.random.default_rng([9, seed])
    couplings, field = np.zeros((family.n, family.n)), rng.normal(size=family.n)
    field[: 2 * family.n_pairs] = 0.0
    for i in range(0, 2 * family.n_pairs, 2):
        couplings[i, i + 1] = couplings[i + 1, i] = COUPLING
    return Ising(couplings, field)


def exact_draws(family, target, rng):
    x = np.where(rng.random((N_CHAINS, family.n)) < 0.5 * (1 + np.tanh(target.field)), 1, -1)
    same = rng.random((N_CHAINS, family.n_pairs)) < 0.5 * (1 + np.tanh(COUPLING))
    first = x[:, : 2 * family.n_pairs : 2]
    x[:, 1 : 2 * family.n_pairs : 2] = np.where(same, first, -first)
    return x.astype(np.int8)


def autocovariances(draws, means):
    """Sum over the sites, by chain and lag, from draws (n_chains, n, n_sites)."""
    n = draws.shape[1]
    size = fft.next_fast_len(2 * n, real=True)
    total = np.zeros((len(draws), n))
    for site, mean in enumerate(means):
        x = draws[:, :, site].astype(np.float32) - np.float32(mean)
        total += fft.irfft(np.abs(fft.rfft(x, size, axis=1)) ** 2, size, axis=1)[:, :n]
    return total / (n - np.arange(n))


def geyer_time(rho):
    even = rho.size // 2 * 2
    pairs = rho[0:even:2] + rho[1:even:2]
    positive = np.logical_and.accumulate(pairs > 0)
    return 2 * float((np.minimum.accumulate(pairs) * positive).sum()) - 1


def true_time(family, target, function, seed, shorter):
    """Autocorrelation time in transitions and its relative standard error."""
    start = exact_draws(family, target, np.random.default_rng([1, *seed]))
    sampler = LSBSampler(
        function,
        n_chains=N_CHAINS,
        n_burn_in=0,
        random_state=np.random.SeedSequence(seed),
    ).fit(target, initial_states=start)
    n = family.n_steps // (family.thin * shorter)
    draws = sampler.sample(n, thin=family.thin)["x"].values
    means = np.tanh(target.field)
    rho = autocovariances(draws, means) / (1 - means**2).sum()
    without = [geyer_time(np.delete(rho, k, axis=0).mean(axis=0)) for k in range(N_CHAINS)]
    error = np.sqrt((N_CHAINS - 1) * np.log(without).var())
    return family.thin * geyer_time(rho.mean(axis=0)), float(error)


def row_of(family, seed, shorter):
    target = pairs_among_free(family, seed)
    functions = {}

    def spy(rules, *args, **settings):
        functions.update({name: Tabulated(rule.table) for name, rule in rules.items()})
        return compare(rules, *args, **settings)

    with mock.patch.object(sklsb.samplers._lsb.choosing, "compare", spy):
        settings = {"rejection_free": False, "factors": None, "random_state": seed}
        sampler = LSBSampler(**settings).fit(target)
    found = sampler.candidates_
    names = found["candidate"].values.tolist()
    truth = np.array(
        [true_time(family, target, functions[f], [seed, k], shorter) for k, f in enumerate(names)]
    )
    ess, reported = 1.0 / truth[:, 0], found["ess_per_step"].values
    chosen = names.index(found.attrs["chosen"])
    error = np.hypot(found["ess_error"].values / reported, truth[:, 1])
    return {
        "n": family.n,
        "seed": seed,
        "chosen": names[chosen],
        "best": names[int(np.argmax(ess))],
        "chosen_to_best": float(ess[chosen] / ess.max()),
        "reported_to_true": float(reported[chosen] / ess[chosen]),
        "pull": float(np.log(reported[chosen] / ess[chosen]) / error[chosen]),
        "all_reported_to_true": (reported / ess).tolist(),
        "all_pulls": (np.log(reported / ess) / error).tolist(),
        "true": ess.tolist(),
        "true_error": truth[:, 1].tolist(),
    }


def summary(rows):
    chosen, reported = (
        np.array([r[k] for r in rows]) for k in ("chosen_to_best", "reported_to_true")
    )
    every = np.exp(np.abs(np.log([r["all_reported_to_true"] for r in rows])))
    return (
        f"chosen / best: at least .9 in {(chosen >= 0.9).sum()} of {len(rows)}, least "
        f"{chosen.min():.3f}; reported / true: {reported.min():.2f} to {reported.max():.2f}, "
        f"within a factor 1.5 in {(np.abs(np.log(reported)) < np.log(1.5)).sum()}; "
        f"of any candidate in {(every < 1.5).mean():.1%}; pull: chosen "
        f"{np.sqrt(np.mean([r['pull'] ** 2 for r in rows])):.1f}, all "
        f"{np.sqrt(np.mean(np.square([r['all_pulls'] for r in rows]))):.1f} (root mean square)"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=100, help="others were used for tuning")
    parser.add_argument("--shorter", type=int, default=1, help="divides the long runs")
    parser.add_argument("--json", type=Path, default=Path("pilot.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    rows = []
    for family in FAMILIES:
        began = time.perf_counter()
        print(f"--- {family.n_pairs} pairs among {family.n} spins")
        print("seed  chosen       best         chosen/best  reported/true         pull")
        own = []
        for seed in range(options.first, options.first + options.seeds):
            row = row_of(family, seed, options.shorter)
            own.append(row)
            off = np.exp(np.abs(np.log(row["all_reported_to_true"])).max())
            print(
                f"{seed:4d}  {row['chosen']:12s} {row['best']:12s} {row['chosen_to_best']:11.3f}"
                f"  {row['reported_to_true']:13.3f} ({off:.2f})  {row['pull']:5.1f}",
                flush=True,
            )
        print(f"{summary(own)}; {time.perf_counter() - began:.0f} s", flush=True)
        rows += own
    options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

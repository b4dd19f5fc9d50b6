"""Inclusion probabilities by counting and by averages of conditional probabilities.

Regressions with ten signals among p columns that follow each other (n = 500). From each data set:
runs of ``LSBSampler("barker", blocks=None)`` that count draws, and runs of the same chains with
``record="marginals"``. Prints the sum over columns of the squared errors times the CPU seconds, for
both, their ratio, that of the median column, and what recording costs. The truth is a long run of
averages from other seeds.

    python benchmarks/conditionals.py [--sizes 200 1000] [--seeds 3] [--json conditionals.json]
"""

import argparse
import copy
import json
import time
import warnings
from pathlib import Path

import numpy as np

from sklsb import LSBSampler, VariableSelection
from sklsb.exceptions import SamplerWarning

SIGNALS = np.array([2.0, -3.0, 2.0, 2.0, -3.0, 3.0, -2.0, 3.0, -2.0, 3.0])


def regression(p, seed, n=500):
    rng = np.random.default_rng(seed)
    x = np.empty((n, p))
    x[:, 0] = rng.normal(size=n)
    for j in range(1, p):
        x[:, j] = 0.6 * x[:, j - 1] + 0.8 * rng.normal(size=n)
    signal = x[:, :10] @ (SIGNALS * np.sqrt(np.log(p) / n))
    return VariableSelection(x, signal + rng.normal(size=n))


def fitted(target, seed):
    sampler = LSBSampler("barker", blocks=None, n_chains=4, n_burn_in=5000, random_state=seed)
    return sampler.fit(target)


def timed(sampler, n, thin, **settings):
    began = time.process_time()
    found = sampler.sample(n, thin=thin, **settings)
    return found, time.process_time() - began


def measured(p, seed, options):
    target = regression(p, seed)
    began = time.process_time()
    found = [
        fitted(target, 1000 + k).sample(options.truth, thin=10, record="marginals")
        for k in range(2)
    ]
    of_truth = time.process_time() - began
    p_of = [one["p"].values[:, 1] for one in found]
    truth = sum(p_of) / 2
    by_column, seconds = np.zeros((2, p)), np.zeros(2)
    for k in range(options.runs):
        sampler = fitted(target, k)
        thin = options.thin or sampler.thin_
        for way, one in enumerate((sampler, copy.copy(sampler))):
            settings = {"record": "marginals"} if way else {}
            one.sample(1, thin=thin, **settings)  # compiled
            draws, spent = timed(one, options.draws, thin, **settings)
            shares = draws["p"].values[:, 1] if way else draws["x"].values.mean(axis=(0, 1))
            by_column[way] += np.square(shares - truth) / options.runs
            seconds[way] += spent / options.runs
    squares = by_column.sum(axis=1)
    return {
        "p": p,
        "seed": seed,
        "thin": thin,
        "counting": squares[0] * seconds[0],
        "averages": squares[1] * seconds[1],
        "cost": seconds[1] / seconds[0],
        "median": float(np.median(by_column[0] / by_column[1])) * seconds[0] / seconds[1],
        "error_of_truth": float(np.square(p_of[0] - p_of[1]).sum() / 4),
        "error_of_averages": squares[1],
        "seconds_of_truth": of_truth,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--truth", type=int, default=10_000, help="draws of each chain")
    parser.add_argument("--thin", type=int, default=0, help="0: as by thin='auto'")
    parser.add_argument("--json", type=Path, default=Path("conditionals.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    rows = []
    print(
        "   p seed thin   counting   averages  ratio (of the median column)  cost  squared errors: truth, averages"
    )
    for p in options.sizes:
        for seed in range(options.seeds):
            row = measured(p, seed, options)
            rows.append(row)
            print(
                f"{p:4d} {seed:4d} {row['thin']:4d} {row['counting']:10.3g} {row['averages']:10.3g} "
                f"{row['counting'] / row['averages']:6.1f} {row['median']:24.1f} {row['cost']:5.2f}  "
                f"{row['error_of_truth']:.2g} {row['error_of_averages']:.2g}",
                flush=True,
            )
    options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

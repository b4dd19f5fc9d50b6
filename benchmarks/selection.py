"""Variable selection: whether the pilot chooses a way to sample that is worth it.

Regressions with n = 500 rows and p correlated columns, ten of which matter. On the way up to the
likely models Z(x) grows by factors, and functions that look alike in short runs differ by factors
of 100. For each data set: a fit with default settings, but no blocks, then long runs from where it
ended of what was chosen and of the four fixed functions as Metropolis-Hastings steps.

ratio    ESS per CPU second of what was chosen / that of the best fixed function, which is found on
         one half of the runs and measured on the other, both ways round: the largest of four noisy
         numbers is too large. ESS (arviz): the harmonic mean of the 25 columns that are most
         uncertain over all runs
median   the same with the median of these columns, most of which move freely whatever the function
agree    largest difference of an inclusion probability between what was chosen and the fixed
         functions together

    python benchmarks/selection.py [--seeds 10] [--first 9100] [--columns 200 600 1000 2000]
        [--page doc/measured/selection.inc]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import arviz
import numpy as np
from record import write_table

from sklsb import LSBSampler, VariableSelection
from sklsb.balancing.functions import FIXED
from sklsb.exceptions import SamplerWarning

N_ROWS = 500
SIGNALS = np.array([2.0, -3.0, 2.0, 2.0, -3.0, 3.0, -2.0, 3.0, -2.0, 3.0])
# Transitions of each chain in the long runs, by the number of columns.
N_STEPS = {200: 30_000, 600: 15_000, 1000: 10_000, 2000: 12_000}
N_COLUMNS = 25


def regression(p, seed):
    """Columns are an autoregressive process with coefficient .6."""
    rng = np.random.default_rng(seed)
    X = np.empty((N_ROWS, p))
    X[:, 0] = rng.normal(size=N_ROWS)
    for j in range(1, p):
        X[:, j] = 0.6 * X[:, j - 1] + 0.8 * rng.normal(size=N_ROWS)
    beta = np.zeros(p)
    beta[: SIGNALS.size] = SIGNALS * np.sqrt(np.log(p) / N_ROWS)
    return VariableSelection(X, X @ beta + rng.normal(size=N_ROWS))


def timed_draws(sampler, n_steps):
    """Draws after a tenth of the run, and the CPU seconds they took."""
    sampler.sample(n_steps // 10)
    began = time.process_time()
    draws = sampler.sample(n_steps)["x"].values
    return draws, time.process_time() - began


def sizes(draws, seconds, columns):
    """ESS per second of columns in the two halves of a run, (2, n_columns)."""
    half = draws.shape[1] // 2
    found = np.empty((2, columns.size))
    for k, part in enumerate((draws[:, :half], draws[:, half:])):
        for j, column in enumerate(columns):
            x = part[:, :, column].astype(float)
            found[k, j] = arviz.ess(x) if x.std() > 0 else 1.0
    return found / (seconds / 2)


def ratio(by_name, chosen):
    """Ratio to the best fixed function, which is found on the other half."""
    best = [max(FIXED, key=lambda f: by_name[f][half]) for half in (1, 0)]
    of_best = np.array([by_name[best[half]][half] for half in (0, 1)])
    return float(np.exp(np.log(by_name[chosen] / of_best).mean()))


def row_of(p, seed):
    target = regression(p, seed)
    began = time.process_time()
    fitted = LSBSampler(blocks=None, random_state=seed).fit(target)
    seconds = time.process_time() - began
    found = fitted.candidates_
    chosen = found.attrs["chosen"]
    state = fitted.state_
    # A transition by jumps makes several.
    cost = found["ess_per_step"].sel(candidate=chosen) / found["ess_per_work"].sel(candidate=chosen)
    runs = {}
    for k, name in enumerate(FIXED):
        sampler = LSBSampler(name, n_burn_in=0, blocks=None, random_state=k)
        runs[name] = timed_draws(sampler.fit(target, initial_states=state), N_STEPS[p])
    if chosen not in FIXED:
        runs[chosen] = timed_draws(fitted, int(N_STEPS[p] / max(1.0, float(cost))))
    shares = {name: draws.mean(axis=(0, 1)) for name, (draws, _) in runs.items()}
    mean = np.mean(list(shares.values()), axis=0)
    columns = np.argsort(mean * (1 - mean))[::-1][:N_COLUMNS]
    by_column = {name: sizes(*run, columns) for name, run in runs.items()}
    of_median = {name: np.median(e, axis=1) for name, e in by_column.items()}
    harmonic = {name: 1 / (1 / e).mean(axis=1) for name, e in by_column.items()}
    of_fixed = np.mean([shares[name] for name in FIXED], axis=0)
    return {
        "p": p,
        "seed": seed,
        "chosen": chosen,
        "ratio": ratio(harmonic, chosen),
        "median_ratio": ratio(of_median, chosen),
        "agree": float(np.abs(shares[chosen] - of_fixed).max()),
        "fit_seconds": seconds,
        "median": {name: float(e.mean()) for name, e in of_median.items()},
        "harmonic": {name: float(e.mean()) for name, e in harmonic.items()},
        "pilot": found["ess_per_work"].to_series().to_dict(),
    }


def summary(rows):
    """A row of the page for each number of columns."""
    for p in sorted({row["p"] for row in rows}):
        found = [row for row in rows if row["p"] == p]
        ratio, median = (np.array([row[key] for row in found]) for key in ("ratio", "median_ratio"))
        ends = f"{np.median(ratio):.2f} ({ratio.min():.2f} to {ratio.max():.2f})"
        good = [f"{(r >= 0.9).sum()} of {r.size}" for r in (ratio, median)]
        yield [f"{p:,}", ends, good[0], f"{np.median(median):.2f}", good[1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=9100, help="others were used for tuning")
    parser.add_argument("--columns", type=int, nargs="+", default=list(N_STEPS))
    parser.add_argument("--json", type=Path, default=Path("selection.json"))
    parser.add_argument("--page", help="writes the table of the page")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    rows = []
    print("   p  seed  chosen                ratio    median  agree  fit (s)")
    for seed in range(options.first, options.first + options.seeds):
        for p in options.columns:
            row = row_of(p, seed)
            rows.append(row)
            print(
                f"{p:4d}  {seed}  {row['chosen']:20s} {row['ratio']:6.2f} "
                f"{row['median_ratio']:9.2f} {row['agree']:6.3f} {row['fit_seconds']:8.1f}",
                flush=True,
            )
            options.json.write_text(json.dumps(rows, indent=1))
    header = [
        "columns",
        "chosen / best fixed",
        "at least 0.9",
        "by the median column",
        "at least 0.9",
    ]
    table = list(summary(rows))
    for row in (header, *table):
        print("  ".join(map(str, row)))
    if options.page:
        sources = ["sklsb/trials", "sklsb/samplers/_lsb", "sklsb/balancing"]
        sources.append("sklsb/targets/variable_selection.py")
        write_table(options.page, header, table, ["--seeds", str(options.seeds)], sources)


if __name__ == "__main__":
    main()

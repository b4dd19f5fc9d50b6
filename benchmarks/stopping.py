"""What stopping by the draws themselves costs: coverage of intervals, and time.

    python benchmarks/stopping.py            # coverage, ten minutes; --page FILE writes the table
    python benchmarks/stopping.py --cost     # time of the rules, half a minute

Coverage: runs that stop at an effective sample size of 100, and runs of the fixed length that is the
mean of theirs. Intervals of nominal 95% are p -+ 1.96 mcse of each variable, by record="moments";
p is known exactly. The model is a chain of six spins, where a Gibbs sampler takes a few sweeps for an
independent draw; variables are as probable as not, or rare.
"""

import argparse
import time
import warnings

import numpy as np
from record import write_table

from sklsb import GibbsSampler, Ising, LSBSampler, exact
from sklsb.diagnostics import AllOf, EffectiveSampleSize, RHat
from sklsb.exceptions import SamplerWarning


def model():
    couplings = np.diag(np.full(5, 0.7), 1)
    return Ising(couplings + couplings.T, [0.0, 0.0, 0.0, -0.8, -0.8, -0.8])


def runs(target, seeds, n, stop):
    """Marginals, their errors, and the numbers of draws."""
    p, error, size = [], [], []
    for seed in seeds:
        sampler = GibbsSampler(
            "random", n_chains=2, n_burn_in=120, init="uniform", random_state=int(seed)
        )
        found = sampler.fit(target).sample(n, thin="sweep", record="moments", stop=stop)
        p.append(found["p"].values[:, 1])
        error.append(found["mcse"].values[:, 1])
        size.append(found.attrs["n_draws"])
    return np.array(p), np.array(error), np.array(size)


def told(name, truth, p, error, size):
    inside = np.abs(p - truth) < 1.96 * error  # an unknown error covers nothing
    z = (p - truth).mean(axis=0) / (p.std(axis=0) / np.sqrt(len(p)))
    print(
        f"{name:22s} {size.mean():6.0f} draws ({size.min()} to {size.max()}); coverage "
        + " ".join(f"{c:.3f}" for c in inside.mean(axis=0))
        + f", mean {inside.mean():.3f}; bias / sd "
        + " ".join(f"{b:+.2f}" for b in (p - truth).mean(axis=0) / p.std(axis=0))
        + f" (z {np.abs(z).max():.1f}); sd "
        + " ".join(f"{s:.4f}" for s in p.std(axis=0)),
        flush=True,
    )
    return f"{100 * inside.mean():.1f}%"


def coverage(n_runs, page):
    target = model()
    truth = exact.marginals(target)["p"].values[:, 1]
    print("p " + " ".join(f"{p:.3f}" for p in truth))
    rules = {
        "ESS 100": EffectiveSampleSize(100),
        "ESS 400": EffectiveSampleSize(400),
        "R-hat 1.01": RHat(1.01),
        "ESS 100 and R-hat 1.01": AllOf(EffectiveSampleSize(100), RHat(1.01)),
    }
    rows = []
    for name, rule in rules.items():
        p, error, size = runs(target, range(n_runs), 100_000, rule)
        row = [name, f"{size.mean():,.0f}", f"{size.min():,}", told(name, truth, p, error, size)]
        fixed = runs(target, range(10**6, 10**6 + n_runs), round(size.mean()), None)
        rows.append([*row, told("  as many, fixed", truth, *fixed)])
    if page:
        header = ["rule", "mean draws", "fewest", "stopped", "fixed"]
        write_table(page, header, rows, ["--runs", str(n_runs)], ["sklsb/diagnostics/stopping.py"])


def cost():
    rng = np.random.default_rng(0)
    target = Ising.lattice(rng.normal(scale=0.5, size=(100, 100)), coupling=0.3)
    sampler = LSBSampler("barker", n_burn_in=10_000, init="uniform", random_state=0).fit(target)
    never = AllOf(EffectiveSampleSize(1e9), RHat(1.0001))
    seconds = np.zeros((2, 4))
    for k in range(4):
        for i, stop in enumerate((None, never)):
            other = sampler.__copy__()
            began = time.process_time()
            other.sample(600, thin="sweep", record="moments", stop=stop)
            seconds[i, k] = time.process_time() - began
    without, with_rules = seconds.sum(axis=1)
    print(
        f"600 sweeps of 100x100, 4 chains: with rules {with_rules / without - 1:+.3f} of the time"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--page", help="writes the table of the page")
    args = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    if args.cost:
        cost()
    else:
        coverage(args.runs, args.page)


if __name__ == "__main__":
    main()

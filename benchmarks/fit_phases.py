"""What a default fit costs, by phase, and what it costs with a part switched off.

CPU seconds, all kernels compiled before: the median of some runs, each of which does all cases.

    python benchmarks/fit_phases.py --runs 3 [--models dense] [--cases default]
    python benchmarks/fit_phases.py --cases default --page doc/measured/fit_phases.inc
"""

import argparse
import time
import warnings
from collections import defaultdict

import numpy as np
from record import write_table

from sklsb import Ising, LSBSampler
from sklsb._system.progress import Progress

CASES = {
    "default": {},
    'init="uniform"': {"init": "uniform"},
    "pilot=False": {"pilot": False},
    "blocks=None": {"blocks": None},
    'balancing="barker"': {"balancing": "barker"},
}


def lattice():
    """30 x 30 spins of which neighbours are coupled."""
    field = np.random.default_rng(0).normal(size=(30, 30))
    return Ising.lattice(field, coupling=0.3)


def dense(d=1000):
    """1,000 spins of which all are coupled."""
    half = np.triu(np.random.default_rng(0).normal(scale=0.5 / np.sqrt(d), size=(d, d)), 1)
    return Ising(half + half.T, np.random.default_rng(1).normal(size=d))


MODELS = {"lattice": lattice, "dense": dense}


class Clock:
    """CPU seconds of each phase that `Progress` would show; what lies between is "the rest"."""

    def __init__(self):
        self.seconds = defaultdict(float)
        self.began = 0.0

    def __enter__(self):
        clock = self
        self.methods = Progress.__enter__, Progress.__exit__

        def enter(progress):
            clock.began = time.process_time()
            return progress

        def leave(progress, *exception):
            clock.seconds[progress.what] += time.process_time() - clock.began

        Progress.__enter__, Progress.__exit__ = enter, leave
        self.start = time.process_time()
        return self

    def __exit__(self, *exception):
        Progress.__enter__, Progress.__exit__ = self.methods
        total = time.process_time() - self.start
        self.seconds["the rest"] = total - sum(self.seconds.values())
        self.seconds["all"] = total


def measured(target, params):
    with Clock() as clock:
        sampler = LSBSampler(random_state=0, **params).fit(target)
    with Clock() as drawing:
        sampler.sample(1000, thin="sweep", record={"m": lambda x: x.sum(axis=-1)})
    clock.seconds["1,000 sweeps of sample"] = drawing.seconds["all"]
    return clock.seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--page", help="file for the documentation: the default case as a table")
    args = parser.parse_args()
    columns = {}
    runs, cases = args.runs, {case: CASES[case] for case in args.cases}
    warnings.simplefilter("ignore")
    for name, target in ((name, MODELS[name]()) for name in args.models):
        for params in cases.values():  # compiles
            sampler = LSBSampler(n_burn_in=50, random_state=0, **params).fit(target)
            sampler.sample(2, record={"m": lambda x: x.sum(axis=-1)})
        found = [
            {case: measured(target, params) for case, params in cases.items()} for _ in range(runs)
        ]
        print(f"\n{name}, 4 chains; CPU seconds, median of {runs}")
        phases = list(found[0][args.cases[0]])
        if args.page:
            seconds = {p: np.median([run["default"].get(p, 0.0) for run in found]) for p in phases}
            columns[name] = seconds
        print(" " * 26, *(f"{case:>20}" for case in cases))
        for phase in phases:
            row = [np.median([run[case].get(phase, 0.0) for run in found]) for case in cases]
            print(f"{phase:26}", *(f"{value:20.2f}" for value in row))
    if args.page:
        phases = dict.fromkeys(phase for seconds in columns.values() for phase in seconds)
        rows = [[p, *(f"{column.get(p, 0.0):.2g}" for column in columns.values())] for p in phases]
        write_table(args.page, ["phase", *columns], rows, ["--cases", "default"])


if __name__ == "__main__":
    main()

"""Chain-steps per second of the Ising kernel: sizes, balancing functions, one core and two.

Every function starts from the same state after five sweeps, and the functions take turns in
each repetition, so that a noisy machine disturbs all alike; the best of the repetitions counts.
Compilation is timed apart, in new processes with an empty and a filled cache. Prints a table
and writes JSON, and the rates on one core for the documentation.

    python benchmarks/ising_kernel.py [--sizes 100 900 10000 100000 1000000] [--json FILE]
        [--page doc/measured/ising_kernel.inc]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from record import write_table

from sklsb import Ising, LSBSampler
from sklsb.exceptions import SamplerWarning

FUNCTIONS = ("sqrt", "barker", "min", "max", "mixture", "learned")


def paper_model(n_sites, coupling=1.0, mu=1.0, sigma=3.0):
    """Case 3 of the paper's Ising model, on a lattice as square as n_sites allows."""
    rows = int(np.sqrt(n_sites))
    while n_sites % rows:
        rows -= 1
    shape = (rows, n_sites // rows)
    field = np.full(shape, -mu)
    inside = tuple(slice(n // 4, n - n // 4) for n in shape)
    field[inside] = mu
    return Ising.lattice(field + sigma * np.random.default_rng(0).uniform(-1, 1, shape), coupling)


def frozen_functions():
    """The functions under test; the learned ones as they are after a fit of the 30x30 model."""
    model = paper_model(900)
    functions = {}
    for name in FUNCTIONS:
        if name in ("mixture", "learned"):
            fitted = LSBSampler(name, random_state=0).fit(model)
            functions[name] = fitted.balancing_.tabulated()
        else:
            functions[name] = name
    return functions


def rates(n_sites, functions, n_steps, n_repetitions, n_jobs):
    """Best chain-steps per second of each function."""
    model = paper_model(n_sites)
    state = LSBSampler("sqrt", n_chains=1, n_burn_in=5 * n_sites, random_state=0).fit(model).state_
    samplers = {
        name: LSBSampler(
            function, n_chains=n_jobs, n_jobs=n_jobs, n_burn_in=max(2000, n_sites // 10)
        ).fit(model, initial_states=state[0])
        for name, function in functions.items()
    }
    best = dict.fromkeys(functions, np.inf)
    for _ in range(n_repetitions):
        for name, sampler in samplers.items():
            begin = time.perf_counter()
            sampler.sample(1, thin=n_steps)
            best[name] = min(best[name], time.perf_counter() - begin)
    return {name: n_jobs * n_steps / seconds for name, seconds in best.items()}


def first_fit_seconds(cache):
    """Seconds of the first fit and sample in a new process, imports not counted."""
    code = (
        "import time, warnings, numpy as np\n"
        "warnings.simplefilter('ignore')\n"
        "import numba, sklearn.base, xarray, scipy.sparse\n"
        "from sklsb import Ising, LSBSampler\n"
        "model = Ising.lattice(np.zeros((30, 30)) + 0.1)\n"
        "begin = time.perf_counter()\n"
        "sampler = LSBSampler(n_burn_in=20, random_state=0).fit(model)\n"
        "fitted = time.perf_counter()\n"
        "sampler.sample(10)\n"
        "print(fitted - begin, time.perf_counter() - fitted)\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    fit, sample = map(float, result.stdout.split())
    return {"fit": fit, "sample": sample}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[100, 900, 10_000, 100_000, 1_000_000]
    )
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("ising_kernel.json"))
    parser.add_argument("--page")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    with tempfile.TemporaryDirectory() as cache:
        first = {"cold": first_fit_seconds(cache), "cached": first_fit_seconds(cache)}
    for name, seconds in first.items():
        print(f"first fit, {name}: {seconds['fit']:.2f} s; first sample: {seconds['sample']:.2f} s")
    functions = frozen_functions()
    rows = []
    print("\nmillion chain-steps/s" + " " * 6 + "".join(f"{name:>9s}" for name in FUNCTIONS))
    for n_jobs in (1, 2):
        for n_sites in options.sizes:
            rate = rates(n_sites, functions, options.steps, options.repetitions, n_jobs)
            rows.append({"n_sites": n_sites, "cores": n_jobs, "steps_per_second": rate})
            numbers = "".join(f"{rate[name] / 1e6:9.2f}" for name in FUNCTIONS)
            print(f"{n_jobs} core{'s' * (n_jobs > 1):1s} d = {n_sites:<12d} {numbers}", flush=True)
    options.json.write_text(json.dumps({"first_fit": first, "rows": rows}, indent=1))
    if options.page:
        table = [
            [
                f"{row['n_sites']:,}",
                *(f"{row['steps_per_second'][name] / 1e6:.1f}" for name in FUNCTIONS),
            ]
            for row in rows
            if row["cores"] == 1
        ]
        header = ["variables", *(f'``"{name}"``' for name in FUNCTIONS)]
        sources = ["sklsb/_kernels/rules/balanced.py", "sklsb/_kernels/run.py"]
        write_table(options.page, header, table, [], sources)


if __name__ == "__main__":
    main()

"""How seconds and memory of every sampler grow with the number of variables.

Lattices of spins with coupling 0.3 and fields, four chains, parameters by default. Each row is a new
process in which all kernels are compiled: CPU seconds of the target, of `fit` and of ten sweeps
of `sample`, the largest memory, and what of it came after the target, in bytes for each variable and
chain. "more" ends a sampler: the row took more than ``--limit`` CPU seconds after compiling; so does
"-", where the sampler does not apply. The exponents are slopes of least squares in logarithms, the
last two from 100,000 variables on, where constants do not count.

    python benchmarks/scale.py [--limit 300] [--most 7] [--samplers GibbsSampler]
    python benchmarks/scale.py --page doc/measured/scale.inc
"""

import argparse
import gc
import json
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
from record import write_table

import sklsb

SHAPES = {3: (25, 40), 4: (100, 100), 5: (250, 400), 6: (1000, 1000), 7: (2500, 4000)}
SAMPLERS = (
    'GibbsSampler("chromatic")',
    'GibbsSampler("systematic")',
    'GibbsSampler("random")',
    'LSBSampler("barker")',
    "LSBSampler()",
    "AutoSampler()",
    "HammingBallSampler()",
    "SwapSampler()",
    "ClusterSampler()",
    "ParallelTempering()",
    "EliminationSampler()",
)
COLUMNS = ("target s", "fit s", "ten sweeps s", "memory MB", "bytes")
N_CHAINS = 4


def lattice(shape):
    """Spins in fields."""
    return sklsb.Ising.lattice(np.random.default_rng(0).normal(size=shape), coupling=0.3)


def memory(name):
    """A number of bytes that the system counts for this process, VmRSS or VmHWM."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", status)[1])


def fit_and_draw(sampler, target):
    """CPU seconds of `fit` and of ten sweeps."""
    began = time.process_time()
    sampler.fit(target)
    fitted = time.process_time()
    sampler.sample(10, thin="sweep", record={"m": lambda x: x.mean(axis=(1, 2))})
    return fitted - began, time.process_time() - fitted


def row(name, power, limit):
    """Measure a sampler at one size; past the limit the process ends by a signal."""
    warnings.simplefilter("ignore")

    def made():
        return eval(f"sklsb.{name}").set_params(random_state=0, n_chains=N_CHAINS)

    fit_and_draw(made(), lattice((12, 12)))  # loads the kernels
    gc.collect()
    most = int(time.process_time() + limit + 1)
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
    began = time.process_time()
    target = lattice(SHAPES[power])
    seconds = time.process_time() - began
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    found = (seconds, *fit_and_draw(made(), target))
    peak = memory("VmHWM")
    return [*found, peak / 1e6, (peak - before) / (N_CHAINS * target.n_sites)]


def measure(name, power, limit):
    """Measure in a new process; what it says instead where it gives no row."""
    command = [sys.executable, __file__, "--row", name, str(power), "--limit", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == -signal.SIGXCPU:
        return "more"
    if done.returncode:
        said = done.stderr.strip().splitlines()
        error = said[-1].partition(":")[0].rpartition(".")[2] if said else "killed"
        return "-" if error == "ValueError" else error
    return json.loads(done.stdout)


def shown(x):
    """Two significant digits, without an exponent."""
    return f"{Decimal(f'{x:.2g}'):,f}"


def exponents(rows):
    """Slopes of the seconds of all sizes, of the large ones, and of ten sweeps of these."""
    powers = np.array(sorted(rows))
    large = powers[powers >= 5]

    def slope(of, columns):
        cost = [sum(rows[p][k] for k in columns) for p in of]
        return np.polyfit(of, np.log10(cost), 1)[0] if len(of) > 1 else np.nan

    return slope(powers, (0, 1, 2)), slope(large, (0, 1, 2)), slope(large, (2,))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--most", type=int, default=7, choices=SHAPES, help="power of ten")
    parser.add_argument("--samplers", nargs="+", default=["Sampler", "Tempering"])
    parser.add_argument("--page")
    parser.add_argument("--row", nargs=2)
    args = parser.parse_args()
    if args.row:
        print(json.dumps(row(args.row[0], int(args.row[1]), args.limit)))
        return
    table = []
    print(f"{'sampler':28s}{'sites':>9s}" + "".join(f"{c:>14s}" for c in COLUMNS), flush=True)
    for name in SAMPLERS:
        rows = {}
        for power in range(3, args.most + 1) if any(s in name for s in args.samplers) else ():
            found = measure(name, power, args.limit)
            cells = [found, *"----"] if isinstance(found, str) else [shown(x) for x in found]
            print(
                f"{name:28s}{f'10^{power}':>9s}" + "".join(f"{x:>14s}" for x in cells), flush=True
            )
            cells = [cell.replace("-", "\\-") for cell in cells]  # no list within the table
            table.append([f"``{name}``", f"10\\ :sup:`{power}`", *cells])
            if isinstance(found, str):
                break
            rows[power] = found
        if rows:
            slopes = " ".join(f"{x:.2f}" for x in exponents(rows))
            print(f"{name:28s} exponents: all seconds, from 10^5 on, sweeps: {slopes}", flush=True)
    if args.page:
        write_table(args.page, ["Sampler", "Sites", *COLUMNS], table, sys.argv[1:-2])


if __name__ == "__main__":
    main()

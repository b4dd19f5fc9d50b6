"""Make the experiments of the LSB paper again.

    python -m benchmarks.paper --all [--quick] [--data DIR] [--out DIR] [--rst doc]
    python -m benchmarks.paper ising uai

Writes a JSON file and a figure for each experiment into --out, and its tables, as the page "The paper
again" includes them, into --rst. "uai" and "near" need the folder --data with networks of the UAI
competitions, "rbm" with images of MNIST; what is missing is said, the other experiments are made, and the exit
status is 1. --quick takes about a quarter of an hour on one core, with fewer and shorter runs.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import matplotlib

from ..record import processor
from . import ising, monotonic, near, rbm, segmentation, uai
from .report import MissingData, commit, page

EXPERIMENTS = {
    "ising": ising,
    "uai": uai,
    "rbm": rbm,
    "monotonic": monotonic,
    "segmentation": segmentation,
    "near": near,
}


def make(name, size, data, out):
    """Run an experiment, or raise `MissingData`; write its JSON."""
    began = time.process_time()
    result = {
        "size": size,
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "processor": processor(),
    }
    result |= EXPERIMENTS[name].run(data, **size)
    result["seconds"] = time.process_time() - began
    (out / f"{name}.json").write_text(json.dumps(result))


def show(name, out, rst):
    """Write the figure and the tables of an experiment from its JSON."""
    result, module = json.loads((out / f"{name}.json").read_text()), EXPERIMENTS[name]
    module.draw(result).savefig(out / f"{name}.png", dpi=120)
    command = f"python -m benchmarks.paper {name}"
    command += " --quick" * (result["size"] == module.SIZES["quick"])
    text = page(command, result, module.tables(result))
    (rst / f"paper_{name}.inc").write_text(text, encoding="utf-8")
    print(f"{name}: {result['seconds']:.0f} CPU s, {out / name}.json", flush=True)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)}")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--data", type=Path, help="folder with data, or with uai/ and mnist/")
    parser.add_argument("--out", type=Path, default=Path("paper"), help="for JSON and figures")
    parser.add_argument("--rst", type=Path, help="folder for the tables; by default --out")
    parser.add_argument("--again", action="store_true", help="only figures and tables, from --out")
    options = parser.parse_args(argv)
    names = list(EXPERIMENTS) if options.all else options.names
    unknown = sorted(set(names) - set(EXPERIMENTS))
    if unknown or not names:
        parser.error(f"name experiments of {', '.join(EXPERIMENTS)}, or --all; not {unknown}")
    matplotlib.use("Agg")
    warnings.simplefilter("ignore")  # short chains are what is measured
    options.out.mkdir(parents=True, exist_ok=True)
    missing = False
    for name in names:
        size = EXPERIMENTS[name].SIZES["quick" if options.quick else "full"]
        try:
            if not options.again:
                make(name, size, options.data, options.out)
            show(name, options.out, options.rst or options.out)
        except MissingData as message:
            missing = True
            print(f"{name}: left out. {message}", flush=True)
    return int(missing)


if __name__ == "__main__":
    raise SystemExit(main())

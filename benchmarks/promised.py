"""Seconds that exact.elimination_cost promises for marginals, over those that they take.

    python benchmarks/promised.py FILE ... [--most 10]

Each FILE is a network in a format that sklsb reads, with evidence in FILE.evid (FILE.gz: in
FILE.evid.gz), if there is such a file. Networks that promise more than --most seconds, or more than
the default limits allow, are named only. CPU seconds of the second of two calls, after compilation.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

from sklsb import exact, io


def taken(target) -> float:
    began = time.process_time()
    exact.marginals(target)
    return time.process_time() - began


def evidence_of(path: Path) -> Path | None:
    bare = path.with_suffix("") if path.suffix == ".gz" else path
    found = (Path(f"{bare}.evid{end}") for end in ("", ".gz"))
    return next((e for e in found if e.exists()), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--most", type=float, default=10.0, help="seconds")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    ratios = []
    for path in args.files:
        evidence = evidence_of(path)
        target = io.read_model(path, **({"evidence": evidence} if evidence else {}))
        cost = exact.elimination_cost(target, "marginals")
        head = f"{path.name:32s} {target.n_sites:5d} variables, promised {cost.seconds:9.3g} s"
        if cost.seconds > args.most or not cost.fits:
            print(head, flush=True)
            continue
        taken(target)
        seconds = taken(target)
        ratios.append(cost.seconds / seconds)
        print(f"{head}, taken {seconds:8.3f} s, ratio {ratios[-1]:.2f}", flush=True)
    if ratios:
        least, median, largest = np.quantile(ratios, [0.0, 0.5, 1.0])
        within = np.mean((np.array(ratios) >= 0.5) & (np.array(ratios) <= 2.0))
        print(f"{len(ratios)} networks: {least:.2f} to {largest:.2f}, median {median:.2f}")
        print(f"within a factor of 2: {within:.3f}")


if __name__ == "__main__":
    main()

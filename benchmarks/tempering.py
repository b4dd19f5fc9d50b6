"""Parallel tempering on published networks: marginals and log Z against the .MAR and .PR files.

For each network the burn-in and draws take so many seconds of the processor with default settings,
compilation apart; with --whole no variable is summed out. Prints a table.

    python benchmarks/tempering.py DIRECTORY [--seconds 60] [--only Grids_11 ...] [--whole]
        [--json FILE]

DIRECTORY holds the folder uai.
"""

import argparse
import json
import math
import time
import warnings
from pathlib import Path

import numpy as np

from sklsb import MarkovNetwork, ParallelTempering, io
from sklsb.exceptions import SeparatedModesWarning, TemperingWarning

COUNTED = {SeparatedModesWarning.__name__, TemperingWarning.__name__}

NETWORKS = {
    "grid4x4": ".exact",
    "Grids_11": ".uai",
    "Grids_12": ".uai",
    "DBN_11": ".uai",
    "Grids_15": ".uai",
    "linkage_21": ".uai",
    "Pedigree_11": ".uai",
    "Promedus_24": ".uai",
    "Promedus_32": ".uai",
}


def load(folder, name):
    kind = NETWORKS[name]
    evidence = folder / f"{name}.uai.evid"
    given = evidence if kind == ".uai" and evidence.exists() else None
    network = MarkovNetwork.from_uai(folder / f"{name}.uai", given)
    p = io.read_result(folder / f"{name}{kind}.MAR")
    return network, p, io.read_result(folder / f"{name}{kind}.PR") * math.log(10)


def measure(folder, name, seconds, seed, eliminate):
    network, p, log_z = load(folder, name)
    with warnings.catch_warnings():  # compile
        warnings.simplefilter("ignore")
        rest = {"eliminate": eliminate, "n_burn_in": 1024, "n_replicas": 4}
        ParallelTempering(**rest, random_state=0).fit(network).sample(1)
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler = ParallelTempering(eliminate=eliminate, random_state=seed).fit(network)
        fitted, of_fit = time.process_time() - began, list(caught)
        counts, n, size = 0.0, 0, 64
        while (spent := time.process_time() - began) < seconds or not n:
            caught[:] = of_fit  # forget warnings of earlier, shorter draws
            x = sampler.sample(size)["x"].values
            counts = counts + np.stack([(x == v).sum(axis=(0, 1)) for v in network.values], axis=1)
            n += x.shape[0] * x.shape[1]
            rate = size / max(time.process_time() - began - spent, 1e-6)
            size = max(1, min(4 * size, int(rate * min(5.0, max(0.1, seconds - spent)))))
        warned = {w.category.__name__ for w in caught} & COUNTED
        if not sampler.disagreement_.agree:
            warned.add(SeparatedModesWarning.__name__)
    found = counts / n
    error = max(np.abs(found[i, : q.size] - q).max() for i, q in enumerate(p))
    drawing = time.process_time() - began - fitted
    return {
        "network": name,
        "sites": int((sampler.run_.ensemble.inner.n_possible > 1).sum()),
        "replicas": int(sampler.betas_.size),
        "barrier": sampler.barrier_,
        "fit": fitted,
        "scans": n // 4,
        "trips": int(sampler.n_round_trips_.sum()),
        "visits": float(sampler.n_visits_.sum()),
        "explorer": sampler.explorer_ + ", crossover" * sampler.crossover_,
        "trips_per_second": float(sampler.n_round_trips_.sum() / drawing),
        "error": float(error),
        "log_z": sampler.log_z_ - log_z,
        "stated": sampler.log_z_error_,
        "warned": ", ".join(sorted(warned)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(NETWORKS))
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    print(
        f"{'network':14}{'core':>5}{'replicas':>9}{'barrier':>8}{'fit s':>7}{'scans':>8}{'trips':>8}"
        f"{'visits':>8}{'/s':>8}{'error':>8}{'log Z':>8}{'stated':>8}  warned"
    )
    for name in given.only:
        row = measure(
            given.directory / "uai",
            name,
            given.seconds,
            given.seed,
            None if given.whole else "auto",
        )
        rows.append(row)
        print(
            f"{name:14}{row['sites']:5}{row['replicas']:9}{row['barrier']:8.2f}{row['fit']:7.1f}"
            f"{row['scans']:8}{row['trips']:8}{row['visits']:8.0f}{row['trips_per_second']:8.1f}{row['error']:8.4f}"
            f"{row['log_z']:8.3f}{row['stated']:8.3f}  {row['warned'] or 'no'}"
            f"  {row['explorer']}",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

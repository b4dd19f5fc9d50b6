"""Exact answers by elimination: log Z, marginals, draws and best states of published files.

Compares log Z with the .PR file and marginals with the .MAR file of every UAI network that has
them, with the time of each answer beyond compilation; then draws per second; then the likeliest
states of the cut and QUBO files whose work fits, with the best known values. One core. Prints tables.

    python benchmarks/elimination.py DIRECTORY [--json elimination.json]

DIRECTORY holds the folders uai, bif and maxcut.
"""

import argparse
import json
import math
import resource
import time
from pathlib import Path

import numpy as np

from sklsb import EliminationSampler, Ising, MarkovNetwork, exact, io

COMPILE = ("log_partition", "marginals", "most_likely")


def results(folder):
    """Name, evidence, .PR and .MAR of each network with published results."""
    for pr in sorted(folder.glob("*.PR")):
        stem, kind = pr.name.split(".", 1)
        kind = kind.removesuffix("PR").strip(".")
        evidence = {"noevidence": None, "exact": None, "synthetic": f"{stem}.synthetic.evid"}
        evidence = evidence.get(kind, f"{stem}.uai.evid")
        label = f"{stem}.{kind}" if kind in ("noevidence", "synthetic") else stem
        network = MarkovNetwork.from_uai(folder / f"{stem}.uai", evidence and folder / evidence)
        yield label, network, pr, pr.with_suffix(".MAR")


def last_digit(path):
    """Unit of the last digit printed in a .PR file."""
    mantissa, _, exponent = path.read_text().split()[-1].lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def timed(function, *args, **kwargs):
    began = time.perf_counter()
    value = function(*args, **kwargs)
    return value, time.perf_counter() - began


def compare(folder):
    rows = []
    print(
        f"{'network':22}{'sites':>6}{'log2 work':>10}{'log Z':>8}{'log10 Z':>14}{'.PR':>14}{'ok':>4}"
        f"{'marginals':>11}{'error':>9}{'ok':>4}"
    )
    for label, network, pr, mar in results(folder):
        cost = exact.elimination_cost(network)
        log_z, seconds = timed(exact.log_partition, network)
        log10_z, published = log_z / math.log(10), io.read_result(pr)
        good = abs(log10_z - published) <= max(0.6 * last_digit(pr), 1e-12)
        found, seconds_mar = timed(exact.marginals, network)
        p = found["p"].values
        published_p = io.read_result(mar)
        error = max(np.abs(p[i, : q.size] - q).max() for i, q in enumerate(published_p))
        digits = 6e-7 if ".uai." in mar.name else 6e-13
        good_mar = error <= digits
        rows.append(
            {
                "network": label,
                "sites": network.n_sites,
                "log2_work": cost.log2_work,
                "log2_memory": cost.log2_memory,
                "configurations": cost.n_configurations,
                "log10_z": log10_z,
                "published": published,
                "log_z_agrees": bool(good),
                "seconds": seconds,
                "marginals_error": float(error),
                "marginals_agree": bool(good_mar),
                "seconds_marginals": seconds_mar,
            }
        )
        print(
            f"{label:22}{network.n_sites:6}{cost.log2_work:10.1f}{seconds:6.2f} s{log10_z:14.6f}"
            f"{published:14.6f}{'yes' if good else 'NO':>4}{seconds_mar:9.2f} s{error:9.1e}"
            f"{'yes' if good_mar else 'NO':>4}",
            flush=True,
        )
    agree = sum(row["log_z_agrees"] for row in rows), sum(row["marginals_agree"] for row in rows)
    print(
        f"{agree[0]} of {len(rows)} log Z and {agree[1]} of {len(rows)} sets of marginals agree\n"
    )
    return rows


def wide_network(n=1000, width=10, seed=0):
    """A Bayesian network of two-valued variables, each with up to 3 parents among the last ten."""
    rng = np.random.default_rng(seed)
    factors = []
    for i in range(n):
        near = np.arange(max(0, i - width), i)
        parents = np.sort(rng.choice(near, min(i, int(rng.integers(1, 4))), replace=False)).tolist()
        table = rng.random([2] * len(parents) + [1])
        factors.append(((*parents, i), np.concatenate([table, 1.0 - table], axis=-1)))
    network = MarkovNetwork([2] * n, factors)
    x = network.draw_state(rng)
    return network.condition({int(i): int(x[i]) for i in rng.choice(n, n // 10, replace=False)})


def rates(folder, n=200_000):
    uai = folder / "uai"
    targets = {
        "asia": MarkovNetwork.from_bif(folder / "bif" / "asia.bif.gz"),
        "alarm": MarkovNetwork.from_bif(folder / "bif" / "alarm.bif.gz"),
        "hailfinder": MarkovNetwork.from_bif(folder / "bif" / "hailfinder.bif.gz"),
    }
    for name in ("Grids_12", "Pedigree_11"):
        targets[name] = MarkovNetwork.from_uai(uai / f"{name}.uai", uai / f"{name}.uai.evid")
    targets["1,000 variables"] = wide_network()
    rows = []
    print(f"{'network':22}{'sites':>6}{'log2 work':>10}{'set-up':>10}{'draws per second':>18}")
    for name, target in targets.items():
        sampler, set_up = timed(EliminationSampler(n_chains=1, random_state=0).fit, target)
        sampler.sample(1000)
        size = 5 * n if target.n_sites < 20 else n if target.n_sites < 500 else n // 5
        draws, seconds = timed(sampler.sample, size)
        rows.append(
            {
                "network": name,
                "set_up": set_up,
                "draws_per_second": size / seconds,
                "log2_work": sampler.cost_.log2_work,
            }
        )
        print(
            f"{name:22}{target.n_sites:6}{sampler.cost_.log2_work:10.1f}{set_up:8.3f} s"
            f"{size / seconds:18,.0f}",
            flush=True,
        )
        del draws
    print()
    return rows


def best_known(folder):
    path = folder / "best_known.txt"
    words = [line.split() for line in path.read_text().splitlines() if line.strip()]
    return {word[0]: word[1:] for word in words if not word[0].startswith("#")}


def optima(folder):
    rows = []
    print(f"{'file':22}{'sites':>6}{'log2 work':>10}{'value':>12}{'best known':>14}{'seconds':>9}")
    for kind in ("rudy", "ising", "gset", "qubo"):
        known = best_known(folder / kind)
        for path in sorted((folder / kind).iterdir()):
            if path.name in ("best_known.txt", "LICENSE.openising"):
                continue
            if kind == "qubo":
                target, sign = Ising.from_qubo(io.read_qubo(path)), -1.0
            else:
                target, sign = Ising.from_maxcut(io.read_maxcut(path)), 1.0
            cost = exact.elimination_cost(target, "most_likely")
            name = path.name.removesuffix(".txt").removesuffix(".sparse")
            row = {"file": f"{kind}/{name}", "log2_work": cost.log2_work}
            best = " ".join(known.get(path.name, known.get(name, ["?"])))
            if cost.log2_work > 30:
                print(
                    f"{kind + '/' + name:22}{target.n_sites:6}{cost.log2_work:10.1f}{'-':>12}{best:>14}"
                )
            else:
                found, seconds = timed(exact.most_likely, target)
                row |= {"value": sign * float(found["lp"]), "best_known": best, "seconds": seconds}
                print(
                    f"{kind + '/' + name:22}{target.n_sites:6}{cost.log2_work:10.1f}"
                    f"{row['value']:12.0f}{best:>14}{seconds:9.2f}",
                    flush=True,
                )
            rows.append(row)
    return rows


def compile_all():
    """Compile what is timed later."""
    small = Ising.lattice(np.zeros((3, 3)), 0.1)
    for name in COMPILE:
        getattr(exact, name)(small)
    exact.sample(small, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    _, seconds = timed(compile_all)
    print(f"compiled, or read from disk, in {seconds:.1f} s\n")
    found = {
        "files": compare(options.directory / "uai"),
        "draws": rates(options.directory),
        "optima": optima(options.directory / "maxcut"),
    }
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nlargest memory of the process: {memory:.0f} MB")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

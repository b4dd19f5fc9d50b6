"""Marginals of Markov networks, sampled for a minute each, against exact ones.

Reads UAI files with their exact marginals (FILE.MAR, beside FILE) and BIF files, whose marginals
are computed by variable elimination. The time is that of the processor, of fit and sample together,
with default settings. A row has a warning if R-hat exceeds 1.01, the chains disagreed, or sites were
frozen that evidence and zeros do not explain. It is wrong if the mean error is above 0.01, or a
marginal is off by more than 5 of its errors and 0.001. Prints a table, writes JSON, and a table
for the documentation.

    python benchmarks/marginals.py DIRECTORY ... [--seconds 60] [--blocks auto] [--json marginals.json]
        [--page doc/measured/marginals.inc]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from record import write_table

from sklsb import LSBSampler, MarkovNetwork, exact, io
from sklsb.diagnostics import marginals
from sklsb.exceptions import FrozenSitesWarning, SamplerWarning, SeparatedModesWarning


def exact_marginals(path, network):
    if path.name.endswith((".bif", ".bif.gz")):
        p = exact.marginals(network)["p"].values
        return [row[:k] for row, k in zip(p, network.cardinalities, strict=True)], None
    stem = path.name.removesuffix(".uai")
    for mar, evidence in (
        (f"{stem}.uai.MAR", f"{stem}.uai.evid"),
        (f"{stem}.MAR", f"{stem}.uai.evid"),
        (f"{stem}.noevidence.MAR", None),
        (f"{stem}.exact.MAR", None),
    ):
        if (path.parent / mar).exists():
            return io.read_result(path.parent / mar), evidence and path.parent / evidence
    return None, None


def sample_for(target, options):
    """Fit, then draw for what is left of the time."""
    began = time.process_time()
    blocks = None if options.blocks == "none" else options.blocks
    sampler = LSBSampler(random_state=options.seed, blocks=blocks).fit(target)
    fit = time.process_time() - began
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        thin = max(1, target.n_sites // 4)
        sampler.sample(1, thin=thin)  # compiles
        trial = time.process_time()
        sampler.sample(200, thin=thin)
        pace = (time.process_time() - trial) / 200 / thin
        left = max(1.0, options.seconds - (time.process_time() - began))
        n = max(64, int(min(20_000, left / pace / thin)))
        thin = max(1, int(left / pace / n))
        seen.clear()
        draws = sampler.sample(n, thin=thin)
    told = [w.category for w in seen]
    return sampler, draws, told, (n * thin, fit, time.process_time() - began)


def measure(path, options):
    read = MarkovNetwork.from_uai if path.name.endswith(".uai") else MarkovNetwork.from_bif
    network = read(path)
    expected, evidence = exact_marginals(path, network)
    if expected is None:
        return None
    target = MarkovNetwork.from_uai(path, evidence) if evidence else network
    sampler, draws, given, (transitions, fit, seconds) = sample_for(target, options)
    found = marginals(draws, target)
    p, mcse = found["p"].values, found["mcse"].values
    pairs = list(enumerate(expected))
    errors = np.concatenate([np.abs(p[i, : e.size] - e) for i, e in pairs])
    standard = np.concatenate([mcse[i, : e.size] for i, e in pairs])
    off = bool((errors > np.maximum(5 * standard, 0.001)).any())  # NaN: nothing is claimed
    import arviz

    moved = draws["x"].std(("chain", "draw")) > 0
    rhat = arviz.rhat(draws.drop_vars("lp"))["x"].where(moved).max()
    frozen, separated = (
        warning in given for warning in (FrozenSitesWarning, SeparatedModesWarning)
    )
    return {
        "file": path.name,
        "sites": target.n_sites,
        "blocks": sampler.blocks_.kind,
        "share": sampler.blocks_.share,
        "why": sampler.blocks_.why,
        "mean_error": float(errors.mean()),
        "largest_error": float(errors.max()),
        "median_mcse": float(np.nanmedian(mcse)),
        "rhat": float(rhat),
        "frozen": frozen,
        "separated": separated,
        "warned": bool(frozen or separated or not rhat <= 1.01),
        "wrong": bool(off or errors.mean() > 0.01),
        "transitions": transitions,
        "fit_seconds": fit,
        "seconds": seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--blocks", default="auto", choices=["auto", "none"])
    parser.add_argument("--only", nargs="*", default=[""], help="beginnings of file names")
    parser.add_argument("--json", type=Path, default=Path("marginals.json"))
    parser.add_argument("--page")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    rows = []
    print(
        "file                      sites blocks mean error  largest  median mcse  R-hat   fit s"
        "  warned wrong"
    )
    kinds = ("*.uai", "*.bif.gz")
    paths = [p for kind in kinds for d in options.directories for p in sorted(d.rglob(kind))]
    for path in paths:
        if not path.name.startswith(tuple(options.only)):
            continue
        row = measure(path, options)
        if row is None:
            print(f"{path.name:25s} no exact marginals")
            continue
        rows.append(row)
        print(
            f"{row['file']:25s} {row['sites']:5d} {row['blocks']:6s} {row['mean_error']:10.5f} "
            f"{row['largest_error']:8.4f} {row['median_mcse']:12.5f} {row['rhat']:6.3f} "
            f"{row['fit_seconds']:7.1f}  {row['warned']!s:6s} {row['wrong']}",
            flush=True,
        )
        options.json.write_text(json.dumps({"seconds": options.seconds, "rows": rows}, indent=1))
    if options.page:
        write_page(options, rows)


def write_page(options, rows):
    header = [
        "network",
        "variables",
        "blocks",
        "mean error",
        "largest",
        "median ``mcse``",
        "warning",
    ]
    table = [
        [
            row["file"].partition(".")[0],
            f"{row['sites']:,}",
            row["blocks"],
            f"{row['mean_error']:.4f}",
            f"{row['largest_error']:.4f}",
            f"{row['median_mcse']:.4f}",
            "yes" if row["warned"] else "no",
        ]
        for row in rows
    ]
    means = [row["mean_error"] for row in rows]
    n_wrong = sum(row["wrong"] for row in rows)
    said = f"{n_wrong or 'no'} answer{'s are' if n_wrong > 1 else ' is'}"
    below = (
        f"Of {len(rows)} networks, the median of the mean errors is {np.median(means):.4f} and the "
        f"largest {max(means):.4f}; {said} wrong."
    )
    given = ["DIRECTORIES", "--seconds", f"{options.seconds:g}"]
    sources = ["sklsb/samplers/_lsb", "sklsb/samplers/_run", "sklsb/diagnostics/marginals.py"]
    write_table(options.page, header, table, given, sources, below)


if __name__ == "__main__":
    main()

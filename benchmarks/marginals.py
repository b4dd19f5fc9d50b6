"""Marginals of Markov networks, sampled for a minute each, against exact ones.

Reads UAI files with their exact marginals (FILE.MAR, beside FILE) and BIF files, whose marginals
are computed by variable elimination. The time is that of fit and sample together, on one core, with
default settings. A row is flagged if R-hat exceeds 1.01, or sites were frozen that evidence and
zeros do not explain. Prints a table and writes JSON.

    python benchmarks/marginals.py DIRECTORY [--seconds 60] [--json marginals.json]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

from sklsb import LSBSampler, MarkovNetwork
from sklsb.diagnostics import marginals
from sklsb.exceptions import FrozenSitesWarning, SamplerWarning


def read_marginals(path):
    """Exact marginals of a .MAR file."""
    words = path.read_text().split()
    words = words[words.index("MAR") + 1 :]
    n, at, result = int(words[0]), 1, []
    for _ in range(n):
        k = int(words[at])
        result.append(np.array(words[at + 1 : at + 1 + k], dtype=float))
        at += 1 + k
    return result


def eliminate(network, site):
    """Marginal of one variable: the others are summed out, cheapest first."""
    tables = [(list(scope), table) for scope, table in network.factors]
    rest = set(range(network.n_sites)) - {site}

    def joined(i):
        return set().union(*(scope for scope, _ in tables if i in scope))

    while rest:
        cost = {i: np.prod(network.cardinalities[list(joined(i))], initial=1.0) for i in rest}
        i = min(cost, key=cost.get)
        rest.remove(i)
        scope = sorted(joined(i) - {i})
        mine = [pair for pair in tables if i in pair[0]]
        tables = [pair for pair in tables if i not in pair[0]]
        tables.append((scope, product(mine, scope)))
    p = product([pair for pair in tables if pair[0]], [site])
    return p / p.sum()


def product(tables, scope):
    """Product of tables, summed over all variables but those of the scope; scaled to maximum 1."""
    letter = {}
    arguments = []
    for other, table in tables:
        arguments += [table, [letter.setdefault(i, len(letter)) for i in other]]
    result = np.einsum(*arguments, [letter[i] for i in scope], optimize=True)
    return result / result.max()


def exact_marginals(path, network):
    if path.name.endswith((".bif", ".bif.gz")):
        return [eliminate(network, site) for site in range(network.n_sites)], None
    stem = path.name.removesuffix(".uai")
    for mar, evidence in (
        (f"{stem}.uai.MAR", f"{stem}.uai.evid"),
        (f"{stem}.MAR", f"{stem}.uai.evid"),
        (f"{stem}.noevidence.MAR", None),
        (f"{stem}.exact.MAR", None),
    ):
        if (path.parent / mar).exists():
            return read_marginals(path.parent / mar), evidence and path.parent / evidence
    return None, None


def sample_for(target, seconds, seed):
    """Fit, then draw for what is left of the time; the draws, and whether sites were frozen."""
    began = time.perf_counter()
    sampler = LSBSampler(random_state=seed).fit(target)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        thin = max(1, target.n_sites // 4)
        trial = time.perf_counter()
        sampler.sample(200, thin=thin)
        pace = (time.perf_counter() - trial) / 200 / thin
        left = max(1.0, seconds - (time.perf_counter() - began))
        n = int(min(20_000, left / pace / thin))
        thin = max(1, int(left / pace / n))
        seen.clear()
        draws = sampler.sample(n, thin=thin)
    frozen = [w for w in seen if w.category is FrozenSitesWarning]
    return draws, len(frozen) > 0, n * thin, time.perf_counter() - began


def measure(path, options):
    read = MarkovNetwork.from_uai if path.name.endswith(".uai") else MarkovNetwork.from_bif
    network = read(path)
    exact, evidence = exact_marginals(path, network)
    if exact is None:
        return None
    target = MarkovNetwork.from_uai(path, evidence) if evidence else network
    draws, frozen, transitions, seconds = sample_for(target, options.seconds, options.seed)
    found = marginals(draws, target)
    p, mcse = found["p"].values, found["mcse"].values
    errors = np.concatenate([np.abs(p[i, : e.size] - e) for i, e in enumerate(exact)])
    import arviz

    moved = draws["x"].std(("chain", "draw")) > 0
    rhat = arviz.rhat(draws.drop_vars("lp"))["x"].where(moved).max()
    return {
        "file": path.name,
        "sites": target.n_sites,
        "mean_error": float(errors.mean()),
        "largest_error": float(errors.max()),
        "median_mcse": float(np.nanmedian(mcse)),
        "rhat": float(rhat),
        "frozen": frozen,
        "flagged": bool(frozen or not rhat <= 1.01),
        "transitions": transitions,
        "seconds": seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[""], help="beginnings of file names")
    parser.add_argument("--json", type=Path, default=Path("marginals.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    rows = []
    print(
        "file                      sites  mean error  largest  median mcse  R-hat  frozen flagged"
    )
    paths = sorted(options.directory.rglob("*.uai")) + sorted(options.directory.rglob("*.bif.gz"))
    for path in paths:
        if not path.name.startswith(tuple(options.only)):
            continue
        row = measure(path, options)
        if row is None:
            print(f"{path.name:25s} no exact marginals")
            continue
        rows.append(row)
        print(
            f"{row['file']:25s} {row['sites']:5d} {row['mean_error']:11.5f} "
            f"{row['largest_error']:8.4f} {row['median_mcse']:12.5f} {row['rhat']:6.3f} "
            f"{row['frozen']!s:7s} {row['flagged']}",
            flush=True,
        )
        options.json.write_text(json.dumps({"seconds": options.seconds, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

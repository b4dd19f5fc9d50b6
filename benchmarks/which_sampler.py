"""Which sampler makes most effective draws per CPU second, and what AutoSampler makes of it.

Every sampler that applies to a target runs by default settings, but for what the table names, with
draws a sweep, a quarter and a sixteenth of a sweep apart; the best of the three counts. Effective
draws are the harmonic mean of the effective sample sizes of the variables, each weighted by its
variance. Seconds are CPU seconds of one core.

regret     that of the best sampler / that of AutoSampler's choice, at its best of three
fit        CPU seconds of AutoSampler().fit / LSBSampler().fit
time       to 1,000 effective draws of the worst variable, fit included: AutoSampler().sample(n,
           thin="auto") / LSBSampler().sample(n, thin="sweep"), from a run of the same draws

    python benchmarks/which_sampler.py [--only NAME ...] [--quick] [--first 100] [--data DIR]
        [--json FILE] [--page FILE]

The networks are random, so the table needs no data. Seed 0 is for tuning; others make fresh instances. --quick is too short
for anything but a first look. --data names a folder of UAI files.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import xarray as xr
from paper.ising import CASES, paper_field
from record import write_table

from sklsb import (
    RBM,
    AutoSampler,
    ClusterSampler,
    EliminationSampler,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    Potts,
    VariableSelection,
    exact,
)
from sklsb.diagnostics import ess
from sklsb.exceptions import SamplerWarning
from sklsb.samplers.gibbs import is_sparse

MOST_SITES = 100
THINNINGS = (1, 4, 16)
# Independent draws away from the usual value, from which a variable that does not move is stuck.
FEWEST_SEEN = 30


def paper(rng, case):
    """Return one of the four cases of the paper."""
    coupling, mu, sigma, _ = CASES[case]
    return Ising.lattice(paper_field(mu, sigma, rng), coupling)


def glass(rng, graph, scale, field=0.0):
    """Return a glass of normal couplings on a graph."""
    n = len(graph)
    matrix = scale * np.triu(nx.to_numpy_array(graph), 1) * rng.normal(size=(n, n))
    return Ising(matrix + matrix.T, field * rng.normal(size=n))


def dimers(rng):
    """Return 50 tied pairs of spins."""
    couplings = np.zeros((100, 100))
    even = np.arange(0, 100, 2)
    couplings[even, even + 1] = couplings[even + 1, even] = rng.normal(2.0, 0.1, 50)
    return Ising(couplings)


def machine(rng, shape, scale):
    """Return an RBM of normal weights."""
    return RBM(scale * rng.normal(size=shape), 0.1 * rng.normal(size=shape[0]))


def selection(rng, n, p):
    """Return a regression on n rows in which five of p columns matter."""
    x = rng.normal(size=(n, p))
    return VariableSelection(x, x[:, :5].sum(axis=1) + rng.normal(size=n))


def network(rng, n, k, degree):
    """Return a random network, each variable in `degree` pairs, k values each."""
    edges = nx.random_regular_graph(degree, n, seed=int(rng.integers(2**31))).edges
    return MarkovNetwork([k] * n, [(e, np.exp(rng.normal(size=(k, k)))) for e in edges])


def sparse(rng, n, degree):
    """Return a random regular graph."""
    return nx.random_regular_graph(degree, n, seed=int(rng.integers(2**31)))


# Of the issue, then others.
TARGETS = {
    "Ising, paper's case 1": lambda r: paper(r, 1),
    "Ising, paper's case 2": lambda r: paper(r, 2),
    "Ising, paper's case 3": lambda r: paper(r, 3),
    "Ising, paper's case 4": lambda r: paper(r, 4),
    "critical 30 x 30 lattice": lambda r: Ising.lattice(np.zeros((30, 30)), 0.44),
    "100 x 100 lattice, weak coupling": lambda r: Ising.lattice(r.normal(size=(100, 100)), 0.1),
    "50 tied pairs": dimers,
    "20 x 20 glass": lambda r: glass(r, nx.grid_2d_graph(20, 20), 1.0),
    "dense glass, 100 spins": lambda r: glass(r, nx.complete_graph(100), 0.05),
    "Potts 20 x 20, 5 values": lambda r: Potts.lattice(r.normal(size=(20, 20, 5)), 0.5),
    "RBM 100-40": lambda r: machine(r, (100, 40), 0.2),
    "selection, 200 columns": lambda r: selection(r, 200, 200),
    "selection, 1,000 columns": lambda r: selection(r, 200, 1000),
    "network of 300, 2 values": lambda r: network(r, 300, 2, 3),
    "network of 60, 5 values": lambda r: network(r, 60, 5, 3),
    "dilute glass, 300 spins": lambda r: glass(r, sparse(r, 300, 3), 0.7),
    "glass of degree 16, 200 spins": lambda r: glass(r, sparse(r, 200, 16), 0.15, 0.3),
    "lattice 40 x 40, strong fields": lambda r: Ising.lattice(r.normal(0.0, 4.0, (40, 40)), 0.2),
    "lattice 16 x 16, coupling 0.35": lambda r: Ising.lattice(np.zeros((16, 16)), 0.35),
    "RBM 300-20": lambda r: machine(r, (300, 20), 0.15),
    "RBM 30-200": lambda r: machine(r, (30, 200), 0.15),
    "Potts 16 x 16, antiferromagnet": lambda r: Potts.lattice(np.zeros((16, 16, 4)), -0.6),
    "selection, 60 columns": lambda r: selection(r, 100, 60),
    "dense network of 80": lambda r: network(r, 80, 3, 8),
    "RBM 40-2": lambda r: machine(r, (40, 2), 0.3),
}


def samplers(target, seed):
    """Return what applies, by name."""
    made = {
        "lsb": LSBSampler(),
        "systematic": GibbsSampler("systematic"),
        "blocks": GibbsSampler(block_size=4),
    }
    if is_sparse(target):
        made["chromatic"] = GibbsSampler("chromatic")
    if isinstance(target, RBM):
        made["layers"] = GibbsSampler("layers")
    if isinstance(target, Ising | Potts):
        made["clusters"] = ClusterSampler()
    if (
        not isinstance(target, RBM | VariableSelection)
        and exact.elimination_cost(target, "sample").fits
    ):
        made["elimination"] = EliminationSampler()
    for sampler in made.values():
        sampler.set_params(n_chains=4, random_state=seed, n_jobs=1)
    return made


def timed(call):
    """Return the CPU seconds of a call, and what it returned."""
    began = time.process_time()
    found = call()
    return time.process_time() - began, found


def effective(draws, target, variances):
    """Return effective draws, all variables by their variances and the worst one.

    ``variances`` holds those of earlier runs of the target, and is added to: a variable that did
    not move here, but elsewhere, has one effective draw. Left out are variables that few of so
    many independent draws would show away from their usual value.
    """
    x = draws["x"].values.reshape(*draws["x"].shape[:2], -1)
    free = np.flatnonzero(target.n_possible > 1)
    sites = np.sort(np.random.default_rng(0).permutation(free)[:MOST_SITES])
    x = x[:, :, sites].astype(float)
    variances.append(x.reshape(-1, sites.size).var(axis=0))
    variance = np.median(variances, axis=0)
    seen = variance * len(x) * x.shape[1] >= FEWEST_SEEN
    if not seen.any():
        return 0.0, 0.0
    numbers = xr.Dataset({"x": (("chain", "draw", "site"), x[:, :, seen])})
    each, weight = ess(numbers, method="mean")["x"].values, variance[seen]
    each = np.where(variances[-1][seen] > 0.0, each, 1.0)
    return float(weight.sum() / (weight / each).sum()), float(each.min())


def rate(sampler, target, thin, seconds, variances):
    """Return effective draws per CPU second, of all variables and of the worst: at least one draw."""
    n = 50
    sampler.sample(2, thin=thin)  # compiles
    while True:
        took, draws = timed(lambda: sampler.sample(n, thin=thin))  # noqa: B023
        if took >= 0.5 * seconds or n >= 20_000:
            every, worst = effective(draws, target, variances)
            return every / took, max(1.0, worst) / took
        n = int(min(20_000, n * min(20.0, max(1.5, seconds / max(took, 1e-3)))))


def best_rate(sampler, target, seconds, variances):
    """Return that of the best of three thinnings, and which that is."""
    step = sampler.run_.sweep
    thinnings = sorted({max(1, step // k) for k in THINNINGS})
    found = {thin: rate(sampler, target, thin, seconds, variances)[0] for thin in thinnings}
    thin = max(found, key=lambda t: found[t])
    return found[thin], thin


def row_of(name, target, seed, seconds):
    """Measure one target."""
    row: dict = {"target": name, "seed": seed, "samplers": {}}
    variances: list = []
    AutoSampler(random_state=seed, n_jobs=1).fit(target)  # compiles
    for kind, sampler in samplers(target, seed).items():
        try:
            fit, _ = timed(lambda: sampler.fit(target))  # noqa: B023
        except (TypeError, ValueError):
            continue  # not for this target
        per_second, thin = best_rate(sampler, target, seconds, variances)
        row["samplers"][kind] = {"fit": fit, "rate": per_second, "thin": thin}
        if kind == "lsb":
            row["sweep"], worst = rate(sampler, target, "sweep", seconds, variances)
            row["plain_time"] = fit + 1000.0 / worst
    auto = AutoSampler(random_state=seed, n_jobs=1)
    row["fit"], _ = timed(lambda: auto.fit(target))
    row["fit_ratio"] = row["fit"] / row["samplers"]["lsb"]["fit"]
    finding, _ = timed(lambda: auto.sample(1, thin="auto"))
    _, worst = rate(auto, target, auto.thin_, seconds, variances)
    row["time"] = row["fit"] + finding + 1000.0 / worst
    row["time_ratio"] = row["time"] / row["plain_time"]
    row["chosen"], row["why"] = auto.candidates_.attrs["chosen"], auto.why_
    row["auto_rate"], row["auto_thin"] = best_rate(auto, target, seconds, variances)
    rates = {kind: found["rate"] for kind, found in row["samplers"].items()}
    row["best"] = max(rates, key=lambda kind: rates[kind])
    row["regret"] = rates[row["best"]] / row["auto_rate"]
    return row


def mean(rows, key):
    """Return a geometric mean."""
    return float(np.exp(np.mean(np.log([row[key] for row in rows]))))


def summary(rows):
    """Return what the issue asks for, in a line."""
    regret, fit = (np.array([row[k] for row in rows]) for k in ("regret", "fit_ratio"))
    return (
        f"{len(rows)} targets: regret {mean(rows, 'regret'):.2f} in the geometric mean, at most "
        f"{regret.max():.2f}; fit {np.median(fit):.2f} in the median, at most {fit.max():.2f}; "
        f"time {mean(rows, 'time_ratio'):.2f} in the geometric mean"
    )


def said(value):
    """Return two digits."""
    return f"{float(f'{value:.2g}'):,.10g}"


def write_page(path, rows):
    """Write the table of a page."""
    heads = ["target", "``LSBSampler``, a sweep apart", "``LSBSampler``, best", "best of all"]
    heads += ["which", "``AutoSampler``", "takes", "regret", "fit", "time"]
    table = []
    for row in rows:
        own = row["samplers"]
        lsb, best = own["lsb"]["rate"], own[row["best"]]["rate"]
        cells = [row["target"], *map(said, (row["sweep"], lsb, best)), row["best"]]
        cells += [said(row["auto_rate"]), row["chosen"]]
        cells += [f"{row[key]:.2g}" for key in ("regret", "fit_ratio", "time_ratio")]
        table.append(cells)
    arguments = ["--first", str(rows[0]["seed"])]
    sources = ["sklsb/samplers", "sklsb/trials"]
    write_table(path, heads, table, arguments, sources=sources, below=f"{summary(rows)}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of targets")
    parser.add_argument("--quick", action="store_true", help="a tenth of the time for each run")
    parser.add_argument("--first", type=int, default=100, help="seed; 0 was used for tuning")
    parser.add_argument("--data", type=Path, help="a folder of UAI files")
    parser.add_argument("--json", type=Path, default=Path("which_sampler.json"))
    parser.add_argument("--page", type=Path, help="writes the table of the page")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    made = dict(TARGETS)
    if options.data is not None:
        for path in sorted(options.data.glob("*.uai")):
            made[path.stem] = lambda r, path=path: MarkovNetwork.from_uai(path)
    rows = []
    for name, make in made.items():
        if options.only and not any(part in name for part in options.only):
            continue
        target = make(np.random.default_rng([25, options.first]))
        row = row_of(name, target, options.first, 0.1 if options.quick else 1.0)
        rows.append(row)
        print(
            f"{name:32s} {row['best']:18s} {row['chosen']:12s} regret {row['regret']:5.2f}  "
            f"fit {row['fit_ratio']:5.2f}  time {row['time_ratio']:6.3f}  "
            + ", ".join(f"{k} {said(v['rate'])}" for k, v in row["samplers"].items())
            + f", auto {said(row['auto_rate'])}",
            flush=True,
        )
        options.json.write_text(json.dumps(rows, indent=1))
    print(summary(rows))
    if options.page is not None:
        write_page(options.page, rows)


if __name__ == "__main__":
    main()

"""Which sampler suits which target: all that apply, beside what AutoSampler takes.

For each target a fit of LSBSampler and one of AutoSampler with default settings; then every sampler
goes on from where AutoSampler's chains ended, and is timed on draws at the best of three distances.

ess      effective draws per CPU second: a variance-weighted harmonic mean over at most 30 sites (for
         more than two values, over indicators of values)
regret   the largest of these / that of AutoSampler
fit      CPU seconds of AutoSampler's fit / those of LSBSampler's
time     to 1,000 effective draws of the worst site, fit included: AutoSampler / LSBSampler

    python benchmarks/which_sampler.py [name ...] [--first 9000] [--seconds 1] [--data DIR]
        [--json FILE] [--rst FILE]

The first fifteen targets are those that the race was made for; the others were not tuned on. With
--data, a folder of UAI files, two networks are added.
"""

import argparse
import json
import subprocess
import time
import warnings
from datetime import date
from pathlib import Path

import arviz
import networkx as nx
import numpy as np
from jumps import dimers, glasses, paper, symmetric
from selection import regression

import sklsb
from sklsb.exceptions import SamplerWarning

MOST_SITES = 30


def graph_glass(graph, seed, beta=1.0):
    """A spin glass with couplings of random sign on a graph."""
    rng = np.random.default_rng(seed)
    c = np.zeros((len(graph), len(graph)))
    for i, j in nx.convert_node_labels_to_integers(graph).edges:
        c[i, j] = c[j, i] = beta * rng.choice([-1.0, 1.0])
    return sklsb.Ising(c, np.zeros(len(graph)))


def network(seed, n=12, k=4, sd=0.7):
    """Random tables on a grid, k values each."""
    rng = np.random.default_rng(seed)
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(n, n))
    factors = [(edge, np.exp(sd * rng.normal(size=(k, k)))) for edge in graph.edges]
    factors += [((i,), np.exp(0.3 * rng.normal(size=k))) for i in graph]
    return sklsb.MarkovNetwork([k] * n * n, factors)


def triples(seed, n=150, m=200):
    """Soft constraints on random triples of bits."""
    rng = np.random.default_rng(seed)
    factors = [
        (tuple(int(i) for i in rng.choice(n, 3, replace=False)), np.exp(rng.normal(size=(2, 2, 2))))
        for _ in range(m)
    ]
    return sklsb.MarkovNetwork([2] * n, factors)


def rbm(seed, visible, hidden, sd):
    rng = np.random.default_rng(seed)
    bias = 0.3 * rng.normal(size=visible)
    return sklsb.RBM(sd * rng.normal(size=(visible, hidden)), bias, np.zeros(hidden))


def lattice(n, coupling, field=0.0):
    return sklsb.Ising.lattice(np.full((n, n), field), coupling=coupling)


def potts(seed, n=20):
    fields = 0.3 * np.random.default_rng(seed).normal(size=(n, n, 5))
    return sklsb.Potts.lattice(fields, coupling=0.8)


def three_dimensional(n=7, beta=0.18):
    graph = nx.convert_node_labels_to_integers(nx.grid_graph([n, n, n], periodic=True))
    return sklsb.Ising(beta * nx.to_numpy_array(graph), np.zeros(n**3))


def two_coupled_halves(seed):
    """Strong pairs in a weak field, in one half of the spins only."""
    rng = np.random.default_rng(seed)
    c = np.zeros((160, 160))
    for i in range(0, 80, 2):
        c[i, i + 1] = c[i + 1, i] = 2.0
    c[80:, 80:] = symmetric(rng, 80, 0.05)
    return sklsb.Ising(c, 0.3 * rng.normal(size=160))


TARGETS = {
    "Ising case 1": lambda s: paper(1, s),
    "Ising case 2": lambda s: paper(2, s),
    "Ising case 3": lambda s: paper(3, s),
    "Ising case 4": lambda s: paper(4, s),
    "critical 30x30": lambda s: lattice(30, 0.4407),
    "100x100, weak": lambda s: lattice(100, 0.2, 0.1),
    "dimers": dimers,
    "glass 20x20": lambda s: glasses(s)["glass 20x20"],
    "dense glass 100": lambda s: glasses(s)["dense glass 100"],
    "Potts 5, 20x20": potts,
    "RBM 100-40": lambda s: rbm(s, 100, 40, 0.2),
    "selection 200": lambda s: regression(200, s),
    "selection 1000": lambda s: regression(1000, s),
    # Not tuned on.
    "RBM 60-200": lambda s: rbm(s, 60, 200, 0.15),
    "glass, degree 3, 200": lambda s: graph_glass(nx.random_regular_graph(3, 200, seed=s), s, 0.6),
    "3-d lattice 7x7x7": lambda s: three_dimensional(),
    "hot ferromagnet 40x40": lambda s: lattice(40, 0.3),
    "tables on a grid, 4 values": network,
    "soft triples, 150": triples,
    "dense glass 60, beta .7": lambda s: sklsb.Ising(
        symmetric(np.random.default_rng(s), 60, 0.7 / 60**0.5), np.zeros(60)
    ),
    "pairs and a dense part": two_coupled_halves,
    "independent 300": lambda s: sklsb.Ising(
        np.zeros((300, 300)), np.random.default_rng(s).normal(size=300)
    ),
    "antiferromagnet in a field": lambda s: lattice(24, -0.35, 0.5),
    "selection 500": lambda s: regression(500, s),
}


def others(target):
    """Return samplers that may apply."""
    yield "systematic", sklsb.GibbsSampler("systematic")
    yield "colours", sklsb.GibbsSampler("chromatic")
    yield "random blocks", sklsb.GibbsSampler(block_size=4)
    yield "layers", sklsb.GibbsSampler("layers")
    yield "clusters", sklsb.ClusterSampler()
    yield "elimination", sklsb.EliminationSampler()


def indicators(x, target, sites):
    """Return chains of indicators of values, (chains, draws, ...), that vary."""
    x = x.reshape(*x.shape[:2], -1)[..., sites]
    parts = [x == value for value in target.values[1:]]
    hits = np.concatenate(parts, axis=2)
    return hits[..., hits.any(axis=(0, 1)) & ~hits.all(axis=(0, 1))].astype(float)


def measured(sampler, target, sites, thin, seconds):
    """Return effective draws per CPU second: weighted, and of the worst site."""
    began = time.process_time()
    sampler.sample(100, thin=thin)
    spent = max(time.process_time() - began, 1e-4)
    n = int(np.clip(seconds * 100 / spent, 500, 5_000))
    began = time.process_time()
    x = np.asarray(sampler.sample(n, thin=thin).x)
    spent = time.process_time() - began
    hits = indicators(x, target, sites)
    if not hits.shape[2]:  # nothing moved
        return 1e-9, 1e-9
    ess = np.array([arviz.ess(hits[..., i], method="mean") for i in range(hits.shape[2])])
    variance = hits.var(axis=(0, 1))
    return variance.sum() / (variance / ess).sum() / spent, ess.min() / spent


def best(sampler, target, sites, seconds):
    """Return the best figures at three distances between draws."""
    thin = sampler.thin_
    found = [measured(sampler, target, sites, max(1, int(thin * k)), seconds) for k in (1, 2, 0.5)]
    return tuple(np.max(found, axis=0))


def fitted(sampler, target):
    began = time.process_time()
    sampler.fit(target)
    return time.process_time() - began


def row_of(name, target, seed, seconds):
    sites = np.random.default_rng(seed).permutation(target.n_sites)[:MOST_SITES]
    for cls in (sklsb.LSBSampler, sklsb.AutoSampler):  # compile
        cls(random_state=seed, n_burn_in=20).fit(target).sample(10)
    sklsb.AutoSampler(random_state=seed + 1).fit(target)
    lsb, auto = sklsb.LSBSampler(random_state=seed), sklsb.AutoSampler(random_state=seed)
    fits = [fitted(one, target) for one in (lsb, auto)]
    states = auto.state_
    found = {"lsb": best(lsb, target, sites, seconds)}
    by_auto = best(auto, target, sites, seconds)
    for other, sampler in others(target):
        try:
            sampler.set_params(random_state=seed)
            if other != "elimination":
                sampler.set_params(n_burn_in=20)
            states_or_none = None if other == "elimination" else states.reshape(4, *target.shape)
            sampler.fit(target, initial_states=states_or_none)
        except (ValueError, TypeError, MemoryError):
            continue
        found[other] = best(sampler, target, sites, seconds)
    largest = max(found, key=lambda key: found[key][0])
    times = [fit + 1000 / f[1] for fit, f in zip(fits, (found["lsb"], by_auto), strict=True)]
    return {
        "target": name,
        "seed": seed,
        "ess": {key: float(f[0]) for key, f in found.items()},
        "auto": float(by_auto[0]),
        "chosen": auto.candidates_.attrs["chosen"],
        "best": largest,
        "regret": float(found[largest][0] / by_auto[0]),
        "fit": fits[1] / fits[0],
        "fit_seconds": fits[1],
        "time": times[1] / times[0],
    }


def uai(folder):
    for name in ("BN_126", "Segmentation_11"):
        for file in sorted(Path(folder).rglob(f"{name}.uai*")):
            if file.suffix in (".uai", ".gz"):
                yield name, lambda s, file=file: sklsb.MarkovNetwork.from_uai(file)
                break


def mean(values):
    return float(np.exp(np.mean(np.log(values))))


def table(rows):
    """Return an rst table with date and commit."""
    columns = ["lsb", *[name for name, _ in others(None)]]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    lines = [
        f".. Written by benchmarks/which_sampler.py on {date.today()}, commit {commit or 'unknown'}.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
        *(
            f"   {'* -' if i == 0 else '  -'} {head}"
            for i, head in enumerate(
                ["target", *columns, "AutoSampler", "it took", "regret", "fit"]
            )
        ),
    ]
    for row in rows:
        cells = [row["target"]]
        cells += [f"{row['ess'][key]:,.0f}" if key in row["ess"] else "" for key in columns]
        cells += [f"{row['auto']:,.0f}", row["chosen"], f"{row['regret']:.2f}", f"{row['fit']:.1f}"]
        lines += [f"   {'* -' if i == 0 else '  -'} {cell}" for i, cell in enumerate(cells)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--first", type=int, default=9000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", type=Path, default=Path("which_sampler.json"))
    parser.add_argument("--rst", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    targets = TARGETS | (dict(uai(options.data)) if options.data else {})
    rows = []
    for k, (name, make) in enumerate(targets.items()):
        if options.names and not any(part in name for part in options.names):
            continue
        row = row_of(name, make(options.first + k), options.first + k, options.seconds)
        rows.append(row)
        shown = ", ".join(f"{key} {value:,.0f}" for key, value in row["ess"].items())
        print(
            f"{name:26} {row['chosen']:12} {row['auto']:9,.0f} regret {row['regret']:5.2f} "
            f"fit {row['fit']:4.1f} ({row['fit_seconds']:.1f} s) time {row['time']:5.2f} | {shown}",
            flush=True,
        )
        options.json.write_text(json.dumps(rows, indent=1))
    regrets = [row["regret"] for row in rows]
    print(
        f"regret: geometric mean {mean(regrets):.2f}, largest {max(regrets):.2f}; fit: median "
        f"{np.median([row['fit'] for row in rows]):.2f}, largest "
        f"{max(row['fit'] for row in rows):.2f}; time: geometric mean "
        f"{mean([row['time'] for row in rows]):.2f}"
    )
    if options.rst:
        options.rst.write_text(table(rows))


if __name__ == "__main__":
    main()

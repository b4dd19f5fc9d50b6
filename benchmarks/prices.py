"""The prices by which AutoSampler compares samplers: nanoseconds of a transition, an evaluation.

Every rule runs on some targets of each class, in CPU seconds of one core; the least of three runs
counts. Prices are the least squares of relative errors that are not negative. Takes two minutes on
a quiet core, besides compilation. Prints each target's time beside what the prices say.

    python benchmarks/prices.py [--write]

--write replaces the table in sklsb/trials/prices.py.
"""

import argparse
import re
import time
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import torch
from scipy.optimize import nnls

from sklsb import (
    RBM,
    ClusterSampler,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    TorchTarget,
    VariableSelection,
)
from sklsb._kernels.run import Drawing
from sklsb.trials import prices

SECONDS = 0.15
TABLE = Path(prices.__file__)


def glass(graph, scale, seed=0):
    """Return an Ising model with random couplings on a graph."""
    matrix = np.triu(nx.to_numpy_array(graph), 1)
    matrix = scale * matrix * np.random.default_rng(seed).normal(size=matrix.shape)
    return Ising(matrix + matrix.T, np.zeros(len(graph)))


def selection(n_columns):
    """Return a regression in which four columns matter."""
    rng = np.random.default_rng(n_columns)
    x = rng.normal(size=(200, n_columns))
    return VariableSelection(x, x[:, :4].sum(axis=1) + rng.normal(size=200))


def network(n, k, seed=0):
    """Return a network on a random graph with k values per variable."""
    rng = np.random.default_rng(seed)
    edges = nx.random_regular_graph(3, n, seed=seed).edges
    return MarkovNetwork([k] * n, [((i, j), np.exp(rng.normal(size=(k, k)))) for i, j in edges])


def total(x):
    """Return a log-density that is cheap."""
    return 0.1 * x.sum(axis=-1)


class Perceptron(torch.nn.Module):
    """A log-density of the usual kind."""

    def __init__(self, n):
        super().__init__()
        hidden = torch.nn.Linear(n, 256), torch.nn.SiLU(), torch.nn.Linear(256, 256)
        self.layers = torch.nn.Sequential(*hidden, torch.nn.SiLU(), torch.nn.Linear(256, 1))

    def forward(self, x):
        return self.layers(x)[:, 0]


def targets():
    """Return targets of each class."""
    rng = np.random.default_rng(0)
    machines = [
        RBM(0.2 * rng.normal(size=size), np.zeros(size[0])) for size in ((100, 40), (300, 100))
    ]
    return [
        Ising.lattice(rng.normal(size=(30, 30)), 0.2),
        Ising.lattice(np.zeros((30, 30)), 0.44),
        Ising.lattice(rng.normal(size=(100, 100)), 0.1),
        glass(nx.grid_2d_graph(20, 20), 1.0),
        glass(nx.complete_graph(100), 0.05),
        glass(nx.random_regular_graph(16, 400, seed=1), 0.1),
        Potts.lattice(np.zeros((20, 20, 5)), 0.5),
        Potts.lattice(rng.normal(size=(30, 30, 3)), 0.3),
        *machines,
        network(60, 3),
        network(200, 2),
        selection(50),
        selection(200),
        FunctionTarget(total, 40),
        *(TorchTarget(Perceptron(n), n) for n in (40, 200, 784)),
    ]


def samplers(target):
    """Return what can run on a target."""
    if isinstance(target, TorchTarget):
        return [LSBSampler("barker"), LSBSampler("barker", fast=True)]
    found = [
        LSBSampler("barker", blocks=None),
        LSBSampler("barker", blocks=None, rejection_free=True),
        LSBSampler("barker", blocks=8),
        GibbsSampler("random"),
        GibbsSampler("systematic"),
        GibbsSampler("chromatic"),
        GibbsSampler("layers"),
        GibbsSampler(block_size=4),
        ClusterSampler(),
        ParallelTempering(n_burn_in=32, n_replicas=6),
        EliminationSampler(max_work=2**28),
    ]
    if target.graph is not None and target.graph.nnz > 8 * target.n_sites:
        found.remove(found[5])  # many colours
    return found


def measured(sampler, target):
    """Return nanoseconds and evaluations of a transition, and the rule."""
    sampler.set_params(n_chains=1, random_state=0)
    if not isinstance(sampler, EliminationSampler | ParallelTempering):
        sampler.set_params(n_burn_in=200)
    sampler.fit(target)
    chains, n, least = sampler.run_.ensemble, 4, np.inf
    none = np.empty((1, 0, target.n_sites), target.dtype), np.empty((1, 0, 2))
    took = 0.0
    while took < SECONDS:
        took, of_each, n = run(chains, 2 * n, none)
    for _ in range(3):
        took, of_each, _ = run(chains, n, none)
        least = min(least, took)
    if isinstance(sampler, EliminationSampler):
        of_each = chains.elimination.work_per_draw
    return 1e9 * least / n, of_each, chains.rule


def run(chains, n, none):
    """Return the seconds of n transitions, the evaluations of one, and n."""
    before, began = int(chains.chains.evaluations.sum()), time.process_time()
    for _ in range(n // 512):
        chains.run(512, Drawing(), none)
    chains.run(n % 512, Drawing(), none)
    took = time.process_time() - began
    return took, (int(chains.chains.evaluations.sum()) - before) / n, n


def fitted(rows):
    """Return the price that suits some rows (nanoseconds, evaluations, neighbours)."""
    took, evaluations, k = np.array(rows).T
    columns = np.column_stack([np.ones_like(took), evaluations, evaluations * k])
    several = len(rows) > 2
    depends = np.unique(k).size > 1
    same = several and np.unique(evaluations).size == 1  # as of first-order steps
    used = np.array([several or (len(rows) == 2 and not depends), not same, depends])
    found = np.zeros(3)
    found[used] = nnls(columns[:, used] / took[:, None], np.ones_like(took))[0]
    return prices.Price(*(float(f"{v:.3g}") for v in found))


def of_rows(rows):
    """Return the price of each rule on each class of targets, and on all together ("*")."""
    table = {key: fitted(of_key) for key, of_key in sorted(rows.items())}
    for name in sorted({rule for rule, _ in rows}):
        table[name, "*"] = fitted([row for key in rows if key[0] == name for row in rows[key]])
    return table


def show(table, rows):
    """Print prices, and how far they are from each measurement."""
    for key, price in table.items():
        off = [f"{price.work(1, e, k) / t:.2f}" for t, e, k in rows.get(key, [])]
        print(*key, tuple(price), "said / measured", *off)


def write(table):
    """Replace the table of the package."""
    lines = [f"    {key!r}: Price{tuple(p)!r},\n".replace("'", '"') for key, p in table.items()]
    text = TABLE.read_text(encoding="utf-8")
    new = re.sub(r"(= \{\n)[^}]*(\}\n# fmt: on)", lambda m: m[1] + "".join(lines) + m[2], text)
    TABLE.write_text(new, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the table of the package")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: dict = {}
    for target in targets():
        for sampler in samplers(target):
            try:
                took, evaluations, rule = measured(sampler, target)
            except (TypeError, ValueError):
                continue  # not for this target
            key = type(rule).__name__, type(target).__name__
            k = prices.neighbours(target)
            rows.setdefault(key, []).append((took, evaluations, k))
            print(*key, f"{took:.4g} ns, {evaluations:.4g} evaluations, k = {k:.3g}", flush=True)
    table = of_rows(rows)
    show(table, rows)
    if args.write:
        write(table)


if __name__ == "__main__":
    main()

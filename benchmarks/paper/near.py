"""Networks with zeros and near-deterministic tables: how far are the marginals from the exact ones?

They are not in the paper, whose two networks have no zeros. Steps of one variable run as the paper
runs them; beside them are the tools of the package, and elimination, which says what is true.
"""

import time
import warnings

import numpy as np

from sklsb import GibbsSampler, LSBSampler, exact
from sklsb.diagnostics import marginals
from sklsb.exceptions import SamplerWarning

from .report import STEPS, columns, said, table
from .uai import network

NAMES = ("BN_1", "BN_8", "BN_80", "Promedus_24", "Promedus_32", "Pedigree_11")
SIZES = {
    "full": {"seeds": 5, "chains": 5, "draws": 10_000, "names": [*NAMES, "BN_30"]},
    "quick": {"seeds": 2, "chains": 5, "draws": 10_000, "names": list(NAMES)},
}
# Transitions from draw to draw; draws a sweep apart are a tenth as many.
TOOLS = {
    "steps, Barker": (lambda: LSBSampler("barker", n_burn_in=500, **STEPS), 1),
    "chromatic sweeps": (lambda: GibbsSampler("chromatic"), 1),
    "``LSBSampler()``": (lambda: LSBSampler(), "sweep"),
}


def truth(target):
    """Return exact marginals, or None where elimination does not fit, and CPU seconds."""
    began, fits = time.process_time(), exact.elimination_cost(target, "marginals").fits
    p = exact.marginals(target)["p"].values if fits else None
    return p, time.process_time() - began


def outcome(sampler, thin, target, p, draws):
    """Return the mean error of the marginals, if there was a warning, and CPU seconds."""
    began = time.process_time()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        made = sampler.fit(target).sample(draws if thin == 1 else draws // 10, thin=thin)
        found = marginals(made, target)["p"].values
    return {
        "error": None if p is None else float(np.nanmean(np.abs(found - p))),
        "warned": any(issubclass(one.category, SamplerWarning) for one in given),
        "seconds": time.process_time() - began,
    }


def run(data, seeds, chains, draws, names):
    rows, elimination = [], {}
    targets = {name: network(data, name) for name in names}
    for name, target in targets.items():
        p, seconds = truth(target)
        elimination[name] = {"n": target.n_sites, "seconds": seconds, "done": p is not None}
        for seed in range(seeds):
            for tool, (make, thin) in TOOLS.items():
                sampler = make().set_params(n_chains=chains, random_state=seed, n_jobs=1)
                found = outcome(sampler, thin, target, p, draws)
                rows.append({"network": name, "name": tool, "seed": seed} | found)
    return {"rows": rows, "elimination": elimination}


def tables(result):
    cells = []
    for name, about in result["elimination"].items():
        seconds = f"{about['seconds']:.1f} s" if about["done"] else "does not fit"
        row = [name, f"{about['n']:,}", seconds]
        for tool in TOOLS:
            error, warned, seconds = (
                columns(result["rows"], key, network=name, name=tool)
                for key in ("error", "warned", "seconds")
            )
            row += [said(error, 4) if error.size else "unknown"]
            row += [f"{warned.sum():.0f} of {warned.size}", f"{seconds.mean():.1f} s"]
        cells.append(row)
    heads = ["network", "variables", "elimination"]
    for tool in TOOLS:
        heads += [f"{tool}: error", "warned", "CPU"]
    return table(heads, cells)


def draw(result):
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for tool in TOOLS:
        found = [row for row in result["rows"] if row["name"] == tool and row["error"] is not None]
        axis.plot([r["error"] for r in found], [r["network"] for r in found], "o", label=tool)
    axis.set(xscale="log", xlabel="mean error of the marginals")
    axis.legend()
    return figure

"""Ising models of 30x30 spins: Table 2 and Figures 2, 3 and 6 of the paper.

A periodic lattice with field +mu in the central square and -mu elsewhere, plus sigma U(-1, 1). A
seed is a field, and every sampler runs on it with all chains.
"""

import time

import numpy as np

from sklsb import GibbsSampler, Ising, LSBSampler
from sklsb.diagnostics import ess

from .report import FIXED, FUNCTIONS, STEPS, beside, columns, paper_run, said, table, total

SIZES = {
    "full": {"seeds": 30, "chains": 8, "draws": 30_000, "burn_in": 2000, "settle": 3000},
    "quick": {"seeds": 6, "chains": 8, "draws": 30_000, "burn_in": 2000, "settle": 3000},
}
# Coupling, mu, sigma, and lags of the paper's effective sample size.
CASES = {
    1: (0.0, 1.0, 3.0, 500),
    2: (0.0, 3.0, 3.0, 400),
    3: (1.0, 1.0, 3.0, 500),
    4: (1.0, 3.0, 3.0, 100),
}
# Mean and sd over 30 chains, in the order barker, sqrt, min, max, LSB 1, LSB 2.
PUBLISHED = {
    "final": {
        1: [(2.55, 0.30), (2.29, 0.23), (2.43, 0.22), (1.71, 0.13), (2.32, 0.27), (2.34, 0.23)],
        2: [(3.30, 0.36), (2.89, 0.28), (2.96, 0.30), (1.68, 0.11), (2.85, 0.28), (2.30, 0.29)],
        3: [(2.39, 0.98), (1.83, 0.56), (2.31, 0.92), (1.20, 0.10), (2.01, 0.70), (2.44, 0.96)],
        4: [(2.10, 0.91), (7.08, 4.07), (1.74, 0.26), (1.74, 0.51), (2.52, 1.11), (20.11, 15.58)],
    },
    "first": {
        1: [(2.48, 0.21), (2.30, 0.22), (2.42, 0.19), (1.75, 0.17), (2.50, 0.28), (2.46, 0.28)],
        2: [(3.33, 0.32), (2.94, 0.36), (3.33, 0.33), (1.72, 0.18), (2.98, 0.24), (3.33, 0.43)],
        3: [(2.58, 0.73), (1.99, 0.43), (2.56, 0.62), (1.26, 0.12), (2.48, 0.61), (2.67, 0.84)],
        4: [(32.8, 9.2), (18.5, 6.8), (31.8, 10.0), (2.60, 1.46), (18.4, 8.0), (30.8, 9.2)],
    },
}
NAMES = (*FIXED, "LSB 1", "LSB 2")
# Samplers for the same targets, and transitions from draw to draw.
TOOLS = {
    "one step at a time, Barker": (lambda: LSBSampler("barker", **STEPS), 30),
    "``LSBSampler()``": (lambda: LSBSampler(), 30),
    '``GibbsSampler("chromatic")``': (lambda: GibbsSampler("chromatic"), 1),
}


def square(n):
    """Return the truth behind the fields: +1 in the central square, -1 elsewhere."""
    truth = np.full((n, n), -1)
    truth[n // 4 : n - n // 4, n // 4 : n - n // 4] = 1
    return truth


def paper_field(mu, sigma, rng, n=30):
    return mu * square(n) + sigma * rng.uniform(-1, 1, (n, n))


def speed(make, thin, target, draws, seed):
    """Return effective draws of sum(x) per CPU second of `sample`."""
    sampler = make().set_params(n_chains=4, random_state=seed, n_jobs=1).fit(target)
    sampler.sample(2, thin=thin)  # compiles
    began = time.process_time()
    sums = sampler.sample(draws, thin=thin, record={"sum": total})
    return float(ess(sums)["sum"]) / (time.process_time() - began)


def run(data, seeds, n=30, cases=tuple(CASES), **size):
    rows, tools, states = [], [], {}
    for case in cases:
        coupling, mu, sigma, lags = CASES[case]
        for seed in range(seeds):
            field = paper_field(mu, sigma, np.random.default_rng([seed, case]), n)
            target = Ising.lattice(field, coupling)
            for name, function in FUNCTIONS.items():
                sampler, row, _ = paper_run(target, function, lags=lags, seed=seed, **size)
                x = sampler.burn_in_["x"].values
                at = x[:, min(300, x.shape[1]) - 1]
                row["wrong300"] = float((at != square(n)).mean())
                rows.append({"case": case, "name": name} | row)
                if seed:
                    del rows[-1]["trace"]
                elif case > 2:
                    states[f"{case}, {name}"] = at[0].tolist()
            for name, (make, thin) in TOOLS.items():
                rate = speed(make, thin, target, size["draws"], seed)
                tools.append({"case": case, "name": name, "rate": rate})
    return {"rows": rows, "tools": tools, "states": states}


def tables(result):
    cells = []
    for case in sorted({row["case"] for row in result["rows"]}):
        for k, name in enumerate(FUNCTIONS):
            here = {"case": case, "name": name}
            sizes = columns(result["rows"], "ess", **here)
            published = ["", said(sizes), "", "", ""]
            if name in NAMES:
                final = beside(sizes, *PUBLISHED["final"][case][k], 30)
                first = beside(sizes, *PUBLISHED["first"][case][k], 30)
                published = [final[0], final[1], final[2], first[0], first[2]]
            acceptance = said(columns(result["rows"], "acceptance", **here), 3)
            hit = said(columns(result["rows"], "hit95", **here), 0)
            wrong = 100 * columns(result["rows"], "wrong300", **here)
            cells.append([f"{case}: {name}", *published, acceptance, hit, said(wrong, 1)])
    heads = ["case: function", "final paper", "ours", "apart", "first version", "apart"]
    text = table([*heads, "accepted", "hit95", "wrong, %"], cells)
    names = list(TOOLS)
    speeds = [
        [f"case {case}"]
        + [said(columns(result["tools"], "rate", case=case, name=name), 0) for name in names]
        for case in sorted({row["case"] for row in result["tools"]})
    ]
    return (
        text
        + "\nEffective draws of the sum of the spins per CPU second:\n\n"
        + table(["", *names], speeds)
    )


def draw(result):
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(14, 7), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(3, 4))
    n_transitions = result["size"]["burn_in"] + result["size"]["settle"]
    for axis, case in zip(above.subplots(1, 4), CASES, strict=True):
        axis.set(title=f"Figure 2, case {case}", xlabel="transitions", xlim=(0, n_transitions / 2))
        for row in result["rows"]:
            if row["case"] == case and "trace" in row:
                at = np.linspace(0, n_transitions, len(row["trace"]))
                axis.plot(at, row["trace"], label=row["name"], linewidth=1)
    axis.legend(fontsize="xx-small", ncols=2)
    for axes, case in zip(below.subplots(2, len(FUNCTIONS)), (3, 4), strict=True):
        for axis, name in zip(axes, FUNCTIONS, strict=True):
            axis.set(xticks=[], yticks=[], title=name)
            if f"{case}, {name}" in result["states"]:
                axis.imshow(result["states"][f"{case}, {name}"], cmap="gray")
        axes[0].set_ylabel(f"Figure 3, case {case}")
    return figure

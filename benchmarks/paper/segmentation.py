"""A picture under noise: the use that section 5.1 of the paper has in mind, at 10,000 pixels.

A disc and a bar, as +1 and -1, under normal noise of two and a half times that size. A seed is a
noise. Wrong pixels are those on whose side the posterior mean is not.
"""

import time

import numpy as np

from sklsb import GibbsSampler, Ising, LSBSampler, Network
from sklsb.diagnostics import ess

from .report import BOUND, STEPS, columns, said, table

SIZES = {
    "full": {"seeds": 10, "n": 100, "sweeps": 20, "draws": 400},
    "quick": {"seeds": 3, "n": 100, "sweeps": 20, "draws": 100},
}
COUPLING, NOISE = 0.5, 2.5
# All draw a sweep apart.
SAMPLERS = {
    "barker": lambda: LSBSampler("barker", **STEPS),
    "sqrt": lambda: LSBSampler("sqrt", **STEPS),
    "LSB 1": lambda: LSBSampler("mixture", **BOUND, **STEPS),
    "LSB 2": lambda: LSBSampler(Network(), **BOUND, **STEPS),
    "``LSBSampler()``": lambda: LSBSampler(),
    "chromatic sweeps": lambda: GibbsSampler("chromatic"),
}


def picture(n):
    row, col = np.mgrid[:n, :n] / n
    disc = (row - 0.4) ** 2 + (col - 0.4) ** 2 < 0.08
    return np.where(disc | ((col > 0.8) & (row > 0.1) & (row < 0.9)), 1, -1)


def run(data, seeds, n, sweeps, draws):
    rows, truth = [], picture(n)
    for seed in range(seeds):
        observed = truth + NOISE * np.random.default_rng(seed).standard_normal(truth.shape)
        target = Ising.from_image(observed, noise_sd=NOISE, coupling=COUPLING)
        for name, make in SAMPLERS.items():
            sampler = make().set_params(n_chains=4, random_state=seed, n_jobs=1)
            by_colour = isinstance(sampler, GibbsSampler)
            sampler.set_params(n_burn_in=sweeps if by_colour else sweeps * truth.size)
            began = time.process_time()
            sampler.fit(target)
            fitted, began = time.process_time() - began, time.process_time()
            found = sampler.sample(draws, thin="sweep")
            took = time.process_time() - began
            p = (found["x"] == 1).mean(("chain", "draw")).values
            lp = sampler.sample_stats_[["lp"]]
            rows.append(
                {
                    "name": name,
                    "seed": seed,
                    "before": float(((observed > 0) != (truth > 0)).mean()),
                    "wrong": float(((p > 0.5) != (truth > 0)).mean()),
                    "fit": fitted,
                    "ess": float(ess(lp)["lp"]) / (4 * draws),
                    "rate": float(ess(lp)["lp"]) / took,
                }
            )
    return {"rows": rows, "picture": observed.round(2).tolist(), "p": p.round(3).tolist()}


def tables(result):
    cells = []
    for name in SAMPLERS:
        before, wrong, fit, size, rate = (
            columns(result["rows"], key, name=name)
            for key in ("before", "wrong", "fit", "ess", "rate")
        )
        cells.append([name, said(100 * before), said(100 * wrong), said(fit, 1)])
        cells[-1] += [said(size, 3), said(rate, 0)]
    heads = ["sampler", "wrong before, %", "after, %", "fit, CPU s", "effective / draw"]
    return table([*heads, "effective draws / CPU s"], cells)


def draw(result):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.5), layout="constrained")
    shown = (picture(result["size"]["n"]), result["picture"], result["p"])
    for axis, image, title in zip(axes, shown, ("truth", "observed", "posterior"), strict=True):
        axis.imshow(image, cmap="gray")
        axis.set(title=title, xticks=[], yticks=[])
    return figure

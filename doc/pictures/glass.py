"""A spin glass: overlaps of independent ladders by temperature, and the lowest state in layers."""

import matplotlib.pyplot as plt
import numpy as np

from sklsb import Ising, ParallelTempering
from sklsb.diagnostics import overlaps

bonds = np.random.default_rng(3).choice([-1.0, 1.0], (3, 4, 4, 4))
glass = Ising.lattice(np.zeros((4, 4, 4)), coupling=bonds)
ladders = ParallelTempering(betas=[0.3, 0.5], random_state=0).fit(glass)
q = overlaps(ladders.sample(4000, temperatures="all"))

figure = plt.figure(figsize=(9, 3.2), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1.2, 1])
axis = left.subplots()
for beta in (0.3, 0.5, 1.0):
    p = q.sel(beta=beta)
    axis.errorbar(p["bin"], p["p"], 2 * p["mcse"], marker="o", ms=3, label=f"T = {1 / beta:.1f}")
axis.set(xlabel="overlap q", ylabel="P(q)", ylim=(0, None))
axis.legend(frameon=False)
ground = ladders.best_state_["x"][0]
for layer, cell in zip(ground, right.subplots(2, 2).flat, strict=True):
    cell.imshow(layer, cmap="Greys", vmin=-1.5, vmax=1.5)
    cell.set(xticks=[], yticks=[])
right.suptitle(f"lowest state found, energy {-float(ground['lp']):.0f}, in layers")

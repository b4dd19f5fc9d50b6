"""Energy, specific heat and Binder's ratio of two lattices, from one run of tempering each."""

import matplotlib.pyplot as plt
import numpy as np

from sklsb import Ising, ParallelTempering
from sklsb.diagnostics import binder, expectation, specific_heat

T, fine = np.linspace(1.8, 3.0, 7), np.linspace(1.8, 3.0, 40)
figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
for color, (size, n) in enumerate({8: 4000, 16: 3000}.items()):
    lattice = Ising.lattice(np.zeros((size, size)), coupling=1 / T.min())
    sampler = ParallelTempering(betas=T.min() / T, random_state=0).fit(lattice)
    record = {"m": lambda x: x.sum((1, 2))}
    draws = sampler.sample(n, temperatures="all", record=record)
    betas, scale = T.min() / fine, T.min() / size**2
    log_p = expectation(draws, betas=betas)
    heat, ratio = specific_heat(draws, betas=betas), binder(draws, "m", betas=betas)
    curves = [(-scale * log_p.value, scale * log_p.mcse)]
    curves += [(heat["specific_heat"], heat["mcse"]), (ratio["binder"], ratio["mcse"])]
    for axis, (value, error) in zip(axes, curves, strict=True):
        axis.plot(fine, value, color=f"C{color}", label=f"{size} x {size}")
        axis.fill_between(fine, value - 2 * error, value + 2 * error, color=f"C{color}", alpha=0.25)
titles = "energy of a spin", "specific heat of a spin", "Binder's ratio"
for axis, title in zip(axes, titles, strict=True):
    axis.axvline(2 / np.log(1 + np.sqrt(2)), color="0.6", linewidth=1, zorder=0)
    axis.set(title=title, xlabel="temperature")
axes[0].legend(frameon=False)

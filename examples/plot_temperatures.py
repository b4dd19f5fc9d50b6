"""
A critical temperature from one run
===================================

Below a critical temperature the spins of a square lattice are magnetised. Where it lies shows in
small lattices: Binder's ratio of the magnetisation takes the same value there in all of them, so
its curves cross. One run of tempering has the draws at every temperature.
"""

# %%
# Draws at ten temperatures
# -------------------------
# The target is the coldest lattice, T = 1.8, and ``betas`` are that over each other temperature.
# ``fit`` adds hotter ones, up to the infinite one, so that replicas can travel. The sum of the
# spins is recorded at all of them.

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import brentq
from scipy.special import ellipk

from sklsb import Ising, ParallelTempering
from sklsb.diagnostics import binder, expectation, specific_heat

T = np.linspace(1.8, 3.2, 10)
betas = T.min() / T
runs = {}
for size, n in ((6, 8000), (10, 5000), (16, 4000)):
    lattice = Ising.lattice(np.zeros((size, size)), coupling=1 / T.min())
    sampler = ParallelTempering(betas=betas, random_state=0).fit(lattice)
    record = {"m": lambda x: x.sum((1, 2))}
    runs[size] = sampler.sample(n, temperatures="all", record=record)
    print(f"{size} x {size}: round trips {sampler.n_round_trips_}")

# %%
# Where the ratios cross
# ----------------------
# Draws at all temperatures, reweighted, say what holds between them. The critical temperature of
# an infinite lattice is 2 / log(1 + sqrt(2)) = 2.269.

fine = np.linspace(1.8, 3.2, 60)
curves = {size: binder(draws, "m", betas=T.min() / fine) for size, draws in runs.items()}


def apart(t):
    """Difference of two of the ratios."""
    at = [binder(runs[size], "m", betas=[T.min() / t])["binder"].item() for size in (6, 16)]
    return at[0] - at[1]


print(f"6 x 6 and 16 x 16 cross at T = {brentq(apart, 2.1, 2.5, xtol=1e-3):.3f}")

# %%
# Energy and heat
# ---------------
# The energy of a spin is -T_min log p / N, if log p is that of the coldest lattice. Onsager's
# energy, of an infinite lattice, is the line; small lattices leave it near the critical point only.


def onsager(t):
    """Energy of a spin in an infinite square lattice."""
    k = 2 * np.sinh(2 / t) / np.cosh(2 / t) ** 2
    inner = 2 * np.tanh(2 / t) ** 2 - 1
    return -(1 + 2 / np.pi * inner * ellipk(k**2)) / np.tanh(2 / t)


figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
for k, (size, draws) in enumerate(runs.items()):
    style = {"color": f"C{k}", "label": f"{size} x {size}"}
    ratio = curves[size]
    axes[0].plot(fine, ratio["binder"], **style)
    band = [ratio["binder"] + two * ratio["mcse"] for two in (-2, 2)]
    axes[0].fill_between(fine, *band, color=f"C{k}", alpha=0.2, linewidth=0)
    scale = T.min() / size**2
    log_p, heat = expectation(draws, betas=betas), specific_heat(draws, betas=betas)
    style |= {"fmt": "o", "markersize": 4}
    axes[1].errorbar(T, -scale * log_p.value, 2 * scale * log_p.mcse, **style)
    axes[2].errorbar(T, heat["specific_heat"], 2 * heat["mcse"], **style)
axes[0].axvline(2 / np.log(1 + np.sqrt(2)), color="0.6", linewidth=1, zorder=0)
axes[1].plot(fine, onsager(fine), color="0.4", linewidth=1, zorder=0, label="Onsager")
titles = "Binder's ratio", "energy of a spin", "specific heat of a spin"
for axis, title in zip(axes, titles, strict=True):
    axis.set(title=title, xlabel="temperature")
    axis.legend(frameon=False)
plt.show()

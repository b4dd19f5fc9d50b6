"""
Crossing between modes
======================

In a spin glass neighbours pull at each other with random signs. At a low temperature it has many
good states that are far apart, and a chain of single changes stays near the first one it finds.
Replicas at several temperatures change places, and carry states from one mode to another.
"""

# %%
# A glass
# -------
# A grid of 12 x 12 spins whose couplings are +1 or -1 by coin flips, at the inverse temperature 2.
# It has no field, so a state and its opposite are equally probable, and the mean of every spin is
# 0.

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from sklsb import GibbsSampler, Ising, ParallelTempering, anneal, exact
from sklsb.exceptions import SeparatedModesWarning

size, beta = 12, 2.0
rng = np.random.default_rng(0)
index = np.arange(size**2).reshape(size, size)
pairs = np.concatenate(
    [
        np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1),
        np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1),
    ]
)
sign = rng.choice([-1.0, 1.0], len(pairs))
couplings = sp.csr_array((beta * sign, pairs.T), shape=(size**2, size**2))
glass = Ising(couplings + couplings.T)
glass

# %%
# Plain chains
# ------------
# Four chains of Gibbs sweeps. Their means should all be 0, and are not: each chain has its own. The
# warning says that they disagree, which is the best that chains can do about it.

import warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    plain = GibbsSampler("chromatic", random_state=0).fit(glass).sample(4000)
print([w.category.__name__ for w in caught if w.category is SeparatedModesWarning])

# %%
# Tempering
# ---------
# Four ladders of replicas. ``verbose=1`` would show a line for each round of the burn-in. The last
# row of the history says how many replicas there are, and how often they went around.

tempering = ParallelTempering(random_state=0).fit(glass)
tempered = tempering.sample(4000)
print(tempering.history_.isel(round=-1).to_pandas())
print("round trips of each ladder:", tempering.n_round_trips_)

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, draws, title in zip(axes, (plain, tempered), ("plain", "tempered"), strict=True):
    mean = np.sort(draws["x"].mean("draw").values, axis=1).T
    ax.plot(mean, linewidth=1.5)
    ax.axhline(0, color="0.6", linewidth=1)
    ax.set(title=f"{title}: mean of each spin", xlabel="spin, in the order of its mean")
axes[0].set_ylabel("mean of a chain (exactly 0)")
axes[0].set_ylim(-1.05, 1.05)

# %%
# Where the replicas go
# ---------------------
# One ladder over 200 scans. Two of the replicas are drawn thicker. A round trip is a way from the
# bottom, where the state is drawn anew, to the top, where the draws are taken, and back.

fig, ax = plt.subplots(figsize=(9, 4), layout="constrained")
tempering.plot_index_process(ax, n_scans=200)
for k, line in enumerate(ax.lines):
    line.set(color="0.75" if k > 1 else f"C{k}", linewidth=0.7 if k > 1 else 2.0)
    line.set_zorder(1 if k > 1 else 2)

# %%
# The normalising constant, and the best state
# --------------------------------------------
# A grid as small as this can be summed exactly, so that one sees what the estimates are worth.

print(f"log Z {tempering.log_z_:.3f} +- {tempering.log_z_error_:.3f}")
print(f"exactly {exact.log_partition(glass):.3f}")
truth = float(exact.most_likely(glass)["lp"])
print("largest log p:", truth, "seen by tempering:", float(tempering.best_state_["lp"].max()))

# %%
# If the best state is all one wants, annealing is faster.

found = anneal(glass, n_sweeps=500, random_state=0)
print("found by annealing:", found["lp"].values)

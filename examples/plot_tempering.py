"""
Parallel tempering: crossing between modes
==========================================

In a spin glass neighbours pull at each other with random signs. At a low temperature it has many
good states that are far apart, and a chain of single changes stays near the first one it finds.
Replicas at several temperatures change places, and carry states from one mode to another.
"""

# %%
# A glass, and plain chains in it
# -------------------------------
# A grid of 12 x 12 spins whose couplings are +2 or -2 by coin flips. It has no field, so a state
# and its opposite are equally probable, and the mean of every spin is 0. Four chains of Gibbs
# sweeps each have their own means, and a warning says that they disagree.

import warnings

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from sklsb import GibbsSampler, Ising, ParallelTempering, exact

rng = np.random.default_rng(0)
couplings = np.triu(
    nx.to_numpy_array(nx.grid_2d_graph(12, 12)) * rng.choice([-2, 2], (144, 144))
)
glass = Ising(couplings + couplings.T)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    plain = GibbsSampler("chromatic", random_state=0).fit(glass).sample(4000)
print([w.category.__name__ for w in caught])

# %%
# Tempering
# ---------
# Four ladders of replicas. A round trip leads from the bottom, where the state is drawn anew, to
# the top, where the draws are taken, and back. On such a grid a ladder has two replicas at every
# temperature, which exchange parts in which they differ. A grid as small as this can be summed
# exactly, which shows what the estimate of log Z is worth.
#
# The mean of a spin is twice its probability of +1, minus 1. So the mean in one ladder has a
# standard error of about 1 / sqrt(``n_visits_``). The largest of 144 may be two of these from 0.
#
# The last panel has a part of the scans of one ladder, with a replica in red that goes from the
# bottom, level 0, to the top and back.

tempering = ParallelTempering(random_state=0).fit(glass)
tempered = tempering.sample(4000)
print("round trips of each ladder:", tempering.n_round_trips_)
print("standard error of a mean in each:", (1 / np.sqrt(tempering.n_visits_)).round(2))
print(f"log Z {tempering.log_z_:.3f} +- {tempering.log_z_error_:.3f}", end=", ")
print(f"exactly {exact.log_partition(glass):.3f}")

figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
for axis, (name, draws) in zip(
    axes, {"plain": plain, "tempered": tempered}.items(), strict=False
):
    axis.plot(np.sort(draws["x"].mean("draw").values, axis=1).T)
    axis.axhline(0, color="0.6", linewidth=1)
    axis.set(title=f"{name}: mean of each spin", ylim=(-1.05, 1.05))
    axis.set_xlabel("spins, sorted in each chain")
levels = tempering.index_process_.sel(chain=0).isel(scan=slice(0, 320))
levels.plot.line(x="scan", ax=axes[2], add_legend=False, linewidth=0.8)
for k, line in enumerate(axes[2].lines):
    red = k == 5  # with this seed, the first to complete a round trip here
    line.set(color="C3" if red else "0.8", linewidth=2.0 if red else 0.7, zorder=red - 2)
axes[2].set(title="One replica of a ladder", ylabel="temperature level, 0 is hottest")
plt.show()

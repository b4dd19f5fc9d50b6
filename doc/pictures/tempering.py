"""Four chains that stay in their modes, and four ladders that do not."""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from sklsb import GibbsSampler, Ising, ParallelTempering
from sklsb.exceptions import SamplerWarning

ising = Ising.lattice(np.full((8, 8), 0.02), coupling=0.7)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", SamplerWarning)  # the chains disagree, as shown
    plain = GibbsSampler("chromatic", init="uniform", random_state=1).fit(ising).sample(1000)
tempered = ParallelTempering(random_state=0).fit(ising).sample(1000)

figure, axes = plt.subplots(1, 2, figsize=(9, 2.6), sharey=True, layout="constrained")
found = {"chains of single changes": plain, "ParallelTempering": tempered}
for axis, (title, draws) in zip(axes, found.items(), strict=True):
    means = draws["x"].mean(("row", "col")).values
    for chain, mean in enumerate(means):
        axis.plot(mean, ".", markersize=2, color=f"C{chain}")
    axis.set(title=title, xlabel="draw", ylim=(-1.1, 1.1))
axes[0].set_ylabel("mean of the spins")

"""Draws of a square lattice above, at and below the critical temperature."""

import matplotlib.pyplot as plt
import numpy as np

from sklsb import ClusterSampler, Ising

figure, axes = plt.subplots(1, 3, figsize=(6, 2.4), layout="constrained")
for axis, T in zip(axes, (3.5, 2.269, 1.9), strict=True):
    target = Ising.lattice(np.zeros((128, 128)), coupling=1 / T)
    sampler = ClusterSampler(n_chains=1, n_burn_in=1000, random_state=0).fit(target)
    axis.imshow(sampler.sample(1)["x"][0, 0], cmap="cividis", vmin=-1, vmax=1)
    axis.set_title(f"T = {T}", fontsize=10)
    axis.set(xticks=[], yticks=[])

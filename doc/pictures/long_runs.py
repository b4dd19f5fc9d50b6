"""A run that was cut off and resumed, and the same run without a break."""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

from sklsb import Ising, LSBSampler

target = Ising.lattice(np.full((16, 16), 0.02), coupling=0.4)
sampler = LSBSampler("barker", n_chains=2, random_state=0).fit(target)


def means(sampler, n):
    return sampler.sample(n, thin="sweep")["x"].mean(("row", "col"))


with tempfile.TemporaryDirectory() as folder:
    before = means(sampler, 120)
    sampler.save(f"{folder}/fitted")
    unbroken = means(sampler, 180)
    resumed = means(LSBSampler.load(f"{folder}/fitted", target), 180)

figure, axis = plt.subplots(figsize=(9, 2.6), layout="constrained")
for chain in range(2):
    axis.plot(range(300), [*before[chain], *unbroken[chain]], color="0.85", linewidth=5)
    axis.plot(range(120), before[chain], color="C0", linewidth=1)
    axis.plot(range(120, 300), resumed[chain], color="#f2a03d", linewidth=1)
axis.axvline(119.5, color="0.3", linestyle=":")
axis.text(118, 1.02, "the process ends", ha="right", transform=axis.get_xaxis_transform())
axis.text(121, 1.02, "another one goes on", transform=axis.get_xaxis_transform())
axis.set(xlabel="draw", ylabel="mean of the spins", xlim=(0, 300))
axis.spines[["top", "right"]].set_visible(False)

"""Races between samplers on four targets: each has another winner."""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from sklsb import AutoSampler, Ising
from sklsb.exceptions import SamplerWarning

warnings.simplefilter("ignore", SamplerWarning)  # candidates that lose disagree with the winner

rng = np.random.default_rng(0)
free = rng.random((20, 20)) < 0.03
targets = {
    "weakly tied spins": Ising.lattice(rng.normal(size=(20, 20)), coupling=0.3),
    "a critical lattice": Ising.lattice(np.zeros((24, 24)), coupling=0.44),
    "a strip": Ising.lattice(rng.normal(0, 0.3, (4, 30)), coupling=0.8, periodic=False),
    "few spins are free": Ising.lattice(np.where(free, 0.3, 5.0), coupling=0.2),
}
names = ["lsb", "chromatic", "clusters", "elimination"]
figure, axes = plt.subplots(2, 2, figsize=(7, 4), sharex=True, sharey=True, layout="constrained")
for axis, (title, target) in zip(axes.flat, targets.items(), strict=True):
    found = AutoSampler(random_state=0).fit(target).candidates_
    rate = found["ess_per_work"].to_series().reindex(names).fillna(0)
    colours = ["#f2a03d" if name == found.attrs["chosen"] else "0.7" for name in names]
    axis.barh(names, rate / rate.max(), color=colours)
    axis.set(title=title, xscale="log", xlim=(1e-4, 1))
    axis.set_xticks([1e-3, 1e-2, 1e-1, 1], ["0.001", "0.01", "0.1", "1"])
    axis.spines[["top", "right"]].set_visible(False)
axes[0, 0].invert_yaxis()
figure.supxlabel("effective draws, best = 1")

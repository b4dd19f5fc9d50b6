"""Chains that stay in their modes, and what their draws make of the weights of these."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binom

from sklsb import RBM, LSBSampler
from sklsb.exceptions import SamplerWarning

wide, narrow = np.log(0.7 / 0.3), np.log(0.02 / 0.98)
weights = np.full((30, 1), narrow - wide)
machine = RBM(weights, np.full(30, wide), [30 * np.log(0.98 / 0.3)])
with warnings.catch_warnings():
    warnings.simplefilter("ignore", SamplerWarning)  # as the page says
    draws = LSBSampler("sqrt", random_state=0).fit(machine).sample(1000, thin="sweep")
on = draws["x"].sum("site").values

units = np.arange(31)
truth = (binom.pmf(units, 30, 0.7) + binom.pmf(units, 30, 0.02)) / 2
figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
for chain in range(4):
    axes[0].plot(on[chain], ".", markersize=2)
axes[0].set(title="four chains", xlabel="draw", ylabel="units that are on")
counts = np.bincount(on.ravel(), minlength=31)
axes[1].bar(units, counts / counts.sum(), color="#f2a03d", label="draws of all chains")
axes[1].step(units, truth, where="mid", color="0.2", label="the target")
axes[1].set(xlabel="units that are on", ylabel="probability")
axes[1].legend(frameon=False)

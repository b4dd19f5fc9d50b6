"""Draws that are one transition apart, and draws that ``thin="auto"`` keeps."""

import warnings

import arviz
import matplotlib.pyplot as plt
import numpy as np

from sklsb import Ising, LSBSampler
from sklsb.exceptions import SamplerWarning

warnings.simplefilter("ignore", SamplerWarning)  # 200 transitions are three sweeps

field = np.linspace(-1.0, 1.0, 64).reshape(8, 8)
target = Ising.lattice(field, coupling=0.3)
sampler = LSBSampler("barker", n_chains=2, n_burn_in=500, random_state=0).fit(target)
total = {"sum": lambda x: x.sum(axis=(1, 2))}

figure, axes = plt.subplots(1, 2, figsize=(9, 2.6), sharey=True, layout="constrained")
for axis, thin in zip(axes, (1, "auto"), strict=True):
    draws = sampler.sample(200, thin=thin, record=total)
    ess = float(arviz.ess(draws)["sum"])
    for chain in draws["sum"].values:
        axis.plot(chain, linewidth=0.9)
    axis.set(title=f"thin={thin!r}: {draws['sum'].size} draws are worth {ess:.0f}", xlabel="draw")
axes[0].set_ylabel("sum of the spins")

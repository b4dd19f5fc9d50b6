"""
Dreamt digits, several flips at a time
======================================

With ``fast=True`` one gradient of log p proposes which pixels to change, and with
``n_flips="auto"`` several change at once. (In :doc:`plot_rbm_digits` a machine is sampled one pixel
at a time, with the exact log-ratios of all changes.)
"""

# %%
# Dreams
# ------
# A machine is trained for some seconds, then left to itself. In the burn-in the balancing function
# is learned, and the number of flips per gradient is raised until about 60 % of the proposals are
# accepted. Then both are frozen; the Metropolis-Hastings acceptance keeps the chain exact.

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from sklsb import LSBSampler
from sklsb.diagnostics import autocorrelation
from sklsb.exceptions import SamplerWarning
from sklsb.samplers import contrastive_divergence

# Some pixels at the border are white in all digits, and these runs are short.
warnings.filterwarnings("ignore", category=SamplerWarning)
digits = load_digits().data > 7
machine = contrastive_divergence(digits, 100, n_epochs=100, shape=(8, 8), random_state=0)
settings = {"fast": True, "n_chains": 40}
sampler = LSBSampler(n_flips="auto", n_burn_in=5000, random_state=0, **settings).fit(machine)
dreams = sampler.sample(20, thin=200)["x"].to_numpy()[:20, -1]
print(f"{sampler.n_flips_} flips per gradient, acceptance", end=" ")
print(f"{float(sampler.sample_stats_['acceptance_rate'].mean()):.2f}")

figure, axes = plt.subplots(2, 10, figsize=(10, 2.2), layout="constrained")
for axis, image in zip(axes.flat, dreams, strict=True):
    axis.imshow(image, cmap="Greys", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[])

# %%
# What several flips are worth
# ----------------------------
# How long does the number of dark pixels remember? Every transition takes one gradient. Block Gibbs
# sampling, ``GibbsSampler("layers")``, is faster still; first-order proposals are for energies
# without that structure: :doc:`plot_torch_energy`.

figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for n in (1, sampler.n_flips_):
    one = LSBSampler(
        sampler.balancing_.tabulated(), n_flips=n, n_burn_in=1000, random_state=1
    )
    one.set_params(**settings).fit(machine)
    ink = one.sample(2000, record={"ink": lambda x: x.sum(axis=(1, 2))})["ink"].to_numpy()
    memory = autocorrelation(ink, 60).mean(axis=0)
    print(f"n_flips={n}: {1 + 2 * memory[1:].sum():.1f} gradients per independent draw")
    axis.plot(memory, label=f"n_flips={n}")
axis.set(xlabel="gradients", ylabel="autocorrelation of dark pixels")
axis.legend()

"""
Dreamt digits, several flips at a time
======================================

A restricted Boltzmann machine that was trained on digits is left to itself: what does it dream of?
With ``fast=True`` one gradient of log p proposes which pixels to change, all of them by
first-order log-ratios, and with ``n_flips="auto"`` several pixels change at once. (In
:doc:`plot_rbm_digits` a machine of scikit-learn is sampled one pixel at a time, with the exact
log-ratios of all changes.)
"""

# %%
# A machine
# ---------
# Contrastive divergence, some seconds. The digits come with scikit-learn.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from sklsb import LSBSampler
from sklsb.datasets import load_digits
from sklsb.diagnostics import autocorrelation
from sklsb.exceptions import FrozenSitesWarning
from sklsb.training import contrastive_divergence

# Some pixels at the border are white in all digits, and in short runs.
warnings.filterwarnings("ignore", category=FrozenSitesWarning)
digits = load_digits()
machine = contrastive_divergence(
    digits.data, n_hidden=100, n_epochs=100, shape=digits.shape, random_state=0
)

# %%
# Dreams
# ------
# The chains start from noise. In the burn-in the balancing function is learned, and the number of
# flips per gradient is raised until about 60 % of the proposals are accepted. Then both are frozen,
# and the Metropolis-Hastings acceptance keeps the chain exact.

sampler = LSBSampler(
    "learned", fast=True, n_flips="auto", n_chains=40, n_burn_in=5000, random_state=0
).fit(machine)
dreams = sampler.sample(20, thin=200)["x"].to_numpy()
stats = sampler.sample_stats_
print("flips per gradient:", sampler.n_flips_)
print(f"acceptance: {float(stats['acceptance_rate'].mean()):.2f}")
print(f"mean log p of digits: {machine.log_prob(digits.data).mean():.1f}")
print(f"mean log p of dreams: {float(stats['lp'].mean()):.1f}")

rng = np.random.default_rng(0)
data = digits.data[rng.choice(len(digits.data), 20, replace=False)].reshape(-1, 8, 8)
figure, axes = plt.subplots(4, 10, figsize=(10, 4.4), layout="constrained")
pairs = {"digits": data, "dreams": dreams[:20, -1]}
for (name, images), lines in zip(pairs.items(), axes.reshape(2, 2, 10), strict=True):
    for axis, image in zip(lines.flat, images, strict=True):
        axis.imshow(image, cmap="Greys", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
    lines[0, 0].set_ylabel(name, rotation=0, ha="right", va="center")

# %%
# What several flips are worth
# ----------------------------
# The same function, one flip per gradient and as many as were found: how long does the number of
# dark pixels remember? Every transition takes one gradient, so the lags below count gradients. More
# of the larger moves are refused; still the chain forgets several times faster.

function = sampler.balancing_.tabulated()
figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
for n_flips in (1, sampler.n_flips_):
    chains = LSBSampler(
        function, fast=True, n_flips=n_flips, n_chains=40, n_burn_in=1000, random_state=1
    ).fit(machine)
    ink = chains.sample(2000, record={"ink": lambda x: x.sum(axis=(1, 2))})["ink"].to_numpy()
    memory = autocorrelation(ink, 60).mean(axis=0)
    accepted = float(chains.sample_stats_["acceptance_rate"].mean())
    time = 1 + 2 * memory[1:].sum()
    print(
        f"n_flips={n_flips}: acceptance {accepted:.2f}, {time:.1f} gradients per independent draw"
    )
    axis.plot(memory, label=f"n_flips={n_flips}")
axis.set(xlabel="gradients", ylabel="autocorrelation of dark pixels", ylim=(-0.05, 1))
axis.legend(frameon=False)
axis.spines[["top", "right"]].set_visible(False)

# %%
# A restricted Boltzmann machine has a still faster sampler, for it alone: block Gibbs sampling,
# ``GibbsSampler("layers")``, draws all hidden units at once, then all visible ones. First-order
# proposals are for energies without that structure: :doc:`plot_torch_energy`.

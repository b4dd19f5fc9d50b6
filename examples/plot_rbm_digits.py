"""
Digits from a restricted Boltzmann machine
==========================================

scikit-learn trains restricted Boltzmann machines and samples from them by block Gibbs steps. Here a
machine is trained on handwritten digits, and its visible units are sampled with the hidden ones
summed out: every transition weighs all 64 pixels by what changing each would do to the density.
"""

# %%
# Training
# --------
# The digits of scikit-learn have 8 x 8 pixels of 0 to 16; a pixel counts as ink if it is above 7.
# The steps are small: with a learning rate of 0.05 instead of 0.003 most of the probability ends up
# on fours. That is a fault of the training, which only long chains show.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import BernoulliRBM

from sklsb import RBM, LSBSampler

digits = load_digits()
images = (digits.images > 7).astype(np.int8)
trained = BernoulliRBM(n_components=100, learning_rate=0.003, n_iter=160, random_state=0)
trained.fit(images.reshape(-1, 64))

# %%
# The target
# ----------
# ``from_sklearn`` takes weights and biases; with ``shape`` states and draws are images. The log p
# of the data, of noise, and of data with one pixel changed shows what the machine has learned.

machine = RBM.from_sklearn(trained, shape=(8, 8))
rng = np.random.default_rng(0)
spoiled = images.reshape(-1, 64).copy()
pixel = rng.integers(64, size=len(spoiled))
spoiled[np.arange(len(spoiled)), pixel] ^= 1
print(machine)
for name, x in (
    ("digits", images),
    ("digits, one pixel changed", spoiled),
    ("noise", rng.integers(2, size=images.shape)),
):
    print(f"mean log p of {name:26}{machine.log_prob(x).mean():8.2f}")

# %%
# Sampling
# --------
# Thirty chains start from noise, and a state is kept every 40 sweeps.

sampler = LSBSampler(n_chains=30, random_state=0).fit(machine)
draws = sampler.sample(20, thin=40 * machine.n_sites)["x"].to_numpy()
print("balancing function:", sampler.balancing_)
print(f"mean log p of {'draws':26}{machine.log_prob(draws).mean():8.2f}")

# %%
# What it looks like
# ------------------
# Third row: what the hidden units make of the draw above. ``hidden_probabilities`` gives
# P(h = 1 | x) of each; with these in the place of h, a pixel is ink with the probability shown.
# Last row: the weights of some of the hidden units, the strokes that images are made of.

shown = draws[:, -1][:10]
hidden = machine.hidden_probabilities(shown)
expected = 1 / (1 + np.exp(-(machine.visible_bias + hidden @ machine.weights.T)))
strongest = np.argsort(-np.abs(machine.weights).sum(axis=0))[:10]
filters = machine.weights.T[strongest].reshape(-1, 8, 8)
rows = {
    "data": (images[rng.choice(len(images), 10, replace=False)], "Greys", (0, 1)),
    "draws": (shown, "Greys", (0, 1)),
    "P(ink)": (expected.reshape(-1, 8, 8), "Greys", (0, 1)),
    "weights": (filters, "PuOr_r", (-1.5, 1.5)),
}
figure, axes = plt.subplots(4, 10, figsize=(10, 4.4), layout="constrained")
for (name, (row, colours, limits)), line in zip(rows.items(), axes, strict=True):
    for axis, image in zip(line, row, strict=True):
        axis.imshow(image, cmap=colours, vmin=limits[0], vmax=limits[1])
        axis.set(xticks=[], yticks=[])
    line[0].set_ylabel(name, rotation=0, ha="right", va="center")

# %%
# The mean image of the draws against that of the data, over all chains and draws. They agree as far
# as a few seconds of training go: the draws are exact for the machine, not for the digits.

figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
means = {"Mean of the data": images.mean(axis=0), "Mean of the draws": draws.mean(axis=(0, 1))}
for axis, (title, mean) in zip(axes, means.items(), strict=False):
    picture = axis.imshow(mean, cmap="Greys", vmin=0, vmax=1)
    axis.set(title=title, xticks=[], yticks=[])
figure.colorbar(picture, ax=axes[:2], shrink=0.85)
axes[2].axline((0, 0), slope=1, color="0.7")
axes[2].plot(*(mean.ravel() for mean in means.values()), "o", color="#16324f", markersize=3)
axes[2].set(xlabel="data", ylabel="draws", title="Pixel by pixel")
axes[2].spines[["top", "right"]].set_visible(False)

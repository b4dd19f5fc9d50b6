"""
An RBM of scikit-learn: digits
==============================

A restricted Boltzmann machine of scikit-learn is trained on handwritten digits, and its visible
units are sampled with the hidden ones summed out: every transition weighs all 64 pixels by what
changing each would do to the density.
"""

# %%
# Training
# --------
# A pixel counts as ink if it is above 7 of 16. The steps are small: with a learning rate of 0.05
# most of the probability ends up on fours, which only long chains show.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import BernoulliRBM

from sklsb import RBM, LSBSampler

images = (load_digits().images > 7).astype(np.int8)
trained = BernoulliRBM(n_components=100, learning_rate=0.003, n_iter=500, random_state=0)
trained.fit(images.reshape(-1, 64))
machine = RBM.from_sklearn(trained, shape=(8, 8))

# %%
# Sampling
# --------
# Twenty chains, and a state every 40 sweeps.

sampler = LSBSampler(n_chains=20, init="uniform", random_state=0).fit(machine)
draws = sampler.sample(20, thin=40 * machine.n_sites)["x"].to_numpy()
noise = np.random.default_rng(0).integers(2, size=images.shape)
for name, x in {"digits": images, "draws": draws, "noise": noise}.items():
    print(f"mean log p of {name:8}{machine.log_prob(x).mean():8.2f}")

# %%
# What it looks like
# ------------------
# So few black and white pixels are hard to read, also in the data. Of the draws, most resemble a
# digit, and some lie between two. The third row shows what the hidden units make of the draw above.
# ``hidden_probabilities`` gives P(h = 1 | x) for each unit; with these in place of h, a pixel is
# ink with the probability shown.

shown = draws[:10, -1]
hidden = machine.hidden_probabilities(shown)
expected = 1 / (1 + np.exp(-(machine.visible_bias + hidden @ machine.weights.T)))
rows = {"data": images[::170], "draws": shown, "P(ink)": expected.reshape(-1, 8, 8)}
figure, axes = plt.subplots(3, 10, figsize=(10, 3.6), layout="constrained")
for (name, row), line in zip(rows.items(), axes, strict=True):
    for axis, image in zip(line, row, strict=False):
        axis.imshow(image, cmap="Greys", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
    line[0].set_ylabel(name)
figure.suptitle(
    "Digits, draws of the machine, and its probability of ink given the draw above"
)
plt.show()

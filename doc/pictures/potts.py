"""An image of three greys under noise, its likeliest labels and their probabilities."""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from sklsb import GibbsSampler, Potts
from sklsb.diagnostics import marginals
from sklsb.exceptions import FrozenSitesWarning

warnings.simplefilter("ignore", FrozenSitesWarning)  # pixels deep inside of a region

row, col = np.mgrid[:40, :60]
truth = np.where(np.hypot(row - 16, col - 22) < 12, 2, row > 24 + 0.2 * col)
image = np.array([0, 128, 255])[truth] + np.random.default_rng(0).normal(0, 110, truth.shape)
target = Potts.from_image(image, means=[0, 128, 255], noise_sd=110, coupling=1.2)
draws = GibbsSampler("chromatic", random_state=0).fit(target).sample(1000)
p = marginals(draws, target)["p"]

figure, axes = plt.subplots(2, 2, figsize=(6, 4.4), layout="constrained")
axes[0, 0].imshow(truth, cmap="gray")
axes[0, 1].imshow(image, cmap="gray")
axes[1, 0].imshow(p.argmax("state"), cmap="gray")
shown = axes[1, 1].imshow(p.max("state"), cmap="magma", vmin=1 / 3, vmax=1)
figure.colorbar(shown, ax=axes[1, 1])
titles = ("the truth", "the image", "likeliest label", "its probability")
for axis, title in zip(axes.flat, titles, strict=True):
    axis.set_title(title, fontsize=15)
    axis.set(xticks=[], yticks=[])

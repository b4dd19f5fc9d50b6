"""A noisy mask, and the posterior probability of each pixel."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from PIL import Image
from scipy.ndimage import median_filter
from sklearn.datasets import load_sample_image

from sklsb import GibbsSampler, Ising
from sklsb.exceptions import FrozenSitesWarning

warnings.simplefilter("ignore", FrozenSitesWarning)  # pixels deep inside of the sky

photo = np.asarray(Image.fromarray(load_sample_image("china.jpg")).resize((150, 100)))[:, :100]
mask = np.where(median_filter((photo[:, :, 2] < 150).astype(int), size=3), 1, -1)
observed = mask + 2.0 * np.random.default_rng(0).normal(size=mask.shape)
target = Ising.from_image(observed, noise_sd=2.0, coupling=0.5)
sampler = GibbsSampler("chromatic", n_burn_in=500, init="uniform", random_state=0)
draws = sampler.fit(target).sample(400, thin=20)
probability = (draws["x"] == 1).mean(("chain", "draw"))

colours = LinearSegmentedColormap.from_list("three", ["#f6efe0", "#f2a03d", "#16324f"])
figure, axes = plt.subplots(1, 2, figsize=(5, 2.8), layout="constrained")
axes[0].imshow(observed, cmap=colours, vmin=-4, vmax=4)
axes[0].set_title("observed", loc="left")
axes[1].imshow(probability, cmap=colours)
axes[1].set_title("probability of each pixel", loc="left")
for axis in axes:
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)

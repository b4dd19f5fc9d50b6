"""The code of the landing page: a disc under noise, and the probability of each pixel."""

import matplotlib.pyplot as plt
import numpy as np

from sklsb import AutoSampler, Ising
from sklsb.diagnostics import marginals

disc = np.where(np.hypot(*np.mgrid[-10:10, -15:15]) < 7, 1, -1)
noisy = disc + 1.5 * np.random.default_rng(0).normal(size=disc.shape)

target = Ising.from_image(noisy, noise_sd=1.5, coupling=0.5)
sampler = AutoSampler(random_state=0).fit(target)
draws = sampler.sample(4000, thin="auto")  # xarray.Dataset: chain, draw, row, col
found = marginals(draws, target).sel(state=1)  # p of +1, and its standard error mcse

figure, axes = plt.subplots(3, figsize=(4, 8.6), layout="constrained")
images = {"hidden": disc, "seen": noisy, "probability of +1": found["p"]}
for axis, (title, image) in zip(axes, images.items(), strict=True):
    axis.imshow(image, cmap="cividis")
    axis.set(title=title, xticks=[], yticks=[])
plt.show()

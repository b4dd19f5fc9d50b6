"""The code of the landing page: a disc under noise, and what draws make of it."""

import matplotlib.pyplot as plt
import numpy as np

from sklsb import AutoSampler, Ising

disc = np.where(np.hypot(*np.mgrid[-10:10, -15:15]) < 7, 1, -1)
noisy = disc + 1.5 * np.random.default_rng(0).normal(size=disc.shape)

target = Ising.from_image(noisy, noise_sd=1.5, coupling=0.5)
sampler = AutoSampler(random_state=0).fit(target)
draws = sampler.sample(4000, thin="auto")  # xarray.Dataset: chain, draw, row, col
mean = draws["x"].mean(("chain", "draw")).values

figure, axes = plt.subplots(3, figsize=(4, 8.6), layout="constrained")
images = {"hidden": disc, "seen": noisy, "mean of the draws": mean}
for axis, (title, image) in zip(axes, images.items(), strict=True):
    axis.imshow(image, vmin=-1, vmax=1, cmap="cividis")
    axis.set_title(f"{title}: {np.mean((image > 0) != (disc > 0)):.1%} wrong")
    axis.set(xticks=[], yticks=[])
plt.show()

"""
Regions of a noisy picture: the Potts model
===========================================

A picture of four colours is hidden under noise. Each pixel alone says little about its colour; that
neighbours tend to agree says the rest. This is a Potts model, the Ising model of more than two
values, and sampling it gives each pixel a probability for each colour.
"""

# %%
# The picture
# -----------
# Three hills before a sky, 64 x 96 pixels, drawn by a few formulas. Each region has a grey level,
# and the noise is larger than the steps between them.

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap, to_rgb

from sklsb import LSBSampler, Potts
from sklsb.diagnostics import marginals

warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing", FutureWarning)  # about ArviZ itself
import arviz

rows, cols = 64, 96
row, col = np.mgrid[:rows, :cols]
truth = np.zeros((rows, cols), dtype=int)
truth[row > 27 + 10 * np.sin(col / 11.0)] = 1
truth[row > 40 + 8 * np.cos(col / 14.0 + 1.0)] = 2
truth[row > 56 - 8 * np.sin(col / 20.0)] = 3
truth[(row - 10) ** 2 + (col - 75) ** 2 < 50] = 2

levels, noise_sd = np.array([0.0, 1.0, 2.0, 3.0]), 1.2
rng = np.random.default_rng(0)
observed = levels[truth] + noise_sd * rng.standard_normal(truth.shape)

# %%
# The posterior
# -------------
# The field of a colour at a pixel is the log-density of the noise under which it would look as it
# does. The coupling is what two neighbours gain by being equal. On a grid without a field, order
# sets in at log(1 + sqrt(4)) = 1.10 for four values; a coupling somewhat above that joins the
# pixels into regions, a much larger one would melt small regions away.

field = -((observed[:, :, np.newaxis] - levels) ** 2) / (2 * noise_sd**2)
target = Potts.lattice(field, coupling=1.5, periodic=False)
print(target)
alone = field.argmax(axis=-1)
print(f"Wrong, each pixel by itself: {np.mean(alone != truth):.1%}")

# %%
# Sampling it
# -----------
# Each pixel can change to three other colours, so there are 18,432 moves to choose from. A sweep is
# 6,144 transitions; the burn-in takes 6 sweeps, and the draws are a sweep apart. A
# warning says that the chains disagree: they do about a corner of a region at the left edge, some
# dozens of pixels that change colour together and seldom. A longer run brings R-hat down there.

start = time.perf_counter()
sampler = LSBSampler(n_burn_in=6 * truth.size, random_state=0).fit(target)
draws = sampler.sample(300, thin="sweep")
print(f"Sampled in {time.perf_counter() - start:.1f} s")
lp = sampler.sample_stats_[["lp"]]
print(f"Log p: ESS {float(arviz.ess(lp)['lp']):.0f}, R-hat {float(arviz.rhat(lp)['lp']):.3f}")

# %%
# The answer
# ----------
# The likeliest colour of each pixel, and how likely it is. The picture is smoother than the model
# takes it to be: more pixels are right than the probabilities promise.

p = marginals(draws, target)["p"]
restored = p.argmax("state").to_numpy()
certainty = p.max("state").to_numpy()
wrong = restored != truth
print(f"Wrong by the posterior: {wrong.mean():.1%}")
for low, high in (0.0, 0.6), (0.6, 0.8), (0.8, 0.95), (0.95, 1.01):
    here = (certainty >= low) & (certainty < high)
    print(
        f"probability {low:.2f} to {min(high, 1):.2f}: {here.sum():6,} pixels, "
        f"{certainty[here].mean():.1%} expected to be right, {np.mean(~wrong[here]):.1%} are"
    )

# %%
# All of it in one figure
# -----------------------
# The uncertain pixels lie along the edges, where the wrong ones are too.

ink, red = "#16324f", "#d1263b"
colours = ["#f6efe0", "#f2a03d", "#2a9d8f", ink]
palette = ListedColormap(colours)
mixed = p.to_numpy() @ np.array([to_rgb(colour) for colour in colours])
figure, axes = plt.subplots(2, 3, figsize=(12, 5.8), layout="constrained")
discrete = {"cmap": palette, "vmin": 0, "vmax": 3}
images = [
    ("The truth", truth, discrete),
    ("Observed", observed, {"cmap": "gray"}),
    (f"Each pixel by itself: {np.mean(alone != truth):.0%} wrong", alone, discrete),
    ("Colours mixed by their probabilities", mixed, {}),
    (f"Likeliest colours: {wrong.mean():.1%} wrong (red)", restored, discrete),
    ("Probability of the likeliest colour", certainty, {"cmap": "magma", "vmin": 0.25, "vmax": 1}),
]
for axis, (title, image, style) in zip(axes.flat, images, strict=True):
    shown = axis.imshow(image, **style)
    axis.set_title(title, loc="left")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    if image is restored:
        axis.imshow(np.ma.masked_equal(wrong, False), cmap=ListedColormap([red]))
    if image is certainty:
        figure.colorbar(shown, ax=axis, shrink=0.8)

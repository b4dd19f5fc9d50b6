"""
A Potts model: regions of a noisy picture
=========================================

A picture of four colours is hidden under noise. Each pixel alone says little about its colour; the
rest comes from neighbours, which tend to agree. This is a Potts model, an Ising model with more
than two values, and sampling it gives each pixel a probability for each colour.
"""

# %%
# The picture
# -----------
# Three hills against a sky. The noise is larger than the steps between the grey levels.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from sklsb import LSBSampler, Potts
from sklsb.diagnostics import marginals

row, col = np.mgrid[:48, :72]
truth = (row > 20 + 8 * np.sin(col / 9.0)) + 0
truth[row > 30 + 6 * np.cos(col / 11.0 + 1.0)] = 2
truth[row > 42 - 6 * np.sin(col / 15.0)] = 3
noise_sd = 1.2
observed = truth + noise_sd * np.random.default_rng(0).standard_normal(truth.shape)

# %%
# The posterior
# -------------
# The field of a colour at a pixel is the log-density of the noise that would make this colour look
# as the pixel does. The coupling is what two neighbours gain by being equal. On a grid without a
# field, order sets in at log(1 + sqrt(4)) = 1.10 for four values; a somewhat stronger coupling
# joins regions. The short burn-in of ``AutoSampler`` ends with a warning here, so ``LSBSampler`` is
# named, with a burn-in of 100 sweeps.

target = Potts.from_image(observed, np.arange(4), noise_sd, coupling=1.4)
sampler = LSBSampler(n_burn_in=100 * truth.size, random_state=0).fit(target)
p = marginals(sampler.sample(3000, thin="sweep"), target)["p"]

# %%
# The answer
# ----------
# The likeliest colour of each pixel, and how likely it is. The uncertain pixels lie along the
# edges, where the wrong ones are too.

alone, restored = target.field.argmax(-1).reshape(truth.shape), p.argmax("state").to_numpy()
print(f"Wrong, each pixel by itself: {np.mean(alone != truth):.1%}")
print(f"Wrong by the posterior: {np.mean(restored != truth):.1%}")

look = {
    "cmap": ListedColormap(["#f6efe0", "#f2a03d", "#2a9d8f", "#16324f"]),
    "vmin": 0,
    "vmax": 3,
}
figure, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
images = {"The truth": truth, "Each pixel by itself": alone, "Likeliest colours": restored}
for axis, (title, image) in zip(axes.flat, images.items(), strict=False):
    axis.imshow(image, **look)
    axis.set(title=title, xticks=[], yticks=[])
certainty = axes[1, 1].imshow(p.max("state"), cmap="magma", vmin=0.25, vmax=1)
axes[1, 1].set(title="Probability of the likeliest", xticks=[], yticks=[])
figure.colorbar(certainty, ax=axes[1, 1])
plt.show()

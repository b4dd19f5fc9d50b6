"""
An Ising model: a disc in the noise
===================================

A disc is hidden under noise: three pixels in ten look wrong. Neighbouring pixels tend to agree, and
that is enough to recover it, with a probability for each pixel.
"""

# %%
# The model
# ---------
# Spins of -1 and +1 on a grid, pulled towards what was observed and towards their neighbours.

import matplotlib.pyplot as plt
import numpy as np

from sklsb import AutoSampler, Ising
from sklsb.diagnostics import marginals

disc = np.where(np.hypot(*np.mgrid[-15:15, -20:20]) < 10, 1, -1)
noisy = disc + 2.0 * np.random.default_rng(0).normal(size=disc.shape)
target = Ising.from_image(noisy, noise_sd=2.0, coupling=0.5)
print(f"{target}: {np.mean((noisy > 0) != (disc > 0)):.0%} of the pixels look wrong")

# %%
# Burn-in and draws
# -----------------
# ``fit`` is the burn-in. The first one in an environment compiles for a few seconds. ``sample``
# returns an xarray Dataset; ``thin="auto"`` makes as many transitions per draw as it takes for a
# draw to be worth about half an independent one.

sampler = AutoSampler(random_state=0).fit(target)
draws = sampler.sample(2000, thin="auto")
print(dict(draws["x"].sizes))

# %%
# The answer, and whether to believe it
# -------------------------------------
# ``marginals`` counts, and says how far the counts may be off. ``disagreement_`` compares the
# chains; had they disagreed, there would have been a warning. An R-hat below 1.01 and an effective
# sample size above 400, of the worst pixel, are good enough for most uses.

found = marginals(draws, target).sel(state=1)
wrong = np.mean((found["p"].values > 0.5) != (disc > 0))
print(f"{wrong:.1%} are wrong now; largest standard error {float(found['mcse'].max()):.3f}")
worst = float(sampler.disagreement_["r_hat"].max()), float(sampler.disagreement_["ess"].min())
print("Largest R-hat {:.3f}, least effective sample size {:.0f}".format(*worst))

figure, axes = plt.subplots(1, 3, figsize=(10, 2.7), layout="constrained")
images = {"The disc": disc, "What is seen": noisy, "Probability of +1": found["p"]}
for axis, (title, image) in zip(axes, images.items(), strict=True):
    shown = axis.imshow(image, cmap="cividis")
    axis.set(title=title, xticks=[], yticks=[])
figure.colorbar(shown, ax=axes[2])
plt.show()

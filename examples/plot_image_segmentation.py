"""
Segment a noisy photograph
==========================

A large target from end to end: a photograph is cut into foreground and sky, the cut is hidden under
so much noise that every third pixel is wrong, and 60,000 coupled variables are sampled to recover
it, with a probability for each pixel. ``LSBSampler`` shows what it learns; ``AutoSampler`` would
try Gibbs sweeps too.

Run as a script, it takes about a minute and writes ``image_segmentation.png`` where it is run.
"""

# %%
# The photograph and the truth
# ----------------------------
# A photograph that scikit-learn ships, reduced to 200 x 300 pixels. Sky and lake are the bright
# part of its blue channel; a median filter tidies the edge. This clean mask, +1 on pagoda and
# trees and -1 elsewhere, is what is to be found.

import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, to_rgb
from PIL import Image
from scipy.ndimage import median_filter
from sklearn.datasets import load_sample_image

from sklsb import Ising, LSBSampler, diagnostics, exceptions

warnings.filterwarnings(
    "ignore", r"\s*ArviZ is undergoing", FutureWarning
)  # about ArviZ itself
import arviz

start = time.perf_counter()
photo = np.asarray(Image.fromarray(load_sample_image("china.jpg")).resize((300, 200)))
foreground = median_filter((photo[:, :, 2] < 150).astype(int), size=5)
mask = np.where(foreground, 1, -1)

# %%
# What is observed
# ----------------
# Each pixel shows its side of the mask, as +1 or -1, plus normal noise of two and a half times that
# size. Judged by its sign alone, a third of the pixels are wrong.

mean, noise_sd = 1.0, 2.5
rng = np.random.default_rng(0)
observed = mean * mask + noise_sd * rng.standard_normal(mask.shape)

error_before = np.mean((observed > 0) != (mask > 0))
print(f"Pixels: {mask.size:,}. Wrong by the sign of the observation: {error_before:.1%}")

# %%
# The posterior
# -------------
# The prior knowledge is that neighbouring pixels tend to agree. That is an Ising model, and with
# the observations as its fields it remains one. The coupling says how strongly neighbours agree:
# from 0.44 on, a lattice without any observation turns into one colour all over. A little more than
# that joins the pixels into regions; much more would wipe out the roof's tip and the tree tops.

posterior = Ising.from_image(observed, mean=mean, noise_sd=noise_sd, coupling=0.5)
print(posterior)

# %%
# Sampling it
# -----------
# ``fit`` is the burn-in, in which the sampler learns balancing functions; then it tries them and
# fixed ones, as steps and as jumps, and keeps the best. A step changes one pixel, so a *sweep* is
# 60,000 of them: the burn-in is 20 sweeps, and the draws are a sweep apart. Two chains start from
# pure noise, the others where a search ends. They run in two threads, which does not change them.
# ``verbose=1`` writes a line to stderr for each phase that takes time.

n_sweeps_burn_in, n_draws = 20, 250
sampler = LSBSampler(
    balancing="learned",
    n_chains=4,
    n_burn_in=n_sweeps_burn_in * mask.size,
    n_jobs=2,
    random_state=0,
    verbose=1,
)
sampler.fit(posterior)
chosen = sampler.candidates_.attrs["chosen"]
sizes = {
    str(c.candidate.values): float(c) for c in sampler.candidates_["ess_per_work"] * mask.size
}
print(
    "ESS for the work of a sweep, in the pilot:",
    ", ".join(f"{name} {size:.2f}" for name, size in sizes.items()),
)
draws = sampler.sample(n_draws, thin="sweep")
print(f"{time.perf_counter() - start:.0f} s so far.")
draws

# %%
# The answer
# ----------
# The mean over chains and draws is the posterior probability of each pixel.

probability = (draws["x"] == 1).mean(("chain", "draw")).to_numpy()
wrong = (probability > 0.5) != (mask > 0)
print(f"Wrong by the posterior probability: {wrong.mean():.1%} (before: {error_before:.1%})")

# %%
# Can the draws be trusted?
# -------------------------
# The effective sample size says how many independent draws they are worth. A pixel with the same
# colour in all draws has none that could be known: ``diagnostics.ess`` gives NaN, with a warning
# (ArviZ would call it perfect), so such pixels are counted instead. They lie deep inside the sky or
# the trees, where the observation agrees with all its neighbours.
# (``sample`` would also have warned if one of them had never changed, not even between the draws.)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", exceptions.FrozenSitesWarning)
    ess = diagnostics.ess(draws)["x"].to_numpy().ravel()
stats = sampler.sample_stats_[["lp"]]
print(f"Draws: {draws['x'].sizes['chain']} chains x {draws['x'].sizes['draw']}")
print(f"ESS of the pixels: min {np.nanmin(ess):.0f}, median {np.nanmedian(ess):.0f}", end=" ")
print(f"({np.isnan(ess).sum()} pixels have the same colour in all draws)")
print(f"ESS of log p: {float(arviz.ess(stats)['lp']):.0f}", end=", ")
print(f"R-hat: {float(arviz.rhat(stats)['lp']):.3f}")

# %%
# All of it in one figure
# -----------------------
# The posterior probability glows where it is undecided: along the edges. Beside it are the pixels
# that are still wrong, and the photograph cut out by the probability. The last row shows the
# learned balancing function beside the fixed four (as its even part: how much a move is favoured
# for being large, up or down alike), the log-probability of the four chains from the first
# transition to the last, and the effective sample sizes. Estimates of these scatter, so some
# exceed the number of draws.

sky, glow, ink, red, teal = "#f6efe0", "#f2a03d", "#16324f", "#d1263b", "#2a9d8f"
two_colours = LinearSegmentedColormap.from_list("two", [sky, ink])
three_colours = LinearSegmentedColormap.from_list("three", [sky, glow, ink])
plt.rcParams.update(
    {"axes.titlelocation": "left", "axes.prop_cycle": cycler(color=[ink, glow, teal, red])}
)

figure, axes = plt.subplots(3, 3, figsize=(12, 8.8), layout="constrained")
figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08, wspace=0.02)
figure.suptitle(
    f"{mask.size:,} coupled pixels, one in three wrong: what the posterior brings back",
    fontsize=15,
    fontweight="bold",
)

alpha = probability[:, :, np.newaxis]
cut_out = alpha * photo / 255 + (1 - alpha) * to_rgb(sky)
restored = np.where(wrong, 2, probability > 0.5)
images = [
    ("The photograph", photo, {}),
    ("Clean mask, the truth", mask, {"cmap": two_colours}),
    (
        f"Observed: {error_before:.0%} wrong",
        observed,
        {"cmap": two_colours, "vmin": -5, "vmax": 5},
    ),
    ("Posterior probability of the foreground", probability, {"cmap": three_colours}),
    (
        f"Restored: {wrong.mean():.1%} wrong (red)",
        restored,
        {"cmap": ListedColormap([sky, ink, red])},
    ),
    ("Photograph cut out by the posterior", cut_out, {}),
]
for axis, (title, image, style) in zip(axes.flat, images, strict=False):
    shown = axis.imshow(image, **style)
    axis.set(title=title, xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    if image is probability:
        scale = axis.inset_axes([0.62, 0.9, 0.33, 0.04])
        figure.colorbar(shown, cax=scale, orientation="horizontal", ticks=[0, 0.5, 1])

learned, trace, sizes = axes[2]
for axis in axes[2]:
    axis.spines[["top", "right"]].set_visible(False)

sampler.balancing_.plot(learned, u_max=8)
*fixed, curve = learned.get_lines()
for line in fixed:
    end = line.get_xydata()[-1]
    learned.annotate(line.get_label(), end, (5, 0), textcoords="offset points", va="center")
learned.legend([curve], [f"chosen: {chosen}"], loc="upper center", frameon=False)
learned.set(title="Balancing functions", xlim=(-8, 10.8), xticks=range(-8, 9, 4))

lp_burn_in, lp = sampler.history_["lp"] / 1000, sampler.sample_stats_["lp"].T / 1000
trace.plot(sampler.history_["iteration"] / mask.size, lp_burn_in, linewidth=1)
trace.plot(n_sweeps_burn_in + 1 + lp["draw"], lp, linewidth=1)
trace.axvspan(0.01, n_sweeps_burn_in, color=sky)
trace.text(0.04, 0.93, "burn-in", transform=trace.transAxes)
trace.set(title="Trace of log p / 1000, four chains", xlabel="sweeps")
trace.set(xscale="log", xlim=(0.05, 1.3 * (n_sweeps_burn_in + n_draws)))
close_up = trace.inset_axes([0.5, 0.15, 0.48, 0.42])
close_up.plot(lp["draw"], lp, linewidth=0.7)
close_up.set_title("the draws", fontsize="small")
close_up.tick_params(labelsize="small")

sizes.hist(ess, bins=40, color=teal)
sizes.axvline(lp.size, color=red, label="number of draws")
sizes.legend(loc="upper left", frameon=False)
sizes.set(title="Effective sample sizes of the pixels", xlabel="ESS", yticks=[])
sizes.spines["left"].set_visible(False)

path = Path("image_segmentation.png")
figure.savefig(path, dpi=100)
print(f"Wrote {path} in the current directory")

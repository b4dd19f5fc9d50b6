"""
Which columns explain it: variable selection
============================================

Ten baseline measurements of 442 diabetes patients, and how far the disease went within a year:
which of the ten belong in a regression? There are 1,024 models. They can all be enumerated, so
what the sampler says of them can be checked.
"""

# %%
# The posterior of the model
# --------------------------
# A state is a model: for each column, whether it is in. Its log p is that of the data with
# coefficients, intercept and noise integrated out (under Zellner's g prior with g = n), and of the
# prior, under which all sizes from 0 to 10 are equally likely. The columns of a data frame keep
# their names.

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from sklsb import LSBSampler, VariableSelection, exact
from sklsb.exceptions import FrozenSitesWarning

warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing", FutureWarning)  # about ArviZ itself
import arviz

X, y = load_diabetes(return_X_y=True, as_frame=True)
target = VariableSelection(X, y)
print(target)

# %%
# All 1,024 models
# ----------------

start = time.perf_counter()
models, p = exact.states(target), exact.probabilities(target)
enumerated, sizes = p @ models, np.bincount(models.sum(axis=1), p, 11)
print(f"Enumerated in {time.perf_counter() - start:.2f} s. The best models:")
for i in np.argsort(-p)[:5]:
    print(f"{p[i]:.3f}  {', '.join(X.columns[models[i] == 1])}")

# %%
# A sample of them
# ----------------
# A transition takes one column in or out. With ten columns a run is cheap; with 2,000 it is the
# only way. Body mass index never leaves the model, and sklsb would warn that a variable did not
# change.

warnings.simplefilter("ignore", FrozenSitesWarning)
start = time.perf_counter()
sampler = LSBSampler(random_state=0).fit(target)
draws = sampler.sample(200_000)
print(f"Sampled in {time.perf_counter() - start:.1f} s")

# %%
# Inclusion probabilities
# -----------------------
# The mean of a column's indicator is the probability that it belongs to the model. MCSE is the
# Monte Carlo standard error of that. The serum measurements s1 to s6 are strongly correlated: of
# some of them one is needed, and the data do not say which.

sampled = draws["x"].mean(("chain", "draw")).to_numpy()
thinned = draws.isel(draw=slice(None, None, 10))
mcse = arviz.mcse(thinned.astype(float))["x"].to_numpy()
print("        enumerated  sampled     MCSE")
for name, exactly, found, error in zip(X.columns, enumerated, sampled, mcse, strict=True):
    print(f"{name:8}{exactly:10.4f}{found:9.4f}{error:9.4f}")
print(f"Largest difference: {np.abs(sampled - enumerated).max():.4f}")

# %%
# Models of several sizes
# -----------------------
# The sizes of the drawn models have the enumerated distribution too. The best model alone has a
# small part of the probability: reason enough to average over models.

ink, red, teal = "#16324f", "#d1263b", "#2a9d8f"
found_sizes = np.bincount(draws["x"].sum("feature").to_numpy().ravel(), minlength=11)

figure, (inclusion, size, best) = plt.subplots(
    1, 3, figsize=(12, 4), layout="constrained", width_ratios=(5, 4, 3)
)
inclusion.bar(X.columns, enumerated, color=teal, alpha=0.6, label="all 1,024 models")
inclusion.errorbar(
    X.columns, sampled, 3 * mcse, fmt="o", color=ink, ms=4, label="sampled, ± 3 MCSE"
)
inclusion.set(title="Probability that a column is in", ylim=(0, 1.18))
inclusion.legend(frameon=False, loc="upper center", ncols=2)
size.bar(np.arange(11), sizes, color=teal, alpha=0.6)
size.plot(np.arange(11), found_sizes / found_sizes.sum(), "o", color=ink, ms=4)
size.set(title="Size of the model", xlabel="columns", xticks=range(11))
order = np.argsort(-p)
best.plot(np.arange(1, p.size + 1), np.cumsum(p[order]), color=red)
best.set(title="Probability of the best models", xlabel="number of models", xscale="log")
best.set(ylim=(0, 1))
for axis in figure.axes:
    axis.spines[["top", "right"]].set_visible(False)

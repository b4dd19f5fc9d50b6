"""
Variable selection: the progression of diabetes
===============================================

Ten baseline measurements of 442 diabetes patients, and how far the disease progressed within a
year: which of the ten belong in a regression? There are 1,024 models, few enough to check a sample.
"""

# %%
# The posterior of the model
# --------------------------
# A state is a model: for each column, whether it is in. Its log p is the log-likelihood of the
# data, with coefficients, intercept and noise integrated out (under Zellner's g prior with g = n),
# plus the log prior, under which all sizes from 0 to 10 are equally likely. Columns keep their
# names.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from sklsb import AutoSampler, VariableSelection, exact
from sklsb.diagnostics import marginals
from sklsb.exceptions import FrozenSitesWarning

X, y = load_diabetes(return_X_y=True, as_frame=True)
target = VariableSelection(X, y)
models, p = exact.states(target), exact.probabilities(target)

# %%
# A sample of the models
# ----------------------
# With ten columns a run is cheap; with 2,000 it is the only way. Body mass index never leaves the
# model; the warning that it never changed is turned off.

warnings.simplefilter("ignore", FrozenSitesWarning)
draws = AutoSampler(random_state=0).fit(target).sample(4000, thin="auto")
found = marginals(draws, target).sel(state=1)
print(f"Largest difference to all models: {np.abs(found['p'] - p @ models).max():.4f}")
for i in np.argsort(-p)[:3]:
    print(f"{p[i]:.3f}  {', '.join(X.columns[models[i] == 1])}")

# %%
# Inclusion probabilities
# -----------------------
# The serum measurements s1 to s6 are strongly correlated: one of several is needed, but the data
# cannot tell which. The best model alone has only a small part of the probability, which is reason
# enough to average over models.

figure, (inclusion, best) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
inclusion.bar(X.columns, p @ models, color="#2a9d8f", alpha=0.6, label="all 1,024 models")
inclusion.errorbar(
    X.columns, found["p"], 3 * found["mcse"], fmt="o", label="sampled, ± 3 MCSE"
)
inclusion.set(title="Probability that a column is in", ylim=(0, 1.2))
inclusion.legend(ncols=2, loc="upper center")
best.plot(np.arange(1, p.size + 1), np.cumsum(np.sort(p)[::-1]))
best.set(title="Probability of the best models", xlabel="number of models", xscale="log")
plt.show()

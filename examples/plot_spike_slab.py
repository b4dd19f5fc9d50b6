"""
Which columns matter: spike and slab beside the lasso
=====================================================

Five hundred columns in correlated blocks, eighty rows, four columns that matter, and a fifth that
looks as if it did.
"""

# %%
# Each block of ten columns has a common factor, so neighbours of a signal look like it.

import numpy as np
from matplotlib import pyplot
from sklearn.linear_model import LassoCV

from sklsb import SpikeSlabRegressor

rng = np.random.default_rng(0)
factors = rng.normal(size=(80, 50))
X = np.repeat(factors, 10, axis=1) + 0.7 * rng.normal(size=(80, 500))
signals = [3, 57, 120, 301]
y = X[:, signals] @ [1.5, -1.5, 1.0, 1.0] + rng.normal(size=80)

model = SpikeSlabRegressor(random_state=0).fit(X, y)
lasso = LassoCV(cv=5).fit(X, y)

# %%
# Every column gets a probability, and every probability a Monte Carlo error. The four have
# probability 1, and their intervals hold the true coefficients. Column 324 is noise that happens to
# go with y: 0.65 says that it is about twice as likely to matter as not, no more. ``get_support()``
# keeps all columns from 1/2 on, so also such a one; ``get_support(threshold=0.9)`` keeps the four.

print(model.summary().head(9).round(3))
print("columns of the lasso:", np.count_nonzero(lasso.coef_))

# %%
# The picture shows probabilities, coefficients of included columns with 95% intervals, and sizes.
# Six columns are more probable than four: 324 is often in, and the small probabilities of the other
# 495 add up to 1.8.

figure, axes = pyplot.subplots(1, 3, figsize=(10, 3.5), layout="constrained")
model.plot.inclusion(axes[0], n=9)
model.plot.coefficients(axes[1], n=9)
model.plot.sizes(axes[2])
axes[0].set_title("Which columns matter")
axes[1].set(title="How much", xlabel="coefficient, 95% interval\nhollow: probability < 1/2")
axes[2].set_title("How many")
pyplot.show()

# %%
# New rows: errors of both, and how many of 200 measurements are within two standard deviations.

factors = rng.normal(size=(200, 50))
new = np.repeat(factors, 10, axis=1) + 0.7 * rng.normal(size=(200, 500))
y_new = new[:, signals] @ [1.5, -1.5, 1.0, 1.0] + rng.normal(size=200)
mean, sd = model.predict(new, return_std=True)
print("root mean squared error:", np.sqrt(np.mean((mean - y_new) ** 2)).round(2))
print("of the lasso:", np.sqrt(np.mean((lasso.predict(new) - y_new) ** 2)).round(2))
print("within two standard deviations:", np.mean(np.abs(mean - y_new) < 2 * sd).round(3))

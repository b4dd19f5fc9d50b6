"""Inclusion probabilities and coefficients of the columns of a regression."""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

from sklsb import SpikeSlabRegressor

X, y = load_diabetes(return_X_y=True, as_frame=True)
model = SpikeSlabRegressor(random_state=0).fit(X, y)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
model.plot.inclusion(ax=axes[0])
model.plot.coefficients(ax=axes[1])
axes[0].set_title("Which columns matter")
axes[1].set_title("How much")
axes[1].set_xlabel("coefficient, 95% interval; hollow: probability < 1/2")

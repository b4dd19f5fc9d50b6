"""Inclusion probabilities and coefficients of the columns of a regression."""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

from sklsb import SpikeSlabRegressor

X, y = load_diabetes(return_X_y=True, as_frame=True)
model = SpikeSlabRegressor(random_state=0).fit(X, y)
figure, axes = plt.subplots(1, 2, figsize=(7, 4.4), layout="constrained")
model.plot.inclusion(ax=axes[0])
model.plot.coefficients(ax=axes[1])
axes[0].set_title("Which columns matter")
axes[1].set_title("How much")
axes[0].set_xlabel("probability")
axes[1].set_xlabel("coefficient, 95% interval;\nhollow: probability < 1/2")
for axis in axes:
    axis.title.set_fontsize(15)
    axis.tick_params("y", labelsize=13)
axes[1].set_ylim(axes[0].get_ylim())
axes[1].set_yticks([])

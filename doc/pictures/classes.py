"""Which of thirty measurements tell two kinds of tumours apart, and how surely for new rows."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from sklsb import SpikeSlabClassifier

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X, X_test, y, y_test = train_test_split(X, y, random_state=0)
model = SpikeSlabClassifier(expected_size=4, tol=0.03, random_state=0).fit(X, y)
p = model.predict_proba(X_test)[:, 1]

figure, axes = plt.subplots(1, 2, figsize=(10, 5.4), layout="constrained")
model.plot.inclusion(ax=axes[0])
groups = {"malignant": p[y_test == 0], "benign": p[y_test == 1]}
axes[1].hist(list(groups.values()), np.linspace(0, 1, 21), label=list(groups), stacked=True)
axes[1].set(xlabel="predicted probability of benign", ylabel="rows kept out of the fit")
axes[1].legend(frameon=False, loc="upper center")

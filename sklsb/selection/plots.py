"""Pictures of a fitted estimator."""

from typing import Any

import numpy as np
from sklearn.base import is_classifier


class Plots:
    """Pictures of a fitted estimator.

    Each is drawn on the Matplotlib axis ``ax``, or on a new one, and returns it; ``n`` is the
    largest number of columns or models shown.
    """

    def __init__(self, model: Any):
        self._model = model

    def _axis(self, ax: Any) -> Any:
        from matplotlib import pyplot

        return pyplot.subplots(layout="constrained")[1] if ax is None else ax

    def _first(self, n: int, standardized: bool = False) -> Any:
        return self._model.summary(standardized).head(n).iloc[::-1]

    def inclusion(self, ax: Any = None, n: int = 30) -> Any:
        """Plot the largest inclusion probabilities with two standard errors."""
        ax, frame = self._axis(ax), self._first(n)
        ax.barh([str(name) for name in frame.index], frame["probability"], xerr=2 * frame["mcse"])
        ax.axvline(0.5, color="black", linewidth=0.8, linestyle=":")
        ax.set(xlim=(0, 1.02), xlabel="probability of inclusion")
        return ax

    def coefficients(
        self,
        ax: Any = None,
        n: int = 30,
        *,
        standardized: bool = False,
        odds_ratios: bool = False,
    ) -> Any:
        """Plot coefficients averaged over models with two posterior standard deviations.

        ``standardized`` ones are for one standard deviation of each column, and can be compared.
        ``odds_ratios`` of classes are their exponentials, on a logarithmic axis.
        """
        if odds_ratios and not is_classifier(self._model):
            raise ValueError("odds_ratios is True; there are odds of classes only, not of numbers.")
        ax, frame = self._axis(ax), self._first(n, standardized)
        names = [str(name) for name in frame.index]
        ends = [frame["mean"] + two * frame["sd"] for two in (0, -2, 2)]
        middle, low, high = map(np.exp, ends) if odds_ratios else ends
        ax.errorbar(middle, names, xerr=[middle - low, high - middle], fmt="o")
        ax.axvline(1.0 if odds_ratios else 0.0, color="black", linewidth=0.8, linestyle=":")
        unit = " of one standard deviation" if standardized else ""
        ax.set(xlabel=("odds ratio" if odds_ratios else "coefficient") + unit)
        if odds_ratios:
            ax.set_xscale("log")
        return ax

    def sizes(self, ax: Any = None) -> Any:
        """Plot the probabilities of the numbers of included columns."""
        ax, sizes = self._axis(ax), self._model.model_sizes_
        shown = np.flatnonzero(sizes > 1e-4)
        ax.bar(shown, sizes[shown])
        ax.set(xlabel="columns in the model", ylabel="probability")
        return ax

    def models(self, ax: Any = None, n: int = 10) -> Any:
        """Plot which columns the most probable models have."""
        from matplotlib.patches import Patch

        ax, models = self._axis(ax), self._model.models_[:n]
        columns = sorted({j for members, _ in models for j in members})
        picture = np.array([[j in members for j in columns] for members, _ in models])
        names = self._model._names()
        image = picture.reshape(len(models), -1)
        shown = ax.imshow(image, aspect="auto", cmap="Greys", vmin=0, vmax=1)
        keys = [
            Patch(facecolor=shown.cmap(value), edgecolor="0.5", label=label)
            for value, label in ((1.0, "in the model"), (0.0, "left out"))
        ]
        ax.legend(handles=keys, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
        ax.set_xticks(range(len(columns)), [str(names[j]) for j in columns], rotation=90)
        ax.set_yticks(range(len(models)), [f"{p:.3f}" for _, p in models])
        ax.set(ylabel="probability of the model")
        return ax

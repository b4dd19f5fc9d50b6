"""Pictures of a fitted estimator."""

from typing import Any

import numpy as np


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

    def _first(self, n: int) -> Any:
        return self._model.summary().head(n).iloc[::-1]

    def inclusion(self, ax: Any = None, n: int = 30) -> Any:
        """Plot the largest inclusion probabilities with two standard errors."""
        ax, frame = self._axis(ax), self._first(n)
        ax.barh([str(name) for name in frame.index], frame["probability"], xerr=2 * frame["mcse"])
        ax.axvline(0.5, color="black", linewidth=0.8, linestyle=":")
        ax.set(xlim=(0, 1.02), xlabel="probability of inclusion")
        return ax

    def coefficients(self, ax: Any = None, n: int = 30) -> Any:
        """Plot coefficients averaged over models with two posterior standard deviations."""
        ax, frame = self._axis(ax), self._first(n)
        names = [str(name) for name in frame.index]
        ax.errorbar(frame["mean"], names, xerr=2 * frame["sd"], fmt="o")
        ax.axvline(0.0, color="black", linewidth=0.8, linestyle=":")
        ax.set(xlabel="coefficient")
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
        ax, models = self._axis(ax), self._model.models_[:n]
        columns = sorted({j for members, _ in models for j in members})
        picture = np.array([[j in members for j in columns] for members, _ in models])
        names = self._model._names()
        ax.imshow(picture.reshape(len(models), -1), aspect="auto", cmap="Greys", vmin=0, vmax=1)
        ax.set_xticks(range(len(columns)), [str(names[j]) for j in columns], rotation=90)
        ax.set_yticks(range(len(models)), [f"{p:.3f}" for _, p in models])
        ax.set(ylabel="probability of the model")
        return ax

"""Pictures of a fitted estimator."""

from typing import Any

import numpy as np
from sklearn.base import is_classifier

from sklsb._words import worded
from sklsb.plot import axes_on


class Plots:
    """Pictures of a fitted estimator.

    Each is drawn on the Matplotlib axis ``ax``, or on a new one, and returns it; ``n`` is the
    largest number of columns or models shown.
    """

    def __init__(self, model: Any):
        self._model = model

    def __repr__(self) -> str:
        return "pictures: inclusion(), coefficients(), sizes(), models()"

    def _first(self, n: int, standardized: bool = False) -> Any:
        return self._model.summary(standardized).head(n).iloc[::-1]

    @worded
    def inclusion(self, ax: Any = None, n: int = 30) -> Any:
        """Plot the largest inclusion probabilities with two standard errors."""
        ax, frame = axes_on(ax), self._first(n)
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
        """Plot what `summary` says of coefficients given inclusion: means and 95% intervals.

        ``standardized`` ones are for one standard deviation of each column, and can be compared.
        ``odds_ratios`` of classes are their exponentials, on a logarithmic axis. Points are hollow
        where the probability of inclusion is below 1/2, and have no bar where too few draws include
        the column.
        """
        from matplotlib.ticker import AutoLocator, LogLocator, NullLocator

        if odds_ratios and not is_classifier(self._model):
            raise ValueError("odds_ratios is True; there are odds of classes only, not of numbers.")
        ax, frame = axes_on(ax), self._first(n, standardized)
        names = [f"odds_ratio{end}" for end in ("", "_low", "_high")]
        names = names if odds_ratios else ["if_included", "low", "high"]
        middle, low, high = frame[names].to_numpy().T
        # The mean of rare draws may be beyond their quantiles; matplotlib refuses such bars.
        ends = np.maximum([middle - low, high - middle], 0.0)
        place, rare = np.arange(len(frame)), np.flatnonzero(frame["probability"] < 0.5)
        points = ax.errorbar(middle, place, xerr=ends, fmt="o")[0]
        ax.plot(middle[rare], place[rare], "o", color=points.get_color(), mfc="white", zorder=3)
        ax.set_yticks(place, [str(name) for name in frame.index])
        ax.axvline(1.0 if odds_ratios else 0.0, color="black", linewidth=0.8, linestyle=":")
        what = "odds ratio" if odds_ratios else "coefficient"
        if is_classifier(self._model):
            what += f" for class {frame.attrs['class']!r}"
        label = f"{what} per {'standard deviation' if standardized else 'unit'}"
        if not standardized and self._model.scale_.max() > 10.0 * self._model.scale_.min():
            label += "\nunits differ: compare with standardized=True"
        label += "\nif included, with 95% interval"
        ax.set(xlabel=label + ("; hollow: probability < 1/2" if rare.size else ""))
        if odds_ratios:
            ax.set_xscale("log")
            left, right = ax.get_xlim()
            steps = (1, 2, 5) if right < 300 * left else (1,)
            locator = AutoLocator() if right < 5 * left else LogLocator(subs=steps, numticks=5)
            ax.xaxis.set(major_locator=locator, minor_locator=NullLocator())
            ax.xaxis.set_major_formatter("{x:g}")
        return ax

    def sizes(self, ax: Any = None) -> Any:
        """Plot the probabilities of the numbers of included columns."""
        ax, sizes = axes_on(ax), self._model.model_sizes_
        shown = np.flatnonzero(sizes > 1e-4)
        ax.bar(shown, sizes[shown])
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set(xlabel="columns in the model", ylabel="probability")
        return ax

    def models(self, ax: Any = None, n: int = 10) -> Any:
        """Plot which columns the most probable models have."""
        from matplotlib.patches import Patch

        ax, models = axes_on(ax), self._model.models_[:n]
        columns = sorted({j for members, _ in models for j in members})
        picture = np.array([[j in members for j in columns] for members, _ in models])
        names = self._model._names()
        image = picture.reshape(len(models), -1)
        shown = ax.pcolormesh(image, cmap="Greys", vmin=0, vmax=1.5, edgecolors="white")
        keys = [
            Patch(facecolor=shown.to_rgba(value), edgecolor="0.5", label=label)
            for value, label in ((1.0, "in the model"), (0.0, "left out"))
        ]
        ax.legend(handles=keys, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
        ax.set_xticks(0.5 + np.arange(len(columns)), [str(names[j]) for j in columns], rotation=90)
        ax.set_yticks(0.5 + np.arange(len(models)), [f"{p:.2g}" for _, p in models])
        ax.set(ylabel="probability of the model", ylim=(len(models), 0))
        return ax

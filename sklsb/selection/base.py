"""What the estimators share: parameters, the run of the chains, results by column."""

import numbers
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, is_classifier
from sklearn.feature_selection import SelectorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from sklsb._kernels.selection import state as places
from sklsb._system.arrays import Array, Bools, Ints
from sklsb._system.progress import Progress
from sklsb._system.warn import warn
from sklsb._words import Worded, few
from sklsb.diagnostics.draws import to_inference_data
from sklsb.exceptions import (
    InterruptedWarning,
    ModelWarning,
    SeparatedModesWarning,
    ShortRunWarning,
)
from sklsb.samplers._run.checks import check_count
from sklsb.selection.chains import Chain
from sklsb.selection.plots import Plots
from sklsb.selection.problem import MOST_COLUMNS, Inclusion, Problem
from sklsb.selection.search import LONGEST, Search, estimate
from sklsb.targets._checks import (
    beta_parameters,
    n_threads,
    positive,
    refuse_mask,
    refuse_other_rows,
)
from sklsb.targets._names import aligned, labels_of

Model = tuple[int, ...]

_N_MODELS = 100
_ESTIMATORS = ("bma", "mpm", "hpm")
# Fewest draws with a column for an interval of its coefficient, 95% of them.
_FEWEST_DRAWS, _INTERVAL = 40, (0.025, 0.975)
_ODDS = {"odds_ratio": "if_included", "odds_ratio_low": "low", "odds_ratio_high": "high"}
# Warn if among the first columns, with so many entries, some as correlated as this share a
# probability: that of any of them is above 1/2, and by so much above that of each.
_N_COMPARED, _MOST_ENTRIES, _SAME, _MORE = 1000, 1 << 24, 0.995, 0.1
# Warn if a ridge regression explains at least this share of what ``coef_`` leave.
_MUCH = 0.2


@dataclass(eq=False, repr=False)
class BaseSpikeSlab(SelectorMixin, BaseEstimator, Worded):
    """Parameters, fit and results of spike-and-slab estimators."""

    _: KW_ONLY
    slab_sd: float = 1.0
    size_prior: tuple[float, float] | None = None
    expected_size: float | None = None
    inclusion_prior: Any = None
    always: Sequence[Any] = ()
    groups: Any = None
    standardize: bool = True
    n_chains: int = 4
    tol: float = 0.01
    max_time: float | None = None
    subset_size: Any = "auto"
    n_jobs: int | None = None
    random_state: Any = None
    warm_start: bool = False
    verbose: int = 0

    # How `validate_data` reads X; what else may end disagreement of chains; models of the last fit.
    _reading: ClassVar[dict[str, Any]]
    _advice: ClassVar[str] = " or more n_chains"
    _last_models = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    # ------------------------------------------------------------- parameters

    def _read(self, X: Any, *y: Any, **how: Any) -> Any:
        """Call `validate_data`, but refuse masks, name the column at fault, and add duplicates."""
        refuse_mask(X, "X")
        try:
            found = validate_data(self, X, *y, **self._reading, **how)
        except (ValueError, TypeError) as error:
            _refuse_entry(X, error)
            raise
        read = found[0] if y else found
        if not sparse.issparse(read) or read.has_canonical_format:
            return found
        read = read.copy()
        read.sum_duplicates()
        return (read, *found[1:]) if y else read

    def _read_new(self, X: Any, estimator: str) -> Any:
        check_is_fitted(self)
        if estimator not in _ESTIMATORS:
            raise ValueError(f"estimator is {estimator!r}; it must be one of {list(_ESTIMATORS)}.")
        return self._read(X, reset=False)

    def _names(self) -> list[Any]:
        return list(getattr(self, "feature_names_in_", range(self.n_features_in_)))

    def _refuse(self, X: Any, y: Any, **others: Any) -> None:
        """Refuse masked arrays, and labels of rows that X has in another order."""
        for name, value in {"y": y, **others}.items():
            refuse_mask(value, name)
        if len(getattr(X, "shape", ())) == 1 and len(getattr(y, "shape", ())) == 2:
            raise ValueError(
                f"X has one dimension and y has shape {y.shape}: they may be swapped; "
                "call fit(X, y)."
            )
        refuse_other_rows(X, y=y, **others)

    def _check(self, X: Any) -> None:
        """Check the width of X, and parameters that need no data."""
        n, p = X.shape
        if p > MOST_COLUMNS:
            raise ValueError(
                f"X has {p} columns; at most {MOST_COLUMNS} are supported. A copy in single "
                f"precision would take {4 * n * p} bytes. Screen the columns first."
            )
        if check_count(self.n_chains, "n_chains", 1) == 1:
            raise ValueError(
                "n_chains is 1; it must be at least 2, since one chain cannot tell whether it "
                "missed something."
            )
        positive(self.tol, "tol")
        if self.max_time is not None:
            positive(self.max_time, "max_time")
        n_threads(self.n_jobs)
        if self.subset_size != "auto":
            check_count(self.subset_size, "subset_size", 2)

    def _inclusion(self, unit_of: Ints, n_units: int) -> Inclusion:
        """Return the prior; ``unit_of`` is the unit of each column of X, -1 for ``always``."""
        refuse_mask(self.inclusion_prior, "inclusion_prior")
        given = {
            "size_prior": self.size_prior,
            "expected_size": self.expected_size,
            "inclusion_prior": self.inclusion_prior,
        }
        together = [name for name, value in given.items() if value is not None]
        if len(together) > 1:
            raise ValueError(f"{' and '.join(together)} are given; give one of them.")
        if self.inclusion_prior is not None:
            of_columns = self.groups is None and np.shape(self.inclusion_prior) == unit_of.shape
            labels = self._names() if self.groups is None else self._groups().tolist()
            if not of_columns:
                labels = [labels[int((unit_of == unit).argmax())] for unit in range(n_units)]
            chance = self._in_order(self.inclusion_prior, labels, "inclusion_prior")
            chance = chance.astype(np.float64)
            if of_columns:
                chance = chance[unit_of >= 0]
            elif chance.shape not in ((), (n_units,)):
                raise ValueError(
                    f"inclusion_prior has shape {chance.shape}; give one probability per column "
                    f"or group, ({n_units},)."
                )
            bad = ~((chance > 0.0) & (chance < 1.0))
            if bad.any():
                raise ValueError(
                    f"inclusion_prior has the entry {chance[bad][0]}; give probabilities between "
                    "0 and 1. Columns that are in every model belong in always."
                )
            return Inclusion(chance=chance)
        size = self.expected_size
        if size is None:
            default = self.size_prior is None
            return Inclusion(beta_parameters((1.0, 1.0) if default else self.size_prior))
        if not (isinstance(size, numbers.Real) and 0 < float(size) < n_units):
            raise ValueError(
                f"expected_size is {size!r}; it must be between 0 and {n_units}, the number of "
                "columns or groups to choose from."
            )
        return Inclusion(chance=float(size) / n_units)

    def _in_order(self, given: Any, labels: list[Any], name: str) -> NDArray[Any]:
        """Return a Series in the order of labels; 0, 1, ... are positions."""
        own = labels_of(given) or []
        if any({*some} == {*range(len(some))} for some in (own, labels)):
            labels = []
        return np.asarray(aligned(given, labels or None, len(own), name)[0])

    def _groups(self) -> NDArray[Any]:
        return self._in_order(self.groups, self._names(), "groups")

    def _units(self) -> tuple[Ints, Ints, list[Ints]]:
        """Return the columns in ``always``, the unit of each column, and the columns by unit."""
        p, names = self.n_features_in_, self._names()
        if isinstance(self.always, str):
            raise ValueError(f"always is a string; give a list, such as [{self.always!r}].")
        always = []
        for item in self.always:
            if isinstance(item, str) and item in names:
                always.append(names.index(item))
            elif isinstance(item, numbers.Integral) and -p <= item < p:
                always.append(int(item) % p)
            else:
                raise ValueError(f"always has {item!r}; give names or numbers of columns of X.")
        fixed = np.unique(np.array(always, dtype=np.int64))
        if fixed.size == p:
            raise ValueError(f"always has all {p} columns; leave at least one to choose from.")
        labels = np.arange(p) if self.groups is None else self._groups()
        if labels.shape != (p,):
            raise ValueError(
                f"groups has shape {labels.shape}; give a label per column, ({p},). An encoder "
                "makes fewer columns if these rows lack a level: join rare levels beforehand."
            )
        free = np.setdiff1d(np.arange(p), fixed)
        unit_of = np.full(p, -1)
        unit_of[free] = pd.factorize(labels[free], use_na_sentinel=False)[0]
        order = free[np.argsort(unit_of[free], kind="stable")]
        sizes = np.bincount(unit_of[free])
        return fixed, unit_of, np.split(order, np.cumsum(sizes)[:-1])

    # ------------------------------------------------------------- fit

    def _keep_scale(self, X: Any, weight: Any) -> None:
        """Set the standard deviations of the columns."""
        with np.errstate(over="ignore", invalid="ignore"):
            self.scale_ = StandardScaler(with_mean=False).fit(X, sample_weight=weight).scale_

    def _run(self, problem: Problem, kind: type[Chain], power: float = 1.0) -> Search:
        """Run chains on a problem, under a power of the likelihood."""
        threads = min(n_threads(self.n_jobs), self.n_chains)
        search = Search(problem, kind, self.n_chains, self.random_state, threads)
        if search.enumerated():
            return search
        before = None
        if self.warm_start and self._last_models is not None:
            limit = problem.n_free
            before = [units[units < limit][: problem.most] for units in self._last_models]
        size = None if self.subset_size == "auto" else int(self.subset_size)
        with Progress(self.verbose, "sampling") as search.progress:
            search.start(before)
            search.settle(size, self.tol)
            search.draw(self.tol, self.max_time, power)
        self._plan = search.plan
        return search

    def _keep(self, search: Search, unit: Array) -> dict[Model, float]:
        """Set the fitted attributes that both estimators have; return log p of the models kept.

        Coefficients of ``always`` are 0; ``unit`` is that of the coefficient of each free column.
        """
        problem, chains, sums = search.problem, search.chains, search.sums
        free, own, p = problem.free, problem.unit_of, self.n_features_in_
        found = self._estimate = estimate([chain.batches for chain in chains])
        self._last_models = [chain.units for chain in chains]
        self.inclusion_probabilities_, self.inclusion_mcse_ = np.ones(p), np.zeros(p)
        self.inclusion_probabilities_[free] = found.share[own]
        self.inclusion_mcse_[free] = found.mcse[own]
        sizes = sums.sizes[: problem.most + 1]
        self.model_sizes_ = sizes / sizes.sum()
        self.n_iter_ = int(sums.total[places.JUMPS])
        self.disagreement_ = float(np.ptp(found.by_chain, axis=0).max(initial=0.0))
        self.converged_ = bool(
            found.mcse.max() <= self.tol and not found.disagree.any() and not search.interrupted
        )
        mean, square, positive_, present = (s[: free.size] for s in sums[2:6])
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, square = mean / sums.time[own], square / sums.time[own]
            conditional = mean / (sums.share / sums.time)[own]
            sign = np.where(present > 0, positive_ / present, 0.5)
        self.coef_, self.coef_sd_, self.coef_conditional_ = np.zeros((3, p))
        self.positive_probability_ = np.full(p, 0.5)
        self.coef_[free] = mean * unit
        self.coef_sd_[free] = np.sqrt(np.maximum(square - mean**2, 0.0)) * unit
        self.coef_conditional_[free] = np.where(sums.share[own] > 0, conditional, 0.0) * unit
        self.positive_probability_[free] = sign
        spent, log_p = defaultdict[Model, float](float), dict[Model, float]()
        for chain in chains:
            table = chain.models
            for i in np.flatnonzero(table.key):
                members = tuple(sorted(table.units[i, : table.size[i]].tolist()))
                spent[members] += table.time[i] / sums.total[places.TIME]
                log_p[members] = table.log_p[i]
        order = sorted(spent, key=lambda m: (-spent[m], m))[:_N_MODELS]
        self.models_ = [
            (tuple(np.sort(problem.given[problem.columns_of(m)]).tolist()), spent[m]) for m in order
        ]
        return log_p

    def _tell(self, search: Search, explained: float) -> None:
        """Warn of what makes results uncertain; ``coef_`` explain a part of the response."""
        found, names = self._estimate, self._names()
        worst = int(np.argmax(np.where(found.disagree, np.ptp(found.by_chain, axis=0), -1.0)))
        if search.interrupted:
            warn(
                "Ctrl-C ended the fit early; the results so far are kept, with a largest "
                f"error of {found.mcse.max():.2g}.",
                InterruptedWarning,
            )
        if found.disagree.any():
            column = search.problem.free[search.problem.posterior.first[worst]]
            low, high = found.by_chain[:, worst].min(), found.by_chain[:, worst].max()
            warn(
                f"{int(found.disagree.sum())} inclusion probabilities differ between chains beyond "
                f"chance, most for column {names[column]!r}: from {low:.2g} to {high:.2g}. The "
                "posterior may have several supports, between which chains move too rarely; "
                f"inclusion_mcse_ allows for it. Give more max_time{self._advice}.",
                SeparatedModesWarning,
            )
        elif not self.converged_ and not search.interrupted:
            after, advice = "", "more max_time"
            if self.max_time is None:
                after = f" after {LONGEST:g} times the work of the first look at it"
                advice = "max_time (seconds), which lifts this bound"
            warn(
                f"the largest error of an inclusion probability is {found.mcse.max():.2g}, above "
                f"tol={self.tol:g}{after}. Give {advice}, or a larger tol.",
                ShortRunWarning,
            )
        other = 0.0 if search.ridge is None else search.ridge.explained
        more = other - explained
        # Of the sum of squares, of what is unexplained, and in nats.
        far = more > 0.05 and more > _MUCH * (1.0 - explained)
        if far and 0.5 * search.problem.n_data * np.log1p(more / (1.0 - other + 1e-9)) > 10.0:
            self.converged_ = False
            warn(
                f"a ridge regression on all columns explains {other:.2f} of the response in rows "
                f"that are left out, coef_ only {explained:.2f} of it. Either many columns matter "
                "a little each, or chains missed columns that say something only together. Give "
                "sums or differences of such columns as further columns, or fewer columns than "
                "rows; for predictions, take the ridge regression.",
                SeparatedModesWarning,
            )
        largest = max(chain.sums.total[places.LARGEST] for chain in search.chains)
        if search.problem.artificial and largest >= search.problem.most:
            warn(
                f"chains reached models of {search.problem.most} columns, the most that are "
                "kept: larger ones are left out. Give a prior of smaller models.",
                ShortRunWarning,
            )
        self._tell_if_shared(search.problem)

    def _tell_if_shared(self, problem: Problem) -> None:
        """Warn of nearly equal columns, each of which seems less sure than any of them is."""
        share = self.inclusion_probabilities_[problem.free]
        n_compared = max(50, min(_N_COMPARED, _MOST_ENTRIES // problem.n_data))
        tops = np.argsort(-share, kind="stable")[:n_compared]
        part, unit = problem.part(tops), problem.unit_of[tops]
        part = part / np.maximum(np.linalg.norm(part, axis=0), 1e-300)
        alike = (np.abs(part.T @ part) >= _SAME) & (unit[:, None] != unit)
        left = alike.any(axis=0) & (share[tops] < 1.0 - _MORE)
        while left.any():
            first = int(np.argmax(left))
            own = np.append(first, np.flatnonzero(alike[first]))
            left[own] = False
            columns = problem.free[tops[own]]
            any_in = float((np.diff(self._drawn()[:, columns].tocsr().indptr) > 0).mean())
            if any_in > max(0.5, share[tops[own]].max() + _MORE):
                names = few([repr(self._names()[j]) for j in columns])
                warn(
                    f"columns {names} of X are nearly equal (correlations of {_SAME:g} or "
                    f"more), so they share a probability: it is {any_in:.2f} that at least one is "
                    "in the model. Leave all but one out.",
                    ModelWarning,
                )

    # ------------------------------------------------------------- results

    def _get_support_mask(self) -> Bools:
        return np.asarray(self.get_support())

    def get_support(self, indices: bool = False, threshold: float = 0.5) -> Any:
        """Return which columns have at least a given probability.

        Parameters
        ----------
        indices : bool, default=False
            Whether to return numbers of columns instead of a mask.
        threshold : float, default=0.5
            Least probability, from 0 to 1; `transform` uses 0.5.

        Returns
        -------
        ndarray
            A mask of shape (n_features,), or numbers.
        """
        check_is_fitted(self)
        if not (isinstance(threshold, numbers.Real) and 0.0 <= threshold <= 1.0):
            raise ValueError(f"threshold is {threshold!r}; it must be a number from 0 to 1.")
        mask = self.inclusion_probabilities_ >= threshold
        return np.flatnonzero(mask) if indices else mask

    def summary(self, standardized: bool = False) -> Any:
        """Return a table of the columns, the most probable first.

        Parameters
        ----------
        standardized : bool, default=False
            Whether coefficients are for columns divided by their standard deviations, ``scale_``,
            and so can be compared; by default they are for the columns as given.

        Returns
        -------
        pandas.DataFrame
            By column: ``probability`` of inclusion and its ``mcse``; ``mean`` and ``sd`` of the
            coefficient over all models, with 0 where the column is left out. Given that the column
            is included: the mean ``if_included``, the interval from ``low`` to ``high`` that holds
            95% of the draws (NaN if fewer than 40 draws include the column), and the probability
            that the coefficient is ``positive``. For classes also ``odds_ratio``,
            ``odds_ratio_low`` and ``odds_ratio_high``, the exponentials of ``if_included``, ``low``
            and ``high``: by how much one unit more multiplies the odds of the second of
            ``classes_``, which is ``attrs["class"]``.
        """
        check_is_fitted(self)
        unit = self.scale_ if standardized else 1.0
        low, high = self._intervals() * unit
        frame = pd.DataFrame(
            {
                "probability": self.inclusion_probabilities_,
                "mcse": self.inclusion_mcse_,
                "mean": self.coef_.ravel() * unit,
                "sd": self.coef_sd_ * unit,
                "if_included": self.coef_conditional_ * unit,
                "low": low,
                "high": high,
                "positive": self.positive_probability_,
            },
            index=pd.Index(self._names(), name="feature"),
        )
        if is_classifier(self):
            frame.attrs["class"] = self.classes_.tolist()[1]
            with np.errstate(over="ignore"):
                for name, of in _ODDS.items():
                    frame[name] = np.exp(frame[of])
        return frame.sort_values("probability", ascending=False, kind="stable")

    def _intervals(self) -> Array:
        """Return the ends of 95% of the draws of each coefficient that is included, (2, p)."""
        draws = self._drawn()  # (draws, p), CSC, without the zeros of columns left out
        ends = np.full((2, draws.shape[1]), np.nan)
        for j in np.flatnonzero(np.diff(draws.indptr) >= _FEWEST_DRAWS):
            own = draws.data[draws.indptr[j] : draws.indptr[j + 1]]
            ends[:, j] = np.quantile(own, _INTERVAL)
        return ends

    def top_models(self, n: int = 10) -> pd.DataFrame:
        """Return a table of ``models_`` with the names of their columns.

        Parameters
        ----------
        n : int, default=10
            How many, the most probable first.

        Returns
        -------
        pandas.DataFrame
            ``probability`` and ``columns``, a tuple of names, of each model.
        """
        check_is_fitted(self)
        check_count(n, "n", 1)
        names = self._names()
        rows = [(p, tuple(names[j] for j in members)) for members, p in self.models_[:n]]
        return pd.DataFrame(rows, columns=["probability", "columns"])

    def _posterior(self, coef: Array, included: Any, attrs: dict[str, Any], **others: Array) -> Any:
        """Put draws of coefficients, (chain, draw, feature), and others into ArviZ's container."""
        dims, shape = ("chain", "draw"), coef.shape[:2]
        data = xr.Dataset(
            {
                "coef": ((*dims, "feature"), coef),
                "included": ((*dims, "feature"), np.asarray(included, dtype=np.int8)),
                **{name: (dims, values.reshape(shape)) for name, values in others.items()},
            },
            coords={"chain": range(shape[0]), "draw": range(shape[1]), "feature": self._names()},
        )
        return to_inference_data({"posterior": data}, attrs)

    @property
    def plot(self) -> Plots:
        """Pictures, such as ``model.plot.inclusion()``: see `sklsb.selection.plots.Plots`."""
        check_is_fitted(self)
        return Plots(self)


def _refuse_entry(X: Any, cause: Exception) -> None:
    """Raise an error that names the first column of X with an entry that is not a number."""
    framed = isinstance(X, pd.DataFrame)
    if not framed and not (isinstance(X, np.ndarray) and X.ndim == 2):
        return
    for name, column in X.items() if framed else pd.DataFrame(X).items():
        lacking = column.index[column.isna()]
        if lacking.size:
            raise ValueError(
                f"column {name!r} of X lacks a value (NaN) in row {lacking[0]}; leave the row out, "
                "or impute it."
            ) from cause
        for value in () if column.dtype.kind in "biufc" else column:
            try:
                float(value)
            except (TypeError, ValueError):
                if framed or isinstance(value, str):
                    raise ValueError(
                        f"column {name!r} of X holds {value!r}, which is not a number. Leave the "
                        "column out, or give numbers, such as one column of 0 and 1 for each "
                        "category but one (pandas.get_dummies(X, drop_first=True))."
                    ) from cause

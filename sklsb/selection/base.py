"""What the estimators share: parameters, the run of the chains, results by column."""

import copy
import numbers
import os
import time
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from sklsb._kernels.selection import state as places
from sklsb._system.progress import Progress
from sklsb._system.warn import warn
from sklsb.diagnostics.draws import to_inference_data
from sklsb.exceptions import InterruptedWarning, SeparatedModesWarning, ShortRunWarning
from sklsb.samplers._run.checks import check_count, is_n_jobs
from sklsb.selection.plots import Plots
from sklsb.selection.problem import inclusion_prior
from sklsb.selection.search import LONGEST, Search, estimate
from sklsb.targets._checks import positive, refuse_mask
from sklsb.targets._names import is_missing

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Model = tuple[int, ...]

_N_MODELS = 100
# Batches of each chain below which the first look is worth more than what came later.
_FEWEST = 16
# What a ridge regression explains of what ``coef_`` do not, from which a warning tells of it.
_MUCH = 0.2


class BaseSpikeSlab(SelectorMixin, BaseEstimator):
    """Parameters, fit and results of spike-and-slab estimators."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    # ------------------------------------------------------------- parameters

    def _read(self, X: Any, *y: Any, **how: Any) -> Any:
        """Return what `validate_data` does, but refuse masks and name the column at fault."""
        refuse_mask(X, "X")
        try:
            return validate_data(self, X, *y, **how)
        except (ValueError, TypeError) as error:
            _refuse_entry(X, error)
            raise

    def _names(self) -> list[Any]:
        """Names of the columns, or their numbers."""
        return list(getattr(self, "feature_names_in_", range(self.n_features_in_)))

    def _check_parameters(self) -> tuple[int, int | None]:
        """Check what needs no data; return threads and units per window."""
        if check_count(self.n_chains, "n_chains", 1) == 1:
            raise ValueError(
                "n_chains is 1; it must be at least 2, since one chain cannot tell whether it "
                "missed something."
            )
        positive(self.tol, "tol")
        if self.max_time is not None:
            positive(self.max_time, "max_time")
        if not is_n_jobs(self.n_jobs):
            raise ValueError(f"n_jobs is {self.n_jobs!r}; give a number of threads, or None.")
        cores = os.cpu_count() or 1
        jobs = 1 if self.n_jobs is None else int(self.n_jobs)
        jobs = max(1, cores + 1 + jobs) if jobs < 0 else jobs
        size = None
        if self.subset_size != "auto":
            size = check_count(self.subset_size, "subset_size", 2)
        return min(jobs, self.n_chains), size

    def _inclusion(
        self, unit_of: Ints, n_units: int
    ) -> tuple[tuple[float, float] | None, Array | None]:
        """Return a and b, or probabilities by unit.

        ``unit_of`` is the unit of each column of X, -1 for ``always``.
        """
        given = self.inclusion_prior
        if given is not None:
            given = np.asarray(given, dtype=np.float64)
            if given.shape == unit_of.shape and self.groups is None:
                given = given[unit_of >= 0]
            elif given.shape not in ((), (n_units,)):
                raise ValueError(
                    f"inclusion_prior has shape {given.shape}; give one probability per column or "
                    f"group, ({n_units},)."
                )
        return inclusion_prior(self.size_prior, self.expected_size, given, n_units)

    def _units(self) -> tuple[Ints, Ints, list[Ints]]:
        """Return the columns in ``always``, the unit of each column, and the columns by unit."""
        p, names = self.n_features_in_, self._names()
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
        labels = np.arange(p) if self.groups is None else np.asarray(self.groups)
        if labels.shape != (p,):
            raise ValueError(f"groups has shape {labels.shape}; give a label per column, ({p},).")
        free = np.setdiff1d(np.arange(p), fixed)
        _, first, inverse = np.unique(labels[free], return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")
        unit_of = np.full(p, -1)
        unit_of[free] = rank[inverse]
        order = free[np.argsort(unit_of[free], kind="stable")]
        sizes = np.bincount(unit_of[free])
        return fixed, unit_of, np.split(order, np.cumsum(sizes)[:-1])

    # ------------------------------------------------------------- fit

    def _run(self, search: Search, size: int | None, power: float | None, choose: bool) -> None:
        """Run the chains; after Ctrl-C keep what was found, if there is anything.

        With ``choose``, a pilot chooses rates if the first look is not enough, and the power of the
        likelihood if that is None.
        """
        if search.enumerated():
            return
        before = None
        if self.warm_start and hasattr(self, "_last_models"):
            limit = search.problem.n_free
            before = [units[units < limit][: search.problem.most] for units in self._last_models]
        with Progress(self.verbose, "sampling", None) as search.progress:
            search.start(before)
            plan = search.to_better_model(search.burn_in(search.first_plan(size)), self.tol)
            end = None if self.max_time is None else time.monotonic() + self.max_time
            first: list[Any] = []
            try:
                # The pilot takes longer than an easy posterior does.
                once = choose and power in (None, 1.0)
                done = (once or not choose) and search.run(plan, self.tol, end, once=once)
                if choose and not done and (end is None or time.monotonic() < end):
                    first = [copy.copy(chain) for chain in search.chains]
                    plan = search.pilot(plan, power)
                    search.run(plan, self.tol, end)
            except KeyboardInterrupt:
                if first and min(len(chain.batches.share) for chain in search.chains) < _FEWEST:
                    search.chains = first
                if min(len(chain.batches.share) for chain in search.chains) < 2:
                    raise
                search.interrupted = True
        self._plan = plan

    def _keep(self, search: Search) -> dict[Model, float]:
        """Set the attributes that need no coefficients; return log p of the models kept."""
        problem, chains = search.problem, search.chains
        found = self._estimate = estimate([chain.batches for chain in chains])
        self._last_models = [chain.units for chain in chains]
        share, mcse = np.ones(self.n_features_in_), np.zeros(self.n_features_in_)
        share[problem.free] = found.share[problem.unit_of]
        mcse[problem.free] = found.mcse[problem.unit_of]
        self.inclusion_probabilities_, self.inclusion_mcse_ = share, mcse
        sizes = np.sum([chain.sums.sizes for chain in chains], axis=0)[: problem.most + 1]
        self.model_sizes_ = sizes / sizes.sum()
        total = np.sum([chain.sums.total for chain in chains], axis=0)
        self.n_iter_ = int(total[places.JUMPS])
        self.disagreement_ = found.disagreement
        self.converged_ = bool(
            found.mcse.max() <= self.tol and not found.disagree.any() and not search.interrupted
        )
        spent: dict[Model, float] = {}
        log_p: dict[Model, float] = {}
        for chain in chains:
            table = chain.models
            for i in np.flatnonzero(table.key):
                members = tuple(sorted(table.units[i, : table.size[i]].tolist()))
                spent[members] = spent.get(members, 0.0) + table.time[i] / total[places.TIME]
                log_p[members] = table.log_p[i]
        order = sorted(spent, key=lambda m: (-spent[m], m))[:_N_MODELS]
        self.models_ = [
            (tuple(np.sort(problem.given[problem.columns_of(m)]).tolist()), spent[m]) for m in order
        ]
        return log_p

    def _keep_coefficients(self, search: Search, unit: Array) -> None:
        """Set what is said of coefficients, 0 for ``always``; ``unit`` is that of each free one."""
        problem, p = search.problem, self.n_features_in_
        free, own = problem.free, problem.unit_of
        sums = [np.sum([chain.sums[i] for chain in search.chains], axis=0) for i in range(6)]
        share, time_, (mean, square, positive_, present) = (
            *sums[:2],
            (s[: free.size] for s in sums[2:]),
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, square = mean / time_[own], square / time_[own]
            conditional = np.where(share[own] > 0, mean / (share / time_)[own], 0.0)
            sign = np.where(present > 0, positive_ / present, 0.5)
        self.coef_, self.coef_sd_, self.coef_conditional_ = np.zeros((3, p))
        self.positive_probability_ = np.full(p, 0.5)
        self.coef_[free] = mean * unit
        self.coef_sd_[free] = np.sqrt(np.maximum(square - mean**2, 0.0)) * unit
        self.coef_conditional_[free] = conditional * unit
        self.positive_probability_[free] = sign

    def _tell(self, search: Search, explained: float) -> None:
        """Warn of what makes results uncertain; ``coef_`` explain a part of the response."""
        found, names = self._estimate, self._names()
        worst = int(np.argmax(np.where(found.disagree, np.ptp(found.by_chain, axis=0), -1.0)))
        if search.interrupted:
            warn(
                "Ctrl-C ended the fit early; results are of what was found so far, with a largest "
                f"error of {found.mcse.max():.2g}.",
                InterruptedWarning,
            )
        if found.disagree.any():
            column = search.problem.free[search.problem.posterior.first[worst]]
            low, high = found.by_chain[:, worst].min(), found.by_chain[:, worst].max()
            advice = ", more n_chains, or tempering=0.3"
            if "tempering" not in self.get_params():
                advice = " or more n_chains"
            warn(
                f"{int(found.disagree.sum())} inclusion probabilities differ between chains beyond "
                f"chance, most for column {names[column]!r}: from {low:.2g} to {high:.2g}. The "
                "posterior may have several supports, between which chains move too rarely; "
                f"inclusion_mcse_ allows for it. Give more max_time{advice}.",
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

    # ------------------------------------------------------------- results

    def _get_support_mask(self) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = self.get_support()
        return mask

    def get_support(self, indices: bool = False, threshold: float = 0.5) -> Any:
        """Return which columns have at least some probability.

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

    def summary(self) -> Any:
        """Return a table of the columns, the most probable first.

        Returns
        -------
        pandas.DataFrame
            By column: ``probability`` of inclusion and its ``mcse``; ``mean`` and ``sd`` of the
            coefficient over all models; its mean ``if_included`` and the probability that it is
            ``positive`` then.
        """
        import pandas as pd

        check_is_fitted(self)
        frame = pd.DataFrame(
            {
                "probability": self.inclusion_probabilities_,
                "mcse": self.inclusion_mcse_,
                "mean": self.coef_.ravel(),
                "sd": self.coef_sd_,
                "if_included": self.coef_conditional_,
                "positive": self.positive_probability_,
            },
            index=pd.Index(self._names(), name="feature"),
        )
        return frame.sort_values("probability", ascending=False, kind="stable")

    @property
    def plot(self) -> Plots:
        """Pictures, such as ``plot.inclusion()``; see `Plots`."""
        check_is_fitted(self)
        return Plots(self)


def _missing(column: Any) -> NDArray[np.int64]:
    """Return the places in a column that lack a value."""
    if hasattr(column, "isna"):
        return np.flatnonzero(column.isna())
    if column.dtype.kind in "biufc":
        return np.flatnonzero(np.isnan(column))
    return np.flatnonzero([is_missing(value) for value in column])


def _refuse_entry(X: Any, cause: Exception) -> None:
    """Raise an error that names the first column of X with an entry that is not a number."""
    framed, table = hasattr(X, "iloc"), isinstance(X, np.ndarray) and X.ndim == 2
    columns = X.items() if framed else enumerate(X.T) if table else ()
    for name, column in columns:
        missing = _missing(column)
        if missing.size:
            row = column.index[missing[0]] if framed else missing[0]
            raise ValueError(
                f"column {name!r} of X lacks a value (NaN) in row {row}; leave the row out, or "
                "impute it."
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


def posterior_draws(
    coef: Array, included: Any, names: list[Any], attrs: dict[str, Any] | None = None, **others: Any
) -> Any:
    """Put draws of coefficients, (chain, draw, feature), and others into ArviZ's container."""
    dims = ("chain", "draw")
    shape = coef.shape[:2]
    data = xr.Dataset(
        {
            "coef": ((*dims, "feature"), coef),
            "included": ((*dims, "feature"), np.asarray(included, dtype=np.int8)),
            **{name: (dims, values.reshape(shape)) for name, values in others.items()},
        },
        coords={"chain": range(shape[0]), "draw": range(shape[1]), "feature": names},
    )
    return to_inference_data({"posterior": data}, attrs or {})

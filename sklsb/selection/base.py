"""What the estimators share: parameters, the fit, results."""

import copy
import math
import numbers
import os
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import gammaln, ndtr
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from sklsb._kernels.selection import state as places
from sklsb._system.memory import check_fits
from sklsb._system.progress import Progress
from sklsb.diagnostics.draws import to_inference_data
from sklsb.ensembles.streams import seed_sequence
from sklsb.exceptions import InterruptedWarning, SeparatedModesWarning, ShortRunWarning
from sklsb.samplers._run.checks import check_count, is_n_jobs
from sklsb.selection.moments import Flat, Given, flat_part, given_model, linear_moments
from sklsb.selection.plots import Plots
from sklsb.selection.problem import (
    MOST_COLUMNS,
    Prior,
    Problem,
    inclusion_prior,
    linear_problem,
    warn_of_duplicates,
)
from sklsb.selection.search import Search, estimate
from sklsb.targets._checks import positive

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_N_MODELS, _N_STATES = 100, 200
# Batches of each chain below which the first look is worth more than what came later.
_FEWEST = 16


class BaseSpikeSlab(SelectorMixin, BaseEstimator):
    """Parameters, fit and results of spike-and-slab estimators."""

    def __init__(
        self,
        prior: str = "g",
        *,
        g: float | None = None,
        slab_sd: float = 1.0,
        size_prior: tuple[float, float] | None = None,
        expected_size: float | None = None,
        inclusion_prior: Any = None,
        always: Sequence[Any] = (),
        groups: Any = None,
        standardize: bool = True,
        n_chains: int = 4,
        tol: float = 0.01,
        max_time: float | None = None,
        subset_size: Any = "auto",
        tempering: Any = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
    ):
        self.prior = prior
        self.g = g
        self.slab_sd = slab_sd
        self.size_prior = size_prior
        self.expected_size = expected_size
        self.inclusion_prior = inclusion_prior
        self.always = always
        self.groups = groups
        self.standardize = standardize
        self.n_chains = n_chains
        self.tol = tol
        self.max_time = max_time
        self.subset_size = subset_size
        self.tempering = tempering
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    # ------------------------------------------------------------- parameters

    def _names(self) -> list[Any]:
        """Names of the columns, or their numbers."""
        return list(getattr(self, "feature_names_in_", range(self.n_features_in_)))

    def _check_parameters(self) -> tuple[int, int | None, float | None]:
        """Check what needs no data; return threads, units per window, power."""
        check_count(self.n_chains, "n_chains", 1)
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
        power: float | None = None
        if self.tempering is None:
            power = 1.0
        elif self.tempering != "auto":
            power = positive(self.tempering, "tempering", 1.0)
        return min(jobs, self.n_chains), size, power

    def _prior(self, n_rows: float, unit_of: Ints, n_units: int) -> Prior:
        """Resolve the priors; ``unit_of`` is the unit of each column, -1 for ``always``."""
        if self.prior not in ("g", "independent"):
            raise ValueError(f'prior is {self.prior!r}; give "g" or "independent".')
        g = positive(n_rows if self.g is None else self.g, "g", 1e8)
        slab = positive(self.slab_sd, "slab_sd")
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
        size, chance = inclusion_prior(self.size_prior, self.expected_size, given, n_units)
        return Prior(self.prior, g, slab, size, chance)

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

    def _fit(self, X: Any, y: Array, sample_weight: Any) -> None:
        n, p = X.shape
        if p > MOST_COLUMNS:
            raise ValueError(
                f"X has {p} columns; at most {MOST_COLUMNS} are supported. A copy in single "
                f"precision would take {4 * n * p} bytes. Screen the columns first."
            )
        jobs, size, power = self._check_parameters()
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if (weight > 0).sum() < 3:
            raise ValueError(f"{(weight > 0).sum()} rows have a positive sample_weight; 3 needed.")
        if not weight.all():
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        always, unit_of, groups = self._units()
        prior = self._prior(float(weight.sum()), unit_of, len(groups))
        problem = linear_problem(X, y, weight, groups, always, prior, bool(self.standardize))
        if p <= 20_000:
            warn_of_duplicates(problem, self._names())
        search = Search(problem, self.n_chains, self.random_state, jobs)
        self._search(search, size, power)
        self._keep(search, flat_part(X, y, problem), unit_of)
        self._tell(search)

    def _search(self, search: Search, size: int | None, power: float | None) -> None:
        """Run the chains; after Ctrl-C keep what was found, if there is anything."""
        before = None
        if self.warm_start and hasattr(self, "_last_models"):
            limit = search.problem.n_units
            before = [units[units < limit][: search.problem.most] for units in self._last_models]
        with Progress(self.verbose, "sampling", None) as progress:
            search.start(before)
            plan = search.burn_in(search.first_plan(size))
            end = time.monotonic() + (self.max_time or math.inf)
            first: list[Any] = []
            try:
                # The pilot takes longer than an easy posterior does.
                easy = power in (None, 1.0) and search.run(plan, self.tol, end, progress, once=True)
                if not easy and time.monotonic() < end:
                    first = [copy.copy(chain) for chain in search.chains]
                    plan = search.pilot(plan, power)
                    search.run(plan, self.tol, end, progress)
            except KeyboardInterrupt:
                if first and min(len(chain.batches.share) for chain in search.chains) < _FEWEST:
                    search.chains = first
                if min(len(chain.batches.share) for chain in search.chains) < 2:
                    raise
                search.interrupted = True
        self._plan = plan

    def _keep(self, search: Search, flat: Flat, unit_of: Ints) -> None:
        """Set the fitted attributes."""
        problem, chains = search.problem, search.chains
        found = estimate([chain.batches for chain in chains])
        self._estimate, self._flat, self._df = found, flat, problem.df
        self._last_models = [chain.units for chain in chains]
        own = np.searchsorted(problem.posterior.first, np.arange(problem.n_columns), "right") - 1
        p = self.n_features_in_
        share, mcse = np.ones(p), np.zeros(p)
        share[problem.given], mcse[problem.given] = found.share[own], found.mcse[own]
        self.inclusion_probabilities_, self.inclusion_mcse_ = share, mcse
        self._set_coefficients(problem, chains, own)
        total = np.sum([chain.sums.total for chain in chains], axis=0)
        root = total[places.ROOT_ERROR] / total[places.TIME]
        ratio = math.exp(gammaln((problem.df - 1) / 2) - gammaln(problem.df / 2))
        self.sigma_ = float(problem.y_norm * root * ratio / math.sqrt(2.0))
        sizes = np.sum([chain.sums.sizes for chain in chains], axis=0)[: problem.most + 1]
        self.model_sizes_ = sizes / sizes.sum()
        self.n_iter_ = int(total[places.JUMPS])
        self._set_models(problem, chains)
        self._set_flat_sd()
        self.disagreement_ = found.disagreement
        self.converged_ = bool(found.mcse.max() <= self.tol and not found.disagree.any())

    def _set_coefficients(self, problem: Problem, chains: list[Any], own: Ints) -> None:
        """Set means, standard deviations and signs of the coefficients."""
        p, given = self.n_features_in_, problem.given
        sums = [np.sum([chain.sums[i] for chain in chains], axis=0) for i in range(6)]
        share, time, mean, square, positive_, present = sums
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, square = mean / time[own], square / time[own]
            conditional = np.where(share[own] > 0, mean / (share / time)[own], 0.0)
            sign = np.where(present > 0, positive_ / present, 0.5)
        unit = problem.scale * problem.y_norm
        self.coef_, self.coef_sd_ = np.zeros(p), np.zeros(p)
        self.coef_[given] = mean * unit
        self.coef_sd_[given] = np.sqrt(np.maximum(square - mean**2, 0.0)) * np.abs(unit)
        coefficients = self._flat.coefficients(self.coef_)
        self.intercept_ = float(coefficients[0])
        self.coef_[problem.always] = coefficients[1:]
        self.coef_conditional_ = self.coef_.copy()
        self.coef_conditional_[given] = conditional * unit
        self.positive_probability_ = np.full(p, 0.5)
        self.positive_probability_[given] = sign

    def _set_models(self, problem: Problem, chains: list[Any]) -> None:
        """Set the most probable models, and the states that draws and predictions are made of."""
        spent: dict[tuple[int, ...], float] = {}
        log_p: dict[tuple[int, ...], float] = {}
        for chain in chains:
            table = chain.models
            for i in np.flatnonzero(table.key):
                members = tuple(sorted(table.units[i, : table.size[i]].tolist()))
                spent[members] = spent.get(members, 0.0) + table.time[i]
                log_p[members] = table.log_p[i]
        total = sum(chain.sums.total[places.TIME] for chain in chains)
        order = sorted(spent, key=lambda m: (-spent[m], m))[:_N_MODELS]
        self.models_ = [
            (tuple(np.sort(problem.given[self._columns(problem, m)]).tolist()), spent[m] / total)
            for m in order
        ]
        known: dict[tuple[int, ...], Given] = {}

        def given(units: Any) -> Given:
            key = tuple(int(u) for u in units)
            if key not in known:
                known[key] = given_model(problem, self._columns(problem, key))
            return known[key]

        self._states, weights = [], []
        for chain in chains:
            step = -(-len(chain.states) // _N_STATES)
            kept = chain.states[::step]
            self._states.append([given(units) for units, _ in kept])
            weights.append(np.array([weight for _, weight in kept]))
        self._weights = [weight / weight.sum() for weight in weights]
        median = np.flatnonzero(self._estimate.share >= 0.5)
        best = max(log_p, key=lambda m: log_p[m]) if log_p else tuple(median)
        self._single = {"mpm": given(median), "hpm": given(best)}

    @staticmethod
    def _columns(problem: Problem, units: Any) -> Ints:
        """Return the kernels' columns of some units."""
        first = problem.posterior.first
        parts = [np.arange(first[u], first[u + 1]) for u in units]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _set_flat_sd(self) -> None:
        """Set the standard deviations of the coefficients of ``always``."""
        always = self._flat.always
        if always.size:
            rows = np.eye(always.size + 1)[1:]
            x = np.zeros((always.size, self.n_features_in_))
            _, variance, _ = self._moments(rows, x)
            self.coef_sd_[always] = np.sqrt(variance)
            z = self.coef_[always] / self.coef_sd_[always]
            self.positive_probability_[always] = ndtr(z)

    def _tell(self, search: Search) -> None:
        """Warn of what makes results uncertain."""
        found, names = self._estimate, self._names()
        worst = int(np.argmax(np.where(found.disagree, np.ptp(found.by_chain, axis=0), -1.0)))
        if search.interrupted:
            self.converged_ = False
            warnings.warn(
                "Ctrl-C ended the fit early; results are of what was found so far, with a largest "
                f"error of {found.mcse.max():.2g}.",
                InterruptedWarning,
                stacklevel=4,
            )
        if found.disagree.any():
            column = search.problem.given[search.problem.posterior.first[worst]]
            low, high = found.by_chain[:, worst].min(), found.by_chain[:, worst].max()
            warnings.warn(
                f"{int(found.disagree.sum())} inclusion probabilities differ between chains beyond "
                f"chance, most for column {names[column]!r}: from {low:.2g} to {high:.2g}. The "
                "posterior may have several supports, between which chains move too rarely; "
                "inclusion_mcse_ allows for it. Give more max_time, more n_chains, or "
                "tempering=0.3.",
                SeparatedModesWarning,
                stacklevel=4,
            )
        elif not self.converged_ and not search.interrupted:
            warnings.warn(
                f"the largest error of an inclusion probability is {found.mcse.max():.2g}, above "
                f"tol={self.tol:g}. Give more max_time, or a larger tol.",
                ShortRunWarning,
                stacklevel=4,
            )
        largest = max(chain.sums.total[places.LARGEST] for chain in search.chains)
        if search.problem.artificial and largest >= search.problem.most:
            warnings.warn(
                f"chains reached models of {search.problem.most} columns, the most that are "
                "kept: larger ones are left out. Give a prior of smaller models.",
                ShortRunWarning,
                stacklevel=4,
            )

    # ------------------------------------------------------------- results

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        mask: NDArray[np.bool_] = self.inclusion_probabilities_ >= 0.5
        return mask

    def get_support(self, indices: bool = False, threshold: float = 0.5) -> Any:
        """Return which columns have at least some probability.

        Parameters
        ----------
        indices : bool, default=False
            Whether to return numbers of columns instead of a mask.
        threshold : float, default=0.5
            Least probability; `transform` uses 0.5.

        Returns
        -------
        ndarray
            A mask of shape (n_features,), or numbers.
        """
        check_is_fitted(self)
        mask = self.inclusion_probabilities_ >= threshold
        return np.flatnonzero(mask) if indices else mask

    def _moments(
        self, rows: Array, x: Any, single: str | None = None
    ) -> tuple[Array, Array, float]:
        if single is not None:
            states, weights = [self._single[single]], np.ones(1)
        else:
            states = [state for chain in self._states for state in chain]
            weights = np.concatenate(self._weights) / len(self._weights)
        return linear_moments(self._flat, rows, x, states, weights, self._df)

    def _predict(self, X: Any, return_std: bool, estimator: str) -> Any:
        check_is_fitted(self)
        if estimator not in ("bma", "mpm", "hpm"):
            raise ValueError(f'estimator is {estimator!r}; give "bma", "mpm" or "hpm".')
        X = validate_data(self, X, accept_sparse="csc", dtype=(np.float64, np.float32), reset=False)
        if estimator == "bma" and not return_std:
            return np.asarray(X @ self.coef_) + self.intercept_
        always = X[:, self._flat.always]
        always = always.toarray() if sparse.issparse(always) else always
        rows = np.column_stack([np.ones(X.shape[0]), always])
        single = None if estimator == "bma" else estimator
        mean, variance, noise = self._moments(rows, X, single)
        if estimator == "bma":
            mean = np.asarray(X @ self.coef_) + self.intercept_
        return (mean, np.sqrt(variance + noise)) if return_std else mean

    def sample_posterior(self, n: int = 250, random_state: Any = 0) -> Any:
        """Draw models, coefficients, intercept and noise from the posterior.

        Models are states that the chains kept, at most 200 per chain; coefficients are drawn
        afresh.

        Parameters
        ----------
        n : int, default=250
            Draws per chain.
        random_state : int, SeedSequence, Generator, RandomState or None, default=0
            Where random numbers come from.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            With the group ``posterior``: ``coef``, ``included`` (chain, draw, feature),
            ``intercept`` and ``sigma`` (chain, draw).

        Raises
        ------
        MemoryError
            If the draws do not fit in memory.
        """
        check_is_fitted(self)
        check_count(n, "n", 1)
        p, chains = self.n_features_in_, len(self._states)
        check_fits(9 * n * chains * p, f"{n} draws of {p} coefficients", "Draw fewer.")
        rng = np.random.default_rng(seed_sequence(random_state))
        coef, sigma = np.zeros((chains, n, p)), np.zeros((chains, n))
        included = np.zeros((chains, n, p), dtype=np.int8)
        intercept = np.zeros((chains, n))
        always, inverse = self._flat.always, np.linalg.inv(self._flat.r)
        included[:, :, always] = 1
        for c, (states, weights) in enumerate(zip(self._states, self._weights, strict=True)):
            for d, i in enumerate(np.sort(rng.choice(len(states), size=n, p=weights))):
                state = states[i]
                scale = math.sqrt(state.error / rng.chisquare(self._df))
                noise = rng.normal(size=state.mean.size)
                coef[c, d, state.columns] = state.mean + scale * (state.root @ noise)
                included[c, d, state.columns] = 1
                flat = self._flat.coefficients(coef[c, d])
                flat = flat + scale * (inverse @ rng.normal(size=flat.size))
                intercept[c, d], coef[c, d, always], sigma[c, d] = flat[0], flat[1:], scale
        dims = ("chain", "draw")
        data = xr.Dataset(
            {
                "coef": ((*dims, "feature"), coef),
                "included": ((*dims, "feature"), included),
                "intercept": (dims, intercept),
                "sigma": (dims, sigma),
            },
            coords={"chain": range(chains), "draw": range(n), "feature": self._names()},
        )
        return to_inference_data({"posterior": data}, {"prior": self.prior})

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
                "mean": self.coef_,
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

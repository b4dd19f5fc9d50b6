"""Means, variances and other functions of means, of draws with errors or exact."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sklsb._system.arrays import Array
from sklsb._system.warn import warn
from sklsb._words import worded
from sklsb.diagnostics.batches import batch_errors
from sklsb.diagnostics.draws import CALLED, as_draws, called, states_of
from sklsb.diagnostics.reweighting import reweighted
from sklsb.exceptions import SamplerWarning
from sklsb.targets._checks import real_array
from sklsb.targets._evidence import by_values, site_called, value_name
from sklsb.targets._names import Names
from sklsb.targets._precision import log_factors
from sklsb.targets.base import Target

Terms = list[tuple[tuple[int, ...], Array]]
# Batches of each chain, at least.
_BATCHES = 64


class Expectation(NamedTuple):
    """A value with its standard error, 0 if it is exact."""

    value: Any
    mcse: Any


@worded
def expectation(
    source: xr.Dataset | Target,
    function: Any = None,
    target: Target | None = None,
    *,
    of: str | Callable[[Array], Any] = "mean",
    betas: ArrayLike | None = None,
) -> Expectation:
    r"""Mean, variance or another statistic of a function of the state, with its standard error.

    From draws, with the jackknife over m batches of consecutive draws:

    .. math:: \hat\theta = g(\bar f), \qquad
              \mathrm{mcse}^2 = \frac{m - 1}{m} \sum_b
              \left(\hat\theta_{(b)} - \hat\theta_{(\cdot)}\right)^2

    where :math:`\hat\theta_{(b)}` leaves batch b out. For a mean this is the error by batch means.
    From a target it is exact, by elimination: of sums of functions of a few variables each,

    .. math:: \mathrm{E} f = \sum_S \sum_{x_S} p(x_S) f_S(x_S)

    Parameters
    ----------
    source : xarray.Dataset or Target
        Draws as returned by ``sample``, or a target made of factors (`Target.log_factors`) or of at
        most 2**14 states.
    function : None, str, callable or list of (variables, table), optional
        None is log p, and "sum" the sum of the numbers of all variables, for an `Ising` its
        magnetisation. If values have names that are numbers, these are summed: after
        `Ising.from_binary`, the number of ones. For draws another name is a statistic that was
        recorded, and a callable takes states of shape (n, \*target.shape), of such numbers, as
        int64, and returns n numbers or arrays. A list holds the terms of a sum:
        variables by name, and an array whose axes are their values.
    target : Target, optional
        What was sampled, if ``source`` are draws: for a list, and where values have names that
        are numbers.
    of : {"mean", "variance", "binder"} or callable, default="mean"
        The statistic: "binder" is :math:`1 - \langle f^4 \rangle / (3 \langle f^2 \rangle^2)`
        [1]_. A callable takes the means of the numbers that ``function`` returns.
    betas : array_like, optional
        Inverse temperatures, only if ``source`` are draws at all temperatures of
        `sklsb.ParallelTempering`: from their smallest to their largest one. Each answer is by the
        draws at all of them, reweighted (see Notes).

    Returns
    -------
    value, mcse : float or ndarray
        As a named tuple. From a target, mcse is 0. From draws it is NaN if there are fewer than 8
        batches, or the function is the same in all draws: if it is one number, a SamplerWarning
        says so. For draws at all temperatures the first axis of both is that of ``betas``, by
        default the draws' own.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described, or the target is missing for draws whose states hold
        other numbers than those that values are called. For a target ``of`` is "mean", or
        "variance" if each term is of one variable: `sklsb.exact.sample` makes independent draws for
        others.

    Notes
    -----
    `specific_heat` and `susceptibility` are variances by temperature. The error is the largest one
    by batches and longer batches, by halves of chains if these disagree, and by the visits of
    `sklsb.ParallelTempering`; but modes that no chain visited leave no trace.

    With ``betas``, by the multiple-histogram method [2]_, a draw x at any of the temperatures has
    at :math:`\beta` the weight

    .. math:: w_\beta(x) \propto \frac{p(x)^\beta}{\sum_k p(x)^{\beta_k} / Z_k}

    with the Z that are most likely. Batches, of all temperatures together, do not see visits. mcse
    is NaN where less than a quarter of them carries the weight, as between betas far apart.

    Exact sums over pairs, and variances, ask a plan (`sklsb.exact.prepare`) one question for each
    value of each variable.

    References
    ----------
    .. [1] K. Binder, "Finite size scaling analysis of Ising model block distribution functions",
       Zeitschrift fuer Physik B 43 (1981).
    .. [2] A. M. Ferrenberg and R. H. Swendsen, "Optimized Monte Carlo data analysis", Physical
       Review Letters 63 (1989).

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Ising, exact
    >>> from sklsb.diagnostics import expectation
    >>> grid = Ising.lattice(np.full((4, 4), 0.1), coupling=0.3)
    >>> round(expectation(grid, "sum", of="variance").value, 3)
    56.301
    >>> draws = exact.sample(grid, 10_000, random_state=0)
    >>> found = expectation(draws, "sum", of="variance")
    >>> bool(abs(found.value - 56.301) < 3 * found.mcse)
    True
    """
    if not (callable(of) or (isinstance(of, str) and of in ("mean", "variance", "binder"))):
        raise ValueError(
            f'of is {of!r}; give "mean", "variance", "binder" or a function of the means.'
        )
    if isinstance(source, Target):
        if betas is not None:
            raise ValueError(
                f"betas is {betas!r:.200}, and source is a target, which has one temperature; "
                "make a target for each, or give draws at all temperatures."
            )
        return Expectation(_exact(source, function, of), 0.0)
    if not isinstance(source, xr.Dataset):
        raise TypeError(
            f"source is of type {type(source).__name__}; give draws, as sample returns them, or a "
            "target."
        )
    draws = as_draws(source)
    if betas is not None and "beta" in draws.dims:
        draws = draws.sortby("beta")
    values = values_of(draws, function, target)
    if not values.size or not np.isfinite(values).all():
        raise ValueError(
            f"function gave {values.size} numbers, {(~np.isfinite(values)).sum()} of which are not "
            "finite; an expectation needs finite numbers of at least one draw. (At beta = 0 "
            "impossible states are drawn, too: draws.sel(beta=draws.beta > 0) has none.)"
        )
    if betas is not None:
        return _reweighted(draws, values, of, real_array(betas, "betas").astype(np.float64))
    visit = draws["visit"].values if "visit" in draws.coords else None
    if "beta" not in draws.dims:
        if values.ndim == 2 and (values == values[0, 0]).all():
            warn(
                "function is the same in all draws, so mcse is NaN: these cannot tell how often it "
                "is something else. If it is constant, the error is 0.",
                SamplerWarning,
            )
        return _of_draws(values, of, visit)
    found = [
        _of_draws(values[:, :, k], of, None if visit is None else visit[:, :, k])
        for k in range(values.shape[2])
    ]
    return Expectation(*(np.stack(part) for part in zip(*found, strict=True)))


def values_of(draws: xr.Dataset, function: Any, target: Target | None = None) -> Array:
    """Return the function of each draw; the third axis is that of temperatures if there are any."""
    if "beta" not in draws.dims:
        return _values(draws, function, target)
    levels = [draws.isel(beta=k) for k in range(draws.sizes["beta"])]
    return np.stack([_values(level, function, target) for level in levels], axis=2)


def _values(draws: xr.Dataset, function: Any, target: Target | None) -> Array:
    """Return the function of each draw at one temperature, (n_chains, n_draws, ...)."""
    name = "lp" if function is None else function
    if isinstance(name, str) and name in draws and {"chain", "draw"} <= {*draws[name].dims}:
        return np.asarray(draws[name].transpose("chain", "draw", ...).values, dtype=np.float64)
    if "x" not in draws or (isinstance(name, str) and name != "sum"):
        raise ValueError(
            f"draws has {sorted(map(str, draws.variables))}, and function is {function!r}; give "
            "one of these that has a number for each draw, or draws with their states x."
        )
    chains = draws["x"].values
    if isinstance(target, Target):
        chains = states_of(draws, target).reshape(chains.shape)
    kind = called(target) if isinstance(target, Target) else draws.attrs.get(CALLED, "")
    if target is None and kind == "numbers" and (name == "sum" or callable(name)):
        raise ValueError(
            "target is missing, and the values in states are called by other numbers; give "
            "expectation(draws, function, target), for a function of these."
        )
    if name == "sum":
        _check_sum(kind)
    if name == "sum" and (target is None or not kind):
        total = chains.sum(axis=(*range(2, chains.ndim),), dtype=np.int64)
        return np.asarray(total, dtype=np.float64)
    if callable(name):
        named = target if isinstance(target, Target) and kind == "numbers" else None
        each = (_by_name(named, x) if named else x.astype(np.int64) for x in chains)
        found = np.stack([real_array(name(x), "function(x)") for x in each])
        if found.shape[:2] != chains.shape[:2]:
            raise ValueError(
                f"function returned the shape {found.shape[1:]} for {chains.shape[1]} states; it "
                "must return a number or an array for each."
            )
        return found.astype(np.float64)
    if not isinstance(target, Target):
        raise TypeError(
            f"function is {function!r:.100} and target is {target!r}; for a list of terms give the "
            "target that was sampled, else a callable or a name."
        )
    x, terms = chains.reshape(*chains.shape[:2], target.n_sites), _terms(target, function)
    used = {i for s, _ in terms for i in s}
    places = {i: np.searchsorted(target.values, x[:, :, i]) for i in used}
    zero = np.zeros(chains.shape[:2])
    return sum((table[tuple(places[i] for i in s)] for s, table in terms), zero)


def _check_sum(kind: str) -> None:
    if kind == "text":
        raise ValueError(
            'function is "sum", and values are called by text, whose sum would be that of their '
            "positions; give terms, as [([variable], [0, 1]), ...] to count second values."
        )


def _by_name(target: Target, x: NDArray[Any]) -> NDArray[Any]:
    """Return states with the names of values, which are numbers, in place of the values."""
    places = np.searchsorted(target.values, x.reshape(len(x), -1))
    columns = [np.array(own)[places[:, i]] for i, own in enumerate(target.state_names or ())]
    return np.stack(columns, axis=1).reshape(x.shape)


def _terms(target: Target, function: Any) -> Terms:
    """Return the terms of a sum, variables by site."""
    if function is None:
        return log_factors(target)
    if isinstance(function, str) and function == "sum":
        _check_sum(called(target))
        named = target.state_names if called(target) else None
        own = named or [target.values[:k] for k in target.cardinalities.tolist()]
        return [((i,), np.array(values, dtype=float)) for i, values in enumerate(own)]
    listed = isinstance(function, Sequence) and not isinstance(function, str)
    if not listed or not all(isinstance(term, Sequence) and len(term) == 2 for term in function):
        raise TypeError(
            f'function is {function!r:.100}; for a target give None (log p), "sum", or a list of '
            "(variables, table). Draws of exact.sample take any function; so do exact.states, with "
            "exact.probabilities, of a small target."
        )
    by_name, terms = Names(target.names), []
    for variables, given in function:
        if isinstance(variables, str) or not isinstance(variables, Sequence):
            raise TypeError(
                f"function has a term over {variables!r}; give a list of variables, as "
                f"[{variables!r}]."
            )
        scope = tuple(site_called(target, by_name, v, "function names") for v in variables)
        name = f"the table of {list(variables)}"
        table = real_array(by_values(target, scope, given, name), name).astype(np.float64)
        shape = tuple(target.cardinalities[list(scope)].tolist())
        if table.shape != shape or len({*scope}) < len(scope) or not np.isfinite(table).all():
            raise ValueError(
                f"the table of {list(variables)} has shape {table.shape}; give finite numbers of "
                f"shape {shape}, one axis for each of different variables."
            )
        terms.append((scope, table))
    return terms


def _exact(target: Target, function: Any, of: Any) -> float:
    """Return the mean or variance of a sum of terms, by elimination."""
    import sklsb

    p = sklsb.exact.marginals(target)["p"].values.reshape(target.n_sites, -1)
    terms = _terms(target, function)
    larger = [scope for scope, _ in terms if len(scope) > 1]
    if of not in ("mean", "variance") or (of == "variance" and larger):
        why = f" and a term of the {len(larger[0])} variables {larger[0]}" if larger else ""
        raise ValueError(
            f"of is {of!r}{why}; for a target it must be 'mean', or 'variance' where each term is "
            "of one variable. Use expectation(exact.sample(target, n), ...) for others."
        )
    alone = np.zeros_like(p)
    pairs: dict[int, list[tuple[int, Array]]] = {}
    mean = 0.0
    for scope, table in terms:
        if not scope:
            mean += float(table)
        elif len(scope) == 1:
            alone[scope[0], : len(table)] += table
        elif len(scope) == 2:
            pairs.setdefault(scope[0], []).append((scope[1], table))
        else:
            names = [target.label(i) for i in scope]
            mean += _product(sklsb.exact.marginals(target, names)["p"].values, table)
    of_sites = _product(p, alone)
    if of == "variance":
        moves = np.flatnonzero((alone != alone[:, :1]).any(axis=1)).tolist()
        pairs = {i: [] for i in moves}
    variance = 0.0
    plan: Any = sklsb.exact.prepare(target) if pairs else None
    for i, others in pairs.items():
        for k in np.flatnonzero(p[i]):
            given = plan.marginals({target.label(i): value_name(target, i, target.values[k])}).p
            for j, table in others:
                mean += p[i, k] * _product(given[j, : table.shape[1]], table[k])
            variance += p[i, k] * alone[i, k] * (_product(given, alone) - of_sites)
    return float(variance if of == "variance" else mean + of_sites)


def _product(p: Array, table: Array) -> float:
    """Sum p times a table, which may be -inf where p is 0."""
    hit = p > 0
    return float((p[hit] * table[hit]).sum())


def _reweighted(draws: xr.Dataset, values: Array, of: Any, betas: Array) -> Expectation:
    """Return the statistic at some betas, from draws at all of theirs, with its error."""
    lp, own = draws.get("lp"), draws["beta"].values if "beta" in draws.dims else np.ones(1)
    inside = betas.ndim == 1 and betas.size and ((own[0] <= betas) & (betas <= own[-1])).all()
    if not inside or lp is None or "beta" not in lp.dims or not np.isfinite(lp).all():
        raise ValueError(
            f"betas is {betas!r:.200}; give a list of numbers from {own[0]:g} to {own[-1]:g}, "
            'and draws at all temperatures, sample(n, temperatures="all"), of finite log p. '
            "Of temperatures T, betas are T.min() / T, with the lowest of the ladder, not 1 / T."
        )
    n_chains, n, n_levels = values.shape[:3]
    first, deviation, statistic = _powers(values.reshape(n_chains, -1, *values.shape[3:]), of)
    size = max(1, n // _BATCHES)
    m, used = n_chains * (n // size), slice(n % size, None)
    flat = deviation.reshape(n_chains, n, n_levels, -1)[:, used]
    mean, without = reweighted(lp.values[:, used], own, betas, flat, n // size)
    found = []
    for whole, left in zip(mean, np.moveaxis(without, 2, 0), strict=True):
        value = statistic(first + whole.reshape(1, *first.shape))[0]
        without_one = statistic(first + left.reshape(m, *first.shape))
        terms = ((m - 1.0) * (value - without_one)).reshape(*left.shape[:2], *value.shape)
        found.append((value, batch_errors(terms)))
    value, error = (np.stack(part) for part in zip(*found, strict=True))
    return Expectation(value, np.where(error > 0, error, np.nan))


def _powers(values: Array, of: Any) -> tuple[Array, Array, Callable[[Array], Array]]:
    """Return a number, deviations of each draw from it, and a function of means of the sums."""
    first = values[0, 0]
    deviation = values - first  # of what never changes exactly 0
    if of == "variance":
        deviation -= deviation.mean(axis=(0, 1))
        deviation = np.stack([deviation, deviation**2], axis=-1)
        first = np.zeros(deviation.shape[2:])
    elif of == "binder":
        deviation = np.stack([values**2, values**4], axis=-1)
        first, deviation = deviation[0, 0], deviation - deviation[0, 0]

    def statistic(means: Array) -> Array:
        if of == "mean":
            return means
        if of == "variance":
            return np.asarray(means[..., 1] - means[..., 0] ** 2)
        if of == "binder":
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.asarray(1.0 - means[..., 1] / (3.0 * means[..., 0] ** 2))
        return np.stack([real_array(of(one), "of(means)") for one in means])

    return first, deviation, statistic


def _of_draws(values: Array, of: Any, visit: NDArray[Any] | None) -> Expectation:
    """Return a function of the means, with its error by batches and by visits."""
    first, deviation, statistic = _powers(values, of)
    n_chains, n = values.shape[:2]
    every, total = n_chains * n, deviation.sum(axis=(0, 1))

    def left_out(sums: Array, sizes: Any) -> Array:
        return statistic(first + (total - sums) / (every - sizes))

    whole = left_out(np.zeros((1, *total.shape)), 0)[0]
    size = max(1, n // _BATCHES)
    n_batches = n // size
    shape = (n_chains * n_batches, size, *total.shape)
    sums = deviation[:, n - size * n_batches :].reshape(shape).sum(axis=1)
    error = np.full(whole.shape, np.nan)
    if every > size:
        m = every / size
        found = (m - 1.0) * (whole - left_out(sums, size))  # exactly 0 of what never changes
        error = batch_errors(found.reshape(n_chains, n_batches, *whole.shape))
    if visit is not None:
        # Batches do not see how long a replica stays.
        chain = np.broadcast_to(np.arange(n_chains)[:, np.newaxis], visit.shape)
        pairs = np.stack([chain.ravel(), visit.ravel()], axis=1)
        _, which, sizes = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        sums = np.zeros((sizes.size, *total.shape))
        np.add.at(sums, which.ravel(), deviation.reshape(every, *total.shape))
        if sizes.size < 2:
            error = np.full(whole.shape, np.nan)
        else:
            sizes = sizes.reshape(-1, *(1,) * total.ndim)
            by_visit = (whole - left_out(sums, sizes)).std(axis=0) * np.sqrt(len(sizes) - 1.0)
            error = np.maximum(error, by_visit)
    error = np.where(error > 0, error, np.nan)
    return Expectation(whole[()], error[()])

"""Diagnostics that ArviZ does not have, or that it flatters."""

import numbers
import warnings
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sklsb.diagnostics.draws import value_coords
from sklsb.diagnostics.tally import CHANCE, FEWEST_DRAWS, Tally
from sklsb.exceptions import FrozenSitesWarning
from sklsb.targets.base import States, Target

# Indicators that are held at once, in numbers of eight bytes.
_BLOCK = 1 << 22
# Effective draws whose variance is added to that of a marginal.
_ADDED = 3.0
# States of which all pairs are compared at once.
_PAIRED = 1024


def ess(draws: xr.Dataset, **kwargs: Any) -> xr.Dataset:
    """Effective sample size by ArviZ, but NaN for variables that never changed.

    ArviZ reports a constant series as a perfect one. A variable that never moved may be
    settled or stuck; the draws cannot tell.

    Parameters
    ----------
    draws : xarray.Dataset
        With dims chain and draw, as returned by ``sample``.
    **kwargs
        Passed to ``arviz.ess``.

    Returns
    -------
    xarray.Dataset
        Effective sample sizes, over all chains together.

    Warns
    -----
    FrozenSitesWarning
        If a variable is the same in all draws of all chains.
    """
    import arviz

    result = arviz.ess(draws, **kwargs)
    moved = draws.max(("chain", "draw")) > draws.min(("chain", "draw"))
    n_frozen = sum(int((~moved[name]).sum()) for name in result.data_vars)
    if n_frozen:
        warnings.warn(
            f"{n_frozen} variables never changed; their effective sample size is NaN.",
            FrozenSitesWarning,
            stacklevel=2,
        )
    return result.where(moved)


def marginals(draws: xr.Dataset, target: Target) -> xr.Dataset:
    r"""Probability of each value of each variable, with its Monte Carlo standard error.

    .. math:: \hat p = \frac{1}{n} \sum_t [x_i^{(t)} = s], \qquad
              \mathrm{mcse}^2 = \frac{1}{m} \left(\hat p (1 - \hat p) + \frac{3}{m}\right),
              \qquad m = \frac{n}{\tau}, \qquad
              \tau = \max\left(\frac{n}{\mathrm{ESS}}, \frac{2 n \hat p (1 - \hat p)}{v} - 1\right)

    for variable i and value s, over all n draws of all chains, but not above 1/2; ESS is that of
    ArviZ. The *visits* v are the runs of consecutive draws that have the value, or those that do
    not, whichever are fewer.

    Draws of `sklsb.ParallelTempering` have the coordinate ``visit``, the same number wherever the
    same replica made them without a way to beta = 0 in between. There tau is at least

    .. math:: \tau_w = \frac{V}{V - 1} \cdot \frac{1}{n \hat p (1 - \hat p)}
              \sum_w \left(\sum_{t \in w} \left([x_i^{(t)} = s] - \hat p\right)\right)^2

    where the sum is over all V such visits w, which are independent but for crossover. A replica
    comes and goes many times within one, so that ESS does not see how long it is.

    Parameters
    ----------
    draws : xarray.Dataset
        As returned by ``sample``.
    target : Target
        What was sampled.

    Returns
    -------
    xarray.Dataset
        ``p`` and ``mcse``, of the target's dims and ``state``, whose coordinate holds the values of
        the target; where values have names, the coordinate ``state_name`` has those. ``p`` and
        ``mcse`` are 0 where a variable does not have the value. A value that is in all of the draws
        or in none has an mcse of NaN, as the draws cannot tell how far from 1 or 0 its probability
        is; unless it is known that the variable has one possible value only
        (`Target.n_possible`), as with evidence: then it is 0.

    Raises
    ------
    ValueError
        If the draws do not have the dims chain, draw and those of the target.

    Notes
    -----
    The second bound of tau is exact for a chain of two states; it matters where visits are few. So
    does the term 3 / m: as if three effective draws more had the value (or lacked it), much as in
    the intervals of Agresti and Coull [1]_. Both were chosen by simulation, so that p lies
    within 2 mcse in nine cases of ten or more where 1 to 20 visits are expected and the value was
    seen (``benchmarks/marginal_errors.py``). After hundreds of visits they add 1 % or 2 % to mcse,
    after thousands less.

    What was not seen has left no trace. If most visits are short and a few very long, draws
    without a long one give too small an error.

    References
    ----------
    .. [1] A. Agresti and B. A. Coull, "Approximate is better than 'exact' for interval estimation
       of binomial proportions", The American Statistician 52 (1998).
    """
    flat = _states_of(draws, target)
    p = np.zeros((target.n_sites, len(target.values)))
    mcse = np.zeros_like(p)
    within = _together(draws["visit"].values) if "visit" in draws.coords else None
    for value_index, value in enumerate(target.values):
        sites = np.flatnonzero(target.cardinalities > value_index)
        # A block at a time: indicators take eight times the memory of the draws.
        n_blocks = -(-sites.size * flat.shape[0] * flat.shape[1] // _BLOCK)
        for block in np.array_split(sites, min(sites.size, n_blocks) or 1):
            hit = flat[:, :, block] == value
            p[block, value_index] = hit.mean(axis=(0, 1))
            mcse[block, value_index] = _errors(hit, target.n_possible[block] > 1, within)
    shape = (*target.shape, len(target.values))
    return xr.Dataset(
        {
            name: ((*target.dims, "state"), v.reshape(shape))
            for name, v in (("p", p), ("mcse", mcse))
        },
        coords=target.coords | value_coords(target),
    )


def disagreement(draws: "xr.Dataset | Tally", target: Target) -> xr.Dataset:
    r"""Whether chains, and halves of chains, agree: R-hat, ESS, and whether that is chance.

    Each chain is split into halves. R-hat is the split one of the indicators of the values, where
    ranks change nothing, and the rank-normalised one of log p [1]_. How large it may be by chance
    follows from the means of batches in the halves: with b batches in each of m halves,

    .. math:: F = \frac{\mathrm{var}(\text{means of halves})}
                      {\mathrm{var}(\text{means of batches in a half}) / b}
              \sim F_{m - 1, m (b - 1)}

    so the threshold depends on the numbers of draws, of variables and of independent visits.

    If the target has a `symmetry`, as an Ising model without fields, chains are compared with their
    images, too: where no value is more probable than another, the halves are compared with the
    known mean, by m degrees of freedom. So chains that are all in one of two opposite modes
    disagree, though they agree with each other.

    Parameters
    ----------
    draws : xarray.Dataset
        As returned by ``sample``, with the coordinate lp; at least 64 draws of each chain that are
        a quarter of a sweep apart or more. The attributes ``thin`` and ``sweep`` say how far apart
        they are; without these every draw counts, and p-values rest on the longer batches alone.
    target : Target
        What was sampled.

    Returns
    -------
    xarray.Dataset
        Of the target's dims: ``r_hat``, the largest over the values of a variable; ``ess``, the
        smallest; ``p_value``, the smallest probability of an F as large in chains that agree. The
        same of log p as ``r_hat_lp``, ``ess_lp`` (of its mean), ``p_value_lp``. NaN where a
        variable never changed. Attributes: ``agree``, 0 if the smallest p_value times the number of
        values is below 0.01 / (1 + log2(n_draws / 64)), or if anything is lost, else 1 (a run that
        goes on is looked at again and again); ``worst``, the variable of the
        smallest (or "lp"); ``n_draws``, of each chain, that were looked at; ``lost``, of a
        sampler's own draws, variables of which a rare value was found before the burn-in that
        chains keep for long, and that the draws have for fewer than four such visits: they cannot
        tell how much it weighs.

    Raises
    ------
    ValueError
        If there are fewer than 64 draws of each chain, or they are not of this target.

    Notes
    -----
    Chains that agree may be wrong together: what neither they nor their images have seen cannot be
    told.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Bürkner, "Rank-normalization,
       folding, and localization: an improved R-hat", Bayesian Analysis 16 (2021).
    """
    tally = draws if isinstance(draws, Tally) else _tally_of(draws, target)
    if tally.n_draws < FEWEST_DRAWS:
        apart = f" that are {tally.every} transitions apart" if tally.every > 1 else ""
        raise ValueError(
            f"There are {tally.n_draws} draws of each chain{apart}; to compare chains takes at "
            f"least {FEWEST_DRAWS}."
        )
    of_lp = tally.of_lp()
    sites = {name: np.full(target.n_sites, np.nan) for name in ("r_hat", "ess", "p_value")}
    n_values = tally.first.size and tally.counts.shape[2]
    if n_values:
        of_values = tally.of_values()
        for name, best in (("r_hat", np.fmax), ("ess", np.fmin), ("p_value", np.fmin)):
            sites[name][tally.sites] = tally.by_site(getattr(of_values, name), best)
    p_value = np.append(sites["p_value"], of_lp.p_value)
    seen = np.where(np.isnan(p_value), 1.0, p_value)
    worst = int(seen.argmin())
    lost = tally.lost()
    looks = 1.0 + np.log2(tally.n_draws / FEWEST_DRAWS)
    agree = not lost and seen[worst] * (n_values + 1) * looks >= CHANCE
    found = {
        name: (target.dims, values.reshape(target.shape)) for name, values in sites.items()
    } | {f"{name}_lp": float(getattr(of_lp, name)) for name in sites}
    attrs = {
        "agree": int(agree),
        "worst": "lp" if worst == target.n_sites else str(target.label(worst)),
        "n_draws": tally.n_draws,
        "lost": list(dict.fromkeys(str(target.label(site)) for site in lost)),
    }
    return xr.Dataset(found, coords=target.coords, attrs=attrs)


def _tally_of(draws: xr.Dataset, target: Target) -> Tally:
    x = _states_of(draws, target)
    if "lp" not in draws.coords:
        raise ValueError("draws has no lp; give what sample returned.")
    thin, sweep = draws.attrs.get("thin", 1), draws.attrs.get("sweep")
    if sweep is None:  # so long that no batch is
        tally = Tally(target, x.shape[0], sweep=1 << 62)
    else:
        tally = Tally.by_sweep(target, x.shape[0], int(sweep))
    tally.add(x, draws["lp"].values, int(thin))
    return tally


def _states_of(draws: xr.Dataset, target: Target) -> States:
    """Return the states, (n_chains, n_draws, n_sites), or say what is wrong with the draws."""
    x = draws.get("x")
    if x is None or x.dims != ("chain", "draw", *target.dims) or x.shape[2:] != target.shape:
        found = "no variable x" if x is None else f"x of {dict(x.sizes)}"
        raise ValueError(
            f"draws has {found}; give what sample returned for this target, x of chain, draw and "
            f"{dict(zip(target.dims, target.shape, strict=True))}."
        )
    states: States = x.values.reshape(*x.shape[:2], target.n_sites)
    return states


class _Grouped(NamedTuple):
    """Draws of all chains, one visit of a replica after the other."""

    order: NDArray[np.intp]
    start: NDArray[np.intp]  # of each visit

    def tau(self, hit: NDArray[np.bool_], p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how many draws are worth one, by sums over independent visits."""
        n, n_visits = self.order.size, self.start.size
        if n_visits < 2:
            return np.full(p.shape, float(n))
        counts = np.add.reduceat(hit.reshape(n, -1)[self.order], self.start, axis=0, dtype=np.int64)
        size = np.diff(self.start, append=n)[:, np.newaxis]
        squares = np.square(counts - size * p).sum(axis=0)
        found: NDArray[np.float64] = n_visits / (n_visits - 1) * squares / (n * p * (1.0 - p))
        return found


def _together(visit: NDArray[np.float64]) -> _Grouped:
    """Put together the draws of each visit, from its number, (n_chains, n_draws)."""
    chain = np.repeat(np.arange(len(visit)), visit.shape[1])
    order = np.lexsort((visit.ravel(), chain))
    sorted_visit, chain = visit.ravel()[order], chain[order]
    new = (np.diff(sorted_visit) != 0) | (np.diff(chain) != 0)
    start = np.concatenate([[0], 1 + np.flatnonzero(new)])[: visit.size]
    return _Grouped(order, start)


def _errors(
    hit: NDArray[np.bool_], unknown: NDArray[np.bool_], within: _Grouped | None = None
) -> NDArray[np.float64]:
    """Errors of the means of indicators of shape (n_chains, n_draws, n_sites)."""
    import arviz

    p = hit.mean(axis=(0, 1))
    # What cannot change has no error; what did not change has an unknown one.
    errors = np.where(unknown, np.nan, 0.0)
    moved = (p > 0.0) & (p < 1.0)
    if not moved.any():
        return errors
    hit, p = hit[:, :, moved], p[moved]
    n, variance = hit.shape[0] * hit.shape[1], p * (1.0 - p)
    series = xr.Dataset({"x": (("chain", "draw", "site"), hit.astype(np.float64))})
    tau = np.maximum(
        n / arviz.ess(series, method="mean")["x"].values, 2.0 * n * variance / _visits(hit) - 1.0
    )
    if within is not None:
        tau = np.maximum(tau, within.tau(hit, p))
    errors[moved] = np.minimum(0.5, np.sqrt((variance + _ADDED * tau / n) * tau / n))
    return errors


def _visits(hit: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count the runs of draws that are True, or of those that are False if these are fewer."""
    before, after = hit[:, :-1], hit[:, 1:]
    inside = hit[:, 0].sum(axis=0) + (after & ~before).sum(axis=(0, 1))
    outside = (~hit[:, 0]).sum(axis=0) + (before & ~after).sum(axis=(0, 1))
    fewer: NDArray[np.int64] = np.minimum(inside, outside)
    return fewer


def best_state(draws: xr.Dataset) -> xr.Dataset:
    """Return the draw of largest log-density, over all chains; the first of equal ones.

    Parameters
    ----------
    draws : xarray.Dataset
        As returned by ``sample``, with the coordinate ``lp``, or by `sklsb.anneal`.

    Returns
    -------
    xarray.Dataset
        Variable ``x`` without the dims chain and draw, which are scalar coordinates now, as is
        lp, its log-density.

    Raises
    ------
    ValueError
        If there are no draws, or no lp.
    """
    if "lp" not in draws or not draws["lp"].size:
        raise ValueError(
            f"draws has the coordinates {sorted(map(str, draws.coords))} and sizes "
            f"{dict(draws.sizes)}; give the draws that sample returned, with their lp."
        )
    at = draws["lp"].argmax(draws["lp"].dims)
    return draws.isel({dim: int(index) for dim, index in at.items()}).set_coords("lp")


def mmd(x: ArrayLike, y: ArrayLike) -> float:
    r"""Squared maximum mean discrepancy between two samples of states, unbiased.

    .. math:: \widehat{\mathrm{MMD}}^2
              = \frac{1}{m (m - 1)} \sum_{i \ne j} k(x_i, x_j)
              + \frac{1}{n (n - 1)} \sum_{i \ne j} k(y_i, y_j)
              - \frac{2}{m n} \sum_{i, j} k(x_i, y_j)

    with k(x, y) = exp(-h(x, y)) and h the fraction of the variables in which x and y differ: the
    estimator of [1]_ with the kernel of [2]_. Its mean is 0 if and only if the two distributions
    are equal; then it is negative more often than not.

    Parameters
    ----------
    x : array_like of shape (m, n_sites)
        States of at least two draws, independent of each other.
    y : array_like of shape (n, n_sites)
        States of the other sample.

    Returns
    -------
    float
        Estimate of the square.

    Raises
    ------
    ValueError
        If the shapes do not agree, or there are fewer than two states or no variables.
    TypeError
        If the states are not integers or bool.

    Notes
    -----
    The kernel is that of a product over the variables, so it is characteristic: no two
    distributions have the same mean embedding. But it is wide: where n_sites is large, distances of
    most pairs are close to each other, and small discrepancies need many draws. Memory is
    that of pairs of 1,024 states at a time.

    References
    ----------
    .. [1] A. Gretton et al., "A kernel two-sample test", JMLR 13 (2012), equation 3.
    .. [2] W. Grathwohl et al., "Oops I took a gradient: scalable sampling for discrete
       distributions", ICML 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb.diagnostics import mmd
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.integers(2, size=(2, 500, 20))
    >>> abs(mmd(x, y)) < 1e-3
    True
    >>> round(mmd(x, y * rng.integers(2, size=y.shape)), 3)
    0.086
    """
    x, y = np.asarray(x), np.asarray(y)
    for name, states in (("x", x), ("y", y)):
        if states.dtype.kind not in "iub":
            raise TypeError(f"{name} has dtype {states.dtype}; give states as integers or bool.")
        if states.ndim != 2 or len(states) < 2 or not states.shape[1]:
            raise ValueError(
                f"{name} has shape {states.shape}; it must have shape (n_draws, n_sites) with at "
                "least 2 draws and 1 variable. Reshape draws of several chains to two axes."
            )
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"x has {x.shape[1]} variables and y {y.shape[1]}; compare states of one target."
        )
    m, n = len(x), len(y)
    within = [(_kernel_sum(s, s) - len(s)) / (len(s) * (len(s) - 1)) for s in (x, y)]
    return sum(within) - 2.0 * _kernel_sum(x, y) / (m * n)


def _kernel_sum(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Sum of exp(-fraction of variables that differ) over all pairs, a block at a time."""
    total = 0.0
    for a in range(0, len(x), _PAIRED):
        for b in range(0, len(y), _PAIRED):
            left, right = x[a : a + _PAIRED], y[b : b + _PAIRED]
            equal = np.zeros((len(left), len(right)))
            for value in np.intersect1d(left, right):
                # Counts below 2**24, exact in float32.
                hits = [(part == value).astype(np.float32) for part in (left, right)]
                equal += hits[0] @ hits[1].T
            total += float(np.exp(equal / x.shape[1] - 1.0).sum())
    return total


def autocorrelation(trace: ArrayLike, lags: int) -> NDArray[np.float64]:
    r"""Autocorrelation of each chain at lags 0 to ``lags``, by the fast Fourier transform.

    .. math:: r_j = \frac{\sum_{t=1}^{n-j} (s_t - \bar s)(s_{t+j} - \bar s)}
                         {\sum_{t=1}^{n} (s_t - \bar s)^2}

    Parameters
    ----------
    trace : array_like of shape (..., n_draws)
        One series, or one per chain.
    lags : int
        Largest lag, less than n_draws.

    Returns
    -------
    ndarray of shape (..., lags + 1)
        NaN for a constant series.
    """
    series = np.asarray(trace, dtype=np.float64)
    n = series.shape[-1] if series.ndim else 0
    if not (isinstance(lags, numbers.Integral) and 0 <= lags < n):
        raise ValueError(f"lags is {lags}; it must be an integer from 0 to {n - 1} for {n} draws.")
    centred = series - series.mean(axis=-1, keepdims=True)
    size = 1 << (n + lags - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    sums = np.fft.irfft(power, size)[..., : lags + 1]
    constant = (series == series[..., :1]).all(axis=-1, keepdims=True)
    return np.where(constant, np.nan, sums / np.where(constant, 1.0, sums[..., :1]))


def paper_ess(trace: ArrayLike, lags: int) -> NDArray[np.float64]:
    r"""Effective sample size as in Tables 2 and 3 of the LSB paper, for comparison only.

    .. math:: \frac{L + 1}{1 + 2 \sum_{j=1}^{L} r_j (1 - j/(L+1)) [r_j > 0.05]}

    with r the autocorrelation and L = ``lags``: it is an effective size per window of L + 1
    draws, not per chain. Use `ess` for anything else.

    Parameters
    ----------
    trace : array_like of shape (..., n_draws)
        Series of a statistic, one per chain; the paper's is the sum of the state.
    lags : int
        Largest lag L.

    Returns
    -------
    ndarray of the leading shape
        NaN for a constant series.
    """
    r = autocorrelation(trace, lags)
    j = np.arange(lags + 1)
    kept = np.where((r > 0.05) & (j > 0), r, 0.0) + 0.0 * r
    return (lags + 1) / (1.0 + 2.0 * (kept * (1.0 - j / (lags + 1))).sum(axis=-1))

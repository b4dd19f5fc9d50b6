"""Effective sample sizes, the best state, and the distance of two samples."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import scipy.fft
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sklsb._system.arrays import Array
from sklsb._system.warn import warn
from sklsb.diagnostics.draws import check_order
from sklsb.diagnostics.tally import FEWEST_DRAWS
from sklsb.exceptions import FrozenSitesWarning, ShortRunWarning
from sklsb.targets._names import columns_of, in_pandas, ordered

# States whose pairs are compared at once.
_PAIRED = 1024
# Draws whose Fourier transforms are held at once.
BLOCK = 1 << 20


def warn_if_few(draws: xr.Dataset) -> None:
    """Warn of draws that are too few for what ArviZ computes of them."""
    n = draws.sizes.get("draw", FEWEST_DRAWS)
    if n < FEWEST_DRAWS:
        warn(
            f"There are {n} draws of each chain: too few to trust effective sample sizes, errors "
            f"and R-hat. Make {FEWEST_DRAWS} or more.",
            ShortRunWarning,
        )


def ess(draws: xr.Dataset, **kwargs: Any) -> xr.Dataset:
    r"""Return ArviZ's effective sample size, but NaN for variables that never changed.

    ArviZ takes constant draws to be independent. A variable that never changed may be settled or
    stuck; the draws cannot tell. Variables of two values, whose ranks tell no more than the values
    do, are computed all at once, which is many times faster.

    Parameters
    ----------
    draws : xarray.Dataset
        As returned by ``sample``, with dims chain and draw.
    **kwargs
        Passed to ``arviz.ess``.

    Returns
    -------
    xarray.Dataset
        Effective sample sizes of all chains together.

    Warns
    -----
    FrozenSitesWarning
        If a variable is the same in all draws of all chains.
    ShortRunWarning
        If there are fewer than 64 draws of each chain.
    """
    import arviz

    check_order(draws)
    warn_if_few(draws)
    least, largest = draws.min(("chain", "draw")), draws.max(("chain", "draw"))
    two = ((draws == least) | (draws == largest)).all()
    quick = [name for name in draws.data_vars if two[name] and not kwargs]
    rest = draws.drop_vars(quick)
    result = arviz.ess(rest, **kwargs) if rest.data_vars else xr.Dataset()
    for name in quick:
        hit = (draws[name] == largest[name]).transpose("chain", "draw", ...).values
        series = hit.reshape(*hit.shape[:2], -1)
        blocks = np.array_split(series, max(1, -(-series.size // BLOCK)), axis=2)
        sizes = np.concatenate([ess_of_means(block) for block in blocks])
        result[name] = least[name].copy(data=sizes.reshape(least[name].shape))
    if not kwargs:
        result = result[[*draws.data_vars]]
    moved = largest > least
    n_frozen = sum(int((~moved[name]).sum()) for name in result.data_vars)
    if n_frozen:
        warn(
            f"{n_frozen} variables never changed; their effective sample size is NaN.",
            FrozenSitesWarning,
        )
    return result.where(moved)


def best_state(draws: xr.Dataset) -> xr.Dataset:
    """Return the draw with the largest log-density; the first one of equals.

    Parameters
    ----------
    draws : xarray.Dataset
        As returned by ``sample``, with the coordinate ``lp``, or by `sklsb.anneal`.

    Returns
    -------
    xarray.Dataset
        Variable ``x``; chain, draw and the log-density lp are scalar coordinates.

    Raises
    ------
    ValueError
        If there are no draws, or no lp.
    """
    check_order(draws)
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

    with k(x, y) = exp(-h(x, y)) and h the fraction of variables that differ between x and y: the
    estimator of [1]_ with the kernel of [2]_. Its expectation is 0 if and only if the two
    distributions are equal; then it is negative more often than not.

    Parameters
    ----------
    x : array_like of shape (m, n_sites)
        At least two independent states.
    y : array_like of shape (n, n_sites)
        The other sample.

    Returns
    -------
    float
        Estimate of the squared discrepancy.

    Raises
    ------
    ValueError
        If the shapes do not agree, or there are fewer than two states or no variables.
    TypeError
        If the states are not integers or bool.

    Notes
    -----
    The kernel is a product over the variables, so it is characteristic: no two distributions have
    the same mean embedding. But it is wide: if n_sites is large, most distances are similar, and
    small discrepancies need many draws. Memory is bounded: 1,024 states are compared with 1,024 at
    a time.

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
    one, other = in_pandas(x), in_pandas(y)
    columns = columns_of(one)
    if columns is not None and columns_of(other) is not None:
        other = ordered(other.T, columns, "y.T").T
    x, y = np.asarray(one), np.asarray(other)
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
    """Sum exp(-fraction of variables that differ) over all pairs, a block at a time."""
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


def autocorrelation(trace: ArrayLike, lags: int) -> Array:
    r"""Return the autocorrelation of each chain at lags 0 to ``lags``, by fast Fourier transform.

    .. math:: r_j = \frac{\sum_{t=1}^{n-j} (s_t - \bar s)(s_{t+j} - \bar s)}
                         {\sum_{t=1}^{n} (s_t - \bar s)^2}

    Parameters
    ----------
    trace : array_like of shape (..., n_draws)
        One or more series.
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


def ess_of_means(series: NDArray[Any]) -> Array:
    """Return what ``arviz.ess(..., method="mean")`` does, of many series (chain, draw, n) at once.

    It is by Geyer's initial monotone sequence, of the halves of all chains, as in ArviZ 0.23 and
    1.x. Where a pair of autocorrelations sums to 0, rounding decides, here as there.
    """
    n = series.shape[1] // 2
    if n < 2:
        return np.full(series.shape[2], np.nan)
    halves = np.moveaxis(np.concatenate([series[:, :n], series[:, -n:]]), 2, 0).astype(np.float64)
    means, whole = halves.mean(axis=2), 2 * len(series) * n
    halves -= means[:, :, np.newaxis]
    size = scipy.fft.next_fast_len(2 * n, real=True)
    power = np.square(np.abs(scipy.fft.rfft(halves, size, overwrite_x=True))).sum(axis=1)
    covariance = scipy.fft.irfft(power, size)[:, :n] / whole
    variance = covariance[:, :1] + means.var(axis=1, ddof=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        rho = 1.0 - (covariance[:, :1] * n / (n - 1.0) - covariance) / variance
    rho[:, 0] = 1.0
    n_pairs = 1 + max(0, (n - 3) // 2)
    even = rho[:, : 2 * n_pairs : 2]
    sums = even + rho[:, 1 : 2 * n_pairs : 2]
    ends = sums <= 0.0
    ends[:, -1] = True
    last = ends.argmax(axis=1)[:, np.newaxis]
    kept = np.where(np.arange(n_pairs) < last, np.minimum.accumulate(sums, axis=1), 0.0)
    more, end = (np.take_along_axis(of, last, axis=1)[:, 0] for of in (even, sums))
    tau = 2.0 * kept.sum(axis=1) - 1.0 + np.where((more > 0.0) | (end >= 0.0), more, 0.0)
    least = 1.0 / np.log10(whole)
    return whole / np.where(variance[:, 0] > 0.0, np.maximum(tau, least), 1.0)


def paper_ess(trace: ArrayLike, lags: int) -> Array:
    r"""Return the effective sample size of Tables 2 and 3 of the LSB paper, for comparison only.

    .. math:: \frac{L + 1}{1 + 2 \sum_{j=1}^{L} r_j (1 - j/(L+1)) [r_j > 0.05]}

    with r the autocorrelation and L = ``lags``. It is an effective size per window of L + 1 draws,
    not per chain. Use `ess` for anything else.

    Parameters
    ----------
    trace : array_like of shape (..., n_draws)
        Series of a statistic, one per chain. The paper's is the sum of the state.
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

"""Diagnostics that ArviZ does not have, or that it flatters."""

import numbers
import warnings
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sklsb.exceptions import FrozenSitesWarning

__all__ = ["autocorrelation", "ess", "paper_ess"]


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

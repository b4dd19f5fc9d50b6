"""Draws with weights: means, their errors, and draws without weights in their place."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

Array = NDArray[np.float64]
WEIGHT = "log_weight"


def weights_of(draws: xr.Dataset) -> Array | None:
    """Return the weights of draws, (n_chains, n_draws) and 1 on average; None if all are equal."""
    if WEIGHT not in draws:
        return None
    found = draws[WEIGHT]
    if found.dims != ("chain", "draw"):
        raise ValueError(
            f"{WEIGHT} of draws has the dims {found.dims}; give one weight for each draw, of dims "
            "('chain', 'draw'), as sample returns them."
        )
    log_weight = found.values.astype(np.float64)
    wrong = ~np.isfinite(log_weight)
    if wrong.any():
        c, t = np.argwhere(wrong)[0]
        raise ValueError(
            f"{WEIGHT} of draws[{c}, {t}] is {log_weight[c, t]}; log weights must be finite."
        )
    if not log_weight.size:
        return log_weight
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.mean())


def refuse_weights(draws: xr.Dataset, what: str) -> None:
    """Refuse draws with weights where these cannot be used."""
    if WEIGHT in draws:
        raise ValueError(
            f"draws has {WEIGHT}, and {what} counts every draw once. sample(n) without "
            'record="jumps" gives draws that count the same.'
        )


def weighted_mean(values: NDArray[Any], weight: Array) -> tuple[Array, Array]:
    r"""Return weighted means and their standard errors, by the delta method.

    .. math:: \hat f = \frac{\sum_t w_t f_t}{\sum_t w_t}, \qquad
              \mathrm{mcse}^2 = \frac{\mathrm{var}(e)}{\mathrm{ESS}(e)}, \qquad
              e_t = \frac{w_t}{\bar w} (f_t - \hat f)

    ``values`` has shape (n_chains, n_draws, ...). ESS is ArviZ's; without 4 draws errors are NaN.
    """
    import arviz

    values = np.asarray(values, dtype=np.float64)
    w = weight.reshape(*weight.shape, *(1,) * (values.ndim - 2))
    mean = (w * values).mean(axis=(0, 1))
    residual = w * (values - mean)
    dims = ("chain", "draw", *(f"dim_{k}" for k in range(values.ndim - 2)))
    size = arviz.ess(xr.Dataset({"x": (dims, residual)}), method="mean")["x"].values
    return mean, np.asarray(np.sqrt(residual.var(axis=(0, 1)) / size))


def resample(draws: xr.Dataset, n: int, random_state: int) -> xr.Dataset:
    r"""Return n draws of each chain without weights, in their order, to compare chains.

    Draw k of a chain is the one at which its cumulative weight passes

    .. math:: \frac{k + u_k}{n} \sum_t w_t, \qquad u_k \sim U(0, 1), \quad k = 0, \ldots, n - 1

    (stratified resampling). For recorded jumps, whose weights are times, that is one draw from each
    of n equal intervals of the time of the chain. A chain counts as much as any other, however long
    its time is, so these are no draws to estimate from: means of many chains are as biased as those
    of each.
    """
    at = _places(draws[WEIGHT].values, n, np.random.default_rng(random_state))
    used, place = np.unique(at, return_inverse=True)
    part = draws.drop_vars([WEIGHT, "draw"]).isel(draw=used)
    return part.isel(
        chain=xr.DataArray(np.arange(len(at)), dims="chain"),
        draw=xr.DataArray(place.reshape(at.shape), dims=("chain", "draw")),
    ).assign_coords(draw=np.arange(n))


def _places(log_weight: Array, n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the draws that are taken, (n_chains, n)."""
    n_chains, size = log_weight.shape
    found = np.empty((n_chains, n), dtype=np.intp)
    for row, of_chain in zip(found, log_weight, strict=True):
        passed = np.cumsum(np.exp(of_chain - of_chain.max()))
        wanted = (np.arange(n) + rng.random(n)) / n * passed[-1]
        row[:] = np.minimum(np.searchsorted(passed, wanted, side="right"), size - 1)
    return found

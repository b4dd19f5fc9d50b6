"""Log p of large numbers: how much of it a float holds, and answers that do not depend on that."""

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklsb.exact.elimination.reduce import LARGE, Factor, log_factors, strike, without_top
from sklsb.exceptions import PrecisionWarning
from sklsb.targets.base import Target

Array = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)
# Rounding of log p that is told.
MOST_ROUNDING = 0.01
WAY_OUT = (
    "Give smaller numbers: a term of 1,000 decides as surely as one of 1e16. Or fix what such "
    "terms decide, by target.condition."
)


def rounding_of(size: float) -> float:
    """Return what a sum of terms that are so large together may be off by."""
    return _EPS * size


def log_prob_from_top(target: Target, x: ArrayLike) -> Array:
    """Log p of states, where it is large less a constant that leaves the likely ones their digits.

    Parameters
    ----------
    target : Target
        Any; without factors, or where log p is small, this is its own log p.
    x : array_like of shape (..., n_sites)
        States.

    Returns
    -------
    ndarray of float64 of the leading shape
    """
    if not target._log_prob_size > LARGE or not target._has_factors:
        return target.log_prob(x)
    index = np.searchsorted(np.asarray(target.values), target.check_states(x))
    result = np.zeros(index.shape[:-1])
    for scope, table in log_factors(target):
        result += without_top(table)[0][tuple(index[..., i] for i in scope)]
    return result


def told_log_prob(target: Target, x: ArrayLike, *, likely: bool = False) -> Array:
    """Return `log_prob_from_top`, with a warning if differences of it are lost.

    ``likely``: if those of states of largest log p are, which is all that probabilities depend on.
    """
    found = log_prob_from_top(target, x)
    finite = found[found > -np.inf]
    if finite.size:
        warn_if_lost(target, float(np.abs(finite.max() if likely else finite).max()))
    return found


def warn_if_lost(target: Target, size: float, stacklevel: int = 4) -> None:
    """Warn if what is left where terms of log p cancel is lost in rounding of so large numbers."""
    if rounding_of(size) > MOST_ROUNDING:
        warnings.warn(
            f"Terms of log p of {target!r:.200} as large as {size:.3g} cancel, and a float holds "
            f"what they leave to about {rounding_of(size):.2g}: the answer may be wrong. {WAY_OUT}",
            PrecisionWarning,
            stacklevel=stacklevel,
        )


def cancelling_site(target: Target) -> int | None:
    """Return a variable at which terms that are so large may cancel, if there is one.

    Differences of log p in one variable are right where only one of the terms that change is large.
    """
    largest: dict[int, list[float]] = {}
    for factor in strike(target).factors:
        for axis, i in enumerate(factor.scope):
            largest.setdefault(i, []).append(_spread(factor, axis))
    second = {i: sorted(found)[-2] for i, found in largest.items() if len(found) > 1}
    worst = max(second, key=lambda i: second[i], default=None)
    lost = worst is not None and rounding_of(second[worst]) > MOST_ROUNDING
    return worst if lost else None


def _spread(factor: Factor, axis: int) -> float:
    """Return the largest finite difference of two entries that differ in one variable."""
    table = factor.table
    high = np.where(table > -np.inf, table, -np.inf).max(axis=axis)
    low = np.where(table > -np.inf, table, np.inf).min(axis=axis)
    spread = (high - low)[high > -np.inf]
    return float(spread.max(initial=0.0))

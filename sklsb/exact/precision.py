"""Log p made of large terms: what rounding loses of it, and how answers avoid the loss."""

import numpy as np
from numpy.typing import ArrayLike

from sklsb._system.arrays import Array
from sklsb.exact.elimination.reduce import LARGE, Factor, log_factors, strike, without_top
from sklsb.exact.rounding import MOST_ROUNDING, rounding_of, warn_if_lost
from sklsb.targets.base import Target


def log_prob_from_top(target: Target, x: ArrayLike) -> Array:
    """Log p of states; where it is large, less a constant, so that likely states keep their digits.

    Without factors, or where log p is small, this is the target's own log p.
    """
    if not target.offers.size > LARGE or not target.offers.factors:
        return target.log_prob(x)
    index = np.searchsorted(np.asarray(target.values), target.check_states(x))
    result = np.zeros(index.shape[:-1])
    for scope, table in log_factors(target):
        result += without_top(table)[0][tuple(index[..., i] for i in scope)]
    return result


def told_log_prob(target: Target, x: ArrayLike, *, likely: bool = False) -> Array:
    """Return `log_prob_from_top`, with a warning if rounding loses its differences.

    With ``likely``, only differences among the likeliest states count: probabilities depend on
    nothing else.
    """
    found = log_prob_from_top(target, x)
    finite = found[found > -np.inf]
    if finite.size:
        warn_if_lost(target, float(np.abs(finite.max() if likely else finite).max()))
    return found


def cancelling_site(target: Target) -> int | None:
    """Return a variable at which large terms of log p may cancel, or None.

    A difference of log p in one variable is right if only one of the terms that change is large.
    """
    largest: dict[int, list[float]] = {}
    for factor in strike(target).factors:
        for axis, i in enumerate(factor.scope):
            largest.setdefault(i, []).append(_spread(factor, axis))
    second = {i: sorted(found)[-2] for i, found in largest.items() if len(found) > 1}
    worst = max(second, key=lambda i: second[i], default=None)
    return None if worst is None or rounding_of(second[worst]) <= MOST_ROUNDING else worst


def _spread(factor: Factor, axis: int) -> float:
    """Return the largest finite difference of two entries that differ in one variable."""
    table = factor.table
    high = table.max(axis=axis)
    low = np.where(table > -np.inf, table, np.inf).min(axis=axis)
    spread = (high - low)[high > -np.inf]
    return float(spread.max(initial=0.0))

"""Log p made of large terms: what rounding loses of it, and how answers avoid the loss."""

import numpy as np
from numpy.typing import ArrayLike

from sklsb._system.arrays import Array
from sklsb._system.warn import warn
from sklsb.exact.elimination.reduce import LARGE, Factor, log_factors, strike, without_top
from sklsb.exceptions import PrecisionWarning
from sklsb.targets.base import Target

_EPS = float(np.finfo(np.float64).eps)
# Rounding of log p above which a warning is given.
MOST_ROUNDING = 0.01
WAY_OUT = (
    "Give smaller numbers: a term of 1,000 decides as surely as one of 1e16. Or fix what such "
    "terms decide, by target.condition."
)


def rounding_of(size: float) -> float:
    """Return the rounding error of a sum whose terms have this size."""
    return _EPS * size


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


def warn_if_lost(target: Target, size: float) -> None:
    """Warn if terms of log p of this size cancel and rounding loses what they leave."""
    if rounding_of(size) > MOST_ROUNDING:
        warn(
            f"Terms of log p of {target!r:.200} as large as {size:.3g} cancel, and a float holds "
            f"what they leave to about {rounding_of(size):.2g}: the answer may be wrong. {WAY_OUT}",
            PrecisionWarning,
        )


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

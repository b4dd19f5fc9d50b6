"""Log p by its factors, what rounding loses of it, and the warning of that."""

import math

import numpy as np
from numpy.typing import ArrayLike

from sklsb._system.arrays import Array
from sklsb._system.warn import warn
from sklsb.exceptions import PrecisionWarning
from sklsb.targets._listing import MAX_STATES, Listing
from sklsb.targets.base import Target

_EPS = float(np.finfo(np.float64).eps)
# Rounding of log p above which a warning is given.
MOST_ROUNDING = 0.01
# Beside larger numbers, rounding loses too much of small ones: 4e-9 beside this one.
LARGE = 2.0**24
WAY_OUT = (
    "Give smaller numbers: a term of 1,000 decides as surely as one of 1e16. Or fix what such "
    "terms decide, by target.condition."
)


def rounding_of(size: float) -> float:
    """Return the rounding error of a sum whose terms have this size."""
    return _EPS * size


def warn_if_lost(target: Target, size: float) -> None:
    """Warn if terms of log p of this size cancel and rounding loses what they leave."""
    if rounding_of(size) > MOST_ROUNDING:
        warn(
            f"Terms of log p of {target!r:.200} as large as {size:.3g} cancel, and a float holds "
            f"what they leave to about {rounding_of(size):.2g}: the answer may be wrong. {WAY_OUT}",
            PrecisionWarning,
        )


def log_factors(target: Target) -> list[tuple[tuple[int, ...], Array]]:
    """Return the factors of a target, or one table of a small target that has none."""
    found = target.log_factors
    if found is None and (listing := Listing(target)).n <= MAX_STATES:
        log_p = told_log_prob(target, listing[np.arange(int(listing.n))], likely=True)
        found = [(tuple(listing.free.tolist()), log_p.reshape(listing.sizes))]
        for i in np.flatnonzero(target.n_possible < 2).tolist():
            kept = np.array(target.values[: target.cardinalities[i]]) == listing.one[i]
            found.append(((i,), np.where(kept, 0.0, -np.inf)))
    if found is None:
        raise TypeError(
            f"{target!r:.200} is not made of factors, from which exact answers are computed, and "
            f"has more than the {MAX_STATES} states that are enumerated. Ising, Potts and "
            "MarkovNetwork are, with or without evidence; a class of your own can provide them by "
            "the property log_factors, a function by terms=True. Else use a sampler."
        )
    factors = []
    for f, (scope, given) in enumerate(found):
        table = np.asarray(given, dtype=np.float64)
        shape = tuple(target.cardinalities[list(scope)].tolist()) if scope else ()
        if table.shape != shape or len(set(scope)) < len(scope):
            raise ValueError(
                f"log_factors[{f}] has the scope {tuple(scope)} and a table of shape "
                f"{table.shape}; name each site once, and give a table of shape {shape}."
            )
        if not np.max(table) < np.inf:  # NaN fails too
            raise ValueError(f"log_factors[{f}] has an entry that is NaN or inf; give logarithms.")
        factors.append((tuple(scope), table))
    return factors


def without_top(table: Array) -> tuple[Array, float]:
    """Shift a table to a maximum of 0, if its largest entry is large; return it and the shift.

    So likely entries keep their digits.
    """
    top = float(table.max())
    return (table - top, top) if LARGE < abs(top) < math.inf else (table, 0.0)


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

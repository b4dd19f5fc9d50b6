"""What checks expect, and by how much numbers may round."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sklsb import exact
from sklsb.targets.base import Target

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


def expect(condition: Any, message: str) -> None:
    if not np.all(condition):
        raise AssertionError(message)


def expect_near(found: Any, expected: Any, gate: Any, what: str) -> None:
    """Raise if abs(found - expected) > gate anywhere; NaN is never near."""
    found, expected, gate = np.broadcast_arrays(*map(np.asarray, (found, expected, gate)))
    with np.errstate(invalid="ignore"):
        difference = np.subtract(found, expected, dtype=np.float64)
        bad = ~((np.abs(difference) <= gate) | (found == expected))
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise AssertionError(
            f"{what}: expected {expected[at]!r} within {gate[at]:.2g} and found {found[at]!r} at "
            f"{at} ({int(bad.sum())} of {bad.size} entries differ)."
        )


def expect_equal(found: Any, expected: Any, what: str) -> None:
    shape, wanted = np.shape(found), np.shape(expected)
    expect(shape == wanted, f"{what}: expected shape {wanted} and found {shape}.")
    expect_near(found, expected, 0.0, what)


def size(log_values: Array) -> Array:
    """Absolute values, of which rounding errors are a part; minus infinity has none."""
    return np.where(np.isneginf(log_values), 0.0, np.abs(log_values))


def cancelled(target: Target) -> float:
    """Return the rounding error that the target admits to, of all log-ratios together."""
    return float(np.sum(target.rounding))


def rounding(target: Target, log_p: Array, ratios: Array) -> float:
    """Gate for log p, of the size of the terms that it may be a sum of."""
    largest = float((size(log_p) + size(ratios).sum(axis=-1)).max(initial=0.0))
    return 64 * EPS * largest + cancelled(target)


def log_probabilities(target: Target) -> Array:
    log_p = target.log_prob(exact.states(target))
    return log_p - logsumexp(log_p)


def sum_gate(n: int) -> float:
    """Return by how much n probabilities exp(log T), whose sum is one, may miss it by rounding.

    log T rounds by eps abs(log T), hence T by eps T abs(log T), which adds up to eps log n at most:
    that is the largest entropy. log Z, which all have in common, and sums made in pairs round by
    half of it each; exp, expm1, a product and a quotient by 4 eps, whatever n.
    """
    return EPS * (4 + 2 * math.log(max(n, 1)))

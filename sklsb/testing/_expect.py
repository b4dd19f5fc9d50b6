"""Expectations of checks, and bounds on rounding."""

from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import chi2

from sklsb import exact
from sklsb._system.arrays import Array
from sklsb.storage.fingerprint import magnitudes
from sklsb.targets.base import Target

EPS = float(np.finfo(np.float64).eps)
FEWEST = 20.0  # to be counted alone


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


def rounding(target: Target, log_p: Array, ratios: Array) -> float:
    """Return a gate for log p, in proportion to the terms that it may be a sum of.

    Beyond that, the rounding error that the target declares, over all log-ratios.
    """
    largest = float((magnitudes(log_p) + magnitudes(ratios).sum(axis=-1)).max(initial=0.0))
    return 64 * EPS * largest + float(np.sum(target.rounding))


def log_probabilities(target: Target) -> Array:
    log_p = target.log_prob(exact.states(target))
    return log_p - logsumexp(log_p)


def expect_invariant(
    matrix: Array, target: Target, reversible: bool, gate: float, which: str
) -> None:
    """Raise unless a transition matrix leaves the target invariant, reversibly if asked for."""
    p = np.exp(log_probabilities(target))
    expect_near(matrix.sum(axis=1), 1.0, gate, f"rows of the {which} matrix must sum to 1")
    what = f"stationarity of the {which}, sum of p(x) P(x, x') at x'"
    expect_near(p @ matrix, p, gate, what)
    if reversible:
        flow = p[:, None] * matrix
        what = f"detailed balance of the {which}, p(x) P(x, x') at (x, x')"
        expect_near(flow, flow.T, gate, what)


def chance_of_counts(found: Any, means: Array, variances: Array | None = None) -> float:
    """Return the chance that counts are at least as far from their means, by chi-square.

    Rare ones are counted together; variances are the means, if not given.
    """
    often = means >= FEWEST
    means, seen, spread = (
        np.append(part[often], part[~often].sum())
        for part in (means, found, means if variances is None else variances)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(spread > 0.0, np.square(seen - means) / spread, 0.0)
    return float(chi2.sf(terms.sum(), max(1, often.sum())))

"""Log weights of moves: a balancing function, and factors by site."""

import numpy as np
from numpy.typing import ArrayLike

from sklsb._kernels.rules.balanced import PLAIN, Balanced
from sklsb._kernels.rules.jump import Jump
from sklsb._system.arrays import Array
from sklsb.balancing.functions import BalancingFunction, Tabulated
from sklsb.targets.base import Target

# Factors by site are within this of each other's geometric mean, either way.
MOST_FACTOR = 100.0
# Most that factors of a user may differ by.
MOST_GIVEN = 1e6


def balanced(
    target: Target,
    function: BalancingFunction,
    lazy: float = 0.0,
    factors: Array | None = None,
) -> Balanced:
    """Return the rule of locally balanced steps; ``factors`` are by site."""
    log_factor = PLAIN if factors is None else np.log(factors)[target.offers.site_of_moves]
    return Balanced(function.table(), lazy, log_factor)


def check_factors(factors: ArrayLike, target: Target) -> Array:
    """Return the factors of an array given by the user, by site."""
    found = np.asarray(factors)
    if found.dtype.kind not in "iuf" or found.shape not in ((target.n_sites,), target.shape):
        raise ValueError(
            f"factors has dtype {found.dtype} and shape {found.shape}; give one positive number "
            f"per variable, of shape {target.shape}."
        )
    found = found.astype(np.float64).reshape(-1)
    wrong = ~(np.isfinite(found) & (found > 0.0))
    if wrong.any():
        k = int(wrong.argmax())
        raise ValueError(f"factors[{k}] is {found[k]}; factors must be positive and finite.")
    if found.size and found.max() > MOST_GIVEN * found.min():
        raise ValueError(
            f"factors range from {found.min():g} to {found.max():g}; the smallest ones would "
            f"freeze their variables. Give factors that differ by at most {MOST_GIVEN:g}."
        )
    return found


def log_weights(rule: Balanced | Jump, ratios: Array) -> Array:
    """Return the log weights of all moves from some states, (n, n_moves), from their log-ratios."""
    finite = np.where(np.isneginf(ratios), 0.0, ratios)
    found = 0.5 * finite + Tabulated(rule.table).even_part(finite)
    if rule.log_factor.size:
        found = found + rule.log_factor
    return np.where(np.isneginf(ratios), -np.inf, found)


def log_typical_rate(rule: Balanced, ratios: Array) -> float:
    """Return the median over some states of log Z, the rate of all jumps together.

    In a mean, one state from the way to the likely ones may outweigh all others.
    """
    found = np.logaddexp.reduce(log_weights(rule, ratios), axis=1)
    found = found[np.isfinite(found)]
    return float(np.median(found)) if found.size else 0.0

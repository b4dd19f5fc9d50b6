"""Log weights of moves beyond an even function: factors by site, and functions with two sides."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklsb._kernels.rules.balanced import PLAIN, Balanced, Sides
from sklsb._kernels.rules.jump import Jump
from sklsb.balancing.functions import BalancingFunction, Tabulated
from sklsb.targets.base import States, Target

Array = NDArray[np.float64]
# Factors by site are within this of each other's geometric mean, either way.
MOST_FACTOR = 100.0
# Most that factors of a user may differ by.
MOST_GIVEN = 1e6


def site_of_moves(target: Target) -> NDArray[np.int64]:
    """Return the variable that each move changes."""
    return np.repeat(np.arange(target.n_sites), target.cardinalities - 1)


def check_sided(target: Target, function: BalancingFunction, fast: bool = False) -> None:
    """Refuse a function with two sides on variables of more than two values, and if ``fast``."""
    if function.sided and fast:
        raise ValueError(
            f"balancing is {function!r}, which weighs moves by their direction, and fast is True; "
            'the first-order path takes even functions, such as "learned" or "sqrt".'
        )
    most = int(target.cardinalities.max(initial=0))
    if function.sided and most > 2:
        site = int(target.cardinalities.argmax())
        raise ValueError(
            f"balancing is {function!r}, which weighs moves by their direction, but variable "
            f"{site} has {most} values; it is for two-valued variables. Take an even function, "
            'such as "learned" or "barker".'
        )


def sides_of(target: Target, function: BalancingFunction, factors: Array | None = None) -> Sides:
    """Return what the kernels need beside the table of a function; ``factors`` are by site."""
    site = site_of_moves(target)
    log_factor = PLAIN.log_factor if factors is None else np.log(factors)[site]
    if not function.sided:
        return Sides(log_factor)
    check_sided(target, function)
    return Sides(log_factor, site, int(target.values[0]))


def balanced(
    target: Target,
    function: BalancingFunction,
    lazy: float = 0.0,
    factors: Array | None = None,
) -> Balanced:
    """Return the rule of locally balanced steps."""
    return Balanced(function.table(), lazy, sides_of(target, function, factors))


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


def log_weights(rule: "Balanced | Jump", target: Target, states: States, ratios: Array) -> Array:
    """Return the log weights of all moves from some states, (n, n_moves), from their log-ratios."""
    sided = rule.sides.site.size > 0
    function = Tabulated(rule.table, sided)
    finite = np.where(np.isneginf(ratios), 0.0, ratios)
    log_odds = finite
    if sided:
        goes_up = states[:, rule.sides.site] == rule.sides.low
        log_odds = np.where(goes_up, finite, -finite)
    found = 0.5 * finite + function.side_part(log_odds)
    if rule.sides.log_factor.size:
        found = found + rule.sides.log_factor
    return np.where(np.isneginf(ratios), -np.inf, found)


def log_typical_rate(rule: Balanced, target: Target, states: States, ratios: Array) -> float:
    """Return the median over some states of log Z, the rate of all jumps together.

    In a mean, one state from the way to the likely ones may outweigh all others.
    """
    found = np.logaddexp.reduce(log_weights(rule, target, states, ratios), axis=1)
    found = found[np.isfinite(found)]
    return float(np.median(found)) if found.size else 0.0

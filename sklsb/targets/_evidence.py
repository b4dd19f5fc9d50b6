"""Evidence: what was observed of variables, by the names of variables and values."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sklsb.targets._names import Names, is_flag, is_missing, labels_of, number

Weights = Mapping[int, NDArray[np.float64]]
_MOST_NAMES = 100  # in an error


class Named(Protocol):
    """What of a target is needed to find its variables and values."""

    @property
    def n_sites(self) -> int: ...
    @property
    def names(self) -> list[Any]: ...
    @property
    def values(self) -> tuple[int, ...]: ...
    @property
    def cardinalities(self) -> NDArray[np.int64]: ...
    @property
    def state_names(self) -> Sequence[tuple[Any, ...]] | None: ...
    def label(self, site: int) -> Any: ...


def shown(values: tuple[int, ...]) -> str:
    """Return values as errors show them."""
    return str(values) if len(values) < 10 else f"{values[0]} to {values[-1]}"


def sites_by_name(target: Named) -> Names:
    """Return the names of all variables; places are sites."""
    return Names(target.names)


def site_called(target: Named, sites: Names, variable: Any, what: str) -> int:
    """Return the site of a variable; ``what`` begins the error message."""
    site = sites.find(variable)
    counts = isinstance(variable, int | np.integer) and not is_flag(variable)
    # Where a name is a number, a number is no position.
    if site is None and counts and 0 <= variable < target.n_sites and not sites.numbers:
        site = int(variable)
    if site is None:
        names = sites.names
        words = [name for name in names if isinstance(name, str)]
        near = difflib.get_close_matches(str(variable), words)
        raise ValueError(
            f"{what} {variable!r}; the target has {target.n_sites} variables, with names like "
            f"{near or names[:3]}."
        )
    return site


def names_of_values(target: Named, site: int) -> tuple[Any, ...]:
    """Return what the values of a variable are called, which are numbers if they have no names."""
    if target.state_names is None:
        return target.values[: int(target.cardinalities[site])]
    return target.state_names[site]


@lru_cache
def _names_of_values(names: tuple[Any, ...]) -> Names:
    return Names(names)


def value_called(target: Named, site: int, value: Any, what: str) -> int:
    """Return a value of a variable, given by its name, which is its number if it has no other."""
    if is_missing(value):
        raise ValueError(
            f"{what} is {value!r}, which is no value; leave out variables that were not observed."
        )
    names = names_of_values(target, site)
    known = _names_of_values(names)
    place = known.find(value)
    if place is None and is_flag(value) and {*known.numbers} <= {-1, 0, 1}:
        place = known.find(int(value))
    if place is not None:
        return target.values[place]
    if target.state_names is None:
        raise ValueError(
            f"{what} is {value!r}; this variable takes one of the values {shown(names)}."
        )
    is_number = number(value) is not None
    near = [] if is_number else difflib.get_close_matches(str(value), [*map(str, names)], 1)
    more = "; positions are not accepted" if is_number else ""
    if isinstance(value, list | tuple | np.ndarray):
        more = ", or likelihoods by name, {name: number, ...}"
    raise ValueError(
        f"{what} is {value!r}; this variable takes one of {len(names)} values, with the names "
        f"{list(names[:_MOST_NAMES])}{' and others' if len(names) > _MOST_NAMES else ''}. "
        + (f"Did you mean {near[0]!r}?" if near else f"Give one of these names{more}.")
    )


def value_name(target: Named, site: int, value: int) -> Any:
    """Return the name of a value, which is its number if it has no other."""
    return names_of_values(target, site)[target.values.index(value)]


def site_of_each(target: Named, evidence: Any) -> dict[int, tuple[Any, Any]]:
    """Return the variable, as it was called, and what was observed of it, by site."""
    if not isinstance(evidence, Mapping):
        raise TypeError(f"evidence is {evidence!r:.200}; give a dict of variable: value.")
    by_name, found = sites_by_name(target), dict[int, tuple[Any, Any]]()
    for variable, given in evidence.items():
        site = site_called(target, by_name, variable, "evidence names the variable")
        if site in found:
            raise ValueError(
                f"evidence gives variable {target.label(site)!r} twice, as {found[site][0]!r} and "
                f"{variable!r}; keep one."
            )
        found[site] = variable, given
    return found


def is_soft(given: Any) -> bool:
    """Whether evidence of a variable are likelihoods: a mapping or a Series."""
    return isinstance(given, Mapping) or labels_of(given) is not None


def clashing(
    observed: Mapping[Any, Any], check: Callable[[Mapping[Any, Any]], Any], error: type[Exception]
) -> Mapping[Any, Any]:
    """Return what is impossible alone, or else a part that is possible without any one of it."""

    def impossible(part: Mapping[Any, Any]) -> bool:
        try:
            check(part)
        except error:
            return True
        return False

    if impossible({}):
        return {}
    alone = {v: value for v, value in observed.items() if impossible({v: value})}
    left = dict(alone or observed)
    for variable in {} if alone else observed:
        rest = {v: value for v, value in left.items() if v != variable}
        left = rest if impossible(rest) else left
    return left


def weights_of(target: Named, evidence: Any) -> dict[int, NDArray[np.float64]]:
    """Return a weight of each value of each variable observed, of shape (cardinality,)."""
    found = {}
    for site, (variable, given) in site_of_each(target, evidence).items():
        what = f"evidence[{variable!r}]"
        if is_soft(given):
            found[site] = _likelihoods(target, site, given, what)
        else:
            values = np.asarray(target.values[: int(target.cardinalities[site])])
            found[site] = (values == value_called(target, site, given, what)).astype(np.float64)
    return found


def _likelihoods(
    target: Named, site: int, given: Mapping[Any, Any], what: str
) -> NDArray[np.float64]:
    weights = np.full(int(target.cardinalities[site]), np.nan)
    for name, likelihood in given.items():
        place = np.searchsorted(target.values, value_called(target, site, name, what))
        if not np.isnan(weights[place]):
            raise ValueError(f"{what} gives the value {name!r} twice; keep one.")
        try:
            weights[place] = float(likelihood)
        except (TypeError, ValueError):
            raise TypeError(f"{what}[{name!r}] is {likelihood!r:.80}; give a number.") from None
        if not 0.0 <= weights[place] < np.inf:
            raise ValueError(
                f"{what}[{name!r}] is {likelihood!r:.80}; likelihoods are finite and not negative."
            )
    if np.isnan(weights).any():
        raise ValueError(
            f"{what} gives the likelihoods of {np.isfinite(weights).sum()} of {weights.size} "
            "values; give each value one: how likely it makes what was observed."
        )
    if not weights.any():
        raise ValueError(f"{what} is zero for all values; one of them must be possible.")
    return weights

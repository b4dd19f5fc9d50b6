"""Evidence: what was observed of variables, by the names of variables and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sklsb._system.arrays import Array, Ints
from sklsb._words import did_you_mean
from sklsb.targets._names import (
    Names,
    are_numbers,
    columns_of,
    is_flag,
    is_missing,
    labels_of,
    number,
    ordered,
    plain,
    turned,
)

Weights = Mapping[int, Array]
_MOST_NAMES = 100  # in an error


class NoStateError(ValueError):
    """No state has positive probability."""


class Named(Protocol):
    """What of a target is needed to find its variables and values."""

    @property
    def n_sites(self) -> int: ...
    @property
    def names(self) -> list[Any]: ...
    @property
    def values(self) -> tuple[int, ...]: ...
    @property
    def cardinalities(self) -> Ints: ...
    @property
    def state_names(self) -> Sequence[tuple[Any, ...]] | None: ...
    def label(self, site: int) -> Any: ...


def shown(values: tuple[int, ...]) -> str:
    """Return values as errors show them."""
    return str(values) if len(values) < 10 else f"{values[0]} to {values[-1]}"


def site_called(target: Named, sites: Names, variable: Any, what: str) -> int:
    """Return the site of a variable; ``what`` begins the error message."""
    site = sites.find(variable)
    counts = isinstance(variable, int | np.integer) and not is_flag(variable)
    # Where a name is a number, a number is no position.
    if site is None and counts and 0 <= variable < target.n_sites and not sites.numbers:
        site = int(variable)
    if site is None:
        names = sites.names
        raise ValueError(
            f"{what} {variable!r}; {did_you_mean(variable, names)}the target has {target.n_sites} "
            f"variables, with names like {names[:3]}."
        )
    return site


def names_of_values(target: Named, site: int) -> tuple[Any, ...]:
    """Return what the values of a variable are called, which are numbers if they have no names."""
    if target.state_names is None:
        return target.values[: int(target.cardinalities[site])]
    return target.state_names[site]


@lru_cache
def _names_of_values(names: tuple[Any, ...], *kinds: type) -> Names:
    return Names(names)  # by kinds, too: as keys, 1 and True and 1.0 are the same


def _place(names: tuple[Any, ...], value: Any) -> int | None:
    """Return the place of a value; True and False mean 1 and 0 where there are no other numbers."""
    known = _names_of_values(names, *map(type, names))
    place = known.find(value)
    if place is None and is_flag(value) and {*known.numbers} <= {-1, 0, 1}:
        place = known.find(int(value))
    return place


def by_values(target: Named, sites: Sequence[int], table: Any, name: str) -> Any:
    """Return a table of pandas or xarray with its labels in the order of the values of variables.

    Numbers from 0 on that are no names are positions.
    """
    named = {target.label(site): names_of_values(target, site) for site in sites}
    if any(isinstance(label, tuple) for label in labels_of(table) or ()):  # a Series of all values
        return ordered(table, [*product(*named.values())], name)
    for names, own in zip(named.values(), (labels_of(table), columns_of(table)), strict=False):
        if own is not None and ({*own} == {*names} or own != [*range(len(own))]):
            table = ordered(table, names, name)
        table = getattr(table, "T", table) if columns_of(table) is not None else table
    return turned(table, named)


def value_called(target: Named, site: int, value: Any, what: str) -> int:
    """Return a value of a variable, given by its name, which is its number if it has no other."""
    if is_missing(value):
        raise ValueError(
            f"{what} is {value!r}, which is no value; leave out variables that were not observed."
        )
    names = names_of_values(target, site)
    place = _place(names, value)
    if place is not None:
        return target.values[place]
    if target.state_names is None:
        raise ValueError(
            f"{what} is {value!r}; this variable takes one of the values {shown(names)}."
        )
    is_number = number(value) is not None
    more = "; positions are not accepted" if is_number else ""
    if isinstance(value, list | tuple | np.ndarray):
        more = ", or likelihoods by name, {name: number, ...}"
    raise ValueError(
        f"{what} is {value!r}; {did_you_mean(value, names)}this variable takes one of {len(names)} "
        f"values, with the names {list(names[:_MOST_NAMES])}"
        f"{' and others' if len(names) > _MOST_NAMES else ''}. Give one of these names{more}."
    )


def called_otherwise(target: Named, kind: type) -> str:
    """Return what a number or flag means that is the name of another value, if there is one."""
    for site, names in enumerate(target.state_names or ()):
        for place, (value, name) in enumerate(zip(target.values, names, strict=False)):
            if kind(value) == value and _place(names, kind(value)) not in (None, place):
                return f"{kind(value)} means the value {name!r} of {target.label(site)!r}"
    return ""


def value_name(target: Named, site: int, value: int) -> Any:
    """Return the name of a value, which is its number if it has no other."""
    return names_of_values(target, site)[target.values.index(value)]


def site_of_each(target: Named, evidence: Any) -> dict[int, tuple[Any, Any]]:
    """Return the variable, as it was called, and what was observed of it, by site."""
    if not is_soft(evidence) or columns_of(evidence) is not None:
        given, rows = f"{evidence!r:.80}", ""
        if columns_of(evidence) is not None:
            given, rows = (
                "a data frame",
                ", one for each row, as by to_dict('records'), or a Series",
            )
        raise TypeError(f"evidence is {given}; give a dict of variable: value{rows}.")
    by_name, found = Names(target.names), dict[int, tuple[Any, Any]]()
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
    """Whether something gives numbers or values by name: a mapping, or a Series."""
    return isinstance(given, Mapping) or labels_of(given) is not None


def states_in(target: Named, frame: Any, name: str, by_column: bool, by_value: bool) -> Any:
    """Return the rows of a data frame as an array of states.

    ``by_column``: columns are variables by name, else only if called 0, 1, ... in any order.
    ``by_value``: entries are values by name, where these have names; numbers are values, too, if no
    name is a number.
    """
    by_name, own = Names(target.names), columns_of(frame) or []
    order = [*range(len(own))]
    if by_column:
        order = [site_called(target, by_name, label, f"{name} has the column") for label in own]
        missing = [target.label(i) for i in range(target.n_sites) if i not in order]
        if missing or len(own) > target.n_sites:
            told = f"has no column {missing[0]!r}" if missing else "has a column twice"
            raise ValueError(f"{name} {told}; give one for each of {target.n_sites} variables.")
    elif {*own} == {*order}:
        order = own
    found: dict[int, NDArray[Any]] = {}
    for j, site in enumerate(order):
        column = frame.iloc[:, j]
        found[site] = np.asarray(column)
        missing = np.flatnonzero(np.asarray(column.isna())).tolist()
        if missing:
            raise ValueError(
                f"{name} has no value of variable {own[j]!r} in row "
                f"{(labels_of(frame) or missing)[missing[0]]!r}; drop such rows, or fill in what "
                "is missing."
            )
        if by_value and target.state_names is not None and len(own) == target.n_sites:
            given, names = plain(column.unique()), target.state_names[site]
            is_position = found[site].dtype.kind in "iufb" and not are_numbers(names)
            if not is_position or any(_place(names, v) is not None for v in given):
                what = f"{name}[{own[j]!r}]"
                known = {v: value_called(target, site, v, what) for v in given}
                found[site] = np.array([known[v] for v in column], dtype=np.int64)
    return np.stack([found[i] for i in sorted(found)], axis=-1) if found else np.asarray(frame)


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


def impossible(clash: Mapping[Any, Any]) -> NoStateError:
    """Return the error for observations, by name, that contradict each other or the target."""
    return NoStateError(
        f"The evidence has probability zero: {dict(clash)!r:.1000} is impossible"
        f"{' together' if len(clash) > 1 else ''}. Correct it, or give zeros of the tables a small "
        "probability."
    )


def weights_of(target: Named, evidence: Any) -> dict[int, Array]:
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


def _likelihoods(target: Named, site: int, given: Mapping[Any, Any], what: str) -> Array:
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

"""Names of variables and of their values, and the one way in which they are looked up."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Decimal refuses exponents of very many digits.
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,9})?", re.IGNORECASE)
# What Python, pandas and NumPy write for a value that is missing.
_MISSING = ("None", "nan", "NaT", "<NA>", "--")


def _text(given: Any) -> str:
    """Return what is given as a file would write it."""
    return str.__str__(given) if isinstance(given, str) else str(given)


def number(given: Any) -> Decimal | None:
    """Return the number that a name is, or None."""
    text = _text(given)
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def is_missing(given: Any) -> bool:
    """Whether a value stands for none, such as NaN or `pandas.NA`."""
    return not isinstance(given, str) and _text(given) in _MISSING


def is_flag(given: Any) -> bool:
    """Whether a value is True or False."""
    return isinstance(given, bool | np.bool_)


def plain(labels: Iterable[Any]) -> list[Any]:
    """Return labels with Python's own numbers and strings instead of NumPy's."""

    def one(label: Any) -> Any:
        if isinstance(label, tuple):
            return tuple(map(one, label))
        return label.item() if isinstance(label, np.generic) else label

    if isinstance(labels, set | frozenset):
        raise TypeError(f"{labels!r:.100} is a set, which has no order; give a list.")
    return [one(label) for label in labels]


def are_numbers(labels: Iterable[Any]) -> bool:
    """Whether labels are all integers or floats."""
    return {*map(type, labels)} <= {int, float}


def coordinate(labels: Sequence[Any]) -> NDArray[Any]:
    """Return labels as a coordinate: strings and numbers as they are, all others as text."""
    if not are_numbers(labels) and {*map(type, labels)} != {str}:
        texts = [[way(label) for label in labels] for way in (_text, repr)]
        distinct = [words for words in texts if len(set(words)) == len(words)]
        labels = [*distinct, range(len(labels))][0]
    return np.asarray(labels)


def labels_of(given: Any) -> list[Any] | None:
    """Return the labels of the rows of a Series or data frame, None for anything else."""
    return plain(given.index) if hasattr(given, "iloc") else None


def columns_of(given: Any) -> list[Any] | None:
    """Return the labels of the columns of a data frame, None for anything else."""
    return plain(given.columns) if hasattr(given, "columns") else None


def in_pandas(given: Any) -> Any:
    """Return an array of xarray with labels on its one or two axes as pandas has it."""
    labelled = hasattr(given, "to_pandas") and hasattr(given, "dims") and len(given.dims) in (1, 2)
    return given.to_pandas() if labelled and {*given.dims} <= {*given.coords} else given


def ordered(given: Any, labels: Sequence[Any], name: str) -> Any:
    """Return a Series or data frame in the order of labels, anything else as it is."""
    own = labels_of(given)
    if own is None:
        return given
    place, known = {label: i for i, label in enumerate(own)}, {*labels}
    if len(place) < len(own) or place.keys() != known:
        parts = {
            "lacks": [label for label in labels if label not in place],
            "has also": [label for label in own if label not in known],
            "repeats": [label for i, label in enumerate(own) if place[label] != i],
        }
        raise ValueError(
            f"the index of {name} {', '.join(f'{k} {v!r:.100}' for k, v in parts.items() if v)}. "
            f"Give each label once, or {name}.to_numpy() if the order is right."
        )
    return given.iloc[[place[label] for label in labels]]


def by_label(given: Any, labels: Sequence[Any], name: str) -> Any:
    """Return numbers in the order of labels; where these are others, 0, 1, ... are positions."""
    given, places = in_pandas(given), [*range(len(labels))]
    by_place = labels_of(given) == places and {*labels} != {*places}
    return given if by_place else ordered(given, labels, name)


def turned(given: Any, coords: Mapping[str, Any]) -> Any:
    """Return an array of xarray with its axes and labels in the order of coords.

    Its last axes are meant if they are called otherwise; then only labels in another order count.
    Numbers by position, there or here, stay as they are.
    """
    if not hasattr(given, "coords") or given.ndim < len(coords):
        return given
    called = {*coords} <= {*given.dims}
    dims = coords if called else given.dims[given.ndim - len(coords) :]
    for dim, labels in zip(dims, coords.values(), strict=True):
        own, wanted = plain(given[dim].values), plain(labels)
        if own != wanted and len(own) == len(wanted) and {*own} == {*wanted}:
            given = given.sel({dim: wanted})
        elif called and own != wanted and [*range(len(own))] not in (own, wanted):
            raise ValueError(
                f"an array has the labels {own!r:.100} on its axis {dim!r}, which are called "
                f"{wanted!r:.100} here. Give these, or .values if the order is right."
            )
    return given.transpose(..., *coords) if called else given


def aligned(
    given: Any, labels: list[Any] | None, n: int, name: str
) -> tuple[Any, list[Any] | None]:
    """Return numbers of n variables in the order of labels, which are their own if there are none.

    Whole numbers from 0 on are positions, not labels.
    """
    given = in_pandas(given)
    if isinstance(given, Mapping):
        raise TypeError(
            f"{name} is a mapping, {given!r:.100}. Give a Series or data frame with its keys as "
            f"index, such as pandas.Series({name}), or an array in the order of the variables."
        )
    if len(columns_of(given) or ()) == 1:
        given = given.iloc[:, 0]
    own = labels_of(given)
    if labels is None and own is not None and {*own} != {*range(n)}:
        labels = own
    return ordered(given, labels or range(n), name), labels


class Names:
    """The names of variables, or of the values of one, by which they are found.

    A name is found by an equal label, by its text, or by an equal number, in this order: "3", 3,
    ``np.int64(3)`` and 3.0 all mean the name "3", but the string "3.0" does not. True and False
    mean names such as "true" and "False". What could be several names is found by none.
    """

    def __init__(self, names: Iterable[Any]):
        self.names = list(names)
        # As keys of a dict, 1 and True are the same.
        self._equal = {(is_flag(name), name): i for i, name in enumerate(self.names)}

    def find(self, given: Any) -> int | None:
        """Return the place of a name, or None."""
        if is_missing(given):
            return None
        if getattr(given, "ndim", None) == 0 and not isinstance(given, np.generic):
            return self.find(given.item())
        try:
            place = self._equal.get((is_flag(given), given))
        except TypeError:  # no label, such as a list
            return None
        if place is not None:
            return place
        found = self._by_text.get(_text(given), [])
        if not found and is_flag(given):
            found = self._by_lower.get(_text(given).lower(), [])
        if not found and not isinstance(given, str):
            as_number = number(given)
            found = [] if as_number is None else self.numbers.get(as_number, [])
        return found[0] if len(found) == 1 else None

    def _by(self, key: Callable[[Any], Any]) -> dict[Any, list[int]]:
        places: dict[Any, list[int]] = {}
        for i, name in enumerate(self.names):
            places.setdefault(key(name), []).append(i)
        places.pop(None, None)  # names that are no numbers
        return places

    @cached_property
    def _by_text(self) -> dict[str, list[int]]:
        return self._by(_text)

    @cached_property
    def _by_lower(self) -> dict[str, list[int]]:
        return self._by(lambda name: _text(name).lower())

    @cached_property
    def numbers(self) -> dict[Decimal, list[int]]:
        """Places of the names that are numbers."""
        return self._by(number)

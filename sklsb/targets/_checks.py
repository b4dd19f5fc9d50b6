"""What targets check of their arguments, and of the memory that they take."""

import numbers
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_VALUES = 1 << 15  # states are int16 at most


def as_array(value: ArrayLike, name: str) -> NDArray[Any]:
    """Return a value as an array, or say which argument cannot be one."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} is not an array of numbers: {error}") from error


def real_array(value: ArrayLike, name: str) -> NDArray[Any]:
    """Return a value as an array of real numbers, or say which argument is none."""
    given = as_array(value, name)
    if given.dtype.kind not in "iufb":
        raise TypeError(f"{name} has dtype {given.dtype}; give real numbers.")
    return given


def refuse(bad: NDArray[np.bool_], values: NDArray[np.float64], name: str, rule: str) -> None:
    """Raise if any entry is bad, naming the first."""
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name}[{', '.join(map(str, where))}] is {values[where]}; {rule}.")


def integer(value: Any, name: str, smallest: int, largest: int) -> int:
    """Return an integer of a range, or say what was given."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} is {value!r:.100}; give an integer of at least {smallest}.")
    if not smallest <= int(value) <= largest:
        raise ValueError(f"{name} is {value}; it must be from {smallest} to {largest}.")
    return int(value)


def positive(value: Any, name: str, largest: float = np.inf) -> float:
    """Return a finite positive number, or say what was given."""
    if not (isinstance(value, numbers.Real) and 0.0 < float(value) < np.inf):
        raise ValueError(f"{name} is {value!r}; it must be a positive number.")
    if float(value) > largest:
        raise ValueError(f"{name} is {value!r}; it must be at most {largest:g}.")
    return float(value)


def are_plain(labels: Sequence[Any]) -> bool:
    """Whether labels may be a coordinate: all strings, or all integers."""
    kinds = {type(label) for label in labels}
    return kinds <= {str} or kinds <= {int}


def check_touched(n_bytes: int) -> None:
    """Refuse a list of touched moves that is larger than the memory of the machine."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if n_bytes > available:
        raise MemoryError(
            f"The list of the moves that each move touches would take {n_bytes / 2**30:,.0f} GiB, "
            f"and this machine has {available / 2**30:,.0f} GiB. It grows with the square of the "
            "number of values of variables that depend on each other: give them fewer."
        )


def all_touched(n_moves: int) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """List the moves that each move touches, where each touches all."""
    check_touched(4 * n_moves**2)
    start = np.arange(n_moves + 1, dtype=np.uint64) * np.uint64(n_moves)
    return start, np.tile(np.arange(n_moves, dtype=np.uint32), n_moves)

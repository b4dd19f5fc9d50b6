"""Variables and values by what users call them."""

import difflib
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sklsb.targets._checks import are_plain


class Named(Protocol):
    """A target as errors, evidence and notebooks speak of it."""

    @property
    def n_sites(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dims(self) -> Sequence[str]: ...
    @property
    def coords(self) -> Mapping[str, Any]: ...
    @property
    def values(self) -> tuple[int, ...]: ...
    @property
    def cardinalities(self) -> NDArray[np.int64]: ...
    @property
    def state_names(self) -> Sequence[Sequence[str]] | None: ...
    @property
    def observed_sites(self) -> NDArray[np.int64]: ...


def shown(values: tuple[int, ...]) -> str:
    """Return values as errors list them."""
    return str(values) if len(values) < 10 else f"{values[0]} to {values[-1]}"


def sites_by_name(target: Named) -> dict[Any, int]:
    """Sites by all that evidence may call them; the last n_sites names are the usual ones."""
    names: dict[Any, int] = {site: site for site in range(target.n_sites)}
    if len(target.shape) != 1:
        return names | {index: site for site, index in enumerate(np.ndindex(*target.shape))}
    labels = np.asarray(target.coords[target.dims[0]])
    if labels.dtype.kind in "iu":  # 3 is the variable called 3, not the fourth
        names = {}
    return names | {label: site for site, label in enumerate(labels.tolist())}


def site_called(target: Named, sites: dict[Any, int], variable: Any, what: str) -> int:
    """Return the site of a variable, or say that there is none; ``what`` begins the sentence."""
    site = None if isinstance(variable, bool) else sites.get(variable)
    if site is None:
        names = list(sites)[-target.n_sites :]
        words = [name for name in names if isinstance(name, str)]
        near = difflib.get_close_matches(str(variable), words)
        raise ValueError(
            f"{what} {variable!r}; the target has {target.n_sites} variables, with names like "
            f"{near or names[:3]}."
        )
    return site


def value_called(target: Named, site: int, value: Any, what: str) -> int:
    """Return a value of a variable by its number or name, or say what is wrong with it."""
    if target.state_names is not None and isinstance(value, str | bool | np.bool_):
        names = target.state_names[site]
        if isinstance(value, str) and value in names:
            return target.values[names.index(value)]
        # True may be meant as a name, and is the number 1: one of them would be wrong.
        near = difflib.get_close_matches(str(value), names) or names[:10]
        raise ValueError(
            f"{what} is {value!r}; this variable takes one of {len(names)} values with names like "
            f"{list(near)}, or their numbers from 0 to {len(names) - 1}."
        )
    allowed = target.values[: int(target.cardinalities[site])]
    if np.ndim(value) or value not in allowed:
        raise ValueError(
            f"{what} is {value!r}; this variable takes one of the values {shown(allowed)}."
        )
    return int(value)


def check_names(names: Sequence[str] | Sequence[int] | None, n_sites: int) -> list[Any] | None:
    """Return the names of all variables, or say what is wrong with them."""
    if names is None:
        return None
    given = list(names)
    if not are_plain(given):
        raise TypeError(f"names is {given!r:.80}; give strings only, or integers only.")
    if len(given) != n_sites or len(set(given)) < n_sites:
        raise ValueError(
            f"names has {len(given)} entries, {len(set(given))} of them distinct; give one name "
            f"for each of the {n_sites} variables."
        )
    return given


def check_shape(
    shape: Sequence[int] | None, dims: Sequence[str] | None, n_sites: int
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the shape of the array of sites and the names of its axes, or say what is wrong."""
    given = (n_sites,) if shape is None else tuple(shape)
    if not all(isinstance(size, numbers.Integral) for size in given):
        raise TypeError(f"shape is {shape!r}; give integers.")
    if math.prod(given) != n_sites or not given or min(given) < 0:
        raise ValueError(f"shape is {shape!r}; its product must be n_sites, {n_sites}.")
    if dims is None and len(given) > 2:
        raise ValueError(f"shape is {shape!r}; give dims, a name for each of its axes.")
    found = (("site",), ("row", "col"))[len(given) - 1] if dims is None else dims
    if isinstance(found, str) or not all(isinstance(name, str) for name in found):
        raise TypeError(f"dims is {dims!r}; give a tuple of strings.")
    taken = {"chain", "draw", "state", "x", "lp"} & set(found)
    if len(found) != len(given) or len(set(found)) < len(found) or taken:
        raise ValueError(
            f"dims is {dims!r}; give a name for each axis of the shape {given}, all different, and "
            "none of chain, draw, state, x and lp."
        )
    return tuple(int(size) for size in given), tuple(found)

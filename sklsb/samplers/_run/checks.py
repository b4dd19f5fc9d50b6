"""Checks of parameters that samplers share."""

from typing import Any

import numpy as np

from sklsb._system.memory import check_fits
from sklsb.targets._checks import whole
from sklsb.targets.base import Target

_LARGEST_COUNT = 1 << 53  # kernels count in 64 bits


def check_count(value: Any, name: str, smallest: int) -> int:
    """Return an integer of at least ``smallest`` that kernels can count to, or raise."""
    if whole(value, name, smallest) < smallest:
        raise ValueError(f"{name} is {value}; it must be at least {smallest}.")
    if int(value) > _LARGEST_COUNT:
        raise ValueError(f"{name} is {value}; it must be at most {_LARGEST_COUNT}.")
    return int(value)


def check_n_chains(value: Any, target: Target) -> int:
    """Return a number of chains whose states fit in memory, or raise."""
    n_chains = check_count(value, "n_chains", 1)
    check_fits(
        n_chains * (target.n_sites * target.dtype.itemsize + 64),  # and what is counted
        f"n_chains={n_chains} with {target.n_sites} variables",
        "Give fewer chains.",
    )
    return n_chains


def check_thin(thin: Any) -> int | str:
    """Return transitions per draw, "sweep" or "auto", or raise."""
    if not isinstance(thin, str):
        return check_count(thin, "thin", 1)
    if thin not in ("sweep", "auto"):
        raise ValueError(f'thin is {thin!r}; give a number of transitions, "sweep" or "auto".')
    return thin


def check_log2_size(value: Any, name: str, most: int, target: Target) -> None:
    """Raise unless this is "auto", None, or the log2 of a size of tables that is allowed."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return
    if isinstance(value, str):
        raise ValueError(
            f'{name} is {value!r}; give "auto", None, or the logarithm to base 2 of the entries '
            "that a table may have."
        )
    if check_count(value, name, 1) > most:
        raise ValueError(
            f"{name} is {value}: a table of 2**{value} entries takes 2**{value + 3} bytes, and "
            f"2**{most + 3} are allowed. Give at most {most}."
        )
    if not target.offers.factors:
        raise TypeError(
            f"{name} is {value!r}, and {target!r:.200} is not made of factors, which tables are "
            "made from. Ising, Potts and MarkovNetwork have them; a class of your own can offer "
            f'them by the property log_factors. Set {name}="auto" or None.'
        )


def check_bool(value: Any, name: str) -> None:
    """Raise unless this is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} is {value!r}; give True or False.")

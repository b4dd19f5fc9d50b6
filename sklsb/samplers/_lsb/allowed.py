"""Checks of the parameters that say how `LSBSampler` may sample: jumps and factors."""

from typing import Any

import numpy as np

from sklsb.balancing.weights import check_factors
from sklsb.targets.base import Target
from sklsb.trials.candidates import Allowed


def allowed_by(params: Any, target: Target) -> Allowed:
    """Return what ``rejection_free`` and ``factors`` allow, or raise."""
    must_jump = _must_jump(params)
    factors = _checked_factors(params.factors, target)
    if must_jump:
        _refuse_fast("rejection_free", params)
    if factors is not None and not (isinstance(factors, str) and factors == "auto"):
        _refuse_fast("factors", params)
    if must_jump and params.lazy:
        raise ValueError(
            f"rejection_free is True and lazy is {params.lazy}; the jump process is never "
            "periodic: set lazy=0."
        )
    auto = isinstance(params.rejection_free, str)
    may_jump = (auto or must_jump) and not (params.fast or params.lazy)
    return Allowed(may_jump, factors, not must_jump)


def _must_jump(params: Any) -> bool:
    given = params.rejection_free
    if not (isinstance(given, bool | np.bool_) or (isinstance(given, str) and given == "auto")):
        raise ValueError(f'rejection_free is {given!r}; it must be True, False or "auto".')
    return not isinstance(given, str) and bool(given)


def _checked_factors(given: Any, target: Target) -> Any:
    if isinstance(given, str) and given not in ("auto", "site"):
        raise ValueError(
            f'factors is {given!r}; it must be "auto", "site", None, or an array of one positive '
            "number per variable."
        )
    return given if given is None or isinstance(given, str) else check_factors(given, target)


def _refuse_fast(name: str, params: Any) -> None:
    if params.fast:
        raise ValueError(
            f"{name} is {getattr(params, name)!r:.100} but fast is True; only exact log-ratios, "
            "fast=False, go with it."
        )

"""Checks of the parameters that say how `LSBSampler` may sample: jumps and factors."""

from typing import Any

import numpy as np

from sklsb.balancing.candidates import Allowed
from sklsb.balancing.weights import check_factors
from sklsb.targets.base import Target


def allowed_by(sampler: Any, target: Target) -> Allowed:
    """Return what ``rejection_free`` and ``factors`` allow, or raise."""
    must_jump = _must_jump(sampler)
    factors = _checked_factors(sampler.factors, target)
    if must_jump:
        _refuse_fast("rejection_free", sampler)
    if factors is not None and not (isinstance(factors, str) and factors == "auto"):
        _refuse_fast("factors", sampler)
    if must_jump and sampler.lazy:
        raise ValueError(
            f"rejection_free is True and lazy is {sampler.lazy}; the jump process is never "
            "periodic: set lazy=0."
        )
    auto = isinstance(sampler.rejection_free, str)
    may_jump = (auto or must_jump) and not (sampler.fast or sampler.lazy)
    return Allowed.by(may_jump, factors, steps=not must_jump)


def _must_jump(sampler: Any) -> bool:
    given = sampler.rejection_free
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


def _refuse_fast(name: str, sampler: Any) -> None:
    if sampler.fast:
        raise ValueError(
            f"{name} is {getattr(sampler, name)!r:.100} but fast is True; only exact log-ratios, "
            "fast=False, go with it."
        )

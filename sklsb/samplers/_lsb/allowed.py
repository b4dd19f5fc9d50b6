"""Checks of the parameters that say how `LSBSampler` may sample: jumps and factors."""

from typing import Any

import numpy as np

from sklsb.balancing.weights import check_factors
from sklsb.targets.base import Target
from sklsb.trials.candidates import Allowed


def allowed_by(params: Any, target: Target) -> Allowed:
    """Return what ``rejection_free`` and ``factors`` allow, or raise."""
    jumps, factors = params.rejection_free, params.factors
    if not (isinstance(jumps, bool | np.bool_) or _is_auto(jumps)):
        raise ValueError(f'rejection_free is {jumps!r}; it must be True, False or "auto".')
    if isinstance(factors, str) and factors not in ("auto", "site"):
        raise ValueError(
            f'factors is {factors!r}; it must be "auto", "site", None, or an array of one positive '
            "number per variable."
        )
    if not (factors is None or isinstance(factors, str)):
        factors = check_factors(factors, target)
    must_jump = not _is_auto(jumps) and bool(jumps)
    if params.fast and (must_jump or not (factors is None or _is_auto(factors))):
        given = "rejection_free is True" if must_jump else f"factors is {params.factors!r:.100}"
        raise ValueError(
            f"{given} but fast is True; only exact log-ratios, fast=False, go with it."
        )
    if must_jump and params.lazy:
        raise ValueError(
            f"rejection_free is True and lazy is {params.lazy}; the jump process is never "
            "periodic: set lazy=0."
        )
    may_jump = (must_jump or _is_auto(jumps)) and not (params.fast or params.lazy)
    return Allowed(may_jump, factors, not must_jump)


def _is_auto(given: Any) -> bool:
    return isinstance(given, str) and given == "auto"

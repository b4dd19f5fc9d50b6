"""What rounding loses of log p, and the warning of it."""

import numpy as np

from sklsb._system.warn import warn
from sklsb.exceptions import PrecisionWarning
from sklsb.targets.base import Target

_EPS = float(np.finfo(np.float64).eps)
# Rounding of log p above which a warning is given.
MOST_ROUNDING = 0.01
WAY_OUT = (
    "Give smaller numbers: a term of 1,000 decides as surely as one of 1e16. Or fix what such "
    "terms decide, by target.condition."
)


def rounding_of(size: float) -> float:
    """Return the rounding error of a sum whose terms have this size."""
    return _EPS * size


def warn_if_lost(target: Target, size: float) -> None:
    """Warn if terms of log p of this size cancel and rounding loses what they leave."""
    if rounding_of(size) > MOST_ROUNDING:
        warn(
            f"Terms of log p of {target!r:.200} as large as {size:.3g} cancel, and a float holds "
            f"what they leave to about {rounding_of(size):.2g}: the answer may be wrong. {WAY_OUT}",
            PrecisionWarning,
        )

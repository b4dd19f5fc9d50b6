"""A target at another temperature, in the kernels."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements
from sklsb._kernels.contract import log_prob, log_ratio
from sklsb._kernels.targets.inner import passing_on


@passing_on
class TemperedView(NamedTuple):
    """The view of a target with log p multiplied by beta > 0."""

    inner: Any
    beta: float
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]


@implements(log_ratio, TemperedView)
def _log_ratio(view, chain, move):
    return view.beta * log_ratio(view.inner, chain, move)


@implements(log_prob, TemperedView)
def _log_prob(view, chain):
    return view.beta * log_prob(view.inner, chain)

"""Evidence in the kernels."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements
from sklsb._kernels.contract import hidden_activation, log_prob, log_ratio
from sklsb._kernels.targets.inner import passing_on


@passing_on
class ConditionedView(NamedTuple):
    """The view of a target with observed variables, whose moves are impossible."""

    inner: Any
    observed: NDArray[np.bool_]  # of each move
    touched_start: NDArray[np.uint64]
    touched: NDArray[np.uint32]


@implements(log_ratio, ConditionedView)
def _log_ratio(view, chain, move):
    return -np.inf if view.observed[move] else log_ratio(view.inner, chain, move)


@implements(log_prob, ConditionedView)
def _log_prob(view, chain):
    return log_prob(view.inner, chain)


@implements(hidden_activation, ConditionedView)
def _hidden_activation(view, chain, j):
    return hidden_activation(view.inner, chain, j)

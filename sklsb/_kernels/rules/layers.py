"""Block Gibbs sampling of two layers: all hidden units given the visible ones, and back.

On the visible units alone, transitions are reversible.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements
from sklsb._kernels.contract import hidden_activation, init_cache, row_of, step, visible_field
from sklsb._kernels.facts import Facts
from sklsb._kernels.numeric import exp


class Fields(NamedTuple):
    """Memory for the fields of the hidden units on the visible ones."""

    field: NDArray[np.float64]


@implements(row_of, Fields)
def _row_of(part, c):
    return Fields(part.field[c])


NEEDS = {"layers": "two layers of units"}


class Layers(NamedTuple):
    """The rule: all hidden units given the visible ones, then all visible units given these."""

    weight: NDArray[np.float64]  # (n_hidden, n_visible)
    visible_bias: NDArray[np.float64]
    free: NDArray[np.bool_]  # unobserved visible units

    @property
    def facts(self) -> Facts:
        return Facts(
            n_uniforms=self.weight.shape[0] + self.visible_bias.size,
            transitions_per_sweep=1,
            evaluation="unit that was drawn",
            needs=NEEDS,
        )

    def new_part(self, target: Any, n_chains: int) -> Fields:
        return Fields(np.empty((n_chains, self.visible_bias.size)))


@implements(step, Layers)
def _sweep(view, rule, chain, u):
    """U = (to draw each hidden unit, to draw each visible unit)."""
    m, n = rule.weight.shape
    field = chain.part.field
    for i in range(n):
        field[i] = rule.visible_bias[i]
    for j in range(m):
        if u[j] * (1.0 + exp(-hidden_activation(view, chain, j))) < 1.0:
            for i in range(n):
                field[i] += rule.weight[j, i]
    for i in range(n):
        field[i] = 1.0 / (1.0 + exp(-visible_field(view, i, field[i])))
    for i in range(n):
        on = u[m + i] < field[i]
        if rule.free[i] and on != (chain.x[i] > 0):
            chain.x[i] = np.int64(on)
            chain.moved[i] = True
        chain.evaluations[0] += np.int64(rule.free[i])
    init_cache(view, chain)
    chain.evaluations[0] += m
    return np.nan

r"""The jump process of the locally balanced weights: every move that is proposed is made.

A move m is made at the rate w_m(x), the weight of `Balanced`. Since p(x) w_m(x) is symmetric in the
two states, the process leaves p invariant and is reversible, without any acceptance: it stays at x
for an exponential time of mean 1 / Z(x). A transition of `Jump` lets it run for a fixed time, so
draws at equal distances are distributed by p.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.contract import prepare, rebuild, step
from sklsb._kernels.facts import Facts
from sklsb._kernels.numeric import Table, exp, split_mix
from sklsb._kernels.rules.balanced import (
    LARGEST_TOTAL,
    PLAIN,
    SMALLEST_TOTAL,
    Weights,
    new_weights,
    prepare_weights,
    propose,
    rebuild_weights,
    weigh_all,
)
from sklsb._kernels.tree import select, total

_SMALLEST = 2.0**-53
# Jumps after which a transition is cut short: control must come back to Python.
MOST_JUMPS = 1 << 13


class Jump(NamedTuple):
    """The rule: run the jump process for the time exp(log_time).

    A few jumps in a transition take less time each than one.
    """

    table: Table
    log_time: float = 0.0
    log_factor: NDArray[np.float64] = PLAIN
    sweep: int = 0  # transitions in which there are as many jumps as variables; 0: not known

    @property
    def facts(self) -> Facts:
        return Facts(
            n_uniforms=3,
            transitions_per_sweep=self.sweep or None,
            stat_names=("lp", "acceptance_rate"),
            carried=("offset",),
            sees_all_moves=True,
            seeded=True,
        )

    def new_part(self, target: Any, n_chains: int) -> Weights:
        return new_weights(target, n_chains)


implements(rebuild, Jump)(rebuild_weights)
implements(prepare, Jump)(prepare_weights)


@inlined
def make_jump(view, rule, chain, u):
    """Make the move that u selects; return whether the offset has changed."""
    move = select(view, chain, u * total(chain))
    propose(view, rule, chain, move)
    chain.moved[np.int64(move)] = True
    if SMALLEST_TOTAL < total(chain) < LARGEST_TOTAL:
        return False
    weigh_all(view, rule, chain, True)
    return True


@inlined
def time_scale(rule, chain):
    """Return what times Z(x), under the present offset, is the mean number of jumps at x."""
    return exp(min(chain.part.offset[0] + rule.log_time, 700.0))


@implements(step, Jump)
def _step(view, rule, chain, u):
    """U = (time until the first jump, which, seed of the numbers of further jumps)."""
    u_wait, u_select = u[0], u[1]
    seed = np.uint64(np.int64(u[2] / _SMALLEST))
    scale = time_scale(rule, chain)
    left = 1.0
    for _ in range(MOST_JUMPS):
        if total(chain) == 0.0:  # no neighbour has positive probability
            return 1.0
        rate = total(chain) * scale
        if 1.0 - u_wait <= exp(-left * rate):
            return 1.0
        left = max(0.0, left + math.log(1.0 - u_wait) / rate)
        if make_jump(view, rule, chain, u_select):
            scale = time_scale(rule, chain)
        seed, u_wait = split_mix(seed)
        seed, u_select = split_mix(seed)
    return 0.0  # cut short, which is no longer exact: the sampler tells

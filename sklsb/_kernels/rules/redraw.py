"""Exact redraws of blocks of variables given the others, made ahead by elimination.

`sklsb.exact.elimination.mixed` makes the new states in Python; the compiled step only takes the
next one. Redraws of a whole model depend on nothing, so one call makes many.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements
from sklsb._kernels.contract import first_move, init_cache, row_of, step
from sklsb._kernels.facts import Facts

# Most new states held at once, and their values.
_MOST_STATES, _MOST_VALUES = 4096, 1 << 22


class Waiting(NamedTuple):
    """New states of each chain, in order."""

    state: NDArray[Any]  # (n, room, n_sites)
    taken: NDArray[np.int64]  # (n, 1) number of states used


@implements(row_of, Waiting)
def _row_of(part, c):
    return Waiting(part.state[c], part.taken[c])


class Blocks(NamedTuple):
    """The rule: a uniformly random block is redrawn given the other variables."""

    site: NDArray[np.int64]  # of all blocks, concatenated
    start: NDArray[np.int64]  # of each block, with the end
    whole: bool  # one block of all variables: new states depend on nothing

    @property
    def facts(self) -> Facts:
        return Facts(n_uniforms=0, evaluation="table entry")

    @property
    def blocks(self) -> list[NDArray[np.int64]]:
        """The variables of each block."""
        return np.split(self.site, self.start[1:-1])

    def new_part(self, target: Any, n_chains: int) -> Waiting:
        room = max(1, min(_MOST_STATES, _MOST_VALUES // max(1, n_chains * target.n_sites)))
        state = np.zeros((n_chains, room, target.n_sites), dtype=target.dtype)
        return Waiting(state, np.zeros((n_chains, 1), dtype=np.int64))


@implements(step, Blocks)
def _step(view, rule, chain, u):
    """Use no numbers: the draw is already made."""
    new = chain.part.state[chain.part.taken[0]]
    chain.part.taken[0] += 1
    for i in range(chain.x.size):
        # An independent draw is never stuck, even if it equals the state.
        if rule.whole or chain.x[i] != new[i]:
            begin, end = first_move(view, np.uint64(i)), first_move(view, np.uint64(i + 1))
            if begin < end:
                chain.moved[np.int64(begin)] = True
        chain.x[i] = new[i]
    init_cache(view, chain)
    return np.nan

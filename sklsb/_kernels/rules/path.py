"""Paths of several locally balanced moves, accepted or refused as one.

The number of moves L is drawn first, independently of the state; then each move from x_k to x_k+1
with the probability w(x_k, x_k+1) / Z(x_k) of `Balanced`, without acceptance in between; then the
end of the path is accepted with probability min(1, Z(x_0) / Z(x_L)), or else the chain is at x_0.

This is reversible. S(x, y) = p(x) w(x, y) is symmetric, see `Balanced`, so the probability of a
path from x_0 in equilibrium and of accepting it is, given L,

    p(x_0) prod_k w(x_k, x_k+1) / Z(x_k) * min(1, Z(x_0) / Z(x_L))
        = prod_k S(x_k, x_k+1) / prod_0<k<L p(x_k) Z(x_k) / max(Z(x_0), Z(x_L))

and that of the path backwards is the same. The probability of all paths from x to y is the sum.
L must take odd values and even ones, or the parity of the number of changes would be kept.

References: H. Sun, H. Dai, W. Xia, A. Ramamurthy, "Path auxiliary proposal for MCMC in discrete
space", ICLR 2022, where weights along the path are approximate.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.chains import with_part
from sklsb._kernels.contract import flip, prepare, rebuild, row_of, step
from sklsb._kernels.facts import Facts
from sklsb._kernels.numeric import Table, exp
from sklsb._kernels.rules.balanced import (
    LARGEST_TOTAL,
    PLAIN,
    SMALLEST_TOTAL,
    Sides,
    Weights,
    new_weights,
    propose,
    rebase,
    undo,
    weigh_all,
)
from sklsb._kernels.tree import select, total


class WayBack(NamedTuple):
    """The weights of all moves, and what leads back along the path, one row per chain."""

    tree: NDArray[np.float64]
    offset: NDArray[np.float64]
    old_weight: NDArray[np.float64]  # scratch: by move of the path
    group: NDArray[np.uint64]  # scratch
    level: NDArray[np.uint64]
    number: NDArray[np.uint64]  # scratch: (n, 2, longest) the moves, and their inverses


@implements(row_of, WayBack)
def _row_of(part, c):
    return WayBack(
        part.tree[c],
        part.offset[c],
        part.old_weight[c],
        part.group[c],
        part.level,
        part.number[c],
    )


class Path(NamedTuple):
    """The rule: a path of 1 to 2 ``length`` - 1 moves, each number equally probable."""

    table: Table
    length: int  # mean number of moves
    n_sites: int
    sides: Sides = PLAIN

    @property
    def longest(self) -> int:
        """Most moves of a path."""
        return 2 * self.length - 1

    @property
    def facts(self) -> Facts:
        return Facts(
            n_uniforms=self.longest + 2,
            transitions_per_sweep=max(1, -(-self.n_sites // self.length)),
            stat_names=("lp", "acceptance_rate"),
            carried=("offset",),
            sees_all_moves=True,
            may_be_periodic=self.length == 1,
        )

    def new_part(self, target: Any, n_chains: int) -> WayBack:
        one, n = new_weights(target, n_chains), self.longest
        return WayBack(
            tree=one.tree,
            offset=one.offset,
            old_weight=np.empty((n_chains, n, one.old_weight.shape[1])),
            group=one.group,
            level=one.level,
            number=np.empty((n_chains, 2, n), dtype=np.uint64),
        )


@implements(rebuild, Path)
def _rebuild(view, rule, chain):
    weigh_all(view, rule, chain)


@implements(prepare, Path)
def _prepare(view, rule, chain):
    rebase(view, rule, chain)


@inlined
def _at(chain, k):
    """Return the chain with the old weights of the k-th move of the path."""
    part = chain.part
    return with_part(
        chain, Weights(part.tree, part.offset, part.old_weight[k], part.group, part.level)
    )


@implements(step, Path)
def _step(view, rule, chain, u):
    """U = (to draw the number of moves, to select each, to accept their end)."""
    part = chain.part
    longest = 2 * rule.length - 1
    n = 1 + min(np.int64(u[0] * longest), longest - 1)
    before, offset = total(chain), part.offset[0]
    made = 0
    rebased = False
    while made < n and total(chain) > 0.0:  # zero: no neighbour has positive probability
        move = select(view, chain, u[1 + made] * total(chain))
        part.number[0, made] = move
        part.number[1, made] = propose(view, rule, _at(chain, made), move)
        made += 1
        if not SMALLEST_TOTAL < total(chain) < LARGEST_TOTAL:
            rebase(view, rule, chain)
            rebased = True
    after = total(chain)
    ratio = before / after * exp(offset - part.offset[0]) if made == n and after > 0.0 else 0.0
    if u[1 + longest] < ratio:
        for k in range(made):
            chain.moved[np.int64(part.number[0, k])] = True
    else:
        _go_back(view, rule, chain, made, rebased, offset)
    return min(1.0, ratio)


@inlined
def _go_back(view, rule, chain, made, rebased, offset):
    """Undo the moves of the path, the last one first."""
    number = chain.part.number
    for k in range(made - 1, -1, -1):
        if rebased:
            flip(view, chain, number[1, k])
        else:
            undo(view, _at(chain, k), number[0, k], number[1, k])
    if rebased:
        chain.part.offset[0] = offset
        weigh_all(view, rule, chain)

"""The locally balanced step: propose a single change by its weight, then accept or refuse it.

The proposal is Q(m|x) = w_m / Z(x), with the weight of move m, which changes variable i by the
log-ratio u,

    log w_m = log s_i + u/2 + h(abs(u)) = log s_i + log g(exp u)

with a factor s_i and the even part h of log g. Both are the same at x and at x' = x after the move,
and p(x) exp(u/2) = sqrt(p(x) p(x')), so p(x) w_m(x) is symmetric in x and x'. Hence the
Metropolis-Hastings acceptance of x' is min(1, Z(x) / Z(x')), whatever s and h are.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import called, implements, inlined
from sklsb._kernels.contract import (
    flip,
    log_ratio,
    memo_place,
    memo_size,
    prepare,
    rebuild,
    row_of,
    step,
)
from sklsb._kernels.facts import Facts
from sklsb._kernels.numeric import Table, exp, log_weight
from sklsb._kernels.tree import levels, select, sum_all, sum_touched, total

# Outside this range of total weights a chain chooses a new offset.
SMALLEST_TOTAL, LARGEST_TOTAL = 1e-100, 1e100
# Weights that all chains together keep for later: 32 MiB.
_MOST_KEPT = 1 << 22


class Weights(NamedTuple):
    """The weights of all moves and their block sums, one row per chain."""

    tree: NDArray[np.float64]
    offset: NDArray[np.float64]  # (n, 1) weights are exp(log g - offset)
    old_weight: NDArray[np.float64]  # scratch, padded to groups of 8
    level: NDArray[np.uint64]  # shared: where each level of the tree starts
    # Scratch: weights by 1 + `memo_place`, NaN where none was computed. While they are looked up,
    # memo[0] is -1. Else it says from how many evaluations on: before, few are needed twice.
    memo: NDArray[np.float64]


@implements(row_of, Weights)
def _row_of(part, c):
    return Weights(part.tree[c], part.offset[c], part.old_weight[c], part.level, part.memo[c])


# Log factors where all are 1.
PLAIN: NDArray[np.float64] = np.empty(0)


def new_weights(target: Any, n_chains: int) -> Weights:
    """Allocate the weights of chains."""
    view = target.view()
    level = levels(view.touched_start.size - 1)
    size = memo_size(view)
    most_touched = int(np.diff(view.touched_start).max(initial=0))
    return Weights(
        tree=np.zeros((n_chains, int(level[-1]) + 1)),
        offset=np.zeros((n_chains, 1)),
        old_weight=np.zeros((n_chains, -(-most_touched // 8) * 8)),
        level=level,
        memo=np.full((n_chains, 1 + (size if n_chains * size <= _MOST_KEPT else 0)), np.inf),
    )


class Balanced(NamedTuple):
    """The rule: a balancing function and the probability of doing nothing."""

    table: Table
    lazy: float = 0.0
    log_factor: NDArray[np.float64] = PLAIN  # log s of the variable, by move; empty: all s are 1

    @property
    def facts(self) -> Facts:
        return Facts(
            n_uniforms=2,
            stat_names=("lp", "acceptance_rate"),
            carried=("offset",),
            sees_all_moves=True,
            may_be_periodic=True,
        )

    def new_part(self, target: Any, n_chains: int) -> Weights:
        return new_weights(target, n_chains)


@inlined
def log_weight_by(rule, move, u):
    """Log weight of a move with log-ratio u."""
    found = log_weight(rule.table, u)
    if rule.log_factor.size > 0:
        found += rule.log_factor[np.int64(move)]
    return found


@inlined
def log_weight_at(view, rule, chain, move):
    """Log weight of a move."""
    return log_weight_by(rule, move, log_ratio(view, chain, move))


@called
def weigh_all(view, rule, chain, anew):
    """Compute the weights of all moves and their sums.

    The offset stays, or is chosen ``anew``: the largest log weight.
    """
    tree, n, largest = chain.part.tree, view.touched_start.size - 1, -np.inf
    for m in range(n):
        tree[m] = log_weight_at(view, rule, chain, np.uint64(m))
        largest = max(largest, tree[m])
    if anew:
        chain.part.offset[0] = largest if np.isfinite(largest) else 0.0
    for m in range(n):
        tree[m] = exp(tree[m] - chain.part.offset[0])
    sum_all(chain)
    size = chain.part.memo.size
    chain.part.memo[0] = np.float64(chain.evaluations[0] + size) if size > 1 else np.inf


@inlined
def _recalls(chain):
    """Whether weights are looked up; at first, forget those of another function or offset."""
    memo = chain.part.memo
    if 0.0 <= memo[0] <= chain.evaluations[0]:
        memo[:] = np.nan
        memo[0] = -1.0
    return memo[0] < 0.0


@inlined
def propose(view, rule, chain, move):
    """Make a move and update weights and sums; return the inverse move."""
    inverse = flip(view, chain, move)
    begin, end = view.touched_start[move], view.touched_start[move + np.uint64(1)]
    tree, weight, offset = chain.part.tree, chain.part.old_weight, chain.part.offset[0]
    n = end - begin
    if _recalls(chain):
        for k in range(n):
            t = np.uint64(view.touched[begin + k])
            place = np.uint64(1) + memo_place(view, chain, t)
            new = chain.part.memo[place]
            if new != new:
                new = exp(log_weight_at(view, rule, chain, t) - offset)
                chain.part.memo[place] = new
            weight[k], tree[t] = tree[t], new
    else:
        for k in range(n):
            t = np.uint64(view.touched[begin + k])
            weight[k] = log_weight_at(view, rule, chain, t) - offset
        for k in range((n + np.uint64(7)) & ~np.uint64(7)):  # whole vectors, any numbers behind
            weight[k] = exp(weight[k])
        for k in range(n):
            t = np.uint64(view.touched[begin + k])
            weight[k], tree[t] = tree[t], weight[k]
    chain.evaluations[0] += np.int64(n)
    sum_touched(chain, view.touched, begin, end)
    return inverse


@inlined
def undo(view, chain, move, inverse):
    """Take back the move just proposed."""
    flip(view, chain, inverse)
    begin, end = view.touched_start[move], view.touched_start[move + np.uint64(1)]
    for k in range(begin, end):
        chain.part.tree[view.touched[k]] = chain.part.old_weight[k - begin]
    sum_touched(chain, view.touched, begin, end)


@implements(rebuild, Balanced)
def rebuild_weights(view, rule, chain):
    weigh_all(view, rule, chain, False)


@implements(prepare, Balanced)
def prepare_weights(view, rule, chain):
    weigh_all(view, rule, chain, True)


@implements(step, Balanced)
def _step(view, rule, chain, u):
    """U = (to stay with probability ``lazy`` or select a move, to accept it)."""
    u_select, u_accept = u[0], u[1]
    before = total(chain)
    if before == 0.0 or u_select < rule.lazy:  # zero: no neighbour has positive probability
        return 0.0
    move = select(view, chain, (u_select - rule.lazy) / (1.0 - rule.lazy) * before)
    inverse = propose(view, rule, chain, move)
    after = total(chain)
    ratio = before / after
    if u_accept < ratio:
        chain.moved[np.int64(move)] = True
        if not SMALLEST_TOTAL < after < LARGEST_TOTAL:
            weigh_all(view, rule, chain, True)
    else:
        undo(view, chain, move, inverse)
    return min(1.0, ratio)

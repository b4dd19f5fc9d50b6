"""Gibbs sampling: variables are drawn from their exact distribution given the others.

`RandomBlocks` draws one random block jointly, and is reversible. `Systematic` sweeps through all
variables in blocks; it leaves p invariant, but is not reversible.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.contract import first_move, flip, step
from sklsb._kernels.enumeration import (
    Ball,
    choose,
    choose_block,
    go_to,
    largest_ball,
    list_ball,
    mark_moved,
    new_ball,
    remember,
    weigh_ball,
    weigh_values,
)
from sklsb._kernels.facts import Facts


@inlined
def draw_site(view, chain, site, u, weight):
    """Draw one variable given the others by one uniform number; ``weight`` is scratch."""
    begin, end = first_move(view, site), first_move(view, site + np.uint64(1))
    n = np.int64(end - begin)
    stay, total = weigh_values(view, chain, begin, n, weight)
    chain.evaluations[0] += n
    r = u * total - stay
    chosen = -1
    for k in range(n if r >= 0.0 else 0):
        if weight[k] > 0.0:
            chosen = k  # the last possible one, if rounding leaves none
            if r < weight[k]:
                break
            r -= weight[k]
    if chosen >= 0:
        move = begin + np.uint64(chosen)
        flip(view, chain, move)
        chain.moved[np.int64(move)] = True


class RandomBlocks(NamedTuple):
    """The rule: a block of random variables is drawn jointly given the others."""

    sites: NDArray[np.uint32]  # unobserved
    block_size: int

    @property
    def facts(self) -> Facts:
        """Properties of the rule."""
        return Facts(
            n_uniforms=self.block_size + 1,
            transitions_per_sweep=max(1, -(-self.sites.size // max(1, self.block_size))),
            block_size=self.block_size,
        )

    def n_states(self, target: Any) -> int:
        """Most joint states of a block."""
        return largest_ball(target.cardinalities[self.sites], self.block_size, self.block_size)

    def new_part(self, target: Any, n_chains: int) -> Ball:
        """Allocate the list of the states of a block."""
        return new_ball(n_chains, self.block_size, self.n_states(target))


@implements(step, RandomBlocks)
def _step(view, rule, chain, u):
    """U = (to choose each variable, to draw their values)."""
    n = rule.block_size
    if n == 0:
        return np.nan
    if n == 1:
        k = min(np.int64(u[0] * rule.sites.size), rule.sites.size - 1)
        draw_site(view, chain, np.uint64(rule.sites[k]), u[1], chain.part.log_weight)
        return np.nan
    choose_block(rule.sites, n, u, chain.part)
    draw_block(view, chain, n, u[n])
    return np.nan


@inlined
def draw_block(view, chain, n, u):
    """Draw the variables of ``chain.part.block[:n]`` jointly given the others."""
    part = chain.part
    remember(chain, n)
    size = list_ball(view, part, n, n)
    weigh_ball(view, chain, size, 0.0, 0.0, False)
    chain.evaluations[0] += size - 1
    go_to(view, chain, choose(part.log_weight, size, u))
    mark_moved(view, chain, n)


class Systematic(NamedTuple):
    """The rule: all variables in order, in blocks that are drawn jointly."""

    sites: NDArray[np.uint32]  # unobserved
    block_size: int

    @property
    def facts(self) -> Facts:
        n_blocks = -(-self.sites.size // max(1, self.block_size))
        return Facts(
            n_uniforms=n_blocks,
            transitions_per_sweep=1,
            reversible=n_blocks < 2,
            block_size=self.block_size,
        )

    def n_states(self, target: Any) -> int:
        """Most joint states of a block."""
        size = max(1, self.block_size)
        cardinalities = target.cardinalities[self.sites]
        blocks = np.pad(cardinalities, (0, -cardinalities.size % size), constant_values=1)
        blocks = blocks.reshape(-1, size)
        if not blocks.size:
            return 1
        return largest_ball(blocks[np.log(blocks).sum(axis=1).argmax()], size, size)

    def new_part(self, target: Any, n_chains: int) -> Ball:
        return new_ball(n_chains, self.block_size, self.n_states(target))


@implements(step, Systematic)
def _sweep(view, rule, chain, u):
    """U = (to draw each block)."""
    if rule.block_size == 1:
        for k in range(rule.sites.size):
            draw_site(view, chain, np.uint64(rule.sites[k]), u[k], chain.part.log_weight)
        return np.nan
    begin = 0
    for k in range(u.size):
        n = min(rule.block_size, rule.sites.size - begin)
        if n <= 0:
            break
        for i in range(n):
            chain.part.block[i] = rule.sites[begin + i]
        draw_block(view, chain, n, u[k])
        begin += n
    return np.nan

"""Exchanges of the values of two variables, proposed by weight, then accepted or refused.

A site i and a set S of others are drawn, independently of the state x. A partner j in S whose value
differs from that of i is drawn with probability w_j / Z_iS(x), where x^ij is x with both values
exchanged, w_j = g(p(x^ij) / p(x)) and Z_iS is the sum of the weights. The exchange is accepted with
probability min(1, Z_iS(x) / Z_iS(x^ij)).

This is reversible. In y = x^ij the partner j still differs from i, and y^ij = x. With a = Z_iS(x)
and b = Z_iS(y), the flow from x to y by way of i, S and j is, but for the probability of (i, S),

    p(x) g(p(y) / p(x)) / a * min(1, a / b) = p(x) g(p(y) / p(x)) / max(a, b)

Since g(t) = t g(1/t), p(x) g(p(y) / p(x)) = p(y) g(p(x) / p(y)): the flow back by way of i, S and j
is the same. So is the sum over all i, S and j that lead from x to y.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import called, implements, inlined
from sklsb._kernels.contract import (
    first_move,
    flip,
    forget_way,
    log_prob,
    log_prob_is_cheap,
    log_ratio,
    prepare,
    rebuild,
    row_of,
    step,
)
from sklsb._kernels.enumeration import choose_block, draw_index, exponentials
from sklsb._kernels.facts import Facts
from sklsb._kernels.numeric import Table, exp, log_weight


class Partners(NamedTuple):
    """Memory for a site and its partners, one row per chain."""

    block: NDArray[np.uint32]  # the site and its partners
    path: NDArray[np.int32]  # scratch of `choose_block`
    first: NDArray[np.int32]  # for each value, the first place in the block that has it, or -1
    after: NDArray[np.int32]  # for each place, the next one of the same value, or -1
    log_weight: NDArray[np.float64]  # by place


@implements(row_of, Partners)
def _row_of(part, c):
    return Partners(part.block[c], part.path[c], part.first[c], part.after[c], part.log_weight[c])


class Swap(NamedTuple):
    """The rule: one of a random block of variables exchanges its value with another of them."""

    sites: NDArray[np.uint32]  # unobserved
    block_size: int  # a site and its partners; all sites, or a random block
    low: int  # smallest value
    rank: NDArray[np.int64]  # number of values below the value low + k
    table: Table
    lazy: float = 0.0

    @property
    def facts(self) -> Facts:
        drawn = self.block_size if self.block_size < self.sites.size else 0
        return Facts(
            n_uniforms=drawn + 3,
            transitions_per_sweep=max(1, self.sites.size),
            stat_names=("lp", "acceptance_rate"),
            evaluation="log-ratio of an exchange",
            may_be_periodic=True,
            conserves_counts=True,
            block_size=self.block_size,
        )

    def new_part(self, target: Any, n_chains: int) -> Partners:
        n = self.block_size
        return Partners(
            block=np.zeros((n_chains, n), np.uint32),
            path=np.zeros((n_chains, n), np.int32),
            first=np.zeros((n_chains, len(target.values)), np.int32),
            after=np.zeros((n_chains, n), np.int32),
            log_weight=np.zeros((n_chains, n)),
        )


@implements(rebuild, Swap)
def _rebuild(view, rule, chain):
    """If the block is all sites, it is never drawn."""
    if rule.block_size == rule.sites.size:
        for k in range(rule.block_size):
            chain.part.block[k] = rule.sites[k]


@implements(prepare, Swap)
def _prepare(view, rule, chain):
    rebuild(view, rule, chain)


@inlined
def _rank_at(rule, chain, site):
    return rule.rank[np.int64(chain.x[site]) - rule.low]


@inlined
def _move_to(view, rule, chain, site, rank):
    """Return the move of a site to another value, given by its rank."""
    here = _rank_at(rule, chain, site)
    return first_move(view, site) + np.uint64(rank - np.int64(rank > here))


@inlined
def _takes(view, site, rank):
    """Whether a site has a value of this rank."""
    return rank <= np.int64(first_move(view, site + np.uint64(1)) - first_move(view, site))


@inlined
def _group(rule, chain):
    """Sort the places of the block by their values."""
    part = chain.part
    for rank in range(part.first.size):
        part.first[rank] = -1
    for k in range(part.block.size - 1, -1, -1):
        rank = _rank_at(rule, chain, np.uint64(part.block[k]))
        part.after[k] = part.first[rank]
        part.first[rank] = k


@called
def _weigh(view, rule, chain, place):
    """Weigh the exchanges of the site at a place of the block with all others.

    The ratio of an exchange is that of a change of the site, then of a change of the partner. If
    the state between is impossible, it is taken from log p as a whole. Returns the largest log
    weight and the sum of the weights relative to it, 0 if no exchange is possible.
    """
    part = chain.part
    site = np.uint64(part.block[place])
    own = _rank_at(rule, chain, site)
    _group(rule, chain)
    forget_way(view, chain)
    reference, known = 0.0, False
    for k in range(part.block.size):
        part.log_weight[k] = -np.inf
    for rank in range(part.first.size):
        k = np.int64(part.first[rank])
        if k < 0 or rank == own or not _takes(view, site, rank):
            continue
        move = _move_to(view, rule, chain, site, rank)
        between = -np.inf if log_prob_is_cheap(view) else log_ratio(view, chain, move)
        if between == -np.inf and not known:
            reference, known = log_prob(view, chain), True
        inverse = np.uint64(flip(view, chain, move))
        while k >= 0:
            partner = np.uint64(part.block[k])
            if _takes(view, partner, own):
                u = _log_ratio_after(view, rule, chain, partner, own, between, reference)
                part.log_weight[k] = log_weight(rule.table, u)
                chain.evaluations[0] += 1
            k = np.int64(part.after[k])
        flip(view, chain, inverse)
    return exponentials(part.log_weight, part.block.size)


@inlined
def _log_ratio_after(view, rule, chain, partner, rank, between, reference):
    """Log-ratio of an exchange whose first change is made already, with log-ratio ``between``."""
    move = _move_to(view, rule, chain, partner, rank)
    if between > -np.inf:
        return between + log_ratio(view, chain, move)
    inverse = np.uint64(flip(view, chain, move))
    there = log_prob(view, chain)
    flip(view, chain, inverse)
    # The reference is impossible only if a user's function has failed.
    return there - reference if reference > -np.inf else -np.inf


@inlined
def _exchange(view, rule, chain, site, partner):
    one, other = _rank_at(rule, chain, site), _rank_at(rule, chain, partner)
    flip(view, chain, _move_to(view, rule, chain, site, other))
    flip(view, chain, _move_to(view, rule, chain, partner, one))


@implements(step, Swap)
def _step(view, rule, chain, u):
    """U = (to draw each site of a block of some, to choose one of these, ``select``, to accept).

    The chain stays if ``select`` is below ``lazy``; else it selects the partner.
    """
    part = chain.part
    n = part.block.size
    drawn = 0
    if n < rule.sites.size:
        choose_block(rule.sites, n, u, part)
        drawn = n
    if n < 2 or u[drawn + 1] < rule.lazy:
        return 0.0
    place = min(np.int64(u[drawn] * n), n - 1)
    largest, before = _weigh(view, rule, chain, place)
    if before == 0.0:
        return 0.0
    select = (u[drawn + 1] - rule.lazy) / (1.0 - rule.lazy) * before
    site = np.uint64(part.block[place])
    partner = np.uint64(part.block[draw_index(part.log_weight, n, select)])
    _exchange(view, rule, chain, site, partner)
    there, after = _weigh(view, rule, chain, place)
    ratio = before / after * exp(largest - there) if after > 0.0 else 0.0
    if u[drawn + 2] < ratio:
        chain.moved[np.int64(first_move(view, site))] = True
        chain.moved[np.int64(first_move(view, partner))] = True
    else:
        _exchange(view, rule, chain, site, partner)
    return min(1.0, ratio)

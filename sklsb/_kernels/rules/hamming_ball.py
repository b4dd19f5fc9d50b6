"""The Hamming ball sampler (Titsias and Yau, JASA 2017).

Within a random block of variables, a centre is drawn uniformly from the states that differ from the
present one in at most ``radius`` variables; then the next state is drawn from p restricted to those
that differ from the centre in at most ``radius``. These include the present state, and their number
is the same around every centre, so the transition is reversible.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.contract import flip, log_prob, log_prob_is_cheap, log_ratio, step
from sklsb._kernels.enumeration import (
    Ball,
    choose,
    choose_block,
    go_to,
    largest_ball,
    list_ball,
    mark_moved,
    new_ball,
    path_to,
    remember,
    weigh_ball,
)
from sklsb._kernels.facts import Facts


class HammingBall(NamedTuple):
    """The rule: a random block is drawn from p among the states near a random centre."""

    sites: NDArray[np.uint32]  # unobserved
    block_size: int
    radius: int

    @property
    def facts(self) -> Facts:
        return Facts(
            n_uniforms=self.block_size + 2,
            transitions_per_sweep=max(1, -(-self.sites.size // max(1, self.block_size))),
            block_size=self.block_size,
        )

    def n_states(self, target: Any) -> int:
        """Most states of a ball."""
        return largest_ball(target.cardinalities[self.sites], self.block_size, self.radius)

    def new_part(self, target: Any, n_chains: int) -> Ball:
        return new_ball(n_chains, self.block_size, self.n_states(target))


@implements(step, HammingBall)
def _step(view, rule, chain, u):
    """U = (to choose each variable, to draw the centre, to draw the next state)."""
    n = rule.block_size
    if n == 0:
        return np.nan
    part = chain.part
    choose_block(rule.sites, n, u, part)
    remember(chain, n)
    size = list_ball(view, part, n, rule.radius)
    centre = min(np.int64(u[n] * size), size - 1)
    here, reference, known = _walk(view, chain, centre)
    # The same tree serves around the centre: moves lead to a variable's other values.
    weigh_ball(view, chain, size, here, reference, known)
    chain.evaluations[0] += size - 1
    go_to(view, chain, choose(part.log_weight, size, u[n + 1]))
    mark_moved(view, chain, n)
    return np.nan


@inlined
def _walk(view, chain, node):
    """Go to a listed state; return ``here``, ``reference`` and ``known`` for `weigh_ball`.

    The reference is known if the way led through an impossible state.
    """
    part = chain.part
    depth = path_to(part, node)
    here, reference, known = 0.0, 0.0, False
    whole = log_prob_is_cheap(view)
    for k in range(depth - 1, -1, -1):
        move = np.uint64(part.move[part.path[k]])
        if not (known or whole):
            ratio = log_ratio(view, chain, move)
            if ratio == -np.inf:
                reference = log_prob(view, chain) - here
                known = True
            here += ratio
            chain.evaluations[0] += 1
        flip(view, chain, move)
        if known:
            here = log_prob(view, chain) - reference
    if whole and log_prob(view, chain) == -np.inf:
        here, known = -np.inf, True
    return here, reference, known

"""What a target and a rule implement for the kernels.

A *view* is a named tuple of arrays that represents a target. ``touched_start`` and ``touched`` list
for each move, sorted, the moves whose log-ratio it changes, itself included. ``cache_size`` is the
length of a chain's cache, ``scratch_size`` (optional) of memory that no rebuild restores,
``memo_size`` (optional) the number of places of `memo_place`.

A *rule* is a named tuple that says how a chain moves in one transition; `Facts` are its properties.

Nothing kept between transitions is a running sum of rounded numbers: after any number of
transitions, caches equal a rebuild bit for bit.
"""

from typing import Any

import numpy as np

from sklsb._kernels._jit import contract, inlined


def scratch_size(view: Any) -> int:
    """Return the length of the memory that no rebuild restores."""
    return getattr(view, "scratch_size", 0)


def memo_size(view: Any) -> int:
    """Return the number of places of `memo_place`; 0 where its class does not implement that."""
    return getattr(view, "memo_size", 0) if type(view) in memo_place.implementations else 0


@contract(0)
def init_cache(view, chain):
    """Compute the cache of one chain from its state."""


@contract(0)
def log_ratio(view, chain, move):
    """Log p(x with the move made) - log p(x)."""


@contract(0)
def flip(view, chain, move):
    """Make a move; return the move that undoes it."""


@contract(0)
def log_prob(view, chain):
    """Log p(x) up to a constant, summed in a fixed order."""


@contract(0, default=lambda view: False)
def log_prob_is_cheap(view):
    """Whether log p costs no more than a log-ratio."""


@contract(0, default=lambda view, chain: None)
def forget_way(view, chain):
    """Forget values cached for undoing moves; the path back will not be taken."""


@contract(0, default=lambda view, chain, move: np.uint64(0))
def memo_place(view, chain, move):
    """Return a number below ``memo_size`` for a move and all that its log-ratio depends on."""


@contract(0, default=lambda view, site: np.uint64(site))
def first_move(view, site):
    """Index of a site's first move (uint64); for ``site = n_sites``, the number of moves.

    The moves of a site lead to its other values, in increasing order. Views with two values per
    site need not implement it.
    """


@inlined
def change_of(view, chain, move):
    """Return the site of a move, its value (an index) before and after, and the move back."""
    site = np.uint64(view.site[move])
    first, before = first_move(view, site), np.uint64(chain.x[site])
    after = np.uint64(move) - first
    after += np.uint64(after >= before)
    return site, before, after, first + before - np.uint64(before > after)


@contract(0)
def hidden_activation(view, chain, j):
    """Log odds of hidden unit j given the visible units, for targets with a hidden layer."""


@contract(0, default=lambda view, i, field: field)
def visible_field(view, i, field):
    """Log odds of visible unit i given the hidden ones; ``field`` are those of the target."""


@contract(1, default=lambda view, rule, chain: None)
def rebuild(view, rule, chain):
    """Recompute the rule's part of the chain from the state and what the chain carries."""


@contract(1, default=lambda view, rule, chain: None)
def prepare(view, rule, chain):
    """Choose what the chain carries from the state alone, and rebuild."""


@contract(1)
def step(view, rule, chain, u):
    """Make one transition, a pure function of the uniform numbers u[:rule.facts.n_uniforms].

    Returns its acceptance probability, or NaN if nothing can refuse it.
    """


@contract(1, default=lambda view, rule, chain: log_prob(view, chain))
def log_prob_after(view, rule, chain):
    """Log p(x) after a transition, which may have summed a part of it; bit for bit `log_prob`."""


@contract(0, default=lambda rule, u: 0)
def n_used(rule, u):
    """How many of the numbers u the next transition uses, if that varies."""


@contract(0)
def row_of(part, c):
    """Return one chain's row of a rule's part."""

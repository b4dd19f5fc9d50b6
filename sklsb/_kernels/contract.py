"""What a target and a rule implement for the kernels.

A *view* is a named tuple of arrays that stands for a target. It has ``touched_start`` and
``touched``: for each move the sorted list of the moves, itself among them, whose log-ratio changes
when it is made; and ``cache_size``, the length of the cache of a chain. ``scratch_size``, if there
is one, is that of memory which no rebuild restores.

A *rule* is a named tuple that says how a chain moves in one transition. `sklsb.extending.Rule`
tells what Python must know of it.

Nothing that is kept between transitions is a running sum of rounded numbers: caches equal a
rebuild bit for bit after any number of transitions.
"""

import numpy as np

from sklsb._kernels._jit import contract

# ----------------------------------------------------------------- of a view


def _two_valued(view, site):
    return np.uint64(site)


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


def _no(view):
    return False


@contract(0, default=_no)
def log_prob_is_cheap(view):
    """Whether log p takes no more than a log-ratio, as where that is a difference of two."""


def _keep(view, chain):
    pass


@contract(0, default=_keep)
def forget_way(view, chain):
    """Drop what is kept to go back the way that led to the present state: none will be gone."""


@contract(0, default=_two_valued)
def first_move(view, site):
    """Index of the first move of a site (uint64); of n_sites, the number of moves.

    The moves of a site lead to its other values, in increasing order. Sites of two values need
    not implement it.
    """


@contract(0)
def hidden_activation(view, chain, j):
    """Log odds of hidden unit j given the visible ones, of a target that has a hidden layer."""


# ----------------------------------------------------------------- of a rule


def _nothing(view, rule, chain):
    pass


def _no_weight(view, rule, chain):
    return 0.0


@contract(1, default=_nothing)
def rebuild(view, rule, chain):
    """Compute what the rule keeps beside the cache, from the state and what the chain carries."""


@contract(1, default=_nothing)
def prepare(view, rule, chain):
    """Choose anew what the chain carries, from the state alone, and rebuild."""


@contract(1)
def step(view, rule, chain, u):
    """One transition, pure in the uniform numbers u[:rule.facts.n_uniforms].

    Returns its acceptance probability, or NaN if it is one that nothing can refuse.
    """


@contract(1, default=_no_weight)
def log_weight_of(view, rule, chain):
    """Log of the weight that a draw at this state has."""


def _constant(rule, u):
    return 0


@contract(0, default=_constant)
def n_used(rule, u):
    """How many of the numbers u the next transition uses, where that is not always the same."""


@contract(0)
def row_of(part, c):
    """Return the row of one chain in what a rule keeps."""

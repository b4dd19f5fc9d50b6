"""The entries that move chains."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import called, kernel
from sklsb._kernels.chains import chain_at
from sklsb._kernels.contract import (
    first_move,
    flip,
    init_cache,
    log_prob,
    log_prob_after,
    log_ratio,
    n_used,
    prepare,
    rebuild,
    step,
)
from sklsb._kernels.enumeration import weigh_values
from sklsb._kernels.spread import fill_behind

# Transitions between draws if there are none.
NEVER = 1 << 62


class Drawing(NamedTuple):
    """Which states of a run become draws: each after ``thin`` transitions.

    Kernels count ``made`` up to ``thin``; all else that follows from the two is here.
    """

    thin: int = NEVER
    made: int = 0  # transitions since the last draw
    at: int = 0  # place of the next draw in the arrays of a run

    def until(self, n: int) -> int:
        """Return the transitions that the next n draws take."""
        return self.thin * n - self.made

    def count(self, n: int) -> int:
        """Return how many draws the next n transitions make."""
        return (self.made + n) // self.thin

    def kept(self, n: int) -> slice:
        """Return which of the next n transitions end in a draw."""
        return slice(self.thin - 1 - self.made, n, self.thin)

    def room(self, n: int) -> slice:
        """Return where the draws of the next n transitions go."""
        return slice(self.at, self.at + self.count(n))

    def after(self, n: int) -> "Drawing":
        """Return what holds after n more transitions."""
        return Drawing(self.thin, (self.made + n) % self.thin, self.at + self.count(n))


# What a run computes from the states of the chains before the first transition.
GO_ON, REBUILD, ANEW = range(3)


class Steps(NamedTuple):
    """The transitions of a run."""

    n: int
    width: int  # uniform numbers of each, or 0 if that is `n_used`
    drawing: Drawing
    begin: int = GO_ON
    spread: bool = False  # the numbers are n words, and room for those that each one makes
    words: bool = False  # the rule makes the numbers itself


class Sums(NamedTuple):
    """Sums over draws of p(x_i = s | rest), of all values s of all variables i, by batches."""

    total: NDArray[np.float64]  # (n_chains, n_batches, at least as many as there are values)
    place: NDArray[np.int64]  # see `places_of`
    weight: NDArray[np.float64]  # scratch, (n_chains, at least as many as a variable has values)
    batch: int = 1  # draws per batch
    before: int = 0  # draws in the sums


def places_of(values: tuple[int, ...]) -> NDArray[np.int64]:
    """Return an array p with p[value] the place of each value; p[-1] is that of the value -1."""
    found = np.zeros(1 + max(0, *values) + max(0, -min(values)), dtype=np.int64)
    found[list(values)] = np.arange(len(values))
    return found


def start(view: Any, rule: Any, chains: Any, span: tuple[int, int], anew: bool) -> None:
    """Compute all that the chains first..last-1 keep, from their states; span = (first, last).

    What they carry besides is chosen ``anew``, or given.
    """
    steps = Steps(0, 0, Drawing(), ANEW if anew else REBUILD)
    run(view, rule, chains, span, np.empty((1, 0)), steps, no_draws(chains), None)


def no_draws(chains: Any, n: int = 0) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return where a run stores no states, and two statistics of n draws."""
    n_chains, n_sites = chains.x.shape
    return np.empty((n_chains, 0, n_sites), chains.x.dtype), np.empty((n_chains, n, 2))


@kernel
def log_probs(view, chains, span, out):
    """Log p of the states of the chains first..last-1."""
    for c in range(span[0], span[1]):
        out[c] = log_prob(view, chain_at(chains, c))


@kernel
def walk(view, chains, moves, every, inverses, ratios):
    """Make moves in every chain, store the inverse of each, then all log-ratios; for checks.

    Unless ``every``, moves into impossible states are omitted.
    """
    for c in range(chains.x.shape[0]):
        chain = chain_at(chains, c)
        for k in range(moves.shape[1]):
            move = np.uint64(moves[c, k])
            if every or log_ratio(view, chain, move) > -np.inf:
                inverses[c, k] = flip(view, chain, move)
        for m in range(ratios.shape[1]):
            ratios[c, m] = log_ratio(view, chain, np.uint64(m))


@called
def add_conditionals(view, chain, place, weight, total):
    """Add p(x_i = s | rest) of all values s of all variables i; ``weight`` is scratch."""
    at = 0
    for i in range(chain.x.size):
        begin, end = first_move(view, np.uint64(i)), first_move(view, np.uint64(i + 1))
        n, here = np.int64(end - begin), place[np.int64(chain.x[i])]
        stay, whole = weigh_values(view, chain, begin, n, weight)
        total[at + here] += stay / whole
        for k in range(n):
            total[at + k + np.int64(k >= here)] += weight[k] / whole
        at += n + 1
    chain.evaluations[0] += at - chain.x.size


@kernel
def run(view, rule, chains, span, uniforms, steps, out, sums):
    """Make transitions of the chains first..last-1, storing a draw after every ``thin``.

    ``span`` = (first, last). Row c - first of ``uniforms`` has the numbers of chain c. ``steps``
    are `Steps`. ``out`` = (draws, stats); the latter are log p and, if there is room, the mean
    acceptance probability since the last draw of transitions that could be refused. ``sums`` is
    None or `Sums`; with None, what makes them is not even compiled. Without transitions, the first
    of the stats, if there is room, is log p where the chains are. One entry for all compiles
    fastest.
    """
    first, last = span
    draws, stats = out
    width, (thin, made_before, draw_before) = steps.width, steps.drawing
    for c in range(first, last):
        chain = chain_at(chains, c)
        if steps.begin != GO_ON:
            init_cache(view, chain)
            if steps.begin == ANEW:
                prepare(view, rule, chain)
            else:
                rebuild(view, rule, chain)
        if steps.n == 0 and stats.shape[1] > 0:
            stats[c, 0, 0] = log_prob(view, chain)
        made, draw, at = made_before, draw_before, 0
        for t in range(steps.n):
            if steps.spread:
                at = steps.n
                fill_behind(uniforms[c - first], t, at)
            u = uniforms[c - first, at:]
            if steps.words:
                u = uniforms[c - first, t : t + 1]
            at += width if width > 0 else n_used(rule, u)
            acceptance = step(view, rule, chain, u)
            if acceptance == acceptance:
                chain.acceptance[0] += acceptance
                chain.refusable[0] += 1
            made += 1
            if made == thin:
                for j in range(chain.x.size):
                    draws[c, draw, j] = chain.x[j]
                stats[c, draw, 0] = log_prob_after(view, rule, chain)
                if stats.shape[2] > 1:
                    stats[c, draw, 1] = chain.acceptance[0] / np.float64(chain.refusable[0])
                if sums is not None:
                    total = sums.total[c, (sums.before + draw) // sums.batch]
                    add_conditionals(view, chain, sums.place, sums.weight[c], total)
                chain.acceptance[0] = 0.0
                chain.refusable[0] = 0
                made = 0
                draw += 1

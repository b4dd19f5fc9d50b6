"""Scans of ladders, whose replicas are at the levels of a path."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import called, inlined, kernel
from sklsb._kernels.chains import chain_at
from sklsb._kernels.contract import first_move, init_cache, prepare, rebuild, step
from sklsb._kernels.run import Drawing
from sklsb._kernels.tempering.crossing import cross, hand_over
from sklsb._kernels.tempering.paths import at_level, draw_reference, log_probs


class Ladder(NamedTuple):
    """Records of ladders, one row each, besides the states of their replicas.

    A ladder has one or two *copies*, each with a replica at every level. Between the levels travel
    replicas and, where two copies exchange parts, the values of variables: *traveller* 0 of a
    replica is itself, and 1 + i is its value of variable i, or there is none but 0.
    """

    at: NDArray[np.int64]  # (n, n_copies, n_levels) replica at each level
    since: NDArray[np.int64]  # of each replica: when it was last at level 0; all different
    heading: NDArray[np.int8]  # (n, n_replicas, n_travellers) 1 up, 2 down, 0 unknown
    stay: NDArray[np.int64]  # the same shape: scans at the last level since level 0
    trips: NDArray[np.int64]  # (n, n_travellers) round trips
    visits: NDArray[np.float64]  # (n, 2, n_travellers) sums of completed stays, of their squares
    rejected: NDArray[np.float64]  # sums over the swaps tried, by pair of levels
    tried: NDArray[np.int64]
    bennett: NDArray[np.float64]  # (n, n_pairs, 2) sums of this batch
    best_log_prob: NDArray[np.float64]  # (n, 1)
    best: NDArray[np.int16]  # a state
    exchanged: NDArray[np.int64]  # (n, 2) exchanges of copies in which a part moved, and all
    impossible: NDArray[np.int64]  # (n, 1) draws from the reference where p = 0
    x: NDArray[np.int16]  # (n, n_copies, n_sites) states at the last level
    moved: NDArray[np.bool_]  # of x, by the first move of each site
    process: NDArray[np.int16]  # (n, n_kept, n_replicas) level of each replica in the last scans

    def copy(self) -> "Ladder":
        """Return a copy."""
        return Ladder._make(values.copy() for values in self)


class Levels(NamedTuple):
    """Draws at every level; of no levels if they are not kept."""

    x: NDArray[Any]  # (n, n_draws, n_levels, n_sites)
    stats: NDArray[np.float64]  # (n, n_draws, n_levels, 2) as of the last level


class Scans(NamedTuple):
    """The scans of a run."""

    n: int
    n_steps: int  # transitions of each replica in a scan
    n_uniforms: int  # numbers of a transition
    width: int  # numbers of a replica in a scan
    before: int  # scans made
    drawing: Drawing


@inlined
def _replica(ladder, chains, c, which):
    """Return a replica of ladder c."""
    return chain_at(chains, c * ladder.heading.shape[1] + which)


@inlined
def _go_on(path, rule, ladder, chains, where, numbers, n_uniforms):
    """Draw from the reference at level 0 and make transitions at the other levels."""
    c, i, begin, n_steps, width = where
    for k in range(ladder.at.shape[2]):
        row = ladder.at[c, i, k]
        chain = _replica(ladder, chains, c, row)
        u = numbers[row, begin : begin + width]
        if k == 0:
            draw_reference(path.reference, chain, u)
            init_cache(at_level(path, 0), chain)
            continue
        view = at_level(path, k)
        for t in range(n_steps):
            step(view, rule, chain, u[t * n_uniforms :])


@inlined
def _sigmoid(a):
    """1 / (1 + exp(-a)), also at infinity."""
    return 1.0 / (1.0 + math.exp(-a)) if a > -700.0 else 0.0


@inlined
def _note_best(ladder, c, chain, found):
    if found > ladder.best_log_prob[c, 0]:
        ladder.best_log_prob[c, 0] = found
        for i in range(chain.x.size):
            ladder.best[c, i] = chain.x[i]


@called
def _levels_of(path, chain, k):
    return log_probs(path, chain, k)


@called
def _arrive(path, rule, chain, k):
    prepare(at_level(path, k), rule, chain)


@inlined
def _swap(path, rule, ladder, chains, c, i, k, u, shift):
    """Propose to swap the replicas at levels k and k + 1 of a copy."""
    low, high = ladder.at[c, i, k], ladder.at[c, i, k + 1]
    first = _replica(ladder, chains, c, low)
    second = _replica(ladder, chains, c, high)
    first_low, first_high, first_top = _levels_of(path, first, k)
    second_low, second_high, second_top = _levels_of(path, second, k)
    _note_best(ladder, c, first, first_top)
    _note_best(ladder, c, second, second_top)
    ladder.impossible[c, 0] += np.int64(k == 0 and first_top == -np.inf)
    up, down = first_high - first_low, second_low - second_high
    log_accept = up + down
    accept = 1.0 if log_accept >= 0.0 else math.exp(log_accept)
    ladder.tried[c, k] += 1
    ladder.rejected[c, k] += 1.0 - accept
    ladder.bennett[c, k, 0] += _sigmoid(up - shift)
    ladder.bennett[c, k, 1] += _sigmoid(down + shift)
    if u < accept:
        ladder.at[c, i, k], ladder.at[c, i, k + 1] = high, low
        if k > 0:
            _arrive(path, rule, second, k)
        _arrive(path, rule, first, k + 1)


@inlined
def _look(path, ladder, chains, c, i, n_scans):
    """Record where the replicas of a copy are, and what changed at the last level."""
    n_copies, n_levels = ladder.at.shape[1], ladder.at.shape[2]
    bottom, top = ladder.at[c, i, 0], ladder.at[c, i, n_levels - 1]
    ladder.since[c, bottom] = n_scans * n_copies + i
    for j in range(ladder.trips.shape[1]):
        ladder.trips[c, j] += np.int64(ladder.heading[c, bottom, j] == 2)
        ladder.heading[c, bottom, j] = 1
        stay = float(ladder.stay[c, bottom, j])
        ladder.visits[c, 0, j] += stay
        ladder.visits[c, 1, j] += stay * stay
        ladder.stay[c, bottom, j] = 0
        ladder.stay[c, top, j] += 1
        if ladder.heading[c, top, j] == 1:
            ladder.heading[c, top, j] = 2
    place = n_scans % ladder.process.shape[1]
    for k in range(n_levels):
        ladder.process[c, place, ladder.at[c, i, k]] = k
    chain = _replica(ladder, chains, c, top)
    for j in range(chain.x.size):
        if ladder.x[c, i, j] != chain.x[j]:
            ladder.x[c, i, j] = chain.x[j]
            ladder.moved[c, np.int64(first_move(path.inner, np.uint64(j)))] = True


@inlined
def _turn(n_scans, n_copies):
    """Copy that a draw is taken from after a number of scans: the parity of its binary ones.

    So every copy has its turn, whatever the number of scans between draws.
    """
    ones = 0
    while n_scans > 0:
        ones += n_scans & 1
        n_scans >>= 1
    return ones % n_copies


@inlined
def _keep(path, ladder, chains, c, i, draw, levels):
    """Store the states of a copy at all levels, after the swaps: all are of the same scan."""
    for k in range(levels.x.shape[2]):
        which = ladder.at[c, i, k]
        chain = _replica(ladder, chains, c, which)
        for j in range(chain.x.size):
            levels.x[c, draw, k, j] = chain.x[j]
        levels.stats[c, draw, k, 0] = _levels_of(path, chain, 0)[2]
        levels.stats[c, draw, k, 1] = ladder.since[c, which]


@kernel
def scan(
    path, rule, crossing, chains, ladder, c, numbers, coins, shift, scans, draws, stats, levels
):
    """Make scans of ladder c, storing draws from the last level.

    In a scan, each replica makes transitions. Then two copies exchange parts at each level of the
    upper half. Then neighbours swap: pairs with an even lower level in even scans, the others in
    odd ones. ``numbers`` has a row per replica; ``coins`` has a row per scan, with one number per
    copy and pair of levels, used or not, and one per exchange. ``scans`` are `Scans`. ``stats``
    gets log p, and when the replica was last at level 0, which identifies its visit to the last
    level. ``levels`` are `Levels`.
    """
    n_steps, width, before = scans.n_steps, scans.width, scans.before
    thin, made, draw = scans.drawing
    n_copies, n_pairs = ladder.at.shape[1], ladder.at.shape[2] - 1
    for s in range(scans.n):
        for i in range(n_copies):
            where = c, i, s * width, n_steps, width
            _go_on(path, rule, ladder, chains, where, numbers, scans.n_uniforms)
        if n_copies == 2:
            # At lower levels replicas move well alone, and what differs is one part.
            for k in range(1 + n_pairs // 2, n_pairs + 1):
                low, high = ladder.at[c, 0, k], ladder.at[c, 1, k]
                first = _replica(ladder, chains, c, low)
                second = _replica(ladder, chains, c, high)
                u = coins[s, 2 * n_pairs + k - 1]
                size = cross(crossing, path, rule, (first, second), c, k, u)
                hand_over(crossing, size, c, ladder.heading, ladder.stay, low, high)
                ladder.exchanged[c, 0] += np.int64(size > 0)
                ladder.exchanged[c, 1] += 1
        for i in range(n_copies):
            for k in range((before + s) % 2, n_pairs, 2):
                u = coins[s, i * n_pairs + k]
                _swap(path, rule, ladder, chains, c, i, k, u, shift[k])
            _look(path, ladder, chains, c, i, before + s)
        made += 1
        if made == thin:
            i = _turn(before + s, n_copies)
            top = ladder.at[c, i, n_pairs]
            chain = _replica(ladder, chains, c, top)
            for j in range(chain.x.size):
                draws[c, draw, j] = chain.x[j]
            stats[c, draw, 0] = _levels_of(path, chain, n_pairs - 1)[2]
            stats[c, draw, 1] = ladder.since[c, top]
            _keep(path, ladder, chains, c, i, draw, levels)
            made = 0
            draw += 1


@kernel
def gains(path, chains, ladder, c, found):
    """Compute log p of states at the other level of each pair, less log p at their own.

    ``found`` has shape (n_pairs, 2): for the replica at the lower level, and at the upper one.
    """
    for k in range(found.shape[0]):
        low, high, _ = _levels_of(path, _replica(ladder, chains, c, ladder.at[c, 0, k]), k)
        found[k, 0] = high - low
        low, high, _ = _levels_of(path, _replica(ladder, chains, c, ladder.at[c, 0, k + 1]), k)
        found[k, 1] = low - high


@kernel
def start(path, rule, chains, ladder, c, again):
    """Compute what the replicas of ladder c keep; if ``again``, from what they carry."""
    for i in range(ladder.at.shape[1]):
        for k in range(ladder.at.shape[2]):
            chain = _replica(ladder, chains, c, ladder.at[c, i, k])
            view = at_level(path, k)
            init_cache(view, chain)
            if k == 0:
                continue
            if again:
                rebuild(view, rule, chain)
            else:
                prepare(view, rule, chain)

"""The step of `Walkers`, compiled: a second form of ``sklsb/ensembles/_torch/walkers.py``.

Arrays have one row for each chain, and no row depends on another.

Weights are float32 where log-ratios are: functions of the state alone, whatever they are rounded
to, and the acceptance is by the very weights that moves are drawn by, so chains are reversible.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import called, inlined, kernel
from sklsb._kernels.numeric import Table, exp, rough_weight

# Moves whose weights are summed up together.
BLOCK = 8
_SINGLE = np.dtype(np.float32)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class Scratch(NamedTuple):
    """Memory of one thread, a number for each move."""

    logs: NDArray[np.floating]
    knot: NDArray[np.int32]
    beyond: NDArray[np.floating]
    found: NDArray[np.complexfloating]

    @classmethod
    def of(cls, n_moves: int, dtype: np.dtype[Any]) -> "Scratch":
        """Allocate memory for moves whose log-ratios have this type."""
        return cls(
            logs=np.empty(n_moves, dtype),
            knot=np.empty(n_moves, np.int32),
            beyond=np.empty(n_moves, dtype),
            found=np.empty(n_moves, np.result_type(dtype, np.complex64)),
        )


class Weighing(NamedTuple):
    """How first-order log-ratios become weights."""

    # Value and slope of each knot as one complex number, which one instruction fetches. These and
    # ``inverse_step`` have the precision of the log-ratios.
    knots: NDArray[np.complexfloating]
    inverse_step: np.floating
    flat: bool  # whether the table is constant 0
    excluded: NDArray[np.bool_]  # of padded moves; empty if none is
    scratch: Scratch

    @classmethod
    def of(
        cls, table: Table, excluded: NDArray[np.bool_], n_moves: int, dtype: np.dtype[Any]
    ) -> "Weighing":
        """Weigh moves whose log-ratios have this type by a table."""
        scratch = Scratch.of(n_moves, dtype)
        knots = (table.value + 1j * table.slope).astype(scratch.found.dtype)
        inverse_step = dtype.type(table.inverse_step)
        return cls(knots, inverse_step, not knots.any(), excluded, scratch)


class Weighed(NamedTuple):
    """Log-ratios of padded moves, and their weights relative to the largest."""

    ratios: NDArray[np.floating]
    weights: NDArray[np.floating]
    cumulative: NDArray[np.float64]  # sums of weights up to the end of each block of moves
    logs: NDArray[np.float64]  # of the sum of all weights, and of the largest; (n_chains, 2)


class Drawn(NamedTuple):
    """Moves drawn together, and their inverses; all (n_chains, n_flips) but ``active``."""

    move: NDArray[np.int64]
    site: NDArray[np.int64]
    back: NDArray[np.int64]
    weight: NDArray[np.float64]  # of ``move``, relative to the largest
    active: NDArray[np.int64]  # (n_chains,): the first of them that are made


@inlined
def _largest_of(bits, most):
    """Return the bits of the largest of some numbers, but for NaN, from the bits of these.

    Negative numbers are in order as integers once all their bits but the first are turned.
    """
    largest = -most
    for m in range(bits.size):
        largest = max(largest, bits[m] if bits[m] >= 0 else bits[m] ^ most)
    return largest if largest >= 0 else largest ^ most


@called
def _largest(row):
    """Return the largest number of a row, at least -1e30. As integers, for loops that vectorise."""
    largest = -1e30
    if row.dtype == _SINGLE:
        bits = _largest_of(row.view(np.int32), np.int32(0x7FFFFFFF))
        largest = max(largest, np.float64(np.int32(bits).view(np.float32)))
    else:
        bits = _largest_of(row.view(np.int64), np.int64(0x7FFFFFFFFFFFFFFF))
        largest = max(largest, np.int64(bits).view(np.float64))
    return largest


@called
def _accumulate(weights, cumulative):
    """Fill the sums of weights up to the end of each block."""
    real = np.float64
    w, before, whole = weights, 0.0, weights.size // BLOCK
    for b in range(whole):  # sums of blocks do not wait for one another
        k = BLOCK * b
        first = (real(w[k]) + real(w[k + 1])) + (real(w[k + 2]) + real(w[k + 3]))
        last = (real(w[k + 4]) + real(w[k + 5])) + (real(w[k + 6]) + real(w[k + 7]))
        cumulative[b] = first + last
    for b in range(whole):
        before += cumulative[b]
        cumulative[b] = before
    if whole < cumulative.size:
        for m in range(BLOCK * whole, weights.size):
            before += real(weights[m])
        cumulative[whole] = before


@called
def locate(weighing, ratios):
    """Fill usable log-ratios, the knot below each, and the distance beyond it in steps.

    NaN and inf, which there are at impossible states, become 0.
    """
    scratch = weighing.scratch
    u, knot, beyond = scratch.logs, scratch.knot, scratch.beyond
    real = u.dtype.type
    last = real(weighing.knots.size - 1)
    for k in range(u.size):
        u[k] = ratios[k] if ratios[k] < np.inf else real(0.0)
    for k in range(u.size):
        a = abs(u[k]) * weighing.inverse_step
        knot[k] = np.int32(min(a, last))
        beyond[k] = a - real(knot[k])


@called
def _log_weights(weighing, ratios):
    """Fill the log weights of a state's moves; see `numeric.log_weight`.

    Loops of one thought each vectorise, all but that which looks up the knots.
    """
    scratch, excluded = weighing.scratch, weighing.excluded
    w, knot, found, beyond = scratch.logs, scratch.knot, scratch.found, scratch.beyond
    real = w.dtype.type
    if weighing.flat:
        for k in range(w.size):
            w[k] = real(0.5) * (ratios[k] if ratios[k] < np.inf else real(0.0))
    else:
        locate(weighing, ratios)
        for k in range(w.size):
            found[k] = weighing.knots[np.uint64(knot[k])]
        for k in range(w.size):
            u = w[k]
            q = found[k].real + found[k].imag * beyond[k]
            w[k] = real(-np.inf) if u == real(-np.inf) else real(0.5) * u + q
    for k in range(w.size if excluded.size else 0):
        w[k] = real(-np.inf) if excluded[k] else w[k]


@called
def _exponentiate(logs, largest, weights):
    """Fill the weights, relative to the largest, from their logarithms.

    They are 0 or at least exp(-80), or exp(-300) in float64, lest the way back from an improbable
    state be impossible.
    """
    shift = logs.dtype.type(largest)
    if logs.dtype == _SINGLE:
        for k in range(logs.size):
            weights[k] = rough_weight(logs[k] - shift)
    else:
        for k in range(logs.size):
            x = logs[k] - shift
            weights[k] = 0.0 if x == -np.inf else exp(max(x, -300.0))


@called
def _weigh(weighing, weighed, c):
    """Fill the weights of state c, and their sums."""
    logs = weighing.scratch.logs
    _log_weights(weighing, weighed.ratios[c])
    largest = _largest(logs)
    _exponentiate(logs, largest, weighed.weights[c])
    cumulative = weighed.cumulative[c]
    _accumulate(weighed.weights[c], cumulative)
    weighed.logs[c, 0], weighed.logs[c, 1] = np.log(cumulative[-1]), largest


@kernel
def weigh(weighing, weighed):
    """Fill the weights, and their sums."""
    for c in range(weighed.ratios.shape[0]):
        _weigh(weighing, weighed, c)


@called
def _draw(weights, cumulative, wanted, move):
    """Draw moves of one state, possible ones if there are any.

    ``wanted``, uniform numbers, become the weights of the moves. All take each step of the search
    together: none waits for the memory that another reads.
    """
    left = cumulative.size
    for r in range(move.size):
        wanted[r] *= cumulative[-1]
        move[r] = 0
    while left > 1:
        half = left // 2
        for r in range(move.size):
            move[r] += half if cumulative[np.uint64(move[r] + half - 1)] <= wanted[r] else 0
        left -= half
    for r in range(move.size):
        block = move[r]
        rest = wanted[r] - (cumulative[np.uint64(block - 1)] if block > 0 else 0.0)
        first = BLOCK * block
        w = weights[first : min(first + BLOCK, weights.size)]
        total, found = 0.0, 0
        for k in range(w.size):
            total += np.float64(w[k])
            found += np.int64(total <= rest)
        found = min(found, w.size - 1)
        while found > 0 and w[found] == 0.0:  # where sums were rounded
            found -= 1
        move[r], wanted[r] = first + found, w[found]


@kernel
def select(here, numbers, move):
    """Draw moves by uniform numbers, which become their weights."""
    for c in range(move.shape[0]):
        _draw(here.weights[c], here.cumulative[c], numbers[c], move[c])


@called
def _make(x, move, active, per_site, n_values, y, site, back):
    """Make the first ``active`` of some moves of a state together, and find the moves back.

    Moves are numbered by sites of ``n_values``, padded to ``per_site`` moves each.
    """
    for i in range(x.size):
        y[i] = x[i]
    if per_site == 1:
        for r in range(move.size):
            site[r] = back[r] = move[r]
            y[move[r]] ^= np.int64(r < active)
        return
    for r in range(move.size):
        i = site[r] = move[r] // per_site
        if r < active:
            y[i] = (y[i] + _shift(x[i], move[r] - i * per_site)) % n_values[i]
    for r in range(move.size):
        i = site[r]
        now = np.int64(y[i])
        then = (now - _shift(x[i], move[r] - i * per_site)) % n_values[i]
        back[r] = i * per_site + then - np.int64(then > now)


@kernel
def make(x, move, per_site, n_values, y, site, back):
    """Make one move of each state; see `_make`."""
    for c in range(x.shape[0]):
        _make(x[c], move[c], 1, per_site, n_values, y[c], site[c], back[c])


@kernel
def propose(here, x, numbers, lazy, per_site, n_values, y, drawn):
    """Draw the moves of one transition and make them together; see `_make`."""
    n_flips = drawn.move.shape[1]
    for c in range(x.shape[0]):
        active = n_flips - np.int64(n_flips > 1 and numbers[c, n_flips] >= 0.5)
        drawn.active[c] = active
        move, weight = drawn.move[c], drawn.weight[c]
        for r in range(n_flips):
            weight[r] = numbers[c, r]
        if lazy > 0.0:
            weight[0] = min(max((weight[0] - lazy) / (1.0 - lazy), 0.0), 1.0 - 2.0**-53)
        _draw(here.weights[c], here.cumulative[c], weight[:active], move[:active])
        for r in range(active, n_flips):  # an inactive draw stands where an active one does
            move[r], weight[r] = move[0], weight[0]
        _make(x[c], move, active, per_site, n_values, y[c], drawn.site[c], drawn.back[c])


@inlined
def _shift(value, other):
    """Return what a move to an other value adds to a value."""
    value = np.int64(value)
    return other + np.int64(other >= value) - value


@called
def _turn(gradient, x):
    """Give a gradient the signs of the flips of a state."""
    for i in range(x.size):
        gradient[i] = -gradient[i] if x[i] else gradient[i]


@kernel
def decide(weighing, drawn, log_ratio, here, there, unsigned, numbers, lazy, sums):
    """Weigh the moves of the proposed states, and accept or refuse these.

    Log-ratios are gradients along the flips of ``unsigned``, or have their signs if it is empty.
    Where a chain refuses, its rows of ``there`` become those of ``here``. ``sums`` = (acceptance,
    moves made, whether each chain accepts). Returns whether all do.
    """
    acceptance, moved, accepts = sums
    all_accept = True
    for c in range(accepts.size):
        if unsigned.size:
            _turn(there.ratios[c], unsigned[c])
        _weigh(weighing, there, c)
        odds, log_a = 1.0, log_ratio[c]  # those of the weights are multiplied while they fit
        for r in range(drawn.active[c]):
            odds *= np.float64(there.weights[c, drawn.back[c, r]]) / drawn.weight[c, r]
            if not 1e-100 < odds < 1e100:
                odds, log_a = 1.0, log_a + np.log(odds)
        log_a += np.log(odds) + drawn.active[c] * (here.logs[c, 0] - there.logs[c, 0])
        probability = math.exp(min(log_a, 0.0)) if log_a == log_a else 0.0
        if numbers[c, 0] < lazy:
            probability = 0.0
        acceptance[c] += probability
        accepts[c] = numbers[c, -1] < probability
        if accepts[c]:
            for r in range(drawn.move.shape[1]):
                moved[c, drawn.move[c, r]] = True
        else:
            all_accept = False
            for m in range(here.ratios.shape[1]):
                there.ratios[c, m] = here.ratios[c, m]
                there.weights[c, m] = here.weights[c, m]
            for b in range(here.cumulative.shape[1]):
                there.cumulative[c, b] = here.cumulative[c, b]
            there.logs[c, 0], there.logs[c, 1] = here.logs[c, 0], here.logs[c, 1]
    return all_accept


@kernel
def restore(accepts, here, there):
    """Replace rows of chains that refused by those from before."""
    for c in range(accepts.size):
        if not accepts[c]:
            for k in range(here.shape[1]):
                there[c, k] = here[c, k]


@kernel
def along_flips(gradient, x, largest):
    """Give a gradient the signs of the flips, within limits; 0 where it is not finite."""
    real = gradient.dtype.type
    most = real(largest)
    for c in range(x.shape[0]):
        for i in range(x.shape[1]):
            u = gradient[c, i]
            gradient[c, i] = min(max(u if abs(u) < real(np.inf) else real(0.0), -most), most)
        _turn(gradient[c], x[c])


@kernel
def expand(uniforms, out):
    """Fill out[c, t] with n_flips + 2 numbers from the pairs uniforms[c, t].

    The first is the key of the others but the last by Philox 4x32-10 (Salmon et al., 2011), as in
    ``philox.py``; the last is the second of the pair.
    """
    n = out.shape[2] - 1
    for c in range(out.shape[0]):
        for t in range(out.shape[1]):
            u = uniforms[c, t, 0]
            out[c, t, 0], out[c, t, n] = u, uniforms[c, t, 1]
            bits = np.uint64(u * 2.0**53)
            n_counts = n // 2
            for count in range(n_counts):
                w0, w1, w2, w3 = _philox(np.uint64(count), bits & _LOW, bits >> _HALF)
                out[c, t, 1 + count] = _uniform(w0, w1)
                if 1 + n_counts + count < n:
                    out[c, t, 1 + n_counts + count] = _uniform(w2, w3)


@inlined
def _philox(a, k0, k1):
    """Return four words for a counter (a, 0, 0, 0) and a key."""
    b, c, d = np.uint64(0), np.uint64(0), np.uint64(0)
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b = (second >> _HALF) ^ b ^ k0, second & _LOW
        c, d = (first >> _HALF) ^ d ^ k1, first & _LOW
        k0 = (k0 + np.uint64(0x9E3779B9)) & _LOW
        k1 = (k1 + np.uint64(0xBB67AE85)) & _LOW
    return a, b, c, d


@inlined
def _uniform(high, low):
    """Return a number in [0, 1) of 53 bits from two words."""
    bits = (high >> np.uint64(5)) * np.uint64(1 << 26) + (low >> np.uint64(6))
    return np.float64(bits) * 2.0**-53

"""Marginals: probabilities of the cliques, from the last bucket to the first."""

import numpy as np

from sklsb._kernels._jit import inlined, kernel
from sklsb._kernels.elimination.buckets import CONSTANT, LINEAR, RUN
from sklsb._kernels.elimination.draws import exponentiate
from sklsb._kernels.elimination.messages import advance, count_from, join_block
from sklsb._kernels.numeric import add_up


@inlined
def _is_zero(memory, at, n):
    j = 0
    while j < n and memory[np.uint64(at + j)] == 0.0:
        j += 1
    return j == n


@inlined
def _share_out(memory, at, room, k, n):
    """Turn the weights of a variable's values into probabilities that sum to the belief."""
    o, ratio = np.uint64(at), room.top
    for j in range(n):
        ratio[j] = room.block[j]
    for v in range(1, k):
        row = room.block[v * n : (v + 1) * n]
        for j in range(n):
            ratio[j] += row[j]
    for j in range(n):
        total = ratio[j]
        ratio[j] = memory[o + np.uint64(j)] / (total if total > 0.0 else np.inf)
    for v in range(k):
        row = room.block[v * n : (v + 1) * n]
        for j in range(n):
            row[j] *= ratio[j]


@inlined
def _pass_on(buckets, memory, room, i, f, v, values, total):
    """Add a row of probabilities, with its sum, to the belief of the sender of a factor."""
    n, sender, start = values.size, buckets.sender[f], buckets.offset_start[f]
    if sender < 0:
        return
    shift = buckets.belief[sender] - buckets.message[sender] + v * buckets.own_stride[f]
    at = np.uint64(np.int64(room.at[f - buckets.factor_start[i]]) + shift)
    if start == CONSTANT:
        memory[at] += total
    elif start == RUN:
        for j in range(n):
            memory[at + np.uint64(j)] += values[j]
    else:
        first = np.uint64(start)
        for j in range(n):
            memory[at + np.uint64(buckets.offset[first + np.uint64(j)])] += values[j]


@kernel
def clear_below(buckets, memory, i):
    """Set the beliefs below a bucket to zero: until now, other arrays may have lain there."""
    for f in range(buckets.factor_start[i], buckets.factor_start[i + 1]):
        sender = buckets.sender[f]
        if sender >= 0:
            first = buckets.belief[sender]
            for j in range(buckets.message_size[sender]):
                memory[np.uint64(first + j)] = 0.0


@inlined
def _release(buckets, memory, room, i):
    """Add the probabilities kept to the beliefs of the senders of scattered factors."""
    n = buckets.inner_size[i]
    for v in range(buckets.k[i]):
        row = room.kept[v * n : (v + 1) * n]
        for f in range(buckets.scattered_start[i], buckets.factor_start[i + 1]):
            _pass_on(buckets, memory, room, i, f, v, row, 0.0)
        for j in range(n):
            row[j] = 0.0


@inlined
def _spread_block(buckets, memory, at, room, marginal, i, mode):
    """Pass on the block of a belief that begins at a position."""
    k, n, scattered = buckets.k[i], buckets.inner_size[i], buckets.scattered_start[i]
    if mode != LINEAR:
        exponentiate(room.block[: k * n].reshape(k, n), k, n)
    _share_out(memory, at, room, k, n)
    for v in range(k):
        row = room.block[v * n : (v + 1) * n]
        total = add_up(row)
        marginal[v] += total
        for f in range(buckets.factor_start[i], scattered):
            _pass_on(buckets, memory, room, i, f, v, row, total)
    if scattered < buckets.factor_start[i + 1]:
        for j in range(k * n):
            room.kept[j] += room.block[j]


@inlined
def _spread_blocks(buckets, memory, base, room, marginal, i, first, last, mode):
    """Pass on blocks first, ..., last - 1 of the belief of a bucket."""
    n, n_factors = buckets.inner_size[i], buckets.factor_start[i + 1] - buckets.factor_start[i]
    keeps = buckets.scattered_start[i] < buckets.factor_start[i + 1]
    count_from(buckets, base, room, i, first)
    fresh = True
    for block in range(first, last):
        fresh = fresh or block % buckets.period[i] == 0
        at = buckets.belief[i] + np.int64(room.at[n_factors])
        if not _is_zero(memory, at, n):
            join_block(buckets, memory, room, i, fresh, mode)
            fresh = False
            _spread_block(buckets, memory, at, room, marginal, i, mode)
        if keeps and ((block + 1) % buckets.period[i] == 0 or block + 1 == last):
            _release(buckets, memory, room, i)
        advance(buckets, room, i)


@kernel
def spread(buckets, memory, base, room, marginal, wanted, span, blocks, mode):
    """Pass the belief of each wanted bucket, in memory, on to those whose messages it joins.

    ``span`` = (first, end) is gone through backward. Beliefs are 1 at the roots. ``blocks`` =
    (first, last) are those of a belief to pass on; threads may pass on others at once, in rooms of
    their own. If last is -1, all are, after the beliefs below were cleared. ``marginal`` of shape
    (variables, largest number of values) is added to; with some blocks, of the only bucket, it has
    one row. Returns the number of entries passed on.
    """
    made, (first, last) = 0, blocks
    for i in range(span[1] - 1, span[0] - 1, -1):
        # The joint distribution of the neighbours of barren variables is unknown.
        if buckets.message[i] >= 0 and wanted[i]:
            row, end = marginal[0], last
            if last < 0:
                clear_below(buckets, memory, i)
                row = marginal[buckets.variable[i]]
                end = buckets.message_size[i] // buckets.inner_size[i]
            made += (end - first) * buckets.inner_size[i] * buckets.k[i]
            _spread_blocks(buckets, memory, base, room, row, i, first, end, mode)
    return made

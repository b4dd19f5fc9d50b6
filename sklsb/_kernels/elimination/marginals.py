"""Marginals: probabilities of the cliques, from the last bucket to the first."""

import math

import numpy as np

from sklsb._kernels._jit import inlined, kernel
from sklsb._kernels.elimination.buckets import LINEAR
from sklsb._kernels.elimination.messages import advance, count_from


@inlined
def _weigh(buckets, memory, room, n_factors, k, mode):
    """Compute unnormalised conditional probabilities of a variable's values; return their sum."""
    total = 0.0
    for v in range(k):
        weight = 1.0 if mode == LINEAR else 0.0
        for q in range(n_factors):
            at = room.at[q] + np.uint64(v * buckets.own_stride[room.kind[q]])
            weight = weight * memory[at] if mode == LINEAR else weight + memory[at]
        room.outer[v] = weight
        total += weight
    if mode != LINEAR:
        top = -np.inf
        for v in range(k):
            top = max(top, room.outer[v])
        total = 0.0
        for v in range(k):
            room.outer[v] = math.exp(room.outer[v] - top) if top > -np.inf else 0.0
            total += room.outer[v]
    return total


@kernel
def spread(buckets, memory, base, room, marginal, progress, settings):
    """Pass the belief of each bucket, in memory, on to the buckets whose messages it joins.

    Beliefs are 1 at the roots. ``marginal`` of shape (variables, largest number of values) is added
    to. ``progress`` = (bucket, entry, last bucket), from the first bucket down; ``settings`` = (way
    of joining, entries per call). Returns the number of entries passed on.
    """
    mode, budget = settings
    i, entry, spent, made = progress[0], progress[1], 0, 0
    while i >= progress[2] and spent < budget:
        if buckets.message[i] < 0:  # barren: the joint distribution of its neighbours is unknown
            i -= 1
            continue
        first = buckets.factor_start[i]
        n_factors = buckets.factor_start[i + 1] - first
        axes = buckets.axis_start[i + 1] - buckets.axis_start[i]
        k, size, mine = buckets.k[i], buckets.message_size[i], buckets.belief[i]
        for q in range(n_factors):
            room.kind[q] = first + q
            sender = buckets.sender[first + q]
            if entry == 0 and sender >= 0:  # until now, other arrays may have lain there
                below = buckets.belief[sender]
                memory[below : below + buckets.message_size[sender]] = 0.0
        count_from(buckets, base, room, i, n_factors, axes, entry)
        while entry < size and spent < budget:
            p = memory[np.uint64(mine + entry)]
            total = _weigh(buckets, memory, room, n_factors, k, mode) if p > 0.0 else 0.0
            if total > 0.0:
                scale = p / total
                for v in range(k):
                    weight = room.outer[v] * scale
                    marginal[buckets.variable[i], v] += weight
                    for q in range(n_factors):
                        f = first + q
                        sender = buckets.sender[f]
                        if sender >= 0:
                            at = np.int64(room.at[q]) + v * buckets.own_stride[f]
                            at += buckets.belief[sender] - buckets.message[sender]
                            memory[np.uint64(at)] += weight
            advance(buckets, room, i, n_factors, axes)
            entry += 1
            spent += k
            made += k
        spent += 64
        if entry == size:
            i, entry = i - 1, 0
    progress[0], progress[1] = i, entry
    return made

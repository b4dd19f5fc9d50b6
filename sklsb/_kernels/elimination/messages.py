"""Messages of bucket elimination: tables are joined, and a variable is summed out of them."""

import math

import numpy as np

from sklsb._kernels._jit import inlined, kernel
from sklsb._kernels.elimination.buckets import LINEAR, MAX

# Log2 of the smallest float of full precision.
SMALLEST = -1022.0


@inlined
def place(buckets, x, base):
    """Compute where each factor begins, given the values of the variables conditioned on."""
    for f in range(buckets.position.size):
        at = buckets.position[f]
        for g in range(buckets.given_start[f], buckets.given_start[f + 1]):
            at += buckets.given_stride[g] * x[buckets.given_variable[g]]
        base[f] = at


@kernel
def place_all(buckets, x, base):
    """Call `place` from Python."""
    place(buckets, x, base)


@inlined
def _join(one, other, mode):
    return one * other if mode == LINEAR else one + other


@inlined
def _sort_factors(buckets, i, room):
    """Sort the factors of a bucket into ``room.kind``; return how many vary between blocks.

    Those come first.
    """
    outer_axes = buckets.axis_start[i + 1] - buckets.axis_start[i] - buckets.inner_axes[i]
    first, last = buckets.factor_start[i], buckets.factor_start[i + 1]
    n, back = 0, last - first
    for f in range(first, last):
        varies = False
        for a in range(outer_axes):
            if buckets.stride[buckets.stride_start[f] + a] != 0:
                varies = True
        if varies:
            room.kind[n] = f
            n += 1
        else:
            back -= 1
            room.kind[back] = f
    return n


@inlined
def _join_block(memory, offset, at, start, values, n, mode):
    """Join a table with a block."""
    q, o = np.uint64(start), np.uint64(at)
    if mode == LINEAR:
        for j in range(n):
            values[j] *= memory[o + np.uint64(offset[q + np.uint64(j)])]
    else:
        for j in range(n):
            values[j] += memory[o + np.uint64(offset[q + np.uint64(j)])]


@inlined
def _join_value(memory, at, stride, values, k, mode):
    """Join a table that depends only on the variable of the bucket."""
    for v in range(k):
        values[v] = _join(values[v], memory[np.uint64(at + v * stride)], mode)


@inlined
def _prepare_common(buckets, memory, base, room, i, n_varying, mode):
    """Join the factors that do not vary between blocks."""
    k, n = buckets.k[i], buckets.inner_size[i]
    neutral = 1.0 if mode == LINEAR else 0.0
    for v in range(k):
        room.outer[v] = neutral
    n_factors = buckets.factor_start[i + 1] - buckets.factor_start[i]
    for q in range(n_varying, n_factors):
        f = room.kind[q]
        if buckets.offset_start[f] < 0:
            _join_value(memory, base[f], buckets.own_stride[f], room.outer, k, mode)
    for v in range(k):
        for j in range(n):
            room.common[v * n + j] = room.outer[v]
    for q in range(n_varying, n_factors):
        f = room.kind[q]
        start = buckets.offset_start[f]
        if start >= 0:
            _join_block(memory, buckets.offset, base[f], start, room.common, k * n, mode)


@inlined
def count_from(buckets, base, room, i, n_factors, axes, index):
    """Set the counter of a bucket's first axes, and the positions of its factors, to an index.

    Also sets the steps: changes of a position when an axis advances and all after it restart.
    """
    start = buckets.axis_start[i]
    for a in range(axes - 1, -1, -1):
        size = buckets.axis_k[start + a]
        room.counter[a] = index % size
        index //= size
    for q in range(n_factors):
        f = room.kind[q]
        at, back = base[f], 0
        for a in range(axes - 1, -1, -1):
            stride = buckets.stride[buckets.stride_start[f] + a]
            at += stride * room.counter[a]
            room.step[q, a] = stride - back
            back += stride * (buckets.axis_k[start + a] - 1)
        room.at[q] = np.uint64(at)


@inlined
def advance(buckets, room, i, n_factors, axes):
    """Go on to the next index."""
    start = buckets.axis_start[i]
    a = axes - 1
    while a >= 0:
        room.counter[a] += 1
        if room.counter[a] < buckets.axis_k[start + a]:
            break
        room.counter[a] = 0
        a -= 1
    if a >= 0:
        for q in range(n_factors):
            room.at[q] += np.uint64(room.step[q, a])


@inlined
def _sum_out(values, k, n, mode):
    """Sum, or maximise, over the values of the variable; the result is put first."""
    if mode == LINEAR:
        for v in range(1, k):
            for j in range(n):
                values[j] += values[v * n + j]
        return
    for j in range(n):
        top = values[j]
        for v in range(1, k):
            top = max(top, values[v * n + j])
        if mode != MAX and top > -np.inf:
            total = 0.0
            for v in range(k):
                total += math.exp(values[v * n + j] - top)
            top += math.log(total)
        values[j] = top


@inlined
def _make_block(buckets, memory, room, i, n_varying, out, mode):
    """Make one block of a message; ``room.top`` keeps the largest entry."""
    k, n = buckets.k[i], buckets.inner_size[i]
    neutral = 1.0 if mode == LINEAR else 0.0
    for v in range(k):
        room.outer[v] = neutral
    for q in range(n_varying):
        f = room.kind[q]
        if buckets.offset_start[f] < 0:
            _join_value(memory, np.int64(room.at[q]), buckets.own_stride[f], room.outer, k, mode)
    for v in range(k):
        factor = room.outer[v]
        for j in range(n):
            room.block[v * n + j] = _join(room.common[v * n + j], factor, mode)
    for q in range(n_varying):
        start = buckets.offset_start[room.kind[q]]
        if start >= 0:
            _join_block(memory, buckets.offset, room.at[q], start, room.block, k * n, mode)
    _sum_out(room.block, k, n, mode)
    top = room.top[0]
    for j in range(n):
        memory[np.uint64(out + j)] = room.block[j]
        top = max(top, room.block[j])
    room.top[0] = top


@inlined
def _rescale(memory, first, size, top):
    """Divide a message by the power of two above its largest entry; return the exponent."""
    exponent = math.frexp(top)[1]
    if exponent != 0:
        scale = math.ldexp(1.0, -exponent)
        for j in range(size):
            memory[np.uint64(first + j)] *= scale
    return exponent


@kernel
def send(buckets, memory, base, room, exponents, progress, mode, budget):
    """Make messages, bucket by bucket, about ``budget`` entries per call.

    ``progress`` = (bucket, block, 1 if a message is all zero, end of the buckets), where the next
    call continues.
    ``exponents`` gets the power of two that each message was divided by. Returns the number of
    entries made; each bucket counts 64 more against the budget.
    """
    i, block, spent, made = progress[0], progress[1], 0, 0
    while i < progress[3] and spent < budget and progress[2] == 0:
        if buckets.message[i] < 0:
            i += 1
            continue
        n = buckets.inner_size[i]
        n_blocks = buckets.message_size[i] // n
        axes = buckets.axis_start[i + 1] - buckets.axis_start[i] - buckets.inner_axes[i]
        n_varying = _sort_factors(buckets, i, room)
        _prepare_common(buckets, memory, base, room, i, n_varying, mode)
        count_from(buckets, base, room, i, n_varying, axes, block)
        if block == 0:
            room.top[0] = 0.0 if mode == LINEAR else -np.inf
        while block < n_blocks and spent < budget:
            out = buckets.message[i] + block * n
            _make_block(buckets, memory, room, i, n_varying, out, mode)
            advance(buckets, room, i, n_varying, axes)
            block += 1
            spent += n * buckets.k[i]
            made += n * buckets.k[i]
        spent += 64
        if block == n_blocks:
            top = room.top[0]
            if not top > (0.0 if mode == LINEAR else -np.inf):
                progress[2] = 1
                break
            if mode == LINEAR:
                size = buckets.message_size[i]
                exponents[i] = _rescale(memory, buckets.message[i], size, top)
            i, block = i + 1, 0
    progress[0], progress[1] = i, block
    return made


@inlined
def _add_logs(a, b):
    """Log2 of 2**a + 2**b."""
    high, low = max(a, b), min(a, b)
    return high + math.log1p(2.0 ** (low - high)) / math.log(2.0) if low > -np.inf else high


@kernel
def bound_lost(buckets, least_of_table, exponents, n, bounds):
    """Bound what underflow has lost of the messages of the first n buckets, in log2.

    ``least_of_table`` is the smallest nonzero entry of each table. ``bounds`` gets, for each
    bucket, the smallest nonzero entry of its message and what it has lost, both relative to its
    largest entry. Returns the smallest nonzero product in the next bucket.
    """
    least, lost = bounds
    low = 0.0
    for i in range(min(n + 1, buckets.variable.size)):
        low, gone = 0.0, -np.inf
        for f in range(buckets.factor_start[i], buckets.factor_start[i + 1]):
            sender = buckets.sender[f]
            if sender < 0:
                low += least_of_table[f]
            else:
                low += least[sender]
                gone = _add_logs(gone, lost[sender])
        if low < SMALLEST:
            n_factors = buckets.factor_start[i + 1] - buckets.factor_start[i]
            gone = _add_logs(gone, SMALLEST + math.log2(2.0 * n_factors + 1.0))
        least[i] = low - exponents[i]
        lost[i] = gone + math.log2(float(buckets.k[i])) + 1.0 - exponents[i]
    return low

"""Messages of bucket elimination: tables are joined, and a variable is summed out of them."""

import math

import numpy as np

from sklsb._kernels._jit import inlined, kernel
from sklsb._kernels.elimination.buckets import CONSTANT, LARGE, LINEAR, MAX, RUN

# Log2 of the smallest float of full precision.
SMALLEST = -1022.0


@kernel
def place(buckets, x, base):
    """Compute where each factor begins, given the values of the variables conditioned on."""
    for f in range(buckets.position.size):
        at = buckets.position[f]
        for g in range(buckets.given_start[f], buckets.given_start[f + 1]):
            at += buckets.given_stride[g] * x[buckets.given_variable[g]]
        base[f] = at


@inlined
def outer_axes(buckets, i):
    """Return how many axes of a bucket's message lead from block to block."""
    return buckets.axis_start[i + 1] - buckets.axis_start[i] - buckets.inner_axes[i]


@inlined
def _begin(source, at, constant, values, n, mode):
    """Join a run of entries with a constant."""
    o = np.uint64(at)
    if mode == LINEAR:
        for j in range(n):
            values[j] = constant * source[o + np.uint64(j)]
    else:
        for j in range(n):
            values[j] = constant + source[o + np.uint64(j)]


@inlined
def _join_run(memory, at, values, n, mode):
    """Join a factor whose entries follow one another with a row of a block."""
    o = np.uint64(at)
    if mode == LINEAR:
        for j in range(n):
            values[j] *= memory[o + np.uint64(j)]
    else:
        for j in range(n):
            values[j] += memory[o + np.uint64(j)]


@inlined
def _join_scattered(memory, offset, start, at, values, n, mode):
    """Join a factor by the offsets of its entries with a row of a block."""
    q, o = np.uint64(start), np.uint64(at)
    if mode == LINEAR:
        for j in range(n):
            values[j] *= memory[o + np.uint64(offset[q + np.uint64(j)])]
    else:
        for j in range(n):
            values[j] += memory[o + np.uint64(offset[q + np.uint64(j)])]


@inlined
def _join_row(buckets, memory, room, i, part, v, values, n, mode):
    """Join factors of a bucket, at one value of its variable, into a row of a block.

    ``part`` = (first, last, whether the row in ``room.common`` is joined too).
    """
    first, last, begun = part
    constant = 1.0 if mode == LINEAR else 0.0
    f = first
    while f < last and buckets.offset_start[f] == CONSTANT:
        entry = memory[_position(buckets, room, i, f, v)]
        constant = constant * entry if mode == LINEAR else constant + entry
        f += 1
    if begun:
        _begin(room.common, v * n, constant, values, n, mode)
    elif f < last and buckets.offset_start[f] == RUN:
        _begin(memory, _position(buckets, room, i, f, v), constant, values, n, mode)
        f += 1
    else:
        for j in range(n):
            values[j] = constant
    while f < last and buckets.offset_start[f] == RUN:
        _join_run(memory, _position(buckets, room, i, f, v), values, n, mode)
        f += 1
    for g in range(f, last):
        start, at = buckets.offset_start[g], _position(buckets, room, i, g, v)
        _join_scattered(memory, buckets.offset, start, at, values, n, mode)


@inlined
def _position(buckets, room, i, f, v):
    """Return where a factor's entries at a value begin in the present block."""
    return room.at[f - buckets.factor_start[i]] + np.uint64(v * buckets.own_stride[f])


@inlined
def join_block(buckets, memory, room, i, fresh, mode):
    """Join all factors in one block, where ``room.at`` is, into the rows of ``room.block``.

    If ``fresh``, the scattered ones are joined anew.
    """
    n, k = buckets.inner_size[i], buckets.k[i]
    first, last = buckets.factor_start[i], buckets.factor_start[i + 1]
    middle = buckets.scattered_start[i]
    if fresh and middle < last:
        for v in range(k):  # not begun: the constant False would compile another version
            row = room.common[v * n : (v + 1) * n]
            _join_row(buckets, memory, room, i, (middle, last, last < middle), v, row, n, mode)
    for v in range(k):
        row = room.block[v * n : (v + 1) * n]
        _join_row(buckets, memory, room, i, (first, middle, middle < last), v, row, n, mode)


@inlined
def count_from(buckets, base, room, i, index):
    """Set the counter of a bucket's outer axes, and all positions, to a block.

    Also sets the steps: changes of a position when an axis advances and all after it restart.
    """
    start, axes = buckets.axis_start[i], outer_axes(buckets, i)
    first = buckets.factor_start[i]
    n_factors = buckets.factor_start[i + 1] - first
    for a in range(axes - 1, -1, -1):
        size = buckets.axis_k[start + a]
        room.counter[a] = index % size
        index //= size
    for q in range(n_factors + 1):
        at = base[first + q] if q < n_factors else 0
        strides = buckets.stride_start[first + q] if q < n_factors else 0
        back = 0
        for a in range(axes - 1, -1, -1):
            stride = buckets.axis_stride[start + a]
            if q < n_factors:
                stride = buckets.stride[strides + a]
            at += stride * room.counter[a]
            room.step[q, a] = stride - back
            back += stride * (buckets.axis_k[start + a] - 1)
        room.at[q] = np.uint64(at)


@inlined
def advance(buckets, room, i):
    """Go on to the next block."""
    start, a = buckets.axis_start[i], outer_axes(buckets, i) - 1
    while a >= 0:
        room.counter[a] += 1
        if room.counter[a] < buckets.axis_k[start + a]:
            break
        room.counter[a] = 0
        a -= 1
    if a >= 0:
        for q in range(buckets.factor_start[i + 1] - buckets.factor_start[i] + 1):
            room.at[q] += np.uint64(room.step[q, a])


@inlined
def _sum_out(values, k, n, mode):
    """Sum, or maximise, over the values of the variable; the result is put first."""
    if mode == LINEAR:
        for v in range(1, k):
            row = values[v * n : (v + 1) * n]
            for j in range(n):
                values[j] += row[j]
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
def _store(memory, out, room, n, scale):
    """Store one block of a message; ``room`` keeps the largest and the smallest entries."""
    o = np.uint64(out)
    for j in range(n):
        entry = room.block[j] * scale
        memory[o + np.uint64(j)] = entry
        room.top[j] = entry if entry > room.top[j] else room.top[j]
        room.least[j] = entry if 0.0 < entry < room.least[j] else room.least[j]


@inlined
def _halvings(buckets, i):
    """How often a large message is halved, so that sums of entries of at most 1 are at most 1."""
    n = 0
    if buckets.message_size[i] >= LARGE:
        while (1 << n) < buckets.k[i]:
            n += 1
    return n


@inlined
def _rescale(memory, first, size, top):
    """Divide a message by the power of two above its largest entry; return the exponent.

    Large messages stay as they are if the exponent is small.
    """
    exponent = max(math.frexp(top)[1], -1022)  # below, the scale would be infinite
    if exponent == 0 or (size >= LARGE and exponent > -16):
        return 0
    scale = math.ldexp(1.0, -exponent)
    for j in range(size):
        memory[np.uint64(first + j)] *= scale
    return exponent


@inlined
def _send_blocks(buckets, memory, base, room, i, first, last, mode):
    """Make blocks first, ..., last - 1 of a message."""
    k, n = buckets.k[i], buckets.inner_size[i]
    n_factors = buckets.factor_start[i + 1] - buckets.factor_start[i]
    count_from(buckets, base, room, i, first)
    scale = math.ldexp(1.0, -_halvings(buckets, i)) if mode == LINEAR else 1.0
    for block in range(first, last):
        fresh = block == first or block % buckets.period[i] == 0
        join_block(buckets, memory, room, i, fresh, mode)
        _sum_out(room.block, k, n, mode)
        _store(memory, buckets.message[i] + np.int64(room.at[n_factors]), room, n, scale)
        advance(buckets, room, i)


@inlined
def _forget_range(room, n, mode):
    for j in range(n):
        room.top[j] = 0.0 if mode == LINEAR else -np.inf
        room.least[j] = np.inf


@kernel
def finish(buckets, memory, room, scales, i, mode):
    """Scale a message by its largest entry, which is in ``room``; return whether it is all zero."""
    nothing = 0.0 if mode == LINEAR else -np.inf
    top, least = nothing, np.inf
    for j in range(buckets.inner_size[i]):
        top, least = max(top, room.top[j]), min(least, room.least[j])
    if not top > nothing:
        return True
    if mode == LINEAR:
        exponent = _rescale(memory, buckets.message[i], buckets.message_size[i], top)
        scales[0, i] = _halvings(buckets, i) + exponent
        scales[1, i] = math.log2(least) - exponent
    return False


@kernel
def send(buckets, memory, base, room, scales, stale, span, blocks, mode):
    """Make the messages of ``stale`` buckets, ``span`` = (first, end), one by one.

    ``blocks`` = (first, last) are those of a message to make; threads may make others at once, in
    rooms of their own. If last is -1, all are made, and each message is scaled by its largest
    entry: ``scales`` gets the power of two that it was divided by, and log2 of its smallest entry
    above 0. Returns the number of entries made, and the bucket whose message is all zero, where it
    ends, or -1.
    """
    made, (first, last) = 0, blocks
    for i in range(span[0], span[1]):
        if buckets.message[i] >= 0 and stale[i]:
            n = buckets.inner_size[i]
            end = buckets.message_size[i] // n if last < 0 else last
            made += (end - first) * n * buckets.k[i]
            _forget_range(room, n, mode)
            _send_blocks(buckets, memory, base, room, i, first, end, mode)
            if last < 0 and finish(buckets, memory, room, scales, i, mode):
                return made, i
    return made, -1


@inlined
def _add_logs(a, b):
    """Log2 of 2**a + 2**b."""
    high, low = max(a, b), min(a, b)
    return high + math.log1p(2.0 ** (low - high)) / math.log(2.0) if low > -np.inf else high


@kernel
def bound_lost(buckets, least_of_table, scales, n, lost):
    """Bound what underflow has lost of the messages of the first n buckets, in log2.

    ``least_of_table`` is the smallest nonzero entry of each table; ``scales`` as in `send`.
    ``lost`` gets what each message has lost, as stored, where no entry is above 1. Returns the
    smallest nonzero product in the next bucket, as halved there.
    """
    low = 0.0
    for i in range(min(n + 1, buckets.variable.size)):
        halvings = _halvings(buckets, i)
        low, gone = -float(halvings), -np.inf
        for f in range(buckets.factor_start[i], buckets.factor_start[i + 1]):
            sender = buckets.sender[f]
            if sender < 0:
                low += least_of_table[f]
            else:
                low += scales[1, sender]
                gone = _add_logs(gone, lost[sender])
        if low < SMALLEST:
            n_factors = buckets.factor_start[i + 1] - buckets.factor_start[i]
            own = SMALLEST + halvings + math.log2(2.0 * n_factors + 1.0)
            gone = _add_logs(gone, own)
        lost[i] = gone + math.log2(float(buckets.k[i])) + 1.0 - scales[0, i]
    return low

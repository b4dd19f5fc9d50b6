"""Models and orders as the kernels of elimination see them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
# Most entries of a message that are made together, and draws made together.
BLOCK = 128
BATCH = 128
# How tables are joined and summed out: products and sums, the same as logarithms, or sums and
# maxima of logarithms.
LINEAR, LOG, MAX = 0, 1, 2
# How values are chosen on the way back: drawn, most probable, or those of a given state.
DRAW, LARGEST, FOLLOW = 0, 1, 2


class Buckets(NamedTuple):
    """One bucket per variable, in the order of elimination.

    A bucket holds the tables and messages that are joined before its variable is summed out. The
    axes of its message are their other variables, the one eliminated last first. Memory holds the
    tables, the messages, and on the way back the joint probabilities of the axes of each message,
    its belief, all flat; a position is an index into it.
    """

    variable: Int64
    k: Int64  # its number of values
    message: Int64  # position; -1 if constant and not made
    belief: Int64  # position of the belief, with axes like the message's; -1 if there is none
    message_size: Int64
    inner_axes: Int64  # number of last axes of the message whose entries are made together
    inner_size: Int64
    row_sum: Float64  # for a constant message: the largest row sum of its table; else 0
    axis_start: Int64  # of each bucket, with the end
    axis_variable: Int64
    axis_k: Int64
    factor_start: Int64  # of each bucket, with the end
    position: Int64  # of each factor: a table or a message
    sender: Int64  # the bucket that sent it; -1 for a table
    own_stride: Int64  # of the variable of the bucket
    stride_start: Int64
    stride: Int64  # of the axes of the message
    offset_start: Int64  # into ``offset``; -1 for a factor without inner axes
    offset: NDArray[np.uint32]  # of each value and entry of a block, relative to the first
    given_start: Int64  # of each factor, with the end
    given_variable: Int64  # in its scope, conditioned on
    given_stride: Int64


class Room(NamedTuple):
    """Memory for the work on one bucket."""

    block: Float64  # (largest k * BLOCK,)
    common: Float64  # what all blocks have in common
    outer: Float64  # (largest k,)
    at: NDArray[np.uint64]  # (most factors,) positions
    kind: Int64  # (most factors,) factors of a bucket, those that vary between blocks first
    counter: Int64  # (most axes,)
    step: Int64  # (most factors, most axes) what is added to a position when an axis advances
    top: Float64  # (1,) largest entry so far
    weight: Float64  # (largest k, BATCH)
    place: NDArray[np.uint32]  # (BATCH,)


def new_room(buckets: Buckets) -> Room:
    k = int(buckets.k.max(initial=1))
    factors = int(np.diff(buckets.factor_start).max(initial=0)) + 1
    axes = int(np.diff(buckets.axis_start).max(initial=0)) + 1
    return Room(
        block=np.empty(k * BLOCK),
        common=np.empty(k * BLOCK),
        outer=np.empty(k),
        at=np.zeros(factors, np.uint64),
        kind=np.zeros(factors, np.int64),
        counter=np.zeros(axes, np.int64),
        step=np.zeros((factors, axes), np.int64),
        top=np.zeros(1),
        weight=np.empty((k, BATCH)),
        place=np.zeros(BATCH, np.uint32),
    )

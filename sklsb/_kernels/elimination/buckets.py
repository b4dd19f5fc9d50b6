"""Models and orders as the kernels of elimination see them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
# Draws made together.
BATCH = 128
# How tables are joined and summed out: products and sums, the same as logarithms, or sums and
# maxima of logarithms.
LINEAR, LOG, MAX = 0, 1, 2
# A factor whose entries are the same throughout a block, or follow one another in it.
CONSTANT, RUN = -1, -2
# Messages of at least so many entries stay as they are if their largest entry is at least 2**-16:
# to scale them by another power of two would take as long as to make them.
LARGE = 1 << 12
# How values are chosen on the way back: drawn, most probable, or those of a given state.
DRAW, LARGEST, FOLLOW = 0, 1, 2


class Buckets(NamedTuple):
    """One bucket per variable, in the order of elimination.

    A bucket holds the tables and messages that are joined before its variable is summed out. The
    axes of its message are their other variables. Memory holds the tables, the messages, and on the
    way back the joint probabilities of the axes of each message, its belief, all flat; a position
    is an index into it.
    """

    variable: Int64
    k: Int64  # its number of values
    message: Int64  # position; -1 if constant and not made
    belief: Int64  # position of the belief, with axes like the message's; -1 if there is none
    message_size: Int64
    inner_axes: Int64  # number of last axes of the message whose entries are made together
    inner_size: Int64
    period: Int64  # how many successive blocks have the scattered factors in common
    row_sum: Float64  # for a constant message: the largest row sum of its table; else 0
    axis_start: Int64  # of each bucket, with the end
    axis_variable: Int64  # in the order in which they are gone through, the slowest first
    axis_k: Int64
    axis_stride: Int64  # in the message
    factor_start: Int64  # of each bucket, with the end; constant factors first, scattered ones last
    scattered_start: Int64  # of each bucket: its first factor joined once for many blocks
    position: Int64  # of each factor: a table or a message
    sender: Int64  # the bucket that sent it; -1 for a table
    own_stride: Int64  # of the variable of the bucket
    stride_start: Int64
    stride: Int64  # of the axes of the message
    offset_start: Int64  # into ``offset``, or CONSTANT or RUN
    offset: NDArray[np.uint32]  # of each entry of a block, relative to the first
    given_start: Int64  # of each factor, with the end
    given_variable: Int64  # in its scope, conditioned on
    given_stride: Int64


class Room(NamedTuple):
    """Memory for the work on one bucket."""

    block: Float64  # (largest k * inner_size,) one row for each value of the variable
    common: Float64  # what successive blocks have in common
    kept: Float64  # sums of successive blocks on the way back
    at: NDArray[np.uint64]  # (most factors + 1,) positions; the last, relative, in the message
    counter: Int64  # (most axes,)
    step: Int64  # (most factors + 1, most axes) added to a position when an axis advances
    top: Float64  # (largest inner_size,) largest entries so far at each place of a block
    least: Float64  # the same, of the smallest ones above 0
    weight: Float64  # (largest k, BATCH)
    place: NDArray[np.uint32]  # (BATCH,)


def new_room(buckets: Buckets) -> Room:
    k = int(buckets.k.max(initial=1))
    block = int((buckets.k * buckets.inner_size).max(initial=1))
    factors = int(np.diff(buckets.factor_start).max(initial=0)) + 1
    axes = int(np.diff(buckets.axis_start).max(initial=0)) + 1
    return Room(
        block=np.empty(block),
        common=np.empty(block),
        kept=np.zeros(block),
        at=np.zeros(factors, np.uint64),
        counter=np.zeros(axes, np.int64),
        step=np.zeros((factors, axes), np.int64),
        top=np.zeros(int(buckets.inner_size.max(initial=1))),
        least=np.zeros(int(buckets.inner_size.max(initial=1))),
        weight=np.empty((k, BATCH)),
        place=np.zeros(BATCH, np.uint32),
    )

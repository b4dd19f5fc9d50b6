"""Named tuples of the kernels of selection."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Places in Window.size.
N_COLUMNS, N_UNITS, N_FREE, K_COLUMNS, K_UNITS, FRESH = range(6)
# Places in Window.number.
LOG_DET, EXPLAINED, LOG_FIT, LOG_REST = range(4)
# Places in Sums.total.
TIME, ROOT_ERROR, JUMPS, WORK, LARGEST, BORDER, LARGEST_FIT = range(7)
N_TOTALS = 7
# Lanes in which rates are summed.
LANES = 64
# Largest log weight of a model under tempering; single precision keeps sums of such weights.
LARGEST_LOG_WEIGHT = 60.0


class Posterior(NamedTuple):
    """What defines log p of a model; see the package of the kernels."""

    z: Floats  # (p,) products with the response
    square: Floats  # (p,) diagonal of X'X + ridge; unused with weights of rows
    ridge: Floats  # (p,)
    first: Ints  # (units + 1,): unit j has the columns first[j], ..., first[j + 1] - 1
    log_odds: Floats  # (units,) prior odds, and terms of the prior of the coefficients
    size_term: Floats  # by the number of included units; -inf: no such model
    cdf: Floats  # of the standardised coefficient, at multiples of 1 / CDF_STEPS from 0 on
    gaussian: bool
    exponent: float = 0.0
    det_weight: float = 0.5
    shrink: float = 1.0  # of the least squares coefficients: g / (1 + g), or 1
    least: float = 0.0  # at and below 1 / (largest diagonal entry of M^-1) a model is impossible
    spread: float = 1.0  # variance of a coefficient in units of shrink E / u
    studentize: float = 1.0  # factor from mean / sqrt(shrink E / u) to the argument of cdf
    n_always: int = 0  # included units that size_term does not count, and which are never free


CDF_STEPS = 32


class Rates(NamedTuple):
    """Rates of the process, and the power of the likelihood."""

    barker: float
    leave: float
    power: float
    shift: float  # subtracted from log weights


class Window(NamedTuple):
    """Where a chain is, and its working memory.

    Local numbers of columns and units are places in this window. Free units come first.
    """

    size: Ints  # see N_COLUMNS, ...
    number: Floats  # see LOG_DET, ...
    word: NDArray[np.uint64]  # state of the random numbers, hash of the model
    column: Ints  # (w,) global number of each column
    unit: Ints  # (w,) global number of each unit
    first: Ints  # (w + 1,) first local column of each unit
    unit_of: Ints  # (w,) local unit of each column
    u: Floats  # (w,)
    v: Floats
    mean: Floats  # of the coefficients if included
    variance: Floats  # of these, in units of ``spread``
    change: Floats
    log_odds: Floats  # per unit, from `Posterior.log_odds`
    fit: Floats  # per unit: what it would explain; then the fit of its log-odds
    rest: Floats  # per unit: determinant of u; then the rest of its log-odds
    share: Floats  # per unit: o / (1 + o)
    rate: Floats
    lane: Floats  # (LANES,)
    sum_share: Floats  # per unit
    sum_mean: Floats  # (w,)
    sum_square: Floats
    cross: Floats  # u of groups: blocks of d x d
    block: Ints  # (w + 1,) where the block of each unit begins; empty: no groups
    gram: Floats  # (slots, w) rows of the Gram matrix
    slot: Ints  # (w,) of each column, or -1
    owner: Ints  # (slots + 1,) column of each slot, or -1; then the slot to be used next
    place: Ints  # (w,) of each column among the included, or -1
    included: Ints  # (most,) local columns; no model has more
    inverse: Floats  # (most, most)
    factor: Floats  # (most, most) scratch
    rows: Floats  # (most, w) scratch
    b: Floats  # (most,)
    a: Floats  # (most,)
    dense: Floats  # (n,)


class Sums(NamedTuple):
    """Sums over time, times weights, by global number."""

    share: Floats  # (units,)
    time: Floats  # (units,) in which the unit was free
    mean: Floats  # (p,) of coefficients, zero if not included
    square: Floats  # (p,)
    positive: Floats  # (p,) at the ends of windows, of the included
    present: Floats  # (p,)
    sizes: Floats  # by the number of included units
    total: Floats  # see TIME, ...


class Models(NamedTuple):
    """A hash table of visited models with the time spent at each."""

    key: NDArray[np.uint64]  # 0: empty
    time: Floats
    log_p: Floats
    size: Ints
    units: NDArray[np.int32]  # (entries, most units of a model that is kept)
    n_kept: Ints  # (1,)

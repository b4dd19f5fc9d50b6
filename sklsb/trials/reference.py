"""Exact answers on targets so small that these take no longer than the chains.

Chains start from exact draws, and what they draw is compared with exact marginals: chains that all
stay in one mode agree with each other, but not with these.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr

from sklsb._kernels.elimination.buckets import LINEAR
from sklsb._system.arrays import Array
from sklsb.diagnostics.batches import batch_errors, error_of, marginal_errors
from sklsb.diagnostics.marginals import LEAST_OFF, MOST_ERRORS, marginal_arrays
from sklsb.diagnostics.tally import Tally
from sklsb.ensembles.streams import Streams
from sklsb.exact.elimination.cost import MAX_MEMORY
from sklsb.exact.elimination.engine import DEFECT, Elimination, affordable
from sklsb.exact.elimination.reduce import strike
from sklsb.targets._listing import Listing
from sklsb.targets._precision import MOST_ROUNDING, rounding_of
from sklsb.targets.base import States, Target
from sklsb.trials.prices import OF_ENTRY, OF_PAIR, OF_STATE

# Evaluations that may always be spent if they are cheap: no more than the search for starts takes.
_CHEAP = 1 << 17
# Most bytes of tables, most states, and values of states listed at once.
_MAX_MEMORY, _MOST_STATES, _AT_ONCE = 2.0**28, 1 << 20, 1 << 16
# States that are listed in milliseconds.
_FEW_STATES = 1 << 12
# Most variables, and entries of the graph, for which elimination is tried.
_MOST_SITES, _MOST_PAIRS = 5000, 1 << 17


class Reference(NamedTuple):
    """Exact answers on a target."""

    p: Array  # of each value of each variable, (n_sites, n_values)
    cost: int  # evaluations
    draw: Callable[[np.random.Generator], States]  # makes an exact draw

    def starts(self, streams: Streams) -> States:
        """Return an exact draw for each chain, from its own stream."""
        return np.stack([self.draw(rng) for rng in streams.of("start")])


def listed_at_once(target: Target) -> bool:
    """Whether listing all states takes about milliseconds, so that learning could not earn more."""
    return bool(np.log(np.maximum(1, target.n_possible)).sum() <= np.log(_FEW_STATES))


def _may_be_eliminated(target: Target) -> bool:
    """Whether a target is made of factors, and not too many to look at them."""
    if not target.offers.factors or target.n_sites > _MOST_SITES:
        return False
    return target.graph is None or target.graph.nnz <= _MOST_PAIRS


def elimination_fits(target: Target, max_work: float) -> bool:
    """Whether elimination takes at most this many table entries, by a search that is no longer."""
    try:
        return _may_be_eliminated(target) and bool(
            affordable(strike(target), (max_work, MAX_MEMORY), loosest=DEFECT)
        )
    except (TypeError, ValueError):  # no state is possible, or the factors are wrong
        return False


def find_reference(
    target: Target,
    budget: float,
    going_on: Callable[[], bool] = lambda: True,
    like: States | None = None,
) -> Reference | None:
    """Return exact answers if they take at most ``budget`` evaluations, fewer if cheap.

    The decision is by counts alone. None also if ``going_on`` returns False on the way, or log p
    is so large that rounding matters. With ``like``, only states count in which each value occurs
    as often as there.
    """
    if not (target.n_possible > 1).any():
        return None
    most = budget if target.ratio_cost > 1 else max(budget, _CHEAP)
    listing = Listing(target)
    of_listing = listing.n * (1 if target.ratio_cost > 1 else OF_STATE * target.n_sites)
    if of_listing <= most and listing.n <= _MOST_STATES:
        return _listed(listing, int(of_listing), going_on, like)
    return None if like is not None else _eliminated(target, most)


def _listed(
    listing: Listing, cost: int, going_on: Callable[[], bool], like: States | None
) -> Reference | None:
    """List all possible states; variables with one possible value keep it."""
    target, n = listing.target, int(listing.n)
    log_p = np.empty(n)
    size = max(1, _AT_ONCE // target.n_sites)
    for begin in range(0, n, size):
        if not going_on():
            return None
        some = slice(begin, min(n, begin + size))
        x = listing[np.arange(some.start, some.stop)]
        try:
            log_p[some] = target.log_prob(x)
        except Exception:  # noqa: BLE001
            return None  # a function may fail at states that chains do not visit
        if like is not None:
            log_p[some][(np.sort(x, axis=1) != np.sort(like)).any(axis=1)] = -np.inf
    top = log_p.max()
    if not rounding_of(abs(top)) <= MOST_ROUNDING:  # nor if no state is possible
        return None
    weight = np.exp(log_p - top)
    total, joint = np.cumsum(weight), (weight / weight.sum()).reshape(listing.sizes)
    p = (listing.one[:, np.newaxis] == np.asarray(target.values)).astype(np.float64)
    for axis, i in enumerate(listing.free.tolist()):
        others = tuple(a for a in range(joint.ndim) if a != axis)
        p[i] = np.pad(joint.sum(axis=others), (0, p.shape[1] - joint.shape[axis]))
    last = int(np.searchsorted(total, total[-1]))  # later states are impossible

    def draw(rng: np.random.Generator) -> States:
        k = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
        return listing[np.array([min(k, last)])][0]

    return Reference(p, cost, draw)


def _eliminated(target: Target, most: float) -> Reference | None:
    """Sum variables out, if that is affordable."""
    if target.n_sites * OF_PAIR > most or not _may_be_eliminated(target):
        return None
    n_factors = target.n_sites + (0 if target.graph is None else target.graph.nnz // 2)
    work = (most - n_factors * OF_PAIR) / OF_ENTRY
    if work < 1.0:
        return None
    try:
        if not target.offers.own_factors:
            return None
        struck, limits = strike(target), (work, _MAX_MEMORY)
    except (TypeError, ValueError):
        return None  # wrong factors of a class of one's own, which chains do not need
    found = affordable(struck, limits, pruned=False, need="marginals")
    if found is None:
        return None
    elimination = Elimination(found, LINEAR)
    p = elimination.marginals()
    if not rounding_of(elimination.rounding_size) <= MOST_ROUNDING:
        return None

    def draw(rng: np.random.Generator) -> States:
        x = np.empty((1, target.n_sites), dtype=target.dtype)
        elimination.draw(rng.random((1, found.n_uniforms)), x, np.empty(1))
        return x[0]

    cost = n_factors * OF_PAIR + OF_ENTRY * 2.0**found.cost.log2_work
    return Reference(p, int(cost), draw)


class Contradiction(NamedTuple):
    """A probability by draws that exact answers contradict."""

    site: int
    value_index: int
    p: float
    error: float  # NaN if no draw had the value, or all had it
    exact: float


def contradiction(exact: Array, p: Array, errors: Array, n: int) -> Contradiction | None:
    """Return the probability that is off by most errors, if it is wrong.

    A value that none or all of the ``n`` draws had has no error of its own: it gets the error of
    ``n`` independent draws.
    """
    off = np.abs(p - exact)
    least = np.where(np.isnan(errors), error_of(p, n), errors)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(off > LEAST_OFF, off / least, 0.0)
    site, k = np.unravel_index(int(times.argmax()), times.shape)
    if not times[site, k] > MOST_ERRORS:
        return None
    numbers = (float(of[site, k]) for of in (p, errors, exact))
    return Contradiction(int(site), int(k), *numbers)


def of_answer(answer: xr.Dataset, target: Target, exact: Array) -> tuple[Array, Array]:
    """Return the marginals that draws show, or that were recorded, and their standard errors."""
    if "mcse" in answer:
        p, errors = (answer[name].values.reshape(exact.shape) for name in ("p", "mcse"))
        return p, errors
    return marginal_arrays(answer, target, exact)


def of_tally(tally: Tally, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return marginals by counts, and their standard errors; NaN where values were not counted."""
    site, value = tally.by_value()
    p, errors = np.full((2, *shape), np.nan)
    p[site, value], by_batch = tally.counts.means()
    errors[site, value] = marginal_errors(p[site, value], batch_errors(by_batch), np.inf)
    return p, errors

"""Gibbs sampling by classes of variables that do not depend on each other.

Class by class, all variables are drawn given the other classes. A sweep leaves p invariant, but is
not reversible.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import contract, implements, inlined
from sklsb._kernels.chains import NoPart
from sklsb._kernels.contract import (
    flip,
    log_prob,
    log_prob_after,
    log_ratio,
    prepare,
    rebuild,
    row_of,
    step,
)
from sklsb._kernels.facts import Facts
from sklsb._kernels.numeric import exp, rough_exp
from sklsb._kernels.rules.gibbs import draw_site
from sklsb._kernels.spread import fill_roughly, number_of
from sklsb._kernels.targets.conditioned import ConditionedView
from sklsb._kernels.targets.ising import UniformIsingView, log_prob_of_pairs

_TOGETHER = 1024  # variables drawn at a time, so that the memory for them stays in the caches
_BLOCKS = 64  # of these, whose neighbours are looked at together
_CLOSE = 2e-5  # twice what the rough probability may be off by
_ZERO, _ONE, _MINUS_TWO = (np.float32(x) for x in (0.0, 1.0, -2.0))
_LARGEST = 1e9  # fields above are as good as infinite, and not rounded to that
CHROMATIC_NEEDS = {"graph": "a sparse graph"}


class Classes(NamedTuple):
    """An Ising model with one coupling, in the order of the classes.

    Then all is vectorised: on a lattice, the neighbours of successive variables are successive
    themselves. A *shift* adds those at one distance to a range of variables, where a mask says so.
    """

    order: NDArray[np.uint32]  # of the sites; the observed ones come last
    place: NDArray[np.uint32]  # of each site in this order; with pairs, of a last one without
    swap: NDArray[np.int8]  # pairs: 0 if the sites 2k, 2k + 1 have the places k, k + n - n // 2, or
    # -1 if it is the other way round; empty if not all pairs do
    near: NDArray[np.uint32]  # places of neighbours, n_sites for missing ones; empty with shifts
    rough: NDArray[np.float32]  # fields, rounded
    coupling: np.float32  # clipped, too
    close: float  # twice what a probability from these may be off by
    block: NDArray[np.int64]  # where variables that are drawn together begin, and the end
    first: NDArray[np.int64]  # of each block's shifts
    shift: NDArray[np.int64]  # (n_shifts, 4): range in the block, distance, where the mask begins
    mask: NDArray[np.int8]  # 0 or -1
    spin: NDArray[np.int8]  # (n_chains, n_sites + 1), and a zero
    total: NDArray[np.int8]  # (n_chains, n_together), sums over neighbours; then spins
    pairs: NDArray[np.int64]  # (n_chains, 1), sum over pairs of neighbours, one of the last class

    @classmethod
    def of(cls, view: UniformIsingView, rule: "Chromatic", n_chains: int) -> "Classes":
        """Order a view by classes."""
        n, width = view.field.size, len(view.slots)
        observed = np.ones(n, dtype=np.bool_)
        observed[rule.sites] = False
        order = np.append(rule.sites, np.flatnonzero(observed)).astype(np.uint32)
        place = np.empty(n, dtype=np.uint32)
        place[order] = np.arange(n)
        pairs = place[: n // 2 * 2].reshape(-1, 2)
        some = np.arange(n // 2)
        in_pairs = (np.sort(pairs, axis=1) == np.stack([some, some + n - n // 2], axis=1)).all()
        swap = -(pairs[:, 0] > pairs[:, 1]).astype(np.int8)[: n if in_pairs else 0]

        def near(first: int, last: int) -> NDArray[np.uint32]:
            sites = rule.sites[first:last]
            found = place[view.near.reshape(n, width)[sites]]
            found[np.arange(width) >= width - view.missing[sites, None]] = n
            return found

        ends = [np.arange(*both, _TOGETHER) for both in pairwise(rule.start)]
        block = np.concatenate([*ends, rule.start[-1:]])
        first, shift, mask = _shifts(near, block, n)
        field = view.field[order]
        largest = np.abs(field).max(initial=0.0) + width * abs(view.coupling)
        return cls(
            order,
            place[2 * swap.size :].copy(),
            swap,
            near(0, 0 if len(shift) else n).ravel(),
            np.clip(field, -_LARGEST, _LARGEST).astype(np.float32),
            np.float32(np.clip(view.coupling, -_LARGEST, _LARGEST)),
            _CLOSE + 1e-6 * largest,
            block,
            first,
            shift,
            mask,
            np.zeros((n_chains, n + 1), dtype=np.int8),
            np.empty((n_chains, _TOGETHER), dtype=np.int8),
            np.zeros((n_chains, 1), dtype=np.int64),
        )


def _shifts(
    near: Callable[[int, int], NDArray[np.uint32]], block: NDArray[np.int64], n: int
) -> tuple[NDArray[Any], ...]:
    """Return shifts that add all neighbours, or none if that takes longer than one by one."""
    found: list[tuple[NDArray[Any], ...]] = []
    saved = at_mask = 0
    for some in range(0, block.size - 1, _BLOCKS):  # so that memory does not count
        ends = block[some : some + _BLOCKS + 1]
        these = near(ends[0], ends[-1])
        at, slot = np.nonzero(these < n)
        distance = these[at, slot].astype(np.int64) - (at + ends[0])
        at += ends[0]
        b = np.searchsorted(ends, at, side="right") - 1
        kind, k = np.divmod(
            np.sort((b * (2 * n) + n + distance) * _TOGETHER + at - ends[b]), _TOGETHER
        )
        begin = np.flatnonzero(np.diff(kind, prepend=-1))
        low, size = k[begin], np.diff(begin, append=kind.size)
        length = k[begin + size - 1] + 1 - low
        saved += kind.size - 16 * begin.size - length.sum() // 8
        if saved < 0:
            found.clear()
            break
        where = np.cumsum(length) - length
        b, distance = np.divmod(kind[begin], 2 * n)
        mask = np.zeros(length.sum(), dtype=np.int8)
        mask[np.repeat(where - low, size) + k] = -1
        shift = np.stack([low, low + length, distance - n, where + at_mask], axis=1)
        found.append((np.bincount(b, minlength=ends.size - 1), shift, mask))
        at_mask += mask.size
    nothing = np.zeros(block.size - 1, np.int64), np.empty((0, 4), np.int64), np.empty(0, np.int8)
    counts, shift, mask = map(np.concatenate, zip(*(found or [nothing]), strict=True))
    return np.append(0, np.cumsum(counts)), shift, mask


@implements(row_of, Classes)
def _row_of_classes(part, c):
    return Classes(*part[:-3], part.spin[c], part.total[c], part.pairs[c])


class Probabilities(NamedTuple):
    """Memory for variables that are drawn together."""

    log_ratio: NDArray[np.float64]
    gap: NDArray[np.float32]  # the same; then negative where it does not decide by itself
    number: NDArray[np.float32]  # uniform; then negative where the variable flips
    flips: NDArray[np.uint32]
    classes: Any  # `Classes`, if they are used


@implements(row_of, Probabilities)
def _row_of(part, c):
    own = part.log_ratio[c], part.gap[c], part.number[c], part.flips[c]
    return Probabilities(*own, row_of(part.classes, c))


class Chromatic(NamedTuple):
    """The rule: class by class, all variables of a class given the other classes."""

    sites: NDArray[np.uint32]  # unobserved, class by class
    start: NDArray[np.int64]  # of each class, and the number of sites
    two_valued: bool  # then moves have the numbers of their sites
    in_order: bool  # whether spins are copied in the order of the classes

    @property
    def facts(self) -> Facts:
        """Properties of the rule."""
        return Facts(
            n_uniforms=self.sites.size,
            transitions_per_sweep=1,
            needs=CHROMATIC_NEEDS,
            reversible=self.start.size <= 2,
            in_order=self.in_order,
            takes_words=self.two_valued,
        )

    def new_part(self, target: Any, n_chains: int) -> Probabilities:
        """Allocate memory for the variables drawn together."""
        n_values = int(target.cardinalities.max(initial=1))
        shape = n_chains, max(n_values, min(_TOGETHER, int(np.diff(self.start).max(initial=0))))
        view = target.offers.class_view() if self.in_order else None
        view = view.inner if isinstance(view, ConditionedView) else view
        return Probabilities(
            np.empty(shape),
            np.empty(shape, np.float32),
            np.empty(shape, np.float32),
            np.empty(shape, np.uint32),
            Classes.of(view, self, n_chains) if view else NoPart(),
        )


@implements(step, Chromatic)
def _sweep_classes(view, rule, chain, u):
    """U = (to draw each variable)."""
    draw_all(view, rule, chain, u)
    return np.nan


@inlined
def _number(n, u, k):
    """Return the k-th of n uniform numbers; u may be the one word that makes all."""
    return number_of(u[0], k) if u.size < n else u[k]


@inlined
def _decide(n, u, begin, gap, number, close):
    """Make numbers negative if they are below p / (1 + p), with log p in ``gap`` the odds.

    Few are so close that the first digits do not decide: return whether there are any.
    """
    if u.size < n:
        fill_roughly(u[0], begin, number)
    else:
        for k in range(number.size):
            number[k] = np.float32(u[begin + k])
    # In single precision twice as many fit into a vector.
    for k in range(number.size):
        odds = rough_exp(gap[k])
        whole = _ONE + odds
        number[k] = number[k] * whole - odds
        gap[k] = abs(number[k]) - close * whole
    any_close = False
    for k in range(number.size):
        any_close |= gap[k] < _ZERO
    return any_close


@inlined
def _exactly(u, log_ratio):
    """Return the gap between a uniform number and the probability of a flip."""
    odds = exp(700.0 if log_ratio > 700.0 else log_ratio)
    return -_ONE if u < odds / (1.0 + odds) else _ONE


def _draw_one_by_one(view, rule, chain, u):
    """Evaluate and flip one by one; what is between is vectorised for two values."""
    part, n_sites = chain.part, rule.sites.size
    if not rule.two_valued:
        for k in range(n_sites):
            draw_site(view, chain, np.uint64(rule.sites[k]), u[k], part.log_ratio)
        return
    chain.evaluations[0] += n_sites
    for color in range(rule.start.size - 1):
        for begin in range(rule.start[color], rule.start[color + 1], _TOGETHER):
            size = min(_TOGETHER, rule.start[color + 1] - begin)
            gap, number = part.gap[:size], part.number[:size]
            for k in range(size):
                part.log_ratio[k] = log_ratio(view, chain, np.uint64(rule.sites[begin + k]))
            for k in range(size):
                gap[k] = np.float32(part.log_ratio[k])
            if _decide(n_sites, u, begin, gap, number, np.float32(_CLOSE)):
                for k in range(size):
                    if gap[k] < _ZERO:
                        number[k] = _exactly(_number(n_sites, u, begin + k), part.log_ratio[k])
            n = 0
            for k in range(size):
                part.flips[n] = rule.sites[begin + k]
                n += np.int64(number[k] < _ZERO)
            for k in range(n):
                flip(view, chain, np.uint64(part.flips[k]))
                chain.moved[np.int64(part.flips[k])] = True


@contract(0, default=_draw_one_by_one)
def draw_all(view, rule, chain, u):
    """Draw all variables, class by class."""


@implements(draw_all, ConditionedView)
def _draw_unobserved(view, rule, chain, u):
    draw_all(view.inner, rule, chain, u)


@implements(draw_all, UniformIsingView)
def _draw_in_order(view, rule, chain, u):
    part, classes = chain.part, chain.part.classes
    spin, pairs, n_sites = classes.spin, np.int64(0), rule.sites.size
    coupling = classes.coupling
    for b in range(classes.block.size - 1):
        begin, end = classes.block[b], classes.block[b + 1]
        # Slices: indices that might be negative would not be vectorised.
        here, field, size = spin[begin:end], classes.rough[begin:end], end - begin
        total, gap, number = classes.total[:size], part.gap[:size], part.number[:size]
        _sum_neighbours(view.slots, classes, b, total)
        for k in range(size):
            gap[k] = _MINUS_TWO * np.float32(here[k]) * (field[k] + coupling * np.float32(total[k]))
        if _decide(n_sites, u, begin, gap, number, np.float32(classes.close)):
            for k in range(size):
                if gap[k] < _ZERO:
                    field_here = view.field[classes.order[begin + k]]
                    local = field_here + view.coupling * total[k]
                    number[k] = _exactly(_number(n_sites, u, begin + k), -2.0 * here[k] * local)
        for k in range(size):
            here[k] = -here[k] if number[k] < _ZERO else here[k]
        if begin >= rule.start[rule.start.size - 2]:
            for k in range(size):
                pairs += np.int32(here[k]) * np.int32(total[k])
    classes.pairs[0] = pairs
    chain.evaluations[0] += n_sites
    half, swap, place = np.int64(_TOGETHER // 2), classes.swap, classes.place
    for begin in range(0, swap.size, half):
        other = swap[begin : begin + half]
        one, two = spin[begin : begin + other.size], spin[begin + chain.x.size - swap.size :]
        drawn = classes.total[: 2 * other.size]
        for k in range(other.size):
            differ = (one[k] ^ two[k]) & other[k]
            drawn[2 * k], drawn[2 * k + 1] = one[k] ^ differ, two[k] ^ differ
        _take_over(chain, 2 * begin, drawn)
    for begin in range(0, place.size, _TOGETHER):
        some = place[begin : begin + _TOGETHER]
        drawn = classes.total[: some.size]
        for k in range(some.size):
            drawn[k] = spin[some[k]]
        _take_over(chain, 2 * swap.size + begin, drawn)


@inlined
def _take_over(chain, begin, drawn):
    """Copy spins into the state, from a site on, and mark those that have moved."""
    x, moved = chain.x[begin : begin + drawn.size], chain.moved[begin : begin + drawn.size]
    for k in range(drawn.size):
        moved[k] |= x[k] != drawn[k]
    for k in range(drawn.size):
        x[k] = drawn[k]


@inlined
def _sum_neighbours(slots, classes, b, total):
    begin, spin, width = classes.block[b], classes.spin, len(slots)
    if classes.near.size > 0:
        near = classes.near[begin * width : classes.block[b + 1] * width]
        for k in range(total.size):
            found = 0
            for j in range(width):
                found += np.int64(spin[near[k * width + j]])
            total[k] = found
        return
    for k in range(total.size):
        total[k] = 0
    for m in range(classes.first[b], classes.first[b + 1]):
        first, last, distance, at = classes.shift[m]
        some, mask = total[first:last], classes.mask[at : at + last - first]
        other = spin[begin + first + distance : begin + last + distance]
        for k in range(some.size):
            some[k] += other[k] & mask[k]


@contract(0, default=lambda view, rule, chain: None)
def put_in_order(view, rule, chain):
    """Copy the state in the order of the classes, if there is one."""


@implements(put_in_order, ConditionedView)
def _put_unobserved(view, rule, chain):
    put_in_order(view.inner, rule, chain)


@implements(put_in_order, UniformIsingView)
def _put_in_order(view, rule, chain):
    for k in range(chain.x.size):
        chain.part.classes.spin[k] = chain.x[chain.part.classes.order[k]]


@implements(prepare, Chromatic)
@implements(rebuild, Chromatic)
def _rebuild(view, rule, chain):
    put_in_order(view, rule, chain)


@contract(0, default=lambda view, rule, chain: log_prob(view, chain))
def log_prob_of_sweep(view, rule, chain):
    """Log p after a sweep."""


@implements(log_prob_of_sweep, UniformIsingView)
def _log_prob_in_order(view, rule, chain):
    if rule.start.size == 3 and rule.sites.size == chain.x.size:  # all pairs are of two classes
        return log_prob_of_pairs(view, chain.x, 2 * chain.part.classes.pairs[0])
    return log_prob(view, chain)


@implements(log_prob_after, Chromatic)
def _log_prob_after(view, rule, chain):
    return log_prob_of_sweep(view, rule, chain)

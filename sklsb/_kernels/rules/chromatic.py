"""Gibbs sampling by classes of variables that do not depend on each other.

Class by class, all variables are drawn given the other classes. A sweep leaves p invariant, but is
not reversible.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import contract, implements, inlined
from sklsb._kernels.chains import NoPart
from sklsb._kernels.contract import flip, log_prob, log_prob_after, log_ratio, row_of, step
from sklsb._kernels.facts import Facts
from sklsb._kernels.numeric import exp, rough_sigmoid
from sklsb._kernels.rules.gibbs import draw_site
from sklsb._kernels.targets.conditioned import ConditionedView
from sklsb._kernels.targets.ising import UniformIsingView, log_prob_of_pairs

_TOGETHER = 1024  # variables drawn at a time, so that the memory for them stays in the caches
_CLOSE = np.float32(2e-5)  # twice what the rough probability may be off by
CHROMATIC_NEEDS = {"graph": "a sparse graph"}


class Classes(NamedTuple):
    """An Ising model with one coupling, in the order of the classes.

    Then all but the sum over neighbours is vectorised.
    """

    order: NDArray[np.uint32]  # of the sites; the observed ones come last
    place: NDArray[np.uint32]  # of each site in this order
    near: NDArray[np.uint32]  # places of neighbours; n_sites instead of missing ones
    field: NDArray[np.float64]
    spin: NDArray[np.int8]  # (n_chains, n_sites + 1), and a zero
    drawn: NDArray[np.int8]  # (n_chains, n_sites), the same in the order of the sites
    pairs: NDArray[np.int64]  # (n_chains, 1), sum over pairs of neighbours, one of the last class

    @classmethod
    def of(cls, view: UniformIsingView, sites: NDArray[np.uint32], n_chains: int) -> "Classes":
        """Order a view by classes."""
        n, width = view.field.size, len(view.slots)
        observed = np.ones(n, dtype=np.bool_)
        observed[sites] = False
        order = np.append(sites, np.flatnonzero(observed)).astype(np.uint32)
        place = np.empty(n, dtype=np.uint32)
        place[order] = np.arange(n)
        near = place[view.near.reshape(n, width)[sites]]
        near[np.arange(width) >= width - view.missing[sites, None]] = n
        spin, drawn = (np.zeros((n_chains, size), dtype=np.int8) for size in (n + 1, n))
        pairs = np.zeros((n_chains, 1), dtype=np.int64)
        return cls(order, place, near.ravel(), view.field[order], spin, drawn, pairs)


@implements(row_of, Classes)
def _row_of_classes(part, c):
    return Classes(*part[:-3], part.spin[c], part.drawn[c], part.pairs[c])


class Probabilities(NamedTuple):
    """Memory for variables that are drawn together."""

    log_ratio: NDArray[np.float64]
    gap: NDArray[np.float32]  # between the uniform number and the probability of a flip
    flips: NDArray[np.uint32]
    classes: Any  # `Classes`, if they are used


@implements(row_of, Probabilities)
def _row_of(part, c):
    return Probabilities(part.log_ratio[c], part.gap[c], part.flips[c], row_of(part.classes, c))


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
            np.empty(shape, np.uint32),
            Classes.of(view, self.sites, n_chains) if view else NoPart(),
        )


@implements(step, Chromatic)
def _sweep_classes(view, rule, chain, u):
    """U = (to draw each variable)."""
    if rule.two_valued:
        draw_all(view, rule, chain, u)
        chain.evaluations[0] += rule.sites.size
        return np.nan
    for k in range(rule.sites.size):
        draw_site(view, chain, np.uint64(rule.sites[k]), u[k], chain.part.log_ratio)
    return np.nan


@inlined
def _decide(part, size, u):
    """Make the gaps of variables negative if u < p / (1 + p) with p the odds of flipping.

    Few numbers are so close to the probability that its first digits do not decide.
    """
    ratio, gap = part.log_ratio, part.gap
    close = np.int32(0)
    # In single precision twice as many fit into a vector.
    for k in range(size):
        gap[k] = np.float32(ratio[k])
    for k in range(size):
        gap[k] = rough_sigmoid(gap[k])
    for k in range(size):
        gap[k] = np.float32(u[k]) - gap[k]
        close += np.int32(abs(gap[k]) < _CLOSE)
    for k in range(size if close > 0 else 0):
        if abs(gap[k]) < _CLOSE:
            odds = exp(min(ratio[k], 700.0))
            gap[k] = -1.0 if u[k] < odds / (1.0 + odds) else 1.0


def _draw_one_by_one(view, rule, chain, u):
    """Evaluate and flip one by one; what is between is vectorised."""
    part = chain.part
    for color in range(rule.start.size - 1):
        for begin in range(rule.start[color], rule.start[color + 1], _TOGETHER):
            size = min(_TOGETHER, rule.start[color + 1] - begin)
            for k in range(size):
                part.log_ratio[k] = log_ratio(view, chain, np.uint64(rule.sites[begin + k]))
            _decide(part, size, u[begin:])
            n = 0
            for k in range(size):
                part.flips[n] = rule.sites[begin + k]
                n += np.int64(part.gap[k] < 0.0)
            for k in range(n):
                flip(view, chain, np.uint64(part.flips[k]))
                chain.moved[np.int64(part.flips[k])] = True


@contract(0, default=_draw_one_by_one)
def draw_all(view, rule, chain, u):
    """Draw all variables, of two values, class by class."""


@implements(draw_all, ConditionedView)
def _draw_unobserved(view, rule, chain, u):
    draw_all(view.inner, rule, chain, u)


@implements(draw_all, UniformIsingView)
def _draw_in_order(view, rule, chain, u):
    part, (order, place, near, field, spin, drawn, _) = chain.part, chain.part.classes
    width, pairs = len(view.slots), np.int64(0)
    for k in range(order.size):
        spin[k] = chain.x[order[k]]
    for color in range(rule.start.size - 1):
        last = color == rule.start.size - 2
        for begin in range(rule.start[color], rule.start[color + 1], _TOGETHER):
            end = min(begin + _TOGETHER, rule.start[color + 1])
            # Slices: indices that might be negative would not be vectorised.
            here, fields = spin[begin:end], field[begin:end]
            _sum_neighbours(near[begin * width : end * width], width, spin, part.log_ratio)
            for k in range(end - begin if last else 0):
                part.flips[k] = np.uint32(np.int32(part.log_ratio[k]))
            for k in range(end - begin):
                local = fields[k] + view.coupling * part.log_ratio[k]
                part.log_ratio[k] = -2.0 * here[k] * local
            _decide(part, end - begin, u[begin:])
            for k in range(end - begin):
                here[k] = -here[k] if part.gap[k] < 0.0 else here[k]
            for k in range(end - begin if last else 0):
                pairs += np.int32(here[k]) * np.int32(part.flips[k])
    part.classes.pairs[0] = pairs
    for i in range(place.size):
        drawn[i] = spin[place[i]]
    for i in range(place.size):
        chain.moved[i] |= chain.x[i] != drawn[i]
    for i in range(place.size):
        chain.x[i] = drawn[i]


@contract(0, default=lambda view, rule, chain: log_prob(view, chain))
def log_prob_of_sweep(view, rule, chain):
    """Log p after a sweep."""


@implements(log_prob_of_sweep, UniformIsingView)
def _log_prob_in_order(view, rule, chain):
    if rule.start.size == 3 and rule.sites.size == chain.x.size:  # all pairs are of two classes
        return log_prob_of_pairs(view, chain, 2 * chain.part.classes.pairs[0])
    return log_prob(view, chain)


@implements(log_prob_after, Chromatic)
def _log_prob_after(view, rule, chain):
    return log_prob_of_sweep(view, rule, chain)


@inlined
def _sum_neighbours(near, width, spin, total):
    for k in range(near.size // width):
        found = 0
        for j in range(width):
            found += np.int64(spin[near[k * width + j]])
        total[k] = found

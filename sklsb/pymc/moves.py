"""Ways to draw sites of a block given all else: each leaves their conditional law invariant."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from sklsb import exact
from sklsb._kernels.elimination.tables import add_up, choose
from sklsb._system.arrays import Array, Ints
from sklsb.balancing import BalancingFunction, Barker, Max, Min, Sqrt
from sklsb.pymc.block import Block, Given
from sklsb.pymc.numbers import Numbers
from sklsb.pymc.tables import Tables, coloured
from sklsb.targets._evidence import NoStateError
from sklsb.targets.markov_network import MarkovNetwork

# A step of a slice goes out at most so often; steps that are right on average need a few.
_MOST_STEPS = 1000
_NONE = np.zeros(1, np.int64)


class Move(ABC):
    """A way to draw sites."""

    name: str
    sites: Ints
    n_colours = 1
    n_evaluations: int  # of a step
    every = 1  # steps from one of its turns to the next
    exact = False  # whether draws are right whatever outputs see
    learns = True  # whether a step may change what was learned: while tuning only
    learned: Array = np.zeros(0)  # empty if nothing is

    @abstractmethod
    def draw(self, x: Ints, given: Given, rng: np.random.Generator, check: bool) -> Ints:
        """Return a new state; with `check`, raise `Surprise` where an output betrays its set."""


class Surprise(Exception):
    """Outputs changed with sites that they do not see."""

    def __init__(self, outputs: Ints):
        super().__init__()
        self.outputs = outputs


def chosen(log_p: Array, u: Array, now: Ints) -> Ints:
    """Return an index for each column, with probabilities exp(log_p), from uniform numbers.

    A column without a possible value keeps the present one.
    """
    found = now.copy()
    choose(log_p, u, found, np.empty(len(log_p)))
    return found


class Colour:
    """Sites that are independent given all others, and the outputs that see them."""

    def __init__(self, block: Block, sites: Ints):
        self.block, self.sites = block, sites
        sets = block.sets[:, sites].tocsr()
        own = np.full(sets.shape[0], sites.size)
        own[np.diff(sets.indptr) > 0] = sets.indices
        self.of_set = own
        self.own = own[block.scope_of]  # which of the sites each output sees; the last: none

    def log_p(self, outputs: Array) -> Array:
        """Return log p of each site, but for a constant, from outputs at a state."""
        found = np.bincount(self.own, outputs, self.sites.size + 1)[:-1].astype(np.float64)
        found[np.isnan(found)] = -np.inf
        return found

    def check(self, y: Ints, expected: Array, given: Given) -> None:
        """Raise `Surprise` unless the outputs at y are as expected."""
        found = self.block.log_p(y, *given)
        wrong = ~np.isclose(found, expected, rtol=1e-8, atol=1e-8, equal_nan=True)
        if wrong.any():
            raise Surprise(np.flatnonzero(wrong))


class Colours(Move):
    """All sites of a colour at once, by one evaluation for each value."""

    name = "colours"

    def __init__(self, block: Block, sites: Ints, every: int = 1):
        self.block, self.sites, self.every = block, sites, every
        self.colours = [Colour(block, c) for c in coloured(block, sites)]
        self.n_colours = len(self.colours)
        self.n_values = [block.high[c.sites] - block.low[c.sites] + 1 for c in self.colours]
        self.n_evaluations = sum(int(k.max()) for k in self.n_values)
        self.exact = self.n_colours == sites.size
        if self.exact:  # the present value is known
            self.n_evaluations += 1 - sites.size
        self._at_once: Any = None
        alone = sites.size == np.count_nonzero(block.high > block.low)
        if alone and self.n_colours == 1 and not self.exact and every == 1:
            key = self.colours[0].own.tobytes(), self.states.tobytes()
            if key not in block.made:  # once, though each chain begins anew
                numbers = Numbers(block, self.states)
                own = self.colours[0].of_set[numbers.scope_of]
                order = np.argsort(own, kind="stable")
                each = np.bincount(own, minlength=sites.size)[: sites.size]
                index = numbers.at[:, order[: each.sum()]].ravel()
                start = np.cumsum([0, *np.tile(each, len(self.states))])
                block.made[key] = block.compiled(numbers.vector), index, start
            self._at_once = block.made[key]

    @cached_property
    def states(self) -> Ints:
        """States where the sites of the one colour have each of their values in turn."""
        low, high = self.block.low, self.block.high
        values = np.arange((high - low)[self.sites].max() + 1)[:, None]
        states = np.tile(low, (values.size, 1))
        states[:, self.sites] = np.minimum(low + values, high)[:, self.sites]
        return states

    def draw(self, x: Ints, given: Given, rng: np.random.Generator, check: bool) -> Ints:
        x, here = x.copy(), None
        for colour, k in zip(self.colours, self.n_values, strict=True):
            if colour.sites.size == 1 and not check:
                here = self._one(int(colour.sites[0]), int(k[0]), x, here, given, rng)
            else:
                self._many(colour, k, x, given, rng, check)
                here = None
        return x

    def _many(self, colour: Colour, k: Ints, x: Ints, given: Given, rng: Any, check: bool) -> None:
        s, values = colour.sites, np.arange(int(k.max()))
        low, y, outputs = self.block.low[s], x.copy(), []
        if check or self._at_once is None:
            for v in values:
                y[s] = low + np.minimum(v, k - 1)
                outputs.append(self.block.log_p(y, *given))
        if self._at_once is None:
            log_p = np.stack([colour.log_p(one) for one in outputs])
        else:
            numbers, index, start = self._at_once
            log_p = np.empty((values.size, s.size))
            add_up(numbers(*given), index, start, log_p.reshape(-1))
        log_p[values[:, None] >= k] = -np.inf
        new = chosen(log_p, rng.random(s.size), x[s] - low)
        if check:  # values mixed anew: outputs must not notice
            mixed = np.where(rng.random(s.size) < 0.5, new, rng.integers(0, k))
            y[s] = low + mixed
            at = np.append(mixed, 0)[colour.own]
            colour.check(y, np.stack(outputs)[at, np.arange(at.size)], given)
        x[s] = low + new

    def _one(self, i: int, k: int, x: Ints, here: float | None, given: Given, rng: Any) -> float:
        """Draw one site by values of the whole log p; the present value may be known."""
        low, total = int(self.block.low[i]), self.block.total
        now, log_p = int(x[i]) - low, np.empty((k, 1))
        log_p[now] = total(x, *given) if here is None else here
        for v in range(k):
            if v != now:
                x[i] = low + v
                log_p[v] = total(x, *given)
        log_p[np.isnan(log_p)] = -np.inf
        new = int(chosen(log_p, rng.random(1), np.array([now]))[0])
        x[i] = low + new
        return float(log_p[new, 0])


class Slices(Move):
    """Sites with many values, or no bound: slices with stepping out and shrinkage (Neal, 2003).

    The value v stands for all numbers of [v, v + 1), where the density is constant.
    """

    name = "slices"

    def __init__(self, block: Block, sites: Ints):
        self.block, self.sites = block, sites
        self.colours = [Colour(block, c) for c in coloured(block, sites)]
        self.n_colours, self.n_evaluations = len(self.colours), 8 * len(self.colours)  # about
        self.learned = np.full(block.n_sites, 3.0)  # widths

    def draw(self, x: Ints, given: Given, rng: np.random.Generator, check: bool) -> Ints:
        for colour in self.colours:
            low, high = (ends[colour.sites] for ends in self.block.bounds(x, given))
            y = x.copy()
            if colour.sites.size == 1:
                i = int(colour.sites[0])
                y[i] = self._slice(i, y, int(low[0]), int(high[0]), given, rng)
                x = y
                continue
            y[colour.sites] = self._sliced(colour, x, low, high, given, rng)
            if check:  # half of the changes
                half = rng.random(colour.sites.size) < 0.5
                z = x.copy()
                z[colour.sites[half]] = y[colour.sites[half]]
                before, after = (self.block.log_p(state, *given) for state in (x, y))
                colour.check(z, np.where(np.append(half, False)[colour.own], after, before), given)
            x = y
        return x

    def _slice(self, i: int, x: Ints, low: int, high: int, given: Given, rng: Any) -> int:
        """Draw one site, by log p as a whole; x is overwritten."""
        known = dict[int, float]()

        def log_p(at: float) -> float:
            v = math.floor(at)
            if v not in known and low <= v <= high:
                x[i] = v
                found = float(self.block.total(x, *given))
                known[v] = -math.inf if math.isnan(found) else found
            return known.get(v, -math.inf)

        now, w = int(x[i]), float(self.learned[i])
        level = log_p(now) - rng.standard_exponential()
        if level == -math.inf:
            return now
        start, at, share = rng.random(3).tolist()
        start += now
        left = start - w * at
        right, out = left + w, math.floor(_MOST_STEPS * share)
        rest = _MOST_STEPS - 1 - out
        while out > 0 and log_p(left) > level:
            left, out = left - w, out - 1
        while rest > 0 and log_p(right) > level:
            right, rest = right + w, rest - 1
        if self.learns:
            self.learned[i] += 0.05 * (max(2.0, right - left) - w)
        while not log_p(new := left + rng.random() * (right - left)) > level:
            left, right = (new, right) if new < start else (left, new)
        return math.floor(new)

    def _sliced(
        self, colour: Colour, x: Ints, low: Ints, high: Ints, given: Given, rng: Any
    ) -> Ints:
        s, w = colour.sites, self.learned[colour.sites]
        y, now = x.copy(), x[colour.sites]

        def log_p(at: Array) -> Array:
            """Of all sites of the colour, at real numbers."""
            v = np.floor(at)
            y[s] = np.clip(v, low, high).astype(np.int64)
            inside = (v >= low) & (v <= high)
            return np.where(inside, colour.log_p(self.block.log_p(y, *given)), -np.inf)

        level = log_p(now.astype(np.float64)) - rng.standard_exponential(s.size)
        stays = level == -np.inf
        start = now + rng.random(s.size)
        left = start - w * rng.random(s.size)
        right = left + w
        out = np.floor(_MOST_STEPS * rng.random(s.size))  # steps left, to the left
        for end, sign, steps in ((left, -1.0, out), (right, 1.0, _MOST_STEPS - 1 - out)):
            goes = ~stays
            while (goes := goes & (steps > 0) & (log_p(end) > level)).any():
                end[goes] += sign * w[goes]
                steps = steps - goes
        span = right - left
        new, open_ = start.copy(), ~stays
        while open_.any():
            new[open_] = (left + rng.random(s.size) * (right - left))[open_]
            open_ &= ~(log_p(new) > level)
            left = np.where(open_ & (new < start), new, left)
            right = np.where(open_ & (new >= start), new, right)
        if self.learns:
            self.learned[s] += 0.05 * (np.maximum(2.0, span) - w)
        return np.where(stays, now, np.floor(new).astype(np.int64))


class Elimination(Move):
    """All sites at once, from tables that a few evaluations fill, by a plan made once."""

    name = "elimination"

    def __init__(self, block: Block, sites: Ints, spare: Colours):
        self.block, self.sites, self._spare = block, sites, spare
        self.tables = Tables(block, sites, [c.sites for c in spare.colours])
        self.n_colours, self.n_evaluations = spare.n_colours, len(self.tables.states)
        states = sorted(self.tables.states, key=lambda x: len({*x.tolist()}))
        self.states = np.tile(block.low, (len(states), 1))  # first those with equal sites
        self.states[:, sites] += np.array(states)
        factors = [(scope, np.ones(shape)) for scope, shape in self.tables.shapes]
        self.network = MarkovNetwork(self.tables.n_values, factors)
        self._plan: Any = None

    def draw(self, x: Ints, given: Given, rng: np.random.Generator, check: bool) -> Ints:
        if check:
            x = self._spare.draw(x, given, rng, check)
        if self._plan is None:
            self._plan = exact.prepare(self.network)
        logs = self.tables.logs(x, given)
        try:
            if not logs.max() < np.inf:
                raise NoStateError
            state = self._plan._filled(logs).sample(1, random_state=rng)[0]
        except NoStateError:
            return self._spare.draw(x, given, rng, check)
        y = x.copy()
        y[self.sites] = self.block.low[self.sites] + state
        return y


class Balanced(Move):
    """Locally balanced single changes: each knows log p of all states one change away."""

    name, exact = "lsb", True

    def __init__(self, block: Block, sites: Ints):
        self.block, self.sites = block, sites
        k = block.high[sites] - block.low[sites] + 1
        self._site = np.repeat(sites, k - 1)
        self._jump = np.concatenate([np.arange(1, n) for n in k])
        self._k = np.repeat(k, k - 1)
        self.n_changes = max(2, int(np.ceil(np.sqrt(sites.size))))
        self.n_evaluations = 1 + self._site.size * (1 + self.n_changes)
        self.functions = [Barker(), Sqrt(), Min(), Max()]
        self.learned = np.zeros((2, 4))  # sums of acceptance probabilities, and changes tried

    def draw(self, x: Ints, given: Given, rng: np.random.Generator, check: bool) -> Ints:
        x = x.copy()
        tried = self.learned[1]
        best = int((self.learned[0] / np.maximum(tried, 1)).argmax())
        which = int(tried.argmin()) if self.learns else best
        g = self.functions[which]
        log_w = self._log_weights(x, given, g)
        for _ in range(self.n_changes):
            log_z = np.logaddexp.reduce(log_w)
            if log_z == -np.inf:
                break
            m = chosen(log_w[:, None], rng.random(1), _NONE)[0]
            y = x.copy()
            i = self._site[m]
            low = self.block.low[i]
            y[i] = low + (x[i] - low + self._jump[m]) % self._k[m]
            new = self._log_weights(y, given, g)
            accept = np.exp(min(0.0, log_z - np.logaddexp.reduce(new)))
            if self.learns:
                self.learned[:, which] += accept, 1
            with np.errstate(divide="ignore"):
                coin = np.log([[1.0 - accept], [accept]])
            if chosen(coin, rng.random(1), _NONE)[0]:
                x, log_w = y, new
        return x

    def _log_weights(self, x: Ints, given: Given, g: BalancingFunction) -> Array:
        """Return log g of the ratio of p at each state one change away to that here."""
        here, ratios = self.block.total(x, *given), np.empty(self._site.size)
        low = self.block.low[self._site]
        values = low + (x[self._site] - low + self._jump) % self._k
        for m, (i, v) in enumerate(zip(self._site.tolist(), values.tolist(), strict=True)):
            old, x[i] = x[i], v
            ratios[m] = self.block.total(x, *given) - here
            x[i] = old
        possible = ratios > -np.inf
        return np.where(possible, g.log_g(np.where(possible, ratios, 0.0)), -np.inf)

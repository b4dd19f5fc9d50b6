"""Ways to draw sites of a block given all else: each leaves their conditional law invariant."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb import exact
from sklsb.balancing import BalancingFunction, Barker, Max, Min, Sqrt
from sklsb.pymc.block import Block, Floats, Given, Ints
from sklsb.targets.markov_network import MarkovNetwork

# A step of a slice goes out at most so often; steps that are right on average need a few.
_MOST_STEPS = 1000
# Tables are products of the numbers of values of so many sites at most; below the smallest number
# that has a logarithm, relative to the largest of its table, entries are zero.
_MOST_SCOPE, _LARGEST_LOG = 4, 700.0
_MOST_EVALUATIONS = 4096
_NONE = np.zeros(1, np.int64)


class Move:
    """A way to draw sites.

    Attributes
    ----------
    name : str
    sites : ndarray of int
    n_colours, n_evaluations : int
        Of a step.
    learns : bool
        Whether a step may change what was learned: while tuning only.
    learned : ndarray, empty if nothing is
    """

    name: str
    sites: Ints
    n_colours = 1
    n_evaluations: int
    learns = True
    learned: Floats = np.zeros(0)

    def draw(self, x: Ints, given: Given, rng: np.random.Generator, check: bool) -> Ints:
        """Return a new state; with `check`, raise `Surprise` where an output betrays its set."""
        raise NotImplementedError


class Surprise(Exception):
    """An output changed with sites that it does not see."""

    def __init__(self, outputs: Ints, sites: Ints):
        super().__init__()
        self.outputs, self.sites = outputs, sites


def coloured(block: Block, sites: Ints) -> list[Ints]:
    """Return classes of sites, no two of which are seen by one output."""
    by_site = block.sets[:, sites].T.tocsr()
    used = [set[int]() for _ in range(block.sets.shape[0])]
    classes = list[list[int]]()
    for i, site in enumerate(sites.tolist()):
        scopes = by_site.indices[by_site.indptr[i] : by_site.indptr[i + 1]].tolist()
        taken = set().union(*(used[s] for s in scopes))
        colour = next(c for c in range(len(classes) + 1) if c not in taken)
        if colour == len(classes):
            classes.append([])
        classes[colour].append(site)
        for s in scopes:
            used[s].add(colour)
    return [np.array(c) for c in classes]


def chosen(log_p: Floats, u: Floats, now: Ints) -> Ints:
    """Return an index for each column, with probabilities exp(log_p), from uniform numbers.

    A column without a possible value keeps the present one.
    """
    top = log_p.max(axis=0)
    stays = top == -np.inf
    sums = np.exp(log_p - np.where(stays, 0.0, top)).cumsum(axis=0)
    found = (sums <= u * sums[-1]).sum(axis=0)
    return np.where(stays, now, np.minimum(found, log_p.shape[0] - 1))


class Colour:
    """Sites that are independent given all others, and sums of the outputs that see them."""

    def __init__(self, block: Block, sites: Ints):
        self.block, self.sites = block, sites
        self.sums = block.sets[:, sites].T.tocsr().astype(np.float64)

    def log_p(self, outputs: Floats) -> Floats:
        """Return log p of each site, but for a constant."""
        with np.errstate(invalid="ignore"):
            found = self.sums @ self.block.by_scope(outputs)
        return np.where(np.isnan(found), -np.inf, found)

    def own(self) -> Ints:
        """Return for each output the site of this colour that it sees, as a position, or -1."""
        at = self.sums.T.tocsr()
        found = np.full(self.block.sets.shape[0], -1)
        found[np.diff(at.indptr) > 0] = at.indices
        return found[self.block.scope_of]

    def check(self, x: Ints, y: Ints, expected: Floats, given: Given) -> None:
        """Raise `Surprise` unless the outputs at y are as expected; y differs from x at sites."""
        found = self.block.log_p(y, *given)
        wrong = ~np.isclose(found, expected, rtol=1e-8, atol=1e-8, equal_nan=True)
        if not wrong.any():
            return
        pairs = [np.empty((2, 0), np.int64)]
        for i in self.sites[x[self.sites] != y[self.sites]].tolist():
            for start, end in ((x, y), (y, x)):
                z = start.copy()
                z[i] = end[i]
                changed = self.block.log_p(z, *given) != self.block.log_p(start, *given)
                at = np.flatnonzero(wrong & changed)
                pairs.append(np.stack([at, np.full(at.size, i)]))
        outputs, sites = np.concatenate(pairs, axis=1)
        if not outputs.size:  # of several sites together only
            at = np.flatnonzero(wrong)
            outputs, sites = np.repeat(at, self.sites.size), np.tile(self.sites, at.size)
        raise Surprise(outputs, sites)


class Colours(Move):
    """All sites of a colour at once, by one evaluation for each value."""

    name = "colours"

    def __init__(self, block: Block, sites: Ints):
        self.block, self.sites = block, sites
        self.colours = [Colour(block, c) for c in coloured(block, sites)]
        self.n_colours = len(self.colours)
        self.n_values = [block.high[c.sites] - block.low[c.sites] + 1 for c in self.colours]
        self.n_evaluations = sum(int(k.max()) for k in self.n_values)
        # Which sites had another possible value; None if nobody asks.
        self.possible: NDArray[np.bool_] | None = None

    def draw(self, x: Ints, given: Given, rng: np.random.Generator, check: bool) -> Ints:
        now: Floats | None = self.block.log_p(x, *given) if check else None
        for colour, k in zip(self.colours, self.n_values, strict=True):
            s, most = colour.sites, int(k.max())
            low, outputs = self.block.low[s], list[Floats]()
            log_p = np.empty((most, s.size))
            y = x.copy()
            for v in range(most):
                y[s] = low + np.minimum(v, k - 1)
                known = now is not None and s.size == 1 and y[s[0]] == x[s[0]]
                outputs.append(now if known else self.block.log_p(y, *given))  # type: ignore[arg-type]
                log_p[v] = np.where(v < k, colour.log_p(outputs[v]), -np.inf)
            new = chosen(log_p, rng.random(s.size), x[s] - low)
            y[s] = low + new
            if self.possible is not None:
                self.possible[s] |= (log_p > -np.inf).sum(axis=0) > 1
            if check and now is not None:  # values mixed anew: outputs must not notice
                mixed = np.where(rng.random(s.size) < 0.5, new, rng.integers(0, k))
                own, z = colour.own(), x.copy()
                z[s] = low + mixed
                at = np.where(own < 0, most, mixed[own])
                expected = np.stack([*outputs, now])[at, np.arange(at.size)]
                colour.check(x, z, expected, given)
            now = outputs[int(new[0])] if s.size == 1 else None
            now = self.block.log_p(y, *given) if check and now is None else now
            x = y
        return x


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
            y[colour.sites] = self._sliced(colour, x, low, high, given, rng)
            if check:  # half of the changes
                own = colour.own()
                half = np.append(rng.random(colour.sites.size) < 0.5, False)
                z = np.where(np.isin(np.arange(x.size), colour.sites[half[:-1]]), y, x)
                before, after = (self.block.log_p(state, *given) for state in (x, y))
                colour.check(x, z, np.where(half[own], after, before), given)
            x = y
        return x

    def _sliced(
        self, colour: Colour, x: Ints, low: Ints, high: Ints, given: Given, rng: Any
    ) -> Ints:
        s, w = colour.sites, self.learned[colour.sites]
        y, now = x.copy(), x[colour.sites]

        def log_p(at: Floats) -> Floats:
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
        k = block.high[sites] - block.low[sites] + 1
        place = np.full(block.n_sites, -1)
        place[sites] = np.arange(sites.size)
        rows = block.sets[:, sites].tocsr()
        rows.sort_indices()
        self.scopes = [
            tuple(rows.indices[a:b].tolist())
            for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)
        ]
        width = max(map(len, self.scopes))
        if width > _MOST_SCOPE:
            raise ValueError(f"needs elements that see few sites: one sees {width}")
        most = max((float(np.prod(k[list(s)])) for s in self.scopes if s), default=1.0)
        if most > _MOST_EVALUATIONS:
            raise ValueError(f"needs few joint values: sites seen together have {most:.0f}")
        colour = np.empty(sites.size, np.int64)
        for c, one in enumerate(spare.colours):
            colour[place[one.sites]] = c
        factors = [(s, np.ones(k[list(s)])) for s in self.scopes if s]
        self.network = MarkovNetwork(k, factors)
        self._k, self._colour, self.n_colours = k, colour, spare.n_colours
        self._lay_out()

    def _lay_out(self) -> None:
        """Find out which evaluations there are, and where their outputs go."""
        kept = [i for i, s in enumerate(self.scopes) if s]
        sizes = [int(np.prod(self._k[list(self.scopes[i])])) for i in kept]
        self._starts = np.cumsum([0, *sizes])
        groups = {frozenset(self._colour[list(self.scopes[i])].tolist()) for i in kept}
        groups = {g for g in groups if not any(g < other for other in groups)}
        self.evaluations = list[tuple[Ints, Ints, Ints]]()  # states, scopes, entries
        for group in groups:
            colours = sorted(group)
            most = [int(self._k[self._colour == c].max()) for c in colours]
            members = [
                (j, list(self.scopes[i]))
                for j, i in enumerate(kept)
                if set(self._colour[list(self.scopes[i])].tolist()) <= group
            ]
            for values in product(*map(range, most)):
                of = np.zeros(self._colour.max() + 1, np.int64)
                of[colours] = values
                state = of[self._colour]
                fits = [(j, s) for j, s in members if (state[s] < self._k[s]).all()]
                scope = np.array([kept[j] for j, _ in fits], np.int64)
                entry = np.array(
                    [
                        self._starts[j] + np.ravel_multi_index(tuple(state[s]), tuple(self._k[s]))
                        for j, s in fits
                    ],
                    np.int64,
                )
                self.evaluations.append((np.minimum(state, self._k - 1), scope, entry))
        self.n_evaluations = len(self.evaluations)
        self._plan: Any = None

    def draw(self, x: Ints, given: Given, rng: np.random.Generator, check: bool) -> Ints:
        if check:
            x = self._spare.draw(x, given, rng, check)
        if self._plan is None:
            self._plan = exact.prepare(self.network)
        logs = self.tables(x, given)
        if not (logs[logs > -np.inf] >= -_LARGEST_LOG).all() or np.isnan(logs).any():
            return self._spare.draw(
                x, given, rng, check
            )  # too far apart for numbers, or impossible
        y = x.copy()
        state = self._plan.with_tables(np.exp(logs)).sample(1, random_state=rng)[0]
        y[self.sites] = self.block.low[self.sites] + state
        return y

    def tables(self, x: Ints, given: Given) -> Floats:
        """Return logarithms of all entries, less the largest of each table."""
        logs = np.empty(self._starts[-1])
        low, y = self.block.low[self.sites], x.copy()
        for state, scope, entry in self.evaluations:
            y[self.sites] = low + state
            with np.errstate(invalid="ignore"):
                logs[entry] = self.block.by_scope(self.block.log_p(y, *given))[scope]
        logs[np.isnan(logs)] = -np.inf
        top = np.maximum.reduceat(logs, self._starts[:-1])
        with np.errstate(invalid="ignore"):  # a table without a possible entry is NaN
            return logs - np.repeat(top, np.diff(self._starts))


class Balanced(Move):
    """Locally balanced single changes: each knows log p of all states one change away."""

    name = "lsb"

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

    def _ratios(self, x: Ints, given: Given) -> Floats:
        """Return log p at all states one change away, less that here."""
        here = self.block.log_p(x, *given).sum()
        found = np.empty(self._site.size)
        low = self.block.low[self._site]
        values = low + (x[self._site] - low + self._jump) % self._k
        for m, (i, v) in enumerate(zip(self._site.tolist(), values.tolist(), strict=True)):
            old, x[i] = x[i], v
            found[m] = self.block.log_p(x, *given).sum()
            x[i] = old
        found -= here
        return np.where(np.isnan(found), -np.inf, found)

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

    def _log_weights(self, x: Ints, given: Given, g: BalancingFunction) -> Floats:
        ratios = self._ratios(x, given)
        possible = ratios > -np.inf
        return np.where(possible, g.log_g(np.where(possible, ratios, 0.0)), -np.inf)

"""Blocks of variables that are drawn jointly given the rest: the whole model, or a pool of blocks.

The variables of a block are those of which tables stay small where the rest is conditioned on.
"""

import heapq
import math
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.elimination.buckets import LINEAR, LOG, Room, new_room
from sklsb.exact.elimination.engine import Elimination
from sklsb.exact.elimination.passes import Passes
from sklsb.exact.elimination.plan import build
from sklsb.exact.elimination.reduce import Array, Factor, Reduced, absorb
from sklsb.targets.base import States

Rng = np.random.Generator
N_BLOCKS = 16
# Log2 of the entries of the messages of a block, and so of the largest table.
MOST_LOG2_SIZE = 21
# Uniform numbers, and values of states, that are held at once.
_MOST_NUMBERS, _MOST_AHEAD = 1 << 22, 1 << 25
# Redraws that are made together of a model that does not fit in one piece, at least.
_GROUP = 4096
# What takes as long as an entry: a redraw, since it is made in Python, and each of its variables.
_OVERHEAD, _OF_VARIABLE = 1.5 * 2.0**15, 2.0**7


class _StoppedError(Exception):
    """Work was interrupted between two pieces of it."""


class Whole:
    """Redraws of the whole model, which depend on nothing and are made ahead.

    A sliced model is eliminated again for each configuration that is drawn, so redraws of it are
    made for all chains together, in groups.

    Parameters
    ----------
    elimination : Elimination
        The model, eliminated.
    n_chains : int
        Number of chains that take them.
    """

    whole = True

    def __init__(self, elimination: Elimination, n_chains: int):
        self.elimination = elimination
        self.n_spent = 0  # table entries of eliminations that nobody has counted
        self._room = new_room(elimination.passes.plan.buckets)
        nothing = np.empty((0, elimination.target.n_sites), elimination.target.dtype), np.empty(0)
        # Of each chain: states and log p.
        self._ahead: list[tuple[States, Array]] = [nothing] * n_chains

    def __getstate__(self) -> dict[str, Any]:
        found, log_sums = self.elimination.found, self.elimination.log_sums
        return {"found": found, "log_sums": log_sums, "ahead": list(self._ahead)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        elimination = Elimination(state["found"], LINEAR)
        elimination.log_sums[:] = state["log_sums"]
        self.__init__(elimination, len(state["ahead"]))  # type: ignore[misc]
        self._ahead = [(x, lp) for x, lp in state["ahead"]]

    def copy(self) -> "Whole":
        """Return the same, to go on by itself."""
        made = type(self).__new__(type(self))
        if self.elimination.ready:
            made.__init__(self.elimination, len(self._ahead))  # type: ignore[misc]
            made._ahead = list(self._ahead)
        else:
            made.__setstate__(self.__getstate__())
        return made

    def of(self, n_chains: int) -> "Whole":
        """Return the same for other chains."""
        return type(self)(Elimination(self.elimination.found, LINEAR), n_chains)

    @property
    def blocks(self) -> list[NDArray[np.int64]]:
        """The variables of the only block."""
        return [np.arange(self.elimination.target.n_sites)]

    @property
    def work(self) -> float:
        """Table entries that a redraw looks at, those of eliminations apart."""
        return float(self.elimination.entries_per_draw)

    @property
    def sliced(self) -> bool:
        """Whether it is eliminated again and again."""
        return self.elimination.log_sums.size > 1

    def spent(self) -> int:
        """Return the table entries of eliminations since this was asked last."""
        n, self.n_spent = self.n_spent, 0
        return n

    def want(
        self,
        numbers: Sequence[int],
        most: int,
        rngs: list[Rng],
        going_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Have so many redraws of each chain ready, and of a sliced model up to ``most``.

        ``going_on`` is called between pieces of the work. If it says no, all is as it was before,
        and False is returned. Of one configuration the messages are made in any case.
        """
        chains, elimination = range(len(self._ahead)), self.elimination
        if (self.sliced or elimination.ready) and not any(self._lacking(chains, numbers)):
            return True
        n = max(1, len(chains))
        room = _MOST_AHEAD // max(1, n * elimination.target.n_sites)
        most = min(max(most, _GROUP // n), room) if self.sliced else 0

        def check(_: int) -> None:
            if not going_on():
                raise _StoppedError

        before = elimination.n_made
        try:
            with elimination.watched(check):
                elimination.run()
                if not self.sliced:
                    elimination.forward(0)
                self.fill(chains, numbers, most, rngs)
        except _StoppedError:
            return False
        finally:
            self.n_spent += elimination.n_made - before if self.sliced else 0
        return True

    def fill(
        self,
        chains: Sequence[int],
        numbers: Sequence[int],
        most: int,
        rngs: list[Rng],
        room: Room | None = None,
    ) -> None:
        """Make redraws of some chains until there are so many; ``most`` tells how many to try for.

        Threads may do that at once, for different chains, with a room of their own each, if the
        elimination is ready.
        """
        known = list(zip(chains, rngs, strict=True))
        before = [(rng.bit_generator.state, self._ahead[c]) for c, rng in known]
        try:
            while any(self._lacking(chains, numbers)):
                sizes = self._lacking(chains, [max(n, most) for n in numbers])
                self._make(chains, sizes, rngs, room or self._room)
        except BaseException:  # an interrupt: the numbers are not lost
            for (c, rng), (state, ahead) in zip(known, before, strict=True):
                rng.bit_generator.state, self._ahead[c] = state, ahead
            raise

    def _lacking(self, chains: Sequence[int], numbers: Sequence[int]) -> list[int]:
        pairs = zip(chains, numbers, strict=True)
        return [max(0, n - len(self._ahead[c][0])) for c, n in pairs]

    def _make(self, chains: Sequence[int], sizes: list[int], rngs: list[Rng], room: Room) -> None:
        """Make redraws, some of which may be rejected."""
        elimination = self.elimination
        width = elimination.found.n_uniforms
        most = max(1, _MOST_NUMBERS // max(1, width * len(sizes)))
        ends = np.cumsum([min(n, most) for n in sizes])
        u = np.empty((int(ends[-1]), width))
        parts = [slice(a, b) for a, b in pairwise([0, *ends.tolist()])]
        for part, rng in zip(parts, rngs, strict=True):
            rng.random(out=u[part])
        x = np.empty((len(u), elimination.target.n_sites), elimination.target.dtype)
        lp = np.empty(len(u))
        accepted = elimination.draw(u, x, lp, room)
        for c, part in zip(chains, parts, strict=True):
            rows: Any = part
            if not accepted[part].all():
                rows = part.start + np.flatnonzero(accepted[part])
            new, (old, old_lp) = (x[rows], lp[rows]), self._ahead[c]
            if len(old):
                new = np.concatenate([old, new[0]]), np.concatenate([old_lp, new[1]])
            self._ahead[c] = new

    def take(self, c: int, n: int) -> tuple[States, Array]:
        """Return the next redraws of a chain, which are ready, and their log p."""
        x, lp = self._ahead[c]
        self._ahead[c] = x[n:], lp[n:]
        return x[:n], lp[:n]


class Pool:
    """Blocks of variables, one of which is drawn anew given the other variables.

    Parameters
    ----------
    model : Reduced
        What `strike` has left of a target.
    orders : list of list of int
        Variables of each block, in the order in which they are eliminated.
    """

    whole = False

    def __init__(self, model: Reduced, orders: list[list[int]]):
        self.model, self.orders = model, orders
        factors = absorb(model.factors)
        self._passes = [_passes(order, factors, model.sizes) for order in orders]
        # Chains share the memory of a block.
        self._locks = [threading.Lock() for _ in orders]
        self._changed = [np.array(order, dtype=np.int64) for order in orders]
        # Of each site: the index of a value among those left, and the other way round.
        self._index, self._values = _indices(model)
        self.entries = [int(p.plan.buckets.message_size @ p.plan.buckets.k) for p in self._passes]

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "orders": self.orders}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def copy(self) -> "Pool":
        """Return itself: nothing in it goes on."""
        return self

    def of(self, n_chains: int) -> "Pool":
        """Return itself: chains have nothing in it of their own."""
        return self

    @property
    def blocks(self) -> list[NDArray[np.int64]]:
        """The variables of each block."""
        return [np.sort(changed) for changed in self._changed]

    @property
    def work(self) -> float:
        """Table entries that a redraw makes, on average, and what takes as long as those."""
        n_variables = np.mean([changed.size for changed in self._changed])
        return float(np.mean(self.entries) + _OVERHEAD + _OF_VARIABLE * n_variables)

    def redraw(self, x: States, rng: Rng) -> tuple[States, int]:
        """Return a state in which one block is drawn anew, and the entries that it took."""
        b = min(int(rng.random() * len(self.orders)), len(self.orders) - 1)
        u = rng.random((1, len(self.orders[b])))
        given = self._index[np.arange(x.size), np.searchsorted(self.model.target.values, x)]
        with self._locks[b]:
            values = self.forward(b, given)
            self._passes[b].draw(values, u)
        changed = self._changed[b]
        result = x.copy()
        result[changed] = self._values[changed, values[changed, 0]]
        return result, self.entries[b]

    def forward(self, b: int, given: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Make the messages of a block given the other variables, by indices of values left."""
        passes = self._passes[b]
        if passes.mode != LINEAR:
            passes.use(LINEAR)
        if not math.isfinite(passes.forward(given)):  # too small for a float
            passes.use(LOG)
            if not math.isfinite(passes.forward(given)):
                raise ValueError(
                    f"A block of {len(self.orders[b])} variables of {self.model.target!r:.200} has "
                    "no state of positive probability given the others. Give possible "
                    "initial_states."
                )
        return passes.states(1, given)


def _indices(model: Reduced) -> tuple[NDArray[np.int64], NDArray[Any]]:
    names = np.asarray(model.target.values, dtype=model.target.dtype)
    index = np.zeros((len(model.values), names.size), dtype=np.int64)
    values = np.zeros(index.shape, dtype=names.dtype)
    for i, left in enumerate(model.values):
        index[i, left] = np.arange(left.size)
        values[i, : left.size] = names[left]
    return index, values


def _passes(order: list[int], factors: list[Factor], sizes: NDArray[np.int64]) -> Passes:
    """Lay out a block; of the other tables nothing is needed."""
    inside = set(order)
    mine = [factor for factor in factors if inside.intersection(factor.scope)]
    return Passes(build(order, mine, sizes), sizes.size)


def neighbours(model: Reduced) -> dict[int, set[int]]:
    free = set(model.free)
    near: dict[int, set[int]] = {v: set() for v in model.free}
    for scope, _ in model.factors:
        inside = free.intersection(scope)
        for v in inside:
            near[v].update(inside)
    for v, others in near.items():
        others.discard(v)
    return near


def choose_blocks(model: Reduced, log2_size: float, n_blocks: int = N_BLOCKS) -> list[list[int]]:
    """Choose blocks whose tables have at most 2**log2_size entries.

    The cheapest variable is eliminated, again and again; where its table would be too large, a
    random one is conditioned on instead, rather one that other blocks have. Of a model that fits
    whole there is one block, of all free variables.

    Parameters
    ----------
    model : Reduced
        What `strike` has left of a target.
    log2_size : float
        Logarithm to base 2 of the entries of the largest table.
    n_blocks : int
        Number of blocks.

    Returns
    -------
    list of list of int
        The variables of each block in their order of elimination.
    """
    log_k = np.log2(model.sizes.astype(np.float64))
    often = dict.fromkeys(model.free, 0)
    orders: list[list[int]] = []
    for b in range(n_blocks):
        rng = np.random.default_rng([b, 0xB10C])
        order = _choose(neighbours(model), log_k, log2_size, often, rng)
        if order:
            orders.append(order)
        if len(order) == len(often):
            return [order] if order else []
        for v in order:
            often[v] += 1
    return orders


def _choose(
    near: dict[int, set[int]],
    log_k: NDArray[np.float64],
    most: float,
    often: dict[int, int],
    rng: Rng,
) -> list[int]:
    """Choose one block; ``near`` is used up."""
    room = 2.0**MOST_LOG2_SIZE
    size = {v: float(log_k[v] + log_k[list(near[v])].sum()) for v in near}
    tie = {v: float(u) for v, u in zip(near, rng.random(len(near)), strict=True)}
    heap = [(size[v], tie[v], v) for v in near]
    heapq.heapify(heap)
    # What is conditioned on comes last here: in a random order, and what many blocks have.
    later = sorted(near, key=lambda v: (often[v] > 0, rng.random() ** (1.0 / (1 + often[v]))))
    order: list[int] = []
    while heap:
        known, _, v = heapq.heappop(heap)
        if v not in near or known != size[v]:
            continue
        fits = size[v] <= most and room >= 2.0 ** (size[v] - log_k[v])
        if fits:
            room -= 2.0 ** (size[v] - log_k[v])
            order.append(v)
        else:
            heapq.heappush(heap, (known, tie[v], v))
            v = _next_condition(later, near)
        touched = near.pop(v)
        for u in touched:
            near[u].discard(v)
            if fits:
                near[u] |= touched
                near[u].discard(u)
        for u in touched:
            size[u] = float(log_k[u] + log_k[list(near[u])].sum())
            heapq.heappush(heap, (size[u], tie[u], u))
    return order


def _next_condition(later: list[int], near: dict[int, set[int]]) -> int:
    while later[-1] not in near:
        later.pop()
    return later.pop()

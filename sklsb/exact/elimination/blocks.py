"""Blocks of variables that are drawn jointly given the rest: the whole model, or a pool of blocks.

A block is chosen so that its tables stay small when the rest is conditioned on.
"""

import copy
import heapq
import math
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.elimination.buckets import LINEAR, Room, new_room
from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import at_once
from sklsb.exact.elimination.engine import Elimination
from sklsb.exact.elimination.passes import Passes
from sklsb.exact.elimination.plan import build
from sklsb.exact.elimination.reduce import Reduced, absorb
from sklsb.targets.base import States

Rng = np.random.Generator
N_BLOCKS = 16
# Log2 of the most entries of a block's messages, and hence of its largest table.
MOST_LOG2_SIZE = 21
# Most uniform numbers, and values of states, held at once.
_MOST_NUMBERS, _MOST_AHEAD = 1 << 22, 1 << 25
# Fewest redraws made together of a sliced model.
_GROUP = 4096
# Time of a redraw, which is made in Python, and of each of its variables, in table entries.
_OVERHEAD, _OF_VARIABLE = 1.5 * 2.0**15, 2.0**7


class _StoppedError(Exception):
    """Work was interrupted between two pieces."""


class Whole:
    """Redraws of the whole model, which depend on nothing and are made ahead.

    A sliced model is eliminated again for each configuration drawn, so its redraws are made for all
    chains together, in groups.
    """

    whole = True

    def __init__(self, elimination: Elimination, n_chains: int):
        self.elimination = elimination
        self.n_spent = 0  # table entries of eliminations not counted yet
        self._room = new_room(elimination.passes.plan.buckets)
        nothing = np.empty((0, elimination.target.n_sites), elimination.target.dtype), np.empty(0)
        self._ahead: list[tuple[States, Array]] = [nothing] * n_chains  # states and log p

    def __getstate__(self) -> dict[str, Any]:
        found, log_sums = self.elimination.found, self.elimination.log_sums
        return {"found": found, "log_sums": log_sums, "ahead": list(self._ahead)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        elimination = Elimination(state["found"], LINEAR)
        elimination.log_sums[:] = state["log_sums"]
        self.__init__(elimination, len(state["ahead"]))  # type: ignore[misc]
        self._ahead = [(x, lp) for x, lp in state["ahead"]]

    def copy(self) -> Self:
        if not self.elimination.ready:
            return copy.copy(self)  # eliminated again
        made = type(self)(self.elimination, len(self._ahead))
        made._ahead = list(self._ahead)
        return made

    def of(self, n_chains: int) -> Self:
        return type(self)(Elimination(self.elimination.found, LINEAR), n_chains)

    @property
    def blocks(self) -> list[Ints]:
        return [np.arange(self.elimination.target.n_sites)]

    @property
    def work(self) -> float:
        """Table entries read per redraw, without eliminations."""
        return float(self.elimination.entries_per_draw)

    @property
    def sliced(self) -> bool:
        """Whether the model is eliminated repeatedly."""
        return self.elimination.log_sums.size > 1

    def spent(self) -> int:
        """Return the table entries of eliminations since the last call."""
        n, self.n_spent = self.n_spent, 0
        return n

    def want(
        self,
        numbers: Sequence[int],
        most: int,
        rngs: list[Rng],
        going_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Have these numbers of redraws ready, up to ``most`` per chain if the model is sliced.

        ``going_on`` is called between pieces of work. If it returns False, nothing has changed and
        this returns False. If there is one configuration, its messages are made in any case.
        """
        chains, elimination = range(len(self._ahead)), self.elimination
        if (self.sliced or elimination.ready) and not any(self._lacking(chains, numbers)):
            return True
        n = max(1, len(chains))
        room = at_once(_MOST_AHEAD, n * elimination.target.n_sites)
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
        """Make redraws until each chain has its number; attempt up to ``most`` per chain.

        If the elimination is ready, threads may call this at once for different chains, each with a
        room of its own.
        """
        known = list(zip(chains, rngs, strict=True))
        before = [(rng.bit_generator.state, self._ahead[c]) for c, rng in known]
        try:
            while any(self._lacking(chains, numbers)):
                sizes = self._lacking(chains, [max(n, most) for n in numbers])
                self._make(chains, sizes, rngs, room or self._room)
        except BaseException:  # an interrupt must not lose random numbers
            for (c, rng), (state, ahead) in zip(known, before, strict=True):
                rng.bit_generator.state, self._ahead[c] = state, ahead
            raise

    def _lacking(self, chains: Sequence[int], numbers: Sequence[int]) -> list[int]:
        pairs = zip(chains, numbers, strict=True)
        return [max(0, n - len(self._ahead[c][0])) for c, n in pairs]

    def _make(self, chains: Sequence[int], sizes: list[int], rngs: list[Rng], room: Room) -> None:
        """Attempt redraws, some of which may be rejected."""
        elimination = self.elimination
        width = elimination.found.n_uniforms
        most = at_once(_MOST_NUMBERS, width * len(sizes))
        ends = np.cumsum([min(n, most) for n in sizes])
        u = np.empty((int(ends[-1]), width))
        parts = [slice(a, b) for a, b in pairwise([0, *ends.tolist()])]
        for part, rng in zip(parts, rngs, strict=True):
            rng.random(out=u[part])
        x = np.empty((len(u), elimination.target.n_sites), elimination.target.dtype)
        lp = np.empty(len(u))
        accepted = elimination.draw(u, x, lp, room)
        for c, part in zip(chains, parts, strict=True):
            kept, (states, log_p) = accepted[part], self._ahead[c]
            states = np.concatenate([states, x[part][kept]])
            self._ahead[c] = states, np.concatenate([log_p, lp[part][kept]])

    def take(self, c: int, n: int) -> tuple[States, Array]:
        x, lp = self._ahead[c]
        self._ahead[c] = x[n:], lp[n:]
        return x[:n], lp[:n]


class BlockPool:
    """Blocks of variables, one of which is redrawn given the other variables.

    ``model`` is what `strike` has left of a target; ``orders`` holds the variables of each block in
    their order of elimination.
    """

    whole = sliced = False

    def __init__(self, model: Reduced, orders: list[list[int]]):
        self.model, self.orders = model, orders
        factors = absorb(model.factors)
        self._passes = []
        for order in orders:
            mine = [factor for factor in factors if not set(order).isdisjoint(factor.scope)]
            self._passes.append(Passes(build(order, mine, model.sizes)))
        # Chains share the memory of a block.
        self._locks = [threading.Lock() for _ in orders]
        self._changed = [np.array(order, dtype=np.int64) for order in orders]
        # Of each target value among those left of each variable.
        self._index = np.zeros((len(model.values), len(model.target.values)), dtype=np.int64)
        for row, left in zip(self._index, model.values, strict=True):
            row[left] = np.arange(left.size)
        self.entries = [int(p.plan.buckets.message_size @ p.plan.buckets.k) for p in self._passes]

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "orders": self.orders}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def blocks(self) -> list[Ints]:
        return [np.sort(changed) for changed in self._changed]

    @property
    def work(self) -> float:
        """Mean time of a redraw, in table entries."""
        n_variables = np.mean([changed.size for changed in self._changed])
        return float(np.mean(self.entries) + _OVERHEAD + _OF_VARIABLE * n_variables)

    def copy(self) -> Self:
        return self  # it never changes

    def of(self, n_chains: int) -> Self:
        return self  # it holds nothing of single chains

    def want(self, *args: Any) -> bool:
        return True  # nothing is made ahead

    def spent(self) -> int:
        return 0

    def redraw(self, x: States, rng: Rng) -> tuple[States, int]:
        """Return a state with one block redrawn, and the table entries that it took."""
        b = min(int(rng.random() * len(self.orders)), len(self.orders) - 1)
        u = rng.random((1, len(self.orders[b])))
        given = self._index[np.arange(x.size), np.searchsorted(self.model.target.values, x)]
        with self._locks[b]:
            values = self.forward(b, given)
            self._passes[b].draw(values, u)
        changed = self._changed[b]
        result = x.copy()
        result[changed] = self.model.names[changed, values[changed, 0]]
        return result, self.entries[b]

    def forward(self, b: int, given: Ints) -> NDArray[np.uint32]:
        """Make the messages of a block given indices of the other variables' values."""
        passes = self._passes[b]
        if passes.forward(given) == -math.inf:
            raise ValueError(
                f"A block of {len(self.orders[b])} variables of {self.model.target!r:.200} has no "
                "state of positive probability given the others. Give possible initial_states."
            )
        return passes.states(1, given)


def neighbours(model: Reduced) -> dict[int, set[int]]:
    near: dict[int, set[int]] = {v: set() for v in model.free}
    for scope, _ in model.factors:
        inside = near.keys() & scope
        for v in inside:
            near[v] |= inside - {v}
    return near


def choose_blocks(model: Reduced, log2_size: float, n_blocks: int = N_BLOCKS) -> list[list[int]]:
    """Choose blocks whose tables have at most 2**log2_size entries, as orders of elimination.

    The cheapest variable is eliminated repeatedly. If its table would be too large, a random
    variable is conditioned on instead, preferably one that other blocks include. If the model fits
    whole, the only block has all free variables.
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
    log_k: Array,
    most: float,
    often: dict[int, int],
    rng: Rng,
) -> list[int]:
    """Choose one block; consumes ``near``."""
    room = 2.0**MOST_LOG2_SIZE
    size = {v: float(log_k[v] + log_k[list(near[v])].sum()) for v in near}
    tie = {v: float(u) for v, u in zip(near, rng.random(len(near)), strict=True)}
    heap = [(size[v], tie[v], v) for v in near]
    heapq.heapify(heap)
    # Conditioned on from the end: in random order, preferring variables that many blocks include.
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
            while later[-1] not in near:
                later.pop()
            v = later.pop()
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

"""The passes of elimination over a plan: messages forward, values and marginals backward."""

import math
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import warn_if_uncached
from sklsb._kernels.elimination import draws
from sklsb._kernels.elimination.buckets import (
    BATCH,
    DRAW,
    FOLLOW,
    LARGEST,
    LINEAR,
    LOG,
    MAX,
    Room,
    new_room,
)
from sklsb._kernels.elimination.marginals import clear_below, spread
from sklsb._kernels.elimination.messages import SMALLEST, bound_lost, finish, place, send
from sklsb._system.arrays import Array, Bools, Ints
from sklsb.exact.elimination.plan import Plan

Values = NDArray[np.uint32]
# Table entries between two returns to Python, about a tenth of a second.
_BUDGET = {LINEAR: 1 << 24, MAX: 1 << 23, LOG: 1 << 20}
_SPREAD_BUDGET = {LINEAR: 1 << 23, LOG: 1 << 20}
# All blocks of a bucket, for kernels that can take some.
_WHOLE = (0, -1)
# Fewest table entries of a bucket that threads share.
_SHARED = 1 << 18
# Log2 of what underflow may lose, relative to the sum and to a single probability, and of what
# counts as nothing (below 1e-300).
_MOST_LOST, _OF_ONE, _NOTHING = -64.0, -34.0, -1000.0


class Weights(NamedTuple):
    """Weights of the values of a variable, the largest of which is 1."""

    log: Array
    linear: Array
    least: float  # log2 of the smallest above 0

    @classmethod
    def of(cls, log_weights: Array) -> "Weights":
        finite = log_weights[log_weights > -np.inf]
        return cls(log_weights, np.exp(log_weights), float(finite.min()) / math.log(2.0))


def no_progress(done: int) -> None:
    """Show nothing."""


class Passes:
    """Runs the compiled passes over a plan.

    ``way`` (LINEAR, LOG or MAX) is how tables are joined and summed out; LINEAR gives way to LOG,
    the present ``mode``, where products underflow. ``progress`` is called with the number of table
    entries made since its last call. ``n_jobs`` threads share large buckets; results do not depend
    on their number.
    """

    def __init__(self, plan: Plan, way: int = LINEAR, n_jobs: int = 1):
        warn_if_uncached()
        self.plan, self.way = plan, way
        self.progress: Callable[[int], object] = no_progress
        buckets = plan.buckets
        self.base = buckets.position.copy()
        # Log2 of what each message was divided by, and of its smallest entry above 0.
        self.scales = np.zeros((2, buckets.variable.size))
        self.memory = np.empty(plan.n_entries)
        self._rooms = [new_room(buckets) for _ in range(n_jobs)]
        sends = buckets.message >= 0
        self.roots = np.flatnonzero(sends & (np.diff(buckets.axis_start) == 0))
        # Entries of the table of each bucket, if it sends a message.
        self._entries = np.where(sends, buckets.message_size * buckets.k, 0)
        self._lost_of = np.zeros(buckets.variable.size)
        # Buckets whose messages are not those of the present tables, and those to go back through.
        self.stale = np.ones(buckets.variable.size, dtype=np.bool_)
        self.wanted = np.ones(buckets.variable.size, dtype=np.bool_)
        self._lost = -math.inf  # log2 of what the present messages have lost
        self.fill(plan)

    def fill(self, plan: Plan) -> None:
        """Take the tables of this plan, which differs from the present one in nothing else."""
        self.plan = plan
        self.log_tables, self._least = plan.log_tables, plan.least
        if plan.evidence:  # weights are written into them
            self.log_tables, self._least = self.log_tables.copy(), self._least.copy()
        self._use(self.way)

    def _use(self, mode: int) -> None:
        """Change how tables are joined; messages must be made again."""
        self.mode = mode
        self.stale[:] = True
        tables = self.log_tables
        if mode == LINEAR:
            np.exp(tables, out=self.memory[: tables.size])
        else:
            self.memory[: tables.size] = tables

    def weigh(self, variable: int, weights: Weights) -> None:
        """Replace the weights of a variable's values; messages that depend on them get stale."""
        start, factor, bucket = self._weights_at[variable]
        mine = slice(start, start + weights.log.size)
        self.log_tables[mine] = weights.log
        self.memory[mine] = weights.linear if self.mode == LINEAR else weights.log
        self._least[factor] = weights.least
        self._mark(self.stale, bucket)

    def want(self, variables: Collection[int] | None) -> None:
        """Choose the variables whose `marginals` are needed; None means all."""
        self.wanted[:] = variables is None
        for variable in variables or ():
            if variable in self._weights_at:
                self._mark(self.wanted, self._weights_at[variable][2])

    def _mark(self, marks: Bools, bucket: int) -> None:
        """Mark a bucket and all that depend on its message."""
        while bucket >= 0 and not marks[bucket]:
            marks[bucket] = True
            bucket = self._receiver[bucket]

    @cached_property
    def _weights_at(self) -> dict[int, tuple[int, int, int]]:
        """The position, the factor and the bucket of the weights of each variable."""
        buckets, tables = self.plan.buckets, self.plan.factors
        starts = np.array([*self.plan.evidence.values()])
        factors = tables[np.searchsorted(buckets.position[tables], starts)]
        bucket = np.searchsorted(buckets.factor_start, factors, "right") - 1
        found = zip(starts.tolist(), factors.tolist(), bucket.tolist(), strict=True)
        return dict(zip(self.plan.evidence, found, strict=True))

    @cached_property
    def _receiver(self) -> list[int]:
        """The bucket that joins the message of each bucket; -1 where it is a number."""
        buckets = self.plan.buckets
        result = np.full(buckets.variable.size, -1)
        at = np.repeat(np.arange(result.size), np.diff(buckets.factor_start))
        sent = buckets.sender >= 0
        result[buckets.sender[sent]] = at[sent]
        return result.tolist()

    def forward(self, x: Ints, logs: bool = False) -> float:
        """Make all messages given the values of the variables conditioned on.

        They are logarithms if products that underflow may matter, or if that is asked for. Returns
        the logarithm of the sum, or maximum, of all products of tables: -inf if all are zero.
        """
        plan, buckets, mode = self.plan, self.plan.buckets, LOG if logs else self.way
        if self.mode != mode:
            self._use(mode)
        inside = self._log_inside(x)
        if inside == -math.inf:
            return -math.inf
        if buckets.given_variable.size:
            place(buckets, x, self.base)
        if not plan.evidence:  # messages were made for other values, or freed
            self.stale[:] = True
        self.scales[:, self.stale] = 0.0
        made, failed = self._send(0, buckets.variable.size)
        self.stale[:] = failed >= 0
        total = inside + plan.shift
        self._lost = -math.inf
        if mode == LINEAR:
            found = total + self._log_sum(failed)
            if math.isnan(found):  # all are made again
                self.progress(-made)
                return self.forward(x, True)
            return found
        if failed >= 0:
            return -math.inf
        return total + float(self.memory[buckets.message[self.roots]].sum())

    def _pieces(self, first: int, end: int, budget: int) -> list[tuple[int, int, bool]]:
        """Divide buckets into large ones and runs of others, of about so many entries."""
        known, key = self.plan.divided, (first, end, budget)
        if key not in known:
            entries = self._entries[first:end] + 64
            large = entries >= _SHARED
            run = np.cumsum(np.where(large, 0, entries)) // budget
            new = large[1:] | large[:-1] | (run[1:] > run[:-1])
            pairs = pairwise([first, *(np.flatnonzero(new) + first + 1).tolist(), end])
            known[key] = [(a, b, bool(large[a - first : b - first].any())) for a, b in pairs]
        return known[key]

    def _send(self, first: int, end: int) -> tuple[int, int]:
        """Make messages of buckets; return the entries, and the bucket of an empty one or -1."""
        made, room = 0, self._rooms[0]
        for a, b, large in self._pieces(first, end, _BUDGET[self.mode]):
            if large:
                n, failed = self._send_large(a) if self.stale[a] else (0, -1)
            else:
                n, failed = self._send_blocks(room, (a, b), _WHOLE)
                self.progress(int(n))
            made += int(n)
            if failed >= 0:
                return made, failed
        return made, -1

    def _send_blocks(
        self, room: Room, span: tuple[int, int], blocks: tuple[int, int]
    ) -> tuple[int, int]:
        state = self.memory, self.base, room, self.scales, self.stale
        return send(self.plan.buckets, *state, span, blocks, self.mode)

    def _send_large(self, i: int) -> tuple[int, int]:
        """Make one message, by all threads."""
        buckets, room, n = self.plan.buckets, self._rooms[0], int(self._entries[i])

        def work(room: Room, _: int, first: int, last: int) -> Array:
            self._send_blocks(room, (i, i + 1), (first, last))
            return np.array([-room.least, room.top])

        n_parts = -(-n // _BUDGET[self.mode]) * len(self._rooms)
        room.least[:], room.top[:] = np.maximum.reduce(self._share(i, n_parts, work))
        np.negative(room.least, out=room.least)
        return n, i if finish(buckets, self.memory, room, self.scales, i, self.mode) else -1

    def _share(
        self, i: int, n: int, work: Callable[[Room, int, int, int], Any], at_once: int = 1 << 30
    ) -> list[Any]:
        """Return work(room, part, first block, last block) for n equal parts of a bucket.

        Threads work on as many parts at once as there are rooms, or on fewer.
        """
        blocks = int(self.plan.buckets.message_size[i] // self.plan.buckets.inner_size[i])
        ends = [blocks * part // n for part in range(n + 1)]
        found: list[Any] = []
        while len(found) < n:
            a, rooms = len(found), self._rooms[: min(at_once, n - len(found))]
            parts = rooms, range(a, n), ends[a:], ends[a + 1 :]
            if len(rooms) > 1:
                with ThreadPoolExecutor(len(rooms)) as pool:  # waits for all, interrupted or not
                    found += pool.map(work, *parts)
            else:
                found += map(work, *parts)
            self.progress(int(self._entries[i]) // blocks * (ends[len(found)] - ends[a]))
        return found

    def _go_back(self, through: Callable[[int, int], object]) -> None:
        """Go back through all buckets; messages that were freed are made again before.

        ``through`` is called with the first bucket and the one after the last.
        """
        for step in self.plan.back:
            if step.sends:
                self.stale[:] = True
                self._send(step.first, step.end)
            else:
                through(step.first, step.end)

    def _log_sum(self, failed: int) -> float:
        """Logarithm of the product of the roots; NaN if underflow may have lost it.

        For each message there is a bound on what underflow has lost, relative to its largest entry.
        If nothing was lost before the bucket that ``failed``, and all its products are above the
        smallest float, its message is truly zero.
        """
        buckets, lost = self.plan.buckets, self._lost_of
        n = failed if failed >= 0 else buckets.variable.size
        low = bound_lost(buckets, self._least, self.scales, n, lost)
        if failed >= 0:
            return math.nan if low <= SMALLEST or (lost[:n] > -np.inf).any() else -math.inf
        self._lost = float(np.logaddexp2.reduce(lost[self.roots], initial=-math.inf))
        if self._lost > _MOST_LOST:
            return math.nan
        logs = np.log(self.memory[buckets.message[self.roots]])
        return float(logs.sum()) + math.log(2.0) * float(self.scales[0].sum())

    def states(self, n: int, x: Ints) -> Values:
        return np.repeat(x.astype(np.uint32)[:, None], n, axis=1)

    def draw(self, x: Values, u: Array, room: Room | None = None) -> Array:
        """Draw states into x by uniform numbers of shape (states, at least one per bucket).

        Returns the probability of accepting each: 1 unless row sums of barren variables differ.
        """
        return self._backward(x, u, DRAW, 0, room)

    def largest(self, x: Values) -> None:
        """Choose the most probable values, once after a forward pass in mode MAX."""
        u = np.zeros((x.shape[1], 0))
        self._go_back(lambda first, end: self._backward(x, u, LARGEST, first, end=end))

    def probabilities(self, x: Values, last: int = 0) -> Array:
        """Probability that a draw has the values in x for all buckets from ``last`` on."""
        return self._backward(x, np.zeros((x.shape[1], 0)), FOLLOW, last)

    def _backward(
        self,
        x: Values,
        u: Array,
        way: int,
        last: int,
        room: Room | None = None,
        end: int | None = None,
    ) -> Array:
        p = np.ones(x.shape[1])
        first = (self.plan.buckets.variable.size if end is None else end) - 1
        settings = min(self.mode, LOG), way, first, last
        for a in range(0, x.shape[1], BATCH):
            part = np.ascontiguousarray(x[:, a : a + BATCH])
            end = a + part.shape[1]
            args = (self.plan.buckets, self.memory, self.base, room or self._rooms[0])
            draws.backward(*args, part, u[a:end], p[a:end], settings)
            x[:, a:end] = part
        return p

    def log_densities(self, x: Values, room: Room | None = None) -> Array:
        """Sum of the logarithms of all tables, including those of barren variables."""
        plan = self.plan
        out = np.empty(x.shape[1])
        for a in range(0, x.shape[1], BATCH):
            part = np.ascontiguousarray(x[:, a : a + BATCH])
            args = (plan.buckets, self.log_tables, self.base, room or self._rooms[0])
            draws.log_densities(*args, part, out[a : a + part.shape[1]])
        inside = self._log_inside(x[:, 0]) if x.shape[1] else 0.0
        return out + (plan.shift + plan.barren_shift + inside)

    def _log_inside(self, x: NDArray[Any]) -> float:
        """Sum the logarithms of the tables in no bucket at a state."""
        tables = self.plan.inside
        return math.fsum([float(table[tuple(x[list(scope)].tolist())]) for scope, table in tables])

    def resolves(self, p: Array) -> bool:
        """Whether probabilities are right to ten digits in spite of underflow."""
        doubtful = p < 2.0 ** (self._lost - _OF_ONE)
        if self._lost < _NOTHING:
            doubtful &= p > 0.0
        return not doubtful.any()

    def marginals(self, shape: tuple[int, int]) -> Array:
        """Probabilities of the variables summed out, of shape (variables, k); 0 for barren ones.

        Once after a forward pass.
        """
        buckets, result = self.plan.buckets, np.zeros(shape)
        self.memory[buckets.belief[self.roots]] = 1.0
        self._go_back(lambda first, end: self._spread(first, end, result))
        eliminated = buckets.variable[(buckets.message >= 0) & self.wanted]
        found = result[eliminated]
        result[eliminated] = found / found.sum(axis=1, keepdims=True)
        return result

    def _spread(self, first: int, end: int, result: Array) -> None:
        """Go back through some buckets; add to the probabilities of their variables' values."""
        for a, b, large in reversed(self._pieces(first, end, _SPREAD_BUDGET[self.mode])):
            if not large:
                made = self._spread_blocks(self._rooms[0], result, (a, b), _WHOLE)
                self.progress(int(made))
            elif self.wanted[a]:
                self._spread_large(a, result)

    def _spread_blocks(
        self, room: Room, result: Array, span: tuple[int, int], blocks: tuple[int, int]
    ) -> int:
        state = self.memory, self.base, room, result, self.wanted
        return spread(self.plan.buckets, *state, span, blocks, self.mode)

    def _spread_large(self, i: int, result: Array) -> None:
        """Pass on one belief in pieces; sums do not depend on the number of threads.

        Threads work on pieces that add to different entries.
        """
        buckets, n = self.plan.buckets, int(self.plan.n_pieces[i])
        at_once = n
        if n == 1:
            n = -(-int(self._entries[i]) // _SPREAD_BUDGET[self.mode])
        sums = np.zeros((n, result.shape[1]))
        clear_below(buckets, self.memory, i)

        def work(room: Room, part: int, first: int, last: int) -> None:
            self._spread_blocks(room, sums[part : part + 1], (i, i + 1), (first, last))

        self._share(i, n, work, at_once)
        result[buckets.variable[i]] += sums.sum(axis=0)

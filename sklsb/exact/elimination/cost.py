"""What an elimination costs, and what it may cost."""

import math
import numbers
import time
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from sklsb._system.memory import available
from sklsb.exact.elimination.order import ENOUGH, MAX_SEARCH
from sklsb.exact.elimination.passes import Passes
from sklsb.exact.elimination.plan import MOST_ENTRIES, build
from sklsb.exact.elimination.reduce import Factor
from sklsb.exact.elimination.schedule import Need
from sklsb.exact.elimination.slicing import WAYS
from sklsb.targets.base import Target

# Table entries whose forward pass takes about a minute, and bytes.
MAX_WORK, MAX_MEMORY = 2.0**36, 2.0**30
# Times, in table entries, of each joint value of the variables conditioned on and of each table,
# beyond its entries, and of any answer.
_OF_PASS, _OF_TABLE, _OF_ANSWER = 2.0**16, 2.0**15, 2.0**21
# Log2 of the most table entries that somebody may want to wait for: hours.
_IN_REACH = 45.0
# Rows and columns of the lattice whose elimination is timed.
_TIMED = 14, 12


class Limits(NamedTuple):
    """Limits of an elimination.

    It is planned for ``planned`` bytes first, and for more only where those are too few, so plans
    do not depend on how much memory the machine has free.
    """

    max_work: float
    max_memory: float
    planned: float = math.inf

    @classmethod
    def by_default(cls, max_work: float) -> "Limits":
        """Return the limits on this machine: half of the free memory, if that is more."""
        return cls(max_work, max(MAX_MEMORY, 0.5 * (available() or 0)), MAX_MEMORY)


class EliminationCost(NamedTuple):
    """Cost of an elimination.

    Attributes
    ----------
    log2_work : float
        Logarithm to base 2 of the number of table entries that are computed, some of them
        repeatedly to save memory. Where underflow asks for logarithms, they are computed again.
    log2_memory : float
        Logarithm to base 2 of the bytes held at once: the messages, and each table four times (as
        given, as logarithms, as factors, and during conversion). The target and draws are not
        counted. If the work is far beyond the limits, nothing is conditioned on to save memory.
    n_configurations : int
        Number of joint values of the variables conditioned on to save memory; the elimination is
        run once for each. 1 if there are none.
    ways : float
        Time per table entry of the whole answer, relative to log Z alone: more for marginals or a
        state, which need a way back.
    n_tables : int
        Number of variables to be summed out or drawn, and of tables, those of the target included:
        large ones count once per 1,024 entries. Each takes time in Python.
    time : float
        In table entries of log Z; ``seconds`` is this on one core of this machine.
    seconds : float
        About how long the elimination takes on one core of this machine, whose speed is measured
        once per process, and the search for the order about as long as the first one.
    fits : bool
        Whether it is within the default limits.
    """

    log2_work: float
    log2_memory: float
    n_configurations: int
    ways: float = 1.0
    n_tables: int = 0

    def __repr__(self) -> str:
        given = self._asdict().items()
        shown = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in given)
        return f"EliminationCost({', '.join(shown)})"

    @property
    def fits(self) -> bool:
        return fits(self, Limits.by_default(MAX_WORK / self.ways))

    @property
    def time(self) -> float:
        entries = 2.0 ** min(self.log2_work, 1000.0)
        search = min(entries, MAX_SEARCH) if entries > ENOUGH else 0.0
        others = _OF_PASS * float(self.n_configurations) + _OF_TABLE * self.n_tables
        return entries * self.ways + search + others + _OF_ANSWER

    @property
    def seconds(self) -> float:
        return self.time * _seconds_per_entry()


@cache
def _seconds_per_entry() -> float:
    """Time the forward pass of a lattice of fair coins; return seconds per table entry."""
    rows, cols = _TIMED
    n, table = rows * cols, np.zeros((2, 2))
    pairs = [(i, i + 1) for i in range(n) if (i + 1) % rows]
    pairs += [(i, i + rows) for i in range(n - rows)]
    plan = build(range(n), [Factor(pair, table) for pair in pairs], np.full(n, 2))
    passes, least = Passes(plan), math.inf
    for _ in range(3):
        began = time.thread_time()
        passes.forward(np.zeros(n, dtype=np.int64))
        least = min(least, time.thread_time() - began)
    return least / float(plan.buckets.message_size @ plan.buckets.k)


def check_limits(max_work: Any, max_memory: Any, need: Need) -> Limits:
    default = Limits.by_default(MAX_WORK / WAYS[need])
    max_work = default.max_work if max_work is None else max_work
    planned = default.planned if max_memory is None else math.inf
    max_memory = default.max_memory if max_memory is None else max_memory
    for name, value in (("max_work", max_work), ("max_memory", max_memory)):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{name} is {value!r}; give a number, as 2**30.")
        if not 1.0 <= float(value) < math.inf:
            raise ValueError(f"{name} is {value!r}; give a finite number of at least 1.")
    return Limits(float(max_work), float(max_memory), planned)


def n_entries(cost: EliminationCost) -> int:
    return int(2.0 ** min(cost.log2_work, 62.0))


def fits(cost: EliminationCost, limits: tuple[float, ...]) -> bool:
    max_work, max_memory = limits[:2]
    within = cost.log2_work <= math.log2(max_work) and cost.log2_memory <= math.log2(max_memory)
    return within and cost.log2_memory - 3 < math.log2(MOST_ENTRIES)


def duration(seconds: float) -> str:
    for unit, size in (("years", 3.2e7), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s"


def check_limits_kept(target: Target, cost: EliminationCost, limits: tuple[float, ...]) -> None:
    """Refuse a cost above the limits, and say which limits would do."""
    max_work, max_memory = limits[:2]
    if fits(cost, limits):
        return
    words, allow = [], []
    in_reach = cost.log2_work < _IN_REACH and cost.log2_memory - 3 < math.log2(MOST_ENTRIES)
    if cost.log2_work > math.log2(max_work):
        words.append(
            f"about 2**{cost.log2_work:.1f} table entries ({duration(cost.seconds)} on this "
            f"machine), and max_work allows 2**{math.log2(max_work):.1f}"
        )
        allow.append(f"max_work=2**{math.ceil(cost.log2_work)}")
    if cost.log2_memory > math.log2(max_memory):
        words.append(
            f"about 2**{cost.log2_memory:.1f} bytes of memory, and max_memory allows "
            f"2**{math.log2(max_memory):.1f}"
        )
        allow.append(f"max_memory=2**{math.ceil(cost.log2_memory)}")
    if not words:
        words.append(
            f"more than 2**{math.log2(8 * MOST_ENTRIES):.0f} bytes, which is not supported"
        )
    advice = f"Give {' and '.join(allow)}, or observe" if allow and in_reach else "Observe"
    # The search for an order takes no longer than the work allowed.
    known = max_work >= MAX_WORK / cost.ways
    longer = "" if known else " A longer search may find less: see exact.elimination_cost."
    raise ValueError(
        f"Exact answers on {target!r:.200} take {'; '.join(words)}. "
        f"{advice} more variables, or use a sampler.{longer}"
    )

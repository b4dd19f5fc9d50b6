"""Eliminations: a model is reduced, ordered and sliced, then its answers are computed."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.elimination.buckets import LINEAR, MAX, Room
from sklsb._kernels.elimination.draws import emit
from sklsb._system.arrays import Array, Bools, Ints
from sklsb._system.progress import Progress
from sklsb._system.warn import warn
from sklsb.exact.elimination.cost import (
    MAX_MEMORY,
    MAX_WORK,
    EliminationCost,
    Limits,
    check_limits_kept,
    fits,
    n_entries,
)
from sklsb.exact.elimination.order import MOST_VARIABLES, SAVED, best_order, greedy_work
from sklsb.exact.elimination.passes import Passes, Values, Weights, no_progress
from sklsb.exact.elimination.plan import MOST_ENTRIES, Plan, build
from sklsb.exact.elimination.reduce import EXACT, Reduced, absorb, no_state, prune, strike
from sklsb.exact.elimination.schedule import BucketTree, Need, Route, Schedule
from sklsb.exact.elimination.slicing import HOPELESS, WAYS, choose_slices
from sklsb.exceptions import ModelWarning
from sklsb.targets.base import States, Target

# Largest relative difference of row sums, per table and in all, of tables put aside to save work.
DEFECT, MOST_DEFECTS = 1e-3, 0.1
# Joint states whose probabilities are computed together.
_STATES = 1 << 12
# Copies held of each table.
_COPIES_OF_TABLES = 4
# Attempts to keep memory in spite of gaps between messages, and what is allowed for these.
_ATTEMPTS, _MARGIN = 4, 1.01


@dataclass
class Ordered:
    """A reduced model with an order of elimination."""

    model: Reduced  # factors absorbed into each other
    order: list[int]  # variables summed out
    given: list[int]  # variables conditioned on
    cost: EliminationCost
    schedule: Schedule | None  # None if it takes more memory than is supported

    @property
    def n_forward(self) -> float:
        """Table entries made before the first way back, for one of the configurations."""
        again = self.schedule.n_again if self.schedule else 0.0
        return 2.0**self.cost.log2_work / self.cost.n_configurations - again

    @property
    def n_uniforms(self) -> int:
        """Uniform numbers per draw: one per variable, for the configuration, to accept."""
        n = len(self.model.barren) + len(self.order)
        return n + (self.cost.n_configurations > 1) + (self.model.log_defect > 0.0)


def _too_many(target: Target, n: str) -> ValueError:
    return ValueError(
        f"{target!r:.200} leaves {n} variables to be eliminated; orders are found for "
        f"{MOST_VARIABLES} at most. Use a sampler."
    )


def strike_few(target: Target) -> Reduced:
    """Return a target's tables; refuse a large model of pairs before it lists them for minutes.

    A variable is put aside only if it has one neighbour left. Each takes one pair with it, so pairs
    beyond the number of variables stay, and with them their variables.
    """
    graph, free = target.graph, np.flatnonzero(target.n_possible > 1)
    if target.offers.pairwise is not None and graph is not None and free.size > MOST_VARIABLES:
        degree = np.diff(graph[free][:, free].indptr)
        spare, most = degree.sum() / 2 - free.size, degree.max() / 2 - 1.0
        if spare > 0.0 and spare / most > MOST_VARIABLES:
            raise _too_many(target, f"at least {math.ceil(spare / most)}")
    return strike(target)


def _ordered(model: Reduced, keep: Collection[int], need: Need, limits: Limits) -> Ordered:
    """Find an order that keeps the limits, if there is one, in as little memory as will do."""
    model = replace(model, factors=absorb(model.factors))
    for scope, table in model.factors:
        if not table.max() > -np.inf:
            raise no_state(model.target, tuple(map(model.target.label, scope)))
    free = model.free
    if len(free) > MOST_VARIABLES:
        raise _too_many(model.target, str(len(free)))
    memory = min(limits.planned, limits.max_memory)
    while True:
        found = _planned(model, keep, need, Limits(limits.max_work, memory))
        log2_work, log2_memory, *_ = found.cost
        is_short = log2_work <= math.log2(limits.max_work) and log2_memory > math.log2(memory)
        if not is_short or (needed := _MARGIN * 2.0**log2_memory) > limits.max_memory:
            return found
        memory = needed


def _planned(model: Reduced, keep: Collection[int], need: Need, limits: Limits) -> Ordered:
    """Find an order, which messages to hold, and what to condition on where memory is short.

    Where that is too much work, or tables alone exceed the memory, nothing is conditioned on.
    """
    sizes, free = model.sizes, model.free
    tables = [*model.factors, *(b.factor for b in model.barren)]
    n_tables = _COPIES_OF_TABLES * sum(factor.table.size for factor in tables)
    room = min(limits.max_memory / 8, MOST_ENTRIES - 1) - n_tables
    late = [v for v in free if v in keep]
    found = best_order(free, model.factors, sizes, late, limits.max_work)
    tree = BucketTree.of(found.variables, model.factors, sizes)
    log2_most = math.log2(limits.max_work)

    def laid_out(route: Route, given: list[int]) -> Ordered:
        schedule, n_held = None, route.peak
        if n_tables + n_held < MOST_ENTRIES:  # more is never allowed
            schedule = route.schedule()
            n_held = schedule.n_entries
        n = math.prod(int(sizes[v]) for v in given)
        # Only the best configuration has a way back to a state.
        again = route.n_again * (1 if need == "state" else n)
        log2_work = route.tree.log2_work + math.log2(n)
        cost = EliminationCost(
            float(np.logaddexp2(log2_work, math.log2(max(again, 2.0**-99)))),
            math.log2(max(1, 8 * max(n_tables + n_held, n))),
            n,
            WAYS[need],
            len(tables) + len(free) + len(model.barren) + model.n_read,
        )
        return Ordered(model, route.tree.order, given, cost, schedule)

    def whole() -> Ordered:
        return laid_out(Route(tree, need, room, keep), [])

    if not 0.0 < room < math.inf or tree.log2_work > log2_most + HOPELESS:
        return whole()
    most = room
    for _ in range(_ATTEMPTS):
        rest, given = choose_slices(found, model.factors, sizes, most, keep, need, limits[0])
        pieces = laid_out(Route(rest, need, room, keep), given)
        held = pieces.schedule.n_entries if pieces.schedule else math.inf
        if held <= room:
            break
        most *= 0.95 * room / held
    return whole() if tree.log2_work <= log2_most < pieces.cost.log2_work else pieces


def ordered(
    struck: Reduced,
    *,
    keep: Collection[int] = (),
    pruned: bool = True,
    need: Need = "draws",
    limits: tuple[float, ...] = (MAX_WORK, MAX_MEMORY),
) -> Ordered:
    """Shrink what `strike` has left of a target and find an order; nothing is eliminated yet.

    Variables in ``keep`` are summed out last and never conditioned on. Barren variables are put
    aside if ``pruned``: not where a maximum or their marginals are wanted. ``need`` is what the
    messages are made for, which decides how long they are held.
    """
    limits = Limits(*limits)
    if not pruned:
        return _ordered(struck, keep, need, limits)
    model = prune(struck, keep)
    found = _ordered(model, keep, need, limits)
    if fits(found.cost, limits):
        return found
    # Last resort: put aside tables whose rows sum to 1 only approximately.
    loose = prune(struck, keep, DEFECT)
    if len(loose.barren) > len(model.barren) and loose.log_defect <= MOST_DEFECTS:
        other = _ordered(loose, keep, need, limits)
        if fits(other.cost, limits):
            return other
    return found


def affordable(
    struck: Reduced, limits: tuple[float, ...], *, loosest: float = EXACT, **options: Any
) -> Ordered | None:
    """Return an order that keeps the limits, as `ordered`, or None.

    A quick look, at a model pruned with the defect ``loosest``, spares hopeless searches.
    """
    looked = prune(struck, (), loosest) if options.get("pruned", True) else struck
    work = greedy_work(looked.free, looked.factors, looked.sizes, limits[0], SAVED)
    if work > SAVED * limits[0]:
        return None
    found = ordered(struck, limits=limits, **options)
    return found if fits(found.cost, limits) else None


class Elimination:
    """Exact answers on one target, by sums (``mode=LINEAR``) or maxima (``MAX``).

    ``n_jobs`` threads share large tables.
    """

    def __init__(
        self, found: Ordered, mode: int = LINEAR, n_jobs: int = 1, plan: Plan | None = None
    ):
        self.found, self.model = found, found.model
        self.target = found.model.target
        self.sizes = self.model.sizes
        factors, barren = self.model.factors, self.model.barren
        plan = plan or build(found.order, factors, self.sizes, barren, found.schedule)
        self.passes = Passes(plan, mode, n_jobs)
        self.n_buckets = plan.buckets.variable.size
        self._shape = tuple(int(self.sizes[v]) for v in found.given)
        self._at: int | None = None  # the configuration that the messages belong to
        self.log_sums = np.full(found.cost.n_configurations, np.nan)
        self.n_made = 0  # table entries
        self.constant = self.model.constant + self.model.log_barren

    def fill(self, plan: Plan) -> None:
        """Take the tables of this plan, which differs from the present one in nothing else."""
        self.passes.fill(plan)
        self.weigh({})

    def configuration(self, c: int) -> Ints:
        """Return values of the variables conditioned on; 0 for the others."""
        x = np.zeros(self.sizes.size, dtype=np.int64)
        if self._shape:
            x[self.found.given] = np.unravel_index(c, self._shape)
        return x

    @contextmanager
    def watched(self, progress: Callable[[int], None]) -> Iterator[None]:
        self.passes.progress = progress
        try:
            yield
        finally:
            self.passes.progress = no_progress

    def weigh(self, weights: Mapping[int, Weights]) -> None:
        """Replace the weights of the values left of some variables."""
        self._at = None
        self.log_sums[:] = np.nan
        for variable, mine in weights.items():
            if self.sizes[variable] > 1:
                self.passes.weigh(variable, mine)

    def forward(self, c: int) -> float:
        """Make the messages of a configuration, as logarithms if they underflow; return log sum."""
        if self._at != c:
            self._at = None
            self.log_sums[c] = self.passes.forward(self.configuration(c))
            self._at = c
            self.n_made += n_entries(self.found.cost) // self.log_sums.size
        return float(self.log_sums[c])

    def _resolved(self, c: int, of_messages: Callable[[], Array]) -> Array:
        """Return probabilities, from messages as logarithms if underflow has lost small ones."""
        self.forward(c)
        found = of_messages()
        if self.passes.resolves(found):
            return found
        self.log_sums[c] = self.passes.forward(self.configuration(c), logs=True)
        return of_messages()

    @property
    def rounding_size(self) -> float:
        """Size of the terms that cancel at the likeliest states, which rounding is relative to.

        Tables of large entries are at most 0, so a sum far below 0 is made of large terms.
        """
        self.run()
        return max(0.0, -float(self.log_sums.max()))

    @property
    def ready(self) -> bool:
        """Whether draws leave this object unchanged: the only configuration has its messages."""
        return self.log_sums.size == 1 and self._at == 0

    def run(self) -> None:
        for c in range(self.log_sums.size):
            if math.isnan(self.log_sums[c]):
                self.forward(c)
        if not (self.log_sums > -np.inf).any():
            raise no_state(self.target, None)

    @property
    def log_sum(self) -> float:
        """Logarithm of the sum of all products, or of the largest one."""
        self.run()
        top = float(self.log_sums.max())
        if self.passes.way == MAX:
            return top + self.constant
        return top + math.log(math.fsum(np.exp(self.log_sums - top).tolist())) + self.constant

    # ----------------------------------------------------------------- draws

    @property
    def entries_per_draw(self) -> int:
        buckets = self.passes.plan.buckets
        return int((np.diff(buckets.factor_start) * buckets.k).sum())

    @property
    def work_per_draw(self) -> int:
        """Table entries read per draw, and weights of values set, summed and compared."""
        return self.entries_per_draw + 3 * int(self.passes.plan.buckets.k.sum())

    def draw(self, u: Array, out: States, lp: Array | None, room: Room | None = None) -> Bools:
        """Make one draw per row of uniform numbers, of shape (draws, found.n_uniforms).

        ``out`` gets the states, ``lp`` their log p, if given. Returns which draws are accepted:
        all, unless row sums of barren variables differ. If there is one configuration, threads may
        draw at once, each with a room of its own.
        """
        self.run()
        accepted = np.ones(len(u), dtype=np.bool_)
        for c, rows in self._by_configuration(u):
            self.forward(c)
            x = self.passes.states(rows.size, self.configuration(c))
            mine = u[rows]
            p = self.passes.draw(x, mine, room)
            if self.model.log_defect > 0.0:
                accepted[rows] = mine[:, -1] < p
            if lp is not None:
                lp[rows] = self.passes.log_densities(x, room) + self.model.constant
            out[rows] = self.values_of(x)
        return accepted

    def _by_configuration(self, u: Array) -> Iterator[tuple[int, NDArray[np.intp]]]:
        if self.log_sums.size == 1:
            yield 0, np.arange(len(u))
            return
        total = np.cumsum(np.exp(self.log_sums - self.log_sums.max()))
        drawn = np.searchsorted(total, u[:, self.n_buckets] * total[-1], side="right")
        drawn = np.minimum(drawn, np.searchsorted(total, total[-1]))
        for c in np.unique(drawn).tolist():
            yield c, np.flatnonzero(drawn == c)

    def values_of(self, x: Values) -> States:
        """Turn indices into the values left into target values, of shape (states, variables)."""
        out = np.empty((x.shape[1], x.shape[0]), dtype=self.target.dtype)
        emit(x, self.model.names, out)
        return out

    def most_likely(self) -> States:
        """Return the state with the largest product, of shape (n_sites,)."""
        self.run()
        c = int(self.log_sums.argmax())
        self.forward(c)
        x = self.passes.states(1, self.configuration(c))
        self._at = None  # the way back may use messages up
        self.passes.largest(x)
        return self.values_of(x)[0]

    # ----------------------------------------------------------------- marginals

    def _mean(self, of_configuration: Callable[[int], Array], shape: tuple[int, ...]) -> Array:
        """Average over the configurations, weighted by their probabilities."""
        if self.log_sums.size == 1 and self.forward(0) > -math.inf:
            return of_configuration(0)
        result, total, top = np.zeros(shape), 0.0, -math.inf
        for c in range(self.log_sums.size):
            value = self.forward(c)
            if value == -math.inf:
                continue
            if value > top:
                scale = math.exp(top - value)
                result, total, top = result * scale, total * scale, value
            weight = math.exp(value - top)
            result += weight * of_configuration(c)
            total += weight
        if not total:
            raise no_state(self.target, None)
        return result / total

    def marginals(self) -> Array:
        """Probability of each value of each variable, of shape (n_sites, values)."""
        is_left, is_summed, places = self._masks
        given = self.found.given

        def of_messages() -> Array:
            self._at = None  # the way back may use messages up
            return self.passes.marginals(is_left.shape)[is_summed]

        def of_configuration(c: int) -> Array:
            found = np.zeros(is_left.shape)
            found[is_summed] = self._resolved(c, of_messages)
            if given:
                found[given, self.configuration(c)[given]] = 1.0
            return found

        found = self._mean(of_configuration, is_left.shape)
        found[self.sizes == 1, 0] = 1.0
        result = np.zeros((self.sizes.size, len(self.target.values)))
        result[places] = found[is_left]
        return result

    @cached_property
    def _masks(self) -> tuple[Bools, Bools, tuple[Any, ...]]:
        """Which entries are of values left, which of these of variables summed out, and values."""
        is_left = np.arange(int(self.sizes.max(initial=1))) < self.sizes[:, np.newaxis]
        is_summed = np.zeros_like(is_left)
        is_summed[self.found.order] = is_left[self.found.order]
        values = np.concatenate([*self.model.values, np.empty(0, np.int64)])
        return is_left, is_summed, (np.repeat(np.arange(self.sizes.size), self.sizes), values)

    def joint(self, variables: list[int]) -> Array:
        """Joint probability of kept variables, one axis each."""
        shape = tuple(self.sizes[variables].tolist())
        last = self.n_buckets - sum(k > 1 for k in shape)
        n = math.prod(shape)

        def of_messages(c: int) -> Array:
            result = np.empty(n)
            for first in range(0, n, _STATES):
                index = np.arange(first, min(first + _STATES, n))
                x = self.passes.states(index.size, self.configuration(c))
                if variables:
                    x[variables] = np.unravel_index(index, shape)
                result[index] = self.passes.probabilities(x, last)
            return result

        found = self._mean(lambda c: self._resolved(c, lambda: of_messages(c)), (n,)).reshape(shape)
        result = np.zeros(tuple(self.target.cardinalities[variables].tolist()))
        result[np.ix_(*(self.model.values[v] for v in variables))] = found
        return result


def log_partition_of(elimination: Elimination) -> float:
    """Logarithm of the sum over all states, with a warning if it is not exact."""
    defect = elimination.model.log_defect
    if defect > 0.0:
        warn_of_defect(elimination.model, f"log Z may be off by {defect / 2:.2g}")
    return elimination.log_sum - defect / 2


def warn_of_defect(model: Reduced, what: str) -> None:
    """Warn how far answers may be off because rows of tables sum to 1 only approximately."""
    off = sum(b.log_low < 0.0 for b in model.barren)
    warn(
        f"The rows of {off} conditional tables of {model.target!r:.100} sum to 1 only "
        f"approximately, and an exact treatment would exceed the limits: {what}.",
        ModelWarning,
    )


def shown(verbose: int, cost: float) -> Progress:
    return Progress(verbose, "eliminate", round(cost), "entries")


def order_sought(verbose: int) -> Progress:
    return Progress(verbose, "order of elimination")


def that_fits(struck: Reduced, limits: Limits, verbose: int = 0, **options: Any) -> Ordered:
    """Find an order that keeps the limits, as `ordered`; refuse the target if there is none."""
    with order_sought(verbose):
        found = ordered(struck, limits=limits, **options)
    check_limits_kept(struck.target, found.cost, limits)
    return found


def eliminated(found: Ordered, verbose: int, n_jobs: int = 1) -> Elimination:
    elimination = Elimination(found, LINEAR, n_jobs)
    with shown(verbose, 2.0**found.cost.log2_work) as progress, elimination.watched(progress):
        elimination.run()
    return elimination


def best_state(found: Ordered, verbose: int, n_jobs: int = 1) -> tuple[States, Elimination]:
    """Return the state of the largest product, with a progress line."""
    elimination = Elimination(found, MAX, n_jobs)
    with shown(verbose, 2.0**found.cost.log2_work) as progress:
        with elimination.watched(progress):
            elimination.run()
        # Messages of the best configuration may be made a second time, which the cost leaves out.
        elimination.forward(int(elimination.log_sums.argmax()))
        with elimination.watched(progress):
            return elimination.most_likely(), elimination

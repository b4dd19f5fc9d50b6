"""Chains: windows, the parts of columns they take in turn, and what is summed over them."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sklsb._kernels.selection import state as names
from sklsb._kernels.selection.process import run_window
from sklsb._kernels.selection.state import Models, Rates, Sums, Window
from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import at_once
from sklsb.diagnostics.batches import Batches, Thinned
from sklsb.selection.problem import Problem, columns_between

# Rows of the Gram matrix that a chain keeps: by number, and in bytes together.
_SLOTS, _GRAM_BYTES = 1024, 1 << 25
# Entries of the table of models; most units of a model in it.
_N_MODELS, _MODEL_SIZE = 1 << 12, 64
# Batches of a chain: when there are this many, pairs are joined.
_N_BATCHES, _BATCH_BYTES = 64, 1 << 27
# Models of a chain that are kept for draws.
_N_STATES = 1024


class Pace(NamedTuple):
    """How chains of a kind go on, all settled before there are data."""

    all_units: int  # up to which every window has all of them
    jumps: int  # of a window of all units
    part_jumps: int  # of a window of some
    windows: int  # in a sweep, if each has all units
    burn_in: int  # sweeps


@dataclass(frozen=True)
class Plan:
    """What all chains have in common, frozen before the first draw."""

    anchors: Ints  # units of every window
    n_rest: int  # further units of a window; 0: every window has all units
    time: float  # process time of a window
    windows: int  # windows of a sweep, if all have all units
    rates: Rates

    def n_windows(self, n_units: int) -> int:
        """Return the windows in a sweep over so many units."""
        if not self.n_rest:
            return self.windows
        return max(1, -(-(n_units - self.anchors.size) // self.n_rest))


def new_window(problem: Problem, n_units: int, n_columns: int) -> Window:
    """Return empty memory for windows of up to so many free units and columns."""
    first = problem.posterior.first
    widths = np.diff(first)
    most = problem.most_columns
    w, units = n_columns + most, n_units + problem.most + problem.posterior.n_always
    w, units = min(w, problem.n_columns), min(units, problem.n_units)
    slots = int(min(w, max(most + 64, min(_SLOTS, _GRAM_BYTES // (8 * w)))))
    grouped = bool((widths > 1).any())
    widest = int(widths.max(initial=1))
    cross = int((widths**2).sum()) if w == problem.n_columns else units * widest**2
    floats = {
        "u v mean variance change sum_mean sum_square": (w,),
        "log_odds fit rest share rate sum_share": (units,),
        "lane": (names.LANES,),
        "number": (8,),
        "cross": (cross if grouped else 0,),
        "gram": (slots, w),
        "inverse factor": (most, most),
        "rows": (most, w),
        "b a": (most,),
        "dense": (problem.n_data,),
    }
    ints = {
        "size": (8,),
        "column unit unit_of slot place": (w,),
        "first": (w + 1,),
        "block": (units + 1 if grouped else 0,),
        "owner": (slots + 1,),
        "included": (most,),
    }
    made: dict[str, Any] = {"word": np.zeros(2, dtype=np.uint64)}
    for kind, shapes in ((np.float64, floats), (np.int64, ints)):
        made |= {n: np.zeros(shape, kind) for key, shape in shapes.items() for n in key.split()}
    return Window(**made)


def set_window(problem: Problem, window: Window, free: Ints, included: Ints) -> None:
    """Let a window have some free units, and the included units besides; included: all of them."""
    units = np.concatenate([free, included[~np.isin(included, free)]])
    widths = problem.posterior.first[units + 1] - problem.posterior.first[units]
    first = np.concatenate([[0], np.cumsum(widths)])
    n_columns, n_units = int(first[-1]), units.size
    window.size[: names.FRESH + 1] = n_columns, n_units, free.size, 0, included.size, 1
    window.unit[:n_units], window.column[:n_columns] = units, problem.columns_of(units)
    window.first[: n_units + 1] = first
    window.unit_of[:n_columns] = np.repeat(np.arange(n_units), widths)
    window.log_odds[:n_units] = problem.posterior.log_odds[units]
    if window.block.size:
        window.block[: n_units + 1] = np.concatenate([[0], np.cumsum(widths**2)])
    window.place[:n_columns] = -1
    order = np.argsort(units, kind="stable")
    flat = columns_between(first, order[np.searchsorted(units[order], included)])
    window.included[: flat.size] = flat
    window.size[names.K_COLUMNS] = flat.size


def included_units(window: Window) -> Ints:
    """Return the included units of a window, sorted."""
    local = window.included[: window.size[names.K_COLUMNS]]
    return np.unique(window.unit[window.unit_of[local]])


def new_sums(problem: Problem) -> Sums:
    """Return sums of nothing."""
    units, p = problem.n_units, problem.n_columns
    shapes = (units, units, p, p, p, p, problem.most + 2, names.N_TOTALS)
    return Sums(*(np.zeros(size) for size in shapes))


def new_models(problem: Problem) -> Models:
    """Return an empty table of models."""
    return Models(
        key=np.zeros(_N_MODELS, dtype=np.uint64),
        time=np.zeros(_N_MODELS),
        log_p=np.zeros(_N_MODELS),
        size=np.zeros(_N_MODELS, dtype=np.int64),
        units=np.zeros((_N_MODELS, min(problem.most, _MODEL_SIZE)), dtype=np.int32),
        n_kept=np.zeros(1, dtype=np.int64),
    )


def new_batches(n_units: int) -> Batches:
    """Return batches of the sweeps of a chain: sums of probabilities and of times by unit."""
    fits = at_once(_BATCH_BYTES, 8 * 4 * n_units + 1)
    n_batches = int(np.clip(fits // 2 * 2, 16, _N_BATCHES))
    return Batches((1, n_batches, 2, n_units), np.float32 if n_units > 50_000 else np.float64)


class Chain:
    """One chain: where it is, its random numbers, and what it has summed so far."""

    pace: ClassVar[Pace] = Pace(2_000, 100, 40, 8, 4)

    def __init__(self, problem: Problem, rng: np.random.Generator, units: Ints):
        self.problem, self.rng, self.units = problem, rng, units
        self.window: Window | None = None
        self.shape: tuple[int, ...] = ()
        self.forget()

    def forget(self) -> None:
        """Forget all sums; the chain stays where it is."""
        self.sums, self.models = new_sums(self.problem), new_models(self.problem)
        self.batches = new_batches(self.problem.n_free)
        # Models at the ends of sweeps, with their weights.
        self.states = Thinned[tuple[Ints, float]](_N_STATES + 1)

    def move(self, units: Ints) -> None:
        """Go to a model."""
        self.units, self.window = units, None

    def most_visited(self) -> tuple[Ints, float]:
        """Return the model at which the chain was longest, and its part of the time."""
        table, best = self.models, int(self.models.time.argmax())
        total = float(self.sums.total[names.TIME])
        if not self.models.time[best] > 0.0:
            return self.units, 1.0
        units = np.sort(table.units[best, : table.size[best]]).astype(np.int64)
        return units, float(table.time[best]) / total

    def has_visited(self, units: Ints) -> bool:
        """Whether a model is in the table of the chain, or the present one."""
        table, k = self.models, units.size
        rows = np.sort(table.units[(table.size == k) & (table.key > 0), :k], axis=1)
        noted = rows.shape[1] == k and (rows == units).all(axis=1).any()
        return bool(noted or np.array_equal(self.units, units))

    def _windows(self, plan: Plan) -> list[Ints]:
        """Return the free units of the windows of the next sweep."""
        n = self.problem.n_free
        if not plan.n_rest:
            return [np.arange(n)] * plan.windows
        outside = np.ones(n, dtype=np.bool_)
        outside[plan.anchors] = False
        rest = self.rng.permutation(np.flatnonzero(outside))
        parts = np.array_split(rest, plan.n_windows(n))
        return [np.concatenate([plan.anchors, part]) for part in parts]

    def _set(self, plan: Plan, free: Ints) -> Window:
        """Return the window with some free units."""
        problem = self.problem
        widths = np.diff(problem.posterior.first)
        n_units, n_columns = problem.n_free, problem.n_columns
        if plan.n_rest:
            n_units = plan.anchors.size + plan.n_rest
            n_columns = n_units * int(widths.max(initial=1))
        wanted = n_units, n_columns
        if self.window is None or self.shape != wanted:
            self.window, self.shape = new_window(problem, *wanted), wanted
        elif not plan.n_rest:
            return self.window
        fixed = np.arange(problem.n_free, problem.n_units)
        set_window(problem, self.window, free, np.concatenate([self.units, fixed]))
        return self.window

    def _columns(self) -> Any:
        """Return the view of the columns that the kernels take."""
        return self.problem.columns

    def _passed(self, window: Window, of_sweep: Sums) -> None:
        """Do what a window is followed by."""

    def sweep(self, plan: Plan, most_jumps: int = 0) -> Array:
        """Run all windows of a sweep and add it to the sums; return its totals."""
        of_sweep = new_sums(self.problem)
        span = np.array([plan.time, float(most_jumps)])
        for free in self._windows(plan):
            window = self._set(plan, free)
            window.word[0] = self.rng.integers(1 << 63, dtype=np.uint64)
            run_window(
                self._columns(),
                self.problem.posterior,
                plan.rates,
                window,
                of_sweep,
                self.models,
                span,
            )
            units = included_units(window)
            self.units = units[units < self.problem.n_free]
            self._passed(window, of_sweep)
        n = self.problem.n_free
        self.batches.add_draw(np.array([of_sweep.share[:n], of_sweep.time[:n]]))
        self._add(of_sweep)
        return of_sweep.total

    def _add(self, new: Sums) -> None:
        largest = [names.LARGEST, names.LARGEST_FIT]
        kept = np.maximum(self.sums.total[largest], new.total[largest])
        for total, part in zip(self.sums, new, strict=True):
            total += part
        self.sums.total[largest] = kept
        self.states.add((self.units, float(new.total[names.BORDER])))
        if 4 * self.models.n_kept[0] >= 3 * self.models.key.size:
            self.models = _half(self.models)


def _half(models: Models) -> Models:
    """Return a table with the half of the models that has more time."""
    kept = np.argsort(-models.time, kind="stable")[: models.n_kept[0] // 2]
    n = models.key.size
    made = Models(*(np.zeros_like(part) for part in models))  # type: ignore[arg-type]
    for i in kept:
        place = int(models.key[i] % np.uint64(n))
        while made.key[place]:
            place = (place + 1) % n
        made.key[place], made.time[place] = models.key[i], models.time[i]
        made.log_p[place], made.size[place] = models.log_p[i], models.size[i]
        made.units[place] = models.units[i]
    made.n_kept[0] = kept.size
    return made

"""Transition matrices of steps that take uniform numbers: found by bisection, exactly."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb._system.arrays import Array, Bools, Ints
from sklsb.targets.base import States

# Numbers at which a change of the outcome is first looked for.
_GRID = np.concatenate([[0.0], (np.arange(24) + 0.5) / 24, [1.0 - 2.0**-53]])
# Failed trials of the boxes that are added, and others that are repeated, per round.
_MOST_ADDED, _MOST_AGAIN = 24, 1000


class Cells:
    """Boxes of uniform numbers with the same outcome, from each state."""

    def __init__(self, starts: Ints, n_uniforms: int):
        self.start = starts
        self.mass = np.ones(starts.size)
        self.low, self.high = np.zeros((2, starts.size, n_uniforms))
        self.high[:] = 1.0
        self.numbers = np.empty((starts.size, n_uniforms))
        self.numbers[:] = np.random.default_rng(1).random(n_uniforms)

    def split(self, at: int, edges: list[Array]) -> None:
        """Divide each box along one number at the edges between 0 and 1."""
        count = [edge.size + 1 for edge in edges]
        low = np.concatenate([[0.0, *edge] for edge in edges])
        high = np.concatenate([[*edge, 1.0] for edge in edges])
        self.start = np.repeat(self.start, count)
        self.mass = np.repeat(self.mass, count) * (high - low)
        self.numbers, self.low, self.high = (
            np.repeat(part, count, axis=0) for part in (self.numbers, self.low, self.high)
        )
        self.low[:, at], self.high[:, at] = low, high
        self.numbers[:, at] = low + 0.5 * (high - low)

    def of(self, start: int, numbers: Array) -> NDArray[np.intp]:
        """Return the boxes from one state that contain some numbers."""
        mine = np.flatnonzero(self.start == start)
        found = []
        for part in np.array_split(numbers, 1 + (len(numbers) * mine.size >> 24)):
            inside = np.ones((len(part), mine.size), dtype=np.bool_)
            for u, low, high in zip(part.T, self.low[mine].T, self.high[mine].T, strict=True):
                inside &= (low <= u[:, None]) & (u[:, None] < high)
            found.append(mine[inside.argmax(axis=1)])
        return np.concatenate(found)


class Outcomes:
    """Ends of transitions from each of some states, for chosen uniform numbers.

    ``step`` takes states (n, n_sites) and numbers (n, n_uniforms), and returns states.
    """

    def __init__(
        self,
        step: Callable[[States, Array], States],
        x: States,
        n_uniforms: int,
        n_continuations: int,
        n_trials: int = 1 << 12,
    ):
        self.trials = np.random.default_rng(2).random((n_trials, n_uniforms))
        self.failed = self.trials[:0]
        self.step, self.x, self.n_uniforms = step, x, n_uniforms
        # States are found by a number each, and compared.
        self.weights = np.random.default_rng(3).integers(1 << 62, size=x.shape[1])
        self.order = np.argsort(x @ self.weights)
        self.codes = (x @ self.weights)[self.order]
        # Half at the ends, where rare outcomes are.
        rng = np.random.default_rng(0)
        size = (n_continuations, n_uniforms)
        ends = rng.choice([0.0, 1.0 - 2.0**-53], size=size)
        self.later = np.where(rng.random(size) < 0.5, ends, rng.random(size))

    def ends(self, start: Ints, numbers: Array) -> Ints:
        """Return the states that transitions lead to."""
        there = self.step(self.x[start], numbers)
        at = np.searchsorted(self.codes, there @ self.weights)
        found = self.order.take(at, mode="clip")
        unknown = (self.x[found] != there).any(axis=1)
        if unknown.any():
            raise KeyError(there[unknown.argmax()].tolist())
        return found

    def __call__(self, cells: Cells, which: Any, at: int, u: Array) -> Ints:
        """Return outcomes of boxes with u as the next number, shape (n, continuations)."""
        last = at == cells.numbers.shape[1] - 1
        later = self.later[:1] if last else self.later
        numbers = np.repeat(cells.numbers[which], len(later), axis=0)
        numbers[:, at + 1 :] = np.tile(later[:, at + 1 :], (len(u), 1))
        numbers[:, at] = np.repeat(u, len(later))
        return self.ends(np.repeat(cells.start[which], len(later)), numbers).reshape(len(u), -1)


def edges_of(cells: Cells, at: int, outcomes: Outcomes) -> list[Array]:
    """Bisect, for each box, the numbers at which outcomes change, to the last bit."""
    n, grid = cells.start.size, np.union1d(_GRID, outcomes.failed[:, at])
    which = np.repeat(np.arange(n), grid.size)
    found = outcomes(cells, which, at, np.tile(grid, n)).reshape(n, grid.size, -1)
    edges: list[list[float]] = [[] for _ in range(n)]
    box, left = np.nonzero((found[:, 1:] != found[:, :-1]).any(axis=2))
    low, high = (grid[left + k].view(np.int64).copy() for k in (0, 1))
    before, after = found[box, left], found[box, left + 1]
    while box.size:
        down, up, first = low.copy(), high.copy(), after.copy()
        while np.any(up - down > 1):
            middle = (down + up) // 2
            there = outcomes(cells, box, at, middle.view(np.float64))
            same = (there == before).all(axis=1)
            first[~same] = there[~same]
            down, up = np.where(same, middle, down), np.where(same, up, middle)
        for b, u in zip(box.tolist(), up.view(np.float64).tolist(), strict=True):
            edges[b].append(u)
        # There may be other edges beyond the first.
        more = (first != after).any(axis=1)
        box, low, high, before, after = (part[more] for part in (box, up, high, first, after))
    return [np.sort(np.array(edge)) for edge in edges]


def matrix_by_bisection(outcomes: Outcomes, possible: Bools, what: str, most_rounds: int) -> Array:
    """Return the transition matrix; a chain stays in a state of probability zero.

    All numbers are divided into boxes with the same outcome, one number after another. If boxes are
    wrong at random numbers, an edge was overlooked, since no continuation tells its two sides
    apart, or both sides of a narrow window look alike: then these numbers are added to the
    continuations and to the grid, and all is done again.
    """
    starts, trials = np.flatnonzero(possible), outcomes.trials
    for _ in range(most_rounds):
        cells = Cells(starts, outcomes.n_uniforms)
        for at in range(outcomes.n_uniforms):
            cells.split(at, edges_of(cells, at, outcomes))
        ends = outcomes.ends(cells.start, cells.numbers)
        wrong = np.zeros(len(trials), dtype=np.bool_)
        for start in starts.tolist():
            there = outcomes.ends(np.full(len(trials), start), trials)
            wrong |= there != ends[cells.of(start, trials)]
        if not wrong.any():
            found = np.diag(np.where(possible, 0.0, 1.0))
            np.add.at(found, (cells.start, ends), cells.mass)
            return found
        added = trials[wrong][:_MOST_ADDED]
        outcomes.failed = np.concatenate([outcomes.failed, added])
        outcomes.later = np.concatenate([outcomes.later, added])
        trials = np.concatenate([trials[wrong], trials[:_MOST_AGAIN]])  # boxes were only divided
    raise ValueError(
        f"After {most_rounds} rounds, transitions of {what} still lead elsewhere than was "
        f"measured, at {wrong.mean():.2g} of random numbers. Take a smaller target, or more "
        "n_continuations."
    )

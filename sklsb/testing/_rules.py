"""Checks of rules: the production step measured at all of its breakpoints, exactly."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from sklsb import exact
from sklsb._kernels.run import Drawing
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.rules import Rule
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.matrices import matrix_by_formula
from sklsb.targets.base import States, Target
from sklsb.testing._expect import (
    EPS,
    Array,
    cancelled,
    expect,
    expect_equal,
    expect_invariant,
    expect_near,
    log_probabilities,
)
from sklsb.testing._probe import RuleProbe, check_caches, check_same

# Numbers at which a change of the outcome is first looked for.
_GRID = np.concatenate([[0.0], (np.arange(24) + 0.5) / 24, [1.0 - 2.0**-53]])
# Transitions from each state of a rule that seeds numbers; expected outcomes to be counted alone;
# chance of a false alarm.
_N_DRAWS, _FEWEST_EXPECTED, _CHANCE = 1 << 15, 20.0, 1e-9
# Random trials of the boxes from each state; failed ones added per round; rounds.
_N_TRIALS, _MOST_ADDED, _MOST_ROUNDS = 1 << 12, 24, 8


class _Cells:
    """Boxes of uniform numbers with the same outcome, from each state."""

    def __init__(self, starts: NDArray[np.int64], n_uniforms: int):
        self.start = starts
        self.mass = np.ones(starts.size)
        self.low, self.high = np.zeros((2, starts.size, n_uniforms))
        self.high[:] = 1.0
        self.numbers = np.empty((starts.size, n_uniforms))
        self.numbers[:] = np.random.default_rng(1).random(n_uniforms)

    def split(self, at: int, edges: list[Array]) -> None:
        """Divide each box along one number at the edges between 0 and 1."""
        count = np.array([edge.size + 1 for edge in edges])
        bounds = [np.concatenate([[0.0], edge, [1.0]]) for edge in edges]
        length = np.concatenate([np.diff(bound) for bound in bounds])
        middle = np.concatenate([bound[:-1] + 0.5 * np.diff(bound) for bound in bounds])
        self.start = np.repeat(self.start, count)
        self.mass = np.repeat(self.mass, count) * length
        self.numbers, self.low, self.high = (
            np.repeat(part, count, axis=0) for part in (self.numbers, self.low, self.high)
        )
        self.numbers[:, at] = middle
        self.low[:, at] = np.concatenate([bound[:-1] for bound in bounds])
        self.high[:, at] = np.concatenate([bound[1:] for bound in bounds])

    def of(self, start: int, numbers: Array) -> NDArray[np.intp]:
        """Return the boxes from one state that contain some numbers."""
        mine = np.flatnonzero(self.start == start)
        inside = np.ones((len(numbers), mine.size), dtype=np.bool_)
        for u, low, high in zip(numbers.T, self.low[mine].T, self.high[mine].T, strict=True):
            inside &= (low <= u[:, None]) & (u[:, None] < high)
        return mine[inside.argmax(axis=1)]


class _Outcomes:
    """Outcomes of a box and the next number, for many continuations."""

    def __init__(self, target: Target, rule: Rule, n_continuations: int = 48):
        self.rule, self.probe = rule, RuleProbe(target, rule)
        self.x = exact.states(target)
        self.index = {state.tobytes(): i for i, state in enumerate(self.x)}
        # Half at the ends, where rare outcomes are.
        rng = np.random.default_rng(0)
        size = (n_continuations, rule.facts.n_uniforms)
        ends = rng.choice([0.0, 1.0 - 2.0**-53], size=size)
        self.later = np.where(rng.random(size) < 0.5, ends, rng.random(size))

    def ends(self, start: NDArray[np.int64], numbers: Array) -> NDArray[np.int64]:
        """Return the states that transitions lead to."""
        there = self.probe.step(self.x[start], numbers)
        return np.array([self.index[state.tobytes()] for state in there], dtype=np.int64)

    def __call__(self, cells: _Cells, which: Any, at: int, u: Array) -> NDArray[np.int64]:
        """Return outcomes of boxes with u as the next number, shape (n, continuations)."""
        last = at == cells.numbers.shape[1] - 1
        later = self.later[:1] if last else self.later
        numbers = np.repeat(cells.numbers[which], len(later), axis=0)
        numbers[:, at + 1 :] = np.tile(later[:, at + 1 :], (len(u), 1))
        numbers[:, at] = np.repeat(u, len(later))
        return self.ends(np.repeat(cells.start[which], len(later)), numbers).reshape(len(u), -1)


def _edges(cells: _Cells, at: int, outcomes: _Outcomes) -> list[Array]:
    """Bisect, for each box, the numbers at which outcomes change, to the last bit."""
    n = cells.start.size
    which = np.repeat(np.arange(n), _GRID.size)
    found = outcomes(cells, which, at, np.tile(_GRID, n)).reshape(n, _GRID.size, -1)
    edges: list[list[float]] = [[] for _ in range(n)]
    box, left = np.nonzero((found[:, 1:] != found[:, :-1]).any(axis=2))
    low, high = (_GRID[left + k].view(np.int64).copy() for k in (0, 1))
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


def _divide(starts: NDArray[np.int64], outcomes: _Outcomes, n_uniforms: int) -> _Cells:
    """Divide all numbers into boxes with the same outcome, one number after another.

    If boxes are wrong at random numbers, an edge was overlooked, since no continuation tells its
    two sides apart: then these numbers are added to the continuations, and all is done again.
    """
    trials = np.random.default_rng(2).random((_N_TRIALS, n_uniforms))
    for _ in range(_MOST_ROUNDS):
        cells = _Cells(starts, n_uniforms)
        for at in range(n_uniforms):
            cells.split(at, _edges(cells, at, outcomes))
        ends = outcomes.ends(cells.start, cells.numbers)
        wrong = np.zeros(_N_TRIALS, dtype=np.bool_)
        for start in starts:
            there = outcomes.ends(np.full(_N_TRIALS, start), trials)
            wrong |= there != ends[cells.of(start, trials)]
        if not wrong.any():
            return cells
        outcomes.later = np.concatenate([outcomes.later, trials[wrong][:_MOST_ADDED]])
    raise ValueError(
        f"After {_MOST_ROUNDS} rounds, transitions of {type(outcomes.rule).__name__} still lead "
        f"elsewhere than was measured, at {wrong.mean():.2g} of random numbers. Take a smaller "
        "target, or more n_continuations."
    )


def measured_matrix(rule: Rule, target: Target, n_continuations: int = 48) -> Array:
    """Measure the transition matrix of the compiled step of a rule.

    From each state, every uniform number at which the outcome changes is found by bisection, one
    number after another; the lengths between them are the probabilities. An outcome may be
    overlooked if it takes less than about 1/50 of the range of a number, not at an end, or depends
    on less than about 1/100 of the range of the later numbers. Then 4,096 random transitions from
    each state look for it, up to eight times: what has a probability of .003 escapes the first look
    once in 200,000 times.

    Parameters
    ----------
    rule : rule
        Rule to measure.
    target : Target
        A target of a few states.
    n_continuations : int, default=48
        Number of choices of the later numbers, about half of them at the ends of the range, by
        which outcomes are compared.

    Returns
    -------
    ndarray of shape (n_states, n_states)
        In the order of `sklsb.exact.states`. A chain stays in a state of probability zero.

    Raises
    ------
    ValueError
        If outcomes are still overlooked after eight rounds.
    """
    x = exact.states(target)
    possible = np.flatnonzero(target.log_prob(x) > -np.inf)
    outcomes = _Outcomes(target, rule, n_continuations)
    cells = _divide(possible, outcomes, rule.facts.n_uniforms)
    there = outcomes.ends(cells.start, cells.numbers)
    found = np.zeros((len(x), len(x)))
    np.add.at(found, (cells.start, there), cells.mass)
    impossible = np.setdiff1d(np.arange(len(x)), possible)
    found[impossible, impossible] = 1.0
    return found


def check_rule(
    rule: Rule, target: Target, n_transitions: int = 40, n_continuations: int = 48
) -> None:
    """Check a rule on a small target, exactly; it may be defined outside the package.

    The transition matrix of the compiled step, measured at all of its breakpoints, must leave the
    target invariant, and be reversible if the rule says so. (That of a rule that seeds further
    numbers cannot be measured: then the formula must be so, and many draws agree with it.) What
    chains keep must equal a rebuild, bit for bit; transitions must not depend on how they are
    divided into calls, nor on copies.

    Parameters
    ----------
    rule : rule
        Rule to check.
    target : Target
        A target of a few states, with random probabilities that are not very small.
    n_transitions : int, default=40
        Length of the compared chains.
    n_continuations : int, default=48
        See `measured_matrix`.

    Raises
    ------
    AssertionError
        If a property does not hold; the message says which, and what was found.
    """
    names = rule.facts.stat_names
    expect(names[:1] == ("lp",), f"stat_names must begin with lp: {names}")
    if rule.facts.seeded:
        _check_draws(rule, target)
    else:
        _check_matrix(rule, target, measured_matrix(rule, target, n_continuations))
    _check_chains(rule, target, n_transitions)


def _check_matrix(rule: Rule, target: Target, found: Array) -> None:
    """Compare a measured matrix with the target, and with the formula of the rule if any."""
    possible = np.isfinite(log_probabilities(target))
    gate = EPS * (8 * target.n_sites + 4 * len(found) * rule.facts.n_uniforms) + cancelled(target)
    expect_invariant(found, target, rule.facts.reversible, gate, "step")
    largest = found[np.ix_(possible, ~possible)].max(initial=0.0)
    expect(largest == 0.0, f"the step goes to impossible states, with probability {largest:g}.")
    if matrix_by_formula(rule):
        expect_near(
            found,
            exact.transition_matrix(rule, target),
            gate,
            "the step against the formula at (x, x')",
        )


def _check_draws(rule: Rule, target: Target) -> None:
    """Compare many transitions from each state with the formula of a rule that seeds numbers."""
    expected = exact.transition_matrix(rule, target)
    log_p = log_probabilities(target)
    gate = EPS * 64 * len(expected) + cancelled(target)
    expect_invariant(expected, target, rule.facts.reversible, gate, "formula")
    outcomes = _Outcomes(target, rule)
    rng = np.random.default_rng(3)
    for start in np.flatnonzero(np.isfinite(log_p)):
        numbers = rng.random((_N_DRAWS, rule.facts.n_uniforms))
        ends = outcomes.ends(np.full(_N_DRAWS, start), numbers)
        found = np.bincount(ends, minlength=len(expected))
        what = f"transitions from state {start}"
        expect(found[expected[start] == 0.0] == 0, f"{what} lead where the formula does not.")
        often = _N_DRAWS * expected[start] >= _FEWEST_EXPECTED
        seen = np.append(found[often], found[~often].sum())
        means = _N_DRAWS * np.append(expected[start][often], expected[start][~often].sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(means > 0.0, np.square(seen - means) / means, 0.0)
        chance = float(chi2.sf(terms.sum(), max(1, often.sum())))
        expect(chance > _CHANCE, f"{what} differ from the formula, with chance {chance:g}.")


def _check_chains(rule: Rule, target: Target, n: int) -> None:
    """Compare what chains keep with a rebuild, and one call with several and a copy."""
    rngs = spawn(0, 3)
    states = np.stack([target.draw_state(rng) for rng in rngs])

    def chains() -> Ensemble:
        made = Ensemble(target, states, Streams(rngs).copy(), rule=rule)
        made.start(rule)
        return made

    whole, parts = chains(), chains()
    x = _draws(whole, n)
    changed = (np.concatenate([states[:, None], x], axis=1) != states[:, None]).any(axis=1)
    site = np.repeat(np.arange(target.n_sites), target.cardinalities - 1)
    marked = np.zeros_like(changed)
    for row, moves in zip(marked, whole.chains.moved, strict=True):
        row[site[moves]] = True
    expect(marked | ~changed, "chain.moved does not tell which variables changed.")
    check_caches(whole, f"after {n} transitions")
    first = _draws(parts, n // 3)
    copied = parts.copy()
    check_same(copied, parts, "in a copy")
    second = _draws(copied, n - n // 3)
    what = "transitions in one call, against some, then the rest by a copy"
    expect_equal(np.concatenate([first, second], axis=1), x, what)
    expect(np.isfinite(target.log_prob(x)), "the chain is at a state of probability zero.")


def _draws(ensemble: Ensemble, n: int) -> States:
    x = np.empty((len(ensemble), n, ensemble.target.n_sites), dtype=ensemble.target.dtype)
    stats = np.empty((len(ensemble), n, len(ensemble.rule.facts.stat_names)))
    ensemble.run(n, Drawing(1), x, stats)
    return x

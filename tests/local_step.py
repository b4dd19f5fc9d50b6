"""The locally balanced step, measured: every breakpoint of its uniform numbers is bisected.

`sklsb.testing.check_rule` measures the steps of any rule. These checks know that moves are proposed
in order, so they also see both sides of every edge, weights of zero, large offsets, and torch.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import exact_matrices  # noqa: F401 - formulas of the rules
import numpy as np
from numpy.typing import NDArray

from sklsb import exact, testing
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.mixture import Mixture
from sklsb._kernels.rules.redraw import Blocks
from sklsb.ensembles.rules import FirstOrder
from sklsb.ensembles.streams import Streams
from sklsb.exact.enumeration import neighbours
from sklsb.exact.matrices import log_transition_matrix, rule_of
from sklsb.targets.base import States, Target
from sklsb.testing._expect import (
    EPS,
    Array,
    expect,
    expect_equal,
    expect_near,
    log_probabilities,
    magnitudes,
)
from sklsb.testing._probe import Probe, check_caches, kept


class FastProbe:
    """The first-order step out of given states."""

    accept = 0.0

    def __init__(self, sampler: Any, target: Target, states: States, n_flips: int = 1):
        from sklsb.ensembles._torch import FastEnsemble

        streams = Streams([np.random.default_rng(0)] * len(states))
        self.ensemble = FastEnsemble(target, states, streams, n_flips=n_flips)
        self.ensemble.start(rule_of(sampler, target))
        self.before = self.ensemble.walkers.state

    @property
    def precision(self) -> float:
        """Rounding of the ratios that are proposed by."""
        return EPS if "64" in str(self.ensemble.walkers.state.ratios.dtype) else 2.0**-23

    def step(self, u_select: Any, u_accept: Any) -> States:
        """One transition; ``u_select`` holds one number, or all numbers of several flips."""
        self.ensemble.walkers.state = self.before
        self.ensemble.chains.acceptance[:] = 0.0
        n = len(self.ensemble)
        select = u_select if np.ndim(u_select) == 2 else np.broadcast_to(u_select, n)
        uniforms = np.column_stack([select, np.broadcast_to(u_accept, n)])
        self.ensemble.advance(uniforms[:, None])
        found: States = self.ensemble.chains.x
        return found


class StepProbe(Probe):
    """The locally balanced step out of given states, with ``shift`` added to the offsets."""

    accept = -1.0  # a u_accept at which every proposal is accepted

    def __init__(self, target: Target, rule: Balanced, states: States, shift: float = 0.0):
        super().__init__(target, rule, states)
        self.chains.part.offset[:] += shift
        self.rebuild()
        self.before = {name: values.copy() for name, values in kept(self.chains).items()}

    def step(self, u_select: Any, u_accept: Any) -> States:
        """One transition from the states given; where it leads."""
        self.restore()
        uniforms = np.empty((len(self.chains.x), 1, 2))
        uniforms[:, 0, 0], uniforms[:, 0, 1] = u_select, u_accept
        self.ensemble.advance(uniforms)
        return self.chains.x


def bisect(below: Callable[[Array], NDArray[np.bool_]], n: int) -> Array:
    """For each of n questions the smallest u in [0, 1] that is not below any more.

    The bit patterns of floats from 0 to 1 are in order, so it is they that are halved.
    """
    low, high = np.full(n, -1), np.full(n, np.float64(1.0).view(np.int64))
    while np.any(high - low > 1):
        middle = np.maximum((low + high) // 2, 0)
        inside = below(middle.view(np.float64))
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high.view(np.float64)


def production_matrix(sampler: Any, target: Target, shift: float = 0.0) -> Array:
    """Transition matrix of the production step, measured by bisection of its uniform numbers.

    ``shift`` is added to the offsets of the compiled weights. On its way this also checks what
    the bisection sees.
    """
    x, to = exact.states(target), neighbours(target)
    matrix = np.eye(len(x))
    possible = np.flatnonzero(target.log_prob(x) > -np.inf)
    n, n_moves = possible.size, to.shape[1]
    if not n_moves:
        return matrix
    rule: Any = rule_of(sampler, target)
    fast, n_flips = isinstance(rule, FirstOrder), getattr(rule, "n_flips", 1)
    start, move = np.repeat(possible, n_moves), np.tile(np.arange(n_moves), n)
    probe: Any = (
        FastProbe(sampler, target, x[start]) if fast else StepProbe(target, rule, x[start], shift)
    )
    index = {state.tobytes(): i for i, state in enumerate(x)}

    def proposed(u: Any) -> NDArray[np.int64]:
        """Which move is proposed at u, seen by accepting it; -1 for none."""
        there = np.array([index[state.tobytes()] for state in probe.step(u, probe.accept)])
        return np.where(there == start, -1, (to[start] == there[:, None]).argmax(axis=1))

    edge = bisect(lambda u: proposed(u) < move, start.size)
    edges = np.column_stack([edge.reshape(n, n_moves), np.ones(n)])
    length = np.diff(edges, axis=1)
    inside = edges[:, :-1].ravel()
    for u in (np.nextafter(edges[:, 1:], 0).ravel(), inside):
        expect(
            (proposed(u) == move) | (length.ravel() == 0.0),
            "moves must be proposed in intervals of u_select, in order.",
        )
    if not fast:
        check_caches(probe.ensemble, "after an accepted move")
        _check_selection(probe, proposed, edge)
        _check_rejection(probe, inside)
    if n_flips > 1:
        return _several_flips(sampler, target, possible, edges)
    accepted = bisect(lambda u: np.any(probe.step(inside, u) != x[start], axis=1), start.size)
    reported = probe.ensemble.chains.acceptance[:, 0]
    what = "acceptance probability that `step` returns, against where it accepts"
    expect_near(reported, np.where(length.ravel() > 0, accepted, reported), 4 * EPS, what)
    accepted = accepted.reshape(n, n_moves)
    matrix[possible[:, None], to[possible]] = length * accepted
    matrix[possible, possible] = edges[:, 0] + (length * (1.0 - accepted)).sum(axis=1)
    return matrix


def _several_flips(sampler: Any, target: Target, possible: Any, edges: Array) -> Array:
    """Transition matrix of several flips, each drawn where the edges of one are.

    What is accepted is told by the probabilities that the step reports.
    """
    x = exact.states(target)
    rule: Any = rule_of(sampler, target)
    n_flips: int = rule.n_flips
    index = {state.tobytes(): i for i, state in enumerate(x)}
    n, n_moves = edges.shape[0], edges.shape[1] - 1
    length, middle = np.diff(edges, axis=1), 0.5 * (edges[:, 1:] + edges[:, :-1])
    lazy = edges[:, :1]  # the first number tells that too
    busy = np.maximum(1.0 - lazy, EPS)
    drawn = np.array(list(itertools.product(range(n_moves), repeat=n_flips)))
    row, start = np.repeat(np.arange(n), len(drawn)), np.repeat(possible, len(drawn))
    drawn = np.tile(drawn, (n, 1))
    matrix = np.eye(len(x))
    matrix[possible, possible] = edges[:, 0]
    probe = FastProbe(sampler, target, x[start], n_flips)
    u = ((middle - lazy) / busy)[row[:, None], drawn]
    u[:, 0] = middle[row, drawn[:, 0]]
    # However the last is drawn, where it is left out.
    share = 0.5 * busy[row, 0] * (length / busy)[row[:, None], drawn].prod(axis=1)
    for last in (0.0, 0.5):
        moves = probe.step(np.column_stack([u, np.full(row.size, last)]), probe.accept)
        there = np.array([index[state.tobytes()] for state in moves])
        accepted = probe.ensemble.chains.acceptance[:, 0]
        np.add.at(matrix, (start, there), share * accepted)
        np.add.at(matrix, (start, start), share * (1.0 - accepted))
    return matrix


def _check_selection(
    probe: Probe, proposed: Callable[[Any], NDArray[np.int64]], edge: Array
) -> None:
    """At the ends of [0, 1) and on both sides of the edges no move of weight zero is proposed."""
    weight = probe.before["tree"][:, : probe.n_moves]
    chain = np.arange(len(weight))
    last = 1 - 2.0**-53
    for u in (0.0, 2.0**-53, last, np.minimum(edge, last), np.nextafter(edge, 0)):
        m = proposed(u)
        idle = (u < probe.rule.lazy) | (weight.sum(axis=1) == 0.0)
        expect((m == -1) == idle, f"a move is proposed unless the chain is lazy, at u = {u}.")
        wrong = (m >= 0) & (weight[chain, m] == 0.0)
        expect(~wrong, f"a move of weight zero is proposed at u = {u}.")


def _check_rejection(probe: Probe, u_select: Array) -> None:
    probe.step(u_select, np.inf)
    for name, values in kept(probe.chains).items():
        what = f"a rejected move leaves `{name}` as it was, bit for bit"
        expect_equal(values, probe.before[name], what)


def check_step(sampler: Any, target: Target) -> None:
    """Compare the bisected production step with the enumerated one, whatever the offset."""
    expected = exact.transition_matrix(sampler, target)
    fast = isinstance(rule_of(sampler, target), FirstOrder)
    for shift in (0.0,) if fast else (0.0, 150.0, -150.0):
        found = production_matrix(sampler, target, shift)
        # Weights are exp(log g - offset): with a large offset their logarithms round at its size.
        gate = 8 * EPS * max(1, target.n_sites) * (8 if fast else 1 + abs(shift))
        gate += np.sum(target.rounding)
        if fast:  # proposals are as exact as first-order ratios, the chain is in any case
            gate *= FastProbe(sampler, target, exact.states(target)[:1]).precision / EPS
            p = np.exp(log_probabilities(target))
            what = "detailed balance of the production step at (x, x')"
            expect_near(p[:, None] * found, (p[:, None] * found).T, 1e-12, what)
        what = f"the production step against the formula (offset {shift:+g}) at (x, x')"
        expect_near(found, expected, gate, what)


def sum_gate(n: int) -> float:
    """Return by how much n probabilities exp(log T), whose sum is one, may miss it by rounding.

    log T rounds by eps abs(log T), hence T by eps T abs(log T), which adds up to eps log n at most:
    that is the largest entropy. log Z, which all have in common, and sums made in pairs round by
    half of it each; exp, expm1, a product and a quotient by 4 eps, whatever n.
    """
    return EPS * (4 + 2 * math.log(max(n, 1)))


def n_terms(sampler: Any, target: Target) -> int:
    """Count the moves, or sequences of moves, and the stay that a row is the sum of."""
    rule = rule_of(sampler, target)
    n_moves, n_flips = int((target.cardinalities - 1).sum()), getattr(rule, "n_flips", 1)
    return int(n_moves**n_flips + n_moves ** (n_flips - 1))


def check_matrix(sampler: Any, target: Target) -> None:
    """Rows sum to 1, detailed balance in logarithms and absolutely, stationarity."""
    matrix, log_p = exact.transition_matrix(sampler, target), log_probabilities(target)
    largest, more = 1 + magnitudes(log_p).max(), np.sum(target.rounding)
    rows = sum_gate(n_terms(sampler, target))
    expect_near(matrix.sum(axis=1), 1.0, rows, "rows of the transition matrix must sum to 1")
    with np.errstate(invalid="ignore"):
        flow = log_p[:, None] + log_transition_matrix(sampler, target)
    what, balance = "detailed balance, log p(x) P(x, x') at (x, x')", 16 * EPS * largest + more
    expect_near(flow, flow.T, balance, what)
    p = np.exp(log_p)
    flow = p[:, None] * matrix
    gate = 1e-15 * largest + more
    expect_near(flow, flow.T, gate, "detailed balance, p(x) P(x, x') at (x, x')")
    # By balance and the sums of rows: every flow into x' is off by a share of itself.
    gate = np.minimum(gate, p * balance) + p * rows + 1e-300
    expect_near(p @ matrix, p, gate, "stationarity, sum of p(x) P(x, x') at x'")


def check_sampler(sampler: Any, target: Target, n_draws: int = 100) -> None:
    """Make the public check of a sampler, and measure its locally balanced steps."""
    testing.check_sampler(sampler, target, n_draws)
    rule = rule_of(sampler, target)
    if isinstance(rule, Mixture) and isinstance(rule.second, Blocks):
        sampler = rule = rule.first
    if isinstance(rule, Balanced | FirstOrder):
        check_matrix(sampler, target)
        check_step(sampler, target)

r"""Learning a balancing function during the burn-in.

The objectives measure the statistical dependence of consecutive states, the mutual information
``KL(p(x) T(x'|x) || p(x) p(x'))``, at the states that the chains visit. With
T_i = Q_i A_i the probability of moving to neighbour i, M the probability of staying, l_i the
log-ratio of neighbour i and omega(x) the importance weight p(x) relative to the other chains:

=========  ====================================================================================
"bound"    omega (Q'/Q) A log(T'/p') at a proposed x', plus the bound
           M [eta M - omega (log eta + 1)] with M = 1 - T at a uniform neighbour (case b)
"exact"    sum_i T_i log(T_i / p_i) + M log(M / p), all neighbours (case a)
"kl"       (Q'/Q) A log(T'/p') at the chain's state and at a state drawn from the initial
           distribution, plus the penalty of a monotonic network (first version)
=========  ====================================================================================

"exact" visits 8,192 neighbours at each update: of all chains, of some chains in turn where there
are more, and evenly spaced ones of one chain where it alone has more. In stationarity its mean is
the mutual information up to a constant, so the chains count alike.

"bound" is the cheapest, and the paper's choice where every neighbour costs a target evaluation.
Its importance weights let the chain of largest p count nearly alone, and with M nearly 1 at a
single neighbour it hardly sees rejections: it may learn a function whose moves are mostly
rejected. On a sparse graph the neighbours cost little, so "exact" is the default.

In "bound" p is taken relative to its mean over the chains, in the others relative to the state
that is left, in logarithms; so a constant added to log p changes nothing.

The first auxiliary distribution of the paper, the present state with probability 1 - 1e-8 and a
uniform one otherwise, is the present state here: the uniform draw would come once in 1e8
iterations, with a weight too large to be used.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from sklsb import _compiled
from sklsb._compiled import Table
from sklsb._ensemble import Ensemble
from sklsb.balancing import BalancingFunction, LearnableFunction

__all__ = ["OBJECTIVES", "OPTIMIZERS", "Adam", "History", "Learner", "Momentum", "burn_in"]

Array = NDArray[np.float64]


class Objective(NamedTuple):
    """Code of an objective in the kernel, and the settings that suit it."""

    code: int
    max_updates: int
    learning_rate: float


# An enumerated gradient has little noise: fewer and longer steps.
OBJECTIVES = {
    "bound": Objective(_compiled.BOUND, 2000, 0.01),
    "exact": Objective(_compiled.EXACT, 200, 0.05),
    "kl": Objective(_compiled.KL, 2000, 0.01),
}
_MAX_BLOCKS = 2000
# Neighbours, over all chains, that one evaluation of "exact" visits at most.
ENUMERATED = 1 << 13
# Uniform numbers drawn ahead, over all chains.
_BUFFER = 1 << 17


class Adam:
    """Adam (Kingma and Ba, 2015)."""

    def __init__(self, learning_rate: float):
        self.learning_rate = learning_rate
        self.n_steps = 0
        self.mean: Array | float = 0.0
        self.square: Array | float = 0.0

    def step(self, gradient: Array) -> Array:
        """Return the change of the parameters."""
        self.n_steps += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient**2
        mean = self.mean / (1 - 0.9**self.n_steps)
        square = self.square / (1 - 0.999**self.n_steps)
        return -self.learning_rate * mean / (np.sqrt(square) + 1e-8)


class Momentum:
    """Gradient descent with momentum 0.9."""

    def __init__(self, learning_rate: float):
        self.learning_rate = learning_rate
        self.velocity: Array | float = 0.0

    def step(self, gradient: Array) -> Array:
        """Return the change of the parameters."""
        self.velocity = 0.9 * self.velocity - self.learning_rate * gradient
        return self.velocity


OPTIMIZERS: dict[str, Callable[[float], Adam | Momentum]] = {"adam": Adam, "sgd": Momentum}


class History(NamedTuple):
    """What happened in each block of the burn-in; arrays over the blocks.

    ``lp`` (after the block) and ``acceptance_rate`` (its mean probability) have shape
    (n_blocks, n_chains), ``theta`` (n_blocks, n_parameters), the others (n_blocks,).
    """

    iteration: NDArray[np.int64]
    lp: Array
    acceptance_rate: Array
    objective: Array
    theta: Array
    gradient_norm: Array

    @classmethod
    def from_rows(cls, rows: list[tuple[Any, ...]], n_chains: int) -> "History":
        """Stack the rows of the blocks."""
        if not rows:
            none, empty = np.empty(0), np.empty((0, n_chains))
            return cls(none.astype(np.int64), empty, empty, none, np.empty((0, 0)), none)
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))


class Learner:
    """A learnable function, its optimiser and the bound's eta, updated together."""

    def __init__(self, function: LearnableFunction, objective: str, optimizer: Adam | Momentum):
        self.function = function
        self.objective = objective
        self.optimizer = optimizer
        # eta = softplus(rho), started at 1, its best value when the chain always stays.
        self.rho = float(np.log(np.expm1(1.0)))
        self.n_skipped = 0
        self.n_calls = 0

    @property
    def eta(self) -> float:
        """Parameter of the bound."""
        return float(np.logaddexp(0.0, self.rho))

    def gradient(
        self,
        ensemble: Ensemble,
        table: Table,
        log_prob: Array,
        extra: Array,
        first: Array,
        fresh: Callable[[], Ensemble] | None,
    ) -> tuple[float, Array, float]:
        """Objective, gradient at the knots and by eta, at the states of the chains.

        ``first`` holds the uniforms of the transition about to be made: the neighbour it
        proposes, if the chain is not lazy, is the one the objective looks at.
        """
        every, log_omega = 1, relative_weights(log_prob)
        if self.objective == "exact":
            every, log_omega = self._part(*ensemble.chains.moved.shape)
        settings = (OBJECTIVES[self.objective].code, self.eta, every)
        events = np.column_stack([first[:, 0], extra[:, 1]])
        result = ensemble.objective(table, settings, events, log_omega)
        if self.objective == "kl" and fresh is not None:
            others = fresh()
            others.start(table)
            more = others.objective(table, settings, extra.copy(), np.zeros(len(others)))
            result = (result[0] + more[0], result[1] + more[1], 0.0)
        return result

    def _part(self, n_chains: int, n_moves: int) -> tuple[int, Array]:
        """Stride of the neighbours, and the weights of the chains: zero for those left out.

        Leaving out chains is unbiased; leaving out neighbours is so but for log M.
        """
        every = -(-n_moves // ENUMERATED)
        n_visited = min(n_chains, max(1, ENUMERATED // max(1, n_moves)))
        visited = (self.n_calls * n_visited + np.arange(n_visited)) % n_chains
        self.n_calls += 1
        log_omega = np.full(n_chains, -np.inf)
        log_omega[visited] = np.log(n_chains / n_visited)
        return every, log_omega

    def update(self, value: float, by_knots: Array, by_eta: float) -> tuple[float, float]:
        """Make one step; return the objective, penalty included, and the gradient's norm.

        A step is left out, and counted, if anything in it is not finite.
        """
        with np.errstate(all="ignore"):
            gradient = self.function.vjp(by_knots)
            if self.objective == "kl":
                penalty, by_theta = self.function.penalty()
                value, gradient = value + penalty, gradient + by_theta
            if self.objective == "bound":
                gradient = np.append(gradient, by_eta * expit(self.rho))
            norm = float(np.linalg.norm(gradient))
            if np.isfinite(norm):
                change = self.optimizer.step(gradient)
                theta = self.function.theta + change[: self.function.theta.size]
                rho = self.rho + float(change[-1]) if self.objective == "bound" else self.rho
                if np.isfinite(theta).all() and np.isfinite(rho):
                    candidate = self.function.with_theta(theta)
                    if np.isfinite(candidate.table().value).all():
                        self.function, self.rho = candidate, rho
                        return value, norm
        self.n_skipped += 1
        return value, norm


def _blocks(n_iterations: int, max_blocks: int) -> NDArray[np.int64]:
    n_blocks = min(n_iterations, max_blocks)
    ends: NDArray[np.int64] = np.linspace(0, n_iterations, n_blocks + 1).astype(np.int64)
    return ends[1:] - ends[:-1]


class _Pairs:
    """Pairs of uniform numbers for all chains, drawn from their streams a buffer at a time."""

    def __init__(self, rngs: list[np.random.Generator], n_pairs: int):
        self.rngs = rngs
        self.left = n_pairs
        self.at = 0
        self.buffer = np.empty((len(rngs), 0, 2))

    def take(self, n: int) -> Array:
        """Return the next pairs, at most n of them and at least one."""
        if self.at == self.buffer.shape[1]:
            size = min(self.left, max(1, _BUFFER // (2 * len(self.rngs))))
            self.buffer = np.stack([rng.random((size, 2)) for rng in self.rngs])
            self.left -= size
            self.at = 0
        taken = self.buffer[:, self.at : self.at + n]
        self.at += taken.shape[1]
        return np.ascontiguousarray(taken)


def relative_weights(log_prob: Array) -> Array:
    """Logarithm of p relative to its mean over the chains."""
    return log_prob - (logsumexp(log_prob) - np.log(log_prob.size))


def burn_in(
    ensemble: Ensemble,
    function: BalancingFunction,
    n_iterations: int,
    *,
    learner: Learner | None = None,
    fresh: Callable[[], Ensemble] | None = None,
    on_block: Callable[[int], None] = lambda n: None,
    draws: NDArray[np.int8] | None = None,
) -> tuple[BalancingFunction, History]:
    """Run the burn-in (Algorithm 1 of the paper), one transition of every chain per iteration.

    The iterations are divided into at most 2,000 blocks (200 for the objective "exact"). At the
    first iteration of a block the objective and its gradient are evaluated, all transitions of
    the block use the parameters that the block started with, and at its end comes one step of
    the optimiser.

    Parameters
    ----------
    ensemble : Ensemble
        The chains; they are moved.
    function : BalancingFunction
        Function to begin with.
    n_iterations : int
        Transitions per chain.
    learner : Learner, optional
        Updates the function; without it the function stays fixed.
    fresh : callable, optional
        Returns an ensemble at new draws of the initial distribution; needed for "kl".
    on_block : callable, optional
        Called with the number of iterations of each block when it is done.
    draws : ndarray of int8, shape (n_chains, n_iterations, n_sites), optional
        Receives every state.

    Returns
    -------
    function : BalancingFunction
        The function after the last update; the chains' caches are those of it.
    history : History
        Arrays over the blocks.
    """
    objective = None if learner is None else OBJECTIVES[learner.objective]
    lengths = _blocks(n_iterations, objective.max_updates if objective else _MAX_BLOCKS)
    rows: list[tuple[Any, ...]] = []
    done = 0
    table = function.table()
    ensemble.start(table)
    log_prob = ensemble.log_prob()
    # For each block a pair for the objective, then one for each transition.
    pairs = _Pairs(ensemble.rngs, n_iterations + lengths.size)
    for length in lengths.tolist():
        extra = pairs.take(1)[:, 0]
        gradient = None
        end = done + length
        while done < end:
            # Keeping every state takes one call per transition.
            uniforms = pairs.take(end - done if draws is None else 1)
            if learner is not None and gradient is None:
                gradient = learner.gradient(ensemble, table, log_prob, extra, uniforms[:, 0], fresh)
            ensemble.advance(table, uniforms)
            if draws is not None:
                draws[:, done] = ensemble.chains.x
            done += uniforms.shape[1]
        log_prob = ensemble.log_prob()
        acceptance = ensemble.chains.acceptance[:, 0] / length
        ensemble.chains.acceptance[:] = 0.0
        value = norm = np.nan
        if learner is not None and gradient is not None:
            value, norm = learner.update(*gradient)
            function = learner.function
            table = function.table()
        theta = getattr(function, "theta", np.empty(0))
        rows.append((done, log_prob, acceptance, value, theta, norm))
        on_block(length)
    ensemble.start(table)
    return function, History.from_rows(rows, len(ensemble))

r"""Learning balancing functions: one for the burn-in, one for sampling.

No fixed function is good at both, so two are learned from the states that the chains visit. With
T_i = Q_i A_i the probability of moving to neighbour i, M the probability of staying, l_i the
log-ratio of neighbour i and p' / p = exp l_i, the objectives are

===============  ===================================================================================
*burn-in*        (one step of the optimiser per block of iterations, `burn_in`)
"kl"             sum_i T_i (log T_i - l_i) + M log M: the divergence of the next state from p, given
                 the present one
"exact"          the same, weighted by p: the paper's mutual information, case a
"bound"          omega (Q'/Q) A log(T'/p') at a proposed x', plus the bound
                 M [eta M - omega (log eta + 1)] with M = 1 - T at a uniform neighbour (case b)
*sampling*       (minimised on stored states at the end of the burn-in, `fit_flux`)
"flux"           mean of log sum_i a_i^2 / phi_i with a_i = p_i (1 - p_i), phi_i = p_i T_i; p_i is
                 the probability of the present value of variable i given the others, T_i the
                 probability of changing it
"global_flux"    log sum_i a_i / phi_i with a_i = 1 - sum_s P(x_i = s)^2 and phi_i the mean of
                 2 p_i T_i, over the stored states
===============  ===================================================================================

The last two bound the asymptotic variance of the indicators of the values from below, by
Dirichlet forms: the first given the other variables, the second over the run, so it sees variables
that are tied to others. Both are regularised by 1e-4 times the squared distance of the parameters
from their start, and minimised in at most 40 iterations, or until one gains less than 1e-5.

"kl" and "exact" visit all neighbours. Where that costs more than 16,384 log-ratios per update, the
chains take turns; where one chain alone costs more, every k-th of its neighbours is visited, with a
baseline that removes most of the noise.

"bound" is the paper's choice where every neighbour costs a target evaluation. Its importance
weights, like those of "exact", let the chain of largest p count nearly alone; and with M nearly 1
at a single neighbour it hardly sees rejections. "kl" needs no such weights.

In "bound" and "exact" p is relative to its mean over the chains, in the others to the present
state, so a constant added to log p changes nothing.

The paper's first auxiliary distribution is the present state with probability 1 - 1e-8 and a
uniform state otherwise. Here it is the present state: the uniform one would come once in 1e8
iterations, with a weight too large to be used.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from threadpoolctl import threadpool_limits

from sklsb._kernels.numeric import Table
from sklsb._kernels.objectives import OBJECTIVES as OBJECTIVES
from sklsb._kernels.objectives import Objective
from sklsb._kernels.rules.balanced import Balanced
from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import at_once
from sklsb.balancing.functions import BalancingFunction, LearnableFunction, Tabulated
from sklsb.ensembles.base import LearnableEnsemble
from sklsb.ensembles.streams import Streams
from sklsb.storage.checkpoint import Checkpoint
from sklsb.targets.base import States, Target

MIXING = ("flux", "global_flux")
# Most blocks of the burn-in, of a function that may sample and of one that does not. Each ends
# with an update, after which all moves are weighed anew: log-ratios that this may take.
MOST_UPDATES, FEW_UPDATES, _MOST_WEIGHED = 2000, 400, 1 << 32
# Log-ratios, over all chains, per evaluation of an enumerated objective and of a flux objective.
UPDATE_COST, FLUX_COST = 1 << 14, 1 << 17
# States, and sites, that a flux objective is averaged over.
FEWEST_STATES, MOST_STATES, FEWEST_SITES = 16, 512, 16
# Uniform numbers drawn ahead, over all chains.
_BUFFER = 1 << 17
# Keeps a parameter near its start if the stored states say nothing about it.
_RIDGE = 1e-4
MOST_STEPS = 40
# Relative gain of a step of a flux objective, the log of a variance, below which it is minimal.
_LEAST_STEP = 1e-5
# Replaces an objective that is not finite: a line search turns back from it.
_REFUSED = 1e300
# Values of abs(u) at which the history keeps the even part.
PLACES = np.arange(0.0, 16.01, 0.5)


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


class Block(NamedTuple):
    """What happened in a block of the burn-in, or in part of one in which nothing was learned."""

    iteration: int  # transitions of each chain by its end
    lp: Array  # of each chain, at its end
    acceptance_rate: Array  # of each chain, mean over it
    theta: Array
    even_part: Array  # at `PLACES`
    objective: float = np.nan
    gradient_norm: float = np.nan


class Learner:
    """A learnable function, its optimiser and the bound's eta, updated together."""

    _not_in_files = ("objective",)

    def __init__(self, function: LearnableFunction, objective: str | Objective, optimizer: Adam):
        self.function, self.table = function, function.table()
        self.objective = Objective.of(objective)
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
        ensemble: LearnableEnsemble,
        rule: Balanced,
        log_prob: Array,
        extra: Array,
        first: Array,
    ) -> tuple[float, Array, float]:
        """Return the objective and its gradients at the knots and by eta, at the chains' states.

        ``first`` holds the two uniforms of each chain's next transition: the objective looks at
        the neighbour that it proposes. ``extra`` holds two more for each chain.
        """
        every, log_omega = 1, relative_weights(log_prob)
        if self.objective.enumerated:
            every, log_share = self.visits(len(ensemble), ensemble.enumeration_cost)
            every = max(1, min(every, ensemble.chains.moved.shape[1]))  # at least one neighbour
            log_omega = log_share + log_omega if self.objective.weighted else log_share
        settings = (self.objective, self.eta, every)
        events = np.column_stack([first[:, 0], extra[:, 1]])
        return ensemble.objective(rule, settings, events, log_omega)

    def visits(self, n_chains: int, cost: int) -> tuple[int, Array]:
        """Choose the neighbours and chains that an enumerated objective visits in this update.

        All neighbours of one chain take ``cost`` log-ratios. As many chains are visited, in turn,
        as `UPDATE_COST` pays for; if it does not pay for one, every k-th neighbour of one chain.
        Returns k, and log weights of the chains that keep the mean over all chains unbiased:
        log(n_chains / n_visited), or -inf for a chain that is left out.
        """
        every = max(1, -(-cost // UPDATE_COST))
        n_visited = min(n_chains, at_once(UPDATE_COST, cost))
        visited = (self.n_calls * n_visited + np.arange(n_visited)) % n_chains
        self.n_calls += 1
        log_share = np.full(n_chains, -np.inf)
        log_share[visited] = np.log(n_chains / n_visited)
        return every, log_share

    def update(self, value: float, by_knots: Array, by_eta: float) -> tuple[float, float]:
        """Make one step unless something is not finite; return the objective and gradient norm."""
        with np.errstate(all="ignore"):
            gradient = self.function.vjp(by_knots)
            if self.objective.learns_eta:
                gradient = np.append(gradient, by_eta * expit(self.rho))
            norm = float(np.linalg.norm(gradient))
            taken = np.isfinite(norm) and self._step(gradient)
        self.n_skipped += not taken
        return value, norm

    def _step(self, gradient: Array) -> bool:
        """Make the optimiser's step and return True, if it leads to finite numbers."""
        change = self.optimizer.step(gradient)
        theta = self.function.theta + change[: self.function.theta.size]
        rho = self.rho + float(change[-1]) if self.objective.learns_eta else self.rho
        if not (np.isfinite(theta).all() and np.isfinite(rho)):
            return False
        function = self.function.with_theta(theta)
        table = function.table()
        if not np.isfinite(table.value).all():
            return False
        self.function, self.table, self.rho = function, table, rho
        return True


def _blocks(n: int, shortest: int, most: int, growing: bool) -> Ints:
    n_blocks = min(-(-n // shortest), most)
    ends: Any = np.linspace(0, n, n_blocks + 1)
    if growing and n_blocks:
        k = np.arange(n_blocks + 1)
        ends = k + (n - n_blocks) * (k / n_blocks) ** 2
    return np.diff(ends.astype(np.int64))


class _Pairs:
    """Pairs of uniform numbers for all chains, drawn from their streams a buffer at a time."""

    _not_in_files = ("streams",)

    def __init__(self, streams: Streams, n_pairs: int):
        self.streams, self.left, self.at = streams, n_pairs, 0
        self.buffer = np.empty((len(streams), 0, 2))

    def take(self, n: int) -> Array:
        """Return the next 1 to n pairs."""
        if self.at == self.buffer.shape[1]:
            size = min(self.left, at_once(_BUFFER, 2 * len(self.streams)))
            self.buffer = self.streams.pairs(size)
            self.left -= size
            self.at = 0
        taken = self.buffer[:, self.at : self.at + n]
        self.at += taken.shape[1]
        return np.ascontiguousarray(taken)


def relative_weights(log_prob: Array) -> Array:
    """Return the logarithm of p relative to its mean over the chains."""
    total: float = np.logaddexp.reduce(log_prob)
    return log_prob - (total - np.log(log_prob.size))


def n_stored(cost: int) -> int:
    """Return the number of states for a flux objective, given the cost of one neighbourhood."""
    return int(np.clip(FLUX_COST // max(1, cost), FEWEST_STATES, MOST_STATES))


class _Store:
    """States that the chains visit in the second half of the burn-in."""

    def __init__(self, n_states: int, n_chains: int, lengths: Ints):
        first = int((2 * lengths.cumsum() <= lengths.sum()).sum())
        n_times = min(lengths.size - first, -(-n_states // n_chains))
        self.n_states = n_states
        self.blocks = set(np.linspace(lengths.size - 1, first, n_times).astype(int).tolist())
        self.parts: list[States] = []

    def offer(self, block: int, states: States) -> None:
        if block in self.blocks:
            self.parts.append(states.copy())

    def states(self) -> States:
        """Return at most ``n_states`` of them, spread evenly over time and chains."""
        stored = np.concatenate(self.parts)
        n = min(self.n_states, len(stored))
        return stored[np.linspace(0, len(stored) - 1, n).astype(int)]


def most_updates(ensemble: LearnableEnsemble) -> int:
    """Return the most updates that a burn-in makes."""
    return min(MOST_UPDATES, at_once(_MOST_WEIGHED, ensemble.cost * len(ensemble)))


def burn_in(
    ensemble: LearnableEnsemble,
    function: BalancingFunction,
    n_iterations: int,
    *,
    lazy: float = 0.0,
    learner: Learner | None = None,
    on_block: Callable[[int], None] = lambda n: None,
    draws: States | None = None,
    most: int = MOST_UPDATES,
    checkpoint: Checkpoint | None = None,
) -> tuple[BalancingFunction, list[Block], States]:
    """Run the burn-in (Algorithm 1 of the paper), one transition of every chain per iteration.

    The iterations are divided into at most 2,000 blocks, fewer on more than about 100,000
    variables, and of at least eight iterations on the first-order path, where an update takes as
    long as several steps; with another ``most``, into so many, the first of them the shortest. At
    the first iteration of a block the objective and its gradient are evaluated, all its transitions
    use the same parameters, and at its end the optimiser makes one step.

    Without a learner the function stays fixed. ``on_block`` is called with the length of each
    block when it ends. ``draws``, of shape (n_chains, n_iterations, n_sites), receives every state.
    Returns the last function, by which the chains' caches are computed; the blocks; and at most
    512 states visited in the second half, or the present ones if there are none.
    """
    shortest = 1 if learner is None else ensemble.update_every
    n_blocks = min(most, most_updates(ensemble))
    lengths = _blocks(n_iterations, shortest, n_blocks, growing=most < MOST_UPDATES)
    store = _Store(n_stored(ensemble.cost), len(ensemble), lengths)
    rows: list[Block] = []
    done = first = 0
    # For each block a pair for the objective, then one for each transition.
    pairs = _Pairs(ensemble.streams, n_iterations + lengths.size)
    checkpoint = checkpoint or Checkpoint()
    if loop := checkpoint.kept.get("loop"):
        first, done, log_prob, rows, store.parts, pairs, before, kept = loop
        pairs.streams = ensemble.streams
        if learner is not None:
            vars(learner).update(vars(before) | {"objective": learner.objective})
            function = learner.function
        if draws is not None:
            draws[:] = kept
        on_block(done)
    rule = Balanced(function.table(), lazy)
    if not loop:
        ensemble.start(rule)
        log_prob = ensemble.log_prob()

    def state() -> dict[str, Any]:
        loop = first, done, log_prob, rows, store.parts, pairs, learner, draws
        return {"ensemble": ensemble, "loop": loop}

    with checkpoint.loop(state) as between:
        for block, length in enumerate(lengths[first:].tolist(), first):
            extra = pairs.take(1)[:, 0]
            gradient = None
            end = done + length
            while done < end:
                # Keeping every state takes one call per transition.
                uniforms = pairs.take(end - done if draws is None else 1)
                if learner is not None and gradient is None:
                    gradient = learner.gradient(ensemble, rule, log_prob, extra, uniforms[:, 0])
                ensemble.advance(uniforms)
                if draws is not None:
                    draws[:, done] = ensemble.chains.x
                done += uniforms.shape[1]
            log_prob = ensemble.log_prob()
            acceptance = ensemble.chains.acceptance[:, 0] / length
            ensemble.forget_acceptance()
            ensemble.follow(float(acceptance.mean()), length)
            value = norm = np.nan
            if learner is not None and gradient is not None:
                store.offer(block, ensemble.chains.x)
                value, norm = learner.update(*gradient)
                function, rule = learner.function, Balanced(learner.table, lazy)
            shown = shown_of(function, rule.table)
            rows.append(Block(done, log_prob, acceptance, *shown, value, norm))
            on_block(length)
            first = block + 1
            between()
    ensemble.start(rule)
    visited = store.states() if store.parts else ensemble.chains.x.copy()
    return function, rows, visited


def shown_of(function: BalancingFunction, table: Table) -> tuple[Array, Array]:
    """Return the parameters and the even part, as the histories keep them."""
    even_part = Tabulated(table).even_part(PLACES)
    theta = function.theta if isinstance(function, LearnableFunction) else np.empty(0)
    return theta, even_part


class Trace(NamedTuple):
    """What happened in each evaluation of a flux objective; arrays over the evaluations."""

    objective: Array
    gradient_norm: Array
    theta: Array
    even_part: Array


def site_variances(target: Target, states: States, log_ratios: Array) -> Array:
    """Return 1 - sum_s P(x_i = s)^2 of each variable.

    P is the mean over the states of the probabilities given the other variables.
    """
    sites, site = np.arange(target.n_sites), target.offers.site_of_moves
    # A site's moves go to its other values in order: to k, or to k + 1 from the present one on.
    k = np.arange(site.size) - target.offers.first_moves[site]
    present = np.searchsorted(np.asarray(target.values), states)
    probability = np.zeros((target.n_sites, int(target.cardinalities.max(initial=1))))
    for value_index, ratios in zip(present, log_ratios, strict=True):
        odds = np.exp(np.minimum(ratios, 700.0))
        stay = 1.0 / (1.0 + np.bincount(site, odds, target.n_sites))
        probability[sites, value_index] += stay
        probability[site, k + (k >= value_index[site])] += odds * stay[site]
    return 1.0 - np.square(probability / len(states)).sum(axis=1)


class Flux:
    """A flux objective as a function of the parameters."""

    def __init__(self, ensemble: LearnableEnsemble, function: LearnableFunction, kind: str):
        self.ensemble = ensemble
        self.function = function
        self.kind = kind
        n = ensemble.target.n_sites
        affordable = FLUX_COST * n // max(1, ensemble.cost * len(ensemble))
        n_sites = min(n, max(FEWEST_SITES, affordable))
        self.sites = np.sort(np.random.default_rng(0).permutation(n)[:n_sites])
        if kind == "global_flux":
            states, ratios = ensemble.chains.x, ensemble.proposal_log_ratios()
            self.variance = site_variances(ensemble.target, states, ratios)[self.sites]
        self.rows: list[tuple[Any, ...]] = []
        self.best = (_REFUSED, function)

    def _flux(self, table: Table, weight: Array) -> tuple[float, Array, Array]:
        return self.ensemble.flux(Balanced(table), self.sites, weight)

    def _value(self, table: Table) -> tuple[float, Array]:
        """Return the objective, not yet regularised, and its gradient at the knots."""
        if self.kind == "flux":
            return self._flux(table, np.empty(0))[:2]
        flow = self._flux(table, np.zeros(self.sites.size))[2]
        moving = (flow > 0.0) & (self.variance > 0.0)
        terms = np.divide(self.variance, flow, out=np.zeros_like(flow), where=moving)
        total = float(terms.sum())
        if total == 0.0:
            return 0.0, np.zeros_like(table.value)
        weight = np.divide(terms, total * flow, out=np.zeros_like(flow), where=moving)
        return float(np.log(total)), -self._flux(table, weight)[1]

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Return the objective and its gradient; a large number where it is not finite."""
        try:
            with np.errstate(all="ignore"):
                function = self.function.with_theta(theta)
                table = function.table()
                value, by_knots = self._value(table)
                away = theta - self.function.theta
                value += _RIDGE * float(away @ away)
                gradient = function.vjp(by_knots) + 2.0 * _RIDGE * away
        except ValueError:  # parameters, or a table, that are not finite
            return _REFUSED, np.zeros_like(theta)
        norm = float(np.linalg.norm(gradient))
        if not (np.isfinite(value) and np.isfinite(norm)):
            return _REFUSED, np.zeros_like(theta)
        if value < self.best[0]:
            self.best = (value, function)
        self.rows.append((value, norm, *shown_of(function, table)))
        return value, gradient


def fit_flux(
    ensemble: LearnableEnsemble,
    function: LearnableFunction,
    objective: str,
    on_evaluation: Callable[[], None] = lambda: None,
    *,
    most: int | None = None,
) -> tuple[LearnableFunction, Trace]:
    """Minimise a flux objective over the present states of an ensemble, by L-BFGS.

    The objective is evaluated about ``most`` times, if that is given.

    Returns the best function that was met, which is finite, and the trace of all evaluations.
    """
    flux = Flux(ensemble, function, objective)

    def shown(theta: Array) -> tuple[float, Array]:
        found = flux(theta)
        on_evaluation()
        return found

    table = function.table()
    ensemble.start(Balanced(table))
    options: dict[str, Any] = {"maxiter": MOST_STEPS, "ftol": _LEAST_STEP}
    options |= {} if most is None else {"maxfun": most}
    # Its matrices have few rows: several threads of BLAS would take ten times as long as one.
    with threadpool_limits(1, user_api="blas"):
        minimize(shown, function.theta, jac=True, method="L-BFGS-B", options=options)
    rows = flux.rows or [(np.nan, np.nan, *shown_of(function, table))]
    return flux.best[1], Trace(*(np.array(column) for column in zip(*rows, strict=True)))


def name_of(given: Any) -> str:
    """Return the name of the objective given to `LSBSampler`, or raise a ValueError."""
    allowed = ("auto", *OBJECTIVES, *MIXING)
    name = given.name if isinstance(given, Objective) else given
    if not isinstance(name, str) or name not in allowed:
        raise ValueError(
            f"objective is {given!r}; it must be one of {sorted(allowed)}, or declared by "
            "sklsb.extending.objective."
        )
    return name


def of_burn_in(given: Any, fast: bool) -> Objective:
    """Return the objective of the burn-in."""
    if name_of(given) in OBJECTIVES:
        return Objective.of(given)
    return OBJECTIVES["bound" if fast else "kl"]


def new_learner(objective: Objective, function: LearnableFunction, rate: float | None) -> Learner:
    """Return a learner; ``rate`` is the learning rate, or None."""
    if rate is None:
        rate = objective.learning_rate or function.learning_rate
    return Learner(function, objective, Adam(float(rate)))

"""Several chains on one target, moved by compiled steps."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from sklsb._kernels import objectives, run
from sklsb._kernels._jit import distinguish, warn_if_uncached
from sklsb._kernels.chains import Chains
from sklsb._kernels.contract import scratch_size
from sklsb._kernels.facts import Rule
from sklsb._kernels.numeric import Table
from sklsb._kernels.objectives import Objective
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.run import Drawing, Steps, Sums
from sklsb._system.arrays import Array, Ints
from sklsb.ensembles.base import Counters, LearnableEnsemble, Out, Streamed
from sklsb.ensembles.streams import MANY, Streams
from sklsb.targets.base import States, Target

# The square root: log g(exp u) = u / 2.
SQRT = Balanced(Table(np.zeros(2), np.zeros(2), 1.0))


def new_chains(
    target: Target, states: States, part: Any, cache: int = 0, scratch: int = 0
) -> Chains:
    """Allocate the arrays of chains at some states."""
    n = len(states)
    return Chains(
        x=np.array(states, dtype=target.dtype, order="C"),
        cache=np.zeros((n, cache), dtype=np.int64),
        scratch=np.zeros((n, scratch), dtype=np.int64),
        moved=np.zeros((n, target.offers.n_moves), dtype=np.bool_),
        evaluations=np.zeros((n, 1), dtype=np.int64),
        acceptance=np.zeros((n, 1)),
        refusable=np.zeros((n, 1), dtype=np.int64),
        part=part,
    )


class Ensemble(Streamed):
    """Chains that a compiled rule moves, each with its own streams of random numbers.

    ``states``, (n_chains, n_sites), are copied; ``n_jobs`` threads never change a chain.
    """

    def __init__(
        self,
        target: Target,
        states: States,
        streams: "list[np.random.Generator] | Streams",
        n_jobs: int = 1,
        rule: Rule = SQRT,
    ):
        self.target = target
        self.streams = streams if isinstance(streams, Streams) else Streams(streams)
        self.n_jobs = min(n_jobs, max(1, len(self.streams)))
        self.counters = Counters()
        self._allocate(rule, states)

    def _allocate(self, rule: Rule, states: States) -> None:
        self.rule = rule
        view: Any
        if rule.facts.in_order:
            view = self.target.offers.class_view()
        else:
            view = self.target.view() if rule.facts.sees_all_moves else self.target.site_view()
        self.view, part = view, rule.new_part(self.target, len(states))
        self.chains = new_chains(self.target, states, part, view.cache_size, scratch_size(view))
        distinguish(view, rule, self.chains.part)
        self._up_to_date = False

    @property
    def n_numbers(self) -> int:
        """One, if kernels make those of a transition from one."""
        facts = self.rule.facts
        return 1 if facts.n_uniforms >= MANY and not facts.parts else facts.n_uniforms

    def like(self, states: States, streams: Streams) -> Self:
        made = type(self)(self.target, states, streams, self.n_jobs, self.rule)
        made.start(self.rule)
        return made

    def fixed(self) -> dict[str, Any]:
        return {"rule": self.rule}

    def __getstate__(self) -> dict[str, Any]:
        return {"target": self.target, "n_jobs": self.n_jobs, "state": self.state()}

    def __setstate__(self, given: dict[str, Any]) -> None:
        super().__setstate__(given | {"rule": given["state"].rule})

    def _over_chains(self, work: Callable[[tuple[int, int]], None]) -> None:
        """Call work((first, last)) on one range of chains per thread."""
        self._spread(work, len(self), self.chains)

    def start(self, rule: Rule) -> None:
        """Let a rule move the chains, and compute what is kept from their states."""
        warn_if_uncached()
        other_function = isinstance(rule, Balanced) and isinstance(self.rule, Balanced)
        if rule is not self.rule and not other_function:
            before = self.chains
            self._allocate(rule, before.x)
            self.chains.moved[:] = before.moved
            self.chains.evaluations[:] = before.evaluations
        self.rule = rule
        self._over_chains(lambda span: run.start(self.view, rule, self.chains, span, True))
        self._up_to_date = True

    def put(self, states: States) -> None:
        """Set the chains to these states, which are valid, under log p as it is now."""
        self.chains.x[:] = states
        self.start(self.rule)

    def _refresh(self) -> None:
        """Compute what is not copied."""
        if not self._up_to_date:
            given = self.view, self.rule, self.chains
            self._over_chains(lambda span: run.start(*given, span, False))
            self._up_to_date = True

    def log_prob(self) -> Array:
        self._refresh()
        nowhere, stats = run.no_draws(self.chains, 1)
        self._over_chains(
            lambda span: self._run(span, np.empty((1, 0)), 0, Drawing(), (nowhere, stats))
        )
        return stats[:, 0, 0].copy()

    def _run(
        self,
        span: tuple[int, int],
        uniforms: Array,
        n_transitions: int,
        drawing: Drawing,
        out: Out,
        sums: Sums | None = None,
        drawn: bool = False,
    ) -> None:
        facts = self.rule.facts
        width = 0 if facts.parts else facts.n_uniforms
        # Numbers that are made when they are needed stay in the caches.
        words = drawn and width >= MANY
        own = words and facts.takes_words
        steps = Steps(n_transitions, width, drawing, spread=words and not own, words=own)
        run.run(self.view, self.rule, self.chains, span, uniforms, steps, out, sums)

    def advance(self, uniforms: Array) -> None:
        """Make transitions driven by uniforms of shape (n_chains, n_transitions, n_uniforms)."""
        self._refresh()
        size, flat = uniforms.shape[1], uniforms.reshape(len(self), -1)

        def work(span: tuple[int, int]) -> None:
            numbers = flat[span[0] : span[1]]
            self._run(span, numbers, size, Drawing(), run.no_draws(self.chains))

        self._over_chains(work)

    def run(self, n: int, drawing: Drawing, out: Out, sums: Sums | None = None) -> None:
        """Make transitions; ``sums`` are of the draws, too."""
        self._refresh()

        def work(span: tuple[int, int]) -> None:
            for c in range(*span):
                row = self.streams.numbers(self.rule, c, n, spread=True)[None]
                self._run((c, c + 1), row, n, drawing, out, sums, True)

        self._over_chains(work)


class BalancedEnsemble(Ensemble, LearnableEnsemble):
    """Chains of locally balanced steps, whose function can be learned."""

    _known_ratios: tuple[States, Array] | None = None  # and the states that they are of

    rule: Balanced

    @property
    def cost(self) -> int:
        return int(self.view.touched.size)

    @property
    def enumeration_cost(self) -> int:
        return self.cost * self.target.ratio_cost

    @property
    def step_cost(self) -> float:
        return self.cost / max(1, self.view.touched_start.size - 1)

    def proposal_log_ratios(self) -> Array:
        # Computed, and counted, once for the same states.
        known = self._known_ratios
        if known is None or not np.array_equal(known[0], self.chains.x):
            ratios = self.target.log_ratios(self.chains.x)
            ratios.flags.writeable = False
            self.add_evaluations(np.full(len(self), ratios.shape[1]))
            self._known_ratios = known = self.chains.x.copy(), ratios
        return known[1]

    def objective(
        self,
        rule: Balanced,
        settings: tuple[Objective, float, int],
        uniforms: Array,
        log_omega: Array,
    ) -> tuple[float, Array, float]:
        objective, eta, every = settings
        self.rule = rule
        n, k = len(self), rule.table.value.size
        values, d_eta = np.empty(n), np.zeros(n)
        gradients = np.empty((n, 3 if objective.enumerated else 1, k))

        def work(span: tuple[int, int]) -> None:
            chains = (self.view, rule, self.chains, span)
            if objective.enumerated:
                how = (objective.compiled, every, objective.weighted)
                out = (gradients, values)
                objectives.enumerated(*chains, how, uniforms[:, 1].copy(), log_omega, out)
            else:
                sampled = (gradients, values, d_eta)
                objectives.sampled(*chains, eta, uniforms, log_omega, sampled)

        self._over_chains(work)
        return float(values.mean()), gradients[:, 0].mean(axis=0), float(d_eta.mean())

    def flux(self, rule: Balanced, sites: Ints, weight: Array) -> tuple[float, Array, Array]:
        self.rule = rule
        n, k = len(self), rule.table.value.size
        out = (np.empty((n, 1, k)), np.empty(n), np.empty((n, sites.size)))
        self._over_chains(
            lambda span: objectives.flux(self.view, rule, self.chains, span, sites, weight, out)
        )
        return float(out[1].mean()), out[0][:, 0].mean(axis=0), out[2].mean(axis=0)

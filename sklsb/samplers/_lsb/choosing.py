"""What `LSBSampler.fit` learns after the burn-in, and how it chooses the way to sample."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from sklsb._system.progress import Progress
from sklsb.balancing.functions import BalancingFunction, Lipschitz, get_balancing
from sklsb.balancing.learning import (
    MIXING,
    MOST_STEPS,
    OBJECTIVES,
    Trace,
    fit_flux,
    n_stored,
    name_of,
)
from sklsb.balancing.weights import balanced
from sklsb.ensembles.base import LearnableEnsemble
from sklsb.ensembles.streams import Streams
from sklsb.samplers._run.algorithm import Algorithm
from sklsb.targets.base import States
from sklsb.trials.candidates import Allowed, Candidate, Visited, plain_candidates, robust_candidates
from sklsb.trials.draws import draw
from sklsb.trials.factors import LEAST_GAIN, factor_candidates, learned_factors, promised_gain
from sklsb.trials.pilot import STARVED, compare, expected_sizes, neglectful, starved
from sklsb.trials.race import Outcome

# Evaluations that factors may always take.
_LEAST_LOOKED = 1 << 18
# Place of the streams, and share of the evaluations, by which it is seen whether factors may gain.
_TO_LOOK, _SHARE_TO_LOOK = 2, 0.05
# Evaluations of an objective without which nothing is learned.
FEWEST_EVALUATIONS = 4


class Starving(NamedTuple):
    """A learned function that starves moves; see `sklsb.trials.pilot.starved`."""

    name: str
    deficit: float
    least: float
    most: float


class Choice(NamedTuple):
    """The way to sample, and how it was found."""

    candidate: Candidate
    evaluations: dict[str, int]  # by part of the work: mixing, factors, pilot
    starving: list[Starving]
    traces: dict[str, Trace]  # of learning, by function
    outcome: Outcome | None  # of the pilot


class Chooser:
    """Learns functions and factors from states that the burn-in visited, and compares them.

    The chains of ``ensemble``, at the end of the burn-in, stay where they are; evaluations are
    counted there, and with those ``spared`` they say what may be spent. ``limits`` bound, unless
    None, the evaluations of an objective of visited states, of which no function is learned if they
    are too few, and what is counted as spent.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        allowed: Allowed,
        ensemble: LearnableEnsemble,
        limits: tuple[int | None, int | None] = (None, None),
        spared: int = 0,
    ) -> None:
        (most, self._most_work), self._spared = limits, spared
        self._algorithm, self._params = algorithm, algorithm.params
        self._allowed, self._ensemble, self._most = allowed, ensemble, most
        self._evaluations = dict.fromkeys(("mixing", "factors", "pilot"), 0)
        self._looked = self._counted

    def fixed(self, function: BalancingFunction) -> Choice:
        """Return the way to sample with a function that was not learned."""
        candidate = self._without_pilot(function)
        self._done("factors")
        return Choice(candidate, self._evaluations, [], {}, None)

    def learned(self, function: BalancingFunction, visited: States) -> Choice:
        """Learn candidates from the states (n, n_sites), and choose one.

        ``function`` is the one that was learned in the burn-in.
        """
        name = name_of(self._params.objective)
        stored = self._stored(visited)
        traces: dict[str, Trace] = {}
        functions = compared = {name: function}  # one for both
        # Beside factors by site, functions learned for jumps won nowhere.
        few = self._most is not None and self._most < FEWEST_EVALUATIONS
        if few or (self._params.objective == "auto" and not self._allowed.steps):
            functions = compared = {"burn-in": function}
        elif name not in OBJECTIVES:
            functions, traces = self._mixing(stored)
            compared = {"burn-in": function, **functions}
        seen = Visited.of(stored)
        self._count(stored)
        self._done("mixing")
        looked = {name: starved(f, seen.ratios) for name, f in compared.items()}
        starving = [Starving(n, d, *ends) for n, (d, ends) in looked.items() if d > STARVED]
        if not self._params.pilot:
            candidate = self._without_pilot(next(iter(functions.values())), seen)
            self._done("factors")
            return Choice(candidate, self._evaluations, starving, traces, None)
        out = {s.name for s in starving}
        out |= neglectful(functions, seen)
        kept = {name: f for name, f in functions.items() if name not in out}
        candidates = self._candidates(kept, seen, 0.25 * self._work)
        self._done("factors")
        outcome = self._race(candidates, 0.5 * self._work, seen)
        self._done("pilot")
        return Choice(candidates[outcome.best], self._evaluations, starving, traces, outcome)

    @property
    def _counted(self) -> int:
        return int(self._ensemble.chains.evaluations.sum())

    @property
    def _work(self) -> int:
        work = self._counted + self._spared
        return work if self._most_work is None else min(work, self._most_work)

    def _done(self, part: str) -> None:
        self._evaluations[part], self._looked = self._counted - self._looked, self._counted

    def _count(self, chains: LearnableEnsemble) -> None:
        self._ensemble.chains.evaluations[0] += chains.chains.evaluations.sum()

    def _stored(self, states: States) -> LearnableEnsemble:
        """Return chains at states that were visited; they do not move."""
        streams = Streams(self._ensemble.streams.of("pilot")[:1] * len(states))
        made = self._algorithm.make_ensemble(states, streams)
        return cast(LearnableEnsemble, made)

    def _mixing(
        self, stored: LearnableEnsemble
    ) -> tuple[dict[str, BalancingFunction], dict[str, Trace]]:
        """Learn functions for sampling from stored states."""
        objective = self._params.objective
        kinds = MIXING if objective == "auto" else (name_of(objective),)
        if not self._params.pilot:  # nothing to choose with
            kinds = kinds[:1]
        functions: dict[str, BalancingFunction] = {}
        traces: dict[str, Trace] = {}
        progress = Progress(self._params.verbose, "learning to mix", unit="evaluations")
        with stored.threads(), progress:
            for kind in kinds:
                before = int(stored.chains.evaluations.sum())
                found = fit_flux(stored, self._initial(kind), kind, progress, most=self._most)
                functions[kind], traces[kind] = found
                if self._most is None:
                    made, n = int(stored.chains.evaluations.sum()) - before, len(found[1].objective)
                    self._spared += made * max(0, MOST_STEPS - n) // n
        return functions, traces

    def _initial(self, kind: str) -> Any:
        # If variables are tied, the best functions do not increase; the pilot tells.
        given = self._params.balancing
        if isinstance(given, str) and given == "learned" and kind == "global_flux":
            return Lipschitz(1.5)
        return copy.deepcopy(get_balancing(given))

    def _candidates(
        self, functions: Mapping[str, BalancingFunction], seen: Visited, budget: float
    ) -> dict[str, Candidate]:
        """Return what the pilot compares."""
        allowed, more = self._allowed, dict[str, Candidate]()
        if allowed.by_site and not self._params.fast:
            copies, gain = self._copies("factors"), np.inf
            if not allowed.asks_factors:
                chains = copies(_TO_LOOK)
                gain = promised_gain(chains, seen, _SHARE_TO_LOOK * budget)
                self._count(chains)
            if gain >= LEAST_GAIN:
                more, evaluations = factor_candidates(allowed, seen, copies, budget)
                self._ensemble.chains.evaluations[0] += evaluations
            elif allowed.steps and seen.left_alike:
                allowed = replace(allowed, jumps=False)
        plain = {} if allowed.asks_factors else plain_candidates(allowed, functions, seen)
        return plain | more

    def _without_pilot(self, function: BalancingFunction, seen: Visited | None = None) -> Candidate:
        """Return the way to sample with a function that is not compared with others."""
        allowed = self._allowed
        plain = Candidate(function, not allowed.steps, allowed.given)
        if not self._ensemble.target.n_sites or not (plain.jumps or allowed.asks_factors):
            return plain
        seen = seen or self._look(function)
        if not allowed.asks_factors:
            return plain.timed(seen)
        chains = self._copies("factors")(0)
        budget = max(_LEAST_LOOKED, 0.25 * self._work)
        found = learned_factors(plain, chains, seen, budget)
        self._count(chains)
        return found

    def _look(self, function: BalancingFunction) -> Visited:
        """Let copies of the chains go on; return some of their states."""
        chains, target = self._copies("look")(0), self._ensemble.target
        chains.start(balanced(target, function))
        n = -(-n_stored(self._ensemble.cost) // len(chains))
        with chains.threads():
            x, _ = draw(chains, n, max(1, target.n_sites // 8))
        stored = self._stored(x.reshape(-1, target.n_sites))
        seen = Visited.of(stored)
        self._count(chains)
        self._count(stored)
        return seen

    def _copies(self, use: str) -> Callable[[int], LearnableEnsemble]:
        """Return a function that makes chains at the present states, with the k-th set of streams.

        The chains themselves stay where they are: going on from the end of the best run would
        favour states from which chains happened to move much.
        """
        ensemble = self._ensemble
        place = ("pilot", "factors", "look").index(use)
        seeds = [int(rng.integers(2**63)) for rng in ensemble.streams.of("pilot", place)]

        def new_ensemble(k: int) -> LearnableEnsemble:
            streams = Streams([np.random.default_rng([seed, k]) for seed in seeds])
            new = self._algorithm.make_ensemble(ensemble.chains.x, streams)
            new.begin_like(ensemble)
            return cast(LearnableEnsemble, new)

        return new_ensemble

    def _race(self, candidates: dict[str, Candidate], budget: float, seen: Visited) -> Outcome:
        """Run the candidates on the target."""
        target, lazy = self._ensemble.target, float(self._params.lazy)
        with Progress(self._params.verbose, "pilot", budget, "evaluations") as progress:
            outcome, evaluations = compare(
                {name: c.rule(target, lazy) for name, c in candidates.items()},
                self._copies("pilot"),
                budget,
                progress,
                robust=robust_candidates(candidates),
                learned=[name for name, c in candidates.items() if c.learned],
                visited=seen.states,
                expected=None if self._params.fast else expected_sizes(candidates, seen),
                brief=True,
            )
            progress.end(f"{outcome.best} chosen")
        self._ensemble.chains.evaluations[0] += evaluations
        return outcome

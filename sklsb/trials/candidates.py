"""Ways to sample that the pilot compares: a function, with or without jumps and factors by site."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.jump import Jump
from sklsb._system.arrays import Array
from sklsb.balancing.functions import FIXED, BalancingFunction, LearnableFunction
from sklsb.balancing.weights import balanced, log_typical_rate, log_weights
from sklsb.ensembles.base import LearnableEnsemble
from sklsb.targets.base import States, Target

# Jumps of a transition, on average, if they are cheap: then the transition itself counts. If each
# changes more log-ratios than the second number, draws one jump apart lose nothing.
_JUMPS, _CHEAP = 4, 64
# Standard deviation of the rates, over their mean, of which nothing is lost without jumps.
_ALIKE = 0.08
# Chosen in doubt, also with jumps; with factors if all candidates have them.
ROBUST = ("barker", "sqrt")


@dataclass(frozen=True)
class Candidate:
    """A way to sample."""

    function: BalancingFunction  # weighs the moves
    jumps: bool = False  # whether every proposed move is made, in continuous time
    factors: Array | None = None  # by site, which multiply the weights of the moves
    log_time: float = 0.0  # of a transition, if jumps
    sweep: int = 0  # transitions in which there are as many jumps as variables
    of_seen: bool = False  # whether the factors were fitted to flows at visited states
    of_runs: bool = False  # or to runs

    @property
    def learned(self) -> bool:
        """Whether the function or the factors were learned."""
        return isinstance(self.function, LearnableFunction) or self.of_seen or self.of_runs

    def rule(self, target: Target, lazy: float = 0.0) -> Balanced | Jump:
        """Return the rule that moves the chains."""
        rule = balanced(target, self.function, lazy, self.factors)
        return Jump(rule.table, self.log_time, rule.log_factor, self.sweep) if self.jumps else rule

    def timed(self, visited: "Visited") -> "Candidate":
        """Return the same, with the time of a few jumps in a typical state."""
        if not self.jumps:
            return self
        n = jumps_of_transition(visited.target)
        rule = balanced(visited.target, self.function, factors=self.factors)
        log_time = math.log(n) - log_typical_rate(rule, visited.ratios)
        return replace(self, log_time=log_time, sweep=-(-visited.target.n_sites // n))


def jumps_of_transition(target: Target) -> int:
    """Return how many jumps a transition makes in a typical state."""
    view: Any = target.view()
    n_moves = max(1, view.touched_start.size - 1)
    return _JUMPS if target.ratio_cost * view.touched.size <= _CHEAP * n_moves else 1


@dataclass(frozen=True)
class Visited:
    """States that chains visited, and the log-ratios of all moves there."""

    target: Target
    states: States
    ratios: Array

    @classmethod
    def of(cls, stored: LearnableEnsemble) -> "Visited":
        """Take the present states of an ensemble."""
        return cls(stored.target, stored.chains.x, stored.proposal_log_ratios())

    @property
    def left_alike(self) -> bool:
        """Whether all states are left at nearly the same rate: then jumps move as steps do."""
        log_rate = logsumexp(log_weights(balanced(self.target, FIXED["barker"]()), self.ratios), 1)
        rate = np.exp(log_rate - log_rate.max(initial=-np.inf))
        return bool(rate.std() < _ALIKE * rate.mean())


@dataclass(frozen=True)
class Allowed:
    """Which candidates the parameters of `LSBSampler` allow."""

    jumps: bool
    factors: str | Array | None  # the parameter
    steps: bool = True  # Metropolis-Hastings

    @property
    def by_site(self) -> bool:
        """Whether factors may be learned."""
        return isinstance(self.factors, str)

    @property
    def asks_factors(self) -> bool:
        """Whether factors must be learned."""
        return self.by_site and self.factors != "auto"

    @property
    def given(self) -> Array | None:
        """Factors of the user."""
        return None if isinstance(self.factors, str) else self.factors


def robust_candidates(candidates: "dict[str, Candidate]") -> list[str]:
    """Return the names of those that are chosen in doubt, in this order."""
    sure = [*ROBUST, *(f"jump_{name}" for name in ROBUST)]
    plain = [name for name in sure if name in candidates]
    return plain or [name for name in candidates if name.removesuffix("_by_ess") in sure]


def plain_candidates(
    allowed: Allowed, learned: Mapping[str, BalancingFunction], visited: Visited
) -> dict[str, Candidate]:
    """Return the candidates without learned factors: learned functions first, then fixed ones.

    Beside steps, only Barker's function is tried with jumps: the fewer candidates, the longer their
    runs.
    """
    functions: dict[str, BalancingFunction] = {**learned} | {n: cls() for n, cls in FIXED.items()}
    found: dict[str, Candidate] = {}
    if allowed.steps:
        found = {name: Candidate(f, False, allowed.given) for name, f in functions.items()}
        functions = {"barker": functions["barker"]}
    if allowed.jumps:
        for name, function in functions.items():
            found[f"jump_{name}"] = Candidate(function, True, allowed.given).timed(visited)
    return found

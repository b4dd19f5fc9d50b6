"""Ways to sample that the pilot compares: a function, with or without jumps and factors by site."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.jump import Jump
from sklsb.balancing.functions import FIXED, BalancingFunction, LearnableFunction, Lipschitz
from sklsb.balancing.jumps import JumpFlux, jump, learn_factors
from sklsb.balancing.weights import balanced
from sklsb.ensembles.protocol import LearnableEnsemble
from sklsb.targets.base import States, Target

Array = NDArray[np.float64]
# Fixed functions that are tried with jumps beside steps, and those that get factors by site. The
# fewer candidates, the longer their runs.
_JUMPS, _BY_FLUX, _BY_ESS = ("barker",), ("barker",), ("barker", "sqrt")
# Chosen in doubt; with factors if all candidates have them.
_SURE = ("barker", "sqrt", "jump_barker", "jump_sqrt")
_SURE_OF_FACTORS = tuple(f"{name}_by_ess" for name in _SURE)


@dataclass(frozen=True)
class Candidate:
    """A way to sample.

    Parameters
    ----------
    function : BalancingFunction
        Weighs the moves.
    jumps : bool
        Whether every proposed move is made, in continuous time.
    factors : ndarray of shape (n_sites,), optional
        Multiply the weights of the moves of each variable.
    log_time : float
        Logarithm of the time of a transition, if ``jumps``.
    sweep : int
        Transitions in which there are as many jumps as variables.
    of_seen, of_runs : bool
        Whether the factors were fitted to flows at visited states, or to runs.
    """

    function: BalancingFunction
    jumps: bool = False
    factors: Array | None = None
    log_time: float = 0.0
    sweep: int = 0
    of_seen: bool = False
    of_runs: bool = False

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
        rule = jump(visited.target, self.function, self.factors, visited.ratios)
        return replace(self, log_time=rule.log_time, sweep=rule.sweep)


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


@dataclass(frozen=True)
class Allowed:
    """Which candidates the parameters of `LSBSampler` allow."""

    steps: bool  # Metropolis-Hastings
    jumps: bool
    plain: bool  # without learned factors
    by_site: bool  # with learned factors
    given: Array | None = None  # factors of the user

    @property
    def asks_factors(self) -> bool:
        """Whether factors must be learned."""
        return self.by_site and not self.plain

    @classmethod
    def by(
        cls,
        jumps: bool,
        factors: "str | Array | None",
        *,
        steps: bool = True,
    ) -> "Allowed":
        """Return what is allowed by the parameter ``factors``, and whether jumps and steps are."""
        learned = isinstance(factors, str)
        return cls(
            steps=steps,
            jumps=jumps,
            plain=not learned or factors == "auto",
            by_site=learned,
            given=None if isinstance(factors, str) else factors,
        )


def robust_candidates(candidates: "dict[str, Candidate]") -> list[str]:
    """Return the names of those that are chosen in doubt, in this order."""
    plain = [name for name in _SURE if name in candidates]
    return plain or [name for name in _SURE_OF_FACTORS if name in candidates]


def plain_candidates(
    allowed: Allowed, learned: dict[str, BalancingFunction], visited: Visited
) -> dict[str, Candidate]:
    """Return the candidates without learned factors: learned functions first, then fixed ones.

    Names of functions learned for jumps begin with ``jump_``.
    """
    fixed: dict[str, BalancingFunction] = {name: cls() for name, cls in FIXED.items()}
    found: dict[str, Candidate] = {}
    if allowed.steps:
        of_steps = {name: f for name, f in learned.items() if not name.startswith("jump_")}
        for name, f in (of_steps | fixed).items():
            found[name] = Candidate(f, False, allowed.given)
    if allowed.jumps:
        of_jumps = {
            name: f for name, f in learned.items() if name.startswith("jump_") or not allowed.steps
        }
        of_jumps |= {f"jump_{name}": fixed[name] for name in (_JUMPS if allowed.steps else fixed)}
        found |= {name: Candidate(f, True, allowed.given) for name, f in of_jumps.items()}
    return {name: candidate.timed(visited) for name, candidate in found.items()}


def factor_candidates(
    allowed: Allowed,
    stored: LearnableEnsemble,
    visited: Visited,
    new_ensemble: Callable[[int], LearnableEnsemble],
    budget: float,
) -> tuple[dict[str, Candidate], int]:
    """Learn factors by site, from flows and from effective sizes; return also the evaluations.

    ``new_ensemble`` returns chains at the end of the burn-in, with the k-th set of streams.
    """
    prefix = "jump_" if allowed.jumps else ""
    flux = JumpFlux(stored, Lipschitz(), "global_flux")
    found: dict[str, Candidate] = {}
    evaluations = 0
    for name in _BY_FLUX:
        function = FIXED[name]()
        factors = flux.factors(function.table())
        made = Candidate(function, allowed.jumps, factors, of_seen=True)
        found[f"{prefix}{name}_by_flux"] = made.timed(visited)
    for k, name in enumerate(_BY_ESS):
        plain = Candidate(FIXED[name](), allowed.jumps)
        chains = new_ensemble(k)
        made = learned_factors(plain, chains, visited, budget / len(_BY_ESS))
        evaluations += int(chains.chains.evaluations.sum())
        found[f"{prefix}{name}_by_ess"] = made
    return found, evaluations


def learned_factors(
    candidate: Candidate, chains: LearnableEnsemble, visited: Visited, budget: float
) -> Candidate:
    """Return a candidate with factors learned by effective sizes."""

    def with_factors(factors: Array) -> Candidate:
        return replace(candidate, factors=factors).timed(visited)

    def rule_of(factors: Array) -> Balanced | Jump:
        return with_factors(factors).rule(visited.target)

    found = learn_factors(rule_of, np.ones(visited.target.n_sites), chains, budget)
    return replace(with_factors(found), of_runs=True)

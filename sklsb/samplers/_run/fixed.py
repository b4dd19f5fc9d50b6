"""Samplers whose rule is known before they run: nothing is learned."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb._kernels.enumeration import MOST_COUNTED
from sklsb._kernels.facts import Rule
from sklsb.diagnostics.draws import draws_dataset
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.rules import transitions_of_a_sweep
from sklsb.ensembles.streams import Streams
from sklsb.samplers._run.algorithm import Algorithm
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.burn_in import check_kept, run_burn_in
from sklsb.targets.base import States, Target
from sklsb.trials.starts import Starts, scouted_starts

# States of a block that are enumerated, at most.
MOST_STATES = 4096


class FixedRule(Algorithm):
    """A fit that learns nothing: the rule follows from the parameters and the target.

    A subclass implements `make_rule`.
    """

    @abstractmethod
    def make_rule(self) -> Rule:
        """Check the parameters and return the rule that they mean."""

    def check_parameters(self) -> None:
        rule, name = self.make_rule(), type(self.params).__name__
        check_needs(name, self.target, rule.facts.needs, "Use another target or sampler.")
        if self.params.keep_burn_in:
            check_kept(self.target, self.params.n_chains, self._length(rule))

    def make_ensemble(self, states: States, streams: Streams) -> Ensemble:
        return Ensemble(self.target, states, streams, self.n_threads, self.make_rule())

    def make_starts(self, streams: Streams) -> Starts:
        rule = self.make_rule()
        of_sweep = self.target.offers.n_moves
        n_sweeps = self._length(rule) / transitions_of_a_sweep(rule, self.target)
        budget = int(n_sweeps * of_sweep / 4), of_sweep
        return scouted_starts(self.target, self.params, streams, rule, budget, self.make_ensemble)

    def _length(self, rule: Rule) -> int:
        """Transitions of the burn-in; by default the same number of sweeps for all samplers."""
        if self.params.n_burn_in is not None:
            return int(self.params.n_burn_in)
        n_sites = max(1, self.target.n_sites)
        return transitions_of_a_sweep(rule, self.target) * max(5, -(-2000 // n_sites))

    def n_values(self) -> int:
        rule = self.make_rule()
        n_sweeps = self._length(rule) / transitions_of_a_sweep(rule, self.target)
        return int(self.params.n_chains * n_sweeps * (self.target.n_possible - 1).sum())

    def burn_in_length(self) -> int:
        return self._length(self.make_rule())

    def burn_in(self, ensemble: Ensemble) -> dict[str, Any]:
        target = self.target
        params, rule = self.params, ensemble.rule
        kept = {"keep": params.keep_burn_in, "verbose": params.verbose}
        kept |= {"checkpoint": self.checkpoint}
        done = run_burn_in(ensemble, self._length(rule), **kept, start_with=rule)
        fitted: dict[str, Any] = {
            "history_": xr.Dataset(
                {"lp": (("iteration", "chain"), done.log_prob + target.constant)},
                coords={"iteration": done.ends, "chain": np.arange(len(ensemble))},
            )
        }
        if done.draws is not None:
            fitted["burn_in_"] = draws_dataset(done.draws, target)
        return fitted


class _Given(FixedRule):
    """A fit with the rule that the class of the sampler makes."""

    def make_rule(self) -> Rule:
        rule: Rule = self.params.make_rule(self.target)
        return rule


@dataclass(eq=False, repr=False, kw_only=True)
class FixedRuleBase(BaseSampler):
    """The parameters of all samplers of a fixed rule."""

    n_chains: int = 4
    n_burn_in: int | None = None
    init: str = "auto"
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
    warm_start: bool = False
    keep_burn_in: bool = False


class FixedRuleSampler(FixedRuleBase, ABC):
    """A sampler whose rule follows from its parameters and the target.

    A subclass implements `make_rule`. Parameters of its own are stored in an ``__init__`` that
    names all parameters, or declared as fields of a dataclass with ``eq=False, repr=False``.

    Parameters
    ----------
    n_chains, n_burn_in, init, n_jobs, random_state, verbose, warm_start, keep_burn_in
        As in `GibbsSampler`.
    """

    _algorithm = _Given

    @abstractmethod
    def make_rule(self, target: Target) -> Rule:
        """Check the parameters and return the rule that they mean on a target."""


def free_sites(target: Target) -> NDArray[np.uint32]:
    """Return the variables that may have more than one value."""
    return np.flatnonzero(target.n_possible > 1).astype(np.uint32)


def check_needs(sampler: str, target: Target, needs: Mapping[str, str], advice: str) -> None:
    """Refuse a target that lacks what a rule needs."""
    for name, words in needs.items():
        if getattr(target.offers, name) is None:
            name = type(target.offers.plain).__name__
            raise TypeError(f"{sampler} needs {words}; this {name} has none. {advice}")


def check_states(sampler: str, n_states: int, advice: str) -> None:
    """Refuse to enumerate too many states in a transition."""
    if n_states > MOST_STATES:
        counted = n_states if n_states <= MOST_COUNTED else f"more than {MOST_COUNTED}"
        raise ValueError(
            f"{sampler} would enumerate {counted} states in a transition; at most {MOST_STATES} "
            f"are. {advice}"
        )

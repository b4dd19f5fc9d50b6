"""The fit of `LSBSampler`: a burn-in that learns, and the choice of a way to sample."""

import copy
import numbers
from typing import Any

import numpy as np
from sklearn.base import clone

from sklsb._kernels.facts import Rule
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.jump import Jump
from sklsb._system.progress import Progress
from sklsb._system.warn import warn
from sklsb.balancing.functions import BalancingFunction, LearnableFunction, get_balancing
from sklsb.balancing.learning import (
    FEW_UPDATES,
    FEWEST_SITES,
    FEWEST_STATES,
    MOST_UPDATES,
    OBJECTIVES,
    UPDATE_COST,
    Block,
    Learner,
    burn_in,
    most_updates,
    name_of,
    new_learner,
    of_burn_in,
    shown_of,
)
from sklsb.balancing.weights import balanced
from sklsb.diagnostics.draws import draws_dataset
from sklsb.ensembles.base import MOST_FLIPS, ChainEnsemble, LearnableEnsemble
from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.ensembles.rules import FirstOrder
from sklsb.ensembles.streams import Streams
from sklsb.exceptions import ShortRunWarning, StarvedMovesWarning
from sklsb.samplers._lsb.allowed import allowed_by
from sklsb.samplers._lsb.choosing import FEWEST_EVALUATIONS, Chooser
from sklsb.samplers._lsb.history import burn_in_history, candidates_table, mixing_history
from sklsb.samplers._lsb.redraws import add_blocks, check_blocks, warn_of_doubt
from sklsb.samplers._run.algorithm import Algorithm
from sklsb.samplers._run.burn_in import check_kept, run_burn_in
from sklsb.samplers._run.checks import check_bool, check_count
from sklsb.samplers._run.run import Run
from sklsb.samplers.gibbs import GibbsSampler
from sklsb.targets.base import States
from sklsb.targets.torch import TorchTarget
from sklsb.trials.candidates import Candidate
from sklsb.trials.reference import listed_at_once
from sklsb.trials.starts import Starts, scouted_starts

# Values around a state from which one gradient is much cheaper.
_MANY_VALUES = 12
# Fewest transitions of a burn-in by default, however many values of a function each takes; and most
# of these for learning one function for sampling.
_FEWEST, _MOST_TO_MIX = 100, 1 << 23
# Updates of a burn-in, and evaluations by which its trials are measured, where all states can be
# listed at once.
_UPDATES_IF_BRIEF, _WORK_IF_BRIEF = 48, 1 << 16


class Learning(Algorithm):
    """The fit of `LSBSampler`."""

    rule_parameters = ("balancing", "lazy")
    # Winner of the pilot, if there was one.
    _winner = ""

    def check_parameters(self) -> None:
        target, params = self.target, self.params
        self._function = copy.deepcopy(get_balancing(params.balancing))
        self._function.table()
        before = None if self.before is None else self.before.algorithm
        if isinstance(before, Learning):
            learned = isinstance(self._function, LearnableFunction)
            given, function = before._fitted_with
            same = params.balancing is given
            same |= isinstance(given, str) and params.balancing == given
            if learned and same and self._function._same(function):
                self._function = before._moving
        name_of(params.objective)
        check_bool(params.fast, "fast")
        check_bool(params.pilot, "pilot")
        self._check_n_flips()
        self._allowed = allowed_by(self.params, target)
        check_blocks(params.blocks, params.fast, target)
        if params.device not in (None, "cpu") and not params.fast:
            raise ValueError(
                f"device is {params.device!r} but fast is False; only the first-order path, "
                "fast=True, runs on a device."
            )
        if params.keep_burn_in:
            check_kept(target, params.n_chains, self.burn_in_length())
        rate = 0.0 if params.learning_rate is None else params.learning_rate
        for name, value, high in (("learning_rate", rate, np.inf), ("lazy", params.lazy, 1.0)):
            if not (isinstance(value, numbers.Real) and 0 <= float(value) < high):
                raise ValueError(f"{name} is {value!r}; it must be in [0, {high:g}).")
        if params.fast:
            from sklsb.ensembles._torch import check_objective
            from sklsb.targets._torch import device_of

            device_of(target, params.device)
            check_objective(of_burn_in(params.objective, True))

    def make_rule(self) -> Rule:
        """Return the rule of the frozen function; before `fit`, of the initial one."""
        if self.before is not None:  # whatever parameters were set since
            return self.before.ensemble.rule
        function, lazy = get_balancing(self.params.balancing), float(self.params.lazy)
        if not self._by_gradients:
            return self._unfitted_rule(function)
        table = function.table()
        if self.params.n_flips == "auto":
            raise ValueError('n_flips is "auto", which fit makes a number; fit the sampler first.')
        return FirstOrder(table, lazy, int(self.params.n_flips))

    @property
    def _by_gradients(self) -> bool:
        """Whether a gradient proposes moves; where first order is exact, one move does not need it.

        The kernel of exact log-ratios then takes the same decisions, faster.
        """
        params = self.params
        exact = self.target.offers.linear and params.n_flips == 1 and params.device in (None, "cpu")
        return bool(params.fast) and not exact

    def _unfitted_rule(self, function: BalancingFunction) -> Balanced | Jump:
        allowed = allowed_by(self.params, self.target)
        if allowed.asks_factors or not allowed.steps:
            asked = f"factors is {self.params.factors!r}"
            raise ValueError(
                f"{asked if allowed.asks_factors else 'rejection_free is True'}: numbers that the "
                "rule needs are determined by fit; fit the sampler first."
            )
        candidate = Candidate(function, False, allowed.given)
        return candidate.rule(self.target, float(self.params.lazy))

    def _check_n_flips(self) -> None:
        n = self.params.n_flips
        allowed = n == "auto" if isinstance(n, str) else check_count(n, "n_flips", 1) <= MOST_FLIPS
        if not allowed:
            raise ValueError(f'n_flips is {n!r}; it must be from 1 to {MOST_FLIPS}, or "auto".')
        if not self.params.fast and n != 1:
            raise ValueError(
                f"n_flips is {n!r} but fast is False; only the first-order path, fast=True, makes "
                "several moves at once."
            )

    def make_ensemble(self, states: States, streams: Streams) -> Any:
        target, params, n_jobs = self.target, self.params, self.n_threads
        if params.fast:
            from sklsb.ensembles._torch import FastEnsemble

            if self._by_gradients:
                return FastEnsemble(target, states, streams, params.device, params.n_flips, n_jobs)
        return BalancedEnsemble(target, states, streams, n_jobs)

    def burn_in_length(self) -> int:
        if self.params.n_burn_in is not None:
            return int(self.params.n_burn_in)
        n_values = self.params.n_chains * self._around
        return self._usual if self.params.fast else self.at_most(self._usual, n_values, _FEWEST)

    @property
    def _usual(self) -> int:
        """Transitions of a burn-in by default."""
        return max(2000, 5 * self.target.n_sites)

    @property
    def _around(self) -> int:
        """Values of a function at a new state and around it."""
        return int((self.target.n_possible - 1).sum()) + 1

    def n_values(self) -> int:
        return (
            0 if self.params.fast else self.burn_in_length() * self.params.n_chains * self._around
        )

    @property
    def _most_evaluations(self) -> int | None:
        """Most evaluations of an objective of stored states; None if there is no limit."""
        if self.params.fast or self.asked is None:
            return None
        n_sites = max(1, self.target.n_sites)
        states_and_sites = FEWEST_STATES * min(FEWEST_SITES, n_sites)
        return int(_MOST_TO_MIX * n_sites / (states_and_sites * self._around**2))

    def cut(self) -> str:
        done, said = self.burn_in_length(), ""
        if self.params.n_burn_in is None and done < self._usual:
            said = (
                f"as it is, it makes {done} transitions of each chain instead of {self._usual}; "
                "n_burn_in makes it longer."
            )
        learns = isinstance(get_balancing(self.params.balancing), LearnableFunction)
        most = self._most_evaluations
        if learns and most is not None and most < FEWEST_EVALUATIONS:
            said += f"{' ' if said else ''}No function for sampling is learned after it."
        return said

    def cheaper(self) -> str:
        target, around = self.target, self._around
        cost = f", {around} for each new state, and learning takes more"
        if around > _MANY_VALUES and self._can_be_fast():
            return f"{cost}; fast=True takes one gradient in place of {around} values"
        sweeps = GibbsSampler(n_chains=self.params.n_chains)
        n_values = sweeps._algorithm(sweeps, target).n_values()
        return (
            f"{cost}; GibbsSampler(), which looks at one variable at a time, takes {n_values:.2g}"
        )

    def _can_be_fast(self) -> bool:
        target = self.target
        if not isinstance(target.offers.plain, TorchTarget):
            return False
        try:
            Learning(clone(self.params).set_params(fast=True), target).check_parameters()
            target.first_order_ratios(target.draw_state(np.random.default_rng(0)))
        except (TypeError, ValueError):  # not with these parameters, or no gradient
            return False
        return True

    def make_starts(self, streams: Streams) -> Starts:
        target = self.target
        rule = balanced(target, self._function, float(self.params.lazy))
        n, of_step = self.burn_in_length(), 1.0
        if not self._by_gradients:
            view: Any = target.view()
            of_step = view.touched.size / max(1, view.touched_start.size - 1)
        budget = n * of_step / 4
        if isinstance(self._function, LearnableFunction) and not self.params.fast:
            budget += min(n, MOST_UPDATES) * UPDATE_COST / (8 * target.ratio_cost)
        cost = int(budget), int(target.n_sites * of_step)
        new, fast = self.make_ensemble, self.params.fast
        return scouted_starts(target, self.params, streams, rule, cost, new, fast)

    def burn_in(self, ensemble: LearnableEnsemble) -> dict[str, Any]:
        n, target, params = self.burn_in_length(), self.target, self.params
        learner = None
        if n and isinstance(self._function, LearnableFunction):
            objective = of_burn_in(params.objective, params.fast)
            learner = new_learner(objective, self._function, params.learning_rate)
        if learner is None and not ensemble.adapting:
            function = self._function
            rule = balanced(target, function, float(params.lazy))
            kept = {"keep": params.keep_burn_in, "verbose": params.verbose}
            kept |= {"checkpoint": self.checkpoint}
            done = run_burn_in(ensemble, n, **kept, start_with=rule)
            shown, rows = shown_of(function, rule.table), zip(*done[:3], strict=True)
            blocks, draws = [Block(*row, *shown) for row in rows], done.draws
            visited = ensemble.chains.x
        else:
            begun = self.checkpoint.kept.setdefault("begun", int(ensemble.chains.evaluations.sum()))
            function, blocks, visited, draws = self._learn(ensemble, learner, n)
        n_skipped = 0 if learner is None else learner.n_skipped
        # A copy: changing the object passed in must not change a frozen function.
        moving = copy.deepcopy(function)
        self._moving = moving
        self._fitted_with = params.balancing, copy.copy(get_balancing(params.balancing))
        fitted: dict[str, Any] = {
            "burn_in_balancing_": moving,
            "balancing_": moving,
            "history_": burn_in_history(blocks, target, len(ensemble), n_skipped),
        }
        made = len(blocks)
        spared = 0
        if learner is not None and made and self._moves_only:
            learned = int(ensemble.chains.evaluations.sum()) - begun
            spared = learned * (min(n, most_updates(ensemble)) - made) // made
        limits = self._most_evaluations, _WORK_IF_BRIEF if listed_at_once(target) else None
        chooser = Chooser(self, self._allowed, ensemble, limits, spared)
        learned = learner is not None and target.n_sites
        choice = chooser.learned(moving, visited) if learned else chooser.fixed(moving)
        chosen = self._chosen = choice.candidate
        fitted |= {
            "balancing_": chosen.function,
            "rejection_free_": chosen.jumps,
            "factors_": np.ones(target.n_sites) if chosen.factors is None else chosen.factors,
        }
        if choice.outcome is not None:
            fitted["candidates_"] = candidates_table(choice.outcome)
            self._winner = choice.outcome.best
        self._starving = choice.starving
        drawing = chosen.rule(target, float(params.lazy))
        if ensemble.adapting:
            with Progress(params.verbose, "number of flips"):
                ensemble.adapt(drawing, min(n // 4, 512))
        before = int(ensemble.chains.evaluations.sum()) - sum(choice.evaluations.values())
        counts = {"burn_in": before} | choice.evaluations
        if choice.traces:
            fitted["history_"] = fitted["history_"].merge(mixing_history(choice.traces))
        fitted["history_"].attrs |= {f"{name}_evaluations": n for name, n in counts.items()}
        ensemble.start(drawing)
        if draws is not None:
            fitted["burn_in_"] = draws_dataset(draws, target)
        return fitted

    def settle(self, ensemble: LearnableEnsemble, fitted: dict[str, Any]) -> ChainEnsemble:
        found: ChainEnsemble
        found, self._blocks = add_blocks(
            ensemble,
            self.params.blocks,
            fast=self.params.fast,
            n_burn_in=self.burn_in_length(),
            verbose=self.params.verbose,
        )
        fitted["blocks_"] = self._blocks
        return found

    @property
    def may_stay(self) -> bool:
        return self._blocks.kind != "whole"  # redraws of the whole model forget the state

    @property
    def _moves_only(self) -> bool:
        """Whether the function of the burn-in is learned for the burn-in alone."""
        return not self.params.fast and name_of(self.params.objective) not in OBJECTIVES

    @property
    def _most_updates(self) -> int:
        """Most updates of the function in the burn-in."""
        if not self._moves_only:
            return MOST_UPDATES
        return _UPDATES_IF_BRIEF if listed_at_once(self.target) else FEW_UPDATES

    def _learn(
        self, ensemble: LearnableEnsemble, learner: Learner | None, n: int
    ) -> tuple[BalancingFunction, list[Block], States, States | None]:
        """Run the burn-in while learning a function or a number of flips."""
        n_chains, target = len(ensemble), ensemble.target
        draws = None
        if self.params.keep_burn_in:
            draws = np.empty((n_chains, n, target.n_sites), dtype=target.dtype)
        with Progress(self.params.verbose, "burn-in", n * n_chains, "steps") as progress:
            found = burn_in(
                ensemble,
                self._function,
                n,
                lazy=float(self.params.lazy),
                learner=learner,
                on_block=lambda size: progress(size * n_chains),
                draws=draws,
                most=self._most_updates,
                checkpoint=self.checkpoint,
            )
        return *found, draws

    def warn_about_fit(self, run: Run) -> None:
        warn_of_doubt(self._blocks)
        for name, deficit, least, most in self._starving:
            warn(
                f"The function learned by {name!r} starves moves with abs(log p(x')/p(x)) from "
                f"{least:g} to {most:g}: they get exp(-{deficit:.1f}) of the weight that an "
                "increasing function would give them, and are practically never made. Use "
                "sklsb.Lipschitz(0.5), which cannot do that.",
                StarvedMovesWarning,
            )
        factors = self._chosen.factors
        none = factors is None or (factors == 1.0).all()
        if self._allowed.asks_factors and self.target.n_sites and none:
            warn(
                'factors="site", but fit was too short to learn any, and all are 1. Raise '
                "n_burn_in, or give factors as an array.",
                ShortRunWarning,
            )
        history = run.history
        if history is not None and history.sizes["iteration"]:
            rates = history["acceptance_rate"].values
            late = float(rates[rates.shape[0] // 2 :].mean())
            run.warn_if_periodic(late, int(history["iteration"][-1]))

    def attrs(self, ensemble: Any) -> dict[str, Any]:
        found = {
            "balancing_": repr(self._chosen.function),
            "n_flips_": ensemble.n_flips,
            "blocks_": repr(self._blocks),
        }
        return found | ({"chosen": self._winner} if self._winner else {})

"""What moves the replicas of tempering: the rule of a sampler, in one copy or two."""

import inspect
from typing import Any

import numpy as np
from sklearn.base import clone

from sklsb._kernels.facts import Rule
from sklsb._kernels.rules.chromatic import Chromatic
from sklsb.balancing.functions import LearnableFunction, get_balancing
from sklsb.ensembles.rules import FirstOrder
from sklsb.ensembles.streams import Streams
from sklsb.samplers._run.algorithm import Fit
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.fixed import check_needs
from sklsb.samplers._tempering.ladders import Ladders
from sklsb.samplers._tempering.schedule import Between, run_scans
from sklsb.samplers.gibbs import GibbsSampler, sweeps_of
from sklsb.targets.base import Target

# What rules need that move by something else than log-ratios, and have no path of their own.
_NOT_SCALED = frozenset({"pairwise"})


def explorer_of(given: Any, target: Target) -> tuple[str, Rule]:
    """Return the name and the rule of an explorer on a target, or say what is wrong with it."""
    if not isinstance(given, str) or given != "auto":
        return repr(given), _rule_of(given, target)
    sweeps = GibbsSampler(sweeps_of(target))
    return repr(sweeps), _at_any_level(sweeps._rule(target))


def _at_any_level(rule: Rule) -> Rule:
    """Return a rule without what holds at beta = 1 only."""
    return rule._replace(in_order=False) if isinstance(rule, Chromatic) else rule


def _rule_of(given: Any, target: Target) -> Rule:
    if not isinstance(given, BaseSampler) or given._algorithm.make_rule is Fit.make_rule:
        raise TypeError(
            f'explorer is {given!r:.100}; give "auto" or a sampler whose rule moves the replicas, '
            'as GibbsSampler("systematic") or LSBSampler("sqrt").'
        )
    _check_parameters(given)
    name = type(given).__name__
    if "balancing" in given.get_params(deep=False):
        function = get_balancing(given.balancing)
        if isinstance(function, LearnableFunction):
            raise ValueError(
                f"explorer is {given!r:.100}, whose function is to be learned; give a fixed one, "
                'as LSBSampler("sqrt").'
            )
    # A fitted sampler would return its rule for another target.
    rule: Rule = _at_any_level(clone(given)._rule(target))
    advice = "Take another explorer."
    check_needs(name, target, rule.facts.needs, advice)
    if (
        not _NOT_SCALED.isdisjoint(rule.facts.needs)
        or rule.facts.parts
        or isinstance(rule, FirstOrder)
    ):
        raise ValueError(
            f"explorer is {given!r:.100}, which moves by more than exact log-ratios of single "
            f"changes; tempering cannot scale that. {advice}"
        )
    if rule.facts.conserves_counts:
        raise ValueError(
            f"explorer is {given!r:.100}, which conserves the counts of values; the replica at "
            f"beta = 0 is drawn without them. {advice}"
        )
    return rule


def _check_parameters(given: BaseSampler) -> None:
    """Refuse parameters of a sampler that tempering would silently ignore."""
    used = given._algorithm.rule_parameters
    if used is None:
        return
    defaults = inspect.signature(type(given).__init__).parameters
    for key, value in given.get_params(deep=False).items():
        default = defaults[key].default
        if key in used or value is default or (np.ndim(value) == 0 and value == default):
            continue
        where = f"Set {key} of ParallelTempering, or leave it out."
        if key in ("rejection_free", "factors"):
            where = "Replicas make single steps without factors: leave it out."
        raise ValueError(
            f"explorer has {key}={value!r:.100}, which is not used: only the rule of a sampler "
            f"moves the replicas. {where}"
        )


# Fewest scans of a trial of two copies, which else takes half of the last part of the burn-in.
_FEWEST_SCANS = 64
# Two copies are kept if this share of the exchanges moves a part: they cost little.
_OFTEN = 0.25
# Place of its streams among those of the purpose "pilot".
_PLACE = 1


def with_exchanges(ladders: Ladders, n_scans: int, between: Between) -> Ladders:
    """Return ladders with two copies if these often exchange a part, else the same ones.

    ``n_scans`` is the length of the last part of the burn-in, of which a trial takes half,
    but at least 128. It is made anew where it is cut off: the ladders do not know of it.
    """
    states = np.repeat(ladders.states, 2, axis=1)
    tried = ladders.changed(states, Streams(ladders.streams.copy().of("pilot", _PLACE)))
    tried._pool = ladders._pool
    n = max(_FEWEST_SCANS, n_scans // 4)
    run_scans(tried, n, between)  # both copies start at the same states
    tried.ladder.exchanged[:] = 0
    run_scans(tried, n, between)
    ladders.add_evaluations(tried.chains.evaluations[:, 0])
    if tried.exchanged < _OFTEN:
        return ladders
    made = ladders.changed(states)
    made.begin_like(ladders)
    return made

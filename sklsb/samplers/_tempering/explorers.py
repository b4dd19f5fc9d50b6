"""What moves the replicas of tempering: the rule of a sampler."""

import inspect
from typing import Any

from sklsb._kernels.facts import Rule
from sklsb.balancing.functions import LearnableFunction, get_balancing
from sklsb.ensembles.rules import FirstOrder
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.fixed import check_needs
from sklsb.samplers.gibbs import GibbsSampler
from sklsb.samplers.lsb import LSBSampler
from sklsb.targets.base import Target

# Neighbours of a variable, on average, up to which classes of independent variables pay, and parts
# in which two states differ may be apart.
_FEW_NEIGHBOURS = 32


def explorers_of(given: Any, target: Target) -> dict[str, Rule]:
    """Return the rules that an explorer stands for on a target, by name, or say what is wrong.

    The first one chooses the temperatures.
    """
    if not isinstance(given, str) or given != "auto":
        return {repr(given): _rule_of(given, target)}
    found = [_sweeps(target), LSBSampler("sqrt")]
    return {repr(sampler): sampler._rule(target) for sampler in found}


def _rule_of(given: Any, target: Target) -> Rule:
    if not isinstance(given, BaseSampler) or not hasattr(given, "_rule"):
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
    rule: Rule = given._rule(target)
    advice = "Take another explorer."
    check_needs(name, target, rule.facts.needs, advice)
    if "layers" in rule.facts.needs or rule.facts.parts or isinstance(rule, FirstOrder):
        raise ValueError(
            f"explorer is {given!r:.100}, which moves by more than exact log-ratios of single "
            f"changes; tempering cannot scale that. {advice}"
        )
    return rule


def _check_parameters(given: BaseSampler) -> None:
    """Refuse parameters of a sampler that tempering would silently leave aside."""
    used = given.rule_parameters
    if used is None:
        return
    defaults = inspect.signature(type(given).__init__).parameters
    for key, value in given.get_params(deep=False).items():
        default = defaults[key].default
        if key not in used and value is not default and value != default:
            raise ValueError(
                f"explorer has {key}={value!r}, which is not used: only the rule of a sampler "
                f"moves the replicas. Set {key} of ParallelTempering, or leave it out."
            )


def _sweeps(target: Target) -> GibbsSampler:
    """Return Gibbs sweeps, class by class where the graph is sparse: they mostly cross best."""
    return GibbsSampler("chromatic" if is_sparse(target) else "systematic")


def is_sparse(target: Target) -> bool:
    """Whether variables have few neighbours in the graph of a target."""
    graph = target.graph
    return graph is not None and bool(graph.nnz <= _FEW_NEIGHBOURS * target.n_sites)

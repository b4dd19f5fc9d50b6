"""What moves the replicas of tempering: the rule of a sampler, chosen by trial."""

import inspect
from typing import Any, NamedTuple

import numpy as np

from sklsb._kernels.facts import Rule
from sklsb.balancing.functions import LearnableFunction, get_balancing
from sklsb.ensembles.rules import FirstOrder
from sklsb.ensembles.streams import Streams
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.fixed import check_needs
from sklsb.samplers._tempering.ladders import Ladders
from sklsb.samplers._tempering.schedule import run_scans, settle
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
    return {repr(sampler): sampler.make_rule(target) for sampler in found}


def _rule_of(given: Any, target: Target) -> Rule:
    if not isinstance(given, BaseSampler) or not hasattr(given, "make_rule"):
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
    rule: Rule = given.make_rule(target)
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


# Scans in which the evaluations of one are found out, and of a trial at least.
_LOOK, _FEWEST_SCANS = 4, 64
# Of a trial so much is left out, in which replicas spread.
_SPREAD = 4
# Another explorer must cross more often by this factor, and by more than chance: two errors.
_BETTER, _ERRORS = 1.1, 2.0
# Exchanges of two copies are kept if a part moves so often: they cost little, and may gain much.
_OFTEN = 0.25


class Trial(NamedTuple):
    """What an explorer did."""

    round_trips: int
    evaluations: int
    n_scans: int

    @property
    def rate(self) -> float:
        """Round trips for an evaluation."""
        return self.round_trips / max(1, self.evaluations)

    @property
    def error(self) -> float:
        """Standard error of the rate."""
        return float(np.sqrt(max(1, self.round_trips))) / max(1, self.evaluations)


def compare(
    ladders: Ladders, first: Trial, others: dict[str, Rule]
) -> tuple[Ladders, str | None, dict[str, Trial]]:
    """Try other explorers with as many evaluations; return the ladders that go on.

    Parameters
    ----------
    ladders : Ladders
        At temperatures that stay.
    first : Trial
        What their explorer did.
    others : dict of str to rule
        By name.

    Returns
    -------
    Ladders, str or None, dict of str to Trial
        These ladders, or others with a better explorer; its name; what all others did.
    """
    trials: dict[str, Trial] = {}
    best: tuple[Trial, str | None] = first, None
    for place, (name, rule) in enumerate(others.items()):
        streams = Streams(ladders.streams.of("pilot", place))
        tried = _moved_by(ladders, rule, ladders.n_copies, streams)
        tried._pool = ladders._pool
        trials[name] = found = _try(tried, first)
        ladders.add_evaluations(tried.chains.evaluations[:, 0])
        error = float(np.hypot(found.error, best[0].error))
        if found.rate > max(_BETTER * best[0].rate, best[0].rate + _ERRORS * error):
            best = found, name
    if best[1] is None:
        return ladders, None, trials
    rule, n_scans = others[best[1]], best[0].n_scans
    return _settled(ladders, rule, ladders.n_copies, n_scans), best[1], trials


def with_exchanges(ladders: Ladders, n_scans: int, place: int) -> Ladders:
    """Return ladders of two copies if these often exchange a part, or the same ones.

    Parameters
    ----------
    ladders : Ladders
        Of one copy, at temperatures that stay.
    n_scans : int
        Of the last part of the burn-in. A trial takes half as many, but at least twice 64.
    place : int
        Trials made before, so that none has the numbers of another.
    """
    rule = ladders.rule.explorer
    tried = _moved_by(ladders, rule, 2, Streams(ladders.streams.of("pilot", place)))
    tried._pool = ladders._pool
    n = max(_FEWEST_SCANS, n_scans // _SPREAD)
    run_scans(tried, n)  # both begin at the same states
    tried.ladder.exchanged[:] = 0
    run_scans(tried, n)
    ladders.add_evaluations(tried.chains.evaluations[:, 0])
    if tried.exchanged < _OFTEN:
        return ladders
    return _settled(ladders, rule, 2, n_scans)


def _moved_by(ladders: Ladders, rule: Rule, n_copies: int, streams: Streams) -> Ladders:
    """Return ladders at the same levels and states that move otherwise."""
    states = ladders.states
    if n_copies > ladders.n_copies:
        states = np.repeat(states, n_copies, axis=1)
    rest = ladders.n_jobs, ladders.product, ladders.core
    return Ladders(ladders.target, states, streams, rule, ladders.beta, *rest)


def _settled(ladders: Ladders, rule: Rule, n_copies: int, n_scans: int) -> Ladders:
    made = _moved_by(ladders, rule, n_copies, ladders.streams)
    made.begin_like(ladders)
    settle(made, n_scans)
    return made


def _try(ladders: Ladders, first: Trial) -> Trial:
    def spent() -> int:
        return int(ladders.chains.evaluations.sum())

    run_scans(ladders, _LOOK)
    n = int(first.evaluations * _LOOK / max(1, spent()))
    if n < _FEWEST_SCANS:
        return Trial(0, spent(), _LOOK)
    run_scans(ladders, n // _SPREAD)
    ladders.forget_swaps()
    before = spent()
    run_scans(ladders, n - n // _SPREAD)
    return Trial(int(ladders.trips.sum()), spent() - before, n)


def shown(trials: dict[str, Trial]) -> dict[str, Any]:
    """Variables of a dataset of trials, over the dim explorer."""
    rows = list(trials.values())
    return {
        "round_trips": ("explorer", [row.round_trips for row in rows]),
        "evaluations": ("explorer", [row.evaluations for row in rows]),
    }

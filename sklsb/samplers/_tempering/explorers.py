"""What moves the replicas of tempering: the rule of a sampler, chosen by trial."""

import inspect
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from sklsb._kernels.facts import Rule
from sklsb.balancing.functions import LearnableFunction, get_balancing
from sklsb.ensembles.rules import Chromatic, FirstOrder
from sklsb.ensembles.streams import Streams
from sklsb.samplers._run.algorithm import Fit
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.fixed import check_needs
from sklsb.samplers._tempering.ladders import Ladders
from sklsb.samplers._tempering.schedule import run_scans, settle
from sklsb.samplers.gibbs import GibbsSampler, sweeps_of
from sklsb.samplers.lsb import LSBSampler
from sklsb.targets.base import Target

# What rules need that move by something else than log-ratios, and have no path of their own.
_NOT_SCALED = frozenset({"pairwise"})


def explorers_of(given: Any, target: Target) -> dict[str, Rule]:
    """Return the rules that an explorer means on a target, by name, or say what is wrong.

    The first one chooses the temperatures: Gibbs sweeps mostly cross best.
    """
    if not isinstance(given, str) or given != "auto":
        return {repr(given): _rule_of(given, target)}
    sweeps = GibbsSampler(sweeps_of(target))
    tried = (sweeps,) if sweeps.scan == "layers" else (sweeps, LSBSampler("sqrt"))
    return {repr(one): _at_any_level(one._rule(target)) for one in tried}


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


# Scans to measure the evaluations per scan, and the fewest scans of a trial.
_LOOK, _FEWEST_SCANS = 4, 64
# One part in this many of a trial is left out, while replicas spread.
_SPREAD = 4
# Another explorer must make more round trips by this factor and by this many standard errors.
_BETTER, _ERRORS = 1.1, 2.0
# Two copies are kept if this share of the exchanges moves a part: they cost little.
_OFTEN = 0.25


class Trial(NamedTuple):
    """What an explorer did."""

    round_trips: int
    evaluations: int
    n_scans: int

    @property
    def rate(self) -> float:
        """Round trips per evaluation."""
        return self.round_trips / max(1, self.evaluations)

    @property
    def error(self) -> float:
        """Standard error of the rate."""
        return float(np.sqrt(max(1, self.round_trips))) / max(1, self.evaluations)


def compare(
    ladders: Ladders, first: Trial, others: dict[str, Rule]
) -> tuple[Ladders, str | None, dict[str, Trial]]:
    """Try other explorers, each with as many evaluations as the first trial.

    Returns
    -------
    Ladders, str or None, dict of str to Trial
        These ladders, or new ones with a better explorer; its name, if any; the other trials.
    """
    trials: dict[str, Trial] = {}
    best: tuple[Trial, str | None] = first, None
    for place, (name, rule) in enumerate(others.items()):
        streams = Streams(ladders.streams.of("pilot", place))
        tried = ladders.changed(ladders.states, streams, explorer=rule)
        tried._pool = ladders._pool
        trials[name] = found = _try(tried, first)
        ladders.add_evaluations(tried.chains.evaluations[:, 0])
        error = float(np.hypot(found.error, best[0].error))
        if found.rate > max(_BETTER * best[0].rate, best[0].rate + _ERRORS * error):
            best = found, name
    if best[1] is None:
        return ladders, None, trials
    made = ladders.changed(ladders.states, explorer=others[best[1]])
    return _settled(made, ladders, best[0].n_scans), best[1], trials


def with_exchanges(ladders: Ladders, n_scans: int, place: int) -> Ladders:
    """Return ladders with two copies if these often exchange a part, else the same ones.

    ``n_scans`` is the length of the last part of the burn-in, of which a trial takes half,
    but at least 128. ``place`` counts earlier trials, so that each has its own random numbers.
    """
    states = np.repeat(ladders.states, 2, axis=1)
    tried = ladders.changed(states, Streams(ladders.streams.of("pilot", place)))
    tried._pool = ladders._pool
    n = max(_FEWEST_SCANS, n_scans // _SPREAD)
    run_scans(tried, n)  # both copies start at the same states
    tried.ladder.exchanged[:] = 0
    run_scans(tried, n)
    ladders.add_evaluations(tried.chains.evaluations[:, 0])
    if tried.exchanged < _OFTEN:
        return ladders
    return _settled(ladders.changed(states), ladders, n_scans)


def _settled(made: Ladders, before: Ladders, n_scans: int) -> Ladders:
    made.begin_like(before)
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

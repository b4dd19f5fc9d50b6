"""The objective that a sampler was given, and the learner for it."""

from collections.abc import Callable
from typing import Any

from sklsb.balancing.first_version import FirstVersionLearner
from sklsb.balancing.functions import LearnableFunction
from sklsb.balancing.learning import MIXING, OBJECTIVES, OPTIMIZERS, Learner, Objective
from sklsb.ensembles.protocol import LearnableEnsemble


def name_of(given: Any) -> str:
    """Return the name of the objective given to `LSBSampler`, or raise a ValueError."""
    allowed = ("auto", *OBJECTIVES, *MIXING)
    name = given.name if isinstance(given, Objective) else given
    if not isinstance(name, str) or name not in allowed:
        raise ValueError(
            f"objective is {given!r}; it must be one of {sorted(allowed)}, or declared by "
            "sklsb.extending.objective."
        )
    return name


def of_burn_in(given: Any, fast: bool) -> Objective:
    """Return the objective of the burn-in."""
    if name_of(given) in OBJECTIVES:
        return Objective.of(given)
    return OBJECTIVES["bound" if fast else "kl"]


def new_learner(
    objective: Objective,
    function: LearnableFunction,
    settings: tuple[str, float | None],
    ensemble: LearnableEnsemble,
    new_ensemble: Callable[..., LearnableEnsemble],
) -> Learner:
    """Return a learner; ``settings`` are the optimizer and the learning rate, or None."""
    name, rate = settings
    if rate is None:
        rate = objective.learning_rate or function.learning_rate
    optimizer = OPTIMIZERS[name](float(rate))
    if objective.name == "sampled_kl":
        return FirstVersionLearner(function, optimizer, ensemble, new_ensemble)
    return Learner(function, objective, optimizer)

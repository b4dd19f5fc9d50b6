"""The objective that a sampler was given, and the learner for it."""

from typing import Any

from sklsb.balancing.functions import LearnableFunction
from sklsb.balancing.learning import MIXING, OBJECTIVES, OPTIMIZERS, Learner, Objective


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
    objective: Objective, function: LearnableFunction, optimizer: str, rate: float | None
) -> Learner:
    """Return a learner; ``rate`` is the learning rate, or None."""
    if rate is None:
        rate = objective.learning_rate or function.learning_rate
    return Learner(function, objective, OPTIMIZERS[optimizer](float(rate)))

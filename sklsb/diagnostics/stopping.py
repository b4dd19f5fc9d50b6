"""When to stop: rules for ``sample(n, stop=...)``.

A rule is a callable that takes a `RunSoFar` and returns whether to stop. It is called at certain
numbers of draws: each time a tenth more, but not before there are 64 more states for
`sklsb.diagnostics.disagreement`. They do not depend on the machine, so neither does the number of
draws. A rule with the attribute ``any_time = True`` is called after every segment, which takes a
tenth of a second or so.
"""

import math
import numbers
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from sklsb.diagnostics.agreement import disagreement
from sklsb.diagnostics.tally import FEWEST_DRAWS, Agreement, Tally
from sklsb.targets.base import Target


@dataclass(repr=False, eq=False)
class RunSoFar:
    """State of a run, as stop rules and ``sampler.inspect()`` see it.

    Attributes
    ----------
    n_draws, requested_draws : int
        Draws of each chain in this call, made and asked for.
    total_draws : int
        Draws of each chain since `fit`, including a run that was resumed.
    n_transitions : int
        Transitions of each chain since `fit`.
    seconds : float
        Time since this call began. Rules that use it are not reproducible.
    """

    target: Target
    tally: InitVar[Tally | None]
    n_draws: int
    seconds: float
    total_draws: int
    n_transitions: int
    requested_draws: int = 0

    def __post_init__(self, tally: Tally | None) -> None:
        enough = tally is not None and tally.n_draws >= FEWEST_DRAWS
        self._tally = tally if enough else None

    def __repr__(self) -> str:
        found = [
            f"{self.n_draws:,} of {self.requested_draws:,} draws per chain in {self.seconds:.3g} s",
            f"{self.draws_per_second:.3g} per second",
        ]
        if not math.isnan(self.r_hat):
            found.append(f"R-hat {self.r_hat:.3f}, ESS {self.ess:.0f}")
        return f"<{type(self).__name__}: {', '.join(found)}>"

    @property
    def draws_per_second(self) -> float:
        """Draws of each chain per second of this call."""
        return self.n_draws / self.seconds if self.seconds else math.nan

    @cached_property
    def _agreement(self) -> tuple[Agreement, Agreement] | None:
        """Agreement of the variables' values, and of log p; None if there are too few draws."""
        return None if self._tally is None else (self._tally.of_values(), self._tally.of_lp())

    def _worst(self, name: str, best: np.ufunc) -> float:
        if self._agreement is None:
            return math.nan
        values, lp = (found._asdict()[name] for found in self._agreement)
        return float(best.reduce(np.append(values, lp), initial=math.nan))

    @property
    def ess(self) -> float:
        """Smallest effective sample size of log p and all variables that changed.

        All draws since `fit` count; NaN if these are too few.
        """
        return self._worst("ess", np.fmin)

    @property
    def r_hat(self) -> float:
        """Largest R-hat of log p and all variables that changed; NaN if there are too few draws."""
        return self._worst("r_hat", np.fmax)

    @property
    def n_frozen(self) -> int:
        """Number of variables that could have changed but never did."""
        if self._agreement is None or self._tally is None:
            return 0
        by_site = self._tally.by_site(self._agreement[0].ess, np.fmax)
        return int(np.isnan(by_site).sum())

    @cached_property
    def disagreement(self) -> xr.Dataset | None:
        """Result of `sklsb.diagnostics.disagreement`; None if there are too few draws."""
        return None if self._tally is None else disagreement(self._tally, self.target)


StopRule = Callable[[RunSoFar], bool]


def _check_number(value: Any, name: str, above: float) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; give a number above {above:g}.")
    if not float(value) > above:
        raise ValueError(f"{name} is {value}; it must be above {above:g}.")


@dataclass(frozen=True)
class EffectiveSampleSize:
    """Stop when the smallest effective sample size has reached a number.

    Parameters
    ----------
    at_least : float
        Number for all draws of all chains together, to be reached for each value of each variable
        and for log p. Visits of `sklsb.ParallelTempering` are not considered; see ``n_visits_``.
    ignore_frozen : bool, default=False
        Whether to ignore variables that never changed. Otherwise the rule waits for them, for ever
        if they cannot change.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import GibbsSampler, Ising
    >>> from sklsb.diagnostics import EffectiveSampleSize
    >>> sampler = GibbsSampler(random_state=0).fit(Ising.lattice(np.zeros((4, 4)), coupling=0.2))
    >>> draws = sampler.sample(100_000, thin="sweep", stop=EffectiveSampleSize(400))
    >>> draws.attrs["stopped_by"]
    'EffectiveSampleSize(at_least=400, ignore_frozen=False)'
    >>> draws.sizes["draw"] < 1000
    True
    """

    at_least: float
    ignore_frozen: bool = False

    def __post_init__(self) -> None:
        _check_number(self.at_least, "at_least", 0)

    def __call__(self, run: RunSoFar) -> bool:
        """Return whether the effective sample size is reached."""
        return run.ess >= self.at_least and (self.ignore_frozen or not run.n_frozen)


@dataclass(frozen=True)
class RHat:
    """Stop when the largest R-hat is below a number.

    After a few draws R-hat may be small by chance: use `AllOf` to require an effective sample size
    as well. Variables that never changed have no R-hat.

    Parameters
    ----------
    below : float
        Threshold for each value of each variable and for log p, such as 1.01.
    """

    below: float

    def __post_init__(self) -> None:
        _check_number(self.below, "below", 1)

    def __call__(self, run: RunSoFar) -> bool:
        """Return whether R-hat is below the threshold."""
        return run.r_hat < self.below


@dataclass(frozen=True)
class Seconds:
    """Stop after some time, to a tenth of a second or so.

    The number of draws then depends on the machine, the draws themselves do not.

    Parameters
    ----------
    seconds : float
        Time since `sample` was called.
    """

    seconds: float
    any_time: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_number(self.seconds, "seconds", 0)

    def __call__(self, run: RunSoFar) -> bool:
        """Return whether the time has passed."""
        return run.seconds >= self.seconds


class AllOf:
    """Stop when several rules are met at once.

    Parameters
    ----------
    *rules : callable
        Rules, or callables of your own.
    """

    def __init__(self, *rules: StopRule):
        self.rules = check_stop(rules)
        if not rules:
            raise ValueError("AllOf has no rules; give one or more.")

    def __repr__(self) -> str:
        return f"AllOf({', '.join(map(name_of, self.rules))})"

    def __call__(self, run: RunSoFar) -> bool:
        """Return whether all rules are met."""
        return all([asked(rule, run) for rule in self.rules])


def check_stop(stop: Any) -> tuple[StopRule, ...]:
    """Return the rules that were given, or raise a TypeError."""
    if stop is None:
        return ()
    rules = tuple(stop) if isinstance(stop, list | tuple) else (stop,)
    for rule in rules:
        if isinstance(rule, type) or not callable(rule):
            raise TypeError(
                f"stop is {stop!r}; give a rule of sklsb.diagnostics, such as "
                "EffectiveSampleSize(400), a callable that takes a RunSoFar and returns whether to "
                "stop, or a list of them."
            )
    return rules


def name_of(rule: StopRule) -> str:
    """Return the name of a rule."""
    return getattr(rule, "__name__", None) or repr(rule)


def asked(rule: StopRule, run: RunSoFar) -> bool:
    """Return what a rule says of a run."""
    found = rule(run)
    if not isinstance(found, bool | np.bool_):
        raise TypeError(
            f"The stop rule {name_of(rule)} returned {found!r}; it must return True or False."
        )
    return bool(found)

"""The sampler that finds out which sampler suits a target."""

import copy
from dataclasses import dataclass, field
from typing import Any, Self, cast

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError

from sklsb._kernels.facts import Rule
from sklsb._system.html import Candidates
from sklsb._system.progress import Progress
from sklsb._system.warn import warn
from sklsb.ensembles.streams import Streams
from sklsb.exact.elimination.answers import check_target
from sklsb.exact.elimination.reduce import tied_by_zeros
from sklsb.exceptions import SeparatedModesWarning
from sklsb.samplers._run.algorithm import Algorithm, Fit
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.run import Run
from sklsb.samplers.challengers import eliminated, fitted_challengers
from sklsb.samplers.gibbs import GibbsSampler, sweeps_of
from sklsb.samplers.lsb import LSBSampler
from sklsb.samplers.tempering import ParallelTempering
from sklsb.targets.base import Target
from sklsb.trials.contest import Contest, Short
from sklsb.trials.prices import is_on_torch, neighbours, price_of, work_of_fit
from sklsb.trials.race import Outcome
from sklsb.trials.reference import listed_at_once

# Place of the streams of the race among those of the purpose "pilot".
_RACE = 1 << 11
# The race may take this share of the work of fitting an LSBSampler, and tempering this one.
_SHARE, _OF_TEMPERING = 0.6, 0.3
# Tempering is tried if chains of the best, or candidates, disagree; with at least so many scans, of
# about so many replicas.
_FEWEST_SCANS, _REPLICAS = 128, 16
# Most seeds: one for each challenger, elimination and tempering.
_SEEDS = 16
# Of the first race: evaluations of each change by each chain, and how many times as many effective
# draws the winner must make as Barker's function, so that no learned one need be looked for.
_EVALUATIONS, _BY_LEARNING = 4_000, 5.0
# Changes of single variables from which on a target is large, and the race on it.
_LARGE = 1 << 15
_RACES = {_LARGE: Short(32, 4096, 100, 6, False), 1 << 19: Short(16, 2, 42, 4, True)}
# Most races that are held again, as chains were still on their way to where the target is.
_AGAIN = 3
# Variables that a warning names.
_NAMED = 3


class _Race(Fit):
    """The fit of `AutoSampler`: the winner's run becomes its own."""

    params: "AutoSampler"
    _winner: BaseSampler
    _doubt = ""

    def make_rule(self) -> Rule:
        """Return the winner's rule."""
        if self.before is None:
            raise NotFittedError("This AutoSampler is not fitted, so its rule is not known.")
        return self.before.ensemble.rule

    def fit(self, initial_states: ArrayLike | None) -> tuple[Run, dict[str, Any]]:
        params = self.params
        check_target(self.target)
        if self.checkpoint.path is not None:
            raise ValueError(
                "A race cannot go on from a checkpoint; fit AutoSampler without one, or the "
                "sampler that you want, as ParallelTempering, with it."
            )
        choice = self._choose(initial_states)
        self._winner, self._doubt = choice.sampler, choice.doubt
        run = self._winner.set_params(verbose=params.verbose)._here()
        spent = np.zeros(len(run.ensemble), dtype=np.int64)
        spent[0] = choice.evaluations - run.n_evaluations
        run.ensemble.add_evaluations(spent)
        tally = choice.first.run_.ensemble.counters.tally
        run.count_anew(() if tally is None else tally.kept)
        run.most_effective = choice.most_effective
        given = params.get_params(deep=False)
        return run, {
            "sampler_": self._winner,
            "candidates_": choice.table(),
            "why_": choice.why,
            "_settings": {name: repr(value) for name, value in given.items() if name != "n_jobs"},
        }

    def warn_about_fit(self, run: Run) -> None:
        cast(Algorithm, run.algorithm).warn_about_fit(run)
        if self._doubt:
            warn(self._doubt, SeparatedModesWarning)

    def _first(self, balancing: str = "learned") -> LSBSampler:
        """Return the sampler that finds the states from which all others start."""
        fast = is_on_torch(self.target)  # learning would ask the function for all log-ratios
        return LSBSampler(
            balancing, fast=fast, random_state=self.params.random_state, **self._common
        )

    def _choose(self, initial_states: ArrayLike | None) -> "_Choice":
        """Return the result of a race, with learned functions unless the winner is clear before."""
        target, before = self.target, None
        if self.params.n_burn_in is None and _may_be_clear(target):
            moves = int((target.n_possible - 1).sum())
            if moves > _LARGE:
                return self._choose_of_large(initial_states, moves)
            first = self._first("barker")
            first._fit(target, initial_states)
            before = _Choice(first, self._work(first, _EVALUATIONS * moves))
            before.race()
            if before.is_clear or (listed_at_once(target) and not before.disagree):
                return before
            if before.again:
                initial_states = before.states
        first = self._first()
        first._fit(target, initial_states)
        made = first.n_evaluations_ - first.run_.reference_cost
        choice = _Choice(first, work_of_fit(made, first.run_.ensemble), before)
        choice.race()
        if choice.needs_tempering:
            choice.temper()
        return choice

    def _work(self, first: LSBSampler, evaluations: int) -> float:
        """Return the nanoseconds of so many evaluations of each chain."""
        price = price_of(first.run_.ensemble.rule, first.target_)
        return price.work(0, evaluations * self.params.n_chains, neighbours(first.target_))

    def _choose_of_large(self, initial_states: ArrayLike | None, moves: int) -> "_Choice":
        """Return the result of a single short race, which starts where cheap sweeps have led."""
        target = self.target
        short = next(race for least, race in reversed(_RACES.items()) if moves > least)
        sweeps = GibbsSampler(sweeps_of(target)).set_params(
            **self._common | {"n_burn_in": short.n_sweeps}, random_state=self.params.random_state
        )
        sweeps._fit(target, initial_states)
        first = self._first("barker")
        seed = sweeps.run_.ensemble.streams.copy().of("pilot", _RACE)[0].integers(2**63)
        first.set_params(n_burn_in=0, random_state=int(seed))
        first._fit(target, sweeps.run_.ensemble.chains.x)
        n_chains = self.params.n_chains
        n_racing = min(n_chains, short.n_chains)
        work = self._work(first, short.evaluations * moves) * n_racing / n_chains
        for sampler in (first, sweeps):
            sampler._forget_burn_in()  # of new chains
        choice = _Choice(first, work, short=short, sweeps=sweeps)
        choice.race()
        return choice

    @property
    def _common(self) -> dict[str, Any]:
        given = self.params.get_params(deep=False)
        return {name: given[name] for name in ("n_chains", "n_burn_in", "n_jobs", "verbose")}


@dataclass(eq=False, repr=False, kw_only=True)
class AutoSampler(BaseSampler):
    r"""Races the samplers on your target and draws with the most efficient one.

    `fit` first fits an `LSBSampler` with Barker's function, which takes little work. Other samplers
    go on from the states that its chains reached, as far as the target allows them: Gibbs sweeps,
    by layers, by colour class (sites that share no term) or in order, and in random blocks;
    clusters where no coupling is negative; independent draws if variable elimination is cheap. They
    race in rounds, after which clearly worse ones are dropped. One that makes five times as many
    effective draws as the `LSBSampler` is taken, if neither candidates nor chains disagree.

    Otherwise, and for a `TorchTarget`, a `FunctionTarget` or if ``n_burn_in`` is given, an
    `LSBSampler` that learns is fitted, and a longer race decides. On a `TorchTarget` it has
    ``fast=True``, and one with exact log-ratios and Barker's function competes. In that race,
    where candidates or chains disagree, `ParallelTempering` is tried. The winner starts from the
    states where the race began, and draws; nothing adapts after `fit`.

    If more than 32,768 changes of single variables are possible, and nothing above forbids a first
    race, that is the only one, a short one from where 32 Gibbs sweeps lead, or 16 beyond 524,288
    changes, and nothing is learned.

    Candidates are compared by effective draws per unit of work,

    .. math:: \frac{1}{\max(\tau, \tau_{\log p} / 4) \, w}

    with :math:`\tau` the autocorrelation time of the variables, each weighted by its variance,
    :math:`\tau_{\log p}` the time of log p, and w the work of a transition: its evaluations times
    constants of this package. No clock is read, so the same seed makes the same choice on any
    machine. See the page "Which sampler".

    Parameters
    ----------
    n_chains : int, default=4
        Number of chains.
    n_burn_in : int, optional
        Transitions of each chain in the burn-in of the `LSBSampler`, which learns then. After a
        short one, and with 0, there is no race, and the `LSBSampler` is taken, or elimination.
    n_jobs, random_state, verbose
        As in `GibbsSampler`.

    Attributes
    ----------
    target_, n_sites_, state_, sample_stats_, disagreement_, thin_
        As in `GibbsSampler`.
    sampler_ : sampler
        The winner, fitted; it can be used alone. Both move the same chains.
    candidates_ : xarray.Dataset
        What the race found, by candidate: ess_per_work, effective draws per second of work, and
        work_error, its standard error; ess_per_step and lp_ess_per_step, effective
        draws of the sites and of log p per transition; transitions_per_work, transitions per
        second of work; r_hat, the largest of a variable; difference, the largest one between its
        marginals and those of another candidate in standard errors; transitions of each chain;
        in_last_round. ``attrs["chosen"]`` names the winner. NaN if there was no race.
    why_ : str
        The choice in a sentence.
    n_evaluations_ : int
        Evaluations of all candidates since `fit` began, each of its own kind.

    Warns
    -----
    SeparatedModesWarning
        In `fit`, if the winner's marginals differ from another candidate's by more than chance, if
        its chains disagree, or if chains left a region during the race and none returned. After
        `sample` as the other samplers.
    ShortRunWarning
        `sample` also warns if, by the race's estimate, its transitions amount to fewer than five
        effective draws per chain.

    See Also
    --------
    LSBSampler : the method of this package, without a race.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import AutoSampler, Ising
    >>> ising = Ising.lattice(np.full((8, 8), 0.2), coupling=0.3)
    >>> sampler = AutoSampler(random_state=0).fit(ising)
    >>> sampler.sampler_.scan, sampler.candidates_.attrs["chosen"]
    ('chromatic', 'chromatic')
    >>> draws = sampler.sample(1000, thin="auto")
    >>> dict(draws.sizes)
    {'chain': 4, 'draw': 1000, 'row': 8, 'col': 8}
    """

    _algorithm = _Race

    n_chains: int = 4
    n_burn_in: int | None = None
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    init = "auto"
    warm_start = False

    sampler_: BaseSampler = field(init=False)
    candidates_: xr.Dataset = field(init=False)

    def __copy__(self) -> Self:
        made = super().__copy__()
        if self.__sklearn_is_fitted__() and self.sampler_.run_ is self.run_:
            made.sampler_ = copy.copy(self.sampler_)
            made.sampler_.run_ = made.run_
        return made

    def _attrs(self) -> dict[str, Any]:
        own = {"sampler": type(self).__name__, "chosen": self.candidates_.attrs["chosen"]}
        return self.run_.attrs() | self._settings | own


def _may_be_clear(target: Target) -> bool:
    """Whether a first race is worth its while; what is no target is refused later."""
    if not isinstance(target, Target) or target.ratio_cost > 1 or tied_by_zeros(target):
        return False
    return bool((target.n_possible > 1).any())


class _Choice:
    """The race from the states of a fitted `LSBSampler`, and its result."""

    def __init__(
        self,
        first: LSBSampler,
        work: float,
        before: "_Choice | None" = None,
        short: Short | None = None,  # the only race
        sweeps: GibbsSampler | None = None,  # which led to where it begins
    ):
        self.short = short
        self.fitted: dict[str, BaseSampler] = {} if sweeps is None else {sweeps.scan: sweeps}
        self.first, self.target, self.work, self.before = first, first.target_, work, before
        self.states = first.run_.ensemble.chains.x.copy()
        own = first.run_.ensemble.streams.copy().of("pilot", _RACE)
        # For each candidate those of its chains, which may become those of the draws, and of
        # copies that race.
        self.seeds = [int(own[0].integers(2**63)) for _ in range(_SEEDS)]
        self.by_chain = [int(rng.integers(2**63)) for rng in own]
        self.settings: dict[str, Any] = {"n_chains": first.n_chains, "n_jobs": first.n_jobs}
        self.samplers: dict[str, BaseSampler] = {"lsb": first} | self.fitted
        self.again = 0  # races held before the one that counts
        self.spent = 0  # evaluations of those

    def _copies(self, sampler: BaseSampler, k: int) -> Any:
        seeds = self.by_chain[: self.short.n_chains if self.short else None]
        streams = Streams([np.random.default_rng([seed, k]) for seed in seeds])
        return sampler.run_.algorithm.copies(sampler.run_.ensemble, streams)

    def race(self) -> None:
        """Let all candidates run, again where the chains had not arrived before."""
        if (self.target.n_possible > 1).any():
            exact = None if self.before is None else self.before.samplers.get("elimination")
            exact = exact or eliminated(self.target, self.work, self.seeds[0], self.settings)
            if exact is not None:
                self.samplers["elimination"] = exact
        self._race()
        most = 0 if self.short else _AGAIN
        while self.again < most and (states := self.contest.arrived()) is not None:
            self.spent += self.contest.evaluations
            self.again += 1
            self.states = states
            self.first.run_.continue_from(states)
            self._race()

    def _race(self) -> None:
        first, budget = self.first, _SHARE * self.work
        if (self.target.n_possible > 1).any():
            given = self.target, self.states, self.seeds[2:], self.settings
            self.samplers |= fitted_challengers(*given, {*self.fitted})
        chains = {n: self._copies(s, k) for k, (n, s) in enumerate(self.samplers.items())}
        self.contest = Contest(chains, budget, self.short)
        if self.contest.sites.size:
            with Progress(first.verbose, "race", budget) as progress:
                self.contest.run(progress)
                progress.end(f"{self.chosen} chosen")

    @property
    def outcome(self) -> Outcome:
        """What the race found."""
        return self.contest.outcome()

    @property
    def chosen(self) -> str:
        """Name of the winner; without a race independent draws, if there are any."""
        found = self.outcome
        if np.isfinite(found.ess_per_work).any():
            return found.best
        return "elimination" if "elimination" in self.samplers else "lsb"

    @property
    def sampler(self) -> BaseSampler:
        """The winner."""
        return self.samplers[self.chosen]

    @property
    def evaluations(self) -> int:
        """Evaluations of all candidates, and of their copies."""
        spent = self.spent + self.contest.evaluations
        if self.before is not None:
            spent += self.before.evaluations
        counted = [] if self.before is None else list(self.before.samplers.values())
        mine = [one for one in self.samplers.values() if one not in counted]
        return spent + sum(one.n_evaluations_ for one in mine)

    @property
    def is_clear(self) -> bool:
        """Whether the winner is so much better that learning could not make up for it."""
        found, name = self.outcome, self.chosen
        ess, error = found.ess_per_work, found.work_error
        won, own = found.names.index(name), found.names.index("lsb")
        if not (np.isfinite(ess[won]) and np.isfinite(ess[own])) or self.needs_tempering:
            return False
        if name != "elimination" and not self.contest.difference(name).others:
            return False  # there was nobody to compare the winner with
        least, most = ess[won] - 2.0 * error[won], ess[own] + 2.0 * error[own]
        return bool(least > _BY_LEARNING * most)

    @property
    def needs_tempering(self) -> bool:
        """Whether there may be modes that the winner does not leave."""
        if self._is_sure:
            return False
        return self.disagree or self.have_left

    @property
    def _is_sure(self) -> bool:
        none = self.contest.entrants[self.chosen].halves is None
        return self.chosen == "elimination" or none or self.target.ratio_cost > 1

    @property
    def disagree(self) -> bool:
        """Whether the winner disagrees with others, or its chains with each other."""
        if self._is_sure:
            return False
        found = self.contest.difference(self.chosen), self.contest.entrants[self.chosen]
        return bool(found[0].sites.size or found[1].disagree)

    @property
    def have_left(self) -> bool:
        """Whether chains left where they were before a race, and did not come back."""
        if self.short:
            return self.contest.arrived() is not None
        return self.again > 0 or (self.before is not None and self.before.again > 0)

    @property
    def most_effective(self) -> float:
        """Effective draws of the winner's transitions, at most; infinite if nothing is known."""
        found, name = self.outcome, self.chosen
        if name == "elimination":
            return np.inf
        k = found.names.index(name)
        of_race = found.ess_per_step[k] + 2.0 * found.ess_error[k]
        return float(np.nan_to_num(of_race, nan=np.inf))

    def temper(self) -> None:
        """Let tempering run, too, if there is work left for a burn-in that may find anything."""
        work = _OF_TEMPERING * self.work
        drawn, near = self.target.offers.n_moves, neighbours(self.target)
        if self.target.offers.layers is not None:
            drawn += int(near)  # layers at every temperature draw the hidden units, too
        of_scan = price_of("Scan", self.target).work(1, _REPLICAS * drawn, near)
        n_scans = int(work / (of_scan * len(self.states)))
        if n_scans < _FEWEST_SCANS:
            return
        sampler = ParallelTempering(n_burn_in=n_scans, random_state=self.seeds[1], **self.settings)
        sampler._fit(self.target, self.states)
        if sampler.n_round_trips_.min() == 0:  # its draws say nothing about the modes
            return
        self.samplers["tempering"] = sampler
        self.contest.join("tempering", self._copies(sampler, _SEEDS), work / 2)

    @property
    def why(self) -> str:
        """The choice in a sentence."""
        found, name = self.outcome, self.chosen
        ess = dict(zip(found.names, 1e9 * found.ess_per_work, strict=True))
        what = type(self.samplers[name]).__name__
        if not np.isfinite(ess[name]):
            if name == "elimination":
                return (
                    f"{what} ({name}), as independent draws take little work. There was no race, "
                    "or it was too short to compare."
                )
            return f"{what} ({name}), as fit was too short for a race, or nothing moved in it."
        rest = {other: e for other, e in ess.items() if other != name and np.isfinite(e)}
        if not rest:
            return f"{what} ({name}) is the only candidate for this target."
        second = max(rest, key=lambda other: rest[other])
        times = ess[name] / rest[second]
        if times < 1.0:
            said = f"{1.0 / times:.3g} times fewer than {second!r} may make, with a smaller error"
        else:
            said = f"{times:.3g} times as many as {second!r}, the next"
        rate = float(f"{ess[name]:.3g}")  # three digits, and printed without an exponent
        return (
            f"{what} ({name}) makes {rate:,.12g} effective draws per second of work, counted by "
            f"a fixed price list, not timed: {said}."
        )

    @property
    def doubt(self) -> str:
        """The warning about candidates or chains that disagree, or ""."""
        name = self.chosen
        if not self.contest.last or name == "elimination":
            return ""
        found, run = self.contest.difference(name), self.contest.entrants[name]
        if found.sites.size:
            labels = [repr(self.target.label(int(site))) for site in found.sites[:_NAMED]]
            more = found.sites.size - len(labels)
            named = ", ".join(labels) + (f" and {more} more" if more > 0 else "")
            seen = (
                f"The candidates {name!r}, which is taken, and {found.others!r} disagree by up "
                f"to {found.size:.3g} standard errors in the marginals of variables {named}: one "
                "of them has not converged, or does not leave a mode."
            )
        elif run.disagree:
            seen = (
                f"The chains of {name!r}, which is taken, disagreed in the race: R-hat "
                f"{run.r_hat:.3g}."
            )
        elif self.have_left:
            seen = (
                "In the race a chain left the states where it had stayed before, for others of "
                "another log p, and none came back. Where it was is not in the draws, right if it "
                "has next to no probability, and wrong if it is a mode."
            )
        else:
            return ""
        tried = "tempering" in self.samplers and name != "tempering"
        other = "" if tried or name == "tempering" else " or ParallelTempering,"
        return (
            f"{seen} Answers may be wrong. "
            f"{'Tempering was tried and is no better. ' if tried else ''}Fit "
            f"{type(self.sampler).__name__} alone with a larger n_burn_in,{other} and compare."
        )

    def table(self) -> xr.Dataset:
        """Return ``candidates_``."""
        found, contest = self.outcome, self.contest
        runs = contest.entrants.values()
        work = np.array([run.step_work if run.n_transitions else np.nan for run in runs])
        with np.errstate(divide="ignore"):
            per_work = 1e9 / work
        columns: dict[str, Any] = {
            "ess_per_work": 1e9 * found.ess_per_work,
            "work_error": 1e9 * found.work_error,
            "ess_per_step": found.ess_per_step,
            "lp_ess_per_step": found.lp_ess_per_step,
            "transitions_per_work": per_work,
            "r_hat": [run.r_hat for run in runs],
            "difference": [contest.difference(name).size for name in contest.entrants],
            "transitions": [run.n_transitions for run in runs],
            "in_last_round": found.in_last_round,
        }
        return Candidates(
            {name: ("candidate", values) for name, values in columns.items()},
            coords={"candidate": found.names},
            attrs={"chosen": self.chosen},
        )

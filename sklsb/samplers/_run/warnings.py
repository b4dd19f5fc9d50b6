"""What samplers warn of after drawing."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import xarray as xr

from sklsb._kernels.facts import Rule
from sklsb._kernels.rules.jump import MOST_JUMPS
from sklsb._system.arrays import Bools
from sklsb._system.warn import warn
from sklsb.diagnostics.agreement import disagreement
from sklsb.diagnostics.tally import FEWEST_DRAWS
from sklsb.ensembles.base import ChainEnsemble
from sklsb.ensembles.rules import transitions_of_a_sweep
from sklsb.exceptions import (
    FrozenSitesWarning,
    PeriodicChainWarning,
    PrecisionWarning,
    SeparatedModesWarning,
    ShortRunWarning,
)
from sklsb.samplers._run.traits import Traits
from sklsb.targets._graphs import is_attractive
from sklsb.targets._listing import MAX_STATES
from sklsb.targets._precision import MOST_ROUNDING, WAY_OUT, rounding_of
from sklsb.targets.base import States, Target
from sklsb.trials.reference import Reference, contradiction, elimination_fits, of_answer, of_tally
from sklsb.trials.thinning import Thinning

# Parity is forgotten after about 1 / (2 * rejection rate) transitions; warn beyond 50 sweeps. A
# third value of a variable makes a cycle of odd length, and counts like a rejection.
_FEWEST_PER_SWEEP, _FEW_CHAINS = 0.01, 4
_IMAGES = {
    "cycle": "Here no value is more probable than another, so each must be seen as often. ",
    "reverse": "Here a value is as probable as its opposite, so both must be seen as often. ",
}
_MORE_CHANCES = (
    ' They may have had few chances to: draw a sweep apart, sample(n, thin="sweep"), or more draws.'
)

# When counts begin anew.
CHANGED = "its log-density changed"
# Fewest draws that ArviZ computes an effective sample size of.
_FEWEST_SUMMED = 4
# Probability of other values below which it is no wonder that a variable keeps its own.
_IMPROBABLE = 0.05
# Effective draws of each chain below which chains cannot be compared.
_FEWEST_EFFECTIVE = 5.0


class DrawWarnings(ABC):
    """Warnings about draws, for `Run`."""

    algorithm: Traits
    target: Target
    ensemble: ChainEnsemble
    history: xr.Dataset | None
    disagreement: xr.Dataset | None
    never_moved: bool
    warned_short: bool
    warned_periodic: bool
    warned_frozen: Bools  # of which sites
    known_hint: str | None  # advice of exact answers, once it was looked for
    since: str  # when counts began, "fit" or `CHANGED`
    # Effective draws of a transition at most, as far as `fit` knows.
    most_effective = math.inf

    @property
    def sweep(self) -> int:
        """Transitions in which each variable has one chance to move."""
        return transitions_of_a_sweep(self.ensemble.rule, self.target)

    def _warn_if_cut_short(self, acceptance: float) -> None:
        if self.ensemble.rule.facts.seeded and acceptance < 1.0:
            warn(
                f"{1.0 - acceptance:.2g} of the transitions made more than {MOST_JUMPS} jumps and "
                "were cut short: the chains are where moves are thousands of times faster than "
                "anywhere fit saw, and these draws are not exact. Fit again with initial_states "
                "from there, or set rejection_free=False.",
                SeparatedModesWarning,
            )

    def warn_about_draws(self, n_draws: int, n_transitions: int, acceptance: float | None) -> None:
        """Warn of what the draws of a call show, apart from exact answers."""
        if not n_transitions:
            return
        if acceptance is not None:
            self.warn_if_periodic(acceptance, n_transitions, n_transitions // n_draws)
            self._warn_if_cut_short(acceptance)
        self._warn_if_short()
        self._warn_if_separated()
        frozen = self.target.n_possible > 1
        frozen[self.target.offers.site_of_moves[self.ensemble.chains.moved.any(axis=0)]] = False
        isolated = self._isolation(n_transitions) if frozen.any() else ""
        # Few draws, as one a call inside a training loop, have no effective sample size.
        new = (frozen & ~self.warned_frozen).any()
        if new and (isolated or n_draws >= _FEWEST_SUMMED):
            self.warned_frozen = self.warned_frozen | frozen
            first = int(frozen.argmax())
            label = self.target.label(first)
            called = "" if label == first else f", {label!r}"
            # After a few transitions this is normal, and the search for advice takes long.
            many = self.ensemble.counters.n_transitions >= self.sweep
            hint = self._exact_hint() if many else ""
            # Draws a sweep apart have given each variable its chances.
            rare = not isolated and n_transitions < n_draws * self.sweep
            more = _MORE_CHANCES if rare else ""
            warn(
                f"{int(frozen.sum())} of {frozen.size} variables never changed in this call "
                f"(the first is site {first}{called}). Their effective sample size is "
                "unknown; where all chains agree ArviZ reports it as perfect, and "
                "sklsb.diagnostics.ess gives NaN."
                f"{isolated}{more}{self._certainty(frozen)}{hint}",
                FrozenSitesWarning,
            )

    def _certainty(self, frozen: Bools) -> str:
        """Say so if the present states make other values of these variables improbable."""
        states = self.ensemble.chains.x
        agree = len(states) > 1 and (states[:, frozen] == states[0, frozen]).all()
        agree = agree and (self.disagreement is None or self.disagreement.agree)
        # A function of the user would be called for every change.
        if not agree or self.target.ratio_cost > 1:
            return ""
        site = self.target.offers.site_of_moves
        change = 0.0
        for ratios in map(self.target.log_ratios, states):
            odds = np.exp(np.minimum(ratios, 0.0))  # at most 1 will do
            change = max(change, np.bincount(site, odds, self.target.n_sites)[frozen].max())
        if change > _IMPROBABLE:
            return ""
        return (
            " Given all others as they are now, their other values have probabilities of "
            f"{change:.2g} at most: either these values really are that improbable, or the chains "
            "are stuck in one mode."
        )

    def _warn_if_short(self) -> None:
        counters = self.ensemble.counters
        made, tally = counters.n_transitions, counters.tally
        if self.warned_short or not self.target.n_sites or tally is None:
            return
        apart = 'Draw a sweep apart, sample(n, thin="sweep")'
        if made < self.sweep:
            found = (
                f"fewer than the {self.sweep} of a sweep over the {self.target.n_sites} "
                f"variables: most had no chance to move. {apart}."
            )
        elif counters.n_draws >= FEWEST_DRAWS > tally.n_draws:
            found = (
                f"{made / self.sweep:.3g} sweeps over the {self.target.n_sites} variables: too few "
                "to compare the chains with each other, so it is not known whether they agree. "
                f"{apart} with n of {FEWEST_DRAWS} or more."
            )
        elif counters.n_draws >= FEWEST_DRAWS and made * self.most_effective < _FEWEST_EFFECTIVE:
            found = (
                f"worth {made * self.most_effective:.2g} independent draws at most, as fit saw: "
                "too few to know whether the chains agree. Draw more, or further apart, "
                'sample(n, thin="auto").'
            )
        else:
            return
        self.warned_short = True
        warn(f"Each chain has made {made} transitions since {self.since}, {found}", ShortRunWarning)

    def warn_if_bounded(self, found: Thinning) -> None:
        """Warn if copies of the chains could not tell how far apart draws should be."""
        if not found.bounded:
            return
        needed = "no variable changed"
        if math.isfinite(found.needed):
            needed = (
                f"a draw seems to need {found.needed:.3g} transitions to be worth half an "
                "independent one, more than so short a run can tell"
            )
        warn(
            f'thin="auto" is {found.thin} transitions: in {found.n_transitions} transitions of '
            f"copies of the chains {needed}. Draws will be worth less than half each. Make more "
            "of them, give a larger thin, or look for a sampler that moves faster.",
            ShortRunWarning,
        )

    def warn_of_rounding(self) -> None:
        """Warn if rounding of log p matters."""
        target = self.target
        size = target.offers.size or float(np.abs(self.ensemble.log_prob()).max(initial=0.0))
        if rounding_of(size) > MOST_ROUNDING:
            doubt = self.algorithm.doubt_of_draws(self.ensemble)
            warn(
                f"Log p of {target!r:.200} is a sum of numbers as large as {size:.3g}, which a "
                f"float holds to about {rounding_of(size):.2g}: so is the lp of draws, and best "
                "states and the R-hat of lp may mean nothing. "
                f"{doubt or 'The draws themselves are right'}. {WAY_OUT}",
                PrecisionWarning,
            )

    def warn_if_isolated(self) -> None:
        """Warn if chains that never moved in the burn-in cannot."""
        history = self.history
        if self.never_moved and history is not None and history.sizes.get("iteration"):
            found = self._isolation(int(history["iteration"][-1]))
            if found:
                warn(found.strip(), FrozenSitesWarning)

    def _isolation(self, n_transitions: int) -> str:
        """Say so if chains that did not move in a sweep or more cannot move; else return ""."""
        ensemble = self.ensemble
        if n_transitions < self.sweep or ensemble.chains.moved.any():
            return ""
        return isolation(self.target, ensemble.chains.x, ensemble.rule)

    def _exact_hint(self) -> str:
        if self.known_hint is None:
            restricted = self.ensemble.rule.facts.conserves_counts
            self.known_hint = "" if restricted else exact_hint(self.target)
        return self.known_hint

    def _warn_if_separated(self) -> None:
        tally = self.ensemble.counters.tally
        if tally is None or tally.n_draws < FEWEST_DRAWS:
            return
        # Many short calls need not compare every time.
        known = self.disagreement
        if known is not None and tally.n_draws < 1.1 * known.n_draws:
            return
        self.disagreement = found = disagreement(tally, self.target)
        if found.agree or self.algorithm.independent:
            return
        if found.lost:
            what = (
                "Before the burn-in a rare value of variable "
                f"{found.lost[0]} was found that chains keep for long once they have it; the draws "
                "came there a few times at most, or never. They cannot tell how much it weighs"
            )
        else:
            what = self._described(found)
        warn(
            f"{what} (disagreement_ and sklsb.diagnostics.disagreement have the numbers). Answers "
            "and errors from these draws may be wrong. Run longer, and see whether R-hat "
            "falls; start elsewhere, by initial_states or another random_state; "
            f"{self._clusters()}or {self.algorithm.way_out}.{self._exact_hint()}",
            SeparatedModesWarning,
        )

    @abstractmethod
    def reference_now(self, going_on: Callable[[], bool]) -> Reference | None:
        """Return exact answers, if they take no more than what was made so far."""

    def warn_if_wrong(
        self, answer: xr.Dataset | None, n_draws: int, going_on: Callable[[], bool] = lambda: True
    ) -> None:
        """Warn if exact answers contradict the draws of a call, or all draws since `fit`.

        ``answer`` has the states of the call, or marginals, unless it kept neither.
        """
        counters = self.ensemble.counters
        tally, n_chains = counters.tally, len(self.ensemble.chains.x)
        if self.algorithm.independent or tally is None or tally.n_draws < FEWEST_DRAWS:
            return
        reference = self.reference_now(going_on)
        if reference is None:
            return
        exact, found = reference.p, None
        if answer is not None and n_draws >= FEWEST_DRAWS:
            known = of_answer(answer, self.target, exact)
            found = contradiction(exact, *known, n_draws * n_chains)
        if found is None and (answer is None or counters.n_draws > n_draws):
            known = of_tally(tally, exact.shape)
            found = contradiction(exact, *known, tally.n_draws * n_chains)
        if found is None:
            return
        off = "an unknown error: all draws had it, or none"
        off = off if math.isnan(found.error) else f"a standard error of {found.error:.2g}"
        names, value = self.target.state_names, self.target.values[found.value_index]
        called = value if names is None else names[found.site][found.value_index]
        hint, restricted = self._exact_hint(), self.ensemble.rule.facts.conserves_counts
        are, exactly, the = "are wrong", "exactly", "The"
        if restricted:
            are, exactly = "may be wrong", "over all states with these counts"
            the = "If exchanges lead to all of these, the"
        few = np.log2(self.target.cardinalities).sum() <= np.log2(MAX_STATES)
        if few and not hint and not restricted:
            hint = " sklsb.exact.probabilities gives the probability of each state."
        warn(
            f"The draws {are}: by them, variable {self.target.label(found.site)!r} is "
            f"{called!r} with probability {found.p:.4g}, with {off}; {exactly}, it is "
            f"{found.exact:.4g}. {the} chains have not converged, or do not "
            "leave a mode, and agree with each other as long as all are in the same one. Draw for "
            f"longer; {self._clusters()}or {self.algorithm.way_out}.{hint}",
            SeparatedModesWarning,
        )

    def _clusters(self) -> str:
        """Advise clusters where no coupling is negative."""
        facts = self.ensemble.rule.facts
        known = "pairwise" in facts.needs or facts.conserves_counts
        if known or not is_attractive(self.target):
            return ""
        return "if fields are weak, take ClusterSampler; "

    def _described(self, found: xr.Dataset) -> str:
        where = found.worst
        r_hat, ess = float(found["r_hat_lp"]), float(found["ess_lp"])
        if where != "lp":
            place = int(np.nanargmin(found["p_value"].values))
            r_hat, ess = (float(found[name].values.flat[place]) for name in ("r_hat", "ess"))
            where = f"variable {where}"
        size = f", effective sample size {ess:.0f}" if np.isfinite(ess) else ""
        tally = self.ensemble.counters.tally
        images = "" if tally is None else _IMAGES.get(tally.symmetry or "", "")
        what = (
            "The chains disagree: they have not converged, or they are in separated modes that "
            "they do not leave"
        )
        if len(self.ensemble.chains.x) == 1:
            what = "Parts of the chain differ: it has not converged, or seldom crosses modes"
        return f"{what}. {images}Most of all in {where}: R-hat {r_hat:.3g}{size}"

    def warn_if_periodic(self, acceptance: float, n_transitions: int, thin: int = 1) -> None:
        """Warn of chains that reject next to nothing, and so may visit two kinds in turn."""
        if not self.ensemble.rule.facts.may_be_periodic:
            return
        # Draws at an even distance are all of one kind, which one warning about a fit does not say.
        even = thin % 2 == 0
        if self.warned_periodic and not even:
            return
        # Uphill, in the first sweeps, all moves are accepted on any target.
        if not self.target.n_sites or n_transitions < 2 * self.target.n_sites:
            return
        rejected = max(1.0 - acceptance, 0.0)
        lacking = _FEWEST_PER_SWEEP - rejected * self.target.n_sites
        few = self.ensemble.chains.x[:_FEW_CHAINS]  # a function is called for every change of each
        if lacking <= 0.0 or self.algorithm.third_values(few) >= lacking:
            return
        self.warned_periodic = True
        found = f" These draws, {thin} transitions apart, are of one kind only." if even else ""
        warn(
            f"The chains reject {rejected:.2g} of their moves: the target is flat, or nearly so, "
            "and a chain that moves at every step visits even and odd states in "
            f"turn.{found} Set lazy=0.5, or thin by an odd number.",
            PeriodicChainWarning,
        )


def isolation(target: Target, states: States, rule: Rule) -> str:
    """Say so if no change that a rule makes leads from states to a possible one; else return ""."""
    several = rule.facts.parts or rule.facts.block_size > 1
    if several or not (target.n_possible > 1).any():
        return ""
    if (target.log_ratios(states) > -np.inf).any():
        return ""
    return (
        " No change of a single variable leads from the states of the chains to a possible "
        "state, as in a ranking or an assignment, where two variables must change at once. "
        "Chains of single changes stay where they start: exchange values, as SwapSampler does, "
        "change several together, as GibbsSampler(block_size=2) does, or describe the states "
        "by other variables."
    )


# Work that is advised.
_AFFORDABLE = 2.0**31


def exact_hint(target: Target) -> str:
    """Return advice if exact elimination is affordable, else ""."""
    if not elimination_fits(target, _AFFORDABLE):
        return ""
    return (
        " sklsb.exact answers on this target without a chain (exact.marginals), and "
        "EliminationSampler makes independent draws."
    )

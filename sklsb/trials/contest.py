r"""The race of samplers: effective draws per nanosecond, by constant prices.

All candidates begin at the same states and are judged by the autocorrelation time of the sites,
each weighted by its variance in the draws of all candidates together, or by a quarter of the time
of log p if this is longer: a sampler that starves log p loses to one that is good at both.

If log p shows that chains were on their way to where the target is, the race says nothing yet:
`Contest.arrived` returns states from which it can begin anew.

Candidates check each other. The later half of each one's draws gives two means of each chain, and
the means of two candidates A and B are compared by

.. math:: t = \frac{|\bar a - \bar b|}{\sqrt{V_a + V_b}}, \qquad
          V = \max\left(\frac{\mathrm{var}(\text{means of halves})}{m},
                        \frac{p (1 - p) \tau}{n}\right)

for each value of each site, with m half chains of n draws in all, m - 1 degrees of freedom each,
p the mean of both, and tau the time of the sites by the variances that the candidate has seen
itself. They disagree if the smallest p-value is below .01, divided by the number of comparisons.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from scipy.stats import t as t_distribution

from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import at_once
from sklsb.diagnostics.batches import CHANCE
from sklsb.ensembles.rules import transitions_of_a_sweep
from sklsb.exact.elimination.cost import n_entries
from sklsb.exact.elimination.independent import Redraws
from sklsb.targets.base import States
from sklsb.trials.draws import some_of
from sklsb.trials.prices import TABLE_ENTRY, neighbours, price_of, work_of
from sklsb.trials.race import TRIAL, Doubt, Pool, Race, Racer
from sklsb.trials.times import Found

# How much slower than the sites log p may be before it counts.
_LP_SLOWER = 4.0
# Autocorrelation times in the later half of the draws, over all chains, from which marginals are
# compared.
_FEWEST_TIMES = 20.0
# Chance by which log p of the first draws, of the target, would be so far from that of later ones:
# that of four standard deviations, if many draws tell them.
_DRIFTED = 3.2e-5
_INDEPENDENT = Found(1.0, 0.0)
# R-hat above which chains disagree, and in the shortest race where there are fewer draws than this.
_LARGE_R_HAT, _LARGE_OF_FEW, _FEW_DRAWS = 1.2, 2.0, 32
# Looks at a sweep of single changes of large targets.
_LOOKS_OF_SWEEP = 64
# Draws of each chain that tables of elimination are made for.
_DRAWS = 1000


class Short(NamedTuple):
    """The only race on a large target, where a few sweeps over many variables tell as much."""

    n_sweeps: int  # before it
    n_chains: int  # most that race; both kinds of starts are among the first two
    evaluations: int  # of each change by each of these chains
    n_draws: int  # of a round, at least
    shortest: bool  # whether only the first round has so many, and log p, on its way, is ignored


class Entrant(Racer):
    """The runs of one candidate; costs are nanoseconds."""

    halves: Array | None = None  # means (2 n_chains, n_values, n_sites) of the later draws
    drifted = False  # whether log p of a chain began outside the range of the later draws
    fewest_work = 0.0  # nothing is known before the first transitions

    def __init__(self, ensemble: Any, sites: Ints, short: Short | None = None):
        super().__init__(ensemble, ensemble.rule, sites)
        self.short = short
        self.is_exact = isinstance(ensemble, Redraws)
        if short:
            sweep = transitions_of_a_sweep(ensemble.rule, ensemble.target)
            every = at_once(sweep, _LOOKS_OF_SWEEP)
            self.trial, self.every = 1, every
            self.fewest_draws = self.piece = short.n_draws
        self._before = self.evaluations

    @property
    def spent(self) -> float:
        """Nanoseconds of all chains so far, by the table of prices."""
        if self.is_exact:
            return self.n_transitions * len(self.ensemble) * self._of_redraw
        return work_of(self.n_transitions, self.evaluations - self._before, self.ensemble)

    @property
    def _of_redraw(self) -> float:
        """Nanoseconds of an independent draw, in runs of some length.

        Tables are made before the first draw, or, of a model in slices, for each call of `sample`.
        """
        redraws = cast(Redraws, self.ensemble)
        elimination, target = redraws.elimination, redraws.target
        work = price_of(self.rule, target).work(1, elimination.work_per_draw, neighbours(target))
        if redraws.source.sliced:
            ahead = _DRAWS * max(1, len(redraws))
            work += TABLE_ENTRY * n_entries(elimination.found.cost) / ahead
        return work

    @property
    def fewest(self) -> int:
        """Transitions of a round, at least."""
        begun = self.series is not None and self.series.n >= self.fewest_draws
        return self.every if begun and self._is_shortest else super().fewest

    @property
    def _is_shortest(self) -> bool:
        return self.short is not None and self.short.shortest

    @property
    def step_work(self) -> float:
        """Nanoseconds of a transition."""
        return self.step_cost

    def begin(self) -> None:
        """Make a few transitions, to see what they cost."""
        # The reference stays the contest's: independent draws do not start where others do.
        self.try_out()

    def look(self) -> None:
        """Measure the draws so far."""
        super().look()
        if self.series is None:
            return
        later = self.series.x[:, self.series.n // 2 : self.series.n]
        n = later.shape[1] // 2
        halves = later[:, : 2 * n].reshape(2 * len(later), n, -1)
        values = self.ensemble.target.values
        self.halves = np.stack([(halves == v).mean(axis=1) for v in values], axis=1)
        lp = self.series.lp[:, : self.series.n]
        early, late = lp[:, : max(1, self.series.n // 8)], lp[:, self.series.n // 2 :]
        # Of chains that stand still log p changes by rounding only.
        spread = late.std(ddof=1) if late.size > 1 else np.inf
        most = t_distribution.isf(_DRIFTED, max(1, late.size - 1)) * spread + 1e-6
        self.drifted = bool((np.abs(early.mean(axis=1) - late.mean()) > most).any())

    @property
    def r_hat(self) -> float:
        """Largest R-hat of an indicator, of the later half of the draws; NaN if nothing moved."""
        if self.halves is None:
            return np.nan
        within = (self.halves * (1.0 - self.halves)).mean(axis=0)
        between = self.halves.var(axis=0, ddof=1)
        moved = (within > 0.0) | (between > 0.0)
        if self.short and moved.any():
            # Means of few draws differ much somewhere. On average they differ between chains by no
            # more than between the halves of one, unless chains disagree.
            by_chance = np.square(self.halves[::2] - self.halves[1::2]).mean(axis=0) / 2.0
            between = np.maximum(0.0, (between - by_chance).sum(keepdims=True))
            within = within.sum(keepdims=True)
            moved = within > 0.0
        with np.errstate(divide="ignore"):
            ratio = between[moved] / within[moved]
        return float(np.sqrt(1.0 + ratio.max())) if ratio.size else np.nan

    @property
    def disagree(self) -> bool:
        """Whether chains do; of few draws each sees little of its mode."""
        few = self._is_shortest and self.series is not None and self.series.n < _FEW_DRAWS
        return self.r_hat > (_LARGE_OF_FEW if few else _LARGE_R_HAT)

    @property
    def own_time(self) -> float:
        """The time of the sites by the variances that this candidate has seen itself.

        By pooled variances, candidates that stay in different modes would all be slow.
        """
        return np.inf if self.measured is None else Pool([self], None).times(self)[0].time

    @property
    def is_long(self) -> bool:
        """Whether the later half is long beside the autocorrelation time."""
        n = 0.5 * self.n_transitions * len(self.ensemble)
        return self.halves is not None and n >= _FEWEST_TIMES * self.own_time

    def errors(self, time: float, mean: Array) -> Array:
        """Return the variances of the means of the later half, if ``mean`` is the truth."""
        halves = cast(Array, self.halves)
        n = 0.5 * self.n_transitions * len(self.ensemble)
        of_halves = halves.var(axis=0, ddof=1) / len(halves)
        return np.asarray(np.maximum(of_halves, mean * (1.0 - mean) * time / max(1.0, n)))


class Difference(NamedTuple):
    """How far two candidates differ."""

    others: str
    size: float  # largest difference in standard errors
    p_value: float  # of that, for all comparisons together
    sites: Ints  # of those that differ by more than chance, the worst first


class Contest(Race):
    """The race of whole samplers."""

    entrants: dict[str, Entrant]

    def __init__(self, ensembles: dict[str, Any], budget: float, short: Short | None = None):
        self.by_sites = short is not None and short.shortest
        first = next(iter(ensembles.values()))
        self.sites = some_of(np.flatnonzero(first.target.n_possible > 1))
        self.reference = float(first.log_prob()[0])
        entrants = {name: Entrant(one, self.sites, short) for name, one in ensembles.items()}
        for run in entrants.values():
            run.reference = self.reference
        super().__init__(entrants, budget, Doubt())  # nobody has the benefit of the doubt

    @property
    def evaluations(self) -> int:
        """Evaluations of all runs, each of its own kind."""
        return sum(run.evaluations for run in self.runs)

    def arrived(self) -> States | None:
        """Return where the chains are that agree best, if some candidate's were on their way."""
        walks = [run for run in self.entrants.values() if not run.is_exact]
        if not any(run.drifted for run in walks):
            return None
        best = min(walks, key=lambda run: np.nan_to_num(run.r_hat, nan=np.inf))
        return best.ensemble.chains.x.copy()

    def _measure(self) -> list[tuple[Found, Found]]:
        """Return the times of all; independent draws know the variances, and their time is 1.

        Of the others a transition is worth its effective draws: those of blocks are short beside
        sweeps, and their many transitions know little.
        """
        runs = [*self.entrants.values()]
        exact = [run for run in runs if run.measured is not None and run.is_exact]
        seen = exact or runs
        # Chains that stand still have no time.
        worth = [float(np.nan_to_num(1.0 / run.own_time)) for run in seen]
        pool = Pool(seen, None, worth if any(worth) else None)
        return [(_INDEPENDENT, _INDEPENDENT) if run in exact else pool.times(run) for run in runs]

    def measures(self) -> tuple[Array, Array]:
        """Return effective draws per nanosecond, and their relative errors."""
        of_sites, of_lp = np.array(self.times).transpose(1, 2, 0)  # each: times, errors
        of_lp[0] /= _LP_SLOWER
        slower = (of_lp[0] > of_sites[0]) & (not self.by_sites)
        time, error = np.where(slower, of_lp, of_sites)
        with np.errstate(all="ignore"):
            return 1.0 / (time * np.array([run.step_work for run in self.runs])), error

    def join(self, name: str, ensemble: Any, work: float) -> None:
        """Let another candidate run for so much work, and compare all anew."""
        run = self.entrants[name] = Entrant(ensemble, self.sites)
        run.reference = self.reference
        run.begin()
        n = int(work / max(1.0, run.step_cost * self.n_chains))
        if n >= 4 * TRIAL:
            run.go_on(n)
            run.look()
            self.last = [*self.last, len(self.runs) - 1]
        self.times = self._measure()

    def difference(self, name: str) -> Difference:
        """Compare a candidate's marginals with all others that ran for long enough."""
        own, none = self.entrants[name], Difference("", 0.0, 1.0, self.sites[:0])
        if not own.is_long:
            return none
        others = {k: run for k, run in self.entrants.items() if run is not own and run.is_long}
        found = [self._between(own, other, run, len(others)) for other, run in others.items()]
        return min(found, key=lambda one: one.p_value, default=none)

    def _between(self, a: Entrant, other: str, b: Entrant, n_others: int) -> Difference:
        mean_a, mean_b = (cast(Array, run.halves).mean(axis=0) for run in (a, b))
        # Of a value that one has not seen its own draws do not tell how rare it is.
        both = (mean_a + mean_b) / 2
        v_a, v_b = a.errors(a.own_time, both), b.errors(b.own_time, both)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.nan_to_num(np.abs(mean_a - mean_b) / np.sqrt(v_a + v_b), posinf=1e9)
            freedom = (2 * self.n_chains - 1) * (v_a + v_b) ** 2 / (v_a**2 + v_b**2)
        p = 2.0 * t_distribution.sf(t, np.nan_to_num(freedom, nan=1.0)) * t.size * n_others
        by_site = p.min(axis=0)
        order = np.argsort(by_site, kind="stable")
        differ = order[by_site[order] < CHANCE]
        smallest = float(by_site.min(initial=1.0))
        return Difference(other, float(t.max(initial=0.0)), smallest, self.sites[differ])

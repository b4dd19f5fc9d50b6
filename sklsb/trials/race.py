"""A race of candidates, in rounds within a budget; see `sklsb.trials.pilot` for the rules."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from sklsb._kernels.facts import Rule
from sklsb._system.arrays import Array, Bools, Ints
from sklsb.ensembles.base import LearnableEnsemble
from sklsb.targets.base import States
from sklsb.trials.draws import draw
from sklsb.trials.factors import site_times
from sklsb.trials.prices import OF_JUMP, OF_TRANSITION
from sklsb.trials.times import FEWEST_KEPT, UNKNOWN, Found, Series, time_of

# Values of sites in the draws kept of a candidate, over all chains.
_MOST_VALUES = 1 << 21
_EPS = float(np.finfo(np.float64).eps)
# Work in the rounds, in units of the first, and parts of the first; rounds without an early end,
# but on easy targets.
_PLAN, _PARTS, _FEWEST_ROUNDS = (1, 1, 2, 4), (0.25, 0.25, 0.5), 3
# A target is easy if the choice is expected to lose less than this, in logarithms, and if no runs
# show that some variables are slower than most: by `unlike`, of so many batches.
_LITTLE, _ALIKE, _BATCHES = 0.08, 1.1, 4
# Robust candidates that stay in the race, whatever their ranks, unless they are clearly worse.
_KEPT = 2
# Pieces of a run in a round; after each it is seen what transitions cost.
_PIECES = 4
FEWEST_IN_A_ROUND = 48
# Standard errors of the difference at which a candidate is dropped, and at which one is the best.
_DROPPED, _SETTLED = 3.0, 2.0
# Logarithms of ratios: below one the race ends, beyond the other nobody is robust.
_SAME, _FAR = 0.03, 0.5
# Standard deviation of the logarithm of what a candidate is worth, over what flows let expect.
_SPREAD = 0.5
# Relative differences that do not count: work is only roughly time.
_SLACK = 0.05
# Transitions of each chain that measure the cost of one, and that tune a number of flips.
TRIAL, _ADAPTING = 16, 32


class Doubt(NamedTuple):
    """Who is chosen in doubt, and who is not; places among the candidates."""

    robust: Sequence[int] = ()
    learned: Sequence[int] = ()

    def choice(self, ess: Array, error: Array) -> int:
        """Return the place of the candidate to keep.

        It is the best, if that is settled. If not, it is the one with the largest lower bound, or
        the first robust one whose bound is about as large. But a learned one is taken only if no
        robust one may be best, too, and is not far behind.
        """
        robust = self.robust
        if not ess.any():
            return robust[0] if robust else 0
        best = int(np.argmax(ess))
        may_be_best = ~clearly_worse(ess, error, best, _SETTLED)
        if may_be_best.sum() == 1:
            return best
        lower = np.where(may_be_best, ess * np.exp(-_SETTLED * error), 0.0)
        chosen = int(np.argmax(lower))
        near = [k for k in robust if may_be_best[k] and ess[k] >= np.exp(-_FAR) * ess[best]]
        highest = lower[chosen]
        if chosen in self.learned:
            highest = max((lower[k] for k in near), default=0.0)
        return next((k for k in near if lower[k] >= (1.0 - _SLACK) * highest), chosen)


class Outcome(NamedTuple):
    """Result of the pilot; arrays over the candidates."""

    names: list[str]
    ess_per_step: Array
    ess_error: Array  # its standard error
    ess_per_work: Array  # per work of one Metropolis transition
    work_error: Array
    lp_ess_per_step: Array
    acceptance_rate: Array
    transitions: Ints  # per chain
    n_flips: Ints
    in_last_round: Bools
    doubt: Doubt

    @property
    def best(self) -> str:
        """Name of the candidate to keep, one of the last round."""
        ess = np.where(self.in_last_round, np.nan_to_num(self.ess_per_work), 0.0)
        with np.errstate(all="ignore"):
            error = np.nan_to_num(self.work_error / self.ess_per_work, nan=np.inf, posinf=np.inf)
        return self.names[self.doubt.choice(ess, error)]


def places(names: Sequence[Any], some: Sequence[Any]) -> list[int]:
    """Return where some candidates are, in their order."""
    return [names.index(name) for name in some if name in names]


def clearly_worse(ess: Array, error: Array, best: int, n_errors: float) -> Bools:
    """Return which candidates are worse than the best by this many standard errors and 5%."""
    with np.errstate(all="ignore"):
        behind = np.log(ess[best] / ess)
        return np.asarray(behind > _SLACK + n_errors * np.hypot(error, error[best]))


class Racer:
    """A candidate in a race, with its chains."""

    trial = TRIAL  # transitions that measure the cost of one
    every = 1  # transitions between the first draws
    fewest_draws = FEWEST_IN_A_ROUND  # of a round
    piece = 1  # fewest draws between two looks at the budget

    def __init__(self, ensemble: LearnableEnsemble, rule: Rule, sites: Ints):
        self.ensemble, self.rule, self.sites = ensemble, rule, sites
        self.n_transitions = 0
        self.series: Series | None = None  # None before the first round, and when out of the race
        self.reference = 0.0
        self.acceptance = np.zeros(2)  # sum, number
        self.measured: _Measured | None = None

    @property
    def evaluations(self) -> int:
        """Log-ratios evaluated so far."""
        return int(self.ensemble.chains.evaluations.sum())

    @property
    def spent(self) -> float:
        """What counts against the budget of the race: the log-ratios evaluated so far."""
        return self.evaluations

    @property
    def fewest(self) -> int:
        """Transitions of a round, at least."""
        return self.fewest_draws * self.every

    @property
    def fewest_work(self) -> float:
        """Log-ratios of each chain without which there is no race."""
        return (4 * TRIAL + _ADAPTING * self.ensemble.adapting) * max(1.0, self.ensemble.step_cost)

    @property
    def step_cost(self) -> float:
        """Log-ratios per transition so far."""
        return self.spent / max(1, self.n_transitions * len(self.ensemble))

    @property
    def step_work(self) -> float:
        """Work per transition, in Metropolis steps.

        A transition that evaluates as much as several Metropolis steps makes several moves.
        """
        of_step = self.ensemble.step_cost or self.step_cost
        return self.work_of(self.step_cost / max(of_step, 1e-9))

    def work_of(self, cost: float) -> float:
        """Return the work of a transition that evaluates ``cost`` times as much as a step."""
        of_step = self.ensemble.step_cost or self.step_cost
        of_ratios = max(of_step, 1e-9) * self.ensemble.target.ratio_cost
        overhead = OF_JUMP if self.rule.facts.seeded else OF_TRANSITION
        return (of_ratios * cost + overhead * max(1.0, cost)) / (of_ratios + OF_TRANSITION)

    def begin(self) -> None:
        """Make a few transitions, to see what they cost."""
        with self.ensemble.threads():
            if self.ensemble.adapting:
                self.ensemble.adapt(self.rule, _ADAPTING)
                self.n_transitions += _ADAPTING
            self.ensemble.start(self.rule)
            # Log p is taken relative to this, the same for all candidates, so that a large part
            # that never changes does not matter.
            self.reference = float(self.ensemble.log_prob()[0])
        self.try_out()

    def try_out(self) -> None:
        """Make the transitions that measure the cost of one."""
        with self.ensemble.threads():
            draw(self.ensemble, 1, self.trial, self.sites)
        self.n_transitions += self.trial

    def go_on(self, n: int) -> None:
        """Make n more transitions, or a few less, and look at all so far."""
        n_chains = len(self.ensemble)
        if self.series is None:
            most = max(FEWEST_KEPT, _MOST_VALUES // max(1, n_chains * self.sites.size))
            self.series = Series(n_chains, self.sites.size, self.ensemble.target.dtype, most)
            self.series.thin = self.every
        with self.ensemble.threads():
            while (room := min(self.series.make_room(), n // self.series.thin)) > 0:
                x, stats = draw(self.ensemble, room, self.series.thin, self.sites)
                self.series.add(x, stats[:, :, 0] - self.reference)
                known = stats[:, :, 1][np.isfinite(stats[:, :, 1])]
                self.acceptance += known.sum(), known.size
                n -= room * self.series.thin
                self.n_transitions += room * self.series.thin

    def look(self) -> None:
        """Measure the draws so far."""
        if self.series is not None:
            lp, n = self.series.lp[:, : self.series.n], self.series.n * self.series.thin
            shares = self.series.shares(self.ensemble.target.values)
            moments = np.array([lp.mean(), np.square(lp).mean()])
            self.measured = _Measured(*self.series.distances(), shares, moments, n)

    @property
    def unlike(self) -> float:
        """How unlike the times of the sites are: 1 if they are equal, inf if little is known."""
        if self.series is None or self.series.n < 8 * _BATCHES:
            return np.inf
        x, values = self.series.x[:, : self.series.n], self.ensemble.target.values
        time, variance = site_times(x, values[1:], _BATCHES)
        time, variance = time[variance > 0.0], variance[variance > 0.0]
        mean = variance @ np.sqrt(time) / max(variance.sum(), 1e-300)
        return float(variance @ time / max(variance.sum() * mean**2, 1e-300))


class _Measured(NamedTuple):
    """Measurements of one candidate's draws."""

    lags: Ints
    distances: Array  # (n_chains, n_pieces, n_lags, 2): of the sites, of log p
    shares: Array  # (n_values, n_sites)
    lp: Array  # mean and mean square
    n_transitions: int


class Pool:
    """What all candidates have seen together: the variances of the sites and of log p.

    Transitions count alike, or as ``worth`` says, one number for each run.
    """

    def __init__(
        self, runs: Sequence[Racer], visited: States | None, worth: Sequence[float] | None = None
    ):
        each = [1.0] * len(runs) if worth is None else worth
        known = [(run.measured, w) for run, w in zip(runs, each, strict=True) if run.measured]
        measured = [one for one, _ in known]
        weights = [one.n_transitions * w for one, w in known]
        shares = [one.shares for one in measured]
        mean, square = np.average([one.lp for one in measured], axis=0, weights=weights)
        if visited is not None and len(visited):
            x = visited[:, runs[0].sites]
            shares.append(np.array([(x == v).mean(axis=0) for v in runs[0].ensemble.target.values]))
            weights.append(len(x))
        self.of_sites = 1.0 - np.square(np.average(shares, axis=0, weights=weights)).sum(axis=0)
        # On a flat target log p changes by rounding only.
        rounding = 8 * _EPS * (1.0 + abs(runs[0].reference))
        of_lp = square - mean**2
        self.of_lp = np.array([of_lp if np.sqrt(max(of_lp, 0.0)) > rounding else 0.0])

    def times(self, run: Racer) -> tuple[Found, Found]:
        """Return the times of the sites and of log p."""
        if run.measured is None:
            return UNKNOWN, UNKNOWN
        lags, distances, *_, n = run.measured
        n *= len(run.ensemble)
        variances = self.of_sites, self.of_lp
        of_sites, of_lp = (time_of(distances[..., k], lags, v, n) for k, v in enumerate(variances))
        return of_sites, of_lp


def _shrunk(ess: Array, error: Array, expected: Array) -> tuple[Array, Array]:
    """Return measured sizes and relative errors, given what is expected of their logarithms.

    ``expected`` has an unknown constant added, which is estimated from all candidates.
    """
    with np.errstate(all="ignore"):
        beyond = np.log(ess) - expected
    known = np.isfinite(beyond) & np.isfinite(error)
    if not known.any():
        return ess, error
    error = np.where(known, error, 0.0)
    weight = np.where(known, 1.0 / (_SPREAD**2 + error**2), 0.0)
    common = float(weight @ np.where(known, beyond, 0.0) / weight.sum())
    kept = weight * _SPREAD**2  # of what was measured
    found = np.exp(expected + common + kept * (np.where(known, beyond, common) - common))
    return found, np.where(known, np.sqrt(kept) * error, _SPREAD)


class Race:
    """The candidates' runs, within a budget; an easy target may end a ``brief`` one early."""

    def __init__(
        self,
        entrants: Mapping[str, Racer],
        budget: float,
        doubt: Doubt,
        visited: States | None = None,
        expected: Array | None = None,
        brief: bool = False,
    ):
        self.entrants, self.budget, self.doubt, self.visited = entrants, budget, doubt, visited
        self.expected, self.brief = expected, brief
        self.n_chains = len(self.runs[0].ensemble)
        self.times = [(UNKNOWN, UNKNOWN)] * len(entrants)
        self.racing = self.last = list(range(len(entrants)))  # in the next round, in the last

    @property
    def runs(self) -> list[Racer]:
        """The runs of all candidates."""
        return [*self.entrants.values()]

    @property
    def spent(self) -> float:
        """Log-ratios evaluated by all candidates."""
        return sum(run.spent for run in self.runs)

    def measures(self) -> tuple[Array, Array]:
        """Return effective sizes per work of a Metropolis step, and their relative errors."""
        time = np.array([of_sites.time for of_sites, _ in self.times])
        work = np.array([run.step_work for run in self.runs])
        ess, error = 1.0 / (time * work), np.array([of_sites.error for of_sites, _ in self.times])
        if self.expected is None:
            return ess, error
        sums = [run.acceptance for run in self.runs]
        accepted = [total / max(1.0, n) or 1.0 for total, n in sums]
        of_move = np.array([run.work_of(1.0) for run in self.runs]) / accepted
        return _shrunk(ess, error, self.expected - np.log(of_move))

    def first_work(self) -> float:
        """Return each candidate's log-ratios per chain in the first round, 0 if too few.

        A few transitions measure what one costs.
        """
        if self.budget < self.n_chains * sum(run.fewest_work for run in self.runs):
            return 0.0
        for run in self.runs:
            run.begin()
        left = 0.9 * (self.budget - self.spent) / self.n_chains
        work = left / sum(n * k for n, k in zip(self._plan(), _PLAN, strict=True))
        needed = sum(max(work, run.fewest * run.step_cost) for run in self.runs)
        return work if needed <= left else 0.0

    def _plan(self) -> list[int]:
        """Return about how many candidates there are in each round."""
        n = len(self.runs)
        return [n, *(min(n, max(2, -(-n // 2**k)) + 1) for k in range(1, len(_PLAN)))]

    def run(self, on_run: Callable[[float], None]) -> None:
        """Run all rounds."""
        work, plan = self.first_work(), self._plan()
        parts = [1.0]
        if self.brief and work * _PARTS[0] > max(run.fewest * run.step_cost for run in self.runs):
            parts = [*_PARTS]
        n_rounds = 0
        while work:
            part = parts.pop(0) if parts else 1.0
            left = 0.95 * (self.budget - self.spent) / (self.n_chains * len(self.racing))
            planned = part * work * _PLAN[min(n_rounds, len(_PLAN) - 1)]
            if left < 0.5 * part * work or not self._round(min(planned, left), on_run):
                break
            n_rounds += not parts
            left_in = plan[min(n_rounds, len(plan) - 1)] - 1 if n_rounds else len(self.runs)
            self._drop(max(1, left_in))
            if (n_rounds >= _FEWEST_ROUNDS and self._settled()) or (self.brief and self._is_easy()):
                break

    def _round(self, work: float, on_run: Callable[[float], None]) -> bool:
        """Run all that are racing, if the budget allows it; return whether it did."""
        runs = [self.runs[k] for k in self.racing]
        # A jump process that has not moved yet seems to cost nothing.
        lengths = [max(run.fewest, int(work / max(run.step_cost, 1.0))) for run in runs]
        cost = self.n_chains * sum(n * run.step_cost for n, run in zip(lengths, runs, strict=True))
        begun = self.spent
        if begun + cost > self.budget:
            return False
        # A mixture, which comes first, may have something dear that its first transitions missed:
        # it must not use up what the others need.
        for n, run in reversed(list(zip(lengths, runs, strict=True))):
            before = run.spent
            self._go_on(run, n)
            run.look()
            on_run(run.spent - before)
        self.last = self.racing
        self.times = self._measure()
        return self.spent > begun

    def _measure(self) -> list[tuple[Found, Found]]:
        """Return the times of the sites and of log p of all candidates."""
        pool = Pool(self.runs, self.visited)
        return [pool.times(run) for run in self.runs]

    def _go_on(self, run: Racer, n: int) -> None:
        """Make n transitions, fewer if they turn out to cost more than there is."""
        thin = run.every if run.series is None else run.series.thin
        n_pieces = min(_PIECES, n // (thin * run.piece))
        ends = np.linspace(0, n, max(1, n_pieces) + 1).astype(int).tolist()
        for begin, end in pairwise(ends):
            cost = (end - begin) * run.step_cost * self.n_chains
            if self.spent + 1.2 * cost > self.budget:
                return
            run.go_on(end - begin)

    def _drop(self, most: int) -> None:
        """Leave the best candidates in the race, and two robust ones unless clearly worse."""
        ess, error = self.measures()
        ess = np.nan_to_num(ess)
        best = max(self.racing, key=lambda k: ess[k])
        out = clearly_worse(ess, error, best, _DROPPED)
        left = sorted((k for k in self.racing if not out[k]), key=lambda k: -ess[k])
        robust = [k for k in left if k in self.doubt.robust][:_KEPT]
        self.racing = [*left[:most], *(k for k in robust if k not in left[:most])]
        for k, run in enumerate(self.runs):
            if k not in self.racing:
                run.series = None

    def _settled(self) -> bool:
        """Return whether one is left, or whether the best two are worth the same."""
        if len(self.racing) < 2:
            return True
        ess, error = self.measures()
        best, second = sorted(self.racing, key=lambda k: -ess[k])[:2]
        unsure = _SETTLED * float(np.hypot(error[best], error[second]))
        return bool(np.log(ess[best] / ess[second]) + unsure < _SAME)

    def _is_easy(self) -> bool:
        """Return whether more rounds would gain little, and errors can be trusted so early.

        Slow variables among many fast ones show in sums over all of them only after long runs.
        """
        ess, error = (np.nan_to_num(found[self.racing]) for found in self.measures())
        if not (ess > 0.0).all() or not (error > 0.0).all():
            return False
        doubt = Doubt(*(places(self.racing, some) for some in self.doubt))
        ahead = np.log(ess / ess[doubt.choice(ess, error)])
        z = np.linspace((ahead - 6.0 * error).min(), (ahead + 6.0 * error).max(), 256)
        below = ndtr((z[:, np.newaxis] - ahead) / error).prod(axis=1)
        if z[-1] - np.trapezoid(below, z) > _LITTLE:  # the mean of the largest
            return False
        return all(self.runs[k].unlike < _ALIKE for k in self.racing)

    def outcome(self) -> Outcome:
        """Return the result."""
        runs = self.runs
        time, lp_time = (np.array([found[k].time for found in self.times]) for k in (0, 1))
        ess, error = self.measures()
        with np.errstate(all="ignore"):
            acceptance = np.divide(*np.transpose([run.acceptance for run in runs]))
        return Outcome(
            [*self.entrants],
            1.0 / time,
            error / time,
            ess,
            ess * error,
            1.0 / lp_time,
            acceptance,
            np.array([0 if run.measured is None else run.measured.n_transitions for run in runs]),
            np.array([run.ensemble.n_flips for run in runs]),
            np.isin(np.arange(len(runs)), self.last),
            self.doubt,
        )

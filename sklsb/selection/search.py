"""Where chains start, and when they stop."""

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import f as f_distribution

from sklsb._kernels._jit import distinguish
from sklsb._kernels.selection import state as names
from sklsb._kernels.selection.state import Rates, Sums
from sklsb._system.arrays import Array, Bools, Ints
from sklsb._system.progress import Progress, deferred_interrupt
from sklsb.diagnostics.batches import CHANCE, Batches
from sklsb.ensembles.streams import spawn
from sklsb.selection.chains import Chain, Plan
from sklsb.selection.enumeration import MOST_COLUMNS, MOST_UNITS, fill
from sklsb.selection.problem import LinearProblem, Problem
from sklsb.selection.starts import Ridge, better_model, largest_of_path, ridge

# Anchors and further units of a window that has not all of them.
ANCHORS, REST = 128, 640
RATES = (1.0, 0.3)  # barker, leave
# A fit without ``max_time`` ends unconverged after this many times the work of its first look.
LONGEST = 50.0
# A model so many nats above all that a chain has visited: the others do not matter.
_FAR = 12.0
# Before the first look at errors: batches, and jumps of a chain if a window has not all units.
_FEWEST_BATCHES, _FEWEST_PART_BATCHES, _FEWEST_JUMPS = 16, 6, 12_800


@dataclass
class Estimate:
    """Probabilities of all units with their errors, and how chains agree about them."""

    share: Array
    mcse: Array
    by_chain: Array  # (n_chains, units)
    disagree: Bools


def estimate(batches: list[Batches]) -> Estimate:
    """Return ratios of sums, with errors from the variation of batches and of chains."""
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = [b.begun[0].sum(axis=0, dtype=np.float64) for b in batches]
        shares, times = np.moveaxis(np.array(sums), 1, 0)
        ratio = shares.sum(axis=0) / times.sum(axis=0)
        by_chain = shares / times
        part = times / times.sum(axis=0)
        variance, least = np.zeros_like(ratio), min(b.begun.shape[1] for b in batches)
        for c, b in enumerate(batches):
            share, time = np.moveaxis(b.full[0] if b.begun.shape[1] > 2 else b.begun[0], 1, 0)
            rest = share - by_chain[c] * time
            n = len(rest)
            gamma = np.square(rest).sum(axis=0)
            lag = (rest[1:] * rest[:-1]).sum(axis=0)
            own = (gamma + 2.0 * np.maximum(lag, 0.0)) * n / max(n - 1, 1)
            variance += part[c] ** 2 * own / times[c] ** 2
        c = len(batches)
        between = np.square(by_chain - ratio).sum(axis=0) / max(c * (c - 1), 1)
        if least < 2:  # all that is known of the error is how chains differ
            variance = between
        test = between / np.maximum(variance, 1e-300)
        chance = f_distribution.sf(test, max(c - 1, 1), max(c * (least - 1), 1))
    disagree = (chance * ratio.size < CHANCE) & (c > 1) & (between > 1e-12)
    spread = np.where(disagree, np.maximum(variance, between), variance)
    return Estimate(ratio, np.sqrt(np.nan_to_num(spread, nan=np.inf)), by_chain, disagree)


class Search:
    """A fit: chains on a problem, of which `settle` makes the plan."""

    plan: Plan

    def __init__(
        self,
        problem: Problem,
        kind: type[Chain],
        n_chains: int,
        random_state: object,
        n_jobs: int,
    ):
        # Let the kernels know the classes of what they are given.
        distinguish(problem.columns, problem.posterior)
        self.problem, self.kind, self.n_jobs = problem, kind, n_jobs
        self.streams = spawn(random_state, n_chains)
        self.chains: list[Chain] = []
        self.work = 0.0
        self.interrupted = False
        self._asked: Callable[[], bool] = lambda: False  # by Ctrl-C, to end
        self.progress = Progress(0, "")
        self.ridge: Ridge | None = None

    @property
    def sums(self) -> Sums:
        """Sums over all chains; what is the largest of something is not meant."""
        by_chain = [chain.sums for chain in self.chains]
        return Sums(*(np.sum(parts, axis=0) for parts in zip(*by_chain, strict=True)))

    def _estimate(self) -> Estimate:
        return estimate([chain.batches for chain in self.chains])

    def _forget(self) -> None:
        for chain in self.chains:
            chain.forget()

    # ------------------------------------------------------------- work in parallel

    def _sweep(self, plan: Plan, most_jumps: int = 0) -> Array:
        """Let every chain make a sweep; return the totals, (n_chains, N_TOTALS)."""

        def work(chain: Chain) -> Array:
            return chain.sweep(plan, most_jumps)

        if self.n_jobs == 1:
            found = np.array([work(chain) for chain in self.chains])
        else:
            with ThreadPoolExecutor(self.n_jobs) as pool:
                found = np.array(list(pool.map(work, self.chains)))
        self.work += found[:, names.WORK].sum()
        self.progress()
        if self._asked():
            raise KeyboardInterrupt
        return found

    # ------------------------------------------------------------- before the first draw

    def start(self, units: list[Ints] | None) -> None:
        """Place chains at given models, or in turn at the empty one and at a path's largest."""
        if units is None:
            units = [np.empty(0, dtype=np.int64), largest_of_path(self.problem)]
        self.chains = [
            self.kind(self.problem, rng, units[c % len(units)])
            for c, rng in enumerate(self.streams)
        ]

    def enumerated(self) -> bool:
        """Let chains hold the exact answer, if models are so few that all can be visited."""
        problem = self.problem
        few = problem.n_free <= MOST_UNITS and problem.n_columns <= MOST_COLUMNS
        if not few or not isinstance(problem, LinearProblem):
            return False
        self.start([np.empty(0, dtype=np.int64)])
        fill(self.chains, problem)
        return True

    def first_plan(self, subset_size: int | None) -> Plan:
        """Return the plan to begin with; ``subset_size`` units per window, None: automatic."""
        n, pace = self.problem.n_free, self.kind.pace
        size = subset_size or (n if n <= pace.all_units else ANCHORS + REST)
        anchors, rest = np.empty(0, dtype=np.int64), 0
        if size < n:
            n_anchors = max(1, size * ANCHORS // (ANCHORS + REST))
            rest = size - n_anchors
            each = self.problem.score**2 / self.problem.posterior.square
            first = self.problem.posterior.first[: n + 1]
            alone = np.add.reduceat(each[: first[-1]], first[:-1])
            anchors = np.sort(np.argsort(-alone, kind="stable")[:n_anchors])
        return Plan(anchors, rest, 1.0, pace.windows, Rates(*RATES, 1.0, 0.0))

    def settle(self, subset_size: int | None, tol: float) -> None:
        """Burn in, look for better models, and find what all windows have in common."""
        self.plan = self.to_better_model(self.burn_in(self.first_plan(subset_size)), tol)

    def burn_in(self, plan: Plan) -> Plan:
        """Move the chains; find the anchors and the time of a window."""
        wanted = self._jumps(plan)
        for i in range(self.kind.pace.burn_in):
            self._forget()
            totals = self._sweep(plan, most_jumps=4 * wanted)
            plan = replace(plan, time=self._time(plan, totals, wanted))
            if plan.n_rest and i >= 1:
                share = np.nan_to_num(self._estimate().share)
                order = np.argsort(-share, kind="stable")[: plan.anchors.size]
                plan = replace(plan, anchors=np.sort(order))
        return plan

    def to_better_model(self, plan: Plan, tol: float) -> Plan:
        """Move chains to a model that they missed in the burn-in, if one is found; burn in again.

        All chains that it exceeds by far move. If no chain has seen it, so does every second one:
        where these do not find the way back, chains disagree.
        """
        problem = self.problem
        # Log p of all models where a chain is, about, and the most probable of them.
        reached = [
            (problem.log_p(units) - math.log(share), units)
            for units, share in (chain.most_visited() for chain in self.chains)
        ]
        self.ridge = ridge(problem)
        promise = None if self.ridge is None else self.ridge.promise
        mass, units = max(reached, key=lambda r: r[0])
        log_p, units = better_model(problem, units, promise)
        odd = np.arange(len(self.chains)) % 2 == 1
        odd &= log_p > mass + math.log(tol)
        odd &= not any(chain.has_visited(units) for chain in self.chains)
        moved = odd | (log_p > np.array([mass for mass, _ in reached]) + _FAR)
        for c in np.flatnonzero(moved):
            self.chains[c].move(units)
        return self.burn_in(plan) if moved.any() else plan

    def _jumps(self, plan: Plan) -> int:
        """Return the jumps that a window is to have."""
        return self.kind.pace.part_jumps if plan.n_rest else self.kind.pace.jumps

    def _time(self, plan: Plan, totals: Array, wanted: int) -> float:
        """Return the time of a window in which so many jumps are expected."""
        jumps, spent = totals[:, names.JUMPS].sum(), totals[:, names.TIME].sum()
        return float(np.clip(wanted * spent / max(jumps, 1.0), plan.time / 50, plan.time * 50))

    def tempered(self, plan: Plan, power: float) -> Plan:
        """Return a plan with that power of the likelihood, and about as many jumps per window."""
        plan = replace(plan, rates=self._rates(power))
        wanted = self._jumps(plan)
        # Time is weighted: then the time is that of the process.
        for _ in range(1 if plan.n_rest else 2):
            self._forget()
            jumps = self._sweep(plan, most_jumps=20 * wanted)[:, names.JUMPS].sum()
            n_windows = len(self.chains) * plan.n_windows(self.problem.n_free)
            factor = wanted * n_windows / max(jumps, 1.0)
            plan = replace(plan, time=plan.time * float(np.clip(factor, 0.02, 50.0)))
        return plan

    def _rates(self, power: float) -> Rates:
        """Return rates whose weights are at most 1 for the models that were seen."""
        fit = max(chain.sums.total[names.LARGEST_FIT] for chain in self.chains)
        return Rates(*RATES, power, (1.0 - power) * fit)

    # ------------------------------------------------------------- the draws

    def draw(self, tol: float, max_time: float | None, power: float) -> None:
        """Run the chains; after Ctrl-C keep what was found, if there is anything."""
        end = None if max_time is None else time.monotonic() + max_time
        with deferred_interrupt() as self._asked:
            try:
                if power != 1.0:
                    self.plan = self.tempered(self.plan, power)
                self.run(self.plan, tol, end)
            except KeyboardInterrupt:
                if any(chain.batches.begun.shape[1] < 2 for chain in self.chains):
                    raise
                self.interrupted = True

    def run(self, plan: Plan, tol: float, end: float | None) -> None:
        """Run until the largest error is at most ``tol`` and chains agree, or until time ``end``.

        Without an ``end`` the run is at most `LONGEST` times as long as until the first look.
        """
        self._forget()
        n, before, most = _FEWEST_BATCHES, self.work, 0.0
        if plan.n_rest:
            by_sweep = self._jumps(plan) * plan.n_windows(self.problem.n_free)
            n = max(_FEWEST_PART_BATCHES, -(-_FEWEST_JUMPS // by_sweep))
        while True:
            for _ in range(n):
                self._sweep(plan)
                late = end is not None and time.monotonic() > end
                if late or (end is None and self.work - before > most > 0.0):
                    break
            rates = self._rates(plan.rates.power)
            if rates.shift > plan.rates.shift + names.LARGEST_LOG_WEIGHT:
                return self.run(replace(plan, rates=rates), tol, end)
            found = self._estimate()
            self.progress.end(f"error {found.mcse.max():.3g}")
            most = most or LONGEST * (self.work - before)
            late = late or (end is None and self.work - before > most)
            if late or (found.mcse.max() <= tol and not found.disagree.any()):
                return
            n = min(2 * n, 256)

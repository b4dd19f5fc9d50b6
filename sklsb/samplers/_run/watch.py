"""A call of `sample` under way: its counts, what may end it, and its line of progress."""

import sys
import threading
import time

import numpy as np
from numpy.typing import NDArray

from sklsb.diagnostics.stopping import Rule, RunSoFar, asked, name_of
from sklsb.diagnostics.tally import FEWEST_DRAWS, Counters
from sklsb.ensembles.base import ChainEnsemble
from sklsb.targets.base import States

# Most chains with a line of their own.
_MOST_ROWS = 16
# R-hat takes at most one part in this many of the time.
_SHARE = 50

_SHOWN = ("acceptance_rate", "lp")

Array = NDArray[np.float64]


class Watch:
    """Counts the draws of a call, asks its rules, and has the columns of the line of progress.

    ``next`` is the number of draws of this call at which a segment must end, to ask all rules.
    ``stopped_by`` names the rule that ended the call.
    """

    def __init__(
        self, rules: tuple[Rule, ...], ensemble: ChainEnsemble, n: int, thin: int, verbose: int = 0
    ):
        counters, names = ensemble.counters, ensemble.rule.facts.stat_names
        self.rules, self.target, self.counters, self.requested = rules, ensemble.target, counters, n
        self.thin, self.stopped_by = thin, ""
        self._lock, self._verbose = threading.Lock(), verbose
        self._any_time = [rule for rule in rules if getattr(rule, "any_time", False)]
        self._timed = len(rules) > len(self._any_time)
        self._first, self._began = counters.n_draws, time.perf_counter()
        every = counters.tally.every if counters.tally is not None else 1
        self._unit = FEWEST_DRAWS * max(1, -(-every // thin))
        # 0 if the rules ended a run here before, or were about to be asked.
        self.next = self._from(max(1, counters.n_draws))
        self._accepted, self._places = 0.0, {n: names.index(n) for n in _SHOWN if n in names}
        # Sums and means of statistics, since these were last shown.
        shape = len(ensemble), len(names)
        self._sum, self._n = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        self._means, self._r_hat, self._due = np.full(shape, np.nan), np.nan, 0.0

    # ----------------------------------------------------------------- how far it is

    @property
    def made(self) -> int:
        """Draws of this call so far."""
        return self.counters.n_draws - self._first

    def until(self, n_draws: int) -> int:
        """Return the transitions until so many draws of this call are made."""
        return self.counters.drawing.until(n_draws - self.made)

    def add(self, n: int, states: States, stats: Array) -> None:
        """Count n transitions of each chain, and their draws, (n_chains, n_draws, ...)."""
        with self._lock:
            self.counters.add(n, states, stats[:, :, 0])
        if "acceptance_rate" in self._places:
            self._accepted += float(stats[:, :, self._places["acceptance_rate"]].sum())
        if self._verbose:
            known = ~np.isnan(stats)
            self._sum += np.where(known, stats, 0.0).sum(axis=1)
            self._n += known.sum(axis=1)

    @property
    def acceptance(self) -> float | None:
        """Mean acceptance rate of the draws; None if it is unknown."""
        known = self.made and "acceptance_rate" in self._places
        return self._accepted / (self.made * len(self._sum)) if known else None

    # ----------------------------------------------------------------- what may end it

    def _from(self, n_draws: int) -> int:
        """Return the draws of this call at which all rules are next asked."""
        if not self._timed:
            return sys.maxsize
        # Counted since `fit`, so that calls and crashes in between change nothing.
        at = self._unit
        while at < n_draws:
            at += max(self._unit, at // 10)
        return at - self._first

    def ends(self) -> bool:
        """Return whether a rule ends the run."""
        if not self.rules:
            return False
        rules = self._any_time
        if self.made >= self.next:
            rules, self.next = list(self.rules), self._from(self.counters.n_draws + 1)
        run = self._so_far(self.counters)
        for rule in rules:
            if asked(rule, run):
                self.stopped_by = name_of(rule)
                return True
        return False

    def look(self) -> RunSoFar:
        """Return the state of the run, also to another thread."""
        with self._lock:
            counters = self.counters.copy()
        return self._so_far(counters)

    def _so_far(self, counters: Counters) -> RunSoFar:
        made, seconds = counters.n_draws - self._first, time.perf_counter() - self._began
        run = RunSoFar(self.target, counters, made, seconds)
        run.requested_draws = self.requested
        return run

    # ----------------------------------------------------------------- its line of progress

    def columns(self, last: bool = False) -> list[str]:
        """Return the means over all chains since the last call, and the worst R-hat so far."""
        seen = self._n > 0
        self._means = np.where(seen, self._sum / np.maximum(self._n, 1), self._means)
        self._sum[:], self._n[:] = 0.0, 0
        now = time.perf_counter()
        if last or now >= self._due:
            self._r_hat = self._so_far(self.counters).r_hat
            ended = time.perf_counter()
            self._due = ended + _SHARE * (ended - now)
        found = self._texts(self._means)
        return [*found, *([f"R-hat {self._r_hat:.3f}"] if np.isfinite(self._r_hat) else [])]

    def rows(self) -> list[str]:
        """Return a line per chain with the means that `columns` returned last."""
        n = len(self._means)
        found = [f"  chain {c}: {', '.join(self._texts(self._means[[c]]))}" for c in range(n)]
        more = [f"  and {n - _MOST_ROWS} more chains"] if n > _MOST_ROWS else []
        return [*found[:_MOST_ROWS], *more]

    def _texts(self, means: Array) -> list[str]:
        texts = []
        for name, k in self._places.items():
            known = means[~np.isnan(means[:, k]), k]
            if known.size and name == "lp":
                texts.append(f"lp {known.mean() + self.target.constant:.6g}")
            elif known.size:
                texts.append(f"acceptance {known.mean():.2f}")
        return texts

"""A call of `sample` under way, and what may end it."""

import copy
import sys
import threading
import time

import numpy as np

from sklsb._system.progress import Columns
from sklsb.diagnostics.stopping import RunSoFar, StopRule, asked, name_of
from sklsb.diagnostics.tally import FEWEST_DRAWS
from sklsb.ensembles.base import ChainEnsemble, Counters, Segment


class Watch:
    """A call as stop rules and other threads see it; draws are counted since `fit`.

    It makes those from ``first`` to ``end``. At the ``next`` one a segment must end, to ask all
    rules; ``stopped_by`` names the rule that ended the call.
    """

    def __init__(
        self, rules: tuple[StopRule, ...], ensemble: ChainEnsemble, n: int, thin: int, verbose: int
    ):
        counters = self.counters = ensemble.counters
        self.rules, self.target, self.thin, self.stopped_by = rules, ensemble.target, thin, ""
        self.first, self.end = counters.n_draws, counters.n_draws + n
        self._lock, self._began = threading.Lock(), time.perf_counter()
        every = counters.tally.every if counters.tally is not None else 1
        self._unit = FEWEST_DRAWS * max(1, -(-every // thin))
        # No new draw if the rules ended a run here before, or were about to be asked.
        self.next = self._from(max(1, self.first))
        names = ensemble.rule.facts.stat_names
        self._rate = names.index("acceptance_rate") if "acceptance_rate" in names else None
        self._accepted, self.n_rated = 0.0, 0
        given = names, len(ensemble), self.target.constant, lambda: self._so_far(counters).r_hat
        self.columns = Columns(*given) if verbose else None

    @property
    def made(self) -> int:
        """Draws of this call so far."""
        return self.counters.n_draws - self.first

    def add(self, segment: Segment) -> None:
        """Count the transitions and draws of a segment."""
        with self._lock:
            self.counters.add(segment)
        if self._rate is not None:
            rates = segment.stats[:, :, self._rate]
            known = ~np.isnan(rates)  # no transition to a draw could be refused where it is NaN
            self._accepted += float(rates[known].sum())
            self.n_rated += int(known.sum())
        if self.columns is not None:
            self.columns.add(segment.stats)

    @property
    def acceptance(self) -> float | None:
        """Mean acceptance rate of the draws that have one; None if none has."""
        return self._accepted / self.n_rated if self.n_rated else None

    def _from(self, n_draws: int) -> int:
        """Return the first number of draws, from this one on, at which all rules are asked."""
        if all(getattr(rule, "any_time", False) for rule in self.rules):
            return sys.maxsize
        at = self._unit
        while at < n_draws:
            at += max(self._unit, at // 10)
        return at

    def ends(self) -> bool:
        """Return whether a rule ends the call."""
        n_draws, run = self.counters.n_draws, self._so_far(self.counters)
        if due := n_draws >= self.next:
            self.next = self._from(n_draws + 1)
        for rule in self.rules:
            if (due or getattr(rule, "any_time", False)) and asked(rule, run):
                self.stopped_by = name_of(rule)
                return True
        return False

    def look(self) -> RunSoFar:
        """Return the state of the run, also to another thread."""
        with self._lock:
            counters = copy.deepcopy(self.counters)
        return self._so_far(counters)

    def _so_far(self, counters: Counters) -> RunSoFar:
        made, seconds = counters.n_draws - self.first, time.perf_counter() - self._began
        total = counters.n_draws, counters.n_transitions
        asked_for = self.end - self.first
        return RunSoFar(self.target, counters.tally, made, seconds, *total, asked_for)

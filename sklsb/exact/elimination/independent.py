"""Chains in which every transition is an independent exact draw."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from sklsb._kernels.chains import NoPart
from sklsb._kernels.elimination.buckets import Room, new_room
from sklsb._kernels.facts import Facts
from sklsb._kernels.run import Drawing
from sklsb._system.arrays import Array
from sklsb.ensembles.base import Counters, Out, Streamed
from sklsb.ensembles.compiled import new_chains
from sklsb.ensembles.streams import Streams
from sklsb.exact.elimination.blocks import Whole
from sklsb.exact.elimination.cost import n_entries
from sklsb.exact.elimination.engine import Elimination
from sklsb.targets.base import States, Target


class Redraw(NamedTuple):
    """The rule: the whole state is redrawn. It has no compiled step."""

    n_uniforms: int

    @property
    def facts(self) -> Facts:
        return Facts(self.n_uniforms, transitions_per_sweep=1, evaluation="table entry")

    def new_part(self, view: Any, n_chains: int) -> NoPart:
        """Allocate nothing: the rule keeps nothing of a chain."""
        return NoPart()


class Redraws(Streamed):
    """Independent exact draws from ``source``, as chains; draws do not depend on ``states``."""

    uses_factors = True

    def __init__(self, source: Whole, states: States, streams: Streams, n_jobs: int = 1):
        self.source, self.streams = source, streams
        self.n_jobs = 1 if source.sliced else n_jobs  # sliced: one set of messages at a time
        self.target: Target = self.elimination.target
        self.rule = Redraw(self.elimination.found.n_uniforms)
        self.counters = Counters()
        # Samplers read these; draws do not depend on them.
        self.chains = new_chains(self.target, states, NoPart())
        self.chains.evaluations[:1] = n_entries(self.elimination.found.cost)
        self._rooms: list[Room] = []

    @property
    def elimination(self) -> Elimination:
        return self.source.elimination

    def fixed(self) -> dict[str, Any]:
        return {"found": self.elimination.found}

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "n_jobs": self.n_jobs, "state": self.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"source": state["source"].copy()})

    def like(self, states: States, streams: Streams) -> Self:
        return type(self)(self.source.of(len(states)), states, streams, self.n_jobs)

    def log_prob(self) -> Array:
        return self.target.log_prob(self.chains.x) - self.target.constant

    def make_ahead(self, n: int, coming: int, going_on: Callable[[], bool]) -> bool:
        numbers = [n if self.source.sliced else 0] * len(self)
        try:
            return self.source.want(numbers, coming, self.streams.chain, going_on)
        finally:
            self.chains.evaluations[:1] += self.source.spent()

    def advance(self, uniforms: Array) -> None:
        for c, u in enumerate(uniforms):
            out, lp = np.empty((len(u), self.target.n_sites), self.target.dtype), np.empty(len(u))
            accepted = np.flatnonzero(self.elimination.draw(u, out, lp))
            if accepted.size:
                self.chains.x[c] = out[accepted[-1]]

    def run(self, n: int, drawing: Drawing, out: Out, sums: None = None) -> None:
        (draws, stats), kept, room = out, drawing.kept(n), drawing.room(n)
        self.make_ahead(n, n, lambda: True)
        while len(self._rooms) < len(self):
            self._rooms.append(new_room(self.elimination.passes.plan.buckets))

        def work(span: tuple[int, int]) -> None:
            chains = self.chains
            for c in range(*span):
                # If the model is in one piece, each thread makes the redraws of its chains.
                self.source.fill([c], [n], 0, [self.streams.chain[c]], self._rooms[c])
                x, lp = self.source.take(c, n)
                draws[c, room] = x[kept]
                stats[c, room, 0] = lp[kept] - self.target.constant
                if n:
                    chains.x[c] = x[-1]
                chains.moved[c] = True  # every site had its chance: an exact draw is never stuck
                chains.evaluations[c] += n * self.elimination.entries_per_draw

        self._spread(work, len(self), self.chains)

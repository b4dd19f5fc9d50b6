"""Chains in which a coin chooses between locally balanced steps and exact redraws of blocks."""

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Self

import numpy as np

from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.mixture import Mixture
from sklsb._kernels.rules.redraw import Blocks
from sklsb._kernels.run import Drawing, Sums
from sklsb._system.arrays import Array, Bools
from sklsb.ensembles.base import Out
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.streams import Streams
from sklsb.exact.elimination.blocks import BlockPool, Whole
from sklsb.targets.base import States, Target

Source = Whole | BlockPool


def mixture(rule: Balanced, source: Source, share: float) -> Mixture:
    """Return the rule that redraws with probability ``share`` and else makes a step of ``rule``."""
    sites = source.blocks
    start = np.cumsum([0, *(block.size for block in sites)])
    blocks = Blocks(np.concatenate(sites).astype(np.int64), start.astype(np.int64), source.whole)
    return Mixture.of(rule, blocks, share)


class BlockedEnsemble(Ensemble):
    """Chains moved by a `mixture` of locally balanced steps and redraws of blocks.

    New states come from ``source``, by the streams "redraw"; coins come from the streams "coin".
    """

    rule: Mixture
    uses_factors = True

    def __init__(
        self,
        target: Target,
        states: States,
        streams: Streams,
        n_jobs: int,
        rule: Mixture,
        source: Source,
    ):
        super().__init__(target, states, streams, n_jobs, rule)
        self.source = source
        # Made before threads begin: each must exist once.
        self._redraw = self.streams.of("redraw")
        self._coin = self.streams.of("coin", 1)

    def fixed(self) -> dict[str, Any]:
        source = self.source
        # A `Whole` changes: it holds redraws made ahead.
        kept = source.elimination.found if isinstance(source, Whole) else source
        return super().fixed() | {"source": kept}

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"source": self.source}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"source": state["source"].copy()})

    def like(self, states: States, streams: Streams) -> Self:
        source = self.source.of(len(states))
        made = type(self)(self.target, states, streams, self.n_jobs, self.rule, source)
        made.start(self.rule)
        return made

    def make_ahead(self, n: int, coming: int, going_on: Callable[[], bool]) -> bool:
        coins = self._coins(n if self.source.sliced else 0)
        return self._want(coins, int(self.rule.share * coming) + 1, going_on)

    def _want(
        self,
        coins: list[Bools],
        most: int,
        going_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        try:
            numbers = [int(mine.sum()) for mine in coins]
            return self.source.want(numbers, most, self._redraw, going_on)
        finally:
            self.chains.evaluations[:1, 0] += self.source.spent()

    def _coins(self, n: int) -> list[Bools]:
        """Return which of the next n transitions of each chain will be redraws."""
        return [copy.deepcopy(rng).random(n) < self.rule.share for rng in self._coin]

    def advance(self, uniforms: Array) -> None:
        raise TypeError("A chain with redraws takes no numbers from outside; call run.")

    def run(self, n: int, drawing: Drawing, out: Out, sums: Sums | None = None) -> None:
        self._refresh()
        room = self.chains.part.second.state.shape[1]
        for begin in range(0, n, room):
            self._run_part(min(room, n - begin), drawing.after(begin), out, sums)

    def _run_part(self, n: int, drawing: Drawing, out: Out, sums: Sums | None) -> None:
        # What the coins will be, so that redraws are ready when they come.
        redrawn = self._coins(n)
        self._want(redrawn, 0)
        one, other = (1 + part.facts.n_uniforms for part in (self.rule.first, self.rule.second))

        def work(span: tuple[int, int]) -> None:
            for c in range(*span):
                row = self.streams.numbers(self.rule, c, n)[None]
                places = np.append(0, np.cumsum(np.where(redrawn[c], other, one)))
                for begin, end in self._pieces(redrawn[c]):
                    self._prepare(c, redrawn[c][begin:end])
                    mine, later = row[:, places[begin] : places[end]], drawing.after(begin)
                    self._run((c, c + 1), mine, end - begin, later, out, sums)

        self._over_chains(work)

    def _pieces(self, redrawn: Bools) -> list[tuple[int, int]]:
        """Divide transitions into those whose redraws can be made before them."""
        # A redraw of a block depends on the state before it.
        begins = [] if self.source.whole else np.flatnonzero(redrawn).tolist()
        return [piece for piece in pairwise([0, *begins, redrawn.size]) if piece[0] < piece[1]]

    def _prepare(self, c: int, redrawn: Bools) -> None:
        """Have the redraws of a piece ready, and count what they take with weighing all moves."""
        if isinstance(self.source, BlockPool):
            if not redrawn[0]:
                return
            new, entries = self.source.redraw(self.chains.x[c], self._redraw[c])
            states = new[np.newaxis]
        else:
            states, _ = self.source.take(c, int(redrawn.sum()))
            entries = len(states) * self.source.elimination.entries_per_draw
        waiting = self.chains.part.second
        waiting.state[c, : len(states)] = states
        waiting.taken[c] = 0
        self.chains.evaluations[c] += entries + len(states) * self.chains.moved.shape[1]

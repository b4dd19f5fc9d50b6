"""Chains whose every transition is an independent exact draw."""

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._elimination.engine import Elimination, n_entries
from sklsb._elimination.reduce import Array
from sklsb._kernels.elimination.buckets import LINEAR, Room, new_room
from sklsb._kernels.facts import Facts
from sklsb._kernels.state import NoPart
from sklsb.state import ChainState, Counters
from sklsb.streams import Streams
from sklsb.targets.base import States, Target

# Uniform numbers that are held at once.
_MOST_NUMBERS = 1 << 22
# Values that are drawn ahead in each chain of a sliced model.
_MOST_AHEAD = 1 << 26


class Redraw(NamedTuple):
    """The rule: the whole state is drawn anew; it has no compiled step.

    Parameters
    ----------
    n_uniforms : int
        Uniform numbers of a draw.
    """

    n_uniforms: int

    @property
    def facts(self) -> Facts:
        """What Python must know of the rule."""
        return Facts(
            n_uniforms=self.n_uniforms,
            transitions_per_sweep=1,
            evaluation="table entry",
        )

    def new_part(self, view: Any, n_chains: int) -> NoPart:
        """Nothing: what is kept does not depend on the chain."""
        return NoPart()


@dataclass
class _Chains:
    """What samplers look at; nothing of it has a say in the next draw."""

    x: States
    moved: NDArray[np.bool_]
    evaluations: NDArray[np.int64]
    acceptance: Array
    part: NoPart


class Redraws:
    """Independent exact draws, as chains.

    Parameters
    ----------
    elimination : Elimination
        The model, eliminated.
    states : ndarray of shape (n_chains, n_sites)
        Present states; draws do not depend on them.
    streams : Streams
        Of random numbers.
    n_jobs : int
        Number of threads.
    """

    def __init__(self, elimination: Elimination, states: States, streams: Streams, n_jobs: int = 1):
        self.elimination, self.streams, self.n_jobs = elimination, streams, n_jobs
        self.target: Target = elimination.target
        self.rule = Redraw(elimination.found.n_uniforms)
        self.counters = Counters()
        n = len(states)
        self.chains = _Chains(
            x=np.array(states, dtype=self.target.dtype, order="C"),
            moved=np.zeros((n, int((self.target.cardinalities - 1).sum())), dtype=np.bool_),
            evaluations=np.zeros((n, 1), dtype=np.int64),
            acceptance=np.zeros((n, 1)),
            part=NoPart(),
        )
        self.chains.evaluations[:1] = n_entries(elimination.found.cost)
        # Draws that were made ahead, by chain: states and log p.
        self._ahead = [(self.chains.x[:0], np.empty(0))] * n
        self._wanted = 0
        self._pool: ThreadPoolExecutor | None = None
        self._rooms: list[Room] = []

    def __len__(self) -> int:
        return len(self.streams)

    # ----------------------------------------------------------------- all that goes on

    def state(self) -> ChainState:
        """All that the chains need to go on, bit for bit."""
        return ChainState.of(self.chains, self.streams, self.rule, self.counters)

    def fixed(self) -> dict[str, Any]:
        """Return what never changes while draws are made, by name: checkpoints leave it out."""
        return {"found": self.elimination.found}

    def __getstate__(self) -> dict[str, Any]:
        return {
            "found": self.elimination.found,
            "log_sums": self.elimination.log_sums,
            "n_jobs": self.n_jobs,
            "state": self.state(),
            "ahead": copy.deepcopy(self._ahead),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        elimination = Elimination(state["found"], LINEAR)
        elimination.log_sums[:] = state["log_sums"]
        kept: ChainState = state["state"]
        self.__init__(elimination, kept.x, kept.streams.copy(), state["n_jobs"])  # type: ignore[misc]
        kept.put(self.chains)
        self.counters = kept.counters.copy()
        self._ahead = state["ahead"]

    def copy(self) -> "Redraws":
        """Return chains that go on by themselves."""
        made = type(self).__new__(type(self))
        made.__setstate__(self.__getstate__())
        return made

    def like(self, states: States, streams: Streams) -> "Redraws":
        """Return chains of the same rule at other states, on other streams."""
        elimination = Elimination(self.elimination.found, LINEAR)
        return type(self)(elimination, states, streams, self.n_jobs)

    # ----------------------------------------------------------------- moving

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Keep a pool of threads for the time of a sample."""
        # A sliced model has one set of messages at a time.
        if min(self.n_jobs, len(self)) == 1 or self.elimination.log_sums.size > 1:
            yield
            return
        with ThreadPoolExecutor(min(self.n_jobs, len(self))) as self._pool:
            try:
                yield
            finally:
                self._pool = None

    def _over_chains(self, work: Callable[[int, Room], None]) -> None:
        """Call work(chain, room) on every chain."""
        n = len(self)
        while len(self._rooms) < n:
            self._rooms.append(new_room(self.elimination.passes.plan.buckets))
        # The messages are made before the threads begin.
        self.elimination.run()
        if self.elimination.log_sums.size == 1:
            self.elimination.forward(0)
        if self._pool is None:
            for c in range(n):
                work(c, self._rooms[c])
        else:
            list(self._pool.map(work, range(n), self._rooms))

    def add_evaluations(self, n: NDArray[np.int64]) -> None:
        """Count some of each chain that were made elsewhere."""
        self.chains.evaluations[:, 0] += n

    def forget_acceptance(self) -> None:
        """Nothing is refused."""

    def log_prob(self) -> Array:
        """Log p of each chain's state, without the target's constant."""
        return self.target.log_prob(self.chains.x) - self.target.constant

    def want(self, n: int) -> None:
        """Announce so many transitions, so that a sliced model is eliminated once for all."""
        self._wanted = n

    def advance(self, uniforms: Array) -> None:
        """Make transitions driven by uniforms of shape (n_chains, n_transitions, n_uniforms)."""
        for c, u in enumerate(uniforms):
            out, lp = np.empty((len(u), self.target.n_sites), self.target.dtype), np.empty(len(u))
            accepted = np.flatnonzero(self.elimination.draw(u, out, lp))
            if accepted.size:
                self.chains.x[c] = out[accepted[-1]]

    def run(
        self, n_transitions: int, schedule: tuple[int, int, int], draws: States, stats: Array
    ) -> None:
        """Make transitions in every chain, storing every ``thin``-th.

        ``schedule`` is (thin, transitions since the last draw, index of the next draw).
        """
        thin, made, first = schedule

        def work(c: int, room: Room) -> None:
            x, lp = self._take(c, n_transitions, room)
            if thin:
                kept = slice(thin - 1 - made, None, thin)
                n = lp[kept].size
                draws[c, first : first + n] = x[kept]
                stats[c, first : first + n, 0] = lp[kept]
            if n_transitions:
                self.chains.x[c] = x[-1]
            self.chains.moved[c] = True  # had it had the chance: an exact draw is never stuck
            self.chains.evaluations[c] += n_transitions * self.elimination.entries_per_draw

        self._over_chains(work)
        self._wanted = max(0, self._wanted - n_transitions)

    def _take(self, c: int, n: int, room: Room) -> tuple[States, Array]:
        """Return the next n draws of a chain, and their log p without the constant."""
        if self.elimination.log_sums.size == 1:
            return self._make(c, n, room)
        x, lp = self._ahead[c]
        if len(x) < n:
            most = max(n, _MOST_AHEAD // max(1, self.target.n_sites))
            more = self._make(c, min(max(n, self._wanted), most) - len(x), room)
            x, lp = np.concatenate([x, more[0]]), np.concatenate([lp, more[1]])
        self._ahead[c] = x[n:], lp[n:]
        return x[:n], lp[:n]

    def _make(self, c: int, n: int, room: Room) -> tuple[States, Array]:
        """Draw until n draws are accepted; the last one made is the last one accepted."""
        rng, width = self.streams.chain[c], self.rule.n_uniforms
        before = copy.deepcopy(rng.bit_generator.state)
        x, lp = np.empty((n, self.target.n_sites), self.target.dtype), np.empty(n)
        done, most = 0, max(1, _MOST_NUMBERS // max(1, width))
        try:
            while done < n:
                size = min(n - done, most)
                u = rng.random((size, width))
                accepted = self.elimination.draw(
                    u, x[done : done + size], lp[done : done + size], room
                )
                if not accepted.all():
                    rows = done + np.flatnonzero(accepted)
                    x[done : done + rows.size], lp[done : done + rows.size] = x[rows], lp[rows]
                    size = rows.size
                done += size
        except BaseException:  # Ctrl-C: the numbers are not lost
            rng.bit_generator.state = before
            raise
        return x, lp - self.target.constant

"""What several chains on one target have in common, whatever moves them."""

import copy
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from sklsb._kernels.chains import Chains
from sklsb._kernels.objectives import Objective
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.run import NEVER, Drawing
from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import at_once
from sklsb.diagnostics.tally import Tally
from sklsb.ensembles.state import ChainState
from sklsb.ensembles.streams import Streams
from sklsb.targets.base import States, Target

# Transitions of the first segment, and seconds that later ones should take.
FIRST_SEGMENT = 64
_SEGMENT_SECONDS = 0.1
# Most uniform numbers of one chain between two returns to Python.
MOST_NUMBERS = 1 << 18
# Most moves drawn from one gradient.
MOST_FLIPS = 64
NO_DRAWS = Drawing()
Out = tuple[States, Array]


class Room(NamedTuple):
    """Arrays that draws and their statistics go to, by chain and draw."""

    states: States
    stats: Array
    at: int = 0  # place of the first draw
    sums: Any = None  # what kernels add each draw to, or write besides


class Segment(NamedTuple):
    """Transitions of all chains, and the draws that they made.

    ``x`` has shape (n_chains, n_draws, n_sites), ``stats`` (n_chains, n_draws, n_stats). Observers
    see x in the shape of the target, and log p with the target's constant.
    """

    n_transitions: int
    x: States
    stats: Array
    drawing: Drawing  # what holds after them

    @property
    def lp(self) -> Array:
        """Log-density of each draw, of shape (n_chains, n_draws)."""
        return self.stats[:, :, 0]

    @property
    def places(self) -> slice:
        """Which draws these are, as ``drawing`` counts them."""
        return slice(self.drawing.at - self.lp.shape[1], self.drawing.at)


@dataclass
class Counters:
    """How far the chains have come since `fit`; ``drawing`` counts all their draws."""

    drawing: Drawing = NO_DRAWS
    n_transitions: int = 0
    tally: Tally | None = None

    @property
    def n_draws(self) -> int:
        """Draws of each chain."""
        return self.drawing.at

    def until(self, n_draws: int) -> int:
        """Return the transitions until there are so many draws."""
        return self.drawing.until(n_draws - self.n_draws)

    def begin(self, thin: int = NEVER) -> None:
        """Go on by draws ``thin`` transitions apart, with what there is of one; or by none."""
        if thin != self.drawing.thin:
            self.drawing = Drawing(thin, at=self.n_draws)

    def add(self, segment: Segment) -> None:
        """Count the transitions and draws of a segment."""
        if self.tally is not None:
            self.tally.add(segment.x, segment.lp, segment.drawing.thin)
        self.n_transitions += segment.n_transitions
        self.drawing = segment.drawing


def next_segment(segment: int, size: int, seconds: float) -> int:
    """Return the transitions of the next segment, about a tenth of a second."""
    return max(1, min(4 * segment, int(size * _SEGMENT_SECONDS / max(seconds, 1e-9))))


class ChainEnsemble(ABC):
    """Chains on one target: what every sampler needs of them, and threads for their work.

    ``chains`` has their arrays, one row each: states ``x``; ``moved`` marks the moves that were
    made, and the first move of a site, whether the site changed; ``evaluations`` are counts, and
    ``acceptance`` sums since the last draw, of shape (n, 1).
    """

    target: Target
    streams: Streams
    counters: Counters
    chains: Any
    rule: Any
    n_jobs: int
    uses_factors = False  # whether draws are made from the factors of the target
    _pool: Executor | None = None

    def __len__(self) -> int:
        return len(self.streams)

    @property
    def n_flips(self) -> int:
        """Moves proposed together."""
        return 1

    @property
    def n_numbers(self) -> int:
        """Numbers that are held for a transition of one chain."""
        return int(self.rule.facts.n_uniforms)

    @abstractmethod
    def run(self, n: int, drawing: Drawing, out: Out, sums: Any = None) -> None:
        """Make n transitions in every chain, storing draws; ``sums`` as in `Room`."""

    def room(self, n: int, n_stats: int = 2) -> Room:
        """Return new arrays for n draws."""
        shape, target = (len(self), n), self.target
        states = np.empty((*shape, target.n_sites), target.dtype)
        return Room(states, np.zeros((*shape, n_stats)))

    def make_ahead(self, n: int, coming: int, going_on: Callable[[], bool]) -> bool:
        """Precompute redraws for the next n of ``coming`` transitions; False if interrupted."""
        return True

    def segments(
        self,
        n: int,
        drawing: Drawing = NO_DRAWS,
        room: Callable[[int], Room] | None = None,
        *,
        most: Callable[[], int] = lambda: sys.maxsize,
        ahead: Callable[[int], bool] = lambda size: True,
    ) -> Iterator[Segment]:
        """Make n transitions, in segments that take about a tenth of a second, and their draws.

        Draws go to ``room(number)``. A segment has at most ``most()`` transitions, 0 to end; before
        it, ``ahead(size)`` says whether to go on.
        """
        at_most = at_once(MOST_NUMBERS, self.n_numbers)
        usual = 1 if self.target.offers.may_be_slow else FIRST_SEGMENT
        while (size := min(usual, n, at_most, most())) > 0:
            began = time.perf_counter()
            if not ahead(size):
                return
            number = drawing.count(size)
            x, stats, at, sums = Room(*(room or self.room)(number))
            self.run(size, drawing._replace(at=at), (x, stats), sums)
            here, drawing = slice(at, at + number), drawing.after(size)
            yield Segment(size, x[:, here], stats[:, here], drawing)
            n -= size
            usual = next_segment(usual, size, time.perf_counter() - began)

    @abstractmethod
    def log_prob(self) -> Array:
        """Log p of each chain's state, without the target's constant."""

    @abstractmethod
    def state(self) -> ChainState:
        """All that the chains need to go on, bit for bit; copies."""

    @abstractmethod
    def fixed(self) -> dict[str, Any]:
        """Return what never changes while draws are made, by name: checkpoints leave it out."""

    @abstractmethod
    def like(self, states: States, streams: Streams) -> Self:
        """Return chains with the same rule at other states, on other streams."""

    @abstractmethod
    def forget_acceptance(self) -> None:
        """Reset the mean acceptance."""

    @abstractmethod
    def add_evaluations(self, n: Ints) -> None:
        """Add evaluations of each chain that were made elsewhere."""

    def copy(self) -> Self:
        """Return independent chains that go on the same way."""
        return copy.copy(self)

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Keep a pool of threads for a fit or a sample."""
        if self.n_jobs == 1:
            yield
            return
        with ThreadPoolExecutor(self.n_jobs) as self._pool:
            try:
                yield
            finally:
                self._pool = None

    def use_threads(self, n: int) -> None:
        """Use at most n threads, and one for each chain."""
        self.n_jobs = min(n, max(1, len(self.streams)))

    def _spread(self, work: Callable[[tuple[int, int]], None], n: int, chains: Chains) -> None:
        """Call work((first, last)) on one range of 0, ..., n per thread."""
        # If a function of the target fails, the target puts the chains back and raises the error.
        with self.target.guard(chains) as stop:
            if self._pool is None:
                work((0, n))
                return
            ends = np.linspace(0, n, self.n_jobs + 1).astype(int).tolist()
            futures = [self._pool.submit(work, span) for span in pairwise(ends)]
            try:
                for future in futures:
                    future.result()
            except BaseException as error:  # such as Ctrl-C: no thread may go on
                stop(error)
                wait(futures)
                raise


class Streamed(ChainEnsemble):
    """Chains with a row of arrays and a stream each."""

    def state(self) -> ChainState:
        return ChainState.of(self.chains, self.streams, self.rule, self.counters)

    def __setstate__(self, given: dict[str, Any]) -> None:
        """Go on from ``given["state"]``; the rest are parameters of ``__init__``."""
        settings = dict(given)
        state: ChainState = settings.pop("state")
        self.__init__(states=state.x, streams=state.streams.copy(), **settings)  # type: ignore[misc]
        state.put(self.chains)
        self.counters = copy.deepcopy(state.counters)

    def forget_acceptance(self) -> None:
        self.chains.acceptance[:] = 0.0
        self.chains.refusable[:] = 0

    def add_evaluations(self, n: Ints) -> None:
        self.chains.evaluations[:, 0] += n


class LearnableEnsemble(Streamed):
    """Chains whose balancing function can be learned, and on torch their number of flips."""

    update_every = 1  # fewest iterations of the burn-in between two updates

    @property
    def adapting(self) -> bool:
        """Whether the number of flips may still change."""
        return False

    @abstractmethod
    def start(self, rule: Any) -> None:
        """Let a rule move the chains, and compute what is kept from their states."""

    @abstractmethod
    def advance(self, uniforms: Array) -> None:
        """Make transitions driven by uniforms of shape (n_chains, n_transitions, n_uniforms)."""

    @property
    @abstractmethod
    def cost(self) -> int:
        """Log-ratios evaluated to look at all neighbours of one state."""

    @property
    @abstractmethod
    def enumeration_cost(self) -> int:
        """The same for the acceptances of all, in units of those that the target makes at once."""

    @property
    @abstractmethod
    def step_cost(self) -> float:
        """Mean number of evaluations per transition."""

    @abstractmethod
    def proposal_log_ratios(self) -> Array:
        """Return the log-ratios of all moves at each chain's state, (n_chains, n_moves)."""

    @abstractmethod
    def objective(
        self,
        rule: Balanced,
        settings: tuple[Objective, float, int],
        uniforms: Array,
        log_omega: Array,
    ) -> tuple[float, Array, float]:
        """Return an objective and its gradients at the knots and by eta, averaged over the chains.

        ``settings`` = (objective, eta, every): an enumerated objective visits every ``every``-th
        neighbour. The rule moves the chains from then on.
        """

    @abstractmethod
    def flux(self, rule: Balanced, sites: Ints, weight: Array) -> tuple[float, Array, Array]:
        """Return value, gradient and flows of `_kernels.objectives.flux`, averaged over chains."""

    def follow(self, acceptance: float, n_transitions: int) -> None:
        """Adjust the number of flips to the acceptance of the last transitions, while it adapts."""

    def adapt(self, rule: Any, n_transitions: int) -> None:
        """Tune the number of flips for the frozen rule, moving the chains, then freeze it."""

    def begin_like(self, other: Any) -> None:
        """Begin with the number of flips of other chains."""

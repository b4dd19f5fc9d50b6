"""What samplers and learning need of an ensemble, several chains on one target."""

from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.facts import Rule
from sklsb._kernels.objectives import Objective
from sklsb._kernels.rules.balanced import Balanced
from sklsb.diagnostics.tally import Counters
from sklsb.ensembles.state import ChainState
from sklsb.ensembles.streams import Streams
from sklsb.targets.base import States, Target

Array = NDArray[np.float64]
# Uniform numbers of one chain between two returns to Python, at most.
MOST_NUMBERS = 1 << 17
# Moves that may be drawn from one gradient.
MOST_FLIPS = 64


class Carried(Protocol):
    """Arrays of the chains that samplers look at, one row each."""

    @property
    def x(self) -> States:
        """States."""

    @property
    def moved(self) -> NDArray[np.bool_]:
        """Which moves were made, or by the first move of each site which sites changed."""

    @property
    def evaluations(self) -> NDArray[np.int64]:
        """Counts of shape (n, 1)."""

    @property
    def acceptance(self) -> Array:
        """Sums since the last draw, of shape (n, 1)."""


class ChainEnsemble(Protocol):
    """Chains that a rule moves: what every sampler needs."""

    target: Target
    streams: Streams
    counters: Counters

    @property
    def chains(self) -> Carried:
        """Their arrays."""

    @property
    def rule(self) -> Rule:
        """What moves them."""

    def __len__(self) -> int:
        """Return the number of chains."""

    def threads(self) -> AbstractContextManager[None]:
        """Keep threads for the time of a fit or a sample."""

    def advance(self, uniforms: Array) -> None:
        """Make transitions driven by uniforms of shape (n_chains, n_transitions, n_uniforms)."""

    def run(
        self, n_transitions: int, schedule: tuple[int, int, int], draws: States, stats: Array
    ) -> None:
        """Make transitions on the chains' own streams, and store draws."""

    def forget_acceptance(self) -> None:
        """Begin the mean acceptance anew."""

    def add_evaluations(self, n: NDArray[np.int64]) -> None:
        """Count some of each chain that were made elsewhere."""

    def log_prob(self) -> Array:
        """Log p of each chain's state, without the target's constant."""

    def state(self) -> ChainState:
        """All that the chains need to go on, bit for bit."""

    def fixed(self) -> dict[str, Any]:
        """Return what never changes while draws are made, by name: checkpoints leave it out."""

    def copy(self) -> "ChainEnsemble":
        """Return chains that go on by themselves."""

    def like(self, states: States, streams: Streams) -> "ChainEnsemble":
        """Return chains of the same rule at other states, on other streams."""


class LearnableEnsemble(ChainEnsemble, Protocol):
    """Chains of locally balanced proposals, whose function can be learned."""

    @property
    def update_every(self) -> int:
        """Iterations of the burn-in between two updates, at least."""

    def start(self, rule: Balanced) -> None:
        """Let a function propose, and compute what is kept from the states."""

    @property
    def cost(self) -> int:
        """Evaluations that it takes to look at all neighbours of one state."""

    @property
    def enumeration_cost(self) -> int:
        """The same in units of single log-ratios, for their acceptances."""

    @property
    def step_cost(self) -> float:
        """Mean number of evaluations that a transition takes."""

    def proposal_log_ratios(self) -> Array:
        """Log-ratios that all moves are proposed by, shape (n_chains, n_moves)."""

    def objective(
        self,
        rule: Balanced,
        settings: tuple[Objective, float, int],
        uniforms: Array,
        log_omega: Array,
    ) -> tuple[float, Array, float]:
        """Mean of an objective over the chains, of its gradient at the knots and by eta."""

    def flux(
        self, rule: Balanced, sites: NDArray[np.int64], weight: Array
    ) -> tuple[float, Array, Array]:
        """Mean of a flux objective, of its gradient at the knots, and of the flows."""


@runtime_checkable
class Adaptive(Protocol):
    """An ensemble whose number of flips per gradient is found out while its chains run."""

    @property
    def n_flips(self) -> int:
        """The present number."""

    @property
    def adapting(self) -> bool:
        """Whether it may still change."""

    def follow(self, acceptance: float, n_transitions: int) -> None:
        """Let it follow the acceptance of the last transitions."""

    def adapt(self, rule: Rule, n_transitions: int) -> None:
        """Find it for a rule that changes no more, in so many transitions, and keep it."""

    def begin_like(self, other: Any) -> None:
        """Let the search begin where that of other chains is."""

"""What samplers and learning need of an ensemble, several chains on one target."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.facts import Rule
from sklsb._kernels.objectives import Objective
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.run import Drawing
from sklsb.diagnostics.tally import Counters
from sklsb.ensembles.state import ChainState
from sklsb.ensembles.streams import Streams
from sklsb.targets.base import States, Target

Array = NDArray[np.float64]
# Most uniform numbers of one chain between two returns to Python.
MOST_NUMBERS = 1 << 18
# Most moves drawn from one gradient.
MOST_FLIPS = 64


class Carried(Protocol):
    """Arrays of the chains that samplers look at, one row each.

    ``moved`` marks the moves that were made; the first move of a site, whether the site changed.
    ``evaluations`` are counts, and ``acceptance`` sums since the last draw, of shape (n, 1).
    """

    @property
    def x(self) -> States: ...
    @property
    def moved(self) -> NDArray[np.bool_]: ...
    @property
    def evaluations(self) -> NDArray[np.int64]: ...
    @property
    def acceptance(self) -> Array: ...


class ChainEnsemble(Protocol):
    """Chains that a rule moves: what every sampler needs; see `Ensemble` for the methods."""

    target: Target
    streams: Streams
    counters: Counters

    @property
    def uses_factors(self) -> bool:
        """Whether draws are made from the factors of the target."""

    @property
    def chains(self) -> Carried: ...
    @property
    def rule(self) -> Rule: ...
    def __len__(self) -> int: ...
    def threads(self) -> AbstractContextManager[None]: ...
    def use_threads(self, n: int) -> None: ...
    def make_ahead(self, n: int, coming: int, going_on: Callable[[], bool]) -> bool: ...
    def advance(self, uniforms: Array) -> None: ...
    def run(self, n_transitions: int, drawing: Drawing, draws: States, stats: Array) -> None: ...
    def forget_acceptance(self) -> None: ...
    def add_evaluations(self, n: NDArray[np.int64]) -> None: ...
    def log_prob(self) -> Array: ...
    def state(self) -> ChainState: ...
    def fixed(self) -> dict[str, Any]: ...
    def copy(self) -> "ChainEnsemble": ...
    def like(self, states: States, streams: Streams) -> "ChainEnsemble": ...


class LearnableEnsemble(ChainEnsemble, Protocol):
    """Chains whose balancing function can be learned; see `BalancedEnsemble` for the methods."""

    @property
    def update_every(self) -> int:
        """Fewest iterations of the burn-in between two updates."""

    def start(self, rule: Rule) -> None: ...
    @property
    def cost(self) -> int: ...
    @property
    def enumeration_cost(self) -> int: ...
    @property
    def step_cost(self) -> float: ...
    def proposal_log_ratios(self) -> Array: ...
    def objective(
        self,
        rule: Balanced,
        settings: tuple[Objective, float, int],
        uniforms: Array,
        log_omega: Array,
    ) -> tuple[float, Array, float]: ...
    def flux(
        self, rule: Balanced, sites: NDArray[np.int64], weight: Array
    ) -> tuple[float, Array, Array]: ...


@runtime_checkable
class Adaptive(Protocol):
    """An ensemble that tunes its number of flips per gradient while its chains run."""

    @property
    def n_flips(self) -> int:
        """The present number."""

    @property
    def adapting(self) -> bool:
        """Whether it may still change."""

    def follow(self, acceptance: float, n_transitions: int) -> None:
        """Adjust it to the acceptance of the last transitions."""

    def adapt(self, rule: Rule, n_transitions: int) -> None:
        """Tune n_flips for the frozen rule, then freeze it."""

    def begin_like(self, other: Any) -> None:
        """Begin with the number of other chains."""

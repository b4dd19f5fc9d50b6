"""The objective of the first version of the paper, "sampled_kl"; nothing else needs this file.

In the notation of `sklsb.balancing.learning` it is (Q'/Q) A log(T'/p') at a proposed x', summed
over a chain's state and a state drawn from the initial distribution. p' is relative to the present
state, and all chains have the same weight. A penalty is added to the mean over the chains: it keeps
a monotonic network from a decreasing t f(1/t).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.objectives import OBJECTIVES
from sklsb._kernels.rules.balanced import Balanced
from sklsb.balancing.functions import LearnableFunction
from sklsb.balancing.learning import Adam, Learner, Momentum
from sklsb.ensembles.protocol import LearnableEnsemble
from sklsb.ensembles.streams import Streams
from sklsb.targets.base import States, Target

Array = NDArray[np.float64]


class FirstVersionLearner(Learner):
    """Learns by "sampled_kl"; ``new_ensemble`` makes chains from a target, states and streams."""

    def __init__(
        self,
        function: LearnableFunction,
        optimizer: Adam | Momentum,
        ensemble: LearnableEnsemble,
        new_ensemble: Callable[[Target, States, Streams], LearnableEnsemble],
    ):
        super().__init__(function, "sampled_kl", optimizer)
        self.target = ensemble.target
        self.new_ensemble = new_ensemble
        # Separate streams, so that it does not matter when the chains' numbers are drawn.
        rngs = [np.random.default_rng(rng.integers(2**63)) for rng in ensemble.streams.of("scout")]
        self.streams = Streams(rngs)

    def gradient(
        self,
        ensemble: LearnableEnsemble,
        rule: Balanced,
        log_prob: Array,
        extra: Array,
        first: Array,
    ) -> tuple[float, Array, float]:
        """Add the objective at new draws of the initial distribution."""
        value, by_knots, _ = super().gradient(ensemble, rule, log_prob, extra, first)
        states = np.stack([self.target.draw_state(rng) for rng in self.streams.chain])
        others = self.new_ensemble(self.target, states, self.streams)
        others.start(rule)
        settings, equal = (OBJECTIVES["sampled_kl"], self.eta, 1), np.zeros(len(others))
        more = others.objective(rule, settings, extra.copy(), equal)
        return value + more[0], by_knots + more[1], 0.0

    def by_theta(self, value: float, by_knots: Array) -> tuple[float, Array]:
        """Add the penalty of the function."""
        value, gradient = super().by_theta(value, by_knots)
        penalty, more = self.function.penalty()
        return value + penalty, gradient + more

"""How many moves are drawn from one gradient."""

import math
from collections.abc import Callable

import numpy as np

from sklsb.ensembles.base import MOST_FLIPS

# Best acceptance for flips per gradient, about; how fast their logarithm follows.
_ACCEPTANCE, _GAIN, _FASTEST = 0.6, 0.05, 0.5
# Transitions between two changes of the number, for a frozen function.
_ROUND = 16


class AdaptiveFlips:
    """Number of moves drawn from one gradient: fixed, or tuned if ``n_flips`` is "auto".

    While it adapts, its logarithm rises if the chains accept more than 60% of their proposals, and
    falls if they accept less. It starts at 1, and never exceeds the number of sites.
    """

    def __init__(self, n_flips: int | str, n_sites: int):
        self.adapting = n_flips == "auto"
        self.n_flips = 1 if self.adapting else int(n_flips)
        self._log = 0.0
        self._log_most = math.log(min(MOST_FLIPS, max(1, n_sites)))

    def begin_like(self, other: "AdaptiveFlips") -> None:
        """Begin with the number of another search."""
        self.n_flips, self._log = other.n_flips, other._log

    def follow(self, acceptance: float, n_transitions: int) -> None:
        """Adjust the number to the mean acceptance of the last proposals, while it adapts."""
        if not self.adapting:
            return
        gain = min(_GAIN * n_transitions, _FASTEST)
        change = gain * (acceptance - _ACCEPTANCE)
        self._log = min(max(self._log + change, 0.0), self._log_most)
        self.n_flips = round(math.exp(self._log))

    def adapt(self, move: Callable[[int], float], n_transitions: int) -> None:
        """Tune the number for a frozen function in about ``n_transitions``, then freeze it.

        ``move`` makes a number of transitions and returns their mean acceptance.
        """
        found = [self._log]
        for _ in range(n_transitions // _ROUND):
            self.follow(move(_ROUND), _ROUND)
            found.append(self._log)
        self.n_flips = round(math.exp(float(np.mean(found[len(found) // 2 :]))))
        self.adapting = False

"""What a run must know of the sampler that made it."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from sklsb.ensembles.rules import transitions_of_a_sweep
from sklsb.ensembles.streams import Streams
from sklsb.exact.elimination.reduce import cancelling_site
from sklsb.targets._checks import n_threads
from sklsb.targets.base import States, Target
from sklsb.trials.starts import Starts
from sklsb.trials.thinning import THINNING, Thinning, find_thinning


class Traits(ABC):
    """The base of `Algorithm` for questions after `fit`; parameters as for `Fit`."""

    _in_files = True  # also classes of users

    # Advice if chains disagree, besides what helps any chain.
    way_out: ClassVar[str] = (
        'take ParallelTempering (the page "Parallel tempering for separated modes" of the '
        "documentation)"
    )
    # Whether draws are independent, and so visit every mode.
    independent: ClassVar[bool] = False
    # Whether chains can go on if log p has changed since `fit`.
    can_follow: ClassVar[bool] = True

    def __init__(self, params: Any, target: Target) -> None:
        self.params, self.target = params, target

    @property
    def n_threads(self) -> int:
        """Number of threads that ``n_jobs`` means."""
        return n_threads(self.params.n_jobs)

    @abstractmethod
    def more_starts(self, ensemble: Any, streams: Streams) -> Starts:
        """Return the states that new chains beside fitted ones start from."""

    def burn_in_length(self) -> int:
        """Transitions of new chains with the fitted rule before their first draw."""
        return int(self.params.n_burn_in or 0)

    def after_burn_in(self, ensemble: Any) -> None:
        """Reset what the burn-in of new chains counted."""
        ensemble.chains.moved[:] = False

    @property
    def may_stay(self) -> bool:
        """Whether chains may stay in one place for long."""
        return True

    def attrs(self, ensemble: Any) -> dict[str, Any]:
        """Return attributes of draws that are of this sampler."""
        return {}

    def copies(self, ensemble: Any, streams: Streams) -> Any:
        """Return chains that go on from the present states, on other streams, one for each."""
        return ensemble.like(ensemble.chains.x[: len(streams)], streams)

    def find_thin(self, ensemble: Any) -> Thinning:
        """Return how far apart draws are worth half an independent one each."""
        # Of a copy: the streams of the chains do not know of it.
        streams = Streams(ensemble.streams.copy().of("pilot", THINNING))
        sweep = transitions_of_a_sweep(ensemble.rule, self.target)
        spent = int(ensemble.chains.evaluations.sum())
        return find_thinning(self.copies(ensemble, streams), sweep, spent)

    def findings(self, ensemble: Any) -> dict[str, NDArray[Any]]:
        """Return, by chain, what is checked in addition after draws."""
        return {}

    def warn_of(self, findings: dict[str, NDArray[Any]]) -> None:  # noqa: B027
        """Warn about these findings."""

    def doubt_of_draws(self, ensemble: Any) -> str:
        """Say why rounding of log p may make the draws wrong, or return ""."""
        if not self.target.offers.factors:
            return "The draws may be wrong where differences of log p are lost"
        site = cancelling_site(self.target)
        if site is None:
            return ""
        return (
            f"At variable {self.target.label(site)!r} several such numbers may cancel, and what "
            "they leave is lost: the draws may be wrong"
        )

    def third_values(self, x: States) -> float:
        """Return the probability of a third value of a variable given the others.

        Beyond its two likeliest ones; summed over variables, averaged over states.
        """
        target, sizes = self.target, self.target.cardinalities
        if not (target.n_possible > 2).any():
            return 0.0
        log_ratios = target.log_ratios(x)
        first_move = target.offers.first_moves
        total = 0.0
        for size in np.unique(sizes[sizes > 2]):
            moves = first_move[sizes == size][:, np.newaxis] + np.arange(size - 1)
            p = softmax(np.pad(log_ratios[:, moves], ((0, 0), (0, 0), (0, 1))), axis=2)
            total += float(np.sort(p, axis=2)[:, :, :-2].sum())
        return total / len(log_ratios)

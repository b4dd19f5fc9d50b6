"""What a target offers besides log p: one object that all rooms ask."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb._system.arrays import Ints


def of_target(name: str, doc: str | None = None) -> Any:
    """Return a property that is read from the attribute ``target``."""
    return property(attrgetter(f"target.{name}"), doc=doc)


def of_plain(name: str, doc: str) -> Any:
    """Return a property that is read from the target without its evidence."""
    return of_target(f"_plain.{name}", doc)


_MANY = 1 << 16


@dataclass(frozen=True)
class Offers:
    """What a target offers to those who want more than log p; see `Target.offers`."""

    target: Any

    plain = of_target("_plain", "The target without its evidence.")
    graph = of_target("graph", "Which variables depend on each other directly; None if unknown.")
    single_precision = of_target("_is_single", "Whether log p is computed in single precision.")
    class_view = of_target("_class_view", "Return arrays for sweeps by colour if faster; or None.")
    # Evidence changes nothing of these.
    layers = of_plain("layers", "The machine of two layers, if the target is one; or None.")
    pairwise = of_plain("_pairwise", "The model of couplings between pairs, if it is one; or None.")
    factors = of_plain("_has_factors", "Whether there are `log_factors`, slow to list perhaps.")
    own_factors = of_plain("_trusts_factors", "Whether sklsb made them, so they need no check.")
    children = of_plain("_children", "The variable whose table each factor is; or None.")
    joint_zeros = of_plain("_joint_zeros", "Whether factors over several variables may be 0.")
    size = of_plain("_log_prob_size", "Bound of the sum of sizes of terms of log p; 0 if unknown.")
    linear = of_plain("_linear", "Whether first-order log-ratios are exact.")
    may_change = of_plain("_may_change", "Whether log p may change, as a user's function may.")
    torch_model = of_plain("_torch_model", "Return log p with its gradient, or a TypeError.")
    look = of_plain("_look", "Look at a function of the user before a fit, or ``again`` later.")

    @property
    def may_be_slow(self) -> bool:
        """Whether a transition may take long: of a user's function, or many variables."""
        return self.may_change or self.target.n_sites > _MANY

    @property
    def n_moves(self) -> int:
        """Number of states that differ from one in a single variable."""
        return int((self.target.cardinalities - 1).sum())

    @property
    def site_of_moves(self) -> Ints:
        """The variable that each move changes."""
        return np.repeat(np.arange(self.target.n_sites), self.target.cardinalities - 1)

    @property
    def first_moves(self) -> Ints:
        """The index of the first move of each variable."""
        n_moves = self.target.cardinalities - 1
        return np.cumsum(n_moves) - n_moves

    def after_moves(self, places: NDArray[Any]) -> Ints:
        """Return the place of the value that each move leads to, from places (..., n_sites)."""
        site = self.site_of_moves
        other = np.arange(site.size) - self.first_moves[site]
        after: Ints = other + (other >= places[..., site])
        return after

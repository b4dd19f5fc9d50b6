"""What Python must know of a rule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Facts:
    """What Python must know of a rule.

    Parameters
    ----------
    n_uniforms : int
        Uniform numbers that a transition takes; of a mixture, at most.
    transitions_per_sweep : int, optional
        Transitions in which each variable has one chance to move; the number of variables if not
        given.
    stat_names : tuple of str
        What is known of each draw: the first ones of lp, acceptance_rate, log_weight. Of ladders,
        lp and visit.
    evaluation : str
        What ``n_evaluations_`` counts.
    carried : tuple of str
        Arrays of the rule's part of a chain that go from one transition to the next and do not
        follow from the state; the dots lead to the parts inside a mixture.
    needs : mapping of str to str
        Attributes that a target must have, with the words for them in an error.
    reversible : bool
        Whether a transition is reversible; if not, it only leaves p as it is.
    sees_all_moves : bool
        Whether it looks at all moves out of a state, or at those of a few variables.
    may_be_periodic : bool
        Whether a chain that changes its state in every transition may go in circles.
    parts : tuple of rules
        Those inside a mixture.
    """

    n_uniforms: int
    transitions_per_sweep: int | None = None
    stat_names: tuple[str, ...] = ("lp",)
    evaluation: str = "log-ratio of a change"
    carried: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    reversible: bool = True
    sees_all_moves: bool = False
    may_be_periodic: bool = False
    parts: tuple["Rule", ...] = ()


class Rule(Protocol):
    """What a chain does in one transition: a named tuple, compiled functions, and some facts."""

    @property
    def facts(self) -> Facts:
        """What Python must know of it."""

    def new_part(self, target: Any, n_chains: int) -> Any:
        """Allocate what it keeps of some chains beside their states, one row each."""


class Choosing(Protocol):
    """A rule that lets a coin choose among others."""

    def chosen(self, coins: NDArray[np.float64]) -> NDArray[np.intp]:
        """Which of its parts each coin chooses."""

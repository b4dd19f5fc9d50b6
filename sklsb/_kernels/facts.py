"""Properties of rules that Python uses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Facts:
    """Properties of a rule that Python uses.

    Parameters
    ----------
    n_uniforms : int
        Uniform numbers per transition; for a mixture, the most.
    transitions_per_sweep : int, optional
        Transitions in which each variable has one chance to move; by default the number of
        variables.
    stat_names : tuple of str
        Statistics of each draw: lp, perhaps also acceptance_rate. Ladders have lp and visit.
    evaluation : str
        What ``n_evaluations_`` counts.
    carried : tuple of str
        Arrays of the rule's part of a chain that pass from one transition to the next and cannot be
        computed from the state. Dots lead to the parts inside a mixture.
    needs : mapping of str to str
        Attributes that a target must have, with their descriptions for errors.
    reversible : bool
        Whether a transition is reversible. If not, it only leaves p invariant.
    sees_all_moves : bool
        Whether a transition considers all moves out of a state, not those of a few variables.
    may_be_periodic : bool
        Whether a chain that moves in every transition may cycle.
    in_order : bool
        Whether a transition works in an order of its own, for which it needs `Target._class_view`.
    takes_words : bool
        Whether a transition may be given one word in place of the numbers that it makes.
    seeded : bool
        Whether the last of the uniform numbers seeds as many further ones as a transition needs;
        outcomes are then no step functions of it.
    conserves_counts : bool
        Whether the number of variables that have each value never changes, so that draws are from
        p restricted to states with the counts of the start.
    block_size : int
        Variables that a transition may change together.
    parts : tuple of rules
        The rules inside a mixture.
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
    in_order: bool = False
    takes_words: bool = False
    seeded: bool = False
    conserves_counts: bool = False
    block_size: int = 1
    parts: tuple["Rule", ...] = ()


class Rule(Protocol):
    """What a chain does in one transition: a named tuple with compiled functions and facts."""

    @property
    def facts(self) -> Facts:
        """Properties that Python uses."""

    def new_part(self, target: Any, n_chains: int) -> Any:
        """Allocate what the rule keeps of chains beside their states, one row each."""


class Choosing(Protocol):
    """A rule in which a coin chooses among others."""

    def chosen(self, coins: NDArray[np.float64]) -> NDArray[np.intp]:
        """Part chosen by each coin."""

"""The rule that has no compiled step, and the length of a sweep by any rule."""

from typing import Any, NamedTuple

from sklsb._kernels.chains import NoPart
from sklsb._kernels.facts import Facts, Rule
from sklsb._kernels.numeric import Table
from sklsb.targets.base import Target


class FirstOrder(NamedTuple):
    """Locally balanced proposals by first-order log-ratios, on torch; it has no compiled step.

    A transition does nothing with probability ``lazy``, and else proposes ``n_flips`` moves that
    are drawn from one gradient.
    """

    table: Table
    lazy: float = 0.0
    n_flips: int = 1

    @property
    def facts(self) -> Facts:
        """See `Facts`."""
        return Facts(
            n_uniforms=2,
            stat_names=("lp", "acceptance_rate"),
            evaluation="log-density with its gradient",
            sees_all_moves=True,
            may_be_periodic=self.n_flips == 1,
        )

    def new_part(self, target: Any, n_chains: int) -> NoPart:
        """Return nothing: chains are kept on torch."""
        return NoPart()


def transitions_of_a_sweep(rule: Rule, target: Target) -> int:
    """Return the transitions in which each variable has one chance to move."""
    found = rule.facts.transitions_per_sweep
    return max(1, target.n_sites if found is None else found)

"""Rules: what a chain does in one transition.

A rule is a named tuple of numbers and arrays, with compiled functions and `Facts` for Python.
``doc/add_sampler.rst`` walks through an example.
"""

from typing import Any, NamedTuple

from sklsb._kernels.chains import NoPart
from sklsb._kernels.facts import Facts, Rule
from sklsb._kernels.numeric import Table
from sklsb._kernels.rules.balanced import PLAIN, Balanced
from sklsb._kernels.rules.chromatic import Chromatic
from sklsb._kernels.rules.clusters import Bonds, SwendsenWang
from sklsb._kernels.rules.gibbs import RandomBlocks, Systematic
from sklsb._kernels.rules.hamming_ball import HammingBall
from sklsb._kernels.rules.jump import Jump
from sklsb._kernels.rules.layers import Layers
from sklsb._kernels.rules.mixture import Mixture
from sklsb._kernels.rules.swap import Swap
from sklsb.targets.base import Target

__all__ = [
    "PLAIN",
    "Balanced",
    "Bonds",
    "Chromatic",
    "Facts",
    "FirstOrder",
    "HammingBall",
    "Jump",
    "Layers",
    "Mixture",
    "NoPart",
    "RandomBlocks",
    "Rule",
    "Swap",
    "SwendsenWang",
    "Systematic",
    "Table",
    "transitions_of_a_sweep",
]


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

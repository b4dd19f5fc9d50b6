"""A mixture of two rules: a coin that does not depend on the state chooses which one moves.

If both rules are reversible, so is the mixture. (`sklsb.Mixture` is something else: a mixture of
balancing functions.)
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements
from sklsb._kernels.chains import with_part
from sklsb._kernels.contract import n_used, prepare, rebuild, row_of, step
from sklsb._kernels.facts import Facts, Rule


class Parts(NamedTuple):
    """The parts of both rules."""

    first: Any
    second: Any
    last: NDArray[np.int64]  # (n, 1) which rule moved last: 0, 1, or -1 for none


class Mixture(NamedTuple):
    """The rule: with probability ``share`` the second rule, else the first."""

    first: Any
    second: Any
    share: float
    widths: tuple[int, int]  # numbers per transition of each; 0: see `n_used`

    @classmethod
    def of(cls, first: Rule, second: Rule, share: float) -> "Mixture":
        """Mix two rules; ``share`` is the probability of the second."""
        one, other = (0 if f.parts else f.n_uniforms for f in (first.facts, second.facts))
        return cls(first, second, float(share), (one, other))

    @property
    def facts(self) -> Facts:
        """Properties that follow from those of both rules."""
        parts: tuple[Rule, ...] = (self.first, self.second)
        one, other = (part.facts for part in parts)
        same_sweep = one.transitions_per_sweep == other.transitions_per_sweep
        return Facts(
            n_uniforms=1 + max(one.n_uniforms, other.n_uniforms),
            transitions_per_sweep=one.transitions_per_sweep if same_sweep else None,
            stat_names=max(one.stat_names, other.stat_names, key=len),
            carried=(
                "last",
                *(f"first.{name}" for name in one.carried),
                *(f"second.{name}" for name in other.carried),
            ),
            needs={**one.needs, **other.needs},
            reversible=one.reversible and other.reversible,
            sees_all_moves=one.sees_all_moves or other.sees_all_moves,
            may_be_periodic=one.may_be_periodic and other.may_be_periodic,
            seeded=one.seeded or other.seeded,
            conserves_counts=one.conserves_counts and other.conserves_counts,
            evaluation=one.evaluation if one.evaluation == other.evaluation else "evaluation",
            parts=parts,
        )

    def new_part(self, target: Any, n_chains: int) -> Parts:
        """Allocate the parts of both rules."""
        first, second = (rule.new_part(target, n_chains) for rule in (self.first, self.second))
        return Parts(first, second, np.full((n_chains, 1), -1))

    def chosen(self, coins: NDArray[np.float64]) -> NDArray[np.intp]:
        """Rule chosen by each coin, 0 or 1."""
        return (coins < self.share).astype(np.intp)


@implements(row_of, Parts)
def _row_of(part, c):
    return Parts(row_of(part.first, c), row_of(part.second, c), part.last[c])


@implements(n_used, Mixture)
def _n_used(rule, u):
    if u[0] < rule.share:
        return 1 + (rule.widths[1] if rule.widths[1] > 0 else n_used(rule.second, u[1:]))
    return 1 + (rule.widths[0] if rule.widths[0] > 0 else n_used(rule.first, u[1:]))


@implements(rebuild, Mixture)
def _rebuild(view, rule, chain):
    """Rebuild the part of the rule that moved last; the other is prepared before its next move."""
    if chain.part.last[0] == 0:
        rebuild(view, rule.first, with_part(chain, chain.part.first))
    if chain.part.last[0] == 1:
        rebuild(view, rule.second, with_part(chain, chain.part.second))


@implements(prepare, Mixture)
def _prepare(view, rule, chain):
    chain.part.last[0] = -1


@implements(step, Mixture)
def _step(view, rule, chain, u):
    """U = (the coin, the numbers of the rule that it chooses)."""
    if u[0] < rule.share:
        second = with_part(chain, chain.part.second)
        if chain.part.last[0] != 1:
            prepare(view, rule.second, second)
            chain.part.last[0] = 1
        return step(view, rule.second, second, u[1:])
    first = with_part(chain, chain.part.first)
    if chain.part.last[0] != 0:
        prepare(view, rule.first, first)
        chain.part.last[0] = 0
    return step(view, rule.first, first, u[1:])

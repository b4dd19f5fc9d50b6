"""A rule of one's own, compiled part included, and its sampler: Metropolis, single changes."""

from typing import NamedTuple

import numpy as np

from sklsb import Ising
from sklsb.extending import (
    Facts,
    FixedRuleSampler,
    NoPart,
    exp,
    flip,
    implements,
    log_ratio,
    step,
)
from sklsb.testing import check_rule, check_sampler


class Metropolis(NamedTuple):
    """One of all moves, drawn uniformly; accepted with probability min(1, p(x') / p(x))."""

    n_moves: int

    @property
    def facts(self):
        return Facts(
            n_uniforms=2,
            stat_names=("lp", "acceptance_rate"),
            may_be_periodic=True,
        )

    def new_part(self, target, n_chains):
        return NoPart()


@implements(step, Metropolis)
def _step(view, rule, chain, u):
    """U = (to choose a move, to accept it)."""
    move = np.uint64(min(np.int64(u[0] * rule.n_moves), rule.n_moves - 1))
    acceptance = min(1.0, exp(log_ratio(view, chain, move)))
    chain.evaluations[0] += 1
    if u[1] < acceptance:
        chain.moved[np.int64(move)] = True
        flip(view, chain, move)
    return acceptance


class MetropolisSampler(FixedRuleSampler):
    """The sampler of this rule."""

    def make_rule(self, target):
        n_moves = int((target.cardinalities - 1).sum())
        if not n_moves:
            raise ValueError(f"{target!r} has no variable that could change.")
        return Metropolis(n_moves)


def example():
    coupling = np.array([[0.0, 0.8, 0.0], [0.8, 0.0, -0.5], [0.0, -0.5, 0.0]])
    return Ising(coupling, field=[0.3, -0.2, 0.6])


if __name__ == "__main__":
    target = example()
    check_rule(MetropolisSampler().make_rule(target), target)
    check_sampler(MetropolisSampler(n_chains=2), target)
    sampler = MetropolisSampler(n_chains=2, random_state=0).fit(target)
    print(dict(sampler.sample(100)["x"].sizes))

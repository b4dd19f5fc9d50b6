"""Cluster updates of models with couplings of pairs: Swendsen-Wang and Wolff.

A coupling J of two variables is *satisfied* if they have the values that it favours: equal ones if
J > 0, different ones if J < 0. A satisfied coupling becomes a bond with probability 1 - exp(-c),
where c is by how much log p falls if it is not satisfied. Given the bonds, p is a product over the
clusters that they connect: adding a number to all values of a cluster, modulo the number k of
values, keeps every bond satisfied, and changes log p by the fields of the cluster alone. So a
cluster can be drawn given the bonds, by k weights.

**One number per variable.** Bonds to a variable that is not yet in a cluster are tried one after
another, and it joins at the first that holds. With w uniform on (0, 1] and q the probability that
there is no bond, there is one if w > q; else w / q is again uniform, and serves for the next bond.
What is left at the end draws the shift of the cluster that grows from the variable.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.contract import first_move, init_cache, row_of, step
from sklsb._kernels.facts import Facts
from sklsb._kernels.numeric import exp

NEEDS = {"_pairwise": "couplings of pairs of variables, as Ising and Potts models have"}
# Near critical points the clusters of about this many transitions cover the variables once.
_CLUSTERS_OF_A_SWEEP = 10
# Always flipping would merely alternate between the two phases of a cold lattice.
_MOST_MOVING = 0.875


class Bonds(NamedTuple):
    """Couplings of the unobserved variables, and the fields that act on them.

    Variables with a single possible value are part of the fields.
    """

    sites: NDArray[np.uint32]  # unobserved
    start: NDArray[np.int64]  # of the neighbours of each variable, with the end
    neighbour: NDArray[np.uint32]
    missing: NDArray[np.float64]  # exp(-c) above 0; negative for couplings of different values
    field: NDArray[np.float64]  # (n_sites, k); (0, k) if none matters
    spins: bool  # values -1 and 1, not 0 to k - 1

    @property
    def n_sites(self) -> int:
        """Number of variables, observed ones too."""
        return self.start.size - 1


class Growth(NamedTuple):
    """Memory for one cluster after another."""

    number: NDArray[np.float64]  # of each variable, uniform on (0, 1]; 0 in a cluster
    member: NDArray[np.uint32]  # of the cluster, and room for one that does not join
    weight: NDArray[np.float64]  # of each shift

    @classmethod
    def of(cls, bonds: Bonds, n_chains: int) -> "Growth":
        """Allocate it."""
        n, k = bonds.n_sites, bonds.field.shape[1]
        number, weight = np.empty((n_chains, n)), np.empty((n_chains, k))
        return cls(number, np.empty((n_chains, n + 1), dtype=np.uint32), weight)


@implements(row_of, Growth)
def _row_of(part, c):
    return Growth(part.number[c], part.member[c], part.weight[c])


class SwendsenWang(NamedTuple):
    """The rule: all clusters are drawn given the bonds."""

    bonds: Bonds

    @property
    def facts(self) -> Facts:
        """Properties of the rule."""
        return Facts(
            n_uniforms=self.bonds.n_sites,
            transitions_per_sweep=1,
            evaluation="bond that was tried",
            needs=NEEDS,
        )

    def new_part(self, target: Any, n_chains: int) -> Growth:
        """Allocate memory for clusters."""
        return Growth.of(self.bonds, n_chains)


class Wolff(NamedTuple):
    """The rule: the cluster of one random variable moves on, by Metropolised Gibbs sampling."""

    bonds: Bonds

    @property
    def facts(self) -> Facts:
        """Properties of the rule."""
        return Facts(
            n_uniforms=self.bonds.n_sites + 1,
            transitions_per_sweep=max(1, min(self.bonds.sites.size, _CLUSTERS_OF_A_SWEEP)),
            stat_names=("lp", "acceptance_rate"),
            evaluation="bond that was tried",
            needs=NEEDS,
        )

    def new_part(self, target: Any, n_chains: int) -> Growth:
        """Allocate memory for clusters."""
        return Growth.of(self.bonds, n_chains)


@inlined
def _begin(chain, u):
    """Take all variables out of clusters, and give each its number."""
    for i in range(chain.part.number.size):
        chain.part.number[i] = 1.0 - u[i]


@inlined
def _grow(bonds, chain, root):
    """List the cluster of a variable, itself first; return its size."""
    number, member = chain.part.number, chain.part.member
    number[root] = 0.0
    member[0] = root
    size, n_tried, at = np.int64(1), np.int64(0), 0
    while at < size:
        i = np.uint64(member[at])
        x = chain.x[i]
        at += 1
        # Without branches, which could not be predicted.
        for k in range(bonds.start[i], bonds.start[i + np.uint64(1)]):
            j, missing = np.uint64(bonds.neighbour[k]), bonds.missing[k]
            w, q = number[j], abs(missing)
            tried = (w > 0.0) & ((chain.x[j] == x) == (missing > 0.0))
            joins = tried & (w > q)
            number[j] = 0.0 if joins else (w / q if tried else w)
            member[size] = j
            size += np.int64(joins)
            n_tried += np.int64(tried)
    chain.evaluations[0] += n_tried
    return size


@inlined
def _value(bonds, x):
    """Index of a value."""
    return (np.int64(x) + 1) >> 1 if bonds.spins else np.int64(x)


@inlined
def _weigh(bonds, chain, size):
    """Compute the weight of each shift of a cluster, the largest 1; return their sum."""
    member, weight = chain.part.member, chain.part.weight
    n_values = weight.size
    if bonds.field.shape[0] == 0:
        for d in range(n_values):
            weight[d] = 1.0
        return np.float64(n_values)
    for d in range(n_values):
        weight[d] = 0.0
    for m in range(size):
        i = np.uint64(member[m])
        value = _value(bonds, chain.x[i])
        for d in range(n_values):
            weight[d] += bonds.field[i, value]
            value = value + 1 if value + 1 < n_values else 0
    largest = -np.inf
    for d in range(n_values):
        largest = max(largest, weight[d])
    total = 0.0
    for d in range(n_values):
        weight[d] = exp(weight[d] - largest) if weight[d] < largest else 1.0
        total += weight[d]
    return total


@inlined
def _shift(view, bonds, chain, size, d):
    """Add d to the values of a cluster, modulo their number; the cache is out of date then."""
    n_values = chain.part.weight.size
    for m in range(size):
        i = np.uint64(chain.part.member[m])
        value = _value(bonds, chain.x[i]) + d
        value -= n_values if value >= n_values else 0
        chain.x[i] = 2 * value - 1 if bonds.spins else value
        chain.moved[np.int64(first_move(view, i))] = True


@implements(step, SwendsenWang)
def _update_all(view, rule, chain, u):
    """U = (to try bonds to each variable, and to draw the cluster that grows from it)."""
    bonds, number, weight = rule.bonds, chain.part.number, chain.part.weight
    _begin(chain, u)
    for s in range(bonds.sites.size):
        root = np.uint64(bonds.sites[s])
        w = number[root]
        if w > 0.0:
            size = _grow(bonds, chain, root)
            w *= _weigh(bonds, chain, size)
            chosen = 0
            for d in range(weight.size):
                if weight[d] > 0.0:
                    chosen = d  # the last possible one, if rounding leaves none
                    if w <= weight[d]:
                        break
                    w -= weight[d]
            if chosen > 0:
                _shift(view, bonds, chain, size, chosen)
    # Changing the cache flip by flip takes longer.
    init_cache(view, chain)
    return np.nan


@implements(step, Wolff)
def _update_one(view, rule, chain, u):
    """U = (to try bonds to each variable, and to draw the cluster; to choose where it grows)."""
    bonds, weight = rule.bonds, chain.part.weight
    n, n_sites = bonds.sites.size, chain.part.number.size
    if n == 0:
        return 0.0
    _begin(chain, u)
    root = np.uint64(bonds.sites[min(np.int64(u[n_sites] * n), n - 1)])
    w = chain.part.number[root]
    size = _grow(bonds, chain, root)
    total = _weigh(bonds, chain, size)
    others = 0.0
    for d in range(1, weight.size):
        others += weight[d]
    moving, chosen = 0.0, 0
    for d in range(1, weight.size):
        if weight[d] > 0.0:
            # Proposed in proportion to its weight, and accepted with probability
            # min(1, others / (total - weight[d])).
            moving += weight[d] / max(others, total - weight[d])
            if chosen == 0 and w <= _MOST_MOVING * moving:
                chosen = d
    if chosen > 0:
        _shift(view, bonds, chain, size, chosen)
        init_cache(view, chain)
    return min(moving, 1.0)

"""Cluster updates of models with couplings of pairs: Swendsen-Wang and Wolff.

A coupling J of two variables is *satisfied* if they have the values that it favours: equal ones if
J > 0, different ones if J < 0. A satisfied coupling becomes a bond with probability 1 - exp(-c),
where c is by how much log p falls if it is not satisfied. Given the bonds, p is a product over the
clusters that they connect: adding a number to all values of a cluster, modulo the number k of
values, keeps every bond satisfied, and changes log p by the fields of the cluster alone. So a
cluster can be drawn given the bonds, by k weights.

**One number per variable.** A variable that is not yet in a cluster is offered the bonds to it one
after another, and joins at the first that holds. With u its number and q_1, q_2, ... the
probabilities that the bonds offered are missing, it joins at the first m with
1 - u > q_1 ... q_m. Until then 1 - u is uniform below this product, so if no bond holds, it also
draws the shift of the cluster that grows from the variable.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.contract import first_move, flip, row_of, step
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

    left: NDArray[np.float64]  # bound of 1 - u of each variable; 0 in a cluster
    member: NDArray[np.uint32]
    shifted: NDArray[np.float64]  # weight of each shift

    @classmethod
    def of(cls, bonds: Bonds, n_chains: int) -> "Growth":
        """Allocate it."""
        n, k = bonds.n_sites, bonds.field.shape[1]
        left, shifted = np.empty((n_chains, n)), np.empty((n_chains, k))
        return cls(left, np.empty((n_chains, n), dtype=np.uint32), shifted)


@implements(row_of, Growth)
def _row_of(part, c):
    return Growth(part.left[c], part.member[c], part.shifted[c])


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
def _begin(chain):
    """Take all variables out of clusters."""
    for i in range(chain.part.left.size):
        chain.part.left[i] = 1.0


@inlined
def _grow(bonds, chain, root, u):
    """List the cluster of a variable, itself first; return its size."""
    left, member = chain.part.left, chain.part.member
    left[root] = 0.0
    member[0] = root
    size, n_tried = 1, 0
    at = 0
    while at < size:
        i = np.uint64(member[at])
        x = chain.x[i]
        at += 1
        for k in range(bonds.start[i], bonds.start[i + np.uint64(1)]):
            j = np.uint64(bonds.neighbour[k])
            if left[j] > 0.0 and (chain.x[j] == x) == (bonds.missing[k] > 0.0):
                n_tried += 1
                left[j] *= abs(bonds.missing[k])
                if 1.0 - u[j] > left[j]:
                    left[j] = 0.0
                    member[size] = j
                    size += 1
    chain.evaluations[0] += n_tried
    return size


@inlined
def _value(bonds, x):
    """Index of a value."""
    return (np.int64(x) + 1) >> 1 if bonds.spins else np.int64(x)


@inlined
def _weigh(bonds, chain, size):
    """Compute the weight of each shift of a cluster, the largest 1; return their sum."""
    member, shifted = chain.part.member, chain.part.shifted
    n_values = shifted.size
    if bonds.field.shape[0] == 0:
        for d in range(n_values):
            shifted[d] = 1.0
        return np.float64(n_values)
    for d in range(n_values):
        shifted[d] = 0.0
    for m in range(size):
        i = np.uint64(member[m])
        value = _value(bonds, chain.x[i])
        for d in range(n_values):
            shifted[d] += bonds.field[i, value]
            value = value + 1 if value + 1 < n_values else 0
    largest = -np.inf
    for d in range(n_values):
        largest = max(largest, shifted[d])
    total = 0.0
    for d in range(n_values):
        # Not the difference, where sums overflow.
        shifted[d] = exp(shifted[d] - largest) if shifted[d] < largest else 1.0
        total += shifted[d]
    return total


@inlined
def _shift(view, bonds, chain, size, d):
    """Add d to the values of a cluster, modulo their number."""
    n_values = chain.part.shifted.size
    for m in range(size):
        i = np.uint64(chain.part.member[m])
        before = _value(bonds, chain.x[i])
        after = before + d
        after -= n_values if after >= n_values else 0
        move = first_move(view, i) + np.uint64(after - np.int64(after > before))
        flip(view, chain, move)
        chain.moved[np.int64(move)] = True


@implements(step, SwendsenWang)
def _update_all(view, rule, chain, u):
    """U = (to offer bonds to each variable, and to draw the cluster that grows from it)."""
    bonds, shifted = rule.bonds, chain.part.shifted
    _begin(chain)
    for s in range(bonds.sites.size):
        root = np.uint64(bonds.sites[s])
        if chain.part.left[root] > 0.0:
            r = (1.0 - u[root]) / chain.part.left[root]
            size = _grow(bonds, chain, root, u)
            r *= _weigh(bonds, chain, size)
            chosen = 0
            for d in range(shifted.size):
                if shifted[d] > 0.0:
                    chosen = d  # the last possible one, if rounding leaves none
                    if r <= shifted[d]:
                        break
                    r -= shifted[d]
            if chosen > 0:
                _shift(view, bonds, chain, size, chosen)
    return np.nan


@implements(step, Wolff)
def _update_one(view, rule, chain, u):
    """U = (to offer bonds to each variable, and to draw the cluster; to choose where it grows)."""
    bonds, shifted = rule.bonds, chain.part.shifted
    n = bonds.sites.size
    if n == 0:
        return 0.0
    _begin(chain)
    k = min(np.int64(u[chain.part.left.size] * n), n - 1)
    root = np.uint64(bonds.sites[k])
    size = _grow(bonds, chain, root, u)
    total = _weigh(bonds, chain, size)
    others = 0.0
    for d in range(1, shifted.size):
        others += shifted[d]
    moving, chosen = 0.0, 0
    for d in range(1, shifted.size):
        if shifted[d] > 0.0:
            # Proposed in proportion to its weight, and accepted with probability
            # min(1, others / (total - shifted[d])).
            moving += shifted[d] / max(others, total - shifted[d])
            if chosen == 0 and 1.0 - u[root] <= _MOST_MOVING * moving:
                chosen = d
    if chosen > 0:
        _shift(view, bonds, chain, size, chosen)
    return min(moving, 1.0)

"""Cluster updates of models with couplings of pairs, by Swendsen and Wang.

A coupling J of two variables is *satisfied* if they have the values that it favours: equal ones if
J > 0, different ones if J < 0. A satisfied coupling becomes a bond with probability 1 - exp(-c),
where c is by how much log p falls if it is not satisfied. Given the bonds, p is a product over the
clusters that they connect: adding a number to all values of a cluster, modulo the number k of
values, keeps every bond satisfied, and changes log p by the fields of the cluster alone. So a
cluster can be drawn given the bonds, by k weights.

**One number for all bonds to a variable.** A variable that is not yet in a cluster joins at the
first bond to it that holds. With w uniform on (0, 1] and q the probability that there is no bond,
there is one if w > q; else w / q is again uniform, and serves for the next bond.

**The largest cluster first.** If all clusters are drawn independently, about half of the small ones
stay as they are beside the largest. So the largest is drawn first, and a coin decides for each of
the others: it is drawn too; or, if the largest stayed, it moves on by Metropolised Gibbs sampling,
and if the largest moved, it stays. (One number serves as the coin and for the draw.) The second
way, clusters change beside the largest unless fields refuse it. The probability of the coin follows
from the sizes of the clusters. Seen backwards, the clusters are the same, and the largest stayed or
moved likewise: so a transition is reversible, as each draw is.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.contract import first_move, init_cache, row_of, step
from sklsb._kernels.facts import Facts
from sklsb._kernels.numeric import exp

NEEDS = {"pairwise": "couplings of pairs of variables, as Ising and Potts models have"}
# Always moving on would merely alternate, as between the two phases of a cold lattice.
_MOST_MOVING = 0.875


class Bonds(NamedTuple):
    """Couplings of the unobserved variables, and the fields that act on them.

    Variables with a single possible value are part of the fields.
    """

    sites: NDArray[np.uint32]  # unobserved
    start: NDArray[np.int64]  # of the neighbours of each variable, with the end
    neighbour: NDArray[np.uint32]
    strength: NDArray[np.float64]  # exp(c); negative for couplings that favour different values
    field: NDArray[np.float64]  # (n_sites, k); (0, k) if none matters
    spins: bool  # values -1 and 1, not 0 to k - 1

    @property
    def n_sites(self) -> int:
        """Number of variables, observed ones too."""
        return self.start.size - 1


class Growth(NamedTuple):
    """Memory for clusters: cluster c is member[first[c] : first[c + 1]]."""

    number: NDArray[np.float64]  # of each variable, uniform on (0, 1]; 0 in a cluster
    member: NDArray[np.uint32]  # and room for one that does not join
    first: NDArray[np.uint32]
    weight: NDArray[np.float64]  # of each shift of a cluster


@implements(row_of, Growth)
def _row_of(part, c):
    return Growth(part.number[c], part.member[c], part.first[c], part.weight[c])


class SwendsenWang(NamedTuple):
    """The rule: all clusters are drawn given the bonds."""

    bonds: Bonds

    @property
    def facts(self) -> Facts:
        """Properties of the rule."""
        return Facts(
            n_uniforms=2 * self.bonds.n_sites,
            transitions_per_sweep=1,
            evaluation="coupling that was looked at",
            needs=NEEDS,
        )

    def new_part(self, target: Any, n_chains: int) -> Growth:
        """Allocate memory for clusters."""
        n, k = self.bonds.n_sites, self.bonds.field.shape[1]
        number, weight = np.empty((n_chains, n)), np.empty((n_chains, k))
        member, first = (np.empty((n_chains, n + 1), dtype=np.uint32) for _ in range(2))
        return Growth(number, member, first, weight)


@inlined
def _begin(chain, u):
    """Take all variables out of clusters, and give each its number."""
    for i in range(chain.part.number.size):
        chain.part.number[i] = 1.0 - u[i]


@inlined
def _grow(bonds, chain, root, begin):
    """List the cluster of a variable, itself first, from a place on; return the end."""
    number, member = chain.part.number, chain.part.member
    number[root] = 0.0
    member[begin] = root
    at, end = np.int64(begin), np.int64(begin) + 1
    n_looked_at = np.int64(0)
    while at < end:
        i = np.uint64(member[at])
        x = chain.x[i]
        at += 1
        neighbours = range(bonds.start[i], bonds.start[i + np.uint64(1)])
        n_looked_at += len(neighbours)
        # Without branches, which could not be predicted.
        for k in neighbours:
            j, strength = np.uint64(bonds.neighbour[k]), bonds.strength[k]
            satisfied = (chain.x[j] == x) == (strength > 0.0)
            w = number[j] * (abs(strength) if satisfied else 1.0)
            joins = w > 1.0
            number[j] = 0.0 if joins else w
            member[end] = j
            end += np.int64(joins)
    chain.evaluations[0] += n_looked_at
    return end


@inlined
def _value(bonds, x):
    """Index of a value."""
    return (np.int64(x) + 1) >> 1 if bonds.spins else np.int64(x)


@inlined
def _weigh(bonds, chain, begin, end):
    """Compute the weight of each shift of a cluster, the largest 1; return their sum."""
    member, weight = chain.part.member, chain.part.weight
    n_values = weight.size
    if bonds.field.shape[0] == 0:
        for d in range(n_values):
            weight[d] = 1.0
        return np.float64(n_values)
    for d in range(n_values):
        weight[d] = 0.0
    for m in range(begin, end):
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
def _draw(weight, total, u, metropolised, gibbs):
    """Draw a shift by two kinds of sampling with these shares, 0 with the share that is left.

    Gibbs sampling draws shifts by their weights. Metropolised Gibbs sampling proposes others than
    0 by their weights, and accepts d with probability min(1, others / (total - weight[d])).
    """
    others = 0.0
    for d in range(1, weight.size):
        others += weight[d]
    moving = 0.0
    for d in range(1, weight.size):
        if weight[d] > 0.0:
            moving += weight[d] * (metropolised / max(others, total - weight[d]) + gibbs / total)
            if u < moving:
                return d
    return 0


@inlined
def _shift(view, bonds, chain, begin, end, d):
    """Add d to the values of a cluster, modulo their number; the cache is out of date then."""
    n_values = chain.part.weight.size
    for m in range(begin, end if d > 0 else begin):
        i = np.uint64(chain.part.member[m])
        value = _value(bonds, chain.x[i]) + d
        value -= n_values if value >= n_values else 0
        chain.x[i] = 2 * value - 1 if bonds.spins else value
        chain.moved[np.int64(first_move(view, i))] = True


@inlined
def _grow_all(bonds, chain):
    """List all clusters; return their number and which is the first of the largest ones."""
    part = chain.part
    n, end, largest, most = 0, np.int64(0), 0, np.int64(0)
    for s in range(bonds.sites.size):
        root = np.uint64(bonds.sites[s])
        if part.number[root] > 0.0:
            part.first[n] = end
            begin, end = end, _grow(bonds, chain, root, end)
            if end - begin > most:
                largest, most = n, end - begin
            n += 1
    part.first[n] = end
    return n, largest


@implements(step, SwendsenWang)
def _update_all(view, rule, chain, u):
    """U = (to try bonds to each variable, to draw the cluster that grows from each)."""
    bonds, part = rule.bonds, chain.part
    _begin(chain, u)
    n, largest = _grow_all(bonds, chain)
    if n == 0:
        return np.nan
    begin, end = np.int64(part.first[largest]), np.int64(part.first[largest + 1])
    coin = min(2.0 * np.float64(end - begin) / np.float64(bonds.sites.size), _MOST_MOVING)
    total = _weigh(bonds, chain, begin, end)
    own = u[part.number.size :]
    moved = _draw(part.weight, total, own[np.int64(part.member[begin])], 0.0, 1.0)
    _shift(view, bonds, chain, begin, end, moved)
    metropolised = coin if moved == 0 else 0.0
    for c in range(n):
        if c != largest:
            begin, end = np.int64(part.first[c]), np.int64(part.first[c + 1])
            total = _weigh(bonds, chain, begin, end)
            r = own[np.int64(part.member[begin])]
            chosen = _draw(part.weight, total, r, metropolised, 1.0 - coin)
            _shift(view, bonds, chain, begin, end, chosen)
    # Changing the cache flip by flip takes longer.
    init_cache(view, chain)
    return np.nan

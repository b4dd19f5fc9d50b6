"""Transition matrices of the rules that the package has no formula of, and what follows from one.

Importing this file registers the formulas: redraws, mixtures, sweeps, blocks, balls, layers,
exchanges, clusters.
"""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from sklsb._kernels.rules.chromatic import Chromatic
from sklsb._kernels.rules.clusters import SwendsenWang
from sklsb._kernels.rules.gibbs import RandomBlocks, Systematic
from sklsb._kernels.rules.hamming_ball import HammingBall
from sklsb._kernels.rules.layers import Layers
from sklsb._kernels.rules.mixture import Mixture
from sklsb._kernels.rules.redraw import Blocks
from sklsb._kernels.rules.swap import Swap
from sklsb.balancing.functions import Tabulated
from sklsb.exact.elimination.independent import Redraw
from sklsb.exact.matrices import (
    Transitions,
    by_weight,
    log_matrix,
    log_matrix_of,
    log_transition_matrix,
    mixed,
)
from sklsb.targets._listing import digits_of, states
from sklsb.targets._precision import told_log_prob
from sklsb.targets.base import Target
from sklsb.testing._expect import Array

_MOST_TERMS = 2**28


def eigenvalues(sampler: Any, target: Target) -> Array:
    """Eigenvalues of the transition matrix of a reversible chain, in increasing order.

    They are those of the symmetric matrix sqrt(P(x, x') P(x', x)) over the possible states. The
    last is 1. If the first is -1, the chain alternates between two halves of the space.
    """
    possible = target.log_prob(states(target)) > -np.inf
    log_matrix = log_transition_matrix(sampler, target)[np.ix_(possible, possible)]
    return np.linalg.eigvalsh(np.exp(0.5 * (log_matrix + log_matrix.T)))


def spectral_gap(sampler: Any, target: Target) -> float:
    """One minus the second largest absolute eigenvalue; 0 if the chain never forgets its start."""
    others = np.abs(eigenvalues(sampler, target)[:-1])
    return float(1.0 - others.max(initial=0.0))


# ----------------------------------------------------------------- exchanges


def _exchanges(rule: Swap, target: Target) -> Transitions:
    """Exchanges of two values, for each site and set of partners that may be drawn."""
    function = Tabulated(rule.table)
    log_p = told_log_prob(target, states(target))
    digits, stride = digits_of(target)
    k, here = target.cardinalities, np.arange(len(digits))
    sites = rule.sites.tolist()
    parts = []
    for block in itertools.combinations(sites, rule.block_size):
        for i in block:
            to, ratios = [], []
            for j in block:
                one, other = digits[:, i], digits[:, j]
                possible = (one != other) & (other < k[i]) & (one < k[j]) & (log_p > -np.inf)
                change = (other - one) * (stride[i] - stride[j])
                to.append(here + np.where(possible, change, 0))
                with np.errstate(invalid="ignore"):
                    ratios.append(np.where(possible, log_p[to[-1]] - log_p, -np.inf))
            parts.append(by_weight(np.stack(to, 1), function.log_g(np.stack(ratios, 1))))
    if not parts:
        nothing = np.empty((len(here), 0))
        return Transitions(nothing.astype(np.int64), nothing, np.ones(len(here)))
    return mixed(parts, rule.lazy)


@log_matrix.register
def _(rule: Swap, target: Target) -> Array:
    return log_matrix_of(_exchanges(rule, target))


# ----------------------------------------------------------------- exact conditionals


def log_sum(terms: Any) -> Array:
    found: Array = logsumexp(np.stack(list(terms)), axis=0)
    return found


def stay_if_impossible(matrix: Array, log_p: Array) -> Array:
    stay = np.where(np.eye(log_p.size, dtype=np.bool_), 0.0, -np.inf)
    return np.where((log_p > -np.inf)[:, None], matrix, stay)


def normalised(log_weight: Array) -> Array:
    """Divide rows by their sums; a row of zeros stays as it is.

    The largest entry is subtracted first: the logarithm of the sum would be rounded at its size.
    """
    largest = log_weight.max(axis=1, initial=-np.inf, keepdims=True)
    left = log_weight - np.where(largest > -np.inf, largest, 0.0)
    with np.errstate(divide="ignore"):
        log_sum = np.log(np.exp(left).sum(axis=1, keepdims=True))
    found: Array = left - np.where(log_sum > -np.inf, log_sum, 0.0)
    return found


def conditional(target: Target, block: NDArray[Any]) -> Array:
    """Log of the matrix that draws a block of variables given the others."""
    x = states(target)
    log_p = told_log_prob(target, x)
    rest = np.delete(np.arange(target.n_sites), block.astype(np.int64))
    same = (x[:, None, rest] == x[None, :, rest]).all(axis=2)
    return stay_if_impossible(normalised(np.where(same, log_p, -np.inf)), log_p)


@log_matrix.register
def _(rule: Redraw, target: Target) -> Array:
    log_p = told_log_prob(target, states(target), likely=True)
    return stay_if_impossible(np.tile(log_p - logsumexp(log_p), (log_p.size, 1)), log_p)


@log_matrix.register
def _(rule: Blocks, target: Target) -> Array:
    found = log_sum(conditional(target, block) for block in rule.blocks)
    log_p = told_log_prob(target, states(target))
    return stay_if_impossible(found - np.log(len(rule.blocks)), log_p)


@log_matrix.register
def _(rule: Mixture, target: Target) -> Array:
    with np.errstate(divide="ignore"):
        shares = np.log([1.0 - rule.share, rule.share])
    parts = (log_matrix(rule.first, target), log_matrix(rule.second, target))
    return log_sum(share + part for share, part in zip(shares, parts, strict=True))


def _one_after_another(target: Target, blocks: Any) -> Array:
    found = np.eye(len(states(target)))
    for block in blocks:
        found = found @ np.exp(conditional(target, block))
    with np.errstate(divide="ignore"):
        return np.log(found)


@log_matrix.register
def _(rule: RandomBlocks, target: Target) -> Array:
    blocks = list(itertools.combinations(rule.sites.tolist(), rule.block_size))
    found = log_sum(conditional(target, np.array(block)) for block in blocks)
    return found - np.log(len(blocks))


@log_matrix.register
def _(rule: Systematic, target: Target) -> Array:
    size = max(1, rule.block_size)
    blocks = [rule.sites[k : k + size] for k in range(0, rule.sites.size, size)]
    return _one_after_another(target, blocks)


@log_matrix.register
def _(rule: Chromatic, target: Target) -> Array:
    return _one_after_another(target, rule.sites[:, None])


@log_matrix.register
def _(rule: HammingBall, target: Target) -> Array:
    x = states(target)
    log_p = told_log_prob(target, x)
    blocks = list(itertools.combinations(rule.sites.tolist(), rule.block_size))
    found = []
    for block in blocks:
        inside = np.isin(np.arange(target.n_sites), block)
        different = x[:, None, :] != x[None, :, :]
        near = ~different[:, :, ~inside].any(axis=2) & (different.sum(axis=2) <= rule.radius)
        centre = np.where(near, -np.log(near.sum(axis=1, keepdims=True)), -np.inf)
        # A centre may have no possible state around it, but then it is around none.
        ball = normalised(np.where(near, log_p, -np.inf))
        found.append(logsumexp(centre[:, :, None] + ball[None, :, :], axis=1))
    return stay_if_impossible(log_sum(found) - np.log(len(blocks)), log_p)


@log_matrix.register
def _(rule: Layers, target: Target) -> Array:
    x = states(target).astype(np.float64)
    log_p = told_log_prob(target, states(target))
    m = rule.weight.shape[0]
    h = np.array(list(itertools.product((0.0, 1.0), repeat=m))).reshape(2**m, m)
    machine: Any = target.offers.layers
    up = x @ rule.weight.T + machine.hidden_bias
    to_hidden = up @ h.T - np.logaddexp(0.0, up).sum(axis=1, keepdims=True)
    field = (h @ rule.weight + rule.visible_bias) * rule.free
    down = field @ x.T - np.where(rule.free, np.logaddexp(0.0, field), 0.0).sum(1, keepdims=True)
    matrix = logsumexp(to_hidden[:, :, None] + down[None, :, :], axis=1)
    same = (x[:, None, ~rule.free] == x[None, :, ~rule.free]).all(axis=2)
    return stay_if_impossible(np.where(same, matrix, -np.inf), log_p)


# ----------------------------------------------------------------- clusters

# Cluster of each variable, named by its first member.
_Partition = tuple[int, ...]


def _joined(clusters: _Partition, i: int, j: int) -> _Partition:
    low, high = sorted((clusters[i], clusters[j]))
    return tuple(low if cluster == high else cluster for cluster in clusters)


def _partitions(target: Target) -> tuple[dict[_Partition, Array], Array]:
    """Return log probabilities, by state, of all partitions into clusters, and of the fields.

    The latter by state and variable. Couplings to variables of a single possible value are fields.
    """
    digits, _ = digits_of(target)
    free = target.n_possible > 1
    fields = np.zeros(digits.shape)
    found: dict[_Partition, Array] = {tuple(range(target.n_sites)): np.zeros(len(digits))}
    for scope, table in target.log_factors or []:
        term = table[tuple(digits[:, i] for i in scope)]
        if len(scope) == 2 and free[list(scope)].all():
            found = _with_bond(found, scope, table.max() - table.min(), term == table.max())
        elif scope:
            fields[:, max(scope, key=lambda i: free[i])] += term
        n_terms = len(digits) ** 2 * len(found)
        if n_terms > _MOST_TERMS:
            raise ValueError(
                f"{target!r:.200} has {len(digits)} states, and its variables form {len(found)} "
                f"partitions or more, which are more than {_MOST_TERMS} terms. Take a smaller "
                "target."
            )
    return found, fields


def _with_bond(
    found: dict[_Partition, Array],
    scope: tuple[int, ...],
    drop: float,
    satisfied: NDArray[np.bool_],
) -> dict[_Partition, Array]:
    """Add a coupling to partitions; log p falls by ``drop`` where it is not satisfied."""
    missing = np.where(satisfied, -drop, 0.0)
    present = np.where(satisfied, np.log(-np.expm1(-drop)), -np.inf)
    result: dict[_Partition, Array] = {}
    for clusters, log_p in found.items():
        for after, log_q in ((clusters, missing), (_joined(clusters, *scope), present)):
            result[after] = np.logaddexp(result.get(after, -np.inf), log_p + log_q)
    return result


def _shifts_of(target: Target, cluster: list[int], fields: Array) -> tuple[Any, Array]:
    """Return the change of index of each shift of a cluster, and its log probability by Gibbs."""
    digits, stride = digits_of(target)
    shift = np.arange(len(target.values))[:, None, None]
    there = (digits[:, cluster] + shift) % len(target.values) - digits[:, cluster]
    change = (there * stride[cluster]).sum(axis=2).T
    of_cluster = fields[:, cluster].sum(axis=1)
    return change, normalised(of_cluster[np.arange(len(digits))[:, None] + change])


def _members(clusters: _Partition, free: NDArray[np.int64]) -> list[list[int]]:
    """Return the clusters of free variables, in the order of their first members."""
    names = sorted({clusters[i] for i in free.tolist()})
    return [[i for i in free.tolist() if clusters[i] == name] for name in names]


def _and_then(to: Any, log_move: Array, change: Any, log_q: Array) -> tuple[Any, Array]:
    """Let each of some moves, (n_states, n), be followed by each shift of another cluster."""
    both = to[:, :, None] + change[:, None], log_move[:, :, None] + log_q[:, None]
    return both[0].reshape(len(to), -1), both[1].reshape(len(to), -1)


@log_matrix.register
def _(rule: SwendsenWang, target: Target) -> Array:
    found, fields = _partitions(target)
    row = np.arange(len(fields))[:, None]
    matrix = np.full((row.size, row.size), -np.inf)
    free = np.flatnonzero(target.n_possible > 1)
    for clusters, log_p in found.items():
        members = _members(clusters, free)
        largest = max(members, key=len, default=[])
        share = min(2.0 * len(largest) / max(1, free.size), 0.875)
        moves: Any = _and_then(row, log_p[:, None], *_shifts_of(target, largest, fields))
        n_shifts = moves[0].shape[1]
        for moved in (np.arange(n_shifts) == 0, np.arange(n_shifts) > 0):
            to: Any
            to, log_move = (part[:, moved] for part in moves)
            for cluster in members:
                if cluster is not largest:
                    change, log_q = _shifts_of(target, cluster, fields)
                    stays = np.where(np.arange(n_shifts) == 0, 0.0, -np.inf)
                    other = _metropolised(log_q) if moved[0] else stays
                    mixed = np.logaddexp(np.log(share) + other, np.log1p(-share) + log_q)
                    to, log_move = _and_then(to, log_move, change, mixed)
            np.logaddexp.at(matrix, (row, to), log_move)
    return stay_if_impossible(matrix, fields.sum(axis=1))


def _metropolised(log_q: Array) -> Array:
    """Turn Gibbs into Metropolised Gibbs sampling, which proposes others than the first."""
    q = np.exp(log_q)
    rest = np.array([np.delete(q, d, axis=1).sum(axis=1) for d in range(q.shape[1])]).T
    others, most = rest[:, :1], np.maximum(rest, rest[:, :1])
    with np.errstate(divide="ignore", invalid="ignore"):
        log_move = np.where(log_q > -np.inf, log_q - np.log(most), -np.inf)[:, 1:]
        refused = (q / others - q / most)[:, 1:].sum(axis=1, keepdims=True)
        stay = np.where(others > 0.0, np.maximum(refused, 0.0), 1.0)
        return np.hstack([np.log(stay), log_move])

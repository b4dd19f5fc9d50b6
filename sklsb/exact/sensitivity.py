"""Derivatives of a posterior probability by the entries of tables, from two passes."""

from collections.abc import Mapping, Sequence

import numpy as np

from sklsb.exact.elimination.cost import Limits
from sklsb.exact.elimination.order import best_order
from sklsb.exact.elimination.reduce import Array, Factor
from sklsb.exact.elimination.schedule import BucketTree
from sklsb.targets.markov_network import MarkovNetwork

Weights = Mapping[int, Array]


def derivatives(
    network: MarkovNetwork, query: Weights, evidence: Weights, limits: Limits
) -> list[Array]:
    """Return the derivatives of Z(query, evidence) / Z(evidence) by all entries.

    No variable is in both.
    """
    factors, sizes = network.factors, network.cardinalities
    scopes = [Factor(scope, table) for scope, table in factors]
    order = best_order(range(network.n_sites), scopes, sizes).variables
    log2_work = BucketTree.of(order, scopes, sizes).log2_work
    most = min(limits[0], limits[1] / 8)
    if log2_work > np.log2(most):
        raise ValueError(
            f"the tables to be passed have 2**{log2_work:.1f} entries in all, and the limits given "
            f"to prepare allow 2**{np.log2(most):.1f}; zeros save nothing here. Raise them."
        )
    z, of_z, log_scale = _passes(factors, order, sizes.tolist(), evidence)
    if not z:
        raise ValueError("the evidence has probability zero; check it.")
    z_q, of_z_q, log_scale_q = _passes(factors, order, sizes.tolist(), {**query, **evidence})
    ratio = np.exp(log_scale_q - log_scale)
    p = z_q / z * ratio
    return [(ratio * a - p * b) / z for a, b in zip(of_z_q, of_z, strict=True)]


def _passes(
    factors: Sequence[tuple[tuple[int, ...], Array]],
    order: Sequence[int],
    sizes: Sequence[int],
    weights: Weights,
) -> tuple[float, list[Array], float]:
    """Return Z and its derivatives by all entries, all divided by the exponential of a number.

    Nothing is divided by a table, so zeros do no harm. Each message is divided by its largest
    entry.
    """
    place = {v: i for i, v in enumerate(order)}
    tables: list[tuple[tuple[int, ...], Array]] = [*factors]
    tables += [((v,), weights[v]) for v in weights]
    derivative: list[Array] = [np.zeros_like(table) for _, table in tables]
    inside: list[list[int]] = [[] for _ in order]
    constants: list[int] = []
    for f, (scope, _) in enumerate(tables):
        (inside[min(place[v] for v in scope)] if scope else constants).append(f)
    sent, scales, log_scale = [-1] * len(order), np.ones(len(order)), 0.0
    for i, v in enumerate(order):
        axes = [v, *sorted({u for f in inside[i] for u in tables[f][0]} - {v})]
        clique = np.ones([sizes[u] for u in axes])
        for f in inside[i]:
            clique *= _over(axes, *tables[f])
        message = clique.sum(axis=0)
        scales[i] = message.max() or 1.0
        log_scale += np.log(scales[i])
        sent[i] = len(tables)
        tables.append((tuple(axes[1:]), message / scales[i]))
        derivative.append(np.zeros_like(message))
        rest = axes[1:]
        (inside[min(place[u] for u in rest)] if rest else constants).append(sent[i])
    z = float(np.prod([tables[f][1] for f in constants]))
    _share((), (), constants, tables, derivative, np.ones(()))
    for i in range(len(order) - 1, -1, -1):
        clique_axes = order[i], *tables[sent[i]][0]
        above = derivative[sent[i]][np.newaxis] / scales[i]
        _share(clique_axes, [sizes[u] for u in clique_axes], inside[i], tables, derivative, above)
    return z, derivative[: len(factors)], log_scale


def _share(
    axes: Sequence[int],
    shape: Sequence[int],
    members: Sequence[int],
    tables: Sequence[tuple[tuple[int, ...], Array]],
    derivative: Sequence[Array],
    above: Array,
) -> None:
    """Add to the derivative by each table of a clique the product of all others."""
    if not members:
        return
    spread = [_over(axes, *tables[f]) for f in members]
    before = [above]
    for table in spread[:-1]:
        before.append(before[-1] * table)
    after = np.ones(())
    for f, table, first in zip(members[::-1], spread[::-1], before[::-1], strict=True):
        scope = tables[f][0]
        gone = tuple(a for a, u in enumerate(axes) if u not in scope)
        left = [u for u in axes if u in scope]
        found = np.broadcast_to(first * after, shape).sum(axis=gone)
        derivative[f][...] += found.transpose([left.index(u) for u in scope])
        after = after * table


def _over(axes: Sequence[int], scope: tuple[int, ...], table: Array) -> Array:
    """Return a table with its axes among others, of size 1."""
    left = [u for u in axes if u in scope]
    turned = table.transpose([scope.index(u) for u in left])
    return turned.reshape([table.shape[scope.index(u)] if u in scope else 1 for u in axes])

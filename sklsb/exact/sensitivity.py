"""Derivatives of a posterior probability by the entries of tables, from two passes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sklsb._system.arrays import Array
from sklsb.exact.elimination.cost import Limits
from sklsb.exact.elimination.order import best_order
from sklsb.exact.elimination.reduce import Factor, spread_over
from sklsb.exact.elimination.schedule import BucketTree
from sklsb.targets._evidence import NoStateError
from sklsb.targets.markov_network import MarkovNetwork

if TYPE_CHECKING:
    import pandas as pd

Weights = Mapping[int, Array]


class Sensitivity(list[Array]):
    """Derivatives by the entries of each factor, made by `Prepared.sensitivity`."""

    def __init__(self, network: MarkovNetwork, found: Sequence[Array]):
        super().__init__(found)
        self._network = network

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each entry of each conditional table, those that matter most first.

        Returns
        -------
        pandas.DataFrame
            ``variable``, ``parents`` (their values, as text) and ``value``; ``entry``, the number
            in the table; ``derivative``; and ``scaled``, the derivative where the rest of its row
            is scaled to keep the sum 1, by whose size rows are sorted. It is NaN for an entry of 1.

        Raises
        ------
        TypeError
            If the network was not made of conditional tables.
        """
        import pandas as pd

        rows, network = list[Any](), self._network
        for name in network.names:
            f, scope, axis = network._conditional(name)
            entries = network._factor_table(f, network._table), self[f]
            table, slope = (np.moveaxis(part, axis, -1) for part in entries)
            with np.errstate(divide="ignore", invalid="ignore"):
                scaled = (slope - (table * slope).sum(axis=-1, keepdims=True)) / (1.0 - table)
            parents = [network.label(i) for i in scope[:-1]]
            called = itertools.product(*network._values(scope))
            numbers = zip(*map(np.ravel, (table, slope, scaled)), strict=True)
            for (*own, value), three in zip(called, numbers, strict=True):
                given = ", ".join(f"{p}={v}" for p, v in zip(parents, own, strict=True))
                rows.append((name, given, value, *three))
        columns = ["variable", "parents", "value", "entry", "derivative", "scaled"]
        found = pd.DataFrame(rows, columns=columns)
        order = np.argsort(-found["scaled"].abs().round(12), kind="stable")  # ties in order
        return found.iloc[order].reset_index(drop=True)


def derivatives(
    network: MarkovNetwork, query: Weights, evidence: Weights, limits: Limits
) -> list[Array]:
    """Return the derivatives of Z(query, evidence) / Z(evidence) by all entries.

    No variable is in both.
    """
    factors = [Factor(scope, table) for scope, table in network.factors]
    order = best_order(range(network.n_sites), factors, network.cardinalities).variables
    tree = BucketTree.of(order, factors, network.cardinalities)
    most = np.log2(min(limits[0], limits[1] / 8))
    if tree.log2_work > most:
        raise ValueError(
            f"the tables to be passed have 2**{tree.log2_work:.1f} entries in all, and the limits "
            f"given to prepare allow 2**{most:.1f}; zeros save nothing here. Raise them."
        )
    log_z, of_z = _passes(factors, tree, evidence)
    if np.isneginf(log_z):
        raise NoStateError("the evidence has probability zero; check it.")
    log_z_q, of_z_q = _passes(factors, tree, {**query, **evidence})
    log_p = log_z_q - log_z
    return [
        np.exp(a - log_z) - np.exp(log_p + b - log_z) for a, b in zip(of_z_q, of_z, strict=True)
    ]


@np.errstate(divide="ignore")
def _passes(
    factors: Sequence[Factor], tree: BucketTree, weights: Weights
) -> tuple[float, list[Array]]:
    """Return logarithms of Z and of its derivatives by all entries.

    Nothing is divided by a table, so zeros do no harm.
    """
    n, place = len(tree.order), {v: i for i, v in enumerate(tree.order)}
    tables = [*factors, *(Factor((v,), weights[v]) for v in weights)]
    tables = [Factor(scope, np.log(table)) for scope, table in tables]
    inside: list[list[int]] = [[] for _ in range(n + 1)]  # of each bucket, and of no variable
    for f, (scope, _) in enumerate(tables):
        inside[min((place[v] for v in scope), default=n)].append(f)
    sent = len(tables)
    for i, v in enumerate(tree.order):
        clique = np.zeros(tree.sizes[[v, *tree.axes[i]]])
        for f in inside[i]:
            clique += spread_over((v, *tree.axes[i]), tables[f])
        inside[tree.parent[i]].append(len(tables))
        tables.append(Factor(tree.axes[i], np.logaddexp.reduce(clique, axis=0)))
    derivative = [np.empty(np.shape(table)) for _, table in tables]
    _share((), inside[n], tables, derivative, np.zeros(()))
    for i in range(n - 1, -1, -1):
        above = derivative[sent + i][np.newaxis]
        _share((tree.order[i], *tree.axes[i]), inside[i], tables, derivative, above)
    log_z = float(sum(tables[f].table for f in inside[n]))
    return log_z, derivative[: len(factors)]


def _share(
    axes: tuple[int, ...],
    members: Sequence[int],
    tables: Sequence[Factor],
    derivative: Sequence[Array],
    above: Array,
) -> None:
    """Set the derivative by each table of a clique to the product of all others, in logarithms."""
    spread = [spread_over(axes, tables[f]) for f in members]
    before = [above]
    for table in spread:
        before.append(before[-1] + table)
    shape, after = before[-1].shape, np.zeros(())
    for f, table, first in zip(members[::-1], spread[::-1], before[-2::-1], strict=True):
        scope = tables[f].scope
        gone = tuple(a for a, u in enumerate(axes) if u not in scope)
        found = np.logaddexp.reduce(np.broadcast_to(first + after, shape), axis=gone)
        left = [u for u in axes if u in scope]
        derivative[f][...] = found.transpose([left.index(u) for u in scope])
        after = after + table

"""Colours of sites, and tables of the elements of log p that see few sites."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from scipy.sparse import csr_array

from sklsb._kernels.elimination.tables import add_up
from sklsb._system.arrays import Array, Ints
from sklsb.pymc.block import Block, Given
from sklsb.targets._graphs import colors

# Largest number of sites and of entries of a table.
_MOST_SITES, _MOST_ENTRIES = 6, 4096
# Values of log p taken to turn a model into tables.
_MOST_TAKEN = 20_000
_NONE = np.empty(0, np.int64)


def coloured(block: Block, sites: Ints, rows: Ints | None = None) -> list[Ints]:
    """Return classes of sites: no two of a class share a set, or one of the sets at rows."""
    sets = (block.sets if rows is None else block.sets[rows])[:, sites].astype(np.int64).tocsr()
    if np.diff(sets.indptr).max(initial=0) == sites.size:
        return [*sites[:, None]]
    colour = colors(csr_array(sets.T @ sets))
    return [sites[colour == c] for c in range(colour.max(initial=-1) + 1)]


class Tables:
    """Tables of the outputs that see few sites, filled for all sets of some colours at once.

    ``rows`` selects sets of ``block.sets``; None selects all.
    """

    n_values: Ints  # of the sites
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]]  # places of its sites, shape, by table
    starts: Ints  # where each table starts in the array of all entries
    states: list[Ints]  # values of the sites, less the lowest ones, at which log p is taken

    def __init__(
        self, block: Block, sites: Ints, colours: Sequence[Ints], rows: Ints | None = None
    ):
        self.block, self.sites = block, sites
        k = self.n_values = block.high[sites] - block.low[sites] + 1
        sets = block.sets[:, sites].tocsr()
        sets.sort_indices()
        every = [tuple(part.tolist()) for part in np.split(sets.indices, sets.indptr[1:-1])]
        chosen = range(len(every)) if rows is None else rows.tolist()
        scopes = {row: every[row] for row in chosen if every[row]}
        most = max(map(len, scopes.values()), default=0)
        if most > _MOST_SITES:
            raise ValueError(f"needs elements that see few sites: one sees {most}")
        kept = self._assign(scopes)
        self.shapes = [(s, tuple(k[list(s)].tolist())) for s in kept]
        self.starts = np.cumsum([0, *(int(np.prod(shape)) for _, shape in self.shapes)])
        most = int(np.diff(self.starts).max(initial=1))
        if most > _MOST_ENTRIES:
            raise ValueError(f"needs few joint values: sites seen together have {most}")
        colour = np.zeros(block.n_sites, np.int64)
        for c, one in enumerate(colours):
            colour[one] = c
        self._lay_out(colour[sites])

    def _assign(self, scopes: dict[int, tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Assign each set of sites to a table that has them all; return the sites of the tables."""
        kept, at_site = list[tuple[int, ...]](), dict[int, set[int]]()
        table_of = np.zeros(self.block.sets.shape[0], np.int64)  # 0: none
        for row, scope in sorted(scopes.items(), key=lambda item: -len(item[1])):
            holds = set.intersection(*(at_site.setdefault(i, set()) for i in scope))
            if not holds:
                kept.append(scope)
                holds = {len(kept)}
                for i in scope:
                    at_site[i] |= holds
            table_of[row] = min(holds)
        self._table_of = table_of[self.block.scope_of]
        return kept

    def _lay_out(self, colour: Ints) -> None:
        """Find out at which states log p is taken, and which outputs add up to each entry."""
        of_table = [frozenset(colour[list(scope)].tolist()) for scope, _ in self.shapes]
        every = set(of_table)
        n, ends = self._table_of.size, np.arange(len(of_table) + 1)
        order = np.argsort(self._table_of, kind="stable")
        parts = np.split(order, np.searchsorted(self._table_of[order], ends, "right"))
        self.states, of_entry = list[Ints](), [_NONE] * int(self.starts[-1])
        for group in sorted(sorted(g) for g in every if not any(g < other for other in every)):
            members = [j for j, colours in enumerate(of_table) if colours <= set(group)]
            most = [range(int(self.n_values[colour == c].max())) for c in group]
            for values in product(*most):
                of = np.zeros(colour.max() + 1, np.int64)
                of[group] = values
                state, found = of[colour], False
                for j in members:
                    scope, shape = self.shapes[j]
                    at = tuple(state[list(scope)].tolist())
                    if all(v < n for v, n in zip(at, shape, strict=True)):
                        entry, found = self.starts[j] + np.ravel_multi_index(at, shape), True
                        of_entry[entry] = parts[j + 1] + len(self.states) * n
                if found:
                    self.states.append(np.minimum(state, self.n_values - 1))
        self._index = np.concatenate([*of_entry, _NONE])
        self._start = np.cumsum([0, *map(len, of_entry)])

    def logs(self, x: Ints, given: Given) -> Array:
        """Return the logarithms of all entries, at a state of all other variables."""
        logs, y = np.empty(self.starts[-1]), x.copy()
        low = self.block.low[self.sites]
        made = np.empty((len(self.states), self._table_of.size))
        for outputs, state in zip(made, self.states, strict=True):
            y[self.sites] = low + state
            outputs[:] = self.block.log_p(y, *given)
        add_up(made.ravel(), self._index, self._start, logs)
        return logs


def whole(block: Block, given: Given) -> list[tuple[tuple[int, ...], Array]] | None:
    """Return tables of logarithms that add up to all outputs, or None if that takes too many.

    Outputs that see more sites than a table has add up to pairs where they are polynomials of
    degree 2, as in a linear regression.
    """
    n, k = block.n_sites, block.high - block.low + 1
    sizes = np.array(
        [np.prod(k[s], dtype=float) for s in np.split(block.sets.indices, block.sets.indptr[1:-1])]
    )
    large = (sizes > _MOST_ENTRIES) | (np.diff(block.sets.indptr) > _MOST_SITES)
    wide = large[block.scope_of]
    if block.vague or (block.degree[wide] > 2).any():
        return None
    pairs = (block.sets[large].astype(np.int64).T @ block.sets[large].astype(np.int64)).tocoo()
    upper = pairs.coords[0] < pairs.coords[1]
    if int((k - 1).sum()) + upper.sum() > _MOST_TAKEN:
        return None
    colours = coloured(block, np.arange(n), np.flatnonzero(~large))
    tables = Tables(block, np.arange(n), colours, np.flatnonzero(~large))
    if len(tables.states) > _MOST_TAKEN:
        return None
    parts = np.split(tables.logs(block.low, given), tables.starts[1:-1])
    found = [
        (s, part.reshape(shape)) for (s, shape), part in zip(tables.shapes, parts, strict=True)
    ]
    if not wide.any():
        return found

    def taken(*changes: tuple[int, int]) -> float:
        x = block.low.copy()
        for i, v in changes:
            x[i] += v
        return float(block.log_p(x, *given)[wide].sum())

    start = taken()
    alone = [np.array([taken((i, v)) - start for v in range(k[i])]) for i in range(n)]
    found += [((i,), table) for i, table in enumerate(alone)]
    for i, j in zip(*(at[upper].tolist() for at in pairs.coords), strict=True):
        if k[i] > 1 < k[j]:
            slope = taken((i, 1), (j, 1)) - start - alone[i][1] - alone[j][1]
            found.append(((i, j), slope * np.outer(np.arange(k[i]), np.arange(k[j]))))
    return found

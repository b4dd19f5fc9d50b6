"""Colours of sites, and tables of the elements of log p that see few sites."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from sklsb.pymc.block import Block, Floats, Given, Ints

# Tables are over so many sites, and have so many entries, at most.
_MOST_SITES, _MOST_ENTRIES = 6, 4096


def coloured(block: Block, sites: Ints) -> list[Ints]:
    """Return classes of sites, no two of which are seen by one output."""
    by_site = block.sets[:, sites].T.tocsr()
    used = [set[int]() for _ in range(block.sets.shape[0])]
    classes = list[list[int]]()
    for i, site in enumerate(sites.tolist()):
        scopes = by_site.indices[by_site.indptr[i] : by_site.indptr[i + 1]].tolist()
        taken = set().union(*(used[s] for s in scopes))
        colour = next(c for c in range(len(classes) + 1) if c not in taken)
        if colour == len(classes):
            classes.append([])
        classes[colour].append(site)
        for s in scopes:
            used[s].add(colour)
    return [np.array(c) for c in classes]


class Tables:
    """A table for each set of sites that outputs see, filled for all sets of some colours at once.

    Attributes
    ----------
    n_values : ndarray of int
        Of the sites.
    shapes : list of (tuple of int, tuple of int)
        The sites of each table, as positions among the sites, and its shape.
    starts : ndarray of int
        Where each table starts in the array of all entries.
    evaluations : list of (ndarray, ndarray, ndarray)
        States at which log p is taken; the rows of ``block.sets`` whose sums are entries, and which.
    """

    def __init__(self, block: Block, sites: Ints, colours: Sequence[Ints]):
        self.block, self.sites = block, sites
        k = self.n_values = block.high[sites] - block.low[sites] + 1
        rows = block.sets[:, sites].tocsr()
        rows.sort_indices()
        scopes = [part.tolist() for part in np.split(rows.indices, rows.indptr[1:-1])]
        self.rows = [row for row, scope in enumerate(scopes) if scope]
        most = max((len(scopes[row]) for row in self.rows), default=0)
        if most > _MOST_SITES:
            raise ValueError(f"needs elements that see few sites: one sees {most}")
        self.shapes = [(tuple(s := scopes[row]), tuple(k[s].tolist())) for row in self.rows]
        self.starts = np.cumsum([0, *(int(np.prod(shape)) for _, shape in self.shapes)])
        most = int(np.diff(self.starts).max(initial=1))
        if most > _MOST_ENTRIES:
            raise ValueError(f"needs few joint values: sites seen together have {most}")
        colour = np.zeros(block.n_sites, np.int64)
        for c, one in enumerate(colours):
            colour[one] = c
        self._lay_out(colour[sites])

    def _lay_out(self, colour: Ints) -> None:
        """Find out which evaluations there are, and where their sums go."""
        of_table = [frozenset(colour[list(scope)].tolist()) for scope, _ in self.shapes]
        every = set(of_table)
        self.evaluations = list[tuple[Ints, Ints, Ints]]()
        for group in sorted(sorted(g) for g in every if not any(g < other for other in every)):
            members = [j for j, colours in enumerate(of_table) if colours <= set(group)]
            most = [range(int(self.n_values[colour == c].max())) for c in group]
            for values in product(*most):
                of = np.zeros(colour.max() + 1, np.int64)
                of[group] = values
                state, rows, entries = of[colour], list[int](), list[int]()
                for j in members:
                    scope, shape = self.shapes[j]
                    at = tuple(state[list(scope)].tolist())
                    if all(v < n for v, n in zip(at, shape, strict=True)):
                        rows.append(self.rows[j])
                        entries.append(int(self.starts[j] + np.ravel_multi_index(at, shape)))
                state = np.minimum(state, self.n_values - 1)
                self.evaluations.append((state, np.array(rows), np.array(entries)))

    def logs(self, x: Ints, given: Given) -> Floats:
        """Return the logarithms of all entries, at a state of all other variables."""
        logs, y = np.empty(self.starts[-1]), x.copy()
        low = self.block.low[self.sites]
        for state, rows, entries in self.evaluations:
            y[self.sites] = low + state
            with np.errstate(invalid="ignore"):
                logs[entries] = self.block.by_scope(self.block.log_p(y, *given))[rows]
        logs[np.isnan(logs)] = -np.inf
        return logs

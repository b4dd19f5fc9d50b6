"""Functions that return the terms of log p: which variables each term sees, and its table."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklsb._system.arrays import Array, Bools, Ints
from sklsb.targets._checks import check_sizes, integer
from sklsb.targets._graphs import colors
from sklsb.targets.markov_network import MarkovNetwork

# Random states at which each variable is changed; most states of which all are compared with the
# tables; fewest random ones that are, and as many for each two values of two variables.
_N_PROBES, _ALL, _FEWEST_COMPARED, _N_OF_PAIR = 3, 1 << 16, 256, 16
_MOST_ENTRIES, _MOST_HELD = 1 << 22, 1 << 24  # of a table; of what a call returns
_LARGEST = 700.0  # larger powers of e are no numbers
_ROUNDING = 1e-9


class _Terms:
    """A function of states that returns a row of terms for each; what it returns is checked."""

    def __init__(self, function: Callable[..., Any], k: Ints):
        self.function, self.k, self.n = function, k, 0
        self.n = self._values(np.zeros((2, k.size), np.int64)).shape[1]

    def __call__(self, states: Ints) -> Array:
        parts = np.array_split(states, max(1, -(-len(states) * self.n // _MOST_HELD)))
        return np.concatenate([self._values(part) for part in parts])

    def _values(self, states: Ints) -> Array:
        found = np.asarray(self.function(states.copy()))
        known = found.ndim == 2 and found.shape == (len(states), self.n or max(1, found.shape[1]))
        if not known or found.dtype.kind not in "biuf":
            raise ValueError(
                f"with terms=True log_prob must return numbers of shape (n, terms) for states "
                f"(n, {self.k.size}), always of the same terms; for {states.shape} it returned "
                f"{found.dtype} of shape {found.shape}."
            )
        found = found.astype(np.float64)
        wrong = ~(found <= _LARGEST) | (found < -_LARGEST) & (found > -np.inf)
        if wrong.any():
            row, t = np.argwhere(wrong)[0]
            raise ValueError(
                f"term {t} is {found[row, t]} at the state {states[row].tolist()!r:.200}; give "
                f"-inf, or numbers from -{_LARGEST:g} to {_LARGEST:g}."
            )
        return found

    def seen(self, rng: np.random.Generator) -> Any:
        """Return which term (row) changes if a variable (column) does, at a few states."""
        terms, sites = [], []
        moves = np.repeat(np.arange(self.k.size), self.k - 1)
        shift = np.concatenate([np.arange(1, k) for k in self.k] + [np.empty(0)]).astype(np.int64)
        step = max(1, _MOST_HELD // max(self.n, 1))
        for x in rng.integers(self.k, size=(_N_PROBES, self.k.size)):
            here = self(x[None])
            for a in range(0, moves.size, step):
                site = moves[a : a + step]
                y = np.repeat(x[None], site.size, axis=0)
                y[np.arange(site.size), site] = (x[site] + shift[a : a + step]) % self.k[site]
                row, t = np.nonzero(_differ(self(y), here))
                terms.append(t)
                sites.append(site[row])
        t, site = (np.concatenate([*parts, np.empty(0, np.int64)]) for parts in (terms, sites))
        return sp.csr_array((np.ones(t.size), (t, site)), shape=(self.n, self.k.size)) > 0

    def compared(self, rng: np.random.Generator) -> Ints:
        """Return states at which tables are compared: random ones, and all if they are few."""
        most, size = _MOST_HELD // (self.n + self.k.size), math.prod(self.k.tolist())
        few = size <= min(_ALL, most)
        n = _N_OF_PAIR * math.prod(np.sort(self.k)[-2:].tolist())
        n = _FEWEST_COMPARED if few else max(_FEWEST_COMPARED, min(n, most))
        some = rng.integers(self.k, size=(n, self.k.size))
        every = [*product(*map(range, self.k))] if few else []
        return np.append(some, np.array(every, np.int64).reshape(len(every), self.k.size), axis=0)

    def tables(self, seen: Any, color: Ints) -> list[tuple[list[int], Array]]:
        """Return the table of each term; variables of one colour have one value, all others 0."""
        seen.sort_indices()
        scopes = [s.tolist() for s in np.split(seen.indices, seen.indptr[1:-1])]
        sizes = [math.prod(self.k[s].tolist()) for s in scopes]
        worst = int(np.argmax(sizes))
        if sizes[worst] > _MOST_ENTRIES:
            raise ValueError(
                f"term {worst} sees {len(scopes[worst])} variables, with {sizes[worst]} joint "
                "values: too many for a table. Return the parts of which it is the sum, or their "
                "sum, with terms=False."
            )
        tables = [np.empty(self.k[s]) for s in scopes]
        groups: dict[tuple[int, ...], list[int]] = {}
        for t, scope in enumerate(scopes):
            groups.setdefault(tuple(sorted(color[scope].tolist())), []).append(t)
        for group, members in groups.items():
            most = [int(self.k[color == c].max()) for c in group]
            values = np.array([*product(*map(range, most))], dtype=np.int64)
            x = np.zeros((len(values), self.k.size), np.int64)
            for c, column in zip(group, values.T, strict=True):
                x[:, color == c] = column[:, None]
            found = self(np.minimum(x, self.k - 1))
            for t in members:
                fits = (x[:, scopes[t]] < self.k[scopes[t]]).all(axis=1)
                at = tuple(x[fits][:, scopes[t]].T)
                tables[t][at] = found[fits, t] if at else found[0, t]
        return list(zip(scopes, tables, strict=True))


def _differ(one: Array, other: Array) -> Bools:
    """Return where numbers differ by more than rounding."""
    with np.errstate(invalid="ignore"):
        far = np.abs(one - other) > _ROUNDING * (1.0 + np.abs(other))
    differ: Bools = far | (np.isneginf(one) != np.isneginf(other))
    return differ


def of_terms(
    function: Callable[..., Any],
    n_sites: int,
    n_states: int | Sequence[int] = 2,
    *,
    names: Iterable[Any] | None = None,
    state_names: Any = None,
) -> MarkovNetwork:
    """Return the network whose log p is the sum of the terms that a function returns.

    What the probes miss, such as a switch that is seldom on, shows where tables are compared with
    the function at other states; then the term sees one more variable.
    """
    k = check_sizes(n_states, "n_states", integer(n_sites, "n_sites", 0, np.iinfo(np.int32).max))
    terms, rng = _Terms(function, k), np.random.default_rng(0)
    seen = terms.seen(rng).tolil()
    x = terms.compared(rng)
    wanted = terms(x)
    missed = True
    while missed:
        rows = seen.tocsr()
        # No term sees two variables of one colour.
        color = colors(sp.csr_array(rows.T.astype(np.int64) @ rows.astype(np.int64)))
        tables, missed = terms.tables(rows, color), False
        for t, (scope, table) in enumerate(tables):
            far = _differ(table[tuple(x[:, scope].T)], wanted[:, t])
            if far.any():
                seen[t, _missed(terms, t, x[far.argmax()], scope, color)] = missed = True
    factors = [(scope, np.exp(table)) for scope, table in tables]
    return MarkovNetwork._of_sites(k, factors, names, state_names)


def _missed(terms: _Terms, t: int, x: Ints, scope: list[int], color: Ints) -> int:
    """Return a variable outside of the scope on which the term depends.

    It is found on the way to x from the state that gave the entry of the table.
    """
    start = np.zeros_like(x)
    for site in scope:
        start[color == color[site]] = x[site]
    start = np.minimum(start, terms.k - 1)
    others = np.setdiff1d(np.arange(x.size), scope)
    way = np.repeat(x[None], others.size + 1, axis=0)
    for i, site in enumerate(others):
        way[: i + 1, site] = start[site]
    values = terms(way)[:, t]
    changed = np.flatnonzero(_differ(values[1:], values[:-1]))
    if not changed.size:
        raise ValueError(
            f"term {t} depends on more than the state: it has other values in another call."
        )
    return int(others[changed[0]])

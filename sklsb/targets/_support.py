"""Search for a state at which no table is zero."""

import copy
from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb._system.arrays import Array, Bools, Ints
from sklsb.targets._evidence import NoStateError, clashing, impossible

# Dead ends in the first attempt, more in each later one; attempts.
_PATIENCE, _ATTEMPTS = 20, 20


class _NoSupport(Exception):
    """No value of some variable is left; ``factor`` took the last one."""

    def __init__(self, factor: int):
        self.factor = factor


class _Domains:
    """Values left of each variable, with a record of changes for undoing them."""

    def __init__(self, left: list[Bools]):
        self.left = left.copy()
        self.sizes = np.fromiter(map(np.count_nonzero, left), np.int64, len(left))
        self.changes: list[tuple[int, Bools]] = []

    def set(self, i: int, domain: Bools) -> None:
        self.changes.append((i, self.left[i]))
        self._put(i, domain)

    def undo(self, n_changes: int) -> None:
        """Undo all but the first changes."""
        while len(self.changes) > n_changes:
            self._put(*self.changes.pop())

    def _put(self, i: int, domain: Bools) -> None:
        self.left[i], self.sizes[i] = domain, np.count_nonzero(domain)


class Support:
    """The states of positive probability of a product of tables over ``scopes``.

    ``tables`` returns the table of a factor, ``label`` and ``value_name`` the names of a variable
    and of one of its values in errors.

    Notes
    -----
    Variables are assigned one by one. In a Bayesian network parents come before children, and
    values are drawn from the conditional probabilities: without evidence the state is a draw from
    the network. Otherwise the next variable is the one with the fewest values left, relative to
    how often its factors led into dead ends [1]_, and its value is drawn uniformly. After each
    assignment, values without support in some table are struck out until nothing changes
    (generalised arc consistency). If no value is left, the last assignment is undone and its value
    struck out; after too many dead ends the search starts over.

    References
    ----------
    .. [1] F. Boussemart et al., "Boosting systematic search by weighting constraints", ECAI 2004.
    """

    def __init__(
        self,
        scopes: list[NDArray[np.uint32]],
        tables: Callable[[int], Array],
        cardinalities: Ints,
        label: Callable[[int], Any] = int,
        value_name: Callable[[int, int], Any] = lambda i, value: value,
    ):
        self.cardinalities, self.label, self.value_name = cardinalities, label, value_name
        sites = list(range(cardinalities.size))  # one int object per variable, not per mention
        self.scopes = [[sites[i] for i in scope.tolist()] for scope in scopes]
        self.tables = tables
        # Only tables with zeros restrict the support, and many have the same pattern.
        self.allowed: dict[int, Bools] = {}
        patterns: dict[tuple[tuple[int, ...], bytes], Bools] = {}
        self.factors_of: list[list[int]] = [[] for _ in cardinalities]
        for f, scope in enumerate(self.scopes):
            allowed = tables(f) > 0.0
            if not allowed.all():
                self.allowed[f] = patterns.setdefault((allowed.shape, allowed.tobytes()), allowed)
                for i in scope:
                    self.factors_of[i].append(f)
        self.order, self.child_of = self._ancestral_order()
        self.conflicts: dict[int, int] = {}
        self.trouble = np.ones(cardinalities.size)
        domains = _Domains([np.ones(k, dtype=np.bool_) for k in cardinalities.tolist()])
        self.impossible: int | None = None
        try:
            self._propagate(domains, list(self.allowed))
        except _NoSupport as error:
            self.impossible = error.factor
        self.domains, self.n_possible = domains.left, domains.sizes

    def _ancestral_order(self) -> tuple[Ints, dict[int, tuple[int, int]]]:
        """Variables, parents first, and the (factor, axis) of each one's conditional table.

        Empty unless each variable has one table, its conditional probability, of which it is the
        last variable (or in all tables the first).
        """
        for last in (True, False):
            children: dict[int, tuple[int, int]] = {}
            for f, scope in enumerate(self.scopes):
                axis = len(scope) - 1 if last else 0
                if not scope or scope[axis] in children:
                    break
                if not np.allclose(self.tables(f).sum(axis=axis), 1.0, rtol=0, atol=1e-6):
                    break
                children[scope[axis]] = (f, axis)
            if len(children) < len(self.cardinalities) or len(self.scopes) > len(children):
                continue
            parents = {i: set(self.scopes[f]) - {i} for i, (f, _) in children.items()}
            try:
                order = list(TopologicalSorter(parents).static_order())
            except CycleError:
                continue
            return np.array(order, dtype=np.int64), children
        return np.empty(0, dtype=np.int64), {}

    def called(self, factor: int) -> tuple[Any, ...]:
        """Return the names of the variables of a factor."""
        return tuple(self.label(i) for i in self.scopes[factor])

    def draw(self, rng: np.random.Generator, sites: Ints, observed: Ints) -> Ints:
        """Return a state with the observed values at which no table is zero."""
        left = self.left_given(sites, observed)
        if not self.allowed and not self.order.size:
            x = rng.integers(self.cardinalities)
            x[sites] = observed
            return x
        search = copy.copy(self)  # with its own record of dead ends
        search.conflicts, search.trouble = {}, np.ones(len(left))
        for attempt in range(_ATTEMPTS):
            found = search._attempt(rng, _Domains(left), _PATIENCE * (attempt + 1))
            if found is not None:
                return np.array([int(domain.argmax()) for domain in found], dtype=np.int64)
        worst = max(search.conflicts, key=lambda f: search.conflicts[f])
        raise ValueError(
            f"No state of positive probability was found in {_ATTEMPTS} attempts; factor {worst} "
            f"over the variables {self.called(worst)} was most often in the way. Give "
            "initial_states to fit. Where exact answers are affordable, exact.most_likely finds a "
            "state, or says that there is none."
        )

    def left_given(self, sites: Ints, observed: Ints) -> list[Bools]:
        """Return which values of each variable evidence leaves."""
        evidence = dict(zip(sites.tolist(), observed.tolist(), strict=True))
        try:
            return self._left(evidence)
        except _NoSupport as error:
            clash = clashing(evidence, self._left, _NoSupport)
            if clash:
                named = {self.label(i): self.value_name(i, value) for i, value in clash.items()}
                raise impossible(named) from None
            raise NoStateError(
                f"No state has positive probability: factor {error.factor} over the variables "
                f"{self.called(error.factor)} cannot be satisfied."
            ) from None

    def _left(self, evidence: Mapping[int, int]) -> list[Bools]:
        domains = _Domains(self.domains)
        if self.impossible is not None:
            raise _NoSupport(self.impossible)
        for i, value in evidence.items():
            domains.set(i, domains.left[i] & (np.arange(domains.left[i].size) == value))
            if not domains.sizes[i]:
                raise _NoSupport(self.factors_of[i][0])
            self._propagate(domains, self.factors_of[i])
        return domains.left

    def _propagate(self, domains: _Domains, factors: list[int]) -> None:
        """Strike out values without support in place, beginning with some factors."""
        queue = dict.fromkeys(factors)
        while queue:
            f = next(iter(queue))
            del queue[f]
            scope = self.scopes[f]
            left = self.allowed[f]
            for axis, i in enumerate(scope):
                if not domains.left[i].all():
                    left = np.compress(domains.left[i], left, axis=axis)
            if left.all():
                continue
            for axis, i in enumerate(scope):
                supported = left.any(axis=tuple(a for a in range(len(scope)) if a != axis))
                if supported.all():
                    continue
                if not supported.any():
                    raise _NoSupport(f)
                domain = domains.left[i].copy()
                domain[domains.left[i]] = supported
                domains.set(i, domain)
                queue.update(dict.fromkeys(g for g in self.factors_of[i] if g != f))

    def _attempt(
        self, rng: np.random.Generator, domains: _Domains, patience: int
    ) -> list[Bools] | None:
        """Assign all variables; None after too many dead ends."""
        stack: list[tuple[int, int, int]] = []
        ties = rng.random(len(domains.left))
        while (i := self._next(domains, ties)) is not None:
            value = int(rng.choice(domains.left[i].size, p=self._weights(domains.left, i)))
            stack.append((len(domains.changes), i, value))
            possible = self._assign(domains, i, value, keep=True)
            while not possible:  # take back, and strike out
                patience -= 1
                if not stack or not patience:
                    return None
                n_changes, i, value = stack.pop()
                domains.undo(n_changes)
                possible = self._assign(domains, i, value, keep=False)
        return domains.left

    def _next(self, domains: _Domains, ties: Array) -> int | None:
        """Next variable to assign; None if each has one value left."""
        if self.order.size:
            undecided = self.order[domains.sizes[self.order] > 1]
            return int(undecided[0]) if undecided.size else None
        undecided = np.flatnonzero(domains.sizes > 1)
        if not undecided.size:
            return None
        rank = (domains.sizes[undecided] + ties[undecided]) / self.trouble[undecided]
        return int(undecided[rank.argmin()])

    def _weights(self, domains: list[Bools], i: int) -> Array:
        """Probabilities of the values left of a variable."""
        weights = domains[i].astype(np.float64)
        if self.order.size:  # all parents have one value
            f, axis = self.child_of[i]
            at = tuple(
                slice(None) if a == axis else int(domains[j].argmax())
                for a, j in enumerate(self.scopes[f])
            )
            weights = weights * self.tables(f)[at]
        result: Array = weights / weights.sum()
        return result

    def _assign(self, domains: _Domains, i: int, value: int, *, keep: bool) -> bool:
        """Keep only one value of a variable, or strike it out; False if that leaves nothing."""
        left = domains.left[i]
        domains.set(i, left & ((np.arange(left.size) == value) == keep))
        try:
            self._propagate(domains, self.factors_of[i])
        except _NoSupport as error:
            self.conflicts[error.factor] = self.conflicts.get(error.factor, 0) + 1
            self.trouble[self.scopes[error.factor]] += 1.0
            return False
        return True

"""Finding a state at which no table is zero."""

import copy
from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
# Dead ends in the first attempt, more in each later one; attempts.
_PATIENCE, _ATTEMPTS = 20, 20


class _NoSupport(Exception):
    """No value of some variable is left; ``factor`` took the last one."""

    def __init__(self, factor: int):
        self.factor = factor


class Support:
    """The states of positive probability of a product of tables.

    Parameters
    ----------
    scopes : list of ndarray
        Variables of each factor.
    tables : callable
        Returns the table of a factor.
    cardinalities : ndarray of int64, shape (n_sites,)
        Number of values of each variable.

    Notes
    -----
    Variables are assigned one by one. In a Bayesian network parents come before children and
    values are drawn from the conditional probabilities: without evidence the state is a draw from
    the network. Otherwise the variable comes first that has the fewest values left, relative to
    how often its factors have led into dead ends [1]_, and its value is drawn uniformly. After
    each assignment, values that no entry of some table supports are struck out, until nothing
    changes (generalised arc consistency). Where nothing is left the last assignment is taken back
    and its value struck out; after too many of these all begins anew.

    References
    ----------
    .. [1] F. Boussemart et al., "Boosting systematic search by weighting constraints", ECAI 2004.
    """

    def __init__(
        self,
        scopes: list[NDArray[np.uint32]],
        tables: Callable[[int], Array],
        cardinalities: NDArray[np.int64],
    ):
        self.cardinalities = cardinalities
        sites = list(range(cardinalities.size))  # one object per variable, not per mention
        self.scopes = [[sites[i] for i in scope.tolist()] for scope in scopes]
        self.tables = tables
        # Only tables with zeros say anything about the support, and many say the same.
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
        self.domains = [np.ones(k, dtype=np.bool_) for k in cardinalities.tolist()]
        self.impossible: int | None = None
        try:
            self._propagate(self.domains, list(self.allowed))
        except _NoSupport as error:
            self.impossible = error.factor

    def _ancestral_order(self) -> tuple[list[int], dict[int, tuple[int, int]]]:
        """Variables, parents first, and the (factor, axis) of each one's conditional table.

        Empty unless every table is the conditional probability of its last variable, or each of
        its first, one for each variable.
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
                return list(TopologicalSorter(parents).static_order()), children
            except CycleError:
                continue
        return [], {}

    @property
    def n_possible(self) -> NDArray[np.int64]:
        """Number of values of each variable that are left from the beginning."""
        return _sizes(self.domains)

    def draw(
        self, rng: np.random.Generator, sites: NDArray[np.int64], observed: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return a state at which no table is zero and the given sites are as observed."""
        domains = self._observe(sites, observed)
        if not self.allowed and not self.order:
            x = rng.integers(self.cardinalities)
            x[sites] = observed
            return x
        search = copy.copy(self)  # with its own record of dead ends
        search.conflicts, search.trouble = {}, np.ones(len(domains))
        for attempt in range(_ATTEMPTS):
            found = search._attempt(rng, domains, _PATIENCE * (attempt + 1))
            if found is not None:
                return np.array([int(domain.argmax()) for domain in found], dtype=np.int64)
        worst = max(search.conflicts, key=lambda f: search.conflicts[f])
        raise ValueError(
            f"No state of positive probability was found in {_ATTEMPTS} attempts; factor {worst} "
            f"over the variables {tuple(self.scopes[worst])} was most often in the way. Give "
            "initial_states to fit."
        )

    def _observe(self, sites: NDArray[np.int64], observed: NDArray[np.int64]) -> list[Bools]:
        """Values left once the observed ones are known."""
        domains = self.domains.copy()
        try:
            if self.impossible is not None:
                raise _NoSupport(self.impossible)
            for i, value in zip(sites.tolist(), observed.tolist(), strict=True):
                domains[i] = domains[i] & (np.arange(domains[i].size) == value)
                if not domains[i].any():
                    raise _NoSupport(self.factors_of[i][0])
                self._propagate(domains, self.factors_of[i])
        except _NoSupport as error:
            raise ValueError(
                f"No state has positive probability"
                f"{' and agrees with the evidence' if sites.size else ''}: factor {error.factor} "
                f"over the variables {tuple(self.scopes[error.factor])} cannot be satisfied."
            ) from None
        return domains

    def _propagate(self, domains: list[Bools], factors: list[int]) -> None:
        """Strike out what has no support, beginning with some factors; in place."""
        queue = dict.fromkeys(factors)
        while queue:
            f = next(iter(queue))
            del queue[f]
            scope = self.scopes[f]
            left = self.allowed[f]
            for axis, i in enumerate(scope):
                if not domains[i].all():
                    left = np.compress(domains[i], left, axis=axis)
            if left.all():
                continue
            for axis, i in enumerate(scope):
                supported = left.any(axis=tuple(a for a in range(len(scope)) if a != axis))
                if supported.all():
                    continue
                if not supported.any():
                    raise _NoSupport(f)
                domain = domains[i].copy()
                domain[domains[i]] = supported
                domains[i] = domain
                queue.update(dict.fromkeys(g for g in self.factors_of[i] if g != f))

    def _attempt(
        self, rng: np.random.Generator, domains: list[Bools], patience: int
    ) -> list[Bools] | None:
        """Assign all variables; None after too many dead ends."""
        stack: list[tuple[list[Bools], int, int]] = []
        ties = rng.random(len(domains))
        while True:
            i = self._next(domains, ties)
            if i is None:
                return domains
            value = int(rng.choice(domains[i].size, p=self._weights(domains, i)))
            stack.append((domains, i, value))
            left = self._assign(domains, i, value, keep=True)
            while left is None:  # take back, and strike out
                patience -= 1
                if not stack or not patience:
                    return None
                before, i, value = stack.pop()
                left = self._assign(before, i, value, keep=False)
            domains = left

    def _next(self, domains: list[Bools], ties: Array) -> int | None:
        """Variable to assign next; None if there is one value left of each."""
        sizes = _sizes(domains)
        if self.order:
            return next((i for i in self.order if sizes[i] > 1), None)
        i = int(np.argmin(np.where(sizes > 1, (sizes + ties) / self.trouble, np.inf)))
        return i if sizes[i] > 1 else None

    def _weights(self, domains: list[Bools], i: int) -> Array:
        """Probabilities of the values of a variable that are left."""
        weights = domains[i].astype(np.float64)
        if self.order:  # all parents have one value
            f, axis = self.child_of[i]
            at = tuple(
                slice(None) if a == axis else int(domains[j].argmax())
                for a, j in enumerate(self.scopes[f])
            )
            weights = weights * self.tables(f)[at]
        result: Array = weights / weights.sum()
        return result

    def _assign(
        self, domains: list[Bools], i: int, value: int, *, keep: bool
    ) -> list[Bools] | None:
        """Keep only one value of a variable, or strike it out; None if nothing is left then."""
        result = domains.copy()
        result[i] = domains[i] & ((np.arange(domains[i].size) == value) == keep)
        try:
            if not result[i].any():
                raise _NoSupport(self.factors_of[i][0])
            self._propagate(result, self.factors_of[i])
        except _NoSupport as error:
            self.conflicts[error.factor] = self.conflicts.get(error.factor, 0) + 1
            self.trouble[self.scopes[error.factor]] += 1.0
            return None
        return result


def _sizes(domains: list[Bools]) -> NDArray[np.int64]:
    return np.fromiter(map(np.count_nonzero, domains), np.int64, len(domains))

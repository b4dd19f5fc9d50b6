"""Finding a state at which no table is zero."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
# Assignments of one attempt, per variable, and attempts.
_PATIENCE, _ATTEMPTS = 20, 20


class _NoSupport(Exception):
    """No value of some variable is left; ``factor`` took the last one."""

    def __init__(self, factor: int):
        self.factor = factor


class Support:
    """The states of positive probability of a product of tables.

    Parameters
    ----------
    cardinalities : ndarray of int64, shape (n_sites,)
        Number of values of each variable.
    scope_start, scope : ndarray
        Variables of each factor, in the manner of a CSR matrix.
    table : callable
        Returns the table of a factor.

    Notes
    -----
    Variables are assigned one by one, the one with the fewest values left first, a random value
    to each. After each, values that no entry of some table supports are struck out, until nothing
    changes (generalised arc consistency). Where nothing is left the last assignment is taken back
    and its value struck out; after too many of these all begins anew with other random values.
    """

    def __init__(
        self,
        cardinalities: NDArray[np.int64],
        scope_start: NDArray[np.int64],
        scope: NDArray[np.uint32],
        table: Callable[[int], NDArray[np.float64]],
    ):
        self.cardinalities = cardinalities
        # Only tables with zeros say anything.
        self.allowed: dict[int, Bools] = {}
        self.scopes: dict[int, list[int]] = {}
        self.factors_of: dict[int, list[int]] = {}
        self.conflicts: dict[int, int] = {}
        for f in range(scope_start.size - 1):
            allowed = table(f) > 0.0
            if not allowed.all():
                self.allowed[f] = allowed
                self.scopes[f] = scope[scope_start[f] : scope_start[f + 1]].tolist()
                for i in self.scopes[f]:
                    self.factors_of.setdefault(i, []).append(f)
        self.domains = [np.ones(k, dtype=np.bool_) for k in cardinalities.tolist()]
        self.impossible: int | None = None
        try:
            self._propagate(self.domains, list(self.allowed))
        except _NoSupport as error:
            self.impossible = error.factor

    @property
    def n_possible(self) -> NDArray[np.int64]:
        """Number of values of each variable that are left from the beginning."""
        return np.array([domain.sum() for domain in self.domains], dtype=np.int64)

    def draw(
        self, rng: np.random.Generator, sites: NDArray[np.int64], observed: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return a state at which no table is zero and the given sites are as observed."""
        x = rng.integers(self.cardinalities)
        x[sites] = observed
        if not self.allowed:
            return x
        domains = self._observe(sites, observed)
        self.conflicts = {}
        for _ in range(_ATTEMPTS):
            found = self._attempt(rng, domains)
            if found is not None:
                concerned = np.fromiter(self.factors_of, dtype=np.int64)
                x[concerned] = [int(found[i].argmax()) for i in concerned]
                return x
        worst = max(self.conflicts, key=lambda f: self.conflicts[f])
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
                self._propagate(domains, self.factors_of.get(i, []))
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
            for axis, i in enumerate(scope):
                domain = domains[i]
                supported = left.any(axis=tuple(a for a in range(len(scope)) if a != axis))
                if supported.all():
                    continue
                if not supported.any():
                    raise _NoSupport(f)
                domains[i] = domain.copy()
                domains[i][domain] = supported
                queue.update(dict.fromkeys(g for g in self.factors_of[i] if g != f))

    def _attempt(self, rng: np.random.Generator, domains: list[Bools]) -> list[Bools] | None:
        """Assign all variables that factors with zeros contain; None if that takes too long."""
        stack: list[tuple[list[Bools], int, int]] = []
        domains = domains.copy()
        order = rng.permutation(np.fromiter(self.factors_of, dtype=np.int64)).tolist()
        for _ in range(_PATIENCE * len(order) + 1):
            open_ = [i for i in order if np.count_nonzero(domains[i]) > 1]
            if not open_:
                return domains
            i = min(open_, key=lambda i: np.count_nonzero(domains[i]))
            value = int(rng.choice(np.flatnonzero(domains[i])))
            stack.append((domains, i, value))
            left = self._assign(domains, i, value, keep=True)
            while left is None:  # take back, and strike out
                if not stack:
                    return None
                before, i, value = stack.pop()
                left = self._assign(before, i, value, keep=False)
            domains = left
        return None

    def _assign(
        self, domains: list[Bools], i: int, value: int, *, keep: bool
    ) -> list[Bools] | None:
        """Keep only one value of a variable, or strike it out; None if nothing is left then."""
        result = domains.copy()
        result[i] = domains[i] & ((np.arange(domains[i].size) == value) == keep)
        try:
            self._propagate(result, self.factors_of[i])
        except _NoSupport as error:
            self.conflicts[error.factor] = self.conflicts.get(error.factor, 0) + 1
            return None
        return result

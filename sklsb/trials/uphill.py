"""Walks uphill to modes, for several searches at once: a call for few states costs as much.

All variables that lead up by themselves are changed together; if that does not lead up, only the
best half, a quarter, ...
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sklsb._system.arrays import Array, Bools, Ints
from sklsb.targets.base import States, Target

_Result = TypeVar("_Result")
_EPS = float(np.finfo(np.float64).eps)


@dataclass
class Account:
    """What a search may still spend, and what it has spent."""

    looks: int  # states whose neighbours are all evaluated
    evaluations: int = 0


class Walks(NamedTuple):
    """What a search asks for: walks from some states."""

    account: Account
    x: States
    fixed: Ints | None = None  # a variable of each that stays


class Ends(NamedTuple):
    """Where walks from possible states ended, in the same order."""

    x: States
    log_prob: Array


# A search that yields the walks that it needs, is sent their ends, and returns what it finds.
Search = Generator[Walks, Ends, _Result]


class Uphill:
    """Walks uphill on a target, by its log-ratios or by first-order ones."""

    def __init__(self, target: Target, first_order: bool):
        self.target = target
        self.n_moves = target.offers.n_moves
        self._look_cost = 1 if first_order else self.n_moves
        # A gradient of an RBM takes as long as a single log-ratio.
        by_gradients = first_order or target.offers.layers is not None
        self._log_ratios = target.first_order_ratios if by_gradients else target.log_ratios
        self._values = np.asarray(target.values, dtype=target.dtype)
        self._sites = np.flatnonzero(target.cardinalities > 1)
        self._first = target.offers.first_moves[self._sites]

    def follow(self, searches: Sequence[Search[_Result]]) -> list[_Result]:
        """Run searches, and make the walks that they ask for, each while its looks last."""
        found: dict[int, _Result] = {}
        answers: dict[int, Any] = dict.fromkeys(range(len(searches)))
        while answers:
            asked = {}
            for k, answer in answers.items():
                try:
                    asked[k] = searches[k].send(answer)
                except StopIteration as end:
                    found[k] = end.value
            answers = dict(zip(asked, self._climb(list(asked.values())), strict=True))
        return [found[k] for k in range(len(searches))]

    def _climb(self, asked: list[Walks]) -> list[Ends]:
        if not asked:
            return []
        accounts = [walks.account for walks in asked]
        owner = np.repeat(np.arange(len(asked)), [len(walks.x) for walks in asked])
        fixed = np.full(owner.size, -1)
        for k, walks in enumerate(asked):
            if walks.fixed is not None:
                fixed[owner == k] = np.searchsorted(self._sites, walks.fixed)
        x = np.concatenate([walks.x for walks in asked])
        log_prob = self._evaluated(x, accounts, owner)
        possible = np.isfinite(log_prob)
        x, log_prob = x[possible], log_prob[possible]
        owner, fixed = owner[possible], fixed[possible]
        most = np.full(len(x), self._sites.size)
        walking = np.arange(len(x) if self._sites.size else 0)
        while (walking := self._paid(walking, accounts, owner)).size:
            gain, value = self._best_moves(x[walking])
            stays = np.flatnonzero(fixed[walking] >= 0)
            gain[stays, fixed[walking[stays]]] = -np.inf
            rising = gain > noise(log_prob[walking])[:, None]
            n_up = rising.sum(axis=1)
            n = np.minimum(n_up, most[walking])
            higher = np.zeros(walking.size, dtype=np.bool_)
            while (tried := np.flatnonzero(~higher & (n > 0))).size:
                fewer = tried[n[tried] < n_up[tried]]
                rising[fewer] = _largest(gain[fewer], n[fewer])
                row, at = np.nonzero(rising[tried])
                trial = x[walking[tried]]
                trial[row, self._sites[at]] = value[tried[row], at]
                before = log_prob[walking[tried]]
                reached = self._evaluated(trial, accounts, owner[walking[tried]])
                up = reached > before + noise(before)
                x[walking[tried[up]]] = trial[up]
                log_prob[walking[tried[up]]] = reached[up]
                most[walking[tried[up]]] = 2 * n[tried[up]]
                higher[tried[up]] = True
                n[tried[~up]] //= 2
            walking = walking[higher]
        return [Ends(x[owner == k], log_prob[owner == k]) for k in range(len(asked))]

    def _evaluated(self, x: States, accounts: list[Account], owner: Ints) -> Array:
        for account, n in zip(accounts, np.bincount(owner, minlength=len(accounts)), strict=True):
            account.evaluations += int(n)
        return self.target.log_prob(x)

    def _paid(self, walking: Ints, accounts: list[Account], owner: Ints) -> Ints:
        """Return the walks of searches that have looks left for all of theirs, and take these."""
        n_walking = np.bincount(owner[walking], minlength=len(accounts)).tolist()
        for k, (account, n) in enumerate(zip(accounts, n_walking, strict=True)):
            if n <= account.looks:
                account.looks -= n
                account.evaluations += n * self._look_cost
            else:
                walking = walking[owner[walking] != k]
        return walking

    def _best_moves(self, x: States) -> tuple[Array, States]:
        """Largest log-ratio of a change of each variable, and the value that it leads to."""
        ratios, own = self._log_ratios(x), x[:, self._sites]
        if self.n_moves == self._sites.size:
            low, high = self._values[:2]
            return np.array(ratios), np.where(own == low, high, low)
        gain = np.maximum.reduceat(ratios, self._first, axis=1)
        size = np.diff(self._first, append=self.n_moves)
        is_best = ratios == np.repeat(gain, size, axis=1)
        moves = np.where(is_best, np.arange(self.n_moves), self.n_moves)
        new = np.minimum.reduceat(moves, self._first, axis=1) - self._first
        new += new >= np.searchsorted(self._values, own)
        return gain, self._values[new]


def _largest(rows: Array, n: Ints) -> Bools:
    """Mark the n largest numbers of each row; of equal ones, the first."""
    found = np.zeros(rows.shape, dtype=np.bool_)
    for row, size, marks in zip(rows, n.tolist(), found, strict=True):
        least = -np.partition(-row, size - 1)[size - 1]
        marks[row > least] = True
        marks[np.flatnonzero(row == least)[: size - np.count_nonzero(marks)]] = True
    return found


def noise(log_prob: Array) -> Array:
    """Differences of log p that may be rounding."""
    return 64 * _EPS * (1.0 + np.abs(log_prob))

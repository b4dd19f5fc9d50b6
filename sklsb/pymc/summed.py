"""The sum over all values of a block, as an operation of PyTensor, and exact draws of the block."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.model.core import ValueGradFunction
from pytensor.gradient import DisconnectedType
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_and_cache_key

from sklsb._kernels import _jit
from sklsb._kernels.elimination.sums import go_back, log_sums
from sklsb._system.arrays import Ints
from sklsb.exact.elimination.order import best_order
from sklsb.exact.elimination.reduce import Factor, spread_over
from sklsb.exact.elimination.schedule import cliques
from sklsb.pymc.block import Block, Given, Point
from sklsb.pymc.moves import Colours, Elimination, Move
from sklsb.pymc.numbers import Numbers


class LogSum(Op):
    """The last of messages, and its slope by the numbers that they are made of; see `log_sums`."""

    __props__ = ()
    itypes = (pt.dvector, pt.lvector, pt.lvector, pt.lvector)
    otypes = (pt.TensorType("float64", (1,)), pt.dvector)

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        outputs[0][0], outputs[1][0] = _log_sum(*inputs)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        return [cotangents[0] * outputs[1], *(DisconnectedType()() for _ in inputs[1:])]

    def connection_pattern(self, node: Any) -> list[list[bool]]:
        return [[True, False], *[[False, False]] * 3]


def _log_sum(numbers: Any, parts: Any, start: Any, first: Any) -> Any:
    k, n = numbers.size, first.size - 1
    every = np.empty(k + n)
    every[:k] = numbers
    slope = np.zeros(k + n)
    log_sums(every, parts, start, first, np.empty(start.size - 1), slope)
    return every[k + n - 1 :], slope[:k]


if hasattr(log_sums, "py_func"):  # compiled

    @register_funcify_and_cache_key(LogSum)
    def _compiled(op: Any, node: Any = None, **options: Any) -> tuple[Any, str]:
        code = _log_sum.__code__.co_code + _jit._stamp(log_sums.__module__)
        # PyTensor keeps it on disk by this name.
        return numba_njit(_log_sum), hashlib.sha256(code).hexdigest()


class Messages:
    """Messages of elimination; those made of the same parts in the same way are one.

    ``sites`` are those with several values. All joint values of sites that an output sees are in
    one of ``states``, (n_states, block.n_sites), or left out: ``never``, (n_values, sites.size).
    Data are those of now if ``fixed``.
    """

    vector: Any  # the graph of the numbers that messages are made of
    # What `log_sums` takes: parts, where each term starts, and the first of each message, the last
    # of which is the sum over all values.
    arrays: list[Ints]
    way_back: list[Ints]  # what `go_back` takes first
    value: Ints  # what each term says of its variable

    def __init__(self, block: Block, sites: Ints, states: Ints, fixed: bool, never: Any = None):
        numbers, k = Numbers(block, states, fixed), (block.high - block.low + 1)[sites]
        self.vector, self._n = numbers.vector, int(numbers.vector.type.shape[0])
        self._known = dict[tuple[Any, ...], int]()
        last, factors = self._tables(block, sites, states, numbers, k, never)
        shapes = [Factor(f.scope, f.table[..., 0]) for f in factors]
        order = best_order([*range(sites.size)], shapes, k).variables
        place, waiting = {v: i for i, v in enumerate(order)}, [list[Factor]() for _ in order]
        axes, every, stride = cliques(order, shapes), list[Ints](), list[int]()
        for f in factors:
            waiting[min(place[v] for v in f.scope)].append(f)
        for v, more, members in zip(order, axes, waiting, strict=True):
            found = self._sent((v, *more), members, k)
            every.append(found.ravel() - self._n)
            stride += [s // found.itemsize for s in found.strides]
            if more:
                table: Any = found[..., None]
                waiting[min(place[u] for u in more)].append(Factor(more, table))
            else:
                last.append(int(found))
        messages = [*self._known, () if -1 in last else ((0, last),)]
        terms = [term for message in messages for term in message]
        starts = [
            np.cumsum([0, *map(len, each)], dtype=np.int64)
            for each in ([parts for _, parts in terms], messages, axes, map(np.ravel, every))
        ]
        flat = np.array([p for _, parts in terms for p in parts], np.int64)
        self.arrays, self.value = [flat, *starts[:2]], np.array([v for v, _ in terms], np.int64)
        self.way_back = [
            *(np.array(each, np.int64) for each in (order, [u for a in axes for u in a], stride)),
            starts[2],
            np.concatenate(every),
            starts[3],
        ]

    @staticmethod
    def _tables(
        block: Block, sites: Ints, states: Ints, numbers: Numbers, k: Ints, never: Any
    ) -> tuple[list[int], list[Factor]]:
        """Return where numbers are that see no site, and those that see some, by the values."""
        values, sets = (states - block.low)[:, sites], block.sets[:, sites].tocsr()
        sets.sort_indices()
        order = np.argsort(numbers.scope_of, kind="stable")
        ends = np.searchsorted(numbers.scope_of[order], np.arange(1, sets.shape[0]))
        last, factors = list[int](), list[Factor]()
        scopes = np.split(sets.indices, sets.indptr[1:-1])
        for scope, seen in zip(scopes, np.split(order, ends), strict=True):
            if not scope.size:
                last += numbers.at[0, seen].tolist()
            elif seen.size:
                table: Any = np.full((*k[scope], seen.size), -1)
                table[tuple(values[:, scope].T)] = numbers.at[:, seen]
                if never is not None and scope.size == 1:
                    table[never[: len(table), scope[0]]] = -1
                factors.append(Factor(tuple(scope.tolist()), table))
        return last, factors

    def _sent(self, scope: tuple[int, ...], members: Sequence[Factor], k: Ints) -> Ints:
        """Return where the messages of a bucket are, -1 where no value is possible."""
        shape = k[[*scope]]
        joined = [np.empty((*shape, 0), np.int64)]
        for own, table in members:
            each: Any = np.moveaxis(table, -1, 0)
            spread = [spread_over(scope, Factor(own, t)) for t in each]
            joined.append(np.broadcast_to(np.stack(spread, axis=-1), (*shape, len(spread))))
        parts = np.moveaxis(np.concatenate(joined, axis=-1), 0, -2)
        found = np.empty(shape[1:], np.int64)
        for at in np.ndindex(found.shape):
            terms = enumerate(parts[at].tolist())
            key = tuple((v, tuple(sorted(term))) for v, term in terms if -1 not in term)
            found[at] = self._known.setdefault(key, self._n + len(self._known)) if key else -1
        return found


class Whole(Move):
    """All sites at once, from numbers of which one call makes all."""

    def __init__(self, block: Block, way: Colours | Elimination):
        self.block, self.sites, self._way, self.name = block, way.sites, way, way.name
        self.states, self.n_evaluations = way.states, way.n_evaluations
        made = Messages(block, way.sites, way.states, fixed=False)
        self._numbers, self._arrays = block.compiled(made.vector), made.arrays
        self._way_back, self._value = made.way_back, made.value

    def draw(self, x: Ints, given: Given, rng: np.random.Generator, check: bool) -> Ints:
        if check:
            x = self._way.draw(x, given, rng, check)
        parts, start, first = self._arrays
        numbers = self._numbers(*given)
        numbers[np.isnan(numbers)] = -np.inf
        every = np.concatenate([numbers, np.empty(first.size - 1)])
        share, u = np.empty(start.size - 1), rng.random(self.sites.size)
        log_sums(every, parts, start, first, share, np.empty(0))
        if every[-1] == -np.inf:
            return x
        state = np.empty(self.sites.size, np.int64)
        go_back(*self._way_back, first, share, self._value, u, state)
        y = x.copy()
        y[self.sites] = self.block.low[self.sites] + state
        return y


def log_sum(
    block: Block, sites: Ints, states: Ints, never: Any, variables: Sequence[Any], point: Point
) -> ValueGradFunction:
    """Compile log p, with sites summed out, and its gradient with respect to some variables.

    Shapes, and the values of other variables, are taken at ``point``; for the rest see `Messages`.
    """
    messages = Messages(block, sites, states, True, never)
    total = LogSum()(messages.vector, *map(pt.constant, messages.arrays))[0][0]
    total += sum(term.sum().astype("float64") for term in block.others)
    # Sites, too, though log p has them no more: PyMC's steps take all of a point if none is given.
    given = {v: point[v.name] for v in block.model.value_vars if v not in variables}
    f = ValueGradFunction(
        [total],
        list(variables),
        given,
        model=block.model,
        initial_point=point,
        ravel_inputs=True,
        on_unused_input="ignore",
    )
    f._pytensor_function.trust_input = True
    f.set_extra_values(point)
    return f

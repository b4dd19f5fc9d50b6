"""Numbers of which log p is made at all values of the sites of a block, each made once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor import elemwise, subtensor
from pytensor.tensor.rewriting.basic import topo_unconditional_constant_folding
from pytensor.tensor.rewriting.shape import ShapeFeature
from pytensor.tensor.type import TensorType

from sklsb._system.arrays import Ints
from sklsb.pymc.block import Block, Given
from sklsb.pymc.graph import MOVES, TAKES, frozen

# A vector, or a constant one, and where in it each element of an array is.
Alike = tuple[Any, Ints]


class Numbers:
    """Sums of outputs that see the same sites, at some states, each number once."""

    vector: Any  # a graph
    scope_of: Ints  # for each sum, which row of ``block.sets`` has the sites that it sees
    at: Ints  # where each sum at each state is in the vector, (n_states, n_sums)

    def __init__(self, block: Block, states: Ints, fixed: bool = False):
        free = np.flatnonzero(block.high > block.low)
        sets, values = block.sets[:, free].astype(np.int64), (states - block.low)[:, free]
        rank = np.arange(sets.indices.size) - np.repeat(sets.indptr[:-1], np.diff(sets.indptr))
        sets.data = (int(values.max(initial=0)) + 1) ** rank
        codes = sets @ values.T  # what tells states of the sites of a set from each other
        first = (codes[:, None] == codes[:, :, None]).argmax(axis=2)
        alike = dict[tuple[Any, bytes], list[int]]()  # terms, summed from an axis on
        ends = np.cumsum([int(np.prod(shape)) for shape in block.shapes])
        for t, (of, shape) in enumerate(
            zip(np.split(block.scope_of, ends), block.shapes, strict=False)
        ):
            of = of.reshape(shape)
            while of.size and of.ndim and (of == of[..., :1]).all():
                of = of[..., 0]
            alike.setdefault((of.shape, of.tobytes()), []).append(t)
        scopes = [np.frombuffer(of, np.int64) for _, of in alike]
        self.scope_of = np.concatenate(scopes)
        ends = np.cumsum([of.size for of in scopes])
        parts, places = list[Any](), list[tuple[int, slice]]()
        for s, x in enumerate(states):
            terms = block.terms_at(x)
            for ((shape, _), which), of, end in zip(alike.items(), scopes, ends, strict=True):
                if (first[of, s] == s).any():  # others are known from earlier states
                    sums = [terms[t].sum(axis=range(len(shape), terms[t].ndim)) for t in which]
                    parts.append(pt.specify_shape(sum(sums), shape))
                    places.append((s, slice(end - of.size, end)))
        parts = frozen(parts) if fixed else parts
        vectors, start, at = list[Any](), 0, np.empty((len(states), self.scope_of.size), int)
        for (s, here), (vector, of) in zip(places, once(parts), strict=True):
            at[s, here] = start + of.ravel()
            start += int(vector.type.shape[0])
            vectors.append(vector.astype("float64"))
        self.at = np.take_along_axis(at, first[self.scope_of].T, axis=0)
        self.vector = pt.concatenate(vectors)


def impossible(block: Block, sites: Ints, states: Ints, given: Given) -> tuple[Any, Ints, Any]:
    """Return which values of sites are impossible here and nearby, by what sees one site alone.

    Also the states with possible values in their place, and where log p is NaN at others.
    """
    k, rng = (block.high - block.low + 1)[sites], np.random.default_rng(0)
    sets = block.sets[:, sites].tocsr()
    own = np.full(sets.shape[0], k.size)
    alone = np.diff(sets.indptr) == 1
    own[alone] = sets.indices[sets.indptr[:-1][alone]]
    own = own[block.scope_of]
    never = np.ones((int(k.max()), k.size), bool)
    no_number, each = np.zeros_like(never), (states - block.low)[:, sites]
    for scale in (0.0, 0.1, 0.3, 1.0):
        near = [
            g + scale * rng.standard_normal(g.shape) if g.dtype.kind == "f" else g for g in given
        ]
        found = np.ones_like(never)
        for v, y in zip(each, states, strict=True):
            outputs = block.log_p(y, *near)
            log_p = np.bincount(own, outputs, k.size + 1)[:-1]
            found[v, np.arange(k.size)] = np.isneginf(log_p) | np.isnan(log_p)
            at = own[np.isnan(outputs) & (own < k.size)]
            no_number[v[at], at] = True
        never &= found
    never |= np.arange(len(never))[:, None] >= k
    spare = np.where(np.take_along_axis(never, each, axis=0), never.argmin(axis=0), each)
    other = states.copy()
    other[:, sites] = block.low[sites] + spare
    return never, other, no_number & ~never


# ----------------------------------------------------------------- elements, each made once


def once(terms: Sequence[Any]) -> list[Alike]:
    """Return vectors that hold all different elements of the terms, and where each is in them.

    Elements are alike that are taken from one place of an array, are equal constants, or are made
    by one operation of elements that are alike. What is not taken of an array is not computed: it
    may have no gradient.
    """
    graph = FunctionGraph(
        outputs=list(terms), clone=True, copy_inputs=False, features=[ShapeFeature()]
    )
    rewrite_graph(graph)
    topo_unconditional_constant_folding.apply(graph)
    graph = FunctionGraph(outputs=graph.outputs, clone=True, copy_inputs=False)
    known = dict[Any, Alike]()
    for node in graph.toposort():
        old = node.outputs[0]
        is_array = len(node.outputs) == 1 and isinstance(old.type, TensorType)
        if not is_array or None in old.type.shape or np.prod(old.type.shape) < 2:
            continue
        found = _found(node, known)
        if found:
            new = old.type.filter_variable(_spread(*found))
            known[new] = found
            graph.replace(old, new, import_missing=True)
    return [known.get(term) or _whole(term) for term in graph.outputs]


def _whole(v: Any) -> Alike:
    size = int(np.prod(v.type.shape))
    return v.reshape((size,)), np.arange(size).reshape(v.type.shape)


def _spread(vector: Any, at: Ints) -> Any:
    """Return the array of elements at some places."""
    if at.min() == at.max():
        return pt.alloc(vector[int(at.flat[0])], *at.shape)
    return vector[at]


def _taken(vector: Any, at: Ints) -> Any:
    """Return the elements at some places of a vector."""
    size = vector.type.shape[0]
    if size == 1 or np.array_equal(at, np.arange(size)):
        return vector
    return pt.constant(vector.data[at]) if isinstance(vector, Constant) else vector[at]


def _input(v: Any, known: dict[Any, Alike]) -> Alike | None:
    """Return the elements of an input, if they are known; those of scalars are all alike."""
    if isinstance(v, Constant) and isinstance(v.type, TensorType):
        values, at = np.unique(v.data, return_inverse=True)
        return pt.constant(values), at.reshape(v.data.shape)
    if all(n == 1 for n in v.type.shape):
        return v.reshape((1,)), np.zeros([1] * v.type.ndim, np.int64)
    return known.get(v)


def _found(node: Any, known: dict[Any, Alike]) -> Alike | None:
    """Return the elements of what a node takes, moves or makes, if many of them are alike."""
    op, first = node.op, node.inputs[0]
    if isinstance(op, MOVES + TAKES):
        rest = node.inputs[1:]
        starts = isinstance(op, subtensor.AdvancedSubtensor) and None not in first.type.shape
        found = _input(first, known) or (_whole(first) if starts else None)
        if found is None or not all(isinstance(i, Constant) for i in rest):
            return None
        storage = [[None]]
        op.perform(node, [found[1], *(i.data for i in rest)], storage)
        return found[0], np.asarray(storage[0][0])
    if isinstance(op, elemwise.CAReduce) and first in known:
        vector, at = known[first]
        gone = range(at.ndim) if op.axis is None else op.axis
        kept = [a for a in range(at.ndim) if a not in gone]
        shape = [at.shape[a] for a in kept]
        rows = np.sort(at.transpose(*kept, *gone).reshape(int(np.prod(shape)), -1))
        rows, at = np.unique(rows, axis=0, return_inverse=True)
        if 2 * rows.size > known[first][1].size:
            return None
        part = _taken(vector, rows.ravel()).reshape(rows.shape)
        return op.clone(axis=(1,))(part), at.reshape(shape)
    if not isinstance(op, elemwise.Elemwise):
        return None
    inputs = [found for i in node.inputs if (found := _input(i, known))]
    if len(inputs) < len(node.inputs):
        return None
    shape, code = node.outputs[0].type.shape, np.zeros((), np.int64)
    for vector, at in inputs:
        code = np.unique(code * vector.type.shape[0] + at, return_inverse=True)[1].reshape(
            np.broadcast_shapes(code.shape, at.shape)
        )
    _, one, at = np.unique(np.broadcast_to(code, shape), return_index=True, return_inverse=True)
    if 2 * one.size > at.size and at.size > 1:
        return None
    parts = [_taken(v, np.broadcast_to(i, shape).ravel()[one]) for v, i in inputs]
    return op(*parts), at.reshape(shape)

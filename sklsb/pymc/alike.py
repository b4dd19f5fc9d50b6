"""Graphs of PyTensor in which elements that are made in the same way of the same are made once."""

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
from sklsb.pymc.graph import MOVES, TAKES

# A vector, or a constant one, and where in it each element of an array is.
Alike = tuple[Any, Ints]


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

"""Which elements of the terms of log p see which sites, read off the graph of PyTensor.

What a variable of the graph sees is an integer for each of its elements, and a set of sites for
each integer: operations that move elements move integers. Sets may be too large, never too small.
An operation that is not known lets every element see all that its inputs see.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import toposort
from pytensor.scalar import basic as scalar
from pytensor.tensor import basic, elemwise, extra_ops, math, subtensor
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.type import TensorType
from pytensor.xtensor.basic import TensorFromXTensor
from pytensor.xtensor.type import XTensorType
from scipy.sparse import csr_array, eye_array, vstack

# So many values of an index that is not known, or products of a matrix, are looked at one by one.
_MOST_PLACES, _MOST_PRODUCTS = 256, 1 << 22
_NO_DEGREE = 1 << 20  # of what is no polynomial
_TAKES = (subtensor.Subtensor, subtensor.AdvancedSubtensor)
_PUTS = (subtensor.IncSubtensor, subtensor.AdvancedIncSubtensor)
_MOVES = (  # the first input, as the others say
    elemwise.DimShuffle,
    Reshape,
    SpecifyShape,
    basic.Alloc,
    basic.ExtractDiag,
    JoinDims,
    SplitDims,
)
_SAME = (basic.TensorFromScalar, basic.ScalarFromTensor, TensorFromXTensor)

Labels = NDArray[np.int64]

# ----------------------------------------------------------------- terms


def dependents(outputs: Sequence[Any], roots: set[Any]) -> set[Any]:
    """Return the roots, and all variables whose values depend on one; shapes do not."""
    found = set(roots)
    for node in toposort(outputs):
        if not (isinstance(node.op, Shape | Shape_i) or found.isdisjoint(node.inputs)):
            found.update(node.outputs)
    return found


def pieces(terms: Sequence[Any], block: set[Any]) -> list[Any]:
    """Return arrays whose elements add up to the terms, but for a number that the block leaves.

    Sums are taken apart, and arrays without a variable of the block left out. Checks of parameters
    become terms of their own, 0 or -inf: they join all elements of an array otherwise.
    """
    plain = [t.values if isinstance(t.type, XTensorType) else t for t in terms]
    plain = rewrite_graph(clone_replace(plain, {}), include=("lower_xtensor",))
    graph = FunctionGraph(outputs=plain, clone=True, copy_inputs=False)
    checks = []
    while True:
        for node in graph.toposort():
            if isinstance(node.op, CheckParameterValue):
                checks += node.inputs[1:]
                graph.replace_all([(node.outputs[0], node.inputs[0])])
                for check in node.inputs[1:]:
                    graph.add_output(check)
                break
            if isinstance(node.op, OpFromGraph):
                new = inline_ofg_node(node)
                if not new:
                    continue
                graph.replace_all(list(zip(node.outputs, new, strict=True)), import_missing=True)
                break
        else:
            break
    n, outputs = len(terms), graph.outputs
    enters = dependents(outputs, block)
    made = [p for term in outputs[:n] for p in _apart(term, enters)]
    for condition in _conditions(outputs[n:], enters):
        made.append(pt.switch(condition, 0.0, -np.inf))
    return made


def _conditions(checks: Sequence[Any], enters: set[Any]) -> list[Any]:
    """Return the arrays of booleans that checks are made of, each once."""
    found, left = dict[Any, None](), list(checks)
    while left:
        v = left.pop()
        op = None if v.owner is None else v.owner.op
        if v not in enters:
            continue
        both = isinstance(op, elemwise.Elemwise) and isinstance(op.scalar_op, scalar.AND)
        if isinstance(op, (math.All, basic.MakeVector, *_SAME)) or (both and v.ndim == 0):
            left += v.owner.inputs
        else:
            found[v] = None
    return list(found)


def _apart(v: Any, enters: set[Any]) -> list[Any]:
    """Take a term apart whose elements are added up anyway."""
    if v not in enters:
        return []
    if v.owner is None:
        return [v]
    op, inputs = v.owner.op, v.owner.inputs
    if isinstance(op, math.Sum) or (
        isinstance(op, elemwise.DimShuffle) and len(op.new_order) >= inputs[0].type.ndim
    ):
        return _apart(inputs[0], enters)
    if isinstance(op, math.Dot) and v.type.ndim == 0:
        return [inputs[0] * inputs[1]]
    if not isinstance(op, elemwise.Elemwise):
        return [v]
    of = op.scalar_op
    alike = all(i.type.broadcastable == v.type.broadcastable for i in inputs)
    if isinstance(of, scalar.Add) and alike:
        return [p for i in inputs for p in _apart(i, enters)]
    if isinstance(of, scalar.Sub) and alike:
        return [*_apart(inputs[0], enters), *(-p for p in _apart(inputs[1], enters))]
    if isinstance(of, scalar.Neg):
        return [-p for p in _apart(inputs[0], enters)]
    if isinstance(of, scalar.Cast | scalar.Identity):
        return _apart(inputs[0], enters)
    first = [i for i in inputs if i in enters]
    if v.type.ndim == 0 and len(first) == 1:
        (inner,) = first
        if isinstance(of, scalar.Mul):
            return [
                math.mul(p, *(i for i in inputs if i is not inner)) for p in _apart(inner, enters)
            ]
        if isinstance(of, scalar.TrueDiv) and inner is inputs[0]:
            return [p / inputs[1] for p in _apart(inner, enters)]
    return [v]


# ----------------------------------------------------------------- what sees what


class Sees(NamedTuple):
    """The integer of each element of an array, and the sites of each integer."""

    of: Labels
    sets: Any  # a csr_array of booleans: a row for each integer, a column for each site

    @classmethod
    def all_of(cls, parts: Sequence[Sees], out: tuple[int, ...]) -> Sees:
        """Return an array whose elements see all that the parts see."""
        used = vstack([s.sets[np.unique(s.of)] for s in parts]).tocsr()
        sites = np.unique(used.indices)
        one = (np.ones(sites.size, bool), (np.zeros(sites.size, int), sites))
        return cls(np.zeros(out, np.int64), csr_array(one, shape=(1, used.shape[1])))

    def united(self, groups: Labels) -> Sees:
        """Return what elements see that are made of the elements at the rows of an array.

        Entries of -1 stand for none.
        """
        rows, n = np.nonzero(groups >= 0)[0], self.sets.shape[0]
        keys = np.unique(rows * n + groups[groups >= 0])
        picked = (np.ones(keys.size, bool), (keys // n, keys % n))
        sets = csr_array(picked, shape=(groups.shape[0], n)) @ self.sets
        return Sees(np.arange(groups.shape[0]), sets)


def _joined(parts: Sequence[Sees | None], shapes: Sequence[tuple[int, ...]]) -> Sees:
    """Return all elements of several arrays as one flat array."""
    found = [s for s in parts if s is not None]
    empty = csr_array((1, found[0].sets.shape[1]), dtype=bool)
    start, flat = 1, []
    for part, one in zip(parts, shapes, strict=True):
        of = np.zeros(one, np.int64) if part is None else np.broadcast_to(part.of + start, one)
        flat.append(of.ravel())
        start += 0 if part is None else part.sets.shape[0]
    return Sees(np.concatenate(flat), vstack([empty, *(s.sets for s in found)]).tocsr())


def _both(a: Sees, b: Sees, out: tuple[int, ...]) -> Sees:
    """Return what elements see that are made of elements of both arrays, broadcast."""
    one, other = np.broadcast_to(a.of, out), np.broadcast_to(b.of, out)
    if a.sets is b.sets and np.array_equal(one, other):
        return Sees(one, a.sets)
    n = b.sets.shape[0]
    pairs, of = np.unique(one * n + other, return_inverse=True)
    return Sees(of.reshape(out), a.sets[pairs // n] + b.sets[pairs % n])


class Reader:
    """Reads a graph forward from the block.

    Parameters
    ----------
    outputs : list of variables
        What `pieces` returned.
    sites : dict of variable: ndarray of int
        The site of each element of the variables of the block.
    inputs : list of variables
        All value variables of the model.
    point : dict
        Their values, by name. Shapes are taken there.

    Attributes
    ----------
    sees : Sees
        Of all elements of the outputs, flat; equal sets have one integer.
    vague : ndarray of bool
        Which of these elements went through an operation that is not known.
    degree : ndarray of int
        The degree of these elements as polynomials of the sites, or a large number.
    unknown : set of str
        The names of these operations.
    """

    def __init__(self, outputs: Any, sites: dict[Any, Labels], inputs: Any, point: Any):
        self._n = sum(of.size for of in sites.values())
        every = eye_array(self._n, dtype=bool, format="csr")
        self._found = {v: Sees(of, every) for v, of in sites.items()}
        self._degree = dict.fromkeys(sites, 1)
        self.unknown, vague = set[str](), set[Any]()
        enters, varies = (dependents(outputs, set(roots)) for roots in (sites, inputs))
        nodes = [node for node in toposort(outputs) if not enters.isdisjoint(node.outputs)]
        self._evaluate(nodes, outputs, varies, inputs, point)
        for node in nodes:
            parts = {i: self._found[i] for i in node.inputs if i in self._found}
            known = self._through(node)
            if known is None:
                self.unknown.add(str(getattr(node.op, "core_op", node.op)).partition("{")[0])
                vague.update(node.outputs)
                known = [Sees.all_of([*parts.values()], self._shapes[out]) for out in node.outputs]
            if not vague.isdisjoint(parts):
                vague.update(node.outputs)
            self._found.update(zip(node.outputs, known, strict=True))
            self._degree.update(dict.fromkeys(node.outputs, self._degree_after(node)))
        shapes = [self._shapes[out] for out in outputs]
        sizes = [int(np.prod(one)) for one in shapes]
        self.vague = np.repeat([out in vague for out in outputs], sizes)
        self.degree = np.repeat([self._degree.get(out, 0) for out in outputs], sizes)
        self.sees = distinct(_joined([self._found.get(out) for out in outputs], shapes))

    def _evaluate(self, nodes: Any, outputs: Any, varies: Any, inputs: Any, point: Any) -> None:
        """Find the shapes of all variables, and values of those that do not vary."""
        variables = {v: None for node in nodes for v in (*node.inputs, *node.outputs)}
        variables.update(dict.fromkeys(outputs))
        arrays = [v for v in variables if isinstance(v.type, TensorType) and v.type.ndim]
        fixed = [v for v in variables if v not in varies and hasattr(v.type, "ndim")]
        evaluate = pytensor.function(
            inputs,
            [*(v.shape for v in arrays), *fixed],
            mode=Mode(linker="py", optimizer=None),
            on_unused_input="ignore",
        )
        with np.errstate(all="ignore"):
            made = evaluate(*(point[v.name] for v in inputs))
        self._shapes = {v: () for v in variables}
        self._shapes.update({v: tuple(map(int, at)) for v, at in zip(arrays, made, strict=False)})
        self._values = dict(zip(fixed, made[len(arrays) :], strict=True))

    def _degree_after(self, node: Any) -> int:
        """Return the degree of what a node makes as a polynomial of the sites."""
        op, degrees = node.op, [self._degree.get(i, 0) for i in node.inputs]
        of = op.scalar_op if isinstance(op, elemwise.Elemwise) else None
        if isinstance(of, scalar.Mul) or isinstance(getattr(op, "core_op", op), math.Dot):
            return sum(degrees)
        if isinstance(of, scalar.Sqr):
            return 2 * degrees[0]
        if isinstance(of, scalar.Pow) and np.all(self._values.get(node.inputs[1], 0) == 2):
            return 2 * degrees[0]
        casts = isinstance(of, scalar.Cast) and node.outputs[0].dtype == "float64"
        linear = isinstance(of, scalar.Add | scalar.Sub | scalar.Neg | scalar.Identity) or casts
        moves = isinstance(op, (*_MOVES, *_TAKES, *_SAME, math.Sum, basic.Split))
        joins = isinstance(op, (basic.Join, basic.MakeVector))
        joins |= isinstance(op, _PUTS) and not any(degrees[2:])
        if linear or joins or (moves and not any(degrees[1:])):
            return max(degrees)
        if isinstance(of, scalar.TrueDiv) and not degrees[1]:
            return degrees[0]
        return degrees[1] if isinstance(of, scalar.Second) else _NO_DEGREE

    def _through(self, node: Any) -> list[Sees] | None:
        """Return what the outputs of a node see, or None if its operation is not known."""
        op, parts = node.op, [self._found.get(i) for i in node.inputs]
        out = self._shapes[node.outputs[0]]
        values = [self._values.get(i) for i in node.inputs]
        if isinstance(op, elemwise.Elemwise):
            return [self._elementwise(op.scalar_op, parts, values, out)] * len(node.outputs)
        first = parts[0]
        if isinstance(op, _SAME) and first is not None:
            return [first]
        if isinstance(op, _TAKES):
            return self._taken(node, parts, values, out)
        if isinstance(op, basic.MakeVector | basic.Join):
            shapes = [self._shapes[i] for i in node.inputs]
            flat = _joined(parts, shapes)
            ends = np.cumsum([int(np.prod(one)) for one in shapes])[:-1]
            arrays = [a.reshape(s) for a, s in zip(np.split(flat.of, ends), shapes, strict=True)]
            of = (
                np.stack(arrays)
                if isinstance(op, basic.MakeVector)
                else np.concatenate(arrays, op.axis)
            )
            return [Sees(of, flat.sets)]
        if isinstance(op, _PUTS) and all(v is not None for v in values[2:]):
            return self._put(node, parts, values, out)
        if first is None:
            return self._blocks(node, parts) if isinstance(op, Blockwise | math.Dot) else None
        if isinstance(op, _MOVES) and all(v is not None for v in values[1:]):
            storage = [[None]]
            op.perform(node, [first.of, *values[1:]], storage)
            return [Sees(np.asarray(storage[0][0]), first.sets)]
        if isinstance(op, basic.Split) and values[1] is not None:
            cut = np.split(first.of, np.cumsum(values[1])[:-1], axis=op.axis)
            return [Sees(of, first.sets) for of in cut]
        if isinstance(op, elemwise.CAReduce | math.Argmax):
            axes = range(first.of.ndim) if op.axis is None else op.axis
            return [self._reduced(first, tuple(axes), out)]
        if isinstance(op, extra_ops.CumOp) and op.axis is not None:
            found = self._reduced(first, (op.axis,), ())
            left = out[: op.axis] + out[op.axis + 1 :]
            return [
                Sees(
                    np.broadcast_to(np.expand_dims(found.of.reshape(left), op.axis), out),
                    found.sets,
                )
            ]
        if isinstance(op, Blockwise | math.Dot):
            return self._blocks(node, parts)
        return None

    def _elementwise(self, of: Any, parts: Any, values: Any, out: tuple[int, ...]) -> Sees:
        found = nothing = Sees(np.zeros((), int), csr_array((1, self._n), dtype=bool))
        for part in parts[isinstance(of, scalar.Second) :]:  # the first gives the shape alone
            if part is not None:
                found = part if found is nothing else _both(found, part, out)
        found = Sees(np.broadcast_to(found.of, out), found.sets)
        if isinstance(of, scalar.Mul):
            for value in values:
                if value is not None and not np.all(value):
                    flat = _joined([found, None], [out, ()])
                    hidden = np.broadcast_to(value, out) == 0
                    found = Sees(np.where(hidden, 0, flat.of[:-1].reshape(out)), flat.sets)
        return found

    @staticmethod
    def _reduced(s: Sees, axes: tuple[int, ...], out: tuple[int, ...]) -> Sees:
        left = [a for a in range(s.of.ndim) if a not in axes]
        n = int(np.prod([s.of.shape[a] for a in left]))
        found = s.united(s.of.transpose([*left, *axes]).reshape(n, -1))
        return Sees(found.of.reshape(out), found.sets) if len(left) == len(out) else found

    def _taken(self, node: Any, parts: Any, values: Any, out: Any) -> list[Sees] | None:
        """Elements of an array, by an index: known, or of the block, or else."""
        op, where = node.op, self._shapes[node.inputs[0]]
        axis_of = {entry: a for a, entry in enumerate(op.idx_list) if isinstance(entry, int)}
        open_ = [i for i, v in enumerate(values[1:]) if v is None]
        if any(i not in axis_of or node.inputs[1 + i].type.dtype == "bool" for i in open_):
            return None  # a slice whose ends vary
        shapes = [self._shapes[i] for i in node.inputs[1:]]
        places = [range(where[axis_of[i]]) for i in open_]
        found: Sees | None = None
        if parts[0] is not None:
            if np.prod([len(p) for p in places]) > _MOST_PLACES:
                return None
            for at in product(*places):
                given = list(values[1:])
                for i, v in zip(open_, at, strict=True):
                    given[i] = np.full(shapes[i], v)
                one = Sees(np.asarray(parts[0].of[_index(op, given)]), parts[0].sets)
                found = one if found is None else _both(found, one, out)
        for i, part in enumerate(parts[1:]):
            if part is None:
                continue
            # The elements of this index at the elements that they lead to.
            size, a = part.of.size, axis_of[i]
            wide = [*where[:a], size, *where[a + 1 :]]
            line = np.broadcast_to(np.arange(size).reshape([-1] + [1] * (len(where) - a - 1)), wide)
            given = [
                v if j not in open_ else np.zeros(shapes[j], int) for j, v in enumerate(values[1:])
            ]
            given[i] = np.arange(size).reshape(shapes[i])
            one = Sees(part.of.ravel()[line[_index(op, given)]], part.sets)
            found = one if found is None else _both(found, one, out)
        return None if found is None else [found]

    def _put(self, node: Any, parts: Any, values: Any, out: Any) -> list[Sees]:
        """Put new elements into an array, or add to them."""
        shapes = [out, self._shapes[node.inputs[1]]]
        flat = _joined(parts[:2], shapes)
        n = int(np.prod(out))
        here, new = flat.of[:n].reshape(out), np.zeros(out, np.int64)
        new[_index(node.op, values[2:])] = flat.of[n:].reshape(shapes[1])
        return [_both(Sees(here, flat.sets), Sees(new, flat.sets), out)]

    def _blocks(self, node: Any, parts: Any) -> list[Sees] | None:
        """Products of arrays, and operations on each of many arrays."""
        op = node.op
        core = op.core_op if isinstance(op, Blockwise) else op
        if isinstance(core, math.Dot):
            shapes = [self._shapes[i] for i in node.inputs]
            if any(len(s) > 2 and s[:-2].count(1) < len(s) - 2 for s in shapes):
                return self._batches(node, parts)
            return self._product(node, parts, shapes)
        return self._batches(node, parts)

    def _batches(self, node: Any, parts: Any) -> list[Sees] | None:
        op = node.op
        if not isinstance(op, Blockwise):
            return None
        n_batch = op.batch_ndim(node)
        batch = self._shapes[node.outputs[0]][:n_batch]
        found: Sees | None = None
        for part in parts:
            if part is not None:
                core = tuple(range(n_batch, part.of.ndim))
                one = self._reduced(part, core, part.of.shape[:n_batch])
                found = one if found is None else _both(found, one, batch)
        if found is None or not n_batch:
            return None
        made = []
        for v in node.outputs:
            out = self._shapes[v]
            of = found.of.reshape(found.of.shape + (1,) * (len(out) - n_batch))
            made.append(Sees(np.broadcast_to(of, out), found.sets))
        return made

    def _product(self, node: Any, parts: Any, shapes: Any) -> list[Sees]:
        """Multiply matrices or vectors: zeros of one that is known hide elements of the other."""
        out = self._shapes[node.outputs[0]]
        (n, k), m = (shapes[0][-2:] if len(shapes[0]) > 1 else (1, shapes[0][0])), 1
        if len(shapes[1]) > 1:
            m = shapes[1][-1]
        found: Sees | None = None
        for i, part in enumerate(parts):
            if part is None:
                continue
            of = part.of.reshape(n, k) if i == 0 else part.of.reshape(k, m).T
            other = self._values.get(node.inputs[1 - i])
            if other is None or n * m * k > _MOST_PRODUCTS or np.all(other):
                one = part.united(of)
                at = one.of.reshape(-1, 1) if i == 0 else one.of.reshape(1, -1)
                one = Sees(np.broadcast_to(at, (n, m)), one.sets)
            else:
                pattern = (
                    np.asarray(other).reshape(k, m).T if i == 0 else np.asarray(other).reshape(n, k)
                )
                groups = np.where(pattern[None] != 0, of[:, None], -1)  # rows, columns, k
                groups = groups if i == 0 else groups.transpose(1, 0, 2)
                one = part.united(groups.reshape(n * m, k))
                one = Sees(one.of.reshape(n, m), one.sets)
            found = one if found is None else _both(found, one, (n, m))
        return [Sees(found.of.reshape(out), found.sets)] if found else []


def _index(op: Any, values: Sequence[Any]) -> Any:
    """Return the index of NumPy that an operation stands for, given the values of its inputs."""

    def entry(given: Any) -> Any:
        if isinstance(given, slice):
            return slice(
                *(
                    None if e is None else int(values[e])
                    for e in (given.start, given.stop, given.step)
                )
            )
        return values[given] if isinstance(given, int) else given

    return tuple(entry(given) for given in op.idx_list)


def distinct(s: Sees) -> Sees:
    """Return the same with one integer for equal sets."""
    sets, known, first = s.sets, dict[bytes, int](), list[int]()
    sets.sort_indices()
    used, of = np.unique(s.of, return_inverse=True)
    new = np.empty(used.size, np.int64)
    for j, i in enumerate(used.tolist()):
        key = sets.indices[sets.indptr[i] : sets.indptr[i + 1]].tobytes()
        if key not in known:
            known[key] = len(first)
            first.append(i)
        new[j] = known[key]
    return Sees(new[of.ravel()], sets[first])

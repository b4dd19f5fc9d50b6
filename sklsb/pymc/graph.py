"""Which elements of the terms of log p see which sites, read off the graph of PyTensor.

What a variable of the graph sees is an integer for each of its elements, and a set of sites for
each integer: operations that move elements move integers. Sets may be too large, never too small.
An operation that is not known lets every element see all that its inputs see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue, local_remove_check_parameter
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import in2out
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.scalar import basic as scalar
from pytensor.tensor import basic, elemwise, extra_ops, math, subtensor
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.rewriting.shape import ShapeFeature
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.type import TensorType
from pytensor.xtensor.basic import TensorFromXTensor
from pytensor.xtensor.type import XTensorType
from scipy.sparse import csr_array, eye_array, vstack

from sklsb._system.arrays import Bools, Ints

# So many values of an index that is not known, or products of a matrix, are looked at one by one.
_MOST_PLACES, _MOST_PRODUCTS = 256, 1 << 22
_NO_DEGREE = 1 << 20  # of what is no polynomial
_REAL = ("float32", "float64")
TAKES = (subtensor.Subtensor, subtensor.AdvancedSubtensor)
_PUTS = (subtensor.IncSubtensor, subtensor.AdvancedIncSubtensor)
MOVES = (  # the first input, as the others say
    elemwise.DimShuffle,
    Reshape,
    SpecifyShape,
    basic.Alloc,
    basic.ExtractDiag,
    JoinDims,
    SplitDims,
)
_SAME = (basic.TensorFromScalar, basic.ScalarFromTensor, TensorFromXTensor)

# ----------------------------------------------------------------- terms


def dependents(outputs: Sequence[Any], roots: Iterable[Any]) -> tuple[set[Any], set[Any]]:
    """Return all variables whose values depend on one of the roots, and those whose shapes do."""
    found, sized = set(roots), set[Any]()
    for node in toposort(outputs):
        of = sized if isinstance(node.op, Shape | Shape_i) else found
        if of.isdisjoint(node.inputs):
            continue
        found.update(node.outputs)
        for v in node.outputs:
            if isinstance(v.type, TensorType) and _varies(v, node, found, sized):
                sized.add(v)
    return found, sized


def _varies(v: Any, node: Any, found: set[Any], sized: set[Any]) -> bool:
    """Whether the shape of a variable that a node makes depends on such values."""
    lengths = [ShapeFeature().get_non_recursive_shape(v, i) for i in range(v.type.ndim)]
    depend = found.union(())
    for inner in toposort(lengths, blockers=node.inputs):
        of = {v, *sized} if isinstance(inner.op, Shape | Shape_i) else depend
        if not of.isdisjoint(inner.inputs):
            depend.update(inner.outputs)
    return not depend.isdisjoint(lengths)


def evaluated(outputs: Sequence[Any], inputs: Sequence[Any], point: Any) -> list[Any]:
    """Return the values of variables at a point, without compiling."""
    mode = Mode(linker="py", optimizer=in2out(local_remove_check_parameter))
    evaluate = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    with np.errstate(all="ignore"):
        found: list[Any] = evaluate(*(point[v.name] for v in inputs))
    return found


def frozen(outputs: Sequence[Any]) -> list[Any]:
    """Return variables with the present data as constants."""
    data = {
        given: given.type.make_constant(given.get_value())
        for given in graph_inputs(outputs)
        if isinstance(given, SharedVariable) and not isinstance(given.type, RandomType)
    }
    return list(clone_replace(outputs, data))


def pieces(
    terms: Sequence[Any], block: set[Any], inputs: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Return arrays whose elements add up to the terms: those with the block, and the others.

    Sums are taken apart. Checks of parameters of whole terms become terms of their own, 0 or -inf:
    they join all elements of an array otherwise.
    """
    plain = [t.values if isinstance(t.type, XTensorType) else t for t in terms]
    plain = rewrite_graph(clone_replace(plain, {}), include=("lower_xtensor",))
    graph = FunctionGraph(outputs=plain, clone=True, copy_inputs=False)
    while True:
        for node in graph.toposort():
            new = inline_ofg_node(node) if isinstance(node.op, OpFromGraph) else None
            if new:
                graph.replace_all(list(zip(node.outputs, new, strict=True)), import_missing=True)
                break
        else:
            break
    enters, sized = dependents(graph.outputs, block)[0], dependents(graph.outputs, inputs)[1]
    checks = dict[Any, None]()
    made = [p for term in graph.outputs for p in _apart(term, enters, sized, checks)]
    made += [pt.switch(condition, 0.0, -np.inf) for condition in checks]
    enters = dependents(made, block)[0]
    return [p for p in made if p in enters], [p for p in made if p not in enters]


def _conditions(checks: Sequence[Any]) -> dict[Any, None]:
    """Return the arrays of booleans that checks are made of, each once."""
    found, left = dict[Any, None](), list(checks)
    while left:
        v = left.pop()
        op = None if v.owner is None else v.owner.op
        both = isinstance(op, elemwise.Elemwise) and isinstance(op.scalar_op, scalar.AND)
        if isinstance(op, (math.All, basic.MakeVector, *_SAME)) or (both and v.ndim == 0):
            left += v.owner.inputs
        else:
            found[v] = None
    return found


def _apart(v: Any, enters: set[Any], sized: set[Any], checks: dict[Any, None]) -> list[Any]:
    """Take a term apart whose elements are added up anyway, and put its checks among the others."""
    if v not in enters or v.owner is None:
        return [v]
    op, inputs = v.owner.op, v.owner.inputs

    def apart(*of: Any) -> list[Any]:
        return [p for i in of for p in _apart(i, enters, sized, checks)]

    if isinstance(op, CheckParameterValue):
        checks.update(_conditions(inputs[1:]))
        return apart(inputs[0])
    inner = inputs[0].owner
    if isinstance(op, basic.Alloc) and inner and isinstance(inner.op, CheckParameterValue):
        checks.update(_conditions(inner.inputs[1:]))
        return [op(inner.inputs[0], *inputs[1:])]
    if not sized.isdisjoint(inputs) or v.type.dtype == "bool":
        return [v]
    if isinstance(op, math.Sum) or (
        isinstance(op, elemwise.DimShuffle) and len(op.new_order) >= inputs[0].type.ndim
    ):
        return apart(inputs[0])
    if isinstance(op, math.Dot) and v.type.ndim == 0:
        return [inputs[0] * inputs[1]]
    if not isinstance(op, elemwise.Elemwise):
        return [v]
    of = op.scalar_op
    alike = all(i.type.broadcastable == v.type.broadcastable for i in inputs)
    if isinstance(of, scalar.Add) and alike:
        return apart(*inputs)
    if isinstance(of, scalar.Sub) and alike:
        return [*apart(inputs[0]), *(-p.astype("float64") for p in apart(inputs[1]))]
    if isinstance(of, scalar.Neg):
        return [-p.astype("float64") for p in apart(inputs[0])]
    if isinstance(of, scalar.Identity) or (isinstance(of, scalar.Cast) and v.type.dtype in _REAL):
        return apart(inputs[0])
    first = [i for i in inputs if i in enters]
    if v.type.ndim == 0 and len(first) == 1:
        if isinstance(of, scalar.Mul):
            others = [i for i in inputs if i is not first[0]]
            return [math.mul(p, *others) for p in apart(*first)]
        if isinstance(of, scalar.TrueDiv) and first[0] is inputs[0]:
            return [p / inputs[1] for p in apart(*first)]
    return [v]


# ----------------------------------------------------------------- what sees what


class Sees(NamedTuple):
    """The integer of each element of an array, and the sites of each integer."""

    of: Ints
    sets: Any  # a csr_array of booleans: a row for each integer, a column for each site

    @classmethod
    def all_of(cls, parts: Sequence[Sees], out: tuple[int, ...], unused: bool = False) -> Sees:
        """Return an array whose elements see all that the parts see, or that their integers do."""
        used = vstack([s.sets if unused else s.sets[np.unique(s.of)] for s in parts]).tocsr()
        sites = np.unique(used.indices)
        one = (np.ones(sites.size, bool), (np.zeros(sites.size, int), sites))
        return cls(np.zeros(out, np.int64), csr_array(one, shape=(1, used.shape[1])))

    def united(self, rows: Ints, integers: Ints, out: tuple[int, ...]) -> Sees:
        """Return what the elements of an array see, each made of integers, by pairs."""
        size, n = int(np.prod(out)), self.sets.shape[0]
        keys = np.unique(rows * n + integers)
        picked = csr_array((np.ones(keys.size, bool), (keys // n, keys % n)), shape=(size, n))
        return Sees(np.arange(size).reshape(out), picked @ self.sets)

    def reduced(self, axes: Iterable[int]) -> Sees:
        """Return what the sums over axes see."""
        left = [a for a in range(self.of.ndim) if a not in {*axes}]
        out = tuple(self.of.shape[a] for a in left)
        rows = np.arange(int(np.prod(out))).reshape(out)
        rows = np.broadcast_to(np.expand_dims(rows, tuple(axes)), self.of.shape)
        return self.united(rows.ravel(), self.of.ravel(), out)


def _core(op: Any) -> Any:
    """Return the operation that is applied to each of a batch."""
    return getattr(op, "core_op", op)


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


def _merged(parts: Sequence[Sees], out: tuple[int, ...]) -> Sees:
    """Return what elements see that are made of elements of all arrays, broadcast."""
    a = Sees(np.broadcast_to(parts[0].of, out), parts[0].sets)
    for b in parts[1:]:
        other, n = np.broadcast_to(b.of, out), b.sets.shape[0]
        if a.sets is not b.sets or not np.array_equal(a.of, other):
            pairs, of = np.unique(a.of * n + other, return_inverse=True)
            a = Sees(of.reshape(out), a.sets[pairs // n] + b.sets[pairs % n])
    return a


class Reader:
    """Reads a graph forward from the block.

    ``outputs`` are those of `pieces`, ``sites`` has the site of each element of the variables of
    the block, ``inputs`` are all value variables of the model; shapes are taken at ``point``.
    """

    shapes: list[tuple[int, ...]]  # of the outputs
    sees: Sees  # all elements of the outputs, flat; equal sets have one integer
    vague: Bools  # which of these elements went through an operation that is not known
    degree: Ints  # of these elements as polynomials of the sites, or a large number
    unknown: set[str]  # names of operations
    # Whether parameters that see sites are checked, so that a wrong one betrays the others.
    doubtful: bool

    def __init__(self, outputs: Any, sites: dict[Any, Ints], inputs: Any, point: Any):
        n = sum(of.size for of in sites.values())
        every = eye_array(n, dtype=bool, format="csr")
        self._found = {v: Sees(of, every) for v, of in sites.items()}
        self._none = csr_array((1, n), dtype=bool)
        self._degree = dict.fromkeys(sites, 1)
        self.unknown, self.doubtful, vague = set(), False, set[Any]()
        enters, (varies, sized) = dependents(outputs, sites)[0], dependents(outputs, inputs)
        nodes = [node for node in toposort(outputs) if not enters.isdisjoint(node.outputs)]
        self._evaluate(nodes, outputs, varies, inputs, point)
        for node in nodes:
            parts = {i: self._found[i] for i in node.inputs if i in self._found}
            shapes = [self._shapes[out] for out in node.outputs]
            known: Sequence[Sees] | None
            if sized.isdisjoint([*node.inputs, *node.outputs]):
                known = self._through(node)
            else:  # shapes are those at a point
                known = [Sees.all_of([*parts.values()], out, unused=True) for out in shapes]
            if known is None:
                self.unknown.add(str(_core(node.op)).partition("{")[0])
                vague.update(node.outputs)
                known = [Sees.all_of([*parts.values()], out) for out in shapes]
            if not vague.isdisjoint(parts):
                vague.update(node.outputs)
            self._found.update(zip(node.outputs, known, strict=True))
            self._degree.update(dict.fromkeys(node.outputs, self._degree_after(node)))
        shapes = [self._shapes[out] for out in outputs]
        self.shapes, sizes = shapes, [int(np.prod(one)) for one in shapes]
        self.vague = np.repeat([out in vague for out in outputs], sizes)
        self.degree = np.repeat([self._degree.get(out, 0) for out in outputs], sizes)
        self.sees = distinct(_joined([self._found.get(out) for out in outputs], shapes))

    def _evaluate(self, nodes: Any, outputs: Any, varies: Any, inputs: Any, point: Any) -> None:
        """Find the shapes of all variables, and values of those that do not vary."""
        variables = {v: None for node in nodes for v in (*node.inputs, *node.outputs)}
        variables.update(dict.fromkeys(outputs))
        arrays = [v for v in variables if isinstance(v.type, TensorType) and v.type.ndim]
        fixed = [v for v in variables if v not in varies and hasattr(v.type, "ndim")]
        made = evaluated([*(v.shape for v in arrays), *fixed], inputs, point)
        self._shapes: dict[Any, tuple[int, ...]] = dict.fromkeys(variables, ())
        self._shapes.update({v: tuple(map(int, at)) for v, at in zip(arrays, made, strict=False)})
        self._values = dict(zip(fixed, made[len(arrays) :], strict=True))

    def _degree_after(self, node: Any) -> int:
        """Return the degree of what a node makes as a polynomial of the sites."""
        op, degrees = node.op, [self._degree.get(i, 0) for i in node.inputs]
        of = op.scalar_op if isinstance(op, elemwise.Elemwise) else None
        if isinstance(of, scalar.Mul) or isinstance(_core(op), math.Dot):
            return sum(degrees)
        if isinstance(of, scalar.Sqr):
            return 2 * degrees[0]
        if isinstance(of, scalar.Pow) and np.all(self._values.get(node.inputs[1], 0) == 2):
            return 2 * degrees[0]
        casts = isinstance(of, scalar.Cast) and node.outputs[0].dtype == "float64"
        linear = isinstance(of, scalar.Add | scalar.Sub | scalar.Neg | scalar.Identity) or casts
        moves = isinstance(op, (*MOVES, *TAKES, *_SAME, CheckParameterValue, math.Sum, basic.Split))
        joins = isinstance(op, (basic.Join, basic.MakeVector))
        joins |= isinstance(op, _PUTS) and not any(degrees[2:])
        if linear or joins or (moves and not any(degrees[1:])):
            return max(degrees)
        if isinstance(of, scalar.TrueDiv) and not degrees[1]:
            return degrees[0]
        return degrees[1] if isinstance(of, scalar.Second) else _NO_DEGREE

    def _through(self, node: Any) -> Sequence[Sees] | None:
        """Return what the outputs of a node see, or None if its operation is not known."""
        op, parts = node.op, [self._found.get(i) for i in node.inputs]
        out, first = self._shapes[node.outputs[0]], parts[0]
        values = [self._values.get(i) for i in node.inputs]
        if isinstance(op, elemwise.Elemwise):
            return [self._elementwise(node, parts, values, out)] * len(node.outputs)
        if isinstance(op, TAKES):
            return [self._taken(node, parts, values, out)]
        if isinstance(op, basic.MakeVector | basic.Join):
            shapes = [self._shapes[i] for i in node.inputs]
            flat = _joined(parts, shapes)
            ends = np.cumsum([int(np.prod(one)) for one in shapes])[:-1]
            arrays = [a.reshape(s) for a, s in zip(np.split(flat.of, ends), shapes, strict=True)]
            if isinstance(op, basic.MakeVector):
                return [Sees(np.stack(arrays), flat.sets)]
            return [Sees(np.concatenate(arrays, op.axis), flat.sets)]
        if isinstance(op, _PUTS):
            return [self._put(node, parts, values, out)]
        if isinstance(_core(op), math.Dot):
            shapes = [self._shapes[i] for i in node.inputs]
            if all(len(s) <= 2 or s[:-2].count(1) == len(s) - 2 for s in shapes):
                return [self._product(node, parts, values, out)]
        if isinstance(op, Blockwise):
            return self._batches(node, parts, out)
        if first is None:
            return None
        if isinstance(op, _SAME):
            return [first]
        if isinstance(op, CheckParameterValue):
            self.doubtful |= any(part is not None for part in parts[1:])
            return [first]
        if isinstance(op, MOVES) and all(v is not None for v in values[1:]):
            storage = [[None]]
            op.perform(node, [first.of, *values[1:]], storage)
            return [Sees(np.asarray(storage[0][0]), first.sets)]
        if isinstance(op, basic.Split) and values[1] is not None:
            cut = np.split(first.of, np.cumsum(values[1])[:-1], axis=op.axis)
            return [Sees(of, first.sets) for of in cut]
        if isinstance(op, elemwise.CAReduce | math.Argmax):
            return [first.reduced(range(first.of.ndim) if op.axis is None else op.axis)]
        if isinstance(op, extra_ops.CumOp) and op.axis is not None:
            found = first.reduced([op.axis])
            return [Sees(np.broadcast_to(np.expand_dims(found.of, op.axis), out), found.sets)]
        return None

    def _elementwise(self, node: Any, parts: Any, values: Any, out: tuple[int, ...]) -> Sees:
        of = node.op.scalar_op
        parts = parts[isinstance(of, scalar.Second) :]  # the first gives the shape alone
        nothing = Sees(np.zeros((), np.int64), self._none)
        found = _merged([part for part in parts if part is not None] or [nothing], out)
        for value in values if isinstance(of, scalar.Mul) else ():
            if value is not None and not np.all(value) and self._finite(node.inputs):
                hidden = np.broadcast_to(value == 0, out)
                sets = vstack([self._none, found.sets]).tocsr()
                found = Sees(np.where(hidden, 0, found.of + 1), sets)
        return found

    def _finite(self, factors: Any) -> bool:
        """Whether 0 hides other factors: not so if these may be infinite."""
        return all(
            self._degree.get(v, 0) < _NO_DEGREE
            or (isinstance(v.owner.op, TAKES) and v.owner.inputs[0] not in self._found)
            for v in factors
        )

    def _taken(self, node: Any, parts: Any, values: Any, out: tuple[int, ...]) -> Sees:
        """Elements of an array, by an index: known, or of the block, or else."""
        op, where = node.op, self._shapes[node.inputs[0]]
        shapes, axis_of, axis = [self._shapes[i] for i in node.inputs[1:]], dict[int, int](), 0
        for entry in op.idx_list:
            mask = isinstance(entry, int) and node.inputs[1 + entry].type.dtype == "bool"
            if isinstance(entry, int):
                axis_of[entry] = axis
            axis += len(shapes[entry]) if mask else 1
        open_ = [i for i, v in enumerate(values[1:]) if v is None]
        found = list[Sees]()
        if parts[0] is not None:
            places = [range(where[axis_of[i]]) for i in open_]
            if np.prod([len(p) for p in places]) > _MOST_PLACES:
                return Sees.all_of([part for part in parts if part is not None], out)
            for at in product(*places):
                given = list(values[1:])
                for i, v in zip(open_, at, strict=True):
                    given[i] = np.full(shapes[i], v)
                found.append(Sees(np.asarray(parts[0].of[_index(op, given)]), parts[0].sets))
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
            found.append(Sees(part.of.ravel()[line[_index(op, given)]], part.sets))
        return _merged(found, out)

    def _put(self, node: Any, parts: Any, values: Any, out: tuple[int, ...]) -> Sees:
        """Put new elements into an array, or add to them."""
        if any(v is None for v in values[2:]):
            return Sees.all_of([part for part in parts if part is not None], out)
        shapes = [out, self._shapes[node.inputs[1]]]
        flat = _joined(parts[:2], shapes)
        here = np.arange(int(np.prod(out)))
        there = here.reshape(out)[_index(node.op, values[2:])]
        new = np.broadcast_to(flat.of[here.size :].reshape(shapes[1]), there.shape)
        rows, integers = np.append(here, there), np.append(flat.of[: here.size], new)
        return flat.united(rows, integers, out)

    def _batches(self, node: Any, parts: Any, out: tuple[int, ...]) -> Sequence[Sees] | None:
        """Operations on each of many arrays."""
        n = node.op.batch_ndim(node)
        if not n:
            return None
        one = [part.reduced(range(n, part.of.ndim)) for part in parts if part is not None]
        found = _merged(one, out[:n])
        made = []
        for shape in (self._shapes[v] for v in node.outputs):
            of = found.of.reshape(out[:n] + (1,) * (len(shape) - n))
            made.append(Sees(np.broadcast_to(of, shape), found.sets))
        return made

    def _product(self, node: Any, parts: Any, values: Any, out: tuple[int, ...]) -> Sees:
        """Multiply matrices or vectors: zeros of one that is known hide elements of the other."""
        left, right = (self._shapes[i] for i in node.inputs)
        n, k, m = left[-2] if len(left) > 1 else 1, left[-1], right[-1] if len(right) > 1 else 1
        found = []
        for i, (part, other) in enumerate(zip(parts, values[::-1], strict=True)):
            if part is None:
                continue
            of = part.of.reshape(n, k) if i == 0 else part.of.reshape(k, m).T
            seen = np.ones((1, k), bool)  # what the rows of the other see
            few = n * m * k <= _MOST_PRODUCTS and self._finite([node.inputs[i]])
            if other is not None and few:
                seen = (other.reshape(k, m).T if i == 0 else other.reshape(n, k)) != 0
            rows, columns, at = np.nonzero(np.broadcast_to(seen, (len(of), *seen.shape)))
            one = part.united(rows * len(seen) + columns, of[rows, at], (len(of), len(seen)))
            found.append(one if i == 0 else Sees(one.of.T, one.sets))
        merged = _merged(found, (n, m))
        return Sees(merged.of.reshape(out), merged.sets)


def _index(op: Any, values: Sequence[Any]) -> Any:
    """Return the index of NumPy that an operation stands for, given the values of its inputs."""

    def entry(given: Any) -> Any:
        if isinstance(given, slice):
            ends = (given.start, given.stop, given.step)
            return slice(*(None if e is None else int(values[e]) for e in ends))
        return values[given] if isinstance(given, int) else given

    return tuple(entry(given) for given in op.idx_list)


def distinct(s: Sees) -> Sees:
    """Return the same with one integer for equal sets."""
    sets, known, new = s.sets, dict[bytes, int](), list[int]()
    sets.sort_indices()
    used, of = np.unique(s.of, return_inverse=True)
    for i in used.tolist():
        key = sets.indices[sets.indptr[i] : sets.indptr[i + 1]].tobytes()
        new.append(known.setdefault(key, len(known)))
    first = used[np.unique(new, return_index=True)[1]]
    return Sees(np.array(new, np.int64)[of.ravel()], sets[first])

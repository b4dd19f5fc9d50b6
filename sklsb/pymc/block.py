"""Discrete variables of a model as one flat array of sites, and the terms of log p they enter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import TensorType
from scipy.sparse import csr_array, vstack

from sklsb._system.arrays import Array, Bools, Ints
from sklsb.pymc.graph import Reader, Sees, dependents, distinct, evaluated, pieces
from sklsb.pymc.variables import FAR, dims_and_labels, ends, site_names

Given = Sequence[NDArray[Any]]
Point = Mapping[str, Any]

# Sites with more values than this are drawn by slices; with more than the other, by slices alone.
SLICED, MOST_VALUES = 16, 256
# Values of log p that may be spent to find out what sees what where the graph does not say.
_MOST_PROBES, _N_PROBES = 20_000, 3


class Compiled:
    """A function of PyTensor, compiled by numba and called directly, with the present data."""

    def __init__(self, inputs: Sequence[Any], output: Any):
        self._function = pm.compile(inputs, output, mode="NUMBA", on_unused_input="ignore")
        self._data = self._function.input_storage[len(inputs) :]

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_call"}

    @cached_property
    def _call(self) -> Any:
        return self._function.vm.jit_fn

    def __call__(self, *args: Any) -> Any:
        return self._call(*args, *[data.storage[0] for data in self._data])[0]


class Block:
    """Sites, their bounds, and the outputs: numbers that add up to log p but for a constant."""

    n_sites: int
    low: Ints  # lowest and highest values, +-2**52 where there is none or it varies: see `bounds`
    high: Ints
    degree: Ints  # of each output as a polynomial of the sites, or a large number
    shapes: list[tuple[int, ...]]  # of the terms, whose elements are the outputs
    others: list[Any]  # the arrays of log p that no site enters
    # Whether operations that are not known had to be probed, or checks of parameters could betray
    # more than their own elements.
    vague: bool

    def __init__(self, model: Any, rvs: Sequence[Any], point: Point | None = None):
        self.model, self._rvs = model, list(rvs)
        self._values = [model.rvs_to_values[rv] for rv in rvs]
        every = [*model.free_RVs, *model.observed_RVs, *model.potentials]
        terms = model.logp(vars=every, sum=False)
        self._terms, self.others = pieces(terms, set(self._values), model.value_vars)
        self._data = self._present()
        self.parts = list[tuple[str, slice, tuple[int, ...], Any]]()  # of the flat array
        self._read(model.initial_point() if point is None else point)

    def _read(self, point: Point) -> None:
        """Find out what sees what, given the present data, and compile log p if that is needed."""
        before, self.parts = self.parts, []
        sites, start = {}, 0
        for value in self._values:
            first = np.asarray(point[value.name])
            here = slice(start, start + first.size)
            sites[value] = np.arange(here.start, here.stop).reshape(first.shape)
            self.parts.append((value.name, here, first.shape, np.dtype(value.dtype)))
            start += first.size
        self.n_sites = start
        reader = Reader(self._terms, sites, self.model.value_vars, point)
        self._sees = self._sound = reader.sees  # what outputs are taken to see, and may see
        self.unknown, self.degree = sorted(reader.unknown), reader.degree
        self.shapes = reader.shapes
        self.vague = reader.doubtful or bool(reader.vague.any())
        limits, self.low, self.high = self._limits(sites, point)
        if self.parts != before:
            self._compile(limits)
        if reader.vague.any() and self.n_sites * _N_PROBES <= _MOST_PROBES:
            self._probe(reader.vague, point)

    def _compile(self, limits: Sequence[Any]) -> None:
        flat = pt.lvector("sites")
        as_sites = self._in_place(flat)
        output = pt.concatenate([t.ravel().astype("float64") for t in self._terms])
        used = set(graph_inputs([output, *limits]))
        others = [v for v in self.model.value_vars if v in used and v not in as_sites]
        self._others = [(v.name, np.dtype(v.dtype)) for v in others]
        outputs = clone_replace([output, *limits], as_sites)
        self._inputs = [flat, *others], outputs[0]
        self.made = dict[tuple[bytes, bytes], Any]()  # functions of moves
        self.log_p = Compiled(*self._inputs)
        self._bounds = Compiled([flat, *others], outputs[1]) if limits else None
        self.__dict__.pop("total", None)
        self.__dict__.pop("names", None)

    def _split(self, x: Any) -> list[Any]:
        """Return the values of the variables of the block, from those of the sites."""
        return [x[here].reshape(shape).astype(dtype) for _, here, shape, dtype in self.parts]

    def _in_place(self, x: Any) -> dict[Any, Any]:
        """Return parts of the sites, a graph or an array, for the variables of the block."""
        both = zip(self._values, self._split(x), strict=True)
        return {value: value.type.filter_variable(part) for value, part in both}

    def _limits(self, sites: Any, point: Point) -> Any:
        """Return a graph of the bounds, if some vary, and those that do not."""
        lines, inputs = [], self.model.value_vars
        for rv, of in zip(self._rvs, sites.values(), strict=True):
            for end, far in zip(ends(rv) or (None, None), (-FAR, FAR), strict=True):
                given = pt.as_tensor(far if end is None else end).astype("int64")
                lines.append(pt.broadcast_to(given, of.shape).ravel())
        lines = self.model.replace_rvs_by_values(lines)
        varies, _ = dependents(lines, inputs)
        found = evaluated(lines, inputs, point)
        for i, line in enumerate(lines):
            if line in varies:
                found[i] = np.full(found[i].size, FAR if i % 2 else -FAR)
        low, high = (np.concatenate(found[i::2]).astype(np.int64) for i in (0, 1))
        moving = [pt.stack([pt.concatenate(lines[i::2]) for i in (0, 1)])]
        return moving if varies.intersection(lines) else [], low, high

    @property
    def scope_of(self) -> Ints:
        """For each output, which row of `sets` has the sites that it sees."""
        return self._sees.of

    @property
    def sets(self) -> Any:
        """The sites that outputs see, a csr_array of bool, shape (n_scopes, n_sites)."""
        return self._sees.sets

    # ----------------------------------------------------------------- points

    def given(self, point: Point) -> Given:
        """Return the values of all other variables that matter."""
        return [np.array(point[name], dtype, order="C") for name, dtype in self._others]

    def flat(self, point: Point) -> Ints:
        """Return the values of the sites."""
        return np.concatenate([np.ravel(point[name]) for name, *_ in self.parts]).astype(np.int64)

    def put(self, x: Ints, point: Point) -> dict[str, Any]:
        """Return a point with other values of the sites."""
        names = [name for name, *_ in self.parts]
        return {**point, **dict(zip(names, self._split(x), strict=True))}

    def bounds(self, x: Ints, given: Given) -> tuple[Ints, Ints]:
        """Return the lowest and highest values of all sites, at a state."""
        if self._bounds is None:
            return self.low, self.high
        low, high = self._bounds(x, *given)
        return low, high

    def terms_at(self, x: Ints) -> list[Any]:
        """Return graphs of the terms with fixed sites."""
        return list(clone_replace(self._terms, self._in_place(x)))

    def compiled(self, graph: Any) -> Compiled:
        """Return a function of all other variables."""
        return Compiled(self._inputs[0][1:], graph)

    @cached_property
    def total(self) -> Compiled:
        """The sum of all outputs, as a function of its own."""
        inputs, output = self._inputs
        return Compiled(inputs, output.sum())

    def _present(self) -> list[Any]:
        used = dict.fromkeys([*graph_inputs(self._terms), *self.model.data_vars])
        shared = [v for v in used if isinstance(v, SharedVariable)]
        return [v.get_value() for v in shared if isinstance(v.type, TensorType)]

    def refresh(self, point: Point) -> bool:
        """Take the present data of the model, and return whether they changed."""
        before, self._data = self._data, self._present()
        changed = not all(map(np.array_equal, before, self._data))
        if changed:
            self._read(point)
        return changed

    @cached_property
    def names(self) -> list[str]:
        """Names of the sites."""
        found = []
        for rv, (_, _, shape, _) in zip(self._rvs, self.parts, strict=True):
            found += site_names(rv.name, dims_and_labels(self.model, rv, shape)[1])
        return found

    # ----------------------------------------------------------------- sums

    def by_scope(self, outputs: Array) -> Array:
        """Return the sums of the outputs that see the same sites."""
        sums: Array = np.bincount(self.scope_of, outputs, self.sets.shape[0]).astype(np.float64)
        return sums

    def join(self, outputs: Ints) -> None:
        """Let outputs see all sites that they may see; those that did so already see all."""
        widths = [np.diff(s.sets.indptr)[s.of] for s in (self._sees, self._sound)]
        every = csr_array(np.ones((1, self.n_sites), bool))
        n, m = self._sees.sets.shape[0], self._sound.sets.shape[0]
        most = np.where(widths[0] < widths[1], n + self._sound.of, n + m)
        of = self._sees.of.copy()
        of[outputs] = most[outputs]
        self._sees = distinct(Sees(of, vstack([self._sees.sets, self._sound.sets, every]).tocsr()))

    def _probe(self, vague: Bools, point: Point) -> None:
        """Find out which of the vague outputs change if a site does, at a few states."""
        rng = np.random.default_rng(0)
        seen = []
        x, given = self.flat(point), list(self.given(point))
        for turn in range(_N_PROBES):
            low, high = self.bounds(x, given)
            if turn:
                far = high - low >= MOST_VALUES
                near = np.where(far, np.maximum(low, x - 2), low)
                x = rng.integers(near, np.where(far, np.minimum(high, x + 2), high) + 1)
                for g in given:
                    if g.dtype.kind == "f":
                        g += 0.1 * rng.standard_normal(g.shape)
            base = self.log_p(x, *given)
            for i in range(self.n_sites):
                y = x.copy()
                y[i] = x[i] + 1 if x[i] < high[i] else x[i] - 1
                changed = self.log_p(y, *given) != base
                at = np.flatnonzero(changed & vague)
                seen.append(np.stack([at, np.full(at.size, i)]))
        outputs, sites = np.concatenate(seen, axis=1)
        pairs = np.ones(outputs.size, bool), (outputs, sites)
        found = csr_array(pairs, shape=(vague.size, self.n_sites))
        sees, n = self._sees, self._sees.sets.shape[0]
        of = np.where(vague, n + np.arange(vague.size), sees.of)
        self._sees = distinct(Sees(of, vstack([sees.sets, found]).tocsr()))

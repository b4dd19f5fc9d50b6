"""Discrete variables of a model as one flat array of sites, and the terms of log p they enter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.mode import Mode
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from scipy.sparse import csr_array

from sklsb.pymc.graph import Reader, Sees, dependents, distinct, pieces
from sklsb.pymc.variables import dims_and_labels, ends, site_names

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Given = Sequence[NDArray[Any]]
Point = Mapping[str, Any]

# Beyond all values; differences of two such numbers are integers of 64 bits.
FAR = 1 << 52
# Sites with more values than this are drawn by slices; with more than the other, by slices alone.
SLICED, MOST_VALUES = 16, 256
# Where the graph does not say what sees what, so many values of log p may be spent to find out.
_MOST_PROBES, _N_PROBES = 20_000, 3


class Compiled:
    """A function of PyTensor, compiled by numba and called directly."""

    def __init__(self, inputs: Sequence[Any], output: Any):
        self._function = pm.compile(inputs, output, mode="NUMBA", on_unused_input="ignore")
        self._n = len(inputs)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_call", "_data")}

    def refresh(self) -> None:
        """Take the present data of the model."""
        self._call = self._function.vm.jit_fn
        self._data = [c.storage[0] for c in self._function.input_storage[self._n :]]

    def __call__(self, *args: Any) -> Any:
        if "_call" not in self.__dict__:
            self.refresh()
        return self._call(*args, *self._data)[0]


class Block:
    """Sites, their bounds, and the outputs: numbers that add up to log p but for a constant.

    Attributes
    ----------
    n_sites : int
    low, high : ndarray of int, shape (n_sites,)
        Lowest and highest values, +-2**52 where there is none or it varies.
    moving : bool
        Whether bounds depend on other variables; `bounds` has them.
    scope_of : ndarray of int
        For each output, which row of `sets` has the sites that it sees.
    sets : csr_array of bool, shape (n_scopes, n_sites)
    degree : ndarray of int
        The degree of each output as a polynomial of the sites, or a large number.
    vague : bool
        Whether operations that are not known had to be probed.
    """

    def __init__(self, model: Any, rvs: Sequence[Any], point: Point | None = None):
        point = model.initial_point() if point is None else point
        values = [model.rvs_to_values[rv] for rv in rvs]
        self._model, self._rvs = model, list(rvs)
        self.parts = list[tuple[str, slice, tuple[int, ...], Any]]()  # of the flat array
        sites, start = {}, 0
        for value in values:
            first = np.asarray(point[value.name])
            here = slice(start, start + first.size)
            sites[value] = np.arange(here.start, here.stop).reshape(first.shape)
            self.parts.append((value.name, here, first.shape, np.dtype(value.dtype)))
            start += first.size
        self.n_sites = start
        every = [*model.free_RVs, *model.observed_RVs, *model.potentials]
        terms = pieces(model.logp(vars=every, sum=False), set(values))
        reader = Reader(terms, sites, model.value_vars, point)
        self.scope_of, self.sets = reader.sees
        self.unknown, self.vague = sorted(reader.unknown), bool(reader.vague.any())
        self.degree = reader.degree

        flat = pt.lvector("sites")
        as_sites = {
            value: value.type.filter_variable(flat[here].reshape(shape).astype(dtype))
            for value, (_, here, shape, dtype) in zip(values, self.parts, strict=True)
        }
        limits, self.low, self.high = self._limits(rvs, sites, model.value_vars, point)
        output = pt.concatenate([t.ravel().astype("float64") for t in terms])
        used = set(graph_inputs([output, *limits]))
        others = [v for v in model.value_vars if v in used and v not in sites]
        self._others = [(v.name, np.dtype(v.dtype)) for v in others]
        outputs = clone_replace([output, *limits], as_sites)
        self._inputs = [flat, *others], outputs[0]
        self.log_p = Compiled(*self._inputs)
        self._bounds = Compiled([flat, *others], outputs[1]) if limits else None
        self.moving = bool(limits)
        if self.vague and self.n_sites * _N_PROBES <= _MOST_PROBES:
            self._probe(reader.vague, point)

    def _limits(self, rvs: Any, sites: Any, inputs: Any, point: Point) -> Any:
        """Return a graph of the bounds, if some vary, and those that do not."""
        lines = []
        for rv, of in zip(rvs, sites.values(), strict=True):
            pair = [-FAR if one is None else one for one in (ends(rv) or (-FAR, FAR))]
            low, high = (pair[0], FAR if (ends(rv) or (0, None))[1] is None else pair[1])
            lines += [
                pt.broadcast_to(pt.as_tensor(e).astype("int64"), of.shape).ravel()
                for e in (low, high)
            ]
        lines = self._model.replace_rvs_by_values(lines)
        varies = dependents(lines, set(inputs))
        evaluate = pytensor.function(
            inputs, lines, mode=Mode(linker="py", optimizer=None), on_unused_input="ignore"
        )
        found = evaluate(*(point[v.name] for v in inputs))
        for i, line in enumerate(lines):
            if line in varies:
                found[i] = np.full(found[i].size, FAR if i % 2 else -FAR)
        low, high = (np.concatenate(found[i::2]).astype(np.int64) for i in (0, 1))
        moving = [pt.stack([pt.concatenate(lines[i::2]) for i in (0, 1)])]
        return moving if varies.intersection(lines) else [], low, high

    # ----------------------------------------------------------------- points

    def given(self, point: Point) -> Given:
        """Return the values of all other variables that matter."""
        return [np.array(point[name], dtype, order="C") for name, dtype in self._others]

    def flat(self, point: Point) -> Ints:
        """Return the values of the sites."""
        return np.concatenate([np.ravel(point[name]) for name, *_ in self.parts]).astype(np.int64)

    def put(self, x: Ints, point: Point) -> dict[str, Any]:
        """Return a point with other values of the sites."""
        new = {
            name: x[here].reshape(shape).astype(dtype) for name, here, shape, dtype in self.parts
        }
        return {**point, **new}

    def bounds(self, x: Ints, given: Given) -> tuple[Ints, Ints]:
        """Return the lowest and highest values of all sites, at a state."""
        if self._bounds is None:
            return self.low, self.high
        low, high = self._bounds(x, *given)
        return low, high

    @cached_property
    def total(self) -> Compiled:
        """The sum of all outputs, as a function of its own."""
        inputs, output = self._inputs
        return Compiled(inputs, output.sum())

    def refresh(self) -> None:
        """Take the present data of the model."""
        self.log_p.refresh()
        if "total" in self.__dict__:
            self.total.refresh()
        if self._bounds is not None:
            self._bounds.refresh()

    @cached_property
    def names(self) -> list[str]:
        """Names of the sites."""
        shapes = [shape for _, _, shape, _ in self.parts]
        labels = [
            dims_and_labels(self._model, rv, s)[1] for rv, s in zip(self._rvs, shapes, strict=True)
        ]
        return [
            n for rv, at in zip(self._rvs, labels, strict=True) for n in site_names(rv.name, at)
        ]

    # ----------------------------------------------------------------- sums

    def by_scope(self, outputs: Floats) -> Floats:
        """Return the sums of the outputs that see the same sites."""
        sums: Floats = np.bincount(self.scope_of, outputs, self.sets.shape[0]).astype(np.float64)
        return sums

    def join(self, outputs: Ints, sites: Ints) -> None:
        """Let an output see a site more, for each pair."""
        n = self.scope_of.size
        more = csr_array((np.ones(outputs.size, bool), (outputs, sites)), shape=(n, self.n_sites))
        self._set(self.sets[self.scope_of] + more)

    def _set(self, rows: Any) -> None:
        self.scope_of, self.sets = distinct(Sees(np.arange(self.scope_of.size), rows))

    def _probe(self, vague: NDArray[np.bool_], point: Point) -> None:
        """Find out which of the vague outputs change if a site does, at a few states."""
        rng = np.random.default_rng(0)
        seen = []
        x, given = self.flat(point), list(self.given(point))
        for turn in range(_N_PROBES):
            low, high = self.bounds(x, given)
            if turn:
                near = np.maximum(low, x - 2), np.minimum(high, x + 2)
                small = high - low < MOST_VALUES
                x = rng.integers(np.where(small, low, near[0]), np.where(small, high, near[1]) + 1)
                given = [
                    np.asarray(g + 0.1 * rng.standard_normal(g.shape)) if g.dtype.kind == "f" else g
                    for g in given
                ]
            base = self.log_p(x, *given)
            for i in range(self.n_sites):
                y = x.copy()
                y[i] = x[i] + 1 if x[i] < high[i] else x[i] - 1
                changed = self.log_p(y, *given) != base
                at = np.flatnonzero(changed & vague)
                seen.append(np.stack([at, np.full(at.size, i)]))
        outputs, sites = np.concatenate(seen, axis=1)
        n = self.scope_of.size
        found = csr_array((np.ones(outputs.size, bool), (outputs, sites)), shape=(n, self.n_sites))
        keep = csr_array((~vague).astype(bool)[:, None])
        self._set(self.sets[self.scope_of].multiply(keep).tocsr().astype(bool) + found.astype(bool))

"""Base of targets with couplings along the edges of a graph."""

from __future__ import annotations

import copy
import functools
import numbers
import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from sklsb._kernels.rules.coloring import color
from sklsb._system.arrays import Array, Ints
from sklsb._words import worded
from sklsb.io.uai import Model, write_uai
from sklsb.targets._checks import as_array, check_names, finite_array, has
from sklsb.targets._names import aligned, columns_of, in_pandas, ordered, plain
from sklsb.targets.base import Target

# Log-ratios are about twice this at most; divided by the distance of knots they must stay finite.
LARGEST_FIELD = 1e303
_FIXED_POINT_BITS = 61
_LARGEST_EXPONENT = 700.0  # of doubles
# Entries of a graph up to which it is coloured sooner than the compiled code is made or loaded.
_FEW = 1 << 14


def fixed_point_unit(largest: Array) -> Array:
    """Return the units of 62-bit fixed point for sums of at most ``largest``.

    Integer sums are exact in any order, so they never drift; float64 has only 53 bits.
    """
    exponent = np.frexp(largest)[1] - _FIXED_POINT_BITS
    return np.asarray(np.ldexp(1.0, np.maximum(exponent, -1022)))


def refuse_large(sizes: Array, what: str) -> None:
    """Raise if log-ratios may overflow."""
    if sizes.max(initial=0.0) > LARGEST_FIELD:
        i = int(sizes.argmax())
        raise ValueError(
            f"{what} {i} is {sizes[i]:g}; it must be at most {LARGEST_FIELD:g} so that log-ratios "
            "stay finite. Rescale the model."
        )


def _from_graph(graph: Any, name: str) -> tuple[sp.csr_array, list[Any]]:
    import networkx as nx

    if graph.is_directed():
        raise TypeError(
            f"{name} is a directed graph; give an undirected one. Use graph.to_undirected()."
        )
    labels = plain(graph.nodes)
    if not labels:
        return sp.csr_array((0, 0)), labels
    edges = list(graph.edges(data=True))
    for one, other, given in edges:
        weight = given.get("weight", 1.0)
        if not isinstance(weight, numbers.Real):
            raise TypeError(
                f"the weight of the edge ({one!r}, {other!r}) is {weight!r}; give a real number."
            )
    attributes = {key for _, _, given in edges for key in given}
    if attributes and "weight" not in attributes:
        raise ValueError(
            f"the edges have the attributes {sorted(map(str, attributes))} but no weight; {name} "
            'are read from the attribute "weight".'
        )
    return sp.csr_array(nx.to_scipy_sparse_array(graph, dtype=float, format="csr")), labels


def _refuse_edges(given: Any, name: str, graphs: bool) -> None:
    """Refuse a list of edges, or a dict of them, which may look like a matrix."""
    rows = list(given) if isinstance(given, list | dict) else []
    if rows and all(
        isinstance(row, tuple)
        and len(row) in (2, 3)
        and all(isinstance(end, str | int | np.integer) for end in row[:2])
        for row in rows
    ):
        way = (
            "a networkx.Graph, to which add_weighted_edges_from adds triples (i, j, weight)"
            if graphs
            else "a matrix; scipy.sparse.coo_array((weights, (i, j)), shape=(n, n)) makes one"
        )
        raise TypeError(
            f"{name} is {given!r:.100}, which looks like edges of a graph. Give {way}. If it is a "
            f"matrix, give numpy.array({name})."
        )


def square_matrix(given: Any, name: str, otherwise: str = "") -> sp.csr_array:
    """Return a square matrix of finite real numbers as float64 in CSR form, indices sorted."""
    matrix = given
    _refuse_edges(given, name, bool(otherwise))
    if not sp.issparse(given):
        matrix = as_array(given, name)
        if matrix.ndim != 2:
            raise ValueError(
                f"{name} has shape {matrix.shape}; give a square matrix (dense or sparse)"
                f"{otherwise}."
            )
    if matrix.dtype.kind not in "iufb":
        raise TypeError(f"{name} has dtype {matrix.dtype}; give real numbers.")
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} has shape {matrix.shape}; it must be square.")
    # To float64 first: duplicates are summed in it, and scipy has no sparse float16.
    matrix = sp.csr_array(matrix.astype(np.float64))
    matrix.sum_duplicates()
    entries = matrix.tocoo()
    bad = np.flatnonzero(~np.isfinite(entries.data))
    if bad.size:
        i, j = entries.coords[0][bad[0]], entries.coords[1][bad[0]]
        raise ValueError(f"{name}[{i}, {j}] is {entries.data[bad[0]]}; it must be finite.")
    return matrix


def labelled(given: Any, name: str) -> tuple[Any, list[Any] | None]:
    """Return a data frame with its rows in the order of its columns, and their labels."""
    given = in_pandas(given)
    labels = columns_of(given)
    return given if labels is None else ordered(given, labels, name), labels


def symmetric_matrix(given: Any, name: str = "couplings") -> tuple[sp.csr_array, list[Any] | None]:
    """Return a symmetric matrix as `square_matrix` does, and the labels of nodes or columns."""
    columns = columns_of(given)
    if columns is not None and len(columns) != len(given):
        ends = ", ".join(map(repr, columns[:2]))
        raise ValueError(
            f"{name} is a data frame of {len(given)} rows and the columns {columns!r:.100}; give a "
            "square table. A list of edges becomes a graph by "
            f"networkx.from_pandas_edgelist({name}, {ends}, 'weight')."
        )
    given, labels = labelled(given, name)
    if has(given, "is_directed", "nodes"):
        given, labels = _from_graph(given, name)
    matrix = square_matrix(given, name, " or an undirected networkx graph")
    difference = abs(matrix - matrix.T).tocoo()
    if difference.nnz and difference.data.max() > 0:
        k = int(difference.data.argmax())
        i, j = int(difference.coords[0][k]), int(difference.coords[1][k])
        once = sp.tril(matrix, -1).nnz == 0 or sp.triu(matrix, 1).nnz == 0
        advice = (
            f"It holds each edge once: give {name} + {name}.T."
            if once
            else f"If the two should be equal, give ({name} + {name}.T) / 2."
        )
        raise ValueError(
            f"{name}[{i}, {j}] is {matrix[i, j]} but {name}[{j}, {i}] is {matrix[j, i]}; "
            f"{name} must be symmetric. {advice}"
        )
    return matrix, labels


def of_field(lattice: Any) -> Any:
    """Say what is wrong where a grid is given by its sides, as lattice(8, 8, coupling=0.3)."""

    @worded
    @functools.wraps(lattice)
    def checked(cls: Any, field: Any, *args: Any, **kwargs: Any) -> Any:
        single = isinstance(field, numbers.Real) or getattr(field, "shape", None) == ()
        if single and args and isinstance(args[0], numbers.Integral):
            raise TypeError(
                f"{cls.__name__}.lattice was given {field!r} and {args[0]!r}, as if they were the "
                "sides of the grid; give the field of each site, an array that has these sides, "
                f"as numpy.zeros(({field!r}, {args[0]!r}{', k' * (cls.__name__ == 'Potts')})), "
                "and then the coupling."
            )
        return lattice(cls, field, *args, **kwargs)

    return checked


def _in_order(given: Any, dims: Sequence[str]) -> Any:
    """Return an array of xarray with the axes of these names in this order, in their places."""
    own, order = getattr(given, "dims", ()), iter(dims)
    if not {*dims} <= {*own}:
        return given
    return given.transpose(*(next(order) if dim in dims else dim for dim in own))


def _lattice_couplings(strengths: Array, periodic: bool) -> sp.csr_array:
    site = np.arange(strengths[0].size).reshape(strengths.shape[1:])
    parts = []
    for axis, strength in enumerate(strengths):
        kept = (slice(None),) * axis + (slice(None if periodic else -1),)
        ends = np.roll(site, -1, axis)
        parts.append([part[kept].ravel() for part in (strength, site, ends)])
    data, i, j = (np.concatenate(part) for part in zip(*parts, strict=True))
    edges = sp.coo_array((data, (i, j)), shape=(site.size, site.size))
    loops = sp.diags_array(edges.diagonal(), format="csr")
    # Each self-loop stands once on the diagonal; any other edge stands in both triangles.
    return sp.csr_array(edges + edges.T - loops)


def is_attractive(target: Target) -> bool:
    """Whether variables are coupled in pairs, and none of them prefers to differ from another."""
    model = target.offers.pairwise
    return model is not None and model.couplings.nnz > 0 and model.couplings.data.min() >= 0.0


class GraphTarget(Target):
    """A target with couplings between pairs of variables and a field on each."""

    couplings: sp.csr_array
    field: Array
    _joint_zeros = False  # couplings are finite

    def __init__(
        self,
        couplings: Any,
        field: ArrayLike | None = None,
        *,
        names: Iterable[Any] | None = None,
    ):
        matrix, known = symmetric_matrix(couplings)
        labels = check_names(names, matrix.shape[0]) or known
        if known and labels and known != labels and {*known} == {*labels}:
            raise ValueError(
                f"names is {labels!r:.100}, the labels of couplings in another order, "
                f"{known!r:.100}. Leave names out, or sort couplings by its labels."
            )
        self._set(matrix, field, None, ("site",), labels)

    @classmethod
    def _on_lattice(
        cls, field: ArrayLike, last: tuple[str, ...], coupling: ArrayLike, periodic: bool
    ) -> Self:
        values = as_array(field, "field")
        n_axes = values.ndim - len(last)
        if n_axes < 1 + len(last):  # a field of labels without one for each value is a mistake
            needed = f"({', '.join(('rows', 'cols', *last))})"
            raise ValueError(
                f"field has shape {values.shape}; a lattice needs one of shape {needed}, or with "
                f"more sides. For a constant field give np.full({needed}, value)."
            )
        dims = {1: ("site",), 2: ("row", "col")}.get(n_axes) or [f"axis_{i}" for i in range(n_axes)]
        values = as_array(_in_order(field, dims), "field")
        shape = values.shape[:n_axes]
        are_sides = values.ndim == 1 and values.dtype.kind == "i" and (values > 1).all()
        if isinstance(field, tuple) and are_sides:
            raise ValueError(
                f"field is {field}, as shapes are; give np.zeros({field}), or a list for a chain."
            )
        if isinstance(coupling, str):
            bonds = (n_axes, *shape)
            raise ValueError(
                f"coupling is {coupling!r}; give numbers. With rng = np.random.default_rng(seed), "
                f"rng.normal(size={bonds}) has Gaussian ones and rng.choice([-1.0, 1.0], {bonds}) "
                "signs."
            )
        if not isinstance(periodic, bool | np.bool_):
            raise TypeError(f"periodic is {periodic!r}; give True or False.")
        model = cls.__new__(cls)
        strengths = as_array(_in_order(coupling, dims), "coupling")
        strengths = finite_array(strengths, "coupling", (n_axes, *shape))
        model._set(_lattice_couplings(strengths, periodic), values, shape, tuple(dims))
        return model

    def _set(
        self,
        couplings: sp.csr_array,
        field: ArrayLike | None,
        shape: tuple[int, ...] | None,
        dims: tuple[str, ...],
        labels: list[Any] | None = None,
    ) -> None:
        self.shape = couplings.shape[:1] if shape is None else shape
        self.dims = dims
        field, labels = aligned(field, labels, self.n_sites, "field")
        self._set_field(field)
        loops = couplings.diagonal()
        self.constant = float(loops.sum())
        self.couplings = sp.csr_array(couplings - sp.diags_array(loops, format="csr"))
        self.couplings.eliminate_zeros()
        self.couplings.sort_indices()
        self._freeze()
        self._labels = labels
        self._check_size()

    def _with_field(self, field: Array, constant: float) -> Self:
        """Return the model with another field."""
        model = copy.copy(self)
        vars(model)["field"], model.constant = field, constant
        model._freeze()
        model._check_size()
        return model

    @abstractmethod
    def _set_field(self, field: ArrayLike | None) -> None:
        """Set the field, with sites along its first axis, after a check against ``shape``."""

    @cached_property
    def symmetry(self) -> str | None:
        tables = self._field_tables()
        return "cycle" if (tables == tables[:, :1]).all() else None

    def _check_size(self) -> None:
        if not self.n_sites:
            return
        finite = np.where(np.isfinite(self.field), np.abs(self.field), 0.0)
        with np.errstate(over="ignore"):
            largest = finite.reshape(self.n_sites, -1).max(axis=1)
            refuse_large(
                largest + abs(self.couplings).sum(axis=1), "|field| + sum |couplings| of site"
            )

    def _freeze(self) -> None:
        # Samplers keep values computed from these arrays.
        pairs = self.couplings
        for array in (self.field, pairs.data, pairs.indices, pairs.indptr):
            array.flags.writeable = False

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        n = self.couplings.nnz // 2
        return f"{type(self).__name__}({size} sites, {n} couplings{self._likelihoods})"

    def first_order_ratios(self, x: ArrayLike) -> Array:
        """Return `log_ratios`: a sum over pairs is linear in the indicators of each variable."""
        return self.log_ratios(x)

    @property
    def graph(self) -> sp.csr_array:
        return self.couplings != 0

    @property
    def _pairwise(self) -> GraphTarget | None:
        """The model itself, unless a subclass gave it another log p."""
        return self if type(self).log_prob.__module__.startswith("sklsb.") else None

    @property
    def log_factors(self) -> list[tuple[tuple[int, ...], Array]]:
        result: list[tuple[tuple[int, ...], Array]] = [((), np.array(self.constant))]
        result += [((i,), table) for i, table in enumerate(self._field_tables())]
        upper = sp.triu(self.couplings, 1).tocoo()
        shape = self._pair_table()
        for i, j, coupling in zip(*upper.coords, upper.data.tolist(), strict=True):
            result.append(((int(i), int(j)), coupling * shape))
        return result

    def to_uai(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a UAI file of type MARKOV, a table for each site and each coupling.

        Parameters
        ----------
        path : path-like
            The file. It has no place for names: values are 0, 1, ... in their order, so that 0 and
            1 are the spins -1 and +1 of an `Ising`.

        Raises
        ------
        ValueError
            If an entry of a table, the exponential of a field or coupling, is out of range.
        """
        factors = self.log_factors
        size = max((abs(t[np.isfinite(t)]).max(initial=0.0) for _, t in factors), default=0.0)
        if size > _LARGEST_EXPONENT:
            raise ValueError(
                f"a table would have the entry exp({size:g}) or its inverse; UAI files hold "
                f"numbers up to exp({_LARGEST_EXPONENT:g}). Pickle the model instead."
            )
        scopes, tables = [scope for scope, _ in factors], [np.exp(table) for _, table in factors]
        write_uai(path, Model("MARKOV", tuple(self.cardinalities.tolist()), scopes, tables))

    @property
    def _log_prob_size(self) -> float:
        fields = np.abs(np.where(np.isfinite(self.field), self.field, 0.0))
        with np.errstate(over="ignore"):
            of_sites = np.atleast_2d(fields.T).max(axis=0).sum()
            couplings = 0.5 * np.abs(self.couplings.data).sum()
            return float(of_sites + couplings + abs(self.constant))

    @abstractmethod
    def _field_tables(self) -> Array:
        """Return log p of each value of each site by its field alone, shape (n_sites, values)."""

    @abstractmethod
    def _pair_table(self) -> Array:
        """Return the factor of a coupling for each pair of values."""

    def _unit(self) -> Array:
        """Return the fixed-point unit of the couplings of each site."""
        return fixed_point_unit(abs(self.couplings).sum(axis=1))

    @cached_property
    @abstractmethod
    def _view(self) -> Any:
        """What `view` returns."""

    def view(self) -> NamedTuple:
        view: NamedTuple = self._view
        return view


def colors(graph: sp.csr_array) -> Ints:
    """Colour a graph so that neighbours differ, with two colours if two suffice.

    Greedily in breadth-first order: each node gets the first colour that no neighbour has.
    """
    n = graph.shape[0]
    found, queue = np.empty(n, np.int64), np.empty(n, np.int64)
    most = int(np.diff(graph.indptr).max(initial=0))
    run = color if graph.nnz > _FEW else color.__wrapped__
    run(graph.indptr, graph.indices, found, queue, np.zeros(most + 1, np.int64))
    return found

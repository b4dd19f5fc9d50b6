"""The Ising model."""

import math
import numbers
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from sklsb._compiled import IsingView
from sklsb.targets.base import Target, as_array

# Log-ratios are twice this at most; divided by the distance of knots they must stay finite.
_LARGEST_FIELD = 1e303
_FIXED_POINT_BITS = 61
_CSR = ("data", "indices", "indptr")


def _from_graph(graph: Any) -> tuple[sp.csr_array, list[Any]]:
    import networkx as nx

    if graph.is_directed():
        raise TypeError(
            "couplings is a directed graph; an Ising model needs an undirected one. "
            "Use graph.to_undirected()."
        )
    labels = list(graph.nodes)
    if not labels:
        return sp.csr_array((0, 0)), labels
    edges = list(graph.edges(data=True))
    for one, other, attributes in edges:
        weight = attributes.get("weight", 1.0)
        if not isinstance(weight, numbers.Real):
            raise TypeError(
                f"the weight of the edge ({one!r}, {other!r}) is {weight!r}; give a real number."
            )
    names = {name for _, _, attributes in edges for name in attributes}
    if names and "weight" not in names:
        raise ValueError(
            f"the edges have the attributes {sorted(map(str, names))} but no weight; couplings "
            'are read from the attribute "weight".'
        )
    return sp.csr_array(nx.to_scipy_sparse_array(graph, dtype=float, format="csr")), labels


def _check_couplings(couplings: Any) -> sp.csr_array:
    """Return symmetric, finite couplings in CSR form with sorted indices."""
    if sp.issparse(couplings):
        matrix = couplings
    else:
        dense = as_array(couplings, "couplings")
        if dense.ndim != 2:
            raise ValueError(
                f"couplings has shape {dense.shape}; give a square matrix (dense or sparse) "
                "or an undirected networkx graph."
            )
        if dense.dtype.kind not in "iufb":
            raise TypeError(f"couplings has dtype {dense.dtype}; give real numbers.")
        matrix = dense
    if matrix.dtype.kind not in "iufb":
        raise TypeError(f"couplings has dtype {matrix.dtype}; give real numbers.")
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"couplings has shape {matrix.shape}; it must be square.")
    # To float64 first: duplicates are summed in it, and scipy has no sparse float16.
    matrix = sp.csr_array(matrix.astype(np.float64))
    matrix.sum_duplicates()
    entries = matrix.tocoo()
    bad = np.flatnonzero(~np.isfinite(entries.data))
    if bad.size:
        i, j = entries.coords[0][bad[0]], entries.coords[1][bad[0]]
        raise ValueError(f"couplings[{i}, {j}] is {entries.data[bad[0]]}; it must be finite.")
    difference = abs(matrix - matrix.T).tocoo()
    if difference.nnz and difference.data.max() > 0:
        k = int(difference.data.argmax())
        i, j = int(difference.coords[0][k]), int(difference.coords[1][k])
        once = sp.tril(matrix, -1).nnz == 0 or sp.triu(matrix, 1).nnz == 0
        advice = (
            "It holds each edge once: give couplings + couplings.T."
            if once
            else "If the two should be equal, give (couplings + couplings.T) / 2."
        )
        raise ValueError(
            f"couplings[{i}, {j}] is {matrix[i, j]} but couplings[{j}, {i}] is {matrix[j, i]}; "
            f"couplings must be symmetric. {advice}"
        )
    return matrix


def _check_field(
    field: ArrayLike | None, shape: tuple[int, ...], name: str = "field"
) -> NDArray[np.float64]:
    if field is None:
        return np.zeros(shape)
    given = as_array(field, name)
    if given.dtype.kind not in "iufb":
        raise TypeError(f"{name} has dtype {given.dtype}; give real numbers.")
    if given.ndim and given.shape != shape:
        raise ValueError(
            f"{name} has shape {given.shape}; it must be a number or of shape {shape}."
        )
    values = np.array(np.broadcast_to(given, shape), dtype=np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if bad.size:
        where = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"{name}[{', '.join(map(str, where))}] is {values[where]}; it must be finite."
        )
    return values


def _lattice_couplings(shape: tuple[int, int], coupling: float, periodic: bool) -> sp.csr_array:
    site = np.arange(shape[0] * shape[1]).reshape(shape)
    ends = []
    for axis in (0, 1):
        one, other = site, np.roll(site, -1, axis)
        if not periodic:
            keep = [slice(None), slice(None)]
            keep[axis] = slice(0, -1)
            one, other = one[tuple(keep)], other[tuple(keep)]
        ends.append((one.ravel(), other.ravel()))
    i, j = (np.concatenate(part) for part in zip(*ends, strict=True))
    edges = sp.coo_array((np.full(i.size, float(coupling)), (i, j)), shape=(site.size, site.size))
    loops = sp.diags_array(edges.diagonal(), format="csr")
    # Each self-loop stands once on the diagonal; any other edge stands in both triangles.
    return sp.csr_array(edges + edges.T - loops)


class Ising(Target):
    r"""Ising model on any graph, with spins -1 and +1.

    .. math:: \log p(x) = \sum_i h_i x_i + \sum_{i<j} J_{ij} x_i x_j + \sum_i J_{ii}

    up to the normalising constant. A self-loop is the constant :math:`J_{ii} x_i^2`.

    Parameters
    ----------
    couplings : array_like or sparse matrix of shape (n_sites, n_sites), or networkx graph
        Symmetric couplings J (no unit: energies over temperature). The nodes of a graph become
        the sites, in the graph's order, and the edge attribute ``weight`` (1 where there is
        none) the coupling; parallel edges add.
    field : array_like of shape (n_sites,) or float, optional
        Fields h; zero if not given.

    Attributes
    ----------
    couplings : scipy.sparse.csr_array
        Couplings, without the diagonal.
    field : ndarray of shape (n_sites,)
        Fields.
    constant : float
        Sum of the diagonal of the couplings as given.

    Raises
    ------
    ValueError
        If the couplings are not square or not symmetric, or a coupling or field is not finite
        (the message names the entry), or larger in sum than 1e303.
    TypeError
        If the couplings or fields are not real numbers, or the graph is directed.

    See Also
    --------
    Ising.lattice : nearest neighbours on a grid.
    Ising.from_image : posterior of a binary image.

    References
    ----------
    .. [1] E. Sansone, "LSB: Local Self-Balancing MCMC in Discrete Spaces", ICML 2022, Eq. 6.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb.targets import Ising
    >>> pair = Ising([[0.0, 2.0], [2.0, 0.0]], field=[0.5, 0.0])
    >>> pair.log_prob([[1, 1], [1, -1]])
    array([ 2.5, -1.5])
    >>> pair.log_ratios([1, 1])
    array([-5., -4.])
    """

    values = (-1, 1)

    def __init__(self, couplings: Any, field: ArrayLike | None = None):
        labels = None
        if hasattr(couplings, "is_directed") and hasattr(couplings, "nodes"):
            couplings, labels = _from_graph(couplings)
        self._set(_check_couplings(couplings), field, None, ("site",), labels)

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
        self.field = _check_field(field, self.shape).ravel()
        loops = couplings.diagonal()
        self.constant = float(loops.sum())
        self.couplings = sp.csr_array(couplings - sp.diags_array(loops, format="csr"))
        self.couplings.eliminate_zeros()
        self.couplings.sort_indices()
        self._freeze()
        plain = labels is not None and (
            all(type(v) is int for v in labels) or all(type(v) is str for v in labels)
        )
        self._labels = labels if plain else None
        with np.errstate(over="ignore"):
            largest = np.abs(self.field) + abs(self.couplings).sum(axis=1)
        if self.n_sites and largest.max() > _LARGEST_FIELD:
            i = int(largest.argmax())
            raise ValueError(
                f"|field| + sum |couplings| of site {i} is {largest[i]:g}; it must be at most "
                f"{_LARGEST_FIELD:g} so that log-ratios stay finite. Rescale the model."
            )

    def _freeze(self) -> None:
        # Samplers keep what they computed from these arrays; a change must not pass unseen.
        for array in (self.field, *(getattr(self.couplings, name) for name in _CSR)):
            array.flags.writeable = False

    @classmethod
    def lattice(cls, field: ArrayLike, coupling: float = 1.0, periodic: bool = True) -> "Ising":
        """Nearest neighbours on a rectangular grid.

        Parameters
        ----------
        field : array_like of shape (rows, cols)
            Field of each site; its shape is the shape of the grid.
        coupling : float, default=1.0
            Coupling of neighbours; positive favours equal spins.
        periodic : bool, default=True
            Whether the grid wraps around. On a side of length 2 a neighbour is then reached
            both ways and its coupling counts twice; on a side of length 1 a site is its own
            neighbour, which adds a constant.

        Returns
        -------
        Ising
            Draws have the dimensions row and col.
        """
        values = as_array(field, "field")
        if values.ndim != 2:
            raise ValueError(
                f"field has shape {values.shape}; a lattice needs one of shape (rows, cols). "
                "For a constant field give np.full((rows, cols), value); for other dimensions "
                "Ising(networkx.grid_graph(shape), field.ravel())."
            )
        if not isinstance(periodic, bool | np.bool_):
            raise TypeError(f"periodic is {periodic!r}; give True or False.")
        if not (isinstance(coupling, numbers.Real) and np.isfinite(float(coupling))):
            raise ValueError(f"coupling is {coupling!r}; it must be one finite number.")
        shape = (int(values.shape[0]), int(values.shape[1]))
        model = cls.__new__(cls)
        model._set(
            _lattice_couplings(shape, float(coupling), periodic), values, shape, ("row", "col")
        )
        return model

    @classmethod
    def from_image(
        cls,
        image: ArrayLike,
        mean: float = 1.0,
        noise_sd: float = 3.0,
        coupling: float = 1.0,
        periodic: bool = False,
    ) -> "Ising":
        r"""Posterior of a black and white image seen through Gaussian noise.

        The pixel observed at site i is :math:`y_i = \mu x_i + \sigma \epsilon_i` and the prior a
        lattice Ising model, so the field is :math:`h_i = y_i \mu / \sigma^2` [1]_.

        Parameters
        ----------
        image : array_like of shape (rows, cols)
            Observed pixels y, in the unit of ``mean``.
        mean : float, default=1.0
            Mean of a pixel where the image is white; black is its negative.
        noise_sd : float, default=3.0
            Standard deviation of the noise, in the unit of ``mean``.
        coupling : float, default=1.0
            Prior strength: how much neighbours want to agree.
        periodic : bool, default=False
            Whether the left edge touches the right one and the top the bottom.

        Returns
        -------
        Ising

        References
        ----------
        .. [1] E. Sansone, "LSB: Local Self-Balancing MCMC in Discrete Spaces", ICML 2022, Eq. 6.
        """
        if not (isinstance(noise_sd, numbers.Real) and 0 < noise_sd < np.inf):
            raise ValueError(f"noise_sd is {noise_sd!r}; it must be a positive number.")
        if not (isinstance(mean, numbers.Real) and np.isfinite(mean)):
            raise ValueError(f"mean is {mean!r}; it must be a finite number.")
        pixels = as_array(image, "image")
        if pixels.dtype.kind not in "iufb":
            raise TypeError(f"image has dtype {pixels.dtype}; give real numbers.")
        if pixels.ndim != 2:
            raise ValueError(f"image has shape {pixels.shape}; it must have shape (rows, cols).")
        pixels = _check_field(pixels, pixels.shape, "image")
        scale = np.divide(mean, np.square(float(noise_sd))) if noise_sd > 1e-150 else np.inf
        if not np.isfinite(scale):
            raise ValueError(
                f"mean / noise_sd**2 is not finite for mean {mean!r} and noise_sd {noise_sd!r}."
            )
        return cls.lattice(pixels * scale, coupling, periodic)

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        return f"Ising({size} sites, {self.couplings.nnz // 2} couplings)"

    @property
    def coords(self) -> dict[str, Any]:
        """Coordinate of each of ``dims``: node labels where the graph has plain ones."""
        if self._labels is not None:
            return {"site": np.asarray(self._labels)}
        return super().coords

    def log_prob(self, x: ArrayLike) -> NDArray[np.float64]:
        """Unnormalised log-probability, the constant of the self-loops included.

        Parameters
        ----------
        x : array_like of shape (..., n_sites) or leading axes and ``shape``
            States of -1 and +1.

        Returns
        -------
        ndarray of float64 of the leading shape
        """
        states = self.check_states(x)
        flat = states.reshape(math.prod(states.shape[:-1]), self.n_sites).astype(np.float64)
        local = self.field + 0.5 * (self.couplings @ flat.T).T
        return (np.einsum("ij,ij->i", flat, local) + self.constant).reshape(states.shape[:-1])

    def log_ratios(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return log p(x with spin i flipped) - log p(x), -2 x_i (h_i + sum_j J_ij x_j).

        Parameters
        ----------
        x : array_like of shape (..., n_sites) or leading axes and ``shape``
            States of -1 and +1.

        Returns
        -------
        ndarray of float64, shape (..., n_sites)
        """
        states = self.check_states(x)
        flat = states.reshape(math.prod(states.shape[:-1]), self.n_sites).astype(np.float64)
        return (-2.0 * flat * (self.field + (self.couplings @ flat.T).T)).reshape(states.shape)

    @cached_property
    def _view(self) -> IsingView:
        # In each row: the site itself (its own log-ratio changes sign) among its neighbours.
        n = self.n_sites
        rows = sp.coo_array(self.couplings)
        i = np.concatenate([rows.coords[0], np.arange(n)])
        j = np.concatenate([rows.coords[1], np.arange(n)])
        coupling = np.concatenate([rows.data, np.zeros(n)])
        order = np.lexsort((j, i))
        i, j, coupling = i[order], j[order], coupling[order]
        # 62-bit fixed point, one unit per site: integer sums are exact whatever their order, so
        # local fields never drift. Finer than the 53 bits of a float64 sum of the same row.
        exponent = np.frexp(abs(self.couplings).sum(axis=1))[1] - _FIXED_POINT_BITS
        unit = np.ldexp(1.0, np.maximum(exponent, -1022))
        start = np.zeros(n + 1, dtype=np.uint64)
        np.cumsum(np.bincount(i, minlength=n), out=start[1:])
        return IsingView(
            np.array(self.field),  # its own: the kernels are compiled for writable arrays
            unit,
            start,
            j.astype(np.uint32),
            np.rint(coupling / unit[j]).astype(np.int64),
        )

    def view(self) -> IsingView:
        """Arrays for the compiled kernels."""
        return self._view

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_view"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._freeze()

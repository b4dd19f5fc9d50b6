"""The Ising model."""

import math
import numbers
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from sklsb._compiled import IsingView
from sklsb.targets._graphs import GraphTarget, real_array, refuse
from sklsb.targets.base import as_array


def _check_field(
    field: ArrayLike | None, shape: tuple[int, ...], name: str = "field"
) -> NDArray[np.float64]:
    if field is None:
        return np.zeros(shape)
    given = real_array(field, name)
    if given.ndim and given.shape != shape:
        raise ValueError(
            f"{name} has shape {given.shape}; it must be a number or of shape {shape}."
        )
    values = np.array(np.broadcast_to(given, shape), dtype=np.float64)
    refuse(~np.isfinite(values), values, name, "it must be finite")
    return values


class Ising(GraphTarget):
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
        super().__init__(couplings, field)

    def _set_field(self, field: ArrayLike | None) -> None:
        self.field = _check_field(field, self.shape).ravel()

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
        rows, cols = values.shape
        return cls._on_lattice(values, (rows, cols), coupling, periodic)

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
        pixels = real_array(image, "image")
        if pixels.ndim != 2:
            raise ValueError(f"image has shape {pixels.shape}; it must have shape (rows, cols).")
        pixels = _check_field(pixels, pixels.shape, "image")
        scale = np.divide(mean, np.square(float(noise_sd))) if noise_sd > 1e-150 else np.inf
        if not np.isfinite(scale):
            raise ValueError(
                f"mean / noise_sd**2 is not finite for mean {mean!r} and noise_sd {noise_sd!r}."
            )
        return cls.lattice(pixels * scale, coupling, periodic)

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

    def _make_view(self) -> IsingView:
        # In each row: the site itself (its own log-ratio changes sign) among its neighbours.
        n = self.n_sites
        rows = sp.coo_array(self.couplings)
        i = np.concatenate([rows.coords[0], np.arange(n)])
        j = np.concatenate([rows.coords[1], np.arange(n)])
        coupling = np.concatenate([rows.data, np.zeros(n)])
        order = np.lexsort((j, i))
        i, j, coupling = i[order], j[order], coupling[order]
        unit = self._unit()
        start = np.zeros(n + 1, dtype=np.uint64)
        np.cumsum(np.bincount(i, minlength=n), out=start[1:])
        return IsingView(
            np.array(self.field),  # its own: the kernels are compiled for writable arrays
            unit,
            start,
            j.astype(np.uint32),
            np.rint(coupling / unit[j]).astype(np.int64),
        )

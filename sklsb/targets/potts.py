"""The Potts model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from sklsb._kernels.targets.potts import PottsView
from sklsb._system.arrays import Array, Bools, Ints
from sklsb.targets._checks import MOST_VALUES, check_state_names, real_array, refuse, touched_near
from sklsb.targets._evidence import Weights, value_name
from sklsb.targets._graphs import GraphTarget, of_field
from sklsb.targets._images import image_field
from sklsb.targets._names import columns_of, in_pandas, plain
from sklsb.targets.base import States

if TYPE_CHECKING:
    from sklsb.targets._torch.model import Device, DType, Model


class Potts(GraphTarget):
    r"""Potts model on any graph: variables of k values, with a coupling of equal neighbours.

    .. math:: \log p(x) = \sum_{i<j} J_{ij} [x_i = x_j] + \sum_i h_i(x_i) + \sum_i J_{ii},
              \qquad x_i \in \{0, \dots, k - 1\}

    up to the normalising constant. A field of -inf makes a value impossible at a site. A self-loop
    is a constant.

    Parameters
    ----------
    couplings : array_like or sparse matrix of shape (n_sites, n_sites), or networkx graph
        Symmetric couplings J, as for `Ising`; positive ones favour equal values.
    field : array_like of shape (n_sites, k)
        Field h of each value at each site, finite or -inf; k is from 2 to 32,768. The rows of a
        data frame are put in order by their labels, and its columns are the names of the values.
    names : iterable, optional
        Names of the sites, distinct and hashable, in place of names in the couplings.
    state_names : iterable, optional
        Names of the k values, in place of names in the field.

    Attributes
    ----------
    couplings : scipy.sparse.csr_array
        Couplings, without the diagonal.
    field : ndarray of shape (n_sites, k)
        Fields.
    values : tuple of int
        0 to k - 1.
    constant : float
        Sum of the diagonal of the couplings as given.

    Raises
    ------
    ValueError
        If the couplings are not square, symmetric and finite; if the field has another shape, an
        entry is NaN or +inf, or a site has no possible value; if the fields and couplings of a
        site sum to more than 1e303.
    TypeError
        If the couplings or fields are not real numbers, or the graph is directed.

    See Also
    --------
    Ising : a Potts model of k = 2 has twice its couplings.

    Notes
    -----
    The kernel takes about 4 n_sites (k - 1)^2 (neighbours + 1) bytes; if the machine does not have
    them, `fit` raises a MemoryError.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Potts
    >>> pair = Potts([[0.0, 2.0], [2.0, 0.0]], field=[[0.5, 0.0, 0.0], [0.0, 0.0, -np.inf]])
    >>> pair.log_prob([[0, 0], [0, 1], [1, 2]])
    array([ 2.5,  0.5, -inf])
    >>> pair.log_ratios([0, 0])
    array([-2.5, -2.5, -2. , -inf])
    """

    def __init__(
        self,
        couplings: Any,
        field: ArrayLike,
        *,
        names: Iterable[Any] | None = None,
        state_names: Iterable[Any] | None = None,
    ):
        given: Any = field
        if "state" in getattr(given, "dims", ()):
            given = in_pandas(given.transpose(..., "state"))
        own = columns_of(given)
        if state_names is not None:
            state_names = plain(state_names)
            if own and own != state_names and {*own} == {*state_names}:
                given = given.iloc[:, [own.index(name) for name in state_names]]
        super().__init__(couplings, given, names=names)
        if state_names is not None:
            of_each = [state_names] * self.n_sites
            self.state_names = check_state_names(of_each, self.names, self.cardinalities)

    def weighted(self, weights: Weights) -> Potts:
        field = self.field.copy()
        with np.errstate(divide="ignore"):
            for site, w in weights.items():
                field[site] += np.log(w)
        return self._with_field(field, self.constant)

    def _set_field(self, field: Any) -> None:
        given = real_array(field, "field")
        if given.ndim != len(self.shape) + 1 or given.shape[:-1] != self.shape:
            raise ValueError(
                f"field has shape {given.shape}; it must have shape ({self.n_sites}, k): for each "
                "site, one number per value."
            )
        k = given.shape[-1]
        if not 2 <= k <= MOST_VALUES:
            raise ValueError(
                f"field has shape {given.shape}, which means {k} values; a Potts model takes 2 to "
                f"{MOST_VALUES}."
            )
        values = given.astype(np.float64)
        rule = "it must be finite, or -inf where a value is impossible"
        refuse(np.isnan(values) | (values == np.inf), values, "field", rule)
        self.values = tuple(range(k))
        names = columns_of(field) or []
        if [*map(str, names)] not in ([], [*map(str, self.values)]):
            of_each = [names] * self.n_sites
            self.state_names = check_state_names(
                of_each, range(self.n_sites), np.full(self.n_sites, k)
            )
        self.field = values.reshape(self.n_sites, k)

    def _check_size(self) -> None:
        empty = np.flatnonzero((self.field == -np.inf).all(axis=1))
        if empty.size:
            raise ValueError(
                f"every value of site {empty[0]} is impossible: its field is -inf throughout. "
                "Leave at least one finite."
            )
        super()._check_size()

    @classmethod
    @of_field
    def lattice(cls, field: ArrayLike, coupling: ArrayLike = 1.0, periodic: bool = True) -> Potts:
        """Nearest neighbours on a rectangular grid of two or more dimensions.

        Parameters
        ----------
        field : array_like of shape (rows, cols, k), or with more sides
            Field of each value at each site, finite or -inf. Of an array of xarray the labels of
            the axis "state" are names of values.
        coupling : float or array_like, default=1.0
            Coupling of neighbours, as for `Ising.lattice`; positive favours equal values.
        periodic : bool, default=True
            Whether the grid wraps around; on sides of length 1 and 2 as in `Ising.lattice`.

        Returns
        -------
        Potts
            Draws have the dimensions row and col, or axis_0, axis_1, axis_2 and so on.
        """
        given: Any = field
        labelled = "state" in getattr(given, "dims", ())
        given = given.transpose(..., "state") if labelled else given
        model = cls._on_lattice(given, ("k",), coupling, periodic)
        names = plain(given["state"].values) if labelled and "state" in given.coords else []
        if [*map(str, names)] not in ([], [*map(str, model.values)]):
            of_each = [names] * model.n_sites
            model.state_names = check_state_names(of_each, model.names, model.cardinalities)
        return model

    @classmethod
    def from_image(
        cls,
        image: ArrayLike,
        means: ArrayLike,
        noise_sd: float,
        coupling: float,
        periodic: bool = False,
        *,
        missing: ArrayLike | None = None,
    ) -> Potts:
        r"""Posterior of the regions of an image seen through Gaussian noise.

        Pixel i is :math:`y_i = \mu_{x_i} + \sigma \epsilon_i`, with the label :math:`x_i`, and the
        prior is a lattice Potts model, so the field is

        .. math:: h_i(s) = -\frac{|y_i - \mu_s|^2}{2 \sigma^2}

        Parameters
        ----------
        image : array_like of shape (rows, cols) or (rows, cols, channels)
            Observed pixels y, grey or in colours, of any range.
        means : array_like of shape (k,) or (k, channels)
            Mean pixel of each label.
        noise_sd : float
            Standard deviation of the noise in each channel, in the units of the image.
        coupling : float
            What two neighbours gain by having the same label. On a grid without a field, order sets
            in at log(1 + sqrt(k)); a little more joins pixels into regions.
        periodic : bool, default=False
            Whether the image wraps around.
        missing : array_like of bool, shape (rows, cols), optional
            Pixels that were not observed. Their field is 0, whatever the image has there, also NaN.

        Returns
        -------
        Potts
            Draws have the dimensions row and col. With ``p = marginals(draws, target)["p"]`` of
            `sklsb.diagnostics`, ``p.argmax("state")`` is the image of the likeliest labels and
            ``p.max("state")`` the image of their probabilities.

        Raises
        ------
        ValueError, TypeError
            If the shapes do not fit, or an entry is not a finite number.

        See Also
        --------
        Ising.from_image : two values.

        Examples
        --------
        >>> from sklsb import Potts
        >>> target = Potts.from_image([[0, 120], [250, 255]], [0, 128, 255], 40.0, coupling=1.2)
        >>> target
        Potts(2 x 2 sites, 4 couplings, 3 values)
        """
        field = image_field(image, means, noise_sd, missing, "means")
        return cls.lattice(field, coupling, periodic)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {len(self.values)} values)"

    @property
    def n_possible(self) -> Ints:
        return np.asarray((self.field > -np.inf).sum(axis=1), dtype=np.int64)

    def possible_values(self, sites: Ints, observed: Ints) -> list[Bools]:
        """Return which values of each variable have a finite field and agree with evidence."""
        found = self.field > -np.inf
        found[sites] &= np.arange(len(self.values)) == observed[:, np.newaxis]
        return list(found)

    def check_evidence(self, evidence: Mapping[Any, Any]) -> tuple[Ints, Ints]:
        sites, observed = super().check_evidence(evidence)
        bad = np.flatnonzero(self.field[sites, observed] == -np.inf)
        if bad.size:
            site, value = int(sites[bad[0]]), int(observed[bad[0]])
            raise ValueError(
                f"evidence sets variable {self.label(site)!r} to {value_name(self, site, value)}, "
                "which is impossible: its field is -inf."
            )
        return sites, observed

    def draw_state(self, rng: np.random.Generator) -> States:
        possible = self.field > -np.inf
        rank = rng.integers(possible.sum(axis=1))
        return (np.cumsum(possible, axis=1) > rank[:, None]).argmax(axis=1).astype(self.dtype)

    def log_prob(self, x: ArrayLike) -> Array:
        flat, leading = self._flat(x)
        result = self.field[np.arange(self.n_sites), flat].sum(axis=1) + self.constant
        for value in self.values:
            here = (flat == value).astype(np.float64)
            result += 0.5 * np.einsum("ij,ij->i", here, (self.couplings @ here.T).T)
        return result.reshape(leading)

    def log_ratios(self, x: ArrayLike) -> Array:
        flat, leading = self._flat(x)
        k = len(self.values)
        counts = np.stack(
            [(self.couplings @ (flat == v).astype(np.float64).T).T for v in self.values], axis=-1
        )
        old = flat[:, :, None].astype(np.intp)
        new = np.arange(k - 1) + (np.arange(k - 1) >= old)
        site = np.arange(self.n_sites)[:, None]
        with np.errstate(invalid="ignore"):  # out of an impossible state
            result = self.field[site, new] - self.field[site, old]
        result += np.take_along_axis(counts, new, 2) - np.take_along_axis(counts, old, 2)
        return result.reshape(*leading, self.n_sites * (k - 1))

    _linear = True

    def _torch_model(self, device: Device, dtype: DType) -> Model:
        from sklsb.targets._torch.graphs import PottsModel

        return PottsModel(self.couplings, self.field, device)

    def _field_tables(self) -> Array:
        return self.field

    def _pair_table(self) -> Array:
        return np.eye(len(self.values))

    @cached_property
    def _view(self) -> PottsView:
        n, others, unit = self.n_sites, len(self.values) - 1, self._unit()
        # A move changes the log-ratios of all moves of its site and of the site's neighbours.
        near = (self.couplings != 0) + sp.eye_array(n, dtype=np.bool_, format="csr")
        near.sort_indices()
        neighbour = self.couplings.indices
        return PottsView(
            # Its own: the kernels are compiled for writable arrays of one layout.
            np.array(self.field, order="C"),
            unit,
            *touched_near(near, np.full(n, others)),
            np.repeat(np.arange(n, dtype=np.uint32), others),
            self.couplings.indptr.astype(np.uint64),
            neighbour.astype(np.uint32),
            np.rint(self.couplings.data / unit[neighbour]).astype(np.int64),
        )

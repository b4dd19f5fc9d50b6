"""The Ising model."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from sklsb._kernels.targets.ising import IsingView, UniformIsingView
from sklsb._system.arrays import Array
from sklsb._system.memory import at_once
from sklsb._system.warn import warn
from sklsb.exceptions import ModelWarning
from sklsb.targets._checks import finite_array, positive, refuse
from sklsb.targets._evidence import Weights
from sklsb.targets._graphs import (
    GraphTarget,
    fixed_point_unit,
    labelled,
    of_field,
    square_matrix,
    symmetric_matrix,
)
from sklsb.targets._images import image_field, read_pixels
from sklsb.targets._names import aligned, plain

if TYPE_CHECKING:
    from sklsb.targets._torch.model import Device, DType, Model


# Sums over more neighbours than this are better kept than made anew.
_MOST_NEIGHBOURS = 8
# Weights of a chain that are looked up; more would not stay in the processor's own memory.
_MOST_WEIGHTS = 1 << 16
# Spins whose local fields `log_prob` holds at once.
_MOST_SPINS = 1 << 20


def _check_quadratic(
    quadratic: Mapping[Any, Any], site: dict[Any, int]
) -> tuple[list[int], list[int], list[float]]:
    """Return sites and biases of the pairs of a binary quadratic model."""
    i, j, biases = [], [], []
    for pair, bias in quadratic.items():
        try:
            one, other = (site[label] for label in pair)
            number = float(bias)
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"bqm.quadratic has the entry {pair!r}: {bias!r}; an entry must be a pair of "
                "variables that are in bqm.linear, and a real number."
            ) from None
        i.append(one)
        j.append(other)
        biases.append(number)
    return i, j, biases


class Ising(GraphTarget):
    r"""Ising model on any graph, with spins -1 and +1.

    .. math:: \log p(x) = \sum_i h_i x_i + \sum_{i<j} J_{ij} x_i x_j + \sum_i J_{ii}

    up to the normalising constant. A self-loop is the constant :math:`J_{ii} x_i^2`.

    Parameters
    ----------
    couplings : array_like or sparse matrix of shape (n_sites, n_sites), or networkx graph
        Symmetric couplings J, without unit: energies over temperature. The nodes of a graph are
        the sites, in order, and the edge attribute ``weight`` (1 if missing) is the coupling;
        parallel edges add. Nodes, and the columns of a data frame, are the names of the sites.
    field : array_like of shape (n_sites,) or float, optional
        Fields h; zero if not given. A Series is put in the order of the sites by its labels, which
        are their names if the couplings have none.
    names : iterable, optional
        Names of the sites, distinct and hashable, in place of names in the couplings.

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
        If the couplings are not square or not symmetric, a coupling or field is not finite, or
        the terms of a site sum to more than 1e303.
    TypeError
        If the couplings or fields are not real numbers, or the graph is directed.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Ising
    >>> pair = Ising([[0.0, 2.0], [2.0, 0.0]], field=[0.5, 0.0])
    >>> pair.log_prob([[1, 1], [1, -1]])
    array([ 2.5, -1.5])
    >>> pair.log_ratios([1, 1])
    array([-5., -4.])
    """

    values = (-1, 1)
    _vartype = "SPIN"

    def weighted(self, weights: Weights) -> Ising:
        fixed = {site: w for site, w in weights.items() if not w.all()}
        if fixed:
            raise ValueError(
                f"evidence gives variable {self.label(next(iter(fixed)))!r} a likelihood of 0; "
                "give the other value as what was observed."
            )
        field, constant = self.field.copy(), self.constant
        for site, w in weights.items():
            low, high = np.log(w).tolist()
            field[site] += 0.5 * (high - low)
            constant += 0.5 * (high + low)
        return self._with_field(field, constant)

    def _set_field(self, field: ArrayLike | None) -> None:
        self.field = finite_array(field, "field", self.shape).ravel()

    @classmethod
    @of_field
    def lattice(cls, field: ArrayLike, coupling: ArrayLike = 1.0, periodic: bool = True) -> Ising:
        """Nearest neighbours on a rectangular grid of any dimension.

        Parameters
        ----------
        field : array_like of shape (rows, cols), or with fewer or more sides
            Field of each site; its shape is the shape of the grid.
        coupling : float or array_like of shape (n_sides, rows, cols), default=1.0
            Coupling of neighbours; positive favours equal spins. ``coupling[a]`` has, for each
            site, the coupling with the next one along side a; unused at the end of an open grid.
        periodic : bool, default=True
            Whether the grid wraps around. Along a side of length 2 each coupling then counts
            twice; along a side of length 1 a site is its own neighbour, which adds a constant.

        Returns
        -------
        Ising
            Draws have the dimensions row and col, site on a chain, and axis_0, axis_1, axis_2 on a
            cubic lattice.

        Examples
        --------
        >>> import numpy as np
        >>> from sklsb import Ising
        >>> bonds = np.random.default_rng(0).choice([-1.0, 1.0], size=(3, 8, 8, 8))
        >>> Ising.lattice(np.zeros((8, 8, 8)), bonds).shape  # a spin glass
        (8, 8, 8)
        """
        return cls._on_lattice(field, (), coupling, periodic)

    @classmethod
    def from_image(
        cls,
        image: ArrayLike,
        mean: float = 1.0,
        noise_sd: float | None = None,
        coupling: float = 1.0,
        periodic: bool = False,
        *,
        levels: ArrayLike | None = None,
        missing: ArrayLike | None = None,
    ) -> Ising:
        r"""Posterior of a black and white image seen through Gaussian noise.

        The pixels are :math:`y_i = \mu x_i + \sigma \epsilon_i` and the prior is a lattice Ising
        model, so the field is :math:`h_i = y_i \mu / \sigma^2` [1]_. With levels b and w, pixels
        have the means b where black and w where white, and

        .. math:: h_i = \frac{|y_i - b|^2 - |y_i - w|^2}{4 \sigma^2}

        Parameters
        ----------
        image : array_like of shape (rows, cols)
            Observed pixels y, negative where black is more likely; with ``levels`` of any range,
            and of shape (rows, cols, channels) if they have colours.
        mean : float, default=1.0
            Mean pixel where the image is white; black is its negative. Not used with ``levels``.
        noise_sd : float, optional
            Standard deviation of the noise, in the units of the image; 3 by default, and required
            with ``levels``.
        coupling : float, default=1.0
            Coupling of neighbours in the prior. Above 0.4407 most of a large image without data
            has one label; 1 smooths strongly. The page "Ising models" chooses it by hidden pixels.
        periodic : bool, default=False
            Whether the image wraps around.
        levels : array_like of shape (2,) or (2, channels), optional
            Mean pixels of black, x = -1, and of white, x = +1: ``(0, 255)`` for bytes. For a colour
            image two colours.
        missing : array_like of bool, shape (rows, cols), optional
            Pixels that were not observed. Their field is 0, whatever the image has there, also NaN.

        Returns
        -------
        Ising

        Raises
        ------
        ValueError, TypeError
            If an argument is not as described.

        Warns
        -----
        ModelWarning
            If no pixel is negative, not all are equal, and no levels are given, as in images of
            grey levels 0 to 1 or 0 to 255, since 0 means halfway between black and white. The
            message says what to give.

        See Also
        --------
        Potts.from_image : more than two values.

        References
        ----------
        .. [1] E. Sansone, "LSB: Local Self-Balancing MCMC in Discrete Spaces", ICML 2022, Eq. 6.

        Examples
        --------
        >>> from sklsb import Ising
        >>> target = Ising.from_image([[0, 255], [90, 255]], levels=(0, 255), noise_sd=100)
        >>> target.field.round(2)
        array([-1.63,  1.63, -0.48,  1.63])
        """
        if levels is not None:
            if not (np.ndim(mean) == 0 and mean == 1.0) or noise_sd is None:
                raise ValueError(
                    f"levels is given, mean is {mean!r} and noise_sd is {noise_sd!r}; with levels "
                    "give noise_sd, in the units of the image, and no mean."
                )
            logs = image_field(image, levels, noise_sd, missing, "levels")
            if logs.shape[2] != 2:
                raise ValueError(
                    f"levels has {logs.shape[2]} entries; give the level of black and of white, or "
                    "take Potts.from_image for more values."
                )
            return cls.lattice(0.5 * (logs[:, :, 1] - logs[:, :, 0]), coupling, periodic)
        noise_sd = positive(3.0 if noise_sd is None else noise_sd, "noise_sd")
        if not (isinstance(mean, numbers.Real) and np.isfinite(mean)):
            raise ValueError(f"mean is {mean!r}; it must be a finite number.")
        pixels, unknown = read_pixels(image, missing)
        if pixels.ndim == 3:
            raise ValueError(
                f"image has shape {pixels.shape}; with colours it must come with levels, the "
                "colours of black and of white."
            )
        scale = np.divide(mean, np.square(noise_sd)) if noise_sd > 1e-150 else np.inf
        if not np.isfinite(scale):
            raise ValueError(
                f"mean / noise_sd**2 is not finite for mean {mean!r} and noise_sd {noise_sd!r}."
            )
        seen = pixels[~unknown]
        low, high = seen.min(initial=np.inf), seen.max(initial=-np.inf)
        if 0.0 <= low < high:
            white = next((top for top in (1.0, 255.0) if high <= top), high)
            warn(
                f"image has pixels from {low:g} to {high:g}, none of them negative. The model "
                f"expects black pixels around -mean = {-mean:g} and white ones around mean = "
                f"{mean:g}; the image is taken as it is, so that 0 means halfway between the two. "
                f"If 0 is black and {white:g} is white, give levels=(0, {white:g}), and noise_sd "
                "in the same units.",
                ModelWarning,
            )
        return cls.lattice(pixels * scale, coupling, periodic)

    @classmethod
    def _from_energy(
        cls,
        couplings: sp.csr_array,
        field: Array,
        constant: float,
        beta: float,
        labels: list[Any] | None = None,
        vartype: str = "SPIN",
    ) -> Ising:
        """Return the model with log p = -beta times the energy of these parameters."""
        beta = positive(beta, "beta")
        model = cls.__new__(cls)
        model._beta, model._vartype = beta, vartype
        with np.errstate(over="ignore"):  # what is too large is refused
            model._set(-beta * couplings, -beta * field, None, ("site",), labels)
        model.constant -= beta * constant
        return model

    @classmethod
    def from_qubo(cls, Q: Any, beta: float = 1.0) -> Ising:
        r"""Quadratic unconstrained binary problem: low values are probable.

        .. math:: \log p = -\beta \, z^T Q z, \qquad z_i = (1 + x_i) / 2 \in \{0, 1\}

        an Ising model with a constant and

        .. math:: J_{ij} = -\tfrac{\beta}{4} (Q_{ij} + Q_{ji}), \qquad
                  h_i = -\tfrac{\beta}{4} \sum_j (Q_{ij} + Q_{ji})

        Parameters
        ----------
        Q : array_like or sparse matrix of shape (n_sites, n_sites)
            Coefficients, with the linear ones on the diagonal; need not be symmetric. The columns
            of a data frame are the names of the sites.
        beta : float, default=1.0
            Inverse temperature, positive. Large values stay near a minimum.

        Returns
        -------
        Ising
            ``log_prob(x)`` is the formula, constant included.

        Raises
        ------
        ValueError
            If Q is not square or not finite, beta is not positive, or their product is too large.
        TypeError
            If Q does not hold real numbers.

        See Also
        --------
        sklsb.io.read_qubo : reads files.

        Examples
        --------
        >>> from sklsb import Ising
        >>> target = Ising.from_qubo([[-3, 4], [0, -2]])
        >>> target.log_prob([[-1, -1], [1, -1], [-1, 1], [1, 1]])
        array([0., 3., 2., 1.])
        """
        Q, labels = labelled(Q, "Q")
        return cls._from_quadratic(square_matrix(Q, "Q"), 0.0, beta, labels)

    @classmethod
    def _from_quadratic(
        cls, matrix: sp.csr_array, offset: float, beta: float, labels: list[Any] | None = None
    ) -> Ising:
        """Return the model of the energy z'Qz + offset of z in {0, 1}."""
        quarter = sp.csr_array(0.25 * matrix + 0.25 * matrix.T)
        once = quarter.diagonal()
        couplings = quarter - sp.diags_array(once, format="csr")
        constant = 0.5 * float(quarter.sum() + once.sum())
        field = quarter.sum(axis=1)
        return cls._from_energy(couplings, field, constant + offset, beta, labels, "BINARY")

    @classmethod
    def from_binary(cls, weights: Any, thresholds: ArrayLike | None = None) -> Ising:
        r"""Pairwise model of variables that are 0 or 1, as of symptoms or of species at a site.

        .. math:: \log p = \sum_i \tau_i z_i + \sum_{i<j} w_{ij} z_i z_j, \qquad
                  z_i = (1 + x_i) / 2 \in \{0, 1\}

        an Ising model with a constant and

        .. math:: J_{ij} = w_{ij} / 4, \qquad h_i = \tau_i / 2 + \sum_j w_{ij} / 4

        Weights are log odds ratios: where j becomes 1, the log odds of i = 1 rise by
        :math:`w_{ij}` [1]_. The same model in the coding -1 and +1 has other parameters.

        Parameters
        ----------
        weights : array_like or sparse matrix of shape (n_sites, n_sites), or networkx graph
            Symmetric weights w, 0 on the diagonal. Nodes, and the columns of a data frame, are the
            names of the sites.
        thresholds : array_like of shape (n_sites,) or float, optional
            Log odds tau of 1 where all others are 0; zero if not given. A Series is put in the
            order of the sites by its labels.

        Returns
        -------
        Ising
            ``log_prob(x)`` is the formula, constant included, so `sklsb.exact.log_partition` is
            that of this coding. The values are called 0 and 1 in evidence, marginals, and the data
            frames of `sklsb.draw` and `sklsb.diagnostics.to_frame`, and ``log_prob`` takes them;
            states that are returned, as ``draws["x"]``, hold -1 and +1.

        Raises
        ------
        ValueError
            If the weights are not square, symmetric and finite, or have a diagonal.
        TypeError
            If the weights or thresholds are not real numbers, or the graph is directed.

        References
        ----------
        .. [1] C. D. van Borkulo et al., "A new method for constructing networks from binary data",
           Scientific Reports 4 (2014).

        Examples
        --------
        >>> from sklsb import Ising
        >>> target = Ising.from_binary([[0, 2], [2, 0]], thresholds=[-1, -0.5])
        >>> target.log_prob([[0, 0], [1, 0], [0, 1], [1, 1]])
        array([ 0. , -1. , -0.5,  0.5])
        >>> target.condition({0: 1}).log_prob([[0, 1], [1, 1]])
        array([-inf,  0.5])
        """
        matrix, labels = symmetric_matrix(weights, "weights")
        loops = matrix.diagonal()
        refuse(
            loops != 0, loops, "weights.diagonal()", "it must be 0: thresholds hold what is of one"
        )
        given, labels = aligned(thresholds, labels, len(loops), "thresholds")
        linear = finite_array(given, "thresholds", loops.shape)
        problem = sp.csr_array(-0.5 * matrix - sp.diags_array(linear))
        model = cls._from_quadratic(problem, 0.0, 1.0, labels)
        model.state_names, model._is_binary = ((0, 1),) * model.n_sites, True
        return model

    @classmethod
    def from_maxcut(cls, weights: Any, beta: float = 1.0) -> Ising:
        r"""Cuts of a weighted graph: heavy ones are probable.

        .. math:: \log p = \beta \sum_{i<j,\ x_i \ne x_j} w_{ij}
                  = \beta \sum_{i<j} w_{ij} (1 - x_i x_j) / 2

        The spins are the sides of the cut. Self-loops are never cut.

        Parameters
        ----------
        weights : array_like or sparse matrix of shape (n_sites, n_sites), or networkx graph
            Symmetric weights, as the couplings of `Ising`.
        beta : float, default=1.0
            Inverse temperature, positive. Large values stay near a maximum.

        Returns
        -------
        Ising
            ``log_prob(x)`` is the formula, constant included; sites have the labels of the graph.

        Raises
        ------
        ValueError
            If the weights are not square, symmetric and finite, beta is not positive, or their
            product is too large.
        TypeError
            If the weights are not real numbers, or the graph is directed.

        See Also
        --------
        sklsb.io.read_maxcut : reads files.

        Examples
        --------
        >>> import networkx as nx
        >>> from sklsb import Ising
        >>> target = Ising.from_maxcut(nx.cycle_graph(4))
        >>> target.log_prob([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1]])
        array([0., 2., 4.])
        """
        matrix, labels = symmetric_matrix(weights, "weights")
        couplings = 0.5 * (matrix - sp.diags_array(matrix.diagonal(), format="csr"))
        field = np.zeros(matrix.shape[0])
        return cls._from_energy(couplings, field, -0.5 * float(couplings.sum()), beta, labels)

    @classmethod
    def from_bqm(cls, bqm: Any, beta: float = 1.0) -> Ising:
        r"""Binary quadratic model of dimod: low energies are probable.

        .. math:: \log p = -\beta E, \qquad
                  E = \sum_i a_i z_i + \sum_{i,j} b_{ij} z_i z_j + c

        with z = x if the model's ``vartype`` is SPIN, and :math:`z_i = (1 + x_i) / 2` if it is
        BINARY.

        Parameters
        ----------
        bqm : dimod.BinaryQuadraticModel
            Or any object with the attributes ``linear`` (a mapping from variables to biases),
            ``quadratic`` (from pairs of variables), ``offset`` and ``vartype``.
        beta : float, default=1.0
            Inverse temperature, positive. Large values stay near a minimum.

        Returns
        -------
        Ising
            Sites are the variables in the order of ``linear``, which are their names. `to_bqm`, and
            ``to_dimod`` of its draws, return the model's own energies and ``vartype``.

        Raises
        ------
        TypeError
            If ``bqm`` lacks one of these attributes.
        ValueError
            If ``vartype`` is something else, ``quadratic`` has a variable that is not in
            ``linear``, a bias is not finite, beta is not positive, or their product is too large.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> from sklsb import Ising
        >>> bqm = SimpleNamespace(  # what dimod.BinaryQuadraticModel has
        ...     linear={"a": 1.0, "b": 0.0},
        ...     quadratic={("a", "b"): 2.0},
        ...     offset=0.5,
        ...     vartype="BINARY",
        ... )
        >>> Ising.from_bqm(bqm, beta=2.0).log_prob([[-1, -1], [1, -1], [-1, 1], [1, 1]])
        array([-1., -3., -1., -7.])
        """
        wanted = ("linear", "quadratic", "offset", "vartype")
        parts = [getattr(bqm, name, None) for name in wanted]
        if None in parts[2:] or not all(isinstance(part, Mapping) for part in parts[:2]):
            raise TypeError(
                f"bqm is of type {type(bqm).__name__}; give a dimod.BinaryQuadraticModel or an "
                f"object with {', '.join(wanted)}, of which the first two are mappings."
            )
        site = {label: i for i, label in enumerate(bqm.linear)}
        i, j, bias = _check_quadratic(bqm.quadratic, site)
        matrix = sp.coo_array((bias, (i, j)), shape=(len(site), len(site)), dtype=np.float64)
        matrix = square_matrix(matrix, "bqm.quadratic")
        linear = finite_array(list(bqm.linear.values()), "bqm.linear", (len(site),))
        offset = float(finite_array(bqm.offset, "bqm.offset", ()))
        vartype, labels = getattr(bqm.vartype, "name", bqm.vartype), plain(site)
        if vartype == "BINARY":
            matrix = sp.csr_array(matrix + sp.diags_array(linear))
            return cls._from_quadratic(matrix, offset, beta, labels)
        if vartype == "SPIN":
            couplings = sp.csr_array(matrix + matrix.T - sp.diags_array(matrix.diagonal()))
            return cls._from_energy(couplings, linear, offset, beta, labels)
        raise ValueError(f"bqm.vartype is {bqm.vartype!r}; it must be SPIN or BINARY.")

    def to_bqm(self, beta: float | None = None) -> Any:
        r"""Binary quadratic model of dimod, of energy :math:`-\log p / \beta`.

        Parameters
        ----------
        beta : float, optional
            Inverse temperature, positive. By default the one given to `from_bqm`, `from_qubo` or
            `from_maxcut`, so that energies are the problem's; 1 for other models.

        Returns
        -------
        dimod.BinaryQuadraticModel
            Its vartype is as in the model given to `from_bqm`, BINARY after `from_qubo`, else SPIN.
            Its variables are the labels of the graph or model that this one was made from, or else
            the site numbers.

        Raises
        ------
        ImportError
            If dimod is not installed.
        ValueError
            If beta is not positive.
        """
        try:
            import dimod
        except ImportError as error:
            raise ImportError("to_bqm needs dimod; run `pip install dimod`.") from error

        beta = self._beta if beta is None else positive(beta, "beta")
        labels = range(self.n_sites) if self._labels is None else self._labels
        upper = sp.triu(self.couplings, 1).tocoo()
        i, j = upper.coords
        linear, quadratic, offset = -self.field / beta, -upper.data / beta, -self.constant / beta
        if self._vartype == "BINARY":  # x = 2 z - 1
            near = (self.couplings / -beta).sum(axis=1)
            offset += float(quadratic.sum() - linear.sum())
            linear, quadratic = 2.0 * (linear - near), 4.0 * quadratic
        return dimod.BinaryQuadraticModel(
            dict(zip(labels, linear.tolist(), strict=True)),
            {
                (labels[one], labels[other]): bias
                for one, other, bias in zip(i, j, quadratic.tolist(), strict=True)
            },
            offset,
            self._vartype,
        )

    def log_prob(self, x: ArrayLike) -> Array:
        states, leading = self._flat(x)
        found, n = np.empty(len(states)), at_once(_MOST_SPINS, self.n_sites)
        for k in range(0, len(states), n):
            flat = states[k : k + n].astype(np.float64)
            local = self.field + 0.5 * (self.couplings @ flat.T).T
            found[k : k + n] = np.einsum("ij,ij->i", flat, local)
        return (found + self.constant).reshape(leading)

    def log_ratios(self, x: ArrayLike) -> Array:
        """Return log p(x with spin i flipped) - log p(x), -2 x_i (h_i + sum_j J_ij x_j)."""
        states, leading = self._flat(x)
        flat = states.astype(np.float64)
        ratios = -2.0 * flat * (self.field + (self.couplings @ flat.T).T)
        return ratios.reshape(*leading, self.n_sites)

    _linear = True

    def _torch_model(self, device: Device, dtype: DType) -> Model:
        from sklsb.targets._torch.graphs import IsingModel

        return IsingModel(self.couplings, self.field, device)

    def _field_tables(self) -> Array:
        return np.stack([-self.field, self.field], axis=1)

    def _pair_table(self) -> Array:
        return np.array([[1.0, -1.0], [-1.0, 1.0]])

    @cached_property
    def _view(self) -> IsingView:
        # In each row: the site itself (its own log-ratio changes sign) among its neighbours.
        pairs, n = self.couplings, self.n_sites
        unit, degree = self._unit(), np.diff(pairs.indptr)
        start = (pairs.indptr + np.arange(n + 1)).astype(np.int64)
        site = np.repeat(np.arange(n), degree)
        place = np.arange(pairs.nnz) + site + (pairs.indices > site)
        own = np.ones(pairs.nnz + n, dtype=np.bool_)
        own[place] = False
        touched = np.empty(own.size, dtype=np.uint32)
        coupling = np.zeros(own.size, dtype=np.int64)
        touched[own], touched[place] = np.arange(n), pairs.indices
        coupling[place] = np.rint(pairs.data / unit[pairs.indices])
        numbers = np.zeros(1, dtype=np.int64)
        if 2 * own.size <= _MOST_WEIGHTS:
            # Divided by what is common to the couplings of a site, local fields are the same.
            mine = sp.csr_array((coupling, touched, start), shape=(n, n)).tocsc()
            first = mine.indptr[:-1]
            common = np.maximum(np.gcd.reduceat(mine.data, first), 1)
            most = np.add.reduceat(np.abs(mine.data), first) // common
            if (2.0 * most + 2.0).sum() <= _MOST_WEIGHTS:
                unit, coupling = unit * common, coupling // common[touched]
                numbers = np.cumsum(np.append(0, 2 * most + 2))
                numbers[:-1] += most
        return IsingView(
            np.array(self.field),  # its own: the kernels are compiled for writable arrays
            unit,
            start.astype(np.uint64),
            touched,
            coupling,
            numbers,
        )

    @cached_property
    def _uniform_view(self) -> UniformIsingView | None:
        pairs, n = self.couplings, self.n_sites
        degree = np.diff(pairs.indptr)
        width = int(degree.max(initial=0))
        if not 0 < width <= _MOST_NEIGHBOURS or (pairs.data != pairs.data[0]).any():
            return None
        near = np.repeat(np.arange(n, dtype=np.uint32)[:, None], width, axis=1)
        near[np.arange(width) < degree[:, None]] = pairs.indices
        missing = (width - degree).astype(np.int8)
        unit = float(fixed_point_unit(np.abs(self.field).sum()))
        return UniformIsingView(
            np.array(self.field),
            float(pairs.data[0]),
            near.ravel(),
            missing,
            tuple(range(width)),
            np.rint(self.field / unit).astype(np.int64),
            unit,
        )

    def _class_view(self) -> UniformIsingView | None:
        # A subclass with a view of its own says by it what log p is.
        own = type(self).view is not Ising.view or type(self)._view is not Ising._view
        return None if own else self._uniform_view

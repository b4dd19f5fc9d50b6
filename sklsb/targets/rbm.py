"""The restricted Boltzmann machine."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from sklsb._kernels.targets.rbm import RBMSiteView, RBMView
from sklsb._system.arrays import Array
from sklsb.targets._checks import all_touched, check_shape, finite_array, real_array
from sklsb.targets._evidence import Weights
from sklsb.targets._graphs import fixed_point_unit, refuse_large
from sklsb.targets._names import aligned, columns_of, in_pandas, labels_of
from sklsb.targets.base import States, Target

if TYPE_CHECKING:
    from sklsb.targets._torch.model import Device, DType, Model

# The kernel multiplies factors between exp(-w) and exp(w), whose sum of w must not exceed this:
# probabilities of hidden units end at exp(-708), which must be negligible.
_LARGEST_EXPONENT = 600.0
_STRIDE = 4  # hidden units that the kernel takes at a time
_EPS = float(np.finfo(np.float64).eps)
_SAME = 64 * _EPS  # relative differences that are rounding


def _softplus(a: Array) -> Array:
    """log(1 + exp a), faster than by ``logaddexp``."""
    found: Array = np.maximum(a, 0.0) + np.log1p(np.exp(-np.abs(a)))
    return found


def _span(size: Array) -> int:
    """Return the number of hidden units whose factors can be multiplied; 0 if fewer than four.

    ``size`` = abs(W), shape (n_visible, n_hidden).
    """
    span: int = size.shape[1]
    while (
        span
        and np.add.reduceat(size, np.arange(0, size.shape[1], span), axis=1).max(initial=0.0)
        > _LARGEST_EXPONENT
    ):
        span = span // (2 * _STRIDE) * _STRIDE
    return span


class RBM(Target):
    r"""Restricted Boltzmann machine: the distribution of its visible units, 0 and 1.

    .. math:: \log p(x) = \sum_i b_i x_i
              + \sum_j \log\Bigl(1 + \exp\bigl(c_j + \sum_i x_i W_{ij}\bigr)\Bigr),
              \qquad x_i \in \{0, 1\}

    up to the normalising constant: the hidden units h of
    :math:`\log p(x, h) = b^T x + c^T h + x^T W h` are summed out.

    Parameters
    ----------
    weights : array_like of shape (n_visible, n_hidden)
        Weights W, the transpose of ``components_`` of scikit-learn's `BernoulliRBM`. The labels of
        a data frame are the names of its units, by which biases in a Series are put in order.
    visible_bias : array_like of shape (n_visible,) or float, optional
        Biases b; zero if not given.
    hidden_bias : array_like of shape (n_hidden,) or float, optional
        Biases c; zero if not given.
    shape : tuple of int, optional
        (rows, cols) if the visible units are the pixels of an image.
    dims : tuple of str, optional
        Names of the axes of the shape; by default ("site",) or ("row", "col").

    Attributes
    ----------
    weights, visible_bias, hidden_bias : ndarray of float64
        The parameters, read-only.

    Raises
    ------
    ValueError
        If the weights are not a matrix, the biases or ``shape`` do not fit them, an entry is not
        finite, or the bias and weights of a unit sum to more than 1e303.
    TypeError
        If the weights or biases are not real numbers.

    Notes
    -----
    The kernel computes the log-ratios of all visible units at once from probabilities of the hidden
    units: about two multiplications and an addition per weight. Activations are kept in 62-bit
    fixed point, so they never drift. If four weights of a visible unit can sum to more than 600 in
    absolute value, logarithms replace the products, and transitions take some hundred times
    longer. The list of touched moves takes 4 n_visible**2 bytes.

    References
    ----------
    .. [1] G. E. Hinton, "A practical guide to training restricted Boltzmann machines", 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import RBM
    >>> machine = RBM([[1.0, -2.0], [0.5, 0.0]], visible_bias=[0.0, -1.0])
    >>> machine.log_prob([[0, 0], [1, 0]]).round(3)
    array([1.386, 1.44 ])
    >>> machine.log_ratios([0, 0]).round(3)
    array([ 0.054, -0.719])
    >>> machine.hidden_probabilities([1, 0]).round(3)
    array([0.731, 0.119])
    """

    values = (0, 1)

    def __init__(
        self,
        weights: ArrayLike,
        visible_bias: ArrayLike | None = None,
        hidden_bias: ArrayLike | None = None,
        shape: Sequence[int] | None = None,
        dims: Sequence[str] | None = None,
    ):
        given = real_array(weights, "weights")
        if given.ndim != 2:
            raise ValueError(
                f"weights has shape {given.shape}; it must have shape (n_visible, n_hidden)."
            )
        n, m = given.shape
        weights = in_pandas(weights)
        self.weights = finite_array(given, "weights", (n, m))
        visible_bias, labels = aligned(visible_bias, labels_of(weights), n, "visible_bias")
        hidden_bias, _ = aligned(hidden_bias, columns_of(weights), m, "hidden_bias")
        self.visible_bias = finite_array(visible_bias, "visible_bias", (n,))
        self.hidden_bias = finite_array(hidden_bias, "hidden_bias", (m,))
        self.shape, self.dims = check_shape(shape, dims, n)
        self._labels = labels if len(self.shape) == 1 else None
        self._freeze()
        self._check_size()

    def weighted(self, weights: Weights) -> Self:
        machine = copy.copy(self)
        vars(machine)["visible_bias"] = self.visible_bias.copy()
        for site, w in weights.items():
            if not w.all():
                raise ValueError(
                    f"evidence gives variable {self.label(site)!r} a likelihood of 0; give the "
                    "other value as what was observed."
                )
            machine.visible_bias[site] += np.log(w[1] / w[0])
            machine.constant += float(np.log(w[0]))
        machine._freeze()
        machine._check_size()
        return machine

    @classmethod
    def from_sklearn(cls, machine: Any, shape: Sequence[int] | None = None) -> Self:
        """Take the weights and biases of a fitted `sklearn.neural_network.BernoulliRBM`.

        Parameters
        ----------
        machine : BernoulliRBM
            With ``components_`` of shape (n_hidden, n_visible), ``intercept_visible_`` and
            ``intercept_hidden_``.
        shape : tuple of int, optional
            (rows, cols) of the images it was trained on.

        Returns
        -------
        RBM
            Log p is minus the free energy of scikit-learn's machine, and ``hidden_probabilities``
            are the output of ``machine.transform``.

        Raises
        ------
        TypeError
            If an attribute is missing, as before a fit.
        """
        try:
            weights = np.transpose(machine.components_)
            biases = machine.intercept_visible_, machine.intercept_hidden_
        except AttributeError as error:
            raise TypeError(
                f"machine is {machine!r:.200} without {error.name}; give a fitted "
                "sklearn.neural_network.BernoulliRBM."
            ) from None
        return cls(weights, *biases, shape)

    def _check_size(self) -> None:
        biases = ("visible", self.visible_bias, 1), ("hidden", self.hidden_bias, 0)
        for name, bias, axis in biases:
            with np.errstate(over="ignore"):
                sizes = np.abs(bias) + np.abs(self.weights).sum(axis=axis)
            refuse_large(sizes, f"|bias| + sum |weights| of {name} unit")

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        return f"RBM({size} visible units, {self.hidden_bias.size} hidden{self._likelihoods})"

    def _freeze(self) -> None:
        for array in (self.weights, self.visible_bias, self.hidden_bias):
            array.flags.writeable = False

    @property
    def _log_prob_size(self) -> float:
        parts = self.weights, self.hidden_bias, self.visible_bias
        return float(sum(np.abs(part).sum() for part in parts))

    @property
    def rounding(self) -> Array:
        """Absolute rounding error of each log-ratio.

        Its terms, one per hidden unit and at most abs(W), may cancel; each has the rounding error
        of the activation.
        """
        size = np.abs(self.weights)
        activation = np.abs(self.hidden_bias) + size.sum(axis=0)
        terms = np.abs(self.visible_bias) + (1.0 + size).sum(axis=1)
        return 4 * _EPS * (terms + np.minimum(size, 1.0) @ activation)

    @cached_property
    def _columns(self) -> Array:
        """W by columns in memory: products with a few states take half the time."""
        return np.asfortranarray(self.weights)

    @cached_property
    def symmetry(self) -> str | None:
        size = np.abs(self.weights)
        off = [
            np.abs(2.0 * bias + self.weights.sum(axis)) <= np.minimum(_SAME * size.sum(axis), 1e-6)
            for bias, axis in ((self.visible_bias, 1), (self.hidden_bias, 0))
        ]
        return "cycle" if off[0].all() and off[1].all() else None

    def _flat(self, x: ArrayLike) -> tuple[Array, tuple[int, ...]]:
        states, leading = super()._flat(x)
        return states.astype(np.float64), leading

    def log_prob(self, x: ArrayLike) -> Array:
        flat, leading = self._flat(x)
        hidden = _softplus(self.hidden_bias + flat @ self._columns).sum(axis=1)
        return np.asarray(flat @ self.visible_bias + hidden + self.constant).reshape(leading)

    def log_ratios(self, x: ArrayLike) -> Array:
        flat, leading = self._flat(x)
        result = np.empty(flat.shape)
        for state, activation, ratios in zip(
            flat, self.hidden_bias + flat @ self.weights, result, strict=True
        ):
            # Mean of exp(h_j d) over the hidden unit h_j given x; d is how its activation changes.
            sign = 1.0 - 2.0 * state
            off, on = -_softplus(activation), -_softplus(-activation)
            mean = np.logaddexp(off, on + sign[:, None] * self.weights)
            ratios[:] = sign * self.visible_bias + mean.sum(axis=1)
        return result.reshape(*leading, self.n_sites)

    def first_order_ratios(self, x: ArrayLike) -> Array:
        r"""First-order log-ratios: the gradient of log p times the change of each visible unit.

        .. math:: (x'_i - x_i) \Bigl(b_i + \sum_j W_{ij} P(h_j = 1 | x)\Bigr)
        """
        flat, leading = self._flat(x)
        gradient = self.visible_bias + self._hidden_means(flat) @ self.weights.T
        return np.asarray((1.0 - 2.0 * flat) * gradient).reshape(*leading, self.n_sites)

    def hidden_probabilities(self, x: ArrayLike) -> Array:
        """Return P(h_j = 1 | x) for every hidden unit j.

        Parameters
        ----------
        x : array_like of shape (..., n_visible) or leading axes and ``shape``
            States of 0 and 1.

        Returns
        -------
        ndarray of float64, shape (..., n_hidden)
        """
        flat, leading = self._flat(x)
        return self._hidden_means(flat).reshape(*leading, self.hidden_bias.size)

    def _hidden_means(self, flat: Array) -> Array:
        return np.asarray(expit(self.hidden_bias + flat @ self._columns))

    def scattered_state(self, rng: np.random.Generator) -> States:
        """Draw hidden units uniformly, then the visible ones given these; shape (n_sites,).

        This reaches narrow modes, which uniform draws of the visible units miss.
        """
        hidden = rng.integers(2, size=self.hidden_bias.size)
        on = expit(self.visible_bias + self.weights @ hidden)
        return (rng.random(self.n_sites) < on).astype(self.dtype)

    def _torch_model(self, device: Device, dtype: DType) -> Model:
        from sklsb.targets._torch.rbm import RBMModel

        return RBMModel(self.weights, self.visible_bias, self.hidden_bias, device, dtype)

    @cached_property
    def _view(self) -> RBMView:
        n, m = self.weights.shape
        # Units that are never on fill the last group of hidden units.
        more = -m % _STRIDE if m else _STRIDE
        weights = np.pad(self.weights, ((0, 0), (0, more)))
        span = _span(np.abs(weights))
        unit = fixed_point_unit(np.abs(weights).sum(axis=0))
        reach = self.visible_bias + weights.sum(axis=1)
        coupling = np.rint(weights / unit).astype(np.int64) if span else np.empty((n, 0), np.int64)
        return RBMView(
            np.array(self.visible_bias),  # its own: the kernels are compiled for writable arrays
            np.pad(self.hidden_bias, (0, more), constant_values=-np.inf),
            reach,
            np.ascontiguousarray(np.exp(weights.T) if span else weights.T),
            unit,
            coupling,
            span,
            *all_touched(n),
        )

    def view(self) -> RBMView:
        return self._view

    @cached_property
    def _site_view(self) -> RBMSiteView:
        view = self._view
        by_visible = np.ascontiguousarray(view.weight.T)
        biases = view.visible_bias, view.hidden_bias
        return RBMSiteView(*biases, view.reach, by_visible, view.unit, view.coupling, view.span)

    def site_view(self) -> RBMSiteView:
        return self._site_view

    @property
    def layers(self) -> RBM:
        """The machine, whose layers can be drawn in turn."""
        return self

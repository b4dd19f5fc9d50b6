"""Balancing functions: fixed, mixtures, and networks."""

from __future__ import annotations

import copy
import inspect
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, softmax

from sklsb._kernels.numeric import Table
from sklsb._system.arrays import Array
from sklsb.balancing.curves import MLP, SLOPES, softplus

_LAST_KNOT = 32.0


def _shown(value: Any) -> str:
    """Return a parameter for a repr."""
    if not isinstance(value, np.ndarray):
        return repr(value)
    if value.size > 8:
        return f"<{value.size} numbers>"
    return np.array2string(value, precision=3, separator=", ")


@lru_cache
def _knots(step: float) -> Array:
    knots: Array = np.arange(round(_LAST_KNOT / step) + 1, dtype=np.float64) * step
    knots.flags.writeable = False
    return knots


class BalancingFunction(ABC):
    r"""A balancing function g, given by the even part h of log g.

    .. math:: \log g(e^u) = u/2 + h(|u|)

    A subclass implements one method, `even_part`. Adding a constant to h changes nothing.

    Attributes
    ----------
    knot_step : float
        Distance between the knots on [0, 32] at which h is tabulated.
    tail_slope : float or None
        Slope of h beyond the last knot; None takes the mean slope of `even_part` on [32, 64].

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import BalancingFunction
    >>> class Cauchy(BalancingFunction):
    ...     def even_part(self, u):
    ...         return -np.log1p(np.square(u))
    >>> bool(np.isclose(Cauchy().log_g(3.0), 3.0 + Cauchy().log_g(-3.0)))
    True
    """

    knot_step: ClassVar[float] = 1 / 64
    tail_slope: ClassVar[float | None] = None
    _in_files: ClassVar[bool] = True  # so are classes of users

    @abstractmethod
    def even_part(self, u: ArrayLike) -> Array:
        """Even part h of log g.

        Parameters
        ----------
        u : array_like
            log t, of any sign and shape; h may depend on abs(u) only.

        Returns
        -------
        ndarray of float64 of the same shape
        """

    def log_g(self, u: ArrayLike) -> Array:
        """Return log g(exp u) = u/2 + h(abs(u)).

        Parameters
        ----------
        u : array_like
            log t.

        Returns
        -------
        ndarray of float64 of the same shape
            -inf at u = -inf for every g, since an impossible move has no weight; at u = inf the
            limit, which is inf unless g is bounded.
        """
        u = np.asarray(u, dtype=np.float64)
        bounded = np.isposinf(u) & (self._tail_slope() <= -0.5)
        finite = np.where(np.isinf(u), 2 * _LAST_KNOT * bounded, u)
        values = 0.5 * finite + self.even_part(np.abs(finite))
        return np.where(np.isinf(u) & ~bounded, u, values)

    @property
    def knots(self) -> Array:
        """Values of abs(u) at which the even part is tabulated."""
        if not 0 < self.knot_step <= 1:
            raise ValueError(
                f"{type(self).__name__}.knot_step is {self.knot_step}; it must be in (0, 1]."
            )
        return _knots(self.knot_step)

    def _tail_slope(self) -> float:
        if self.tail_slope is not None:
            return self.tail_slope
        ends = np.asarray(self.even_part(np.array([_LAST_KNOT, 2 * _LAST_KNOT])))
        return float(ends[1] - ends[0]) / _LAST_KNOT

    def table(self) -> Table:
        """Tabulate the even part for the kernels.

        Returns
        -------
        Table
            NamedTuple of the values at the knots, the slopes per knot and 1 / knot_step.

        Raises
        ------
        ValueError
            If `even_part` returns an array of the wrong shape, or numbers that are not finite.
        """
        knots, name = self.knots, f"{type(self).__name__}.even_part"
        value = np.asarray(self.even_part(knots), dtype=np.float64)
        if value.shape != knots.shape:
            raise ValueError(
                f"{name} returned shape {value.shape} for an input of shape {knots.shape}; it must "
                "return one number per element of u."
            )
        with np.errstate(invalid="ignore"):
            tail = self._tail_slope()
        if not (np.isfinite(value).all() and np.isfinite(tail)):
            k = int(np.argmin(np.isfinite(value)))
            raise ValueError(
                f"{name}({knots[k]}) is {value[k]} (slope of the tail {tail}); "
                "the even part of log g must be finite."
            )
        return self._as_table(np.array(value, order="C"), tail)

    def _as_table(self, value: Array, tail_slope: float) -> Table:
        slope = np.append(np.diff(value), tail_slope * self.knot_step)
        return Table(value, slope, 1 / self.knot_step)

    def check_even(self) -> None:
        """Raise ValueError if `even_part` is not even at the knots."""
        knots = self.knots
        up, down = (np.asarray(self.even_part(u)) for u in (knots, -knots))
        if up.shape == down.shape == knots.shape and not np.allclose(up, down, equal_nan=True):
            k = int(np.argmax(~np.isclose(up, down, equal_nan=True)))
            raise ValueError(
                f"{type(self).__name__}.even_part is {up[k]} at u = {knots[k]} but {down[k]} at "
                f"u = {-knots[k]}; it must be even. It is log g(exp u) - u/2, not log g."
            )

    def tabulated(self) -> Tabulated:
        """Return the function that the kernels use, with h linear between the knots."""
        return Tabulated(self.table())

    def plot(self, ax: Any = None, u_max: float = 10.0, label: str | None = None) -> Any:
        """Plot the even part beside the four fixed functions.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure if not given.
        u_max : float, default=10
            Range of abs(u).
        label : str, optional
            Name in the legend; the name of the class if not given.

        Returns
        -------
        matplotlib Axes
        """
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(layout="constrained")[1]
        u = np.linspace(-u_max, u_max, 401)
        for name, style in zip(FIXED, ("--", "-.", ":", (0, (5, 1))), strict=True):
            fixed = FIXED[name]()
            if type(fixed) is not type(self):
                h = fixed.even_part(u) - fixed.even_part(0.0)
                ax.plot(u, h, color="0.6", linestyle=style, linewidth=1.2, label=name)
        h, label = self.even_part(u) - self.even_part(0.0), label or type(self).__name__.lower()
        ax.plot(u, h, color="C3", linewidth=2.2, label=label)
        ax.set(xlabel="u = log p(x') / p(x)", ylabel="even part of log g")
        ax.legend(frameon=False)
        return ax

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of ``__init__``, as scikit-learn does.

        Parameters
        ----------
        deep : bool, default=True
            Ignored: no parameter has parameters of its own.

        Returns
        -------
        dict
            By name. Samplers call them ``balancing__bound`` and so on.
        """
        found = inspect.signature(type(self).__init__).parameters.values()
        plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        names = [p.name for p in list(found)[1:] if p.kind in plain]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> BalancingFunction:
        """Set some parameters; the others, and learned parameters, stay.

        Parameters
        ----------
        **params : dict
            New values by name.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no such parameter, or a value is not allowed.
        """
        known = self.get_params()
        unknown = sorted(params.keys() - known.keys())
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no parameter {unknown[0]!r}; it has {sorted(known)}."
            )
        if params:
            self.__dict__ = type(self)(**(known | params)).__dict__
        return self

    def _same(self, other: Any) -> bool:
        """Whether another function is of the same class and has the same parameters."""
        mine, others = self.get_params(), other.get_params()
        return type(other) is type(self) and all(
            np.array_equal(mine[name], others[name]) for name in mine
        )

    def __sklearn_clone__(self) -> BalancingFunction:
        return copy.copy(self)

    def __repr__(self) -> str:
        params = self.get_params().items()
        given = [f"{name}={_shown(value)}" for name, value in params if value is not None]
        return f"{type(self).__name__}({', '.join(given)})"


class Barker(BalancingFunction):
    """Barker's function g(t) = t / (1 + t); h(u) = -log(2 cosh(u/2))."""

    tail_slope = -0.5

    def even_part(self, u: ArrayLike) -> Array:
        """Even part of log g."""
        a = np.abs(np.asarray(u, dtype=np.float64))
        return -0.5 * a - np.log1p(np.exp(-a))


class Sqrt(BalancingFunction):
    """Square root g(t) = sqrt(t); h(u) = 0."""

    tail_slope = 0.0

    def even_part(self, u: ArrayLike) -> Array:
        """Even part of log g."""
        return np.zeros(np.shape(u))


class Min(BalancingFunction):
    """The function g(t) = min(1, t); h(u) = -abs(u)/2."""

    tail_slope = -0.5

    def even_part(self, u: ArrayLike) -> Array:
        """Even part of log g."""
        return -0.5 * np.abs(np.asarray(u, dtype=np.float64))


class Max(BalancingFunction):
    """The function g(t) = max(1, t); h(u) = abs(u)/2."""

    tail_slope = 0.5

    def even_part(self, u: ArrayLike) -> Array:
        """Even part of log g."""
        return 0.5 * np.abs(np.asarray(u, dtype=np.float64))


FIXED: dict[str, type[BalancingFunction]] = {"barker": Barker, "sqrt": Sqrt, "min": Min, "max": Max}


class Tabulated(BalancingFunction):
    """The even part of a table, as the kernels evaluate it, operation by operation."""

    def __init__(self, table: Table):
        self._table = table

    def even_part(self, u: ArrayLike) -> Array:
        """Even part, linear between the knots and beyond the last."""
        value, slope, inverse_step = self._table
        a = np.abs(np.asarray(u, dtype=np.float64)) * inverse_step
        knot = np.minimum(a, value.size - 1.0).astype(np.int64)
        return value[knot] + slope[knot] * (a - knot)

    def table(self) -> Table:
        """Return the table."""
        return self._table

    @property
    def knots(self) -> Array:
        """Values of abs(u) at which it is tabulated."""
        return np.arange(self._table.value.size) / self._table.inverse_step

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return {}: a table has no parameters to set."""
        return {}

    def __repr__(self) -> str:
        return f"Tabulated({self._table.value.size} knots)"


class LearnableFunction(BalancingFunction):
    """A balancing function with parameters.

    Attributes
    ----------
    theta : ndarray of float64
        Parameters.
    learning_rate : float
        Step size of the optimiser during the burn-in, unless the sampler is given one.
    """

    knot_step = 1 / 8
    learning_rate: float = 0.05
    theta: Array
    _is_initial: bool = False

    def with_theta(self, theta: ArrayLike) -> LearnableFunction:
        """Return the same function with other parameters."""
        new = copy.copy(self)
        new.theta = self._check_theta(theta, self.theta.size)
        new._is_initial = False
        return new

    def set_params(self, **params: Any) -> LearnableFunction:
        """Set some parameters; the others, and a ``theta`` that is not the initial one, stay."""
        theta, is_initial = self.theta, self._is_initial
        super().set_params(**params)
        if not is_initial and "theta" not in self.get_params():
            self.theta = self._check_theta(theta, self.theta.size)
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of ``__init__``, with None for an initial ``theta``."""
        params = super().get_params(deep)
        return params | ({"theta": None} if self._is_initial and "theta" in params else {})

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_at_knots"}

    def _start(self, initial: Array, theta: ArrayLike | None) -> None:
        self.theta = self._check_theta(initial if theta is None else theta, initial.size)
        self._is_initial = theta is None

    @staticmethod
    def _check_theta(theta: ArrayLike, size: int) -> Array:
        values = np.array(theta, dtype=np.float64)
        if values.shape != (size,):
            raise ValueError(f"theta has shape {values.shape}; it must have shape ({size},).")
        if not np.isfinite(values).all():
            k = int(np.argmin(np.isfinite(values)))
            raise ValueError(f"theta[{k}] is {values[k]}; it must be finite.")
        values.flags.writeable = False  # results of it are cached; see with_theta
        return values

    @abstractmethod
    def vjp(self, grad_knots: ArrayLike) -> Array:
        """Return the gradient of a loss by theta, given its gradient by the values at the knots.

        Parameters
        ----------
        grad_knots : array_like of shape (n_knots,)
            Derivative of the loss by each value of `table`: by h at `knots`.

        Returns
        -------
        ndarray of shape (n_parameters,)
        """


def _fixed_parts(u: Array) -> Array:
    """Even parts of barker, sqrt, min and max, (4, n)."""
    return np.stack([cls().even_part(u) for cls in FIXED.values()])


@lru_cache
def _fixed_at_knots(step: float) -> Array:
    parts = _fixed_parts(_knots(step))
    parts.flags.writeable = False
    return parts


class Mixture(LearnableFunction):
    r"""LSB 1: softmax mixture of Barker, square root, min and max.

    .. math:: g(t) = \sum_k w_k g_k(t), \quad w = \mathrm{softmax}(\theta)

    Parameters
    ----------
    theta : array_like of shape (4,), optional
        Logits of the weights of barker, sqrt, min and max; zeros if not given.
    """

    tail_slope = 0.5  # max outgrows the other three, whatever its weight

    def __init__(self, theta: ArrayLike | None = None):
        self._start(np.zeros(4), theta)

    @property
    def weights(self) -> Array:
        """Weights of barker, sqrt, min and max, (4,)."""
        return softmax(self.theta)

    def _mixed(self, parts: Array) -> tuple[Array, Array]:
        """Even part, (n,), and the share of each in g, (4, n), from the four even parts, (4, n)."""
        log_weights = self.theta - np.logaddexp.reduce(self.theta)
        logs = parts + log_weights[:, None]
        largest = logs.max(axis=0)
        shares = np.exp(logs - largest)
        total = shares.sum(axis=0)
        return largest + np.log(total), shares / total

    @cached_property
    def _at_knots(self) -> tuple[Array, Array]:
        return self._mixed(_fixed_at_knots(self.knot_step))

    def even_part(self, u: ArrayLike) -> Array:
        """Even part of log g."""
        u = np.asarray(u, dtype=np.float64)
        return self._mixed(_fixed_parts(u.ravel()))[0].reshape(u.shape)

    def table(self) -> Table:
        """Tabulate for the kernels; see `BalancingFunction.table`."""
        return self._as_table(self._at_knots[0].copy(), self._tail_slope())

    def vjp(self, grad_knots: ArrayLike) -> Array:
        """Gradient by theta; see `LearnableFunction.vjp`."""
        grad = np.asarray(grad_knots, dtype=np.float64)
        return self._at_knots[1] @ grad - self.weights * grad.sum()


class Lipschitz(LearnableFunction):
    r"""Even part of bounded slope; with the bound 1/2, exactly all increasing functions g.

    .. math:: h(u) = \int_0^{|u|} b \tanh \psi(v) \, dv

    The slopes of log g at u and -u are :math:`1/2 \pm h'`, so g is increasing if and only if the
    slope of h is within 1/2 of zero. ``bound=0.5`` is the family of all *monotone* balancing
    functions, with sqrt at psi = 0, and min and max at its ends. A larger bound b admits functions
    that rise and fall: h may fall below its neighbours, and starve moves, by b nats per unit of u.

    Parameters
    ----------
    bound : float, default=0.5
        Largest slope of h, positive.
    architecture : {"knots", "network"}, default="knots"
        Form of psi: "knots" is linear between its values at 41 places on [0, 32]; "network" has
        one hidden layer of 10 hyperbolic tangents on v / (1 + v) (31 parameters).
    theta : array_like, optional
        Parameters; by default psi = 0, which is g(t) = sqrt(t).
    """

    def __init__(
        self,
        bound: float = 0.5,
        architecture: str = "knots",
        theta: ArrayLike | None = None,
    ):
        if not (isinstance(bound, numbers.Real) and 0 < float(bound) < np.inf):
            raise ValueError(f"bound is {bound!r}; it must be a positive number.")
        if architecture not in SLOPES:
            raise ValueError(
                f"architecture is {architecture!r}; it must be one of {sorted(SLOPES)}."
            )
        self.bound: float = float(bound)
        self.architecture: str = architecture
        self.learning_rate = SLOPES[architecture].learning_rate
        self._start(SLOPES[architecture].initial(), theta)

    @cached_property
    def _at_knots(self) -> tuple[Array, Array, Any]:
        """Even part and its slope at the knots, and the memory of psi for a vjp."""
        psi, memory = SLOPES[self.architecture].forward(self.theta, self.knots)
        slope = self.bound * np.tanh(psi)
        steps = 0.5 * self.knot_step * (slope[1:] + slope[:-1])
        return np.append(0.0, np.cumsum(steps)), slope, memory

    def even_part(self, u: ArrayLike) -> Array:
        """Even part of log g."""
        return Tabulated(self.table()).even_part(u)  # a line beyond the last knot

    def table(self) -> Table:
        """Tabulate for the kernels; see `BalancingFunction.table`."""
        value, slope, _ = self._at_knots
        return self._as_table(value, slope[-1])

    def vjp(self, grad_knots: ArrayLike) -> Array:
        """Gradient by theta; see `LearnableFunction.vjp`."""
        grad = np.asarray(grad_knots, dtype=np.float64)
        _, slope, memory = self._at_knots
        by_step = 0.5 * self.knot_step * np.cumsum(grad[:0:-1])[::-1]
        by_slope = np.append(by_step, 0.0)
        by_slope[1:] += by_step
        by_psi = by_slope * (self.bound - slope**2 / self.bound)
        return SLOPES[self.architecture].backward(self.theta, memory, by_psi)


class Network(LearnableFunction):
    r"""LSB 2: a network f(t), made balancing.

    .. math:: g(t) = \tfrac12 \left( f(t) + t f(1/t) \right)

    f has one hidden layer of 10 rectified units on t/(1+t) - 1/2 and a softplus output [1]_.

    Parameters
    ----------
    theta : array_like of shape (31,), optional
        Parameters; if not given, those for which g is as close to sqrt(t) as possible.

    References
    ----------
    .. [1] E. Sansone, "LSB: Local Self-Balancing MCMC in Discrete Spaces", ICML 2022.
    """

    tail_slope = 0.5  # f is bounded, and t f(1/t) grows like t

    def __init__(self, theta: ArrayLike | None = None):
        self._start(MLP.initial(), theta)

    def _combine(self, u: Array) -> tuple[Array, Array, Any]:
        """Even part at u >= 0, the share of f(t) in it, and the network's memory for a vjp."""
        log_f, memory = MLP.forward(self.theta, np.concatenate([u, -u]))
        one, other = log_f[: u.size], log_f[u.size :] + u
        h = one + softplus(other - one) - (np.log(2) + 0.5 * u)
        return h, expit(one - other), memory

    @cached_property
    def _at_knots(self) -> tuple[Array, Array, Any]:
        return self._combine(self.knots)

    def even_part(self, u: ArrayLike) -> Array:
        """Even part of log g."""
        a = np.abs(np.asarray(u, dtype=np.float64))
        inside = np.minimum(a, _LAST_KNOT)
        h = self._combine(inside.ravel())[0]
        return h.reshape(a.shape) + self.tail_slope * (a - inside)

    def table(self) -> Table:
        """Tabulate for the kernels; see `BalancingFunction.table`."""
        return self._as_table(self._at_knots[0], self.tail_slope)

    def vjp(self, grad_knots: ArrayLike) -> Array:
        """Gradient by theta; see `LearnableFunction.vjp`."""
        grad = np.asarray(grad_knots, dtype=np.float64)
        _, share, memory = self._at_knots
        by_log_f = np.concatenate([grad * share, grad * (1.0 - share)])
        return MLP.backward(self.theta, memory, by_log_f)


_NAMES: dict[str, Callable[[], BalancingFunction]] = {
    **FIXED,
    "mixture": Mixture,
    "learned": partial(Lipschitz, 0.5, "network"),
}


# What people ask for that is not a balancing function.
_OTHER_SAMPLERS = {
    "gibbs": "GibbsSampler",
    "metropolis": 'GibbsSampler; LSBSampler("min") weighs moves as Metropolis accepts them',
    "tempering": "ParallelTempering",
    "wolff": "ClusterSampler",
    "swendsen-wang": "ClusterSampler",
    "exact": "EliminationSampler",
    "auto": "AutoSampler",
}


def get_balancing(balancing: str | BalancingFunction) -> BalancingFunction:
    """Return the balancing function of a name, or the one given, if it is even."""
    if isinstance(balancing, BalancingFunction):
        balancing.check_even()
        return balancing
    if isinstance(balancing, str):
        if balancing in _NAMES:
            return _NAMES[balancing]()
        other = _OTHER_SAMPLERS.get(balancing.lower())
        hint = f" For that there is {other}." if other else ""
        raise ValueError(f"balancing is {balancing!r}; it must be one of {sorted(_NAMES)}.{hint}")
    hint = " Did you forget the parentheses?" if isinstance(balancing, type) else ""
    raise TypeError(
        f"balancing is {balancing!r}; give one of {sorted(_NAMES)} or a BalancingFunction.{hint}"
    )

"""The contract of a target."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


def as_array(value: ArrayLike, name: str) -> NDArray[Any]:
    """Return a value as an array, or say which argument cannot be one."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} is not an array of numbers: {error}") from error


class Target(ABC):
    """A distribution on a product of finite sets, known up to a constant.

    A subclass sets the attributes below in ``__init__`` and implements the abstract methods.
    ``doc/add_target.rst`` walks through an example.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array of sites; draws have these dimensions after chain and draw.
    dims : tuple of str
        Their names.
    values : tuple of int
        The values that every site can take, in increasing order.
    constant : float
        Part of log p that does not depend on the state. Samplers never look at it.
    """

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    values: tuple[int, ...]
    constant: float = 0.0

    @property
    def n_sites(self) -> int:
        """Number of variables."""
        return int(np.prod(self.shape))

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        """Number of values of each variable, shape (n_sites,)."""
        return np.full(self.n_sites, len(self.values), dtype=np.int64)

    @property
    def coords(self) -> dict[str, Any]:
        """Coordinate of each of ``dims``."""
        return {name: np.arange(size) for name, size in zip(self.dims, self.shape, strict=True)}

    @abstractmethod
    def log_prob(self, x: ArrayLike) -> NDArray[np.float64]:
        """Unnormalised log-probability of each state; vectorised over leading axes.

        Parameters
        ----------
        x : array_like of shape (..., n_sites) or leading axes and ``shape``
            States.

        Returns
        -------
        ndarray of float64 of the leading shape
        """

    @abstractmethod
    def log_ratios(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return log p(x') - log p(x) for every x' that differs from x in one variable.

        Parameters
        ----------
        x : array_like of shape (..., n_sites) or leading axes and ``shape``
            States.

        Returns
        -------
        ndarray of float64, shape (..., n_moves)
            n_moves is ``sum(cardinalities - 1)``: for two-valued variables, n_sites.
        """

    @abstractmethod
    def view(self) -> NamedTuple:
        """Arrays for the compiled kernels; see ``sklsb._compiled``."""

    def random_state(self, rng: np.random.Generator) -> NDArray[np.int8]:
        """Draw a state uniformly, shape (n_sites,)."""
        return rng.choice(np.asarray(self.values, dtype=np.int8), size=self.n_sites)

    def check_states(self, x: ArrayLike, name: str = "x") -> NDArray[np.int8]:
        """Return states as int8 of shape (..., n_sites), or say what is wrong with them."""
        given = as_array(x, name)
        leading = given.shape[: max(0, given.ndim - len(self.shape))]
        if given.ndim and given.shape[-1] == self.n_sites:
            states = given
        elif given.shape == (*leading, *self.shape):
            states = given.reshape(*leading, self.n_sites)
        else:
            allowed = f"(..., {self.n_sites})"
            if len(self.shape) > 1:
                allowed += f" or (..., {', '.join(map(str, self.shape))})"
            raise ValueError(f"{name} has shape {given.shape}; the target needs {allowed}.")
        if given.dtype.kind not in "iufb":
            raise TypeError(f"{name} has dtype {given.dtype}; give integers, one of {self.values}.")
        wrong = ~np.isin(states, self.values)
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"{name}[{', '.join(map(str, where))}] is {states[where]}; "
                f"every variable of this target takes one of the values {self.values}."
            )
        return states.astype(np.int8)

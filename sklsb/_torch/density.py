"""A differentiable function of tensors as a log-density."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb.targets.base import States


class Density:
    """A function of tensors, called with states of NumPy.

    Parameters
    ----------
    function : torch.nn.Module or callable
        Of a tensor (n, n_sites), or (n, n_sites, n_values) of indicators; returns (n,).
    n_values : int
        Largest number of values of a variable.
    dtype : torch.dtype
        Type of the tensor.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], n_values: int, dtype: Any):
        if isinstance(dtype, str):
            dtype = getattr(torch, dtype, dtype)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise TypeError(
                f'dtype is {dtype!r}; give a floating-point type, as torch.float64 or "float64".'
            )
        self.function, self.n_values, self.dtype = function, n_values, dtype
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    @property
    def device(self) -> torch.device:
        """Where the parameters of the function are."""
        if isinstance(self.function, torch.nn.Module):
            for values in (*self.function.parameters(), *self.function.buffers()):
                return values.device
        return torch.device("cpu")

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch modules to evaluation and back, with no other thread between."""
        modules = self.function.modules() if isinstance(self.function, torch.nn.Module) else ()
        with self._lock:
            training = [module for module in modules if module.training]
            for module in training:
                module.training = False
            try:
                yield
            finally:
                for module in training:
                    module.training = True

    def encode(self, ranks: Tensor) -> Tensor:
        """Return what the function is given: the values 0 and 1, or indicators of the values."""
        if self.n_values > 2:
            return torch.nn.functional.one_hot(ranks.long(), self.n_values).to(self.dtype)
        return ranks.to(self.dtype)

    def values(self, given: Tensor) -> Tensor:
        """Call the function and check the shape of what it returns."""
        found = self.function(given)
        if not isinstance(found, Tensor):
            raise TypeError(
                f"the log-density returned {type(found).__name__}; it must return a tensor."
            )
        if found.shape != given.shape[:1]:
            raise ValueError(
                f"the log-density returned shape {tuple(found.shape)} for a tensor of shape "
                f"{tuple(given.shape)}; it must return one number for each row, shape "
                f"({given.shape[0]},)."
            )
        return found

    def with_gradient(self, ranks: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p and its gradient by what the function is given; no `.grad` is touched."""
        given = self.encode(ranks).requires_grad_()
        with torch.enable_grad():
            value = self.values(given)
            if not value.requires_grad:
                raise ValueError(
                    "the log-density does not depend on its argument by operations that torch can "
                    "differentiate; use FunctionTarget for such a function."
                )
            (gradient,) = torch.autograd.grad(value.sum(), given)
        # Not as views of the same number many times, which cannot be written to.
        return value.detach().double().clone(), gradient.contiguous()

    def __call__(self, states: States) -> NDArray[np.float64]:
        with self.evaluating(), torch.no_grad():
            ranks = torch.as_tensor(np.ascontiguousarray(states)).to(self.device)
            found: NDArray[np.float64] = self.values(self.encode(ranks)).double().cpu().numpy()
        return found

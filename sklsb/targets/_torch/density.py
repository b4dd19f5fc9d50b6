"""A differentiable function of tensors as a log-density, and its model."""

import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sklsb._system.arrays import Array
from sklsb._system.progress import tick
from sklsb.targets._torch.model import Carried, Model, along_flips, of_other_values
from sklsb.targets.base import States

_DTYPES = torch.float32, torch.float64
_ALLOWED = *_DTYPES, torch.int64
# First-order ratios end here: a gradient may be infinite, the weights not.
_LARGEST_RATIO = 1e6
_HALF = torch.float16, torch.bfloat16
_OfBatch = torch.nn.modules.batchnorm._NormBase
# Modules whose training mode makes a function random or dependent on the batch.
_CAUSES = torch.nn.modules.dropout._DropoutNd, _OfBatch, torch.nn.RReLU
# One for all: two targets may share a module.
_lock = threading.RLock()


def _referred(function: Any, depth: int) -> list[Any]:
    """List what a function, its object, and functions in it refer to by name."""
    if isinstance(function, functools.partial):
        given = [*function.args, *function.keywords.values()]
        return given + _referred(function.func, depth)
    owner = None if inspect.isfunction(function) else function
    if inspect.ismethod(function):
        owner, function = function.__self__, function.__func__
    found = [owner, *getattr(owner, "__dict__", {}).values()]
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        seen = inspect.getclosurevars(function)
    except TypeError:  # no Python function
        return found
    found += [*seen.nonlocals.values(), *seen.globals.values()]
    inner = [one for one in found if inspect.isfunction(one)] if depth > 1 else []
    return found + [more for one in inner for more in _referred(one, depth - 1)]


class Density:
    """A function of a tensor (n, n_sites), or of indicators (n, n_sites, n_values), for NumPy.

    Of type int64 the tensor has the values themselves, and there is no gradient.
    """

    result_dtype = ""  # of what the function returned last
    n_values = 2  # the largest number of values of a variable, or 2

    def __init__(self, function: Callable[[Tensor], Tensor], dtype: torch.dtype | str | None):
        self.function = function
        if dtype is None:
            dtype = next((v.dtype for v in self._tensors() if v.dtype in _DTYPES), torch.float32)
        self.dtype = {str(t).removeprefix("torch."): t for t in _ALLOWED}.get(str(dtype), dtype)
        if self.dtype not in _ALLOWED:
            raise TypeError(
                f'dtype is {dtype!r}; give "float32" or "float64", or "int64" for a function of '
                "integers."
            )

    def _tensors(self) -> Iterator[Tensor]:
        if isinstance(self.function, torch.nn.Module):
            yield from self.function.parameters()
            yield from self.function.buffers()

    def in_training(self) -> list[str]:
        """Names of the modules in training mode that a plain function refers to."""
        parts = self._in_training()
        causes = [part for part in parts if isinstance(part, _CAUSES)]
        return sorted({type(part).__name__ for part in causes or parts})

    @property
    def may_be_random(self) -> bool:
        """Whether a module that a plain function refers to is in a mode that may make it random."""
        return any(isinstance(part, _CAUSES) for part in self._in_training())

    def _in_training(self) -> list[torch.nn.Module]:
        if isinstance(self.function, torch.nn.Module):
            return []  # it is evaluated in evaluation mode
        roots = [one for one in _referred(self.function, 2) if isinstance(one, torch.nn.Module)]
        return [part for root in roots for part in root.modules() if part.training]

    @property
    def trains_by_batch(self) -> bool:
        """Whether the module is another function in training mode: of the whole batch."""
        return any(isinstance(part, _OfBatch) and part.training for part in self._parts())

    def sizes_of_embeddings(self) -> list[int]:
        """List the numbers of tokens that embeddings of the module take."""
        return [m.num_embeddings for m in self._parts() if isinstance(m, torch.nn.Embedding)]

    def _parts(self) -> list[torch.nn.Module]:
        return [*self.function.modules()] if isinstance(self.function, torch.nn.Module) else []

    @property
    def device(self) -> torch.device:
        """Device of the parameters and buffers of a module, or the CPU."""
        return next((values.device for values in self._tensors()), torch.device("cpu"))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch modules to evaluation mode, exclusively, and back."""
        with _lock:
            training = [module for module in self._parts() if module.training]
            for module in training:
                module.training = False
            try:
                yield
            finally:
                for module in training:
                    module.training = True

    @property
    def takes_integers(self) -> bool:
        """Whether the function takes the values as integers, which have no gradient."""
        return self.dtype == torch.int64

    def one_hot(self, states: Tensor) -> Tensor:
        """Return indicators of the values of states."""
        return torch.nn.functional.one_hot(states.long(), self.n_values).to(self.dtype)

    def encode(self, states: Tensor) -> Tensor:
        """Return the argument of the function: 0 and 1, indicators of the values, or integers."""
        if self.n_values > 2 and not self.takes_integers:
            return self.one_hot(states)
        return states.to(self.dtype)

    @property
    def _given(self) -> str:
        """What the function is given, and what to do if it expects something else."""
        if self.takes_integers:
            return "These are the values of the variables, as dtype is int64."
        embedding = (
            "An embedding of indicators x is x @ embedding.weight; with "
            'TorchTarget(..., dtype="int64") the function is given integers, for fast=False.'
        )
        if self.n_values > 2:
            return (
                f"These are indicators of {self.n_values} values, zeros and ones along the last "
                f"axis. {embedding}"
            )
        return (
            "These are zeros and ones, because n_states is 2. If variables take more values, give "
            "n_states: the function is then given indicators of shape (n, n_sites, k). "
            f"{embedding}"
        )

    def values(self, given: Tensor) -> Tensor:
        """Call the function and check the shape of its result."""
        try:
            found = self.function(given)
        except Exception as error:
            shape = f"{tuple(given.shape)} and type {given.dtype}"
            error.add_note(f"It came from the log-density, called with a tensor of shape {shape}.")
            error.add_note(self._given)
            half = next((v.dtype for v in self._tensors() if v.dtype in _HALF), None)
            if half is not None:
                error.add_note(
                    f"Parameters or buffers of the module are {half}: call its float(), or let it "
                    "convert what it is given and return float32."
                )
            raise
        if not isinstance(found, Tensor) or found.is_complex():
            what = found.dtype if isinstance(found, Tensor) else type(found).__name__
            raise TypeError(f"the log-density returned {what}; it must return a real tensor.")
        if found.shape != given.shape[:1]:
            raise ValueError(
                f"the log-density returned shape {tuple(found.shape)} for a tensor of shape "
                f"{tuple(given.shape)}; it must return one number for each row, shape "
                f"({given.shape[0]},). squeeze(-1) or torch.nn.Flatten(0) remove a last axis of 1."
            )
        return found

    def with_gradient(self, value_index: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p and its gradient with respect to the argument; leaves ``.grad`` alone."""
        if torch.is_inference_mode_enabled():
            raise ValueError(
                "torch.inference_mode() is on, which forbids gradients, also those that propose "
                "moves. Call the sampler outside of it, or under torch.no_grad()."
            )
        given = self.encode(value_index).requires_grad_()
        with torch.enable_grad():
            value = self.values(given)
            gradient = None
            if value.requires_grad:
                (gradient,) = torch.autograd.grad(value.sum(), given, allow_unused=True)
            if gradient is None:
                raise ValueError(
                    "the log-density does not depend on its argument by operations that torch can "
                    "differentiate: use fast=False, or FunctionTarget. Integers as of "
                    "x.argmax(-1), for an embedding, have no gradient; an embedding of "
                    "indicators x is x @ embedding.weight."
                )
        tick(len(given))
        # Copies, as expanded tensors cannot be written to.
        return value.detach().double().clone(), gradient.contiguous()

    def n_operations(self, states: States) -> int:
        """Count the operations of matrix products and convolutions at states."""
        with FlopCounterMode(display=False) as counter:
            self(states)
        return int(counter.get_total_flops())

    def __call__(self, states: States) -> Array:
        with self.evaluating(), torch.no_grad():
            value_index = torch.as_tensor(np.ascontiguousarray(states)).to(self.device)
            log_p = self.values(self.encode(value_index))
            self.result_dtype = str(log_p.dtype).removeprefix("torch.")
            found: Array = log_p.double().cpu().numpy()
        return found


class DensityModel(Model):
    """Carries log p and its gradient; it is where the tensors of the function are."""

    has_zeros = True

    def __init__(self, density: Density):
        self.density = density
        self.device = density.device
        self.n_moves_per_site = density.n_values - 1
        self._wrong = torch.zeros((), dtype=torch.bool, device=self.device)

    def start(self, x: Tensor) -> Carried:
        """Log p, and its gradient with respect to the argument of the function."""
        value, gradient = self.density.with_gradient(x)
        self._wrong |= (value.isnan() | (value == math.inf)).any()
        return value, gradient

    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        return carried[0]

    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """Return the gradient along each change; 0 where it is not finite."""
        if carried[1].dim() == 2:
            return along_flips(carried[1], x, _LARGEST_RATIO)
        ratios = of_other_values(carried[1], x)
        ratios = ratios.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return ratios.clamp(-_LARGEST_RATIO, _LARGEST_RATIO)

    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        there = self.start(y)
        return there, there[0] - carried[0]

    @contextmanager
    def prepared(self) -> Iterator[None]:
        with self.density.evaluating():
            yield

    def check(self) -> None:
        """Refuse a log-density that is NaN or +inf somewhere."""
        if self._wrong:
            self._wrong.zero_()
            raise ValueError(
                "the log-density was NaN or +inf at a state that was proposed; it must be finite, "
                "or -inf for an impossible state."
            )

"""Log-densities with their gradients, on torch."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from sklsb.targets._conditioned import Conditioned
from sklsb.targets.base import Target, no_gradient
from sklsb.targets.ising import Ising
from sklsb.targets.potts import Potts
from sklsb.targets.rbm import RBM
from sklsb.targets.torch import TorchTarget

Carried = tuple[Tensor, ...]
# Rows of a product of matrices are then the same, bit for bit, whatever their number (on CPUs).
_ROWS = 16
# Beyond it single precision would round too much, in the end overflow.
_LARGEST_SINGLE = 1e6
# First-order ratios of any function end here: its gradient may be infinite, the weights not.
_LARGEST_RATIO = 1e6
# Rounding of the activations of an RBM, beyond which they are carried in two parts.
_SMALLEST_PART = 1e-12


class Model(ABC):
    """A log-density on torch.

    States x are ranks of values, integers of shape (n, n_sites). What chains carry along, tensors
    with the chains first, are functions of the state alone. A slot is a place for a move: for each
    site the other values in increasing order.
    """

    n_slots_per_site = 1
    # Whether ratios may be infinite, and no numbers at impossible states.
    has_zeros = False
    # Whether a step is the same sequence of kernels every time, which CUDA can record.
    can_be_recorded = False

    @abstractmethod
    def start(self, x: Tensor) -> Carried:
        """Return what is carried at states x."""

    @abstractmethod
    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        """Log p without the target's constant, float64 of shape (n,)."""

    @abstractmethod
    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """First-order log-ratio of the move at each slot, shape (n, n_slots)."""

    @abstractmethod
    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        """Return what is carried at y, and log p(y) - log p(x), float64 of shape (n,).

        y differs from x at no other than some sites, of shape (n, any), where one may stand twice.
        """

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Surround all use of the model."""
        yield

    def check(self) -> None:  # noqa: B027
        """Raise what is wrong with values found since the last check."""


def _tensor(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=dtype).to(device)


def _couplings(target: Any, device: torch.device) -> Tensor:
    matrix = target.couplings.tocoo()
    result: Tensor = torch.sparse_coo_tensor(
        torch.as_tensor(np.stack(matrix.coords).astype(np.int64)),
        torch.tensor(matrix.data),
        size=matrix.shape,
        check_invariants=True,
    )
    return result.to(device).coalesce()


def _sum(terms: Tensor) -> Tensor:
    """Sum rows, one term after another, so that rounding does not depend on threads."""
    return terms.cumsum(1)[:, -1] if terms.shape[1] else terms.sum(1)


def _along_flips(gradient: Tensor, x: Tensor) -> Tensor:
    """Change to first order where 0 becomes 1 and 1 becomes 0."""
    return x.to(gradient.dtype).mul_(-2.0).add_(1.0).mul_(gradient)


def _of_other_values(of_values: Tensor, x: Tensor) -> Tensor:
    """Differences, of shape (n, slots), from the present values: ``of_values`` (n, sites, k)."""
    old = x.long()[:, :, None]
    rank = torch.arange(of_values.shape[2] - 1, device=x.device)
    new = of_values.gather(2, rank + (rank >= old))
    return (new - of_values.gather(2, old)).flatten(1)


class IsingModel(Model):
    """Log p = x.(field + C x / 2); it is linear in each spin, so first order is exact."""

    def __init__(self, target: Ising, device: torch.device):
        self.couplings = _couplings(target, device)
        self.field = _tensor(target.field, device)

    @staticmethod
    def _spins(x: Tensor) -> Tensor:
        return 2.0 * x.double() - 1.0

    def start(self, x: Tensor) -> Carried:
        """Return the sums C x of the neighbours."""
        return (torch.sparse.mm(self.couplings, self._spins(x).T).T,)

    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        """Log p."""
        return _sum(self._spins(x) * (self.field + 0.5 * carried[0]))

    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """Exact log-ratios."""
        return -2.0 * self._spins(x) * (self.field + carried[0])

    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        """(y - x).(gradient at x + that at y) / 2, which does not round at the size of log p."""
        there = self.start(y)
        change = self._spins(y) - self._spins(x)
        return there, _sum(change * (self.field + 0.5 * (carried[0] + there[0])))


class PottsModel(Model):
    """Log p = o.(field + C o / 2) with o the indicators of the values."""

    def __init__(self, target: Potts, device: torch.device):
        self.couplings = _couplings(target, device)
        self.field = _tensor(target.field, device)
        self.n_values = self.field.shape[1]
        self.n_slots_per_site = self.n_values - 1
        self.has_zeros = bool((self.field == -math.inf).any())

    def start(self, x: Tensor) -> Carried:
        """Return the sums of the couplings with neighbours of each value, (n, sites, k)."""
        n, d = x.shape
        here = torch.nn.functional.one_hot(x.T.long(), self.n_values).double().reshape(d, -1)
        near = torch.sparse.mm(self.couplings, here)
        return (near.reshape(d, n, self.n_values).transpose(0, 1),)

    def _at(self, of_values: Tensor, x: Tensor) -> Tensor:
        return of_values.expand(*x.shape, -1).gather(2, x.long()[:, :, None])[:, :, 0]

    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        """Log p."""
        return _sum(self._at(self.field, x) + 0.5 * self._at(carried[0], x))

    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """Exact log-ratios; field and neighbours apart, for fields may be large."""
        return _of_other_values(self.field.expand_as(carried[0]), x) + _of_other_values(
            carried[0], x
        )

    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        """As for the Ising model."""
        there = self.start(y)
        near = carried[0] + there[0]
        change = self._at(self.field, y) - self._at(self.field, x)
        return there, _sum(change + 0.5 * (self._at(near, y) - self._at(near, x)))


class RBMModel(Model):
    """Activations a of the hidden units are carried; they change by a row of W for each flip.

    W and c are rounded to multiples of 2^-52 of what a can reach, so that sums are exact and a
    does not depend on the way to a state. Where weights of very different sizes meet, what that
    cuts off is carried as a second part. The functions of torch for sigma(a) and log(1 + exp a)
    round differently at the ends of tensors, so others take their place.
    """

    can_be_recorded = True

    def __init__(self, target: RBM, device: torch.device, dtype: torch.dtype):
        slopes = np.abs(target.visible_bias) + np.abs(target.weights).sum(axis=1)
        if slopes.max(initial=0.0) > _LARGEST_SINGLE:
            dtype = torch.float64
        # Rows: the weights of each visible unit, and the biases of the hidden ones.
        rest = np.vstack([target.weights, target.hidden_bias])
        self.parts: list[tuple[Tensor, Tensor]] = []
        for _ in range(2):
            unit = np.ldexp(1.0, np.maximum(np.frexp(np.abs(rest).sum(axis=0))[1] - 52, -1000))
            part = np.rint(rest / unit) * unit
            self.parts.append((_tensor(part[:-1], device), _tensor(part[-1], device)))
            rest = rest - part
            if np.linalg.norm(unit) < _SMALLEST_PART:
                break
        self.visible_bias = _tensor(target.visible_bias, device)
        self.slope_bias = _tensor(target.visible_bias, device, dtype)
        self.slope_weights = _tensor(np.ascontiguousarray(target.weights.T), device, dtype)

    @staticmethod
    def _activation(parts: Sequence[Tensor]) -> Tensor:
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _with_rest(self, parts: list[Tensor]) -> Carried:
        """Add log(1 + exp(-abs(a))), what log(1 + exp a) is more than the positive part of a."""
        return *parts, self._activation(parts).abs().neg_().exp_().add_(1.0).log_()

    def _change(self, carried: Carried, there: Carried) -> Tensor:
        """Sum of the changes of log(1 + exp a), none of which rounds at the size of a."""
        a, b = self._activation(carried[:-1]), self._activation(there[:-1])
        change = b.clamp(min=0.0) - a.clamp(min=0.0)
        if len(self.parts) > 1:
            exact = (there[0] - carried[0]) + (there[1] - carried[1])
            change = torch.where((a > 0.0) & (b > 0.0), exact, change)
        return (change + (there[-1] - carried[-1])).sum(1)

    def start(self, x: Tensor) -> Carried:
        """Return the parts of the activations, and what the logarithms take beside them."""
        ones = x.double()
        return self._with_rest([bias + ones @ weights for weights, bias in self.parts])

    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        """Add the rows of the units that changed."""
        change = (y.gather(1, sites) - x.gather(1, sites)).double()
        if sites.shape[1] > 1:  # each site once
            same = sites[:, :, None] == sites[:, None, :]
            change = change * ~same.tril(-1).any(2)
        parts = []
        for before, (weights, _) in zip(carried, self.parts, strict=False):
            if sites.shape[1] == 1:
                rows = weights.index_select(0, sites[:, 0])
                parts.append(torch.addcmul(before, rows, change))
            else:
                rows = embedding_bag(sites, weights, per_sample_weights=change, mode="sum")
                parts.append(rows.add_(before))
        there = self._with_rest(parts)
        visible = (change * self.visible_bias[sites]).sum(1)
        return there, visible + self._change(carried, there)

    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        """Log p."""
        activation = self._activation(carried[:-1])
        return x.double() @ self.visible_bias + (activation.clamp(min=0.0) + carried[-1]).sum(1)

    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """Gradient b + W sigma(a), with the sign of the flip."""
        n = len(x)
        activation = self._activation(carried[:-1])
        mean = activation.to(self.slope_bias.dtype).neg().exp_().add_(1.0).reciprocal_()
        mean = pad(mean, (0, 0, 0, -n % _ROWS)) if n % _ROWS else mean
        gradient = torch.addmm(self.slope_bias, mean, self.slope_weights)[:n]
        return _along_flips(gradient, x)


class TorchModel(Model):
    """Any differentiable log-density: carries log p and its gradient."""

    has_zeros = True

    def __init__(self, target: TorchTarget, device: torch.device):
        self.density = target.density
        self.n_slots_per_site = max(1, len(target.values) - 1)
        self._wrong = torch.zeros((), dtype=torch.bool, device=device)

    def start(self, x: Tensor) -> Carried:
        """Log p, and its gradient by what the function is given."""
        value, gradient = self.density.with_gradient(x)
        self._wrong |= (value.isnan() | (value == math.inf)).any()
        return value, gradient

    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        """Log p."""
        return carried[0]

    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """Return the gradient along each change; 0 where it is not finite."""
        if carried[1].dim() == 2:
            ratios = _along_flips(carried[1], x)
        else:
            ratios = _of_other_values(carried[1], x)
        ratios = ratios.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return ratios.clamp(-_LARGEST_RATIO, _LARGEST_RATIO)

    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        """Evaluate it again."""
        there = self.start(y)
        return there, there[0] - carried[0]

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Modules as they are for use, not for training."""
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


@singledispatch
def model_of(target: Target, *where: Any) -> Model:
    """Return a target's model on a device; a dtype for its gradient, where there is a choice."""
    raise no_gradient(target)


@model_of.register
def _(target: Ising, device: torch.device, dtype: torch.dtype) -> Model:
    return IsingModel(target, device)


@model_of.register
def _(target: Potts, device: torch.device, dtype: torch.dtype) -> Model:
    return PottsModel(target, device)


@model_of.register
def _(target: RBM, device: torch.device, dtype: torch.dtype) -> Model:
    return RBMModel(target, device, dtype)


@model_of.register
def _(target: TorchTarget, device: torch.device, dtype: torch.dtype) -> Model:
    return TorchModel(target, device)


@model_of.register
def _(target: Conditioned, device: torch.device, dtype: torch.dtype) -> Model:
    return model_of(target.target, device, dtype)


def device_of(target: Target, device: Any) -> torch.device:
    """Return where to run, or say what is wrong with it or with the target."""
    inner: Any = target.target if isinstance(target, Conditioned) else target
    model = model_of.dispatch(type(inner))
    if model is model_of.dispatch(Target):
        model(inner)
    home = inner.density.device if isinstance(inner, TorchTarget) else None
    if device is None:
        return home or torch.device("cpu")
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f'device is {device!r}; give "cpu", "cuda" or "cuda:1".') from error
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f'device is {device!r}; give "cpu", "cuda" or "cuda:1".')
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device is {device!r}, but torch sees {torch.cuda.device_count()} CUDA devices here; "
            'use device="cpu".'
        )
    if home is not None and torch.empty(0, device=place).device != home:
        raise ValueError(
            f"device is {device!r}, but the log-density is on {home}. Make it a torch.nn.Module "
            f"whose tensors are parameters or buffers, and move it with .to({device!r}); or leave "
            "device out."
        )
    return place


def first_order_ratios(target: Target, states: NDArray[Any]) -> NDArray[np.float64]:
    """First-order log-ratios of a target's model at states, (..., n_moves)."""
    flat = states.reshape(-1, target.n_sites)
    device = device_of(target, None)
    model = model_of(target, device, torch.float64)
    ranks = torch.as_tensor(np.searchsorted(target.values, flat)).to(device)
    with model.prepared(), torch.no_grad():
        found = model.first_order(ranks, model.start(ranks)).double().cpu().numpy()
    exists = np.arange(model.n_slots_per_site) < target.cardinalities[:, None] - 1
    result: NDArray[np.float64] = found[:, exists.ravel()]
    return result.reshape(*states.shape[:-1], -1)

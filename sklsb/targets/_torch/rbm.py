"""Restricted Boltzmann machines on torch."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from sklsb._kernels.first_order import rbm
from sklsb._system.arrays import Array
from sklsb.targets._torch.model import Carried, Device, DType, Model, along_flips, row_sum

# With multiples of it, rows of a matrix product do not depend on their number (on CPUs). Of a
# machine with few visible units they may depend, in their last bits, on the place of the row.
_ROWS = 16
# Beyond it, single precision would round too much or overflow.
_LARGEST_SINGLE = 1e6
# Rounding of the activations beyond which they are carried in two parts.
_SMALLEST_PART = 1e-12


class _Room(NamedTuple):
    """Memory for some chains."""

    found: tuple[Carried, Tensor, Tensor]  # what `reach` returns
    padded: tuple[Tensor, Tensor]  # sigma(a) and the gradient, in a multiple of `_ROWS` rows
    filled: tuple[NDArray[Any], ...]  # by the kernel: what is carried, and changes of log p
    scratch: tuple[NDArray[Any], ...]


class RBMModel(Model):
    """Carries the activations a of the hidden units, and sigma(a); each flip adds a row of W.

    W and c are rounded to multiples of 2^-52 of the largest possible a, so that sums are exact and
    a does not depend on the path. If weights differ much in size, the rounded-off rest is carried
    as a second part. The last column of what is carried is the sum of log(1 + exp(-abs(a))), the
    excess of log(1 + exp a) over the positive part of a.

    Torch's sigma(a) and log(1 + exp a) round differently at the ends of tensors, so they are not
    used; on CPUs, kernels compute both.
    """

    of_rows = unsigned = True

    def __init__(
        self,
        weights: Array,
        visible_bias: Array,
        hidden_bias: Array,
        device: Device,
        dtype: DType,
    ):
        self.device = device
        self._on_cpu = device.type == "cpu"
        slopes = np.abs(visible_bias) + np.abs(weights).sum(axis=1)
        if slopes.max(initial=0.0) > _LARGEST_SINGLE:
            dtype = torch.float64
        # Rows: the weights of each visible unit, and the biases of the hidden ones.
        rest = np.vstack([weights, hidden_bias])
        parts: list[Array] = []
        for _ in range(2):
            unit = np.ldexp(1.0, np.maximum(np.frexp(np.abs(rest).sum(axis=0))[1] - 52, -1000))
            parts.append(np.rint(rest / unit) * unit)
            rest = rest - parts[-1]
            if np.linalg.norm(unit) < _SMALLEST_PART:
                break
        self.n_hidden = len(hidden_bias)
        rows = np.hstack(parts)
        self.weights, self.hidden_bias = (
            torch.tensor(part, device=device) for part in (rows[:-1], rows[-1])
        )
        self.visible_bias = torch.tensor(visible_bias, device=device)
        self.slope_bias = self.visible_bias.to(dtype)
        self.slope_weights = torch.tensor(
            np.ascontiguousarray(weights.T), dtype=dtype, device=device
        )
        if self._on_cpu:
            self._rows, self._bias = self.weights.numpy(), self.visible_bias.numpy()

    def _parts(self, carried: Tensor) -> tuple[Tensor, ...]:
        return carried[:, : self.weights.shape[1]].split(max(1, self.n_hidden), dim=1)

    def _activation(self, carried: Tensor) -> Tensor:
        parts = self._parts(carried)
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _finished(self, activations: Tensor) -> Carried:
        """Add what follows from the activations."""
        carried = pad(activations, (0, 1))
        if self._on_cpu:
            mean = carried.new_empty((len(carried), self.n_hidden), dtype=self.slope_bias.dtype)
            rbm.finish(carried.numpy(), mean.numpy(), np.empty(self.n_hidden))
            return carried, mean
        a = self._activation(carried)
        e = a.abs().neg_().exp_()
        carried[:, -1] = (1.0 + e).log().sum(1)
        mean = torch.where(a < 0.0, e, 1.0) / (1.0 + e)
        return carried, mean.to(self.slope_bias.dtype)

    def _change(self, before: Tensor, there: Tensor) -> Tensor:
        """Sum of the changes of log(1 + exp a), without rounding errors of the size of a."""
        a, b = self._activation(before), self._activation(there)
        change = b.clamp(min=0.0) - a.clamp(min=0.0)
        if self.weights.shape[1] > self.n_hidden:
            first, second = self._parts(there - before)
            change = torch.where((a > 0.0) & (b > 0.0), first + second, change)
        return change.sum(1) + (there[:, -1] - before[:, -1])

    def start(self, x: Tensor) -> Carried:
        """Return the parts of the activations with the rest of the logarithms, and sigma(a)."""
        return self._finished(self.hidden_bias + x.double() @ self.weights)

    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        if self._on_cpu:
            room = self.room(len(x))
            self._fill((x.numpy(), y.numpy(), sites.numpy()), carried, room)
            return room.found[:2]
        change = (y.gather(1, sites) - x.gather(1, sites)).double()
        if sites.shape[1] > 1:  # each site once
            same = sites[:, :, None] == sites[:, None, :]
            change = change * ~same.tril(-1).any(2)
        before = carried[0][:, :-1]
        if sites.shape[1] == 1:
            rows = self.weights.index_select(0, sites[:, 0])
            activations = torch.addcmul(before, rows, change)
        else:
            rows = embedding_bag(sites, self.weights, per_sample_weights=change, mode="sum")
            activations = rows.add_(before)
        there = self._finished(activations)
        visible = (change * self.visible_bias[sites]).sum(1)
        return there, visible + self._change(carried[0], there[0])

    def room(self, n: int) -> Any:
        if not self._on_cpu:
            return None
        (n_sites, width), rows = self.weights.shape, -(-n // _ROWS) * _ROWS
        there, log_ratio = self.weights.new_empty((n, width + 1)), self.weights.new_empty(n)
        mean = self.slope_bias.new_zeros((rows, self.n_hidden))
        gradient = self.slope_bias.new_empty((rows, n_sites))
        found = (there, mean[:n]), log_ratio, gradient[:n]
        filled = tuple(part.numpy() for part in (*found[0], log_ratio))
        changes = np.zeros(n_sites, np.bool_), np.empty(n_sites, np.int64), np.empty(n_sites)
        scratch = np.empty(self.n_hidden), *changes
        return _Room(found, (mean, gradient), filled, scratch)

    def _fill(self, states: tuple[NDArray[Any], ...], carried: Carried, room: _Room) -> None:
        """Fill what chains carry, and log p(y) - log p(x), for (x, y, sites)."""
        before = carried[0].numpy()
        rbm.move(*states, self._rows, self._bias, before, *room.filled, room.scratch)

    def reach(
        self, states: tuple[NDArray[Any], ...], carried: Carried, room: Any = None
    ) -> tuple[Carried, Tensor, Tensor]:
        made: _Room = room or self.room(len(states[0]))
        self._fill(states, carried, made)
        mean, gradient = made.padded
        torch.addmm(self.slope_bias, mean, self.slope_weights, out=gradient)
        return made.found

    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        if self._on_cpu:
            found = np.empty(len(x))
            scratch = np.empty(len(self._rows)), np.empty(self.n_hidden)
            rbm.log_prob(x.numpy(), self._bias, carried[0].numpy(), scratch, found)
            return torch.from_numpy(found)
        activation = row_sum(self._activation(carried[0]).clamp(min=0.0))
        return row_sum(x * self.visible_bias) + (activation + carried[0][:, -1])

    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """Gradient b + W sigma(a), with the sign of the flip."""
        mean = carried[1]
        n = mean.shape[0]
        mean = pad(mean, (0, 0, 0, -n % _ROWS)) if n % _ROWS else mean
        gradient = torch.addmm(self.slope_bias, mean, self.slope_weights)
        return along_flips(gradient[:n] if n % _ROWS else gradient, x)

"""Restricted Boltzmann machines on torch."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from sklsb._kernels.first_order import rbm
from sklsb.targets._torch.model import Carried, Device, DType, Model, along_flips, tensor

# With multiples of it, rows of a matrix product do not depend on their number (on CPUs).
_ROWS = 16
# Beyond it, single precision would round too much or overflow.
_LARGEST_SINGLE = 1e6
# Rounding of the activations beyond which they are carried in two parts.
_SMALLEST_PART = 1e-12


def _arrays(tensors: Sequence[Tensor]) -> tuple[NDArray[np.float64], ...]:
    return tuple(values.numpy() for values in tensors)


class RBMModel(Model):
    """Carries the activations a of the hidden units, and what follows; each flip adds a row of W.

    W and c are rounded to multiples of 2^-52 of the largest possible a, so that sums are exact and
    a does not depend on the path. If weights differ much in size, the rounded-off rest is carried
    as a second part. Torch's sigma(a) and log(1 + exp a) round differently at the ends of tensors,
    so they are not used.
    """

    def __init__(
        self,
        weights: NDArray[np.float64],
        visible_bias: NDArray[np.float64],
        hidden_bias: NDArray[np.float64],
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
        self.parts: list[tuple[Tensor, Tensor]] = []
        for _ in range(2):
            unit = np.ldexp(1.0, np.maximum(np.frexp(np.abs(rest).sum(axis=0))[1] - 52, -1000))
            part = np.rint(rest / unit) * unit
            self.parts.append((tensor(part[:-1], device), tensor(part[-1], device)))
            rest = rest - part
            if np.linalg.norm(unit) < _SMALLEST_PART:
                break
        self.visible_bias = tensor(visible_bias, device)
        self.slope_bias = tensor(visible_bias, device, dtype)
        self.slope_weights = tensor(np.ascontiguousarray(weights.T), device, dtype)

    @staticmethod
    def _activation(parts: Sequence[Tensor]) -> Tensor:
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _with_rest(self, parts: list[Tensor]) -> Carried:
        """Add the sum of log(1 + exp(-abs(a))), and sigma(a).

        The former is the excess of log(1 + exp a) over the positive part of a.
        """
        if self._on_cpu:
            rest, mean = self._room(parts[0])
            rbm.finish(_arrays(parts), mean.numpy(), rest.numpy(), np.empty(mean.shape[1]))
            return *parts, rest, mean
        a = self._activation(parts)
        e = a.abs().neg_().exp_()
        rest = (1.0 + e).log().sum(1, keepdim=True)
        mean = torch.where(a < 0.0, e, 1.0) / (1.0 + e)
        return *parts, rest, mean.to(self.slope_bias.dtype)

    def _room(self, like: Tensor) -> tuple[Tensor, Tensor]:
        rest = like.new_empty(len(like), 1)
        return rest, torch.empty_like(like, dtype=self.slope_bias.dtype)

    def _change(self, carried: Carried, there: Carried) -> Tensor:
        """Sum of the changes of log(1 + exp a), without rounding errors of the size of a."""
        a, b = self._activation(carried[:-2]), self._activation(there[:-2])
        change = b.clamp(min=0.0) - a.clamp(min=0.0)
        if len(self.parts) > 1:
            exact = (there[0] - carried[0]) + (there[1] - carried[1])
            change = torch.where((a > 0.0) & (b > 0.0), exact, change)
        return change.sum(1) + (there[-2] - carried[-2])[:, 0]

    def start(self, x: Tensor) -> Carried:
        """Return the parts of the activations, and the rest of the logarithms."""
        ones = x.double()
        return self._with_rest([bias + ones @ weights for weights, bias in self.parts])

    def move(self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor) -> tuple[Carried, Tensor]:
        if self._on_cpu:
            return self._move_compiled(x, carried, y, sites)
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

    def _move_compiled(
        self, x: Tensor, carried: Carried, y: Tensor, sites: Tensor
    ) -> tuple[Carried, Tensor]:
        before = carried[:-2]
        parts = [torch.empty_like(part) for part in before]
        rest, mean = self._room(parts[0])
        log_ratio = np.empty(len(x))
        weights = _arrays([weights for weights, _ in self.parts])
        there = _arrays(parts), rest.numpy(), mean.numpy(), log_ratio
        rbm.move(
            (x.numpy(), y.numpy()),
            sites.contiguous().numpy(),
            weights,
            self.visible_bias.numpy(),
            (_arrays(before), carried[-2].numpy()),
            there,
            np.empty(mean.shape[1]),
        )
        return (*parts, rest, mean), torch.from_numpy(log_ratio)

    def log_prob(self, x: Tensor, carried: Carried) -> Tensor:
        activation = self._activation(carried[:-2]).clamp(min=0.0).sum(1)
        return x.double() @ self.visible_bias + (activation + carried[-2][:, 0])

    def first_order(self, x: Tensor, carried: Carried) -> Tensor:
        """Gradient b + W sigma(a), with the sign of the flip."""
        n, mean = len(x), carried[-1]
        mean = pad(mean, (0, 0, 0, -n % _ROWS)) if n % _ROWS else mean
        gradient = torch.addmm(self.slope_bias, mean, self.slope_weights)[:n]
        return along_flips(gradient, x)

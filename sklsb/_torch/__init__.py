"""The first-order path (FLSB, Gibbs with gradients) on torch; nothing else imports torch."""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "fast=True and TorchTarget need torch, which is not installed. Install it with "
        "`python -m pip install torch`, or use fast=False and another target."
    ) from error

from sklsb._torch.chains import FastEnsemble
from sklsb._torch.density import Density
from sklsb._torch.learning import check_objective
from sklsb._torch.models.base import Model
from sklsb._torch.placing import device_of, first_order_ratios

__all__ = ["Density", "FastEnsemble", "Model", "check_objective", "device_of", "first_order_ratios"]

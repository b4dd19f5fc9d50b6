"""Log-densities with their gradients, on torch; they know arrays, not targets."""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "fast=True and TorchTarget need torch, which is not installed. Install it with "
        "`python -m pip install torch`, or use fast=False and another target."
    ) from error

from sklsb.targets._torch.density import Density, DensityModel
from sklsb.targets._torch.model import Model
from sklsb.targets._torch.placing import device_of, first_order_ratios, model_on, states_on_torch

__all__ = [
    "Density",
    "DensityModel",
    "Model",
    "device_of",
    "first_order_ratios",
    "model_on",
    "states_on_torch",
]

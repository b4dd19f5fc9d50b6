"""From a target to its first-order model on a device."""

import numpy as np
import torch
from torch import Tensor

from sklsb._system.arrays import Array
from sklsb.targets._torch.density import Density
from sklsb.targets._torch.model import Model
from sklsb.targets._torch.moves import existing_moves
from sklsb.targets.base import States, Target


def _parsed(device: str) -> torch.device:
    """Return a device, if it is there."""
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
    return place


def model_on(target: Target, device: str | None, dtype: torch.dtype) -> Model:
    """Return a target's model on a device; by default the CPU, or where the target's tensors are.

    ``dtype`` is the type of first-order log-ratios, where there is a choice.
    """
    place = torch.device("cpu") if device is None else _parsed(device)
    model = target.offers.torch_model(place, dtype)
    # "cuda" means the current CUDA device.
    same = model.device in (place, torch.empty(0, device=place).device)
    if device is not None and not same:
        raise ValueError(
            f"device is {device!r}, but the log-density is on {model.device}. Make it a "
            f"torch.nn.Module whose tensors are parameters or buffers, and move it with "
            f".to({device!r}); or leave device out."
        )
    return model


def device_of(target: Target, device: str | None) -> torch.device:
    """Return the device to run on."""
    return model_on(target, device, torch.float32).device


def first_order_ratios(target: Target, states: States) -> Array:
    """Return the first-order log-ratios of a target's model at states, (..., n_moves)."""
    flat = states.reshape(-1, target.n_sites)
    model = model_on(target, None, torch.float64)
    x = torch.as_tensor(np.searchsorted(target.values, flat)).to(model.device)
    with model.prepared(), torch.no_grad():
        found = model.first_order(x, model.start(x)).double().cpu().numpy()
    exists = existing_moves(target, model.n_moves_per_site)
    result: Array = found[:, exists.ravel()]
    return result.reshape(*states.shape[:-1], -1)


def states_on_torch(target: Target, given: Tensor | States, one_hot: bool) -> Tensor:
    """Return states in the type that a function on torch takes, or indicators of their values."""
    states = torch.as_tensor(given)
    density: Density | None = vars(target.offers.plain).get("density")
    if density is not None:
        states = states.to(density.device)
        if one_hot:
            return density.one_hot(states)
        return states.to(density.dtype if density.n_values == 2 else torch.int64)
    if not one_hot:
        return states
    values = torch.as_tensor(target.values, device=states.device)
    return (states[..., None] == values).float()

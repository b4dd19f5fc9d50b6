"""What noisy images say about the values of their pixels."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sklsb._system.arrays import Array, Bools
from sklsb.targets._checks import as_array, positive, real_array, refuse


def image_field(
    image: ArrayLike, means: ArrayLike, noise_sd: Any, missing: ArrayLike | None, name: str
) -> Array:
    """Return -|y - mean|^2 / (2 noise_sd^2) of each value at each pixel y, shape (rows, cols, k).

    It is 0 where a pixel is ``missing``. Errors call the means ``name``.
    """
    sd = positive(noise_sd, "noise_sd")
    values, unknown = read_pixels(image, missing)
    levels, channels = real_array(means, name), values.shape[2:]
    if levels.shape[1:] != channels or levels.ndim != 1 + len(channels) or len(levels) < 2:
        needed = f"(k, {channels[0]})" if channels else "(k,)"
        raise ValueError(
            f"{name} has shape {levels.shape}; an image of shape {values.shape} needs {needed}, "
            "with k of at least 2."
        )
    levels = levels.astype(np.float64)
    refuse(~np.isfinite(levels), levels, name, "it must be finite")
    if len(np.unique(levels, axis=0)) < len(levels):
        raise ValueError(f"{name} is {levels.tolist()}; no two entries may be equal.")
    shape = (*values.shape[:2], -1)
    flat, levels = values.reshape(shape), levels.reshape(len(levels), -1)
    with np.errstate(over="ignore"):
        # One level after another: no array of pixels by levels by channels.
        parts = [-0.5 * np.square((flat - level) / sd).sum(axis=2) for level in levels]
    field = np.stack(parts, axis=2)
    if not np.isfinite(field).all():
        raise ValueError(
            f"(image - {name})**2 / noise_sd**2 is not finite for noise_sd {noise_sd!r}. Rescale "
            "the image."
        )
    field[unknown] = 0.0
    return field


def read_pixels(image: ArrayLike, missing: ArrayLike | None) -> tuple[Array, Bools]:
    """Return pixels, 0 where they were not observed, and where that is, also by a mask."""
    unknown: Any = False
    if isinstance(image, np.ma.MaskedArray):
        unknown = np.ma.getmaskarray(image)
        unknown = unknown.any(axis=2) if unknown.ndim == 3 else unknown
        image = image.data
    values = real_array(image, "image").astype(np.float64)
    if values.ndim not in (2, 3):
        raise ValueError(
            f"image has shape {values.shape}; it must have shape (rows, cols), or "
            "(rows, cols, channels) if it has colours."
        )
    if not values.size:
        raise ValueError(f"image has shape {values.shape}: it has no pixels.")
    shape = values.shape[:2]
    given = as_array(np.zeros(shape, np.bool_) if missing is None else missing, "missing")
    if given.dtype.kind != "b" or given.shape != shape:
        raise ValueError(
            f"missing has dtype {given.dtype} and shape {given.shape}; give True or False for each "
            f"pixel, of shape {shape}."
        )
    unknown = given | unknown
    values[unknown] = 0.0
    refuse(~np.isfinite(values), values, "image", "it must be finite where it is not missing")
    return values, unknown

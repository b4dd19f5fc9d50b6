"""What noisy images say about the values of their pixels."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklsb.targets._checks import as_array, positive, real_array, refuse

Array = NDArray[np.float64]


def image_field(
    image: ArrayLike, means: ArrayLike, noise_sd: Any, missing: ArrayLike | None, name: str
) -> Array:
    r"""Return :math:`-|y_i - \mu_s|^2 / (2 \sigma^2)` of each value s at each pixel i.

    Parameters
    ----------
    image : array_like of shape (rows, cols) or (rows, cols, channels)
        Observed pixels y.
    means : array_like of shape (k,) or (k, channels)
        Pixel of each value without noise.
    noise_sd : float
        Standard deviation of the noise.
    missing : array_like of bool, shape (rows, cols), or None
        Pixels that were not observed, which say nothing, whatever stands there.
    name : str
        What errors call the means.

    Returns
    -------
    ndarray of float64, shape (rows, cols, k)
    """
    sd = positive(noise_sd, "noise_sd")
    image, missing = unmasked(image, missing)
    pixels, levels = real_array(image, "image"), real_array(means, name)
    if not pixels.size:
        raise ValueError(f"image has shape {pixels.shape}: it has no pixels.")
    if pixels.ndim not in (2, 3):
        raise ValueError(
            f"image has shape {pixels.shape}; it must have shape (rows, cols), or "
            "(rows, cols, channels) if it has colours."
        )
    channels = pixels.shape[2:]
    if levels.shape[1:] != channels or levels.ndim != 1 + len(channels) or len(levels) < 2:
        needed = f"(k, {channels[0]})" if channels else "(k,)"
        raise ValueError(
            f"{name} has shape {levels.shape}; an image of shape {pixels.shape} needs {needed}, "
            "with k of at least 2."
        )
    levels = levels.astype(np.float64)
    refuse(~np.isfinite(levels), levels, name, "it must be finite")
    if len(np.unique(levels, axis=0)) < len(levels):
        raise ValueError(f"{name} is {levels.tolist()}; no two entries may be equal.")
    values = pixels.astype(np.float64)
    unknown = missing_pixels(missing, values.shape[:2])
    values[unknown] = 0.0
    refuse(~np.isfinite(values), values, "image", "it must be finite where it is not missing")
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


def unmasked(image: ArrayLike, missing: ArrayLike | None) -> tuple[Any, Any]:
    """Return an image and its missing pixels, from its mask if there is one."""
    if not isinstance(image, np.ma.MaskedArray):
        return image, missing
    mask: NDArray[np.bool_] = np.ma.getmaskarray(image)
    if mask.ndim == 3:
        mask = np.any(mask, axis=2)
    if missing is not None:
        mask = mask | missing_pixels(missing, mask.shape)
    return image.data, mask


def missing_pixels(missing: ArrayLike | None, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which pixels were not observed."""
    if missing is None:
        return np.zeros(shape, dtype=np.bool_)
    given = as_array(missing, "missing")
    if given.dtype.kind != "b" or given.shape != shape:
        raise ValueError(
            f"missing has dtype {given.dtype} and shape {given.shape}; give True or False for each "
            f"pixel, of shape {shape}."
        )
    return given

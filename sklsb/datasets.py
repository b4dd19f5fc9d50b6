"""Binary images to train and to sample models of: digits of 8 x 8 and of 28 x 28 pixels."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

__all__ = ["load_digits", "load_mnist"]

_SIDE = 28
_PACKED = -(-(_SIDE**2) // 8)  # bytes of an image
_KEYS = ("x_train", "y_train", "x_test", "y_test")
_LAYOUT = (
    f"an .npz file with {', '.join(_KEYS)} or an .npy file of images; images of shape (n, 784) or "
    f"(n, 28, 28), or (n, {_PACKED}) as np.packbits leaves them"
)


def load_digits(threshold: float = 7) -> Bunch:
    """Binarized 8 x 8 digits of scikit-learn; needs no network.

    Parameters
    ----------
    threshold : float, default=7
        A pixel, 0 to 16, becomes 1 if it is above this.

    Returns
    -------
    sklearn.utils.Bunch
        ``data``, ndarray of int8, shape (1797, 64), values 0 and 1; ``target``, ndarray of int64,
        shape (1797,), the digits; ``shape``, (8, 8), as `sklsb.RBM` takes it; ``DESCR``.

    Raises
    ------
    ValueError
        If the threshold is not from 0 up to, but without, 16: all pixels would be equal.

    See Also
    --------
    sklearn.datasets.load_digits : the grey levels, and where they come from.

    Examples
    --------
    >>> from sklsb.datasets import load_digits
    >>> digits = load_digits()
    >>> for row in digits.data[0].reshape(digits.shape):
    ...     print("".join("-#"[pixel] for pixel in row))
    ---##---
    --####--
    --#--##-
    --#--##-
    --#--##-
    --#--#--
    --#-##--
    ---##---
    """
    from sklearn import datasets

    if not 0 <= threshold < 16:
        raise ValueError(f"threshold is {threshold}; pixels are 0 to 16, it must be in [0, 16).")
    images, digits = datasets.load_digits(return_X_y=True)
    text = (
        f"Digits, 8 x 8 pixels, row by row; 1 where the grey level, 0 to 16, is above {threshold}."
    )
    return Bunch(data=(images > threshold).astype(np.int8), target=digits, shape=(8, 8), DESCR=text)


def load_mnist(
    path: str | os.PathLike[str] | None = None, data_home: str | os.PathLike[str] | None = None
) -> Bunch:
    """Binarized MNIST: handwritten digits of 28 x 28 pixels.

    A pixel becomes 1 if its grey level is above half of the largest, 127.5 of 255.

    Parameters
    ----------
    path : path-like, optional
        A local file. An ``.npz`` file with the arrays x_train, y_train, x_test and y_test, or an
        ``.npy`` file of images without labels. Images have shape (n, 784) or (n, 28, 28), with grey
        levels 0 to 255 or 0 to 1, or shape (n, 98) and dtype uint8: 784 bits packed by
        `numpy.packbits`. If not given, OpenML is asked, through scikit-learn.
    data_home : path-like, optional
        Where scikit-learn keeps what it has fetched; ``~/scikit_learn_data`` if not given.

    Returns
    -------
    sklearn.utils.Bunch
        ``data``, ndarray of int8, shape (n, 784), values 0 and 1, the training images first (60,000
        of 70,000); ``target``, ndarray of int64, shape (n,), the digits, or None if the file has
        none; ``shape``, (28, 28), as `sklsb.RBM` takes it; ``DESCR``.

    Raises
    ------
    FileNotFoundError
        If there is no file at ``path``.
    ValueError
        If the file has other arrays, shapes or grey levels.
    OSError
        If OpenML cannot be reached and has not been before.

    See Also
    --------
    sklearn.datasets.fetch_openml : what fetches it, as ``mnist_784``.

    References
    ----------
    .. [1] Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-based learning applied to
       document recognition", Proceedings of the IEEE 86 (1998).

    Examples
    --------
    >>> from sklsb.datasets import load_mnist
    >>> mnist = load_mnist()  # doctest: +SKIP
    >>> mnist.data.shape, mnist.target.shape  # doctest: +SKIP
    ((70000, 784), (70000,))
    """
    images, digits = _fetch(data_home) if path is None else _read(Path(path))
    source = "OpenML" if path is None else str(path)
    text = f"MNIST from {source}, 28 x 28 pixels, row by row; 1 where the grey level is above half."
    return Bunch(data=images, target=digits, shape=(_SIDE, _SIDE), DESCR=text)


def _fetch(data_home: Any) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    from sklearn.datasets import fetch_openml

    try:
        found = fetch_openml("mnist_784", version=1, as_frame=False, data_home=data_home)
    except OSError as error:
        raise OSError(
            f"MNIST cannot be fetched from OpenML ({error}). Give a local file, "
            f"load_mnist(path=...): {_LAYOUT}; or take load_digits, which needs no network."
        ) from error
    return _binary(found.data, "OpenML"), found.target.astype(np.int64)


def _read(path: Path) -> tuple[NDArray[np.int8], NDArray[np.int64] | None]:
    if not path.is_file():
        raise FileNotFoundError(f"path is {str(path)!r}, which is no file; give {_LAYOUT}.")
    try:
        content = np.load(path)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} cannot be read ({error}); give {_LAYOUT}.") from error
    if isinstance(content, np.ndarray):
        return _binary(content, str(path)), None
    with content:
        missing = [key for key in _KEYS if key not in content]
        if missing:
            raise ValueError(
                f"{path} has the arrays {sorted(content)} and lacks {missing}; give {_LAYOUT}."
            )
        x_train, y_train, x_test, y_test = (content[key] for key in _KEYS)
    images = np.concatenate([_binary(x, f"{path}") for x in (x_train, x_test)])
    digits = np.concatenate([y_train, y_test]).astype(np.int64)
    if digits.shape != images.shape[:1]:
        raise ValueError(
            f"{path} has {len(images)} images but labels of shape {digits.shape}; one label per "
            "image is needed."
        )
    return images, digits


def _binary(images: NDArray[Any], source: str) -> NDArray[np.int8]:
    """Images of any of the layouts as 0 and 1, shape (n, 784)."""
    pixels = (_SIDE**2,), (_SIDE, _SIDE)
    if images.dtype == np.uint8 and images.ndim == 2 and images.shape[1] == _PACKED:
        return np.unpackbits(images, axis=1, count=_SIDE**2).astype(np.int8)
    if images.shape[1:] not in pixels or images.dtype.kind not in "buif":
        raise ValueError(
            f"{source} has images of shape {images.shape} and dtype {images.dtype}; give {_LAYOUT}."
        )
    low, high = images.min(initial=0), images.max(initial=0)
    if not 0 <= low <= high <= 255:
        raise ValueError(
            f"{source} has grey levels from {low} to {high}; they must be 0 to 255, or 0 to 1."
        )
    half = 127.5 if high > 1 else 0.5
    return (images.reshape(len(images), -1) > half).astype(np.int8)

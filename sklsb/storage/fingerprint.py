"""Whether a target is the one that chains were run on."""

import hashlib
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklsb.targets.base import States, Target

# States at which log p is compared, besides those given.
_N_PROBES = 4
# Relative difference of log p that is one of rounding, in float64 and in float32.
_ROUNDING, _SINGLE = 1e-9, 1e-4


def fingerprint(target: Target, states: States) -> dict[str, Any]:
    """Return what tells a target from others.

    Parameters
    ----------
    target : Target
        The target.
    states : ndarray of shape (n, n_sites)
        States at which log p is looked at, with some random ones: of a function of the user
        nothing else is known.
    """
    digest = hashlib.blake2b(digest_size=16)
    _walk(digest, target.__getstate__())
    values = np.asarray(target.values, dtype=target.dtype)
    rng = np.random.default_rng(0)
    more = [values[rng.integers(target.cardinalities)] for _ in range(_N_PROBES)]
    x = np.concatenate([states, np.array(more, target.dtype).reshape(-1, target.n_sites)])
    return {
        "class": type(target).__qualname__,
        "named": repr(target)[:200],
        "shape": target.shape,
        "digest": digest.hexdigest(),
        "x": x,
        "log_prob": target.log_prob(x),
    }


def difference(target: Target, known: dict[str, Any]) -> str:
    """Tell how a target differs from the one with a fingerprint; empty if it does not."""
    name = f"this is {repr(target)[:200]}; it was {known['named']}"
    if type(target).__qualname__ != known["class"] or target.shape != known["shape"]:
        return name
    digest = hashlib.blake2b(digest_size=16)
    _walk(digest, target.__getstate__())
    if digest.hexdigest() != known["digest"]:
        return f"{name}, with other parameters"
    now, then = target.log_prob(known["x"]), known["log_prob"]
    rounding = _SINGLE if hasattr(target, "density") else _ROUNDING
    same = np.isclose(now, then, rtol=rounding, atol=rounding)
    if not same.all():
        k = int(same.argmin())
        return f"{name}, but log p of a state is {now[k]:.12g} where it was {then[k]:.12g}"
    return ""


def _walk(digest: Any, value: Any) -> None:
    """Feed a value to a checksum; of code nothing but the arrays that it refers to."""
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        _put(digest, "array", value.dtype.str, value.shape)
        digest.update(np.ascontiguousarray(value).tobytes())
    elif sp.issparse(value):
        found = sp.csr_array(value, copy=True)
        found.sum_duplicates()
        index = [found.indices.astype(np.int64), found.indptr.astype(np.int64)]
        _walk(digest, [found.shape, found.data, *index])
    elif isinstance(value, np.generic):
        _walk(digest, value.item())
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        _put(digest, repr(value))
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            _walk(digest, [str(key), value[key]])
    elif isinstance(value, list | tuple | np.ndarray):
        _put(digest, "list", len(value))
        for item in value:
            _walk(digest, item)
    elif isinstance(value, Target):
        _put(digest, type(value).__qualname__)
        _walk(digest, value.__getstate__())
    elif hasattr(value, "state_dict"):  # a module of torch
        for name, tensor in value.state_dict().items():
            _walk(digest, [name, tensor.detach().cpu().numpy()])
    elif type(value).__module__.startswith("sklsb.") and hasattr(value, "__dict__"):
        _put(digest, type(value).__name__)
        _walk(digest, vars(value))
    else:
        _put(digest, type(value).__name__)
        for cell in getattr(value, "__closure__", None) or ():
            if isinstance(cell.cell_contents, np.ndarray | int | float | str):
                _walk(digest, cell.cell_contents)


def _put(digest: Any, *words: Any) -> None:
    digest.update(repr(words).encode())

"""Checks that a target is the one that chains ran on, and that its kernels agree with it."""

import hashlib
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklsb._system.arrays import Array
from sklsb.targets.base import States, Target

# Random states at which log p is compared, besides those given; and states near these.
_N_PROBES, _N_NEAR = 4, 4
# Relative differences of log p due to rounding, in float64 and in float32.
_ROUNDING, _SINGLE = 1e-9, 1e-4


def where_different(target: Target, x: States, one: Array, other: Array) -> int | None:
    """Return the index of a state at which two computations of log p differ by more than rounding.

    None if there is none.
    """
    size = 1.0 + abs(target.constant) + np.where(np.isfinite(other), np.abs(other), 0.0)
    with np.errstate(invalid="ignore"):
        gap = np.where(one == other, 0.0, np.abs(one - other))
    gap[np.isnan(gap)] = np.inf
    doubtful = np.flatnonzero(gap > _ROUNDING * size)
    # Its terms may be larger, or it is in single precision: look closer, which may take long, first
    # at the most doubtful state.
    order = doubtful[np.argsort(-gap[doubtful] / size[doubtful], kind="stable")]
    for some in (order[:1], order[1:]):
        if some.size:
            relative = _SINGLE if target.offers.single_precision else _ROUNDING
            gate = relative * (size[some] + _size_of_terms(target, x[some]))
            beyond = some[gap[some] > gate + np.sum(target.rounding)]
            if beyond.size:
                return int(beyond[0])
    return None


def terms_at(target: Target, x: States) -> Iterator[Array]:
    """Yield the entries of the factors at states, one factor after another."""
    index = np.searchsorted(target.values, x)
    for scope, table in target.log_factors or ():
        yield table[tuple(index[:, i] for i in scope)]


def _size_of_terms(target: Target, x: States) -> Array:
    """Return the sum of the absolute values of the terms of log p at states."""
    found = np.zeros(len(x))
    if target.offers.factors:
        for term in terms_at(target, x):
            found += magnitudes(term)
    else:
        with np.errstate(invalid="ignore"):  # out of an impossible state
            found += magnitudes(target.log_ratios(x)).sum(axis=-1)
    return found


def magnitudes(values: Array) -> Array:
    """Return absolute values, with 0 for infinite ones, which do not round."""
    return np.where(np.isfinite(values), np.abs(values), 0.0)


def by_kernels(ensemble: Any) -> tuple[States, Array]:
    """Return the present states of chains, and log p there by the kernels."""
    return ensemble.chains.x.copy(), ensemble.log_prob() + ensemble.target.constant


def checked(ensemble: Any) -> tuple[States, Array]:
    """Return the same, if the target computes the same log p."""
    target: Target = ensemble.target
    x, found = by_kernels(ensemble)
    wanted = target.log_prob(x)
    _compare(target, x, found, wanted, "its kernels say")
    if ensemble.uses_factors and not target.offers.own_factors:
        total = sum(terms_at(target, x), np.zeros(len(x)))
        _compare(target, x, total, wanted, "the sum of its log_factors is")
    return x, found


def _compare(target: Target, x: States, found: Array, wanted: Array, what: str) -> None:
    c = where_different(target, x, found, wanted)
    if c is not None:
        raise ValueError(
            f"log_prob of {repr(target)[:200]} at the state of chain {c} is {wanted[c]:.12g}, and "
            f"{what} {found[c]:.12g}: chains would sample something else. They must agree up to "
            "rounding (the attribute `rounding`), and depend on the state alone; "
            "sklsb.testing.check_target(target) tells where they differ."
        )


def probed(target: Target, x: States, seed: int) -> tuple[States, Array]:
    """Return states one change away from some of x, and log p there."""
    # Not at any states: a function may fail where chains do not go.
    values, rng = np.asarray(target.values, dtype=target.dtype), np.random.default_rng(seed)
    near, site = x[rng.integers(len(x), size=_N_NEAR)], target.offers.site_of_moves
    if site.size:
        row, move = np.arange(_N_NEAR), rng.integers(site.size, size=_N_NEAR)
        after = target.offers.after_moves(np.searchsorted(values, near))
        near[row, site[move]] = values[after[row, move]]
    return near, target.log_prob(near)


def fingerprint(target: Target, states: States) -> dict[str, Any]:
    """Return what tells a target from others: its parameters, and log p at some states.

    For a function of the user the values are all that can be compared: at ``states``, of shape
    (n, n_sites), and at random ones.
    """
    values = np.asarray(target.values, dtype=target.dtype)
    rng = np.random.default_rng(0)
    more = [values[rng.integers(target.cardinalities)] for _ in range(_N_PROBES)]
    x = np.concatenate([states, np.array(more, target.dtype).reshape(len(more), target.n_sites)])
    return {
        "class": type(target).__qualname__,
        "named": repr(target)[:200],
        "shape": target.shape,
        "digest": digest_of_value(_parameters(target)),
        "x": x,
        "log_prob": target.log_prob(x),
    }


def difference(target: Target, known: dict[str, Any]) -> str:
    """Tell how a target differs from the one with a fingerprint, or return ""."""
    name = f"this is {repr(target)[:200]}; it was {known['named']}"
    if type(target).__qualname__ != known["class"] or target.shape != known["shape"]:
        return name
    if digest_of_value(_parameters(target)) != known["digest"]:
        return f"{name}, with other parameters"
    now, then = target.log_prob(known["x"]), known["log_prob"]
    k = where_different(target, known["x"], now, then)
    if k is not None:
        return f"{name}, but log p of a state is {now[k]:.12g} where it was {then[k]:.12g}"
    return ""


def digest_of_value(value: Any) -> str:
    """Return a checksum of a value; of a function, only of the values it closes over."""
    digest = hashlib.blake2b(digest_size=16)
    _walk(digest, value)
    return digest.hexdigest()


def _parameters(target: Target) -> dict[str, Any]:
    """Return what log p depends on: not the unit of energies, or the names of two values."""
    state = target.__getstate__()
    return {name: value for name, value in state.items() if name not in ("_beta", "_vartype")}


def _walk(digest: Any, value: Any) -> None:
    """Feed a value to a checksum."""
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
        _walk(digest, _parameters(value))
    elif hasattr(value, "state_dict"):  # a module of torch
        for name, tensor in value.state_dict().items():
            _walk(digest, [name, tensor.detach().cpu().numpy()])
    elif type(value).__module__.startswith("sklsb."):
        _put(digest, type(value).__name__)
        _walk(digest, vars(value))
    else:
        _put(digest, type(value).__name__)
        is_function = isinstance(value, FunctionType | MethodType)
        for cell in (value.__closure__ or ()) if is_function else ():
            if isinstance(cell.cell_contents, np.ndarray | int | float | str):
                _walk(digest, cell.cell_contents)


def _put(digest: Any, *words: Any) -> None:
    digest.update(repr(words).encode())

"""Rows of a classification: equal rows are one row with several trials."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklsb._system.arrays import Array, Ints


class Rows(NamedTuple):
    """Distinct rows in a canonical order, with their counts."""

    X: Any  # (n, p), an array or a CSR matrix
    n_successes: Array  # (n,)
    n_trials: Ints  # (n,), at least 1


def distinct_rows(X: Any, n_successes: Array, n_trials: Ints) -> Rows:
    """Join equal rows and leave out those without trials.

    The binomial likelihood is the same. So the order of rows, and whether one is repeated or has a
    weight, do not change a bit of what follows; and repeated rows cost nothing.
    """
    used = n_trials > 0
    X, n_successes, n_trials = X[used], n_successes[used], n_trials[used]
    if sparse.issparse(X):
        X = X.tocsr().sorted_indices()
        X.eliminate_zeros()
        parts = [
            X.indices[a:b].astype(np.int64).tobytes() + X.data[a:b].tobytes()
            for a, b in pairwise(X.indptr)
        ]
        keys: Any = np.array(parts, dtype=object)
    else:
        X = np.ascontiguousarray(X) + 0.0  # -0 is 0
        keys = X.view(np.dtype((np.void, X.shape[1] * X.itemsize)))[:, 0]
    order = np.argsort(keys, kind="stable")
    first = np.flatnonzero(np.append(True, keys[order][1:] != keys[order][:-1]))
    X = X[order[first]]
    totals = (np.add.reduceat(counts[order], first) for counts in (n_successes, n_trials))
    return Rows(X, *totals)


def counts_of(sample_weight: Any, n: int) -> Ints:
    """Return weights of n rows as counts, or raise."""
    weights = np.asarray(1 if sample_weight is None else sample_weight, dtype=np.float64)
    weights = np.full(n, weights) if weights.ndim == 0 else weights
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}; it must have one number for each of the {n} "
            "rows of X."
        )
    return whole_numbers(
        weights,
        "sample_weight",
        0,
        "weights count how often a row was observed, so they must be whole numbers: a posterior "
        "given a fraction of an observation is not defined.",
    )


def whole_numbers(
    values: Array, name: str, least: int, rule: str, most: Ints | None = None
) -> Ints:
    """Return whole numbers from ``least`` to the trials ``most``, or raise and tell the rule."""
    bad = ~((values >= least) & (values == np.floor(values)) & (values < 2.0**31))
    bad |= False if most is None else values > most
    if bad.any():
        i = int(bad.argmax())
        of = "" if most is None else f", of {most[i]} trials"
        raise ValueError(f"{name}[{i}] is {values[i]:g}{of}; {rule}")
    return values.astype(np.int64)

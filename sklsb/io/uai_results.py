"""Result files of the UAI inference competitions: marginals, partition functions, best states."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklsb.io._tokens import LARGEST_INTEGER, Tokens
from sklsb.io.uai import UAIFormatError

__all__ = ["read_mar", "read_mpe", "read_pr", "write_mar", "write_mpe", "write_pr"]

PathLike = str | os.PathLike[str]
_MOST_VALUES = 1 << 15


def _begin(tokens: Tokens, kind: bytes, alone: int) -> None:
    """Take the kind of result and, in the older format, the number of samples.

    ``alone`` is how many tokens a file has that begins with 1 and means one variable.
    """
    tokens.keyword("the kind of result", (kind,))
    if tokens.peek() == b"1" and len(tokens.words) != alone:
        tokens.integer("the number of samples", 1, 1)


def _write(path: PathLike, read: Callable[[Tokens], Any], *lines: str) -> None:
    """Write a file, but none that ``read`` refuses."""
    tokens = Tokens(path, UAIFormatError, data=("\n".join(lines) + "\n").encode())
    read(tokens)
    Path(path).write_bytes(tokens.data)


def read_mar(path: PathLike) -> list[NDArray[np.float64]]:
    """Read marginals in the format of the UAI competitions.

    The file holds ``MAR``, the number of variables and then, of each, the number of its values and
    their probabilities. In the older format the number of samples, 1, stands before that.

    Parameters
    ----------
    path : path-like
        A text file, or one compressed by gzip.

    Returns
    -------
    list of ndarray of float64
        Probabilities of the values of each variable, each ``float`` of its token.

    Raises
    ------
    UAIFormatError
        If the file is anything else, or a number is no probability. That they sum to 1 is not
        checked.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklsb.io import read_mar, write_mar
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pair.uai.MAR")
    >>> write_mar(path, [[0.25, 0.75], [0.5, 0.25, 0.25]])
    >>> print(path.read_text().strip())
    MAR
    2 2 0.25 0.75 3 0.5 0.25 0.25
    >>> read_mar(path)
    [array([0.25, 0.75]), array([0.5 , 0.25, 0.25])]
    """
    return _read_mar(Tokens(path, UAIFormatError))


def _read_mar(tokens: Tokens) -> list[NDArray[np.float64]]:
    size = tokens.words[2] if len(tokens.words) > 2 else b""
    _begin(tokens, b"MAR", 3 + int(size) if size.isdigit() and len(size) < 10 else 0)
    n = tokens.integer("the number of variables", 0)
    result: list[NDArray[np.float64]] = []
    while len(result) < n:
        name = f"variable {len(result)} of {n}"
        k = tokens.integer(f"the number of values of {name}", 1, _MOST_VALUES)
        first = tokens.at
        p = tokens.numbers(k, f"the probabilities of {name}", low=0.0)
        if (p > 1.0).any():
            bad = int((p > 1.0).argmax())
            what = f"number {bad + 1} of {k} of the probabilities of {name}"
            raise tokens.wrong(first + bad, what, "a number from 0 to 1")
        result.append(p)
    tokens.end(f"the {n} variables")
    return result


def write_mar(path: PathLike, marginals: Sequence[ArrayLike]) -> None:
    """Write marginals in the format of the UAI competitions.

    Parameters
    ----------
    path : path-like
        The file; it is overwritten.
    marginals : sequence of array_like
        Probabilities of the values of each variable. Of `sklsb.exact.marginals`:
        ``[p[:k] for p, k in zip(found["p"].values, target.cardinalities)]``.

    Raises
    ------
    UAIFormatError
        If `read_mar` would refuse the file; it is not written.
    OSError
        If the file cannot be written.
    """
    words = [str(len(marginals))]
    for given in marginals:
        p = np.asarray(given, dtype=np.float64).ravel().tolist()
        words += [str(len(p)), *map(repr, p)]
    _write(path, _read_mar, "MAR", " ".join(words))


def read_pr(path: PathLike) -> float:
    """Read a partition function, or probability of evidence, of the UAI competitions.

    The file holds ``PR`` and the logarithm to base 10. In the older format the number of samples,
    1, stands before that.

    Parameters
    ----------
    path : path-like
        A text file, or one compressed by gzip.

    Returns
    -------
    float
        Logarithm to base 10, as it is written; `sklsb.exact.log_partition` is that times
        ``math.log(10)``.

    Raises
    ------
    UAIFormatError
        If the file is anything else.
    OSError
        If the file cannot be opened.
    """
    return _read_pr(Tokens(path, UAIFormatError))


def _read_pr(tokens: Tokens) -> float:
    _begin(tokens, b"PR", 2)
    value = float(tokens.numbers(1, "the logarithm of the partition function")[0])
    tokens.end("the logarithm")
    return value


def write_pr(path: PathLike, log10_z: float) -> None:
    """Write a partition function in the format of the UAI competitions.

    Parameters
    ----------
    path : path-like
        The file; it is overwritten.
    log10_z : float
        Its logarithm to base 10: ``exact.log_partition(target) / math.log(10)``.

    Raises
    ------
    UAIFormatError
        If it is not finite; the file is not written.
    OSError
        If the file cannot be written.
    """
    _write(path, _read_pr, "PR", repr(float(log10_z)))


def read_mpe(path: PathLike) -> NDArray[np.int64]:
    """Read a most probable state in the format of the UAI competitions.

    The file holds ``MPE``, the number of variables, and the value of each. In the older format the
    number of samples, 1, stands before that.

    Parameters
    ----------
    path : path-like
        A text file, or one compressed by gzip.

    Returns
    -------
    ndarray of int64, shape (variables,)
        Values, from 0.

    Raises
    ------
    UAIFormatError
        If the file is anything else.
    OSError
        If the file cannot be opened.
    """
    return _read_mpe(Tokens(path, UAIFormatError))


def _read_mpe(tokens: Tokens) -> NDArray[np.int64]:
    _begin(tokens, b"MPE", 3)
    n = tokens.integer("the number of variables", 0, LARGEST_INTEGER)
    values: list[int] = []
    while len(values) < n:
        what = f"the value of variable {len(values)} of {n}"
        values.append(tokens.integer(what, 0, _MOST_VALUES - 1))
    tokens.end(f"the {n} values")
    return np.array(values, dtype=np.int64)


def write_mpe(path: PathLike, x: ArrayLike) -> None:
    """Write a most probable state in the format of the UAI competitions.

    Parameters
    ----------
    path : path-like
        The file; it is overwritten.
    x : array_like of int
        Value of each variable, from 0.

    Raises
    ------
    UAIFormatError
        If a value is no such integer; the file is not written.
    OSError
        If the file cannot be written.
    """
    values = np.asarray(x).ravel().tolist()
    _write(path, _read_mpe, "MPE", " ".join(map(str, [len(values), *values])))

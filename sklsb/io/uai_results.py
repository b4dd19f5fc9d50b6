"""Result files of the UAI inference competitions: marginals, partition functions, best states."""

from pathlib import Path
from typing import Any

import numpy as np

from sklsb._system.arrays import Array
from sklsb.io._tokens import PathLike, Tokens
from sklsb.io.uai import COMMENT, UAIFormatError

_MOST_VALUES = 1 << 15


def read_result(path: PathLike) -> Any:
    """Read a result file of the UAI competitions; its first word names its content.

    - ``MAR``: the number of variables and then, for each, the number of its values and their
      probabilities.
    - ``PR``: the logarithm to base 10 of the partition function, or of the probability of evidence.
    - ``MPE``: the number of variables, and the value of each in a most probable state.

    In the older format the number of samples, 1, comes second.

    Parameters
    ----------
    path : path-like
        A text file, which may be compressed (gzip, bzip2, xz, zip).

    Returns
    -------
    list of ndarray of float64, float, or ndarray of int64
        For ``MAR`` the probabilities of the values of each variable, for ``PR`` the logarithm, for
        ``MPE`` the values, from 0. Numbers are the nearest float64.

    Raises
    ------
    UAIFormatError
        If the file is anything else, or a number in ``MAR`` is not from 0 to 1. Whether
        probabilities sum to 1 is not checked.
    OSError
        If the file cannot be opened.

    See Also
    --------
    write_result : writes these files, with an example.
    """
    return _read(Tokens(path, UAIFormatError, comment=COMMENT))


def write_result(path: PathLike, kind: str, values: Any) -> None:
    """Write a result file of the UAI competitions.

    Parameters
    ----------
    path : path-like
        The file; it is overwritten.
    kind : {"MAR", "PR", "MPE"}
        What to write.
    values : sequence of array_like, float, or array_like of int
        What `read_result` returns for this kind. With ``found = exact.marginals(target)``,
        ``MAR`` takes ``[p[:k] for p, k in zip(found["p"].values, target.cardinalities)]``; ``PR``
        takes ``exact.log_partition(target) / math.log(10)``.

    Raises
    ------
    UAIFormatError
        If `read_result` would refuse the file; it is not written.
    ValueError
        If there is no such kind.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklsb.io import read_result, write_result
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pair.uai.MAR")
    >>> write_result(path, "MAR", [[0.25, 0.75], [0.5, 0.25, 0.25]])
    >>> print(path.read_text().strip())
    MAR
    2 2 0.25 0.75 3 0.5 0.25 0.25
    >>> read_result(path)
    [array([0.25, 0.75]), array([0.5 , 0.25, 0.25])]
    """
    if kind == "MAR":
        words: list[float] = [len(values)]
        for given in values:
            p = np.asarray(given, dtype=np.float64).ravel().tolist()
            words += [len(p), *p]
    elif kind == "PR":
        words = [float(values)]
    elif kind == "MPE":
        x = np.asarray(values).ravel().tolist()
        words = [len(x), *x]
    else:
        raise ValueError(f'kind is {kind!r}; give "MAR", "PR" or "MPE".')
    data = f"{kind}\n{' '.join(map(repr, words))}\n".encode()
    _read(Tokens(path, UAIFormatError, data=data))
    Path(path).write_bytes(data)


def _read(tokens: Tokens) -> Any:
    kind = tokens.keyword("the kind of result", (b"MAR", b"PR", b"MPE"))
    # Length of a file in which the next 1 is not the number of samples, but its content.
    alone = {b"PR": 2, b"MPE": 3}.get(kind, 0)
    size = tokens.words[2] if len(tokens.words) > 2 else b""
    if kind == b"MAR" and size.isdigit() and len(size) < 10:
        alone = 3 + int(size)
    if tokens.peek() == b"1" and len(tokens.words) != alone:
        tokens.integer("the number of samples", 1, 1)
    result: Any
    if kind == b"PR":
        result = float(tokens.numbers(1, "the logarithm of the partition function")[0])
        tokens.end("the logarithm")
        return result
    n = tokens.integer("the number of variables", 0)
    if kind == b"MAR":
        result = [_read_probabilities(tokens, f"variable {i} of {n}") for i in range(n)]
        tokens.end(f"the {n} variables")
        return result
    values = [
        tokens.integer(f"the value of variable {i} of {n}", 0, _MOST_VALUES - 1) for i in range(n)
    ]
    tokens.end(f"the {n} values")
    return np.array(values, dtype=np.int64)


def _read_probabilities(tokens: Tokens, name: str) -> Array:
    k = tokens.integer(f"the number of values of {name}", 1, _MOST_VALUES)
    first = tokens.at
    p = tokens.numbers(k, f"the probabilities of {name}", low=0.0)
    if (p > 1.0).any():
        bad = int((p > 1.0).argmax())
        what = f"number {bad + 1} of {k} of the probabilities of {name}"
        raise tokens.wrong(first + bad, what, "a number from 0 to 1")
    return p

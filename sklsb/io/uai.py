"""Files of the UAI inference competitions."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb.io._tokens import LARGEST_INTEGER, FormatError, PathLike, Tokens

_MOST_DIMENSIONS = 64  # of a NumPy array
COMMENT = rb"#[^\r\n]*"


class UAIFormatError(FormatError):
    """A file that is not in a format of the UAI competitions."""


class Model(NamedTuple):
    r"""Factor tables over variables of finitely many states.

    .. math:: p(x) \propto \prod_f \mathrm{tables}_f[x_{\mathrm{scopes}_f}]

    Attributes
    ----------
    kind : {"MARKOV", "BAYES"}
        With "BAYES", each variable is the last of exactly one scope, whose table holds its
        probabilities given the others.
    cardinalities : tuple of int
        Number of states of each variable.
    scopes : list of tuple of int
        Variables of each factor.
    tables : list of ndarray of float64
        Factors, finite and not negative; one axis per variable of the scope.
    names : tuple of str, optional
        Names of the variables.
    state_names : tuple of tuple of str, optional
        Names of the states of each variable.
    """

    kind: str
    cardinalities: tuple[int, ...]
    scopes: list[tuple[int, ...]]
    tables: list[NDArray[np.float64]]
    names: tuple[str, ...] | None = None
    state_names: tuple[tuple[str, ...], ...] | None = None


def read_uai(path: PathLike) -> Model:
    """Read a model in the format of the UAI competitions.

    The file holds ``MARKOV`` or ``BAYES``, the number of variables, their cardinalities and the
    number of factors; for each factor, the size of its scope and its variables, from 0; then for
    each factor, the number of its entries and the entries, the last variable running fastest. Line
    breaks do not matter [1]_. Comments, from ``#`` to the end of the line, are ignored.

    Parameters
    ----------
    path : path-like
        A text file, which may be compressed (gzip, bzip2, xz, zip).

    Returns
    -------
    Model
        A named tuple: ``kind``, ``cardinalities``, ``scopes``, ``tables``, and ``names`` and
        ``state_names``, which are None. Entries are the nearest float64.

    Raises
    ------
    UAIFormatError
        If the file ends early or goes on, a variable does not exist or appears twice in a scope, a
        scope has more than 64 variables, a table does not have the size of its scope, or an entry
        is negative or not finite. In a ``BAYES`` file also if not every variable is the last of
        one scope. `sklsb.MarkovNetwork` warns of probabilities that do not sum to 1.
    OSError
        If the file cannot be opened.

    See Also
    --------
    read_evidence : reads observations.

    References
    ----------
    .. [1] UAI 2014 Inference Competition, description of the file format.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklsb.io import read_uai
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pair.uai")
    >>> _ = path.write_text("MARKOV 2  2 3  1  2 0 1  6  1 2 3 4 5 4e-05")
    >>> model = read_uai(path)
    >>> model.cardinalities, model.scopes
    ((2, 3), [(0, 1)])
    >>> model.tables[0]
    array([[1.e+00, 2.e+00, 3.e+00],
           [4.e+00, 5.e+00, 4.e-05]])
    """
    return _read_model(Tokens(path, UAIFormatError, comment=COMMENT))


def _read_model(tokens: Tokens) -> Model:
    kind = tokens.keyword("the kind of network", (b"MARKOV", b"BAYES")).decode()
    n = tokens.integer("the number of variables", 0)
    # Nothing is allocated by a count of the file: a wrong one runs into the end of the file.
    cardinalities: list[int] = []
    while len(cardinalities) < n:
        cardinalities.append(tokens.integer(f"cardinality {len(cardinalities)} of {n}", 1))
    scopes = _read_scopes(tokens, n, kind == "BAYES")
    tables = []
    for i, scope in enumerate(scopes):
        shape = [cardinalities[v] for v in scope]
        size = math.prod(shape)
        why = f", the product of the cardinalities {shape} of its variables"
        tokens.integer(f"the number of entries of table {i}", size, size, why)
        tables.append(tokens.numbers(size, f"table {i}", low=0.0).reshape(shape))
    tokens.end(f"the {len(tables)} tables")
    return Model(kind, tuple(cardinalities), scopes, tables)


def _read_scopes(tokens: Tokens, n: int, bayes: bool) -> list[tuple[int, ...]]:
    low, high, why = 0, LARGEST_INTEGER, ""
    if bayes:
        low, high, why = n, n, " in a BAYES file: one factor for each variable"
    count = tokens.integer("the number of factors", low, high, why)
    scopes: list[tuple[int, ...]] = []
    children: set[int] = set()
    while len(scopes) < count:
        name = f"scope {len(scopes)}"
        most = min(n, _MOST_DIMENSIONS)
        size = tokens.integer(f"the number of variables of {name}", int(bayes), most)
        scope = tuple(tokens.integer(f"a variable of {name}", 0, n - 1) for _ in range(size))
        if len(set(scope)) < size:
            again = next(k for k in range(size) if scope[k] in scope[:k])
            raise tokens.wrong(
                tokens.at - size + again, f"a variable of {name}", "each variable once"
            )
        if bayes and scope[-1] in children:
            raise tokens.wrong(
                tokens.at - 1,
                f"the last variable of {name}",
                "in a BAYES file each variable as the last of one scope only",
            )
        children.update(scope[-1:])
        scopes.append(scope)
    return scopes


def read_evidence(path: PathLike, cardinalities: Sequence[int]) -> dict[int, int]:
    r"""Read which variables were observed, and in which state.

    The file holds the number of observations and, for each, the variable and its state, both from
    0 (UAI 2014). In the older format (2006 to 2010) the number of samples, 1, comes first on a line
    of its own. A number alone on the first line is taken for the number of samples, unless exactly
    that many pairs of a variable and a state follow.

    Parameters
    ----------
    path : path-like
        A text file, which may be compressed (gzip, bzip2, xz, zip). An empty one means no
        observations.
    cardinalities : sequence of int
        Number of states of each variable, as from `read_uai`.

    Returns
    -------
    dict of int to int
        State of each observed variable, in the order of the file.

    Raises
    ------
    UAIFormatError
        If the file is anything else, holds several samples, observes a variable twice, or names a
        variable or state that does not exist.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklsb.io import read_evidence
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pair.uai.evid")
    >>> for text in ("2  0 1  4 0", "1\n2  0 1  4 0", "1\n0", "0"):
    ...     _ = path.write_text(text)
    ...     print(read_evidence(path, cardinalities=[2] * 5))
    {0: 1, 4: 0}
    {0: 1, 4: 0}
    {}
    {}
    """
    tokens = Tokens(path, UAIFormatError, comment=COMMENT)
    evidence: dict[int, int] = {}
    if not tokens.words:
        return evidence
    count = tokens.integer("the number of observations or of samples", 0)
    if tokens.words_by_line()[0] == 1 and len(tokens.words) != 1 + 2 * count:
        tokens.at = 0
        tokens.integer("the number of samples", 1, 1, ": split files of several samples")
        count = tokens.integer("the number of observations", 0)
    for i in range(count):
        name = f"observation {i} of {count}"
        variable = tokens.integer(f"the variable of {name}", 0, len(cardinalities) - 1)
        if variable in evidence:
            raise tokens.wrong(tokens.at - 1, f"the variable of {name}", "each variable once")
        evidence[variable] = tokens.integer(f"the state of {name}", 0, cardinalities[variable] - 1)
    tokens.end(f"the {count} observations")
    return evidence


def write_uai(path: PathLike, model: Model) -> None:
    """Write a model in the format of the UAI competitions.

    Parameters
    ----------
    path : path-like
        The file; it is overwritten.
    model : Model
        What `read_uai` or `read_bif` returns. Names are not kept; entries read back bit for bit.

    Raises
    ------
    UAIFormatError
        If `read_uai` would refuse the file; it is not written.
    ValueError
        If the shape of a table is not the cardinalities of its scope.
    OSError
        If the file cannot be written.

    See Also
    --------
    sklsb.MarkovNetwork.to_uai : writes a network.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklsb.io import read_uai, write_uai
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pair.uai")
    >>> _ = path.write_text("MARKOV 2  2 2  1  2 0 1  4  1 .1 .1 1")
    >>> write_uai(path, read_uai(path))
    >>> print(path.read_text())
    MARKOV
    2
    2 2
    1
    2 0 1
    <BLANKLINE>
    4
    1.0 0.1 0.1 1.0
    """
    lines = [
        model.kind,
        f"{len(model.cardinalities)}",
        " ".join(map(str, model.cardinalities)),
        f"{len(model.scopes)}",
        *(" ".join(map(str, (len(scope), *scope))) for scope in model.scopes),
    ]
    for table in model.tables:
        entries = np.asarray(table, dtype=np.float64).ravel().tolist()
        lines += ["", f"{len(entries)}", " ".join(map(repr, entries))]
    data = ("\n".join(lines) + "\n").encode()
    written = _read_model(Tokens(path, UAIFormatError, data=data))
    for i, (given, table) in enumerate(zip(model.tables, written.tables, strict=True)):
        if np.shape(given) != table.shape:
            raise ValueError(
                f"tables[{i}] has shape {np.shape(given)}; the cardinalities of its scope "
                f"{model.scopes[i]} are {table.shape}."
            )
    Path(path).write_bytes(data)

"""Files of the UAI inference competitions."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb.io._formats import register
from sklsb.io._tokens import LARGEST_INTEGER, FormatError, Tokens

__all__ = ["Model", "UAIFormatError", "read_evidence", "read_uai", "write_uai"]

register("uai", ".uai", target="sklsb.targets:MarkovNetwork.from_uai", options=("evidence",))(Path)

_MOST_DIMENSIONS = 64  # of a NumPy array


class UAIFormatError(FormatError):
    """A file that is not a UAI model or UAI evidence; the message has line and column."""


class Model(NamedTuple):
    r"""Factor tables over variables of finitely many states.

    .. math:: p(x) \propto \prod_f \mathrm{tables}_f[x_{\mathrm{scopes}_f}]

    Attributes
    ----------
    kind : {"MARKOV", "BAYES"}
        With "BAYES", each variable is the last one of exactly one scope: the table is its
        probability given the others.
    cardinalities : tuple of int
        Number of states of each variable.
    scopes : list of tuple of int
        Variables of each factor.
    tables : list of ndarray of float64
        Entries of each factor, finite and not negative; one axis per variable of the scope.
    names : tuple of str, optional
        Name of each variable.
    state_names : tuple of tuple of str, optional
        Names of the states of each variable.
    """

    kind: str
    cardinalities: tuple[int, ...]
    scopes: list[tuple[int, ...]]
    tables: list[NDArray[np.float64]]
    names: tuple[str, ...] | None = None
    state_names: tuple[tuple[str, ...], ...] | None = None


def read_uai(path: str | os.PathLike[str]) -> Model:
    """Read a model in the format of the UAI competitions.

    The file holds ``MARKOV`` or ``BAYES``, the number of variables, their cardinalities, the
    number of factors, of each factor the size of its scope and the variables in it (from 0), and
    then of each factor the number of its entries and the entries, the last variable running
    fastest. How this is broken into lines does not matter [1]_.

    Parameters
    ----------
    path : path-like
        A text file, or one compressed by gzip (told by its first bytes).

    Returns
    -------
    Model
        Factors in the order of the file; every entry is ``float`` of its token.

    Raises
    ------
    UAIFormatError
        If the file is anything else: if it ends early or goes on, a variable does not exist or
        stands twice in a scope, a scope has more than 64 variables, a table has another size than
        its scope says, or an entry is negative or not finite. In a ``BAYES`` file also if not
        every variable is the last of one scope. That probabilities sum to 1 is not checked
        (`sklsb.MarkovNetwork` warns).
    OSError
        If the file cannot be opened.

    See Also
    --------
    read_evidence : what was observed.

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
    return _read_model(Tokens(path, UAIFormatError))


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


def read_evidence(path: str | os.PathLike[str], cardinalities: Sequence[int]) -> dict[int, int]:
    r"""Read which variables were observed, and in which state.

    The file holds the number of observations and then, of each, the variable and its state, both
    from 0 (UAI 2014). In the older format (2006 to 2010) the number of samples stands before
    that on a line of its own; only one sample is read. The two are told apart so: a number alone
    on the first line is the number of samples, unless what follows is just one variable and state
    for each of that number.

    Parameters
    ----------
    path : path-like
        A text file, or one compressed by gzip. An empty one means no observation.
    cardinalities : sequence of int
        Number of states of each variable, as in `Model`.

    Returns
    -------
    dict of int to int
        State of each observed variable, in the order of the file.

    Raises
    ------
    UAIFormatError
        If the file is anything else, holds more than one sample, observes a variable twice, or
        has a variable or a state that does not exist.
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
    tokens = Tokens(path, UAIFormatError)
    evidence: dict[int, int] = {}
    if not tokens.words:
        return evidence
    count = tokens.integer("the number of observations or of samples", 0)
    if tokens.words_in_first_line() == 1 and len(tokens.words) != 1 + 2 * count:
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


def write_uai(path: str | os.PathLike[str], model: Model) -> None:
    """Write a model in the format of the UAI competitions.

    Parameters
    ----------
    path : path-like
        The file; it is overwritten.
    model : Model
        `read_uai` reads the same back, entries bit for bit. Names are not kept.

    Raises
    ------
    UAIFormatError
        If `read_uai` would refuse the file: see there. Line and column are those that the file
        would have; it is not written.
    ValueError
        If a table has another shape than the cardinalities of its scope.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from sklsb.io import Model, read_uai, write_uai
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pair.uai")
    >>> write_uai(path, Model("MARKOV", (2, 2), [(0, 1)], [np.array([[1, 0.1], [0.1, 1]])]))
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

"""Files of the UAI inference competitions."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sklsb._system.arrays import Array
from sklsb._system.warn import warn
from sklsb.exceptions import ModelWarning
from sklsb.io._tokens import LARGEST_INTEGER, FormatError, PathLike, Tokens

MOST_DIMENSIONS = 64  # of a NumPy array
COMMENT = rb"#[^\r\n]*"
# pyAgrum writes the name of the variable after each scope.
_NAMED_SCOPE = re.compile(rb"^ *[0-9]+(?: +[0-9]+)+ *# *\S+ *\r?$", re.MULTILINE)


class UAIFormatError(FormatError):
    """A file that is not in a format of the UAI competitions."""


class Model(NamedTuple):
    r"""Factor tables over variables of finitely many states.

    With the kind "BAYES", each variable is the last of exactly one scope, whose table holds its
    probabilities given the others.
    """

    kind: str  # "MARKOV" or "BAYES"
    cardinalities: tuple[int, ...]
    scopes: list[tuple[int, ...]]
    tables: list[Array]  # finite and not negative
    names: tuple[str, ...] | tuple[int, ...] | None = None
    state_names: tuple[tuple[str, ...], ...] | None = None


def read_uai(path: PathLike) -> Model:
    """Read a model as the UAI competition of 2014 describes it.

    The file holds ``MARKOV`` or ``BAYES``, the number of variables, their cardinalities and the
    number of factors; for each factor, the size of its scope and its variables, from 0; then for
    each factor, the number of its entries and the entries, the last variable running fastest. Line
    breaks do not matter; comments go from ``#`` to the end of the line.

    Warns
    -----
    ModelWarning
        If pyAgrum seems to have written a table of several parents: it orders entries otherwise.
    """
    tokens = Tokens(path, UAIFormatError, comment=COMMENT)
    kind = tokens.keyword("the kind of network", (b"MARKOV", b"BAYES")).decode()
    n = tokens.integer("the number of variables", 0)
    # Nothing is allocated by a count of the file: a wrong one runs into the end of the file.
    cardinalities = [tokens.integer(f"cardinality {i} of {n}", 1) for i in range(n)]
    scopes = _read_scopes(tokens, n, kind == "BAYES")
    tables = read_tables(tokens, cardinalities, scopes)
    named = len(_NAMED_SCOPE.findall(tokens.data))
    if kind == "BAYES" and named == len(scopes) and max(map(len, scopes), default=0) > 2:
        warn(
            f"{tokens.path} looks as if pyAgrum had written it, which (as of 3.3) puts the entries "
            "of tables with several parents in another order than the format says: these "
            "probabilities may be taken for others. Save the network as .bifxml or .net instead.",
            ModelWarning,
        )
    return Model(kind, tuple(cardinalities), scopes, tables)


def read_tables(
    tokens: Tokens, cardinalities: Sequence[int], scopes: Sequence[tuple[int, ...]]
) -> list[Array]:
    """Take the tables of all scopes, each with the number of its entries, and the end."""
    tables = []
    for i, scope in enumerate(scopes):
        shape = [cardinalities[v] for v in scope]
        size = math.prod(shape)
        why = f", the product of the cardinalities {shape} of its variables"
        tokens.integer(f"the number of entries of table {i}", size, size, why)
        tables.append(tokens.numbers(size, f"table {i}", low=0.0).reshape(shape))
    tokens.end(f"the {len(tables)} tables")
    return tables


def _read_scopes(tokens: Tokens, n: int, bayes: bool) -> list[tuple[int, ...]]:
    low, high, why = 0, LARGEST_INTEGER, ""
    if bayes:
        low, high, why = n, n, " in a BAYES file: one factor for each variable"
    count = tokens.integer("the number of factors", low, high, why)
    scopes: list[tuple[int, ...]] = []
    children: set[int] = set()
    most = min(n, MOST_DIMENSIONS)
    for i in range(count):
        name = f"scope {i}"
        size = tokens.integer(f"the number of variables of {name}", int(bayes), most)
        scope = tuple(tokens.distinct(size, f"a variable of {name}", 0, n - 1))
        if bayes and scope[-1] in children:
            allowed = "in a BAYES file each variable as the last of one scope only"
            raise tokens.wrong(tokens.at - 1, f"the last variable of {name}", allowed)
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
        observations. ``/* ... */``, as in those of Ergo files, is a comment, and so is what
        follows ``#``.
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
    tokens = Tokens(path, UAIFormatError, comment=COMMENT + rb"|/\*.*?\*/")
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
    """Write a model so that `read_uai` reads it bit for bit, but for names."""
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
    Path(path).write_bytes(("\n".join(lines) + "\n").encode())

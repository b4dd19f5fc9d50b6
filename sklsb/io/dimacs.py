"""Files of DIMACS: formulas in conjunctive normal form, and graphs to colour."""

import math
import re
from typing import NamedTuple

import numpy as np

from sklsb._system.arrays import Array
from sklsb.io._tokens import PathLike, Tokens, floats
from sklsb.io.uai import Model

_MOST_NODES = 1 << 24
# A clause of more literals is divided, since its table would be large.
_MOST_LITERALS = 12
# Weights and projections stand in lines that are comments to other programs.
_COMMENT = rb"(?<![^\r\n])[ \t]*[cw](?![^\s])[^\r\n]*"
_EXTRA = re.compile(rb"(?<![^\r\n])[ \t]*(?:c[ \t]+p[ \t]+(weight|show)|(w))(?![^\s])([^\r\n]*)")
_is_literal = re.compile(rb"-?[1-9][0-9]{0,8}|0").fullmatch


class Formula(NamedTuple):
    """A formula in conjunctive normal form, with weights of its literals.

    Attributes
    ----------
    n_variables : int
        Number of variables, which are 1, 2, ...
    clauses : list of tuple of int
        Literals of each clause: v, or -v where variable v is negated.
    weights : ndarray of float64, shape (n_variables, 2)
        Weights of -v and v, 1 where the file gives none.
    projected : tuple of int or None
        Variables to which the file projects solutions, None for all.
    """

    n_variables: int
    clauses: list[tuple[int, ...]]
    weights: Array
    projected: tuple[int, ...] | None


def read_cnf(path: PathLike) -> Formula:
    r"""Read a formula in conjunctive normal form (DIMACS), with weights.

    After ``p cnf``, the numbers of variables and clauses, each clause ends with 0. Lines
    ``c p weight LITERAL WEIGHT 0`` (model counting competitions since 2021) or
    ``w LITERAL WEIGHT``, with or without a 0 (2020 and before), give weights; ``c p show v ... 0``
    the variables of a projected count. Other lines that begin with ``c`` are comments.

    Parameters
    ----------
    path : path-like
        A text file, which may be compressed (gzip, bzip2, xz, zip).

    Returns
    -------
    Formula
        Named tuple of ``n_variables``, ``clauses``, ``weights``, ``projected``.

    Raises
    ------
    FormatError
        If the file is anything else, a clause is empty, a weight is given twice or is negative, or
        one literal of a variable has a weight and the other has none.
    OSError
        If the file cannot be opened.

    See Also
    --------
    read_model : makes a MarkovNetwork of it, whose partition function is the (weighted) count.

    Notes
    -----
    The format: J. K. Fichte, M. Hecher and F. Hamiti, "The Model Counting Competition 2020", ACM
    Journal of Experimental Algorithmics 26 (2021).

    Examples
    --------
    >>> import math, pathlib, tempfile
    >>> from sklsb import exact
    >>> from sklsb.io import read_model
    >>> from sklsb.io.dimacs import read_cnf
    >>> path = pathlib.Path(tempfile.mkdtemp(), "two.cnf")
    >>> _ = path.write_text("p cnf 3 2\nc p show 1 3 0\n1 -2 0\n2 3 0\n")
    >>> read_cnf(path).clauses, read_cnf(path).projected
    ([(1, -2), (2, 3)], (1, 3))
    >>> target = read_model(path)
    >>> round(math.exp(exact.log_partition(target)))
    4
    >>> int((exact.marginals(target, [1, 3])["p"] > 0).sum())  # the projected count
    3
    """
    tokens = Tokens(path, comment=_COMMENT, own="cnf")
    tokens.keyword("the header", (b"p",))
    tokens.keyword("the kind of problem", (b"cnf",))
    n = tokens.integer("the number of variables", 0, _MOST_NODES)
    count = tokens.integer("the number of clauses", 0)
    clauses: list[tuple[int, ...]] = []
    while tokens.at < len(tokens.words) and tokens.peek() != b"%":  # ends the files of SATLIB
        clause, what = [], f"clause {len(clauses) + 1}"
        while (v := _literal(tokens, f"a literal of {what}, or 0", n)) != 0:
            clause.append(v)
        if not clause:
            raise tokens.wrong(tokens.at - 1, what, "a clause that is not empty: no state fits it")
        clauses.append(tuple(clause))
    if len(clauses) != count:
        raise tokens.wrong(3, "the number of clauses", f"{len(clauses)}, as the file has")
    weights, shown = _read_extras(tokens, n)
    pairs = [[weights.get(sign * v, 1.0) for sign in (-1, 1)] for v in range(1, n + 1)]
    matrix = np.array(pairs, dtype=np.float64).reshape(n, 2)
    if not matrix.any(axis=1).all():
        v = int(matrix.any(axis=1).argmin()) + 1
        raise tokens.wrong_at(0, f"both literals of variable {v} have the weight 0.")
    return Formula(n, clauses, matrix, None if shown is None else tuple(shown))


def _literal(tokens: Tokens, what: str, n: int) -> int:
    allowed = f"an integer from -{n} to {n}"
    word = tokens.next(what, allowed)
    if not _is_literal(word) or abs(int(word)) > n:
        raise tokens.wrong(tokens.at - 1, what, allowed)
    return int(word)


def _read_extras(tokens: Tokens, n: int) -> tuple[dict[int, float], list[int] | None]:
    """Return the weights of literals and the projected variables, which lines of their own give."""
    weights: dict[int, float] = {}
    shown: list[int] | None = None
    for match in _EXTRA.finditer(tokens.data):
        words, where = match[3].split(), match.start()
        valid = [_is_literal(word) and abs(int(word)) <= n for word in words]
        if match[1] == b"show":
            new = [int(w) for w, ok in zip(words[:-1], valid, strict=False) if ok]
            shown = (shown or []) + new
            fits = all(valid) and words[-1:] == [b"0"] and min(new, default=1) > 0
            if not fits or len(set(shown)) < len(shown):
                problem = f"a projection ends with 0 and names variables from 1 to {n}, each once."
                raise tokens.wrong_at(where, problem)
            continue
        weight = float(floats(words[1:2])[0]) if len(words) > 1 else math.nan
        ends = words[2:] == [b"0"] or (not words[2:] and match[2])
        if not (ends and valid[0] and words[0] != b"0" and 0.0 <= weight < math.inf):
            problem = (
                "a line of a weight is 'c p weight LITERAL WEIGHT 0', or 'w LITERAL WEIGHT', with "
                f"a literal from -{n} to {n} and a finite number, not negative."
            )
            raise tokens.wrong_at(where, problem)
        v = int(words[0])
        if v in weights:
            raise tokens.wrong_at(where, f"literal {v} has a weight already; give each one once.")
        weights[v] = weight
    for v in weights:
        if -v not in weights:
            raise tokens.wrong_at(
                len(tokens.data.rstrip()),
                f"literal {v} has the weight {weights[v]:g} and {-v} has none, for which some "
                f"programs take 1 and others {1 - weights[v]:g}. Add the line "
                f"'c p weight {-v} WEIGHT 0'.",
            )
    return weights, shown


def cnf_model(path: PathLike) -> Model:
    """Return tables that are 1 at the models of a formula, times the weights of literals.

    The names of variables are 1, 2, ... A clause of more than 12 literals is divided by variables
    after these; each is the disjunction of the literals before.
    """
    formula = read_cnf(path)
    n, tables = formula.n_variables, []
    scopes: list[tuple[int, ...]] = []
    for v in range(n):
        if (formula.weights[v] != 1.0).any():
            scopes.append((v,))
            tables.append(formula.weights[v])

    def add(literals: list[int], result: int | None) -> None:
        """Say that the literals are true, or that a new variable is their disjunction."""
        variables = [abs(v) - 1 for v in literals]
        table = np.ones((2,) * len(literals))
        table[tuple(int(v < 0) for v in literals)] = 0.0
        if result is not None:
            variables, table = [*variables, result], np.stack([1.0 - table, table], axis=-1)
        scopes.append(tuple(variables))
        tables.append(table)

    for clause in formula.clauses:
        left = list(dict.fromkeys(clause))
        if any(-v in left for v in left):
            continue
        while len(left) > _MOST_LITERALS:
            add(left[: _MOST_LITERALS - 1], n)
            n += 1
            left = [n, *left[_MOST_LITERALS - 1 :]]
        add(left, None)
    return Model("MARKOV", (2,) * n, scopes, tables, tuple(range(1, n + 1)))


def read_col(path: PathLike) -> tuple[int, list[tuple[int, int]]]:
    """Read a graph to colour: the number of nodes, and its edges, from 0, each once.

    ``p edge`` or ``p col`` with the numbers of nodes and edges, then ``e i j`` for each edge,
    counted from 1. An edge may be listed in both directions, and counted once or twice. Lines that
    begin with ``c``, ``n``, ``d``, ``v`` or ``x`` do not matter to colours.
    """
    comment = rb"(?<![^\r\n])[ \t]*[cndvx](?![^\s])[^\r\n]*"
    tokens = Tokens(path, comment=comment, own="col")
    tokens.keyword("the header", (b"p",))
    tokens.keyword("the kind of problem", (b"edge", b"edges", b"col"))
    n = tokens.integer("the number of nodes", 0, _MOST_NODES)
    count = tokens.integer("the number of edges", 0)
    edges: dict[tuple[int, int], None] = {}
    lines = 0
    while tokens.at < len(tokens.words):
        tokens.keyword("the beginning of an edge", (b"e",))
        i, j = (tokens.integer("a node of an edge", 1, n) - 1 for _ in range(2))
        if i == j:
            raise tokens.wrong(tokens.at - 1, "a node of an edge", "two different nodes")
        edges[min(i, j), max(i, j)] = None
        lines += 1
    fits = sorted({lines, len(edges), 2 * len(edges)})
    if count not in fits:
        allowed = f"{' or '.join(map(str, fits))}, as the file has"
        raise tokens.wrong(3, "the number of edges", allowed)
    return n, list(edges)

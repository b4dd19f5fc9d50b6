"""Weighted graphs of max-cut (rudy, G-set) and quadratic binary problems in three dialects."""

import json
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sklsb._system.arrays import Array, Bools, Ints
from sklsb._system.warn import warn
from sklsb.exceptions import ModelWarning
from sklsb.io._tokens import PathLike, Tokens, floats, show

# A node need not appear again, so their number alone decides how much memory is taken.
_MOST_NODES = 1 << 24
# What follows #, and lines that begin with c, as in files of qbsolv.
_COMMENT = rb"(?<![^\r\n])[ \t\f\v]*[cC][^\r\n]*|#[^\r\n]*"
_CONSTANT = re.compile(
    rb"(?<![^\r\n])[ \t\f\v]*[c#][ \t]*(scale|offset)[ \t]*[:=][ \t]*(\S[^\r\n]*)", re.IGNORECASE
)


class _Pairs(Tokens):
    """Tokens of pairs with weights; ``words`` say how errors call what is joined, and what joins.

    These are one and several of both.
    """

    def __init__(self, path: PathLike, *words: str):
        super().__init__(path, comment=_COMMENT)
        self.node, self.nodes, self.pair, self.pairs = words

    def size(self) -> int:
        return self.integer(f"the number of {self.nodes}", 0, _MOST_NODES)

    def triples(self, count: int) -> tuple[NDArray[np.intp], Array]:
        """Take all that is left; return where triples begin, and these."""
        at = self.at + 3 * np.arange(min(count, len(self.words)))
        what = f"the {self.pairs} (one {self.node}, the other, weight)"
        triples = self.numbers(3 * count, what).reshape(-1, 3)
        self.end(f"the {count} {self.pairs}")
        return at, triples

    def from_zero(self, at: NDArray[np.intp], given: Array, first: int, n: int) -> Ints:
        """Return nodes that count from ``first``, and stand ``at`` these tokens, from 0."""
        last = first + n - 1
        ok = (given >= first) & (given <= last) & (given == np.floor(given))
        self.check(at.ravel(), ok.ravel(), f"a {self.node}", f"an integer from {first} to {last}")
        return given.astype(np.int64) - first

    def check(self, at: NDArray[np.intp], ok: Bools, what: str, allowed: str) -> None:
        if not ok.all():
            raise self.wrong(int(at[ok.argmin()]), what, allowed)

    def matrix(
        self,
        at: NDArray[np.intp],
        triples: Array,
        first: int,
        n: int,
        ordered: bool = False,
    ) -> sp.coo_array:
        """Return the entries at i <= j, or where they stand if the order of a pair matters."""
        ends = self.from_zero(at[:, None] + np.arange(2), triples[:, :2], first, n)
        low, high = (ends if ordered else np.sort(ends, axis=1)).T
        once = f"each pair of {self.nodes} once" + ("" if ordered else ", in either order")
        self.check(at, _first_of_each(low * n + high), f"an {self.pair}", once)
        if self.pair == "edge":
            self.check(at, low != high, "an edge", f"two different {self.nodes}")
        return sp.coo_array((triples[:, 2], (low, high)), shape=(n, n))


def _first_of_each(key: Ints) -> Bools:
    first = np.zeros(key.size, dtype=np.bool_)
    first[np.unique(key, return_index=True)[1]] = True
    return first


def _read_rudy(tokens: _Pairs) -> sp.csr_array:
    n = tokens.size()
    count = tokens.integer(f"the number of {tokens.pairs}", 0)
    tokens.at = max(tokens.at, tokens.words_by_line()[0])
    matrix = tokens.matrix(*tokens.triples(count), 1, n)
    return sp.csr_array(matrix + sp.triu(matrix, 1).T)


def _read_qbsolv(tokens: _Pairs) -> sp.csr_array:
    """Take a problem whose value is x'Qx, with Q upper triangular."""
    tokens.at = 1
    tokens.keyword("the kind of problem", (b"qubo",))
    tokens.next("the topology", "a word")
    n = tokens.size()
    kinds = ("linear", "quadratic")
    counts = [tokens.integer(f"the number of {kind} entries", 0) for kind in kinds]
    first = tokens.at
    matrix = tokens.matrix(*tokens.triples(-(-(len(tokens.words) - first) // 3)), 0, n)
    linear = matrix.row == matrix.col
    for k, mine in enumerate((linear, ~linear)):
        # Some programs do not count zeros.
        fits = sorted({int(mine.sum()), int((mine & (matrix.data != 0)).sum())})
        if counts[k] not in fits:
            allowed = f"{' or '.join(map(str, fits))}, as the file has"
            raise tokens.wrong(first - 2 + k, f"the number of {kinds[k]} entries", allowed)
    return sp.csr_array(0.5 * matrix + 0.5 * matrix.T)


def _read_hercules(tokens: _Pairs, lengths: Ints) -> sp.csr_array:
    """Take a problem whose value is x'Qx / 2 + c'x, with lines ``i j q`` and ``i c``."""
    n = tokens.size()
    at = 1 + np.cumsum(lengths) - lengths
    allowed = "two variables and a weight, or one and a weight"
    tokens.check(at, (lengths == 2) | (lengths == 3), "the beginning of a line", allowed)
    values = tokens.numbers(int(lengths.sum()), "the entries")
    pairs, single = at[lengths == 3], at[lengths == 2]
    triples = values[pairs[:, None] + [-1, 0, 1]]
    matrix = tokens.matrix(pairs, triples, 0, n, ordered=True)
    i = tokens.from_zero(single, values[single - 1], 0, n)
    tokens.check(single, _first_of_each(i), "a variable", "one weight alone for each variable")
    if not i.size:
        warn(
            f"{tokens.path} begins with the number of variables alone, so it is read as hercules "
            "does: the value of x is x'Qx / 2, and variables are counted from 0. If x'Qx is meant, "
            "give beta=2.",
            ModelWarning,
        )
    linear = np.zeros(n)
    linear[i] = values[single]
    return sp.csr_array(0.25 * matrix + 0.25 * matrix.T + sp.diags_array(linear))


def _read_constants(tokens: Tokens) -> tuple[float, float]:
    """Return the scale and the offset that comments give."""
    found: dict[str, float] = {}
    for match in _CONSTANT.finditer(tokens.data):
        name, word = match[1].decode().lower(), match[2].rstrip()
        value = float(floats([word])[0])
        if not np.isfinite(value) or (name == "scale" and value <= 0) or name in found:
            kind = "a positive number" if name == "scale" else "a finite number"
            raise tokens.wrong_at(
                match.start(2),
                f"found {show(word)} where the {name} must stand; allowed is {kind}, given once.",
            )
        found[name] = value
    return found.get("scale", 1.0), found.get("offset", 0.0)


def read_maxcut(path: PathLike) -> sp.csr_array:
    r"""Read a weighted graph in the format of rudy, of the Biq Mac library and the G-set.

    The first line holds the numbers of vertices and edges (the rest of it is ignored). For each
    edge, its two vertices, counted from 1, and its weight follow. What stands after ``#``, and
    lines that begin with ``c``, are comments.

    Parameters
    ----------
    path : path-like
        A text file, which may be compressed (gzip, bzip2, xz, zip).

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (vertices, vertices)
        The symmetric weights, zero on the diagonal.

    Raises
    ------
    FormatError
        If the file is anything else, an edge joins a vertex to itself, a pair of vertices appears
        twice (its weights might have to be added, or be one edge in both directions), or there are
        more than 2**24 vertices.
    OSError
        If the file cannot be opened.

    See Also
    --------
    sklsb.Ising.from_maxcut : cuts, weighted by their size.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklsb.io import read_maxcut
    >>> path = pathlib.Path(tempfile.mkdtemp(), "path.mc")
    >>> _ = path.write_text("3 2\n1 2 1\n2 3 -1\n")
    >>> read_maxcut(path).toarray()
    array([[ 0.,  1.,  0.],
           [ 1.,  0., -1.],
           [ 0., -1.,  0.]])
    """
    return _read_rudy(_Pairs(path, "vertex", "vertices", "edge", "edges"))


def read_qubo(path: PathLike) -> sp.csr_array:
    r"""Read a quadratic unconstrained binary problem; the content shows the dialect.

    .. math:: \text{minimise } x^T Q x = \sum_i q_{ii} x_i + 2 \sum_{i<j} q_{ij} x_i x_j,
              \qquad x_i \in \{0, 1\}

    *Biq Mac*: the first line holds the numbers of variables and entries (the rest of it is
    ignored). For each entry, i and j, counted from 1, and :math:`q_{ij}` follow.

    *qbsolv*: ``p qubo``, a word, and the numbers of variables, linear and quadratic entries. For
    each entry, i and j, counted from 0, and the weight of :math:`x_i x_j` follow; it is
    :math:`2 q_{ij}` where i and j differ.

    *hercules*: the number of variables alone; then lines ``i j a`` and ``i c``, counted from 0,
    which add :math:`a x_i x_j / 2` and :math:`c x_i`.

    What stands after ``#``, and lines that begin with ``c``, are comments. A ``scale`` in them, as
    in ``c scale : 2``, multiplies Q.

    Parameters
    ----------
    path : path-like
        A text file, which may be compressed (gzip, bzip2, xz, zip).

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (variables, variables)
        The symmetric matrix Q.

    Raises
    ------
    FormatError
        If the file is anything else, an entry appears twice (also as i, j and j, i, which only
        hercules allows), or there are more than 2**24 variables.
    OSError
        If the file cannot be opened.

    Warns
    -----
    ModelWarning
        If comments give a scale or an offset, which Q cannot hold; or if a hercules file has no
        line ``i c``, so that its values may be twice as large as meant.

    See Also
    --------
    sklsb.Ising.from_qubo : the target.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklsb.io import read_qubo
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pair.qubo")
    >>> for text in ("2 2\n1 1 -3\n1 2 2\n", "c a comment\np qubo 0 2 1 1\n0 0 -3\n0 1 4\n"):
    ...     _ = path.write_text(text)
    ...     read_qubo(path).toarray()
    array([[-3.,  2.],
           [ 2.,  0.]])
    array([[-3.,  2.],
           [ 2.,  0.]])
    """
    tokens = _Pairs(path, "variable", "variables", "entry", "entries")
    lengths = tokens.words_by_line()
    if tokens.peek().lower() == b"p":
        matrix = _read_qbsolv(tokens)
    elif lengths[:1] == [1] and lengths[1:2] in ([2], [3]):
        matrix = _read_hercules(tokens, np.array(lengths[1:]))
    else:
        matrix = _read_rudy(tokens)
    scale, offset = _read_constants(tokens)
    if (scale, offset) != (1.0, 0.0):
        warn(
            f"Comments of {tokens.path} give the scale {scale:g} and the offset {offset:g}: the "
            f"value of x is scale * (x'Qx + offset). The entries are multiplied by the scale; add "
            f"{scale * offset:.17g} to x'Qx for the value.",
            ModelWarning,
        )
    return sp.csr_array(scale * matrix)


def read_qh(path: PathLike) -> Any:
    """Read an Ising problem of qubist; return it as `Ising.from_bqm` takes it.

    The first line holds the numbers of sites and of lines; lines ``i i h`` and ``i j J`` follow,
    counted from 0: the energy is the sum of h s_i and J s_i s_j. Variables are the sites
    that occur.
    """
    tokens = _Pairs(path, "site", "sites", "entry", "entries")
    n = tokens.size()
    count = tokens.integer("the number of lines", 0)
    matrix = tokens.matrix(*tokens.triples(count), 0, n)
    entries = list(zip(matrix.row.tolist(), matrix.col.tolist(), matrix.data.tolist(), strict=True))
    linear = dict.fromkeys(sorted({*matrix.row.tolist(), *matrix.col.tolist()}), 0.0)
    linear |= {i: value for i, j, value in entries if i == j}
    quadratic = {(i, j): value for i, j, value in entries if i != j}
    return SimpleNamespace(linear=linear, quadratic=quadratic, offset=0.0, vartype="SPIN")


def read_bqpjson(path: PathLike) -> Any:
    """Read a binary quadratic problem of bqpjson; return it as `Ising.from_bqm` takes it.

    The energy is scale * (offset + linear and quadratic terms), of spins or of 0 and 1.
    """
    tokens = Tokens(path, own="bqpjson")
    try:
        given = json.loads(tokens.data)
        domain, scale = given["variable_domain"], float(given["scale"])
        linear = dict.fromkeys(given["variable_ids"], 0.0)
        seen: set[Any] = set()
        quadratic = {}
        for term in (*given["linear_terms"], *given["quadratic_terms"]):
            ends = [term[key] for key in ("id", "id_tail", "id_head") if key in term]
            if {*ends} - linear.keys() or frozenset(ends) in seen or len({*ends}) < len(ends):
                raise ValueError(f"the term {term} is there twice or has a variable that is not")
            seen.add(frozenset(ends))
            if len(ends) == 1:
                linear[ends[0]] = scale * float(term["coeff"])
            else:
                quadratic[tuple(ends)] = scale * float(term["coeff"])
        vartype = {"boolean": "BINARY", "spin": "SPIN"}[domain]
        offset = scale * float(given["offset"])
    except (ValueError, KeyError, TypeError) as error:
        raise tokens.wrong_at(0, f"no problem of bqpjson: {error!r}.") from error
    return SimpleNamespace(linear=linear, quadratic=quadratic, offset=offset, vartype=vartype)

"""Weighted graphs of max-cut (rudy, G-set) and quadratic binary problems (Biq Mac)."""

import numpy as np
import scipy.sparse as sp

from sklsb.io._tokens import PathLike, Tokens

_MOST_VERTICES = 1 << 24


def _read(path: PathLike, loops: bool) -> sp.csr_array:
    tokens = Tokens(path)
    # A vertex need not have an edge, so this count alone decides how much memory is taken.
    n = tokens.integer("the number of vertices", 0, _MOST_VERTICES)
    count = tokens.integer("the number of edges", 0)
    tokens.at = max(tokens.at, tokens.words_in_first_line())
    first = tokens.at
    entries = tokens.numbers(3 * count, "the edges (one vertex, the other, weight)")
    tokens.end(f"the {count} edges")
    ends, weight = entries.reshape(-1, 3)[:, :2], entries[2::3]
    bad = ~((ends >= 1) & (ends <= n) & (ends == np.floor(ends)))
    if bad.any():
        edge, end = np.argwhere(bad)[0]
        raise tokens.wrong(first + 3 * edge + end, "a vertex", f"an integer from 1 to {n}")
    low, high = np.sort(ends.astype(np.int64) - 1, axis=1).T
    again = np.ones(count, dtype=np.bool_)
    again[np.unique(low * n + high, return_index=True)[1]] = False
    for wrong, allowed in (
        (again, "each pair of vertices once, in either order"),
        ((low == high) & (not loops), "two different vertices"),
    ):
        if wrong.any():
            raise tokens.wrong(first + 3 * int(wrong.argmax()), "an edge", allowed)
    matrix = sp.coo_array((weight, (low, high)), shape=(n, n))
    return sp.csr_array(matrix + sp.triu(matrix, 1).T)


def read_maxcut(path: PathLike) -> sp.csr_array:
    r"""Read a weighted graph in the format of rudy, of the Biq Mac library and the G-set.

    The first line holds the numbers of vertices and edges (the rest of it is ignored). For each
    edge, its two vertices, counted from 1, and its weight follow.

    Parameters
    ----------
    path : path-like
        A text file, which may be compressed by gzip.

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
    return _read(path, loops=False)


def read_qubo(path: PathLike) -> sp.csr_array:
    r"""Read a quadratic unconstrained binary problem in the format of the Biq Mac library.

    .. math:: \text{minimise } x^T Q x = \sum_i q_{ii} x_i + 2 \sum_{i<j} q_{ij} x_i x_j,
              \qquad x_i \in \{0, 1\}

    The first line holds the numbers of variables and entries (the rest of it is ignored). For each
    entry, i and j, counted from 1, and :math:`q_{ij}` follow.

    Parameters
    ----------
    path : path-like
        A text file, which may be compressed by gzip.

    Returns
    -------
    scipy.sparse.csr_array of float64, shape (variables, variables)
        The symmetric matrix Q.

    Raises
    ------
    FormatError
        If the file is anything else, an entry appears twice (be it as i, j and j, i), or there are
        more than 2**24 variables.
    OSError
        If the file cannot be opened.

    See Also
    --------
    sklsb.Ising.from_qubo : the target.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklsb.io import read_qubo
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pair.sparse")
    >>> _ = path.write_text("2 2\n1 1 -3\n1 2 2\n")
    >>> read_qubo(path).toarray()
    array([[-3.,  2.],
           [ 2.,  0.]])
    """
    return _read(path, loops=True)

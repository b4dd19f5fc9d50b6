"""Factor graphs of libDAI, and Bayesian networks in the Ergo format of UAI 2006 and 2008."""

import math
import re

import numpy as np

from sklsb.io._tokens import LARGEST_INTEGER, PathLike, Tokens
from sklsb.io.uai import MOST_DIMENSIONS, Model, read_tables

_DISPLAY = rb"/\*\s*[nN]ames\s*\*/([^/]*)(?:/\*\s*[lL]abels\s*\*/(.*))?\Z"
_COMMENT = rb"#[^\r\n]*"
_MOST_VALUES = 1 << 15
_LARGEST_TABLE = 1 << 20  # entries, where the file need not list them


def read_erg(path: PathLike) -> Model:
    """Read a Bayesian network in the Ergo format, as in the UAI evaluations of 2006 and 2008.

    The file holds the number of variables and their cardinalities; for each variable, the number of
    its parents and these, from 0; then for each variable, the number of entries and the entries,
    its own value running fastest and then that of the last parent. What stands in ``/* */`` is a
    comment. ``/* Names */`` of variables may follow, and ``/* Labels */`` of their values.
    """
    tokens = Tokens(path, comment=_DISPLAY + rb"|/\*.*?\*/")
    n = tokens.integer("the number of variables", 0)
    sizes = [tokens.integer(f"cardinality {i} of {n}", 1, _MOST_VALUES) for i in range(n)]
    scopes: list[tuple[int, ...]] = []
    for child in range(n):
        what = f"of variable {child}"
        count = tokens.integer(f"the number of parents {what}", 0, min(n, MOST_DIMENSIONS) - 1)
        scopes.append((*tokens.distinct(count, f"a parent {what}", 0, n - 1, child), child))
    tables = read_tables(tokens, sizes, scopes)
    found = re.search(_DISPLAY, tokens.data, re.DOTALL)
    if found is None:
        return Model("BAYES", tuple(sizes), scopes, tables)
    names = tuple(word.decode("utf-8", "replace") for word in found[1].split())
    labels = [word.decode("utf-8", "replace") for word in (found[2] or b"").split()]
    if len(set(names)) < n or len(names) > n or len(labels) not in (0, sum(sizes)):
        raise tokens.wrong_at(
            found.start(),
            f"there are {len(set(names))} different names of {n} variables and {len(labels)} "
            f"labels of {sum(sizes)} values; give one of each, or leave out these sections.",
        )
    rest = iter(labels)
    states = tuple(tuple(next(rest) for _ in range(k)) for k in sizes) if labels else None
    return Model("BAYES", tuple(sizes), scopes, tables, names, states)


def read_fg(path: PathLike) -> Model:
    """Read a factor graph of libDAI.

    The file holds the number of factors; for each, the number of its variables, their labels (whole
    numbers), their cardinalities, the number of entries that follow, and for each of these its
    index, the first variable running fastest, and its value. Entries that are not listed are 0.
    What stands after ``#`` is a comment. Sites are the labels that occur, in increasing order.
    """
    tokens = Tokens(path, comment=_COMMENT)
    sizes: dict[int, int] = {}
    factors = []
    for f in range(tokens.integer("the number of factors", 0)):
        what = f"of factor {f}"
        m = tokens.integer(f"the number of variables {what}", 0, MOST_DIMENSIONS)
        labels = tokens.distinct(m, f"a variable {what}", 0, LARGEST_INTEGER)
        shape = []
        for label in labels:
            low, high, why = 1, _MOST_VALUES, ""
            if label in sizes:
                low = high = sizes[label]
                why = f", as variable {label} has in a factor above"
            shape.append(tokens.integer(f"a cardinality {what}", low, high, why))
        sizes.update(zip(labels, shape, strict=True))
        size = math.prod(shape)
        count = tokens.integer(f"the number of entries {what}", 0, size)
        start = tokens.at
        pairs = tokens.numbers(2 * count, f"the entries {what}", low=0.0).reshape(-1, 2)
        # Few entries may be listed of a table that is far too large.
        if size > max(_LARGEST_TABLE, 2 * count):
            allowed = f"a factor of at most {_LARGEST_TABLE} entries, or with half of them"
            raise tokens.wrong(start - 1, f"the number of entries {what}", allowed)
        index = pairs[:, 0].astype(np.int64)
        bad = (index != pairs[:, 0]) | (index >= size)
        bad[np.setdiff1d(np.arange(count), np.unique(index, return_index=True)[1])] = True
        if bad.any():
            allowed = f"an integer from 0 to {size - 1}, each once"
            raise tokens.wrong(start + 2 * int(bad.argmax()), f"an index {what}", allowed)
        table = np.zeros(size)
        table[index] = pairs[:, 1]
        factors.append((labels, table.reshape(shape, order="F")))
    tokens.end(f"the {len(factors)} factors")
    site = {label: i for i, label in enumerate(sorted(sizes))}
    return Model(
        "MARKOV",
        tuple(sizes[label] for label in site),
        [tuple(site[label] for label in labels) for labels, _ in factors],
        [table for _, table in factors],
        tuple(site),
    )

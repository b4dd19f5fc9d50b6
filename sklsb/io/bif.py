"""Bayesian networks in the interchange format BIF, as in the bnlearn repository."""

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sklsb._system.arrays import Array
from sklsb.io._tokens import PathLike, Tokens, show
from sklsb.io.uai import Model

_NO_WORDS = (b"{", b"}", b"(", b")", b"[", b"]", b"|", b";", b'"')
_LINES = (b"(", b"table", b"default", b"property", b"}")
_DEFAULT = (-1,)  # no states of parents: they count from 0
# Commas only separate, like white space.
_PATTERN = rb'"[^"\r\n]*"|[{}()\[\]|;]|[^\s,{}()\[\]|;"]+|"'
_COMMENT = rb'"[^"\r\n]*"|//[^\r\n]*|/\*.*?\*/'
_MOST_PARENTS = 63  # an axis for each and one for the child; NumPy has at most 64
_LARGEST_TABLE = 1 << 26  # entries, where the file need not list them
_Factor = tuple[tuple[int, ...], Array]  # scope and table


class _Variable(NamedTuple):
    number: int
    states: dict[str, int]
    at: int


def read_bif(path: PathLike) -> Model:
    """Read a Bayesian network as bnlearn and JavaBayes write it.

    After a ``network`` block, which may be missing, come a ``variable`` and a ``probability`` block
    for each variable; a probability block may name only variables described above it. In it,
    ``(s, t) 0.9, 0.1;`` is the distribution given these states of the parents, and ``default`` the
    one given all states that are not listed. ``table`` gives all numbers at once: the child's first
    state for all states of the parents, the last parent running fastest, then its second state, and
    so on (F. G. Cozman, "The Interchange Format for Bayesian Networks", 1996). The ``|`` before the
    parents may be missing. Factors are in the order of the ``probability`` blocks.
    """
    tokens = Tokens(path, pattern=_PATTERN, comment=_COMMENT)
    try:
        tokens.code.decode("utf-8")
    except UnicodeDecodeError as error:
        found = show(tokens.code[error.start : error.start + 1])
        problem = f"found {found}, which is not UTF-8; save the file in this encoding."
        raise tokens.wrong_at(error.start, problem) from error
    if tokens.keyword("the first block", (b"network", b"variable")) == b"network":
        _word(tokens, "the name of the network")
        tokens.keyword("the beginning of a block", (b"{",))
        while tokens.keyword("a line of the network", (b"property", b"}")) != b"}":
            _skip_property(tokens)
    else:
        tokens.at = 0
    variables: dict[str, _Variable] = {}
    factors: dict[str, _Factor] = {}  # by child
    while tokens.at < len(tokens.words):
        if tokens.keyword("a block", (b"variable", b"probability")) == b"variable":
            _read_variable(tokens, variables)
        else:
            _read_probability(tokens, variables, factors)
    for name, variable in variables.items():
        if name not in factors:
            raise tokens.wrong(variable.at, "a variable", "one that has a probability block")
    return Model(
        "BAYES",
        tuple(len(variable.states) for variable in variables.values()),
        [scope for scope, _ in factors.values()],
        [table for _, table in factors.values()],
        tuple(variables),
        tuple(tuple(variable.states) for variable in variables.values()),
    )


def _word(tokens: Tokens, what: str, allowed: str = "a name") -> str:
    word = tokens.next(what, allowed)
    if word in _NO_WORDS:
        raise tokens.wrong(tokens.at - 1, what, allowed)
    return word.removeprefix(b'"').removesuffix(b'"').decode("utf-8")


def _known(tokens: Tokens, what: str, names: Mapping[str, Any], allowed: str) -> str:
    name = _word(tokens, what, allowed)
    if name not in names:
        raise tokens.wrong(tokens.at - 1, what, allowed)
    return name


def _new(tokens: Tokens, what: str, names: Container[str]) -> str:
    name = _word(tokens, what)
    if name in names:
        raise tokens.wrong(tokens.at - 1, what, "each name once")
    return name


def _skip_property(tokens: Tokens) -> None:
    while tokens.next("the end of a property", "';'") != b";":
        pass


def _read_variable(tokens: Tokens, variables: dict[str, _Variable]) -> None:
    at = tokens.at
    name = _new(tokens, "the name of a variable", variables)
    tokens.keyword("the beginning of a block", (b"{",))
    states: dict[str, int] = {}
    while True:
        end = b"}" if states else b"type"
        word = tokens.keyword(f"a line of variable {name}", (b"property", end))
        if word == b"}":
            break
        if word == b"property":
            _skip_property(tokens)
            continue
        tokens.keyword("the kind of variable", (b"discrete",))
        tokens.keyword("the beginning of the number of states", (b"[",))
        count = tokens.integer("the number of states", 1)
        tokens.keyword("the end of the number of states", (b"]",))
        tokens.keyword("the beginning of the states", (b"{",))
        for i in range(count):
            states[_new(tokens, f"state {i + 1} of {count}", states)] = i
        tokens.keyword("the end of the states", (b"}",))
        tokens.keyword("the end of a line", (b";",))
    variables[name] = _Variable(len(variables), states, at)


def _read_probability(
    tokens: Tokens, variables: dict[str, _Variable], factors: dict[str, _Factor]
) -> None:
    tokens.keyword("the beginning of the variables", (b"(",))
    at, allowed = tokens.at, "a variable that was described above"
    child = _known(tokens, "the child", variables, allowed)
    if child in factors:
        raise tokens.wrong(at, "the child", "a variable without a probability block so far")
    family = [child]
    tokens.at += tokens.peek() == b"|"
    while tokens.peek() != b")":
        parent = _known(tokens, "a parent", variables, allowed + " or ')'")
        if parent in family or len(family) > _MOST_PARENTS:
            allowed = f"each variable once, and at most {_MOST_PARENTS} parents"
            raise tokens.wrong(tokens.at - 1, "a parent", allowed)
        family.append(parent)
    tokens.at += 1
    parents = [variables[name].states for name in family[1:]]
    rows = _read_rows(tokens, child, parents, len(variables[child].states))
    shape = (*map(len, parents), len(variables[child].states))
    if _DEFAULT in rows and math.prod(shape) > _LARGEST_TABLE:
        what = f"the child of a table of {math.prod(shape)} entries"
        raise tokens.wrong(at, what, f"at most {_LARGEST_TABLE} where there is a default")
    table = np.empty(shape)
    table[...] = rows.pop(_DEFAULT, np.nan)
    for key, row in rows.items():
        table[key] = row
    scope = tuple(variables[name].number for name in (*family[1:], child))
    factors[child] = scope, table


def _read_rows(
    tokens: Tokens, child: str, parents: list[dict[str, int]], k: int
) -> dict[tuple[int, ...], Array]:
    """Take the block of a child of k states; return its distribution by the states of parents."""
    sizes = [len(states) for states in parents]
    rows: dict[tuple[int, ...], Array] = {}
    tokens.keyword("the beginning of a block", (b"{",))
    while (word := tokens.keyword(f"a line of the probability of {child}", _LINES)) != b"}":
        at = tokens.at - 1
        if word == b"property":
            _skip_property(tokens)
            continue
        key: tuple[int, ...] = _DEFAULT if word == b"default" else ()
        if word == b"(":
            what = "the state of a parent"
            key = tuple(s[_known(tokens, what, s, " or ".join(s))] for s in parents)
            tokens.keyword("the end of the states of the parents", (b")",))
        if key in rows or (word == b"table" and rows):
            raise tokens.wrong(at, f"a line of the probability of {child}", "each case once")
        if word == b"table":
            values = tokens.numbers(k * math.prod(sizes), f"the table of {child}", low=0.0)
            rows.update(zip(np.ndindex(*sizes), values.reshape(k, -1).T, strict=True))
        else:
            rows[key] = tokens.numbers(k, f"a distribution of {child}", low=0.0)
        tokens.keyword("the end of a line", (b";",))
    if _DEFAULT not in rows and len(rows) < math.prod(sizes):
        key = next(key for key in np.ndindex(*sizes) if key not in rows)
        names = ", ".join(list(states)[i] for states, i in zip(parents, key, strict=True))
        what = f"the distribution of {child} given ({names})"
        raise tokens.wrong(tokens.at - 1, what, "one line for each case, or a default")
    return rows


def write_bif(
    path: PathLike,
    tables: Iterable[tuple[Sequence[int], Array]],
    names: Sequence[str],
    states: Sequence[Sequence[str]],
) -> None:
    """Write conditional tables, each with its scope: the parents, then the child."""
    names, states = _quoted(names), list(map(_quoted, states))
    lines = ["network unknown {", "}"]
    for name, own in zip(names, states, strict=True):
        values = f"type discrete [ {len(own)} ] {{ {', '.join(own)} }};"
        lines += [f"variable {name} {{", f"  {values}", "}"]
    for scope, table in tables:
        *parents, child = (names[v] for v in scope)
        given = f" | {', '.join(parents)}" if parents else ""
        lines.append(f"probability ( {child}{given} ) {{")
        for key in np.ndindex(*table.shape[:-1]):
            case = ", ".join(states[v][k] for v, k in zip(scope, key, strict=False))
            start = f"({case})" if parents else "table"
            lines.append(f"  {start} {', '.join(map(repr, table[key].tolist()))};")
        lines.append("}")
    Path(path).write_text("\n".join([*lines, ""]), encoding="utf-8", newline="\n")


def _quoted(words: Sequence[str]) -> list[str]:
    """Return words with quotation marks where they need some, as not all programs read these."""
    for word in words:
        if not word or set(word) & {'"', "\r", "\n"} or words.count(word) > 1:
            raise ValueError(
                f"the name {word!r} is empty, is there twice, or has a quotation mark or a line "
                "break, which BIF does not allow; give other names."
            )
    return [word if re.fullmatch(r"[\w.+-]+", word) else f'"{word}"' for word in words]

"""Bayesian networks of Hugin, GeNIe and XMLBIF, read by pyAgrum and checked against the file."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from sklsb.io._tokens import PathLike, Tokens, floats
from sklsb.io.uai import Model

# Child, parents and the numbers of its table, as they stand in the file.
_Table = tuple[str, list[str], list[str]]
_STRING = r'"[^"\r\n]*"'
_POTENTIAL = re.compile(r"potential\s*\(([^|)]*)\|?([^)]*)\)\s*\{(.*?)\}", re.DOTALL)
_NODE = re.compile(
    r"node\s+(\w+)\s*\{\s*TYPE\s*=\s*(\w+)(.*?)PARENTS\s*=\s*\(([^)]*)\)(.*?)"
    r"PROBABILITIES\s*=\s*\(([^)]*)\)",
    re.DOTALL,
)
_OTHER = re.compile(r"(?m)^\s*(decision|utility|function|class|continuous\s+node)\b[^{\n]*")


def read_agrum(path: PathLike) -> Model:
    """Read a Bayesian network of Hugin (.net), GeNIe (.xdsl, .dsl) or XMLBIF by pyAgrum.

    pyAgrum fills rows that are missing with 0, drops numbers that are too many, takes the last of
    two tables and reads decisions as variables; so all tables are counted, and their numbers are
    those of the file, in full precision.
    """
    try:
        import pyagrum
    except ImportError as error:
        raise ImportError(
            f"{os.fspath(path)} is read by pyAgrum; run `pip install pyagrum`, or install the "
            "extra: sklsb[pyagrum]."
        ) from error
    tokens = Tokens(path, own="pyagrum")
    try:
        text = tokens.data.decode("utf-8")
    except UnicodeDecodeError:
        text = tokens.data.decode("latin-1")
    xml = "xdsl" if "<smile" in text else "bifxml"
    plain = "dsl" if re.match(r"\s*net\s+\w", text) else "net"
    ending = xml if text.lstrip().startswith("<") else plain
    try:
        tables = list({"net": _net, "dsl": _dsl, "xdsl": _xdsl, "bifxml": _bif}[ending](text))
        numbers = {child: floats([w.encode() for w in words]) for child, _, words in tables}
        for child, values in numbers.items():
            if not (np.isfinite(values).all() and (values >= 0.0).all()):
                raise ValueError(f"the table of {child!r} has an entry that is no number from 0 on")
        if len(numbers) < len(tables):
            children = [child for child, *_ in tables]
            twice = next(c for c in children if children.count(c) > 1)
            raise ValueError(f"there are two tables of {twice!r}")
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, f"network.{ending}")
            copy.write_bytes(tokens.data)
            bn = pyagrum.loadBN(str(copy))
        return _checked(bn, tables, numbers, ordered=ending != "xdsl")
    except ElementTree.ParseError as error:
        raise tokens.wrong_at(0, f"no XML: {error}.") from error
    except (ValueError, AttributeError) as error:
        raise tokens.wrong_at(0, f"{error}.") from error
    except pyagrum.GumException as error:
        raise tokens.wrong_at(0, f"pyAgrum does not read it: {str(error).strip()}") from error


def _checked(bn: Any, tables: list[_Table], numbers: dict[str, Any], ordered: bool) -> Model:
    names = [bn.variable(node).name() for node in bn.nodes()]
    states = {name: tuple(map(str, bn.variable(name).labels())) for name in names}
    if missing := [name for name in names if name not in numbers]:
        raise ValueError(f"there is no table of {missing[0]!r}")
    scopes, values = [], []
    for child, parents, _ in tables:
        shape = [len(states[name]) for name in (*parents, child) if name in states]
        if (
            child not in states
            or len(shape) <= len(parents)
            or numbers[child].size != np.prod(shape)
        ):
            raise ValueError(
                f"the table of {child!r} given {parents} has {numbers[child].size} entries, of "
                f"{np.prod(shape):g}"
            )
        table = numbers[child].reshape(shape)
        read = bn.cpt(child).toarray()
        if ordered and not (read.shape == table.shape and np.allclose(read, table, atol=1e-6)):
            raise ValueError(f"pyAgrum reads other numbers for {child!r} than the file has")
        scopes.append(tuple(names.index(name) for name in (*parents, child)))
        values.append(table)
    own = tuple(states[name] for name in names)
    if not names:
        raise ValueError("there is no variable")
    return Model("BAYES", tuple(map(len, own)), scopes, values, tuple(names), own)


def _net(text: str) -> Iterator[_Table]:
    plain = re.sub(rf"{_STRING}|%[^\r\n]*", lambda m: m[0] if m[0][0] == '"' else " ", text)
    _refuse(_OTHER.search(re.sub(_STRING, "", plain)))
    for child, parents, body in _POTENTIAL.findall(plain):
        data = re.search(r"\bdata\s*=([^;]*);", body)
        yield child.strip(), parents.split(), re.findall(r"[^\s()]+", data[1] if data else "")


def _dsl(text: str) -> Iterator[_Table]:
    for child, kind, _, parents, _, words in _NODE.findall(text):
        if kind != "CPT":
            raise ValueError(f"{child!r} is a node of type {kind}; only CPT is read")
        yield child, re.findall(r"\w+", parents), re.findall(r"[^\s,]+", words)


def _bif(text: str) -> Iterator[_Table]:
    root = ElementTree.fromstring(text.encode() if "encoding=" not in text[:200] else text)
    for variable in root.iter("VARIABLE"):
        if (kind := variable.get("TYPE", "nature")) != "nature":
            raise ValueError(f"{variable.findtext('NAME')!r} is of type {kind}, not nature")
    for table in (*root.iter("DEFINITION"), *root.iter("PROBABILITY")):
        given = [(parent.text or "").strip() for parent in table.findall("GIVEN")]
        words = " ".join("".join(one.itertext()) for one in table.findall("TABLE")).split()
        yield (table.findtext("FOR") or "").strip(), given, words


def _xdsl(text: str) -> Iterator[_Table]:
    root = ElementTree.fromstring(text)
    # pyAgrum itself writes parents in reverse order, unlike GeNIe.
    reverse = any("aGrUM" in one.get("app", "") for one in root.iter("genie"))
    for node in root.iterfind("nodes/*"):
        if node.tag != "cpt":
            raise ValueError(f"{node.get('id')!r} is a node of type {node.tag}; only cpt is read")
        parents = (node.findtext("parents") or "").split()
        words = " ".join(one.text or "" for one in node.findall("probabilities")).split()
        yield node.get("id", ""), parents[::-1] if reverse else parents, words


def _refuse(found: re.Match[str] | None) -> None:
    if found:
        raise ValueError(f"there is a {found[0].strip()!r}, which is no table of a variable")

"""The readers of files: against second ones, on damaged files, and on published ones."""

import ast
import bz2
import gzip
import io as python_io
import itertools
import lzma
import os
import pathlib
import pickle
import re
import time
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sklsb import Ising, MarkovNetwork, anneal, exact, io
from sklsb.exceptions import ModelWarning
from sklsb.io.uai import Model

DATA = pathlib.Path(
    os.environ.get("SKLSB_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data")
)


def files(pattern):
    """Published files, or one skipped case that says where they were looked for."""
    found = sorted(path for path in DATA.glob(pattern) if path.name != "best_known.txt")
    reason = f"no {pattern} in {DATA}; set SKLSB_DATA"
    return [pytest.param(path, id=path.name) for path in found] or [
        pytest.param(None, marks=pytest.mark.skip(reason=reason))
    ]


def save(folder, content):
    path = folder / "file.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("io")


# ----------------------------------------------------------------- second readers

NUMBER = re.compile(r"[-+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]+)?")


def text_of(data):
    """Characters one to one; undecodable bytes become something no token may be."""
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def uncommented(text, lines_of_c=False):
    lines = [line.split("#")[0] for line in re.split("[\r\n]", text)]
    return [line for line in lines if not (lines_of_c and re.match("[ \t\f\v]*[cC]", line))]


def split(text):
    return re.findall(r"[^ \t\n\r\f\v]+", text)


class Refused(Exception):
    pass


def whole(word, low, high=10**18):
    if not re.fullmatch("[0-9]{1,19}", word) or not low <= int(word) <= high:
        raise Refused
    return int(word)


def real(word, low=-np.inf):
    if not NUMBER.fullmatch(word) or float(word) < low or np.isinf(float(word)):
        raise Refused
    return float(word)


def stack_of(words):
    """Words to be popped; one that is missing cannot be a number."""
    words = list(reversed(words))
    return lambda: words.pop() if words else "missing"


def naive_uai(data):
    words = split("\n".join(uncommented(text_of(data))))
    pop = stack_of([*words, "END"])
    kind = pop().upper()
    if kind not in ("MARKOV", "BAYES"):
        raise Refused
    sizes = []
    for _ in range(whole(pop(), 0)):
        sizes.append(whole(pop(), 1))
    scopes, tables = [], []
    for _ in range(whole(pop(), 0)):
        scopes.append([whole(pop(), 0, len(sizes) - 1) for _ in range(whole(pop(), 0, 64))])
        if len(set(scopes[-1])) < len(scopes[-1]):
            raise Refused
    if kind == "BAYES" and sorted(s[-1] if s else -1 for s in scopes) != list(range(len(sizes))):
        raise Refused
    for scope in scopes:
        size = 1
        for v in scope:
            size *= sizes[v]
        if whole(pop(), 0) != size:
            raise Refused
        tables.append([real(pop(), 0.0) for _ in range(size)])
    if pop() != "END":
        raise Refused
    return kind, sizes, scopes, tables


def naive_evidence(data, sizes):
    lines = [words for line in uncommented(text_of(data)) if (words := split(line))]
    words = [word for line in lines for word in line]
    for counted in (False, True):
        try:
            if counted and (len(lines[0]) > 1 or whole(words[0], 1, 1) != 1):
                raise Refused
            pop = stack_of([*words[counted:], "END"])
            found = {}
            for _ in range(whole(pop(), 0) if words else 0):
                v = whole(pop(), 0, len(sizes) - 1)
                if v in found:
                    raise Refused
                found[v] = whole(pop(), 0, sizes[v] - 1)
            if pop() == "END":
                return found
        except Refused:
            pass
    raise Refused


def naive_edges(data, loops):
    lines = [split(line) for line in uncommented(text_of(data), lines_of_c=True)]
    lines = [line for line in lines if line] or [[]]
    header = lines[0]
    rest = [word for line in lines[1:] for word in line]
    while len(header) < 2 and rest:
        header.append(rest.pop(0))
    pop = stack_of([*header[:2], *rest, "END"])
    n, count = whole(pop(), 0, 2**24), whole(pop(), 0)
    entries = {}
    for _ in range(count):
        i, j = (real(pop(), 1) for _ in range(2))
        pair = frozenset((i, j))
        if max(pair) > n or i % 1 or j % 1 or pair in entries or (i == j and not loops):
            raise Refused
        entries[pair] = real(pop())
    if pop() != "END":
        raise Refused
    return n, {
        (int(i) - 1, int(j) - 1): weight
        for pair, weight in entries.items()
        for i, j in {(min(pair), max(pair)), (max(pair), min(pair))}
    }


def naive_qubo(data):
    lines = [split(line) for line in uncommented(text_of(data), lines_of_c=True)]
    lines = [line for line in lines if line]
    constants = {}
    for line in re.split("[\r\n]", text_of(data)):
        found = re.fullmatch(
            r"[ \t\f\v]*[c#][ \t]*(scale|offset)[ \t]*[:=][ \t]*([^ \t\f\v].*)", line, re.I
        )
        if found:
            name = found[1].lower()
            if name in constants:
                raise Refused
            low = 5e-324 if name == "scale" else -np.inf
            constants[name] = real(found[2].rstrip(" \t\f\v"), low)
    if lines and lines[0][0] in ("p", "P"):
        n, entries = naive_qbsolv([word for line in lines for word in line])
    elif len(lines) > 1 and len(lines[0]) == 1 and len(lines[1]) in (2, 3):
        n, entries = naive_hercules(lines)
    else:
        n, entries = naive_edges(data, loops=True)
    return n, {pair: constants.get("scale", 1.0) * weight for pair, weight in entries.items()}


def naive_qbsolv(words):
    pop = stack_of([*words[1:], "END"])
    if pop().lower() != "qubo" or pop() == "END":
        raise Refused
    n, *counts = (whole(pop(), 0, high) for high in (2**24, 10**18, 10**18))
    entries, seen = {}, [[], []]
    while (word := pop()) != "END":
        i, j, weight = real(word, 0), real(pop(), 0), real(pop())
        if i % 1 or j % 1 or max(i, j) >= n or (i, j) in entries:
            raise Refused
        seen[i != j].append(weight)
        entries[i, j] = entries[j, i] = weight if i == j else weight / 2
    for count, weights in zip(counts, seen, strict=True):
        if count not in (len(weights), np.count_nonzero(weights)):
            raise Refused
    return n, entries


def naive_hercules(lines):
    n, given, entries = whole(lines[0][0], 0, 2**24), {}, {}
    for line in lines[1:]:
        if len(line) not in (2, 3):
            raise Refused
        key = tuple(real(word, 0) for word in line[:-1])
        if max(key) >= n or any(i % 1 for i in key) or key in given:
            raise Refused
        given[key] = real(line[-1])
    for key, weight in given.items():
        single = len(key) == 1
        for pair in ((key * 2,) * 2) if single else (key, key[::-1]):
            entries[pair] = entries.get(pair, 0) + weight / (2 if single else 4)
    return n, entries


def naive_bif(text):
    """For well-formed files of the repository only."""
    states = {
        name: [s.strip() for s in listed.split(",")]
        for name, listed in re.findall(
            r"variable (\S+) \{\s*type discrete \[[^{]*\{([^}]*)\}", text
        )
    }
    tables = {}
    for head, block in re.findall(r"probability \(([^)]*)\) \{(.*?)\n\}", text, flags=re.DOTALL):
        child, *parents = (name.strip() for name in re.split("[|,]", head))
        table = np.full([len(states[v]) for v in (*parents, child)], np.nan)
        for line in filter(str.strip, block.split(";")):
            given, numbers = re.fullmatch(r"\s*(?:table|\(([^)]*)\))(.*)", line).groups()
            key = [s.strip() for s in given.split(",")] if given else []
            index = tuple(states[v].index(s) for v, s in zip(parents, key, strict=True))
            table[index] = [float(x) for x in numbers.split(",")]
        tables[child] = (*(list(states).index(v) for v in (*parents, child)),), table
    return states, tables


def check_error(error, path, data, kind=None):
    """The error points at the token that it shows."""
    assert error.path == str(path)
    assert str(error) == f"{path}, line {error.line}, column {error.column}: {error.problem}"
    lines = re.split(rb"\r\n|\r|\n", data.removeprefix(b"\xef\xbb\xbf"))
    line = lines[error.line - 1].decode("utf-8", "replace")
    assert 1 <= error.column <= len(line) + 1
    found, what = re.match("found (.*?)(?: where|, which)(.*)", error.problem, re.DOTALL).groups()
    assert what
    rest = line[error.column - 1 :]
    if found == "the end of the file":
        left = "\n".join([rest, *(line.decode("utf-8", "replace") for line in lines[error.line :])])
        if kind == "bif":
            left = re.sub(r"//[^\n]*|/\*.*?\*/|,", "", left, flags=re.DOTALL)
        else:
            left = "".join(uncommented(left, kind in ("edges", "maxcut", "qubo")))
        assert not left.strip(" \t\n\f\v")
        return
    token = ast.literal_eval(found).removesuffix("...")
    assert "\\x" in token or rest.startswith(token)
    before = line[: error.column - 1]
    if "UTF-8" not in what and rest[0] not in '{}()[]|;"':
        assert not before or before[-1] in ' \t\f\v,{}()[]|;"/:='


def read_both(read, naive, path, data, kind=None):
    """What a reader and a second one make of a file; None where both refuse it."""
    try:
        wanted = naive(data)
    except Refused:
        wanted = None
    try:
        found = read(path)
    except io.FormatError as error:
        check_error(error, path, data, kind)
        if wanted is not None:
            raise
        return None, None
    assert wanted is not None, f"accepted: {data!r}"
    return found, wanted


def same_uai(path, data):
    model, wanted = read_both(io.uai.read_uai, naive_uai, path, data)
    if model is not None:
        kind, sizes, scopes, tables = wanted
        assert (model.kind, list(model.cardinalities)) == (kind, sizes)
        assert [list(scope) for scope in model.scopes] == scopes
        for scope, table, entries in zip(scopes, model.tables, tables, strict=True):
            assert table.shape == tuple(sizes[v] for v in scope)
            assert table.dtype == np.float64
            assert table.tobytes() == np.array(entries).tobytes()
    return model


# ----------------------------------------------------------------- good files

PAIR = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n\n4\n 4.000 2.400\n 1 0\n\n6\n.5 1. 1e0 +2 0.1 4e-05"
TABLES = [[[4.0, 2.4], [1.0, 0.0]], [[0.5, 1.0, 1.0], [2.0, 0.1, 4e-05]]]


@pytest.mark.parametrize(
    "data",
    [
        PAIR.encode(),
        PAIR.encode() + b"\n",
        PAIR.replace("\n", "\r\n").encode(),
        PAIR.replace("\n", "\r").encode(),
        PAIR.replace("\n", "  ").encode() + b" \t\f\v",
        b"\xef\xbb\xbf" + PAIR.encode(),
        gzip.compress(PAIR.encode()),
        gzip.compress(b"\xef\xbb\xbf" + PAIR.encode()),
        gzip.compress(PAIR.encode()[:40]) + gzip.compress(PAIR.encode()[40:]),
    ],
    ids=[
        "text",
        "final newline",
        "CRLF",
        "CR",
        "one line",
        "BOM",
        "gzip",
        "gzip BOM",
        "gzip twice",
    ],
)
def test_uai(folder, data):
    model = io.uai.read_uai(save(folder, data))
    assert (model.kind, model.cardinalities) == ("MARKOV", (2, 2, 3))
    assert model.scopes == [(0, 1), (1, 2)]
    assert [table.tolist() for table in model.tables] == TABLES
    assert (model.names, model.state_names) == (None, None)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("MARKOV 0 0", []),
        ("MARKOV 2 1 5 0", []),
        ("MARKOV 1 3 2  0  1 0  1 7  3 1 2 3", [(), (3,)]),
        ("BAYES 0 0", []),
        ("BAYES 2 2 1 2 1 1  2 1 0  1 1  2 0.5 0.5", [(1,), (1, 2)]),
        ("MARKOV 64" + 64 * " 1" + " 1 64 " + " ".join(map(str, range(64))) + " 1 3", [64 * (1,)]),
    ],
)
def test_uai_of_unusual_shapes(folder, text, shapes):
    path = save(folder, text)
    assert [table.shape for table in same_uai(path, text.encode()).tables] == shapes
    assert io.uai.read_uai(str(path)).kind == text.split()[0]


def test_any_float_comes_back_bit_for_bit(folder):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 0x7FF0000000000000, 20_000).view(np.float64)
    bits[:4] = [-0.0, 5e-324, np.finfo(float).max, 0.1]
    model = Model("MARKOV", (200, 100), [(1, 0), ()], [bits.reshape(100, 200), np.array(3)])
    io.uai.write_uai(folder / "written.uai", model)
    found = io.uai.read_uai(folder / "written.uai")
    assert found[:3] == model[:3]
    assert found.tables[0].tobytes() == bits.tobytes()
    assert found.tables[1] == 3.0
    digits = rng.integers(5, 40, bits.size)
    text = " ".join(f"{value:.{count}e}" for value, count in zip(bits, digits, strict=True))
    found = io.uai.read_uai(save(folder, f"MARKOV 1 20000 1 1 0 20000 {text}"))
    assert found.tables[0].tolist() == [float(word) for word in text.split()]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("\r\n", {}),
        ("0", {}),
        ("1\n0", {}),
        ("1\n0\n", {}),
        ("1 2 1", {2: 1}),
        ("1\n2 1", {2: 1}),
        ("1\n2\n1", {2: 1}),
        ("1\n1 2 1", {2: 1}),
        ("1\r\n 2 0 1 3 0\r\n", {0: 1, 3: 0}),
        ("2 0 1 3 0", {0: 1, 3: 0}),
        ("2\n0 1\n3 0", {0: 1, 3: 0}),
    ],
)
def test_evidence(folder, text, wanted):
    assert io.read_evidence(save(folder, text), np.full(4, 2)) == wanted
    assert io.read_evidence(save(folder, gzip.compress(text.encode())), [2] * 4) == wanted
    assert naive_evidence(text.encode(), [2] * 4) == wanted


WET = """// Both kinds of comments; "quoted" names
network "wet grass" { property author = Grün;  property ; }
variable rain { type discrete [ 2 ] { no, yes }; property p = (1, 2); }
variable "a b" { /* no comment: "
*/ property x; type discrete[3]{<5 5-12 "//(12,]"}; }
variable grass { type discrete [ 2 ] { dry, wet }; }
probability ( rain ) { property y "};"; table 0.8, 0.2; }
probability ( grass | rain, "a b" ) {
  (no, <5) 0.9, 0.1;  default 0.5 0.5;  (yes, "//(12,]") 4e-05, 1;
}
probability ( "a b" | rain ) { table 0.1 0.2  0.3 0.4  0.6 0.4; }
"""


def test_bif(folder):
    for data in (WET.encode(), gzip.compress(WET.replace("\n", "\r\n").encode())):
        model = io.bif.read_bif(save(folder, data))
        assert (model.kind, model.cardinalities) == ("BAYES", (2, 3, 2))
        assert model.names == ("rain", "a b", "grass")
        assert model.state_names == (("no", "yes"), ("<5", "5-12", "//(12,]"), ("dry", "wet"))
        assert model.scopes == [(0,), (0, 1, 2), (0, 1)]
        rain, grass, other = (table.tolist() for table in model.tables)
        half = [0.5, 0.5]
        assert rain == [0.8, 0.2]
        assert grass == [[[0.9, 0.1], half, half], [half, half, [4e-05, 1.0]]]
        # The child's states run slowest in a table.
        assert other == [[0.1, 0.3, 0.6], [0.2, 0.4, 0.4]]
    io.uai.write_uai(folder / "wet.uai", model)
    assert io.uai.read_uai(folder / "wet.uai").kind == "BAYES"


@pytest.mark.parametrize("seed", range(30))
def test_generated_bif(folder, seed):
    """Each table is written row by row in any order, with a default, or all at once."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, 6).tolist()
    text, scopes, tables = "network n { }\n", [], []
    for v, k in enumerate(sizes):
        states = ", ".join(f"s{i}" for i in range(k))
        text += f"variable v{v} {{ type discrete [{k}] {{ {states} }}; }}\n"
    for v in rng.permutation(6).tolist():
        others = [u for u in range(6) if u != v]
        scopes.append((*rng.permutation(others)[: rng.integers(4)].tolist(), v))
        tables.append(rng.random([sizes[u] for u in scopes[-1]]))
        *parents, k = tables[-1].shape
        rows = list(np.ndindex(*parents))
        style = rng.integers(3)
        if style == 0:
            numbers = np.moveaxis(tables[-1], -1, 0).ravel().tolist()
            lines = [f"table {' '.join(map(repr, numbers))};"]
        else:
            lines = [
                f"({','.join(f's{i}' for i in key)}) {str(tables[-1][key].tolist())[1:-1]};"
                for key in rows
            ]
        if style == 2:
            lines.pop()
            tables[-1][rows[-1]] = 0.5
            lines.append("default" + k * " .5" + ";")
        given = ", ".join(f"v{u}" for u in scopes[-1][:-1])
        names = f"v{v} | {given}" if given else f"v{v}"
        text += f"probability ( {names} ) {{ {' '.join(rng.permutation(lines).tolist())} }}\n"
    model = io.bif.read_bif(save(folder, text))
    assert (model.cardinalities, model.scopes) == (tuple(sizes), scopes)
    assert [table.tolist() for table in model.tables] == [table.tolist() for table in tables]


def test_maxcut_and_qubo(folder):
    text = "4 3 J more\r\n1 2 1\n4 2 -2.5\r\n3 4 1e1\n"
    matrix = io.read_maxcut(save(folder, text))
    assert matrix.toarray().tolist() == [
        [0, 1, 0, 0],
        [1, 0, 0, -2.5],
        [0, 0, 0, 10],
        [0, -2.5, 10, 0],
    ]
    assert matrix.dtype == np.float64
    matrix = io.read_qubo(save(folder, "3 3\n1 1 -3\n1 2 2\n3 3 .5"))
    assert matrix.toarray().tolist() == [[-3, 2, 0], [2, 0, 0], [0, 0, 0.5]]
    for text in ("0 0", "2 0\n"):
        assert io.read_qubo(save(folder, text)).shape == (int(text[0]), int(text[0]))


def test_files_of_pyagrum_are_told(tmp_path):
    """It writes entries of tables with several parents in another order than the format says."""
    head = "BAYES\n3\n2 2 2 \n3\n1 0   # a\n1 1   # b\n"
    tables = "\n2\n .1 .9\n\n2\n .2 .8\n"
    two = head + "3 1 0 2   # c\n\n" + tables + "\n8\n" + " .3 .7\n" * 4
    with pytest.warns(ModelWarning, match="looks as if pyAgrum had written it"):
        found = MarkovNetwork.from_uai(save(tmp_path, two))
    assert [scope for scope, _ in found.factors] == [(0,), (1,), (1, 0, 2)]
    one = head + "2 0 2   # c\n\n" + tables + "\n4\n" + " .3 .7\n" * 2
    unnamed = two.replace("   # c", "")
    for text in (one, unnamed, two.replace("BAYES", "MARKOV")):
        MarkovNetwork.from_uai(save(tmp_path, text))  # a warning is an error here


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_comments_of_uai_files(folder, end):
    text = "# pyAgrum\n\n  bayes # of 1\n1\t# 2\n3# 7 8\n#\n1\n1 0 # a scope\n3\n.2 .3 #.4\n.5"
    model = same_uai(save(folder, text.replace("\n", end)), text.replace("\n", end).encode())
    assert (model.kind, model.cardinalities) == ("BAYES", (3,))
    assert model.tables[0].tolist() == [0.2, 0.3, 0.5]
    text = "#\n1 # sample\n2 0 1# 2\n3 0 #".replace("\n", end)
    assert io.read_evidence(save(folder, text), [2] * 4) == {0: 1, 3: 0}
    assert io.read_result(save(folder, f"mar # of all{end}1 2 .5 #{end}.5"))[0].tolist() == [
        0.5,
        0.5,
    ]


DOG = """// as JavaBayes writes it
NETWORK "Dog" { //3 variables
}
variable  "family out" { type\tdiscrete[2] {  "true"  "false" }; property "at = (1, 2)" ; }
variable  "bowel" { type discrete[2] {  "true"  "false" }; }
variable  "dog out" { Type discrete[3] { "in"  "out" "" }; }
probability (  "dog out"  "bowel"  "family out" ) { //3 variable(s) and 12 values
\ttable 0.5 0.97 0.9 0.3 /* in */ 0.25 0.03 0.1 0.7 0.25 0 0 0;
}
probability (  "bowel" ) { table 0.01 0.99 ; }
probability (  "family out" ) { table 0.15 0.85 ; }
"""


@pytest.mark.parametrize("without_network", [False, True])
def test_bif_of_javabayes(folder, without_network):
    text = re.sub(r"(?s)NETWORK.*?\n}", "", DOG) if without_network else DOG
    for data in (text, text.replace("\n", "\r\n")):
        model = io.bif.read_bif(save(folder, data))
        assert model.names == ("family out", "bowel", "dog out")
        assert model.state_names[2] == ("in", "out", "")
        assert model.scopes == [(1, 0, 2), (1,), (0,)]
        # The states of the child run slowest in a table, those of the last parent fastest.
        assert model.tables[0].tolist() == [
            [[0.5, 0.25, 0.25], [0.97, 0.03, 0]],
            [[0.9, 0.1, 0], [0.3, 0.7, 0]],
        ]


QBSOLV = (
    "c any thing\np qubo 0 4 2 3\nc linear\n0 0 3\n 3 3 -2.5\n\tc quadratic\n0 3 -1\n2 1 4\n0 1 .5"
)
HERCULES = "4\n1 1 3\n2 1 -1\n1 2 5\n0 -7\n1 0.25\n"


DIALECTS = [
    (
        QBSOLV,
        lambda x: 3 * x[0] - 2.5 * x[3] - x[0] * x[3] + 4 * x[1] * x[2] + 0.5 * x[0] * x[1],
    ),
    (
        "c scale : 1.0\n\nP\tQUBO unconstrained 4 2 0\n# 0\n1 1 1.5\n2 2 0.0\n3 3 -.5#\nc end",
        lambda x: 1.5 * x[1] - 0.5 * x[3],
    ),
    (HERCULES, lambda x: (3 * x[1] + 4 * x[1] * x[2]) / 2 - 7 * x[0] + 0.25 * x[1]),
    ("# a comment\nc\n4 2\n1 1 -3 # 1\n4 2 2", lambda x: -3 * x[0] + 4 * x[1] * x[3]),
]
NAMES = ["qbsolv", "qbsolv counts no zeros", "hercules", "Biq Mac"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("text", "value"), DIALECTS, ids=NAMES)
def test_dialects_of_qubo(folder, text, value, end):
    matrix = io.read_qubo(save(folder, text.replace("\n", end))).toarray()
    np.testing.assert_array_equal(matrix, matrix.T)
    for x in itertools.product((0, 1), repeat=4):
        assert np.array(x) @ matrix @ x == value(x)


def test_constants_in_comments_of_qubo_are_told(folder):
    text = "c Scale : 2\n#offset=-1.5\nc no scale : 7\n" + QBSOLV
    with pytest.warns(ModelWarning, match=r"scale 2 and the offset -1\.5: .* add -3 to x'Qx"):
        found = io.read_qubo(save(folder, text))
    np.testing.assert_array_equal(found.toarray(), 2 * io.read_qubo(save(folder, QBSOLV)).toarray())
    with pytest.warns(ModelWarning, match=r"as hercules does: .* x'Qx / 2, .* give beta=2"):
        assert io.read_qubo(save(folder, "2\n0 1 4\n")).toarray().tolist() == [[0, 1], [1, 0]]


def test_comments_of_cuts(folder):
    text = "# objective values must be negated. 9 9\n\n3 2 # 3\n1 2 1\nc 1 2\n2 3 -1# 2 3 4\n"
    assert io.read_maxcut(save(folder, text)).toarray().tolist() == [
        [0, 1, 0],
        [1, 0, -1],
        [0, -1, 0],
    ]


# ----------------------------------------------------------------- compressed files


def zipped(*names, data=b""):
    file = python_io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return file.getvalue()


def zipped_pair(data):
    return zipped("folder/", "folder/pair.uai", "__MACOSX/._pair.uai", data=data)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zipped_pair])
def test_compressed_files(folder, compress):
    text = PAIR.replace("\n", "\n" * 60_000, 3).encode()
    data = compress(text)
    for whole_file in (
        data,
        data if compress is zipped_pair else compress(b" ") * 2 + data + bytes(4),
    ):
        assert io.uai.read_uai(save(folder, whole_file)).scopes == [(0, 1), (1, 2)]
    data = compress(PAIR.encode())
    kind = {"compress": compress.__module__, "zipped_pair": "zip"}[compress.__name__]
    kind = {"bz2": "bzip2", "lzma": "xz"}.get(kind, kind)
    damaged = [data[:cut] for cut in range(6, len(data))]
    k = data.find(b"pair.uai") + 30  # in the data
    damaged.append(data[:k] + bytes([data[k] ^ 255]) + data[k + 1 :])
    if compress is not zipped_pair:
        damaged += [data + b"text", data + data[:8]]
    for bad in damaged:
        with pytest.raises(io.FormatError, match=f"the {kind} data are damaged from here on"):
            io.uai.read_uai(save(folder, bad))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (zipped("a.uai", "b.uai"), r"holds 2 files \(a\.uai, b\.uai\); it must hold one"),
        (zipped("a/"), r"holds 0 files \(\); it must hold one"),
        (b"\x28\xb5\x2f\xfd1", "it is compressed by zstd; decompress it, or use gzip"),
        (b"7z\xbc\xaf\x27\x1c", "it is compressed by 7-Zip"),
    ],
)
def test_archives_that_are_refused(folder, data, message):
    with pytest.raises(io.FormatError, match=f"line 1, column 1: .*{message}"):
        io.uai.read_uai(save(folder, data))


def test_an_encrypted_archive(folder):
    data = bytearray(zipped("a.uai"))
    data[data.index(b"PK\x01\x02") + 8] |= 1  # the flag, of which the text beside is not needed
    with pytest.raises(io.FormatError, match=r"a\.uai in the zip archive is encrypted; extract it"):
        io.uai.read_uai(save(folder, bytes(data)))


# ----------------------------------------------------------------- bad files

BAD_UAI = [
    ("", 1, 1, "found the end of the file where the kind of network must stand; .* 'MARKOV'"),
    ("BN 2", 1, 1, "found 'BN' where the kind"),
    ("marko\n2", 1, 1, "found 'marko'"),
    ("MARKOV\n", 1, 7, "found the end of the file where the number of variables"),
    ("MARKOV -3", 1, 8, "found '-3' where the number of variables must .* an integer from 0"),
    ("MARKOV 3.0", 1, 8, "found '3.0'"),
    ("MARKOV 1_0", 1, 8, "found '1_0'"),
    ("MARKOV " + 5000 * "9", 1, 8, "found '9{40}...'"),
    ("MARKOV 999999999999 2 2", 1, 24, "end of the file where cardinality 2 of 999999999999"),
    ("MARKOV 2\n2 0", 2, 3, "found '0' where cardinality 1 of 2 must stand; .* from 1 to"),
    ("MARKOV 1 2 1000000000000 1 0", 1, 29, "the end of the file where the number of variables of"),
    ("MARKOV 1 2 1 2 0 0", 1, 14, "found '2' where the number of variables of scope 0 .* 0 to 1"),
    ("MARKOV 2 2 2 1 2 0 2", 1, 20, "found '2' where a variable of scope 0 .* from 0 to 1"),
    ("MARKOV 2 2 2 1\n2 1 1", 2, 5, "found '1' where a variable of scope 0 .* each variable once"),
    (
        "MARKOV 1 2 1 1 0 3 1 1 1",
        1,
        18,
        r"found '3' where the number of entries of table 0 .* 2, the product of .* \[2\]",
    ),
    (
        "MARKOV 1 999999999999 1 1 0 999999999999 1",
        1,
        43,
        "end of the file where number 2 of 999999999999",
    ),
    ("MARKOV 1 2 1 1 0 2 1", 1, 21, "the end of the file where number 2 of 2 of table 0"),
    (
        "MARKOV 1 2 1 1 0 2 1 -1e-9",
        1,
        22,
        "found '-1e-9' where number 2 .* a finite number, not negative",
    ),
    ("MARKOV 1 2 1 1 0 2 nan 1", 1, 20, "found 'nan'"),
    ("MARKOV 1 2 1 1 0 2 1 inf", 1, 22, "found 'inf'"),
    ("MARKOV 1 2 1 1 0 2 1 1e999", 1, 22, "found '1e999'"),
    ("MARKOV 1 2 1 1 0 2 1 1_0", 1, 22, "found '1_0'"),
    ("MARKOV 1 2 1 1 0 2 1 4e-", 1, 22, "found '4e-'"),
    ("MARKOV 1 2 1 1 0 2 1 \u0663", 1, 22, "found '\u0663'"),
    (
        "MARKOV 1 2 1 1 0 2\r\n1\r\r1 x",
        4,
        3,
        "found 'x' where the end of the file .* nothing after the 1 tables",
    ),
    ("\ufeffMARKOV x", 1, 8, "found 'x'"),
    (b"MARKOV\xff 1", 1, 1, r"found 'MARKOV\\\\xff'"),
    (b"MARKOV \x00", 1, 8, r"found '\\x00'"),
    (b"MARKOV\xa01 2", 1, 1, "found 'MARKOV"),
    (
        "BAYES 2 2 2 1 1 0",
        1,
        13,
        "found '1' where the number of factors .* 2 in a BAYES file: one factor for each",
    ),
    (
        "BAYES 2 2 2 2\n2 0 1\n1 1",
        3,
        3,
        "found '1' where the last variable of scope 1 .* in a BAYES file",
    ),
    (
        "BAYES 1 2 1 0 1 1",
        1,
        13,
        "found '0' where the number of variables of scope 0 .* is 1",
    ),
    ("MARKOV 65" + 65 * " 1" + " 1 65", 1, 143, "found '65' .* from 0 to 64"),
]
BAD_EVIDENCE = [
    ("2 0 1", 1, 6, "the end of the file where the variable of observation 1 of 2"),
    ("1", 1, 2, "the end of the file where the number of observations"),
    ("1 0", 1, 4, "the end of the file where the state of observation 0 of 1"),
    ("2\n1 0 1\n1 0 0", 1, 1, "found '2' where the number of samples .* allowed is 1: split"),
    ("1 4 0", 1, 3, "found '4' where the variable of observation 0 of 1 .* from 0 to 3"),
    ("1 3 2", 1, 5, "found '2' where the state of observation 0 .* from 0 to 1"),
    ("1 -1 0", 1, 3, "found '-1'"),
    ("2 0 1\n0 1", 2, 1, "found '0' where the variable of observation 1 .* each variable once"),
    ("0 7", 1, 3, "found '7' where the end of the file .* nothing after the 0 observations"),
    ("x", 1, 1, "found 'x' where the number of observations or of samples"),
]
AB = (
    "network n { }\nvariable a { type discrete [2] {s, t}; }\n"
    "variable b { type discrete [2] {u, v}; }\n"
)
ROOT = AB + "probability (a) { table 1, 0; }\n"
BAD_BIF = [
    ("", 1, 1, "the end of the file where the first block must stand; allowed is 'network'"),
    ("probability (a)", 1, 1, "found 'probability' .* allowed is 'network' or 'variable'"),
    (
        "\n<?xml version",
        2,
        1,
        "found '<.xml', which begins a file of XML, such as XMLBIF; give format='pyagrum'",
    ),
    ("net\n{ }", 1, 1, "found 'net', which begins a file of Hugin NET or .* give format='pyagrum'"),
    ("network {", 1, 9, "found '{' where the name of the network must stand; allowed is a name"),
    ("network n {\n x }", 2, 2, "found 'x' where a line of the network .* 'property' or '}'"),
    ("network n { property x }", 1, 25, "the end of the file where the end of a property .* ';'"),
    ("network n { } nodes", 1, 15, "found 'nodes' where a block .* 'variable' or 'probability'"),
    ("network n { }\n/* é", 2, 1, r"found '/\*' where a block"),
    ("network n { /* é */ x", 1, 21, "found 'x'"),
    (b"network n { /* \xe9 */ } variable \xe9", 1, 32, r"found '\\\\xe9', which is not UTF-8"),
    (AB, 2, 10, "found 'a' where a variable .* one that has a probability block"),
    (AB + "variable a", 4, 10, "found 'a' where the name of a variable .* each name once"),
    (AB + "variable c { }", 4, 14, "found '}' where a line of variable c .* 'type'"),
    (AB + "variable c { type real", 4, 19, "found 'real' where the kind of variable .* 'discrete'"),
    (
        AB + "variable c { type discrete [0]",
        4,
        29,
        "found '0' where the number of states .* from 1",
    ),
    (AB + "variable c { type discrete [2] {x}", 4, 34, "found '}' where state 2 of 2"),
    (AB + "variable c { type discrete [2] {x, x}", 4, 36, "found 'x' where state 2 of 2 .* once"),
    (
        AB + "variable c { type discrete [2] {x, y, z}",
        4,
        39,
        "found 'z' where the end of the states",
    ),
    (AB + "variable c { type discrete [2] {x, y}; type", 4, 40, "found 'type'"),
    (AB + 'variable " {', 4, 10, "found '\"' where the name"),
    (
        AB + "probability (c)",
        4,
        14,
        "found 'c' where the child .* a variable that was described above",
    ),
    (AB + "probability (a, b | a)", 4, 19, "found '.' where a parent .* described above or '\\)'"),
    (AB + "probability (a | c", 4, 18, "found 'c' where a parent .* described above or '\\)'"),
    (AB + "probability (a | b b", 4, 20, "found 'b' where a parent .* each variable once"),
    (AB + "probability (a | a", 4, 18, "found 'a' where a parent .* each variable once"),
    (
        ROOT + "probability (a)",
        5,
        14,
        "found 'a' where the child .* without a probability block so far",
    ),
    (ROOT + "probability (b | a) { 0.5", 5, 23, "found '0.5' where a line of the probability of b"),
    (ROOT + "probability (b | a) { (w)", 5, 24, "found 'w' where the state of a parent .* s or t"),
    (ROOT + "probability (b | a) { (s, t)", 5, 27, "found 't' where the end of the states"),
    (
        ROOT + "probability (b | a) { (s) 1, 0; }",
        5,
        33,
        r"found '}' where the distribution of b given \(t\) .* one line for each case",
    ),
    (ROOT + "probability (b | a) { (s) 1, 0; (s)", 5, 33, r"found '\(' .* each case once"),
    (ROOT + "probability (b | a) { (s) 1, 0; table", 5, 33, "found 'table' .* each case once"),
    (
        ROOT + "probability (b | a) { default 1, 0; default",
        5,
        37,
        "found 'default' .* each case once",
    ),
    (
        ROOT + "probability (b | a) { (s) 1; }",
        5,
        28,
        "found ';' where number 2 of 2 of a distribution of b",
    ),
    (ROOT + "probability (b | a) { (s) 1, 0, 0", 5, 33, "found '0' where the end of a line"),
    (ROOT + "probability (b | a) { (s) 1, -1", 5, 30, "found '-1' .* not negative"),
    (
        ROOT + "probability (b | a) { table 1, 0, 1;",
        5,
        36,
        "found ';' where number 4 of 4 of the table of b",
    ),
    (ROOT + "probability (b | a) { table 1, 0, 1, NaN;", 5, 38, "found 'NaN'"),
]


def bad_edges(node, nodes, pair, pairs):
    return [
        ("", 1, 1, f"the end of the file where the number of {nodes}"),
        ("99999999 0", 1, 1, f"found '99999999' where the number of {nodes} .* to 16777216"),
        ("3\n", 1, 2, f"the end of the file where the number of {pairs}"),
        ("3 2\n1 2 1\n", 2, 6, f"the end of the file where number 4 of 6 of the {pairs}"),
        ("3 999999999999\n1 2 1\n", 2, 6, "the end of the file where number 4 of"),
        ("3 1\n1 2", 2, 4, f"the end of the file where number 3 of 3 of the {pairs}"),
        (
            "3 1\n1 4 1",
            2,
            3,
            f"found '4' where a {node} must stand; allowed is an integer from 1 to 3",
        ),
        ("3 1\n0 2 1", 2, 1, f"found '0' where a {node}"),
        ("3 1\n1.5 2 1", 2, 1, f"found '1.5' where a {node}"),
        ("3 1\n1 2 nan", 2, 5, "found 'nan' where number 3 of 3 .* a finite number"),
        (
            "3 1\n1 2 1\n3",
            3,
            1,
            f"found '3' where the end of the file .* nothing after the 1 {pairs}",
        ),
        ("3 2\n1 2 1\n2 1 1", 3, 1, f"found '2' where an {pair} .* each pair of {nodes} once"),
    ]


BAD_QUBO = [
    ("3 2\n2 2 1\n2 2 1", 3, 1, "found '2' where an entry .* each pair"),
    ("c\np edge 3 1\ne 1 2", 2, 1, "found 'p edge', which begins .* DIMACS, .* format='col'"),
    ("P edge 3 1", 1, 3, "found 'edge' where the kind of problem .* 'qubo'"),
    ("p qubo 0 3 1 1\n0 0 1\n", 1, 14, "found '1' where the number of quadratic .* is 0, as"),
    ("p qubo 0 3 1 0\n0 0 1\n1 1 2", 1, 12, "found '1' where the number of linear .* is 2, as"),
    ("p qubo 0 3 9 0\n0 0 1\n1 1 0", 1, 12, "found '9' where the number of linear .* is 1 or 2,"),
    ("p qubo 0 3 1 1\n0 0 1\n0 1", 3, 4, "end of the file where number 6 of 6 of the entries"),
    ("p qubo 0 3 0 1\nc\n1 3 1", 3, 3, "found '3' where a variable .* an integer from 0 to 2"),
    ("p qubo 0 3 0 2\n1 2 1\n2 1 1", 3, 1, "found '2' where an entry .* in either order"),
    ("c scale : -2\n2 0", 1, 11, "found '-2' where the scale must .* a positive number"),
    ("# offset = 1_0\n2 0", 1, 12, "found '1_0' where the offset must .* a finite number"),
    ("c scale : 2\nc scale : 2\n2 0", 2, 11, "found '2' where the scale .* given once"),
    ("3\n0 3 1", 2, 3, "found '3' where a variable .* an integer from 0 to 2"),
    ("3\n0 1 1\n3 1", 3, 1, "found '3' where a variable .* an integer from 0 to 2"),
    ("3\n0 1 1\n0 1 2", 3, 1, "found '0' where an entry .* each pair of variables once"),
    ("3\n0 1\n0 2", 3, 1, "found '0' where a variable .* one weight alone for each"),
    ("3\n0 1 1\n0 1 1 1", 3, 1, "found '0' where the beginning of a line .* two variables and a"),
    ("3\n0 1 x", 2, 5, "found 'x' where number 3 of 3 of the entries"),
]
READERS = {
    "uai": (io.uai.read_uai, io.UAIFormatError, BAD_UAI),
    "evidence": (lambda path: io.read_evidence(path, [2] * 4), io.UAIFormatError, BAD_EVIDENCE),
    "bif": (io.bif.read_bif, io.FormatError, BAD_BIF),
    "maxcut": (io.read_maxcut, io.FormatError, [
        *bad_edges("vertex", "vertices", "edge", "edges"),
        ("3 1\n2 2 1", 2, 1, "found '2' where an edge .* two different vertices"),
    ]),
    "qubo": (io.read_qubo, io.FormatError, [
        *bad_edges("variable", "variables", "entry", "entries"),
        *BAD_QUBO,
    ]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "content", "line", "column", "message"),
    [(name, *case) for name, (_, _, cases) in READERS.items() for case in cases],
)
def test_error_says_where_and_what(folder, reader, content, line, column, message):
    read, cls, _ = READERS[reader]
    path = save(folder, content)
    with pytest.raises(cls, match=message) as caught:
        read(path)
    error = caught.value
    assert (error.path, error.line, error.column) == (str(path), line, column)
    data = content if isinstance(content, bytes) else content.encode()
    check_error(error, path, data, reader)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("reader", READERS)
def test_damaged_gzip(folder, reader):
    read, cls, _ = READERS[reader]
    data = gzip.compress(PAIR.encode())
    for cut in range(2, len(data)):
        with pytest.raises(cls, match="the gzip data are damaged from here on") as caught:
            read(save(folder, data[:cut]))
        assert caught.value.line >= 1
    for bad in (data[:-8] + bytes(8), data[:12] + b"\xff\xff" + data[14:], data + b"text"):
        with pytest.raises(cls, match="the gzip data are damaged from here on"):
            read(save(folder, bad))


@pytest.mark.parametrize("reader", READERS)
def test_missing_file(folder, reader):
    with pytest.raises(FileNotFoundError):
        READERS[reader][0](folder / "none")
    with pytest.raises(IsADirectoryError):
        READERS[reader][0](folder)


def test_error_can_be_pickled(folder):
    error = io.UAIFormatError("a.uai", 2, 3, "found nothing.")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is io.UAIFormatError
    assert str(again) == "a.uai, line 2, column 3: found nothing."
    assert (again.line, again.column, again.problem) == (2, 3, "found nothing.")


def test_bif_of_too_many_parents_or_entries(folder):
    names = [f"v{i}" for i in range(65)]
    text = "network n { }\n"
    text += "".join(f"variable {v} {{ type discrete [2] {{s, t}}; }}\n" for v in names)
    body = "{ default 1, 0; }\n"
    path = save(folder, text + f"probability (v0 | {' '.join(names[1:])}) {body}")
    with pytest.raises(io.FormatError, match=r"line 67, .* found 'v64' .* at most 63 parents"):
        io.bif.read_bif(path)
    path = save(folder, text + f"probability (v0 | {' '.join(names[1:41])}) {body}")
    message = (
        f"column 14: found 'v0' where the child of a table of {2**41} entries .* at most 67108864"
    )
    with pytest.raises(io.FormatError, match=message):
        io.bif.read_bif(path)


# ----------------------------------------------------------------- damaged files

BASES = {
    "uai": [
        PAIR,
        "BAYES\n3\n2 1 3\n3\n1 1\n2 1 0\n3 0 1 2\n\n1\n 1.0\n\n2\n 0.25 0.75\n\n"
        "6\n 0.1 0.2 0.7\n 1e-3 0.0 0.999\n",
        "# first\nMarkov 1 12# 3\n 2  1 0  0  12 1 1 1 1 1 1 1 1 1 1 1 1 #\n1 .5",
    ],
    "evidence": ["3 0 1 2 0 3 1", "1\n2  0 1  3 0\n", "1\n0"],
    "bif": [WET, ROOT + "probability (b | a) { (s) 1, 0; (t) 0.25 .75; }"],
    "edges": [
        "5 4 J\n1 2 1\n2 3 -1\n1 5 2.5\n4 5 0\n",
        "# first\n3 3\n1 1 4\n2 3 -1 # c\n1 3 7",
        "c scale : 2.5\np qubo 0 4 2 2\n0 0 4\nc offset : 1\n3 3 -1\n0 3 7\n1 2 0.5",
        "4\n1 2 4\n2 1 -1\n0 7\n3 3 .5\n1 -2",
    ],
}
NUMBERS = """0 1 2 3 4 5 10 -1 -0.0 0.5 1. .5 +1 4e-05 1e400 -1e400 1e-400 nan inf Infinity 1_0 0x1
1d0 1.0 00 01 000000000000000000001 1000000000000 99999999999999999999 MARKOV BAYES x # c p qubo"""
MARKS = '{ } ( ) [ ] | ; , " // /* */ table default property variable probability a b s t'
SPACES = ["\xa0", "\ufeff", "\x00", "\x1c", "\x85", "\n", "\r", "\r\n", "\f", "", " "]
NASTY = [*NUMBERS.split(), *MARKS.split(), "9" * 5000, "\u0663", *SPACES]
EDIT = st.tuples(
    st.sampled_from(["replace", "insert", "delete", "swap", "byte", "cut"]),
    st.integers(0, 999),
    st.integers(0, 999),
)
EDITS = st.lists(EDIT, min_size=1, max_size=4)


def edited(text, edits):
    """A file with tokens (or bytes) changed at places taken modulo its length."""
    data = text.encode()
    for kind, place, choice in edits:
        parts = re.split(rb"(\s+|[,{}()\[\]|;])", data)
        k = place % len(parts)
        word = NASTY[choice % len(NASTY)].encode()
        if kind == "byte" and data:
            k = place % len(data)
            data = data[:k] + bytes([choice % 256]) + data[k + 1 :]
        elif kind == "cut":
            data = data[: place % (len(data) + 1)]
        else:
            if kind == "swap":
                other = choice % len(parts)
                parts[k], parts[other] = parts[other], parts[k]
            elif kind == "insert":
                parts[k:k] = [b" ", word, b" "]
            else:
                parts[k] = word if kind == "replace" else b""
            data = b"".join(parts)
    return data


def check_uai(path, data):
    same_uai(path, data)


def check_evidence(path, data):
    sizes = [2, 1, 3, 2]
    found, wanted = read_both(
        lambda p: io.read_evidence(p, sizes), lambda d: naive_evidence(d, sizes), path, data
    )
    assert found == wanted


def check_bif(path, data):
    try:
        model = io.bif.read_bif(path)
    except io.FormatError as error:
        check_error(error, path, data, "bif")
        return
    assert sorted(scope[-1] for scope in model.scopes) == list(range(len(model.names)))
    assert [len(states) for states in model.state_names] == list(model.cardinalities)
    for scope, table in zip(model.scopes, model.tables, strict=True):
        assert table.shape == tuple(model.cardinalities[v] for v in scope)
        assert np.all((table >= 0) & np.isfinite(table))


def check_edges(path, data):
    for read, naive in (
        (io.read_maxcut, lambda data: naive_edges(data, loops=False)),
        (io.read_qubo, naive_qubo),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelWarning)
            found, wanted = read_both(read, naive, path, data, "edges")
        if wanted is not None:
            n, entries = wanted
            assert found.shape == (n, n)
            i, j = found.nonzero()
            read = dict(zip(zip(i.tolist(), j.tolist(), strict=True), found.data, strict=True))
            assert read == {pair: weight for pair, weight in entries.items() if weight}


CHECKS = {"uai": check_uai, "evidence": check_evidence, "bif": check_bif, "edges": check_edges}


@pytest.mark.parametrize("name", CHECKS)
def test_file_cut_anywhere(folder, name):
    for text in BASES[name]:
        for data in (text.encode(), text.replace("\n", "\r\n").encode()):
            for cut in range(len(data) + 1):
                CHECKS[name](save(folder, data[:cut]), data[:cut])


def fuzz(folder, text, edits, zipped, name):
    data = edited(text, edits)
    if data.startswith(b"\x1f\x8b"):
        return
    path = save(folder, gzip.compress(data) if zipped else data)
    CHECKS[name](path, data)


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param({"uai": 300, "bif": 200}, id="commit"),
        pytest.param({"uai": 50_000, "bif": 30_000}, id="nightly", marks=pytest.mark.nightly),
    ],
)
def test_files_edited_at_random(folder, name, cases):
    run = given(st.sampled_from(BASES[name]), EDITS, st.booleans())(
        lambda text, edits, zipped: fuzz(folder, text, edits, zipped, name)
    )
    count = cases.get(name, min(cases.values()) // 2)
    settings(
        max_examples=count,
        # Other files each night, the same with each commit.
        derandomize=count <= 1000,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(run)()


# ----------------------------------------------------------------- published files


@pytest.mark.parametrize("path", files("uai/*.uai"))
def test_published_uai(folder, path):
    model = same_uai(path, path.read_bytes())
    io.uai.write_uai(folder / "again.uai", model)
    again = io.uai.read_uai(folder / "again.uai")
    assert again[:3] == model[:3]
    assert [t.tobytes() for t in again.tables] == [t.tobytes() for t in model.tables]
    for evidence in path.parent.glob(f"{path.stem}*.evid"):
        found = io.read_evidence(evidence, model.cardinalities)
        assert found == naive_evidence(evidence.read_bytes(), model.cardinalities)
        assert len(found) == int(evidence.read_text().split()[0])


@pytest.mark.parametrize("path", files("uai/BN_80.uai"))
def test_half_a_megabyte_is_read_in_the_time_of_ten_conversions(path):
    """A tenth of a second where float() of all its words takes a hundredth."""

    def seconds(f):
        start = time.process_time()  # others may use the machine
        f()
        return time.process_time() - start

    def conversion():
        return [float(word) for word in path.read_text().split()[1:]]

    reading, plain = (
        min(seconds(f) for _ in range(5)) for f in (lambda: io.uai.read_uai(path), conversion)
    )
    assert reading < 10 * plain


@pytest.mark.parametrize("path", files("bif/*.bif.gz"))
def test_published_bif(path):
    model = io.bif.read_bif(path)
    states, tables = naive_bif(gzip.decompress(path.read_bytes()).decode())
    assert model.names == tuple(states)
    assert model.state_names == tuple(map(tuple, states.values()))
    for (scope, table), found, read in zip(
        tables.values(), model.scopes, model.tables, strict=True
    ):
        assert found == scope
        np.testing.assert_array_equal(read, table)
        assert np.allclose(table.sum(axis=-1), 1.0, atol=1e-6)


@pytest.mark.parametrize(
    "path",
    list(itertools.chain.from_iterable(files(f"maxcut/{p}/*") for p in ("rudy", "ising", "gset"))),
)
def test_published_maxcut(path):
    check_published(io.read_maxcut(path), path)


@pytest.mark.parametrize("path", files("maxcut/qubo/*"))
def test_published_qubo(path):
    check_published(io.read_qubo(path), path)


def check_published(found, path):
    first, *rows = path.read_text().splitlines()
    n, count = map(int, first.split()[:2])
    wanted = np.zeros((n, n))
    for i, j, weight in filter(None, map(str.split, rows)):
        wanted[int(i) - 1, int(j) - 1] = wanted[int(j) - 1, int(i) - 1] = float(weight)
        count -= 1
    assert count == 0
    np.testing.assert_array_equal(found.toarray(), wanted)


@pytest.mark.parametrize("path", files("wild/qbs__smallestTest.qubo"))
def test_published_qbsolv(path):
    """The minimum is the one that an exhaustive search of another package finds."""
    matrix = io.read_qubo(path).toarray()
    values = [np.array(x) @ matrix @ x for x in itertools.product((0, 1), repeat=4)]
    np.testing.assert_allclose(min(values), -2.5, rtol=1e-12)


@pytest.mark.parametrize("path", files("wild/JavaBayes__dog-problem.bif"))
def test_published_javabayes(path):
    """The probability that the family is out, of the tables in the file by hand."""
    network = MarkovNetwork.from_bif(path, {"light_on": "true", "hear_bark": "false"})
    joint = []
    for out, p, light in (("true", 0.15, 0.6), ("false", 0.85, 0.05)):
        dog = {"true": (0.99, 0.90), "false": (0.97, 0.3)}[out]
        dog = 0.01 * dog[0] + 0.99 * dog[1]
        joint.append(p * light * (0.3 * dog + 0.99 * (1 - dog)))
    found = exact.marginals(network)["p"].to_numpy()[network.names.index("family_out"), :2]
    np.testing.assert_allclose(found, np.array(joint) / sum(joint), rtol=1e-12)


@pytest.mark.parametrize("path", files("wild/smc__gka4d.mc"))
def test_published_cut_with_a_comment(path):
    """A cut of a published value is found, and none is better."""
    best = anneal(Ising.from_maxcut(io.read_maxcut(path)), n_sweeps=300, random_state=0)
    assert float(best["lp"].max()) == 10727.0


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (*case.values, message)
        for name, message in (
            ("agr__carpo.bif", r"line 508, column 1: .* distribution of N5 given \(1, 1\)"),
            ("agr__dBN.bif", "line 347, column 14: found 'lasubt_1' where the child"),
        )
        for case in files(f"wild/{name}")
        if not case.marks
    ],
)
def test_published_files_that_are_refused(path, message):
    with pytest.raises(ValueError, match=message):
        io.read_model(path)

"""Formats of model files: those of the package, and those that register themselves."""

import gzip
import pathlib
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from sklsb import Ising, MarkovNetwork, io
from sklsb.io import _formats, read_model, register
from sklsb.io._formats import format_of, formats

PAIR = "MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n"
RAIN = """network rain { }
variable rain { type discrete [ 2 ] { no, yes }; }
probability ( rain ) { table 0.8, 0.2; }
"""
GRAPH = "3 2\n1 2 1\n2 3 -2\n"


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """Those of the package; what a test registers is forgotten after it."""
    own = {name: found for name, found in formats().items() if found.target is not None}
    monkeypatch.setattr(_formats, "_FORMATS", own)


@pytest.fixture
def files(tmp_path):
    for name, text in (("p.uai", PAIR), ("p.evid", "1 0 1"), ("r.BIF", RAIN), ("g.mc", GRAPH)):
        (tmp_path / name).write_text(text)
    (tmp_path / "q.sparse.gz").write_bytes(gzip.compress(GRAPH.encode()))
    return tmp_path


def read_lines(path):
    field = np.array(path.read_text().split(), dtype=float)
    return Ising(np.zeros((field.size, field.size)), field)


def test_formats_of_the_package(files):
    assert {name: f.suffixes for name, f in formats().items()} == {
        "bif": (".bif",),
        "bqpjson": (".bqpjson",),
        "cnf": (".cnf",),
        "col": (".col",),
        "cut": (".mc", ".rud", ".rudy", ".cut"),
        "erg": (".erg",),
        "fg": (".fg",),
        "pyagrum": (".net", ".xmlbif", ".bifxml", ".xdsl", ".dsl"),
        "qh": (".qh",),
        "qubo": (".qubo", ".sparse"),
        "uai": (".uai",),
    }
    x, graph = [[-1, -1, 1], [1, -1, 1]], files / "g.mc"
    for found, expected in (
        (read_model(files / "p.uai"), MarkovNetwork.from_uai(files / "p.uai")),
        (read_model(files / "r.BIF"), MarkovNetwork.from_bif(files / "r.BIF")),
        (
            read_model(files / "g.mc", beta=2.0),
            Ising.from_maxcut(io.read_maxcut(files / "g.mc"), 2),
        ),
        (read_model(str(files / "q.sparse.gz")), Ising.from_qubo(io.read_qubo(graph))),
        (read_model(files / "g.mc", "qubo"), Ising.from_qubo(io.read_qubo(graph))),
    ):
        assert type(found) is type(expected)
        assert repr(found) == repr(expected)
        if isinstance(found, Ising):
            np.testing.assert_array_equal(found.log_prob(x), expected.log_prob(x))
    observed = read_model(files / "p.uai", evidence=files / "p.evid")
    assert (observed.sites.tolist(), observed.observed.tolist()) == ([0], [1])


def test_a_format_registers_itself(files):
    path = files / "a.b.Lines"
    path.write_text("1 -0.5")
    with pytest.raises(ValueError, match=r"a\.b\.Lines has no suffix of a known format"):
        read_model(path)
    assert register("lines", ".lines")(read_lines) is read_lines
    np.testing.assert_array_equal(read_model(path).field, [1.0, -0.5])
    for end in ("gz", "XZ", "bz2", "zip"):
        assert format_of(f"x.lines.{end}").name == "lines"
    with pytest.raises(
        ValueError, match=r"beta is for files of the formats \['bqpjson', 'cut', 'qh', 'qubo'\]"
    ):
        read_model(path, beta=2.0)
    register("lines", ".lines", ".txt")(read_lines)  # again, as a cell of a notebook
    assert format_of("x.txt").suffixes == (".lines", ".txt")


def test_what_is_unknown_or_taken_is_refused(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = (
        r"bif \(\.bif\), .* cut \(\.mc, \.rud, \.rudy, \.cut\), .* qubo \(\.qubo, \.sparse\), uai"
    )
    for path in ("model.mps", "model", "model.gz", ".uai"):
        pathlib.Path(path).touch()
        with pytest.raises(ValueError, match=f"{path} has no suffix of a known format; .* {known}"):
            format_of(path)
    for name, text, message in (
        ("c.xml", "\n <BIF>", r"c\.xml, line 2, column 2: found '<BIF', which begins .* XMLBIF"),
        ("d.txt", "net{ }", "line 1, column 1: found 'net', which begins a file of Hugin NET"),
        (
            "e.txt",
            "c a\nc\np col 3 2",
            "line 3, column 1: found 'p col', .* DIMACS, .* format='col'",
        ),
        (
            "e.wcnf",
            "p wcnf 3 2",
            "found 'p wcnf', which begins a file of DIMACS, such as MaxSAT; sk",
        ),
        ("f.json", '{"id": 0}', "begins a file of JSON, such as bqpjson; give format='bqpjson'"),
    ):
        pathlib.Path(name).write_text(text)
        with pytest.raises(ValueError, match=message):
            format_of(name)
    with pytest.raises(FileNotFoundError, match=r"none\.mps"):
        format_of("none.mps")
    with pytest.raises(ValueError, match=f"the format is 'mps'; known are {known}"):
        format_of("model.uai", "mps")
    for name, suffix, message in (
        ("cut", ".x", r"the format 'cut' belongs to sklsb\.io\.qubo; give another name"),
        ("lines", ".UAI", r"the suffix '\.UAI' belongs to the format 'uai'"),
        ("lines", "lines", "the suffix 'lines' must begin with a dot"),
        ("lines", ".gz", r"the suffix '\.gz' must begin with a dot, and not be \.gz or \.bz2"),
        ("lines", ".XZ", r"the suffix '\.XZ' must begin with a dot"),
    ):
        with pytest.raises(ValueError, match=message):
            register(name, suffix)(read_lines)
    assert {"bif", "cut", "qubo", "uai"} < set(formats())
    assert "lines" not in formats()


def test_entry_points(files, monkeypatch):
    (files / "a_format.py").write_text(
        "import sklsb.io\n"
        "@sklsb.io.register('plugged', '.plugged')\n"
        "def read(path):\n"
        "    return 'a target'\n"
    )
    monkeypatch.syspath_prepend(files)
    points = [
        EntryPoint("bad", "no_such_module_of_formats", "sklsb.formats"),
        EntryPoint("good", "a_format", "sklsb.formats"),
    ]
    monkeypatch.setattr(_formats, "entry_points", lambda group: points)
    _formats._load_entry_points.cache_clear()
    try:
        with pytest.warns(UserWarning, match="bad = no_such_module_of_formats .* ModuleNotFound"):
            assert read_model("x.plugged") == "a target"
    finally:
        _formats._load_entry_points.cache_clear()
        sys.modules.pop("a_format", None)


def test_the_longest_suffix_that_fits_tells_the_format(files):
    @register("spins", ".my.uai")
    def read_spins(path):
        return Ising([[0.0]], [0.5])

    assert format_of("one.MY.uai.gz").name == "spins"
    assert format_of("one.uai").name == "uai"
    with pytest.raises(ValueError, match=r"the suffix '\.GZ' must begin with a dot, and not be"):
        register("packed", ".GZ")(read_spins)

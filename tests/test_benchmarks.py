"""Benchmarks and examples agree with the package as it is, as far as names can tell."""

import ast
import importlib
import sys
import warnings
from pathlib import Path

import pytest
from processes import run_forked

HERE = Path(__file__).resolve().parent.parent
BENCHMARKS = [*(HERE / "benchmarks").rglob("*.py")]
EXAMPLES = [*(HERE / "examples").glob("*.py")]


def names(paths):
    return [path.relative_to(HERE).as_posix() for path in paths]


def import_each(folder, scripts):
    warnings.simplefilter("default")
    sys.path.insert(0, str(folder))
    sys.path.append(str(HERE))  # after the package, which may be installed elsewhere
    for name in scripts:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name.split(".")[0] == "sklsb":
                raise
            print(name, "needs", missing.name)
        else:
            print(name)


@pytest.mark.skipif(not BENCHMARKS, reason="this distribution has no benchmarks")
def test_every_benchmark_can_be_imported(tmp_path):
    """In one process; what needs a package that is not installed says so."""
    folder = HERE / "benchmarks"
    scripts = [path.stem for path in folder.glob("*.py")]
    scripts += [f"benchmarks.paper.{path.stem}" for path in (folder / "paper").glob("[!_]*.py")]
    printed = run_forked(lambda _: import_each(folder, scripts), tmp_path)
    assert [line.split()[0] for line in printed.splitlines()] == scripts


@pytest.mark.skipif(not EXAMPLES, reason="this distribution has no examples")
@pytest.mark.parametrize("path", EXAMPLES, ids=names(EXAMPLES))
def test_every_example_imports_what_there_is(path):
    """The documentation runs them all; this finds a name that is gone without that."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sklsb":
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{path.name}: {node.module}.{alias.name}"

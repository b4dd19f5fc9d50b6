"""Benchmarks and examples agree with the package as it is, as far as names can tell."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent
BENCHMARKS = [*(HERE / "benchmarks").rglob("*.py")]
EXAMPLES = [*(HERE / "examples").glob("*.py")]


def names(paths):
    return [path.relative_to(HERE).as_posix() for path in paths]


@pytest.mark.skipif(not BENCHMARKS, reason="this distribution has no benchmarks")
def test_every_benchmark_can_be_imported():
    """In one process; what needs a package that is not installed says so."""
    code = """
import importlib, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
sys.path.append(sys.argv[2])  # after the package, which may be installed elsewhere
for path in sys.argv[3:]:
    try:
        importlib.import_module(path)
    except ModuleNotFoundError as missing:
        assert missing.name.split(".")[0] != "sklsb", (path, missing)
        print(f"{path} needs {missing.name}")
    except Exception as error:
        raise SystemExit(f"{path}: {error!r}")
"""
    folder = HERE / "benchmarks"
    scripts = [path.stem for path in folder.glob("*.py")]
    parts = [f"benchmarks.paper.{path.stem}" for path in (folder / "paper").glob("[!_]*.py")]
    command = [sys.executable, "-c", code, str(folder), str(HERE), *scripts, *parts]
    environment = os.environ | {"MPLBACKEND": "Agg"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not EXAMPLES, reason="this distribution has no examples")
@pytest.mark.parametrize("path", EXAMPLES, ids=names(EXAMPLES))
def test_every_example_imports_what_there_is(path):
    """The documentation runs them all; this finds a name that is gone without that."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sklsb":
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{path.name}: {node.module}.{alias.name}"

"""Planted errors: each must fail a named check, with a message, and no error none.

A mutant is a copy of the package with one piece of text changed, imported in place of the
package. Its kernels run as plain Python, which gives the same chains bit for bit.
"""

import importlib
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
from processes import copy_package

TESTS = Path(__file__).parent


def _holds_the_package(name):
    """Whether a module is of the package, or a file beside this one that may have imported it."""
    if name.split(".")[0] == "sklsb":
        return True
    file = getattr(sys.modules[name], "__file__", None)
    kept = ("conftest", "planted", "processes")
    beside = file is not None and Path(file).parent == TESTS
    return beside and name not in kept and not name.startswith("test_mutants")


_unchanged = {}  # the modules of a copy in which nothing is replaced, and where it is


@contextmanager
def imported(folder, file="__init__.py", old="", new=""):
    """Import a copy of the package, with one text replaced and nothing compiled."""
    if old:
        package, modules = copy_package(folder), {}
        text = (package / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} holds {text.count(old)} times: {old}"
        (package / file).write_text(text.replace(old, new), encoding="utf-8")
    else:
        if not _unchanged:
            _unchanged.update(package=copy_package(folder), modules={})
        package, modules = _unchanged["package"], _unchanged["modules"]
        folder = package.parent
    original = {name: sys.modules.pop(name) for name in [*sys.modules] if _holds_the_package(name)}
    sys.modules.update(modules)
    jit = numba.config.DISABLE_JIT
    sys.path.insert(0, str(folder))
    numba.config.DISABLE_JIT = True
    try:
        mutant = importlib.import_module("sklsb")
        assert Path(mutant.__file__).parent == package
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", mutant.exceptions.SamplerWarning)
            yield mutant
    finally:
        numba.config.DISABLE_JIT = jit
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if _holds_the_package(name)]:
            modules[name] = sys.modules.pop(name)
        sys.modules.update(original)


def inside(package, name):
    """Return a module of the package that is imported now."""
    return importlib.import_module(f"{package.__name__}.{name}")


def anew(name):
    """Return a file of tests, imported again: what it calls the package is the mutant."""
    return importlib.import_module(name)


class Mutant(NamedTuple):
    """One piece of a file replaced, and the check that finds it with which message."""

    file: str
    old: str
    new: str
    check: object
    message: str

    def must_be_found(self, folder):
        """Fail unless the check does, with the message."""
        found = pytest.raises((AssertionError, pytest.fail.Exception), match=self.message)
        with imported(folder, self.file, self.old, self.new) as package, found:
            self.check(package)


def cases(mutants):
    """Return parameters for all; those whose check has found another before are slow."""
    seen = set()
    for name, mutant in mutants.items():
        yield pytest.param(name, marks=pytest.mark.slow if mutant.check in seen else ())
        seen.add(mutant.check)

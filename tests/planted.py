"""Planted errors: each must fail a named check, with a message, and no error none.

A mutant is the package with one piece of text of one file changed, imported in place of the
package; no file is written. Its kernels run as plain Python, which gives the same chains bit for
bit.

Each commit looks for a share of the errors, and the next commit for another. So do checks of the
package itself, half as often. Which ones follows from the contents of all files of the package and
of its tests. The rest is in the slow tier.
"""

import hashlib
import importlib
import sys
import warnings
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest

import sklsb

TESTS, PACKAGE = Path(__file__).parent, Path(sklsb.__file__).parent
SHARE = 15  # one error of so many, and one check of twice as many, is in the commit tier


def _holds_the_package(name):
    """Whether a module is of the package, or a file beside this one that may have imported it."""
    if name.split(".")[0] == "sklsb":
        return True
    file = getattr(sys.modules[name], "__file__", None)
    kept = ("conftest", "planted", "processes")
    beside = file is not None and Path(file).parent == TESTS
    return beside and name not in kept and not name.startswith("test_mutants")


_code = {}  # of all files as they are, compiled once


class _Loader(SourceFileLoader):
    """Loads a file of the package, or the text in its place."""

    def __init__(self, name, path, texts):
        super().__init__(name, path)
        self.texts = texts

    def get_code(self, name):
        if self.path in self.texts:
            return compile(self.texts[self.path], self.path, "exec", dont_inherit=True)
        if self.path not in _code:
            _code[self.path] = super().get_code(name)
        return _code[self.path]


class _Finder:
    """Finds the modules of the package, with texts in place of some files."""

    def __init__(self, texts):
        self.texts = texts

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "sklsb":
            return None
        spec = PathFinder.find_spec(name, path or [str(PACKAGE.parent)])
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path, self.texts)
        return spec


_unchanged = {}  # the modules of the package in which nothing is replaced


@contextmanager
def imported(file="__init__.py", old="", new=""):
    """Import the package again, with one text replaced and nothing compiled."""
    texts, modules = {}, _unchanged
    if old:
        text = (PACKAGE / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} holds {text.count(old)} times: {old}"
        texts, modules = {str(PACKAGE / file): text.replace(old, new)}, {}
    original = {name: sys.modules.pop(name) for name in [*sys.modules] if _holds_the_package(name)}
    sys.modules.update(modules)
    finder = _Finder(texts)
    jit = numba.config.DISABLE_JIT
    sys.meta_path.insert(0, finder)
    numba.config.DISABLE_JIT = True
    try:
        mutant = importlib.import_module("sklsb")
        assert mutant.__loader__.texts == texts or not old
        assert mutant is not sklsb
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", mutant.exceptions.SamplerWarning)
            yield mutant
    finally:
        numba.config.DISABLE_JIT = jit
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _holds_the_package(name)]:
            modules[name] = sys.modules.pop(name)
        sys.modules.update(original)


def inside(package, name):
    """Return a module of the package that is imported now."""
    return importlib.import_module(f"{package.__name__}.{name}")


def anew(name):
    """Return a file of tests, imported again: what it calls the package is the mutant."""
    return importlib.import_module(name)


@contextmanager
def hurried(package):
    """Compare measured matrices with fewer random transitions: in plain Python each takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inside(package, "testing._cells").Outcomes.__init__, "__defaults__", (512,))
        yield package.testing


class Mutant(NamedTuple):
    """One piece of a file replaced, and the check that finds it with which message."""

    file: str
    old: str
    new: str
    check: object
    message: str

    def must_be_found(self):
        """Fail unless the check does, with the message."""
        found = pytest.raises((AssertionError, pytest.fail.Exception), match=self.message)
        with imported(self.file, self.old, self.new) as package, found:
            self.check(package)


# ----------------------------------------------------------------- the share of a commit


@cache
def _contents():
    """Return a digest of what a commit holds: the files of the package and of the tests."""
    digest = hashlib.sha256()
    for folder in (PACKAGE, TESTS):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def has_its_turn(name, share=SHARE):
    """Whether the error, or the check, of that name has its turn in the commit tier."""
    drawn = hashlib.sha256(f"{_contents()} {name}".encode()).digest()
    return int.from_bytes(drawn[:8]) % share == 0


def both_tests(mutants, marks=lambda check: ()):
    """Return the two tests of a file: errors are found, and the package itself passes.

    Errors and checks whose turn it is not are slow.
    """

    def cases():
        for name, mutant in mutants.items():
            slow = () if has_its_turn(name) else (pytest.mark.slow,)
            yield pytest.param(name, marks=[*slow, *marks(mutant.check)])

    def checks():
        for check in dict.fromkeys(mutant.check for mutant in mutants.values()):
            slow = () if has_its_turn(check.__name__, 2 * SHARE) else (pytest.mark.slow,)
            yield pytest.param(check, id=check.__name__, marks=[*slow, *marks(check)])

    @pytest.mark.parametrize("name", [*cases()])
    def is_found(name):
        mutants[name].must_be_found()

    @pytest.mark.parametrize("check", [*checks()])
    def passes(check):
        with imported() as package:
            check(package)

    return is_found, passes

"""How kernels are compiled, and kept on disk.

Numba's own disk cache looks only at the file of the function that it compiled: after an edit of a
callee in another file it would go on sampling from the old distribution. Here an entry is named
by the content of all that it is made of: the signature, the files of this folder, and, for each
view and rule in the signature, its file and those that it imports. So an edit of what several
kernels share compiles all of them again, an edit of one target's file those of that target, and a
file that was only touched nothing. Two processes that compile at the same moment write different
files, or the same file twice.

Views and rules that are defined outside the package are compiled in every process, and never kept.

With ``NUMBA_DISABLE_JIT=1`` all kernels run as plain Python: slow, but a debugger works in them.
"""

import hashlib
import os
import pickle
import re
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba import config, njit, types
from numba.extending import overload

from sklsb.exceptions import UncachedKernelsWarning

# ``_nrt=False``: without it numba counts references to every array on every access, with
# atomic instructions; that costs a quarter of the speed. The price is that no array is
# allocated here.
_OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy", "nogil": True}
_PACKAGE = __name__.rpartition(".")[0]
_FOLDER = Path(__file__).parent


def interpreted() -> bool:
    """Whether kernels run as plain Python, since numba is switched off."""
    return bool(getattr(config, "DISABLE_JIT", False))


# ----------------------------------------------------------------- what an entry is made of


@cache
def _sources() -> dict[str, bytes]:
    """Content of the files of this folder, by module, as they were when it was imported."""
    found = {}
    for path in sorted(_FOLDER.rglob("*.py")):
        parts = path.relative_to(_FOLDER).with_suffix("").parts
        found[".".join((_PACKAGE, *parts)).removesuffix(".__init__")] = path.read_bytes()
    return found


def modules() -> list[str]:
    """Names of the modules of this folder."""
    return [name for name in _sources() if name != _PACKAGE]


_IMPORT = re.compile(rb"^\s*(?:from|import)\s+([\w.]+)", re.MULTILINE)


@cache
def _stamp(module: str) -> bytes:
    """Digest of a module of this folder, what it imports from here, and what all kernels share."""
    sources, wanted, seen = _sources(), [module], set()
    while wanted:
        name = wanted.pop()
        if name in sources and name not in seen:
            seen.add(name)
            wanted += [found.decode() for found in _IMPORT.findall(sources[name])]
    shared = {name for name in sources if name.count(".") <= _PACKAGE.count(".") + 1}
    digest = hashlib.sha256()
    for name in sorted(seen | shared):
        digest.update(name.encode() + b"\0" + sources[name] + b"\0")
    return digest.digest()


def _classes(kind: Any) -> Iterator[type]:
    """Classes of the named tuples in a signature."""
    if isinstance(kind, types.BaseNamedTuple):
        yield kind.instance_class  # type: ignore[attr-defined]
    # A named tuple whose fields are all of one type is uniform to numba.
    for part in getattr(kind, "types", None) or (getattr(kind, "dtype", None),):
        if isinstance(part, types.BaseTuple):
            yield from _classes(part)


_sources()


# ----------------------------------------------------------------- the cache


def _cache_class() -> type | None:
    """Return a cache of numba's kind whose files are named by content; None if numba has changed.

    The names are private to numba; they exist in 0.61 to 0.68.
    """
    try:
        from numba.core.caching import FunctionCache
    except ImportError:
        return None
    needed = ("_load_overload", "_save_overload", "load_overload", "save_overload", "_impl_class")
    if not all(hasattr(FunctionCache, name) for name in needed):
        return None

    class KernelCache(FunctionCache):
        """Compiled versions of one kernel, one file each."""

        def _place(self, signature: Any, codegen: Any) -> tuple[Path, str] | None:
            """File of a version, and what its older versions are called; None if it is not kept."""
            classes = {cls for kind in signature for cls in _classes(kind)}
            modules = {cls.__module__ for cls in classes}
            if not modules <= _sources().keys() or classes & _changed_outside:
                return None
            versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
            shape = (
                repr(signature),
                versions,
                codegen.magic_tuple(),
                getattr(config, "BOUNDSCHECK", None),
            )
            digest = hashlib.sha256()
            for module in sorted({*modules, self._py_func.__module__}):
                digest.update(_stamp(module))
            base = (
                f"{self._py_func.__name__}-{hashlib.sha256(repr(shape).encode()).hexdigest()[:20]}"
            )
            return Path(self._cache_path) / f"{base}.{digest.hexdigest()[:20]}.nbc", base

        def _load_overload(self, signature: Any, target_context: Any) -> Any:
            place = self._place(signature, target_context.codegen())
            if place is None:
                return None
            try:
                content = place[0].read_bytes()
            except OSError:
                return None
            if hashlib.sha256(content[32:]).digest() != content[:32]:  # damaged
                return None
            return self._impl.rebuild(target_context, pickle.loads(content[32:]))

        def _save_overload(self, signature: Any, data: Any) -> None:
            place = self._place(signature, data.codegen)
            if place is None or not self._impl.check_cachable(data):
                return
            path, base = place
            content = pickle.dumps(self._impl.reduce(data))
            partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
            try:
                self._impl.locator.ensure_cache_path()
                partial.write_bytes(hashlib.sha256(content).digest() + content)
                os.replace(partial, path)
                for old in path.parent.glob(f"{base}.*.nbc"):
                    if old != path:
                        old.unlink(missing_ok=True)
            except OSError as error:  # a full disk, say: what was compiled serves all the same
                with suppress(OSError):
                    partial.unlink(missing_ok=True)
                _uncached.append(f"they could not be written ({error})")
                warn_if_uncached()

        def flush(self) -> None:
            for path in Path(self._cache_path).glob(f"{self._py_func.__name__}-*.nbc"):
                path.unlink(missing_ok=True)

    return KernelCache


_uncached: list[str] = []  # why kernels are not kept on disk
# Classes of the package for which a function was implemented outside of it.
_changed_outside: set[type] = set()


def warn_if_uncached() -> None:
    """Say once that kernels are compiled anew in every process, and what helps."""
    if _uncached:
        reason = _uncached[0]
        _uncached.clear()
        warnings.warn(
            f"Kernels are compiled in every process, which takes seconds: {reason}. Results are "
            "the same.",
            UncachedKernelsWarning,
            stacklevel=2,
        )


# ----------------------------------------------------------------- decorators


def _identity(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


_INNER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def _refuse(self: Any, *args: Any) -> Any:
    raise TypeError(f"{self.py_func.__name__} exists only in compiled functions.")


def _inner(**options: Any) -> Callable[..., Any]:
    """Return a decorator for functions that only compiled ones may call.

    They have no wrapper for Python, without which a call from there would end the process.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**_INNER, **options)(function)
        dispatcher.__class__ = type("Inner", (type(dispatcher),), {"__call__": _refuse})
        return dispatcher

    return _identity if interpreted() else decorate


inlined: Any = _inner(forceinline=True)
called: Any = _inner()  # for what is rare: compiled once


def kernel(function: Callable[..., Any]) -> Any:
    """Compile an entry, a function that Python calls, when it is first called."""
    if interpreted():

        @wraps(function)
        def run(*args: Any) -> Any:
            with np.errstate(all="ignore"):  # as compiled
                return function(*args)

        return run
    dispatcher = njit(**_OPTIONS)(function)
    cls = _cache_class()
    if cls is None or not hasattr(dispatcher, "_cache"):
        _uncached.append(f"this numba, {numba.__version__}, has another cache than is known")
        return dispatcher
    try:
        dispatcher._cache = cls(function)
    except RuntimeError:  # no locator available
        _uncached.append(
            "no folder to keep them in can be written. Set the environment variable "
            "NUMBA_CACHE_DIR to one that can"
        )
    return dispatcher


def contract(position: int, default: Callable[..., Any] | None = None) -> Any:
    """Make a function that classes implement, chosen by the class of one of its arguments.

    Parameters
    ----------
    position : int
        Of that argument, a named tuple.
    default : callable, optional
        Implementation for classes that give none.

    Returns
    -------
    callable
        A decorator. What the function is given as its body is not used, but documents it.
    """

    def declare(function: Callable[..., Any]) -> Any:
        implementations: dict[type, Callable[..., Any]] = {}

        def chosen(cls: type) -> Callable[..., Any]:
            found = implementations.get(cls, default)
            if found is None:
                raise TypeError(
                    f"{cls.__name__} does not implement {function.__name__}; define it with "
                    f"@implements({function.__name__}, {cls.__name__})."
                )
            return found

        @wraps(function)
        def call(*args: Any) -> Any:
            if not interpreted():
                raise TypeError(f"{function.__name__} exists only in compiled functions.")
            return chosen(type(args[position]))(*args)

        call.implementations = implementations  # type: ignore[attr-defined]
        call.chosen = chosen  # type: ignore[attr-defined]
        if not interpreted():

            def choose(*kinds: Any) -> Any:
                kind = kinds[position]
                return chosen(kind.instance_class) if hasattr(kind, "instance_class") else None

            options: Any = {"forceinline": True, **_INNER}
            overload(call, strict=False, jit_options=options)(choose)
        return call

    return declare


def implements(function: Any, *classes: type) -> Callable[[Callable[..., Any]], Any]:
    """Declare the implementation of a function of the contract for classes of named tuples.

    Parameters
    ----------
    function : callable
        One of `sklsb.extending`: ``log_ratio``, ``flip``, ``step``, ...
    *classes : type
        Named tuples: views of targets, or rules.

    Returns
    -------
    callable
        A decorator, which returns the implementation as it is.
    """
    if not hasattr(function, "implementations"):
        raise TypeError(
            f"{function!r:.100} is no function of the contract; see sklsb.extending for those."
        )

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for cls in classes:
            function.implementations[cls] = implementation
            if implementation.__module__ not in _sources():
                _changed_outside.add(cls)
        return implementation

    return register

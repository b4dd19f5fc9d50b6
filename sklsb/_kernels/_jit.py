"""How kernels are compiled and cached on disk.

Numba's own disk cache looks only at the file of the compiled function: after an edit of a callee in
another file it would go on sampling from the old distribution. Here a cache entry is named by the
content of all that it is made of: the signature, the files directly in this folder, and, for each
view and rule in the signature, its file and those that it imports. So an edit of a shared file
recompiles all kernels, an edit of one target's file recompiles those of that target, and touching a
file recompiles nothing. Processes that compile at the same time cannot overwrite each other's work
with something else.

Views and rules defined outside the package are compiled in every process and never cached. Numba
identifies named tuples by the *names* of the class and its fields: `distinguish` makes class names
unique, and refuses classes whose functions changed after they were compiled.

With ``NUMBA_DISABLE_JIT=1`` all kernels run as plain Python: slow, but a debugger works in them.
"""

import dis
import gc
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
from threading import Lock
from types import CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np
from numba import config, njit, types
from numba.extending import overload

from sklsb.exceptions import UncachedKernelsWarning

# ``_nrt=False``: reference counts of arrays, by atomic instructions on every access, would cost a
# quarter of the speed. The price is that kernels cannot allocate arrays.
_OPTIONS: dict[str, Any] = {
    "_nrt": False,
    "error_model": "numpy",
    "nogil": True,
    "no_cfunc_wrapper": True,
}
_PACKAGE = __name__.rpartition(".")[0]
_FOLDER = Path(__file__).parent


def interpreted() -> bool:
    """Whether kernels run as plain Python."""
    return bool(config.DISABLE_JIT)  # type: ignore[attr-defined]


# ----------------------------------------------------------------- what an entry is made of


@cache
def _sources() -> dict[str, bytes]:
    """Content of the files of this folder by module, read when the package is imported."""
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
    """Digest of a module of this folder, its imports from here, and the files all kernels share."""
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
    if isinstance(kind, types.BaseTuple):
        for part in kind:  # type: ignore[attr-defined]
            yield from _classes(part)


_sources()


# ----------------------------------------------------------------- the cache


def _cache_class() -> type | None:
    """Return a numba cache whose files are named by content; None if numba's internals changed.

    The private names exist in numba 0.61 to 0.68.
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
            """Return a version's file and the prefix of its older files; None if it is not kept."""
            classes = {cls for kind in signature for cls in _classes(kind)}
            modules = {cls.__module__ for cls in classes}
            if not modules <= _sources().keys() or classes & _changed_outside:
                return None
            versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
            checks = config.BOUNDSCHECK  # type: ignore[attr-defined]
            key = repr((repr(signature), versions, codegen.magic_tuple(), checks))
            base = f"{self._py_func.__name__}-{hashlib.sha256(key.encode()).hexdigest()[:20]}"
            digest = hashlib.sha256()
            for module in sorted({*modules, self._py_func.__module__}):
                digest.update(_stamp(module))
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
            for function in _contracts:
                for cls in {cls for kind in signature for cls in _classes(kind)}:
                    function.note(cls)
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
            except OSError as error:  # for example a full disk: the compiled code still works
                with suppress(OSError):
                    partial.unlink(missing_ok=True)
                _uncached.append(f"they could not be written ({error})")
                warn_if_uncached()

        def flush(self) -> None:
            for path in Path(self._cache_path).glob(f"{self._py_func.__name__}-*.nbc"):
                path.unlink(missing_ok=True)

    return KernelCache


# ----------------------------------------------------------------- classes


_contracts: list[Any] = []  # functions of the contract
_named: dict[str, type] = {}  # classes of named tuples passed to kernels
_naming = Lock()


@cache
def _names_here() -> set[str]:
    """Names of all named tuples of this folder, imported or not."""
    found = re.findall(rb"^class (\w+)\(NamedTuple\)", b"\n".join(_sources().values()), re.M)
    return {name.decode() for name in found}


def distinguish(*values: Any) -> None:
    """Make sure that kernels run the present code of the classes of (nested) named tuples.

    Raises TypeError if a function of a class, or what it refers to, changed after compilation.
    """
    if interpreted():
        return
    for value in values:
        if isinstance(value, tuple):
            distinguish(*value)
            if type(value) is not tuple:
                _distinguish(type(value))


def _distinguish(cls: type) -> None:
    """Give a class a unique name: numba tells classes with the same fields by nothing else."""
    with _naming:
        own, name, k = cls.__module__ in _sources(), cls.__name__, 1
        while _named.get(name, cls) is not cls or (not own and name in _names_here()):
            name, k = f"{cls.__name__}_{k + 1}", k + 1
            own = False
        if name != cls.__name__:
            _changed_outside.add(cls)
            cls.__name__ = name
        _named[name] = cls
    for function in _contracts:
        function.compare(cls)


def _called(cls: type) -> str:
    """Return the name that a class was defined with."""
    return cls.__qualname__.rpartition(".")[2]


class _Identity:
    """An object that is compared by identity; it stays alive, or its address could come again."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    __hash__ = object.__hash__


@cache
def _names_in(code: CodeType) -> set[tuple[str, ...]]:
    """Names of variables from outside that code reads, each with the attributes taken from it."""
    found: set[tuple[str, ...]] = set()
    path: tuple[str, ...] = ()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_DEREF"):
            path = (step.argval,)
        elif path and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            path = (*path, step.argval)
        else:
            path = ()
        found |= {path} - {()}
    return found.union(*(_names_in(c) for c in code.co_consts if isinstance(c, CodeType)))


def _referred(function: FunctionType) -> Iterator[Any]:
    """Yield what the code of a function refers to: defaults, closure, globals, parts of modules."""
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    enclosed = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            enclosed[name] = cell.cell_contents
    for name, *attributes in sorted(_names_in(function.__code__)):
        value = enclosed.get(name, function.__globals__.get(name))
        for attribute in attributes:
            value = getattr(value, attribute, None) if isinstance(value, ModuleType) else None
        yield None if isinstance(value, ModuleType) else value


def _made_of(value: Any, seen: list[Any]) -> Any:
    """Return something comparable that stands for what numba compiles a value into."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, bool | int | float | complex | str | np.generic):
        return type(value), repr(value)
    if isinstance(value, tuple):
        return type(value), [_made_of(part, seen) for part in value]
    function = getattr(value, "py_func", None if seen else value)
    if not isinstance(function, FunctionType) or function.__module__ in _sources():
        return _Identity(value)
    if function in seen:
        return None
    seen.append(function)
    return function.__code__, [_made_of(part, seen) for part in _referred(function)]


_uncached: list[str] = []  # why kernels are not cached on disk
_changed_outside: set[type] = set()  # classes with a function implemented outside the package


def warn_if_uncached() -> None:
    """Warn once that kernels are compiled in every process, and what helps."""
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


_environments: list[tuple[str, Any]] = []  # of functions that entries link


def _compilers() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return options of entries and of what they call; none if numba's internals changed.

    Else numba compiles a function anew for each kind of caller, and makes machine code of each by
    itself, too, which nobody calls.
    """
    try:
        from numba.core.codegen import JITCodeLibrary
        from numba.core.compiler import Compiler
        from numba.core.targetconfig import ConfigStack
    except ImportError:
        return {}, {}
    if not all(
        hasattr(JITCodeLibrary, f"_{name}_final_module") for name in ("optimize", "finalize")
    ):
        return {}, {}

    class Part(JITCodeLibrary):
        """Code that entries link, and optimise where it is used."""

        codegen = property(lambda self: self)

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            self._ensure_finalized()
            return 0

        def set_env(self, name: str, environment: Any) -> None:
            _environments.append((name, environment))

    class EntryCompiler(Compiler):
        def define_pipelines(self) -> Any:
            seen = ConfigStack().top()  # what is called looks at these options of its caller
            seen.forceinline = seen.no_cpython_wrapper = True
            return super().define_pipelines()

    class PartCompiler(EntryCompiler):
        def __init__(self, typing: Any, target: Any, library: Any, *others: Any):
            super().__init__(typing, target, library or Part(target.codegen(), "part"), *others)
            self.state.library.enable_object_caching()

    return {"pipeline_class": EntryCompiler}, {"pipeline_class": PartCompiler}


_ENTRY, _INNER = ({**_OPTIONS, **compiler} for compiler in _compilers())
_INNER["no_cpython_wrapper"] = True


def _refuse(self: Any, *args: Any) -> Any:
    raise TypeError(f"{self.py_func.__name__} exists only in compiled functions.")


def _inner(**options: Any) -> Callable[..., Any]:
    """Return a decorator for functions that only compiled code may call.

    They have no wrapper for Python: a call from there, if not refused, would crash the process.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**_INNER, **options)(function)
        dispatcher.__class__ = type("Inner", (type(dispatcher),), {"__call__": _refuse})
        return dispatcher

    return (lambda function: function) if interpreted() else decorate


inlined: Any = _inner(forceinline=True)
# Products are added without rounding in between where the processor can, which is faster.
fused: Any = _inner(forceinline=True, fastmath={"contract"})
called: Any = _inner()  # for long and rare code: compiled once


def _compiling(dispatcher: Any) -> Callable[..., Any]:
    """Return how a dispatcher compiles, with no search for garbage, an eighth of the time."""
    compile_plainly = dispatcher.compile

    def compile_entry(signature: Any) -> Any:
        collecting = gc.isenabled()
        gc.disable()
        try:
            return compile_plainly(signature)
        finally:
            codegen = dispatcher.targetctx.codegen()
            for name, environment in _environments:
                if codegen._engine.is_symbol_defined(name):
                    codegen.set_env(name, environment)
            if collecting:
                gc.enable()

    return compile_entry


def kernel(function: Callable[..., Any]) -> Any:
    """Decorate an entry, which Python calls: it is compiled at its first call."""
    if interpreted():

        @wraps(function)
        def run(*args: Any) -> Any:
            with np.errstate(all="ignore"):  # as compiled
                return function(*args)

        return run
    dispatcher = njit(**_ENTRY)(function)
    dispatcher.compile = _compiling(dispatcher)
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
    """Decorate a function that classes of named tuples implement by `implements`.

    The class of the argument at ``position`` chooses the implementation; ``default`` is for
    classes without one. The body of the decorated function is only documentation.
    """

    def declare(function: Callable[..., Any]) -> Any:
        implementations: dict[type, Callable[..., Any]] = {}
        compiled: dict[type, Any] = {}

        def chosen(cls: type) -> Callable[..., Any]:
            found = implementations.get(cls, default)
            if found is None:
                name = _called(cls)
                raise TypeError(
                    f"{name} does not implement {function.__name__}; define it with "
                    f"@implements({function.__name__}, {name})."
                )
            return found

        def made_of(cls: type) -> Any:
            return _made_of(implementations.get(cls, default), [])

        def note(cls: type) -> None:
            """Remember what is compiled for a class."""
            compiled.setdefault(cls, made_of(cls))

        def compare(cls: type) -> None:
            """Refuse a class whose implementation changed after it was compiled."""
            if cls in compiled and compiled[cls] != made_of(cls):
                raise TypeError(
                    f"{function.__name__} of {_called(cls)}, or what it refers to, was changed "
                    "after it had been compiled, and kernels would run the old code. Define the "
                    "class anew too, with all that it implements, or begin a new process."
                )

        @wraps(function)
        def call(*args: Any) -> Any:
            if not interpreted():
                raise TypeError(f"{function.__name__} exists only in compiled functions.")
            return chosen(type(args[position]))(*args)

        call.implementations = implementations  # type: ignore[attr-defined]
        call.chosen = chosen  # type: ignore[attr-defined]
        call.note, call.compare = note, compare  # type: ignore[attr-defined]
        _contracts.append(call)
        if not interpreted():

            def choose(*kinds: Any) -> Any:
                kind = kinds[position]
                if not isinstance(kind, types.BaseNamedTuple):
                    return None
                cls: type = kind.instance_class  # type: ignore[attr-defined]
                found = chosen(cls)
                note(cls)
                return found

            options: Any = {"forceinline": True, **_INNER}
            overload(call, strict=False, jit_options=options)(choose)
        return call

    return declare


def implements(function: Any, *classes: type) -> Callable[[Callable[..., Any]], Any]:
    """Decorate the implementation of a function of the contract for classes of named tuples.

    Parameters
    ----------
    function : callable
        A function of `sklsb.extending`: ``log_ratio``, ``flip``, ``step``, ...
    *classes : type
        Classes of named tuples: views of targets, or rules.

    Returns
    -------
    callable
        A decorator that returns the implementation unchanged.
    """
    if not any(known is function for known in _contracts):
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

"""Objects of the package as JSON and arrays, in files that are checked when they are read.

A file holds no code and names no function: reading one makes plain values, arrays, random
generators of NumPy, and instances of the classes of this package (or of rules, samplers and
balancing functions of the user that are imported already). So a file from elsewhere can be read.
"""

import hashlib
import importlib
import json
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb.exceptions import StoreError

_VERSION, _DIGEST = "2", 32  # of the format; bytes of a checksum
_MAGIC = f"sklsb {_VERSION}\n".encode()
_HEAD = len(_MAGIC) + _DIGEST
_ALIGNED = 16
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")


class DamagedError(ValueError):
    """A file whose content is not what was written."""


class _Encoder:
    """Turns values into JSON, and collects the bytes of arrays.

    Shared objects are written once, and the ``known`` ones, which the reader has, by name.
    """

    def __init__(self, known: dict[str, Any]):
        self._known = {id(value): name for name, value in known.items()}
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # keeps their ids unique
        self.blobs: list[bytes] = []
        self._size = 0

    def array(self, values: NDArray[Any]) -> dict[str, Any]:
        """Collect an array; return its place."""
        if values.dtype.kind in ("O", "T"):
            items = values.ravel().tolist()
            if not all(isinstance(item, str) for item in items):
                raise TypeError("An array of objects that are not strings cannot be kept.")
            return {"text": [list(values.shape), items]}
        data = np.ascontiguousarray(values).tobytes()
        begin, fill = self._size, -len(data) % _ALIGNED
        self.blobs += [data, bytes(fill)]
        self._size += len(data) + fill
        return {"array": [begin, values.dtype.str, list(values.shape)]}

    def __call__(self, value: Any) -> Any:
        """Return the JSON of a value."""
        if id(value) in self._known:
            return {"known": self._known[id(value)]}
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return [self(item) for item in value]
        if type(value) is tuple:
            return {"tuple": [self(item) for item in value]}
        if type(value) is dict:
            return {"dict": [[self(key), self(item)] for key, item in value.items()]}
        if isinstance(value, np.ndarray):
            return self.array(value)
        if isinstance(value, np.generic):
            return {"scalar": self.array(np.asarray(value))}
        return self._object(value)

    def _object(self, value: Any) -> Any:
        if id(value) in self._seen:
            return {"again": self._seen[id(value)]}
        self._alive.append(value)
        cls = [type(value).__module__, type(value).__qualname__]
        if isinstance(value, tuple):  # a named one
            _check_present(type(value))
            made = {"fields": [*cls, [self(item) for item in value]]}
            self._seen[id(value)] = len(self._seen)  # after its parts, as when it is read
            return made
        self._seen[id(value)] = len(self._seen)
        if isinstance(value, np.random.Generator):
            return {"generator": self._generator(value)}
        if isinstance(value, np.random.RandomState):
            return {"legacy": self(value.get_state(legacy=False))}
        if isinstance(value, np.random.SeedSequence):
            key = tuple(value.spawn_key)
            parts = value.entropy, key, value.pool_size, value.n_children_spawned
            return {"seeds": [self(part) for part in parts]}
        if isinstance(value, xr.Dataset):
            return {"dataset": self._dataset(value)}
        _check_present(type(value))
        state = value.__getstate__()
        if left_out := getattr(value, "_not_in_files", ()):
            state = state | dict.fromkeys(left_out)
        return {"object": [*cls, self(state)]}

    def _generator(self, rng: np.random.Generator) -> Any:
        bits: Any = rng.bit_generator
        name = type(bits).__name__
        if name not in _BIT_GENERATORS:
            raise TypeError(f"A generator of {name} cannot be kept; use one of {_BIT_GENERATORS}.")
        return [name, self(bits.seed_seq), self(bits.state)]

    def _dataset(self, data: xr.Dataset) -> Any:
        variables = {
            name: (tuple(data[name].dims), np.asarray(data[name].values), dict(data[name].attrs))
            for name in (*data.data_vars, *data.coords)
        }
        return [self(variables), self(list(data.coords)), self(dict(data.attrs))]


def _check_present(cls: type) -> None:
    """Refuse a class whose name does not lead back to it."""
    module, name = cls.__module__, cls.__qualname__
    if find_class(module, name) is not cls:
        raise TypeError(
            f"{module}.{name} was defined anew since the sampler was fitted, and a file knows "
            "classes by their names; fit again."
        )


def find_class(module: str, name: str) -> Any:
    """Return a class that a file may name, without importing anything but this package.

    Allowed are named tuples, users' classes that inherit ``_in_files = True``, and the classes of
    this package that do not say ``_in_files = False``.
    """
    own = module.split(".")[0] == "sklsb"
    found: Any = _own_module(module) if own else sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    allowed = isinstance(found, type) and (
        getattr(found, "_in_files", own and found.__module__ == module)
        or (issubclass(found, tuple) and hasattr(found, "_fields"))
    )
    if not allowed:
        where = (
            "of this version"
            if own
            else "that this process knows; import the module that defines it first"
        )
        raise TypeError(
            f"{module}.{name} is no class of a sampler, a rule or a balancing function {where}."
        )
    return found


def _own_module(module: str) -> Any:
    """Return a module of this package, or None if there is none of this name."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "sklsb":  # torch, for example
            raise
        return None


class _Decoder:
    """Turns the output of `_Encoder` into values again."""

    def __init__(self, blob: memoryview, known: dict[str, Any]):
        self._blob, self._known = blob, known
        self._seen: list[Any] = []

    def __call__(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        ((kind, inside),) = tree.items()
        match kind:
            case "known":
                return self._known[inside]
            case "again":
                return self._seen[inside]
            case "tuple":
                return tuple(self(item) for item in inside)
            case "dict":
                return {self(key): self(item) for key, item in inside}
            case "array":
                return self._array(*inside)
            case "scalar":
                return self._array(*inside["array"])[()]
            case "text":
                shape, items = inside
                return np.array(items, dtype=object).reshape(shape)
            case "fields":
                module, name, items = inside
                self._seen.append(find_class(module, name)(*map(self, items)))
                return self._seen[-1]
            case "object":
                return self._object(*inside)
        k = len(self._seen)
        self._seen.append(None)  # its place comes before its parts
        self._seen[k] = _made_from(kind, self(inside))
        return self._seen[k]

    def _array(self, begin: int, dtype: str, shape: list[int]) -> NDArray[Any]:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        found = np.frombuffer(self._blob[begin : begin + size], dtype=dtype)
        return found.reshape(shape).copy()

    def _object(self, module: str, name: str, state: Any) -> Any:
        made = object.__new__(find_class(module, name))
        self._seen.append(made)
        found = self(state)
        if hasattr(made, "__setstate__"):
            made.__setstate__(found)
        elif found is not None:
            vars(made).update(found)
        return made


def _made_from(kind: str, parts: Any) -> Any:
    """Return what is neither plain nor of this package."""
    match kind, parts:
        case "seeds", (entropy, key, size, n):
            return np.random.SeedSequence(
                entropy, spawn_key=key, pool_size=size, n_children_spawned=n
            )
        case "generator", (name, seeds, state):
            if name not in _BIT_GENERATORS:
                raise DamagedError(f"it names the generator {name!r}")
            bits = getattr(np.random, name)(seeds)
            bits.state = state
            return np.random.Generator(bits)
        case "legacy", state:
            made = np.random.RandomState()
            made.set_state(state)
            return made
        case "dataset", (variables, coords, attrs):
            return xr.Dataset(variables, attrs=attrs).set_coords(coords)
    raise KeyError(kind)


def packed(value: Any, known: dict[str, Any] | None = None) -> bytes:
    """Return the bytes of a file for a value, always the same ones for the same value."""
    encoder = _Encoder(known or {})
    text = json.dumps(encoder(value), separators=(",", ":")).encode()
    text += b" " * (-(_HEAD + 8 + len(text)) % _ALIGNED)
    body = b"".join([struct.pack("<Q", len(text)), text, *encoder.blobs])
    return _MAGIC + hashlib.blake2b(body, digest_size=_DIGEST).digest() + body


def check(data: bytes) -> bytes:
    """Return the bytes of a file, unless they are damaged."""
    if not data:
        raise DamagedError("it is empty")
    if data[: len(_MAGIC)] != _MAGIC:
        if data[:6] == _MAGIC[:6] and data[7:8] == b"\n":
            version = data[6:7].decode(errors="replace")
            raise DamagedError(f"it is of version {version!r} of the format; this is {_VERSION}")
        raise DamagedError("it does not begin as files of sklsb do")
    if len(data) < _HEAD + 8:
        raise DamagedError(f"it ends after {len(data)} bytes")
    body = memoryview(data)[_HEAD:]
    if hashlib.blake2b(body, digest_size=_DIGEST).digest() != data[len(_MAGIC) : _HEAD]:
        raise DamagedError("its contents do not have the checksum that was written with them")
    return data


def unpacked(data: bytes, known: dict[str, Any] | None = None) -> Any:
    """Return the value in the bytes of a file."""
    check(data)
    body = memoryview(data)[_HEAD:]
    (length,) = struct.unpack_from("<Q", body)
    tree = json.loads(bytes(body[8 : 8 + length]))
    return _Decoder(body[8 + length :], known or {})(tree)


def damaged(path: Path, why: object) -> StoreError:
    """Return the error for a file whose content is not what was written."""
    return StoreError(f"{path} is damaged: {why}.")


def read_file(path: Path, by: Callable[[bytes], Any]) -> Any:
    """Read a file that never changes, by `unpacked` or `check`."""
    try:
        return by(path.read_bytes())
    except (OSError, DamagedError) as error:
        raise damaged(path, error) from error


def digest_of(data: bytes) -> str:
    """Return the checksum in a file."""
    return data[len(_MAGIC) : _HEAD].hex()


def write_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a file atomically; without ``sync``, a crash of the machine may still damage it."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if sync:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

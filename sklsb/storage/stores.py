"""Draws and checkpoints on disk: ``sample(n, store=path)`` writes, `open_draws` reads.

A store is a folder in the format Zarr 3, with one chunk for all chains and some hundreds of draws.
Everything in it is written to a temporary file, forced to the disk and renamed; so a chunk, a
checkpoint, or the number of draws is there whole, or as it was before. The folder ``sklsb`` in it
holds the sampler as it was when the run began, and two checkpoints, written in turn, of all that
its chains need to go on.
"""

import fcntl
import hashlib
import json
import os
import shutil
import struct
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb.diagnostics.draws import OF_DRAWS
from sklsb.exceptions import StoreWarning
from sklsb.storage.codec import DamagedError, check, digest_of, packed, unpacked, write_file
from sklsb.storage.parts import Parts, joined

__all__ = ["StoreError", "open_draws"]

_BLOSC = {"cname": "zstd", "clevel": 1, "blocksize": 0}
PathLike = str | os.PathLike[str]
# Bytes and draws of a chunk, at most.
CHUNK_BYTES, CHUNK_DRAWS = 1 << 23, 1 << 16
# Seconds between two commits, unless a chunk is full; and the share of the time they may take.
COMMIT_SECONDS, COMMIT_SHARE = 10.0, 0.05
_CHECKPOINTS = ("checkpoint.0", "checkpoint.1")
# Statistics that are kept beside the draws.
_STATS = (*OF_DRAWS, "acceptance_rate", "log_weight")
Coords = dict[str, tuple[tuple[str, ...], NDArray[Any]]]


class StoreError(ValueError):
    """A store that cannot be used as it was asked for; the message has the reason."""


def needs_zarr() -> None:
    """Import zarr, or say what to install."""
    from sklsb._system.progress import deferred_interrupt

    # A module that is half imported may stay so: Ctrl-C waits.
    with deferred_interrupt() as interrupted:
        try:
            import zarr  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "Stores need zarr: pip install 'sklsb[zarr]'. record= keeps statistics in memory."
            ) from error
    if interrupted():
        raise KeyboardInterrupt


def _shuffle(dtype: np.dtype[Any]) -> str:
    """How bits are put in another order before they are compressed."""
    return "bitshuffle" if dtype.itemsize == 1 else "shuffle"


def _compressed(values: NDArray[Any]) -> bytes:
    """Return an array as Zarr's codecs bytes, blosc and crc32c do."""
    from google_crc32c import value as crc32c
    from numcodecs.blosc import BITSHUFFLE, SHUFFLE, Blosc

    shuffle = {"bitshuffle": BITSHUFFLE, "shuffle": SHUFFLE}[_shuffle(values.dtype)]
    codec = Blosc(cname="zstd", clevel=1, shuffle=shuffle)
    data = bytes(codec.encode(np.ascontiguousarray(values)))
    return data + struct.pack("<I", crc32c(data))


def _expanded(data: bytes) -> Any:
    """Return what was compressed, or say that it is damaged."""
    from google_crc32c import value as crc32c
    from numcodecs.blosc import Blosc

    if len(data) < 4 or struct.pack("<I", crc32c(data[:-4])) != data[-4:]:
        raise DamagedError("its contents do not have the checksum that was written with them")
    return Blosc().decode(data[:-4])


def _checksum(data: Any) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class Variable:
    """An array of draws on disk, and its chunk that is not full.

    Parameters
    ----------
    name : str
        What it is called.
    dims : tuple of str
        Names of its axes.
    dtype : numpy.dtype
        Type of its entries.
    shape : tuple of int
        Shape of a chunk: chains, draws and the rest.
    """

    def __init__(self, name: str, dims: tuple[str, ...], dtype: Any, shape: tuple[int, ...]):
        self.name, self.dims, self.dtype, self.shape = name, dims, np.dtype(dtype), tuple(shape)
        self.buffer = np.empty(self.shape, dtype=self.dtype)
        self.clear()

    def clear(self) -> None:
        """Begin another chunk."""
        self.buffer[:] = self._fill

    @property
    def _fill(self) -> Any:
        return np.nan if self.dtype.kind == "f" else 0

    def path(self, root: Path, k: int) -> Path:
        """Where chunk k is."""
        rest = ".0" * (len(self.shape) - 2)
        return root / self.name / f"c.0.{k}{rest}"

    def metadata(self, n_draws: int) -> dict[str, Any]:
        """Return what Zarr must know."""
        whole = (self.shape[0], n_draws, *self.shape[2:])
        return _array_metadata(whole, self.shape, self.dtype, self.dims)

    def part(self, filled: int) -> NDArray[Any]:
        """Return the draws of the chunk that is not full."""
        return self.buffer[:, :filled]

    def write(self, root: Path, k: int) -> int:
        """Write the chunk; return its checksum."""
        data = _compressed(self.buffer)
        write_file(self.path(root, k), data)
        return _checksum(data)

    def read(self, root: Path, k: int) -> None:
        """Take the chunk that is not full from the disk."""
        data = _expanded(self.path(root, k).read_bytes())
        self.buffer[:] = np.frombuffer(data, self.dtype).reshape(self.shape)


def _array_metadata(
    shape: tuple[int, ...], chunk: tuple[int, ...], dtype: np.dtype[Any], dims: tuple[str, ...]
) -> dict[str, Any]:
    codecs: list[dict[str, Any]] = [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "blosc", "configuration": _BLOSC | {"typesize": dtype.itemsize}},
        {"name": "crc32c"},
    ]
    codecs[1]["configuration"]["shuffle"] = _shuffle(dtype)
    if dtype.itemsize == 1:
        codecs[0] = {"name": "bytes"}
    grid = {"chunk_shape": [max(1, size) for size in chunk]}
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": grid},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": "NaN" if dtype.kind == "f" else 0,
        "codecs": codecs,
        "attributes": {},
        "dimension_names": list(dims),
        "storage_transformers": [],
    }


class Store:
    """A store that draws are written to.

    Parameters
    ----------
    path : Path
        The folder.
    settings : dict
        What stays the same: thin, and what the variables are.
    attrs : dict
        Attributes of the draws.
    coords : dict
        Dimensions and values of the coordinates.
    """

    def __init__(self, path: Path, settings: dict[str, Any], attrs: dict[str, Any], coords: Coords):
        self.path, self.settings, self.attrs, self.coords = path, settings, attrs, coords
        self.variables = [Variable(*given) for given in settings["variables"]]
        self.n_draws = self.sequence = self.wanted = 0
        self._checksums: list[list[int]] = [[] for _ in self.variables]
        self._committed = self._cost = 0.0
        self._lock: Any = None

    @property
    def chunk(self) -> int:
        """Draws of a chunk."""
        return int(self.settings["chunk"])

    @property
    def filled(self) -> int:
        """Draws in the chunk that is not full."""
        return self.n_draws % self.chunk

    # ----------------------------------------------------------------- begin and go on

    def create(self, sampler: bytes, chains: bytes) -> None:
        """Write a new one, which has no draws yet; it appears when all of it is there."""
        path, self.path = self.path, self.path.with_name(f".{self.path.name}.new")
        shutil.rmtree(self.path, ignore_errors=True)
        (self.path / "sklsb").mkdir(parents=True)
        self._lock = _locked(self.path)
        try:
            self._create(sampler, chains)
            os.replace(self.path, path)
        except BaseException:
            self.close()
            raise
        self.path = path

    def _create(self, sampler: bytes, chains: bytes) -> None:
        for variable in self.variables:
            (self.path / variable.name).mkdir()
        for name, (_, values) in self._plain():
            (self.path / name).mkdir()
            write_file(self.path / name / f"c.0{'.0' * (values.ndim - 1)}", _compressed(values))
        write_file(self.path / "sklsb" / "coords", packed(self.coords))
        write_file(self.path / "sklsb" / "sampler", sampler)
        self.settings["sampler"] = digest_of(sampler)
        self.end(chains)

    def _plain(self) -> list[tuple[str, tuple[tuple[str, ...], NDArray[Any]]]]:
        """Coordinates that are numbers, which Zarr holds; names are in the checkpoint."""
        return [(k, v) for k, v in self.coords.items() if v[1].dtype.kind in "iu" and v[1].size]

    @classmethod
    def open(cls, path: Path, *, verify: bool) -> tuple["Store", bytes]:
        """Return one that exists, and the chains of its last checkpoint that is whole.

        ``verify`` reads all chunks, not only the one that is not full.
        """
        if not (path / "sklsb").is_dir():
            raise StoreError(f"{path} is no store of sklsb; give what sample(n, store=...) wrote.")
        lock = _locked(path)
        try:
            found = _last_checkpoint(path)
            coords = _read(path / "sklsb" / "coords", unpacked)
            made = cls(path, found["settings"], found["attrs"], coords)
            made.n_draws, made.sequence = found["n_draws"], found["sequence"]
            made.wanted = found["wanted"]
            made._checksums = [row.tolist() for row in found["checksums"]]
            made._verify(verify, found["tail"])
        except BaseException:
            lock.close()
            raise
        made._lock = lock
        return made, found["chains"].tobytes()

    def close(self) -> None:
        """Let others write."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _verify(self, whole: bool, tail: list[int]) -> None:
        for variable, sums in zip(self.variables, self._checksums, strict=True):
            for k, wanted in enumerate(sums) if whole else ():
                path = variable.path(self.path, k)
                found = _checksum(path.read_bytes()) if path.is_file() else None
                if found != wanted:
                    raise _damaged(path, "it is missing" if found is None else "it has changed")
        if not self.filled:
            return
        k = self.n_draws // self.chunk
        for variable, wanted in zip(self.variables, tail, strict=True):
            path = variable.path(self.path, k)
            try:
                variable.read(self.path, k)
            except (OSError, RuntimeError, ValueError) as error:
                raise _damaged(path, str(error)) from error
            if _checksum(np.ascontiguousarray(variable.part(self.filled))) != wanted:
                raise _damaged(path, "it has changed")

    def sampler(self) -> bytes:
        """Return the sampler as it was when the run began."""
        path = self.path / "sklsb" / "sampler"
        data: bytes = _read(path, check)
        if digest_of(data) != self.settings["sampler"]:
            raise _damaged(path, "it is of another run than the checkpoints")
        return data

    # ----------------------------------------------------------------- write

    def is_due(self) -> bool:
        """Whether what was drawn should be committed now."""
        pause = max(COMMIT_SECONDS, self._cost / COMMIT_SHARE)
        return time.monotonic() - self._committed > pause

    def commit(self, chains: bytes) -> None:
        """Write the draws, then the chains, then how many draws there are."""
        began = time.monotonic()
        k, filled = divmod(self.n_draws, self.chunk)
        full = len(self._checksums[0]) < k  # what the buffers hold
        tail = []
        for variable, sums in zip(self.variables, self._checksums, strict=True):
            if full:
                sums.append(variable.write(self.path, k - 1))
                variable.clear()
            elif filled:
                variable.write(self.path, k)
                tail.append(_checksum(np.ascontiguousarray(variable.part(filled))))
        state = {
            "settings": self.settings,
            "attrs": self.attrs,
            "n_draws": self.n_draws,
            "wanted": self.wanted,
            "sequence": self.sequence + 1,
            "checksums": np.array(self._checksums, dtype=np.uint64),
            "tail": tail,
            "chains": np.frombuffer(chains, np.uint8),
        }
        self.sequence += 1
        write_file(self.path / "sklsb" / _CHECKPOINTS[self.sequence % 2], packed(state))
        self.show()
        self._committed = time.monotonic()
        self._cost = self._committed - began

    def show(self) -> None:
        """Tell readers how many draws there are, in one file."""
        known = {name: self.settings[name] for name in ("chunk", "first")}
        known |= {"requested_draws": self.wanted, "n_draws": self.n_draws}
        names = {k: v[1].tolist() for k, v in self.coords.items() if v[1].dtype.kind not in "iu"}
        root: dict[str, Any] = {
            "zarr_format": 3,
            "node_type": "group",
            "attributes": self.attrs | {"sklsb": known | {"names": names}},
            "consolidated_metadata": {
                "kind": "inline",
                "must_understand": False,
                "metadata": self._metadata(),
            },
        }
        root["attributes"]["sklsb"]["checksum"] = _checksum(_canonical(root))
        write_file(self.path / "zarr.json", json.dumps(root).encode())

    def _metadata(self) -> dict[str, Any]:
        arrays = {v.name: v.metadata(self.n_draws) for v in self.variables}
        return arrays | {
            name: _array_metadata(values.shape, values.shape, values.dtype, dims)
            for name, (dims, values) in self._plain()
        }

    def end(self, chains: bytes) -> None:
        """Commit, also for readers that open arrays one by one."""
        self.commit(chains)
        for name, metadata in self._metadata().items():
            place, data = self.path / name / "zarr.json", json.dumps(metadata).encode()
            if not place.is_file() or place.read_bytes() != data:
                write_file(place, data, sync=False)  # what counts is in the file of the group


def _read(path: Path, by: Callable[[bytes], Any]) -> Any:
    """Read a file that never changes."""
    try:
        return by(path.read_bytes())
    except (OSError, DamagedError) as error:
        raise _damaged(path, str(error)) from error


def _canonical(root: dict[str, Any]) -> bytes:
    return json.dumps(root, sort_keys=True).encode()


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(f"{path} is damaged: {why}.")


def _locked(path: Path) -> Any:
    file = open(path / "sklsb" / "lock", "w")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise StoreError(f"Another sampler is writing to {path}.") from error
    return file


def _last_checkpoint(path: Path) -> dict[str, Any]:
    """Return the newest checkpoint that is whole."""
    found, reasons = [], []
    for name in _CHECKPOINTS:
        try:
            found.append(unpacked((path / "sklsb" / name).read_bytes()))
        except FileNotFoundError:
            continue
        except DamagedError as error:
            reasons.append(f"{path / 'sklsb' / name} is damaged: {error}")
    if not found:
        raise StoreError("; ".join([*reasons, f"{path} has no checkpoint to go on from"]) + ".")
    last: dict[str, Any] = max(found, key=lambda state: int(state["sequence"]))
    if reasons:
        warnings.warn(
            f"{reasons[0]}. Going on from the other checkpoint, at {last['n_draws']} draws.",
            StoreWarning,
            stacklevel=5,
        )
    return last


def chunk_size(bytes_of_draw: int) -> int:
    """Return the number of draws of a chunk."""
    return max(1, min(CHUNK_DRAWS, CHUNK_BYTES // max(1, bytes_of_draw)))


def _read_root(path: Path) -> dict[str, Any]:
    """Return the metadata of all arrays, or say why it cannot be trusted."""
    place = path / "zarr.json"
    if not place.is_file():
        raise StoreError(f"{path} is no store of sklsb; give what sample(n, store=...) wrote.")
    try:
        root: dict[str, Any] = json.loads(place.read_bytes())
        wanted = root["attributes"]["sklsb"].pop("checksum")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(place, "it is not what was written") from error
    if _checksum(_canonical(root)) != wanted:
        raise _damaged(place, "its contents do not have the checksum that was written with them")
    return root


def open_draws(path: PathLike) -> xr.Dataset:
    """Open the draws of a store, also while it grows.

    Parameters
    ----------
    path : path-like
        What ``sample(n, store=path)`` was given, or `sample_chains`.

    Returns
    -------
    xarray.Dataset
        As ``sample`` returns it: ``x``, or what ``record`` named, with the coordinate ``lp``. All
        draws that are finished, by whatever calls. Values are read when they are asked for:
        ``.load()`` or ``.compute()`` takes all of them into memory. The attribute
        ``requested_draws`` is how many were asked for.

    Raises
    ------
    StoreError
        If it is no store, or is damaged. A chunk that was changed on the disk is found when it is
        read, and raises a ValueError.
    ImportError
        If zarr is not installed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import sklsb
    >>> path = pathlib.Path(tempfile.mkdtemp(), "run.zarr")
    >>> sampler = sklsb.GibbsSampler(random_state=0).fit(sklsb.Ising(np.zeros((3, 3))))
    >>> draws = sampler.sample(100, thin="sweep", store=path)
    >>> sklsb.open_draws(path)["x"].shape
    (4, 100, 3)
    """
    data = _open_all(Path(path))
    others = [name for name in _STATS if name in data and name not in OF_DRAWS]
    return data.drop_vars(others).set_coords([name for name in OF_DRAWS if name in data])


def open_stats(path: PathLike) -> xr.Dataset:
    """Open what is known of each draw: lp, and the acceptance rate."""
    data = _open_all(Path(path))
    found = data[[name for name in _STATS if name in data]]
    return found.drop_vars([name for name in found.coords if name not in ("chain", "draw")])


def _open_all(path: Path) -> xr.Dataset:
    """Open a store, or a folder with several."""
    try:
        parts = Parts.of(path)
    except DamagedError as error:
        raise _damaged(path, str(error)) from error
    if parts is None:
        return _open(path)
    missing = [place.name for place in parts.paths if not place.is_dir()]
    if missing:
        raise StoreError(f"{path} has no draws of all chains yet: {missing[0]} is not there.")
    return joined([_open(place) for place in parts.paths])


def _open(path: Path) -> xr.Dataset:
    needs_zarr()
    root = _read_root(path)
    known = root["attributes"].pop("sklsb")
    n, chunk = known["n_draws"], known["chunk"]
    for name, metadata in root["consolidated_metadata"]["metadata"].items():
        if "draw" not in metadata["dimension_names"]:
            continue
        rest = ".0" * (len(metadata["shape"]) - 2)
        for k in range(-(-n // chunk)):  # where one is missing, Zarr would give its fill value
            place = path / name / f"c.0.{k}{rest}"
            if not place.is_file():
                raise _damaged(place, "it is missing")
    data = xr.open_dataset(
        path, engine="zarr", chunks=None, cache=False, decode_cf=False, consolidated=True
    )
    data = data.isel(draw=slice(0, n))
    attrs = root["attributes"] | {
        "sampled_transitions": n * root["attributes"].get("thin", 1),
        "requested_draws": known["requested_draws"],
    }
    coords: dict[str, Any] = {k: (k, np.array(names)) for k, names in known["names"].items()}
    data = data.assign_coords(coords | {"draw": known["first"] + np.arange(n)})
    data.attrs = attrs
    return data

"""Draws and checkpoints on disk: ``sample(n, store=path)`` writes, `open_draws` reads.

A store is a folder in the format Zarr 3, with one chunk for all chains and some hundreds of draws.
All files are written atomically. The folder ``sklsb`` in it holds the sampler as it was when the
run began, and two checkpoints of the chains, written in turn.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb._system.warn import warn
from sklsb.diagnostics.draws import OF_DRAWS
from sklsb.exceptions import StoreError, StoreWarning
from sklsb.storage.codec import (
    DamagedError,
    check,
    damaged,
    digest_of,
    packed,
    read_file,
    unpacked,
    write_file,
)
from sklsb.storage.parts import Parts, joined

PathLike = str | os.PathLike[str]
# Bytes and draws of a chunk, at most.
CHUNK_BYTES, CHUNK_DRAWS = 1 << 23, 1 << 16
# Seconds between two commits, unless a chunk is full; share of the time that commits may take.
COMMIT_SECONDS, COMMIT_SHARE = 10.0, 0.05
_CHECKPOINTS = ("checkpoint.0", "checkpoint.1")
# Statistics that are kept beside the draws.
_STATS = (*OF_DRAWS, "acceptance_rate")
Coords = dict[str, tuple[tuple[str, ...], NDArray[Any]]]


def needs_zarr() -> None:
    """Import zarr, or say what to install."""
    from sklsb._system.progress import deferred_interrupt

    # A module that is half imported may stay so: Ctrl-C waits.
    with deferred_interrupt() as interrupted:
        try:
            import zarr  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "Stores need zarr: pip install 'zarr>=3.1'. record= keeps statistics in memory."
            ) from error
    if interrupted():
        raise KeyboardInterrupt


class Variable:
    """An array of draws on disk, and the buffer of its last chunk: chains, draws and the rest.

    Zarr makes the bytes of a chunk, in memory, and the metadata.
    """

    def __init__(self, name: str, dims: tuple[str, ...], dtype: Any, shape: tuple[int, ...]):
        import zarr
        from zarr.codecs import BloscCodec, Crc32cCodec
        from zarr.storage import MemoryStore

        self.name, self.dims, self.dtype, self.shape = name, dims, np.dtype(dtype), tuple(shape)
        self._fill = np.nan if self.dtype.kind == "f" else 0
        self._made: dict[str, Any] = {}
        self._key = ".".join(["c", *"0" * len(self.shape)])
        self._array: Any = zarr.create_array(
            MemoryStore(self._made),
            shape=self.shape,
            chunks=tuple(max(1, size) for size in self.shape),
            dtype=self.dtype,
            compressors=[BloscCodec(cname="zstd", clevel=1), Crc32cCodec()],
            fill_value=self._fill,
            chunk_key_encoding={"name": "default", "separator": "."},
            dimension_names=dims,
            config={"write_empty_chunks": True},
        )
        self.buffer = np.empty(self.shape, dtype=self.dtype)
        self.clear()

    def clear(self) -> None:
        """Begin a chunk."""
        self.buffer[:] = self._fill

    def path(self, root: Path, k: int) -> Path:
        """Path of chunk k."""
        places = ["c", "0", str(k), *"0" * len(self.shape)]
        return root / self.name / ".".join(places[: 1 + len(self.shape)])

    def metadata(self, n_draws: int) -> dict[str, Any]:
        """Metadata for Zarr."""
        found: dict[str, Any] = json.loads(self._made["zarr.json"].to_bytes())
        if "draw" in self.dims:
            found["shape"][1] = n_draws
        return found

    def write(self, root: Path, k: int) -> None:
        """Write the buffer as chunk k."""
        self._array[...] = self.buffer
        data = self._made[self._key].to_bytes() if self.buffer.size else b""
        write_file(self.path(root, k), data)

    def read(self, root: Path, k: int) -> None:
        """Read chunk k into the buffer; its checksum tells damage."""
        from zarr.buffer.cpu import Buffer

        path = self.path(root, k)
        try:
            self._made[self._key] = Buffer.from_bytes(path.read_bytes())
            self.buffer[:] = self._array[...]
        except FileNotFoundError as error:
            raise damaged(path, "it is missing") from error
        except (OSError, RuntimeError, ValueError) as error:
            raise damaged(path, error) from error


class Store:
    """A store that draws are written to.

    ``settings`` never change: thin, and the variables. ``attrs`` belong to the draws.
    """

    def __init__(self, path: Path, settings: dict[str, Any], attrs: dict[str, Any], coords: Coords):
        needs_zarr()
        self.path, self.settings, self.attrs, self.coords = path, settings, attrs, coords
        self.variables = [Variable(*given) for given in settings["variables"]]
        # Coordinates that are integers; names have a file of their own.
        self._plain = []
        for name, (dims, values) in coords.items():
            if values.dtype.kind in "iu" and values.size:
                self._plain.append(Variable(name, dims, values.dtype, values.shape))
                self._plain[-1].buffer[:] = values
        self.n_draws = self.sequence = self.wanted = self._n_full = 0
        self._committed = self._cost = 0.0
        self._lock: Any = None

    @property
    def chunk(self) -> int:
        """Number of draws in a chunk."""
        return int(self.settings["chunk"])

    @property
    def filled(self) -> int:
        """Number of draws in the last chunk, which is not full."""
        return self.n_draws % self.chunk

    # ----------------------------------------------------------------- begin and go on

    def create(self, sampler: bytes, chains: bytes) -> None:
        """Write a new store without draws; the folder appears once it is complete."""
        path, self.path = self.path, self.path.with_name(f".{self.path.name}.new")
        shutil.rmtree(self.path, ignore_errors=True)
        (self.path / "sklsb").mkdir(parents=True)
        self._lock = _locked(self.path)
        try:
            for variable in (*self.variables, *self._plain):
                (self.path / variable.name).mkdir()
            for variable in self._plain:
                variable.write(self.path, 0)
            write_file(self.path / "sklsb" / "coords", packed(self.coords))
            write_file(self.path / "sklsb" / "sampler", sampler)
            self.settings["sampler"] = digest_of(sampler)
            self.end(chains)
            os.replace(self.path, path)
        except BaseException:
            self.close()
            raise
        self.path = path

    @classmethod
    def open(cls, path: Path, *, verify: bool) -> tuple["Store", bytes]:
        """Return an existing store, and the chains of its last undamaged checkpoint.

        ``verify`` reads all chunks, not only the last one.
        """
        if not (path / "sklsb").is_dir():
            raise StoreError(f"{path} is no store of sklsb; give what sample(n, store=...) wrote.")
        lock = _locked(path)
        try:
            found = _last_checkpoint(path)
            coords = read_file(path / "sklsb" / "coords", unpacked)
            made = cls(path, found["settings"], found["attrs"], coords)
            made.n_draws, made.sequence = found["n_draws"], found["sequence"]
            made.wanted = found["wanted"]
            made._n_full = made.n_draws // made.chunk
            for k in range(0 if verify else made._n_full, -(-made.n_draws // made.chunk)):
                for variable in made.variables:
                    variable.read(path, k)
            if not made.filled:
                for variable in made.variables:
                    variable.clear()
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

    def sampler(self) -> bytes:
        """Return the bytes of the sampler as it was when the run began."""
        path = self.path / "sklsb" / "sampler"
        data: bytes = read_file(path, check)
        if digest_of(data) != self.settings["sampler"]:
            raise damaged(path, "it is of another run than the checkpoints")
        return data

    # ----------------------------------------------------------------- write

    def is_due(self) -> bool:
        """Whether draws should be committed now."""
        if self._n_full < self.n_draws // self.chunk:  # the buffers are full
            return True
        pause = max(COMMIT_SECONDS, self._cost / COMMIT_SHARE)
        return time.monotonic() - self._committed > pause

    def commit(self, chains: bytes) -> None:
        """Write the draws, then the chains, then the number of draws."""
        began = time.monotonic()
        k, filled = divmod(self.n_draws, self.chunk)
        for variable in self.variables:
            if self._n_full < k:  # what the buffers hold
                variable.write(self.path, k - 1)
                variable.clear()
            elif filled:
                variable.write(self.path, k)
        self._n_full = k
        self.sequence += 1
        state = {
            "settings": self.settings,
            "attrs": self.attrs,
            "n_draws": self.n_draws,
            "wanted": self.wanted,
            "sequence": self.sequence,
            "chains": np.frombuffer(chains, np.uint8),
        }
        write_file(self.path / "sklsb" / _CHECKPOINTS[self.sequence % 2], packed(state))
        self.show()
        self._committed = time.monotonic()
        self._cost = self._committed - began

    def show(self) -> None:
        """Write the metadata of the group, from which readers learn the number of draws."""
        known = {name: self.settings[name] for name in ("chunk", "first")}
        known |= {"requested_draws": self.wanted, "n_draws": self.n_draws}
        names = {k: v[1].tolist() for k, v in self.coords.items() if v[1].dtype.kind not in "iu"}
        metadata = {"kind": "inline", "must_understand": False, "metadata": self._metadata()}
        root: dict[str, Any] = {
            "zarr_format": 3,
            "node_type": "group",
            "attributes": self.attrs | {"sklsb": known | {"names": names}},
            "consolidated_metadata": metadata,
        }
        root["attributes"]["sklsb"]["checksum"] = _checksum(root)
        write_file(self.path / "zarr.json", json.dumps(root).encode())

    def _metadata(self) -> dict[str, Any]:
        return {v.name: v.metadata(self.n_draws) for v in (*self.variables, *self._plain)}

    def end(self, chains: bytes) -> None:
        """Commit, and write the metadata of each array for readers that open it alone."""
        self.commit(chains)
        for name, metadata in self._metadata().items():
            place, data = self.path / name / "zarr.json", json.dumps(metadata).encode()
            if not place.is_file() or place.read_bytes() != data:
                write_file(place, data, sync=False)  # the file of the group is what counts


def _checksum(root: dict[str, Any]) -> int:
    data = json.dumps(root, sort_keys=True).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _locked(path: Path) -> Any:
    file = open(path / "sklsb" / "lock", "w")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise StoreError(f"Another sampler is writing to {path}.") from error
    return file


def _last_checkpoint(path: Path) -> dict[str, Any]:
    """Return the newest undamaged checkpoint."""
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
        warn(
            f"{reasons[0]}. Going on from the other checkpoint, at {last['n_draws']} draws.",
            StoreWarning,
        )
    return last


def chunk_size(bytes_of_draw: int) -> int:
    """Return the number of draws in a chunk."""
    return max(1, min(CHUNK_DRAWS, CHUNK_BYTES // max(1, bytes_of_draw)))


def _read_root(path: Path) -> dict[str, Any]:
    """Return the metadata of the group, if its checksum is right."""
    place = path / "zarr.json"
    if not place.is_file():
        raise StoreError(f"{path} is no store of sklsb; give what sample(n, store=...) wrote.")
    try:
        root: dict[str, Any] = json.loads(place.read_bytes())
        wanted = root["attributes"]["sklsb"].pop("checksum")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(place, "it is not what was written") from error
    if _checksum(root) != wanted:
        raise damaged(place, "its contents do not have the checksum that was written with them")
    return root


def open_draws(path: PathLike) -> xr.Dataset:
    """Open the draws of a store, also while it grows.

    Parameters
    ----------
    path : path-like
        The ``store`` of ``sample`` or `sample_chains`.

    Returns
    -------
    xarray.Dataset
        All draws so far, as ``sample`` returns them: ``x``, or the statistics of ``record``, with
        the coordinate ``lp``. Values are read on demand; ``.load()`` reads all of them into memory.
        The attribute ``requested_draws`` is the number of draws that were asked for.

    Raises
    ------
    sklsb.exceptions.StoreError
        If the folder is no store, or is damaged. A damaged chunk raises a ValueError when it is
        read.
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
    """Open the statistics of draws: lp, the acceptance rate."""
    data = _open_all(Path(path))
    found = data[[name for name in _STATS if name in data]]
    return found.drop_vars([name for name in found.coords if name not in ("chain", "draw")])


def _open_all(path: Path) -> xr.Dataset:
    """Open a store, or a folder of several."""
    parts = Parts.of(path)
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
                raise damaged(place, "it is missing")
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

"""Folders with several stores, each of some of the chains of one run."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from sklsb.exceptions import StoreError
from sklsb.storage.codec import packed, read_file, unpacked, write_file

_MANIFEST = "chains"


class Parts(NamedTuple):
    """A folder of stores, and the settings that identify its run."""

    folder: Path
    settings: dict[str, Any]
    ends: list[int]  # first chain of each part, and the number of all chains

    @classmethod
    def begin(cls, folder: Path, settings: dict[str, Any], ends: list[int]) -> "Parts":
        """Return the content of a folder, or begin a new one."""
        found = cls.of(folder)
        if found is not None:
            return found
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise StoreError(
                f"{folder} cannot be used: it exists, but sample_chains did not write it."
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / _MANIFEST, packed({"settings": settings, "ends": ends}))
        return cls(folder, settings, ends)

    @classmethod
    def of(cls, folder: Path) -> "Parts | None":
        """Return the content of a folder, or None if it is no such folder."""
        place = folder / _MANIFEST
        if not place.is_file():
            return None
        found = read_file(place, unpacked)
        return cls(folder, found["settings"], found["ends"])

    @property
    def paths(self) -> list[Path]:
        """Paths of the parts, written or not."""
        width = len(str(self.ends[-1]))
        return [
            self.folder / f"{first:0{width}}-{end - 1:0{width}}.zarr"
            for first, end in zip(self.ends, self.ends[1:], strict=False)
        ]


class _Joined(BackendArray):
    """Arrays of several stores in a row, read on demand."""

    def __init__(self, parts: list[xr.Variable]):
        self.parts, self.dtype = parts, parts[0].dtype
        self.ends = np.cumsum([0, *(len(part) for part in parts)]).tolist()
        self.shape = (self.ends[-1], *parts[0].shape[1:])

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        outer = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, outer, self._read)

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        chosen = np.arange(self.shape[0])[key[0]]
        rows = np.atleast_1d(chosen)
        order = np.argsort(rows, kind="stable")
        ends = np.searchsorted(rows[order], self.ends)
        read = [
            part[(rows[order[a:b]] - first, *key[1:])].values
            for part, first, a, b in zip(self.parts, self.ends, ends, ends[1:], strict=False)
            if a < b
        ]
        if not read:
            return np.asarray(self.parts[0][(rows, *key[1:])].values)
        whole = np.concatenate(read)[np.argsort(order, kind="stable")]
        return whole if chosen.ndim else np.asarray(whole[0])


def joined(parts: list[xr.Dataset]) -> xr.Dataset:
    """Return the draws that all chains have, read on demand."""
    n = min(part.sizes["draw"] for part in parts)
    parts = [part.isel(draw=slice(0, n)) for part in parts]
    first = parts[0]
    found: dict[Any, xr.Variable] = {}
    n_chains = sum(part.sizes["chain"] for part in parts)
    for name, values in first.variables.items():
        if name == "chain":
            found[name] = xr.Variable("chain", np.arange(n_chains))
        elif "chain" in values.dims:
            array = indexing.LazilyIndexedArray(_Joined([part[name].variable for part in parts]))
            found[name] = xr.Variable(values.dims, array)
        else:
            found[name] = values
    made = {"sampled_transitions": n * int(first.attrs.get("thin", 1))}
    return xr.Dataset(found, attrs=first.attrs | made).set_coords(list(first.coords))

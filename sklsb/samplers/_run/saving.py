"""Fitted samplers on disk, and runs that go on after a crash."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklsb import __version__
from sklsb.exceptions import StoreError
from sklsb.samplers._run.run import Run, exclusive
from sklsb.storage.codec import DamagedError, find_class, packed, unpacked, write_file
from sklsb.storage.fingerprint import difference, fingerprint
from sklsb.storage.stores import Store
from sklsb.targets.base import Target

PathLike = str | os.PathLike[str]
# Most states at which log p is compared.
_MOST_PROBES = 8


@contextmanager
def _readable(path: Path, data: bytes) -> Iterator[None]:
    """Raise a StoreError that names the version if this one cannot read the bytes of a sampler."""
    try:
        yield
    except (StoreError, DamagedError):
        raise
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        version = unpacked(data).get("version", "of an unknown version")
        raise StoreError(
            f"{path} was written by sklsb {version} and cannot be read by {__version__}: "
            f"{str(error).rstrip('.')}. If nothing else helps, read it with that version, or fit "
            "again."
        ) from error


def packed_sampler(sampler: "Saving") -> bytes:
    """Return a fitted sampler as bytes, with a fingerprint of its target."""
    cls, run = type(sampler), sampler.run_
    state = packed(sampler.__getstate__(), {"target": run.target})
    return packed(
        {
            "version": __version__,
            "class": (cls.__module__, cls.__qualname__),
            "target": fingerprint(run.target, run.x[:_MOST_PROBES]),
            "sampler": np.frombuffer(state, np.uint8),
        }
    )


def _unpacked(cls: type, data: bytes, target: Target, path: Path) -> Any:
    """Return the sampler that bytes were made of, if it is of this class and target."""
    if not isinstance(target, Target):
        raise TypeError(f"target is {target!r:.200}, not a sklsb Target; give the one of fit.")
    with _readable(path, data):
        found = unpacked(data)
        module, name = found["class"]
        made: Any = cls
        if cls.__qualname__ != name:
            made = find_class(module, name)
        if not issubclass(made, cls):
            raise StoreError(f"{path} holds a {name}; it is not of {cls.__qualname__}.")
        other = difference(target, found["target"])
        if other:
            raise StoreError(f"{path} is of another target: {other}.")
        state = unpacked(found["sampler"].tobytes(), {"target": target})
        sampler = made.__new__(made)
        sampler.__setstate__(state)
        return sampler


class Saving:
    """`save`, `load` and `resume`, for `BaseSampler`."""

    _in_files = True  # also classes of users
    run_: Run

    def save(self, path: PathLike) -> None:
        """Write the fitted sampler to a file.

        Parameters
        ----------
        path : path-like
            The file, which is overwritten as a whole or not at all. It holds JSON and arrays; no
            code, target or draws.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        TypeError
            If the file cannot hold an object given as a parameter.

        See Also
        --------
        load : read the sampler, whose chains go on bit for bit.
        """
        check_is_fitted(self, "target_")
        with exclusive(self.run_):
            write_file(Path(path), packed_sampler(self))

    @classmethod
    def load(cls, path: PathLike, target: Target) -> Self:
        """Read a fitted sampler from a file.

        Parameters
        ----------
        path : path-like
            A file written by `save`.
        target : Target
            The target of `fit`.

        Returns
        -------
        sampler
            Fitted; its chains go on bit for bit.

        Raises
        ------
        StoreError
            If the target differs, or the file is damaged, of another format version, or of another
            class of samplers, or names what this version does not have. It is a ValueError that
            says which.
        OSError
            If the file cannot be read.
        """
        place = Path(path)
        try:
            found: Self = _unpacked(cls, place.read_bytes(), target, place)
            return found
        except DamagedError as error:
            raise StoreError(f"{place} is damaged: {error}.") from error

    @classmethod
    def resume(cls, path: PathLike, target: Target) -> Self:
        """Return the sampler of a store, at its last checkpoint.

        Parameters
        ----------
        path : path-like
            The store given to ``sample(n, store=path)``, by this process or another.
        target : Target
            The target sampled.

        Returns
        -------
        sampler
            Fitted. ``sample(n, store=path)`` appends to the store the same draws, bit for bit, as
            without the interruption. `sklsb.open_draws` shows how many draws there are and how many
            were asked for.

        Raises
        ------
        StoreError
            As in `load`.

        Warns
        -----
        StoreWarning
            If the last checkpoint is damaged, and the previous one is used.

        Notes
        -----
        All chunks are read and verified.
        """
        place = Path(path)
        store, chains = Store.open(place, verify=True)
        store.close()
        data = store.sampler()
        sampler: Self = _unpacked(cls, data, target, place)
        with _readable(place, data):
            before: Any = sampler.run_.ensemble
            state = unpacked(chains, {"target": target} | before.fixed())
            sampler.run_.ensemble = made = object.__new__(type(before))
            made.__setstate__(state)
        return sampler

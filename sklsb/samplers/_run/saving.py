"""Fitted samplers on disk, and runs that go on after a crash."""

import copy
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklsb import __version__
from sklsb.exceptions import StoreError
from sklsb.samplers._run.run import Run, exclusive
from sklsb.storage.checkpoint import Checkpoint
from sklsb.storage.codec import DamagedError, damaged, find_class, packed, unpacked, write_file
from sklsb.storage.fingerprint import difference, digest_of_value, fingerprint
from sklsb.storage.stores import Store
from sklsb.targets.base import States, Target
from sklsb.trials.starts import Starts

PathLike = str | os.PathLike[str]
# Most states at which log p is compared.
_MOST_PROBES = 8
# Parameters that a fit may go on with others of.
_FREE = ("n_jobs", "verbose", "warm_start")


@contextmanager
def _readable(path: Path, data: bytes) -> Iterator[None]:
    """Raise a StoreError that names the version if this one cannot read the bytes of a sampler."""
    try:
        yield
    except StoreError:
        raise
    except DamagedError as error:
        raise damaged(path, error) from error
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        version = unpacked(data).get("version", "of an unknown version")
        raise StoreError(
            f"{path} was written by sklsb {version} and cannot be read by {__version__}: "
            f"{str(error).rstrip('.')}. If nothing else helps, read it with that version, or fit "
            "again."
        ) from error


def packed_sampler(sampler: "Saving", **more: Any) -> bytes:
    """Return a fitted sampler as bytes, with a fingerprint of its target, and more."""
    cls, run = type(sampler), sampler.run_
    state = packed(sampler.__getstate__(), {"target": run.target})
    return packed(
        {
            "version": __version__,
            "class": (cls.__module__, cls.__qualname__),
            "target": fingerprint(run.target, run.x[:_MOST_PROBES]),
            "sampler": np.frombuffer(state, np.uint8),
            **more,
        }
    )


def _told(value: Any) -> tuple[str, str]:
    """Return what tells a parameter from others: its text, and a checksum of arrays."""
    values = np.asarray(value) if hasattr(value, "__array__") else value
    return re.sub(r" at 0x\w+", "", repr(value)), digest_of_value(values)


def look_at(algorithm: Any, initial_states: Any) -> "Saving | None":
    """Look at the file of a fit; return its sampler if it is finished.

    Else the checkpoint of the algorithm says where it ended, if it ever began.
    """
    params, target, file = algorithm.params, algorithm.target, algorithm.checkpoint
    path, cls = file.path, type(params)
    if algorithm.before is not None:
        raise ValueError(
            "warm_start goes on from chains that a checkpoint does not know; set "
            "warm_start=False, or checkpoint=None."
        )
    given = params.get_params(deep=False) | {"initial_states": initial_states}
    settings = {"class": _told(cls.__qualname__)}
    settings |= {name: _told(value) for name, value in given.items() if name not in _FREE}
    file.header, file.known = {"version": __version__, "settings": settings}, {"target": target}
    if not path.exists():
        if not path.parent.is_dir():
            raise FileNotFoundError(f"checkpoint is {path}; make the folder {path.parent} first.")
        return None
    data = path.read_bytes()
    with _readable(path, data):
        found = unpacked(data)
        if "settings" not in found:
            raise StoreError(f"{path} was written by save; read it with load.")
        for name, (then, mark) in found["settings"].items():
            now, new = settings.get(name, ("missing", ""))
            if (then, mark) != (now, new):
                how = f"was {then:.100} and is {now:.100}" if then != now else "has other values"
                raise StoreError(
                    f"{path} is of another fit: {name} {how}. Give what it was, or another path."
                )
        if "sampler" in found:
            return cast(Saving, _unpacked(cls, data, target, path))
        if other := difference(target, found["target"]):
            raise StoreError(f"{path} is of another target: {other}.")
        file.header["target"] = found["target"]
        file.kept = unpacked(found["state"].tobytes(), file.known)
    return None


def begin(file: Checkpoint, target: Target, found: Starts, states: States) -> None:
    """Let the file of a new fit know the target, and where chains start."""
    if file.path is not None:
        file.header["target"] = fingerprint(target, states[:_MOST_PROBES])
        # Exact answers are no part of files.
        file.kept["starts"] = found if found.reference is None else None


def finish(file: Checkpoint, run: Run, fitted: dict[str, Any]) -> None:
    """Write what was fitted in the place of how far it had come."""
    if file.path is not None:
        made = copy.copy(run.algorithm.params)
        made._put(run, fitted)
        write_file(file.path, packed_sampler(made, settings=file.header["settings"]))


def _unpacked(cls: type, data: bytes, target: Target, path: Path) -> Any:
    """Return the sampler that bytes were made of, if it is of this class and target."""
    if not isinstance(target, Target):
        raise TypeError(f"target is {target!r:.200}, not a sklsb Target; give the one of fit.")
    with _readable(path, data):
        found = unpacked(data)
        if "state" in found:
            raise StoreError(f"{path} is of a fit that goes on: fit(target, checkpoint=...).")
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
    _found: tuple[str, ...]

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
        found: Self = _unpacked(cls, place.read_bytes(), target, place)
        return found

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

"""A fit on disk: the burn-in as far as it has come, then the fitted sampler."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sklsb.storage.codec import DamagedError, digest_of, packed, unpacked, write_file
from sklsb.storage.fingerprint import difference, fingerprint
from sklsb.storage.stores import COMMIT_SECONDS, COMMIT_SHARE, StoreError
from sklsb.targets.base import Target


def known_by(value: Any) -> str:
    """Return what tells a parameter from others: its content, which a repr may not show."""
    if value is None or isinstance(value, str | bool | int | float):
        return repr(value)
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if name else digest_of(packed(value))


class Keeper:
    """Writes how far a burn-in has come, every ten seconds or so, and reads it.

    Parameters
    ----------
    path : Path
        The file.
    known : dict of str
        What the fit is known by, besides the target.
    target : Target
        What is fitted; of it only a fingerprint is written.
    """

    def __init__(self, path: Path, known: dict[str, Any], target: Target):
        self.path, self._target = path, target
        nowhere = np.empty((0, target.n_sites), target.dtype)
        self.known = known | {"target": fingerprint(target, nowhere)}
        path.parent.mkdir(parents=True, exist_ok=True)  # or a long burn-in would fail at its end
        self.kept: tuple[Any, ...] = ()
        self._written, self._cost = time.monotonic(), 0.0
        self._begun: dict[str, Any] | None = None
        self.fitted: bytes | None = None
        if path.exists():
            self._read()

    def _read(self) -> None:
        try:
            data = self.path.read_bytes()
            found = unpacked(data)
        except DamagedError as error:
            raise StoreError(f"{self.path} is damaged: {error}.") from error
        changed = self._changed(found.get("fit") or {})
        if changed:
            raise StoreError(
                f"{self.path} is of another fit: {', '.join(changed)} differ. Give the same target "
                "and parameters, or another path."
            )
        if "burn_in" not in found:
            self.fitted = data
            return
        begun = unpacked(found["burn_in"].tobytes(), {"target": self._target})
        self._begun, self.kept = begun, begun["kept"]

    def _changed(self, known: dict[str, Any]) -> list[str]:
        names = [name for name in self.known if name != "target"]
        changed = [name for name in names if known.get(name) != self.known[name]]
        same = "target" in known and not difference(self._target, known["target"])
        return changed if same else [*changed, "target"]

    @property
    def states(self) -> Any:
        """States of the chains as they were, None at the beginning."""
        return None if self._begun is None else self._begun["ensemble"]["state"].x

    def restore(self, ensemble: Any) -> dict[str, Any] | None:
        """Bring chains to where they were; return what the burn-in knew, None at the beginning."""
        if self._begun is None:
            return None
        state, pool = self._begun["ensemble"], getattr(ensemble, "_pool", None)
        for name in ("n_jobs", "n_threads"):
            if name in state:
                state[name] = getattr(ensemble, name)
        ensemble.__setstate__(state)
        if pool is not None:
            ensemble._pool = pool
        loop: dict[str, Any] = self._begun["loop"]
        return loop

    def offer(self, ensemble: Any, loop: Callable[[], dict[str, Any]], last: bool = False) -> None:
        """Write how far the burn-in is, if it is time to or this is the end of it."""
        began = time.monotonic()
        if not last and began - self._written < max(COMMIT_SECONDS, self._cost / COMMIT_SHARE):
            return
        state = {"ensemble": ensemble.__getstate__(), "loop": loop(), "kept": self.kept}
        data = packed(state, {"target": self._target})
        write_file(self.path, packed({"fit": self.known, "burn_in": np.frombuffer(data, np.uint8)}))
        self._written = time.monotonic()
        self._cost = self._written - began

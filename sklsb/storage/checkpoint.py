"""The file of a fit, which goes on from there after a crash or a Ctrl-C."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sklsb._system.progress import deferred_interrupt
from sklsb.storage.codec import packed, write_file

# Seconds between two versions of the file, and the share of the time that writing may take.
SECONDS, SHARE = 60.0, 0.02


class Checkpoint:
    """How far a fit has come, written to a file now and then; nowhere without a path.

    ``header`` tells the fit from others. ``kept`` is what the file holds besides: empty in a new
    fit, or with ``ensemble`` and ``loop``, where the last one ended.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.header: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}
        self.known: dict[str, Any] = {}  # objects that the file only names
        self._due = time.perf_counter() + SECONDS

    @contextmanager
    def loop(self, state: Callable[[], dict[str, Any]]) -> Iterator[Callable[[], None]]:
        """Give what a loop calls between two pieces of work, to write its ``state()`` if it is due.

        It is also written at the end and at a Ctrl-C, which waits for the piece under way.
        """
        path = self.path
        if path is None:
            yield lambda: None
            return
        with deferred_interrupt() as interrupted:

            def between() -> None:
                if interrupted() or time.perf_counter() >= self._due:
                    self._write(path, state())
                if interrupted():
                    raise KeyboardInterrupt

            yield between
            self._write(path, state())

    def _write(self, path: Path, state: dict[str, Any]) -> None:
        began = time.perf_counter()
        inside = np.frombuffer(packed(self.kept | state, self.known), np.uint8)
        write_file(path, packed(self.header | {"state": inside}))
        ended = time.perf_counter()
        self._due = ended + max(SECONDS, (ended - began) / SHARE)

"""Work in pieces: how long they are, a bar over them, and Ctrl-C between two."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

# Transitions of the first segment, and the time that the later ones should take.
FIRST_SEGMENT = 64
_SEGMENT_SECONDS = 0.1


def next_segment(segment: int, size: int, seconds: float) -> int:
    """Return the transitions of the next segment, a tenth of a second; no chain depends on it."""
    return max(1, min(4 * segment, int(size * _SEGMENT_SECONDS / max(seconds, 1e-9))))


class Progress:
    """A tqdm bar over the transitions of all chains, or nothing."""

    def __init__(self, verbose: int, what: str, total: int):
        self._bar: Any = None
        if verbose:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, desc=what, unit="step", unit_scale=True)

    def __call__(self, n: int) -> None:
        if self._bar is not None:
            self._bar.update(n)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Note a first Ctrl-C instead of raising it, so that all chains finish their segment."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(noted)
    finally:
        if before is not None:  # None: it was not set from Python, and cannot be set again
            signal.signal(signal.SIGINT, before)


class Told:
    """A table of what each round showed, a line at a time, or nothing."""

    def __init__(self, verbose: int):
        self.verbose = verbose
        self._header = True
        self._began = time.perf_counter()

    def __call__(self, row: dict[str, Any]) -> None:
        if not self.verbose:
            return
        from tqdm.auto import tqdm

        row = row | {"seconds": time.perf_counter() - self._began}
        names = {name: name.replace("_", " ") for name in row}
        width = {name: max(9, len(shown)) for name, shown in names.items()}
        if self._header:
            tqdm.write("  ".join(f"{names[name]:>{width[name]}}" for name in row))
            self._header = False
        kind = {name: ".4g" if isinstance(v, float) else "d" for name, v in row.items()}
        tqdm.write("  ".join(f"{v:{width[name]}{kind[name]}}" for name, v in row.items()))

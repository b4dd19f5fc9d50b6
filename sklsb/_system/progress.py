"""What a fit or a sample is doing: a line for each phase, and Ctrl-C between two pieces of work.

In a terminal and in a notebook the line is written over while the phase lasts. In a file, where
nothing can be taken back, it is written when the phase ends, and before that after 2, 4, 8, ...
seconds. Lines of single chains are written at such times everywhere. Lines go to stderr.
"""

import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, Self

from numba.core import event

# Transitions of the first segment, and the time that the later ones should take.
FIRST_SEGMENT = 64
_SEGMENT_SECONDS = 0.1
# Seconds between two versions of a line; the first ones in a file.
_PAUSE, _FIRST_PAUSE = 0.1, 2.0
# Seconds after which the time that is left can be told.
_TRUSTED = 1.0


def next_segment(segment: int, size: int, seconds: float) -> int:
    """Return the transitions of the next segment, a tenth of a second; no chain depends on it."""
    return max(1, min(4 * segment, int(size * _SEGMENT_SECONDS / max(seconds, 1e-9))))


# ----------------------------------------------------------------- where lines go


class _File:
    """Lines that stay as they are."""

    moves = False

    def __init__(self, stream: Any):
        self.stream = stream

    def show(self, line: str, last: bool = False) -> None:
        """Write the line of the phase as it is now."""
        self.say(line)

    def say(self, line: str) -> None:
        """Write a line of its own."""
        self.stream.write(line + "\n")
        self.stream.flush()


class _Terminal(_File):
    """A line that is written over."""

    moves = True
    _length = 0

    def show(self, line: str, last: bool = False) -> None:
        if not last:  # one that goes over the edge could not be written over
            line = line[: shutil.get_terminal_size().columns - 1]
        self.stream.write("\r" + line.ljust(self._length) + "\n" * last)
        self.stream.flush()
        self._length = 0 if last else len(line)

    def say(self, line: str) -> None:
        self.show(line, last=True)


class _Notebook:
    """Text below a cell that is replaced."""

    moves = True

    def __init__(self) -> None:
        from IPython.display import DisplayHandle

        self._handle, self._shown, self._above = DisplayHandle(), False, ""

    def show(self, line: str, last: bool = False) -> None:
        """Write the line of the phase as it is now."""
        put = self._handle.update if self._shown else self._handle.display
        put({"text/plain": self._above + line}, raw=True)
        self._shown = True

    def say(self, line: str) -> None:
        """Write a line above that one."""
        self.show(line)
        self._above += line + "\n"


def _place() -> Any:
    """Return where lines go; None if there is nowhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if hasattr(shell, "kernel"):
        return _Notebook()
    if sys.stderr is None:
        return None
    return (_Terminal if sys.stderr.isatty() else _File)(sys.stderr)


# ----------------------------------------------------------------- what they say


class _Compilation(event.Listener):
    """Notes for how long numba compiles; all else waits for it."""

    def __init__(self, tell: Callable[[], None]):
        self.tell, self.depth, self.began, self.seconds = tell, 0, 0.0, 0.0

    def on_start(self, event: Any) -> None:
        """Tell of the outermost of compilations inside each other."""
        self.depth += 1
        if self.depth == 1:
            self.began = time.perf_counter()
            self.tell()

    def on_end(self, event: Any) -> None:
        """Add its time."""
        self.depth -= 1
        if not self.depth:
            self.seconds += time.perf_counter() - self.began


class Clock:
    """Seconds of each phase, without those of phases within it and of compiling."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._compilation = _Compilation(lambda: None)

    def __enter__(self) -> Self:
        self._token = _CLOCK.set(self)
        event.register("numba:compile", self._compilation)
        return self

    def __exit__(self, *exception: object) -> None:
        event.unregister("numba:compile", self._compilation)
        _CLOCK.reset(self._token)

    def counted(self) -> float:
        """Return the seconds that belong to something so far."""
        return sum(self._seconds.values()) + self._compilation.seconds

    def add(self, phase: str, seconds: float) -> None:
        """Count seconds of a phase."""
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    def attrs(self) -> dict[str, float]:
        """Return the seconds under names like ``burn_in_seconds``."""
        named = self._seconds | {"compiling": self._compilation.seconds}
        return {f"{re.sub('[ -]', '_', name)}_seconds": value for name, value in named.items()}


# That of the fit which is going on.
_CLOCK: ContextVar[Clock | None] = ContextVar("_CLOCK", default=None)


class Columns(Protocol):
    """What a line shows besides how far its phase is."""

    def columns(self, last: bool = False) -> list[str]:
        """Return its parts; the ``last`` ones of the phase are exact."""

    def rows(self) -> list[str]:
        """Return lines of their own for each chain."""


class Progress:
    """The line of a phase, or nothing.

    Parameters
    ----------
    verbose : int
        0 shows nothing, 2 also the rows of ``columns``.
    what : str
        Name of the phase.
    total : int, optional
        Number of steps, if it is known; a phase of 0 steps is not shown.
    unit : str, default="steps"
        What is counted; "" counts in percent only.
    columns : Columns, optional
        More of the line.
    at_most : bool, default=False
        Whether the phase may end before its total.
    """

    def __init__(
        self,
        verbose: int,
        what: str,
        total: int | None = None,
        unit: str = "steps",
        columns: Columns | None = None,
        at_most: bool = False,
    ):
        self.what, self.total, self.unit = what, total, unit
        self._columns, self._rows, self._at_most = columns, verbose > 1, at_most
        self._place = _place() if verbose and total != 0 else None
        self._done, self._began, self._due, self._rows_due = 0, 0.0, 0.0, 0.0
        self._compilation = _Compilation(self._compiling)
        self._said_compiling = False

    def __call__(self, n: int = 1) -> None:
        """Count n steps."""
        self._done += n
        if self._place is not None and time.perf_counter() >= self._due:
            self._show()

    def __enter__(self) -> Self:
        self._began, self._clock = time.perf_counter(), _CLOCK.get()
        self._counted = self._clock.counted() if self._clock is not None else 0.0
        if self._place is not None:
            event.register("numba:compile", self._compilation)
            self._due = self._rows_due = self._began + _FIRST_PAUSE
            if self._place.moves:
                self._show()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._clock is not None:
            others = self._clock.counted() - self._counted
            self._clock.add(self.what, time.perf_counter() - self._began - others)
        if self._place is not None:
            event.unregister("numba:compile", self._compilation)
            self._show(last=True)

    def _show(self, last: bool = False) -> None:
        place = self._place
        if place is None:
            return
        now = time.perf_counter()
        line, pause = self._line(now - self._began, last), max(_FIRST_PAUSE, now - self._began)
        if self._rows and self._columns is not None and (last or now >= self._rows_due):
            for row in self._columns.rows():
                place.say(row)
            self._rows_due = now + pause
        place.show(line, last)
        self._due = now + (_PAUSE if place.moves else pause)

    def _line(self, seconds: float, last: bool) -> str:
        parts, counts, compiled = [], [], self._compilation.seconds
        if self.total:
            parts.append(f"{100 * self._done // self.total}%")
        if self.unit and (self.total or self._done):
            of = f"/{self.total:,}" if self.total else ""
            counts.append(f"{self._done:,}{of} {self.unit}")
        if self._columns is None:
            parts += counts
        parts.append(_duration(seconds))
        if compiled >= _PAUSE:
            parts[-1] += f" ({_duration(compiled)} of it compiling)"
        if (
            self.total
            and 0 < self._done < self.total
            and not last
            and seconds - compiled > _TRUSTED
        ):
            left = (seconds - compiled) * (self.total - self._done) / self._done
            parts.append(f"{'at most ' * self._at_most}{_duration(left)} left")
        if self._columns is not None:  # a narrow terminal cuts off the counts
            parts += [*self._columns.columns(last), *counts]
        return f"{self.what}: {', '.join(parts)}"

    def _compiling(self) -> None:
        if self._place is not None and (self._place.moves or not self._said_compiling):
            self._said_compiling = True
            self._place.show(f"{self.what}: compiling kernels ...")


class Told(Progress):
    """A phase of rounds, with a row of a table of what each of them showed, or nothing."""

    def __init__(self, verbose: int, what: str = "burn-in"):
        super().__init__(verbose, what, unit="rounds")
        self._header, self._began = True, time.perf_counter()

    def __call__(self, row: dict[str, Any]) -> None:  # type: ignore[override]
        """Write a row, the first time below the names of its columns."""
        if self._place is None:
            return
        row = row | {"seconds": time.perf_counter() - self._began}
        names = {name: name.replace("_", " ") for name in row}
        width = {name: max(9, len(shown)) for name, shown in names.items()}
        if self._header:
            self._place.say("  ".join(f"{names[name]:>{width[name]}}" for name in row))
            self._header = False
        kind = {name: ".4g" if isinstance(v, float) else "d" for name, v in row.items()}
        self._place.say("  ".join(f"{v:{width[name]}{kind[name]}}" for name, v in row.items()))
        super().__call__()


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


# ----------------------------------------------------------------- Ctrl-C


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

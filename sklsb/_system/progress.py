"""Progress of a fit or a sample: a tqdm bar for each phase; and Ctrl-C between pieces of work.

In a file, where lines cannot be replaced, a line of the bar is written after 2, 4 and 8 seconds,
then every 10 (after five minutes, every thirtieth of the time), and when the phase ends. Lines of
single chains are written at these times everywhere. What may take long between two counts calls
`tick`.
"""

import math
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

import numpy as np
from numba.core import event

from sklsb._system.arrays import Array

# Seconds between two versions of a bar; before the first line in a file, and between later ones.
_PAUSE, _FIRST_PAUSE, _LATER_PAUSE = 0.1, 2.0, 10.0
# Of a phase that lasts for long, the share that may pass between two lines in a file.
_SHARE = 1 / 30
# R-hat takes at most one part in this many of the time.
_R_HAT_SHARE = 50
# Columns of statistics; most chains with a line of their own.
_MEANS, _MOST_ROWS = {"acceptance_rate": "acceptance {:.2f}", "lp": "lp {:.6g}"}, 16
# Width of the line that a notebook keeps.
_COLUMNS = 100
# From this count on, units have prefixes.
_MANY = 10_000


class _Log:
    """A file in which each version of a tqdm bar is a line."""

    def __init__(self, file: Any):
        self.file, self.flush = file, file.flush

    def write(self, text: str) -> None:
        """Write a version without control characters around it."""
        if text.strip():
            self.file.write(text.strip() + "\n")


class _Compilation(event.Listener):
    """Measures the time that numba compiles."""

    def __init__(self, tell: Callable[[], None]):
        self.tell, self.depth, self.began, self.seconds = tell, 0, 0.0, 0.0

    def on_start(self, event: Any) -> None:
        """Tell of the outermost of nested compilations."""
        self.depth += 1
        if self.depth == 1:
            self.began = time.perf_counter()
            self.tell()

    def on_end(self, event: Any) -> None:
        """Add the time of the outermost compilation."""
        self.depth -= 1
        if not self.depth:
            self.seconds += time.perf_counter() - self.began


class Clock:
    """Seconds of each phase, without nested phases and compilation."""

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
        """Return all seconds counted so far."""
        return sum(self._seconds.values()) + self._compilation.seconds

    def add(self, phase: str, seconds: float) -> None:
        """Add seconds of a phase."""
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    def attrs(self) -> dict[str, float]:
        """Return the seconds under names like ``burn_in_seconds``."""
        named = self._seconds | {"compiling": self._compilation.seconds}
        return {f"{re.sub('[ -]', '_', name)}_seconds": value for name, value in named.items()}


# The clock of the present fit.
_CLOCK: ContextVar[Clock | None] = ContextVar("_CLOCK", default=None)


# Bars that are shown, the innermost last.
_SHOWN: "list[Progress]" = []
_showing = threading.Lock()


def tick(n_values: int = 0) -> None:
    """Let the bar of the present phase, if any, show that time passes.

    ``n_values`` values of a function of the user are counted.
    """
    if _SHOWN:
        _SHOWN[-1].tick(n_values)


class Columns:
    """More that a bar of draws shows: means of statistics since then, and the worst R-hat.

    ``names`` are those of statistics; ``constant`` is missing in lp, and ``r_hat`` measures R-hat.
    """

    def __init__(
        self, names: tuple[str, ...], n_chains: int, constant: float, r_hat: Callable[[], float]
    ):
        self._places = [(text, names.index(n)) for n, text in _MEANS.items() if n in names]
        self._constant, self._measured = np.where([n == "lp" for n in names], constant, 0.0), r_hat
        shape = n_chains, len(names)
        self._sum, self._n = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        self._means, self._r_hat, self._due = np.full(shape, np.nan), np.nan, 0.0

    def add(self, stats: Array) -> None:
        """Count statistics of draws, (n_chains, n_draws, n_stats)."""
        known = ~np.isnan(stats)
        self._sum += np.where(known, stats, 0.0).sum(axis=1)
        self._n += known.sum(axis=1)

    def columns(self, last: bool = False) -> list[str]:
        """Return the means over all chains since the last call, and the worst R-hat so far."""
        means = self._sum / np.maximum(self._n, 1) + self._constant
        self._means = np.where(self._n > 0, means, self._means)
        self._sum[:], self._n[:] = 0.0, 0
        now = time.perf_counter()
        if last or now >= self._due:
            self._r_hat = self._measured()
            ended = time.perf_counter()
            self._due = ended + _R_HAT_SHARE * (ended - now)
        found = self._texts(self._means)
        return [*found, *([f"R-hat {self._r_hat:.3f}"] if np.isfinite(self._r_hat) else [])]

    def rows(self) -> list[str]:
        """Return a line per chain with the means that `columns` returned last."""
        n = len(self._means)
        found = [f"  chain {c}: {', '.join(self._texts(self._means[[c]]))}" for c in range(n)]
        more = [f"  and {n - _MOST_ROWS} more chains"] if n > _MOST_ROWS else []
        return [*found[:_MOST_ROWS], *more]

    def _texts(self, means: Array) -> list[str]:
        known = [(text, means[~np.isnan(means[:, k]), k]) for text, k in self._places]
        return [text.format(of.mean()) for text, of in known if of.size]


class Progress:
    """The bar of a phase.

    ``verbose`` 0 shows nothing, 2 also the rows of ``columns``. A phase of ``total`` = 0 steps is
    not shown, and without a ``unit`` no counts are.
    """

    def __init__(
        self,
        verbose: int,
        what: str,
        total: float | None = None,
        unit: str = "",
        columns: Columns | None = None,
    ):
        self.what, self._total, self._unit = what, total, unit
        self._columns, self._rows = columns, verbose > 1
        self._shown = bool(verbose) and total != 0 and sys.stderr is not None
        self._compilation = _Compilation(self._compiling)
        self._said_compiling, self._why, self._n_values = False, "", 0

    def __call__(self, n: float = 1) -> None:
        """Count n steps."""
        if self._shown:
            self._bar.n += n
            self.tick()

    def tick(self, n_values: int = 0) -> None:
        """Show the bar if it is time, also from another thread."""
        self._n_values += n_values
        if time.perf_counter() >= self._due and _showing.acquire(blocking=False):
            try:
                self._show()
            finally:
                _showing.release()

    def end(self, why: str) -> None:
        """End before all steps are counted: the line says why, and that there are no more."""
        if self._shown:
            self._bar.total, self._why = self._bar.n, why

    def __enter__(self) -> Self:
        self._began, self._clock = time.perf_counter(), _CLOCK.get()
        self._counted = self._clock.counted() if self._clock is not None else 0.0
        if self._shown:
            self._bar = self._new_bar()
            self._due = self._rows_due = self._began + _FIRST_PAUSE
            if self._moves:
                self._due = self._began
            event.register("numba:compile", self._compilation)
            _SHOWN.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._clock is not None:
            others = self._clock.counted() - self._counted
            self._clock.add(self.what, time.perf_counter() - self._began - others)
        if self._shown:
            event.unregister("numba:compile", self._compilation)
            _SHOWN.remove(self)
            self._show(last=True)
            self._bar.close()
            if self._in_notebook:  # which saves no bar
                sys.stderr.write(f"{self._last_line()}\n")

    def _new_bar(self) -> Any:
        from tqdm.auto import tqdm

        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        self._in_notebook = hasattr(shell, "kernel")
        self._moves = self._in_notebook or sys.stderr.isatty()
        shape = None
        if not self._unit:
            shape = "{l_bar}{bar}| [{elapsed}<{remaining}" if self._total else "{desc}: [{elapsed}"
            shape += "{postfix}]"
        self._shape = shape
        return tqdm(
            desc=self.what,
            total=self._total,
            unit=f" {self._unit}",
            unit_scale=(self._total or 0) >= _MANY,
            bar_format=shape,
            dynamic_ncols=self._moves,
            leave=not self._in_notebook,
            file=sys.stderr if self._moves else _Log(sys.stderr),
            delay=0 if self._moves else math.inf,  # then it writes nothing by itself
        )

    def _show(self, last: bool = False) -> None:
        parts = [] if self._columns is None else self._columns.columns(last)
        if self._compilation.seconds >= _PAUSE:
            parts.append(f"{self._compilation.seconds:.1f} s compiling")
        if self._why:
            parts.append(self._why)
        now = time.perf_counter()
        took = now - self._began
        if self._n_values and took >= _FIRST_PAUSE:
            parts.append(f"{self._n_values} values of the function")
        pause = max(_FIRST_PAUSE, min(took, max(_LATER_PAUSE, _SHARE * took)))
        if self._rows and self._columns is not None and (last or now >= self._rows_due):
            for row in self._columns.rows():
                self._say(row)
            self._rows_due = now + pause
        self._bar.set_postfix_str(", ".join(parts))
        self._due = now + (_PAUSE if self._moves else pause)

    def _last_line(self) -> str:
        own = {"bar_format": self._shape, "ncols": _COLUMNS}
        return str(self._bar.format_meter(**self._bar.format_dict | own))

    def _say(self, line: str) -> None:
        self._bar.write(line, file=sys.stderr)

    def _compiling(self) -> None:
        if self._moves or not self._said_compiling:
            self._said_compiling = True
            self._bar.set_postfix_str("compiling kernels ...")


class Told(Progress):
    """A phase of rounds; each writes a row of a table."""

    def __init__(self, verbose: int, what: str = "burn-in"):
        super().__init__(verbose, what, unit="rounds")
        self._header = True

    def __call__(self, row: dict[str, Any]) -> None:  # type: ignore[override]
        """Write a row, the first time below the names of the columns."""
        if not self._shown:
            return
        row = row | {"seconds": time.perf_counter() - self._began}
        names = {name: name.replace("_", " ") for name in row}
        width = {name: max(9, len(shown)) for name, shown in names.items()}
        if self._header:
            self._say("  ".join(f"{names[name]:>{width[name]}}" for name in row))
            self._header = False
        kind = {name: ".4g" if isinstance(v, float) else "d" for name, v in row.items()}
        self._say("  ".join(f"{v:{width[name]}{kind[name]}}" for name, v in row.items()))
        super().__call__()


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Note a first Ctrl-C instead of raising it, so that chains finish their segment."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:
        if noted:
            raise KeyboardInterrupt("a second Ctrl-C, before the call could return its results")
        noted.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(noted)
    finally:
        if before is not None:  # None: not set from Python, so it cannot be restored
            signal.signal(signal.SIGINT, before)

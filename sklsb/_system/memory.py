"""Whether a request fits in memory, and how much of it is made at once."""

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
# Memory limit and use of a container, in versions 2 and 1 of cgroups.
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def available() -> int | None:
    """Return the bytes of free memory, or None if it is unknown."""
    found = []
    try:
        lines = _MEMINFO.read_text().splitlines()
        found += [1024 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        pass
    for limit, used in _GROUPS:
        try:
            free = int(Path(limit).read_text()) - int(Path(used).read_text())
            found.append(free + _cached(Path(used).with_name("memory.stat")))
        except (OSError, ValueError):  # no such group, or no limit
            continue
    return max(0, min(found)) if found else None


def _cached(stat: Path) -> int:
    """Return the bytes of cached files of a container, which are freed on demand."""
    try:
        known = dict(line.split() for line in stat.read_text().splitlines())
        return int(known.get("total_inactive_file", known.get("inactive_file", 0)))
    except (OSError, ValueError):
        return 0


def check_fits(n_bytes: int, what: str, ways: str) -> None:
    """Raise a MemoryError before any work if a request does not fit; ``ways`` are alternatives."""
    free = available()
    if free is not None and n_bytes > free:
        raise MemoryError(
            f"{what} takes {n_bytes} bytes ({_shown(n_bytes)}), and {_shown(free)} of memory are "
            f"free. {ways}"
        )


def at_once(most: int, each: int) -> int:
    """Return how many pieces that need ``each`` are made at once within ``most``; at least one."""
    return max(1, most // max(1, each))


def _shown(n: int) -> str:
    return f"{n / 1e9:.3g} GB" if n > 1e8 else f"{n / 1e6:.3g} MB"

"""Write figures for a page of the documentation, with what they were made by.

A page includes the file; the directive ``measured`` says below the table when and how it was made,
and that the benchmark has changed since, if it has.
"""

import datetime
import hashlib
import platform
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def processor():
    """Name of the processor, where the system says it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def code_of(script):
    """Short digest of the code of a benchmark."""
    return hashlib.sha256((HERE / script).read_bytes()).hexdigest()[:12]


def write_table(path, header, rows, arguments, sources=(), below=""):
    """Write a table of strings, a line below it, and the command without the name of the file.

    ``sources`` are the files and folders of the package whose changes make the figures old.
    """
    script = Path(sys.argv[0]).name
    command = shlex.join(["python", f"benchmarks/{script}", *arguments])
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    lines = [
        f".. measured:: {command}",
        f"   :date: {datetime.date.today()}",
        f"   :commit: {commit}",
        f"   :processor: {processor()}",
        f"   :code: {code_of(script)}",
        *([f"   :sources: {' '.join(sources)}"] if sources else []),
        "",
        "   .. list-table::",
        "      :header-rows: 1",
        "",
    ]
    for row in (header, *rows):
        lines += [f"      {'* -' if i == 0 else '  -'} {cell}" for i, cell in enumerate(row)]
    lines += ["", f"   {below}"] if below else []
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")

"""Other Python processes, and copies of the package for them."""

import contextlib
import os
import shutil
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import sklsb


def copy_package(folder):
    """Copy the package to where it can be changed and cached, also if it is read-only."""
    package = folder / "sklsb"
    source = Path(sklsb.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (package, *package.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    return package


def run_python(*arguments, folder=Path(sklsb.__file__).parents[1], env=os.environ):
    """What a process prints that imports the package in a folder, wherever the tests are run."""
    folders = [str(folder), *filter(None, [env.get("PYTHONPATH")])]
    env = {**env, "PYTHONPATH": os.pathsep.join(folders)}
    # No time-out: how long compilation takes depends on the machine.
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def last_of_a_fork():
    """End a fork after some work; its exit code is 1 if that failed."""
    code = 1
    try:
        yield
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def run_forked(work, folder, *arguments):
    """What a fork of this process prints that calls a function, without imports of its own."""
    path = folder / "printed"
    with warnings.catch_warnings():
        # Python 3.12 warns where there are threads. Those of pytest-xdist hold nothing needed here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        with (
            last_of_a_fork(),
            path.open("w", encoding="utf-8") as printed,
            contextlib.redirect_stdout(printed),
        ):
            work(folder, *arguments)
    assert os.waitpid(child, 0)[1] == 0
    return path.read_text(encoding="utf-8")

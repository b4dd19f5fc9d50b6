"""Other Python processes, and copies of the package for them."""

import os
import shutil
import subprocess
import sys
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

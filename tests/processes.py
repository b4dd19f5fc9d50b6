"""Other Python processes."""

import os
import subprocess
import sys
from pathlib import Path

import sklsb


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

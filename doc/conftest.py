"""Pages that offer files for download run in a folder with these files and nothing else."""

import re
import shutil

import pytest


@pytest.fixture(autouse=True)
def downloads(request, tmp_path, monkeypatch):
    """Download the files that a page offers, and go where they are."""
    for offered in re.findall(r":download:`[^`<]*<([^>]+)>`", request.path.read_text("utf-8")):
        shutil.copy(request.path.parent / offered, tmp_path)
        monkeypatch.chdir(tmp_path)

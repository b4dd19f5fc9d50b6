"""Figures of the pages come from files, which say what made them and whether that still holds."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOC = ROOT / "doc"
FILES = sorted([*DOC.glob("measured/*.inc"), *DOC.glob("*.inc")])
# Tables of numbers that nothing measured.
NO_FIGURES = {"command_line": "exit codes", "index": "the landing page", "targets": "values"}

pytestmark = pytest.mark.skipif(not FILES, reason="this distribution has no pages")


def tables(text):
    """Blocks of lines that are tables, by any of the three ways to write one."""
    listed = r"^( *)\.\. (?:list-|csv-)?table::.*\n(?:\1 +.*\n| *\n)+"
    drawn = r"^ *(?:=+(?: +=+)+|\+[-+=]+\+)\n(?:.+\n)+"
    return [found[0] for found in re.finditer(f"{listed}|{drawn}", text + "\n", re.MULTILINE)]


def figures(table):
    """Cells that begin with a number."""
    return re.findall(r"(?:^ *(?:(?:\* )?- )?|  )[<~-]?\.?\d\S*", table, re.MULTILINE)


def test_tables_are_found():
    page = "a\n\n=  =\n1  2\n=  =\n\n.. list-table:: b\n\n   * - 1\n     - .5\n\n+-+\n|1|\n+-+\n"
    assert [len(figures(one)) for one in tables(page)] == [2, 2, 0]


def test_tables_of_figures_come_from_files():
    held = {}
    for page in sorted(DOC.glob("*.rst")):
        found = [one for one in tables(page.read_text("utf-8")) if len(figures(one)) > 2]
        if found and page.stem not in NO_FIGURES:
            held[page.stem] = len(found)
    assert held == {}


# Times, sizes and rates in the text that are limits or settings.
SETTINGS = {
    "blocks": ["20 milliseconds"],
    "draws": ["240 MB"],
    "exact_measured": ["150 seconds"],
    "install": ["1 GB"],
    "long_runs": ["8 MB"],
    "mixed": ["20 times as"],
    "tempering_measured": ["60 seconds", "10 seconds"],
    "told": ["60 CPU seconds"],
}


def prose(text):
    """A page without its blocks of code and its directives."""
    block = r"^( *)(?:\.\. [\w-]+::|>>> ).*\n(?:(?:\1 +|\1\.\.\.).*\n|(?<!>>> ) *\n(?=\1 ))*"
    return re.sub(block, "", text, flags=re.MULTILINE)


def measured_in(text):
    """Times, sizes and rates in numbers."""
    text = " ".join(text.split())
    unit = r"(?:n|µ|m)?s|(?:\w+ )?(?:\w*seconds?|minutes?|hours?)|MB|GB"
    rate = (
        r"times (?:as|faster|slower|smaller|larger|better|worse)|(?:million )?\w+ (?:per|a) second"
    )
    return re.findall(rf"(?<![\w.`=])\d[\d.,]* (?:{unit}|{rate})(?!\w)", text)


def test_figures_in_prose_are_found():
    page = (
        "It took 1.5 s, then 2,000 CPU\nseconds.\n\n.. code-block:: text\n\n   in 3 s\n\n"
        "It is 4 times as fast:\n\n>>> 5\n... 6 s\n\nOf 7 runs, 8 million draws per second."
    )
    assert measured_in(prose(page)) == [
        "1.5 s",
        "2,000 CPU seconds",
        "4 times as",
        "8 million draws per second",
    ]


def test_figures_in_prose_come_from_files():
    found = {}
    for page in sorted(DOC.glob("*.rst")):
        held = measured_in(prose(page.read_text("utf-8")))
        if held and not page.stem.startswith(("decisions", "changes", "contributing")):
            found[page.stem] = held
    assert found == SETTINGS


def other_styles(text):
    """Numbers written as .5, 5 % or 5x5, where pages have 0.5, 5% and 5 x 5."""
    return re.findall(r"(?<![\w.{}])(?:\.\d+|\d+ %|\d+x\d+(?!\w))", text)


def test_numbers_have_one_style():
    assert other_styles("0.5, 5% of 5 x 5; 1.2.3 ``grid4x4``") == []
    assert other_styles(".5 or ± .5, 5 % of 5x5") == [".5", ".5", "5 %", "5x5"]
    pages = [ROOT / "README.md", *DOC.glob("*.rst"), *FILES]
    found = {page.name: other_styles(prose(page.read_text("utf-8"))) for page in pages}
    assert {name: held for name, held in found.items() if held} == {}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_say_what_made_them(file):
    text = file.read_text("utf-8")
    pages = [
        p.stem
        for p in DOC.glob("*.rst")
        if f".. include:: {file.relative_to(DOC)}\n" in p.read_text("utf-8")
    ]
    assert len(pages) == 1
    made = dict(re.findall(r"^   :(\w+): (.+)$", text, re.MULTILINE))
    command = text.partition("\n")[0].split()[2:]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", made["date"])
    assert re.fullmatch(r"[0-9a-f]{7,}", made["commit"])
    if command[1:2] == ["-m"]:
        assert command[2] == "benchmarks.paper"
    else:
        assert not command or (command[0] == "python" and (ROOT / command[1]).exists())
        assert bool(command) == ("code" in made)
    for source in made.get("sources", "").split():
        assert (ROOT / source).exists(), source
    assert tables(re.sub(r"^   ", "", text, flags=re.MULTILINE))


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git")
def test_commits_of_figures_are_in_the_history():
    """One that a rebase has left behind would never be marked."""

    def git(*given):
        return subprocess.run(["git", *given], cwd=ROOT, capture_output=True, text=True)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("a part of the history only")
    commits = {made for file in FILES for made in re.findall(r":commit: (\w+)", file.read_text())}
    assert len(commits) > 10
    assert [c for c in commits if git("merge-base", "--is-ancestor", c, "HEAD").returncode] == []


@pytest.fixture
def measured():
    pytest.importorskip("docutils")
    spec = importlib.util.spec_from_file_location("measured", DOC / "_ext" / "measured.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_changes_since_are_marked(measured, tmp_path, monkeypatch):
    from docutils.core import publish_doctree
    from docutils.parsers.rst import directives

    def git(*given):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", *who, *given], cwd=tmp_path, capture_output=True, check=True)
        return done.stdout.decode().strip()

    monkeypatch.setattr(measured, "ROOT", tmp_path)
    directives.register_directive("measured", measured.Measured)
    for name in ("bench.py", "code.py", "other.py"):
        (tmp_path / name).write_text("1\n")

    def built():
        text = (
            ".. measured:: python bench.py --fast\n   :date: 2026-01-02\n"
            f"   :commit: {commit}\n   :code: {digest}\n   :sources: code.py\n\n   A table.\n"
        )
        return publish_doctree(text).astext()

    commit, digest = "0123abcd", "4355a46b19d3"  # of the file "1\n"
    assert "changed since" not in built(), "no history, no mark"
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a")
    commit = git("rev-parse", "--short", "HEAD")
    said = built()
    assert "A table." in said
    assert f"measured 2026-01-02 on commit {commit}." in said

    def then(name, text, *given):
        (tmp_path / name).write_text(text)
        git("commit", "-qam", "b", *given)
        return built()

    assert "changed since" not in then("other.py", "2\n")
    assert "changed since" not in then("bench.py", '"""A benchmark."""\n\n1  # the same code\n')
    assert "changed since" not in then("code.py", '"""What it does."""\n\n(1)\n')
    assert "; the code has changed since." in then("code.py", "2\n")
    assert "; the benchmark and the code have changed since." in then("bench.py", "2\n")
    commit = "0123abcd"
    assert "; the benchmark has changed since." in built(), "a commit that is not there"
    commit, digest = git("rev-parse", "--short", "HEAD"), "53c234e5e847"  # of the file "2\n"
    assert "changed since" not in built()
    (tmp_path / "code.py").rename(tmp_path / "moved.py")
    git("add", ".")
    assert "; the code has changed since." in then("other.py", "3\n")

"""Marginals and log10 Z of a folder of UAI problems by the command line, against published ones.

Each problem is a command with default settings, in a process of its own that is ended after the
seconds allowed. They count from its start, imports included. Only what it writes is looked at:

    python -m sklsb marginals NAME.uai --evidence NAME.uai.evid --out FILE --pr FILE --seed 0

The published results of NAME.uai with the evidence NAME.uai.evid, if there is such a file, are
NAME.uai.MAR and NAME.uai.PR, or NAME.MAR and NAME.PR. NAME.KIND.MAR and NAME.KIND.PR are those with
the evidence NAME.KIND.evid, or without evidence if there is no such file.

An answer is right if it is exact and agrees with what is published to the last printed digit (of
marginals: 0.6 units of the last of the significant digits that the file has, counted after the
point; of log10 Z: 0.6 units of its last digit), or if it is by chains and the mean error of all
marginals is at most 0.005. The log10 Z of chains is shown, but not judged. A wrong answer is
"warned" if the exit code was 3 or there was a warning, and so is an error; otherwise it is wrong
without a word. With --no-log-z chains are those of LSBSampler, not of ParallelTempering.

A few published results do not belong to the files beside them. FOREIGN lists them; they are not
used, but where log10 Z is known otherwise, an exact answer is compared with it.

    python benchmarks/competition.py FOLDER [--seconds 150] [--json FILE] [--jobs 1] [--no-log-z]

--jobs is the number of problems that run at a time. The kernels are compiled first. Prints a table
in reStructuredText, and the sums.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numba
import numpy as np

from sklsb import io

# Published results of the competition of 2014 that are those of other files: why this is known, and
# log10 Z where it is known otherwise.
FOREIGN = {
    "relational_2": ("as for relational_3", None),
    "relational_3": ("two independent eliminations agree; the file says 758.326", "376.716566"),
    "relational_5": ("as for relational_3", None),
    "linkage_15": (
        "elimination in slices gives it, and marginals that are those of long chains to .0034 in "
        "the mean; the file says -76.6058",
        "-73.87291",
    ),
}
VERDICTS = ("right", "warned", "wrong without a word", "out of time", "no reference")
# Largest mean error of the marginals of chains, and rounding of published numbers in units of the
# last digit.
MEAN_ERROR, ROUNDING = 0.005, 0.6
# Numbers with more digits than these are not expected to agree.
FINEST = 1e-12
WARM = "MARKOV\n3\n2 3 2\n2\n2 0 1\n2 1 2\n\n6\n1 2 3 4 5 6\n\n6\n1 2 2 1 1 1\n"


@dataclass(frozen=True)
class Problem:
    """A network with evidence, and the files that hold its published results."""

    label: str
    model: Path
    evidence: Path | None = None
    mar: Path | None = None
    log10_z: str | None = None
    foreign: str | None = None


@dataclass
class Row:
    """How a command answered a problem."""

    problem: str
    how: str = "-"
    seconds: float = float("nan")
    warned: bool = False
    mean_error: float | None = None
    largest_error: float | None = None
    log10_z: float | None = None
    log10_z_error: float | None = None
    said: str = ""
    verdict: str = ""


def problems(folder):
    """Yield each network of a folder with each of its evidences."""
    for model in sorted(folder.glob("*.uai")):
        kinds = {}
        for path in sorted(folder.iterdir()):
            if path.name.startswith(f"{model.stem}.") and path.suffix in (".MAR", ".PR"):
                kind = path.stem.removeprefix(model.stem).removeprefix(".")
                kinds.setdefault("" if kind == "uai" else kind, {})[path.suffix] = path
        plain = folder / f"{model.name}.evid"
        if plain.exists() or not kinds:
            kinds.setdefault("", {})
        for kind, found in sorted(kinds.items()):
            evidence = folder / f"{model.stem}.{kind}.evid" if kind else plain
            yield _problem(model, kind, evidence if evidence.exists() else None, found)


def _problem(model, kind, evidence, found):
    label = f"{model.stem}.{kind}" if kind else model.stem
    if model.stem in FOREIGN:
        why, log10_z = FOREIGN[model.stem]
        return Problem(label, model, evidence, log10_z=log10_z, foreign=why)
    log10_z = found[".PR"].read_text().split()[-1] if ".PR" in found else None
    return Problem(label, model, evidence, found.get(".MAR"), log10_z)


def command(*words, seconds=None):
    """Run a command of the command line; None if it is out of time."""
    try:
        return subprocess.run(
            [sys.executable, "-m", "sklsb", *map(str, words)],
            capture_output=True,
            encoding="utf-8",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return None


def compile_all(log_z):
    """Fill the cache of kernels by a small network, with and without evidence, in each way."""
    with tempfile.TemporaryDirectory() as name:
        model, evidence = Path(name, "warm.uai"), Path(name, "warm.evid")
        model.write_text(WARM)
        evidence.write_text("1 1 2")
        for method in ("exact", "sample"):
            for more in ([], ["--evidence", evidence]):
                words = ["--method", method, "--draws", 64, "--out", Path(name, "warm.MAR")]
                words += ["--pr", Path(name, "warm.PR")] if log_z else []
                done = command("marginals", model, *words, *more)
                if done.returncode not in (0, 3):
                    raise SystemExit(done.stderr)


def answer(problem, seconds, log_z):
    """Run the command of a problem, and compare what it wrote."""
    with tempfile.TemporaryDirectory() as name:
        mar, pr = Path(name, "answer.MAR"), Path(name, "answer.PR")
        words = ["marginals", problem.model, "--out", mar, "--seed", 0]
        words += ["--pr", pr] if log_z else []
        words += ["--evidence", problem.evidence] if problem.evidence else []
        began = time.perf_counter()
        done = command(*words, seconds=seconds)
        row = Row(problem.label, seconds=time.perf_counter() - began)
        if done is None:
            row.verdict = "out of time"
            return row
        row.warned = done.returncode == 3 or "sklsb: warning: " in done.stderr
        row.said = done.stderr.strip()
        if done.returncode in (0, 3):
            row.how = "exact" if done.stdout.splitlines()[0].endswith(", exact") else "chains"
            compare(row, problem, mar, pr)
        else:
            row.how, row.warned = "error", "sklsb: error: " in done.stderr
        row.verdict = verdict(row, problem)
        return row


def compare(row, problem, mar, pr):
    """Note the errors of the files that a command has written."""
    if problem.mar is not None:
        found, published = io.read_result(mar), io.read_result(problem.mar)
        if [p.size for p in found] == [q.size for q in published]:
            errors = np.abs(np.concatenate(found) - np.concatenate(published))
            row.mean_error, row.largest_error = float(errors.mean()), float(errors.max())
        else:
            row.mean_error = row.largest_error = float("inf")
    if pr.exists():
        row.log10_z = io.read_result(pr)
        if problem.log10_z is not None:
            row.log10_z_error = abs(row.log10_z - float(problem.log10_z))


def verdict(row, problem):
    """Return one of VERDICTS for a command that ended."""
    if row.how == "error":
        right = False
    elif row.how == "chains":
        right = None if row.mean_error is None else row.mean_error <= MEAN_ERROR
    else:
        right = _agrees(row, problem)
    if right is None:
        return "no reference"
    return "right" if right else "warned" if row.warned else "wrong without a word"


def _agrees(row, problem):
    """Whether an exact answer agrees to the last printed digit; None without a reference."""
    found = []
    if row.largest_error is not None:
        digits = max(map(_significant, problem.mar.read_text().split()[1:]))
        found.append(row.largest_error <= max(ROUNDING * 10.0**-digits, FINEST))
    if row.log10_z_error is not None:
        size = max(1.0, abs(row.log10_z))
        unit = _last_digit(problem.log10_z)
        found.append(row.log10_z_error <= max(ROUNDING * unit, FINEST * size))
    return all(found) if found else None


def _significant(word):
    """Number of significant digits of a probability; 0 for a whole number, such as a size."""
    mantissa, point, decimals = word.lower().partition("e")[0].partition(".")
    return len((mantissa + decimals).lstrip("0")) if point else 0


def _last_digit(word):
    """Unit of the last digit of a number."""
    mantissa, _, exponent = word.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


COLUMNS = {
    "problem": 28,
    "how": 6,
    "mean error": 10,
    "largest": 9,
    "log10 Z": 14,
    "its error": 9,
    "seconds": 7,
    "warned": 6,
    "verdict": 20,
}


def _line(words):
    return "  ".join(f"{word:{n}}" for word, n in zip(words, COLUMNS.values(), strict=True))


def _cells(row):
    def shown(value, kind=".1e"):
        return "-" if value is None else f"{value:{kind}}"

    errors = shown(row.mean_error), shown(row.largest_error)
    log10_z = shown(row.log10_z, ".6f"), shown(row.log10_z_error)
    warned = "yes" if row.warned else "no"
    return row.problem, row.how, *errors, *log10_z, f"{row.seconds:.1f}", warned, row.verdict


def run(options):
    """Print a line for each problem; return the rows."""
    asked = list(problems(options.folder))
    if not asked:
        raise SystemExit(f"{options.folder} holds no file *.uai")
    rule = _line("=" * n for n in COLUMNS.values())
    print(rule, _line(COLUMNS), rule, sep="\n", flush=True)
    rows = []
    with ThreadPoolExecutor(options.jobs) as pool:
        one = partial(answer, seconds=options.seconds, log_z=options.log_z)
        for row in pool.map(one, asked):
            print(_line(_cells(row)).rstrip(), flush=True)
            rows.append(row)
    print(f"{rule}\n")
    _sum(rows, asked)
    return rows


def _sum(rows, asked):
    count = Counter(row.verdict for row in rows)
    by = Counter(row.how for row in rows if row.verdict == "right")
    parts = ", ".join(f"{count[name]} {name}" for name in VERDICTS)
    print(f"{len(rows)} problems: {parts}")
    print(f"right: {by['exact']} exact, {by['chains']} by chains")
    for problem in asked:
        if problem.foreign:
            known = f"log10 Z is {problem.log10_z}; " if problem.log10_z else ""
            print(f"{problem.label}: published results not used, as they are those of another file")
            print(f"    ({known}{problem.foreign})")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=150.0, help="limit for each problem")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="problems that run at a time")
    parser.add_argument(
        "--no-log-z", dest="log_z", action="store_false", help="ask for marginals only"
    )
    options = parser.parse_args(arguments)
    if not numba.config.DISABLE_JIT:
        compile_all(options.log_z)
    rows = run(options)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()

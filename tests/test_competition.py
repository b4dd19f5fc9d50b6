"""The benchmark that compares the command line with published results of a competition."""

import io
import json
import math
import subprocess
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sklsb
from sklsb import MarkovNetwork, exact
from sklsb import __main__ as command_line

ROOT = Path(__file__).parents[1]
GOOD, WRONG, ALONE, OTHER = "right_1", "wrong_1", "alone_1", "linkage_15"


@pytest.fixture
def competition(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(sklsb.__file__).parents[1]))
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    spec = spec_from_file_location("competition", ROOT / "benchmarks" / "competition.py")
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    monkeypatch.setattr(made, "compile_all", lambda log_z: None)
    return made


def brute_force(network):
    """Marginals and log10 Z by summing over all states."""
    x, weights = exact.states(network), np.exp(network.log_prob(exact.states(network)))
    p = [
        np.bincount(x[:, i], weights, k) / weights.sum()
        for i, k in enumerate(network.cardinalities)
    ]
    return p, math.log10(weights.sum())


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in (GOOD, WRONG, ALONE, OTHER):
        scopes = [(0, 1), (1, 2), (2, 3), (0, 3)]
        tables = [(scope, rng.random((2, 2)) + 0.1) for scope in scopes]
        path = tmp_path / f"{name}.uai"
        MarkovNetwork([2, 2, 2, 2], tables).to_uai(path)
        if name == ALONE:
            continue
        (tmp_path / f"{name}.uai.evid").write_text("1 2 1")
        p, log10_z = brute_force(MarkovNetwork.from_uai(path, tmp_path / f"{name}.uai.evid"))
        if name == WRONG:
            p[0] = p[0] + [0.001, -0.001]
        words = [f"{len(q)} {' '.join(f'{v:.6g}' for v in q)}" for q in p]
        (tmp_path / f"{name}.uai.MAR").write_text(f"MAR\n{len(p)} {' '.join(words)}\n")
        (tmp_path / f"{name}.uai.PR").write_text(f"PR\n{log10_z:.6g}\n")
    return tmp_path


def in_this_process(*words, seconds=None):
    """What a process of its own would say and return."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = command_line.main([*map(str, words)])
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def test_problems_are_counted(competition, folder, capsys, monkeypatch):
    by_itself = competition.command

    def command(*words, seconds=None):
        run = by_itself if GOOD in str(words[1]) else in_this_process
        return run(*words, seconds=seconds)

    monkeypatch.setattr(competition, "command", command)
    # What is said here is that of one command at a time.
    one_by_one = nullcontext(SimpleNamespace(map=map))
    monkeypatch.setattr(competition, "ThreadPoolExecutor", lambda n: one_by_one)
    competition.main([str(folder), "--json", str(folder / "rows.json")])
    said = capsys.readouterr().out
    rows = {row["problem"]: row for row in json.loads((folder / "rows.json").read_text())}
    verdicts = {name: row["verdict"] for name, row in rows.items()}
    assert verdicts == {
        GOOD: "right",
        WRONG: "wrong without a word",
        ALONE: "no reference",
        # Its published log10 Z is not the one beside it here, and it is compared with that.
        OTHER: "wrong without a word",
    }
    assert {row["how"] for row in rows.values()} == {"exact"}
    assert rows[GOOD]["largest_error"] < 1e-6
    assert rows[GOOD]["log10_z_error"] < 1e-5
    assert rows[WRONG]["largest_error"] == pytest.approx(0.001, abs=1e-6)
    assert rows[OTHER]["log10_z_error"] == pytest.approx(73.87291, abs=5.0)
    assert rows[OTHER]["mean_error"] is None
    assert "4 problems: 1 right, 0 warned, 2 wrong without a word, 0 out of time, 1 no" in said
    assert "linkage_15: published results not used" in said
    assert "log10 Z is -73.87291" in said


def test_a_command_ends_when_its_time_is_over(competition, folder, capsys):
    competition.main([str(folder), "--seconds", "0.01", "--jobs", "2"])
    assert (
        "0 right, 0 warned, 0 wrong without a word, 4 out of time, 0 no" in capsys.readouterr().out
    )


def test_evidence_of_references(competition, tmp_path):
    for name in ("a.uai", "b.uai", "b.uai.evid", "b.MAR", "c.uai", "c.seen.evid"):
        (tmp_path / name).write_text("")
    for name in ("c.seen.PR", "c.none.PR", "relational_2.uai", "relational_2.uai.PR"):
        (tmp_path / name).write_text("PR\n1.25\n")
    found = {p.label: p for p in competition.problems(tmp_path)}
    assert sorted(found) == ["a", "b", "c.none", "c.seen", "relational_2"]
    assert {name: p.evidence and p.evidence.name for name, p in found.items()} == {
        "a": None,
        "b": "b.uai.evid",
        "c.none": None,
        "c.seen": "c.seen.evid",
        "relational_2": None,
    }
    assert found["b"].mar == tmp_path / "b.MAR"
    assert found["c.seen"].log10_z == "1.25"
    assert found["relational_2"].log10_z is None


@pytest.mark.parametrize(
    ("how", "mean", "largest", "log10_z_error", "warned", "expected"),
    [
        ("exact", 1e-7, 5e-7, 5e-5, False, "right"),
        ("exact", 1e-7, 7e-7, 5e-5, False, "wrong without a word"),
        ("exact", 1e-7, 5e-7, 7e-5, False, "wrong without a word"),
        ("exact", 1e-7, 7e-7, 5e-5, True, "warned"),
        ("exact", None, None, 5e-5, False, "right"),
        ("exact", None, None, None, False, "no reference"),
        ("chains", 0.005, 0.1, 9.0, False, "right"),
        ("chains", 0.0051, 0.1, 0.0, False, "wrong without a word"),
        ("chains", 0.0051, 0.1, 0.0, True, "warned"),
        ("chains", None, None, 0.0, True, "no reference"),
        ("error", None, None, None, True, "warned"),
        ("error", None, None, None, False, "wrong without a word"),
    ],
)
def test_verdicts(competition, tmp_path, how, mean, largest, log10_z_error, warned, expected):
    mar = tmp_path / "six.MAR"
    mar.write_text("MAR\n2 2 0.25 0.75 2 0.00955355 0.990446")
    problem = competition.Problem("six", tmp_path / "six.uai", mar=mar, log10_z="-73.8729")
    row = competition.Row("six", how, 1.0, warned, mean, largest, -73.8729, log10_z_error)
    assert competition.verdict(row, problem) == expected

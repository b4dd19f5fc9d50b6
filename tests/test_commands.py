"""The command line: what it writes, says and returns."""

import csv
import gzip
import pathlib
import pkgutil
import re
import runpy
import shlex
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from processes import run_python

import sklsb
from sklsb import AutoSampler, Ising, LSBSampler, MarkovNetwork, exact, exceptions, io, open_draws
from sklsb import __main__ as command_line
from sklsb.__main__ import main
from sklsb.io import _formats

pytest.importorskip("zarr")

PAIR = "MARKOV\n3\n2 3 2\n2\n2 0 1\n2 1 2\n\n6\n1 2 3 4 5 6\n\n6\n1 2 2 1 1 1\n"
RAIN = """network rain { }
variable rain { type discrete [ 2 ] { no, yes }; }
variable wet { type discrete [ 2 ] { no, yes }; }
probability ( rain ) { table 0.8, 0.2; }
probability ( wet | rain ) { (no) 0.9, 0.1; (yes) 0.2, 0.8; }
"""
EQUAL = """variable c { type discrete [2] { n, "d=y" }; }
variable c=d=e { type discrete [2] { n, y }; }
variable c=d { type discrete [2] { n, "e=y" }; }
probability (c) { table .5 .5; }
probability (c=d) { table .5 .5; }
probability (c=d=e) { table .25 .75; }
"""
CUT = "4 4\n1 2 1\n2 3 2\n3 4 1\n1 4 3\n"
QUBO = "3 3\n1 1 -3\n1 2 2\n3 3 1\n"
CHAINS = ["--chains", "2", "--seed", "1"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("pair.uai", PAIR),
        ("pair.evid", "1 1 2"),
        ("rain.bif", RAIN),
        ("square.mc", CUT),
        ("G1.txt", CUT),
        ("three.sparse", QUBO),
        ("equal.bif", EQUAL),
    ):
        (tmp_path / name).write_text(text)
    return tmp_path


def run(capsys, *words):
    """Exit code, what was said, and what was told on the error stream."""
    code = main(list(words))
    found = capsys.readouterr()
    return code, found.out, found.err


def test_help_and_wrong_arguments(capsys):
    text = run_python("-W", "error", "-m", "sklsb", "--help")
    for word in ("sample", "marginals", "map", "info", "Exit codes", "--resume"):
        assert word in text
    for words in ([], ["guess"], ["info"], ["sample", "m.uai", "--draws", "0"]):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 2
    assert "'0' is not a positive integer" in capsys.readouterr().err


def test_version_and_console_command(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"sklsb {sklsb.__version__}\n"
    root = pathlib.Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    assert pkgutil.resolve_name(project["scripts"]["sklsb"]) is main


def test_files_that_cannot_be_opened_are_told_in_words(files, capsys):
    code, out, err = run(capsys, "info", "none.uai")
    assert (code, out, err) == (1, "", "sklsb: error: there is no file none.uai\n")
    (files / "folder.uai").mkdir()
    code, out, err = run(capsys, "info", "folder.uai")
    assert (code, err) == (1, "sklsb: error: folder.uai: is a directory\n")


def test_documented_commands_are_commands():
    root = pathlib.Path(__file__).parents[1]
    texts = [(root / page).read_text("utf-8") for page in ("README.md", "doc/command_line.rst")]
    found = re.findall(
        r"^(?: *\S*python -m | +)sklsb (.+)$", "\n".join([*texts, command_line._EPILOG]), re.M
    )
    commands = [command_line._parser().parse_args(shlex.split(words)) for words in found]
    assert {args.command for args in commands} == {"info", "marginals", "map", "sample"}


def test_the_first_question_of_the_documentation(files, capsys):
    model = str(pathlib.Path(__file__).parents[1] / "examples" / "car.bif")
    words = ["marginals", model, "--observe", "starts=no", "--csv", "car.csv"]
    assert run(capsys, *words)[0] == 0
    battery, fuel, _, _ = io.read_result("car.bif.MAR")
    fails = 0.95 * np.array([0.02, 0.4, 0.98]) + 0.05  # given the battery
    joint = np.array([0.85, 0.1, 0.05]) * fails
    np.testing.assert_allclose(battery, joint / joint.sum(), rtol=1e-12)
    np.testing.assert_allclose(fuel[1], 0.05 / joint.sum(), rtol=1e-12)


def test_info(files, capsys):
    code, out, err = run(capsys, "info", "pair.uai", "--evidence", "pair.evid")
    assert (code, err) == (0, "")
    assert "variables: 3 of 2 to 3 values, 1 observed" in out
    assert out.count(", fits") == 3
    assert "2**" not in out
    cost = exact.elimination_cost(MarkovNetwork.from_uai("pair.uai", "pair.evid"))
    assert f": {round(2**cost.log2_work)} table entries, " in out
    code, out, _ = run(capsys, "info", "square.mc")
    assert "pairs that depend on each other: 4" in out


def test_exact_marginals_and_partition_function(files, capsys):
    words = ["marginals", "pair.uai", "--evidence", "pair.evid", "--pr", "pair.PR"]
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert "pair.uai.MAR: marginals of 3 variables, exact" in out
    target = MarkovNetwork.from_uai("pair.uai", "pair.evid")
    found = io.read_result("pair.uai.MAR")
    assert [p.size for p in found] == [2, 3, 2]
    wanted = exact.marginals(target)["p"].to_numpy()
    np.testing.assert_allclose(found[0], wanted[0, :2], rtol=1e-12)
    np.testing.assert_allclose(io.read_result("pair.PR"), exact.log_partition(target) / np.log(10))


def test_the_most_probable_state_with_names(files, capsys):
    model = str(pathlib.Path(__file__).parents[1] / "examples" / "car.bif")
    code, out, _ = run(capsys, "map", model, "--csv", "best.csv")
    assert code == 0
    assert "best.csv: the same with names" in out
    network = MarkovNetwork.from_bif(model)
    best = exact.most_likely(network)["x"].to_numpy()
    names = [network.state_names[i][k] for i, k in enumerate(best)]
    rows = pathlib.Path("best.csv").read_text().splitlines()
    assert rows[0] == "variable,value"
    assert rows[1:] == [f"{network.label(i)},{name}" for i, name in enumerate(names)]


def test_sampled_marginals(files, capsys):
    words = ["marginals", "pair.uai", "--method", "sample", "--out", "mine", *CHAINS]
    code, out, _ = run(capsys, *words, "--sampler", "elimination", "--draws", "4000")
    assert code == 0
    assert "mine: marginals of 3 variables, largest standard error 0.00" in out
    wanted = exact.marginals(MarkovNetwork.from_uai("pair.uai"))["p"].to_numpy()
    found = io.read_result("mine")
    np.testing.assert_allclose(found[1], wanted[1], atol=0.03)


def test_the_partition_function_is_exact_where_only_marginals_are_too_much(
    files, capsys, monkeypatch
):
    def only_log_z(_, task, *__):
        return task == "log_partition"

    monkeypatch.setattr("sklsb.exact.elimination.answers.is_affordable", only_log_z)
    words = ["marginals", "pair.uai", "--pr", "pair.PR", "--draws", "400", *CHAINS]
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "largest standard error" in out
    log_z = exact.log_partition(MarkovNetwork.from_uai("pair.uai"))
    np.testing.assert_allclose(io.read_result("pair.PR"), log_z / np.log(10), rtol=1e-12)


@pytest.mark.parametrize(("word", "n"), [("8e3", 8e3), ("2**13", 2**13), ("8k", 8e3), ("2MB", 2e6)])
def test_limits_of_memory(word, n):
    args = command_line._parser().parse_args(["info", "pair.uai", "--max-memory", word])
    assert args.max_memory == n


def test_exact_answers_keep_a_limit_of_memory(files, capsys):
    for word in ("0", "8X", "2**2000", "-1", "nan", "8 G", "1e999", "."):
        with pytest.raises(SystemExit):
            main(["info", "pair.uai", f"--max-memory={word}"])
        assert f"{word!r} is no number of bytes, such as 8e9, 2**33" in capsys.readouterr().err
    little = ["--max-memory", "16"]
    assert run(capsys, "info", "pair.uai", *little)[1].count("too much\n") == 3
    told = "Give max_memory=2**"
    for words in (["marginals"], ["map"]):
        code, _, err = run(capsys, *words, "pair.uai", "--method", "exact", *little)
        assert (code, told in err) == (1, True)
    code, _, err = run(capsys, "sample", "pair.uai", "--sampler", "elimination", *little)
    assert (code, told in err) == (1, True)
    assert "exact" in run(capsys, "marginals", "pair.uai", "--max-memory", "1M")[1]
    assert "standard error" in run(capsys, "marginals", "pair.uai", *little, *CHAINS)[1]


def test_names_of_a_bayesian_network(files, capsys):
    (files / "rain.bif.gz").write_bytes(gzip.compress(RAIN.encode()))
    code, _, err = run(capsys, "marginals", "rain.bif.gz", "--observe", "wet=yes", "--out", "m")
    assert (code, err) == (0, "")
    np.testing.assert_allclose(io.read_result("m"), [[0.08 / 0.24, 0.16 / 0.24], [0.0, 1.0]])
    words = ["rain.bif", "--observe", "wet=yes", "--out", "m", "--csv", "m.csv"]
    chains = ["--sampler", "elimination", *CHAINS]
    for method in ("exact", "sample"):
        assert run(capsys, "marginals", *words, "--method", method, *chains)[0] == 0
        rows = list(csv.DictReader((files / "m.csv").read_text().splitlines()))
        assert [f"{row['variable']}={row['value']}" for row in rows[2:]] == ["wet=no", "wet=yes"]
        assert float(rows[1]["p"]) == pytest.approx(0.16 / 0.24, abs=0.05)
        assert (float(rows[1]["mcse"]) > 0) == (method == "sample")
    code, _, err = run(capsys, "map", "rain.bif", "--observe", "wet=1", "--out", "m")
    assert code == 1
    assert "evidence['wet'] is '1'; this variable takes one of 2 values" in err
    # 1 is the value called 1, the first of the two, also for the variable called 0.
    (files / "numbers.bif").write_text(
        RAIN.replace("yes", "0").replace("no", "1").replace("wet", "0").replace("rain", "1")
    )
    for word in ("0=0", "0=1"):
        assert run(capsys, "marginals", "numbers.bif", "--observe", word, "--csv", "n.csv")[0] == 0
        rows = list(csv.DictReader((files / "n.csv").read_text().splitlines()))
        seen = {f"{row['variable']}={row['value']}": float(row["p"]) for row in rows}
        assert seen[word] == 1.0
    code, _, err = run(capsys, "map", "rain.bif", "--observe", "wet=yes", "--out", "m")
    assert (code, io.read_result("m").tolist()) == (0, [1, 1])


def test_signs_of_equality_in_names(files, capsys):
    for word, site, value in (("c=d=y", 0, 1), ("c=n", 0, 0), ("c=d=n", 2, 0)):
        words = ["marginals", "equal.bif", "--observe", word, "--out", "m"]
        assert run(capsys, *words)[::2] == (0, ""), word
        assert io.read_result("m")[site][value] == 1.0, word


def test_a_dash_is_no_file(files, capsys):
    for command in ("map", "marginals"):
        with pytest.raises(SystemExit) as left:
            main([command, "rain.bif", "--out", "-"])
        assert left.value.code == 2
        assert "argument --out: '-' would be a file of that name; " in capsys.readouterr().err
    assert not (files / "-").exists()


def test_tables_on_the_standard_output(files, capsys):
    code, said, told = run(capsys, "marginals", "rain.bif", "--out", "m", "--csv", "-")
    rows = [*csv.reader(said.splitlines())]
    assert (code, rows[0][:2]) == (0, ["variable", "value"])
    assert "m: marginals of 2 variables" in told
    said = run(capsys, "map", "rain.bif", "--out", "m", "--csv", "-")[1]
    assert [*csv.reader(said.splitlines())] == [
        ["variable", "value"],
        ["rain", "no"],
        ["wet", "no"],
    ]
    words = ["sample", "rain.bif", "--draws", "50", "--csv", "-", *CHAINS]
    words += ["--sampler", "elimination"]
    said = run(capsys, *words, "--observe", "wet=yes")[1]
    rows = [*csv.reader(said.splitlines())]
    assert len(rows) == 101
    wet = rows[0].index("wet")
    assert {row[wet] for row in rows[1:]} == {"yes"}


def test_a_reader_that_has_seen_enough_is_no_error(files):
    word = f"{sys.executable} -m sklsb marginals rain.bif --out m --csv - | true"
    done = subprocess.run(["bash", "-c", f"{word}; echo ${{PIPESTATUS[0]}}"], capture_output=True)
    assert (done.stdout, b"Broken" in done.stderr) == (b"0\n", False)


def test_likelihoods_as_evidence(files, capsys):
    words = ["marginals", "rain.bif", "--out", "m"]
    assert run(capsys, *words, "--observe", "wet=yes:0.9,no:0.1")[0] == 0
    network = MarkovNetwork.from_bif("rain.bif")
    p = exact.prepare(network).marginals({"wet": {"yes": 0.9, "no": 0.1}})
    np.testing.assert_allclose(io.read_result("m")[0], p["rain"], rtol=1e-6)
    code, _, told = run(capsys, *words, "--observe", "wet=yes:0.9")
    assert (code, "likelihoods of 1 of 2 values" in told) == (1, True)
    code, _, told = run(capsys, *words, "--observe", "wet=yes:0.9,no:1,yes:0.2")
    assert (code, "gives the value 'yes' twice; keep one" in told) == (1, True)
    code, _, told = run(capsys, *words, "--observe", "wet=yess:0.9,no:1")
    assert (code, "did you mean 'yes'?" in told) == (1, True)
    (files / "colon.bif").write_text(
        RAIN.replace("{ no, yes }; }\nprob", '{ no, "yes:1" }; }\nprob')
    )
    code, _, told = run(capsys, "info", "colon.bif", "--observe", "wet=yes:1")
    assert (code, told) == (0, "")


def test_large_values_have_all_their_digits(files, capsys):
    (files / "large.mc").write_text("2 1\n1 2 120459272856\n")
    assert "cut = 120459272856\n" in run(capsys, "map", "large.mc")[1]
    assert "cut = 120459272856\n" in run(capsys, "map", "large.mc", "--beta", "0.7")[1]
    (files / "large.sparse").write_text("2 2\n1 1 -9007199254740991\n2 2 0.25\n")
    assert "x'Qx = -9007199254740991\n" in run(capsys, "map", "large.sparse")[1]
    (files / "some.uai").write_text("MARKOV 1 2 1 1 0 2 0.1 0.2")
    out = run(capsys, "marginals", "some.uai", "--pr", "PR")[1]
    assert f"log10 Z = {np.log10(0.3):.15g}\n" in out
    told = f"log p = {np.log(0.2):.15g} (natural logarithm, not divided by Z)\n"
    assert told in run(capsys, "map", "some.uai")[1]


@pytest.mark.parametrize("method", ["exact", "anneal"])
def test_most_probable_states(files, capsys, method):
    settings = ["--method", method, "--seconds", "0.05", *CHAINS]
    code, out, _ = run(capsys, "map", "square.mc", *settings)
    assert (code, "cut = 7" in out) == (0, True)
    x = io.read_result("square.mc.MPE")
    assert (x[[0, 1]] == x[[2, 3]]).all()
    code, out, _ = run(capsys, "map", "three.sparse", "--beta", "2", *settings)
    assert (code, "x'Qx = -3" in out) == (0, True)
    assert io.read_result("three.sparse.MPE")[[0, 2]].tolist() == [1, 0]
    _, nothing, _ = run(capsys, "map", "three.sparse", "--observe", "0=-1", *settings)
    assert "x'Qx = 0\n" in nothing
    assert "the most probable state" in out


def test_annealing_that_proves_nothing(files, capsys, monkeypatch):
    monkeypatch.setattr("sklsb.samplers.annealing._maximum", lambda *given: None)
    settings = ["--method", "anneal", "--seconds", "0.05", *CHAINS]
    code, out, _ = run(capsys, "map", "square.mc", *settings)
    assert code == 0
    assert "the best state found, not proven to be the most probable one, cut = 7" in out


def test_the_machine_finds_out_which_sampler():
    for command in ("sample", "marginals"):
        args = command_line._parser().parse_args([command, "pair.uai"])
        assert type(command_line._sampler(args)) is AutoSampler
        args = command_line._parser().parse_args([command, "pair.uai", "--sampler", "lsb"])
        assert type(command_line._sampler(args)) is LSBSampler


def test_sample_and_resume(files, capsys):
    words = ["sample", "pair.uai", "--sampler", "elimination", *CHAINS]
    code, out, err = run(capsys, *words, "--draws", "100", "--out", "whole")
    assert (code, err) == (0, "")
    assert "whole: 100 draws of 2 chains, thin=1" in out
    assert run(capsys, *words, "--draws", "30", "--resume")[0] == 0  # there was nothing yet
    code, _, err = run(capsys, *words, "--draws", "100")
    assert (code, "pair.uai.zarr exists; give --resume" in err) == (1, True)
    for _ in range(2):  # the second time there is nothing to do
        assert run(capsys, *words, "--draws", "100", "--resume")[0] == 0
    whole, parts = open_draws("whole"), open_draws("pair.uai.zarr")
    np.testing.assert_array_equal(parts["x"], whole["x"])
    code, _, err = run(capsys, *words, "--evidence", "pair.evid", "--resume")
    assert (code, "is of another target" in err) == (1, True)
    other = ["--thin", "7", "--chains", "9", "--seed", "5", "--sampler", "gibbs"]
    code, _, err = run(capsys, *words, *other, "--draws", "200", "--resume")
    assert code == 1
    for word in ("--thin (there: 1)", "--chains (there: 2)", "--sampler (there: Elimination"):
        assert word in err
    assert open_draws("pair.uai.zarr").sizes["draw"] == 100


def test_where_no_result_can_be_written_nothing_is_done(files, capsys, monkeypatch):
    monkeypatch.setattr(command_line, "_sampler", None)
    for words in (
        ["marginals", "pair.uai", "--method", "sample", "--out", "no/x.MAR"],
        ["marginals", "pair.uai", "--method", "sample", "--pr", "no/x.PR"],
        ["marginals", "pair.uai", "--method", "sample", "--thin", "often"],
        ["sample", "pair.uai", "--thin", "0"],
        ["map", "pair.uai", "--out", "no/x.MPE"],
    ):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 2
        err = capsys.readouterr().err
        assert "there is no folder no" in err or "argument --thin: '" in err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["info", "nothing.uai"], "there is no file nothing.uai"),
        (
            ["info", "G1.txt"],
            "Known are bif (.bif), bqpjson (.bqpjson), cnf (.cnf), col",
        ),
        (["info", "G1.txt", "--format", "uai"], "G1.txt"),
        (
            ["info", "G1.txt", "--format", "mps"],
            "the format is 'mps'; known are bif (.bif), bq",
        ),
        (["info", "square.mc", "--evidence", "pair.evid"], "was observed as --observe NAME=VALUE"),
        (
            ["info", "pair.uai", "--beta", "2"],
            "beta is for files of the formats ['bqpjson', 'cut', 'qh', 'qubo']; pair.uai",
        ),
        (["info", "pair.uai", "--observe", "1"], "--observe is '1'; give NAME=VALUE"),
        (["info", "pair.uai", "--observe", "7=1"], "evidence names the variable 7"),
        (
            ["info", "rain.bif", "--observe", "wet=yes", "--observe", "wet=no"],
            "--observe names variable 'wet' twice, as 'wet=yes' and 'wet=no'; give it once.",
        ),
        (
            ["marginals", "rain.bif", "--observe", "rain=no", "--observe", "rain=no"],
            "--observe names variable 'rain' twice, as 'rain=no' and 'rain=no'; give it once.",
        ),
        (
            ["info", "rain.bif", "--observe", "wet=yes", "--observe", "1=no"],
            "--observe names variable 'wet' twice, as 'wet=yes' and '1=no'; give it once.",
        ),
        (
            ["marginals", "pair.uai", "--evidence", "pair.evid", "--observe", "1=0"],
            "evidence sets variable 1 to 0; it was observed as 2 before. Keep one of the two.",
        ),
        (
            ["info", "rain.bif", "--observe", "wet=yes,rain=no"],
            "Give an --observe to each variable.",
        ),
        (["info", "equal.bif", "--observe", "c=d=e=y"], "which may mean each of the variables"),
        (["info", "equal.bif", "--observe", "x=y=z"], "evidence names the variable 'x'"),
        (["sample", "pair.uai", "--thin", f"{2**64}", *CHAINS], f"thin is {2**64}; it must be at"),
        (["sample", "pair.uai", "--draws", f"{2**64}", *CHAINS], f"n is {2**64}; it must be at"),
        (["sample", "pair.uai", "--chains", f"{2**64}"], f"n_chains is {2**64}; it must be at"),
        (["map", "pair.uai", "--chains", f"{2**64}", "--method", "anneal"], f"n_chains is {2**64}"),
    ],
)
def test_errors(files, capsys, words, text):
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "")
    assert err.startswith("sklsb: error: ")
    assert text in err
    assert len(err.splitlines()) == 1


def test_a_script_with_a_format_of_its_own(files, capsys, monkeypatch):
    script = files / "fields.py"
    script.write_text(
        "import pathlib, sys\n"
        "from sklsb import Ising\n"
        "from sklsb.__main__ import main\n"
        "from sklsb.io import register\n"
        "@register('fields', '.fields', options=('beta',), score=('energy', -1.0))\n"
        "def read(path, beta):\n"
        "    field = [beta * float(word) for word in pathlib.Path(path).read_text().split()]\n"
        "    return Ising([[0.0] * len(field)] * len(field), field)\n"
        "sys.exit(main())\n"
    )
    (files / "two.FIELDS").write_text("0.5 -1.25")
    model, best = str(files / "two.FIELDS"), str(files / "best")
    monkeypatch.setattr(sys, "argv", [str(script), "map", model, "--beta", "2", "--out", best])
    monkeypatch.setattr(_formats, "_FORMATS", dict(_formats._FORMATS))  # forgotten afterwards
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(script), run_name="__main__")
    assert left.value.code == 0
    assert capsys.readouterr().out == f"{best}: the most probable state, energy = -1.75\n"
    assert io.read_result("best").tolist() == [1, 0]


def test_doubts_and_interrupts_have_exit_codes(files, capsys, monkeypatch):
    def doubting(warning):
        def command(args):
            import warnings

            warnings.warn(warning, stacklevel=2)
            return 0

        return command

    harmless = {"FrozenSitesWarning", "ModelWarning", "StoreWarning", "UncachedKernelsWarning"}
    kinds = [getattr(exceptions, name) for name in exceptions.__all__]
    kinds = [kind for kind in kinds if issubclass(kind, UserWarning)]
    assert len(kinds) > 12
    codes = {kind("Told"): 0 if kind.__name__ in harmless else 3 for kind in kinds}
    codes |= {UserWarning("Told"): 0}
    for warning, code in codes.items():
        code = 130 if isinstance(warning, exceptions.InterruptedWarning) else code
        monkeypatch.setattr(command_line, "_info", doubting(warning))
        found, _, err = run(capsys, "info", "pair.uai")
        assert (found, err.startswith("sklsb: warning: ")) == (code, True)
        assert run(capsys, "info", "pair.uai", "--quiet") == (code, "", "")


def test_log_z_of_the_named_sampler_or_an_error(files, capsys, monkeypatch):
    words = ["marginals", "pair.uai", "--method", "sample", "--pr", "out.PR", *CHAINS]
    wanted = float(exact.log_partition(MarkovNetwork.from_uai("pair.uai"))) / np.log(10)
    code, out, _ = run(capsys, *words, "--sampler", "elimination")  # affordable, so exact
    assert (code, "+-" in out) == (0, False)
    assert io.read_result("out.PR") == pytest.approx(wanted, abs=1e-9)
    monkeypatch.setattr("sklsb.exact.elimination.answers.is_affordable", lambda *_: False)
    code, _, err = run(capsys, *words, "--sampler", "elimination")
    assert (code, "--sampler elimination does not estimate it" in err) == (1, True)
    code, out, _ = run(capsys, *words, "--quiet")
    told = re.search(r"log10 Z = (\S+) \+- (\S+), estimated by tempering", out)
    assert abs(float(told[1]) - wanted) < 5 * float(told[2]) + 1e-6
    assert code in (0, 3)


def test_a_table_that_cannot_be_written_is_told_before_any_work(files, capsys):
    for command in ("map", "marginals"):
        with pytest.raises(SystemExit) as left:
            main([command, "square.mc", "--csv", "nowhere/x.csv"])
        assert left.value.code == 2
        assert "there is no folder nowhere" in capsys.readouterr().err


def test_a_model_without_variables(files, capsys):
    (files / "none.uai").write_text("MARKOV\n0\n\n0\n")
    code, out, _ = run(capsys, "info", "none.uai")
    assert (code, "variables: 0 of 0 values" in out) == (0, True)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_keeps_the_draws(files, capsys, monkeypatch):
    from sklsb.samplers._run.stored import StoredDraws

    after = StoredDraws.after

    def interrupted(self, carry):
        after(self, carry)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(StoredDraws, "after", interrupted)
    words = ["sample", "pair.uai", "--sampler", "elimination", *CHAINS, "--draws", "100000"]
    code, out, err = run(capsys, *words)
    assert (code, "Interrupted: returning" in err) == (130, True)
    stored = open_draws("pair.uai.zarr").sizes["draw"]
    assert f"pair.uai.zarr: {stored} draws" in out
    monkeypatch.setattr(StoredDraws, "after", after)
    assert run(capsys, *words[:-1], f"{stored + 5}", "--resume")[0] == 0
    assert open_draws("pair.uai.zarr").sizes["draw"] == stored + 5


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_elsewhere(files, capsys, monkeypatch):
    def interrupted(*args, **settings):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(exact, "marginals", interrupted)
    assert run(capsys, "marginals", "pair.uai") == (130, "", "sklsb: interrupted\n")


def test_the_model_is_that_of_the_package(files):
    target = command_line._model(
        command_line._parser().parse_args(["info", "square.mc", "--beta", "2"])
    )
    wanted = Ising.from_maxcut(io.read_maxcut("square.mc"), 2.0)
    np.testing.assert_array_equal(target.couplings.toarray(), wanted.couplings.toarray())

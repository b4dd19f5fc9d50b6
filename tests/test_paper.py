"""The experiments of the paper: each runs at a tiny size, and the page shows what they write."""

import importlib
import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from sklsb import LSBSampler, MarkovNetwork, Max, Mixture, exact
from sklsb._kernels.rules.balanced import Balanced
from sklsb.balancing.functions import Tabulated
from sklsb.balancing.learning import Adam
from sklsb.ensembles.streams import Streams
from sklsb.exact.matrices import transitions
from sklsb.samplers._lsb.fitting import Learning
from sklsb.testing import check_balancing
from sklsb.testing._objectives import _numeric_gradient

ROOT = Path(__file__).parents[1]
RUN = {"burn_in": 20, "settle": 20}
SIZES = {
    "ising": {"seeds": 2, "n": 6, "cases": [3], "chains": 2, "draws": 600} | RUN,
    "uai": {"seeds": 2, "chains": 2, "draws": 500, "names": ["BN_1"]} | RUN,
    "rbm": {"seeds": 2, "chains": 3, "burn_in": 101, "lag": 20, "sweeps": 3, "n_truth": 30},
    "monotonic": {"seeds": 2, "steps": 150},
    "segmentation": {"seeds": 2, "n": 10, "sweeps": 5, "draws": 50},
    "near": {"seeds": 2, "chains": 4, "draws": 4000, "names": ["BN_1"]},
}


@pytest.fixture
def paper(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT)
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    return importlib.import_module("benchmarks.paper.__main__")


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    scopes = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    tables = [(scope, rng.random((2, 2)) + 0.1) for scope in scopes]
    (tmp_path / "uai").mkdir()
    MarkovNetwork([2] * 6, tables).to_uai(tmp_path / "uai" / "BN_1.uai")
    images = rng.integers(0, 256, (200, 98), dtype=np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=images[:150], x_test=images[150:])
    return tmp_path


def rows_of(text):
    """The cells of each row of the list tables."""
    rows = []
    for begins, cell in re.findall(r"^ +(\* )?-( .*)?$", text, re.MULTILINE):
        if begins:
            rows.append([])
        rows[-1].append(cell.strip())
    return rows


def check_widths(text):
    """All rows of a table have as many cells as its head."""
    for table in text.split(".. list-table::")[1:]:
        assert len({len(row) for row in rows_of(table)}) == 1


def made(paper, name, data, tmp_path):
    """What an experiment of a tiny size writes: its results, and the rows of its tables."""
    if name == "rbm":
        pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paper.make(name, SIZES[name], data, tmp_path)
        paper.show(name, tmp_path, tmp_path)
    assert (tmp_path / f"{name}.png").stat().st_size > 1000
    result = json.loads((tmp_path / f"{name}.json").read_text())
    assert {"date", "commit", "seconds", "size", "rows"} <= set(result)
    text = (tmp_path / f"paper_{name}.inc").read_text(encoding="utf-8")
    check_widths(text)
    return result, rows_of(text)


def test_ising(paper, data, tmp_path, monkeypatch):
    for name in ("LSB 1, exact", "learned"):
        monkeypatch.delitem(paper.ising.FUNCTIONS, name)
    monkeypatch.delitem(paper.ising.TOOLS, "``LSBSampler()``")
    result, rows = made(paper, "ising", data, tmp_path)
    assert len(result["rows"]) == 2 * len(paper.ising.FUNCTIONS)
    assert all(0 < row["acceptance"] <= 1 and row["ess"] > 0 for row in result["rows"])
    barker = [row["ess"] for row in result["rows"] if row["name"] == "barker"]
    mean, error = np.mean(barker), np.abs(np.diff(barker))[0] / 2
    assert rows[1][:3] == ["3: barker", "2.39 ± 0.18", f"{mean:.2f} ± {error:.2f}"]
    far = (mean - 2.39) / np.hypot(error, 0.98 / np.sqrt(30))
    assert rows[1][3] == f"{far:+.1f}"


def test_two_networks(paper, data, tmp_path):
    result, rows = made(paper, "uai", data, tmp_path)
    assert [row[0] for row in rows[1:]] == [f"BN_1: {name}" for name in paper.uai.RUNS]
    assert all(abs(decay[0] - 1) < 1e-9 for decay in result["decays"].values())


# Balls on a machine compile a kernel that no other test has.
@pytest.mark.parametrize("balls", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_machine(paper, data, tmp_path, monkeypatch, balls):
    without = ("HB-10-2", "HB-10-3") if balls else ("HB-10-1", "HB-10-2", "HB-10-3")
    for name in ("FLSB 1", "FLSB 2", "Gibbs-4", "Gibbs-10", *without):
        monkeypatch.delitem(paper.rbm.SAMPLERS, name)
    result, rows = made(paper, "rbm", data, tmp_path)
    cost = {row["name"]: row["evaluations"] for row in result["rows"]}
    assert cost["GWG"] == pytest.approx(1)
    assert cost["Gibbs-2"] == pytest.approx(3)  # four joint states, less the present one
    # A ball of 11 states, less the present one, and the way to its centre.
    assert not balls or cost["HB-10-1"] == pytest.approx(10 + 10 / 11, abs=0.15)
    assert [row[1] for row in rows[1:]] == ["", "4", *(["20"] if balls else []), ""]


def test_monotonic_network_comes_closer_and_stays_balancing(paper, data, tmp_path):
    result, _ = made(paper, "monotonic", data, tmp_path)
    u = np.array(result["u"])
    for row in result["rows"]:
        assert row["after"] < 0.3 * row["before"]
        log_g = np.array(row["log_g"])
        np.testing.assert_allclose(log_g - log_g[::-1], u, atol=1e-9)  # g(t) = t g(1/t)


# ----------------------------------------------------------------- the first version of the paper


@pytest.fixture
def first_version(paper):
    return importlib.import_module("benchmarks.paper.first_version")


def moved(network, shift=0.0):
    """The network away from its start, with biases shifted."""
    theta = network.theta + 0.1 * np.random.default_rng(1).standard_normal(network.theta.size)
    theta[400:] += shift
    return network.with_theta(theta)


def literal_f(theta, t):
    """Minimum over 20 groups of the maximum over 20 lines with slopes softplus(a)."""
    a, b = theta[:400], theta[400:]
    groups = []
    for first in range(0, 400, 20):
        lines = [np.log1p(np.exp(a[k])) * t + b[k] for k in range(first, first + 20)]
        groups.append(max(lines))
    m = min(groups)
    return float(m if m >= 0.1 else 0.1 * np.exp(m / 0.1 - 1.0))


@pytest.mark.parametrize("form", ["sum", "min"])
def test_monotonic_network_is_its_formula_in_plain_t(first_version, form):
    network = first_version.MonotonicNetwork(form)
    u = np.linspace(-50, 50, 2001)
    assert np.abs(network.log_g(u) - Max().log_g(u)).max() < 0.01
    network = moved(network)
    for u in np.linspace(-12, 12, 25):
        t = np.exp(u)
        one, other = literal_f(network.theta, t), t * literal_f(network.theta, 1 / t)
        wanted = min(one, other) if form == "min" else (one + other) / 2
        assert np.exp(network.log_g(u)) == pytest.approx(wanted, rel=1e-11)
    check_balancing(network)


@pytest.mark.parametrize("shift", [0.0, -0.5, -3.0])
def test_penalty_is_the_decrease_of_t_f_of_1_over_t(first_version, shift):
    """Mean of max(0, -d/dt [t f(1/t)]) on midpoints of (0, 2), by differences."""
    network, step = moved(first_version.MonotonicNetwork(), shift), 1e-6
    value, gradient = network.penalty()
    wanted = 0.0
    for t in (np.arange(64) + 0.5) / 32:
        low, high = (s * literal_f(network.theta, 1 / s) for s in (t - step, t + step))
        wanted += max(0.0, (low - high) / (2 * step)) / 64
    assert value == pytest.approx(wanted, rel=1e-5, abs=1e-9)
    for k in np.concatenate([np.flatnonzero(gradient)[:25], [0, 400]]):
        away = step * (np.arange(800) == k)
        ends = [network.with_theta(network.theta + s * away).penalty()[0] for s in (-1, 1)]
        assert gradient[k] == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-4, abs=1e-8)


def small_network():
    rng = np.random.default_rng(0)
    tables = [((0, 1), rng.random((2, 3)) + 0.1), ((1, 2), rng.random((3, 2)) + 0.1)]
    return MarkovNetwork([2, 3, 2], tables)


def test_objective_is_the_sum_over_the_next_states(first_version):
    target, table = small_network(), Mixture([0.3, -0.2, 0.5, 0.0]).table()
    x = exact.states(target)
    ratios = target.log_ratios(x)
    log_w = Tabulated(table).log_g(ratios)
    q = np.exp(log_w - np.logaddexp.reduce(log_w, axis=1)[:, None])
    u = np.cumsum(q, axis=1) - 0.5 * q

    def by_definition(table):
        log_t = transitions(Balanced(table), target).log_move
        return (np.exp(log_t) * (log_t - ratios)).sum(axis=1)

    wanted, slopes = by_definition(table), _numeric_gradient(by_definition, table)
    for k, state in enumerate(x):
        found = [first_version.surprise(target, table, state[None], u[k, [m]]) for m in range(4)]
        assert sum(p * value for p, (value, _) in zip(q[k], found, strict=True)) == (
            pytest.approx(wanted[k], rel=1e-10)
        )
        gradient = sum(p * by_knots for p, (_, by_knots) in zip(q[k], found, strict=True))
        np.testing.assert_allclose(gradient, slopes[k], atol=1e-6 * np.abs(slopes).max())


def test_objective_is_added_up_over_the_chains_and_new_draws(first_version):
    network = moved(first_version.MonotonicNetwork(), -0.7)
    target, x, rule = small_network(), exact.states(small_network()), Balanced(network.table())
    streams, same = (Streams([np.random.default_rng(k) for k in range(len(x))]) for _ in range(2))
    chains = Learning(LSBSampler(), target).make_ensemble(x, streams)
    learner = first_version.FirstVersionLearner(network, "kl", Adam(0.0))
    first, extra = np.random.default_rng(0).random((2, len(x), 2))
    rngs = [np.random.default_rng(rng.integers(2**63)) for rng in same.of("scout")]
    for _ in range(2):  # new draws for each update
        value, by_knots, _ = learner.gradient(chains, rule, None, extra, first)
        drawn = np.stack([target.draw_state(rng) for rng in rngs])
        own = first_version.surprise(target, rule.table, x, first[:, 0])
        new = first_version.surprise(target, rule.table, drawn, extra[:, 0])
        assert value == own[0] + new[0]
        np.testing.assert_array_equal(by_knots, own[1] + new[1])
    penalty, by_theta = network.penalty()
    assert penalty > 0
    found = learner.update(value, by_knots, 0.0)
    assert found == pytest.approx(
        (value + penalty, np.linalg.norm(network.vjp(by_knots) + by_theta)), rel=1e-12
    )


def test_picture(paper, data, tmp_path, monkeypatch):
    for name in ("sqrt", "LSB 1", "``LSBSampler()``"):
        monkeypatch.delitem(paper.segmentation.SAMPLERS, name)
    _, rows = made(paper, "segmentation", data, tmp_path)
    assert [row[0] for row in rows[1:]] == list(paper.segmentation.SAMPLERS)


def test_near_deterministic_networks(paper, data, tmp_path):
    result, _ = made(paper, "near", data, tmp_path)
    assert result["elimination"]["BN_1"]["done"]
    assert all(row["error"] < 0.03 and not row["warned"] for row in result["rows"])


@pytest.mark.parametrize(
    ("name", "file"), [("uai", "BN_1.uai"), ("near", "BN_1.uai"), ("rbm", "mnist")]
)
def test_missing_data_is_said(paper, tmp_path, capsys, name, file):
    (tmp_path / "empty").mkdir()
    for more in ([], ["--data", str(tmp_path / "empty")]):
        assert paper.main([name, "--out", str(tmp_path), *more]) == 1
        said = capsys.readouterr().out
        assert file in said
        assert "http" in said


def test_unknown_experiment(paper, capsys):
    with pytest.raises(SystemExit):
        paper.main(["isling"])
    assert "isling" in capsys.readouterr().err


def test_pages_show_the_tables_that_the_command_writes(paper, data, tmp_path):
    names = ("paper.rst", "paper_others.rst")
    page = "".join((ROOT / "doc" / name).read_text(encoding="utf-8") for name in names)
    for name in paper.EXPERIMENTS:
        assert f".. include:: paper_{name}.inc" in page
        kept = (ROOT / "doc" / f"paper_{name}.inc").read_text(encoding="utf-8")
        assert kept.startswith(f".. measured:: python -m benchmarks.paper {name}")
        check_widths(kept)

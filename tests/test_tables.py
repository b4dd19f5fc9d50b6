"""Draws as tables of named values, and `sklsb.draw`: against enumeration and pgmpy."""

import gzip
import os
import pathlib
import re
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sklsb import (
    FunctionTarget,
    Ising,
    LSBSampler,
    MarkovNetwork,
    anneal,
    draw,
    exact,
)
from sklsb.diagnostics import expectation, marginals, to_frame
from sklsb.exceptions import SamplerWarning

BIF = (
    pathlib.Path(
        os.environ.get("SKLSB_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data")
    )
    / "bif"
)
RAIN = """network rain { }
variable rain { type discrete [ 2 ] { no, yes }; }
variable wet { type discrete [ 3 ] { dry, damp, wet }; }
probability ( rain ) { table 0.999, 0.001; }
probability ( wet | rain ) { (no) 0.9, 0.09, 0.01; (yes) 0.0, 0.2, 0.8; }
"""
WORTH = (
    r"R-hat of the variables is at most 1\.\d+; for the slowest one, \d+ draws are worth \d+ "
    r"independent ones\. The rows come from chains and depend on each other: "
)
# p(rain | wet), by Bayes
GIVEN_WET = 0.001 * 0.8 / (0.001 * 0.8 + 0.999 * 0.01)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "rain.bif").write_text(RAIN)
    return tmp_path / "rain.bif"


def cpds():
    """What pgmpy has: names in another order in another table, states that are numbers."""
    parts = [
        SimpleNamespace(
            variables=["level", "sky"],
            cardinality=[2, 2],
            values=np.array([[0.9, 0.3], [0.1, 0.7]]),
            state_names={"level": [1, 2], "sky": ["sun", "rain"]},
        ),
        SimpleNamespace(
            variables=["sky"],
            cardinality=[2],
            values=np.array([0.4, 0.6]),
            state_names={"sky": ["rain", "sun"]},
        ),
    ]
    return SimpleNamespace(get_cpds=lambda: parts)


# ----------------------------------------------------------------- draw


@pytest.mark.parametrize("kind", ["path", "word", "target"])
def test_exact_draws_given_rare_evidence(path, kind):
    model = {"path": path, "word": str(path), "target": MarkovNetwork.from_bif(path)}[kind]
    table = draw(model, 20_000, {"wet": "wet"}, random_state=0)
    assert table.attrs["independent"]
    assert list(table.columns) == ["rain", "wet"]
    assert (table["wet"] == "wet").all()
    assert list(table["wet"].cat.categories) == ["dry", "damp", "wet"]
    found = (table["rain"] == "yes").mean()
    assert abs(found - GIVEN_WET) < 5 * np.sqrt(GIVEN_WET / 20_000)
    again = draw(model, 20_000, {"wet": "wet"}, random_state=0)
    pd.testing.assert_frame_equal(table, again)


def test_without_evidence_and_without_names():
    table = draw(MarkovNetwork([2, 3], [((0, 1), [[1, 1, 0], [0, 1, 3]])]), 6000, random_state=1)
    assert list(table.columns) == [0, 1]
    counts = table.groupby([0, 1]).size() / 6000
    wanted = pd.Series({(0, 0): 1 / 6, (0, 1): 1 / 6, (1, 1): 1 / 6, (1, 2): 1 / 2})
    assert (counts.index == wanted.index).all()
    assert (abs(counts - wanted) < 5 * np.sqrt(wanted / 6000)).all()


def test_a_model_of_pgmpy_with_numbers_as_names():
    # 1 is the state of that name, not the second one.
    table = draw(cpds(), 20_000, {"level": 1}, random_state=0)
    assert (table["level"] == "1").all()
    p = 0.4 * 0.3 / (0.4 * 0.3 + 0.6 * 0.9)
    assert abs((table["sky"] == "rain").mean() - p) < 5 * np.sqrt(p / 20_000)
    with pytest.raises(ValueError, match=r"evidence\['sky'\] is 'snow'; this variable takes one"):
        draw(cpds(), 5, {"sky": "snow"})


def test_variables_of_pgmpy_that_are_numbers_and_words():
    part = SimpleNamespace(
        variables=["a", 0], cardinality=[2, 2], values=np.array([[1, 2], [3, 0]])
    )
    model = SimpleNamespace(get_factors=lambda: [part])
    table = draw(model, 50, {0: 1}, random_state=0)
    assert (table[0] == 1).all()  # the variable called 0, not the first one
    assert (table["a"] == 0).all()


def test_chains_where_elimination_takes_too_much(path, monkeypatch):
    monkeypatch.setattr("sklsb.samplers.tables.is_affordable", lambda *_: False)
    sampler = partial(LSBSampler, "sqrt", n_burn_in=500)  # for speed
    monkeypatch.setattr("sklsb.samplers.tables.AutoSampler", sampler)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        table = draw(path, 3001, {"wet": "damp"}, random_state=0)
    assert not table.attrs["independent"]
    told = [w for w in seen if re.match(WORTH, str(w.message))]
    assert len(told) == 1
    assert "elimination would take 2**" in str(told[0].message)
    assert told[0].category is SamplerWarning
    assert told[0].filename == __file__
    assert len(table) == 3001
    p = 0.001 * 0.2 / (0.001 * 0.2 + 0.999 * 0.09)
    assert abs((table["rain"] == "yes").mean() - p) < 6 * np.sqrt(p / 1000)


def test_a_target_without_factors_says_why_it_has_chains():
    target = FunctionTarget(lambda x: 0.7 * x.sum(-1), 15)
    with pytest.warns(SamplerWarning, match=f"{WORTH}FunctionTarget.*factors") as seen:
        table = draw(target, 4000, random_state=0)
    assert max(len(str(w.message)) for w in seen) < 400
    p = 1 / (1 + np.exp(-0.7))
    np.testing.assert_allclose(table.mean(), p, atol=0.06)


def test_a_function_that_cannot_take_all_states_is_drawn_by_chains():
    def log_prob(x):
        if len(x) > 1000:
            raise MemoryError("Unable to allocate all states")
        return 0.7 * x.sum(-1)

    with pytest.warns(SamplerWarning, match=f"{WORTH}Unable to allocate"):
        table = draw(FunctionTarget(log_prob, 11), 2000, random_state=0)
    assert not table.attrs["independent"]
    np.testing.assert_allclose(table.mean(), 1 / (1 + np.exp(-0.7)), atol=0.08)


def test_what_draw_refuses(path):
    with pytest.raises(TypeError, match=r"model is .*FunctionTarget\(log_prob, n_sites\)"):
        draw(len, 3)
    with pytest.raises(ValueError, match="n is 0; it must be from 1"):
        draw(path, 0)
    with pytest.raises(ValueError, match="evidence names the variable 'rian'; did you mean 'rain'"):
        draw(path, 3, {"rian": "yes"})
    with pytest.raises(ValueError, match=r"no state|probability"):
        draw(path, 3, {"wet": "dry", "rain": "yes"})
    pd.testing.assert_frame_equal(
        draw(path, 3, pd.Series({"wet": "dry"}), random_state=0),
        draw(path, 3, {"wet": "dry"}, random_state=0),
    )
    for evidence in ([("wet", "dry")], [], 0, pd.DataFrame({"wet": ["dry"]})):
        with pytest.raises(TypeError, match=r"(?s)evidence is .*; give a dict"):
            draw(path, 3, evidence)
    with pytest.raises(FileNotFoundError, match=r"none\.xyz"):
        draw("none.xyz", 3)


def test_a_model_without_variables_and_empty_evidence(path):
    assert draw(MarkovNetwork([], []), 3).shape == (3, 0)
    empty = MarkovNetwork([], [])
    assert to_frame(exact.sample(empty, 4), empty).shape == (4, 2)
    assert len(draw(path, 3, {})) == 3


def test_no_row_is_made_up_after_an_interruption(path, monkeypatch):
    monkeypatch.setattr("sklsb.samplers.tables.is_affordable", lambda *_: False)

    class Interrupted(LSBSampler):
        def sample(self, n, **options):
            return super().sample(3, **options)

    sampler = partial(Interrupted, "sqrt", n_burn_in=500)
    monkeypatch.setattr("sklsb.samplers.tables.AutoSampler", sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        table = draw(path, 1000, random_state=0)
    assert len(table) == 12


def test_best_states_have_names(path):
    network = MarkovNetwork.from_bif(path)
    table = to_frame(exact.most_likely(network), network)
    assert table[["rain", "wet"]].values.tolist() == [["no", "dry"]]
    assert len(to_frame(anneal(network, n_sweeps=5, n_chains=3), network)) == 3


@pytest.mark.skipif(not BIF.is_dir(), reason="needs the shared data files")
def test_rare_evidence_in_alarm_against_pgmpy():
    pytest.importorskip("pgmpy", reason="pgmpy is optional")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pgmpy.inference import VariableElimination
        from pgmpy.readwrite import BIFReader

        text = gzip.decompress((BIF / "alarm.bif.gz").read_bytes()).decode()
        model = BIFReader(string=text).get_model()
        evidence = {"HRBP": "HIGH", "CVP": "LOW", "BP": "LOW", "EXPCO2": "HIGH"}
        asked = ["HYPOVOLEMIA", "VENTLUNG", "CATECHOL"]
        inference = VariableElimination(model)
        wanted = {v: inference.query([v], evidence=evidence, show_progress=False) for v in asked}
    table = draw(model, 10_000, evidence, random_state=0)
    for v, factor in wanted.items():
        for state, p in zip(factor.state_names[v], np.ravel(factor.values), strict=True):
            found = (table[v] == state).mean()
            assert abs(found - p) < 5 * np.sqrt(p * (1 - p) / 10_000) + 1e-9


# ----------------------------------------------------------------- to_frame


def test_a_row_for_each_draw(path):
    network = MarkovNetwork.from_bif(path)
    sampler = LSBSampler("sqrt", n_chains=2, n_burn_in=100, blocks=None, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draws = sampler.fit(network).sample(30)
    table = to_frame(draws, network)
    assert list(table.columns) == ["chain", "draw", "rain", "wet"]
    assert len(table) == 60
    for c, d in ((0, 0), (1, 7)):
        row = table[(table["chain"] == c) & (table["draw"] == d)].iloc[0]
        x = draws["x"].sel(chain=c, draw=d).values
        names = [network.state_names[i][k] for i, k in enumerate(x)]
        assert [row["rain"], row["wet"]] == names


def test_a_grid_has_tuples_as_columns():
    target = Ising.lattice(np.full((2, 2), 0.3), 0.2)
    draws = exact.sample(target, 5, random_state=0)
    table = to_frame(draws, target)
    assert list(table.columns) == ["chain", "draw", (0, 0), (0, 1), (1, 0), (1, 1)]
    np.testing.assert_array_equal(table[(1, 0)], draws["x"].values[0, :, 1, 0])


def test_to_frame_refuses_other_draws_and_names():
    target = MarkovNetwork([2], [((0,), [1, 2])], names=["draw"])
    draws = exact.sample(target, 3)
    with pytest.raises(ValueError, match=r"a variable called 'draw'.*Rename the variable"):
        to_frame(draws, target)
    with pytest.raises(ValueError, match="give what sample returned for this target"):
        to_frame(draws, MarkovNetwork([2, 2], []))


# ----------------------------------------------------------------- scopes by name


def test_scopes_by_name():
    factors = [((0,), [0.8, 0.2]), ((1, 0), [[0.9, 0.2], [0.1, 0.8], [1, 2]])]
    by_index = MarkovNetwork([2, 3], factors, names=["rain", "river"])
    by_name = MarkovNetwork(
        [2, 3],
        [("rain", factors[0][1]), (["river", "rain"], factors[1][1])],
        names=["rain", "river"],
    )
    x = [[a, b] for a in range(2) for b in range(3)]
    assert by_name.log_prob(x).tolist() == by_index.log_prob(x).tolist()
    assert [scope for scope, _ in by_name.factors] == [(0,), (1, 0)]
    with pytest.raises(ValueError, match=r"scope of factor 0 names the variable 'rian'.*\['rain'"):
        MarkovNetwork([2, 3], [(["rian"], [1, 2])], names=["rain", "river"])
    with pytest.raises(ValueError, match="scope of factor 0 names the variable 'a'"):
        MarkovNetwork([2, 3], [(["a"], [1, 2])])


# ----------------------------------------------------------------- marginals without a target


@pytest.mark.parametrize("named", [False, True])
def test_marginals_become_rows_without_padding(path, named):
    plain = MarkovNetwork([2, 3, 1], [((0, 1), [[1, 0, 0], [2, 0, 3]])])
    target = MarkovNetwork.from_bif(path) if named else plain
    found = exact.marginals(target)
    table = to_frame(found)
    assert table.equals(to_frame(found, target))
    assert len(table) == target.cardinalities.sum()
    np.testing.assert_allclose(table.groupby("variable")["p"].sum(), 1.0)
    if not named:
        assert table["value"].tolist() == [0, 1, 0, 1, 2, 0]
        assert table["p"].round(3).tolist() == [0.167, 0.833, 0.5, 0, 0.5, 1]


def test_marginals_of_a_grid_and_what_is_none():
    grid = Ising.lattice(np.zeros((2, 2)), 0.2)
    assert to_frame(exact.marginals(grid))["variable"].tolist()[2:4] == [(0, 1), (0, 1)]
    with pytest.raises(TypeError, match=r"'x'\], which are not marginals, and target is missing"):
        to_frame(exact.sample(grid, 3))


@pytest.mark.parametrize("what", [marginals, to_frame, lambda d, t: expectation(d, "sum", t)])
def test_draws_of_another_target_are_told(what):
    network = MarkovNetwork([2, 2], [((0, 1), [[0.45, 0.05], [0.1, 0.4]])])
    draws = exact.sample(network, 100, random_state=0)
    turned = draws.assign(x=draws["x"].transpose("site", ...))
    what(draws, network)
    if what is to_frame:
        what(turned, network)
    for other in (
        network.condition({1: 1}),
        network.condition({1: {0: 0.9, 1: 0.1}}),
        MarkovNetwork([2, 2], [((0, 1), [[0.4, 0.1], [0.1, 0.4]])]),
    ):
        with pytest.warns(SamplerWarning, match=r"draws are not of this target: log p of .* Evid"):
            what(draws, other)
        with pytest.warns(SamplerWarning, match="draws are not of this target"):
            what(draws, other)  # however often
    what(draws.drop_vars("lp"), network.condition({1: 1}))  # nothing to compare

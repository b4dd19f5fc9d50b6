"""Networks made of conditional tables, their names, and soft evidence."""

import itertools
import os
import pathlib
import pickle
import re

import numpy as np
import pandas as pd
import pytest

from sklsb import (
    RBM,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    TorchTarget,
    draw,
    exact,
)
from sklsb.exceptions import ModelWarning

DATA = pathlib.Path(
    os.environ.get("SKLSB_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data")
)
RAIN = {"no": 0.8, "yes": 0.2}
WET = {
    ("no", "off"): {"dry": 1.0, "wet": 0.0},
    ("no", "on"): {"dry": 0.1, "wet": 0.9},
    ("yes", "off"): {"dry": 0.2, "wet": 0.8},
    ("yes", "on"): {"dry": 0.01, "wet": 0.99},
}
LONG = pd.DataFrame(
    [(r, s, g, p) for (r, s), row in WET.items() for g, p in row.items()],
    columns=["rain", "sprinkler", "grass", "p"],
)
WIDE = LONG.pivot_table(index=["rain", "sprinkler"], columns="grass", values="p")
FORMS = {
    "long": LONG,
    "shuffled": LONG.sample(frac=1.0, random_state=0)[["grass", "p", "sprinkler", "rain"]],
    "pivot": WIDE,
    "columns": WIDE.reset_index(),
    "a parent by row": WIDE.reset_index("sprinkler"),
    "a parent by row, long": LONG.set_index("rain"),
    "values by row, long": LONG.set_index("grass"),
    "some by row, long": LONG.set_index(["grass", "sprinkler"]),
    "a parent by column": LONG.pivot_table(
        index="rain", columns=["sprinkler", "grass"], values="p"
    ),
    "turned": WIDE.T,
    "turned, without a name": WIDE.rename_axis(columns=None).T,
    "series": LONG.set_index(["sprinkler", "grass", "rain"])["p"],
    "mapping": WET,
    "lists": {key: list(row.values()) for key, row in WET.items()},
    "array": np.array([list(row.values()) for row in WET.values()]).reshape(2, 2, 2),
}


def network(grass=WET, **options):
    return MarkovNetwork.from_tables(
        {"rain": RAIN, "sprinkler": {"off": 0.7, "on": 0.3}, "grass": grass},
        {"grass": ["rain", "sprinkler"]},
        state_names={"rain": ["no", "yes"], "sprinkler": ["off", "on"], "grass": ["dry", "wet"]},
        **options,
    )


@pytest.mark.parametrize("form", FORMS)
def test_forms(form):
    found = network(FORMS[form])
    for own, other in zip(found.factors, network().factors, strict=True):
        assert own[0] == other[0]
        np.testing.assert_array_equal(own[1], other[1])
    assert found.names == ["rain", "sprinkler", "grass"]
    assert found.state_names[2] == ("dry", "wet")


@pytest.mark.parametrize("form", ["long", "pivot", "columns", "turned", "series"])
def test_frames_name_their_parents(form):
    tables = {"rain": RAIN, "sprinkler": {"off": 0.7, "on": 0.3}, "grass": FORMS[form]}
    found = MarkovNetwork.from_tables(tables)
    p = exact.prepare(found).marginals({"grass": "wet"})["rain", "yes"]
    assert p == pytest.approx(exact.prepare(network()).marginals({"grass": "wet"})["rain", "yes"])


def test_the_order_of_an_axis_that_pandas_chose_is_told():
    ages = pd.Series(["middle"] * 4 + ["young"] * 3 + ["old"])
    smoker = [[0.6, 0.4], [0.9, 0.1], [0.7, 0.3]]
    tables = {"age": ages.value_counts(normalize=True), "smoker": smoker}
    with pytest.warns(ModelWarning, match=r"values of 'age', .* \['middle', 'young', 'old'\], as"):
        MarkovNetwork.from_tables(tables, {"smoker": "age"})
    order = ["young", "middle", "old"]
    listed = MarkovNetwork.from_tables(tables, {"smoker": "age"}, state_names={"age": order})
    ordered = ages.astype(pd.CategoricalDtype(order, ordered=True))
    tables["age"] = ordered.value_counts(normalize=True)
    by_categories = MarkovNetwork.from_tables(tables, {"smoker": "age"})
    for network in (listed, by_categories):
        np.testing.assert_array_equal(network.table("smoker").loc["young"], [0.6, 0.4])
        assert network.table("age")["young"] == 0.375


@pytest.mark.parametrize("how", ["replace", "with_tables"])
def test_lists_in_place_of_what_pandas_sorted_are_told(how):
    cough = pd.Series({("old", "some"): 0.3, ("old", "none"): 0.7, ("new", "none"): 1.0})
    cough = cough.rename_axis(["age", "cough"]).unstack(fill_value=0.0)
    network = MarkovNetwork.from_tables({"age": {"new": 0.5, "old": 0.5}, "cough": cough})
    change = network.replace if how == "replace" else exact.prepare(network).with_tables
    for given in ([[0.8, 0.2], [0.4, 0.6]], {"new": [0.8, 0.2], "old": [0.4, 0.6]}):
        with pytest.warns(ModelWarning, match=r"values of 'cough', .* \['none', 'some'\], as met"):
            change({"cough": given})
    change({"age": [0.2, 0.8], "cough": {"new": {"some": 0, "none": 1}, "old": cough.loc["old"]}})


def test_a_list_of_labelled_tables_is_refused():
    plan = exact.prepare(network())
    with pytest.raises(TypeError, match=r"whose labels it would ignore; give a dict"):
        plan.with_tables([network().table(name) for name in ("rain", "sprinkler", "grass")])


def test_rounded_rows_are_scaled():
    rows = [[0.118, 0.821, 0.06], [0.25, 0.5, 0.25]]
    found = MarkovNetwork.from_tables({"a": [0.5, 0.5], "b": rows}, {"b": "a"}).factors[1][1]
    np.testing.assert_array_equal(found, [np.divide(rows[0], sum(rows[0])), rows[1]])


def test_missing_values_are_told():
    table = pd.DataFrame([("no", "dry", 0.9), ("no", np.nan, 0.1)], columns=["rain", "grass", "p"])
    with pytest.raises(ValueError, match="row rain=no, grass=nan, where a value is missing; drop"):
        MarkovNetwork.from_tables({"rain": RAIN, "grass": table})


def test_parents_without_a_table_are_told():
    rows = [(a, b, 0.5) for a in ("x", "y") for b in ("mild", "severe")]
    table = pd.DataFrame(rows, columns=["Age", "cough", "p"])
    with pytest.raises(ValueError, match=r"'Age' is no variable; did you mean 'age'\?$"):
        MarkovNetwork.from_tables({"age": RAIN, "cough": table})
    with pytest.raises(ValueError, match=r"There is no table for \['Age'\]; a parent needs"):
        MarkovNetwork.from_tables({"fever": RAIN, "cough": table})
    twice = pd.concat([table, table]).rename(columns={"Age": "age"})
    with pytest.raises(ValueError, match=r"row age=x twice for 'mild'\.$"):
        MarkovNetwork.from_tables({"age": RAIN, "cough": twice})


def test_columns_named_like_a_parent_are_its_values():
    counts = pd.DataFrame([[749, 968], [251, 32]], index=["no", "yes"], columns=["no", "yes"])
    tables = {"smoker": {"no": 0.5, "yes": 0.5}, "cough": counts.rename_axis(columns="smoker")}
    found = MarkovNetwork.from_tables(tables, normalize=True).table("cough")
    np.testing.assert_allclose(found.loc["no"], [0.749, 0.251])
    tables["age"] = tables["smoker"]
    tables["cough"] = tables["cough"].rename_axis(index="age")
    with pytest.raises(ValueError, match="columns of the name 'smoker', which is another variable"):
        MarkovNetwork.from_tables(tables, normalize=True)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame({"smoker": ["no", "yes"], "yes": [0.1, 0.7]}),
        {"no": {"yes": 0.1}, "yes": {"yes": 0.7}},
        {"no": 0.1, "yes": 0.7},
        [[0.1], [0.7]],
    ],
    ids=["frame", "dicts", "numbers", "array"],
)
def test_probabilities_of_yes_alone_are_told(given, normalize):
    tables, parents = {"smoker": RAIN, "cough": given}, {"cough": "smoker"}
    with pytest.raises(ValueError, match="cough"):
        MarkovNetwork.from_tables(tables, parents, normalize=normalize)
    if not isinstance(given, dict):
        message = r"row smoker=no of .* 'cough' has 0\.1 for its only value, .* probability 1 - p"
        with pytest.raises(ValueError, match=message):
            MarkovNetwork.from_tables(tables, parents, normalize=normalize)


def test_columns_of_missing_values():
    answers = pd.DataFrame({"smoker": ["no", "no", "yes"], "cough": ["no", None, "yes"]})
    table = answers.groupby(["smoker", "cough"], dropna=False).size().unstack(fill_value=0)
    with pytest.raises(ValueError, match="'cough' has a column for missing values; drop it"):
        MarkovNetwork.from_tables({"smoker": RAIN, "cough": table}, normalize=True)


def test_rows_that_nearly_sum_to_1_are_told():
    for row, total in (({"yes": 0.15, "no": 0.75}, "0.9"), ({"yes": 15.5, "no": 75}, "90.5")):
        with pytest.warns(ModelWarning, match=rf"row a=x .* sums to {total}, .*; correct it if"):
            MarkovNetwork.from_tables(
                {"a": {"x": 3, "y": 1}, "b": {"x": row, "y": {"yes": 1, "no": 8}}},
                {"b": "a"},
                normalize=True,
            )


def test_rows_without_counts():
    tables = {"smoker": RAIN, "cough": {"no": [3, 1], "yes": [0, 0]}}
    with pytest.raises(ValueError, match=r"row smoker=yes .* has nothing but zeros"):
        MarkovNetwork.from_tables(tables, {"cough": "smoker"}, normalize=True)


def test_crosstab():
    data = pd.DataFrame({"a": ["x", "y", "y", "x", "y"], "b": ["u", "u", "v", "u", "v"]})
    tables = {
        "a": data["a"].value_counts(normalize=True),
        "b": pd.crosstab(data["b"], data["a"], normalize="columns"),
    }
    found = exact.prepare(MarkovNetwork.from_tables(tables)).marginals({"b": "u"})
    assert found["a", "x"] == pytest.approx(2 / 3)


def test_tables_come_back():
    found = network()
    for name in found.names:
        table = found.table(name)
        again = network() if name != "grass" else network(table)
        pd.testing.assert_frame_equal(
            pd.DataFrame(again.table(name)), pd.DataFrame(table), check_exact=True
        )
    assert found.table("grass").loc[("yes", "on"), "wet"] == 0.99
    assert found.table("rain")["yes"] == 0.2


def test_frames_that_are_refused():
    for columns, twice in (
        (["rain", "sprinkler", "wet", "wet"], "wet"),
        (["rain", "rain", "a", "b"], "rain"),
    ):
        with pytest.raises(ValueError, match=f"has the column {twice!r} twice"):
            network(WIDE.reset_index().set_axis(columns, axis=1))
    for empty in ([], {}, pd.Series([], dtype=float)):
        with pytest.raises(ValueError, match="the table of 'a' has no entries; give a data frame"):
            MarkovNetwork.from_tables({"a": empty})
    with pytest.raises(ValueError, match=r"has shape \(0, 0\)"):
        MarkovNetwork.from_tables({"a": pd.DataFrame()})
    with pytest.raises(TypeError, match=r"tables is \[0.5, 0.5\]; give a dict"):
        network().replace([0.5, 0.5])


def test_a_series_without_a_name_is_the_root_of_slices():
    start = pd.Series({"n": 0.25, "y": 0.75})
    step = pd.DataFrame([[0.9, 0.1], [0.4, 0.6]], index=["n", "y"], columns=["n", "y"])
    tables = {("rain", 0): start, ("rain", 1): step}
    chain = MarkovNetwork.unroll(tables, 2, parents={("rain", 1): [("rain", 0)]})
    p = exact.prepare(chain).marginals()[("rain", 1), "y"]
    assert p == pytest.approx(0.25 * 0.1 + 0.75 * 0.6)


def test_slices_of_frames():
    """Variables that are pairs are no several names."""
    given = pd.DataFrame([[0.97, 0.03], [0.6, 0.4]], columns=["no", "yes"])
    tables = {("flu", 0): {"no": 0.9, "yes": 0.1}}
    forms = [
        given.set_axis(pd.Index(["no", "yes"], name=("flu", 0), tupleize_cols=False)),
        given.assign(**{"a": ["no", "yes"]}).rename(columns={"a": ("flu", 0)}),
        pd.DataFrame({("flu", 0): ["no", "yes"], "no": [0.97, 0.6], "yes": [0.03, 0.4]}),
    ]
    for form in forms:
        found = MarkovNetwork.unroll({**tables, ("flu", 1): form}, 3)
        np.testing.assert_array_equal(found.table(("flu", 2)), given)
    bare = given.set_axis(["no", "yes"])
    found = MarkovNetwork.unroll({**tables, ("flu", 1): bare}, 3, {("flu", 1): [("flu", 0)]})
    np.testing.assert_array_equal(found.table(("flu", 1)), given)


def test_misspelt_columns_are_named():
    wide = WIDE.rename_axis(columns=None).reset_index().rename(columns={"sprinkler": "sprinkel"})
    long = LONG.rename(columns={"sprinkler": "sprinkel"})
    for frame in (wide, long, wide.set_index(["rain", "sprinkel"]), long.set_index("sprinkel")):
        with pytest.raises(ValueError, match="'sprinkel' is no variable; did you mean 'sprinkler'"):
            network(frame)
    with pytest.raises(ValueError, match="has the entry '0,8' in column 'wet', which is no num"):
        network(WIDE.astype(object).replace({0.8: "0,8"}))


def test_a_parent_without_a_table_is_named():
    rows = pd.MultiIndex.from_product([[0, 10], ["young", "old"]], names=["packs", "age"])
    wide = pd.DataFrame({"none": 0.8, "severe": 0.2}, rows)
    long = wide.rename_axis(columns="cough").stack().rename("prob").reset_index()
    for frame in (wide, wide.reset_index(), long):
        with pytest.raises(ValueError, match=r"There is no table for \['packs'.*; a parent needs"):
            MarkovNetwork.from_tables({"age": {"young": 0.5, "old": 0.5}, "cough": frame})
    tables = {"age": {"young": 0.5, "old": 0.5}, "flu": {"young": [1, 0], "old": [0, 1]}}
    for parents, message in (
        ({"flu": ([1],)}, r"parents\['flu'\] is \(\[1\],\); give a list of names, as"),
        ({"flu": "aeg"}, "'flu' has the parent 'aeg', which has no table; did you mean 'age'"),
        ({"flue": "age"}, "parents names 'flue', which has no table; did you mean 'flu'"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            MarkovNetwork.from_tables(tables, parents)
    with pytest.raises(ValueError, match=r"^the table of 'age' sums to 1\.1 instead of 1"):
        MarkovNetwork.from_tables({"age": {"young": 0.5, "old": 0.6}})


def test_alarm_from_frames():
    path = DATA / "bif" / "alarm.bif.gz"
    if not path.exists():
        pytest.skip(f"no {path}; set SKLSB_DATA")
    alarm = MarkovNetwork.from_bif(path)
    tables = {name: alarm.table(name) for name in alarm.names}
    names = dict(zip(alarm.names, alarm.state_names, strict=True))
    found = MarkovNetwork.from_tables(tables, state_names=names)
    for own, other in zip(found.factors, alarm.factors, strict=True):
        assert own[0] == other[0]
        np.testing.assert_array_equal(own[1], other[1])
    shuffled = {name: table.sample(frac=1.0, random_state=1) for name, table in tables.items()}
    found = MarkovNetwork.from_tables(shuffled, state_names=names)
    np.testing.assert_allclose(
        exact.marginals(found)["p"], exact.marginals(alarm)["p"], rtol=0.0, atol=1e-15
    )


def test_replace_and_with_factors():
    found = network()
    other = found.replace({"rain": {"yes": 0.5, "no": 0.5}})
    assert other.table("rain")["yes"] == 0.5
    assert found.table("rain")["yes"] == 0.2
    turned = WIDE.reorder_levels(["sprinkler", "rain"])
    np.testing.assert_array_equal(found.replace({"grass": turned}).table("grass"), WIDE)
    plan = exact.prepare(found).with_tables({"rain": {"yes": 0.5, "no": 0.5}})
    assert plan.log_partition({"grass": "wet"}) == pytest.approx(
        exact.log_partition(other, {"grass": "wet"}), abs=1e-12
    )
    more = found.with_factors([(["rain", "grass"], [[1.0, 2.0], [3.0, 4.0]])])
    assert more.names == found.names
    assert more.state_names == found.state_names
    assert more.n_factors == 4
    x = [1, 0, 1]
    assert float(more.log_prob(x) - found.log_prob(x)) == pytest.approx(np.log(4.0))
    with pytest.raises(TypeError, match="made of factors, not of conditional tables"):
        more.table("rain")


@pytest.mark.parametrize(
    ("grass", "message"),
    [
        (LONG.replace(0.99, 0.5), r"row rain=yes, sprinkler=on .* sums to 0\.51"),
        (LONG[:-2], "lacks row rain=yes, sprinkler=on"),
        (LONG[:-1], r"lacks the values \['wet'\] of row rain=yes, sprinkler=on"),
        (pd.concat([LONG, LONG[:1]]), "row rain=no, sprinkler=off twice for 'dry'"),
        (LONG.assign(p=-LONG["p"]), r"entry -.* in row rain=no, sprinkler=off"),
        (LONG.replace("wet", "damp"), "value 'damp' of 'grass', whose values are"),
        (LONG.assign(more=1.0), r"needs one column, of probabilities, and has \['p', 'more'\]"),
        (np.ones((2, 2)), r"shape \(2, 2\) and 2 parents"),
        (np.ones((2, 2, 3)) / 3, r"shape \(2, 2, 3\)"),
        ({"no": RAIN}, "the key 'no', and its parents are"),
        ({**WET, ("no", "on"): [0.1]}, r"rows that are lists, such as \[0.1\]"),
        ("oops", "give a data frame"),
    ],
)
def test_refused_tables(grass, message):
    with pytest.raises((ValueError, TypeError), match=message):
        network(grass)


@pytest.mark.parametrize("row", [0, 7, 17])
@pytest.mark.parametrize("form", ["long", "mapping"])
def test_a_misspelt_value_of_the_variable(row, form):
    words = itertools.product(["no", "mild", "high"], ["n", "y"], ["none", "dry", "wet"])
    cough = pd.DataFrame([*words], columns=["flu", "smoker", "cough"]).assign(p=[0.7, 0.2, 0.1] * 6)
    right = cough.loc[row, "cough"]
    wrong = cough.loc[row, "cough"] = right[:-1] + "x"
    where = ", ".join(f"{v}={cough.loc[row, v]}" for v in ("flu", "smoker"))
    message = f"has the value '{wrong}' in row {where}, which lacks ['{right}']; did you mean "
    if form == "mapping":
        rows = cough.groupby(["flu", "smoker"], sort=False)
        cough = {key: dict(zip(own["cough"], own["p"], strict=True)) for key, own in rows}
    flu, smoker = {"no": 0.8, "mild": 0.1, "high": 0.1}, {"n": 0.7, "y": 0.3}
    with pytest.raises(ValueError, match=re.escape(f"{message}'{right}'? give each row")):
        MarkovNetwork.from_tables(
            {"flu": flu, "smoker": smoker, "cough": cough}, parents={"cough": ["flu", "smoker"]}
        )


@pytest.mark.parametrize("other", ["Wet", "wet ", "WET"])
def test_values_that_differ_in_case_only(other):
    tables = {"rain": RAIN, "grass": {"dry": 0.3, "wet": 0.6, other: 0.1}}
    with pytest.raises(ValueError, match=f"values 'wet' and '{other}'; make them one, or give sta"):
        MarkovNetwork.from_tables(tables)
    values = {"grass": ["wet", other, "dry"]}
    network = MarkovNetwork.from_tables(tables, state_names=values)
    assert network.table("grass").to_dict() == tables["grass"]
    assert exact.log_partition(network, {"grass": other}) == pytest.approx(np.log(0.1))


def test_probabilities_by_column_are_not_scaled_by_row():
    counts = pd.DataFrame(
        [[30, 10, 20], [5, 25, 10]],
        pd.Index(["no", "yes"], name="rain"),
        pd.Index(["low", "mid", "high"], name="river"),
    )

    def scaled(table):
        tables = {"rain": RAIN, "river": table}
        return MarkovNetwork.from_tables(tables, normalize=True).table("river").to_numpy()

    expected = counts.to_numpy() / counts.sum(axis=1).to_numpy()[:, None]
    for table in (counts, counts / 100, counts.div(counts.sum(axis=1), axis=0)):
        np.testing.assert_allclose(scaled(table), expected, rtol=1e-14)
    by_column = counts / counts.sum()
    for whole, table in ((1, by_column), (100, 100 * by_column), (100, (100 * by_column).round(1))):
        message = rf"to {whole} in each column, .* probabilities of \['rain'\]\. Give counts, or"
        with pytest.raises(ValueError, match=message):
            scaled(table)
    weights = {"rain": RAIN, "river": np.array([[1, 1, 0], [0, 0, 1]])}  # whole numbers are counts
    found = MarkovNetwork.from_tables(weights, {"river": "rain"}, normalize=True)
    assert found.factors[1][1].tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]


def test_rows_as_lists_without_names():
    rows = {key: list(row.values()) for key, row in WET.items()}
    tables = {"rain": RAIN, "sprinkler": {"off": 0.7, "on": 0.3}, "grass": rows}
    found = MarkovNetwork.from_tables(tables, {"grass": ["rain", "sprinkler"]})
    np.testing.assert_array_equal(found.factors[2][1], network().factors[2][1])
    assert found.state_names[2] == (0, 1)


def test_entries_that_are_no_numbers():
    for table in ({"no": "75%", "yes": "25%"}, {"no": None, "yes": 1.0}):
        with pytest.raises(ValueError, match=r"the table of 'rain' has {'no': .*; give numbers"):
            MarkovNetwork.from_tables({"rain": table})
    with pytest.raises(ValueError, match=r"'b' has \['x', 1\]; give numbers"):
        MarkovNetwork.from_tables({"a": [1.0], "b": {0: ["x", 1]}}, {"b": "a"})


def test_misspelt_values_of_parents_and_beside_state_names():
    with pytest.raises(ValueError, match=r"value 'onn' of 'sprinkler', .*; did you mean 'on'\?"):
        network(LONG.replace("on", "onn"))
    with pytest.raises(ValueError, match=r"value 'wat' of 'grass', .*; did you mean 'wet'\?"):
        network(LONG.replace("wet", "wat"))


@pytest.mark.parametrize("name", [None, "rain", "state", 0])
def test_the_index_of_a_series_without_parents(name):
    series = pd.Series(RAIN).rename_axis(name)
    found = MarkovNetwork.from_tables({"rain": series, "grass": {"dry": 0.4, "wet": 0.6}})
    assert found.table("rain").to_dict() == RAIN
    assert found.names == ["rain", "grass"]
    other = found.replace({"rain": series.rename({"no": "yes", "yes": "no"})}).table("rain")
    assert other.to_dict() == {"no": 0.2, "yes": 0.8}


@pytest.mark.parametrize("name", ["grass", "gras"])
def test_the_index_of_a_series_that_is_another_variable(name):
    series = pd.Series(RAIN).rename_axis(name)
    message = rf"'rain' has the levels \['{name}'\]; name its rows"
    if name == "grass":
        message = r"'rain' has a single number, 0\.8, in a row of its parents, \['grass'\]\. If"
    with pytest.raises(ValueError, match=message):
        MarkovNetwork.from_tables({"rain": series, "grass": {"dry": 0.4, "wet": 0.6}})
    with pytest.raises(ValueError, match=message):
        network().replace({"rain": series})


def test_normalize():
    found = network(LONG.assign(p=LONG["p"] * 7), normalize=True)
    np.testing.assert_allclose(found.factors[2][1], network().factors[2][1], rtol=1e-15)


def counted(**columns):
    table = pd.DataFrame({"rain": ["no", "yes"], **columns})
    return {"rain": RAIN, "grass": table}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"dry": [8, 1], "wet": [2, 9], "n": [10, 10]},
            "'grass' has the column 'n', the sum of the others",
        ),
        (
            {"n": [7, 9], "dry": [0.8, 0.1], "wet": [0.2, 0.9]},
            "'n', without which each row sums to 1",
        ),
        ({"dry": [0.8, 0.1], "wet": [0.2, 0.9], "x": [7.0, 9.0]}, "'x', .* list it in state_names"),
        (
            {"dry": [80, 12.5], "wet": [20, 87.5], "patients": [700, 900]},
            "'patients', without which each row sums to 100; leave it out",
        ),
    ],
)
def test_columns_that_are_no_values(columns, message):
    for normalize in (True, False):
        with pytest.raises(ValueError, match=message):
            MarkovNetwork.from_tables(counted(**columns), normalize=normalize)
    states = {"grass": [*columns]}
    found = MarkovNetwork.from_tables(counted(**columns), state_names=states, normalize=True)
    assert list(found.state_names[1]) == [*columns]


@pytest.mark.parametrize("name", ["n", "Count", "Unnamed: 0"])
def test_columns_called_like_no_values(name):
    given = counted(**{"wet": [3, 4], name: [7, 9]})
    with pytest.warns(
        ModelWarning, match=f"'grass' has the column '{name}', which normalize=True takes for a v"
    ):
        MarkovNetwork.from_tables(given, normalize=True)


P_YES = pd.Series({"no": 0.1, "yes": 0.7}).rename_axis("smoker")


@pytest.mark.parametrize(
    "given",
    [P_YES, P_YES.rename("cough").to_frame(), P_YES.rename("cough").reset_index(), {**P_YES}],
    ids=["series", "frame", "columns", "dict"],
)
def test_one_probability_for_each_row_of_a_parent(given):
    """As groupby(...).mean() gives them."""
    message = r"'cough' has a single number, 0\.1, in a row of its parents, \['smoker'\]\. If it"
    for normalize in (False, True):
        with pytest.raises(ValueError, match=message):
            MarkovNetwork.from_tables(
                {"smoker": RAIN, "cough": given}, {"cough": "smoker"}, normalize=normalize
            )


def test_rows_of_a_parent_that_is_not_named():
    table = {"flu": {"summer": 0.03, "winter": 0.15}}
    with pytest.raises(ValueError, match=r"to 0\.18 .* rows are of a parent, name that in parents"):
        MarkovNetwork.from_tables(table)
    with pytest.warns(ModelWarning, match=r"'flu' sums to 0\.18, which normalize=True scales"):
        MarkovNetwork.from_tables(table, normalize=True)


@pytest.mark.parametrize(
    "given", [{"dry": 0.9, "wet": 0.1}, pd.Series({"dry": 0.9, "wet": 0.1}), [0.9, 0.1]]
)
def test_replace_keeps_the_parents(given):
    with pytest.raises(ValueError, match=r"replace keeps the parents, \['rain', 'sprinkler'\]; f"):
        network().replace({"grass": given})


def test_a_root_as_a_frame_whose_labels_have_another_name():
    root = pd.DataFrame({"weather": ["no", "yes"], "prob": [0.8, 0.2]})
    for frame in (
        root,
        root.iloc[:, ::-1],
        pd.Series(["no"] * 4 + ["yes"])
        .value_counts(normalize=True)
        .rename("share")
        .rename_axis("weather")
        .reset_index(),
    ):
        found = MarkovNetwork.from_tables({"rain": frame, "grass": {"dry": 0.4, "wet": 0.6}})
        assert found.table("rain").to_dict() == RAIN
    for columns in (["weather", "yes"], ["grass", "p"], ["gras", "p"]):
        with pytest.raises(ValueError, match=r"'rain' (has|lacks|sums)"):
            MarkovNetwork.from_tables(
                {"rain": root.set_axis(columns, axis=1), "grass": {"dry": 0.4, "wet": 0.6}}
            )


def test_columns_beside_counts_are_told():
    counts = {"no": [749, 171], "yes": [251, 80]}
    for name, column in {"patients": [1100, 300], "mean_age": [44, 51], "dose": [2.5, 1.5]}.items():
        given = counted(**counts, **{name: column})
        given["grass"] = given["grass"].set_index("rain").rename_axis(columns="grass")
        with pytest.warns(ModelWarning, match=f"the column '{name}', which normalize=True takes"):
            MarkovNetwork.from_tables(given, normalize=True)
    given = counted(**counts, visits=[3120, 801])
    with pytest.warns(
        ModelWarning, match=r"'grass' .* \['no', 'yes', 'visits'\]\. Drop what is no"
    ):
        MarkovNetwork.from_tables(given, normalize=["grass"])
    with pytest.raises(ValueError, match="has the value 'visits' of 'grass', whose values are"):
        MarkovNetwork.from_tables(given, normalize=True, state_names={"grass": ["no", "yes"]})
    named = {**given, "grass": given["grass"].set_index("rain").rename_axis(columns="grass")}
    for options in ({"state_names": {"grass": ["no", "yes", "visits"]}}, {"tables": named}):
        MarkovNetwork.from_tables(**{"tables": given, "normalize": True, **options})


def test_tables_of_xarray_go_by_their_names():
    found = network()
    table = exact.marginals(found, ["rain", "sprinkler", "grass"])["p"]
    for order in (["rain", "sprinkler", "grass"], ["grass", "sprinkler", "rain"]):
        other = network(table.transpose(*order), normalize=True).factors[2][1]
        np.testing.assert_allclose(other, found.factors[2][1], rtol=1e-12)


def test_sets_have_no_order():
    tables = {"rain": RAIN, "grass": [[1, 0], [0, 1]]}
    for options in (
        {"parents": {"grass": {"rain"}}},
        {"parents": {"grass": "rain"}, "state_names": {"grass": {"dry", "wet"}}},
    ):
        with pytest.raises(TypeError, match=r"(is {'rain'}; give a list|is a set, which has no)"):
            MarkovNetwork.from_tables(tables, **options)
    with pytest.raises(TypeError, match="is a set, which has no order; give a list"):
        MarkovNetwork([2, 2], [], names={"a", "b"})
    MarkovNetwork.from_tables(tables, {"grass": "rain"}, normalize={"rain"})


def test_data_in_place_of_a_table():
    data = pd.DataFrame({"rain": ["no", "yes"] * 9, "grass": ["dry", "wet"] * 9})
    with pytest.raises(ValueError, match=r"pandas\.crosstab makes tables of data with a row for"):
        MarkovNetwork.from_tables({"rain": RAIN, "grass": data}, normalize=True)


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ({"w": [12, 88], "p": [7, 93], "u": [5, 59]}, "row s=u of .* sums to 64, .* be 100, as in"),
        ({"w": [12, 78], "p": [20, 80], "u": [5, 95]}, "row s=w of .* sums to 90, "),
        ({"w": [12, 0.88], "p": [7, 93], "u": [5, 95]}, "row s=w of .* sums to 12.88, "),
        ({"w": [0.5, 0.1], "p": [0.5, 0.5], "u": [0.1, 0.9]}, "row s=w of .* be 1, as in"),
    ],
)
def test_a_row_that_sums_to_less_than_most_is_told(rows, wrong):
    tables = {"s": {v: 1 / 3 for v in rows}, "b": rows}
    with pytest.warns(ModelWarning, match=wrong):
        MarkovNetwork.from_tables(tables, {"b": "s"}, normalize=["b"])
    counts = {v: [12 + k, 80 - k * k] for k, v in enumerate(rows)}
    MarkovNetwork.from_tables({**tables, "b": counts}, {"b": "s"}, normalize=["b"])


def test_the_same_number_of_cases_in_each_row_is_told():
    tables = {"a": {"yes": 0.5, "no": 0.5}}
    tables["b"] = pd.DataFrame({"a": ["yes", "no"], "ill": [85, 5], "screened": [100, 100]})
    with pytest.warns(ModelWarning, match="has the column 'screened', which normalize"):
        MarkovNetwork.from_tables(tables, normalize=True)
    tables["b"] = pd.DataFrame({"a": ["yes", "no"], "ill": [50, 50], "well": [50, 50]})
    MarkovNetwork.from_tables(tables, normalize=True)


def test_dicts_among_lists_and_columns_of_two_levels_are_told():
    rows = {"no": {"x": 0.1, "y": 0.9}, "yes": [0.3, 0.7]}
    with pytest.raises(ValueError, match="rows that are dicts and rows that are lists"):
        MarkovNetwork.from_tables({"a": {"no": 0.5, "yes": 0.5}, "b": rows}, {"b": "a"})
    data = pd.DataFrame({"a": ["no", "no", "yes", "yes"], "b": list("xyxy"), "n": [3, 4, 5, 6]})
    table = data.pivot_table(values=["n"], index="a", columns="b")
    tables = {"a": {"no": 0.5, "yes": 0.5}, "b": table}
    with pytest.raises(ValueError, match=r"of a pivot table of a list; take table\['n'\]"):
        MarkovNetwork.from_tables(tables, normalize=["b"])
    network = MarkovNetwork.from_tables({**tables, "b": table["n"]}, normalize=["b"])
    assert network.table("b").loc["no", "x"] == pytest.approx(3 / 7)


def test_answers_of_plans_are_named_without_doubt():
    rows = {1: {"no": 0.5, "yes": 0.5}, 2: {"no": 0.9, "yes": 0.1}}
    plan = exact.prepare(
        MarkovNetwork.from_tables({"grade": {1: 0.2, 2: 0.8}, "icu": rows}, {"icu": "grade"})
    )
    assert plan.named(plan.most_likely({"icu": "yes"})) == {"grade": 1, "icu": "yes"}
    assert plan.named(plan.sample(3), None)["icu"].isin(["no", "yes"]).all()
    assert plan.named(plan.marginal_map(["grade"], {"icu": "no"}), ["grade"]) == {"grade": 2}


def test_tuples_as_keys_and_columns_of_data_are_no_roots():
    cancer = {"yes": 0.1, "no": 0.9}
    counts = {("yes", "no"): 4, ("yes", "mass"): 6, ("no", "no"): 9, ("no", "mass"): 1}
    for given in (counts, {key: n / 20 for key, n in counts.items()}):
        with pytest.raises(ValueError, match=r"has the keys \('yes', 'no'\), .* name them in this"):
            MarkovNetwork.from_tables({"cancer": cancer, "xray": given}, normalize=["xray"])
    network = MarkovNetwork.from_tables(
        {"cancer": cancer, "xray": counts}, {"xray": "cancer"}, normalize=["xray"]
    )
    assert network.table("xray").loc["no", "mass"] == pytest.approx(0.1)
    stage = np.random.default_rng(0).integers(0, 3, 60)
    for data in (stage, stage.tolist(), pd.Series(stage), pd.Series(stage > 0), stage[:3] > 0):
        with pytest.raises(ValueError, match=r"like a column of data .* Series\.value_counts"):
            MarkovNetwork.from_tables({"stage": data}, normalize=True)
    counted = pd.Series(stage).value_counts()
    assert MarkovNetwork.from_tables({"stage": counted}, normalize=True).n_sites == 1
    assert MarkovNetwork.from_tables({"die": np.ones(30) / 30}).cardinalities[0] == 30


def test_some_tables_are_normalized():
    tables = {"rain": {"no": 3, "yes": 1}, "grass": [[1, 0], [0, 1]]}
    found = MarkovNetwork.from_tables(tables, {"grass": "rain"}, normalize=["rain"])
    assert found.table("rain").to_dict() == {"no": 0.75, "yes": 0.25}
    assert (
        found.replace({"rain": {"no": 1, "yes": 1}}, normalize=["rain"]).table("rain")["no"] == 0.5
    )
    with pytest.raises(ValueError, match=r"'rain' sums to 4 instead"):
        MarkovNetwork.from_tables(tables, {"grass": "rain"}, normalize=["grass"])
    with pytest.raises(ValueError, match=r"names 'rian', which has no table\. did you mean 'rain'"):
        MarkovNetwork.from_tables(tables, {"grass": "rain"}, normalize=["rian"])
    with pytest.raises(TypeError, match="normalize is 'rain'; give True, False or a list of names"):
        MarkovNetwork.from_tables(tables, {"grass": "rain"}, normalize="rain")


def test_columns_that_may_be_totals_but_are_values():
    for columns in (
        {"y": [3, 4], "n": [7, 9]},  # yes and no
        {"low": [0.25, 0.1], "mid": [0.25, 0.4], "high": [0.5, 0.5]},
        {"low": [0.5, 0.5], "mid": [0.5, 0.5], "high": [0, 0]},
    ):
        found = MarkovNetwork.from_tables(counted(**columns), normalize=True)
        assert found.state_names[1] == tuple(columns)
    assert MarkovNetwork.from_tables({"a": {"x": 1, "y": 1, "z": 2}}, normalize=True).n_sites == 1


def test_refused_structures():
    tables = {"a": {"x": [0.5, 0.5]}, "b": {"y": [0.5, 0.5]}}
    with pytest.raises(ValueError, match="in a circle: "):
        MarkovNetwork.from_tables(tables, {"a": ["b"], "b": ["a"]})
    with pytest.raises(ValueError, match="parent 'c', which has no table"):
        MarkovNetwork.from_tables(tables, {"a": ["c"], "b": ["a"]})
    with pytest.raises(ValueError, match="parents names 'c', which has no table"):
        MarkovNetwork.from_tables({"a": RAIN}, {"c": ["a"]})
    with pytest.raises(ValueError, match="has rows; name its parents"):
        MarkovNetwork.from_tables({"a": RAIN, "b": {"no": RAIN}})
    with pytest.raises(TypeError, match="tables is 3"):
        MarkovNetwork.from_tables(3)


def test_unroll_against_a_product():
    tables = {
        ("h", 0): [0.6, 0.4],
        ("h", 1): [[0.7, 0.3], [0.2, 0.8]],
        ("y", 0): [[0.9, 0.1], [0.3, 0.7]],
    }
    parents = {("h", 1): [("h", 0)], ("y", 0): [("h", 0)]}
    found = MarkovNetwork.unroll(tables, 4, parents)
    assert found.names == [(name, t) for t in range(4) for name in "hy"]
    for x in itertools.product(range(2), repeat=8):
        h, y = x[::2], x[1::2]
        seen = [tables["y", 0][a][b] for a, b in zip(h, y, strict=True)]
        p = tables["h", 0][h[0]] * np.prod(seen)
        p *= np.prod([tables["h", 1][a][b] for a, b in itertools.pairwise(h)])
        assert float(found.log_prob(x)) == pytest.approx(np.log(p), abs=1e-12)
    np.testing.assert_array_equal(found.table(("h", 3)), tables["h", 1])
    with pytest.raises(ValueError, match="the key 'h'"):
        MarkovNetwork.unroll({"h": [0.5, 0.5]}, 3)
    with pytest.raises(ValueError, match="give the first slice"):
        MarkovNetwork.unroll({("h", 1): [0.5, 0.5]}, 3)
    late = {("z", 0): [[1, 0], [0, 1]]}, {("z", 0): [("h", 1)]}
    with pytest.raises(ValueError, match="of a later slice"):
        MarkovNetwork.unroll(tables | late[0], 3, parents | late[1])
    with pytest.raises(ValueError, match="n is 0"):
        MarkovNetwork.unroll(tables, 0, parents)


# ----------------------------------------------------------------- names


def test_a_single_parent_needs_no_list():
    tables = {("a", 0): [0.2, 0.8], ("a", 1): [[0.7, 0.3], [0.4, 0.6]]}
    found = MarkovNetwork.unroll(tables, 2, {("a", 1): ("a", 0)})
    np.testing.assert_array_equal(found.table(("a", 1)), tables["a", 1])
    tables = {"rain": [0.2, 0.8], "grass": [[0.7, 0.3], [0.4, 0.6]]}
    found = MarkovNetwork.from_tables(tables, {"grass": "rain"})
    np.testing.assert_array_equal(found.table("grass"), tables["grass"])


def test_names_of_values_of_slices():
    tables = {("a", 0): [0.2, 0.8], ("a", 1): [[0.7, 0.3], [0.4, 0.6]]}
    for key in ("a", ("a", 0), ("a", 1)):
        found = MarkovNetwork.unroll(
            tables, 3, {("a", 1): [("a", 0)]}, state_names={key: ["low", "high"]}
        )
        assert found.state_names == (("low", "high"),) * 3
    names = {("a", 0): ["low", "high"], ("a", 1): ["high", "low"]}
    with pytest.raises(ValueError, match=r"'a' the values .* same values in the same order"):
        MarkovNetwork.unroll(tables, 3, {("a", 1): ("a", 0)}, state_names=names)


def test_scopes_by_names_that_are_numbers_or_tuples():
    table = np.array([[1.0, 2.0], [3.0, 4.0]])
    wanted = MarkovNetwork([2] * 3, [((2, 0), table)]).log_prob(np.eye(3, dtype=int))
    for names, scope in (
        ([("a", 1), "b", 3.5], [3.5, ("a", 1)]),
        ([("a", 1), ("a", 0), ("b", 1)], (("b", 1), ("a", 1))),
        ([30, 10, 20], (20, 30)),
        ([30, 10, 20], np.array([20, 30])),
        ([30, 10, 20], (2, 0)),
        ([30, 10, 20], ("20", 30)),
        ([0, 1, 2], (2, 0)),
        ([1, 0, 2], ("2", "1")),
    ):
        empty = MarkovNetwork([2] * 3, [], names=names)
        for made in (
            MarkovNetwork([2] * 3, [(scope, table)], names),
            empty.with_factors([(scope, table)]),
        ):
            np.testing.assert_array_equal(made.log_prob(np.eye(3, dtype=int)), wanted)
            assert made.names == names
    with pytest.raises(
        ValueError, match=r"1 is the name of one variable and the position of anoth"
    ):
        MarkovNetwork([2] * 3, [((2, 1), table)], [1, 0, 2])
    with pytest.raises(
        ValueError, match=r"variable \('a', 2\); did you mean \('a', 1\)\? the target has 3"
    ):
        MarkovNetwork([2] * 3, [([("a", 2)], [1.0, 2.0])], [("a", 1), ("a", 0), "b"])
    # What is kept of a network goes by position, whatever its names are.
    numbered = MarkovNetwork([2] * 3, [(("1", "0"), table)], [1, 0, 2])
    for made in (numbered.with_factors([]), numbered.condition({2: {0: 1.0, 1: 1.0}})):
        np.testing.assert_array_equal(
            made.log_prob(np.eye(3, dtype=int)), numbered.log_prob(np.eye(3, dtype=int))
        )


def log_prob(x):
    return 0.3 * x.sum(axis=-1).astype(float)


NAMED = {
    "ising": lambda names: Ising(np.zeros((3, 3)), names=names),
    "potts": lambda names: Potts(np.zeros((3, 3)), np.zeros((3, 2)), names=names),
    "function": lambda names: FunctionTarget(log_prob, 3, names=names),
    "network": lambda names: MarkovNetwork([2] * 3, [((0, 1), np.ones((2, 2)))], names),
}


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("names", [["a", "b", "c"], [("a", 1), ("b", 2), 3.5], [3, 1, 2]])
def test_names_of_any_kind(kind, names):
    target = NAMED[kind](names)
    assert target.names == names
    value = target.values[1]
    fixed = target.condition({names[1]: value})
    assert fixed.names == names
    assert pickle.loads(pickle.dumps(fixed)).names == names
    sampler = LSBSampler("barker", blocks=None, n_chains=2, n_burn_in=5, random_state=0)
    x = sampler.fit(fixed).sample(5)["x"]
    np.testing.assert_array_equal(x[:, :, 1], value)
    label = target.coords["site"][1]
    np.testing.assert_array_equal(x.sel(site=label), value)


@pytest.mark.parametrize("kind", NAMED)
def test_refused_names(kind):
    with pytest.raises(ValueError, match="2 entries, 2 of them distinct"):
        NAMED[kind](["a", "b"])
    with pytest.raises(ValueError, match="3 entries, 2 of them distinct"):
        NAMED[kind](["a", "b", "a"])
    with pytest.raises(TypeError, match="hashable"):
        NAMED[kind]([["a"], "b", "c"])
    with pytest.raises(TypeError, match="names is 'abc'"):
        NAMED[kind]("abc")


def test_names_of_values():
    target = FunctionTarget(
        log_prob, 2, [2, 3], names=["a", "b"], state_names={"b": ["low", "mid", "high"]}
    )
    assert target.state_names == ((0, 1), ("low", "mid", "high"))
    assert float(target.condition({"b": "high"}).log_prob([0, 1])) == -np.inf
    with pytest.raises(ValueError, match=r"evidence\['b'\] is 'hihg'; did you mean 'high'"):
        target.condition({"b": "hihg"})
    for given, message in [
        ({"c": ["x", "y"]}, "names the variable 'c'"),
        ([["x", "y"]], "1 entries; give one list for each of the 2"),
        ([("no", "yes"), "yn"], "names beside lists of names"),
        (["to", "be"], "state_names of 'b' has 2 entries, 2 of them distinct; give one name"),
        ([["x", "y"], ["x", "y"]], "state_names of 'b' has 2 entries"),
    ]:
        with pytest.raises(ValueError, match=message):
            FunctionTarget(log_prob, 2, [2, 3], names=["a", "b"], state_names=given)
    both = FunctionTarget(log_prob, 2, 2, names=["a", "b"], state_names=["to", "be"])
    assert both.state_names == (("to", "be"),) * 2
    colours = Potts(np.zeros((2, 2)), np.zeros((2, 3)), state_names=["red", "green", "blue"])
    p = exact.marginals(colours)["p"]
    assert float(p.sel(state="green")[0]) == pytest.approx(1 / 3)
    network = MarkovNetwork([2], [((0,), [1, 3])], ["a"], [[False, True]])
    assert float(network.condition({"a": True}).log_prob([0])) == -np.inf


def test_names_of_torch_targets():
    pytest.importorskip("torch")
    target = TorchTarget(lambda x: x.sum(-1), 2, names=["a", "b"], state_names=[["n", "y"]] * 2)
    assert float(target.condition({"a": "y"}).log_prob([0, 1])) == -np.inf


# ----------------------------------------------------------------- soft evidence


def states(target):
    values = [target.values[:k] for k in target.cardinalities]
    return np.array([*itertools.product(*values)])


SOFT = {
    "ising": Ising([[0, 0.4, 0], [0.4, 0, -0.2], [0, -0.2, 0]], [0.1, 0.0, -0.3]),
    "potts": Potts(
        [[0, 0.4, 0], [0.4, 0, -0.2], [0, -0.2, 0]], [[0, 1, -np.inf], [0, 0, 0], [1, 2, 3]]
    ),
    "rbm": RBM([[0.3, -0.2], [0.1, 0.5], [-0.4, 0.2]], [0.1, 0.2, 0.3], [0.0, 0.4]),
    "network": MarkovNetwork([2, 3, 2], [((0, 1, 2), np.arange(12).reshape(2, 3, 2) + 0.5)]),
}


@pytest.mark.parametrize("kind", SOFT)
@pytest.mark.parametrize("hard", [False, True])
def test_soft_evidence(kind, hard):
    """Log p gains the logarithm of the likelihood, exactly."""
    target = SOFT[kind]
    rng = np.random.default_rng(0)
    values = [target.values[:k] for k in target.cardinalities]
    soft = {i: {v: float(rng.random()) for v in values[i]} for i in (0, 1)}
    before = target.log_prob(states(target))
    given = target.condition(soft | ({2: target.values[1]} if hard else {}))
    x = states(target)
    gain = sum(np.log([soft[i][v] for v in x[:, i].tolist()]) for i in soft)
    expected = np.where(hard & (x[:, 2] != target.values[1]), -np.inf, before + gain)
    np.testing.assert_allclose(given.log_prob(x), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(target.log_prob(x), before)
    again = given.condition({1: soft[1]}).log_prob(x)
    np.testing.assert_allclose(again, expected + np.log([soft[1][v] for v in x[:, 1].tolist()]))


@pytest.mark.parametrize("kind", SOFT)
def test_chains_under_soft_evidence(kind):
    values = SOFT[kind].values[: SOFT[kind].cardinalities[0]]
    given = SOFT[kind].condition({0: {v: 0.2 + 0.6 * i for i, v in enumerate(values)}})
    p = exact.probabilities(given)
    x = GibbsSampler(n_chains=4, random_state=0).fit(given).sample(4000)["x"].values.reshape(-1, 3)
    every = exact.states(given)
    for i in range(3):
        for v in given.values[:2]:
            truth = p[every[:, i] == v].sum()
            assert (x[:, i] == v).mean() == pytest.approx(truth, abs=0.03)


def test_log_z_under_soft_evidence():
    """The constant of the likelihoods counts."""
    for kind in ("rbm", "potts"):
        given = SOFT[kind].condition({0: {v: 0.01 * (v + 1) for v in SOFT[kind].values}})
        log_z = np.logaddexp.reduce(given.log_prob(states(given)))
        sampler = ParallelTempering(n_chains=2, n_burn_in=500, random_state=0).fit(given)
        sampler.sample(500)
        assert sampler.log_z_ == pytest.approx(log_z, abs=0.2)


def test_zero_likelihoods():
    network = SOFT["network"].condition({1: {0: 0.0, 1: 0.5, 2: 0.5}})
    assert float(network.log_prob([0, 0, 0])) == -np.inf
    potts = SOFT["potts"].condition({0: {0: 0.0, 1: 0.5, 2: 0.5}})
    np.testing.assert_array_equal(potts.n_possible, [1, 3, 3])
    with pytest.raises(ValueError, match="every value of site 0 is impossible"):
        SOFT["potts"].condition({0: {0: 0.0, 1: 0.0, 2: 0.5}})
    for kind in ("ising", "rbm"):
        low, high = SOFT[kind].values
        with pytest.raises(ValueError, match="likelihood of 0; give the other value"):
            SOFT[kind].condition({0: {low: 0.0, high: 0.5}})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({0: 0.5}, "likelihoods of 1 of 2 values"),
        ({0: 0.5, 1: -0.5}, "finite and not negative"),
        ({0: 0.5, 1: np.nan}, "finite and not negative"),
        ({0: 0.0, 1: 0.0}, "zero for all values"),
        ({0: 0.5, 1: "x"}, "give a number"),
        ({0: 0.5, "0": 0.5, 1: 0.5}, "'0' twice"),
        ({0: 0.5, 7: 0.5}, "is 7; this variable takes one of"),
    ],
)
def test_refused_likelihoods(given, message):
    for way in (SOFT["network"].condition, exact.prepare(SOFT["network"]).marginals):
        with pytest.raises((ValueError, TypeError), match=message):
            way({0: given})


def test_doors_of_soft_evidence():
    found = network()
    soft = {"grass": {"dry": 0.1, "wet": 0.9}, "sprinkler": "off"}
    given = found.condition(soft)
    p = exact.prepare(found).marginals(soft)["rain"]
    np.testing.assert_allclose(exact.marginals(found, evidence=soft)["p"][0], p, atol=1e-12)
    assert exact.log_partition(found, soft) == pytest.approx(exact.log_partition(given))
    frame = draw(found, 4000, evidence=soft, random_state=0)
    assert (frame["rain"] == "yes").mean() == pytest.approx(p[1], abs=0.03)
    assert set(frame["sprinkler"]) == {"off"}
    x = ParallelTempering(n_chains=2, random_state=0).fit(given).sample(2000)["x"]
    assert float((x.sel(site="rain") == 1).mean()) == pytest.approx(p[1], abs=0.04)
    with pytest.raises(TypeError, match="FunctionTarget cannot take"):
        FunctionTarget(log_prob, 2).condition({0: {0: 0.5, 1: 0.5}})
    with pytest.raises(ValueError, match="twice"):
        found.condition({"grass": {"dry": 0.1, "wet": 0.9}, 2: "wet"})


def test_files_keep_nothing_of_tables(tmp_path):
    """A UAI file of type MARKOV holds factors only."""
    network().to_uai(tmp_path / "a.uai")
    with pytest.raises(TypeError, match="made of factors"):
        MarkovNetwork.from_uai(tmp_path / "a.uai").table(0)

"""Names that stay: of variables, of their values, of axes."""

import pickle
import re
from decimal import Decimal
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from sklsb import (
    RBM,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    Potts,
    TorchTarget,
    VariableSelection,
    diagnostics,
    draw,
    exact,
)
from sklsb.diagnostics.draws import draws_dataset
from sklsb.exceptions import ModelWarning

BIF = """\
network weather { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable wet { type discrete [ 3 ] { dry, damp, soaked }; }
probability ( rain ) { table 0.2, 0.8; }
probability ( wet | rain ) { (yes) 0.0, 0.25, 0.75; (no) 0.5, 0.5, 0.0; }
"""
STATES = (("yes", "no"), ("dry", "damp", "soaked"))


@pytest.fixture
def weather(tmp_path):
    path = tmp_path / "weather.bif"
    path.write_text(BIF)
    return path


# ----------------------------------------------------------------- values


def test_evidence_keeps_names(weather):
    given = MarkovNetwork.from_bif(weather, {"rain": "yes"})
    for target in (given, given.condition({"wet": "damp"}), pickle.loads(pickle.dumps(given))):
        assert target.names == ["rain", "wet"]
        assert target.state_names == STATES
    again = MarkovNetwork.from_bif(weather).condition({"rain": "yes"})
    assert given.observed.tolist() == again.observed.tolist() == [0]


def test_marginals_have_the_names_of_values(weather):
    target = MarkovNetwork.from_bif(weather)
    draws = draws_dataset(np.array([[[0, 2], [1, 0], [1, 1], [1, 1]]], np.int8), target)
    for found in (diagnostics.marginals(draws, target), exact.marginals(target)):
        assert found["state_name"].dims == ("site", "state")
        assert found["state_name"].values.tolist() == [["yes", "no", ""], list(STATES[1])]
        wet = found.sel(site="wet").swap_dims(state="state_name")
        assert float(wet["p"].sel(state_name="soaked")) == float(found["p"][1, 2])
    joint = exact.marginals(target, ["wet", "rain"])
    assert joint["wet_name"].values.tolist() == list(STATES[1])
    assert joint["rain_name"].dims == ("rain",)
    plain = exact.marginals(MarkovNetwork([2], [((0,), [1.0, 2.0])]))
    assert "state_name" not in plain.coords


def test_errors_name_variables(weather):
    network = MarkovNetwork.from_bif(weather)
    with pytest.raises(ValueError, match=r"{'rain': 'yes', 'wet': 'dry'} is impossible tog"):
        network.condition({"rain": "yes", "wet": "dry"})
    with pytest.raises(ValueError, match=r"x\[0\] is 2; variable 'rain' takes one .* \(0, 1\)"):
        network.log_prob([2, 0])
    impossible = [((0,), [1.0, 0.0]), ((0,), [0.0, 1.0])]
    with pytest.raises(ValueError, match=r"a factor over \('rain',\) cannot be satisfied"):
        exact.log_partition(MarkovNetwork([2], impossible, names=["rain"]))


def part(variables, shape, values, **state_names):
    return SimpleNamespace(
        variables=variables,
        cardinality=shape,
        values=np.reshape(values, shape),
        state_names=state_names,
    )


def from_parts(*parts):
    return MarkovNetwork.from_pgmpy(SimpleNamespace(get_factors=lambda: parts))


def test_from_pgmpy_keeps_names_of_values():
    first = part(["a", "b"], [2, 3], range(6), a=["on", "off"], b=[0, 1, 2])
    # The same values in another order: by their names.
    second = part(["a"], [2], [7.0, 8.0], a=["off", "on"])
    network = from_parts(first, second)
    assert network.state_names == (("on", "off"), ("0", "1", "2"))
    assert network.factors[1][1].tolist() == [8.0, 7.0]
    assert network.condition({"a": "off"}).observed.tolist() == [1]
    assert from_parts(part(["b"], [3], range(3), b=[0, 1, 2])).state_names is None
    assert from_parts(part(["b"], [3], range(3))).state_names is None
    mixed = from_parts(part(["a"], [2], [7.0, 8.0]), second)
    assert mixed.state_names == (("off", "on"),)
    assert mixed.factors[0][1].tolist() == [7.0, 8.0]
    for names in (["on", "of"], ["on", "on"], ["on"]):
        message = re.escape(f"the 2 values of variable 'a' are called {names} in one factor, and")
        with pytest.raises(ValueError, match=message):
            from_parts(first, part(["a"], [2], [7.0, 8.0], a=names))


# ----------------------------------------------------------------- one lookup


def named(*names):
    network = MarkovNetwork([len(names)], [((0,), range(1, len(names) + 1))], names=["v"])
    network.state_names = (names,)
    return network


GRADES, SWAPPED, FLAGS, HALVES = ("1", "2", "3"), ("1", "0"), ("no", "True"), ("0.1", "1.5")


@pytest.mark.parametrize(
    ("names", "given", "place"),
    [
        *((GRADES, given, 0) for given in (1, "1", 1.0, np.int8(1), np.float32(1), np.array(1))),
        *((GRADES, given, 2) for given in (3, np.str_("3"), np.uint64(3), Decimal(3))),
        *((SWAPPED, given, 1) for given in (0, "0", False, np.False_, -0.0)),
        *((FLAGS, given, 1) for given in (True, np.True_, "True")),
        *((HALVES, given, 0) for given in (0.1, np.float32(0.1), "0.1")),
        (("-2", "-1"), np.int16(-1), 1),
        (("01", "1"), 1, 1),
        (("(0, 1)", "(1, 0)"), (1, 0), 1),
        (("nan", "None"), "None", 1),
    ],
)
def test_a_value_is_looked_up_by_its_name(names, given, place):
    target = named(*names)
    assert target.condition({"v": given}).observed.tolist() == [place]
    p = exact.marginals(target, {"v": given})["p"].values[0]
    assert p.tolist() == [float(k == place) for k in range(len(names))]


@pytest.mark.parametrize(
    ("names", "given"),
    [
        *((GRADES, given) for given in (0, 4, "1.0", " 1", True, [1], np.float64(2.5), b"1", 1j)),
        *((("yes", "no"), given) for given in (0, 1, True, "Yes", "yes ", np.int64(0))),
        (("TRUE", "true"), True),
        (("01", "1"), 1.0),
        (("1_0", "x"), 10),
        (("1e99999999999999999999", "x"), 1),
    ],
)
def test_what_is_no_name_is_refused_with_all_names(names, given):
    first, then = f"evidence['v'] is {given!r}; ", f"this variable takes one of {len(names)} "
    message = rf"{re.escape(first)}(did you mean '\w*'\? )?{then}"
    with pytest.raises(ValueError, match=f"{message}.*{re.escape(str(list(names)))}"):
        named(*names).condition({"v": given})


def test_a_missing_value_is_not_observed():
    pd = pytest.importorskip("pandas", reason="pandas has its own missing values")
    for given in (None, float("nan"), np.ma.masked, pd.NA, pd.NaT, np.float32("nan")):
        for target in (named("yes", "no"), MarkovNetwork([2], [], names=["v"])):
            with pytest.raises(
                ValueError, match=rf"\['v'\] is {re.escape(repr(given))}, which is no"
            ):
                target.condition({"v": given})


def test_numbers_and_texts_without_names():
    target = MarkovNetwork([3, 3], [])
    for given in (2, "2", 2.0, np.int8(2)):
        assert target.condition({"1": given}).sites.tolist() == [1]
        assert target.condition({1: given}).observed.tolist() == [2]
    with pytest.raises(ValueError, match=r"evidence\[0\] is True; .* \(0, 1, 2\)"):
        target.condition({0: True})


def test_many_names_are_cut_short():
    target = named(*(f"s{i}" for i in range(300)))
    with pytest.raises(ValueError, match=r"300 values, .*'s0'.*'s99'\] and others"):
        target.condition({"v": "?"})


def test_a_variable_is_looked_up_by_its_name():
    target = MarkovNetwork([2] * 3, [], names=["3", "1", "0"])
    for site, given in enumerate((3, np.int64(1), 0.0)):
        assert target.condition({given: 1}).sites.tolist() == [site]
    with pytest.raises(ValueError, match=r"the variable 2; .* names like \['3', '1', '0'\]"):
        target.condition({2: 1})
    with pytest.raises(ValueError, match="evidence gives variable '3' twice, as '3' and 3; keep"):
        target.condition({"3": 1, 3: 1})
    words = MarkovNetwork([2] * 3, [], names=["a", "b", "c"])
    assert words.condition({2: 1}).sites.tolist() == [2]  # it can mean nothing else


def test_evidence_of_exact_answers():
    factors = [((0,), [0.3, 0.7]), ((0, 1), [[0.9, 0.1], [0.2, 0.8]])]
    network = MarkovNetwork([2, 2], factors, names=["a", "b"])
    network.state_names = (("no", "yes"), ("1", "0"))
    total = 0.3 * 0.1 + 0.7 * 0.8
    for found in (
        exact.marginals(network, {"b": 0}),
        exact.marginals(network, evidence={"b": 0}),
        exact.marginals(network, None, {"b": False}),
    ):
        np.testing.assert_allclose(found["p"], [[0.03 / total, 0.56 / total], [0, 1]], rtol=1e-12)
    joint = exact.marginals(network, ["a"], {"b": 0})["p"]
    assert joint.sel(a="yes") == pytest.approx(0.56 / total)
    assert exact.log_partition(network, {"b": 0}) == pytest.approx(np.log(total))
    assert exact.log_partition(network, {}) == pytest.approx(0.0)
    assert exact.most_likely(network, {"b": 1})["x"].values.tolist() == [0, 0]
    assert (exact.sample(network, 9, {"b": 0}, random_state=0)["x"].sel(site="b") == 1).all()


def test_what_is_neither_variables_nor_evidence():
    pd = pytest.importorskip("pandas", reason="labels of pandas")
    network = MarkovNetwork([2, 2], [], names=["a", "b"])
    for given in ("a", b"a", 1, {"a"}, pd.Series({"b": 1}), pd.DataFrame({"b": [1]})):
        message = re.escape(f"variables is {given!r}; give a list of variables, or evidence")
        with pytest.raises(TypeError, match=message):
            exact.marginals(network, given)
    for given in (("b",), np.array(["b"]), pd.Index(["b"])):
        assert exact.marginals(network, given)["p"].dims == ("b",)
    with pytest.raises(
        TypeError, match=r"variables is \{'a': 0\} and evidence is .*; variables are"
    ):
        exact.marginals(network, {"a": 0}, {"b": 0})
    with pytest.raises(TypeError, match=r"variables is \(0, 1\), .* give .* as \[\(0, 1\)\]"):
        exact.marginals(Ising.lattice(np.zeros((2, 2))), (0, 1))
    draws = partial(exact.sample, n=1)
    for answer in (exact.log_partition, exact.most_likely, draws):
        with pytest.raises(TypeError, match=r"evidence is \['a'\]; give a dict"):
            answer(network, evidence=["a"])
    with pytest.raises(ValueError, match=r"task is \{'a': 0\}; it must be one of"):
        exact.elimination_cost(network, {"a": 0})


def test_lists_of_variables_and_evidence_in_each_others_place():
    network = MarkovNetwork([2, 2], [((0, 1), [[1, 2], [3, 4]])], names=["a", "b"])
    plan, seen = exact.prepare(network), {"b": 1}
    for call in (
        lambda: exact.marginals(network, seen, ["a"]),
        lambda: exact.marginals(network, evidence=["a"]),
        lambda: plan.marginals(["a"], seen),
        lambda: plan.marginals(["a"]),
        lambda: plan.marginals("a"),
        lambda: plan.marginal_map(seen, ["a"]),
    ):
        with pytest.raises(TypeError, match=r"and evidence is .* Name them, as in marginals\("):
            call()
    assert plan.marginals(seen, ["a"])["a"].tolist() == pytest.approx([1 / 3, 2 / 3])


def test_a_joint_distribution_is_a_table():
    pd = pytest.importorskip("pandas")
    dose = pd.DataFrame({"smoker": ["no", "yes"], 0: [0.5, 0.1], 10: [0.3, 0.2], 20: [0.2, 0.7]})
    network = MarkovNetwork.from_tables(
        {"smoker": {"no": 0.75, "yes": 0.25}, "state": dose, "p": {"x": 1.0}}
    )
    joint = exact.marginals(network, ["state", "smoker"])
    table = diagnostics.to_frame(joint)
    assert table.columns.tolist() == ["state", "smoker", "p", "mcse"]
    expected = dose.melt("smoker", var_name="state", value_name="p")
    expected["p"] *= expected["smoker"].map({"no": 0.75, "yes": 0.25})
    for column in ("state", "smoker"):
        assert table[column].tolist() == expected[column].tolist()
    np.testing.assert_allclose(table["p"], expected["p"].astype(float), atol=1e-15)
    pivot = table.pivot(index="smoker", columns="state", values="p")
    assert pivot.loc["yes", 20] == pytest.approx(0.25 * 0.7)
    wide = {True: 0.25, False: 0.75}
    ages = pd.cut([20, 60], [0, 40, 80])
    other = {"cold": wide, "age": dict(zip(ages, [0.4, 0.6], strict=True))}
    table = diagnostics.to_frame(exact.marginals(MarkovNetwork.from_tables(other), ["cold", "age"]))
    assert table.set_index(["cold", "age"])["p"][True, ages[1]] == pytest.approx(0.15)
    other = {"a": {"x": 0.5, "y": 0.5}, "a_name": {"u": 0.3, "v": 0.7}}
    table = diagnostics.to_frame(exact.marginals(MarkovNetwork.from_tables(other), ["a", "a_name"]))
    assert table.set_index(["a", "a_name"])["p"]["y", "v"] == pytest.approx(0.35)
    one = diagnostics.to_frame(exact.marginals(network, ["p"]), network)
    assert one.to_dict("records") == [{"site_p": "x", "p": 1.0, "mcse": 0.0}]


def test_states_have_names_where_variables_share_them():
    network = MarkovNetwork([2, 3], [((0,), [1.0, 3.0]), ((1,), [1, 2, 5])], names=["a", "b"])
    for states, names, other in (
        ((("1", "0"), ("1", "0", "x")), ["1", "0", "x"], 0),
        ((("0", "1"), ("0", "1", "2")), [0, 1, 2], "0"),
        ((("yes", "no"), ("1", "2", "3")), ["value 0", "value 1", "value 2"], 1),
    ):
        network.state_names = states
        found = exact.marginals(network)
        assert found["state"].values.tolist() == names
        assert found["p"].sel(site="a", state=names[1]) == 0.75
        with pytest.raises(KeyError):
            found.sel(state=other)
        joint = exact.marginals(network, ["b"])["p"]
        assert joint["b_name"].values.tolist() == list(states[1])
        assert joint.sel(b={"1": 1}.get(states[1][1], states[1][1])) == 0.25
        table = diagnostics.to_frame(found, network)
        assert table.columns.tolist() == ["variable", "value", "p", "mcse"]
        assert table["value"].tolist() == [*states[0], *states[1]]
        assert table["p"].tolist() == [0.25, 0.75, 0.125, 0.25, 0.625]


def test_names_that_are_integers_stay_integers(tmp_path):
    """Also beside names that are text, and without the target."""
    network = MarkovNetwork(
        [2, 3],
        [((0,), [1.0, 3.0]), ((1,), [1, 2, 5])],
        names=["smoker", "age"],
        state_names=[["no", "1"], [20, 40, 60]],
    )
    found = exact.marginals(network)
    found.to_netcdf(tmp_path / "found.nc")
    read = xr.load_dataset(tmp_path / "found.nc")
    one = found.isel(site=[0, 1])
    for table in (diagnostics.to_frame(one, network), *map(diagnostics.to_frame, (one, read))):
        assert table["value"].tolist() == ["no", "1", 20, 40, 60]
        assert table["variable"].tolist() == ["smoker"] * 2 + ["age"] * 3
    draws = draw(network, 20, random_state=0)
    assert draws["age"].dtype.kind == "i"
    assert {*draws["age"]} <= {20, 40, 60}
    assert draws["smoker"].dtype == "category"


@pytest.mark.parametrize(
    "states",
    [
        [[True, False], [False, True, "maybe"]],
        [[0.5, 1.0], [2.5, 3.0, 7.0]],
        [[(1, "a"), (2, "b")], [None, 0, True]],
        [["1", "True"], ["None", "2.5", "(1, 2)"]],
    ],
    ids=["flags", "floats", "tuples", "text"],
)
def test_names_of_any_kind_are_the_same_in_every_table(states, tmp_path):
    factors = [((0,), [1.0, 3.0]), ((1,), [1, 2, 5])]
    network = MarkovNetwork([2, 3], factors, names=["a", "b"], state_names=states)
    found = exact.marginals(network)
    found.to_netcdf(tmp_path / "found.nc")
    plan = exact.prepare(network).marginals()
    read = xr.load_dataset(tmp_path / "found.nc")
    wanted = [repr(name) for own in states for name in own]
    for table in (diagnostics.to_frame(found, network), diagnostics.to_frame(plan)):
        assert [*map(repr, table["value"])] == wanted
    for table in map(diagnostics.to_frame, (found, read)):
        assert [*map(repr, table["value"])][:2] == wanted[:2]
        # Where some are text, all are.
        if "maybe" not in states[1]:
            assert [*map(repr, table["value"])] == wanted
    joint = diagnostics.to_frame(exact.marginals(network, ["a", "b"]))
    assert joint["p"].tolist() == pytest.approx([1 / 32, 2 / 32, 5 / 32, 3 / 32, 6 / 32, 15 / 32])


def test_flags_of_a_joint_distribution():
    network = MarkovNetwork([2], [((0,), [1.0, 3.0])], names=["a"], state_names=[[False, True]])
    table = diagnostics.to_frame(exact.marginals(network, ["a"]))
    assert [value is True for value in table["a"].tolist()] == [False, True]
    assert table.loc[table["a"], "p"].tolist() == [0.75]


# ----------------------------------------------------------------- labels of xarray


def in_xarray(values, *labels):
    dims = "ij"[: len(labels)]
    return xr.DataArray(values, dims=[*dims], coords=dict(zip(dims, labels, strict=True)))


def test_labels_of_xarray_are_names():
    """As those of pandas, in any order; without labels they are taken by position."""
    couplings = in_xarray([[0.0, 3, 2], [3, 0, 1], [2, 1, 0]], list("cba"), list("cba"))
    field = in_xarray([3.0, 1.0, 2.0], list("cab"))
    rows = in_xarray(np.diag([3.0, 1.0, 2.0]), list("cab"), range(3))
    potts = Potts(couplings, rows)
    assert potts.field.tolist() == [[3.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 1.0, 0.0]]
    assert potts.names == Ising(couplings, field).names == ["c", "b", "a"]
    assert potts.couplings.toarray()[0].tolist() == [0.0, 3.0, 2.0]
    assert Ising(couplings, field).field.tolist() == [3.0, 2.0, 1.0]
    assert Ising(couplings, field.values).field.tolist() == [3.0, 1.0, 2.0]
    machine = RBM(
        in_xarray(np.ones((3, 2)), list("abc"), ["u", "v"]),
        field,
        in_xarray([2.0, 1.0], ["v", "u"]),
    )
    assert machine.visible_bias.tolist() == [1.0, 2.0, 3.0]
    assert machine.hidden_bias.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("kind", ["pandas", "xarray"])
def test_numbers_of_values_go_by_labels(kind):
    pd = pytest.importorskip("pandas", reason="labels of pandas")
    sizes = pd.Series([3, 2], ["b", "a"]) if kind == "pandas" else in_xarray([3, 2], ["b", "a"])
    factors = [(("a", "b"), np.arange(1.0, 7.0).reshape(2, 3))]
    assert MarkovNetwork(sizes, factors, names=["a", "b"]).cardinalities.tolist() == [2, 3]
    target = FunctionTarget(lambda x: -1.0 * x.sum(-1), 2, sizes, names=["a", "b"])
    assert target.cardinalities.tolist() == [2, 3]
    with pytest.raises(ValueError, match="the index of n_states lacks"):
        FunctionTarget(lambda x: -1.0 * x.sum(-1), 2, sizes, names=["a", "x"])


def test_states_with_labels_of_others_are_refused():
    target = MarkovNetwork([2, 2], [((0,), [1.0, 3.0]), ((1,), [1, 2])], names=["a", "b"])
    x = xr.DataArray([[0, 1]], dims=("draw", "site"), coords={"site": ["b", "a"]})
    assert target.log_prob(x).tolist() == target.log_prob([[1, 0]]).tolist()
    with pytest.raises(ValueError, match=r"the labels \['b', 'z'\] on its axis 'site', which are"):
        target.log_prob(x.assign_coords(site=["b", "z"]))
    for plain in (x.drop_vars("site"), x.assign_coords(site=[0, 1])):
        assert target.log_prob(plain).tolist() == target.log_prob([[0, 1]]).tolist()


def test_mmd_goes_by_labels():
    pd = pytest.importorskip("pandas", reason="labels of pandas")
    x, y = np.random.default_rng(0).integers(2, size=(2, 20, 3))
    y[:, 0] = 1
    wanted = diagnostics.mmd(x, y)
    one, other = (pd.DataFrame(part, columns=list("abc")) for part in (x, y))
    draws = [xr.DataArray(part, coords={"draw": range(20), "site": list("abc")}) for part in (x, y)]
    for first, second in ((one, other[list("cab")]), (draws[0], draws[1][:, ::-1])):
        assert diagnostics.mmd(first, second) == pytest.approx(wanted, abs=1e-12)
    with pytest.raises(ValueError, match="lacks"):
        diagnostics.mmd(one, other.rename(columns={"a": "z"}))


# ----------------------------------------------------------------- labels of pandas


def test_labels_of_pandas_are_names():
    pd = pytest.importorskip("pandas", reason="labels of pandas")
    couplings = pd.DataFrame([[0, 1.0, 2], [1, 0, 3], [2, 3, 0]], list("abc"), list("abc"))
    field = pd.Series([3.0, 1, 2], list("cab"))
    for target in (Ising(couplings, field), Ising(couplings.loc[list("bca")], field)):
        assert target.names == ["a", "b", "c"]
        assert target.field.tolist() == [1.0, 2.0, 3.0]
        assert target.couplings.toarray().tolist() == couplings.to_numpy().tolist()
        assert target.condition({"b": 1}).sites.tolist() == [1]
    assert Ising.from_qubo(couplings).names == Ising.from_maxcut(couplings).names == list("abc")
    upper = pd.DataFrame(np.triu(couplings), list("abc"), list("abc"))
    mixed = Ising.from_qubo(upper.loc[list("cab")])
    assert mixed.couplings.toarray().tolist() == Ising.from_qubo(upper).couplings.toarray().tolist()
    plain = couplings.to_numpy()
    assert Ising(plain, pd.Series([1.0, 2, 3], [2, 0, 1])).field.tolist() == [2.0, 3.0, 1.0]
    assert Ising(plain, pd.Series([1.0, 2, 3], list("xyz"))).names == ["x", "y", "z"]
    colours = pd.DataFrame(np.arange(6.0).reshape(3, 2), list("cab"), ["red", "blue"])
    potts = Potts(couplings, colours)
    assert potts.field.tolist() == [[2, 3], [4, 5], [0, 1]]
    assert potts.condition({"c": "blue"}).observed.tolist() == [1]
    machine = RBM(
        pd.DataFrame([[1.0, 2], [3, 4]], ["u", "v"], ["h", "k"]),
        pd.Series({"v": 1.0, "u": 2.0}),
        pd.Series({"k": 3.0, "h": 4.0}),
    )
    assert machine.names == ["u", "v"]
    assert machine.visible_bias.tolist() == [2.0, 1.0]
    assert machine.hidden_bias.tolist() == [4.0, 3.0]
    columns = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), columns=[np.int64(7), "x"])
    assert VariableSelection(columns, columns["x"]).names == [7, "x"]


@pytest.mark.parametrize(
    ("index", "wrong"),
    [
        (list("abe"), "lacks ['c'], has also ['e']. "),
        (list("aab"), "lacks ['c'], repeats ['a']. "),
        ([0, 1, 2], "lacks ['a', 'b', 'c'], has also [0, 1, 2]. "),
    ],
)
def test_labels_that_disagree_are_refused(index, wrong):
    pd = pytest.importorskip("pandas", reason="labels of pandas")
    couplings = pd.DataFrame(np.zeros((3, 3)), list("abc"), list("abc"))
    with pytest.raises(ValueError, match=re.escape(f"the index of field {wrong}")):
        Ising(couplings, pd.Series(np.zeros(3), index))
    with pytest.raises(ValueError, match=re.escape(f"the index of couplings {wrong}")):
        Ising(couplings.set_axis(index))


def test_a_mapping_is_no_field():
    couplings = np.zeros((2, 2))
    message = (
        "field is a mapping, {1: 0.5, 0: 2.0}. Give .* such as pandas.Series\\(field\\), or an a"
    )
    for target in (Ising, Potts):
        with pytest.raises(TypeError, match=message):
            target(couplings, {1: 0.5, 0: 2.0})


def test_names_in_an_array():
    for names in (np.array([5, 3]), np.array(["3", "5"]), (np.int8(3), np.uint16(5))):
        for target in (
            MarkovNetwork([2, 2], [], names=names),
            FunctionTarget(lambda x: 1.0 * x.sum(-1), 2, names=names),
        ):
            assert [type(name) for name in target.names] == [type(names[0].item())] * 2
            assert target.condition({3: 1}).sites.tolist() == [[*map(int, names)].index(3)]


# ----------------------------------------------------------------- columns


def test_the_column_at_fault_is_named():
    pd = pytest.importorskip("pandas", reason="columns have names in a DataFrame")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=8), "smokes": rng.random(8) < 0.5})
    y = rng.normal(size=8)
    assert VariableSelection(frame, y).names == ["age", "smokes"]  # float and bool
    same = VariableSelection(frame.to_numpy(float), y)
    assert np.array_equal(VariableSelection(frame, y).log_prob([1, 1]), same.log_prob([1, 1]))
    for column, error, message in (
        (list("mfmfmfmf"), TypeError, "column 'sex' of X has dtype <U1; give real numbers"),
        ([1.0, np.nan] * 4, ValueError, r"X\['sex'\]\[1\] is nan; it must be finite"),
        ([1.0] * 8, ValueError, "column 'sex' of X is constant; leave it out"),
    ):
        with pytest.raises(error, match=message):
            VariableSelection(frame.assign(sex=column), y)
    with pytest.raises(ValueError, match="squares of column 'age' of X, centred, is"):
        VariableSelection(frame * [1e9, 1.0], y, prior="independent")


# ----------------------------------------------------------------- axes


def count(x):
    return 0.3 * x.sum(axis=-1)


def test_functions_of_images():
    target = FunctionTarget(count, 6, shape=(2, 3))
    assert (target.shape, target.dims, target.n_sites) == ((2, 3), ("row", "col"), 6)
    image = np.arange(6).reshape(2, 3) % 2
    assert target.log_prob(image) == target.log_prob(image.ravel()) == count(image.ravel())
    assert target.log_ratios(image).tolist() == target.log_ratios(image.ravel()).tolist()
    given = target.condition({(0, 1): 1})
    assert given.sites.tolist() == [1]
    start = FunctionTarget(count, 6, shape=(2, 3), initial_state=image)
    assert start.draw_state(np.random.default_rng(0)).tolist() == image.ravel().tolist()
    stack = FunctionTarget(count, 8, shape=(2, 2, 2), dims=("z", "y", "x_"))
    assert stack.coords.keys() == {"z", "y", "x_"}
    voices = FunctionTarget(count, 3, names=["anna", "ben", "cleo"], dims=["voter"])
    assert voices.condition({"ben": 1}).names == ["anna", "ben", "cleo"]
    assert voices.coords["voter"].tolist() == voices.names


def test_tensors_of_images():
    torch = pytest.importorskip("torch")
    target = TorchTarget(lambda x: x @ torch.arange(6.0), 6, shape=(2, 3), dims=("y", "t"))
    image = np.arange(6).reshape(2, 3) % 2
    assert target.dims == ("y", "t")
    assert target.log_prob(image) == 9.0
    assert target.first_order_ratios(image).shape == (6,)
    assert TorchTarget(lambda x: x.sum(-1), 2, names=["a", "b"]).names == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shape": (2, 2)}, ValueError, r"shape is \(2, 2\); its product must be n_sites, 6"),
        ({"shape": (-2, -3)}, ValueError, r"shape is \(-2, -3\); its product"),
        ({"shape": (2.0, 3)}, TypeError, r"shape is \(2\.0, 3\); give integers"),
        ({"shape": (1, 2, 3)}, ValueError, r"shape is \(1, 2, 3\); give dims"),
        ({"shape": (2, 3), "dims": ("a",)}, ValueError, "a name for each axis of the shape"),
        ({"shape": (2, 3), "dims": ("a", "a")}, ValueError, "all different"),
        ({"dims": ("draw",)}, ValueError, "none of chain, draw, state, x and lp"),
        ({"dims": "site"}, TypeError, "dims is 'site'; give a tuple of strings"),
        ({"names": ["a"]}, ValueError, "names has 1 entries, 1 of them distinct"),
        ({"names": list("abcdef"), "shape": (2, 3)}, ValueError, "give one of them"),
    ],
)
def test_wrong_names_and_shapes(arguments, error, message):
    with pytest.raises(error, match=message):
        FunctionTarget(count, 6, **arguments)


@pytest.fixture
def people():
    """An Ising model of three named variables that are 0 or 1, and all its states as a frame."""
    pandas = pytest.importorskip("pandas")
    names = ["sad", "tired", "worried"]
    weights = pandas.DataFrame([[0, 1.0, 0], [1.0, 0, -2.0], [0, -2.0, 0]], names, names)
    target = Ising.from_binary(weights, pandas.Series([0.5, -1.0, 0.25], names))
    column = pandas.DataFrame({"threshold": [0.25, 0.5, -1.0]}, [names[2], *names[:2]])
    of_column = Ising.from_binary(weights, column)
    np.testing.assert_array_equal(of_column.field, target.field)  # as read from a file
    states = (np.arange(8)[:, None] >> np.arange(3)) & 1
    return target, pandas.DataFrame(states, columns=names)


def test_columns_of_states_are_found_by_name(people):
    target, frame = people
    expected = target.log_prob(frame.to_numpy())
    assert len({*expected.round(9)}) > 4
    turned = frame[["worried", "sad", "tired"]]
    for given in (frame, turned, 2 * turned - 1, turned.astype(bool), turned.astype("category")):
        np.testing.assert_array_equal(target.log_prob(given), expected)
    for labels in (range(3), ["0", "1", "2"]):
        plain = frame.set_axis([*labels], axis=1)
        if isinstance(labels, range):  # positions, in any order
            np.testing.assert_array_equal(target.log_prob(plain[[2, 0, 1]]), expected)
        unnamed = Ising(target.couplings, target.field)
        np.testing.assert_array_equal(
            unnamed.log_prob(2 * plain - 1), unnamed.log_prob(2 * frame.to_numpy() - 1)
        )


def test_values_that_are_equal_are_called_as_in_their_own_model():
    # As keys, 1, True and 1.0 are the same; no model may answer by the names of another.
    for kind in (bool, int, float, bool, int):
        low, high = kind(0), kind(1)
        network = MarkovNetwork.from_tables({"a": {low: 0.3, high: 0.7}})
        for value in (high, str(high)):
            assert exact.log_partition(network, {"a": value}) == pytest.approx(np.log(0.7))
    target = Ising.from_binary([[0, 1.0], [1.0, 0]], -1.0)
    assert target.condition({0: 1}).observed.tolist() == [1]


def test_a_series_is_a_state_by_its_labels(people):
    target, frame = people
    expected = target.log_prob(frame)
    for row, value in zip(frame.index, expected, strict=True):
        one = frame.loc[row]
        for given in (one, one[::-1], one.astype(bool).iloc[[1, 0, 2]]):
            assert target.log_prob(given) == value
    np.testing.assert_array_equal(
        target.log_ratios(frame.loc[3][::-1]), target.log_ratios(frame.loc[3].to_numpy())
    )
    with pytest.raises(ValueError, match="x has the column 'sat'"):
        target.log_prob(frame.loc[3].rename({"sad": "sat"}))
    with pytest.raises(
        TypeError, match=r"dtype object; give integers, one of \(0, 1\) or \(-1, 1\)"
    ):
        target.log_prob(frame.astype(object).replace({0: "no", 1: "yes"}))
    network = MarkovNetwork.from_tables({"a": {"x": 0.2, "y": 0.8}, "b": {10: 0.4, 30: 0.6}})
    row = frame.assign(b=30, a="x")[["b", "a"]].loc[0]
    assert network.log_prob(row) == pytest.approx(np.log(0.2 * 0.6))


def test_states_in_a_frame_are_complete(people):
    target, frame = people
    holes = frame.astype(float)
    holes.loc[6, "tired"] = np.nan
    wrong = {
        r"x has the column 'sadd'; did you mean 'sad'": frame.rename(columns={"sad": "sadd"}),
        "x has the column 'age'": frame.assign(age=1),
        "x has no column 'tired'": frame[["sad", "worried"]],
        "x has a column twice": frame[["sad", "tired", "worried", "sad"]],
        "x has no value of variable 'tired' in row 6; drop": holes,
        r"x\[0, 0\] is 2; variable 'sad' takes one of the values \(0, 1\), or \(-1, 1\)": frame + 2,
    }
    for message, given in wrong.items():
        with pytest.raises(ValueError, match=message):
            target.log_prob(given)


def test_states_by_name_are_those_of_positions():
    """Also draws as a table, whose entries are names; numbers that are no names are positions."""
    pandas = pytest.importorskip("pandas")
    names = (("no", "yes"), (1, 2, 5))
    table = np.random.default_rng(0).random((2, 3))
    network = MarkovNetwork([2, 3], [((0, 1), table)], names=["a", "b"], state_names=names)
    frame = draw(network, 40, random_state=0)
    places = [[names[0].index(a), names[1].index(b)] for a, b in frame[["a", "b"]].to_numpy()]
    expected = network.log_prob(np.array(places, dtype=network.dtype))
    assert len({*expected}) > 3
    np.testing.assert_array_equal(network.log_prob(frame[["b", "a"]]), expected)
    by_number = pandas.DataFrame({"a": [p[0] for p in places], "b": frame["b"]})
    np.testing.assert_array_equal(network.log_prob(by_number), expected)
    with pytest.raises(ValueError, match=r"x\['b'\] is 0; .* names \[1, 2, 5\]"):
        network.log_prob(pandas.DataFrame({"a": [0], "b": [0]}))


@pytest.mark.parametrize(
    ("names", "flags"),
    [((1, 0), True), (("1", "0"), True), ((1, 2), False), ((True, False), True)],
)
def test_positions_that_are_names_of_other_values_are_told(names, flags):
    """Data frames and evidence go by name; arrays of the type of draws, by position."""
    pandas = pytest.importorskip("pandas")
    network = MarkovNetwork([2], [((0,), [0.25, 0.75])], ["a"], [names])
    expected = np.log([0.25])
    for kind in (None, object):
        frame = pandas.DataFrame({"a": names[:1]}, dtype=kind)
        np.testing.assert_allclose(network.log_prob(frame), expected)
    if flags:
        np.testing.assert_allclose(network.log_prob(pandas.DataFrame({"a": [True]})), expected)
    np.testing.assert_allclose(network.log_prob(np.array([[0]], dtype=network.dtype)), expected)
    given = [[0]] if names[0] is not True else [[False]]
    message = r"x holds positions, so .* means the value .* of 'a'\. .*; int8, the dtype"
    for target in (network, network.condition({"a": names[0]})):
        with pytest.warns(ModelWarning, match=message):
            np.testing.assert_allclose(target.log_prob(given), expected)
    with pytest.warns(ModelWarning, match="initial_states holds positions"):
        LSBSampler("barker", n_burn_in=1, n_chains=1).fit(network, initial_states=given)
    draw(network, 3, random_state=0)


def test_zeros_throughout_name_the_variable():
    network = MarkovNetwork([2], [((0,), [1, 2])], ["test"], [["neg", "pos"]])
    with pytest.raises(ValueError, match=r"table 0 is zero .* Its variables are \['test'\]\."):
        network.with_factors([(["test"], [0, 0])])
    for ask in (network.condition, partial(draw, network, 3), exact.prepare(network).marginals):
        with pytest.raises(ValueError, match=r"evidence\['test'\] is zero for all values; one of"):
            ask({"test": {"neg": 0, "pos": 0}})


def test_numbers_that_are_the_names_of_their_places_are_not_told():
    for names in ((0, 1, 2), ("0", "1", "2"), (0, 10, 20), (10, 20, 30), ("no", "yes", "1st")):
        network = MarkovNetwork([3], [((0,), [1, 2, 3])], ["a"], [names])
        np.testing.assert_allclose(network.log_prob([[1]]), np.log(2))


def test_a_row_of_a_frame_is_evidence():
    pandas = pytest.importorskip("pandas")
    table = [[0.1, 0.2], [0.3, 0.4]]
    network = MarkovNetwork([2, 2], [((0, 1), table)], names=["a", "b"])
    row = pandas.Series({"b": 1})
    for answer in (exact.log_partition(network, row), exact.prepare(network).log_partition(row)):
        np.testing.assert_allclose(answer, np.log(0.6))
    for ask in (network.condition, exact.prepare(network).marginals):
        with pytest.raises(TypeError, match=r"is a data frame; .* for each row, as by to_dict"):
            ask(pandas.DataFrame({"b": [1]}))


def test_what_only_a_target_without_evidence_can_do_is_said():
    network = MarkovNetwork([2, 2], [((0, 1), np.ones((2, 2)))])
    seen = network.condition({0: 1})
    with pytest.raises(AttributeError, match=r"'replace'.*; call it before condition"):
        seen.replace({})
    assert not hasattr(seen, "with_factors")
    assert pickle.loads(pickle.dumps(seen)).n_sites == 2


def test_draws_and_marginals_of_other_names_are_refused():
    tables = {"a": {"n": 0.98, "y": 0.02}, "b": {"n": 0.5, "y": 0.5}}
    network = MarkovNetwork.from_tables(tables)
    turned = MarkovNetwork.from_tables({name: tables[name] for name in ("b", "a")})
    other = MarkovNetwork.from_tables({"a": {"y": 0.02, "n": 0.98}, "b": {"y": 0.5, "n": 0.5}})
    drawn = exact.sample(turned, 100, random_state=0)
    for refused in (
        lambda: diagnostics.marginals(drawn, network),
        lambda: diagnostics.to_frame(drawn, network),
        lambda: diagnostics.expectation(drawn, [(["a"], [0, 1])], target=network),
        lambda: diagnostics.to_frame(exact.marginals(turned), network),
        lambda: diagnostics.to_frame(exact.marginals(other), network),
    ):
        with pytest.raises(ValueError, match="have other names, or in another order: s"):
            refused()
    unnamed = MarkovNetwork([2, 2], network.factors)
    assert diagnostics.to_frame(exact.sample(unnamed, 9), network).shape == (9, 4)
    assert float(diagnostics.to_frame(exact.marginals(unnamed), network)["p"][1]) == 0.02


def test_draws_in_other_numbers_or_another_order_of_sites_are_refused():
    grid = Ising.lattice(np.arange(6.0).reshape(2, 3), 0.2)
    drawn = exact.sample(grid, 100, random_state=0)
    functions = (
        diagnostics.marginals,
        diagnostics.to_frame,
        diagnostics.disagreement,
        lambda draws, target: diagnostics.expectation(draws, "sum", target),
        lambda draws, target: diagnostics.expectation(draws, lambda x: x[:, 0, 0], target),
    )
    for changed, match in (
        (drawn.assign(x=drawn.x > 0), r"draws\['x'\]\[0, \d+, \d\] is False; every variable"),
        (drawn.assign(x=(drawn.x + 1) // 2), r"is 0; every variable of this target takes one of"),
        (drawn.isel(row=[1, 0]), "other names, or in another order: row"),
        (drawn.isel(col=slice(None, None, -1)), "other names, or in another order: col"),
    ):
        for function in functions:
            with pytest.raises(ValueError, match=match):
                function(changed, grid)
    with pytest.raises(ValueError, match=r"x\[5\] is 0; every variable"):
        grid.log_prob([[1, 1, 1], [1, 1, 0]])
    for function in (diagnostics.marginals, diagnostics.disagreement):
        with pytest.raises(ValueError, match="no variable x; give what sample returned"):
            function(drawn.x, grid)
    for target in (None, grid):
        with pytest.raises(ValueError, match="needs finite numbers of at least one draw"):
            diagnostics.expectation(drawn.isel(draw=slice(0)), "sum", target)
    binary = Ising.from_binary(np.zeros((2, 2)), [1.0, 2.0])
    drawn = exact.sample(binary, 100, random_state=0)
    flags = drawn.assign(x=drawn.x > 0)  # called 0 and 1, so they mean the same
    assert diagnostics.marginals(flags, binary).equals(diagnostics.marginals(drawn, binary))


def test_states_of_xarray_are_read_by_their_axes_and_labels():
    grid = Ising.lattice(np.random.default_rng(0).normal(size=(3, 3)), 0.2)
    named = Ising(np.ones((3, 3)) - np.eye(3), [1.0, 0.0, -2.0], names=["c", "a", "b"])
    drawn, of_names = (exact.sample(one, 50, random_state=0) for one in (grid, named))
    for target, x, lp in (
        (grid, drawn.x.transpose("chain", "draw", "col", "row"), drawn.lp),
        (grid, drawn.x.isel(row=[2, 0, 1]), drawn.lp),
        (
            grid,
            drawn.x.drop_vars(["row", "col"]).transpose("chain", "draw", "col", "row"),
            drawn.lp,
        ),
        (named, of_names.x.sortby("site"), of_names.lp),
        (named, of_names.x.transpose("site", ...), of_names.lp),
    ):
        np.testing.assert_allclose(target.log_prob(x), lp)
    sampler = GibbsSampler(n_chains=2, n_burn_in=0, random_state=0)
    start = of_names.x[0, :2].sortby("site")
    sampler.fit(named, initial_states=start)
    np.testing.assert_array_equal(sampler.state_, of_names.x[0, :2])


def test_tables_with_labels_are_read_by_the_names_of_values():
    xarray, pandas = pytest.importorskip("xarray"), pytest.importorskip("pandas")
    table = pandas.DataFrame(
        [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], index=["n", "y"], columns=["l", "m", "h"]
    )
    names = {"names": ["a", "b"], "state_names": [table.index, table.columns]}
    network = MarkovNetwork([2, 3], [(["a", "b"], table.to_numpy())], **names)
    by_axes = xarray.DataArray(table.iloc[::-1], dims=("a", "b"))
    turned = table.T.iloc[[2, 0, 1], ::-1]
    for scope, given in (
        ("ab", table.iloc[::-1]),
        ("ab", table[["h", "l", "m"]]),
        ("ab", table.set_axis([0, 1]).set_axis([0, 1, 2], axis=1)),
        ("ba", turned),
        ("ab", by_axes),
        ("ab", by_axes.T),
    ):
        found = MarkovNetwork([2, 3], [([*scope], given)], **names)
        np.testing.assert_allclose(found.log_prob(exact.states(found)), np.log(np.arange(1, 7)))
        mean = diagnostics.expectation(network, [([*scope], given)]).value
        np.testing.assert_allclose(mean, (np.arange(1, 7) ** 2).sum() / 21)
    more = network.with_factors([(["a"], pandas.Series({"y": 0.0, "n": 1.0}))])
    np.testing.assert_allclose(exact.log_partition(more), np.log(6))
    with pytest.raises(ValueError, match=r"table 0 lacks \['n'\], has also \['no'\]\. Give each"):
        network.with_factors([(["a"], pandas.Series({"y": 0.0, "no": 1.0}))])
    reverse = MarkovNetwork([2], [((0,), [1, 3])], state_names=[[1, 0]])  # a name, not a position
    assert diagnostics.expectation(reverse, [([0], pandas.Series({0: 1.0, 1: 0.0}))]).value == 0.75


def test_a_series_of_all_values_is_a_table_by_its_labels():
    pd = pytest.importorskip("pandas")
    network = MarkovNetwork([2, 3], [], names=["a", "b"], state_names=[["n", "y"], ["x", "y", "z"]])
    table = np.arange(1.0, 7.0).reshape(2, 3)
    index = pd.MultiIndex.from_product([["n", "y"], ["x", "y", "z"]], names=["a", "b"])
    given = pd.Series(table.ravel(), index)
    for one in (given, given.iloc[::-1]):
        ((_, found),) = network.with_factors([(("a", "b"), one)]).factors
        np.testing.assert_array_equal(found, table)
    with pytest.raises(ValueError, match=r"the index of table 0 lacks \[\('y', 'z'\)\]"):
        network.with_factors([(("a", "b"), given.iloc[:-1])])


# ----------------------------------------------------------------- frames of Potts models


@pytest.mark.parametrize("columns", [[1, 2, 3], [2, 0, 1], ["l", "m", "h"], [1.5, 2.5, 3.5]])
def test_columns_of_a_field_are_the_names_of_values_as_they_are(columns):
    pd = pytest.importorskip("pandas", reason="columns have names in a DataFrame")
    rows = list("abc")
    couplings = pd.DataFrame(1.0 - np.eye(3), index=rows, columns=rows)
    field = pd.DataFrame(
        np.log([[1, 2, 3], [4, 5, 6], [9, 8, 7]]), index=rows[::-1], columns=columns
    )
    target = Potts(couplings, field)
    assert target.state_names == (tuple(columns),) * 3
    found = exact.marginals(target)["p"].sel(site="a", state=columns[2])
    expected = exact.marginals(Potts(couplings.to_numpy(), field[::-1].to_numpy()))["p"][0, 2]
    assert float(found) == pytest.approx(float(expected), abs=1e-14)
    with pytest.raises(ValueError, match="3 entries, 2 of them distinct"):
        Potts(couplings, field.set_axis([1, 1, 2], axis=1))
    assert Potts(couplings, field.set_axis(range(3), axis=1)).state_names is None


def test_frames_that_are_something_else_are_told_what_to_give():
    pd = pytest.importorskip("pandas", reason="the errors are about data frames")
    edges = pd.DataFrame({"from": ["a", "b"], "to": ["b", "c"], "w": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"from_pandas_edgelist\(couplings, 'from', 'to'"):
        Ising(edges)
    with pytest.raises(TypeError, match=r"as by field.astype\(float\)"):
        Ising(np.eye(2), pd.Series([1.0, 2.0], dtype=object))
    marginals = exact.marginals(Ising(np.eye(2)))
    with pytest.raises(ValueError, match="select lists"):
        diagnostics.to_frame(marginals.sel(state=1))
    assert len(diagnostics.to_frame(marginals.sel(state=[1]))) == 2


def test_sizes_go_by_labels_but_for_places():
    pd = pytest.importorskip("pandas", reason="sizes have labels in a Series")
    names = ["a", "b"]
    for series in (pd.Series([2, 3]), pd.Series([3, 2], ["b", "a"])):
        target = FunctionTarget(lambda x: x.sum(-1), 2, n_states=series, names=names)
        network = MarkovNetwork(series, [(["a", "b"], np.ones((2, 3)))], names=names)
        assert target.cardinalities.tolist() == network.cardinalities.tolist() == [2, 3]
    turned = MarkovNetwork(pd.Series([2, 3]), [], names=[1, 0])
    assert turned.cardinalities.tolist() == [3, 2]
    with pytest.raises(ValueError, match=r"lacks \['b'\], has also \['c'\]"):
        MarkovNetwork(pd.Series([2, 3], ["a", "c"]), [], names=names)


def test_labels_of_xarray_count_whatever_axes_are_called():
    values = xr.DataArray([1.0, 9.0], {"index": ["yes", "no"]})
    named = {"names": ["rain"], "state_names": [["no", "yes"]]}
    rain = MarkovNetwork([2], [(["rain"], values)], **named)
    assert exact.marginals(rain)["p"].values.ravel() == pytest.approx([0.9, 0.1])
    other = MarkovNetwork([2], [(["rain"], values.assign_coords(index=["a", "b"]))], **named)
    assert exact.marginals(other)["p"].values.ravel() == pytest.approx([0.1, 0.9])
    people = Ising(np.eye(3), [1.0, 2.0, 3.0], names=["a", "b", "c"])
    states = xr.DataArray([[1, 1, -1]], dims=("d", "who"), coords={"who": ["c", "a", "b"]})
    assert people.log_prob(states) == people.log_prob([[1, -1, 1]])


def test_names_that_are_labels_in_another_order():
    pd = pytest.importorskip("pandas", reason="couplings have labels in a DataFrame")
    couplings = pd.DataFrame(np.eye(3), list("abc"), list("abc"))
    with pytest.raises(ValueError, match="labels of couplings in another order"):
        Ising(couplings, names=["c", "a", "b"])
    assert Ising(couplings, names=["x", "y", "z"]).names == ["x", "y", "z"]
    assert Ising(couplings, names=list("abc")).names == ["a", "b", "c"]
    field = pd.DataFrame([[0.0, 3.0]], columns=["yes", "no"])
    for given in (field, xr.DataArray(field.T.to_numpy(), {"state": ["yes", "no"], "site": [0]})):
        target = Potts(np.zeros((1, 1)), given, state_names=["no", "yes"])
        assert target.field.tolist() == [[3.0, 0.0]]
    square = xr.DataArray(np.arange(9.0).reshape(3, 3), dims=("site", "state"))
    assert Potts(np.eye(3), square.T).field.tolist() == square.values.tolist()


def test_fields_of_a_lattice_in_another_order_of_axes():
    grid = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("row", "col"))
    for given in (grid, grid.T):
        assert Ising.lattice(given).shape == (2, 3)
        assert Ising.lattice(given).field.tolist() == grid.values.ravel().tolist()
    labels = xr.DataArray(np.arange(24.0).reshape(2, 3, 4), dims=("row", "col", "state"))
    for given in (labels, labels.T):
        assert Potts.lattice(given).field.tolist() == labels.values.reshape(6, 4).tolist()
    bonds = xr.DataArray(np.arange(12.0).reshape(2, 2, 3), dims=("axis", "row", "col"))
    wanted = Ising.lattice(grid, bonds.values).couplings.toarray().tolist()
    for given in (bonds, bonds.transpose("axis", "col", "row")):
        assert Ising.lattice(grid.T, given).couplings.toarray().tolist() == wanted
    elsewhere = grid.T.rename(row="y", col="x")  # called otherwise: by position
    assert Ising.lattice(elsewhere).shape == (3, 2)


def test_one_list_names_the_values_of_all_variables():
    words = ["no", "yes"]
    for given in (
        words,
        tuple(words),
        np.array(words),
        [words] * 3,
        dict.fromkeys(range(3), words),
    ):
        target = FunctionTarget(lambda x: 0.1 * x.sum(-1), 3, state_names=given)
        assert target.state_names == (("no", "yes"),) * 3
    assert MarkovNetwork([3, 3], [], state_names=[0, 5, 10]).state_names == ((0, 5, 10),) * 2
    for wrong, said in ((["no"], "3 in all"), ("abc", "3 in all"), ([words], "one list for all")):
        with pytest.raises(ValueError, match=said):
            MarkovNetwork([3, 3], [], state_names=wrong)
    with pytest.raises(TypeError, match="no order"):
        MarkovNetwork([3, 3], [], state_names={"a", "b", "c"})


def test_lattices_of_xarray_name_values():
    field = np.random.default_rng(0).normal(size=(2, 3, 3))
    labels = {"state": ["sea", "sand", "wood"]}
    given = xr.DataArray(field, dims=("row", "col", "state"), coords=labels)
    plain = Potts.lattice(field, 0.5)
    for one in (given, given.transpose("state", "row", "col")):
        target = Potts.lattice(one, 0.5)
        assert target.state_names == (("sea", "sand", "wood"),) * 6
        assert target.log_prob([0, 1, 2, 0, 1, 2]) == plain.log_prob([0, 1, 2, 0, 1, 2])
        assert target.condition({(0, 1): "wood"}).observed.tolist() == [2]
    assert Potts.lattice(given.drop_vars("state")).state_names is None
    # A coordinate of that name along another axis, or along none, names no values.
    other = xr.DataArray(np.zeros((3, 3, 3)), dims=("row", "col", "k"))
    for coords in ({"state": ("row", ["x", "y", "z"])}, {"state": "NY"}):
        assert Potts.lattice(other.assign_coords(coords)).state_names is None
    assert Potts.lattice(given.assign_coords(state=range(3))).state_names is None


def test_soft_evidence_shows():
    couplings = np.ones((3, 3)) - np.eye(3)
    for target in (
        Ising(couplings),
        Potts(couplings, np.zeros((3, 2))),
        RBM(np.ones((3, 2))),
        MarkovNetwork([2] * 3, [((0, 1), [[1.0, 2.0], [3.0, 4.0]])]),
    ):
        low, high = target.values
        one = target.condition({0: {low: 0.2, high: 0.8}})
        assert ", likelihoods of 1 variable" in repr(pickle.loads(pickle.dumps(one)))
        two = one.condition({1: low}).condition({0: {low: 0.5, high: 0.8}, 2: {low: 1, high: 2}})
        assert ", likelihoods of 2 variables" in repr(two)
        assert "likelihoods" not in repr(target)

"""Names that stay: of variables, of their values, of axes."""

import pickle
import re
from types import SimpleNamespace

import numpy as np
import pytest

from sklsb import (
    FunctionTarget,
    MarkovNetwork,
    TorchTarget,
    VariableSelection,
    diagnostics,
    exact,
)
from sklsb.diagnostics.draws import draws_dataset

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
    with pytest.raises(ValueError, match=r"over the variables \('rain', 'wet'\) cannot be sat"):
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

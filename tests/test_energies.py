"""Ising models of QUBO, max-cut and dimod problems: against the problems' own formulas."""

import itertools
import os
import pathlib
import re
import sys
import warnings
from types import ModuleType, SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from sklsb import Ising, LSBSampler, exact, testing
from sklsb.exceptions import SamplerWarning
from sklsb.io import read_maxcut, read_qubo

DATA = (
    pathlib.Path(
        os.environ.get("SKLSB_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data")
    )
    / "maxcut"
)
SPINS = np.array(list(itertools.product((-1, 1), repeat=4)))


def coefficients(seed=0, n=4):
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(size=(n, n)), 3)


def bqm(vartype="SPIN", **changes):
    """Of the attributes of a dimod model: labels of any kind, a pair in either order."""
    attributes = {
        "linear": {"a": 0.5, (0, 1): -1.0, 7: 0.0, "d": 2.0},
        "quadratic": {("a", (0, 1)): 1.5, (7, "a"): -2.0, ("d", (0, 1)): 0.25},
        "offset": 3.0,
        "vartype": vartype,
    }
    return SimpleNamespace(**{**attributes, **changes})


def energy(model, x):
    value = dict(zip(model.linear, x, strict=True))
    return (
        model.offset
        + sum(bias * value[v] for v, bias in model.linear.items())
        + sum(bias * value[u] * value[v] for (u, v), bias in model.quadratic.items())
    )


# ----------------------------------------------------------------- the formulas


@pytest.mark.parametrize("beta", [1.0, 0.3, 20, np.float32(0.5)])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.coo_matrix, np.triu])
def test_qubo(make, beta):
    q = make(coefficients())
    target = Ising.from_qubo(q, beta)
    testing.check_target(target)
    dense = q.toarray() if sp.issparse(q) else q
    bits = (1 + SPINS) // 2
    wanted = [-beta * (z @ dense @ z) for z in bits]
    np.testing.assert_allclose(target.log_prob(SPINS), wanted, rtol=1e-14, atol=1e-13 * beta)
    assert target.n_sites == 4
    assert target.coords["site"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_maxcut(beta):
    weights = coefficients(1)
    weights = weights + weights.T
    target = Ising.from_maxcut(weights, beta)
    testing.check_target(target)
    wanted = [
        beta * sum(weights[i, j] for i in range(4) for j in range(i) if x[i] != x[j]) for x in SPINS
    ]
    np.testing.assert_allclose(target.log_prob(SPINS), wanted, rtol=1e-14, atol=1e-14)


def test_cuts_of_a_graph_keep_its_labels():
    graph = nx.MultiGraph([("u", "v", {"weight": 2}), ("v", "w", {"weight": 3}), ("v", "v")])
    graph.add_edge("u", "v", weight=1)
    target = Ising.from_maxcut(graph)
    assert target.coords["site"].tolist() == ["u", "v", "w"]
    assert target.log_prob([[1, 1, 1], [-1, 1, 1], [1, -1, 1], [1, 1, -1]]).tolist() == [0, 3, 6, 3]


@pytest.mark.parametrize("beta", [1.0, 0.5])
@pytest.mark.parametrize("vartype", ["SPIN", "BINARY", SimpleNamespace(name="SPIN")])
def test_bqm(vartype, beta):
    model = bqm(vartype)
    target = Ising.from_bqm(model, beta)
    testing.check_target(target)
    values = (1 + SPINS) // 2 if vartype == "BINARY" else SPINS
    wanted = [-beta * energy(model, x) for x in values]
    assert target.log_prob(SPINS).tolist() == wanted
    assert target.names == ["a", (0, 1), 7, "d"]
    assert target.coords["site"].tolist() == ["a", "(0, 1)", "7", "d"]
    assert [int(target.condition({v: 1}).sites[0]) for v in model.linear] == [0, 1, 2, 3]


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_bqm_with_a_square_and_without_biases(vartype):
    model = bqm(vartype, quadratic={("a", "a"): 2.0, ("d", "a"): 1.0, ("a", "d"): 0.5})
    values = (1 + SPINS) // 2 if vartype == "BINARY" else SPINS
    assert Ising.from_bqm(model).log_prob(SPINS).tolist() == [-energy(model, x) for x in values]
    empty = Ising.from_bqm(bqm(vartype, linear={}, quadratic={}))
    assert empty.n_sites == 0
    assert empty.log_prob(np.empty((2, 0), dtype=int)).tolist() == [-3.0, -3.0]


@pytest.mark.parametrize("labels", ["abcd", [4, 1, 3, 2]])
def test_plain_labels_are_the_coordinate(labels):
    target = Ising.from_bqm(bqm(linear=dict.fromkeys(labels, 1.0), quadratic={}))
    assert target.coords["site"].tolist() == list(labels)


@pytest.fixture
def dimod(monkeypatch):
    """A module of that name whose models only keep what they are given."""
    module = ModuleType("dimod")
    names = ("linear", "quadratic", "offset", "vartype")
    module.BinaryQuadraticModel = lambda *values: SimpleNamespace(
        **dict(zip(names, values, strict=True))
    )
    monkeypatch.setitem(sys.modules, "dimod", module)


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
@pytest.mark.parametrize("beta", [1.0, 2.0, 0.1])
@pytest.mark.usefixtures("dimod")
def test_to_bqm_is_the_way_back(vartype, beta):
    model = bqm(vartype)
    found = Ising.from_bqm(model, beta).to_bqm(beta)
    assert found.vartype == vartype
    assert list(found.linear) == list(model.linear)
    assert {frozenset(pair) for pair in found.quadratic} == set(map(frozenset, model.quadratic))
    for x in (1 + SPINS) // 2 if vartype == "BINARY" else SPINS:
        assert energy(found, x) == pytest.approx(energy(model, x), abs=1e-13)
    plain = (float, int)
    assert {type(bias) for bias in (*found.linear.values(), *found.quadratic.values())} <= {*plain}


@pytest.mark.usefixtures("dimod")
def test_to_bqm_without_labels_numbers_the_sites():
    target = Ising.lattice(np.arange(6.0).reshape(2, 3), 0.5, periodic=False)
    found = target.to_bqm()
    assert found.linear == {i: -float(i) for i in range(6)}
    assert found.quadratic == dict.fromkeys(
        [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)], -0.5
    )
    assert found.offset == 0.0


def test_to_bqm_without_dimod_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dimod", None)
    with pytest.raises(ImportError, match="to_bqm needs dimod; run `pip install dimod`"):
        Ising([[0]]).to_bqm()


def test_dimod_itself():
    dimod = pytest.importorskip("dimod", reason="dimod is optional")
    for vartype in ("SPIN", "BINARY"):
        given = bqm(vartype)
        model = dimod.BinaryQuadraticModel(given.linear, given.quadratic, given.offset, vartype)
        target = Ising.from_bqm(model, 0.5)
        again = target.to_bqm(0.5)
        for x in SPINS:
            z = (1 + x) // 2 if vartype == "BINARY" else x
            wanted = energy(given, z)
            assert target.log_prob(x) == pytest.approx(-0.5 * wanted, abs=1e-13)
            assert again.energy(dict(zip(given.linear, z, strict=True))) == pytest.approx(wanted)


# ----------------------------------------------------------------- what is refused


@pytest.mark.parametrize("beta", [0, -1.0, np.nan, np.inf, "1", None])
def test_beta_is_positive(beta):
    for make in (Ising.from_qubo, Ising.from_maxcut):
        with pytest.raises(ValueError, match=r"beta is .*; it must be a positive number"):
            make(np.eye(2), beta)
    with pytest.raises(ValueError, match=r"beta is .*; it must be a positive number"):
        Ising.from_bqm(bqm(), beta)


@pytest.mark.usefixtures("dimod")
def test_beta_of_to_bqm_is_positive():
    with pytest.raises(ValueError, match="beta is 0; it must be a positive number"):
        Ising([[0]]).to_bqm(0)


@pytest.mark.parametrize(
    ("q", "error", "message"),
    [
        ([1, 2], ValueError, r"Q has shape \(2,\); give a square matrix \(dense or sparse\)\."),
        ([[1, 2]], ValueError, r"Q has shape \(1, 2\); it must be square"),
        ([[1, np.nan], [0, 1]], ValueError, r"Q\[0, 1\] is nan; it must be finite"),
        ([["a"]], TypeError, "Q has dtype .*; give real numbers"),
        ([[1], [1, 2]], ValueError, "Q is not an array of numbers"),
        ([[1e304]], ValueError, "Rescale the model"),
    ],
)
def test_wrong_qubo(q, error, message):
    with pytest.raises(error, match=message):
        Ising.from_qubo(q)


def test_a_small_beta_makes_up_for_large_coefficients():
    assert Ising.from_qubo([[1e304]], beta=1e-3).constant == pytest.approx(-5e300)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([[0, 1], [0, 0]], ValueError, r"weights must be symmetric. .* give weights \+ weights.T"),
        ([[0, 1]], ValueError, "weights has shape .*; it must be square"),
        ([0], ValueError, r"weights has shape .* \(dense or sparse\) or an undirected networkx"),
        (nx.DiGraph([(0, 1)]), TypeError, "weights is a directed graph"),
        (nx.Graph([(0, 1, {"w": 1})]), ValueError, "weights are read from the attribute"),
    ],
)
def test_wrong_weights(weights, error, message):
    with pytest.raises(error, match=message):
        Ising.from_maxcut(weights)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (np.eye(2), TypeError, "bqm is of type ndarray; give a dimod.BinaryQuadraticModel or"),
        (bqm("POTTS"), ValueError, "bqm.vartype is 'POTTS'; it must be SPIN or BINARY"),
        (bqm(offset=np.nan), ValueError, "bqm.offset.* is nan; it must be finite"),
        (bqm(linear={"a": np.inf}, quadratic={}), ValueError, r"bqm.linear\[0\] is inf"),
        (bqm(quadratic={("a", "d"): np.nan}), ValueError, "bqm.quadratic.* is nan"),
        (
            bqm(quadratic={("a", "z"): 1.0}),
            ValueError,
            r"bqm.quadratic has the entry \('a', 'z'\): 1.0; an entry must be a pair of variables",
        ),
        (bqm(quadratic={("a", "d", "c"): 1.0}), ValueError, "bqm.quadratic has the entry"),
        (bqm(quadratic={3: 1.0}), ValueError, "bqm.quadratic has the entry 3: 1.0; "),
        (bqm(quadratic={("a", "d"): "x"}), ValueError, r"entry \('a', 'd'\): 'x'; .* real number"),
        (bqm(linear=[1.0]), TypeError, "of which the first two are mappings"),
        (bqm(linear={"a": "x"}, quadratic={}), TypeError, "bqm.linear has dtype <U1"),
    ],
)
def test_wrong_bqm(model, error, message):
    with pytest.raises(error, match=message):
        Ising.from_bqm(model)


# ----------------------------------------------------------------- what is sampled


def test_the_best_cut_of_a_small_graph_is_the_most_probable():
    graph = nx.random_regular_graph(3, 8, seed=0)
    target = Ising.from_maxcut(graph, beta=2.0)
    x = exact.states(target)
    cuts = [nx.cut_size(graph, np.flatnonzero(spins > 0)) for spins in x]
    np.testing.assert_array_equal(target.log_prob(x), 2.0 * np.array(cuts))


def best_known(folder):
    text = (DATA / folder / "best_known.txt").read_text()
    return {name: float(value) for name, value in re.findall(r"(\S+) +(-?[0-9]+)", text)}


def published():
    paths = [path for path in sorted(DATA.glob("*/*")) if path.name != "best_known.txt"]
    # Dense sums over 800 vertices take seconds.
    large = {"G1.txt", "G11.txt", "G14.txt"}
    marks = [pytest.mark.slow if path.name in large else () for path in paths]
    return [pytest.param(p, id=p.name, marks=m) for p, m in zip(paths, marks, strict=True)] or [
        pytest.param(None, marks=pytest.mark.skip(reason=f"no files in {DATA}; set SKLSB_DATA"))
    ]


@pytest.mark.parametrize("path", published())
def test_published_problems(path):
    """Against dense sums; and nothing sampled is better than the best known."""
    qubo = path.parent.name == "qubo"
    matrix = (read_qubo if qubo else read_maxcut)(path)
    dense, beta = matrix.toarray(), 4.0 / abs(matrix.data).max()

    def value(x):
        z = (1 + x) // 2 if qubo else x
        quadratic = np.einsum("ai,ai->a", z @ dense, z)
        return quadratic if qubo else 0.25 * (dense.sum() - quadratic)

    make, sign = (Ising.from_qubo, -1) if qubo else (Ising.from_maxcut, 1)
    x = np.random.default_rng(0).choice([-1, 1], (1000, len(dense)))
    # The weights are integers, and so are all sums.
    np.testing.assert_array_equal(sign * make(matrix).log_prob(x), value(x))
    target = make(matrix, beta)
    size = beta * abs(matrix.data).sum()
    np.testing.assert_allclose(
        target.log_prob(x), sign * beta * value(x), rtol=0, atol=1e-15 * size
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        sampler = LSBSampler("sqrt", n_chains=2, n_burn_in=3000, random_state=0, pilot=False)
        draws = sampler.fit(target).sample(100, thin=100)["x"].to_numpy()
    best = sign * best_known(path.parent.name)[re.sub(r"[.](txt|sparse)$", "", path.name)]
    found = (sign * value(draws.reshape(-1, len(dense)).astype(int))).max()
    assert 0.7 * best <= found <= best

"""Markov networks: log p from the tables by loops, kernels, files, and starts in the support."""

import itertools
import math
import os
import pathlib
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from enumerated_objectives import check_objectives
from local_step import check_sampler
from models import FUNCTIONS, pairs
from scipy import stats

from sklsb import (
    RBM,
    FunctionTarget,
    Ising,
    LSBSampler,
    MarkovNetwork,
    Potts,
    VariableSelection,
    exact,
    io,
    testing,
)
from sklsb.exceptions import FrozenSitesWarning, ModelWarning

EPS = np.finfo(float).eps
INF = np.inf
DATA = pathlib.Path(
    os.environ.get("SKLSB_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data")
)


def tables(rng, k, n_factors, zeros=0.0, extreme=False, most=4):
    """Random scopes of at most ``most`` variables and tables that are not zero at one state."""
    possible, factors = rng.integers(k), []
    for _ in range(n_factors):
        scope = rng.permutation(len(k))[: rng.integers(most + 1)]
        table = np.exp(rng.standard_normal(k[scope]))
        if extreme:
            table = 10.0 ** rng.uniform(-300, 300, k[scope])
        zero = np.asarray(rng.random(table.shape) < zeros)
        zero[tuple(possible[scope])] = False
        factors.append((tuple(scope.tolist()), np.where(zero, 0.0, table)))
    return factors


def random_network(seed, d=6, n_factors=8, **settings):
    rng = np.random.default_rng(seed)
    k = rng.integers(1, 6, d)
    factors = tables(rng, k, n_factors, **settings)
    return MarkovNetwork(k, factors), k, factors


def logarithms(factors, x):
    """Logarithm of each factor's entry at a state."""
    return [
        math.log(entry) if (entry := table[tuple(int(x[i]) for i in scope)]) > 0 else -INF
        for scope, table in factors
    ]


def brute_ratios(k, factors, x):
    """Logarithms of the factors that contain a variable, after less before, move by move."""
    result = []
    for i, n in enumerate(k):
        near = [(scope, table) for scope, table in factors if i in scope]
        before = logarithms(near, x)
        for value in range(n):
            if value != x[i]:
                other = x.copy()
                other[i] = value
                after = logarithms(near, other)
                result.append(sum(a - b for a, b in zip(after, before, strict=True)))
    return result


def small(seed=0, zeros=0.3):
    """24 states, mixed numbers of values; about half of them impossible."""
    rng = np.random.default_rng(seed)
    k = np.array([2, 3, 1, 4])
    factors = tables(rng, k, 2, zeros=zeros, most=2)
    factors += [((1, 0), np.exp(rng.standard_normal((3, 2))))]
    free = np.exp(rng.standard_normal((4, 3)))
    free[[0, 2], [1, 2]] = 0.0 if zeros else 1.0
    return MarkovNetwork(k, [*factors, ((3, 1), free), ((3,), [1e-3, 2.0, 0.5, 1.0])])


SMALL = {
    "mixed": small(zeros=0.0),
    "zeros": small(),
    "evidence": small(1).condition({3: 1}),
}


# ----------------------------------------------------------------- against loops


@pytest.mark.parametrize("zeros", [0.0, 0.3])
@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_log_prob_and_log_ratios_are_those_of_the_tables(seed, extreme, zeros):
    network, k, factors = random_network(seed, zeros=zeros, extreme=extreme)
    rng = np.random.default_rng(seed)
    inside = np.stack([network.draw_state(rng) for _ in range(200)])
    x = np.stack([rng.integers(k, size=(200, len(k))), inside]).astype(np.int16)
    log_p, ratios = network.log_prob(x), network.log_ratios(x)
    assert log_p.shape == (2, 200)
    assert log_p.dtype == ratios.dtype == np.float64
    assert ratios.shape == (2, 200, (k - 1).sum())
    assert np.isfinite(log_p[1]).all()
    gate = 8 * EPS * sum(np.abs(np.log(table[table > 0])).max() for _, table in factors)
    for index in np.ndindex(2, 200):
        wanted = sum(logarithms(factors, x[index]))
        assert log_p[index] == wanted or abs(log_p[index] - wanted) <= gate
        if wanted > -INF:
            wanted = np.array(brute_ratios(k, factors, x[index]))
            lost = np.isneginf(wanted)
            assert np.array_equal(np.isneginf(ratios[index]), lost)
            assert np.all(np.abs(ratios[index][~lost] - wanted[~lost]) <= gate)
    assert (np.isneginf(log_p[0]).any() and np.isneginf(ratios[1]).any()) == (zeros > 0)


@pytest.mark.parametrize("zeros", [0.0, 0.3])
@pytest.mark.parametrize("extreme", [False, True])
def test_target(extreme, zeros):
    for seed in range(4):
        network, k, _ = random_network(seed, zeros=zeros, extreme=extreme)
        testing.check_target(network, n_states=5)
        there = network.draw_state(np.random.default_rng(0))
        evidence = {int(i): int(there[i]) for i in np.flatnonzero(k > 1)[:2]}
        testing.check_target(network.condition(evidence), n_states=5)


@pytest.mark.parametrize("k", [[], [1], [3], [1, 1, 1], [2, 5]])
def test_no_factors(k):
    network = MarkovNetwork(k, [])
    assert network.n_factors == 0
    assert network.factors == []
    assert network.n_sites == len(k)
    x = network.draw_state(np.random.default_rng(0))
    assert x.shape == (len(k),)
    assert network.log_prob(x) == 0.0
    assert np.array_equal(network.log_ratios(x), np.zeros(sum(k) - len(k)))
    assert network.n_possible.tolist() == k
    testing.check_target(network, n_states=3)


def test_no_variables():
    network = MarkovNetwork([], [((), 3.0), ((), [0.5])])
    # Not bit for bit: numpy's logarithm is not that of the C library on every processor.
    wanted = pytest.approx(math.log(3) + math.log(0.5), rel=0, abs=4 * EPS)
    assert network.log_prob(np.empty((2, 0), dtype=int)).tolist() == [wanted] * 2
    assert network.log_prob([]) == wanted
    testing.check_target(network, n_states=2)


def test_one_variable():
    network = MarkovNetwork([4], [((0,), [1, 0, 2, 1e-300]), ((), 2.0)])
    x = [[v] for v in range(4)]
    wanted = np.log(2) + np.array([0.0, -INF, np.log(2), np.log(1e-300)])
    np.testing.assert_allclose(network.log_prob(x), wanted, rtol=4 * EPS)
    np.testing.assert_allclose(network.log_ratios([2])[0], -np.log(2), rtol=4 * EPS)
    assert network.log_ratios([0]).tolist()[0] == -INF
    assert network.n_possible.tolist() == [3]
    testing.check_target(network)


def test_subnormal_entries_are_not_zero():
    network = MarkovNetwork([2], [((0,), [5e-324, 1.0])])
    assert network.log_prob([0]) == pytest.approx(math.log(5e-324), rel=4 * EPS)
    assert network.n_possible.tolist() == [2]


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SeparatedModesWarning")
def test_many_values_are_int16():
    rng = np.random.default_rng(0)
    network = MarkovNetwork([200, 3], [((0, 1), rng.random((200, 3)) + 0.1)])
    assert network.dtype == np.int16
    assert network.draw_state(rng).dtype == np.int16
    testing.check_target(network, n_states=5)
    sampler = LSBSampler("sqrt", n_burn_in=300, n_chains=4, random_state=0).fit(network)
    x = sampler.sample(500)["x"]
    assert x.dtype == np.int16
    assert x.max() > 127
    assert x.min() >= 0


def test_flat_tables_and_order_of_factors():
    network, k, factors = random_network(5, zeros=0.2)
    x = exact.states(network)
    wanted = network.log_prob(x)
    possible = np.isfinite(wanted)
    rng = np.random.default_rng(0)
    shuffled = [factors[f] for f in rng.permutation(len(factors))]
    turned = []
    for scope, table in factors:
        order = rng.permutation(len(scope))
        turned.append((np.array(scope, dtype=int)[order], table.transpose(order)))
    flat = [(list(scope), table.ravel().tolist()) for scope, table in factors]
    split = [(s, t**share) for s, t in factors for share in (0.25, 0.75)]
    for changed in (shuffled, turned, flat, split, iter(factors)):
        found = MarkovNetwork(k, changed).log_prob(x)
        assert np.array_equal(np.isfinite(found), possible)
        np.testing.assert_allclose(found[possible], wanted[possible], rtol=0, atol=1e-13)
    scopes, kept = zip(*network.factors, strict=True)
    assert list(scopes) == [scope for scope, _ in factors]
    for mine, given in zip(kept, factors, strict=True):
        assert np.array_equal(mine, given[1])
    kept[0][...] = -1.0  # a copy
    assert np.array_equal(network.log_prob(x), wanted)


def test_tables_given_are_not_kept():
    table = np.array([[1.0, 2.0], [3.0, 4.0]])
    k = np.array([2, 2])
    network = MarkovNetwork(k, [((0, 1), table)])
    table[:], k[:] = 0.0, 9
    assert network.log_prob([1, 1]) == pytest.approx(math.log(4), rel=4 * EPS)
    assert network.cardinalities.tolist() == [2, 2]


def test_an_ising_model_as_a_network():
    ising = Ising([[0, 0.7, -0.4], [0.7, 0, 0.2], [-0.4, 0.2, 0]], [0.3, -0.1, 0.5])
    s = np.array([-1, 1])
    factors = [((i,), np.exp(h * s)) for i, h in enumerate(ising.field)]
    for i, j in itertools.combinations(range(3), 2):
        factors.append(((i, j), np.exp(ising.couplings[i, j] * np.outer(s, s))))
    network = MarkovNetwork([2] * 3, factors)
    np.testing.assert_allclose(exact.probabilities(network), exact.probabilities(ising), rtol=1e-14)
    for name in ("sqrt", "max"):
        mine, other = (exact.transition_matrix(FUNCTIONS[name], t) for t in (network, ising))
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("target", "function"), pairs(SMALL, FUNCTIONS))
def test_sampler(target, function):
    check_sampler(LSBSampler(function, n_burn_in=30, n_chains=2), target, n_draws=20)


@pytest.mark.parametrize("name", ["zeros", "evidence"])
def test_impossible_states_are_never_entered(name):
    target = SMALL[name]
    possible = np.isfinite(target.log_prob(exact.states(target)))
    assert not possible.all()
    for function in FUNCTIONS.values():
        matrix = exact.transition_matrix(function, target)
        assert np.all(matrix[np.ix_(possible, ~possible)] == 0.0)
    sampler = LSBSampler(n_burn_in=300, n_chains=4, random_state=0).fit(target)
    lp = sampler.sample(500).coords["lp"]
    assert np.isfinite(lp).all()


@pytest.mark.parametrize("target", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("name", ["mixture", "monotone"])
def test_objectives(name, target):
    check_objectives(FUNCTIONS[name], target)


# ----------------------------------------------------------------- names, copies, size


def test_names():
    factor = ((0, 1), np.arange(1, 7).reshape(2, 3))
    network = MarkovNetwork([2, 3], [factor], names=["rain", "wet"])
    assert network.coords["site"].tolist() == ["rain", "wet"]
    assert MarkovNetwork([2, 3], []).coords["site"].tolist() == [0, 1]
    assert network.state_names is None
    given = network.condition({"wet": 2})
    assert given.log_prob([[1, 2]])[0] == pytest.approx(math.log(6), rel=4 * EPS)
    assert given.log_prob([[1, 1]])[0] == -INF
    sampler = LSBSampler("sqrt", n_burn_in=20, random_state=0).fit(given)
    x = sampler.sample(100)["x"]
    assert (x.sel(site="wet") == 2).all()
    assert x.sel(site="rain").max() == 1


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SeparatedModesWarning")
def test_the_warning_of_frozen_variables_has_a_name():
    tied = MarkovNetwork([2, 2, 2], [((1, 2), [[1, 0], [0, 1]])], names=["a", "b", "c"])
    sampler = LSBSampler("sqrt", lazy=0.5, n_burn_in=50, blocks=None, random_state=0).fit(tied)
    with pytest.warns(FrozenSitesWarning, match=r"2 of 3 .* \(the first is site 1, 'b'\)"):
        sampler.sample(100)


def test_repr():
    assert repr(MarkovNetwork([2, 5], [((0,), [1, 2])])) == (
        "MarkovNetwork(2 sites, 1 factors, 2 to 5 values)"
    )
    assert repr(MarkovNetwork([3], [])) == "MarkovNetwork(1 sites, 0 factors, 3 values)"


def test_pickle():
    network = random_network(1, zeros=0.3)[0]
    fresh = pickle.dumps(network)
    x = network.draw_state(np.random.default_rng(0))
    network.view(), network.log_ratios(x)
    assert pickle.dumps(network) == fresh  # nothing derived
    copy = pickle.loads(fresh)
    assert np.array_equal(copy.draw_state(np.random.default_rng(0)), x)
    assert np.array_equal(copy.log_ratios(x), network.log_ratios(x))


def test_n_possible():
    equal = np.eye(3)
    network = MarkovNetwork(
        [3, 3, 3, 2],
        [((0, 1), equal), ((1, 2), equal), ((0,), [0, 1, 1]), ((2, 3), np.ones((3, 2)))],
    )
    assert network.n_possible.tolist() == [2, 2, 2, 2]
    assert network.condition({3: 1}).n_possible.tolist() == [2, 2, 2, 1]
    # No table alone excludes a value here, though no state is possible.
    unequal = 1 - np.eye(2)
    odd = MarkovNetwork([2] * 3, [((0, 1), unequal), ((1, 2), unequal), ((0, 2), unequal)])
    assert odd.n_possible.tolist() == [2, 2, 2]


def held(value, seen):
    """Bytes of an object and of all that it refers to."""
    if id(value) in seen or isinstance(value, type) or callable(value):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, np.ndarray):
        return size if value.base is None else size + held(value.base, seen)
    if isinstance(value, dict):
        return size + sum(held(part, seen) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple):
        return size + sum(held(part, seen) for part in value)
    return size + (held(value.__dict__, seen) if hasattr(value, "__dict__") else 0)


@pytest.mark.parametrize("zeros", [False, True])
def test_memory(zeros):
    n, m = 5_000, 15_000
    rng = np.random.default_rng(0)
    i = rng.integers(n, size=m)
    pairs = np.stack([i, (i + rng.integers(1, n, m)) % n], axis=1)
    entries = rng.random((m, 2, 2)) + 0.1
    if zeros:
        entries[:, 0, 1] = 0.0
    network = MarkovNetwork(np.full(n, 2), zip(pairs, entries, strict=True))
    x = network.draw_state(rng)
    assert np.isfinite(network.log_prob(x))
    assert network.log_ratios(x).shape == (n,)
    assert network.view().log_table.size == 4 * m
    size = held(network, set()) / m
    assert size <= 500, f"{size:.0f} bytes per factor"


# ----------------------------------------------------------------- files


def same(found, wanted):
    assert found.cardinalities.tolist() == wanted.cardinalities.tolist()
    assert [scope for scope, _ in found.factors] == [scope for scope, _ in wanted.factors]
    for (_, mine), (_, other) in zip(found.factors, wanted.factors, strict=True):
        assert mine.dtype == np.float64
        assert np.array_equal(mine, other)


@pytest.mark.parametrize("settings", [{}, {"zeros": 0.3}, {"zeros": 0.3, "extreme": True}])
def test_uai_round_trip(settings, tmp_path):
    network = random_network(3, **settings)[0]
    path = tmp_path / "network.uai"
    network.to_uai(path)
    same(MarkovNetwork.from_uai(path), network)
    same(MarkovNetwork.from_uai(str(path)), network)


BAYES = """\
BAYES
3
2 2 3
3
1 0
2 0 1
3 0 1 2

2 0.3 0.7
4 0.9 0.1 4e-05 0.99996
12 .2 .3 .5 1 0 0 0 1 0 .1 .1 .8"""


def test_from_uai(tmp_path):
    path = tmp_path / "bayes.uai"
    path.write_text(BAYES)
    network = MarkovNetwork.from_uai(path)
    assert isinstance(network, MarkovNetwork)
    assert [scope for scope, _ in network.factors] == [(0,), (0, 1), (0, 1, 2)]
    assert network.factors[1][1].tolist() == [[0.9, 0.1], [4e-05, 0.99996]]
    assert network.log_prob([1, 0, 1]) == pytest.approx(math.log(0.7 * 4e-05), rel=4 * EPS)
    assert network.log_prob([1, 0, 0]) == -INF
    (tmp_path / "other").write_text("1\n2 1 0 2 1\n")
    (tmp_path / "none").write_text("0\n")
    x = exact.states(network)
    wanted = np.where((x[:, 1] == 0) & (x[:, 2] == 1), network.log_prob(x), -INF)
    for evidence in (tmp_path / "other", str(tmp_path / "other"), {1: 0, 2: 1}):
        given = MarkovNetwork.from_uai(path, evidence)
        assert np.array_equal(given.log_prob(x), wanted)
        assert given.n_possible.tolist() == [2, 1, 1]
    for evidence in (None, {}, tmp_path / "none"):
        assert np.array_equal(
            MarkovNetwork.from_uai(path, evidence).log_prob(x), network.log_prob(x)
        )
    (tmp_path / "wrong").write_text("1 9 0")
    with pytest.raises(io.UAIFormatError, match="line 1, column 3"):
        MarkovNetwork.from_uai(path, tmp_path / "wrong")
    (tmp_path / "wrong").write_text(BAYES.replace("4 0.9", "5 0.9"))
    with pytest.raises(io.UAIFormatError, match="line 10"):
        MarkovNetwork.from_uai(tmp_path / "wrong")
    with pytest.raises(ValueError, match="evidence names the variable 7"):
        MarkovNetwork.from_uai(path, {7: 0})


BIF = """\
network weather { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable wet { type discrete [ 3 ] { dry, damp, soaked }; }
probability ( rain ) { table 0.2, 0.8; }
probability ( wet | rain ) { (yes) 0.0, 0.25, 0.75; (no) 0.5, 0.5, 0.0; }
"""


def test_from_bif(tmp_path):
    path = tmp_path / "weather.bif"
    path.write_text(BIF)
    network = MarkovNetwork.from_bif(path)
    assert network.coords["site"].tolist() == ["rain", "wet"]
    assert network.state_names == (("yes", "no"), ("dry", "damp", "soaked"))
    assert network.cardinalities.tolist() == [2, 3]
    model = io.bif.read_bif(path)
    same(network, MarkovNetwork([2, 3], list(zip(model.scopes, model.tables, strict=True))))
    assert network.log_prob([0, 2]) == pytest.approx(math.log(0.2 * 0.75), rel=4 * EPS)
    assert network.log_prob([0, 0]) == -INF
    network.to_uai(tmp_path / "weather.uai")
    same(MarkovNetwork.from_uai(tmp_path / "weather.uai"), network)
    copy = pickle.loads(pickle.dumps(network))
    assert copy.state_names == network.state_names
    path.write_text(BIF.replace("0.75", "x"))
    with pytest.raises(io.FormatError, match="line 5"):
        MarkovNetwork.from_bif(path)


def test_evidence_by_names_of_values(tmp_path):
    path = tmp_path / "weather.bif"
    path.write_text(BIF)
    network = MarkovNetwork.from_bif(path)
    x = exact.states(network)
    wanted = np.where((x == [1, 0]).all(axis=-1), network.log_prob(x), -INF)
    for given in (
        network.condition({"rain": "no", "wet": "dry"}),
        network.condition({"rain": "no"}).condition({"wet": "dry"}),
        pickle.loads(pickle.dumps(network)).condition({0: "no", "wet": np.str_("dry")}),
        MarkovNetwork.from_bif(path, {"rain": np.str_("no"), 1: "dry"}),
        MarkovNetwork.from_bif(path, evidence={"rain": "no", "wet": "dry"}),
    ):
        assert np.array_equal(given.log_prob(x), wanted)
    assert isinstance(MarkovNetwork.from_bif(path, {}), MarkovNetwork)


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (
            {"wet": "dri"},
            r"evidence\['wet'\] is 'dri'; did you mean 'dry'\? .* \['dry', 'damp', 'soaked'\]",
        ),
        (
            {"wet": "wet"},
            r"\['dry', 'damp', 'soaked'\]\. Give one of these names\.",
        ),
        ({"rain": True}, r"evidence\['rain'\] is True; this variable takes one of 2 values"),
        (
            {"rain": 1},
            r"\['rain'\] is 1; .* \['yes', 'no'\]\. Give one of these names; positions are not acc",
        ),
        (
            {"Rain": "yes"},
            r"the variable 'Rain'; did you mean 'rain'\? the target has 2 variables, ",
        ),
        ({"snow": 1}, r"the variable 'snow'; .* with names like \['rain', 'wet'\]"),
        (
            {"rain": "no", 0: "no"},
            "evidence gives variable 'rain' twice, as 'rain' and 0; keep one",
        ),
        ({"rain": "yes", "wet": "dry"}, "{'rain': 'yes', 'wet': 'dry'} is impossible tog"),
    ],
)
def test_wrong_names_of_values(tmp_path, evidence, message):
    path = tmp_path / "weather.bif"
    path.write_text(BIF)
    network = MarkovNetwork.from_bif(path)
    for condition in (network.condition, network.condition({}).condition):
        with pytest.raises(ValueError, match=message):
            condition(evidence)


def test_more_evidence_of_probability_zero(tmp_path):
    path = tmp_path / "weather.bif"
    path.write_text(BIF)
    rainy = MarkovNetwork.from_bif(path, {"rain": "yes"})
    with pytest.raises(ValueError, match=r"{'rain': 'yes', 'wet': 'dry'} is impossible"):
        rainy.condition({"wet": "dry"})
    with pytest.raises(ValueError, match="sets variable 'rain' to no; it was observed as yes"):
        rainy.condition({"rain": "no"})


@pytest.mark.parametrize(
    "target",
    [
        Ising.from_binary([[0, 2, 0], [2, 0, -1], [0, -1, 0]], thresholds=[-1, -0.5, 3]),
        Ising.lattice(np.linspace(-2, 2, 6).reshape(2, 3), 0.7),
        Potts([[0, 1.5], [1.5, 0]], field=[[0, 1, -np.inf], [0.5, -2, 3]]),
    ],
)
def test_couplings_as_tables_of_a_file(tmp_path, target):
    target.to_uai(tmp_path / "model.uai")
    read = MarkovNetwork.from_uai(tmp_path / "model.uai")
    x = exact.states(target)
    places = np.searchsorted(target.values, x)
    np.testing.assert_allclose(read.log_prob(places), target.log_prob(x), atol=1e-12)
    assert exact.log_partition(read) == pytest.approx(exact.log_partition(target), abs=1e-12)
    large = type(target)(800.0 * (1 - np.eye(2)), field=np.zeros((2, 3)[: target.field.ndim]))
    with pytest.raises(ValueError, match=r"the entry exp\(800\) or its inverse"):
        large.to_uai(tmp_path / "large.uai")


def test_tables_that_are_no_probabilities(tmp_path):
    path = tmp_path / "weather.bif"
    path.write_text(BIF.replace("0.25, 0.75", "0.25, 0.7501"))
    MarkovNetwork.from_bif(path)
    path.write_text(BIF.replace("0.25, 0.75", "0.25, 0.5"))
    message = (
        r"The probabilities of variable 'wet' given its parents sum to 0.75 in one case, not to 1"
        r"\. The tables are taken as they are"
    )
    with pytest.warns(ModelWarning, match=message) as seen:
        network = MarkovNetwork.from_bif(path)
    assert seen[0].filename == __file__
    assert network.log_prob([0, 2]) == pytest.approx(math.log(0.2 * 0.5), rel=4 * EPS)
    path.write_text(BAYES.replace("0.9 ", "0.5 ").replace("0.7", "0.8"))
    with pytest.warns(ModelWarning, match="of variable 0 given .*, nor do those of 1 others"):
        MarkovNetwork.from_uai(path)
    path.write_text("MARKOV 1 2 1 1 0 2 3 4")
    MarkovNetwork.from_uai(path)


def test_what_cannot_fit_into_memory_is_refused(monkeypatch):
    network = MarkovNetwork([30_000] * 60, [((0,), np.ones(30_000))])
    wide = MarkovNetwork([300, 300], [((0, 1), np.ones((300, 300)))])
    assert wide.view().touched.size == (2 * 299) ** 2
    monkeypatch.setattr("sklsb._system.memory.available", lambda: 1024)
    message = r"moves that each move touches takes \d+ bytes \(.* GB\), and 0.00102 MB of memory"
    with pytest.raises(MemoryError, match=message):
        network.view()
    wide = pickle.loads(pickle.dumps(wide))
    with pytest.raises(MemoryError, match="give them fewer"):
        LSBSampler("sqrt", n_burn_in=5).fit(wide)
    for target in (
        RBM(np.zeros((600, 1))),
        Potts(np.zeros((50, 50)), np.zeros((50, 120))),
        FunctionTarget(lambda x: 0.0, 600),
        VariableSelection(np.random.default_rng(0).normal(size=(9, 600)), np.arange(9)),
    ):
        with pytest.raises(MemoryError, match="give them fewer"):
            target.view()


@pytest.mark.parametrize("method", ["get_cpds", "get_factors"])
def test_from_pgmpy(method):
    rng = np.random.default_rng(0)
    parts = [
        SimpleNamespace(
            variables=["b", "a"], cardinality=np.array([3, 2]), values=rng.random((3, 2))
        ),
        SimpleNamespace(variables=["a"], cardinality=[2], values=np.array([0.0, 2.0])),
        SimpleNamespace(variables=["a", 7], cardinality=[2, 4], values=rng.random(8)),
    ]
    network = MarkovNetwork.from_pgmpy(SimpleNamespace(**{method: lambda: iter(parts)}))
    assert network.coords["site"].tolist() == ["b", "a", "7"]
    assert network.cardinalities.tolist() == [3, 2, 4]
    assert [scope for scope, _ in network.factors] == [(0, 1), (1,), (1, 2)]
    for (_, table), part in zip(network.factors, parts, strict=True):
        assert np.array_equal(table.ravel(), part.values.ravel())


def test_from_pgmpy_needs_factors():
    with pytest.raises(TypeError, match="model is 3; give a pgmpy model, with get_cpds or get_fac"):
        MarkovNetwork.from_pgmpy(3)


# ----------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("k", "factors", "names", "error", "message"),
    [
        ([[2]], [], None, TypeError, r"cardinalities\[0\] is \[2\]; give an integer of at least 1"),
        ([2.0], [], None, TypeError, r"cardinalities\[0\] is 2.0; give an integer"),
        ([2, 0], [], None, ValueError, r"cardinalities\[1\] is 0; it must be from 1 to 32768"),
        ([40000], [], None, ValueError, r"cardinalities\[0\] is 40000; it must be from 1 to 32768"),
        ([2, -1], [], None, ValueError, r"cardinalities\[1\] is -1; "),
        ([2], [3], None, TypeError, r"factor 0 is 3; give a pair \(scope, table\)"),
        ([2], [((0,),)], None, TypeError, r"factor 0 is .*; give a pair"),
        ([2], [((0.0,), [1, 2])], None, TypeError, r"scope of factor 0 is \[0.0\]; give integers"),
        (
            [2],
            [((0, [1]), [1])],
            None,
            TypeError,
            r"scope of factor 0 is \[0, \[1\]\]; give integers",
        ),
        (
            [2],
            [((1,), [1, 2])],
            None,
            ValueError,
            r"factor 0 is \(1,\); there are 1 variables, from",
        ),
        (
            [2],
            [((-1,), [1, 2])],
            None,
            ValueError,
            r"factor 0 is \(-1,\); there are 1 variables, from",
        ),
        ([], [((0,), [1])], None, ValueError, r"factor 0 is \(0,\); there are 0 variables"),
        (
            [2, 2],
            [((0,), [1, 2]), ((1, 1), np.ones((2, 2)))],
            None,
            ValueError,
            r"scope of factor 1 is \(1, 1\); name each variable once",
        ),
        ([2], [((0,), ["a", "b"])], None, TypeError, "table 0 has dtype <U1; give real numbers"),
        ([2], [((0,), [1j, 1])], None, TypeError, "table 0 has dtype complex128; give real"),
        ([2], [((0,), [[1], [1, 2]])], None, ValueError, "table 0 is not an array of numbers"),
        (
            [2, 3],
            [((1, 0), np.ones((2, 3)))],
            None,
            ValueError,
            r"table 0 has shape \(2, 3\); its scope \(1, 0\) needs \(3, 2\)\.",
        ),
        ([2, 3], [((0,), np.ones(3))], None, ValueError, r"shape \(3,\); its scope \(0,\) needs"),
        ([2], [((), [1, 2])], None, ValueError, r"table 0 has shape \(2,\); its scope \(\) needs"),
        ([2], [((0,), [1, -2])], None, ValueError, "table 0 has the entry -2.0; entries must be"),
        ([2], [((0,), [1, np.nan])], None, ValueError, "table 0 has the entry nan; entries must"),
        ([2], [((), 1), ((0,), [INF, 1])], None, ValueError, "table 1 has the entry inf; entries"),
        ([2], [((), 1), ((0,), [0, 0])], None, ValueError, "table 1 is zero throughout: no state"),
        ([2], [((), 0)], None, ValueError, "table 0 is zero throughout"),
        ([2, 2], [], ["a"], ValueError, "names has 1 entries, 1 of them distinct; .* 2 in all"),
        ([2, 2], [], ["a", "a"], ValueError, "names has 2 entries, 1 of them distinct"),
    ],
)
def test_wrong_input(k, factors, names, error, message):
    with pytest.raises(error, match=message):
        MarkovNetwork(k, factors, names)


def test_wrong_states():
    network = MarkovNetwork([2, 3], [])
    with pytest.raises(ValueError, match=r"x has shape \(3,\); the target needs"):
        network.log_prob([0, 0, 0])
    with pytest.raises(ValueError, match=r"x\[0\] is 2; this variable takes one of .*\(0, 1\)"):
        network.log_ratios([2, 2])
    with pytest.raises(ValueError, match=r"x\[1, 1\] is 3; this variable takes .*\(0, 1, 2\)"):
        network.log_prob([[0, 0], [1, 3]])


# ----------------------------------------------------------------- a start in the support

UNEQUAL = 1 - np.eye(2)


@pytest.mark.parametrize(
    ("k", "factors", "factor"),
    [
        ([2], [((0,), [1, 0]), ((0,), [0, 1])], "[01]"),
        ([2, 2], [((0,), [1, 0]), ((0, 1), np.eye(2)), ((1,), [0, 1])], "[012]"),
        ([3, 3], [((), 1), ((0, 1), np.eye(3)), ((0,), [1, 0, 0]), ((1,), [0, 1, 1])], "[123]"),
    ],
)
def test_unsatisfiable_by_single_tables(k, factors, factor):
    network = MarkovNetwork(k, factors)
    rng = np.random.default_rng(0)
    message = f"^No state has positive probability: factor {factor} over the variables"
    with pytest.raises(ValueError, match=message):
        network.draw_state(rng)
    with pytest.raises(ValueError, match=message):
        LSBSampler("sqrt", n_burn_in=5).fit(network)


def test_unsatisfiable_by_several_tables():
    # A cycle of odd length has no colouring by two colours.
    for n in (3, 5, 21):
        cycle = [((i, (i + 1) % n), UNEQUAL) for i in range(n)]
        network = MarkovNetwork([2] * (n + 4), cycle)
        message = r"No state of positive .* factor \d+ over the variables \(\d+, \d+\) was most"
        with pytest.raises(ValueError, match=message):
            network.draw_state(np.random.default_rng(0))
        even = MarkovNetwork([2] * n, cycle[1:])
        assert np.isfinite(even.log_prob(even.draw_state(np.random.default_rng(0))))


@pytest.mark.parametrize("evidence", [{0: 1, 1: 0}, {1: 0, 0: 1, 3: 1}, {0: 1, 2: 0}])
def test_unsatisfiable_evidence(evidence):
    network = MarkovNetwork([2] * 4, [((0, 1), np.eye(2)), ((1, 2), np.eye(2))])
    clash = {site: value for site, value in sorted(evidence.items()) if site < 3}
    with pytest.raises(ValueError, match=f"probability zero: {clash} is impossible together"):
        network.condition(evidence)


def test_a_start_that_needs_a_search():
    # Colourings of a graph by three colours, with variables beside that nothing constrains.
    rng = np.random.default_rng(0)
    hidden = rng.integers(3, size=40)
    pairs = [(i, j) for i, j in itertools.combinations(range(40), 2) if hidden[i] != hidden[j]]
    some = [pairs[e] for e in rng.permutation(len(pairs))[:90]]
    k = [3] * 40 + [1, 2, 5]
    network = MarkovNetwork(k, [(pair, 1 - np.eye(3)) for pair in some])
    starts = {network.draw_state(np.random.default_rng(seed)).tobytes() for seed in range(5)}
    assert len(starts) == 5
    for start in starts:
        assert np.isfinite(network.log_prob(np.frombuffer(start, network.dtype)))
    given = network.condition({0: 2, 42: 4})
    x = given.draw_state(rng)
    assert x[[0, 42]].tolist() == [2, 4]
    assert np.isfinite(given.log_prob(x))


def test_random_state_depends_on_the_seed_alone():
    for network in (random_network(0)[0], random_network(0, zeros=0.3)[0]):
        first = [network.draw_state(np.random.default_rng(seed)) for seed in range(10)]
        again = [network.draw_state(np.random.default_rng(seed)) for seed in range(10)]
        assert np.array_equal(first, again)
        assert len({x.tobytes() for x in first}) > 1


def frequencies(target, n=4000):
    rng = np.random.default_rng(0)
    drawn = np.stack([target.draw_state(rng) for _ in range(n)])
    index = {x.tobytes(): i for i, x in enumerate(exact.states(target))}
    return np.bincount([index[x.tobytes()] for x in drawn], minlength=len(index))


@pytest.mark.parametrize("child_first", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_bayesian_network_starts_with_draws_from_it(zeros, child_first):
    rng = np.random.default_rng(1)
    k = np.array([2, 3, 2, 1])
    factors = []
    for scope in ((2,), (2, 0), (0, 2, 1), (1, 3)):  # the last one given the others
        table = rng.random(k[list(scope)]) + 0.05
        if zeros and len(scope) == 3:
            table[:, 1, 0] = table[1, 0, 2] = 0.0
        table /= table.sum(axis=-1, keepdims=True)
        if child_first:
            scope, table = (scope[-1], *scope[:-1]), np.moveaxis(table, -1, 0)
        factors.append((scope, table))
    network = MarkovNetwork(k, factors[::-1])
    p = exact.probabilities(network)
    count = frequencies(network)
    assert np.all(count[p == 0.0] == 0)
    assert stats.chisquare(count[p > 0], 4000 * p[p > 0]).pvalue > 1e-3


def test_without_zeros_the_start_is_uniform():
    network = random_network(2, d=4)[0]
    count = frequencies(network)
    assert network.cardinalities.max() > 2
    assert stats.chisquare(count).pvalue > 1e-3


def files(*patterns):
    """Published files, or one skipped case that says where they were looked for."""
    found = sorted(path for pattern in patterns for path in DATA.glob(pattern))
    reason = f"no {patterns} in {DATA}; set SKLSB_DATA"
    return [pytest.param(path, id=path.name) for path in found] or [
        pytest.param(None, marks=pytest.mark.skip(reason=reason))
    ]


@pytest.mark.parametrize("path", files("uai/*.uai", "bif/*.bif.gz"))
def test_published_networks_have_a_start(path):
    network = (MarkovNetwork.from_bif if path.suffix == ".gz" else MarkovNetwork.from_uai)(path)
    evidence = [path.with_name(path.name + ".evid"), path.with_suffix(".synthetic.evid")]
    targets = [network]
    targets += [MarkovNetwork.from_uai(path, file) for file in evidence if file.exists()]
    for target in targets:
        x = target.draw_state(np.random.default_rng(0))
        assert np.isfinite(target.log_prob(x))
        assert np.array_equal(target.draw_state(np.random.default_rng(0)), x)

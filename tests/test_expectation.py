"""Statistics of functions of the state: exact against enumeration, of draws within their errors."""

from functools import cache

import networkx as nx
import numpy as np
import pytest
import xarray as xr
from models import dense, ising

from sklsb import GibbsSampler, Ising, MarkovNetwork, Potts, exact, open_draws
from sklsb.diagnostics import expectation, to_frame
from sklsb.diagnostics.draws import draws_dataset
from sklsb.exceptions import SamplerWarning

NAMED = MarkovNetwork(
    [2, 3, 2],
    [(["a", "b"], [[1, 2, 0], [4, 0, 3]]), (["a", "b", "c"], np.arange(1.0, 13.0))],
    names=["a", "b", "c"],
)
TARGETS = {
    "dense": dense(6, 1, 0.4),
    "grid": Ising.lattice(np.linspace(-1, 1, 9).reshape(3, 3), 0.3),
    "observed": Ising.lattice(np.linspace(-1, 1, 9).reshape(3, 3), 0.3).condition({(1, 1): -1}),
    "potts": Potts(0.5 * (np.ones((4, 4)) - np.eye(4)), np.arange(12.0).reshape(4, 3) / 9),
    "network": NAMED,
    "given": NAMED.condition({"c": 1}),
}


def enumerated(target):
    x, p = exact.states(target), exact.probabilities(target)
    return x[p > 0].astype(float), p[p > 0]


@pytest.mark.parametrize("name", TARGETS)
def test_exact_means_and_variances_are_those_of_enumeration(name):
    target = TARGETS[name]
    x, p = enumerated(target)
    total = x.sum(axis=1)
    found = expectation(target, "sum")
    assert found.value == pytest.approx(p @ total, abs=1e-12)
    assert found.mcse == 0.0
    variance = p @ total**2 - (p @ total) ** 2
    assert expectation(target, "sum", of="variance").value == pytest.approx(variance, abs=1e-11)
    lp = target.log_prob(x.astype(int))
    assert expectation(target).value == pytest.approx(p @ lp, abs=1e-11)


def test_sums_of_named_terms():
    x, p = enumerated(NAMED)
    a, b, c = x.astype(int).T
    pairs, alone, triple = np.arange(6.0).reshape(3, 2), [1.0, -4.0], np.arange(12.0) ** 2
    triple = triple.reshape(2, 2, 3)
    terms = [(["b", "c"], pairs), (["a"], alone), (["c", "a", "b"], triple), ([], 7.0)]
    values = pairs[b, c] + np.array(alone)[a] + triple[c, a, b] + 7.0
    assert expectation(NAMED, terms).value == pytest.approx(p @ values)
    draws = exact.sample(NAMED, 4000, random_state=0)
    found = expectation(draws, terms, NAMED)
    assert abs(found.value - p @ values) < 4 * found.mcse


def test_statistics_of_draws_lie_within_their_errors():
    """Of 40 runs of slow chains about 95 % of truths lie within two errors."""
    target = Ising.lattice(np.full((3, 3), 0.1), 0.25)
    x, p = enumerated(target)
    lp, total = target.log_prob(x.astype(int)), x.sum(axis=1)
    m = [p @ total**k for k in range(5)]
    truth = {
        (None, "mean"): p @ lp,
        (None, "variance"): p @ lp**2 - (p @ lp) ** 2,
        ("sum", "variance"): m[2] - m[1] ** 2,
        ("sum", "binder"): 1 - m[4] / (3 * m[2] ** 2),
    }
    sampler = GibbsSampler("random", n_burn_in=300, random_state=0).fit(target)
    off = {case: [] for case in truth}
    for _ in range(40):
        draws = sampler.sample(400, thin=3)
        for (function, of), value in truth.items():
            found = expectation(draws, function, of=of)
            off[function, of].append((found.value - value) / found.mcse)
    for case, z in off.items():
        assert np.mean(np.abs(z) < 2) >= 0.85, case
        assert 0.6 < np.std(z) < 1.4, case


def test_functions_of_means_and_arrays():
    draws = exact.sample(TARGETS["dense"], 500, random_state=1)
    x = draws["x"].values[0].astype(float)
    found = expectation(draws, lambda x: x * x.sum(axis=1)[:, None])
    np.testing.assert_allclose(found.value, (x * x.sum(axis=1)[:, None]).mean(axis=0))
    assert found.mcse.shape == (6,)
    pair = expectation(draws, lambda x: x[:, :2], of=lambda means: means[0] / means[1])
    assert pair.value == pytest.approx(x[:, 0].mean() / x[:, 1].mean())
    assert pair.mcse > 0
    # The jackknife of a mean is the error by batch means, and of a product that by its gradient.
    product = expectation(draws, lambda x: x[:, :2] + 3, of=lambda means: means[0] * means[1])
    linear = expectation(draws, lambda x: (x[:, :2] + 3) @ (x[:, :2].mean(axis=0)[::-1] + 3))
    assert product.mcse == pytest.approx(linear.mcse, rel=0.02)


def test_recorded_statistics_and_states_of_spins():
    draws = xr.Dataset({"m": (("chain", "draw"), np.arange(40.0).reshape(2, 20) % 7)})
    assert expectation(draws, "m").value == pytest.approx(draws["m"].mean().item())
    big = draws_dataset(np.ones((1, 16, 300), np.int8), Ising(np.zeros((300, 300))))
    with pytest.warns(SamplerWarning, match="the same in all draws, so mcse is NaN"):
        found = expectation(big, lambda x: x[:, 0] * x.sum(axis=1))  # which int8 cannot hold
    assert found.value == 300
    assert np.isnan(found.mcse)  # it never changed
    assert np.isnan(expectation(draws.isel(draw=slice(0, 3)), "m").mcse)  # too few batches


def test_visits_of_replicas_widen_errors():
    rng = np.random.default_rng(0)
    x = rng.choice(np.array([-1, 1], np.int8), (2, 640, 1))
    visit = np.arange(640) // 10
    slow = np.where(visit % 2, 1, -1)[np.newaxis, rng.permutation(640)]  # batches see no visits
    x[:, :, 0] = slow
    visit = np.broadcast_to((slow[0] > 0) + 2 * (np.arange(640) % 8), (2, 640))
    draws = draws_dataset(x, Ising(np.zeros((1, 1))))
    plain = expectation(draws, "sum")
    wide = expectation(draws.assign_coords(visit=(("chain", "draw"), visit)), "sum")
    assert wide.value == plain.value
    sums = [x[c, visit[c] == v, 0].sum() for c in (0, 1) for v in np.unique(visit)]
    by_visit = np.sqrt(np.square(sums).sum() * len(sums) / (len(sums) - 1)) / 1280
    assert wide.mcse == pytest.approx(by_visit, rel=0.1)
    assert wide.mcse > 2 * plain.mcse
    alone = draws.assign_coords(visit=(("chain", "draw"), np.zeros((2, 640))))
    assert np.isfinite(expectation(alone, "sum").mcse)  # one visit of each chain
    one = draws.isel(chain=[0]).assign_coords(visit=(("chain", "draw"), np.zeros((1, 640))))
    assert np.isnan(expectation(one, "sum").mcse)


@cache
def drawn():
    return exact.sample(NAMED, 10, random_state=0)


@pytest.mark.parametrize(
    ("arguments", "of", "error", "message"),
    [
        (
            (drawn,),
            "median",
            ValueError,
            "of is 'median'; give .mean., .variance., .binder. or",
        ),
        ((7,), "mean", TypeError, "source is of type int; give draws"),
        ((drawn, "m"), "mean", ValueError, r"draws has \[.*'x'\], and function is 'm'; give one"),
        ((drawn, lambda x: x[:2]), "mean", ValueError, r"shape \(2, 3\) for 10 states; it must"),
        (
            (drawn, lambda x: x[:, 0] / 0.0),
            "mean",
            ValueError,
            "not finite; an expectation needs",
        ),
        (
            (drawn, [(["a"], [0, 1])]),
            "mean",
            TypeError,
            "target is None; for a list of terms give",
        ),
        ((NAMED, len), "mean", TypeError, r"for a target give None \(log p\), \"sum\""),
        ((NAMED, "mean"), "mean", TypeError, "function is 'mean'; for a target give"),
        ((NAMED, [("a", [0, 1])]), "mean", TypeError, r"term over 'a'; give a list .* \['a'\]"),
        ((NAMED, [(["d"], [0, 1])]), "mean", ValueError, "function names 'd'; the target has 3"),
        ((NAMED, [(["b"], [0, 1])]), "mean", ValueError, r"shape \(2,\); give finite .* \(3,\)"),
        ((NAMED,), "variance", ValueError, r"'variance' and a term of the 2 variables \(0, 1\)"),
        ((NAMED, "sum"), "binder", ValueError, r"'binder'; for a target .*exact\.sample"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_what_is_refused(arguments, of, error, message):
    with pytest.raises(error, match=message):
        expectation(*(drawn() if part is drawn else part for part in arguments), of=of)


def test_a_target_has_one_temperature():
    with pytest.raises(
        ValueError, match=r"betas is \[0\.5\], and source is a target, which has one"
    ):
        expectation(NAMED, "sum", betas=[0.5])


# ----------------------------------------------------------------- 0 and 1


@pytest.mark.parametrize("sparse", [False, True])
def test_functions_see_0_and_1_where_values_are_called_so(sparse):
    """As "sum" does, which needs the target: states hold spins."""
    rng = np.random.default_rng(4)
    weights = np.triu(rng.normal(size=(5, 5)), 1)
    weights += weights.T
    target = Ising.from_binary(Ising(weights).couplings if sparse else weights, rng.normal(size=5))
    draws = exact.sample(target, 500, random_state=0)
    many = (to_frame(draws, target)[range(5)].sum(axis=1) >= 3).mean()
    of = expectation(draws, lambda x: 1.0 * (x.sum(axis=1) >= 3), target)
    np.testing.assert_allclose(of.value, many, atol=1e-12)
    assert 0.1 < many < 0.9
    for function in ("sum", lambda x: x.sum(axis=1)):
        with pytest.raises(ValueError, match=r"target is missing, .* other numbers; give expect"):
            expectation(draws, function)
    for function in ("sum", lambda x: x.sum(axis=1), [([0], [0.0, 1.0])]):
        with pytest.raises(ValueError, match=r"draws has x of .*'site': 5}; give .*'site': 3}"):
            expectation(draws, function, Ising(np.zeros((3, 3))))


@pytest.mark.parametrize("sparse", [False, True])
def test_variables_of_0_and_1(sparse):
    rng = np.random.default_rng(3)
    weights = np.triu(rng.normal(size=(5, 5)), 1)
    weights += weights.T
    tau = rng.normal(size=5)
    given = Ising(weights).couplings if sparse else weights
    target = Ising.from_binary(given, tau)
    z = (np.arange(32)[:, None] >> np.arange(5)) & 1
    lp = z @ tau + 0.5 * np.einsum("ni,ij,nj->n", z, weights, z)
    np.testing.assert_allclose(target.log_prob(2 * z - 1), lp, atol=1e-12)
    for same in (z, z.astype(np.uint8), z.astype(bool)):
        np.testing.assert_array_equal(target.log_prob(same), target.log_prob(2 * z - 1))
    seen = target.condition({2: 1})
    np.testing.assert_allclose(seen.log_prob(z), np.where(z[:, 2], lp, -np.inf), atol=1e-12)
    with pytest.raises(ValueError, match="is 0; every variable"):
        target.log_prob([0, 1, -1, 1, 1])
    with pytest.raises(ValueError, match=r"nan; .* \(0, 1\), or \(-1, 1\); drop or fill"):
        target.log_prob([0, 1, np.nan, 1, 1])
    with pytest.raises(ValueError, match="is 0; every variable"):
        Ising(weights).log_prob(z)
    log_z = np.log(np.exp(lp).sum())
    assert exact.log_partition(target) == pytest.approx(log_z, abs=1e-12)
    p = np.exp(lp - log_z)
    np.testing.assert_allclose(exact.marginals(target)["p"].sel(state=1), p @ z, atol=1e-12)
    on = z[:, 2] == 1
    np.testing.assert_allclose(
        exact.marginals(target, {2: 1})["p"].sel(state=1), p[on] @ z[on] / p[on].sum()
    )


def test_sums_of_what_has_no_number():
    tables = {"a": {"yes": 0.3, "no": 0.7}, "b": {"no": 0.5, "yes": 0.5}}
    network = MarkovNetwork.from_tables(tables)
    draws = exact.sample(network, 8, random_state=0)
    for arguments in [(network, "sum"), (draws, "sum"), (draws, "sum", network)]:
        with pytest.raises(ValueError, match="positions; give terms, as"):
            expectation(*arguments)
    terms = [(["a"], [1, 0]), (["b"], [0, 1])]
    assert expectation(network, terms).value == pytest.approx(0.8)
    assert expectation(draws, lambda x: x.sum(axis=1)).value == draws["x"].sum("site").mean()
    for names in [("0", "1"), (0, 1), (False, True)]:
        same = MarkovNetwork([2], [(["a"], [0.3, 0.7])], ["a"], [names])
        draws = exact.sample(same, 8, random_state=0)
        assert expectation(same, "sum").value == pytest.approx(0.7)
        assert expectation(draws, "sum").value == draws["x"].mean()


def test_stored_draws_know_what_values_are_called(tmp_path):
    pytest.importorskip("zarr")
    target = Ising.from_binary([[0.0, 1.0], [1.0, 0.0]], -0.5)
    sampler = GibbsSampler(n_burn_in=5, random_state=0).fit(target)
    sampler.sample(20, store=tmp_path / "run")
    draws = open_draws(tmp_path / "run")
    with pytest.raises(ValueError, match="target is missing"):
        expectation(draws, "sum")
    assert expectation(draws, "sum", target).value == (draws["x"] > 0).sum("site").mean()


def test_names_of_symptoms():
    graph = nx.Graph()
    graph.add_edge("sleep", "energy", weight=1.5)
    pandas = pytest.importorskip("pandas")
    target = Ising.from_binary(graph, pandas.Series({"energy": -1.0, "sleep": -2.0}))
    table = to_frame(exact.marginals(target)).set_index(["variable", "value"])["p"]
    weight = np.exp([0.0, -2.0, -1.0, -1.5])
    assert table["sleep", 1] == pytest.approx(weight[[1, 3]].sum() / weight.sum())
    draws = to_frame(exact.sample(target, 5, {"sleep": 0}, random_state=0), target)
    assert draws["sleep"].tolist() == [0] * 5
    with pytest.raises(
        ValueError, match=r"evidence\['sleep'\] is -1; .*\[0, 1\]\. Give one of these names; pos"
    ):
        target.condition({"sleep": -1})
    number = (table.xs(1, level="value") * 1.0).sum()
    assert expectation(target, "sum").value == pytest.approx(number)
    draws = exact.sample(target, 9, random_state=0)
    count = to_frame(draws, target)[["sleep", "energy"]].sum(axis=1).mean()
    assert expectation(draws, "sum", target).value == pytest.approx(count)
    with pytest.raises(ValueError, match=r"weights.diagonal\(\)\[1\] is 2.0; it must be 0: thresh"):
        Ising.from_binary(np.diag([0.0, 2.0]))


def test_spins_of_a_graph_are_as_before():
    assert ising(nx.path_graph(3)).state_names is None

"""Models of PyMC as targets: against log p as PyMC computes it."""

import functools
import itertools
import pickle

import numpy as np
import pytest
import xarray as xr
from processes import run_python

from sklsb import GibbsSampler, LSBSampler, anneal, from_pymc
from sklsb.diagnostics import to_frame

pm = pytest.importorskip("pymc", reason="PyMC is optional, and needs Python 3.12 or later")
import pytensor  # noqa: E402
import pytensor.tensor as pt  # noqa: E402

PLAIN = pytensor.compile.Mode(linker="py", optimizer="fast_compile")


def states(target):
    return np.array(list(itertools.product(*map(range, target.cardinalities))), target.dtype)


@functools.cache
def compiled(model):
    """The function log p of PyMC, in plain Python: not compiled by numba."""
    return model.compile_logp(mode=PLAIN)


def log_p_of_model(model, target, x):
    """log p by PyMC at the values that states stand for."""
    values = target.to_dataset(xr.Dataset({"x": (("draw", "site"), x)}))
    points = [{v.name: values[v.name].values[i] for v in model.free_RVs} for i in range(len(x))]
    return np.array([compiled(model)(point) for point in points])


@pytest.fixture(scope="module")
def model():
    """Scalars and arrays, with and without coordinates, data, a potential, a deterministic."""
    with pm.Model(coords={"group": ["a", "b"], "year": [10, 20]}) as made:
        z = pm.Categorical("z", p=pm.Data("p", [0.2, 0.3, 0.5]), dims="group")
        k = pm.DiscreteUniform("k", 3, 5)
        b = pm.Bernoulli("b", 0.3, shape=2)
        n = pm.Binomial("n", n=[1, 2], p=0.2, dims="year")
        seen = pm.Data("seen", [0.3, 1.2])
        pm.Normal("y", z * k / 5.0 + b[0] - n[1], 1.0, observed=seen)
        pm.Potential("apart", -0.7 * pt.eq(z[0], z[1]) * (1 + b[1]))
        pm.Deterministic("twice", 2 * k)
    return made


@pytest.fixture(scope="module")
def target(model):
    return from_pymc(model)


def test_log_p_is_that_of_the_model(model, target):
    names = ["z[a]", "z[b]", "k", "b[0]", "b[1]", "n[10]", "n[20]"]
    assert target.names == names
    assert target.cardinalities.tolist() == [3, 3, 3, 2, 2, 2, 3]
    assert repr(target) == "PyMCNetwork(7 sites, 4 factors, 2 to 3 values)"
    x = states(target)
    np.testing.assert_allclose(target.log_prob(x), log_p_of_model(model, target, x), rtol=1e-12)


def test_draws_are_those_of_the_model(model, target):
    x = states(target)
    p = np.exp(log_p_of_model(model, target, x))
    p /= p.sum()
    values = x + np.array([0, 0, 3, 0, 0, 0, 0])
    mean = p @ values
    sd = np.sqrt(p @ (values - mean) ** 2)
    for sampler in (LSBSampler("sqrt", random_state=0), GibbsSampler("random", random_state=0)):
        draws = target.to_dataset(sampler.fit(target).sample(2000, thin="sweep"))
        flat = np.concatenate(
            [draws[rv.name].values.reshape(8000, -1) for rv in model.free_RVs], axis=1
        )
        # 8,000 draws are worth more than 2,000.
        assert (np.abs(flat.mean(axis=0) - mean) < 5 * sd / np.sqrt(2000)).all()


def test_draws_have_the_dims_of_the_model(model, target):
    import arviz

    draws = GibbsSampler("random", n_chains=2, random_state=0).fit(target).sample(200, thin="sweep")
    found = target.to_dataset(draws)
    assert {name: one.dims[2:] for name, one in found.data_vars.items()} == {
        "z": ("group",),
        "k": (),
        "b": ("b_dim_0",),
        "n": ("year",),
    }
    assert found["z"].shape == (2, 200, 2)
    assert found["z"].dtype == np.int64
    assert found["group"].values.tolist() == ["a", "b"]
    assert found["year"].values.tolist() == [10, 20]
    np.testing.assert_array_equal(found["lp"], draws["lp"])
    np.testing.assert_array_equal(found["z"].values, draws["x"].values[..., :2])
    np.testing.assert_array_equal(found["n"].values, draws["x"].values[..., 5:])
    np.testing.assert_array_equal(found["k"].values, draws["x"].values[..., 2] + 3)
    assert arviz.summary(found).index.tolist() == target.names
    more = pm.compute_deterministics(found, model=model, progressbar=False)
    np.testing.assert_array_equal(more["twice"], 2 * found["k"])
    best = target.to_dataset(anneal(target, n_sweeps=5, random_state=0))
    assert best["z"].dims == ("chain", "group")


@pytest.mark.parametrize("given", [None, 6])
def test_to_dataset_needs_states_of_the_target(target, given):
    draws = xr.Dataset({} if given is None else {"x": (("draw", "site"), np.zeros((1, given)))})
    with pytest.raises(ValueError, match=r"draws has .*; give what sample returned for this targ"):
        target.to_dataset(draws)


def test_evidence_is_in_values_of_the_model(model, target):
    given = target.condition({"k": 4, "z[b]": np.int64(2), "n[20]": "1"})
    assert given.observed_sites.tolist() == [1, 2, 6]
    assert given.observed.tolist() == [2, 1, 1]
    x = states(target)
    x = x[(x[:, [1, 2, 6]] == [2, 1, 1]).all(axis=1)]
    np.testing.assert_allclose(given.log_prob(x), log_p_of_model(model, target, x), rtol=1e-12)
    with pytest.raises(ValueError, match=r"\['k'\] is 2; .* one of 3 values, .*'3', '4', '5'"):
        target.condition({"k": 2})
    assert target.condition({"k": 4.0, "b[0]": True}).observed.tolist() == [1, 1]
    for value in (3.5, "3.0", "", None, float("nan")):
        with pytest.raises(ValueError, match=r"evidence\['k'\] is "):
            target.condition({"k": value})
    with pytest.raises(ValueError, match=r"names the variable 'z\[c\]'"):
        target.condition({"z[c]": 0})
    draws = GibbsSampler("random", random_state=0).fit(given).sample(50, thin="sweep")
    assert to_frame(draws, given)["k"].unique().tolist() == ["4"]
    assert (target.to_dataset(draws)["k"] == 4).all()


def test_values_are_those_of_positive_probability():
    with pm.Model() as model:
        pm.Bernoulli("bernoulli", 0.3)
        pm.Bernoulli("by_logit", logit_p=0.3)
        pm.Categorical("categorical", [0.2, 0.3, 0.1, 0.4])
        pm.Categorical("by_logits", logit_p=[0.2, 0.3, 0.1])
        pm.OrderedLogistic("logistic", eta=0.2, cutpoints=[-1.0, 0.5, 2.0])
        pm.OrderedProbit("probit", eta=0.2, cutpoints=[-1.0, 0.5])
        pm.DiscreteUniform("uniform", -2, 3)
        pm.Binomial("binomial", pm.Data("n", 4), 0.3)
        pm.BetaBinomial("beta_binomial", 2.0, 1.0, 5)
        pm.HyperGeometric("more", N=9, k=5, n=6)
        pm.HyperGeometric("fewer", N=9, k=2, n=6)
    log_p = model.compile_logp(sum=False, mode=PLAIN)
    names = [rv.name for rv in model.free_RVs]
    values = np.arange(-6, 12)
    possible = np.array([log_p(dict.fromkeys(names, np.array(v))) for v in values]) > -np.inf
    target = from_pymc(model)
    for name, k, where in zip(names, target.cardinalities, possible.T, strict=True):
        x = np.arange(k)[:, None] * (np.array(target.names) == name)
        found = target.to_dataset(xr.Dataset({"x": (("draw", "site"), x)}))[name]
        assert found.values.tolist() == values[where].tolist(), name


def test_a_matrix_whose_elements_have_different_values():
    with pm.Model(coords={"row": ["a", "b"]}) as model:
        model.add_coord("column", length=3)
        pm.DiscreteUniform("m", [[1, 2, 3], [0, 0, 0]], [3, 3, 3], dims=("row", "column"))
    target = from_pymc(model)
    assert target.names[1:4] == ["m[a, 1]", "m[a, 2]", "m[b, 0]"]
    assert target.cardinalities.tolist() == [3, 2, 1, 4, 4, 4]
    assert target.state_names[1] == ("2", "3")
    found = target.to_dataset(xr.Dataset({"x": (("draw", "site"), states(target)[-1:])}))
    assert found["m"].dims == ("draw", "row", "column")
    assert (found["m"] == 3).all()


def test_bounds_leave_values_out():
    with pm.Model() as model:
        rate = pm.Poisson("rate", 2.0, shape=2)
        pm.Poisson("count", 1.0 + rate.sum(), observed=5)
    target = from_pymc(model, bounds={"rate": ([0, 1], 6)})
    assert target.cardinalities.tolist() == [7, 6]
    x = states(target)
    np.testing.assert_allclose(target.log_prob(x), log_p_of_model(model, target, x), rtol=1e-12)


def test_unknown_values_are_an_error_or_given():
    with pm.Model(coords={"g": [0, 1]}) as model:
        n = pm.DiscreteUniform("n", 1, 3)
        pm.Binomial("part", n, 0.5)
    with pytest.raises(ValueError, match=r"'part' is Binomial, with parameters that depend on var"):
        from_pymc(model)
    target = from_pymc(model, bounds={"part": (0, 3)})
    assert np.isfinite(target.log_prob(states(target))).sum() == 2 + 3 + 4
    with pm.Model() as model:
        pm.Geometric("wait", 0.2)
    with pytest.raises(ValueError, match=r"'wait' is Geometric; .*bounds={\"wait\": \(lowest, hig"):
        from_pymc(model)
    with pm.Model() as model:
        pm.Binomial("many", 100_000, 0.5)
    with pytest.raises(ValueError, match=r"'many' has 100001 values; a variable may have 32768\."):
        from_pymc(model)


def test_variables_with_named_axes():
    import pymc.dims

    with pm.Model(coords={"g": ["a", "b"]}) as model:
        z = pymc.dims.Bernoulli("z", p=0.3, dims=("g",))
        pymc.dims.Normal("y", z.sum(), 1.0, observed=0.4)
    with pytest.raises(ValueError, match=r"'z' is of pymc\.dims; .* does not know its lowest"):
        from_pymc(model)
    target = from_pymc(model, bounds={"z": (0, 1)})
    x = states(target)
    np.testing.assert_allclose(target.log_prob(x), log_p_of_model(model, target, x), rtol=1e-12)


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ({"k": (3, 1)}, ValueError, r"bounds\['k'\] is \(3, 1\); give the lowest and the highest"),
        ({"k": 3}, ValueError, r"bounds\['k'\] is 3; give"),
        ({"k": (0, 1.5)}, ValueError, r"bounds\['k'\] is \(0, 1\.5\); give"),
        ({"z": (0, [1, 2, 3])}, ValueError, r"\[1, 2, 3\]\); .* that fit the shape \(2,\)\."),
        ({"q": (0, 1)}, ValueError, r"bounds names 'q'; the free variables are \['z', 'k', 'b'"),
        ([3], TypeError, r"bounds is \[3\]; give a dict of name: \(lowest, highest\)"),
    ],
)
def test_wrong_bounds(model, bounds, error, message):
    with pytest.raises(error, match=message):
        from_pymc(model, bounds=bounds)


def test_wrong_models(model):
    with pm.Model() as continuous:
        pm.Bernoulli("z", 0.5)
        pm.Normal("mu")
        pm.HalfNormal("sd")
    message = r"\['mu', 'sd'\] are continuous; .*pymc\.observe\(model, {'mu': value}\)"
    with pytest.raises(TypeError, match=message):
        from_pymc(continuous)
    with pm.Model() as observed:
        pm.Normal("y", observed=1.0)
    with pytest.raises(ValueError, match="has no free variable; from_pymc needs at least one"):
        from_pymc(observed)
    with pytest.raises(TypeError, match=r"model is 3; give a pymc\.Model\."):
        from_pymc(3)
    with pytest.raises(TypeError, match=r"not a sklsb Target; .* by sklsb\.from_pymc\(model\)\.$"):
        LSBSampler().fit(model)
    fixed = pm.observe(continuous, {"mu": 0.0, "sd": 1.0})
    assert from_pymc(fixed).names == ["z"]


def test_invalid_parameters_are_impossible():
    with pm.Model() as model:
        sd = pm.DiscreteUniform("sd", -1, 2)
        pm.Normal("y", 0.0, sd, observed=1.0)
    target = from_pymc(model)
    assert np.isfinite(target.log_prob(states(target))).tolist() == [False, False, True, True]


def test_chains_start_at_the_initial_point_where_random_states_are_impossible():
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", 1, 2, shape=30, initval=np.full(30, 2))
        pm.Potential("few", pt.switch(pt.ge(k.sum(), 59), 0.0, -np.inf))
    target = from_pymc(model)
    draws = target.to_dataset(
        GibbsSampler("random", random_state=0).fit(target).sample(100, thin="sweep")
    )
    total = draws["k"].sum("k_dim_0").values
    assert set(total.ravel().tolist()) == {59, 60}


def test_data_are_copied(model, target):
    x = states(target)[::7]
    before = target.log_prob(x)
    with model:
        pm.set_data({"seen": [2.0, 2.0]})
    np.testing.assert_array_equal(target.log_prob(x), before)
    again = from_pymc(model)
    with model:
        np.testing.assert_allclose(again.log_prob(x), log_p_of_model(model, target, x), rtol=1e-12)
        pm.set_data({"seen": [0.3, 1.2]})
    assert (again.log_prob(x) != before).any()


def test_targets_can_be_pickled(target, tmp_path):
    path = tmp_path / "target.pickle"
    path.write_bytes(pickle.dumps(target))
    code = """
import pathlib, pickle, sys
target = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
print(target.names[1], repr(float(target.log_prob([0, 1, 2, 0, 1, 1, 2]))), target.condition({"k": 3}).observed)
"""  # noqa: E501
    wanted = repr(float(target.log_prob([0, 1, 2, 0, 1, 1, 2])))
    assert run_python("-W", "ignore", "-c", code, str(path)).split() == ["z[b]", wanted, "[0]"]


def allocations():
    y = np.random.default_rng(0).normal(size=60) * 3
    z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=60)
    pm.Normal("y", pt.as_tensor([-3.0, 0.0, 3.0])[z], 1.0, observed=y)


def regression():
    rng = np.random.default_rng(1)
    z = pm.Bernoulli("z", 0.3, shape=9)
    k = pm.DiscreteUniform("k", 2, 4)
    mean = pt.as_tensor(rng.normal(size=(500, 9))) @ (z / 30.0) + k / 3.0
    pm.Normal("y", mean, 1.0, observed=rng.normal(size=500))


def sum_of_all():
    z = pm.Bernoulli("z", 0.3, shape=9)
    pm.Potential("s", pt.exp(-0.2 * z.sum()))


def far_apart():
    z = pm.Bernoulli("z", 0.3, shape=2)
    pm.Normal("y", 1000.0 * z, 1.0, observed=[0.0, 1000.0])


@pytest.mark.parametrize(
    ("make", "kind", "n_factors"),
    [
        (allocations, "PyMCNetwork", 60),
        (regression, "PyMCNetwork", 10 + 10 + 45),
        (sum_of_all, "PyMCTarget", None),
        (far_apart, "PyMCTarget", None),
    ],
)
def test_models_that_are_sums_of_tables_become_networks(make, kind, n_factors):
    with pm.Model() as model:
        make()
    target = from_pymc(model)
    assert type(target).__name__ == kind
    assert getattr(target, "n_factors", None) == n_factors
    size = 20, target.n_sites
    x = np.random.default_rng(2).integers(0, target.cardinalities, size, target.dtype)
    np.testing.assert_allclose(target.log_prob(x), log_p_of_model(model, target, x), rtol=1e-11)

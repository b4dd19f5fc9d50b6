"""The quick tier: kernels on models of two or three sites, as plain Python, ``pytest -m quick``.

In the commit tier the same tests run compiled, all of them on three sites. A debugger works in
the kernels with ``NUMBA_DISABLE_JIT=1``.
"""

import numpy as np
import pytest
from local_step import check_matrix, check_step

from sklsb import (
    RBM,
    Barker,
    ClusterSampler,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    Max,
    ParallelTempering,
    Potts,
    SwapSampler,
    VariableSelection,
    anneal,
    diagnostics,
    exact,
    io,
    sample_chains,
)
from sklsb._kernels._jit import interpreted
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.gibbs import RandomBlocks
from sklsb._kernels.rules.mixture import Mixture
from sklsb.exact.matrices import rule_of
from sklsb.storage.codec import packed, unpacked
from sklsb.testing import check_balancing, check_rule, check_target

pytestmark = pytest.mark.quick

rng = np.random.default_rng(0)
path = np.diag([0.7, -0.4], 1)
table = np.exp(rng.normal(size=(2, 3)))
table[0, 2] = 0.0


def quadratic(x):
    return 0.5 * x[..., 0] * x[..., 1] - 0.3 * x[..., 2] * x[..., 1] + 0.2 * x.sum(axis=-1)


def product(x):
    return 0.5 * x[..., 0] * x[..., 1] - 0.3 * x[..., 1]


ising = Ising(path + path.T, field=[0.3, -0.2, 0.5])
network = MarkovNetwork([2, 3], [((0, 1), table), ((1,), [1.0, 2.0, 0.5])])
potts = Potts(path + path.T, [[0.1, 0.4], [0.0, -0.3], [0.2, 0.2]])
machine = RBM(rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=2))
columns = rng.normal(size=(8, 3))
targets = {
    "ising": ising,
    "potts": potts,
    "network": network,
    "rbm": machine,
    "selection": VariableSelection(columns, columns[:, 0] + rng.normal(size=8)),
    "function": FunctionTarget(quadratic, 3),
    "evidence": ising.condition({1: 1}),
}

# Rules are measured by thousands of steps per state, which plain Python takes on fewer states.
pair = np.array([[0.0, 0.7], [0.7, 0.0]])
pairs = {
    "ising": Ising(pair, field=[0.3, -0.2]),
    "potts": Potts(pair, [[0.1, 0.4], [0.0, -0.3]]),
    "network": MarkovNetwork([2, 2], [((0, 1), table[:, 1:]), ((1,), [1.0, 2.0])]),
    "rbm": RBM(rng.normal(size=(2, 1)), rng.normal(size=2), rng.normal(size=1)),
    "function": FunctionTarget(product, 2),
}
to_measure = targets | pairs if interpreted() else targets


def test_kernels_are_plain_python_in_the_quick_tier(request):
    assert interpreted() == (request.config.option.markexpr == "quick")


@pytest.mark.parametrize("name", targets)
def test_target(name):
    check_target(targets[name], n_states=4)


@pytest.mark.parametrize("name", ["ising", "network", "rbm", "evidence"])
def test_locally_balanced_step(name):
    function = Barker() if name != "ising" else Max()
    sampler = LSBSampler(function, lazy=0.2 if name == "evidence" else 0.0)
    check_matrix(sampler, targets[name])
    check_step(sampler, targets[name])


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("ising", GibbsSampler("random")),
        ("ising", GibbsSampler("chromatic")),
        ("ising", GibbsSampler("systematic", block_size=2)),
        ("network", GibbsSampler(block_size=2)),
        ("network", HammingBallSampler(2, 1)),
        ("network", SwapSampler()),
        ("ising", SwapSampler(n_partners=1)),
        ("evidence", GibbsSampler("systematic")),
        ("function", GibbsSampler("random")),
        ("rbm", GibbsSampler("systematic")),
        ("ising", ClusterSampler()),
        ("potts", ClusterSampler()),
    ],
)
def test_rule(name, sampler):
    target = to_measure[name]
    check_rule(rule_of(sampler, target), target, n_continuations=6)


def test_mixture():
    target = to_measure["network" if interpreted() else "ising"]  # other tests compile the latter
    blocks = RandomBlocks(np.arange(target.n_sites, dtype=np.uint32), 1)
    rule = Mixture.of(Balanced(Barker().table()), blocks, 0.4)
    check_rule(rule, target, n_continuations=6)


def test_balancing():
    check_balancing(Barker())


@pytest.mark.parametrize(
    "sampler", [GibbsSampler("random"), LSBSampler("sqrt"), LSBSampler("mixture")]
)
def test_a_sampler_fits_and_draws(sampler):
    sampler.set_params(n_burn_in=20, n_chains=2, random_state=0).fit(ising)
    draws = sampler.sample(10, thin="sweep")
    assert draws["x"].shape == (2, 10, 3)
    np.testing.assert_allclose(draws["lp"], ising.log_prob(draws["x"].values), rtol=1e-12)


@pytest.mark.parametrize("name", ["ising", "potts", "network", "evidence"])
def test_elimination(name):
    target = targets[name]
    p = exact.probabilities(target)
    x, log_p = exact.states(target), target.log_prob(exact.states(target))
    assert exact.log_partition(target) == pytest.approx(np.log(np.exp(log_p).sum()), abs=1e-14)
    found = exact.marginals(target)["p"].values
    expected = [[p[x[:, i] == v].sum() for v in target.values] for i in range(target.n_sites)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    assert float(exact.most_likely(target)["lp"]) == pytest.approx(log_p.max(), abs=1e-14)
    sampler = EliminationSampler(n_chains=1, random_state=0).fit(target)
    assert np.isfinite(target.log_prob(sampler.sample(20)["x"])).all()


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
@pytest.mark.parametrize("explorer", ["auto", LSBSampler("sqrt")])
def test_tempering(explorer):
    settings = {"n_chains": 2, "n_burn_in": 64, "n_replicas": 3, "random_state": 0}
    sampler = ParallelTempering(explorer=explorer, **settings).fit(ising)
    draws = sampler.sample(40)
    np.testing.assert_allclose(draws["lp"], ising.log_prob(draws["x"].values), rtol=1e-12)
    assert abs(sampler.log_z_ - exact.log_partition(ising)) < 5 * sampler.log_z_error_


def test_annealing():
    found = anneal(network, n_sweeps=20, n_chains=2, random_state=0)
    lp = network.log_prob(exact.states(network)).max()
    assert float(found["lp"].max()) == pytest.approx(lp, abs=1e-14)


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
def test_draws_are_looked_at():
    sampler = GibbsSampler("random", n_burn_in=20, n_chains=2, random_state=0).fit(ising)
    stop = diagnostics.stopping.EffectiveSampleSize(40)
    draws = sampler.sample(400, thin="sweep", stop=stop)
    assert 64 <= draws.sizes["draw"] < 400
    found = diagnostics.disagreement(draws, ising)
    assert found.attrs["n_draws"] == draws.sizes["draw"]
    moments = sampler.sample(64, record="moments")
    np.testing.assert_allclose(moments["p"].sum("state"), 1.0, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
def test_chains_in_parts():
    sampler = GibbsSampler("random", n_burn_in=5, n_chains=1, init="both", random_state=0).fit(
        potts
    )
    draws = sample_chains(sampler, 8, n_chains=3)
    assert draws["x"].shape == (3, 8, 3)


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
def test_a_sampler_is_saved(tmp_path):
    sampler = LSBSampler("barker", blocks=None, n_burn_in=5, n_chains=2, random_state=0)
    sampler.fit(ising).save(tmp_path / "fitted")
    again = LSBSampler.load(tmp_path / "fitted", ising)
    np.testing.assert_array_equal(sampler.sample(5)["x"], again.sample(5)["x"])
    value = {"a": [np.arange(3), None, (1, "x")]}
    assert packed(unpacked(packed(value))) == packed(value)


def test_files(tmp_path):
    model = io.uai.Model("MARKOV", (2, 3), [(0, 1)], [table])
    io.uai.write_uai(tmp_path / "pair.uai", model)
    found = MarkovNetwork.from_uai(tmp_path / "pair.uai")
    wanted = table.ravel() / table.sum()
    np.testing.assert_allclose(exact.probabilities(found), wanted, rtol=1e-14)

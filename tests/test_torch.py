"""The first-order path: the same chain as the compiled kernels where first order is exact."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="fast=True needs torch, which is not installed")

from sklsb import Ising, LSBSampler  # noqa: E402
from sklsb._compiled import BOUND, ENUMERATED, SAMPLED_KL  # noqa: E402
from sklsb._ensemble import Ensemble  # noqa: E402
from sklsb._torch import FastEnsemble, _select  # noqa: E402
from sklsb.balancing import Barker, Lipschitz, Max, Mixture, Network, get_balancing  # noqa: E402
from sklsb.learning import MIXING, OBJECTIVES  # noqa: E402
from sklsb.targets import Target  # noqa: E402

FUNCTIONS = [
    Barker(),
    Max(),
    Mixture([0.3, -0.2, 0.1, 0.5]),
    Network(),
    Network("min"),
    Lipschitz(1.5, "knots", 0.1 * np.arange(41) - 1),
]
CODES = {"bound": BOUND, "kl": ENUMERATED, "sampled_kl": SAMPLED_KL}


def random_ising(n_sites, seed=0):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.normal(size=(n_sites, n_sites)), 1) * (rng.random((n_sites, n_sites)) < 0.4)
    return Ising(upper + upper.T, rng.normal(size=n_sites))


def both_ensembles(target, n_chains):
    rng = np.random.default_rng(1)
    states = np.stack([target.random_state(rng) for _ in range(n_chains)])
    streams = [[np.random.default_rng(c) for c in range(n_chains)] for _ in range(2)]
    return Ensemble(target, states, streams[0]), FastEnsemble(target, states, streams[1])


@pytest.mark.parametrize("function", FUNCTIONS, ids=repr)
def test_takes_the_decisions_of_the_compiled_kernel(function):
    # f is multilinear in the spins, so first-order log-ratios of an Ising model are exact.
    compiled, fast = both_ensembles(random_ising(12), 5)
    table = function.table()
    compiled.start(table)
    uniforms = np.random.default_rng(2).random((5, 2000, 2))
    compiled.advance(table, uniforms)
    fast.advance(table, uniforms)
    assert np.array_equal(compiled.chains.x, fast.chains.x)
    assert np.array_equal(compiled.chains.moved, fast.chains.moved)
    np.testing.assert_allclose(compiled.chains.acceptance, fast.chains.acceptance, rtol=1e-10)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("objective", CODES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=repr)
def test_compiled_gradients_equal_automatic_ones(function, objective, every):
    compiled, fast = both_ensembles(random_ising(9), 4)
    table = function.table()
    compiled.start(table)
    rng = np.random.default_rng(3)
    uniforms, log_omega = rng.random((4, 2)), rng.normal(size=4)
    settings = (CODES[objective], 0.7, every)
    expected = fast.objective(table, settings, uniforms, log_omega)
    found = compiled.objective(table, settings, uniforms, log_omega)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            one, other, rtol=1e-9, atol=1e-11 + 1e-11 * np.max(np.abs(other))
        )


@pytest.mark.parametrize("function", FUNCTIONS, ids=repr)
@pytest.mark.parametrize("sites", [range(9), [0], [2, 5, 8]], ids=str)
def test_compiled_fluxes_equal_automatic_ones(function, sites):
    compiled, fast = both_ensembles(random_ising(9), 4)
    table, sites = function.table(), np.array(sites)
    compiled.start(table)
    for weight in (np.empty(0), np.linspace(0.2, 1.0, sites.size)):
        expected = fast.flux(table, sites, weight)
        for one, other in zip(compiled.flux(table, sites, weight), expected, strict=True):
            np.testing.assert_allclose(
                one, other, rtol=1e-9, atol=1e-11 + 1e-11 * np.max(np.abs(other))
            )


def test_sampler_gives_the_same_chains_fast_and_not():
    target = random_ising(8)
    draws = [
        LSBSampler("sqrt", fast=fast, n_burn_in=50, random_state=0).fit(target).sample(40, thin=3)
        for fast in (False, True)
    ]
    np.testing.assert_allclose(draws[1]["lp"], draws[0]["lp"], rtol=1e-12)
    assert draws[0].drop_vars("lp").equals(draws[1].drop_vars("lp"))


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning")
@pytest.mark.parametrize("objective", ["auto", *OBJECTIVES, *MIXING])
def test_learns_and_continues(objective):
    sampler = LSBSampler(fast=True, objective=objective, n_burn_in=40, random_state=0)
    sampler.fit(random_ising(6))
    assert (sampler.burn_in_balancing_.theta != get_balancing("learned").theta).any()
    assert np.isfinite(sampler.burn_in_balancing_.theta).all()
    assert np.isfinite(sampler.balancing_.table().value).all()
    assert "sqrt" in sampler.candidates_["candidate"]
    first, second = sampler.sample(7, thin=2), sampler.sample(5, thin=2)
    whole = LSBSampler(fast=True, objective=objective, n_burn_in=40, random_state=0)
    whole = whole.fit(random_ising(6)).sample(12, thin=2)["x"].values
    assert np.array_equal(np.concatenate([first["x"], second["x"]], axis=1), whole)
    np.testing.assert_allclose(
        sampler.sample_stats_["lp"].values, sampler.target_.log_prob(second["x"].values), atol=1e-12
    )


def test_select_skips_weight_zero():
    log_w = torch.tensor([[-np.inf, 0.0, -np.inf, 0.0, -np.inf]], dtype=torch.float64)
    for u, expected in ((0.0, 1), (0.5 - 2**-53, 1), (0.5, 3), (1 - 2**-53, 3)):
        assert int(_select(log_w, torch.tensor([u], dtype=torch.float64))) == expected


class NoGradient(Target):
    shape, dims, values = (2,), ("site",), (0, 1)

    def log_prob(self, x):
        return np.zeros(np.shape(x)[:-1])

    def log_ratios(self, x):
        return np.zeros(np.shape(x))

    def view(self):
        raise TypeError("never asked for")


def test_target_without_gradient_is_named():
    with pytest.raises(TypeError, match="NoGradient has none"):
        LSBSampler(fast=True).fit(NoGradient())


@pytest.mark.parametrize("device", ["gpu", "mps:7", 3.5])
def test_unknown_device_is_named(device):
    with pytest.raises(ValueError, match=f"device is {device!r}"):
        LSBSampler(fast=True, device=device).fit(random_ising(3))


def test_absent_cuda_device_is_named():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(ValueError, match="torch sees 0 CUDA devices"):
        LSBSampler(fast=True, device="cuda").fit(random_ising(3))


def test_pickled_fast_sampler_goes_on():
    import pickle

    sampler = LSBSampler("barker", fast=True, n_burn_in=10, random_state=0).fit(random_ising(5))
    copy = pickle.loads(pickle.dumps(sampler))
    assert copy.sample(9, thin=3).equals(sampler.sample(9, thin=3))


@pytest.mark.parametrize("field", [1e15, 1e17])
def test_a_huge_field_does_not_drown_the_others(field):
    rng = np.random.default_rng(5)
    model = Ising([[0, 0.7, 0], [0.7, 0, 0.2], [0, 0.2, 0]], [field, 0.3, -0.2])
    states = np.ones((3, 3), dtype=np.int8)
    compiled = Ensemble(model, states, [rng] * 3)
    fast = FastEnsemble(model, states, [rng] * 3)
    table = Barker().table()
    compiled.start(table)
    uniforms = rng.random((3, 500, 2))
    compiled.advance(table, uniforms)
    fast.advance(table, uniforms)
    assert np.array_equal(compiled.chains.x, fast.chains.x)
    assert compiled.chains.moved[:, 1:].all()

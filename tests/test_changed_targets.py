"""The log p of kernels is that of the target, after `fit` and whenever draws are made."""

import copy
import warnings

import numpy as np
import pytest

from sklsb import (
    RBM,
    AutoSampler,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    TorchTarget,
    VariableSelection,
    diagnostics,
    sample_chains,
)
from sklsb.exceptions import SamplerWarning, StoreError
from sklsb.storage.fingerprint import where_different
from sklsb.targets.base import Target

pytestmark = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
COMMON = {"n_chains": 3, "n_burn_in": 20, "init": "uniform", "random_state": 0}


def lsb(**parameters):
    return LSBSampler("barker", **{"blocks": None, **COMMON, **parameters})


def fast(**parameters):
    pytest.importorskip("torch")
    return lsb(fast=True, **parameters)


def tempering(**parameters):
    return ParallelTempering(**COMMON, **parameters)


SAMPLERS = {
    "balanced": lsb,
    "random": lambda: GibbsSampler("random", **COMMON),
    "auto": lambda: AutoSampler(n_chains=3, random_state=0),
    "ball": lambda: HammingBallSampler(2, **COMMON),
    "tempering": lambda: tempering(n_replicas=3, crossover=False),
}
FACTORED = {
    "blocks": lambda: lsb(blocks=2),
    "elimination": lambda: EliminationSampler(n_chains=3, random_state=0),
    "core": lambda: tempering(n_replicas=2, eliminate=2),
}
path = np.diag([0.7, -0.4], 1)


def spins(kind=Ising, scale=1.0):
    return kind(scale * (path + path.T), scale * np.array([0.3, -0.2, 0.5]))


# ----------------------------------------------------------------- after fit


class Doubled(Ising):
    """Its kernels know nothing of it."""

    def log_prob(self, x):
        return 2.0 * super().log_prob(x)


class WrongFactors(Ising):
    """Of half the size."""

    @property
    def log_factors(self):
        return [(scope, 0.5 * table) for scope, table in super().log_factors]


@pytest.mark.parametrize("name", [*SAMPLERS, "fast"])
def test_a_fit_to_another_log_p_than_that_of_the_kernels(name):
    sampler = fast() if name == "fast" else SAMPLERS[name]()
    with pytest.raises(ValueError, match=r"at the state of chain \d is .* its kernels say") as told:
        sampler.fit(spins(Doubled))
    assert "check_target(target) tells where they differ" in str(told.value)
    assert not hasattr(sampler, "target_")
    before = sampler.fit(spins()).state_
    with pytest.raises(ValueError, match="chains would sample something else"):
        sampler.fit(spins(Doubled))
    np.testing.assert_array_equal(sampler.state_, before)


@pytest.mark.parametrize("name", FACTORED)
def test_a_fit_by_factors_of_another_log_p(name):
    sampler = FACTORED[name]()
    with pytest.raises(ValueError, match=r"the sum of its log_factors is"):
        sampler.fit(spins(WrongFactors))
    assert not hasattr(sampler, "target_")
    sampler.fit(spins())


def test_a_function_that_does_not_depend_on_the_state_alone():
    rng = np.random.default_rng(0)
    target = FunctionTarget(lambda x: float(x.sum() + rng.random()), 3, vectorized=False)
    with pytest.raises(ValueError, match="depend on the state alone"):
        lsb().fit(target)


def rounded():
    """Targets of large terms that cancel, of constants, zeros, and of single precision."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(40, 40)) * 1e6
    penalty = 1e7 * (np.ones((40, 40)) - 40 * np.eye(40))
    yield "qubo", Ising.from_qubo(q + penalty)
    yield "constant", Ising(np.diag(np.full(5, 1e12)))
    yield "potts", Potts(1e5 * (path + path.T), 1e5 * rng.normal(size=(3, 3)))
    large = np.exp(rng.uniform(-690, 690, size=(6, 3, 3)))
    large[:, 0, 2] = 0.0
    factors = [((i, i + 1), table) for i, table in enumerate(large)]
    factors += [((0,), [1e-300] * 3), ((1,), [1e300] * 3)]
    yield "network", MarkovNetwork([3] * 7, factors)
    yield "rbm", RBM(300.0 * rng.normal(size=(20, 50)), None, -1000.0 * rng.random(50))
    x = rng.normal(size=(30, 6))
    yield "selection", VariableSelection(x @ (np.eye(6) + 100.0), x[:, 0] + rng.normal(size=30))
    w = rng.normal(size=(12, 64)).astype(np.float32)

    def net(x):
        return 100.0 * (np.tanh(x.astype(np.float32) @ w) @ w[0].repeat(64)[:64]).astype(float)

    yield "function", FunctionTarget(net, 12)
    yield "evidence", Ising.from_qubo(q + penalty).condition({3: 1, 5: -1})


@pytest.mark.parametrize("name", [name for name, _ in rounded()])
def test_rounding_is_no_difference(name):
    target = dict(rounded())[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        for new in (lsb, SAMPLERS["random"]):
            sampler = new().set_params(n_burn_in=5).fit(target)
            first = sampler.run_.ensemble
            for _ in range(5):
                sampler.sample(2)
            assert sampler.run_.ensemble is first


@pytest.mark.parametrize("way", [True, False], ids=["fast", "exact"])
def test_single_precision_is_no_difference(way):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(12, 100), torch.nn.Softplus(), torch.nn.Linear(100, 1)]
    module = torch.nn.Sequential(*layers, torch.nn.Flatten(0))
    for target in (
        TorchTarget(lambda x: 1e3 * module(x), 12),
        TorchTarget(lambda x: 1e4 + module(x), 12).condition({0: 1}),
    ):
        sampler = lsb(fast=way).fit(target)
        first = sampler.run_.ensemble
        for _ in range(20):
            sampler.sample(3)
        assert sampler.run_.ensemble is first


def check_difference_of_small_terms():
    """The largest relative difference may be rounding of large terms, and a smaller one none."""
    target = FunctionTarget(lambda x: 1e6 * x[:, 0] * x[:, 1], 2)
    x = np.array([[1, 0], [0, 0]])
    then = target.log_prob(x)
    for gaps, bad in (([5e-4, 1e-6], 1), ([5e-4, 1e-10], None), ([2e-3, 1e-6], 0)):
        found = where_different(target, x, then + gaps, then)
        assert found == bad, "the state of small terms differs, too"
    for wrong in (np.nan, -np.inf):
        assert where_different(target, x, np.array([0.0, wrong]), then) == 1


def test_difference_of_small_terms():
    check_difference_of_small_terms()


# ----------------------------------------------------------------- between calls


class Slope:
    """Log p of independent variables, by a number that may change."""

    def __init__(self, slope, shift=0.0):
        self.slope, self.shift, self.allowed = slope, shift, lambda x: x.sum(axis=-1) >= 0

    def __call__(self, x):
        return np.where(self.allowed(x), self.slope * x.sum(axis=-1) + self.shift, -np.inf)


FOLLOWING = {name: SAMPLERS[name] for name in ("balanced", "random", "ball")}


@pytest.mark.parametrize("name", FOLLOWING)
def test_chains_go_on_from_the_present_log_p(name):
    f = Slope(2.0)
    sampler = FOLLOWING[name]().fit(FunctionTarget(f, 3))
    sampler.sample(100)
    f.slope, f.shift = -2.0, -1000.0
    draws = sampler.sample(2000)
    lp = -2.0 * draws["x"].values.sum(axis=-1) - 1000.0
    np.testing.assert_allclose(draws["lp"], lp, rtol=1e-12)
    p = diagnostics.marginals(draws, sampler.target_)
    # 1 / (1 + exp(2)); within five of the errors that are stated, and these are small.
    wrong = np.abs(p["p"].sel(state=1) - 0.1192) / p["mcse"].sel(state=1)
    assert (wrong < 5.0).all()
    assert (p["mcse"] < 0.02).all()
    # What is counted begins anew.
    assert draws["draw"].values[0] == 0
    assert sampler.run_.ensemble.counters.n_draws == 2000
    assert sampler.sample(1)["draw"].item() == 2000


@pytest.mark.parametrize("way", [True, False], ids=["fast", "exact"])
def test_weights_that_change(way):
    torch = pytest.importorskip("torch")
    w, shift = torch.full((3,), 2.0), torch.zeros(())
    sampler = lsb(fast=way, n_chains=8).fit(TorchTarget(lambda x: x @ w + shift, 3))
    learned = sampler.balancing_
    sampler.sample(50)
    spent = sampler.n_evaluations_
    shift.fill_(-1000.0)  # the same distribution
    draws = sampler.sample(200)
    assert (draws["x"].diff("draw") != 0).any(("draw", "site")).all()
    np.testing.assert_allclose(draws["lp"], 2.0 * draws["x"].sum("site") - 1000.0, atol=1e-3)
    w.fill_(-2.0)
    p = sampler.sample(1000)["x"].mean()
    assert abs(float(p) - 0.1192) < 0.03
    assert sampler.balancing_ is learned
    assert sampler.n_evaluations_ > spent


def test_what_has_become_impossible():
    f = Slope(0.5)
    sampler, same = (lsb().fit(FunctionTarget(g, 3)) for g in (f, Slope(0.5)))
    never = sampler.state_[1]
    f.allowed = lambda x: (x != never).any(axis=-1)
    here = (sampler.state_ == never).all(axis=-1).argmax()
    message = f"The present state of chain {here} has become impossible; fit again"
    for _ in range(2):  # nothing has changed meanwhile
        with pytest.raises(ValueError, match=message):
            sampler.sample(10)
    f.allowed = lambda x: x.sum(axis=-1) >= 0
    assert sampler.sample(10).equals(same.sample(10))


def test_what_did_not_change_stays_as_it_was():
    one, other = (lsb().fit(FunctionTarget(Slope(0.5), 3)) for _ in range(2))
    first = one.run_.ensemble
    whole = other.sample(30)["x"]
    parts = [one.sample(n)["x"].values for n in (10, 0, 15, 5)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    assert one.run_.ensemble is first


def test_a_change_between_a_copy_and_its_draws():
    f = Slope(2.0)
    sampler = lsb().fit(FunctionTarget(f, 3))
    again = copy.copy(sampler)
    f.slope = -2.0
    assert again.sample(500)["draw"].size == 500
    assert abs(float(again.sample(1000)["x"].mean()) - 0.1192) < 0.04


def test_a_statistic_that_fails_hides_no_change():
    f = Slope(2.0)
    sampler = lsb().fit(FunctionTarget(f, 3))

    def fails(x):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        sampler.sample(10, record={"a": fails})
    f.slope = -2.0
    assert abs(float(sampler.sample(1000)["x"].mean()) - 0.1192) < 0.04


def test_temperatures_are_of_one_target():
    f = Slope(2.0)
    sampler = SAMPLERS["tempering"]().fit(FunctionTarget(f, 3))
    sampler.sample(5)
    f.slope = -2.0
    with pytest.raises(ValueError, match="What ParallelTempering keeps is of the old one"):
        sampler.sample(5)
    with pytest.raises(ValueError, match="has changed since the last call"):
        sample_chains(sampler, 5, n_chains=2)
    sampler.set_params(warm_start=True).fit(sampler.target_).sample(5)


class Mine(Target):
    """A target of one's own whose arrays are those of its view, and can be written to."""

    shape, dims, values = (3,), ("site",), (-1, 1)

    def __init__(self):
        self._ising = Ising(path + path.T, [0.3, -0.2, 0.5])
        self.field = self._ising.view().field

    def log_prob(self, x):
        x = self.check_states(x).astype(float)
        return x @ self.field + np.einsum("...i,ij,...j->...", x, path, x)

    def log_ratios(self, x):
        x = self.check_states(x).astype(float)
        return -2.0 * x * (self.field + x @ (path + path.T))

    @property
    def log_factors(self):
        fields = [((i,), self.field[i] * np.array([-1.0, 1.0])) for i in range(3)]
        return fields + self._ising.log_factors[4:]

    def view(self):
        return self._ising.view()


@pytest.mark.parametrize("name", [*SAMPLERS, *FACTORED])
def test_arrays_that_are_changed_in_place(name):
    target = Mine()
    sampler = (SAMPLERS | FACTORED)[name]().fit(target)
    sampler.sample(5)
    target.field[0] = 3.0
    with pytest.raises(ValueError, match=r"Mine.* has changed since the last call"):
        sampler.sample(5)
    sampler.fit(Mine()).sample(5)


@pytest.mark.parametrize("name", SAMPLERS)
def test_arrays_of_a_view_that_are_changed_in_place(name):
    target = spins()
    sampler = SAMPLERS[name]().fit(target)
    target.view().field[0] = 3.0
    with pytest.raises(ValueError, match=r"make a new target, and fit again"):
        sampler.sample(5)


def arrays():
    """Arrays of targets that users see."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 3))
    for target in (spins(), Potts(path + path.T, np.ones((3, 2)))):
        yield target.couplings.data
        yield target.field
    machine = RBM(x)
    yield from (machine.weights, machine.visible_bias, machine.hidden_bias)
    yield MarkovNetwork([2, 2], [((0, 1), [[1.0, 2.0], [3.0, 4.0]])]).log_factors[0][1]
    yield VariableSelection(x, x[:, 0] + rng.normal(size=8))._data
    yield spins().condition({1: 1}).observed_sites


@pytest.mark.parametrize("values", list(arrays()))
def test_arrays_of_targets_are_read_only(values):
    with pytest.raises(ValueError, match="read-only"):
        values[...] = 0


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (spins(), "field"),
        (spins(), "couplings"),
        (Potts(path + path.T, np.ones((3, 2))), "field"),
        (RBM(np.ones((2, 3))), "weights"),
    ],
)
def test_arrays_of_targets_are_not_replaced(target, name):
    """Kernels would read beyond the end of a wrong one."""
    with pytest.raises(AttributeError, match=f"^{name} of a target cannot be set; make a new"):
        setattr(target, name, np.ones((9, 4)))
    copy.copy(target).verdict = 1  # what is new may be


def test_what_was_given_may_be_changed():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3)), rng.normal(size=8)
    target = VariableSelection(x, y)
    before = target.log_prob([1, 0, 1])
    x[:], y[:] = 0.0, 0.0
    assert target.log_prob([1, 0, 1]) == before


def test_a_store_has_draws_of_one_log_p(tmp_path):
    pytest.importorskip("zarr")
    f = Slope(2.0)
    sampler = lsb().fit(FunctionTarget(f, 3))
    sampler.sample(10, store=tmp_path / "run.zarr")
    f.slope = -2.0
    with pytest.raises(StoreError, match=r"has changed .* holds draws from the old one: give anot"):
        sampler.sample(10, store=tmp_path / "run.zarr")


def test_a_torch_function_that_rounds_to_single_precision_inside_is_not_accused():
    torch = pytest.importorskip("torch", reason="the function is on torch")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(24, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)]
    net = torch.nn.Sequential(*layers)
    target = TorchTarget(lambda x: net(x.float())[:, 0].double(), 24, dtype="float64")
    GibbsSampler("random", **COMMON).fit(target).sample(5)


@pytest.mark.parametrize("name", ["balanced", "random"])
def test_a_function_that_changes_where_the_chains_are_not(name):
    """Chains at a state of the same log p would keep the old ratios, and old exact answers."""
    pull = np.full(6, -30.0)
    target = FunctionTarget(lambda x: x @ pull, 6)
    sampler = SAMPLERS[name]().fit(target)
    assert not sampler.sample(20, thin="sweep")["x"].any()
    pull[:] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(short|few)")
        draws = sampler.sample(400, thin="sweep")
    assert float(draws["x"].mean()) == pytest.approx(1 / (1 + np.exp(-1)), abs=0.05)
    assert sampler.run_.since != "fit"
    before = sampler.run_.since
    sampler.sample(20)
    assert sampler.run_.since == before

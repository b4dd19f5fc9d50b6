"""Annealing: the best states against enumeration and elimination, seeds, and errors."""

import signal

import numpy as np
import pytest

from sklsb import FunctionTarget, Ising, MarkovNetwork, anneal, exact
from sklsb.exceptions import FrozenSitesWarning, InterruptedWarning, PrecisionWarning

RNG = np.random.default_rng(0)


def glass():
    couplings = np.triu(np.random.default_rng(1).normal(size=(30, 30)), 1)
    return Ising(couplings + couplings.T)


def network():
    table = [[0.0, 0.2, 0.3], [0.1, 0.0, 2.0], [0.7, 0.4, 0.0]]
    return MarkovNetwork([3] * 8, [((i, (i + 1) % 8), table) for i in range(8)])


TARGETS = {
    "ising": lambda: Ising.lattice(RNG.normal(size=(4, 4)), coupling=-0.7),
    "network": network,
    "evidence": lambda: network().condition({2: 0, 5: 0}),
    "flat": lambda: Ising(np.zeros((3, 3))),
}


def parity(n, n_checks, seed):
    """Random checks of the parity of four variables each, and a weight on each variable."""
    rng = np.random.default_rng(seed)
    known, odd = rng.integers(2, size=n), np.indices((2,) * 4).sum(axis=0) % 2
    factors = [((i,), np.exp(rng.normal(size=2))) for i in range(n)]
    for _ in range(n_checks):
        scope = rng.choice(n, size=4, replace=False)
        factors.append((tuple(scope.tolist()), (odd == known[scope].sum() % 2).astype(float)))
    return MarkovNetwork([2] * n, factors)


@pytest.fixture
def by_annealing(monkeypatch):
    monkeypatch.setattr("sklsb.samplers.annealing._maximum", lambda *given: None)


@pytest.mark.usefixtures("by_annealing")
@pytest.mark.parametrize("name", TARGETS)
def test_against_elimination(name):
    target = TARGETS[name]()
    found = anneal(target, n_sweeps=400, random_state=0)
    assert found.attrs["proven"] == 0
    truth = exact.most_likely(target)
    np.testing.assert_allclose(found["lp"], target.log_prob(found["x"]), rtol=1e-14, atol=0)
    assert float(found["lp"].max()) == pytest.approx(float(truth["lp"]), abs=1e-12)


@pytest.mark.usefixtures("by_annealing")
def test_ways_through_zeros():
    """Between states that pass all checks single changes lead through zeros."""
    missed = []
    for seed in range(12):
        target = parity(14, 7, seed)
        found = anneal(target, n_sweeps=1000, random_state=seed)
        np.testing.assert_allclose(found["lp"], target.log_prob(found["x"]), rtol=1e-14, atol=0)
        missed.append(float(exact.most_likely(target)["lp"] - found["lp"].max()))
    assert sum(gap > 1e-9 for gap in missed) <= 2
    assert max(missed) < 1.0
    given = parity(14, 7, 0).condition({3: 1})
    found = anneal(given, n_sweeps=1000, random_state=0)
    assert float(found["lp"].max()) == pytest.approx(float(exact.most_likely(given)["lp"]))
    assert (found["x"][:, 3] == 1).all()


@pytest.mark.parametrize(
    ("target", "settings"),
    [
        (parity(14, 7, 1), {"n_sweeps": 64}),
        (parity(40, 20, 1).condition({0: 1}), {"n_sweeps": 64}),
        (Ising.lattice(RNG.normal(size=(5, 5)), coupling=-0.7), {"seconds": 1}),
    ],
    ids=["zeros", "evidence", "spins"],
)
def test_what_is_proven(target, settings):
    found = anneal(target, n_chains=3, random_state=0, **settings)
    truth = exact.most_likely(target)
    assert found.attrs["proven"] == 1
    assert found["x"].dims == ("chain", *target.dims)
    np.testing.assert_array_equal(found["x"], [truth["x"]] * 3)
    np.testing.assert_allclose(found["lp"], [truth["lp"]] * 3, rtol=1e-14)


def test_what_takes_too_long_to_prove():
    assert anneal(glass(), n_sweeps=20, random_state=0).attrs["proven"] == 0


def test_functions():
    calls = []

    def log_prob(x):
        calls.append(0)
        if len(calls) > most:
            raise KeyError("too often")
        return -np.inf if x[0] == x[1] else float(x @ [1.0, 3.0, -2.0])

    most = 10**6
    target = FunctionTarget(log_prob, 3, [2, 3, 4])
    found = anneal(target, n_sweeps=50, n_chains=2, random_state=0)
    assert found["lp"].values.tolist() == [7.0, 7.0]
    assert found["x"].values.tolist() == [[1, 2, 0]] * 2
    most = len(calls) + 100
    with pytest.raises(KeyError, match="too often"):
        anneal(target, n_sweeps=500, random_state=0)


def test_chains_that_nothing_moves_are_told():
    """Sums that are divisible by 3: no change of one variable leads to another such state."""
    target = FunctionTarget(lambda x: np.where(x.sum(-1) % 3 == 0, x[..., 0], -np.inf), 6, 3)
    with pytest.warns(FrozenSitesWarning, match="There may be much better states. No change of a"):
        anneal(target, n_sweeps=8, random_state=0)


def test_seeds(monkeypatch):
    target = glass()
    runs = [anneal(target, n_sweeps=20, n_chains=n, random_state=0) for n in (4, 4, 2)]
    assert runs[0].identical(runs[1])
    assert runs[0].isel(chain=slice(2)).identical(runs[2])
    monkeypatch.setattr("sklsb.ensembles.base._SEGMENT_SECONDS", 1e-9)  # calls of one sweep
    assert runs[0].identical(anneal(target, n_sweeps=20, random_state=0))


class Slow:
    """The sum of 25 variables, which takes some seconds of a clock of its own; it may interrupt."""

    def __init__(self, monkeypatch, step):
        self.now, self.step, self.interrupt = 0.0, step, np.inf
        self.target = FunctionTarget(self, 25, vectorized=False)
        self.now = 0.0
        monkeypatch.setattr("sklsb.samplers.annealing.time", self)

    def perf_counter(self):
        return self.now

    def __call__(self, x):
        self.now += self.step
        if self.now > self.interrupt:
            self.interrupt = np.inf
            signal.raise_signal(signal.SIGINT)
        return float(x.sum())


@pytest.mark.parametrize(("seconds", "least", "most"), [(4.0, 3.4, 4.6), (0.01, 0.0, 1.0)])
def test_seconds(seconds, least, most, monkeypatch):
    slow = Slow(monkeypatch, 0.001)  # a sweep of all chains takes 0.1 s
    found = anneal(slow.target, seconds=seconds, random_state=0)
    assert least < slow.now < most
    assert found["lp"].values.tolist() == [25.0] * 4


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("length", [{"seconds": 60}, {"n_sweeps": 100}])
def test_ctrl_c_returns_the_best_so_far(length, monkeypatch):
    slow = Slow(monkeypatch, 0.004)  # a sweep of a chain takes 0.1 s
    slow.interrupt = 12.0
    with pytest.warns(InterruptedWarning, match="returning the best states so far"):
        found = anneal(slow.target, **length, random_state=0)
    assert 12.0 < slow.now < 12.0 + 0.1 + 2 * slow.step
    assert found["lp"].values.max() == 25.0
    np.testing.assert_array_equal(found["lp"], found["x"].sum("site"))


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("when", [0.0, 0.03, 0.3])
def test_ctrl_c_before_the_first_sweep(when, monkeypatch):
    slow = Slow(monkeypatch, 0.004)
    slow.interrupt = when
    with pytest.warns(InterruptedWarning, match="returning states at random"):
        found = anneal(slow.target, n_sweeps=100, n_chains=3, random_state=0)
    assert slow.now < when + 0.2
    assert found["x"].shape == (3, 25)
    np.testing.assert_array_equal(found["lp"], found["x"].sum("site"))


def test_ctrl_c_during_elimination(monkeypatch):
    def interrupted(*args, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr("sklsb.samplers.annealing.best_state", interrupted)
    target = network()
    with pytest.warns(InterruptedWarning, match="returning states at random"):
        found = anneal(target, n_sweeps=10**6, random_state=0)
    assert found.attrs["proven"] == 0
    np.testing.assert_array_equal(found["lp"], target.log_prob(found["x"].values))


def test_observed_variables_stay():
    found = anneal(network().condition({0: 2}), n_sweeps=30, random_state=0)
    assert (found["x"][:, 0] == 2).all()


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"seconds": 1, "n_sweeps": 1}, ValueError, "give one of them"),
        ({"seconds": 0}, ValueError, "seconds is 0"),
        ({"seconds": "1"}, TypeError, "seconds is '1'"),
        ({"n_sweeps": 0}, ValueError, "n_sweeps is 0"),
        ({"n_chains": 0, "n_sweeps": 1}, ValueError, "n_chains is 0"),
    ],
)
def test_errors(params, error, match):
    with pytest.raises(error, match=match):
        anneal(network(), **params)


def test_not_a_target():
    with pytest.raises(TypeError, match="not a sklsb Target"):
        anneal(np.eye(3))


@pytest.mark.parametrize("n_sweeps", [None, 200])
def test_what_rounding_loses_is_told_and_not_proven(n_sweeps):
    couplings = -1e16 * (np.ones((3, 3)) - np.eye(3))  # two of three bonds, whatever the fields
    target = Ising(couplings, [0.5, -0.4, 0.3])
    effort = {"seconds": 0.3} if n_sweeps is None else {"n_sweeps": n_sweeps}
    with pytest.warns(PrecisionWarning, match="the answer may be wrong"):
        found = anneal(target, random_state=0, **effort)
    assert not found.attrs["proven"]


def test_the_best_chain_comes_first_where_lp_cannot_tell():
    field = np.array([1e17, 0.6, -0.4, 0.3])
    found = anneal(Ising(np.zeros((4, 4)), field), n_sweeps=8, random_state=0)
    assert found["x"].values[0].tolist() == [1, 1, -1, 1]

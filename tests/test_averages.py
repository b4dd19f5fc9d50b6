"""Marginals as averages of conditional distributions, without draws."""

import copy
import itertools
import pickle

import networkx as nx
import numpy as np
import pytest
from models import dense, ising, potts

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
    VariableSelection,
    diagnostics,
    exact,
)
from sklsb._kernels.run import places_of
from sklsb.diagnostics.averages import Averages
from sklsb.exact.elimination.independent import Redraws
from sklsb.samplers._run import observers as _observers

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning"),
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.PrecisionWarning"),
]
GRAPH = nx.cycle_graph(4)
# Two, three and one values, with a zero; {x_0 = 0, x_1 = 1} is impossible.
MIXED = MarkovNetwork(
    [2, 3, 1, 2],
    [((0, 1), [[1.0, 0.0, 2.0], [3.0, 1.0, 0.5]]), ((1, 3), np.arange(1.0, 7.0).reshape(3, 2))],
)
BALANCED = LSBSampler("barker", blocks=None)


def selection(seed=0, n=60, p=5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    return VariableSelection(x, x[:, 0] + 0.3 * x[:, 1] + rng.normal(size=n))


def machine():
    rng = np.random.default_rng(0)
    return RBM(rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=3))


def log_prob(x):
    return 0.3 * np.float64(x[0] * x[1]) - 0.2 * x[2] + 0.5 * (x[1] == x[2])


def fitted(sampler, target, **params):
    return copy.deepcopy(sampler).set_params(n_chains=2, random_state=0, **params).fit(target)


def conditional(target, x):
    """p(x_i = s | rest) from log p of the states themselves, (n_sites, n_values)."""
    found = np.zeros((target.n_sites, len(target.values)))
    for i, k in enumerate(target.cardinalities):
        states = np.tile(x, (k, 1))
        states[:, i] = target.values[:k]
        lp = target.log_prob(states)
        weight = np.exp(lp - lp.max())
        found[i, :k] = weight / weight.sum()
    return found


CASES = {
    "single changes": (BALANCED, ising(GRAPH)),
    "k values": (BALANCED, potts(GRAPH)),
    "evidence": (GibbsSampler("random"), potts(GRAPH, "evidence")),
    "a network with zeros": (BALANCED, MIXED),
    "redraws of the whole": (LSBSampler("sqrt"), MIXED),
    "redraws of blocks": (LSBSampler("sqrt", blocks=2), potts(nx.cycle_graph(6))),
    "observed": (BALANCED, ising(GRAPH).condition({2: 1})),
    "columns": (BALANCED, selection()),
    "random scan": (GibbsSampler("random"), MIXED),
    "a class at a time": (GibbsSampler("chromatic"), ising(GRAPH)),
    "in blocks": (GibbsSampler(block_size=2), potts(GRAPH)),
    "layers": (GibbsSampler("layers"), machine()),
    "balls": (HammingBallSampler(block_size=2), MIXED),
    "exact draws": (EliminationSampler(), MIXED),
    "the winner of a race": (AutoSampler(), ising(GRAPH)),
    "ladders": (ParallelTempering(n_replicas=3), ising(GRAPH)),
    "a function": (BALANCED, FunctionTarget(log_prob, 3, 3)),
    "a function, site by site": (GibbsSampler("random"), FunctionTarget(log_prob, 3, 3)),
}


# Each case compiles its transitions twice, with and without sums. Every rule stays, on one view.
SLOW = (
    "k values",
    "evidence",
    "a network with zeros",
    "redraws of blocks",
    "observed",
    "columns",
    "random scan",
    "in blocks",
    "a function",
    "a function, site by site",
)


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow if c in SLOW else ()) for c in CASES]
)
def test_they_are_the_mean_over_the_very_draws(case, monkeypatch):
    sampler, target = CASES[case]
    one = fitted(sampler, target)
    other = pickle.loads(pickle.dumps(one))
    draws = one.sample(150, thin=2)
    monkeypatch.setattr("sklsb.ensembles.base.FIRST_SEGMENT", 7)
    found = other.sample(150, thin=2, record="marginals")
    x = draws["x"].values.reshape(-1, target.n_sites)
    wanted = np.mean([conditional(target, row) for row in x], axis=0)
    p = found["p"].values.reshape(wanted.shape)
    np.testing.assert_allclose(p, wanted, rtol=1e-11, atol=1e-14)
    assert (p[wanted == 0] == 0).all()
    assert found["p"].dims == found["mcse"].dims == (*target.dims, "state")
    np.testing.assert_allclose(found["lp"], draws["lp"].values.mean(), rtol=1e-12)
    assert found.attrs["n_draws"] == 150
    assert found.attrs["thin"] == 2
    assert np.array_equal(one.state_, other.state_)  # the chains are the same
    n_moves = int((target.cardinalities - 1).sum())
    assert other.n_evaluations_ - one.n_evaluations_ == 2 * 150 * n_moves
    # Nothing is known of what no draw had; what cannot be has no error.
    mcse = found["mcse"].values.reshape(wanted.shape)
    shares = np.array([(x == value).mean(axis=0) for value in target.values]).T
    changed = (shares > 0) & (shares < 1)
    assert np.isfinite(mcse[changed]).all()
    possible = (target.n_possible > 1)[:, None]
    has = np.arange(len(target.values)) < target.cardinalities[:, None]
    assert np.isnan(mcse[~changed & possible & has]).all()
    assert (mcse[~(possible & has)] == 0).all()


def test_first_order_steps():
    pytest.importorskip("torch")
    target = ising(GRAPH)
    one = fitted(LSBSampler("sqrt", fast=True), target)
    other = copy.copy(one)
    x = one.sample(100, thin=3)["x"].values.reshape(-1, 4)
    found = other.sample(100, thin=3, record="marginals")
    wanted = np.mean([conditional(target, row) for row in x], axis=0)
    np.testing.assert_allclose(found["p"], wanted, rtol=1e-11)
    assert np.array_equal(one.state_, other.state_)


def test_however_the_work_is_divided(monkeypatch):
    target = ising(nx.cycle_graph(6))
    sampler = fitted(GibbsSampler("random"), target)
    copies = [copy.copy(sampler) for _ in range(4)]
    whole = copies[0].sample(700, record="marginals")
    monkeypatch.setattr("sklsb.ensembles.base.FIRST_SEGMENT", 13)
    parts = copies[1].set_params(n_jobs=2).sample(700, record="marginals")
    assert whole.drop_attrs().identical(parts.drop_attrs())
    # As if a kernel did not do it, in pieces: within rounding.
    monkeypatch.setattr(_observers, "Ensemble", Redraws)
    monkeypatch.setattr("sklsb.diagnostics.averages._BLOCK", 100)
    outside = copies[2].sample(700, record="marginals")
    for name in ("p", "mcse", "lp", "lp_mcse"):
        np.testing.assert_allclose(outside[name], whole[name], rtol=1e-9)
    monkeypatch.undo()
    # A rule that ends the run after some draws.
    stopped = copies[3].sample(700, record="marginals", stop=lambda run: run.n_draws >= 100)
    n = stopped.attrs["n_draws"]
    assert 100 <= n < 700
    shorter = sampler.sample(n, record="marginals")
    assert stopped.drop_attrs().identical(shorter.drop_attrs())


def test_each_call_has_sums_of_its_own():
    target = ising(GRAPH)
    sampler = fitted(GibbsSampler("random"), target)
    again = copy.copy(sampler)
    first, second = (sampler.sample(n, record="marginals")["p"] for n in (100, 300))
    whole = again.sample(400, record="marginals")["p"]
    np.testing.assert_allclose((first + 3 * second) / 4, whole, rtol=1e-12)


@pytest.mark.parametrize("size", [1.0, 45.0, 1e4, 1e300])
def test_large_log_ratios(size):
    """Without interactions, p is exact from the first draw on, and nothing overflows."""
    field = size * np.array([1.0, -0.5, 0.25, 1e-3])
    target = Ising(np.zeros((4, 4)), field)
    sampler = fitted(GibbsSampler("random"), target)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = sampler.sample(70, record="marginals")
    odds = np.exp(-2.0 * np.abs(field))
    wanted = np.where(field > 0, odds, 1.0) / (1.0 + odds)
    np.testing.assert_allclose(found["p"].values[:, 0], wanted, rtol=1e-13)
    np.testing.assert_allclose(found["p"].sum("state"), 1.0, rtol=1e-13)


def test_errors_hold():
    """Truth within two errors about as often as it should be, also on average of the squares."""
    target = dense(6, scale=0.4)
    truth = exact.marginals(target)["p"].values[:, 1]
    sampler = GibbsSampler("random", n_chains=2, random_state=0, n_burn_in=500).fit(target)
    z = []
    for _ in range(60):
        found = sampler.sample(512, thin=6, record="marginals")
        z.append((found["p"].values[:, 1] - truth) / found["mcse"].values[:, 1])
    z = np.array(z)
    assert 0.9 < (np.abs(z) < 2).mean() <= 1.0
    assert 0.6 < np.square(z).mean() < 1.4


def test_errors_are_smaller_than_of_counts():
    """Where fields decide most, by the squared error over independent runs from the same draws."""
    target = dense(8, scale=0.2)
    truth = exact.marginals(target)["p"].values
    of_counts, of_averages = 0.0, 0.0
    sampler = fitted(BALANCED, target)
    for _ in range(20):
        again = copy.copy(sampler)
        counted = diagnostics.marginals(sampler.sample(400), target)["p"].values
        averaged = again.sample(400, record="marginals")["p"].values
        of_counts += np.square(counted - truth).sum()
        of_averages += np.square(averaged - truth).sum()
    assert 4 * of_averages < of_counts


def test_errors_where_tied_spins_flicker():
    """A pair that has hardly crossed: its steady conditional probability is not its marginal."""
    coupling = np.zeros((6, 6))
    coupling[0, 1] = coupling[1, 0] = coupling[2, 3] = coupling[3, 2] = 3.0
    pulls = []
    for seed in range(12):
        target = Ising(coupling, np.random.default_rng(seed).normal(size=6))
        p = exact.marginals(target)["p"].values[:, 1]
        sampler = LSBSampler("barker", blocks=None, rejection_free=False, init="uniform")
        sampler = fitted(sampler, target, n_burn_in=200)
        again = copy.copy(sampler)
        found = sampler.sample(300, record="marginals")
        counts = diagnostics.marginals(again.sample(300), target)
        estimates = [(one["p"].values[:, 1], one["mcse"].values[:, 1]) for one in (found, counts)]
        pulls.append([(q - p) / error for q, error in estimates])
        known = ~np.isnan(estimates[0][1])
        assert (estimates[0][1][known] > 0).all()
    of_averages, of_counts = np.moveaxis(np.abs(pulls), 1, 0)
    tied = ~np.isnan(of_averages) & ~np.isnan(of_counts)
    tied[:, 4:] = False
    assert tied.sum() > 20
    # Without a floor the worst are above 1e14; what no chain has met, counting misses as well.
    assert np.quantile(of_averages[tied], 0.9) < 2.0 * np.quantile(of_counts[tied], 0.9) + 2.0
    assert of_averages[tied].max() < 2.0 * of_counts[tied].max()
    # Free spins: the average is right but for rounding, and the error covers that.
    assert np.nanmax(of_averages[:, 4:]) <= 2.0


def test_visits_are_counted_over_calls_and_chains():
    target, rng = dense(3), np.random.default_rng(0)
    x = np.where(rng.random((2, 40, 3)) < 0.2, 1, -1).astype(np.int8)
    one, other = Averages(target, 2), Averages(target, 2)
    one.add(x, np.zeros((2, 40)))
    for a, b in ((0, 1), (1, 1), (1, 17), (17, 40)):
        other.add(x[:, a:b], np.zeros((2, b - a)))
    for averages in (one, other):
        for k, value in enumerate((-1, 1)):
            runs = [
                [sum(key for key, _ in itertools.groupby(row == of)) for row in x[:, :, i]]
                for of in (value, -value)
                for i in range(3)
            ]
            inside, outside = np.sum(runs, axis=1).reshape(2, 3)
            assert averages._inside[:, k].tolist() == inside.tolist()
            assert averages._outside[:, k].tolist() == outside.tolist()
            assert averages._hits[:, k].tolist() == (x == value).sum(axis=(0, 1)).tolist()


def test_what_was_never_seen_has_no_error():
    """Two spins that are equal but for one part in e^40: each chain's conditional is steady."""
    target = Ising([[0.0, 20.0], [20.0, 0.0]])
    x = np.ones((2, 500, 2), dtype=np.int8)
    averages = Averages(target, 2)
    done = 0
    while done < 500:
        n = min(averages.left, 500 - done)
        averages.add(x[:, :n], np.zeros((2, n)))
        done += n
    found = averages.dataset({})
    assert (found["p"].values[:, 1] == 1.0).all()
    assert np.isnan(found["mcse"].values).all()
    # In one chain the other way round: as far apart as can be.
    x[1] = -1
    averages = Averages(target, 2)
    averages.add(x[:, :64], np.zeros((2, 64)))
    np.testing.assert_allclose(averages.dataset({})["mcse"], 0.5)


def test_diagnostics_take_them():
    target = ising(GRAPH)
    found = fitted(GibbsSampler("random"), target).sample(100, record="marginals")
    assert diagnostics.marginals(found, target) is found
    with pytest.raises(ValueError, match=r"draws has marginals of {'site': 4, 'state': 2}; this"):
        diagnostics.marginals(found, MIXED)


def test_what_is_refused(tmp_path):
    sampler = fitted(GibbsSampler("random"), ising(GRAPH))
    with pytest.raises(ValueError, match='record="marginals" keeps no single draws to store'):
        sampler.sample(3, record="marginals", store=tmp_path / "run.zarr")


@pytest.mark.parametrize("values", [(-1, 1), (0, 1, 2), (-3, 5, 300), (2, 7), (-9, -4), (-2, 0)])
def test_places(values):
    place = places_of(values)
    assert [place[value] for value in values] == list(range(len(values)))

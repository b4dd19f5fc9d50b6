"""The pilot: what its measure is, what it may cost, and that the chains after it are exact."""

import importlib
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from models import GRAPHS, dense, pairs, potts, untimed

import sklsb
from sklsb import (
    Barker,
    ClusterSampler,
    Ising,
    Lipschitz,
    LSBSampler,
    Mixture,
    Potts,
    VariableSelection,
    exact,
)
from sklsb._kernels.rules.balanced import Balanced
from sklsb.balancing import LearnableFunction, Max, Sqrt
from sklsb.balancing.functions import FIXED
from sklsb.balancing.learning import MIXING, OBJECTIVES
from sklsb.diagnostics.batches import jackknife_error
from sklsb.ensembles.base import MOST_NUMBERS
from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.exact import probabilities
from sklsb.exact.matrices import transitions
from sklsb.exceptions import SamplerWarning, StarvedMovesWarning
from sklsb.targets._listing import states
from sklsb.trials.candidates import ROBUST, Candidate, Visited
from sklsb.trials.draws import draw
from sklsb.trials.pilot import STARVED, compare, expected_sizes, neglectful, starved
from sklsb.trials.race import FEWEST_IN_A_ROUND, Doubt, Outcome, _shrunk, places
from sklsb.trials.times import Series, integrated_times, time_of, window

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning"),
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.ShortRunWarning"),
]
FIXED_FUNCTIONS = {name: cls() for name, cls in FIXED.items()}


def rules_of(functions):
    return {name: Balanced(function.table()) for name, function in functions.items()}


FIXED_RULES = rules_of(FIXED_FUNCTIONS)


@pytest.fixture(scope="module")
def lattice():
    return Ising.lattice(np.random.default_rng(0).normal(scale=0.5, size=(4, 5)), coupling=0.2)


def fitted(target, balancing="learned", **params):
    return LSBSampler(
        balancing, **{"n_chains": 3, "n_burn_in": 300, "random_state": 0} | params
    ).fit(target)


def module(package, name):
    return importlib.import_module(f"{package.__name__}.{name}")


def tied_pairs(n_pairs, n_free, p=0.01, seed=0):
    """Pairs of spins that differ with probability p, among free ones."""
    d = 2 * n_pairs + n_free
    couplings, field = np.zeros((d, d)), np.zeros(d)
    for i in range(0, 2 * n_pairs, 2):
        couplings[i, i + 1] = couplings[i + 1, i] = 0.5 * np.log((1 - p) / p)
    field[2 * n_pairs :] = np.random.default_rng(seed).normal(size=n_free)
    return Ising(couplings, field)


# ----------------------------------------------------------------- autocorrelation times


@pytest.mark.parametrize("a", [0.0, 0.3, 0.9, 0.99])
def test_times_of_autoregressive_chains(a):
    # What is not summed goes on as an exponential, and here that is what it is.
    lags = np.arange(1, 600)
    for end in (lags.size, 3, 50):
        found = integrated_times(lags, a ** lags[None], end)
        assert np.allclose(found, (1 + a) / (1 - a), rtol=1e-12)


def test_times_are_exponential_between_the_lags():
    lags = np.array([1, 3, 10, 40])
    for a in (0.95, 0.99):
        found = integrated_times(lags, a ** lags[None], 4)
        assert np.allclose(found, (1 + a) / (1 - a), rtol=1e-12)
    rho = np.array([[0.9, 0.7, 0.4, 0.2], [0.5, 0.3, 0.04, 3e-3]])
    for row in rho:
        for end in (2, 4):
            last = lags[end - 1]
            log_rho = np.interp(np.arange(last + 1), np.append(0, lags), np.log(np.append(1, row)))
            decay = row[end - 1] ** (1 / last)
            expected = 1 + 2 * (np.exp(log_rho)[1:].sum() + row[end - 1] * decay / (1 - decay))
            assert np.allclose(integrated_times(lags, row[None], end), expected)
    # Nothing continues after a lag at which nothing is left; where rho rises it is linear.
    gone = integrated_times(lags, np.array([[0.5, 0.2, 0.3, 0.0]]), 3)
    inside = np.interp(np.arange(4, 11), [3, 10], [0.2, 0.3]).sum()
    decay = 0.3**0.1
    expected = 0.5 + 0.2 + 0.5 * np.sqrt(0.4) + inside + 0.3 * decay / (1 - decay)
    assert np.allclose(gone, 1 + 2 * expected)


def test_times_are_continuous_where_the_autocorrelation_ends():
    lags = np.array([1, 5, 12])
    places = np.linspace(-0.1, 0.1, 2001)
    rho = np.stack([np.full(2001, 0.6), np.full(2001, 0.05), places], axis=1)
    times = integrated_times(lags, rho, 3)
    assert (np.abs(np.diff(times)) < 0.01).all()
    assert (np.diff(times) >= 0).all()


def test_sums_end_where_the_autocorrelation_is_lost_in_its_noise():
    rho = np.array([0.9, 0.5, 0.1, 0.04, 0.035, 0.03, 0.002])
    assert window(rho, np.full(7, 0.002)) == 7  # a plateau of .03 is seen
    assert window(rho, np.full(7, 0.0)) == 7
    assert window(rho, np.full(7, 0.016)) == 6
    # Where the noise is large or unknown the sum ends below .05.
    assert window(rho, np.full(7, 0.3)) == 4
    assert window(rho, np.full(7, np.nan)) == 4
    assert window(rho, np.array([0, 0, 0.06, 0, 0, 0, 0])) == 7
    assert window(np.array([0.0, 0.0]), np.zeros(2)) == 1
    assert window(np.ones(3), np.zeros(3)) == 3


def check_slow_part(package):
    """A part of 4 % that decays 50 times more slowly than the rest makes two thirds of the time."""
    times = module(package, "trials.times")
    lags = np.unique(np.geomspace(1, 40_000, 60).astype(int))
    rho = 0.96 * 0.99**lags + 0.04 * 0.9998**lags
    expected = 0.96 * 1.99 / 0.01 + 0.04 * 1.9998 / 0.0002
    noise = np.random.default_rng(0).normal(scale=0.001, size=(20, lags.size))
    mean = (rho + noise).mean(axis=0)
    end = times.window(mean, noise.std(axis=0) / np.sqrt(20))
    found = times.integrated_times(lags, mean[None], end)
    assert 1.25 > found / expected > 0.8, "the slow part is seen"


def test_a_slow_part_is_seen():
    check_slow_part(sklsb)


def test_times_are_at_least_one():
    lags = np.array([1, 2])
    for rho in ([-0.9, 0.8], [-0.2, -0.1], [0.0, 0.0]):
        end = window(np.array(rho), np.zeros(2))
        assert integrated_times(lags, np.array([rho]), end) == 1.0
    frozen = integrated_times(lags, np.ones((1, 2)), 2)
    assert np.isfinite(frozen).all()
    assert frozen > 1e5


def test_jackknife_error_of_a_mean_is_its_standard_error():
    x = np.random.default_rng(0).normal(size=(30, 4, 2))
    without = (x.sum(axis=0) - x) / 29
    assert np.isclose(jackknife_error(without[:, 1, 0]), x[:, 1, 0].std(ddof=1) / np.sqrt(30))


def autoregressive(rng, a, shape):
    """Signs that keep their value with probability (1 + a) / 2; log p is their sum."""
    turns = np.where(rng.random(shape) < 0.5 * (1 + a), 1, -1)
    x = np.cumprod(turns, axis=1).astype(np.int8)
    return x, x.sum(axis=2, dtype=float)


def check_series(package):
    """A series keeps every second draw when it is full, and measures distances."""
    x, lp = autoregressive(np.random.default_rng(0), 0.7, (2, 480, 5))
    series = module(package, "trials.times").Series(2, 5, np.int8, 64)
    done = 0
    while done < 480:
        n = min(series.make_room(), (480 - done) // series.thin, 7)
        at = done + series.thin * np.arange(1, n + 1) - 1
        series.add(x[:, at], lp[:, at])
        done += n * series.thin
    y, of_lp = x[:, 7::8], lp[:, 7::8]
    assert (series.n, series.thin) == (60, 8)
    assert np.array_equal(series.x[:, :60], y), "every eighth draw is kept"
    assert np.array_equal(series.lp[:, :60], of_lp), "every eighth log p is kept"
    lags, found = series.distances()
    assert lags[:9].tolist() == [1, 2, 3, 4, 6, 8, 12, 16, 24]
    assert lags[-1] == 8 * 30
    assert found.shape == (2, 8, lags.size, 2)
    # The last level has all draws; pieces are parts of the pairs, in order.
    for k in (7, -1):
        lag = lags[k] // 8
        differ = (y[:, lag:] != y[:, :-lag]).sum(axis=2)
        square = 0.5 * (of_lp[:, lag:] - of_lp[:, :-lag]) ** 2
        ends = np.linspace(0, 60 - lag, 9).astype(int)
        for piece in range(8):
            part = slice(ends[piece], ends[piece + 1])
            assert np.allclose(found[:, piece, k, 0], differ[:, part].mean(axis=1)), "of sites"
            assert np.allclose(found[:, piece, k, 1], square[:, part].mean(axis=1)), "of log p"
    assert np.allclose(series.shares((-1, 1))[1], (y == 1).mean(axis=(0, 1)))


def test_a_series_keeps_every_second_draw_when_it_is_full():
    check_series(sklsb)


@pytest.mark.parametrize(("a", "n"), [(0.5, 2000), (0.98, 8000), (0.98, 2000)])
def test_errors_of_times_are_honest(a, n):
    pulls = []
    for seed in range(20):
        series = Series(4, 20, np.int8, 256)
        x, lp = autoregressive(np.random.default_rng([seed, n]), a, (4, n, 20))
        done = 0
        while room := min(series.make_room(), (n - done) // series.thin):
            at = done + series.thin * np.arange(1, room + 1) - 1
            series.add(x[:, at], lp[:, at])
            done += room * series.thin
        lags, distances = series.distances()
        found = time_of(distances[..., 0], lags, np.full(20, 0.5), 4 * n)
        pulls.append(np.log(found.time * (1 - a) / (1 + a)) / found.error)
    assert np.sqrt(np.mean(np.square(pulls))) < 1.3
    assert np.abs(pulls).max() < 4


def test_what_others_have_seen_shows_that_chains_have_not_moved():
    # Ten of 20 sites never move; the variances say that they would.
    x, lp = autoregressive(np.random.default_rng(0), 0.5, (4, 200, 20))
    x[:, :, :10] = 1
    series = Series(4, 20, np.int8, 256)
    series.add(x, lp)
    lags, distances = series.distances()
    found = time_of(distances[..., 0], lags, np.full(20, 0.5), 800)
    assert found.time > 100
    assert found.error > 0.5
    alone = time_of(distances[..., 0], lags, np.repeat([0.0, 0.5], 10), 800)
    assert alone.time < 4
    nothing = time_of(distances[..., 0], lags, np.zeros(20), 800)
    assert np.isnan(nothing.time)


def outcome_of(names, ess, error, last=None):
    table, n = np.array(ess, dtype=float), len(names)
    last = np.ones(n, dtype=bool) if last is None else np.array(last)
    of_work = (table, np.array(error) * table)
    rest = [np.ones(n)] * 2 + [np.ones(n, dtype=int)] * 2
    doubt = Doubt(places(names, ROBUST), places(names, MIXING))
    return Outcome(names, *of_work, *of_work, *rest, last, doubt)


@pytest.mark.parametrize(
    ("ess", "error", "best"),
    [
        # Settled: the best.
        ([1.0, 1.2, 1.05, 1.09, 0.3, 0.2], 0.01, "global_flux"),
        ([1.0, 1.05, 1.2, 1.3, 0.3, 0.2], 0.005, "sqrt"),
        # The plainer one, if there is no difference to speak of.
        ([1.0, 1.05, 1.2, 1.24, 0.3, 0.2], 0.001, "barker"),
        ([1.0, 2.0, 1.2, 1.3, 0.3, 2.3], 0.01, "max"),
        # Open, and a robust one may as well be the best.
        ([1.05, 1.0, 1.04, 0.9, 0.3, 0.2], 0.01, "barker"),
        ([1.0, 1.0, 0.7, 0.98, 1.0, 0.2], 0.02, "sqrt"),
        ([1.5, 1.0, 1.2, 0.9, 0.3, 0.3], 0.2, "barker"),
        # Open: the largest lower bound.
        ([1.5, 1.0, 0.8, 0.7, 0.3, 0.3], [0.02, 0.1, 0.4, 0.4, 0.1, 0.1], "flux"),
        ([1.5, 1.0, 0.9, 0.9, 1.6, 0.3], [0.30, 0.1, 0.4, 0.4, 0.04, 0.1], "min"),
        ([1.5, 1.0, 1.2, 0.9, 1.6, 0.3], [0.30, 0.1, 0.4, 0.4, 0.04, 0.1], "min"),
        ([2.0, 1.0, 1.2, 0.9, 0.3, 0.3], [1.5, 0.1, 0.1, 0.1, 0.1, 0.1], "barker"),
        # Nothing is known.
        ([1.0, 1.5, 1.2, 1.6, 0.3, 0.3], np.inf, "barker"),
        ([np.nan] * 6, np.nan, "barker"),
    ],
)
def test_choice(ess, error, best):
    names = [*MIXING, *FIXED]
    assert outcome_of(names, ess, np.broadcast_to(error, 6)).best == best


def check_dropped(package):
    """What was dropped in an early round, by numbers that mean little, is not chosen."""
    last = [False, True, True]
    outcome = outcome_of(["flux", "barker", "min"], [9.0, 1.0, 1.2], [0.0] * 3, last)
    race = module(package, "trials.race")
    outcome = race.Outcome(*outcome[:-1], race.Doubt(*outcome.doubt))
    assert outcome.best == "min", "what was dropped is not chosen"


def test_what_was_dropped_is_not_chosen():
    check_dropped(sklsb)


def test_the_robust_choice_is_an_argument():
    outcome = outcome_of(["flux", "jump", "min"], [1.0, 0.9, 1.0], [0.2] * 3)
    robust = outcome.doubt._replace(robust=[1])
    assert outcome._replace(doubt=robust).best == "jump"
    assert outcome.best == "flux"
    unknown = outcome_of(["flux", "jump"], [np.nan] * 2, [np.nan] * 2)
    assert unknown._replace(doubt=robust).best == "jump"
    assert unknown.best == "flux"


def exact_times(function, target):
    """Autocorrelation times of the sites, weighted by their variances, and of log p."""
    matrix = exact.transition_matrix(function, target)
    p, x = exact.probabilities(target), exact.states(target)
    indicators = np.concatenate([x == v for v in target.values], axis=1).astype(float)
    found = []
    for f in (indicators, target.log_prob(x)[:, None]):
        f = f - p @ f
        whole = np.linalg.solve(np.eye(len(p)) - matrix + p, f)  # the sum of P^t f over t
        variance = p @ np.square(f).sum(axis=1)
        found.append(2 * (p @ (f * whole).sum(axis=1)) / variance - 1)
    return found


@pytest.mark.parametrize("name", ["ising", "potts"])
def test_times_are_those_of_the_transition_matrix(name):
    target = dense(7, seed=1, scale=0.5) if name == "ising" else potts(GRAPHS[-2], seed=4)
    candidates = {"learned": Lipschitz(1.5, "knots", np.full(41, 0.4))} | FIXED_FUNCTIONS
    rng = np.random.default_rng(0)
    p, x = exact.probabilities(target), exact.states(target)
    start = x[rng.choice(len(p), p=p, size=20)]

    def new_ensemble(k):
        return BalancedEnsemble(
            target, start, [np.random.default_rng([5, k, c]) for c in range(20)]
        )

    n = 60_000
    budget = n * 5 * 20 * new_ensemble(0).step_cost
    outcome, evaluations = compare(rules_of(candidates), new_ensemble, budget)
    assert outcome.names == list(candidates)
    times = np.array([exact_times(function, target) for function in candidates.values()])
    found = np.column_stack([outcome.ess_per_step, outcome.lp_ess_per_step])
    # Times are below 25 and runs up to 2,000,000 transitions, but noise is summed too.
    last = outcome.in_last_round
    assert np.allclose(found[last] * times[last], 1.0, atol=0.08)
    assert np.allclose(found[:, 0] * times[:, 0], 1.0, atol=0.2)
    error = outcome.ess_error / outcome.ess_per_step
    assert (error[last] < 0.08).all()
    assert (np.abs(np.log(found * times)[:, 0]) < 3 * error).all()
    # Transitions cost the same, but for what functions prefer to move.
    assert np.allclose(outcome.ess_per_work, outcome.ess_per_step, rtol=0.1)
    assert np.allclose(outcome.work_error / outcome.ess_per_work, error)
    truth = dict(zip(candidates, 1 / times[:, 0], strict=True))
    assert truth[outcome.best] > 0.97 * max(truth.values())
    for function, rate in zip(candidates.values(), outcome.acceptance_rate, strict=True):
        _, log_t, stay = transitions(Balanced(function.table()), target)
        assert np.isclose(rate, 1 - p @ stay, atol=0.02)
        assert log_t.shape == target.log_ratios(x).shape
    assert evaluations <= budget


def test_work_is_what_is_compared():
    # A hub that always moves, at the cost of all, and sites that hardly do.
    target = STAR
    x = np.ones((4, target.n_sites), dtype=np.int8)

    def new_ensemble(k):
        return BalancedEnsemble(target, x, [np.random.default_rng([k, c]) for c in range(4)])

    outcome, spent = compare(FIXED_RULES, new_ensemble, 2e6)
    runs = {}
    for k, (name, rule) in enumerate(FIXED_RULES.items()):
        ensemble = new_ensemble(k)
        ensemble.start(rule)
        ensemble.advance(np.random.default_rng(k).random((4, 3000, 2)))
        runs[name] = ensemble.chains.evaluations.sum() / (4 * 3000)
    cost = outcome.ess_per_step / outcome.ess_per_work * new_ensemble(0).step_cost
    assert np.allclose(cost, list(runs.values()), rtol=0.3)
    assert max(runs.values()) > 3 * min(runs.values())
    assert spent <= 2e6


def test_too_small_a_budget_is_not_spent():
    target, x = dense(4), np.ones((2, 4), dtype=np.int8)

    def new_ensemble(k):
        return BalancedEnsemble(target, x, [np.random.default_rng([k, c]) for c in range(2)])

    cost = 4 * 2 * new_ensemble(0).step_cost
    for n in (0, 1, FEWEST_IN_A_ROUND - 1):
        outcome, spent = compare(FIXED_RULES, new_ensemble, n * cost)
        assert np.isnan(outcome.ess_per_step).all()
        assert np.isnan(outcome.ess_per_work).all()
        assert (outcome.transitions == 0).all()
        assert outcome.best == "barker"
        assert spent <= n * cost
    outcome, spent = compare(FIXED_RULES, new_ensemble, 5 * FEWEST_IN_A_ROUND * cost)
    assert np.isfinite(outcome.ess_per_step).all()
    assert (outcome.transitions >= FEWEST_IN_A_ROUND).all()
    assert spent == (outcome.transitions.sum() + 4 * 16) * 2 * 4
    assert spent <= 5 * FEWEST_IN_A_ROUND * cost


def test_the_race_ends_when_it_is_settled():
    # With a field of 3 the square root moves spins as often as max, but half as far.
    target = Ising(np.zeros((30, 30)), np.linspace(-2, 2, 30))
    x = np.random.default_rng(0).choice([-1, 1], (8, 30))

    def new_ensemble(k):
        return BalancedEnsemble(target, x, [np.random.default_rng([k, c]) for c in range(8)])

    told = []
    rules = {name: FIXED_RULES[name] for name in ("barker", "max")}
    outcome, spent = compare(rules, new_ensemble, 1e7, told.append)
    assert outcome.best == "barker"
    assert spent < 0.5 * 1e7
    assert sum(told) + 2 * 8 * 16 == spent
    same = {"barker": FIXED_RULES["barker"], "again": FIXED_RULES["barker"]}
    outcome, spent = compare(same, new_ensemble, 3e5)
    assert outcome.best == "barker"
    assert spent < 0.5 * 3e5  # they are known to be worth the same


@pytest.mark.parametrize("n", [2, 6, 16])
def test_many_candidates_are_affordable(n):
    target = dense(6, scale=0.3)
    x = np.ones((4, 6), dtype=np.int8)
    slow = {f"slow {k}": Balanced(Barker().table(), lazy=0.8 + 0.01 * k) for k in range(n - 1)}
    rules = slow | {"barker": FIXED_RULES["barker"]}

    def new_ensemble(k):
        return BalancedEnsemble(target, x, [np.random.default_rng([k, c]) for c in range(4)])

    budget = 2000 * n * 4 * new_ensemble(0).step_cost
    outcome, spent = compare(rules, new_ensemble, budget)
    # Nothing is evaluated by a step that does nothing: they are worth the same by work.
    assert (outcome.transitions > 0).all()
    assert outcome.transitions[-1] >= 500
    assert spent <= budget
    assert outcome.best == "barker"


def check_variance_over_all(package):
    """A candidate that leaves half of the sites unmoved is found out by those that move them."""

    class Half(package.BalancingFunction):
        """Moves of even sites are never made: their log-ratios are 0, those of the others 1."""

        def even_part(self, u):
            return np.where(np.abs(u) < 0.5, -60.0, 0.0)

    target = package.Ising(np.zeros((8, 8)), np.where(np.arange(8) % 2, 0.5, 0.0))
    x = np.ones((6, 8), dtype=np.int8)

    def new_ensemble(k):
        rngs = [np.random.default_rng([k, c]) for c in range(6)]
        return module(package, "ensembles.compiled").BalancedEnsemble(target, x, rngs)

    balanced = module(package, "_kernels.rules.balanced").Balanced
    candidates = {"half": balanced(Half().table()), "sqrt": balanced(package.Sqrt().table())}
    outcome, _ = module(package, "trials.pilot").compare(candidates, new_ensemble, 10 * 6 * 400)
    assert outcome.best == "sqrt", "a function that moves half of the sites is found out"
    assert outcome.ess_per_step[0] < 0.02, "a function that moves half of the sites is found"


def test_a_candidate_that_moves_half_of_the_sites_is_found_out():
    check_variance_over_all(sklsb)


def test_log_p_has_no_vote():
    # Two tied sites: their mean needs both to turn, log p changes when one does.
    target = Ising([[0.0, 1.5], [1.5, 0.0]], np.zeros(2))
    flat = Ising(np.zeros((5, 5)), np.zeros(5))

    def new_ensemble(k, target=target):
        x = np.ones((4, target.n_sites), dtype=np.int8)
        return BalancedEnsemble(target, x, [np.random.default_rng([k, c]) for c in range(4)])

    outcome, _ = compare(FIXED_RULES, new_ensemble, 3e6)
    for k, function in enumerate(FIXED_FUNCTIONS.values()):
        of_sites, of_lp = exact_times(function, target)
        assert of_lp < 0.7 * of_sites
        assert np.isclose(outcome.ess_per_step[k] * of_sites, 1.0, atol=0.1)
    outcome, _ = compare(FIXED_RULES, lambda k: new_ensemble(k, flat), 1e5)
    assert np.isfinite(outcome.ess_per_step).all()
    assert np.isnan(outcome.lp_ess_per_step).all()  # it never changes


def test_sites_are_looked_at_whatever_their_order():
    # Of 2,048 sites 1,024 are looked at; every second one is never moved by the first function.
    class Half(sklsb.BalancingFunction):
        def even_part(self, u):
            return np.where(np.abs(u) < 0.5, -60.0, 0.0)

    field = np.where(np.arange(2048) % 2, 0.0, 0.5)
    for h in (field, field[::-1]):
        target = Ising(sp.csr_array((2048, 2048)), h)

        def new_ensemble(k, target=target):
            x = np.ones((4, 2048), dtype=np.int8)
            return BalancedEnsemble(target, x, [np.random.default_rng([k, c]) for c in range(4)])

        rules = rules_of({"half": Half(), "sqrt": sklsb.Sqrt()})
        outcome, _ = compare(rules, new_ensemble, 4e6)
        assert outcome.best == "sqrt"


# ----------------------------------------------------------------- what is chosen


# Only functions differ.
STEPS = {"rejection_free": False, "factors": None}


def test_barkers_function_is_chosen_on_independent_sites(monkeypatch):
    # There it is optimal, and flux learns it; max mixes worst. A long race tells by how much.
    monkeypatch.setattr("sklsb.trials.race._LITTLE", 0.0)
    target = Ising(np.zeros((40, 40)), np.random.default_rng(0).normal(size=40))
    sampler = fitted(target, n_burn_in=1000, random_state=1, **STEPS)
    table = sampler.candidates_["ess_per_step"].to_series()
    assert list(table.index) == [*MIXING, *FIXED]
    assert table.idxmin() == "max"
    assert sampler.candidates_.attrs["chosen"] in ("barker", "flux")
    u = 2 * np.abs(target.field)
    ends = sampler.balancing_.even_part(u) - sampler.balancing_.even_part(0.0)
    assert ends[np.argmax(u)] < -0.3
    assert table["flux"] > 0.95 * table.max()


def test_the_global_flux_is_worth_more_on_tied_pairs():
    sampler = fitted(tied_pairs(30, 40), n_chains=8, n_burn_in=None, **STEPS)
    table = sampler.candidates_["ess_per_step"].to_series()
    assert table["global_flux"] > 1.35 * table["sqrt"]
    assert table["global_flux"] > 3 * max(table["flux"], table["barker"], table["min"])
    # They are the same within 2 %.
    assert sampler.candidates_.attrs["chosen"] in ("global_flux", "max")


def true_time(function, target, start, n=20_000, thin=10):
    """Time of the sites from the variance of the means of runs that start in equilibrium."""
    draws = fitted_with(function, target, start).sample(n // thin, thin=thin)["x"].to_numpy()
    means = np.tanh(target.field)  # of variables that are free, or tied without a field
    return n * np.square(draws.mean(axis=1) - means).mean(axis=0).sum() / (1 - means**2).sum()


def fitted_with(function, target, start):
    return LSBSampler(function.tabulated(), n_burn_in=0, n_chains=len(start), random_state=1).fit(
        target, initial_states=start
    )


@pytest.mark.slow  # `check_slow_part` is in the commit tier
def test_few_slow_variables_among_many_are_seen():
    # A pair with 5 % of the variance, and three quarters of the time if Barker's function moves it.
    rng = np.random.default_rng([9, 50])
    couplings, field = np.zeros((60, 60)), np.append([0.0, 0.0], rng.normal(size=58))
    couplings[0, 1] = couplings[1, 0] = 2.5
    target = Ising(couplings, field)
    start = np.where(rng.random((600, 60)) < 0.5 * (1 + np.tanh(field)), 1, -1).astype(np.int8)
    start[:, 1] = np.where(rng.random(600) < 0.5 * (1 + np.tanh(2.5)), 1, -1) * start[:, 0]
    sampler = fitted(target, n_chains=4, n_burn_in=None, **STEPS)
    table = sampler.candidates_.to_dataframe()
    chosen = sampler.candidates_.attrs["chosen"]
    functions = {"sqrt": sklsb.Sqrt(), "max": FIXED["max"](), chosen: sampler.balancing_}
    truth = {f: 1 / true_time(g, target, start) for f, g in functions.items()}
    assert truth[chosen] > 0.9 * max(truth.values())
    for name, ess in truth.items():
        reported, error = table.loc[name, ["ess_per_step", "ess_error"]]
        assert abs(np.log(reported / ess)) < 3 * np.hypot(error / reported, 0.1)
        assert 1 / 1.5 < reported / ess < 1.5


# Effective sample sizes in Tables 2: barker, sqrt, min, max, LSB 1, LSB 2.
PAPERS = {
    "final paper": [
        (2.55, 2.29, 2.43, 1.71, 2.32, 2.34),
        (3.30, 2.89, 2.96, 1.68, 2.85, 2.30),
        (2.39, 1.83, 2.31, 1.20, 2.01, 2.44),
        (2.10, 7.08, 1.74, 1.74, 2.52, 20.11),
    ],
    "its first version": [
        (2.48, 2.30, 2.42, 1.75, 2.50, 2.46),
        (3.33, 2.94, 3.33, 1.72, 2.98, 3.33),
        (2.58, 1.99, 2.56, 1.26, 2.48, 2.67),
        (32.8, 18.5, 31.8, 2.60, 18.4, 30.8),
    ],
}


@pytest.mark.parametrize("edition", PAPERS)
@pytest.mark.parametrize("k", [1, 2])
def test_rows_of_the_paper_are_of_one_edition(edition, k):
    page = Path(__file__).resolve().parents[1] / "doc" / "measured" / "learning_cases.inc"
    rows = re.findall(rf"\* - {edition}, LSB {k}\n((?: +- \S+\n){{4}})", page.read_text("utf-8"))
    assert len(rows) == 1
    expected = [f"{row[3 + k] / max(row[:4]):.2f}" for row in PAPERS[edition]]
    assert rows[0].replace("-", "").split() == expected


def check_choice(package):
    """The function in use is the chosen one, and each candidate has its own streams."""
    target = package.Ising(np.zeros((4, 4)), [0.2, -1.0, 0.7, 0.4])
    following = []

    def spy(candidates, new_ensemble, *rest, **more):
        following.extend(new_ensemble(k).streams.chain[0].random() for k in range(3))
        return module(package, "trials.pilot").compare(candidates, new_ensemble, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module(package, "samplers._lsb.choosing"), "compare", spy)
        package.LSBSampler("mixture", n_burn_in=10, random_state=0).fit(target)
    assert len(set(following)) == 3, "candidates have streams of their own"
    sampler = package.LSBSampler("learned", n_chains=2, n_burn_in=40, random_state=0).fit(target)
    chosen = sampler.candidates_.attrs["chosen"]
    name = type(sampler.balancing_).__name__.lower()
    assert name == ("lipschitz" if chosen in MIXING else chosen), "the chosen one is used"
    moving = sampler.burn_in_balancing_.table().value
    assert not np.array_equal(sampler.balancing_.table().value, moving), "the chosen one is used"


def test_the_chosen_function_is_used():
    check_choice(sklsb)


@pytest.mark.parametrize("objective", ["auto", *OBJECTIVES, *MIXING])
def test_candidates_are_the_learned_and_the_fixed_ones(lattice, objective):
    sampler = fitted(lattice, objective=objective, n_burn_in=1000)
    learned = MIXING if objective == "auto" else (objective,)
    data = sampler.candidates_
    jumps = ["jump_barker"]
    names = data["candidate"].values.tolist()
    assert names[: len(names) - 3 * ("jump_barker_by_ess" in names)] == [*learned, *FIXED, *jumps]
    shares = {"ess_per_step", "ess_per_work", "lp_ess_per_step", "acceptance_rate"}
    counts = {"transitions", "n_flips"}
    assert set(data) == {*shares, *counts, "in_last_round", "ess_error", "work_error"}
    assert (data["transitions"] >= FEWEST_IN_A_ROUND).all()
    for name in shares:
        assert np.isfinite(data[name]).all()
        assert (data[name] <= 1.001).all()
    chosen = data.attrs["chosen"]
    assert data["in_last_round"].sel(candidate=chosen)
    fixed = [name for name in FIXED if chosen in (name, f"jump_{name}") or f"_{name}_by" in chosen]
    if fixed:
        assert type(sampler.balancing_) is FIXED[fixed[0]]
    elif objective in OBJECTIVES:
        assert np.array_equal(sampler.balancing_.theta, sampler.burn_in_balancing_.theta)
    history = sampler.history_
    if objective in OBJECTIVES:
        assert "mixing_theta" not in history
    else:
        assert history["candidate"].values.tolist() == list(learned)
        assert history["mixing_theta"].dims == ("candidate", "evaluation", "mixing_parameter")
        assert history["mixing_even_part"].dims == ("candidate", "evaluation", "u")
        for kind in learned:
            values = history["mixing_objective"].sel(candidate=kind).values
            values = values[np.isfinite(values)]
            assert values.min() <= values[0]


def test_without_a_pilot_there_are_no_candidates(lattice):
    for objective in ("auto", "kl", "global_flux"):
        sampler = fitted(lattice, objective=objective, pilot=False)
        assert not hasattr(sampler, "candidates_")
        assert sampler.history_.attrs["pilot_evaluations"] == 0
    assert isinstance(fitted(lattice, pilot=False).balancing_, Lipschitz)
    # "auto" is then "flux".
    one, other = (fitted(lattice, pilot=False, objective=name) for name in ("auto", "flux"))
    assert np.array_equal(one.balancing_.theta, other.balancing_.theta)
    assert np.array_equal(one.sample(50)["x"], other.sample(50)["x"])


def test_a_fixed_function_needs_no_pilot(lattice):
    sampler = fitted(lattice)
    assert hasattr(sampler, "candidates_")
    sampler.set_params(balancing="barker").fit(lattice)
    assert not hasattr(sampler, "candidates_")
    assert sampler.history_.attrs["pilot_evaluations"] == 0
    assert sampler.history_.sizes["iteration"] == 150  # every second


# ----------------------------------------------------------------- where Z(x) grows


def regression(p, seed, n=300):
    """Columns are correlated, and ten of them matter, at the edge of what can be found."""
    rng = np.random.default_rng(seed)
    X = np.empty((n, p))
    X[:, 0] = rng.normal(size=n)
    for j in range(1, p):
        X[:, j] = 0.6 * X[:, j - 1] + 0.8 * rng.normal(size=n)
    beta = np.array([2.0, -3.0, 2.0, 2.0, -3.0, 3.0, -2.0, 3.0, -2.0, 3.0])
    return VariableSelection(X, X[:, :10] @ beta * np.sqrt(np.log(p) / n) + rng.normal(size=n))


# Functions of large slopes, as flux objectives learn them there: nearly all of their proposals add
# columns that do not matter, and take them out again.
STEEP = {
    "flux": Lipschitz(1.5, "knots", np.full(41, 1.0)),
    "global_flux": Lipschitz(1.5, "knots", np.full(41, 2.0)),
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
@pytest.mark.parametrize("n_burn_in", [300, 1500])
def test_the_pilot_is_not_fooled_by_short_runs_where_z_grows(seed, n_burn_in):
    # Barker's function and min are worth 20 to 200 times as much as the steep ones.
    target = regression(300, seed)
    sampler = LSBSampler("barker", n_burn_in=n_burn_in, random_state=seed, blocks=None).fit(target)

    def new_ensemble(k):
        rngs = [np.random.default_rng([seed, k, c]) for c in range(4)]
        return BalancedEnsemble(target, sampler.state_, rngs)

    rules = rules_of(STEEP) | FIXED_RULES
    outcome, _ = compare(rules, new_ensemble, 600 * 6 * 4 * 300)
    assert outcome.best in ("barker", "sqrt", "min")


def test_functions_that_neglect_uncertain_columns_do_not_race():
    target = regression(300, 0)
    states = LSBSampler("barker", random_state=0, blocks=None).fit(target).state_
    ratios = target.log_ratios(states)
    functions = STEEP | {"kept": Lipschitz(), "sqrt": sklsb.Sqrt()}
    assert neglectful(functions, Visited(target, states, ratios)) == set(STEEP)
    # With two hundred tied spins and ten free ones, steep is right: the variance is in the tied.
    tied = tied_pairs(100, 10)
    rng = np.random.default_rng(0)
    states = np.hstack([np.repeat(rng.choice([-1, 1], (16, 100)), 2, 1), np.ones((16, 10), int)])
    assert neglectful(functions, Visited(tied, states, tied.log_ratios(states))) == set()
    # Nothing is uncertain.
    sure = Ising(np.zeros((3, 3)), np.full(3, 400.0))
    some = Visited(sure, states[:, :3], sure.log_ratios(states[:, :3]))
    assert neglectful(functions, some) == set()


# ----------------------------------------------------------------- what it costs


def _star(n=100):
    """A hub that moves all the time, at the cost of all the others, which hardly move."""
    couplings = np.zeros((n + 1, n + 1))
    couplings[0, 1:] = couplings[1:, 0] = 0.01
    return Ising(couplings, np.append(-0.01 * n, np.full(n, 8.0)))


STAR = _star()


TARGETS = {
    "lattice": Ising.lattice(np.random.default_rng(0).normal(scale=0.5, size=(4, 5)), coupling=0.2),
    "potts": Potts.lattice(np.zeros((3, 4, 3)), 0.4),
    "pairs": tied_pairs(5, 10),
    "star": STAR,
}


@pytest.mark.parametrize(
    ("objective", "target"),
    pairs({name: name for name in ("auto", "kl", "bound", "flux")}, TARGETS),
)
def test_the_pilot_costs_at_most_half_of_what_was_spent_before(objective, target):
    sampler = fitted(target, objective=objective, n_burn_in=1500, init="uniform", blocks=None)
    attrs = sampler.history_.attrs
    before = sum(attrs[f"{part}_evaluations"] for part in ("burn_in", "mixing", "factors"))
    assert attrs["pilot_evaluations"] <= 0.5 * before
    # It ends early where it is settled, and cannot run where one transition costs too much.
    assert attrs["pilot_evaluations"] > 0.05 * before or target is STAR
    assert sampler.n_evaluations_ == before + attrs["pilot_evaluations"]
    if objective in OBJECTIVES:
        # Only the log-ratios of the stored states, at which functions are judged.
        n_states, rest = divmod(attrs["mixing_evaluations"], (target.cardinalities - 1).sum())
        assert 16 <= n_states <= 512
        assert rest == 0
    sampler.sample(50)
    assert sampler.n_evaluations_ > before + attrs["pilot_evaluations"]


# ----------------------------------------------------------------- exact afterwards


def check_exactness(package, target=None):
    """Draws after the pilot are those of an exact chain that goes on from where it ended."""
    if target is None:
        target = package.Ising([[0.0, 0.7], [0.7, 0.0]], [0.3, -0.2])
    sampler = package.LSBSampler("learned", n_chains=2, n_burn_in=30)
    importlib.import_module("local_step").check_sampler(sampler, target, n_draws=20)


@pytest.mark.parametrize("name", ["ising", "potts", "evidence"])
def test_a_learned_sampler_passes_the_public_check(name):
    target = dense(3) if name == "ising" else potts(GRAPHS[5], name.replace("potts", "random"))
    check_exactness(sklsb, target)


def check_start(package):
    """The pilot leaves the chains where the burn-in ended, and their streams to them."""
    target = package.Ising(np.zeros((4, 4)), [0.2, -1.0, 0.7, 0.4])
    states = []

    def spy(candidates, new_ensemble, *rest, **more):
        states.append(new_ensemble(0).chains.x.copy())
        result = module(package, "trials.pilot").compare(candidates, new_ensemble, *rest, **more)
        followed.extend(new_ensemble(k).streams.chain[0].random() for k in range(len(candidates)))
        return result

    followed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module(package, "samplers._lsb.choosing"), "compare", spy)
        sampler = package.LSBSampler(n_chains=8, n_burn_in=100, random_state=0).fit(target)
    assert np.array_equal(sampler.state_, states[0]), "chains go on where the burn-in ended"
    ours = [rng.random() for rng in sampler.run_.ensemble.streams.copy().chain]
    assert len({*ours, *followed}) == 8 + len(followed), "streams are nobody else's"


def test_chains_go_on_where_the_burn_in_ended():
    check_start(sklsb)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_sample_in_parts_is_sample_at_once(lattice, n_jobs):
    one, other = fitted(lattice, n_jobs=n_jobs), fitted(lattice)
    assert one.candidates_.identical(other.candidates_)
    assert untimed(one.history_).identical(untimed(other.history_))
    parts = np.concatenate([one.sample(30)["x"], one.sample(50)["x"]], axis=1)
    assert np.array_equal(parts, other.sample(80)["x"])
    assert one.n_evaluations_ == other.n_evaluations_


def test_seeds_decide(lattice):
    one, other = fitted(lattice, random_state=1), fitted(lattice, random_state=2)
    assert not one.candidates_.identical(other.candidates_)
    assert one.candidates_.identical(fitted(lattice, random_state=1).candidates_)


@pytest.mark.parametrize(
    "target", [dense(0), dense(1), dense(2), Ising([[0.0]], [700.0])], ids=repr
)
def test_smallest_targets(target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        for n_burn_in in (0, 1, 20, 500):
            sampler = fitted(target, n_burn_in=n_burn_in)
            assert hasattr(sampler, "candidates_") == bool(n_burn_in and target.n_sites)
            assert sampler.sample(20)["x"].shape == (3, 20, target.n_sites)


def test_evidence_and_one_possible_value():
    infinite = -np.inf
    field = [[0.0, infinite, infinite], [0.3, 0.1, infinite], [0.2, -0.4, 0.5]]
    couplings = 0.4 * (np.ones((3, 3)) - np.eye(3))
    sampler = fitted(Potts(couplings, field))
    x = sampler.sample(200)["x"].values  # without a FrozenSitesWarning: they are errors here
    assert (x[:, :, 0] == 0).all()
    assert (x[:, :, 1] < 2).all()
    assert np.isfinite(sampler.candidates_["ess_per_step"]).all()


# ----------------------------------------------------------------- starved moves


class Hollow(LearnableFunction):
    """A learnable function whose even part has a hollow at a place; theta changes nothing."""

    def __init__(self, at=2.0, depth=20.0):
        self.at, self.depth = at, depth
        self.theta = self._check_theta(np.zeros(1), 1)

    def even_part(self, u):
        return -self.depth * (np.abs(np.abs(np.asarray(u)) - self.at) < 0.5)

    def vjp(self, grad_knots):
        return np.zeros(1)


def check_starved(package):
    """A hollow of 20 nats at abs(u) = 2 is found, and nothing in an increasing function."""
    u = np.array([-4.0, -2.0, 0.5, 1.0, 2.0, 2.25, 5.0, np.inf, -np.inf])
    find = module(package, "trials.pilot").starved

    class OfPackage(package.BalancingFunction):
        even_part = Hollow.even_part
        at, depth = 2.0, 20.0

    deficit, where = find(OfPackage(), u)
    assert 19 < deficit <= 20, "a hollow of 20 nats is found"
    assert where == (2.0, 2.25)
    for name in FIXED:
        assert find(module(package, "balancing.functions").FIXED[name](), u)[0] <= 1e-12


def test_starved_moves_are_found():
    check_starved(sklsb)
    assert starved(Hollow(), np.array([0.5, 4.0]))[0] == 0.0  # not where nothing occurs
    assert starved(Hollow(), np.array([np.inf]))[0] == 0.0
    assert starved(Hollow(), np.array([]))[0] == 0.0


def test_an_increasing_function_starves_nothing():
    u = np.linspace(-20, 20, 999)
    rng = np.random.default_rng(0)
    for architecture in ("knots", "network"):
        start = Lipschitz(0.5, architecture)
        for scale in (0.3, 10.0):
            theta = start.theta + scale * rng.standard_normal(start.theta.size)
            assert starved(start.with_theta(theta), u)[0] <= 1e-9
    steep = Lipschitz(1.5, "knots", np.full(41, -20.0))
    # From 0 to 20 it falls by 30, an increasing one by 10.
    deficit, where = starved(steep, u)
    assert np.isclose(deficit, 20.0, atol=0.2)
    assert where[0] == pytest.approx(STARVED, abs=0.2)
    assert where[1] == 20.0


def test_a_starving_function_is_named_and_not_used():
    # All log-ratios are 2 or 5: with the hollow at 2 half of the sites are practically frozen.
    # An increasing function could lie 1.5 lower at 2 than at 5.
    target = Ising(np.zeros((8, 8)), np.where(np.arange(8) % 2, 1.0, 2.5))
    message = (
        r"learned by 'kl' starves moves with .* from 2 to 2: they get exp\(-18\.5\) .*Lipschitz"
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        sampler = fitted(target, Hollow(), objective="kl")
    texts = [str(w.message) for w in seen if w.category is StarvedMovesWarning]
    assert len(texts) == 1
    assert re.search(message, texts[0])
    assert seen[0].filename.endswith("test_pilot.py")
    names = sampler.candidates_["candidate"].values.tolist()
    assert names[:4] == list(FIXED)
    assert not {"flux", "global_flux"} & set(names)
    assert type(sampler.balancing_) in FIXED.values()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        alone = fitted(target, Hollow(), objective="kl", pilot=False)
    assert any(w.category is StarvedMovesWarning for w in seen)
    assert isinstance(alone.balancing_, Hollow)
    with warnings.catch_warnings():
        warnings.simplefilter("error", StarvedMovesWarning)
        fitted(target, Hollow(at=8.0), objective="kl")
        fitted(target, Mixture())
        fitted(target)


def _expected_by_hand(target, function, jumps):
    """The variance-weighted harmonic mean of flow over variance, by sums over all states."""
    x, p = states(target), probabilities(target)
    log_w = function.log_g(target.log_ratios(x))
    w = np.exp(log_w)
    flow = p @ w / (p @ w.sum(axis=1)) if jumps else p @ (w / w.sum(axis=1, keepdims=True))
    up = p @ (x == 1)
    variance = 2.0 * up * (1.0 - up)
    return np.log(variance.sum() / (variance**2 / flow).sum())


@pytest.mark.parametrize("jumps", [False, True])
def test_expected_sizes_are_flows_over_variances(jumps):
    """On independent spins, with every state as often as it is probable."""
    target = Ising(np.zeros((4, 4)), [0.1, -0.3, 0.6, 1.1])
    x = np.repeat(states(target), np.round(1e5 * probabilities(target)).astype(int), axis=0)
    seen = Visited(target, x, target.log_ratios(x))
    candidates = {name: Candidate(cls(), jumps) for name, cls in FIXED.items()}
    found = expected_sizes(candidates, seen)
    by_hand = np.array([_expected_by_hand(target, c.function, jumps) for c in candidates.values()])
    assert found == pytest.approx(by_hand - by_hand.max(), abs=2e-3)
    assert np.ptp(found) > 0.1, "functions differ"


def test_what_was_fitted_to_the_states_is_expected_to_be_no_better():
    field = np.array([0.1, 0.9, 2.0])
    target = Ising(np.zeros((3, 3)), field)
    x = states(target)
    seen = Visited(target, x, target.log_ratios(x))
    factors = 1.0 / (1.0 + np.exp(2.0 * field))  # make Barker's function of it
    plain = {"max": Candidate(Max(), True), "sqrt": Candidate(Sqrt(), True)}
    fitted = {"factors": Candidate(Max(), True, factors, of_seen=True)}
    same = {"factors": Candidate(Max(), True, factors)}
    assert expected_sizes(plain | same, seen).argmax() == 2
    found = expected_sizes(plain | fitted, seen)
    assert found[2] == found[:2].max() == 0.0


def test_measurements_are_shrunk_by_their_errors():
    ess, expected = np.array([1.0, 0.5, np.nan]), np.array([0.0, -1.0, -0.3])
    found, error = _shrunk(ess, np.array([1e-9, 1e-9, np.inf]), expected)
    assert found[:2] == pytest.approx(ess[:2]), "what is known stays"
    common = np.mean([0.0, np.log(0.5) + 1.0])
    assert found[2] == pytest.approx(np.exp(-0.3 + common)), "what is not known is expected"
    assert error == pytest.approx([0.0, 0.0, 0.5], abs=1e-6)
    # Half of each at an error of 1/2.
    found, error = _shrunk(np.array([np.e, 1.0]), np.array([0.5, 0.5]), np.zeros(2))
    assert np.log(found) == pytest.approx([0.75, 0.25])
    assert error == pytest.approx([0.5 / np.sqrt(2)] * 2)
    nothing = _shrunk(np.full(2, np.nan), np.full(2, np.inf), np.zeros(2))
    assert np.isnan(nothing[0]).all()


def test_a_sweep_of_more_numbers_than_a_buffer_has():
    """A chunk of no transitions would never end."""
    target = Ising.lattice(np.zeros((2, MOST_NUMBERS // 4 + 1)), 0.2)
    chains = ClusterSampler(n_chains=1, n_burn_in=0, random_state=0).fit(target).run_.ensemble
    assert chains.rule.facts.n_uniforms > MOST_NUMBERS
    x, stats = draw(chains, 2, 1, np.arange(3))
    assert x.shape == (1, 2, 3)
    assert np.isfinite(stats[:, :, 0]).all()

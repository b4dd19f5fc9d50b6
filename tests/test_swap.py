"""Exchanges of two values: exactness at fixed counts, where chains start, and what is refused."""

import copy
import itertools
import math
import pickle
import warnings

import joblib
import networkx as nx
import numba
import numpy as np
import pytest
from exact_matrices import eigenvalues
from models import FUNCTIONS, dense, pairs, potts
from scipy.stats import chi2

from sklsb import (
    RBM,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    SwapSampler,
    VariableSelection,
    diagnostics,
    exact,
    sample_chains,
    testing,
)
from sklsb._kernels.rules.swap import Swap
from sklsb._kernels.run import Drawing
from sklsb.balancing import Barker, Mixture
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.matrices import log_transition_matrix, rule_of
from sklsb.exceptions import (
    FrozenSitesWarning,
    PeriodicChainWarning,
    SamplerWarning,
    SeparatedModesWarning,
)
from sklsb.testing._expect import EPS

INF = np.inf
_rng = np.random.default_rng(0)


def permutations(n, seed=0):
    """All different, by a table with zeros for each pair; and weights of each value."""
    rng = np.random.default_rng(seed)
    pairs = [((i, j), (1 - np.eye(n)) * rng.random((n, n))) for i in range(n) for j in range(i)]
    return MarkovNetwork([n] * n, [*pairs, *(((i,), rng.random(n)) for i in range(n))])


@numba.njit
def two_hot(x):
    """Two of the variables are 1."""
    value = 0.0
    for i in range(x.size):
        value += 0.4 * x[i] * i - 0.3 * x[i] * x[i - 1]
    return value if x.sum() == 2 else -np.inf


_weights = _rng.normal(size=(5, 5))


@numba.njit
def distinct(x):
    """A ranking of five."""
    value = 0.0
    for i in range(x.size):
        value += _weights[i, x[i]]
        for j in range(i):
            if x[i] == x[j]:
                return -np.inf
    return value


PATH = nx.path_graph(3)
PERMUTATIONS = permutations(3)
# A chain may have to exchange the values of variables that do not take each other's.
MIXED = MarkovNetwork(
    [3, 2, 4],
    [((0, 1), _rng.random((3, 2))), ((1, 2), [[1, 0, 2, 0], [0, 3, 0, 0.1]]), ((2,), [1, 2, 3, 4])],
)
MACHINE = RBM(_rng.normal(size=(3, 2)), _rng.normal(size=3), _rng.normal(size=2))
_x = _rng.normal(size=(12, 3))
SELECTION = VariableSelection(_x, _x[:, 0] + _rng.normal(size=12))
FUNCTION = FunctionTarget(two_hot, 4)
TARGETS = {
    "ising": dense(3),
    "one site": dense(1),
    "nothing": Ising(np.zeros((0, 0))),
    "extreme fields": Ising(np.zeros((3, 3)), [700.0, -350.0, 1.0]),
    "flat": Ising(np.zeros((3, 3))),
    "potts": potts(PATH, "random"),
    "potts zeros": potts(PATH, "zeros", seed=3),
    "permutations": PERMUTATIONS,
    "mixed": MIXED,
    "machine": MACHINE,
    "selection": SELECTION,
    "function": FUNCTION,
    "evidence": permutations(4).condition({2: 0}),
    "evidence on a function": FUNCTION.condition({1: 1}),
    "all observed": MIXED.condition({0: 0, 1: 0, 2: 0}),
    "tiny factors": MarkovNetwork([2, 3], [((0, 1), [[1e-300, 1e300, 1], [0, 1e-300, 1e300]])]),
}
each_target = pytest.mark.parametrize("name", TARGETS)


def quietly(sampler, *args, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return sampler.sample(*args, **settings)


def new_chains(sampler, *args, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return sample_chains(sampler, *args, **settings)


def fitted(target, *args, start=None, **params):
    params = {"n_chains": 2, "n_burn_in": 20, "random_state": 0} | params
    return SwapSampler(*args, **params).fit(target, initial_states=start)


# ----------------------------------------------------------------- the transition


def by_hand(target, function, n_partners, lazy=0.0):
    """The transition matrix, by loops over sites, sets of partners and partners."""
    ranges = [target.values[:k] for k in target.cardinalities.tolist()]
    states = list(itertools.product(*ranges))
    given = np.array(states).reshape(len(states), target.n_sites)
    log_p = dict(zip(states, target.log_prob(given).tolist(), strict=True))
    sites = np.flatnonzero(target.n_possible > 1).tolist()
    size = min(n_partners, max(0, len(sites) - 1))
    drawn = [
        (i, partners)
        for i in sites
        for partners in itertools.combinations([j for j in sites if j != i], size)
    ]

    def weights(x, i, partners):
        found = {}
        for j in partners:
            y = list(x)
            y[i], y[j] = y[j], y[i]
            if tuple(y) in log_p and x[i] != x[j]:
                g = float(np.exp(function.log_g(log_p[tuple(y)] - log_p[x])))
                found[j] = (tuple(y), g)
        return found, sum(g for _, g in found.values())

    matrix = np.zeros((len(states), len(states)))
    for a, x in enumerate(states):
        if log_p[x] == -INF or not drawn:
            matrix[a, a] = 1.0
            continue
        for i, partners in drawn:
            found, z = weights(x, i, partners)
            matrix[a, a] += lazy / len(drawn)
            left = (1 - lazy) / len(drawn)
            for y, g in found.values():
                if g > 0:
                    p = (1 - lazy) / len(drawn) * g / z * min(1.0, z / weights(y, i, partners)[1])
                    matrix[a, states.index(y)] += p
                    left -= p
            matrix[a, a] += left
    return matrix


@pytest.mark.parametrize("n_partners", [1, 2, 9])
@each_target
def test_the_formula(name, n_partners):
    target = TARGETS[name]
    for function, lazy in ((Barker().tabulated(), 0.0), (FUNCTIONS["max"].tabulated(), 0.3)):
        sampler = SwapSampler(function, n_partners=n_partners, lazy=lazy)
        found = exact.transition_matrix(sampler, target)
        if name == "extreme fields":  # beyond the range of g
            continue
        wanted = by_hand(target, function, n_partners, lazy)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("balancing", ["barker", "sqrt", "min", "max"])
@each_target
def test_balance_of_the_formula(name, balancing):
    target = TARGETS[name]
    x = exact.states(target)
    log_p = target.log_prob(x)
    log_p = log_p - np.logaddexp.reduce(log_p)
    p = np.exp(log_p)
    largest = 1 + np.abs(log_p[np.isfinite(log_p)]).max(initial=0.0)
    for n_partners in (1, 2, None):
        sampler = SwapSampler(balancing, n_partners=n_partners)
        matrix = exact.transition_matrix(sampler, target)
        # As many numbers are summed as there are sites, sets and partners.
        assert np.abs(matrix.sum(axis=1) - 1).max(initial=0.0) <= 4 * EPS * max(1, target.n_sites)
        with np.errstate(invalid="ignore"):
            flow = log_p[:, None] + log_transition_matrix(sampler, target)
            gap = np.abs(flow - flow.T)
        assert np.nan_to_num(gap).max(initial=0.0) <= 16 * EPS * largest
        flow = p[:, None] * matrix
        assert np.abs(flow - flow.T).max(initial=0.0) <= 1e-15 * largest
        assert np.abs(p @ matrix - p).max(initial=0.0) <= 1e-15 * largest
        assert (matrix[np.ix_(p > 0, log_p == -INF)] == 0).all()
        ordered = np.sort(x, axis=1)
        same = (ordered[:, None] == ordered[None]).all(axis=2)
        assert (matrix[~same] == 0).all()


DEAR = ("potts", "evidence", "machine", "selection", "evidence on a function")


@pytest.mark.parametrize("n_partners", [1, 9])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in DEAR else []) for n in TARGETS]
)
def test_the_compiled_step_is_the_formula(name, n_partners):
    for balancing, lazy in (("barker", 0.0), ("max", 0.3)):
        sampler = SwapSampler(balancing, n_partners=n_partners, lazy=lazy)
        testing.check_rule(rule_of(sampler, TARGETS[name]), TARGETS[name])


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_every_balancing_function(function):
    sampler = SwapSampler(function, n_partners=2)
    testing.check_rule(rule_of(sampler, dense(3)), dense(3))


@pytest.mark.parametrize(
    ("sampler", "target"),
    [
        (SwapSampler(), PERMUTATIONS),
        (SwapSampler("sqrt", n_partners=1, lazy=0.2), PERMUTATIONS),
        (SwapSampler(n_partners=None, init="uniform"), FUNCTION),
        (SwapSampler("max", n_chains=1, init="quenched"), permutations(4).condition({2: 0})),
        (SwapSampler(n_burn_in=0), Ising(np.zeros((0, 0)))),
    ],
    ids=str,
)
def test_sampler(sampler, target):
    testing.check_sampler(sampler, target, n_draws=30)


def test_one_partner_is_metropolis():
    target = dense(4)
    p = exact.probabilities(target)
    found = exact.transition_matrix(SwapSampler("sqrt", n_partners=1), target)
    for balancing in ("barker", "min", "max"):
        other = exact.transition_matrix(SwapSampler(balancing, n_partners=1), target)
        np.testing.assert_allclose(other, found, rtol=0, atol=1e-14)
    x = exact.states(target)
    for a, b in itertools.permutations(range(len(x)), 2):
        pair = x[a] != x[b]
        if pair.sum() == 2 and x[a].sum() == x[b].sum():  # i then j, or j then i, of 4 * 3
            wanted = min(1.0, p[b] / p[a]) * 2 / 12
            np.testing.assert_allclose(found[a, b], wanted, rtol=1e-12)
        else:
            assert found[a, b] == 0


def test_all_states_of_a_class_are_reached():
    """All states of the same counts, even where single changes lead nowhere."""
    for target, n_classes in ((dense(4), 5), (permutations(4), 1), (FUNCTION, 1)):
        x = exact.states(target)
        possible = target.log_prob(x) > -INF
        matrix = exact.transition_matrix(SwapSampler(n_partners=1), target)
        graph = nx.from_numpy_array(matrix[np.ix_(possible, possible)] > 0)
        assert nx.number_connected_components(graph) == n_classes


def test_periodic_where_all_values_differ():
    flat = MarkovNetwork([3] * 3, [((i, j), 1 - np.eye(3)) for i, j in ((0, 1), (0, 2), (1, 2))])
    assert np.isclose(eigenvalues(SwapSampler(), flat)[0], -1)
    assert eigenvalues(SwapSampler(lazy=0.5), flat)[0] > -1e-9
    magnet = Ising(np.zeros((3, 3)))
    assert eigenvalues(SwapSampler(), magnet)[0] > -0.6


# ----------------------------------------------------------------- draws


def of_class(target, start):
    """Possible states with the counts of a start, and their probabilities given these."""
    x = exact.states(target)
    same = (np.sort(x, axis=1) == np.sort(start)).all(axis=1)
    x, log_p = x[same], target.log_prob(x[same])
    p = np.exp(log_p - log_p.max())
    return x[p > 0], p[p > 0] / p.sum()


def chi_square(x, states, p):
    """Probability of so many unlike frequencies."""
    index = {state.tobytes(): k for k, state in enumerate(states)}
    seen = np.bincount([index[state.tobytes()] for state in x], minlength=len(p))
    expected = len(x) * p
    rare = expected < 10
    seen = np.append(seen[~rare], seen[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    used = expected > 0
    statistic = np.square(seen - expected)[used] / expected[used]
    return chi2.sf(statistic.sum(), used.sum() - 1)


CLASSES = {
    "permutations of 5": (permutations(5, seed=3), np.arange(5)),
    "permutations by a function": (
        FunctionTarget(distinct, 5, 5, initial_state=np.arange(5)),
        np.arange(5),
    ),
    "fixed magnetisation": (dense(7, scale=0.5), np.array([1, 1, 1, -1, -1, -1, -1])),
    "fixed colours": (potts(nx.path_graph(5), "random"), np.array([0, 0, 1, 1, 2])),
    "two of five": (FunctionTarget(two_hot, 5), np.array([1, 1, 0, 0, 0])),
}


@pytest.mark.parametrize(("name", "n_partners"), pairs([*CLASSES], [1, 3, None]))
def test_exact_draws_stay_exact(name, n_partners):
    """Chains from exact draws, after one and after several transitions."""
    target, start = CLASSES[name]
    states, p = of_class(target, start)
    rng = np.random.default_rng(5)
    n = 4000
    x = states[rng.choice(len(p), size=n, p=p)]
    rule = rule_of(SwapSampler(n_partners=n_partners), target)
    chains = Ensemble(target, x, Streams(spawn(7, n)), rule=rule)
    chains.start(rule)
    nothing = np.empty((n, 0, target.n_sites), target.dtype), np.empty((n, 0, 2))
    for steps in (1, 6):
        chains.run(steps, Drawing(), nothing)
        assert chi_square(chains.chains.x, states, p) > 1e-9
    # As often from one state to another as back.
    index = {state.tobytes(): k for k, state in enumerate(states)}
    before, after = (
        np.array([index[state.tobytes()] for state in part]) for part in (x, chains.chains.x)
    )
    flow = np.zeros((len(p), len(p)))
    np.add.at(flow, (before, after), 1)
    upper, lower = flow[np.triu_indices(len(p), 1)], flow.T[np.triu_indices(len(p), 1)]
    seen = upper + lower > 0
    bowker = np.square(upper - lower)[seen] / (upper + lower)[seen]
    assert chi2.sf(bowker.sum(), seen.sum()) > 1e-9


@pytest.mark.parametrize("name", CLASSES)
def test_marginals_of_a_long_run(name):
    target, start = CLASSES[name]
    states, p = of_class(target, start)
    sampler = fitted(target, start=start, n_chains=4)
    x = quietly(sampler, 4000, thin="sweep")["x"].values
    assert (np.sort(x, axis=2) == np.sort(start)).all()
    for value in np.unique(start):
        found, wanted = (x == value).mean(axis=(0, 1)), p @ (states == value)
        # 16,000 draws, of which at least a tenth count as independent.
        assert np.abs(found - wanted).max() < 6.5 * 0.5 / np.sqrt(1600)


def test_evidence_never_moves():
    factors = [((i, j), [[2.0, 1.0], [1.0, 3.0]]) for i, j in ((0, 1), (1, 2), (3, 4), (4, 5))]
    target = MarkovNetwork([2] * 6, factors).condition({1: 1, 4: 0})
    sampler = fitted(target, start=[1, 1, 1, 0, 0, 0])
    x = quietly(sampler, 500)["x"].values
    assert (x[..., 1] == 1).all()
    assert (x[..., 4] == 0).all()
    assert (x.sum(axis=-1) == 3).all()
    assert len(np.unique(x.reshape(-1, 6), axis=0)) == math.comb(4, 2)


def test_variables_that_do_not_take_a_value_keep_theirs():
    target = MarkovNetwork([2, 4, 4], [])
    x = quietly(fitted(target, start=[1, 3, 0]), 500)["x"].values.reshape(-1, 3)
    assert {tuple(state) for state in x.tolist()} == {(1, 3, 0), (1, 0, 3), (0, 3, 1), (0, 1, 3)}


class Counting:
    """Counts the states that it is given; -inf unless all values differ."""

    calls, fails_at = 0, INF

    def __call__(self, x):
        self.calls += 1
        if self.calls == self.fails_at:
            raise ArithmeticError("odd")
        return 0.2 * float(x[0] - x[-1]) if len(set(x.tolist())) == len(x) else -INF


def test_evaluations():
    """Both sums of weights; a function is called once for each."""
    f = Counting()
    target = FunctionTarget(f, 6, 6, vectorized=False, initial_state=np.arange(6))
    for n_partners, n in ((1, 1), (3, 3), (None, 5)):
        sampler = fitted(target, n_partners=n_partners, n_chains=1)
        before, f.calls = sampler.n_evaluations_, 0
        quietly(sampler, 1, thin=50)
        assert sampler.n_evaluations_ - before == 50 * 2 * n
        # The states at both ends too, and before and after the call.
        assert f.calls <= 50 * (2 * n + 2) + 3
        assert quietly(sampler, 1).attrs["evaluation"] == "log-ratio of an exchange"


@pytest.mark.parametrize("nth", [1, 2, 3, 8, 23])
def test_an_error_in_a_function(nth, one_segment):
    f = Counting()
    target = FunctionTarget(f, 5, 5, vectorized=False, initial_state=np.arange(5))
    sampler = fitted(target)
    before = sampler.state_
    f.fails_at = f.calls + nth
    with pytest.raises(ArithmeticError, match="odd"):
        quietly(sampler, 20)
    np.testing.assert_array_equal(sampler.state_, before)
    x = quietly(sampler, 300)["x"].values
    assert len(np.unique(x.reshape(-1, 5), axis=0)) > 60


# ----------------------------------------------------------------- starts


def test_starts_of_permutations():
    target = permutations(6)
    x = fitted(target, n_chains=6, n_burn_in=0).state_
    assert (np.sort(x, axis=1) == np.arange(6)).all()
    assert len(np.unique(x, axis=0)) > 1
    again = fitted(target, n_chains=3, n_burn_in=0).state_
    np.testing.assert_array_equal(again, x[:3])


def test_uniform_and_quenched_starts():
    weights = 3.0 * np.random.default_rng(0).normal(size=(8, 8))
    target = FunctionTarget(
        lambda x: np.where(
            (np.sort(x, axis=-1) == np.arange(8)).all(axis=-1),
            weights[np.arange(8), x].sum(axis=-1),
            -INF,
        ),
        8,
        8,
        initial_state=np.arange(8),
    )

    def log_p(init):
        sampler = fitted(target, init=init, n_chains=8, n_burn_in=0)
        return target.log_prob(sampler.state_)

    uniform, quenched, both = (log_p(init) for init in ("uniform", "quenched", "both"))
    assert quenched.min() > uniform.mean() + 3.0
    np.testing.assert_array_equal(both[::2], uniform[::2])
    np.testing.assert_array_equal(both[1::2], quenched[1::2])


def test_given_starts_are_taken():
    start = np.array([[0, 1, 2], [2, 0, 1]])
    np.testing.assert_array_equal(fitted(PERMUTATIONS, start=start, n_burn_in=0).state_, start)


def test_new_chains_have_the_counts_of_the_fitted_ones():
    start = np.where(np.arange(9) < 3, 1, -1)
    sampler = fitted(Ising(np.zeros((9, 9)), np.linspace(-1, 1, 9)), start=start)
    whole = new_chains(sampler, 20, n_chains=5)
    assert (whole["x"].sum("site", dtype=int) == -3).all()
    assert len(np.unique(whole["x"][:, 0], axis=0)) > 1
    with joblib.parallel_config(backend="threading"):
        assert new_chains(sampler, 20, n_chains=5, n_jobs=2).equals(whole)


def test_warm_starts_and_copies_go_on():
    target = Ising(np.zeros((6, 6)), np.linspace(-1, 1, 6))
    sampler = fitted(target, start=[1, 1, -1, -1, -1, -1], warm_start=True)
    sampler.fit(target)
    assert (sampler.state_.sum(axis=1) == -2).all()
    with pytest.raises(ValueError, match="states drawn from the target differ in that: "):
        sampler.set_params(warm_start=False).fit(target)
    expected = quietly(copy.deepcopy(sampler), 50)["x"]
    assert quietly(pickle.loads(pickle.dumps(sampler)), 50)["x"].equals(expected)


def test_files(tmp_path):
    target = Ising(np.zeros((6, 6)), np.linspace(-1, 1, 6))
    sampler = fitted(target, start=[1, 1, -1, -1, -1, -1])
    sampler.save(tmp_path / "fitted")
    again = SwapSampler.load(tmp_path / "fitted", target)
    assert new_chains(again, 5, n_chains=2).equals(new_chains(sampler, 5, n_chains=2))
    assert quietly(again, 50)["x"].equals(quietly(sampler, 50)["x"])


# ----------------------------------------------------------------- warnings


def test_a_symmetry_of_p_is_none_at_fixed_counts():
    """Without a field both values of a spin are equally probable, but not at a magnetisation."""
    target = Ising.lattice(np.zeros((4, 4)), coupling=0.1)
    sampler = fitted(target, start=np.where(np.arange(16) < 4, 1, -1), n_chains=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SeparatedModesWarning)
        draws = sampler.sample(2000, thin="sweep")
    assert sampler.disagreement_.agree
    assert diagnostics.disagreement(draws, target).agree
    del draws.attrs["conserves_counts"]
    assert not diagnostics.disagreement(draws, target).agree
    free = GibbsSampler("random", n_chains=2, n_burn_in=5, random_state=0).fit(target)
    assert "conserves_counts" not in quietly(free, 5).attrs


def test_flat_permutations_are_told_to_be_periodic():
    n = 6
    values = Potts(np.zeros((n, n)), np.zeros((n, n)))
    sampler = fitted(values, start=np.arange(n))
    with pytest.warns(PeriodicChainWarning, match=r"Set lazy=0\.5, or thin by an odd number"):
        sampler.sample(200)
    for target, start, lazy in (
        (values, np.arange(n), 0.5),
        (values, [0, 0, 1, 2, 3, 4], 0.0),
        (Ising(np.zeros((n, n))), [1, 1, 1, -1, -1, -1], 0.0),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error", PeriodicChainWarning)
            fitted(target, start=start, lazy=lazy).sample(200)


def test_frozen_variables_are_told_without_wrong_advice():
    """Elimination would answer about p, not about p at the counts of the start."""
    target = Ising(np.zeros((6, 6)), np.linspace(-1, 1, 6))
    sampler = fitted(target, start=np.ones(6, int))
    with pytest.warns(FrozenSitesWarning, match="6 of 6 variables never changed") as told:
        sampler.sample(100)
    text = "".join(str(w.message) for w in told)
    assert "exact" not in text
    assert "No change of a single variable" not in text


def test_all_variables_that_move_are_noted():
    with warnings.catch_warnings():
        warnings.simplefilter("error", FrozenSitesWarning)
        for target in (permutations(5), permutations(5).condition({0: 2})):
            fitted(target).sample(500, thin=10)


# ----------------------------------------------------------------- errors

FREE = Ising(np.zeros((6, 6)))
ERRORS = [
    ({"balancing": "learned"}, ValueError, "balancing is 'learned'; it must be one of .*learns no"),
    ({"balancing": "mixture"}, ValueError, "balancing is 'mixture'; it must be one of"),
    ({"balancing": "odd"}, ValueError, "balancing is 'odd'; it must be one of"),
    ({"balancing": Barker}, TypeError, "balancing is .*Barker.*Did you forget the parentheses"),
    ({"n_partners": 0}, ValueError, "n_partners is 0; it must be at least 1"),
    ({"n_partners": 1.5}, TypeError, r"n_partners is 1\.5; give an integer"),
    ({"n_partners": True}, TypeError, "n_partners is True; give an integer"),
    ({"lazy": 1.0}, ValueError, r"lazy is 1\.0; it must be in \[0, 1\)"),
    ({"lazy": "no"}, ValueError, r"lazy is 'no'; it must be in \[0, 1\)"),
    ({"lazy": -0.1}, ValueError, r"lazy is -0\.1; it must be in \[0, 1\)"),
    ({"n_chains": 0}, ValueError, "n_chains is 0; it must be at least 1"),
]


@pytest.mark.parametrize(("params", "error", "message"), ERRORS, ids=[m[:25] for *_, m in ERRORS])
def test_wrong_parameters(params, error, message):
    with pytest.raises(error, match=message):
        SwapSampler(**params).fit(PERMUTATIONS)


def test_a_learned_function_is_taken_as_it_is():
    sampler = fitted(PERMUTATIONS, Mixture([1.0, 0.0, 0.0, 0.0]))
    assert isinstance(sampler.run_.ensemble.rule, Swap)


def test_starts_of_other_counts_are_refused():
    starts = [[1, 1, -1, -1, -1, -1], [1, 1, -1, -1, -1, -1], [1, 1, 1, -1, -1, -1]]
    message = (
        "Exchanges never change how many variables have each value, and the initial states differ "
        r"in that: 4 variables have the value -1 in number 0, 3 in number 2\. Give states with the "
    )
    with pytest.raises(ValueError, match=message):
        fitted(FREE, start=starts, n_chains=3)
    fitted(FREE, start=starts[:2])


@pytest.mark.parametrize("n_chains", [1, 4])
def test_counts_must_be_known(n_chains):
    message = (
        r"\d variables have the value -1 in number 0, \d in .*: fit\(target, initial_states=state"
    )
    with pytest.raises(ValueError, match=message):
        fitted(FREE, n_chains=n_chains)


def test_impossible_starts_are_refused():
    message = r"initial_states\[0\] has log-probability -inf"
    with pytest.raises(ValueError, match=message):
        fitted(PERMUTATIONS, start=[0, 0, 1])


def test_no_averages_of_conditional_probabilities():
    sampler = fitted(PERMUTATIONS)
    with pytest.raises(ValueError, match="SwapSampler draws at fixed counts of values, where"):
        sampler.sample(10, record="marginals")
    found = quietly(sampler, 2000, record="moments")
    states, p = of_class(PERMUTATIONS, np.arange(3))
    for value in range(3):
        wanted = p @ (states == value)
        assert np.abs(found["p"].sel(state=value) - wanted).max() < 6.5 * 0.5 / np.sqrt(400)


def test_no_explorer_of_tempering():
    message = r"explorer is SwapSampler\(\), which conserves the counts of values; the replica at"
    with pytest.raises(ValueError, match=message):
        ParallelTempering(SwapSampler()).fit(FREE)


def test_single_changes_are_told_to_take_exchanges():
    sampler = LSBSampler("barker", blocks=None, n_chains=2, n_burn_in=40, random_state=0)
    with pytest.warns(FrozenSitesWarning, match="exchange values, as SwapSampler does"):
        sampler.fit(FunctionTarget(two_hot, 5))

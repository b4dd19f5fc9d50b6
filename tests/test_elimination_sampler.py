"""EliminationSampler: the interface of the other samplers, and independent draws."""

import copy
import pickle
import signal
import warnings

import exact_matrices  # noqa: F401 - formulas of the rules
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_estimator import ScoresOfArrays, check_as_scikit_learn

from sklsb import RBM, EliminationSampler, Ising, MarkovNetwork, exact
from sklsb.exact.elimination.passes import Passes
from sklsb.exceptions import InterruptedWarning, ModelWarning

FIELD = np.random.default_rng(0).normal(scale=0.5, size=(3, 4))
# In one piece, and where memory is too short for that.
MEMORY = {"whole": 2**28, "sliced": 3500}


@pytest.fixture(scope="module")
def target():
    return Ising.lattice(FIELD, coupling=0.4)


def nearly_normalised():
    """A network some draws of which are rejected."""
    rng = np.random.default_rng(0)
    table = rng.random((2, 2, 1))
    rows = 1.0 + 0.04 * rng.random(table.shape)
    table = np.concatenate([table, 1 - table], axis=2) * rows
    return MarkovNetwork([2] * 3, [((0,), [0.5, 0.5]), ((1,), [0.3, 0.7]), ((0, 1, 2), table)])


def make(memory="whole", **params):
    params = {"n_chains": 2, "random_state": 0} | params
    return EliminationSampler(max_memory=MEMORY[memory], **params)


def draws(sampler, n, **settings):
    return sampler.sample(n, **settings)["x"].values


class ArrayEliminationSampler(ScoresOfArrays, EliminationSampler):
    pass


@parametrize_with_checks([EliminationSampler(), ArrayEliminationSampler()])
def test_scikit_learn_checks(estimator, check):
    check_as_scikit_learn(estimator, check)


def test_memory_decides_about_slices(target):
    assert make("whole").fit(target).cost_.n_configurations == 1
    assert make("sliced").fit(target).cost_.n_configurations > 1


@pytest.mark.parametrize("memory", MEMORY)
def test_draws_are_the_same_however_they_are_made(target, memory):
    one, other = make(memory).fit(target), make(memory, n_jobs=2).fit(target)
    copies = pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)
    np.testing.assert_array_equal(one.state_, other.state_)
    assert len(np.unique(make(memory, n_chains=6).fit(target).state_, axis=0)) > 1
    x = draws(one, 300)
    np.testing.assert_array_equal(draws(other, 300), x)
    np.testing.assert_array_equal(one.state_.reshape(2, 3, 4), x[:, -1])
    for fork in copies:
        parts = [draws(fork, 100), draws(fork, 0), draws(fork, 200)]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), x)
    again = pickle.loads(pickle.dumps(copies[0]))  # in the middle
    np.testing.assert_array_equal(draws(again, 50), draws(copies[0], 50))
    thinned = make(memory).fit(target)
    np.testing.assert_array_equal(draws(thinned, 100, thin=3), x[:, 2::3])
    np.testing.assert_array_equal(draws(make(memory).fit(target), 300, thin="sweep"), x)


@pytest.mark.parametrize("memory", MEMORY)
def test_recorded_statistics_are_those_of_the_draws(target, memory):
    x = draws(make(memory).fit(target), 200)
    found = make(memory).fit(target).sample(200, record={"sum": lambda x: x.sum(axis=(1, 2))})
    np.testing.assert_array_equal(found["sum"], x.astype(int).sum(axis=(2, 3)))


def test_fitted_attributes(target):
    sampler = make().fit(target)
    assert sampler.target_ is target
    assert sampler.n_sites_ == 12
    assert sampler.log_z_ == exact.log_partition(target)
    assert sampler.marginals_.identical(exact.marginals(target))
    assert sampler.cost_ == exact.elimination_cost(target)
    before = sampler.n_evaluations_
    assert before >= 2**sampler.cost_.log2_work
    found = sampler.sample(30)
    assert sampler.n_evaluations_ > before
    np.testing.assert_allclose(found["lp"], target.log_prob(found["x"]), rtol=0, atol=1e-13)
    np.testing.assert_array_equal(found["lp"], sampler.sample_stats_["lp"])
    assert found.attrs["sampler"] == "EliminationSampler"
    assert found.attrs["evaluation"] == "table entry"
    assert set(sampler.to_datatree().children) == {"posterior", "sample_stats"}
    other = Ising.lattice(-FIELD, coupling=0.4)
    assert not sampler.fit(other).marginals_.identical(exact.marginals(target))


def test_lp_with_a_constant():
    target = Ising(np.diag([1.0, 2.0]) + 0.5, [0.1, 0.2])
    found = make().fit(target).sample(20)
    np.testing.assert_allclose(found["lp"], target.log_prob(found["x"]), rtol=0, atol=1e-14)


def test_a_transition_is_an_independent_draw():
    target = Ising([[0.0, 0.7], [0.7, 0.0]], [0.1, 0.2])
    matrix = exact.transition_matrix(EliminationSampler(), target)
    np.testing.assert_allclose(matrix, np.tile(exact.probabilities(target), (4, 1)), atol=1e-16)


def test_draws_agree(target):
    """Scripts may ask any sampler."""
    sampler = make().fit(target)
    sampler.sample(400)
    assert sampler.disagreement_.agree


def test_fit_twice_is_fit_once(target):
    once, twice = make().fit(target), make().fit(target)
    twice.sample(7)
    assert twice.fit(target) is twice
    assert not hasattr(twice, "sample_stats_")
    np.testing.assert_array_equal(draws(once, 20), draws(twice, 20))
    going_on = make(warm_start=True).fit(target)
    first = draws(going_on, 20)
    assert (draws(going_on.fit(target), 20) != first).any()


def test_limits_set_after_fit_wait_for_the_next_one(target):
    sampler = make(max_work=2**20).fit(target).set_params(max_work=1)
    assert sampler.marginals_.identical(exact.marginals(target))
    with pytest.raises(ValueError, match="max_work"):
        sampler.fit(target)


def test_clones_are_not_fitted(target):
    sampler = make(max_work=2**20).fit(target)
    other = clone(sampler)
    assert other.get_params() == sampler.get_params()
    with pytest.raises(NotFittedError):
        other.sample(3)
    with pytest.raises(NotFittedError):
        _ = other.marginals_


def test_no_warning_where_chains_would_need_one():
    frozen = MarkovNetwork([2, 2], [((0,), [1.0, 1e-30]), ((0, 1), [[1.0, 1e-30], [1.0, 1.0]])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = make().fit(frozen).sample(20)
    assert not found["x"].values.any()


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.ModelWarning")
def test_rejected_draws_leave_no_trace(monkeypatch):
    monkeypatch.setattr("sklsb.exact.elimination.engine.DEFECT", 0.1)
    network = nearly_normalised()
    settings = {"max_work": 8, "n_chains": 1, "random_state": 0}
    with pytest.warns(ModelWarning, match="log Z may be off by 0.0"):
        sampler = EliminationSampler(**settings).fit(network)
    n = 100_000
    x = draws(sampler, n)[0]
    p = exact.probabilities(network)
    count = np.bincount(x @ [4, 2, 1], minlength=8)
    # Chi-square of 7 degrees of freedom: above 57 with probability below 1e-9.
    assert ((count - n * p) ** 2 / (n * p)).sum() < 57
    split = EliminationSampler(**settings).fit(network)
    parts = [draws(split, k)[0] for k in (1, 333, 0, 1, 665)]
    np.testing.assert_array_equal(np.concatenate(parts), x[:1000])


def test_draws_do_not_depend_on_initial_states(target):
    given = make().fit(target, initial_states=np.ones(12))
    np.testing.assert_array_equal(draws(given, 10), draws(make().fit(target), 10))


def test_bad_states_are_told_before_the_work(target, monkeypatch):
    sampler = make(warm_start=True).fit(target)
    monkeypatch.setattr("sklsb.samplers.elimination.eliminated", None)
    with pytest.raises(ValueError, match=r"initial_states\[0\] is 3"):
        make().fit(target, initial_states=np.full(12, 3))
    with pytest.raises(ValueError, match="warm_start continues chains of shape"):
        sampler.set_params(n_chains=3).fit(target)
    assert sampler.sample(1).sizes["chain"] == 2


@pytest.mark.parametrize("memory", MEMORY)
def test_ctrl_c_keeps_what_is_finished(target, memory, monkeypatch, ctrl_c):
    expected = draws(make(memory).fit(target), 3000)
    sampler = make(memory).fit(target)
    monkeypatch.setattr("sklsb.ensembles.base._SEGMENT_SECONDS", 1e-9)
    seen = []
    run = sampler.run_.ensemble.run

    def interrupted(*args):
        seen.append(args)
        if len(seen) == 3:
            signal.raise_signal(signal.SIGINT)
        run(*args)

    monkeypatch.setattr(sampler.run_.ensemble, "run", interrupted)
    with pytest.warns(InterruptedWarning, match="returning"):
        first = draws(sampler, 3000)
    assert 0 < first.shape[1] < 3000
    rest = draws(sampler, 3000 - first.shape[1])
    np.testing.assert_array_equal(np.concatenate([first, rest], axis=1), expected)


@pytest.fixture
def eliminations(monkeypatch):
    """What is to be called when messages are made, and how often that was."""
    calls, forward = [], Passes.forward

    def counted(self, x):
        calls.append(x)
        hook[0](len(calls))
        return forward(self, x)

    hook = [lambda n: None]
    monkeypatch.setattr(Passes, "forward", counted)
    return calls, hook


def test_a_sliced_model_is_eliminated_once_for_all_chains(target, eliminations):
    sampler = make("sliced").fit(target)
    n_draws = [len(ahead) for ahead, _ in sampler.run_.ensemble.source._ahead]
    assert min(n_draws) > 1000
    calls, _ = eliminations
    calls.clear()
    before = sampler.n_evaluations_
    draws(sampler, 3000)
    n = sampler.cost_.n_configurations
    assert n / 2 < len(calls) <= n
    own = 2 * 3000 * sampler.run_.ensemble.elimination.entries_per_draw
    made = len(calls) * int(2**sampler.cost_.log2_work) // n
    assert sampler.n_evaluations_ - before - own == pytest.approx(made, abs=n)


def test_ctrl_c_between_eliminations(target, eliminations, ctrl_c):
    expected = draws(make("sliced").fit(target), 3000)
    sampler = make("sliced").fit(target)
    calls, hook = eliminations
    calls.clear()
    hook[0] = lambda n: signal.raise_signal(signal.SIGINT) if n == 3 else None
    with pytest.warns(InterruptedWarning, match="returning"):
        first = draws(sampler, 3000)
    assert len(calls) == 3
    assert first.shape[1] < 2000
    rest = draws(sampler, 3000 - first.shape[1])
    np.testing.assert_array_equal(np.concatenate([first, rest], axis=1), expected)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (
            {"max_work": 3},
            ValueError,
            r"2\*\*\d+.\d table entries \(.*, and max_work",
        ),
        ({"max_work": "2**30"}, TypeError, r"max_work is '2\*\*30'; give a number"),
        ({"n_chains": 0}, ValueError, "n_chains is 0; it must be at least 1"),
        ({"n_jobs": 0}, ValueError, "n_jobs is 0"),
        ({"warm_start": 1}, TypeError, "warm_start is 1; give True or False"),
        ({"random_state": -1}, ValueError, "random_state is -1"),
    ],
)
def test_bad_parameters(target, params, error, message, monkeypatch):
    monkeypatch.setattr("sklsb.samplers.elimination.eliminated", None)  # all is said before
    sampler = EliminationSampler(**params)
    with pytest.raises(error, match=message):
        sampler.fit(target)
    assert not hasattr(sampler, "target_")
    assert vars(sampler).keys() == sampler.get_params().keys()


def test_bad_targets():
    with pytest.raises(TypeError, match="is not made of factors"):
        make().fit(RBM(np.ones((15, 1)), np.zeros(15), [0.0]))
    with pytest.raises(TypeError, match="not a sklsb Target"):
        make().fit("ising")

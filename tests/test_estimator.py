"""Samplers as scikit-learn estimators: parameters, fitting, errors, warnings, interruption."""

import contextlib
import copy
import io
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import NamedTuple

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from models import pairs, untimed
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from sklsb import (
    AutoSampler,
    BalancingFunction,
    Barker,
    ClusterSampler,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    Mixture,
    Network,
    ParallelTempering,
    Potts,
    SwapSampler,
)
from sklsb.balancing import Lipschitz
from sklsb.balancing.functions import get_balancing
from sklsb.exceptions import (
    FrozenSitesWarning,
    InterruptedWarning,
    ModelWarning,
    PeriodicChainWarning,
    SamplerWarning,
    ShortRunWarning,
)
from sklsb.samplers._run import run as _run
from sklsb.samplers._run.traits import Traits

# Most runs here are too short to move every site; the tests of these warnings ask for them.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning"),
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.ShortRunWarning"),
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.SeparatedModesWarning"),
]

DEFAULTS = {
    "balancing": "learned",
    "fast": False,
    "objective": "auto",
    "pilot": True,
    "n_chains": 4,
    "n_burn_in": None,
    "init": "auto",
    "lazy": 0.0,
    "device": None,
    "n_jobs": None,
    "random_state": None,
    "verbose": 0,
    "warm_start": False,
    "keep_burn_in": False,
}
OF_LSB_ONLY = ("balancing", "fast", "objective", "pilot", "lazy", "device")
COMMON = {name: value for name, value in DEFAULTS.items() if name not in OF_LSB_ONLY}
SHORT = {"n_chains": 2, "n_burn_in": 60, "random_state": 0}
# Samplers that learn nothing. The other scans differ in their rule only.
RULES = {
    "random": GibbsSampler("random", **SHORT),
    "chromatic": GibbsSampler("chromatic", **SHORT),
    "ball": HammingBallSampler(4, radius=2, **SHORT),
    "clusters": ClusterSampler(**SHORT),
}
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


@pytest.fixture(scope="module")
def target():
    field = np.random.default_rng(0).normal(scale=0.5, size=(3, 4))
    return Ising.lattice(field, coupling=0.2)


def make(balancing="sqrt", **params):
    return LSBSampler(balancing, **SHORT | params)


def same_chains(one, other, n=40):
    a, b = one.sample(n), other.sample(n)
    np.testing.assert_array_equal(a["x"], b["x"])
    for name in ("lp", "acceptance_rate"):
        if name == "lp" or isinstance(one, LSBSampler):
            np.testing.assert_array_equal(one.sample_stats_[name], other.sample_stats_[name])


# ----------------------------------------------------------------- scikit-learn's own checks

# What gives `fit` an array X.
NOT_FOR_ARRAYS = (
    "check_complex_data",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_empty_data_messages",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit1d",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
)


def check_as_scikit_learn(estimator, check):
    """Make a check, or see that it fails at an array; a report of each failure would take long."""
    if isinstance(estimator, OfArrays) or check.func.__name__ not in NOT_FOR_ARRAYS:
        check(estimator)
    else:
        with pytest.raises((TypeError, AssertionError, ValueError)):
            check(estimator)


class OfArrays:
    """Takes an array as a noisy image, so that the checks above can run as well."""

    def fit(self, X, y=None):
        with warnings.catch_warnings():  # of grey levels
            warnings.simplefilter("ignore", ModelWarning)
            target = Ising.from_image(validate_data(self, X))
        return super().fit(target)


class ScoresOfArrays(OfArrays):
    """Scores each row, by the signs of its entries, as an image of equal rows."""

    def score_samples(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        images = np.repeat(X[:, np.newaxis], self.target_.shape[0], axis=1)
        return super().score_samples(np.where(images > 0, 1, -1))


class ArrayLSBSampler(OfArrays, LSBSampler):
    pass


class ArrayGibbsSampler(OfArrays, GibbsSampler):
    pass


class ArrayHammingBallSampler(OfArrays, HammingBallSampler):
    pass


class ArrayClusterSampler(OfArrays, ClusterSampler):
    pass


class ArraySwapSampler(OfArrays, SwapSampler):
    """Takes the counts of a start, too."""

    def fit(self, X, y=None):
        target = Ising(np.zeros((np.shape(validate_data(self, X))[1],) * 2))
        start = np.where(np.arange(target.n_sites) % 2, 1, -1)
        return SwapSampler.fit(self, target, initial_states=start)


@parametrize_with_checks(
    [
        LSBSampler(n_burn_in=20),
        GibbsSampler("random", n_burn_in=20),
        HammingBallSampler(n_burn_in=20),
        ClusterSampler(n_burn_in=20),
        SwapSampler(n_burn_in=20),
        AutoSampler(n_burn_in=20),
        ArrayLSBSampler(n_burn_in=20, pilot=False),
        ArrayLSBSampler("sqrt", n_burn_in=20),
        ArrayGibbsSampler("random", n_burn_in=20),
        ArrayHammingBallSampler(4, n_burn_in=20),
        ArrayClusterSampler(n_burn_in=20),
        ArraySwapSampler(n_burn_in=20),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check_as_scikit_learn(estimator, check)


# ----------------------------------------------------------------- parameters


def test_defaults():
    params = LSBSampler().get_params()
    assert params | DEFAULTS == params
    found = GibbsSampler().get_params()
    assert found == COMMON | {"scan": "auto", "block_size": 1}
    found = HammingBallSampler().get_params()
    assert found == COMMON | {"block_size": 10, "radius": 1}
    assert ClusterSampler().get_params() == COMMON
    found = SwapSampler().get_params()
    assert found == COMMON | {"balancing": "barker", "n_partners": 4, "lazy": 0.0}
    for cls in (LSBSampler, GibbsSampler, HammingBallSampler, ClusterSampler, SwapSampler):
        assert isinstance(cls(), BaseEstimator)


def test_init_only_stores():
    common = {"n_chains": -3, "random_state": object(), "n_jobs": "many"}
    for cls, own in (
        (LSBSampler, {"balancing": Mixture([1, 2, 3, 4]), "objective": "nonsense"}),
        (GibbsSampler, {"scan": object(), "block_size": "all"}),
        (HammingBallSampler, {"block_size": np.inf, "radius": object()}),
        (ClusterSampler, {}),
        (SwapSampler, {"balancing": object(), "n_partners": "all"}),
    ):
        given = common | own
        sampler = cls(**given)
        for name, value in given.items():
            assert getattr(sampler, name) is value
        assert vars(sampler).keys() == sampler.get_params(deep=False).keys()


def test_only_what_names_a_method_is_positional():
    for cls, given in (
        (LSBSampler, ("sqrt", True)),
        (GibbsSampler, ("random", 2)),
        (HammingBallSampler, (10, 1, 4)),
        (ClusterSampler, (4,)),
        (SwapSampler, ("sqrt", 2)),
    ):
        with pytest.raises(TypeError, match="positional"):
            cls(*given)


@pytest.mark.parametrize("fitted", [False, True])
def test_clone_keeps_parameters_and_nothing_else(target, fitted):
    sampler = make(Mixture([1.0, 2.0, 3.0, 4.0]), lazy=0.25, objective="kl")
    if fitted:
        sampler.fit(target)
    other = clone(sampler)
    assert repr(other) == repr(sampler)
    assert vars(other).keys() == other.get_params(deep=False).keys()
    with pytest.raises(NotFittedError):
        check_is_fitted(other)
    np.testing.assert_array_equal(other.balancing.theta, [1, 2, 3, 4])
    same_chains(other.fit(target), clone(sampler).fit(target))


@each_rule
def test_clone_of_other_samplers(target, rule):
    sampler = clone(rule)
    for _ in range(2):  # fitted the second time
        other = clone(sampler)
        assert repr(other) == repr(sampler)
        assert other.get_params() == rule.get_params()
        assert vars(other).keys() == other.get_params().keys()
        with pytest.raises(NotFittedError):
            check_is_fitted(other)
        sampler.fit(target)
    same_chains(other.fit(target), sampler)


def test_clone_of_generators_and_seed_sequences(target):
    for random_state in (np.random.default_rng(1), np.random.SeedSequence(1)):
        sampler = make(random_state=random_state)
        other = clone(sampler)
        assert other.random_state is not sampler.random_state
        same_chains(other.fit(target), sampler.fit(target))


def test_set_params(target):
    sampler = LSBSampler().set_params(balancing="min", n_chains=3, n_burn_in=10, random_state=1)
    assert sampler.get_params()["balancing"] == "min"
    assert sampler.fit(target).state_.shape == (3, 12)
    with pytest.raises(ValueError, match="Invalid parameter 'burn'"):
        sampler.set_params(burn=3)
    for other in (GibbsSampler(block_size=2), HammingBallSampler(5)):
        other.set_params(block_size=3, n_chains=3, n_burn_in=10, random_state=1)
        assert other.get_params()["block_size"] == 3
        assert other.fit(target).state_.shape == (3, 12)
        with pytest.raises(ValueError, match="Invalid parameter 'lazy'"):
            other.set_params(lazy=0.5)


def test_repr_shows_what_was_changed():
    assert repr(LSBSampler()) == "LSBSampler()"
    assert repr(LSBSampler("min", lazy=0.5)) == "LSBSampler(balancing='min', lazy=0.5)"
    repr_of_function = "Lipschitz(bound=0.7, architecture='knots')"
    assert repr(LSBSampler(Lipschitz(0.7))) == f"LSBSampler(balancing={repr_of_function})"
    assert "LSBSampler" in LSBSampler()._repr_html_()
    assert repr(GibbsSampler()) == "GibbsSampler()"
    assert repr(GibbsSampler("layers", n_jobs=2)) == "GibbsSampler(n_jobs=2, scan='layers')"
    assert repr(HammingBallSampler(6, 2)) == "HammingBallSampler(block_size=6, radius=2)"


def test_a_fitted_sampler_is_shown_without_torch_or_transitions(monkeypatch):
    target = Ising(np.zeros((3, 3)), 0.3)
    sampler = LSBSampler("barker", n_burn_in=10, random_state=0).fit(target)
    expected = sampler.sample(5)["x"].values
    sampler.fit(target)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(_run.Run, "transitions", None)
    assert "history_" in sampler._repr_html_()
    assert {"state_", "sample"} < {*dir(sampler)}
    monkeypatch.undo()
    np.testing.assert_array_equal(sampler.sample(5)["x"], expected)


@each_rule
def test_fit_changes_no_parameter_of_other_samplers(target, rule):
    sampler = clone(rule).set_params(random_state=np.random.SeedSequence(4))
    before = sampler.get_params()
    assert sampler.fit(target) is sampler
    sampler.sample(20)
    assert all(sampler.get_params()[name] is value for name, value in before.items())
    assert repr(sampler) == repr(clone(sampler))


@pytest.mark.parametrize("balancing", ["sqrt", "mixture", "learned", Network()])
def test_fit_changes_no_parameter(target, balancing):
    pilot = balancing == "learned"
    sampler = make(balancing, random_state=np.random.SeedSequence(4), pilot=pilot)
    before = sampler.get_params()
    frozen = copy.deepcopy(before)
    assert sampler.fit(target) is sampler
    sampler.sample(20)
    after = sampler.get_params()
    for name, value in before.items():
        assert after[name] is value
        assert repr(after[name]) == repr(frozen[name])
    if isinstance(balancing, Network):
        np.testing.assert_array_equal(sampler.balancing.theta, frozen["balancing"].theta)
        assert (sampler.burn_in_balancing_.theta != sampler.balancing.theta).any()


# ----------------------------------------------------------------- fit


@pytest.mark.parametrize("sampler", [make(), RULES["random"], RULES["ball"]], ids=repr)
def test_not_fitted(target, sampler):
    sampler = clone(sampler)
    message = f"This {type(sampler).__name__} instance is not fitted yet"
    for use in (
        lambda: sampler.sample(3),
        lambda: sampler.state_,
        lambda: sampler.n_evaluations_,
        lambda: sampler.to_datatree(),
        lambda: sampler.to_inference_data(),
    ):
        with pytest.raises(NotFittedError, match=message):
            use()
    check_is_fitted(sampler.fit(target))


@pytest.mark.parametrize(
    "sampler",
    [
        make("sqrt"),
        make("learned"),
        *(
            make(balancing, objective=objective, pilot=False)
            for balancing in ("mixture", "learned")
            for objective in ("auto", "bound", "kl")
        ),
        *RULES.values(),
    ],
    ids=repr,
)
def test_fit_twice_is_fit_once(target, sampler):
    once, twice = clone(sampler).fit(target), clone(sampler).fit(target)
    twice.sample(7)
    twice.fit(target)
    assert not hasattr(twice, "sample_stats_")
    assert untimed(once.history_).identical(untimed(twice.history_))
    same_chains(once, twice)


def test_fitted_attributes(target):
    sampler = make("learned", n_chains=3).fit(target)
    assert sampler.target_ is target
    assert sampler.n_sites_ == 12
    assert sampler.state_.shape == (3, 12)
    assert sampler.state_.dtype == np.int8
    assert isinstance(sampler.balancing_, BalancingFunction)
    assert isinstance(sampler.burn_in_balancing_, Lipschitz)
    learned = make("learned", pilot=False).fit(target).balancing_
    assert isinstance(learned, Lipschitz)
    assert not hasattr(sampler, "burn_in_")
    assert not hasattr(sampler, "sample_stats_")
    assert sampler.n_evaluations_ > 0
    sampler.state_[:] = 5
    assert set(np.unique(sampler.state_)) == {-1, 1}


def test_n_evaluations_counts_the_touched_neighbours():
    # Without learning: each transition evaluates the flipped site and its four neighbours.
    field = np.random.default_rng(0).normal(size=(4, 4))
    sampler = make(n_burn_in=100, blocks=None, init="uniform").fit(Ising.lattice(field, 0.2))
    burn_in = sampler.n_evaluations_
    assert burn_in == 2 * 100 * 5
    sampler.sample(50, thin=3)
    assert sampler.n_evaluations_ - burn_in == 2 * 150 * 5


@pytest.mark.parametrize(
    ("n_burn_in", "objective"),
    [
        *((n, name) for n in (0, 1, 7) for name in ("bound", "exact", "kl", "auto", "flux")),
        (2000, "bound"),
        (2500, "auto"),
    ],
)
def test_history_covers_the_burn_in(target, n_burn_in, objective):
    sampler = make(
        "mixture", blocks=None, pilot=False, n_burn_in=n_burn_in, objective=objective
    ).fit(target)
    history = sampler.history_
    # Of a function that only moves the chains, where all states can be listed, 48.
    blocks = min(n_burn_in, 2000 if objective in ("bound", "exact", "kl") else 48)
    sizes = dict(history.sizes)
    assert {name: sizes[name] for name in ("iteration", "chain", "u")} == {
        "iteration": blocks,
        "chain": 2,
        "u": 33,
    }
    assert sizes["parameter"] == 4 * (blocks > 0)
    assert history["lp"].dims == history["acceptance_rate"].dims == ("iteration", "chain")
    assert history["objective"].dims == ("iteration",)
    assert history["theta"].dims == ("iteration", "parameter")
    if n_burn_in:
        assert history["iteration"].values[-1] == n_burn_in
        assert (np.diff(history["iteration"]) > 0).all()
        np.testing.assert_allclose(
            history["lp"].values[-1], target.log_prob(sampler.state_), atol=1e-12
        )
        last = history.isel(iteration=-1)
        moving = sampler.burn_in_balancing_
        np.testing.assert_array_equal(last["theta"], moving.theta)
        np.testing.assert_allclose(last["even_part"], moving.even_part(last["u"]), atol=1e-12)
        acceptance = history["acceptance_rate"].values
        assert ((acceptance >= 0) & (acceptance <= 1)).all()


@each_rule
@pytest.mark.parametrize("n_burn_in", [0, 1, 7, 200, 250])
def test_history_of_other_samplers(target, rule, n_burn_in):
    sampler = clone(rule).set_params(n_burn_in=n_burn_in, keep_burn_in=True).fit(target)
    iteration = sampler.history_["iteration"].values
    every = max(1, -(-n_burn_in // 200))  # at most 200 rows
    assert iteration.size == -(-n_burn_in // every)
    assert list(sampler.history_.data_vars) == ["lp"]
    assert sampler.history_["lp"].dims == ("iteration", "chain")
    assert sampler.burn_in_["x"].shape == (2, n_burn_in, 3, 4)
    x = sampler.burn_in_["x"].values.reshape(2, n_burn_in, 12)
    # Keeping the states changes nothing else.
    plain = clone(rule).set_params(n_burn_in=n_burn_in).fit(target)
    assert not hasattr(plain, "burn_in_")
    assert untimed(plain.history_).identical(untimed(sampler.history_))
    if n_burn_in:
        assert iteration[-1] == n_burn_in
        assert (np.diff(iteration) > 0).all()
        lp = target.log_prob(x[:, iteration - 1])
        np.testing.assert_allclose(sampler.history_["lp"].values.T, lp, atol=1e-12)
        np.testing.assert_array_equal(x[:, -1], sampler.state_)
    same_chains(plain, sampler)


@pytest.mark.parametrize(
    ("sampler", "per_sweep"),
    [
        (GibbsSampler("random"), 12),
        (GibbsSampler(block_size=5), 3),
        (GibbsSampler("systematic", block_size=2), 1),
        (GibbsSampler("chromatic"), 1),
        (HammingBallSampler(4), 3),
        (HammingBallSampler(100), 1),
        (ClusterSampler(), 1),
    ],
    ids=repr,
)
def test_default_burn_in_of_other_samplers_is_as_many_sweeps(target, sampler, per_sweep):
    fitted = clone(sampler).set_params(n_chains=1).fit(target)
    assert fitted.history_["iteration"].values[-1] == per_sweep * 167  # 2000 / 12
    assert fitted.sample(2, thin="sweep").attrs["sampled_transitions"] == 2 * per_sweep


def test_default_burn_in_is_two_thousand_or_five_sweeps(target):
    assert make(n_burn_in=None).fit(target).history_["iteration"].values[-1] == 2000
    larger = Ising.lattice(np.random.default_rng(0).normal(size=(25, 20)))
    sampler = make(n_burn_in=None, blocks=None).fit(larger)  # it is cold, which is told
    assert sampler.history_["iteration"].values[-1] == 2500
    assert sampler.history_.sizes["iteration"] == 193  # every 13th


def test_no_burn_in_starts_at_the_initial_states(target):
    states = np.random.default_rng(0).choice([-1, 1], size=(2, 12))
    sampler = make("learned", n_burn_in=0).fit(target, initial_states=states)
    np.testing.assert_array_equal(sampler.state_, states)
    np.testing.assert_array_equal(sampler.balancing_.theta, get_balancing("learned").theta)
    assert not hasattr(sampler, "candidates_")
    assert sampler.sample(5).sizes["draw"] == 5


def test_initial_states_in_every_layout(target):
    one = np.random.default_rng(0).choice([-1, 1], size=12)
    wanted = make().fit(target, initial_states=np.tile(one, (2, 1)))
    for given in (
        one,
        one.tolist(),
        one.astype(float),
        one.reshape(3, 4),
        np.tile(one, (2, 1)),
        np.asfortranarray(np.tile(one, (2, 1))),
        np.tile(one.reshape(3, 4), (2, 1, 1)),
    ):
        np.testing.assert_array_equal(
            make().fit(target, initial_states=given).state_, wanted.state_
        )
    two = np.random.default_rng(1).choice([-1, 1], size=(2, 12)).astype(np.int8)
    sampler = make(n_burn_in=0).fit(target, initial_states=two)
    before = two.copy()
    sampler.sample(50)
    np.testing.assert_array_equal(two, before)


def test_initial_state_of_a_one_row_lattice():
    target = Ising.lattice(np.ones((1, 5)))
    one = np.array([[1, -1, 1, -1, 1]])
    sampler = make(n_burn_in=0).fit(target, initial_states=one)
    np.testing.assert_array_equal(sampler.state_, np.tile(one, (2, 1)))


def test_y_is_ignored(target):
    same_chains(make().fit(target, None), make().fit(target, y=np.zeros(3)))


def test_warm_start_goes_on(target):
    # A fixed function: two short burn-ins are one long one.
    going = make(warm_start=True, n_burn_in=40).fit(target).fit(target)
    once = make(n_burn_in=80).fit(target)
    np.testing.assert_array_equal(going.state_, once.state_)
    same_chains(going, once)


def test_warm_start_keeps_what_was_learned(target):
    sampler = make("mixture", objective="kl", pilot=False, warm_start=True).fit(target)
    theta = sampler.balancing_.theta
    sampler.sample(10)
    state = sampler.state_
    sampler.set_params(n_burn_in=0).fit(target)
    np.testing.assert_array_equal(sampler.state_, state)
    np.testing.assert_array_equal(sampler.balancing_.theta, theta)
    sampler.set_params(warm_start=False).fit(target)
    np.testing.assert_array_equal(sampler.balancing_.theta, np.zeros(4))
    sampler = make("mixture", warm_start=True, n_burn_in=20).fit(target)
    moving = sampler.burn_in_balancing_.theta
    sampler.set_params(n_burn_in=0).fit(target)
    np.testing.assert_array_equal(sampler.burn_in_balancing_.theta, moving)


def test_warm_start_from_given_states_and_on_another_target(target):
    states = np.ones((2, 12), dtype=int)
    sampler = make(warm_start=True).fit(target)
    sampler.set_params(n_burn_in=0).fit(target, initial_states=states)
    np.testing.assert_array_equal(sampler.state_, states)
    other = Ising(np.zeros((12, 12)), 0.5)
    assert sampler.fit(other).target_ is other
    draws = sampler.sample(30)
    np.testing.assert_allclose(
        sampler.sample_stats_["lp"], other.log_prob(draws["x"].values), atol=1e-12
    )


class Slope(BalancingFunction):
    """A fixed function with a parameter of its own."""

    def __init__(self, slope):
        self.slope = slope

    def even_part(self, u):
        return self.slope * np.abs(u)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("min", "max"),
        (Slope(-0.4), Slope(0.4)),
        (Lipschitz(0.5), Lipschitz(1.5, theta=np.ones(41))),
    ],
    ids=["names", "same class", "parameters"],
)
def test_warm_start_uses_the_function_that_is_asked_for(target, first, second):
    sampler = make(first, warm_start=True, n_burn_in=0).fit(target)
    sampler.set_params(balancing=second).fit(target)
    wanted = make(second, n_burn_in=0).fit(target).balancing_
    u = np.linspace(-5, 5, 11)
    np.testing.assert_array_equal(sampler.balancing_.log_g(u), wanted.log_g(u))


def test_a_fitted_function_is_frozen(target):
    # Changing the object that was passed in changes no fitted sampler.
    function = Slope(-0.3)
    sampler, wanted = make(function).fit(target), make(Slope(-0.3)).fit(target)
    function.slope = 0.5
    same_chains(sampler, wanted)


def test_parameters_changed_after_fit_wait_for_the_next_fit(target):
    sampler, wanted = make().fit(target), make().fit(target)
    sampler.set_params(balancing="max", random_state=5, n_chains=7, lazy=0.9)
    same_chains(sampler, wanted)


# ----------------------------------------------------------------- keep_burn_in


@pytest.mark.parametrize("balancing", ["sqrt", "learned"])
def test_kept_burn_in_is_every_state(target, balancing):
    states = np.random.default_rng(3).choice([-1, 1], size=(2, 12))
    sampler = make(balancing, pilot=False, keep_burn_in=True)
    warm_up = sampler.fit(target, initial_states=states).burn_in_
    assert warm_up["x"].dims == ("chain", "draw", "row", "col")
    assert dict(warm_up.sizes) == {"chain": 2, "draw": 60, "row": 3, "col": 4}
    assert warm_up["x"].dtype == np.int8
    assert set(warm_up.coords) == set(warm_up.dims)
    x = warm_up["x"].values.reshape(2, 60, 12)
    np.testing.assert_array_equal(x[:, -1], sampler.state_)
    with_start = np.concatenate([states[:, None], x], axis=1)
    flips = (np.diff(with_start, axis=1) != 0).sum(axis=2)
    assert flips.max() == 1
    # Keeping the states changes nothing else.
    plain = make(balancing, pilot=False).fit(target, initial_states=states)
    assert untimed(plain.history_).identical(untimed(sampler.history_))
    same_chains(sampler, plain)
    shown = target.log_prob(x[:, sampler.history_["iteration"].values - 1])
    np.testing.assert_allclose(sampler.history_["lp"].values.T, shown, atol=1e-12)
    # Nor does the pilot change them.
    tried = make(balancing, keep_burn_in=True).fit(target, initial_states=states)
    np.testing.assert_array_equal(tried.burn_in_["x"], warm_up["x"])


def test_warm_up_is_never_in_the_draws(target):
    # 700 keeps the chains at the mode once they are there, and the burn-in ends there.
    field = 700.0 * np.where(np.arange(12) % 2, 1, -1)
    strong = Ising(np.zeros((12, 12)), field)
    sampler = make(keep_burn_in=True, init="both").fit(strong)
    assert (sampler.burn_in_["x"].values[:, 0] != np.sign(field)).any()
    with pytest.warns(FrozenSitesWarning, match="12 of 12 variables never changed"):
        draws = sampler.sample(20)
    np.testing.assert_array_equal(draws["x"], np.broadcast_to(np.sign(field), (2, 20, 12)))


def test_burn_in_of_an_earlier_fit_is_forgotten(target):
    sampler = make(keep_burn_in=True).fit(target)
    sampler.set_params(keep_burn_in=False).fit(target)
    assert not hasattr(sampler, "burn_in_")


# ----------------------------------------------------------------- random_state


@pytest.mark.parametrize(
    "seed",
    [
        lambda: 7,
        lambda: np.int64(7),
        lambda: np.uint8(7),
        lambda: np.random.SeedSequence(7),
        lambda: np.random.SeedSequence([1, 2], spawn_key=(3,)),
        lambda: np.random.default_rng(7),
        lambda: np.random.Generator(np.random.MT19937(7)),
        lambda: 2**100,
    ],
)
def test_equal_seeds_give_equal_chains(target, seed):
    same_chains(make(random_state=seed()).fit(target), make(random_state=seed()).fit(target))


def test_kinds_of_seed(target):
    same_chains(
        make(random_state=7).fit(target),
        make(random_state=np.random.SeedSequence(7)).fit(target),
    )
    states = {
        make(random_state=seed).fit(target).sample(100)["x"].values.tobytes()
        for seed in (
            None,
            None,
            0,
            1,
            np.random.SeedSequence(1, spawn_key=(0,)),
            np.random.default_rng(1),
        )
    }
    assert len(states) == 6


def test_a_seed_sequence_is_not_changed(target):
    sequence = np.random.SeedSequence(3)
    make(random_state=sequence).fit(target).sample(5)
    assert sequence.n_children_spawned == 0
    same_chains(make(random_state=sequence).fit(target), make(random_state=sequence).fit(target))


def test_a_generator_moves_on_between_fits(target):
    sampler = make(random_state=np.random.default_rng(3)).fit(target)
    first = sampler.sample(50)["x"].values
    assert (sampler.fit(target).sample(50)["x"].values != first).any()


def test_chains_have_their_own_streams(target):
    draws = make(n_chains=8).fit(target).sample(50)["x"].values
    assert len({chain.tobytes() for chain in draws}) == 8


# ----------------------------------------------------------------- pickle


def test_pickle_unfitted():
    for sampler in (make("mixture", lazy=0.5), *RULES.values()):
        assert repr(pickle.loads(pickle.dumps(sampler))) == repr(sampler)
        assert repr(copy.copy(sampler)) == repr(sampler)


@pytest.mark.parametrize(
    "sampler",
    [
        make("sqrt"),
        make("mixture", pilot=False),
        make("learned"),
        make("learned", pilot=False, n_jobs=2),
        make(Network(), pilot=False),
        *RULES.values(),
        clone(RULES["random"]).set_params(n_jobs=2),
    ],
    ids=repr,
)
def test_a_pickled_sampler_goes_on_bit_for_bit(target, sampler):
    sampler = clone(sampler).fit(target)
    sampler.sample(13)
    for copied in (lambda s: pickle.loads(pickle.dumps(s)), copy.deepcopy, copy.copy):
        other = copied(sampler)
        assert untimed(other.history_).identical(untimed(sampler.history_))
        assert other.n_evaluations_ == sampler.n_evaluations_
        twin = pickle.loads(pickle.dumps(sampler))
        same_chains(other, twin)
    same_chains(pickle.loads(pickle.dumps(sampler)), sampler)


def test_a_copy_does_not_share_its_chains(target):
    sampler = make().fit(target)
    state = sampler.state_
    copy.deepcopy(sampler).sample(50)
    copy.copy(sampler).sample(50)
    np.testing.assert_array_equal(sampler.state_, state)
    same_chains(sampler, make().fit(target))


# ----------------------------------------------------------------- verbose


def test_progress_bar_counts_all_chains(target):
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        sampler = make(verbose=1).fit(target)
        sampler.sample(50, thin=2)
    shown = stream.getvalue()
    assert "burn-in: 100%" in shown
    assert "120/120" in shown
    assert "sample: 100%" in shown
    assert "200/200" in shown
    same_chains(sampler, quiet(target))


def quiet(target):
    sampler = make().fit(target)
    sampler.sample(50, thin=2)
    return sampler


def test_silent_by_default(target, capsys):
    quiet(target)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


# ----------------------------------------------------------------- parameters of a fitted sampler


def test_a_parameter_of_a_name_is_refused_with_advice(target):
    words = r"balancing__bound .* but balancing is 'learned'; give .* balancing=Lipschitz\("
    with pytest.raises(ValueError, match=words):
        LSBSampler().set_params(balancing__bound=1.0)
    with pytest.raises(ValueError, match=r"block_size .* but explorer is 'auto'; give an"):
        ParallelTempering().set_params(explorer__block_size=2)
    with pytest.raises(ValueError, match="Invalid parameter 'balance'"):
        LSBSampler().set_params(balance__bound=1.0)
    both = LSBSampler().set_params(balancing=Lipschitz(), balancing__bound=0.7)
    assert both.balancing.bound == 0.7
    with pytest.raises(ValueError, match="but balancing is 'sqrt'"):
        both.set_params(balancing="sqrt", balancing__bound=0.7)
    assert both.balancing.bound == 0.7


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.TemperingWarning")
@pytest.mark.parametrize(
    ("sampler", "later"),
    [
        (LSBSampler(**SHORT), {"balancing": "max", "lazy": 0.9, "pilot": False, "blocks": None}),
        (GibbsSampler("random", **SHORT), {"block_size": 2, "scan": "systematic"}),
        (HammingBallSampler(2, **SHORT), {"block_size": 3, "radius": 2}),
        (ClusterSampler(**SHORT), {}),
        (EliminationSampler(n_chains=2, random_state=0), {}),
        (
            ParallelTempering(n_replicas=4, **SHORT),
            {"explorer": GibbsSampler(block_size=2), "n_replicas": 3, "crossover": True},
        ),
    ],
    ids=["lsb", "gibbs", "ball", "clusters", "elimination", "tempering"],
)
def test_parameters_set_after_fit_wait_for_the_next_one(sampler, later, target, capsys):
    one, other = clone(sampler).fit(target), clone(sampler).fit(target)
    same = {"n_chains": 7, "random_state": 5, "n_burn_in": 50, "init": "uniform"}
    known = other.get_params()
    later = later | {name: value for name, value in same.items() if name in known}
    other.set_params(**later)
    same_chains(one, other)
    assert not capsys.readouterr().err
    other.set_params(verbose=1, n_jobs=2)  # these count at once
    same_chains(one, other)
    assert "sample: 100%" in capsys.readouterr().err


# ----------------------------------------------------------------- warnings


def test_frozen_sites(target):
    field = np.ones(6)
    field[2] = field[4] = 60.0
    sampler = make(n_burn_in=100).fit(Ising(np.zeros((6, 6)), field))
    assert repr(sampler.run_) == f"Run(2 chains on {sampler.target_!r})"
    with pytest.warns(FrozenSitesWarning, match=r"2 of 6 variables .* first is site 2\)") as seen:
        sampler.sample(200)
    assert seen[0].filename == __file__
    assert issubclass(FrozenSitesWarning, SamplerWarning)
    assert "probabilities of 7.7e-53 at most" in str(seen[0].message)  # exp(-2 * 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.sample(200)
    sampler.run_.warned_frozen[2] = False
    with pytest.warns(FrozenSitesWarning, match="2 of 6"):  # one of them is new
        sampler.sample(200)


def test_few_chances_are_said_with_what_helps():
    """Draws of single transitions: the variables that never changed may not have been tried."""
    target = Ising.lattice(np.random.default_rng(0).normal(size=(20, 20)), 0.1)
    sampler = make().fit(target)
    with pytest.warns(
        FrozenSitesWarning, match=r'sample\(n, thin="sweep"\), or more draws'
    ) as seen:
        sampler.sample(200)
    assert "as they are now" not in str(seen[0].message)
    stuck = make().fit(Ising(np.zeros((3, 3)), [60.0, 1.0, 1.0]))
    with pytest.warns(FrozenSitesWarning) as seen:
        stuck.sample(200, thin="sweep")
    assert not any("more draws" in str(w.message) for w in seen)


def test_short_run_is_said_once():
    target = Ising.lattice(np.random.default_rng(0).normal(size=(20, 20)), 0.1)
    sampler = make().fit(target)
    with pytest.warns(SamplerWarning) as seen:
        sampler.sample(10)
    short = [w for w in seen if issubclass(w.category, ShortRunWarning)]
    assert len(short) == 1
    assert "made 10 transitions since fit" in str(short[0].message)
    assert "sweep over the 400 variables" in str(short[0].message)
    assert short[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShortRunWarning)
        sampler.sample(10)
    sampler.fit(target)
    with pytest.warns(ShortRunWarning, match="made 399 transitions"):
        sampler.sample(399)


def test_draws_too_close_to_compare_chains_are_said_once():
    """Many draws, but of a few sweeps: it is not known whether the chains agree."""
    target = Ising(np.zeros((100, 100)), np.ones(100))
    sampler = make().fit(target)
    with pytest.warns(ShortRunWarning, match=r"made 1000 transitions since fit, 10 sweeps") as seen:
        sampler.sample(1000)
    assert not hasattr(sampler, "disagreement_")
    assert "it is not known whether they agree" in str(seen[0].message)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShortRunWarning)
        sampler.sample(100)
        sampler.fit(target).sample(64, thin="sweep")
    assert sampler.disagreement_.n_draws == 64


def test_a_full_sweep_is_not_short():
    target = Ising(np.zeros((5, 5)))
    sampler = make(lazy=0.5).fit(target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FrozenSitesWarning)
        sampler.sample(5)
        sampler.sample(1)
        sampler.sample(1, thin="sweep")


def test_flat_target_is_periodic():
    flat = Ising(np.zeros((6, 6)))
    with pytest.warns(PeriodicChainWarning, match=r"reject 0 of their moves.*lazy=0\.5") as seen:
        sampler = make().fit(flat)
    assert seen[0].filename == __file__
    with pytest.warns(PeriodicChainWarning, match="2 transitions apart, are of one kind only"):
        draws = sampler.sample(60, thin=2)["x"].values
    parity = draws.prod(axis=2)
    assert (parity == parity[:, :1]).all()
    # A third value that is impossible does not help.
    with pytest.warns(PeriodicChainWarning, match="reject 0 of their moves"):
        make().fit(Potts(np.zeros((6, 6)), np.tile([0.0, 0.0, -np.inf], (6, 1))))
    lazy = make(lazy=0.5).fit(flat)
    parity = lazy.sample(60, thin=2)["x"].values.prod(axis=2)
    assert (parity != parity[:, :1]).any()


def without(*values):
    """Five flat variables of three values, of which these ones are impossible."""
    return FunctionTarget(lambda x: -np.inf if np.isin(x, values).any() else 0.0, 5, n_states=3)


def parity(x, values):
    """Of the number of variables that have the second of two values."""
    return (x == values[1]).sum(axis=2) % 2


@pytest.mark.parametrize("values", [(0, 1), (0, 2), (1, 2)])
def test_values_that_never_occur_do_not_hide_a_periodic_chain(values):
    (lacking,) = {0, 1, 2} - set(values)
    target = without(lacking)
    assert (target.n_possible == 3).all()
    start = np.full(5, values[0])
    with pytest.warns(PeriodicChainWarning, match=r"reject 0 of their moves.*lazy=0\.5"):
        sampler = make("barker").fit(target, initial_states=start)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PeriodicChainWarning)  # once is enough
        sampler.sample(60, thin=3)
    for _ in range(2):  # but not where draws are of one kind
        with pytest.warns(PeriodicChainWarning, match="are of one kind only"):
            odd = parity(sampler.sample(60, thin=2)["x"].values, values)
        assert (odd == odd[:, :1]).all()
    # In sample as well, where fit was too short to tell.
    sampler = make("barker", n_burn_in=0).fit(target, initial_states=start)
    with pytest.warns(PeriodicChainWarning, match="reject 0 of their moves"):
        sampler.sample(60, thin="sweep")
    with pytest.warns(PeriodicChainWarning, match="reject 0 of their moves"):
        make("barker").fit(target.condition({0: values[0]}), initial_states=start)
    sampler = make("barker", lazy=0.5).fit(target, initial_states=start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        odd = parity(sampler.sample(60, thin=2)["x"].values, values)
    assert (odd != odd[:, :1]).any()


def test_a_few_of_many_chains_tell_of_third_values(monkeypatch):
    asked, third_values = [], Traits.third_values

    def spied(self, x):
        asked.append(len(x))
        return third_values(self, x)

    monkeypatch.setattr(Traits, "third_values", spied)
    make(n_chains=64).fit(Potts(np.zeros((6, 6)), np.zeros((6, 3))))  # accepts all
    make(n_chains=64).fit(Potts(0.1 * (np.ones((6, 6)) - np.eye(6)), np.zeros((6, 3))))
    assert asked == [4]


def test_a_third_value_in_a_hundred_million_sweeps_does_not_help():
    rare = Potts(np.zeros((6, 6)), np.tile([0.0, 0.0, -20.0], (6, 1)))
    with pytest.warns(PeriodicChainWarning, match="of their moves"):
        make("barker").fit(rare)


@pytest.mark.parametrize("balancing", ["barker", "sqrt", "min", "max"])
def test_cycles_of_odd_length_are_not_periodic(balancing):
    one = np.zeros((6, 3))
    one[1:, 2] = -np.inf  # one variable of three values will do
    targets = (without(), Potts(np.zeros((6, 6)), np.zeros((6, 3))), Potts(np.zeros((6, 6)), one))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for target in targets:
            draws = make(balancing).fit(target).sample(200, thin=2 * target.n_sites)["x"].values
            assert (draws[:, :, 0] == 2).any()
            odd = parity(draws, (0, 1))
            assert (odd != odd[:, :1]).any(axis=1).all()


@pytest.mark.parametrize("balancing", ["barker", "sqrt", "min", "max", "mixture", "learned"])
def test_no_warning_on_an_ordinary_target(target, balancing):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(balancing, n_burn_in=None).fit(target).sample(500)


@each_rule
def test_no_warning_of_other_samplers_on_an_ordinary_target(target, rule):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(rule).set_params(n_burn_in=None).fit(target).sample(500)


@pytest.mark.parametrize("n_burn_in", [1, 5])
def test_a_few_accepted_moves_do_not_make_a_target_flat(n_burn_in):
    # Uphill from the start, every move is accepted; that says nothing about the target.
    field = np.where(np.arange(60) % 2, 3.0, -3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(n_burn_in=n_burn_in).fit(Ising(np.zeros((60, 60)), field))


def test_lazy_chains_stay_as_often_as_asked():
    field = np.random.default_rng(0).normal(size=(4, 4))
    sampler = make(lazy=0.75, n_chains=4).fit(Ising.lattice(field, 0.1))
    x = sampler.sample(4000)["x"].values.reshape(4, 4000, 16)
    stays = (x[:, 1:] == x[:, :-1]).all(axis=2).mean()
    busy = make(n_chains=4).fit(Ising.lattice(field, 0.1))
    x = busy.sample(4000)["x"].values.reshape(4, 4000, 16)
    moves = 1 - (x[:, 1:] == x[:, :-1]).all(axis=2).mean()
    # 16,000 transitions: a standard error of 0.004.
    assert stays == pytest.approx(0.75 + 0.25 * (1 - moves), abs=0.02)


# ----------------------------------------------------------------- errors


class Impossible(Ising):
    """An Ising model that calls the states with x_0 = +1 impossible."""

    def log_prob(self, x):
        value = super().log_prob(x)
        return np.where(np.asarray(x)[..., 0] == 1, -np.inf, value)


FIT_ERRORS = [
    ({"n_chains": 0}, ValueError, "n_chains is 0; it must be at least 1"),
    ({"n_chains": 2**64}, ValueError, f"n_chains is {2**64}; it must be at most {2**53}"),
    ({"n_chains": 2**50}, MemoryError, f"n_chains={2**50} with .* Give fewer chains"),
    ({"n_burn_in": 10**30}, ValueError, f"n_burn_in is {10**30}; it must be at most {2**53}"),
    ({"n_chains": -2}, ValueError, "n_chains is -2; it must be at least 1"),
    ({"n_chains": 2.0}, TypeError, r"n_chains is 2\.0; .* of at least 1: write 2\."),
    ({"n_chains": True}, TypeError, "n_chains is True; give an integer"),
    ({"n_burn_in": -1}, ValueError, "n_burn_in is -1; it must be at least 0"),
    ({"n_burn_in": 10.5}, TypeError, r"n_burn_in is 10\.5; give an integer of at least 0"),
    ({"n_burn_in": "long"}, TypeError, "n_burn_in is 'long'; give an integer"),
    ({"n_jobs": 0}, ValueError, "n_jobs is 0; give a number of threads, -1"),
    ({"n_jobs": "all"}, ValueError, "n_jobs is 'all'; give a number of threads"),
    ({"n_jobs": 1.5}, ValueError, r"n_jobs is 1\.5; give a number of threads"),
    (
        {"objective": "entropy"},
        ValueError,
        r"objective is 'entropy'; it must be one of \['auto', 'bound', 'exact', 'flux', "
        r"'global_flux', 'kl'\]",
    ),
    ({"objective": ["bound"]}, ValueError, r"objective is \['bound'\]; it must be one of"),
    ({"learning_rate": -0.1}, ValueError, r"learning_rate is -0\.1; it must be in \[0, inf\)"),
    ({"learning_rate": np.nan}, ValueError, r"learning_rate is nan; it must be in \[0, inf\)"),
    ({"learning_rate": np.inf}, ValueError, r"learning_rate is inf; it must be in \[0, inf\)"),
    ({"learning_rate": "fast"}, ValueError, r"learning_rate is 'fast'; it must be in"),
    ({"lazy": 1.0}, ValueError, r"lazy is 1\.0; it must be in \[0, 1\)"),
    ({"lazy": -0.5}, ValueError, r"lazy is -0\.5; it must be in \[0, 1\)"),
    ({"lazy": None}, ValueError, "lazy is None; it must be in"),
    ({"random_state": -1}, ValueError, "random_state is -1; a seed must not be negative"),
    ({"random_state": 1.5}, TypeError, r"random_state is 1\.5; give an int, None, a numpy Seed"),
    ({"random_state": "seed"}, TypeError, "random_state is 'seed'; give an int"),
    ({"random_state": True}, TypeError, "random_state is True; give an int"),
    (
        {"balancing": "barkr"},
        ValueError,
        r"balancing is 'barkr'; it must be one of \['barker', 'learned', 'max', 'min', 'mixture'",
    ),
    ({"balancing": Barker}, TypeError, r"balancing is <class.*Did you forget the parentheses"),
    ({"balancing": 2}, TypeError, r"balancing is 2; give one of .* or a BalancingFunction"),
]


@pytest.mark.parametrize(
    ("params", "error", "message"), [case for case in FIT_ERRORS if set(case[0]) <= set(COMMON)]
)
@pytest.mark.parametrize("rule", [RULES["random"], RULES["ball"]], ids=["random", "ball"])
def test_wrong_parameters_of_other_samplers(target, rule, params, error, message):
    sampler = clone(rule).set_params(**params)
    with pytest.raises(error, match=message):
        sampler.fit(target)
    with pytest.raises(NotFittedError):
        sampler.sample(1)


@pytest.mark.parametrize(("params", "error", "message"), FIT_ERRORS)
def test_wrong_parameters(target, params, error, message):
    sampler = make(**{"balancing": "learned"} | params)
    with pytest.raises(error, match=message):
        sampler.fit(target)
    with pytest.raises(NotFittedError):
        sampler.sample(1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            np.zeros((3, 3)),
            r"an array of shape \(3, 3\), not a sklsb Target; .*sklsb\.Ising\(couplings",
        ),
        (nx.Graph(), r"a graph becomes one by sklsb\.Ising\(graph\)"),
        (None, "target is None, not a sklsb Target"),
        (Ising, r"target is <class.*Ising'>, not a sklsb Target; did you mean an instance of it"),
        ("ising", r"target is 'ising', not a sklsb Target.*sklsb\.io\.read_model\(path\)"),
        (len, r"not a sklsb Target.*sklsb\.FunctionTarget\(log_prob, n_sites\)\.$"),
        (
            SimpleNamespace(linear={}, quadratic={}, vartype="SPIN"),
            r"sklsb\.Ising\.from_bqm\(bqm, beta\)",
        ),
        (SimpleNamespace(free_RVs=[], rvs_to_values={}), r"sklsb\.from_pymc\(model\)\.$"),
        (SimpleNamespace(get_cpds=list), r"sklsb\.MarkovNetwork\.from_pgmpy\(model\)"),
        (
            SimpleNamespace(forward=abs, parameters=list, __call__=abs),
            r"module of torch.*sklsb\.TorchTarget\(module, n_sites\)",
        ),
        (pd.DataFrame({"a": [1]}), r"(?s)data, not a distribution.*SpikeSlabRegressor"),
    ],
)
def test_not_a_target(given, message):
    with pytest.raises(TypeError, match=message):
        make().fit(given)


@pytest.mark.parametrize(
    ("states", "error", "message"),
    [
        (np.ones(5), ValueError, r"initial_states has shape \(5,\); the target needs \(\.\.\., 12"),
        (
            np.ones((3, 12)),
            ValueError,
            r"initial_states has shape \(3, 12\); give one state, or .* the 2 chains",
        ),
        (
            np.ones((2, 1, 12)),
            ValueError,
            r"initial_states has shape \(2, 1, 12\); give one state",
        ),
        (np.zeros((2, 12)), ValueError, r"initial_states\[0, 0\] is 0\.0; every variable"),
        (np.full(12, np.nan), ValueError, r"initial_states\[0\] is nan; every variable"),
        (np.ones(12) * 1j, TypeError, "initial_states has dtype complex128; give integers"),
    ],
)
def test_wrong_initial_states(target, states, error, message):
    with pytest.raises(error, match=message):
        make().fit(target, initial_states=states)


def test_an_impossible_start_names_the_chain():
    target = Impossible(np.zeros((3, 3)))
    states = np.array([[-1, 1, 1], [1, 1, 1]])
    with pytest.raises(
        ValueError, match=r"initial_states\[1\] has log-probability -inf; chain 1 must start"
    ):
        make().fit(target, initial_states=states)


def test_warm_start_on_something_else(target):
    sampler = make(warm_start=True).fit(target)
    message = r"continues chains of shape \(2, 12\).*the target has 3 sites.*Set warm_start=False"
    with pytest.raises(ValueError, match=message):
        sampler.fit(Ising(np.zeros((3, 3))))
    with pytest.raises(ValueError, match=r"chains of shape \(2, 12\).* now n_chains is 3 and"):
        sampler.set_params(n_chains=3).fit(target)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: s.sample(2**64), ValueError, f"n is {2**64}; it must be at most {2**53}"),
        (lambda s: s.sample(1, thin=2**64), ValueError, f"thin is {2**64}; it must be at most"),
        (
            lambda s: s.sample(2**30, thin=2**40, record="marginals"),
            ValueError,
            rf"n \* thin is {2**70}; it must be at most {2**53}",
        ),
        (lambda s: s.sample(-1), ValueError, "n is -1; it must be at least 0"),
        (lambda s: s.sample(2.5), TypeError, r"n is 2\.5; give an integer of at least 0"),
        (lambda s: s.sample("5"), TypeError, "n is '5'; give an integer"),
        (lambda s: s.sample(True), TypeError, "n is True; give an integer"),
        (lambda s: s.sample(5, thin=0), ValueError, "thin is 0; it must be at least 1"),
        (lambda s: s.sample(5, thin=1.5), TypeError, r"thin is 1\.5; give an integer"),
        (lambda s: s.sample(5, thin=None), TypeError, "thin is None; give an integer"),
        (
            lambda s: s.sample(5, thin="sweeps"),
            ValueError,
            'thin is \'sweeps\'; give a number of transitions, "sweep" or "auto"',
        ),
        (lambda s: s.sample(5, record=[np.sum]), TypeError, "record is .*; give a dict of names"),
        (lambda s: s.sample(5, record={}), TypeError, r"record is \{\}; give a dict"),
        (lambda s: s.sample(5, record=np.sum), TypeError, "record is <function sum.*give a dict"),
        (
            lambda s: s.sample(5, record={"m": 3}),
            TypeError,
            r"record\['m'\] is 3; names must be strings and values callables",
        ),
        (
            lambda s: s.sample(5, record={1: np.sum}),
            TypeError,
            r"record\[1\] is <function sum.*names must be strings",
        ),
        (
            lambda s: s.sample(5, record={"m": np.sum}),
            ValueError,
            r"record\['m'\] returned shape \(\) for states of shape \(5, 3, 4\).*length 5",
        ),
        (
            lambda s: s.sample(5, record={"m": lambda x: x.sum(axis=0)}),
            ValueError,
            r"record\['m'\] returned shape \(3, 4\) for states of shape \(5, 3, 4\)",
        ),
        (lambda s: s.to_datatree(), ValueError, "no draws .*; call sample first"),
        (lambda s: s.to_inference_data(), ValueError, "no draws .*; call sample first"),
    ],
)
def test_wrong_arguments(target, call, error, message):
    sampler = make().fit(target)
    with pytest.raises(error, match=message):
        call(sampler)


@pytest.mark.parametrize(
    "name", ["chain", "draw", "lp", "acceptance_rate", "sklsb", "a/b", "../up"]
)
def test_a_statistic_cannot_be_called_like_a_dimension_or_what_stores_use(target, name):
    with pytest.raises((TypeError, ValueError), match=rf"record\['{name}'\]"):
        make().fit(target).sample(5, record={name: lambda x: x.sum(axis=1)})


def test_a_refused_call_moves_nothing(target):
    sampler, wanted = make().fit(target), make().fit(target)
    for call in (
        lambda: sampler.sample(5, thin=0),
        lambda: sampler.sample(-5),
        lambda: sampler.sample(5, record={"m": 3}),
        lambda: sampler.fit(None),
        lambda: sampler.fit(target, initial_states=np.zeros(12)),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
    same_chains(sampler, wanted)


def test_an_error_in_a_statistic_reaches_the_user(target):
    def broken(x):
        raise ZeroDivisionError("mine")

    before = signal.getsignal(signal.SIGINT)
    sampler = make(n_jobs=2).fit(target)
    with pytest.raises(ZeroDivisionError, match="mine"):
        sampler.sample(5, record={"m": broken})
    assert signal.getsignal(signal.SIGINT) is before
    assert sampler.sample(40).sizes["draw"] == 40


# ----------------------------------------------------------------- Ctrl-C


class Interrupter:
    """A statistic that is a Ctrl-C at its k-th call."""

    def __init__(self, k):
        self.k = k

    def __call__(self, x):
        self.k -= 1
        if self.k == 0:
            signal.raise_signal(signal.SIGINT)
        return x.copy()


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize(
    ("thin", "copied"),
    [
        (1, lambda sampler: sampler),
        (3, copy.copy),
        (7, lambda sampler: pickle.loads(pickle.dumps(sampler))),
        (250, lambda sampler: sampler),
        (250, copy.copy),
        (250, lambda sampler: pickle.loads(pickle.dumps(sampler))),
    ],
)
def test_ctrl_c_keeps_the_draws_and_the_chain(target, monkeypatch, thin, copied, n_jobs):
    monkeypatch.setattr("sklsb.ensembles.base.MOST_NUMBERS", 2 * 100)
    n = 2000 // thin
    plain = make().fit(target)
    whole = plain.sample(n, thin=thin)["x"].values
    stats = plain.sample_stats_
    before = signal.getsignal(signal.SIGINT)
    sampler = make(n_jobs=n_jobs).fit(target)
    with pytest.warns(UserWarning, match=r"Interrupted: returning \d+ of \d+ draws per chain"):
        part = sampler.sample(n, thin=thin, record={"x": Interrupter(9)})["x"].values
    assert signal.getsignal(signal.SIGINT) is before
    done = part.shape[1]
    # The ninth call is for the first chain of the fifth segment (with draws) of 100 transitions.
    assert 0 < done < n
    np.testing.assert_array_equal(part, whole[:, :done])
    for name in ("lp", "acceptance_rate"):
        np.testing.assert_array_equal(sampler.sample_stats_[name], stats[name][:, :done])
    # In the middle of a draw as well.
    sampler = copied(sampler)
    rest = sampler.sample(n - done, thin=thin)["x"].values
    np.testing.assert_array_equal(rest, whole[:, done:])
    for name in ("lp", "acceptance_rate"):
        np.testing.assert_array_equal(sampler.sample_stats_[name], stats[name][:, done:])


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("shape", "n_chains", "n_jobs", "thin"),
    [((8, 8), 4, 2, 1000), ((30, 30), 30, None, 1), ((100, 150), 4, None, 1)],
)
def test_ctrl_c_gives_control_back_within_a_second(shape, n_chains, n_jobs, thin):
    target = Ising.lattice(np.random.default_rng(0).normal(size=shape), 0.2)
    sampler = make(n_chains=n_chains, n_jobs=n_jobs, n_burn_in=20)
    sampler.fit(target)
    wanted = copy.deepcopy(sampler)
    drawing, over, sent, after = threading.Event(), threading.Event(), [], []

    def total(x):
        drawing.set()
        after.extend(sent)
        return x.sum(axis=(1, 2), dtype=int)

    def send():
        drawing.wait()
        if over.wait(0.15):  # segments have their full length by then
            return
        # Of this process: others may use the machine.
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        with pytest.warns(UserWarning, match="Interrupted: returning"):
            draws = sampler.sample(10**6, thin=thin, record={"sum": total})
        waited, calls = time.process_time() - sent[0], len(after)
    finally:
        over.set()
        drawing.set()
        thread.join()
    done = min(draws.sizes["draw"], 50)
    prefix = wanted.sample(done, thin=thin, record={"sum": total})
    np.testing.assert_array_equal(draws["sum"][:, :done], prefix["sum"])
    assert waited < 1.0
    assert calls <= 2 * n_chains, "the segment that runs, or at most one more"


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_says_that_results_are_lost(target):
    def interrupt(x):
        signal.raise_signal(signal.SIGINT)
        return x.sum(axis=(1, 2))

    with pytest.raises(KeyboardInterrupt, match="second Ctrl-C, before the call could return"):
        make().fit(target).sample(2000, record={"sum": interrupt})


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_during_fit_leaves_the_sampler_unfitted(target, monkeypatch):
    def interrupt(*args):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.01)

    sampler = make("learned")
    with monkeypatch.context() as patch:
        patch.setattr("sklsb.balancing.Lipschitz.vjp", interrupt)
        with pytest.raises(KeyboardInterrupt) as stopped:
            sampler.fit(target)
    assert stopped.value.__notes__ == [
        "fit was interrupted; the sampler is as it was before, not fitted."
    ]
    with pytest.raises(NotFittedError):
        sampler.sample(3)
    sampler.set_params(pilot=False)
    same_chains(sampler.fit(target), make("learned", pilot=False).fit(target))


STAGES = ("check_parameters", "make_starts", "make_ensemble", "burn_in", "settle", "_freeze")


FAILING = (
    *(LSBSampler("mixture", pilot=False, **SHORT), LSBSampler(warm_start=True, **SHORT)),
    *(GibbsSampler("random", **SHORT), HammingBallSampler(4, **SHORT), ClusterSampler(**SHORT)),
    *(SwapSampler(**SHORT), EliminationSampler(n_chains=2, random_state=0)),
    *(ParallelTempering(n_replicas=3, **SHORT), AutoSampler(**SHORT)),
)
ERRORS = {"error": ZeroDivisionError, "Ctrl-C": KeyboardInterrupt}


# Where fit fails is each sampler's own; with which of the two errors is not.
@pytest.mark.parametrize(
    ("sampler", "error"), pairs({repr(one): one for one in FAILING}, ERRORS, each=1)
)
@pytest.mark.filterwarnings("ignore::sklsb.exceptions.TemperingWarning")
def test_a_fit_that_fails_anywhere_leaves_no_trace(sampler, error, target, monkeypatch):
    given = {}
    if isinstance(sampler, SwapSampler):
        given = {"initial_states": np.repeat([-1, 1], 6)}
    fitted = clone(sampler).fit(target, **given)
    wanted = copy.deepcopy(fitted)
    other = Ising(np.zeros((12, 12)), 0.3)
    for which in (fitted, clone(sampler)):
        before = vars(which).copy()
        for stage in STAGES:
            if stage == "make_starts" and (given or sampler.get_params().get("warm_start")):
                continue  # states are given
            broken = LSBSampler if isinstance(sampler, AutoSampler) else type(sampler)
            broken = broken._algorithm
            stages = {name: getattr(broken, name) for name in STAGES}

            def fail(self, *args, stage=stage, stages=stages, **kwargs):
                stages[stage](self, *args, **kwargs)
                raise error("in the middle")

            with monkeypatch.context() as patch:
                patch.setattr(broken, stage, fail)
                with pytest.raises(error):
                    which.fit(other, **given)
            assert vars(which).keys() == before.keys()
            assert all(value is before[name] for name, value in vars(which).items()), stage
    same_chains(fitted, wanted)


@pytest.mark.parametrize("n_calls", [1, 30, 300])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_function_that_fails_leaves_the_fit_before(error, n_calls, target):
    left = [0]  # never

    def log_prob(x):
        left[0] -= 1
        if not left[0]:
            raise error
        return 0.1 * x.sum(axis=-1)

    other = FunctionTarget(log_prob, 12)
    several = SHORT | {"n_burn_in": 4000, "init": "both"}
    for sampler in (make("learned", pilot=False, init="both"), GibbsSampler("random", **several)):
        sampler.fit(target)
        wanted, before = copy.deepcopy(sampler), vars(sampler).copy()
        left[0] = n_calls
        with pytest.raises(error):
            sampler.fit(other)
        assert vars(sampler) == before
        same_chains(sampler, wanted)


def test_sampling_in_another_thread(target):
    results = []
    thread = threading.Thread(
        target=lambda: results.append(make(n_jobs=2).fit(target).sample(30)["x"].values)
    )
    thread.start()
    thread.join()
    np.testing.assert_array_equal(results[0], make().fit(target).sample(30)["x"].values)


# ----------------------------------------------------------------- one thread, honest settings


@pytest.mark.parametrize(
    "call",
    [
        lambda sampler, folder: sampler.sample(1),
        lambda sampler, folder: sampler.fit(sampler.target_),
        lambda sampler, folder: copy.copy(sampler),
        lambda sampler, folder: sampler.save(folder / "sampler"),
    ],
    ids=["sample", "fit", "copy", "save"],
)
def test_a_second_thread_is_refused(target, call, tmp_path):
    sampler = make().fit(target)
    refused = []

    def again(x):
        with ThreadPoolExecutor(1) as pool:
            refused.append(pool.submit(call, sampler, tmp_path).exception())
        return x[:, 0]

    sampler.sample(3, record={"first": again})
    assert isinstance(refused[0], RuntimeError)
    assert "already running, in another thread or in a call that is still" in str(refused[0])
    call(sampler, tmp_path)


def test_threads_that_are_none_are_refused_after_fit_too(target, tmp_path):
    sampler = make().fit(target).set_params(n_jobs=0)
    with pytest.raises(ValueError, match="n_jobs is 0; give a number of threads, -1 or None"):
        sampler.sample(1, store=tmp_path / "draws")
    assert not (tmp_path / "draws").exists()


@pytest.mark.parametrize("name", ["fast", "pilot", "warm_start", "keep_burn_in"])
def test_settings_are_true_or_false(target, name):
    with pytest.raises(TypeError, match=f"{name} is 'no'; give True or False"):
        make(**{name: "no"}).fit(target)


def test_a_device_without_fast_is_refused(target):
    with pytest.raises(ValueError, match="device is 'cuda' but fast is False"):
        make(device="cuda").fit(target)


def test_attrs_tell_what_was_fitted(target):
    sampler = make(balancing="barker").fit(target)
    sampler.set_params(balancing="max", lazy=0.5)
    attrs = sampler.sample(5, thin="sweep").attrs
    assert (attrs["balancing"], attrs["lazy"]) == ("'barker'", "0.0")


def test_warm_start_compares_names_by_value(target):
    sampler = make(balancing="learned", pilot=False, objective="kl", warm_start=True).fit(target)
    learned = sampler.balancing_.theta
    sampler.set_params(balancing="".join(list("learned")), n_burn_in=0).fit(target)
    np.testing.assert_array_equal(sampler.balancing_.theta, learned)


def test_a_view_that_implements_nothing_is_named():
    class View(NamedTuple):
        touched_start: np.ndarray
        touched: np.ndarray
        cache_size: int

    class Foreign(Ising):
        def view(self):
            return View(np.arange(3), np.arange(2), 0)

    message = "View does not implement init_cache; define it with @implements"
    for sampler in (make(), RULES["random"]):
        with pytest.raises(TypeError, match=message):
            clone(sampler).fit(Foreign(np.zeros((2, 2))))


def test_a_ctrl_c_after_the_last_draw_loses_nothing(target, monkeypatch):
    sampler, other = make("sqrt").fit(target), make("sqrt").fit(target)
    wanted = other.sample(20)
    with monkeypatch.context() as patch:
        patch.setattr(
            sampler.run_, "warn_about_draws", lambda *_: signal.raise_signal(signal.SIGINT)
        )
        with pytest.warns(InterruptedWarning, match="after the last draw: returning all 20 draws"):
            assert sampler.sample(20).equals(wanted)
    assert sampler.sample(5).equals(other.sample(5))


def test_a_ctrl_c_before_the_first_draw_locks_nobody_out(target, monkeypatch):
    class Interrupted(dict):
        def setdefault(self, key, value):
            super().setdefault(key, value)
            raise KeyboardInterrupt

    sampler, other = make("sqrt").fit(target), make("sqrt").fit(target)
    monkeypatch.setattr(_run, "_HOLDERS", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        sampler.sample(5)
    monkeypatch.setattr(_run, "_HOLDERS", dict(_run._HOLDERS))
    assert sampler.sample(5).equals(other.sample(5))

"""What users define outside the package: targets, rules, balancing functions, compiled too."""

import os
import pickle
import sys
import types
from pathlib import Path
from typing import NamedTuple

import exact_matrices  # noqa: F401 - formulas of the rules
import numpy as np
import pytest
import scipy.sparse as sp
from models import GRAPHS, dense, potts
from outside.balancing_rounded_min import RoundedMin
from outside.objective_coming_back import coming_back
from outside.rule_metropolis import Metropolis, MetropolisSampler
from outside.rule_metropolis import example as spins
from outside.target_ring import HeightRing, HeightsView, example
from processes import run_python
from sklearn.base import clone

from sklsb import RBM, GibbsSampler, HammingBallSampler, LSBSampler, Mixture, exact, extending
from sklsb._kernels._jit import _made_of
from sklsb._kernels.objectives import Objective
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.gibbs import RandomBlocks
from sklsb._kernels.rules.mixture import Mixture as MixtureOfRules
from sklsb.balancing.functions import FIXED
from sklsb.balancing.learning import OBJECTIVES
from sklsb.exact.enumeration import neighbours
from sklsb.extending import (
    Facts,
    NoPart,
    exp,
    flip,
    implements,
    init_cache,
    log_prob,
    log_ratio,
    step,
)
from sklsb.storage.codec import packed, unpacked
from sklsb.testing import (
    check_balancing,
    check_objective,
    check_rule,
    check_sampler,
    check_target,
    measured_matrix,
)
from sklsb.testing._objectives import _numeric_gradient
from sklsb.testing._probe import Probe

OUTSIDE = Path(__file__).parent / "outside"
SIZES = {
    "balancing_rounded_min.py": "{'chain': 2, 'draw': 100, 'row': 4, 'col': 4}",
    "observer_changes.py": "{'chain': 2, 'site': 3}",
    "objective_coming_back.py": "{'chain': 2, 'draw': 100, 'site': 3}",
    "rule_metropolis.py": "{'chain': 2, 'draw': 100, 'site': 3}",
    "target_ring.py": "{'chain': 2, 'draw': 100, 'site': 4}",
}


def small_ring():
    return HeightRing([0.3, 2.1, 1.2], n_levels=3, stiffness=0.4)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_a_script_of_ones_own(name, tmp_path):
    # Classes of __main__; each script runs the conformance checks, then a sampler.
    env = {**os.environ, "NUMBA_DISABLE_JIT": "0"}
    if name != "balancing_rounded_min.py":  # which has no kernel of its own
        env["NUMBA_CACHE_DIR"] = str(tmp_path)
    assert run_python(str(OUTSIDE / name), env=env).strip() == SIZES[name]
    kept = [path.name for path in tmp_path.rglob("*.nbc")]
    if name in ("target_ring.py", "rule_metropolis.py"):  # what is one's own is in all but graphs
        assert {path.split("-")[0] for path in kept} <= {"color"}
    if name == "objective_coming_back.py":  # nor has a step to do with what was minimised
        assert "enumerated" not in {path.split("-")[0] for path in kept}


@pytest.mark.parametrize(
    "names",
    [
        ["balancing_rounded_min.py", "observer_changes.py", "target_ring.py"],
        # What they check is checked compiled below.
        pytest.param(["objective_coming_back.py", "rule_metropolis.py"], marks=pytest.mark.slow),
    ],
    ids=["short", "long"],
)
def test_scripts_of_ones_own_as_plain_python(names, tmp_path):
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    each = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path, run_name='__main__')"
    found = run_python("-c", each, *(str(OUTSIDE / name) for name in names), env=env)
    assert found.splitlines() == [SIZES[name] for name in names]
    assert not list(tmp_path.rglob("*.nbc"))


def test_scripts_use_public_names_only():
    for path in OUTSIDE.glob("*.py"):
        lines = [line for line in path.read_text().splitlines() if "sklsb" in line]
        assert not [line for line in lines if "sklsb._" in line or "import _" in line], path
    assert all(hasattr(extending, name) for name in extending.__all__)


def test_balancing_function():
    check_balancing(RoundedMin())


@pytest.mark.parametrize(
    "sampler",
    [
        GibbsSampler(block_size=2, n_chains=2),
        # Each compiles its kernels anew.
        pytest.param(GibbsSampler("chromatic", n_chains=2), marks=pytest.mark.slow),
        pytest.param(HammingBallSampler(3, radius=1, n_chains=2), marks=pytest.mark.slow),
        LSBSampler("barker", n_burn_in=50, n_chains=2),
    ],
    ids=["blocks", "chromatic", "ball", "balanced"],
)
def test_samplers_of_the_package_on_a_target_of_ones_own(sampler):
    check_sampler(sampler, small_ring(), n_draws=30)


@pytest.mark.slow
def test_target_of_ones_own_with_evidence():
    check_target(example().condition({1: 2}))


@pytest.mark.slow
def test_function_is_learned_on_a_target_of_ones_own():
    sampler = LSBSampler(n_burn_in=100, n_chains=2, random_state=0).fit(small_ring())
    names = ["flux", "global_flux", "barker", "sqrt", "min", "max", "jump_barker"]
    assert sampler.candidates_["candidate"].values.tolist() == names
    assert np.isfinite(sampler.history_["mixing_objective"].values[:, 0]).all()


def metropolis_matrix(target):
    """The formula, by hand."""
    x, to = exact.states(target), neighbours(target)
    log_p = target.log_prob(x)
    matrix = np.zeros((len(x), len(x)))
    for i, row in enumerate(to):
        for j in row:
            matrix[i, j] += min(1.0, np.exp(log_p[j] - log_p[i])) / row.size
        matrix[i, i] = 1.0 - matrix[i].sum()
    return matrix


@pytest.mark.parametrize(
    "make", [spins, pytest.param(small_ring, marks=pytest.mark.slow)], ids=["spins", "heights"]
)
def test_rule_of_ones_own_is_its_formula(make):
    target = make()
    rule = MetropolisSampler().make_rule(target)
    found = measured_matrix(rule, target)
    np.testing.assert_allclose(found, metropolis_matrix(target), rtol=0, atol=1e-14)


@pytest.mark.slow
def test_rule_of_ones_own_in_a_mixture():
    blocks = RandomBlocks(np.arange(3, dtype=np.uint32), 2)
    check_rule(MixtureOfRules.of(Metropolis(3), blocks, 0.3), spins())


def test_sampler_without_parameters_of_its_own():
    sampler = MetropolisSampler(n_chains=3, random_state=0, n_burn_in=10, init="uniform")
    assert sampler.get_params() == {
        "n_chains": 3,
        "n_burn_in": 10,
        "init": "uniform",
        "n_jobs": None,
        "random_state": 0,
        "verbose": 0,
        "warm_start": False,
        "keep_burn_in": False,
    }
    assert repr(sampler).replace("\n", " ").split() == (
        ["MetropolisSampler(init='uniform',", "n_burn_in=10,", "n_chains=3,", "random_state=0)"]
    )
    draws = sampler.fit(spins()).sample(20)
    assert sampler.sample_stats_["acceptance_rate"].shape == draws["lp"].shape == (3, 20)
    assert sampler.n_evaluations_ == 3 * (10 + 20)


# ----------------------------------------------------------------- classes of one name

REFUSED = "TypeError: log_ratio of {}, or what it refers to, was changed after it had been compiled"
TWO = [0.731, 0.047]  # 1 / (1 + exp(-1)) and 1 / (1 + exp(3))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param("two classes", TWO, marks=pytest.mark.slow),
        pytest.param("conditioned", TWO, marks=pytest.mark.slow),
        # The last lines of "implemented again" say the same.
        pytest.param("cell run again", TWO, marks=pytest.mark.slow),
        pytest.param("module reloaded", TWO, marks=pytest.mark.slow),
        # Beside a spin that is up: 1 / (1 + exp(-2 * (0.25 + 0.3))), and a tenth of the exponent.
        pytest.param("Ising first", [0.75, 0.527], marks=pytest.mark.slow),
        pytest.param("copy first", [0.527, 0.75], marks=pytest.mark.slow),
        pytest.param("rules", TWO, marks=pytest.mark.slow),
        pytest.param("mixtures", TWO, marks=pytest.mark.slow),
        ("implemented again", [0.731, 0.731, REFUSED.format("View"), 0.047]),
        pytest.param("helper again", [0.731, REFUSED.format("View")] * 2, marks=pytest.mark.slow),
        pytest.param("package again", [0.731, REFUSED.format("IsingView")], marks=pytest.mark.slow),
    ],
)
def test_classes_of_one_name_run_their_own_code(case, expected, tmp_path):
    script = str(Path(__file__).parent / "same_names.py")
    found = run_python(script, case, str(tmp_path)).splitlines()
    assert len(found) == len(expected)
    for line, wanted in zip(found, map(str, expected), strict=True):
        assert line.startswith(wanted)


def test_what_compiled_code_refers_to_is_compared():
    module, inner = types.ModuleType("constants"), types.ModuleType("inner")
    module.beta, module.inner, inner.gamma = 1.0, inner, 3.0

    def scaled(v):
        return module.beta * v + module.inner.gamma

    def with_default(factor):
        def function(v, k=factor):
            return v * k

        return function

    made = [_made_of(scaled, [])]
    for name, where, value in (("beta", module, 2.0), ("gamma", inner, 4.0)):
        setattr(where, name, value)
        made.append(_made_of(scaled, []))
    assert made[0] != made[1] != made[2] != made[0]
    assert made[2] == _made_of(scaled, [])
    assert _made_of(with_default(1.0), []) == _made_of(with_default(1.0), [])
    assert _made_of(with_default(1.0), []) != _made_of(with_default(2.0), [])


# ----------------------------------------------------------------- objectives


GENERIC = Mixture([0.3, -0.2, 0.5, 0.0])
del OBJECTIVES["coming back"]  # other tests go through those of the package


@pytest.fixture(autouse=True)
def registry():
    """What a test declares is forgotten after it."""
    before = dict(OBJECTIVES)
    OBJECTIVES["coming back"] = coming_back
    yield
    OBJECTIVES.clear()
    OBJECTIVES.update(before)


@pytest.mark.parametrize(
    "target",
    [spins(), dense(5), pytest.param(potts(GRAPHS[-2], "zeros"), marks=pytest.mark.slow)],
    ids=repr,
)
def test_objective_of_ones_own_is_a_diagonal_of_the_squared_matrix(target):
    check_objective("coming back", GENERIC, target)
    x, table = exact.states(target), GENERIC.table()
    possible = target.log_prob(x) > -np.inf
    chains = Probe(target, Balanced(table), x[possible]).ensemble
    rows = possible.sum()

    def coming_back_by_matrix(table):
        matrix = exact.transition_matrix(Balanced(table), target)[np.ix_(possible, possible)]
        return np.diag(matrix @ matrix)

    settings = (coming_back, 1.0, 1)
    uniforms, weights = np.zeros((rows, 2)), np.zeros(rows)
    value, gradient, by_eta = chains.objective(Balanced(table), settings, uniforms, weights)
    assert value == pytest.approx(coming_back_by_matrix(table).mean(), rel=1e-12)
    numeric = _numeric_gradient(coming_back_by_matrix, table).mean(axis=0)
    np.testing.assert_allclose(gradient, numeric, rtol=0, atol=1e-6 * np.abs(numeric).max())
    assert by_eta == 0.0


@pytest.mark.parametrize("name", ["kl", "exact"])
def test_objectives_of_the_package_pass_the_check_of_ones_own(name):
    check_objective(name, GENERIC, spins())


def test_learning_by_an_objective_of_ones_own_lowers_it():
    target = dense(6, scale=0.5)

    def loss(function):
        matrix = exact.transition_matrix(Balanced(function.table()), target)
        return exact.probabilities(target) @ np.diag(matrix @ matrix)

    start = Mixture([0.0, 0.0, 0.0, 6.0])  # max
    settings = {"pilot": False, "n_burn_in": 400, "n_chains": 32, "random_state": 0}
    sampler = LSBSampler(start, objective="coming back", **settings).fit(target)
    assert loss(sampler.balancing_) < 0.9 * loss(start)
    assert loss(sampler.balancing_) < min(loss(cls()) for cls in FIXED.values()) + 0.001
    # The object is as good as its name, also in a copy.
    same = clone(LSBSampler(start, objective=coming_back, **settings)).fit(target)
    np.testing.assert_array_equal(same.balancing_.theta, sampler.balancing_.theta)
    np.testing.assert_array_equal(same.sample(20)["x"], sampler.sample(20)["x"])


def test_the_pilot_tries_what_an_objective_of_ones_own_learned():
    sampler = LSBSampler(objective=coming_back, n_burn_in=300, random_state=0).fit(dense(6))
    assert sampler.candidates_["candidate"].values.tolist()[:5] == ["coming back", *FIXED]
    assert "mixing_theta" not in sampler.history_


def test_objective_of_ones_own_in_files(tmp_path):
    sampler = LSBSampler(objective=coming_back, pilot=False, n_burn_in=50, random_state=0)
    sampler.fit(spins())
    sampler.save(tmp_path / "fitted")
    loaded = LSBSampler.load(tmp_path / "fitted", spins())
    copied = pickle.loads(pickle.dumps(sampler))
    wanted = sampler.sample(20)["x"]
    for again in (loaded, copied):
        assert again.objective.compiled is coming_back.compiled
        np.testing.assert_array_equal(again.sample(20)["x"], wanted)


def test_a_clone_keeps_the_objective_that_it_was_given():
    def declare(factor):
        @extending.objective("mine")
        def mine(t, log_t, log_ratio, stays):
            return factor * t, factor

        return mine

    first, second = declare(1.0), declare(2.0)
    assert first is not second
    assert clone(LSBSampler(objective=first)).objective is first


def test_unknown_objectives_are_refused():
    known = r"\['auto', 'bound', 'coming back', 'exact', 'flux', 'global_flux', 'kl'\]"
    for name in ("coming  back", 3, None, ["kl"]):
        with pytest.raises(ValueError, match=rf"must be one of {known}.* sklsb.extending"):
            LSBSampler(objective=name).fit(spins())
    with pytest.raises(ValueError, match=r"objective is 'k l'; known are \['bound', 'com"):
        check_objective("k l", GENERIC, spins())
    with pytest.raises(TypeError, match=r"Objective\('bound'\) is not a sum over all next states"):
        check_objective("bound", GENERIC, spins())
    for taken in ("kl", "flux", "auto", 3):
        with pytest.raises(ValueError, match=r"give a string that is none of .*'kl'"):
            extending.objective(taken)
    with pytest.raises(TypeError, match="NoPart is no compiled objective"):
        Objective("unknown", NoPart())
    # What was declared in another process is named when it is missed.
    kept = pickle.dumps(coming_back)
    del OBJECTIVES["coming back"]
    with pytest.raises(ValueError, match="objective is 'coming back'; known are"):
        pickle.loads(kept)


def test_objective_of_ones_own_has_no_first_order_form():
    pytest.importorskip("torch", reason="fast=True runs on torch")
    message = "'coming back', which has no form for first-order proposals on torch; use fast=False"
    for given in ("coming back", coming_back):
        with pytest.raises(ValueError, match=message):
            LSBSampler(objective=given, fast=True).fit(spins())


@pytest.mark.parametrize(
    ("factor", "shift", "wrong"), [(2.0, 0.7, False), (1.0, 0.0, True)], ids=["right", "halved"]
)
def test_wrong_derivative_is_found(factor, shift, wrong):
    # A constant that is left out of all derivatives changes nothing.
    @extending.objective("a test's")
    def an_objective(t, log_t, log_ratio, stays):
        back = exp(log_t - log_ratio)
        return t * back, factor * back + shift

    if wrong:
        with pytest.raises(AssertionError, match='gradient of objective "a test\'s"'):
            check_objective(an_objective, GENERIC, spins())
    else:
        check_objective(an_objective, GENERIC, spins())


def test_a_class_that_was_defined_anew_is_in_no_file(monkeypatch):
    kept = packed(Metropolis(3))
    assert unpacked(kept) == Metropolis(3)
    monkeypatch.setattr(sys.modules[Metropolis.__module__], "Metropolis", Careless)
    with pytest.raises(
        TypeError, match=r"Metropolis was defined anew since the sampler was fitted"
    ):
        packed(Metropolis(3))


# ----------------------------------------------------------------- what is wrong is found


class Careless(Metropolis):
    """Accepts by the square of the ratio."""


@implements(step, Careless)
def _careless(view, rule, chain, u):
    move = np.uint64(min(np.int64(u[0] * rule.n_moves), rule.n_moves - 1))
    acceptance = min(1.0, exp(2.0 * log_ratio(view, chain, move)))
    if u[1] < acceptance:
        flip(view, chain, move)
    return acceptance


def test_wrong_rule_is_found():
    with pytest.raises(AssertionError, match="stationarity of the step"):
        check_rule(Careless(3), spins())


class ForgetfulView(HeightsView):
    """Its cache stays as it was."""


for function in (init_cache, log_ratio, log_prob, extending.first_move):
    implements(function, ForgetfulView)(function.chosen(HeightsView))


@implements(flip, ForgetfulView)
def _forget(view, chain, move):
    others = view.field.shape[1] - 1
    site, after = np.int64(move) // others, np.int64(move) % others
    before = np.int64(chain.x[site])
    after += np.int64(after >= before)
    chain.x[site] = after
    return np.uint64(site * others + before - np.int64(before > after))


class ForgetfulRing(HeightRing):
    def view(self):
        return ForgetfulView(*super().view())


def test_wrong_cache_is_found():
    with pytest.raises(AssertionError, match="the cache after 100 moves against a rebuild"):
        check_target(ForgetfulRing([0.3, 2.1, 1.2], n_levels=3))


class WronglyJoined(HeightRing):
    """Of which the view knows better."""

    known = False

    @property
    def graph(self):
        return super().graph if self.known else sp.csr_array((self.n_sites,) * 2, dtype=bool)

    def view(self):
        self.known = True
        try:
            return super().view()
        finally:
            self.known = False


class WrongSites(RBM):
    """Its rules for a few variables see another machine."""

    def site_view(self):
        return RBM(2.0 * self.weights).site_view()


def test_wrong_site_view_is_found():
    with pytest.raises(AssertionError, match="log p of the kernel of site_view against log_prob"):
        check_target(WrongSites([[0.3, -1.0], [0.5, 0.2]]))


def test_wrong_graph_is_found():
    with pytest.raises(AssertionError, match=r"graph does not join variables \d and \d,"):
        check_target(WronglyJoined([0.3, 2.1, 1.2], n_levels=3))


class Incomplete(NamedTuple):
    """A rule that has no step."""

    n: int

    @property
    def facts(self):
        return Facts(n_uniforms=1)

    def new_part(self, target, n_chains):
        return NoPart()


def test_missing_function_is_named():
    with pytest.raises(TypeError, match=r"Incomplete does not implement step; define it with @imp"):
        check_rule(Incomplete(1), spins())


def test_what_is_no_function_of_the_contract_is_refused():
    with pytest.raises(TypeError, match="<built-in function len> is no function of the contract"):
        implements(len, Incomplete)


def test_rule_without_a_formula():
    with pytest.raises(TypeError, match="There is no formula for the transitions of Incomplete"):
        exact.transition_matrix(Incomplete(1), spins())


class Stay(Incomplete):
    """A rule that has a formula, registered as the error says."""


@exact.log_matrix.register
def _(rule: Stay, target):
    with np.errstate(divide="ignore"):
        return np.log(np.eye(len(exact.states(target))))


def test_rule_with_a_formula_of_ones_own():
    np.testing.assert_array_equal(exact.transition_matrix(Stay(1), spins()), np.eye(8))

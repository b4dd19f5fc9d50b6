"""Errors planted in tempering, elimination of its core, annealing: each is found by a test."""

import copy
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from planted import Mutant, anew, both_tests, inside

BENNETT, CORE, EXPLORERS, LADDERS, PATHS, SCHEDULE = (
    f"samplers/_tempering/{name}.py"
    for name in (
        "bennett",
        "core",
        "explorers",
        "ladders",
        "paths",
        "schedule",
    )
)
SCAN, PATH_VIEWS, CROSSING, LIFT, ANNEAL = (
    f"_kernels/tempering/{name}.py" for name in ("scan", "paths", "crossing", "lift", "anneal")
)


def small(package):
    """Three spins in a row, in a field."""
    return package.Ising([[0, 0.9, 0], [0.9, 0, -0.6], [0, -0.6, 0]], [0.4, -0.3, 0.1])


def make(package, **settings):
    settings = {"n_chains": 2, "n_burn_in": 96, "init": "uniform", "random_state": 0} | settings
    return package.ParallelTempering(**settings)


def check_error_of_log_z(package):
    anew("test_tempering").check_error_of_log_z()


def check_long_visits(package):
    anew("test_tempering").test_the_error_of_log_z_knows_long_visits()


def check_softened_zeros(package):
    anew("test_tempering").test_zeros_are_soft_on_the_way()


def check_last_level(package):
    anew("test_tempering").test_the_last_level_is_the_target_bit_for_bit()


def check_excluded_values(package):
    anew("test_tempering").test_excluded_values_are_excluded_at_every_level()


def check_equal_steps(package):
    anew("test_tempering").test_equal_steps()


def check_betas(package):
    anew("test_temperatures").test_the_ladder_has_the_betas_given_and_equal_steps_between()


def check_levels(package):
    couplings = [[0.7, 1, 0], [1, 0, 0.5], [0, 0.5, 0]]  # of which a self-loop is a constant
    target = package.Ising(couplings, [0.1, 0.2, -0.3]).condition({0: 1})
    check = anew("test_temperatures").check_distributions
    check(target, n_chains=8, n=60, n_burn_in=64, n_replicas=4)


def check_annealed(package):
    tests = anew("test_annealed")
    for name in ("dense", "function by product"):
        tests.check_log_z(*tests.TARGETS[name], n_chains=100, n_temperatures=10)


def check_batches(package):
    anew("test_temperatures").test_leaving_a_batch_out_is_as_without_it()


def check_far(package):
    anew("test_temperatures").test_betas_far_from_all_temperatures_have_no_error(100.0)


def check_penalties(package):
    check = anew("test_temperatures")
    check.test_reweighting_where_log_p_is_far_lower_or_has_a_large_constant("penalties")


def check_heat(package):
    tests = anew("test_temperatures")
    off = tests.standard_errors_off(2, None, n_chains=2, n_burn_in=32)
    assert np.abs(off).max() < 5


def check_scans(package):
    tests = anew("test_tempering")
    for product in (None, [np.array([q, 1 - q]) for q in (0.7, 0.5, 0.1)]):
        tests.check_scans(tests.network(), product, 400)


def check_layers(package):
    tests = anew("test_tempering")
    q = [np.array([q, 1 - q]) for q in (0.7, 0.5, 0.1)]
    tests.check_scans(tests.machine(), q, 2000)


def check_log_z_of_layers(package):
    rng = np.random.default_rng(0)
    target = package.RBM(rng.normal(size=(6, 4)), hidden_bias=rng.normal(size=4))
    settings = {"reference": np.tile([0.8, 0.2], (6, 1)), "n_replicas": 4, "n_burn_in": 500}
    sampler = make(package, **settings).fit(target)
    off = sampler.log_z_ - anew("test_tempering").log_z_of(target)
    assert abs(off) < 5 * sampler.log_z_error_ < 1.0, "log Z of the machine"


def check_core(package):
    anew("test_tempering").check_core(3, {1: 0}, 4000)


def check_easy_cores(package):
    anew("test_tempering").test_cores_of_networks_that_are_easy()


def check_round_trips(package):
    anew("test_tempering").check_round_trips(small(package), 300, n_replicas=4)


def check_explorers(package):
    given = package.GibbsSampler("random", n_chains=7), package.LSBSampler("learned")
    for explorer, match in zip(
        given, ("n_chains=7, which is not", "is to be learned"), strict=True
    ):
        anew("test_tempering").test_errors(
            small(package), {"explorer": explorer}, ValueError, match
        )


def check_crossover(package):
    """Two copies are taken only where parts move in a quarter of the exchanges."""
    explorers = inside(package, "samplers._tempering.explorers")
    explorers.run_scans = lambda *_: None
    explorers.Streams = list
    tried = SimpleNamespace(
        ladder=SimpleNamespace(exchanged=np.ones((1, 2))),
        chains=SimpleNamespace(evaluations=np.zeros((1, 1))),
        exchanged=0.1,
        begin_like=lambda _: None,
    )
    ladders = SimpleNamespace(
        states=np.zeros((1, 1, 2, 3)),
        streams=SimpleNamespace(copy=lambda: SimpleNamespace(of=lambda *_: [])),
        changed=lambda *_: tried,
        add_evaluations=lambda *_: None,
        _pool=None,
    )
    assert explorers.with_exchanges(ladders, 100, None) is ladders, "parts hardly move"


def check_copies(package):
    """Weights that replicas keep are of their level, and lp is that of the draw."""
    target = small(package)
    sampler = make(package, explorer=package.LSBSampler("sqrt"), n_replicas=3, n_burn_in=32)
    sampler.fit(target).sample(5)
    fork = copy.copy(sampler)
    found = sampler.sample(60)
    assert np.allclose(found["lp"], target.log_prob(found["x"].values)), "lp of the draws"
    again = np.concatenate([fork.sample(n)["x"].values for n in (7, 53)], axis=1)
    assert np.array_equal(again, found["x"]), "draws in parts by a copy"
    assert fork.log_z_ == sampler.log_z_, "log Z of a copy"
    ladders = sampler.run_.ensemble
    for one, other in zip(ladders.best(), ladders.at(np.array([0, 0.3, 1])).best(), strict=True):
        assert np.array_equal(one, other), "the best state is kept at other temperatures"
    best = sampler.best_state_
    assert np.allclose(best["lp"], target.log_prob(best["x"].values)), "lp of the best state"
    states = package.exact.states(target)
    assert np.allclose(best["lp"].max(), target.log_prob(states).max()), "the best state is seen"


def check_exchanges(package):
    """Two states exchange parts as the formula says; no cheaper fault than a wrong part."""
    anew("test_crossover").test_exchanges_are_those_of_the_formula(2)


def check_told(package):
    """Few round trips, and a function that is impossible somewhere, are told."""
    warning = inside(package, "exceptions").TemperingWarning
    target = package.Ising.lattice(np.zeros((2, 2)), coupling=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = make(package, n_burn_in=0, n_replicas=2).fit(target)
    with pytest.warns(warning, match="0 round trips"):
        sampler.sample(4)


MUTANTS = {
    "variance of log Z times 0.3": Mutant(
        "diagnostics/batches.py",
        "np.sqrt((n - 1) / n *",
        "np.sqrt(0.3 * (n - 1) / n *",
        check_error_of_log_z,
        "stated error",
    ),
    "batches taken for independent ones": Mutant(
        BENNETT, "for longer in (1, 4):", "for longer in (1,):", check_long_visits, "."
    ),
    "the shift of Bennett's ratio left out": Mutant(
        BENNETT,
        "self.shift + np.log(sums[..., 0])",
        "np.log(sums[..., 0])",
        check_error_of_log_z,
        "stated error of log Z",
    ),
    "sums of a batch go on into the next one": Mutant(
        BENNETT, "        sums[:] = 0.0\n", "", check_error_of_log_z, "scans that were counted"
    ),
    "zeros hardened too early": Mutant(
        PATHS,
        "_HARDENING * np.log1p(-b)",
        "np.log1p(-b)",
        check_softened_zeros,
        "Not equal|Mismatched",
    ),
    "zeros that are still soft at the last level": Mutant(
        PATHS,
        "_HARDENING * np.log1p(-b)",
        "_HARDENING * np.log1p(-0.9 * b)",
        check_last_level,
        "Arrays are not equal",
    ),
    "excluded values softened": Mutant(
        PATHS,
        "excluded[a:b] = ~inside.ravel()",
        "excluded[a:b] = False",
        check_excluded_values,
        ".",
    ),
    "levels closer where nothing is refused": Mutant(
        SCHEDULE,
        "np.cumsum(np.clip(rejected, _FEWEST_REJECTED, 1.0))",
        "np.cumsum(np.clip(1.0 - rejected, _FEWEST_REJECTED, 1.0))",
        check_equal_steps,
        ".",
    ),
    "betas of the user that are moved": Mutant(
        SCHEDULE,
        "ends = barrier[np.searchsorted(beta, kept)]",
        "ends = barrier[-1] * kept",
        check_betas,
        ".",
    ),
    "states of replicas, not of levels": Mutant(
        SCAN, "which = ladder.at[c, i, k]", "which = k", check_levels, "each has its law"
    ),
    "log p of all levels without the constant": Mutant(
        "samplers/_tempering/levels.py",
        "stats[..., 0] += target.constant",
        "stats[..., 0] += 0.0",
        check_levels,
        ".",
    ),
    "weights of levels that are fixed": Mutant(
        "diagnostics/reweighting.py", "change += np.einsum", "np.einsum", check_batches, "."
    ),
    "errors far from all levels": Mutant(
        "diagnostics/reweighting.py", "_LEAST * n * (", "0.0 * n * (", check_far, "."
    ),
    "weights of levels sought from means": Mutant(
        "diagnostics/reweighting.py",
        "logsumexp(step * flat[:, :-1], axis=0)",
        "step * flat[:, :-1].sum(axis=0)",
        check_penalties,
        ".",
    ),
    "heat without the square of beta": Mutant(
        "diagnostics/temperatures.py",
        "scale = beta**power / n_sites",
        "scale = beta / n_sites",
        check_heat,
        ".",
    ),
    "runs weighed one way": Mutant(
        ANNEAL,
        "high - low if there > here else low - high",
        "high - low",
        check_annealed,
        ".",
    ),
    "states of the reference alone forgotten in reverse": Mutant(
        "samplers/annealed.py",
        "(math.log(share) if share else -math.inf)",
        "0.0",
        check_annealed,
        ".",
    ),
    "swaps accepted by the ratio of the last level": Mutant(
        SCAN,
        "up, down = first_high - first_low, second_low - second_high",
        "up, down = first_high - first_low, first_low - second_high",
        check_scans,
        "scan",
    ),
    "swaps accepted upside down": Mutant(
        SCAN,
        "accept = 1.0 if log_accept >= 0.0 else math.exp(log_accept)",
        "accept = 1.0 if log_accept <= 0.0 else math.exp(-log_accept)",
        check_scans,
        "scan",
    ),
    "pairs of levels not in turn": Mutant(
        SCAN,
        "range((before + s) % 2, n_pairs, 2)",
        "range(s % 2, n_pairs, 2)",
        check_scans,
        "scan",
    ),
    "the reference drawn from the first value on": Mutant(
        PATH_VIEWS,
        "while k < last and u[j] >= reference.upto[k]:",
        "while k < last and u[j] <= reference.upto[k]:",
        check_scans,
        "scan",
    ),
    "log q of the reference at the wrong level": Mutant(
        PATH_VIEWS,
        "return GuidedView(view, 1.0 - path.beta[k],",
        "return GuidedView(view, path.beta[k],",
        check_scans,
        "scan",
    ),
    "visible units drawn at beta = 1 at every level": Mutant(
        PATH_VIEWS,
        "return view.beta * field + ",
        "return field + ",
        check_layers,
        "scan",
    ),
    "hidden units drawn at beta = 1 at every level": Mutant(
        PATH_VIEWS,
        "return view.beta * hidden_activation(view.inner, chain, j)",
        "return hidden_activation(view.inner, chain, j)",
        check_layers,
        "scan",
    ),
    "the marginal tempered, not both layers": Mutant(
        PATH_VIEWS,
        "low, high = log_prob(at_level(path, k), chain), log_prob(at_level(path, k + 1), chain)",
        "low, high = [path.beta[k + i] * log_prob(path.inner, chain) for i in (0, 1)]",
        check_layers,
        "scan",
    ),
    "hidden units left out of log Z at beta = 0": Mutant(
        PATHS,
        "n_hidden * np.log(2.0) + of_visible",
        "of_visible",
        check_log_z_of_layers,
        "log Z of the machine",
    ),
    "odds of the reference upside down": Mutant(
        PATHS,
        "np.log(product[site][1]) - np.log(product[site][0])",
        "np.log(product[site][0]) - np.log(product[site][1])",
        check_layers,
        "scan",
    ),
    "a replica keeps the weights of the level it left": Mutant(
        SCAN,
        "        _arrive(path, rule, first, k + 1)\n",
        "",
        check_copies,
        "draws in parts",
    ),
    "round trips counted at every visit of level 0": Mutant(
        SCAN,
        "ladder.trips[c, j] += np.int64(ladder.heading[c, bottom, j] == 2)",
        "ladder.trips[c, j] += np.int64(ladder.heading[c, bottom, j] > 0)",
        check_round_trips,
        ".",
    ),
    "a stay at the last level never ends": Mutant(
        SCAN,
        "        ladder.stay[c, bottom, j] = 0\n",
        "",
        check_round_trips,
        ".",
    ),
    "the best state of the burn-in forgotten": Mutant(
        LADDERS,
        "        self.ladder.best_log_prob[:] = other.ladder.best_log_prob\n",
        "",
        check_copies,
        "best state",
    ),
    "a copy counts its scans from 0": Mutant(
        LADDERS,
        'self.n_scans, self.counters = state["n_scans"],',
        "self.n_scans, self.counters = 0,",
        check_copies,
        "draws in parts|log Z of a copy",
    ),
    "two copies only where no part moves": Mutant(
        EXPLORERS,
        "if tried.exchanged < _OFTEN:",
        "if tried.exchanged > _OFTEN:",
        check_crossover,
        ".",
    ),
    "parameters of an explorer silently left aside": Mutant(
        EXPLORERS,
        "    _check_parameters(given)\n",
        "",
        check_explorers,
        "DID NOT RAISE",
    ),
    "the constant of the core without its barren variables": Mutant(
        CORE,
        "model.constant + model.log_barren + shift",
        "model.constant + shift",
        check_core,
        ".",
    ),
    "a variable more left in the core than needed": Mutant(
        CORE,
        "while heap and len(near) > 1:",
        "while heap and len(near) > 2:",
        check_easy_cores,
        ".",
    ),
    "variables drawn in the order of their elimination": Mutant(
        CORE, "in reversed(joined):", "in joined:", check_core, "."
    ),
    "variables of the core drawn too": Mutant(
        LIFT,
        "row += c.stride[a] * index[c.axis[a]]",
        "row += c.stride[a] * index[c.axis[c.axis_start[j]]]",
        check_core,
        ".",
    ),
    "parts joined through variables that are equal": Mutant(
        CROSSING,
        "            if mark[j] == 1:\n                mark[j] = 2",
        "            if mark[j] < 2:\n                mark[j] = 2",
        check_exchanges,
        ".",
    ),
    "a part that is exchanged one way": Mutant(
        CROSSING,
        "        _put(view, crossing, second, i, a)\n",
        "",
        check_exchanges,
        ".",
    ),
    "few round trips not told": Mutant(
        "samplers/_tempering/fitting.py",
        "trips.min() == 0 or trips.sum() < _FEWEST_TRIPS",
        "trips.min() < 0",
        check_told,
        "0 round trips",
    ),
}


test_a_planted_error_is_found, test_the_package_itself_passes = both_tests(MUTANTS)

"""The tests are tested: errors planted in targets, steps, learning, redraws and draws.

Those of other rooms of the package are in ``test_mutants_*.py``.
"""

import copy
import importlib

import numpy as np
import pytest
from planted import Mutant, anew, both_tests, hurried, imported, inside
from test_exact import check_lattice
from test_kernel import check_looked_up, check_selection
from test_objectives import check_bad_batch, check_stride
from test_pilot import (
    check_choice,
    check_dropped,
    check_exactness,
    check_series,
    check_slow_part,
    check_starved,
    check_variance_over_all,
)

import sklsb

# ----------------------------------------------------------------- the checks


def ising(package, field=0.4):
    couplings = np.array([[0.0, 0.9, -0.6], [0.9, 0.0, 0.0], [-0.6, 0.0, 0.0]])
    return package.Ising(couplings, field * np.array([1.0, -0.7, 0.3]))


def samplers(package, **settings):
    for name, lazy in (("barker", 0.0), ("max", 0.3)):
        # Plain starts: searches and scouts take long as plain Python.
        settings = {"init": "uniform", "blocks": None} | settings
        yield package.LSBSampler(name, lazy=lazy, n_burn_in=10, n_chains=2, **settings)


def check_target(package):
    package.testing.check_target(ising(package), n_states=6)
    rng = np.random.default_rng(0)
    package.testing.check_target(package.Ising.lattice(rng.normal(size=(3, 4)), 0.7), n_states=4)


def network(package):
    """Mixed numbers of values, and a zero."""
    table = np.exp(np.random.default_rng(0).normal(size=(3, 2)))
    table[1, 0] = 0.0
    factors = [((1,), [1, 3, 2]), ((1, 0), table), ((0, 2, 1), np.arange(1, 13))]
    return package.MarkovNetwork([2, 3, 2], factors)


def check_network(package):
    package.testing.check_target(network(package), n_states=6)


def check_zero(package):
    target = network(package)
    x = package.exact.states(target)
    impossible = (x[:, 1] == 1) & (x[:, 0] == 0)
    assert np.all(package.exact.probabilities(target)[impossible] == 0.0), "a zero stays a zero"


def local_step():
    return anew("local_step")


def check_evidence(package):
    target = network(package).condition({1: 2})
    package.testing.check_target(target, n_states=6)
    for sampler in samplers(package):
        local_step().check_step(sampler, target)


def check_step(package):
    for sampler in samplers(package):
        local_step().check_step(sampler, ising(package))


def check_far_step(package):
    for sampler in samplers(package):
        local_step().check_step(sampler, ising(package, field=2000.0))


def check_sampler(package):
    *_, lazy = samplers(package)
    settings = {"pilot": False, "objective": "kl", "init": "uniform", "blocks": None}
    sampler = package.LSBSampler("mixture", n_burn_in=20, n_chains=2, **settings)
    with hurried(package) as testing:
        testing.check_sampler(lazy, pair(package), n_draws=20)
        testing.check_sampler(sampler, pair(package), n_draws=20)


def check_the_chain_after_the_pilot(package):
    with hurried(package):
        check_exactness(package)


def check_numbers(package):
    anew("test_streams").test_numbers_are_those_of_the_stream_in_double_precision()


def check_long(package):
    """Offsets follow the weights: a chain falls into the mode of a strong field."""
    sampler = package.LSBSampler("max", blocks=None, n_burn_in=50, n_chains=4, random_state=0)
    target = ising(package, field=4000.0)
    mode = np.tile(np.sign(target.field), (4, 1))
    states = sampler.fit(target, initial_states=-mode).state_
    assert np.array_equal(states, mode), "the chain must reach the mode"


def check_objectives(package):
    checks = anew("enumerated_objectives")
    checks.check_objectives(package.Mixture([0.3, -0.2, 0.5, 0.0]), ising(package))


def check_objectives_of_three_values(package):
    field = np.array([[0.3, -0.2, 0.7], [0.1, 0.9, -0.4]])
    target = package.Potts([[0.0, 0.8], [0.8, 0.0]], field)
    checks = anew("enumerated_objectives")
    checks.check_objectives(package.Mixture([0.3, -0.2, 0.5, 0.0]), target)


def check_strides(package):
    check_stride(package, ising(package), 2, np.zeros(8))


def check_balancing(package):
    for name in ("Barker", "Mixture", "Network", "Lipschitz"):
        package.testing.check_balancing(getattr(package, name)())
    steep = package.Lipschitz(0.5, "knots", np.linspace(-1.0, 1.0, 41))
    package.testing.check_balancing(steep)


def check_lattices(package):
    for shape in ((1, 2), (2, 3), (3, 3)):
        for periodic in (True, False):
            check_lattice(package.Ising, shape, periodic)


def check_looked_up_weights(package):
    for name in ("lattice", "new offsets"):
        check_looked_up(package, name)


def check_many_sites(package):
    for field in (1.0, 700.0):
        check_selection(package, 70, field, n=40)


def check_bad_batches(package):
    for bad in (np.nan, np.inf):
        check_bad_batch(package, bad)


def check_input(package):
    with pytest.raises(ValueError, match="must be finite"):
        package.Ising(np.zeros((2, 2)), [0.0, np.nan])
    with pytest.raises(ValueError, match="must be symmetric"):
        package.Ising([[0.0, 1.0], [2.0, 0.0]])


def check_weights(package):
    weights = inside(package, "balancing.learning").relative_weights(np.array([0.0, -2.0]) + 1e4)
    assert np.isclose(np.exp(weights).mean(), 1.0), "weights are relative to their mean"


def pair(package):
    """Two variables: what is measured takes long as plain Python."""
    return package.Ising([[0.0, 0.9], [0.9, 0.0]], [0.4, -0.3])


def triple(package):
    return package.Potts([[0.0, 0.8], [0.8, 0.0]], [[0.3, -0.2, 0.7], [0.1, 0.9, -0.4]])


def check_rule_of(package, sampler, target, n_continuations=16):
    anew("exact_matrices")  # has the formula
    rule = package.exact.matrices.rule_of(sampler, target)
    with hurried(package) as testing:
        testing.check_rule(rule, target, n_continuations=n_continuations)


def check_gibbs(package):
    for target in (pair(package), triple(package)):
        check_rule_of(package, package.GibbsSampler("random"), target)


def check_chromatic(package):
    check_rule_of(package, package.GibbsSampler("chromatic"), pair(package))


def check_words(package):
    target = package.Ising.lattice(np.full((4, 24), 0.1), coupling=0.3)
    sampler = package.GibbsSampler("chromatic", n_burn_in=2, n_chains=2, random_state=0)
    checks = importlib.import_module(f"{package.__name__}.testing._samplers")
    checks._check_draws(sampler, target, 3)


def check_lp_of_sweeps(package):
    target = package.Ising.lattice(np.full((4, 24), 0.1), coupling=0.3)
    sampler = package.GibbsSampler("chromatic", n_burn_in=20, random_state=0).fit(target)
    x = sampler.sample(20)["x"].values
    np.testing.assert_allclose(sampler.sample_stats_["lp"], target.log_prob(x), atol=1e-12)


def check_shifts(package):
    chromatic = importlib.import_module(f"{package.__name__}._kernels.rules.chromatic")
    target = package.Ising.lattice(np.zeros((4, 600)), coupling=0.2)
    rule = package.GibbsSampler("chromatic", n_burn_in=1, n_chains=1).fit(target).run_.ensemble.rule
    whole = rule.new_part(target, 1).classes
    chromatic._BLOCKS = 1
    np.testing.assert_array_equal(rule.new_part(target, 1).classes.shift, whole.shift)


def check_systematic(package):
    check_rule_of(package, package.GibbsSampler("systematic"), pair(package))


def check_blocks(package):
    check_rule_of(package, package.GibbsSampler(block_size=2), pair(package))


def check_ball(package):
    check_rule_of(package, package.HammingBallSampler(2), pair(package))


def check_swap(package):
    tied = package.MarkovNetwork([2, 3], [((0, 1), [[0.0, 2.0, 1.0], [3.0, 0.0, 0.5]])])
    for target in (pair(package), tied):
        check_rule_of(package, package.SwapSampler(), target, 6)


def check_layers(package):
    target = package.RBM([[0.9], [-0.7]], [0.3, -0.2], [0.5])
    for given in (target, target.condition({1: 1})):
        check_rule_of(package, package.GibbsSampler("layers"), given)


def check_clusters(package):
    opposite = package.Ising([[0.0, -0.4], [-0.4, 0.0]], [0.3, 0.2])
    potts = package.Potts([[0.0, 0.8], [0.8, 0.0]], [[0.3, -0.2, 0.7], [0.1, 0.9, -np.inf]])
    for target in (pair(package), opposite, potts):
        check_rule_of(package, package.ClusterSampler(), target, 4)


def check_three_in_clusters(package):
    # The last variable is tried by the first, and then by the second.
    target = package.Ising(np.array([[0.0, 0.0, 0.4], [0.0, 0.0, 0.4], [0.4, 0.4, 0.0]]))
    check_rule_of(package, package.ClusterSampler(), target, 4)


def check_given_clusters(package):
    couplings = np.array([[0.0, 0.4, 0.5], [0.4, 0.0, -0.3], [0.5, -0.3, 0.0]])
    target = package.Ising(couplings, [0.3, -0.2, 0.4]).condition({1: 1})
    check_rule_of(package, package.ClusterSampler(), target, 4)


def check_mixture(package):
    anew("exact_matrices")  # has the formula of a part
    for target in (pair(package), package.Potts([[0.0]], [[0.3, -0.2, 0.7]])):
        one = package.exact.matrices.rule_of(package.GibbsSampler("random"), target)
        other = inside(package, "_kernels.rules.balanced").Balanced(package.Barker().table())
        rule = inside(package, "_kernels.rules.mixture").Mixture.of(one, other, 0.3)
        with hurried(package) as testing:
            testing.check_rule(rule, target, n_continuations=6)


def check_factors(package):
    weights, target = inside(package, "balancing.weights"), pair(package)
    rule = weights.balanced(target, package.Barker(), 0.0, np.array([0.5, 2.0]))
    with hurried(package) as testing:
        testing.check_rule(rule, target)


def check_jumps(package):
    """The chance of a first jump, and the mean after long by starts from both states."""
    target = package.Ising([[0.0]], [0.4])
    table = package.Barker().table()
    rule = inside(package, "_kernels.rules.jump").Jump(table, np.log(1.5))
    probe = inside(package, "testing._probe").RuleProbe(target, rule, room=1)
    rates = np.exp(0.8) / (1 + np.exp(0.8)) * 1.5, 1 / (1 + np.exp(0.8)) * 1.5
    for x, rate in zip((-1, 1), rates, strict=True):
        state, edge = np.array([[x]], np.int8), -np.expm1(-rate)
        for u, stays in ((edge + 1e-5, True), (edge - 1e-5, False)):  # weights are tabulated
            there = probe.step(state, np.array([[u, 0.5, 0.5]]))
            assert (there == state).all() == stays, "the first jump"
        n = 1200
        numbers = np.random.default_rng(5).random((n, 3))
        ends = np.array([probe.step(state, row[None])[0, 0] for row in numbers])
        decay = np.exp(-sum(rates))
        p = 1 / (1 + np.exp(-0.8))
        up = p + ((x == 1) - p) * decay
        assert abs((ends == 1).mean() - up) < 5 * np.sqrt(up * (1 - up) / n), "mean of the jumps"


def ring(package):
    """A zero of each kind: one that strikes a value, and one that ties two variables."""
    rng = np.random.default_rng(1)
    sizes = [2, 3, 2, 2]
    factors = [((i, (i + 1) % 4), rng.random((sizes[i], sizes[(i + 1) % 4]))) for i in range(4)]
    factors[0][1][:, 0] = factors[0][1][1, 2] = 0.0
    return package.MarkovNetwork(sizes, factors)


# Bytes that hold the tables of a ring, and messages of one of its variables or two.
SLICED = 532


def enumerated(package, target):
    x = package.exact.states(target)
    return x, np.exp(target.log_prob(x))


def check_elimination(package):
    target = ring(package)
    x, p = enumerated(package, target)
    for memory in (2**28, SLICED):
        sliced = package.exact.elimination_cost(target, max_memory=memory).n_configurations > 1
        assert sliced == (memory == SLICED)
        log_z = package.exact.log_partition(target, max_memory=memory)
        assert np.isclose(log_z, np.log(p.sum()), rtol=1e-12), "log Z against enumeration"
        found = package.exact.marginals(target, max_memory=memory)["p"].values
        expected = ((x[:, :, None] == target.values) * p[:, None, None]).sum(0) / p.sum()
        assert np.allclose(found, expected, rtol=0, atol=1e-12), "marginals against enumeration"


def check_frequencies(x, states, p):
    """A chi-square test of independent draws."""
    expected = len(x) * p / p.sum()
    count = (x[:, None] == states).all(axis=2).sum(axis=0)
    assert not count[expected == 0].any(), "a draw is possible"
    statistic = ((count - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    # Of 12 degrees of freedom or less: above 70 with probability below 1e-8.
    assert statistic < 70, "draws have their probabilities"


def check_exact_draws(package):
    for memory in (2**28, SLICED):
        target = ring(package)
        draws = package.exact.sample(target, 1500, random_state=0, max_memory=memory)
        check_frequencies(draws["x"].values[0], *enumerated(package, target))


def check_enumerated(package):
    for name in ("own", "observed"):
        anew("test_exact").test_small_targets_without_factors_are_enumerated(name)


def check_nearly_conditional(package):
    """Draws of a network whose rows sum to 1 only nearly are rejected in part."""
    engine, reduce = (inside(package, f"exact.elimination.{name}") for name in ("engine", "reduce"))
    sums = np.array([[0.5, 1.0], [1.0, 0.6]])
    table = np.stack([[[0.3, 0.9], [0.5, 0.2]], [[0.7, 0.1], [0.5, 0.8]]], axis=2) * sums[..., None]
    factors = [((0,), [0.5, 0.5]), ((1,), [0.3, 0.7]), ((0, 1, 2), table)]
    target = package.MarkovNetwork([2, 2, 2], factors)
    model = reduce.prune(reduce.strike(target), defect=1.0)
    found = engine._ordered(model, (), "draws", engine.Limits(2.0**30, 2.0**28))
    assert found.model.log_defect > 0.0
    elimination = engine.Elimination(found)
    n = 4000
    x, lp = np.empty((n, 3), np.int8), np.empty(n)
    u = np.random.default_rng(0).random((n, found.n_uniforms))
    accepted = elimination.draw(u, x, lp)
    check_frequencies(x[accepted], *enumerated(package, target))


def check_conditionals(package):
    """A block is drawn from its exact distribution given the rest."""
    target = ring(package)
    blocks, reduce = (inside(package, f"exact.elimination.{name}") for name in ("blocks", "reduce"))
    states, p = enumerated(package, target)
    for block in ([1, 0], [3, 2]):
        pool = blocks.BlockPool(reduce.strike(target), [block])
        rest = np.setdiff1d(np.arange(4), block)
        for x in states[p > 0][::5]:
            mine = p * (states[:, rest] == x[rest]).all(axis=1)
            rng = np.random.default_rng(0)
            made = np.array([pool.redraw(x, rng)[0] for _ in range(200)])
            assert (made[:, rest] == x[rest]).all(), "the rest of a block stays"
            check_frequencies(made, states, mine)


def check_redraws(package):
    """Chains of steps and redraws: caches, copies, and what they visit."""
    for target, blocks in ((ising(package), 4), (ring(package), "auto"), (ring(package), 1)):
        sampler = package.LSBSampler(
            "sqrt", n_burn_in=10, n_chains=2, blocks=blocks, random_state=0
        ).fit(target)
        assert sampler.blocks_.kind == ("pool" if blocks == 1 else "whole")
        parts = copy.copy(sampler)
        draws = sampler.sample(250)
        x = draws["x"].values
        assert np.allclose(draws["lp"], target.log_prob(x)), "lp of the draws"
        again = np.concatenate([parts.sample(n)["x"].values for n in (1, 99, 150)], axis=1)
        assert np.array_equal(again, x), "draws in parts"
        moves = np.isnan(sampler.sample_stats_["acceptance_rate"].values)
        assert abs(moves.mean() - sampler.blocks_.share) < 0.1, "redraws by the coin"
        if blocks != 1:
            check_frequencies(x[moves], *enumerated(package, target))


def test_plain_python_gives_the_same_chains_bit_for_bit():
    def run(package):
        found = []
        # Searches for starts take long as plain Python; one is made.
        for settings in ({}, {"rejection_free": True, "init": "uniform", "blocks": None}):
            sampler = package.LSBSampler(
                "mixture", n_burn_in=20, n_chains=2, random_state=0, **settings
            )
            found += [sampler.fit(ising(package)).sample(100)["x"].to_numpy(), sampler.factors_]
            found += [sampler.burn_in_balancing_.theta, sampler.sample_stats_["lp"].to_numpy()]
        return found

    expected = run(sklsb)
    with imported() as package:
        for found, one in zip(run(package), expected, strict=True):
            assert np.array_equal(found, one)


# ----------------------------------------------------------------- the mutants


BALANCING, LEARNING = "balancing/functions.py", "balancing/learning.py"
PILOT, RACE, TIMES = (f"trials/{name}.py" for name in ("pilot", "race", "times"))
ISING, GRAPHS, ARGUMENTS = (f"targets/{name}.py" for name in ("ising", "_graphs", "_checks"))
NETWORK = "targets/markov_network.py"
BASE, SAMPLING, FITTING, LSB, GIBBS = (
    f"samplers/{name}.py"
    for name in ("_run/base", "_run/run", "_run/algorithm", "_lsb/fitting", "gibbs")
)
CHOOSING = "samplers/_lsb/choosing.py"
SPREAD = "_kernels/spread.py"
STATE, STREAMS, ENSEMBLE = "ensembles/state.py", "ensembles/streams.py", "ensembles/compiled.py"
NUMERIC, TREE, ENUMERATION, RUN, OBJECTIVES = (
    f"_kernels/{name}.py" for name in ("numeric", "tree", "enumeration", "run", "objectives")
)
ISING_VIEW, NETWORK_VIEW, CONDITIONED_VIEW = (
    f"_kernels/targets/{name}.py" for name in ("ising", "markov_network", "conditioned")
)
BALANCED, JUMP, GIBBS_RULES, CHROMATIC, BALL, LAYERS, MIXTURE, CLUSTERS, SWAP, COLORING = (
    f"_kernels/rules/{name}.py"
    for name in (
        *("balanced", "jump", "gibbs", "chromatic", "hamming_ball", "layers"),
        *("mixture", "clusters", "swap", "coloring"),
    )
)
MESSAGES, DRAWS = (f"_kernels/elimination/{name}.py" for name in ("messages", "draws"))
ENGINE, PASSES = (f"exact/elimination/{name}.py" for name in ("engine", "passes"))
BLOCK_RULE, BLOCKED = "_kernels/rules/redraw.py", "exact/elimination/mixed.py"
RATIO = "return (-2.0 * chain.x[move]) * (view.field[move]"
STEP = "the production step against the formula"
REBUILD = "caches must equal a rebuild"
REJECTED = "a rejected move leaves"
MATRIX = "the step against the formula"
STATIONARY = "stationarity of the step"
DIVIDED = "transitions in one call, against some, then the rest by a copy"
STEP_AND_DRAW = """\
            acceptance = step(view, rule, chain, u)
            if acceptance == acceptance:
                chain.acceptance[0] += acceptance
                chain.refusable[0] += 1
            made += 1
            if made == thin:
                for j in range(chain.x.size):
                    draws[c, draw, j] = chain.x[j]
"""

MUTANTS = {
    # The target
    "sign of the log-ratio": Mutant(
        ISING_VIEW, RATIO, RATIO.replace("-2", "2"), check_target, "log-ratios of the kernel"
    ),
    "1 % too warm": Mutant(
        ISING_VIEW, RATIO, RATIO.replace("-2.0", "-1.98"), check_target, "log-ratios of the kernel"
    ),
    "1 % too warm in Python and the kernel": Mutant(
        ISING,
        'self.field = finite_array(field, "field", self.shape).ravel()',
        'self.field = 0.99 * finite_array(field, "field", self.shape).ravel()',
        check_lattices,
        "sum over its edges",
    ),
    "one neighbour not updated": Mutant(
        ISING_VIEW,
        "for k in range(view.touched_start[move], view.touched_start[move + np.uint64(1)]):",
        "for k in range(view.touched_start[move], view.touched_start[move + np.uint64(1)] - 1):",
        check_target,
        "log-ratios of the kernel|the cache after",
    ),
    "neighbours updated by half": Mutant(
        ISING_VIEW,
        "change = -2 * np.int64(chain.x[move])",
        "change = -np.int64(chain.x[move])",
        check_target,
        "`cache` after move|the cache after|log-ratios",
    ),
    "neighbour missing from the touched list": Mutant(
        ISING,
        "touched[place] = np.arange(n), pairs.indices",
        "touched[place] = np.arange(n), np.where(pairs.indices == 2, site, pairs.indices)",
        check_target,
        "touched|log-ratios of the kernel",
    ),
    "pairs counted twice in log p": Mutant(
        ISING_VIEW,
        "a += x[i] * (view.field[i] + (0.5 * view.unit[i]) * cache[i])\n    return",
        "a += x[i] * (view.field[i] + view.unit[i] * cache[i])\n    return",
        check_target,
        "log p of the kernel",
    ),
    "free edges wrap": Mutant(
        GRAPHS,
        "slice(None if periodic else -1)",
        "slice(None)",
        check_lattices,
        "sum over its edges",
    ),
    "self-loop counted twice": Mutant(
        GRAPHS,
        "sp.csr_array(edges + edges.T - loops)",
        "sp.csr_array(edges + edges.T)",
        check_lattices,
        "sum over its edges",
    ),
    "self-loop counted as a field": Mutant(
        GRAPHS,
        "self.constant = float(loops.sum())",
        "self.constant = 0.0; self.field = self.field + loops",
        check_lattices,
        "sum over its edges",
    ),
    "NaN field accepted": Mutant(
        ARGUMENTS,
        "refuse(~np.isfinite(values),",
        "refuse(np.isinf(values),",
        check_input,
        "DID NOT RAISE",
    ),
    "couplings not symmetric": Mutant(
        GRAPHS,
        "difference.data.max() > 0:",
        "difference.data.max() > 10:",
        check_input,
        "DID NOT RAISE",
    ),
    "stride of one factor 0 in a move": Mutant(
        NETWORK_VIEW,
        "chain.cache[view.factor[k]] += (after - before) * np.int64(view.stride[k])",
        "chain.cache[view.factor[k]] += (after - before) * np.int64(view.stride[k] * (k > 0))",
        check_network,
        "log-ratios of the kernel|the cache after",
    ),
    "value skipped on the way up not skipped on the way back": Mutant(
        NETWORK_VIEW,
        "view.first[site] + np.uint64(before - np.int64(before > after))",
        "view.first[site] + np.uint64(min(before, 1) - np.int64(before > after))",
        check_network,
        "and its inverse",
    ),
    "zero floored": Mutant(
        NETWORK,
        "self._log_table = np.log(self._table)",
        "self._log_table = np.log(np.maximum(self._table, 1e-6))",
        check_zero,
        "a zero stays a zero",
    ),
    "evidence free": Mutant(
        CONDITIONED_VIEW,
        "-np.inf if view.observed[move] else log_ratio",
        "log_ratio(view.inner, chain, move) if view.observed[move] else log_ratio",
        check_evidence,
        "log-ratios of the kernel",
    ),
    # Factors by site, jumps
    "factor of a neighbouring variable at some states": Mutant(
        BALANCED,
        "found += rule.log_factor[np.int64(move)]",
        "found += rule.log_factor[0 if u < 0.0 else np.int64(move)]",
        check_factors,
        STATIONARY,
    ),
    "time of a transition that forgets the offset": Mutant(
        JUMP,
        "exp(min(chain.part.offset[0] + rule.log_time, 700.0))",
        "exp(min(rule.log_time, 700.0))",
        check_jumps,
        "the first jump",
    ),
    "time until a jump that does not depend on the state": Mutant(
        JUMP,
        "rate = total(chain) * scale",
        "rate = scale",
        check_jumps,
        "the first jump|mean of the jumps",
    ),
    "time that does not pass": Mutant(
        JUMP,
        "left = max(0.0, left + math.log(1.0 - u_wait) / rate)",
        "left = max(0.0, left)",
        check_jumps,
        "the first jump|mean of the jumps",
    ),
    "number of a wait used again": Mutant(
        JUMP,
        "seed, u_wait = split_mix(seed)\n        seed, u_select",
        "seed, _ = split_mix(seed)\n        seed, u_select",
        check_jumps,
        "the first jump|mean of the jumps",
    ),
    "unbalanced g in the kernel": Mutant(
        NUMERIC, "else 0.5 * u + h", "else 0.501 * u + h", check_step, STEP
    ),
    "last knot's slope everywhere": Mutant(
        NUMERIC,
        "h = table.value[knot] + table.slope[knot]",
        "h = table.value[knot] + table.slope[table.value.size - 1]",
        check_step,
        STEP,
    ),
    "unbalanced function": Mutant(
        BALANCING,
        "return -0.5 * a - np.log1p(np.exp(-a))",
        "return -0.5 * a - np.log1p(np.exp(-a)) + 1e-6 * np.asarray(u)",
        check_balancing,
        r"must have h\(-u\) = h\(u\)",
    ),
    "gradient of the network without its output layer's slope": Mutant(
        "balancing/curves.py",
        "by_out = by_log_f * slope",
        "by_out = by_log_f",
        check_balancing,
        "against finite differences",
    ),
    # Selection
    "moves of weight zero selected": Mutant(
        TREE,
        "(np.uint64(p1 <= r) +",
        "(np.uint64(p1 < r) +",
        check_far_step,
        "weight zero|in order",
    ),
    "remainder not passed down the tree": Mutant(
        TREE,
        "r -= max(max(left, right),",
        "r -= 0.0 * max(max(left, right),",
        check_many_sites,
        "in proportion to their weights",
    ),
    "one leaf skipped": Mutant(
        TREE, "p5 = p4 + t4", "p5 = p4", check_many_sites, "in proportion to their weights"
    ),
    "lazy steps counted twice": Mutant(
        BALANCED, "(u_select - rule.lazy) / (1.0 - rule.lazy)", "u_select", check_step, STEP
    ),
    # Acceptance
    "always accepted": Mutant(BALANCED, "if u_accept < ratio:", "if True:", check_step, REJECTED),
    "accepted by Z'/Z": Mutant(
        BALANCED, "ratio = before / after\n", "ratio = after / before\n", check_step, STEP
    ),
    "accepted 1 % too warm": Mutant(
        BALANCED, "ratio = before / after\n", "ratio = (before / after) ** 0.99\n", check_step, STEP
    ),
    "accepted by the sum without the last block": Mutant(
        TREE, "return ((t[b] + t[b + _1]) +", "return ((t[b] + 0.0) +", check_step, STEP
    ),
    # Caches
    "cache updated on rejection": Mutant(
        BALANCED,
        "chain.part.tree[view.touched[k]] = chain.part.old_weight[k - begin]",
        "pass",
        check_step,
        REJECTED,
    ),
    "sums not refreshed on rejection": Mutant(
        BALANCED,
        "chain.part.old_weight[k - begin]\n    sum_touched",
        "chain.part.old_weight[k - begin]\n    (lambda *a: None)",
        check_step,
        REJECTED,
    ),
    "sums not refreshed on acceptance": Mutant(
        BALANCED,
        "chain.evaluations[0] += np.int64(n)\n    sum_touched",
        "chain.evaluations[0] += np.int64(n)\n    (lambda *a: None)",
        check_step,
        REBUILD,
    ),
    "second level of sums other than in a rebuild": Mutant(
        TREE,
        "for lev in range(1, level.size if begin < end else 0)",
        "for lev in range(1, level.size - (level.size > 2) if begin < end else 0)",
        check_target,
        REBUILD,
    ),
    "last block of a range not refreshed": Mutant(
        TREE, "- first + _1\n", "- first\n", check_step, REBUILD
    ),
    "weights of another offset or function looked up": Mutant(
        BALANCED,
        "chain.part.memo[0] = np.float64",
        "chain.part.memo[0] = -1.0 if chain.part.memo[0] < 0.0 else np.float64",
        check_looked_up_weights,
        "weights that are looked up",
    ),
    "weights looked up by the local field alone": Mutant(
        ISING_VIEW,
        " + np.int64(chain.x[move] > 0))",
        ")",
        check_looked_up_weights,
        "weights that are looked up",
    ),
    "couplings in another unit than fields": Mutant(
        ISING, "unit * common, coupling", "unit, coupling", check_target, "log-ratios of the kernel"
    ),
    "exponentials of whole vectors only": Mutant(
        BALANCED, "range((n + np.uint64(7)) &", "range(n &", check_step, "in intervals of u_select"
    ),
    "offset never renewed": Mutant(
        BALANCED,
        "if not SMALLEST_TOTAL < after < LARGEST_TOTAL:",
        "if False:",
        check_long,
        "must reach the mode",
    ),
    # Learning
    "weighed by the function before the update": Mutant(
        OBJECTIVES,
        "    weigh_all(view, rule, chain, False)\n    if not SMALLEST",
        "    if not SMALLEST",
        check_objectives,
        "against enumeration",
    ),
    "score without its constant": Mutant(
        OBJECTIVES,
        "scale * (surprise + 1.0)",
        "scale * surprise",
        check_objectives,
        'gradient of "bound"',
    ),
    "probability of staying left out": Mutant(
        OBJECTIVES, "every * value + worth", "every * value", check_objectives, 'objective "exact"'
    ),
    "eta's derivative halved": Mutant(
        OBJECTIVES,
        "stay * (stay - weight / eta)",
        "0.5 * stay * (stay - weight / eta)",
        check_objectives,
        'derivative of "bound" by eta',
    ),
    "Z taken as constant": Mutant(
        OBJECTIVES,
        "_spread(view, rule, chain, mass, gradient)\n    return value, d_eta",
        "return value, d_eta",
        check_objectives,
        "gradient of",
    ),
    "mass of the gradient of Z with the wrong sign": Mutant(
        OBJECTIVES,
        "weight = -chain.part.old_weight[k - begin]",
        "weight = chain.part.old_weight[k - begin]",
        check_objectives,
        "gradient of",
    ),
    "what others lose by a move not counted": Mutant(
        OBJECTIVES,
        "_add_knots(rule.table, u, amount, share, chain.part.tree[t], gradient)",
        "pass",
        check_objectives,
        "gradient of",
    ),
    "baseline with the wrong sign": Mutant(
        OBJECTIVES,
        "- by_stay * gradient[1, k] - baseline * gradient[2, k]",
        "- by_stay * gradient[1, k] + baseline * gradient[2, k]",
        check_strides,
        "over a part of the neighbours",
    ),
    "baseline without the change of Z": Mutant(
        OBJECTIVES,
        "- by_stay * mass[1] - baseline * mass[2]",
        "- by_stay * mass[1]",
        check_strides,
        "over a part of the neighbours",
    ),
    "a part of the neighbours stands for itself": Mutant(
        OBJECTIVES,
        "scale = every * omega",
        "scale = omega",
        check_strides,
        "part of the neighbours",
    ),
    "flux by the probability of the other values": Mutant(
        OBJECTIVES,
        "p = 1.0 / (1.0 + odds)",
        "p = odds / (1.0 + odds)",
        check_objectives,
        'objective "flux"',
    ),
    "flux without the square of the variance": Mutant(
        OBJECTIVES, "(odds * p) ** 2 / t", "(odds * p) / t", check_objectives, 'objective "flux"'
    ),
    "shares of three values left out of the flux": Mutant(
        OBJECTIVES,
        "amount = value * share\n",
        "amount = value\n",
        check_objectives_of_three_values,
        'gradient of "flux"',
    ),
    "a move of three values not taken back": Mutant(
        OBJECTIVES,
        "            if made:\n                flip(view, chain, peeked[1])\n            peeked",
        "            peeked",
        check_objectives_of_three_values,
        "states, which a flux objective must leave",
    ),
    "weights of the global flux not squared": Mutant(
        LEARNING,
        "np.divide(terms, total * flow,",
        "np.divide(terms, total + 0 * flow,",
        check_objectives,
        'gradient of "global_flux"',
    ),
    "variances of the sites where they are, not over the run": Mutant(
        LEARNING,
        "np.square(probability / len(states)).sum(axis=1)",
        "(probability / len(states)).max(axis=1)",
        check_objectives,
        'objective "global_flux"',
    ),
    "variance from one candidate only": Mutant(
        RACE,
        "np.square(np.average(shares, axis=0, weights=weights))",
        "np.square(shares[0])",
        check_variance_over_all,
        "moves half of the sites",
    ),
    "every second draw forgotten, but the wrong one": Mutant(
        TIMES, "self.x[:, 1 : 2 * half : 2]", "self.x[:, : 2 * half : 2]", check_series, "is kept"
    ),
    "distances of log p at another lag": Mutant(
        TIMES,
        "lp[:, lag:] - lp[:, :-lag]",
        "lp[:, 1 : 1 - lag or None] - lp[:, :-lag]",
        check_series,
        "of log p",
    ),
    "a dropped candidate chosen": Mutant(
        RACE, "np.where(self.in_last_round, ", "np.where(True, ", check_dropped, "is not chosen"
    ),
    "slow variables cut off": Mutant(
        TIMES,
        "np.fmin(_NOISE * error, _LARGE)",
        "_LARGE",
        check_slow_part,
        "slow part is seen",
    ),
    "streams shared by the candidates": Mutant(
        CHOOSING,
        "default_rng([seed, k])",
        "default_rng([seed])",
        check_choice,
        "streams of their own",
    ),
    "starved moves never found": Mutant(
        PILOT, "return largest, ", "return 0.0 * largest, ", check_starved, "is found"
    ),
    "slope beyond the bound": Mutant(
        BALANCING,
        "by_psi = by_slope * (self.bound - slope**2 / self.bound)",
        "by_psi = by_slope * self.bound",
        check_balancing,
        "against finite differences",
    ),
    "weights not relative": Mutant(
        LEARNING,
        "return log_prob - (total",
        "return log_prob - 0 * (total",
        check_weights,
        "relative to their mean",
    ),
    "bad batch not left out": Mutant(
        LEARNING,
        "np.isfinite(norm) and self._step(gradient)",
        "self._step(gradient)",
        check_bad_batches,
        "learning goes on",
    ),
    # Exact conditionals
    "a site drawn 1 % too warm": Mutant(
        ENUMERATION,
        "weight[k] = exp(weight[k] - largest)",
        "weight[k] = exp(0.99 * (weight[k] - largest))",
        check_gibbs,
        STATIONARY,
    ),
    "the present value never kept": Mutant(
        ENUMERATION, "stay = exp(-largest)", "stay = 0.0 * exp(-largest)", check_gibbs, STATIONARY
    ),
    "the last value never drawn": Mutant(
        GIBBS_RULES,
        "for k in range(n if r >= 0.0 else 0):",
        "for k in range(n - 1 if r >= 0.0 else 0):",
        check_gibbs,
        MATRIX,
    ),
    "a class drawn 1 % too warm": Mutant(
        CHROMATIC,
        "coupling * np.float32(total[k])",
        "np.float32(0.99) * coupling * np.float32(total[k])",
        check_chromatic,
        STATIONARY,
    ),
    "close numbers decided by first digits": Mutant(
        CHROMATIC, "abs(number[k]) - close * whole", "abs(number[k])", check_chromatic, STATIONARY
    ),
    "numbers of a word one by one too far": Mutant(
        SPREAD,
        "np.uint64(first) * _GAP",
        "np.uint64(first + 1) * _GAP",
        check_words,
        "draws against",
    ),
    "neighbours where there are none": Mutant(
        CHROMATIC, "other[k] & mask[k]", "other[k]", check_lp_of_sweeps, "Not equal to tolerance"
    ),
    "all masks at the beginning": Mutant(
        CHROMATIC, "where + at_mask", "where", check_shifts, "Arrays are not equal"
    ),
    "spins of pairs of sites exchanged": Mutant(
        CHROMATIC, "two[k]) & other[k]", "two[k])", check_lp_of_sweeps, "Not equal to tolerance"
    ),
    "pairs of neighbours counted once in lp": Mutant(
        CHROMATIC,
        "2 * chain.part.classes.pairs[0]",
        "chain.part.classes.pairs[0]",
        check_lp_of_sweeps,
        "Not equal to tolerance",
    ),
    "two neighbours in one class": Mutant(
        COLORING,
        "found[node] = first",
        "found[node] = 0",
        check_chromatic,
        STATIONARY,
    ),
    "a sweep that begins with its second variable": Mutant(
        GIBBS_RULES,
        "    if rule.block_size == 1:\n        for k in range(rule.sites.size):",
        "    if rule.block_size == 1:\n        for k in range(1, rule.sites.size):",
        check_systematic,
        MATRIX,
    ),
    "a state of a block forgotten": Mutant(
        GIBBS_RULES,
        "size = list_ball(view, part, n, n)",
        "size = list_ball(view, part, n, n) - 1",
        check_blocks,
        STATIONARY,
    ),
    "the last variable of a block chosen twice": Mutant(
        ENUMERATION,
        "            place += 1\n            i += 1",
        "            i += 1",
        check_blocks,
        MATRIX,
    ),
    "the centre of a ball is never the present state": Mutant(
        BALL,
        "centre = min(np.int64(u[n] * size), size - 1)",
        "centre = 1 + min(np.int64(u[n] * (size - 1)), size - 2)",
        check_ball,
        STATIONARY,
    ),
    "the centre of a ball is the present state": Mutant(
        BALL,
        "here, reference, known = _walk(view, chain, centre)",
        "here, reference, known = _walk(view, chain, 0)",
        check_ball,
        STATIONARY,
    ),
    "bonds of neighbours that are not satisfied": Mutant(
        CLUSTERS,
        "satisfied = (chain.x[j] == x) == (strength > 0.0)",
        "satisfied = strength != 0.0",
        check_clusters,
        STATIONARY,
    ),
    "one number for two bonds as it is": Mutant(
        CLUSTERS,
        "number[j] = 0.0 if joins else w",
        "number[j] = 0.0 if joins else number[j]",
        check_three_in_clusters,
        STATIONARY,
    ),
    "field of the last variable of a cluster": Mutant(
        CLUSTERS,
        "weight[d] += bonds.field[i, value]",
        "weight[d] = bonds.field[i, value]",
        check_clusters,
        STATIONARY,
    ),
    "clusters beside the largest always moved on": Mutant(
        CLUSTERS, "max(others, total - weight[d])", "others", check_clusters, STATIONARY
    ),
    "cache of all clusters not computed": Mutant(
        CLUSTERS,
        "    init_cache(view, chain)\n    return np.nan",
        "    return np.nan",
        check_clusters,
        REBUILD,
    ),
    "evidence without a field": Mutant(
        "samplers/clusters.py",
        "field += couplings[:, fixed]",
        "field += 0.0 * couplings[:, fixed]",
        check_given_clusters,
        STATIONARY,
    ),
    # Exchanges
    "every exchange accepted": Mutant(
        SWAP, "if u[drawn + 2] < ratio:", "if u[drawn + 2] < 1.0:", check_swap, STATIONARY
    ),
    "sums of weights relative to different weights": Mutant(
        SWAP,
        "before / after * exp(largest - there)",
        "before / after",
        check_swap,
        STATIONARY,
    ),
    "the way through an impossible state left out": Mutant(
        SWAP,
        "if between == -np.inf and not known:",
        "if between == -np.inf:\n            continue\n        if not known:",
        check_swap,
        MATRIX,
    ),
    "a value that the partner does not take": Mutant(
        SWAP, "if _takes(view, partner, own):", "if True:", check_swap, "Error|step|rows"
    ),
    "hidden units drawn 1 % too warm": Mutant(
        LAYERS,
        "exp(-hidden_activation(view, chain, j))",
        "exp(-0.99 * hidden_activation(view, chain, j))",
        check_layers,
        STATIONARY,
    ),
    "an observed unit drawn": Mutant(
        LAYERS,
        "if rule.free[i] and on != (chain.x[i] > 0):",
        "if on != (chain.x[i] > 0):",
        check_layers,
        "rows of the step matrix|impossible states|stationarity",
    ),
    # Mixtures
    "nothing prepared after the other rule moved": Mutant(
        MIXTURE,
        "        if chain.part.last[0] != 1:\n",
        "        if chain.part.last[0] < 0:\n",
        check_mixture,
        DIVIDED,
    ),
    "coins from the stream of the chain": Mutant(
        STREAMS,
        'coins = self.of("coin", place)[c].random(n)',
        "coins = self.chain[c].random(n)",
        check_mixture,
        DIVIDED,
    ),
    "coins of a call in another order": Mutant(
        STREAMS,
        "template[is_coin] = coins",
        "template[is_coin] = coins[::-1]",
        check_mixture,
        DIVIDED,
    ),
    # Copies
    "a copy shares its streams": Mutant(
        STREAMS, "return copy.deepcopy(self)", "return copy.copy(self)", check_mixture, DIVIDED
    ),
    # Elimination and redraws
    "a message that is not summed": Mutant(
        MESSAGES,
        "for v in range(1, k):\n            row = values[",
        "for v in range(2, k):\n            row = values[",
        check_elimination,
        "log Z against",
    ),
    "powers of two of messages forgotten": Mutant(
        PASSES,
        "math.log(2.0) * float(self.scales[0].sum())",
        "0.0 * float(self.scales[0].sum())",
        check_elimination,
        "log Z against",
    ),
    "a table that is conditioned on throughout left out": Mutant(
        PASSES,
        "total = inside + plan.shift",
        "total = plan.shift",
        check_elimination,
        "against enum",
    ),
    "a draw from a message as if it summed to 1": Mutant(
        DRAWS, "r = u[t, i] * total", "r = u[t, i]", check_exact_draws, "draws have their prob"
    ),
    "a zero of a table floored": Mutant(
        PASSES,
        "np.exp(tables, out=",
        "np.exp(np.maximum(tables, -2.0), out=",
        check_exact_draws,
        "a draw is possible",
    ),
    "values that are left named as the first ones": Mutant(
        "exact/elimination/reduce.py",
        "sizes[:, np.newaxis]] = every[left]",
        "sizes[:, np.newaxis]] = every[np.concatenate([np.arange(k) for k in sizes])]",
        check_exact_draws,
        "a draw is possible",
    ),
    "other values of observed variables in a table of all states": Mutant(
        "targets/_precision.py",
        "np.where(kept, 0.0, -np.inf)",
        "np.where(kept, 0.0, 0.0)",
        check_enumerated,
        ".",
    ),
    "states enumerated from the last one on": Mutant(
        "targets/_precision.py",
        "listing[np.arange(int(listing.n))]",
        "listing[np.arange(int(listing.n))[::-1]]",
        check_enumerated,
        ".",
    ),
    "configurations all equally likely": Mutant(
        ENGINE,
        "np.cumsum(np.exp(self.log_sums - self.log_sums.max()))",
        "np.cumsum(np.exp(0.0 * self.log_sums))",
        check_exact_draws,
        "draws have their prob",
    ),
    "marginals of configurations averaged without weights": Mutant(
        ENGINE,
        "weight = math.exp(value - top)",
        "weight = 1.0",
        check_elimination,
        "marginals against",
    ),
    "a configuration drawn by the number of a variable": Mutant(
        ENGINE,
        "u[:, self.n_buckets] * total[-1]",
        "u[:, 0] * total[-1]",
        check_exact_draws,
        "draws have their prob",
    ),
    "rows of unequal sums all accepted": Mutant(
        ENGINE,
        "accepted[rows] = mine[:, -1] < p",
        "accepted[rows] = True",
        check_nearly_conditional,
        "draws have their prob",
    ),
    "rejection by the row of another value": Mutant(
        DRAWS,
        "_row_sums(room.weight, k, buckets.row_sum[i], mode, p)",
        "_row_sums(room.weight, k - 1, buckets.row_sum[i], mode, p)",
        check_nearly_conditional,
        "draws have their prob",
    ),
    "a block redrawn as if the rest were at its first values": Mutant(
        MESSAGES,
        "at += buckets.given_stride[g] * x[buckets.given_variable[g]]",
        "at += 0 * buckets.given_stride[g] * x[buckets.given_variable[g]]",
        check_conditionals,
        "a draw is possible|draws have their prob",
    ),
    "the rest of a block at the values of other names": Mutant(
        "exact/elimination/blocks.py",
        "row[left] = np.arange(left.size)",
        "row[: left.size] = np.arange(left.size)",
        check_conditionals,
        "a draw is possible|draws have their prob",
    ),
    "a redraw taken twice": Mutant(
        BLOCK_RULE, "chain.part.taken[0] += 1", "pass", check_redraws, "draws have|draws in parts"
    ),
    "nothing computed after a redraw": Mutant(
        BLOCK_RULE, "    init_cache(view, chain)\n", "", check_redraws, "lp of the draws"
    ),
    "fewer redraws than is said": Mutant(
        BLOCKED,
        "Mixture.of(rule, blocks, share)",
        "Mixture.of(rule, blocks, 0.3 * share)",
        check_redraws,
        "redraws by the coin",
    ),
    "a copy without its offset": Mutant(
        STATE,
        "            if name in carried:\n",
        "            if name in carried and name != 'offset':\n",
        check_sampler,
        "what chains keep",
    ),
    "a copy without the rule that moved last": Mutant(
        STATE,
        "            if name in carried:\n",
        "            if name in carried and name != 'last':\n",
        check_mixture,
        "what chains keep in a copy",
    ),
    # Draws
    "stream shared by all chains": Mutant(
        STREAMS,
        "[_child(parent, _PACKAGE, c) for c",
        "[_child(parent, _PACKAGE, 0) for c",
        check_sampler,
        "its own stream",
    ),
    "no log p after most rules": Mutant(
        "_kernels/contract.py",
        "@contract(1, default=lambda view, rule, chain: log_prob(view, chain))",
        "@contract(1, default=lambda view, rule, chain: 0.0)",
        check_sampler,
        "lp",
    ),
    "float32 uniforms": Mutant(
        STREAMS,
        "return rng.random((n, width))",
        "return rng.random((n, width), dtype=np.float32).astype(float)",
        check_numbers,
        "Arrays are not equal",
    ),
    "warm-up leaked into the draws": Mutant(
        RUN,
        STEP_AND_DRAW,
        "".join(
            STEP_AND_DRAW.splitlines(keepends=True)[k] for k in (6, 7, 0, 1, 2, 3, 4, 5)
        ).replace(
            "                for j in range(chain.x.size):",
            "            for j in range(chain.x.size if made + 1 == thin else 0):",
        ),
        check_sampler,
        "draws against single steps|lp of the sample stats|after fit against the burn-in",
    ),
    "thinning off by one": Mutant(
        SAMPLING,
        "        ensemble.counters.begin(thin)\n",
        "        ensemble.counters.begin(thin)\n"
        "        counters = ensemble.counters\n"
        "        made = (counters.drawing.made + 1) % thin\n"
        "        counters.drawing = counters.drawing._replace(made=made)\n",
        check_sampler,
        "draws",
    ),
    "function moves after fit": Mutant(
        SAMPLING,
        "        carry = observer.init(call)\n",
        "        carry = observer.init(call)\n"
        "        table = ensemble.rule.table\n"
        "        table = table._replace(value=table.value + 1e-12)\n"
        "        ensemble.rule = ensemble.rule._replace(table=table)\n",
        check_sampler,
        "the frozen rule is another one used by",
    ),
    "draws made with the function before the last update": Mutant(
        LSB,
        "drawing = chosen.rule(target, float(params.lazy))",
        "drawing = balanced(target, self._function, float(params.lazy))",
        check_sampler,
        "the table that draws are made with",
    ),
    "draws made with the function of the burn-in": Mutant(
        LSB,
        "drawing = chosen.rule(target, float(params.lazy))",
        'drawing = balanced(target, fitted["burn_in_balancing_"], float(params.lazy))',
        check_the_chain_after_the_pilot,
        "the table that draws are made with",
    ),
    "the function of the burn-in kept in place of the chosen one": Mutant(
        CHOOSING,
        "Choice(candidates[outcome.best], ",
        "Choice(Candidate(function), ",
        check_choice,
        "the chosen one is used",
    ),
    "parameters changed by fit": Mutant(
        BASE,
        "run.warn_of_rounding()\n        self._put(run, fitted)",
        "run.warn_of_rounding()\n        self._put(run, fitted | {'n_burn_in': 0})",
        check_sampler,
        "fit changed parameters",
    ),
    "global random state used": Mutant(
        FITTING,
        "else Streams(spawn(params.random_state, n_chains))",
        "else (np.random.random(), Streams(spawn(params.random_state, n_chains)))[1]",
        check_sampler,
        "global random states",
    ),
    "lp without the constant of the couplings": Mutant(
        SAMPLING,
        "segment.lp[:] += target.constant",
        "segment.lp[:] += 1.0",
        check_sampler,
        "lp of the sample stats",
    ),
}


test_a_planted_error_is_found, test_the_package_itself_passes = both_tests(MUTANTS)

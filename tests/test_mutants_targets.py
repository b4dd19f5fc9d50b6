"""Errors planted in targets and their views, in elimination, files, and first-order steps."""

import gzip
import importlib.util
import tempfile
from pathlib import Path

import numpy as np
import pytest
from planted import Mutant, anew, both_tests, hurried, inside

SELECTION, RBM, POTTS = (f"targets/{name}.py" for name in ("variable_selection", "rbm", "potts"))
SELECTION_VIEW, RBM_VIEW, POTTS_VIEW, FUNCTION_VIEW = (
    f"_kernels/targets/{name}.py" for name in ("variable_selection", "rbm", "potts", "function")
)
INDEPENDENT, MARGINALS, ENGINE, SCHEDULE, TREES, LAYOUT, ORDER, COST = (
    f"exact/elimination/{name}.py"
    for name in (
        *("independent", "marginals", "engine", "schedule", "trees"),
        *("layout", "order", "cost"),
    )
)
NAMES, ANSWERS, MATRICES = "targets/_names.py", "exact/elimination/answers.py", "exact/matrices.py"
SPREAD, MESSAGES, MOVES_OF_TREES, GREEDY = (
    f"_kernels/elimination/{name}.py" for name in ("marginals", "messages", "trees", "order")
)
WALKERS, FLIPS, PHILOX = (f"ensembles/_torch/{name}.py" for name in ("walkers", "flips", "philox"))
FUNCTION, TORCH = "targets/function.py", "targets/torch.py"
MOVES, TORCH_GRAPHS, TORCH_RBM, DENSITY, MODEL = (
    f"targets/_torch/{name}.py" for name in ("moves", "graphs", "rbm", "density", "model")
)
FAST_STEP, FAST_RBM, FAST_LEARNING = (
    f"_kernels/first_order/{name}.py" for name in ("step", "rbm", "learning")
)
COMPILED, FAST_ENSEMBLE, TORCH_OBJECTIVES = (
    f"ensembles/_torch/{name}.py" for name in ("compiled", "ensemble", "objectives")
)
UAI, BIF, QUBO, RESULTS, COMPRESSION, FORMATS, TOKENS, DIMACS, GRAPHS, AGRUM = (
    f"io/{name}.py"
    for name in (
        *("uai", "bif", "qubo", "uai_results", "_compression", "_formats", "_tokens"),
        *("dimacs", "factor_graphs", "agrum"),
    )
)
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="first-order steps need torch"
)


# ----------------------------------------------------------------- targets


def check_selection(package):
    tests = anew("test_variable_selection")
    for prior in ({}, {"prior": "independent", "slab_sd": 0.7}):
        tests.test_log_prob_and_log_ratios_are_the_formula(9, 4, prior)


def check_selection_view(package):
    tests = anew("test_variable_selection")
    for prior in ({}, {"prior": "independent", "slab_sd": 0.7}):
        package.testing.check_target(tests.model(12, 5, **prior), n_states=6)


def check_machine(package):
    anew("test_rbm").test_log_prob_is_the_sum_over_hidden_units(1.0)


def check_machine_views(package):
    rng = np.random.default_rng(0)
    target = package.RBM(rng.normal(size=(4, 5)), rng.normal(size=4), rng.normal(size=5))
    package.testing.check_target(target, n_states=6)
    extreme = package.RBM(1e5 * target.weights, target.visible_bias, target.hidden_bias)
    package.testing.check_target(extreme, n_states=4)
    tiny = package.RBM([[0.9], [-0.7]], [0.3, -0.2], [0.5])
    anew("exact_matrices")  # has the formula
    rule = package.exact.matrices.rule_of(package.GibbsSampler("systematic"), tiny)
    with hurried(package) as testing:
        testing.check_rule(rule, tiny, n_continuations=2)


def check_potts(package):
    anew("test_potts").test_log_prob_and_log_ratios_are_the_formula(3, 4, True)


def check_potts_view(package):
    rng = np.random.default_rng(0)
    couplings = np.triu(rng.normal(size=(4, 4)), 1)
    target = package.Potts(couplings + couplings.T, rng.normal(size=(4, 3)))
    package.testing.check_target(target, n_states=6)


def check_function(package):
    tests = anew("test_function")
    target = package.FunctionTarget(tests.mixed, 5, tests.CARDINALITIES)
    package.testing.check_target(target, n_states=4)
    given = target.condition({0: 0, 2: 0, 3: 2})
    sampler = package.GibbsSampler(block_size=2)
    anew("exact_matrices")  # has the formula
    rule = package.exact.matrices.rule_of(sampler, given)
    with hurried(package) as testing:
        testing.check_rule(rule, given, n_continuations=2)


def check_terms(package):
    """A switch that is seldom on is found, and terms of many lengths."""
    anew("test_terms").test_a_switch_that_probes_miss_is_seen_when_tables_are_compared()
    anew("test_terms").test_hidden_couplings_are_found(5)


def check_rare_terms(package):
    anew("test_terms").test_what_shows_at_few_of_few_states_is_found()
    anew("test_terms").test_two_values_of_two_of_many_variables_are_found()


def check_failures(package):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inside(package, "targets.offers").Offers, "may_be_slow", False)
        anew("test_function").test_a_failure_in_sample_is_raised_and_taken_back("nan", 2, None)


def check_parts_of_neighbours(package):
    with pytest.MonkeyPatch.context() as patch:
        anew("test_function").test_neighbours_are_given_in_parts_where_they_are_many(patch)


# ----------------------------------------------------------------- elimination


def check_answers(package):
    tests = anew("test_elimination")
    for seed in range(4):
        tests.test_answers_equal_enumeration(seed)


def check_memory(package):
    tests = anew("test_elimination_memory")
    tests.test_whatever_is_read_is_there("sum")
    tests.test_answers_are_right_whatever_is_held(2)


def check_trees(package):
    tests = anew("test_elimination")
    tests.check_moves(0)
    model = tests.strike(tests.tangled(0, 20, 25))
    late = frozenset(model.free[3:5])
    tests.check_tree([*(v for v in model.free if v not in late), *late], model, late, 60)


def check_underflow(package):
    tests = anew("test_elimination")
    tests.test_a_small_probability_whose_products_underflow()
    tests.test_messages_of_nothing_but_small_numbers()
    tests.test_what_was_lost_before_a_message_of_zeros_is_not_forgotten()


def check_layouts(package):
    """Tables of large cliques are joined, some of them over several inner axes."""
    tests = anew("test_elimination_passes")
    for arrangement in tests.LAYOUTS[1:3]:
        with pytest.MonkeyPatch.context() as patch:
            tests.test_variables_conditioned_on_shift_joined_tables(patch, 4, arrangement)


def check_costs(package):
    """The cheapest order of a chain, and of a star whose middle comes last, by hand."""
    exact, two = package.exact, np.ones((2, 2))
    chain = package.MarkovNetwork([2] * 6, [((i, i + 1), two + np.eye(2)) for i in range(5)])
    cost = exact.elimination_cost(chain, "most_likely")
    assert cost.log2_work == pytest.approx(np.log2(5 * 4 + 2)), "entries of the tables"
    with pytest.raises(ValueError, match="bytes of memory"):
        exact.log_partition(chain, max_memory=500)
    model = inside(package, "exact.elimination.reduce").strike(chain)
    order = inside(package, "exact.elimination.order")
    work = order.greedy_work([5, 0, 2, 4, 1, 3], model.factors, model.sizes, 100.0)
    assert work == 5 * 4 + 2, "entries of the greedy order"
    near = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]  # a ring: a neighbour is gained
    ring = package.MarkovNetwork([2] * 5, [(pair, two + np.eye(2)) for pair in near])
    model = inside(package, "exact.elimination.reduce").strike(ring)
    work = order.greedy_work(list(range(5)), model.factors, model.sizes, 100.0)
    assert work == 3 * 8 + 4 + 2, "entries of the greedy order"


def check_joint(package):
    rng = np.random.default_rng(0)
    chain = package.MarkovNetwork([2] * 5, [((i, i + 1), rng.random((2, 2))) for i in range(4)])
    x, p = package.exact.states(chain), package.exact.probabilities(chain)
    expected = np.zeros((2, 2))
    np.add.at(expected, tuple(x[:, [0, 2]].T), p)
    found = package.exact.marginals(chain, [0, 2])["p"].values
    assert np.allclose(found, expected, rtol=0, atol=1e-13), "joint probabilities"


def check_matrices(package):
    """Matrices by formula leave their target invariant."""
    target = package.Ising([[0.0, 0.9], [0.9, 0.0]], [0.4, -0.2])
    p = package.exact.probabilities(target)
    matrix = package.exact.transition_matrix(package.LSBSampler("barker", lazy=0.3), target)
    assert np.allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=1e-13), "sums of rows"
    assert np.allclose(p @ matrix, p, rtol=0, atol=1e-13), "the target is left invariant"


def check_most_likely(package):
    anew("test_elimination").check_most_likely(0, 20)


def check_independent(package):
    """Draws, however thinned and divided, are of one stream of independent states."""
    target = package.Ising([[0.0, 0.7], [0.7, 0.0]], [0.4, -0.2])

    def make():
        return package.EliminationSampler(n_chains=2, random_state=0).fit(target)

    whole = make().sample(600)
    assert np.allclose(whole["lp"], target.log_prob(whole["x"].values)), "lp of the draws"
    thinned = make().sample(100, thin=3)
    assert np.array_equal(thinned["x"], whole["x"][:, 2:300:3]), "every third draw"
    sampler = make()
    parts = [sampler.sample(n)["x"].values for n in (1, 250, 349)]
    assert np.array_equal(np.concatenate(parts, axis=1), whole["x"]), "draws in parts"
    x, p = package.exact.states(target), package.exact.probabilities(target)
    count = (whole["x"].values.reshape(-1, 2)[:, None] == x).all(axis=2).sum(axis=0)
    assert (np.abs(count - 1200 * p) < 5 * np.sqrt(1200 * p)).all(), "draws have their prob"


# ----------------------------------------------------------------- names


def check_lookup(package):
    tests = anew("test_names")
    for names, given, place in ((tests.GRADES, 1, 0), (tests.SWAPPED, 0, 1)):
        tests.test_a_value_is_looked_up_by_its_name(names, given, place)
    tests.test_what_is_no_name_is_refused_with_all_names(tests.GRADES, True)


def check_labels_of_xarray(package):
    tests = anew("test_names")
    tests.test_labels_of_xarray_are_names()
    tests.test_states_with_labels_of_others_are_refused()
    tests.test_fields_of_a_lattice_in_another_order_of_axes()


def check_labels(package):
    try:
        anew("test_names").test_labels_of_pandas_are_names()
    except ValueError as error:  # rows in another order than columns are not symmetric
        pytest.fail(str(error))


def check_evidence(package):
    anew("test_names").test_evidence_of_exact_answers()


# ----------------------------------------------------------------- files


def check_uai(package):
    tests = anew("test_io")
    with tempfile.TemporaryDirectory() as folder:
        tests.test_uai(Path(folder), tests.PAIR.encode())
        tests.test_uai(Path(folder), gzip.compress(tests.PAIR.encode()))


def check_bad_uai(package):
    tests = anew("test_io")
    with tempfile.TemporaryDirectory() as folder:
        for text in (
            "MARKOV 2 2 2 1 2 0 0 4 1 2 3 4",
            "MARKOV 1 2 1 1 0 2 1 2 3",
            "MARKOV 1 2 1 1 0 2 1 inf",
        ):
            path = tests.save(Path(folder), text)
            with pytest.raises(package.io.FormatError):
                package.io.uai.read_uai(path)


def check_suffixes(package):
    """Of the suffixes that fit the longest one counts."""
    register, read_model = package.io.register, package.io.read_model
    register("two", ".two.lines")(lambda path: "two")
    register("lines", ".lines")(lambda path: "lines")
    with tempfile.TemporaryDirectory() as folder:
        assert read_model(Path(folder, "a.two.lines")) == "two", "the longest suffix counts"
        assert read_model(Path(folder, "a.lines")) == "lines"


def check_bif(package):
    tests = anew("test_io")
    with tempfile.TemporaryDirectory() as folder:
        tests.test_bif(Path(folder))
        for seed in range(4):
            tests.test_generated_bif(Path(folder), seed)


def check_edges(package):
    with tempfile.TemporaryDirectory() as folder:
        anew("test_io").test_maxcut_and_qubo(Path(folder))


def check_formulas(package):
    tests = anew("test_io_others")
    with tempfile.TemporaryDirectory() as folder:
        tests.test_formulas_are_counted(Path(folder), 0)


def check_factor_graphs(package):
    tests = anew("test_io_others")
    with tempfile.TemporaryDirectory() as folder:
        tests.test_libdai(Path(folder))


def check_tables_of_files(package):
    anew("test_io_others").test_tables_of_files()


def check_dialects(package):
    tests = anew("test_io")
    with tempfile.TemporaryDirectory() as folder:
        for text, value in tests.DIALECTS:
            tests.test_dialects_of_qubo(Path(folder), text, value, "\n")


def check_compressed(package):
    with tempfile.TemporaryDirectory() as folder:
        anew("test_io").test_compressed_files(Path(folder), gzip.compress)


def check_results(package):
    with tempfile.TemporaryDirectory() as folder:
        anew("test_io_results").test_what_is_written_is_read(Path(folder))


# ----------------------------------------------------------------- torch


def check_first_order(package):
    tests = anew("test_torch")
    for name in ("ising", "potts", "rbm"):
        tests.test_first_order_ratios_are_the_gradient_along_each_change(name)


def check_density(package):
    tests = anew("test_torch")
    for name in ("torch", "torch of several values"):
        tests.test_first_order_ratios_are_the_gradient_along_each_change(name)
    tests.test_states_are_given_as_zeros_and_ones_or_indicators()
    tests.test_errors_of_a_function_tell_what_it_was_called_with()


def check_gradient(package):
    """First-order ratios of a function that is linear in each variable are the differences."""
    target = package.TorchTarget(lambda x: x[:, 0, 1] * 2.0 - x[:, 1, 2], 2, 3, dtype="float64")
    x = package.exact.states(target)
    assert np.allclose(target.first_order_ratios(x), target.log_ratios(x)), "along each change"


def check_module(package):
    import torch

    drop = torch.nn.Dropout(0.5)
    module = torch.nn.Sequential(drop, torch.nn.Linear(3, 1), torch.nn.Flatten(0))
    target = package.TorchTarget(module, 3)
    assert len({*target.log_prob([[1, 1, 0]] * 9)}) == 1, "a module is evaluated without dropout"
    assert drop.training, "a module is in training mode as before"


def check_dropout(package):
    anew("test_torch").test_dropout_of_a_plain_function_is_named()


def check_flows(package):
    anew("test_torch").test_fluxes_are_those_of_the_formula("potts", package.Barker())


def check_fast_chain(package):
    tests = anew("test_torch")
    for n_flips in (1, 2):
        target = tests.random_rbm(12, 5, 0.5)
        tests.compare_with_reference(target, tests.Barker(), n_flips, 400)


def check_fast_thrice(package):
    tests = anew("test_torch")
    tests.compare_with_reference(tests.random_rbm(6, 3, 0.5), tests.Barker(), 5, 400)


def check_fast_rows(package):
    anew("test_torch").check_carried_activations()


def check_fast_objectives(package):
    tests = anew("test_torch")
    for name in ("ising", "potts", "rbm", "rbm with evidence"):
        tests.test_kernels_give_the_bound_of_torch_alone(name)


def check_counted_evaluations(package):
    tests = anew("test_torch")
    tests.test_what_the_objective_evaluates_is_counted_and_moves_nothing(1, 0.0)


def check_fast_potts(package):
    """Transitions of several values, as probabilities, against the formula."""
    tests = anew("test_torch")
    sampler = package.LSBSampler("barker", fast=True, n_flips=2, n_burn_in=5, lazy=0.2)
    for name in ("ising", "potts"):
        tests.check_step(sampler, tests.TARGETS[name])


def check_torch_chain(package):
    with anew("test_torch").torch_alone():
        check_fast_chain(package)


def check_torch_potts(package):
    with anew("test_torch").torch_alone():
        check_fast_potts(package)


def check_flips(package):
    tests = anew("test_torch")
    tests.test_flips_adapt_within_their_limits_and_then_stay()
    tests.test_flips_follow_the_acceptance_of_transitions_that_are_not_idle()


def check_philox(package):
    tests = anew("test_torch")
    tests.test_philox_gives_the_published_words()
    tests.test_all_bits_of_a_number_count()


TORCH_CHECKS = [
    check_first_order,
    check_density,
    check_gradient,
    check_module,
    check_dropout,
    check_flows,
    check_fast_chain,
    check_fast_thrice,
    check_fast_rows,
    check_fast_objectives,
    check_counted_evaluations,
    check_fast_potts,
    check_torch_chain,
    check_torch_potts,
    check_flips,
    check_philox,
]


KERNEL = "kernel|cache|moves|log p|formula|stationarity"
MUTANTS = {
    # Variable selection
    "a model without the price of its size": Mutant(
        SELECTION,
        "result -= 0.5 * k * math.log1p(self.g)",
        "result -= 0.0 * k * math.log1p(self.g)",
        check_selection,
        "Not equal",
    ),
    "as many degrees of freedom as rows": Mutant(
        SELECTION_VIEW,
        "result = view.size_term[k] - view.exponent * math.log(error)",
        "result = view.size_term[k] - (view.exponent + 0.5) * math.log(error)",
        check_selection_view,
        KERNEL,
    ),
    "a column that leaves taken for one that comes": Mutant(
        SELECTION_VIEW,
        "change, left, after = product * product / square, square, k - one",
        "change, left, after = product * product / square, square, k",
        check_selection_view,
        KERNEL,
    ),
    "rows of a factor not computed again from the first that changed": Mutant(
        SELECTION_VIEW,
        "    _selection_refresh(view, chain, place)\n",
        "    _selection_refresh(view, chain, place + np.uint64(1))\n",
        check_selection_view,
        KERNEL,
    ),
    # RBM
    "a hidden unit that is always on": Mutant(
        RBM_VIEW,
        "        result += softplus(hidden_activation(view, chain, j))\n",
        "        result += hidden_activation(view, chain, j)\n",
        check_machine_views,
        KERNEL,
    ),
    "the way down by the reach of the way up": Mutant(
        RBM_VIEW,
        "result = -view.reach[move] if falls else view.visible_bias[move]",
        "result = -view.visible_bias[move] if falls else view.visible_bias[move]",
        check_machine_views,
        KERNEL,
    ),
    "activations of extreme weights not summed anew": Mutant(
        RBM_VIEW,
        "            risen = on[j] + sign * view.weight[j, i]\n",
        "            risen = on[j] + view.weight[j, i]\n",
        check_machine_views,
        KERNEL,
    ),
    # Potts
    "pairs of a Potts model counted twice": Mutant(
        POTTS, "result += 0.5 * np.einsum(", "result += np.einsum(", check_potts, "Not equal"
    ),
    "values of a Potts model not skipped": Mutant(
        POTTS,
        "new = np.arange(k - 1) + (np.arange(k - 1) >= old)",
        "new = np.arange(k - 1) + (np.arange(k - 1) > old)",
        check_potts,
        "Not equal",
    ),
    "neighbours not told of the value that left": Mutant(
        POTTS_VIEW,
        "        chain.cache[first + before] -= view.coupling[n]\n",
        "",
        check_potts_view,
        KERNEL,
    ),
    # Functions
    "the way back of a function off by one": Mutant(
        "_kernels/contract.py",
        "return site, before, after, first + before - np.uint64(before > after)",
        "return site, before, after, first + before",
        check_function,
        "inverse|kernel|cache|moves",
    ),
    "values of another state taken from the table": Mutant(
        FUNCTION_VIEW,
        "known &= scratch[state + i] == chain.x[i] + 1",
        "known &= scratch[state + i] != 0",
        check_function,
        ".",
    ),
    "values of a site that was looked at before": Mutant(
        FUNCTION_VIEW,
        "        scratch[known + 2] = 0\n",
        "        pass\n",
        check_function,
        ".",
    ),
    # Names
    "a position before a name": Mutant(
        NAMES,
        "        found = self._by_text.get(_text(given), [])\n        if not",
        "        found = [] if isinstance(given, str) else [int(given)]\n        if not",
        check_lookup,
        ".",
    ),
    "texts that are not looked up": Mutant(
        NAMES,
        "found = self._by_text.get(_text(given), [])",
        "found = [given] if type(given) is int else []",
        check_lookup,
        ".",
    ),
    "axes of a lattice by position": Mutant(
        "targets/_graphs.py",
        "next(order) if dim in dims else dim for",
        "dim for",
        check_labels_of_xarray,
        ".",
    ),
    "labels of xarray that are not read": Mutant(
        NAMES,
        "return given.to_pandas() if labelled and",
        "return given if labelled and",
        check_labels_of_xarray,
        ".",
    ),
    "labels of others taken by position": Mutant(
        NAMES,
        "elif called and own != wanted and [*range(len(own))] not in (own, wanted):",
        "elif False:",
        check_labels_of_xarray,
        ".",
    ),
    "a Series in its own order": Mutant(
        NAMES,
        "given.iloc[[place[label] for label in labels]]",
        "given.iloc[[place[label] for label in own]]",
        check_labels,
        ".",
    ),
    "evidence that is dropped": Mutant(
        ANSWERS,
        "return target if nothing else target.condition(evidence)",
        "return target",
        check_evidence,
        ".",
    ),
    # Networks
    # Elimination
    "draws thinned from the first one": Mutant(
        INDEPENDENT,
        "draws[c, room] = x[kept]",
        "draws[c, room] = x[: len(x[kept])]",
        check_independent,
        "every third draw",
    ),
    "lp of exact draws with the constant twice": Mutant(
        INDEPENDENT,
        "stats[c, room, 0] = lp[kept] - self.target.constant",
        "stats[c, room, 0] = lp[kept] + 0.1",
        check_independent,
        "lp of the draws",
    ),
    "marginals of the variables beside": Mutant(
        MARGINALS,
        "result[variables] = elimination.marginals()[variables]",
        "result[variables] = elimination.marginals()[variables[::-1]]",
        check_answers,
        ".",
    ),
    "a message freed one step early": Mutant(
        SCHEDULE,
        "time[kept[first]], time[kept[last]]",
        "time[kept[first]], time[kept[last]] - 1",
        check_memory,
        ".",
    ),
    "beliefs added to what lay there before": Mutant(
        SPREAD,
        "memory[np.uint64(first + j)] = 0.0",
        "memory[np.uint64(first + j)] *= 1.0",
        check_memory,
        ".",
    ),
    "parts gone back through in the order of the way forward": Mutant(
        SCHEDULE,
        "in reversed(list(pairwise(cuts))):",
        "in list(pairwise(cuts)):",
        check_memory,
        ".",
    ),
    "a variable lost from an open set": Mutant(
        MOVES_OF_TREES,
        "joined & (tree.open[b, w] | tree.open[p, w])",
        "joined & tree.open[b, w]",
        check_trees,
        ".",
    ),
    "costs of two nodes swapped": Mutant(
        MOVES_OF_TREES,
        "tree.cost[q], tree.cost[p] = below, above",
        "tree.cost[q], tree.cost[p] = above, below",
        check_trees,
        "the cost of a node",
    ),
    "late variables that may leave a tree before": Mutant(
        TREES,
        "dict.fromkeys(late, 1)",
        "dict.fromkeys(late, 0)",
        check_trees,
        ".",
    ),
    "late variables that come first": Mutant(
        TREES,
        "return [*self.alone, *reversed(found), *self.late]",
        "return [*self.late, *self.alone, *reversed(found)]",
        check_trees,
        ".",
    ),
    "a variable left in a tree where its value is given": Mutant(
        TREES,
        "open=[found - gone for found in self.open]",
        "open=[*self.open]",
        check_trees,
        ".",
    ),
    "smallest entries of messages forgotten": Mutant(
        MESSAGES,
        "low += scales[1, sender]",
        "low += 0.0 * scales[1, sender]",
        check_underflow,
        ".",
    ),
    "what messages have lost forgotten": Mutant(
        MESSAGES,
        "gone = _add_logs(gone, lost[sender])",
        "pass",
        check_underflow,
        ".",
    ),
    "a most likely state by sums where maxima belong": Mutant(
        ENGINE,
        "elimination = Elimination(found, MAX, n_jobs)",
        "elimination = Elimination(found, LINEAR, n_jobs=1)",
        check_most_likely,
        "another state is more probable",
    ),
    "constants of barren variables counted twice": Mutant(
        "_kernels/elimination/tables.py",
        "if f >= first:",
        "if True:",
        check_answers,
        ".",
    ),
    "a table left out where tables are joined": Mutant(
        LAYOUT, "members.append(f)", "pass", check_layouts, "."
    ),
    "kept variables summed out like all others": Mutant(
        ORDER,
        "late=np.array([int(v in late) for v in variables]",
        "late=np.array([0 for v in variables]",
        check_joint,
        "joint probabilities",
    ),
    "work without the values of the variable summed out": Mutant(
        SCHEDULE,
        "self.work = self.size * sizes[self.order]",
        "self.work = self.size",
        check_costs,
        "entries of the tables",
    ),
    "a limit of memory that is not kept": Mutant(
        COST,
        "and cost.log2_memory <= math.log2(max_memory)",
        "",
        check_costs,
        "DID NOT RAISE",
    ),
    "neighbours that an elimination does not connect": Mutant(
        GREEDY,
        "graph.near[u, w] |= graph.near[v, w]",
        "graph.near[u, w] |= np.uint64(0)",
        check_costs,
        "entries of the greedy order",
    ),
    "the way back of a step by formula upside down": Mutant(
        MATRICES,
        "(log_sum - log_sum[to, 0])",
        "(log_sum[to, 0] - log_sum)",
        check_matrices,
        "is left invariant",
    ),
    # Files
    "a model read by the shorter of two suffixes": Mutant(
        FORMATS,
        "return max(fitting, key=lambda one: len(one[0]))[1]",
        "return min(fitting, key=lambda one: len(one[0]))[1]",
        check_suffixes,
        "the longest suffix",
    ),
    "numbers that are not finite": Mutant(
        TOKENS,
        "~((values >= low) & np.isfinite(values))",
        "~(values >= low)",
        check_bad_uai,
        "DID NOT RAISE",
    ),
    "tables of a file with the axes turned": Mutant(
        UAI,
        "low=0.0).reshape(shape))",
        "low=0.0).reshape(shape[::-1]).T)",
        check_uai,
        ".",
    ),
    "a variable twice in a scope": Mutant(
        TOKENS,
        "if number in (but, *found):",
        "if number == but:",
        check_bad_uai,
        "DID NOT RAISE",
    ),
    "rows of a table in the order of the child": Mutant(
        BIF, "values.reshape(k, -1).T", "values.reshape(-1, k)", check_bif, "."
    ),
    "log Z of a result file in another base": Mutant(
        RESULTS,
        "words = [float(values)]",
        "words = [float(values) * 2.302585092994046]",
        check_results,
        ".",
    ),
    "a hidden unit without its bias": Mutant(
        RBM,
        "hidden = _softplus(self.hidden_bias + flat @ self._columns)",
        "hidden = _softplus(flat @ self._columns)",
        check_machine,
        ".",
    ),
    "loops of an edge list counted twice": Mutant(
        QUBO,
        "matrix + sp.triu(matrix, 1).T",
        "matrix + sp.triu(matrix).T",
        check_edges,
        ".",
    ),
    "literals of a clause turned round": Mutant(
        DIMACS, "int(v < 0) for v in literals", "int(v > 0) for v in literals", check_formulas, "."
    ),
    "a factor of libDAI whose last variable runs fastest": Mutant(
        GRAPHS, 'table.reshape(shape, order="F")', "table.reshape(shape)", check_factor_graphs, "."
    ),
    "parents of a file of GeNIe in reverse order": Mutant(
        AGRUM, "parents[::-1] if reverse else parents", "parents[::-1]", check_tables_of_files, "."
    ),
    "pairs of a qbsolv file counted twice": Mutant(
        QUBO, "0.5 * matrix + 0.5 * matrix.T", "matrix + matrix.T", check_dialects, "."
    ),
    "values of a hercules file not halved": Mutant(
        QUBO,
        "0.25 * matrix + 0.25 * matrix.T",
        "0.5 * matrix + 0.5 * matrix.T",
        check_dialects,
        ".",
    ),
    "a compressed file that ends too early": Mutant(
        COMPRESSION, "raise EOFError", "return  # EOFError", check_compressed, "."
    ),
    # First-order steps
    "neighbours of a spin by half": Mutant(
        TORCH_GRAPHS,
        "return -2.0 * self._spins(x) * (self.field + carried[0])",
        "return -2.0 * self._spins(x) * (self.field + 0.5 * carried[0])",
        check_first_order,
        ".",
    ),
    "the gradient of a machine without its hidden units": Mutant(
        TORCH_RBM,
        "gradient = torch.addmm(self.slope_bias, mean, self.slope_weights)",
        "gradient = torch.addmm(self.slope_bias, 0 * mean, self.slope_weights)",
        check_first_order,
        ".",
    ),
    "a proposal accepted without its way back": Mutant(
        WALKERS,
        "more = back - state.weights.gather(1, there.move) +",
        "more = 0 * back - 0 * state.weights.gather(1, there.move) +",
        check_torch_chain,
        ".",
    ),
    "the sum of the weights taken upside down": Mutant(
        WALKERS,
        "(state.log_total - new.log_total)",
        "(new.log_total - state.log_total)",
        check_torch_chain,
        ".",
    ),
    "the last of several flips never left out": Mutant(
        WALKERS, "u[:, -1:] < 0.5", "u[:, -1:] < 1.5", check_torch_chain, "."
    ),
    "lazy steps of a first-order chain not rescaled": Mutant(
        WALKERS,
        "((u_select[:, :1] - self.lazy) / (1.0 - self.lazy))",
        "(u_select[:, :1] - 0.0)",
        check_torch_potts,
        ".",
    ),
    "the way back of several values off by one": Mutant(
        MOVES,
        "site * per_site + then - (then > now).long()",
        "site * per_site + then - (then > 0).long()",
        check_torch_potts,
        ".",
    ),
    "compiled, the way back has another weight": Mutant(
        FAST_STEP,
        "odds *= np.float64(there.weights[c, drawn.back[c, r]]) / drawn.weight[c, r]",
        "odds *= 1.0",
        check_fast_chain,
        ".",
    ),
    "compiled, the last of several flips never left out": Mutant(
        FAST_STEP,
        "numbers[c, n_flips] >= 0.5",
        "numbers[c, n_flips] >= 1.5",
        check_fast_chain,
        ".",
    ),
    "compiled, a refused state keeps its new weights": Mutant(
        FAST_STEP,
        "there.cumulative[c, b] = here.cumulative[c, b]",
        "there.cumulative[c, b] = there.cumulative[c, b]",
        check_fast_chain,
        ".",
    ),
    "compiled, a refused state keeps the weights within blocks": Mutant(
        FAST_STEP,
        "there.weights[c, m] = here.weights[c, m]",
        "there.weights[c, m] = there.weights[c, m]",
        check_fast_chain,
        ".",
    ),
    "compiled activations count a unit flipped twice twice": Mutant(
        FAST_RBM,
        "if change != 0.0 and not seen[site]:",
        "if change != 0.0:",
        check_fast_thrice,
        ".",
    ),
    "compiled, one of eight rows of W with the amount of another": Mutant(
        FAST_RBM, "g * w[h] + i * z[h]", "g * w[h] + g * z[h]", check_fast_rows, "."
    ),
    "compiled log p of a machine without its visible units": Mutant(
        FAST_RBM,
        "out[c] = add_up(visible) + (",
        "out[c] = 0.0 * add_up(visible) + (",
        check_fast_rows,
        ".",
    ),
    "compiled objectives without the way back": Mutant(
        FAST_LEARNING,
        "log_a = log_ratio + _log_q(there.weighed, row, there.back[row]) - forth",
        "log_a = log_ratio + 0.0 * _log_q(there.weighed, row, there.back[row]) - forth",
        check_fast_objectives,
        ".",
    ),
    "compiled gradients of another move than the proposed one": Mutant(
        FAST_LEARNING,
        "gradient[knot[move]] += amount - upper",
        "gradient[knot[0]] += amount - upper",
        check_fast_objectives,
        ".",
    ),
    "the mean weight not taken off a compiled gradient": Mutant(
        FAST_LEARNING,
        "each = -amount / weighed.cumulative[row, -1]",
        "each = 0.0 * -amount / weighed.cumulative[row, -1]",
        check_fast_objectives,
        ".",
    ),
    "states of refused moves on torch": Mutant(
        COMPILED,
        "step.restore(sums[-1], x, y)",
        "pass",
        check_fast_chain,
        ".",
    ),
    "a step into the memory of the present state": Mutant(
        COMPILED,
        "if side.x is not self.state.x]",
        "if side.x is not None]",
        check_fast_chain,
        ".",
    ),
    "a step of a machine by the gradient of another state": Mutant(
        TORCH_RBM,
        "torch.addmm(self.slope_bias, mean, self.slope_weights, out=gradient)",
        "torch.addmm(self.slope_bias, 0 * mean, self.slope_weights, out=gradient)",
        check_fast_thrice,
        ".",
    ),
    "evaluations of an objective that are not counted": Mutant(
        FAST_ENSEMBLE,
        "self.chains.evaluations[:] += found.evaluations",
        "pass",
        check_counted_evaluations,
        ".",
    ),
    "pairs of a Potts model on torch counted twice": Mutant(
        TORCH_GRAPHS,
        "return there, row_sum(change + 0.5 * (self._at(near, y) - self._at(near, x)))",
        "return there, row_sum(change + (self._at(near, y) - self._at(near, x)))",
        check_fast_potts,
        ".",
    ),
    "the number of flips falls where it should rise": Mutant(
        FLIPS,
        "change = gain * (acceptance - _ACCEPTANCE)",
        "change = gain * (_ACCEPTANCE - acceptance)",
        check_flips,
        ".",
    ),
    "more flips than sites": Mutant(
        FLIPS,
        "math.log(min(MOST_FLIPS, max(1, n_sites)))",
        "math.log(MOST_FLIPS)",
        check_flips,
        ".",
    ),
    "no proposal on the way back": Mutant(
        TORCH_OBJECTIVES,
        "log_a = (log_ratio + log_back - log_q).clamp(max=0.0)",
        "log_a = (log_ratio - log_q).clamp(max=0.0)",
        check_fast_objectives,
        "Not equal",
    ),
    "flows in one direction": Mutant(
        TORCH_OBJECTIVES,
        "flow = 2.0 * (log_p + log_t).exp()",
        "flow = (log_p + log_t).exp()",
        check_flows,
        ".",
    ),
    "a value compared with itself along the gradient": Mutant(
        MODEL,
        "new = of_values.gather(2, other + (other >= old))",
        "new = of_values.gather(2, other + (other > old))",
        check_gradient,
        "along each change",
    ),
    "indicators of numbers from 1": Mutant(
        DENSITY,
        "one_hot(states.long(), self.n_values)",
        "one_hot(states.long() + 1, self.n_values + 1)[..., :-1]",
        check_density,
        ".",
    ),
    "a module that stays in evaluation mode": Mutant(
        DENSITY,
        "                    module.training = True\n",
        "                    module.training = False\n",
        check_module,
        "as before",
    ),
    "a random function not called twice": Mutant(
        TORCH,
        "self._compare(states, found, self._evaluate(states[:n]), _ROUNDING, where, why)",
        "self._compare(states, found, found[:n], _ROUNDING, where, why)",
        check_dropout,
        "did not match|DID NOT RAISE",
    ),
    "the present value among the others": Mutant(
        FUNCTION,
        "new = rank + (rank >= x[site])",
        "new = rank + (rank > x[site])",
        check_function,
        "differences of log_prob",
    ),
    "tables not compared with the function": Mutant(
        "targets/_terms.py", "while missed:", "for missed in (True,):", check_terms, r"\(0,\)"
    ),
    "tables of few states compared with the function at some": Mutant(
        "targets/_terms.py",
        "if few else []",
        "if size < 2 else []",
        check_rare_terms,
        "Not equal to tolerance",
    ),
    "tables compared at no more states where variables have many values": Mutant(
        "targets/_terms.py", "min(n, most))", "min(2, most))", check_rare_terms, "At index"
    ),
    "chains left where a function failed": Mutant(
        FUNCTION,
        "now[:] = values",
        "values[:] = now",
        check_failures,
        "Arrays are not equal",
    ),
    "a neighbour lost between two parts": Mutant(
        FUNCTION,
        "part = slice(first - 1 + own, first - 1 + most)",
        "part = slice(first - 1 + own, first - 2 + most)",
        check_parts_of_neighbours,
        ".",
    ),
    "nine rounds of Philox": Mutant(PHILOX, "range(10)", "range(9)", check_philox, "."),
}


def marks(check):
    return [needs_torch] if check in TORCH_CHECKS else []


test_a_planted_error_is_found, test_the_package_itself_passes = both_tests(MUTANTS, marks)

"""Errors planted in the checks for users, the cache of kernels, progress and ensembles."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from planted import PACKAGE, TESTS, Mutant, anew, both_tests, hurried, inside


def pair(package):
    return package.Ising([[0.0, 0.9], [0.9, 0.0]], [0.4, -0.3])


# ----------------------------------------------------------------- checks for users


def check_balancing(package):
    package.testing.check_balancing(package.Mixture())
    anew("test_balancing").test_the_public_check_finds_a_wrong_gradient()


def check_expectations(package):
    expect = inside(package, "testing._expect")
    with pytest.raises(AssertionError, match=r"a value: expected .* and found .*nan"):
        expect.expect_near([1.0, np.nan], 1.0, 0.1, "a value")


def check_objective(package):
    target, function = pair(package), package.Mixture([0.3, -0.2, 0.5, 0.0])
    package.testing.check_objective("kl", function, target)


def check_caches(package):
    """What differs from a rebuild is found."""
    probe = inside(package, "testing._probe")
    rule = inside(package, "_kernels.rules.balanced").Balanced(package.Barker().table())
    target = pair(package)
    made = probe.Probe(target, rule, package.exact.states(target))
    probe.check_caches(made.ensemble, "as it is")
    made.chains.part.tree[0] *= 2.0
    with pytest.raises(AssertionError, match="tree` does not"):
        probe.check_caches(made.ensemble, "after an error")


def check_graph(package):
    package.testing.check_target(pair(package), n_states=4)
    with pytest.MonkeyPatch.context() as patch:
        none = package.Ising(np.zeros((2, 2))).graph
        patch.setattr(package.Ising, "graph", property(lambda self: none))
        with pytest.raises(AssertionError, match="graph does not join variables"):
            package.testing.check_target(pair(package), n_states=4)


def check_rule(package):
    rule = package.exact.matrices.rule_of(package.GibbsSampler("systematic"), pair(package))
    with hurried(package) as testing:
        testing.check_rule(rule, pair(package), n_continuations=4)


def check_step(package):
    """A right step is enumerated, or counted, and a wrong one found."""
    check = package.testing.check_step
    p = np.array([0.6, 0.3, 0.1])
    own = np.random.default_rng(3)

    def log_p(x):
        return np.log(p[x[:, 0]])

    def step(state, rng, power=1.0):
        there = rng.integers(3, size=1)
        return there if rng.random() < (p[there[0]] / p[state[0]]) ** power else state

    assert check(step, log_p, 3).enumerated, "a right step is enumerated"
    assert not check(lambda x, rng: step(x, own), log_p, 3, n_calls=2000).enumerated
    with pytest.raises(AssertionError, match="invariant: p P is"):
        check(lambda x, rng: step(x, rng, 2.0), log_p, 3)


def check_rare(package):
    anew("test_steps").test_a_fault_in_a_rare_state_is_found(0.004, 80_000, "0.00533333")
    anew("test_steps").test_states_too_rare_to_be_counted_are_not_missed(1e-7)


def check_sampler(package):
    settings = {"n_burn_in": 10, "n_chains": 2, "init": "uniform"}
    sampler = package.GibbsSampler("systematic", **settings)
    with hurried(package) as testing:
        testing.check_sampler(sampler, pair(package), 10)


# ----------------------------------------------------------------- kernels and progress


def check_stamps(package):
    """An entry of the cache has another name after an edit of what it is made of, no other one."""
    jit = inside(package, "_kernels._jit")
    sources = jit._sources()

    def changed_by(edited):
        found = []
        for more in (b"", b"\n# edited"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(sources, f"sklsb._kernels.{edited}", sources[where(edited)] + more)
                jit._stamp.cache_clear()
                found.append(jit._stamp(where("rules.jump")))
        jit._stamp.cache_clear()
        return found[0] != found[1]

    def where(name):
        return f"sklsb._kernels.{name}"

    assert changed_by("rules.jump"), "an edit of the rule"
    assert changed_by("rules.balanced"), "an edit of what the rule imports"
    assert changed_by("tree"), "an edit of what all kernels share"
    assert not changed_by("targets.rbm"), "an edit of another target leaves it"


def check_names_set(package):
    tests = anew("test_words")
    tests.test_names_that_are_none_are_not_set("LSBSampler().n_chain")
    tests.test_names_that_may_be_set()


def check_words(package):
    with pytest.raises(TypeError) as caught:
        package.LSBSampler(seed=0)
    assert "'random_state'" in str(caught.value), "the word to use here"


def check_state_names(package):
    target = package.MarkovNetwork([2, 2], [], state_names=["no", "yes"])
    assert target.state_names == (("no", "yes"),) * 2, "one list for all"


def check_missing(package):
    with pytest.raises(TypeError) as caught:
        package.exact.sample(pair(package))
    assert str(caught.value).endswith("write sample(target, n)."), "the arguments to give"


def check_segments(package):
    segments = inside(package, "ensembles.base")
    assert segments.next_segment(64, 64, 1.0) == 6, "a tenth of a second"
    assert segments.next_segment(64, 64, 0.0) == 256, "at most four times as long"
    assert segments.next_segment(64, 1, 60.0) == 1, "a segment has a transition"


def check_progress(package):
    progress = inside(package, "_system.progress")
    now = SimpleNamespace(seconds=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
        with progress.Clock() as clock, progress.Progress(0, "outer"):
            now.seconds += 1.0
            with progress.Progress(0, "inner"):
                now.seconds += 2.0
    wanted = {"inner_seconds": 2.0, "outer_seconds": 1.0, "compiling_seconds": 0.0}
    assert clock.attrs() == wanted, "each second is counted once"


# ----------------------------------------------------------------- ensembles


def check_ensemble(package):
    """Log-ratios are of the present states, and a copy has streams of its own."""
    target, rng = pair(package), np.random.default_rng(0)
    made = inside(package, "ensembles.compiled").BalancedEnsemble
    chains = made(
        target, package.exact.states(target), [np.random.default_rng(c) for c in range(4)]
    )
    for _ in range(3):
        wanted = target.log_ratios(chains.chains.x)
        assert np.allclose(chains.proposal_log_ratios(), wanted), "log-ratios of these states"
        chains.advance(rng.random((4, 3, 2)))
    drawing, state = inside(package, "_kernels.run").Drawing(1), chains.state()
    draws = [(np.empty((4, 20, 2), np.int8), np.empty((4, 20, 2))) for _ in range(3)]
    for out in draws[:2]:
        other = object.__new__(made)
        other.__setstate__({"target": target, "n_jobs": 1, "state": state})
        other.run(20, drawing, out)
    chains.run(20, drawing, draws[2])
    for x, _ in draws[:2]:
        assert np.array_equal(x, draws[2][0]), "chains from a state go on as these do"
    counts = chains.chains.evaluations.copy()
    chains.start(package.exact.matrices.rule_of(package.GibbsSampler("random"), target))
    assert np.array_equal(chains.chains.evaluations, counts), "evaluations go on with another rule"


# ----------------------------------------------------------------- targets


def check_ancestral(package):
    anew("test_markov_network").test_a_bayesian_network_starts_with_draws_from_it(True, False)


def check_search(package):
    anew("test_markov_network").test_a_start_that_needs_a_search()


def check_pymc(package):
    """Values of a model that do not begin at 0, without PyMC: what it would give is given."""
    pymc = inside(package, "pymc.target")
    model = SimpleNamespace(named_vars_to_dims={"z": ("year",)}, coords={"year": (10, 20)})
    z = pymc._variable(model, SimpleNamespace(name="z"), (2,), ([3, 0], [5, 1]))
    k = pymc._variable(model, SimpleNamespace(name="k"), (), (2, 4))
    log_p = SimpleNamespace(vm=SimpleNamespace(jit_fn=lambda x: (np.float64(x.sum()),)))
    target = pymc.PyMCTarget(log_p, [z, k])
    assert target.cardinalities.tolist() == [3, 2, 3], "values between the bounds, ends included"
    assert target.names == ["z[10]", "z[20]", "k"]
    draws = xr.Dataset({"x": (("chain", "draw", "site"), [[[2, 1, 0], [0, 0, 2]]])})
    found = target.to_dataset(draws)
    assert found["z"].values.tolist() == [[[5, 1], [3, 0]]], "values of the model"
    assert found["k"].values.tolist() == [[2, 4]], "values of the model"


MUTANTS = {
    "a gradient that is never wrong": Mutant(
        "testing/_balancing.py",
        "(loss(theta + e) - loss(theta - e)) / (2 * step) for e in",
        "float(analytic @ e) / step for e in",
        check_balancing,
        "DID NOT RAISE",
    ),
    "NaN near everything": Mutant(
        "testing/_expect.py",
        "bad = ~((np.abs(difference) <= gate) | (found == expected))",
        "bad = (np.abs(difference) > gate) & (found != expected)",
        check_expectations,
        "DID NOT RAISE",
    ),
    "differences over one step instead of two": Mutant(
        "testing/_objectives.py",
        "np.stack(ends, axis=-1) / (2 * step)",
        "np.stack(ends, axis=-1) / step",
        check_objective,
        "gradient of objective",
    ),
    "the sum over next states without staying": Mutant(
        "testing/_objectives.py",
        "happens = stays | (log_t > -np.inf)",
        "happens = ~stays & (log_t > -np.inf)",
        check_objective,
        "against enumeration",
    ),
    "caches compared with themselves": Mutant(
        "testing/_probe.py",
        "found = {name: values.copy() for name, values in kept(ensemble.chains).items()}",
        "found = kept(ensemble.chains)",
        check_caches,
        "DID NOT RAISE",
    ),
    "only variables that are joined looked at": Mutant(
        "testing/_targets.py",
        "        if graph[i, j]:\n            continue",
        "        if not graph[i, j]:\n            continue",
        check_graph,
        "DID NOT RAISE|graph does not join variables",
    ),
    "boxes of numbers that weigh the same": Mutant(
        "testing/_cells.py",
        "self.mass = np.repeat(self.mass, count) * (high - low)",
        "self.mass = np.repeat(self.mass / count, count)",
        check_rule,
        "stationarity of the step",
    ),
    "measured matrices of other states": Mutant(
        "testing/_rules.py",
        "possible, name = target.log_prob(x) > -np.inf",
        "possible, name = target.log_prob(x) < 0.0",
        check_rule,
        "stationarity of the step",
    ),
    "chosen numbers that are handed out twice": Mutant(
        "testing/_steps.py", "self.used += n", "self.used += n > 1", check_step, "enumerated"
    ),
    "wrong steps of which the defect is overlooked": Mutant(
        "testing/_steps.py",
        "report.defect <= _ROUNDING,",
        "report.defect <= 1.0,",
        check_step,
        "invariant: of 400000 transitions",
    ),
    "small defects not confirmed by more trials": Mutant(
        "testing/_steps.py",
        "max(_N_TRIALS, n_calls // (2 * p.size))",
        "_N_TRIALS",
        check_rare,
        "invariant: of 80000 transitions",
    ),
    "states missed that are too rare to be counted": Mutant(
        "testing/_steps.py",
        "n_calls * p >= FEWEST",
        "p > 0.0",
        check_rare,
        "cannot go between",
    ),
    "transitions counted from uniform states": Mutant(
        "testing/_steps.py",
        "start = rng.choice(p.size, n, p=p)",
        "start = rng.choice(p.size, n)",
        check_step,
        "invariant",
    ),
    "every third draw, the first one included": Mutant(
        "testing/_samplers.py", "x[:, 2::3]", "x[:, ::3]", check_sampler, "draws 3 apart"
    ),
    "edits of imported files not seen": Mutant(
        "_kernels/_jit.py",
        "wanted += [found.decode() for found in _IMPORT.findall(sources[name])]",
        "_IMPORT.findall(sources[name])",
        check_stamps,
        "what the rule imports",
    ),
    "edits of shared files not seen": Mutant(
        "_kernels/_jit.py",
        "for name in sorted(seen | shared):",
        "for name in sorted(seen - shared):",
        check_stamps,
        "all kernels share",
    ),
    "all files shared": Mutant(
        "_kernels/_jit.py",
        'name.count(".") <= _PACKAGE.count(".") + 1',
        'name.count(".") >= _PACKAGE.count(".")',
        check_stamps,
        "another target",
    ),
    "words of others taken for each other": Mutant(
        "_words.py",
        "for ours, theirs in _WORDS if word in theirs]",
        "for ours, theirs in _WORDS if word not in theirs]",
        check_words,
        "the word to use here",
    ),
    "the list of all values turned round": Mutant(
        "targets/_checks.py",
        "given = [given] * cardinalities.size  # all have the same",
        "given = [given[::-1]] * cardinalities.size",
        check_state_names,
        "one list for all",
    ),
    "what a call has is what it lacks": Mutant(
        "_words.py",
        "if p.default is p.empty]",
        "if p.default is not p.empty]",
        check_missing,
        "the arguments to give",
    ),
    "names that are none are set": Mutant(
        "_words.py",
        "if outside and advice:",
        "if False and advice:",
        check_names_set,
        ".",
    ),
    "notes are refused": Mutant(
        "_words.py",
        "if outside and advice:",
        "if outside and (advice := [name]):",
        check_names_set,
        ".",
    ),
    "segments of no transition": Mutant(
        "ensembles/base.py",
        "return max(1, min(4 * segment,",
        "return max(0, min(4 * segment,",
        check_segments,
        "has a transition",
    ),
    "seconds of nested phases counted twice": Mutant(
        "_system/progress.py",
        "time.perf_counter() - self._began - others",
        "time.perf_counter() - self._began",
        check_progress,
        "counted once",
    ),
    "log-ratios of states that chains have left": Mutant(
        "ensembles/compiled.py",
        "if known is None or not np.array_equal(known[0], self.chains.x):",
        "if known is None:",
        check_ensemble,
        "log-ratios of these states",
    ),
    "chains that take numbers from the streams of their state": Mutant(
        "ensembles/base.py",
        "streams=state.streams.copy()",
        "streams=state.streams",
        check_ensemble,
        "from a state go on",
    ),
    "evaluations forgotten with the rule": Mutant(
        "ensembles/compiled.py",
        "self.chains.evaluations[:] = before.evaluations",
        "self.chains.evaluations[:] = 0",
        check_ensemble,
        "with another rule",
    ),
    "children drawn before their parents": Mutant(
        "targets/_support.py",
        "return int(undecided[0]) if undecided.size else None",
        "return int(undecided[-1]) if undecided.size else None",
        check_ancestral,
        ".",
    ),
    "struck values that strike no others": Mutant(
        "targets/_support.py",
        "queue.update(dict.fromkeys(g for g in self.factors_of[i] if g != f))",
        "queue.update({})",
        check_search,
        ".",
    ),
    "the highest value of a variable left out": Mutant(
        "pymc/target.py",
        "    high = np.concatenate([v.highest.ravel() for v in variables])",
        "    high = np.concatenate([v.highest.ravel() - 1 for v in variables])",
        check_pymc,
        "ends included",
    ),
    "numbers of values taken for values": Mutant(
        "pymc/target.py",
        "values = x.values + self._lowest",
        "values = x.values",
        check_pymc,
        "values of the model",
    ),
}


test_a_planted_error_is_found, test_the_package_itself_passes = both_tests(MUTANTS)


def test_every_long_file_has_an_error():
    names = [path.stem for path in TESTS.glob("test_mutants*.py")]
    planted = {m.file for name in names for m in anew(name).MUTANTS.values()}
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    long = {
        str(path.relative_to(PACKAGE)) for path, text in texts.items() if text.count("\n") > 100
    }
    assert long <= planted

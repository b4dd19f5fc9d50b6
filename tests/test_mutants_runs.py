"""Errors planted in what is said of draws, where chains start, and where draws go."""

import contextlib
import copy
import io
import pathlib
import tempfile
import warnings

import numpy as np
import pytest
import xarray as xr
from planted import Mutant, anew, both_tests, inside

TALLY, AGREEMENT, AVERAGES, BATCHES, MARGINALS, MEASURES, MOMENTS, STOPPING = (
    f"diagnostics/{name}.py"
    for name in (
        *("tally", "agreement", "averages", "batches", "marginals"),
        *("measures", "moments", "stopping"),
    )
)
RUN, WATCH = "_kernels/run.py", "samplers/_run/watch.py"
SAVING = "samplers/_run/saving.py"
STARTS, UPHILL, THINNING = (f"trials/{name}.py" for name in ("starts", "uphill", "thinning"))
OBSERVERS, STORED, WARNINGS, BURN_IN, SAMPLE = (
    f"samplers/_run/{name}.py" for name in ("observers", "stored", "warnings", "burn_in", "run")
)
CODEC, PARTS, FINGERPRINT, STORES = (
    f"storage/{name}.py" for name in ("codec", "parts", "fingerprint", "stores")
)


def pair(package, field=0.3):
    return package.Ising([[0.0, 0.5], [0.5, 0.0]], [field, -0.2])


def gibbs(package, **settings):
    settings = {"n_chains": 2, "n_burn_in": 10, "init": "uniform", "random_state": 0} | settings
    return package.GibbsSampler("random", **settings)


# ----------------------------------------------------------------- diagnostics


def check_visits(package):
    for index in (0, 1):
        anew("test_starts").test_visits_are_counted_in_sweeps(index)


def check_checkpoint(package):
    tests = anew("test_checkpoint")
    glass = tests.Ising.lattice(np.zeros((4, 4)), coupling=tests.RNG.normal(size=(2, 4, 4)))
    samplers = tests.ParallelTempering(n_burn_in=80), tests.LSBSampler(n_burn_in=60, pilot=False)
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        tests.often(patched)
        for k, sampler in enumerate(samplers):
            tests.crashes(sampler, glass, pathlib.Path(folder) / str(k))


def check_arrays_of_checkpoints(package):
    tests = anew("test_checkpoint")
    with tempfile.TemporaryDirectory() as folder:
        tests.test_long_arrays_are_compared_as_a_whole(pathlib.Path(folder))
        tests.test_long_arrays_of_parameters_are_compared_as_a_whole(pathlib.Path(folder))


def check_expectation(package):
    tests = anew("test_expectation")
    tests.test_exact_means_and_variances_are_those_of_enumeration("network")
    tests.test_functions_of_means_and_arrays()
    tests.test_visits_of_replicas_widen_errors()


def check_pictures(package):
    pytest.importorskip("matplotlib")
    pytest.importorskip("networkx")
    from matplotlib import pyplot

    tests = anew("test_plot")
    try:
        tests.test_edges_are_as_strong_as_couplings()
        tests.test_arrows_lead_from_parents_to_children()
        tests.test_colours_go_by_names_of_values()
    finally:
        pyplot.close("all")


def check_lost(package):
    """Chains that have lost a rare value that chains keep do not agree, whatever R-hat says."""
    tally = inside(package, "diagnostics.tally")
    target = package.Ising(np.zeros((2, 2)), [1.0, 1.0])  # no symmetry tells
    made = tally.Tally(target, 2, kept=[tally.RareValue(1, 0, 100.0)])
    x = np.random.default_rng(0).choice(np.array([-1, 1], np.int8), size=(2, 400, 2))
    x[:, :, 1] = 1
    x[:, ::100, 1] = -1
    made.add(x, np.random.default_rng(1).normal(size=(2, 400)), 1)
    found = package.diagnostics.disagreement(made, target)
    assert found.attrs["lost"] == ["1"], "what is lost is named"
    assert not found.agree, "draws that lost a value do not agree"


def check_tally(package):
    tests = anew("test_disagreement")
    tests.test_a_tally_counts_every_kth_draw_however_they_come(tests.MIXED, 5, 2)
    tests.test_a_tally_takes_the_same_room_however_long()
    tests.test_counts_of_one_value_exceed_its_type()


def check_r_hat(package):
    tests = anew("test_disagreement")
    tests.test_r_hat_is_that_of_arviz(tests.MIXED, 2)


def check_sizes(package):
    anew("test_disagreement").test_effective_sample_sizes()


def check_told_apart(package):
    for n_chains in (1, 4):
        anew("test_disagreement").test_chains_that_disagree_are_told(n_chains)


def check_looked_at_again(package):
    anew("test_disagreement").check_looks(84)


def check_shares(package):
    anew("test_diagnostics").test_marginals_of_two_values_are_shares_of_the_draws()


def check_ess(package):
    arviz = pytest.importorskip("arviz", reason="is the other way to compute it")
    anew("test_diagnostics").test_ess_of_means_is_arvizs(arviz)


def check_ess_of_two_values(package):
    arviz = pytest.importorskip("arviz", reason="is the other way to compute it")
    with pytest.MonkeyPatch.context() as patched:
        anew("test_diagnostics").test_ess_of_two_values_and_of_more_is_arvizs(arviz, patched)


def check_errors_of_visits(package):
    tests, arviz = anew("test_diagnostics"), pytest.importorskip("arviz")
    tests.test_mcse_of_visits_is_the_formula(arviz)
    tests.test_mcse_of_a_value_seen_once_is_wide(arviz)


def check_mmd(package):
    anew("test_diagnostics").test_mmd_is_the_double_loop(3, (5, 9, 4))


def check_moments(package):
    tests = anew("test_moments")
    tests.test_visits_of_several_batches_are_seen()
    tests.test_errors_of_chains_that_stay_apart()
    tests.test_what_was_never_seen_has_no_probability_at_all()


def check_few_visits(package):
    anew("test_moments").test_no_error_is_nothing_where_something_was_seen()


def check_parts_of_moments(package):
    with pytest.MonkeyPatch.context() as patch:
        anew("test_moments").test_however_draws_come(patch)


def check_averages(package):
    """Conditionals of a network of two, three and one values, at draws of two chains."""
    network = package.MarkovNetwork(
        [2, 3, 1], [((0, 1), [[1.0, 0.0, 2.0], [3.0, 1.0, 0.5]]), ((2,), [1.0])]
    )
    sampler = gibbs(package, n_chains=2).fit(network)
    x = copy.copy(sampler).sample(300, thin=2)["x"].values.reshape(-1, 3)
    found = sampler.sample(300, thin=2, record="marginals")
    table = np.array([[1.0, 0.0, 2.0], [3.0, 1.0, 0.5]])
    wanted = np.zeros((3, 3))
    for row in x:
        wanted[0, :2] += table[:, row[1]] / table[:, row[1]].sum()
        wanted[1] += table[row[0]] / table[row[0]].sum()
    wanted[2, 0] = len(x)
    assert np.allclose(found["p"], wanted / len(x)), "conditional probabilities"
    outside = package.diagnostics.averages.conditionals(network, x).mean(axis=0)
    assert np.allclose(outside, np.delete(wanted / len(x), [2, 7, 8])), "computed outside"


def check_never_left(package):
    anew("test_averages").test_what_was_never_seen_has_no_error()


def check_distance(package):
    """Half an independent draw at T log 3, and streams of its own."""
    anew("test_thinning").test_the_distance_of_two_states(8.0, 4)
    sampler = gibbs(package).fit(pair(package))
    before = sampler.run_.packed_chains()
    assert 2 <= sampler.thin_ <= 4, "two spins need a few transitions"
    assert sampler.run_.packed_chains() == before, "chains do not notice"


def check_inspect(package):
    tests = anew("test_stopping")
    with pytest.MonkeyPatch.context() as patched:
        tests.test_a_run_is_looked_at_from_another_thread(tests.GibbsSampler, patched)


def check_stopping(package):
    """A rule is asked at 64, 128, ... draws since fit, and waits for what never changed."""
    rules = package.diagnostics.stopping
    sampler = gibbs(package).fit(pair(package))
    sampler.sample(100)
    draws = sampler.sample(500, stop=lambda run: True)
    assert draws.sizes["draw"] == 28, "rules are asked at draws counted since fit"
    never, always = (lambda run: False), (lambda run: True)
    draws = sampler.sample(90, stop=rules.AllOf(never, always))
    assert draws.sizes["draw"] == 90, "all rules must say so at once"
    draws = sampler.sample(300, stop=[never, always])
    assert draws.sizes["draw"] < 300, "one of several rules is enough"
    stuck = gibbs(package, n_burn_in=60).fit(pair(package, 700.0))
    rule = rules.EffectiveSampleSize(5)
    assert not stuck.sample(200, stop=rule).attrs["stopped_by"], "a rule waits for what is frozen"
    table = rules.EffectiveSampleSize(5, ignore_frozen=True)
    assert stuck.sample(200, stop=table).attrs["stopped_by"], "or overlooks it if told so"


# ----------------------------------------------------------------- starts


def check_starts(package):
    tests = anew("test_starts")
    tests.test_every_second_chain_is_quenched()
    tests.test_nothing_leads_up_from_a_quenched_state(tests.TARGETS["network"])


def check_opposite_modes(package):
    anew("test_starts").test_quenched_chains_of_a_magnet_start_in_opposite_modes(60)


def check_bounded_search(package):
    anew("test_starts").test_the_search_is_bounded_in_evaluations(40)


def check_rare_value(package):
    anew("test_starts").check_value_of_known_rarity()


def check_walks_that_keep_a_variable(package):
    anew("test_starts").check_walks_that_keep_a_variable()


def check_rare_values_together(package):
    anew("test_starts").check_rare_values_together()


def check_difference(package):
    anew("test_changed_targets").check_difference_of_small_terms()


# ----------------------------------------------------------------- warnings and draws


@contextlib.contextmanager
def told(package, name, match=""):
    """What is warned of; fails if it is not."""
    with pytest.warns(getattr(package.exceptions, name), match=match):
        yield


def check_warnings(package):
    flat = package.Ising(np.zeros((2, 2)))
    settings = {"n_burn_in": 0, "n_chains": 2, "random_state": 0, "init": "uniform"}
    balanced = package.LSBSampler("barker", blocks=None, **settings).fit(flat)
    with told(package, "PeriodicChainWarning", "even and odd states"):
        balanced.sample(40)
    stuck = package.Ising(np.zeros((3, 3)), [0.0, 80.0, 0.0])
    with told(package, "FrozenSitesWarning", "site 1"):
        gibbs(package, n_burn_in=30).fit(stuck).sample(40)
    large = package.Ising(np.zeros((8, 8)))
    with told(package, "ShortRunWarning", "of a sweep"):
        gibbs(package).fit(large).sample(5)
    tied = package.Ising([[0.0, 9.0], [9.0, 0.0]])
    sampler = gibbs(package, n_chains=4).fit(
        tied, initial_states=np.repeat([[1], [-1]], 2, axis=1)[[0, 0, 1, 1]]
    )
    with told(package, "SeparatedModesWarning", "The chains disagree"):
        sampler.sample(200)


def check_no_warning(package):
    """What is observed cannot move, and nobody is told that it does not."""
    target = package.Ising(np.zeros((3, 3))).condition({1: 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error", package.exceptions.SamplerWarning)
        sampler = gibbs(package).fit(target)
        try:
            sampler.sample(200)
        except package.exceptions.SamplerWarning as warning:
            raise AssertionError(f"nothing is to be told, but {warning}") from warning


def check_history(package):
    """Rows of a burn-in are the same whether its states are kept, the last one shorter."""
    target, found = pair(package), []
    for keep in (False, True):
        sampler = package.LSBSampler(
            "barker", blocks=None, n_burn_in=401, n_chains=2, keep_burn_in=keep, random_state=0
        )
        found.append(sampler.fit(target).history_)
    assert found[0].sizes == found[1].sizes
    for name in found[0].data_vars:
        one, other = (history[name].values for history in found)
        if one.dtype.kind == "f":
            assert np.allclose(one, other, rtol=1e-12, equal_nan=True), f"{name} in the history"


def looped(package):
    """A loop in a row of one: log p has a constant."""
    target = package.Ising([[1.5, 0.4], [0.4, 0.0]], [0.3, 0.1])
    assert target.constant == 1.5
    return target


def check_constant(package):
    """Log p has its constant wherever draws go."""
    target = looped(package)
    x = gibbs(package).fit(target).sample(30)["x"].values
    wanted = target.log_prob(x)
    moments = gibbs(package).fit(target).sample(30, record="moments")
    assert np.isclose(moments["lp"], wanted.mean()), "the mean of lp in moments"
    assert np.allclose(moments["mean"], x.mean(axis=(0, 1))), "means in moments"
    sampler = gibbs(package).fit(target)
    found = sampler.sample(30, record={"sum": lambda x: x.sum(axis=1)})
    assert np.array_equal(found["sum"], x.sum(axis=2)), "recorded statistics"
    assert np.allclose(sampler.sample_stats_["lp"], wanted), "lp of recorded draws"


def check_observer(package):
    """What one of a user is shown of three calls, the last of which has no draw."""
    sampler = gibbs(package).fit(looped(package))
    whole = copy.copy(sampler).sample(30)

    class Kept(package.extending.Observer):
        def init(self, call):
            return np.empty((2, 0)), np.empty((2, 0, *call.target.shape))

        def see(self, carry, chunk):
            assert chunk.x.size, "chunks have draws"
            assert chunk.x.shape[1] <= 7, "no more than it takes"
            return np.append(carry[0], chunk.lp, 1), np.append(carry[1], chunk.x, 1)

        def most(self, carry):
            return 7

        def result(self, carry):
            lp, x = carry
            return xr.Dataset({"lp": (("chain", "draw"), lp), "x": (("chain", "draw", "site"), x)})

    parts = [sampler.sample(n, thin=1, record=Kept()) for n in (20, 10, 0)]
    found = xr.concat(parts, "draw")
    assert found.sizes["draw"] == 30, "all chunks are seen"
    assert np.array_equal(found["x"], whole["x"]), "states are seen"
    assert np.array_equal(found["lp"], whole["lp"]), "lp is seen"
    assert sampler.sample(1, thin=3000, record=Kept()).sizes["draw"] == 1


# ----------------------------------------------------------------- storage


def check_stored(package, folder):
    """A stored run that goes on, also by another process, is the run in memory."""
    pytest.importorskip("zarr")
    target = looped(package)
    wanted = gibbs(package).fit(target).sample(40)
    path = folder / "run.zarr"
    sampler = gibbs(package).fit(target)
    sampler.sample(15, store=path)
    again = package.GibbsSampler.resume(path, target)
    again.sample(25, store=path)
    found = package.open_draws(path)
    assert np.array_equal(found["x"], wanted["x"]), "stored draws are those in memory"
    assert np.allclose(found["lp"], wanted["lp"]), "stored lp"
    store_error = inside(package, "storage.stores").StoreError
    with pytest.raises(store_error, match="does not end where the chains"):
        sampler.sample(5, store=path)
    with pytest.raises(store_error, match="thin"):
        again.sample(5, thin=2, store=path)
    other = package.Ising([[1.5, 0.4], [0.4, 0.0]], [0.3, 0.2])
    with pytest.raises(store_error, match="with other parameters"):
        package.GibbsSampler.resume(path, other)


def check_store(package):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        check_stored(package, Path(folder))


def check_files(package):
    """A value comes back as it was, generators shared; a bit that flipped is found."""
    codec = inside(package, "storage.codec")
    rng = np.random.default_rng(3)
    value = {
        "list": [1, 2.5, None, "x", (1, 2)],
        "arrays": [np.arange(3, dtype=np.int8), np.float32(0.1), np.arange(5.0)],
        "rng": [rng, rng],
    }
    rng.random(5)
    data = codec.packed(value)
    found = codec.unpacked(data)
    assert codec.packed(found) == data, "what is read is what was written"
    assert found["list"] == value["list"], "plain values"
    for one, other in zip(found["arrays"], value["arrays"], strict=True):
        assert np.array_equal(one, other), "arrays are read where they were written"
    assert found["rng"][0] is found["rng"][1], "a generator that is shared stays so"
    assert found["rng"][0].random() == rng.random(), "a generator goes on"
    for at in (3, 20, 60, len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 4
        with pytest.raises(codec.DamagedError):
            codec.unpacked(bytes(changed))
    with pytest.raises(TypeError, match="is no class of a sampler"):
        codec.find_class("os", "system")


def check_joined(package):
    """Chains of several stores are read in the order in which they are asked for."""
    parts = inside(package, "storage.parts")
    rng = np.random.default_rng(0)
    made = [
        xr.Dataset(
            {"x": (("chain", "draw", "site"), rng.random((n, length, 2)))},
            coords={"chain": np.arange(n), "draw": np.arange(length)},
            attrs={"thin": 3},
        )
        for n, length in ((2, 7), (1, 5), (3, 6))
    ]
    found = parts.joined(made)
    whole = np.concatenate([part["x"].values[:, :5] for part in made])
    assert np.array_equal(found["x"], whole), "all chains, as far as all have come"
    assert found.attrs["sampled_transitions"] == 15
    order = [4, 0, 3, 1]
    assert np.array_equal(found["x"].isel(chain=order), whole[order]), "chains in any order"
    assert np.array_equal(found["x"].isel(chain=3, draw=2), whole[3, 2]), "one chain"


def check_commands(package):
    """The partition function is written as its logarithm to base 10."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        folder = pathlib.Path(folder)
        model, out, pr = (folder / name for name in ("model.uai", "MAR", "PR"))
        model.write_text("MARKOV 1 2 1 1 0 2 0.1 0.2")
        words = ["marginals", str(model), "--out", str(out), "--pr", str(pr)]
        assert inside(package, "__main__").main(words) == 0
        assert np.isclose(package.io.read_result(pr), np.log10(0.3)), "log10 Z"
        assert np.allclose(package.io.read_result(out), [[1 / 3, 2 / 3]]), "marginals"


MUTANTS = {
    "counts of a round that is cut off forgotten": Mutant(
        "samplers/_tempering/schedule.py",
        "        if not self.made:\n",
        "        if True:\n",
        check_checkpoint,
        "goes on bit for bit",
    ),
    "states before a crash forgotten": Mutant(
        "balancing/learning.py",
        "store.parts, pairs, before, kept = loop",
        "_, pairs, before, kept = loop",
        check_checkpoint,
        "goes on bit for bit",
    ),
    "long arrays of a checkpoint compared by what is printed": Mutant(
        SAVING,
        "if (then, mark) != (now, new):",
        "if then != now:",
        check_arrays_of_checkpoints,
        ".",
    ),
    # What is said of draws
    "means given a value not weighted by its probability": Mutant(
        "diagnostics/expectation.py",
        "variance += p[i, k] * alone",
        "variance += alone",
        check_expectation,
        ".",
    ),
    "errors by visits that are those of one visit": Mutant(
        "diagnostics/expectation.py",
        ".std(axis=0) * np.sqrt(len(sizes) - 1.0)",
        ".std(axis=0)",
        check_expectation,
        ".",
    ),
    "arrows from children to parents": Mutant(
        "plot.py",
        "(scope[a], scope[b]) if child == [b] else (scope[b], scope[a])",
        "(scope[b], scope[a]) if child == [b] else (scope[a], scope[b])",
        check_pictures,
        ".",
    ),
    "couplings drawn without their sign": Mutant(
        "plot.py",
        "_POSITIVE if (strength > 0) == (one == other) else _NEGATIVE",
        "_POSITIVE",
        check_pictures,
        ".",
    ),
    "colours that go by the order of values": Mutant(
        "plot.py", "(strength > 0) == (one == other)", "strength > 0", check_pictures, "."
    ),
    "visits to the first of two values counted as those of the second": Mutant(
        TALLY,
        "seen = n_looks - seen if two and index == 0 else seen",
        "seen = n_looks - seen if two and index == 1 else seen",
        check_visits,
        ".",
    ),
    "what is lost is told, and agrees": Mutant(
        AGREEMENT, "agree = not lost and seen", "agree = seen", check_lost, "do not agree"
    ),
    "two batches become the first of them": Mutant(
        BATCHES,
        "self.sums[:, :k] = self.sums[:, ::2] + self.sums[:, 1::2]",
        "self.sums[:, :k] = self.sums[:, ::2]",
        check_tally,
        ".",
    ),
    "draws of a call looked at from its first one": Mutant(
        TALLY,
        "begin = max(0, -(-(self.every - self.since) // thin) - 1)",
        "begin = 0",
        check_tally,
        ".",
    ),
    "more values added up than their type holds": Mutant(
        TALLY,
        "max(1, np.iinfo(x.dtype).max //",
        "max(1, 4 * np.iinfo(x.dtype).max //",
        check_tally,
        ".",
    ),
    "counts of batches beyond their type": Mutant(
        BATCHES, "2 * self.size > np.iinfo", "self.size // 9 > np.iinfo", check_tally, "."
    ),
    "R-hat without the variance of the means": Mutant(
        TALLY,
        "r_hat = np.sqrt(1.0 - 1.0 / n + between / within)",
        "r_hat = np.sqrt(1.0 - 1.0 / n + 0.5 * between / within)",
        check_r_hat,
        ".",
    ),
    "the effective size of one half": Mutant(
        TALLY, "ess = m * within / np.where", "ess = within / np.where", check_sizes, "."
    ),
    "halves of a chain not compared": Mutant(
        AGREEMENT,
        "worst = int(seen.argmin())",
        "worst = int(seen.argmax())",
        check_told_apart,
        ".",
    ),
    "each look at a run taken for the only one": Mutant(
        AGREEMENT,
        "looks = 1.0 + np.log2(tally.n_draws / FEWEST_DRAWS)",
        "looks = 1.0",
        check_looked_at_again,
        ".",
    ),
    "visits counted by whichever are more": Mutant(
        MARGINALS,
        "np.minimum(inside, outside)",
        "np.maximum(inside, outside)",
        check_errors_of_visits,
        ".",
    ),
    "autocorrelations of indicators that may rise again": Mutant(
        MEASURES,
        "np.minimum.accumulate(sums, axis=1)",
        "sums",
        check_ess,
        ".",
    ),
    "effective sizes of means for three values": Mutant(
        MEASURES,
        "(draws == largest)).all()",
        "(draws == largest)).any()",
        check_ess_of_two_values,
        ".",
    ),
    "shares that are rounded": Mutant(
        MARGINALS,
        "(n - np.rint(n * p[pairs, 0])) / n",
        "1.0 - p[pairs, 0]",
        check_shares,
        ".",
    ),
    "a last autocorrelation that is negative": Mutant(
        MEASURES,
        "np.where((more > 0.0) | (end >= 0.0), more, 0.0)",
        "more",
        check_ess,
        ".",
    ),
    "visits of replicas taken together over the chains": Mutant(
        MARGINALS,
        "[a + one for a, one in zip(first, own, strict=False)]",
        "own",
        check_errors_of_visits,
        ".",
    ),
    "a sample compared with itself": Mutant(
        MEASURES, "(_kernel_sum(s, s) - len(s))", "_kernel_sum(s, s)", check_mmd, "."
    ),
    "moments by the shortest batches": Mutant(
        BATCHES,
        "sorted({1, 4, max(4, n // 4)})",
        "(1,)",
        check_moments,
        ".",
    ),
    "chains that stay apart taken for one": Mutant(
        BATCHES, "np.where(apart, np.fmax(halves, error), error)", "error", check_moments, "."
    ),
    "probabilities as differences of shares": Mutant(
        MOMENTS,
        "p, by_batch = self.spread(mean[:n]), self.spread(batches[..., :n])",
        "p, by_batch = self.spread(mean[:n]), self.spread(batches[..., :n])\n"
        "        p[:, 0] = 1.0 - p[:, 1:].sum(axis=1)",
        check_moments,
        ".",
    ),
    "errors of moments by full batches alone": Mutant(
        MOMENTS,
        "marginal_errors(p, of_batches, len(self.sums) * self.n_draws)",
        "marginal_errors(p, of_batches, np.inf)",
        check_few_visits,
        ".",
    ),
    "a batch of moments begun anew by a call": Mutant(
        MOMENTS,
        "part = states[:, new]",
        "self.sums[:, at] *= new.start > 0; part = states[:, new]",
        check_parts_of_moments,
        ".",
    ),
    "the value of a variable taken for its first": Mutant(
        RUN,
        "n, here = np.int64(end - begin), place[np.int64(chain.x[i])]",
        "n, here = np.int64(end - begin), 0",
        check_averages,
        "conditional probabilities",
    ),
    "conditionals relative to the present value alone": Mutant(
        RUN,
        "total[at + here] += stay / whole",
        "total[at + here] += 1.0 / whole",
        check_averages,
        "conditional probabilities",
    ),
    "conditionals of the state before": Mutant(
        "targets/offers.py",
        "other + (other >= places[..., site])",
        "other + (other > places[..., site])",
        check_averages,
        ".",
    ),
    "no doubt about what was never left": Mutant(
        AVERAGES,
        "errors = np.where((self._inside > 0) & (self._outside > 0), errors, np.nan)",
        "errors = np.where((self._inside > 0) | (p > 0.0), errors, np.nan)",
        check_never_left,
        ".",
    ),
    # How far apart draws are
    "draws worth a third": Mutant(
        THINNING,
        "return every * math.log(3.0) / math.log(",
        "return every * math.log(2.0) / math.log(",
        check_distance,
        ".",
    ),
    "the distance without the distance of looks": Mutant(
        THINNING,
        "return every * math.log(3.0) / math.log(",
        "return math.log(3.0) / math.log(",
        check_distance,
        ".",
    ),
    "the distance found on the streams of the chains": Mutant(
        "samplers/_run/traits.py",
        'ensemble.streams.copy().of("pilot", THINNING)',
        'ensemble.streams.of("pilot", THINNING)',
        check_distance,
        "chains do not notice",
    ),
    # When to stop
    "rules asked by the draws of the call": Mutant(
        WATCH,
        "self._from(max(1, self.first))",
        "self.first + self._from(1)",
        check_stopping,
        "counted since fit",
    ),
    "counts that go on while they are looked at": Mutant(
        WATCH,
        "            counters = copy.deepcopy(self.counters)\n",
        "            counters = self.counters\n",
        check_inspect,
        ".",
    ),
    "any of all rules": Mutant(
        STOPPING,
        "return all([asked(rule, run) for rule in self.rules])",
        "return any([asked(rule, run) for rule in self.rules])",
        check_stopping,
        "all rules must say so",
    ),
    "a rule that does not wait for what is frozen": Mutant(
        STOPPING,
        "run.ess >= self.at_least and (self.ignore_frozen or not run.n_frozen)",
        "run.ess >= self.at_least",
        check_stopping,
        "waits for what is frozen",
    ),
    # Where chains start
    "values of one in eleven not taken for rare": Mutant(
        STARTS,
        "_RARE, MOST_WALKERS = 8, 0.1, 64",
        "_RARE, MOST_WALKERS = 8, 0.02, 64",
        check_rare_value,
        "a value of one in eleven is tried",
    ),
    "walks that go downhill": Mutant(
        UPHILL, "rising = gain > noise(", "rising = -gain > noise(", check_starts, "."
    ),
    "of changes that do not lead up together the worse half tried": Mutant(
        UPHILL, "in zip(rows, n.tolist()", "in zip(-rows, n.tolist()", check_starts, "."
    ),
    "all chains quenched but every second": Mutant(
        STARTS, '(init == "both" and c % 2)', '(init == "both" and not c % 2)', check_starts, "."
    ),
    "no chain starts far from the best state": Mutant(
        STARTS, "far=n_before % 2 == 1", "far=False", check_opposite_modes, "."
    ),
    "variables that stay, of another search": Mutant(
        UPHILL,
        "fixed[owner == k] = np.searchsorted",
        "fixed[: len(walks.fixed)] = np.searchsorted",
        check_rare_values_together,
        ".",
    ),
    "variables that stay, of other walks": Mutant(
        UPHILL,
        "gain[stays, fixed[walking[stays]]]",
        "gain[stays, fixed[stays]]",
        check_walks_that_keep_a_variable,
        ".",
    ),
    "looks of a search not counted": Mutant(
        UPHILL,
        "account.evaluations += n * self._look_cost",
        "account.evaluations += 0",
        check_bounded_search,
        ".",
    ),
    "only the largest difference of log p looked at": Mutant(
        FINGERPRINT,
        "doubtful = np.flatnonzero(gap > _ROUNDING * size)",
        "doubtful = np.flatnonzero(gap >= gap.max())",
        check_difference,
        "the state of small terms differs",
    ),
    # Warnings
    "periodic chains not told": Mutant(
        WARNINGS,
        "n_transitions < 2 * self.target.n_sites",
        "n_transitions > 2 * self.target.n_sites",
        check_warnings,
        "DID NOT WARN|even and odd",
    ),
    "frozen variables told by the number of a move": Mutant(
        WARNINGS,
        "first = int(frozen.argmax())",
        "first = int(frozen.argmin())",
        check_warnings,
        "site 1",
    ),
    "what is observed told as frozen": Mutant(
        WARNINGS,
        "frozen = self.target.n_possible > 1",
        "frozen = self.target.n_possible > 0",
        check_no_warning,
        "nothing is to be told",
    ),
    "short runs not told": Mutant(
        WARNINGS,
        "if made < self.sweep:\n            found",
        "if made > self.sweep:\n            found",
        check_warnings,
        "of a sweep|DID NOT WARN",
    ),
    "chains that disagree not told": Mutant(
        WARNINGS,
        "        if found.agree or self.algorithm.independent:\n            return\n",
        "        return\n",
        check_warnings,
        "DID NOT WARN|The chains disagree",
    ),
    # Draws
    "the last row of a burn-in divided by a whole one": Mutant(
        BURN_IN,
        "ensemble.chains.acceptance[:, 0] / (n % every)",
        "ensemble.chains.acceptance[:, 0] / every",
        check_history,
        "in the history",
    ),
    "moments of lp without its constant": Mutant(
        SAMPLE,
        "segment.lp[:] += target.constant\n",
        "segment.lp[:] += 0.0\n",
        check_constant,
        "the mean of lp",
    ),
    "statistics of the states before": Mutant(
        OBSERVERS,
        "values = [apply(name, statistic, x) for x in chunk.x]",
        "values = [apply(name, statistic, x[::-1]) for x in chunk.x]",
        check_constant,
        "recorded statistics",
    ),
    "an observer that forgets": Mutant(
        SAMPLE,
        "carry = observer.see(",
        "observer.see(",
        check_observer,
        "all chunks are seen",
    ),
    "more draws shown than an observer takes": Mutant(
        SAMPLE,
        "call.most_shown if shown is None else max(1, shown)",
        "call.most_shown",
        check_observer,
        "no more than it takes",
    ),
    "chunks without draws": Mutant(
        SAMPLE,
        "                    if segment.lp.size:\n",
        "                    if True:\n",
        check_observer,
        "chunks have draws",
    ),
    # Storage
    "stored lp without its constant": Mutant(
        STORED,
        "places[name][:] = chunk.stats[:, :, k]",
        "places[name][:] = chunk.stats[:, ::-1, k]",
        check_store,
        "stored lp",
    ),
    "another run goes on in a store": Mutant(
        STORED,
        "            if kept != self._begin:\n",
        "            if not kept:\n",
        check_store,
        "DID NOT RAISE",
    ),
    "draws of another thin in a store": Mutant(
        STORED,
        'if known["thin"] != given["thin"]:',
        "if False:",
        check_store,
        "DID NOT RAISE",
    ),
    "the older checkpoint taken": Mutant(
        STORES,
        'max(found, key=lambda state: int(state["sequence"]))',
        'min(found, key=lambda state: int(state["sequence"]))',
        check_store,
        "stored|Regex",
    ),
    "fields of a target not looked at": Mutant(
        FINGERPRINT,
        "        digest.update(np.ascontiguousarray(value).tobytes())\n",
        "",
        check_store,
        "Regex",
    ),
    "checksums not compared": Mutant(
        CODEC,
        "if hashlib.blake2b(body, digest_size=_DIGEST).digest() != data[len(_MAGIC) : _HEAD]:",
        "if not body:",
        check_files,
        "DID NOT RAISE",
    ),
    "arrays that lie over each other": Mutant(
        CODEC,
        "self._size += len(data) + fill",
        "self._size += len(data)",
        check_files,
        "what is read|arrays are read",
    ),
    "shared generators written twice": Mutant(
        CODEC, "if id(value) in self._seen:", "if False:", check_files, "shared|what is read"
    ),
    "files that name any class": Mutant(
        CODEC, "    if not allowed:\n", "    if found is None:\n", check_files, "DID NOT RAISE"
    ),
    "chains read as far as the first has come": Mutant(
        PARTS,
        'n = min(part.sizes["draw"] for part in parts)',
        'n = parts[0].sizes["draw"]',
        check_joined,
        ".",
    ),
    "the natural logarithm in a file of base 10": Mutant(
        "__main__.py",
        'sklsb.io.write_result(args.pr, "PR", log_z / math.log(10))',
        'sklsb.io.write_result(args.pr, "PR", log_z)',
        check_commands,
        "log10 Z",
    ),
}


test_a_planted_error_is_found, test_the_package_itself_passes = both_tests(MUTANTS)

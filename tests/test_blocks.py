"""Redraws of blocks in LSBSampler: exactness, when they are used, and that chains go on."""

import copy
import pickle
import signal
import warnings

import networkx as nx
import numpy as np
import pytest
from exact_matrices import conditional
from local_step import check_sampler
from models import chain_network, pairs, potts

from sklsb import RBM, Ising, LSBSampler, MarkovNetwork, Sqrt, TorchTarget, exact
from sklsb._kernels.elimination.buckets import LOG
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.redraw import Blocks
from sklsb._kernels.run import Drawing
from sklsb.diagnostics.tally import RareValue, chance_of_difference
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.elimination.blocks import BlockPool, Whole, choose_blocks
from sklsb.exact.elimination.engine import Elimination, ordered
from sklsb.exact.elimination.mixed import BlockedEnsemble, mixture
from sklsb.exact.elimination.passes import Passes
from sklsb.exact.elimination.reduce import strike
from sklsb.exact.matrices import rule_of
from sklsb.exceptions import BlocksWarning, InterruptedWarning, SamplerWarning
from sklsb.samplers._lsb.fitting import Learning
from sklsb.samplers._run.warnings import exact_hint

SQRT = Balanced(Sqrt().table())
OR = [[[1, 0], [0, 1]], [[0, 1], [0, 1]]]


def either():
    """The third variable is the OR of the others; all three 0 has no possible neighbour."""
    return MarkovNetwork([2, 2, 2], [((0,), [0.7, 0.3]), ((1,), [0.6, 0.4]), ((0, 1, 2), OR)])


def with_zeros(seed, n=5):
    """Random tables over neighbours on a ring, a third of the entries zero."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, n)
    state = rng.integers(sizes)  # is possible
    factors = []
    for i in range(n):
        scope = (i, (i + 1) % n, (i + 2) % n)
        table = rng.random(sizes[list(scope)]) * (rng.random(sizes[list(scope)]) < 2 / 3)
        table[tuple(state[list(scope)])] = 0.5
        factors.append((scope, table))
    return MarkovNetwork(sizes, factors)


def two_modes(side=4, coupling=2.0, field=0.0):
    return Ising.lattice(np.full((side, side), field), coupling)


STATE = with_zeros(4, 6).draw_state(np.random.default_rng(0))
TARGETS = {
    "either": either,
    "zeros 0": lambda: with_zeros(7, 6),
    "zeros 1": lambda: with_zeros(6, 6),
    "evidence": lambda: with_zeros(4, 6).condition({0: int(STATE[0])}),
    "cold": lambda: Ising.lattice(np.full((2, 3), 0.1), 3.0),
    "small numbers": lambda: MarkovNetwork(
        [2] * 5, [((i, (i + 1) % 5), [[1.0, 1e-300], [1e-290, 1e-10]]) for i in range(5)]
    ),
}


def pool_of(target, log2_size):
    struck = strike(target)
    return BlockPool(struck, choose_blocks(struck, log2_size))


def whole_of(target, n_chains, **limits):
    return Whole(Elimination(ordered(strike(target), **limits)), n_chains)


def blocked(target, source, states, share=0.5, n_jobs=1, seed=0):
    streams = Streams(spawn(seed, len(states)))
    rule = mixture(SQRT, source, share)
    ensemble = BlockedEnsemble(target, states, streams, n_jobs, rule, source)
    ensemble.start(rule)
    return ensemble


def possible_states(target):
    x = exact.states(target)
    return x[np.isfinite(target.log_prob(x))]


def index_of(target, x):
    sizes = target.cardinalities
    return np.ravel_multi_index(np.searchsorted(target.values, x).T, sizes)


# ----------------------------------------------------------------- exactness


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("log2_size", [1, 2, 3])
def test_blocks_are_drawn_from_their_exact_conditionals(name, log2_size):
    target = TARGETS[name]()
    check_conditionals(target, pool_of(target, log2_size), possible_states(target))


def check_conditionals(target, pool, states):
    """Compare blocks with enumeration; returns how the last messages of each were made."""
    values = np.asarray(target.values)
    for b, block in enumerate(pool.blocks):
        expected = np.exp(conditional(target, block))
        for x in states:
            given = pool._index[np.arange(x.size), np.searchsorted(values, x)]
            shape = pool.model.sizes[block]
            inside = np.array(list(np.ndindex(*shape)))
            near = np.repeat(pool.forward(b, given), len(inside), axis=1)
            near[block] = inside.T
            p = pool._passes[b].probabilities(near)
            places = np.stack(
                [values[left][row] for left, row in zip(pool.model.values, near, strict=True)]
            )
            found = np.zeros(len(expected))
            found[index_of(target, places.T)] = p
            row = expected[index_of(target, x[None])[0]]
            np.testing.assert_allclose(found, row, rtol=1e-13, atol=1e-15)
    return {passes.mode for passes in pool._passes}


@pytest.mark.parametrize("log2_size", [1, 2, 3, 8])
def test_every_variable_is_in_some_block_and_tables_are_small(log2_size):
    target = Ising.lattice(np.zeros((6, 6)), 1.0)
    struck = strike(target)
    pool = BlockPool(struck, choose_blocks(struck, log2_size))
    assert {int(i) for block in pool.blocks for i in block} == set(range(36))
    for passes in pool._passes:
        tables = passes.plan.buckets.message_size * passes.plan.buckets.k
        assert tables.max() <= 2**log2_size
    assert 1 <= len(pool.blocks) <= 16


def test_a_model_that_fits_is_one_block():
    target = Ising.lattice(np.zeros((3, 3)), 1.0, periodic=False)
    (block,) = pool_of(target, 8).blocks
    np.testing.assert_array_equal(block, np.arange(9))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", ["whole", "pool"])
def test_a_mixture_keeps_the_target_and_is_reversible(name, kind):
    target = TARGETS[name]()
    source = whole_of(target, 1) if kind == "whole" else pool_of(target, 2)
    rule = mixture(SQRT, source, 0.25)
    found, p = exact.transition_matrix(rule, target), exact.probabilities(target)
    gate = 64 * np.finfo(float).eps * len(p)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=0, atol=gate)
    np.testing.assert_allclose(p[:, None] * found, (p[:, None] * found).T, rtol=0, atol=gate)
    if kind == "whole":
        redrawn = exact.transition_matrix(rule.second, target)[p > 0]
        np.testing.assert_allclose(redrawn, np.tile(p, (len(redrawn), 1)), rtol=0, atol=gate)


@pytest.mark.parametrize(
    ("name", "kind"), pairs(["either", "zeros 0", "cold"], ["whole", "sliced", "pool"])
)
def test_transitions_are_those_of_the_matrix(name, kind):
    """Chi-square of 1,500 single transitions out of each of three states."""
    target, n = TARGETS[name](), 1500
    if kind == "pool":
        source = pool_of(target, 2)
    else:
        short = {"zeros 0": 3500}.get(name, 1000)
        source = whole_of(target, n, limits=(2**30, 2**28 if kind == "whole" else short))
    matrix = exact.transition_matrix(mixture(SQRT, source, 0.5), target)
    states = possible_states(target)
    for seed, x in enumerate(states[:: -(-len(states) // 3)]):
        ensemble = blocked(target, source.copy(), np.tile(x, (n, 1)), seed=seed)
        nothing = np.empty((n, 0, x.size), target.dtype), np.empty((n, 0, 2))
        ensemble.run(1, Drawing(), nothing)
        row = matrix[index_of(target, x[None])[0]]
        count = np.bincount(index_of(target, ensemble.chains.x), minlength=row.size)
        assert not count[row == 0].any()
        large = n * row > 5
        expected = np.append(n * row[large], n * row[~large].sum() + 1e-9)
        seen = np.append(count[large], count[~large].sum())
        statistic = ((seen - expected) ** 2 / np.maximum(expected, 1.0)).sum()
        k = expected.size  # above this with probability below 1e-9
        assert statistic < k + 8.8 * np.sqrt(k) + 45


def test_tables_that_are_too_small_for_floats():
    table = [[1.0, 1e-300], [1e-300, 1e-300]]
    target = MarkovNetwork([2] * 6, [((i, 5), table) for i in range(5)])
    states = np.array([[1] * 6, [1, 1, 1, 1, 1, 0]], dtype=np.int8)
    assert LOG in check_conditionals(target, pool_of(target, 1), states)


def test_blocks_given_an_impossible_state_are_not_drawn():
    pool = pool_of(MarkovNetwork([2] * 3, [((0, 1, 2), OR)]), 1)
    with pytest.raises(ValueError, match="no state of positive probability given the others"):
        pool.forward(pool.orders.index([0]), np.array([0, 1, 0]))


def test_copies_share_an_elimination_only_when_it_is_finished():
    source = whole_of(either(), 2)
    assert source.copy().elimination is not source.elimination
    source.want([1, 1], 1, [np.random.default_rng(c) for c in range(2)])
    assert source.copy().elimination is source.elimination
    again = pickle.loads(pickle.dumps(source))  # it makes its messages when they are needed
    assert again.copy().elimination is not again.elimination


# ----------------------------------------------------------------- when they are used


def fitted(target, blocks="auto", **params):
    settings = {"n_burn_in": 300, "random_state": 0, "n_chains": 3, "pilot": False} | params
    settings = {"init": "both"} | settings
    return LSBSampler("sqrt", blocks=blocks, **settings).fit(target)


def draws(sampler, n, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        return sampler.sample(n, **settings)["x"].values


def test_zeros_that_tie_variables_are_answered_right_by_default():
    target = either()
    sampler = fitted(target)
    assert sampler.blocks_.kind == "whole"
    assert "zeros" in sampler.blocks_.why
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = sampler.sample(20_000)["x"].values
    p = exact.marginals(target)["p"].values[:, 1]
    np.testing.assert_allclose(x.mean(axis=(0, 1)), p, rtol=0, atol=0.02)
    assert "BlockChoice('whole', 1 of 3 to 3 variables" in sampler.sample_stats_.attrs["blocks_"]


def test_separated_modes_are_found_by_scouts():
    sampler = fitted(two_modes())
    assert sampler.blocks_.kind == "whole"
    assert "disagree" in sampler.blocks_.why
    x = draws(sampler, 3000).reshape(3, -1, 16)
    assert np.abs((x.sum(axis=2) > 0).mean(axis=1) - 0.5).max() < 0.15


def test_chains_that_agree_on_one_mode_are_compared_with_exact_draws(monkeypatch):
    up = np.ones((4, 4))
    settings = {"n_burn_in": 300, "random_state": 0}
    magnet = two_modes(field=1e-6)  # a little: no symmetry tells
    sampler = LSBSampler("sqrt", **settings).fit(magnet, initial_states=up)
    assert sampler.blocks_.kind == "whole"
    assert "with exact draws" in sampler.blocks_.why
    monkeypatch.setattr("sklsb.trials.scouts._TO_LOOK", 0)
    sampler = LSBSampler("sqrt", **settings).fit(magnet, initial_states=up)
    assert sampler.blocks_.kind == "none"
    sampler = LSBSampler("sqrt", **settings).fit(two_modes(), initial_states=up)
    assert sampler.blocks_.kind == "whole"
    assert "scouts disagree" in sampler.blocks_.why


def two_state_chains(rng, shape, rho):
    """Chains of fair spins whose autocorrelation is rho**lag; shape (chains, draws, series)."""
    x, stay = rng.integers(2, size=shape), rng.random(shape) < rho
    for t in range(1, shape[1]):
        x[:, t] = np.where(stay[:, t], x[:, t - 1], x[:, t])
    return x


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_slow_chains_do_not_differ_from_exact_draws(rho):
    """That is, p-values nearly hold: of 4,000 series 1 % to 2 % are below 0.01."""
    rng = np.random.default_rng(0)
    slow = two_state_chains(rng, (4, 128, 4000), rho)
    exact_draws = rng.integers(2, size=(512, 4000))
    p = chance_of_difference(slow, exact_draws)
    assert (p < 0.01).mean() < 0.025
    shifted = two_state_chains(rng, (4, 128, 100), rho) | (rng.random(100) < 0.5)
    assert (chance_of_difference(shifted, exact_draws[:, :100]) < 1e-4).mean() > 0.3


def test_chances_of_what_does_not_vary():
    one, zero = np.ones((2, 8, 1)), np.zeros((16, 1))
    assert np.isnan(chance_of_difference(one, one.reshape(16, 1))).all()
    assert (chance_of_difference(one, zero) < 1e-5).all()


def test_scouts_are_sent_as_far_as_the_burn_in_pays():
    target = Ising.lattice(np.full((24, 24), 0.2), 0.2)
    short, long = (fitted(target, n_burn_in=n) for n in (1000, 200_000))
    assert short.blocks_.kind == long.blocks_.kind == "none"
    for sampler, n in ((short, 1000), (long, 200_000)):
        own = fitted(target, None, n_burn_in=n).n_evaluations_
        assert sampler.n_evaluations_ - own < max(0.25 * own, 3 * 5 * 8500)
    many = fitted(Ising.lattice(np.full((40, 40), 0.2), 0.2))
    assert "too many variables to send scouts" in many.blocks_.why


@pytest.mark.parametrize("blocks", ["auto", None])
def test_warnings_say_where_exact_answers_are(blocks):
    sampler = fitted(two_modes(), blocks)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        sampler.sample(2000)
    said = [str(w.message) for w in seen if issubclass(w.category, SamplerWarning)]
    assert bool(said) == (blocks is None)
    assert all("exact.marginals" in text for text in said if "sweep" not in text)


def test_a_model_that_is_too_large_has_a_pool(monkeypatch):
    monkeypatch.setattr("sklsb.samplers._lsb.redraws.MAX_WORK", 2**10)
    monkeypatch.setattr("sklsb.samplers._lsb.redraws.LOG2_SIZE", 4)
    with pytest.warns(BlocksWarning, match="disagree.*too large.* mode to mode is not"):
        sampler = fitted(two_modes(6))
    assert sampler.blocks_.kind == "pool"
    assert "blocks are redrawn, of tables of 2**4" in sampler.blocks_.why
    assert 1 < len(sampler.blocks_.sites) <= 16
    assert rule_of(sampler, sampler.target_) is sampler.run_.ensemble.rule


def test_blocks_of_a_model_with_zeros_are_doubted():
    with pytest.warns(BlocksWarning, match=r"^Blocks=1; .*Whether blocks lead to all possible"):
        assert fitted(either(), 1).blocks_.doubt
    three = MarkovNetwork([3, 3], [((0, 1), [[0, 1, 2], [3, 0, 4], [9, 1, 0]])])
    with pytest.warns(BlocksWarning, match="small enough. Whether single changes lead"):
        assert fitted(three, 1).blocks_.kind == "none"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not fitted(either(), 4).blocks_.doubt
        assert not fitted(two_modes(), 4).blocks_.doubt


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (Ising.lattice(np.full((4, 4), 0.2), 0.2), "no zero ties variables, and scouts"),
        (potts(nx.path_graph(4), "zeros"), "no zero ties variables"),
        (RBM(np.ones((3, 2)), np.zeros(3), np.zeros(2)), "not made of factors"),
        (either().condition({0: 1, 1: 0}), "one state is possible|no zero ties"),
    ],
)
def test_elsewhere_nothing_changes(target, why):
    one, other = fitted(target), fitted(target, None)
    assert one.blocks_.kind == other.blocks_.kind == "none"
    assert other.blocks_.why == "blocks=None"
    assert any(part in one.blocks_.why for part in why.split("|"))
    np.testing.assert_array_equal(draws(one, 300), draws(other, 300))
    assert one.n_evaluations_ >= other.n_evaluations_


def test_without_a_burn_in_no_scouts_are_sent():
    sampler = fitted(two_modes(), n_burn_in=0)
    assert sampler.blocks_.kind == "none"
    x = np.ones(3, dtype=int)
    sampler = LSBSampler("sqrt", n_burn_in=0).fit(either(), initial_states=x)
    assert sampler.blocks_.kind == "whole"
    np.testing.assert_array_equal(sampler.state_, np.tile(x, (4, 1)))


def test_what_is_counted():
    target = either()
    sampler = fitted(target)
    before = sampler.n_evaluations_
    draws(sampler, 100)
    source = sampler.run_.ensemble.source
    rate = (sampler.n_evaluations_ - before) / 300
    share = sampler.blocks_.share
    # A redraw looks at its table entries and weighs all moves, a step those that it touches.
    most = share * (source.elimination.entries_per_draw + 3) + (1 - share) * 3
    assert 0.5 * most < rate < 1.5 * most


def test_acceptance_is_that_of_the_balanced_steps():
    sampler = fitted(either())
    draws(sampler, 2000)
    rate = sampler.sample_stats_["acceptance_rate"].values
    share = np.isnan(rate).mean()
    assert abs(share - sampler.blocks_.share) < 0.05
    assert ((rate >= 0) & (rate <= 1) | np.isnan(rate)).all()


@pytest.mark.parametrize(
    ("target", "params", "error", "message"),
    [
        (either(), {"blocks": "all"}, ValueError, "blocks is 'all'; give \"auto\", None"),
        (either(), {"blocks": 0}, ValueError, "blocks is 0; it must be at least 1"),
        (either(), {"blocks": 2.5}, TypeError, "blocks is 2.5; give an integer"),
        (either(), {"blocks": 22}, ValueError, r"2\*\*22 entries takes .* Give at most 21\."),
        (RBM([[1.0]], [0.0], [0.0]), {"blocks": 4}, TypeError, "blocks is 4, and RBM.* is not"),
        (two_modes(), {"blocks": 4, "fast": True}, ValueError, "blocks is 4 and fast is True"),
    ],
)
def test_bad_parameters(target, params, error, message):
    with pytest.raises(error, match=message):
        LSBSampler("sqrt", **params).fit(target)


class Offered(Ising):
    """A target of one's own, with whatever factors it offers."""

    log_factors = None


def test_factors_of_ones_own_are_looked_at_before_any_work(monkeypatch):
    couplings, field = np.full((2, 2), 0.5), np.ones(2)
    target = Offered(couplings, field)
    assert fitted(target).blocks_.why == "the target is not made of factors"
    assert not target.condition({0: 1}).offers.factors
    with pytest.raises(TypeError, match=r"blocks is 2, and Offered.* is not made of factors"):
        fitted(target, 2)
    assert exact_hint(target) == ""
    monkeypatch.setattr(Offered, "log_factors", [((0,), np.array([0.0, np.nan]))])
    monkeypatch.setattr("sklsb.samplers._lsb.fitting.run_burn_in", None)
    target = Offered(couplings, field)
    assert exact_hint(target) == ""
    for wrong in (target, target.condition({0: 1})):
        with pytest.raises(ValueError, match=r"log_factors\[0\] has an entry that is NaN"):
            fitted(wrong)


def test_first_order_chains_have_no_blocks():
    pytest.importorskip("torch")
    sampler = LSBSampler("sqrt", fast=True, n_burn_in=50).fit(two_modes())
    assert sampler.blocks_.why == "fast=True goes by first-order log-ratios"
    target = TorchTarget(lambda x: x.sum(-1), 3)
    assert LSBSampler("sqrt", n_burn_in=50).fit(target).blocks_.kind == "none"


# ----------------------------------------------------------------- chains go on


def sliced(monkeypatch):
    monkeypatch.setattr("sklsb.samplers._lsb.redraws.MAX_MEMORY", 5000)


CASES = {
    "whole": (two_modes, "auto"),
    "sliced": (two_modes, "auto"),
    "pool": (two_modes, 3),
    "zeros": (lambda: with_zeros(7, 6), 2),
}


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.BlocksWarning")
@pytest.mark.parametrize("name", CASES)
def test_draws_are_the_same_however_they_are_made(name, monkeypatch):
    if name == "sliced":
        sliced(monkeypatch)
    make, blocks = CASES[name]
    target = make()
    one, other = fitted(target, blocks), fitted(target, blocks, n_jobs=2)
    ensemble = one.run_.ensemble
    assert isinstance(ensemble, BlockedEnsemble)
    assert ensemble.source.whole == (name in ("whole", "sliced"))
    if name == "sliced":
        assert ensemble.source.elimination.log_sums.size > 1
    copies = pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)
    thinned, recorded = copy.copy(one), copy.copy(one)
    x = draws(one, 300)
    assert len(np.unique(x.reshape(-1, target.n_sites), axis=0)) > 1
    np.testing.assert_array_equal(draws(other, 300), x)
    for fork in copies:
        parts = [draws(fork, 100), draws(fork, 0), draws(fork, 1), draws(fork, 199)]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), x)
    again = pickle.loads(pickle.dumps(copies[0]))  # in the middle
    np.testing.assert_array_equal(draws(again, 50), draws(copies[0], 50))
    np.testing.assert_array_equal(draws(thinned, 100, thin=3), x[:, 2::3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        sums = recorded.sample(300, record={"s": lambda x: x.reshape(len(x), -1).sum(axis=1)})
    np.testing.assert_array_equal(sums["s"], x.reshape(*x.shape[:2], -1).sum(axis=2))
    np.testing.assert_allclose(one.sample_stats_["lp"], target.log_prob(x), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
def test_ctrl_c_while_redraws_are_made(monkeypatch, ctrl_c):
    sliced(monkeypatch)
    monkeypatch.setattr("sklsb.exact.elimination.blocks._GROUP", 64)
    expected = draws(fitted(two_modes()), 6000)
    sampler, calls, forward = fitted(two_modes()), [], Passes.forward

    def interrupted(self, x):
        calls.append(x)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return forward(self, x)

    monkeypatch.setattr(Passes, "forward", interrupted)
    before = sampler.n_evaluations_
    with pytest.warns(InterruptedWarning, match="returning"):
        first = sampler.sample(6000)["x"].values
    assert len(calls) == 2
    assert first.shape[1] < 6000
    assert sampler.n_evaluations_ > before
    rest = draws(sampler, 6000 - first.shape[1])
    np.testing.assert_array_equal(np.concatenate([first, rest], axis=1), expected)


def test_a_warm_start_goes_on():
    target = either()
    sampler = fitted(target, warm_start=True)
    first = draws(sampler, 200)
    second = draws(sampler.fit(target), 200)
    assert sampler.blocks_.kind == "whole"
    assert (first != second).any()


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.BlocksWarning")
@pytest.mark.parametrize("blocks", ["auto", 1])
@pytest.mark.parametrize("name", ["either", "cold"])
def test_the_contract_of_samplers(name, blocks):
    sampler = LSBSampler("barker", n_burn_in=50, n_chains=2, blocks=blocks)
    check_sampler(sampler, TARGETS[name]())


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.ModelWarning")
def test_rejected_draws_leave_no_trace(monkeypatch):
    """Where sums of rows differ, redraws are made until they are accepted."""
    monkeypatch.setattr("sklsb.exact.elimination.engine.DEFECT", 0.1)
    rng = np.random.default_rng(0)
    table = rng.random((2, 2, 1))
    table = np.concatenate([table, 1 - table], axis=2) * (1.0 + 0.04 * rng.random((2, 2, 1)))
    target = MarkovNetwork([2] * 3, [((0,), [0.5, 0.5]), ((1,), [0.3, 0.7]), ((0, 1, 2), table)])
    n = 1
    source = whole_of(target, n, limits=(8, 2**28))
    assert source.elimination.model.log_defect > 0
    x = possible_states(target)[:1]
    one = blocked(target, source, x, share=1.0)
    whole = np.empty((1, 100_000, 3), np.int8)
    one.run(100_000, Drawing(1), (whole, np.empty((1, 100_000, 2))))
    p = exact.probabilities(target)
    count = np.bincount(index_of(target, whole[0]), minlength=8)
    # Chi-square of 7 degrees of freedom: above 57 with probability below 1e-9.
    assert ((count - 1e5 * p) ** 2 / (1e5 * p)).sum() < 57
    other = blocked(target, whole_of(target, n, limits=(8, 2**28)), x, share=1.0)
    parts = []
    for size in (1, 333, 666):
        part = np.empty((1, size, 3), np.int8)
        other.run(size, Drawing(1), (part, np.empty((1, size, 2))))
        parts.append(part)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole[:, :1000])


def test_numbers_do_not_come_from_outside():
    target = either()
    ensemble = blocked(target, whole_of(target, 1), possible_states(target)[:1])
    assert isinstance(ensemble.rule.second, Blocks)
    with pytest.raises(TypeError, match="takes no numbers from outside"):
        ensemble.advance(np.zeros((1, 1, 3)))


@pytest.mark.parametrize(("blocks", "kind"), [(None, "none"), (10, "whole")])
def test_modes_that_redraws_forget_are_not_watched(blocks, kind, monkeypatch):
    """A rare value that single changes keep for long is drawn as often as it weighs."""
    kept, starts = (RareValue(0, 1, 50.0),), Learning.make_starts

    def found(algorithm, streams):
        return starts(algorithm, streams)._replace(kept=kept)

    monkeypatch.setattr(Learning, "make_starts", found)
    sampler = LSBSampler("barker", blocks=blocks, n_burn_in=20, random_state=0).fit(chain_network())
    assert sampler.blocks_.kind == kind
    assert sampler.run_.ensemble.counters.tally.kept == (kept if blocks is None else ())

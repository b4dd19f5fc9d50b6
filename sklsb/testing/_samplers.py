"""Checks of samplers: parameters, streams, draws and the transition matrix."""

import copy
import pickle
import random
import warnings
from typing import Any

import numpy as np
from sklearn.base import clone

from sklsb import exact
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.mixture import Mixture
from sklsb._kernels.rules.redraw import Blocks
from sklsb._kernels.run import Drawing
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.rules import FirstOrder
from sklsb.ensembles.streams import uniforms
from sklsb.exact.matrices import matrix_by_formula, rule_of
from sklsb.exceptions import SamplerWarning
from sklsb.samplers._run.base import BaseSampler
from sklsb.targets.base import States, Target
from sklsb.testing._expect import (
    EPS,
    expect,
    expect_equal,
    expect_invariant,
    expect_near,
    rounding,
)
from sklsb.testing._probe import check_caches, check_same
from sklsb.testing._rules import check_rule


def _fitted(sampler: BaseSampler, target: Target, **params: Any) -> Any:
    return clone(sampler).set_params(**params).fit(target)


def _draws(sampler: BaseSampler, n: int, thin: int = 1) -> States:
    x = sampler.sample(n, thin=thin)["x"].to_numpy()
    return x.reshape(*x.shape[:2], sampler.n_sites_)


def _check_parameters(sampler: BaseSampler, target: Target) -> None:
    before = sampler.get_params(deep=False)
    values = {name: pickle.dumps(value) for name, value in before.items()}
    expect(sampler.fit(target) is sampler, "fit must return the sampler itself.")
    after = sampler.get_params(deep=False)
    same = before.keys() == after.keys() and all(before[k] is after[k] for k in before)
    expect(same, f"fit changed parameters: {before} to {after}.")
    for name, value in after.items():
        expect(pickle.dumps(value) == values[name], f"fit changed what {name} is.")
    made = clone(sampler)
    expect(not made.__sklearn_is_fitted__(), "a clone must not be fitted.")
    for name, value in after.items():
        made.set_params(**{name: value})
        expect(made.get_params(deep=False)[name] is value, f"set_params must store {name}.")


def _check_streams(one: Any, target: Target, n: int) -> None:
    """Expect that chains do not depend on threads, copies, or the division into calls."""
    other = _fitted(one, target, n_jobs=2)
    copies = {
        "pickle": pickle.loads(pickle.dumps(one)),
        "copy.copy": copy.copy(one),
        "copy.deepcopy": copy.deepcopy(one),
    }
    for name, fork in copies.items():
        if isinstance(one.run_.ensemble, Ensemble):
            check_same(fork.run_.ensemble, one.run_.ensemble, f"after {name}")
    thinned = copy.copy(one)
    following = [rng.random() for rng in one.run_.ensemble.streams.copy().chain]
    expect(
        len(set(following)) == len(following),
        f"every chain has its own stream; the next uniform numbers are {following}.",
    )
    x = _draws(one, 3 * n)
    expect_equal(_draws(other, 3 * n), x, "draws of the same seed with n_jobs=2")
    for name, fork in copies.items():
        parts = [_draws(fork, n), _draws(fork, 0), _draws(fork, 2 * n)]
        what = f"sample(a), sample(b) after {name}, against sample(a + b)"
        expect_equal(np.concatenate(parts, axis=1), x, what)
    expect_equal(_draws(thinned, n, 3), x[:, 2::3], "draws 3 apart against every third of all")


def _check_draws(sampler: BaseSampler, target: Target, n: int) -> None:
    """Compare draws with single steps on each chain's stream, from where fit ended."""
    fitted = _fitted(sampler, target, keep_burn_in=True)
    warm = fitted.burn_in_["x"].to_numpy()
    warm = warm.reshape(*warm.shape[:2], target.n_sites)
    found = vars(fitted)
    # A pilot, tuning of flips, and first redraws move the chains on.
    adapts = "candidates_" in found or sampler.get_params().get("n_flips") == "auto"
    redrawn = "blocks_" in found and fitted.blocks_.kind != "none"
    if warm.shape[1] and not adapts and not redrawn:
        expect_equal(fitted.state_, warm[:, -1], "the state after fit against the burn-in's last")
    check_kept(fitted, "after fit")
    if "balancing_" in found:
        rule = fitted.run_.ensemble.rule
        rule = rule.first if rule.facts.parts else rule  # beside redraws of blocks
        used, said = rule.table.value, fitted.balancing_.table().value
        expect_equal(used, said, "the table that draws are made with, against balancing_")
    frozen = pickle.dumps(rule_of(fitted, target))
    replay = pickle.loads(pickle.dumps(fitted)).run_.ensemble
    x, expected = _draws(fitted, n, 2), []
    lp = fitted.sample_stats_["lp"].to_numpy()
    gate = rounding(target, lp, target.log_ratios(x))
    expect_near(lp, target.log_prob(x), gate, "lp of the sample stats against log_prob")
    n_chains, _, n_sites = x.shape
    nothing = np.empty((n_chains, 0, n_sites), x.dtype), np.empty((n_chains, 0, 1))
    facts, rngs = replay.rule.facts, replay.streams.chain
    for _ in range(n):
        for _ in range(2):
            if facts.parts:  # what is drawn depends on the coins
                replay.run(1, Drawing(), nothing)
            else:
                replay.advance(np.stack([uniforms(rng, 1, facts.n_uniforms) for rng in rngs]))
        expected.append(replay.chains.x.copy())
    what = "draws against single steps from the state after fit, on each chain's stream"
    expect_equal(x, np.stack(expected, axis=1), what)
    for when, rule in (("used by", fitted.run_.ensemble.rule), ("after", rule_of(fitted, target))):
        expect(pickle.dumps(rule) == frozen, f"the frozen rule is another one {when} sample.")
    check_kept(fitted, "after sample")


def check_kept(sampler: BaseSampler, when: str) -> None:
    """Compare what the chains of a sampler keep with a rebuild, bit for bit."""
    ensemble: Any = sampler.run_.ensemble
    if isinstance(ensemble, Ensemble):
        check_caches(ensemble, when)
        return
    for name, (one, other) in ensemble.kept_and_rebuilt().items():
        what = f"what a chain carries must equal a rebuild bit for bit {when}: {name}"
        expect_equal(one, other, what)


def _global_states() -> tuple[Any, bytes]:
    return random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002


def check_sampler(sampler: BaseSampler, target: Target, n_draws: int = 100) -> None:
    """Check a sampler on a small target, exactly.

    Parameters must follow scikit-learn's conventions. The transition matrix must have rows that
    sum to 1 and the target as its stationary distribution, with detailed balance where the rule
    says that it is reversible; the compiled step must have the same matrix, measured at all of
    its breakpoints. If a rule has no formula, only the measured matrix is checked; if its steps run
    on torch or seed further numbers, only the formula, if any. Draws must be
    those of single steps on each chain's own stream, the same for any number of threads, any
    division into calls, and after pickles and copies. Caches must equal a rebuild bit for bit, and
    global random states must not change.

    Parameters
    ----------
    sampler : sampler
        Sampler to check; clones of it are fitted, with ``random_state=0``.
    target : Target
        A target of at most 2**14 states; preferably of fewer than 100, or fewer than 20 if a
        transition takes many uniform numbers.
    n_draws : int, default=100
        Length of the compared chains.

    Raises
    ------
    AssertionError
        If a property does not hold; the message says which, and what was found.
    """
    before = _global_states()
    sampler = clone(sampler).set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        _check_parameters(sampler, target)
        _check_streams(sampler, target, n_draws)
        rule = rule_of(sampler, target)
        if matrix_by_formula(rule):
            found = exact.transition_matrix(rule, target)
            # A sweep is a product of as many matrices as it takes numbers, each a sum over states.
            gate = EPS * (len(found) + 4) * rule.facts.n_uniforms + np.sum(target.rounding)
            expect_invariant(found, target, rule.facts.reversible, gate, "formula")
        if isinstance(rule, Mixture) and isinstance(rule.second, Blocks):
            # Redraws take no numbers that could be chosen; the steps beside them do.
            rule = rule.first
        seeded = rule.facts.seeded and not matrix_by_formula(rule)
        if isinstance(rule, Balanced):  # the number that follows its first is compared with one
            check_rule(rule, target, n_continuations=8)
        elif not seeded and not isinstance(rule, FirstOrder):  # that has no compiled step
            check_rule(rule, target)
        _check_draws(sampler, target, n_draws)
    expect(_global_states() == before, "global random states must not be used.")

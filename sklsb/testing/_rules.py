"""Checks of rules: the production step measured at all of its breakpoints, exactly."""

import numpy as np

from sklsb import exact
from sklsb._kernels.facts import Rule
from sklsb._kernels.run import Drawing
from sklsb._system.arrays import Array
from sklsb.balancing.functions import BalancingFunction
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.matrices import HasRule, matrix_by_formula, rule_of
from sklsb.targets.base import States, Target
from sklsb.testing._cells import Outcomes, matrix_by_bisection
from sklsb.testing._expect import (
    EPS,
    chance_of_counts,
    expect,
    expect_equal,
    expect_invariant,
    expect_near,
    log_probabilities,
)
from sklsb.testing._probe import RuleProbe, check_caches, check_same

# Transitions from each state of a rule that seeds numbers; chance of a false alarm.
_N_DRAWS, _CHANCE = 1 << 15, 1e-9
_MOST_ROUNDS = 8  # of looking for what bisection overlooked


def measured_matrix(
    rule: HasRule | BalancingFunction | Rule, target: Target, n_continuations: int = 48
) -> Array:
    """Measure the transition matrix of the compiled step of a rule or a sampler.

    From each state, every uniform number at which the outcome changes is found by bisection, one
    number after another; the lengths between them are the probabilities. An outcome may be
    overlooked if it takes less than about 1/50 of the range of a number, not at an end, or depends
    on less than about 1/100 of the range of the later numbers. Then 4,096 random transitions from
    each state look for it, up to eight times: what has a probability of .003 escapes the first look
    once in 200,000 times.

    Parameters
    ----------
    rule : rule or sampler
        What to measure; of one that takes few random numbers, on the CPU without torch.
    target : Target
        A target of a few states.
    n_continuations : int, default=48
        Number of choices of the later numbers, about half of them at the ends of the range, by
        which outcomes are compared.

    Returns
    -------
    ndarray of shape (n_states, n_states)
        In the order of `sklsb.exact.states`. A chain stays in a state of probability zero.

    Raises
    ------
    ValueError
        If outcomes are still overlooked after eight rounds.
    """
    rule, x = rule_of(rule, target), exact.states(target)
    outcomes = outcomes_of(rule, target, n_continuations)
    possible, name = target.log_prob(x) > -np.inf, type(rule).__name__
    return matrix_by_bisection(outcomes, possible, name, _MOST_ROUNDS)


def outcomes_of(rule: Rule, target: Target, n_continuations: int) -> Outcomes:
    """Return where the compiled step of a rule leads, from all states."""
    step, n_uniforms = RuleProbe(target, rule).step, rule.facts.n_uniforms
    return Outcomes(step, exact.states(target), n_uniforms, n_continuations)


def check_rule(
    rule: Rule, target: Target, n_transitions: int = 40, n_continuations: int = 48
) -> None:
    """Check a rule on a small target, exactly; it may be defined outside the package.

    The transition matrix of the compiled step, measured at all of its breakpoints, must leave the
    target invariant, and be reversible if the rule says so. (That of a rule that seeds further
    numbers cannot be measured: then the formula must be so, and many draws agree with it.) What
    chains keep must equal a rebuild, bit for bit; transitions must not depend on how they are
    divided into calls, nor on copies.

    Parameters
    ----------
    rule : rule
        Rule to check.
    target : Target
        A target of a few states, with random probabilities that are not very small.
    n_transitions : int, default=40
        Length of the compared chains.
    n_continuations : int, default=48
        See `measured_matrix`.

    Raises
    ------
    AssertionError
        If a property does not hold; the message says which, and what was found.
    """
    names = rule.facts.stat_names
    expect(names[:1] == ("lp",), f"stat_names must begin with lp: {names}")
    if rule.facts.seeded:
        _check_draws(rule, target)
    else:
        _check_matrix(rule, target, measured_matrix(rule, target, n_continuations))
    _check_chains(rule, target, n_transitions)


def _check_matrix(rule: Rule, target: Target, found: Array) -> None:
    """Compare a measured matrix with the target, and with the formula of the rule if any."""
    possible = np.isfinite(log_probabilities(target))
    gate = EPS * (8 * target.n_sites + 4 * len(found) * rule.facts.n_uniforms)
    gate += np.sum(target.rounding)
    expect_invariant(found, target, rule.facts.reversible, gate, "step")
    largest = found[np.ix_(possible, ~possible)].max(initial=0.0)
    expect(largest == 0.0, f"the step goes to impossible states, with probability {largest:g}.")
    if matrix_by_formula(rule):
        expect_near(
            found,
            exact.transition_matrix(rule, target),
            gate,
            "the step against the formula at (x, x')",
        )


def _check_draws(rule: Rule, target: Target) -> None:
    """Compare many transitions from each state with the formula of a rule that seeds numbers."""
    expected = exact.transition_matrix(rule, target)
    log_p = log_probabilities(target)
    gate = EPS * 64 * len(expected) + np.sum(target.rounding)
    expect_invariant(expected, target, rule.facts.reversible, gate, "formula")
    outcomes = outcomes_of(rule, target, 0)
    rng = np.random.default_rng(3)
    for start in np.flatnonzero(np.isfinite(log_p)):
        numbers = rng.random((_N_DRAWS, rule.facts.n_uniforms))
        ends = outcomes.ends(np.full(_N_DRAWS, start), numbers)
        found = np.bincount(ends, minlength=len(expected))
        what = f"transitions from state {start}"
        expect(found[expected[start] == 0.0] == 0, f"{what} lead where the formula does not.")
        chance = chance_of_counts(found, _N_DRAWS * expected[start])
        expect(chance > _CHANCE, f"{what} differ from the formula, with chance {chance:g}.")


def _check_chains(rule: Rule, target: Target, n: int) -> None:
    """Compare what chains keep with a rebuild, and one call with several and a copy."""
    rngs = spawn(0, 3)
    states = np.stack([target.draw_state(rng) for rng in rngs])

    def chains() -> Ensemble:
        made = Ensemble(target, states, Streams(rngs).copy(), rule=rule)
        made.start(rule)
        return made

    whole, parts = chains(), chains()
    x = _draws(whole, n)
    changed = (np.concatenate([states[:, None], x], axis=1) != states[:, None]).any(axis=1)
    site = target.offers.site_of_moves
    marked = np.zeros_like(changed)
    for row, moves in zip(marked, whole.chains.moved, strict=True):
        row[site[moves]] = True
    expect(marked | ~changed, "chain.moved does not tell which variables changed.")
    check_caches(whole, f"after {n} transitions")
    first = _draws(parts, n // 3)
    copied = parts.copy()
    check_same(copied, parts, "in a copy")
    second = _draws(copied, n - n // 3)
    what = "transitions in one call, against some, then the rest by a copy"
    expect_equal(np.concatenate([first, second], axis=1), x, what)
    expect(np.isfinite(target.log_prob(x)), "the chain is at a state of probability zero.")


def _draws(ensemble: Ensemble, n: int) -> States:
    x = np.empty((len(ensemble), n, ensemble.target.n_sites), dtype=ensemble.target.dtype)
    stats = np.empty((len(ensemble), n, len(ensemble.rule.facts.stat_names)))
    ensemble.run(n, Drawing(1), (x, stats))
    return x

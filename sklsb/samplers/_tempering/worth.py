"""Whether tempering is worth its replicas, or plain chains agree and mix."""

from typing import Any

import numpy as np
import xarray as xr

from sklsb._kernels.facts import Rule
from sklsb._system.memory import at_once
from sklsb._system.progress import tick
from sklsb.diagnostics.agreement import disagreement
from sklsb.diagnostics.tally import Tally
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.protocol import MOST_NUMBERS
from sklsb.ensembles.streams import Streams
from sklsb.samplers._tempering.ladders import Ladders, steps_of
from sklsb.samplers.gibbs import GibbsSampler, is_sparse
from sklsb.targets.base import Target
from sklsb.targets.ising import Ising
from sklsb.targets.potts import Potts

# Draws of each chain, and between two looks at the time.
_FEWEST_DRAWS, _MOST_DRAWS, _AT_ONCE = 128, 512, 16
# With two modes, all of this many chains are in one by chance in 1 % of the cases.
_FEWEST_CHAINS = 8
# Effective sample sizes from few draws are known only to about this factor.
_BETTER = 2.0
# Sweeps in which chains from all states must meet, once and in all, and how often they must: slow
# chains may do so once, hardly each time. With two bounds 100 sweeps are ten times the burn-in of
# four plain chains, of five sweeps each.
_MOST_SWEEPS, _IN_ALL, _TIMES = 50, 100, 4


def sweeps_to_meet(ladders: Ladders) -> int | None:
    """Return after how many sweeps chains from all states have met; None if they may not.

    The target must be an Ising or Potts model on a sparse graph. Its chains, one at each state,
    take the same random numbers: a value is drawn as the largest log weight plus a Gumbel number.
    The values that a variable may have, in any chain, give bounds of the log weights of its
    neighbours' values, and so the values that these may have next (Huber, 2004). When each has one,
    all chains are at one state: no mode has kept any of them. They must meet each time that this is
    tried; the longest time is returned.
    """
    target = ladders.target
    model: Any = target.offers.pairwise
    if model is None or not is_sparse(target):
        return None
    longest, left = 0, _IN_ALL
    for k in range(_TIMES):
        rng = ladders.streams.of("scout", _FEWEST_CHAINS + k)[0]
        most = min(left, _MOST_SWEEPS)
        n = meeting(target, model, rng, most)
        spent = np.zeros(len(ladders), dtype=np.int64)
        spent[0] = 2 * (n or most) * np.maximum(0, target.n_possible - 1).sum()
        ladders.add_evaluations(spent)
        if n is None:
            return None
        longest, left = max(longest, n), left - n
    return longest


def meeting(
    target: Target, model: Ising | Potts, rng: np.random.Generator, n_sweeps: int = _MOST_SWEEPS
) -> int | None:
    """Return after how many sweeps of a model, perhaps with evidence, all values are known."""
    rule: Any = GibbsSampler("chromatic")._rule(target)
    field, couplings = model.field, model.couplings
    if isinstance(model, Ising):  # as a Potts model
        field, couplings = np.column_stack([-field, field]), 2.0 * couplings
    parts = [
        (sites, couplings[sites].maximum(0.0), couplings[sites].minimum(0.0))
        for sites in np.split(rule.sites, rule.start[1:-1])
    ]
    state = np.searchsorted(np.unique(model.values), target.draw_state(rng))
    may = np.zeros(field.shape)
    may[np.arange(state.size), state] = 1.0
    may[rule.sites] = 1.0  # others have one possible value
    for n in range(1, n_sweeps + 1):
        for sites, raising, lowering in parts:
            does = may * (may.sum(axis=1, keepdims=True) == 1.0)
            most = field[sites] + (raising @ may + lowering @ does)
            least = field[sites] + (raising @ does + lowering @ may)
            noise = rng.gumbel(size=most.shape)
            may[sites] = most + noise >= (least + noise).max(axis=1, keepdims=True)
        if (may.sum(axis=1) == 1.0).all():
            return n
    return None


def plain_chains_mix(ladders: Ladders, explorer: Rule, n_scans: int) -> bool:
    """Whether plain chains on the target give more independent draws for the same work.

    Plain chains start from each ladder's state and from random ones, with as much work in all as
    ``n_scans`` / 4 scans of the ladders. They must agree, and their effective sample size per
    evaluation, of the worst variable, must be twice that of the ladders.
    """
    target, streams = ladders.target, ladders.streams
    per_ladder = max(2, -(-_FEWEST_CHAINS // len(streams)))
    random = [
        target.draw_state(rng) for k in range(per_ladder - 1) for rng in streams.of("start", k)
    ]
    x = np.concatenate([ladders.chains.x, np.array(random).reshape(len(random), -1)])
    rngs = [rng for k in range(per_ladder) for rng in streams.of("scout", k)]
    plain = Ensemble(target, x, Streams(rngs), ladders.n_jobs, explorer)
    plain.start(explorer)
    n_draws = min(_MOST_DRAWS, max(_FEWEST_DRAWS, n_scans // 4))
    moves = [np.maximum(0, one.n_possible - 1).sum() for one in (ladders.inner, target)]
    work = ladders.rule.n_replicas * moves[0] / max(1, moves[1]) / per_ladder
    found = _look(plain, n_draws, steps_of(explorer, target) * max(1, round(work)))
    ladders.add_evaluations(plain.chains.evaluations.reshape(per_ladder, -1).sum(axis=0))
    if not found.agree:
        return False
    tempered = ladders.copy()  # later draws do not depend on this
    before = tempered.chains.evaluations.copy()
    wanted = _look(tempered, n_draws, 1)
    spent = tempered.chains.evaluations - before
    ladders.add_evaluations(spent[:, 0])
    worth = [
        _worst(one) / max(1, int(made.sum()))
        for one, made in ((found, plain.chains.evaluations), (wanted, spent))
    ]
    return worth[0] > _BETTER * worth[1]


def _look(ensemble: Ensemble | Ladders, n_draws: int, thin: int) -> xr.Dataset:
    """Make draws; return how the second half of them agree."""
    target, n = ensemble.target, len(ensemble)
    facts, tally = ensemble.rule.facts, Tally(target, n)
    draws = np.empty((n, n_draws, target.n_sites), target.dtype)
    stats = np.empty((n, n_draws, len(facts.stat_names)))
    size = min(_AT_ONCE, at_once(MOST_NUMBERS, facts.n_uniforms * thin))
    with ensemble.threads():
        for first in range(0, n_draws, size):
            ensemble.run(min(size, n_draws - first) * thin, (thin, 0, first), draws, stats)
            tick()
    half = n_draws // 2
    tally.add(draws[:, half:], stats[:, half:, 0], 1)
    return disagreement(tally, target)


def _worst(found: xr.Dataset) -> float:
    return float(np.fmin.reduce([float(found["ess_lp"]), *np.ravel(found["ess"].values)]))

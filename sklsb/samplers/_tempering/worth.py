"""Whether tempering is worth its replicas, or plain chains agree and mix."""

import numpy as np
import xarray as xr

from sklsb._kernels.facts import Rule
from sklsb.diagnostics.agreement import disagreement
from sklsb.diagnostics.tally import Tally
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.protocol import MOST_NUMBERS
from sklsb.ensembles.streams import Streams
from sklsb.samplers._tempering.ladders import Ladders, steps_of

# Draws of each chain.
_FEWEST_DRAWS, _MOST_DRAWS = 128, 512
# With two modes, all of this many chains are in one by chance in 1 % of the cases.
_FEWEST_CHAINS = 8
# Effective sample sizes from few draws are known only to about this factor.
_BETTER = 2.0


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
    size = max(1, MOST_NUMBERS // max(1, facts.n_uniforms * thin))
    with ensemble.threads():
        for first in range(0, n_draws, size):
            ensemble.run(min(size, n_draws - first) * thin, (thin, 0, first), draws, stats)
    half = n_draws // 2
    tally.add(draws[:, half:], stats[:, half:, 0], 1)
    return disagreement(tally, target)


def _worst(found: xr.Dataset) -> float:
    return float(np.fmin.reduce([float(found["ess_lp"]), *np.ravel(found["ess"].values)]))

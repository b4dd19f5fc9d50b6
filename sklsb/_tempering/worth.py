"""Whether tempering is worth its replicas, or plain chains agree and mix."""

import numpy as np

from sklsb._ensemble import MOST_NUMBERS, Ensemble
from sklsb._kernels.facts import Rule
from sklsb._tally import Tally
from sklsb._tempering.ladders import Ladders, steps_of
from sklsb.diagnostics import disagreement
from sklsb.streams import Streams

# Draws of each chain, as many transitions apart as a scan makes.
_DRAWS = 512
# Of two modes, all of so many chains are in one by chance once in a hundred times.
_FEWEST_CHAINS = 8


def plain_chains_mix(ladders: Ladders, explorer: Rule) -> bool:
    """Whether plain chains of a rule on the target take less work for a draw than ladders do.

    For each ladder chains go without tempering, from its state and from random ones. They must
    agree, and their draws be worth more than one in half as many as there are replicas, counted by
    their variables.
    """
    target, streams = ladders.target, ladders.streams
    per_ladder = max(2, -(-_FEWEST_CHAINS // len(streams)))
    random = [
        target.random_state(rng) for k in range(per_ladder - 1) for rng in streams.of("start", k)
    ]
    x = np.concatenate([ladders.chains.x, np.array(random).reshape(len(random), -1)])
    rngs = [rng for k in range(per_ladder) for rng in streams.of("scout", k)]
    plain = Ensemble(target, x, Streams(rngs), ladders.n_jobs, explorer)
    plain.start(explorer)
    draws = np.empty((len(x), _DRAWS, target.n_sites), target.dtype)
    stats = np.empty((len(x), _DRAWS, len(explorer.facts.stat_names)))
    thin, tally = steps_of(explorer, target), Tally(target, len(x))
    size = max(1, MOST_NUMBERS // max(1, explorer.facts.n_uniforms * thin))
    with plain.threads():
        for first in range(0, _DRAWS, size):
            n = min(size, _DRAWS - first)
            plain.run(n * thin, (thin, 0, first), draws, stats)
    half = _DRAWS // 2  # the rest goes from where the chains began
    tally.add(draws[:, half:], stats[:, half:, 0], 1)
    ladders.add_evaluations(plain.chains.evaluations.reshape(per_ladder, -1).sum(axis=0))
    found = disagreement(tally, target)
    worst = np.fmin.reduce([float(found["ess_lp"]), *np.ravel(found["ess"].values)])
    moves = [np.maximum(0, one.n_possible - 1).sum() for one in (ladders.inner, target)]
    work = ladders.beta.size * moves[0] / max(1, moves[1])
    return bool(found.agree and worst > 2.0 * len(x) * half / work)

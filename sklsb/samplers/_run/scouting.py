"""The starts of the chains of a sampler, with what their search may cost."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sklsb._kernels.facts import Rule
from sklsb._system.progress import Progress
from sklsb.ensembles.streams import Streams
from sklsb.samplers._run.base import transitions_of_a_sweep
from sklsb.samplers._run.starts import SWEEPS, Effort, Starts, draw_starts
from sklsb.targets.base import States, Target


def scouted_starts(
    target: Target,
    init: str,
    streams: Streams,
    rule: Rule,
    new_ensemble: Callable[[Target, States, Streams], Any],
    budget: tuple[int, int],
    *,
    first_order: bool = False,
    verbose: int = 0,
) -> Starts:
    """Draw where chains start, with the rule of the burn-in for the search.

    Parameters
    ----------
    target, init, streams, first_order
        As of `sklsb.samplers._run.starts.draw_starts`.
    rule : rule
        What the burn-in begins with.
    new_ensemble : callable
        From a target, states and streams.
    budget : tuple of int
        Evaluations that the start of a chain may take, and those of a sweep.
    verbose : int, default=0
        1 shows how many starts are found.
    """
    per_sweep = transitions_of_a_sweep(rule, target)

    def walk(states: States, streams: Streams, n_draws: int, sweeps: float) -> tuple[States, int]:
        walkers = new_ensemble(target, states, streams)
        walkers.start(rule)
        thin = max(1, round(sweeps * per_sweep))
        draws = np.empty((len(states), n_draws, target.n_sites), dtype=target.dtype)
        stats = np.empty((*draws.shape[:2], len(rule.facts.stat_names)))
        walkers.run(n_draws * thin, (thin, 0, 0), draws, stats)
        return draws, int(walkers.chains.evaluations.sum())

    evaluations, of_sweep = budget
    of_look = 1 if first_order else int((target.cardinalities - 1).sum())
    looks = evaluations // (2 * max(1, of_look))
    n_walkers = evaluations // (2 * SWEEPS * max(1, of_sweep))
    effort = Effort(looks, n_walkers, walk, first_order)
    with Progress(verbose, "starts", len(streams), "chains") as progress:
        return draw_starts(target, init, streams, effort, progress)

"""The burn-in of chains with a fixed rule."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sklsb._kernels.facts import Rule
from sklsb._kernels.run import Drawing
from sklsb._system.arrays import Array
from sklsb._system.memory import at_once, check_fits
from sklsb._system.progress import Progress
from sklsb.storage.checkpoint import Checkpoint
from sklsb.targets.base import States, Target

# Most rows of the history.
_MOST_ROWS = 200
# Most values of variables held for them.
_MOST_HELD = 1 << 22


class BurnInResult(NamedTuple):
    """The history of a burn-in in at most 200 rows."""

    ends: list[int]  # transitions made by the end of each row
    log_prob: Array  # (n_rows, n_chains)
    acceptance: Array  # mean over the row
    draws: States | None  # all states, if wanted


def check_kept(target: Target, n_chains: int, n: int) -> None:
    """Refuse to keep a burn-in that does not fit in memory."""
    check_fits(
        n_chains * n * target.n_sites * target.dtype.itemsize,
        f"keep_burn_in=True with {n} transitions of {n_chains} chains of {target.n_sites} sites",
        "Set keep_burn_in=False; or n_burn_in=0, and write the beginning of the chains to the "
        'disk, sample(n, store="run.zarr").',
    )


def run_burn_in(
    ensemble: Any,
    n: int,
    *,
    keep: bool = False,
    verbose: int = 0,
    start_with: Rule | None = None,
    checkpoint: Checkpoint | None = None,
) -> BurnInResult:
    """Make n transitions of every chain, keeping all states if wanted.

    ``start_with`` is the rule to start the chains with, None if they have started.
    """
    checkpoint, target, n_chains = checkpoint or Checkpoint(), ensemble.target, len(ensemble)
    every = max(1, -(-n // _MOST_ROWS))
    ends = [*range(every, n, every), n] if n else []
    # Rows are draws that are far apart, or every state if all are kept.
    thin = 1 if keep else every
    draws = np.zeros((n_chains, n if keep else 0, target.n_sites), dtype=target.dtype)
    made, stats = 0, np.zeros((n_chains, n // thin, 2))
    if "loop" in checkpoint.kept:
        made, draws, stats = checkpoint.kept["loop"]
    most = thin * at_once(_MOST_HELD, n_chains * target.n_sites)

    def state() -> dict[str, Any]:
        return {"ensemble": ensemble, "loop": (made, draws, stats)}

    line = Progress(verbose, "burn-in", n * n_chains, "steps")
    with line as progress, checkpoint.loop(state) as between:
        progress(made * n_chains)
        if start_with is not None and "loop" not in checkpoint.kept:
            ensemble.start(start_with)
        drawing = Drawing(thin).after(made)
        for segment in ensemble.segments(n - made, drawing, most=lambda: most):
            stats[:, segment.places] = segment.stats
            if keep:
                draws[:, segment.places] = segment.x
            made += segment.n_transitions
            progress(segment.n_transitions * n_chains)
            between()
    if keep:
        log_prob = stats[:, np.array(ends, dtype=np.int64) - 1, 0].T
        rows = [stats[:, begin:end, 1].mean(axis=1) for begin, end in pairwise([0, *ends])]
        acceptance = np.array(rows).reshape(log_prob.shape)
    else:
        log_prob, acceptance = np.ascontiguousarray(stats.T)
        if n % every:  # the last row has fewer transitions
            rest = ensemble.chains.acceptance[:, 0] / (n % every)
            log_prob = np.vstack([log_prob, ensemble.log_prob()])
            acceptance = np.vstack([acceptance, rest])
    ensemble.forget_acceptance()
    return BurnInResult(ends, log_prob, acceptance, draws if keep else None)

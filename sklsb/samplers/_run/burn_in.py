"""The burn-in of chains with a fixed rule."""

import time
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.facts import Rule
from sklsb._kernels.run import Drawing
from sklsb._system.memory import at_once, check_fits
from sklsb._system.progress import FIRST_SEGMENT, Progress, next_segment
from sklsb.ensembles.base import MOST_NUMBERS
from sklsb.storage.checkpoint import Checkpoint
from sklsb.targets.base import States, Target

Array = NDArray[np.float64]
# Most rows of the history.
_MOST_ROWS = 200
# Most values of variables held for them.
_MOST_HELD = 1 << 22


class BurnInResult(NamedTuple):
    """The history of a burn-in in at most 200 rows."""

    ends: list[int]  # transitions made by the end of each row
    log_prob: NDArray[np.float64]  # (n_rows, n_chains)
    acceptance: NDArray[np.float64]  # mean over the row
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
    drawing = Drawing(1 if keep else every)
    most = at_once(MOST_NUMBERS, ensemble.rule.facts.n_uniforms)
    if not keep:
        most = min(most, every * at_once(_MOST_HELD, n_chains * target.n_sites))
    made, segment = 0, FIRST_SEGMENT
    log_prob: list[Array] = []
    acceptance: list[Array] = []

    def room(n_draws: int) -> tuple[States, Array]:
        shape = n_chains, n_draws
        return np.empty((*shape, target.n_sites), dtype=target.dtype), np.empty((*shape, 2))

    draws, stats = kept = room(n if keep else 0)
    if "loop" in checkpoint.kept:
        made, drawing, log_prob, acceptance, kept = checkpoint.kept["loop"]
        draws, stats = kept

    def state() -> dict[str, Any]:
        return {"ensemble": ensemble, "loop": (made, drawing, log_prob, acceptance, kept)}

    line = Progress(verbose, "burn-in", n * n_chains, "steps")
    with line as progress, checkpoint.loop(state) as between:
        progress(made * n_chains)
        if start_with is not None and "loop" not in checkpoint.kept:
            ensemble.start(start_with)
        while made < n:
            began = time.perf_counter()
            size = min(most, segment, n - made)
            if not keep:
                draws, stats = room(drawing.count(size))
                drawing = drawing._replace(first=0)
            ensemble.run(size, drawing, draws, stats)
            made, drawing = made + size, drawing.after(size)
            if not keep:
                log_prob += [*stats[:, :, 0].T.copy()]
                acceptance += [*stats[:, :, 1].T.copy()]
            progress(size * n_chains)
            segment = next_segment(segment, size, time.perf_counter() - began)
            between()
    if keep:
        for begin, end in pairwise([0, *ends]):
            log_prob.append(stats[:, end - 1, 0])
            acceptance.append(stats[:, begin:end, 1].mean(axis=1))
    elif len(log_prob) < len(ends):  # the last row has fewer transitions
        log_prob.append(ensemble.log_prob())
        acceptance.append(ensemble.chains.acceptance[:, 0] / (n % every))
    ensemble.forget_acceptance()
    rows = (len(ends), n_chains)
    return BurnInResult(
        ends,
        np.array(log_prob).reshape(rows),
        np.array(acceptance).reshape(rows),
        draws if keep else None,
    )

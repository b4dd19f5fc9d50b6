"""Whether blocks of variables are redrawn besides single changes, and which ones."""

import numbers
from dataclasses import dataclass
from typing import Any

from sklsb._system.arrays import Ints
from sklsb._system.progress import Progress
from sklsb._system.warn import warn
from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.ensembles.rules import transitions_of_a_sweep
from sklsb.exact.elimination.blocks import MOST_LOG2_SIZE, BlockPool, Whole, choose_blocks
from sklsb.exact.elimination.cost import fits, n_entries
from sklsb.exact.elimination.engine import eliminated, ordered
from sklsb.exact.elimination.mixed import BlockedEnsemble, Source, mixture
from sklsb.exact.elimination.order import MOST_VARIABLES
from sklsb.exact.elimination.reduce import strike, tied_by_zeros
from sklsb.exceptions import BlocksWarning
from sklsb.samplers._run.burn_in import run_burn_in
from sklsb.samplers._run.checks import check_log2_size
from sklsb.targets._precision import log_factors
from sklsb.targets.base import Target
from sklsb.trials.prices import (
    MAX_MEMORY,
    MAX_WORK,
    OF_DRAWN_ENTRY,
    OF_ENTRY,
    OF_MOVE,
    OF_REDRAW,
    OF_STEP,
)
from sklsb.trials.scouts import draws_of, scout

# Log2 of the entries of a table of a block by default.
LOG2_SIZE = 12
# Most pairs of connected variables for which blocks are considered.
_MOST_PAIRS = 1 << 20
# Least number of redraws per sweep, of a whole model and of a pool; redraws of each block before
# the first draw.
_FEWEST = {True: 1.0 / 4.0, False: 1.0 / 16.0}
_EACH = 4


@dataclass(frozen=True)
class BlockChoice:
    """Which blocks of variables are redrawn besides locally balanced steps, and why.

    Parameters
    ----------
    kind : {"none", "whole", "pool"}
        No blocks, one block of all variables, or several, of which a random one is redrawn.
    why : str
        The reason.
    share : float
        Probability that a transition is a redraw.
    sites : tuple of ndarray of int64
        The variables of each block.
    doubt : str
        What remains uncertain if blocks are needed; `LSBSampler.fit` warns of it.
    """

    kind: str
    why: str
    share: float = 0.0
    sites: tuple[Ints, ...] = ()
    doubt: str = ""

    def __repr__(self) -> str:
        sizes = [block.size for block in self.sites]
        of = f", {len(sizes)} of {min(sizes)} to {max(sizes)} variables" if sizes else ""
        share = f", share={self.share:.3g}" if sizes else ""
        return f"BlockChoice({self.kind!r}{of}{share}, why={self.why!r})"


def check_blocks(blocks: Any, fast: bool, target: Target) -> None:
    """Say what is wrong with the parameter ``blocks``."""
    check_log2_size(blocks, "blocks", MOST_LOG2_SIZE, target)
    if fast and isinstance(blocks, numbers.Integral):
        raise ValueError(
            f"blocks is {blocks!r} and fast is True; only exact log-ratios, fast=False, go with "
            "blocks."
        )
    if not _why_not(target, blocks, fast) and not target.offers.own_factors:
        log_factors(target)  # errors are raised before any work


def _why_not(target: Target, blocks: Any, fast: bool) -> str:
    """Say why there can be no blocks, or return ""."""
    if blocks is None:
        return "blocks=None"
    if fast:
        return "fast=True goes by first-order log-ratios"
    if not target.offers.factors:
        return "the target is not made of factors"
    n = target.n_sites
    if n > MOST_VARIABLES:
        return f"there are {n} variables; orders of elimination are looked for among fewer"
    graph = target.graph
    if blocks == "auto" and graph is not None and graph.nnz > _MOST_PAIRS:
        return "too many pairs of variables are connected"
    return ""


def _why(target: Target, ensemble: BalancedEnsemble, blocks: Any, n: int) -> tuple[bool, str]:
    """Return whether blocks are needed, and what was found."""
    if blocks != "auto":
        return True, f"blocks={blocks}"
    if tied_by_zeros(target):
        return True, "zeros of tables tie variables to each other"
    if not n:
        return False, "no zero ties variables, and without a burn-in no scouts are sent"
    disagree, found = scout(ensemble)
    return disagree, found if disagree else f"no zero ties variables, and {found}"


def _source(target: Target, blocks: Any, n_chains: int, verbose: int) -> tuple[Source | None, str]:
    """Return the source of redraws, if any, and its description."""
    struck = strike(target)
    if not struck.free:
        return None, "one state is possible"
    limits = MAX_WORK, MAX_MEMORY
    orders: list[list[int]] = []
    if blocks != "auto":
        orders = choose_blocks(struck, int(blocks))
        whole = len(orders) == 1 and len(orders[0]) == len(struck.free)
    if blocks == "auto" or whole:
        found = ordered(struck, limits=limits)
        if fits(found.cost, limits):
            return Whole(eliminated(found, verbose), n_chains), "the model is redrawn as a whole"
        orders = orders or choose_blocks(struck, LOG2_SIZE)
    if not orders:
        return None, "no block of its variables is small enough"
    size, said = int(blocks) if blocks != "auto" else LOG2_SIZE, ""
    if blocks == "auto":
        said = "the model is too large to be redrawn as a whole; "
    return BlockPool(struck, orders), f"{said}blocks are redrawn, of tables of 2**{size}"


def _doubt(target: Target, source: Source | None, blocks: Any) -> str:
    """Say what remains uncertain although blocks are redrawn, or return ""."""
    if source is not None and source.whole:
        return ""
    moves = "single changes" if source is None else "blocks"
    if tied_by_zeros(target):
        return f"whether {moves} lead to all possible states is not known"
    return f"whether {moves} lead from mode to mode is not known" if blocks == "auto" else ""


def warn_of_doubt(choice: BlockChoice) -> None:
    """Warn of what remains uncertain."""
    if choice.doubt:
        why, doubt = (text[0].upper() + text[1:] for text in (choice.why, choice.doubt))
        warn(
            f"{why}. {doubt}: answers may be wrong even if the chains agree. Compare runs from "
            "other initial_states, observe more variables, set larger blocks, or take "
            "ParallelTempering.",
            BlocksWarning,
        )


def add_blocks(
    ensemble: Any, blocks: Any, *, fast: bool, n_burn_in: int, verbose: int = 0
) -> tuple[Any, BlockChoice]:
    """Return the chains to draw with, and the choice of blocks.

    ``ensemble`` has finished its burn-in of ``n_burn_in`` transitions, and has the frozen rule. If
    ``n_burn_in`` is 0 the chains stay where they are, and no scouts are sent.
    """
    target, n_chains = ensemble.target, len(ensemble)
    why = _why_not(target, blocks, fast)
    if why:
        return ensemble, BlockChoice("none", why)
    with Progress(verbose, "scouts"):
        needed, why = _why(target, ensemble, blocks, n_burn_in)
    if not needed:
        return ensemble, BlockChoice("none", why)
    source, said = _source(target, blocks, n_chains, verbose)
    doubt = _doubt(target, source, blocks)
    if source is None:
        return ensemble, BlockChoice("none", f"{why}; but {said}", doubt=doubt)
    rule = ensemble.rule
    moves = target.offers.n_moves
    of_entry = OF_DRAWN_ENTRY if source.whole else OF_ENTRY
    redraw = OF_REDRAW + source.work * of_entry + moves * OF_MOVE
    moves_of_step = max(1.0, target.n_sites / transitions_of_a_sweep(rule, target))
    step = moves_of_step * (OF_STEP + ensemble.step_cost)
    share = max(step / (step + redraw), _FEWEST[source.whole] / max(1, target.n_sites))
    share = min(0.5, share)
    states = ensemble.chains.x.copy()
    if isinstance(source, Whole) and n_burn_in:  # start the chains in equilibrium
        states = draws_of(source, 1, n_chains, ensemble.streams.of("redraw"))
    made = BlockedEnsemble(
        target, states, ensemble.streams, ensemble.n_jobs, mixture(rule, source, share), source
    )
    made.chains.evaluations[:] = ensemble.chains.evaluations
    if isinstance(source, Whole):
        made.chains.evaluations[0] += n_entries(source.elimination.found.cost)
    with Progress(verbose, "redraws"):
        made.start(made.rule)
    if isinstance(source, BlockPool) and n_burn_in:
        with made.threads():
            run_burn_in(made, int(_EACH * len(source.orders) / share), verbose=verbose)
    kind = "whole" if source.whole else "pool"
    return made, BlockChoice(kind, f"{why}; {said}", share, tuple(source.blocks), doubt)

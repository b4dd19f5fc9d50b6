"""Whether blocks of variables are redrawn besides locally balanced steps, and which."""

import numbers
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.rules.balanced import Balanced
from sklsb._system.progress import Progress
from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.exact.elimination.blocks import MOST_LOG2_SIZE, Pool, Whole, choose_blocks
from sklsb.exact.elimination.engine import (
    MAX_MEMORY,
    MAX_WORK,
    fits,
    n_entries,
    ordered,
)
from sklsb.exact.elimination.mixed import BlockedEnsemble, Source, mixture
from sklsb.exact.elimination.order import MOST_VARIABLES
from sklsb.exact.elimination.progress import eliminated
from sklsb.exact.elimination.reduce import Reduced, log_factors, strike
from sklsb.exceptions import BlocksWarning
from sklsb.samplers._run.burn_in import run_burn_in
from sklsb.samplers._run.checks import check_log2_size
from sklsb.samplers._run.scouts import OF_ENTRY, scout
from sklsb.targets.base import Target

# Log2 of the entries of a table of a block by default.
LOG2_SIZE = 12
# Pairs of variables beyond which a model is not looked at: all are connected with too many others.
_MOST_PAIRS = 1 << 20
# What a step and a redraw take besides, in log-ratios; what an entry takes that a draw of the whole
# model looks at, one of a message of a block, and a move that is weighed anew. So redraws of
# the whole model took 0.4 to 0.65 of the time on asia, alarm, hailfinder, Grids_12, Pedigree_11,
# Promedus_32 and an 8x8 lattice, those of a pool 0.5 to 0.6 on Pedigree_11, Grids_11, linkage_21,
# a 30x30 lattice, and 0.7 on a dense Ising model, whose log-ratios are cheap.
_OF_STEP, _OF_REDRAW, _OF_MOVE = 12.0, 24.0, 1.0 / 2.0
_OF_DRAWN = {True: 1.0 / 2.0, False: OF_ENTRY}
# Redraws in a sweep, at least: of a whole model, and of a pool; redraws of each block before draws.
_FEWEST = {True: 1.0 / 4.0, False: 1.0 / 16.0}
_EACH = 4

__all__ = [
    "LOG2_SIZE",
    "BlockChoice",
    "add_blocks",
    "check_blocks",
    "warn_of_doubt",
]


@dataclass(frozen=True)
class BlockChoice:
    """Which blocks of variables are redrawn besides locally balanced steps, and why.

    Parameters
    ----------
    kind : {"none", "whole", "pool"}
        No blocks, one block of all variables, or several, of which a random one is drawn anew.
    why : str
        What was found.
    share : float
        Probability that a transition is a redraw.
    sites : tuple of ndarray of int64
        The variables of each block.
    doubt : str
        What is not known of them, if they are needed; `LSBSampler.fit` warns of it.
    """

    kind: str
    why: str
    share: float = 0.0
    sites: tuple[NDArray[np.int64], ...] = ()
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
    if not _why_not(target, blocks, fast) and not target._trusts_factors:
        log_factors(target)  # what is wrong with them is said before any work


def _why_not(target: Target, blocks: Any, fast: bool) -> str:
    """Say why there can be no blocks, or nothing."""
    if blocks is None:
        return "blocks=None"
    if fast:
        return "fast=True goes by first-order log-ratios"
    if not target._has_factors:
        return "the target is not made of factors"
    n = target.n_sites
    if n > MOST_VARIABLES:
        return f"there are {n} variables; orders of elimination are looked for among fewer"
    graph = target.graph
    if blocks == "auto" and graph is not None and graph.nnz > _MOST_PAIRS:
        return "too many pairs of variables are connected"
    return ""


def has_joint_zeros(model: Reduced) -> bool:
    """Whether a zero over several variables is left, where values are struck that none allows."""
    return any(len(scope) > 1 and not (table > -np.inf).all() for scope, table in model.factors)


def _why(target: Target, ensemble: BalancedEnsemble, blocks: Any, n: int) -> tuple[bool, str]:
    """Return whether blocks are needed, and what was found."""
    if blocks != "auto":
        return True, f"blocks={blocks}"
    if target._joint_zeros and has_joint_zeros(strike(target)):
        return True, "zeros of tables tie variables to each other"
    if not n:
        return False, "no zero ties variables, and without a burn-in no scouts are sent"
    disagree, found = scout(ensemble)
    return disagree, found if disagree else f"no zero ties variables, and {found}"


def _source(target: Target, blocks: Any, n_chains: int, verbose: int) -> tuple[Source | None, str]:
    """Return what redraws are made by, if anything, and what it is like."""
    struck = strike(target)
    if not struck.free:
        return None, "one state is possible"
    limits = float(MAX_WORK), float(MAX_MEMORY)
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
    return Pool(struck, orders), f"{said}blocks are redrawn, of tables of 2**{size}"


def _doubt(target: Target, source: Source | None, blocks: Any) -> str:
    """Return what is not known of blocks that are needed."""
    if source is not None and source.whole:
        return ""
    moves = "single changes" if source is None else "blocks"
    if target._joint_zeros and has_joint_zeros(strike(target)):
        return f"whether {moves} lead to all possible states is not known"
    return f"whether {moves} lead from mode to mode is not known" if blocks == "auto" else ""


def warn_of_doubt(choice: BlockChoice, stacklevel: int) -> None:
    """Say what is not known of the blocks."""
    if choice.doubt:
        why, doubt = (text[0].upper() + text[1:] for text in (choice.why, choice.doubt))
        warnings.warn(
            f"{why}. {doubt}: answers may be wrong even if the chains agree. Compare runs from "
            "other initial_states, observe more variables, set larger blocks, or take "
            "ParallelTempering.",
            BlocksWarning,
            stacklevel=stacklevel + 1,
        )


def add_blocks(
    ensemble: Any, blocks: Any, *, fast: bool, n_burn_in: int, verbose: int = 0
) -> tuple[Any, BlockChoice]:
    """Return the chains that draws are made with, and what was chosen.

    Parameters
    ----------
    ensemble : LearnableEnsemble
        Chains after the burn-in, with the frozen rule.
    blocks : "auto", None or int
        As of `LSBSampler`.
    fast : bool
        Whether the chains go by first-order log-ratios.
    n_burn_in : int
        Transitions of the burn-in. 0: the chains stay where they are, and no scouts are sent.
    verbose : int
        1 shows a line for each phase.
    """
    target, n_chains = ensemble.target, len(ensemble)
    why = _why_not(target, blocks, fast)
    if why:
        return ensemble, BlockChoice("none", why)
    with Progress(verbose, "copies of the chains"):
        needed, why = _why(target, ensemble, blocks, n_burn_in)
    if not needed:
        return ensemble, BlockChoice("none", why)
    source, said = _source(target, blocks, n_chains, verbose)
    doubt = _doubt(target, source, blocks)
    if source is None:
        return ensemble, BlockChoice("none", f"{why}; but {said}", doubt=doubt)
    rule: Balanced = ensemble.rule
    moves = int((target.cardinalities - 1).sum())
    redraw = _OF_REDRAW + source.work * _OF_DRAWN[source.whole] + moves * _OF_MOVE
    step = _OF_STEP + ensemble.step_cost
    share = max(step / (step + redraw), _FEWEST[source.whole] / max(1, target.n_sites))
    share = min(0.5, share)
    states = ensemble.chains.x.copy()
    if isinstance(source, Whole) and n_burn_in:  # the chains begin where they should be
        source.want([1] * n_chains, 1, ensemble.streams.of("redraw"))
        states = np.concatenate([source.take(c, 1)[0] for c in range(n_chains)])
    made = BlockedEnsemble(
        target, states, ensemble.streams, ensemble.n_jobs, mixture(rule, source, share), source
    )
    made.chains.evaluations[:] = ensemble.chains.evaluations
    if isinstance(source, Whole):
        made.chains.evaluations[0] += n_entries(source.elimination.found.cost)
    with Progress(verbose, "redraws"):
        made.start(made.rule)
    if isinstance(source, Pool) and n_burn_in:
        with made.threads():
            run_burn_in(made, int(_EACH * len(source.orders) / share), keep=False, verbose=verbose)
    choice = BlockChoice(
        "whole" if source.whole else "pool", f"{why}; {said}", share, tuple(source.blocks), doubt
    )
    return made, choice

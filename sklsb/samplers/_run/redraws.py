"""Whether blocks of variables are redrawn besides single changes, and which ones.

Scouts, copies of the chains that go on after the burn-in, show whether single changes suffice.
"""

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from sklsb._kernels.elimination.buckets import LINEAR
from sklsb._system.memory import at_once
from sklsb._system.progress import Progress
from sklsb._system.warn import warn
from sklsb.diagnostics.agreement import disagreement
from sklsb.diagnostics.tally import Tally, chance_of_difference, normal_scores, spread
from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.ensembles.protocol import MOST_NUMBERS
from sklsb.ensembles.rules import transitions_of_a_sweep
from sklsb.ensembles.streams import Streams
from sklsb.exact.elimination.blocks import MOST_LOG2_SIZE, Pool, Whole, choose_blocks
from sklsb.exact.elimination.cost import fits, n_entries
from sklsb.exact.elimination.engine import Elimination, eliminated, ordered
from sklsb.exact.elimination.mixed import BlockedEnsemble, Source, mixture
from sklsb.exact.elimination.order import MOST_VARIABLES, is_affordable
from sklsb.exact.elimination.reduce import Reduced, log_factors, prune, strike
from sklsb.exceptions import BlocksWarning
from sklsb.samplers._run.burn_in import run_burn_in
from sklsb.samplers._run.checks import check_log2_size
from sklsb.targets.base import States, Target

# Log2 of the entries of a table of a block by default.
LOG2_SIZE = 12
# Most table entries and bytes of redraws of the whole model.
MAX_WORK, MAX_MEMORY = 2.0**30, 2.0**28
# Most pairs of connected variables for which blocks are considered.
_MOST_PAIRS = 1 << 20
# Costs in log-ratios: of a table entry, and of a variable or factor in Python.
OF_ENTRY, _OF_FACTOR = 1.0 / 8.0, 512.0
# Further costs in log-ratios: overhead of a step and of a redraw, a move whose weight is updated,
# and an entry looked at in a draw of the whole model or in a message of a block. With these,
# redraws of the whole model took 0.4 to 0.65 of the time on asia, alarm, hailfinder, Grids_12,
# Pedigree_11, Promedus_32 and an 8x8 lattice; those of a pool 0.5 to 0.6 on Pedigree_11, Grids_11,
# linkage_21 and a 30x30 lattice, and 0.7 on a dense Ising model, whose log-ratios are cheap.
_OF_STEP, _OF_REDRAW, _OF_MOVE = 12.0, 24.0, 1.0 / 2.0
_OF_DRAWN = {True: 1.0 / 2.0, False: OF_ENTRY}
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


def has_joint_zeros(model: Reduced) -> bool:
    """Whether a zero over several variables is left after impossible values are struck."""
    return any(len(scope) > 1 and not (table > -np.inf).all() for scope, table in model.factors)


def tied_by_zeros(target: Target) -> bool:
    """Whether zeros of tables tie variables to each other."""
    return bool(target.offers.joint_zeros) and has_joint_zeros(strike(target))


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
    return Pool(struck, orders), f"{said}blocks are redrawn, of tables of 2**{size}"


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
    moves = int((target.cardinalities - 1).sum())
    redraw = _OF_REDRAW + source.work * _OF_DRAWN[source.whole] + moves * _OF_MOVE
    moves_of_step = max(1.0, target.n_sites / transitions_of_a_sweep(rule, target))
    step = moves_of_step * (_OF_STEP + ensemble.step_cost)
    share = max(step / (step + redraw), _FEWEST[source.whole] / max(1, target.n_sites))
    share = min(0.5, share)
    states = ensemble.chains.x.copy()
    if isinstance(source, Whole) and n_burn_in:  # start the chains in equilibrium
        states = _draws_of(source, 1, n_chains, ensemble.streams.of("redraw"))
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
    kind = "whole" if source.whole else "pool"
    return made, BlockChoice(kind, f"{why}; {said}", share, tuple(source.blocks), doubt)


def _draws_of(source: Whole, n: int, n_chains: int, rngs: Any) -> States:
    """Return n exact draws of each chain, chain after chain."""
    source.want([n] * n_chains, n, rngs)
    return np.concatenate([source.take(c, n)[0] for c in range(n_chains)])


# Sweeps of the scouts' first and second try, and the fewest of the first one if it is cut short.
_SWEEPS, _FEWEST_SWEEPS = (16, 64), 8
# Transitions of a scout in the first try: at least, and at most unless a share of the evaluations
# so far allows more. The second try is longer by at least a factor.
_FEWEST_STEPS, _STEPS, _SHARE, _LONGER = 1 << 12, 1 << 13, 0.25, 4
# Largest ratio of differences to chance if chains are only slow: of most values, and of an outlier
# that is seen rarely.
_MOST_SLOW, _MOST_RARE = 5.0, 32.0
# Looks at each scout, which are compared with up to as many exact draws, or not with fewer than.
_LOOKS, _FEWEST_DRAWS = 128, 16
# Evaluations always allowed for looking at a model and for eliminating it; its most variables.
_TO_LOOK, _TO_ELIMINATE, _MOST_CHECKED = 1 << 18, 1 << 19, 2000
# Probability below which differences are not taken for chance.
_CHANCE = 1e-3

Looks = tuple[NDArray[Any], NDArray[np.float64]]


def scout(ensemble: BalancedEnsemble) -> tuple[bool, str]:
    """Let copies of the chains go on; return whether they disagree, and what was found.

    Slow chains get a second, longer try. If exact draws are cheap, scouts are compared with some,
    since all chains may be in one mode. The evaluations are counted; the chains stay in place.
    """
    target = ensemble.target
    budget = _SHARE * float(ensemble.chains.evaluations.sum())
    scouts = BalancedEnsemble(
        target, ensemble.chains.x, Streams(ensemble.streams.of("scout", 1)), ensemble.n_jobs
    )
    d = target.n_sites
    most = max(_STEPS, int(budget / max(1.0, ensemble.step_cost * len(ensemble))))
    first = max(_FEWEST_STEPS, min(most, _SWEEPS[0] * d))
    if not d:
        return False, "there are no variables"
    if first < _FEWEST_SWEEPS * d:
        return False, "there are too many variables to send scouts after so short a burn-in"
    exact: tuple[Looks | None, int] | None = None  # draws and their cost
    with scouts.threads():
        scouts.start(ensemble.rule)
        for steps in (first, max(_LONGER * first, _SWEEPS[1] * d)):
            seen = _look(scouts, steps)
            found = _disagree(target, seen, steps / d)
            if not found:
                exact = exact or _exact_draws(ensemble, budget)
                found = _differ(target, seen, exact[0]) if exact[0] else ""
            if not found:
                break
    ensemble.chains.evaluations[:] += scouts.chains.evaluations
    ensemble.chains.evaluations[0] += exact[1] if exact else 0
    if found:
        return True, f"scouts disagree after the burn-in, {found}"
    return False, "scouts agree after the burn-in"


def _look(scouts: BalancedEnsemble, steps: int) -> Looks:
    """Let the scouts go on; return states and log p at regular intervals."""
    n_chains, n_sites = scouts.chains.x.shape
    draws = np.empty((n_chains, _LOOKS, n_sites), dtype=scouts.target.dtype)
    stats = np.empty((n_chains, _LOOKS, 2))
    thin = -(-steps // _LOOKS) | 1  # odd: a flat chain is periodic
    most = at_once(MOST_NUMBERS, 2 * thin)
    for begin in range(0, _LOOKS, most):
        size = min(most, _LOOKS - begin)
        scouts.run(size * thin, (thin, 0, begin), draws, stats)
    return draws, stats[:, :, 0]


def _disagree(target: Target, seen: Looks, sweeps: float) -> str:
    """Say how scouts disagree, or return ""."""
    if sweeps < _SWEEPS[1] and not _stand_out(target, seen):
        return ""
    tally = Tally(target, len(seen[0]))
    tally.add(*seen, 1)
    found = disagreement(tally, target)
    return "" if found.agree else f"most of all in {found.worst}"


def _stand_out(target: Target, seen: Looks) -> bool:
    """Whether some values differ between halves of scouts by more than most values do.

    In a few sweeps all values that change slowly differ, by a factor that the median shows. All are
    suspect only if that factor is large.
    """
    x, lp = seen
    of_lp, freedom = spread(normal_scores(lp))
    ratio = np.append([spread(x == value)[0] for value in target.values], of_lp)
    ratio = ratio[~np.isnan(ratio)]
    if not ratio.size:
        return False
    slow = max(1.0, float(np.median(ratio) / f_distribution.median(*freedom)))
    most = max(_MOST_RARE, float(f_distribution.isf(_CHANCE / ratio.size, *freedom)))
    return slow > _MOST_SLOW or bool(ratio.max() > slow * most)


def _differ(target: Target, seen: Looks, draws: Looks) -> str:
    """Say how scouts differ from exact draws, or return ""."""
    (x, lp), (y, lp_y) = seen, draws
    scores = np.split(normal_scores(np.append(lp, lp_y)), [lp.size])
    by_value = [chance_of_difference(x == value, y == value) for value in target.values]
    of_lp = chance_of_difference(scores[0].reshape(lp.shape), scores[1])
    p = np.nan_to_num(np.append(np.fmin.reduce(by_value), of_lp), nan=1.0)
    worst = int(p.argmin())
    if p[worst] * (1 + int(target.cardinalities.sum())) >= _CHANCE:
        return ""
    where = "lp" if worst == target.n_sites else target.label(worst)
    return f"with exact draws, most of all in {where}"


def _exact_draws(ensemble: BalancedEnsemble, budget: float) -> tuple[Looks | None, int]:
    """Return exact draws, as many as there are looks or fewer, and the table entries they took.

    The model is eliminated only if the budget, in log-ratios, allows each step.
    """
    target, graph = ensemble.target, ensemble.target.graph
    pairs = target.n_sites**2 if graph is None else graph.nnz
    to_look = _OF_FACTOR * (2 * target.n_sites + pairs / 2)
    if to_look > max(budget, _TO_LOOK) or target.n_sites > _MOST_CHECKED:
        return None, 0
    entries = max(budget - to_look, _TO_ELIMINATE) / OF_ENTRY
    struck = strike(target)
    model = prune(struck)
    if not struck.free or not is_affordable(model.free, model.factors, model.sizes, entries):
        return None, 0
    limits = entries, MAX_MEMORY
    found = ordered(struck, limits=limits)
    if not fits(found.cost, limits) or found.cost.n_configurations > 1:
        return None, 0
    elimination = Elimination(found, LINEAR)
    n_chains = len(ensemble)
    most = (entries - n_entries(found.cost)) / max(1, n_chains * elimination.entries_per_draw)
    n = min(_LOOKS, int(most))
    if n < _FEWEST_DRAWS:
        return None, 0
    rngs = ensemble.streams.of("scout", 2)
    draws = _draws_of(Whole(elimination, n_chains), n, n_chains, rngs)
    # As the kernels sum it, so that the same states have the same log p.
    lp = BalancedEnsemble(target, draws, [rngs[0]] * len(draws)).log_prob()
    return (draws, lp), n_entries(found.cost) + len(draws) * elimination.entries_per_draw

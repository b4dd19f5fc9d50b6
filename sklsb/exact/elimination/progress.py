"""Eliminations that take long, with a line that shows how far they are."""

from collections.abc import Callable

from sklsb._kernels.elimination.buckets import LINEAR
from sklsb._system.progress import Progress
from sklsb.exact.elimination.engine import (
    Elimination,
    Limits,
    Ordered,
    check_fits,
    ordered,
)
from sklsb.exact.elimination.reduce import strike
from sklsb.targets.base import Target


def shown(verbose: int) -> Callable[[float], Progress]:
    """Return what makes a line about so many table entries, or nothing."""
    return lambda entries: Progress(verbose, "eliminate", round(entries), "entries")


def that_fits(target: Target, limits: Limits, verbose: int = 0, *, pruned: bool = True) -> Ordered:
    """Find an order that keeps the limits, or say what exceeds them."""
    with Progress(verbose, "order of elimination"):
        found = ordered(strike(target), pruned=pruned, limits=limits)
    check_fits(target, found.cost, limits)
    return found


def eliminated(found: Ordered, verbose: int, mode: int = LINEAR) -> Elimination:
    """Make the messages of all configurations."""
    elimination = Elimination(found, mode)
    with shown(verbose)(2.0**found.cost.log2_work) as progress, elimination.watched(progress):
        elimination.run()
    return elimination

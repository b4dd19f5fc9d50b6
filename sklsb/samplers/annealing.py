"""Simulated annealing: the maximum of log p, where elimination does not fit."""

import numbers
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from sklsb._kernels._jit import warn_if_uncached
from sklsb._kernels.chains import NoPart
from sklsb._kernels.rules.gibbs import Systematic
from sklsb._kernels.tempering import anneal as kernels
from sklsb._system.arrays import Array
from sklsb._system.memory import at_once
from sklsb._system.progress import Progress, deferred_interrupt
from sklsb._system.warn import warn
from sklsb._words import worded
from sklsb.ensembles.base import MOST_NUMBERS, next_segment
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.elimination.engine import affordable, best_state
from sklsb.exact.elimination.reduce import strike
from sklsb.exceptions import FrozenSitesWarning, InterruptedWarning
from sklsb.samplers._run.checks import check_count, check_n_chains
from sklsb.samplers._run.fixed import free_sites
from sklsb.samplers._run.warnings import isolation
from sklsb.samplers._tempering.paths import Penalised, penalised
from sklsb.targets._checks import not_a_target
from sklsb.targets._precision import (
    LARGE,
    MOST_ROUNDING,
    log_prob_from_top,
    rounding_of,
    warn_if_lost,
)
from sklsb.targets.base import States, Target
from sklsb.trials.prices import MAX_MEMORY, MAX_WORK, OF_ENTRY

# Sweeps of the first, the longest and the timed descent.
_SHORTEST, _LONGEST, _TRIAL = 64, 4096, 2
# Random states, and states reached uphill, at which log-ratios are looked at.
_LOOKS = 4
# Probability of the largest change at the first temperature, and of a small one at the last; the
# percentile of changes that counts as small.
_HOT, _COLD, _SMALL = 0.06, 1e-4, 5.0
# Changes below this share of the largest count as rounding, but none above that size.
_ROUNDING, _MOST_ROUNDING = 1e-9, 1e-3
# For networks with zeros, in units of the largest change: the initial cost of a zero, its growth
# after a descent that ended at one, the inverse temperatures of the part of a descent in which
# zeros may be passed, that part's share of the sweeps, and a prohibitive cost.
_COST, _DEARER, _SOFT, _SHARE, _NEVER = 0.6, 1.5, (1.2, 20.0), 0.75, 1e6
# Least number of log-ratios per second.
_PER_SECOND = 1 << 24
# Costs in log-ratios: of looking at a variable or factor; always allowed (a tenth of a second) for
# looking at a network with zeros, and for eliminating; the largest share of the time for the look.
_OF_FACTOR, _TO_LOOK, _TO_ELIMINATE, _LOOK = 1 << 12, 1 << 22, 1 << 19, 1 / 16


class _Annealer:
    """Chains that are cooled again and again, and the best state of each."""

    def __init__(self, target: Target, streams: Streams, zeros: Penalised | None):
        self.target, self.streams, self.zeros = target, streams, zeros
        self.sites = free_sites(target)
        states = _starts(target, streams)
        self.ensemble = Ensemble(target, states, streams, 1, Systematic(self.sites, 1))
        self.chains = self.ensemble.chains._replace(part=NoPart())
        self.view = target.site_view() if zeros is None else zeros.view(_NEVER)
        self.best, self.log_prob = states.copy(), target.log_prob(states)
        self.height = log_prob_from_top(target, states)  # to compare states by
        self.largest = 1.0  # change of log p
        self.beta = self._range() if self.sites.size else (1.0, 1.0)
        self.cost = np.full(len(states), _COST * self.largest)  # of a zero, by chain
        self.segment = 1  # sweeps per kernel call
        self.interrupted: Callable[[], bool] = lambda: False

    def _range(self) -> tuple[float, float]:
        """Return inverse temperatures at which most and hardly any changes are accepted."""
        rng = self.streams.of("pilot")[0]
        relaxed = self.target if self.zeros is None else self.zeros.relaxed
        looked = [relaxed.log_ratios(self.target.draw_state(rng)) for _ in range(_LOOKS)]
        sizes = np.abs(np.concatenate(looked))
        sizes = sizes[np.isfinite(sizes)]
        largest = sizes.max(initial=0.0)
        if not largest > 0.0:
            return 1.0, 1.0
        self.largest = float(largest)
        least = min(_ROUNDING * largest, _MOST_ROUNDING)
        small = np.percentile(sizes[sizes > least], _SMALL)
        return -np.log(_HOT) / largest, -np.log(_COLD) / small

    def descend(self, n_sweeps: int, n_chains: int = 0) -> None:
        """Cool all or the first chains, go uphill, and keep the best states."""
        beta = np.geomspace(*self.beta, n_sweeps)
        for c in range(n_chains or len(self.streams)):
            if self.interrupted():
                return
            with self.target.guard(self.chains):
                self._descend(c, beta)

    def _descend(self, c: int, beta: Array) -> None:
        kernels.begin(self.view, self.chains, c)
        if self.zeros is None:
            self._cool(self.view, c, beta)
        else:
            # First it may pass through zeros, and in the end no more.
            n, (first, last) = int(_SHARE * beta.size), np.array(_SOFT) / self.largest
            self._cool(self.zeros.view(self.cost[c]), c, np.geomspace(first, last, n))
            self._cool(self.view, c, np.geomspace(last, max(last, beta[-1]), beta.size - n))
        while not self.interrupted() and kernels.climb(self.view, self.chains, c, self.sites):
            pass
        x = self.chains.x[c]
        found, height = float(self.target.log_prob(x)), float(log_prob_from_top(self.target, x))
        self.cost[c] *= 1.0 if found > -np.inf else _DEARER
        if height > self.height[c]:
            self.best[c], self.height[c], self.log_prob[c] = x, height, found

    def _cool(self, view: Any, c: int, beta: Array) -> None:
        """Make a sweep at each beta, a tenth of a second per kernel call."""
        most, done = at_once(MOST_NUMBERS, self.sites.size), 0
        while done < beta.size and not self.interrupted():
            began = time.perf_counter()
            part = beta[done : done + min(self.segment, most)]
            numbers_ = self.streams.chain[c].random(part.size * self.sites.size)
            kernels.cool(view, self.chains, c, self.sites, part, numbers_)
            done += part.size
            seconds = time.perf_counter() - began
            self.segment = next_segment(self.segment, part.size, seconds)


def _starts(target: Target, streams: Streams) -> States:
    """Draw a state for each chain."""
    x = [target.draw_state(rng) for rng in streams.of("start")]
    return np.array(x, target.dtype).reshape(len(x), target.n_sites)


def _lengths(n_sweeps: int) -> list[int]:
    """Return the sweeps of each descent: they double up to the longest, which is repeated."""
    found, left, size = [], n_sweeps, _SHORTEST
    while left > 0:
        size = left if left < 2 * size else size  # no short rest
        found.append(size)
        left -= size
        size = min(2 * size, _LONGEST)
    return found


@worded
def anneal(
    target: Target,
    *,
    seconds: float | None = None,
    n_sweeps: int | None = None,
    n_chains: int = 4,
    random_state: Any = None,
    verbose: int = 0,
) -> xr.Dataset:
    """Look for the state of largest probability by simulated annealing.

    Every chain is cooled repeatedly, more slowly each time, from a temperature at which it moves
    freely to one at which it is stuck; then it goes uphill. Zeros in the tables of a
    `MarkovNetwork` count as small numbers on the way, never in the answer. If elimination takes no
    longer, it is used instead, and the answer is proven.

    Parameters
    ----------
    target : Target
        Its log p is maximised.
    seconds : float, optional
        Approximate time for the search, without compilation; 10 if neither this nor ``n_sweeps`` is
        given. Each chain makes at least a few sweeps.
    n_sweeps : int, optional
        Number of sweeps of each chain over all variables, instead of a time. Then the same seed
        gives the same states.
    n_chains : int, default=4
        Number of chains, which start at random states of positive probability.
    random_state : int, SeedSequence, Generator, RandomState or None, default=None
        Seed.
    verbose : int, default=0
        1 shows progress.

    Returns
    -------
    xarray.Dataset
        Variable ``x`` of dims chain and the target's, the best state of each chain, with the
        coordinate ``lp``, its log-density. The attribute ``proven`` is 1 if elimination found the
        maximum, which all chains then have; otherwise there may be a better state.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described, or both ``seconds`` and ``n_sweeps`` are given.

    Warns
    -----
    InterruptedWarning
        After a Ctrl-C, which returns the best states so far; before the first sweep, states at
        random. A second Ctrl-C raises a KeyboardInterrupt.
    PrecisionWarning
        If terms of log p cancel and are so large that rounding hides which state is the best.
    FrozenSitesWarning
        If no change of a single variable leads from the states that were found to another one.

    See Also
    --------
    sklsb.exact.most_likely : the maximum itself, if the variables are loosely connected.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Ising, anneal
    >>> rng = np.random.default_rng(0)
    >>> weights = np.triu(rng.integers(2, size=(20, 20)), 1)
    >>> found = anneal(Ising.from_maxcut(weights + weights.T), n_sweeps=200, random_state=0)
    >>> best = found.isel(chain=int(found["lp"].argmax("chain")))
    >>> best["x"].shape
    (20,)
    """
    if not isinstance(target, Target):
        raise not_a_target(target)
    n_chains = check_n_chains(n_chains, target)
    if n_sweeps is not None and seconds is not None:
        raise ValueError(f"seconds is {seconds!r} and n_sweeps is {n_sweeps!r}; give one of them.")
    if n_sweeps is not None:
        check_count(n_sweeps, "n_sweeps", 1)
    seconds = 10.0 if seconds is None else seconds
    if isinstance(seconds, bool) or not isinstance(seconds, numbers.Real):
        raise TypeError(f"seconds is {seconds!r}; give a positive number.")
    if not 0.0 < seconds < np.inf:
        raise ValueError(f"seconds is {seconds!r}; give a positive number.")
    warn_if_uncached()
    effort = seconds * _PER_SECOND if n_sweeps is None else n_sweeps * n_chains * target.n_sites
    try:
        zeros = penalised(target)
        found = _maximum(target, float(effort), zeros is not None, verbose)
        if found is None:
            annealer = _Annealer(target, Streams(spawn(random_state, n_chains)), zeros)
    except KeyboardInterrupt:
        x = _starts(target, Streams(spawn(random_state, n_chains)))
        warn("Interrupted before the first sweep: returning states at random.", InterruptedWarning)
        return _dataset(target, x, target.log_prob(x), proven=False)
    if found is not None:
        x = np.tile(found, (n_chains, 1))
        return _dataset(target, x, target.log_prob(x), proven=True)
    with deferred_interrupt() as annealer.interrupted:
        if n_sweeps is None:
            _for_seconds(annealer, float(seconds), verbose)
        else:
            _for_sweeps(annealer, int(n_sweeps), verbose)
        best = _dataset(target, annealer.best, annealer.log_prob, proven=False)
    if annealer.interrupted():
        warn("Interrupted: returning the best states so far.", InterruptedWarning)
    elif zeros is None and (stuck := isolation(target, annealer.best, annealer.ensemble.rule)):
        warn(f"There may be much better states.{stuck}", FrozenSitesWarning)
    return best


def _dataset(target: Target, x: States, log_prob: Array, *, proven: bool) -> xr.Dataset:
    """Label the best states; where rounding loses which of them is best, warn."""
    height = log_prob_from_top(target, x) if target.offers.factors else log_prob
    size = float(np.abs(height.max()))
    warn_if_lost(target, size)
    if target.offers.size > LARGE:  # lp may be the same where one is better
        order = np.argsort(-height, kind="stable")
        x, log_prob = x[order], log_prob[order]
    return xr.Dataset(
        {"x": (("chain", *target.dims), x.reshape(len(x), *target.shape))},
        coords={"chain": np.arange(len(x)), **target.coords, "lp": ("chain", log_prob)},
        attrs={"proven": int(proven and rounding_of(size) <= MOST_ROUNDING)},  # for netCDF
    )


def _maximum(target: Target, log_ratios: float, has_zeros: bool, verbose: int) -> States | None:
    """Return a state of largest probability, if elimination costs at most these log-ratios.

    Finding that out takes a small share of them, or a moment if there are zeros.
    """
    if not target.offers.factors:
        return None
    most = max(_LOOK * log_ratios, _TO_LOOK * has_zeros) / _OF_FACTOR
    if target.n_sites > most:
        return None
    if target.n_sites + (0 if target.graph is None else target.graph.nnz / 2) > most:
        return None
    limits = min(max(log_ratios, _TO_ELIMINATE) / OF_ENTRY, MAX_WORK), MAX_MEMORY
    found = affordable(strike(target), limits, pruned=False, need="state")
    return best_state(found, verbose)[0] if found else None


def _for_sweeps(annealer: _Annealer, n_sweeps: int, verbose: int) -> None:
    """Cool repeatedly, for this number of sweeps in all."""
    with Progress(verbose, "anneal", n_sweeps, "sweeps") as progress:
        for size in _lengths(n_sweeps):
            annealer.descend(size)
            if annealer.interrupted():
                return
            progress(size)


def _for_seconds(annealer: _Annealer, seconds: float, verbose: int) -> None:
    """Cool repeatedly until the time is over."""
    with Progress(verbose, "kernels"):
        annealer.descend(_TRIAL, 1)  # compiles
    began = time.perf_counter()
    size, spent = _TRIAL, 0.0
    with Progress(verbose, "anneal", seconds) as progress:
        while size > 0 and not annealer.interrupted():
            annealer.descend(size)
            now = time.perf_counter() - began
            per_sweep = (now - spent) / size
            progress(min(now, seconds) - spent)
            spent = now
            left = int((seconds - spent) / max(per_sweep, 1e-9))
            size = min(max(2 * size, _SHORTEST), _LONGEST)
            size = left if left < 2 * size else size

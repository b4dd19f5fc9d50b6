"""Simulated annealing: the maximum of log p, where elimination does not fit."""

import numbers
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb._kernels._jit import warn_if_uncached
from sklsb._kernels.chains import NoPart
from sklsb._kernels.tempering import anneal as kernels
from sklsb._system.progress import Progress, deferred_interrupt, next_segment
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.protocol import MOST_NUMBERS
from sklsb.ensembles.rules import Systematic
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.precision import log_prob_from_top
from sklsb.exceptions import InterruptedWarning
from sklsb.samplers._run.checks import check_count
from sklsb.samplers._run.fixed import free_sites
from sklsb.samplers._tempering.paths import hardened_view
from sklsb.targets.base import Target

__all__ = ["anneal"]

Array = NDArray[np.float64]
# Sweeps of the first and of the longest descent of the temperature, and of one that is timed.
_SHORTEST, _LONGEST, _TRIAL = 64, 4096, 2
# Random states, and states reached uphill, at which log-ratios are looked at.
_LOOKS = 4
# Probability of the largest change at the first temperature, and of a small one at the last: of one
# that so many of a hundred changes are smaller than.
_HOT, _COLD = 0.06, 1e-4
_SMALL = 5.0
# Changes below this share of the largest are taken for rounding, and none above that size.
_ROUNDING, _MOST_ROUNDING = 1e-9, 1e-3


class _Annealer:
    """Chains that are cooled again and again, and the best state of each."""

    def __init__(self, target: Target, streams: Streams):
        self.target, self.streams = target, streams
        self.sites = free_sites(target)
        x = [target.random_state(rng) for rng in streams.of("start")]
        states = np.array(x, target.dtype).reshape(len(x), target.n_sites)
        self.ensemble = Ensemble(target, states, streams, 1, Systematic(self.sites, 1))
        self.chains = self.ensemble.chains._replace(part=NoPart())
        self.view = hardened_view(target)
        self.best, self.log_prob = states.copy(), target.log_prob(states)
        self.height = log_prob_from_top(target, states)  # by which states are compared
        self.beta = self._range() if self.sites.size else (1.0, 1.0)
        self.segment = 1  # sweeps of the next call of a kernel
        self.interrupted: Callable[[], bool] = lambda: False

    def _range(self) -> tuple[float, float]:
        """Return inverse temperatures at which most and hardly any changes are accepted."""
        looked = []
        for rng in self.streams.of("pilot")[:1]:
            for _ in range(_LOOKS):
                x = self.target.random_state(rng)
                looked.append(np.abs(self.target.log_ratios(x)))
        sizes = np.concatenate(looked)
        sizes = sizes[np.isfinite(sizes)]
        largest = sizes.max(initial=0.0)
        if not largest > 0.0:
            return 1.0, 1.0
        least = min(_ROUNDING * largest, _MOST_ROUNDING)
        small = np.percentile(sizes[sizes > least], _SMALL)
        return -np.log(_HOT) / largest, -np.log(_COLD) / small

    def descend(self, n_sweeps: int, n_chains: int = 0) -> None:
        """Cool all or the first chains from where they are, go uphill, and keep what is best."""
        beta = np.geomspace(*self.beta, n_sweeps)
        guard = getattr(self.target, "guard", None)
        for c in range(n_chains or len(self.streams)):
            if self.interrupted():
                return
            if guard is None:
                self._descend(c, beta)
            else:
                with guard(self.chains):
                    self._descend(c, beta)

    def _descend(self, c: int, beta: Array) -> None:
        kernels.begin(self.view, self.chains, c)
        self._cool(c, beta)
        while not self.interrupted() and kernels.climb(self.view, self.chains, c, self.sites):
            pass
        x = self.chains.x[c]
        height = float(log_prob_from_top(self.target, x))
        if height > self.height[c]:
            self.best[c], self.height[c] = x, height
            self.log_prob[c] = float(self.target.log_prob(x))

    def _cool(self, c: int, beta: Array) -> None:
        """Make a sweep at each beta, a tenth of a second at a time; no state depends on it."""
        most, done = max(1, MOST_NUMBERS // max(1, self.sites.size)), 0
        while done < beta.size and not self.interrupted():
            began = time.perf_counter()
            part = beta[done : done + min(self.segment, most)]
            numbers_ = self.streams.chain[c].random(part.size * self.sites.size)
            kernels.cool(self.view, self.chains, c, self.sites, part, numbers_)
            done += part.size
            seconds = time.perf_counter() - began
            self.segment = next_segment(self.segment, part.size, seconds)


def _lengths(n_sweeps: int) -> list[int]:
    """Sweeps of each descent: they double, and the longest come again."""
    found, left, size = [], n_sweeps, _SHORTEST
    while left > 0:
        # What would be left for a short one goes to this one.
        size = left if left < 2 * size else size
        found.append(size)
        left -= size
        size = min(2 * size, _LONGEST)
    return found


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

    Every chain is cooled again and again, each time more slowly, from a temperature at which it
    moves freely to one at which it stands still; then it goes uphill. In the tables of a
    `MarkovNetwork` zeros are taken for small numbers on the way, never in the answer.

    Parameters
    ----------
    target : Target
        Whose log p is to be largest.
    seconds : float, optional
        How long to look, about, compilation apart; 10 if neither this nor ``n_sweeps`` is given.
        Each chain makes a few sweeps, however long they take.
    n_sweeps : int, optional
        Sweeps of each chain over all variables instead. Then the same seed gives the same states.
    n_chains : int, default=4
        Number of chains, which start at random states of positive probability.
    random_state : int, SeedSequence, Generator, RandomState or None, default=None
        Seed.
    verbose : int, default=0
        1 shows how far it is.

    Returns
    -------
    xarray.Dataset
        Variable ``x`` of dims chain and those of the target, the best state of each chain, with the
        coordinate ``lp``, its log-density.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described, or both ``seconds`` and ``n_sweeps`` are given.

    Warns
    -----
    InterruptedWarning
        After a Ctrl-C: then the states are the best so far. A second Ctrl-C raises a
        KeyboardInterrupt.

    See Also
    --------
    sklsb.exact.most_likely : the maximum itself, where the variables are loosely connected.

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
        raise TypeError(f"target is {target!r:.200}, not a sklsb Target.")
    n_chains = check_count(n_chains, "n_chains", 1)
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
    annealer = _Annealer(target, Streams(spawn(random_state, n_chains)))
    with deferred_interrupt() as annealer.interrupted:
        if n_sweeps is None:
            _for_seconds(annealer, float(seconds), verbose)
        else:
            _for_sweeps(annealer, int(n_sweeps), verbose)
    if annealer.interrupted():
        told = "Interrupted: returning the best states so far."
        warnings.warn(told, InterruptedWarning, stacklevel=2)
    x = annealer.best.reshape(n_chains, *target.shape)
    return xr.Dataset(
        {"x": (("chain", *target.dims), x)},
        coords={"chain": np.arange(n_chains), **target.coords, "lp": ("chain", annealer.log_prob)},
    )


def _for_sweeps(annealer: _Annealer, n_sweeps: int, verbose: int) -> None:
    """Cool again and again, so many sweeps in all."""
    with Progress(verbose, "anneal", n_sweeps, "sweeps") as progress:
        for size in _lengths(n_sweeps):
            annealer.descend(size)
            if annealer.interrupted():
                return
            progress(size)


def _for_seconds(annealer: _Annealer, seconds: float, verbose: int) -> None:
    """Cool again and again until the time is over."""
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

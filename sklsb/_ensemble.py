"""Several chains on one target: the arrays that the kernels work on, and the threads."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb import _compiled
from sklsb._compiled import BOUND, ENUMERATED, FAN_OUT, Chains, Table
from sklsb.targets.base import States, Target

# Transitions between two returns to Python, at most.
SEGMENT = 1 << 16
# Moves that may be drawn from one gradient.
MOST_FLIPS = 64


def _tree_levels(n_moves: int) -> NDArray[np.uint64]:
    """Where each level of the tree of block sums starts; the last entry is the total's place."""
    starts, size = [0], max(n_moves, 1)
    while True:
        groups = -(-size // FAN_OUT)
        starts.append(starts[-1] + groups * FAN_OUT)
        size = groups
        if size == 1:
            return np.array(starts, dtype=np.uint64)


def _allocate(target: Target, states: States, lazy: float) -> Chains:
    view: Any = target.view()
    n_chains = len(states)
    n_moves = view.touched_start.size - 1
    level = _tree_levels(n_moves)
    most_touched = int(np.diff(view.touched_start).max(initial=0))
    return Chains(
        x=np.array(states, dtype=target.dtype, order="C"),
        cache=np.zeros((n_chains, view.cache_size), dtype=np.int64),
        tree=np.zeros((n_chains, int(level[-1]) + 1)),
        offset=np.zeros((n_chains, 1)),
        moved=np.zeros((n_chains, n_moves), dtype=np.bool_),
        evaluations=np.zeros((n_chains, 1), dtype=np.int64),
        acceptance=np.zeros((n_chains, 1)),
        old_weight=np.empty((n_chains, most_touched)),
        group=np.empty((n_chains, most_touched), dtype=np.uint64),
        scratch=np.zeros((n_chains, getattr(view, "scratch_size", 0)), dtype=np.int64),
        level=level,
        lazy=lazy,
    )


class Ensemble:
    """Chains on one target, each with its own stream of random numbers.

    Parameters
    ----------
    target : Target
        What is sampled.
    states : ndarray of shape (n_chains, n_sites)
        Where the chains start; copied.
    rngs : list of Generator
        One per chain. Every transition takes two uniform numbers from its chain's stream.
    n_jobs : int, default=1
        Number of threads. It never changes a chain.
    lazy : float, default=0
        Probability that a transition does nothing.
    """

    n_flips = 1
    adapting = False  # whether the number of flips is free
    update_every = 1  # iterations of the burn-in, at least

    def __init__(
        self,
        target: Target,
        states: States,
        rngs: list[np.random.Generator],
        n_jobs: int = 1,
        lazy: float = 0.0,
    ):
        self.target = target
        self.view: Any = target.view()
        if type(self.view).__module__ != _compiled.__name__:
            raise TypeError(
                f"the view of {type(target).__name__} is defined in {type(self.view).__module__}; "
                f"it must be in {_compiled.__name__}, or numba's cache would go on using old code."
            )
        self.chains = _allocate(target, states, lazy)
        self.rngs = rngs
        self.lazy = lazy
        self.n_jobs = min(n_jobs, max(1, len(rngs)))
        self._pool: Executor | None = None

    def __len__(self) -> int:
        return len(self.rngs)

    @property
    def cost(self) -> int:
        """Log-ratios that it takes to look at all neighbours of one state."""
        return int(self.view.touched.size)

    @property
    def enumeration_cost(self) -> int:
        """The same in units of single log-ratios that a target computes at once."""
        return self.cost * self.target.ratio_cost

    @property
    def step_cost(self) -> float:
        """Mean number of log-ratios that a transition takes."""
        return self.cost / max(1, self.view.touched_start.size - 1)

    def __getstate__(self) -> dict[str, Any]:
        # A view may hold the address of a function, which is another one elsewhere.
        return {**self.__dict__, "_pool": None, "view": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, view=state["target"].view())

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Keep a pool of threads for the time of a fit or a sample."""
        if self.n_jobs == 1:
            yield
            return
        with ThreadPoolExecutor(self.n_jobs) as self._pool:
            try:
                yield
            finally:
                self._pool = None

    def _over_chains(self, work: Callable[[int, int], Any]) -> None:
        """Call work(first, last) on one range of chains per thread."""
        with self.target.guard(self.chains) as stop:
            if self._pool is None:
                work(0, len(self))
                return
            ends = np.linspace(0, len(self), self.n_jobs + 1).astype(int)
            futures = [self._pool.submit(work, *span) for span in pairwise(ends)]
            try:
                for future in futures:
                    future.result()
            except BaseException as error:  # Ctrl-C: nothing may go on moving the chains
                stop(error)
                wait(futures)
                raise

    def start(self, table: Table) -> None:
        """Compute all caches from the states."""
        self._over_chains(
            lambda first, last: _compiled.start(self.view, table, self.chains, first, last)
        )

    def follow(self, acceptance: float, n_transitions: int) -> None:
        """Nothing follows the acceptance of the last transitions."""

    def begin_like(self, other: "Ensemble") -> None:
        """Nothing that other chains have found is of use."""

    def adapt(self, table: Table, n_transitions: int) -> None:
        """Make no transitions: there is nothing to find out for a function that changes no more."""

    def log_ratios(self) -> NDArray[np.float64]:
        """Log-ratios of all moves at each chain's state, shape (n_chains, n_moves)."""
        return self.target.log_ratios(self.chains.x)

    def log_prob(self) -> NDArray[np.float64]:
        """Log p of each chain's state, without the target's constant."""
        out = np.empty(len(self))
        _compiled.log_probs(self.view, self.chains, out)
        return out

    def advance(self, table: Table, uniforms: NDArray[np.float64]) -> None:
        """Make transitions driven by uniforms of shape (n_chains, n_transitions, 2)."""
        n, d = self.chains.x.shape
        nothing = (np.empty((n, 0, d), dtype=self.chains.x.dtype), np.empty((n, 0, 2)))

        def work(first: int, last: int) -> None:
            part = uniforms[first:last]
            _compiled.run(self.view, table, self.chains, (first, last), part, (0, 0, 0), *nothing)

        self._over_chains(work)

    def objective(
        self,
        table: Table,
        settings: tuple[int, float, int],
        uniforms: NDArray[np.float64],
        log_omega: NDArray[np.float64],
    ) -> tuple[float, NDArray[np.float64], float]:
        """Mean over the chains of an objective, of its gradient at the knots and by eta.

        ``settings`` = (code, eta, every): an enumerated objective visits each every-th neighbour.
        """
        code, eta, every = settings
        n, k = len(self), table.value.size
        values, d_eta = np.empty(n), np.zeros(n)
        gradients = np.empty((n, 3 if code == ENUMERATED else 1, k))

        def work(first: int, last: int) -> None:
            chains = (self.view, table, self.chains, (first, last))
            if code == ENUMERATED:
                out = (gradients, values)
                _compiled.enumerated(*chains, every, uniforms[:, 1], log_omega, out)
            else:
                weights = log_omega if code == BOUND else np.zeros(n)
                sampled = (gradients, values, d_eta)
                _compiled.sampled(*chains, (code, eta), uniforms, weights, sampled)

        self._over_chains(work)
        return float(values.mean()), gradients[:, 0].mean(axis=0), float(d_eta.mean())

    def flux(
        self, table: Table, sites: NDArray[np.int64], weight: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Mean over the chains of the value of `_compiled.flux`, of its gradient, of the flows."""
        n = len(self)
        out = (np.empty((n, 1, table.value.size)), np.empty(n), np.empty((n, sites.size)))
        self._over_chains(
            lambda first, last: _compiled.flux(
                self.view, table, self.chains, (first, last), sites, weight, out
            )
        )
        return float(out[1].mean()), out[0][:, 0].mean(axis=0), out[2].mean(axis=0)

    def run(
        self,
        table: Table,
        n_transitions: int,
        schedule: tuple[int, int, int],
        draws: States,
        stats: NDArray[np.float64],
    ) -> None:
        """Make transitions in every chain, storing a draw every ``thin`` of them.

        ``schedule`` is (thin, transitions since the last draw, index of the next draw);
        ``draws`` and ``stats`` have chains and draws as their first two axes.
        """

        def work(first: int, last: int) -> None:
            for c in range(first, last):
                uniforms = self.rngs[c].random((1, n_transitions, 2))
                _compiled.run(
                    self.view, table, self.chains, (c, c + 1), uniforms, schedule, draws, stats
                )

        self._over_chains(work)

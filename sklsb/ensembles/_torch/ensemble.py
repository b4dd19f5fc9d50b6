"""Chains moved by first-order proposals, with the methods of the compiled ensemble."""

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sklsb._kernels.numeric import Table
from sklsb._kernels.objectives import Objective
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.run import Drawing
from sklsb._system.arrays import Array, Bools, Ints
from sklsb._system.memory import at_once
from sklsb.ensembles._torch import objectives
from sklsb.ensembles._torch.compiled import CompiledWalkers
from sklsb.ensembles._torch.flips import AdaptiveFlips
from sklsb.ensembles._torch.walkers import Walkers
from sklsb.ensembles.base import Counters, LearnableEnsemble, Out
from sklsb.ensembles.compiled import SQRT
from sklsb.ensembles.rules import FirstOrder
from sklsb.ensembles.streams import Streams
from sklsb.targets._torch import model_on
from sklsb.targets.base import States, Target

# Most uniform numbers held at once.
_MOST_NUMBERS = 1 << 22
# Fewest moves of a thread's chains together. Each thread runs a loop in Python, whose 50 to 250
# microseconds a step take turns with those of others; besides, a move takes 8 to 40 nanoseconds.
_LEAST_WORK = 1 << 15


class _Threads:
    """Torch's number of threads. It belongs to the process, in which samplers may run at once."""

    def __init__(self) -> None:
        self._lock, self._before = Lock(), 0
        self._inside: dict[object, int] = {}  # the numbers of those inside, the latest last

    @contextmanager
    def be(self, n: int) -> Iterator[None]:
        """Use n threads, and then as many as the latest who is still inside, or as before all."""
        me = object()
        with self._lock:
            if not self._inside:
                self._before = torch.get_num_threads()
            self._inside[me] = n
            torch.set_num_threads(n)
        try:
            yield
        finally:
            with self._lock:
                del self._inside[me]
                torch.set_num_threads(next(reversed(self._inside.values()), self._before))


_THREADS = _Threads()


class ChainArrays(NamedTuple):
    """The chains' arrays in NumPy, one row each, named as in compiled chains."""

    x: States
    moved: Bools  # (n_chains, n_moves)
    evaluations: Ints  # (n_chains, 1)
    acceptance: Array  # (n_chains, 1)


class FastEnsemble(LearnableEnsemble):
    """Chains moved by first-order proposals; it has the methods of the compiled `Ensemble`.

    ``n_flips`` moves are drawn from one gradient; "auto" tunes their number while `advance` and
    `adapt` are called, then keeps it. First-order ratios have ``dtype``, unless they are exact.
    """

    update_every = 8

    def __init__(
        self,
        target: Target,
        states: States,
        streams: list[np.random.Generator] | Streams,
        device: str | None = None,
        n_flips: int | str = 1,
        n_threads: int = 1,
        dtype: torch.dtype = torch.float32,
    ):
        self.target = target
        self.streams = streams if isinstance(streams, Streams) else Streams(streams)
        self.dtype = dtype
        self.n_threads = n_threads
        self.flips = AdaptiveFlips(n_flips, target.n_sites)
        n, n_moves = len(states), target.offers.n_moves
        self.chains = ChainArrays(
            x=np.array(states, dtype=target.dtype),
            moved=np.zeros((n, n_moves), dtype=np.bool_),
            evaluations=np.ones((n, 1), dtype=np.int64),  # a gradient
            acceptance=np.zeros((n, 1)),
        )
        self.counters = Counters()
        self._values = np.asarray(target.values, dtype=target.dtype)
        value_index = np.searchsorted(self._values, self.chains.x)
        model = model_on(target, device, dtype)
        kind = CompiledWalkers if model.device.type == "cpu" else Walkers
        self.walkers = kind(target, value_index, model)
        self.device = str(self.walkers.device)
        self._table: Table | None = None  # of the walkers' weights

    @property
    def rule(self) -> FirstOrder:
        """What moves the chains."""
        table = SQRT.table if self._table is None else self._table
        return FirstOrder(table, self.walkers.lazy, self.n_flips)

    def like(self, states: States, streams: Streams) -> Self:
        settings = (self.device, self.n_flips, self.n_threads, self.dtype)
        made = type(self)(self.target, states, streams, *settings)
        made.flips = copy.copy(self.flips)
        made.start(self.rule)
        return made

    def fixed(self) -> dict[str, Any]:
        return {"table": self.rule.table}

    def __getstate__(self) -> dict[str, object]:
        settings = {"target": self.target, "device": self.device, "n_threads": self.n_threads}
        settings["dtype"] = str(self.dtype).removeprefix("torch.")
        return settings | {"state": self.state(), "flips": copy.copy(self.flips)}

    def __setstate__(self, given: dict[str, Any]) -> None:
        settings = dict(given)
        flips = settings.pop("flips")
        super().__setstate__(settings | {"dtype": getattr(torch, settings["dtype"])})
        self.flips = flips
        self.start(given["state"].rule)

    def _tensor(self, values: ArrayLike) -> Tensor:
        return torch.as_tensor(values).to(self.device)

    @property
    def cost(self) -> int:
        return self.walkers.moves.existing.size

    @property
    def enumeration_cost(self) -> int:
        return self.cost**2

    @property
    def step_cost(self) -> float:
        return 1.0

    @property
    def n_flips(self) -> int:
        return self.flips.n_flips

    @property
    def adapting(self) -> bool:
        return self.flips.adapting

    def follow(self, acceptance: float, n_transitions: int) -> None:
        self.flips.follow(acceptance / (1.0 - self.walkers.lazy), n_transitions)

    def begin_like(self, other: "FastEnsemble") -> None:
        self.flips.begin_like(other.flips)

    def adapt(self, rule: Balanced, n_transitions: int) -> None:
        if not self.adapting:
            return

        def move(n: int) -> float:
            self.advance(self.streams.pairs(n))
            return float(self.walkers.acceptance.mean()) / n / (1.0 - self.walkers.lazy)

        self.start(rule)
        self.flips.adapt(move, n_transitions)
        self.forget_acceptance()

    @property
    def _n_parts(self) -> int:
        """Number of threads that are worth their while, at most ``n_threads``."""
        worth = self.walkers.state.ratios.numel() // _LEAST_WORK
        return max(1, min(self.n_threads, len(self), worth))

    def use_threads(self, n: int) -> None:
        """Use n threads, which all chains share."""
        self.n_threads = n

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Use ``n_threads`` threads for a fit or a sample, each for some chains; or torch's own."""
        divides = self.walkers.model.of_rows and isinstance(self.walkers, CompiledWalkers)
        n = self._n_parts if divides else 1
        alone = {"initializer": torch.set_num_threads, "initargs": (1,)}
        try:
            with (
                _THREADS.be(1 if divides else self.n_threads),
                ThreadPoolExecutor(n, **alone) if n > 1 else nullcontext() as self._pool,
            ):
                yield
        finally:
            self._pool = None

    def start(self, rule: Balanced | FirstOrder) -> None:
        self.walkers.lazy = rule.lazy
        if rule.table is self._table:
            return
        self._table = rule.table
        self.walkers.weigh(rule.table)

    def put(self, states: States) -> None:
        """Set the chains to these states, which are valid, under log p as it is now."""
        self.chains.x[:] = states
        self.walkers.put(np.searchsorted(self._values, self.chains.x))
        self.walkers.model.check()
        self.chains.evaluations[:] += 1
        if self._table is not None:
            self.walkers.weigh(self._table)

    def state_tensor(self) -> Tensor:
        """Return a copy of the present states, on the device."""
        values = self._tensor(self._values.astype(self.chains.x.dtype))
        return values[self.walkers.state.x.long()]

    def kept_and_rebuilt(self) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
        """Return the chains' tensors, each with the same one computed anew."""
        other = self.copy()
        pairs = zip(self.walkers.state.tensors(), other.walkers.state.tensors(), strict=True)
        return {
            f"tensor {k}": (one.cpu().numpy(), two.cpu().numpy())
            for k, (one, two) in enumerate(pairs)
        }

    def forget_acceptance(self) -> None:
        self.chains.acceptance[:] = 0.0

    def log_prob(self) -> Array:
        return self.walkers.log_prob().cpu().numpy().copy()

    def proposal_log_ratios(self) -> Array:
        """Return first-order log-ratios of all moves at the present states, (n_chains, n_moves)."""
        return self.walkers.padded_ratios().cpu().numpy()[:, self.walkers.moves.existing]

    @contextmanager
    def _moving(self, n_transitions: int) -> Iterator[None]:
        """Copy the chains' arrays to torch, and back after they have moved."""
        walkers, moves = self.walkers, self.walkers.moves
        moved = np.zeros(walkers.moved.shape, dtype=np.bool_)
        padded = moves.existing.size < moved.shape[1] - 1
        existing = moves.existing if padded else slice(moves.existing.size)  # which is faster
        moved[:, existing] = self.chains.moved
        walkers.moved.copy_(self._tensor(moved))
        walkers.acceptance.zero_()
        try:
            with walkers.model.prepared(), torch.no_grad():
                yield
        finally:
            x = self.walkers.state.x.cpu().numpy()
            np.take(self._values, x, out=self.chains.x, mode="clip")  # valid, so faster
            self.chains.moved[:] = walkers.moved.cpu().numpy()[:, existing]
            self.chains.acceptance[:, 0] += walkers.acceptance.cpu().numpy()
        self.chains.evaluations[:] += n_transitions
        walkers.model.check()

    def _numbers(self, walkers: Walkers, uniforms: Array) -> Iterator[Any]:
        """Yield the numbers of each step; see `advance`."""
        block = at_once(_MOST_NUMBERS, len(self) * (self.n_flips + 2))
        for first in range(0, uniforms.shape[1], block):
            yield from walkers.numbers(uniforms[:, first : first + block], self.n_flips)

    def _go(
        self, walkers: Walkers, uniforms: Array, drawing: Drawing
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Make steps of some chains; return states, log p and sums of acceptance of each draw."""
        found, n = [], uniforms.shape[1]
        kept = range(n)[drawing.kept(n)]
        with torch.no_grad():
            for k, numbers in enumerate(self._numbers(walkers, uniforms)):
                walkers.step(numbers)
                if k in kept:
                    now = walkers.state.x, walkers.log_prob(), walkers.acceptance
                    found.append(tuple(one.clone() for one in now))
                    walkers.acceptance.zero_()
        return found

    def _divided(
        self, uniforms: Array, drawing: Drawing
    ) -> list[tuple[slice, list[tuple[Tensor, Tensor, Tensor]]]]:
        """Make steps of all chains, divided among threads; return the draws of each part."""
        whole = self.walkers
        if self._pool is None or not isinstance(whole, CompiledWalkers):
            return [(slice(None), self._go(whole, uniforms, drawing))]
        ends = np.linspace(0, len(self), self._n_parts + 1).astype(int).tolist()
        spans = [slice(*ends_of) for ends_of in pairwise(ends)]
        parts = [whole.part(span) for span in spans]
        futures = [
            self._pool.submit(self._go, part, uniforms[span], drawing)
            for part, span in zip(parts, spans, strict=True)
        ]
        wait(futures)
        whole.join(parts)
        return [(span, one.result()) for span, one in zip(spans, futures, strict=True)]

    def advance(self, uniforms: Array) -> None:
        """Make transitions driven by uniforms of shape (n_chains, n_transitions, 2).

        Several flips take n_flips + 2 uniforms (see `Walkers.step`); unless all are given, they are
        expanded from the first.
        """
        with self._moving(uniforms.shape[1]):
            self._divided(uniforms, Drawing())

    def run(self, n: int, drawing: Drawing, out: Out, sums: None = None) -> None:
        (draws, stats), room, thin = out, drawing.room(n), drawing.thin
        uniforms = self.streams.pairs(n)
        with self._moving(n):
            self.walkers.acceptance += self._tensor(self.chains.acceptance[:, 0])
            self.chains.acceptance[:] = 0.0
            found = self._divided(uniforms, drawing)
        for span, of_draws in found:
            if not of_draws:
                continue
            x, lp, rate = (torch.stack(one, 1).cpu().numpy() for one in zip(*of_draws, strict=True))
            draws[span, room] = self._values[x]
            stats[span, room, 0] = lp
            if stats.shape[2] > 1:
                stats[span, room, 1] = rate / thin

    def objective(
        self,
        rule: Balanced,
        settings: tuple[Objective, float, int],
        uniforms: Array,
        log_omega: Array,
    ) -> tuple[float, Array, float]:
        """Return what `BalancedEnsemble.objective` does, for chains that make single flips."""
        if not len(self.walkers.moves.free):
            return 0.0, np.zeros_like(rule.table.value), 0.0
        self.start(rule)
        with self.walkers.model.prepared():
            found = objectives.objective(self.walkers, rule.table, settings, uniforms, log_omega)
        self.chains.evaluations[:] += found.evaluations
        return found.value, found.gradient, found.by_eta

    def flux(self, rule: Balanced, sites: Ints, weight: Array) -> tuple[float, Array, Array]:
        """Return what `BalancedEnsemble.flux` does, as if all proposals were accepted."""
        return objectives.flux(self.walkers, rule.table, sites, weight)

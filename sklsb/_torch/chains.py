"""Chains moved by first-order proposals.

The proposal uses first-order log-ratios d_m = (x'_m - x) . grad log p(x) of all moves m, from one
gradient at the present state. They are not exact in general, so the move is accepted by the full
Metropolis-Hastings ratio p(x') Q(x|x') / (p(x) Q(x'|x)), which needs one new value and gradient
per transition; those of the present state are kept.

Several flips per gradient: R moves are drawn independently from the proposal at x, each adding a
shift to the value of its variable (modulo its number of values), and all made together. The way
back draws the opposite shifts at x', so the ratio has the product of the R proposals. R flips
keep the parity of the number of ones if R is even; so the last of them is left out with
probability one half, whatever the state.

First-order ratios may be float32; weights, their cumulative sums, log p and the acceptance are
float64, and each is a function of the state alone, so that the chain is reversible to rounding in
float64.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb._compiled import Table
from sklsb._ensemble import MOST_FLIPS
from sklsb._torch import learning
from sklsb._torch.even import Even
from sklsb._torch.models import Model, device_of, model_of
from sklsb._torch.philox import expand
from sklsb._torch.recording import recorded
from sklsb.targets._conditioned import Conditioned
from sklsb.targets.base import States, Target

# Uniform numbers held at once.
_MOST_NUMBERS = 1 << 22
# Acceptance at which flips per gradient are worth most, about; how fast their logarithm follows.
_ACCEPTANCE, _GAIN, _FASTEST = 0.6, 0.05, 0.5
# Transitions between two changes of the number of flips for a frozen function.
_ROUND = 16
# Steps for which recording one is worth while.
_WORTH_RECORDING = 64


@cache
def _keep_freed_memory() -> None:
    """Let glibc keep memory of this size that was freed once.

    Otherwise it gives that of every larger tensor back to the system, and the next one costs page
    faults.
    """
    torch.empty(31 << 20, dtype=torch.int8)


class State(NamedTuple):
    """What chains are in, one row each; all functions of x and, but for the ratios, the table."""

    x: Tensor  # ranks of values
    carried: tuple[Tensor, ...]
    ratios: Tensor  # first-order log-ratio of each slot
    log_weight: Tensor
    cumulative: Tensor  # of the weights, relative to the largest
    log_total: Tensor  # (n, 1)

    def tensors(self) -> list[Tensor]:
        """Return all of them."""
        return [self.x, *self.carried, *self[2:]]

    def copy(self) -> "State":
        """Return the same in tensors of its own."""
        x, *carried = (part.clone() for part in (self.x, *self.carried))
        return State(x, tuple(carried), *(part.clone() for part in self[2:]))


class Proposal(NamedTuple):
    """Moves drawn together, and the way back; (n, n_flips) but for y, (n, n_sites)."""

    slot: Tensor
    site: Tensor
    y: Tensor
    back: Tensor
    active: Tensor | None


class FastEnsemble:
    """Chains moved by first-order proposals; the same methods as `sklsb._ensemble.Ensemble`.

    Parameters
    ----------
    target, states, rngs, lazy
        As there.
    device : str, optional
        Where to run.
    n_flips : int or "auto", default=1
        Moves drawn from one gradient. "auto" finds a number while `advance` and `adapt` are
        called, and keeps it from then on.
    n_threads : int, default=1
        Threads of torch.
    dtype : torch.dtype, default=torch.float32
        Of first-order ratios, where they are not exact anyway.
    """

    update_every = 8

    def __init__(
        self,
        target: Target,
        states: States,
        rngs: list[np.random.Generator],
        lazy: float = 0.0,
        device: str | None = None,
        n_flips: int | str = 1,
        n_threads: int = 1,
        dtype: torch.dtype = torch.float32,
    ):
        self.target = target
        self.rngs = rngs
        self.lazy = lazy
        self.device = str(device_of(target, device))
        self.dtype = dtype
        self.n_threads = n_threads
        _keep_freed_memory()
        self.adapting = n_flips == "auto"
        self.n_flips = 1 if self.adapting else int(n_flips)
        self._log_flips = 0.0
        n = len(states)
        self.chains = SimpleNamespace(
            x=np.array(states, dtype=target.dtype),
            moved=np.zeros((n, int((target.cardinalities - 1).sum())), dtype=np.bool_),
            evaluations=np.ones((n, 1), dtype=np.int64),  # where the chains start
            acceptance=np.zeros((n, 1)),
        )
        self._set_up()

    def _set_up(self) -> None:
        device = torch.device(self.device)
        self._in_place = device.type != "cpu"
        self.model: Model = model_of(self.target, device, self.dtype)
        k = self.target.cardinalities
        per_site = self.model.n_slots_per_site
        exists = np.arange(per_site) < k[:, None] - 1
        self._slots = np.flatnonzero(exists)  # in the order of the compiled kernels
        if isinstance(self.target, Conditioned):
            exists[self.target.sites] = False
        self.open = self.tensor(np.flatnonzero(exists))
        self._closed = None if exists.all() else self.tensor(~exists.ravel())
        # States may be impossible, or have no move that is possible; numbers are no numbers there.
        self._may_be_stuck = self._closed is not None or self.model.has_zeros
        self._n_values = torch.as_tensor(k).to(device)
        self._values = np.asarray(self.target.values, dtype=self.target.dtype)
        ranks = np.searchsorted(self._values, self.chains.x)
        # Sums of up to 64 shifts must fit.
        x = self.tensor(ranks.astype(np.int8 if per_site == 1 else np.int32))
        with self.model.prepared(), torch.no_grad():
            carried = self.model.start(x)
            ratios = self.model.first_order(x, carried)
        nothing = ratios[:, :0]  # until `start`
        self._table: Table | None = None
        self.state = State(x, carried, ratios, nothing, nothing, nothing)
        # One column more, for what did not move.
        self._moved = torch.zeros(len(x), ratios.shape[1] + 1, dtype=torch.bool, device=device)
        self._sum = torch.zeros(len(x), dtype=torch.float64, device=device)
        self._recorded: tuple[int, Callable[[Tensor], object]] | None = None

    def tensor(self, values: Any) -> Tensor:
        return torch.as_tensor(values).to(self.device)

    def __len__(self) -> int:
        return len(self.rngs)

    @property
    def log_ratios_dtype(self) -> np.dtype[Any]:
        """Type that first-order log-ratios are computed in."""
        return torch.empty(0, dtype=self.state.ratios.dtype).numpy().dtype

    @property
    def cost(self) -> int:
        """Evaluations that it takes to see all neighbours of a state: one gradient sees them."""
        return self._slots.size

    @property
    def enumeration_cost(self) -> int:
        """Log-ratios that it takes to know the acceptance of all neighbours of a state."""
        return self._slots.size**2

    @property
    def step_cost(self) -> float:
        """Mean number of evaluations that a transition takes."""
        return 1.0

    def __getstate__(self) -> dict[str, Any]:
        names = ("target", "rngs", "lazy", "device", "dtype", "n_threads", "adapting", "n_flips")
        return {name: getattr(self, name) for name in (*names, "_log_flips", "chains")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        device_of(self.target, self.device)  # it may not be here
        self._set_up()

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Give torch so many threads for the time of a fit or a sample."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.n_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def start(self, table: Table) -> None:
        """Compute the weights of all slots."""
        if table is self._table:
            return
        self._table = table
        self._even = Even.of(table, self.state.ratios)
        state = self.state
        with torch.no_grad():
            self.state = State(*state[:3], *self._weigh(state.ratios))
        self._recorded = None  # it writes to the tensors that were there before

    def log_prob(self) -> NDArray[np.float64]:
        """Log p of each chain's state, without the target's constant."""
        found: NDArray[np.float64] = self._log_prob().cpu().numpy()
        return found.copy()

    def _log_prob(self) -> Tensor:
        return self.model.log_prob(self.state.x, self.state.carried)

    def log_ratios(self) -> NDArray[np.float64]:
        """First-order log-ratios of all moves at the present states, shape (n_chains, n_moves)."""
        found: NDArray[np.float64] = self.slot_ratios().cpu().numpy()[:, self._slots]
        return found

    def slot_ratios(self) -> Tensor:
        """Return those of all slots, -inf where there is no move."""
        ratios = self.state.ratios.double()
        return ratios if self._closed is None else ratios.masked_fill(self._closed, -math.inf)

    def log_weights(self, ratios: Tensor, values: Tensor | None = None) -> Tensor:
        """Log g at all slots, differentiable by the values at the knots if they are given."""
        impossible = None
        if self.model.has_zeros:
            impossible = ratios == -math.inf
            # Infinite or no numbers otherwise are ratios at impossible states.
            ratios = ratios.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        if values is None:
            result = self._even.log_weights(ratios)
        else:
            result = learning.LogWeights.apply(values, self._even, ratios)
        for closed in (impossible, self._closed):
            if closed is not None:
                result = result.masked_fill(closed, -math.inf)
        return result

    def _weigh(self, ratios: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log weights, cumulative weights relative to the largest, and the log of their sum."""
        log_weight = self.log_weights(ratios)
        if not log_weight.shape[1]:
            return log_weight, log_weight, log_weight.sum(1, keepdim=True)
        shift = log_weight.amax(1, keepdim=True)
        if self._may_be_stuck:
            shift = shift.clamp(min=-1e30)
        cumulative = (log_weight.double() - shift).exp_().cumsum(1)
        return log_weight, cumulative, cumulative[:, -1:].log().add_(shift)

    def propose(self, x: Tensor, slot: Tensor, active: Tensor | None) -> Proposal:
        """Make the moves at some slots together; inactive ones stand for no move."""
        per_site = self.model.n_slots_per_site
        if per_site == 1:
            if active is None:
                y = x.scatter(1, slot, 1 - x.gather(1, slot))
            else:
                y = x.scatter_add(1, slot, active.to(x.dtype)) & 1
            return Proposal(slot, slot, y, slot, active)
        site, rank = slot // per_site, slot % per_site
        old, k = x.gather(1, site), self._n_values[site]
        shift = rank + (rank >= old) - old
        made = shift if active is None else shift * active
        y = x.scatter_add(1, site, made.to(x.dtype)) % self._n_values.to(x.dtype)
        now = y.gather(1, site)
        then = (now - shift) % k
        return Proposal(slot, site, y, site * per_site + then - (then > now).long(), active)

    def select(self, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """Slots drawn by uniforms (n, n_flips); of several, whether the last is left out."""
        active = None
        if u.shape[1] > 1:
            u, last = u[:, :-1], u[:, -1:] < 0.5
            active = torch.ones_like(u, dtype=torch.bool)
            active[:, -1:] = last
        cumulative = self.state.cumulative
        slot = torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True)
        if self._may_be_stuck:
            slot = slot.clamp(max=cumulative.shape[1] - 1)
        # An inactive draw stands where an active one does.
        return (slot if active is None else torch.where(active, slot, slot[:, :1])), active

    def step(self, numbers: Tensor) -> None:
        """Make one transition of every chain.

        ``numbers`` are uniform, (n_chains, 2): to select and to accept with. Of several flips they
        are (n_chains, n_flips + 2), and the last but one tells whether the last flip is left out.
        """
        state, model = self.state, self.model
        u_select, u_accept = numbers[:, :-1], numbers[:, -1]
        lazy = None
        if self.lazy:
            lazy = u_select[:, 0] < self.lazy
            first = ((u_select[:, :1] - self.lazy) / (1.0 - self.lazy)).clamp(0.0, 1.0 - 2.0**-53)
            u_select = torch.cat([first, u_select[:, 1:]], dim=1)
        there = self.propose(state.x, *self.select(u_select))
        carried, log_ratio = model.move(state.x, state.carried, there.y, there.site)
        ratios = model.first_order(there.y, carried)
        new = State(there.y, carried, ratios, *self._weigh(ratios))
        back = new.log_weight.gather(1, there.back).double()
        more = back - state.log_weight.gather(1, there.slot) + (state.log_total - new.log_total)
        if there.active is not None:
            more = torch.where(there.active, more, 0.0)
        probability = (log_ratio + more.sum(1)).clamp_(max=0.0).exp_()
        if self._may_be_stuck:
            probability = probability.nan_to_num(nan=0.0)
        if lazy is not None:
            probability = torch.where(lazy, 0.0, probability)
        accepted = u_accept < probability
        self._keep(accepted, new)
        self._moved.scatter_(1, torch.where(accepted[:, None], there.slot, ratios.shape[1]), True)
        self._sum += probability

    def _keep(self, accepted: Tensor, new: State) -> None:
        """Move the chains that accept."""
        if not self._in_place:
            refused = accepted.logical_not().nonzero()[:, 0]
            if refused.numel():
                for there, here in zip(new.tensors(), self.state.tensors(), strict=True):
                    there[refused] = here[refused]
            self.state = new
        else:  # without asking how many
            for there, here in zip(new.tensors(), self.state.tensors(), strict=True):
                mask = accepted.view(-1, *[1] * (here.dim() - 1))
                here.copy_(torch.where(mask, there, here))

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """Keep the numpy side of the chains in step with the torch side."""
        moved = np.zeros(self._moved.shape, dtype=np.bool_)
        moved[:, self._slots] = self.chains.moved
        self._moved.copy_(self.tensor(moved))
        self._sum.zero_()
        try:
            with self.model.prepared(), torch.no_grad():
                yield
        finally:
            self.chains.x[:] = self._values[self.state.x.cpu().numpy()]
            self.chains.moved[:] = self._moved.cpu().numpy()[:, self._slots]
            self.chains.acceptance[:, 0] += self._sum.cpu().numpy()
        self.model.check()

    def _numbers(self, uniforms: Tensor) -> Iterator[Tensor]:
        """Yield the numbers of one step after another; see `advance`."""
        n_flips = self.n_flips
        block = max(1, _MOST_NUMBERS // (len(self) * (n_flips + 2)))
        for part in uniforms.split(block, dim=1):
            if n_flips > 1 and part.shape[2] == 2:
                part = torch.cat([expand(part[:, :, 0], n_flips + 1), part[:, :, 1:]], dim=2)
            yield from part.unbind(1)

    def _step_for(self, uniforms: Tensor) -> Callable[[Tensor], object]:
        """Return `step`, or a recording of it if that is worth while."""
        if not self._slots.size:
            return lambda numbers: None
        width = self.n_flips + 2 if self.n_flips > 1 else 2
        if self._recorded is not None and self._recorded[0] == width:
            return self._recorded[1]
        worth = uniforms.shape[1] >= _WORTH_RECORDING and self.model.can_be_recorded
        if uniforms.device.type != "cuda" or not worth:
            return self.step
        kept = self._sum.clone()
        step = recorded(self.step, self._idle(width))
        self._sum.copy_(kept)
        self._recorded = (width, step)
        return step

    def _idle(self, width: int) -> Tensor:
        """Return numbers with which a step changes no state."""
        numbers = torch.zeros(len(self), width, dtype=torch.float64, device=self.device)
        numbers[:, -1] = 2.0  # no probability is above it
        return numbers

    def advance(self, table: Table, uniforms: NDArray[np.float64]) -> None:
        """Make transitions driven by uniforms of shape (n_chains, n_transitions, 2).

        Of several flips the other uniforms are made from the first, or given: n_flips + 2 in all,
        those of `step` and the one to accept with.
        """
        self.start(table)
        n = uniforms.shape[1]
        with self._moving():
            u = self.tensor(uniforms)
            step = self._step_for(u)
            for numbers in self._numbers(u):
                step(numbers)
        self.chains.evaluations += n

    def follow(self, acceptance: float, n_transitions: int) -> None:
        """Let the number of flips follow the acceptance of the last transitions, if it is free."""
        if not self.adapting:
            return
        gain = min(_GAIN * n_transitions, _FASTEST)
        change = gain * (acceptance / (1.0 - self.lazy) - _ACCEPTANCE)
        most = math.log(min(MOST_FLIPS, max(1, self.target.n_sites)))
        self._log_flips = min(max(self._log_flips + change, 0.0), most)
        self.n_flips = round(math.exp(self._log_flips))

    def begin_like(self, other: "FastEnsemble") -> None:
        """Let the search for a number of flips begin where that of other chains is."""
        self.n_flips, self._log_flips = other.n_flips, other._log_flips

    def adapt(self, table: Table, n_transitions: int) -> None:
        """Find the number of flips for a function that changes no more, in so many transitions."""
        if not self.adapting:
            return
        found = [self._log_flips]
        for _ in range(n_transitions // _ROUND):
            self.advance(table, np.stack([rng.random((_ROUND, 2)) for rng in self.rngs]))
            self.follow(float(self._sum.mean()) / _ROUND, _ROUND)
            found.append(self._log_flips)
        self.n_flips = round(math.exp(float(np.mean(found[len(found) // 2 :]))))
        self.chains.acceptance[:] = 0.0
        self.adapting = False

    def run(
        self,
        table: Table,
        n_transitions: int,
        schedule: tuple[int, int, int],
        draws: States,
        stats: NDArray[np.float64],
    ) -> None:
        """Make transitions, storing a draw every ``thin``; see `Ensemble.run`."""
        thin, made, drawn = schedule
        uniforms = np.stack([rng.random((n_transitions, 2)) for rng in self.rngs])
        self.start(table)
        x, lp, sums = [], [], []
        with self._moving():
            self._sum += self.tensor(self.chains.acceptance[:, 0])
            self.chains.acceptance[:] = 0.0
            u = self.tensor(uniforms)
            step = self._step_for(u)
            for numbers in self._numbers(u):
                step(numbers)
                made += 1
                if made == thin:
                    x.append(self.state.x.clone())
                    lp.append(self._log_prob().clone())
                    sums.append(self._sum.clone())
                    self._sum.zero_()
                    made = 0
        self.chains.evaluations += n_transitions
        if x:
            here = slice(drawn, drawn + len(x))
            draws[:, here] = self._values[torch.stack(x, 1).cpu().numpy()]
            stats[:, here, 0] = torch.stack(lp, 1).cpu().numpy()
            stats[:, here, 1] = torch.stack(sums, 1).cpu().numpy() / thin

    def objective(
        self,
        table: Table,
        settings: tuple[int, float, int],
        uniforms: NDArray[np.float64],
        log_omega: NDArray[np.float64],
    ) -> tuple[float, NDArray[np.float64], float]:
        """Mean objective over the chains and its gradients; see `Ensemble.objective`.

        It is that of the chain that flips one at a time.
        """
        if not len(self.open):
            return 0.0, np.zeros_like(table.value), 0.0
        self.start(table)
        with self.model.prepared():
            return learning.objective(self, table, settings, uniforms, log_omega)

    def flux(
        self, table: Table, sites: NDArray[np.int64], weight: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Mean value, gradient at the knots and flows; see `Ensemble.flux`.

        From first-order ratios alone: whatever is proposed counts as accepted.
        """
        return learning.flux(self, table, sites, weight)

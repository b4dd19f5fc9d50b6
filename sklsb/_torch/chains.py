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
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb import _compiled
from sklsb._compiled import SMALLEST_STAY, Table
from sklsb._ensemble import MOST_FLIPS
from sklsb._torch.models import Model, device_of, model_of
from sklsb._torch.philox import expand
from sklsb.targets._conditioned import Conditioned
from sklsb.targets.base import States, Target

# Memory of this size that was freed stays with the process. Otherwise glibc gives that of the
# larger tensors back after every operation, and a step takes a quarter longer.
torch.empty(31 << 20, dtype=torch.int8)
# Numbers held at once by the neighbours of an objective, and by uniform numbers.
_MOST_NUMBERS = 1 << 22
# Acceptance at which flips per gradient are worth most, about; how fast their logarithm follows.
_ACCEPTANCE, _GAIN, _FASTEST = 0.6, 0.05, 0.5
# Transitions in which the number of flips is found for a frozen function, at most, and a round.
_MOST_TRIALS, _ROUND = 512, 16
# Steps for which recording one is worth while.
_WORTH_RECORDING = 64
# Log weight of what is impossible, where a derivative is taken.
_LEAST = -1e4


class _Even(NamedTuple):
    """A table on the device."""

    value: Tensor
    slope: Tensor
    inverse_step: float

    @classmethod
    def of(cls, table: Table, like: Tensor) -> "_Even":
        value, slope = (torch.tensor(v, dtype=like.dtype).to(like.device) for v in table[:2])
        return cls(value, slope, table.inverse_step)

    def locate(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last knot below abs(u), and how many steps u is beyond it."""
        a = u.abs().mul_(self.inverse_step)
        knot = a.floor().clamp_(max=self.value.numel() - 1)
        return knot.int(), a.sub_(knot)

    def log_weights(self, u: Tensor) -> Tensor:
        """Log g(exp u)."""
        knot, beyond = self.locate(u)
        value, slope = (v.index_select(0, knot.view(-1)).view(u.shape) for v in self[:2])
        return torch.addcmul(value, slope, beyond).add(u, alpha=0.5)


class _LogWeights(torch.autograd.Function):
    """Log g(exp u) as a function of the values at the knots: in each interval linear in two."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, even: _Even, u: Tensor) -> Tensor:
        ctx.even, ctx.u = even, u
        return even.log_weights(u)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        n = ctx.even.value.numel()
        knot, beyond = (part.view(-1).cpu().numpy() for part in ctx.even.locate(ctx.u))
        gradient = gradients[0].reshape(-1).double().cpu().numpy()
        to_next = np.where(knot < n - 1, beyond, 0.0) * gradient
        found = np.bincount(knot, gradient - to_next, n)
        found[1:] += np.bincount(knot, to_next, n)[:-1]
        return torch.as_tensor(found).to(gradients[0].device), None, None


class _State(NamedTuple):
    """What chains are in, one row each; all functions of x and, but for the ratios, the table."""

    x: Tensor  # ranks of values
    carried: tuple[Tensor, ...]
    ratios: Tensor  # first-order log-ratio of each slot
    log_weight: Tensor
    cumulative: Tensor  # of the weights, relative to the largest
    log_total: Tensor  # (n, 1)

    def tensors(self) -> list[Tensor]:
        return [self.x, *self.carried, *self[2:]]


class _Proposal(NamedTuple):
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
        self._model: Model = model_of(self.target, device, self.dtype)
        k = self.target.cardinalities
        per_site = self._model.n_slots_per_site
        exists = np.arange(per_site) < k[:, None] - 1
        self._slots = np.flatnonzero(exists)  # in the order of the compiled kernels
        if isinstance(self.target, Conditioned):
            exists[self.target.sites] = False
        self._open = np.flatnonzero(exists)
        self._closed = None if exists.all() else self._tensor(~exists.ravel())
        # States may be impossible, or have no move that is possible; numbers are no numbers there.
        self._may_be_stuck = self._closed is not None or self._model.has_zeros
        self._n_values = torch.as_tensor(k).to(device)
        self._values = np.asarray(self.target.values, dtype=self.target.dtype)
        self._table: Table | None = None
        ranks = np.searchsorted(self._values, self.chains.x)
        # Sums of up to 64 shifts must fit.
        x = self._tensor(ranks.astype(np.int8 if per_site == 1 else np.int32))
        with self._model.prepared(), torch.no_grad():
            carried = self._model.start(x)
            ratios = self._model.first_order(x, carried)
        self._state = _State(x, carried, ratios, ratios, ratios, ratios)
        # One column more, for what did not move.
        self._moved = torch.zeros(len(x), ratios.shape[1] + 1, dtype=torch.bool, device=device)
        self._sum = torch.zeros(len(x), dtype=torch.float64, device=device)
        self._recorded: tuple[Any, ...] = ()

    def _tensor(self, values: Any) -> Tensor:
        return torch.as_tensor(values).to(self.device)

    def __len__(self) -> int:
        return len(self.rngs)

    @property
    def log_ratios_dtype(self) -> np.dtype[Any]:
        """Type that first-order log-ratios are computed in."""
        return torch.empty(0, dtype=self._state.ratios.dtype).numpy().dtype

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
        self._even = _Even.of(table, self._state.ratios)
        state = self._state
        with torch.no_grad():
            self._state = _State(*state[:3], *self._weigh(state.ratios))

    def log_prob(self) -> NDArray[np.float64]:
        """Log p of each chain's state, without the target's constant."""
        found: NDArray[np.float64] = self._log_prob().cpu().numpy()
        return found.copy()

    def _log_prob(self) -> Tensor:
        return self._model.log_prob(self._state.x, self._state.carried)

    def log_ratios(self) -> NDArray[np.float64]:
        """First-order log-ratios of all moves at the present states, shape (n_chains, n_moves)."""
        ratios = self._state.ratios.double()
        if self._closed is not None:
            ratios = ratios.masked_fill(self._closed, -math.inf)
        found: NDArray[np.float64] = ratios.cpu().numpy()[:, self._slots]
        return found

    def _on_slots(self, of_moves: NDArray[np.float64]) -> NDArray[np.float64]:
        result = np.full((len(of_moves), self._state.ratios.shape[1]), -np.inf)
        result[:, self._slots] = of_moves
        return result

    def _log_weights(self, ratios: Tensor, values: Tensor | None = None) -> Tensor:
        """Log g at all slots, differentiable by the values at the knots if they are given."""
        impossible = None
        if self._model.has_zeros:
            impossible = ratios == -math.inf
            # Infinite or no numbers otherwise are ratios at impossible states.
            ratios = ratios.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        if values is None:
            result = self._even.log_weights(ratios)
        else:
            result = _LogWeights.apply(values, self._even, ratios)
        for closed in (impossible, self._closed):
            if closed is not None:
                result = result.masked_fill(closed, -math.inf)
        return result

    def _weigh(self, ratios: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log weights, cumulative weights relative to the largest, and the log of their sum."""
        log_weight = self._log_weights(ratios)
        if not log_weight.shape[1]:
            return log_weight, log_weight, log_weight.sum(1, keepdim=True)
        shift = log_weight.amax(1, keepdim=True)
        if self._may_be_stuck:
            shift = shift.clamp(min=-1e30)
        cumulative = (log_weight.double() - shift).exp_().cumsum(1)
        return log_weight, cumulative, cumulative[:, -1:].log().add_(shift)

    def _propose(self, x: Tensor, slot: Tensor, active: Tensor | None) -> _Proposal:
        """Make the moves at some slots together; inactive ones stand for no move."""
        per_site = self._model.n_slots_per_site
        if per_site == 1:
            if active is None:
                y = x.scatter(1, slot, 1 - x.gather(1, slot))
            else:
                y = x.scatter_add(1, slot, active.to(x.dtype)) & 1
            return _Proposal(slot, slot, y, slot, active)
        site, rank = slot // per_site, slot % per_site
        old, k = x.gather(1, site), self._n_values[site]
        shift = rank + (rank >= old) - old
        made = shift if active is None else shift * active
        y = x.scatter_add(1, site, made.to(x.dtype)) % self._n_values.to(x.dtype)
        now = y.gather(1, site)
        then = (now - shift) % k
        return _Proposal(slot, site, y, site * per_site + then - (then > now).long(), active)

    def _select(self, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """Slots drawn by uniforms (n, n_flips); of several, whether the last is left out."""
        active = None
        if u.shape[1] > 1:
            u, last = u[:, :-1], u[:, -1:] < 0.5
            active = torch.ones_like(u, dtype=torch.bool)
            active[:, -1:] = last
        cumulative = self._state.cumulative
        slot = torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True)
        if self._may_be_stuck:
            slot = slot.clamp(max=cumulative.shape[1] - 1)
        # An inactive draw stands where an active one does.
        return (slot if active is None else torch.where(active, slot, slot[:, :1])), active

    def step(self, u_select: Tensor, u_accept: Tensor) -> Tensor:
        """One transition of every chain; the acceptance probabilities.

        ``u_select`` has shape (n_chains, 1), or (n_chains, n_flips + 1): the last tells whether
        the last flip is left out.
        """
        state, model = self._state, self._model
        lazy = None
        if self.lazy:
            lazy = u_select[:, 0] < self.lazy
            first = ((u_select[:, :1] - self.lazy) / (1.0 - self.lazy)).clamp(0.0, 1.0 - 2.0**-53)
            u_select = torch.cat([first, u_select[:, 1:]], dim=1)
        there = self._propose(state.x, *self._select(u_select))
        carried, log_ratio = model.move(state.x, state.carried, there.y, there.site)
        ratios = model.first_order(there.y, carried)
        new = _State(there.y, carried, ratios, *self._weigh(ratios))
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
        return probability

    def _keep(self, accepted: Tensor, new: _State) -> None:
        """Move the chains that accept."""
        if accepted.device.type == "cpu":
            refused = accepted.logical_not().nonzero()[:, 0]
            if refused.numel():
                for there, here in zip(new.tensors(), self._state.tensors(), strict=True):
                    there[refused] = here[refused]
            self._state = new
        else:  # in place, and without asking how many
            for there, here in zip(new.tensors(), self._state.tensors(), strict=True):
                mask = accepted.view(-1, *[1] * (here.dim() - 1))
                here.copy_(torch.where(mask, there, here))

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """Keep the numpy side of the chains in step with the torch side."""
        moved = np.zeros(self._moved.shape, dtype=np.bool_)
        moved[:, self._slots] = self.chains.moved
        self._moved.copy_(self._tensor(moved))
        self._sum.zero_()
        try:
            with self._model.prepared(), torch.no_grad():
                yield
        finally:
            self.chains.x[:] = self._values[self._state.x.cpu().numpy()]
            self.chains.moved[:] = self._moved.cpu().numpy()[:, self._slots]
            self.chains.acceptance[:, 0] += self._sum.cpu().numpy()
        self._model.check()

    def _transitions(self, uniforms: Tensor) -> None:
        """Make transitions driven by uniforms as for `advance`."""
        if not self._slots.size:
            return
        n_flips = self.n_flips
        block = max(1, _MOST_NUMBERS // (len(self) * (n_flips + 1)))
        for part in uniforms.split(block, dim=1):
            if part.shape[2] == 2 and n_flips > 1:
                part = torch.cat([expand(part[:, :, 0], n_flips + 1), part[:, :, 1:]], dim=2)
            step = self._step_of(part)
            for i in range(part.shape[1]):
                step(part[:, i])

    def _step_of(self, numbers: Tensor) -> Callable[[Tensor], object]:
        """Return what makes a step from its uniform numbers."""
        if (
            numbers.device.type == "cuda"
            and self._model.can_be_recorded
            and numbers.shape[1] >= _WORTH_RECORDING
        ):
            return self._record(numbers[:, 0])
        return lambda part: self.step(part[:, :-1], part[:, -1])

    def _record(self, like: Tensor) -> Callable[[Tensor], object]:
        """Record a step, some eighty kernels, so that CUDA launches it as one."""
        # Tensors of the state are written in place, but for those that `start` makes.
        key = (id(self._table), like.shape, self._state.cumulative.data_ptr())
        if not (self._recorded and self._recorded[0] == key):
            numbers = torch.full_like(like, 2.0)  # nothing is accepted
            kept = self._sum.clone()
            with torch.cuda.device(like.device):
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(3):
                        self.step(numbers[:, :-1], numbers[:, -1])
                torch.cuda.current_stream().wait_stream(side)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self.step(numbers[:, :-1], numbers[:, -1])
            self._sum.copy_(kept)
            self._recorded = (key, numbers, graph, self._table)  # or its id might come again
        numbers, graph = self._recorded[1:3]

        def replay(part: Tensor) -> None:
            numbers.copy_(part)
            graph.replay()

        return replay

    def advance(self, table: Table, uniforms: NDArray[np.float64]) -> None:
        """Make transitions driven by uniforms of shape (n_chains, n_transitions, 2).

        Of several flips the other uniforms are made from the first, or given: n_flips + 2 in all,
        those of `step` and the one to accept with.
        """
        self.start(table)
        n = uniforms.shape[1]
        with self._moving():
            self._transitions(self._tensor(uniforms))
        self.chains.evaluations += n
        if self.adapting:
            accepted = float(self._sum.mean()) / (n * (1.0 - self.lazy))
            self._follow(min(_GAIN * n, _FASTEST) * (accepted - _ACCEPTANCE))

    def _follow(self, change: float) -> None:
        most = math.log(min(MOST_FLIPS, self.target.n_sites))
        self._log_flips = min(max(self._log_flips + change, 0.0), most)
        self.n_flips = round(math.exp(self._log_flips))

    def adapt(self, table: Table, n_transitions: int) -> None:
        """Find the number of flips for a function that changes no more, in so many transitions."""
        if not self.adapting:
            return
        found = [self._log_flips]
        for _ in range(min(n_transitions, _MOST_TRIALS) // _ROUND):
            self.advance(table, np.stack([rng.random((_ROUND, 2)) for rng in self.rngs]))
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
        u = self._tensor(uniforms)
        done, x, lp, sums = 0, [], [], []
        with self._moving():
            self._sum += self._tensor(self.chains.acceptance[:, 0])
            self.chains.acceptance[:] = 0.0
            while done < n_transitions:
                size = min(thin - made, n_transitions - done)
                self._transitions(u[:, done : done + size])
                done, made = done + size, made + size
                if made == thin:
                    x.append(self._state.x.clone())
                    lp.append(self._log_prob())
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
        code, eta, every = settings
        if not self._slots.size:
            return 0.0, np.zeros_like(table.value), 0.0
        self.start(table)
        values = self._tensor(table.value).requires_grad_()
        eta_ = self._tensor(np.float64(eta)).requires_grad_()
        u = self._tensor(uniforms)
        log_w = self._tensor(log_omega)
        with self._model.prepared():
            if code == _compiled.ENUMERATED:
                every = max(every, -(-len(self) * self.enumeration_cost // _MOST_NUMBERS))
                loss = self._enumerated(values, every, u[:, 1], log_w)
            else:
                bound = eta_ if code == _compiled.BOUND else None
                loss = self._sampled(values, bound, u, log_w)
        mean = loss.mean()
        by_values, by_eta = torch.autograd.grad(mean, (values, eta_), allow_unused=True)
        gradient = by_values.cpu().numpy()
        return float(mean.detach()), gradient, 0.0 if by_eta is None else float(by_eta)

    def _neighbours(self, values: Tensor, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log Q, log A and log p(x')/p(x) of the moves at some slots, (n_chains, k)."""
        n, k = slots.shape
        state, model = self._state, self._model
        with torch.no_grad():
            x = state.x.repeat_interleave(k, 0)
            carried = tuple(part.repeat_interleave(k, 0) for part in state.carried)
            there = self._propose(x, slots.reshape(-1, 1), None)
            new, log_ratio = model.move(x, carried, there.y, there.site)
            ratios = model.first_order(there.y, new)
            log_ratio = log_ratio.view(n, k)
        log_q = self._log_q(values, state.ratios, slots)
        log_back = self._log_q(values, ratios, there.back)
        self.chains.evaluations += k
        return log_q, (log_ratio + log_back.view(n, k) - log_q).clamp(max=0.0), log_ratio

    def _log_q(self, values: Tensor, ratios: Tensor, slots: Tensor) -> Tensor:
        """Log Q at some slots, differentiable by the values at the knots."""
        log_w = self._log_weights(ratios, values)
        log_q = log_w.gather(1, slots).double() - log_w.logsumexp(1, keepdim=True)
        return log_q

    def _sampled(self, values: Tensor, eta: Tensor | None, u: Tensor, log_omega: Tensor) -> Tensor:
        """Return the paper's estimate at a proposed neighbour, and its bound at a uniform one."""
        slots = self._select(u[:, :1])[0]
        if eta is None:
            log_omega = torch.zeros_like(log_omega)
        else:
            open_ = self._tensor(self._open)
            any_ = open_[(u[:, 1] * len(open_)).long().clamp(max=len(open_) - 1)]
            slots = torch.cat([slots, any_[:, None]], dim=1)
        log_q, log_a, log_ratio = self._neighbours(values, slots)
        surprise = log_q[:, 0] + log_a[:, 0] - log_ratio[:, 0] - log_omega
        loss = (log_omega + log_q[:, 0] - log_q[:, 0].detach() + log_a[:, 0]).exp() * surprise
        if eta is not None:
            stay = 1.0 - (log_q + log_a)[:, 1].exp()
            loss = loss + stay * (eta * stay - log_omega.exp() * (eta.log() + 1.0))
        return loss

    def _enumerated(self, values: Tensor, every: int, u: Tensor, log_omega: Tensor) -> Tensor:
        open_ = self._tensor(self._open)
        size = len(open_)
        first = (u * every).long().clamp(max=every - 1)
        at = first[:, None] + every * torch.arange(-(-size // every), device=u.device)
        log_q, log_a, log_ratio = self._neighbours(values, open_[at.clamp(max=size - 1)])
        log_t = log_q + log_a
        inside = (at < size) & torch.isfinite(log_omega)[:, None] & (log_t > -math.inf)
        t = torch.where(inside, log_t.exp(), 0.0)
        terms = t * torch.where(inside, log_t - log_ratio, 0.0)
        # M without cancellation; its derivative is that of 1 - sum T. The smallest M as compiled.
        stay = every * torch.where(inside, log_q.exp() * -torch.expm1(log_a), 0.0).sum(1).detach()
        smallest = torch.full_like(stay, SMALLEST_STAY)
        if every > 1:
            smallest = 1.0 / (at < size).sum(1).clamp(min=1).double()
        log_stay = torch.maximum(stay, smallest).log()
        change = every * (t.detach() - t).sum(1) * (log_stay + 1.0)
        if every > 1:  # the baseline, as compiled: it adds nothing but a gradient
            q = torch.where(inside, log_q.exp(), 0.0).sum(1)
            baseline = (terms.sum(1) / t.sum(1)).detach() - log_stay
            change = change + every * baseline * (q.detach() - q)
        value = every * terms.sum(1) + stay * log_stay + change - log_omega
        return torch.where(torch.isfinite(log_omega), log_omega.exp() * value, 0.0)

    def flux(
        self, table: Table, sites: NDArray[np.int64], weight: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Mean value, gradient at the knots and flows; see `Ensemble.flux`.

        From first-order ratios alone: whatever is proposed counts as accepted.
        """
        self.start(table)
        values = self._tensor(table.value).requires_grad_()
        ratios = self._tensor(self._on_slots(self.log_ratios()))
        log_w = _LogWeights.apply(values, _Even.of(table, ratios), ratios.clamp(min=_LEAST))
        log_w = log_w.where(ratios > -math.inf, _LEAST)
        log_q = log_w - log_w.logsumexp(1, keepdim=True)

        def of_sites(of_slots: Tensor) -> Tensor:
            return of_slots.view(len(self), self.target.n_sites, -1)[:, self._tensor(sites)]

        log_t = of_sites(log_q).logsumexp(2)
        others = of_sites(ratios).logsumexp(2)
        log_p = -torch.logaddexp(others, torch.zeros_like(others))
        flow = 2.0 * (log_p + log_t).exp() * (others > -math.inf)
        if weight.size:
            loss = flow @ self._tensor(weight)
        else:
            loss = (log_p + 2.0 * (log_p + others) - log_t).logsumexp(1)
        gradient = torch.autograd.grad(loss.mean(), values)[0].cpu().numpy()
        return float(loss.detach().mean()), gradient, flow.detach().mean(0).cpu().numpy()

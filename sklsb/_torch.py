"""The first-order path (FLSB, Gibbs with gradients) on torch; the only module that imports it.

The proposal uses first-order log-ratios d_i = (x'_i - x_i) df/dx_i, from one gradient at the
present state. They are not exact in general, so the move is accepted by the full
Metropolis-Hastings ratio p(x') Q(x|x') / (p(x) Q(x'|x)), which needs one new value and gradient
per transition. Everything is float64; selection is by our own cumulative sums.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb import _compiled
from sklsb._compiled import SMALLEST_STAY, Table
from sklsb.targets.base import States, Target
from sklsb.targets.ising import Ising

try:
    import torch
    from torch.nn.functional import logsigmoid
except ImportError as error:
    raise ImportError(
        "fast=True needs torch, which is not installed. Install it with "
        "`python -m pip install torch`, or use fast=False."
    ) from error

# Numbers held at once by the neighbours of the objective "exact".
_MOST_NUMBERS = 1 << 22


def check(target: Target, device: str | None) -> None:
    """Say what is wrong if a target or a device cannot be used."""
    if not isinstance(target, Ising):
        raise TypeError(
            f"fast=True needs a target with a gradient, and {type(target).__name__} has none; "
            "sklsb.targets.Ising has one. Use fast=False."
        )
    name = "cpu" if device is None else device
    try:
        place = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f'device is {device!r}; give "cpu", "cuda" or "cuda:1".') from error
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f'device is {device!r}; give "cpu", "cuda" or "cuda:1".')
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device is {device!r}, but torch sees {torch.cuda.device_count()} CUDA devices here; "
            'use device="cpu".'
        )


def _ising(target: Any, device: torch.device) -> Callable[[torch.Tensor], Any]:
    """Return log p (without the constant) and its gradient, of states of shape (n, n_sites)."""
    matrix = target.couplings.tocoo()
    couplings = (
        torch.sparse_coo_tensor(
            torch.as_tensor(np.stack(matrix.coords).astype(np.int64)),
            torch.tensor(matrix.data),
            size=matrix.shape,
            check_invariants=True,
        )
        .to(device)
        .coalesce()
    )
    field = torch.tensor(target.field).to(device)

    def evaluate(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        local = torch.sparse.mm(couplings, x.T).T
        return (x * (field + 0.5 * local)).sum(1), field + local

    return evaluate


def _log_weights(
    values: torch.Tensor, slope: torch.Tensor, inverse_step: float, u: torch.Tensor
) -> torch.Tensor:
    """Log g(exp u), differentiable by the values at the knots."""
    last = values.numel() - 1
    a = u.abs() * inverse_step
    knot = a.clamp(max=last).long()
    step = torch.where(knot < last, values[(knot + 1).clamp(max=last)] - values[knot], slope[last])
    return 0.5 * u + values[knot] + step * (a - knot)


class FastEnsemble:
    """Chains moved by first-order proposals; the same methods as `sklsb._ensemble.Ensemble`."""

    def __init__(
        self,
        target: Target,
        states: States,
        rngs: list[np.random.Generator],
        lazy: float = 0.0,
        device: str | None = None,
    ):
        self.target = target
        self.rngs = rngs
        self.lazy = lazy
        self.device = "cpu" if device is None else str(device)
        n, d = states.shape
        self.chains = SimpleNamespace(
            x=np.array(states, dtype=target.dtype),
            moved=np.zeros((n, d), dtype=np.bool_),
            evaluations=np.zeros((n, 1), dtype=np.int64),
            acceptance=np.zeros((n, 1)),
        )
        self._set_up()

    def _set_up(self) -> None:
        self._evaluate = _ising(self.target, torch.device(self.device))
        self._x = self._tensor(self.chains.x.astype(np.float64))
        self._lp, self._gradient = self._evaluate(self._x)

    def _tensor(self, values: Any) -> torch.Tensor:
        return torch.as_tensor(values).to(self.device)

    def __len__(self) -> int:
        return len(self.rngs)

    @property
    def cost(self) -> int:
        """Log-ratios that it takes to look at all neighbours of one state: a gradient for each."""
        return int(self.target.n_sites**2)

    @property
    def step_cost(self) -> float:
        """Mean number of evaluations that a transition takes."""
        return 1.0

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("_evaluate", "_x", "_lp", "_gradient")
        return {name: value for name, value in self.__dict__.items() if name not in hidden}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_up()

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Torch has its own threads."""
        yield

    def start(self, table: Table) -> None:
        """Nothing depends on the table between transitions."""

    def log_prob(self) -> NDArray[np.float64]:
        """Log p of each chain's state, without the target's constant."""
        return self._lp.cpu().numpy().copy()

    def _weights(self, table: Table, x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        value, slope = self._tensor(table.value), self._tensor(table.slope)
        return _log_weights(value, slope, table.inverse_step, -2.0 * x * gradient)

    def _changes(self) -> torch.Tensor:
        """Exact log-ratios of all moves: log p of an Ising model is linear in each spin."""
        return -2.0 * self._x * self._gradient

    def _step(self, table: Table, u_select: torch.Tensor, u_accept: torch.Tensor) -> torch.Tensor:
        """One transition of every chain; the acceptance probabilities."""
        n = len(self)
        rows = torch.arange(n, device=self._x.device)
        log_w = self._weights(table, self._x, self._gradient)
        site = _select(log_w, ((u_select - self.lazy) / (1.0 - self.lazy)).clamp(min=0.0))
        x = self._x.clone()
        x[rows, site] = -x[rows, site]
        lp, gradient = self._evaluate(x)
        back = self._weights(table, x, gradient)
        # Not lp - self._lp, which rounds at the size of log p.
        log_ratio = self._changes()[rows, site] + back[rows, site] - back.logsumexp(1)
        log_ratio += log_w.logsumexp(1) - log_w[rows, site]
        probability = torch.where(u_select < self.lazy, 0.0, log_ratio.clamp(max=0.0).exp())
        accepted = u_accept < probability
        self._x = torch.where(accepted[:, None], x, self._x)
        self._lp = torch.where(accepted, lp, self._lp)
        self._gradient = torch.where(accepted[:, None], gradient, self._gradient)
        self._moved[rows, site] |= accepted
        return probability

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """Keep the numpy side of the chains in step with the torch side."""
        self._moved = self._tensor(self.chains.moved)
        self._sum = torch.zeros(len(self), dtype=torch.float64, device=self._x.device)
        try:
            with torch.no_grad():
                yield
        finally:
            self.chains.x[:] = self._x.cpu().numpy()
            self.chains.moved[:] = self._moved.cpu().numpy()
            self.chains.acceptance[:, 0] += self._sum.cpu().numpy()
            del self._moved

    def advance(self, table: Table, uniforms: NDArray[np.float64]) -> None:
        """Make transitions driven by uniforms of shape (n_chains, n_transitions, 2)."""
        if not self.target.n_sites:
            return
        u = self._tensor(uniforms)
        with self._moving():
            for i in range(u.shape[1]):
                self._sum += self._step(table, u[:, i, 0], u[:, i, 1])
        self.chains.evaluations += uniforms.shape[1]

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
        done = 0
        while done < n_transitions:
            size = min(thin - made, n_transitions - done)
            self.advance(table, np.ascontiguousarray(uniforms[:, done : done + size]))
            done, made = done + size, made + size
            if made == thin:
                draws[:, drawn] = self.chains.x
                stats[:, drawn, 0] = self.log_prob()
                stats[:, drawn, 1] = self.chains.acceptance[:, 0] / thin
                self.chains.acceptance[:] = 0.0
                drawn, made = drawn + 1, 0

    def objective(
        self,
        table: Table,
        settings: tuple[int, float, int],
        uniforms: NDArray[np.float64],
        log_omega: NDArray[np.float64],
    ) -> tuple[float, NDArray[np.float64], float]:
        """Mean objective over the chains and its gradients; see `Ensemble.objective`."""
        code, eta, every = settings
        if not self.target.n_sites:
            return 0.0, np.zeros_like(table.value), 0.0
        values = self._tensor(table.value).requires_grad_()
        eta_ = torch.tensor(eta, dtype=torch.float64, device=values.device, requires_grad=True)
        u = self._tensor(uniforms)
        log_w = self._tensor(log_omega)
        if code == _compiled.ENUMERATED:
            every = max(every, -(-len(self) * self.target.n_sites**2 // _MOST_NUMBERS))
            loss = self._enumerated(table, values, every, u[:, 1], log_w)
        else:
            log_w = torch.zeros_like(log_w) if code == _compiled.SAMPLED_KL else log_w
            loss = self._sampled(table, values, u[:, 0], log_w)
            if code == _compiled.BOUND:
                loss = loss + self._staying_bound(table, values, eta_, u[:, 1], log_w)
        mean = loss.mean()
        by_values, by_eta = torch.autograd.grad(mean, (values, eta_), allow_unused=True)
        gradient = by_values.cpu().numpy()
        return float(mean.detach()), gradient, 0.0 if by_eta is None else float(by_eta)

    def flux(
        self, table: Table, sites: NDArray[np.int64], weight: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Mean value, gradient at the knots and flows; see `Ensemble.flux`."""
        values = self._tensor(table.value).requires_grad_()
        n, at = len(self), self._tensor(sites)
        flows, losses = np.empty((n, sites.size)), np.empty(n)
        gradient = np.zeros_like(table.value)
        rows = max(1, _MOST_NUMBERS // max(1, sites.size * self.target.n_sites))
        everything = self._x, self._lp, self._gradient
        for first in range(0, n, rows):
            part = slice(first, first + rows)
            self._x, self._lp, self._gradient = (whole[part] for whole in everything)
            log_q, log_a, ratio = self._transitions(table, values, at.expand(len(self._x), -1))
            log_p, log_t = logsigmoid(-ratio), log_q + log_a
            flow = 2.0 * (log_p + log_t).exp()
            if weight.size:
                loss = flow @ self._tensor(weight)
            else:
                loss = (log_p + 2.0 * logsigmoid(ratio) - log_t).logsumexp(1)
            gradient += torch.autograd.grad(loss.sum(), values)[0].cpu().numpy() / n
            flows[part], losses[part] = flow.detach().cpu().numpy(), loss.detach().cpu().numpy()
        self._x, self._lp, self._gradient = everything
        self.chains.evaluations += sites.size
        return float(losses.mean()), gradient, flows.mean(axis=0)

    def _transitions(
        self, table: Table, values: torch.Tensor, sites: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Log Q, log A and log p(x')/p(x) of moves at ``sites``, shape (n_chains, k)."""
        n, d = self._x.shape
        k = sites.shape[1]
        slope = self._tensor(table.slope)

        def weights(u: torch.Tensor) -> torch.Tensor:
            return _log_weights(values, slope, table.inverse_step, u)

        changes = self._changes()
        log_w = weights(changes)
        log_q = log_w.gather(1, sites) - log_w.logsumexp(1, keepdim=True)
        x = self._x[:, None].expand(n, k, d).clone()
        x.scatter_(2, sites[:, :, None], -x.gather(2, sites[:, :, None]))
        _, gradient = self._evaluate(x.reshape(n * k, d))
        back = weights(-2.0 * x * gradient.reshape(n, k, d))
        log_back = back.gather(2, sites[:, :, None])[:, :, 0] - back.logsumexp(2)
        log_ratio = changes.gather(1, sites)
        return log_q, (log_ratio + log_back - log_q).clamp(max=0.0), log_ratio

    def _sampled(
        self, table: Table, values: torch.Tensor, u: torch.Tensor, log_omega: torch.Tensor
    ) -> torch.Tensor:
        site = _select(self._weights(table, self._x, self._gradient), u)
        log_q, log_a, log_ratio = (
            part[:, 0] for part in self._transitions(table, values, site[:, None])
        )
        self.chains.evaluations += 1
        surprise = log_q + log_a - log_ratio - log_omega
        return (log_omega + log_q - log_q.detach() + log_a).exp() * surprise

    def _staying_bound(
        self,
        table: Table,
        values: torch.Tensor,
        eta: torch.Tensor,
        u: torch.Tensor,
        log_omega: torch.Tensor,
    ) -> torch.Tensor:
        d = self.target.n_sites
        site = (u * d).long().clamp(max=d - 1)
        log_q, log_a, _ = self._transitions(table, values, site[:, None])
        self.chains.evaluations += 1
        stay = 1.0 - (log_q + log_a).exp()[:, 0]
        return stay * (eta * stay - log_omega.exp() * (eta.log() + 1.0))

    def _enumerated(
        self,
        table: Table,
        values: torch.Tensor,
        every: int,
        u: torch.Tensor,
        log_omega: torch.Tensor,
    ) -> torch.Tensor:
        d = self.target.n_sites
        first = (u * every).long().clamp(max=every - 1)
        sites = first[:, None] + every * torch.arange(-(-d // every), device=u.device)
        inside = (sites < d) & torch.isfinite(log_omega)[:, None]
        log_q, log_a, log_ratio = self._transitions(table, values, sites.clamp(max=d - 1))
        self.chains.evaluations += sites.shape[1]
        log_t = log_q + log_a
        t = torch.where(inside, log_t.exp(), 0.0)
        terms = t * (log_t - log_ratio)
        # M without cancellation; its derivative is that of 1 - sum T. The smallest M as compiled.
        stay = every * torch.where(inside, log_q.exp() * -torch.expm1(log_a), 0.0).sum(1).detach()
        smallest = torch.full_like(stay, SMALLEST_STAY)
        if every > 1:
            smallest = 1.0 / inside.sum(1).clamp(min=1).double()
        log_stay = torch.maximum(stay, smallest).log()
        change = every * (t.detach() - t).sum(1) * (log_stay + 1.0)
        if every > 1:  # the baseline, as compiled: it adds nothing but a gradient
            q = torch.where(inside, log_q.exp(), 0.0).sum(1)
            baseline = (terms.sum(1) / t.sum(1)).detach() - log_stay
            change = change + every * baseline * (q.detach() - q)
        value = every * terms.sum(1) + stay * log_stay + change - log_omega
        return torch.where(torch.isfinite(log_omega), log_omega.exp() * value, 0.0)


def _select(log_w: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """First move whose cumulative weight exceeds u times the total; never one of weight zero."""
    weights = (log_w - log_w.max(dim=1, keepdim=True).values).exp()
    cumulative = weights.cumsum(1)
    whole = cumulative[:, -1]
    r = torch.minimum(u * whole, whole * (1.0 - 2.0**-53))
    return torch.searchsorted(cumulative, r[:, None], right=True)[:, 0]

"""Objectives of learning and their gradients, for chains of first-order proposals."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb import _compiled
from sklsb._compiled import SMALLEST_STAY, Table
from sklsb._torch.even import Even

if TYPE_CHECKING:
    from sklsb._torch.chains import FastEnsemble

# Numbers held at once by the neighbours of an objective.
_MOST_NUMBERS = 1 << 22
# Log weight of what is impossible, where a derivative is taken.
_LEAST = -1e4

Found = tuple[float, NDArray[np.float64], Any]


class LogWeights(torch.autograd.Function):
    """Log g(exp u) as a function of the values at the knots: in each interval linear in two."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, even: Even, u: Tensor) -> Tensor:
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


def objective(
    chains: "FastEnsemble",
    table: Table,
    settings: tuple[int, float, int],
    uniforms: NDArray[np.float64],
    log_omega: NDArray[np.float64],
) -> Found:
    """Return what `FastEnsemble.objective` does."""
    code, eta, every = settings
    values = chains.tensor(table.value).requires_grad_()
    eta_ = chains.tensor(np.float64(eta)).requires_grad_()
    u, weights = chains.tensor(uniforms), chains.tensor(log_omega)
    if code == _compiled.ENUMERATED:
        every = max(every, -(-len(chains) * chains.enumeration_cost // _MOST_NUMBERS))
        loss = _enumerated(chains, values, every, u[:, 1], weights)
    elif code == _compiled.BOUND:
        loss = _bound(chains, values, eta_, u, weights)
    else:
        slots = chains.select(u[:, :1])[0]
        loss = _surprise(*_neighbours(chains, values, slots), torch.zeros_like(weights))
    mean = loss.mean()
    by_values, by_eta = torch.autograd.grad(mean, (values, eta_), allow_unused=True)
    gradient = by_values.cpu().numpy()
    return float(mean.detach()), gradient, 0.0 if by_eta is None else float(by_eta)


def _log_q(chains: "FastEnsemble", values: Tensor, ratios: Tensor, slots: Tensor) -> Tensor:
    log_w = chains.log_weights(ratios, values)
    return log_w.gather(1, slots).double() - log_w.logsumexp(1, keepdim=True)


def _neighbours(
    chains: "FastEnsemble", values: Tensor, slots: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Log Q, log T and log p(x')/p(x) of the moves at some slots, (n_chains, k)."""
    n, k = slots.shape
    state, model = chains.state, chains.model
    with torch.no_grad():
        x = state.x.repeat_interleave(k, 0)
        carried = tuple(part.repeat_interleave(k, 0) for part in state.carried)
        there = chains.propose(x, slots.reshape(-1, 1), None)
        new, log_ratio = model.move(x, carried, there.y, there.site)
        ratios = model.first_order(there.y, new)
        log_ratio = log_ratio.view(n, k)
    chains.chains.evaluations += k
    log_q = _log_q(chains, values, state.ratios, slots)
    log_back = _log_q(chains, values, ratios, there.back).view(n, k)
    log_a = (log_ratio + log_back - log_q).clamp(max=0.0)
    # Of impossible moves log A may be no number.
    log_t = torch.where((log_q > -math.inf) & (log_ratio > -math.inf), log_q + log_a, -math.inf)
    return log_q, log_t, log_ratio


def _surprise(log_q: Tensor, log_t: Tensor, log_ratio: Tensor, log_omega: Tensor) -> Tensor:
    """Return the paper's estimate at a proposed neighbour, the first slot."""
    q, t, ratio = (part[:, 0] for part in (log_q, log_t, log_ratio))
    happens = t > -math.inf
    surprise = torch.where(happens, t - ratio - log_omega, 0.0)
    return (log_omega + t - torch.where(happens, q.detach(), 0.0)).exp() * surprise


def _bound(
    chains: "FastEnsemble", values: Tensor, eta: Tensor, u: Tensor, log_omega: Tensor
) -> Tensor:
    """Return the estimate at a proposed neighbour, and the bound at a uniform one."""
    open_ = chains.open
    uniform = open_[(u[:, 1] * len(open_)).long().clamp(max=len(open_) - 1)]
    slots = torch.cat([chains.select(u[:, :1])[0], uniform[:, None]], dim=1)
    log_q, log_t, log_ratio = _neighbours(chains, values, slots)
    stay = 1.0 - log_t[:, 1].exp()
    return _surprise(log_q, log_t, log_ratio, log_omega) + stay * (
        eta * stay - log_omega.exp() * (eta.log() + 1.0)
    )


def _enumerated(
    chains: "FastEnsemble", values: Tensor, every: int, u: Tensor, log_omega: Tensor
) -> Tensor:
    """Return the sum over every so many neighbours."""
    size = len(chains.open)
    first = (u * every).long().clamp(max=every - 1)
    at = first[:, None] + every * torch.arange(-(-size // every), device=u.device)
    slots = chains.open[at.clamp(max=size - 1)]
    log_q, log_t, log_ratio = _neighbours(chains, values, slots)
    inside = (at < size) & torch.isfinite(log_omega)[:, None]
    happens = inside & (log_t > -math.inf)
    t = torch.where(happens, log_t.exp(), 0.0)
    terms = t * torch.where(happens, log_t - log_ratio, 0.0)
    # M without cancellation; its derivative is that of 1 - sum T. The smallest M as compiled.
    refused = torch.where(happens, -torch.expm1(log_t - log_q), 1.0)
    q = torch.where(inside, log_q.exp(), 0.0)
    stay = every * (q * refused).sum(1).detach()
    smallest = torch.full_like(stay, SMALLEST_STAY)
    if every > 1:
        smallest = 1.0 / (at < size).sum(1).clamp(min=1).double()
    log_stay = torch.maximum(stay, smallest).log()
    change = every * (t.detach() - t).sum(1) * (log_stay + 1.0)
    if every > 1:  # the baseline, as compiled: it adds nothing but a gradient
        baseline = (terms.sum(1) / t.sum(1)).detach() - log_stay
        change = change + every * baseline * (q.detach() - q).sum(1)
    value = every * terms.sum(1) + stay * log_stay + change - log_omega
    return torch.where(torch.isfinite(log_omega), log_omega.exp() * value, 0.0)


def flux(
    chains: "FastEnsemble",
    table: Table,
    sites: NDArray[np.int64],
    weight: NDArray[np.float64],
) -> Found:
    """Return what `FastEnsemble.flux` does."""
    values = chains.tensor(table.value).requires_grad_()
    ratios = chains.slot_ratios()
    log_w = LogWeights.apply(values, Even.of(table, ratios), ratios.clamp(min=_LEAST))
    log_w = log_w.where(ratios > -math.inf, _LEAST)
    log_q = log_w - log_w.logsumexp(1, keepdim=True)
    at = chains.tensor(sites)

    def of_sites(of_slots: Tensor) -> Tensor:
        return of_slots.view(len(chains), chains.target.n_sites, -1)[:, at]

    log_t = of_sites(log_q).logsumexp(2)
    others = of_sites(ratios).logsumexp(2)
    log_p = -torch.logaddexp(others, torch.zeros_like(others))
    flow = 2.0 * (log_p + log_t).exp() * (others > -math.inf)
    if weight.size:
        loss = flow @ chains.tensor(weight)
    else:
        loss = (log_p + 2.0 * (log_p + others) - log_t).logsumexp(1)
    gradient = torch.autograd.grad(loss.mean(), values)[0].cpu().numpy()
    return float(loss.detach().mean()), gradient, flow.detach().mean(0).cpu().numpy()

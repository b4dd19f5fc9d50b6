"""Objectives of learning and their gradients, for chains of first-order proposals."""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb._kernels import objectives
from sklsb._kernels.first_order import learning
from sklsb._kernels.numeric import Table
from sklsb._kernels.objectives import SMALLEST_STAY
from sklsb._system.arrays import Array, Ints
from sklsb.ensembles._torch.compiled import CompiledWalkers
from sklsb.ensembles._torch.even import Even, LogWeights
from sklsb.ensembles._torch.walkers import Walkers

# Most numbers held by the neighbours of an objective.
_MOST_NUMBERS = 1 << 22
# Log weight of impossible moves, where a derivative is taken.
_LEAST = -1e4


class Found(NamedTuple):
    """Mean objective over the chains, its gradients, and their cost."""

    value: float
    gradient: Array  # by the values at the knots
    by_eta: float
    evaluations: int  # gradients of log p for each chain


class Neighbours(NamedTuple):
    """Some neighbours of each chain's state, (n_chains, k)."""

    log_q: Tensor  # of the proposal
    log_t: Tensor  # of the transition
    log_ratio: Tensor  # log p(x') - log p(x)


def objective(
    walkers: Walkers,
    table: Table,
    settings: tuple[objectives.Objective, float, int],
    uniforms: Array,
    log_omega: Array,
) -> Found:
    """Return the mean objective over the chains; see `FastEnsemble.objective`."""
    given, eta, every = settings
    check_objective(given)
    if isinstance(walkers, CompiledWalkers) and not given.enumerated:
        return _by_kernels(walkers, eta, uniforms, log_omega)
    values = _leaf(walkers, table.value)
    eta_ = _leaf(walkers, np.array(eta))
    u, weights = _tensor(walkers, uniforms), _tensor(walkers, log_omega)
    if given.enumerated:
        every = max(every, -(-len(walkers) * walkers.moves.existing.size**2 // _MOST_NUMBERS))
        shift = weights if given.weighted else torch.zeros_like(weights)
        loss, looked = _enumerated(walkers, values, every, u[:, 1], (weights, shift))
    else:
        loss, looked = _bound(walkers, values, eta_, u, weights)
    mean = loss.mean()
    by_values, by_eta = torch.autograd.grad(mean, (values, eta_), allow_unused=True)
    by_eta = 0.0 if by_eta is None else float(by_eta)
    return Found(float(mean.detach()), by_values.cpu().numpy(), by_eta, looked)


def check_objective(given: objectives.Objective) -> None:
    """Raise a ValueError if an objective has no form on torch."""
    known = (objectives.Divergence, objectives.Bound)
    if not isinstance(given.compiled, known):
        names = [n for n, one in objectives.OBJECTIVES.items() if isinstance(one.compiled, known)]
        raise ValueError(
            f"objective is {given.name!r}, which has no form for first-order proposals on torch; "
            f"use fast=False, or one of {sorted(names)}."
        )


def _tensor(walkers: Walkers, values: NDArray[np.generic]) -> Tensor:
    return torch.as_tensor(values).to(walkers.device)


def _leaf(walkers: Walkers, values: Array) -> Tensor:
    """Return a tensor for which derivatives are recorded."""
    return _tensor(walkers, values).requires_grad_()


def _log_q(walkers: Walkers, values: Tensor, ratios: Tensor, moves: Tensor) -> Tensor:
    log_w = walkers.log_weights(ratios, values)
    return log_w.gather(1, moves).double() - log_w.logsumexp(1, keepdim=True)


def _look(walkers: Walkers, moves: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what leads back, ratios and log p(x') - log p(x) at the states moves lead to."""
    k, state, model = moves.shape[1], walkers.state, walkers.model
    with torch.no_grad():
        x = state.x.repeat_interleave(k, 0)
        carried = tuple(part.repeat_interleave(k, 0) for part in state.carried)
        there = walkers.moves.make(x, moves.reshape(-1, 1), None)
        new, log_ratio = model.move(x, carried, there.y, there.site)
        return there.back, model.first_order(there.y, new), log_ratio


def _by_kernels(walkers: CompiledWalkers, eta: float, uniforms: Array, log_omega: Array) -> Found:
    """Return the bound at drawn neighbours, and its gradient, without torch's derivatives."""
    weighing, here = walkers.weighing, walkers.here()
    moves = [walkers.proposed(uniforms[:, 0]), walkers.uniform(uniforms[:, 1])]
    there = walkers.look(moves)
    gradient = np.zeros(weighing.knots.size + 1)
    value = learning.surprise(weighing, log_omega, here, there, gradient)
    more, by_eta = learning.refusal(weighing, eta, log_omega, here, there, gradient)
    value, n = value + more, len(walkers)
    return Found(value / n, gradient[:-1] / n, by_eta / n, len(moves))


def _drawn(walkers: Walkers, u: Tensor) -> Tensor:
    """Return a proposed move and a uniform one."""
    free = walkers.moves.free
    uniform = free[(u[:, 1] * len(free)).long().clamp(max=len(free) - 1)]
    return torch.cat([walkers.select(u[:, :1])[0], uniform[:, None]], dim=1)


def _neighbours(walkers: Walkers, values: Tensor, moves: Tensor) -> Neighbours:
    """Look at the states that moves (n_chains, k) lead to."""
    n, k = moves.shape
    state = walkers.state
    back, ratios, log_ratio = _look(walkers, moves)
    log_ratio = log_ratio.view(n, k)
    log_q = _log_q(walkers, values, state.ratios, moves)
    log_back = _log_q(walkers, values, ratios, back).view(n, k)
    log_a = (log_ratio + log_back - log_q).clamp(max=0.0)
    # log A of impossible moves may be NaN.
    log_t = torch.where((log_q > -math.inf) & (log_ratio > -math.inf), log_q + log_a, -math.inf)
    return Neighbours(log_q, log_t, log_ratio)


def _surprise(neighbours: Neighbours, log_omega: Tensor) -> Tensor:
    """Return the paper's estimate at the first neighbour, which was proposed."""
    q, t, ratio = (part[:, 0] for part in neighbours)
    happens = t > -math.inf
    surprise = torch.where(happens, t - ratio - log_omega, 0.0)
    return (log_omega + t - torch.where(happens, q.detach(), 0.0)).exp() * surprise


def _bound(
    walkers: Walkers, values: Tensor, eta: Tensor, u: Tensor, log_omega: Tensor
) -> tuple[Tensor, int]:
    """Return the estimate at a proposed neighbour plus the bound at a uniform one; looks at 2."""
    moves = _drawn(walkers, u)
    neighbours = _neighbours(walkers, values, moves)
    stay = 1.0 - neighbours.log_t[:, 1].exp()
    loss = _surprise(neighbours, log_omega) + stay * (
        eta * stay - log_omega.exp() * (eta.log() + 1.0)
    )
    return loss, moves.shape[1]


def _enumerated(
    walkers: Walkers, values: Tensor, every: int, u: Tensor, weights: tuple[Tensor, Tensor]
) -> tuple[Tensor, int]:
    """Return the sum over every ``every``-th neighbour, and the number of these neighbours.

    ``weights`` = (log weight of each chain, what its log-ratios are relative to).
    """
    log_omega, shift = weights
    free = walkers.moves.free
    size = len(free)
    first = (u * every).long().clamp(max=every - 1)
    at = first[:, None] + every * torch.arange(-(-size // every), device=u.device)
    moves = free[at.clamp(max=size - 1)]
    log_q, log_t, log_ratio = _neighbours(walkers, values, moves)
    inside = (at < size) & torch.isfinite(log_omega)[:, None]
    happens = inside & (log_t > -math.inf)
    t = torch.where(happens, log_t.exp(), 0.0)
    terms = t * torch.where(happens, log_t - log_ratio, 0.0)
    # M without cancellation, with the derivative of 1 - sum T; the smallest M as in the kernels.
    refused = torch.where(happens, -torch.expm1(log_t - log_q), 1.0)
    q = torch.where(inside, log_q.exp(), 0.0)
    stay = every * (q * refused).sum(1).detach()
    smallest = torch.full_like(stay, SMALLEST_STAY)
    if every > 1:
        smallest = 1.0 / (at < size).sum(1).clamp(min=1).double()
    log_stay = torch.maximum(stay, smallest).log()
    change = every * (t.detach() - t).sum(1) * (log_stay + 1.0)
    if every > 1:  # a baseline, as in the kernels: it changes only the gradient
        baseline = (terms.sum(1) / t.sum(1)).detach() - log_stay
        change = change + every * baseline * (q.detach() - q).sum(1)
    value = every * terms.sum(1) + stay * log_stay + change - shift
    return torch.where(torch.isfinite(log_omega), log_omega.exp() * value, 0.0), moves.shape[1]


def flux(walkers: Walkers, table: Table, sites: Ints, weight: Array) -> tuple[float, Array, Array]:
    """Return the mean value, gradient at the knots and flows; see `FastEnsemble.flux`."""
    loss, gradient, flow = (one.cpu().numpy() for one in _flux(walkers, table, sites, weight))
    return float(loss), gradient, flow


def _flux(
    walkers: Walkers, table: Table, sites: Ints, weight: Array
) -> tuple[Tensor, Tensor, Tensor]:
    values = _leaf(walkers, table.value)
    ratios = walkers.padded_ratios()
    log_w = LogWeights.apply(values, Even.of(table, ratios), ratios.clamp(min=_LEAST))
    log_w = log_w.where(ratios > -math.inf, _LEAST)
    log_q = log_w - log_w.logsumexp(1, keepdim=True)
    at, (n_chains, n_sites) = _tensor(walkers, sites), walkers.state.x.shape

    def of_sites(of_moves: Tensor) -> Tensor:
        return of_moves.view(n_chains, n_sites, -1)[:, at]

    log_t = of_sites(log_q).logsumexp(2)
    others = of_sites(ratios).logsumexp(2)
    log_p = -torch.logaddexp(others, torch.zeros_like(others))
    flow = 2.0 * (log_p + log_t).exp() * (others > -math.inf)
    if weight.size:
        loss = flow @ _tensor(walkers, weight)
    else:
        loss = (log_p + 2.0 * (log_p + others) - log_t).logsumexp(1)
    mean = loss.mean()
    return mean.detach(), torch.autograd.grad(mean, values)[0], flow.detach().mean(0)

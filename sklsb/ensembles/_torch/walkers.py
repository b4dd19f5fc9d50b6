"""One step of all chains on a device, by first-order proposals, in operations of torch.

`CompiledWalkers` does the same on the CPU in kernels.

The proposal uses first-order log-ratios d_m = (x'_m - x) . grad log p(x) of all moves m, from one
gradient at the present state. They are not exact in general, so the move is accepted by the full
Metropolis-Hastings ratio p(x') Q(x|x') / (p(x) Q(x'|x)), which takes one new value and gradient per
transition; log-ratios of the present state are kept.

Several flips per gradient: R moves are drawn independently from the proposal at x and made
together, each adding a shift to the value of its variable (modulo its number of values). The way
back draws the opposite shifts at x', so the ratio contains the product of the R proposals. An even
R would keep the parity of the number of ones, so the last flip is left out with probability 1/2.

First-order ratios may be float32, and then also the log weights here, or the weights in kernels.
They are functions of the state alone, and the acceptance takes them as they are. Their cumulative
sums, log p and the acceptance are float64, so the chain is reversible to rounding in float64.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sklsb._kernels.numeric import Table
from sklsb._system.arrays import Array, Ints
from sklsb.ensembles._torch.even import Even, LogWeights
from sklsb.ensembles._torch.philox import expand
from sklsb.targets._torch.model import Carried, Model
from sklsb.targets._torch.moves import PaddedMoves
from sklsb.targets.base import Target


class State(NamedTuple):
    """States of chains, one row each, and what follows from them and the table."""

    x: Tensor  # value indices
    carried: Carried
    ratios: Tensor  # first-order log-ratios of the padded moves
    weights: Tensor  # their logarithms; in kernels themselves, relative to the largest
    cumulative: Tensor  # relative to the largest; in kernels, of blocks
    log_total: Tensor  # (n, 1); in kernels ``logs`` of `Weighed`

    def tensors(self) -> list[Tensor]:
        """Return all tensors."""
        return [self.x, *self.carried, *self[2:]]


class Walkers:
    """The present states of chains on a device, and the step that moves them.

    ``moved``, (n_chains, padded moves + 1), marks the moves made so far, in the last column none;
    ``acceptance`` sums the acceptance probabilities.
    """

    def __init__(self, target: Target, value_index: Ints, model: Model):
        self.lazy = 0.0
        self.model = model
        self.device = model.device
        self.moves = PaddedMoves(target, self.model.n_moves_per_site, self.device)
        # All weights of a state may be 0, and ratios at an impossible state NaN.
        self._may_be_stuck = self.moves.excluded is not None or self.model.has_zeros
        self.put(value_index)
        n_chains, n_moves = self.state.ratios.shape
        self.moved = torch.zeros(n_chains, n_moves + 1, dtype=torch.bool, device=self.device)
        self.acceptance = torch.zeros(n_chains, dtype=torch.float64, device=self.device)

    def put(self, value_index: Ints) -> None:
        """Set the states; `weigh` is to follow."""
        # Sums of up to 64 shifts of a value must fit.
        small = np.int8 if self.moves.n_per_site == 1 else np.int32
        x = torch.as_tensor(value_index.astype(small)).to(self.device)
        with self.model.prepared(), torch.no_grad():
            carried = self.model.start(x)
            ratios = self.model.first_order(x, carried)
        nothing = ratios[:, :0]
        self.state = State(x, carried, ratios, nothing, nothing, nothing)

    def __len__(self) -> int:
        return len(self.state.x)

    def weigh(self, table: Table) -> None:
        """Compute the weights of all moves by a table, which is used from now on."""
        self._table: Table = table
        self._tabulated: Even | None = None
        state = self.state
        with torch.no_grad():
            self.state = State(*state[:3], *self._weights(state.ratios))

    @property
    def _even(self) -> Even:
        """The table on the device, made when it is needed: kernels do without."""
        if self._tabulated is None:
            self._tabulated = Even.of(self._table, self.state.ratios)
        return self._tabulated

    def log_prob(self) -> Tensor:
        """Return log p of each chain's state, without the target's constant."""
        return self.model.log_prob(self.state.x, self.state.carried)

    def padded_ratios(self) -> Tensor:
        """Return log-ratios of the padded moves, float64; -inf for excluded ones."""
        ratios, excluded = self.state.ratios.double(), self.moves.excluded
        return ratios if excluded is None else ratios.masked_fill(excluded, -math.inf)

    def log_weights(self, ratios: Tensor, values: Tensor | None = None) -> Tensor:
        """Return log g of all padded moves, differentiable by the knots' values if given."""
        impossible = None
        if self.model.has_zeros:
            impossible = ratios == -math.inf
            # Infinite or no numbers otherwise are ratios at impossible states.
            ratios = ratios.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        if values is None:
            result = self._even.log_weights(ratios)
        else:
            result = LogWeights.apply(values, self._even, ratios)
        for never in (impossible, self.moves.excluded):
            if never is not None:
                result = result.masked_fill(never, -math.inf)
        return result

    def _weights(self, ratios: Tensor) -> tuple[Tensor, ...]:
        """Return log weights, cumulative weights over the largest, and the log of their sum."""
        log_weight = self.log_weights(ratios)
        if not log_weight.shape[1]:
            return log_weight, log_weight, log_weight.sum(1, keepdim=True)
        shift = log_weight.amax(1, keepdim=True)
        if self._may_be_stuck:
            shift = shift.clamp(min=-1e30)
        cumulative = (log_weight.double() - shift).exp_().cumsum(1)
        return log_weight, cumulative, cumulative[:, -1:].log().add_(shift)

    def select(self, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """Draw moves by uniforms; with several flips, also return which are active."""
        active = None
        if u.shape[1] > 1:
            u, last = u[:, :-1], u[:, -1:] < 0.5
            active = torch.ones_like(u, dtype=torch.bool)
            active[:, -1:] = last
        cumulative = self.state.cumulative
        move = torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True)
        if self._may_be_stuck:
            move = move.clamp(max=cumulative.shape[1] - 1)
        # An inactive draw stands where an active one does.
        return (move if active is None else torch.where(active, move, move[:, :1])), active

    def numbers(self, given: Array, n_flips: int) -> Iterator[Any]:
        """Yield the numbers of each step from (n_chains, n_steps, any); pairs are expanded."""
        part = torch.as_tensor(given).to(self.device)
        if n_flips > 1 and part.shape[2] == 2:
            part = torch.cat([expand(part[:, :, 0], n_flips + 1), part[:, :, 1:]], dim=2)
        yield from part.unbind(1)

    def step(self, numbers: Any) -> None:
        """Make one transition of every chain.

        ``numbers`` are uniform, (n_chains, 2): to select and to accept with. Several flips take
        (n_chains, n_flips + 2), where the last but one tells whether the last flip is left out.
        """
        if not self.moves.existing.size:
            return
        state, model = self.state, self.model
        u_select, u_accept = numbers[:, :-1], numbers[:, -1]
        lazy = None
        if self.lazy:
            lazy = u_select[:, 0] < self.lazy
            first = ((u_select[:, :1] - self.lazy) / (1.0 - self.lazy)).clamp(0.0, 1.0 - 2.0**-53)
            u_select = torch.cat([first, u_select[:, 1:]], dim=1)
        there = self.moves.make(state.x, *self.select(u_select))
        carried, log_ratio = model.move(state.x, state.carried, there.y, there.site)
        ratios = model.first_order(there.y, carried)
        new = State(there.y, carried, ratios, *self._weights(ratios))
        back = new.weights.gather(1, there.back).double()
        more = back - state.weights.gather(1, there.move) + (state.log_total - new.log_total)
        if there.active is not None:
            more = torch.where(there.active, more, 0.0)
        probability = (log_ratio + more.sum(1)).clamp_(max=0.0).exp_()
        if self._may_be_stuck:
            probability = probability.nan_to_num(nan=0.0)
        if lazy is not None:
            probability = torch.where(lazy, 0.0, probability)
        accepted = u_accept < probability
        self._keep(accepted, new)
        self.moved.scatter_(1, torch.where(accepted[:, None], there.move, ratios.shape[1]), True)
        self.acceptance += probability

    def _keep(self, accepted: Tensor, new: State) -> None:
        """Move the chains that accept, without asking the device how many."""
        for there, here in zip(new.tensors(), self.state.tensors(), strict=True):
            mask = accepted.view(-1, *[1] * (here.dim() - 1))
            there.copy_(torch.where(mask, there, here))
        self.state = new

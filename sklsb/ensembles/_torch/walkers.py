"""One step of all chains on a device, by first-order proposals.

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
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklsb._kernels.numeric import Table
from sklsb.ensembles._torch.even import Even, LogWeights
from sklsb.targets._torch.model import Carried
from sklsb.targets._torch.moves import PaddedMoves
from sklsb.targets._torch.placing import model_on
from sklsb.targets.base import Target


class State(NamedTuple):
    """What chains are in, one row each; all functions of x and, but for the ratios, the table."""

    x: Tensor  # value indices
    carried: Carried
    ratios: Tensor  # first-order log-ratios of the padded moves
    log_weight: Tensor
    cumulative: Tensor  # of the weights, relative to the largest
    log_total: Tensor  # (n, 1)

    def tensors(self) -> list[Tensor]:
        """Return all of them."""
        return [self.x, *self.carried, *self[2:]]


class Walkers:
    """The present states of chains on a device, and the step that moves them.

    Parameters
    ----------
    target : Target
        What is sampled.
    value_index : ndarray of int64, shape (n_chains, n_sites)
        Where the chains are.
    device : str or None
        Where to run; see `model_on`.
    dtype : torch.dtype
        Of first-order ratios, where they are not exact anyway.

    Attributes
    ----------
    lazy : float
        Probability that a transition does nothing; 0 at first.
    model : Model
        Log p and its gradient.
    moves : PaddedMoves
        What may be proposed.
    state : State
        Where the chains are; without weights until `weigh`.
    moved : Tensor of bool, shape (n_chains, padded moves + 1)
        Moves made so far. The last column stands for none.
    acceptance : Tensor of shape (n_chains,)
        Sum of the acceptance probabilities.
    """

    def __init__(
        self,
        target: Target,
        value_index: NDArray[np.int64],
        device: str | None,
        dtype: torch.dtype,
    ):
        self.lazy = 0.0
        self.model = model_on(target, device, dtype)
        self.device = self.model.device
        self.moves = PaddedMoves(target, self.model.n_moves_per_site, self.device)
        # All weights of a state may be 0, and ratios at an impossible state may be no numbers.
        self._may_be_stuck = self.moves.excluded is not None or self.model.has_zeros
        # Elsewhere it would take time to ask which chains move.
        self._asks = self.device.type == "cpu"
        self.state = self._unweighted(value_index)
        n_chains, n_moves = self.state.ratios.shape
        self.moved = torch.zeros(n_chains, n_moves + 1, dtype=torch.bool, device=self.device)
        self.acceptance = torch.zeros(n_chains, dtype=torch.float64, device=self.device)

    def _unweighted(self, value_index: NDArray[np.int64]) -> State:
        # Sums of up to 64 shifts of a value must fit.
        small = np.int8 if self.moves.n_per_site == 1 else np.int32
        x = torch.as_tensor(value_index.astype(small)).to(self.device)
        with self.model.prepared(), torch.no_grad():
            carried = self.model.start(x)
            ratios = self.model.first_order(x, carried)
        nothing = ratios[:, :0]
        return State(x, carried, ratios, nothing, nothing, nothing)

    def __len__(self) -> int:
        return len(self.state.x)

    def weigh(self, table: Table) -> None:
        """Compute the weights of all moves at the present states, and use this table from now."""
        self._even = Even.of(table, self.state.ratios)
        state = self.state
        with torch.no_grad():
            self.state = State(*state[:3], *self._weights(state.ratios))

    def log_prob(self) -> Tensor:
        """Log p of each chain's state, without the target's constant."""
        return self.model.log_prob(self.state.x, self.state.carried)

    def padded_ratios(self) -> Tensor:
        """Log-ratios of the padded moves, float64; -inf for those that are excluded."""
        ratios, excluded = self.state.ratios.double(), self.moves.excluded
        return ratios if excluded is None else ratios.masked_fill(excluded, -math.inf)

    def log_weights(self, ratios: Tensor, values: Tensor | None = None) -> Tensor:
        """Log g of all padded moves, differentiable by the values at the knots if given."""
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

    def _weights(self, ratios: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log weights, cumulative weights relative to the largest, and the log of their sum."""
        log_weight = self.log_weights(ratios)
        if not log_weight.shape[1]:
            return log_weight, log_weight, log_weight.sum(1, keepdim=True)
        shift = log_weight.amax(1, keepdim=True)
        if self._may_be_stuck:
            shift = shift.clamp(min=-1e30)
        cumulative = (log_weight.double() - shift).exp_().cumsum(1)
        return log_weight, cumulative, cumulative[:, -1:].log().add_(shift)

    def select(self, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """Draw moves by uniforms (n, n_flips); of several, tell whether the last is left out."""
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

    def step(self, numbers: Tensor) -> None:
        """Make one transition of every chain.

        ``numbers`` are uniform, (n_chains, 2): to select and to accept with. Of several flips they
        are (n_chains, n_flips + 2), and the last but one tells whether the last flip is left out.
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
        back = new.log_weight.gather(1, there.back).double()
        more = back - state.log_weight.gather(1, there.move) + (state.log_total - new.log_total)
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
        """Move the chains that accept."""
        if self._asks:
            refused = accepted.logical_not().nonzero()[:, 0]
            if refused.numel():
                for there, here in zip(new.tensors(), self.state.tensors(), strict=True):
                    there[refused] = here[refused]
        else:  # without asking how many
            for there, here in zip(new.tensors(), self.state.tensors(), strict=True):
                mask = accepted.view(-1, *[1] * (here.dim() - 1))
                there.copy_(torch.where(mask, there, here))
        self.state = new

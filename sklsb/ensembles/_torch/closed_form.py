"""Single first-order flips where first order is exact: the kernel of exact log-ratios."""

import torch
from torch import Tensor

from sklsb.ensembles.compiled import BalancedEnsemble
from sklsb.targets.base import States


class ClosedFormEnsemble(BalancedEnsemble):
    """Chains on the CPU that make the exact kernel's transitions, with tensors of their states."""

    def put(self, states: States) -> None:
        """Set the chains to these states, which are valid."""
        self.chains.x[:] = states
        self.start(self.rule)

    def state_tensor(self) -> Tensor:
        """Return a copy of the present states."""
        return torch.tensor(self.chains.x)

"""What a target offers besides log p: one object that all rooms ask."""

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp


@dataclass(frozen=True)
class Offers:
    """What a target offers to those who want more than log p; see `Target.offers`."""

    target: Any

    @property
    def graph(self) -> sp.csr_array | None:
        """Which variables depend on each other directly; None if unknown."""
        return self.target.graph

    @property
    def layers(self) -> Any:
        """The machine of two layers, if the target is one; None otherwise."""
        return self.target.layers

    @property
    def pairwise(self) -> Any:
        """The model of couplings between pairs, if the target is one; None otherwise."""
        return self.target._pairwise

    @property
    def factors(self) -> bool:
        """Whether there are `Target.log_factors`, which may be slow to list."""
        return bool(self.target._has_factors)

    @property
    def own_factors(self) -> bool:
        """Whether these are implemented by sklsb, and so need no check."""
        return bool(self.target._trusts_factors)

    @property
    def joint_zeros(self) -> bool:
        """Whether a factor over several variables may have zeros."""
        return bool(self.target._joint_zeros)

    @property
    def size(self) -> float:
        """Upper bound of the sum of the absolute values of the terms of log p; 0 if unknown."""
        return float(self.target._log_prob_size)

    @property
    def linear(self) -> bool:
        """Whether first-order log-ratios are exact."""
        return bool(self.target._linear)

    @property
    def single_precision(self) -> bool:
        """Whether log p is computed in single precision."""
        return bool(self.target._is_single)

    @property
    def may_change(self) -> bool:
        """Whether log p may change between calls, as a function of the user may."""
        return bool(self.target._may_change)

    def class_view(self) -> Any:
        """Return arrays for sweeps by colour, if they are faster than with `site_view`; or None."""
        return self.target._class_view()

    def torch_model(self, device: Any, dtype: Any) -> Any:
        """Return log p with its gradient on torch; a TypeError if there is none."""
        return self.target._torch_model(device, dtype)

    def look(self, again: bool = False) -> None:
        """Look at a function of the user before a fit, or again before chains go on."""
        (self.target._check_mode if again else self.target._check_function)()

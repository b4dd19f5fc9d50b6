"""A target with some variables fixed."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from sklsb._kernels.state import Chains
from sklsb._kernels.targets.conditioned import ConditionedView
from sklsb.targets.base import States, Target

if TYPE_CHECKING:
    from sklsb._torch.models.base import Device, DType, Model


class Conditioned(Target):
    """Another target where some of its variables have given values, and log p = -inf elsewhere.

    Made by ``target.condition``.

    Parameters
    ----------
    target : Target
        The target without the evidence.
    sites, observed : ndarray of int64, shape (n_observed,)
        Variables and their values.

    Raises
    ------
    ValueError
        If no state that agrees with the evidence has positive probability, and the target sees it.
    """

    def __init__(
        self, target: Target, sites: NDArray[np.int64], observed: NDArray[np.int64]
    ) -> None:
        self.target, self.sites, self.observed = target, sites, observed
        self.shape, self.dims, self.values = target.shape, target.dims, target.values
        self.constant = target.constant
        self.rounding, self.ratio_cost = target.rounding, target.ratio_cost
        self._n_possible = target.n_possible_given(sites, observed)
        # At once: two threads must not make one each.
        # A target may save the work for moves that the evidence forbids.
        self._inner: Target = target.observing(sites) if hasattr(target, "observing") else target

    def __repr__(self) -> str:
        return f"{self.target!r} with {self.sites.size} variables observed"

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        """Number of values of each variable, shape (n_sites,)."""
        return self.target.cardinalities

    @property
    def coords(self) -> dict[str, Any]:
        """Coordinate of each of ``dims``."""
        return self.target.coords

    @property
    def n_possible(self) -> NDArray[np.int64]:
        """Number of values of each variable that are not known to be impossible, (n_sites,)."""
        return self._n_possible.copy()

    @property
    def observed_sites(self) -> NDArray[np.int64]:
        """Sites that evidence has fixed, increasing."""
        return self.sites

    def guard(self, chains: Chains) -> AbstractContextManager[Callable[[BaseException], None]]:
        """Surround the work of the kernels as the target does, if it does."""
        if hasattr(self._inner, "guard"):
            found: AbstractContextManager[Callable[[BaseException], None]]
            found = self._inner.guard(chains)
            return found
        return nullcontext(lambda error: None)

    def condition(self, evidence: Mapping[Any, Any]) -> Target:
        """Fix more of the variables; see `Target.condition`."""
        sites, observed = self.target.check_evidence(evidence)
        again = np.isin(sites, self.sites)
        kept = dict(zip(self.sites.tolist(), self.observed.tolist(), strict=True))
        for site, value in zip(sites[again].tolist(), observed[again].tolist(), strict=True):
            if kept[site] != value:
                raise ValueError(
                    f"evidence sets variable {self.label(site)!r} to {value}; it was observed as "
                    f"{kept[site]}."
                )
        kept |= dict(zip(sites.tolist(), observed.tolist(), strict=True))
        sites = np.array(sorted(kept), dtype=np.int64)
        observed = np.array([kept[i] for i in sites.tolist()], dtype=np.int64)
        return Conditioned(self.target, sites, observed)

    def random_state(self, rng: np.random.Generator) -> States:
        """Draw the other variables as the target does, shape (n_sites,)."""
        return self.target.random_state_given(rng, self.sites, self.observed)

    def random_state_given(
        self, rng: np.random.Generator, sites: NDArray[np.int64], observed: NDArray[np.int64]
    ) -> States:
        """Draw a state that agrees with this evidence too."""
        both = dict(zip(self.sites.tolist(), self.observed.tolist(), strict=True))
        both |= dict(zip(sites.tolist(), observed.tolist(), strict=True))
        return self.target.random_state_given(
            rng, np.array(list(both), dtype=np.int64), np.array(list(both.values()), dtype=np.int64)
        )

    def log_prob(self, x: ArrayLike) -> NDArray[np.float64]:
        """Log p of the target, or -inf where a state contradicts the evidence.

        Parameters
        ----------
        x : array_like of shape (..., n_sites) or leading axes and ``shape``
            States.

        Returns
        -------
        ndarray of float64 of the leading shape
        """
        states = self.check_states(x)
        agrees = (states[..., self.sites] == self.observed).all(axis=-1)
        result = np.full(agrees.shape, -np.inf)
        result[agrees] = self.target.log_prob(states[agrees])
        return result

    def log_ratios(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return log p(x') - log p(x) for every x' that differs from x in one variable.

        Parameters
        ----------
        x : array_like of shape (..., n_sites) or leading axes and ``shape``
            States.

        Returns
        -------
        ndarray of float64, shape (..., n_moves)
            -inf where an observed variable would change.
        """
        ratios = self._inner.log_ratios(x)
        ratios[..., self._observed_moves()] = -np.inf
        return ratios

    def first_order_ratios(self, x: ArrayLike) -> NDArray[np.float64]:
        """First-order log-ratios of the target, -inf where an observed variable would change.

        Parameters
        ----------
        x : array_like of shape (..., n_sites) or leading axes and ``shape``
            States.

        Returns
        -------
        ndarray of float64, shape (..., n_moves)
        """
        ratios = self.target.first_order_ratios(x)
        ratios[..., self._observed_moves()] = -np.inf
        return ratios

    def _torch_model(self, device: "Device", dtype: "DType") -> "Model":
        return self.target._torch_model(device, dtype)

    def _observed_moves(self) -> NDArray[np.bool_]:
        """Whether each move changes an observed variable."""
        observed = np.isin(np.arange(self.n_sites), self.sites)
        return np.repeat(observed, self.cardinalities - 1)

    @cached_property
    def _view(self) -> ConditionedView:
        inner: Any = self._inner.view()
        return ConditionedView(inner, self._observed_moves(), inner.touched_start, inner.touched)

    def view(self) -> ConditionedView:
        """Arrays for the compiled kernels."""
        return self._view

    @cached_property
    def _site_view(self) -> ConditionedView:
        inner: Any = self._inner.site_view()
        nothing = np.empty(0, np.uint64), np.empty(0, np.uint32)
        return ConditionedView(inner, self._observed_moves(), *nothing)

    def site_view(self) -> ConditionedView:
        """Arrays for rules that look at the moves of a few variables."""
        return self._site_view

    @property
    def graph(self) -> sp.csr_array | None:
        """Which variables depend on each other given the rest, as in the target."""
        return self.target.graph

    @property
    def layers(self) -> Any:
        """The machine of two layers, if the target is one; None otherwise."""
        return getattr(self.target, "layers", None)

"""The contract of a target, and a target some of whose variables are observed."""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from sklsb._kernels.chains import Chains
from sklsb._kernels.targets.conditioned import ConditionedView
from sklsb.targets._checks import as_array
from sklsb.targets._names import shown, site_called, sites_by_name, value_called

if TYPE_CHECKING:
    from sklsb.targets._torch.model import Device, DType, Model

States = NDArray[np.signedinteger[Any]]


def _are_among(x: NDArray[Any], values: tuple[int, ...]) -> NDArray[np.bool_]:
    """As ``np.isin(x, values)``, for values in order, and ten times as fast for few states."""
    first, last = values[0], values[-1]
    if len(values) < 3:
        return (x == first) | (x == last)
    if x.dtype.kind in "iu" and last - first + 1 == len(values):
        return (x >= first) & (x <= last)
    return np.isin(x, values)


def no_gradient(target: "Target") -> TypeError:
    """Return the error of first order on a target without it."""
    return TypeError(
        f"fast=True needs a target with a gradient, and {type(target).__name__} has none; "
        "Ising, Potts, RBM and TorchTarget of sklsb.targets have one. Use fast=False."
    )


class Target(ABC):
    """A distribution on a product of finite sets, known up to a constant.

    A subclass sets the attributes below in ``__init__`` and implements the abstract methods.
    ``doc/add_target.rst`` walks through an example.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array of sites; draws have these dimensions after chain and draw.
    dims : tuple of str
        Their names.
    values : tuple of int
        The values that sites take, in increasing order; a variable of fewer values takes the
        first ones.
    constant : float
        Part of log p that does not depend on the state. Samplers never look at it.
    rounding : float or ndarray of shape (n_moves,)
        Rounding error to expect of each log-ratio that is no part of its size, as where a sum of
        many terms cancels; 0 for a sum of a few. `sklsb.testing` allows it, and so do `fit` and
        `sample` where they compare log p; nothing else looks.
    state_names : tuple of tuple of str, or None
        Names of the values of each variable, if they have some; evidence may use them.
    ratio_cost : int
        What a log-ratio costs, about, where 1 is that of a target which keeps what it is made of.
        Learning looks at fewer neighbours where they cost more.
    symmetry : {"cycle", "reverse"} or None
        What leaves log p as it is if it is done to all variables at once. "cycle": each value
        becomes the next one, and the last the first. "reverse": the first becomes the last, the
        second the last but one, and so on. None if nothing is known. See `disagreement`.
    """

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    values: tuple[int, ...]
    constant: float = 0.0
    rounding: Any = 0.0
    state_names: tuple[tuple[str, ...], ...] | None = None
    ratio_cost: int = 1
    symmetry: Any = None
    _in_files = False  # whoever reads a file of a sampler gives the target
    # Whether log p may be another one from call to call, and nothing is known but its values.
    _may_change: bool = False
    # Whether log p is computed in single precision.
    _is_single: bool = False

    @property
    def n_sites(self) -> int:
        """Number of variables."""
        return int(math.prod(self.shape))

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        """Number of values of each variable, shape (n_sites,)."""
        return np.full(self.n_sites, len(self.values), dtype=np.int64)

    @property
    def dtype(self) -> np.dtype[np.signedinteger[Any]]:
        """Type of states: int8, or int16 where a value does not fit."""
        small = all(-129 < value < 128 for value in (self.values[:1] + self.values[-1:]))
        return np.dtype(np.int8 if small else np.int16)

    @property
    def n_possible(self) -> NDArray[np.int64]:
        """Number of values of each variable that are not known to be impossible, (n_sites,)."""
        return self.cardinalities

    @property
    def coords(self) -> dict[str, Any]:
        """Coordinate of each of ``dims``."""
        return {name: np.arange(size) for name, size in zip(self.dims, self.shape, strict=True)}

    @property
    def names(self) -> list[Any]:
        """What each variable is called: its coordinate, or a tuple of them; of length n_sites."""
        labels = [np.asarray(self.coords[dim]).tolist() for dim in self.dims]
        return labels[0] if len(labels) == 1 else list(itertools.product(*labels))

    @abstractmethod
    def log_prob(self, x: ArrayLike) -> NDArray[np.float64]:
        """Unnormalised log-probability of each state; vectorised over leading axes.

        Parameters
        ----------
        x : array_like of shape (..., n_sites) or leading axes and ``shape``
            States.

        Returns
        -------
        ndarray of float64 of the leading shape
        """

    @abstractmethod
    def log_ratios(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return log p(x') - log p(x) for every x' that differs from x in one variable.

        Parameters
        ----------
        x : array_like of shape (..., n_sites) or leading axes and ``shape``
            States.

        Returns
        -------
        ndarray of float64, shape (..., n_moves)
            n_moves is ``sum(cardinalities - 1)``: for two-valued variables, n_sites.
        """

    @abstractmethod
    def view(self) -> NamedTuple:
        """Arrays for the compiled kernels; see ``sklsb._kernels.contract``."""

    @property
    def graph(self) -> sp.csr_array | None:
        """Which variables depend on each other given the rest; None if all may.

        A boolean matrix of shape (n_sites, n_sites), symmetric, without the diagonal. Log p must be
        a sum of terms, finite or -inf, of which each is of variables that are all joined.
        """
        return None

    @property
    def log_factors(self) -> list[tuple[tuple[int, ...], NDArray[np.float64]]] | None:
        r"""What log p is a sum of: tables over a few variables each; None if it is not.

        .. math:: \log p(x) = \sum_f t_f(x_{S_f})

        A list of pairs of a scope, the sites S_f, and a table t_f with one axis per site, of as
        many entries as the site has values, finite or -inf. A constant has the scope ``()``.
        `sklsb.exact` and `EliminationSampler` compute with them.
        """
        return None

    @cached_property
    def _has_factors(self) -> bool:
        """Whether there are `log_factors`, which take time to be listed."""
        if type(self).log_factors is Target.log_factors:
            return False
        return self._trusts_factors or self.log_factors is not None

    @property
    def _trusts_factors(self) -> bool:
        """Whether `log_factors` are those of a class of sklsb, and so need no check."""
        owner = next(cls for cls in type(self).__mro__ if "log_factors" in vars(cls))
        return owner.__module__.startswith("sklsb.")

    @property
    def _joint_zeros(self) -> bool:
        """Whether a factor over several variables may have zeros."""
        return self._has_factors

    def site_view(self) -> NamedTuple:
        """Arrays for rules that look at the moves of a few variables.

        Returns
        -------
        NamedTuple
            Here what `view` returns; another one where that keeps all log-ratios up to date.
        """
        return self.view()

    def first_order_ratios(self, x: ArrayLike) -> NDArray[np.float64]:
        r"""First-order approximation of `log_ratios`, from the gradient at x.

        .. math:: (x^m - x) \cdot \nabla \log p(x)

        for every move m, where values of variables that have more than two are indicators.

        Parameters
        ----------
        x : array_like of shape (..., n_sites) or leading axes and ``shape``
            States.

        Returns
        -------
        ndarray of float64, shape (..., n_moves)

        Raises
        ------
        TypeError
            If the target has no gradient, as here.
        """
        raise no_gradient(self)

    def _torch_model(self, device: "Device", dtype: "DType") -> "Model":
        """Return log p with its gradient on torch; with it ``fast=True`` runs on this target.

        Parameters
        ----------
        device : torch.device
            Where the model should be.
        dtype : torch.dtype
            Type of first-order log-ratios, where these are not exact anyway.

        Returns
        -------
        sklsb.ensembles._torch.Model
            Its ``device`` is another one if this target can only be there.

        Raises
        ------
        TypeError
            If the target has no gradient, as here.
        """
        raise no_gradient(self)

    @property
    def observed_sites(self) -> NDArray[np.int64]:
        """Sites that evidence has fixed, increasing; none here."""
        return np.empty(0, dtype=np.int64)

    def draw_state(self, rng: np.random.Generator) -> States:
        """Draw a state of positive probability, uniformly if all are; shape (n_sites,)."""
        values = np.asarray(self.values, dtype=self.dtype)
        result: States = values[rng.integers(self.cardinalities)]
        return result

    def scattered_state(self, rng: np.random.Generator) -> States:
        """Draw a state from which a search for modes may begin; shape (n_sites,).

        Here what `draw_state` draws. A target that knows ways to parts of its space which
        uniform draws hardly ever lead to draws from these.
        """
        return self.draw_state(rng)

    def draw_state_given(
        self, rng: np.random.Generator, sites: NDArray[np.int64], observed: NDArray[np.int64]
    ) -> States:
        """Draw a state of positive probability in which some sites have the values observed.

        Raises
        ------
        ValueError
            If none is found.
        """
        x = self.draw_state(rng)
        x[sites] = observed
        if not np.isfinite(self.log_prob(x)):
            raise ValueError(
                "A random state that agrees with the evidence has probability zero. Give "
                "initial_states to fit."
            )
        return x

    def n_possible_given(
        self, sites: NDArray[np.int64], observed: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return `n_possible` where some sites have the values observed."""
        result = self.n_possible.copy()
        result[sites] = 1
        return result

    def condition(self, evidence: Mapping[Any, Any]) -> "Target":
        """Fix some of the variables, as by an observation.

        Parameters
        ----------
        evidence : mapping of variable to value
            A variable is named by its coordinate, on a grid by a tuple of indices; or by its
            index among all, where coordinates are not integers. A value is a number, or its name
            where a file gave names to values.

        Returns
        -------
        Target
            Of the same variables. Its log p is that of this target where the evidence holds, and
            -inf elsewhere: samplers never move the fixed variables.

        Raises
        ------
        ValueError
            If there is no such variable, it does not take this value, or is named twice.
        """
        return Conditioned(self, *self.check_evidence(evidence))

    def check_evidence(
        self, evidence: Mapping[Any, Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sites of evidence, increasing, and their values, or say what is wrong."""
        if not isinstance(evidence, Mapping):
            raise TypeError(f"evidence is {evidence!r:.200}; give a dict of variable: value.")
        by_name = sites_by_name(self)
        found: dict[int, int] = {}
        for variable, value in evidence.items():
            site = site_called(self, by_name, variable, "evidence names the variable")
            if site in found:
                raise ValueError(f"evidence names variable {variable!r} twice; keep one.")
            found[site] = value_called(self, site, value, f"evidence[{variable!r}]")
        fixed = np.array(sorted(found), dtype=np.int64)
        return fixed, np.array([found[site] for site in fixed.tolist()], dtype=np.int64)

    def label(self, site: int) -> Any:
        """Return what a site is called: its coordinate, or a tuple of them."""
        where = zip(self.dims, np.unravel_index(site, self.shape), strict=True)
        labels = [np.asarray(self.coords[dim])[i].item() for dim, i in where]
        return labels[0] if len(labels) == 1 else tuple(labels)

    def check_states(self, x: ArrayLike, name: str = "x") -> States:
        """Return states of shape (..., n_sites) and type ``dtype``, or say what is wrong."""
        given = as_array(x, name)
        leading = given.shape[: max(0, given.ndim - len(self.shape))]
        if given.ndim and given.shape[-1] == self.n_sites:
            states = given
        elif given.shape == (*leading, *self.shape):
            states = given.reshape(*leading, self.n_sites)
        else:
            allowed = f"(..., {self.n_sites})"
            if len(self.shape) > 1:
                allowed += f" or (..., {', '.join(map(str, self.shape))})"
            raise ValueError(f"{name} has shape {given.shape}; the target needs {allowed}.")
        if given.dtype.kind not in "iufb":
            raise TypeError(
                f"{name} has dtype {given.dtype}; give integers, one of {shown(self.values)}."
            )
        wrong = ~_are_among(states, self.values)
        k = self.cardinalities
        if (k < len(self.values)).any():
            wrong |= np.searchsorted(self.values, states) >= k
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            values = self.values[: int(k[where[-1]])]
            label = self.label(where[-1])
            which = f"variable {label!r}" if isinstance(label, str) else "this variable"
            if k.min() == k.max():
                which = "every variable of this target"
            raise ValueError(
                f"{name}[{', '.join(map(str, where))}] is {states[where]}; "
                f"{which} takes one of the values {shown(values)}."
            )
        return states.astype(self.dtype)

    def __getstate__(self) -> dict[str, Any]:
        # What is computed when it is first needed is computed anew.
        derived = {
            name
            for cls in type(self).__mro__
            for name, value in vars(cls).items()
            if isinstance(value, cached_property)
        }
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._freeze()

    def _freeze(self) -> None:  # noqa: B027
        """Make arrays read-only, also those of a copy, from which something was computed."""


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
        self.state_names = target.state_names
        self.sites.flags.writeable = self.observed.flags.writeable = False
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
    def _may_change(self) -> bool:  # type: ignore[override]
        return self.target._may_change

    @property
    def _is_single(self) -> bool:  # type: ignore[override]
        return self.target._is_single

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
                    f"{kept[site]} before. Keep one of the two."
                )
        kept |= dict(zip(sites.tolist(), observed.tolist(), strict=True))
        sites = np.array(sorted(kept), dtype=np.int64)
        observed = np.array([kept[i] for i in sites.tolist()], dtype=np.int64)
        return Conditioned(self.target, sites, observed)

    def draw_state(self, rng: np.random.Generator) -> States:
        """Draw the other variables as the target does, shape (n_sites,)."""
        return self.target.draw_state_given(rng, self.sites, self.observed)

    def scattered_state(self, rng: np.random.Generator) -> States:
        """Draw one as the target does, changed to the evidence where that is possible."""
        if type(self.target).scattered_state is Target.scattered_state:  # it has no way of its own
            return self.draw_state(rng)
        x = self.target.scattered_state(rng)
        x[self.sites] = self.observed
        return x if np.isfinite(self.target.log_prob(x)) else self.draw_state(rng)

    def draw_state_given(
        self, rng: np.random.Generator, sites: NDArray[np.int64], observed: NDArray[np.int64]
    ) -> States:
        """Draw a state that agrees with this evidence too."""
        both = dict(zip(self.sites.tolist(), self.observed.tolist(), strict=True))
        both |= dict(zip(sites.tolist(), observed.tolist(), strict=True))
        given = (np.array(list(part), dtype=np.int64) for part in (both, both.values()))
        return self.target.draw_state_given(rng, *given)

    def log_prob(self, x: ArrayLike) -> NDArray[np.float64]:
        """Log p of the target, or -inf where a state contradicts the evidence."""
        states = self.check_states(x)
        agrees = (states[..., self.sites] == self.observed).all(axis=-1)
        result = np.full(agrees.shape, -np.inf)
        result[agrees] = self.target.log_prob(states[agrees])
        return result

    def log_ratios(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return log p(x') - log p(x) for every x' that differs from x in one variable.

        -inf where an observed variable would change.
        """
        ratios = self._inner.log_ratios(x)
        ratios[..., self._observed_moves()] = -np.inf
        return ratios

    def first_order_ratios(self, x: ArrayLike) -> NDArray[np.float64]:
        """First-order log-ratios of the target, -inf where an observed variable would change."""
        ratios = self.target.first_order_ratios(x)
        ratios[..., self._observed_moves()] = -np.inf
        return ratios

    def _torch_model(self, device: "Device", dtype: "DType") -> "Model":
        return self.target._torch_model(device, dtype)

    def _observed_moves(self) -> NDArray[np.bool_]:
        """Whether each move changes an observed variable."""
        return np.repeat(np.isin(np.arange(self.n_sites), self.sites), self.cardinalities - 1)

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
    def log_factors(self) -> list[tuple[tuple[int, ...], NDArray[np.float64]]] | None:
        """Those of the target, and -inf where a variable is not as observed."""
        given = self.target.log_factors
        if given is None:
            return None
        found = list(given)
        k = self.cardinalities
        places = np.searchsorted(self.values, self.observed)
        for site, place in zip(self.sites.tolist(), places.tolist(), strict=True):
            found.append(((site,), np.where(np.arange(k[site]) == place, 0.0, -np.inf)))
        return found

    @cached_property
    def _has_factors(self) -> bool:
        return self.target._has_factors

    @property
    def _trusts_factors(self) -> bool:
        return self.target._trusts_factors

    @property
    def _joint_zeros(self) -> bool:
        return self.target._joint_zeros

    @property
    def layers(self) -> Any:
        """The machine of two layers, if the target is one; None otherwise."""
        return getattr(self.target, "layers", None)

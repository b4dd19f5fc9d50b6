"""The contract of a target, and a target some of whose variables are observed."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from sklsb._kernels.chains import Chains
from sklsb._kernels.targets.conditioned import ConditionedView
from sklsb._system.arrays import Array, Bools, Ints
from sklsb._system.warn import warn
from sklsb._words import Worded, worded
from sklsb.exceptions import ModelWarning
from sklsb.targets._checks import as_array
from sklsb.targets._evidence import (
    Weights,
    called_otherwise,
    is_soft,
    shown,
    site_of_each,
    states_in,
    value_called,
    value_name,
    weights_of,
)
from sklsb.targets._names import columns_of, coordinate, labels_of, turned
from sklsb.targets.offers import Offers, of_target

if TYPE_CHECKING:
    from sklsb.targets._torch.model import Device, DType, Model

States = NDArray[np.signedinteger[Any]]
NO_SITES = np.empty(0, np.int64)
_FEW_NAMES = 10  # in a notebook


def _are_among(x: NDArray[Any], values: tuple[int, ...]) -> Bools:
    """Faster ``np.isin(x, values)`` for sorted values."""
    first, last = values[0], values[-1]
    if len(values) < 3:
        return (x == first) | (x == last)
    if x.dtype.kind in "iu" and last - first + 1 == len(values):
        return (x >= first) & (x <= last)
    return np.isin(x, values)


def _as_arrays(evidence: Mapping[int, int]) -> tuple[Ints, Ints]:
    """Return sites, increasing, and their values."""
    fixed = sorted(evidence)
    return np.array(fixed, np.int64), np.array([evidence[i] for i in fixed], np.int64)


def no_gradient(target: Target) -> TypeError:
    """Return the error for a target without a gradient."""
    return TypeError(
        f"fast=True needs a target with a gradient, and {type(target).__name__} has none; "
        "Ising, Potts, RBM and TorchTarget of sklsb.targets have one. Use fast=False."
    )


# Changes of all variables at once that leave log p as it is.
SYMMETRIES = ("cycle", "reverse")


class Target(Worded, ABC):
    """A distribution on a product of finite sets, known up to a constant.

    A subclass sets the attributes below in ``__init__`` and implements the abstract methods.
    ``doc/add_target.rst`` walks through an example.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array of sites; draws have these dimensions after chain and draw.
    dims : tuple of str
        Names of these dimensions.
    values : tuple of int
        Values of the sites, increasing. A variable of fewer values takes the first ones.
    constant : float
        Part of log p that does not depend on the state; samplers ignore it.
    rounding : float or ndarray of shape (n_moves,)
        Absolute rounding error to expect of each log-ratio, beyond that relative to its size, as
        where many terms cancel. `sklsb.testing`, `fit` and `sample` tolerate it when they compare
        values of log p.
    state_names : tuple of tuple, or None
        Names of the values of each variable, which evidence may use.
    ratio_cost : int
        Approximate cost of a log-ratio, 1 where its parts are cached. If it is higher, learning
        uses fewer neighbours.
    symmetry : {"cycle", "reverse"} or None
        A change of all variables at once that leaves log p as it is, if one is known. "cycle":
        each value becomes the next one, and the last the first. "reverse": the first becomes the
        last, the second the last but one, and so on. See `disagreement`.
    """

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    values: tuple[int, ...]
    constant: float = 0.0
    rounding: Any = 0.0
    state_names: tuple[tuple[Any, ...], ...] | None = None
    ratio_cost: int = 1
    symmetry: Any = None
    layers: Any = None  # the machine of two layers, if the target is one
    _pairwise: Any = None  # the model of couplings between pairs, if the target is one
    _labels: list[Any] | None = None  # names of the variables, if they are not their coordinates
    _beta: float = 1.0  # log p = -beta times the energy of that model
    _vartype: str | None = None  # what dimod calls that model's variables, if not by their values
    _in_files = False  # files of samplers hold no target
    _may_change: bool = False  # whether log p may change between calls: it is the user's function
    _is_binary: bool = False  # whether 0 and 1 are the names of -1 and 1
    _is_single: bool = False  # whether log p is computed in single precision
    _children: tuple[int, ...] | None = None  # of each factor, the variable whose table it is
    _soft: frozenset[int] = frozenset()  # sites with soft evidence
    _unsure: frozenset[Any] = frozenset()  # variables whose values pandas may have ordered
    # What those who write targets need, and Tab need not show.
    _for_authors = (
        *("draw_state", "draw_state_given", "guard", "n_possible", "n_possible_given", "observing"),
        *("offers", "ratio_cost", "rounding", "scattered_state", "site_view", "view", "weighted"),
    )

    def __setattr__(self, name: str, value: Any) -> None:
        before: Any = vars(self).get(name)
        array = before.data if sp.issparse(before) else before
        if isinstance(array, np.ndarray) and not (name[0] == "_" or array.flags.writeable):
            raise AttributeError(f"{name} of a target cannot be set; make a new target.")
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in self._for_authors]

    def _look(self, again: bool = False) -> None:
        """Raise or warn if the user's function is no log-density, or no more if ``again``."""

    def guard(self, chains: Chains) -> AbstractContextManager[Callable[[BaseException], None]]:
        """Surround the work of the kernels, if they can fail: restore the chains, and raise.

        Yields a callable that, given an error, makes the kernels come to an end.
        """
        return nullcontext(lambda error: None)

    def observing(self, sites: Ints) -> Target:
        """Return a target that may save the work for moves of these sites."""
        return self

    def _is_single_given(self, sites: Ints, observed: Ints) -> bool:
        """Return `_is_single`, from states with these values only."""
        return self._is_single

    @property
    def _plain(self) -> Target:
        """The target without its evidence."""
        return self

    @property
    def offers(self) -> Offers:
        """What the target offers besides log p: factors, layers, a bound of its size, and more."""
        return Offers(self)

    @property
    def n_sites(self) -> int:
        """Number of variables."""
        return int(math.prod(self.shape))

    @property
    def cardinalities(self) -> Ints:
        """Number of values of each variable, shape (n_sites,)."""
        return np.full(self.n_sites, len(self.values), dtype=np.int64)

    @property
    def dtype(self) -> np.dtype[np.signedinteger[Any]]:
        """Type of states: int8, or int16 if a value needs it."""
        small = all(-129 < value < 128 for value in (self.values[:1] + self.values[-1:]))
        return np.dtype(np.int8 if small else np.int16)

    @property
    def n_possible(self) -> Ints:
        """Number of values of each variable not known to be impossible, shape (n_sites,)."""
        return self.cardinalities

    @property
    def coords(self) -> dict[str, Any]:
        """Coordinate of each of ``dims``."""
        if self._labels:
            return {self.dims[0]: coordinate(self._labels)}
        return {name: np.arange(size) for name, size in zip(self.dims, self.shape, strict=True)}

    @property
    def names(self) -> list[Any]:
        """Name of each variable: its label, coordinate, or a tuple of them; length n_sites."""
        if self._labels is not None:
            return list(self._labels)
        labels = [np.asarray(self.coords[dim]).tolist() for dim in self.dims]
        return labels[0] if len(labels) == 1 else list(itertools.product(*labels))

    @abstractmethod
    def log_prob(self, x: ArrayLike) -> Array:
        """Unnormalised log-probability of each state, -inf if impossible.

        Parameters
        ----------
        x : array_like of shape (..., n_sites) or leading axes and ``shape``
            States. On a grid the last axis may hold all sites, row by row, in the order of `names`;
            on a grid of one row, whose shapes look the same, it does. The columns of a data frame
            are variables by name, in any order, and its entries values by name, as in `condition`.
            Arrays hold values as draws do, positions if values have names; where these positions
            are the names of other values, arrays of another dtype than that of draws are told.

        Returns
        -------
        ndarray of float64 of the leading shape
        """

    @abstractmethod
    def log_ratios(self, x: ArrayLike) -> Array:
        """Return log p(x') - log p(x) for every x' that differs from x in one variable.

        Site by site, and for each its other values in increasing order. Undefined at impossible x.

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
        """Pairs of variables that depend on each other given the rest; None if all may.

        A symmetric boolean matrix of shape (n_sites, n_sites), False on the diagonal. Log p must
        be a sum of terms, finite or -inf, each over variables that are all connected.
        """
        return None

    @property
    def log_factors(self) -> list[tuple[tuple[int, ...], Array]] | None:
        r"""Terms of log p over a few variables each; None if there are none.

        .. math:: \log p(x) = \sum_f t_f(x_{S_f})

        Pairs of a scope, the sites S_f, and a table t_f, finite or -inf, whose axes are the values
        of these sites. A constant has the scope ``()``. `sklsb.exact` and `EliminationSampler`
        compute with them.
        """
        return None

    @cached_property
    def _has_factors(self) -> bool:
        """Whether there are `log_factors`, which may be slow to list."""
        if type(self).log_factors is Target.log_factors:
            return False
        return self._trusts_factors or self.log_factors is not None

    @property
    def _trusts_factors(self) -> bool:
        """Whether `log_factors` are implemented by sklsb, and so need no check."""
        owner = next(cls for cls in type(self).__mro__ if "log_factors" in vars(cls))
        return owner.__module__.startswith("sklsb.")

    @property
    def _joint_zeros(self) -> bool:
        """Whether a factor over several variables may have zeros."""
        return self._has_factors

    @property
    def _log_prob_size(self) -> float:
        """Upper bound of the sum of the absolute values of the terms of log p; 0 if unknown."""
        return 0.0

    def site_view(self) -> NamedTuple:
        """Arrays for rules that look at the moves of a few variables; by default `view`."""
        return self.view()

    def _class_view(self) -> Any:
        """Arrays for sweeps by classes of variables, if they are faster than with `site_view`."""
        return None

    def first_order_ratios(self, x: ArrayLike) -> Array:
        r"""First-order approximation of `log_ratios`, from the gradient at x.

        .. math:: (x^m - x) \cdot \nabla \log p(x)

        for every move m, where variables of more than two values are written as indicators.

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
            If the target has no gradient.
        """
        raise no_gradient(self)

    _linear = False  # whether first-order log-ratios are exact

    def _torch_model(self, device: Device, dtype: DType) -> Model:
        """Return log p with its gradient on torch, for ``fast=True``.

        ``dtype`` is the type of first-order log-ratios that are not exact. The model's ``device``
        is another one if the target is bound to it.
        """
        raise no_gradient(self)

    @property
    def observed_sites(self) -> Ints:
        """Sites fixed by evidence, increasing."""
        return NO_SITES

    def draw_state(self, rng: np.random.Generator) -> States:
        """Draw a state of positive probability, uniformly if all states are; shape (n_sites,)."""
        values = np.asarray(self.values, dtype=self.dtype)
        result: States = values[rng.integers(self.cardinalities)]
        return result

    def scattered_state(self, rng: np.random.Generator) -> States:
        """Draw a state from which a search for modes may begin; shape (n_sites,).

        By default `draw_state`. A target may draw from modes that uniform states rarely lead to.
        """
        return self.draw_state(rng)

    def draw_state_given(self, rng: np.random.Generator, sites: Ints, observed: Ints) -> States:
        """Draw a state of positive probability with the observed values at some sites.

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

    def n_possible_given(self, sites: Ints, observed: Ints) -> Ints:
        """Return `n_possible` given the observed values of some sites."""
        result = self.n_possible.copy()
        result[sites] = 1
        return result

    @worded
    def condition(self, evidence: Mapping[Any, Any]) -> Target:
        """Fix some of the variables, as by an observation.

        Parameters
        ----------
        evidence : mapping of variable to value, or to {value: likelihood}
            Variables and values are looked up among their names: ``names``, and ``state_names``
            where the values have names. "3", 3, ``np.int64(3)`` and 3.0 all mean what is called 3
            (or "3"), wherever it stands. True means what is called so, or else 1. Values without
            names are the numbers that states have, and variables without names are called by their
            index, on a grid by a tuple of indices. The index of a variable also counts if no
            variable is called by a number; the number of a value that has a name never does.

            A mapping (or Series) of all values of a variable to numbers is *soft* evidence (also
            called virtual or likelihood evidence): how likely each value makes what was observed.
            Then p is multiplied by the number of the value; the variable stays free.

        Returns
        -------
        Target
            The same variables, with log p = -inf where the evidence does not hold: samplers never
            move the fixed variables.

        Raises
        ------
        ValueError
            If a variable does not exist, is given twice, or does not take the value; the message
            lists the names of all its values. If likelihoods are negative, or not one for each
            value.
        TypeError
            If likelihoods are given to a target that has no place for them.
        """
        hard, soft = _hard_and_soft(self, evidence)
        if not soft:
            return Conditioned(self, *self.check_evidence(hard))
        target = self._softened(soft)
        return target.condition(hard) if hard else target

    def _softened(self, soft: Weights) -> Target:
        """Return the target with likelihoods of the values of some variables."""
        target = self.weighted(soft)
        target._soft = self._soft | soft.keys()
        return target

    @property
    def _likelihoods(self) -> str:
        n = len(self._soft)
        return f", likelihoods of {n} variable{'s' * (n != 1)}" if n else ""

    def weighted(self, weights: Weights) -> Target:
        """Return the target with log p plus the logarithm of a weight of each value of variables.

        ``weights`` has arrays of shape (cardinality,) by site, not all zero. For `condition`, which
        checks them; a class of your own may implement it.

        Raises
        ------
        TypeError
            If the target has no place for them.
        """
        raise TypeError(
            f"evidence has likelihoods, which {type(self).__name__} cannot take; MarkovNetwork, "
            "Ising, Potts and RBM can. Add their logarithms to your function instead."
        )

    def check_evidence(self, evidence: Mapping[Any, Any]) -> tuple[Ints, Ints]:
        """Return the sites of evidence, increasing, and their values."""
        found = {
            site: value_called(self, site, value, f"evidence[{variable!r}]")
            for site, (variable, value) in site_of_each(self, evidence).items()
        }
        return _as_arrays(found)

    def label(self, site: int) -> Any:
        """Return the name of a site, as in `names`."""
        if self._labels is not None:
            return self._labels[site]
        where = zip(self.dims, np.unravel_index(site, self.shape), strict=True)
        labels = [np.asarray(self.coords[dim])[i].item() for dim, i in where]
        return labels[0] if len(labels) == 1 else tuple(labels)

    def check_states(self, x: ArrayLike, name: str = "x") -> States:
        """Return states as an array of shape (..., n_sites) and type ``dtype``.

        Columns of a data frame are variables, by name if these have names, as are the labels of a
        Series, which is one state; entries that are names of values are looked up. Axes of an array
        of xarray, and their labels, may have any order.
        """
        row: Any = x
        if columns_of(row) is None and len(labels_of(row) or ()) == self.n_sites > 0:
            return self.check_states(row.to_frame().T.infer_objects(), name)[0]
        by_name = len(columns_of(row) or ()) == self.n_sites
        if columns_of(row) is not None:
            x = states_in(self, x, name, self._labels is not None, not self._is_binary)
        given = as_array(turned(x, self.coords), name)
        told = self._called_otherwise[given.dtype.kind == "b"]
        if told and not by_name and given.dtype != self.dtype:
            warn(
                f"{name} holds positions, so {told}. Give names in a data frame; {self.dtype}, the "
                "dtype of draws, says that positions are meant.",
                ModelWarning,
            )
        leading = given.shape[: max(0, given.ndim - len(self.shape))]
        if given.ndim and given.shape[-1] == self.n_sites:
            states = given
        elif given.shape == (*leading, *self.shape):
            states = given.reshape(*leading, self.n_sites)
        else:
            allowed = f"(..., {self.n_sites})"
            if len(self.shape) > 1:
                allowed += f" or (..., {', '.join(map(str, self.shape))})"
            indicators = given.shape[-2:-1] == (self.n_sites,)
            way = " Of indicators (one-hot), give x.argmax(-1)." if indicators else ""
            raise ValueError(f"{name} has shape {given.shape}; the target needs {allowed}.{way}")
        if given.dtype.kind not in "iufb":
            allowed = f"{'(0, 1) or ' if self._is_binary else ''}{shown(self.values)}"
            raise TypeError(f"{name} has dtype {given.dtype}; give integers, one of {allowed}.")
        n = len(self.values)
        are_square = given.shape[-2:] == (n, n) and n == self.n_sites > 2
        # Integers may list a few states.
        may_be = given.dtype != self.dtype and (given.ndim > 2 or given.dtype.kind == "f")
        if are_square and may_be and (np.sort(given) == np.eye(n)[-1]).all():
            warn(
                f"{name} looks like indicators (one-hot), but rows are read as states of zeros and "
                f"a one. Give x.argmax(-1); {self.dtype}, the dtype of draws, says that states are "
                "meant.",
                ModelWarning,
            )
        if self._is_binary and not (states == -1).any():
            states = np.where(states == 0, -1.0, states)
        wrong = ~_are_among(states, self.values)
        k = self.cardinalities
        if (k < len(self.values)).any():
            wrong |= np.searchsorted(self.values, states) >= k
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            values = self.values[: int(k[where[-1]])]
            label = self.label(where[-1])
            which = f"variable {label!r}" if isinstance(label, str) else "this variable"
            if k.min() == k.max() and not isinstance(label, str):
                which = "every variable of this target"
            said = f"{shown((0, 1))}, or {shown(values)}" if self._is_binary else shown(values)
            missing = "; drop or fill what is missing" if np.isnan(states[where]) else ""
            raise ValueError(
                f"{name}[{', '.join(map(str, where))}] is {given.reshape(states.shape)[where]}; "
                f"{which} takes one of the values {said}{missing}."
            )
        return states.astype(self.dtype)

    @cached_property
    def _called_otherwise(self) -> tuple[str, str]:
        """What numbers mean that are names of other values, and what flags do; or nothing."""
        return called_otherwise(self, int), called_otherwise(self, bool)

    def _flat(self, x: ArrayLike) -> tuple[NDArray[Any], tuple[int, ...]]:
        """Return states as (n_states, n_sites), and the leading shape."""
        states = self.check_states(x)
        leading = states.shape[:-1]
        return states.reshape(math.prod(leading), self.n_sites), leading

    def plot(
        self,
        marginals: Any = None,
        *,
        state: Any = None,
        layout: Any = None,
        min_strength: float = 0.0,
        max_strength: float | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw variables and couplings, coloured by ``marginals``: `sklsb.plot.graph` says how."""
        import sklsb

        how = {"min_strength": min_strength, "max_strength": max_strength, "ax": ax}
        return sklsb.plot.graph(self, marginals, state=state, layout=layout, **how)

    def _repr_html_(self) -> str:
        from sklsb._system.html import table

        longest: tuple[Any, ...] = max(self.state_names or (self.values,), key=len)
        values = ", ".join(map(str, longest))
        first = ", ".join(str(self.label(i)) for i in range(min(self.n_sites, _FEW_NAMES)))
        more = ", ..." if self.n_sites > _FEW_NAMES else ""
        rows = [
            (type(self).__name__, repr(self)),
            (f"{self.n_sites} variables", first + more),
            (f"{self.cardinalities.max(initial=0)} values at most", values),
        ]
        if isinstance(self, Conditioned):
            seen = [f"{name} = {value}" for name, value in self.evidence.items()]
            rows.append((f"{len(seen)} observed", ", ".join(seen)))
        return table(rows)

    def __getstate__(self) -> dict[str, Any]:
        cls, state = type(self), cast(dict[str, Any], object.__getstate__(self) or {})
        return {
            name: value
            for name, value in state.items()
            if not isinstance(getattr(cls, name, None), cached_property)
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._freeze()

    def _freeze(self) -> None:
        """Make read-only the arrays from which cached values were computed."""


def _hard_and_soft(target: Target, evidence: Any) -> tuple[dict[Any, Any], Weights]:
    """Return the values in evidence, and the likelihoods."""
    if not is_soft(evidence) or columns_of(evidence) is not None:
        return evidence, {}  # an error when values are looked up
    evidence = dict(evidence)
    soft = {v: given for v, given in evidence.items() if is_soft(given)}
    if soft:
        site_of_each(target, evidence)  # no variable twice
    return {v: evidence[v] for v in evidence if v not in soft}, weights_of(target, soft)


class Conditioned(Target):
    """A target with evidence: ``observed`` values at ``sites``; `Target.condition` makes it.

    Raises a ValueError if the target sees that no state with this evidence is possible.
    """

    def __init__(self, target: Target, sites: Ints, observed: Ints) -> None:
        self.target, self.sites, self.observed = target, sites, observed
        self.shape, self.dims, self.values = target.shape, target.dims, target.values
        self.constant = target.constant
        self.rounding, self.ratio_cost = target.rounding, target.ratio_cost
        self.state_names = target.state_names
        self.sites.flags.writeable = self.observed.flags.writeable = False
        self._n_possible = target.n_possible_given(sites, observed)
        # A target may skip the moves that evidence forbids. Made at once: threads share it.
        self._inner = target.observing(sites)

    def __repr__(self) -> str:
        n = self.sites.size
        return f"{self.target!r} with {n} variable{'s' * (n != 1)} observed"

    def __getattr__(self, name: str) -> Any:
        target = self.__dict__.get("target")
        if name.startswith("_") or not hasattr(type(target), name):
            return super().__getattr__(name)  # type: ignore[misc]
        said = f"a target with evidence has no {name!r}, but that without has"
        raise AttributeError(f"{said}; call it before condition(...)", name=name, obj=None)

    cardinalities = of_target("cardinalities")
    coords = of_target("coords")
    graph = of_target("graph")
    _plain = of_target("_plain")
    _labels = of_target("_labels")
    _beta = of_target("_beta")
    _vartype = of_target("_vartype")
    _is_binary = of_target("_is_binary")
    layers = of_target("layers")

    @cached_property
    def _is_single(self) -> bool:  # type: ignore[override]
        return self.target._is_single_given(self.sites, self.observed)

    @property
    def n_possible(self) -> Ints:
        return self._n_possible.copy()

    @property
    def observed_sites(self) -> Ints:
        return self.sites

    @property
    def evidence(self) -> dict[Any, Any]:
        """What was observed, by the names of variables and values."""
        found = zip(self.sites.tolist(), self.observed.tolist(), strict=True)
        return {self.label(site): value_name(self, site, value) for site, value in found}

    def guard(self, chains: Chains) -> AbstractContextManager[Callable[[BaseException], None]]:
        return self._inner.guard(chains)

    @worded
    def condition(self, evidence: Mapping[Any, Any]) -> Target:
        hard, soft = _hard_and_soft(self.target, evidence)
        target = self.target._softened(soft) if soft else self.target
        sites, observed = target.check_evidence(hard)
        kept = dict(zip(self.sites.tolist(), self.observed.tolist(), strict=True))
        for site, value in zip(sites.tolist(), observed.tolist(), strict=True):
            if kept.get(site, value) != value:
                raise ValueError(
                    f"evidence sets variable {self.label(site)!r} to "
                    f"{value_name(self, site, value)}; it was observed as "
                    f"{value_name(self, site, kept[site])} before. Keep one of the two."
                )
        return Conditioned(target, *self._with(sites, observed))

    def _with(self, sites: Ints, observed: Ints) -> tuple[Ints, Ints]:
        """Return this evidence with more, which prevails."""
        both = dict(zip(self.sites.tolist(), self.observed.tolist(), strict=True))
        return _as_arrays(both | dict(zip(sites.tolist(), observed.tolist(), strict=True)))

    def draw_state(self, rng: np.random.Generator) -> States:
        return self.target.draw_state_given(rng, self.sites, self.observed)

    def scattered_state(self, rng: np.random.Generator) -> States:
        if type(self.target).scattered_state is Target.scattered_state:
            return self.draw_state(rng)
        x = self.target.scattered_state(rng)
        x[self.sites] = self.observed
        return x if np.isfinite(self.target.log_prob(x)) else self.draw_state(rng)

    def draw_state_given(self, rng: np.random.Generator, sites: Ints, observed: Ints) -> States:
        return self.target.draw_state_given(rng, *self._with(sites, observed))

    def log_prob(self, x: ArrayLike) -> Array:
        states = self.check_states(x)
        agrees = (states[..., self.sites] == self.observed).all(axis=-1)
        result = np.full(agrees.shape, -np.inf)
        result[agrees] = self.target.log_prob(states[agrees])
        return result

    def log_ratios(self, x: ArrayLike) -> Array:
        ratios = self._inner.log_ratios(x)
        ratios[..., self._observed_moves()] = -np.inf
        return ratios

    def first_order_ratios(self, x: ArrayLike) -> Array:
        ratios = self.target.first_order_ratios(x)
        ratios[..., self._observed_moves()] = -np.inf
        return ratios

    def _observed_moves(self) -> Bools:
        """Whether each move changes an observed variable."""
        return np.isin(self.offers.site_of_moves, self.sites)

    @cached_property
    def _view(self) -> ConditionedView:
        inner: Any = self._inner.view()
        return ConditionedView(inner, self._observed_moves(), inner.touched_start, inner.touched)

    def view(self) -> ConditionedView:
        return self._view

    @cached_property
    def _site_view(self) -> ConditionedView:
        inner: Any = self._inner.site_view()
        nothing = np.empty(0, np.uint64), np.empty(0, np.uint32)
        return ConditionedView(inner, self._observed_moves(), *nothing)

    def site_view(self) -> ConditionedView:
        return self._site_view

    def _class_view(self) -> ConditionedView | None:
        inner = self._inner._class_view()
        return None if inner is None else self._site_view._replace(inner=inner)

    @property
    def log_factors(self) -> list[tuple[tuple[int, ...], Array]] | None:
        given = self.target.log_factors
        if given is None:
            return None
        places = np.searchsorted(self.values, self.observed)
        evidence = [
            ((site,), np.where(np.arange(self.cardinalities[site]) == place, 0.0, -np.inf))
            for site, place in zip(self.sites.tolist(), places.tolist(), strict=True)
        ]
        return [*given, *evidence]

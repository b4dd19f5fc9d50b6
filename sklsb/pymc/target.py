"""Models of PyMC whose free variables are all discrete."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb._kernels.targets.function import only_result
from sklsb.pymc.variables import NEEDS_PYMC, dims_and_labels, ends, kind, site_names
from sklsb.targets._checks import MOST_VALUES
from sklsb.targets.function import FunctionTarget


class _Variable(NamedTuple):
    """A free variable of a model: an array of sites."""

    name: str
    dims: tuple[str, ...]
    labels: list[list[Any]]  # of each dim
    lowest: NDArray[np.int64]
    highest: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.lowest.shape

    @property
    def names(self) -> list[str]:
        return site_names(self.name, self.labels)


class PyMCTarget(FunctionTarget):
    """The free variables of a model of PyMC; `from_pymc` makes it and documents it."""

    def __init__(self, log_p: Any, variables: Sequence[_Variable]) -> None:
        self._log_p = log_p  # the function of PyTensor, which can be pickled
        self._variables = tuple(variables)
        self._lowest = np.concatenate([v.lowest.ravel() for v in variables])
        highest = np.concatenate([v.highest.ravel() for v in variables])
        names = [name for v in variables for name in v.names]
        n_states = highest - self._lowest + 1
        super().__init__(self.function, len(names), n_states.tolist(), names=names)
        if self._lowest.any():
            ends = zip(self._lowest.tolist(), highest.tolist(), strict=True)
            self.state_names = tuple(tuple(map(str, range(a, b + 1))) for a, b in ends)

    @cached_property
    def function(self) -> Any:  # type: ignore[override]
        return only_result(self._log_p.vm.jit_fn)

    def to_dataset(self, draws: xr.Dataset) -> xr.Dataset:
        """Return draws with the variables, values, dims and coordinates of the model.

        Parameters
        ----------
        draws : xarray.Dataset
            What ``sample`` of any sampler returned for this target, or another Dataset of its
            states, ``x``, as from `sklsb.anneal`.

        Returns
        -------
        xarray.Dataset
            An int64 array for each free variable, of dims ``(chain, draw, *dims)``, for ArviZ and
            ``pymc.compute_deterministics``. Dims without names are called as by ArviZ:
            ``z_dim_0``.

        Raises
        ------
        ValueError
            If there are no states of this target.
        """
        x = draws.get("x")
        if x is None or x.dims[-1:] != self.dims or x.shape[-1] != self.n_sites:
            found = "no variable x" if x is None else f"x of {dict(x.sizes)}"
            raise ValueError(
                f"draws has {found}; give what sample returned for this target, x of chain, draw "
                f"and {dict(zip(self.dims, self.shape, strict=True))}."
            )
        values = x.values + self._lowest
        made = x.coords.to_dataset().drop_vars(self.dims, errors="ignore")
        ends = np.cumsum([v.lowest.size for v in self._variables])
        for v, part in zip(self._variables, np.split(values, ends[:-1], axis=-1), strict=True):
            made = made.assign_coords(dict(zip(v.dims, v.labels, strict=True)))
            made[v.name] = (*x.dims[:-1], *v.dims), part.reshape(*x.shape[:-1], *v.shape)
        return made


def from_pymc(model: Any, *, bounds: Mapping[str, Any] | None = None) -> PyMCTarget:
    r"""Convert a model of PyMC whose free variables are all discrete.

    .. math:: p(x) \propto \exp(\mathtt{model.logp}(l + x)), \qquad x_i \in \{0, \dots, h_i - l_i\}

    with :math:`l_i` and :math:`h_i` the lowest and highest value of an element of a free variable.
    So x counts from the lowest value: for ``DiscreteUniform("k", 3, 7)``, x is 0 where k is 3.
    Observed variables, potentials and deterministics are part of log p as in PyMC.

    Parameters
    ----------
    model : pymc.Model
        The model, with at least one free variable. Data are copied: after ``pymc.set_data`` convert
        it again.
    bounds : mapping of str to (int or array_like, int or array_like), optional
        Lowest and highest value of variables, by name, as in ``{"k": (0, 30)}``; arrays have a
        bound for each element. Needed where the model states none. Values outside are left out:
        draws are from the model given that all variables are within their bounds.

    Returns
    -------
    FunctionTarget
        Its sites are the elements of the free variables, in the order of the model, with names as
        in ArviZ: ``z``, ``z[a]``, ``z[0, 1]``. Evidence for `Target.condition`, and names of values
        if x is not the value itself, are in the values of the model.
        ``target.to_dataset(draws)`` returns draws as a Dataset with the variables, values, dims and
        coordinates of the model.

    Raises
    ------
    ImportError
        If PyMC is not installed.
    TypeError
        If this is no model of PyMC, or a free variable is continuous.
    ValueError
        If there is no free variable; if the values of one are not known and not in ``bounds``; if
        ``bounds`` names something else, is no pair of integers, or allows no value or more than
        32,768.

    See Also
    --------
    FunctionTarget : any function as log p, and what a transition costs.

    Notes
    -----
    Values are known for ``Bernoulli``, ``Categorical``, ``OrderedLogistic``, ``OrderedProbit``,
    ``DiscreteUniform``, ``Binomial``, ``BetaBinomial`` and ``HyperGeometric``, if the parameters
    they depend on are constants or data.

    PyTensor compiles log p by numba when the target is made, which takes seconds. Chains start at
    random states; if PyMC finds these impossible, at ``model.initial_point()``.

    Examples
    --------
    .. code-block:: python

        import arviz as az
        import pymc as pm
        from sklsb import LSBSampler, from_pymc

        with pm.Model(coords={"coin": ["a", "b", "c"]}) as model:
            fake = pm.Bernoulli("fake", 0.2, dims="coin")
            pm.Binomial("heads", 10, 0.5 + 0.4 * fake, observed=[9, 5, 7], dims="coin")
        target = from_pymc(model)
        target.names  # ['fake[a]', 'fake[b]', 'fake[c]']
        draws = LSBSampler(random_state=0).fit(target).sample(1000, thin="sweep")
        az.summary(target.to_dataset(draws))
    """
    try:
        import pymc as pm
        import pytensor.tensor as pt
        from pytensor.graph.replace import clone_replace
    except ImportError as error:
        raise ImportError(f"from_pymc {NEEDS_PYMC}") from error

    if not isinstance(model, pm.Model):
        raise TypeError(f"model is {model!r:.200}; give a pymc.Model.")
    _check(model, bounds)
    start = model.initial_point()
    variables, values, first = [], {}, 0
    flat = pt.lvector("x")
    for rv in model.free_RVs:
        value = model.rvs_to_values[rv]
        v = _variable(model, rv, np.shape(start[value.name]), (bounds or {}).get(rv.name))
        part = flat[first : first + v.lowest.size].reshape(v.shape) + v.lowest
        values[value] = value.type.filter_variable(part.astype(value.dtype))
        variables.append(v)
        first += v.lowest.size
    log_p = clone_replace([_frozen(model.logp())], values)[0].astype("float64")
    target = PyMCTarget(pm.compile([flat], log_p, mode="NUMBA"), variables)
    try:
        target.draw_state(np.random.default_rng(0))
    except ValueError:
        at = [np.ravel(start[value.name]) for value in values]
        target.initial_state = np.concatenate(at) - target._lowest
    return target


def _check(model: Any, bounds: Any) -> None:
    """Raise unless there are free variables, all of them discrete, and bounds are of these."""
    names = [rv.name for rv in model.free_RVs]
    if not names:
        raise ValueError("The model has no free variable; from_pymc needs at least one.")
    continuous = [rv.name for rv in model.free_RVs if np.dtype(rv.dtype).kind not in "iub"]
    if continuous:
        raise TypeError(
            f"The free variables {continuous} are continuous; from_pymc takes models whose free "
            "variables are all discrete. Integrate them out, fix their values, as by "
            f"pymc.observe(model, {{{continuous[0]!r}: value}}), or use pymc.sample."
        )
    if bounds is not None and not isinstance(bounds, Mapping):
        raise TypeError(f"bounds is {bounds!r:.200}; give a dict of name: (lowest, highest).")
    unknown = [name for name in bounds or {} if name not in names]
    if unknown:
        raise ValueError(f"bounds names {unknown[0]!r}; the free variables are {names}.")


def _frozen(variable: Any) -> Any:
    """Return a variable of PyTensor with the present data as constants."""
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.replace import clone_replace
    from pytensor.graph.traversal import graph_inputs
    from pytensor.tensor.random.type import RandomType

    data = {
        given: given.type.make_constant(given.get_value())
        for given in graph_inputs([variable])
        if isinstance(given, SharedVariable) and not isinstance(given.type, RandomType)
    }
    return clone_replace([variable], data)[0]


def _variable(model: Any, rv: Any, shape: tuple[int, ...], bounds: Any) -> _Variable:
    """Describe a free variable; bounds are those of the user, or None."""
    dims, labels = dims_and_labels(model, rv, shape)
    pair = _support(rv) if bounds is None else bounds
    try:
        low, high = (np.broadcast_to(end, shape) for end in pair)
        good = low.dtype.kind in "iu" and high.dtype.kind in "iu" and (low <= high).all()
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            f"bounds[{rv.name!r}] is {pair!r:.100}; give the lowest and the highest value, "
            f"integers or arrays of integers that fit the shape {shape}."
        )
    most = int((high.astype(np.int64) - low).max(initial=0)) + 1
    if most > MOST_VALUES:
        raise ValueError(
            f"{rv.name!r} has {most} values; a variable may have {MOST_VALUES}. "
            f'Give bounds={{"{rv.name}": (lowest, highest)}}.'
        )
    return _Variable(rv.name, dims, labels, low.astype(np.int64), high.astype(np.int64))


def _support(rv: Any) -> tuple[Any, Any]:
    """Return the lowest and highest values of a variable, if the model states them."""
    from pymc.exceptions import NotConstantValueError
    from pymc.pytensorf import constant_fold
    from pytensor.tensor import as_tensor

    name, given = kind(rv), ends(rv)
    if given is not None and None not in given:
        try:
            return constant_fold([_frozen(as_tensor(end).astype("int64")) for end in given])
        except NotConstantValueError:
            name += ", with parameters that depend on variables"
    name = "of pymc.dims" if name == "X" else name
    raise ValueError(
        f"{rv.name!r} is {name}; from_pymc does not know its lowest and highest values. Give "
        f'bounds={{"{rv.name}": (lowest, highest)}}: draws are then from the model given that '
        "it is within them."
    )

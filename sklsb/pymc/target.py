"""Models of PyMC whose free variables are all discrete."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sklsb._kernels.targets.function import only_result
from sklsb._system.arrays import Ints
from sklsb.pymc.variables import NEEDS_PYMC, dims_and_labels, ends, kind, site_names
from sklsb.targets._checks import MOST_VALUES
from sklsb.targets.function import FunctionTarget
from sklsb.targets.markov_network import MarkovNetwork

# Larger powers of e are no numbers. States at which tables are compared with the model.
_LARGEST_LOG, _N_COMPARED = 700.0, 8


class _Variable(NamedTuple):
    """A free variable of a model: an array of sites."""

    name: str
    dims: tuple[str, ...]
    labels: list[list[Any]]  # of each dim
    lowest: Ints
    highest: Ints

    @property
    def shape(self) -> tuple[int, ...]:
        return self.lowest.shape

    @property
    def names(self) -> list[str]:
        return site_names(self.name, self.labels)


class _OfModel:
    """What both kinds of targets have: the variables of the model."""

    _variables: tuple[_Variable, ...]
    dims: Any
    shape: Any
    n_sites: Any

    @property
    def _lowest(self) -> Ints:
        return np.concatenate([v.lowest.ravel() for v in self._variables])

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


class PyMCTarget(_OfModel, FunctionTarget):
    """The free variables of a model of PyMC; `from_pymc` makes it and documents it."""

    def __init__(self, log_p: Any, variables: Sequence[_Variable]) -> None:
        self._log_p = log_p  # the function of PyTensor, which can be pickled
        self._variables = tuple(variables)
        n_states, names, state_names = _values_and_names(variables)
        super().__init__(self.function, len(names), n_states, names=names, state_names=state_names)

    @cached_property
    def function(self) -> Any:  # type: ignore[override]
        return only_result(self._log_p.vm.jit_fn)


class PyMCNetwork(_OfModel, MarkovNetwork):
    """The same of a model whose log p is a sum of tables."""

    def __init__(self, factors: Any, variables: Sequence[_Variable]) -> None:
        self._variables = tuple(variables)
        n_states, names, state_names = _values_and_names(variables)
        super().__init__(n_states, factors, names, state_names)

    def __repr__(self) -> str:
        return super().__repr__().replace("MarkovNetwork", "PyMCNetwork", 1)


def _values_and_names(variables: Sequence[_Variable]) -> tuple[list[int], list[str], Any]:
    low = np.concatenate([v.lowest.ravel() for v in variables])
    high = np.concatenate([v.highest.ravel() for v in variables])
    values = tuple(tuple(map(str, range(a, b + 1))) for a, b in zip(low, high, strict=True))
    names = [name for v in variables for name in v.names]
    return (high - low + 1).tolist(), names, values if low.any() else None


def from_pymc(model: Any, *, bounds: Mapping[str, Any] | None = None) -> Any:
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
    Target
        A `MarkovNetwork` where log p is a sum of tables over few sites, else a `FunctionTarget`.
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
    sklsb.pymc.DiscreteStep : for models that have continuous variables, too.

    Notes
    -----
    Values are known for ``Bernoulli``, ``Categorical``, ``OrderedLogistic``, ``OrderedProbit``,
    ``DiscreteUniform``, ``Binomial``, ``BetaBinomial``, ``HyperGeometric``, and ``Truncated``
    counts, if the parameters they depend on are constants or data.

    Which elements of the terms of log p see which sites is read off the graph of PyTensor. Where
    each sees few, or is a polynomial of degree 2 as in a linear regression with known
    coefficients, log p is taken apart into tables, and compared with the model at a few states.
    Samplers then are as fast as on any `MarkovNetwork`, and all exact answers are at hand.

    Else log p is evaluated as a whole. Chains start at random states; if PyMC finds these
    impossible, at ``model.initial_point()``.

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

        from sklsb.pymc.graph import frozen
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
    log_p = clone_replace(frozen([model.logp()]), values)[0].astype("float64")
    factors = _factors(model, variables, start, [flat], log_p)
    if factors is not None:
        return PyMCNetwork(factors, variables)
    target = PyMCTarget(pm.compile([flat], log_p, mode="NUMBA"), variables)
    try:
        target.draw_state(np.random.default_rng(0))
    except ValueError:
        at = [np.ravel(start[value.name]) for value in values]
        x = np.concatenate(at) - target._lowest  # out of bounds it stays so in a small dtype
        target.initial_state = np.clip(x, -1, target.cardinalities).astype(target.dtype)
    return target


def _factors(model: Any, variables: Any, start: Any, inputs: Any, log_p: Any) -> Any:
    """Return log p as factors of a network, or None if it is no sum of tables that are not large.

    It is compared with log p as PyMC computes it at a few states.
    """
    import pymc as pm
    from pytensor.compile.mode import Mode

    from sklsb.pymc.block import Block
    from sklsb.pymc.tables import whole

    block = Block(model, model.free_RVs, start)
    block.low = np.concatenate([v.lowest.ravel() for v in variables])
    block.high = np.concatenate([v.highest.ravel() for v in variables])
    tables = whole(block, block.given(start))
    if not tables:
        return None
    f = pm.compile(inputs, log_p, mode=Mode(linker="py", optimizer="fast_compile"))
    rng, n = np.random.default_rng(0), block.high - block.low + 1
    states = [np.zeros_like(n), *(rng.integers(0, n) for _ in range(_N_COMPARED))]
    sums = [sum(float(t[tuple(x[list(s)])]) for s, t in tables) for x in states]
    with np.errstate(all="ignore"):
        wanted = [float(f(x)) for x in states]
    constants = [w - s for w, s in zip(wanted, sums, strict=True) if np.isfinite(w)]
    if not constants or np.isfinite(sums).tolist() != np.isfinite(wanted).tolist():
        return None
    share = constants[0] / len(tables)
    logs = np.concatenate([t[t > -np.inf] + share for _, t in tables])
    if np.ptp(constants) > 1e-8 * (1 + abs(constants[0])) or np.abs(logs).max() > _LARGEST_LOG:
        return None
    return [(s, np.exp(t + share)) for s, t in tables]


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


def _variable(model: Any, rv: Any, shape: tuple[int, ...], bounds: Any) -> _Variable:
    """Describe a free variable; ``bounds`` are given by the user, or None."""
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

    from sklsb.pymc.graph import frozen

    name, given = kind(rv), ends(rv)
    if given is not None and None not in given:
        try:
            return constant_fold(frozen([as_tensor(end).astype("int64") for end in given]))
        except NotConstantValueError:
            name += ", with parameters that depend on variables"
    name = "of pymc.dims" if name == "X" else name
    raise ValueError(
        f"{rv.name!r} is {name}; from_pymc does not know its lowest and highest values. Give "
        f'bounds={{"{rv.name}": (lowest, highest)}}: draws are then from the model given that '
        "it is within them."
    )

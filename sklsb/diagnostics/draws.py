"""Draws as labelled arrays: xarray.Dataset, ArviZ InferenceData and DataTree."""

import ast
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb._system.arrays import Array, Ints
from sklsb._system.warn import warn
from sklsb.exceptions import SamplerWarning
from sklsb.targets._checks import positive
from sklsb.targets._names import are_numbers, coordinate
from sklsb.targets.base import States, Target

if TYPE_CHECKING:
    import pandas as pd

# Statistics that are coordinates of the draws, not variables.
OF_DRAWS = ("lp", "visit")
# Attributes: what values of draws are `called`, and the variables of a joint distribution.
CALLED, JOINT = "values", "joint"
_NUMBERS = {int, float, bool}
# Draws whose log p is computed again, to see whether a target is theirs.
_MOST_COMPARED = 16


def _coords(n_chains: int, n_draws: int, first_draw: int) -> dict[str, Any]:
    return {"chain": np.arange(n_chains), "draw": np.arange(first_draw, first_draw + n_draws)}


def value_labels(values: tuple[int, ...], names: Sequence[tuple[Any, ...]] | None) -> NDArray[Any]:
    """Return what values are called, as a coordinate: by names if variables share them.

    Variables without names have the numbers of their values. Where names differ, no number and no
    name means the same for all variables, and the labels are neither.
    """
    longest: tuple[Any, ...] = max(names or [()], key=len)
    if not names or longest == tuple(map(str, values)):
        return np.asarray(values)
    if all(own == longest[: len(own)] for own in names):
        return coordinate(longest)
    return np.asarray([f"value {value}" for value in values])


def value_coords(target: Target) -> dict[str, Any]:
    """Return coordinates of the dimension ``state``, and the names of values if any."""
    names, sizes = target.state_names, target.cardinalities
    coords: dict[str, Any] = {"state": value_labels(target.values, names)}
    if (sizes < len(target.values)).any():
        coords["n_values"] = (target.dims, sizes.reshape(target.shape))
    if names is not None:
        padded = [[*map(str, own)] + [""] * (len(target.values) - len(own)) for own in names]
        words = np.array(padded, dtype=str).reshape(*target.shape, len(target.values))
        # Text alone does not say whose names are numbers, flags or tuples.
        read = [str(target.label(i)) for i, own in enumerate(names) if all(map(_is_literal, own))]
        attrs = {"literals": read} if read else {}
        coords["state_name"] = ((*target.dims, "state"), words, attrs)
    return coords


def _is_literal(name: Any) -> bool:
    """Whether the text of a name that is none itself says which it is."""
    try:
        return not isinstance(name, str) and repr(ast.literal_eval(str(name))) == repr(name)
    except (SyntaxError, ValueError):
        return False


def called(target: Target) -> str:
    """Return "numbers" or "text" if values are called by others than states hold, or nothing."""
    named: Any = target.state_names or []
    own = [target.values[: len(names)] for names in named]
    if all(names in (mine, (*map(str, mine),)) for names, mine in zip(named, own, strict=True)):
        return ""
    return "numbers" if {type(name) for own in named for name in own} <= _NUMBERS else "text"


def attrs_of(target: Target) -> dict[str, Any]:
    """Return what the attributes of draws say of the target."""
    return {"target": repr(target)} | ({CALLED: called(target)} if called(target) else {})


def marginals_dataset(target: Target, p: Array, mcse: Array) -> xr.Dataset:
    """Label marginals and their errors, both of shape (n_sites, n_values)."""
    dims, shape = (*target.dims, "state"), (*target.shape, len(target.values))
    found = {"p": (dims, p.reshape(shape)), "mcse": (dims, mcse.reshape(shape))}
    return xr.Dataset(found, coords=target.coords | value_coords(target))


def draws_dataset(
    states: States,
    target: Target,
    attrs: dict[str, Any] | None = None,
    first_draw: int = 0,
    of_draws: dict[str, Any] | None = None,
) -> xr.Dataset:
    """Label states of shape (n_chains, n_draws, n_sites) as the variable ``x``.

    ``of_draws`` are more coordinates, by chain and draw.
    """
    n_chains, n_draws = states.shape[:2]
    return xr.Dataset(
        {"x": (("chain", "draw", *target.dims), states.reshape(n_chains, n_draws, *target.shape))},
        coords=_coords(n_chains, n_draws, first_draw) | target.coords | (of_draws or {}),
        attrs=attrs,
    )


def stats_dataset(stats: dict[str, NDArray[Any]], first_draw: int = 0) -> xr.Dataset:
    """Label statistics of shape (n_chains, n_draws, ...), with generated names of further dims."""
    variables, coords = {}, dict[str, Any]()
    for name, values in stats.items():
        n_chains, n_draws, *sizes = values.shape
        extra = [f"{name}_dim_{k}" for k in range(len(sizes))]
        variables[name] = (("chain", "draw", *extra), values)
        coords |= dict(zip(extra, map(np.arange, sizes), strict=True))
        coords |= _coords(n_chains, n_draws, first_draw)
    return xr.Dataset(variables, coords=coords)


def to_datatree(groups: dict[str, xr.Dataset], attrs: dict[str, Any]) -> xr.DataTree:
    """Put groups named by the ArviZ schema into one DataTree."""
    tree = xr.DataTree.from_dict(groups)
    tree.attrs.update(attrs)
    return tree


def to_inference_data(groups: dict[str, xr.Dataset], attrs: dict[str, Any]) -> Any:
    """Put groups into ArviZ's container: InferenceData before ArviZ 1.0, DataTree since."""
    import arviz

    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(**groups, attrs=attrs, warn_on_custom_groups=False)
    return to_datatree(groups, attrs)


def to_dimod(draws: xr.Dataset, target: Target, beta: float | None = None) -> Any:
    r"""Return draws or best states as a SampleSet of dimod, with energies -log p / beta.

    Parameters
    ----------
    draws : xarray.Dataset
        What ``sample`` of any sampler returned, or `sklsb.anneal`, `sklsb.exact.most_likely`,
        `sklsb.exact.sample` or `sklsb.diagnostics.best_state`.
    target : Target
        What was sampled or maximised.
    beta : float, optional
        As in the method ``to_dimod`` of samplers.

    Returns
    -------
    dimod.SampleSet
        As from the method ``to_dimod`` of samplers.

    Raises
    ------
    ValueError
        If there are no states of this target, or beta is not positive.

    Examples
    --------
    >>> from sklsb import Ising, exact
    >>> from sklsb.dimod import to_dimod
    >>> target = Ising.from_qubo([[-3, 4], [0, -2]], beta=2.0)
    >>> found = to_dimod(exact.most_likely(target), target)
    >>> float(found.first.energy), found.vartype.name
    (-3.0, 'BINARY')
    """
    try:
        import dimod
    except ImportError as error:
        raise ImportError("to_dimod needs dimod; run `pip install dimod`.") from error

    beta = target._beta if beta is None else positive(beta, "beta")
    if "x" not in draws:
        raise ValueError(
            f"There are no states among {list(draws)}; call sample without record before to_dimod."
        )
    draws = as_draws(draws)
    x = flat_states(draws, target)
    vartypes: dict[tuple[int, ...], str] = {(-1, 1): "SPIN", (0, 1): "BINARY"}
    vartype = target._vartype or vartypes.get(target.values, "INTEGER")
    if vartype == "BINARY" and target.values == (-1, 1):
        x = (x > 0).astype(x.dtype)
    # The labels of Ising.to_bqm.
    plain = target.names if len(target.shape) == 1 else list(range(target.n_sites))
    n_chains, n_draws = draws["x"].shape[:2]
    return dimod.SampleSet.from_samples(
        (x, target._labels or plain),
        vartype,
        np.broadcast_to(-draws["lp"].values.ravel() / beta, len(x)),
        chain=np.repeat(draws["chain"].values, n_draws),
        draw=np.tile(draws["draw"].values, n_chains),
    )


def as_draws(found: xr.Dataset) -> xr.Dataset:
    """Return states with chains and draws: best states have no draws, and the best no chain."""
    new = [dim for dim in ("chain", "draw") if dim not in found.dims]
    of_one = [
        name for name in OF_DRAWS if name in found.coords and found[name].dims[:1] == ("draw",)
    ]
    found = found.reset_coords(of_one).expand_dims(new).set_coords(of_one)
    return found.transpose("chain", "draw", *{"beta"} & {*found.dims}, ...)


def evenly(n_all: int, n: int) -> Ints:
    """Return the places of n of n_all draws, at about equal distances; all if there are fewer."""
    return np.linspace(0, n_all - 1, min(n, n_all)).round().astype(np.int64)


def named_columns(x: States, target: Target, sites: Sequence[int] | None = None) -> dict[Any, Any]:
    """Return states of shape (n, n_sites) as columns by variable, with the names of values.

    Names that are numbers make a column of numbers, others are categories.
    """
    import pandas as pd

    columns, places = {}, np.searchsorted(target.values, x)
    for k, i in enumerate(range(target.n_sites) if sites is None else sites):
        own: Any = None if target.state_names is None else target.state_names[i]
        if own is None:
            columns[target.label(i)] = x[:, k]
        elif are_numbers(own):
            columns[target.label(i)] = np.asarray(own)[places[:, k]]
        else:
            columns[target.label(i)] = pd.Categorical.from_codes(places[:, k], own)
    return columns


def to_frame(draws: Any, target: Target | None = None) -> "pd.DataFrame":
    """Return draws as a table: a row for each draw, a column for each variable.

    Marginals become a table with a row for each value that a variable has, a joint distribution one
    with a row for each combination of values.

    Parameters
    ----------
    draws : xarray.Dataset
        As returned by ``sample``, `sklsb.anneal`, `sklsb.exact.most_likely` or `best_state`; or by
        `marginals`, `sklsb.exact.marginals` (also of variables jointly) or ``plan.marginals`` of
        `sklsb.exact.prepare`.
    target : Target
        What was sampled or maximised; optional for marginals, whose names are then those of the
        coordinates.

    Returns
    -------
    pandas.DataFrame
        The columns chain and draw, and one for each variable, called as in ``target.names``, on a
        grid (row, col). If the values have names (``target.state_names``), the column holds them:
        numbers as they are, as 0 and 1 after `Ising.from_binary`, others as categories. Otherwise
        it holds the numbers that the target uses: -1 and 1 for an `Ising`, also from a QUBO
        problem. For marginals the columns are variable, value, p and mcse; for a joint
        distribution p, mcse and before them one for each variable, called like its dimension.

    Raises
    ------
    ValueError
        If draws are not states of this target, or a variable is called like one of the other
        columns.
    TypeError
        If the target is missing, and draws are not marginals.

    See Also
    --------
    sklsb.draw : draws a table at once.

    Examples
    --------
    >>> from sklsb import MarkovNetwork, exact
    >>> from sklsb.diagnostics import to_frame
    >>> rain = MarkovNetwork([2, 2], [((0, 1), [[8, 1], [1, 4]])], names=["rain", "wet"])
    >>> to_frame(exact.sample(rain, 3, random_state=0), rain).columns.tolist()
    ['chain', 'draw', 'rain', 'wet']
    >>> to_frame(exact.marginals(rain))
      variable  value         p  mcse
    0     rain      0  0.642857   0.0
    1     rain      1  0.357143   0.0
    2      wet      0  0.642857   0.0
    3      wet      1  0.357143   0.0
    >>> to_frame(exact.marginals(rain, ["rain", "wet"])).head(2)
       rain  wet         p  mcse
    0     0    0  0.571429   0.0
    1     0    1  0.071429   0.0
    """
    check_order(draws, target)
    if hasattr(draws, "to_frame"):  # marginals by a plan
        found: pd.DataFrame = draws.to_frame()
        strangers = {*found["variable"]}.difference(
            found["variable"] if target is None else target.names
        )
        if strangers:
            raise ValueError(
                f"draws has the variable {min(strangers, key=str)!r}, which target has not; leave "
                "target out: marginals by a plan have their names."
            )
        return found
    if JOINT in getattr(draws, "attrs", {}) and draws["p"].dims:
        dims = [*draws["p"].dims]
        own = {dim: draws.get(f"{dim}_name", draws[dim]) for dim in dims}
        names = {dim: labels.values for dim, labels in own.items() if labels.dims == (dim,)}
        p = draws[["p", "mcse"]].reset_coords(drop=True).assign_coords(names)
        return p.to_dataframe(dim_order=dims).reset_index()
    if "x" not in draws and {"p", "mcse"} <= {*draws} and "state" in draws.dims:
        return _marginals_frame(draws, target)
    if {"p", "mcse"} <= {*draws}:
        raise ValueError('marginals need all their dimensions; select lists, as state=["yes"].')
    if target is None:
        raise TypeError(
            f"draws has {sorted(map(str, draws.variables))}, which are not marginals, and target "
            "is missing; give to_frame(draws, target)."
        )
    draws = as_draws(draws)
    states = flat_states(draws, target)
    n_chains, n_draws = draws["x"].shape[:2]
    columns = {
        "chain": np.repeat(draws["chain"].values, n_draws),
        "draw": np.tile(draws["draw"].values, n_chains),
    }
    named = named_columns(states, target)
    taken = [name for name in columns if name in named]
    if taken:
        raise ValueError(
            f"the target has a variable called {taken[0]!r}, as another column of the table. "
            "Rename the variable."
        )
    return frame(columns | named, len(states))


def _marginals_frame(found: xr.Dataset, target: Target | None) -> "pd.DataFrame":
    """Return a row for each value of each variable, under their names."""
    p, mcse = (found[name].transpose(..., "state") for name in ("p", "mcse"))
    shape = -1, p.shape[-1]
    dims = [found[dim].values.tolist() for dim in p.dims[:-1]]
    names = dims[0] if len(dims) == 1 else [*itertools.product(*dims)]
    labels = found.get("state_name", found["state"])
    called: Any = np.broadcast_to(labels.values, p.shape).reshape(shape).tolist()
    read = {*np.atleast_1d(labels.attrs.get("literals", [])).tolist()}
    if target is not None:
        check_same_names(found, target, "marginals")
        names, called, read = target.names, target.state_names or called, set()
    n_values = found.get("n_values", xr.full_like(p[..., 0], p.shape[-1])).values.ravel()
    values = [own[:k] for own, k in zip(called, n_values.astype(int).tolist(), strict=True)]
    values = [
        [*map(ast.literal_eval, own)] if str(name) in read else own
        for name, own in zip(names, values, strict=True)
    ]
    return value_rows(names, values, p.values.reshape(shape), mcse.values.reshape(shape))


def value_rows(
    names: Sequence[Any], values: Sequence[Sequence[Any]], p: Any, mcse: Any
) -> "pd.DataFrame":
    """Return a row for each of the values of each variable, from arrays that may have more."""
    has = np.arange(p.shape[1]) < np.array([len(own) for own in values])[:, np.newaxis]
    columns = {
        "variable": [name for name, own in zip(names, values, strict=True) for _ in own],
        "value": [value for own in values for value in own],
        "p": p[has],
        "mcse": mcse[has],
    }
    return frame(columns, len(columns["value"]))


def frame(columns: dict[Any, Any], n: int) -> "pd.DataFrame":
    """Return a data frame of n rows whose columns keep these names, also tuples."""
    import pandas as pd

    names = pd.Index(list(columns), tupleize_cols=False, dtype=object)
    result = pd.DataFrame(dict(enumerate(columns.values())), pd.RangeIndex(n))
    return result.set_axis(names, axis=1)


def flat_states(draws: xr.Dataset, target: Target) -> States:
    """Return the states, (n_chains * n_draws, n_sites), or raise a ValueError."""
    x = states_of(draws, target)
    flat: States = x.reshape(x.shape[0] * x.shape[1], x.shape[2])
    return flat


def check_order(draws: Any, target: Any = None) -> None:
    """Refuse a target where draws belong, and the other way round."""
    if isinstance(draws, Target) or (target is not None and not isinstance(target, Target)):
        found = ", ".join(type(one).__name__ for one in (draws, target) if one is not None)
        raise TypeError(
            f"the arguments are of the types {found}; give draws, what sample returned, and then "
            "the target, as in marginals(draws, target)."
        )


def states_of(draws: xr.Dataset, target: Target) -> States:
    """Return the states, (n_chains, n_draws, n_sites), or raise a ValueError."""
    check_order(draws, target)
    x = draws.get("x") if isinstance(draws, xr.Dataset) else None
    if x is None or x.dims != ("chain", "draw", *target.dims) or x.shape[2:] != target.shape:
        found = "no variable x" if x is None else f"x of {dict(x.sizes)}"
        raise ValueError(
            f"draws has {found}; give what sample returned for this target, x of chain, draw and "
            f"{dict(zip(target.dims, target.shape, strict=True))}."
        )
    check_same_names(draws, target, "draws")
    flat = x.values.reshape(*x.shape[:2], target.n_sites)
    states = target.check_states(flat, "draws['x']")
    if "lp" in draws and draws["lp"].dims == x.dims[:2]:
        _compare(states, draws["lp"].values, target)
    return states


def _compare(states: States, log_prob: Array, target: Target) -> None:
    """Warn of draws whose log p is another by this target, as after evidence."""
    at = evenly(states.shape[1], -(-_MOST_COMPARED // max(1, len(states))))
    then = log_prob[:, at].ravel()
    x = states[:, at].reshape(then.size, target.n_sites)
    now = target.log_prob(x)
    for k in np.flatnonzero(~np.isclose(now, then, rtol=1e-4, atol=1e-3))[:1]:
        warn(
            f"The draws are not of this target: log p of the state {x[k].tolist()!r:.200} was "
            f"{then[k]:.6g}, and is {now[k]:.6g} here. Give the target that was sampled, or "
            "sample this one. Evidence makes another target, as does an edit of a function or its "
            "data after fit.",
            SamplerWarning,
        )


def check_same_names(found: xr.Dataset, target: Target, what: str) -> None:
    """Refuse draws or marginals of variables, or values, of other names or in another order.

    Without names, which are numbers by position then, they fit all but the same in another order.
    """
    own = xr.Dataset(coords=target.coords | value_coords(target))
    for name in {*target.dims, "state_name"} & {*own.coords} & {*found.coords}:
        ours, theirs = (part[name].values.astype(str) for part in (own, found))
        places = np.arange(len(ours)).astype(str)
        pairs = (ours, theirs), (ours, places), (theirs, places)
        same = np.array_equal(ours, theirs)
        moved = not same and np.array_equal(np.sort(ours, axis=None), np.sort(theirs, axis=None))
        if moved or not any(np.array_equal(one, other) for one, other in pairs):
            raise ValueError(
                f"{what} and target have other names, or in another order: {name} is "
                f"{theirs.tolist()!r:.200} and {ours.tolist()!r:.200}; give what is of this target."
            )

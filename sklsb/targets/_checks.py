"""Checks of the arguments of targets, and of the memory they take."""

import math
import numbers
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklsb._system.arrays import Array, Bools, Ints
from sklsb._system.memory import check_fits
from sklsb._system.warn import warn
from sklsb.exceptions import ModelWarning
from sklsb.targets._names import Names, plain

MOST_VALUES = 1 << 15  # states are int16 at most


def not_a_target(given: Any, name: str = "target") -> TypeError:
    """Return the error for what is no target, with what makes one of it."""
    called = f"an array of shape {given.shape}" if isinstance(given, np.ndarray) else repr(given)
    return TypeError(f"{name} is {called:.200}, not a sklsb Target; {_way_to_target(given)}")


def has(given: Any, *names: str) -> bool:
    """Whether an object of another package has attributes: none of these need be imported."""
    return all(hasattr(given, name) for name in names)


def is_pgmpy(model: Any) -> bool:
    """Whether an object is a model of pgmpy."""
    return has(model, "get_cpds") or has(model, "get_factors")


def _way_to_target(given: Any) -> str:
    """Return advice by the attributes of an object."""
    if isinstance(given, type):
        return "did you mean an instance of it?"
    if has(given, "fit", "sample"):
        return "a fitted sampler has its target as sampler.target_."
    if has(given, "dims", "coords", "data_vars"):
        return "draws come first only in sklsb.diagnostics, as in marginals(draws, target)."
    if has(given, "linear", "quadratic", "vartype"):
        return "a binary quadratic model becomes one by sklsb.Ising.from_bqm(bqm, beta)."
    if has(given, "num_cases", "get_quadratic"):
        return "sklsb.dimod.SklsbSampler().sample_dqm draws from a discrete quadratic model."
    if is_pgmpy(given):
        return "a model of pgmpy becomes one by sklsb.MarkovNetwork.from_pgmpy(model)."
    if has(given, "free_RVs", "rvs_to_values"):
        return "a model of PyMC becomes one by sklsb.from_pymc(model)."
    if has(given, "iloc", "columns"):
        return (
            "a table holds data, not a distribution. To select columns, fit "
            "sklsb.SpikeSlabRegressor to (X, y), or build sklsb.VariableSelection(X, y)."
        )
    if has(given, "nodes", "edges", "adj"):
        return "a graph becomes one by sklsb.Ising(graph) or sklsb.Potts(graph, field)."
    if has(given, "forward", "parameters"):
        return "a module of torch becomes one by sklsb.TorchTarget(module, n_sites)."
    if callable(given):
        return "a function log_prob(x) becomes one by sklsb.FunctionTarget(log_prob, n_sites)."
    if isinstance(given, str | os.PathLike):
        return "a model in a file is read by sklsb.io.read_model(path)."
    if isinstance(given, np.ndarray | list | tuple):
        return (
            "samplers need a distribution. Couplings become one by sklsb.Ising(couplings, field); "
            "to select columns of data there is sklsb.SpikeSlabRegressor."
        )
    return "build one, for example sklsb.targets.Ising(couplings, field)."


def refuse_mask(value: Any, name: str) -> None:
    """Raise if an argument is a masked array."""
    if isinstance(value, np.ma.MaskedArray):
        n_masked = int(np.ma.count_masked(value))
        way = "leave their rows out, or fill them with values that mean something"
        raise TypeError(
            f"{name} is a masked array with {n_masked} of {value.size} entries masked; "
            f"{way if n_masked else f'give {name}.data'}."
        )


def as_array(value: ArrayLike, name: str) -> NDArray[Any]:
    """Return a value as an array."""
    refuse_mask(value, name)
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} is not an array of numbers: {error}") from error


def real_array(value: ArrayLike, name: str) -> NDArray[Any]:
    """Return a value as an array of real numbers."""
    given = as_array(value, name)
    if given.dtype.kind not in "iufb":
        raise TypeError(
            f"{name} has dtype {given.dtype}; give real numbers, as by {name}.astype(float)."
        )
    return given


def finite_array(value: ArrayLike | None, name: str, shape: tuple[int, ...]) -> Array:
    """Return finite numbers of this shape: zeros for None, a single number everywhere."""
    if value is None:
        return np.zeros(shape)
    given = real_array(value, name)
    if given.ndim and given.shape != shape:
        raise ValueError(
            f"{name} has shape {given.shape}; it must be a number or of shape {shape}."
        )
    values = np.array(np.broadcast_to(given, shape), dtype=np.float64)
    refuse(~np.isfinite(values), values, name, "it must be finite")
    return values


def refuse(bad: Bools, values: Array, name: str, rule: str) -> None:
    """Raise if any entry is bad, naming the first."""
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name}[{', '.join(map(str, where))}] is {values[where]}; {rule}.")


def refuse_other_rows(X: Any, **others: Any) -> None:
    """Refuse labels of rows that X has in another order."""
    for name, value in others.items():
        if not (has(X, "iloc") and has(value, "iloc")) or X.index.equals(value.index):
            continue
        if Counter(X.index) == Counter(value.index):
            row = next(i for i, label in enumerate(X.index) if label != value.index[i])
            raise ValueError(
                f"X and {name} have the same labels of rows in another order: row {row} is "
                f"{X.index[row]!r} in X and {value.index[row]!r} in {name}. Rows are read by "
                f"position; give {name}.loc[X.index], or {name}.to_numpy() if the positions are "
                "right."
            )


def warn_if_classes(y: NDArray[Any]) -> None:
    """Warn if the measurements of a regression have two values only."""
    if not ((y != y.min()) & (y != y.max())).any():
        warn(
            f"y has two values only, {y.min():g} and {y.max():g}. The model is a linear regression "
            "with Gaussian noise: it takes them for measurements, and gives the posterior of that. "
            "If they are classes, take SpikeSlabClassifier.",
            ModelWarning,
        )


def whole(value: Any, name: str, smallest: int) -> int:
    """Return an integer, or say that one of at least ``smallest`` is needed."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        how = ""
        if isinstance(value, float) and value.is_integer():
            how = f": write {value:.0f}"
        raise TypeError(f"{name} is {value!r:.100}; give an integer of at least {smallest}{how}.")
    return int(value)


def integer(value: Any, name: str, smallest: int, largest: int) -> int:
    """Return an integer, if it is one in this range."""
    if not smallest <= whole(value, name, smallest) <= largest:
        raise ValueError(f"{name} is {value}; it must be from {smallest} to {largest}.")
    return int(value)


def check_sizes(given: Any, name: str, n_sites: int | None = None) -> Ints:
    """Return the number of values of each variable, from a list or one number for all."""
    sizes = list(given) if np.ndim(given) else [given] * (1 if n_sites is None else n_sites)
    if n_sites is not None and len(sizes) != n_sites:
        raise ValueError(
            f"{name} has {len(sizes)} entries for {n_sites} variables; give one number, or one for "
            "each variable."
        )
    called = (f"{name}[{i}]" if np.ndim(given) else name for i in range(len(sizes)))
    checked = [integer(k, what, 1, MOST_VALUES) for k, what in zip(sizes, called, strict=True)]
    return np.array(checked, np.int64)


def positive(value: Any, name: str, largest: float = np.inf) -> float:
    """Return a number, if it is finite and positive."""
    if not (isinstance(value, numbers.Real) and 0.0 < float(value) < np.inf):
        raise ValueError(f"{name} is {value!r}; it must be a positive number.")
    if float(value) > largest:
        raise ValueError(f"{name} is {value!r}; it must be at most {largest:g}.")
    return float(value)


def n_threads(n_jobs: Any) -> int:
    """Return the number of threads that ``n_jobs`` means; refuse what is none."""
    if n_jobs is not None and (not isinstance(n_jobs, numbers.Integral) or n_jobs == 0):
        raise ValueError(f"n_jobs is {n_jobs!r}; give a number of threads, -1 or None.")
    return int(joblib.effective_n_jobs(n_jobs))


def beta_parameters(size_prior: Any) -> tuple[float, float]:
    """Return a and b of the beta-binomial prior of a number of columns."""
    if not isinstance(size_prior, tuple | list) or len(size_prior) != 2:
        raise ValueError(f"size_prior is {size_prior!r}; give two positive numbers, a and b.")
    a, b = (positive(value, f"size_prior[{i}]") for i, value in enumerate(size_prior))
    return a, b


def check_names(names: Iterable[Any] | None, n_sites: int) -> list[Any] | None:
    """Return the names of all variables as a list."""
    if names is None:
        return None
    if isinstance(names, str):
        raise TypeError(f"names is {names!r:.80}; give a list, with a name for each variable.")
    given = plain(names)
    _check_distinct(given, n_sites, "names", "one name for each variable")
    return given


def check_state_names(
    state_names: Any, labels: Sequence[Any], cardinalities: Ints
) -> tuple[tuple[Any, ...], ...] | None:
    """Return the names of the values of all variables, or None."""
    if state_names is None:
        return None
    if isinstance(state_names, Mapping):
        by_name, of_each = Names(labels), [tuple(range(k)) for k in cardinalities.tolist()]
        for variable, names in state_names.items():
            site = by_name.find(variable)
            if site is None:
                raise ValueError(
                    f"state_names names the variable {variable!r}; the names are {labels!r:.200}."
                )
            of_each[site] = tuple(plain(names))
    else:
        given = plain([state_names] if isinstance(state_names, str) else state_names)
        single = [isinstance(names, str) or not isinstance(names, Iterable) for names in given]
        if any(single) and not all(single):
            raise ValueError(
                f"state_names is {given!r:.200}, names beside lists of names; give one list of "
                "names for all variables, or one for each."
            )
        if any(single):
            given = [given] * cardinalities.size  # all have the same
        of_each = [tuple(plain(names)) for names in given]
    if len(of_each) != cardinalities.size:
        raise ValueError(
            f"state_names has {len(of_each)} entries; give one list for each of the "
            f"{cardinalities.size} variables, a dict of variable: list, or one list for all."
        )
    for label, names, k in zip(labels, of_each, cardinalities.tolist(), strict=True):
        _check_distinct(names, k, f"state_names of {label!r}", "one name for each value")
    return tuple(of_each)


def _check_distinct(names: Sequence[Any], n: int, what: str, needed: str) -> None:
    if not all(isinstance(name, Hashable) for name in names):
        raise TypeError(f"{what} is {names!r:.80}; give names that are hashable.")
    if len(names) != n or len(set(names)) < n:
        raise ValueError(
            f"{what} has {len(names)} entries, {len(set(names))} of them distinct; give {needed}, "
            f"{n} in all."
        )


def check_shape(
    shape: Sequence[int] | None, dims: Sequence[str] | None, n_sites: int
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the shape of the array of sites and the names of its axes."""
    given = (n_sites,) if shape is None else tuple(np.atleast_1d(shape).tolist())
    if not all(isinstance(size, numbers.Integral) for size in given):
        raise TypeError(f"shape is {shape!r}; give integers.")
    if math.prod(given) != n_sites or not given or min(given) < 0:
        raise ValueError(f"shape is {shape!r}; its product must be n_sites, {n_sites}.")
    if dims is None and len(given) > 2:
        raise ValueError(f"shape is {shape!r}; give dims, a name for each of its axes.")
    found = (("site",), ("row", "col"))[len(given) - 1] if dims is None else dims
    if isinstance(found, str) or not all(isinstance(name, str) for name in found):
        raise TypeError(f"dims is {dims!r}; give a tuple of strings.")
    taken = {"chain", "draw", "state", "x", "lp"} & set(found)
    if len(found) != len(given) or len(set(found)) < len(found) or taken:
        raise ValueError(
            f"dims is {dims!r}; give a name for each axis of the shape {given}, all different, and "
            "none of chain, draw, state, x and lp."
        )
    return tuple(int(size) for size in given), tuple(found)


def _check_touched(n_bytes: int) -> None:
    check_fits(
        n_bytes,
        "The list of the moves that each move touches",
        "It grows with the square of the number of values of variables that depend on each other: "
        "give them fewer.",
    )


def touched_near(near: Any, n_moves: Ints) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """List the moves that each move touches: the moves of the sites ``near`` its own."""
    _check_touched(4 * int(n_moves @ (near @ n_moves)))
    site = np.repeat(np.arange(n_moves.size), n_moves)
    touched = near[site][:, site]
    return touched.indptr.astype(np.uint64), touched.indices.astype(np.uint32)


def all_touched(n_moves: int) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """List the moves that each move touches if each touches all; offsets and moves."""
    _check_touched(4 * n_moves**2)
    start = np.arange(n_moves + 1, dtype=np.uint64) * np.uint64(n_moves)
    return start, np.tile(np.arange(n_moves, dtype=np.uint32), n_moves)

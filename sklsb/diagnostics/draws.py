"""Draws as labelled arrays: xarray.Dataset, ArviZ InferenceData and DataTree."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb.targets._checks import positive
from sklsb.targets.base import States, Target

# Statistics that are coordinates of the draws, not variables.
OF_DRAWS = ("lp", "visit", "log_weight")


def _coords(n_chains: int, n_draws: int, first_draw: int) -> dict[str, Any]:
    return {"chain": np.arange(n_chains), "draw": np.arange(first_draw, first_draw + n_draws)}


def value_coords(target: Target) -> dict[str, Any]:
    """Return coordinates of the dimension ``state``: the values, and their names if any."""
    coords: dict[str, Any] = {"state": np.asarray(target.values)}
    if target.state_names is not None:
        names = np.full((target.n_sites, len(target.values)), "", dtype=object)
        for row, own in zip(names, target.state_names, strict=True):
            row[: len(own)] = own
        names = names.astype(str).reshape(*target.shape, -1)
        coords["state_name"] = ((*target.dims, "state"), names)
    return coords


def draws_dataset(
    states: States, target: Target, attrs: dict[str, Any] | None = None, first_draw: int = 0
) -> xr.Dataset:
    """Label states of shape (n_chains, n_draws, n_sites) as the variable ``x``."""
    n_chains, n_draws = states.shape[:2]
    return xr.Dataset(
        {"x": (("chain", "draw", *target.dims), states.reshape(n_chains, n_draws, *target.shape))},
        coords=_coords(n_chains, n_draws, first_draw) | target.coords,
        attrs=attrs,
    )


def stats_dataset(
    stats: dict[str, NDArray[Any]], attrs: dict[str, Any] | None = None, first_draw: int = 0
) -> xr.Dataset:
    """Label statistics of shape (n_chains, n_draws, ...), with generated names of further dims."""
    variables, coords = {}, {}
    for name, values in stats.items():
        extra = [f"{name}_dim_{k}" for k in range(values.ndim - 2)]
        variables[name] = (("chain", "draw", *extra), values)
        coords.update(
            {dim: np.arange(size) for dim, size in zip(extra, values.shape[2:], strict=True)}
        )
        coords.update(_coords(values.shape[0], values.shape[1], first_draw))
    return xr.Dataset(variables, coords=coords, attrs=attrs)


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


def to_dimod(draws: xr.Dataset, target: Target, beta: float = 1.0) -> Any:
    """Put draws into a SampleSet of dimod; see `BaseSampler.to_dimod`."""
    try:
        import dimod
    except ImportError as error:
        raise ImportError("to_dimod needs dimod; run `pip install dimod`.") from error

    beta = positive(beta, "beta")
    if "x" not in draws:
        raise ValueError(
            f"There are no states among {list(draws)}; call sample without record before to_dimod."
        )
    vartypes: dict[tuple[int, ...], str] = {(-1, 1): "SPIN", (0, 1): "BINARY"}
    vartype = vartypes.get(target.values, "INTEGER")
    # The labels of Ising.to_bqm.
    plain = target.names if len(target.shape) == 1 else list(range(target.n_sites))
    labels = getattr(target, "_labels", None) or plain
    n_chains, n_draws = draws["x"].shape[:2]
    return dimod.SampleSet.from_samples(
        (draws["x"].values.reshape(n_chains * n_draws, target.n_sites), labels),
        vartype,
        -draws["lp"].values.ravel() / beta,
        chain=np.repeat(draws["chain"].values, n_draws),
        draw=np.tile(draws["draw"].values, n_chains),
        **({"log_weight": draws["log_weight"].values.ravel()} if "log_weight" in draws else {}),
    )


def states_of(draws: xr.Dataset, target: Target) -> States:
    """Return the states, (n_chains, n_draws, n_sites), or raise a ValueError."""
    x = draws.get("x")
    if x is None or x.dims != ("chain", "draw", *target.dims) or x.shape[2:] != target.shape:
        found = "no variable x" if x is None else f"x of {dict(x.sizes)}"
        raise ValueError(
            f"draws has {found}; give what sample returned for this target, x of chain, draw and "
            f"{dict(zip(target.dims, target.shape, strict=True))}."
        )
    return x.values.reshape(*x.shape[:2], target.n_sites)

"""Draws as labelled arrays: xarray.Dataset, ArviZ InferenceData and DataTree."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from sklsb.targets.base import States, Target

__all__ = ["draws_dataset", "stats_dataset", "to_datatree", "to_inference_data"]


def _coords(n_chains: int, n_draws: int, first_draw: int = 0) -> dict[str, Any]:
    return {"chain": np.arange(n_chains), "draw": np.arange(first_draw, first_draw + n_draws)}


def draws_dataset(
    states: States, target: Target, attrs: dict[str, Any] | None = None
) -> xr.Dataset:
    """Label states of shape (n_chains, n_draws, n_sites) as the variable ``x``."""
    n_chains, n_draws = states.shape[:2]
    return xr.Dataset(
        {"x": (("chain", "draw", *target.dims), states.reshape(n_chains, n_draws, *target.shape))},
        coords=_coords(n_chains, n_draws) | target.coords,
        attrs=attrs,
    )


def stats_dataset(
    stats: dict[str, NDArray[Any]], attrs: dict[str, Any] | None = None
) -> xr.Dataset:
    """Label statistics of shape (n_chains, n_draws, ...); further dimensions get plain names."""
    variables, coords = {}, {}
    for name, values in stats.items():
        extra = [f"{name}_dim_{k}" for k in range(values.ndim - 2)]
        variables[name] = (("chain", "draw", *extra), values)
        coords.update(
            {dim: np.arange(size) for dim, size in zip(extra, values.shape[2:], strict=True)}
        )
        coords.update(_coords(*values.shape[:2]))
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def to_datatree(groups: dict[str, xr.Dataset], attrs: dict[str, Any]) -> xr.DataTree:
    """Put groups named as in the ArviZ schema into one DataTree."""
    tree = xr.DataTree.from_dict(groups)
    tree.attrs.update(attrs)
    return tree


def to_inference_data(groups: dict[str, xr.Dataset], attrs: dict[str, Any]) -> Any:
    """Put groups into ArviZ's container: InferenceData before ArviZ 1.0, DataTree since."""
    import arviz

    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(**groups, attrs=attrs, warn_on_custom_groups=False)
    return to_datatree(groups, attrs)

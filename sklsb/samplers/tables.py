"""Draws of a model as a table of named values, in one call."""

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sklsb import exact
from sklsb._system.warn import warn
from sklsb._words import worded
from sklsb.diagnostics.draws import evenly, flat_states, frame, named_columns
from sklsb.exact.elimination.answers import is_affordable, observing
from sklsb.exceptions import SamplerWarning
from sklsb.io import read_model
from sklsb.samplers.auto import AutoSampler
from sklsb.targets import MarkovNetwork
from sklsb.targets._checks import integer, is_pgmpy, not_a_target
from sklsb.targets.base import States, Target

if TYPE_CHECKING:
    import pandas as pd

# Draws of each chain, so that chains can be compared.
_FEWEST = 256


@worded
def draw(
    model: Any,
    n: int,
    evidence: Mapping[Any, Any] | None = None,
    *,
    random_state: Any = None,
    max_memory: float | None = None,
) -> "pd.DataFrame":
    """Draw states of a model, given evidence, as a table of named values.

    Draws are independent and exact, by variable elimination, where that is affordable: also where
    the evidence is so rare that simulating the network and keeping the states that agree would take
    for ever. Otherwise they come from the chains of an `AutoSampler`, and a warning says so.

    Parameters
    ----------
    model : Target, path-like or model of pgmpy
        What to draw from. A file may have any format that `sklsb.io.read_model` knows, such as BIF
        and UAI; for a model of pgmpy see `MarkovNetwork.from_pgmpy`.
    n : int
        Number of draws.
    evidence : mapping of variable to value, optional
        What was observed, as for `Target.condition`:
        ``{"asia": "yes"}``.
    random_state : int, SeedSequence, Generator, RandomState or None, default=None
        Seed. The same int gives the same draws.
    max_memory : float, optional
        Largest number of bytes that exact draws may take; by default as in `sklsb.exact.sample`.

    Returns
    -------
    pandas.DataFrame
        n rows, or fewer after a Ctrl-C, with a column for each variable, observed ones included;
        values as in `sklsb.diagnostics.to_frame`. ``attrs["independent"]`` is True if rows are
        independent exact draws.

    Raises
    ------
    TypeError
        If the model is none of these.
    ValueError
        If n is less than 1, the evidence names a variable or value that does not exist, or it is
        impossible.

    Warns
    -----
    SamplerWarning
        If rows come from chains. It says how well these agree, what the rows are worth, and what
        elimination would take.

    See Also
    --------
    sklsb.exact.marginals : probabilities without draws.

    Examples
    --------
    >>> from sklsb import MarkovNetwork, draw
    >>> network = MarkovNetwork(
    ...     [2, 2],
    ...     [(["rain"], [0.8, 0.2]), (["rain", "wet"], [[0.9, 0.1], [0.2, 0.8]])],
    ...     names=["rain", "wet"],
    ... )
    >>> table = draw(network, 1000, {"wet": 1}, random_state=0)
    >>> table.shape, table["wet"].unique().tolist()
    ((1000, 2), [1])
    """
    n = integer(n, "n", 1, np.iinfo(np.int64).max)
    target = _target(model, evidence)
    independent = is_affordable(target, "sample", max_memory)
    if independent:
        options = {"random_state": random_state, "max_memory": max_memory}
        x = flat_states(exact.sample(target, n, **options), target)
    else:
        x = _chains(target, n, random_state, max_memory)
    table = frame(named_columns(x, target), len(x))
    table.attrs["independent"] = independent
    return table


def _target(model: Any, evidence: Mapping[Any, Any] | None) -> Target:
    if isinstance(model, str | os.PathLike):
        model = read_model(model)
    elif not isinstance(model, Target):
        if not is_pgmpy(model):
            raise not_a_target(model, "model")
        model = MarkovNetwork.from_pgmpy(model)
    return observing(model, evidence)


def draw_from_chains(target: Target, n: int, random_state: Any) -> tuple[States, Any]:
    """Return n states from an AutoSampler's chains, or fewer after a Ctrl-C, and the sampler."""
    sampler = AutoSampler(random_state=random_state).fit(target)
    x = flat_states(sampler.sample(max(-(-n // sampler.n_chains), _FEWEST), thin="auto"), target)
    return x[evenly(len(x), n)], sampler


def _chains(target: Target, n: int, random_state: Any, max_memory: float | None) -> States:
    x, sampler = draw_from_chains(target, n, random_state)
    try:
        cost = exact.elimination_cost(target, "sample", max_memory=max_memory)
        why = (
            f"elimination would take 2**{cost.log2_work:.0f} table entries and max_memory="
            f"2**{math.ceil(cost.log2_memory)}"
        )
    except (TypeError, ValueError, MemoryError) as error:
        why = str(error).partition(". ")[0]
    worth = ""
    found = sampler.run_.disagreement
    if found is not None and target.n_sites:
        worth = (
            f"R-hat of the variables is at most {float(found['r_hat'].max()):.3f}; for the slowest "
            f"one, {sampler.sample_stats_['lp'].size} draws are worth "
            f"{float(found['ess'].min()):.0f} independent ones. "
        )
    warn(
        f"{worth}The rows come from chains and depend on each other: {why.rstrip('.')}. "
        "sklsb.AutoSampler, fitted to the target, says more.",
        SamplerWarning,
    )
    return x

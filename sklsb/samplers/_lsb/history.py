"""What happened in `LSBSampler.fit`, as data sets."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from sklsb._system.arrays import Array
from sklsb._system.html import Candidates
from sklsb.balancing.learning import PLACES, Block, Trace
from sklsb.targets.base import Target
from sklsb.trials.race import Outcome


def burn_in_history(
    blocks: Sequence[Block], target: Target, n_chains: int, n_skipped: int
) -> xr.Dataset:
    """Return the history of the burn-in; updates that were skipped are counted in its attrs."""
    none = np.zeros(n_chains)
    rows = blocks or [Block(0, none, none, np.empty(0), PLACES)]
    columns = (np.array(column)[: len(blocks)] for column in zip(*rows, strict=True))
    of = dict(zip(Block._fields, columns, strict=True))
    by_chain = ("iteration", "chain")
    return xr.Dataset(
        {
            "lp": (by_chain, of["lp"] + target.constant),
            "acceptance_rate": (by_chain, of["acceptance_rate"]),
            "objective": ("iteration", of["objective"]),
            "gradient_norm": ("iteration", of["gradient_norm"]),
            "theta": (("iteration", "parameter"), of["theta"]),
            "even_part": (("iteration", "u"), of["even_part"]),
        },
        coords={
            "iteration": of["iteration"],
            "chain": np.arange(n_chains),
            "parameter": np.arange(of["theta"].shape[1]),
            "u": PLACES,
        },
        attrs={"skipped_updates": n_skipped},
    )


def mixing_history(traces: Mapping[str, Trace]) -> xr.Dataset:
    """Return the history of learning functions for sampling, by function."""
    rows = traces.values()
    n = max(row.objective.size for row in rows)

    def padded(parts: list[Array]) -> Array:
        whole = np.full((len(parts), n, *np.max([x.shape[1:] for x in parts], axis=0)), np.nan)
        for row, part in zip(whole, parts, strict=True):
            row[tuple(map(slice, part.shape))] = part
        return whole

    by_step = ("candidate", "evaluation")
    return xr.Dataset(
        {
            "mixing_objective": (by_step, padded([row.objective for row in rows])),
            "mixing_gradient_norm": (by_step, padded([row.gradient_norm for row in rows])),
            "mixing_theta": ((*by_step, "mixing_parameter"), padded([row.theta for row in rows])),
            "mixing_even_part": ((*by_step, "u"), padded([row.even_part for row in rows])),
        },
        coords={"candidate": list(traces), "evaluation": np.arange(n), "u": PLACES},
    )


def candidates_table(outcome: Outcome) -> xr.Dataset:
    """Return what the pilot measured, by candidate."""
    other = ("names", "doubt")
    return Candidates(
        {k: ("candidate", value) for k, value in outcome._asdict().items() if k not in other},
        coords={"candidate": outcome.names},
        attrs={"chosen": outcome.best},
    )

"""Log p of all values of sites that no element of log p sees together, and the sum over them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.model.core import ValueGradFunction
from pytensor.gradient import disconnected_grad

from sklsb.pymc.block import Block, Ints, Point
from sklsb.pymc.graph import with_known_places


def by_value(block: Block, own: Ints, n: int, states: Ints) -> tuple[list[Any], Any]:
    """Return graphs: log p of each of n sites at each state, and of all that sees none of them.

    Which of the sites each output sees, or n for none, is `own`.
    """
    rows, none, ends = list[Any](), pt.zeros(()), np.cumsum([np.prod(s) for s in block.shapes])
    for x in states:
        row, none = pt.zeros(n), pt.zeros(())
        parts = np.split(own, ends[:-1].astype(int))
        for term, part, shape in zip(block.terms_at(x), parts, block.shapes, strict=True):
            of, term = part.reshape(shape), term.astype("float64")
            while of.size and of.ndim and (of == of[..., :1]).all():
                of, term = of[..., 0], term.sum(axis=-1)
            of, flat = of.ravel(), term.ravel()
            at = np.flatnonzero(of < n)
            if at.size < of.size:
                none += flat[np.flatnonzero(of == n)].sum()
            if np.array_equal(of, np.arange(n)):
                row += flat
            else:
                row = row[of[at]].inc(flat[at])
        rows.append(row)
    *rows, none = with_known_places([*rows, none])
    return rows, none


def log_sum(
    block: Block, own: Ints, states: Ints, never: Any, variables: Sequence[Any], point: Point
) -> ValueGradFunction:
    """Compile log p, with n sites summed out, and its gradient.

    Parameters
    ----------
    block : Block
    own : ndarray of int
        Which of the sites each output sees, or n for none.
    states : ndarray of int, shape (n_values, block.n_sites)
        The values of each site in turn.
    never : ndarray of bool, shape (n_values, n)
        Which of these are left out, since they are impossible.
    variables : list of variables
        Those with respect to which the gradient is taken.
    point : dict
        Where shapes are taken, and the values of variables that are none of these.
    """
    rows, none = by_value(block, own, never.shape[1], states)
    for i, left_out in enumerate(never):
        if left_out.any():
            rows[i] = pt.switch(left_out, -np.inf, rows[i])
    top = pt.as_tensor(reduce(pt.maximum, rows))
    top = disconnected_grad(pt.switch(pt.eq(top, -np.inf), 0.0, top))
    logs = pt.log(sum(pt.exp(row - top) for row in rows)) + top
    total = logs.sum() + none + sum(term.sum().astype("float64") for term in block.others)
    # Sites, too, though log p has them no more: PyMC's steps take all of a point if none is given.
    given = {v: point[v.name] for v in block.model.value_vars if v not in variables}
    f = ValueGradFunction(
        [total],
        list(variables),
        given,
        model=block.model,
        initial_point=point,
        ravel_inputs=True,
        on_unused_input="ignore",
    )
    f.trust_input = True
    f.set_extra_values(point)
    return f

"""Numbers of which log p is made at all values of the sites of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

from sklsb._system.arrays import Ints
from sklsb.pymc.alike import once
from sklsb.pymc.block import Block, Given


class Numbers:
    """Sums of outputs that see the same sites, at some states, each number once.

    Attributes
    ----------
    vector : variable
    scope_of : ndarray of int
        For each sum, which row of ``block.sets`` has the sites that it sees.
    at : ndarray of int, shape (n_states, n_sums)
        Where each sum at each state is in the vector.
    """

    def __init__(self, block: Block, states: Ints, fixed: bool = False):
        free = np.flatnonzero(block.high > block.low)
        sets, values = block.sets[:, free].astype(np.int64), (states - block.low)[:, free]
        rank = np.arange(sets.indices.size) - np.repeat(sets.indptr[:-1], np.diff(sets.indptr))
        sets.data = (int(values.max(initial=0)) + 1) ** rank
        codes = sets @ values.T  # what tells states of the sites of a set from each other
        first = (codes[:, None] == codes[:, :, None]).argmax(axis=2)
        alike = dict[tuple[Any, bytes], list[int]]()  # terms, summed from an axis on
        ends = np.cumsum([int(np.prod(shape)) for shape in block.shapes])
        for t, (of, shape) in enumerate(
            zip(np.split(block.scope_of, ends), block.shapes, strict=False)
        ):
            of = of.reshape(shape)
            while of.size and of.ndim and (of == of[..., :1]).all():
                of = of[..., 0]
            alike.setdefault((of.shape, of.tobytes()), []).append(t)
        scopes = [np.frombuffer(of, np.int64) for _, of in alike]
        self.scope_of = np.concatenate(scopes)
        ends = np.cumsum([of.size for of in scopes])
        parts, places = list[Any](), list[tuple[int, slice]]()
        for s, x in enumerate(states):
            terms = block.terms_at(x)
            for ((shape, _), which), of, end in zip(alike.items(), scopes, ends, strict=True):
                if (first[of, s] == s).any():  # others are known from earlier states
                    sums = [terms[t].sum(axis=range(len(shape), terms[t].ndim)) for t in which]
                    parts.append(pt.specify_shape(sum(sums), shape))
                    places.append((s, slice(end - of.size, end)))
        data = [v for v in graph_inputs(parts) if fixed and isinstance(v, SharedVariable)]
        parts = clone_replace(parts, {v: pt.constant(v.get_value()) for v in data})
        vectors, start, at = list[Any](), 0, np.empty((len(states), self.scope_of.size), int)
        for (s, here), (vector, of) in zip(places, once(parts), strict=True):
            at[s, here] = start + of.ravel()
            start += int(vector.type.shape[0])
            vectors.append(vector.astype("float64"))
        self.at = np.take_along_axis(at, first[self.scope_of].T, axis=0)
        self.vector = pt.concatenate(vectors)


def impossible(block: Block, sites: Ints, states: Ints, given: Given) -> tuple[Any, Ints, Any]:
    """Return which values of sites are impossible here and nearby, by what sees one site alone.

    Also the states with possible values in their place, and where log p is NaN at others.
    """
    k, rng = (block.high - block.low + 1)[sites], np.random.default_rng(0)
    sets = block.sets[:, sites].tocsr()
    own = np.full(sets.shape[0], k.size)
    alone = np.diff(sets.indptr) == 1
    own[alone] = sets.indices[sets.indptr[:-1][alone]]
    own = own[block.scope_of]
    never = np.ones((int(k.max()), k.size), bool)
    no_number, each = np.zeros_like(never), (states - block.low)[:, sites]
    for scale in (0.0, 0.1, 0.3, 1.0):
        near = [
            g + scale * rng.standard_normal(g.shape) if g.dtype.kind == "f" else g for g in given
        ]
        found = np.ones_like(never)
        for v, y in zip(each, states, strict=True):
            outputs = block.log_p(y, *near)
            log_p = np.bincount(own, outputs, k.size + 1)[:-1]
            found[v, np.arange(k.size)] = np.isneginf(log_p) | np.isnan(log_p)
            at = own[np.isnan(outputs) & (own < k.size)]
            no_number[v[at], at] = True
        never &= found
    never |= np.arange(len(never))[:, None] >= k
    spare = np.where(np.take_along_axis(never, each, axis=0), never.argmin(axis=0), each)
    other = states.copy()
    other[:, sites] = block.low[sites] + spare
    return never, other, no_number & ~never

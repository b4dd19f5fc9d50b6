"""All that chains need to go on, bit for bit: what pickles, copies and warm starts keep."""

import copy
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from sklsb._kernels.chains import arrays_of
from sklsb._kernels.facts import Rule
from sklsb.diagnostics.tally import Counters
from sklsb.ensembles.streams import Streams
from sklsb.targets.base import States

# Of each chain, whatever moves it.
_COMMON = ("x", "moved", "evaluations", "acceptance", "refusable")


@dataclass
class ChainState:
    """All that chains need to go on, bit for bit.

    What follows from the states, as caches and weights, is computed again.

    Parameters
    ----------
    x : ndarray of int8 or int16, shape (n_chains, n_sites)
        States.
    streams : Streams
        Random streams.
    rule : rule
        What moves the chains, with its frozen function or blocks.
    counters : Counters
        Transitions and draws made, and the draw that is not finished.
    arrays : dict of str to ndarray
        By chain: which moves were made since `sample` was called, evaluations, acceptance since the
        last draw, and the parts that a rule adds by name, as the ``offset`` of the log weights.
    """

    x: States
    streams: Streams
    rule: Rule
    counters: Counters = field(default_factory=Counters)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, chains: Any, streams: Streams, rule: Rule, counters: Counters) -> "ChainState":
        """Copy what chains carry."""
        carried = rule.facts.carried
        kept = [name for name in _COMMON[1:] if hasattr(chains, name)]
        arrays = {name: getattr(chains, name).copy() for name in kept}
        for name, values in arrays_of(chains.part) if carried else ():
            if name in carried:
                arrays[name] = values.copy()
        return cls(chains.x.copy(), streams.copy(), rule, counters.copy(), arrays)

    def put(self, chains: Any) -> None:
        """Write it to the arrays of other chains of the same rule on the same target."""
        mine = dict(arrays_of(chains.part)) if self.rule.facts.carried else {}
        for name, values in self.arrays.items():
            (getattr(chains, name) if name in _COMMON else mine[name])[:] = values

    def copy(self) -> "ChainState":
        """Return the same, to go on by itself."""
        return copy.deepcopy(self)

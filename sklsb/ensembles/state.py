"""The state of chains that pickles, copies and warm starts keep."""

import copy
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from sklsb._kernels.chains import arrays_of
from sklsb._kernels.facts import Rule
from sklsb.ensembles.streams import Streams
from sklsb.targets.base import States

# Arrays of all chains beside their states, whatever moves them.
_COMMON = ("moved", "evaluations", "acceptance", "refusable")


@dataclass
class ChainState:
    """All that chains need to go on, bit for bit.

    Caches and weights are not kept; they are computed from the states. ``arrays`` holds, by chain,
    the moves made since `sample` was called, evaluations, acceptance since the last draw, and
    what the rule carries, such as the ``offset`` of the log weights.
    """

    x: States
    streams: Streams
    rule: Rule
    counters: Any  # `Counters` of the ensemble
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, chains: Any, streams: Streams, rule: Rule, counters: Any) -> "ChainState":
        """Copy the state of chains."""
        carried = rule.facts.carried
        own = chains._asdict()
        arrays = {name: own[name].copy() for name in _COMMON if name in own}
        for name, values in arrays_of(chains.part) if carried else ():
            if name in carried:
                arrays[name] = values.copy()
        return cls(chains.x.copy(), streams.copy(), rule, copy.deepcopy(counters), arrays)

    def put(self, chains: Any) -> None:
        """Write the arrays to other chains of the same rule on the same target."""
        mine = chains._asdict()
        if self.rule.facts.carried:
            mine |= arrays_of(chains.part)
        for name, values in self.arrays.items():
            mine[name][:] = values

"""Local self-balancing MCMC in discrete spaces.

Make a target, such as `Ising`, `MarkovNetwork` or `FunctionTarget`, and sample it by `AutoSampler`;
`exact` has exact answers, and `draw` tables of draws.
"""

import importlib
from typing import Any

from sklsb._words import named_by

__version__ = "0.1.0"

_OBJECTS = {
    "AutoSampler": "sklsb.samplers",
    "ClusterSampler": "sklsb.samplers",
    "EliminationSampler": "sklsb.samplers",
    "GibbsSampler": "sklsb.samplers",
    "HammingBallSampler": "sklsb.samplers",
    "LSBSampler": "sklsb.samplers",
    "ParallelTempering": "sklsb.samplers",
    "SwapSampler": "sklsb.samplers",
    "anneal": "sklsb.samplers",
    "annealed_log_partition": "sklsb.samplers",
    "draw": "sklsb.samplers",
    "open_draws": "sklsb.storage",
    "sample_chains": "sklsb.samplers",
    "FunctionTarget": "sklsb.targets",
    "Ising": "sklsb.targets",
    "MarkovNetwork": "sklsb.targets",
    "Potts": "sklsb.targets",
    "RBM": "sklsb.targets",
    "Target": "sklsb.targets",
    "TorchTarget": "sklsb.targets",
    "VariableSelection": "sklsb.targets",
    "from_pymc": "sklsb.pymc",
    "SpikeSlabRegressor": "sklsb.selection",
    "BalancingFunction": "sklsb.balancing",
    "Barker": "sklsb.balancing",
    "Sqrt": "sklsb.balancing",
    "Min": "sklsb.balancing",
    "Max": "sklsb.balancing",
    "Lipschitz": "sklsb.balancing",
    "Mixture": "sklsb.balancing",
    "Network": "sklsb.balancing",
    "SpikeSlabClassifier": "sklsb.selection",
}
_MODULES = [
    "balancing",
    "diagnostics",
    "exact",
    "exceptions",
    "extending",
    "io",
    "samplers",
    "targets",
    "testing",
]

__all__ = [*_OBJECTS, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _OBJECTS:
        return getattr(importlib.import_module(_OBJECTS[name]), name)
    if name in (*_MODULES, "dimod", "plot", "pymc"):  # the last three need extras
        return importlib.import_module(f"sklsb.{name}")
    return named_by(__name__)(name)


def __dir__() -> list[str]:
    return sorted([*__all__, "plot"])

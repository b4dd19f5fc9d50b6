"""Targets: what is sampled from."""

import importlib
from typing import Any

from sklsb._words import named_by
from sklsb.targets.base import Target
from sklsb.targets.function import FunctionTarget
from sklsb.targets.ising import Ising
from sklsb.targets.markov_network import MarkovNetwork
from sklsb.targets.potts import Potts
from sklsb.targets.rbm import RBM
from sklsb.targets.torch import TorchTarget
from sklsb.targets.variable_selection import VariableSelection

__all__ = [
    "RBM",
    "FunctionTarget",
    "Ising",
    "MarkovNetwork",
    "Potts",
    "Target",
    "TorchTarget",
    "VariableSelection",
    "from_pymc",
]
__dir__ = __all__.copy


def __getattr__(name: str) -> Any:
    if name == "from_pymc":  # of a room above this one
        return importlib.import_module("sklsb.pymc").from_pymc
    return named_by(__name__)(name)

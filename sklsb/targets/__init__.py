"""Targets: what is sampled from."""

from sklsb.targets.base import Target
from sklsb.targets.function import FunctionTarget
from sklsb.targets.ising import Ising
from sklsb.targets.markov_network import MarkovNetwork
from sklsb.targets.potts import Potts
from sklsb.targets.pymc import from_pymc
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

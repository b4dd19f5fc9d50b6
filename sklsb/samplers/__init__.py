"""Samplers, and the search for the most probable state."""

from sklsb._words import named_by
from sklsb.samplers.annealed import annealed_log_partition
from sklsb.samplers.annealing import anneal
from sklsb.samplers.auto import AutoSampler
from sklsb.samplers.clusters import ClusterSampler
from sklsb.samplers.elimination import EliminationSampler
from sklsb.samplers.gibbs import GibbsSampler
from sklsb.samplers.hamming_ball import HammingBallSampler
from sklsb.samplers.lsb import LSBSampler
from sklsb.samplers.parallel import sample_chains
from sklsb.samplers.swap import SwapSampler
from sklsb.samplers.tables import draw
from sklsb.samplers.tempering import ParallelTempering

__all__ = [
    "AutoSampler",
    "ClusterSampler",
    "EliminationSampler",
    "GibbsSampler",
    "HammingBallSampler",
    "LSBSampler",
    "ParallelTempering",
    "SwapSampler",
    "anneal",
    "annealed_log_partition",
    "draw",
    "sample_chains",
]

__getattr__, __dir__ = named_by(__name__), __all__.copy

"""Samplers."""

from sklsb.samplers.elimination import EliminationSampler
from sklsb.samplers.gibbs import GibbsSampler
from sklsb.samplers.hamming_ball import HammingBallSampler
from sklsb.samplers.lsb import LSBSampler
from sklsb.samplers.tempering import ParallelTempering

__all__ = [
    "EliminationSampler",
    "GibbsSampler",
    "HammingBallSampler",
    "LSBSampler",
    "ParallelTempering",
]

"""Samplers."""

from sklsb.samplers.lsb import LSBSampler

__all__ = ["LSBSampler"]

"""Targets: what is sampled from."""

from sklsb.targets.base import Target
from sklsb.targets.ising import Ising

__all__ = ["Ising", "Target"]

"""Spike and slab: estimators that say which columns matter, with what probability and error."""

from sklsb.selection.classifier import SpikeSlabClassifier
from sklsb.selection.regressor import SpikeSlabRegressor

__all__ = ["SpikeSlabClassifier", "SpikeSlabRegressor"]

"""Diagnostics that ArviZ lacks or makes too optimistic, and rules that end a run."""

from sklsb._words import named_by
from sklsb.diagnostics.agreement import disagreement
from sklsb.diagnostics.draws import to_frame
from sklsb.diagnostics.expectation import expectation
from sklsb.diagnostics.marginals import marginals
from sklsb.diagnostics.measures import autocorrelation, best_state, ess, mmd, paper_ess
from sklsb.diagnostics.stopping import AllOf, EffectiveSampleSize, RHat, RunSoFar, Seconds
from sklsb.diagnostics.temperatures import binder, overlaps, specific_heat, susceptibility

__all__ = [
    "AllOf",
    "EffectiveSampleSize",
    "RHat",
    "RunSoFar",
    "Seconds",
    "autocorrelation",
    "best_state",
    "binder",
    "disagreement",
    "ess",
    "expectation",
    "marginals",
    "mmd",
    "overlaps",
    "paper_ess",
    "specific_heat",
    "susceptibility",
    "to_frame",
]

__getattr__, __dir__ = named_by(__name__), __all__.copy

"""The first-order path (FLSB, Gibbs with gradients) on torch."""

from sklsb.ensembles._torch.ensemble import FastEnsemble
from sklsb.ensembles._torch.objectives import check_objective

__all__ = ["FastEnsemble", "check_objective"]

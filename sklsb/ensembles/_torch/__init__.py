"""The first-order path (FLSB, Gibbs with gradients) on torch."""

import sklsb.targets._torch  # noqa: F401 - first: it says what to install where torch is missing
from sklsb.ensembles._torch.ensemble import FastEnsemble
from sklsb.ensembles._torch.objectives import check_objective

__all__ = ["FastEnsemble", "check_objective"]

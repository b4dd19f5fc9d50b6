"""The first-order path (FLSB, Gibbs with gradients) on torch."""

from sklsb.ensembles._torch.ensemble import FastEnsemble

__all__ = ["FastEnsemble"]

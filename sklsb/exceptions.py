"""Warnings."""

__all__ = ["FrozenSitesWarning", "PeriodicChainWarning", "SamplerWarning", "ShortRunWarning"]


class SamplerWarning(UserWarning):
    """Base of all warnings about the chains themselves."""


class FrozenSitesWarning(SamplerWarning):
    """Some variables never changed: their effective sample size is unknown, not perfect."""


class PeriodicChainWarning(SamplerWarning):
    """Nearly every move is accepted, so even and odd steps visit different halves of the space."""


class ShortRunWarning(SamplerWarning):
    """A chain has made fewer transitions than the target has variables."""

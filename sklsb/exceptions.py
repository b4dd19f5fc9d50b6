"""Warnings and errors; the page "Am I right?" has a table of causes and remedies."""

__all__ = [
    "BlocksWarning",
    "FrozenSitesWarning",
    "InterruptedWarning",
    "ModelWarning",
    "PeriodicChainWarning",
    "PrecisionWarning",
    "SamplerWarning",
    "SeparatedModesWarning",
    "ShortRunWarning",
    "StarvedMovesWarning",
    "StoreError",
    "StoreWarning",
    "TemperingWarning",
    "UncachedKernelsWarning",
]
__dir__ = __all__.copy


class PrecisionWarning(UserWarning):
    """Log p is a sum of numbers so large that rounding hides the differences that matter."""


class SamplerWarning(UserWarning):
    """Base of all warnings about the chains themselves."""


class BlocksWarning(SamplerWarning):
    """Blocks are needed, and the chosen ones may not lead everywhere."""


class FrozenSitesWarning(SamplerWarning):
    """Some variables never changed: their effective sample size is unknown, not perfect."""


class InterruptedWarning(SamplerWarning):
    """Ctrl-C ended a call early: the draws or the best states so far are returned."""


class ModelWarning(UserWarning):
    """A model or its data look unlike what the target assumes; they are used unchanged."""


class PeriodicChainWarning(SamplerWarning):
    """Nearly every move is accepted, so even and odd steps visit different halves of the space."""


class SeparatedModesWarning(SamplerWarning):
    """Chains, or halves of them, disagree, or draws contradict exact answers.

    They have not converged, or do not leave their modes.
    """


class ShortRunWarning(SamplerWarning):
    """Fewer transitions than the target has variables, or too few to compare or thin chains."""


class StarvedMovesWarning(SamplerWarning):
    """A learned function gives some moves so little weight that they are hardly ever made."""


class StoreError(ValueError):
    """A store that is damaged, or cannot be used as asked; the message has the reason."""


class StoreWarning(UserWarning):
    """A file of a store is damaged, and another one is used; see the message."""


class TemperingWarning(SamplerWarning):
    """Replicas cross between the temperatures too rarely."""


class UncachedKernelsWarning(UserWarning):
    """Compiled kernels cannot be kept on disk: every process compiles them again."""

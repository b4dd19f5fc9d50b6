"""Files: draws on disk, fitted samplers, and what makes both safe."""

from sklsb.storage.stores import open_draws

__all__ = ["open_draws"]

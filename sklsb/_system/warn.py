"""Warnings that name the user's line, however deep in the package they are given."""

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn(message: str | Warning, category: type[Warning] | None = None) -> None:
    """Warn at the innermost line outside of this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and is_inside(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def is_inside(module: str) -> bool:
    """Whether a module is one of this package."""
    return module.partition(".")[0] == _PACKAGE

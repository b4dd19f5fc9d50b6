"""Models of PyMC as targets, and a step that draws their discrete variables; needs PyMC.

Of the extra ``pymc``: ``pip install 'sklsb[pymc]'``.
"""

import importlib
from typing import Any

from sklsb.pymc.target import from_pymc
from sklsb.pymc.variables import NEEDS_PYMC

__all__ = ["DiscreteStep", "Structure", "from_pymc"]
__dir__ = __all__.copy


def __getattr__(name: str) -> Any:
    if name not in ("DiscreteStep", "Structure"):
        raise AttributeError(f"module 'sklsb.pymc' has no attribute {name!r}")
    try:
        import pymc  # noqa: F401
    except ImportError as error:
        raise ImportError(f"sklsb.pymc.{name} {NEEDS_PYMC}") from error
    return getattr(importlib.import_module("sklsb.pymc.step"), name)

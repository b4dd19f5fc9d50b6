"""Tools to define your own target, rule, objective or observer, the first three compiled.

A target has a *view*, a named tuple of arrays; a rule is a named tuple. Both declare compiled
functions with `implements`. Functions called from these are decorated with ``inlined``. Kernels for
classes outside the package are compiled in every process and never kept on disk. See
``doc/add_target.rst`` and ``doc/add_sampler.rst``.
"""

from sklsb._kernels._jit import implements, inlined
from sklsb._kernels.chains import NoPart, with_part
from sklsb._kernels.contract import (
    first_move,
    flip,
    init_cache,
    log_prob,
    log_ratio,
    prepare,
    rebuild,
    row_of,
    step,
)
from sklsb._kernels.facts import Facts
from sklsb._kernels.numeric import exp
from sklsb._kernels.objectives import objective
from sklsb._kernels.rules.gibbs import RandomBlocks
from sklsb._kernels.rules.mixture import Mixture
from sklsb.samplers._run.algorithm import Algorithm
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.fixed import FixedRuleSampler
from sklsb.samplers._run.observers import Observer
from sklsb.targets._checks import all_touched

__all__ = [
    "Algorithm",
    "BaseSampler",
    "Facts",
    "FixedRuleSampler",
    "Mixture",
    "NoPart",
    "Observer",
    "RandomBlocks",
    "all_touched",
    "exp",
    "first_move",
    "flip",
    "implements",
    "init_cache",
    "inlined",
    "log_prob",
    "log_ratio",
    "objective",
    "prepare",
    "rebuild",
    "row_of",
    "step",
    "with_part",
]
__dir__ = __all__.copy

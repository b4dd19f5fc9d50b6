"""What one needs to define a target, a rule or an objective of one's own, compiled part included.

A target has a *view*, a named tuple of arrays; a rule is a named tuple. Both declare compiled
functions by `implements`. What these call is decorated with ``inlined``, or with ``called`` where
it is long and rare. Kernels for classes outside the package are compiled in every process and never
kept on disk. See ``doc/add_target.rst`` and ``doc/add_sampler.rst``.
"""

from sklsb._kernels._jit import called, implements, inlined
from sklsb._kernels.contract import (
    first_move,
    flip,
    forget_way,
    hidden_activation,
    init_cache,
    log_prob,
    log_prob_is_cheap,
    log_ratio,
    log_weight_of,
    n_used,
    prepare,
    rebuild,
    row_of,
    step,
)
from sklsb._kernels.numeric import Table, exp, log_weight
from sklsb._kernels.objectives import Objective, objective
from sklsb._kernels.state import NoPart, with_part
from sklsb.rules import Facts, Rule
from sklsb.samplers._base import BaseSampler
from sklsb.samplers._fixed import FixedRuleSampler
from sklsb.targets._checks import all_touched

__all__ = [
    "BaseSampler",
    "Facts",
    "FixedRuleSampler",
    "NoPart",
    "Objective",
    "Rule",
    "Table",
    "all_touched",
    "called",
    "exp",
    "first_move",
    "flip",
    "forget_way",
    "hidden_activation",
    "implements",
    "init_cache",
    "inlined",
    "log_prob",
    "log_prob_is_cheap",
    "log_ratio",
    "log_weight",
    "log_weight_of",
    "n_used",
    "objective",
    "prepare",
    "rebuild",
    "row_of",
    "step",
    "with_part",
]

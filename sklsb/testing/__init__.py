"""Conformance checks for extensions of sklsb: targets, functions, objectives, rules, samplers.

Each check raises an AssertionError that says what was expected and found, if something is wrong.
`check_step` checks steps of any package.
The tests of sklsb itself are calls of these functions.

The checks of rules and samplers are exact: on a small target they compare probabilities, not
samples. Every uniform number at which the outcome of the *production* transition changes is found
by bisection, and the lengths between these numbers are compared with the enumerated formula.
"""

from sklsb.testing._balancing import check_balancing
from sklsb.testing._objectives import check_objective
from sklsb.testing._rules import check_rule, measured_matrix
from sklsb.testing._samplers import check_sampler
from sklsb.testing._steps import check_step
from sklsb.testing._targets import check_target

__all__ = [
    "check_balancing",
    "check_objective",
    "check_rule",
    "check_sampler",
    "check_step",
    "check_target",
    "measured_matrix",
]
__dir__ = __all__.copy

"""Exact answers: by elimination on models made of factors, by enumeration on small targets.

**Elimination** sums variables out one after another. `log_partition`, `marginals`, `most_likely`
and `sample` do so on any `Ising`, `Potts` or `MarkovNetwork` whose structure allows it;
`elimination_cost` predicts the work. See the page "Exact answers".

**Enumeration** gives every state, its probability, and the transition matrix of balanced steps.
Matrices are computed in NumPy from ``target.log_ratios`` and the tabulated balancing function,
independently of the compiled kernels, for which they are the reference. They are meant for
documentation and tests, on targets of up to about 12 two-valued variables. In a state of
probability zero, which no chain reaches, a chain stays.
"""

from sklsb._words import named_by
from sklsb.exact.elimination.answers import (
    elimination_cost,
    log_partition,
    marginals,
    most_likely,
    sample,
)
from sklsb.exact.enumeration import probabilities
from sklsb.exact.matrices import log_matrix, mutual_information, transition_matrix
from sklsb.exact.prepared import prepare
from sklsb.targets._listing import states

__all__ = [
    "elimination_cost",
    "log_matrix",
    "log_partition",
    "marginals",
    "most_likely",
    "mutual_information",
    "prepare",
    "probabilities",
    "sample",
    "states",
    "transition_matrix",
]

__getattr__, __dir__ = named_by(__name__), __all__.copy

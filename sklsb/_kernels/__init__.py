"""Everything that is compiled. It imports from here alone: so `_jit` knows what it is made of.

All rooms are imported at once, right after their content was read, so that what is compiled is
what was read.
"""

from sklsb._kernels import _jit, enumeration, objectives, run  # noqa: F401
from sklsb._kernels.rules import balanced, gibbs, hamming_ball, layers, mixture  # noqa: F401
from sklsb._kernels.targets import (  # noqa: F401
    conditioned,
    function,
    ising,
    markov_network,
    potts,
    rbm,
    variable_selection,
)

r"""Balancing functions as even functions.

A function g is *balancing* if g(t) = t g(1/t) for all t > 0. Write u = log t. Then g is
balancing if and only if

.. math:: h(u) = \log g(e^u) - u/2

is an even function of u. So every even function h gives a balancing function: h = 0 gives the
square root, -abs(u)/2 gives min(1, t), abs(u)/2 gives max(1, t).

The kernels see a function only through a table of h at knots of abs(u), linear between the
knots and beyond the last one. That is an even function of u, too, so a tabulated function is
exactly balancing however coarse the table, and all functions take the same time.
"""

from sklsb.balancing.functions import (
    BalancingFunction,
    Barker,
    LearnableFunction,
    Lipschitz,
    Max,
    Min,
    Mixture,
    Network,
    Sqrt,
)

__all__ = [
    "BalancingFunction",
    "Barker",
    "LearnableFunction",
    "Lipschitz",
    "Max",
    "Min",
    "Mixture",
    "Network",
    "Sqrt",
]
__dir__ = __all__.copy

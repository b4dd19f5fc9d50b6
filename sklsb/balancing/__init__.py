r"""Balancing functions, all in one picture.

A function g is *balancing* if g(t) = t g(1/t) for all t > 0. Write u = log t. Then g is
balancing if and only if

.. math:: h(u) = \log g(e^u) - u/2

is an even function of u. So a balancing function *is* an even function, and any even function
will do: the square root is h = 0, min(1, t) is -abs(u)/2, max(1, t) is abs(u)/2.

The kernels see a function only through a table of h at knots of abs(u), linear between the
knots and beyond the last one. That is again an even function of u, so a tabulated function is
exactly balancing however coarse the table, and all functions cost a kernel the same.
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

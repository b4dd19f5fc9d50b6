r"""
Balancing functions are even functions
======================================

A move changes the log-probability by u. The sampler weighs it by :math:`g(e^u)`, and g must be
*balancing*: :math:`g(t) = t\,g(1/t)`. Take logarithms, set half of u aside,

.. math:: \log g(e^u) = \tfrac{u}{2} + h(u),

and the condition says no more than h(-u) = h(u). So every even curve is a balancing function, and
every balancing function is an even curve.
"""

# %%
# Four fixed, one mixed, one learned, one of your own
# ---------------------------------------------------
# The fixed four come from the literature. A mixture (LSB 1) has four weights and a network (LSB
# 2) a few dozen parameters; both are learned in the burn-in. Here the mixture is given its
# weights and the network is learned on a small Ising model. A function of your own is a class
# with one method.

import matplotlib.pyplot as plt
import numpy as np

from sklsb import BalancingFunction, Barker, Ising, LSBSampler, Max, Min, Mixture, Sqrt

rng = np.random.default_rng(0)
target = Ising.lattice(rng.normal(size=(20, 20)), coupling=0.5)
# Without the pilot, which might prefer one of the fixed four.
sampler = LSBSampler("learned", pilot=False, n_chains=10, random_state=0).fit(target)


class Cautious(BalancingFunction):
    """Avoids large moves, but less and less so."""

    def even_part(self, u):
        """Even part of log g."""
        return -np.log1p(np.square(u) / 2)


functions = {
    "max": Max(),
    "sqrt": Sqrt(),
    "barker": Barker(),
    "min": Min(),
    "mixture": Mixture(theta=np.log([0.6, 0.3, 0.05, 0.05])),
    "learned": sampler.balancing_,
    "your own": Cautious(),
}

# %%
# All of them satisfy the condition, to the last digits:

t = np.array([0.02, 0.5, 3.0, 70.0])
for name, function in functions.items():
    g, g_inverse = np.exp(function.log_g(np.log(t))), np.exp(function.log_g(-np.log(t)))
    print(f"{name:9}g(t) / (t g(1/t)) = {g / (t * g_inverse)}")

# %%
# The even part and the function itself
# -------------------------------------
# A constant factor of g changes nothing, so the curves are drawn to meet at u = 0, which is t =
# 1. On the right it is not obvious that the seven have anything in common; on the left it is.

colours = ["0.55", "0.55", "0.55", "0.55", "#2a9d8f", "#d1263b", "#f2a03d"]
styles = [(0, (5, 1)), "-.", "--", ":", "-", "-", "-"]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
u, t = np.linspace(-6, 6, 401), np.linspace(0.001, 6, 400)
for (name, function), colour, style in zip(functions.items(), colours, styles, strict=True):
    look = {"color": colour, "linestyle": style, "linewidth": 1.3 if colour == "0.55" else 2.2}
    left.plot(u, function.even_part(u) - function.even_part(0.0), label=name, **look)
    right.plot(t, np.exp(function.log_g(np.log(t)) - function.log_g(0.0)), label=name, **look)
left.set(title="Even part h(u) - h(0)", xlabel="log-ratio u = log t")
right.set(title="g(t) / g(1)", xlabel="ratio t")
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
figure.legend(*left.get_legend_handles_labels(), loc="outside right center", frameon=False)

r"""
Balancing functions are even functions
======================================

A move changes the log-probability by u. The sampler weighs it by :math:`g(e^u)`, and g must be
*balancing*: :math:`g(t) = t\,g(1/t)`. Take logarithms, set half of u aside,
:math:`\log g(e^u) = u / 2 + h(u)`, and the condition says no more than h(-u) = h(u). So every even
curve is a balancing function, and every balancing function is an even curve.
"""

# %%
# Four fixed, one mixed, one learned, one of your own
# ---------------------------------------------------
# A mixture (LSB 1) has four weights, fixed here. The learned function was learned on a small Ising
# model. A function of your own is a class with one method.

import matplotlib.pyplot as plt
import numpy as np

from sklsb import BalancingFunction, Barker, Ising, LSBSampler, Max, Min, Mixture, Sqrt

target = Ising.lattice(np.random.default_rng(0).normal(size=(20, 20)), coupling=0.5)
# Without the pilot, which might prefer one of the fixed four.
sampler = LSBSampler("learned", pilot=False, n_chains=10, random_state=0).fit(target)


class Cautious(BalancingFunction):
    def even_part(self, u):
        return -np.log1p(np.square(u) / 2)


functions = {"max": Max(), "sqrt": Sqrt(), "barker": Barker(), "min": Min()}
functions["mixture"] = Mixture(theta=np.log([0.6, 0.3, 0.05, 0.05]))
functions |= {"learned": sampler.balancing_, "your own": Cautious()}

# %%
# All of them satisfy the condition, to the last digits:

t = np.array([0.02, 0.5, 3.0, 70.0])
for name, f in functions.items():
    print(f"{name:9}{np.exp(f.log_g(np.log(t)) - f.log_g(-np.log(t))) / t}")

# %%
# The even part and the function itself
# -------------------------------------
# The curves are shifted to meet at u = 0, which is t = 1. On the left it is obvious what the seven
# have in common; on the right it is not.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
u, t = np.linspace(-6, 6, 401), np.linspace(0.001, 6, 400)
for k, (name, f) in enumerate(functions.items()):
    look = {
        "color": f"C{k - 4}" if k > 3 else "0.6",
        "linestyle": ("--", "-.", ":", "-")[k % 4],
    }
    left.plot(u, f.even_part(u) - f.even_part(0.0), label=name, **look)
    right.plot(t, np.exp(f.log_g(np.log(t)) - f.log_g(0.0)), **look)
left.set(title="Even part h(u) - h(0)", xlabel="log-ratio u = log t")
right.set(title="g(t) / g(1)", xlabel="ratio t")
figure.legend(loc="outside right center")
plt.show()

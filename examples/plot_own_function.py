"""
When did it change? A function of your own
==========================================

Counts of accidents in 30 years. The rate is constant for some years, then changes. A state says in
which years it changes, as 0 and 1. The log-density is an ordinary function.
"""

# %%
# The function
# ------------
# Between two changes the counts are Poisson with one rate, whose prior is Gamma(2, 1 / 20). With
# the rate integrated out, each piece has a formula. A change costs log 12. The function is compiled
# by numba, and called from compiled code. There are 29 places for a change, and so half a billion
# states.

from math import lgamma, log

import matplotlib.pyplot as plt
import numba
import numpy as np

from sklsb import AutoSampler, FunctionTarget

truth = np.repeat([30.0, 45.0, 22.0], [11, 7, 12])
counts = np.random.default_rng(1).poisson(truth)


@numba.njit
def log_prob(x):
    total, n, years = -log(12.0) * x.sum(), 0, 0
    for i in range(counts.size):
        n, years = n + counts[i], years + 1
        if i == counts.size - 1 or x[i] == 1:
            total += lgamma(n + 2.0) - (n + 2.0) * log(years + 0.05) + 2.0 * log(0.05)
            n, years = 0, 0
    return total


target = FunctionTarget(log_prob, n_sites=counts.size - 1)
draws = AutoSampler(random_state=0).fit(target).sample(2000, thin="auto")
x = draws["x"].values.reshape(-1, counts.size - 1)
print(f"probability of two changes: {(x.sum(axis=1) == 2).mean():.2f}")

# %%
# The rate of each year, averaged over all draws: (n + 2) / (years + 0.05) for the piece it is in.

rate = np.zeros(counts.size)
for changes in x:
    pieces = np.split(counts, np.flatnonzero(changes) + 1)
    rate += np.concatenate([np.full(p.size, (p.sum() + 2) / (p.size + 0.05)) for p in pieces])
figure, (top, bottom) = plt.subplots(
    2, 1, figsize=(8, 5.5), height_ratios=(2, 1), sharex=True, layout="constrained"
)
top.step(np.arange(30), truth, where="mid", color="0.7", label="true rate")
top.plot(rate / len(x), label="posterior mean of the rate")
top.plot(counts, "o", color="black", markersize=4, label="counts")
top.set(title="Accidents in each year", ylabel="number")
top.legend(loc="upper right")
bottom.bar(np.arange(29) + 0.5, x.mean(axis=0))
bottom.set(title="Where the rate changes", xlabel="year", ylabel="probability")
plt.show()

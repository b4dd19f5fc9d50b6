r"""
Tied spins and a learned balancing function
===========================================

Thirty pairs of spins are tied so strongly that one spin of a pair follows the other, among forty
free spins. A sampler that changes one spin at a time must break a pair and then move its partner
before the free spins have their turns. `LSBSampler` finds out by itself which spins these are.
"""

import arviz
import matplotlib.pyplot as plt
import numpy as np

from sklsb import Ising, LSBSampler

rng = np.random.default_rng(1)
couplings = np.zeros((100, 100))
first = np.arange(0, 60, 2)
couplings[first, first + 1] = couplings[first + 1, first] = 3.45
target = Ising(couplings, rng.normal(size=100))

# %%
# The candidates
# --------------
# `fit` tries learned and fixed functions, each as Metropolis-Hastings steps and as a jump process,
# with and without factors by site, and keeps what gives most effective draws per evaluation.

sampler = LSBSampler(blocks=None, random_state=0).fit(target)
table = sampler.candidates_["ess_per_work"].to_series().sort_values()
print((table / table["sqrt"]).round(1).to_string())
print("chosen:", sampler.candidates_.attrs["chosen"])

# %%
# Against a fixed function
# ------------------------
# Effective draws of every spin, for the same number of evaluations. The slowest spins get many
# times as many, for which the free ones pay a part of theirs.


def effective(sampler, n_draws=5000):
    before = sampler.n_evaluations_
    x = sampler.sample(n_draws, thin=25)["x"]
    ess = np.array([float(arviz.ess(x[:, :, i].values, method="mean")) for i in range(100)])
    return ess / (sampler.n_evaluations_ - before) * 1e6


learned = effective(sampler)
fixed = effective(LSBSampler("sqrt", blocks=None, random_state=0).fit(target))

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.semilogy(fixed, ".", color="0.5", label='LSBSampler("sqrt")')
left.semilogy(learned, ".", color="C3", label="LSBSampler()")
left.set(xlabel="spin", ylabel="effective draws per million evaluations")
left.legend()
right.semilogy(sampler.factors_, ".", color="C0")
right.set(xlabel="spin", ylabel="factor")
right.axvline(59.5, color="0.7", linewidth=1)
left.axvline(59.5, color="0.7", linewidth=1)
left.set_title("the first sixty are tied in pairs")
right.set_title("factors by site that fit learned")
plt.show()

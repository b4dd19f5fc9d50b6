r"""
Tied variables: what learning wins
==================================

Thirty pairs of spins are tied so strongly that one spin of a pair follows the other, among forty
free spins. A sampler that changes one spin at a time must break a pair and then move its partner
before the free spins have their turns. `LSBSampler` finds out by itself which spins these are.
"""

import arviz
import matplotlib.pyplot as plt
import numpy as np

from sklsb import Ising, LSBSampler, Mixture, VariableSelection

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

# %%
# By the direction of a move
# --------------------------
# A function with two sides weighs moves by the log-odds l of the upper value of their variable,
# :math:`\log w = u/2 + q(l)` with any q. Here both sides are mixtures of the four fixed functions.
# On tied pairs up and down are alike, and the q that was learned is nearly even. In a regression,
# where the upper value takes a column in, it is not; what it is differs between data sets.

X = rng.normal(size=(200, 60))
for j in range(1, 60):
    X[:, j] = 0.6 * X[:, j - 1] + 0.8 * X[:, j]
signal = np.array([2, -3, 2, 2, -3, 3, -2, 3, -2, 3]) * np.sqrt(np.log(60) / 200)
regression = VariableSelection(X, X[:, :10] @ signal + rng.normal(size=200))

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
log_odds = np.linspace(-8, 8, 201)
for name, model in {"tied pairs": target, "a regression": regression}.items():
    sampler = LSBSampler(
        Mixture(sides=True),
        objective="global_flux",
        rejection_free=True,
        pilot=False,
        blocks=None,
    )
    q = sampler.set_params(random_state=0).fit(model).balancing_.side_part(log_odds)
    axis.plot(log_odds, q, label=name)
axis.set(xlabel="log-odds l of the upper value", ylabel="q(l)")
axis.legend()

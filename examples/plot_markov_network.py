"""
Conclusions from evidence
=========================

A car does not start. Is it the battery, the starter, or an empty tank? A Bayesian network says how
causes lead to what is observed; given the observations, it says how likely each cause is.
"""

# %%
# The network
# -----------
# Each variable has a table: one row for each combination of its parents' values.

import matplotlib.pyplot as plt
import numpy as np

from sklsb import LSBSampler, MarkovNetwork, exact
from sklsb.diagnostics import best_state, marginals

names = ["frost", "battery", "lights", "fuel", "starter", "starts"]
values = [["no", "yes"], ["full", "weak", "flat"], ["bright", "dim", "off"]]
values += [["some", "none"], ["works", "broken"], ["yes", "no"]]
battery = [[0.85, 0.12, 0.03], [0.6, 0.28, 0.12]]
lights = [[0.95, 0.03, 0.02], [0.15, 0.8, 0.05], [0.03, 0.22, 0.75]]
fails = np.full((3, 2, 2), 0.99)  # battery, fuel, starter
fails[:, 0, 0] = 0.03, 0.5, 0.97
factors = [((0,), [0.9, 0.1]), ((0, 1), battery), ((1, 2), lights), ((3,), [0.93, 0.07])]
factors += [((4,), [0.96, 0.04]), ((1, 3, 4, 5), np.stack([1 - fails, fails], axis=-1))]
network = MarkovNetwork([len(v) for v in values], factors, names)

# %%
# What was observed
# -----------------
# It does not start, and the lights are dim. ``condition`` fixes both. A network as small as this
# needs no chain; it is sampled here to show that both ways agree.

target = network.condition({"starts": 1, "lights": 1})
draws = LSBSampler(random_state=0).fit(target).sample(2000, thin="auto")
sampled, before, after = (
    marginals(draws, target),
    exact.marginals(network),
    exact.marginals(target),
)
print(f"Largest difference {float(abs(sampled['p'] - after['p']).max()):.4f}")
best = best_state(draws)["x"].values
print("Likeliest:", [v[k] for v, k in zip(values, best, strict=True)])

# %%
# Before and after
# ----------------
# A weak battery explains both the dim lights and the failing start, so it is the first suspect.

figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
rows = [(name, k) for name, v in zip(names, values, strict=True) for k in range(len(v))]
place = np.arange(len(rows))
for found, shift, label in (before, -0.2, "before"), (after, 0.2, "given both"):
    p = [float(found["p"].sel(site=name, state=k)) for name, k in rows]
    axis.barh(place + shift, p, 0.4, label=label)
p = [float(sampled["p"].sel(site=name, state=k)) for name, k in rows]
axis.plot(p, place + 0.2, "o", color="black", label="sampled")
axis.set_yticks(place, [f"{name}: {values[names.index(name)][k]}" for name, k in rows])
axis.set(xlabel="probability", title="The car does not start, and the lights are dim")
figure.legend(loc="outside lower center", ncols=3)
plt.show()

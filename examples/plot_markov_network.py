"""
A Bayesian network: why does the tractor not start?
===================================================

A tractor does not start. Is it the battery, the starter, or an empty tank? A Bayesian network says
how causes lead to what is observed; given the observations, it says how likely each cause is.
"""

# %%
# The network
# -----------
# Each variable has a table: one row for each combination of its parents' values, by their names.

import itertools

import matplotlib.pyplot as plt
import numpy as np

from sklsb import LSBSampler, MarkovNetwork, exact
from sklsb.diagnostics import best_state, marginals, to_frame

fails = {"full": 0.03, "weak": 0.5, "flat": 0.97}  # if nothing else is wrong
starts = {}
for battery, fuel, starter in itertools.product(fails, ["some", "none"], ["works", "broken"]):
    no = fails[battery] if (fuel, starter) == ("some", "works") else 0.99
    starts[battery, fuel, starter] = {"yes": 1 - no, "no": no}
network = MarkovNetwork.from_tables(
    {
        "frost": {"no": 0.9, "yes": 0.1},
        "battery": {
            "no": {"full": 0.85, "weak": 0.12, "flat": 0.03},
            "yes": {"full": 0.6, "weak": 0.28, "flat": 0.12},
        },
        "lights": {
            "full": {"bright": 0.95, "dim": 0.03, "off": 0.02},
            "weak": {"bright": 0.15, "dim": 0.8, "off": 0.05},
            "flat": {"bright": 0.03, "dim": 0.22, "off": 0.75},
        },
        "fuel": {"some": 0.93, "none": 0.07},
        "starter": {"works": 0.96, "broken": 0.04},
        "starts": starts,
    },
    parents={
        "battery": "frost",
        "lights": "battery",
        "starts": ["battery", "fuel", "starter"],
    },
)

# %%
# What was observed
# -----------------
# It does not start, and the lights are dim. A network as small as this needs no chain.

plan = exact.prepare(network)
seen = {"starts": "no", "lights": "dim"}
before, after = plan.marginals(), plan.marginals(seen)
print(after)

# %%
# The same by sampling
# --------------------
# ``condition`` fixes what was seen. Here the draws only show that both ways agree. ``AutoSampler``
# would eliminate, as above; steps of ``LSBSampler`` are a check of their own.

target = network.condition(seen)
draws = LSBSampler(random_state=0).fit(target).sample(2000, thin="auto")
sampled = to_frame(marginals(draws, target)).set_index(["variable", "value"])["p"]
largest = max(abs(sampled[name, value] - after[name, value]) for name, value in sampled.index)
print(f"Largest difference {largest:.4f}")
print("Likeliest:", plan.named(best_state(draws)["x"].values))

# %%
# Before and after
# ----------------
# A weak battery explains both the dim lights and the failing start, so it is the first suspect.

figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
rows = list(sampled.index)
place = np.arange(len(rows))
for found, shift, label in (before, -0.2, "before"), (after, 0.2, "given both"):
    axis.barh(place + shift, [found[row] for row in rows], 0.4, label=label)
axis.plot(sampled, place + 0.2, "o", color="black", label="sampled")
axis.invert_yaxis()  # in the order of the tables
axis.set_yticks(place, [f"{name}: {value}" for name, value in rows])
axis.set(xlabel="probability", title="The tractor does not start, and the lights are dim")
figure.legend(loc="outside lower center", ncols=3)
plt.show()

"""
Conclusions from evidence: a Bayesian network
=============================================

A car does not start. Is it the battery, the starter, or an empty tank? A Bayesian network of eleven
variables says how causes lead to what one sees; given what was seen, sampling says how likely each
cause is. The network is small enough to enumerate all states, so the answers can be checked.
"""

# %%
# The network
# -----------
# Each variable has a table of conditional probabilities: one row for each combination of its
# parents' values, one column for each of its own. Nothing is certain here: every table is positive,
# so that single changes lead everywhere.

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np

from sklsb import LSBSampler, MarkovNetwork, exact
from sklsb.diagnostics import best_state, marginals

warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing", FutureWarning)  # about ArviZ itself
import arviz

values = {
    "weather": ["mild", "cold", "frost"],
    "alternator": ["works", "broken"],
    "battery age": ["new", "old"],
    "battery": ["full", "weak", "flat"],
    "lights": ["bright", "dim", "off"],
    "starter": ["works", "broken"],
    "turns over": ["yes", "slowly", "no"],
    "fuel": ["some", "none"],
    "gauge": ["some", "empty"],
    "oil": ["thin", "thick"],
    "starts": ["yes", "no"],
}
tables = {
    ("weather",): [0.6, 0.3, 0.1],
    ("alternator",): [0.95, 0.05],
    ("battery age",): [0.7, 0.3],
    ("alternator", "battery age", "weather", "battery"): [
        [
            [[0.94, 0.05, 0.01], [0.90, 0.08, 0.02], [0.80, 0.15, 0.05]],
            [[0.75, 0.20, 0.05], [0.60, 0.28, 0.12], [0.40, 0.35, 0.25]],
        ],
        [
            [[0.20, 0.50, 0.30], [0.15, 0.45, 0.40], [0.10, 0.40, 0.50]],
            [[0.10, 0.40, 0.50], [0.08, 0.32, 0.60], [0.05, 0.25, 0.70]],
        ],
    ],
    ("battery", "lights"): [[0.95, 0.03, 0.02], [0.15, 0.80, 0.05], [0.03, 0.22, 0.75]],
    ("starter",): [0.96, 0.04],
    ("weather", "oil"): [[0.98, 0.02], [0.80, 0.20], [0.35, 0.65]],
    ("battery", "starter", "oil", "turns over"): [
        [
            [[0.97, 0.02, 0.01], [0.70, 0.27, 0.03]],
            [[0.05, 0.10, 0.85], [0.03, 0.09, 0.88]],
        ],
        [
            [[0.40, 0.50, 0.10], [0.12, 0.60, 0.28]],
            [[0.03, 0.09, 0.88], [0.02, 0.06, 0.92]],
        ],
        [
            [[0.03, 0.17, 0.80], [0.02, 0.08, 0.90]],
            [[0.02, 0.03, 0.95], [0.01, 0.03, 0.96]],
        ],
    ],
    ("fuel",): [0.93, 0.07],
    ("fuel", "gauge"): [[0.96, 0.04], [0.10, 0.90]],
    ("turns over", "fuel", "starts"): [
        [[0.97, 0.03], [0.04, 0.96]],
        [[0.65, 0.35], [0.03, 0.97]],
        [[0.02, 0.98], [0.01, 0.99]],
    ],
}
names = list(values)
network = MarkovNetwork(
    [len(values[name]) for name in names],
    [([names.index(name) for name in scope], table) for scope, table in tables.items()],
    names,
)
print(network)

# %%
# Evidence
# --------
# On a cold morning the car does not start, and the lights are dim. ``condition`` fixes what was
# seen; the other variables keep the probabilities that they have given that.

seen = {"starts": "no", "lights": "dim", "weather": "cold"}
target = network.condition({name: values[name].index(value) for name, value in seen.items()})

# %%
# Sampling it
# -----------
# A transition changes one variable to another of its values. ``marginals`` counts values, and says
# how far from the truth such a count will be: mcse is its Monte Carlo standard error.

start = time.perf_counter()
sampler = LSBSampler(random_state=0).fit(target)
draws = sampler.sample(10_000, thin="sweep")
found = marginals(draws, target)
free = [name for name in names if name not in seen]
rhat = arviz.rhat(draws.drop_vars("lp").sel(site=free))["x"]
print(f"Sampled in {time.perf_counter() - start:.1f} s; largest R-hat {float(rhat.max()):.4f}")

# %%
# All states
# ----------
# The eleven variables have 10,368 states: few enough to add up their probabilities, without the
# evidence and with it.

states, p_states = exact.states(network), {}
for when, which in ("before", network), ("after", target):
    p_states[when] = exact.probabilities(which)


def enumerated(when, name):
    column = states[:, names.index(name)]
    return np.bincount(column, p_states[when], len(values[name]))


print("                       before  exact  sampled    MCSE")
errors = []
for name in free:
    for rank, value in enumerate(values[name]):
        before, after = (enumerated(when, name)[rank] for when in ("before", "after"))
        p, mcse = (float(found[part].sel(site=name, state=rank)) for part in ("p", "mcse"))
        errors.append((p - after) / mcse)
        print(f"{name:13}{value:8}{before:8.3f}{after:7.3f}{p:9.3f}{mcse:8.4f}")
errors = np.array(errors)
print(f"Largest error: {np.abs(errors).max():.1f} MCSE")

# %%
# The likeliest explanation
# -------------------------
# ``best_state`` is the draw of largest probability: one complete story, which need not consist of
# the likeliest value of each variable.

best = best_state(draws)
for name in free:
    print(f"{name:13}{values[name][int(best['x'].sel(site=name))]}")
top = states[np.argmax(p_states["after"])]
print(f"The likeliest of all states: {np.array_equal(top, best['x'])}")

# %%
# Before and after
# ----------------
# What the evidence does to each variable. A weak battery explains both the dim lights and the
# failing start, so it is the first suspect, most likely because it is old. An empty tank and a
# broken starter are likelier than before, but far behind.

ink, red, teal = "#16324f", "#d1263b", "#2a9d8f"
rows = [(name, rank) for name in free for rank in range(len(values[name]))]
place = np.arange(len(rows)) + np.cumsum([0.6 * (rank == 0) for _, rank in rows])
figure, axis = plt.subplots(figsize=(8, 7), layout="constrained")
for when, shift, colour in (("before", 0.2, "0.8"), ("after", -0.2, teal)):
    bars = [enumerated(when, name)[rank] for name, rank in rows]
    label = f"enumerated, {when} the evidence"
    axis.barh(place - shift, bars, 0.4, color=colour, label=label)
p, mcse = ([float(found[part].sel(site=n, state=r)) for n, r in rows] for part in ("p", "mcse"))
axis.errorbar(
    p, place + 0.2, xerr=3 * np.array(mcse), fmt="o", color=ink, ms=4, label="sampled, ± 3 MCSE"
)
axis.set_yticks(place, [f"{name}: {values[name][rank]}" for name, rank in rows])
axis.invert_yaxis()
axis.set(xlim=(0, 1), xlabel="probability")
axis.set_title("The car does not start, the lights are dim, and it is cold", loc="left")
axis.spines[["top", "right"]].set_visible(False)
figure.legend(frameon=False, loc="outside lower center", ncols=3)

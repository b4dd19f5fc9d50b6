"""Probabilities of three faults of a car, before and after it was seen that it does not start."""

import matplotlib.pyplot as plt
import numpy as np

from sklsb import exact
from sklsb.io import read_model

faults = [("battery", "weak"), ("battery", "flat"), ("fuel", "none")]
plan = exact.prepare(read_model("../../examples/car.bif"))
seen = {
    "before": {},
    "it does not start": {"starts": "no"},
    "... and the lights are bright": {"starts": "no", "lights": "bright"},
}
figure, axis = plt.subplots(figsize=(5, 3.5), layout="constrained")
for k, (label, evidence) in enumerate(seen.items()):
    p = [plan.marginals(evidence)[fault] for fault in faults]
    colour = ("0.8", "#f2a03d", "#2a9d8f")[k]
    axis.bar(np.arange(3) + 0.27 * (k - 1), p, 0.25, color=colour, label=label)
axis.set_xticks(range(3), ["\n".join(fault) for fault in faults])
axis.set(ylim=(0, 0.7), ylabel="probability")
axis.spines[["top", "right"]].set_visible(False)
figure.legend(frameon=False, loc="outside upper left", ncols=3, columnspacing=0.8, handlelength=1)

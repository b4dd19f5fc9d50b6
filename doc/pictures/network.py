"""Probabilities of three faults, before and after it was seen that a car does not start."""

import matplotlib.pyplot as plt
import numpy as np

from sklsb import MarkovNetwork, exact

names = ["battery flat", "tank empty", "starter broken", "lights dim", "does not start"]
starts = np.zeros((2, 2, 2, 2))
starts[..., 1] = [[[0.02, 0.97], [0.98, 0.99]], [[0.9, 0.99], [0.99, 0.99]]]
starts[..., 0] = 1 - starts[..., 1]
network = MarkovNetwork(
    [2] * 5,
    [
        ((0,), [0.9, 0.1]),
        ((1,), [0.93, 0.07]),
        ((2,), [0.96, 0.04]),
        ((0, 3), [[0.95, 0.05], [0.15, 0.85]]),
        ((0, 1, 2, 4), starts),
    ],
    names,
)
seen = {
    "before": {},
    "it does not start": {"does not start": 1},
    "... and the lights are dim": {"does not start": 1, "lights dim": 1},
}
figure, axis = plt.subplots(figsize=(4, 5.6), layout="constrained")
for k, (label, evidence) in enumerate(seen.items()):
    p = exact.marginals(network.condition(evidence))["p"].sel(state=1).values[:3]
    colour = ("0.8", "#f2a03d", "#2a9d8f")[k]
    axis.bar(np.arange(3) + 0.27 * (k - 1), p, 0.25, color=colour, label=label)
axis.set_xticks(range(3), [name.replace(" ", "\n") for name in names[:3]])
axis.set(ylim=(0, 1), ylabel="probability")
axis.spines[["top", "right"]].set_visible(False)
figure.legend(frameon=False, loc="outside upper left")

"""A network coloured by its marginals, before and after it was seen that a car does not start."""

import matplotlib.pyplot as plt
import networkx as nx

from sklsb import exact
from sklsb.diagnostics import to_frame
from sklsb.io import read_model

car = read_model("../../examples/car.bif")
trouble = {"battery": "flat", "fuel": "none", "lights": "off", "starts": "no"}
edges = [("battery", "lights"), ("battery", "starts"), ("fuel", "starts")]
places = {"battery": (0, 1), "fuel": (1, 1), "lights": (0, 0), "starts": (1, 0)}

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for axis, seen in zip(axes, ({}, {"starts": "no"}), strict=True):
    p = to_frame(exact.marginals(car, seen), car).set_index(["variable", "value"])["p"]
    shown = [p[n, trouble[n]] for n in places]
    nx.draw_networkx(
        nx.DiGraph(edges),
        places,
        ax=axis,
        nodelist=list(places),
        node_size=4000,
        node_color=shown,
        cmap="YlOrRd",
        vmin=0,
        vmax=1.3,
        edgecolors="k",
        linewidths=[3 if name in seen else 0.5 for name in places],
        labels={n: f"{n}\n{trouble[n]}: {q:.2f}" for n, q in zip(places, shown, strict=True)},
        font_size=9,
    )
    axis.set_title("the car does not start" if seen else "nothing is seen")
    axis.margins(0.35)
    axis.axis("off")

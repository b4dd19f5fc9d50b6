"""A network of symptoms before and after one of them is known."""

import matplotlib.pyplot as plt
import networkx as nx

from sklsb import Ising, exact, plot

edges = [
    ("sleep", "fatigue", 1.8),
    ("fatigue", "focus", 1.3),
    ("worry", "sleep", 1.1),
    ("worry", "mood", 1.6),
    ("mood", "fatigue", 0.7),
    ("mood", "appetite", 0.9),
]
graph = nx.Graph()
graph.add_weighted_edges_from(edges)
model = Ising.from_binary(graph, -2.0)
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for axis, target in zip(axes, (model, model.condition({"sleep": 1})), strict=True):
    plot.graph(target, exact.marginals(target), layout=nx.circular_layout(graph), ax=axis)

"""Draws of four kinds of targets."""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from sklsb import ClusterSampler, EliminationSampler, Ising, MarkovNetwork, Potts

figure, axes = plt.subplots(1, 4, figsize=(10, 2.8), layout="constrained")
spins = Ising.lattice(np.zeros((64, 64)), coupling=0.44)
labels = Potts.lattice(np.zeros((64, 64, 4)), coupling=1.09)
for axis, target, name in zip(axes, (spins, labels), ("Ising", "Potts"), strict=False):
    draw = ClusterSampler(random_state=0).fit(target).sample(20)["x"][0, -1]
    axis.imshow(draw, cmap="cividis")
    axis.set(title=f"{name}: a critical lattice", xticks=[], yticks=[])

graph = nx.random_geometric_graph(40, 0.25, seed=3)
places = nx.get_node_attributes(graph, "pos")
unequal = [((a, b), 1 - 0.99 * np.eye(4)) for a, b in graph.edges]
cut = 2.0 * nx.to_numpy_array(graph)
targets = {
    "Ising: a large cut": Ising.from_maxcut(cut),
    "MarkovNetwork: colours": MarkovNetwork([4] * 40, unequal),
}
for axis, (title, target) in zip(axes[2:], targets.items(), strict=True):
    x = EliminationSampler(random_state=0).fit(target).sample(1)["x"].values[0, -1]
    crossing = ["0.2" if x[a] != x[b] else "0.85" for a, b in graph.edges]
    nx.draw(graph, places, ax=axis, node_color=x, edge_color=crossing, cmap="viridis", node_size=45)
    axis.set_title(title)

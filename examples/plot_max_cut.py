"""
Maximum cuts
============

Dividing the nodes of a weighted graph in two so that the edges between the halves weigh as much as
possible is an optimisation problem. Drawing cuts with probability proportional to exp(beta times
their weight) turns it into a distribution, which is more peaked the larger beta is.
"""

# %%
# The graph
# ---------
# A grid of 18 x 18 nodes whose edges weigh +1 or -1, by coin flips. A grid this narrow can be
# solved exactly, which shows how close the samplers come.

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from sklsb import Ising, ParallelTempering, anneal, exact

graph = nx.grid_2d_graph(18, 18)
rng = np.random.default_rng(0)
nx.set_edge_attributes(
    graph, {edge: int(rng.choice([-1, 1])) for edge in graph.edges}, "weight"
)
beta = 2.0
target = Ising.from_maxcut(graph, beta)
best = float(exact.most_likely(target)["lp"]) / beta
print(f"{len(graph)} nodes, {graph.size()} edges; the best cut weighs {best:.0f}")

# %%
# The best cut, and good cuts
# ---------------------------
# ``from_maxcut`` keeps the constant of the formula, so log p is beta times the weight of the cut.
# ``anneal`` looks only for the best state: longer runs, and the best of several chains, come
# closer, but only elimination proves that a cut is the best. ``ParallelTempering`` draws good cuts
# in their proportions, and crosses between those that are far apart. There are many best cuts, but
# so many more of the others that at this beta hardly any draw is one, as log Z shows.

annealed = anneal(target, n_sweeps=20_000, random_state=0)
sampler = ParallelTempering(random_state=0).fit(target)
draws = sampler.sample(4000)
weights = draws["lp"] / beta
print(f"annealing: {np.round(annealed['lp'].values / beta).astype(int).tolist()} by chain")
n_best = np.exp(exact.log_partition(Ising.from_maxcut(graph, 100.0)) - 100 * best)
share = n_best * np.exp(beta * best - exact.log_partition(target))
print(f"{n_best:.2g} best cuts, of probability {share:.1g} together")
print(
    f"tempering: best {float(weights.max()):.0f}, mean {float(weights.mean()):.1f}, ", end=""
)
print(f"round trips {sampler.n_round_trips_.tolist()}")

# %%
# What was drawn
# --------------
# Left: the weights of the drawn cuts. Right: the annealed cut. In red, unsatisfied
# edges: of weight 1 but not cut, or of weight -1 but cut.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
left.hist(weights.values.ravel(), bins=np.arange(weights.min() - 0.5, best + 1))
left.axvline(best, color="red", label=f"the best, {best:.0f}")
left.set(title="Weights of the drawn cuts", xlabel="weight")
left.legend()
side = dict(zip(graph, annealed["x"].values[annealed["lp"].values.argmax()], strict=True))
wrong = [(u, v) for u, v, w in graph.edges.data("weight") if (side[u] != side[v]) != (w > 0)]
place = {(row, column): (column, -row) for row, column in graph}
nx.draw(graph, place, right, node_size=25, node_color=list(side.values()), edge_color="0.8")
nx.draw_networkx_edges(graph, place, wrong, ax=right, edge_color="red", width=2)
right.set_title("The annealed cut, unsatisfied edges in red")
plt.show()

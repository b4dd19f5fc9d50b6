"""
Maximum cuts by sampling
========================

Dividing the nodes of a weighted graph in two so that the edges between the halves weigh as much as
possible is an optimisation problem. Sampling cuts with probability proportional to exp(beta times
their weight) turns it into a distribution, the more peaked the larger beta. On a planar graph the
best cut can also be computed, so that one can see how close this comes, and where it gets stuck.
"""

# %%
# The graph
# ---------
# A grid of 20 x 20 nodes whose edges weigh +1 or -1, by coin flips. A cut would best pass through
# all positive edges and no negative one. But it enters a square as often as it leaves it, so that
# around a square with an odd number of positive edges at least one edge is wrong.

import time
import warnings

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from sklsb import Ising, LSBSampler
from sklsb.exceptions import FrozenSitesWarning, SeparatedModesWarning

start = time.perf_counter()
size = 20
graph = nx.grid_2d_graph(size, size)
rng = np.random.default_rng(0)
for one, other in graph.edges:
    graph.edges[one, other]["weight"] = int(rng.choice([-1, 1]))
n_positive = sum(weight == 1 for _, _, weight in graph.edges.data("weight"))
print(f"{len(graph)} nodes, {graph.size()} edges, {n_positive} of them positive")

# %%
# The best cut
# ------------
# Draw a line from square to square across every wrong edge: lines end only in the odd squares, or
# outside of the grid. So the fewest wrong edges are the shortest lines that join these in pairs,
# a matching, which networkx finds. This is special to planar graphs; where there are cycles that no
# squares fill, as on a torus, the matching is only a bound.

squares = nx.Graph()
for (r, c), (s, d) in graph.edges:
    beside = [(r, c), (r - 1, c) if r == s else (r, c - 1)]
    beside = [b if min(b) >= 0 and max(b) < size - 1 else "outside" for b in beside]
    squares.add_edge(*beside)
    if graph.edges[(r, c), (s, d)]["weight"] > 0:
        for square in beside:
            squares.nodes[square]["odd"] = not squares.nodes[square].get("odd", False)
odd = [square for square, is_odd in squares.nodes.data("odd") if is_odd]
pairs = nx.Graph()
for square in odd:
    steps = nx.single_source_shortest_path_length(squares, square)
    pairs.add_weighted_edges_from((square, o, steps[o]) for o in odd if o != square)
matching = nx.min_weight_matching(pairs)
n_wrong = sum(pairs.edges[pair]["weight"] for pair in matching)
best = n_positive - n_wrong
print(
    f"The best cut weighs {best}: {n_wrong} edges are wrong ({time.perf_counter() - start:.1f} s)"
)

# %%
# Sampling at a few temperatures
# ------------------------------
# ``Ising.from_maxcut`` keeps the constant of the formula, so that the log-probability is beta times
# the weight of the cut. Each temperature has four chains that start from noise, burn in for 20
# sweeps and draw for 500. At beta = 2 and 4 chains stay where they are, and sklsb would warn that
# they disagree and that some spins never change: this is a search for the best state, which makes
# no claim to have seen all of them.

warnings.simplefilter("ignore", FrozenSitesWarning)
warnings.simplefilter("ignore", SeparatedModesWarning)

n_sweeps = 500
cuts, states = {}, {}
for beta in (0.5, 1.0, 2.0, 4.0):
    sampler = LSBSampler(
        "barker", n_chains=4, n_burn_in=20 * len(graph), init="uniform", random_state=0
    )
    draws = sampler.fit(Ising.from_maxcut(graph, beta)).sample(n_sweeps, thin="sweep")
    cuts[beta] = np.rint(sampler.sample_stats_["lp"].to_numpy() / beta)
    states[beta] = draws["x"].to_numpy()[np.unravel_index(cuts[beta].argmax(), cuts[beta].shape)]
    print(
        f"beta {beta}: mean weight {cuts[beta].mean():.1f}, best {cuts[beta].max():.0f} "
        f"of {best}; best of each chain {cuts[beta].max(axis=1).astype(int)}"
    )
print(f"{time.perf_counter() - start:.1f} s so far")

# %%
# What it looks like
# ------------------
# The hotter chains move freely and stay far from the best cut. The coldest ones come close, and one
# of the four finds a best cut; the others stay a few edges below, where single changes hardly lead
# out. On the right is the best cut found: nodes by their side, and in red the edges that are wrong.

ink, red, sand = "#16324f", "#d1263b", "#f2a03d"
figure, (trace, drawing) = plt.subplots(1, 2, figsize=(12, 5.6), layout="constrained")
for (beta, values), colour in zip(cuts.items(), ("0.7", sand, "#2a9d8f", ink), strict=True):
    trace.plot(values.T, color=colour, linewidth=0.6)
    trace.plot([], [], color=colour, label=f"beta = {beta:g}")
trace.axhline(best, color=red, label=f"the best cut, {best}")
trace.set(
    title="Weight of the cut, four chains each", xlabel="sweeps after the burn-in", ylim=(30, None)
)
trace.spines[["top", "right"]].set_visible(False)
trace.legend(frameon=False, loc="lower right", ncols=2)

found, beta = max((values.max(), beta) for beta, values in cuts.items())
side = dict(zip(graph, states[beta], strict=True))
wrong = [(u, v) for u, v, w in graph.edges.data("weight") if (side[u] != side[v]) != (w > 0)]
print(f"{len(wrong)} edges of the best cut found are wrong; at least {n_wrong} have to be")
place = {(row, column): (column, -row) for row, column in graph}
nx.draw_networkx_edges(graph, place, ax=drawing, edge_color="0.85")
nx.draw_networkx_edges(graph, place, wrong, ax=drawing, edge_color=red, width=2)
colours = [ink if spin > 0 else sand for spin in side.values()]
nx.draw_networkx_nodes(graph, place, ax=drawing, node_size=30, node_color=colours)
drawing.set(title=f"The best cut found weighs {found:.0f}, with {len(wrong)} wrong edges")
drawing.set_aspect("equal")
drawing.axis("off")

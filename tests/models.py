"""Small targets and balancing functions that the tests share."""

import networkx as nx
import numpy as np
import pytest
from numba import njit

import sklsb
from sklsb._kernels._jit import _OPTIONS, interpreted
from sklsb.balancing import Barker, Lipschitz, Max, Min, Mixture, Network, Sqrt

# The empty graph and all graphs of up to four vertices, connected or not, isolated vertices too.
GRAPHS = [graph for graph in nx.graph_atlas_g() if len(graph) <= 4]
# For kernels of tests, which are compiled in every process.
uncached = (lambda function: function) if interpreted() else njit(**_OPTIONS)
KINDS = ("random", "flat", "ties", "field 0", "field 5", "field 45", "field 700", "field 1e300")


def ising(graph, kind="random", seed=0):
    """An Ising model on a graph.

    All but the kind "random" have parameters whose sums are exact, or far below rounding, so
    that log-ratios are the same however they are summed.
    """
    rng = np.random.default_rng(seed)
    d = len(graph)
    edges = np.triu(nx.to_numpy_array(graph), 1) if d else np.zeros((0, 0))
    if kind == "random":
        couplings, field = edges * rng.standard_normal((d, d)), rng.standard_normal(d)
    elif kind == "flat":
        couplings, field = 0.0 * edges, np.zeros(d)
    elif kind == "ties":
        steps = rng.integers(-2, 3, (d, d))
        couplings, field = edges * (1.0 + 2.0**-52 * steps), 1e-16 * rng.integers(-1, 2, d)
    else:
        couplings = edges * rng.integers(-16, 17, (d, d)) / 8
        field = float(kind.split()[1]) * rng.choice([-1.0, -0.5, 0.5, 1.0], d)
    return sklsb.Ising(couplings + couplings.T, field)


POTTS_KINDS = ("random", "flat", "zeros", "evidence", "field 45", "field 700")


def potts(graph, kind="random", k=3, seed=0):
    """A Potts model on a graph; sums are exact but for "random", "zeros" and "evidence".

    With "zeros" about a third of the values are impossible; with "evidence" all but one of the
    first site's, and of about half of the others'.
    """
    rng = np.random.default_rng(seed)
    d = len(graph)
    edges = np.triu(nx.to_numpy_array(graph), 1) if d else np.zeros((0, 0))
    couplings, field = edges * rng.standard_normal((d, d)), rng.standard_normal((d, k))
    kept = rng.integers(k, size=(d, 1)) == np.arange(k)
    if kind == "flat":
        couplings, field = 0.0 * edges, np.zeros((d, k))
    elif kind == "zeros":
        field[(rng.random((d, k)) < 1 / 3) & ~kept] = -np.inf
    elif kind == "evidence":
        observed = (rng.random(d) < 0.5) | (np.arange(d) == 0)
        field[observed[:, None] & ~kept] = -np.inf
    elif kind != "random":
        couplings = edges * rng.integers(-16, 17, (d, d)) / 8
        field = float(kind.split()[1]) * rng.choice([-1.0, -0.5, 0.5, 1.0], (d, k))
    return sklsb.Potts(couplings + couplings.T, field)


def dense(d, seed=0, scale=1.0):
    """All pairs coupled by real random numbers."""
    rng = np.random.default_rng(seed)
    half = np.triu(scale * rng.standard_normal((d, d)), 1)
    return sklsb.Ising(half + half.T, rng.standard_normal(d))


def chain_network():
    """Eight variables in a row, of which neighbours are mostly equal."""
    equal = [[0.9, 0.1], [0.1, 0.9]]
    factors = [((i, i + 1), equal) for i in range(7)]
    return sklsb.MarkovNetwork([2] * 8, [*factors, ((0,), [0.3, 0.7])])


def mixture_of_products(d, seed=0):
    """A machine of one hidden unit: a broad and a sharp product distribution of equal mass.

    Returns it, and the probabilities of 1 of the sharp and of the broad one.
    """
    rng = np.random.default_rng([7, seed])
    signs = rng.integers(2, size=(2, d))
    size = rng.uniform([[0.6], [0.93]], [[0.75], [0.99]], size=(2, d))
    broad, sharp = np.where(signs, size, 1 - size)
    bias = np.log(broad / (1 - broad))
    weight = np.log(sharp / (1 - sharp)) - bias
    hidden = np.logaddexp(0, bias).sum() - np.logaddexp(0, bias + weight).sum()
    return sklsb.RBM(weight[:, None], bias, [hidden]), sharp, broad


def pairs(ones, others, each=2):
    """Parameters for all pairs of two dicts, or of what is its own name.

    In the commit tier each entry is in two or more, or in as many as are asked for.
    """
    ones, others = (d if isinstance(d, dict) else {one: one for one in d} for d in (ones, others))
    n = max(len(ones), len(others))
    kept = {(k % len(ones), (k + more) % len(others)) for k in range(n) for more in range(each)}
    return [
        pytest.param(
            one, other, id=f"{row}-{column}", marks=() if (i, j) in kept else pytest.mark.slow
        )
        for i, (row, one) in enumerate(ones.items())
        for j, (column, other) in enumerate(others.items())
    ]


def untimed(history):
    """Without the seconds that the phases of a fit took."""
    history = history.copy()
    history.attrs = {k: v for k, v in history.attrs.items() if not k.endswith("_seconds")}
    return history


class RoundedMin(sklsb.BalancingFunction):
    """As a user would write it."""

    def even_part(self, u):
        return -0.5 * (np.hypot(1.0, u) - 1.0)


def _moved(function, size=0.5):
    rng = np.random.default_rng(1)
    return function.with_theta(function.theta + size * rng.standard_normal(function.theta.size))


LEARNABLE = {
    "mixture": _moved(Mixture()),
    "mlp": _moved(Network()),
    "monotone": _moved(Lipschitz(0.5, "knots")),
    "bounded-network": _moved(Lipschitz(1.5, "network")),
}
FUNCTIONS = {
    "barker": Barker(),
    "sqrt": Sqrt(),
    "min": Min(),
    "max": Max(),
    "user": RoundedMin(),
    **LEARNABLE,
}


def content(value):
    """All that an object holds, for comparisons bit for bit."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if hasattr(value, "__dict__"):
        return type(value), {name: content(item) for name, item in vars(value).items()}
    return value

"""Targets of files that need more than their tables."""

from typing import Any

import numpy as np

from sklsb.targets._checks import MOST_VALUES, integer
from sklsb.targets.markov_network import MarkovNetwork


def colorings(graph: tuple[int, list[tuple[int, int]]], n_colors: Any = None) -> MarkovNetwork:
    """Return the uniform distribution of proper colourings; its Z counts them."""
    n, edges = graph
    if n_colors is None:
        raise ValueError(
            "n_colors is missing: give the number of colours of the graph, on the command line as "
            "--colors."
        )
    k = integer(n_colors, "n_colors", 2 if edges else 1, MOST_VALUES)
    different = 1.0 - np.eye(k)
    factors = [((str(a + 1), str(b + 1)), different) for a, b in edges]
    return MarkovNetwork([k] * n, factors, range(1, n + 1))

"""How large the numbers are that log p is a sum of."""

from functools import singledispatch

import numpy as np

from sklsb.targets._graphs import GraphTarget
from sklsb.targets.base import Conditioned, Target
from sklsb.targets.markov_network import MarkovNetwork
from sklsb.targets.rbm import RBM


@singledispatch
def log_prob_size(target: Target) -> float:
    """Return how large the terms of log p are together, at most; 0 if that is not known."""
    return 0.0


@log_prob_size.register
def _(target: Conditioned) -> float:
    return log_prob_size(target.target)


@log_prob_size.register
def _(target: GraphTarget) -> float:
    fields = np.abs(np.where(np.isfinite(target.field), target.field, 0.0))
    with np.errstate(over="ignore"):
        of_sites = np.atleast_2d(fields.T).max(axis=0).sum()
        couplings = 0.5 * np.abs(target.couplings.data).sum()
        return float(of_sites + couplings + abs(target.constant))


@log_prob_size.register
def _(target: MarkovNetwork) -> float:
    if not target.n_factors:
        return 0.0
    sizes = np.abs(np.where(target._log_table > -np.inf, target._log_table, 0.0))
    return float(np.maximum.reduceat(sizes, target._table_start[:-1]).sum())


@log_prob_size.register
def _(target: RBM) -> float:
    parts = target.weights, target.hidden_bias, target.visible_bias
    return float(sum(np.abs(part).sum() for part in parts))

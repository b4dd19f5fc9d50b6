"""What follows from the transition matrix of a sampler on a small target."""

from typing import Any

import numpy as np

from sklsb.exact.enumeration import states
from sklsb.exact.transitions import log_transition_matrix
from sklsb.targets.base import Target
from sklsb.testing._expect import Array


def eigenvalues(sampler: Any, target: Target) -> Array:
    """Eigenvalues of the transition matrix of a reversible chain, in increasing order.

    They are those of the symmetric matrix sqrt(P(x, x') P(x', x)) over the possible states. The
    last is 1. If the first is -1, the chain alternates between two halves of the space.
    """
    possible = target.log_prob(states(target)) > -np.inf
    log_matrix = log_transition_matrix(sampler, target)[np.ix_(possible, possible)]
    return np.linalg.eigvalsh(np.exp(0.5 * (log_matrix + log_matrix.T)))


def spectral_gap(sampler: Any, target: Target) -> float:
    """One minus the second largest absolute eigenvalue; 0 if the chain never forgets its start."""
    others = np.abs(eigenvalues(sampler, target)[:-1])
    return float(1.0 - others.max(initial=0.0))

"""An objective of one's own: the probability that two transitions lead back."""

import math

import numpy as np

from sklsb import Ising, LSBSampler, Mixture
from sklsb.extending import objective
from sklsb.testing import check_objective


@objective("coming back")
def coming_back(t, log_t, log_ratio, stays):
    """T(x, y) T(y, x), which is T(x, y)**2 p(x) / p(y), and its derivative by T(x, y)."""
    back = math.exp(log_t - log_ratio)
    return t * back, 2.0 * back


def example():
    coupling = np.array([[0.0, 0.8, 0.0], [0.8, 0.0, -0.5], [0.0, -0.5, 0.0]])
    return Ising(coupling, field=[0.3, -0.2, 0.6])


if __name__ == "__main__":
    target = example()
    check_objective("coming back", Mixture([0.3, -0.2, 0.5, 0.0]), target)
    sampler = LSBSampler(objective="coming back", n_chains=2, random_state=0).fit(target)
    print(dict(sampler.sample(100)["x"].sizes))

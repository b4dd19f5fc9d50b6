"""An observer: how often each variable changed from one draw to the next."""

import copy

import numpy as np
import xarray as xr

from sklsb import GibbsSampler, Ising
from sklsb.extending import Observer


class Changes(Observer):
    """Counts changes; nothing else is kept of the draws."""

    def init(self, call):
        return None, np.zeros((call.n_chains, call.target.n_sites), dtype=int)

    def see(self, carry, chunk):
        last, count = carry
        x = chunk.x if last is None else np.concatenate([last, chunk.x], axis=1)
        return x[:, -1:], count + (x[:, 1:] != x[:, :-1]).sum(axis=1)

    def result(self, carry):
        return xr.Dataset({"changes": (("chain", "site"), carry[1])})


def example():
    coupling = np.array([[0.0, 0.8, 0.0], [0.8, 0.0, -0.5], [0.0, -0.5, 0.0]])
    return Ising(coupling, field=[0.3, -0.2, 0.6])


if __name__ == "__main__":
    sampler = GibbsSampler("random", n_chains=2, random_state=0).fit(example())
    x = copy.copy(sampler).sample(1000)["x"].values
    found = sampler.sample(1000, record=Changes())
    assert np.array_equal(found["changes"], np.abs(np.diff(x, axis=1)).sum(axis=1) // 2)
    print(dict(found.sizes))

"""A balancing function of one's own: min with its corner rounded."""

import numpy as np

from sklsb import BalancingFunction, Ising, LSBSampler
from sklsb.testing import check_balancing


class RoundedMin(BalancingFunction):
    r"""Min with a rounded corner, :math:`h(u) = -(\sqrt{1 + u^2} - 1) / 2`."""

    def even_part(self, u):
        return -0.5 * (np.hypot(1.0, u) - 1.0)


if __name__ == "__main__":
    check_balancing(RoundedMin())
    target = Ising.lattice(np.full((4, 4), 0.2), coupling=0.3)
    sampler = LSBSampler(RoundedMin(), n_chains=2, n_burn_in=200, random_state=0).fit(target)
    print(dict(sampler.sample(100, thin="sweep")["x"].sizes))

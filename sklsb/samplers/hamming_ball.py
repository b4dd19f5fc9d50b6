"""The Hamming ball sampler."""

from dataclasses import dataclass

from sklsb._kernels.facts import Rule
from sklsb._kernels.rules.hamming_ball import HammingBall
from sklsb.samplers._run.checks import check_count
from sklsb.samplers._run.fixed import FixedRule, FixedRuleBase, check_states, free_sites


class _HammingBall(FixedRule):
    rule_parameters = ("block_size", "radius")
    params: "HammingBallSampler"

    def make_rule(self) -> Rule:
        target, params = self.target, self.params
        size = check_count(params.block_size, "block_size", 1)
        radius = check_count(params.radius, "radius", 1)
        if radius > size:
            raise ValueError(f"radius is {radius}; it must be at most block_size, which is {size}.")
        sites = free_sites(target)
        size = min(size, sites.size)
        rule = HammingBall(sites, size, min(radius, size))
        name = f"HammingBallSampler({params.block_size}, radius={params.radius})"
        check_states(name, rule.n_states(target), "Take a smaller radius or block_size.")
        return rule


@dataclass(eq=False, repr=False)
class HammingBallSampler(FixedRuleBase):
    r"""Hamming ball sampler: only nearby states of a large block are enumerated.

    With x_B the block, d the number of variables in which two states differ and r the radius, a
    transition draws [1]_

    .. math:: u \sim U\{u : d(u, x_B) \le r\}, \qquad
              x_B' \sim p(x_B \mid x_{-B}) \text{ restricted to } d(x_B', u) \le r

    so up to 2 r variables change. It is reversible; with r = block_size it is a Gibbs step.

    Parameters
    ----------
    block_size : int, default=10
        Variables of a block, chosen at random in each transition; at most all.
    radius : int, default=1
        Largest distance r of the centre from the present state, and of the next state from the
        centre; at most ``block_size``. The ball must have at most 4,096 states.
    n_burn_in : int, optional
        Transitions of each chain before the first draw; by default as many sweeps, of n_sites /
        block_size transitions each, as in `GibbsSampler`.
    n_chains, init, n_jobs, random_state, verbose, warm_start, keep_burn_in
        As in `GibbsSampler`.

    Attributes
    ----------
    n_evaluations_ : int
        Log-ratios of changes evaluated so far, over all chains: n - 1 for a ball of n states, and
        up to ``radius`` more for the way to its centre.
    target_, n_sites_, state_, history_, sample_stats_, disagreement_, thin_, burn_in_
        As in `GibbsSampler`.

    Raises
    ------
    ValueError
        In `fit`, if a ball has more than 4,096 states, or a parameter is out of range.

    See Also
    --------
    GibbsSampler : all joint states of smaller blocks.

    References
    ----------
    .. [1] M. K. Titsias and C. Yau, "The Hamming ball sampler", JASA 112 (2017).

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import HammingBallSampler, Ising
    >>> ising = Ising.lattice(np.full((8, 8), 0.2), coupling=0.3)
    >>> sampler = HammingBallSampler(6, radius=2, n_chains=2, random_state=0).fit(ising)
    >>> draws = sampler.sample(1000, thin="sweep")
    >>> dict(draws.sizes)
    {'chain': 2, 'draw': 1000, 'row': 8, 'col': 8}
    """

    _algorithm = _HammingBall

    block_size: int = 10
    radius: int = 1

"""The sampler of exchanges of two values."""

import numbers
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from sklsb._kernels.facts import Rule
from sklsb._kernels.rules.swap import Swap
from sklsb._system.arrays import Ints
from sklsb.balancing.functions import FIXED, BalancingFunction, get_balancing
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.streams import Streams
from sklsb.samplers._run.checks import check_count
from sklsb.samplers._run.fixed import FixedRule, FixedRuleBase, free_sites
from sklsb.targets.base import States, Target
from sklsb.trials.starts import Starts
from sklsb.trials.uphill import noise

# States that show whether a target alone fixes the counts of values.
_SHOWN = 8
# Exchanges tried before a chain starts: per variable, and at most.
_TRIED, _MOST_TRIED = 4, 2048


class _Swap(FixedRule):
    rule_parameters = ("balancing", "n_partners", "lazy")
    way_out = "take more partners (n_partners)"
    params: "SwapSampler"

    def make_rule(self) -> Rule:
        target, params = self.target, self.params
        if isinstance(params.balancing, str) and params.balancing not in FIXED:
            raise ValueError(
                f"balancing is {params.balancing!r}; it must be one of {sorted(FIXED)}, or a "
                "BalancingFunction: SwapSampler learns none."
            )
        function = get_balancing(params.balancing)
        if not (isinstance(params.lazy, numbers.Real) and 0 <= float(params.lazy) < 1):
            raise ValueError(f"lazy is {params.lazy!r}; it must be in [0, 1).")
        sites = free_sites(target)
        n_partners = sites.size
        if params.n_partners is not None:
            n_partners = check_count(params.n_partners, "n_partners", 1)
        values = np.array(target.values, dtype=np.int64)
        rank = np.zeros(values[-1] - values[0] + 1, dtype=np.int64)
        rank[values - values[0]] = np.arange(values.size)
        size = min(n_partners + 1, sites.size)
        return Swap(sites, size, int(values[0]), rank, function.table(), float(params.lazy))

    def make_ensemble(self, states: States, streams: Streams) -> Ensemble:
        _check_counts(states, "the initial states", "Give states with the same counts.")
        return super().make_ensemble(states, streams)

    def make_starts(self, streams: Streams) -> Starts:
        target, rng = self.target, np.random.default_rng(0)
        _check_counts(
            np.stack([target.draw_state(rng) for _ in range(_SHOWN)]),
            "states drawn from the target",
            "Decide by a start: fit(target, initial_states=state).",
        )
        states = np.stack([target.draw_state(rng) for rng in streams.of("start")])
        return self._scattered(states, streams)

    def more_starts(self, ensemble: Ensemble, streams: Streams) -> Starts:
        states = np.tile(self._origin, (len(streams), 1))
        return self._scattered(states, streams)

    def _scattered(self, x: States, streams: Streams) -> Starts:
        """Return the ends of walks from some states, by random exchanges."""
        target, number = self.target, streams.first + np.arange(len(x))
        init = self.params.init
        quenched = (init == "quenched") | ((init in ("auto", "both")) & (number % 2 == 1))
        sites = free_sites(target).astype(np.int64)
        n = min(_TRIED * sites.size, _MOST_TRIED)
        pairs = np.stack([rng.integers(sites.size, size=(n, 2)) for rng in streams.of("start")])
        x, lp = x.copy(), target.log_prob(x)
        for pair in np.moveaxis(sites[pairs], 1, 0):
            trial = _exchanged(target, x, pair)
            there = target.log_prob(trial)
            taken = (there > -np.inf) & (~quenched | (there > lp - noise(lp)))
            x[taken], lp[taken] = trial[taken], there[taken]
        return Starts(x, np.full(len(x), n))

    def burn_in(self, ensemble: Ensemble) -> dict[str, Any]:
        fitted = super().burn_in(ensemble)
        self._origin = ensemble.chains.x[0].copy()
        return fitted

    def third_values(self, x: States) -> float:
        """Return infinity if some values are equal, since then cycles of odd length exist."""
        free = x[0, free_sites(self.target)]
        return 0.0 if np.unique(free).size == free.size else np.inf


@dataclass(eq=False, repr=False)
class SwapSampler(FixedRuleBase):
    r"""Exchanges of two values, for targets whose counts of values are fixed.

    A site i and a set S of ``n_partners`` others are drawn uniformly. Among the sites of S with
    another value than i, a partner j is drawn with probability

    .. math:: Q(j \mid x) = \frac{g(p(x^{ij}) / p(x))}{Z_{iS}(x)}, \qquad
              Z_{iS}(x) = \sum_{j \in S} g\left(\frac{p(x^{ij})}{p(x)}\right)

    where x^ij is x with the values of i and j exchanged, and g is a balancing function [1]_. The
    exchange is accepted with probability min(1, Z_iS(x) / Z_iS(x^ij)), which makes the transition
    exactly reversible.

    Exchanges never change how many variables have each value. So draws are from **p restricted to
    the states that exchanges reach from the start**: an Ising model at the magnetisation of the
    start, a Potts model at its numbers of colours, permutations, sets of a fixed size. Single
    changes cannot move on such states. Exchanges reach all states with the counts of the start if
    none of these is impossible; constraints may leave only some of them within reach.

    Parameters
    ----------
    balancing : {"barker", "sqrt", "min", "max"} or BalancingFunction, default="barker"
        The function g.
    n_partners : int or None, default=4
        Size of S; None, or any number beyond the others, takes them all. A transition evaluates at
        most 2 ``n_partners`` ratios. With 1, it is a Metropolis step.
    lazy : float, default=0.0
        Probability that a transition does nothing. Between permutations that are about equally
        probable, a chain with lazy = 0 alternates between even and odd ones.
    init : {"auto", "both", "uniform", "quenched"}, default="auto"
        Where chains start if `fit` is given no ``initial_states``: at a random state of the
        target, after random exchanges. "uniform" makes all that are possible, "quenched" those
        that do not lower p, and "both" alternates between chains; "auto" means "both" here.
    n_burn_in : int, optional
        Transitions of each chain before the first draw; by default max(5, 2000 / n_sites) sweeps
        of one transition per variable.
    n_chains, n_jobs, random_state, verbose, warm_start, keep_burn_in
        As in `GibbsSampler`.

    Attributes
    ----------
    n_evaluations_ : int
        Log-ratios of exchanges evaluated so far, over all chains.
    sample_stats_ : xarray.Dataset
        lp and acceptance_rate of the draws of the last `sample`.
    target_, n_sites_, state_, history_, disagreement_, burn_in_
        As in `GibbsSampler`.

    Raises
    ------
    ValueError
        In `fit`, if a parameter is out of range; if chains start with different counts of values;
        or if no ``initial_states`` are given and the target leaves the counts open.

    See Also
    --------
    LSBSampler : single changes, proposed according to their effect.
    GibbsSampler : with ``block_size=2``, exchanges and changes of pairs.

    Notes
    -----
    The ratio of an exchange is the product of two: one variable changes, then the other. If the
    state between is impossible, as for permutations, log p is computed as a whole.

    References
    ----------
    .. [1] G. Zanella, "Informed proposals for local MCMC in discrete spaces", JASA 115 (2020).

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Ising, SwapSampler
    >>> ising = Ising.lattice(np.zeros((8, 8)), coupling=0.3)
    >>> start = np.where(np.arange(64) < 16, 1, -1)
    >>> sampler = SwapSampler(n_chains=2, random_state=0).fit(ising, initial_states=start)
    >>> draws = sampler.sample(500, thin="sweep")
    >>> np.unique(draws["x"].sum(("row", "col"), dtype=int)).tolist()
    [-32]
    """

    _algorithm = _Swap
    _objects = {"balancing": "a BalancingFunction"}

    balancing: str | BalancingFunction = "barker"
    _: KW_ONLY
    n_partners: int | None = 4
    lazy: float = 0.0


def _check_counts(states: States, who: str, advice: str) -> None:
    """Refuse states that do not all have the same counts of values."""
    ordered = np.sort(states, axis=1)
    same = (ordered == ordered[:1]).all(axis=1)
    if same.all():
        return
    c = int(same.argmin())
    value = int(ordered[0, (ordered[c] != ordered[0]).argmax()])
    zero, other = (int((states[k] == value).sum()) for k in (0, c))
    raise ValueError(
        "Exchanges never change how many variables have each value, and "
        f"{who} differ in that: {zero} variables have the value {value} in number 0, {other} in "
        f"number {c}. {advice}"
    )


def _exchanged(target: Target, x: States, pair: Ints) -> States:
    """Return states with the values of a pair of variables exchanged, where both take them."""
    row = np.arange(len(x))
    values = x[row[:, None], pair]
    index = np.searchsorted(target.values, values)
    possible = (index[:, ::-1] < target.cardinalities[pair]).all(axis=1)
    trial = x.copy()
    trial[row[possible, None], pair[possible]] = values[possible, ::-1]
    return trial

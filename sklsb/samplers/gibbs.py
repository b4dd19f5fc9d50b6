"""The Gibbs sampler."""

from dataclasses import KW_ONLY, dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sklsb._kernels.facts import Rule
from sklsb._kernels.rules.chromatic import CHROMATIC_NEEDS, Chromatic
from sklsb._kernels.rules.gibbs import RandomBlocks, Systematic
from sklsb._kernels.rules.layers import NEEDS, Layers
from sklsb._system.arrays import Ints
from sklsb.ensembles.compiled import Ensemble
from sklsb.samplers._run.checks import check_count
from sklsb.samplers._run.fixed import (
    FixedRule,
    FixedRuleBase,
    check_needs,
    check_states,
    free_sites,
)
from sklsb.targets._graphs import colors
from sklsb.targets.base import Target

# A fit asks for the classes of a target several times: its sites by class, and where each starts.
_Classes = tuple[NDArray[np.uint32], Ints]
_CLASSES: WeakKeyDictionary[Target, _Classes] = WeakKeyDictionary()
SCANS = ("auto", "systematic", "chromatic", "layers", "random")
# Average number of neighbours up to which variables are swept by colour.
_FEW_NEIGHBOURS = 32


class _Gibbs(FixedRule):
    rule_parameters = ("scan", "block_size")
    params: "GibbsSampler"

    def _scan(self) -> str:
        """Return the scan that the parameters mean."""
        scan = self.params.scan
        if not isinstance(scan, str) or scan not in SCANS:
            raise ValueError(f"scan is {scan!r}; it must be one of {list(SCANS)}.")
        if scan != "auto":
            return scan
        return "random" if self.params.block_size > 1 else sweeps_of(self.target)

    def burn_in(self, ensemble: Ensemble) -> dict[str, Any]:
        return super().burn_in(ensemble) | {"scan_": self._scan()}

    def make_rule(self) -> Rule:
        target, params = self.target, self.params
        size, scan = check_count(params.block_size, "block_size", 1), self._scan()
        if size > 1 and scan in ("chromatic", "layers"):
            raise ValueError(
                f"block_size is {size}, but scan={scan!r} draws variables that do not depend "
                'on each other; use block_size=1, or scan="random" or "systematic".'
            )
        sites = free_sites(target)
        if scan == "chromatic":
            return self._chromatic(sites)
        if scan == "layers":
            return self._layers(sites)
        size = min(size, sites.size)
        chosen = RandomBlocks if scan == "random" else Systematic
        rule = chosen(sites, size)
        if size > 1:
            name = f"GibbsSampler(block_size={params.block_size})"
            advice = "Take a smaller block_size, or HammingBallSampler."
            check_states(name, rule.n_states(target), advice)
        return rule

    def _chromatic(self, sites: NDArray[np.uint32]) -> Rule:
        target, advice = self.target, 'Use scan="random" or "systematic".'
        check_needs("GibbsSampler(scan='chromatic')", target, CHROMATIC_NEEDS, advice)
        if target not in _CLASSES:
            graph = sp.csr_array(target.graph)
            if sites.size < target.n_sites:
                graph = graph[sites][:, sites]
            found = colors(graph)
            start = np.append(0, np.cumsum(np.bincount(found))).astype(np.int64)
            _CLASSES[target] = sites[np.argsort(found, kind="stable")], start
        two_valued = bool((target.cardinalities == 2).all())
        in_order = target.offers.class_view() is not None
        return Chromatic(*_CLASSES[target], two_valued, in_order)

    def _layers(self, sites: NDArray[np.uint32]) -> Rule:
        target = self.target
        name, advice = "GibbsSampler(scan='layers')", "Use another scan, or an RBM."
        check_needs(name, target, NEEDS, advice)
        machine: Any = target.layers
        weight = np.array(machine.weights.T, order="C")  # as in the view, a writable one
        free = np.isin(np.arange(target.n_sites), sites)
        return Layers(weight, np.array(machine.visible_bias), free)


@dataclass(eq=False, repr=False)
class GibbsSampler(FixedRuleBase):
    r"""Gibbs sampler: variables are drawn from their exact distribution given the others.

    .. math:: x_B' \sim p(x_B \mid x_{-B})

    for a block B of one or several variables, by enumeration of its joint states [1]_ [2]_.
    There are no rejections, and nothing is learned.

    Parameters
    ----------
    scan : {"auto", "systematic", "chromatic", "layers", "random"}, default="auto"
        What a transition draws: a sweep, in which each variable is drawn once, or one block.
        "systematic": a sweep in the order of the variables. "chromatic": a sweep by classes of
        conditionally independent variables (a colouring of the target's graph), fastest on sparse
        graphs. These two leave p invariant but are not reversible. "layers", for an `RBM`: all
        hidden units given the visible ones, then all visible units given the hidden ones;
        reversible. "random": one block of random variables; reversible. "auto": "layers" on an
        `RBM`, "chromatic" if variables have at most 32 neighbours on average, else "systematic";
        "random" if a block has several variables.
    block_size : int, default=1
        Variables drawn jointly by the scans "random" and "systematic"; at most all. They must have
        at most 4,096 joint states.
    n_chains : int, default=4
        Number of chains.
    n_burn_in : int, optional
        Transitions of each chain before the first draw; by default max(5, 2000 / n_sites) sweeps.
    init : {"auto", "both", "uniform", "quenched"}, default="auto"
        Where chains start if `fit` is given no ``initial_states``. "uniform": at uniform draws.
        "quenched": at the ends of uphill walks, alternating between the best of many and a distant
        one. "both": chains 0, 2, ... at uniform draws and the others quenched, so that modes
        reached from only one of the two show up as disagreement. "auto": at exact draws, where
        these take no more work than the burn-in, as on targets of few states; elsewhere as "both".
    n_jobs : int, optional
        Number of threads (None is 1, -1 all cores); it never changes a chain.
    random_state : int, SeedSequence, Generator, RandomState or None, default=None
        Seed. The same int gives the same chains, bit for bit.
    verbose : int, default=0
        1 shows a line for each phase, and how long it takes; 2 also one for each chain.
    warm_start : bool, default=False
        Whether another `fit` goes on from the present states and random streams.
    keep_burn_in : bool, default=False
        Whether to keep the states of the burn-in in ``burn_in_``.

    Attributes
    ----------
    target_ : Target
        What was fitted.
    n_sites_ : int
        Number of variables.
    state_ : ndarray of int8 (int16 for values above 127), shape (n_chains, n_sites)
        Present states.
    history_ : xarray.Dataset
        lp by chain at up to 200 iterations of the burn-in.
    scan_ : str
        The scan, if "auto" was to choose it.
    sample_stats_ : xarray.Dataset
        lp of each draw of the last `sample`.
    disagreement_ : xarray.Dataset
        Whether chains and halves of chains agree in all draws since `fit`: see
        `sklsb.diagnostics.disagreement`. Only after enough draws.
    n_evaluations_ : int
        Log-ratios of changes evaluated so far, over all chains: n - 1 for a block of n joint
        states. With "layers", units drawn.
    thin_ : int
        Transitions per draw with ``thin="auto"``, found at the first use.
    burn_in_ : xarray.Dataset
        States of the burn-in, if ``keep_burn_in``.

    Raises
    ------
    TypeError
        In `fit`, if a target has no graph for "chromatic" or no layers for "layers".
    ValueError
        In `fit`, if a block has more than 4,096 joint states, or a parameter is out of range.

    See Also
    --------
    HammingBallSampler : larger blocks; only their nearby states are enumerated.
    LSBSampler : single changes, proposed according to their effect.

    References
    ----------
    .. [1] S. Geman and D. Geman, "Stochastic relaxation, Gibbs distributions, and the Bayesian
       restoration of images", IEEE PAMI 6 (1984).
    .. [2] J. Gonzalez et al., "Parallel Gibbs sampling: from colored fields to thin junction
       trees", AISTATS 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import GibbsSampler, Ising
    >>> ising = Ising.lattice(np.full((8, 8), 0.2), coupling=0.3)
    >>> sampler = GibbsSampler(n_chains=2, random_state=0).fit(ising)
    >>> draws = sampler.sample(1000)
    >>> dict(draws.sizes)
    {'chain': 2, 'draw': 1000, 'row': 8, 'col': 8}
    """

    _algorithm = _Gibbs

    scan: str = "auto"
    _: KW_ONLY
    block_size: int = 1


def is_sparse(target: Target) -> bool:
    """Whether variables have few neighbours on average."""
    graph = target.graph
    return graph is not None and bool(graph.nnz <= _FEW_NEIGHBOURS * target.n_sites)


def sweeps_of(target: Target) -> str:
    """Return the scan of the cheapest sweeps that a target allows."""
    if target.offers.layers is not None:
        return "layers"
    return "chromatic" if is_sparse(target) else "systematic"

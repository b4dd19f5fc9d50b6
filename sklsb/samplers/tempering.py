"""Parallel tempering."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sklsb._system.arrays import Array, Ints
from sklsb._words import worded
from sklsb.diagnostics.stopping import StopRule
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.exports import Normalised
from sklsb.samplers._run.observers import Record, check_record
from sklsb.samplers._tempering.fitting import Tempering
from sklsb.samplers._tempering.ladders import KEPT_SCANS, Ladders
from sklsb.samplers._tempering.levels import AtLevels


@dataclass(eq=False, repr=False)
class ParallelTempering(Normalised, BaseSampler):
    r"""Parallel tempering: replicas at several temperatures that change places.

    A ladder has a replica at each of the inverse temperatures
    :math:`0 = \beta_0 < \dots < \beta_K = 1`, with the distributions

    .. math:: \pi_k(x) \propto p(x)^{\beta_k} q(x)^{1 - \beta_k}

    with a reference q, uniform by default. In a scan each replica makes transitions that leave its
    :math:`\pi_k` invariant; the one at :math:`\beta = 0` is drawn anew from q. Then neighbours swap
    places, even and odd pairs in turn, with probability
    :math:`\min(1, \pi_k(x')\pi_j(x) / (\pi_k(x)\pi_j(x')))` [1]_. If single changes never leave a
    mode, a replica does by going to :math:`\beta = 0` and back. `sample` returns the states at
    :math:`\beta = 1`, whose distribution is exactly the target, or at all temperatures.

    On an `RBM`, layers are drawn at every temperature. There log p of the visible and hidden units
    together is multiplied by beta, and the hidden units are summed out again:

    .. math:: \pi_k(x) \propto q(x)^{1 - \beta_k} \sum_h p(x, h)^{\beta_k}

    At :math:`\beta = 1` that is p(x), and ``log_z_`` is the log Z of the machine.

    In the tables of a `MarkovNetwork` zeros are softened on the way, so that the levels are
    connected: at :math:`\beta < 1` a zero is :math:`m^\beta (1 - \beta)^4` with m the smallest
    other entry of the table.

    Parameters
    ----------
    explorer : "auto" or sampler, default="auto"
        What moves the replicas: a `GibbsSampler`, `HammingBallSampler`, or an `LSBSampler` with a
        fixed function; only its rule is used. "auto" takes ``GibbsSampler("layers")`` on an `RBM`.
        Elsewhere it takes Gibbs sweeps, "chromatic" on sparse graphs. A scan makes one sweep, or
        n_sites / 4 locally balanced steps.
    n_replicas : "auto" or int, default="auto"
        Temperatures of a ladder, at least 2, with one replica at each, or two (``crossover``).
        "auto" finds the number needed, at most 64.
    betas : array_like, optional
        Inverse temperatures from 0 to 1 that every ladder has besides those that `fit` chooses. 1
        is the target: for temperatures T, couplings and fields are divided by the lowest one, and
        betas are min(T) / T. A ladder of these alone has as many ``n_replicas``, with 0 and 1.
    n_chains : int, default=4
        Number of ladders. They share only the temperatures, and so give R-hat and errors.
    reference : array_like of shape (n_sites, n_states), optional
        The distribution at beta = 0, a product over variables: the probability of each value of
        each variable, positive wherever the target allows the value. ``p`` of
        `sklsb.diagnostics.marginals` is one. A data frame goes by its labels. Uniform by default.
        It never changes the target, only the distance to it; a reference narrower than the target
        may miss modes.
    eliminate : "auto", None or int, default="auto"
        Whether variables with few neighbours are summed out, so that replicas are states of the
        others, the *core*: the logarithm to base 2 of the largest table that a variable may be
        summed out of. That lowers the barrier and the cost of a scan. At beta = 1 the variables
        summed out are drawn from their exact distribution given the core. "auto" is 12 on a
        `MarkovNetwork`, also a conditioned one, and None on other targets and with ``betas``; a
        number is for targets made of factors.
    crossover : "auto" or bool, default="auto"
        Whether each ladder has two replicas at every temperature, and those in the colder half
        exchange parts in which they differ [3]_: connected components, in the graph of the target,
        of the variables that differ. That does not change the product of their probabilities, so it
        is never refused. It leads between modes on lattices and other sparse graphs, and does
        nothing if all that differs is connected. Draws come from the two in turn. "auto" tries it
        if variables have at most 32 neighbours on average and ``n_burn_in`` is at least 1,024, and
        keeps it if a part moves in at least a quarter of the exchanges. A scan, and so a draw, then
        takes twice as long; the exchanges are 10 to 30 percent of that.
    n_burn_in : int, optional
        Maximum number of scans of each ladder before the first draw; by default 8192, or fewer, but
        at least 512, for more than 1024 variables, and 64 from a million on; and at most as many,
        but at least 32, as take 2**22 values of a function of Python. Rounds of 16, 32, ...
        scans each choose the temperatures anew until they are good; then they are frozen, and as
        many scans as in the last round follow. A second replica at each temperature repeats these
        scans beyond the burn-in. 0 leaves the states where they start. Where 4,096 states drawn
        from the reference are all impossible, so that no replica gets from beta = 0 to 1, there are
        512 by default; 64 if no single change is possible either.
    init : {"auto", "both", "uniform", "quenched"}, default="both"
        Where the replicas of each ladder start; as the chains of `GibbsSampler`. Whether anything
        needs crossing shows only from starts that are far apart: hence "both".
    n_jobs, random_state
        As in `GibbsSampler`.
    verbose : int, default=0
        1 shows a row for each round of the burn-in, and a line for each phase.
    warm_start : bool, default=False
        Whether another `fit` goes on from the present states, temperatures and random streams.

    Attributes
    ----------
    target_, n_sites_
        As in `GibbsSampler`.
    explorer_ : str
        What moves the replicas.
    crossover_ : bool
        Whether replicas exchange parts.
    exchanged_ : float
        Share of the exchanges in which a part moved since the temperatures were frozen; NaN without
        crossover.
    betas_ : ndarray of shape (n_replicas,)
        Inverse temperatures, from 0 to 1.
    barrier_ : float
        Sum of the rejection rates of all pairs of neighbours: about half the number of replicas
        needed.
    swap_acceptance_ : ndarray of shape (n_replicas - 1,)
        Share of the swaps of each pair that were accepted since the temperatures were frozen.
    n_round_trips_ : ndarray of shape (n_chains,)
        Number of times that a replica of each ladder went from beta = 0 to 1 and back since the
        temperatures were frozen. The error of the draws falls with the square root of their sum.
        With crossover values move between replicas, so round trips of each variable's values are
        counted, and the fewest are given.
    n_visits_ : ndarray of shape (n_chains,)
        Number of independent visits to beta = 1 that the draws of each ladder are worth: the
        squared sum over the sum of squares of the scans that replicas spent there between two times
        at beta = 0. About half the number of round trips, or fewer if a few replicas stay for long;
        with crossover, for the values of the variable with the fewest. The standard error of a
        probability p is about sqrt(p (1 - p) / sum(n_visits_)), or less if the explorer moves
        between modes by itself. 0 before `sample`.
    log_z_, log_z_error_ : float
        Natural logarithm of the sum of exp(log_prob) over all states, by Bennett's acceptance ratio
        [2]_ over all scans since the temperatures were frozen, and its standard error from ladders
        and batches of scans.
    index_process_ : xarray.DataArray
        Level of each replica in the last scans, at most 1,024, of dims (chain, scan, replica). With
        crossover there are twice as many replicas as levels.
    best_state_ : xarray.Dataset
        State of largest log-density that any replica of each ladder was in at a swap, ``x``, with
        its ``lp``. If variables are summed out: the core of largest probability, with the likeliest
        value of each of the others in turn.
    history_ : xarray.Dataset
        Results of the rounds of the burn-in: scans, replicas, barrier, round trips, log Z.
    state_ : ndarray of int8 (int16 for values above 127), shape (n_chains, n_sites)
        Present states at beta = 1.
    sample_stats_ : xarray.Dataset
        lp of each draw of the last `sample`, and its ``visit``: a number shared by the draws that
        one replica made between two times at beta = 0. It is also a coordinate of the draws, for
        `sklsb.diagnostics.marginals`.
    n_evaluations_ : int
        Log-ratios of changes evaluated so far, over all replicas.
    thin_ : int
        As in `GibbsSampler`, by the draws alone: the length of visits does not count.

    Warns
    -----
    TemperingWarning
        Before the work, if the reference hardly ever draws a possible state. Later,
        if there were fewer than ten round trips during `sample`, or none in some ladder; if so in
        `fit`, for ``log_z_``; if the draws are worth fewer than 50 independent visits; if more than
        64 replicas are needed; if zeros of a function may separate the levels. The trips of `fit`
        are checked if ``n_burn_in`` is at least 512.

    See Also
    --------
    EliminationSampler : exact draws, if the variables are loosely connected.
    sklsb.anneal : the maximum of log p alone.

    References
    ----------
    .. [1] S. Syed, A. Bouchard-Côté, G. Deligiannidis and A. Doucet, "Non-reversible parallel
       tempering: a scalable highly parallel MCMC scheme", JRSS B 84 (2022).
    .. [2] C. H. Bennett, "Efficient estimation of free energy differences from Monte Carlo data",
       Journal of Computational Physics 22 (1976).
    .. [3] J. Houdayer, "A cluster Monte Carlo algorithm for 2-dimensional spin glasses",
       European Physical Journal B 22 (2001).

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Ising, ParallelTempering
    >>> ising = Ising.lattice(np.zeros((6, 6)), coupling=0.8)  # all up or all down
    >>> sampler = ParallelTempering(random_state=0).fit(ising)
    >>> draws = sampler.sample(1000)
    >>> up = (draws["x"].mean(("row", "col")) > 0).mean()
    >>> bool(0.4 < up < 0.6)
    True
    """

    _algorithm = Tempering

    explorer: Any = "auto"
    _: KW_ONLY
    n_replicas: int | str = "auto"
    betas: ArrayLike | None = None
    n_chains: int = 4
    reference: ArrayLike | None = None
    eliminate: int | str | None = "auto"
    crossover: bool | str = "auto"
    n_burn_in: int | None = None
    init: str = "both"
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
    warm_start: bool = False

    @worded
    def sample(
        self,
        n: int,
        *,
        temperatures: str | None = None,
        thin: int | str = 1,
        record: Record | None = None,
        store: str | os.PathLike[str] | None = None,
        stop: StopRule | Sequence[StopRule] | None = None,
    ) -> xr.Dataset:
        """Draw from the ladders, which go on from where they are.

        Parameters
        ----------
        n, thin, record, store, stop
            As in `GibbsSampler.sample`. With ``temperatures`` there is no store, and record is
            None or a dict.
        temperatures : None or "all", default=None
            None draws the target. "all" keeps the states at every temperature, or what is recorded
            of them, which the others are not needed for: the draws are the same.

        Returns
        -------
        xarray.Dataset
            As from `GibbsSampler.sample`. With ``temperatures="all"`` there is the dimension
            ``beta`` after chain and draw, also of the coordinates ``lp``, log p as at beta = 1, and
            ``visit``. ``draws.sel(beta=1.0)`` is what a call without it would return.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            As in `GibbsSampler.sample`, or if the levels are not powers of p: with a reference,
            by layers, with softened zeros or a core.

        See Also
        --------
        sklsb.diagnostics.expectation : also at temperatures between, with errors.
        sklsb.diagnostics.specific_heat, sklsb.diagnostics.susceptibility
        sklsb.diagnostics.binder, sklsb.diagnostics.overlaps
        """
        if temperatures is not None:
            ladders, wanted = self._ladders, check_record(record)
            if not (isinstance(temperatures, str) and temperatures == "all"):
                raise ValueError(
                    f'temperatures is {temperatures!r:.100}; give "all", or betas to '
                    "ParallelTempering before fit, and select from all."
                )
            if store is not None or not isinstance(wanted, dict) or "beta" in wanted:
                raise ValueError(
                    f'temperatures is "all", store {store!r} and record {record!r:.100}; at all '
                    "temperatures there is no store, and record is None or a dict of callables, "
                    'none called "beta".'
                )
            if not ladders.tempers:
                raise ValueError(
                    'temperatures is "all", and the levels between are not powers of p. Give '
                    "reference=None and eliminate=None, on an RBM an explorer that is not by "
                    "layers, and a network without zeros except in tables of one variable."
                )
            record = AtLevels(ladders, wanted)
        return super().sample(n, thin=thin, record=record, store=store, stop=stop)

    @property
    def _ladders(self) -> Ladders:
        check_is_fitted(self, "target_")
        return cast(Ladders, self.run_.ensemble)

    @property
    def swap_acceptance_(self) -> Array:
        """Share of accepted swaps of each pair of levels."""
        return 1.0 - self._ladders.rejections

    @property
    def barrier_(self) -> float:
        """Sum of the rejection rates of all pairs of levels."""
        return self._ladders.barrier

    @property
    def exchanged_(self) -> float:
        """Share of the exchanges in which a part moved."""
        return self._ladders.exchanged

    @property
    def n_round_trips_(self) -> Ints:
        """Round trips of the replicas of each ladder."""
        return self._ladders.trips

    @property
    def n_visits_(self) -> Array:
        """Number of independent visits to beta = 1 that the draws of each ladder are worth."""
        return self._ladders.worth

    @property
    def log_z_(self) -> float:
        """Natural logarithm of the sum of exp(log_prob) over all states."""
        return self._ladders.log_z[0]

    @property
    def log_z_error_(self) -> float:
        """Standard error of ``log_z_``."""
        return self._ladders.log_z[1]

    @property
    def index_process_(self) -> xr.DataArray:
        """Level of each replica in the last scans."""
        n_scans, process = self._ladders.n_scans, self._ladders.ladder.process
        scans = np.arange(max(0, n_scans - KEPT_SCANS), n_scans)
        return xr.DataArray(
            process[:, scans % KEPT_SCANS],
            dims=("chain", "scan", "replica"),
            coords={
                "chain": np.arange(len(process)),
                "scan": scans,
                "replica": np.arange(process.shape[2]),
            },
            name="level",
        )

    @property
    def best_state_(self) -> xr.Dataset:
        """State of largest log-density seen in each ladder."""
        target = self.target_
        x, lp = self._ladders.best()
        return xr.Dataset(
            {"x": (("chain", *target.dims), x.reshape(-1, *target.shape))},
            coords={"chain": np.arange(len(x)), **target.coords, "lp": ("chain", lp)},
        )

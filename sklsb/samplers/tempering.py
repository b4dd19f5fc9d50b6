"""Parallel tempering."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from sklsb._kernels.facts import Rule
from sklsb._system.progress import Progress, Told
from sklsb._system.warn import warn
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.streams import Streams
from sklsb.exceptions import TemperingWarning
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.checks import check_count, check_log2_size
from sklsb.samplers._run.starts import Starts, scouted_starts
from sklsb.samplers._run.warnings import isolation
from sklsb.samplers._tempering.core import MOST_LOG2_SIZE, Core, core_of
from sklsb.samplers._tempering.explorers import (
    Trial,
    compare,
    explorers_of,
    is_sparse,
    with_exchanges,
)
from sklsb.samplers._tempering.ladders import KEPT_SCANS, Ladders, fewest, rejection_rates
from sklsb.samplers._tempering.paths import product_of
from sklsb.samplers._tempering.schedule import (
    FIRST_REPLICAS,
    MOST_REPLICAS,
    Tuned,
    tune,
)
from sklsb.samplers._tempering.worth import plain_chains_mix, sweeps_to_meet
from sklsb.targets.base import States, Target

# Warn below these numbers of round trips of all ladders, and of independent visits.
_FEWEST_TRIPS, _FEWEST_VISITS = 10, 50
# Scans of the burn-in by default: at most, scans times variables at most, at least.
_MOST_SCANS, _MOST_SWEPT, _FEWEST_SCANS = 8192, 1 << 23, 512
# The same where so few scans sweep over still more variables, which tempering hardly suits.
_MOST_SWEPT_OF_LARGE, _FEWEST_OF_LARGE = 1 << 26, 64
# Length of the burn-in from which explorers are compared.
_FEWEST_COMPARED = 1024
# Most scans of the burn-in where nothing needs crossing: temperatures for log Z only; and where
# nothing can move.
_NEEDLESS_SCANS, _STUCK_SCANS = 256, 64
# States drawn from the reference to see whether any is possible; 8,192 scans of four ladders would
# draw eight times as many.
_DRAWN = 4096


@dataclass(eq=False, repr=False)
class ParallelTempering(BaseSampler):
    r"""Parallel tempering: replicas at several temperatures that change places.

    A ladder has a replica at each of the inverse temperatures
    :math:`0 = \beta_0 < \dots < \beta_K = 1`, with the distributions

    .. math:: \pi_k(x) \propto p(x)^{\beta_k} q(x)^{1 - \beta_k}

    with a reference q, uniform by default. In a scan each replica makes transitions that leave its
    :math:`\pi_k` invariant; the one at :math:`\beta = 0` is drawn anew from q. Then neighbours swap
    places, even and odd pairs in turn, with probability
    :math:`\min(1, \pi_k(x')\pi_j(x) / (\pi_k(x)\pi_j(x')))` [1]_. If single changes never leave a
    mode, a replica does by going to :math:`\beta = 0` and back. Only states at :math:`\beta = 1`
    are returned, whose distribution is exactly the target.

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
        Elsewhere it takes Gibbs sweeps, "chromatic" on sparse graphs, or, if ``n_burn_in`` is at
        least 1,024 and they make more round trips per evaluation, locally balanced steps,
        ``LSBSampler("sqrt")``. A scan makes one sweep, or n_sites / 4 locally balanced steps.
    n_replicas : "auto" or int, default="auto"
        Temperatures of a ladder, at least 2, with one replica at each, or two (``crossover``).
        "auto" finds the number needed, at most 64.
    n_chains : int, default=4
        Number of ladders. They share only the temperatures, and so give R-hat and errors.
    reference : array_like of shape (n_sites, n_states), optional
        The distribution at beta = 0, a product over variables: the probability of each value of
        each variable, positive wherever the target allows the value. ``p`` of
        `sklsb.diagnostics.marginals` is one. Uniform by default. It never changes the target, only
        the distance to it; a reference narrower than the target may miss modes.
    eliminate : "auto", None or int, default="auto"
        Whether variables with few neighbours are summed out, so that replicas are states of the
        others, the *core*: the logarithm to base 2 of the largest table that a variable may be
        summed out of. That lowers the barrier and the cost of a scan. At beta = 1 the variables
        summed out are drawn from their exact distribution given the core. "auto" is 12 on a
        `MarkovNetwork`, also a conditioned one, and None on other targets; a number is for targets
        made of factors.
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
        at least 512, for more than 1024 variables, and 64 from a million on. Rounds of 16, 32, ...
        scans each choose the temperatures anew until they are good; then they are frozen, and as
        many scans as in the last round follow. A better explorer, or a second replica at each
        temperature, repeats these scans beyond the burn-in. 0 leaves the states where they start.
        Where nothing needs crossing (``met_after_``), there are at most 256 scans, and only the
        first explorer. Where 4,096 states drawn from the reference are all impossible, so that no
        replica gets from beta = 0 to 1, there are 512 by default; 64 if no single change is
        possible either.
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
    candidates_ : xarray.Dataset
        Round trips and evaluations of the explorers compared; with "auto" and an ``n_burn_in`` of
        at least 1,024.
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
        Number of times that a replica of each ladder went from beta = 0 to 1 and back since then.
        The error of the draws falls with the square root of their sum. With crossover values move
        between replicas, so round trips of values are counted, and those of the variable with the
        fewest are given.
    n_visits_ : ndarray of shape (n_chains,)
        Number of independent visits to beta = 1 that the draws of each ladder are worth: the
        squared sum over the sum of squares of the scans that replicas spent there between two times
        at beta = 0. About half the number of round trips, or fewer if a few replicas stay for long;
        with crossover, of the values of the variable with the fewest. The standard error of a
        probability p is about sqrt(p (1 - p) / sum(n_visits_)), or less if the explorer moves
        between modes by itself. 0 before `sample`.
    log_z_, log_z_error_ : float
        Natural logarithm of the sum of exp(log_prob) over all states, by Bennett's acceptance ratio
        [2]_ over all scans since then, and its standard error from ladders and batches of scans.
    index_process_ : xarray.DataArray
        Level of each replica in the last scans, at most 1,024, of dims (chain, scan, replica). With
        crossover there are twice as many replicas as levels.
    best_state_ : xarray.Dataset
        State of largest log-density that any replica of each ladder was in at a swap, ``x``, with
        its ``lp``. If variables are summed out: the core of largest probability, with the likeliest
        value of each of the others in turn.
    met_after_ : int or None
        Sweeps within which chains from all states met when they took the same random numbers: then
        plain chains soon forget where they started, and there are no modes to cross. Looked for
        four times, in 50 sweeps each and 100 in all, if ``n_burn_in`` is at least 512 and the
        target is an `Ising` or `Potts` model on a sparse graph, also with evidence. None if they
        did not meet each time, or it was not looked for.
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
        64 replicas are needed; if zeros of a function may separate the levels; if nothing needs
        crossing (then trips and visits matter to ``log_z_`` only), or plain chains do as well. The
        last two, and the trips of `fit`, are checked if ``n_burn_in`` is at least 512.

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

    explorer: Any = "auto"
    _: KW_ONLY
    n_replicas: int | str = "auto"
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

    _ensemble: Ladders = field(init=False)
    _way_out = "give the ladders more scans in fit, n_burn_in, or more n_replicas"
    _can_follow = False  # temperatures and round trips belong to one log p

    def check_parameters(self, target: Target) -> None:
        if not isinstance(self.n_replicas, str):
            check_count(self.n_replicas, "n_replicas", 2)
        elif self.n_replicas != "auto":
            raise ValueError(
                f'n_replicas is {self.n_replicas!r}; give a number of at least 2, or "auto".'
            )
        check_log2_size(self.eliminate, "eliminate", MOST_LOG2_SIZE, target)
        if not isinstance(self.crossover, bool | np.bool_) and self.crossover != "auto":
            raise ValueError(f'crossover is {self.crossover!r}; give "auto", True or False.')
        if self.reference is not None:
            product_of(self.reference, target)
        self._core: Core | None = core_of(target, self.eliminate)
        if self._n_copies == 2 and self._inner(target).graph is None:
            raise ValueError(
                f"crossover is True, and {type(target).__name__} does not say which of its "
                'variables depend on each other (its graph is None); give crossover="auto" or '
                "False."
            )
        self._explorers(target)

    def _explorers(self, target: Target) -> dict[str, Rule]:
        """Return the candidate explorers by name; the first one chooses the temperatures."""
        return explorers_of(self.explorer, self._inner(target))

    def _inner(self, target: Target) -> Target:
        """Return the target of the replicas: the core's network, or the target itself."""
        core = self._present_core
        return core.network if core else target

    @property
    def _n_copies(self) -> int:
        """Replicas at each temperature to begin with."""
        return 1 + (self.crossover != "auto" and bool(self.crossover))

    def make_starts(self, target: Target, streams: Streams) -> Starts:
        """Draw one starting state for all replicas of each ladder, as for plain chains.

        Replicas that all start in one mode never find another whose basin is small at every
        temperature, however often they cross; ladders that start in both disagree.
        """
        rule = self._plain(target)

        def new_ensemble(target: Target, states: States, streams: Streams) -> Ensemble:
            return Ensemble(target, states, streams, self._effective_n_jobs(), rule)

        of_sweep = int((target.cardinalities - 1).sum())
        budget = self._length(target) * of_sweep // 4, of_sweep
        return scouted_starts(self, target, streams, rule, budget, new_ensemble)

    def _plain(self, target: Target) -> Rule:
        """Return the rule of plain chains on the whole target."""
        given = "auto" if self._present_core else self.explorer
        return next(iter(explorers_of(given, target).values()))

    @property
    def _present_core(self) -> Core | None:
        return self._core if hasattr(self, "_core") else self._ensemble.core

    def _length(self, target: Target) -> int:
        """Return the number of scans of the burn-in."""
        if self.n_burn_in is not None:
            return int(self.n_burn_in)
        n_sites = max(1, self._inner(target).n_sites)
        fewest = np.clip(_MOST_SWEPT_OF_LARGE // n_sites, _FEWEST_OF_LARGE, _FEWEST_SCANS)
        return int(np.clip(_MOST_SWEPT // n_sites, fewest, _MOST_SCANS))

    def _n_values(self, target: Target) -> int:
        of_scan = self.n_chains * FIRST_REPLICAS * int((target.n_possible - 1).sum())
        return min(self._length(target), _FEWEST_SCANS) * of_scan

    def _fit(self, target: Target, initial_states: ArrayLike | None) -> None:
        self._going_on = initial_states is None and self.warm_start
        try:
            super()._fit(target, initial_states)
        finally:
            del self._going_on
            self.__dict__.pop("_core", None)

    def make_ensemble(self, target: Target, states: States, streams: Streams) -> Ladders:
        old: Ladders | None = getattr(self._before, "_ensemble", None)
        beta = np.linspace(0.0, 1.0, FIRST_REPLICAS) if old is None else old.beta
        core, again = self._core, old is not None and old.target is target and self._going_on
        product = None if self.reference is None else product_of(self.reference, target)
        own = core.of(states) if core else states
        n_copies = old.n_copies if again and old and self.crossover == "auto" else self._n_copies
        replicas = np.tile(own[:, np.newaxis, np.newaxis], (1, n_copies, beta.size, 1))
        if again and old and old.states.shape == replicas.shape:
            replicas = old.states
        rule, n_jobs = next(iter(self._explorers(target).values())), self._effective_n_jobs()
        product = core.reference(product) if core else product
        made = Ladders(target, replicas, streams, rule, beta, n_jobs, product, core)
        made.put(states)
        return made

    def _copies(self, streams: Streams) -> Ladders:
        """Return ladders whose replicas go on from where they are."""
        made = self._ensemble.changed(self._ensemble.states, streams)
        made.put(self._ensemble.chains.x)
        return made

    def burn_in_length(self) -> int:
        return int(self.history_["scans"].sum())

    def _after_burn_in(self) -> None:
        super()._after_burn_in()
        self._ensemble.forget_scans()
        self._trips_before = 0

    def burn_in(self, target: Target, ensemble: Ladders) -> dict[str, Any]:
        n_replicas = None if self.n_replicas == "auto" else int(self.n_replicas)
        length = self._length(target)
        given = self.n_burn_in is not None or ensemble.softened
        if separated := not given and not ensemble.reaches(_DRAWN):
            isolated = isolation(target, ensemble.chains.x, ensemble.rule.explorer)
            length = _STUCK_SCANS if isolated else _FEWEST_SCANS
            self._warn_of_separation(length, isolated)
        checked = length >= _FEWEST_SCANS
        met = sweeps_to_meet(ensemble) if checked else None
        if met is not None:
            length = _NEEDLESS_SCANS
        with Told(self.verbose) as told:
            done = tune(ensemble, n_replicas, length, told)
            ladders, tried = self._choose(done, length)
        # The caller goes on with its own object.
        ensemble.__dict__.update(ladders.__dict__)
        plain = self._plain(target) if ensemble.core else ensemble.rule.explorer
        scans = sum(row["scans"] for row in done.rounds)
        needless = False
        if met is None and checked and not separated:
            with Progress(self.verbose, "plain chains"):
                needless = plain_chains_mix(ensemble, plain, scans)
        history = {name: ("round", [row[name] for row in done.rounds]) for name in done.rounds[0]}
        return {
            **tried,
            "crossover_": ladders.n_copies == 2,
            "betas_": ladders.beta.copy(),
            "history_": xr.Dataset(history, coords={"round": np.arange(len(done.rounds))}),
            "_capped": done.capped,
            "met_after_": met,
            "_needless": needless,
            "_separated": separated,
        }

    def _warn_of_separation(self, length: int, isolated: str) -> None:
        """Warn before the work if only explorers may move the replicas, or nothing."""
        advice = isolated or (
            " Draws are right only if single changes lead everywhere, as from GibbsSampler; "
            "log_z_ is not found."
        )
        warn(
            TemperingWarning(
                f"All of {_DRAWN} states drawn from the reference are impossible, so replicas will "
                f"not get from beta = 0 to 1, and fit makes only {length} scans.{advice} Or give a "
                "reference that draws possible states, or n_burn_in for more scans."
            )
        )

    def _settle(self, ensemble: Ladders, fitted: dict[str, Any]) -> Ladders:
        # Scans before the first draw must not vouch for draws; they do count for log Z.
        ensemble.forget_visits()
        fitted["_trips_before"] = ensemble.trips_by_value
        return ensemble

    def _choose(self, done: Tuned, length: int) -> tuple[Ladders, dict[str, Any]]:
        """Compare explorers at the temperatures found, if the burn-in is long enough."""
        ladders, last = done.ladders, done.rounds[-1]
        rules = self._explorers(ladders.target)
        name, *others = rules
        if length < _FEWEST_COMPARED:
            return ladders, {"explorer_": name}
        first = Trial(last["round_trips"], done.work, last["scans"])
        ladders, chosen, trials = compare(ladders, first, {other: rules[other] for other in others})
        trials = {name: first} | trials
        if self.crossover == "auto" and ladders.n_copies == 1 and is_sparse(ladders.inner):
            ladders = with_exchanges(ladders, last["scans"], len(others))
        counts = {
            count: ("explorer", [getattr(trial, count) for trial in trials.values()])
            for count in ("round_trips", "evaluations")
        }
        found = xr.Dataset(counts, coords={"explorer": list(trials)})
        return ladders, {"explorer_": chosen or name, "candidates_": found}

    @property
    def swap_acceptance_(self) -> NDArray[np.float64]:
        """Share of accepted swaps of each pair of levels."""
        check_is_fitted(self, "target_")
        return 1.0 - self._ensemble.rejections

    @property
    def barrier_(self) -> float:
        """Sum of the rejection rates of all pairs of levels."""
        return float((1.0 - self.swap_acceptance_).sum())

    @property
    def exchanged_(self) -> float:
        """Share of the exchanges in which a part moved."""
        check_is_fitted(self, "target_")
        return self._ensemble.exchanged

    @property
    def n_round_trips_(self) -> NDArray[np.int64]:
        """Round trips of the replicas of each ladder."""
        check_is_fitted(self, "target_")
        return self._ensemble.trips

    @property
    def n_visits_(self) -> NDArray[np.float64]:
        """Number of independent visits to beta = 1 that the draws of each ladder are worth."""
        check_is_fitted(self, "target_")
        return self._ensemble.worth

    def _log_z(self) -> tuple[float, float]:
        check_is_fitted(self, "target_")
        ladders = self._ensemble
        ratio, error = ladders.batches.log_ratio(ladders.ladder.bennett)
        return ratio + ladders.log_z_before, error

    @property
    def log_z_(self) -> float:
        """Natural logarithm of the sum of exp(log_prob) over all states."""
        return self._log_z()[0]

    @property
    def log_z_error_(self) -> float:
        """Standard error of ``log_z_``."""
        return self._log_z()[1]

    @property
    def index_process_(self) -> xr.DataArray:
        """Level of each replica in the last scans."""
        check_is_fitted(self, "target_")
        n_scans, process = self._ensemble.n_scans, self._ensemble.ladder.process
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
        check_is_fitted(self, "target_")
        target = self.target_
        x, lp = self._ensemble.best()
        return xr.Dataset(
            {"x": (("chain", *target.dims), x.reshape(-1, *target.shape))},
            coords={"chain": np.arange(len(x)), **target.coords, "lp": ("chain", lp)},
        )

    def plot_index_process(self, ax: Any = None, *, chain: int = 0, n_scans: int = 256) -> Any:
        """Draw the level of each replica of a ladder over the last scans.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        chain : int, default=0
            Number of the ladder.
        n_scans : int, default=256
            Number of scans.

        Returns
        -------
        matplotlib Axes
        """
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(layout="constrained")[1]
        found = self.index_process_.sel(chain=chain).isel(scan=slice(-n_scans, None))
        for replica in found["replica"].to_numpy():
            ax.plot(found["scan"], found.sel(replica=replica), linewidth=0.8)
        ax.set(xlabel="scan", ylabel="level of each replica (the last is beta = 1)")
        return ax

    def warn_about_fit(self) -> None:
        def tell(message: str, needless: bool = False) -> None:
            warn(TemperingWarning(message, needless))

        if self.met_after_ is not None:
            tell(
                "Tempering is not worth it here: chains from all states that take the same random "
                f"numbers met within {self.met_after_} sweeps, so there are no modes to cross. Use "
                "GibbsSampler('chromatic'). The burn-in was cut short; for log_z_ go on until "
                f"n_round_trips_, {int(self.n_round_trips_.sum())} in all, are {_FEWEST_TRIPS} at "
                "least.",
                needless=True,
            )
            return
        if self._capped:
            tell(
                f"The temperatures take more than {MOST_REPLICAS} replicas (barrier "
                f"{self.barrier_:.3g}): swaps are refused often. See n_round_trips_ before you "
                "trust the draws; n_replicas sets a larger number."
            )
        if self._needless:
            tell(
                "Tempering is not worth it here: plain chains agree, and take less work for an "
                f"independent draw than {self.betas_.size} replicas do. Use the explorer by "
                "itself, as GibbsSampler, unless you want log_z_.",
                needless=True,
            )
        if self._separated:  # fit has said so
            return
        long = self.n_burn_in is None or self._length(self.target_) >= _FEWEST_SCANS
        if long and _too_few(trips := self.n_round_trips_):
            told = _told_trips(trips, self._ensemble.batches.n_draws, self.barrier_)
            tell(
                f"{told} at the end of fit: {_worth(trips, 'log_z_')}. sample goes on with it, so "
                "see n_round_trips_ after that; or take another sampler."
            )
        if self._ensemble.ladder.impossible.any() and not self._ensemble.softened:
            tell(
                "log p is -inf at some states, which stays so at every temperature but the first: "
                "replicas may be unable to move between parts of the space. Where that may be, "
                "give such states a small probability, or a MarkovNetwork, whose zeros are "
                "softened."
            )

    def _findings(self) -> dict[str, NDArray[Any]]:
        ladders = self._ensemble
        return {
            "trips": fewest(ladders.trips_by_value - self._trips_before),
            "trips_of_all": self.n_round_trips_,
            "visits": self.n_visits_,
            "rejected": ladders.ladder.rejected,
            "tried": ladders.ladder.tried,
            "scans": np.full(len(ladders), ladders.counters.n_transitions),
        }

    def _warn_of(self, findings: dict[str, NDArray[Any]]) -> None:
        trips, visits = findings["trips"], findings["visits"].sum()
        barrier = rejection_rates(findings["rejected"], findings["tried"]).sum()
        of = "the draws or log_z_" if _too_few(findings["trips_of_all"]) else "the draws"
        if self.met_after_ is not None:  # then draws do without round trips, but not log Z
            trips, visits, of = findings["trips_of_all"], np.inf, "log_z_"
        if _too_few(trips):
            found = f"{_told_trips(trips, findings['scans'][0], barrier)}: {_worth(trips, of)}"
        elif visits < _FEWEST_VISITS:
            found = (
                f"The draws are worth about {visits:.1f} independent visits of beta = 1 "
                "(n_visits_): a probability near 1/2 has a standard error of about "
                f"{0.5 / np.sqrt(visits):.2g}, whatever the effective sample size looks like"
            )
        else:
            return
        warn(f"{found}. Draw for longer, or take another sampler.", TemperingWarning)


def _too_few(trips: NDArray[np.int64]) -> bool:
    return bool(trips.min() == 0 or trips.sum() < _FEWEST_TRIPS)


def _told_trips(trips: NDArray[np.int64], n_scans: int, barrier: float) -> str:
    without = int((trips == 0).sum())
    return (
        f"{int(trips.sum())} round trips between beta = 0 and 1 in {n_scans} scans"
        + (f", and none in {without} of {trips.size} ladders" if without else "")
        + f" (barrier {barrier:.3g})"
    )


def _worth(trips: NDArray[np.int64], of: str) -> str:
    if trips.min() == 0:
        return f"do not trust {of}"
    return f"{of} may be off by more than the stated errors"

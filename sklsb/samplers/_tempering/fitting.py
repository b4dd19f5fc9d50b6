"""The fit of `ParallelTempering`: temperatures, copies, and what they show."""

from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sklsb._kernels.facts import Rule
from sklsb._system.arrays import Array, Ints
from sklsb._system.progress import Told
from sklsb._system.warn import warn
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.streams import Streams
from sklsb.exceptions import TemperingWarning
from sklsb.samplers._run.algorithm import Algorithm
from sklsb.samplers._run.checks import check_count, check_log2_size
from sklsb.samplers._run.run import Run
from sklsb.samplers._run.warnings import isolation
from sklsb.samplers._tempering.core import MOST_LOG2_SIZE, Core, core_of
from sklsb.samplers._tempering.explorers import explorer_of, with_exchanges
from sklsb.samplers._tempering.ladders import Ladders, fewest, rejection_rates
from sklsb.samplers._tempering.paths import product_of
from sklsb.samplers._tempering.schedule import ENDS, FIRST_REPLICAS, MOST_REPLICAS, Tuning
from sklsb.samplers.gibbs import is_sparse
from sklsb.storage.fingerprint import difference, fingerprint
from sklsb.targets._checks import real_array
from sklsb.targets.base import States, Target
from sklsb.trials.starts import Starts, scouted_starts

# Warn below these numbers of round trips of all ladders, and of independent visits.
_FEWEST_TRIPS, _FEWEST_VISITS = 10, 50
# Betas that are closer are one and the same but for rounding.
_CLOSEST = 1e-12
# Scans of the burn-in by default: at most, scans times variables at most, at least.
_MOST_SCANS, _MOST_SWEPT, _FEWEST_SCANS = 8192, 1 << 23, 512
# The same where so few scans sweep over still more variables, which tempering hardly suits.
_MOST_SWEPT_OF_LARGE, _FEWEST_OF_LARGE = 1 << 26, 64
# At least so many, however many values of a function of Python they take.
_FEWEST_ASKED = 32
# Length of the burn-in from which two replicas at each temperature are tried.
_FEWEST_TRIED = 1024
# Most scans of the burn-in where nothing can move.
_STUCK_SCANS = 64
# States drawn from the reference to see whether any is possible; 8,192 scans of four ladders would
# draw eight times as many.
_DRAWN = 4096


class Tempering(Algorithm):
    """The fit of `ParallelTempering`."""

    way_out = "give the ladders more scans in fit, n_burn_in, or more n_replicas"
    _trips_before: Ints | int = 0  # of each value, before the first draw
    can_follow = False  # temperatures and round trips belong to one log p

    def check_parameters(self) -> None:
        target, params = self.target, self.params
        if not isinstance(params.n_replicas, str):
            check_count(params.n_replicas, "n_replicas", 2)
        elif params.n_replicas != "auto":
            raise ValueError(
                f'n_replicas is {params.n_replicas!r}; give a number of at least 2, or "auto".'
            )
        kept = self._kept()
        if not isinstance(params.n_replicas, str) and params.n_replicas < kept.size:
            raise ValueError(
                f"n_replicas is {params.n_replicas}, and betas with 0 and 1 are {kept.size}; give "
                f'n_replicas="auto", or at least {kept.size}.'
            )
        check_log2_size(params.eliminate, "eliminate", MOST_LOG2_SIZE, target)
        if not isinstance(params.crossover, bool | np.bool_) and params.crossover != "auto":
            raise ValueError(f'crossover is {params.crossover!r}; give "auto", True or False.')
        if params.reference is not None:
            product_of(params.reference, target)
        if self._n_copies == 2 and self._inner.graph is None:
            raise ValueError(
                f"crossover is True, and {type(target).__name__} does not say which of its "
                'variables depend on each other (its graph is None); give crossover="auto" or '
                "False."
            )
        self._explorer()

    def _kept(self) -> Array:
        """Return the betas that the ladder must have, with 0 and 1."""
        given = self.params.betas
        if given is None:
            return ENDS
        betas = real_array(given, "betas").astype(np.float64)
        if betas.ndim != 1 or not ((betas >= 0.0) & (betas <= 1.0)).all():
            raise ValueError(
                f"betas is {given!r:.200}; give a list of numbers from 0 to 1, where 1 is the "
                "target itself: the coldest of your temperatures over each of them."
            )
        kept = np.union1d(betas, ENDS)
        if (close := np.diff(kept) < _CLOSEST).any():
            raise ValueError(
                f"betas with 0 and 1 has {kept[:-1][close].tolist()} and, less than {_CLOSEST:g} "
                f"above, {kept[1:][close].tolist()}; give each once, and the target as 1."
            )
        return kept

    def _explorer(self) -> tuple[str, Rule]:
        """Return the name and the rule of what moves the replicas."""
        return explorer_of(self.params.explorer, self._inner)

    @cached_property
    def _core(self) -> Core | None:
        """What is left of the target where variables are summed out."""
        params = self.params
        whole = params.eliminate == "auto" and params.betas is not None
        return core_of(self.target, None if whole else params.eliminate)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_core"}

    @property
    def _inner(self) -> Target:
        """The target of the replicas: the core's network, or the target itself."""
        return self._core.network if self._core else self.target

    @property
    def _n_copies(self) -> int:
        """Replicas at each temperature to begin with."""
        crossover = self.params.crossover
        return 1 + (crossover != "auto" and bool(crossover))

    def make_starts(self, streams: Streams) -> Starts:
        """Draw one starting state for all replicas of each ladder, as for plain chains.

        Replicas that all start in one mode never find another whose basin is small at every
        temperature, however often they cross; ladders that start in both disagree.
        """
        rule = self._plain()

        def new_ensemble(states: States, streams: Streams) -> Ensemble:
            return Ensemble(self.target, states, streams, self.n_threads, rule)

        of_sweep = self.target.offers.n_moves
        budget = self._length() * of_sweep // 4, of_sweep
        return scouted_starts(self.target, self.params, streams, rule, budget, new_ensemble)

    def _plain(self) -> Rule:
        """Return the rule of plain chains on the whole target."""
        given = "auto" if self._core else self.params.explorer
        return explorer_of(given, self.target)[1]

    def _length(self) -> int:
        """Return the number of scans of the burn-in."""
        if self.params.n_burn_in is not None:
            return int(self.params.n_burn_in)
        return self.at_most(self._usual, self._of_scan, _FEWEST_ASKED)

    @property
    def _usual(self) -> int:
        """Most scans of a burn-in by default."""
        n_sites = max(1, self._inner.n_sites)
        fewest = np.clip(_MOST_SWEPT_OF_LARGE // n_sites, _FEWEST_OF_LARGE, _FEWEST_SCANS)
        return int(np.clip(_MOST_SWEPT // n_sites, fewest, _MOST_SCANS))

    @property
    def _of_scan(self) -> int:
        """Values of a function in a scan of all ladders."""
        return self.params.n_chains * FIRST_REPLICAS * int((self.target.n_possible - 1).sum())

    def n_values(self) -> int:
        return min(self._length(), _FEWEST_SCANS) * self._of_scan

    def cut(self) -> str:
        done = self._length()
        if self.params.n_burn_in is not None or done >= min(self._usual, _FEWEST_SCANS):
            return ""
        return (
            f"as it is, it makes {done} scans of each ladder at most, instead of {self._usual}; "
            "n_burn_in makes it longer."
        )

    def fit(self, initial_states: ArrayLike | None) -> tuple[Run, dict[str, Any]]:
        self._going_on = initial_states is None and self.before is not None
        return super().fit(initial_states)

    def make_ensemble(self, states: States, streams: Streams) -> Ladders:
        params, target, core = self.params, self.target, self._core
        old: Any = None if self.before is None else self.before.ensemble
        beta = np.linspace(0.0, 1.0, FIRST_REPLICAS) if old is None else old.beta
        again = self._going_on and old is not None and _is_same(old, target)
        product = None if params.reference is None else product_of(params.reference, target)
        own = core.of(states) if core else states
        n_copies = old.n_copies if again and params.crossover == "auto" else self._n_copies
        replicas = np.tile(own[:, np.newaxis, np.newaxis], (1, n_copies, beta.size, 1))
        if again and old.states.shape == replicas.shape:
            replicas = old.states
        rule = self._explorer()[1]
        product = core.reference(product) if core else product
        made = Ladders(target, replicas, streams, rule, beta, self.n_threads, product, core)
        made.put(states)
        return made

    def copies(self, ensemble: Ladders, streams: Streams) -> Ladders:
        """Return ladders whose replicas go on from where they are."""
        made = ensemble.changed(ensemble.states, streams)
        made.put(ensemble.chains.x)
        return made

    def burn_in_length(self) -> int:
        return self._n_scans

    def after_burn_in(self, ensemble: Ladders) -> None:
        super().after_burn_in(ensemble)
        ensemble.forget_scans()
        self._trips_before = 0

    def burn_in(self, ensemble: Ladders) -> dict[str, Any]:
        params, file = self.params, self.checkpoint
        tuning: Tuning = file.kept.get("loop") or self._tuning(ensemble)

        def state() -> dict[str, Any]:
            return {"ensemble": tuning.ladders, "loop": tuning}

        with Told(params.verbose) as told, file.loop(state) as between:
            tuning.run(told, between)
            ladders, last = tuning.ladders, tuning.rounds[-1]["scans"]
            tries = params.crossover == "auto" and tuning.n_burn_in >= _FEWEST_TRIED
            if tries and ladders.n_copies == 1 and is_sparse(ladders.inner):
                ladders = with_exchanges(ladders, last, lambda made: between())
                if ladders is not tuning.ladders:
                    tuning.ladders, tuning.part = ladders, 0
            tuning.settle(last, between)
        # The caller goes on with its own object.
        ensemble.__dict__.update(ladders.__dict__)
        rows = tuning.rounds
        history = {name: ("round", [row[name] for row in rows]) for name in rows[0]}
        self._n_scans = sum(row["scans"] for row in rows)
        self._capped, self._separated = tuning.capped, tuning.separated
        return {
            "explorer_": self._explorer()[0],
            "crossover_": ladders.n_copies == 2,
            "betas_": ladders.beta.copy(),
            "history_": xr.Dataset(history, coords={"round": np.arange(len(rows))}),
        }

    def _tuning(self, ensemble: Ladders) -> Tuning:
        """Return what chooses the temperatures."""
        params, length = self.params, self._length()
        n_replicas = None if params.n_replicas == "auto" else int(params.n_replicas)
        given = params.n_burn_in is not None or ensemble.softened
        if separated := not given and not ensemble.reaches(_DRAWN):
            isolated = isolation(self.target, ensemble.chains.x, ensemble.rule.explorer)
            length = min(length, _STUCK_SCANS if isolated else _FEWEST_SCANS)
            self._warn_of_separation(length, isolated)
        return Tuning(ensemble, n_replicas, length, self._kept(), separated)

    def _warn_of_separation(self, length: int, isolated: str) -> None:
        """Warn before the work if only explorers may move the replicas, or nothing."""
        advice = isolated or (
            " Draws are right only if single changes lead everywhere, as from GibbsSampler; "
            "log_z_ is not found."
        )
        warn(
            f"All of {_DRAWN} states drawn from the reference are impossible, so replicas will "
            f"not get from beta = 0 to 1, and fit makes only {length} scans.{advice} Or give a "
            "reference that draws possible states, or n_burn_in for more scans.",
            TemperingWarning,
        )

    def settle(self, ensemble: Ladders, fitted: dict[str, Any]) -> Ladders:
        # Scans before the first draw must not vouch for draws; they do count for log Z.
        ensemble.forget_visits()
        self._trips_before = ensemble.trips_by_value
        return ensemble

    def warn_about_fit(self, run: Run) -> None:
        ladders: Any = run.ensemble
        trips = ladders.trips

        def tell(message: str) -> None:
            warn(message, TemperingWarning)

        if self._capped:
            tell(
                f"The temperatures take more than {MOST_REPLICAS} replicas (barrier "
                f"{ladders.barrier:.3g}): swaps are refused often. See n_round_trips_ before you "
                "trust the draws; n_replicas sets a larger number."
            )
        if self._separated:  # fit has said so
            return
        long = self.params.n_burn_in is None or self._length() >= _FEWEST_SCANS
        if long and _too_few(trips):
            told = _told_trips(trips, ladders.batches.n_draws, ladders.barrier)
            tell(
                f"{told} at the end of fit: {_worth(trips, 'log_z_')}. sample goes on with it, so "
                "see n_round_trips_ after that; or take another sampler."
            )
        if ladders.ladder.impossible.any() and not ladders.softened:
            tell(
                "log p is -inf at some states, which stays so at every temperature but the first: "
                "replicas may be unable to move between parts of the space. Where that may be, "
                "give such states a small probability, or a MarkovNetwork, whose zeros are "
                "softened."
            )

    def findings(self, ensemble: Ladders) -> dict[str, NDArray[Any]]:
        return {
            "trips": fewest(ensemble.trips_by_value - self._trips_before),
            "trips_of_all": ensemble.trips,
            "visits": ensemble.worth,
            "rejected": ensemble.ladder.rejected,
            "tried": ensemble.ladder.tried,
            "scans": np.full(len(ensemble), ensemble.counters.n_transitions),
        }

    def warn_of(self, findings: dict[str, NDArray[Any]]) -> None:
        trips, visits = findings["trips"], findings["visits"].sum()
        barrier = rejection_rates(findings["rejected"], findings["tried"]).sum()
        of = "the draws or log_z_" if _too_few(findings["trips_of_all"]) else "the draws"
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
        warn(f"{found}. Run longer, or take another sampler.", TemperingWarning)


def _is_same(old: Ladders, target: Target) -> bool:
    """Whether a target is that of these ladders, which may come from a file."""
    return old.target is target or not difference(target, fingerprint(old.target, old.chains.x))


def _too_few(trips: Ints) -> bool:
    return bool(trips.min() == 0 or trips.sum() < _FEWEST_TRIPS)


def _told_trips(trips: Ints, n_scans: int, barrier: float) -> str:
    without = int((trips == 0).sum())
    return (
        f"{int(trips.sum())} round trips between beta = 0 and 1 in {n_scans} scans"
        + (f", and none in {without} of {trips.size} ladders" if without else "")
        + f" (barrier {barrier:.3g})"
    )


def _worth(trips: Ints, of: str) -> str:
    if trips.min() == 0:
        return f"do not trust {of}"
    return f"{of} may be off by more than the stated errors"

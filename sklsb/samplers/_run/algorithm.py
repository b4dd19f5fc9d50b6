"""How a sampler comes to its chains: what `fit` does, and the rest that depends on the sampler."""

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sklsb._kernels.facts import Rule
from sklsb._system.progress import Clock
from sklsb._system.warn import warn
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.state import ChainState
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.elimination.cost import duration
from sklsb.exceptions import SamplerWarning
from sklsb.samplers._run.checks import check_bool, check_count, check_n_chains
from sklsb.samplers._run.run import Run
from sklsb.samplers._run.saving import begin, finish, look_at
from sklsb.samplers._run.traits import Traits
from sklsb.storage.checkpoint import Checkpoint
from sklsb.storage.fingerprint import checked
from sklsb.targets._checks import n_threads, not_a_target
from sklsb.targets.base import SYMMETRIES, States, Target
from sklsb.targets.function import FunctionTarget
from sklsb.trials.starts import INITS, Starts

# Values of a function, of about a thousand operations each, and seconds of one that is slower, that
# `fit` takes without a warning.
_MOST_VALUES, _MOST_SECONDS = 1 << 23, 300.0
# Values of a function of Python that a burn-in takes by default, if that leaves it a few steps.
_MOST_BY_DEFAULT = 1 << 22
# Parameters that are used up by `fit`, or count from the next call on.
_NOT_FROZEN = ("random_state", "n_jobs", "verbose", "n_burn_in")


class Fit(ABC):
    """What one call of `fit` does.

    Parameters
    ----------
    params : sampler
        The parameters, in a copy of the sampler that was not fitted.
    target : Target
        What to sample.
    before : Run, optional
        What the last fit made, if it is to go on.
    """

    # Parameters that determine the transition; None if unknown.
    rule_parameters: ClassVar[tuple[str, ...] | None] = None

    def __init__(self, params: Any, target: Target, before: Run | None = None) -> None:
        self.params, self.target, self.before = params, target, before
        self.checkpoint = Checkpoint()

    @abstractmethod
    def fit(self, initial_states: ArrayLike | None) -> tuple[Run, dict[str, Any]]:
        """Make a run; return it with the fitted attributes of the sampler."""

    def warn_about_fit(self, run: Run) -> None:  # noqa: B027
        """Warn about what the fit shows."""

    def make_rule(self) -> Rule:
        """Return the rule of the transitions, without a fit if that can be."""
        raise TypeError(f"{type(self.params).__name__} has no rule of its own.")


class Algorithm(Fit, Traits):
    """A fit in steps, and the traits of its run.

    It may keep in its attributes what later methods need; `fit` freezes the parameters.
    """

    # ----------------------------------------------------------------- the steps of a fit

    @abstractmethod
    def check_parameters(self) -> None:
        """Check the parameters against the target, before any work.

        ``n_chains``, ``n_jobs``, ``init``, ``warm_start``, ``keep_burn_in`` and ``n_burn_in`` are
        checked already.
        """

    @abstractmethod
    def make_starts(self, streams: Streams) -> Starts:
        """Return the states that chains start from if none are given."""

    @abstractmethod
    def make_ensemble(self, states: States, streams: Streams) -> Any:
        """Return chains at these states, with these streams."""

    @abstractmethod
    def burn_in(self, ensemble: Any) -> dict[str, Any]:
        """Run the burn-in; return the fitted attributes of the sampler."""

    def settle(self, ensemble: Any, fitted: dict[str, Any]) -> Any:
        """Return the chains to draw with, by default the same ones."""
        return ensemble

    def n_values(self) -> int:
        """Return the values of a function that the burn-in takes if chains move; 0 if unknown."""
        return 0

    def cheaper(self) -> str:
        """Say what takes fewer values of a function."""
        return ""

    def cut(self) -> str:
        """Say what a fit by default leaves out, as it would take too many values; "" if nothing."""
        return ""

    @property
    def asked(self) -> FunctionTarget | None:
        """The target, if each log-ratio asks a function of Python."""
        plain = self.target.offers.plain
        return plain if isinstance(plain, FunctionTarget) and not plain._compiled else None

    def at_most(self, n: int, n_values: int, fewest: int) -> int:
        """Return how many of n steps a burn-in makes by default, by the values that each takes."""
        if self.asked is None:
            return n
        return min(n, max(fewest, _MOST_BY_DEFAULT // max(1, n_values)))

    def more_starts(self, ensemble: Any, streams: Streams) -> Starts:
        return self.make_starts(streams)

    # ----------------------------------------------------------------- fit

    def fit(self, initial_states: ArrayLike | None) -> tuple[Run, dict[str, Any]]:
        n_chains = self._check()
        file = self.checkpoint
        if file.path is not None and (done := look_at(self, initial_states)) is not None:
            vars(self).update(vars(done.run_.algorithm))  # what it warns about
            return done.run_, {name: vars(done)[name] for name in done._found}
        with Clock() as clock:
            found, ensemble = self._begun(initial_states, n_chains)
            with ensemble.threads():
                fitted = self.burn_in(ensemble)
                ensemble = self.settle(ensemble, fitted)
                last_log_prob = checked(ensemble)
        if "history_" in fitted:
            fitted["history_"].attrs |= clock.attrs()
        self._freeze()
        run = Run(self, ensemble, last_log_prob, found, fitted)
        finish(file, run, fitted)
        return run, fitted

    def _begun(self, initial_states: ArrayLike | None, n_chains: int) -> tuple[Starts, Any]:
        """Return where chains start, and chains there or where a checkpoint has them."""
        target, params, kept = self.target, self.params, self.checkpoint.kept
        if kept:
            ensemble = kept["ensemble"]
            ensemble.use_threads(self.n_threads)
            ensemble.log_prob()  # computes what files do not hold
            return kept["starts"] or self.make_starts(Streams(ensemble.streams.chain)), ensemble
        before = self._state_before(n_chains)
        streams = before.streams if before else Streams(spawn(params.random_state, n_chains))
        found = Starts(np.empty(0, np.int8), np.zeros(n_chains, np.int64))
        if initial_states is not None:
            states = check_initial(target, initial_states, n_chains)
        elif before and not self.independent:  # perhaps on another target
            states = check_initial(target, before.x, n_chains, "state_")
        else:
            found = self.make_starts(streams)
            states = found.x
        ensemble = self.make_ensemble(states, streams)
        ensemble.add_evaluations(found.evaluations)
        if isinstance(ensemble, Ensemble) and not _is_of_package(target):
            checked(ensemble)  # most faults of a class of one's own show before the work
        begin(self.checkpoint, target, found, states)
        return found, ensemble

    def _check(self) -> int:
        """Check what all samplers have in common; return the number of chains."""
        target, params = self.target, self.params
        if not isinstance(target, Target):
            raise not_a_target(target)
        if not (target.symmetry is None or target.symmetry in SYMMETRIES):
            raise ValueError(
                f"symmetry of {target!r:.200} is {target.symmetry!r}; it must be one of "
                f"{list(SYMMETRIES)}, or None if no symmetry is known."
            )
        n_chains = check_n_chains(params.n_chains, target)
        n_threads(params.n_jobs)
        if not isinstance(params.init, str) or params.init not in INITS:
            raise ValueError(f"init is {params.init!r}; it must be one of {list(INITS)}.")
        check_bool(params.warm_start, "warm_start")
        check_bool(params.keep_burn_in, "keep_burn_in")
        if params.n_burn_in is not None:
            check_count(params.n_burn_in, "n_burn_in", 0)
        self.check_parameters()
        target.offers.look()
        self._warn_of_cost()
        return n_chains

    def _warn_of_cost(self) -> None:
        """Warn before the work if it will take very many values of a function of the user."""
        plain = self.asked
        if plain is None:
            return
        n, cut = self.n_values(), self.cut()
        seconds = n * plain.seconds_of_value if n else 0.0
        if cut or n * max(1, plain.value_cost) > _MOST_VALUES or seconds > _MOST_SECONDS:
            long = f", {duration(seconds)}," if seconds > _MOST_SECONDS else ""
            advice = (
                f"{cut} Faster are a function of several states at once, one compiled by numba, "
                "and tables, as of MarkovNetwork."
            )
            warn(
                f"The burn-in of {type(self.params).__name__} takes about {n:.2g} values{long} of "
                f"{plain!r:.100}{self.cheaper()}. verbose=1 shows how fast that goes; "
                f"{advice if cut else 'n_burn_in makes it shorter.'}",
                SamplerWarning,
            )

    def _state_before(self, n_chains: int) -> ChainState | None:
        """Return a copy of the state of the last fit's chains, if these are to go on."""
        if self.before is None:
            return None
        ensemble, target = self.before.ensemble, self.target
        if (
            ensemble.chains.x.shape != (n_chains, target.n_sites)
            or ensemble.target.values != target.values
        ):
            raise ValueError(
                f"warm_start continues chains of shape {ensemble.chains.x.shape} with "
                f"values {ensemble.target.values}, but now n_chains is {n_chains} and the "
                f"target has {target.n_sites} sites with values {target.values}. "
                "Set warm_start=False."
            )
        return ensemble.state()

    def _freeze(self) -> None:
        """Keep the parameters, whatever becomes of the user's objects."""
        self.before = None
        del self.checkpoint
        given = self.params.get_params(deep=False)
        kept = {name: value for name, value in given.items() if name not in _NOT_FROZEN}
        self.params.set_params(**copy.deepcopy(kept))


def check_initial(
    target: Target, given: ArrayLike, n_chains: int, name: str = "initial_states"
) -> States:
    """Return states for all chains to start from, or say what is wrong with those given."""
    states = target.check_states(given, name)
    if states.ndim == 1 or states.shape[:-1] == (1,):
        states = np.tile(states.reshape(-1), (n_chains, 1))
    if states.shape != (n_chains, target.n_sites):
        raise ValueError(
            f"{name} has shape {np.shape(given)}; give one state, or one for each of "
            f"the {n_chains} chains."
        )
    for c, value in enumerate(target.log_prob(states)):
        if not np.isfinite(value):
            raise ValueError(
                f"{name}[{c}] has log-probability {value}; chain {c} must start at a "
                "state of positive probability."
            )
    return states


def _is_of_package(target: Target) -> bool:
    return type(target.offers.plain).__module__.startswith("sklsb.")

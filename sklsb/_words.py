"""Words of other packages: errors that name what they are called here."""

import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sklsb._system.warn import is_inside

_Function = TypeVar("_Function", bound=Callable[..., Any])


# What to write here <- words of others for it; rows are divided by semicolons. One that ends with
# a period is a sentence about these keywords, with the keyword itself for {}.
_ROWS = """exact.marginals(target, evidence=...) <- query infer probability;
exact.marginals(target), or diagnostics.marginals(draws, target) <- marginals posterior;
traces <- trace; condition <- observe; names <- variables nodes; table(name) <- get_cpds cpds cpts;
from_tables <- from_dataframe from_data fit; n_sweeps <- n_steps n_iter steps sweeps num_sweeps;
exact.most_likely(target) <- map map_query mpe argmax; specific_heat <- heat_capacity;
sklsb.plot.traces(draws) <- plot plot_trace; arviz.summary(draws) <- summary;
exact.log_partition(target), or log_z_ of ParallelTempering <- partition_function log_z free_energy;
arviz.rhat(draws) <- rhat r_hat gelman_rubin; sklsb.diagnostics.ess(draws) <- ess n_eff;
sampler.fit(target).sample(n) <- run run_mcmc get_chain get_samples samples chain trace;
sampler.sample_stats_["acceptance_rate"] <- acceptance acceptance_rate acceptance_fraction;
target.log_prob(x), which is minus the energy <- energy hamiltonian log_likelihood logp log_prob;
draws["lp"], which is minus the energy <- energies energies_ lp;
sklsb.draw(target, n), or sampler.fit(target).sample(n) <- sample;
log_partition(...), which with evidence is its log p too <- log_evidence;
best_state_ <- ground_state ground_state_ best_energy_;
sampler.betas_ <- temperatures_ temperatures; arviz.autocorr(draws) <- autocorr autocorrelation;
inclusion_probabilities_ <- pip pip_ pips pips_ feature_importances_;
summary(standardized=True) <- params pvalues odds_ratio odds_ratio_ odds_ratios odds_ratios_;
MarkovNetwork <- BayesianNetwork DiscreteBayesianNetwork BayesianModel BayesNet FactorGraph MRF
HiddenMarkovModel HMM DynamicBayesianNetwork;
Ising <- SpinGlass BinaryQuadraticModel QUBO BQM; GibbsSampler <- Metropolis Gibbs MCMC;
anneal <- SimulatedAnnealing SimulatedAnnealingSampler; ClusterSampler <- SwendsenWang Wolff;
LSBSampler <- GibbsWithGradients GWG; ParallelTempering <- ReplicaExchange;
TorchTarget <- EBM EnergyModel; RBM <- BernoulliRBM RestrictedBoltzmannMachine;
sklsb.pymc.DiscreteStep, beside it <- NUTS HMC;
exact.prepare(target) <- VariableElimination BeliefPropagation JunctionTree belief_propagation;
random_state <- seed random_seed rng key; n_jobs <- cores n_cores n_threads;
n <- draws n_draws num_draws samples n_samples num_samples num_reads size n_steps n_iter top;
n_chains <- chains num_chains n_walkers nwalkers; verbose <- progressbar progress_bar progress;
n_burn_in <- tune n_tune warmup num_warmup burn burnin burn_in discard; periodic <- pbc boundary;
tol <- n_samples n_draws draws n_iter burn_in burnin tune warmup; device <- gpu cuda use_gpu;
expected_size <- n_features sparsity k; inclusion_prior <- pi w;
slab_sd <- C alpha penalty tau prior; betas <- beta_range temperatures T ladder;
temperatures <- temperature; initial_states <- initial_state x0;
n_replicas <- n_temperatures n_levels; seconds <- time_limit timeout max_time;
couplings <- J j Q interactions quadratic adjacency; coupling <- J j;
field <- h bias biases linear external_field;
n_states <- q n_values num_states n_categories num_classes n_classes vocab_size n_colors
cardinalities;
n_sites <- n n_variables num_variables dim ndim size length n_spins;
evidence <- observed given; thin <- thinning thin_by;
target.condition({{...}}) takes it. <- evidence;
it is given to the sampler: LSBSampler({}=...). <- random_state n_chains n_burn_in n_jobs verbose;
sampler.sample(n) makes n draws. <- n; ParallelTempering() finds its temperatures. <- n_replicas;
temperatures belong to ParallelTempering(betas=...). <- betas;
draws are asked for in sampler.sample(n), searches in anneal(n_chains=...). <- num_reads;
sampler.fit(target) takes it. <- target model; fit takes initial_states. <- initial_states;
arviz takes diagnostics.to_inference_data(draws). <- return_inferencedata;
field has one entry for each value, along its last axis. <- n_states;
a lattice has the shape of its field, such as np.zeros(shape). <- shape;
other lattices are graphs, as of networkx: Ising(graph). <- lattice kind geometry neighbors;
divide couplings and field by it: Ising(J / T, h / T). <- temperature T beta;
networks are made of tables by MarkovNetwork.from_tables. <- tables cpds cpts;
DiscreteStep(...).with_nuts({}=...) takes it, or pm.NUTS. <- target_accept max_treedepth"""
_WORDS = [(row.split("<-")[0].strip(), row.split("<-")[1].split()) for row in _ROWS.split(";")]
_FEW = 5  # names in an error


def _ours(word: str) -> list[str]:
    return [ours for ours, theirs in _WORDS if word in theirs]


def few(names: Sequence[Any]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(map(str, names[:_FEW])) + more


def did_you_mean(word: Any, names: Iterable[Any], likeness: float = 0.6) -> str:
    """Return a question about the nearest name, with a blank behind it, or nothing."""
    texts = {str(name).lower(): name for name in names}
    near = difflib.get_close_matches(str(word).lower(), texts, 1, likeness)
    has_letters = any(letter.isalpha() for letter in str(word))  # numbers are near to too many
    return f"did you mean {texts[near[0]]!r}? " if near and has_letters else ""


def _meant(name: str, names: Iterable[str]) -> list[str]:
    """Return what a word of another package may mean of these names, the most likely first."""
    meant = [ours for ours in _ours(name) if not ours.endswith(".")]
    # Parameters only of what has them.
    meant = [ours for ours in meant if not re.fullmatch("[a-z_]*[a-z]", ours) or ours in names]
    return [f"did you mean {ours}?" for ours in meant]


def _missing(said: str, name: str, names: Iterable[str]) -> AttributeError:
    names = {*names}
    advice = _meant(name, names)
    if not name.startswith("_"):
        public = sorted(one for one in names if not one.startswith("_"))
        advice += filter(None, [did_you_mean(name, public, 0.65).strip()])
    # Without an object Python adds no suggestion of its own.
    return AttributeError("; ".join([said, *advice[:1]]), name=name, obj=None)


def named_by(module: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module, whose errors name the right attribute.

    Those of its public functions then name the right keyword.
    """
    room = sys.modules[module]
    for name in () if hasattr(room, "__getattr__") else room.__all__:  # once, as it is made
        function = getattr(room, name)
        if inspect.isfunction(function) and not hasattr(function, "__wrapped__"):
            setattr(room, name, worded(function))
            getattr(room, name).__module__ = module  # where pickle finds it

    def get(name: str) -> Any:
        said = f"module {module!r} has no attribute {name!r}"
        raise _missing(said, name, dir(room))

    return get


def _refuse(called: str, function: Callable[..., Any], given: Iterable[str]) -> None:
    parameters = inspect.signature(function).parameters
    allowed = [name for name in parameters if name not in ("self", "cls")]
    unknown = [word for word in given if word not in allowed]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        word = unknown[0]
        advice = [f"did you mean {name!r}?" for name in _ours(word) if name in allowed]
        for name in [word, *_ours(word)]:
            advice += [text.format(name) for text in _ours(name) if text.endswith(".")]
        advice += filter(None, [did_you_mean(word, allowed).strip()])
        if "evidence" in allowed:
            advice.append(f"evidence is a dict, as {{{word!r}: ...}}.")
        advice.append(f"its parameters are {', '.join(allowed)}.")
        said = f"{called}() got an unexpected keyword argument {word!r}; {advice[0]}"
        raise TypeError(said) from None


def _ask(error: TypeError, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Raise if a call lacks an argument, and say how to call."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as found:
        if not str(found).startswith("missing"):
            return
        varied = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        of = [p for p in signature.parameters.values() if p.default is p.empty]
        of = [p for p in of if p.kind not in varied and p.name not in ("self", "cls")]
        needed = [p.name + "=..." * (p.kind is p.KEYWORD_ONLY) for p in of]
        raise TypeError(f"{error}; write {function.__name__}({', '.join(needed)}).") from None


def worded(function: _Function) -> _Function:
    """Decorate a function or method whose errors name the right keyword."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            _refuse(function.__qualname__.removeprefix("Base"), function, kwargs)
            _ask(error, function, args, kwargs)
            raise

    return cast(_Function, call)


class Worded:
    """Base of classes whose errors name the right keyword or attribute."""

    if not TYPE_CHECKING:  # to which every keyword and attribute would be right

        def __new__(cls, *args, **kwargs):
            made = super().__new__(cls)
            if kwargs:
                _refuse(cls.__name__, cls.__init__, kwargs)
            return made

        def __setattr__(self, name, value):
            cls = type(self)
            known = name[0] == "_" or name[-1] == "_" or name in self.__dict__ or hasattr(cls, name)
            if not known and is_inside(cls.__module__):  # classes of users are theirs
                frame = sys._getframe(1)
                while frame.f_code.co_name == "__setattr__":
                    frame = frame.f_back
                outside = not is_inside(frame.f_globals.get("__name__", ""))
                names = [*self.__dict__, *dir(cls)]
                advice = _meant(name, names)
                advice += [text.format(name) for text in _ours(name) if text.endswith(".")]
                near = [one for one in names if "_" not in (one[0], one[-1])]
                advice += filter(None, [did_you_mean(name, near, 0.9).strip()])
                if outside and advice:
                    said = f"{cls.__name__} has no {name}, and setting it changes nothing"
                    raise AttributeError(f"{said}; {advice[0]}", name=name, obj=None)
            super().__setattr__(name, value)

        def __getattr__(self, name):
            if hasattr(super(), "__getattr__"):  # of another base, such as a torch module
                return super().__getattr__(name)
            try:
                return object.__getattribute__(self, name)  # a property raises its own error again
            except AttributeError as error:
                if hasattr(type(self), name):
                    raise
                raise _missing(str(error), name, [*vars(self), *dir(type(self))]) from None

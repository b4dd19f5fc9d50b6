"""Keywords and attributes of other packages: the message names the word to use here."""

import copy
import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import sklsb
from sklsb import (
    AutoSampler,
    GibbsSampler,
    Ising,
    LSBSampler,
    ParallelTempering,
    SpikeSlabRegressor,
)

J = np.array([[0.0, 1.0], [1.0, 0.0]])
H = np.zeros((3, 3))
SPINS = Ising(J)


def ones(x):
    return x.sum(-1)


WORDS = {name: getattr(sklsb, name) for name in sklsb.__all__} | {
    "sklsb": sklsb,
    "J": J,
    "H": H,
    "SPINS": SPINS,
    "ones": ones,
}

# What somebody may write, and the word that the message has to name.
KEYWORDS = {
    "LSBSampler(seed=0)": "'random_state'",
    "AutoSampler(random_seed=0)": "'random_state'",
    "LSBSampler(chains=4)": "'n_chains'",
    "GibbsSampler(tune=500)": "'n_burn_in'",
    "GibbsSampler(num_warmup=500)": "'n_burn_in'",
    "GibbsSampler(draws=1000)": "sample(n)",
    "LSBSampler(num_reads=1000)": "sample(n)",
    "GibbsSampler(cores=2)": "'n_jobs'",
    "LSBSampler(progressbar=True)": "'verbose'",
    "LSBSampler(random_sate=0)": "'random_state'",
    "GibbsSampler(n_chain=4)": "'n_chains'",
    "anneal(SPINS, betas=[1.0, 0.5])": "ParallelTempering(betas=...)",
    "anneal(SPINS, n_steps=100)": "'n_sweeps'",
    "LSBSampler().fit(SPINS, {0: 1})": "fit(target.condition({...}))",
    "LSBSampler().fit(SPINS, evidence={0: 1})": "target.condition({...}) takes it",
    "SPINS.condition(rain='yes')": "evidence is a dict, as {'rain': ...}",
    "ParallelTempering(temperatures=[1.0, 2.0])": "'betas'",
    "GibbsSampler(temperature=2.0)": "Ising(J / T, h / T)",
    "LSBSampler().sample(n_samples=1000)": "'n'",
    "LSBSampler().sample(1000, chains=4)": "LSBSampler(n_chains=...)",
    "LSBSampler().sample(1000, thinning=10)": "'thin'",
    "LSBSampler().sample(1000, tune=10)": "n_burn_in",
    "LSBSampler().fit(SPINS, seed=0)": "LSBSampler(random_state=...)",
    "LSBSampler().fit(SPINS, initial_state=[1, 1])": "'initial_states'",
    "Ising(J, h=[0.0, 1.0])": "'field'",
    "Ising(J=J)": "'couplings'",
    "Ising(J, temperature=2.0)": "Ising(J / T, h / T)",
    "Ising.lattice(H, J=0.4)": "'coupling'",
    "Ising.lattice(H, couplings=0.4)": "'coupling'",
    "Ising.lattice(H, pbc=False)": "'periodic'",
    "Potts(J, q=3)": "field",
    "Potts.lattice(H, n_values=3)": "field",
    "FunctionTarget(ones, 3, n_values=3)": "'n_states'",
    "FunctionTarget(ones, n=3)": "'n_sites'",
    "FunctionTarget(ones, 3, n_values=3, terms=True)": "FunctionTarget() got",
    "MarkovNetwork(cpds={})": "MarkovNetwork.from_tables",
    "SpikeSlabRegressor(seed=0)": "'random_state'",
    "SpikeSlabRegressor(prior_inclusion=0.1)": "'inclusion_prior'",
    "SpikeSlabClassifier(class_weights='balanced')": "'class_weight'",
    "anneal(SPINS, num_sweeps=100)": "'n_sweeps'",
    "anneal(SPINS, num_reads=100)": "anneal(n_chains=...)",
    "anneal(SPINS, time_limit=5)": "'seconds'",
    "draw(SPINS, n_samples=100)": "'n'",
    "exact.marginals(SPINS, observed={})": "'evidence'",
    "exact.log_partition(SPINS, max_wrk=1e6)": "'max_work'",
    "Ising.lattice(shape=(4, 4))": "np.zeros(shape)",
    "Ising.lattice(H, lattice='triangular')": "networkx",
    "Ising.lattice(H, boundary='open')": "'periodic'",
    "Ising(J, external_field=[1, 0])": "'field'",
    "Ising(J, quadratic={})": "'couplings'",
    "ParallelTempering(n_levels=10)": "'n_replicas'",
    "ParallelTempering(T=[1, 2])": "'betas'",
    "ParallelTempering().sample(10, temperature='all')": "'temperatures'",
    "LSBSampler(n_iter=1000)": "sample(n)",
    "LSBSampler(target=SPINS)": "sampler.fit(target)",
    "LSBSampler(gpu=True)": "'device'",
    "LSBSampler().sample(10, return_inferencedata=True)": "to_inference_data",
    "LSBSampler().sample(10, discard=5)": "n_burn_in",
    "LSBSampler().sample(10, initial_state=[1, 1])": "fit takes initial_states",
    "SpikeSlabClassifier(n_features=3)": "'expected_size'",
    "SpikeSlabClassifier(burn_in=100)": "'tol'",
    "SpikeSlabClassifier(C=1.0)": "'slab_sd'",
    "FunctionTarget(ones, length=3)": "'n_sites'",
    "FunctionTarget(ones, 3, vocab_size=4)": "'n_states'",
    "FunctionTarget(ones, 3, cardinalities=[3] * 3)": "'n_states'",
    "SpikeSlabClassifier(prior='g')": "'slab_sd'",
    "FunctionTarget(ones, [3] * 3)": "n_states=[...]",
    "exact.prepare(SPINS).marginals(grass='soaked')": "is a dict, as {'grass': ...}",
}
ATTRIBUTES = {
    "exact.query": "exact.marginals",
    "exact.map": "exact.most_likely",
    "exact.partition_function": "exact.log_partition",
    "LSBSampler().plot": "sklsb.plot.traces",
    "LSBSampler().summary": "arviz.summary",
    "LSBSampler().run_mcmc": "sampler.fit(target).sample(n)",
    "LSBSampler().get_chain": "sampler.fit(target).sample(n)",
    "LSBSampler().acceptance_fraction": "sample_stats_",
    "ParallelTempering().log_z": "log_z_ of ParallelTempering",
    "SPINS.energy": "target.log_prob(x)",
    "SPINS.query": "exact.marginals",
    "SPINS.marginals": "diagnostics.marginals(draws, target)",
    "SPINS.posterior": "exact.marginals",
    "SPINS.observe": "condition",
    "sklsb.plot.trace": "traces",
    "SPINS.nodes": "names",
    "MarkovNetwork([2], []).get_cpds": "table(name)",
    "SPINS.log_likelihood": "target.log_prob(x)",
    "sklsb.BayesianNetwork": "MarkovNetwork",
    "sklsb.Metropolis": "GibbsSampler",
    "sklsb.SimulatedAnnealingSampler": "anneal",
    "sklsb.VariableElimination": "exact.prepare",
    "samplers.SwendsenWang": "ClusterSampler",
    "targets.IsingModel": "Ising",
    "diagnostics.rhat": "arviz.rhat",
    "diagnostics.summary": "arviz.summary",
    "diagnostics.heat_capacity": "specific_heat",
    "diagnostics.overlap": "overlaps",
    "SpikeSlabClassifier().feature_importances_": "inclusion_probabilities_",
    "SpikeSlabClassifier().odds_ratios_": "summary(standardized=True)",
    "SpikeSlabClassifier().get_suport": "get_support",
    "ParallelTempering().ground_state_": "best_state_",
    "ParallelTempering().temperatures_": "betas_",
    "sklsb.plot.energie": "'energies'",
    "sklsb.HiddenMarkovModel": "MarkovNetwork",
    "sklsb.EBM": "TorchTarget",
    "SPINS.J": "couplings",
    "SPINS.sample": "sklsb.draw(target, n)",
    "exact.prepare(SPINS).log_evidence": "log_partition(...)",
}


@pytest.mark.parametrize("code", KEYWORDS)
def test_keywords_of_others(code):
    with pytest.raises(TypeError) as caught:
        eval(code, WORDS)
    assert KEYWORDS[code] in str(caught.value)


@pytest.mark.parametrize("code", ATTRIBUTES)
def test_attributes_of_others(code):
    with pytest.raises(AttributeError) as caught:
        eval(code, WORDS)
    assert ATTRIBUTES[code] in str(caught.value)
    owner, _, name = code.rpartition(".")
    assert not hasattr(eval(owner, WORDS), name)


def test_messages_are_sentences():
    with pytest.raises(
        TypeError, match=r"^LSBSampler\(\) .*'seed'; did you mean 'random_state'\?$"
    ):
        LSBSampler(seed=0)
    with pytest.raises(TypeError, match=r"^Ising\.lattice\(\) .*'zzz'; its parameters are field, "):
        Ising.lattice(H, zzz=1)
    with pytest.raises(AttributeError, match=r"^'LSBSampler' object has no attribute 'zzz'$"):
        _ = LSBSampler().zzz


def test_what_estimators_promise_stays():
    sampler = LSBSampler("sqrt", n_chains=2)
    assert clone(sampler).get_params() == sampler.get_params()
    for made in (copy.copy(sampler), copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert made.get_params() == sampler.get_params()
    for cls in (
        LSBSampler,
        AutoSampler,
        GibbsSampler,
        ParallelTempering,
        SpikeSlabRegressor,
        Ising,
    ):
        assert inspect.signature(cls) == inspect.signature(cls(*[J] * (cls is Ising)).__class__)
        assert "kwargs" not in str(inspect.signature(cls))
        assert not hasattr(cls, "predict_log_proba")
    assert list(inspect.signature(LSBSampler.sample).parameters)[:2] == ["self", "n"]
    assert next(iter(inspect.signature(Ising.lattice).parameters)) == "field"
    assert "run_mcmc" not in dir(sampler)
    assert pickle.loads(pickle.dumps(SPINS)).log_prob([1, 1]) == SPINS.log_prob([1, 1])


def test_errors_of_properties_and_of_arguments_stay():
    with pytest.raises(AttributeError, match="not fitted yet"):
        _ = LSBSampler().state_
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'n'"):
        LSBSampler().sample()
    with pytest.raises(TypeError, match="multiple values for argument"):
        Ising(J, couplings=J)
    with pytest.raises(TypeError, match="abstract"):
        sklsb.Target(seed=0)


MISSING = {
    "diagnostics.marginals(H)": "'target'; write marginals(draws, target).",
    "diagnostics.to_frame()": "write to_frame(draws).",
    "sklsb.plot.traces()": "write traces(draws).",
    "exact.sample(SPINS)": "write sample(target, n).",
    "exact.prepare()": "write prepare(target).",
    "exact.transition_matrix(SPINS)": "write transition_matrix(sampler, target).",
    "LSBSampler().fit()": "write fit(target).",
    "Ising.lattice()": "write lattice(field).",
}


@pytest.mark.parametrize("code", MISSING)
def test_calls_say_what_they_lack(code):
    with pytest.raises(TypeError) as caught:
        eval(code, WORDS)
    assert " missing 1 required positional argument: " in str(caught.value)
    assert MISSING[code] in str(caught.value)


def test_keyword_only_arguments_are_shown_as_such():
    with pytest.raises(TypeError, match=r"write sample_chains\(.*, n_chains=\.\.\.\)\.$"):
        sklsb.sample_chains()


def test_worded_functions_are_themselves():
    for room in (sklsb.diagnostics, sklsb.exact, sklsb.plot):
        for name in room.__all__:
            assert pickle.loads(pickle.dumps(getattr(room, name))) is getattr(room, name)
    with pytest.raises(TypeError, match=r"takes 2 positional arguments but 3 were given$"):
        sklsb.diagnostics.marginals(1, 2, 3)


NOT_SET = {
    "SPINS.beta": "Ising(J / T, h / T)",
    "SPINS.temperature": "Ising(J / T, h / T)",
    "SPINS.couplngs": "'couplings'",
    "SPINS.condition({0: 1}).beta": "Ising(J / T, h / T)",
    "LSBSampler().n_chain": "'n_chains'",
    "LSBSampler().seed": "random_state",
    "ParallelTempering().temperatures": "betas",
    "SpikeSlabRegressor().n_chain": "'n_chains'",
    "exact.prepare(SPINS).marginal": "'marginals'",
}


@pytest.mark.parametrize("what", NOT_SET)
def test_names_that_are_none_are_not_set(what):
    owner, _, name = what.rpartition(".")
    made = eval(owner, WORDS)
    with pytest.raises(AttributeError, match=f"has no {name}, and setting it changes") as told:
        setattr(made, name, 2.0)
    assert NOT_SET[what] in str(told.value)
    assert not hasattr(made, name)


def test_names_that_may_be_set():
    """Notes, parameters, attributes of users' classes; and copies have what the original has."""

    class Mine(Ising):
        pass

    for made in (Ising(J), LSBSampler(), Mine(J)):
        made.verdict = "right"
        made.result = made.history = made.name = "notes"
        again = [copy.copy(made), copy.deepcopy(made)]
        again += [] if isinstance(made, Mine) else [pickle.loads(pickle.dumps(made))]
        assert {one.verdict for one in again} == {"right"}
    mine = Mine(J)
    mine.beta = mine.couplngs = 3.0
    assert copy.deepcopy(mine).beta == 3.0
    sampler = LSBSampler()
    sampler.n_chains = 3
    assert sampler.set_params(balancing="sqrt").get_params()["n_chains"] == 3


def test_classes_of_users():
    class Mine(Ising):
        def __init__(self, size, **options):
            super().__init__(np.zeros((size, size)), **options)

    assert Mine(3, field=1.0).n_sites == 3
    with pytest.raises(TypeError, match="unexpected keyword argument 'h'"):
        Mine(3, h=1.0)


class Elsewhere:
    """Has attributes of its own, as the parameters of a torch module are."""

    def __getattr__(self, name):
        if name == "weight":
            return 3
        raise AttributeError(name)


def test_attributes_of_another_base_are_found():
    class Both(GibbsSampler, Elsewhere):
        pass

    assert Both().weight == 3
    assert not hasattr(Both(), "plot")

"""Every sampler, by default settings, on 10, 10^3 and 10^6 variables: it ends, or refuses at once.

Limits are in CPU seconds, for a machine on which others work; compiling is not counted.
"""

import time

import numpy as np
import pytest
from scipy.special import gammaln

from sklsb import (
    AutoSampler,
    ClusterSampler,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    ParallelTempering,
    Potts,
    SwapSampler,
    exact,
)
from sklsb._system.memory import available

pytestmark = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
SIZES = [(2, 5), (20, 50), pytest.param((1000, 1000), marks=pytest.mark.slow)]
SAMPLERS = {
    "random": GibbsSampler("random", random_state=0),
    "systematic": GibbsSampler("systematic", random_state=0),
    "chromatic": GibbsSampler("chromatic", random_state=0),
    "Hamming balls": HammingBallSampler(random_state=0),
    "all clusters": ClusterSampler(random_state=0),
    "barker": LSBSampler("barker", random_state=0),
    "sqrt": LSBSampler("sqrt", random_state=0),
    "auto": AutoSampler(random_state=0),
    "learned": LSBSampler(random_state=0),
    "tempering": ParallelTempering(random_state=0),
}
# CPU seconds of a variable, where many are needed.
EACH = {"learned": 2e-3, "tempering": 1e-3}


def lattice(shape, kind=Ising):
    rng = np.random.default_rng(0)
    size = shape if kind is Ising else (*shape, 3)
    return kind.lattice(rng.normal(0.0, 0.3, size), coupling=0.4)


def seconds_of_fit(sampler, target):
    begin = time.process_time()
    sampler.fit(target)
    return time.process_time() - begin


@pytest.mark.parametrize("shape", SIZES[1:])  # after a fit to ten variables
@pytest.mark.parametrize("name", SAMPLERS)
def test_fit_and_sample_end(name, shape):
    target, sampler = lattice(shape), SAMPLERS[name]
    sampler.fit(lattice((2, 5)))  # compiled
    assert seconds_of_fit(sampler, target) < 20.0 + EACH.get(name, 3e-4) * target.n_sites
    draws = sampler.sample(2)
    np.testing.assert_allclose(draws["lp"], target.log_prob(draws["x"].values), rtol=1e-9)
    assert sampler.state_.shape == (sampler.n_chains, target.n_sites)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS.keys() - {"chromatic", "all clusters"})
def test_a_function_of_python_with_many_values_ends(name):
    """52 counts up to 50: 2,600 changes, each of which is a call of the function."""
    weight = np.log(np.random.default_rng(0).dirichlet(np.ones(52)))
    of_count, n_calls = gammaln(1.0 + np.arange(51)), 0

    def log_prob(x):
        nonlocal n_calls
        n_calls += 1
        return float(x @ weight - of_count[x].sum())

    target = FunctionTarget(log_prob, 52, 51, vectorized=False)
    sampler = SAMPLERS[name].fit(target)
    assert n_calls < 8e6
    assert np.isfinite(sampler.sample(2)["lp"]).all()


@pytest.mark.slow
def test_sweeps_of_ten_million_take_ten_times_as_long():
    if (free := available()) is not None and free < 6 * 2**30:
        pytest.skip(f"needs 6 GiB of memory; {free / 2**30:.1f} are free")
    seconds = []
    for side in (1000, 3163):
        target = lattice((side, side))
        sampler = GibbsSampler("chromatic", random_state=0).fit(lattice((20, 50)))  # compiled
        seconds.append(seconds_of_fit(sampler, target))
        assert sampler.state_.shape == (4, side**2)
    assert seconds[1] < 20.0 * seconds[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Ising, Potts])
def test_a_race_of_a_million_costs_at_most_three_fits_of_sweeps(kind):
    target = lattice((1000, 1000), kind)
    for sampler in (auto := AutoSampler(random_state=0), GibbsSampler("chromatic")):
        sampler.fit(lattice((200, 200), kind))
    of_race = seconds_of_fit(auto, target)
    again = lattice((1000, 1000), kind)  # whose colours are not known
    assert of_race < 3.0 * seconds_of_fit(GibbsSampler("chromatic", random_state=0), again)


@pytest.mark.parametrize("shape", [(200, 200), SIZES[-1]])
def test_exact_draws_of_many_variables_are_refused_at_once(shape):
    target = lattice(shape)
    begin = time.process_time()
    with pytest.raises(ValueError, match=f"at least {target.n_sites} variables to be eliminated"):
        EliminationSampler().fit(target)
    assert time.process_time() - begin < 1.0 + 1e-5 * target.n_sites


@pytest.mark.slow
def test_exchanges_of_a_million_ask_for_a_start():
    target = lattice((1000, 1000))
    with pytest.raises(ValueError, match=r"Decide by a start: fit\(target, initial_states=state\)"):
        SwapSampler().fit(target)
    start = np.where(np.arange(target.n_sites) % 2, 1, -1)
    sampler = SwapSampler(random_state=0).fit(target, initial_states=start)
    assert (sampler.state_.sum(axis=1) == 0).all()


@pytest.mark.parametrize("shape", [(200, 200), SIZES[-1]])
@pytest.mark.parametrize("answer", [exact.marginals, exact.log_partition, exact.elimination_cost])
def test_exact_answers_of_many_variables_are_refused_at_once(answer, shape):
    target = lattice(shape)
    begin = time.process_time()
    with pytest.raises(ValueError, match=f"at least {target.n_sites} variables to be eliminated"):
        answer(target)
    assert time.process_time() - begin < 1.0 + 1e-5 * target.n_sites

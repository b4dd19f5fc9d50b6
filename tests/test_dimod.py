"""dimod's models, sample sets and sampler interface: against dimod's own energies."""

import itertools
import unittest
import warnings

import numpy as np
import pytest
from scipy import stats

import sklsb
from sklsb import (
    EliminationSampler,
    GibbsSampler,
    Ising,
    LSBSampler,
    ParallelTempering,
    Potts,
    anneal,
    exact,
)
from sklsb.diagnostics import best_state
from sklsb.exceptions import SamplerWarning

dimod = pytest.importorskip("dimod", reason="dimod is optional")
from sklsb.dimod import SklsbSampler, to_dimod  # noqa: E402

LABELS = ["a", (0, 1), 7, "d", ("x",), -2]


def model(seed, dyadic=True):
    """A random model and beta; with dyadic biases all arithmetic is exact."""
    rng = np.random.default_rng(seed)
    n, vartype = int(rng.integers(1, 7)), ("SPIN", "BINARY")[seed % 2]
    labels = LABELS[:n]
    draw = (lambda: rng.integers(-32, 33) / 8.0) if dyadic else (lambda: 3.0 * rng.normal())
    linear = {v: draw() for v in labels}
    pairs = [pair for pair in itertools.combinations(labels, 2) if rng.random() < 0.6]
    quadratic = {pair: draw() or 1.0 for pair in pairs}
    beta = 2.0 ** rng.integers(-3, 4) if dyadic else float(rng.gamma(2.0))
    return dimod.BinaryQuadraticModel(linear, quadratic, draw(), vartype), beta


def probabilities(energies, beta):
    p = np.exp(-beta * (energies - energies.min()))
    return p / p.sum()


def rows(found, n_values=2):
    """Number of each row among all states; values are those of dimod."""
    values = (found.record.sample > 0) if n_values == 2 else found.record.sample
    return values @ (n_values ** np.arange(len(found.variables)))


# ----------------------------------------------------------------- the way back


def test_models_come_back_as_they_were():
    for seed in range(200):
        bqm, beta = model(seed)
        again = Ising.from_bqm(bqm, beta).to_bqm()
        assert again == bqm  # biases and vartype
        assert again.offset == bqm.offset
        bqm, beta = model(seed, dyadic=False)
        again = Ising.from_bqm(bqm, beta).to_bqm()
        assert again.vartype is bqm.vartype
        assert again.is_almost_equal(bqm, places=12)


def test_draws_have_the_energies_of_the_model():
    for seed in (0, 1, 2, 3):
        bqm, beta = model(seed, dyadic=False)
        target = Ising.from_bqm(bqm, beta)
        given = target.condition({target.names[0]: 1})
        found = [
            to_dimod(exact.sample(target, 20, random_state=0), target),
            to_dimod(exact.most_likely(target), target),
            to_dimod(anneal(target, n_sweeps=10, random_state=0), target),
            to_dimod(best_state(exact.sample(target, 5, random_state=0)), target),
            to_dimod(exact.sample(given, 20, random_state=0), given),
        ]
        assert [len(one) for one in found] == [20, 1, 4, 1, 20]
        for one in found:
            assert one.vartype is bqm.vartype
            assert list(one.variables) == list(bqm.variables)
            np.testing.assert_allclose(one.record.energy, bqm.energies(one), atol=1e-12)
        least = dimod.ExactSolver().sample(bqm).first.energy
        assert found[1].first.energy == pytest.approx(least, abs=1e-12)


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")
def test_draws_of_a_sampler_and_another_beta():
    q = np.array([[-1.0, 2.0, 0.0], [0.0, 0.5, -1.5], [0.0, 0.0, 1.0]])
    target = Ising.from_qubo(q, beta=0.5)
    sampler = GibbsSampler("random", n_chains=2, random_state=0).fit(target)
    draws = sampler.sample(30)
    found = sampler.to_dimod(draws)
    assert found.vartype is dimod.BINARY
    z = found.record.sample.astype(float)
    np.testing.assert_allclose(found.record.energy, np.einsum("ni,ij,nj->n", z, q, z), atol=1e-13)
    np.testing.assert_array_equal(found.record.chain, np.repeat([0, 1], 30))
    np.testing.assert_allclose(
        sampler.to_dimod(draws, beta=1.0).record.energy, -draws["lp"].values.ravel()
    )
    cut = Ising.from_maxcut(np.ones((3, 3)) - np.eye(3), beta=2.0)
    assert to_dimod(exact.most_likely(cut), cut).first.energy == -2.0
    potts = Potts.lattice(np.zeros((2, 2, 3)), 0.5)
    assert to_dimod(exact.sample(potts, 3), potts).vartype.name == "INTEGER"


def test_to_dimod_needs_states_of_the_target():
    target = Ising.from_qubo(np.eye(2))
    with pytest.raises(ValueError, match="give what sample returned for this target"):
        to_dimod(exact.most_likely(Ising.from_qubo(np.eye(3))), target)
    with pytest.raises(ValueError, match="beta is -1; it must be a positive number"):
        to_dimod(exact.most_likely(target), target, beta=-1)


# ----------------------------------------------------------------- the sampler


@dimod.testing.load_sampler_bqm_tests(SklsbSampler)
class TestChecksOfDimod(unittest.TestCase):
    """What dimod asks of every sampler."""

    def test_interface(self):
        dimod.testing.assert_sampler_api(SklsbSampler())


def test_the_sampler_is_a_name_of_the_package():
    assert sklsb.dimod.SklsbSampler is SklsbSampler


@pytest.mark.parametrize("method", ["boltzmann", "exact"])
@pytest.mark.parametrize("seed", [4, 5])
def test_draws_have_the_probabilities_of_their_energies(method, seed):
    bqm, beta = model(seed, dyadic=False)
    every = dimod.ExactSolver().sample(bqm)
    found = SklsbSampler().sample(bqm, num_reads=4000, beta=beta, method=method, seed=0)
    assert (len(found), found.vartype) == (4000, bqm.vartype)
    np.testing.assert_allclose(found.record.energy, bqm.energies(found), atol=1e-12)
    info = found.info
    assert (info["method"], info["log_z_error"], info["told"]) == ("elimination", 0.0, [])
    log_z = np.logaddexp.reduce(-beta * every.record.energy)
    assert info["log_z"] == pytest.approx(log_z, rel=1e-12)
    order = [list(every.variables).index(v) for v in bqm.variables]
    states = (every.record.sample[:, order] > 0) @ (2 ** np.arange(len(order)))
    wanted = np.zeros(2 ** len(order))
    wanted[states] = probabilities(every.record.energy, beta)
    counts = np.bincount(rows(found), minlength=wanted.size)
    common = wanted > 5 / 4000
    assert (
        stats.chisquare(
            [*counts[common], counts[~common].sum() + 1e-9],
            4000 * np.array([*wanted[common], wanted[~common].sum() + 1e-9 / 4000]),
        ).pvalue
        > 1e-6
    )


def test_chains_where_elimination_takes_too_much(monkeypatch):
    monkeypatch.setattr("sklsb.dimod.is_affordable", lambda *_: False)
    monkeypatch.setattr("sklsb.samplers.challengers.elimination_fits", lambda *_: False)
    bqm, beta = model(4, dyadic=False)
    energies = dimod.ExactSolver().sample(bqm).record.energy
    found = SklsbSampler().sample(bqm, num_reads=3999, beta=beta, seed=1)
    assert len(found) == 3999
    assert found.info["method"] == "chains"
    assert found.info["r_hat"] < 1.05
    assert found.info["log_z"] is found.info["log_z_error"] is None
    mean = (probabilities(energies, beta) * energies).sum()
    assert found.record.energy.mean() == pytest.approx(mean, abs=0.15)


@pytest.mark.parametrize("method", ["exact", "tempering"])
def test_no_row_is_made_up_after_an_interruption(method, monkeypatch):
    """Ctrl-C leaves fewer draws: each is a row once."""
    for kind in (EliminationSampler, ParallelTempering):
        monkeypatch.setattr(kind, "sample", lambda self, n, _of=kind.sample: _of(self, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        found = SklsbSampler().sample(model(4)[0], num_reads=100, method=method, seed=0)
    assert len(found) == (5 if method == "exact" else 20)


def test_tempering_tells_log_z():
    bqm, beta = model(4, dyadic=False)
    energies = dimod.ExactSolver().sample(bqm).record.energy
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = SklsbSampler().sample(bqm, num_reads=3999, beta=beta, method="tempering", seed=1)
    assert len(found) == 3999
    info = found.info
    assert info["method"] == "tempering"
    assert info["r_hat"] < 1.05
    log_z = np.logaddexp.reduce(-beta * energies)
    assert 0.0 < info["log_z_error"] < 0.1
    assert abs(info["log_z"] - log_z) < 5 * info["log_z_error"]
    mean = (probabilities(energies, beta) * energies).sum()
    assert found.record.energy.mean() == pytest.approx(mean, abs=0.15)
    # What was told is in both places.
    assert info["told"] == [str(w.message) for w in seen if w.category.__module__.startswith("sk")]


def test_what_is_told_is_a_warning_and_in_the_info(monkeypatch):
    def told(target, n, seconds, seed):
        warnings.warn("chains disagree", SamplerWarning, stacklevel=1)
        return np.ones((n, target.n_sites), np.int8), {"method": "tempering"}

    monkeypatch.setattr("sklsb.dimod._eliminated", told)
    with pytest.warns(SamplerWarning, match="chains disagree") as seen:
        found = SklsbSampler().sample_ising({"a": 1.0}, {}, num_reads=2)
    assert seen[0].filename.endswith("sampler.py") or seen[0].filename == __file__
    assert found.info["told"] == ["chains disagree"]


def test_annealing_finds_the_least_energy_and_says_whether_it_is_proven(monkeypatch):
    bqm, _ = model(8, dyadic=False)
    least = dimod.ExactSolver().sample(bqm).first.energy
    found = SklsbSampler().sample(bqm, method="anneal", num_reads=3)
    assert found.info["proven"]
    assert found.first.energy == pytest.approx(least, abs=1e-12)
    monkeypatch.setattr("sklsb.samplers.annealing._maximum", lambda *_: None)
    found = SklsbSampler().sample(bqm, method="anneal", num_reads=3, seconds=0.05, seed=0)
    assert not found.info["proven"]
    assert found.record.energy[0] == pytest.approx(least, abs=1e-12)
    assert (np.diff(found.record.energy) >= 0).all()


def test_fields_and_couplings():
    found = SklsbSampler().sample_ising([0.5, -1.0], {(0, 1): 1.0}, num_reads=10, beta=3.0)
    assert found.info["beta"] == 3.0
    np.testing.assert_allclose(
        found.record.energy, dimod.BQM.from_ising([0.5, -1.0], {(0, 1): 1.0}).energies(found)
    )


def test_discrete_models():
    rng, dqm = np.random.default_rng(0), dimod.DiscreteQuadraticModel()
    for v, k in (("u", 3), ("v", 2), (9, 4)):
        dqm.add_variable(k, label=v)
        dqm.set_linear(v, 2.0 * rng.normal(size=k))
    dqm.set_quadratic(9, "u", {(i, j): 5.0 * rng.normal() for i in range(4) for j in range(i % 3)})
    dqm.set_quadratic("u", "v", {(0, 1): 2.0, (2, 0): -1.0})
    dqm.offset = 0.7
    every = dimod.ExactDQMSolver().sample_dqm(dqm)
    found = SklsbSampler().sample_dqm(dqm, num_reads=4000, beta=0.8, seed=0)
    assert list(found.variables) == ["u", "v", 9]
    np.testing.assert_allclose(found.record.energy, dqm.energies(found), atol=1e-12)
    log_z = np.logaddexp.reduce(-0.8 * every.record.energy)
    assert found.info["log_z"] == pytest.approx(log_z, rel=1e-12)
    p = np.exp(-0.8 * every.record.energy - log_z)
    mean = (p * every.record.energy).sum()
    sd = np.sqrt((p * (every.record.energy - mean) ** 2).sum() / 4000)
    assert abs(found.record.energy.mean() - mean) < 5 * sd
    best = SklsbSampler().sample_dqm(dqm, method="anneal", num_reads=1)
    assert best.first.energy == pytest.approx(every.first.energy, abs=1e-12)
    empty = SklsbSampler().sample_dqm(dimod.DiscreteQuadraticModel(), num_reads=2)
    assert empty.record.energy.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match=r"biases of \['u'\] is .*; it must be at most 700"):
        SklsbSampler().sample_dqm(dqm, beta=1e4)
    dqm.set_linear("u", [1.0, 1e4, 3.0])  # a penalty
    every = dimod.ExactDQMSolver().sample_dqm(dqm)
    best = SklsbSampler().sample_dqm(dqm, method="anneal", num_reads=1)
    assert best.first.energy == pytest.approx(every.first.energy, abs=1e-9)


def test_what_is_refused():
    bqm, sampler = dimod.BQM({"a": 1.0}, {}, 0.0, "SPIN"), SklsbSampler()
    with pytest.raises(ValueError, match="method is 'gibbs'; it must be one of"):
        sampler.sample(bqm, method="gibbs")
    with pytest.raises(ValueError, match="num_reads is 0; it must be from 1"):
        sampler.sample(bqm, num_reads=0)
    with pytest.raises(ValueError, match='seconds is 3; it is for method="anneal" only'):
        sampler.sample(bqm, seconds=3)
    with pytest.raises(ValueError, match="beta is 0; it must be a positive number"):
        sampler.sample(bqm, beta=0)
    with pytest.raises(TypeError, match=r"give a dimod\.BinaryQuadraticModel\. sample_dqm takes"):
        sampler.sample(dimod.DiscreteQuadraticModel())
    with pytest.raises(TypeError, match=r"give a dimod\.BinaryQuadraticModel\. sample_dqm takes"):
        sampler.sample(dimod.QuadraticModel())
    with pytest.raises(TypeError, match=r"give a dimod\.DiscreteQuadraticModel\. sample takes"):
        sampler.sample_dqm(bqm)
    with pytest.warns(dimod.exceptions.SamplerUnknownArgWarning, match="'num_sweeps'"):
        sampler.sample(bqm, num_sweeps=3)
    rng = np.random.default_rng(0)
    dense = dimod.BQM(rng.normal(size=(60, 60)), "SPIN")
    with pytest.raises(ValueError, match="table entries"):
        sampler.sample(dense, method="exact")


def test_fit_names_the_way_from_a_model():
    with pytest.raises(TypeError, match=r"sklsb\.Ising\.from_bqm\(bqm, beta\)"):
        LSBSampler().fit(dimod.BQM("SPIN"))
    with pytest.raises(TypeError, match=r"SklsbSampler\(\)\.sample_dqm"):
        exact.log_partition(dimod.DiscreteQuadraticModel())


def test_beta_does_not_matter_to_anneal_and_biases_are_finite():
    bqm = dimod.BinaryQuadraticModel({"a": 1.0}, {"ab": -2.0}, 0.0, "SPIN")
    for beta in (1e308, 1e-300):
        found = SklsbSampler().sample(bqm, beta=beta, method="anneal", num_reads=2)
        assert found.first.energy == -3.0
    with pytest.raises(ValueError, match="beta is"):
        SklsbSampler().sample(bqm, beta=-1.0, method="anneal")
    dqm = dimod.DiscreteQuadraticModel()
    dqm.add_variable(2, "a")
    dqm.set_linear("a", [0.0, float("nan")])
    with pytest.raises(ValueError, match=r"bias of \['a'\] is not finite"):
        SklsbSampler().sample_dqm(dqm)

"""Errors planted in samplers, in what they leave behind, and in targets with evidence."""

import tempfile
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
from planted import Mutant, anew, both_tests, inside


def lattice(package):
    return package.Ising.lattice(np.array([[0.5, -0.2], [0.1, 0.3]]), coupling=0.4)


def gibbs(package, **settings):
    settings = {"n_chains": 3, "n_burn_in": 5, "init": "uniform", "random_state": 0} | settings
    return package.GibbsSampler("random", **settings).fit(lattice(package))


def each_chain_at_one_state(package):
    """Return what stands for a class of samplers: chain c draws the state of bits of c."""

    class Sampler:
        n_chains, log_z_, log_z_error_ = 4, 0.0, 0.0
        run_ = SimpleNamespace(disagreement=None)

        def __init__(self, **settings):
            pass

        def fit(self, target):
            self.target = target
            return self

        def sample(self, n, thin=1):
            x = np.where(np.arange(4)[:, None] >> np.arange(4) & 1, 1, -1).astype(np.int8)
            draws = np.repeat(x[:, None], n, axis=1)
            return inside(package, "diagnostics.draws").draws_dataset(draws, self.target)

    return Sampler


def check_rows_of_chains(package):
    tables, dimod = (inside(package, name) for name in ("samplers.tables", "dimod"))
    tables.AutoSampler = dimod.ParallelTempering = each_chain_at_one_state(package)
    target = lattice(package)
    x, _ = tables.draw_from_chains(target, 8, 0)
    assert len(np.unique(x, axis=0)) == 4, "rows of a table come from all chains"
    x, _ = dimod._tempered(target, 8, None, 0)
    assert len(np.unique(x, axis=0)) == 4, "reads come from all chains"


def check_unproven(package):
    target = package.FunctionTarget(lambda x: x.sum(axis=-1), 3)
    found = package.anneal(target, n_sweeps=2, n_chains=1, random_state=0)
    assert found["lp"].item() == 3.0, "the maximum"
    assert not found.attrs["proven"], "chains prove nothing"


def check_assigned_states(package):
    pytest.importorskip("torch")
    settings = {"fast": True, "n_flips": 2, "n_burn_in": 0, "init": "uniform", "random_state": 0}
    sampler = package.LSBSampler("barker", n_chains=2, **settings).fit(lattice(package))
    states = -sampler.state_
    sampler.state_tensor_ = states
    assert (sampler.state_ == states).all(), "chains are where they were put"
    sampler.sample(1)  # log p of these states is known


def check_many_chains(package):
    sampler = gibbs(package)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        draws = package.sample_chains(sampler, 4, n_chains=5)
    assert draws.sizes["chain"] == 5, "all chains are returned"
    alone = package.sample_chains(sampler, 4, n_chains=5)
    assert draws.equals(alone), "where chains run does not matter"
    assert draws.attrs["n_chains"] == "5", "settings are those of the call"


def check_files(package):
    sampler = gibbs(package)
    with tempfile.TemporaryDirectory() as folder:
        sampler.save(f"{folder}/fitted")
        other = package.Ising.lattice(np.zeros((2, 2)), coupling=0.4)
        with pytest.raises(package.exceptions.StoreError, match="another target"):
            type(sampler).load(f"{folder}/fitted", other)
        again = type(sampler).load(f"{folder}/fitted", lattice(package))
    assert again.sample(5).equals(sampler.sample(5)), "chains from a file go on"


def check_exports(package):
    sampler = gibbs(package)
    first = sampler.sample(5)
    last = sampler.sample(7)
    of_first, of_last = sampler.to_datatree(first), sampler.to_datatree(last)
    assert np.array_equal(of_first["sample_stats"]["lp"], first["lp"]), "lp of the given draws"
    assert of_last["sample_stats"].sizes["draw"] == 7, "lp of the last draws"


def check_default_burn_in(package):
    sampler = package.GibbsSampler("systematic")
    length = sampler._algorithm(sampler, lattice(package)).burn_in_length()
    assert length == 500, "2,000 draws of variables"


def check_scans(package):
    rule = inside(package, "exact.matrices").rule_of
    assert type(rule(package.GibbsSampler(), lattice(package))).__name__ == "Chromatic", "by colour"


def check_exchanges(package):
    anew("test_swap").test_uniform_and_quenched_starts()


def check_independent_draws(package):
    target = lattice(package)
    sampler = package.EliminationSampler(n_chains=2, random_state=0).fit(target)
    assert sampler.thin_ == 1, "draws are independent"
    p = sampler.marginals_["p"].values
    wanted = package.exact.marginals(target)["p"].values
    assert np.allclose(p, wanted), "marginals are exact"


def check_log_z(package):
    target = lattice(package)
    settings = {"n_replicas": 3, "n_chains": 2, "n_burn_in": 64, "random_state": 0}
    sampler = package.ParallelTempering(init="uniform", **settings).fit(target)
    wanted = package.exact.log_partition(target)
    assert abs(sampler.log_z_ - wanted) < 1.0, "log Z"
    assert sampler.betas_[0] == 0.0, "the first level is the reference"


def check_errors_of_candidates(package):
    race = inside(package, "trials.contest")
    one = race.Entrant.__new__(race.Entrant)
    one.halves, one.n_transitions, one.ensemble = np.full((8, 1, 1), 0.5), 1000, range(4)
    assert one.errors(10.0, np.array([[0.5]])) == 0.25 * 10.0 / 2000, "half of the transitions"


def check_reference(package):
    target = lattice(package)
    found = inside(package, "trials.reference").find_reference(target, 1e9)
    assert np.allclose(found.p, package.exact.marginals(target)["p"].values.reshape(4, 2)), "p"
    rng = np.random.default_rng(0)
    x = np.array([found.draw(rng) for _ in range(2000)])
    assert np.abs((x == 1).mean(axis=0) - found.p[:, 1]).max() < 0.05, "draws have these p"


def check_evidence(package):
    target = lattice(package).condition({(0, 0): 1, (1, 1): -1})
    x = np.array([[1, 1, 1, -1], [1, 1, 1, 1], [-1, 1, 1, -1]])
    assert np.isfinite(target.log_prob(x)).tolist() == [True, False, False], "evidence holds"


def check_frozen(package):
    """What is set after `fit` changes no new chain, and what fails changes nothing."""
    sampler, other = gibbs(package), gibbs(package)
    sampler.set_params(init="quenched")
    wanted = package.sample_chains(other, 3, n_chains=2)
    assert package.sample_chains(sampler, 3, n_chains=2).equals(wanted), "frozen parameters"
    sampler = package.GibbsSampler(n_chains=0)
    before = vars(sampler).copy()
    with pytest.raises(ValueError, match="n_chains"):
        sampler.fit(lattice(package))
    assert vars(sampler) == before, "a fit that fails leaves no trace"


def check_winner(package):
    copied = inside(package, "samplers.auto").AutoSampler.__copy__
    winner = gibbs(package)
    auto = package.AutoSampler()
    auto._put(winner.run_, {"sampler_": winner})
    made = copied(auto)
    assert made.sampler_.run_ is made.run_, "both move the same chains"
    assert made.run_ is not auto.run_, "a copy has chains of its own"


MUTANTS = {
    "rows of the first chains": Mutant(
        "samplers/tables.py",
        "return x[evenly(len(x), n)], sampler",
        "return x[:n], sampler",
        check_rows_of_chains,
        "rows of a table",
    ),
    "reads of the first ladder": Mutant(
        "dimod.py",
        "return x[evenly(len(x), n)], info",
        "return x[:n], info",
        check_rows_of_chains,
        "reads come from all chains",
    ),
    "rows that are not spread": Mutant(
        "diagnostics/draws.py",
        "np.linspace(0, n_all - 1, min(n, n_all)).round()",
        "np.arange(min(n, n_all))",
        check_rows_of_chains,
        "rows of a table",
    ),
    "the best states of chains taken for a proof": Mutant(
        "samplers/annealing.py",
        "annealer.log_prob, proven=False)",
        "annealer.log_prob, proven=True)",
        check_unproven,
        "prove nothing",
    ),
    "states that are assigned to nothing": Mutant(
        "samplers/lsb.py",
        "            chains.put(checked)\n",
        "            chains.put(before)\n",
        check_assigned_states,
        "where they were put",
    ),
    "streams of one worker for all": Mutant(
        "samplers/parallel.py",
        "Streams(spawn(job.seed, n, span[0]), span[0])",
        "Streams(spawn(job.seed, n, 0), span[0])",
        check_many_chains,
        "where chains run",
    ),
    "a file for any target": Mutant(
        "samplers/_run/saving.py",
        "        if other:\n",
        "        if False:\n",
        check_files,
        "DID NOT",
    ),
    "statistics of other draws": Mutant(
        "samplers/_run/exports.py",
        "if posterior is last and run",
        "if posterior is not last and run",
        check_exports,
        "lp of the given draws",
    ),
    "a burn-in of as many sweeps for all": Mutant(
        "samplers/_run/fixed.py",
        "max(5, -(-2000 // n_sites))",
        "max(5, 2000)",
        check_default_burn_in,
        "2,000 draws",
    ),
    "sweeps in the order of variables": Mutant(
        "samplers/gibbs.py",
        'return "chromatic" if is_sparse(target) else "systematic"',
        'return "systematic"',
        check_scans,
        "by colour",
    ),
    "starts of exchanges that go uphill where they should not": Mutant(
        "samplers/swap.py",
        "(~quenched | (",
        "(quenched | (",
        check_exchanges,
        ".",
    ),
    "draws that depend on each other": Mutant(
        "samplers/elimination.py",
        "return Thinning(1, 0.0, 0, 0)",
        "return Thinning(2, 0.0, 0, 0)",
        check_independent_draws,
        "independent",
    ),
    "the error of log Z in its place": Mutant(
        "samplers/tempering.py", "log_z[0]", "log_z[1]", check_log_z, "log Z"
    ),
    "log Z of the ratio alone": Mutant(
        "samplers/_tempering/ladders.py",
        "return ratio + self.log_z_before, error",
        "return ratio, error",
        check_log_z,
        "log Z",
    ),
    "errors as if from eight times the transitions": Mutant(
        "trials/contest.py",
        "        n = 0.5 * self.n_transitions * len(self.ensemble)\n        of_halves",
        "        n = 4.0 * self.n_transitions * len(self.ensemble)\n        of_halves",
        check_errors_of_candidates,
        "half of the transitions",
    ),
    "exact answers at another temperature": Mutant(
        "trials/reference.py",
        "weight = np.exp(log_p - top)",
        "weight = np.exp(0.5 * (log_p - top))",
        check_reference,
        "p",
    ),
    "evidence of which a part is enough": Mutant(
        "targets/base.py",
        "(states[..., self.sites] == self.observed).all(axis=-1)",
        "(states[..., self.sites] == self.observed).any(axis=-1)",
        check_evidence,
        "evidence holds",
    ),
    "a fit that is put in place before it is whole": Mutant(
        "samplers/_run/base.py",
        "        given = self._unfitted()\n",
        "        given = self._unfitted()\n        self._begun = target\n",
        check_frozen,
        "leaves no trace",
    ),
    "parameters that are not frozen": Mutant(
        "samplers/_run/base.py",
        "run.follow(self.n_jobs, self.verbose)",
        "run.algorithm.params.init = self.init",
        check_frozen,
        "frozen parameters",
    ),
    "a copy whose winner moves the chains of the other": Mutant(
        "samplers/auto.py",
        "            made.sampler_.run_ = made.run_\n",
        "",
        check_winner,
        "the same chains",
    ),
}


test_a_planted_error_is_found, test_the_package_itself_passes = both_tests(MUTANTS)

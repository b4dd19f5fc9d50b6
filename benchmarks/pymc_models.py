"""Effective draws per second of small models of PyMC, by sklsb and by PyMC's own Gibbs samplers.

The effective sample size is the smallest of a variable, by ArviZ, for four chains one after the
other, 2,000 draws each. Tuning, fit and compilation are not counted. Needs PyMC.

    python benchmarks/pymc_models.py
"""

import logging
import time
import warnings

import arviz
import numpy as np
import pymc as pm
import pytensor.tensor as pt

from sklsb import GibbsSampler, LSBSampler, from_pymc

N_DRAWS, N_TUNE = 2000, 500


def lattice():
    """An Ising model of 36 binary variables."""
    field = 0.3 * np.random.default_rng(0).normal(size=(6, 6))
    with pm.Model() as model:
        s = 2 * pm.Bernoulli("b", 0.5, shape=(6, 6)) - 1
        pairs = (s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()
        pm.Potential("energy", 0.35 * pairs + (field * s).sum())
    return model


def segments():
    """20 observations from three groups; neighbours tend to have the same one."""
    means = np.array([-1.0, 0.0, 1.0])
    y = np.repeat(means, [7, 6, 7]) + 0.8 * np.random.default_rng(1).normal(size=20)
    with pm.Model() as model:
        z = pm.Categorical("z", np.ones(3) / 3, shape=20)
        pm.Normal("y", pt.as_tensor(means)[z], 0.8, observed=y)
        pm.Potential("smooth", 0.8 * pt.eq(z[1:], z[:-1]).sum())
    return model


def regression():
    """Which of 20 columns matter, with known coefficients, in 2,000 rows: log p takes longer."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2000, 20))
    y = X[:, :5].sum(axis=1) / 30 + rng.normal(size=2000)
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=20)
        pm.Normal("y", pt.as_tensor(X) @ (z / 30.0), 1.0, observed=y)
    return model


def ess(draws):
    return min(float(one.min()) for one in arviz.ess(draws).data_vars.values())


def main():
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    for make in (lattice, segments, regression):
        model = make()
        target = from_pymc(model)
        for sampler in (
            GibbsSampler("random", n_jobs=1, random_state=0),
            LSBSampler("barker", n_jobs=1),
        ):
            sampler.set_params(random_state=0).fit(target).sample(1)  # compiles
            start, before = time.perf_counter(), sampler.n_evaluations_
            draws = sampler.sample(N_DRAWS, thin="sweep")
            seconds = time.perf_counter() - start
            rate = (sampler.n_evaluations_ - before) / seconds
            print(
                f"{make.__name__:12} {type(sampler).__name__:14} "
                f"{ess(target.to_dataset(draws)) / seconds:8.0f} effective draws per second, "
                f"{rate:9.0f} evaluations"
            )
        options = {"chains": 4, "cores": 1, "progressbar": False, "random_seed": 0}
        with model:
            pm.sample(tune=1, draws=1, **options, compute_convergence_checks=False)
            start = time.perf_counter()
            found = pm.sample(N_DRAWS, tune=N_TUNE, **options, compute_convergence_checks=False)
            seconds = (time.perf_counter() - start) * N_DRAWS / (N_DRAWS + N_TUNE)
        posterior = found["posterior"].to_dataset()
        print(f"{make.__name__:12} {'pymc.sample':14} {ess(posterior) / seconds:8.0f}")


if __name__ == "__main__":
    main()

"""Models of PyMC with continuous and discrete variables: what an hour of each way gives.

Effective draws of the continuous parameters per CPU second (the least of all parameters, by ArviZ,
without compiling): by NUTS with `sklsb.pymc.DiscreteStep`, in turns and with the discrete variables
summed out (`with_nuts`, where that is possible), by NUTS with PyMC's own discrete steps, and by
NUTS on the model with the discrete variables summed out by hand, where somebody would do that.
Each way has four chains (indicators: 16), whose draws and CPU seconds are pooled; half of the steps
are for tuning, and their time counts. Chains have 2,000 steps, and fewer where PyMC's own steps
take more than half a minute for them. The last column is the standard error of the ratio to these
in per cent, by leaving out one chain after the other. Needs PyMC, and a quarter of an hour.

    python benchmarks/mixed.py [--table FILE] [name ...]

Simulation-based calibration, of both ways: parameters and data are drawn from six small models
1,000 times, and the rank of the parameters among draws of the chain, which starts at them, must be
uniform. NUTS is tuned on the first data; 9 draws, 15 steps apart. A quarter of an hour.

    python benchmarks/mixed.py calibration [ranks]
"""

import contextlib
import logging
import sys
import time
import warnings
from itertools import product

import arviz
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from record import write_table
from scipy import stats

from sklsb.pymc import DiscreteStep

ordered = pm.distributions.transforms.ordered
N_DRAWS, N_CHAINS = 1000, 4


def mixture(n, marginal=False):
    rng = np.random.default_rng(0)
    y = np.array([-3, 0, 3.0])[rng.integers(0, 3, n)] + rng.normal(size=n)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu = pm.Normal("mu", 0, 5, shape=3, transform=ordered, initval=[-1, 0, 1.0])
        if marginal:
            pm.Mixture("y", w, pm.Normal.dist(mu, 1.0), observed=y)
        else:
            z = pm.Categorical("z", w, shape=n)
            pm.Normal("y", mu[z], 1.0, observed=y)
    return model


def occupancy(n, marginal=False, visits=4):
    rng = np.random.default_rng(2)
    y = ((rng.random((n, visits)) < 0.3) & (rng.random(n) < 0.6)[:, None]).astype(int)
    with pm.Model() as model:
        psi, p = pm.Beta("psi", 1, 1), pm.Beta("p", 1, 1)
        if marginal:
            seen = y.sum(axis=1)
            there = pt.log(psi) + seen * pt.log(p) + (visits - seen) * pt.log1p(-p)
            away = pt.switch(seen > 0, -np.inf, pt.log1p(-psi))
            pm.Potential("y", pt.logaddexp(there, away).sum())
        else:
            z = pm.Bernoulli("z", psi, shape=n, initval=y.any(axis=1).astype(int))
            pm.Bernoulli("y", p * z[:, None], observed=y)
    return model


def change_point(marginal=False, years=111):
    rng = np.random.default_rng(3)
    y = rng.poisson(np.where(np.arange(years) < 40, 3.0, 1.0))
    with pm.Model() as model:
        early, late = pm.Exponential("early", 1.0), pm.Exponential("late", 1.0)
        if marginal:
            one, other = (pm.logp(pm.Poisson.dist(rate), y) for rate in (early, late))
            first = pt.concatenate([[0.0], pt.cumsum(one)])
            last = pt.concatenate([[0.0], pt.cumsum(other)])
            pm.Potential("y", pt.logsumexp(first + last[-1] - last))
        else:
            at = pm.DiscreteUniform("at", 0, years)
            pm.Poisson("y", pt.switch(np.arange(years) < at, early, late), observed=y)
    return model


def hidden_markov(n, marginal=False):
    rng = np.random.default_rng(1)
    z = [0]
    for _ in range(n - 1):
        z.append(int(rng.random() < [0.05, 0.9][z[-1]]))
    y = np.array([-1.0, 1.0])[z] + rng.normal(size=n)
    with pm.Model() as model:
        stay = pm.Beta("stay", 5, 1, shape=2)
        mu = pm.Normal("mu", 0, 2, shape=2, transform=ordered, initval=[-0.5, 0.5])
        p = pt.stack([pt.stack([stay[0], 1 - stay[0]]), pt.stack([1 - stay[1], stay[1]])])
        if marginal:
            local = pm.logp(pm.Normal.dist(mu, 1.0), y[:, None])

            def forward(here, before, moves):
                return here + pt.logsumexp(before[:, None] + moves, axis=0)

            last = pytensor.scan(
                forward, [local[1:]], [local[0] - np.log(2)], [pt.log(p)], return_updates=False
            )[-1]
            pm.Potential("y", pt.logsumexp(last))
        else:
            a = pm.Bernoulli("z", 0.5, shape=n, initval=(y > 0).astype(int))
            pm.Potential("moves", pt.log(p[a[:-1], a[1:]]).sum())
            pm.Normal("y", mu[a], 1.0, observed=y)
    return model


def indicators(n=200, p=30):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, p))
    y = X[:, :4] @ [1.0, -0.8, 0.5, 0.3] + rng.normal(size=n)
    with pm.Model() as model:
        g = pm.Bernoulli("g", 0.2, shape=p)
        beta, sd = pm.Normal("beta", 0, 1, shape=p), pm.HalfNormal("sd", 1)
        pm.Normal("y", pt.as_tensor(X) @ (g * beta), sd, observed=y)
    return model


def crowd(marginal=False, items=150, workers=8, labels=900):
    rng = np.random.default_rng(5)
    item, worker = rng.integers(0, items, labels), rng.integers(0, workers, labels)
    truth = rng.integers(0, 3, items)
    y = np.where(rng.random(labels) < 0.7, truth[item], rng.integers(0, 3, labels))
    with pm.Model() as model:
        share = pm.Dirichlet("share", np.ones(3))
        theta = pm.Dirichlet("theta", np.eye(3) * 3 + 1, shape=(workers, 3, 3))
        if marginal:
            each = pt.log(theta)[worker, :, y]
            total = pt.inc_subtensor(pt.zeros((items, 3))[item], each) + pt.log(share)
            pm.Potential("y", pt.logsumexp(total, axis=1).sum())
        else:
            z = pm.Categorical("z", share, shape=items)
            pm.Categorical("y", theta[worker, z[item]], observed=y)
    return model


def dynamic_occupancy(n=100, seasons=6, visits=3):
    rng = np.random.default_rng(6)
    z = [rng.random(n) < 0.5]
    for _ in range(seasons - 1):
        z.append(rng.random(n) < np.where(z[-1], 0.8, 0.2))
    y = (rng.random((n, seasons, visits)) < 0.5) & np.stack(z, axis=1)[..., None]
    with pm.Model() as model:
        psi, stays, comes, p = (pm.Beta(name, 1, 1) for name in ("psi", "stays", "comes", "p"))
        start = y.any(axis=2).astype(int)
        a = [pm.Bernoulli("z0", psi, shape=n, initval=start[:, 0])]
        for t in range(1, seasons):
            back = a[-1] * stays + (1 - a[-1]) * comes
            a.append(pm.Bernoulli(f"z{t}", back, initval=start[:, t]))
        there = pt.stack(a, axis=1)
        pm.Bernoulli("y", p * there[:, :, None], observed=y.astype(int))
    return model


def capture(n=200, occasions=5):
    """Data augmentation: some rows are of animals that nobody saw, if there are any."""
    rng = np.random.default_rng(7)
    p = 1 / (1 + np.exp(-(-0.5 + 0.7 * rng.normal(size=n // 2))))
    seen = rng.binomial(occasions, p)
    y = np.sort(np.append(seen[seen > 0], np.zeros(n - (seen > 0).sum(), int)))[::-1].copy()
    with pm.Model() as model:
        omega = pm.Beta("omega", 1, 1)
        mean, sd = pm.Normal("mean", 0, 1), pm.HalfNormal("sd", 1)
        effect = pm.Normal("effect", 0, 1, shape=n)
        z = pm.Bernoulli("z", omega, shape=n, initval=(y > 0).astype(int))
        pm.Binomial("y", occasions, pm.math.sigmoid(mean + sd * effect) * z, observed=y)
    return model


# The model, with the discrete variables summed out (None where nobody would), the draws of a chain
# of PyMC's own steps, and the parameters looked at (None: all).
CASES = {
    "mixture, n = 300": (lambda: mixture(300), lambda: mixture(300, True), 250, None),
    "mixture, n = 2,000": (lambda: mixture(2000), lambda: mixture(2000, True), 100, None),
    "occupancy, n = 300": (lambda: occupancy(300), lambda: occupancy(300, True), 400, None),
    "occupancy, n = 2,000": (lambda: occupancy(2000), lambda: occupancy(2000, True), 80, None),
    "change point": (change_point, lambda: change_point(True), 1000, None),
    "hidden Markov, n = 300": (
        lambda: hidden_markov(300),
        lambda: hidden_markov(300, True),
        1000,
        None,
    ),
    "indicators, p = 30": (indicators, None, 1000, ["beta", "sd"]),
    "crowd labels": (crowd, lambda: crowd(True), 250, None),
    "dynamic occupancy": (dynamic_occupancy, None, 120, None),
    "capture-recapture": (capture, None, 500, ["omega", "mean", "sd"]),
}


def discrete(model):
    return [rv for rv in model.free_RVs if rv.dtype.startswith("int")]


def rate(model, how, n_draws, names, n_chains):
    """Return effective draws per CPU second of the parameter that has the fewest, and its error.

    The error is that of the logarithm, by leaving out one chain after the other: where a chain got
    stuck, the chains together are worth less than each of them.
    """
    block, times = discrete(model), np.zeros((n_chains, 2))

    def clock(trace, draw):
        now = time.process_time()
        times[draw.chain] = times[draw.chain, 0] or now, now

    with model:
        others = [rv for rv in model.free_RVs if rv not in block]
        step = [] if how == "with_nuts" else [pm.NUTS(others)]
        if how == "with_nuts":
            step.append(DiscreteStep(block).with_nuts())
        elif how == "own":  # as PyMC assigns them
            kinds = {type(rv.owner.op).__name__ for rv in block}
            if kinds == {"BernoulliRV"}:
                step.append(pm.BinaryGibbsMetropolis(block))
            else:
                step += [
                    pm.CategoricalGibbsMetropolis([rv])
                    if "Categ" in str(type(rv.owner.op))
                    else pm.Metropolis([rv])
                    for rv in block
                ]
        elif how == "in turns":
            step.append(DiscreteStep(block))
        trace = pm.sample(
            n_draws,
            tune=n_draws,
            chains=n_chains,
            cores=1,
            step=step,
            progressbar=False,
            random_seed=1,
            compute_convergence_checks=False,
            callback=clock,
        )
    posterior = trace.posterior.dataset[names or [rv.name for rv in others]]

    def least(draws):
        return min(float(one.min()) for one in arviz.ess(draws).data_vars.values())

    took, chains = np.ptp(times, axis=1), range(n_chains)
    without = [np.delete(chains, c) for c in chains]
    left = np.log([least(posterior.isel(chain=kept)) / took[kept].sum() for kept in without])
    return least(posterior) / took.sum(), np.sqrt((n_chains - 1) * left.var())


def draw_mixture(rng, n=15):
    w, mu = rng.beta(2, 2), rng.normal([-2, 2], 1)
    z = rng.binomial(1, w, n)
    return {"w": w, "mu": mu, "z": z, "y": rng.normal(mu[z], 1)}


def small_mixture(n=15):
    w, mu = pm.Beta("w", 2, 2), pm.Normal("mu", [-2, 2], 1)
    pm.Normal("y", mu[pm.Bernoulli("z", w, shape=n)], 1)


def draw_occupancy(rng, n=15, visits=3):
    psi, p = rng.beta(2, 2, 2)
    z = rng.binomial(1, psi, n)
    return {"psi": psi, "p": p, "z": z, "y": rng.binomial(visits, np.where(z, p, 0.05))}


def small_occupancy(n=15, visits=3):
    psi, p = pm.Beta("psi", 2, 2), pm.Beta("p", 2, 2)
    pm.Binomial("y", visits, pt.switch(pm.Bernoulli("z", psi, shape=n), p, 0.05))


def draw_change_point(rng, years=15):
    early, late = rng.exponential(size=2)
    at = rng.integers(0, years + 1)
    y = rng.poisson(np.where(np.arange(years) < at, early, late))
    return {"early": early, "late": late, "at": at, "y": y}


def small_change_point(years=15):
    early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
    at = pm.DiscreteUniform("at", 0, years)
    pm.Poisson("y", pt.switch(np.arange(years) < at, early, late))


def draw_hidden_markov(rng, n=12):
    stay, mu, z = rng.beta(4, 2, 2), rng.normal([-1, 1], 1), [rng.integers(2)]
    for _ in range(n - 1):
        z.append(z[-1] if rng.random() < stay[z[-1]] else 1 - z[-1])
    return {"stay": stay, "mu": mu, "z": np.array(z), "y": rng.normal(mu[z], 1)}


def small_hidden_markov(n=12):
    stay, mu = pm.Beta("stay", 4, 2, shape=2), pm.Normal("mu", [-1, 1], 1)
    z = pm.Bernoulli("z", 0.5, shape=n)
    p = pt.stack([pt.stack([stay[0], 1 - stay[0]]), pt.stack([1 - stay[1], stay[1]])])
    pm.Potential("moves", pt.log(p[z[:-1], z[1:]]).sum())
    pm.Normal("y", mu[z], 1)


DESIGN = np.random.default_rng(8).normal(size=(12, 4))


def draw_indicators(rng):
    g, beta = rng.binomial(1, 0.4, 4), rng.normal(size=4)
    return {"g": g, "beta": beta, "y": rng.normal(DESIGN @ (g * beta), 1)}


def small_indicators():
    g, beta = pm.Bernoulli("g", 0.4, shape=4), pm.Normal("beta", 0, 1, shape=4)
    pm.Normal("y", pt.as_tensor(DESIGN) @ (g * beta), 1)


def draw_crowd(rng, items=12, workers=3):
    share, hit, false = rng.beta(2, 2), rng.beta(4, 2, workers), rng.beta(2, 4, workers)
    z = rng.binomial(1, share, items)
    y = rng.binomial(1, np.where(z[:, None], hit, false))
    return {"share": share, "hit": hit, "false": false, "z": z, "y": y}


def small_crowd(items=12, workers=3):
    share = pm.Beta("share", 2, 2)
    hit, false = pm.Beta("hit", 4, 2, shape=workers), pm.Beta("false", 2, 4, shape=workers)
    z = pm.Bernoulli("z", share, shape=items)
    pm.Bernoulli("y", pt.switch(z[:, None], hit, false))


CALIBRATED = {
    "mixture": (small_mixture, draw_mixture),
    "occupancy": (small_occupancy, draw_occupancy),
    "change point": (small_change_point, draw_change_point),
    "hidden Markov": (small_hidden_markov, draw_hidden_markov),
    "indicators": (small_indicators, draw_indicators),
    "crowd labels": (small_crowd, draw_crowd),
}


def values_of(model, truth):
    """Return values of all free variables on the scales on which PyMC draws them."""
    point = {}
    for rv, value in model.rvs_to_values.items():
        if rv in model.free_RVs:
            x = np.asarray(truth[rv.name])
            if value.name.endswith("_logodds__"):
                x = np.log(x) - np.log1p(-x)
            elif value.name.endswith("_log__"):
                x = np.log(x)
            point[value.name] = x.astype(value.dtype)
    return point


def ranks(make, draw, n_ranks, summed, n_draws=9, thin=15, n_tune=500, seed=0):
    """Return ranks of continuous parameters, shape (n_ranks, elements), and their names.

    Data are a variable of the model that no step moves: so all are drawn by the same functions.
    """
    rng, found = np.random.default_rng(seed), []
    with pm.Model() as model:
        make()
        free = [rv for rv in model.free_RVs if rv.name != "y"]
        others = [rv for rv in free if not rv.dtype.startswith("int")]
        block = [rv for rv in free if rv not in others]
        if summed:
            point = values_of(model, draw(rng))
            steps = DiscreteStep(block).with_nuts(others, initial_point=point).methods
        else:
            steps = [pm.NUTS(others), DiscreteStep(block)]
    for turn in range(n_ranks + 1):
        point = start = values_of(model, draw(rng))
        steps[1].setup_chain(rng, 0, 1)
        if turn == 0:
            steps[0].setup_chain(rng, n_tune, 1)
        below = {model.rvs_to_values[rv].name: 0 for rv in others}
        for i in range(n_draws * thin if turn else n_tune):
            for step in steps:
                point, _ = step.step(point)
            if i % thin == thin - 1:
                for name in below:
                    below[name] += point[name] < start[name]
        if turn:
            found.append(np.concatenate([np.ravel(x) for x in below.values()]))
        else:
            steps[0].stop_tuning()
    return np.array(found), [name for name, x in below.items() for _ in range(np.size(x))]


def bare(name):
    return name.removesuffix("_logodds__").removesuffix("_log__")


def calibration(n_ranks):
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    for (name, (make, draw)), summed in product(CALIBRATED.items(), (False, True)):
        start = time.process_time()
        found, names = ranks(make, draw, n_ranks, summed)
        p = [stats.chisquare(np.bincount(one, minlength=10)).pvalue for one in found.T]
        took = time.process_time() - start
        each = ", ".join(f"{bare(n)} {q:.3f}" for n, q in zip(names, p, strict=True))
        how = "with_nuts" if summed else "in turns"
        print(
            f"{name:15}{how:10}{took:5.0f} s  least p {min(p):.4f} of {len(p)}: {each}", flush=True
        )


def short(x):
    """Write two digits."""
    return f"{float(f'{x:.2g}'):,.12g}"


def main(names, path=None):
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    header = ["model", "in turns", "with_nuts", "PyMC's", "ratio", "summed out", "ratio", "+-, %"]
    rows, logs = [], []
    for name in names or CASES:
        make, marginal, n_own, parameters = CASES[name]
        n_chains = N_CHAINS if name != "indicators, p = 30" else 4 * N_CHAINS  # some get stuck
        found = {"own": rate(make(), "own", n_own, parameters, n_chains)}
        for how in ("in turns", "with_nuts"):
            with contextlib.suppress(ValueError):  # sites that depend on each other
                found[how] = rate(make(), how, N_DRAWS, parameters, n_chains)
        best = max((found[how] for how in found if how != "own"), key=lambda one: one[0])
        if marginal:
            found["hand"] = rate(marginal(), "alone", N_DRAWS, parameters, n_chains)
        rates = {how: one for how, (one, _) in found.items()}
        rates["ratio"] = best[0] / rates["own"]
        if marginal:
            rates["to hand"] = best[0] / rates["hand"]
        rates["error"] = 100 * np.hypot(best[1], found["own"][1])
        logs.append(np.log(rates["ratio"]))
        order = ("in turns", "with_nuts", "own", "ratio", "hand", "to hand", "error")
        rows.append([name, *(short(rates[k]) if k in rates else "" for k in order)])
        print(*rows[-1], sep="  ", flush=True)
    below = f"Geometric mean of the ratios to PyMC's own steps: {np.exp(np.mean(logs)):.3g}."
    print(below)
    if path:
        write_table(
            path, header, rows, [], ["sklsb/pymc", "sklsb/_kernels/elimination/sums.py"], below
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["calibration"]:
        calibration(int((sys.argv[2:] or [1000])[0]))
    else:
        table = sys.argv[2] if sys.argv[1:2] == ["--table"] else None
        main(sys.argv[3:] if table else sys.argv[1:], table)

"""Effective draws per CPU second: LSBSampler() against the best fixed Metropolis function.

    python benchmarks/jumps.py [dimers] [pairs] [ising] [glasses] [--seeds 3] [--seconds 2]

Every sampler is fitted with its defaults and ``blocks=None``, then timed on draws at the best of
three distances: ``thin="auto"``, twice and four times that. "dimers": 60 of 100 spins of a 10x10 lattice in tied pairs (J = 3); "pairs": 30 pairs
(J = 3.45) among 40 free spins; both with fields of standard deviation 1 and harmonic means over the
spins. "ising": the four cases of the paper, for the sum of the spins. "glasses": a 20x20 glass, a
Potts lattice, a dense glass and a machine, weighted by the variances of the sites.
"""

import argparse
import time
import warnings

import arviz
import numpy as np

import sklsb
from sklsb.exceptions import SamplerWarning

FIXED = ("barker", "sqrt", "min", "max")


def pairs(seed):
    rng = np.random.default_rng(seed)
    couplings = np.zeros((100, 100))
    first = np.arange(0, 60, 2)
    couplings[first, first + 1] = couplings[first + 1, first] = 3.45
    return sklsb.Ising(couplings, rng.normal(size=100))


def dimers(seed, n=10):
    rng = np.random.default_rng(seed)
    right = np.arange(n * n).reshape(n, n)
    edges = [(right, np.roll(right, -1, axis)) for axis in (0, 1)]
    couplings, free = np.zeros((n * n, n * n)), np.ones(n * n, bool)
    for one, other in edges:
        couplings[one, other] = couplings[other, one] = 0.3
    for site in rng.permutation(n * n):
        near = np.flatnonzero((couplings[site] > 0) & free)
        if free[site] and near.size and (~free).sum() < 60:
            other = rng.choice(near)
            free[[site, other]] = False
            couplings[site, other] = couplings[other, site] = 3.0
    return sklsb.Ising(couplings, rng.normal(size=n * n))


def paper(case, seed):
    coupling, mean = ((0, 1), (0, 3), (1, 1), (1, 3))[case - 1]
    field = np.full((30, 30), -float(mean))
    field[7:23, 7:23] = mean
    field += 3 * np.random.default_rng(seed).uniform(-1, 1, field.shape)
    return sklsb.Ising.lattice(field, coupling=float(coupling))


def symmetric(rng, d, scale):
    upper = np.triu(rng.normal(size=(d, d)) * scale, 1)
    return upper + upper.T


def glasses(seed):
    rng = np.random.default_rng(seed)
    site = np.arange(400).reshape(20, 20)
    c = np.zeros((400, 400))
    for axis in (0, 1):
        other = np.roll(site, -1, axis)
        c[site, other] = c[other, site] = rng.normal(size=(20, 20))
    weights = rng.normal(size=(20, 40)) * 0.3
    return {
        "glass 20x20": sklsb.Ising(c, np.zeros(400)),
        "Potts 5, 15x15": sklsb.Potts.lattice(rng.normal(size=(15, 15, 5)) * 0.3, coupling=0.8),
        "dense glass 100": sklsb.Ising(symmetric(rng, 100, 0.08), np.zeros(100)),
        "machine 20 + 40": sklsb.RBM(weights, rng.normal(size=20) * 0.3, np.zeros(40)),
    }


def worth(sampler, target, seconds, of_sum):
    """Return effective draws per second, at the best of three distances."""
    sampler.fit(target)
    thin = sampler.thin_
    return max(measured(sampler, target, thin * k, seconds / 3, of_sum) for k in (1, 2, 4))


def measured(sampler, target, thin, seconds, of_sum):
    """Return effective draws per second, of the sum or over the sites."""
    began = time.process_time()
    sampler.sample(200, thin=thin)
    n = int(np.clip(seconds * 200 / (time.process_time() - began), 2000, 40_000))
    began = time.process_time()
    x = np.asarray(sampler.sample(n, thin=thin).x).reshape(sampler.n_chains, n, -1)
    spent = time.process_time() - began
    if of_sum:
        return float(arviz.ess(x.sum(axis=2, dtype=float), method="mean")) / spent
    parts, variances = [], []
    for i in range(x.shape[2]):
        for value in target.values[1:]:
            hit = (x[..., i] == value).astype(float)
            if hit.var() > 0:
                parts.append(float(arviz.ess(hit, method="mean")))
                variances.append(hit.var())
    parts, variances = np.array(parts), np.array(variances)
    plain = 1 / np.mean(1 / parts)
    return (plain if of_sum is None else variances.sum() / (variances / parts).sum()) / spent


def compare(name, target, seed, seconds, of_sum):
    settings = {"blocks": None, "random_state": seed}
    found = {g: worth(sklsb.LSBSampler(g, **settings), target, seconds, of_sum) for g in FIXED}
    learned = sklsb.LSBSampler(**settings)
    chosen = worth(learned, target, seconds, of_sum)
    best = max(found, key=found.get)
    print(
        f"{name:18} seed {seed}: {learned.candidates_.attrs['chosen']:22} {chosen:10.0f} / "
        f"{best:6} {found[best]:10.0f} = {chosen / found[best]:.2f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["dimers", "pairs", "ising", "glasses"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=8100)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    for seed in range(given.first, given.first + given.seeds):
        if "dimers" in given.what:
            compare("dimers", dimers(seed), seed, given.seconds, None)
        if "pairs" in given.what:
            compare("pairs", pairs(seed), seed, given.seconds, None)
        for case in (1, 2, 3, 4) if "ising" in given.what else ():
            compare(f"Ising case {case}", paper(case, seed), seed, given.seconds, True)
        for name, target in glasses(seed).items() if "glasses" in given.what else ():
            compare(name, target, seed, given.seconds, False)


if __name__ == "__main__":
    main()
